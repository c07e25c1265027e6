//! The command `edit`, which `task set` runs too.

use clap::Args;
use regatta_api::view::TaskView;
use regatta_api::{Call, input};
use regatta_core::ids::TaskId;
use regatta_core::task::{EditTask, SetPause, TaskStatus, Validation};

use crate::client::CallReply;
use crate::commands::CommandContext;
use crate::commands::task::{TaskTypeArg, parse_manifest, print_task};
use crate::output::{CommandResult, usage_error};

#[derive(Debug, Args)]
pub(crate) struct TaskEditArgs {
    /// Task to change
    pub(crate) id: TaskId,
    /// Change its subject
    #[arg(long)]
    pub(crate) subject: Option<String>,
    /// Change its description
    #[arg(short, long)]
    pub(crate) description: Option<String>,
    /// Change its kind of work
    #[arg(long = "type", value_enum)]
    pub(crate) issue_type: Option<TaskTypeArg>,
    /// Change the files that it may change
    #[arg(long, value_name = "PATTERNS", value_delimiter = ',')]
    pub(crate) files: Option<Vec<String>>,
    /// Change the commands that must pass
    #[arg(long, value_name = "CMD")]
    pub(crate) validate: Option<Vec<String>>,
    /// Change the files that must exist afterwards
    #[arg(long, value_name = "FILE")]
    pub(crate) exists: Option<Vec<String>>,
    /// Change its blockers; "" removes them
    #[arg(long, value_name = "TASKS")]
    pub(crate) blocked_by: Option<String>,
    /// Change its priority: 0 starts first, 9 last
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..=9))]
    pub(crate) priority: Option<u8>,
    /// Pause the task, with a reason
    #[arg(long, value_name = "REASON", conflicts_with = "ready")]
    pub(crate) pause: Option<String>,
    /// Make the task ready: out of the backlog and not paused
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
            Some(ids.map_err(|error| usage_error(error.to_string(), "write blockers as T1,T2"))?)
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
        let now: CallReply<TaskView> = client.call(&Call::Show(input::IdInput {
            id: args.id.to_string(),
        }))?;
        edit.backlog = (args.ready && now.data.task.status == TaskStatus::Backlog).then_some(false);
        // Checks without an option keep their old value.
        let old = now.data.task.validation;
        let new = Validation {
            tests: args.validate.unwrap_or_else(|| old.tests.clone()),
            files_exist: args.exists.unwrap_or_else(|| old.files_exist.clone()),
            ..old.clone()
        };
        edit.validation = (new != old).then_some(new);
    }
    let reply: CallReply<TaskView> = client.call(&Call::TaskSet(input::TaskSet {
        task: args.id,
        edit,
        script: None,
    }))?;
    print_task(app, "task.set", &reply.data, "changed")
}
