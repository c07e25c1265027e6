//! What the writer counts, for whoever watches it. Counting costs a few additions and holds nobody up.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The upper bounds of the buckets, in microseconds: a memory file system up to a disk that is in trouble.
pub const BOUNDS_US: [u64; 12] =
    [100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 500_000, 2_500_000];

/// How often something took how long.
#[derive(Debug, Default)]
pub struct Histogram {
    counts: [AtomicU64; BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

impl Histogram {
    pub fn add(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_US.iter().position(|it| us <= *it).unwrap_or(BOUNDS_US.len());
        self.counts[bucket].fetch_add(1, Relaxed);
        self.sum_us.fetch_add(us, Relaxed);
    }

    /// How many took at most each bound, then how many there were.
    pub fn cumulative(&self) -> Vec<u64> {
        let mut all = 0;
        let up_to = |it: &AtomicU64| {
            all += it.load(Relaxed);
            all
        };
        self.counts.iter().map(up_to).collect()
    }

    pub fn sum(&self) -> Duration {
        Duration::from_micros(self.sum_us.load(Relaxed))
    }
}

/// The writer's counts since its start.
#[derive(Debug, Default)]
pub struct Meters {
    /// How long each transaction of the store took.
    pub commits: Histogram,
    pub accepted: AtomicU64,
    pub refused: AtomicU64,
    /// Batches that the store could not keep.
    pub failed: AtomicU64,
    /// Whether the last one was such a batch.
    pub unwell: AtomicBool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_counts_each_once_and_sums_all() {
        let it = Histogram::default();
        for us in [50, 100, 101, 9_000_000] {
            it.add(Duration::from_micros(us));
        }
        let counts = it.cumulative();
        assert_eq!((counts[0], counts[1], counts[11], counts[12]), (2, 3, 3, 4));
        assert_eq!(it.sum(), Duration::from_micros(9_000_251));
    }
}
