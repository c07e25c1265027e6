//! Where time enters: the clock the writer reads, and the thread that wakes it when something falls due.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use regatta_core::ids::Now;

/// Reads time. The program has one; tests turn their own hands.
pub trait Clock: Send + Sync {
    /// Milliseconds since some fixed moment; never goes back, whatever is done to the date (L12).
    fn steady_ms(&self) -> u64;
    /// Milliseconds since 1970, for people.
    fn wall_ms(&self) -> u64;
}

/// The machine's own clock. It goes on while the machine sleeps.
pub struct MachineClock;

impl Clock for MachineClock {
    fn steady_ms(&self) -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        now.tv_sec as u64 * 1_000 + now.tv_nsec as u64 / 1_000_000
    }
    fn wall_ms(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |it| it.as_millis() as u64)
    }
}

/// The fleet clock: goes on from the last commit, counts only while a daemon is up.
///
/// So a lease never ends early because the daemon was away (L5), and no clock of another boot is compared
/// with this one's.
pub(crate) struct FleetClock {
    clock: Arc<dyn Clock>,
    base: u64,
    started: u64,
}

impl FleetClock {
    pub(crate) fn from(clock: Arc<dyn Clock>, base: u64) -> FleetClock {
        let started = clock.steady_ms();
        FleetClock { clock, base, started }
    }

    pub(crate) fn now(&self) -> Now {
        Now { at: self.base + self.clock.steady_ms().saturating_sub(self.started), wall: self.clock.wall_ms() }
    }
}

/// Wakes the writer when the board's next deadline has come.
#[derive(Default)]
pub(crate) struct Alarm {
    state: Mutex<AlarmState>,
    changed: Condvar,
}

#[derive(Default)]
struct AlarmState {
    due_at: Option<u64>,
    ended: bool,
}

impl Alarm {
    /// Sets the moment, on the fleet clock; `None` lets it sleep.
    pub(crate) fn set(&self, due_at: Option<u64>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Who wakes too early looks again; only what comes sooner than it thinks must wake it.
        let sooner = due_at.is_some_and(|due| state.due_at.is_none_or(|it| due < it));
        state.due_at = due_at;
        if sooner {
            self.changed.notify_one();
        }
    }

    pub(crate) fn end(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
        self.changed.notify_one();
    }

    /// Calls `ring` each time the set moment has come, until [`Alarm::end`].
    pub(crate) fn run(&self, clock: &FleetClock, ring: impl Fn()) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while !state.ended {
            let now = clock.now().at;
            match state.due_at {
                Some(due) if due <= now => {
                    state.due_at = None;
                    drop(state);
                    ring();
                    state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                }
                Some(due) => {
                    let patience = Duration::from_millis(due - now);
                    state = self.changed.wait_timeout(state, patience).unwrap_or_else(PoisonError::into_inner).0;
                }
                None => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}
