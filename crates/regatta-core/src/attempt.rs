//! Attempts: one run of one agent on one task, with a token that only the attempt knows.
//!
//! A supervised attempt lives as long as its process. An outside attempt lives as long as it renews
//! its lease. In both cases the end releases everything that the attempt held, in one commit, with
//! one cause (J6, L11).

mod verdict; // the verdict on an attempt's work

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent::Role;
use crate::agent_protocol::{
    AgentEvent, FailureClass, FailureConsequence, PlanEntry, StopReason, Usage,
};
use crate::board::{Board, Draft};
use crate::budget::{self, Spend};
use crate::claim::{self, ClaimOwner};
use crate::event::{Event, facts};
use crate::ids::{AgentName, AttemptId, MissionId, Now, ProjectName, RunnerName, TaskId};
use crate::inbox::Snooze;
use crate::launch::SessionOf;
use crate::refusal::Refusal;
use crate::schedule::WaitKind;
use crate::start_gates::GateResult;
use crate::task::{self, NextAttempt, Task};
use crate::{approval, provider_outage, session_rotation};

pub use verdict::{ResultStatus, WorkFindings, WorkResult, WorkVerdict, apply_verdict};

/// The work that an attempt does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AttemptPhase {
    Working,
    Validating,
}

/// The reason why an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AttemptCause {
    /// The work went to the landing queue.
    Submitted,
    /// The report was accepted.
    Reported,
    /// The lead finished its turn and rests until something happens.
    Rested,
    /// The agent gave up.
    GaveUp,
    /// The program failed.
    Crashed,
    /// The work did not pass its validation.
    Invalid,
    /// The work passed its validation, but its ratchet refused it.
    Rejected,
    /// The agent says it cannot go on, or a rule of the project forbids the work.
    Blocked,
    /// The agent said it was done, but nothing had changed.
    NothingChanged,
    /// The attempt changed files outside its manifest.
    ScopeEscape,
    /// The attempt sent no sign of life for too long, or its process vanished.
    Lost,
    /// A person stopped the attempt.
    Stopped,
    /// The task was cancelled.
    Cancelled,
    /// Regatta could not do its own part (no disk space, no git, …).
    Environment,
    /// The attempt reached its time limit.
    TimedOut,
    /// The program was silent for too long.
    Hung,
    /// The attempt's own budget was used up.
    OverBudget,
    /// A limit or a wider budget was used up. The work goes on later in the same workspace.
    Parked,
    /// The provider was overloaded.
    Overloaded,
    /// The model's context was full. The work goes on in a fresh session.
    ContextFull,
    /// The model declined the task.
    Refused,
    /// Nobody is signed in, or the key is wrong.
    Auth,
    /// The agent's settings cannot work.
    BadConfig,
}

impl AttemptCause {
    /// Returns the cause in lower-case words: `nothing changed`.
    pub fn label(self) -> String {
        let mut words = String::new();
        for letter in format!("{self:?}").chars() {
            if letter.is_uppercase() && !words.is_empty() {
                words.push(' ');
            }
            words.extend(letter.to_lowercase());
        }
        words
    }
}

/// The end of a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TurnEnd {
    pub stop: StopReason,
    pub class: Option<FailureClass>,
    pub detail: String,
}

/// The state of the conversation with a supervised attempt's program: its reports, and the prompts
/// for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct SessionState {
    /// The position in the program's journal up to which the board has read it.
    #[serde(rename = "heard")]
    pub last_record: u64,
    /// The id of the program's native session.
    #[serde(rename = "session")]
    pub session_id: Option<String>,
    pub model: Option<String>,
    /// The number of prompts that the program received.
    pub turns: u64,
    pub in_turn: bool,
    /// Prompts that follow the brief.
    #[serde(rename = "tells")]
    pub follow_ups: Vec<String>,
    /// The number of times that a turn was to be cancelled.
    pub cancels: u32,
    /// The reason why no prompt is sent for now.
    #[serde(rename = "held")]
    pub hold_reason: Option<String>,
    /// No further prompt will be sent.
    pub closing: bool,
    /// The number of the turn in which the agent summarises itself, because its context is nearly
    /// full.
    #[serde(rename = "rotating")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary_turn: Option<u64>,
    /// Cumulative usage by native session.
    #[serde(rename = "sessions")]
    pub usage_by_session: Vec<(Option<String>, Usage)>,
    /// Tokens used in the model's context, and the size of the context.
    pub context: Option<(u64, u64)>,
    pub plan: Vec<PlanEntry>,
    #[serde(rename = "last")]
    pub last_turn_end: Option<TurnEnd>,
    /// The end of the provider's limit, as a date if it is known, and the provider's message.
    #[serde(rename = "limited")]
    pub provider_limit: Option<(Option<u64>, String)>,
}

impl SessionState {
    fn is_default(&self) -> bool {
        *self == SessionState::default()
    }

    /// Returns the usage of one native session, as far as the board knows.
    pub fn usage_of_session(&self, session: Option<&str>) -> Usage {
        self.usage_by_session
            .iter()
            .find(|usage_by_session| usage_by_session.0.as_deref() == session)
            .map(|usage_by_session| usage_by_session.1)
            .unwrap_or_default()
    }

    /// Returns whether every prompt was sent and the last turn has ended.
    pub fn is_finished(&self) -> bool {
        !self.in_turn && self.turns > self.follow_ups.len() as u64
    }
}

/// The place where unfinished work goes on: the workspace of an earlier attempt, and its session
/// for the same agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ResumePoint {
    pub workspace: AttemptId,
    pub agent: AgentName,
    pub session: Option<String>,
    /// Usage of that session so far. The program's own counters start from here.
    #[serde(default)]
    pub used: Usage,
    /// The runner that has the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner: Option<RunnerName>,
}

/// One run of one agent on one task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Attempt {
    pub id: AttemptId,
    pub task: TaskId,
    pub project: ProjectName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mission: Option<MissionId>,
    pub agent: AgentName,
    /// The fencing token. Only a caller that knows it can act for the task (J3).
    pub token: u64,
    /// Regatta runs the attempt's process.
    pub supervised: bool,
    /// The runner on which the attempt runs; `None` for the daemon's own runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner: Option<RunnerName>,
    pub phase: AttemptPhase,
    /// The cause for which the attempt's process is being stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopping: Option<AttemptCause>,
    /// The attempt takes no slot of the machine, because it leads or answers a question.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[serde(rename = "light")]
    pub takes_no_slot: bool,
    /// The attempt has no workspace, because it only reports and asked for none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[serde(rename = "bare")]
    pub no_workspace: bool,
    /// A person took the task over and does the work.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_hand: bool,
    /// Longest allowed silence of an attempt that is not supervised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "expires_at")]
    pub expires_fleet_ms: Option<u64>,
    #[serde(rename = "started_wall")]
    pub started_unix_ms: u64,
    /// Start time, on the fleet clock.
    #[serde(default)]
    #[serde(rename = "started_at")]
    pub started_fleet_ms: u64,
    /// Deadline on the fleet clock, if Regatta runs the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "until_at")]
    pub deadline_fleet_ms: Option<u64>,
    /// Time of the next check against wider budgets, on the fleet clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "wall_at")]
    pub budget_check_fleet_ms: Option<u64>,
    /// Deadline on the fleet clock for opening a session, if the program opens one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "ready_by")]
    pub session_deadline_fleet_ms: Option<u64>,
    /// The program takes more than one prompt.
    #[serde(default)]
    #[serde(rename = "talks")]
    pub accepts_follow_ups: bool,
    /// The earlier attempt whose workspace this attempt continues in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumes: Option<ResumePoint>,
    /// The member of a team whose session this is. The session stays open between turns until it is
    /// stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "standing")]
    pub session_of: Option<SessionOf>,
    /// Ports of the machine that are reserved for the attempt, in the order in which its program
    /// gets them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<u16>,
    /// Notes that people had left on the task. This attempt began with them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    #[serde(default, skip_serializing_if = "SessionState::is_default")]
    #[serde(rename = "talk")]
    pub session: SessionState,
    /// Usage of the attempt.
    #[serde(default, skip_serializing_if = "Usage::is_nothing")]
    pub used: Usage,
    /// The sandbox of the program. Absent if the program has none or has not started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// The result that the attempt left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<WorkResult>,
    /// Results of the gates at the start. Gates that are not listed passed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<GateResult>,
    /// The program's own summary of its work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Start of a long silence, as a date. Absent while the attempt is not silent for long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "quiet_wall")]
    pub quiet_since_unix_ms: Option<u64>,
    /// A person's snooze of the silence notice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snoozed: Option<Snooze>,
    /// The end of the attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "ended")]
    pub end: Option<AttemptEnd>,
}

impl Attempt {
    /// Names the attempt and the agent or person at work: `A5 by claude-1`.
    pub fn label(&self) -> String {
        if self.by_hand {
            format!("{} by a person", self.id)
        } else {
            format!("{} by {}", self.id, self.agent)
        }
    }

    /// Returns the attempt whose workspace this attempt works in: itself, unless it continues
    /// unfinished work.
    pub fn workspace(&self) -> AttemptId {
        self.resumes
            .as_ref()
            .map_or(self.id, |resume_point| resume_point.workspace)
    }

    /// Returns whether a prompt that is sent now would still reach the program.
    pub fn accepts_prompts(&self) -> bool {
        self.supervised
            && self.accepts_follow_ups
            && self.stopping.is_none()
            && !self.session.closing
            && self.phase == AttemptPhase::Working
    }

    /// Returns the attempt's spending, without the time.
    pub fn spent(&self) -> Spend {
        Spend {
            usage: self.used,
            turns: self.session.turns,
            attempts: 1,
            wall_ms: 0,
        }
    }

    /// Returns the session to continue, if the same agent left one.
    pub fn resumed_session(&self) -> Option<&str> {
        self.resumes
            .as_ref()
            .filter(|resume_point| resume_point.agent == self.agent)
            .and_then(|resume_point| resume_point.session.as_deref())
    }
}

/// The end of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AttemptEnd {
    pub cause: AttemptCause,
    pub detail: String,
    #[serde(rename = "wall")]
    pub unix_ms: u64,
}

facts! {
    AttemptStarted { attempt: Arc<Attempt> }
    AttemptRenewed { attempt: AttemptId, expires_at: u64 }
    AttemptStopping { attempt: AttemptId, cause: AttemptCause, detail: String }
    AttemptEnded { attempt: AttemptId, cause: AttemptCause, detail: String }
    /// The program sent a report that changes state, at this position of its journal.
    AttemptSaid { attempt: AttemptId, n: u64, said: AgentEvent }
    /// No further prompt will be sent to the program.
    AttemptClosing { attempt: AttemptId }
    /// These ports are reserved for the attempt.
    AttemptPorted { attempt: AttemptId, ports: Vec<u16> }
    /// The program reports its work. The report counts when the program has ended.
    AttemptNoted { attempt: AttemptId, output: Option<String> }
    /// The program runs.
    AttemptLaunched { attempt: AttemptId, sandbox: Option<String>, warnings: Vec<String> }
    /// The attempt left a result.
    AttemptReported { attempt: AttemptId, result: WorkResult }
}

/// The arguments of [`begin`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BeginAttempt {
    pub(crate) agent: AgentName,
    pub(crate) supervised: bool,
    pub(crate) runner: Option<RunnerName>,
    pub(crate) lease_ms: u64,
    pub(crate) no_workspace: bool,
    pub(crate) by_hand: bool,
    pub(crate) gates: Vec<GateResult>,
}

/// Longest allowed silence of an outside attempt that names no other lease: an hour.
pub const DEFAULT_LEASE_MS: u64 = 3_600_000;

pub(crate) fn begin(draft: &mut Draft, id: AttemptId, task: &Task, by: &BeginAttempt, now: Now) {
    let lease_ms = (!by.supervised).then_some(by.lease_ms);
    let limits = draft.board().limits;
    let agent = draft.board().agents.get(&by.agent).cloned();
    let timeout = match agent.as_ref().map(|agent| agent.role) {
        Some(Role::Lead) => limits.lead_timeout_ms,
        _ => limits.attempt_timeout_ms,
    };
    let wall = draft
        .board()
        .budgets
        .get(&budget::BudgetScope::Attempt)
        .and_then(|budget| budget.ceiling.wall_ms);
    let timeout = wall.map_or(timeout, |wall| wall.min(timeout));
    let talks = by.supervised
        && agent
            .as_ref()
            .is_some_and(|agent| agent.runtime.accepts_follow_ups());
    // A workspace on another machine cannot be continued here.
    let resumes = task
        .resume
        .clone()
        .filter(|resume_point| resume_point.runner == by.runner);
    let sessions = resumes
        .iter()
        .filter_map(|resume_point| already_charged_usage(resume_point, by))
        .collect();
    let attempt = Attempt {
        id,
        task: task.id,
        project: task.project.clone(),
        mission: task.mission,
        agent: by.agent.clone(),
        token: draft.next_revision(),
        supervised: by.supervised,
        runner: by.runner.clone(),
        phase: AttemptPhase::Working,
        stopping: None,
        takes_no_slot: task.is_light() || task.session_of.is_some(),
        no_workspace: by.no_workspace,
        by_hand: by.by_hand,
        lease_ms,
        expires_fleet_ms: lease_ms.map(|lease_m| now.fleet_ms + lease_m),
        started_unix_ms: now.unix_ms,
        started_fleet_ms: now.fleet_ms,
        deadline_fleet_ms: (by.supervised && task.session_of.is_none())
            .then(|| now.fleet_ms + timeout),
        budget_check_fleet_ms: None,
        session_deadline_fleet_ms: None,
        accepts_follow_ups: talks,
        resumes,
        session_of: task.session_of.clone(),
        ports: vec![],
        notes: task.notes.clone(),
        session: SessionState {
            usage_by_session: sessions,
            ..SessionState::default()
        },
        used: Usage::default(),
        sandbox: None,
        result: None,
        gates: by.gates.clone(),
        output: None,
        quiet_since_unix_ms: None,
        snoozed: None,
        end: None,
    };
    draft.record(Event::AttemptStarted(AttemptStarted {
        attempt: attempt.into(),
    }));
    budget::schedule_all_checks(draft, now);
}

/// Returns the usage that the continued session already had, so that it is not charged again.
fn already_charged_usage(
    resume: &ResumePoint,
    by: &BeginAttempt,
) -> Option<(Option<String>, Usage)> {
    (resume.agent == by.agent && resume.session.is_some())
        .then(|| (resume.session.clone(), resume.used))
}

/// Returns the live attempt if `token` is current. This fence protects everything done in a task's
/// name (J3, L6).
pub fn require_attempt_of_task(
    board: &Board,
    task: TaskId,
    id: AttemptId,
    token: u64,
) -> Result<Arc<Attempt>, Refusal> {
    let found = task::find(board, task)?;
    match board.attempts.get(&id) {
        Some(attempt) if attempt.task == task && attempt.token == token => Ok(attempt.clone()),
        _ => Err(Refusal::StaleAttempt {
            task,
            attempt: id,
            live: found.attempt.filter(|attempt_id| *attempt_id != id),
        }),
    }
}

/// Renews the lease of an outside attempt.
pub(crate) fn renew(draft: &mut Draft, id: AttemptId, now: Now) {
    let lease = draft
        .board()
        .attempts
        .get(&id)
        .and_then(|attempt| attempt.lease_ms);
    if let Some(lease) = lease {
        draft.record(Event::AttemptRenewed(AttemptRenewed {
            attempt: id,
            expires_at: now.fleet_ms + lease,
        }));
    }
}

/// Renews the lease of every outside attempt after the daemon was down.
pub(crate) fn renew_leases(draft: &mut Draft, now: Now) {
    let outside: Vec<AttemptId> = draft
        .board()
        .attempts
        .values()
        .filter(|attempt| attempt.lease_ms.is_some())
        .map(|attempt| attempt.id)
        .collect();
    for id in outside {
        renew(draft, id, now);
    }
}

/// Ends an attempt at once and releases everything it holds.
pub(crate) fn end(draft: &mut Draft, id: AttemptId, cause: AttemptCause, detail: &str) {
    if let Some(attempt) = draft.board().attempts.get(&id).cloned() {
        approval::close_requests(draft, id, "its attempt has ended", true);
        let wall_ms = draft
            .now()
            .fleet_ms
            .saturating_sub(attempt.started_fleet_ms);
        if attempt.supervised && wall_ms > 0 {
            budget::record_spend(
                draft,
                id,
                Spend {
                    wall_ms,
                    ..Spend::default()
                },
            );
        }
        claim::release_all(draft, &ClaimOwner::Attempt(id));
        draft.record(Event::AttemptEnded(AttemptEnded {
            attempt: id,
            cause,
            detail: detail.to_owned(),
        }));
    }
}

/// Begins to stop an attempt. Its claims become free only when its process tree is gone.
pub(crate) fn stop(draft: &mut Draft, id: AttemptId, cause: AttemptCause, detail: String) {
    let Some(attempt) = draft.board().attempts.get(&id).cloned() else {
        return;
    };
    // Regatta must not end the program of an outside attempt, but it runs the checks of that
    // attempt (P11).
    if !attempt.supervised && attempt.phase == AttemptPhase::Working {
        end(draft, id, cause, &detail);
    } else if attempt.stopping.is_none() {
        draft.record(Event::AttemptStopping(AttemptStopping {
            attempt: id,
            cause,
            detail,
        }));
    }
}

/// Stops a task's attempt and makes the task wait again. Its work is kept.
pub fn stop_task(draft: &mut Draft, id: TaskId, reason: &str) -> Result<(), Refusal> {
    let task = task::find(draft.board(), id)?;
    // If the attempt is already being stopped, the task already waits again.
    if let Some(attempt) = task.attempt.filter(|_| task.status.is_running()) {
        stop(draft, attempt, AttemptCause::Stopped, reason.to_owned());
        task::return_for_retry(draft, id, reason)?;
    }
    Ok(())
}

/// Ends an outside attempt whose lease expired. Its task waits again.
pub fn expire(draft: &mut Draft, id: AttemptId, now: Now) -> Result<(), Refusal> {
    let Some(attempt) = draft.board().attempts.get(&id).cloned() else {
        return Ok(());
    };
    if attempt.phase == AttemptPhase::Working
        && attempt
            .expires_fleet_ms
            .is_some_and(|at| at <= now.fleet_ms)
    {
        let reason = format!("{id} did not report for too long, so its lease expired");
        end(draft, id, AttemptCause::Lost, &reason);
        task::return_for_retry(draft, attempt.task, &reason)?;
    }
    Ok(())
}

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
    how: ProgramExit,
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
    match how {
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
            let resume = attempt
                .session
                .session_id
                .is_some()
                .then(|| resume_point(&attempt, true));
            // The first retry starts at once. When processes vanish repeatedly, the pauses grow.
            let again = task::find(draft.board(), attempt.task)?.tries > 0;
            let not_before = retry_delay_ms(draft, attempt.task)?
                .filter(|_| again)
                .map(|retry_delay_m| now.fleet_ms + retry_delay_m);
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
    let not_before = retry_delay_ms(draft, task)?.map(|retry_delay_m| now.fleet_ms + retry_delay_m);
    let same = |session| Some(resume_point(attempt, session));
    let (cause, again) = match (class, class.consequence()) {
        (_, FailureConsequence::Park) => {
            let (until, detail) = attempt
                .session
                .provider_limit
                .clone()
                .unwrap_or((None, reason.to_owned()));
            provider_outage::park(draft, &agent, class, until, &detail, now);
            (
                AttemptCause::Parked,
                NextAttempt {
                    resume: same(true),
                    ..NextAttempt::default()
                },
            )
        }
        // The task is fine, but its agent is not. The agent gets no work until somebody has fixed
        // it.
        (FailureClass::Auth | FailureClass::BadConfig, _) => {
            provider_outage::park(draft, &agent, class, None, reason, now);
            (
                if class == FailureClass::Auth {
                    AttemptCause::Auth
                } else {
                    AttemptCause::BadConfig
                },
                NextAttempt::default(),
            )
        }
        (_, FailureConsequence::NeedsPerson) => {
            task::needs_human(draft, task, WaitKind::Provider, reason)?;
            end(draft, id, AttemptCause::Refused, reason);
            return Ok(());
        }
        (_, FailureConsequence::NewSession) => {
            let again = NextAttempt {
                resume: same(false),
                counts_as_failure: attempt.session.turns == 0,
                was_interrupted: true,
                ..NextAttempt::default()
            };
            (
                AttemptCause::ContextFull,
                NextAttempt {
                    not_before_fleet_ms: not_before.filter(|_| attempt.resumes.is_some()),
                    ..again
                },
            )
        }
        (FailureClass::Overloaded, _) => (
            AttemptCause::Overloaded,
            NextAttempt {
                not_before_fleet_ms: not_before,
                resume: same(true),
                was_interrupted: true,
                ..NextAttempt::default()
            },
        ),
        // A cancelled turn that nobody cancelled is a failure.
        (FailureClass::Cancelled, _) if attempt.session.cancels > 0 => (
            AttemptCause::Stopped,
            NextAttempt {
                resume: same(true),
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
    let not_before =
        retry_delay_ms(draft, task)?.map(|retry_delay_m| draft.now().fleet_ms + retry_delay_m);
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
    let (limits, tried) = (draft.board().limits, task::find(draft.board(), task)?.tries);
    let pause = (limits.retry_delay_ms << tried.min(8)).min(limits.max_retry_delay_ms);
    Ok((pause > 0).then_some(pause))
}

pub(crate) fn resume_point(attempt: &Attempt, session: bool) -> ResumePoint {
    let session = if session {
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

/// Records that an attempt's program runs, and in which sandbox.
pub fn on_launched(
    draft: &mut Draft,
    id: AttemptId,
    token: u64,
    sandbox: Option<String>,
    warnings: Vec<String>,
) -> Result<(), Refusal> {
    require_attempt(draft.board(), id, token)?;
    draft.record(Event::AttemptLaunched(AttemptLaunched {
        attempt: id,
        sandbox,
        warnings,
    }));
    Ok(())
}

/// Leases the project's number of ports, or with `taken` that many replacements.
pub(crate) fn lease_ports(
    draft: &mut Draft,
    id: AttemptId,
    project: &ProjectName,
    taken: Option<usize>,
    now: Now,
) -> Result<Vec<u16>, Refusal> {
    let Some(settings) = draft
        .board()
        .projects
        .get(project)
        .map(|project| project.settings.workspace.clone())
    else {
        return Ok(vec![]);
    };
    match taken.unwrap_or(settings.ports as usize) {
        0 => Ok(vec![]),
        count => claim::lease_ports(draft, id, count, settings.port_range, now),
    }
}

pub(crate) fn assign_ports(draft: &mut Draft, id: AttemptId, ports: Vec<u16>) {
    if !ports.is_empty() {
        draft.record(Event::AttemptPorted(AttemptPorted { attempt: id, ports }));
    }
}

/// Handles the report that other programs listen on some of an attempt's ports, and leases other
/// ports. The attempt keeps its claims on the taken ports as long as it lives, so that no other
/// attempt gets them.
pub fn on_ports_taken(
    draft: &mut Draft,
    id: AttemptId,
    token: u64,
    taken: &[u16],
    now: Now,
) -> Result<(), Refusal> {
    let attempt = require_attempt(draft.board(), id, token)?;
    let lost = attempt
        .ports
        .iter()
        .filter(|port| taken.contains(port))
        .count();
    let mut others = lease_ports(draft, id, &attempt.project, Some(lost), now)?.into_iter();
    let keep = |port: &u16| {
        if taken.contains(port) {
            others.next().unwrap_or(*port)
        } else {
            *port
        }
    };
    let ports = attempt.ports.iter().map(keep).collect();
    if lost > 0 {
        assign_ports(draft, id, ports);
    }
    Ok(())
}

/// A report that an agent makes with the `finish` tool while its program still runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FinishReport {
    pub output: Option<String>,
    /// Nothing has to be changed.
    pub not_needed: bool,
    /// Facts that help later tasks of the project.
    pub learnings: Vec<String>,
}

impl FinishReport {
    /// Returns whether the report contains more than the output and is therefore stored as a
    /// result.
    pub(crate) fn is_result(&self) -> bool {
        self.not_needed || !self.learnings.is_empty()
    }
}

/// Stores the report of a program that is still running.
pub fn record_report(
    draft: &mut Draft,
    id: AttemptId,
    token: u64,
    said: FinishReport,
) -> Result<(), Refusal> {
    let attempt = require_attempt(draft.board(), id, token)?;
    if attempt.stopping.is_some() || attempt.phase != AttemptPhase::Working {
        return Err(Refusal::StaleAttempt {
            task: attempt.task,
            attempt: id,
            live: None,
        });
    }
    task::check_output(said.output.as_deref())?;
    verdict::check_learnings(&said.learnings)?;
    if said.is_result() {
        verdict::record_result(draft, id, &said);
    }
    if attempt.output != said.output {
        draft.record(Event::AttemptNoted(AttemptNoted {
            attempt: id,
            output: said.output,
        }));
    }
    Ok(())
}

/// Records that no further prompt will be sent to an attempt's program.
pub(crate) fn close_session(draft: &mut Draft, id: AttemptId) {
    if draft
        .board()
        .attempts
        .get(&id)
        .is_some_and(|attempt| !attempt.session.closing)
    {
        draft.record(Event::AttemptClosing(AttemptClosing { attempt: id }));
    }
}

/// Handles a report of a supervised attempt's program. A report that was already handled changes
/// nothing.
pub fn on_agent_event(
    draft: &mut Draft,
    id: AttemptId,
    token: u64,
    n: u64,
    said: AgentEvent,
    now: Now,
) -> Result<(), Refusal> {
    let attempt = require_attempt(draft.board(), id, token)?;
    // Several reports can have the same journal position, and each is handled once.
    if n < attempt.session.last_record || !said.changes_state() {
        return Ok(());
    }
    let used = match &said {
        AgentEvent::Usage { session, usage } => Spend {
            usage: usage.since(&attempt.session.usage_of_session(session.as_deref())),
            ..Spend::default()
        },
        AgentEvent::TurnStarted { n } if *n >= attempt.session.turns => Spend {
            turns: 1,
            ..Spend::default()
        },
        _ => Spend::default(),
    };
    let known = Attempt::clone(&attempt);
    draft.record(Event::AttemptSaid(AttemptSaid {
        attempt: id,
        n,
        said: said.clone(),
    }));
    match said {
        AgentEvent::RequestMade(ask) => approval::on_agent_request(draft, &known, ask, now)?,
        AgentEvent::RequestWithdrawn { request: ask } => {
            approval::on_program_withdrew(draft, &known, &ask)
        }
        AgentEvent::TurnEnded { stop, class, .. } => {
            approval::close_requests(draft, id, "its turn has ended", false);
            if class.is_none() && stop == StopReason::EndTurn && known.accepts_prompts() {
                approval::send_unread_answers(draft, &known);
            }
            if class.is_none() && stop == StopReason::EndTurn {
                provider_outage::on_work_succeeded(draft, &known.agent);
            }
            let after = require_attempt(draft.board(), id, token)?;
            if session_rotation::on_turn_ended(draft, &after, stop)? {
                return budget::charge(draft, id, used, now);
            }
            let after = require_attempt(draft.board(), id, token)?;
            let stays = after.session_of.is_some() && after.stopping.is_none();
            let waits = after.session.hold_reason.is_some()
                || (stop == StopReason::EndTurn && !after.session.is_finished())
                || (stop == StopReason::EndTurn
                    && class.is_none()
                    && approval::awaits_answer(draft.board(), &after))
                || (stays
                    && class.is_none()
                    && matches!(stop, StopReason::EndTurn | StopReason::Cancelled));
            if !waits && after.phase == AttemptPhase::Working {
                close_session(draft, id);
            }
        }
        _ => {}
    }
    budget::charge(draft, id, used, now)
}

pub(crate) fn require_attempt(
    board: &Board,
    id: AttemptId,
    token: u64,
) -> Result<Arc<Attempt>, Refusal> {
    match board.attempts.get(&id) {
        Some(attempt) if attempt.token == token => Ok(attempt.clone()),
        Some(attempt) => Err(Refusal::StaleAttempt {
            task: attempt.task,
            attempt: id,
            live: None,
        }),
        None => Err(Refusal::invalid(
            format!("{id} has ended"),
            "no more reports are accepted for it",
        )),
    }
}

/// Joins at most five names, and adds the number of further names.
pub(crate) fn first_few(names: &[&str]) -> String {
    let shown = names.iter().take(5).copied().collect::<Vec<_>>().join(", ");
    if names.len() > 5 {
        format!("{shown} and {} more", names.len() - 5)
    } else {
        shown
    }
}
