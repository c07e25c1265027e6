//! Chooses which trials (test merges of several landings) of the landing queue to run next.
//!
//! Every trial tests the first N landings of the queue's merge order, called a prefix. So a trial
//! is represented by the number N, and this module only computes with numbers.
//!
//! - With `verify = "every"` each prefix gets its own trial, with as many trials at once as there
//!   are slots. When a prefix fails, no prefix that is longer is tried until the landing at fault
//!   is known.
//! - With `verify = "tip"` each trial adds a whole batch of landings. When a batch fails, the
//!   landing at fault is found by bisection: as many prefixes that end inside the batch are tried
//!   at once as there are slots.
//!
//! Not here: the move of the trunk to the longest passed prefix (`queue.rs`), and the treatment of
//! the landing at fault (`fault.rs`).

use std::collections::BTreeSet;

use crate::project::{Project, QueueMode, VerifyMode};

/// Known results of the trial merges of a queue, from which the next trials are chosen. A number N
/// stands for the trial of the first N landings of the merge order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrialResults {
    /// Number of landings in the queue that may enter a trial merge.
    pub queue_len: usize,
    /// Numbers N for which the first N landings end with a whole wave (tasks that must land as one
    /// commit). Only a trial merge of such a length can land.
    pub wave_ends: Vec<usize>,
    /// Number of landings in the longest trial merge that may land or is landing.
    pub landable: usize,
    /// Trial merges that passed, each as its number of landings.
    pub passed: BTreeSet<usize>,
    /// Trial merges that failed and whose landing at fault is not yet known, each as its number of
    /// landings.
    pub failed: BTreeSet<usize>,
    /// Trial merges that must pass before a longer trial, which has already passed, may land. Each
    /// is given as its number of landings.
    pub needed: BTreeSet<usize>,
    /// Trial merges that are running, each as its number of landings.
    pub running: Vec<usize>,
    /// Number of slots (permitted simultaneous trial merges) that are taken by running trial merges
    /// whose result will be ignored.
    pub wasted_slots: usize,
}

/// Limits for new trial merges: which commits are validated, how many trials run at once (`slots`),
/// and how many landings each trial adds to the previous trial (`batch`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrialLimits {
    pub verify: VerifyMode,
    pub slots: usize,
    pub batch: usize,
}

/// Returns how many trial merges of a project may run at once: the number in the project's
/// settings, or else `machine_slots`, the number that fits the machine.
pub fn slots(project: &Project, machine_slots: u32) -> u32 {
    let landing = &project.settings.landing;
    match landing.mode {
        QueueMode::Serial => 1,
        QueueMode::Speculative => landing.slots.unwrap_or(machine_slots).clamp(1, 64),
    }
}

/// Returns the trial merges to begin now, each as the number of landings that it merges, the
/// smallest number first.
pub fn next_trials(known: &TrialResults, limits: TrialLimits) -> Vec<usize> {
    let free = limits
        .slots
        .max(1)
        .saturating_sub(known.running.len() + known.wasted_slots);
    let mut begin = match limits.verify {
        VerifyMode::Every => next_every(known, free),
        VerifyMode::Tip => next_tips(known, limits.batch.max(1), free),
    };
    begin.sort_unstable();
    begin
}

/// Chooses trial merges for `verify = "every"`: the shortest prefixes that have no result yet, up
/// to the first prefix that failed. The prefix of length N is the first N landings of the queue.
fn next_every(known: &TrialResults, free: usize) -> Vec<usize> {
    let mut begin = Vec::new();
    let mut before = known.landable;
    for end in known
        .wave_ends
        .iter()
        .copied()
        .filter(|end| *end > known.landable)
    {
        if known.failed.contains(&end) {
            // If a whole wave (tasks that land as one commit) was added since the last passed trial
            // merge, shorter trials search it for the landing at fault. If a single landing was
            // added, it is at fault, and `bisect` returns nothing.
            if known.passed.contains(&before) || before == known.landable {
                begin.extend(bisect(known, before, end, free - begin.len()));
            }
            break;
        }
        if begin.len() == free {
            break;
        }
        if !known.passed.contains(&end) && !known.running.contains(&end) {
            begin.push(end);
        }
        before = end;
    }
    begin
}

/// Chooses trial merges for `verify = "tip"`. If a trial failed, chooses shorter trials that narrow
/// down the landing at fault. Otherwise chooses trials that must pass before longer ones can land,
/// and then trials of new batches.
fn next_tips(known: &TrialResults, batch: usize, free: usize) -> Vec<usize> {
    if let Some(failed) = known.failed.range(known.landable + 1..).next() {
        return bisect(known, known.landable, *failed, free);
    }
    let is_open =
        |length: &usize| !known.passed.contains(length) && !known.running.contains(length);
    let mut begin: Vec<usize> = known
        .needed
        .iter()
        .copied()
        .filter(is_open)
        .take(free)
        .collect();
    begin.extend(next_batches(known, batch, free - begin.len()));
    begin
}

/// Returns the new trial merges for the free slots, each as its number of landings. The first adds
/// one batch of landings to the longest trial that passed or is running, and each further one adds
/// a batch to the trial before it.
fn next_batches(known: &TrialResults, batch: usize, free: usize) -> Vec<usize> {
    let longest = known
        .running
        .iter()
        .chain(&known.passed)
        .copied()
        .max()
        .unwrap_or(0);
    let mut last_end = longest.max(known.landable);
    let mut begin = Vec::new();
    while begin.len() < free && last_end < known.queue_len {
        let wanted_end = (last_end + batch).min(known.queue_len);
        last_end = known
            .wave_ends
            .iter()
            .copied()
            .find(|end| *end >= wanted_end)
            .unwrap_or(known.queue_len);
        begin.push(last_end);
    }
    begin
}

/// Returns the trial merges to run next in order to find the landing at fault, each as its number
/// of landings. All are longer than the longest trial that is known to pass (at least `passed`) and
/// shorter than the shortest that is known to fail (at most `failed`).
fn bisect(known: &TrialResults, passed: usize, failed: usize, free: usize) -> Vec<usize> {
    let shortest_failed = known.failed.range(passed + 1..).next();
    let failed = shortest_failed.map_or(failed, |shortest| failed.min(*shortest));
    let longest_passed = known.passed.range(..failed).next_back();
    let passed = longest_passed.map_or(passed, |longest| passed.max(*longest));
    if failed == passed + 1 {
        // The last landing of the failed trial merge is at fault, because the trial without it
        // passed.
        return vec![];
    }
    let mut ends: Vec<usize> = known
        .running
        .iter()
        .copied()
        .filter(|running| *running > passed && *running < failed)
        .collect();
    let inside = failed - passed - 1;
    if ends.is_empty() {
        let cuts = free.min(inside);
        return (1..=cuts)
            .map(|cut| passed + (cut * (inside + 1)).div_ceil(cuts + 1).min(inside))
            .collect();
    }
    // Some trial merges in this range are already running, so each new trial halves the widest gap
    // between them.
    let mut begin = Vec::new();
    ends.extend([passed, failed]);
    while begin.len() < free {
        ends.sort_unstable();
        let widest = ends
            .windows(2)
            .map(|bounds| (bounds[1] - bounds[0], bounds[0]))
            .max_by_key(|(gap, start)| (*gap, usize::MAX - start));
        let Some((gap, start)) = widest.filter(|(gap, _)| *gap > 1) else {
            break;
        };
        begin.push(start + gap / 2);
        ends.push(start + gap / 2);
    }
    begin
}

/// Maximum number of landings that one trial merge adds to the trial before it.
const MAX_BATCH_SIZE: usize = 16;
/// Number of the latest landings from which the failure rate, and from it the size of a batch, is
/// computed.
pub const MAX_REMEMBERED_LANDINGS: u32 = 32;

/// Returns how many landings a trial merge should add when `failed` of the last `total` landings
/// failed: about 0.4 / p for a failure rate p, so that a trial passes two times out of three. Above
/// a failure rate of one fifth the result is 1.
pub fn batch_size_for(failed: u32, total: u32) -> usize {
    // The constants that are added here make the failure rate one in twenty when there is no
    // history.
    let failed = u64::from(failed) * 10 + 4;
    let total = u64::from(total) * 10 + 80;
    usize::try_from(4 * total / (10 * failed))
        .unwrap_or(MAX_BATCH_SIZE)
        .clamp(1, MAX_BATCH_SIZE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a queue without waves. `green` are prefixes that passed; the longest of them may
    /// land.
    fn known(queue: usize, green: &[usize], red: &[usize], busy: &[usize]) -> TrialResults {
        let ends: Vec<usize> = (1..=queue).collect();
        let landable = green.iter().copied().max().unwrap_or(0);
        let (green, red) = (
            green.iter().copied().collect(),
            red.iter().copied().collect(),
        );
        TrialResults {
            queue_len: queue,
            wave_ends: ends,
            landable,
            passed: green,
            failed: red,
            needed: BTreeSet::new(),
            running: busy.to_vec(),
            wasted_slots: 0,
        }
    }

    #[test]
    fn every_prefix_is_validated_shortest_first() {
        let pace = |slots| TrialLimits {
            verify: VerifyMode::Every,
            slots,
            batch: 8,
        };
        let waiting = |known| TrialResults {
            landable: 0,
            ..known
        };
        assert_eq!(next_trials(&known(9, &[], &[], &[]), pace(3)), [1, 2, 3]);
        assert_eq!(next_trials(&known(9, &[], &[], &[1, 2]), pace(3)), [3]);
        assert_eq!(
            next_trials(&known(9, &[], &[], &[]), pace(1)),
            [1],
            "serial"
        );
        assert_eq!(
            next_trials(&known(2, &[], &[], &[1]), pace(4)),
            [2],
            "a trial was started beyond the end of the queue"
        );
        assert_eq!(
            next_trials(&known(9, &[2], &[], &[3]), pace(3)),
            [4, 5],
            "the trials do not continue after the prefix that may land"
        );
        assert_eq!(
            next_trials(&waiting(known(9, &[2], &[], &[1])), pace(3)),
            [3, 4],
            "a longer prefix passed first"
        );
        assert_eq!(
            next_trials(&waiting(known(9, &[2], &[], &[])), pace(2)),
            [1, 3],
            "Q1: the shorter prefix is still needed"
        );
        assert_eq!(
            next_trials(
                &TrialResults {
                    wasted_slots: 2,
                    ..known(9, &[], &[], &[])
                },
                pace(3)
            ),
            [1]
        );
    }

    /// Q1, Q9: a prefix that failed stops longer ones, whether or not one of them passed.
    #[test]
    fn q1_a_failed_prefix_stops_longer_ones() {
        let pace = TrialLimits {
            verify: VerifyMode::Every,
            slots: 3,
            batch: 8,
        };
        assert_eq!(
            next_trials(&known(9, &[], &[2], &[1]), pace),
            [0; 0],
            "the prefix before the failed one is already being tried"
        );
        assert_eq!(
            next_trials(&known(9, &[], &[2], &[]), pace),
            [1],
            "the prefix before the failed one decides which landing is at fault"
        );
        let longer = TrialResults {
            landable: 1,
            ..known(9, &[1, 3], &[2], &[])
        };
        assert_eq!(
            next_trials(&longer, pace),
            [0; 0],
            "a trial was started although the failing landing is known"
        );
    }

    /// A wave lands whole, so only its end is tried, until it fails.
    #[test]
    fn a_wave_is_tried_as_a_whole_and_split_when_it_fails() {
        let pace = TrialLimits {
            verify: VerifyMode::Every,
            slots: 2,
            batch: 8,
        };
        let wave = |known| TrialResults {
            wave_ends: vec![1, 5, 6],
            ..known
        };
        assert_eq!(next_trials(&wave(known(6, &[], &[], &[])), pace), [1, 5]);
        assert_eq!(next_trials(&wave(known(6, &[1], &[], &[])), pace), [5, 6]);
        assert_eq!(
            next_trials(&wave(known(6, &[1], &[5], &[])), pace),
            [3, 4],
            "two slots split the wave in three parts"
        );
        let searched = TrialResults {
            landable: 1,
            ..wave(known(6, &[1, 3], &[5], &[]))
        };
        assert_eq!(next_trials(&searched, pace), [4]);
        assert_eq!(
            next_trials(&wave(known(6, &[], &[5], &[])), pace),
            [1],
            "the prefix before the wave comes first"
        );
        assert_eq!(
            next_trials(&wave(known(6, &[1], &[3, 5], &[])), pace),
            [2],
            "the search is not below the shortest failed prefix"
        );
    }

    #[test]
    fn each_batch_builds_on_the_one_before() {
        let pace = |slots, batch| TrialLimits {
            verify: VerifyMode::Tip,
            slots,
            batch,
        };
        assert_eq!(next_trials(&known(10, &[], &[], &[]), pace(2, 4)), [4, 8]);
        assert_eq!(next_trials(&known(10, &[], &[], &[4]), pace(2, 4)), [8]);
        assert_eq!(
            next_trials(&known(10, &[4], &[], &[8]), pace(2, 4)),
            [10],
            "the last batch is shorter"
        );
        assert_eq!(
            next_trials(&known(10, &[], &[], &[4, 8]), pace(2, 4)),
            [0; 0],
            "the slots are full"
        );
        assert_eq!(
            next_trials(&known(3, &[], &[], &[3]), pace(4, 2)),
            [0; 0],
            "a trial was started although the whole queue is being tried"
        );
        assert_eq!(
            next_trials(&known(9, &[], &[], &[]), pace(3, 1)),
            [1, 2, 3],
            "a chain"
        );
        assert_eq!(
            next_trials(&known(9, &[], &[], &[]), pace(1, 1)),
            [1],
            "serial"
        );
        assert_eq!(
            next_trials(
                &TrialResults {
                    wasted_slots: 1,
                    ..known(9, &[], &[], &[])
                },
                pace(2, 4)
            ),
            [4]
        );
        let waves = TrialResults {
            wave_ends: vec![1, 2, 6, 9],
            ..known(9, &[], &[], &[])
        };
        assert_eq!(
            next_trials(&waves, pace(2, 3)),
            [6, 9],
            "a batch ends inside a wave"
        );
        let claimed = TrialResults {
            landable: 0,
            needed: [4].into(),
            ..known(10, &[8], &[], &[])
        };
        assert_eq!(
            next_trials(&claimed, pace(2, 4)),
            [4, 10],
            "a prefix that a longer one counts on is validated first"
        );
    }

    #[test]
    fn a_failed_batch_is_split() {
        let two = TrialLimits {
            verify: VerifyMode::Tip,
            slots: 2,
            batch: 8,
        };
        assert_eq!(
            next_trials(&known(20, &[], &[8], &[]), TrialLimits { slots: 1, ..two }),
            [4],
            "halved"
        );
        assert_eq!(
            next_trials(&known(20, &[], &[6], &[]), two),
            [2, 4],
            "two slots split the batch in three parts"
        );
        assert_eq!(
            next_trials(&known(20, &[], &[6], &[16]), two),
            [3],
            "the other slot is still taken by a longer trial"
        );
        assert_eq!(
            next_trials(&known(20, &[], &[4], &[2]), two),
            [1],
            "the widest gap is split first, and the earlier one of equal gaps"
        );
        assert_eq!(next_trials(&known(20, &[2], &[4], &[]), two), [3]);
        assert_eq!(
            next_trials(&known(20, &[], &[1], &[]), two),
            [0; 0],
            "a trial was started although the failing landing is known"
        );
        let longer = TrialResults {
            landable: 0,
            ..known(20, &[8], &[4], &[])
        };
        assert_eq!(
            next_trials(&longer, two),
            [2, 3],
            "Q1: a longer prefix that passed ends the search"
        );
    }

    /// A search has a trial to run until the failing landing is found, never starts a trial that is
    /// already running, and stays between the known prefixes.
    #[test]
    fn a_search_always_has_a_next_trial_until_it_ends() {
        for (red, green, slots) in (1..=16)
            .flat_map(|red| (0..red).flat_map(move |green| (1..=4).map(move |n| (red, green, n))))
        {
            for busy in 0_u32..1 << (red - 1) {
                let busy: Vec<usize> = (1..red).filter(|n| busy & (1 << (n - 1)) != 0).collect();
                if busy.len() >= slots || red > 8 && !busy.is_empty() {
                    continue;
                }
                let passed: Vec<usize> = (green > 0).then_some(green).into_iter().collect();
                let pace = TrialLimits {
                    verify: VerifyMode::Tip,
                    slots,
                    batch: 4,
                };
                let begin = next_trials(&known(32, &passed, &[red], &busy), pace);
                assert!(
                    begin
                        .iter()
                        .all(|begin| *begin > green && *begin <= red && !busy.contains(begin)),
                    "{begin:?}"
                );
                assert!(
                    begin.windows(2).all(|begin| begin[0] < begin[1]),
                    "{begin:?}"
                );
                let open =
                    busy.iter().any(|busy| *busy > green) || !begin.is_empty() || red == green + 1;
                assert!(
                    open,
                    "nothing is tried between {green} and {red} with {busy:?} under way"
                );
            }
        }
    }

    #[test]
    fn the_batch_size_shrinks_with_the_failures() {
        let cases = [
            (0, 0, 8),
            (0, 32, 16),
            (1, 20, 8),
            (2, 32, 6),
            (3, 30, 4),
            (4, 20, 2),
            (7, 32, 2),
            (10, 32, 1),
            (5, 5, 1),
        ];
        for (red, seen, batch) in cases {
            assert_eq!(batch_size_for(red, seen), batch, "{red} of {seen}");
        }
    }
}
