//! Attempts: one run of one agent on one task, with a token that only it knows.
//!
//! A supervised attempt lives as long as its process; one from outside lives as long as it is heard of.
//! Either way its end releases all it held, in one commit, with one cause (J6, L11).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::board::{Board, Draft};
use crate::claim::{self, Owner};
use crate::event::{Event, facts};
use crate::ids::{AgentName, AttemptId, CommitId, LandingId, MissionId, Now, ProjectName, TaskId};
use crate::refusal::Refusal;
use crate::task::{self, Expects, Submission, Task};

/// What an attempt is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Working,
    Validating,
}

/// Why an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Its work went to the landing queue.
    Submitted,
    /// Its report is in.
    Reported,
    /// It said so itself.
    GaveUp,
    /// Its program failed.
    Crashed,
    /// Its work did not pass its validation.
    Invalid,
    /// It was done, and nothing had changed.
    NothingChanged,
    /// It changed files outside its manifest.
    ScopeEscape,
    /// Nothing was heard of it for too long, or its process vanished.
    Lost,
    /// A person stopped it.
    Stopped,
    /// Its task was cancelled.
    Cancelled,
    /// The shell could not do its part (no disk, no git, …).
    Environment,
}

/// One run of one agent on one task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Attempt {
    pub id: AttemptId,
    pub task: TaskId,
    pub project: ProjectName,
    pub mission: Option<MissionId>,
    pub agent: AgentName,
    /// Only who knows it speaks for the task (J3).
    pub token: u64,
    /// Whether Regatta runs its process.
    pub supervised: bool,
    pub phase: Phase,
    /// Its process is being ended, for this cause.
    pub stopping: Option<Cause>,
    /// How long it may be silent, when it is not supervised.
    pub lease_ms: Option<u64>,
    pub expires_at: Option<u64>,
    pub started_wall: u64,
    /// How it ended.
    pub ended: Option<End>,
}

/// An attempt's end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct End {
    pub cause: Cause,
    pub detail: String,
    pub wall: u64,
}

facts! {
    Started { attempt: Attempt }
    Renewed { attempt: AttemptId, expires_at: u64 }
    Stopping { attempt: AttemptId, cause: Cause, detail: String }
    Ended { attempt: AttemptId, cause: Cause, detail: String }
}

/// Who begins an attempt, and how it is kept alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Begin {
    pub(crate) agent: AgentName,
    pub(crate) supervised: bool,
    pub(crate) lease_ms: u64,
}

/// How long an attempt from outside may be silent, if it names no other time: an hour.
pub const LEASE_MS: u64 = 3_600_000;

pub(crate) fn begin(draft: &mut Draft, id: AttemptId, task: &Task, by: &Begin, now: Now) {
    let lease_ms = (!by.supervised).then_some(by.lease_ms);
    let attempt = Attempt {
        id,
        task: task.id,
        project: task.project.clone(),
        mission: task.mission,
        agent: by.agent.clone(),
        token: draft.next_revision(),
        supervised: by.supervised,
        phase: Phase::Working,
        stopping: None,
        lease_ms,
        expires_at: lease_ms.map(|it| now.at + it),
        started_wall: now.wall,
        ended: None,
    };
    draft.record(Event::AttemptStarted(Started { attempt }));
}

/// The live attempt, if `token` is its own: the fence on everything done in a task's name (J3, L6).
pub fn speaks_for(board: &Board, task: TaskId, id: AttemptId, token: u64) -> Result<Arc<Attempt>, Refusal> {
    let found = task::find(board, task)?;
    match board.attempts.get(&id) {
        Some(attempt) if attempt.task == task && attempt.token == token => Ok(attempt.clone()),
        _ => Err(Refusal::StaleAttempt { task, attempt: id, live: found.attempt.filter(|it| *it != id) }),
    }
}

/// Notes that an attempt from outside lives.
pub(crate) fn renew(draft: &mut Draft, id: AttemptId, now: Now) {
    let lease = draft.board().attempts.get(&id).and_then(|it| it.lease_ms);
    if let Some(lease) = lease {
        draft.record(Event::AttemptRenewed(Renewed { attempt: id, expires_at: now.at + lease }));
    }
}

/// Gives every attempt from outside one fresh lease after the daemon was away.
pub(crate) fn refresh(draft: &mut Draft, now: Now) {
    let outside: Vec<AttemptId> =
        draft.board().attempts.values().filter(|it| it.lease_ms.is_some()).map(|it| it.id).collect();
    for id in outside {
        renew(draft, id, now);
    }
}

/// Ends an attempt at once, with all it holds.
pub(crate) fn end(draft: &mut Draft, id: AttemptId, cause: Cause, detail: &str) {
    if draft.board().attempts.contains_key(&id) {
        claim::release_all(draft, &Owner::Attempt(id));
        draft.record(Event::AttemptEnded(Ended { attempt: id, cause, detail: detail.to_owned() }));
    }
}

/// Begins to end an attempt. What it holds is free only when its process tree is gone.
pub(crate) fn stop(draft: &mut Draft, id: AttemptId, cause: Cause, detail: String) {
    let Some(attempt) = draft.board().attempts.get(&id).cloned() else { return };
    if !attempt.supervised {
        end(draft, id, cause, &detail);
    } else if attempt.stopping.is_none() {
        draft.record(Event::AttemptStopping(Stopping { attempt: id, cause, detail }));
    }
}

/// Stops a task's attempt and lets the task wait again; its work is kept.
pub fn stop_task(draft: &mut Draft, id: TaskId, reason: &str) -> Result<(), Refusal> {
    let task = task::find(draft.board(), id)?;
    // One that is being stopped already has handed its task back.
    if let Some(attempt) = task.attempt.filter(|_| task.status.is_running()) {
        stop(draft, attempt, Cause::Stopped, reason.to_owned());
        task::try_again(draft, id, reason, false)?;
    }
    Ok(())
}

/// Ends an attempt from outside that was silent for too long; its task waits again.
pub fn expire(draft: &mut Draft, id: AttemptId, now: Now) -> Result<(), Refusal> {
    let Some(attempt) = draft.board().attempts.get(&id).cloned() else { return Ok(()) };
    if attempt.phase == Phase::Working && attempt.expires_at.is_some_and(|at| at <= now.at) {
        let reason = format!("nothing was heard of {id} for too long");
        end(draft, id, Cause::Lost, &reason);
        task::try_again(draft, attempt.task, &reason, false)?;
    }
    Ok(())
}

/// How a supervised attempt's program ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Exited {
    /// It says it is done.
    Done { output: Option<String> },
    /// It failed, in these words.
    Failed { reason: String },
    /// It vanished without a word.
    Lost,
    /// The shell could not run it.
    NotRun { reason: String },
}

/// Takes the report that a supervised attempt's process tree is gone.
pub fn exited(draft: &mut Draft, id: AttemptId, token: u64, how: Exited) -> Result<(), Refusal> {
    let attempt = live(draft.board(), id, token)?;
    if let Some(cause) = attempt.stopping {
        end(draft, id, cause, "stopped");
        return Ok(());
    }
    if attempt.phase != Phase::Working {
        return Ok(()); // it had said it was done before its process ended
    }
    match how {
        Exited::Done { output } => task::finish(draft, attempt.task, id, token, output),
        Exited::Failed { reason } => {
            end(draft, id, Cause::Crashed, &reason);
            task::try_again(draft, attempt.task, &reason, true)
        }
        Exited::Lost => {
            let reason = "its process vanished (a kill -9, or the machine stopped)";
            end(draft, id, Cause::Lost, reason);
            task::try_again(draft, attempt.task, reason, false)
        }
        Exited::NotRun { reason } => {
            end(draft, id, Cause::Environment, &reason);
            task::try_again(draft, attempt.task, &reason, true)
        }
    }
}

/// What capturing and checking an attempt's work found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Its contract holds on this captured commit.
    Passed { commit: CommitId, base: CommitId, changed: Vec<String> },
    /// It does not.
    Failed { reason: String },
    /// The shell could not find out.
    Unknown { reason: String },
}

/// Takes the verdict: work that passed goes to the landing queue with its claims, the rest comes back.
pub fn judged(
    draft: &mut Draft,
    id: AttemptId,
    token: u64,
    verdict: Verdict,
    now: Now,
) -> Result<Option<LandingId>, Refusal> {
    let attempt = live(draft.board(), id, token)?;
    if attempt.phase != Phase::Validating {
        return Err(Refusal::StaleAttempt { task: attempt.task, attempt: id, live: None });
    }
    if let Some(cause) = attempt.stopping {
        end(draft, id, cause, "stopped while its work was checked");
        return Ok(None);
    }
    let task = task::find(draft.board(), attempt.task)?;
    let (cause, reason, counts) = match verdict {
        Verdict::Passed { commit, base, changed } if !changed.is_empty() => {
            let escapes = task.escapes(&changed);
            if escapes.is_empty() {
                let submission = Submission { attempt: id, commit, base, changed };
                let landing = crate::landing::submit(draft, &task, &attempt, submission, now)?;
                end(draft, id, Cause::Submitted, "");
                return Ok(Some(landing));
            }
            let reason = format!("it changed files outside its manifest: {}", first_few(&escapes));
            (Cause::ScopeEscape, reason, true)
        }
        Verdict::Passed { .. } if task.expects == Expects::Report => {
            end(draft, id, Cause::Reported, "");
            task::complete(draft, task.id, None)?;
            return Ok(None);
        }
        Verdict::Passed { .. } => (Cause::NothingChanged, "it said it was done, and nothing had changed".into(), true),
        Verdict::Failed { reason } => (Cause::Invalid, reason, true),
        Verdict::Unknown { reason } => (Cause::Environment, reason, true),
    };
    end(draft, id, cause, &reason);
    task::try_again(draft, task.id, &reason, counts)?;
    Ok(None)
}

fn live(board: &Board, id: AttemptId, token: u64) -> Result<Arc<Attempt>, Refusal> {
    match board.attempts.get(&id) {
        Some(attempt) if attempt.token == token => Ok(attempt.clone()),
        Some(attempt) => Err(Refusal::StaleAttempt { task: attempt.task, attempt: id, live: None }),
        None => Err(Refusal::invalid(format!("{id} has ended"), "nothing is left to report for it")),
    }
}

/// At most five names, and how many more there are.
pub(crate) fn first_few(names: &[&str]) -> String {
    let shown = names.iter().take(5).copied().collect::<Vec<_>>().join(", ");
    if names.len() > 5 { format!("{shown} and {} more", names.len() - 5) } else { shown }
}
