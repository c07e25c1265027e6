//! Reads the past from the stored events. Returns the board (the state of all unfinished work) as
//! it was at any revision (event number). Also returns the timelines of tasks, which say in which
//! states a task was, and when.
//!
//! The events are applied in order from the first one (D4). Some boards on the way are kept as
//! checkpoints, so that the next query can begin near its answer. Checkpoints share equal parts in
//! memory. The distance between them grows with the log. A timeline that was read is kept too, so
//! that a later query can continue the timeline from its last event.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use regatta_core::board::Board;
use regatta_core::event::Recorded;
use regatta_core::ids::TaskId;
use regatta_core::task_timeline::{TaskTimeline, TimelineFold};

use crate::ports::store::{StoreError, StoreHistory};

/// The largest number of checkpoints (past boards that are kept so that a query can begin there).
const MAX_CHECKPOINTS: usize = 12;
/// The distance between two checkpoints in revisions (event numbers) while the log of events is
/// short. A checkpoint is a past board that is kept.
const MIN_CHECKPOINT_DISTANCE: u64 = 2_000;
/// The largest number of task timelines that are kept so that a later query can continue them.
const MAX_TIMELINES: usize = 24;
/// The number of events that one query to the store reads.
const PAGE_SIZE: usize = 500;

/// Reads boards (the state of all unfinished work) and timelines of the past, and caches them.
#[derive(Default)]
pub struct TimelineReader {
    cache: Mutex<TimelineCache>,
}

#[derive(Default)]
struct TimelineCache {
    checkpoints: BTreeMap<u64, Board>,
    /// The smallest distance between two checkpoints at present, in revisions (event numbers). A
    /// checkpoint is a past board that is kept. The distance doubles whenever there are too many
    /// checkpoints.
    checkpoint_distance: u64,
    timelines: BTreeMap<TaskId, (TimelineFold, u64)>,
    /// The total number of task timelines that were read. Each timeline remembers its number, so
    /// that the timeline that was read longest ago can be removed first when there are too many.
    read_count: u64,
}

impl TimelineCache {
    /// Keeps a board as a checkpoint, a past board at which a query can begin. Drops a board whose
    /// revision (event number) is too close to the revision of another checkpoint.
    fn add_checkpoint(&mut self, board: &Board) {
        self.checkpoint_distance = self.checkpoint_distance.max(MIN_CHECKPOINT_DISTANCE);
        let previous = self.checkpoints.range(..=board.revision).next_back();
        let next = self.checkpoints.range(board.revision..).next();
        let previous_revision = previous.map_or(0, |(revision, _)| *revision);
        if board.revision < previous_revision + self.checkpoint_distance
            || next
                .is_some_and(|(revision, _)| *revision < board.revision + self.checkpoint_distance)
        {
            return;
        }
        self.checkpoints.insert(board.revision, board.clone());
        if self.checkpoints.len() > MAX_CHECKPOINTS {
            self.checkpoint_distance *= 2;
            let (mut last_kept, distance) = (0, self.checkpoint_distance);
            self.checkpoints.retain(|revision, _| {
                let is_kept = *revision >= last_kept + distance;
                if is_kept {
                    last_kept = *revision;
                }
                is_kept
            });
        }
    }
}

impl TimelineReader {
    fn lock_cache(&self) -> MutexGuard<'_, TimelineCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the board (the state of all unfinished work) as it was at `revision` (an event
    /// number). The board between two events of one transaction was never visible to any reader,
    /// but can be returned too.
    pub fn board_at(&self, history: &dyn StoreHistory, revision: u64) -> Result<Board, StoreError> {
        let mut board = self
            .lock_cache()
            .checkpoints
            .range(..=revision)
            .next_back()
            .map(|(_, board)| board.clone())
            .unwrap_or_default();
        let after = board.revision;
        read_events(history, after, revision, |page| {
            page.iter().for_each(|event| board.fold(event));
            self.lock_cache().add_checkpoint(&board);
        })?;
        Ok(board)
    }

    /// Returns the timelines of several tasks up to the revision (event number) `until`, in one
    /// pass over the events. A timeline says in which states a task was, and when.
    pub fn timelines(
        &self,
        history: &dyn StoreHistory,
        tasks: &[TaskId],
        until: u64,
    ) -> Result<Vec<TaskTimeline>, StoreError> {
        let Some(first) = tasks.iter().min() else {
            return Ok(vec![]);
        };
        let before = self
            .lock_cache()
            .checkpoints
            .values()
            .rev()
            .find(|board| board.counters.task < first.0)
            .cloned();
        let mut fold = TimelineFold::new(before.unwrap_or_default(), tasks);
        read_events(history, fold.board().revision, until, |page| {
            page.iter().for_each(|event| fold.apply(event));
            self.lock_cache().add_checkpoint(fold.board());
        })?;
        fold.finish_commit();
        Ok(fold
            .timelines()
            .iter()
            .map(|(_, timeline)| timeline.clone())
            .collect())
    }

    /// Returns the revision (event number) of the newest checkpoint whose board satisfies
    /// `is_earlier`, or 0 if there is no such checkpoint. A checkpoint is a past board that is kept
    /// so that a query can begin there. Everything that this board lacks happened after that
    /// revision.
    pub fn newest_checkpoint_where(&self, is_earlier: impl Fn(&Board) -> bool) -> u64 {
        self.lock_cache()
            .checkpoints
            .values()
            .rev()
            .find(|board| is_earlier(board))
            .map_or(0, |board| board.revision)
    }

    /// Returns the timeline of a task (the states in which it was, and when) up to the revision
    /// (event number) `until`. The task's state at that revision has no end yet.
    pub fn timeline(
        &self,
        history: &dyn StoreHistory,
        task: TaskId,
        until: u64,
    ) -> Result<TaskTimeline, StoreError> {
        let mut fold = {
            let mut cache = self.lock_cache();
            match cache
                .timelines
                .remove(&task)
                .filter(|(fold, _)| fold.board().revision <= until)
            {
                Some((fold, _)) => fold,
                None => {
                    // Begin with the newest kept board (the state of all unfinished work) on which
                    // the task did not exist yet.
                    let before = cache
                        .checkpoints
                        .values()
                        .rev()
                        .find(|board| board.counters.task < task.0);
                    TimelineFold::new(before.cloned().unwrap_or_default(), &[task])
                }
            }
        };
        read_events(history, fold.board().revision, until, |page| {
            page.iter().for_each(|event| fold.apply(event));
            self.lock_cache().add_checkpoint(fold.board());
        })?;
        fold.finish_commit();
        let timeline = fold
            .timelines()
            .first()
            .map(|(_, timeline)| timeline.clone())
            .unwrap_or_default();
        let mut cache = self.lock_cache();
        cache.read_count += 1;
        let read_number = cache.read_count;
        cache.timelines.insert(task, (fold, read_number));
        if cache.timelines.len() > MAX_TIMELINES
            && let Some(oldest) = cache
                .timelines
                .iter()
                .min_by_key(|(_, (_, read_number))| *read_number)
                .map(|(task, _)| *task)
        {
            cache.timelines.remove(&oldest);
        }
        Ok(timeline)
    }
}

/// Calls `each` with the events after the revision (event number) `after` up to the revision
/// `until`, one page of events at a time.
fn read_events(
    history: &dyn StoreHistory,
    mut after: u64,
    until: u64,
    mut each: impl FnMut(&[Recorded]),
) -> Result<(), StoreError> {
    while after < until {
        let mut page = history.events(after, PAGE_SIZE)?;
        page.retain(|event| event.revision <= until);
        let Some(last) = page.last() else { break };
        after = last.revision;
        each(&page);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn board(revision: u64) -> Board {
        let mut board = Board::default();
        board.revision = revision;
        board
    }

    /// However long the log gets, the number of checkpoints stays small, and they are spread over
    /// the log.
    #[test]
    fn checkpoints_thin_out_as_the_log_grows() {
        let mut cache = TimelineCache::default();
        for revision in (0..1_000_000).step_by(500) {
            cache.add_checkpoint(&board(revision));
        }
        assert!(
            cache.checkpoints.len() <= MAX_CHECKPOINTS
                && cache.checkpoints.len() >= MAX_CHECKPOINTS / 3,
            "{:?}",
            cache.checkpoints.keys()
        );
        let revisions: Vec<u64> = cache.checkpoints.keys().copied().collect();
        assert!(
            revisions
                .windows(2)
                .all(|pair| pair[1] - pair[0] >= cache.checkpoint_distance),
            "{revisions:?}"
        );
        assert!(
            revisions
                .last()
                .is_some_and(|last| *last >= 1_000_000 - 2 * cache.checkpoint_distance),
            "no checkpoint is near the end: {revisions:?}"
        );
        // A repeated query adds no second checkpoint beside the first.
        let before = revisions.len();
        (0..1_000_000)
            .step_by(500)
            .for_each(|revision| cache.add_checkpoint(&board(revision)));
        assert_eq!(cache.checkpoints.len(), before);
    }
}
