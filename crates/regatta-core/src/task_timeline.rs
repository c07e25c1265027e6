//! Computes a task's timeline: when it was worked on, was checked or waited, and for what, as
//! intervals.
//!
//! The intervals are computed from the stored log of events. The events are applied one after the
//! other to a board (a state of all live work) (D4). After each transaction of the store, the
//! task's state is compared with its state before the transaction. Intervals are not stored,
//! because that would make each transaction slower and the stored intervals could contradict the
//! events.
//!
//! From its addition to its end, a task is always in exactly one interval. An interval in which
//! nobody works on the task has one of the reasons of [`WaitKind`] (W1).

use serde::{Deserialize, Serialize};

use crate::agent_protocol::RequestContent;
use crate::approval;
use crate::board::Board;
use crate::event::Recorded;
use crate::ids::{AttemptId, Now, TaskId};
use crate::schedule::{self, WaitKind};
use crate::task::{Task, TaskStatus};

/// Maximum number of intervals that are listed for a task. Older intervals are only added to the
/// totals.
const MAX_INTERVALS: usize = 200;

/// The activity of a task at one time: an agent works on it, its result is checked, or it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// An agent works on the task.
    Working,
    /// The result of the task's attempt is being checked.
    Checking,
    /// The task waits, for a reason of this kind.
    Waiting(WaitKind),
}

/// A time in which a task had the same activity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ActivityInterval {
    #[serde(rename = "doing")]
    pub activity: Activity,
    /// Description for people, as it was last in the interval.
    pub text: String,
    /// The attempt that worked on the task in this interval; `None` if nobody worked on the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<AttemptId>,
    /// Revision (event number) at which the interval began.
    pub revision: u64,
    #[serde(rename = "from_wall")]
    pub from_unix_ms: u64,
    /// End of the interval; `None` while it lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "to_wall")]
    pub to_unix_ms: Option<u64>,
    /// Beginning of the interval, in milliseconds of Regatta's own clock (the fleet clock), which
    /// changes of the machine's date do not affect.
    #[serde(skip)]
    from_fleet_ms: u64,
}

impl ActivityInterval {
    /// Returns the interval's length in milliseconds. An interval without an end is counted up to
    /// `unix_ms`.
    fn length_ms(&self, unix_ms: u64) -> u64 {
        self.to_unix_ms
            .unwrap_or(unix_ms)
            .saturating_sub(self.from_unix_ms)
    }
}

/// How often, and for how long in total, a task was in one activity. Counts only periods that have
/// ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ActivityTotal {
    #[serde(rename = "doing")]
    pub activity: Activity,
    pub times: u32,
    pub ms: u64,
}

/// All activities of a task since it was added, as intervals and totals.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct TaskTimeline {
    /// The latest intervals in order. The last interval has no end while it lasts.
    #[serde(rename = "stretches")]
    pub intervals: Vec<ActivityInterval>,
    /// Number of earlier intervals that are not listed and only counted in `sums`.
    #[serde(rename = "left_out")]
    #[serde(skip_serializing_if = "is_zero")]
    pub omitted_count: u64,
    /// Total for each activity, the longest first.
    pub sums: Vec<ActivityTotal>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl TaskTimeline {
    /// Compares the task with its last interval after a transaction of the store, and begins a new
    /// interval if its activity changed. An interval without any length is removed, because it was
    /// never visible.
    pub fn update(&mut self, board: &Board, task: TaskId, now: Now) {
        let next = board
            .tasks
            .get(&task)
            .map(|task| current_activity(board, task, now));
        if let Some(last) = self
            .intervals
            .last_mut()
            .filter(|interval| interval.to_unix_ms.is_none())
        {
            if let Some((activity, text, attempt)) = &next
                && last.activity == *activity
                && last.attempt == *attempt
            {
                last.text.clone_from(text);
                return;
            }
            if last.from_fleet_ms == now.fleet_ms {
                self.intervals.pop();
                self.reopen_last(&next, now);
            } else {
                // If the machine's date was set back, the interval must still not end before it
                // begins.
                last.to_unix_ms = Some(now.unix_ms.max(last.from_unix_ms));
            }
        }
        let Some((activity, text, attempt)) = next else {
            return;
        };
        if self
            .intervals
            .last()
            .is_some_and(|interval| interval.to_unix_ms.is_none())
        {
            return; // the earlier interval continues
        }
        let (revision, from_unix_ms) = (board.revision, now.unix_ms);
        self.intervals.push(ActivityInterval {
            activity,
            text,
            attempt,
            revision,
            from_unix_ms,
            to_unix_ms: None,
            from_fleet_ms: now.fleet_ms,
        });
        self.sum_old_intervals();
    }

    /// Reopens the last interval of the timeline if it ended at this moment and the task's activity
    /// is the same as before. This happens when the activity changed and changed back at the same
    /// moment, because the empty interval between the two changes was removed.
    fn reopen_last(&mut self, next: &Option<(Activity, String, Option<AttemptId>)>, now: Now) {
        if let (Some(last), Some((activity, text, attempt))) = (self.intervals.last_mut(), next)
            && (last.activity, last.attempt) == (*activity, *attempt)
            && last.to_unix_ms == Some(now.unix_ms.max(last.from_unix_ms))
        {
            (last.to_unix_ms, last.text) = (None, text.clone());
        }
    }

    /// Removes the oldest intervals beyond the maximum, and adds them to the totals.
    fn sum_old_intervals(&mut self) {
        while self.intervals.len() > MAX_INTERVALS {
            let oldest = self.intervals.remove(0);
            self.omitted_count += 1;
            add_to_totals(&mut self.sums, &oldest);
        }
    }

    /// Returns a copy of the timeline whose totals include all listed intervals. The last interval
    /// is counted up to `unix_ms`.
    pub fn with_totals_until(&self, unix_ms: u64) -> TaskTimeline {
        let mut shown = self.clone();
        for interval in &self.intervals {
            let until_now = ActivityInterval {
                to_unix_ms: Some(interval.to_unix_ms.unwrap_or(unix_ms)),
                ..interval.clone()
            };
            add_to_totals(&mut shown.sums, &until_now);
        }
        shown.sums.sort_by_key(|total| std::cmp::Reverse(total.ms));
        shown
    }

    /// Returns the intervals in which the task waited, in order, each with the kind of reason for
    /// which the task waited.
    pub fn waits(&self) -> impl Iterator<Item = (WaitKind, &ActivityInterval)> {
        self.intervals
            .iter()
            .filter_map(|interval| match interval.activity {
                Activity::Waiting(kind) => Some((kind, interval)),
                Activity::Working | Activity::Checking => None,
            })
    }
}

/// Adds the length of an interval to the total of its activity.
fn add_to_totals(sums: &mut Vec<ActivityTotal>, interval: &ActivityInterval) {
    let ms = interval.length_ms(interval.from_unix_ms);
    match sums
        .iter_mut()
        .find(|sum| sum.activity == interval.activity)
    {
        Some(sum) => (sum.times, sum.ms) = (sum.times + 1, sum.ms + ms),
        None => sums.push(ActivityTotal {
            activity: interval.activity,
            times: 1,
            ms,
        }),
    }
}

/// Returns what happens with an unfinished task now, with a description and the attempt. A task
/// whose agent waits for a person's answer counts as waiting.
pub fn current_activity(
    board: &Board,
    task: &Task,
    now: Now,
) -> (Activity, String, Option<AttemptId>) {
    if task.status.is_running() {
        let attempt = task.attempt.and_then(|id| board.attempts.get(&id));
        let approval = attempt.and_then(|attempt| approval::open_request_of(board, attempt));
        if let (Some(attempt), Some(approval)) = (attempt, approval) {
            let kind = match approval.request.content {
                RequestContent::Permission { .. } => WaitKind::Permission,
                RequestContent::Question { .. } => WaitKind::Question,
            };
            return (
                Activity::Waiting(kind),
                format!("{} asks: {}", approval.id, approval.subject()),
                Some(attempt.id),
            );
        }
        let activity = if task.status == TaskStatus::Validating {
            Activity::Checking
        } else {
            Activity::Working
        };
        let text = attempt.map_or_else(String::new, |attempt| attempt.label());
        return (activity, text, attempt.map(|attempt| attempt.id));
    }
    match schedule::wait_reasons(board, task, now).into_iter().next() {
        Some(reason) => (
            Activity::Waiting(reason.kind),
            without_remaining_time(reason.text),
            None,
        ),
        // Every waiting task has a reason (W1), but displaying an old log should not fail if a task
        // has no reason.
        None => (
            Activity::Waiting(WaitKind::Runner),
            "the reason is unknown".into(),
            None,
        ),
    }
}

/// Removes the remaining time of a claim from the description of a wait, because the time would be
/// wrong later.
fn without_remaining_time(mut text: String) -> String {
    if text.ends_with(" more unless renewed")
        && let Some(start) = text.rfind(" for ")
    {
        text.truncate(start);
    }
    text
}

/// Computes the timelines of some tasks from a log of events. Pass each event in order to
/// [`TimelineFold::apply`], then call [`TimelineFold::finish_commit`].
#[derive(Clone, Debug)]
pub struct TimelineFold {
    board: Board,
    timelines: Vec<(TaskId, TaskTimeline)>,
    /// Time of the last applied event, while more events of the same transaction of the store may
    /// follow.
    pending: Option<Now>,
}

impl TimelineFold {
    /// Starts the computation with the board (the state of all live work) as it was before the
    /// tasks were added.
    pub fn new(board: Board, tasks: &[TaskId]) -> TimelineFold {
        TimelineFold {
            board,
            timelines: tasks
                .iter()
                .map(|id| (*id, TaskTimeline::default()))
                .collect(),
            pending: None,
        }
    }

    /// Applies the next event of the log. Timelines are updated only between transactions of the
    /// store; an event with another time than the previous event begins a new transaction.
    pub fn apply(&mut self, recorded: &Recorded) {
        if let Some(time) = self.pending.filter(|now| *now != recorded.now) {
            self.update_timelines(time);
        }
        self.board.fold(recorded);
        self.pending = Some(recorded.now);
    }

    /// Updates the timelines after the last event of the log was applied.
    pub fn finish_commit(&mut self) {
        if let Some(time) = self.pending.take() {
            self.update_timelines(time);
        }
    }

    /// Updates all timelines from the board (the state of all live work) as it is after a
    /// transaction of the store.
    fn update_timelines(&mut self, time: Now) {
        for (task, timeline) in &mut self.timelines {
            timeline.update(&self.board, *task, time);
        }
    }

    /// Returns the timeline of each requested task, in the order of the request.
    pub fn timelines(&self) -> &[(TaskId, TaskTimeline)] {
        &self.timelines
    }

    /// Returns the board (the state of all live work) after the last applied event.
    pub fn board(&self) -> &Board {
        &self.board
    }
}
