//! The command `undo`, which reverts a task's landed work with a new commit.

use clap::Args;
use regatta_api::view::{LandingView, QueueView, TaskView};
use regatta_api::{call, input};

use crate::client::{CallReply, Client};
use crate::commands::land::print_landing_state;
use crate::commands::{CommandContext, CommandExamples};
use crate::output::{CommandResult, first_line, format_table};
use crate::run_progress;

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples =
    &[("undo", &["regatta undo", "regatta undo T7 --wait"])];

#[derive(Debug, Args)]
pub(crate) struct UndoArgs {
    /// Task whose work to revert, or the landed commit of the task; omit the task to list the work
    /// that can be reverted
    pub(crate) id: Option<String>,
    /// Wait until the revert has landed or has left the queue
    #[arg(long)]
    pub(crate) wait: bool,
}

/// Runs `regatta undo`: reverts a landed task. Without a task, lists the landed work that can be
/// reverted.
pub(crate) fn undo(app: &CommandContext, args: &UndoArgs) -> CommandResult {
    let client = app.client()?;
    let Some(id) = &args.id else {
        return list_undoable(app, &client);
    };
    let reply: CallReply<TaskView> = client.call(call::Undo(input::IdInput { id: id.clone() }))?;
    let undoing = reply.data.task.id;
    if !args.wait {
        app.output
            .print_note(&format!("{undoing} reverts {id} through the same queue"));
    }
    let last = if args.wait {
        run_progress::wait_until_landed(&client, undoing, reply.revision, app.timeout())?
    } else {
        Some(reply.data)
    };
    print_landing_state(app, "undo", last, args.wait)
}

/// Lists the landed work that can be reverted, the latest first.
fn list_undoable(app: &CommandContext, client: &Client) -> CommandResult {
    let project = app.project(client)?;
    let reply: CallReply<Vec<QueueView>> =
        client.call(call::Queue(input::ProjectFilter { project }))?;
    let landed: Vec<&LandingView> = reply
        .data
        .iter()
        .flat_map(|queue| &queue.recent)
        .filter(|landing| landing.commit.is_some() && landing.taken_back_by.is_none())
        .collect();
    let next = landed.first().map_or_else(
        || "regatta status".to_owned(),
        |landing| format!("regatta diff {}", landing.task),
    );
    app.output
        .print_answer("undo.list", &landed, &[next], |out| {
            if landed.is_empty() {
                return "nothing has landed yet\n".into();
            }
            let row = |landing: &&LandingView| {
                let commit = landing
                    .commit
                    .as_ref()
                    .map_or(String::new(), |id| id.as_str()[..10].to_owned());
                vec![
                    landing.task.to_string(),
                    commit,
                    first_line(&landing.subject),
                    landing.agent.to_string(),
                ]
            };
            format_table(&landed.iter().map(row).collect::<Vec<_>>())
                + &out.command("to revert one of them: regatta undo TASK\n")
        })
}
