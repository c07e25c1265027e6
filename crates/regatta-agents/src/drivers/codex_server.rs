//! The driver for `codex app-server`: JSON-RPC over standard input and output, with one process for
//! a session of many turns.
//!
//! Method and field names are those of version 0.166.0, from its own `app-server
//! generate-json-schema`. Messages have no `jsonrpc` field. The reported usage is the total of the
//! thread (Codex's word for a session), and the reported input tokens include cached input.

mod requests;

use std::collections::{BTreeMap, BTreeSet};

use regatta_core::agent_protocol::{
    AgentEvent, AgentRequest, FailureClass, PlanEntry, StopReason, ToolCall, ToolKind, ToolStatus,
};
use regatta_engine::ports::agents::{Exit, SessionInput};
use serde_json::{Value, json};

use self::requests::{
    AnswerFormat, format_answer, read_approval, read_form, read_permissions, read_questions,
};
use super::DriverSetup;
use super::codex::{CAMEL_CASE_NAMES, read_tool_call, read_usage};
use super::command_line::codex_mode;
use super::common::{
    ConversationProgress, OpenRequests, TextTail, UsageTotal, unreadable_line_notice,
};
use super::error_class::{ProgramFailure, limit_reset_time};
use super::rpc::{METHOD_NOT_FOUND, RpcDialect, RpcError, RpcMessage, parse_message};
use crate::driver::{Driver, ExitAssessment, InputAction, JournalRecord, JournalStream};

const DIALECT: RpcDialect = RpcDialect::WithoutVersion;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SentRequest {
    Initialize,
    StartThread,
    ResumeThread,
    StartTurn,
    /// A request to interrupt the turn. The program's answer to this request is ignored.
    Interrupt,
}

#[derive(Clone, Debug, Default)]
struct CodexTurn {
    id: Option<String>,
    is_cancelled: bool,
    /// The tool calls that the program announced in this turn, by id. A later approval request
    /// names its call only by that id.
    tool_calls: BTreeMap<String, ToolCall>,
}

pub(super) struct CodexServerDriver {
    setup: DriverSetup,
    unanswered: BTreeMap<u64, SentRequest>,
    next_id: u64,
    is_initialized: bool,
    has_sent_initialized: bool,
    needs_new_thread: bool,
    thread_id: Option<String>,
    start_failure: Option<ProgramFailure>,
    sent_prompts: u64,
    sent_cancels: u32,
    turn: Option<CodexTurn>,
    last_turn_id: String,
    last_turn_failure: Option<Option<ProgramFailure>>,
    /// The ids of messages that were already reported piece by piece. When the complete message
    /// arrives, it is not reported again.
    reported_messages: BTreeSet<String>,
    /// The program's last report of the account's usage limits, or null before the first report.
    account_limits: Value,
    open_requests: OpenRequests<AnswerFormat>,
    requests_to_refuse: Vec<(String, Value)>,
    usage_total: UsageTotal,
    answer: TextTail,
    errors: TextTail,
    is_input_closed: bool,
}

impl CodexServerDriver {
    pub(super) fn new(setup: &DriverSetup) -> CodexServerDriver {
        CodexServerDriver {
            usage_total: UsageTotal::from_usage(setup.used),
            setup: setup.clone(),
            unanswered: BTreeMap::new(),
            next_id: 0,
            is_initialized: false,
            has_sent_initialized: false,
            needs_new_thread: false,
            thread_id: None,
            start_failure: None,
            sent_prompts: 0,
            sent_cancels: 0,
            turn: None,
            last_turn_id: String::new(),
            last_turn_failure: None,
            reported_messages: BTreeSet::new(),
            account_limits: Value::Null,
            open_requests: OpenRequests::default(),
            requests_to_refuse: Vec::new(),
            answer: TextTail::for_answer(),
            errors: TextTail::default(),
            is_input_closed: false,
        }
    }

    fn on_input(&mut self, line: &str) -> Vec<AgentEvent> {
        match parse_message(line) {
            Some(RpcMessage::Request { id, method, .. }) => {
                let Some(id) = id.as_u64() else { return vec![] };
                self.next_id = self.next_id.max(id + 1);
                let sent = match method.as_str() {
                    "initialize" => SentRequest::Initialize,
                    "thread/start" => SentRequest::StartThread,
                    "thread/resume" => SentRequest::ResumeThread,
                    "turn/start" => SentRequest::StartTurn,
                    _ => SentRequest::Interrupt,
                };
                self.unanswered.insert(id, sent);
                self.on_sent_request(sent)
            }
            Some(RpcMessage::Notification { method, .. }) => {
                self.has_sent_initialized |= method == "initialized";
                vec![]
            }
            Some(RpcMessage::Answer { id, .. }) => {
                self.requests_to_refuse
                    .retain(|(_, refused_id)| *refused_id != id);
                self.open_requests.remove(&id);
                vec![]
            }
            None => vec![],
        }
    }

    fn on_sent_request(&mut self, sent: SentRequest) -> Vec<AgentEvent> {
        match sent {
            SentRequest::StartTurn => {
                let n = self.sent_prompts;
                self.sent_prompts += 1;
                self.turn = Some(CodexTurn::default());
                self.answer.clear();
                self.reported_messages.clear();
                vec![AgentEvent::TurnStarted { n }]
            }
            SentRequest::Interrupt => {
                self.sent_cancels += 1;
                if let Some(turn) = &mut self.turn {
                    turn.is_cancelled = true;
                }
                self.open_requests.cancel_all()
            }
            _ => vec![],
        }
    }

    fn on_response(
        &mut self,
        id: &Value,
        outcome: Result<Value, RpcError>,
        at_unix_ms: u64,
    ) -> Vec<AgentEvent> {
        let Some(sent) = id.as_u64().and_then(|id| self.unanswered.remove(&id)) else {
            return vec![];
        };
        match (sent, outcome) {
            (SentRequest::Initialize, Ok(_)) => {
                self.is_initialized = true;
                vec![]
            }
            (SentRequest::StartThread | SentRequest::ResumeThread, Ok(result)) => {
                self.on_thread_opened(sent, &result)
            }
            (SentRequest::ResumeThread, Err(fault)) => {
                self.needs_new_thread = true;
                let text = format!(
                    "The thread could not be resumed ({}), so a new one is opened.",
                    fault.full_text()
                );
                vec![AgentEvent::Notice { text }]
            }
            (SentRequest::Initialize | SentRequest::StartThread, Err(fault)) => {
                let failure = ProgramFailure::classify(
                    &fault.full_text(),
                    Some(fault.code),
                    &fault.data,
                    at_unix_ms,
                );
                let text = format!("No session could be opened: {}", failure.detail);
                self.start_failure = Some(failure);
                vec![AgentEvent::Notice { text }]
            }
            (SentRequest::StartTurn, Ok(result)) => {
                self.set_turn_id(&result["turn"]["id"]);
                vec![]
            }
            (SentRequest::StartTurn, Err(fault)) => {
                let failure = ProgramFailure::classify(
                    &fault.full_text(),
                    Some(fault.code),
                    &fault.data,
                    at_unix_ms,
                );
                self.end_turn(Err(failure))
            }
            (SentRequest::Interrupt, _) => vec![],
        }
    }

    fn on_thread_opened(&mut self, sent: SentRequest, result: &Value) -> Vec<AgentEvent> {
        let Some(thread) = result["thread"]["id"].as_str() else {
            self.start_failure = Some(ProgramFailure::new(
                FailureClass::Crashed,
                "The program opened a thread without an id.",
            ));
            return vec![];
        };
        if sent == SentRequest::StartThread {
            self.usage_total = UsageTotal::default();
        }
        self.usage_total.session = Some(thread.to_owned());
        self.thread_id = Some(thread.to_owned());
        vec![AgentEvent::Started {
            session: self.thread_id.clone(),
            model: result["model"].as_str().map(str::to_owned),
        }]
    }

    fn set_turn_id(&mut self, id: &Value) {
        if let (Some(turn), Some(id)) = (&mut self.turn, id.as_str()) {
            turn.id = Some(id.to_owned());
            id.clone_into(&mut self.last_turn_id);
        }
    }

    fn on_notification(
        &mut self,
        method: &str,
        params: &Value,
        at_unix_ms: u64,
    ) -> Vec<AgentEvent> {
        // Ignore notifications of other threads (Codex's word for sessions). A subagent has a
        // thread of its own, and the end of a subagent's turn does not end this turn.
        if matches!((&self.thread_id, params["threadId"].as_str()), (Some(own), Some(theirs)) if own != theirs)
        {
            return vec![];
        }
        let text = |name: &str| params[name].as_str().unwrap_or_default().to_owned();
        match method {
            "turn/started" => {
                self.set_turn_id(&params["turn"]["id"]);
                vec![]
            }
            "turn/completed" => self.on_turn_completed(&params["turn"], at_unix_ms),
            "item/agentMessage/delta" => {
                self.reported_messages.insert(text("itemId"));
                vec![AgentEvent::Message {
                    text: text("delta"),
                }]
            }
            "item/reasoning/summaryTextDelta" | "item/reasoning/textDelta" => {
                vec![AgentEvent::Thought {
                    text: text("delta"),
                }]
            }
            "item/started" | "item/completed" => {
                self.on_item(&params["item"], method == "item/completed")
            }
            "turn/plan/updated" => vec![read_plan(&params["plan"])],
            "thread/tokenUsage/updated" => {
                let usage = &params["tokenUsage"];
                let mut events: Vec<AgentEvent> = self
                    .usage_total
                    .raise_to(read_usage(&usage["total"], &CAMEL_CASE_NAMES))
                    .into_iter()
                    .collect();
                let context = (
                    usage["last"]["totalTokens"].as_u64(),
                    usage["modelContextWindow"].as_u64(),
                );
                if let (Some(used), Some(size @ 1..)) = context {
                    events.push(AgentEvent::Context { used, size });
                }
                events
            }
            "account/rateLimits/updated" => {
                self.on_account_limits(&params["rateLimits"], at_unix_ms)
            }
            "serverRequest/resolved" => {
                let events = self.open_requests.withdraw(&params["requestId"]);
                self.open_requests.remove(&params["requestId"]);
                events.into_iter().collect()
            }
            "error" => {
                vec![AgentEvent::Notice {
                    text: params["error"]["message"]
                        .as_str()
                        .unwrap_or("An error.")
                        .to_owned(),
                }]
            }
            "warning" | "configWarning" | "deprecationNotice" | "guardianWarning" => {
                let message = ["message", "summary"]
                    .iter()
                    .find_map(|key| params[*key].as_str())
                    .unwrap_or(method);
                vec![AgentEvent::Notice {
                    text: message.to_owned(),
                }]
            }
            _ => vec![],
        }
    }

    fn on_account_limits(&mut self, limits: &Value, at_unix_ms: u64) -> Vec<AgentEvent> {
        self.account_limits = limits.clone();
        if !limits["rateLimitReachedType"].is_string() {
            return vec![];
        }
        vec![AgentEvent::Limited {
            deadline_unix_ms: self.limit_reset_time(at_unix_ms),
            detail: "The account's limit is exhausted.".to_owned(),
        }]
    }

    /// Returns the time in Unix milliseconds at which the used-up limit of the account is reset, if
    /// it is known.
    fn limit_reset_time(&self, at_unix_ms: u64) -> Option<u64> {
        let windows = ["primary", "secondary"].map(|name| &self.account_limits[name]);
        let exhausted = windows.iter().filter(|window| {
            window["usedPercent"]
                .as_i64()
                .is_some_and(|percent| percent >= 100)
        });
        exhausted
            .filter_map(|window| limit_reset_time("", window, at_unix_ms))
            .max()
    }

    fn on_item(&mut self, item: &Value, done: bool) -> Vec<AgentEvent> {
        let text = item["text"].as_str().unwrap_or_default();
        match item["type"].as_str().unwrap_or_default() {
            "agentMessage" if done => {
                self.answer.clear();
                self.answer.add(text);
                let is_reported = item["id"]
                    .as_str()
                    .is_some_and(|id| self.reported_messages.contains(id));
                if is_reported {
                    vec![]
                } else {
                    vec![AgentEvent::Message {
                        text: text.to_owned(),
                    }]
                }
            }
            "commandExecution" | "fileChange" | "mcpToolCall" | "webSearch" => {
                let tool = read_tool_call(item, "aggregatedOutput");
                if let Some(turn) = &mut self.turn {
                    turn.tool_calls.insert(tool.id.clone(), tool.clone());
                }
                vec![AgentEvent::Tool(tool)]
            }
            "contextCompaction" if done => vec![AgentEvent::Notice {
                text: "The program compacted its context.".to_owned(),
            }],
            _ => vec![],
        }
    }

    fn on_turn_completed(&mut self, turn: &Value, at_unix_ms: u64) -> Vec<AgentEvent> {
        if self.turn.is_none() {
            return vec![];
        }
        let error = &turn["error"];
        let outcome = match turn["status"].as_str().unwrap_or_default() {
            "completed" => Ok(StopReason::EndTurn),
            "interrupted" => Err(ProgramFailure::new(
                FailureClass::Cancelled,
                "The turn was cancelled.",
            )),
            _ => {
                let message = error["message"].as_str().unwrap_or("The turn failed.");
                let mut failure = ProgramFailure::classify(message, None, error, at_unix_ms);
                if failure.class == FailureClass::RateLimit {
                    failure.resets_at_unix_ms = failure
                        .resets_at_unix_ms
                        .or_else(|| self.limit_reset_time(at_unix_ms));
                }
                Err(failure)
            }
        };
        self.end_turn(outcome)
    }

    fn end_turn(&mut self, outcome: Result<StopReason, ProgramFailure>) -> Vec<AgentEvent> {
        self.turn = None;
        let mut events = self.open_requests.cancel_all();
        match outcome {
            Ok(stop) => {
                events.push(AgentEvent::TurnEnded {
                    stop,
                    class: None,
                    detail: self.answer.text().to_owned(),
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

    fn on_program_request(&mut self, id: Value, method: String, params: &Value) -> Vec<AgentEvent> {
        let call = self
            .turn
            .as_ref()
            .and_then(|turn| turn.tool_calls.get(params["itemId"].as_str()?));
        let request = match method.as_str() {
            "item/commandExecution/requestApproval" => {
                Some(read_approval(params, ToolKind::Execute, call))
            }
            "item/fileChange/requestApproval" => Some(read_approval(params, ToolKind::Edit, call)),
            "item/permissions/requestApproval" => Some(read_permissions(params)),
            "item/tool/requestUserInput" => Some(read_questions(&params["questions"])),
            "mcpServer/elicitation/request" => Some(read_form(params)),
            _ => None,
        };
        let Some((format, content)) = request else {
            let text = format!("The program requested {method}, which Regatta does not offer.");
            self.requests_to_refuse.push((method, id));
            return vec![AgentEvent::Notice { text }];
        };
        let is_cancelled = self.turn.as_ref().is_some_and(|turn| turn.is_cancelled);
        let key = self.open_requests.add(id, format, is_cancelled);
        if is_cancelled {
            vec![]
        } else {
            vec![AgentEvent::RequestMade(AgentRequest { id: key, content })]
        }
    }

    fn request(&self, method: &str, params: Value) -> InputAction {
        InputAction::Line(DIALECT.request(self.next_id, method, params))
    }

    fn opening_request(&self) -> Option<InputAction> {
        if !self.unanswered.is_empty() {
            return None;
        }
        if !self.is_initialized {
            let info = json!({ "name": "regatta", "title": "Regatta", "version": env!("CARGO_PKG_VERSION") });
            return Some(self.request("initialize", json!({ "clientInfo": info })));
        }
        if !self.has_sent_initialized {
            return Some(InputAction::Line(
                DIALECT.notification("initialized", json!({})),
            ));
        }
        let profile = &self.setup.profile;
        let (approval, sandbox) = codex_mode(profile);
        let mut params = json!({ "cwd": self.setup.start_dir(), "approvalPolicy": approval, "sandbox": sandbox });
        if let Some(model) = &profile.model {
            params["model"] = json!(model);
        }
        if let Some(instructions) = &profile.system_prompt {
            params["developerInstructions"] = json!(instructions);
        }
        match &self.setup.resume {
            Some(thread) if !self.needs_new_thread => {
                params["threadId"] = json!(thread);
                params["excludeTurns"] = json!(true);
                Some(self.request("thread/resume", params))
            }
            _ => Some(self.request("thread/start", params)),
        }
    }
}

fn read_plan(steps: &Value) -> AgentEvent {
    let entries = steps
        .as_array()
        .into_iter()
        .flatten()
        .map(|step| PlanEntry {
            text: step["step"].as_str().unwrap_or_default().to_owned(),
            status: match step["status"].as_str() {
                Some("completed") => ToolStatus::Completed,
                Some("inProgress") => ToolStatus::InProgress,
                _ => ToolStatus::Pending,
            },
        });
    AgentEvent::Plan {
        entries: entries.collect(),
    }
}

impl Driver for CodexServerDriver {
    fn on_record(&mut self, record: &JournalRecord) -> Vec<AgentEvent> {
        match record.stream {
            JournalStream::In => self.on_input(&record.line),
            JournalStream::InEnd => {
                self.is_input_closed = true;
                vec![]
            }
            JournalStream::Out => match parse_message(&record.line) {
                Some(RpcMessage::Answer { id, outcome }) => {
                    self.on_response(&id, outcome, record.written_unix_ms)
                }
                Some(RpcMessage::Request { id, method, params }) => {
                    self.on_program_request(id, method, &params)
                }
                Some(RpcMessage::Notification { method, params }) => {
                    self.on_notification(&method, &params, record.written_unix_ms)
                }
                None => {
                    self.errors.add_line(&record.line);
                    vec![unreadable_line_notice(&record.line)]
                }
            },
            JournalStream::Err | JournalStream::Mark => self.errors.on_error_or_mark(record),
        }
    }

    fn next_input(&self, desired: &SessionInput) -> Option<InputAction> {
        if self.is_input_closed {
            return None;
        }
        if let Some((method, id)) = self.requests_to_refuse.first() {
            return Some(InputAction::Line(DIALECT.error(
                id,
                METHOD_NOT_FOUND,
                &format!("Method not found: {method}"),
            )));
        }
        if self.start_failure.is_some() {
            return Some(InputAction::Close);
        }
        // Interrupt the turn only when its id is known. The answer to the request that starts the
        // turn contains the id.
        let is_turn_named = self.turn.as_ref().is_none_or(|turn| turn.id.is_some());
        if let Some(thread) = self
            .thread_id
            .as_ref()
            .filter(|_| is_turn_named && desired.cancels > self.sent_cancels)
        {
            let turn = self
                .turn
                .as_ref()
                .and_then(|turn| turn.id.as_ref())
                .unwrap_or(&self.last_turn_id);
            return Some(self.request(
                "turn/interrupt",
                json!({ "threadId": thread, "turnId": turn }),
            ));
        }
        if let Some((open, answer)) = self.open_requests.next_answerable(desired) {
            return Some(InputAction::Line(
                DIALECT.result(&open.id, format_answer(&open.format, &answer)),
            ));
        }
        if self.turn.is_some() {
            return None;
        }
        let prompt = usize::try_from(self.sent_prompts)
            .ok()
            .and_then(|n| desired.prompts.get(n))
            .filter(|_| !desired.should_hold_prompts);
        if desired.should_close_input && prompt.is_none() {
            return Some(InputAction::Close);
        }
        let Some(thread) = &self.thread_id else {
            return self.opening_request();
        };
        prompt.map(|prompt| {
            let params =
                json!({ "threadId": thread, "input": [{ "type": "text", "text": prompt }] });
            self.request("turn/start", params)
        })
    }

    fn assess_exit(&self, exit: &Exit) -> ExitAssessment {
        let progress = ConversationProgress {
            start_failure: self.start_failure.as_ref(),
            is_session_open: self.thread_id.is_some(),
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
