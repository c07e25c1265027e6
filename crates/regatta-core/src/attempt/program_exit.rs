//! Decides, after an attempt's program has ended, whether the task is finished, tried again or
//! waits for a person, and where its next attempt continues.

use serde::{Deserialize, Serialize};

use crate::agent_protocol::{FailureClass, FailureConsequence};
use crate::board::Draft;
use crate::ids::{AttemptId, Now, TaskId};
use crate::provider_outage;
use crate::refusal::Refusal;
use crate::schedule::WaitKind;
use crate::task::{self, NextAttempt};

use super::{Attempt, AttemptCause, AttemptPhase, ResumePoint, end, require_attempt, stop};

/// The way in which the program of a supervised attempt ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ProgramExit {
    /// The program ended and reported that the work is done.
    Done { output: Option<String> },
    /// The program failed; `reason` is its message, and `class` the kind of failure if the driver
    /// recognised it.
    Failed {
        reason: String,
        #[serde(default)]
        class: Option<FailureClass>,
    },
    /// The program's process vanished without leaving an exit status, for example because it was
    /// killed or the machine stopped.
    Lost,
    /// Regatta could not start the program.
    NotRun {
        reason: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fault: Option<SetupFault>,
    },
}

/// The part of the setup that prevented a program from starting. For such a fault, the user gets
/// one message and the task is not charged with a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SetupFault {
    /// The fault is in the agent's setup: its program is not installed, or the daemon's environment
    /// lacks a key.
    Agent,
    /// The fault is in the repository or the task: git cannot create or read the workspace.
    Task,
}

/// Handles the report that all processes of a supervised attempt are gone.
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
        // A team member's session must run until somebody stops it, so an end of the program by
        // itself counts as a crash.
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
            // Retry at once after the first vanished process. If the task was tried before, wait
            // before the retry, and longer each time.
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

/// Ends an attempt whose program failed, and decides by the class of the failure how its task
/// continues.
fn on_failure(
    draft: &mut Draft,
    attempt: &Attempt,
    class: FailureClass,
    reason: &str,
    now: Now,
) -> Result<(), Refusal> {
    let (id, task) = (attempt.id, attempt.task);
    let agent = crate::agent::find(draft.board(), &attempt.agent)?.clone();
    let no_network;
    let reason = if class == FailureClass::NoNetwork {
        no_network = no_network_reason(agent.name.as_str(), &agent.profile.egress, reason);
        no_network.as_str()
    } else {
        reason
    };
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
        // The fault is the agent's, not the task's. The agent gets no work until somebody has fixed
        // its sign-in or settings, and the task waits without a counted failure.
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
        (FailureClass::Overloaded | FailureClass::NoNetwork, _) => {
            let cause = if class == FailureClass::Overloaded {
                AttemptCause::Overloaded
            } else {
                AttemptCause::NoNetwork
            };
            (
                cause,
                NextAttempt {
                    not_before_fleet_ms: not_before,
                    resume: resume_here(true),
                    was_interrupted: true,
                    ..NextAttempt::default()
                },
            )
        }
        // A cancelled turn is a normal stop only if Regatta asked for the cancellation. Otherwise
        // the last branch treats the end as a crash.
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

/// Describes that the program of the agent `name` cannot reach its provider, and names the command
/// that helps. `hosts` are the only hosts that the program may reach, if the list is not empty.
fn no_network_reason(name: &str, hosts: &[String], reason: &str) -> String {
    let fix = if hosts.is_empty() {
        format!(
            "the task is tried again by itself; check the network and the proxy of this machine, \
             then test the agent: regatta agent test {name}"
        )
    } else {
        format!(
            "the agent may reach only {}; to allow another host, add the agent again with all \
             hosts: regatta agent add {name} … --egress HOST",
            hosts.join(", ")
        )
    };
    format!("{name} cannot reach its provider: {reason}; {fix}")
}

/// Returns a task to the waiting tasks after its attempt failed. The delay before the next attempt
/// doubles with each failure.
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

/// Returns the delay before the next attempt at a task, in milliseconds; `None` if the settings ask
/// for no delay.
fn retry_delay_ms(draft: &Draft, task: TaskId) -> Result<Option<u64>, Refusal> {
    let limits = draft.board().limits;
    let tries = task::find(draft.board(), task)?.tries;
    let delay_ms = (limits.retry_delay_ms << tries.min(8)).min(limits.max_retry_delay_ms);
    Ok((delay_ms > 0).then_some(delay_ms))
}

/// Returns where the next attempt can continue the work of `attempt`: its workspace and, if
/// `with_session`, its session.
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

/// Stops an attempt and returns its task to the waiting tasks. The workspace and the session are
/// kept, so that a later attempt can continue.
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

/// Stops an attempt so that its task continues in the same workspace with a new session. The
/// stopped attempt does not count as a failed attempt.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_without_network_names_the_command_that_helps() {
        let open = no_network_reason("codex-1", &[], "no route to host");
        assert!(open.starts_with("codex-1 cannot reach its provider: no route to host; "));
        assert!(open.ends_with("regatta agent test codex-1"), "{open}");
        let hosts = ["api.openai.com".to_owned(), "example.com".to_owned()];
        let limited = no_network_reason("codex-1", &hosts, "refused");
        assert!(
            limited.contains("may reach only api.openai.com, example.com;")
                && limited.ends_with("regatta agent add codex-1 … --egress HOST"),
            "{limited}"
        );
    }
}
