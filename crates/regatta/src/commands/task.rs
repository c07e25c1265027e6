//! The command `task`, which lists and changes single tasks. Other commands use its helpers to
//! print tasks.

mod beads;

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use regatta_api::view::{GrantedAttempt, TaskView};
use regatta_api::{call, input};
use regatta_core::display::ProgramActivity;
use regatta_core::ids::{AgentName, AttemptId, TaskId};
use regatta_core::task::{AssignMode, Expects, IssueType, TaskStatus, Validation};
use serde::Serialize;

use crate::client::CallReply;
use crate::commands::add::{TaskAddArgs, add};
use crate::commands::assign::{AssignArgs, assign};
use crate::commands::edit::{TaskEditArgs, edit};
use crate::commands::{CommandContext, CommandExamples};
use crate::output::{
    CommandError, CommandResult, Output, first_line, format_age, format_table, internal_error,
    usage_error,
};
use crate::plan;
use crate::settings::duration_ms;

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[
    (
        "task add",
        &["regatta task add 'Write the changelog' --type docs --files CHANGELOG.md"],
    ),
    (
        "task list",
        &[
            "regatta task list --status pending,in_progress",
            "regatta task list --all --json",
        ],
    ),
    ("task show", &["regatta task show T7"]),
    ("task set", &["regatta task set T7 --priority 0"]),
    ("task assign", &["regatta task assign T7 claude-1 --offer"]),
    ("task accept", &["regatta task accept T7 --as ann"]),
    ("task reject", &["regatta task reject T7 --as ann"]),
    ("task cancel", &["regatta task cancel T7 -m 'done by hand'"]),
    ("task poll", &["regatta task poll --as ann --wait 30s"]),
    (
        "task progress",
        &["regatta task progress T7 'half way' --attempt A9 --token 412"],
    ),
    (
        "task finish",
        &["regatta task finish T7 --attempt A9 --token 412 --output 'added the form'"],
    ),
    (
        "task fail",
        &["regatta task fail T7 --attempt A9 --token 412 -m 'the API is missing'"],
    ),
    (
        "task import",
        &[
            "regatta task import plan.toml",
            "regatta task import --beads .beads/issues.jsonl",
        ],
    ),
    (
        "task export",
        &[
            "regatta task export",
            "regatta task export --beads .beads/issues.jsonl",
        ],
    ),
];

#[derive(Debug, Subcommand)]
pub(crate) enum TaskCommand {
    /// Add a task
    Add(Box<TaskAddArgs>),
    /// List the open tasks of the project
    List {
        /// List ended tasks too
        #[arg(long)]
        all: bool,
        /// List only tasks with these statuses, such as pending,in_progress
        #[arg(long, value_delimiter = ',')]
        status: Vec<String>,
        /// List only tasks of this mission, such as M3
        #[arg(long)]
        mission: Option<String>,
        /// Maximum number of tasks to list; 0 lists all
        #[arg(long, default_value_t = 0)]
        limit: usize,
    },
    /// Show a task
    Show {
        /// Task to show, such as T7
        id: String,
    },
    /// Change a task
    Set(Box<TaskEditArgs>),
    /// Assign a task to an agent
    Assign(AssignArgs),
    /// Accept a task that was offered to an agent
    Accept {
        /// Offered task to accept
        id: TaskId,
        /// Agent to act as
        #[arg(long = "as", value_name = "NAME")]
        agent: AgentName,
    },
    /// Decline a task that was offered to an agent
    Reject {
        /// Offered task to decline
        id: TaskId,
        /// Agent to act as
        #[arg(long = "as", value_name = "NAME")]
        agent: AgentName,
    },
    /// Cancel a task, so that no agent works on it in the future
    Cancel {
        /// Task to cancel
        id: TaskId,
        /// Reason, shown to other people and agents
        #[arg(short = 'm', long)]
        reason: Option<String>,
    },
    /// Take the next ready task for an agent that Regatta does not start
    Poll {
        /// Agent to act as
        #[arg(long = "as", value_name = "NAME")]
        agent: AgentName,
        /// Maximum time to wait for a task, such as 30s
        #[arg(long, value_name = "DURATION", value_parser = duration_ms, default_value = "0")]
        wait: u64,
        /// Time without a report after which the attempt is ended, such as 10m
        #[arg(long, value_name = "DURATION", value_parser = duration_ms)]
        lease: Option<u64>,
        /// Create no workspace if the task asks only for a report
        #[arg(long)]
        no_workspace: bool,
        /// Take the task to do the work by hand, although Regatta itself starts this agent's
        /// program
        #[arg(long)]
        by_hand: bool,
    },
    /// Report the present activity of an attempt (a run of an agent on a task)
    Progress {
        #[command(flatten)]
        attempt: AttemptArgs,
        /// Present activity of the attempt (run of an agent on a task), in one line
        text: Option<String>,
    },
    /// Finish an attempt (run of an agent on a task) and submit its work
    Finish {
        #[command(flatten)]
        attempt: AttemptArgs,
        /// Summary of the result
        #[arg(long)]
        output: Option<String>,
        /// Report that the task needs no change
        #[arg(long)]
        not_needed: bool,
        /// Fact that the agent learned and that helps later tasks; may be repeated
        #[arg(long = "learned", value_name = "TEXT")]
        learnings: Vec<String>,
    },
    /// Give up an attempt (run of an agent on a task) that cannot finish the task
    Fail {
        #[command(flatten)]
        attempt: AttemptArgs,
        /// Reason why the attempt failed
        #[arg(short = 'm', long)]
        reason: Option<String>,
    },
    /// Add tasks from a plan file or a JSON list, without starting them
    Import {
        /// Plan file to read (TOML or JSON); with --beads, an issue file such as
        /// .beads/issues.jsonl
        file: PathBuf,
        /// Read issues of the issue tracker Beads: add tasks for new issues, and update the tasks
        /// of changed issues
        #[arg(long)]
        beads: bool,
    },
    /// Print the open tasks of the project as a plan file
    Export {
        /// Export ended tasks too
        #[arg(long)]
        all: bool,
        /// Print the tasks in the format of the issue tracker Beads
        #[arg(long)]
        beads: bool,
        /// Issue file of the issue tracker Beads to update (default: print the issues); other fields
        /// in the file are kept
        #[arg(requires = "beads")]
        file: Option<PathBuf>,
    },
}

impl TaskCommand {
    /// Returns true if the command only reads the daemon's data.
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(self, TaskCommand::List { .. } | TaskCommand::Show { .. })
    }
}

#[derive(Debug, Args)]
pub(crate) struct AttemptArgs {
    /// Task of the attempt
    pub(crate) id: TaskId,
    /// Attempt (run of an agent on a task) that reports, such as A5
    #[arg(long, env = "REGATTA_ATTEMPT", hide_env = true)]
    pub(crate) attempt: AttemptId,
    /// Token of the attempt, as regatta task poll printed it
    #[arg(long, env = "REGATTA_ATTEMPT_TOKEN", hide_env = true)]
    pub(crate) token: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TaskTypeArg {
    Feature,
    Bug,
    Task,
    Docs,
    Chore,
    Ci,
}

impl From<TaskTypeArg> for IssueType {
    fn from(task_type_arg: TaskTypeArg) -> IssueType {
        match task_type_arg {
            TaskTypeArg::Feature => IssueType::Feature,
            TaskTypeArg::Bug => IssueType::Bug,
            TaskTypeArg::Task => IssueType::Task,
            TaskTypeArg::Docs => IssueType::Docs,
            TaskTypeArg::Chore => IssueType::Chore,
            TaskTypeArg::Ci => IssueType::Ci,
        }
    }
}

pub(crate) fn parse_manifest(
    files: &[String],
) -> Result<Vec<regatta_core::pattern::PathPattern>, CommandError> {
    plan::expand_patterns(files).map_err(|message| {
        usage_error(
            message,
            "write the files as paths relative to the top of the repository, such as \
             src/a.rs,web/**",
        )
    })
}

/// Prints the effect of a command on a task (`verb`), the task's new state, and the reason why the
/// task waits.
pub(crate) fn print_task(
    app: &CommandContext,
    kind: &str,
    task: &TaskView,
    verb: &str,
) -> CommandResult {
    let next = [
        format!("regatta show {}", task.task.id),
        format!("regatta why {}", task.task.id),
    ];
    app.output.print_answer(kind, task, &next, |out| {
        let mut text = format!(
            "{verb} {} \"{}\"  {}\n",
            task.task.id,
            first_line(&task.task.subject),
            out.format_state(task.at, &task.word)
        );
        if let Some(reason) = task.waits.first() {
            text += &format!("  {}\n", first_line(&reason.text));
        }
        text
    })
}

/// Runs `regatta task`.
pub(crate) fn task(app: &CommandContext, command: TaskCommand) -> CommandResult {
    match command {
        TaskCommand::Add(task_add_args) => add(app, *task_add_args),
        TaskCommand::Set(task_edit_args) => edit(app, *task_edit_args),
        TaskCommand::Assign(assign_args) => assign(app, assign_args),
        TaskCommand::Show { id } => crate::commands::show::show(app, &id),
        TaskCommand::List {
            all,
            status,
            mission,
            limit,
        } => list_tasks(app, all, &status, mission, limit),
        TaskCommand::Accept { id, agent } => {
            let reply: CallReply<TaskView> =
                app.call(call::TaskAccept(input::OfferReply { task: id, agent }))?;
            print_task(app, "task.accept", &reply.data, "accepted")
        }
        TaskCommand::Reject { id, agent } => {
            let reply: CallReply<TaskView> =
                app.call(call::TaskReject(input::OfferReply { task: id, agent }))?;
            print_task(app, "task.reject", &reply.data, "declined")
        }
        TaskCommand::Cancel { id, reason } => {
            let reply: CallReply<TaskView> =
                app.call(call::TaskCancel(input::TaskCancel { task: id, reason }))?;
            print_task(app, "task.cancel", &reply.data, "cancelled")
        }
        TaskCommand::Poll {
            agent,
            wait,
            lease,
            no_workspace,
            by_hand,
        } => {
            let client = app.client()?;
            let project = app.project(&client)?;
            let workspace = !no_workspace;
            let request = input::TaskPoll {
                agent,
                project,
                wait_ms: wait,
                lease_ms: lease,
                workspace,
                by_hand,
            };
            let reply: CallReply<Option<GrantedAttempt>> = client.call(call::TaskPoll(request))?;
            app.output
                .print_answer("task.poll", &reply.data, &[], |_| match &reply.data {
                    None => "nothing to do\n".into(),
                    Some(granted_attempt) => {
                        let workspace_line = granted_attempt
                            .workspace
                            .as_deref()
                            .map_or(String::new(), |workspace| {
                                format!("\nworkspace {workspace}")
                            });
                        format!(
                            "{} \"{}\"\nattempt {} token {}{workspace_line}\n",
                            granted_attempt.task.task.id,
                            first_line(&granted_attempt.task.task.subject),
                            granted_attempt.attempt,
                            granted_attempt.token
                        )
                    }
                })
        }
        TaskCommand::Progress {
            attempt: AttemptArgs { id, attempt, token },
            text,
        } => {
            let call = call::TaskProgress(input::TaskProgress {
                task: id,
                attempt,
                token,
                text: text.unwrap_or_default(),
            });
            let reply: CallReply<TaskView> = app.call(call)?;
            print_task(app, "task.progress", &reply.data, "noted")
        }
        TaskCommand::Finish {
            attempt: AttemptArgs { id, attempt, token },
            output,
            not_needed,
            learnings,
        } => {
            let finish = input::TaskFinish {
                task: id,
                attempt,
                token,
                output,
                not_needed,
                learnings,
            };
            let reply: CallReply<TaskView> = app.call(call::TaskFinish(finish))?;
            print_task(app, "task.finish", &reply.data, "finished")
        }
        TaskCommand::Fail {
            attempt: AttemptArgs { id, attempt, token },
            reason,
        } => {
            let reply: CallReply<TaskView> = app.call(call::TaskFail(input::TaskFail {
                task: id,
                attempt,
                token,
                reason,
            }))?;
            print_task(app, "task.fail", &reply.data, "failed")
        }
        TaskCommand::Import { file, beads: true } => {
            crate::commands::task::beads::import(app, &file)
        }
        TaskCommand::Import { file, beads: false } => import_plan(app, &file),
        TaskCommand::Export {
            all,
            beads: true,
            file,
        } => crate::commands::task::beads::export(app, all, file.as_deref()),
        TaskCommand::Export { all, .. } => export_plan(app, all),
    }
}

fn list_tasks(
    app: &CommandContext,
    all: bool,
    status: &[String],
    mission: Option<String>,
    limit: usize,
) -> CommandResult {
    let status: Result<Vec<TaskStatus>, CommandError> = status
        .iter()
        .map(|text| {
            let found = TaskStatus::ALL
                .into_iter()
                .find(|task_status| task_status.name() == text);
            found.ok_or_else(|| {
                usage_error(
                    format!("{text:?} is not a status of a task"),
                    format!(
                        "use one of these statuses: {}",
                        TaskStatus::ALL.map(TaskStatus::name).join(", ")
                    ),
                )
            })
        })
        .collect();
    let client = app.client()?;
    let call = call::TaskList(input::TaskList {
        project: app.project(&client)?,
        mission,
        status: status?,
        all,
        limit,
    });
    let reply: CallReply<Vec<TaskView>> = client.call(call)?;
    let next = if reply.data.is_empty() {
        vec!["regatta add SUBJECT --files src/**".into()]
    } else {
        vec![]
    };
    app.output
        .print_answer("task.list", &reply.data, &next, |out| {
            if reply.data.is_empty() {
                "no tasks\n".into()
            } else {
                format_table(&task_rows(out, &reply.data))
            }
        })
}

/// Returns the rows of a task table: id, state, subject, agent, age, and the present activity of
/// the task or the reason why it waits.
pub(crate) fn task_rows(out: &Output, tasks: &[TaskView]) -> Vec<Vec<String>> {
    tasks
        .iter()
        .map(|task| {
            let agent = task
                .task
                .agent
                .as_ref()
                .or(task.task.assignee.as_ref())
                .map_or("-".into(), ToString::to_string);
            vec![
                task.task.id.to_string(),
                out.format_state(task.at, &task.word),
                first_line(&task.task.subject),
                agent,
                format_age(task.task.updated_unix_ms),
                activity_cell(task),
            ]
        })
        .collect()
}

/// Returns the last cell of a task's row: the present activity of the task's program, the reason
/// why the task waits, or how the task ended.
pub(crate) fn activity_cell(view: &TaskView) -> String {
    let task = &view.task;
    if task.status.is_running() {
        return match (view.activity, view.live.as_deref(), view.quiet_wall) {
            (_, Some(live), Some(since)) => format!("{live} for {}", format_age(since)),
            (None | Some(ProgramActivity::InTurn), ..) => first_line(&task.progress),
            (Some(_), Some(live), None) => first_line(live),
            (Some(activity), None, _) => activity.label().to_owned(),
        };
    }
    match view.waits.first() {
        Some(reason) => first_line(&reason.text),
        None => task.landed.as_ref().map_or_else(
            || first_line(task.reason.as_deref().unwrap_or_default()),
            |id| id.as_str()[..10].to_owned(),
        ),
    }
}

/// Runs `regatta task import`: creates a plan's tasks without starting them. A task that was
/// already imported under the same name stays unchanged, so importing a plan twice changes nothing.
fn import_plan(app: &CommandContext, file: &std::path::Path) -> CommandResult {
    let plan = plan::read_plan(file)?;
    let client = app.client()?;
    let project = app.project(&client)?;
    let known: CallReply<Vec<TaskView>> = client.call(call::TaskList(input::TaskList {
        project: project.clone(),
        mission: None,
        status: vec![],
        all: true,
        limit: 0,
    }))?;
    let on_board = |alias: &str| {
        known
            .data
            .iter()
            .find(|task| task.task.alias.as_deref() == Some(alias))
            .map(|task| task.task.id)
    };
    let depends_on: Vec<Vec<usize>> = plan
        .tasks
        .iter()
        .map(|planned_task| planned_task.after.clone())
        .collect();
    let layers =
        regatta_core::graph::layers(plan.tasks.len(), &depends_on, |_, _| false).map_err(|_| {
            internal_error(
                "tasks of the plan wait for each other in a circle, which the plan check missed",
            )
        })?;
    let mut order: Vec<usize> = (0..plan.tasks.len()).collect();
    order.sort_by_key(|index| (layers[*index], *index));
    let mut ids: Vec<Option<TaskId>> = vec![None; plan.tasks.len()];
    let (mut added, mut existing) = (Vec::new(), Vec::new());
    for index in order {
        if let Some(id) = on_board(&plan.names[index]) {
            ids[index] = Some(id);
            existing.push(id);
            continue;
        }
        let planned_task_fields = &plan.tasks[index].task;
        let call = call::TaskAdd(input::TaskAdd {
            project: project.clone(),
            subject: planned_task_fields.subject.clone(),
            description: planned_task_fields.description.clone(),
            issue_type: planned_task_fields.issue_type,
            files: planned_task_fields.files.clone(),
            validation: planned_task_fields.validation.clone(),
            blocked_by: plan.tasks[index]
                .after
                .iter()
                .filter_map(|blocker| ids[*blocker])
                .collect(),
            priority: planned_task_fields.priority,
            expects: planned_task_fields.expects,
            effort: planned_task_fields.effort.clone(),
            provider: planned_task_fields.provider.clone(),
            script: planned_task_fields.script.clone(),
            ratchet: planned_task_fields.ratchet.clone(),
            alias: planned_task_fields.alias.clone(),
            backlog: false,
            assign: planned_task_fields.assign.clone(),
            how: AssignMode::Queue,
        });
        let reply: CallReply<TaskView> = client.call(call)?;
        ids[index] = Some(reply.data.task.id);
        added.push(reply.data.task.id);
    }
    let data = serde_json::json!({ "added": added, "there": existing });
    app.output
        .print_answer("task.import", &data, &["regatta task list".into()], |_| {
            format!(
                "added {}, {} already existed\n",
                added.len(),
                existing.len()
            )
        })
}

/// A task as `task export` writes it, with the field names of a plan file.
#[derive(Serialize)]
struct ExportedTask {
    id: String,
    subject: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    description: String,
    issue_type: IssueType,
    files: Vec<String>,
    validation: Validation,
    blocked_by: Vec<String>,
    priority: u8,
    expects: Expects,
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<AgentName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    script: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratchet: Option<Vec<String>>,
}

/// Runs `regatta task export`, which prints the project's tasks as a plan file.
fn export_plan(app: &CommandContext, all: bool) -> CommandResult {
    let client = app.client()?;
    let call = call::TaskList(input::TaskList {
        project: app.project(&client)?,
        mission: None,
        status: vec![],
        all,
        limit: 0,
    });
    let reply: CallReply<Vec<TaskView>> = client.call(call)?;
    let exported: Vec<TaskId> = reply.data.iter().map(|task| task.task.id).collect();
    let name_of = |id: TaskId| {
        reply
            .data
            .iter()
            .find(|task| task.task.id == id)
            .and_then(|task| task.task.alias.clone())
            .unwrap_or_else(|| id.to_string())
    };
    let tasks: Vec<ExportedTask> = reply
        .data
        .iter()
        .map(|task| ExportedTask {
            id: name_of(task.task.id),
            subject: task.task.subject.clone(),
            description: task.task.description.clone(),
            issue_type: task.task.issue_type,
            files: task.task.files.iter().map(ToString::to_string).collect(),
            validation: task.task.validation.clone(),
            // Leave out blockers that are not exported, because the plan file could not refer to
            // them.
            blocked_by: task
                .task
                .blocked_by
                .iter()
                .filter(|id| exported.contains(id))
                .map(|id| name_of(*id))
                .collect(),
            priority: task.task.priority,
            expects: task.task.expects(),
            effort: task.task.effort.clone(),
            agent: task.task.assignee.clone(),
            provider: task.task.provider.clone(),
            script: task
                .task
                .script
                .as_deref()
                .and_then(|script| serde_json::from_str(script).ok()),
            ratchet: task.task.ratchet.clone(),
        })
        .collect();
    #[derive(Serialize)]
    struct ExportFile {
        task: Vec<ExportedTask>,
    }
    let file = ExportFile { task: tasks };
    let text = toml::to_string(&file)
        .map_err(|error| internal_error(format!("could not encode the tasks as TOML: {error}")))?;
    app.output.print_answer("task.export", &file, &[], |_| text)
}
