//! Rotation: a session whose context is nearly full sums itself up, and the work goes on in a fresh one.
//!
//! It is asked for between two turns, when something is still to be said to the agent: a session that is through needs
//! no room. A context that fills up within a turn is the program's own to mend, and an error of its class if it cannot.

use crate::attempt::{self, Attempt, Talk};
use crate::board::Draft;
use crate::event::{Event, facts};
use crate::ids::AttemptId;
use crate::refusal::Refusal;
use crate::session::Stop;
use crate::steer;

/// From here on a context counts as nearly full, in hundredths.
pub const NEARLY_FULL: u64 = 85;

/// What the agent is asked before its session ends.
pub const SUM_UP: &str = "Your context is nearly full, so the work goes on in a fresh session that knows nothing of \
this one. Do not work on now. Write what it must know: what is done, what is left, what you decided and why, and what \
to watch out for.";

facts! {
    /// Its session sums itself up with its next prompt, and is then left.
    Rotating { attempt: AttemptId }
}

/// Whether its model's context is nearly full.
fn nearly_full(talk: &Talk) -> bool {
    talk.context.is_some_and(|(used, size)| size > 0 && used.saturating_mul(100) >= size.saturating_mul(NEARLY_FULL))
}

/// Looks at a session whose turn has ended, and rotates it if it is time. Returns whether it leaves the session.
pub(crate) fn after_turn(draft: &mut Draft, attempt: &Attempt, stop: Stop) -> Result<bool, Refusal> {
    let talk = &attempt.talk;
    if attempt.stopping.is_some() || !matches!(stop, Stop::EndTurn | Stop::MaxTokens) {
        return Ok(false);
    }
    match talk.rotating {
        Some(turn) if talk.turns > turn => {
            let summary = talk.last.as_ref().map(|it| it.detail.trim()).filter(|it| !it.is_empty());
            let text = summary.map_or_else(
                || "The session before this one was full and left no summary: look at what is in the workspace.".into(),
                |it| format!("The session before this one was full. It left this summary:\n\n{it}"),
            );
            steer::note(draft, attempt.task, text);
            attempt::rotate(draft, attempt.id, "its context was nearly full; it goes on in a fresh session")?;
            Ok(true)
        }
        None if attempt.takes_words() && talk.held.is_none() && !talk.is_through() && nearly_full(talk) => {
            draft.record(Event::AttemptRotating(Rotating { attempt: attempt.id }));
            Ok(false)
        }
        _ => Ok(false),
    }
}

/// Puts the request for a summary before whatever else is still to be said.
pub(crate) fn apply(talk: &mut Talk) {
    let next = usize::try_from(talk.turns.saturating_sub(1)).unwrap_or(usize::MAX).min(talk.tells.len());
    talk.tells.insert(next, SUM_UP.to_owned());
    talk.rotating = Some(talk.turns);
}

/// What is said to the agent's next session of what this one was told: not the request itself.
pub(crate) fn is_request(text: &str) -> bool {
    text == SUM_UP
}
