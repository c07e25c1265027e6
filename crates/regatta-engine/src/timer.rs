//! Measures time for the engine: the clock that the writer (the thread that decides and stores
//! requests) reads, and the alarm that wakes the writer when the next deadline has passed.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use regatta_core::ids::Now;

/// A source of time: the machine's clock in the daemon, and a clock that tests can set.
pub trait Clock: Send + Sync {
    /// Returns the milliseconds since some fixed moment. This value never goes back, even if
    /// somebody changes the machine's date (L12).
    fn steady_ms(&self) -> u64;
    /// Returns the date in milliseconds since 1970, to show to people.
    fn unix_ms(&self) -> u64;
}

/// The machine's own clock. Its `steady_ms` also counts while the machine sleeps.
pub struct MachineClock;

impl Clock for MachineClock {
    fn steady_ms(&self) -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        now.tv_sec as u64 * 1_000 + now.tv_nsec as u64 / 1_000_000
    }
    fn unix_ms(&self) -> u64 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |duration| duration.as_millis() as u64)
    }
}

/// The fleet clock, by which all deadlines are measured. After a start of the daemon the clock
/// continues from the time of the last stored change, so it counts only while a daemon runs.
///
/// A lease therefore never ends early because the daemon was down (L5), and the steady times of two
/// boots of the machine are never compared.
pub(crate) struct FleetClock {
    clock: Arc<dyn Clock>,
    base_fleet_ms: u64,
    started_steady_ms: u64,
}

impl FleetClock {
    pub(crate) fn new(clock: Arc<dyn Clock>, base_fleet_ms: u64) -> FleetClock {
        let started_steady_ms = clock.steady_ms();
        FleetClock {
            clock,
            base_fleet_ms,
            started_steady_ms,
        }
    }

    pub(crate) fn now(&self) -> Now {
        Now {
            fleet_ms: self.base_fleet_ms
                + self
                    .clock
                    .steady_ms()
                    .saturating_sub(self.started_steady_ms),
            unix_ms: self.clock.unix_ms(),
        }
    }
}

/// Wakes the writer (the thread that decides and stores requests) when the next deadline has
/// passed.
#[derive(Default)]
pub(crate) struct Alarm {
    state: Mutex<AlarmState>,
    changed: Condvar,
}

#[derive(Default)]
struct AlarmState {
    due_fleet_ms: Option<u64>,
    is_ended: bool,
}

impl Alarm {
    /// Sets the time of the next deadline on the fleet clock (which counts only while a daemon
    /// runs), or `None` if there is no deadline.
    pub(crate) fn set(&self, due_fleet_ms: Option<u64>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // The waiting thread computes its wait again when it wakes, so the thread must be woken
        // only for an earlier deadline.
        let is_sooner =
            due_fleet_ms.is_some_and(|new| state.due_fleet_ms.is_none_or(|current| new < current));
        state.due_fleet_ms = due_fleet_ms;
        if is_sooner {
            self.changed.notify_one();
        }
    }

    pub(crate) fn end(&self) {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_ended = true;
        self.changed.notify_one();
    }

    /// Calls `wake_writer` each time a deadline has passed, until [`Alarm::end`] is called.
    pub(crate) fn run(&self, clock: &FleetClock, wake_writer: impl Fn()) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while !state.is_ended {
            let now = clock.now().fleet_ms;
            match state.due_fleet_ms {
                Some(due) if due <= now => {
                    state.due_fleet_ms = None;
                    drop(state);
                    wake_writer();
                    state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                }
                Some(due) => {
                    let wait = Duration::from_millis(due - now);
                    state = self
                        .changed
                        .wait_timeout(state, wait)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0;
                }
                None => {
                    state = self
                        .changed
                        .wait(state)
                        .unwrap_or_else(PoisonError::into_inner)
                }
            }
        }
    }
}
