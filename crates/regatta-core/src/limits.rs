//! The limits of the whole machine, and the restart of the daemon. Both concern everything that one
//! store holds.
//!
//! Left to others: the limits of one agent ([`crate::agent`]), of one mission
//! ([`crate::mission`]) and of spending ([`crate::budget`]).

use serde::{Deserialize, Serialize};

use crate::board::Draft;
use crate::event::{Event, facts};
use crate::ids::Now;
use crate::refusal::Refusal;
use crate::{attempt, claim, runner};

/// Limits for the whole machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineLimits {
    /// The largest number of simultaneous attempts, in addition to the limit of each agent.
    pub max_attempts: u32,
    /// The time limit of an attempt.
    pub attempt_timeout_ms: u64,
    /// The time limit of a lead's attempt.
    pub lead_timeout_ms: u64,
    /// The time in which a program must open its session.
    pub startup_ms: u64,
    /// The longest silence of a program before it counts as hung.
    pub silence_ms: u64,
    /// The time after which an open request is escalated.
    pub escalate_ms: u64,
    /// The first pause before a retry. The pause doubles with each try.
    #[serde(rename = "retry_ms")]
    pub retry_delay_ms: u64,
    /// The longest pause.
    #[serde(rename = "retry_most_ms")]
    pub max_retry_delay_ms: u64,
    /// The time in which a stopped program may end by itself. Afterwards its whole process tree is
    /// killed.
    pub shutdown_ms: u64,
    /// The free memory in mebibytes that each starting attempt needs; 0 turns the check off.
    pub attempt_memory_mb: u64,
    /// The free disk space in mebibytes that each starting attempt needs; 0 turns the check off.
    pub attempt_disk_mb: u64,
    /// The number of merged trees of a project that are validated at once, if the project sets
    /// none. The daemon chooses it at its start from the size of the machine.
    pub landing_slots: u32,
}

impl Default for MachineLimits {
    fn default() -> MachineLimits {
        MachineLimits {
            max_attempts: 8,
            attempt_timeout_ms: 60 * 60_000,
            lead_timeout_ms: 4 * 60 * 60_000,
            startup_ms: 60_000,
            silence_ms: 15 * 60_000,
            escalate_ms: 10 * 60_000,
            retry_delay_ms: 2_000,
            max_retry_delay_ms: 10 * 60_000,
            shutdown_ms: 30_000,
            attempt_memory_mb: 128,
            attempt_disk_mb: 256,
            landing_slots: 2,
        }
    }
}

/// The largest allowed value of `shutdown_ms`.
const MAX_SHUTDOWN_MS: u64 = 10 * 60_000;

facts! {
    /// A daemon took over the board; every lease got one fresh TTL.
    FleetResumed { pid: u32 }
    FleetLimited { limits: MachineLimits }
    /// Replaces an event in the log that this program cannot read. No command records it.
    EventUnreadable { why: String }
}

/// Returns the event that replaces a stored event that cannot be read. Applying it changes nothing
/// (D11).
pub fn unreadable_event(why: String) -> Event {
    Event::EventUnreadable(EventUnreadable { why })
}

/// Takes over the board after a restart.
///
/// Callers that waited over a connection are gone, so their waits end. Claims continue.
pub fn resume_after_restart(draft: &mut Draft, pid: u32, now: Now) {
    draft.record(Event::FleetResumed(FleetResumed { pid }));
    let waits: Vec<_> = draft.board().waits.keys().copied().collect();
    for wait in waits {
        claim::cancel_wait(draft, wait);
    }
    claim::renew_leases(draft, now);
    attempt::renew_leases(draft, now);
    runner::renew_leases(draft, now);
}

/// Sets the limits of the machine.
pub fn set_limits(draft: &mut Draft, limits: MachineLimits) -> Result<(), Refusal> {
    if limits.max_attempts == 0 || limits.max_attempts > 10_000 {
        return Err(Refusal::invalid(
            "max_attempts must be 1 to 10000",
            "give a number in that range",
        ));
    }
    let time_limits_ms = [
        limits.attempt_timeout_ms,
        limits.lead_timeout_ms,
        limits.startup_ms,
        limits.silence_ms,
        limits.escalate_ms,
    ];
    if time_limits_ms.iter().any(|limit_ms| *limit_ms < 100)
        || limits.max_retry_delay_ms < limits.retry_delay_ms
    {
        return Err(Refusal::invalid(
            "a time limit must be at least 100 ms, and the longest pause at least as long as the \
            first",
            "give larger times",
        ));
    }
    if limits.shutdown_ms > MAX_SHUTDOWN_MS {
        return Err(Refusal::invalid(
            "shutdown_timeout is limited to 10 minutes",
            "give a shorter time",
        ));
    }
    if draft.board().limits != limits {
        draft.record(Event::FleetLimited(FleetLimited { limits }));
    }
    Ok(())
}
