//! The plain communication of the scripted agent: it prints one JSON object per line and reads
//! nothing.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Agent, BAD_SCRIPT, Halt, Voice, steps};
use crate::script::{Decision, Permission};

/// The error of a step that needs a person but has no protocol to ask one.
const CANNOT_ASK: &str = "The scripted agent cannot ask a person without a protocol: give the step a \
     `default`, or let it speak ACP.";

pub(super) fn main(script_file: Option<PathBuf>, out: &mut dyn Write) -> ExitCode {
    let mut voice = Plain { out };
    let Ok(mut agent) = std::env::current_dir().and_then(|it| Agent::new(&it)) else { return ExitCode::FAILURE };
    let steps = match steps(script_file) {
        Ok(steps) => steps,
        Err(why) => return end(&mut voice, agent, Err(why), BAD_SCRIPT),
    };
    let done = steps.iter().try_for_each(|step| agent.follow(step, &mut voice));
    let done = done.map(|()| steps.len()).map_err(|halt| halt.reason().to_owned());
    end(&mut voice, agent, done, 1)
}

/// Prints the outcome, writes the result file and returns the exit code.
fn end(voice: &mut Plain<'_>, mut agent: Agent, outcome: Result<usize, String>, failure: u8) -> ExitCode {
    let mut code = if outcome.is_ok() { 0 } else { failure };
    let detail = match outcome {
        Ok(steps) => agent.said.take().unwrap_or_else(|| format!("Followed {steps} steps.")),
        Err(why) => why,
    };
    voice.tell(agent.step, if code == 0 { "done" } else { "fail" }, json!({ "text": detail }));
    if let Err(why) = agent.leave_result(code == 0, &detail) {
        voice.tell(agent.step, "fail", json!({ "text": why }));
        code = code.max(1);
    }
    ExitCode::from(code)
}

struct Plain<'a> {
    out: &'a mut dyn Write,
}

impl Voice for Plain<'_> {
    /// Prints an event. A failed write is ignored, because the work should still be completed.
    fn tell(&mut self, step: usize, kind: &str, mut content: Value) {
        if kind == "ran" {
            return;
        }
        content["step"] = json!(step);
        content["kind"] = json!(kind);
        drop(writeln!(self.out, "{content}").and_then(|()| self.out.flush()));
    }

    fn ask(&mut self, _: &str, _: &[String], default: Option<&str>) -> Result<String, Halt> {
        default.map(str::to_owned).ok_or_else(|| CANNOT_ASK.to_owned().into())
    }

    fn permit(&mut self, permission: &Permission) -> Result<bool, Halt> {
        match permission {
            Permission::Long { default: Some(default), .. } => Ok(*default == Decision::Allow),
            _ => Err(CANNOT_ASK.to_owned().into()),
        }
    }

    fn flood(&mut self, step: usize, bytes: u64) -> Result<(), Halt> {
        let line = json!({ "step": step, "kind": "flood", "text": "~".repeat(1000) }).to_string() + "\n";
        let mut printed = 0;
        while printed < bytes {
            self.out.write_all(line.as_bytes()).map_err(|error| format!("Could not print: {error}."))?;
            printed += line.len() as u64;
        }
        Ok(())
    }

    fn pause(&mut self, time: Duration) -> Result<(), Halt> {
        std::thread::sleep(time);
        Ok(())
    }

    fn check(&mut self) -> Result<(), Halt> {
        Ok(())
    }
}
