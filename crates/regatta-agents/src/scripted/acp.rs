//! The scripted agent's side of the Agent Client Protocol (ACP), version 1. All code of Regatta
//! that speaks the protocol is tested against the scripted agent.
//!
//! Each prompt performs the script's steps up to the next `end_turn` step or to the end of the
//! script. The session is saved in the agent's home after every step, so a later process can load
//! it and continue.

use std::fs;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use regatta_core::agent_protocol::{FailureClass, ToolKind};
use regatta_core::plural;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::tools::ToolClient;
use super::{ClientChannel, ScriptRunner, ScriptStop, load_steps};
use crate::drivers::rpc::{METHOD_NOT_FOUND, RpcDialect, RpcError, RpcMessage, parse_message};
use crate::run_dir::write_atomic;
use crate::script::{PermissionStep, ScriptStep};

const DIALECT: RpcDialect = RpcDialect::Standard;

/// The maximum number of updates (messages to the client) that the scripted agent saves with a
/// session. The agent repeats them when the session is loaded.
const MAX_SAVED_UPDATES: usize = 200;

/// Serves the Agent Client Protocol on the given streams until the input ends.
pub fn main(
    script_file: Option<PathBuf>,
    input: impl BufRead + Send + 'static,
    out: &mut dyn Write,
) -> ExitCode {
    let (sender, incoming) = channel();
    std::thread::spawn(move || {
        // Treat a line that cannot be read as the end of the input.
        for line in input.lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let mut server = AcpServer {
        channel: AcpChannel {
            out,
            incoming,
            queued: Vec::new(),
            next_id: 0,
            can_ask: false,
            is_cancelled: false,
            is_disconnected: false,
            session: SavedSession::default(),
            turn: TurnUsage::default(),
            mode: "default".to_owned(),
            output: String::new(),
        },
        script: load_steps(script_file),
        runner: None,
        settings: SessionSettings::default(),
    };
    while let Some(message) = server.channel.next_message() {
        server.handle(message);
    }
    ExitCode::SUCCESS
}

/// The environment variable with the path of the agent's own home in the data directory, where
/// sessions are saved. The scripted agent usually runs without a sandbox, so `HOME` is the user's
/// home, where the agent must write nothing.
pub(crate) const SESSIONS_HOME_VARIABLE: &str = "REGATTA_SCRIPTED_HOME";

/// The state of a session of the scripted agent, as it is saved in a file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct SavedSession {
    id: String,
    /// The index of the next step to perform; the first step has index 0.
    position: usize,
    updates: Vec<Value>,
    /// The reported cost of the session since its start, in dollars.
    cost: f64,
}

impl SavedSession {
    fn path(id: &str) -> Option<PathBuf> {
        let plain = !id.is_empty() && id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        let home = std::env::var_os(SESSIONS_HOME_VARIABLE)
            .or_else(|| std::env::var_os("HOME"))
            .filter(|_| plain)?;
        Some(
            Path::new(&home)
                .join(".regatta-scripted")
                .join(format!("{id}.json")),
        )
    }

    fn save(&self) -> io::Result<()> {
        let Some(file) = SavedSession::path(&self.id) else {
            return Ok(());
        };
        file.parent().map_or(Ok(()), fs::create_dir_all)?;
        write_atomic(&file, &serde_json::to_vec(self)?)
    }

    fn load(id: &str) -> Option<SavedSession> {
        serde_json::from_slice(&fs::read(SavedSession::path(id)?).ok()?).ok()
    }
}

/// The tokens that the `usage` steps of one turn reported.
#[derive(Clone, Copy, Debug, Default)]
struct TurnUsage {
    input: u64,
    output: u64,
    cached: u64,
    is_reported: bool,
}

#[derive(Clone, Debug)]
struct SessionSettings {
    model: String,
    effort: String,
}

impl Default for SessionSettings {
    fn default() -> SessionSettings {
        SessionSettings {
            model: "scripted-small".to_owned(),
            effort: "low".to_owned(),
        }
    }
}

struct AcpServer<'a> {
    channel: AcpChannel<'a>,
    script: Result<Vec<ScriptStep>, String>,
    runner: Option<ScriptRunner>,
    settings: SessionSettings,
}

impl AcpServer<'_> {
    fn handle(&mut self, message: RpcMessage) {
        let RpcMessage::Request { id, method, params } = message else {
            return;
        };
        let answer = match method.as_str() {
            "initialize" => {
                self.channel.can_ask =
                    params["clientCapabilities"]["elicitation"]["form"].is_object();
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
            "session/set_mode" => self.set_option("mode", &params["modeId"]),
            "session/set_config_option" => self.set_option(
                params["configId"].as_str().unwrap_or_default(),
                &params["value"],
            ),
            "session/prompt" => self.run_turn(),
            _ => Err(RpcError {
                code: METHOD_NOT_FOUND,
                message: format!("Method not found: {method}"),
                data: Value::Null,
            }),
        };
        self.channel.answer(&id, answer);
    }

    fn open_workspace(&mut self, params: &Value) -> Result<(), RpcError> {
        let dir = params["cwd"].as_str().unwrap_or_default();
        let error = |why: String| RpcError {
            code: -32602,
            message: why,
            data: Value::Null,
        };
        if !Path::new(dir).is_absolute() {
            return Err(error(format!("cwd must be absolute, not {dir:?}")));
        }
        let mut runner = ScriptRunner::new(Path::new(dir))
            .map_err(|cause| error(format!("Could not use {dir}: {cause}")))?;
        runner.tools = ToolClient::from_session(params);
        self.runner = Some(runner);
        Ok(())
    }

    fn new_session(&mut self, params: &Value) -> Result<Value, RpcError> {
        self.open_workspace(params)?;
        let attempt = std::env::var("REGATTA_ATTEMPT").unwrap_or_else(|_| "by-hand".to_owned());
        let id = format!("scripted-{attempt}-{}", std::process::id());
        self.channel.session = SavedSession {
            id: id.clone(),
            ..SavedSession::default()
        };
        self.channel.save_session();
        Ok(json!({ "sessionId": id, "configOptions": self.config_options() }))
    }

    fn load_session(&mut self, params: &Value) -> Result<Value, RpcError> {
        let id = params["sessionId"].as_str().unwrap_or_default();
        let not_found = || RpcError {
            code: -32002,
            message: format!("No session {id}"),
            data: json!({ "sessionId": id }),
        };
        let saved = SavedSession::load(id).ok_or_else(not_found)?;
        self.open_workspace(params)?;
        for update in &saved.updates {
            self.channel.notify(
                "session/update",
                json!({ "sessionId": id, "update": update }),
            );
        }
        if let Some(runner) = &mut self.runner {
            runner.step = saved.position;
        }
        self.channel.session = saved;
        Ok(json!({ "configOptions": self.config_options() }))
    }

    fn config_options(&self) -> Value {
        let option = |id: &str, category: &str, current: &str, values: [&str; 2]| {
            json!({
                "id": id, "name": id, "category": category, "type": "select", "currentValue": current,
                "options": values.map(|value| json!({ "value": value, "name": value })),
            })
        };
        json!([
            option("mode", "mode", &self.channel.mode, ["default", "auto"]),
            option(
                "model",
                "model",
                &self.settings.model,
                ["scripted-small", "scripted-big"]
            ),
            option(
                "effort",
                "thought_level",
                &self.settings.effort,
                ["low", "high"]
            ),
        ])
    }

    fn set_option(&mut self, option: &str, value: &Value) -> Result<Value, RpcError> {
        let value = value.as_str().unwrap_or_default().to_owned();
        match option {
            "mode" => self.channel.mode = value,
            "model" => self.settings.model = value,
            "effort" => self.settings.effort = value,
            _ => {
                return Err(RpcError {
                    code: -32602,
                    message: format!("No option {option}"),
                    data: Value::Null,
                });
            }
        }
        Ok(json!({ "configOptions": self.config_options() }))
    }

    /// Performs the script's steps up to the end of the turn (the work on one prompt), and returns
    /// the answer to the prompt.
    fn run_turn(&mut self) -> Result<Value, RpcError> {
        self.channel.is_cancelled = false;
        self.channel.turn = TurnUsage::default();
        let Some(runner) = &mut self.runner else {
            return Err(RpcError {
                code: -32002,
                message: "No session is open".to_owned(),
                data: Value::Null,
            });
        };
        // Report a missing script as a refusal of the task, because that kind of failure concerns
        // only the task, so the agent stays available for other tasks.
        let steps = self
            .script
            .as_ref()
            .map_err(|why| provider_error(FailureClass::Refused, why, None))?;
        if self.channel.session.position >= steps.len() && !steps.is_empty() {
            self.channel.report(
                runner.step,
                "say",
                json!({ "text": "The script has no more steps." }),
            );
        }
        let mut outcome = Ok(());
        while let Some(step) = steps.get(self.channel.session.position) {
            outcome = runner.run_step(step, &mut self.channel);
            // When the session continues, do not repeat a step that was cancelled, or that
            // simulated a used-up limit or an overloaded provider.
            let is_step_over = match &outcome {
                Ok(()) | Err(ScriptStop::Cancelled) => true,
                Err(ScriptStop::ProviderFailure { class, .. }) => {
                    matches!(
                        class,
                        FailureClass::RateLimit
                            | FailureClass::Overloaded
                            | FailureClass::NoNetwork
                    )
                }
                Err(ScriptStop::Failed(_)) => false,
            };
            if is_step_over {
                self.channel.session.position += 1;
                self.channel.save_session();
            }
            if outcome.is_err() {
                break;
            }
            if *step == ScriptStep::EndTurn(true) {
                break;
            }
        }
        let detail = match &outcome {
            Ok(()) => runner
                .last_message
                .clone()
                .unwrap_or_else(|| format!("Followed {}.", plural::count(runner.step, "step"))),
            Err(stop) => stop.reason().to_owned(),
        };
        let result_written = runner
            .write_result(outcome.is_ok(), &detail)
            .map_err(|why| provider_error(FailureClass::Crashed, &why, None));
        match outcome {
            Ok(()) => result_written.map(|()| self.prompt_result("end_turn")),
            Err(ScriptStop::Cancelled) => Ok(self.prompt_result("cancelled")),
            Err(ScriptStop::ProviderFailure {
                class: FailureClass::Cancelled,
                ..
            }) => Ok(self.prompt_result("cancelled")),
            Err(ScriptStop::ProviderFailure {
                class: FailureClass::Refused,
                reason,
                ..
            }) => {
                self.channel.report(0, "say", json!({ "text": reason }));
                Ok(self.prompt_result("refusal"))
            }
            Err(ScriptStop::ProviderFailure {
                class,
                reason,
                reset_in,
            }) => Err(provider_error(class, &reason, reset_in)),
            Err(ScriptStop::Failed(reason)) => {
                Err(provider_error(FailureClass::Crashed, &reason, None))
            }
        }
    }

    fn prompt_result(&self, reason: &str) -> Value {
        let usage = self.channel.turn;
        let mut result = json!({ "stopReason": reason });
        if usage.is_reported {
            result["usage"] = json!({
                "inputTokens": usage.input, "outputTokens": usage.output, "cachedReadTokens": usage.cached,
                "totalTokens": usage.input + usage.output + usage.cached,
            });
        }
        result
    }
}

/// Returns a protocol error in the form in which a program reports a failure of its provider.
fn provider_error(class: FailureClass, reason: &str, reset_in: Option<Duration>) -> RpcError {
    let code = match class {
        FailureClass::Auth => -32000,
        FailureClass::RateLimit => 429,
        FailureClass::Overloaded => 529,
        _ => -32603,
    };
    let mut data = json!({ "errorKind": class.name() });
    if let Some(reset_in) = reset_in {
        data["retryAfterMs"] = json!(u64::try_from(reset_in.as_millis()).unwrap_or(u64::MAX));
    }
    RpcError {
        code,
        message: reason.to_owned(),
        data,
    }
}

/// The connection of the agent to its ACP client, usually the daemon.
struct AcpChannel<'a> {
    out: &'a mut dyn Write,
    incoming: Receiver<String>,
    /// Messages that arrived while the agent waited for another message, and that are handled
    /// later.
    queued: Vec<RpcMessage>,
    next_id: u64,
    can_ask: bool,
    is_cancelled: bool,
    /// True once the client has closed the agent's input.
    is_disconnected: bool,
    session: SavedSession,
    turn: TurnUsage,
    mode: String,
    /// All output that the running command has printed. It is kept because each update repeats all
    /// of it.
    output: String,
}

impl AcpChannel<'_> {
    /// Writes a message to the client. Ignores errors, because a client that no longer reads also
    /// closes the input, which ends the agent.
    fn write_line(&mut self, line: &str) {
        drop(writeln!(self.out, "{line}").and_then(|()| self.out.flush()));
    }

    fn notify(&mut self, method: &str, params: Value) {
        self.write_line(&DIALECT.notification(method, params));
    }

    fn answer(&mut self, id: &Value, outcome: Result<Value, RpcError>) {
        let line = match outcome {
            Ok(result) => DIALECT.result(id, result),
            Err(fault) => json!({
                "jsonrpc": "2.0", "id": id,
                "error": { "code": fault.code, "message": fault.message, "data": fault.data },
            })
            .to_string(),
        };
        self.write_line(&line);
    }

    fn update(&mut self, update: Value) {
        let id = self.session.id.clone();
        self.notify(
            "session/update",
            json!({ "sessionId": id, "update": update }),
        );
        if self.session.updates.len() < MAX_SAVED_UPDATES {
            self.session.updates.push(update);
        }
    }

    /// Saves the session to its file. Ignores errors, because the only effect of an error is that
    /// the session cannot be loaded again.
    fn save_session(&mut self) {
        if let Err(error) = self.session.save() {
            drop(writeln!(
                io::stderr(),
                "could not save the session, so it cannot be loaded again: {error}"
            ));
        }
    }

    /// Returns the next message of the client, or `None` when the input has ended.
    fn next_message(&mut self) -> Option<RpcMessage> {
        if !self.queued.is_empty() {
            return Some(self.queued.remove(0));
        }
        loop {
            if let Some(message) = parse_message(&self.incoming.recv().ok()?) {
                return Some(message);
            }
        }
    }

    /// Waits until `deadline`, or until the client's answer to request `id` arrives. Returns an
    /// error if the client cancels the turn (the work on one prompt) meanwhile.
    fn wait_for(
        &mut self,
        deadline: Option<Instant>,
        id: Option<u64>,
    ) -> Result<Option<Result<Value, RpcError>>, ScriptStop> {
        loop {
            if self.is_cancelled || self.is_disconnected {
                // Stop waiting for the answer, because after a cancellation the client ignores
                // everything about the request.
                return Err(ScriptStop::Cancelled);
            }
            let line = match deadline {
                Some(deadline) => self
                    .incoming
                    .recv_timeout(deadline.saturating_duration_since(Instant::now())),
                None => self
                    .incoming
                    .recv()
                    .map_err(|_| RecvTimeoutError::Disconnected),
            };
            let message = match line {
                Ok(line) => parse_message(&line),
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => {
                    self.is_disconnected = true;
                    continue;
                }
            };
            match message {
                Some(RpcMessage::Notification { method, .. }) if method == "session/cancel" => {
                    self.is_cancelled = true
                }
                Some(RpcMessage::Answer {
                    id: answer_id,
                    outcome,
                }) if id.is_some() && answer_id.as_u64() == id => {
                    return Ok(Some(outcome));
                }
                Some(request @ RpcMessage::Request { .. }) => self.queued.push(request),
                _ => {}
            }
        }
    }

    /// Sends a request to the client and waits for the answer.
    fn request(&mut self, method: &str, params: Value) -> Result<Value, ScriptStop> {
        let id = self.next_id;
        self.next_id += 1;
        self.write_line(&DIALECT.request(id, method, params));
        match self.wait_for(None, Some(id))? {
            Some(Ok(result)) => Ok(result),
            Some(Err(fault)) => Err(ScriptStop::Failed(format!(
                "The client refused {method}: {}",
                fault.message
            ))),
            None => Err(ScriptStop::Cancelled),
        }
    }
}

impl ClientChannel for AcpChannel<'_> {
    fn report(&mut self, step: usize, kind: &str, content: Value) {
        let text = |name: &str| json!({ "type": "text", "text": content[name] });
        let tool = format!("step-{step}");
        match kind {
            "say" => self.update(json!({ "sessionUpdate": "agent_message_chunk", "content": text("text") })),
            "think" => self.update(json!({ "sessionUpdate": "agent_thought_chunk", "content": text("text") })),
            "plan" => {
                let entries = content["entries"].as_array().into_iter().flatten();
                let entries: Vec<Value> =
                    entries.map(|value| json!({ "content": value, "priority": "medium", "status": "pending" })).collect();
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
                self.notify(
                    "session/update",
                    json!({ "sessionId": self.session.id, "update": {
                        "sessionUpdate": "tool_call_update", "toolCallId": tool, "content": all,
                    }}),
                );
            }
            "ran" => self.update(json!({
                "sessionUpdate": "tool_call_update", "toolCallId": tool,
                "status": if content["failed"] == true { "failed" } else { "completed" },
                "rawOutput": { "exit_code": content["code"].as_i64().unwrap_or(0) },
            })),
            "usage" => {
                let count = |name: &str| content[name].as_u64().unwrap_or(0);
                self.turn.input += count("input");
                self.turn.output += count("output");
                self.turn.cached += count("cached");
                self.turn.is_reported = true;
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
            // The client knows all other events already from a request or its answer.
            _ => {}
        }
    }

    fn ask_person(
        &mut self,
        question: &str,
        choices: &[String],
        default: Option<&str>,
    ) -> Result<String, ScriptStop> {
        if !self.can_ask {
            let why = "The client supports no questions; give the step a `default`.".to_owned();
            return default.map(str::to_owned).ok_or(ScriptStop::Failed(why));
        }
        let mut field = json!({ "type": "string", "title": "Answer" });
        if !choices.is_empty() {
            field["enum"] = json!(choices);
        }
        let schema =
            json!({ "type": "object", "properties": { "answer": field }, "required": ["answer"] });
        let params = json!({
            "mode": "form", "sessionId": self.session.id, "message": question, "requestedSchema": schema,
        });
        let answer = self.request("elicitation/create", params)?;
        match (
            answer["action"].as_str(),
            answer["content"]["answer"].as_str(),
        ) {
            (Some("accept"), Some(text)) => Ok(text.to_owned()),
            (Some("cancel"), _) => Err(ScriptStop::Cancelled),
            _ => Err(ScriptStop::Failed(format!("Nobody answered: {question}"))),
        }
    }

    fn request_permission(&mut self, permission: &PermissionStep) -> Result<bool, ScriptStop> {
        if self.mode == "auto" {
            return Ok(true);
        }
        let (kind, path) = match permission {
            PermissionStep::Short(_) => (None, None),
            PermissionStep::Long { kind, path, .. } => (*kind, path.as_ref()),
        };
        let mut tool = json!({
            "toolCallId": format!("ask-{}", self.next_id), "title": permission.what(), "status": "pending",
            "kind": kind.map_or(json!("execute"), |tool_kind| json!(tool_kind)),
        });
        tool["rawInput"] = match kind {
            None => json!({ "command": permission.what() }),
            Some(ToolKind::Fetch) if permission.what().contains("://") => {
                json!({ "url": permission.what() })
            }
            Some(_) => json!({ "request": permission.what() }),
        };
        if let Some(path) = path {
            tool["locations"] = json!([{ "path": path }]);
        }
        // Use a misleading order and misleading names on purpose, to find clients that choose an
        // option by its position or name instead of by its kind.
        let options = json!([
            { "optionId": "o1", "name": "Yes, never", "kind": "reject_always" },
            { "optionId": "o2", "name": "Always", "kind": "allow_always" },
            { "optionId": "o3", "name": "Yes, but no", "kind": "reject_once" },
            { "optionId": "o4", "name": "No objection", "kind": "allow_once" },
        ]);
        let params = json!({ "sessionId": self.session.id, "toolCall": tool, "options": options });
        let answer = self.request("session/request_permission", params)?;
        match (
            answer["outcome"]["outcome"].as_str(),
            answer["outcome"]["optionId"].as_str(),
        ) {
            (Some("selected"), Some(option)) => Ok(matches!(option, "o2" | "o4")),
            _ => Err(ScriptStop::Cancelled),
        }
    }

    fn print_flood(&mut self, _: usize, bytes: u64) -> Result<(), ScriptStop> {
        let text = "~".repeat(1000);
        let update = json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": text } });
        let line = DIALECT.notification(
            "session/update",
            json!({ "sessionId": self.session.id, "update": update }),
        ) + "\n";
        for nth in 0..bytes.div_ceil(line.len() as u64) {
            self.out
                .write_all(line.as_bytes())
                .map_err(|error| format!("Could not print: {error}."))?;
            if nth % 64 == 0 {
                self.check_cancelled()?;
            }
        }
        self.out
            .flush()
            .map_err(|error| format!("Could not print: {error}.").into())
    }

    fn sleep(&mut self, time: Duration) -> Result<(), ScriptStop> {
        self.wait_for(Some(Instant::now() + time), None).map(|_| ())
    }

    fn check_cancelled(&mut self) -> Result<(), ScriptStop> {
        self.wait_for(Some(Instant::now()), None).map(|_| ())
    }
}
