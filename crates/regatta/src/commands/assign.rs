//! The command `assign`, which gives a task to an agent. `task assign` is the same command.

use clap::Args;
use regatta_api::view::TaskView;
use regatta_api::{call, input};
use regatta_core::ids::{AgentName, TaskId};
use regatta_core::task::AssignMode;

use crate::client::CallReply;
use crate::commands::task::print_task;
use crate::commands::{CommandContext, CommandExamples};
use crate::output::CommandResult;

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[(
    "assign",
    &["regatta assign T7 claude-1", "regatta assign T7"],
)];

#[derive(Debug, Args)]
pub(crate) struct AssignArgs {
    /// Task to assign
    pub(crate) id: TaskId,
    /// Agent that gets the task; omit the agent to remove the assignment
    pub(crate) agent: Option<AgentName>,
    /// Offer the task to the agent, which may decline the task
    #[arg(long, requires = "agent", conflicts_with = "queue")]
    pub(crate) offer: bool,
    /// Add the task to the agent's queue, even if the queue is full
    #[arg(long, requires = "agent")]
    pub(crate) queue: bool,
}

pub(crate) fn assign_mode(offer: bool, queue: bool) -> AssignMode {
    match (offer, queue) {
        (true, _) => AssignMode::Offer,
        (_, true) => AssignMode::Queue,
        _ => AssignMode::Direct,
    }
}

/// Runs `regatta assign`.
pub(crate) fn assign(app: &CommandContext, args: AssignArgs) -> CommandResult {
    let verb = if args.agent.is_some() {
        "assigned"
    } else {
        "unassigned"
    };
    let reply: CallReply<TaskView> = app.call(call::TaskAssign(input::TaskAssign {
        task: args.id,
        to: args.agent,
        how: assign_mode(args.offer, args.queue),
    }))?;
    print_task(app, "task.assign", &reply.data, verb)
}
