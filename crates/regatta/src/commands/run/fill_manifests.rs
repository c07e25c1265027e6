//! `run --fill-manifests`: before the run starts, agents find out which files the tasks without a
//! manifest (list of files) will change.
//!
//! Meanwhile the tasks wait in the backlog, so that no agent starts them. For each task without
//! files, one exploring task finds and reports the files. A task whose files are still unknown
//! afterwards waits for a person.

use regatta_api::input::PlannedTask;
use regatta_api::view::{MissionView, TaskView};
use regatta_api::{call, input};
use regatta_core::display::DisplayState;
use regatta_core::ids::{MissionId, ProjectName, TaskId};
use regatta_core::mission;
use regatta_core::plural;
use regatta_core::schedule::lacks_manifest;
use regatta_core::task::{AssignMode, EditTask, Purpose};

use crate::client::{CallReply, Client};
use crate::commands::CommandContext;
use crate::commands::run::preview::RunPreview;
use crate::commands::run::work::{RunWork, open_tasks};
use crate::output::{CommandError, command_error, first_line, internal_error};
use crate::run_progress::{self, FollowEnd};

/// Lets agents find the files of each task in a run that lists no files, and prints the files that
/// they found. Returns the same run, with its tasks created in the project.
pub(crate) fn fill_manifests(
    app: &CommandContext,
    client: &Client,
    work: RunWork,
    start: &input::MissionStart,
    events: bool,
) -> Result<RunWork, CommandError> {
    let project = start.project.as_ref().ok_or_else(|| {
        command_error(
            "no_project",
            "this repository is not a project of Regatta yet",
            "make the repository a project: regatta init",
        )
    })?;
    let planned = !work.tasks.is_empty();
    let ids = if planned {
        add_to_backlog(client, &work.tasks, start)?
    } else {
        work.adopt.clone()
    };
    let on_board = open_tasks(client, project)?.data;
    let lacking: Vec<TaskId> = on_board
        .iter()
        .filter(|task| ids.contains(&task.task.id))
        .filter(|task| lacks_manifest(task.task.issue_type, task.task.expects(), &task.task.files))
        .map(|task| task.task.id)
        .collect();
    if !lacking.is_empty() {
        app.output.print_note(&format!(
            "finding the files of {} first",
            plural::count(lacking.len(), "task")
        ));
        run_exploration(app, client, &lacking, project, start, events)?;
    }
    if planned {
        for (id, planned_task) in ids.iter().zip(&work.tasks) {
            edit_task(
                client,
                *id,
                EditTask {
                    backlog: Some(false),
                    ..EditTask::default()
                },
            )?;
            if let Some(agent) = &planned_task.task.assign {
                let request = input::TaskAssign {
                    task: *id,
                    to: Some(agent.clone()),
                    how: AssignMode::Queue,
                };
                let _assigned: CallReply<TaskView> = client.call(call::TaskAssign(request))?;
            }
        }
    }
    let open = open_tasks(client, project)?.data;
    let filled: Vec<&TaskView> = ids
        .iter()
        .filter_map(|id| open.iter().find(|task| task.task.id == *id))
        .collect();
    for task in filled
        .iter()
        .filter(|task| lacking.contains(&task.task.id) && !task.task.files.is_empty())
    {
        let files: Vec<String> = task.task.files.iter().map(ToString::to_string).collect();
        app.output.print_note(&format!(
            "{} \"{}\": {}",
            task.task.id,
            first_line(&task.task.subject),
            files.join(", ")
        ));
    }
    let preview = RunPreview::from_board(&filled).with_title(&work.title);
    Ok(RunWork {
        tasks: vec![],
        adopt: ids,
        preview,
        ..work
    })
}

/// Creates a plan's tasks in the backlog, blockers first, because a task names its blockers by id.
/// Returns the ids in the plan's order.
fn add_to_backlog(
    client: &Client,
    tasks: &[PlannedTask],
    start: &input::MissionStart,
) -> Result<Vec<TaskId>, CommandError> {
    let after: Vec<Vec<usize>> = tasks
        .iter()
        .map(|planned_task| planned_task.after.clone())
        .collect();
    let layers = regatta_core::graph::layers(tasks.len(), &after, |_, _| false).map_err(|_| {
        internal_error(
            "tasks of the plan wait for each other in a circle, which the plan check missed",
        )
    })?;
    let mut order: Vec<usize> = (0..tasks.len()).collect();
    order.sort_by_key(|index| (layers[*index], *index));
    let mut ids: Vec<Option<TaskId>> = vec![None; tasks.len()];
    for at in order {
        let planned_task_fields = &tasks[at].task;
        let call = call::TaskAdd(input::TaskAdd {
            project: start.project.clone(),
            subject: planned_task_fields.subject.clone(),
            description: planned_task_fields.description.clone(),
            issue_type: planned_task_fields.issue_type,
            files: planned_task_fields.files.clone(),
            validation: planned_task_fields.validation.clone(),
            blocked_by: tasks[at].after.iter().filter_map(|on| ids[*on]).collect(),
            priority: planned_task_fields.priority,
            expects: planned_task_fields.expects,
            effort: planned_task_fields.effort.clone(),
            provider: planned_task_fields.provider.clone(),
            script: planned_task_fields.script.clone(),
            ratchet: planned_task_fields.ratchet.clone(),
            alias: planned_task_fields.alias.clone(),
            backlog: true,
            assign: None,
            how: AssignMode::Queue,
        });
        let reply: CallReply<TaskView> = client.call(call)?;
        ids[at] = Some(reply.data.task.id);
    }
    Ok(ids.into_iter().flatten().collect())
}

/// Starts a mission with one exploring task (which finds the files that a task will change) for
/// each task in `lacking`, and follows the mission to its end.
fn run_exploration(
    app: &CommandContext,
    client: &Client,
    lacking: &[TaskId],
    project: &ProjectName,
    start: &input::MissionStart,
    events: bool,
) -> Result<(), CommandError> {
    let mut explorers = Vec::new();
    for id in lacking {
        let reply: CallReply<TaskView> =
            client.call(call::TaskExplore(input::IdInput { id: id.to_string() }))?;
        // The exploring task may have been created by an earlier run. If it already belongs to
        // another mission, that mission does the task.
        if reply.data.task.mission.is_none() {
            explorers.push(reply.data.task.id);
        }
    }
    let title: String = format!("Find the files of {}", start.title)
        .chars()
        .take(200)
        .collect();
    let request = input::MissionStart {
        title,
        mode: mission::StartMode::Flow,
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
    let reply: CallReply<MissionView> = client.call(call::MissionStart(request))?;
    let (id, after) = (reply.data.mission.id, reply.revision);
    match run_progress::follow(app, client, reply, after, events)? {
        FollowEnd::Settled | FollowEnd::PersonNeeded => {
            report_tasks_without_files(app, client, id, project)
        }
        FollowEnd::TimedOut => Err(CommandError::Exit(124)),
        FollowEnd::Detached => {
            app.output.print_note(
                "nothing else was started; the tasks are in the backlog (regatta task list)",
            );
            Err(CommandError::Exit(130))
        }
    }
}

/// Prints the tasks whose files were not found. These tasks no longer wait for the exploring task
/// that should find their files, but for a person who lists the files.
fn report_tasks_without_files(
    app: &CommandContext,
    client: &Client,
    mission: MissionId,
    project: &ProjectName,
) -> Result<(), CommandError> {
    let reply: CallReply<MissionView> = client.call(call::MissionShow(input::IdInput {
        id: mission.to_string(),
    }))?;
    let open = open_tasks(client, project)?.data;
    for task in reply
        .data
        .tasks
        .iter()
        .filter(|task| task.at != DisplayState::Landed)
    {
        let Some(explored) = open.iter().find(|task_view| {
            task.task.purpose
                == Purpose::Explore {
                    task: task_view.task.id,
                }
        }) else {
            continue;
        };
        let explored_id = explored.task.id;
        let blocked_by = explored
            .task
            .blocked_by
            .iter()
            .copied()
            .filter(|blocker| *blocker != task.task.id)
            .collect();
        edit_task(
            client,
            explored_id,
            EditTask {
                blocked_by: Some(blocked_by),
                ..EditTask::default()
            },
        )?;
        let why = task
            .task
            .reason
            .as_deref()
            .unwrap_or("no agent looked for them");
        app.output.print_note(&format!(
            "{explored_id} has no files yet: {}; add them: regatta edit {explored_id} --files …",
            first_line(why)
        ));
    }
    Ok(())
}

/// Sends a change of a task to the daemon.
fn edit_task(client: &Client, task: TaskId, edit: EditTask) -> Result<(), CommandError> {
    let _set: CallReply<TaskView> = client.call(call::TaskSet(input::TaskSet {
        task,
        edit,
        script: None,
    }))?;
    Ok(())
}
