//! Makes a task available for another attempt, and ends it when it has failed too often.

use serde::{Deserialize, Serialize};

use crate::attempt::{AttemptCause, ResumePoint};
use crate::board::{Board, Draft};
use crate::event::Event;
use crate::ids::{CommitId, TaskId};
use crate::plural;
use crate::refusal::Refusal;
use crate::schedule::WaitKind;

use super::{
    Fixup, Task, TaskDue, TaskReturned, TaskStatus, fail, find, needs_human, next_status,
    send_to_fixup,
};

/// Number of failed attempts after which a task fails or needs a person, if the project's settings
/// have none.
pub const DEFAULT_MAX_FAILURES: u32 = 3;

/// Returns the number of failed attempts after which a task fails or needs a person, from its
/// project's settings.
pub(crate) fn max_failures(board: &Board, task: &Task) -> u32 {
    board
        .projects
        .get(&task.project)
        .map_or(DEFAULT_MAX_FAILURES, |project| {
            project.settings.run.attempts.max(1)
        })
}

/// Makes a task available for another attempt, without counting the last attempt as a failure.
pub(crate) fn return_for_retry(draft: &mut Draft, id: TaskId, reason: &str) -> Result<(), Refusal> {
    requeue(draft, id, reason, NextAttempt::default())
}

/// Makes a task available for another attempt, because a reviewer asked for changes to its finished
/// work `reviewed`.
pub(crate) fn send_back(
    draft: &mut Draft,
    id: TaskId,
    reviewed: CommitId,
    reason: &str,
) -> Result<(), Refusal> {
    requeue(
        draft,
        id,
        reason,
        NextAttempt {
            reviewed: Some(reviewed),
            ..NextAttempt::default()
        },
    )
}

/// The facts that a task keeps for its next attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct NextAttempt {
    /// Set if the last attempt counts as a failure.
    #[serde(rename = "counts")]
    pub counts_as_failure: bool,
    /// Set if the last attempt was interrupted, so that the delay after the next interruption is
    /// longer.
    #[serde(rename = "tried")]
    pub was_interrupted: bool,
    #[serde(rename = "not_before")]
    pub not_before_fleet_ms: Option<u64>,
    pub resume: Option<ResumePoint>,
    /// Set if the next attempt waits for an event, as a lead or conversation does between turns.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[serde(rename = "asleep")]
    pub resting: bool,
    /// Set if the notes for the next attempt are removed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub forget_notes: bool,
    /// Description of the problem because of which the finished work could not be merged, if the
    /// next attempt must fix it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fixup: Option<Box<Fixup>>,
    /// The commit that a reviewer sent back for changes; `None` if no reviewer did so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reviewed: Option<CommitId>,
}

/// Ends a task's delay or its wait for an event, so that its next attempt can start at once.
pub(crate) fn clear_delay(draft: &mut Draft, id: TaskId) {
    if draft
        .board()
        .tasks
        .get(&id)
        .is_some_and(|task| task.not_before_fleet_ms.is_some() || task.resting)
    {
        draft.record(Event::TaskDue(TaskDue { task: id }));
    }
}

/// Lets a task be tried again after an attempt that ended with `cause`. After the maximum number of
/// failures, the task instead fails if its checks rejected the work, and otherwise needs a person.
pub(crate) fn retry_after(
    draft: &mut Draft,
    id: TaskId,
    cause: AttemptCause,
    reason: &str,
    next_attempt: NextAttempt,
) -> Result<(), Refusal> {
    let task = find(draft.board(), id)?;
    if task.session_of().is_some() {
        // The task holds a team member's session open and ends with it, so it is not retried. The
        // team's launch decides about a new session.
        return Ok(());
    }
    // A failed try to repair finished work does not count as a failed attempt but only as a try to
    // repair, because the submitted work is unchanged.
    if next_attempt.counts_as_failure && task.fixup.is_some() {
        return send_to_fixup(
            draft,
            id,
            reason,
            NextAttempt {
                fixup: task.fixup.clone().map(Box::new),
                ..next_attempt
            },
        );
    }
    if next_attempt.counts_as_failure && task.failures + 1 >= max_failures(draft.board(), &task) {
        let reason = format!(
            "{} failed; the last one: {reason}",
            plural::count(task.failures + 1, "attempt")
        );
        return match decision_when_exhausted(cause) {
            Some(kind) => needs_human(draft, id, kind, &reason),
            None => fail(draft, id, &reason),
        };
    }
    requeue(draft, id, reason, next_attempt)
}

/// Returns what kind of decision a person must make about a task that failed too often, by the
/// cause of its last end. Returns `None` if the task fails, because its checks rejected the work.
fn decision_when_exhausted(cause: AttemptCause) -> Option<WaitKind> {
    match cause {
        AttemptCause::Invalid | AttemptCause::Rejected => None,
        AttemptCause::ScopeEscape => Some(WaitKind::Policy),
        AttemptCause::Environment
        | AttemptCause::Crashed
        | AttemptCause::TimedOut
        | AttemptCause::Hung
        | AttemptCause::Lost => Some(WaitKind::Runner),
        AttemptCause::Overloaded
        | AttemptCause::NoNetwork
        | AttemptCause::ContextFull
        | AttemptCause::Refused
        | AttemptCause::Auth
        | AttemptCause::BadConfig
        | AttemptCause::Parked => Some(WaitKind::Provider),
        AttemptCause::OverBudget => Some(WaitKind::Budget),
        AttemptCause::Submitted
        | AttemptCause::Reported
        | AttemptCause::Rested
        | AttemptCause::GaveUp
        | AttemptCause::Blocked
        | AttemptCause::NothingChanged
        | AttemptCause::Stopped
        | AttemptCause::Cancelled => Some(WaitKind::Review),
    }
}

/// Records that a task waits for another attempt, which starts under the conditions in
/// `next_attempt`.
pub(crate) fn requeue(
    draft: &mut Draft,
    id: TaskId,
    reason: &str,
    next_attempt: NextAttempt,
) -> Result<(), Refusal> {
    let task = find(draft.board(), id)?;
    if task.session_of().is_some() {
        return Ok(());
    }
    let counts = next_attempt.counts_as_failure;
    let status = if task.assignee.is_some() {
        TaskStatus::Pending
    } else {
        TaskStatus::Unassigned
    };
    next_status(id, task.status, status)?;
    let is_plain = NextAttempt {
        counts_as_failure: counts,
        ..NextAttempt::default()
    } == next_attempt;
    let next_attempt = (!is_plain).then_some(next_attempt);
    draft.record(Event::TaskReturned(TaskReturned {
        task: id,
        status,
        reason: reason.to_owned(),
        counts,
        again: next_attempt,
    }));
    Ok(())
}
