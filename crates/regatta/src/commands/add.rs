//! The command `add`, which adds a task to the project. `task add` is the same command.

use clap::Args;
use regatta_api::view::TaskView;
use regatta_api::{call, input};
use regatta_core::ids::{AgentName, TaskId};
use regatta_core::task::{Expects, Validation};

use crate::client::CallReply;
use crate::commands::assign::assign_mode;
use crate::commands::task::{TaskTypeArg, parse_manifest, print_task};
use crate::commands::{CommandContext, CommandExamples};
use crate::output::{CommandResult, usage_error};

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[(
    "add",
    &["regatta add 'Fix the login form' --files 'src/login/**' --validate 'cargo test login'"],
)];

#[derive(Debug, Args)]
pub(crate) struct TaskAddArgs {
    /// One line that describes the work
    pub(crate) subject: String,
    /// Kind of work
    #[arg(long = "type", value_enum, default_value_t = TaskTypeArg::Task)]
    pub(crate) issue_type: TaskTypeArg,
    /// Files that the task may change, such as src/a.rs,web/**
    #[arg(long, value_name = "PATTERNS", value_delimiter = ',')]
    pub(crate) files: Vec<String>,
    /// Command that must succeed on the finished work, such as 'cargo test'; may be repeated
    #[arg(long, value_name = "CMD")]
    pub(crate) validate: Vec<String>,
    /// File that must exist in the finished work; may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) exists: Vec<String>,
    /// Tasks that must land before the new task starts, such as T1,T2
    #[arg(long, value_name = "TASKS", value_delimiter = ',')]
    pub(crate) blocked_by: Vec<TaskId>,
    /// Priority: 0 starts first, 9 last
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(0..=9))]
    pub(crate) priority: u8,
    /// Details for the agent
    #[arg(short, long, default_value = "", value_name = "TEXT")]
    pub(crate) description: String,
    /// Ask the agent for a report instead of changed files
    #[arg(long)]
    pub(crate) report: bool,
    /// Steps for the built-in scripted agent, as a JSON array
    #[arg(long, value_name = "JSON")]
    pub(crate) script: Option<String>,
    /// Put the task into the backlog, where no agent takes it
    #[arg(long)]
    pub(crate) backlog: bool,
    /// Assign the task to this agent
    #[arg(long, value_name = "NAME")]
    pub(crate) assign: Option<AgentName>,
    /// Offer the task to the agent of --assign, which may decline the task
    #[arg(long, requires = "assign", conflicts_with = "queue")]
    pub(crate) offer: bool,
    /// Add the task to the agent's queue, even if the queue is full
    #[arg(long, requires = "assign")]
    pub(crate) queue: bool,
}

/// Runs `regatta add`.
pub(crate) fn add(app: &CommandContext, args: TaskAddArgs) -> CommandResult {
    let script: Option<serde_json::Value> = match &args.script {
        None => None,
        Some(text) => {
            regatta_agents::script::parse_script(text).map_err(|error| {
                usage_error(
                    format!("the value of --script is not valid: {error}"),
                    "see the possible steps: regatta schema plan",
                )
            })?;
            serde_json::from_str(text).ok()
        }
    };
    let files = parse_manifest(&args.files)?;
    let client = app.client()?;
    let add = input::TaskAdd {
        project: app.project(&client)?,
        subject: args.subject,
        description: args.description,
        issue_type: args.issue_type.into(),
        files,
        validation: Validation {
            tests: args.validate,
            files_exist: args.exists,
            ..Validation::default()
        },
        blocked_by: args.blocked_by,
        priority: args.priority,
        expects: if args.report {
            Expects::Report
        } else {
            Expects::Changes
        },
        effort: None,
        provider: None,
        script,
        ratchet: None,
        alias: None,
        backlog: args.backlog,
        assign: args.assign,
        how: assign_mode(args.offer, args.queue),
    };
    let reply: CallReply<TaskView> = client.call(call::TaskAdd(add))?;
    print_task(app, "task.add", &reply.data, "added")
}
