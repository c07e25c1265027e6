//! Adding tasks to the board, and editing them.
//!
//! Status changes other than to and from the backlog are left to the verbs in [`crate::task`].

use serde::{Deserialize, Serialize};

use crate::attempt::ResumePoint;
use crate::board::Draft;
use crate::budget::Spend;
use crate::event::Event;
use crate::graph::{self, PlanStep};
use crate::ids::{CommitId, MissionId, Now, ProjectName, TaskId};
use crate::landing;
use crate::launch::SessionOf;
use crate::pattern::PathPattern;
use crate::provider_name;
use crate::refusal::Refusal;

use super::{
    Expects, IssueType, Task, TaskAdded, TaskDuty, TaskEdited, TaskStatus, Validation, find,
    next_status,
};

/// A task to add with [`add`]. Blockers may be tasks on the board, or tasks added before it by the
/// same command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AddTask {
    pub project: ProjectName,
    pub subject: String,
    #[serde(default)]
    pub description: String,
    #[serde(default)]
    pub issue_type: IssueType,
    #[serde(default)]
    pub files: Vec<PathPattern>,
    #[serde(default)]
    pub validation: Validation,
    #[serde(default)]
    pub blocked_by: Vec<TaskId>,
    #[serde(default = "default_priority")]
    pub priority: u8,
    #[serde(default)]
    pub expects: Expects,
    #[serde(default)]
    pub effort: Option<String>,
    #[serde(default)]
    pub model: Option<String>,
    #[serde(default)]
    pub provider: Option<String>,
    #[serde(default)]
    pub script: Option<String>,
    #[serde(default)]
    pub ratchet: Option<Vec<String>>,
    #[serde(default)]
    pub alias: Option<String>,
    #[serde(default)]
    pub backlog: bool,
}

impl AddTask {
    /// Returns a task that expects a report and changes nothing.
    pub(crate) fn new_report(project: ProjectName, subject: &str, description: String) -> AddTask {
        AddTask {
            project,
            subject: one_line(subject, 300),
            description,
            issue_type: IssueType::Chore,
            files: vec![],
            validation: Validation::default(),
            blocked_by: vec![],
            priority: default_priority(),
            expects: Expects::Report,
            effort: None,
            model: None,
            provider: None,
            script: None,
            ratchet: None,
            alias: None,
            backlog: false,
        }
    }
}

/// Returns the first line of a text, cut to at most `most` characters.
pub(crate) fn one_line(text: &str, max_chars: usize) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    line.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(max_chars)
        .collect::<String>()
        .trim()
        .to_owned()
}

/// Returns the priority of a task that does not set one.
pub fn default_priority() -> u8 {
    2
}

/// Adds a task to the board, without an agent.
pub fn add(
    draft: &mut Draft,
    request: AddTask,
    mission: Option<(MissionId, PlanStep)>,
    now: Now,
) -> Result<TaskId, Refusal> {
    if !draft.board().projects.contains_key(&request.project) {
        return Err(Refusal::NoSuchProject {
            project: request.project,
        });
    }
    check_text(&request.subject, &request.description)?;
    if request.priority > 9 {
        return Err(Refusal::invalid(
            format!("a priority is 0 (first) to 9, not {}", request.priority),
            "give a number in that range; 2 is usual",
        ));
    }
    check_ratchet(request.ratchet.as_deref())?;
    let id = TaskId(draft.board().counters.task + 1);
    for blocker in &request.blocked_by {
        if blocker.0 == 0 || *blocker >= id {
            return Err(Refusal::NoSuchTask { task: *blocker });
        }
    }
    let mut blocked_by = request.blocked_by;
    blocked_by.sort();
    blocked_by.dedup();
    let task = Task {
        id,
        project: request.project,
        subject: request.subject.trim().to_owned(),
        description: request.description,
        issue_type: request.issue_type,
        files: request.files,
        validation: request.validation,
        blocked_by,
        priority: request.priority,
        expects: request.expects,
        effort: request.effort,
        model: request.model,
        provider: request
            .provider
            .as_deref()
            .map(provider_name::canonical)
            .map(str::to_owned),
        script: request.script,
        ratchet: request.ratchet,
        explores: None,
        reviews: None,
        reviews_commit: None,
        duty: None,
        resting: false,
        session_of: None,
        alias: request.alias,
        mission: mission.map(|(mission, _)| mission),
        wave: mission.map_or(0, |(_, step)| step.wave),
        sub_wave: mission.map_or(0, |(_, step)| step.sub),
        status: if request.backlog {
            TaskStatus::Backlog
        } else {
            TaskStatus::Unassigned
        },
        assignee: None,
        offer_until_fleet_ms: None,
        paused: None,
        agent: None,
        attempt: None,
        last_cause: None,
        failures: 0,
        tries: 0,
        not_before_fleet_ms: None,
        resume: None,
        fixup: None,
        fixups: 0,
        conflicts: vec![],
        settled_conflicts: vec![],
        notes: vec![],
        spent: Spend::default(),
        submission: None,
        reviewed: None,
        landing: None,
        landed: None,
        progress: String::new(),
        reason: None,
        needed_decision: None,
        shares_commit: false,
        snoozed: None,
        awaits_decision: false,
        escapes: vec![],
        warnings: vec![],
        output: None,
        created_unix_ms: now.unix_ms,
        updated_unix_ms: now.unix_ms,
    };
    draft.record(Event::TaskAdded(TaskAdded { task: task.into() }));
    Ok(id)
}

/// Checks the length and form of a task's subject and description.
fn check_text(subject: &str, description: &str) -> Result<(), Refusal> {
    if subject.trim().is_empty()
        || subject.chars().count() > 300
        || subject.contains(['\n', '\r', '\0'])
    {
        return Err(Refusal::invalid(
            "a task's subject is one line of 1 to 300 characters",
            "put the rest into the description",
        ));
    }
    if description.len() > 256 * 1024 {
        return Err(Refusal::invalid(
            "a task's description has at most 256 KiB",
            "put it into a file of the repository and name it",
        ));
    }
    Ok(())
}

/// Checks that a ratchet is a command that can run.
fn check_ratchet(argv: Option<&[String]>) -> Result<(), Refusal> {
    match argv {
        Some([]) => Err(Refusal::invalid(
            "a ratchet needs a program",
            "give its program and arguments, or leave it out",
        )),
        Some(argv) if argv[0].trim().is_empty() || argv.iter().any(|arg| arg.contains('\0')) => {
            Err(Refusal::invalid(
                "a ratchet's program is blank or an argument has a NUL byte",
                "give its program and arguments as plain text",
            ))
        }
        _ => Ok(()),
    }
}

/// A change of a task's pause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SetPause {
    /// Pauses the task for this reason.
    #[serde(rename = "because")]
    Pause(String),
    /// Resumes the task.
    #[serde(rename = "no")]
    Resume,
}

/// Changes to a task; see [`edit`]. `None` leaves a value as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct EditTask {
    pub subject: Option<String>,
    pub description: Option<String>,
    pub issue_type: Option<IssueType>,
    pub files: Option<Vec<PathPattern>>,
    pub validation: Option<Validation>,
    pub blocked_by: Option<Vec<TaskId>>,
    pub priority: Option<u8>,
    pub script: Option<String>,
    pub paused: Option<SetPause>,
    pub backlog: Option<bool>,
}

/// Changes a task. While an attempt or a landing is under way, only the priority and the pause can
/// change.
pub fn edit(draft: &mut Draft, id: TaskId, request: EditTask) -> Result<(), Refusal> {
    let mut task = Task::clone(&*find(draft.board(), id)?);
    let is_harmless = EditTask {
        priority: request.priority,
        paused: request.paused.clone(),
        ..EditTask::default()
    } == request;
    let is_idle = task.status.is_waiting()
        || matches!(task.status, TaskStatus::Backlog | TaskStatus::NeedsHuman);
    if !is_harmless && !is_idle {
        return Err(Refusal::InUse {
            what: id.to_string(),
            by: task
                .attempt
                .map_or(task.status.to_string(), |id| id.to_string()),
        });
    }
    if let Some(backlog) = request.backlog {
        let status = match (backlog, &task.assignee) {
            (true, _) => TaskStatus::Backlog,
            (false, _) if task.status.is_waiting() => task.status,
            (false, Some(_)) => TaskStatus::Pending,
            (false, None) => TaskStatus::Unassigned,
        };
        if task.status != status {
            if task.status == TaskStatus::Offered {
                // Nobody has accepted the offer.
                (task.assignee, task.offer_until_fleet_ms) = (None, None);
            }
            task.status = next_status(id, task.status, status)?;
        }
    }
    check_text(
        request.subject.as_deref().unwrap_or(&task.subject),
        request.description.as_deref().unwrap_or(&task.description),
    )?;
    if request.priority.is_some_and(|priority| priority > 9) {
        return Err(Refusal::invalid(
            "a priority is 0 (first) to 9",
            "give a number in that range",
        ));
    }
    if let Some(mut blocked_by) = request.blocked_by {
        blocked_by.sort();
        blocked_by.dedup();
        if let Some(missing) = blocked_by
            .iter()
            .find(|id| id.0 == 0 || id.0 > draft.board().counters.task)
        {
            return Err(Refusal::NoSuchTask { task: *missing });
        }
        if let Some(tasks) = graph::cycle_with(draft.board(), id, &blocked_by) {
            return Err(Refusal::Cycle { tasks });
        }
        task.blocked_by = blocked_by;
    }
    task.subject = request.subject.unwrap_or(task.subject);
    task.description = request.description.unwrap_or(task.description);
    task.issue_type = request.issue_type.unwrap_or(task.issue_type);
    task.files = request.files.unwrap_or(task.files);
    task.validation = request.validation.unwrap_or(task.validation);
    task.priority = request.priority.unwrap_or(task.priority);
    task.script = request.script.or(task.script);
    let is_resumed = request.paused == Some(SetPause::Resume);
    task.paused = match request.paused {
        Some(SetPause::Pause(reason)) => Some(reason),
        Some(SetPause::Resume) => None,
        None => task.paused,
    };
    draft.record(Event::TaskEdited(TaskEdited { task: task.into() }));
    if is_resumed {
        landing::resume_landing(draft, id)
    } else {
        Ok(())
    }
}

/// Records the task and the commit that a task reviews.
pub(crate) fn set_reviewed_task(
    draft: &mut Draft,
    id: TaskId,
    reviewed_task: TaskId,
    commit: CommitId,
) -> Result<(), Refusal> {
    let task = Task {
        reviews: Some(reviewed_task),
        reviews_commit: Some(commit),
        ..Task::clone(&*find(draft.board(), id)?)
    };
    draft.record(Event::TaskEdited(TaskEdited { task: task.into() }));
    Ok(())
}

/// Sets a task's duty, and the session with which it continues.
pub(crate) fn set_duty(
    draft: &mut Draft,
    id: TaskId,
    duty: TaskDuty,
    resume: Option<ResumePoint>,
) -> Result<(), Refusal> {
    let task = Task {
        duty: Some(duty),
        resume,
        ..Task::clone(&*find(draft.board(), id)?)
    };
    draft.record(Event::TaskEdited(TaskEdited { task: task.into() }));
    Ok(())
}

/// Records the unfinished work with which a task that waits for a person will continue.
pub(crate) fn keep_resume(
    draft: &mut Draft,
    id: TaskId,
    resume: ResumePoint,
) -> Result<(), Refusal> {
    let task = Task {
        resume: Some(resume),
        ..Task::clone(&*find(draft.board(), id)?)
    };
    draft.record(Event::TaskEdited(TaskEdited { task: task.into() }));
    Ok(())
}

/// Forgets a task's unfinished work, so that it starts afresh.
pub(crate) fn forget_resume(draft: &mut Draft, id: TaskId) -> Result<(), Refusal> {
    let task = Task {
        resume: None,
        ..Task::clone(&*find(draft.board(), id)?)
    };
    draft.record(Event::TaskEdited(TaskEdited { task: task.into() }));
    Ok(())
}

/// Records the team member whose standing session a task is.
pub(crate) fn set_session_of(
    draft: &mut Draft,
    id: TaskId,
    session: SessionOf,
) -> Result<(), Refusal> {
    let task = Task {
        session_of: Some(session),
        ..Task::clone(&*find(draft.board(), id)?)
    };
    draft.record(Event::TaskEdited(TaskEdited { task: task.into() }));
    Ok(())
}

/// Records the task for which a task explores the repository.
pub(crate) fn set_explored_task(
    draft: &mut Draft,
    id: TaskId,
    explored_task: TaskId,
) -> Result<(), Refusal> {
    let task = Task {
        explores: Some(explored_task),
        ..Task::clone(&*find(draft.board(), id)?)
    };
    draft.record(Event::TaskEdited(TaskEdited { task: task.into() }));
    Ok(())
}
