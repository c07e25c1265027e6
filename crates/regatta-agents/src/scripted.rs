//! The scripted agent: the built-in agent that follows a list of steps, without a model and without
//! an API key.
//!
//! The scripted agent is a real program in a real workspace, so a newcomer can see everything work,
//! and every test has a predictable agent. This file performs the steps. A [`ClientChannel`]
//! connects the agent with the daemon: `jsonl` prints one JSON object per line and reads nothing,
//! and `acp` uses the Agent Client Protocol, so the agent can ask questions and be cancelled.

mod acp;
mod jsonl;
mod tools; // calls of Regatta's tools

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use regatta_core::agent_protocol::FailureClass;
use serde_json::{Value, json};

use crate::run_dir::write_atomic;
use crate::script::{FailStep, PermissionStep, RelativePath, ScriptStep, parse_script};
use tools::ToolClient;

pub(crate) use acp::SESSIONS_HOME_VARIABLE;
pub use acp::main as acp;

/// The exit code of the scripted agent if it has no valid script.
const BAD_SCRIPT_EXIT_CODE: u8 = 2;

/// The exit code with which a `crash` step ends the scripted agent.
const CRASH_EXIT_CODE: i32 = 101;

/// The length in bytes at which a line of a command's output is cut.
const MAX_LINE_BYTES: usize = 8 * 1024;

/// The time for which further output is read after a command has ended. The time is limited because
/// a background process of the command may keep the pipe open.
const OUTPUT_TIMEOUT: Duration = Duration::from_millis(200);

/// The interval at which the agent checks whether a running command has ended and whether messages
/// have arrived.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Performs the script in `script_file`, or in the file that the variable `REGATTA_SCRIPT_FILE`
/// names, in the current directory.
pub fn main(script_file: Option<PathBuf>, out: &mut dyn Write) -> ExitCode {
    jsonl::main(script_file, out)
}

/// The reason why a script was not performed to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ScriptStop {
    Failed(String),
    /// A failure that a step simulates, as an agent's provider would report it.
    ProviderFailure {
        class: FailureClass,
        reason: String,
        reset_in: Option<Duration>,
    },
    /// The client, usually the daemon, cancelled the turn (the work on one prompt).
    Cancelled,
}

impl ScriptStop {
    fn reason(&self) -> &str {
        match self {
            ScriptStop::Failed(reason) | ScriptStop::ProviderFailure { reason, .. } => reason,
            ScriptStop::Cancelled => "The script was cancelled.",
        }
    }
}

/// Turns an error message into a failure of the script.
impl From<String> for ScriptStop {
    fn from(why: String) -> ScriptStop {
        ScriptStop::Failed(why)
    }
}

/// The connection of the scripted agent with its client, usually the daemon.
trait ClientChannel {
    /// Reports to the client what a step did. `kind` and `content` describe the event.
    fn report(&mut self, step: usize, kind: &str, content: Value);
    /// Asks a person through the client. Returns `default` if the client cannot ask.
    fn ask_person(
        &mut self,
        question: &str,
        choices: &[String],
        default: Option<&str>,
    ) -> Result<String, ScriptStop>;
    /// Asks a person for a permission through the client. Returns whether the action is allowed.
    fn request_permission(&mut self, permission: &PermissionStep) -> Result<bool, ScriptStop>;
    /// Performs a `flood` step, which tests output limits: prints at least `bytes` bytes of text.
    fn print_flood(&mut self, step: usize, bytes: u64) -> Result<(), ScriptStop>;
    /// Waits for the given time. Returns an error at once if the client cancels the turn (the work
    /// on one prompt).
    fn sleep(&mut self, time: Duration) -> Result<(), ScriptStop>;
    /// Returns an error if the client has cancelled the turn (the work on one prompt).
    fn check_cancelled(&mut self) -> Result<(), ScriptStop>;
}

/// Reads the scripted agent's script file and parses its steps.
fn load_steps(script_file: Option<PathBuf>) -> Result<Vec<ScriptStep>, String> {
    let named_file = || std::env::var_os(regatta_core::agent::SCRIPT_FILE).map(PathBuf::from);
    let Some(file) = script_file.or_else(named_file) else {
        let reason = "The scripted agent has no script: give the task one (`script = [{say \
            = \"hello\"}]` in its plan).";
        return Err(reason.to_owned());
    };
    let script = fs::read_to_string(&file)
        .map_err(|error| format!("Could not read {}: {error}.", file.display()))?;
    parse_script(&script).map_err(|error| error.to_string())
}

/// Performs the steps of a script in the workspace `root`.
struct ScriptRunner {
    root: PathBuf,
    /// The number of the current step; the first step is 1.
    step: usize,
    last_message: Option<String>,
    changed_files: Vec<String>,
    tools: Option<ToolClient>,
}

impl ScriptRunner {
    fn new(root: &Path) -> io::Result<ScriptRunner> {
        Ok(ScriptRunner {
            root: root.canonicalize()?,
            step: 0,
            last_message: None,
            changed_files: Vec::new(),
            tools: ToolClient::from_environment(),
        })
    }

    fn run_step(
        &mut self,
        step: &ScriptStep,
        channel: &mut dyn ClientChannel,
    ) -> Result<(), ScriptStop> {
        self.step += 1;
        channel.check_cancelled()?;
        match step {
            ScriptStep::Say(text) => {
                channel.report(self.step, "say", json!({ "text": text }));
                self.last_message = Some(text.clone());
            }
            ScriptStep::Think(text) => channel.report(self.step, "think", json!({ "text": text })),
            ScriptStep::Plan(entries) => {
                channel.report(self.step, "plan", json!({ "entries": entries }))
            }
            ScriptStep::Tool { title, kind } => {
                channel.report(self.step, "tool", json!({ "title": title, "tool": kind }))
            }
            ScriptStep::Call { tool, input, fails } => {
                self.call_tool(tool, input, *fails, channel)?
            }
            ScriptStep::Write { path, text } => self.write_file("write", path, text, channel)?,
            ScriptStep::Append { path, text } => {
                let old = match fs::read_to_string(self.path_in_workspace(path)?) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(path_error("append to", path, &error).into());
                    }
                    old => old.unwrap_or_default(),
                };
                self.write_file("append", path, &(old + text), channel)?;
            }
            ScriptStep::Replace { path, from, to } => {
                let old = fs::read_to_string(self.path_in_workspace(path)?)
                    .map_err(|error| path_error("replace text in", path, &error))?;
                if from.is_empty() || !old.contains(from) {
                    let path = path.as_path().display();
                    return Err(format!(
                        "Could not replace text in {path}: the file does not contain {from:?}."
                    )
                    .into());
                }
                self.write_file("replace", path, &old.replacen(from, to, 1), channel)?;
            }
            ScriptStep::Remove(removal) => self.remove_path(removal.path(), channel)?,
            ScriptStep::Run(command) => self.run_command(command, channel)?,
            ScriptStep::Ask {
                question,
                choices,
                default,
            } => {
                channel.report(
                    self.step,
                    "ask",
                    json!({ "question": question, "choices": choices }),
                );
                let answer = channel.ask_person(question, choices, default.as_deref())?;
                self.report_default_answer(&answer, channel);
            }
            ScriptStep::Permission(permission) => {
                channel.report(
                    self.step,
                    "permission",
                    json!({ "text": permission.what() }),
                );
                let allowed = channel.request_permission(permission)?;
                self.report_default_answer(if allowed { "allow" } else { "deny" }, channel);
                if !allowed {
                    return Err(format!("Not allowed: {}.", permission.what()).into());
                }
            }
            ScriptStep::Sleep(pause) => {
                channel.report(
                    self.step,
                    "sleep",
                    json!({ "seconds": pause.0.as_secs_f64() }),
                );
                channel.sleep(pause.0)?;
            }
            ScriptStep::Usage {
                input,
                output,
                cached,
                cost,
                used,
                size,
            } => {
                let mut content = json!({ "input": input, "output": output, "cost": cost });
                if *cached > 0 {
                    content["cached"] = json!(cached);
                }
                if let (Some(used), Some(size)) = (used, size) {
                    content["context"] = json!({ "used": used, "size": size });
                }
                channel.report(self.step, "usage", content);
            }
            ScriptStep::Flood { bytes } => channel.print_flood(self.step, *bytes)?,
            ScriptStep::Hang(true) => {
                channel.report(self.step, "hang", json!({}));
                loop {
                    std::thread::park();
                }
            }
            ScriptStep::Hang(false) | ScriptStep::EndTurn(_) | ScriptStep::Crash(false) => {}
            ScriptStep::Crash(true) => std::process::exit(CRASH_EXIT_CODE),
            ScriptStep::RateLimit { reset_in } => {
                let reset_in = reset_in.map(|sleep_duration| sleep_duration.0);
                let when = reset_in.map_or_else(String::new, |duration| {
                    format!(" Try again in {} ms.", duration.as_millis())
                });
                let reason = format!("429 Too Many Requests: the limit is used up.{when}");
                return Err(ScriptStop::ProviderFailure {
                    class: FailureClass::RateLimit,
                    reason,
                    reset_in,
                });
            }
            ScriptStep::Fail(FailStep::Short(reason)) => return Err(reason.clone().into()),
            ScriptStep::Fail(FailStep::Long {
                class,
                reason,
                reset_in,
            }) => {
                let reset_in = reset_in.map(|sleep_duration| sleep_duration.0);
                return Err(ScriptStop::ProviderFailure {
                    class: *class,
                    reason: reason.clone(),
                    reset_in,
                });
            }
        }
        Ok(())
    }

    /// Calls one of Regatta's tools and reports the result. `fails` is true if the call is expected
    /// to fail.
    fn call_tool(
        &mut self,
        tool: &str,
        input: &Value,
        fails: bool,
        channel: &mut dyn ClientChannel,
    ) -> Result<(), ScriptStop> {
        channel.report(self.step, "tool", json!({ "title": tool, "tool": "other" }));
        let Some(tools) = &self.tools else {
            return Err(format!("The agent has no tools, so it cannot call {tool}.").into());
        };
        let input = if input.is_null() { &json!({}) } else { input };
        match (tools.call(tool, input), fails) {
            (Ok(text), false) | (Err(text), true) => {
                channel.report(self.step, "say", json!({ "text": text }))
            }
            (Ok(text), true) => {
                return Err(
                    format!("The tool {tool} should have failed, but answered: {text}").into(),
                );
            }
            (Err(why), false) => return Err(why.into()),
        }
        Ok(())
    }

    fn report_default_answer(&self, answer: &str, channel: &mut dyn ClientChannel) {
        // Report the answer only if it is the default. If a person answered, the client knows the
        // answer already.
        channel.report(
            self.step,
            "answer",
            json!({ "text": answer, "by": "the script's default" }),
        );
    }

    /// Returns the absolute path of a file in the workspace. Refuses a path that a symbolic link
    /// leads out of the workspace (S6).
    fn path_in_workspace(&self, path: &RelativePath) -> Result<PathBuf, String> {
        let target = self.root.join(path.as_path());
        let refusal = || {
            format!(
                "Refused {}: a link in the path leads out of the workspace.",
                path.as_path().display()
            )
        };
        // Find the nearest existing parent without following a link at the end, so that a link
        // counts as existing even if its target does not exist.
        let existing = target
            .ancestors()
            .find(|path| path.symlink_metadata().is_ok())
            .ok_or_else(refusal)?;
        let real = existing.canonicalize().map_err(|_| refusal())?;
        if real.starts_with(&self.root) {
            Ok(target)
        } else {
            Err(refusal())
        }
    }

    fn write_file(
        &mut self,
        kind: &str,
        path: &RelativePath,
        text: &str,
        channel: &mut dyn ClientChannel,
    ) -> Result<(), String> {
        let target = self.path_in_workspace(path)?;
        let write = || -> io::Result<()> {
            target.parent().map_or(Ok(()), fs::create_dir_all)?;
            fs::write(&target, text)
        };
        write().map_err(|error| path_error("write the file", path, &error))?;
        self.on_path_changed(kind, path, channel);
        Ok(())
    }

    fn remove_path(
        &mut self,
        path: &RelativePath,
        channel: &mut dyn ClientChannel,
    ) -> Result<(), String> {
        // Check only the parent directory, because a link itself is removed and not its target.
        let target = self.root.join(path.as_path());
        let parent = target.parent().and_then(|path| path.canonicalize().ok());
        if !parent.is_some_and(|path| path.starts_with(&self.root)) {
            return Err(format!(
                "Refused to remove {}: it is not in the workspace.",
                path.as_path().display()
            ));
        }
        let is_dir = target
            .symlink_metadata()
            .is_ok_and(|metadata| metadata.is_dir());
        let removed = if is_dir {
            fs::remove_dir_all(&target)
        } else {
            fs::remove_file(&target)
        };
        removed.map_err(|error| path_error("remove", path, &error))?;
        self.on_path_changed("remove", path, channel);
        Ok(())
    }

    fn on_path_changed(
        &mut self,
        kind: &str,
        path: &RelativePath,
        channel: &mut dyn ClientChannel,
    ) {
        let path = path.as_path().display().to_string();
        channel.report(self.step, kind, json!({ "path": path }));
        if !self.changed_files.contains(&path) {
            self.changed_files.push(path);
        }
    }

    fn run_command(
        &mut self,
        command: &str,
        channel: &mut dyn ClientChannel,
    ) -> Result<(), ScriptStop> {
        channel.report(self.step, "run", json!({ "text": command }));
        let (mut child, output) = start_command(command, &self.root)
            .map_err(|error| format!("Could not run `{command}`: {error}."))?;
        let mut ended: Option<(Instant, io::Result<std::process::ExitStatus>)> = None;
        loop {
            match output.recv_timeout(POLL_INTERVAL) {
                Ok(text) => channel.report(self.step, "output", json!({ "text": text })),
                Err(RecvTimeoutError::Disconnected) if ended.is_some() => break,
                // Stop reading, because a background process may keep the pipe open forever.
                Err(_)
                    if ended
                        .as_ref()
                        .is_some_and(|ended| ended.0.elapsed() >= OUTPUT_TIMEOUT) =>
                {
                    break;
                }
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(POLL_INTERVAL),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if ended.is_none() {
                ended = child
                    .try_wait()
                    .transpose()
                    .map(|status| (Instant::now(), status));
            }
            if let (None, Err(stop)) = (&ended, channel.check_cancelled()) {
                // End this child and collect its exit status. The supervisor process ends the
                // processes that the child left behind.
                drop(child.kill().and_then(|()| child.wait()));
                return Err(stop);
            }
        }
        match ended {
            Some((_, Ok(status))) if status.success() => {
                channel.report(self.step, "ran", json!({}));
                Ok(())
            }
            Some((_, Ok(status))) => {
                channel.report(
                    self.step,
                    "ran",
                    json!({ "failed": true, "code": status.code() }),
                );
                Err(format!("`{command}` failed: {status}.").into())
            }
            Some((_, Err(error))) => {
                Err(format!("Waiting for the end of `{command}` failed: {error}.").into())
            }
            None => Err(format!("`{command}` ended without an exit status.").into()),
        }
    }

    /// Writes the attempt's result file, which tells the daemon whether the work is done.
    fn write_result(&self, done: bool, detail: &str) -> Result<(), String> {
        let Some(file) = std::env::var_os("REGATTA_RESULT").map(PathBuf::from) else {
            return Ok(());
        };
        // Keep a result file that a step of the script has written, and replace only a result that
        // this function has written before.
        let other_result = fs::read(&file)
            .ok()
            .and_then(|bytes| serde_json::from_slice::<serde_json::Value>(&bytes).ok());
        if done && other_result.is_some_and(|other| other.get("scripted").is_none()) {
            return Ok(());
        }
        let result = json!({
            "scripted": true, "type": "completion", "issue_id": std::env::var("REGATTA_TASK").ok(),
            "status": if done { "done" } else { "failed" }, "detail": detail, "artifacts": self.changed_files,
        });
        write_atomic(&file, result.to_string().as_bytes())
            .map_err(|error| format!("Could not write {}: {error}.", file.display()))
    }
}

fn path_error(doing: &str, path: &RelativePath, error: &io::Error) -> String {
    format!("Could not {doing} {}: {error}.", path.as_path().display())
}

/// Starts a shell command. The command's output comes through a channel, so that reading the output
/// and waiting for the exit do not block each other.
fn start_command(command: &str, dir: &Path) -> io::Result<(Child, Receiver<String>)> {
    let (reader, writer) = io::pipe()?;
    let child = Command::new("sh")
        .args(["-c", command])
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .spawn()?;
    let (sender, output) = sync_channel(64);
    std::thread::spawn(move || forward_lines(reader, &sender));
    Ok((child, output))
}

/// Sends each line that the command prints to the channel `output`. Continues to read when nobody
/// receives the lines any more, so that a command in the background is not ended by a closed pipe.
fn forward_lines(mut reader: impl Read, output: &SyncSender<String>) {
    let mut buffer = [0; MAX_LINE_BYTES];
    let mut line = Vec::new();
    let send = |bytes: &[u8]| drop(output.send(String::from_utf8_lossy(bytes).into_owned()));
    while let Ok(length @ 1..) = reader.read(&mut buffer) {
        for piece in buffer[..length].split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(piece);
            if line.ends_with(b"\n") || line.len() >= MAX_LINE_BYTES {
                send(line.strip_suffix(b"\n").unwrap_or(&line));
                line.clear();
            }
        }
    }
    if !line.is_empty() {
        send(&line);
    }
}
