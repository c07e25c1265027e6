//! Speculation: which prefixes of the queue are validated next. Numbers in, numbers out.
//!
//! Every trial is a prefix of one order, so a trial is a length. Batches are validated one on top of the other; a
//! batch that fails is searched by halving, with as many cuts at once as there are slots; what is green lands as far
//! as it goes. Only a prefix of one that fails twice is a verdict, so a flake costs one retry and no landing.

use crate::project::{Project, QueueMode};

/// What is known of the queue, as lengths of its prefixes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// How many landings may be tried, in order.
    pub queue: usize,
    /// The longest prefix that passed and has not landed yet.
    pub green: usize,
    /// The shortest prefix that failed.
    pub red: Option<usize>,
    /// Prefixes under way.
    pub busy: Vec<usize>,
    /// Slots taken by trials whose result no longer counts.
    pub lost: usize,
}

/// How many trees are validated at once, and how many landings more each one carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    pub slots: usize,
    pub batch: usize,
}

/// How many trees of a project are validated at once; `fitting` is what fits the machine.
pub fn slots(project: &Project, fitting: u32) -> u32 {
    let landing = &project.settings.landing;
    match landing.mode {
        QueueMode::Serial => 1,
        QueueMode::Speculative => landing.slots.unwrap_or(fitting).clamp(1, 64),
    }
}

/// The prefixes to begin now, shortest first.
pub fn next(known: &Known, pace: Pace) -> Vec<usize> {
    let free = pace.slots.max(1).saturating_sub(known.busy.len() + known.lost);
    let red = known.red.filter(|it| *it > known.green);
    let mut begin = match red {
        Some(red) => search(known, red, free),
        None => batches(known, pace.batch.max(1), free),
    };
    begin.sort_unstable();
    begin
}

/// One batch more on top of what is under way, for each free slot.
fn batches(known: &Known, batch: usize, free: usize) -> Vec<usize> {
    let mut from = known.busy.iter().copied().max().unwrap_or(0).max(known.green);
    let mut begin = Vec::new();
    while begin.len() < free && from < known.queue {
        from = (from + batch).min(known.queue);
        begin.push(from);
    }
    begin
}

/// Cuts between what is known to be green and what is known to be red.
fn search(known: &Known, red: usize, free: usize) -> Vec<usize> {
    if red == known.green + 1 {
        // It alone makes the difference: it is tried once more, by itself.
        return if free > 0 && !known.busy.contains(&red) { vec![red] } else { vec![] };
    }
    let mut ends: Vec<usize> = known.busy.iter().copied().filter(|it| *it > known.green && *it < red).collect();
    let inside = red - known.green - 1;
    if ends.is_empty() {
        let cuts = free.min(inside);
        return (1..=cuts).map(|nth| known.green + (nth * (inside + 1)).div_ceil(cuts + 1).min(inside)).collect();
    }
    // Some cuts are under way: the widest gap between them is halved.
    let mut begin = Vec::new();
    ends.extend([known.green, red]);
    while begin.len() < free {
        ends.sort_unstable();
        let widest = ends.windows(2).map(|it| (it[1] - it[0], it[0])).max_by_key(|it| (it.0, usize::MAX - it.1));
        let Some((gap, from)) = widest.filter(|it| it.0 > 1) else { break };
        begin.push(from + gap / 2);
        ends.push(from + gap / 2);
    }
    begin
}

/// The most landings that one trial adds.
pub const LARGEST_BATCH: usize = 16;
/// How many past landings the failure rate is taken from.
pub const REMEMBERED: u32 = 32;

/// How many landings to validate together when `red` of the last `seen` failed: about 0.4 / p, so that a batch passes
/// two times out of three. Above a fifth that is one at a time, each on top of the one before: a chain.
pub fn batch_for(red: u32, seen: u32) -> usize {
    // Nothing seen counts as one failure in twenty.
    let (red, seen) = (u64::from(red) * 10 + 4, u64::from(seen) * 10 + 80);
    usize::try_from(4 * seen / (10 * red)).unwrap_or(LARGEST_BATCH).clamp(1, LARGEST_BATCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(queue: usize, green: usize, red: impl Into<Option<usize>>, busy: &[usize]) -> Known {
        Known { queue, green, red: red.into(), busy: busy.to_vec(), lost: 0 }
    }

    #[test]
    fn batches_stand_on_top_of_each_other() {
        let pace = |slots, batch| Pace { slots, batch };
        assert_eq!(next(&known(10, 0, None, &[]), pace(2, 4)), [4, 8]);
        assert_eq!(next(&known(10, 0, None, &[4]), pace(2, 4)), [8]);
        assert_eq!(next(&known(10, 4, None, &[8]), pace(2, 4)), [10], "the last one is short");
        assert_eq!(next(&known(10, 0, None, &[4, 8]), pace(2, 4)), [0; 0], "the slots are full");
        assert_eq!(next(&known(3, 0, None, &[3]), pace(4, 2)), [0; 0], "nothing is left");
        assert_eq!(next(&known(9, 0, None, &[]), pace(3, 1)), [1, 2, 3], "a chain");
        assert_eq!(next(&known(9, 0, None, &[]), pace(1, 1)), [1], "serial");
        assert_eq!(next(&Known { lost: 1, ..known(9, 0, None, &[]) }, pace(2, 4)), [4]);
    }

    #[test]
    fn a_red_batch_is_cut() {
        let two = Pace { slots: 2, batch: 8 };
        assert_eq!(next(&known(20, 0, 8, &[]), Pace { slots: 1, batch: 8 }), [4], "halved");
        assert_eq!(next(&known(20, 0, 6, &[]), two), [2, 4], "in three parts with two slots");
        assert_eq!(next(&known(20, 0, 6, &[16]), two), [3], "the one beyond is still under way");
        assert_eq!(next(&known(20, 0, 4, &[2]), two), [1], "the widest gap, the earlier first");
        assert_eq!(next(&known(20, 2, 4, &[]), two), [3]);
        assert_eq!(next(&known(20, 0, 1, &[]), two), [1], "once more, alone");
        assert_eq!(next(&known(20, 0, 1, &[1]), two), [0; 0]);
        assert_eq!(next(&known(20, 3, 4, &[]), two), [4], "what passed is only waiting for the trunk");
        assert_eq!(next(&known(20, 8, 4, &[]), two), [16, 20], "a longer one passed: that was a flake");
    }

    /// A search always has something to do, never begins what is under way, and stays between its ends.
    #[test]
    fn a_search_ends() {
        for red in 1..=16 {
            for green in 0..red {
                for slots in 1..=4 {
                    for busy in 0_u32..1 << (red - 1) {
                        let busy: Vec<usize> = (1..red).filter(|it| busy & (1 << (it - 1)) != 0).collect();
                        if busy.len() >= slots || red > 8 && !busy.is_empty() {
                            continue;
                        }
                        let begin = next(&known(32, green, red, &busy), Pace { slots, batch: 4 });
                        assert!(begin.iter().all(|it| *it > green && *it <= red && !busy.contains(it)), "{begin:?}");
                        assert!(begin.windows(2).all(|it| it[0] < it[1]), "{begin:?}");
                        let open = busy.iter().any(|it| *it > green) || !begin.is_empty();
                        assert!(open, "nothing is tried between {green} and {red} with {busy:?} under way");
                    }
                }
            }
        }
    }

    #[test]
    fn the_batch_follows_the_failures() {
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
            assert_eq!(batch_for(red, seen), batch, "{red} of {seen}");
        }
    }
}
