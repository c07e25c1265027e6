//! A clock that only the test moves, so that no timer expires unexpectedly.
//!
//! The engine's timer thread sleeps in real time, so moving this clock does not wake the thread.
//! After moving the clock, submit any command: the engine handles expired timers before each
//! command.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use regatta_engine::timer::Clock;

/// The clock for tests. Clones show the same time.
#[derive(Clone, Debug, Default)]
pub struct FakeClock {
    steady_ms: Arc<AtomicU64>,
}

impl FakeClock {
    /// Returns a clock at time 0.
    pub fn new() -> FakeClock {
        FakeClock::default()
    }

    /// Moves the clock forward.
    pub fn advance(&self, duration: Duration) {
        self.steady_ms
            .fetch_add(duration.as_millis() as u64, Ordering::SeqCst);
    }
}

impl Clock for FakeClock {
    fn steady_ms(&self) -> u64 {
        self.steady_ms.load(Ordering::SeqCst)
    }

    fn unix_ms(&self) -> u64 {
        1_767_225_600_000 + self.steady_ms()
    }
}
