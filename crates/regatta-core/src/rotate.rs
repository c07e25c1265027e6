//! Rotation: a session whose context is nearly full writes a summary, and the work continues in a
//! fresh session.
//!
//! A summary is requested between two turns, and only if the agent still has a prompt to answer,
//! because a finished session needs no space. If the context fills up within a turn, the program
//! must handle it, or the turn fails with the class for a full context.

use crate::attempt::{self, Attempt, Talk};
use crate::board::Draft;
use crate::event::{Event, facts};
use crate::ids::AttemptId;
use crate::refusal::Refusal;
use crate::session::Stop;
use crate::steer;

/// Share of the context, in percent, from which it counts as nearly full.
pub const NEARLY_FULL: u64 = 85;

/// The last prompt of a session, which requests the summary.
pub const SUM_UP: &str = "Your context is nearly full, so the work goes on in a fresh session that knows nothing of \
this one. Do not work on now. Write what it must know: what is done, what is left, what you decided and why, and what \
to watch out for.";

facts! {
    /// The attempt's next prompt requests a summary, and then its session is replaced.
    Rotating { attempt: AttemptId }
}

/// Returns whether the model's context is nearly full.
fn nearly_full(talk: &Talk) -> bool {
    talk.context.is_some_and(|(used, size)| size > 0 && used.saturating_mul(100) >= size.saturating_mul(NEARLY_FULL))
}

/// Rotates a session after a turn, if it is time. Returns whether the session is replaced.
pub(crate) fn after_turn(draft: &mut Draft, attempt: &Attempt, stop: Stop) -> Result<bool, Refusal> {
    let talk = &attempt.talk;
    if attempt.stopping.is_some() || !matches!(stop, Stop::EndTurn | Stop::MaxTokens) {
        return Ok(false);
    }
    match talk.rotating {
        Some(turn) if talk.turns > turn => {
            let summary = talk.last.as_ref().map(|it| it.detail.trim()).filter(|it| !it.is_empty());
            let text = summary.map_or_else(
                || {
                    "The session before this one was full and left no summary: look at the state of the workspace."
                        .into()
                },
                |it| format!("The session before this one was full. It left this summary:\n\n{it}"),
            );
            steer::note(draft, attempt.task, text);
            attempt::rotate(draft, attempt.id, "its context was nearly full; it continues in a fresh session")?;
            Ok(true)
        }
        None if attempt.takes_words() && talk.held.is_none() && !talk.is_through() && nearly_full(talk) => {
            draft.record(Event::AttemptRotating(Rotating { attempt: attempt.id }));
            Ok(false)
        }
        _ => Ok(false),
    }
}

/// Inserts the request for a summary before all other pending prompts.
pub(crate) fn apply(talk: &mut Talk) {
    let next = usize::try_from(talk.turns.saturating_sub(1)).unwrap_or(usize::MAX).min(talk.tells.len());
    talk.tells.insert(next, SUM_UP.to_owned());
    talk.rotating = Some(talk.turns);
}

/// Returns whether a prompt is the request for a summary. The next session does not get this
/// prompt.
pub(crate) fn is_request(text: &str) -> bool {
    text == SUM_UP
}
