//! A task's timeline: its activities and waits as intervals, derived from the stored log.
//!
//! The log is the record. Folding it (D4) and checking the board after each commit shows the begin
//! and end of each wait with its reason, to the millisecond. Stored intervals would duplicate the
//! log, would cost each commit a check of all waiting tasks, and could contradict the events.
//!
//! W1 over time: from the time it is added until it ends, a task is in exactly one interval, and an
//! interval in which nobody works on it has a reason from the closed set.

use serde::{Deserialize, Serialize};

use crate::agent_protocol::RequestContent;
use crate::approval;
use crate::board::Board;
use crate::event::Recorded;
use crate::ids::{AttemptId, Now, TaskId};
use crate::schedule::{self, WaitKind};
use crate::task::{Task, TaskStatus};

/// Maximum number of single intervals of a task. Older ones are only in the sums.
const MAX_INTERVALS: usize = 200;

/// A task's current activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Activity {
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
pub struct ActivityInterval {
    #[serde(rename = "doing")]
    pub activity: Activity,
    /// Latest description in words.
    pub text: String,
    /// The attempt that worked on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<AttemptId>,
    /// The revision at which it began.
    pub revision: u64,
    #[serde(rename = "from_wall")]
    pub from_unix_ms: u64,
    /// End of the interval; `None` while it lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "to_wall")]
    pub to_unix_ms: Option<u64>,
    /// Begin on the fleet clock, which ignores changes of the date.
    #[serde(skip)]
    from_fleet_ms: u64,
}

impl ActivityInterval {
    /// Returns its length so far in milliseconds.
    pub fn length_ms(&self, unix_ms: u64) -> u64 {
        self.to_unix_ms
            .unwrap_or(unix_ms)
            .saturating_sub(self.from_unix_ms)
    }
}

/// The total time of a task in one activity, over its ended intervals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ActivityTotal {
    #[serde(rename = "doing")]
    pub activity: Activity,
    pub times: u32,
    pub ms: u64,
}

/// All activities of a task since it was added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct TaskTimeline {
    /// Intervals in order. The last one has no end while it lasts.
    #[serde(rename = "stretches")]
    pub intervals: Vec<ActivityInterval>,
    /// Number of earlier intervals that are only in the sums.
    #[serde(rename = "left_out")]
    #[serde(skip_serializing_if = "is_zero")]
    pub omitted_count: u64,
    /// Totals, the longest first.
    pub sums: Vec<ActivityTotal>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl TaskTimeline {
    /// Updates the intervals after a commit. Intervals without any length are dropped, because
    /// nobody could see them.
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
                // If the date was set back, the interval must not end before it begins.
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

    /// Reopens the last interval, if the task has the same activity again after a dropped interval
    /// without length.
    fn reopen_last(&mut self, next: &Option<(Activity, String, Option<AttemptId>)>, now: Now) {
        if let (Some(last), Some((activity, text, attempt))) = (self.intervals.last_mut(), next)
            && (last.activity, last.attempt) == (*activity, *attempt)
            && last.to_unix_ms == Some(now.unix_ms.max(last.from_unix_ms))
        {
            (last.to_unix_ms, last.text) = (None, text.clone());
        }
    }

    /// Moves intervals beyond the maximum into the sums.
    fn sum_old_intervals(&mut self) {
        while self.intervals.len() > MAX_INTERVALS {
            let oldest = self.intervals.remove(0);
            self.omitted_count += 1;
            add_to_totals(&mut self.sums, &oldest);
        }
    }

    /// Returns the timeline with sums that include all intervals up to `unix_ms`.
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

    /// Returns the waits in order: the intervals in which nobody worked on the task.
    pub fn waits(&self) -> impl Iterator<Item = (WaitKind, &ActivityInterval)> {
        self.intervals
            .iter()
            .filter_map(|interval| match interval.activity {
                Activity::Waiting(kind) => Some((kind, interval)),
                Activity::Working | Activity::Checking => None,
            })
    }
}

/// Adds an interval to the sums.
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

/// Returns an open task's activity with a description and the attempt. An attempt with an open
/// request counts as waiting.
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
        // W1 excludes this case, but a reader of the past should not fail because of it.
        None => (
            Activity::Waiting(WaitKind::Runner),
            "the reason is unknown".into(),
            None,
        ),
    }
}

/// Removes the remaining time from a reason, because it is only true at the time of writing.
fn without_remaining_time(mut text: String) -> String {
    if text.ends_with(" more unless renewed")
        && let Some(start) = text.rfind(" for ")
    {
        text.truncate(start);
    }
    text
}

/// Folds a log and records the timelines of some tasks. Pass each event in order to
/// [`TimelineFold::apply`], then call [`TimelineFold::finish_commit`].
#[derive(Clone, Debug)]
pub struct TimelineFold {
    board: Board,
    timelines: Vec<(TaskId, TaskTimeline)>,
    /// Time of the last event, if its commit may be incomplete.
    pending: Option<Now>,
}

impl TimelineFold {
    /// Starts with a board from before the tasks were added.
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

    /// Applies the next event. All events of a commit have the same time, and states within a
    /// commit are never visible.
    pub fn apply(&mut self, recorded: &Recorded) {
        if let Some(time) = self.pending.filter(|now| *now != recorded.now) {
            self.update_timelines(time);
        }
        self.board.fold(recorded);
        self.pending = Some(recorded.now);
    }

    /// Finishes the last commit.
    pub fn finish_commit(&mut self) {
        if let Some(time) = self.pending.take() {
            self.update_timelines(time);
        }
    }

    /// Updates the timelines from the board at the end of a commit.
    fn update_timelines(&mut self, time: Now) {
        for (task, timeline) in &mut self.timelines {
            timeline.update(&self.board, *task, time);
        }
    }

    /// Returns the timeline of each task, in the order of the request.
    pub fn timelines(&self) -> &[(TaskId, TaskTimeline)] {
        &self.timelines
    }

    /// Returns the board after the last event.
    pub fn board(&self) -> &Board {
        &self.board
    }
}
