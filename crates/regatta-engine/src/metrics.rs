//! Counts the transactions in which the writer (the thread that decides and stores requests)
//! commits changes to the store, and measures their duration, for the metrics page. Counting costs
//! a few atomic additions and blocks no thread.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The upper bounds of the histogram's buckets in microseconds. The bounds range from the speed of
/// a file system in memory to the speed of a failing disk.
pub const BUCKET_BOUNDS_US: [u64; 12] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 500_000, 2_500_000,
];

/// A histogram of durations: the number of durations in each bucket, and their sum.
#[derive(Debug, Default)]
pub struct Histogram {
    counts: [AtomicU64; BUCKET_BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

impl Histogram {
    /// Adds one duration to the histogram.
    pub fn observe(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = BUCKET_BOUNDS_US
            .iter()
            .position(|bound| us <= *bound)
            .unwrap_or(BUCKET_BOUNDS_US.len());
        self.counts[bucket].fetch_add(1, Relaxed);
        self.sum_us.fetch_add(us, Relaxed);
    }

    /// Returns for each bucket the number of durations up to the bucket's upper bound. The last
    /// number counts all durations.
    pub fn cumulative(&self) -> Vec<u64> {
        let mut all = 0;
        let up_to = |atomic: &AtomicU64| {
            all += atomic.load(Relaxed);
            all
        };
        self.counts.iter().map(up_to).collect()
    }

    /// Returns the sum of all durations that were added.
    pub fn sum(&self) -> Duration {
        Duration::from_micros(self.sum_us.load(Relaxed))
    }
}

/// The counters of the writer (the thread that decides and stores requests) since the engine
/// started.
#[derive(Debug, Default)]
pub struct WriterMetrics {
    /// The durations of the store's transactions.
    pub commits: Histogram,
    pub accepted: AtomicU64,
    pub refused: AtomicU64,
    /// The number of batches that the store failed to commit.
    pub failed: AtomicU64,
    /// The time at which the last batch failed, or `None` if a batch has been committed since then.
    last_failure: Mutex<Option<Instant>>,
}

/// The time after which a failed transaction no longer makes the store count as broken, if no other
/// transaction was attempted since. Without this limit, the daemon could report itself as not ready
/// for ever: a client that waits for a ready daemon sends no requests, and without a request there
/// is no transaction that could succeed.
const FAILURE_WINDOW: Duration = Duration::from_secs(30);

impl WriterMetrics {
    /// Records that a batch was committed, and the duration of the transaction.
    pub(crate) fn on_commit(&self, took: Duration) {
        self.commits.observe(took);
        *self
            .last_failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Records that a batch could not be committed.
    pub(crate) fn on_commit_failed(&self, now: Instant) {
        self.failed.fetch_add(1, Relaxed);
        *self
            .last_failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(now);
    }

    /// Returns whether the store works, as far as is known: the last batch was committed, or its
    /// failure was longer ago than `FAILURE_WINDOW`.
    pub fn is_healthy(&self, now: Instant) -> bool {
        let failing = *self
            .last_failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        failing.is_none_or(|instant| now.saturating_duration_since(instant) > FAILURE_WINDOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_commit_counts_until_the_next_success_or_its_expiry() {
        let (metrics, now) = (WriterMetrics::default(), Instant::now());
        assert!(metrics.is_healthy(now));
        metrics.on_commit_failed(now);
        assert!(!metrics.is_healthy(now) && metrics.is_healthy(now + 2 * FAILURE_WINDOW));
        metrics.on_commit(Duration::ZERO);
        assert!(metrics.is_healthy(now));
    }

    #[test]
    fn a_histogram_counts_each_value_once_and_sums_them() {
        let histogram = Histogram::default();
        for us in [50, 100, 101, 9_000_000] {
            histogram.observe(Duration::from_micros(us));
        }
        let counts = histogram.cumulative();
        assert_eq!((counts[0], counts[1], counts[11], counts[12]), (2, 3, 3, 4));
        assert_eq!(histogram.sum(), Duration::from_micros(9_000_251));
    }
}
