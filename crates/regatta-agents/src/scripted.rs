//! The scripted agent: it follows a script, without a model and without a key.
//!
//! It is a real program in a real workspace, so a newcomer can see everything work and every test
//! has a predictable agent. This file performs the steps. A [`Voice`] handles the communication:
//! `plain` prints one JSON object per line and reads nothing, and `acp` uses the Agent Client
//! Protocol, so the agent can ask questions and be cancelled.

mod acp;
mod plain;
mod tools; // calls of Regatta's tools

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use regatta_core::session::Class;
use serde_json::{Value, json};

use crate::rundir::write_atomic;
use crate::script::{Failure, Permission, RelativePath, Step, parse};
use tools::Tools;

pub(crate) use acp::SESSIONS_HOME;
pub use acp::main as acp;

/// The exit code if there is no valid script.
const BAD_SCRIPT: u8 = 2;

/// The exit code of a `crash` step.
const CRASH: i32 = 101;

/// The maximum length in bytes of one line of a command's output.
const LONGEST_LINE: usize = 8 * 1024;

/// The time for which output is awaited after a command has ended, because a background process may
/// hold the pipe.
const OUTPUT_PATIENCE: Duration = Duration::from_millis(200);

/// The interval at which a running command and incoming messages are checked.
const ROUND: Duration = Duration::from_millis(5);

/// Follows the script in `script_file`, or in the file that `REGATTA_SCRIPT_FILE` names, in the
/// current directory.
pub fn main(script_file: Option<PathBuf>, out: &mut dyn Write) -> ExitCode {
    plain::main(script_file, out)
}

/// The reason why a script was not followed to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Halt {
    Failed(String),
    /// A failure as a provider would report it.
    Trouble {
        class: Class,
        reason: String,
        reset_in: Option<Duration>,
    },
    /// The script was cancelled.
    Cancelled,
}

impl Halt {
    fn reason(&self) -> &str {
        match self {
            Halt::Failed(reason) | Halt::Trouble { reason, .. } => reason,
            Halt::Cancelled => "The script was cancelled.",
        }
    }
}

/// Turns an error message about a file into a failure.
impl From<String> for Halt {
    fn from(why: String) -> Halt {
        Halt::Failed(why)
    }
}

/// The communication of the agent with its client.
trait Voice {
    /// Reports an event of a step.
    fn tell(&mut self, step: usize, kind: &str, content: Value);
    /// Asks a person.
    fn ask(&mut self, question: &str, choices: &[String], default: Option<&str>) -> Result<String, Halt>;
    /// Asks a person for permission.
    fn permit(&mut self, permission: &Permission) -> Result<bool, Halt>;
    /// Prints a large amount of text.
    fn flood(&mut self, step: usize, bytes: u64) -> Result<(), Halt>;
    /// Waits, unless the script is cancelled.
    fn pause(&mut self, time: Duration) -> Result<(), Halt>;
    /// Returns an error if the script was cancelled.
    fn check(&mut self) -> Result<(), Halt>;
}

/// Reads and parses the script.
fn steps(script_file: Option<PathBuf>) -> Result<Vec<Step>, String> {
    let named = || std::env::var_os(regatta_core::agent::SCRIPT_FILE).map(PathBuf::from);
    let Some(file) = script_file.or_else(named) else {
        let why = "The scripted agent has no script: give the task one (`script = [{say = \"hello\"}]` in its plan).";
        return Err(why.to_owned());
    };
    let script = fs::read_to_string(&file).map_err(|error| format!("Could not read {}: {error}.", file.display()))?;
    parse(&script).map_err(|error| error.to_string())
}

/// The part of the agent that performs the steps.
struct Agent {
    root: PathBuf,
    /// The current step, from 1.
    step: usize,
    said: Option<String>,
    changed: Vec<String>,
    tools: Option<Tools>,
}

impl Agent {
    fn new(root: &Path) -> io::Result<Agent> {
        Ok(Agent {
            root: root.canonicalize()?,
            step: 0,
            said: None,
            changed: Vec::new(),
            tools: Tools::of_environment(),
        })
    }

    fn follow(&mut self, step: &Step, voice: &mut dyn Voice) -> Result<(), Halt> {
        self.step += 1;
        voice.check()?;
        match step {
            Step::Say(text) => {
                voice.tell(self.step, "say", json!({ "text": text }));
                self.said = Some(text.clone());
            }
            Step::Think(text) => voice.tell(self.step, "think", json!({ "text": text })),
            Step::Plan(entries) => voice.tell(self.step, "plan", json!({ "entries": entries })),
            Step::Tool { title, kind } => voice.tell(self.step, "tool", json!({ "title": title, "tool": kind })),
            Step::Call { tool, input, fails } => self.call(tool, input, *fails, voice)?,
            Step::Write { path, text } => self.write("write", path, text, voice)?,
            Step::Append { path, text } => {
                let old = match fs::read_to_string(self.inside(path)?) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(trouble("read", path, &error).into());
                    }
                    old => old.unwrap_or_default(),
                };
                self.write("append", path, &(old + text), voice)?;
            }
            Step::Replace { path, from, to } => {
                let old = fs::read_to_string(self.inside(path)?).map_err(|error| trouble("read", path, &error))?;
                if from.is_empty() || !old.contains(from) {
                    let path = path.as_path().display();
                    return Err(format!("Could not replace in {path}: {from:?} is not in it.").into());
                }
                self.write("replace", path, &old.replacen(from, to, 1), voice)?;
            }
            Step::Remove(removal) => self.remove(removal.path(), voice)?,
            Step::Run(command) => self.run(command, voice)?,
            Step::Ask { question, choices, default } => {
                voice.tell(self.step, "ask", json!({ "question": question, "choices": choices }));
                let answer = voice.ask(question, choices, default.as_deref())?;
                self.answered(&answer, voice);
            }
            Step::Permission(permission) => {
                voice.tell(self.step, "permission", json!({ "text": permission.what() }));
                let allowed = voice.permit(permission)?;
                self.answered(if allowed { "allow" } else { "deny" }, voice);
                if !allowed {
                    return Err(format!("Not allowed: {}.", permission.what()).into());
                }
            }
            Step::Sleep(pause) => {
                voice.tell(self.step, "sleep", json!({ "seconds": pause.0.as_secs_f64() }));
                voice.pause(pause.0)?;
            }
            Step::Usage { input, output, cached, cost, used, size } => {
                let mut content = json!({ "input": input, "output": output, "cost": cost });
                if *cached > 0 {
                    content["cached"] = json!(cached);
                }
                if let (Some(used), Some(size)) = (used, size) {
                    content["context"] = json!({ "used": used, "size": size });
                }
                voice.tell(self.step, "usage", content);
            }
            Step::Flood { bytes } => voice.flood(self.step, *bytes)?,
            Step::Hang(true) => {
                voice.tell(self.step, "hang", json!({}));
                loop {
                    std::thread::park();
                }
            }
            Step::Hang(false) | Step::EndTurn(_) | Step::Crash(false) => {}
            Step::Crash(true) => std::process::exit(CRASH),
            Step::RateLimit { reset_in } => {
                let reset_in = reset_in.map(|it| it.0);
                let when = reset_in.map_or_else(String::new, |it| format!(" Try again in {} ms.", it.as_millis()));
                let reason = format!("429 Too Many Requests: the limit is used up.{when}");
                return Err(Halt::Trouble { class: Class::RateLimit, reason, reset_in });
            }
            Step::Fail(Failure::Short(reason)) => return Err(reason.clone().into()),
            Step::Fail(Failure::Long { class, reason, reset_in }) => {
                let reset_in = reset_in.map(|it| it.0);
                return Err(Halt::Trouble { class: *class, reason: reason.clone(), reset_in });
            }
        }
        Ok(())
    }

    /// Calls one of Regatta's tools and prints the result.
    fn call(&mut self, tool: &str, input: &Value, fails: bool, voice: &mut dyn Voice) -> Result<(), Halt> {
        voice.tell(self.step, "tool", json!({ "title": tool, "tool": "other" }));
        let Some(tools) = &self.tools else {
            return Err(format!("The agent has no tools, so it cannot call {tool}.").into());
        };
        let input = if input.is_null() { &json!({}) } else { input };
        match (tools.call(tool, input), fails) {
            (Ok(text), false) | (Err(text), true) => voice.tell(self.step, "say", json!({ "text": text })),
            (Ok(text), true) => return Err(format!("{tool} should have failed, but it answered: {text}").into()),
            (Err(why), false) => return Err(why.into()),
        }
        Ok(())
    }

    fn answered(&self, answer: &str, voice: &mut dyn Voice) {
        // If a person answered, the client knows the answer already and this event is not printed.
        voice.tell(self.step, "answer", json!({ "text": answer, "by": "the script's default" }));
    }

    /// Returns the path in the workspace. Refuses a path that a link leads out of the workspace
    /// (S6).
    fn inside(&self, path: &RelativePath) -> Result<PathBuf, String> {
        let target = self.root.join(path.as_path());
        let escape = || format!("Refused {}: a link in the path leads out of the workspace.", path.as_path().display());
        // A link as the last component counts too, and so does a dangling link.
        let there = target.ancestors().find(|it| it.symlink_metadata().is_ok()).ok_or_else(escape)?;
        let real = there.canonicalize().map_err(|_| escape())?;
        if real.starts_with(&self.root) { Ok(target) } else { Err(escape()) }
    }

    fn write(&mut self, kind: &str, path: &RelativePath, text: &str, voice: &mut dyn Voice) -> Result<(), String> {
        let target = self.inside(path)?;
        let write = || -> io::Result<()> {
            target.parent().map_or(Ok(()), fs::create_dir_all)?;
            fs::write(&target, text)
        };
        write().map_err(|error| trouble("write", path, &error))?;
        self.changed(kind, path, voice);
        Ok(())
    }

    fn remove(&mut self, path: &RelativePath, voice: &mut dyn Voice) -> Result<(), String> {
        // The link itself is removed and not its target, so only the parent directory counts.
        let target = self.root.join(path.as_path());
        let parent = target.parent().and_then(|it| it.canonicalize().ok());
        if !parent.is_some_and(|it| it.starts_with(&self.root)) {
            return Err(format!("Refused to remove {}: it is not in the workspace.", path.as_path().display()));
        }
        let is_dir = target.symlink_metadata().is_ok_and(|it| it.is_dir());
        let removed = if is_dir { fs::remove_dir_all(&target) } else { fs::remove_file(&target) };
        removed.map_err(|error| trouble("remove", path, &error))?;
        self.changed("remove", path, voice);
        Ok(())
    }

    fn changed(&mut self, kind: &str, path: &RelativePath, voice: &mut dyn Voice) {
        let path = path.as_path().display().to_string();
        voice.tell(self.step, kind, json!({ "path": path }));
        if !self.changed.contains(&path) {
            self.changed.push(path);
        }
    }

    fn run(&mut self, command: &str, voice: &mut dyn Voice) -> Result<(), Halt> {
        voice.tell(self.step, "run", json!({ "text": command }));
        let (mut child, output) =
            start(command, &self.root).map_err(|error| format!("Could not run `{command}`: {error}."))?;
        let mut ended: Option<(Instant, io::Result<std::process::ExitStatus>)> = None;
        loop {
            match output.recv_timeout(ROUND) {
                Ok(text) => voice.tell(self.step, "output", json!({ "text": text })),
                Err(RecvTimeoutError::Disconnected) if ended.is_some() => break,
                // A background process may hold the pipe forever.
                Err(_) if ended.as_ref().is_some_and(|it| it.0.elapsed() >= OUTPUT_PATIENCE) => break,
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(ROUND),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if ended.is_none() {
                ended = child.try_wait().transpose().map(|it| (Instant::now(), it));
            }
            if let (None, Err(halt)) = (&ended, voice.check()) {
                // The agent ends and reaps its own child. The shim ends the processes that the
                // child left behind.
                drop(child.kill().and_then(|()| child.wait()));
                return Err(halt);
            }
        }
        match ended {
            Some((_, Ok(status))) if status.success() => {
                voice.tell(self.step, "ran", json!({}));
                Ok(())
            }
            Some((_, Ok(status))) => Err(format!("`{command}` failed: {status}.").into()),
            Some((_, Err(error))) => Err(format!("`{command}` could not be waited for: {error}.").into()),
            None => Err(format!("`{command}` ended without an exit status.").into()),
        }
    }

    /// Writes the result file.
    fn leave_result(&self, done: bool, detail: &str) -> Result<(), String> {
        let Some(file) = std::env::var_os("REGATTA_RESULT").map(PathBuf::from) else { return Ok(()) };
        // A result that a step of the script has written stays; only the agent's own result is
        // replaced.
        let others = fs::read(&file).ok().and_then(|it| serde_json::from_slice::<serde_json::Value>(&it).ok());
        if done && others.is_some_and(|it| it.get("scripted").is_none()) {
            return Ok(());
        }
        let result = json!({
            "scripted": true, "type": "completion", "issue_id": std::env::var("REGATTA_TASK").ok(),
            "status": if done { "done" } else { "failed" }, "detail": detail, "artifacts": self.changed,
        });
        write_atomic(&file, result.to_string().as_bytes())
            .map_err(|error| format!("Could not write {}: {error}.", file.display()))
    }
}

fn trouble(doing: &str, path: &RelativePath, error: &io::Error) -> String {
    format!("Could not {doing} {}: {error}.", path.as_path().display())
}

/// Starts a shell command. Its output comes through a channel, so that the output and the exit do
/// not wait for each other.
fn start(command: &str, dir: &Path) -> io::Result<(Child, Receiver<String>)> {
    let (reader, writer) = io::pipe()?;
    let child = Command::new("sh")
        .args(["-c", command])
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .spawn()?;
    let (sender, output) = sync_channel(64);
    std::thread::spawn(move || forward(reader, &sender));
    Ok((child, output))
}

/// Sends the lines of the output. It keeps reading when the receiver is gone, so that a command in
/// the background is not ended by its own output.
fn forward(mut reader: impl Read, output: &SyncSender<String>) {
    let mut buffer = [0; LONGEST_LINE];
    let mut line = Vec::new();
    let send = |bytes: &[u8]| drop(output.send(String::from_utf8_lossy(bytes).into_owned()));
    while let Ok(length @ 1..) = reader.read(&mut buffer) {
        for piece in buffer[..length].split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(piece);
            if line.ends_with(b"\n") || line.len() >= LONGEST_LINE {
                send(line.strip_suffix(b"\n").unwrap_or(&line));
                line.clear();
            }
        }
    }
    if !line.is_empty() {
        send(&line);
    }
}
