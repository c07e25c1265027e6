//! A task is one unit of work. This module has its data, the permitted changes of its status
//! ([`next_status`]), and the functions that change it.
//!
//! There is no status "blocked", because it follows from the tasks on which a task depends. There
//! is no status for a retry either: a task that is tried again is pending or unassigned as before,
//! with one more attempt in its history.

mod add; // adding and editing tasks
mod assignment; // assigning and offering a task to an agent
mod fixup; // finished work that needs a fix before it can land
mod purpose; // the kind of work that a task is
mod retry; // another attempt at a task
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
    AgentName, AttemptId, BranchName, CommitId, LandingId, MissionId, Now, ProjectName, TaskId,
};
use crate::inbox::Snooze;
use crate::landing::guard::SpecialFile;
use crate::launch::SessionOf;
use crate::pattern::{PathPattern, Uri};
use crate::refusal::Refusal;
use crate::schedule::WaitKind;
use crate::scope_escape::ScopeEscape;
use crate::{claim, manifest};

pub use add::{AddTask, EditTask, SetPause, add, default_priority, edit};
pub(crate) use add::{forget_resume, keep_resume, one_line, set_purpose};
pub(crate) use fixup::send_to_fixup;
pub use fixup::{Conflict, ConflictKind, Fixup, MAX_FIXUPS, SettledPath};
pub use purpose::{Expects, Purpose};
pub use status::{TaskStatus, next_status};

pub use retry::{DEFAULT_MAX_FAILURES, NextAttempt};
pub(crate) use retry::{clear_delay, requeue, retry_after, return_for_retry, send_back};

pub use assignment::{AssignMode, OFFER_TTL_MS, answer_offer, assign, expire_offer};

/// The kind of a task's work, which determines whether the task must name its files and checks
/// before it can start.
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
    /// Returns whether a task of this kind must name its files and checks before an agent can get
    /// it.
    pub fn needs_contract(self) -> bool {
        matches!(self, IssueType::Feature | IssueType::Bug | IssueType::Task)
    }
}

/// A check that a file contains a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ContentCheck {
    pub file: String,
    /// Text that must occur in the file.
    pub pattern: String,
}

/// The checks that a task's finished work must pass: files that must exist or contain a text, and
/// commands that must succeed.
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
    /// Returns whether the checks require files or contents and not only commands.
    pub fn has_structure(&self) -> bool {
        !self.files_exist.is_empty() || !self.content_check.is_empty()
    }

    /// Returns whether the finished work has to pass no checks.
    pub fn is_empty(&self) -> bool {
        self.files_exist.is_empty()
            && self.content_check.is_empty()
            && self.lint.is_empty()
            && self.tests.is_empty()
    }
}

/// An attempt's finished work, as a commit that Regatta keeps in its own git repository for the
/// project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Submission {
    pub attempt: AttemptId,
    pub commit: CommitId,
    pub base: CommitId,
    pub changed: Vec<String>,
    /// Set if landing this work means to revert `commit` (to undo earlier work) and not to merge
    /// it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reverts: bool,
    /// The task whose landed work is undone, if `reverts` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<TaskId>,
    /// Changed paths that are not plain files, such as executables, links and submodules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub special: Vec<SpecialFile>,
}

/// One unit of work for an agent, with its history so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Task {
    pub id: TaskId,
    pub project: ProjectName,
    pub subject: String,
    pub description: String,
    pub issue_type: IssueType,
    /// Patterns of the files that the work may change (the task's manifest); empty means all.
    pub files: Vec<PathPattern>,
    pub validation: Validation,
    pub blocked_by: Vec<TaskId>,
    /// Priority from 0 to 9. Tasks with a lower number are started and landed first.
    pub priority: u8,
    /// The kind of work that the task is. Ordinary work on files is not stored.
    #[serde(default, skip_serializing_if = "Purpose::is_default")]
    pub purpose: Purpose,
    /// Effort with which the model should think, as the provider names it; the agent's own setting
    /// if not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
    /// Model to use, as the provider names it; the agent's own model if not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The only provider whose agents may take the task; any provider if not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Steps of a scripted agent (one without a model) for this task, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// Program and arguments that run after the work has passed its checks and before it is
    /// submitted. An exit code other than 0 rejects the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratchet: Option<Vec<String>>,
    /// Set while no turn is due: a lead or conversation waits for the next event or message.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[serde(rename = "asleep")]
    pub resting: bool,
    /// Name of the task in a plan or in another tracker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mission: Option<MissionId>,
    /// Number of the task's wave (tasks that can run at the same time), from 0.
    pub wave: u32,
    /// Number of the task's part of its wave (tasks that run at the same time), from 0. A wave has
    /// several parts if its tasks need the same files.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub sub_wave: u32,
    pub status: TaskStatus,
    /// The agent to which the task is assigned or offered, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignee: Option<AgentName>,
    /// The time, in milliseconds of Regatta's own clock (the fleet clock), at which an unanswered
    /// offer ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "offer_until")]
    pub offer_until_fleet_ms: Option<u64>,
    /// Reason why the task is paused; `None` if it is not paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<String>,
    /// The agent that works on the task or worked on it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// The attempt that is working on the task now or being stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<AttemptId>,
    /// Cause of the end of the last attempt, which has ended or is being ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_cause: Option<AttemptCause>,
    /// Number of failed attempts that count against the maximum. Interruptions do not count.
    pub failures: u32,
    /// Number of interrupted attempts in a row. The more interruptions, the longer is the delay
    /// before the next attempt.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tries: u32,
    /// The time, in milliseconds of Regatta's own clock (the fleet clock), before which the next
    /// attempt does not start; `None` if it is not delayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "not_before")]
    pub not_before_fleet_ms: Option<u64>,
    /// The workspace and session of the previous attempt, with which the next attempt continues;
    /// `None` if they were not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<ResumePoint>,
    /// The problem that an agent must fix, if finished work could not be merged because of
    /// conflicts or failed checks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixup: Option<Fixup>,
    /// Number of times that finished work came back because it could not be merged and an agent had
    /// to fix it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub fixups: u32,
    /// Paths in which the task's work conflicted with landed work, in any of its tries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<String>,
    /// Conflicting paths that were resolved, when the work landed, by taking the version of the
    /// task that owns the file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settled_conflicts: Vec<String>,
    /// Messages of people or Regatta that the next attempt will get in its briefing (the first
    /// prompt for the agent).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    #[serde(default, skip_serializing_if = "Spend::is_nothing")]
    pub spent: Spend,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submission: Option<Submission>,
    /// The commit with finished work that a reviewer last sent back for changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reviewed: Option<CommitId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub landing: Option<LandingId>,
    /// The commit of the trunk that contains the task's work, once it has landed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub landed: Option<CommitId>,
    /// Set if `landed` also contains the work of other tasks of the same wave (tasks that run at
    /// the same time).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shares_commit: bool,
    /// Latest progress report of the agent; empty if there was none.
    pub progress: String,
    /// Reason why the task came back, failed or needs a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Kind of decision that a person must make, if the task needs a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "needs")]
    pub needed_decision: Option<WaitKind>,
    /// Time for which a person has hidden the task's inbox item (entry in the list of things that
    /// need a person).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snoozed: Option<Snooze>,
    /// Set if the task failed and nobody has retried or dismissed it yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[serde(rename = "unanswered")]
    pub awaits_decision: bool,
    /// Changes outside the task's files that an attempt made or reported as needed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub escapes: Vec<ScopeEscape>,
    /// Warnings about the work for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The agent's report when it finished the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    #[serde(rename = "created_wall")]
    pub created_unix_ms: u64,
    #[serde(rename = "updated_wall")]
    pub updated_unix_ms: u64,
}

impl Task {
    /// Returns the kind of result that completes the task: changed files, or a report.
    pub fn expects(&self) -> Expects {
        self.purpose.expects()
    }

    /// Returns whether agents get this task when they ask for work. A task in which an agent leads
    /// a mission, answers a question or holds a conversation is assigned to that agent directly.
    pub fn is_polled(&self) -> bool {
        self.purpose.is_polled()
    }

    /// Returns whether attempts at the task do not count against the machine's maximum number of
    /// attempts.
    pub fn is_light(&self) -> bool {
        self.purpose.is_light()
    }

    /// Returns whether an agent can do the task without a workspace: it is work that only expects a
    /// report, and does not continue earlier work.
    pub fn needs_no_workspace(&self) -> bool {
        let is_report = self.purpose
            == Purpose::Work {
                expects: Expects::Report,
            };
        is_report && self.resume.is_none()
    }

    /// Returns the team member for whose session the task exists, or `None` if the task is no
    /// session.
    pub fn session_of(&self) -> Option<&SessionOf> {
        match &self.purpose {
            Purpose::Session(session) => Some(session),
            _ => None,
        }
    }

    /// Returns the goal for which this task makes a plan, or `None` if it does not make a plan.
    pub fn planning_goal(&self) -> Option<&str> {
        match &self.purpose {
            Purpose::Plan { goal } => Some(goal),
            _ => None,
        }
    }

    /// Returns whether the task stands for a conversation in a service such as Slack.
    pub fn is_conversation(&self) -> bool {
        matches!(self.purpose, Purpose::Converse { .. })
    }

    /// Returns the remote whose commits the task brings into the trunk, or `None` if the task is
    /// other work.
    pub fn merged_remote(&self) -> Option<&str> {
        match &self.purpose {
            Purpose::MergeRemote { remote } => Some(remote),
            _ => None,
        }
    }

    /// Frees the unused memory that the task's lists have after the task was read from the store.
    pub(crate) fn shrink_to_fit(&mut self) {
        self.files.shrink_to_fit();
        self.blocked_by.shrink_to_fit();
        self.validation.files_exist.shrink_to_fit();
        self.validation.content_check.shrink_to_fit();
        self.validation.lint.shrink_to_fit();
        self.validation.tests.shrink_to_fit();
    }

    /// Returns the name of the branch on which the task's work is done, such as
    /// `regatta/T3-link-both-lists`.
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

    /// Returns the task's step (wave and part of it) in its mission.
    pub fn step(&self) -> PlanStep {
        PlanStep {
            wave: self.wave,
            sub: self.sub_wave,
        }
    }

    /// Returns the URIs of the files that the task may change. More is claimed for an attempt; see
    /// [`crate::manifest::claims_of_task`].
    pub fn file_claims(&self) -> Vec<Uri> {
        self.files
            .iter()
            .map(|pattern| Uri::for_file(&self.project, pattern))
            .collect()
    }
}

facts! {
    TaskAdded { task: Arc<Task> }
    /// The task was edited; `task` is the whole task after the change.
    TaskEdited { task: Arc<Task> }
    TaskAssigned { task: TaskId, to: Option<AgentName>, status: TaskStatus }
    TaskOffered { task: TaskId, to: AgentName, until_at: u64 }
    TaskStarted { task: TaskId, attempt: AttemptId, agent: AgentName }
    TaskProgressed { task: TaskId, attempt: AttemptId, text: String }
    TaskValidating { task: TaskId, attempt: AttemptId, output: Option<String> }
    TaskSubmitted { task: TaskId, landing: LandingId, submission: Submission }
    /// The task waits for another attempt. `counts` is true if the last attempt counts as a
    /// failure.
    TaskReturned { task: TaskId, status: TaskStatus, reason: String, counts: bool, again: Option<NextAttempt> }
    /// The delay before the task's next attempt is over, or an event arrived for a task that waited
    /// for one.
    TaskDue { task: TaskId }
    /// A warning about the task's work was recorded for people.
    TaskWarned { task: TaskId, text: String }
    /// The task's work is finished and kept. The work lands only after somebody has approved it or
    /// answered a question.
    TaskInReview { task: TaskId, submission: Submission, reason: String }
    /// The task cannot continue without a person. If its finished work could not be merged, `fixup`
    /// describes the problem.
    TaskNeedsHuman { task: TaskId, kind: WaitKind, reason: String, fixup: Option<Box<Fixup>> }
    TaskCompleted { task: TaskId, landed: Option<CommitId> }
    TaskFailed { task: TaskId, reason: String }
    TaskCancelled { task: TaskId, reason: String }
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// Starts an attempt at a task. The attempt, its claims (leases on the task's files) and the task's
/// new status are recorded together, in one transaction. No other function starts attempts.
///
/// The caller has just checked, on the same `draft` (copy of the state), that the task is ready.
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

/// Records a working agent's progress report, which also shows that the agent is still at work.
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
            "the progress report is longer than 4000 bytes",
            "shorten the report, and put details into the agent's own output",
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

/// Handles an agent's report that its work is finished. Next, Regatta saves the changes as a commit
/// and runs the checks.
pub fn finish(
    draft: &mut Draft,
    id: TaskId,
    attempt: AttemptId,
    token: u64,
    output: Option<String>,
) -> Result<(), Refusal> {
    let attempt_record = attempt::require_attempt_of_task(draft.board(), id, attempt, token)?;
    if attempt_record.stopping.is_some() {
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

/// Refuses an agent's final report if it is longer than 64 KiB.
pub(crate) fn check_output(output: Option<&str>) -> Result<(), Refusal> {
    if output.is_some_and(|output| output.len() > 64 * 1024) {
        return Err(Refusal::invalid(
            "the report is longer than 64 KiB",
            "write the details to a file and name the file in the report",
        ));
    }
    Ok(())
}

/// Fails a task because its agent reported that it cannot be done. The task is not retried by
/// itself.
pub fn give_up(
    draft: &mut Draft,
    id: TaskId,
    attempt: AttemptId,
    token: u64,
    reason: Option<String>,
) -> Result<(), Refusal> {
    let attempt_record = attempt::require_attempt_of_task(draft.board(), id, attempt, token)?;
    if attempt_record.stopping.is_some() {
        return Err(Refusal::StaleAttempt {
            task: id,
            attempt,
            live: None,
        });
    }
    let reason = reason.unwrap_or_else(|| "Unknown failure".into());
    if attempt_record.supervised {
        // The agent's program still runs, so the attempt's claims are released only when the
        // program has ended.
        attempt::stop(draft, attempt, AttemptCause::GaveUp, reason.clone());
        return fail(draft, id, &reason);
    }
    attempt::end(draft, attempt, AttemptCause::GaveUp, &reason);
    fail(draft, id, &reason)
}

/// Records that a task's finished work is in the landing queue.
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

/// Keeps a task's finished work outside the landing queue until somebody has reviewed it, for this
/// reason.
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

/// Changes the recorded reason why a task's finished work waits for a review. Does nothing if the
/// task is not in review.
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

/// Records a warning about a task for people. Ignores a repeated warning, and all further warnings
/// of a task that already has fifty.
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

/// Marks a task as waiting for a person. `kind` is the kind of decision that the person must make,
/// and `reason` describes it in a sentence.
pub(crate) fn needs_human(
    draft: &mut Draft,
    id: TaskId,
    kind: WaitKind,
    reason: &str,
) -> Result<(), Refusal> {
    needs_human_to_fix(draft, id, kind, None, reason)
}

/// Like [`needs_human`], for finished work that could not be merged. `fixup` describes the problem.
pub(crate) fn needs_human_to_fix(
    draft: &mut Draft,
    id: TaskId,
    kind: WaitKind,
    fixup: Option<Box<Fixup>>,
    reason: &str,
) -> Result<(), Refusal> {
    let task = find(draft.board(), id)?;
    if task.session_of().is_some() {
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

/// Completes a task, because its work has landed or nothing had to land.
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

/// Marks a task as failed. The task stays failed; a retry adds a new task.
pub(crate) fn fail(draft: &mut Draft, id: TaskId, reason: &str) -> Result<(), Refusal> {
    let task = find(draft.board(), id)?;
    next_status(id, task.status, TaskStatus::Failed)?;
    draft.record(Event::TaskFailed(TaskFailed {
        task: id,
        reason: reason.to_owned(),
    }));
    Ok(())
}

/// Cancels a task: takes its work out of the landing queue and stops its attempt.
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

/// Makes an existing task of the same project part of a mission. The task must not have started or
/// belong to another mission.
pub(crate) fn adopt(
    draft: &mut Draft,
    id: TaskId,
    (mission, step): (MissionId, PlanStep),
    project: &ProjectName,
) -> Result<(), Refusal> {
    let task = find(draft.board(), id)?;
    if task.project != *project {
        return Err(Refusal::invalid(
            format!(
                "task {id} cannot join this mission, because the task belongs to project {}",
                task.project
            ),
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
