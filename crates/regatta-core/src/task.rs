//! Tasks: one unit of work, one state machine ([`next_status`]), and the verbs that drive it.
//!
//! "Blocked" is not a state: it is derived from blockers. A retry is not a state either: a task that comes
//! back is pending or unassigned again, with one attempt more in its history.

mod add; // adding and editing
mod fixup; // finished work that must be mended
mod status; // where it is, and the whole state machine

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::attempt::{self, Cause, Resume};
use crate::board::{Board, Draft};
use crate::budget::Spend;
use crate::claim::WorkClaims;
use crate::event::{Event, facts};
use crate::graph::Step;
use crate::ids::{
    AgentName, AttemptId, BranchName, ChannelName, CommitId, ConversationId, LandingId, MessageId, MissionId, Now,
    ProjectName, TaskId,
};
use crate::inbox::Snooze;
use crate::landing::guard::SpecialFile;
use crate::launch::Standing;
use crate::pattern::{PathPattern, Uri};
use crate::refusal::Refusal;
use crate::schedule::WaitKind;
use crate::scope::Escape;
use crate::{agent, claim, manifest};

pub use add::{Add, Edit, Pause, add, default_priority, edit};
pub(crate) use add::{forget_resume, keep_resume, one_line, set_duty, set_explorer, set_reviewer, set_standing};
pub(crate) use fixup::mend;
pub use fixup::{Conflict, ConflictKind, Fixup, MOST_FIXUPS, SettledPath};
pub use status::{Status, next_status};

/// What kind of work it is; decides which gates apply.
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
    /// Whether it must name its files and how it is checked before it is given to an agent.
    pub fn needs_contract(self) -> bool {
        matches!(self, IssueType::Feature | IssueType::Bug | IssueType::Task)
    }
}

/// What finishing it must leave behind.
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
    /// Whether it says what must be there, beside what must pass.
    pub fn has_structure(&self) -> bool {
        !self.files_exist.is_empty() || !self.content_check.is_empty()
    }

    /// Whether nothing is asked.
    pub fn is_empty(&self) -> bool {
        self.files_exist.is_empty() && self.content_check.is_empty() && self.lint.is_empty() && self.tests.is_empty()
    }
}

/// Finished work, kept in the vault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Submission {
    pub attempt: AttemptId,
    pub commit: CommitId,
    pub base: CommitId,
    pub changed: Vec<String>,
    /// It takes the commit back instead of bringing it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reverts: bool,
    /// The task whose landed work it takes back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<TaskId>,
    /// It is what this remote has, and the trunk is brought onto it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joins: Option<String>,
    /// Changed paths that are more than plain files: executables, links, submodules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub special: Vec<SpecialFile>,
}

/// Work that is not about a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Duty {
    /// The turns of its mission's lead.
    Lead,
    /// An answer in the thread that this message began.
    Answer { channel: ChannelName, root: MessageId },
    /// What is to become of this message.
    Triage { channel: ChannelName, message: MessageId },
    /// The turns of a conversation.
    Converse { conversation: ConversationId },
    /// A plan of this goal, in the words of who asked for it.
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
    /// The manifest: what the work may touch.
    pub files: Vec<PathPattern>,
    pub validation: Validation,
    pub blocked_by: Vec<TaskId>,
    /// Lower comes first.
    pub priority: u8,
    pub expects: Expects,
    /// How hard a model should think, in its provider's word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
    /// Which model is asked, in its provider's word; its agent's own when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Which provider's agents may take it, if only one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The scripted agent's steps, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// A command that has the last word: run when its work has passed and before it is submitted. Any exit but 0 fails
    /// the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratchet: Option<Vec<String>>,
    /// The task whose files it looks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explores: Option<TaskId>,
    /// The task whose finished work it looks at before that may land.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reviews: Option<TaskId>,
    /// The finished work that it looks at: its verdict counts for no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reviews_commit: Option<CommitId>,
    /// What it is for, when it is not about a change: what it changes does not land.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duty: Option<Duty>,
    /// It rests until something happens that it must know of.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asleep: bool,
    /// Whose standing session it is: nobody polls for it, and it ends with that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standing: Option<Standing>,
    /// What it is called elsewhere (a plan's or another tracker's id).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mission: Option<MissionId>,
    /// Its layer when the mission goes in waves.
    pub wave: u32,
    /// Which part of its wave it is in, where manifests overlap.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub sub_wave: u32,
    pub status: Status,
    /// Who must do it, if that is settled; while offered, to whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignee: Option<AgentName>,
    /// When an offer lapses, on the fleet clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offer_until: Option<u64>,
    /// Why it is kept from starting, if a person said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<String>,
    /// Who worked on it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// The live attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<AttemptId>,
    /// How its last attempt ended, or is being ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_cause: Option<Cause>,
    /// How many attempts failed by their own fault.
    pub failures: u32,
    /// How many attempts in a row were broken off, for how long the next is put off.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tries: u32,
    /// When it may start again, on the fleet clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<u64>,
    /// Unfinished work to go on with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<Resume>,
    /// What of its finished work must be mended before it can land.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixup: Option<Fixup>,
    /// How many times it was sent back to be mended.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub fixups: u32,
    /// The paths in which its work conflicted with what had landed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<String>,
    /// Those of them that were settled by the ownership of the files when it landed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settled_conflicts: Vec<String>,
    /// What people said to whoever works on it next.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    #[serde(default, skip_serializing_if = "Spend::is_nothing")]
    pub spent: Spend,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submission: Option<Submission>,
    /// The finished work that somebody looked at last and sent back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reviewed: Option<CommitId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub landing: Option<LandingId>,
    /// The trunk's commit that carries it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub landed: Option<CommitId>,
    /// That commit is its wave's, and carries others' work, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shares_commit: bool,
    /// What the agent last said it is doing.
    pub progress: String,
    /// Why it came back, failed or needs a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What kind of decision a person owes, while it needs one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs: Option<WaitKind>,
    /// Until when somebody put the decision off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snoozed: Option<Snooze>,
    /// It failed, and nobody has said yet what becomes of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unanswered: bool,
    /// What was found to do outside its manifest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub escapes: Vec<Escape>,
    /// What a person should know of its work.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// What it reported when it was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    pub created_wall: u64,
    pub updated_wall: u64,
}

impl Duty {
    /// Whether it takes none of the machine's room. A conversation and a planner work as any task does.
    pub fn is_light(&self) -> bool {
        !matches!(self, Duty::Converse { .. } | Duty::Plan { .. })
    }
}

impl Task {
    /// Whether it takes none of the machine's room.
    pub fn is_light(&self) -> bool {
        self.duty.as_ref().is_some_and(Duty::is_light)
    }

    /// Whether it can be done without a workspace: it only reports, what it says is its own, and nothing of it lies
    /// anywhere yet.
    pub fn needs_no_workspace(&self) -> bool {
        let special = self.duty.is_some() || self.explores.is_some() || self.reviews.is_some();
        self.expects == Expects::Report && !special && self.standing.is_none() && self.resume.is_none()
    }

    /// Whether its mission's agents take it in their turn: what leads, answers or converses is given out apart.
    pub fn is_work(&self) -> bool {
        matches!(self.duty, None | Some(Duty::Plan { .. }))
    }

    /// The goal that it makes a plan of, if that is what it is for.
    pub fn plans(&self) -> Option<&str> {
        match &self.duty {
            Some(Duty::Plan { goal }) => Some(goal),
            _ => None,
        }
    }

    /// Whether its turns are a conversation's.
    pub fn converses(&self) -> bool {
        matches!(self.duty, Some(Duty::Converse { .. }))
    }

    /// Gives back the room that reading it left unused.
    pub(crate) fn tighten(&mut self) {
        self.files.shrink_to_fit();
        self.blocked_by.shrink_to_fit();
        self.validation.files_exist.shrink_to_fit();
        self.validation.content_check.shrink_to_fit();
        self.validation.lint.shrink_to_fit();
        self.validation.tests.shrink_to_fit();
    }

    /// The branch its workspace is on.
    pub fn branch(&self) -> BranchName {
        let words: String = self
            .subject
            .to_ascii_lowercase()
            .chars()
            .map(|it| if it.is_ascii_alphanumeric() { it } else { '-' })
            .collect();
        let slug: Vec<&str> = words.split('-').filter(|it| !it.is_empty()).take(6).collect();
        let slug: String = slug.join("-").chars().take(40).collect();
        let name = if slug.is_empty() {
            format!("regatta/{}", self.id)
        } else {
            format!("regatta/{}-{}", self.id, slug.trim_end_matches('-'))
        };
        BranchName::new(&name).expect("letters, digits and dashes make a branch name")
    }

    /// When it has its turn, in a mission that goes in waves.
    pub fn step(&self) -> Step {
        Step { wave: self.wave, sub: self.sub_wave }
    }

    /// The claims on its manifest. What its attempt holds is that and more: [`crate::manifest::claims`].
    pub fn file_claims(&self) -> Vec<Uri> {
        self.files.iter().map(|it| Uri::of_file(&self.project, it)).collect()
    }
}

facts! {
    Added { task: Arc<Task> }
    /// Its words, files, checks, blockers or priority changed.
    Edited { task: Arc<Task> }
    Assigned { task: TaskId, to: Option<AgentName>, status: Status }
    Offered { task: TaskId, to: AgentName, until_at: u64 }
    Started { task: TaskId, attempt: AttemptId, agent: AgentName }
    Progressed { task: TaskId, attempt: AttemptId, text: String }
    Validating { task: TaskId, attempt: AttemptId, output: Option<String> }
    Submitted { task: TaskId, landing: LandingId, submission: Submission }
    /// It is waiting for an agent again.
    Returned { task: TaskId, status: Status, reason: String, counts: bool, again: Option<Again> }
    /// Its pause before another try is over.
    Due { task: TaskId }
    /// A person should know this of its work.
    Warned { task: TaskId, text: String }
    /// Its work is done and kept; somebody must look at it before it lands.
    InReview { task: TaskId, submission: Submission, reason: String }
    /// `fixup` says what is to be mended, where finished work could not land.
    NeedsHuman { task: TaskId, kind: WaitKind, reason: String, fixup: Option<Box<Fixup>> }
    Completed { task: TaskId, landed: Option<CommitId> }
    Failed { task: TaskId, reason: String }
    Cancelled { task: TaskId, reason: String }
}

/// How many attempts a task has that may fail by their own fault, unless its project says otherwise.
pub const MOST_FAILURES: u32 = 3;

pub(crate) fn most_failures(board: &Board, task: &Task) -> u32 {
    board.projects.get(&task.project).map_or(MOST_FAILURES, |it| it.settings.run.attempts.max(1))
}

fn is_zero(it: &u32) -> bool {
    *it == 0
}

/// How a task is given to an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// Now, or not at all.
    #[default]
    Direct,
    /// In its line, however full it is.
    Queue,
    /// If it wants it.
    Offer,
}

/// How long an offer stands: ten minutes.
pub const OFFER_MS: u64 = 600_000;

/// Gives a task to an agent; to nobody with `None`.
pub fn assign(draft: &mut Draft, id: TaskId, to: Option<AgentName>, how: How, now: Now) -> Result<(), Refusal> {
    let task = find(draft.board(), id)?;
    if task.status.is_running() || task.status == Status::Landing {
        return Err(Refusal::InUse {
            what: id.to_string(),
            by: task.attempt.map_or(task.status.to_string(), |it| it.to_string()),
        });
    }
    crate::landing::join::refuse_work(draft.board(), &task)?;
    let Some(to) = to else {
        next_status(id, task.status, Status::Unassigned)?;
        draft.record(Event::TaskAssigned(Assigned { task: id, to: None, status: Status::Unassigned }));
        return Ok(());
    };
    let agent = agent::find(draft.board(), &to)?;
    let room = agent::capacity(draft.board(), agent);
    match how {
        How::Direct if room.available == 0 => {
            Err(Refusal::AtCapacity { agent: to, running: room.current, max: room.max })
        }
        How::Direct | How::Queue => {
            next_status(id, task.status, Status::Pending)?;
            draft.record(Event::TaskAssigned(Assigned { task: id, to: Some(to), status: Status::Pending }));
            Ok(())
        }
        How::Offer => {
            next_status(id, task.status, Status::Offered)?;
            draft.record(Event::TaskOffered(Offered { task: id, to, until_at: now.at + OFFER_MS }));
            Ok(())
        }
    }
}

/// Takes or declines an offer.
pub fn answer_offer(draft: &mut Draft, id: TaskId, agent: &AgentName, accept: bool) -> Result<(), Refusal> {
    let task = find(draft.board(), id)?;
    if task.status != Status::Offered || task.assignee.as_ref() != Some(agent) {
        return Err(Refusal::NotOffered { task: id, agent: agent.clone() });
    }
    let (to, status) = if accept { (Some(agent.clone()), Status::Pending) } else { (None, Status::Unassigned) };
    draft.record(Event::TaskAssigned(Assigned { task: id, to, status }));
    Ok(())
}

/// Takes an offer back that nobody answered: it is never stranded.
pub fn expire_offer(draft: &mut Draft, id: TaskId, now: Now) {
    let due = draft.board().tasks.get(&id).is_some_and(|it| it.offer_until.is_some_and(|at| at <= now.at));
    if due {
        draft.record(Event::TaskAssigned(Assigned { task: id, to: None, status: Status::Unassigned }));
    }
}

/// Makes a task in_progress with an attempt, its token and its files, in one commit. The only place that can.
///
/// Whether it is ready is the scheduler's question and was answered just before, on the same draft.
pub(crate) fn start(draft: &mut Draft, id: TaskId, by: &attempt::Begin, now: Now) -> Result<AttemptId, Refusal> {
    let task = find(draft.board(), id)?;
    next_status(id, task.status, Status::InProgress)?;
    let attempt = AttemptId(draft.board().counters.attempt + 1);
    let claims = WorkClaims {
        files: manifest::claims(draft.board(), &task),
        mode: manifest::mode(draft.board(), &task),
        identity: claim::of_start(&task, &by.agent),
    };
    claim::acquire_for_attempt(draft, attempt, &by.agent, claims, now)?;
    let ports = attempt::lease_ports(draft, attempt, &task.project, None, now)?;
    attempt::begin(draft, attempt, &task, by, now);
    attempt::give_ports(draft, attempt, ports);
    draft.record(Event::TaskStarted(Started { task: id, attempt, agent: by.agent.clone() }));
    Ok(attempt)
}

/// Notes what the attempt is doing, and that it lives.
pub fn progress(
    draft: &mut Draft,
    id: TaskId,
    attempt: AttemptId,
    token: u64,
    text: String,
    now: Now,
) -> Result<(), Refusal> {
    attempt::speaks_for(draft.board(), id, attempt, token)?;
    if text.len() > 4_000 {
        return Err(Refusal::invalid("progress is at most 4000 bytes", "say it shorter; the log keeps the rest"));
    }
    attempt::renew(draft, attempt, now);
    draft.record(Event::TaskProgressed(Progressed { task: id, attempt, text }));
    Ok(())
}

/// Says that the attempt is done; what it left is captured and judged next.
pub fn finish(
    draft: &mut Draft,
    id: TaskId,
    attempt: AttemptId,
    token: u64,
    output: Option<String>,
) -> Result<(), Refusal> {
    let live = attempt::speaks_for(draft.board(), id, attempt, token)?;
    if live.stopping.is_some() {
        return Err(Refusal::StaleAttempt { task: id, attempt, live: None });
    }
    let task = find(draft.board(), id)?;
    next_status(id, task.status, Status::Validating)?;
    check_output(output.as_deref())?;
    draft.record(Event::TaskValidating(Validating { task: id, attempt, output }));
    Ok(())
}

pub(crate) fn check_output(output: Option<&str>) -> Result<(), Refusal> {
    match output.is_some_and(|it| it.len() > 64 * 1024) {
        true => Err(Refusal::invalid("a task's output is at most 64 KiB", "write it to a file and say where it is")),
        false => Ok(()),
    }
}

/// Says that the attempt gave up; that is the agent's verdict and final.
pub fn give_up(
    draft: &mut Draft,
    id: TaskId,
    attempt: AttemptId,
    token: u64,
    reason: Option<String>,
) -> Result<(), Refusal> {
    let live = attempt::speaks_for(draft.board(), id, attempt, token)?;
    if live.stopping.is_some() {
        return Err(Refusal::StaleAttempt { task: id, attempt, live: None });
    }
    if live.supervised {
        // Its process is still there; its claims pass on only when that has ended.
        let reason = reason.unwrap_or_else(|| "Unknown failure".into());
        attempt::stop(draft, attempt, Cause::GaveUp, reason.clone());
        fail(draft, id, &reason)?;
        return Ok(());
    }
    let reason = reason.unwrap_or_else(|| "Unknown failure".into());
    attempt::end(draft, attempt, Cause::GaveUp, &reason);
    fail(draft, id, &reason)
}

/// Hands finished work to the landing queue.
pub(crate) fn submit(draft: &mut Draft, id: TaskId, landing: LandingId, submission: Submission) -> Result<(), Refusal> {
    let task = find(draft.board(), id)?;
    next_status(id, task.status, Status::Landing)?;
    draft.record(Event::TaskSubmitted(Submitted { task: id, landing, submission }));
    Ok(())
}

/// Keeps finished work until somebody has looked at it.
pub(crate) fn review(draft: &mut Draft, id: TaskId, submission: Submission, reason: String) -> Result<(), Refusal> {
    let task = find(draft.board(), id)?;
    next_status(id, task.status, Status::InReview)?;
    draft.record(Event::TaskInReview(InReview { task: id, submission, reason }));
    Ok(())
}

/// Keeps work in review, for another reason than before.
pub(crate) fn review_for(draft: &mut Draft, task: &Task, submission: Submission, reason: String) {
    if task.status == Status::InReview {
        draft.record(Event::TaskInReview(InReview { task: task.id, submission, reason }));
    }
}

/// Brings a task back for another attempt that costs it none of those it has.
pub(crate) fn try_again(draft: &mut Draft, id: TaskId, reason: &str) -> Result<(), Refusal> {
    bring_back(draft, id, reason, Again::default())
}

/// Brings a task back whose finished work somebody looked at.
pub(crate) fn send_back(draft: &mut Draft, id: TaskId, reviewed: CommitId, reason: &str) -> Result<(), Refusal> {
    bring_back(draft, id, reason, Again { reviewed: Some(reviewed), ..Again::default() })
}

/// How a task comes back for another attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Again {
    /// It used up one of its attempts.
    pub counts: bool,
    /// It was broken off: the next pause is longer.
    pub tried: bool,
    pub not_before: Option<u64>,
    pub resume: Option<Resume>,
    /// It waits until it is woken.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub asleep: bool,
    /// What people said to its next attempt no longer holds.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub forget_notes: bool,
    /// Its finished work is to be mended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fixup: Option<Box<Fixup>>,
    /// This finished work was looked at and sent back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reviewed: Option<CommitId>,
}

/// Lets a task start at once that was put off, or rests.
pub(crate) fn due(draft: &mut Draft, id: TaskId) {
    if draft.board().tasks.get(&id).is_some_and(|it| it.not_before.is_some() || it.asleep) {
        draft.record(Event::TaskDue(Due { task: id }));
    }
}

/// Brings a task back for another attempt after one that ended so; when there were enough of those that count, it fails
/// if its work was found wanting each time, and goes to a person otherwise.
pub(crate) fn try_again_after(
    draft: &mut Draft,
    id: TaskId,
    cause: Cause,
    reason: &str,
    again: Again,
) -> Result<(), Refusal> {
    let task = find(draft.board(), id)?;
    if task.standing.is_some() {
        return Ok(()); // it ends with its session, and its team says what follows
    }
    // A fix-up that failed is one of its fix-ups; the work it was to mend is as good as before.
    if again.counts && task.fixup.is_some() {
        return mend(draft, id, reason, Again { fixup: task.fixup.clone().map(Box::new), ..again });
    }
    if again.counts && task.failures + 1 >= most_failures(draft.board(), &task) {
        let reason = format!("{} attempts failed; the last one: {reason}", task.failures + 1);
        return match exhausted(cause) {
            Some(kind) => needs_human(draft, id, kind, &reason),
            None => fail(draft, id, &reason),
        };
    }
    bring_back(draft, id, reason, again)
}

/// What a task waits for that has no attempt left, by how the last one ended; nothing when that is the end of it: its
/// checks said so, again and again, and it is known why.
fn exhausted(cause: Cause) -> Option<WaitKind> {
    match cause {
        Cause::Invalid | Cause::Rejected => None,
        Cause::ScopeEscape => Some(WaitKind::Policy),
        Cause::Environment | Cause::Crashed | Cause::TimedOut | Cause::Hung | Cause::Lost => Some(WaitKind::Runner),
        Cause::Overloaded | Cause::ContextFull | Cause::Refused | Cause::Auth | Cause::BadConfig | Cause::Parked => {
            Some(WaitKind::Provider)
        }
        Cause::OverBudget => Some(WaitKind::Budget),
        Cause::Submitted
        | Cause::Reported
        | Cause::Rested
        | Cause::GaveUp
        | Cause::Blocked
        | Cause::NothingChanged
        | Cause::Stopped
        | Cause::Cancelled => Some(WaitKind::Review),
    }
}

/// Brings a task back for another attempt, as somebody asked.
pub(crate) fn come_back(draft: &mut Draft, id: TaskId, reason: &str, again: Again) -> Result<(), Refusal> {
    bring_back(draft, id, reason, again)
}

fn bring_back(draft: &mut Draft, id: TaskId, reason: &str, again: Again) -> Result<(), Refusal> {
    let task = find(draft.board(), id)?;
    if task.standing.is_some() {
        return Ok(());
    }
    let counts = again.counts;
    let status = if task.assignee.is_some() { Status::Pending } else { Status::Unassigned };
    next_status(id, task.status, status)?;
    let plain = Again { counts, ..Again::default() } == again;
    let again = (!plain).then_some(again);
    draft.record(Event::TaskReturned(Returned { task: id, status, reason: reason.to_owned(), counts, again }));
    Ok(())
}

/// Notes what a person should know of a task's work; the same again changes nothing.
pub(crate) fn warn(draft: &mut Draft, id: TaskId, text: String) {
    if draft.board().tasks.get(&id).is_some_and(|it| !it.warnings.contains(&text) && it.warnings.len() < 50) {
        draft.record(Event::TaskWarned(Warned { task: id, text }));
    }
}

/// Hands a task to a person.
pub(crate) fn needs_human(draft: &mut Draft, id: TaskId, kind: WaitKind, reason: &str) -> Result<(), Refusal> {
    needs_human_to_mend(draft, id, kind, None, reason)
}

/// Like [`needs_human`], for finished work that cannot land; `fixup` says what is to be mended.
pub(crate) fn needs_human_to_mend(
    draft: &mut Draft,
    id: TaskId,
    kind: WaitKind,
    fixup: Option<Box<Fixup>>,
    reason: &str,
) -> Result<(), Refusal> {
    let task = find(draft.board(), id)?;
    if task.standing.is_some() {
        return Ok(());
    }
    next_status(id, task.status, Status::NeedsHuman)?;
    draft.record(Event::TaskNeedsHuman(NeedsHuman { task: id, kind, reason: reason.to_owned(), fixup }));
    Ok(())
}

/// Completes a task, because its work landed or because its report is in.
pub(crate) fn complete(draft: &mut Draft, id: TaskId, landed: Option<CommitId>) -> Result<(), Refusal> {
    let task = find(draft.board(), id)?;
    next_status(id, task.status, Status::Completed)?;
    draft.record(Event::TaskCompleted(Completed { task: id, landed }));
    Ok(())
}

/// Fails a task for good.
pub(crate) fn fail(draft: &mut Draft, id: TaskId, reason: &str) -> Result<(), Refusal> {
    let task = find(draft.board(), id)?;
    next_status(id, task.status, Status::Failed)?;
    draft.record(Event::TaskFailed(Failed { task: id, reason: reason.to_owned() }));
    Ok(())
}

/// Cancels a task; what its attempt or its landing holds goes with it.
pub fn cancel(draft: &mut Draft, id: TaskId, reason: &str) -> Result<(), Refusal> {
    let task = find(draft.board(), id)?;
    next_status(id, task.status, Status::Cancelled)?;
    if let Some(landing) = task.landing {
        crate::landing::withdraw(draft, landing, reason)?;
    }
    if let Some(attempt) = task.attempt {
        attempt::stop(draft, attempt, Cause::Cancelled, reason.to_owned());
    }
    draft.record(Event::TaskCancelled(Cancelled { task: id, reason: reason.to_owned() }));
    Ok(())
}

/// Takes a task that is already on the board into a mission.
pub(crate) fn adopt(
    draft: &mut Draft,
    id: TaskId,
    (mission, step): (MissionId, Step),
    project: &ProjectName,
) -> Result<(), Refusal> {
    let task = find(draft.board(), id)?;
    if task.project != *project {
        return Err(Refusal::invalid(
            format!("{id} belongs to project {}", task.project),
            "run each project's tasks by themselves",
        ));
    }
    if let Some(other) = task.mission {
        return Err(Refusal::InUse { what: id.to_string(), by: other.to_string() });
    }
    if !task.status.is_waiting() {
        return Err(Refusal::InUse { what: id.to_string(), by: task.status.to_string() });
    }
    let task = Task { mission: Some(mission), wave: step.wave, sub_wave: step.sub, ..Task::clone(&task) };
    draft.record(Event::TaskEdited(Edited { task: task.into() }));
    Ok(())
}

/// The open task of that number, or why there is none.
pub fn find(board: &Board, id: TaskId) -> Result<Arc<Task>, Refusal> {
    match board.tasks.get(&id) {
        Some(task) => Ok(task.clone()),
        None => match board.settled(id) {
            Some(status) => Err(Refusal::Finished { task: id, status }),
            None => Err(Refusal::NoSuchTask { task: id }),
        },
    }
}
