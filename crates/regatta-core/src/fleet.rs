//! The fleet: what holds for everything one store keeps — limits, restarts, and answers given before.

use serde::{Deserialize, Serialize};

use crate::board::Draft;
use crate::command::Outcome;
use crate::event::{Event, facts};
use crate::ids::{Now, RequestKey};
use crate::refusal::Refusal;
use crate::{attempt, claim};

/// Limits of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// How many attempts may live at once, whatever each agent may do.
    pub max_attempts: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { max_attempts: 8 }
    }
}

/// What was answered to a request that carried a key, so that asking again does nothing again (J9).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    pub key: RequestKey,
    /// What was asked, as a number: the same key for something else is a mistake.
    pub command: u64,
    pub outcome: Outcome,
    /// The revision the first answer carried.
    pub revision: u64,
    /// When it may be forgotten, on the fleet clock.
    pub until_at: u64,
}

facts! {
    /// A daemon took over the board; every lease got one fresh TTL.
    Resumed { pid: u32 }
    Limited { limits: Limits }
    Answered { key: RequestKey, command: u64, outcome: Outcome, until_at: u64 }
    Forgotten { key: RequestKey }
}

/// How long an answer is kept: a day.
pub const ANSWER_KEPT_MS: u64 = 24 * 3_600_000;

/// Takes the board over after a restart.
///
/// Nobody who waited over a connection is still there, so their places end; what was held goes on.
pub fn resume(draft: &mut Draft, pid: u32, now: Now) {
    draft.record(Event::FleetResumed(Resumed { pid }));
    let waits: Vec<_> = draft.board().waits.keys().copied().collect();
    for wait in waits {
        claim::cancel_wait(draft, wait);
    }
    claim::refresh(draft, now);
    attempt::refresh(draft, now);
}

/// Sets the machine's limits.
pub fn limit(draft: &mut Draft, limits: Limits) -> Result<(), Refusal> {
    if limits.max_attempts == 0 || limits.max_attempts > 10_000 {
        return Err(Refusal::invalid("max_attempts is 1 to 10000", "give a number in that range"));
    }
    if draft.board().limits != limits {
        draft.record(Event::FleetLimited(Limited { limits }));
    }
    Ok(())
}

/// Remembers what was answered under `key`.
pub(crate) fn remember(draft: &mut Draft, key: RequestKey, command: u64, outcome: Outcome, now: Now) {
    draft.record(Event::RequestAnswered(Answered { key, command, outcome, until_at: now.at + ANSWER_KEPT_MS }));
}

/// Forgets an answer that is old enough.
pub fn forget(draft: &mut Draft, key: &RequestKey, now: Now) {
    if draft.board().answers.get(key).is_some_and(|it| it.until_at <= now.at) {
        draft.record(Event::RequestForgotten(Forgotten { key: key.clone() }));
    }
}
