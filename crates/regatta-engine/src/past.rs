//! Reads the past from the stored event log: the board at any revision, and the timelines of tasks.
//!
//! The log is folded from its start (D4). Some boards on the way are kept as checkpoints, so that
//! the next query begins near its answer. They share their common parts, and are thinned out as the
//! log grows. A timeline that was read is kept too, and continues from its last event.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use regatta_core::board::Board;
use regatta_core::event::Recorded;
use regatta_core::ids::TaskId;
use regatta_core::life::{Life, Telling};

use crate::ports::store::{History, StoreError};

/// The largest number of checkpoints, and their first distance in revisions.
const MOST_MARKS: usize = 12;
const APART: u64 = 2_000;
/// The largest number of timelines that are kept to be continued.
const MOST_LIVES: usize = 24;
/// The number of events that one query reads.
const PAGE: usize = 500;

/// A cache of the boards and timelines that were read.
#[derive(Default)]
pub struct Past {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    marks: BTreeMap<u64, Board>,
    /// The current distance between two checkpoints.
    apart: u64,
    lives: BTreeMap<TaskId, (Telling, u64)>,
    /// A counter of the timelines that were read. The one that was read longest ago is removed
    /// first.
    asked: u64,
}

impl Kept {
    /// Keeps a board as a checkpoint if it is far enough from the others.
    fn mark(&mut self, board: &Board) {
        self.apart = self.apart.max(APART);
        let last = self.marks.range(..=board.revision).next_back().map_or(0, |it| *it.0);
        let next = self.marks.range(board.revision..).next().map(|it| *it.0);
        if board.revision < last + self.apart || next.is_some_and(|it| it < board.revision + self.apart) {
            return;
        }
        self.marks.insert(board.revision, board.clone());
        if self.marks.len() > MOST_MARKS {
            self.apart *= 2;
            let (mut before, apart) = (0, self.apart);
            self.marks.retain(|at, _| {
                let stays = *at >= before + apart;
                before = if stays { *at } else { before };
                stays
            });
        }
    }
}

impl Past {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the board at a revision. A revision between two events of one commit gives a board
    /// that never was visible.
    pub fn board_at(&self, history: &dyn History, revision: u64) -> Result<Board, StoreError> {
        let mut board = self.kept().marks.range(..=revision).next_back().map(|it| it.1.clone()).unwrap_or_default();
        let after = board.revision;
        pages(history, after, revision, |page| {
            page.iter().for_each(|it| board.fold(it));
            self.kept().mark(&board);
        })?;
        Ok(board)
    }

    /// Returns the timelines of several tasks up to a revision, in one pass over the log.
    pub fn lives(&self, history: &dyn History, tasks: &[TaskId], until: u64) -> Result<Vec<Life>, StoreError> {
        let Some(first) = tasks.iter().min() else { return Ok(vec![]) };
        let before = self.kept().marks.values().rev().find(|it| it.counters.task < first.0).cloned();
        let mut telling = Telling::begin(before.unwrap_or_default(), tasks);
        pages(history, telling.board().revision, until, |page| {
            page.iter().for_each(|it| telling.hear(it));
            self.kept().mark(telling.board());
        })?;
        telling.rest();
        Ok(telling.lives().iter().map(|it| it.1.clone()).collect())
    }

    /// Returns the revision of the newest checkpoint for which `earlier` holds, or 0. Everything
    /// that such a board lacks comes after that revision.
    pub fn before(&self, earlier: impl Fn(&Board) -> bool) -> u64 {
        self.kept().marks.values().rev().find(|it| earlier(it)).map_or(0, |it| it.revision)
    }

    /// Returns the timeline of a task up to a revision. Its last stretches are open.
    pub fn life(&self, history: &dyn History, task: TaskId, until: u64) -> Result<Life, StoreError> {
        let mut telling = {
            let mut kept = self.kept();
            match kept.lives.remove(&task).filter(|it| it.0.board().revision <= until) {
                Some((telling, _)) => telling,
                None => {
                    // The last board on which the task did not exist yet.
                    let before = kept.marks.values().rev().find(|it| it.counters.task < task.0);
                    Telling::begin(before.cloned().unwrap_or_default(), &[task])
                }
            }
        };
        pages(history, telling.board().revision, until, |page| {
            page.iter().for_each(|it| telling.hear(it));
            self.kept().mark(telling.board());
        })?;
        telling.rest();
        let life = telling.lives().first().map(|it| it.1.clone()).unwrap_or_default();
        let mut kept = self.kept();
        kept.asked += 1;
        let asked = kept.asked;
        kept.lives.insert(task, (telling, asked));
        if kept.lives.len() > MOST_LIVES
            && let Some(oldest) = kept.lives.iter().min_by_key(|it| it.1.1).map(|it| *it.0)
        {
            kept.lives.remove(&oldest);
        }
        Ok(life)
    }
}

/// Reads the events after one revision up to another, a page at a time.
fn pages(
    history: &dyn History,
    mut after: u64,
    until: u64,
    mut each: impl FnMut(&[Recorded]),
) -> Result<(), StoreError> {
    while after < until {
        let mut page = history.events(after, PAGE)?;
        page.retain(|it| it.revision <= until);
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
        let mut kept = Kept::default();
        for revision in (0..1_000_000).step_by(500) {
            kept.mark(&board(revision));
        }
        assert!(kept.marks.len() <= MOST_MARKS && kept.marks.len() >= MOST_MARKS / 3, "{:?}", kept.marks.keys());
        let at: Vec<u64> = kept.marks.keys().copied().collect();
        assert!(at.windows(2).all(|it| it[1] - it[0] >= kept.apart), "{at:?}");
        assert!(at.last().is_some_and(|it| *it >= 1_000_000 - 2 * kept.apart), "no checkpoint is near the end: {at:?}");
        // A repeated query adds no second checkpoint beside the first.
        let before = at.len();
        (0..1_000_000).step_by(500).for_each(|it| kept.mark(&board(it)));
        assert_eq!(kept.marks.len(), before);
    }
}
