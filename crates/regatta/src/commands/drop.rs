//! The command `drop`, which discards a task's finished work instead of landing it.

use clap::Args;
use regatta_api::view::TaskView;
use regatta_api::{call, input};
use regatta_core::ids::TaskId;

use crate::client::CallReply;
use crate::commands::{CommandContext, CommandExamples};
use crate::output::CommandResult;

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples =
    &[("drop", &["regatta drop T7 --because 'no longer needed'"])];

#[derive(Debug, Args)]
pub(crate) struct DropArgs {
    /// Task whose work to discard
    pub(crate) id: TaskId,
    /// Reason, shown to other people and agents
    #[arg(long, value_name = "REASON", default_value = "")]
    pub(crate) because: String,
}

/// Runs `regatta drop`.
pub(crate) fn drop_work(app: &CommandContext, args: DropArgs) -> CommandResult {
    let id = args.id;
    let reply: CallReply<TaskView> = app.call(call::Drop(input::IdWithText {
        id: id.to_string(),
        text: args.because,
    }))?;
    let commit = reply
        .data
        .task
        .submission
        .as_ref()
        .map(|submission| submission.commit.as_str()[..10].to_owned());
    app.output.print_answer(
        "drop",
        &reply.data,
        &[format!("regatta retry {id}"), "regatta status".into()],
        |_| match commit {
            Some(commit) => format!("dropped {id}; its work is kept for thirty days as {commit}\n"),
            None => format!("dropped {id}; it is no longer in the inbox\n"),
        },
    )
}
