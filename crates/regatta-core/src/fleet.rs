//! The fleet: what holds for everything one store keeps — limits, restarts, and answers given before.

use serde::{Deserialize, Serialize};

use crate::board::Draft;
use crate::command::Outcome;
use crate::event::{Event, facts};
use crate::ids::{Now, RequestKey};
use crate::refusal::Refusal;
use crate::{attempt, claim, runner};

/// Limits of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// How many attempts may live at once, whatever each agent may do.
    pub max_attempts: u32,
    /// How long an attempt may take.
    pub attempt_timeout_ms: u64,
    /// How long a lead's may.
    pub lead_timeout_ms: u64,
    /// How long a program may take to open its session.
    pub startup_ms: u64,
    /// How long a program may say nothing before it counts as hung.
    pub silence_ms: u64,
    /// How long a request waits before it is called out louder.
    pub escalate_ms: u64,
    /// The first pause before another try of what broke off; it doubles each time.
    pub retry_ms: u64,
    /// The longest pause.
    pub retry_most_ms: u64,
    /// How long what is stopped may take to end by itself; then its whole process tree is ended.
    pub shutdown_ms: u64,
    /// How many mebibytes of memory must be free for each attempt that starts; 0 asks for none.
    pub attempt_memory_mb: u64,
    /// How many mebibytes of disk.
    pub attempt_disk_mb: u64,
    /// How many merged trees of a project are validated at once where it does not say: what fits the machine, which is
    /// looked at when the daemon starts.
    pub landing_slots: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_attempts: 8,
            attempt_timeout_ms: 60 * 60_000,
            lead_timeout_ms: 4 * 60 * 60_000,
            startup_ms: 60_000,
            silence_ms: 15 * 60_000,
            escalate_ms: 10 * 60_000,
            retry_ms: 2_000,
            retry_most_ms: 10 * 60_000,
            shutdown_ms: 30_000,
            attempt_memory_mb: 128,
            attempt_disk_mb: 256,
            landing_slots: 2,
        }
    }
}

/// The longest that anybody waits for what was stopped.
const LONGEST_SHUTDOWN_MS: u64 = 10 * 60_000;

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
    /// Stands in the log for an event that this program cannot read; no command ever records it.
    Unreadable { why: String }
}

/// Returns the event that takes the place of a stored event that cannot be read. Folding it changes nothing (D11).
pub fn unreadable_event(why: String) -> Event {
    Event::Unreadable(Unreadable { why })
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
    runner::refresh(draft, now);
}

/// Sets the machine's limits.
pub fn limit(draft: &mut Draft, limits: Limits) -> Result<(), Refusal> {
    if limits.max_attempts == 0 || limits.max_attempts > 10_000 {
        return Err(Refusal::invalid("max_attempts is 1 to 10000", "give a number in that range"));
    }
    let times =
        [limits.attempt_timeout_ms, limits.lead_timeout_ms, limits.startup_ms, limits.silence_ms, limits.escalate_ms];
    if times.iter().any(|it| *it < 100) || limits.retry_most_ms < limits.retry_ms {
        return Err(Refusal::invalid(
            "a time limit is at least 100 ms, and the longest pause not shorter than the first",
            "give larger times",
        ));
    }
    if limits.shutdown_ms > LONGEST_SHUTDOWN_MS {
        return Err(Refusal::invalid("shutdown_timeout is at most 10 minutes", "give a shorter time"));
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
