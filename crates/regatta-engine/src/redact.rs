//! Removes secrets from the texts of commands before they reach the store.
//!
//! Texts of agents and programs enter the store through a few commands: messages, questions,
//! progress, results, the output of checks. They are redacted before the command is decided,
//! because events are kept for good. A person's plan is stored as it was typed; prompts and
//! briefings are redacted when they are made from it.

use regatta_core::agent_protocol::RequestContent;
use regatta_core::command::{Command, Request};
use regatta_core::landing::TrialOutcome;

use crate::RedactFn;

/// Removes secrets from the texts of a request.
pub(crate) fn redact_request(redact: &RedactFn, request: &mut Request) {
    let clean = |text: &mut String| {
        let cleaned = (redact.0)(text);
        if cleaned != *text {
            *text = cleaned;
        }
    };
    match &mut request.command {
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
        Command::Ask { request: ask, .. } => match &mut ask.content {
            RequestContent::Question { text, choices, .. } => {
                clean(text);
                choices.iter_mut().for_each(clean);
            }
            // A permission request is shown unchanged, because a person decides about exactly that.
            RequestContent::Permission { .. } => {}
        },
        Command::ReportTrial {
            outcome: TrialOutcome::Failed { reason, output, .. },
            ..
        } => {
            clean(reason);
            output.iter_mut().for_each(clean);
        }
        Command::ReportTrial {
            outcome: TrialOutcome::Held { reason, .. } | TrialOutcome::CommitFailed { reason },
            ..
        } => clean(reason),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use regatta_core::command::Actor;
    use serde_json::{Value, json};

    use super::*;

    const SECRET: &str = "hunter2secret";

    /// Returns every command that carries texts of an agent or a program, as its clients send it.
    fn commands() -> Vec<Value> {
        let words = format!("words with {SECRET} inside");
        let of_attempt = |command: &str, more: Value| {
            let mut whole =
                json!({ "command": command, "task": "T1", "attempt": "A1", "token": 1 });
            whole
                .as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            whole
        };
        let post = json!({ "channel": "dev", "text": words, "labels": [], "reply_to": null });
        let mut posted = post.clone();
        posted["command"] = json!("post");
        let tried =
            |found: Value| json!({ "command": "report_tried", "landing": "L1", "found": found });
        let question = json!({ "id": "1", "want": "question", "text": words, "choices": [words] });
        vec![
            posted,
            json!({ "command": "post_with", "post": post, "extra": {} }),
            json!({ "command": "tell", "task": "T1", "text": words }),
            json!({ "command": "revise", "task": "T1", "text": words }),
            of_attempt("ask", json!({ "ask": question })),
            of_attempt("go_on", json!({ "approval": "Q1", "assumed": words })),
            of_attempt("progress", json!({ "text": words })),
            of_attempt(
                "report_escape",
                json!({ "finding": { "finding": words, "suggested_files": [] } }),
            ),
            of_attempt("finish", json!({ "output": words, "learnings": [words] })),
            of_attempt("give_up", json!({ "reason": words })),
            of_attempt("finish_mission", json!({ "report": words })),
            json!({ "command": "acquire", "owner": { "agent": "ann" }, "uris": ["port://1"], "mode": "exclusive",
                "ttl_ms": 1, "wait_ms": 0, "memo": words }),
            tried(json!({ "red": { "reason": words, "output": words } })),
            tried(json!({ "red_step": { "reason": words } })),
            tried(json!({ "held": { "at": null, "reason": words } })),
        ]
    }

    /// S4: a secret in a text of an agent or a program does not reach the store.
    #[test]
    fn s4_every_command_with_text_is_redacted() {
        let redact = RedactFn(Arc::new(|text| text.replace(SECRET, "[redacted]")));
        for sent in commands() {
            let command: Command = serde_json::from_value(sent.clone())
                .unwrap_or_else(|error| panic!("{sent}: {error}"));
            let mut request = Request {
                by: Actor::Regatta,
                key: None,
                command,
            };
            redact_request(&redact, &mut request);
            let kept = serde_json::to_string(&request.command).unwrap();
            assert!(
                kept.contains("words with [redacted] inside") && !kept.contains(SECRET),
                "{kept}"
            );
        }
    }
}
