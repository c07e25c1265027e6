//! The commands `task import --beads` and `task export --beads`, which exchange tasks with the
//! issue tracker beads.
//!
//! A task keeps the id of its issue as its alias (second name), so a repeated import finds the
//! task: it updates tasks whose issue has changed and adds tasks for new issues. An export into an
//! existing file updates the fields that Regatta knows and keeps all other fields.

use std::collections::BTreeMap;
use std::path::Path;

use regatta_api::view::TaskView;
use regatta_api::{call, input};
use regatta_core::display::{self, DisplayState};
use regatta_core::ids::{ProjectName, TaskId};
use regatta_core::plural;
use regatta_core::task::{AssignMode, EditTask, SetPause, Validation};
use serde::Serialize;

use crate::client::{CallReply, Client};
use crate::commands::CommandContext;
use crate::output::{CommandError, CommandResult, command_error};
use crate::plan::beads::{self, Bead, BeadState, Beads, ExportedBead, HELD_REASON_PREFIX};
use crate::plan::diagnostic::SourceText;

/// The result of `task import --beads`, for `--json`.
#[derive(Default, Serialize)]
struct ImportResult {
    added: Vec<TaskId>,
    changed: Vec<TaskId>,
    cancelled: Vec<TaskId>,
    /// The tasks that were not changed, because they already agree with the file or have ended.
    there: Vec<TaskId>,
    /// The changes in the file that could not be applied to their tasks, each with the reason.
    left: Vec<String>,
    /// The number of issues for which no task was added, because they are closed or deleted in the
    /// file and had no task yet.
    closed: usize,
    /// The number of lines that are not work, such as messages and templates.
    others: usize,
}

/// All tasks of the project, by the id of their issue.
struct BeadBoard {
    tasks_by_issue: BTreeMap<String, TaskView>,
}

impl BeadBoard {
    /// Reads all tasks of a project from the daemon.
    fn read(client: &Client, project: Option<ProjectName>) -> Result<BeadBoard, CommandError> {
        let call = call::TaskList(input::TaskList {
            project,
            mission: None,
            status: vec![],
            all: true,
            limit: 0,
        });
        let reply: CallReply<Vec<TaskView>> = client.call(call)?;
        let mut tasks: BTreeMap<String, TaskView> = BTreeMap::new();
        for task in reply.data {
            // If two tasks belong to the same issue, keep an open task, or else the newer task.
            let name = issue_id(&task);
            if tasks
                .get(&name)
                .is_none_or(|old| old.task.status.is_terminal() || !task.task.status.is_terminal())
            {
                tasks.insert(name, task);
            }
        }
        Ok(BeadBoard {
            tasks_by_issue: tasks,
        })
    }

    fn task_id(&self, name: &str) -> Option<TaskId> {
        self.tasks_by_issue.get(name).map(|task| task.task.id)
    }
}

/// Returns the id of a task's issue: the alias (second name) of the task, or the task's own id if
/// it has no alias.
fn issue_id(task: &TaskView) -> String {
    task.task
        .alias
        .clone()
        .unwrap_or_else(|| task.task.id.to_string())
}

/// Runs `regatta task import --beads`.
pub(crate) fn import(app: &CommandContext, file: &Path) -> CommandResult {
    let source = load_source(file)?;
    let issues =
        beads::read_issues(&source).map_err(|diagnostics| source.error_for(&diagnostics))?;
    let client = app.client()?;
    let project = app.project(&client)?;
    let board = BeadBoard::read(&client, project.clone())?;
    check_dependencies(&source, &issues, &board)?;
    let mut result = ImportResult {
        others: issues.skipped_lines,
        ..ImportResult::default()
    };
    let mut ids: BTreeMap<&str, TaskId> = BTreeMap::new();
    let closed: Vec<&str> = issues
        .beads
        .iter()
        .filter(|bead| bead.state == BeadState::Closed)
        .map(|bead| bead.id.as_str())
        .collect();
    // Handle blockers first, because a task names its blockers by the ids of their tasks.
    for bead in in_dependency_order(&issues.beads) {
        let open_blockers = bead.blocked_by.iter().filter(|blocker| {
            !closed.contains(&blocker.0.as_str()) || board.task_id(&blocker.0).is_some()
        });
        let blockers: Vec<TaskId> = open_blockers
            .filter_map(|blocker| {
                ids.get(blocker.0.as_str())
                    .copied()
                    .or_else(|| board.task_id(&blocker.0))
            })
            .collect();
        match board.tasks_by_issue.get(&bead.id) {
            Some(task) => {
                ids.insert(&bead.id, task.task.id);
                update_task(&client, bead, task, blockers, &mut result)?;
            }
            None if bead.state == BeadState::Closed => result.closed += 1,
            None => {
                let id = add_issue(&client, project.clone(), bead, blockers)?;
                ids.insert(&bead.id, id);
                result.added.push(id);
            }
        }
    }
    app.output.print_answer(
        "task.import",
        &result,
        &["regatta task list".into(), "regatta run".into()],
        |_| {
            let mut text = format!(
                "added {}, changed {}, cancelled {}, unchanged {}",
                result.added.len(),
                result.changed.len(),
                result.cancelled.len(),
                result.there.len()
            );
            if result.closed > 0 {
                text += &format!(", skipped {} closed", result.closed);
            }
            if result.others > 0 {
                let lines = plural::count(result.others, "line");
                text += &format!(", skipped {lines} without work");
            }
            text.push('\n');
            result
                .left
                .iter()
                .for_each(|left| text += &format!("not changed: {left}\n"));
            text
        },
    )
}

fn load_source(file: &Path) -> Result<SourceText, CommandError> {
    crate::plan::load_source(file).map(|(source, _)| source)
}

/// Fails if an open issue depends on an issue that is neither in the file nor a task of the
/// project.
fn check_dependencies(
    source: &SourceText,
    issues: &Beads,
    board: &BeadBoard,
) -> Result<(), CommandError> {
    let is_known =
        |id: &str| issues.beads.iter().any(|bead| bead.id == id) || board.task_id(id).is_some();
    // Ignore closed issues, because they no longer wait for anything.
    let open_issues = issues
        .beads
        .iter()
        .filter(|bead| bead.state != BeadState::Closed);
    let faults: Vec<_> = open_issues
        .flat_map(|bead| bead.blocked_by.iter().map(move |blocker| (bead, blocker)))
        .filter(|(_, blocker)| !is_known(&blocker.0))
        .map(|(bead, blocker)| {
            let what = format!(
                "{:?} depends on {:?}, which is neither in this file nor a task of the project",
                bead.id, blocker.0
            );
            source.diagnostic(blocker.1, what, "add that issue, or remove the dependency")
        })
        .collect();
    if faults.is_empty() {
        Ok(())
    } else {
        Err(source.error_for(&faults))
    }
}

/// Returns the issues, sorted so that each issue comes after its blockers (the issues for which it
/// waits).
fn in_dependency_order(issues: &[Bead]) -> Vec<&Bead> {
    let index_of = |id: &str| issues.iter().position(|bead| bead.id == id);
    let edges: Vec<Vec<usize>> = issues
        .iter()
        .map(|bead| match bead.state {
            BeadState::Closed => vec![],
            _ => bead
                .blocked_by
                .iter()
                .filter_map(|blocker| index_of(&blocker.0))
                .collect(),
        })
        .collect();
    let layers = regatta_core::graph::layers(issues.len(), &edges, |_, _| false)
        .unwrap_or_else(|_| vec![0; issues.len()]);
    let mut order: Vec<usize> = (0..issues.len()).collect();
    order.sort_by_key(|index| (layers[*index], *index));
    order.into_iter().map(|index| &issues[index]).collect()
}

/// Adds a task for an issue that has no task. If somebody works on the issue elsewhere, the task is
/// paused.
fn add_issue(
    client: &Client,
    project: Option<ProjectName>,
    bead: &Bead,
    blocked_by: Vec<TaskId>,
) -> Result<TaskId, CommandError> {
    let held_reason = match &bead.state {
        BeadState::Held(reason) => Some(reason.clone()),
        _ => None,
    };
    let call = call::TaskAdd(input::TaskAdd {
        project,
        subject: bead.title.clone(),
        description: bead.description.clone(),
        issue_type: bead.issue_type,
        files: bead.work.files.clone().unwrap_or_default(),
        validation: bead.work.validation.clone().unwrap_or_default(),
        blocked_by,
        priority: bead.priority,
        expects: bead.work.expects.unwrap_or_default(),
        effort: bead.work.effort.clone(),
        provider: bead.work.provider.clone(),
        script: bead.work.script.clone(),
        ratchet: bead.work.ratchet.clone(),
        alias: Some(bead.id.clone()),
        // The task of a held issue (on which somebody works elsewhere) starts in the backlog, so
        // that no agent takes the task before the code below pauses it.
        backlog: bead.state == BeadState::Backlog || held_reason.is_some(),
        assign: None,
        how: AssignMode::Queue,
    });
    let reply: CallReply<TaskView> = client.call(call)?;
    let id = reply.data.task.id;
    if let Some(reason) = held_reason {
        let edit = EditTask {
            paused: Some(SetPause::Pause(reason)),
            backlog: Some(false),
            ..EditTask::default()
        };
        let _paused: CallReply<TaskView> = client.call(call::TaskSet(input::TaskSet {
            task: id,
            edit,
            script: None,
        }))?;
    }
    Ok(id)
}

/// Updates a task from its issue. A closed issue cancels the task. If nobody works on the issue
/// elsewhere any more, a task that an import paused is resumed, but a task that a person paused
/// stays paused.
fn update_task(
    client: &Client,
    bead: &Bead,
    view: &TaskView,
    mut blocked_by: Vec<TaskId>,
    result: &mut ImportResult,
) -> Result<(), CommandError> {
    let (id, task) = (view.task.id, &view.task);
    blocked_by.sort();
    blocked_by.dedup();
    let is_idle = matches!(
        display::status_display(task).state,
        DisplayState::Waiting | DisplayState::Backlog | DisplayState::Needs
    );
    if bead.state == BeadState::Closed {
        match (task.status.is_terminal(), is_idle) {
            (true, _) => result.there.push(id),
            (false, true) => {
                let reason = Some("closed in beads".to_owned());
                let _cancelled: CallReply<TaskView> =
                    client.call(call::TaskCancel(input::TaskCancel { task: id, reason }))?;
                result.cancelled.push(id);
            }
            (false, false) => result.left.push(format!(
                "{} is closed in beads, but {id} is {}",
                bead.id, view.word
            )),
        }
        return Ok(());
    }
    if task.status.is_terminal() {
        result.there.push(id); // an export writes the outcome back
        return Ok(());
    }
    let differs = |is_new: bool, edit: &mut EditTask, apply: &dyn Fn(&mut EditTask)| {
        if is_new {
            apply(edit);
        }
    };
    let mut edit = EditTask::default();
    differs(task.subject != bead.title, &mut edit, &|edit_task| {
        edit_task.subject = Some(bead.title.clone())
    });
    differs(
        task.description != bead.description,
        &mut edit,
        &|edit_task| edit_task.description = Some(bead.description.clone()),
    );
    differs(
        task.issue_type != bead.issue_type,
        &mut edit,
        &|edit_task| edit_task.issue_type = Some(bead.issue_type),
    );
    differs(task.priority != bead.priority, &mut edit, &|edit_task| {
        edit_task.priority = Some(bead.priority)
    });
    differs(task.blocked_by != blocked_by, &mut edit, &|edit_task| {
        edit_task.blocked_by = Some(blocked_by.clone())
    });
    if let Some(files) = bead
        .work
        .files
        .as_ref()
        .filter(|path_patterns| **path_patterns != task.files)
    {
        edit.files = Some(files.clone());
    }
    if let Some(validation) = bead
        .work
        .validation
        .as_ref()
        .filter(|validation| **validation != task.validation)
    {
        edit.validation = Some(validation.clone());
    }
    let ours = task
        .paused
        .as_ref()
        .filter(|paused| paused.starts_with(HELD_REASON_PREFIX));
    match (&bead.state, ours) {
        (BeadState::Held(reason), None) if task.paused.is_none() && is_idle => {
            edit.paused = Some(SetPause::Pause(reason.clone()));
        }
        (BeadState::Held(reason), Some(old)) if old != reason => {
            edit.paused = Some(SetPause::Pause(reason.clone()))
        }
        (BeadState::Open | BeadState::Backlog, Some(_)) => edit.paused = Some(SetPause::Resume),
        _ => {}
    }
    if edit == EditTask::default() {
        result.there.push(id);
        return Ok(());
    }
    match client.call(call::TaskSet(input::TaskSet {
        task: id,
        edit,
        script: None,
    })) {
        Ok(_) => result.changed.push(id),
        Err(CommandError::Problem(problem)) if problem.code == "in_use" => {
            result.left.push(format!(
                "{} has changed, but an agent is working on {id}",
                bead.id
            ));
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// The result of `task export --beads`, for `--json`.
#[derive(Serialize)]
struct ExportResult {
    file: String,
    changed: usize,
    added: usize,
    lines: usize,
}

/// Runs `regatta task export --beads`.
pub(crate) fn export(app: &CommandContext, all: bool, file: Option<&Path>) -> CommandResult {
    let old = file
        .filter(|path| path.exists())
        .map(load_source)
        .transpose()?;
    if let Some(source) = &old {
        beads::read_issues(source).map_err(|diagnostics| source.error_for(&diagnostics))?;
    }
    let client = app.client()?;
    let board = BeadBoard::read(&client, app.project(&client)?)?;
    let known = |id: &str| board.task_id(id).is_some();
    let (mut lines, mut changed) = (Vec::new(), 0);
    let mut written: Vec<String> = Vec::new();
    let text = old
        .as_ref()
        .map_or("", |source_text| source_text.text.as_str());
    for (_, line) in beads::nonblank_lines(text) {
        let id = serde_json::from_str::<serde_json::Value>(line).ok();
        let id = id
            .as_ref()
            .and_then(|id| id["id"].as_str())
            .unwrap_or_default();
        let merged = match board.tasks_by_issue.get(id) {
            Some(task) => exported_bead(&board, task).merge_into_line(line, &known),
            None => line.to_owned(),
        };
        changed += usize::from(merged != line);
        written.push(id.to_owned());
        lines.push(merged);
    }
    let mut added = 0;
    let mut rest: Vec<&TaskView> = board
        .tasks_by_issue
        .values()
        .filter(|task| !written.contains(&issue_id(task)))
        .collect();
    rest.sort_by_key(|task| task.task.id);
    for task in rest
        .into_iter()
        .filter(|task| all || !task.task.status.is_terminal())
    {
        lines.push(exported_bead(&board, task).to_line());
        added += 1;
    }
    let text: String = lines.iter().map(|s| format!("{s}\n")).collect();
    let Some(file) = file else {
        return app.output.print(&text);
    };
    if changed + added > 0 {
        write_atomically(file, &text)?;
    }
    let done = ExportResult {
        file: file.display().to_string(),
        changed,
        added,
        lines: lines.len(),
    };
    app.output.print_answer("task.export", &done, &[], |_| {
        format!(
            "{}: {} changed, {added} added, {} in total\n",
            done.file,
            plural::count(changed, "line"),
            done.lines
        )
    })
}

/// Writes a file under another name and renames it, so that a crash never leaves half a file.
fn write_atomically(file: &Path, text: &str) -> CommandResult {
    let broken = |error: std::io::Error| {
        command_error(
            "io",
            format!("could not write the issue file {}: {error}", file.display()),
            "check the permissions of the directory",
        )
    };
    let dir = file
        .parent()
        .filter(|path| !path.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let mut new = tempfile::NamedTempFile::new_in(dir).map_err(broken)?;
    std::io::Write::write_all(&mut new, text.as_bytes()).map_err(broken)?;
    if let Ok(old) = file.metadata() {
        new.as_file()
            .set_permissions(old.permissions())
            .map_err(broken)?;
    }
    new.as_file().sync_all().map_err(broken)?;
    new.persist(file).map_err(|error| broken(error.error))?;
    Ok(())
}

/// Converts a task to the issue that is written to the file of beads.
fn exported_bead(board: &BeadBoard, view: &TaskView) -> ExportedBead {
    let task = &view.task;
    let by_id = |id: &TaskId| {
        board
            .tasks_by_issue
            .iter()
            .find(|tasks_by_issue| tasks_by_issue.1.task.id == *id)
            .map(|tasks_by_issue| tasks_by_issue.0.clone())
    };
    let date = |wall: u64| {
        let time =
            jiff::Timestamp::from_millisecond(i64::try_from(wall).unwrap_or(0)).unwrap_or_default();
        time.to_string()
    };
    let is_cancelled = task.status.is_cancelled();
    let (status, reason) = match display::status_display(task).state {
        DisplayState::Working | DisplayState::Review | DisplayState::Landing => {
            ("in_progress", None)
        }
        DisplayState::Landed => {
            let reason = match &task.landed {
                Some(commit) => format!("landed as {commit}"),
                None => "done".into(),
            };
            ("closed", Some(reason))
        }
        _ if is_cancelled => {
            let reason = task.reason.clone();
            ("closed", Some(reason.unwrap_or_else(|| "cancelled".into())))
        }
        _ => ("open", None),
    };
    let mut metadata = serde_json::Map::new();
    if !task.files.is_empty() {
        metadata.insert(
            "files".into(),
            task.files.iter().map(ToString::to_string).collect(),
        );
    }
    if task.validation != Validation::default() {
        let mut checks = serde_json::Map::new();
        for (name, list) in [
            ("tests", &task.validation.tests),
            ("lint", &task.validation.lint),
            ("files_exist", &task.validation.files_exist),
        ] {
            if !list.is_empty() {
                checks.insert(name.into(), list.iter().cloned().collect());
            }
        }
        if !task.validation.content_check.is_empty() {
            let all: Vec<_> = task
                .validation
                .content_check
                .iter()
                .map(|content_check| serde_json::json!(content_check))
                .collect();
            checks.insert("content_check".into(), all.into());
        }
        metadata.insert("validation".into(), checks.into());
    }
    ExportedBead {
        id: issue_id(view),
        title: task.subject.clone(),
        description: task.description.clone(),
        issue_type: task.issue_type,
        priority: task.priority,
        status,
        reason,
        is_held: task
            .paused
            .as_ref()
            .is_some_and(|paused| paused.starts_with(HELD_REASON_PREFIX)),
        blocked_by: task.blocked_by.iter().filter_map(by_id).collect(),
        created: date(task.created_unix_ms),
        updated: date(task.updated_unix_ms),
        metadata: metadata.into(),
    }
}
