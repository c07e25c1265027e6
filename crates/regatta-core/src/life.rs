//! A task's life: its activities and waits as intervals, derived from the stored log.
//!
//! The log is the record. Folding it (D4) and checking the board after each commit shows the begin
//! and end of each wait with its reason, to the millisecond. Stored intervals would duplicate the
//! log, would cost each commit a check of all waiting tasks, and could contradict the events.
//!
//! W1 over time: from the time it is added until it ends, a task is in exactly one interval, and an
//! interval in which nobody works on it has a reason of the closed set.

use serde::{Deserialize, Serialize};

use crate::approval;
use crate::board::Board;
use crate::event::Recorded;
use crate::ids::{AttemptId, Now, TaskId};
use crate::schedule::{self, WaitKind};
use crate::session::Want;
use crate::task::{Status, Task};

/// Maximum number of single intervals of a task. Older ones are only in the sums.
const MOST_STRETCHES: usize = 200;

/// A task's current activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Doing {
    /// An agent works on it.
    Working,
    /// An agent's result is being checked.
    Checking,
    /// It waits for this kind of thing.
    Waiting(WaitKind),
}

/// An interval in which a task had one activity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stretch {
    pub doing: Doing,
    /// Latest description in words.
    pub text: String,
    /// The attempt that worked on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<AttemptId>,
    /// The revision at which it began.
    pub revision: u64,
    pub from_wall: u64,
    /// End of the interval; `None` while it lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_wall: Option<u64>,
    /// Begin on the fleet clock, which ignores changes of the date.
    #[serde(skip)]
    from_at: u64,
}

impl Stretch {
    /// Returns its length so far in milliseconds.
    pub fn ms(&self, wall: u64) -> u64 {
        self.to_wall.unwrap_or(wall).saturating_sub(self.from_wall)
    }
}

/// The total time of a task in one activity, over its ended intervals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Sum {
    pub doing: Doing,
    pub times: u32,
    pub ms: u64,
}

/// All activities of a task since it was added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Life {
    /// Intervals in order. The last one has no end while it lasts.
    pub stretches: Vec<Stretch>,
    /// Number of earlier intervals that are only in the sums.
    #[serde(skip_serializing_if = "is_zero")]
    pub left_out: u64,
    /// Totals, the longest first.
    pub sums: Vec<Sum>,
}

fn is_zero(it: &u64) -> bool {
    *it == 0
}

impl Life {
    /// Updates the intervals after a commit. Intervals without any length are dropped, because
    /// nobody could see them.
    pub fn see(&mut self, board: &Board, task: TaskId, now: Now) {
        let next = board.tasks.get(&task).map(|it| doing(board, it, now));
        if let Some(last) = self.stretches.last_mut().filter(|it| it.to_wall.is_none()) {
            if let Some((doing, text, attempt)) = &next
                && last.doing == *doing
                && last.attempt == *attempt
            {
                last.text.clone_from(text);
                return;
            }
            if last.from_at == now.at {
                self.stretches.pop();
                self.take_up(&next, now);
            } else {
                // If the date was set back, the interval must not end before it begins.
                last.to_wall = Some(now.wall.max(last.from_wall));
            }
        }
        let Some((doing, text, attempt)) = next else { return };
        if self.stretches.last().is_some_and(|it| it.to_wall.is_none()) {
            return; // the earlier interval continues
        }
        let (revision, from_wall) = (board.revision, now.wall);
        self.stretches.push(Stretch { doing, text, attempt, revision, from_wall, to_wall: None, from_at: now.at });
        self.add_up();
    }

    /// Reopens the last interval, if the task has the same activity again after a dropped interval
    /// without length.
    fn take_up(&mut self, next: &Option<(Doing, String, Option<AttemptId>)>, now: Now) {
        if let (Some(last), Some((doing, text, attempt))) = (self.stretches.last_mut(), next)
            && (last.doing, last.attempt) == (*doing, *attempt)
            && last.to_wall == Some(now.wall.max(last.from_wall))
        {
            (last.to_wall, last.text) = (None, text.clone());
        }
    }

    /// Moves intervals beyond the maximum into the sums.
    fn add_up(&mut self) {
        while self.stretches.len() > MOST_STRETCHES {
            let gone = self.stretches.remove(0);
            self.left_out += 1;
            add(&mut self.sums, &gone);
        }
    }

    /// Returns the life with sums that include all intervals up to `wall`.
    pub fn shown(&self, wall: u64) -> Life {
        let mut shown = self.clone();
        for it in &self.stretches {
            let upto = Stretch { to_wall: Some(it.to_wall.unwrap_or(wall)), ..it.clone() };
            add(&mut shown.sums, &upto);
        }
        shown.sums.sort_by_key(|it| std::cmp::Reverse(it.ms));
        shown
    }

    /// Returns the waits in order: the intervals in which nobody worked on the task.
    pub fn waits(&self) -> impl Iterator<Item = (WaitKind, &Stretch)> {
        self.stretches.iter().filter_map(|it| match it.doing {
            Doing::Waiting(kind) => Some((kind, it)),
            Doing::Working | Doing::Checking => None,
        })
    }
}

/// Adds an interval to the sums.
fn add(sums: &mut Vec<Sum>, it: &Stretch) {
    let ms = it.ms(it.from_wall);
    match sums.iter_mut().find(|sum| sum.doing == it.doing) {
        Some(sum) => (sum.times, sum.ms) = (sum.times + 1, sum.ms + ms),
        None => sums.push(Sum { doing: it.doing, times: 1, ms }),
    }
}

/// Returns an open task's activity with a description and the attempt. An attempt with an open
/// request counts as waiting.
pub fn doing(board: &Board, task: &Task, now: Now) -> (Doing, String, Option<AttemptId>) {
    if task.status.is_running() {
        let by = task.attempt.and_then(|it| board.attempts.get(&it));
        let open = by.and_then(|by| approval::open_of(board, by));
        if let (Some(by), Some(open)) = (by, open) {
            let kind = match open.ask.want {
                Want::Permission { .. } => WaitKind::Permission,
                Want::Question { .. } => WaitKind::Question,
            };
            return (Doing::Waiting(kind), format!("{} asks: {}", open.id, open.subject()), Some(by.id));
        }
        let doing = if task.status == Status::Validating { Doing::Checking } else { Doing::Working };
        let text = by.map_or_else(String::new, |attempt| attempt.label());
        return (doing, text, by.map(|it| it.id));
    }
    match schedule::wait_reasons(board, task, now).into_iter().next() {
        Some(it) => (Doing::Waiting(it.kind), lasting(it.text), None),
        // W1 excludes this case, but a reader of the past should not fail because of it.
        None => (Doing::Waiting(WaitKind::Runner), "the reason is unknown".into(), None),
    }
}

/// Removes the remaining time from a reason, because it is only true at the time of writing.
fn lasting(mut text: String) -> String {
    if text.ends_with(" more unless renewed")
        && let Some(at) = text.rfind(" for ")
    {
        text.truncate(at);
    }
    text
}

/// Folds a log and records the lives of some tasks. Pass each event in order to [`Telling::hear`],
/// then call [`Telling::rest`].
#[derive(Clone, Debug)]
pub struct Telling {
    board: Board,
    lives: Vec<(TaskId, Life)>,
    /// Time of the last event, if its commit may be incomplete.
    pending: Option<Now>,
}

impl Telling {
    /// Starts with a board from before the tasks were added.
    pub fn begin(board: Board, tasks: &[TaskId]) -> Telling {
        Telling { board, lives: tasks.iter().map(|it| (*it, Life::default())).collect(), pending: None }
    }

    /// Applies the next event. All events of a commit have the same time, and states within a
    /// commit are never visible.
    pub fn hear(&mut self, recorded: &Recorded) {
        if let Some(then) = self.pending.filter(|it| *it != recorded.now) {
            self.look(then);
        }
        self.board.fold(recorded);
        self.pending = Some(recorded.now);
    }

    /// Finishes the last commit.
    pub fn rest(&mut self) {
        if let Some(then) = self.pending.take() {
            self.look(then);
        }
    }

    /// Updates the lives from the board at the end of a commit.
    fn look(&mut self, then: Now) {
        for (task, life) in &mut self.lives {
            life.see(&self.board, *task, then);
        }
    }

    /// Returns the life of each task, in the order of the request.
    pub fn lives(&self) -> &[(TaskId, Life)] {
        &self.lives
    }

    /// Returns the board after the last event.
    pub fn board(&self) -> &Board {
        &self.board
    }
}
