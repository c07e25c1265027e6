//! Attempts: one run of one agent on one task, with a token that only it knows.
//!
//! A supervised attempt lives as long as its process; one from outside lives as long as it is heard of.
//! Either way its end releases all it held, in one commit, with one cause (J6, L11).

mod judge; // what becomes of what it left

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent::Role;
use crate::board::{Board, Draft};
use crate::budget::{self, Spend};
use crate::claim::{self, Owner};
use crate::event::{Event, facts};
use crate::gates::Passage;
use crate::ids::{AgentName, AttemptId, MissionId, Now, ProjectName, RunnerName, TaskId};
use crate::inbox::Snooze;
use crate::launch::Standing;
use crate::refusal::Refusal;
use crate::schedule::WaitKind;
use crate::session::{Class, Consequence, PlanEntry, Said, Stop, Usage};
use crate::task::{self, Again, Task};
use crate::{approval, provider, rotate};

pub use judge::{Findings, ResultStatus, Verdict, WorkResult, judged};

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
    /// It led, and rests until something happens.
    Rested,
    /// It said so itself.
    GaveUp,
    /// Its program failed.
    Crashed,
    /// Its work did not pass its validation.
    Invalid,
    /// Its work passed, and its ratchet refused it.
    Rejected,
    /// It says it cannot go on, or a rule of the project stands against its work.
    Blocked,
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
    /// Its time was up.
    TimedOut,
    /// It said nothing for too long.
    Hung,
    /// Its own budget was used up.
    OverBudget,
    /// A limit or a wider budget was used up: it goes on later in the same workspace.
    Parked,
    /// Its provider could not answer.
    Overloaded,
    /// Its model's context was full: it goes on in a fresh session.
    ContextFull,
    /// Its model declined.
    Refused,
    /// Nobody is signed in, or its key is wrong.
    Auth,
    /// Its settings cannot work.
    BadConfig,
}

impl Cause {
    /// Returns its name in words: `nothing changed`.
    pub fn words(self) -> String {
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

/// How a turn ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TurnEnd {
    pub stop: Stop,
    pub class: Option<Class>,
    pub detail: String,
}

/// What is known of a supervised attempt's program from what it said, and what it is to be told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Talk {
    /// The place in its journal up to which the board knows it.
    pub heard: u64,
    /// Its native session.
    pub session: Option<String>,
    pub model: Option<String>,
    /// How many prompts it was given.
    pub turns: u64,
    pub in_turn: bool,
    /// Follow-ups, behind the brief.
    pub tells: Vec<String>,
    /// How many times its turn was to be cancelled.
    pub cancels: u32,
    /// No prompt is said for now, for this reason.
    pub held: Option<String>,
    /// Nothing more will be said to it.
    pub closing: bool,
    /// The turn in which it sums itself up, because its context is nearly full.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotating: Option<u64>,
    /// What each of its native sessions used, cumulative.
    pub sessions: Vec<(Option<String>, Usage)>,
    /// How full its model's context is: used, and size.
    pub context: Option<(u64, u64)>,
    pub plan: Vec<PlanEntry>,
    pub last: Option<TurnEnd>,
    /// When its provider's limit ends, as a date, if it ran into one.
    pub limited: Option<(Option<u64>, String)>,
}

impl Talk {
    fn is_default(&self) -> bool {
        *self == Talk::default()
    }

    /// What one native session has used, as far as the board knows.
    pub fn used_in(&self, session: Option<&str>) -> Usage {
        self.sessions.iter().find(|it| it.0.as_deref() == session).map(|it| it.1).unwrap_or_default()
    }

    /// Whether every prompt was said and its turn has ended.
    pub fn is_through(&self) -> bool {
        !self.in_turn && self.turns > self.tells.len() as u64
    }
}

/// Where unfinished work goes on: the workspace of an earlier attempt, and its session for the same agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Resume {
    pub workspace: AttemptId,
    pub agent: AgentName,
    pub session: Option<String>,
    /// What that session used: the program counts on from there.
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
    /// Only who knows it speaks for the task (J3).
    pub token: u64,
    /// Whether Regatta runs its process.
    pub supervised: bool,
    /// The runner on which it runs; the daemon's own, when none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner: Option<RunnerName>,
    pub phase: Phase,
    /// Its process is being ended, for this cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopping: Option<Cause>,
    /// It takes none of the machine's room: it leads, or it answers a question.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub light: bool,
    /// It has no workspace: it only reports, and asked for none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bare: bool,
    /// A person took the task over and does the work.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_hand: bool,
    /// How long it may be silent, when it is not supervised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
    pub started_wall: u64,
    /// When it started, on the fleet clock.
    #[serde(default)]
    pub started_at: u64,
    /// When its time is up, if Regatta runs its process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_at: Option<u64>,
    /// When the time that wider budgets leave it is looked at, on the fleet clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall_at: Option<u64>,
    /// By when its program must have opened a session, if it has such.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_by: Option<u64>,
    /// Whether its program takes more than one prompt.
    #[serde(default)]
    pub talks: bool,
    /// The earlier attempt whose workspace it goes on in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumes: Option<Resume>,
    /// Whose standing session it is: it goes on when its turn has ended, until it is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standing: Option<Standing>,
    /// The ports of the machine that are its own, in the order in which it is told of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<u16>,
    /// What people said to whoever works on the task next, before it began.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    #[serde(default, skip_serializing_if = "Talk::is_default")]
    pub talk: Talk,
    /// What it used.
    #[serde(default, skip_serializing_if = "Usage::is_nothing")]
    pub used: Usage,
    /// How its program is shut in; nothing when it is not, or has not started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// What it left as its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<WorkResult>,
    /// What the gates said when it started; those that are not named passed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<Passage>,
    /// What its program said of its work before it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Since when nothing was heard of it, as a date, once that is long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet_wall: Option<u64>,
    /// Until when somebody put that off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snoozed: Option<Snooze>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<End>,
}

impl Attempt {
    /// Names the attempt and who does the work: `A5 by claude-1`.
    pub fn label(&self) -> String {
        if self.by_hand { format!("{} by a person", self.id) } else { format!("{} by {}", self.id, self.agent) }
    }

    /// The attempt whose workspace it works in: its own, unless it goes on with unfinished work.
    pub fn workspace(&self) -> AttemptId {
        self.resumes.as_ref().map_or(self.id, |it| it.workspace)
    }

    /// Whether a prompt said now would still be heard.
    pub fn takes_words(&self) -> bool {
        self.supervised && self.talks && self.stopping.is_none() && !self.talk.closing && self.phase == Phase::Working
    }

    /// What it spent, but for the time.
    pub fn spend(&self) -> Spend {
        Spend { usage: self.used, turns: self.talk.turns, attempts: 1, wall_ms: 0 }
    }

    /// The session to go on with, if the same agent left one.
    pub fn resumed_session(&self) -> Option<&str> {
        self.resumes.as_ref().filter(|it| it.agent == self.agent).and_then(|it| it.session.as_deref())
    }
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
    Started { attempt: Arc<Attempt> }
    Renewed { attempt: AttemptId, expires_at: u64 }
    Stopping { attempt: AttemptId, cause: Cause, detail: String }
    Ended { attempt: AttemptId, cause: Cause, detail: String }
    /// Its program said something that matters, at this place of its journal.
    Spoke { attempt: AttemptId, n: u64, said: Said }
    /// Nothing more is said to its program.
    Closing { attempt: AttemptId }
    /// These ports are its own.
    Ported { attempt: AttemptId, ports: Vec<u16> }
    /// Its program says what it did; it counts when it has ended.
    Noted { attempt: AttemptId, output: Option<String> }
    /// Its program runs.
    Launched { attempt: AttemptId, sandbox: Option<String>, warnings: Vec<String> }
    /// It left a result.
    Reported { attempt: AttemptId, result: WorkResult }
}

/// Who begins an attempt, and how it is kept alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Begin {
    pub(crate) agent: AgentName,
    pub(crate) supervised: bool,
    pub(crate) runner: Option<RunnerName>,
    pub(crate) lease_ms: u64,
    pub(crate) bare: bool,
    pub(crate) by_hand: bool,
    pub(crate) gates: Vec<Passage>,
}

/// How long an attempt from outside may be silent, if it names no other time: an hour.
pub const LEASE_MS: u64 = 3_600_000;

pub(crate) fn begin(draft: &mut Draft, id: AttemptId, task: &Task, by: &Begin, now: Now) {
    let lease_ms = (!by.supervised).then_some(by.lease_ms);
    let limits = draft.board().limits;
    let agent = draft.board().agents.get(&by.agent).cloned();
    let timeout = match agent.as_ref().map(|it| it.role) {
        Some(Role::Lead) => limits.lead_timeout_ms,
        _ => limits.attempt_timeout_ms,
    };
    let wall = draft.board().budgets.get(&budget::Scope::Attempt).and_then(|it| it.ceiling.wall_ms);
    let timeout = wall.map_or(timeout, |it| it.min(timeout));
    let talks = by.supervised && agent.as_ref().is_some_and(|it| it.runtime.talks());
    // What lies on another machine cannot be gone on with here.
    let resumes = task.resume.clone().filter(|it| it.runner == by.runner);
    let sessions = resumes.iter().filter_map(|it| counted(it, by)).collect();
    let attempt = Attempt {
        id,
        task: task.id,
        project: task.project.clone(),
        mission: task.mission,
        agent: by.agent.clone(),
        token: draft.next_revision(),
        supervised: by.supervised,
        runner: by.runner.clone(),
        phase: Phase::Working,
        stopping: None,
        light: task.is_light() || task.standing.is_some(),
        bare: by.bare,
        by_hand: by.by_hand,
        lease_ms,
        expires_at: lease_ms.map(|it| now.at + it),
        started_wall: now.wall,
        started_at: now.at,
        until_at: (by.supervised && task.standing.is_none()).then(|| now.at + timeout),
        wall_at: None,
        ready_by: None,
        talks,
        resumes,
        standing: task.standing.clone(),
        ports: vec![],
        notes: task.notes.clone(),
        talk: Talk { sessions, ..Talk::default() },
        used: Usage::default(),
        sandbox: None,
        result: None,
        gates: by.gates.clone(),
        output: None,
        quiet_wall: None,
        snoozed: None,
        ended: None,
    };
    draft.record(Event::AttemptStarted(Started { attempt: attempt.into() }));
    budget::clock_all(draft, now);
}

/// What the session to go on with has used already: it is not charged again.
fn counted(resume: &Resume, by: &Begin) -> Option<(Option<String>, Usage)> {
    (resume.agent == by.agent && resume.session.is_some()).then(|| (resume.session.clone(), resume.used))
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
    if let Some(attempt) = draft.board().attempts.get(&id).cloned() {
        approval::part(draft, id, "its attempt has ended", true);
        let wall_ms = draft.now().at.saturating_sub(attempt.started_at);
        if attempt.supervised && wall_ms > 0 {
            budget::note(draft, id, Spend { wall_ms, ..Spend::default() });
        }
        claim::release_all(draft, &Owner::Attempt(id));
        draft.record(Event::AttemptEnded(Ended { attempt: id, cause, detail: detail.to_owned() }));
    }
}

/// Begins to end an attempt. What it holds is free only when its process tree is gone.
pub(crate) fn stop(draft: &mut Draft, id: AttemptId, cause: Cause, detail: String) {
    let Some(attempt) = draft.board().attempts.get(&id).cloned() else { return };
    // The program of an attempt from outside is not ours to end, but its checks run here (P11).
    if !attempt.supervised && attempt.phase == Phase::Working {
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
        task::try_again(draft, id, reason)?;
    }
    Ok(())
}

/// Ends an attempt from outside that was silent for too long; its task waits again.
pub fn expire(draft: &mut Draft, id: AttemptId, now: Now) -> Result<(), Refusal> {
    let Some(attempt) = draft.board().attempts.get(&id).cloned() else { return Ok(()) };
    if attempt.phase == Phase::Working && attempt.expires_at.is_some_and(|at| at <= now.at) {
        let reason = format!("nothing was heard of {id} for too long");
        end(draft, id, Cause::Lost, &reason);
        task::try_again(draft, attempt.task, &reason)?;
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
    /// It failed, in these words, in this way.
    Failed {
        reason: String,
        #[serde(default)]
        class: Option<Class>,
    },
    /// It vanished without a word.
    Lost,
    /// The shell could not run it.
    NotRun {
        reason: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fault: Option<SetupFault>,
    },
}

/// The part of the set-up that kept a program from running. The user is told once, and no attempt is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SetupFault {
    /// The agent's: its program is missing, or a key that the daemon's environment lacks.
    Agent,
    /// The repository's or the task's: git cannot make or read its workspace.
    Task,
}

/// Takes the report that a supervised attempt's process tree is gone.
pub fn exited(draft: &mut Draft, id: AttemptId, token: u64, how: Exited, now: Now) -> Result<(), Refusal> {
    let attempt = live(draft.board(), id, token)?;
    if let Some(cause) = attempt.stopping {
        end(draft, id, cause, "stopped");
        return Ok(());
    }
    if attempt.phase != Phase::Working {
        return Ok(()); // it had said it was done before its process ended
    }
    match how {
        // Nobody asked it to leave.
        Exited::Done { .. } if attempt.standing.is_some() => {
            end(draft, id, Cause::Crashed, "its program ended by itself");
            Ok(())
        }
        Exited::Done { output } => {
            provider::worked(draft, &attempt.agent);
            task::finish(draft, attempt.task, id, token, attempt.output.clone().or(output))
        }
        Exited::Failed { reason, class } => failed(draft, &attempt, class.unwrap_or(Class::Crashed), &reason, now),
        Exited::Lost => {
            let reason = "its process vanished (a kill -9, or the machine stopped)";
            let resume = attempt.talk.session.is_some().then(|| resume_of(&attempt, true));
            // The first time at once; one that vanishes again and again is given longer and longer pauses.
            let again = task::find(draft.board(), attempt.task)?.tries > 0;
            let not_before = pause(draft, attempt.task)?.filter(|_| again).map(|it| now.at + it);
            let again = Again { resume, not_before, tried: true, ..Again::default() };
            task::try_again_after(draft, attempt.task, Cause::Lost, reason, again)?;
            end(draft, id, Cause::Lost, reason);
            Ok(())
        }
        Exited::NotRun { reason, fault: Some(SetupFault::Agent) } => {
            failed(draft, &attempt, Class::BadConfig, &reason, now)
        }
        Exited::NotRun { reason, fault: Some(SetupFault::Task) } if attempt.standing.is_none() => {
            task::needs_human(draft, attempt.task, WaitKind::Policy, &reason)?;
            end(draft, id, Cause::Environment, &reason);
            Ok(())
        }
        Exited::NotRun { reason, .. } => {
            end(draft, id, Cause::Environment, &reason);
            broke_off(draft, attempt.task, Cause::Environment, &reason)
        }
    }
}

/// Does what the class of a failure calls for.
fn failed(draft: &mut Draft, attempt: &Attempt, class: Class, reason: &str, now: Now) -> Result<(), Refusal> {
    let (id, task) = (attempt.id, attempt.task);
    let agent = crate::agent::find(draft.board(), &attempt.agent)?.clone();
    let not_before = pause(draft, task)?.map(|it| now.at + it);
    let same = |session| Some(resume_of(attempt, session));
    let (cause, again) = match (class, class.consequence()) {
        (_, Consequence::Park) => {
            let (until, detail) = attempt.talk.limited.clone().unwrap_or((None, reason.to_owned()));
            provider::park(draft, &agent, class, until, &detail, now);
            (Cause::Parked, Again { resume: same(true), ..Again::default() })
        }
        // The task is sound: its agent is not, and nothing else is sent the same way until somebody has mended it.
        (Class::Auth | Class::BadConfig, _) => {
            provider::park(draft, &agent, class, None, reason, now);
            (if class == Class::Auth { Cause::Auth } else { Cause::BadConfig }, Again::default())
        }
        (_, Consequence::NeedsPerson) => {
            task::needs_human(draft, task, WaitKind::Provider, reason)?;
            end(draft, id, Cause::Refused, reason);
            return Ok(());
        }
        (_, Consequence::NewSession) => {
            let again = Again { resume: same(false), counts: attempt.talk.turns == 0, tried: true, ..Again::default() };
            (Cause::ContextFull, Again { not_before: not_before.filter(|_| attempt.resumes.is_some()), ..again })
        }
        (Class::Overloaded, _) => {
            (Cause::Overloaded, Again { not_before, resume: same(true), tried: true, ..Again::default() })
        }
        // Nobody wished it: that is a fault of its own.
        (Class::Cancelled, _) if attempt.talk.cancels > 0 => {
            (Cause::Stopped, Again { resume: same(true), ..Again::default() })
        }
        (_, _) => {
            let cause = if class == Class::Timeout { Cause::TimedOut } else { Cause::Crashed };
            (cause, Again { not_before, counts: true, tried: true, ..Again::default() })
        }
    };
    task::try_again_after(draft, task, cause, reason, again)?;
    end(draft, id, cause, reason);
    Ok(())
}

/// Brings a task back whose attempt broke off by its own fault: after a pause, which grows.
pub(crate) fn broke_off(draft: &mut Draft, task: TaskId, cause: Cause, reason: &str) -> Result<(), Refusal> {
    let not_before = pause(draft, task)?.map(|it| draft.now().at + it);
    task::try_again_after(
        draft,
        task,
        cause,
        reason,
        Again { not_before, counts: true, tried: true, ..Again::default() },
    )
}

/// How long the next try of a task is put off; nothing at first, when it is set so.
fn pause(draft: &Draft, task: TaskId) -> Result<Option<u64>, Refusal> {
    let (limits, tried) = (draft.board().limits, task::find(draft.board(), task)?.tries);
    let pause = (limits.retry_ms << tried.min(8)).min(limits.retry_most_ms);
    Ok((pause > 0).then_some(pause))
}

pub(crate) fn resume_of(attempt: &Attempt, session: bool) -> Resume {
    let session = if session { attempt.talk.session.clone() } else { None };
    let used = attempt.talk.used_in(session.as_deref());
    let runner = attempt.runner.clone();
    Resume { workspace: attempt.workspace(), agent: attempt.agent.clone(), session, used, runner }
}

/// Ends a running turn so that it can go on later: its program is stopped, its workspace and session are kept.
pub(crate) fn park(draft: &mut Draft, id: AttemptId, reason: &str) -> Result<(), Refusal> {
    let Some(attempt) = draft.board().attempts.get(&id).cloned() else { return Ok(()) };
    stop(draft, id, Cause::Parked, reason.to_owned());
    let resume = (!attempt.bare).then(|| resume_of(&attempt, true));
    let again = Again { resume, ..Again::default() };
    task::try_again_after(draft, attempt.task, Cause::Parked, reason, again)
}

/// Leaves a session for a fresh one in the same workspace: its program is stopped, and it costs no attempt.
pub(crate) fn rotate(draft: &mut Draft, id: AttemptId, reason: &str) -> Result<(), Refusal> {
    let Some(attempt) = draft.board().attempts.get(&id).cloned() else { return Ok(()) };
    stop(draft, id, Cause::ContextFull, reason.to_owned());
    let again = Again { resume: Some(resume_of(&attempt, false)), ..Again::default() };
    task::try_again_after(draft, attempt.task, Cause::ContextFull, reason, again)
}

/// Notes that an attempt's program runs, and how it is shut in.
pub fn launched(
    draft: &mut Draft,
    id: AttemptId,
    token: u64,
    sandbox: Option<String>,
    warnings: Vec<String>,
) -> Result<(), Refusal> {
    live(draft.board(), id, token)?;
    draft.record(Event::AttemptLaunched(Launched { attempt: id, sandbox, warnings }));
    Ok(())
}

/// Leases as many ports as the project's settings say, or another for each that is `taken`.
pub(crate) fn lease_ports(
    draft: &mut Draft,
    id: AttemptId,
    project: &ProjectName,
    taken: Option<usize>,
    now: Now,
) -> Result<Vec<u16>, Refusal> {
    let Some(settings) = draft.board().projects.get(project).map(|it| it.settings.workspace.clone()) else {
        return Ok(vec![]);
    };
    match taken.unwrap_or(settings.ports as usize) {
        0 => Ok(vec![]),
        count => claim::lease_ports(draft, id, count, settings.port_range, now),
    }
}

pub(crate) fn give_ports(draft: &mut Draft, id: AttemptId, ports: Vec<u16>) {
    if !ports.is_empty() {
        draft.record(Event::AttemptPorted(Ported { attempt: id, ports }));
    }
}

/// Takes the report that a stranger listens on some of an attempt's ports, and gives it others. It keeps its claim on
/// those as long as it lives, so that nobody else is sent there.
pub fn ports_taken(draft: &mut Draft, id: AttemptId, token: u64, taken: &[u16], now: Now) -> Result<(), Refusal> {
    let attempt = live(draft.board(), id, token)?;
    let lost = attempt.ports.iter().filter(|it| taken.contains(it)).count();
    let mut others = lease_ports(draft, id, &attempt.project, Some(lost), now)?.into_iter();
    let keep = |port: &u16| if taken.contains(port) { others.next().unwrap_or(*port) } else { *port };
    let ports = attempt.ports.iter().map(keep).collect();
    if lost > 0 {
        give_ports(draft, id, ports);
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
    /// Returns whether the report says more than the output, and is therefore kept as a result.
    pub(crate) fn is_result(&self) -> bool {
        self.not_needed || !self.learnings.is_empty()
    }
}

/// Keeps the report of a program that still runs.
pub fn note(draft: &mut Draft, id: AttemptId, token: u64, said: FinishReport) -> Result<(), Refusal> {
    let attempt = live(draft.board(), id, token)?;
    if attempt.stopping.is_some() || attempt.phase != Phase::Working {
        return Err(Refusal::StaleAttempt { task: attempt.task, attempt: id, live: None });
    }
    task::check_output(said.output.as_deref())?;
    judge::check_learnings(&said.learnings)?;
    if said.is_result() {
        judge::note_result(draft, id, &said);
    }
    if attempt.output != said.output {
        draft.record(Event::AttemptNoted(Noted { attempt: id, output: said.output }));
    }
    Ok(())
}

/// Says that nothing more will be said to an attempt's program.
pub(crate) fn close(draft: &mut Draft, id: AttemptId) {
    if draft.board().attempts.get(&id).is_some_and(|it| !it.talk.closing) {
        draft.record(Event::AttemptClosing(Closing { attempt: id }));
    }
}

/// Takes what a supervised attempt's program said. What was heard before changes nothing.
pub fn heard(draft: &mut Draft, id: AttemptId, token: u64, n: u64, said: Said, now: Now) -> Result<(), Refusal> {
    let attempt = live(draft.board(), id, token)?;
    // Several things may be said at one place; each is taken once.
    if n < attempt.talk.heard || !said.changes_state() {
        return Ok(());
    }
    let used = match &said {
        Said::Usage { session, usage } => {
            Spend { usage: usage.since(&attempt.talk.used_in(session.as_deref())), ..Spend::default() }
        }
        Said::TurnStarted { n } if *n >= attempt.talk.turns => Spend { turns: 1, ..Spend::default() },
        _ => Spend::default(),
    };
    let known = Attempt::clone(&attempt);
    draft.record(Event::AttemptSpoke(Spoke { attempt: id, n, said: said.clone() }));
    match said {
        Said::Asked(ask) => approval::ask(draft, &known, ask, now)?,
        Said::Withdrew { ask } => approval::take_back(draft, &known, &ask),
        Said::TurnEnded { stop, class, .. } => {
            approval::part(draft, id, "its turn has ended", false);
            if class.is_none() && stop == Stop::EndTurn && known.takes_words() {
                approval::tell_unread(draft, &known);
            }
            if class.is_none() && stop == Stop::EndTurn {
                provider::worked(draft, &known.agent);
            }
            let after = live(draft.board(), id, token)?;
            if rotate::after_turn(draft, &after, stop)? {
                return budget::spend(draft, id, used, now);
            }
            let after = live(draft.board(), id, token)?;
            let stays = after.standing.is_some() && after.stopping.is_none();
            let waits = after.talk.held.is_some()
                || (stop == Stop::EndTurn && !after.talk.is_through())
                || (stop == Stop::EndTurn && class.is_none() && approval::awaits_answer(draft.board(), &after))
                || (stays && class.is_none() && matches!(stop, Stop::EndTurn | Stop::Cancelled));
            if !waits && after.phase == Phase::Working {
                close(draft, id);
            }
        }
        _ => {}
    }
    budget::spend(draft, id, used, now)
}

pub(crate) fn live(board: &Board, id: AttemptId, token: u64) -> Result<Arc<Attempt>, Refusal> {
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
