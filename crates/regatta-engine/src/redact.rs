//! Removes secrets from the texts in requests and reports before they are decided and stored.
//!
//! Texts of agents and programs enter the store through a few inputs: messages, questions,
//! progress reports, results, and the output of checks. Their secrets are removed first, because
//! the store keeps events for ever. A person's plan is stored as it was typed. Secrets in a plan
//! are removed when a prompt or briefing is made from the plan.

use regatta_core::agent_protocol::RequestContent;
use regatta_core::command::{BoardInput, Command, Report};
use regatta_core::landing::TrialOutcome;

use crate::RedactFn;

/// Removes secrets from all texts of an input that agents or programs wrote.
pub(crate) fn redact_input(redact: &RedactFn, input: &mut BoardInput) {
    match input {
        BoardInput::Request(request) => redact_command(redact, &mut request.command),
        BoardInput::Report(report) => redact_report(redact, report),
    }
}

fn clean(redact: &RedactFn, text: &mut String) {
    let cleaned = (redact.0)(text);
    if cleaned != *text {
        *text = cleaned;
    }
}

fn redact_report(redact: &RedactFn, report: &mut Report) {
    let clean = |text: &mut String| clean(redact, text);
    match report {
        Report::Trial {
            outcome: TrialOutcome::Failed { reason, output, .. },
            ..
        } => {
            clean(reason);
            output.iter_mut().for_each(clean);
        }
        Report::Trial {
            outcome: TrialOutcome::Held { reason, .. } | TrialOutcome::CommitFailed { reason },
            ..
        } => clean(reason),
        _ => {}
    }
}

fn redact_command(redact: &RedactFn, command: &mut Command) {
    let clean = |text: &mut String| clean(redact, text);
    match command {
        Command::Post(post) | Command::PostWith { post, .. } => clean(&mut post.text),
        Command::Tell { text, .. }
        | Command::Progress { text, .. }
        | Command::ContinueWithoutAnswer { assumed: text, .. }
        | Command::FinishMission { report: text, .. }
        | Command::Revise { text, .. } => clean(text),
        Command::Finish {
            output, learnings, ..
        } => output.iter_mut().chain(learnings).for_each(clean),
        Command::GiveUp { reason, .. } => reason.iter_mut().for_each(clean),
        Command::ReportEscape { finding, .. } => clean(&mut finding.finding),
        Command::Acquire(acquire) => clean(&mut acquire.memo),
        Command::Ask {
            request: agent_request,
            ..
        } => match &mut agent_request.content {
            RequestContent::Question { text, choices, .. } => {
                clean(text);
                choices.iter_mut().for_each(clean);
            }
            // A permission request is not changed, because a person must see exactly the command
            // that they allow.
            RequestContent::Permission { .. } => {}
        },
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;

    const SECRET: &str = "hunter2secret";

    /// Returns every command and report that carries texts of an agent or a program, as JSON.
    fn inputs() -> Vec<Value> {
        let text = format!("words with {SECRET} inside");
        let attempt_command = |command: &str, fields: Value| {
            let mut command_json =
                json!({ "command": command, "task": "T1", "attempt": "A1", "token": 1 });
            command_json
                .as_object_mut()
                .unwrap()
                .extend(fields.as_object().unwrap().clone());
            command_json
        };
        let post = json!({ "channel": "dev", "text": text, "labels": [], "reply_to": null });
        let mut post_command = post.clone();
        post_command["command"] = json!("post");
        let trial_report = |outcome: Value| json!({ "command": "report_tried", "landing": "L1", "found": outcome });
        let question = json!({ "id": "1", "want": "question", "text": text, "choices": [text] });
        vec![
            post_command,
            json!({ "command": "post_with", "post": post, "extra": {} }),
            json!({ "command": "tell", "task": "T1", "text": text }),
            json!({ "command": "revise", "task": "T1", "text": text }),
            attempt_command("ask", json!({ "ask": question })),
            attempt_command("go_on", json!({ "approval": "Q1", "assumed": text })),
            attempt_command("progress", json!({ "text": text })),
            attempt_command(
                "report_escape",
                json!({ "finding": { "finding": text, "suggested_files": [] } }),
            ),
            attempt_command("finish", json!({ "output": text, "learnings": [text] })),
            attempt_command("give_up", json!({ "reason": text })),
            attempt_command("finish_mission", json!({ "report": text })),
            json!({ "command": "acquire", "owner": { "agent": "ann" }, "uris": ["port://1"], "mode": "exclusive",
                "ttl_ms": 1, "wait_ms": 0, "memo": text }),
            trial_report(json!({ "red": { "reason": text, "output": text } })),
            trial_report(json!({ "red_step": { "reason": text } })),
            trial_report(json!({ "held": { "at": null, "reason": text } })),
        ]
    }

    /// S4: a secret in a text of an agent or a program does not reach the store.
    #[test]
    fn s4_every_input_with_text_is_redacted() {
        let redact = RedactFn(Arc::new(|text| text.replace(SECRET, "[redacted]")));
        for json in inputs() {
            let redacted = match serde_json::from_value::<Report>(json.clone()) {
                Ok(mut report) => {
                    redact_report(&redact, &mut report);
                    serde_json::to_string(&report).unwrap()
                }
                Err(_) => {
                    let mut command: Command = serde_json::from_value(json.clone())
                        .unwrap_or_else(|error| panic!("{json}: {error}"));
                    redact_command(&redact, &mut command);
                    serde_json::to_string(&command).unwrap()
                }
            };
            assert!(
                redacted.contains("words with [redacted] inside") && !redacted.contains(SECRET),
                "{redacted}"
            );
        }
    }
}
