//! The end of an attempt's program: its consequence for the task, by the class of the failure, and
//! the place where the next attempt goes on.

use serde::{Deserialize, Serialize};

use crate::agent_protocol::{FailureClass, FailureConsequence};
use crate::board::Draft;
use crate::ids::{AttemptId, Now, TaskId};
use crate::provider_outage;
use crate::refusal::Refusal;
use crate::schedule::WaitKind;
use crate::task::{self, NextAttempt};

use super::{Attempt, AttemptCause, AttemptPhase, ResumePoint, end, require_attempt, stop};

/// The way in which a supervised attempt's program ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ProgramExit {
    /// The program says that the work is done.
    Done { output: Option<String> },
    /// The program failed, with this message and class.
    Failed {
        reason: String,
        #[serde(default)]
        class: Option<FailureClass>,
    },
    /// The process vanished without a message.
    Lost,
    /// Regatta could not start the program.
    NotRun {
        reason: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fault: Option<SetupFault>,
    },
}

/// The part of the set-up that kept a program from running. The user gets one message, and no
/// attempt is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SetupFault {
    /// The agent: its program is missing, or the daemon's environment lacks a key.
    Agent,
    /// The repository or the task: git cannot make or read the workspace.
    Task,
}

/// Handles the report that a supervised attempt's process tree is gone.
pub fn on_program_exit(
    draft: &mut Draft,
    id: AttemptId,
    token: u64,
    exit: ProgramExit,
    now: Now,
) -> Result<(), Refusal> {
    let attempt = require_attempt(draft.board(), id, token)?;
    if let Some(cause) = attempt.stopping {
        end(draft, id, cause, "stopped");
        return Ok(());
    }
    if attempt.phase != AttemptPhase::Working {
        return Ok(()); // the work was reported as done before the process ended
    }
    match exit {
        // Nobody asked the session of a member to end.
        ProgramExit::Done { .. } if attempt.session_of.is_some() => {
            end(
                draft,
                id,
                AttemptCause::Crashed,
                "its program ended by itself",
            );
            Ok(())
        }
        ProgramExit::Done { output } => {
            provider_outage::on_work_succeeded(draft, &attempt.agent);
            task::finish(
                draft,
                attempt.task,
                id,
                token,
                attempt.output.clone().or(output),
            )
        }
        ProgramExit::Failed { reason, class } => on_failure(
            draft,
            &attempt,
            class.unwrap_or(FailureClass::Crashed),
            &reason,
            now,
        ),
        ProgramExit::Lost => {
            let reason = "its process vanished (a kill -9, or the machine stopped)";
            let has_session = attempt.session.session_id.is_some();
            let resume = has_session.then(|| resume_point(&attempt, true));
            // The first retry starts at once. When processes vanish repeatedly, the pauses grow.
            let is_repeated = task::find(draft.board(), attempt.task)?.tries > 0;
            let not_before = retry_delay_ms(draft, attempt.task)?
                .filter(|_| is_repeated)
                .map(|delay_ms| now.fleet_ms + delay_ms);
            let again = NextAttempt {
                resume,
                not_before_fleet_ms: not_before,
                was_interrupted: true,
                ..NextAttempt::default()
            };
            task::retry_after(draft, attempt.task, AttemptCause::Lost, reason, again)?;
            end(draft, id, AttemptCause::Lost, reason);
            Ok(())
        }
        ProgramExit::NotRun {
            reason,
            fault: Some(SetupFault::Agent),
        } => on_failure(draft, &attempt, FailureClass::BadConfig, &reason, now),
        ProgramExit::NotRun {
            reason,
            fault: Some(SetupFault::Task),
        } if attempt.session_of.is_none() => {
            task::needs_human(draft, attempt.task, WaitKind::Policy, &reason)?;
            end(draft, id, AttemptCause::Environment, &reason);
            Ok(())
        }
        ProgramExit::NotRun { reason, .. } => {
            end(draft, id, AttemptCause::Environment, &reason);
            requeue_after_failure(draft, attempt.task, AttemptCause::Environment, &reason)
        }
    }
}

/// Handles a failure according to its class.
fn on_failure(
    draft: &mut Draft,
    attempt: &Attempt,
    class: FailureClass,
    reason: &str,
    now: Now,
) -> Result<(), Refusal> {
    let (id, task) = (attempt.id, attempt.task);
    let agent = crate::agent::find(draft.board(), &attempt.agent)?.clone();
    let not_before = retry_delay_ms(draft, task)?.map(|delay_ms| now.fleet_ms + delay_ms);
    let resume_here = |with_session| Some(resume_point(attempt, with_session));
    let (cause, again) = match (class, class.consequence()) {
        (_, FailureConsequence::Park) => {
            let (deadline_unix_ms, detail) = attempt
                .session
                .provider_limit
                .clone()
                .unwrap_or((None, reason.to_owned()));
            provider_outage::park(draft, &agent, class, deadline_unix_ms, &detail, now);
            (
                AttemptCause::Parked,
                NextAttempt {
                    resume: resume_here(true),
                    ..NextAttempt::default()
                },
            )
        }
        // The task is fine, but its agent is not. The agent gets no work until somebody has fixed
        // it.
        (FailureClass::Auth | FailureClass::BadConfig, _) => {
            provider_outage::park(draft, &agent, class, None, reason, now);
            let cause = if class == FailureClass::Auth {
                AttemptCause::Auth
            } else {
                AttemptCause::BadConfig
            };
            (cause, NextAttempt::default())
        }
        (_, FailureConsequence::NeedsPerson) => {
            task::needs_human(draft, task, WaitKind::Provider, reason)?;
            end(draft, id, AttemptCause::Refused, reason);
            return Ok(());
        }
        (_, FailureConsequence::NewSession) => {
            let again = NextAttempt {
                resume: resume_here(false),
                counts_as_failure: attempt.session.turns == 0,
                was_interrupted: true,
                not_before_fleet_ms: not_before.filter(|_| attempt.resumes.is_some()),
                ..NextAttempt::default()
            };
            (AttemptCause::ContextFull, again)
        }
        (FailureClass::Overloaded, _) => (
            AttemptCause::Overloaded,
            NextAttempt {
                not_before_fleet_ms: not_before,
                resume: resume_here(true),
                was_interrupted: true,
                ..NextAttempt::default()
            },
        ),
        // If nobody asked for the cancellation, it is a failure.
        (FailureClass::Cancelled, _) if attempt.session.cancels > 0 => (
            AttemptCause::Stopped,
            NextAttempt {
                resume: resume_here(true),
                ..NextAttempt::default()
            },
        ),
        (_, _) => {
            let cause = if class == FailureClass::Timeout {
                AttemptCause::TimedOut
            } else {
                AttemptCause::Crashed
            };
            (
                cause,
                NextAttempt {
                    not_before_fleet_ms: not_before,
                    counts_as_failure: true,
                    was_interrupted: true,
                    ..NextAttempt::default()
                },
            )
        }
    };
    task::retry_after(draft, task, cause, reason, again)?;
    end(draft, id, cause, reason);
    Ok(())
}

/// Makes a task wait again after its attempt failed. The pause before the next try grows each time.
pub(crate) fn requeue_after_failure(
    draft: &mut Draft,
    task: TaskId,
    cause: AttemptCause,
    reason: &str,
) -> Result<(), Refusal> {
    let not_before = retry_delay_ms(draft, task)?.map(|delay_ms| draft.now().fleet_ms + delay_ms);
    task::retry_after(
        draft,
        task,
        cause,
        reason,
        NextAttempt {
            not_before_fleet_ms: not_before,
            counts_as_failure: true,
            was_interrupted: true,
            ..NextAttempt::default()
        },
    )
}

/// Returns the pause before the next try of a task. `None` when the settings allow no pause.
fn retry_delay_ms(draft: &Draft, task: TaskId) -> Result<Option<u64>, Refusal> {
    let limits = draft.board().limits;
    let tries = task::find(draft.board(), task)?.tries;
    let delay_ms = (limits.retry_delay_ms << tries.min(8)).min(limits.max_retry_delay_ms);
    Ok((delay_ms > 0).then_some(delay_ms))
}

/// Returns the place where the work of `attempt` can go on: its workspace, and with `with_session`
/// also its session.
pub(crate) fn resume_point(attempt: &Attempt, with_session: bool) -> ResumePoint {
    let session = if with_session {
        attempt.session.session_id.clone()
    } else {
        None
    };
    let used = attempt.session.usage_of_session(session.as_deref());
    let runner = attempt.runner.clone();
    ResumePoint {
        workspace: attempt.workspace(),
        agent: attempt.agent.clone(),
        session,
        used,
        runner,
    }
}

/// Stops a running turn so that it can go on later. The workspace and the session are kept.
pub(crate) fn park(draft: &mut Draft, id: AttemptId, reason: &str) -> Result<(), Refusal> {
    let Some(attempt) = draft.board().attempts.get(&id).cloned() else {
        return Ok(());
    };
    stop(draft, id, AttemptCause::Parked, reason.to_owned());
    let resume = (!attempt.no_workspace).then(|| resume_point(&attempt, true));
    let again = NextAttempt {
        resume,
        ..NextAttempt::default()
    };
    task::retry_after(draft, attempt.task, AttemptCause::Parked, reason, again)
}

/// Stops an attempt so that the work goes on in a fresh session in the same workspace. This costs
/// no attempt.
pub(crate) fn rotate(draft: &mut Draft, id: AttemptId, reason: &str) -> Result<(), Refusal> {
    let Some(attempt) = draft.board().attempts.get(&id).cloned() else {
        return Ok(());
    };
    stop(draft, id, AttemptCause::ContextFull, reason.to_owned());
    let again = NextAttempt {
        resume: Some(resume_point(&attempt, false)),
        ..NextAttempt::default()
    };
    task::retry_after(
        draft,
        attempt.task,
        AttemptCause::ContextFull,
        reason,
        again,
    )
}
