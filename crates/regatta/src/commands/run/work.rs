//! Collects the tasks of a run: new tasks of a plan, or tasks that already wait in the project.

use regatta_api::input::PlannedTask;
use regatta_api::view::TaskView;
use regatta_api::{call, input};
use regatta_core::ids::{ProjectName, TaskId};
use regatta_core::plural;
use regatta_core::project::CommitGrouping;
use regatta_core::schedule::lacks_manifest;

use crate::client::{CallReply, Client};
use crate::commands::CommandContext;
use crate::commands::run::RunArgs;
use crate::commands::run::preview::RunPreview;
use crate::output::{CommandError, command_error, usage_error};
use crate::plan;

/// The tasks of a run that has not started: new tasks (`tasks`), or tasks that already exist in the
/// project (`adopt`).
pub(crate) struct RunWork {
    pub(crate) title: String,
    pub(crate) commits: Option<CommitGrouping>,
    pub(crate) tasks: Vec<PlannedTask>,
    pub(crate) adopt: Vec<TaskId>,
    pub(crate) preview: RunPreview,
    /// Remarks for the person, which are printed before the run starts.
    pub(crate) notes: Vec<String>,
}

/// Returns the tasks of a plan as a run, with a warning about tasks that list no files.
pub(crate) fn work_of_plan(args: &RunArgs, plan: plan::Plan) -> RunWork {
    let preview = RunPreview::from_plan(&plan);
    let lacks = |planned_task: &PlannedTask| {
        lacks_manifest(
            planned_task.task.issue_type,
            planned_task.task.expects,
            &planned_task.task.files,
        )
    };
    let lacking: Vec<String> = plan
        .tasks
        .iter()
        .zip(&plan.names)
        .filter(|task| lacks(task.0))
        .map(|task| task.1.clone())
        .collect();
    let notes = missing_files_note(args, &lacking);
    RunWork {
        title: plan.title,
        commits: plan.commits,
        tasks: plan.tasks,
        adopt: vec![],
        preview,
        notes,
    }
}

/// Returns the waiting tasks of the project that belong to no mission as a run. Fails if there is
/// no such task, or if nobody can confirm the start.
pub(crate) fn work_of_board(
    app: &CommandContext,
    args: &RunArgs,
    open: &[TaskView],
) -> Result<RunWork, CommandError> {
    let free: Vec<&TaskView> = open
        .iter()
        .filter(|task| task.task.mission.is_none() && task.task.status.is_waiting())
        .collect();
    if free.is_empty() {
        return Err(usage_error(
            "no plan was given, and the project has no waiting task",
            "name a plan, or add a task: regatta add SUBJECT --files src/**",
        ));
    }
    let named: Vec<String> = free
        .iter()
        .take(20)
        .map(|task| task.task.id.to_string())
        .collect();
    let more = if free.len() > named.len() { " …" } else { "" };
    let which = format!(
        "{} without a mission: {}{more}",
        plural::count(free.len(), "task"),
        named.join(" ")
    );
    if !args.plan_only && !app.global.yes && !app.can_ask() {
        return Err(usage_error(
            format!("no plan was given, so regatta run would start {which}"),
            "to start these tasks: regatta run --yes; to run a plan: regatta run PLAN.toml",
        ));
    }
    app.output.print_note(&format!("no plan: {which}"));
    let lacking: Vec<String> = free
        .iter()
        .filter(|task| lacks_manifest(task.task.issue_type, task.task.expects(), &task.task.files))
        .map(|task| task.task.id.to_string())
        .collect();
    Ok(RunWork {
        title: "tasks on the board".into(),
        commits: None,
        tasks: vec![],
        adopt: free.iter().map(|task| task.task.id).collect(),
        preview: RunPreview::from_board(&free),
        notes: missing_files_note(args, &lacking),
    })
}

/// Returns the project's tasks that have not ended.
pub(crate) fn open_tasks(
    client: &Client,
    project: &ProjectName,
) -> Result<CallReply<Vec<TaskView>>, CommandError> {
    let filter = input::TaskList {
        project: Some(project.clone()),
        mission: None,
        status: vec![],
        all: false,
        limit: 0,
    };
    client.call(call::TaskList(filter))
}

/// Fails if an entry of the wave file is already an open task, because the work of the entry would
/// be done twice.
pub(crate) fn check_not_on_board(
    work: RunWork,
    open: &[TaskView],
) -> Result<RunWork, CommandError> {
    let alias = |planned_task: &PlannedTask| planned_task.task.alias.clone();
    let there = work.tasks.iter().find_map(|planned_task| {
        open.iter()
            .find(|known| known.task.alias == alias(planned_task))
    });
    match there {
        Some(task) => Err(command_error(
            "already_exists",
            format!(
                "the entry {entry} of the wave file is already an open task: {task}",
                entry = task.task.alias.as_deref().unwrap_or_default(),
                task = task.task.id
            ),
            format!(
                "to see the task: regatta show {task}; to continue: regatta run --resume; to \
                 cancel \
                 the task: regatta task cancel {task}",
                task = task.task.id
            ),
        )),
        None => Ok(work),
    }
}

/// Returns a warning about tasks that list no files, unless `--fill-manifests` will find the files.
fn missing_files_note(args: &RunArgs, names: &[String]) -> Vec<String> {
    if names.is_empty() || args.fill_manifests {
        return vec![];
    }
    vec![format!(
        "warning: {} no files and will not be given to an agent: regatta edit TASK --files …, or \
        --fill-manifests",
        match names {
            [one] => format!("{one} names"),
            many => format!("{} name", many.join(" ")),
        }
    )]
}
