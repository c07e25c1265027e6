//! The commands `task import --beads` and `task export --beads`, which exchange tasks with the
//! issue tracker beads.
//!
//! An issue's id is its task's alias. A repeated import updates tasks whose issue has changed and
//! adds new ones. An export into an existing file updates the fields that Regatta knows and keeps
//! all other fields.

use std::collections::BTreeMap;
use std::path::Path;

use regatta_api::Call;
use regatta_api::input;
use regatta_api::view::TaskView;
use regatta_core::ids::{ProjectName, TaskId};
use regatta_core::task::{Edit, How, Pause, Status, Validation};
use serde::Serialize;

use crate::client::{Client, Got};
use crate::out::{Failed, Said, failed};
use crate::plan::beads::{self, Bead, Beads, HELD, Stand, Told};
use crate::plan::fault::Source;

use super::App;

/// The result of an import.
#[derive(Default, Serialize)]
struct Imported {
    added: Vec<TaskId>,
    changed: Vec<TaskId>,
    cancelled: Vec<TaskId>,
    /// Tasks that already agree with the file.
    there: Vec<TaskId>,
    /// Differences that could not be applied, each with the reason.
    left: Vec<String>,
    /// The number of issues that are closed or deleted in the file and not on the board.
    closed: usize,
    /// The number of lines that are not issues to work on.
    others: usize,
}

/// The board's tasks by their issue ids.
struct Board {
    tasks: BTreeMap<String, TaskView>,
}

impl Board {
    /// Reads all tasks of a project.
    fn read(client: &Client, project: Option<ProjectName>) -> Result<Board, Failed> {
        let call = Call::TaskList(input::TaskList { project, mission: None, status: vec![], all: true, limit: 0 });
        let got: Got<Vec<TaskView>> = client.call(&call)?;
        let mut tasks: BTreeMap<String, TaskView> = BTreeMap::new();
        for it in got.data {
            // If two tasks have the same name, an open task takes precedence, then the newer one.
            let name = name(&it);
            if tasks.get(&name).is_none_or(|old| old.task.status.is_terminal() || !it.task.status.is_terminal()) {
                tasks.insert(name, it);
            }
        }
        Ok(Board { tasks })
    }

    fn id(&self, name: &str) -> Option<TaskId> {
        self.tasks.get(name).map(|it| it.task.id)
    }
}

/// Returns a task's issue id: its alias, or its own id.
fn name(it: &TaskView) -> String {
    it.task.alias.clone().unwrap_or_else(|| it.task.id.to_string())
}

/// Runs `regatta task import --beads`.
pub(super) fn import(app: &App, file: &Path) -> Said {
    let source = load(file)?;
    let found = beads::read(&source).map_err(|it| source.refuse(&it))?;
    let client = app.client()?;
    let project = app.project(&client)?;
    let board = Board::read(&client, project.clone())?;
    refuse_unknown(&source, &found, &board)?;
    let mut done = Imported { others: found.others, ..Imported::default() };
    let mut ids: BTreeMap<&str, TaskId> = BTreeMap::new();
    let closed: Vec<&str> =
        found.beads.iter().filter(|it| it.stand == Stand::Closed).map(|it| it.id.as_str()).collect();
    // Blockers come first, so that their ids are known.
    for bead in in_order(&found.beads) {
        let open = bead.after.iter().filter(|it| !closed.contains(&it.0.as_str()) || board.id(&it.0).is_some());
        let blockers: Vec<TaskId> =
            open.filter_map(|it| ids.get(it.0.as_str()).copied().or_else(|| board.id(&it.0))).collect();
        match board.tasks.get(&bead.id) {
            Some(task) => {
                ids.insert(&bead.id, task.task.id);
                update(&client, bead, task, blockers, &mut done)?;
            }
            None if bead.stand == Stand::Closed => done.closed += 1,
            None => {
                let id = add(&client, project.clone(), bead, blockers)?;
                ids.insert(&bead.id, id);
                done.added.push(id);
            }
        }
    }
    app.out.answer("task.import", &done, &["regatta task list".into(), "regatta run".into()], |_| {
        let mut text = format!(
            "added {}, changed {}, cancelled {}, unchanged {}",
            done.added.len(),
            done.changed.len(),
            done.cancelled.len(),
            done.there.len()
        );
        if done.closed > 0 {
            text += &format!(", skipped {} closed", done.closed);
        }
        if done.others > 0 {
            text += &format!(", skipped {} lines without work", done.others);
        }
        text.push('\n');
        done.left.iter().for_each(|it| text += &format!("not changed: {it}\n"));
        text
    })
}

fn load(file: &Path) -> Result<Source, Failed> {
    crate::plan::load(file).map(|it| it.0)
}

/// Refuses a file in which an issue depends on an issue that is neither in the file nor on the
/// board.
fn refuse_unknown(source: &Source, found: &Beads, board: &Board) -> Result<(), Failed> {
    let known = |id: &str| found.beads.iter().any(|it| it.id == id) || board.id(id).is_some();
    // Closed issues no longer depend on anything.
    let open = found.beads.iter().filter(|it| it.stand != Stand::Closed);
    let faults: Vec<_> = open
        .flat_map(|it| it.after.iter().map(move |on| (it, on)))
        .filter(|(_, on)| !known(&on.0))
        .map(|(it, on)| {
            let what = format!("{:?} depends on {:?}, which is neither in this file nor on the board", it.id, on.0);
            source.fault(on.1, what, "add that issue, or remove the dependency")
        })
        .collect();
    if faults.is_empty() { Ok(()) } else { Err(source.refuse(&faults)) }
}

/// Returns the issues in an order in which each comes after its blockers.
fn in_order(found: &[Bead]) -> Vec<&Bead> {
    let place = |id: &str| found.iter().position(|it| it.id == id);
    let edges: Vec<Vec<usize>> = found
        .iter()
        .map(|it| match it.stand {
            Stand::Closed => vec![],
            _ => it.after.iter().filter_map(|on| place(&on.0)).collect(),
        })
        .collect();
    let layers =
        regatta_core::graph::layers(found.len(), &edges, |_, _| false).unwrap_or_else(|_| vec![0; found.len()]);
    let mut order: Vec<usize> = (0..found.len()).collect();
    order.sort_by_key(|it| (layers[*it], *it));
    order.into_iter().map(|it| &found[it]).collect()
}

/// Adds a task for an issue.
fn add(client: &Client, project: Option<ProjectName>, bead: &Bead, blocked_by: Vec<TaskId>) -> Result<TaskId, Failed> {
    let held = match &bead.stand {
        Stand::Held(reason) => Some(reason.clone()),
        _ => None,
    };
    let call = Call::TaskAdd(input::TaskAdd {
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
        // A held issue starts in the backlog, so that no agent takes the task before it is paused.
        backlog: bead.stand == Stand::Backlog || held.is_some(),
        assign: None,
        how: How::Queue,
    });
    let got: Got<TaskView> = client.call(&call)?;
    let id = got.data.task.id;
    if let Some(reason) = held {
        let edit = Edit { paused: Some(Pause::Because(reason)), backlog: Some(false), ..Edit::default() };
        let _held: Got<TaskView> = client.call(&Call::TaskSet(input::TaskSet { task: id, edit, script: None }))?;
    }
    Ok(id)
}

/// Updates a task from its issue. A closed issue cancels the task. An issue that is no longer held
/// resumes the task only if an import paused it.
fn update(
    client: &Client,
    bead: &Bead,
    view: &TaskView,
    mut blocked_by: Vec<TaskId>,
    done: &mut Imported,
) -> Result<(), Failed> {
    let (id, task) = (view.task.id, &view.task);
    blocked_by.sort();
    blocked_by.dedup();
    let idle = task.status.is_waiting() || matches!(task.status, Status::Backlog | Status::NeedsHuman);
    if bead.stand == Stand::Closed {
        match (task.status.is_terminal(), idle) {
            (true, _) => done.there.push(id),
            (false, true) => {
                let reason = Some("closed in beads".to_owned());
                let _gone: Got<TaskView> = client.call(&Call::TaskCancel(input::TaskCancel { task: id, reason }))?;
                done.cancelled.push(id);
            }
            (false, false) => done.left.push(format!("{} is closed in beads, but {id} is {}", bead.id, view.word)),
        }
        return Ok(());
    }
    if task.status.is_terminal() {
        done.there.push(id); // an export writes the outcome back
        return Ok(());
    }
    let differs = |new: bool, edit: &mut Edit, set: &dyn Fn(&mut Edit)| {
        if new {
            set(edit);
        }
    };
    let mut edit = Edit::default();
    differs(task.subject != bead.title, &mut edit, &|it| it.subject = Some(bead.title.clone()));
    differs(task.description != bead.description, &mut edit, &|it| it.description = Some(bead.description.clone()));
    differs(task.issue_type != bead.issue_type, &mut edit, &|it| it.issue_type = Some(bead.issue_type));
    differs(task.priority != bead.priority, &mut edit, &|it| it.priority = Some(bead.priority));
    differs(task.blocked_by != blocked_by, &mut edit, &|it| it.blocked_by = Some(blocked_by.clone()));
    if let Some(files) = bead.work.files.as_ref().filter(|it| **it != task.files) {
        edit.files = Some(files.clone());
    }
    if let Some(validation) = bead.work.validation.as_ref().filter(|it| **it != task.validation) {
        edit.validation = Some(validation.clone());
    }
    let ours = task.paused.as_ref().filter(|it| it.starts_with(HELD));
    match (&bead.stand, ours) {
        (Stand::Held(reason), None) if task.paused.is_none() && idle => {
            edit.paused = Some(Pause::Because(reason.clone()));
        }
        (Stand::Held(reason), Some(old)) if old != reason => edit.paused = Some(Pause::Because(reason.clone())),
        (Stand::Open | Stand::Backlog, Some(_)) => edit.paused = Some(Pause::No),
        _ => {}
    }
    if edit == Edit::default() {
        done.there.push(id);
        return Ok(());
    }
    match client.call::<TaskView>(&Call::TaskSet(input::TaskSet { task: id, edit, script: None })) {
        Ok(_) => done.changed.push(id),
        Err(Failed::Problem(it)) if it.code == "in_use" => {
            done.left.push(format!("{} has changed, but an agent is working on {id}", bead.id));
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// The result of an export.
#[derive(Serialize)]
struct Exported {
    file: String,
    changed: usize,
    added: usize,
    lines: usize,
}

/// Runs `regatta task export --beads`.
pub(super) fn export(app: &App, all: bool, file: Option<&Path>) -> Said {
    let old = file.filter(|it| it.exists()).map(load).transpose()?;
    if let Some(source) = &old {
        beads::read(source).map_err(|it| source.refuse(&it))?;
    }
    let client = app.client()?;
    let board = Board::read(&client, app.project(&client)?)?;
    let known = |id: &str| board.id(id).is_some();
    let (mut lines, mut changed) = (Vec::new(), 0);
    let mut written: Vec<String> = Vec::new();
    let text = old.as_ref().map_or("", |it| it.text.as_str());
    for (_, line) in beads::lines(text) {
        let id = serde_json::from_str::<serde_json::Value>(line).ok();
        let id = id.as_ref().and_then(|it| it["id"].as_str()).unwrap_or_default();
        let merged = match board.tasks.get(id) {
            Some(task) => told(&board, task).merged(line, &known),
            None => line.to_owned(),
        };
        changed += usize::from(merged != line);
        written.push(id.to_owned());
        lines.push(merged);
    }
    let mut added = 0;
    let mut rest: Vec<&TaskView> = board.tasks.values().filter(|it| !written.contains(&name(it))).collect();
    rest.sort_by_key(|it| it.task.id);
    for task in rest.into_iter().filter(|it| all || !it.task.status.is_terminal()) {
        lines.push(told(&board, task).line());
        added += 1;
    }
    let text: String = lines.iter().map(|it| format!("{it}\n")).collect();
    let Some(file) = file else { return app.out.print(&text) };
    if changed + added > 0 {
        write(file, &text)?;
    }
    let done = Exported { file: file.display().to_string(), changed, added, lines: lines.len() };
    app.out.answer("task.export", &done, &[], |_| {
        format!("{}: {changed} lines changed, {added} added, {} in total\n", done.file, done.lines)
    })
}

/// Replaces a file completely or not at all.
fn write(file: &Path, text: &str) -> Said {
    let broken = |it: std::io::Error| {
        failed("io", format!("could not write {}: {it}", file.display()), "check the permissions of the directory")
    };
    let dir = file.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut new = tempfile::NamedTempFile::new_in(dir).map_err(broken)?;
    std::io::Write::write_all(&mut new, text.as_bytes()).map_err(broken)?;
    if let Ok(old) = file.metadata() {
        new.as_file().set_permissions(old.permissions()).map_err(broken)?;
    }
    new.as_file().sync_all().map_err(broken)?;
    new.persist(file).map_err(|it| broken(it.error))?;
    Ok(())
}

/// Converts a task to an issue of beads.
fn told(board: &Board, view: &TaskView) -> Told {
    let task = &view.task;
    let by_id = |id: &TaskId| board.tasks.iter().find(|it| it.1.task.id == *id).map(|it| it.0.clone());
    let date = |wall: u64| {
        let time = jiff::Timestamp::from_millisecond(i64::try_from(wall).unwrap_or(0)).unwrap_or_default();
        time.to_string()
    };
    let status = match task.status {
        Status::InProgress | Status::Validating | Status::InReview | Status::Landing => "in_progress",
        Status::Completed | Status::Cancelled => "closed",
        _ => "open",
    };
    let reason = match task.status {
        Status::Completed => Some(match &task.landed {
            Some(commit) => format!("landed as {commit}"),
            None => "done".into(),
        }),
        Status::Cancelled => Some(task.reason.clone().unwrap_or_else(|| "cancelled".into())),
        _ => None,
    };
    let mut metadata = serde_json::Map::new();
    if !task.files.is_empty() {
        metadata.insert("files".into(), task.files.iter().map(ToString::to_string).collect());
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
            let all: Vec<_> = task.validation.content_check.iter().map(|it| serde_json::json!(it)).collect();
            checks.insert("content_check".into(), all.into());
        }
        metadata.insert("validation".into(), checks.into());
    }
    Told {
        id: name(view),
        title: task.subject.clone(),
        description: task.description.clone(),
        issue_type: task.issue_type,
        priority: task.priority,
        status,
        reason,
        held: task.paused.as_ref().is_some_and(|it| it.starts_with(HELD)),
        after: task.blocked_by.iter().filter_map(by_id).collect(),
        created: date(task.created_wall),
        updated: date(task.updated_wall),
        metadata: metadata.into(),
    }
}
