//! The return of a task to the agents for another attempt, and the end of a task that has no
//! attempts left.

use serde::{Deserialize, Serialize};

use crate::attempt::{AttemptCause, ResumePoint};
use crate::board::{Board, Draft};
use crate::event::Event;
use crate::ids::{CommitId, TaskId};
use crate::refusal::Refusal;
use crate::schedule::WaitKind;

use super::{
    Fixup, Task, TaskDue, TaskReturned, TaskStatus, fail, find, needs_human, next_status,
    send_to_fixup,
};

/// Default number of failed attempts after which a task fails or needs a person.
pub const DEFAULT_MAX_FAILURES: u32 = 3;

/// Returns the maximum number of failed attempts of a task, from its project's settings.
pub(crate) fn max_failures(board: &Board, task: &Task) -> u32 {
    board
        .projects
        .get(&task.project)
        .map_or(DEFAULT_MAX_FAILURES, |project| {
            project.settings.run.attempts.max(1)
        })
}

/// Returns a task to the agents for another attempt, without counting a failure.
pub(crate) fn return_for_retry(draft: &mut Draft, id: TaskId, reason: &str) -> Result<(), Refusal> {
    requeue(draft, id, reason, NextAttempt::default())
}

/// Returns a task to the agents after a reviewer looked at its finished work.
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

/// The conditions of a task's next attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct NextAttempt {
    /// The last attempt counts as a failure.
    #[serde(rename = "counts")]
    pub counts_as_failure: bool,
    /// The last attempt was interrupted, so the next delay is longer.
    #[serde(rename = "tried")]
    pub was_interrupted: bool,
    #[serde(rename = "not_before")]
    pub not_before_fleet_ms: Option<u64>,
    pub resume: Option<ResumePoint>,
    /// The task rests until something wakes it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[serde(rename = "asleep")]
    pub resting: bool,
    /// Messages of people to the next attempt are dropped.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub forget_notes: bool,
    /// The fix that the finished work needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fixup: Option<Box<Fixup>>,
    /// The reviewed commit that was sent back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reviewed: Option<CommitId>,
}

/// Lets a delayed or resting task start at once.
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

/// Returns a task for another attempt after one ended with `cause`. After the maximum number of
/// failures the task fails if its work was rejected, and otherwise needs a person.
pub(crate) fn retry_after(
    draft: &mut Draft,
    id: TaskId,
    cause: AttemptCause,
    reason: &str,
    next_attempt: NextAttempt,
) -> Result<(), Refusal> {
    let task = find(draft.board(), id)?;
    if task.session_of.is_some() {
        // The task ends with its session, and its team decides the next step.
        return Ok(());
    }
    // A failed fix-up counts as a fix-up, not as a failure, because the submitted work is
    // unchanged.
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
            "{} attempts failed; the last one: {reason}",
            task.failures + 1
        );
        return match decision_when_exhausted(cause) {
            Some(kind) => needs_human(draft, id, kind, &reason),
            None => fail(draft, id, &reason),
        };
    }
    requeue(draft, id, reason, next_attempt)
}

/// Returns the kind of decision that a task without remaining attempts needs, by the cause of its
/// last end. Returns `None` if the task fails for good, because its checks rejected the work.
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

/// Records that a task waits for an agent again.
pub(crate) fn requeue(
    draft: &mut Draft,
    id: TaskId,
    reason: &str,
    next_attempt: NextAttempt,
) -> Result<(), Refusal> {
    let task = find(draft.board(), id)?;
    if task.session_of.is_some() {
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
