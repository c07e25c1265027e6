//! The driver for Claude Code's own protocol: JSON lines in both directions, with one process for
//! the whole session.
//!
//! The driver was tested with versions 2.1.197 and 2.1.325. Requests in both directions are
//! messages of type `control_request`. The answer that allows a tool must contain an
//! `updatedInput`; the driver sends an empty one, with which the program keeps its own input. The
//! driver could not send that input back, because it knows the input only from the journal, where
//! secrets are redacted.

use std::collections::BTreeMap;

use regatta_core::agent_protocol::{
    AgentEvent, AgentRequest, FailureClass, PermissionOption, PermissionOptionKind, PlanEntry,
    RequestAnswer, RequestContent, StopReason, ToolCall, ToolKind, ToolStatus, Usage,
};
use regatta_engine::ports::agents::{Exit, SessionInput};
use serde_json::{Value, json};

use super::DriverSetup;
use super::acp::fill_form;
use super::common::{
    ConversationProgress, OpenRequests, TextTail, UsageTotal, question_form, unreadable_line_notice,
};
use super::error_class::{ProgramFailure, shorten, to_count};
use super::tool_call_object::read_input;
use crate::driver::{Driver, ExitAssessment, InputAction, JournalRecord, JournalStream};

/// The number of characters that are kept of a tool's output.
const MAX_TOOL_OUTPUT_CHARS: usize = 4000;

/// The kind of a request from the program, with the data from which the driver formats the answer.
#[derive(Clone, Debug)]
enum AnswerFormat {
    Permission,
    /// Questions to a person: the questions as the program sent them, and the JSON schema of the
    /// form for the answers.
    Questions(Value, Value),
}

#[derive(Clone, Debug, Default)]
struct ClaudeTurn {
    is_cancelled: bool,
    /// The tokens that each request to the model used. The key is the id of the model's answer.
    model_calls: BTreeMap<String, Usage>,
    usage_before: Usage,
    /// The kind of error that the program reported in this turn (the work on one prompt), if any.
    error_kind: Option<String>,
    limit_reset: Option<Value>,
}

pub(super) struct ClaudeDriver {
    session_id: String,
    /// The number of control requests that were sent to the program. The next request's id contains
    /// this number.
    sent_controls: u64,
    has_sent_initialize: bool,
    is_session_open: bool,
    start_failure: Option<ProgramFailure>,
    sent_prompts: u64,
    sent_cancels: u32,
    turn: Option<ClaudeTurn>,
    last_turn_failure: Option<Option<ProgramFailure>>,
    tool_calls: BTreeMap<String, ToolCall>,
    open_requests: OpenRequests<AnswerFormat>,
    /// The subtype and id of each request from the program that Regatta does not support. The
    /// driver answers each of these requests with an error.
    requests_to_refuse: Vec<(String, Value)>,
    usage_total: UsageTotal,
    /// The size of the model's context window in tokens, or `None` until the program reports it.
    context_size: Option<u64>,
    answer: TextTail,
    errors: TextTail,
    is_input_closed: bool,
}

impl ClaudeDriver {
    pub(super) fn new(setup: &DriverSetup) -> ClaudeDriver {
        let mut usage_total = UsageTotal::from_usage(setup.used);
        let session_id = setup.session_id();
        usage_total.session = Some(session_id.clone());
        ClaudeDriver {
            session_id,
            sent_controls: 0,
            has_sent_initialize: false,
            is_session_open: false,
            start_failure: None,
            sent_prompts: 0,
            sent_cancels: 0,
            turn: None,
            last_turn_failure: None,
            tool_calls: BTreeMap::new(),
            open_requests: OpenRequests::default(),
            requests_to_refuse: Vec::new(),
            usage_total,
            context_size: None,
            answer: TextTail::for_answer(),
            errors: TextTail::default(),
            is_input_closed: false,
        }
    }

    fn on_input(&mut self, line: &str) -> Vec<AgentEvent> {
        let Ok(message) = serde_json::from_str::<Value>(line) else {
            return vec![];
        };
        match message["type"].as_str().unwrap_or_default() {
            "user" => {
                let n = self.sent_prompts;
                self.sent_prompts += 1;
                self.turn = Some(ClaudeTurn {
                    usage_before: self.usage_total.total(),
                    ..ClaudeTurn::default()
                });
                self.answer.clear();
                self.tool_calls.clear();
                vec![AgentEvent::TurnStarted { n }]
            }
            "control_request" => {
                self.sent_controls += 1;
                match message["request"]["subtype"].as_str() {
                    Some("interrupt") => {
                        self.sent_cancels += 1;
                        if let Some(turn) = &mut self.turn {
                            turn.is_cancelled = true;
                        }
                        self.open_requests.cancel_all()
                    }
                    _ => {
                        self.has_sent_initialize = true;
                        vec![]
                    }
                }
            }
            "control_response" => {
                let id = &message["response"]["request_id"];
                self.requests_to_refuse
                    .retain(|(_, refused_id)| refused_id != id);
                self.open_requests.remove(id);
                vec![]
            }
            _ => vec![],
        }
    }

    fn on_output(&mut self, line: &str, at_unix_ms: u64) -> Vec<AgentEvent> {
        let Ok(message @ Value::Object(_)) = serde_json::from_str::<Value>(line) else {
            if line.trim().is_empty() {
                return vec![];
            }
            self.errors.add_line(line);
            return vec![unreadable_line_notice(line)];
        };
        match message["type"].as_str().unwrap_or_default() {
            "control_response" => self.on_control_response(&message["response"], at_unix_ms),
            "control_request" => self.on_control_request(&message),
            "control_cancel_request" => {
                let id = &message["request_id"];
                let events = self.open_requests.withdraw(id);
                self.open_requests.remove(id);
                events.into_iter().collect()
            }
            "assistant" => self.on_assistant_message(&message),
            "user" => self.on_tool_results(&message["message"]["content"]),
            "result" => self.on_result(&message, at_unix_ms),
            "rate_limit_event" => self.on_rate_limit(&message["rate_limit_info"], at_unix_ms),
            "system" => on_system_message(&message),
            // Ignore the roughly forty other kinds of messages, and kinds that later versions add.
            _ => vec![],
        }
    }

    fn on_control_response(&mut self, response: &Value, at_unix_ms: u64) -> Vec<AgentEvent> {
        if self.is_session_open
            || !self.has_sent_initialize
            || response["request_id"] != "regatta-0"
        {
            return vec![];
        }
        if response["subtype"] == "error" {
            let message = response["error"]
                .as_str()
                .unwrap_or("The program refused to start.");
            self.start_failure = Some(ProgramFailure::classify(
                message,
                None,
                &Value::Null,
                at_unix_ms,
            ));
            return vec![];
        }
        self.is_session_open = true;
        vec![AgentEvent::Started {
            session: Some(self.session_id.clone()),
            model: None,
        }]
    }

    fn on_control_request(&mut self, message: &Value) -> Vec<AgentEvent> {
        let (id, request) = (message["request_id"].clone(), &message["request"]);
        if request["subtype"] != "can_use_tool" {
            let format = request["subtype"].as_str().unwrap_or_default().to_owned();
            let text = format!("The program requested {format}, which Regatta does not offer.");
            self.requests_to_refuse.push((format, id));
            return vec![AgentEvent::Notice { text }];
        }
        let (name, input) = (
            request["tool_name"].as_str().unwrap_or_default(),
            &request["input"],
        );
        let (format, content) = if name == "AskUserQuestion" {
            let list = &input["questions"];
            let (form, content) = question_form(list, |index, _| format!("q{}", index + 1));
            (AnswerFormat::Questions(list.clone(), form), content)
        } else {
            let id = request["tool_use_id"].as_str().unwrap_or_default();
            let option = |id: &str, kind| PermissionOption {
                id: id.to_owned(),
                name: id.to_owned(),
                kind,
            };
            let options = vec![
                option("allow", PermissionOptionKind::AllowOnce),
                option("deny", PermissionOptionKind::RejectOnce),
            ];
            (
                AnswerFormat::Permission,
                RequestContent::Permission {
                    tool: read_tool_call(id, name, input),
                    options,
                },
            )
        };
        let is_cancelled = self.turn.as_ref().is_some_and(|turn| turn.is_cancelled);
        let key = self.open_requests.add(id, format, is_cancelled);
        if is_cancelled {
            vec![]
        } else {
            vec![AgentEvent::RequestMade(AgentRequest { id: key, content })]
        }
    }

    fn on_assistant_message(&mut self, message: &Value) -> Vec<AgentEvent> {
        let mut events = Vec::new();
        let is_subagent = message["parent_tool_use_id"].is_string();
        if let (Some(turn), Some(kind)) = (&mut self.turn, message["error"].as_str()) {
            turn.error_kind = Some(kind.to_owned());
        }
        let message = &message["message"];
        for block in message["content"].as_array().into_iter().flatten() {
            match block["type"].as_str().unwrap_or_default() {
                "text" if !is_subagent => {
                    let text = block["text"].as_str().unwrap_or_default().to_owned();
                    self.answer.add_line(&text);
                    events.push(AgentEvent::Message { text });
                }
                "thinking" if !is_subagent => {
                    events.push(AgentEvent::Thought {
                        text: block["thinking"].as_str().unwrap_or_default().to_owned(),
                    });
                }
                "tool_use" => {
                    let (id, name) = (
                        block["id"].as_str().unwrap_or_default(),
                        block["name"].as_str(),
                    );
                    let input = &block["input"];
                    if name == Some("TodoWrite") {
                        events.push(read_plan(&input["todos"]));
                    }
                    let tool = read_tool_call(id, name.unwrap_or_default(), input);
                    self.tool_calls.insert(tool.id.clone(), tool.clone());
                    events.push(AgentEvent::Tool(tool));
                }
                _ => {}
            }
        }
        events.extend(self.on_model_call(message, is_subagent));
        events
    }

    /// Adds the tokens of one call of the model to the estimated usage of the turn. The message
    /// that ends the turn has the exact numbers.
    fn on_model_call(&mut self, message: &Value, is_subagent: bool) -> Vec<AgentEvent> {
        let (Some(turn), Some(id)) = (&mut self.turn, message["id"].as_str()) else {
            return vec![];
        };
        let used = read_usage(&message["usage"]);
        turn.model_calls.insert(id.to_owned(), used);
        let estimate = turn
            .model_calls
            .values()
            .fold(turn.usage_before, |sum, usage| sum.plus(usage));
        let mut events: Vec<AgentEvent> = self.usage_total.raise_to(estimate).into_iter().collect();
        if let (Some(size), false) = (self.context_size, is_subagent)
            && used.tokens() > 0
        {
            events.push(AgentEvent::Context {
                used: used.tokens(),
                size,
            });
        }
        events
    }

    fn on_tool_results(&mut self, content: &Value) -> Vec<AgentEvent> {
        let results = content
            .as_array()
            .into_iter()
            .flatten()
            .filter(|block| block["type"] == "tool_result");
        results
            .filter_map(|result| {
                let tool = self.tool_calls.get_mut(result["tool_use_id"].as_str()?)?;
                tool.status = if result["is_error"] == true {
                    ToolStatus::Failed
                } else {
                    ToolStatus::Completed
                };
                let text = match &result["content"] {
                    Value::String(text) => text.clone(),
                    Value::Array(blocks) => blocks
                        .iter()
                        .filter_map(|block| block["text"].as_str())
                        .collect(),
                    _ => String::new(),
                };
                tool.output = Some(shorten(&text, MAX_TOOL_OUTPUT_CHARS)).filter(|s| !s.is_empty());
                Some(AgentEvent::Tool(tool.clone()))
            })
            .collect()
    }

    fn on_rate_limit(&mut self, info: &Value, at_unix_ms: u64) -> Vec<AgentEvent> {
        if info["status"] != "rejected" {
            return vec![];
        }
        let resets_at_unix_ms = super::error_class::limit_reset_time("", info, at_unix_ms);
        if let Some(turn) = &mut self.turn {
            turn.limit_reset = Some(info.clone());
        }
        let kind = info["rateLimitType"].as_str().unwrap_or("usage");
        vec![AgentEvent::Limited {
            deadline_unix_ms: resets_at_unix_ms,
            detail: format!("The {kind} limit is used up."),
        }]
    }

    fn on_result(&mut self, result: &Value, at_unix_ms: u64) -> Vec<AgentEvent> {
        let was_running = self.turn.is_some();
        let turn = self.turn.take().unwrap_or_default();
        let mut events = self.open_requests.cancel_all();
        events.extend(self.count_usage(result));
        let errors: Vec<&str> = result["errors"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let detail = result["result"]
            .as_str()
            .filter(|text| !text.is_empty())
            .map_or_else(|| errors.join("\n"), str::to_owned);
        let subtype = result["subtype"].as_str().unwrap_or_default();
        let was_aborted = result["terminal_reason"]
            .as_str()
            .is_some_and(|reason| reason.starts_with("aborted"));
        let outcome = match subtype {
            _ if turn.is_cancelled && result["is_error"] == true => Err(ProgramFailure::new(
                FailureClass::Cancelled,
                "The turn was cancelled.",
            )),
            "error_during_execution" if was_aborted => Err(ProgramFailure::new(
                FailureClass::Cancelled,
                "The turn was cancelled.",
            )),
            "error_max_turns" | "error_max_budget_usd" => Ok(StopReason::MaxTurns),
            "success" if result["is_error"] != true => match result["stop_reason"].as_str() {
                Some("max_tokens") => Ok(StopReason::MaxTokens),
                Some("refusal") => Err(ProgramFailure::new(FailureClass::Refused, detail.clone())),
                _ => Ok(StopReason::EndTurn),
            },
            _ => {
                let data = json!({ "errorKind": turn.error_kind, "limit": turn.limit_reset });
                let status = result["api_error_status"].as_i64();
                Err(ProgramFailure::classify(
                    if detail.is_empty() { subtype } else { &detail },
                    status,
                    &data,
                    at_unix_ms,
                ))
            }
        };
        if !was_running {
            // A result without a running turn means that the program could not start, because the
            // session to resume does not exist.
            let reason = shorten(&detail, 500);
            self.start_failure = outcome
                .err()
                .or_else(|| Some(ProgramFailure::new(FailureClass::Crashed, reason)));
            return events;
        }
        match outcome {
            Ok(stop) => {
                events.push(AgentEvent::TurnEnded {
                    stop,
                    class: None,
                    detail,
                });
                self.last_turn_failure = Some(None);
            }
            Err(failure) => {
                events.extend(failure.turn_end_events());
                self.last_turn_failure = Some(Some(failure));
            }
        }
        events
    }

    /// Reads the tokens and the cost from the message that ends a turn. The message's `modelUsage`
    /// and cost are totals since the start of the session, also of a resumed session. The field
    /// `usage` covers only the turn, without subagents, so it is ignored.
    fn count_usage(&mut self, result: &Value) -> Vec<AgentEvent> {
        let mut total = Usage::default();
        for model in result["modelUsage"]
            .as_object()
            .into_iter()
            .flat_map(|object| object.values())
        {
            let count = |name: &str| model[name].as_u64().unwrap_or(0);
            total = total.plus(&Usage {
                input: count("inputTokens"),
                cached_input: count("cacheReadInputTokens"),
                cache_write: count("cacheCreationInputTokens"),
                output: count("outputTokens"),
                micro_usd: None,
            });
            self.context_size = model["contextWindow"]
                .as_u64()
                .filter(|size| *size > 0)
                .or(self.context_size);
        }
        let cost = result["total_cost_usd"]
            .as_f64()
            .map(|dollars| to_count(dollars * 1e6));
        total.micro_usd = cost.filter(|cost| *cost > 0);
        self.usage_total.raise_to(total).into_iter().collect()
    }

    fn control_request(&self, request: Value) -> InputAction {
        let id = format!("regatta-{}", self.sent_controls);
        InputAction::Line(
            json!({ "type": "control_request", "request_id": id, "request": request }).to_string(),
        )
    }
}

fn control_response(id: &Value, response: Value) -> InputAction {
    let response = json!({ "subtype": "success", "request_id": id, "response": response });
    InputAction::Line(json!({ "type": "control_response", "response": response }).to_string())
}

fn format_answer(format: &AnswerFormat, answer: &RequestAnswer) -> Value {
    match (format, answer) {
        (_, RequestAnswer::Cancelled) => {
            json!({ "behavior": "deny", "message": "The turn was cancelled.", "interrupt": true })
        }
        (_, RequestAnswer::Deny { reason }) => {
            let reason = reason
                .as_deref()
                .unwrap_or("Not allowed. Find another way, or say why there is none.");
            json!({ "behavior": "deny", "message": reason })
        }
        (AnswerFormat::Questions(questions, form), RequestAnswer::Text { text }) => {
            let form = fill_form(form, text);
            let mut answers = serde_json::Map::new();
            for (index, question) in questions.as_array().into_iter().flatten().enumerate() {
                let (name, question) = (
                    format!("q{}", index + 1),
                    question["question"].as_str().unwrap_or_default(),
                );
                let answer = form[&name]
                    .as_str()
                    .or_else(|| form[question].as_str())
                    .unwrap_or(text);
                answers.insert(question.to_owned(), json!(answer));
            }
            json!({ "behavior": "allow", "updatedInput": { "questions": questions, "answers": answers } })
        }
        (
            AnswerFormat::Permission | AnswerFormat::Questions(..),
            RequestAnswer::Allow | RequestAnswer::Text { .. },
        ) => {
            json!({ "behavior": "allow", "updatedInput": {} })
        }
    }
}

fn read_tool_call(id: &str, name: &str, input: &Value) -> ToolCall {
    let kind = match name {
        "Read" | "NotebookRead" => ToolKind::Read,
        "Write" | "Edit" | "MultiEdit" | "NotebookEdit" => ToolKind::Edit,
        "Bash" | "BashOutput" | "KillShell" => ToolKind::Execute,
        "Grep" | "Glob" | "LS" => ToolKind::Search,
        "WebFetch" | "WebSearch" => ToolKind::Fetch,
        "TodoWrite" | "Task" | "Agent" => ToolKind::Think,
        "EnterPlanMode" | "ExitPlanMode" => ToolKind::SwitchMode,
        _ => ToolKind::Other,
    };
    let mut tool = ToolCall {
        id: id.to_owned(),
        kind,
        status: ToolStatus::InProgress,
        ..ToolCall::default()
    };
    read_input(&mut tool, input);
    let object = tool
        .command
        .as_ref()
        .or(tool.urls.first())
        .or(tool.paths.first());
    tool.title = shorten(
        &object.map_or_else(|| name.to_owned(), |object| format!("{name}: {object}")),
        500,
    );
    tool
}

fn read_plan(todos: &Value) -> AgentEvent {
    let entries = todos
        .as_array()
        .into_iter()
        .flatten()
        .map(|todo| PlanEntry {
            text: todo["content"].as_str().unwrap_or_default().to_owned(),
            status: serde_json::from_value(todo["status"].clone()).unwrap_or_default(),
        });
    AgentEvent::Plan {
        entries: entries.collect(),
    }
}

fn read_usage(usage: &Value) -> Usage {
    let count = |name: &str| usage[name].as_u64().unwrap_or(0);
    Usage {
        input: count("input_tokens"),
        cached_input: count("cache_read_input_tokens"),
        cache_write: count("cache_creation_input_tokens"),
        output: count("output_tokens"),
        micro_usd: None,
    }
}

fn on_system_message(message: &Value) -> Vec<AgentEvent> {
    let text = match message["subtype"].as_str().unwrap_or_default() {
        "api_retry" => format!(
            "The model did not answer ({}); retry {} of {} in {:.0} s.",
            message["error_status"]
                .as_i64()
                .map_or_else(|| "no connection".to_owned(), |status| status.to_string()),
            message["attempt"].as_u64().unwrap_or(0),
            message["max_retries"].as_u64().unwrap_or(0),
            message["retry_delay_ms"].as_f64().unwrap_or(0.0) / 1000.0,
        ),
        "compact_boundary" => "The program compacted its context.".to_owned(),
        _ => return vec![],
    };
    vec![AgentEvent::Notice { text }]
}

impl Driver for ClaudeDriver {
    fn on_record(&mut self, record: &JournalRecord) -> Vec<AgentEvent> {
        match record.stream {
            JournalStream::In => self.on_input(&record.line),
            JournalStream::InEnd => {
                self.is_input_closed = true;
                vec![]
            }
            JournalStream::Out => self.on_output(&record.line, record.written_unix_ms),
            JournalStream::Err | JournalStream::Mark => self.errors.on_error_or_mark(record),
        }
    }

    fn next_input(&self, desired: &SessionInput) -> Option<InputAction> {
        if self.is_input_closed {
            return None;
        }
        if self.start_failure.is_some() {
            return Some(InputAction::Close);
        }
        if let Some((what, id)) = self.requests_to_refuse.first() {
            let error = format!("Regatta does not offer {what}.");
            let response = json!({ "subtype": "error", "request_id": id, "error": error });
            return Some(InputAction::Line(
                json!({ "type": "control_response", "response": response }).to_string(),
            ));
        }
        if self.is_session_open && desired.cancels > self.sent_cancels {
            return Some(self.control_request(json!({ "subtype": "interrupt" })));
        }
        if let Some((open, answer_to_send)) = self.open_requests.next_answerable(desired) {
            return Some(control_response(
                &open.id,
                format_answer(&open.format, &answer_to_send),
            ));
        }
        if self.turn.is_some() {
            return None;
        }
        let prompt = usize::try_from(self.sent_prompts)
            .ok()
            .and_then(|n| desired.prompts.get(n))
            .filter(|_| !desired.should_hold_prompts);
        match prompt {
            None if desired.should_close_input => Some(InputAction::Close),
            _ if !self.has_sent_initialize => {
                Some(self.control_request(json!({ "subtype": "initialize" })))
            }
            Some(prompt) if self.is_session_open => {
                let message =
                    json!({ "role": "user", "content": [{ "type": "text", "text": prompt }] });
                let line = json!({ "type": "user", "message": message, "parent_tool_use_id": null, "session_id": "" });
                Some(InputAction::Line(line.to_string()))
            }
            _ => None,
        }
    }

    fn assess_exit(&self, exit: &Exit) -> ExitAssessment {
        let progress = ConversationProgress {
            start_failure: self.start_failure.as_ref(),
            is_session_open: self.is_session_open,
            running_turn: self.turn.as_ref().map(|turn| turn.is_cancelled),
            last_turn_failure: self.last_turn_failure.as_ref().map(Option::as_ref),
            is_input_closed: self.is_input_closed,
            answer: &self.answer,
            errors: &self.errors,
            usage_total: &self.usage_total,
        };
        progress.assess_exit(exit)
    }
}

#[cfg(test)]
mod tests;
