//! Tasks: one unit of work, one state machine ([`next_status`]), and the verbs that drive it.
//!
//! "Blocked" is not a state, because it follows from the blockers. A retry is not a state either: a
//! task that comes back is pending or unassigned again, with one more attempt in its history.

mod add; // adding and editing tasks
mod fixup; // finished work that needs a fix before it can land
mod status; // the status and the state machine

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::attempt::{self, AttemptCause, ResumePoint};
use crate::board::{Board, Draft};
use crate::budget::Spend;
use crate::claim::WorkClaims;
use crate::event::{Event, facts};
use crate::graph::PlanStep;
use crate::ids::{
    AgentName, AttemptId, BranchName, ChannelName, CommitId, ConversationId, LandingId, MessageId,
    MissionId, Now, ProjectName, TaskId,
};
use crate::inbox::Snooze;
use crate::landing::guard::SpecialFile;
use crate::launch::SessionOf;
use crate::pattern::{PathPattern, Uri};
use crate::refusal::Refusal;
use crate::schedule::WaitKind;
use crate::scope_escape::ScopeEscape;
use crate::{agent, claim, manifest};

pub use add::{AddTask, EditTask, SetPause, add, default_priority, edit};
pub(crate) use add::{
    forget_resume, keep_resume, one_line, set_duty, set_explored_task, set_reviewed_task,
    set_session_of,
};
pub(crate) use fixup::send_to_fixup;
pub use fixup::{Conflict, ConflictKind, Fixup, MAX_FIXUPS, SettledPath};
pub use status::{TaskStatus, next_status};

/// The kind of work; it decides which gates apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum IssueType {
    Feature,
    Bug,
    #[default]
    Task,
    Docs,
    Chore,
    Ci,
}

impl IssueType {
    /// Returns whether this kind of work needs a manifest and checks before an agent can get it.
    pub fn needs_contract(self) -> bool {
        matches!(self, IssueType::Feature | IssueType::Bug | IssueType::Task)
    }
}

/// The result that a finished task must have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Expects {
    #[default]
    Changes,
    Report,
}

/// A pattern that must be found in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ContentCheck {
    pub file: String,
    /// Text that must occur in the file.
    pub pattern: String,
}

/// The validation contract: what must hold before the work counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Validation {
    pub files_exist: Vec<String>,
    pub content_check: Vec<ContentCheck>,
    pub lint: Vec<String>,
    pub tests: Vec<String>,
}

impl Validation {
    /// Returns whether it requires files or contents, besides commands that must pass.
    pub fn has_structure(&self) -> bool {
        !self.files_exist.is_empty() || !self.content_check.is_empty()
    }

    /// Returns whether it requires nothing.
    pub fn is_empty(&self) -> bool {
        self.files_exist.is_empty()
            && self.content_check.is_empty()
            && self.lint.is_empty()
            && self.tests.is_empty()
    }
}

/// Finished work, whose commit is kept in the vault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Submission {
    pub attempt: AttemptId,
    pub commit: CommitId,
    pub base: CommitId,
    pub changed: Vec<String>,
    /// The landing reverts the commit instead of merging it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reverts: bool,
    /// The task whose landed work this one undoes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<TaskId>,
    /// The remote whose commits this submission brings in; the trunk is replayed on top of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "joins")]
    pub merges_remote: Option<String>,
    /// Changed paths that are more than plain files: executables, links, submodules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub special: Vec<SpecialFile>,
}

/// The purpose of a task that is not ordinary work on files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TaskDuty {
    /// Runs the turns of its mission's lead.
    Lead,
    /// Answers in the thread that this message began.
    Answer {
        channel: ChannelName,
        root: MessageId,
    },
    /// Decides what happens with this message.
    Triage {
        channel: ChannelName,
        message: MessageId,
    },
    /// Runs the turns of a conversation.
    Converse { conversation: ConversationId },
    /// Makes a plan for this goal, in the words of the person who asked.
    Plan { goal: String },
}

/// One unit of work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Task {
    pub id: TaskId,
    pub project: ProjectName,
    pub subject: String,
    pub description: String,
    pub issue_type: IssueType,
    /// The manifest: patterns of the files that the work may change.
    pub files: Vec<PathPattern>,
    pub validation: Validation,
    pub blocked_by: Vec<TaskId>,
    /// Priority; lower goes first.
    pub priority: u8,
    pub expects: Expects,
    /// Effort setting of the model, in the provider's term.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
    /// Model to use, in the provider's term; the agent's own model if not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The only provider whose agents may take the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The scripted agent's steps, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// Command that runs after the work has passed its checks and before it is submitted. Any exit
    /// code but 0 fails the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratchet: Option<Vec<String>>,
    /// The task for which this one explores the repository to find its files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explores: Option<TaskId>,
    /// The task whose finished work this one reviews before it may land.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reviews: Option<TaskId>,
    /// The reviewed commit. The verdict counts only for this commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reviews_commit: Option<CommitId>,
    /// Purpose of the task, if it is not ordinary work on files. Changes of such a task do not
    /// land.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duty: Option<TaskDuty>,
    /// The task rests until an event concerns it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[serde(rename = "asleep")]
    pub resting: bool,
    /// The team member whose standing session this is. Nobody polls for such a task, and it ends
    /// with the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "standing")]
    pub session_of: Option<SessionOf>,
    /// Name of the task in a plan or in another tracker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mission: Option<MissionId>,
    /// Number of its wave, if the mission runs in waves.
    pub wave: u32,
    /// Part of its wave; a wave is split where manifests overlap.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub sub_wave: u32,
    pub status: TaskStatus,
    /// The agent that must do the task, or to which it is offered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignee: Option<AgentName>,
    /// Expiry of an offer, on the fleet clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "offer_until")]
    pub offer_until_fleet_ms: Option<u64>,
    /// Reason for which a person paused the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<String>,
    /// The agent that worked on the task last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// The live attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<AttemptId>,
    /// Cause for which the last attempt ended or is being ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_cause: Option<AttemptCause>,
    /// Number of attempts that failed by their own fault.
    pub failures: u32,
    /// Number of interrupted attempts in a row; it determines the delay before the next one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tries: u32,
    /// Earliest next start, on the fleet clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "not_before")]
    pub not_before_fleet_ms: Option<u64>,
    /// Unfinished work with which the next attempt continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<ResumePoint>,
    /// The fix that finished work needs before it can land.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixup: Option<Fixup>,
    /// Number of times that finished work came back for a fix-up.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub fixups: u32,
    /// Paths in which its work conflicted with landed work.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<String>,
    /// Conflicting paths that were resolved by ownership when the work landed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settled_conflicts: Vec<String>,
    /// Messages of people to the next attempt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    #[serde(default, skip_serializing_if = "Spend::is_nothing")]
    pub spent: Spend,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submission: Option<Submission>,
    /// The finished work that a reviewer last sent back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reviewed: Option<CommitId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub landing: Option<LandingId>,
    /// The trunk's commit that contains the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub landed: Option<CommitId>,
    /// The landed commit is a wave commit, which also contains the work of other tasks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shares_commit: bool,
    /// Latest progress report of the agent.
    pub progress: String,
    /// Reason for which the task came back, failed or needs a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Kind of the decision for which the task waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "needs")]
    pub needed_decision: Option<WaitKind>,
    /// Time until which somebody postponed the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snoozed: Option<Snooze>,
    /// The task failed, and nobody has yet decided what happens next.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[serde(rename = "unanswered")]
    pub awaits_decision: bool,
    /// Changes that the work needs or made outside its manifest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub escapes: Vec<ScopeEscape>,
    /// Remarks about the work for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Report of the agent when it finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    #[serde(rename = "created_wall")]
    pub created_unix_ms: u64,
    #[serde(rename = "updated_wall")]
    pub updated_unix_ms: u64,
}

impl TaskDuty {
    /// Returns whether the duty takes no slot of the machine. A conversation and a plan take one,
    /// as any task does.
    pub fn is_light(&self) -> bool {
        !matches!(self, TaskDuty::Converse { .. } | TaskDuty::Plan { .. })
    }
}

impl Task {
    /// Returns whether the task takes no slot of the machine.
    pub fn is_light(&self) -> bool {
        self.duty.as_ref().is_some_and(TaskDuty::is_light)
    }

    /// Returns whether the task can be done without a workspace: it is an ordinary report, and no
    /// unfinished work of it exists.
    pub fn needs_no_workspace(&self) -> bool {
        let special = self.duty.is_some() || self.explores.is_some() || self.reviews.is_some();
        self.expects == Expects::Report
            && !special
            && self.session_of.is_none()
            && self.resume.is_none()
    }

    /// Returns whether the mission's agents poll for the task. Tasks of leads, answers and
    /// conversations are assigned separately.
    pub fn is_polled(&self) -> bool {
        matches!(self.duty, None | Some(TaskDuty::Plan { .. }))
    }

    /// Returns the goal that this task plans, if it is a planning task.
    pub fn planning_goal(&self) -> Option<&str> {
        match &self.duty {
            Some(TaskDuty::Plan { goal }) => Some(goal),
            _ => None,
        }
    }

    /// Returns whether the task runs the turns of a conversation.
    pub fn is_conversation(&self) -> bool {
        matches!(self.duty, Some(TaskDuty::Converse { .. }))
    }

    /// Frees the spare capacity of its lists, which deserialising leaves behind.
    pub(crate) fn shrink_to_fit(&mut self) {
        self.files.shrink_to_fit();
        self.blocked_by.shrink_to_fit();
        self.validation.files_exist.shrink_to_fit();
        self.validation.content_check.shrink_to_fit();
        self.validation.lint.shrink_to_fit();
        self.validation.tests.shrink_to_fit();
    }

    /// Returns the name of the branch in its workspace.
    pub fn branch(&self) -> BranchName {
        let words: String = self
            .subject
            .to_ascii_lowercase()
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .collect();
        let slug: Vec<&str> = words
            .split('-')
            .filter(|word| !word.is_empty())
            .take(6)
            .collect();
        let slug: String = slug.join("-").chars().take(40).collect();
        let name = if slug.is_empty() {
            format!("regatta/{}", self.id)
        } else {
            format!("regatta/{}-{}", self.id, slug.trim_end_matches('-'))
        };
        BranchName::new(&name).expect("letters, digits and dashes make a branch name")
    }

    /// Returns its step in a mission that runs in waves.
    pub fn step(&self) -> PlanStep {
        PlanStep {
            wave: self.wave,
            sub: self.sub_wave,
        }
    }

    /// Returns the claims on its manifest. An attempt also holds others: see
    /// [`crate::manifest::claims`].
    pub fn file_claims(&self) -> Vec<Uri> {
        self.files
            .iter()
            .map(|path_pattern| Uri::for_file(&self.project, path_pattern))
            .collect()
    }
}

facts! {
    TaskAdded { task: Arc<Task> }
    /// The task's text, files, checks, blockers or priority changed.
    TaskEdited { task: Arc<Task> }
    TaskAssigned { task: TaskId, to: Option<AgentName>, status: TaskStatus }
    TaskOffered { task: TaskId, to: AgentName, until_at: u64 }
    TaskStarted { task: TaskId, attempt: AttemptId, agent: AgentName }
    TaskProgressed { task: TaskId, attempt: AttemptId, text: String }
    TaskValidating { task: TaskId, attempt: AttemptId, output: Option<String> }
    TaskSubmitted { task: TaskId, landing: LandingId, submission: Submission }
    /// The task waits for an agent again.
    TaskReturned { task: TaskId, status: TaskStatus, reason: String, counts: bool, again: Option<NextAttempt> }
    /// The delay before the next attempt is over.
    TaskDue { task: TaskId }
    /// A remark about the work for people.
    TaskWarned { task: TaskId, text: String }
    /// The work is finished and kept, and somebody must review it before it lands.
    TaskInReview { task: TaskId, submission: Submission, reason: String }
    /// `fixup` is the fix that finished work needs, if the work could not land.
    TaskNeedsHuman { task: TaskId, kind: WaitKind, reason: String, fixup: Option<Box<Fixup>> }
    TaskCompleted { task: TaskId, landed: Option<CommitId> }
    TaskFailed { task: TaskId, reason: String }
    TaskCancelled { task: TaskId, reason: String }
}

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

fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// The way in which a task is assigned to an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AssignMode {
    /// At once; refused if the agent has no free slot.
    #[default]
    Direct,
    /// In the agent's queue, even if the agent has no free slot.
    Queue,
    /// As an offer, which the agent may decline.
    Offer,
}

/// Lifetime of an offer: ten minutes.
pub const OFFER_TTL_MS: u64 = 600_000;

/// Assigns a task to an agent, or to nobody with `None`.
pub fn assign(
    draft: &mut Draft,
    id: TaskId,
    to: Option<AgentName>,
    how: AssignMode,
    now: Now,
) -> Result<(), Refusal> {
    let task = find(draft.board(), id)?;
    if task.status.is_running() || task.status == TaskStatus::Landing {
        return Err(Refusal::InUse {
            what: id.to_string(),
            by: task
                .attempt
                .map_or(task.status.to_string(), |id| id.to_string()),
        });
    }
    crate::landing::remote_sync::refuse_work(draft.board(), &task)?;
    let Some(to) = to else {
        next_status(id, task.status, TaskStatus::Unassigned)?;
        draft.record(Event::TaskAssigned(TaskAssigned {
            task: id,
            to: None,
            status: TaskStatus::Unassigned,
        }));
        return Ok(());
    };
    let agent = agent::find(draft.board(), &to)?;
    let room = agent::capacity(draft.board(), agent);
    match how {
        AssignMode::Direct if room.available == 0 => Err(Refusal::AtCapacity {
            agent: to,
            running: room.current,
            max: room.max,
        }),
        AssignMode::Direct | AssignMode::Queue => {
            next_status(id, task.status, TaskStatus::Pending)?;
            draft.record(Event::TaskAssigned(TaskAssigned {
                task: id,
                to: Some(to),
                status: TaskStatus::Pending,
            }));
            Ok(())
        }
        AssignMode::Offer => {
            next_status(id, task.status, TaskStatus::Offered)?;
            draft.record(Event::TaskOffered(TaskOffered {
                task: id,
                to,
                until_at: now.fleet_ms + OFFER_TTL_MS,
            }));
            Ok(())
        }
    }
}

/// Accepts or declines an offer.
pub fn answer_offer(
    draft: &mut Draft,
    id: TaskId,
    agent: &AgentName,
    accept: bool,
) -> Result<(), Refusal> {
    let task = find(draft.board(), id)?;
    if task.status != TaskStatus::Offered || task.assignee.as_ref() != Some(agent) {
        return Err(Refusal::NotOffered {
            task: id,
            agent: agent.clone(),
        });
    }
    let (to, status) = if accept {
        (Some(agent.clone()), TaskStatus::Pending)
    } else {
        (None, TaskStatus::Unassigned)
    };
    draft.record(Event::TaskAssigned(TaskAssigned {
        task: id,
        to,
        status,
    }));
    Ok(())
}

/// Withdraws an expired offer, so that the task is not stranded.
pub fn expire_offer(draft: &mut Draft, id: TaskId, now: Now) {
    let due = draft.board().tasks.get(&id).is_some_and(|task| {
        task.offer_until_fleet_ms
            .is_some_and(|at| at <= now.fleet_ms)
    });
    if due {
        draft.record(Event::TaskAssigned(TaskAssigned {
            task: id,
            to: None,
            status: TaskStatus::Unassigned,
        }));
    }
}

/// Starts an attempt on a task: the attempt, its token, its claims and the status change are
/// recorded in one commit. No other function does this.
///
/// The scheduler has checked just before, on the same draft, that the task is ready.
pub(crate) fn start(
    draft: &mut Draft,
    id: TaskId,
    by: &attempt::BeginAttempt,
    now: Now,
) -> Result<AttemptId, Refusal> {
    let task = find(draft.board(), id)?;
    next_status(id, task.status, TaskStatus::InProgress)?;
    let attempt = AttemptId(draft.board().counters.attempt + 1);
    let claims = WorkClaims {
        files: manifest::claims_of_task(draft.board(), &task),
        mode: manifest::claim_mode(draft.board(), &task),
        identity: claim::uris_of_start(&task, &by.agent),
    };
    claim::acquire_for_attempt(draft, attempt, &by.agent, claims, now)?;
    let ports = attempt::lease_ports(draft, attempt, &task.project, None, now)?;
    attempt::begin(draft, attempt, &task, by, now);
    attempt::assign_ports(draft, attempt, ports);
    draft.record(Event::TaskStarted(TaskStarted {
        task: id,
        attempt,
        agent: by.agent.clone(),
    }));
    Ok(attempt)
}

/// Records an attempt's progress text, and renews its lease.
pub fn progress(
    draft: &mut Draft,
    id: TaskId,
    attempt: AttemptId,
    token: u64,
    text: String,
    now: Now,
) -> Result<(), Refusal> {
    attempt::require_attempt_of_task(draft.board(), id, attempt, token)?;
    if text.len() > 4_000 {
        return Err(Refusal::invalid(
            "progress is at most 4000 bytes",
            "shorten it; the log keeps the rest",
        ));
    }
    attempt::renew(draft, attempt, now);
    draft.record(Event::TaskProgressed(TaskProgressed {
        task: id,
        attempt,
        text,
    }));
    Ok(())
}

/// Marks an attempt as finished. Its changes are captured and validated next.
pub fn finish(
    draft: &mut Draft,
    id: TaskId,
    attempt: AttemptId,
    token: u64,
    output: Option<String>,
) -> Result<(), Refusal> {
    let live = attempt::require_attempt_of_task(draft.board(), id, attempt, token)?;
    if live.stopping.is_some() {
        return Err(Refusal::StaleAttempt {
            task: id,
            attempt,
            live: None,
        });
    }
    let task = find(draft.board(), id)?;
    next_status(id, task.status, TaskStatus::Validating)?;
    check_output(output.as_deref())?;
    draft.record(Event::TaskValidating(TaskValidating {
        task: id,
        attempt,
        output,
    }));
    Ok(())
}

/// Refuses a report that is too long.
pub(crate) fn check_output(output: Option<&str>) -> Result<(), Refusal> {
    if output.is_some_and(|output| output.len() > 64 * 1024) {
        return Err(Refusal::invalid(
            "a task's output is at most 64 KiB",
            "write it to a file and name the file",
        ));
    }
    Ok(())
}

/// Fails a task because its agent gave up. This verdict of the agent is final.
pub fn give_up(
    draft: &mut Draft,
    id: TaskId,
    attempt: AttemptId,
    token: u64,
    reason: Option<String>,
) -> Result<(), Refusal> {
    let live = attempt::require_attempt_of_task(draft.board(), id, attempt, token)?;
    if live.stopping.is_some() {
        return Err(Refusal::StaleAttempt {
            task: id,
            attempt,
            live: None,
        });
    }
    if live.supervised {
        // The process still runs, and its claims are released only when it has ended.
        let reason = reason.unwrap_or_else(|| "Unknown failure".into());
        attempt::stop(draft, attempt, AttemptCause::GaveUp, reason.clone());
        fail(draft, id, &reason)?;
        return Ok(());
    }
    let reason = reason.unwrap_or_else(|| "Unknown failure".into());
    attempt::end(draft, attempt, AttemptCause::GaveUp, &reason);
    fail(draft, id, &reason)
}

/// Marks a task's finished work as submitted to the landing queue.
pub(crate) fn submit(
    draft: &mut Draft,
    id: TaskId,
    landing: LandingId,
    submission: Submission,
) -> Result<(), Refusal> {
    let task = find(draft.board(), id)?;
    next_status(id, task.status, TaskStatus::Landing)?;
    draft.record(Event::TaskSubmitted(TaskSubmitted {
        task: id,
        landing,
        submission,
    }));
    Ok(())
}

/// Keeps finished work until somebody has reviewed it.
pub(crate) fn keep_for_review(
    draft: &mut Draft,
    id: TaskId,
    submission: Submission,
    reason: String,
) -> Result<(), Refusal> {
    let task = find(draft.board(), id)?;
    next_status(id, task.status, TaskStatus::InReview)?;
    draft.record(Event::TaskInReview(TaskInReview {
        task: id,
        submission,
        reason,
    }));
    Ok(())
}

/// Changes the reason for which work is in review.
pub(crate) fn change_review_reason(
    draft: &mut Draft,
    task: &Task,
    submission: Submission,
    reason: String,
) {
    if task.status == TaskStatus::InReview {
        draft.record(Event::TaskInReview(TaskInReview {
            task: task.id,
            submission,
            reason,
        }));
    }
}

/// Returns a task to the agents for another attempt, without counting a failure.
pub(crate) fn return_for_retry(draft: &mut Draft, id: TaskId, reason: &str) -> Result<(), Refusal> {
    requeue_inner(draft, id, reason, NextAttempt::default())
}

/// Returns a task to the agents after a reviewer looked at its finished work.
pub(crate) fn send_back(
    draft: &mut Draft,
    id: TaskId,
    reviewed: CommitId,
    reason: &str,
) -> Result<(), Refusal> {
    requeue_inner(
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
    #[serde(rename = "asleep")]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
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
    again: NextAttempt,
) -> Result<(), Refusal> {
    let task = find(draft.board(), id)?;
    if task.session_of.is_some() {
        return Ok(()); // the task ends with its session, and its team decides what follows
    }
    // A failed fix-up counts as a fix-up, not as a failure, because the submitted work is
    // unchanged.
    if again.counts_as_failure && task.fixup.is_some() {
        return send_to_fixup(
            draft,
            id,
            reason,
            NextAttempt {
                fixup: task.fixup.clone().map(Box::new),
                ..again
            },
        );
    }
    if again.counts_as_failure && task.failures + 1 >= max_failures(draft.board(), &task) {
        let reason = format!(
            "{} attempts failed; the last one: {reason}",
            task.failures + 1
        );
        return match decision_when_exhausted(cause) {
            Some(kind) => needs_human(draft, id, kind, &reason),
            None => fail(draft, id, &reason),
        };
    }
    requeue_inner(draft, id, reason, again)
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

/// Returns a task to the agents for another attempt, because somebody asked.
pub(crate) fn requeue(
    draft: &mut Draft,
    id: TaskId,
    reason: &str,
    again: NextAttempt,
) -> Result<(), Refusal> {
    requeue_inner(draft, id, reason, again)
}

/// Records that a task waits for an agent again.
fn requeue_inner(
    draft: &mut Draft,
    id: TaskId,
    reason: &str,
    again: NextAttempt,
) -> Result<(), Refusal> {
    let task = find(draft.board(), id)?;
    if task.session_of.is_some() {
        return Ok(());
    }
    let counts = again.counts_as_failure;
    let status = if task.assignee.is_some() {
        TaskStatus::Pending
    } else {
        TaskStatus::Unassigned
    };
    next_status(id, task.status, status)?;
    let plain = NextAttempt {
        counts_as_failure: counts,
        ..NextAttempt::default()
    } == again;
    let again = (!plain).then_some(again);
    draft.record(Event::TaskReturned(TaskReturned {
        task: id,
        status,
        reason: reason.to_owned(),
        counts,
        again,
    }));
    Ok(())
}

/// Records a remark about a task's work for people. A repeated remark is ignored.
pub(crate) fn warn(draft: &mut Draft, id: TaskId, text: String) {
    if draft
        .board()
        .tasks
        .get(&id)
        .is_some_and(|task| !task.warnings.contains(&text) && task.warnings.len() < 50)
    {
        draft.record(Event::TaskWarned(TaskWarned { task: id, text }));
    }
}

/// Marks a task as waiting for a person's decision.
pub(crate) fn needs_human(
    draft: &mut Draft,
    id: TaskId,
    kind: WaitKind,
    reason: &str,
) -> Result<(), Refusal> {
    needs_human_to_fix(draft, id, kind, None, reason)
}

/// Like [`needs_human`], for finished work that cannot land. `fixup` is the fix that it needs.
pub(crate) fn needs_human_to_fix(
    draft: &mut Draft,
    id: TaskId,
    kind: WaitKind,
    fixup: Option<Box<Fixup>>,
    reason: &str,
) -> Result<(), Refusal> {
    let task = find(draft.board(), id)?;
    if task.session_of.is_some() {
        return Ok(());
    }
    next_status(id, task.status, TaskStatus::NeedsHuman)?;
    draft.record(Event::TaskNeedsHuman(TaskNeedsHuman {
        task: id,
        kind,
        reason: reason.to_owned(),
        fixup,
    }));
    Ok(())
}

/// Completes a task, because its work landed or because its report is in.
pub(crate) fn complete(
    draft: &mut Draft,
    id: TaskId,
    landed: Option<CommitId>,
) -> Result<(), Refusal> {
    let task = find(draft.board(), id)?;
    next_status(id, task.status, TaskStatus::Completed)?;
    draft.record(Event::TaskCompleted(TaskCompleted { task: id, landed }));
    Ok(())
}

/// Fails a task for good.
pub(crate) fn fail(draft: &mut Draft, id: TaskId, reason: &str) -> Result<(), Refusal> {
    let task = find(draft.board(), id)?;
    next_status(id, task.status, TaskStatus::Failed)?;
    draft.record(Event::TaskFailed(TaskFailed {
        task: id,
        reason: reason.to_owned(),
    }));
    Ok(())
}

/// Cancels a task, withdraws its landing and stops its attempt.
pub fn cancel(draft: &mut Draft, id: TaskId, reason: &str) -> Result<(), Refusal> {
    let task = find(draft.board(), id)?;
    next_status(id, task.status, TaskStatus::Cancelled)?;
    if let Some(landing) = task.landing {
        crate::landing::withdraw(draft, landing, reason)?;
    }
    if let Some(attempt) = task.attempt {
        attempt::stop(draft, attempt, AttemptCause::Cancelled, reason.to_owned());
    }
    draft.record(Event::TaskCancelled(TaskCancelled {
        task: id,
        reason: reason.to_owned(),
    }));
    Ok(())
}

/// Adds an existing task to a mission.
pub(crate) fn adopt(
    draft: &mut Draft,
    id: TaskId,
    (mission, step): (MissionId, PlanStep),
    project: &ProjectName,
) -> Result<(), Refusal> {
    let task = find(draft.board(), id)?;
    if task.project != *project {
        return Err(Refusal::invalid(
            format!("{id} belongs to project {}", task.project),
            "run the tasks of each project separately",
        ));
    }
    if let Some(other) = task.mission {
        return Err(Refusal::InUse {
            what: id.to_string(),
            by: other.to_string(),
        });
    }
    if !task.status.is_waiting() {
        return Err(Refusal::InUse {
            what: id.to_string(),
            by: task.status.to_string(),
        });
    }
    let task = Task {
        mission: Some(mission),
        wave: step.wave,
        sub_wave: step.sub,
        ..Task::clone(&task)
    };
    draft.record(Event::TaskEdited(TaskEdited { task: task.into() }));
    Ok(())
}

/// Returns the task with this id, or a refusal that says whether it has ended or never existed.
pub fn find(board: &Board, id: TaskId) -> Result<Arc<Task>, Refusal> {
    match board.tasks.get(&id) {
        Some(task) => Ok(task.clone()),
        None => match board.ended_status(id) {
            Some(status) => Err(Refusal::Finished { task: id, status }),
            None => Err(Refusal::NoSuchTask { task: id }),
        },
    }
}
