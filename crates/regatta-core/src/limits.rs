//! Limits that hold for all projects together, and the restart of the daemon.
//!
//! Not here: the limits of one agent ([`crate::agent`]), of one mission ([`crate::mission`]) and of
//! spending ([`crate::budget`]).

use serde::{Deserialize, Serialize};

use crate::board::Draft;
use crate::event::{Event, facts};
use crate::ids::Now;
use crate::refusal::Refusal;
use crate::{attempt, claim, runner};

/// Limits that hold for all projects and agents of this machine together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct MachineLimits {
    /// Maximum number of agents' programs that work at the same time. Each agent also has its own
    /// limit.
    pub max_attempts: u32,
    /// Maximum duration of an attempt (one run of an agent on a task).
    pub attempt_timeout_ms: u64,
    /// Maximum duration of an attempt by a lead.
    pub lead_timeout_ms: u64,
    /// Time within which a started program must open its session.
    pub startup_ms: u64,
    /// Time without any output after which a program is stopped. After half of this time, the
    /// program is shown as hung.
    pub silence_ms: u64,
    /// Time after which an unanswered question or permission request is announced again, more
    /// loudly.
    pub escalate_ms: u64,
    /// Delay before a task is tried again after an attempt failed or was interrupted. The delay
    /// doubles with each further attempt in a row that fails or is interrupted.
    #[serde(rename = "retry_ms")]
    pub retry_delay_ms: u64,
    /// Maximum delay before a task is tried again.
    #[serde(rename = "retry_most_ms")]
    pub max_retry_delay_ms: u64,
    /// Time within which a program that is being stopped may end by itself. After this time, the
    /// program and all its child processes are killed.
    pub shutdown_ms: u64,
    /// Free memory in mebibytes that must be available for an attempt to start; 0 turns the check
    /// off.
    pub attempt_memory_mb: u64,
    /// Free disk space in mebibytes that must be available for an attempt to start; 0 turns the
    /// check off.
    pub attempt_disk_mb: u64,
    /// Number of trial merges of one project that are checked at the same time, unless the
    /// project's settings set another number. The daemon chooses the value at its start from the
    /// size of the machine.
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

/// Maximum value of `shutdown_ms`: ten minutes.
const MAX_SHUTDOWN_MS: u64 = 10 * 60_000;

facts! {
    /// The daemon was started. Every claim and every other lease got its full lifetime again.
    FleetResumed { pid: u32 }
    FleetLimited { limits: MachineLimits }
    /// A stand-in for an event of the stored log that this version cannot read; `why` is the
    /// reason. The stand-in itself is never stored.
    EventUnreadable { why: String }
}

/// Returns an event to use in place of a stored event that this version cannot read. Applying the
/// returned event changes nothing (D11).
pub fn unreadable_event(why: String) -> Event {
    Event::EventUnreadable(EventUnreadable { why })
}

/// Prepares the board (the state of all live work) when a daemon starts.
///
/// Clients that waited for a claim have lost their connection, so their waits end. Claims and
/// attempts continue, each with its full time to live.
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

/// Sets the limits that hold for all projects together, or refuses values that make no sense.
pub fn set_limits(draft: &mut Draft, limits: MachineLimits) -> Result<(), Refusal> {
    if limits.max_attempts == 0 || limits.max_attempts > 10_000 {
        return Err(Refusal::invalid(
            "max_attempts must be 1 to 10000",
            "set a number in that range: regatta config set max_attempts 8",
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
            "each time limit must be at least 100 ms, and retry_most must not be shorter than \
            retry",
            "set a longer time: regatta config set silence 15m",
        ));
    }
    if limits.shutdown_ms > MAX_SHUTDOWN_MS {
        return Err(Refusal::invalid(
            "shutdown_timeout is limited to 10 minutes",
            "set a shorter time: regatta config set shutdown_timeout 30s",
        ));
    }
    if draft.board().limits != limits {
        draft.record(Event::FleetLimited(FleetLimited { limits }));
    }
    Ok(())
}
