//! The driver for Codex's app-server: JSON-RPC over its streams, one process for a session with
//! many turns.
//!
//! Method and field names are those of 0.166.0, from its own `app-server generate-json-schema`.
//! Messages have no `jsonrpc` field. Usage is cumulative over the thread, and its input includes
//! cached input.

use std::collections::{BTreeMap, BTreeSet};

use regatta_core::agent_protocol::{
    AgentEvent, AgentRequest, FailureClass, PermissionOption, PermissionOptionKind, PlanEntry,
    RequestAnswer, RequestContent, StopReason, ToolCall, ToolKind, ToolStatus,
};
use regatta_engine::ports::agents::{Exit, SessionInput};
use serde_json::{Value, json};

use super::DriverSetup;
use super::acp::fill_form;
use super::codex::{CAMEL_CASE_NAMES, read_tool_call, read_usage, unwrap_shell};
use super::command_line::codex_mode;
use super::common::{
    ConversationProgress, OpenRequests, TextTail, UsageTotal, choose_option, unreadable_line_notice,
};
use super::error_class::{ProgramFailure, limit_reset_time};
use super::input::{cut_to_limit, push_unique};
use super::rpc::{METHOD_NOT_FOUND, RpcDialect, RpcError, RpcMessage, parse_message};
use crate::driver::{Driver, ExitAssessment, InputAction, JournalRecord, JournalStream};

const DIALECT: RpcDialect = RpcDialect::WithoutVersion;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SentRequest {
    Initialize,
    StartThread,
    ResumeThread,
    StartTurn,
    /// An interrupt, whose answer changes nothing.
    Interrupt,
}

#[derive(Clone, Debug)]
enum AnswerFormat {
    Approval(Vec<PermissionOption>),
    /// The requested permissions.
    Permissions(Value),
    /// The questions and the schema of their form.
    Questions(Value, Value),
    /// The form's schema.
    Form(Value),
}

#[derive(Clone, Debug, Default)]
struct CodexTurn {
    id: Option<String>,
    is_cancelled: bool,
    /// The announced calls. A request names its call only by id.
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
    /// The ids of messages whose parts were reported already.
    reported_messages: BTreeSet<String>,
    /// The last known limits of the account.
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
                    .retain(|(_, requests_to_refuse)| *requests_to_refuse != id);
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
        at: u64,
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
                let trouble =
                    ProgramFailure::classify(&fault.full_text(), Some(fault.code), &fault.data, at);
                let text = format!("No session: {}", trouble.detail);
                self.start_failure = Some(trouble);
                vec![AgentEvent::Notice { text }]
            }
            (SentRequest::StartTurn, Ok(result)) => {
                self.set_turn_id(&result["turn"]["id"]);
                vec![]
            }
            (SentRequest::StartTurn, Err(fault)) => {
                let trouble =
                    ProgramFailure::classify(&fault.full_text(), Some(fault.code), &fault.data, at);
                self.end_turn(Err(trouble))
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

    fn on_notification(&mut self, method: &str, params: &Value, at: u64) -> Vec<AgentEvent> {
        // Helpers have their own threads. Their work is part of the turn, but the ends of their
        // turns are not.
        if matches!((&self.thread_id, params["threadId"].as_str()), (Some(ours), Some(its)) if ours != its)
        {
            return vec![];
        }
        let text = |name: &str| params[name].as_str().unwrap_or_default().to_owned();
        match method {
            "turn/started" => {
                self.set_turn_id(&params["turn"]["id"]);
                vec![]
            }
            "turn/completed" => self.on_turn_completed(&params["turn"], at),
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
                let used = &params["tokenUsage"];
                let mut said: Vec<AgentEvent> = self
                    .usage_total
                    .raise_to(read_usage(&used["total"], &CAMEL_CASE_NAMES))
                    .into_iter()
                    .collect();
                let filled = (
                    used["last"]["totalTokens"].as_u64(),
                    used["modelContextWindow"].as_u64(),
                );
                if let (Some(used), Some(size @ 1..)) = filled {
                    said.push(AgentEvent::Context { used, size });
                }
                said
            }
            "account/rateLimits/updated" => self.on_account_limits(&params["rateLimits"], at),
            "serverRequest/resolved" => {
                let said = self.open_requests.withdraw(&params["requestId"]);
                self.open_requests.remove(&params["requestId"]);
                said.into_iter().collect()
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
                let words = ["message", "summary"]
                    .iter()
                    .find_map(|s| params[*s].as_str())
                    .unwrap_or(method);
                vec![AgentEvent::Notice {
                    text: words.to_owned(),
                }]
            }
            _ => vec![],
        }
    }

    fn on_account_limits(&mut self, limits: &Value, at: u64) -> Vec<AgentEvent> {
        self.account_limits = limits.clone();
        if !limits["rateLimitReachedType"].is_string() {
            return vec![];
        }
        vec![AgentEvent::Limited {
            deadline_unix_ms: self.limit_reset_time(at),
            detail: "The account's limit is exhausted.".to_owned(),
        }]
    }

    /// Returns the time when the exhausted limit is reset.
    fn limit_reset_time(&self, at: u64) -> Option<u64> {
        let windows = ["primary", "secondary"].map(|s| &self.account_limits[s]);
        let full = windows
            .iter()
            .filter(|value| value["usedPercent"].as_i64().is_some_and(|n| n >= 100));
        full.filter_map(|full| limit_reset_time("", full, at)).max()
    }

    fn on_item(&mut self, item: &Value, done: bool) -> Vec<AgentEvent> {
        let text = item["text"].as_str().unwrap_or_default();
        match item["type"].as_str().unwrap_or_default() {
            "agentMessage" if done => {
                self.answer.clear();
                self.answer.add(text);
                let told = item["id"]
                    .as_str()
                    .is_some_and(|item| self.reported_messages.contains(item));
                if told {
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

    fn on_turn_completed(&mut self, turn: &Value, at: u64) -> Vec<AgentEvent> {
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
                let words = error["message"].as_str().unwrap_or("The turn failed.");
                let mut trouble = ProgramFailure::classify(words, None, error, at);
                if trouble.class == FailureClass::RateLimit {
                    trouble.resets_at_unix_ms = trouble
                        .resets_at_unix_ms
                        .or_else(|| self.limit_reset_time(at));
                }
                Err(trouble)
            }
        };
        self.end_turn(outcome)
    }

    fn end_turn(&mut self, outcome: Result<StopReason, ProgramFailure>) -> Vec<AgentEvent> {
        self.turn = None;
        let mut said = self.open_requests.cancel_all();
        match outcome {
            Ok(stop) => {
                said.push(AgentEvent::TurnEnded {
                    stop,
                    class: None,
                    detail: self.answer.text().to_owned(),
                });
                self.last_turn_failure = Some(None);
            }
            Err(trouble) => {
                said.extend(trouble.turn_end_events());
                self.last_turn_failure = Some(Some(trouble));
            }
        }
        said
    }

    fn on_program_request(&mut self, id: Value, method: String, params: &Value) -> Vec<AgentEvent> {
        let call = self
            .turn
            .as_ref()
            .and_then(|turn| turn.tool_calls.get(params["itemId"].as_str()?));
        let known = match method.as_str() {
            "item/commandExecution/requestApproval" => {
                Some(read_approval(params, ToolKind::Execute, call))
            }
            "item/fileChange/requestApproval" => Some(read_approval(params, ToolKind::Edit, call)),
            "item/permissions/requestApproval" => Some(read_permissions(params)),
            "item/tool/requestUserInput" => Some(question_form(&params["questions"])),
            "mcpServer/elicitation/request" => Some(read_form(params)),
            _ => None,
        };
        let Some((what, want)) = known else {
            let text = format!("The program requested {method}, which Regatta does not offer.");
            self.requests_to_refuse.push((method, id));
            return vec![AgentEvent::Notice { text }];
        };
        let cancelled = self
            .turn
            .as_ref()
            .is_some_and(|codex_turn| codex_turn.is_cancelled);
        let key = self.open_requests.add(id, what, cancelled);
        if cancelled {
            vec![]
        } else {
            vec![AgentEvent::RequestMade(AgentRequest {
                id: key,
                content: want,
            })]
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
        if let Some(words) = &profile.system_prompt {
            params["developerInstructions"] = json!(words);
        }
        Some(
            match self
                .setup
                .resume
                .as_ref()
                .filter(|_| !self.needs_new_thread)
            {
                Some(thread) => {
                    params["threadId"] = json!(thread);
                    params["excludeTurns"] = json!(true);
                    self.request("thread/resume", params)
                }
                None => self.request("thread/start", params),
            },
        )
    }
}

fn permission_options(list: &[(&str, PermissionOptionKind)]) -> Vec<PermissionOption> {
    list.iter()
        .map(|(id, kind)| PermissionOption {
            id: (*id).to_owned(),
            name: (*id).to_owned(),
            kind: *kind,
        })
        .collect()
}

/// Reads a request to run a command or to change files. The files come from the call that was
/// announced before.
fn read_approval(
    params: &Value,
    kind: ToolKind,
    call: Option<&ToolCall>,
) -> (AnswerFormat, RequestContent) {
    let word = |name: &str| params[name].as_str().map(str::to_owned);
    let mut tool = ToolCall {
        id: word("itemId").unwrap_or_default(),
        kind,
        ..ToolCall::default()
    };
    let announced = call.and_then(|call| call.command.clone());
    let command = params["command"]
        .as_str()
        .map(|line| unwrap_shell(line).to_owned())
        .or(announced);
    if let Some(command) = command.filter(|_| kind == ToolKind::Execute) {
        (tool.command, tool.is_cut) = cut_to_limit(&command);
    }
    // A running command asks again for each host that it wants to reach.
    let network = &params["networkApprovalContext"];
    if let Some(host) = network["host"].as_str() {
        tool.kind = ToolKind::Fetch;
        tool.urls.push(format!(
            "{}://{host}",
            network["protocol"].as_str().unwrap_or("https")
        ));
    }
    if kind == ToolKind::Edit {
        tool.paths = call.map(|call| call.paths.clone()).unwrap_or_default();
    }
    if let Some(root) = params["grantRoot"].as_str() {
        push_unique(&mut tool.paths, root);
    }
    let reason =
        word("reason").or_else(|| (kind == ToolKind::Edit).then(|| "change files".to_owned()));
    tool.title = reason
        .or_else(|| tool.command.clone())
        .unwrap_or_else(|| "run a command".to_owned());
    let options = permission_options(&[
        ("accept", PermissionOptionKind::AllowOnce),
        ("acceptForSession", PermissionOptionKind::AllowAlways),
        ("decline", PermissionOptionKind::RejectOnce),
    ]);
    (
        AnswerFormat::Approval(options.clone()),
        RequestContent::Permission { tool, options },
    )
}

/// Reads a request for more permissions, which is shown unchanged.
fn read_permissions(params: &Value) -> (AnswerFormat, RequestContent) {
    let reason = params["reason"].as_str().unwrap_or("more permissions");
    let id = params["itemId"].as_str().unwrap_or_default().to_owned();
    let mut tool = ToolCall {
        id,
        title: reason.to_owned(),
        kind: ToolKind::SwitchMode,
        ..ToolCall::default()
    };
    let asked = &params["permissions"];
    if asked.is_object() {
        (tool.arguments, tool.is_cut) = cut_to_limit(&asked.to_string());
    }
    for path in ["read", "write"]
        .iter()
        .flat_map(|access| asked["fileSystem"][*access].as_array())
        .flatten()
    {
        push_unique(&mut tool.paths, path.as_str().unwrap_or_default());
    }
    let options = permission_options(&[
        ("grant", PermissionOptionKind::AllowOnce),
        ("decline", PermissionOptionKind::RejectOnce),
    ]);
    (
        AnswerFormat::Permissions(asked.clone()),
        RequestContent::Permission { tool, options },
    )
}

/// Builds a form of the questions with one field each, under the question's own id.
fn question_form(list: &Value) -> (AnswerFormat, RequestContent) {
    let all: Vec<&Value> = list.as_array().into_iter().flatten().collect();
    let word = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
    let labels = |value: &Value| -> Vec<String> {
        let options = value["options"].as_array().into_iter().flatten();
        options
            .filter_map(|option| option["label"].as_str())
            .map(str::to_owned)
            .collect()
    };
    let mut fields = serde_json::Map::new();
    for question in &all {
        let field = json!({ "type": "string", "title": word(question, "question"), "examples": labels(question) });
        fields.insert(word(question, "id"), field);
    }
    let required: Vec<String> = all.iter().map(|value| word(value, "id")).collect();
    let form = json!({ "type": "object", "properties": fields, "required": required });
    let text = all
        .iter()
        .map(|value| word(value, "question"))
        .collect::<Vec<_>>()
        .join("\n");
    let (choices, schema) = match all.as_slice() {
        [one] => (labels(one), None),
        _ => (vec![], Some(form.to_string())),
    };
    (
        AnswerFormat::Questions(list.clone(), form),
        RequestContent::Question {
            text,
            choices,
            schema,
        },
    )
}

/// Reads a question that an MCP server asks through Codex.
fn read_form(params: &Value) -> (AnswerFormat, RequestContent) {
    let server = params["serverName"].as_str().unwrap_or("an MCP server");
    let message = params["message"].as_str().unwrap_or_default();
    let url = params["url"]
        .as_str()
        .map_or_else(String::new, |param| format!("\n{param}"));
    let schema = params["requestedSchema"].clone();
    let words = schema.is_object().then(|| schema.to_string());
    let text = format!("{server}: {message}{url}");
    (
        AnswerFormat::Form(schema),
        RequestContent::Question {
            text,
            choices: vec![],
            schema: words,
        },
    )
}

fn format_answer(what: &AnswerFormat, answer: &RequestAnswer) -> Value {
    match what {
        AnswerFormat::Approval(options) => match choose_option(options, answer) {
            Some(option) => json!({ "decision": option.id }),
            None => json!({ "decision": "cancel" }),
        },
        AnswerFormat::Permissions(asked) => match answer {
            RequestAnswer::Allow | RequestAnswer::Text { .. } => {
                json!({ "permissions": asked, "scope": "turn" })
            }
            RequestAnswer::Deny { .. } | RequestAnswer::Cancelled => json!({ "permissions": {} }),
        },
        AnswerFormat::Questions(questions, form) => {
            let text = match answer {
                RequestAnswer::Text { text } => text.as_str(),
                RequestAnswer::Deny {
                    reason: Some(words),
                } => words.as_str(),
                _ => "",
            };
            let form = fill_form(form, text);
            let mut answers = serde_json::Map::new();
            for id in questions
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|question| question["id"].as_str())
            {
                let given: Vec<&str> = form[id]
                    .as_str()
                    .into_iter()
                    .filter(|form| !form.is_empty())
                    .collect();
                answers.insert(id.to_owned(), json!({ "answers": given }));
            }
            json!({ "answers": answers })
        }
        AnswerFormat::Form(schema) => match answer {
            RequestAnswer::Text { text } => {
                json!({ "action": "accept", "content": fill_form(schema, text) })
            }
            RequestAnswer::Allow => json!({ "action": "accept", "content": {} }),
            RequestAnswer::Deny { .. } => json!({ "action": "decline" }),
            RequestAnswer::Cancelled => json!({ "action": "cancel" }),
        },
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

    fn next_input(&self, wishes: &SessionInput) -> Option<InputAction> {
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
        // A turn without a known id cannot be interrupted yet. The answer to its start contains the
        // id.
        let named = self
            .turn
            .as_ref()
            .is_none_or(|codex_turn| codex_turn.id.is_some());
        if let Some(thread) = self
            .thread_id
            .as_ref()
            .filter(|_| named && wishes.cancels > self.sent_cancels)
        {
            let turn = self
                .turn
                .as_ref()
                .and_then(|codex_turn| codex_turn.id.as_ref())
                .unwrap_or(&self.last_turn_id);
            return Some(self.request(
                "turn/interrupt",
                json!({ "threadId": thread, "turnId": turn }),
            ));
        }
        if let Some((open, wished)) = self.open_requests.next_answerable(wishes) {
            return Some(InputAction::Line(
                DIALECT.result(&open.id, format_answer(&open.format, &wished)),
            ));
        }
        if self.turn.is_some() {
            return None;
        }
        let prompt = usize::try_from(self.sent_prompts)
            .ok()
            .and_then(|n| wishes.prompts.get(n))
            .filter(|_| !wishes.should_hold_prompts);
        if wishes.should_close_input && prompt.is_none() {
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
        let course = ConversationProgress {
            start_failure: self.start_failure.as_ref(),
            is_session_open: self.thread_id.is_some(),
            running_turn: self.turn.as_ref().map(|codex_turn| codex_turn.is_cancelled),
            last_turn_failure: self.last_turn_failure.as_ref().map(Option::as_ref),
            is_input_closed: self.is_input_closed,
            answer: &self.answer,
            errors: &self.errors,
            usage_total: &self.usage_total,
        };
        course.assess_exit(exit)
    }
}

#[cfg(test)]
#[path = "codex_server_tests.rs"]
mod tests;
