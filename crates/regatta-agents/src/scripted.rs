//! The scripted agent: it does what its script says, with no model and no key.
//!
//! It is a real program in a real workspace, so that a newcomer sees everything work and every test
//! has an agent that does as it is told. It prints one JSON object per line.

use std::fs;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use serde_json::{Value, json};

use crate::rundir::write_atomic;
use crate::script::{Decision, Permission, RelativePath, Step, parse};

/// The exit code when there is no script that can be followed.
const BAD_SCRIPT: u8 = 2;

/// The longest piece of a command's output that is one line of ours.
const LONGEST_LINE: usize = 8 * 1024;

/// How long a command's output is waited for when the command has ended but someone holds its pipe.
const OUTPUT_PATIENCE: Duration = Duration::from_millis(200);

/// What a step that must ask says where it cannot.
const CANNOT_ASK: &str = "This build's scripted agent cannot ask a person yet: questions and permissions come with the \
     issue that deepens regatta-agents. Give the step a `default`, or leave it out.";

/// Follows the script in `script_file`, or in the file that `REGATTA_SCRIPT_FILE` names, in the
/// current directory.
pub fn main(script_file: Option<PathBuf>, out: &mut dyn Write) -> ExitCode {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let mut agent = match Agent::here(out, variable("REGATTA_RESULT")) {
        Ok(agent) => agent,
        Err(_) => return ExitCode::FAILURE,
    };
    let Some(file) = script_file.or_else(|| variable("REGATTA_SCRIPT_FILE")) else {
        let why = "The scripted agent has no script: give the task one (`script = [{say = \"hello\"}]` in its plan).";
        return agent.end(Err(why.to_owned()), BAD_SCRIPT);
    };
    let script = fs::read_to_string(&file).map_err(|error| format!("Could not read {}: {error}.", file.display()));
    let steps = match script.and_then(|it| parse(&it).map_err(|error| error.to_string())) {
        Ok(steps) => steps,
        Err(why) => return agent.end(Err(why), BAD_SCRIPT),
    };
    let done = steps.iter().try_for_each(|step| agent.follow(step));
    agent.end(done.map(|()| steps.len()), 1)
}

struct Agent<'a> {
    out: &'a mut dyn Write,
    root: PathBuf,
    result: Option<PathBuf>,
    /// The step being followed, from 1.
    step: usize,
    said: Option<String>,
    changed: Vec<String>,
}

impl<'a> Agent<'a> {
    fn here(out: &'a mut dyn Write, result: Option<PathBuf>) -> io::Result<Agent<'a>> {
        let root = std::env::current_dir()?.canonicalize()?;
        Ok(Agent { out, root, result, step: 0, said: None, changed: Vec::new() })
    }

    /// Prints an event; a log that cannot be written is no reason to leave the work half done.
    fn tell(&mut self, kind: &str, mut content: Value) {
        content["step"] = json!(self.step);
        content["kind"] = json!(kind);
        drop(writeln!(self.out, "{content}").and_then(|()| self.out.flush()));
    }

    fn follow(&mut self, step: &Step) -> Result<(), String> {
        self.step += 1;
        match step {
            Step::Say(text) => {
                self.tell("say", json!({ "text": text }));
                self.said = Some(text.clone());
                Ok(())
            }
            Step::Write { path, text } => self.write("write", path, text),
            Step::Append { path, text } => {
                let old = match fs::read_to_string(self.inside(path)?) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(trouble("read", path, &error)),
                    old => old.unwrap_or_default(),
                };
                self.write("append", path, &(old + text))
            }
            Step::Replace { path, from, to } => {
                let old = fs::read_to_string(self.inside(path)?).map_err(|error| trouble("read", path, &error))?;
                if from.is_empty() || !old.contains(from) {
                    return Err(format!("Could not replace in {}: {from:?} is not in it.", path.as_path().display()));
                }
                self.write("replace", path, &old.replacen(from, to, 1))
            }
            Step::Remove(removal) => self.remove(removal.path()),
            Step::Run(command) => self.run(command),
            Step::Ask { question, choices, default } => {
                self.tell("ask", json!({ "question": question, "choices": choices }));
                let answer = default.as_ref().ok_or(CANNOT_ASK)?;
                self.tell("answer", json!({ "text": answer, "by": "the script's default" }));
                Ok(())
            }
            Step::Permission(permission) => self.ask_permission(permission),
            Step::Sleep(pause) => {
                self.tell("sleep", json!({ "seconds": pause.0.as_secs_f64() }));
                std::thread::sleep(pause.0);
                Ok(())
            }
            Step::Usage { input, output, cost } => {
                self.tell("usage", json!({ "input": input, "output": output, "cost": cost }));
                Ok(())
            }
            Step::Flood { bytes } => self.flood(*bytes),
            Step::Hang(true) => {
                self.tell("hang", json!({}));
                loop {
                    std::thread::park();
                }
            }
            Step::Hang(false) => Ok(()),
            Step::Fail(reason) => Err(reason.clone()),
        }
    }

    /// Finds where a path leads and refuses one that a link takes out of the workspace (S6).
    fn inside(&self, path: &RelativePath) -> Result<PathBuf, String> {
        let target = self.root.join(path.as_path());
        let escape = || format!("Refused {}: a link on its way leads out of the workspace.", path.as_path().display());
        // A link at the very end counts too, and so does one that leads nowhere yet.
        let there = target.ancestors().find(|it| it.symlink_metadata().is_ok()).ok_or_else(escape)?;
        let real = there.canonicalize().map_err(|_| escape())?;
        if real.starts_with(&self.root) { Ok(target) } else { Err(escape()) }
    }

    fn write(&mut self, kind: &str, path: &RelativePath, text: &str) -> Result<(), String> {
        let target = self.inside(path)?;
        let write = || -> io::Result<()> {
            target.parent().map_or(Ok(()), fs::create_dir_all)?;
            fs::write(&target, text)
        };
        write().map_err(|error| trouble("write", path, &error))?;
        self.changed(kind, path);
        Ok(())
    }

    fn remove(&mut self, path: &RelativePath) -> Result<(), String> {
        // The link itself goes, not what it leads to, so only the way to it counts.
        let target = self.root.join(path.as_path());
        let parent = target.parent().and_then(|it| it.canonicalize().ok());
        if !parent.is_some_and(|it| it.starts_with(&self.root)) {
            return Err(format!("Refused to remove {}: it is not in the workspace.", path.as_path().display()));
        }
        let is_dir = target.symlink_metadata().is_ok_and(|it| it.is_dir());
        let removed = if is_dir { fs::remove_dir_all(&target) } else { fs::remove_file(&target) };
        removed.map_err(|error| trouble("remove", path, &error))?;
        self.changed("remove", path);
        Ok(())
    }

    fn changed(&mut self, kind: &str, path: &RelativePath) {
        let path = path.as_path().display().to_string();
        self.tell(kind, json!({ "path": path }));
        if !self.changed.contains(&path) {
            self.changed.push(path);
        }
    }

    fn ask_permission(&mut self, permission: &Permission) -> Result<(), String> {
        let (what, default) = match permission {
            Permission::Short(what) => (what, &None),
            Permission::Long { what, default } => (what, default),
        };
        self.tell("permission", json!({ "text": what }));
        match default {
            None => Err(CANNOT_ASK.to_owned()),
            Some(Decision::Allow) => {
                self.tell("answer", json!({ "text": "allow", "by": "the script's default" }));
                Ok(())
            }
            Some(Decision::Deny) => {
                self.tell("answer", json!({ "text": "deny", "by": "the script's default" }));
                Err(format!("Not allowed: {what}."))
            }
        }
    }

    fn run(&mut self, command: &str) -> Result<(), String> {
        self.tell("run", json!({ "text": command }));
        let events = start(command).map_err(|error| format!("Could not run `{command}`: {error}."))?;
        let mut status = None;
        loop {
            let event = match status {
                None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
                // Someone in the background may hold the pipe for ever.
                Some(_) => events.recv_timeout(OUTPUT_PATIENCE),
            };
            match event {
                Ok(Event::Output(text)) => self.tell("output", json!({ "text": text })),
                Ok(Event::Ended(it)) => status = Some(it),
                Err(_) => break,
            }
        }
        match status {
            Some(Ok(status)) if status.success() => Ok(()),
            Some(Ok(status)) => Err(format!("`{command}` failed: {status}.")),
            Some(Err(error)) => Err(format!("`{command}` could not be waited for: {error}.")),
            None => Err(format!("`{command}` vanished.")),
        }
    }

    fn flood(&mut self, bytes: u64) -> Result<(), String> {
        let line = json!({ "step": self.step, "kind": "flood", "text": "~".repeat(1000) }).to_string() + "\n";
        let mut printed = 0;
        while printed < bytes {
            self.out.write_all(line.as_bytes()).map_err(|error| format!("Could not print: {error}."))?;
            printed += line.len() as u64;
        }
        Ok(())
    }

    /// Says how it went, leaves the result where it is looked for, and gives the exit code.
    fn end(mut self, outcome: Result<usize, String>, failure: u8) -> ExitCode {
        let (status, mut code) = if outcome.is_ok() { ("done", 0) } else { ("failed", failure) };
        let detail = match outcome {
            Ok(steps) => self.said.take().unwrap_or_else(|| format!("Followed {steps} steps.")),
            Err(why) => why,
        };
        self.tell(if code == 0 { "done" } else { "fail" }, json!({ "text": detail }));
        if let Some(file) = self.result.take() {
            let result = json!({
                "type": "completion", "issue_id": std::env::var("REGATTA_TASK").ok(), "status": status,
                "detail": detail, "artifacts": self.changed,
            });
            if let Err(error) = write_atomic(&file, result.to_string().as_bytes()) {
                self.tell("fail", json!({ "text": format!("Could not write {}: {error}.", file.display()) }));
                code = code.max(1);
            }
        }
        ExitCode::from(code)
    }
}

fn trouble(doing: &str, path: &RelativePath, error: &io::Error) -> String {
    format!("Could not {doing} {}: {error}.", path.as_path().display())
}

enum Event {
    Output(String),
    Ended(io::Result<ExitStatus>),
}

/// Starts a shell command; its output and its end come as events, so that neither waits for the other.
fn start(command: &str) -> io::Result<Receiver<Event>> {
    let (reader, writer) = io::pipe()?;
    let mut child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .spawn()?;
    let (output, events) = sync_channel(64);
    let end = output.clone();
    std::thread::spawn(move || forward(reader, &output));
    std::thread::spawn(move || drop(end.send(Event::Ended(child.wait()))));
    Ok(events)
}

/// Sends lines while someone listens, and then reads on, so that a command left in the background is
/// not ended by its own output.
fn forward(mut reader: impl Read, output: &SyncSender<Event>) {
    let mut buffer = [0; LONGEST_LINE];
    let mut line = Vec::new();
    let send = |bytes: &[u8]| drop(output.send(Event::Output(String::from_utf8_lossy(bytes).into_owned())));
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
