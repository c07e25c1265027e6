//! The command `edit`, which changes a task. `task set` is the same command.

use clap::Args;
use regatta_api::view::TaskView;
use regatta_api::{call, input};
use regatta_core::ids::TaskId;
use regatta_core::task::{EditTask, SetPause, Validation};

use crate::client::CallReply;
use crate::commands::task::{TaskTypeArg, parse_manifest, print_task};
use crate::commands::{CommandContext, CommandExamples};
use crate::output::{CommandResult, usage_error};

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[(
    "edit",
    &["regatta edit T7 --files 'src/login/**,docs/login.md' --ready"],
)];

#[derive(Debug, Args)]
pub(crate) struct TaskEditArgs {
    /// Task to change
    pub(crate) id: TaskId,
    /// New subject: one line that describes the work
    #[arg(long)]
    pub(crate) subject: Option<String>,
    /// New details for the agent
    #[arg(short, long)]
    pub(crate) description: Option<String>,
    /// New kind of work
    #[arg(long = "type", value_enum)]
    pub(crate) issue_type: Option<TaskTypeArg>,
    /// New list of files that the task may change, such as src/a.rs,web/**
    #[arg(long, value_name = "PATTERNS", value_delimiter = ',')]
    pub(crate) files: Option<Vec<String>>,
    /// New command that must succeed on the finished work; may be repeated
    #[arg(long, value_name = "CMD")]
    pub(crate) validate: Option<Vec<String>>,
    /// New file that must exist in the finished work; may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) exists: Option<Vec<String>>,
    /// New list of tasks that must land first, such as T1,T2; "" removes all
    #[arg(long, value_name = "TASKS")]
    pub(crate) blocked_by: Option<String>,
    /// New priority: 0 starts first, 9 last
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..=9))]
    pub(crate) priority: Option<u8>,
    /// Pause the task for this reason
    #[arg(long, value_name = "REASON", conflicts_with = "ready")]
    pub(crate) pause: Option<String>,
    /// Let the task start: resume a paused task, or take the task out of the backlog
    #[arg(long)]
    pub(crate) ready: bool,
}

/// Runs `regatta edit`.
pub(crate) fn edit(app: &CommandContext, args: TaskEditArgs) -> CommandResult {
    let blocked_by = match args.blocked_by.as_deref() {
        None => None,
        Some(text) => {
            let ids: Result<Vec<TaskId>, _> = text
                .split(',')
                .map(str::trim)
                .filter(|id| !id.is_empty())
                .map(str::parse)
                .collect();
            Some(ids.map_err(|error| {
                usage_error(
                    error.to_string(),
                    "write the value of --blocked-by as a list of task ids, such as T1,T2",
                )
            })?)
        }
    };
    let paused = match (args.pause, args.ready) {
        (Some(reason), _) => Some(SetPause::Pause(reason)),
        (None, true) => Some(SetPause::Resume),
        (None, false) => None,
    };
    let mut edit = EditTask {
        subject: args.subject,
        description: args.description,
        issue_type: args.issue_type.map(Into::into),
        files: args.files.map(|files| parse_manifest(&files)).transpose()?,
        validation: None,
        blocked_by,
        priority: args.priority,
        script: None,
        paused,
        backlog: None,
    };
    let client = app.client()?;
    if args.ready || args.validate.is_some() || args.exists.is_some() {
        let now = client.show_task(args.id)?;
        edit.backlog = (args.ready && now.task.status.is_in_backlog()).then_some(false);
        // The daemon replaces all checks of a task at once, so send the old checks too, unless the
        // person has changed them.
        let old = now.task.validation;
        let new = Validation {
            tests: args.validate.unwrap_or_else(|| old.tests.clone()),
            files_exist: args.exists.unwrap_or_else(|| old.files_exist.clone()),
            ..old.clone()
        };
        edit.validation = (new != old).then_some(new);
    }
    let reply: CallReply<TaskView> = client.call(call::TaskSet(input::TaskSet {
        task: args.id,
        edit,
        script: None,
    }))?;
    print_task(app, "task.set", &reply.data, "changed")
}
