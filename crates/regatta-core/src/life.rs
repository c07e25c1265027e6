//! A task's life: what it was at, stretch by stretch, as the stored log tells it.
//!
//! The log is the record. Whoever folds it (D4) and looks at the board after every commit sees each wait begin and end
//! with its reason, to the millisecond. A row of intervals beside the log would say the same a second time, would cost
//! every commit a look at every task that waits, and could disagree with the events it was made from.
//!
//! W1, over time: from the moment it is added until it ends, a task is in exactly one stretch, and a stretch in which
//! nobody works on it has a reason of the closed set.

use serde::{Deserialize, Serialize};

use crate::approval;
use crate::board::Board;
use crate::event::Recorded;
use crate::ids::{AttemptId, Now, TaskId};
use crate::schedule::{self, WaitKind};
use crate::session::Want;
use crate::task::{Status, Task};

/// How many stretches of one life are kept one by one; the sums keep the rest.
const MOST_STRETCHES: usize = 200;

/// What a task is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Doing {
    /// An agent is at it.
    Working,
    /// What an agent left is being checked.
    Checking,
    /// It waits, for this.
    Waiting(WaitKind),
}

/// A stretch of time in which a task was at one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stretch {
    pub doing: Doing,
    /// In words, as it was last put.
    pub text: String,
    /// The attempt that was at it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<AttemptId>,
    /// The revision at which it began.
    pub revision: u64,
    pub from_wall: u64,
    /// Nothing while it lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_wall: Option<u64>,
    /// When it began on the fleet clock, which no change of the date moves.
    #[serde(skip)]
    from_at: u64,
}

impl Stretch {
    /// How long it took, or has taken so far.
    pub fn ms(&self, wall: u64) -> u64 {
        self.to_wall.unwrap_or(wall).saturating_sub(self.from_wall)
    }
}

/// How long a task was at one thing, all stretches of it together that are over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Sum {
    pub doing: Doing,
    pub times: u32,
    pub ms: u64,
}

/// What a task was at, from its beginning on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Life {
    /// In order; without an end, the last one lasts.
    pub stretches: Vec<Stretch>,
    /// How many earlier ones are only in the sums.
    #[serde(skip_serializing_if = "is_zero")]
    pub left_out: u64,
    /// The longest first.
    pub sums: Vec<Sum>,
}

fn is_zero(it: &u64) -> bool {
    *it == 0
}

impl Life {
    /// Looks at a task after a commit. What lasted no time was seen by nobody and is not kept.
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
                // A date that was set back makes no stretch that ends before it begins.
                last.to_wall = Some(now.wall.max(last.from_wall));
            }
        }
        let Some((doing, text, attempt)) = next else { return };
        if self.stretches.last().is_some_and(|it| it.to_wall.is_none()) {
            return; // it goes on as before what lasted no time
        }
        let (revision, from_wall) = (board.revision, now.wall);
        self.stretches.push(Stretch { doing, text, attempt, revision, from_wall, to_wall: None, from_at: now.at });
        self.add_up();
    }

    /// What lasted no time is gone: if the one before it is what the task is at again, that never ended.
    fn take_up(&mut self, next: &Option<(Doing, String, Option<AttemptId>)>, now: Now) {
        if let (Some(last), Some((doing, text, attempt))) = (self.stretches.last_mut(), next)
            && (last.doing, last.attempt) == (*doing, *attempt)
            && last.to_wall == Some(now.wall.max(last.from_wall))
        {
            (last.to_wall, last.text) = (None, text.clone());
        }
    }

    /// Keeps the list within bounds, and the sums true.
    fn add_up(&mut self) {
        while self.stretches.len() > MOST_STRETCHES {
            let gone = self.stretches.remove(0);
            self.left_out += 1;
            add(&mut self.sums, &gone);
        }
    }

    /// The life as it is shown at a moment: the sums of all that is over, and of what lasts until then.
    pub fn shown(&self, wall: u64) -> Life {
        let mut shown = self.clone();
        for it in &self.stretches {
            let upto = Stretch { to_wall: Some(it.to_wall.unwrap_or(wall)), ..it.clone() };
            add(&mut shown.sums, &upto);
        }
        shown.sums.sort_by_key(|it| std::cmp::Reverse(it.ms));
        shown
    }

    /// What it waited for, in order: the stretches in which nobody worked on it.
    pub fn waits(&self) -> impl Iterator<Item = (WaitKind, &Stretch)> {
        self.stretches.iter().filter_map(|it| match it.doing {
            Doing::Waiting(kind) => Some((kind, it)),
            Doing::Working | Doing::Checking => None,
        })
    }
}

fn add(sums: &mut Vec<Sum>, it: &Stretch) {
    let ms = it.ms(it.from_wall);
    match sums.iter_mut().find(|sum| sum.doing == it.doing) {
        Some(sum) => (sum.times, sum.ms) = (sum.times + 1, sum.ms + ms),
        None => sums.push(Sum { doing: it.doing, times: 1, ms }),
    }
}

/// What an open task is at now, in words, and by which attempt. Whoever asked somebody something waits for that.
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
        // W1 says that this does not happen; a reader of the past is not the one to fail for it.
        None => (Doing::Waiting(WaitKind::Runner), "nothing says what it waits for".into(), None),
    }
}

/// A reason without how long it may still take: that is only true at the moment it is said.
fn lasting(mut text: String) -> String {
    if text.ends_with(" more unless renewed")
        && let Some(at) = text.rfind(" for ")
    {
        text.truncate(at);
    }
    text
}

/// Folds a log and looks at some tasks after each commit. Feed it every event in order, then [`Telling::rest`].
#[derive(Clone, Debug)]
pub struct Telling {
    board: Board,
    lives: Vec<(TaskId, Life)>,
    /// When the last event was, which is not looked at yet: its commit may go on.
    pending: Option<Now>,
}

impl Telling {
    /// Begins on a board on which the tasks are not yet.
    pub fn begin(board: Board, tasks: &[TaskId]) -> Telling {
        Telling { board, lives: tasks.iter().map(|it| (*it, Life::default())).collect(), pending: None }
    }

    /// Takes the next event. All events of a commit have one time, and what lies between them nobody ever saw.
    pub fn hear(&mut self, recorded: &Recorded) {
        if let Some(then) = self.pending.filter(|it| *it != recorded.now) {
            self.look(then);
        }
        self.board.fold(recorded);
        self.pending = Some(recorded.now);
    }

    /// Takes in that the last commit is whole.
    pub fn rest(&mut self) {
        if let Some(then) = self.pending.take() {
            self.look(then);
        }
    }

    fn look(&mut self, then: Now) {
        for (task, life) in &mut self.lives {
            life.see(&self.board, *task, then);
        }
    }

    /// What became of each task, in the order in which they were named.
    pub fn lives(&self) -> &[(TaskId, Life)] {
        &self.lives
    }

    /// The board as of the last event.
    pub fn board(&self) -> &Board {
        &self.board
    }
}
