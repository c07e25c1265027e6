//! Attempts: one run of one agent on one task, with a token that only the attempt knows.
//!
//! A supervised attempt (Regatta runs its program) lives as long as the program's process. An
//! outside attempt (somebody else runs the agent) lives as long as the agent renews its lease. When
//! an attempt ends, one transaction of the store releases everything that it held and records the
//! cause (J6, L11).
//!
//! Not here: the choice of the task and the agent (see [`schedule`](crate::schedule)), and the
//! state of the task itself (see [`task`]).

mod checked_work; // the facts about finished work
mod evidence; // the outcomes of the checks of an attempt's work
mod next_check; // the next fact that is needed about finished work, or the verdict
mod ports; // TCP ports for an attempt's program
mod program_exit; // the end of an attempt's program
mod program_report; // the reports of an attempt's running program
mod verdict; // the consequences of the verdict on an attempt's work
mod work_kind; // the kinds of work that are judged in different ways

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

pub use checked_work::{Capture, CheckedWork, RuleViolation};
pub use evidence::{CheckEvidence, failed_check_reason, unrunnable_check_reason};
pub use next_check::{CheckPlace, NextCheck, next_check, uncaptured_verdict};
pub use ports::on_ports_taken;
pub(crate) use ports::{assign_ports, lease_ports};
pub use program_exit::{ProgramExit, SetupFault, on_program_exit};
pub(crate) use program_exit::{park, requeue_after_failure, resume_point, rotate};
pub(crate) use program_report::close_session;
pub use program_report::{FinishReport, on_agent_event, on_launched, record_report};
pub use verdict::{ResultStatus, WorkFindings, WorkResult, WorkVerdict, apply_verdict};

/// The present phase of an attempt: the agent works, or Regatta checks the finished work.
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
    /// The work passed its checks and entered the landing queue.
    Submitted,
    /// The task asked only for a report, and the report was accepted.
    Reported,
    /// A lead (an agent that splits a mission into tasks) finished its turn. The lead gets another
    /// turn when something happens in its mission.
    Rested,
    /// The agent reported that it gives up on the task.
    GaveUp,
    /// The agent's program failed or ended unexpectedly.
    Crashed,
    /// The finished work failed its validation: files, contents, lint or tests.
    Invalid,
    /// The work passed its validation, but the task's ratchet (a command with the final say, such
    /// as a count of warnings that must not rise) refused it.
    Rejected,
    /// The agent reported that it cannot continue without a person, or a rule of the project
    /// forbids the work.
    Blocked,
    /// The agent reported that the work is done, but the agent had changed no file.
    NothingChanged,
    /// The attempt changed files outside its manifest (the file patterns that its task may change).
    ScopeEscape,
    /// The attempt did not renew its lease in time, or its process vanished.
    Lost,
    /// A person stopped the attempt.
    Stopped,
    /// The attempt's task was cancelled.
    Cancelled,
    /// Regatta itself failed, for example because of a full disk or a missing git.
    Environment,
    /// The attempt reached its time limit.
    TimedOut,
    /// The agent's program printed nothing for too long.
    Hung,
    /// The budget for a single attempt was used up.
    OverBudget,
    /// A provider's limit, or a budget for more than this attempt, was used up. The task continues
    /// later in the same workspace.
    Parked,
    /// The provider had too many requests. The task is tried again later.
    Overloaded,
    /// The agent's program could not reach its provider over the network. The task is tried again
    /// later.
    NoNetwork,
    /// The model's context was full. The task continues in the same workspace with a new session.
    ContextFull,
    /// The model declined the task.
    Refused,
    /// The agent's program is not signed in at its provider, or its API key is wrong.
    Auth,
    /// The agent's program cannot start or work with its settings.
    BadConfig,
}

impl AttemptCause {
    /// Returns whether the attempt ended as it should. Views show all other ends as failures.
    pub fn is_success(self) -> bool {
        matches!(
            self,
            AttemptCause::Submitted | AttemptCause::Reported | AttemptCause::Rested
        )
    }

    /// Returns the cause in a few lower-case words for people, such as `nothing changed`.
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

    /// Returns whether an attempt that ended for this reason lost its work. Work that a later
    /// attempt continued is not lost.
    pub fn loses_work(self) -> bool {
        !matches!(
            self,
            AttemptCause::Submitted
                | AttemptCause::Reported
                | AttemptCause::Rested
                | AttemptCause::Parked
                | AttemptCause::ContextFull
        )
    }
}

/// The end of a turn (one prompt and the work that follows): the reason, and details for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TurnEnd {
    pub stop: StopReason,
    pub class: Option<FailureClass>,
    pub detail: String,
}

/// The state of the session of a supervised attempt's program: the prompts for it, and its reports
/// of usage, limits and turns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct SessionState {
    /// The number of the last record of the program's journal (the file with everything that the
    /// program prints) that was applied to the board.
    #[serde(rename = "heard")]
    pub last_record: u64,
    /// The id that the program gave its session, used to resume the session. Empty until the
    /// program reports the id.
    #[serde(rename = "session")]
    pub session_id: Option<String>,
    pub model: Option<String>,
    /// The number of prompts that were sent to the program.
    pub turns: u64,
    pub in_turn: bool,
    /// The prompts after the first prompt, oldest first. The first prompt, which describes the
    /// task, is not in this list.
    #[serde(rename = "tells")]
    pub follow_ups: Vec<String>,
    /// The number of times that somebody asked to cancel a turn.
    pub cancels: u32,
    /// The reason why Regatta sends no prompts at present. Empty if Regatta may send prompts.
    #[serde(rename = "held")]
    pub hold_reason: Option<String>,
    /// True if Regatta will send no further prompt, so that the program can end.
    pub closing: bool,
    /// The number of the turn in which the agent writes a summary for a new session, because its
    /// context is nearly full. Empty otherwise.
    #[serde(rename = "rotating")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary_turn: Option<u64>,
    /// The usage of each session of the program, by session id, summed since that session began.
    #[serde(rename = "sessions")]
    pub usage_by_session: Vec<(Option<String>, Usage)>,
    /// The tokens in the model's context, and the context's size in tokens. Empty until the program
    /// reports them.
    pub context: Option<(u64, u64)>,
    pub plan: Vec<PlanEntry>,
    #[serde(rename = "last")]
    pub last_turn_end: Option<TurnEnd>,
    /// If the provider refused work because of a limit: the end of the limit in Unix milliseconds,
    /// if known, and the provider's message.
    #[serde(rename = "limited")]
    pub provider_limit: Option<(Option<u64>, String)>,
}

impl SessionState {
    fn is_default(&self) -> bool {
        *self == SessionState::default()
    }

    /// Returns the usage that was reported for one session, or zero if none was reported.
    pub fn usage_of_session(&self, session: Option<&str>) -> Usage {
        self.usage_by_session
            .iter()
            .find(|(known, _)| known.as_deref() == session)
            .map(|(_, usage)| *usage)
            .unwrap_or_default()
    }

    /// Returns whether all prompts were sent and the last turn has ended.
    pub fn is_finished(&self) -> bool {
        !self.in_turn && self.turns > self.follow_ups.len() as u64
    }
}

/// The place where the next attempt at a task continues unfinished work: the workspace of an
/// earlier attempt and, if the same agent continues, that attempt's session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ResumePoint {
    pub workspace: AttemptId,
    pub agent: AgentName,
    pub session: Option<String>,
    /// The usage of `session` when the earlier attempt ended. This usage was already charged, so
    /// only further usage is charged to the next attempt.
    #[serde(default)]
    pub used: Usage,
    /// The runner (the machine) on which the workspace is; `None` for the daemon's machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner: Option<RunnerName>,
}

/// An attempt: one run of one agent on one task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Attempt {
    pub id: AttemptId,
    pub task: TaskId,
    pub project: ProjectName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mission: Option<MissionId>,
    pub agent: AgentName,
    /// The attempt's fencing token, a number that only the attempt's agent may know. A caller may
    /// act for the task only with the token of the current attempt, so an older attempt can no
    /// longer change anything (J3).
    pub token: u64,
    /// True if Regatta runs the attempt's program. Otherwise an outside agent works on the task.
    pub supervised: bool,
    /// The runner on which the attempt runs; `None` for the daemon's own runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner: Option<RunnerName>,
    pub phase: AttemptPhase,
    /// The reason why the attempt's process is being stopped. Empty while the attempt may continue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopping: Option<AttemptCause>,
    /// True if the attempt does not count towards the machine's limit of attempts, because it is a
    /// turn of a lead agent, an answer to a question, or a team member's session.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[serde(rename = "light")]
    pub takes_no_slot: bool,
    /// True if the attempt has no workspace, because its task only asks for a report and needs no
    /// files.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[serde(rename = "bare")]
    pub no_workspace: bool,
    /// True if a person took over the task and does the work by hand.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_hand: bool,
    /// The time for which an outside attempt lives without renewal, in milliseconds. Empty for a
    /// supervised attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "expires_at")]
    pub expires_fleet_ms: Option<u64>,
    #[serde(rename = "started_wall")]
    pub started_unix_ms: u64,
    /// The time at which the attempt started, in milliseconds of Regatta's own clock (the fleet
    /// clock).
    #[serde(default)]
    #[serde(rename = "started_at")]
    pub started_fleet_ms: u64,
    /// The time, in milliseconds of Regatta's own clock (the fleet clock), at which Regatta stops
    /// the attempt because it took too long. Empty for an outside attempt and for a team member's
    /// session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "until_at")]
    pub deadline_fleet_ms: Option<u64>,
    /// The next time at which Regatta checks whether running time has used up a budget wider than
    /// this attempt's own. In milliseconds of Regatta's own clock (the fleet clock).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "wall_at")]
    pub budget_check_fleet_ms: Option<u64>,
    /// The time, in milliseconds of Regatta's own clock (the fleet clock), by which the program
    /// must have opened its session. Empty if the program opens no session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "ready_by")]
    pub session_deadline_fleet_ms: Option<u64>,
    /// True if the program accepts further prompts after its first one.
    #[serde(default)]
    #[serde(rename = "talks")]
    pub accepts_follow_ups: bool,
    /// The workspace and session of an earlier attempt that this attempt continues. Empty if this
    /// attempt starts afresh.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumes: Option<ResumePoint>,
    /// The team member whose session this attempt is. Such a session stays open between turns until
    /// it is stopped. Empty for work on an ordinary task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "standing")]
    pub session_of: Option<SessionOf>,
    /// TCP ports of the machine that are reserved for the attempt's program, in the order in which
    /// the program gets them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<u16>,
    /// Notes that people left on the task before this attempt began. The attempt's first prompt
    /// contains the notes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    #[serde(default, skip_serializing_if = "SessionState::is_default")]
    #[serde(rename = "talk")]
    pub session: SessionState,
    /// Tokens and cost that this attempt has used.
    #[serde(default, skip_serializing_if = "Usage::is_nothing")]
    pub used: Usage,
    /// A description of the program's sandbox. Absent if the program has none or has not started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// The result that the attempt reported, if it has reported one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<WorkResult>,
    /// Results of the gates (conditions that are checked before a task starts) at the start of this
    /// attempt. Gates that are not listed passed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<GateResult>,
    /// The agent's own summary of its work, which its program printed at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// The Unix time, in milliseconds, at which the program's suspiciously long silence began.
    /// Absent if the program is not silent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "quiet_wall")]
    pub quiet_since_unix_ms: Option<u64>,
    /// Set while a person has hidden the notice of the silence from the inbox for some time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snoozed: Option<Snooze>,
    /// The end of the attempt. Empty while the attempt is live.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "ended")]
    pub end: Option<AttemptEnd>,
}

impl Attempt {
    /// The names of all states that [`state_name`](Attempt::state_name) returns.
    pub const STATE_NAMES: [&'static str; 3] = ["working", "validating", "stopping"];

    /// Returns the name in the API of the attempt's state: its phase, or that it is being stopped.
    pub fn state_name(&self) -> &'static str {
        match (&self.stopping, self.phase) {
            (Some(_), _) => "stopping",
            (None, AttemptPhase::Working) => "working",
            (None, AttemptPhase::Validating) => "validating",
        }
    }

    /// Returns whether the attempt's program has written nothing for suspiciously long although it
    /// is in a turn. The silence is recorded on the board, so that all views agree on it.
    pub fn is_hung(&self) -> bool {
        self.quiet_since_unix_ms.is_some()
    }

    /// Returns the attempt's id with the agent or person who works on it, such as `A5 by claude-1`.
    pub fn label(&self) -> String {
        if self.by_hand {
            format!("{} by a person", self.id)
        } else {
            format!("{} by {}", self.id, self.agent)
        }
    }

    /// Returns the attempt whose workspace this attempt uses: its own id, or the id of the earlier
    /// attempt that it continues.
    pub fn workspace(&self) -> AttemptId {
        self.resumes
            .as_ref()
            .map_or(self.id, |resume| resume.workspace)
    }

    /// Returns whether the attempt's program could still receive a prompt that is sent now.
    pub fn accepts_prompts(&self) -> bool {
        self.supervised
            && self.accepts_follow_ups
            && self.stopping.is_none()
            && !self.session.closing
            && self.phase == AttemptPhase::Working
    }

    /// Returns the attempt's spending that counts towards budgets, except its running time.
    pub fn spent(&self) -> Spend {
        Spend {
            usage: self.used,
            turns: self.session.turns,
            attempts: 1,
            wall_ms: 0,
        }
    }

    /// Returns the id of the session to continue, if the same agent worked on the earlier attempt.
    pub fn resumed_session(&self) -> Option<&str> {
        self.resumes
            .as_ref()
            .filter(|resume| resume.agent == self.agent)
            .and_then(|resume| resume.session.as_deref())
    }
}

/// The end of an attempt: its cause, details for people, and the time.
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
    /// The program reported an event that changes the attempt's state; `n` is the event's position
    /// in the program's journal (its recorded output).
    AttemptSaid { attempt: AttemptId, n: u64, said: AgentEvent }
    /// Regatta will send no further prompt to the attempt's program.
    AttemptClosing { attempt: AttemptId }
    /// These TCP ports are now reserved for the attempt.
    AttemptPorted { attempt: AttemptId, ports: Vec<u16> }
    /// The agent reported its finished work while its program still runs. The report takes effect
    /// when the program ends.
    AttemptNoted { attempt: AttemptId, output: Option<String> }
    /// The attempt's program has started.
    AttemptLaunched { attempt: AttemptId, sandbox: Option<String>, warnings: Vec<String> }
    /// The attempt reported its result.
    AttemptReported { attempt: AttemptId, result: WorkResult }
}

/// The settings of an attempt that starts: the arguments of [`begin`].
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

/// The time for which an outside attempt lives without renewal if it asks for no other lease: one
/// hour.
pub const DEFAULT_LEASE_MS: u64 = 3_600_000;

/// Creates an attempt at a task, with its token, its deadline and the notes that people left on the
/// task.
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
    // The workspace of an earlier attempt exists only on that attempt's machine, so an attempt on
    // another machine starts afresh.
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
        takes_no_slot: task.is_light() || task.session_of().is_some(),
        no_workspace: settings.no_workspace,
        by_hand: settings.by_hand,
        lease_ms,
        expires_fleet_ms: lease_ms.map(|lease_ms| now.fleet_ms + lease_ms),
        started_unix_ms: now.unix_ms,
        started_fleet_ms: now.fleet_ms,
        deadline_fleet_ms: (settings.supervised && task.session_of().is_none())
            .then(|| now.fleet_ms + timeout),
        budget_check_fleet_ms: None,
        session_deadline_fleet_ms: None,
        accepts_follow_ups,
        resumes,
        session_of: task.session_of().cloned(),
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

/// Returns the usage of the earlier session that this attempt continues, so that this attempt is
/// not charged for it again. Returns `None` if the attempt starts a new session.
fn already_charged_usage(
    resume: &ResumePoint,
    settings: &BeginAttempt,
) -> Option<(Option<String>, Usage)> {
    let is_continued = resume.agent == settings.agent && resume.session.is_some();
    is_continued.then(|| (resume.session.clone(), resume.used))
}

/// Returns the task's live attempt if the caller gave its id and its token, and refuses otherwise.
/// Every change in the name of a task passes this check, so a replaced attempt cannot change
/// anything (J3, L6).
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

/// Extends the lease of an outside attempt (an attempt whose program Regatta does not run). Does
/// nothing for a supervised attempt, which has no lease.
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

/// Extends the lease of every outside attempt when the daemon starts, because the agents could not
/// renew their leases while the daemon was down.
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

/// Ends an attempt at once, releases its claims, and closes its unanswered permission requests.
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

/// Starts the stop of an attempt. The attempt keeps its claims until all its processes are gone.
pub(crate) fn stop(draft: &mut Draft, id: AttemptId, cause: AttemptCause, detail: String) {
    let Some(attempt) = draft.board().attempts.get(&id).cloned() else {
        return;
    };
    // Regatta must not stop a program that it did not start, so an outside attempt whose agent is
    // at work simply ends. If Regatta is running checks for the attempt, Regatta stops the checks
    // first (P11).
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

/// Stops a task's attempt and returns the task to the waiting tasks. The work of the attempt is
/// kept.
pub fn stop_task(draft: &mut Draft, id: TaskId, reason: &str) -> Result<(), Refusal> {
    let task = task::find(draft.board(), id)?;
    // If the attempt is already being stopped, there is nothing to do: its task is already among
    // the waiting tasks.
    if let Some(attempt) = task.attempt.filter(|_| task.status.is_running()) {
        stop(draft, attempt, AttemptCause::Stopped, reason.to_owned());
        task::return_for_retry(draft, id, reason)?;
    }
    Ok(())
}

/// Ends an outside attempt (an attempt whose program Regatta does not run) whose lease expired, and
/// returns its task to the waiting tasks.
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

/// Returns the live attempt `id` if `token` is its token, and refuses otherwise.
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
            format!("the attempt {id} has ended"),
            "stop working on its task, because Regatta accepts no more reports for this attempt",
        )),
    }
}

/// Joins the first five of the names for a message to people, and adds how many names are left out.
pub fn first_few(names: &[&str]) -> String {
    let shown = names.iter().take(5).copied().collect::<Vec<_>>().join(", ");
    if names.len() > 5 {
        format!("{shown} and {} more", names.len() - 5)
    } else {
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_succeeds_with_work_a_report_or_the_rest_of_a_lead() {
        let cases = [
            (AttemptCause::Submitted, true),
            (AttemptCause::Reported, true),
            (AttemptCause::Rested, true),
            (AttemptCause::Crashed, false),
            (AttemptCause::NothingChanged, false),
            (AttemptCause::Stopped, false),
            (AttemptCause::Parked, false),
        ];
        for (cause, is_success) in cases {
            assert_eq!(cause.is_success(), is_success, "{cause:?}");
        }
    }
}
