//! Replaces an agent's session when the model's context (the text that it can remember) is nearly
//! full: the agent writes a summary, and the work continues in a fresh session that gets this
//! summary.
//!
//! The summary is requested between two turns, and only if another prompt waits for the agent,
//! because otherwise the session ends anyway. If the context becomes full during a turn, the
//! agent's program must handle that, or the turn fails and reports a full context.

use crate::agent_protocol::StopReason;
use crate::agent_texts::{self, SUMMARY_PROMPT};
use crate::attempt::{self, Attempt, SessionState};
use crate::board::Draft;
use crate::event::{Event, facts};
use crate::ids::AttemptId;
use crate::intervention;
use crate::refusal::Refusal;

/// Percentage of the model's context that must be used for it to count as nearly full.
const NEARLY_FULL_PERCENT: u64 = 85;

facts! {
    /// The attempt's session is nearly full. Its next prompt requests a summary, and then the
    /// session is replaced.
    AttemptRotating { attempt: AttemptId }
}

/// Returns whether the session has used at least [`NEARLY_FULL_PERCENT`] of the model's context.
fn is_nearly_full(session: &SessionState) -> bool {
    session.context.is_some_and(|(used, size)| {
        size > 0 && used.saturating_mul(100) >= size.saturating_mul(NEARLY_FULL_PERCENT)
    })
}

/// Handles the end of a turn: if the context is nearly full, requests a summary; if the summary has
/// been written, replaces the session. Returns whether the session is replaced now.
pub(crate) fn on_turn_ended(
    draft: &mut Draft,
    attempt: &Attempt,
    stop: StopReason,
) -> Result<bool, Refusal> {
    let session = &attempt.session;
    if attempt.stopping.is_some() || !matches!(stop, StopReason::EndTurn | StopReason::MaxTokens) {
        return Ok(false);
    }
    match session.summary_turn {
        Some(turn) if session.turns > turn => {
            let summary = session
                .last_turn_end
                .as_ref()
                .map(|turn_end| turn_end.detail.trim())
                .filter(|summary| !summary.is_empty());
            let text = agent_texts::summary_note(summary);
            intervention::leave_note(draft, attempt.task, text);
            attempt::rotate(
                draft,
                attempt.id,
                "its context was nearly full; it continues in a fresh session",
            )?;
            Ok(true)
        }
        None if attempt.accepts_prompts()
            && session.hold_reason.is_none()
            && !session.is_finished()
            && is_nearly_full(session) =>
        {
            draft.record(Event::AttemptRotating(AttemptRotating {
                attempt: attempt.id,
            }));
            Ok(false)
        }
        _ => Ok(false),
    }
}

/// Puts the request for a summary before all other prompts that wait for the agent.
pub(crate) fn insert_summary_request(session: &mut SessionState) {
    let next = usize::try_from(session.turns.saturating_sub(1))
        .unwrap_or(usize::MAX)
        .min(session.follow_ups.len());
    session.follow_ups.insert(next, SUMMARY_PROMPT.to_owned());
    session.summary_turn = Some(session.turns);
}

/// Returns whether a prompt is the request for a summary, so that it is not passed on to the next
/// session.
pub(crate) fn is_summary_request(text: &str) -> bool {
    text == SUMMARY_PROMPT
}
