//! The status of a task, its names for people, and the table of permitted changes.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::TaskId;
use crate::refusal::Refusal;

use super::Task;

/// The status of a task, from the backlog to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    Backlog,
    Unassigned,
    Offered,
    Pending,
    InProgress,
    Validating,
    InReview,
    Landing,
    Completed,
    Failed,
    Cancelled,
    NeedsHuman,
}

impl TaskStatus {
    pub const ALL: [TaskStatus; 12] = [
        TaskStatus::Backlog,
        TaskStatus::Unassigned,
        TaskStatus::Offered,
        TaskStatus::Pending,
        TaskStatus::InProgress,
        TaskStatus::Validating,
        TaskStatus::InReview,
        TaskStatus::Landing,
        TaskStatus::Completed,
        TaskStatus::Failed,
        TaskStatus::Cancelled,
        TaskStatus::NeedsHuman,
    ];

    /// Returns the status's name in the API, such as `in_progress`.
    pub fn name(self) -> &'static str {
        match self {
            TaskStatus::Backlog => "backlog",
            TaskStatus::Unassigned => "unassigned",
            TaskStatus::Offered => "offered",
            TaskStatus::Pending => "pending",
            TaskStatus::InProgress => "in_progress",
            TaskStatus::Validating => "validating",
            TaskStatus::InReview => "in_review",
            TaskStatus::Landing => "landing",
            TaskStatus::Completed => "completed",
            TaskStatus::Failed => "failed",
            TaskStatus::Cancelled => "cancelled",
            TaskStatus::NeedsHuman => "needs_human",
        }
    }

    /// Returns the words for people: alone ("working") and in a sentence ("T3 is working"). A
    /// completed task is always "done", because the task records separately whether its work
    /// landed.
    fn labels(self) -> (&'static str, &'static str) {
        match self {
            TaskStatus::Backlog => ("backlog", "is in the backlog"),
            TaskStatus::Unassigned | TaskStatus::Offered | TaskStatus::Pending => {
                ("waiting", "is waiting")
            }
            TaskStatus::InProgress | TaskStatus::Validating => ("working", "is working"),
            TaskStatus::InReview => ("review", "is in review"),
            TaskStatus::Landing => ("landing", "is landing"),
            TaskStatus::Completed => ("done", "is done"),
            TaskStatus::Failed => ("failed", "has failed"),
            TaskStatus::Cancelled => ("cancelled", "was cancelled"),
            TaskStatus::NeedsHuman => ("needs you", "needs you"),
        }
    }

    /// Returns the status in one or two words for people, such as "working".
    pub fn label(self) -> &'static str {
        let (label, _) = self.labels();
        label
    }

    /// Returns the status as the end of a sentence about the task, such as "is working".
    pub fn phrase(self) -> &'static str {
        let (_, phrase) = self.labels();
        phrase
    }

    /// Returns the status of an ended task as the end of a sentence that refuses a change, such as
    /// "is already done".
    pub fn already_phrase(self) -> String {
        match self.phrase().split_once(' ') {
            Some((verb, rest)) => format!("{verb} already {rest}"),
            None => self.phrase().to_owned(),
        }
    }

    /// Returns whether the status is final, so that no other can follow (J7).
    pub fn is_terminal(self) -> bool {
        matches!(
            self,
            TaskStatus::Completed | TaskStatus::Failed | TaskStatus::Cancelled
        )
    }

    /// Returns whether the task ended without success.
    pub fn is_unsuccessful(self) -> bool {
        self.has_failed() || self.is_cancelled()
    }

    /// Returns whether the task ended with success: its work landed, or its report was delivered.
    pub fn is_completed(self) -> bool {
        self == TaskStatus::Completed
    }

    /// Returns whether the task failed, so that a person may have to decide about it.
    pub fn has_failed(self) -> bool {
        self == TaskStatus::Failed
    }

    pub fn is_cancelled(self) -> bool {
        self == TaskStatus::Cancelled
    }

    /// Returns whether the task is kept for later.
    pub fn is_in_backlog(self) -> bool {
        self == TaskStatus::Backlog
    }

    /// Returns whether the task waits and belongs to no agent.
    pub fn is_unassigned(self) -> bool {
        self == TaskStatus::Unassigned
    }

    /// Returns whether the task waits for the agent that it was given to.
    pub fn is_pending(self) -> bool {
        self == TaskStatus::Pending
    }

    /// Returns whether the result of the task's attempt is being checked.
    pub fn is_being_checked(self) -> bool {
        self == TaskStatus::Validating
    }

    /// Returns whether the task's work is in the merge queue.
    pub fn is_landing(self) -> bool {
        self == TaskStatus::Landing
    }

    /// Returns whether the task cannot continue before a person decides about it. A running task
    /// with an open question has another status; see
    /// [`task_display`](crate::display::task_display).
    pub fn needs_person(self) -> bool {
        self == TaskStatus::NeedsHuman
    }

    /// Returns whether a stored task with this status is loaded into the board (the state of all
    /// live work). Completed tasks are not loaded. Failed and cancelled tasks are, because the
    /// board remembers how they ended.
    pub fn is_live(self) -> bool {
        self != TaskStatus::Completed
    }

    /// Returns whether the task waits for an agent to start it.
    pub fn is_waiting(self) -> bool {
        matches!(
            self,
            TaskStatus::Unassigned | TaskStatus::Offered | TaskStatus::Pending
        )
    }

    /// Returns whether an attempt is working on the task or its result is being checked.
    pub fn is_running(self) -> bool {
        matches!(self, TaskStatus::InProgress | TaskStatus::Validating)
    }
}

impl fmt::Display for TaskStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Task {
    /// Sets the status. The caller has asked [`next_status`] whether the change is permitted, before
    /// it recorded the event.
    pub(crate) fn change_status(&mut self, to: TaskStatus) {
        self.status = to;
    }
}

/// Returns `to` if a task's status may change from `from` to `to`, and a refusal otherwise.
pub fn next_status(task: TaskId, from: TaskStatus, to: TaskStatus) -> Result<TaskStatus, Refusal> {
    use TaskStatus::*;
    match (from, to) {
        (Backlog, Unassigned | Pending | Offered | Cancelled)
        | (
            Unassigned,
            Backlog | Pending | Offered | InProgress | InReview | Landing | Cancelled | NeedsHuman
            | Failed,
        )
        | (Offered, Unassigned | Pending | InProgress | Cancelled | Backlog)
        | (
            Pending,
            Backlog | Unassigned | Offered | Pending | InProgress | Cancelled | NeedsHuman | Failed,
        )
        | (InProgress, Validating | Pending | Unassigned | Failed | Cancelled | NeedsHuman)
        | (
            Validating,
            Landing | InReview | Completed | Pending | Unassigned | Failed | Cancelled | NeedsHuman,
        )
        | (InReview, Landing | Pending | Unassigned | Cancelled | NeedsHuman)
        | (Landing, Completed | Pending | Unassigned | Failed | Cancelled | NeedsHuman)
        | (NeedsHuman, Landing | Pending | Unassigned | Backlog | Cancelled | Failed) => Ok(to),
        (from, _) if from.is_terminal() => Err(Refusal::Finished { task, status: from }),
        (from, to) => Err(Refusal::IllegalTransition { task, from, to }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// J7: no transition leaves a terminal status.
    #[test]
    fn j7_no_transition_leaves_a_terminal_status() {
        for from in TaskStatus::ALL
            .into_iter()
            .filter(|status| status.is_terminal())
        {
            for to in TaskStatus::ALL {
                assert_eq!(
                    next_status(TaskId(1), from, to),
                    Err(Refusal::Finished {
                        task: TaskId(1),
                        status: from
                    })
                );
            }
        }
    }

    /// Each status that is not terminal can be cancelled, so each task can end.
    #[test]
    fn every_open_status_can_be_cancelled() {
        for from in TaskStatus::ALL
            .into_iter()
            .filter(|status| !status.is_terminal())
        {
            assert!(
                next_status(TaskId(1), from, TaskStatus::Cancelled).is_ok(),
                "{from}"
            );
        }
    }

    /// Each predicate for one status holds for that status alone.
    #[test]
    fn each_status_has_at_most_one_predicate_of_its_own() {
        type Predicate = fn(TaskStatus) -> bool;
        use TaskStatus::*;
        let predicates: [(TaskStatus, Predicate); 9] = [
            (Backlog, TaskStatus::is_in_backlog),
            (Unassigned, TaskStatus::is_unassigned),
            (Pending, TaskStatus::is_pending),
            (Validating, TaskStatus::is_being_checked),
            (Landing, TaskStatus::is_landing),
            (Completed, TaskStatus::is_completed),
            (Failed, TaskStatus::has_failed),
            (Cancelled, TaskStatus::is_cancelled),
            (NeedsHuman, TaskStatus::needs_person),
        ];
        for (status, predicate) in predicates {
            let holding: Vec<_> = TaskStatus::ALL
                .into_iter()
                .filter(|status| predicate(*status))
                .collect();
            assert_eq!(holding, [status]);
        }
    }

    #[test]
    fn only_running_work_is_validated_and_only_checked_work_is_completed() {
        for from in TaskStatus::ALL {
            let is_allowed = |to| next_status(TaskId(1), from, to).is_ok();
            assert_eq!(
                is_allowed(TaskStatus::Validating),
                from == TaskStatus::InProgress,
                "{from}"
            );
            assert_eq!(
                is_allowed(TaskStatus::Completed),
                matches!(from, TaskStatus::Validating | TaskStatus::Landing),
                "{from}"
            );
            assert_eq!(
                is_allowed(TaskStatus::InProgress),
                from.is_waiting(),
                "{from}"
            );
        }
    }
}
