//! The driver for Codex's app-server: JSON-RPC over its streams, one process for a session with
//! many turns.
//!
//! Method and field names are those of 0.166.0, from its own `app-server generate-json-schema`.
//! Messages have no `jsonrpc` field. Usage is cumulative over the thread, and its input includes
//! cached input.

use std::collections::{BTreeMap, BTreeSet};

use regatta_core::session::{
    Answer, Ask, AskOption, Class, OptionKind, PlanEntry, Said, Stop, Tool, ToolKind, ToolStatus, Want,
};
use regatta_engine::ports::agents::{Exit, Wishes};
use serde_json::{Value, json};

use super::Setup;
use super::acp::filled;
use super::codex::{CAMEL, tool, unwrapped, usage};
use super::common::{Asks, Course, Ledger, Tail, choose, unreadable};
use super::input::{add, whole_or_cut};
use super::rpc::{Dialect, Fault, Message, NO_METHOD, read};
use super::start::codex_mode;
use super::verdict::{Trouble, reset};
use crate::driver::{Driver, Judgement, Record, Say, Stream};

const RPC: Dialect = Dialect::Bare;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    Initialize,
    Start,
    Resume,
    Turn,
    /// An interrupt, whose answer changes nothing.
    Interrupt,
}

#[derive(Clone, Debug)]
enum What {
    Approval(Vec<AskOption>),
    /// The requested permissions.
    Permissions(Value),
    /// The questions and the schema of their form.
    Questions(Value, Value),
    /// The form's schema.
    Form(Value),
}

#[derive(Clone, Debug, Default)]
struct Turn {
    id: Option<String>,
    cancelled: bool,
    /// The announced calls. A request names its call only by id.
    tools: BTreeMap<String, Tool>,
}

pub(super) struct Server {
    setup: Setup,
    sent: BTreeMap<u64, Sent>,
    next_id: u64,
    greeted: bool,
    acknowledged: bool,
    afresh: bool,
    thread: Option<String>,
    failed: Option<Trouble>,
    prompts: u64,
    cancels: u32,
    turn: Option<Turn>,
    last_turn: String,
    last: Option<Option<Trouble>>,
    /// The ids of messages whose parts were reported already.
    told: BTreeSet<String>,
    /// The last known limits of the account.
    limits: Value,
    asks: Asks<What>,
    refused: Vec<(String, Value)>,
    books: Ledger,
    words: Tail,
    errors: Tail,
    closed: bool,
}

impl Server {
    pub(super) fn new(setup: &Setup) -> Server {
        Server {
            books: Ledger::from(setup.used),
            setup: setup.clone(),
            sent: BTreeMap::new(),
            next_id: 0,
            greeted: false,
            acknowledged: false,
            afresh: false,
            thread: None,
            failed: None,
            prompts: 0,
            cancels: 0,
            turn: None,
            last_turn: String::new(),
            last: None,
            told: BTreeSet::new(),
            limits: Value::Null,
            asks: Asks::default(),
            refused: Vec::new(),
            words: Tail::of_answer(),
            errors: Tail::default(),
            closed: false,
        }
    }

    fn was_said(&mut self, line: &str) -> Vec<Said> {
        match read(line) {
            Some(Message::Request { id, method, .. }) => {
                let Some(id) = id.as_u64() else { return vec![] };
                self.next_id = self.next_id.max(id + 1);
                let sent = match method.as_str() {
                    "initialize" => Sent::Initialize,
                    "thread/start" => Sent::Start,
                    "thread/resume" => Sent::Resume,
                    "turn/start" => Sent::Turn,
                    _ => Sent::Interrupt,
                };
                self.sent.insert(id, sent);
                self.requested(sent)
            }
            Some(Message::Note { method, .. }) => {
                self.acknowledged |= method == "initialized";
                vec![]
            }
            Some(Message::Answer { id, .. }) => {
                self.refused.retain(|(_, it)| *it != id);
                self.asks.close(&id);
                vec![]
            }
            None => vec![],
        }
    }

    fn requested(&mut self, sent: Sent) -> Vec<Said> {
        match sent {
            Sent::Turn => {
                let n = self.prompts;
                self.prompts += 1;
                self.turn = Some(Turn::default());
                self.words.clear();
                self.told.clear();
                vec![Said::TurnStarted { n }]
            }
            Sent::Interrupt => {
                self.cancels += 1;
                if let Some(turn) = &mut self.turn {
                    turn.cancelled = true;
                }
                self.asks.cancel()
            }
            _ => vec![],
        }
    }

    fn answered(&mut self, id: &Value, outcome: Result<Value, Fault>, at: u64) -> Vec<Said> {
        let Some(sent) = id.as_u64().and_then(|it| self.sent.remove(&it)) else { return vec![] };
        match (sent, outcome) {
            (Sent::Initialize, Ok(_)) => {
                self.greeted = true;
                vec![]
            }
            (Sent::Start | Sent::Resume, Ok(result)) => self.opened(sent, &result),
            (Sent::Resume, Err(fault)) => {
                self.afresh = true;
                let text = format!("The thread could not be resumed ({}), so a new one is opened.", fault.words());
                vec![Said::Notice { text }]
            }
            (Sent::Initialize | Sent::Start, Err(fault)) => {
                let trouble = Trouble::read(&fault.words(), Some(fault.code), &fault.data, at);
                let text = format!("No session: {}", trouble.detail);
                self.failed = Some(trouble);
                vec![Said::Notice { text }]
            }
            (Sent::Turn, Ok(result)) => {
                self.turn_is(&result["turn"]["id"]);
                vec![]
            }
            (Sent::Turn, Err(fault)) => {
                let trouble = Trouble::read(&fault.words(), Some(fault.code), &fault.data, at);
                self.over(Err(trouble))
            }
            (Sent::Interrupt, _) => vec![],
        }
    }

    fn opened(&mut self, sent: Sent, result: &Value) -> Vec<Said> {
        let Some(thread) = result["thread"]["id"].as_str() else {
            self.failed = Some(Trouble::new(Class::Crashed, "The program opened a thread without an id."));
            return vec![];
        };
        if sent == Sent::Start {
            self.books = Ledger::default();
        }
        self.books.session = Some(thread.to_owned());
        self.thread = Some(thread.to_owned());
        vec![Said::Started { session: self.thread.clone(), model: result["model"].as_str().map(str::to_owned) }]
    }

    fn turn_is(&mut self, id: &Value) {
        if let (Some(turn), Some(id)) = (&mut self.turn, id.as_str()) {
            turn.id = Some(id.to_owned());
            id.clone_into(&mut self.last_turn);
        }
    }

    fn noted(&mut self, method: &str, params: &Value, at: u64) -> Vec<Said> {
        // Helpers have their own threads. Their work is part of the turn, but the ends of their
        // turns are not.
        if matches!((&self.thread, params["threadId"].as_str()), (Some(ours), Some(its)) if ours != its) {
            return vec![];
        }
        let text = |name: &str| params[name].as_str().unwrap_or_default().to_owned();
        match method {
            "turn/started" => {
                self.turn_is(&params["turn"]["id"]);
                vec![]
            }
            "turn/completed" => self.completed(&params["turn"], at),
            "item/agentMessage/delta" => {
                self.told.insert(text("itemId"));
                vec![Said::Message { text: text("delta") }]
            }
            "item/reasoning/summaryTextDelta" | "item/reasoning/textDelta" => {
                vec![Said::Thought { text: text("delta") }]
            }
            "item/started" | "item/completed" => self.item(&params["item"], method == "item/completed"),
            "turn/plan/updated" => vec![plan(&params["plan"])],
            "thread/tokenUsage/updated" => {
                let used = &params["tokenUsage"];
                let mut said: Vec<Said> = self.books.reach(usage(&used["total"], &CAMEL)).into_iter().collect();
                let filled = (used["last"]["totalTokens"].as_u64(), used["modelContextWindow"].as_u64());
                if let (Some(used), Some(size @ 1..)) = filled {
                    said.push(Said::Context { used, size });
                }
                said
            }
            "account/rateLimits/updated" => self.limits_told(&params["rateLimits"], at),
            "serverRequest/resolved" => {
                let said = self.asks.withdraw(&params["requestId"]);
                self.asks.close(&params["requestId"]);
                said.into_iter().collect()
            }
            "error" => {
                vec![Said::Notice { text: params["error"]["message"].as_str().unwrap_or("An error.").to_owned() }]
            }
            "warning" | "configWarning" | "deprecationNotice" | "guardianWarning" => {
                let words = ["message", "summary"].iter().find_map(|it| params[*it].as_str()).unwrap_or(method);
                vec![Said::Notice { text: words.to_owned() }]
            }
            _ => vec![],
        }
    }

    fn limits_told(&mut self, limits: &Value, at: u64) -> Vec<Said> {
        self.limits = limits.clone();
        if !limits["rateLimitReachedType"].is_string() {
            return vec![];
        }
        vec![Said::Limited { until_wall: self.limit_ends(at), detail: "The account's limit is exhausted.".to_owned() }]
    }

    /// Returns the time when the exhausted limit is reset.
    fn limit_ends(&self, at: u64) -> Option<u64> {
        let windows = ["primary", "secondary"].map(|it| &self.limits[it]);
        let full = windows.iter().filter(|it| it["usedPercent"].as_i64().is_some_and(|it| it >= 100));
        full.filter_map(|it| reset("", it, at)).max()
    }

    fn item(&mut self, item: &Value, done: bool) -> Vec<Said> {
        let text = item["text"].as_str().unwrap_or_default();
        match item["type"].as_str().unwrap_or_default() {
            "agentMessage" if done => {
                self.words.clear();
                self.words.add(text);
                let told = item["id"].as_str().is_some_and(|it| self.told.contains(it));
                if told { vec![] } else { vec![Said::Message { text: text.to_owned() }] }
            }
            "commandExecution" | "fileChange" | "mcpToolCall" | "webSearch" => {
                let tool = tool(item, "aggregatedOutput");
                if let Some(turn) = &mut self.turn {
                    turn.tools.insert(tool.id.clone(), tool.clone());
                }
                vec![Said::Tool(tool)]
            }
            "contextCompaction" if done => vec![Said::Notice { text: "The program compacted its context.".to_owned() }],
            _ => vec![],
        }
    }

    fn completed(&mut self, turn: &Value, at: u64) -> Vec<Said> {
        if self.turn.is_none() {
            return vec![];
        }
        let error = &turn["error"];
        let outcome = match turn["status"].as_str().unwrap_or_default() {
            "completed" => Ok(Stop::EndTurn),
            "interrupted" => Err(Trouble::new(Class::Cancelled, "The turn was cancelled.")),
            _ => {
                let words = error["message"].as_str().unwrap_or("The turn failed.");
                let mut trouble = Trouble::read(words, None, error, at);
                if trouble.class == Class::RateLimit {
                    trouble.until = trouble.until.or_else(|| self.limit_ends(at));
                }
                Err(trouble)
            }
        };
        self.over(outcome)
    }

    fn over(&mut self, outcome: Result<Stop, Trouble>) -> Vec<Said> {
        self.turn = None;
        let mut said = self.asks.cancel();
        match outcome {
            Ok(stop) => {
                said.push(Said::TurnEnded { stop, class: None, detail: self.words.text().to_owned() });
                self.last = Some(None);
            }
            Err(trouble) => {
                said.extend(trouble.ends_turn());
                self.last = Some(Some(trouble));
            }
        }
        said
    }

    fn asked(&mut self, id: Value, method: String, params: &Value) -> Vec<Said> {
        let call = self.turn.as_ref().and_then(|turn| turn.tools.get(params["itemId"].as_str()?));
        let known = match method.as_str() {
            "item/commandExecution/requestApproval" => Some(approval(params, ToolKind::Execute, call)),
            "item/fileChange/requestApproval" => Some(approval(params, ToolKind::Edit, call)),
            "item/permissions/requestApproval" => Some(permissions(params)),
            "item/tool/requestUserInput" => Some(questions(&params["questions"])),
            "mcpServer/elicitation/request" => Some(form(params)),
            _ => None,
        };
        let Some((what, want)) = known else {
            let text = format!("The program requested {method}, which Regatta does not offer.");
            self.refused.push((method, id));
            return vec![Said::Notice { text }];
        };
        let cancelled = self.turn.as_ref().is_some_and(|it| it.cancelled);
        let key = self.asks.open(id, what, cancelled);
        if cancelled { vec![] } else { vec![Said::Asked(Ask { id: key, want })] }
    }

    fn request(&self, method: &str, params: Value) -> Say {
        Say::Line(RPC.request(self.next_id, method, params))
    }

    fn opening(&self) -> Option<Say> {
        if !self.sent.is_empty() {
            return None;
        }
        if !self.greeted {
            let info = json!({ "name": "regatta", "title": "Regatta", "version": env!("CARGO_PKG_VERSION") });
            return Some(self.request("initialize", json!({ "clientInfo": info })));
        }
        if !self.acknowledged {
            return Some(Say::Line(RPC.note("initialized", json!({}))));
        }
        let profile = &self.setup.profile;
        let (approval, sandbox) = codex_mode(profile);
        let mut params = json!({ "cwd": self.setup.begins(), "approvalPolicy": approval, "sandbox": sandbox });
        if let Some(model) = &profile.model {
            params["model"] = json!(model);
        }
        if let Some(words) = &profile.system_prompt {
            params["developerInstructions"] = json!(words);
        }
        Some(match self.setup.resume.as_ref().filter(|_| !self.afresh) {
            Some(thread) => {
                params["threadId"] = json!(thread);
                params["excludeTurns"] = json!(true);
                self.request("thread/resume", params)
            }
            None => self.request("thread/start", params),
        })
    }
}

fn options(list: &[(&str, OptionKind)]) -> Vec<AskOption> {
    list.iter().map(|(id, kind)| AskOption { id: (*id).to_owned(), name: (*id).to_owned(), kind: *kind }).collect()
}

/// Reads a request to run a command or to change files. The files come from the call that was
/// announced before.
fn approval(params: &Value, kind: ToolKind, call: Option<&Tool>) -> (What, Want) {
    let word = |name: &str| params[name].as_str().map(str::to_owned);
    let mut tool = Tool { id: word("itemId").unwrap_or_default(), kind, ..Tool::default() };
    let announced = call.and_then(|call| call.command.clone());
    let command = params["command"].as_str().map(|line| unwrapped(line).to_owned()).or(announced);
    if let Some(command) = command.filter(|_| kind == ToolKind::Execute) {
        (tool.command, tool.is_cut) = whole_or_cut(&command);
    }
    // A running command asks again for each host that it wants to reach.
    let network = &params["networkApprovalContext"];
    if let Some(host) = network["host"].as_str() {
        tool.kind = ToolKind::Fetch;
        tool.urls.push(format!("{}://{host}", network["protocol"].as_str().unwrap_or("https")));
    }
    if kind == ToolKind::Edit {
        tool.paths = call.map(|call| call.paths.clone()).unwrap_or_default();
    }
    if let Some(root) = params["grantRoot"].as_str() {
        add(&mut tool.paths, root);
    }
    let reason = word("reason").or_else(|| (kind == ToolKind::Edit).then(|| "change files".to_owned()));
    tool.title = reason.or_else(|| tool.command.clone()).unwrap_or_else(|| "run a command".to_owned());
    let options = options(&[
        ("accept", OptionKind::AllowOnce),
        ("acceptForSession", OptionKind::AllowAlways),
        ("decline", OptionKind::RejectOnce),
    ]);
    (What::Approval(options.clone()), Want::Permission { tool, options })
}

/// Reads a request for more permissions, which is shown unchanged.
fn permissions(params: &Value) -> (What, Want) {
    let reason = params["reason"].as_str().unwrap_or("more permissions");
    let id = params["itemId"].as_str().unwrap_or_default().to_owned();
    let mut tool = Tool { id, title: reason.to_owned(), kind: ToolKind::SwitchMode, ..Tool::default() };
    let asked = &params["permissions"];
    if asked.is_object() {
        (tool.arguments, tool.is_cut) = whole_or_cut(&asked.to_string());
    }
    for path in ["read", "write"].iter().flat_map(|access| asked["fileSystem"][*access].as_array()).flatten() {
        add(&mut tool.paths, path.as_str().unwrap_or_default());
    }
    let options = options(&[("grant", OptionKind::AllowOnce), ("decline", OptionKind::RejectOnce)]);
    (What::Permissions(asked.clone()), Want::Permission { tool, options })
}

/// Builds a form of the questions with one field each, under the question's own id.
fn questions(list: &Value) -> (What, Want) {
    let all: Vec<&Value> = list.as_array().into_iter().flatten().collect();
    let word = |it: &Value, name: &str| it[name].as_str().unwrap_or_default().to_owned();
    let labels = |it: &Value| -> Vec<String> {
        let options = it["options"].as_array().into_iter().flatten();
        options.filter_map(|it| it["label"].as_str()).map(str::to_owned).collect()
    };
    let mut fields = serde_json::Map::new();
    for question in &all {
        let field = json!({ "type": "string", "title": word(question, "question"), "examples": labels(question) });
        fields.insert(word(question, "id"), field);
    }
    let required: Vec<String> = all.iter().map(|it| word(it, "id")).collect();
    let form = json!({ "type": "object", "properties": fields, "required": required });
    let text = all.iter().map(|it| word(it, "question")).collect::<Vec<_>>().join("\n");
    let (choices, schema) = match all.as_slice() {
        [one] => (labels(one), None),
        _ => (vec![], Some(form.to_string())),
    };
    (What::Questions(list.clone(), form), Want::Question { text, choices, schema })
}

/// Reads a question that an MCP server asks through Codex.
fn form(params: &Value) -> (What, Want) {
    let server = params["serverName"].as_str().unwrap_or("an MCP server");
    let message = params["message"].as_str().unwrap_or_default();
    let url = params["url"].as_str().map_or_else(String::new, |it| format!("\n{it}"));
    let schema = params["requestedSchema"].clone();
    let words = schema.is_object().then(|| schema.to_string());
    let text = format!("{server}: {message}{url}");
    (What::Form(schema), Want::Question { text, choices: vec![], schema: words })
}

fn answer(what: &What, answer: &Answer) -> Value {
    match what {
        What::Approval(options) => match choose(options, answer) {
            Some(option) => json!({ "decision": option.id }),
            None => json!({ "decision": "cancel" }),
        },
        What::Permissions(asked) => match answer {
            Answer::Allow | Answer::Text { .. } => json!({ "permissions": asked, "scope": "turn" }),
            Answer::Deny { .. } | Answer::Cancelled => json!({ "permissions": {} }),
        },
        What::Questions(questions, form) => {
            let text = match answer {
                Answer::Text { text } => text.as_str(),
                Answer::Deny { words: Some(words) } => words.as_str(),
                _ => "",
            };
            let form = filled(form, text);
            let mut answers = serde_json::Map::new();
            for id in questions.as_array().into_iter().flatten().filter_map(|it| it["id"].as_str()) {
                let given: Vec<&str> = form[id].as_str().into_iter().filter(|it| !it.is_empty()).collect();
                answers.insert(id.to_owned(), json!({ "answers": given }));
            }
            json!({ "answers": answers })
        }
        What::Form(schema) => match answer {
            Answer::Text { text } => json!({ "action": "accept", "content": filled(schema, text) }),
            Answer::Allow => json!({ "action": "accept", "content": {} }),
            Answer::Deny { .. } => json!({ "action": "decline" }),
            Answer::Cancelled => json!({ "action": "cancel" }),
        },
    }
}

fn plan(steps: &Value) -> Said {
    let entries = steps.as_array().into_iter().flatten().map(|it| PlanEntry {
        text: it["step"].as_str().unwrap_or_default().to_owned(),
        status: match it["status"].as_str() {
            Some("completed") => ToolStatus::Completed,
            Some("inProgress") => ToolStatus::InProgress,
            _ => ToolStatus::Pending,
        },
    });
    Said::Plan { entries: entries.collect() }
}

impl Driver for Server {
    fn saw(&mut self, record: &Record) -> Vec<Said> {
        match record.stream {
            Stream::In => self.was_said(&record.line),
            Stream::InEnd => {
                self.closed = true;
                vec![]
            }
            Stream::Out => match read(&record.line) {
                Some(Message::Answer { id, outcome }) => self.answered(&id, outcome, record.at),
                Some(Message::Request { id, method, params }) => self.asked(id, method, &params),
                Some(Message::Note { method, params }) => self.noted(&method, &params, record.at),
                None => {
                    self.errors.add_line(&record.line);
                    vec![unreadable(&record.line)]
                }
            },
            Stream::Err | Stream::Mark => self.errors.aside(record),
        }
    }

    fn next(&self, wishes: &Wishes) -> Option<Say> {
        if self.closed {
            return None;
        }
        if let Some((method, id)) = self.refused.first() {
            return Some(Say::Line(RPC.error(id, NO_METHOD, &format!("Method not found: {method}"))));
        }
        if self.failed.is_some() {
            return Some(Say::Close);
        }
        // A turn without a known id cannot be interrupted yet. The answer to its start contains the
        // id.
        let named = self.turn.as_ref().is_none_or(|it| it.id.is_some());
        if let Some(thread) = self.thread.as_ref().filter(|_| named && wishes.cancels > self.cancels) {
            let turn = self.turn.as_ref().and_then(|it| it.id.as_ref()).unwrap_or(&self.last_turn);
            return Some(self.request("turn/interrupt", json!({ "threadId": thread, "turnId": turn })));
        }
        if let Some((open, wished)) = self.asks.answerable(wishes) {
            return Some(Say::Line(RPC.result(&open.id, answer(&open.what, &wished))));
        }
        if self.turn.is_some() {
            return None;
        }
        let prompt = usize::try_from(self.prompts).ok().and_then(|it| wishes.prompts.get(it)).filter(|_| !wishes.hold);
        if wishes.end && prompt.is_none() {
            return Some(Say::Close);
        }
        let Some(thread) = &self.thread else { return self.opening() };
        prompt.map(|it| {
            let params = json!({ "threadId": thread, "input": [{ "type": "text", "text": it }] });
            self.request("turn/start", params)
        })
    }

    fn judge(&self, exit: &Exit) -> Judgement {
        let course = Course {
            failed: self.failed.as_ref(),
            open: self.thread.is_some(),
            turn: self.turn.as_ref().map(|it| it.cancelled),
            last: self.last.as_ref().map(Option::as_ref),
            closed: self.closed,
            words: &self.words,
            errors: &self.errors,
            books: &self.books,
        };
        course.judge(exit)
    }
}

#[cfg(test)]
#[path = "codex_server_tests.rs"]
mod tests;
