//! The scripted agent without a protocol: it prints one JSON object per line and reads nothing.

use regatta_core::plural;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};

use super::{BAD_SCRIPT_EXIT_CODE, ClientChannel, ScriptRunner, ScriptStop, load_steps};
use crate::script::{PermissionDefault, PermissionStep};

/// The error of a step that has to ask a person when the agent runs without a protocol.
const CANNOT_ASK: &str = "The scripted agent cannot ask a person without a protocol: give the step \
     a `default`, or let it speak ACP.";

pub(super) fn main(script_file: Option<PathBuf>, out: &mut dyn Write) -> ExitCode {
    let mut channel = JsonLinesChannel { out };
    let Ok(mut runner) = std::env::current_dir().and_then(|path| ScriptRunner::new(&path)) else {
        return ExitCode::FAILURE;
    };
    let steps = match load_steps(script_file) {
        Ok(steps) => steps,
        Err(why) => return finish(&mut channel, runner, Err(why), BAD_SCRIPT_EXIT_CODE),
    };
    let outcome = steps
        .iter()
        .try_for_each(|step| runner.run_step(step, &mut channel));
    let outcome = outcome
        .map(|()| steps.len())
        .map_err(|stop| stop.reason().to_owned());
    finish(&mut channel, runner, outcome, 1)
}

/// Prints how the script ended, writes the attempt's result file and returns the exit code.
fn finish(
    channel: &mut JsonLinesChannel<'_>,
    mut runner: ScriptRunner,
    outcome: Result<usize, String>,
    failure: u8,
) -> ExitCode {
    let mut code = if outcome.is_ok() { 0 } else { failure };
    let detail = match outcome {
        Ok(steps) => runner
            .last_message
            .take()
            .unwrap_or_else(|| format!("Followed {}.", plural::count(steps, "step"))),
        Err(why) => why,
    };
    channel.report(
        runner.step,
        if code == 0 { "done" } else { "fail" },
        json!({ "text": detail }),
    );
    if let Err(why) = runner.write_result(code == 0, &detail) {
        channel.report(runner.step, "fail", json!({ "text": why }));
        code = code.max(1);
    }
    ExitCode::from(code)
}

struct JsonLinesChannel<'a> {
    out: &'a mut dyn Write,
}

impl ClientChannel for JsonLinesChannel<'_> {
    /// Prints an event of a step as one line of JSON. Ignores a failed write, because the script
    /// should still be completed.
    fn report(&mut self, step: usize, kind: &str, mut content: Value) {
        if kind == "ran" {
            return;
        }
        content["step"] = json!(step);
        content["kind"] = json!(kind);
        drop(writeln!(self.out, "{content}").and_then(|()| self.out.flush()));
    }

    fn ask_person(
        &mut self,
        _: &str,
        _: &[String],
        default: Option<&str>,
    ) -> Result<String, ScriptStop> {
        default
            .map(str::to_owned)
            .ok_or_else(|| CANNOT_ASK.to_owned().into())
    }

    fn request_permission(&mut self, permission: &PermissionStep) -> Result<bool, ScriptStop> {
        match permission {
            PermissionStep::Long {
                default: Some(default),
                ..
            } => Ok(*default == PermissionDefault::Allow),
            _ => Err(CANNOT_ASK.to_owned().into()),
        }
    }

    fn print_flood(&mut self, step: usize, bytes: u64) -> Result<(), ScriptStop> {
        let line =
            json!({ "step": step, "kind": "flood", "text": "~".repeat(1000) }).to_string() + "\n";
        let mut printed = 0;
        while printed < bytes {
            self.out
                .write_all(line.as_bytes())
                .map_err(|error| format!("Could not print: {error}."))?;
            printed += line.len() as u64;
        }
        Ok(())
    }

    fn sleep(&mut self, time: Duration) -> Result<(), ScriptStop> {
        std::thread::sleep(time);
        Ok(())
    }

    fn check_cancelled(&mut self) -> Result<(), ScriptStop> {
        Ok(())
    }
}
