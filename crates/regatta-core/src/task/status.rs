//! The status of a task and the whole state machine.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::TaskId;
use crate::refusal::Refusal;

/// The status of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Status {
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

impl Status {
    pub const ALL: [Status; 12] = [
        Status::Backlog,
        Status::Unassigned,
        Status::Offered,
        Status::Pending,
        Status::InProgress,
        Status::Validating,
        Status::InReview,
        Status::Landing,
        Status::Completed,
        Status::Failed,
        Status::Cancelled,
        Status::NeedsHuman,
    ];

    /// Returns its name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Status::Backlog => "backlog",
            Status::Unassigned => "unassigned",
            Status::Offered => "offered",
            Status::Pending => "pending",
            Status::InProgress => "in_progress",
            Status::Validating => "validating",
            Status::InReview => "in_review",
            Status::Landing => "landing",
            Status::Completed => "completed",
            Status::Failed => "failed",
            Status::Cancelled => "cancelled",
            Status::NeedsHuman => "needs_human",
        }
    }

    /// Returns the words that people see: alone ("working") and in a sentence ("T3 is working"). A
    /// landed task is completed, too; only the task itself knows if it landed.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Status::Backlog => ("backlog", "is in the backlog"),
            Status::Unassigned | Status::Offered | Status::Pending => ("waiting", "is waiting"),
            Status::InProgress | Status::Validating => ("working", "is working"),
            Status::InReview => ("review", "is in review"),
            Status::Landing => ("landing", "is landing"),
            Status::Completed => ("done", "is done"),
            Status::Failed => ("failed", "has failed"),
            Status::Cancelled => ("cancelled", "was cancelled"),
            Status::NeedsHuman => ("needs you", "needs you"),
        }
    }

    /// Returns the word that people see.
    pub fn word(self) -> &'static str {
        self.words().0
    }

    /// Returns the words for a sentence, such as "is working".
    pub fn phrase(self) -> &'static str {
        self.words().1
    }

    /// Returns the words for the refusal of a change to an ended task, such as "is already done".
    pub fn already(self) -> String {
        match self.phrase().split_once(' ') {
            Some((verb, rest)) => format!("{verb} already {rest}"),
            None => self.phrase().to_owned(),
        }
    }

    /// Returns whether no other status can follow (J7).
    pub fn is_terminal(self) -> bool {
        matches!(self, Status::Completed | Status::Failed | Status::Cancelled)
    }

    /// Returns whether the board keeps the task. Failed and cancelled tasks stay, because they can
    /// be retried.
    pub fn is_live(self) -> bool {
        self != Status::Completed
    }

    /// Returns whether the task waits for an agent.
    pub fn is_waiting(self) -> bool {
        matches!(self, Status::Unassigned | Status::Offered | Status::Pending)
    }

    /// Returns whether an attempt works on the task and holds a slot.
    pub fn is_running(self) -> bool {
        matches!(self, Status::InProgress | Status::Validating)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Returns `to` if a task may change from `from` to `to`. All other pairs are illegal.
pub fn next_status(task: TaskId, from: Status, to: Status) -> Result<Status, Refusal> {
    use Status::*;
    match (from, to) {
        (Backlog, Unassigned | Pending | Offered | Cancelled)
        | (
            Unassigned,
            Backlog | Pending | Offered | InProgress | InReview | Landing | Cancelled | NeedsHuman | Failed,
        )
        | (Offered, Unassigned | Pending | InProgress | Cancelled | Backlog)
        | (Pending, Backlog | Unassigned | Offered | Pending | InProgress | Cancelled | NeedsHuman | Failed)
        | (InProgress, Validating | Pending | Unassigned | Failed | Cancelled | NeedsHuman)
        | (Validating, Landing | InReview | Completed | Pending | Unassigned | Failed | Cancelled | NeedsHuman)
        | (InReview, Landing | Pending | Unassigned | Cancelled | NeedsHuman)
        | (Landing, Completed | Pending | Unassigned | Failed | Cancelled | NeedsHuman)
        | (NeedsHuman, Landing | Pending | Unassigned | Backlog | Cancelled | Failed) => Ok(to),
        (from, _) if from.is_terminal() => Err(Refusal::Finished { task, status: from }),
        (from, to) => Err(Refusal::Illegal { task, from, to }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// J7: no transition leaves a terminal status.
    #[test]
    fn j7_no_transition_leaves_a_terminal_status() {
        for from in Status::ALL.into_iter().filter(|it| it.is_terminal()) {
            for to in Status::ALL {
                assert_eq!(next_status(TaskId(1), from, to), Err(Refusal::Finished { task: TaskId(1), status: from }));
            }
        }
    }

    /// Each status that is not terminal can be cancelled, so each task can end.
    #[test]
    fn every_open_status_can_be_cancelled() {
        for from in Status::ALL.into_iter().filter(|it| !it.is_terminal()) {
            assert!(next_status(TaskId(1), from, Status::Cancelled).is_ok(), "{from}");
        }
    }

    #[test]
    fn only_running_work_is_validated_and_only_checked_work_is_completed() {
        for from in Status::ALL {
            let may = |to| next_status(TaskId(1), from, to).is_ok();
            assert_eq!(may(Status::Validating), from == Status::InProgress, "{from}");
            assert_eq!(may(Status::Completed), matches!(from, Status::Validating | Status::Landing), "{from}");
            assert_eq!(may(Status::InProgress), from.is_waiting(), "{from}");
        }
    }
}
