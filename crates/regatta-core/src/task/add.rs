//! Adds tasks and changes their settings.
//!
//! Not here: changes of a task's status, except into and out of the backlog. Other changes of the
//! status are in [`crate::task`].

use serde::{Deserialize, Serialize};

use crate::agent_texts::TaskText;
use crate::attempt::ResumePoint;
use crate::board::Draft;
use crate::budget::Spend;
use crate::event::Event;
use crate::graph::{self, PlanStep};
use crate::ids::{MissionId, Now, ProjectName, TaskId};
use crate::landing;
use crate::pattern::PathPattern;
use crate::provider_name;
use crate::refusal::Refusal;

use super::{
    Expects, IssueType, Purpose, Task, TaskAdded, TaskEdited, TaskStatus, Validation, find,
    next_status,
};

/// A request to add a task; see [`add`]. `blocked_by` can contain existing tasks and tasks that the
/// same command added before.
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
    /// Returns a request for a task that expects a report and no changed files. Other settings have
    /// their defaults.
    pub(crate) fn new_report(project: ProjectName, text: TaskText) -> AddTask {
        AddTask {
            project,
            subject: one_line(&text.subject, 300),
            description: text.description,
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

/// Returns the first line of a text, shortened to `max_chars` characters, with blanks for control
/// characters.
pub(crate) fn one_line(text: &str, max_chars: usize) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    line.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(max_chars)
        .collect::<String>()
        .trim()
        .to_owned()
}

/// Returns the priority of a task that was added without one.
pub fn default_priority() -> u8 {
    2
}

/// Adds a task that is not assigned to an agent, and returns its id.
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
            format!(
                "the priority must be 0 (first) to 9, not {}",
                request.priority
            ),
            "set a number in that range; 2 is usual",
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
        purpose: Purpose::Work {
            expects: request.expects,
        },
        effort: request.effort,
        model: request.model,
        provider: request
            .provider
            .as_deref()
            .map(provider_name::canonical)
            .map(str::to_owned),
        script: request.script,
        ratchet: request.ratchet,
        resting: false,
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

/// Checks that a task's subject is one line and neither the subject nor the description is too
/// long.
fn check_text(subject: &str, description: &str) -> Result<(), Refusal> {
    if subject.trim().is_empty()
        || subject.chars().count() > 300
        || subject.contains(['\n', '\r', '\0'])
    {
        return Err(Refusal::invalid(
            "the task's subject must be one line of 1 to 300 characters",
            "shorten the subject and put the rest into the description",
        ));
    }
    if description.len() > 256 * 1024 {
        return Err(Refusal::invalid(
            "the task's description is longer than 256 KiB",
            "put the text into a file of the repository and name the file in the description",
        ));
    }
    Ok(())
}

/// Checks that a task's ratchet (a command that must accept passed work) has a program and valid
/// arguments.
fn check_ratchet(argv: Option<&[String]>) -> Result<(), Refusal> {
    match argv {
        Some([]) => Err(Refusal::invalid(
            "the ratchet (the command that must accept the task's work) is empty",
            "set a program with its arguments, or leave the ratchet out",
        )),
        Some(argv) if argv[0].trim().is_empty() || argv.iter().any(|arg| arg.contains('\0')) => {
            Err(Refusal::invalid(
                "the program of the ratchet is blank, or one of its arguments has a NUL byte",
                "set the program and the arguments as plain text",
            ))
        }
        _ => Ok(()),
    }
}

/// A request to pause a task or to end its pause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SetPause {
    /// Pauses the task for this reason.
    #[serde(rename = "because")]
    Pause(String),
    /// Ends the task's pause.
    #[serde(rename = "no")]
    Resume,
}

/// A request to change a task; see [`edit`]. A field that is `None` is not changed.
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

/// Changes a task. While it is being worked on or landing, only its priority and its pause can be
/// changed.
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
                // The offer was not accepted, so it ends when the task goes to the backlog.
                (task.assignee, task.offer_until_fleet_ms) = (None, None);
            }
            task.change_status(next_status(id, task.status, status)?);
        }
    }
    check_text(
        request.subject.as_deref().unwrap_or(&task.subject),
        request.description.as_deref().unwrap_or(&task.description),
    )?;
    if request.priority.is_some_and(|priority| priority > 9) {
        return Err(Refusal::invalid(
            "the priority must be 0 (first) to 9",
            "set a number in that range; 2 is usual",
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

/// Sets a new task's purpose, and the earlier session with which its attempt continues, if any.
pub(crate) fn set_purpose(
    draft: &mut Draft,
    id: TaskId,
    purpose: Purpose,
    resume: Option<ResumePoint>,
) -> Result<(), Refusal> {
    let task = Task {
        purpose,
        resume,
        ..Task::clone(&*find(draft.board(), id)?)
    };
    draft.record(Event::TaskEdited(TaskEdited { task: task.into() }));
    Ok(())
}

/// Records the workspace and session with which a task will continue after a person has decided.
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

/// Forgets the kept workspace and session of a task, so that its next attempt starts afresh.
pub(crate) fn forget_resume(draft: &mut Draft, id: TaskId) -> Result<(), Refusal> {
    let task = Task {
        resume: None,
        ..Task::clone(&*find(draft.board(), id)?)
    };
    draft.record(Event::TaskEdited(TaskEdited { task: task.into() }));
    Ok(())
}
