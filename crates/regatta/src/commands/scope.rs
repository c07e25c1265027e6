//! The command `scope`, which lists changes that tasks made outside of their declared files.

use clap::{Args, Subcommand};
use regatta_api::view::{EscapeView, TaskView};
use regatta_api::{call, input};

use crate::client::CallReply;
use crate::commands::{CommandContext, CommandExamples};
use crate::output::{CommandResult, first_line, format_table};

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[
    ("scope", &["regatta scope"]),
    ("scope list", &["regatta scope list"]),
    ("scope follow-up", &["regatta scope follow-up T3.1"]),
];

#[derive(Debug, Args)]
pub(crate) struct ScopeArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ScopeCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ScopeCommand {
    /// List scope escapes: changes that tasks made outside of their declared files
    List,
    /// Create a follow-up task for a scope escape (a change outside of a task's declared files)
    FollowUp {
        /// Scope escape (a change outside of a task's declared files) for which to create a task,
        /// such as T3.1
        id: String,
    },
}

/// Runs `regatta scope`.
pub(crate) fn scope(app: &CommandContext, command: Option<ScopeCommand>) -> CommandResult {
    match command {
        None | Some(ScopeCommand::List) => list_escapes(app),
        Some(ScopeCommand::FollowUp { id }) => {
            let reply: CallReply<TaskView> =
                app.call(call::ScopeFollow(input::IdInput { id: id.clone() }))?;
            let task = &reply.data.task;
            app.output.print_answer(
                "scope.follow",
                &reply.data,
                &[format!("regatta show {}", task.id)],
                |_| {
                    format!(
                        "{} is the follow-up task of {id}: {}\n",
                        task.id,
                        first_line(&task.subject)
                    )
                },
            )
        }
    }
}

fn list_escapes(app: &CommandContext) -> CommandResult {
    let client = app.client()?;
    let reply: CallReply<Vec<EscapeView>> = client.call(call::ScopeList(input::ProjectFilter {
        project: app.project(&client)?,
    }))?;
    let open: Vec<String> = reply
        .data
        .iter()
        .filter(|escape| escape.follow_up.is_none())
        .map(|escape| escape.id.clone())
        .collect();
    let next: Vec<String> = open
        .first()
        .map(|id| format!("regatta scope follow-up {id}"))
        .into_iter()
        .collect();
    app.output
        .print_answer("scope.list", &reply.data, &next, |_| {
            if reply.data.is_empty() {
                return "no scope escapes\n".into();
            }
            let rows: Vec<Vec<String>> = reply
                .data
                .iter()
                .map(|escape| {
                    let follow_up = escape
                        .follow_up
                        .map_or(String::new(), |task| format!("follow-up {task}"));
                    let files = escape.escape.suggested_files.join(" ");
                    vec![
                        escape.id.clone(),
                        escape.escape.worker.to_string(),
                        first_line(&escape.escape.finding),
                        first_line(&files),
                        follow_up,
                    ]
                })
                .collect();
            format_table(&rows)
        })
}
