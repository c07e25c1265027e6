//! Attempts: one run of one agent on one task, with a token that only the attempt knows.
//!
//! A supervised attempt lives as long as its process. An outside attempt lives as long as it renews
//! its lease. In both cases the end releases everything that the attempt held, in one commit, with
//! one cause (J6, L11).
//!
//! Not here: the choice of the task and the agent (see [`schedule`](crate::schedule)), and the
//! state of the task itself (see [`task`]).

mod ports; // the ports that its program may listen on
mod program_exit; // the end of its program
mod program_report; // the reports of its program while it runs
mod verdict; // the verdict on an attempt's work

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent::Role;
use crate::agent_protocol::{AgentEvent, FailureClass, PlanEntry, StopReason, Usage};
use crate::approval;
use crate::board::{Board, Draft};
use crate::budget::{self, Spend};
use crate::claim::{self, ClaimOwner};
use crate::event::{Event, facts};
use crate::ids::{AgentName, AttemptId, MissionId, Now, ProjectName, RunnerName, TaskId};
use crate::inbox::Snooze;
use crate::launch::SessionOf;
use crate::refusal::Refusal;
use crate::start_gates::GateResult;
use crate::task::{self, Task};

pub use ports::on_ports_taken;
pub(crate) use ports::{assign_ports, lease_ports};
pub use program_exit::{ProgramExit, SetupFault, on_program_exit};
pub(crate) use program_exit::{park, requeue_after_failure, resume_point, rotate};
pub(crate) use program_report::close_session;
pub use program_report::{FinishReport, on_agent_event, on_launched, record_report};
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
    /// The agent reported that it cannot go on, or a rule of the project forbids the work.
    Blocked,
    /// The agent reported that the work is done, but nothing had changed.
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
            .find(|(known, _)| known.as_deref() == session)
            .map(|(_, usage)| *usage)
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
    /// The usage of that session so far. The program's own counters start from there.
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
    /// The longest allowed silence of an attempt that is not supervised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "expires_at")]
    pub expires_fleet_ms: Option<u64>,
    #[serde(rename = "started_wall")]
    pub started_unix_ms: u64,
    /// The start time, on the fleet clock.
    #[serde(default)]
    #[serde(rename = "started_at")]
    pub started_fleet_ms: u64,
    /// The deadline on the fleet clock, if Regatta runs the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "until_at")]
    pub deadline_fleet_ms: Option<u64>,
    /// The time of the next check against wider budgets, on the fleet clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "wall_at")]
    pub budget_check_fleet_ms: Option<u64>,
    /// The deadline on the fleet clock for opening a session, if the program opens one.
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
            .map_or(self.id, |resume| resume.workspace)
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
            .filter(|resume| resume.agent == self.agent)
            .and_then(|resume| resume.session.as_deref())
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

/// The longest allowed silence of an outside attempt that names no other lease: an hour.
pub const DEFAULT_LEASE_MS: u64 = 3_600_000;

/// Begins an attempt at a task: gives it a token, its deadline and the task's notes.
pub(crate) fn begin(
    draft: &mut Draft,
    id: AttemptId,
    task: &Task,
    settings: &BeginAttempt,
    now: Now,
) {
    let lease_ms = (!settings.supervised).then_some(settings.lease_ms);
    let limits = draft.board().limits;
    let agent = draft.board().agents.get(&settings.agent).cloned();
    let timeout = match agent.as_ref().map(|agent| agent.role) {
        Some(Role::Lead) => limits.lead_timeout_ms,
        _ => limits.attempt_timeout_ms,
    };
    let max_wall_ms = draft
        .board()
        .budgets
        .get(&budget::BudgetScope::Attempt)
        .and_then(|budget| budget.ceiling.wall_ms);
    let timeout = max_wall_ms.map_or(timeout, |max_wall_ms| max_wall_ms.min(timeout));
    let accepts_follow_ups = settings.supervised
        && agent
            .as_ref()
            .is_some_and(|agent| agent.runtime.accepts_follow_ups());
    // A workspace on another machine cannot be continued here.
    let resumes = task
        .resume
        .clone()
        .filter(|resume| resume.runner == settings.runner);
    let charged_usage = resumes
        .iter()
        .filter_map(|resume| already_charged_usage(resume, settings))
        .collect();
    let attempt = Attempt {
        id,
        task: task.id,
        project: task.project.clone(),
        mission: task.mission,
        agent: settings.agent.clone(),
        token: draft.next_revision(),
        supervised: settings.supervised,
        runner: settings.runner.clone(),
        phase: AttemptPhase::Working,
        stopping: None,
        takes_no_slot: task.is_light() || task.session_of.is_some(),
        no_workspace: settings.no_workspace,
        by_hand: settings.by_hand,
        lease_ms,
        expires_fleet_ms: lease_ms.map(|lease_ms| now.fleet_ms + lease_ms),
        started_unix_ms: now.unix_ms,
        started_fleet_ms: now.fleet_ms,
        deadline_fleet_ms: (settings.supervised && task.session_of.is_none())
            .then(|| now.fleet_ms + timeout),
        budget_check_fleet_ms: None,
        session_deadline_fleet_ms: None,
        accepts_follow_ups,
        resumes,
        session_of: task.session_of.clone(),
        ports: vec![],
        notes: task.notes.clone(),
        session: SessionState {
            usage_by_session: charged_usage,
            ..SessionState::default()
        },
        used: Usage::default(),
        sandbox: None,
        result: None,
        gates: settings.gates.clone(),
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
    settings: &BeginAttempt,
) -> Option<(Option<String>, Usage)> {
    let is_continued = resume.agent == settings.agent && resume.session.is_some();
    is_continued.then(|| (resume.session.clone(), resume.used))
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
    let Some(attempt) = draft.board().attempts.get(&id).cloned() else {
        return;
    };
    approval::close_requests(draft, id, "its attempt has ended", true);
    let wall_ms = draft
        .now()
        .fleet_ms
        .saturating_sub(attempt.started_fleet_ms);
    if attempt.supervised && wall_ms > 0 {
        let spend = Spend {
            wall_ms,
            ..Spend::default()
        };
        budget::record_spend(draft, id, spend);
    }
    claim::release_all(draft, &ClaimOwner::Attempt(id));
    draft.record(Event::AttemptEnded(AttemptEnded {
        attempt: id,
        cause,
        detail: detail.to_owned(),
    }));
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

/// Returns the live attempt if `token` is its current token.
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
