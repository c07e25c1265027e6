//! Takes secrets out of the texts that commands bring to the store.
//!
//! The words of agents and programs reach the store by a few commands: messages, questions, what a check printed. They are
//! cleaned here, before anything is decided, because an event is kept for good. The plan of a person is left as it was
//! typed; prompts and briefings are cleaned when they are made of it.

use regatta_core::command::{Command, Request};
use regatta_core::landing::Tried;
use regatta_core::session::Want;

use crate::Redact;

/// Cleans the texts of a request.
pub(crate) fn clean(redact: &Redact, request: &mut Request) {
    let clean = |text: &mut String| {
        let cleaned = (redact.0)(text);
        if cleaned != *text {
            *text = cleaned;
        }
    };
    match &mut request.command {
        Command::Post(post) | Command::PostWith { post, .. } => clean(&mut post.text),
        Command::Tell { text, .. } => clean(text),
        Command::Ask { ask, .. } => match &mut ask.want {
            Want::Question { text, choices, .. } => {
                clean(text);
                choices.iter_mut().for_each(clean);
            }
            // What is to be permitted is shown as it is: a person decides about exactly that.
            Want::Permission { .. } => {}
        },
        Command::ReportTried { found: Tried::Red { reason, output, .. }, .. } => {
            clean(reason);
            output.iter_mut().for_each(clean);
        }
        Command::ReportTried { found: Tried::Held { reason, .. } | Tried::RedStep { reason }, .. } => clean(reason),
        _ => {}
    }
}
