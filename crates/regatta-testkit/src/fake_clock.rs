//! A clock whose hands the test turns. It stands still otherwise, so nothing falls due by accident.
//!
//! The engine's alarm sleeps in real time, so turning the hands wakes nobody: turn them and then submit any
//! command, since every turn of the writer first settles what is due.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use regatta_engine::timer::Clock;

/// A clock for tests. Clones show the same time.
#[derive(Clone, Debug, Default)]
pub struct FakeClock {
    steady_ms: Arc<AtomicU64>,
}

impl FakeClock {
    /// A clock at its beginning.
    pub fn new() -> FakeClock {
        FakeClock::default()
    }

    /// Turns the hands forward.
    pub fn turn(&self, by: Duration) {
        self.steady_ms.fetch_add(by.as_millis() as u64, Ordering::SeqCst);
    }
}

impl Clock for FakeClock {
    fn steady_ms(&self) -> u64 {
        self.steady_ms.load(Ordering::SeqCst)
    }

    fn wall_ms(&self) -> u64 {
        1_767_225_600_000 + self.steady_ms()
    }
}
