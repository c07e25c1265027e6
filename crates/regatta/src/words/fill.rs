//! `run --fill-manifests`: agents find the files of tasks that list none, before the run starts.
//!
//! The tasks wait in the backlog meanwhile, so that no agent starts them. One exploring task per
//! incomplete task reports the files. A task whose files are still unknown afterwards stays open
//! for a person.

use regatta_api::Call;
use regatta_api::input::{self, PlannedTask};
use regatta_api::view::{MissionView, TaskView};
use regatta_core::ids::{MissionId, ProjectName, TaskId};
use regatta_core::mission;
use regatta_core::schedule::lacks_manifest;
use regatta_core::task::{Edit, How};

use crate::client::{Client, Got};
use crate::follow::{self, Ending};
use crate::out::{Failed, failed, line};

use super::App;
use super::preview::{Preview, counted};
use super::run::{Work, open_tasks};

/// Adds missing manifests to the tasks of a run and prints them. Returns the same work, with all
/// its tasks on the board.
pub(super) fn fill(
    app: &App,
    client: &Client,
    work: Work,
    start: &input::MissionStart,
    events: bool,
) -> Result<Work, Failed> {
    let project = start.project.as_ref().ok_or_else(|| failed("no_project", "no project", "regatta init"))?;
    let planned = !work.tasks.is_empty();
    let ids = if planned { put_by(client, &work.tasks, start)? } else { work.adopt.clone() };
    let on_board = open_tasks(client, project)?.data;
    let lacking: Vec<TaskId> = on_board
        .iter()
        .filter(|it| ids.contains(&it.task.id))
        .filter(|it| lacks_manifest(it.task.issue_type, it.task.expects, &it.task.files))
        .map(|it| it.task.id)
        .collect();
    if !lacking.is_empty() {
        app.out.note(&format!("finding the files of {} first", counted(lacking.len())));
        explore(app, client, (&lacking, project), start, events)?;
    }
    if planned {
        for (id, it) in ids.iter().zip(&work.tasks) {
            set(client, *id, Edit { backlog: Some(false), ..Edit::default() })?;
            if let Some(agent) = &it.task.assign {
                let ask = input::TaskAssign { task: *id, to: Some(agent.clone()), how: How::Queue };
                let _assigned: Got<TaskView> = client.call(&Call::TaskAssign(ask))?;
            }
        }
    }
    let open = open_tasks(client, project)?.data;
    let mine: Vec<&TaskView> = ids.iter().filter_map(|id| open.iter().find(|it| it.task.id == *id)).collect();
    for it in mine.iter().filter(|it| lacking.contains(&it.task.id) && !it.task.files.is_empty()) {
        let files: Vec<String> = it.task.files.iter().map(ToString::to_string).collect();
        app.out.note(&format!("{} \"{}\": {}", it.task.id, line(&it.task.subject), files.join(", ")));
    }
    let preview = Preview::of_board(&mine).titled(&work.title);
    Ok(Work { tasks: vec![], adopt: ids, preview, ..work })
}

/// Adds a plan's tasks to the backlog, each after its blockers. Returns their ids in the plan's
/// order.
fn put_by(client: &Client, tasks: &[PlannedTask], start: &input::MissionStart) -> Result<Vec<TaskId>, Failed> {
    let after: Vec<Vec<usize>> = tasks.iter().map(|it| it.after.clone()).collect();
    let layers = regatta_core::graph::layers(tasks.len(), &after, |_, _| false)
        .map_err(|_| failed("bug", "the plan has a cycle", "please report this"))?;
    let mut order: Vec<usize> = (0..tasks.len()).collect();
    order.sort_by_key(|it| (layers[*it], *it));
    let mut ids: Vec<Option<TaskId>> = vec![None; tasks.len()];
    for at in order {
        let it = &tasks[at].task;
        let call = Call::TaskAdd(input::TaskAdd {
            project: start.project.clone(),
            subject: it.subject.clone(),
            description: it.description.clone(),
            issue_type: it.issue_type,
            files: it.files.clone(),
            validation: it.validation.clone(),
            blocked_by: tasks[at].after.iter().filter_map(|on| ids[*on]).collect(),
            priority: it.priority,
            expects: it.expects,
            effort: it.effort.clone(),
            provider: it.provider.clone(),
            script: it.script.clone(),
            ratchet: it.ratchet.clone(),
            alias: it.alias.clone(),
            backlog: true,
            assign: None,
            how: How::Queue,
        });
        let got: Got<TaskView> = client.call(&call)?;
        ids[at] = Some(got.data.task.id);
    }
    Ok(ids.into_iter().flatten().collect())
}

/// Starts a mission with one exploring task per incomplete task, and waits until the mission ends.
fn explore(
    app: &App,
    client: &Client,
    (lacking, project): (&[TaskId], &ProjectName),
    start: &input::MissionStart,
    events: bool,
) -> Result<(), Failed> {
    let mut explorers = Vec::new();
    for id in lacking {
        let got: Got<TaskView> = client.call(&Call::TaskExplore(input::Id { id: id.to_string() }))?;
        // An exploring task that was requested earlier may already belong to another mission.
        if got.data.task.mission.is_none() {
            explorers.push(got.data.task.id);
        }
    }
    let title: String = format!("Find the files of {}", start.title).chars().take(200).collect();
    let ask = input::MissionStart {
        title,
        mode: mission::Mode::Flow,
        tasks: vec![],
        adopt: explorers,
        project: start.project.clone(),
        agents: start.agents.clone(),
        max_workers: start.max_workers,
        isolate: start.isolate,
        wave_commits: false,
        team: start.team.clone(),
        budget: Default::default(),
    };
    let got: Got<MissionView> = client.call(&Call::MissionStart(ask))?;
    let (id, after) = (got.data.mission.id, got.revision);
    match follow::follow(app, client, got, after, events)? {
        Ending::Settled | Ending::Needed => give_up(app, client, (id, project)),
        Ending::TimedOut => Err(Failed::Code(124)),
        Ending::Detached => {
            app.out.note("nothing else was started; the tasks are in the backlog (regatta task list)");
            Err(Failed::Code(130))
        }
    }
}

/// Reports the tasks whose files were not found. They no longer wait for the exploring task but for
/// a person.
fn give_up(app: &App, client: &Client, (mission, project): (MissionId, &ProjectName)) -> Result<(), Failed> {
    let got: Got<MissionView> = client.call(&Call::MissionShow(input::Id { id: mission.to_string() }))?;
    let open = open_tasks(client, project)?.data;
    for it in got.data.tasks.iter().filter(|it| it.word != "done") {
        let Some(explored) = open.iter().find(|open| Some(open.task.id) == it.task.explores) else { continue };
        let of = explored.task.id;
        let blocked_by = explored.task.blocked_by.iter().copied().filter(|on| *on != it.task.id).collect();
        set(client, of, Edit { blocked_by: Some(blocked_by), ..Edit::default() })?;
        let why = it.task.reason.as_deref().unwrap_or("no agent looked for them");
        app.out.note(&format!("{of} has no files yet: {}; add them: regatta edit {of} --files …", line(why)));
    }
    Ok(())
}

/// Edits a task.
fn set(client: &Client, task: TaskId, edit: Edit) -> Result<(), Failed> {
    let _set: Got<TaskView> = client.call(&Call::TaskSet(input::TaskSet { task, edit, script: None }))?;
    Ok(())
}
