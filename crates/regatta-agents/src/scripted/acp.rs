//! The agent's side of the Agent Client Protocol, version 1. It is the test double for all code
//! that speaks the protocol.
//!
//! Each prompt follows the script up to the next `end_turn` step or to its end. The session is
//! saved in the agent's home after every step, so a later process can load it and continue.

use std::fs;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use regatta_core::session::{Class, ToolKind};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::tools::Tools;
use super::{Agent, Halt, Voice, steps};
use crate::drivers::rpc::{Dialect, Fault, Message, NO_METHOD, read};
use crate::rundir::write_atomic;
use crate::script::{Permission, Step};

const RPC: Dialect = Dialect::Standard;

/// The number of updates that a session keeps for a later load.
const REMEMBERED: usize = 200;

/// Serves ACP on the given streams until the input ends.
pub fn main(script_file: Option<PathBuf>, input: impl BufRead + Send + 'static, out: &mut dyn Write) -> ExitCode {
    let (sender, orders) = channel();
    std::thread::spawn(move || {
        // An unreadable line ends the input too.
        for line in input.lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let mut server = Server {
        voice: Speaker {
            out,
            orders,
            waiting: Vec::new(),
            next_id: 0,
            can_ask: false,
            cancelled: false,
            hung_up: false,
            session: Kept::default(),
            turn: Used::default(),
            mode: "default".to_owned(),
            output: String::new(),
        },
        script: steps(script_file),
        agent: None,
        settings: Settings::default(),
    };
    while let Some(message) = server.voice.next_order() {
        server.handle(message);
    }
    ExitCode::SUCCESS
}

/// The variable with the path of the agent's own home in the data directory. The scripted agent
/// usually runs without a sandbox, so `HOME` is the user's home, where it must write nothing.
pub(crate) const SESSIONS_HOME: &str = "REGATTA_SCRIPTED_HOME";

/// The saved state of a session.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Kept {
    id: String,
    /// The number of the next step, from 0.
    position: usize,
    updates: Vec<Value>,
    /// The cost of the whole session in dollars.
    cost: f64,
}

impl Kept {
    fn file(id: &str) -> Option<PathBuf> {
        let plain = !id.is_empty() && id.chars().all(|it| it.is_ascii_alphanumeric() || it == '-');
        let home = std::env::var_os(SESSIONS_HOME).or_else(|| std::env::var_os("HOME")).filter(|_| plain)?;
        Some(Path::new(&home).join(".regatta-scripted").join(format!("{id}.json")))
    }

    fn save(&self) -> io::Result<()> {
        let Some(file) = Kept::file(&self.id) else { return Ok(()) };
        file.parent().map_or(Ok(()), fs::create_dir_all)?;
        write_atomic(&file, &serde_json::to_vec(self)?)
    }

    fn load(id: &str) -> Option<Kept> {
        serde_json::from_slice(&fs::read(Kept::file(id)?).ok()?).ok()
    }
}

/// The usage of one turn.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    input: u64,
    output: u64,
    cached: u64,
    told: bool,
}

#[derive(Clone, Debug)]
struct Settings {
    model: String,
    effort: String,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { model: "scripted-small".to_owned(), effort: "low".to_owned() }
    }
}

struct Server<'a> {
    voice: Speaker<'a>,
    script: Result<Vec<Step>, String>,
    agent: Option<Agent>,
    settings: Settings,
}

impl Server<'_> {
    fn handle(&mut self, message: Message) {
        let Message::Request { id, method, params } = message else { return };
        let answer = match method.as_str() {
            "initialize" => {
                self.voice.can_ask = params["clientCapabilities"]["elicitation"]["form"].is_object();
                Ok(json!({
                    "protocolVersion": 1,
                    "agentInfo": { "name": "regatta-scripted", "version": env!("CARGO_PKG_VERSION") },
                    "agentCapabilities": {
                        "loadSession": true,
                        "mcpCapabilities": { "http": true, "sse": false },
                        "sessionCapabilities": { "close": {} },
                    },
                    "authMethods": [],
                }))
            }
            "authenticate" | "session/close" => Ok(json!({})),
            "session/new" => self.new_session(&params),
            "session/load" => self.load_session(&params),
            "session/set_mode" => self.set("mode", &params["modeId"]),
            "session/set_config_option" => self.set(params["configId"].as_str().unwrap_or_default(), &params["value"]),
            "session/prompt" => self.prompt(),
            _ => Err(Fault { code: NO_METHOD, message: format!("Method not found: {method}"), data: Value::Null }),
        };
        self.voice.answer(&id, answer);
    }

    fn open(&mut self, params: &Value) -> Result<(), Fault> {
        let dir = params["cwd"].as_str().unwrap_or_default();
        let fault = |why: String| Fault { code: -32602, message: why, data: Value::Null };
        if !Path::new(dir).is_absolute() {
            return Err(fault(format!("cwd must be absolute, not {dir:?}")));
        }
        let mut agent = Agent::new(Path::new(dir)).map_err(|error| fault(format!("Could not use {dir}: {error}")))?;
        agent.tools = Tools::of_session(params);
        self.agent = Some(agent);
        Ok(())
    }

    fn new_session(&mut self, params: &Value) -> Result<Value, Fault> {
        self.open(params)?;
        let attempt = std::env::var("REGATTA_ATTEMPT").unwrap_or_else(|_| "by-hand".to_owned());
        let id = format!("scripted-{attempt}-{}", std::process::id());
        self.voice.session = Kept { id: id.clone(), ..Kept::default() };
        self.voice.keep();
        Ok(json!({ "sessionId": id, "configOptions": self.options() }))
    }

    fn load_session(&mut self, params: &Value) -> Result<Value, Fault> {
        let id = params["sessionId"].as_str().unwrap_or_default();
        let gone = || Fault { code: -32002, message: format!("No session {id}"), data: json!({ "sessionId": id }) };
        let kept = Kept::load(id).ok_or_else(gone)?;
        self.open(params)?;
        for update in &kept.updates {
            self.voice.note("session/update", json!({ "sessionId": id, "update": update }));
        }
        if let Some(agent) = &mut self.agent {
            agent.step = kept.position;
        }
        self.voice.session = kept;
        Ok(json!({ "configOptions": self.options() }))
    }

    fn options(&self) -> Value {
        let option = |id: &str, category: &str, current: &str, values: [&str; 2]| {
            json!({
                "id": id, "name": id, "category": category, "type": "select", "currentValue": current,
                "options": values.map(|it| json!({ "value": it, "name": it })),
            })
        };
        json!([
            option("mode", "mode", &self.voice.mode, ["default", "auto"]),
            option("model", "model", &self.settings.model, ["scripted-small", "scripted-big"]),
            option("effort", "thought_level", &self.settings.effort, ["low", "high"]),
        ])
    }

    fn set(&mut self, what: &str, value: &Value) -> Result<Value, Fault> {
        let value = value.as_str().unwrap_or_default().to_owned();
        match what {
            "mode" => self.voice.mode = value,
            "model" => self.settings.model = value,
            "effort" => self.settings.effort = value,
            _ => return Err(Fault { code: -32602, message: format!("No option {what}"), data: Value::Null }),
        }
        Ok(json!({ "configOptions": self.options() }))
    }

    /// Follows the script to the end of the turn.
    fn prompt(&mut self) -> Result<Value, Fault> {
        self.voice.cancelled = false;
        self.voice.turn = Used::default();
        let Some(agent) = &mut self.agent else {
            return Err(Fault { code: -32002, message: "No session is open".to_owned(), data: Value::Null });
        };
        // The class blames the task, so the agent stays available for other tasks.
        let steps = self.script.as_ref().map_err(|why| fault(Class::Refused, why, None))?;
        if self.voice.session.position >= steps.len() && !steps.is_empty() {
            self.voice.tell(agent.step, "say", json!({ "text": "The script has no more steps." }));
        }
        let mut done = Ok(());
        while let Some(step) = steps.get(self.voice.session.position) {
            done = agent.follow(step, &mut self.voice);
            // A step that was cancelled or met a provider's failure is not repeated when the
            // session continues.
            let over = match &done {
                Ok(()) | Err(Halt::Cancelled) => true,
                Err(Halt::Trouble { class, .. }) => matches!(class, Class::RateLimit | Class::Overloaded),
                Err(Halt::Failed(_)) => false,
            };
            if over {
                self.voice.session.position += 1;
                self.voice.keep();
            }
            if done.is_err() {
                break;
            }
            if *step == Step::EndTurn(true) {
                break;
            }
        }
        let detail = match &done {
            Ok(()) => agent.said.clone().unwrap_or_else(|| format!("Followed {} steps.", agent.step)),
            Err(halt) => halt.reason().to_owned(),
        };
        let left = agent.leave_result(done.is_ok(), &detail).map_err(|why| fault(Class::Crashed, &why, None));
        match done {
            Ok(()) => left.map(|()| self.ended("end_turn")),
            Err(Halt::Cancelled) => Ok(self.ended("cancelled")),
            Err(Halt::Trouble { class: Class::Cancelled, .. }) => Ok(self.ended("cancelled")),
            Err(Halt::Trouble { class: Class::Refused, reason, .. }) => {
                self.voice.tell(0, "say", json!({ "text": reason }));
                Ok(self.ended("refusal"))
            }
            Err(Halt::Trouble { class, reason, reset_in }) => Err(fault(class, &reason, reset_in)),
            Err(Halt::Failed(reason)) => Err(fault(Class::Crashed, &reason, None)),
        }
    }

    fn ended(&self, reason: &str) -> Value {
        let used = self.voice.turn;
        let mut result = json!({ "stopReason": reason });
        if used.told {
            result["usage"] = json!({
                "inputTokens": used.input, "outputTokens": used.output, "cachedReadTokens": used.cached,
                "totalTokens": used.input + used.output + used.cached,
            });
        }
        result
    }
}

/// Returns an error as a provider's adapter would report it.
fn fault(class: Class, reason: &str, reset_in: Option<Duration>) -> Fault {
    let code = match class {
        Class::Auth => -32000,
        Class::RateLimit => 429,
        Class::Overloaded => 529,
        _ => -32603,
    };
    let mut data = json!({ "errorKind": class.name() });
    if let Some(reset_in) = reset_in {
        data["retryAfterMs"] = json!(u64::try_from(reset_in.as_millis()).unwrap_or(u64::MAX));
    }
    Fault { code, message: reason.to_owned(), data }
}

/// The connection to the client.
struct Speaker<'a> {
    out: &'a mut dyn Write,
    orders: Receiver<String>,
    /// Messages that arrived during a wait for something else.
    waiting: Vec<Message>,
    next_id: u64,
    can_ask: bool,
    cancelled: bool,
    /// Set once the input has ended.
    hung_up: bool,
    session: Kept,
    turn: Used,
    mode: String,
    /// The output of the running command.
    output: String,
}

impl Speaker<'_> {
    /// Writes a line. A client that no longer reads also closes the input, so a failed write is
    /// ignored.
    fn line(&mut self, line: &str) {
        drop(writeln!(self.out, "{line}").and_then(|()| self.out.flush()));
    }

    fn note(&mut self, method: &str, params: Value) {
        self.line(&RPC.note(method, params));
    }

    fn answer(&mut self, id: &Value, outcome: Result<Value, Fault>) {
        let line = match outcome {
            Ok(result) => RPC.result(id, result),
            Err(fault) => json!({
                "jsonrpc": "2.0", "id": id,
                "error": { "code": fault.code, "message": fault.message, "data": fault.data },
            })
            .to_string(),
        };
        self.line(&line);
    }

    fn update(&mut self, update: Value) {
        let id = self.session.id.clone();
        self.note("session/update", json!({ "sessionId": id, "update": update }));
        if self.session.updates.len() < REMEMBERED {
            self.session.updates.push(update);
        }
    }

    /// Saves the session. If that fails, the session merely cannot be loaded again.
    fn keep(&mut self) {
        if let Err(error) = self.session.save() {
            drop(writeln!(io::stderr(), "could not save the session: {error}"));
        }
    }

    /// Returns the next message, or `None` when the input has ended.
    fn next_order(&mut self) -> Option<Message> {
        if !self.waiting.is_empty() {
            return Some(self.waiting.remove(0));
        }
        loop {
            if let Some(message) = read(&self.orders.recv().ok()?) {
                return Some(message);
            }
        }
    }

    /// Waits until `deadline`, or until the answer to `id` arrives. A cancellation ends the wait.
    fn listen(&mut self, deadline: Option<Instant>, id: Option<u64>) -> Result<Option<Result<Value, Fault>>, Halt> {
        loop {
            if self.cancelled || self.hung_up {
                // The client ignores an answer that arrives after a cancellation.
                return Err(Halt::Cancelled);
            }
            let line = match deadline {
                Some(deadline) => self.orders.recv_timeout(deadline.saturating_duration_since(Instant::now())),
                None => self.orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            let message = match line {
                Ok(line) => read(&line),
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => {
                    self.hung_up = true;
                    continue;
                }
            };
            match message {
                Some(Message::Note { method, .. }) if method == "session/cancel" => self.cancelled = true,
                Some(Message::Answer { id: its, outcome }) if id.is_some() && its.as_u64() == id => {
                    return Ok(Some(outcome));
                }
                Some(request @ Message::Request { .. }) => self.waiting.push(request),
                _ => {}
            }
        }
    }

    /// Sends a request to the client and waits for the answer.
    fn request(&mut self, method: &str, params: Value) -> Result<Value, Halt> {
        let id = self.next_id;
        self.next_id += 1;
        self.line(&RPC.request(id, method, params));
        match self.listen(None, Some(id))? {
            Some(Ok(result)) => Ok(result),
            Some(Err(fault)) => Err(Halt::Failed(format!("The client refused {method}: {}", fault.message))),
            None => Err(Halt::Cancelled),
        }
    }
}

impl Voice for Speaker<'_> {
    fn tell(&mut self, step: usize, kind: &str, content: Value) {
        let text = |name: &str| json!({ "type": "text", "text": content[name] });
        let tool = format!("step-{step}");
        match kind {
            "say" => self.update(json!({ "sessionUpdate": "agent_message_chunk", "content": text("text") })),
            "think" => self.update(json!({ "sessionUpdate": "agent_thought_chunk", "content": text("text") })),
            "plan" => {
                let entries = content["entries"].as_array().into_iter().flatten();
                let entries: Vec<Value> =
                    entries.map(|it| json!({ "content": it, "priority": "medium", "status": "pending" })).collect();
                self.update(json!({ "sessionUpdate": "plan", "entries": entries }));
            }
            "tool" => self.update(json!({
                "sessionUpdate": "tool_call", "toolCallId": tool, "title": content["title"], "kind": content["tool"],
                "status": "completed",
            })),
            "write" | "append" | "replace" | "remove" => self.update(json!({
                "sessionUpdate": "tool_call", "toolCallId": tool,
                "title": format!("{kind} {}", content["path"].as_str().unwrap_or_default()),
                "kind": if kind == "remove" { "delete" } else { "edit" }, "status": "completed",
                "locations": [{ "path": content["path"] }],
            })),
            "run" => {
                self.output.clear();
                self.update(json!({
                    "sessionUpdate": "tool_call", "toolCallId": tool, "title": content["text"], "kind": "execute",
                    "status": "in_progress", "rawInput": { "command": content["text"] },
                }));
            }
            "output" => {
                self.output.push_str(content["text"].as_str().unwrap_or_default());
                self.output.push('\n');
                let all = json!([{ "type": "content", "content": { "type": "text", "text": self.output } }]);
                self.note(
                    "session/update",
                    json!({ "sessionId": self.session.id, "update": {
                        "sessionUpdate": "tool_call_update", "toolCallId": tool, "content": all,
                    }}),
                );
            }
            "ran" => self.update(json!({
                "sessionUpdate": "tool_call_update", "toolCallId": tool, "status": "completed",
            })),
            "usage" => {
                let count = |name: &str| content[name].as_u64().unwrap_or(0);
                self.turn.input += count("input");
                self.turn.output += count("output");
                self.turn.cached += count("cached");
                self.turn.told = true;
                self.session.cost += content["cost"].as_f64().unwrap_or(0.0);
                let context = &content["context"];
                let (used, size) = (context["used"].as_u64(), context["size"].as_u64());
                let used = used.unwrap_or(self.turn.input + self.turn.output + self.turn.cached);
                let mut update =
                    json!({ "sessionUpdate": "usage_update", "used": used, "size": size.unwrap_or(200_000) });
                if !content["cost"].is_null() {
                    update["cost"] = json!({ "amount": self.session.cost, "currency": "USD" });
                }
                self.update(update);
            }
            // The request or its answer has shown it already.
            _ => {}
        }
    }

    fn ask(&mut self, question: &str, choices: &[String], default: Option<&str>) -> Result<String, Halt> {
        if !self.can_ask {
            let why = "The client supports no questions; give the step a `default`.".to_owned();
            return default.map(str::to_owned).ok_or(Halt::Failed(why));
        }
        let mut field = json!({ "type": "string", "title": "Answer" });
        if !choices.is_empty() {
            field["enum"] = json!(choices);
        }
        let schema = json!({ "type": "object", "properties": { "answer": field }, "required": ["answer"] });
        let params = json!({
            "mode": "form", "sessionId": self.session.id, "message": question, "requestedSchema": schema,
        });
        let answer = self.request("elicitation/create", params)?;
        match (answer["action"].as_str(), answer["content"]["answer"].as_str()) {
            (Some("accept"), Some(text)) => Ok(text.to_owned()),
            (Some("cancel"), _) => Err(Halt::Cancelled),
            _ => Err(Halt::Failed(format!("Nobody answered: {question}"))),
        }
    }

    fn permit(&mut self, permission: &Permission) -> Result<bool, Halt> {
        if self.mode == "auto" {
            return Ok(true);
        }
        let (kind, path) = match permission {
            Permission::Short(_) => (None, None),
            Permission::Long { kind, path, .. } => (*kind, path.as_ref()),
        };
        let mut tool = json!({
            "toolCallId": format!("ask-{}", self.next_id), "title": permission.what(), "status": "pending",
            "kind": kind.map_or(json!("execute"), |it| json!(it)),
        });
        tool["rawInput"] = match kind {
            None => json!({ "command": permission.what() }),
            Some(ToolKind::Fetch) if permission.what().contains("://") => json!({ "url": permission.what() }),
            Some(_) => json!({ "request": permission.what() }),
        };
        if let Some(path) = path {
            tool["locations"] = json!([{ "path": path }]);
        }
        // The order and the names mislead a client that does not look at the kinds.
        let options = json!([
            { "optionId": "o1", "name": "Yes, never", "kind": "reject_always" },
            { "optionId": "o2", "name": "Always", "kind": "allow_always" },
            { "optionId": "o3", "name": "Yes, but no", "kind": "reject_once" },
            { "optionId": "o4", "name": "No objection", "kind": "allow_once" },
        ]);
        let params = json!({ "sessionId": self.session.id, "toolCall": tool, "options": options });
        let answer = self.request("session/request_permission", params)?;
        match (answer["outcome"]["outcome"].as_str(), answer["outcome"]["optionId"].as_str()) {
            (Some("selected"), Some(option)) => Ok(matches!(option, "o2" | "o4")),
            _ => Err(Halt::Cancelled),
        }
    }

    fn flood(&mut self, _: usize, bytes: u64) -> Result<(), Halt> {
        let text = "~".repeat(1000);
        let update = json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": text } });
        let line = RPC.note("session/update", json!({ "sessionId": self.session.id, "update": update })) + "\n";
        for nth in 0..bytes.div_ceil(line.len() as u64) {
            self.out.write_all(line.as_bytes()).map_err(|error| format!("Could not print: {error}."))?;
            if nth % 64 == 0 {
                self.check()?;
            }
        }
        self.out.flush().map_err(|error| format!("Could not print: {error}.").into())
    }

    fn pause(&mut self, time: Duration) -> Result<(), Halt> {
        self.listen(Some(Instant::now() + time), None).map(|_| ())
    }

    fn check(&mut self) -> Result<(), Halt> {
        self.listen(Some(Instant::now()), None).map(|_| ())
    }
}
