//! The command `project`, which lists and removes projects.

use clap::Subcommand;
use regatta_api::view::ProjectView;
use regatta_api::{call, input};
use regatta_core::ids::ProjectName;

use crate::client::CallReply;
use crate::commands::{CommandContext, CommandExamples};
use crate::output::{CommandResult, format_table};

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[
    ("project list", &["regatta project list"]),
    ("project rm", &["regatta project rm shop"]),
];

#[derive(Debug, Subcommand)]
pub(crate) enum ProjectCommand {
    /// List the projects
    List,
    /// Remove a project that has no open work; its repository and history are kept
    #[command(alias = "remove")]
    Rm {
        /// Name of the project to remove, such as shop
        name: ProjectName,
    },
}

impl ProjectCommand {
    /// Returns true if the command only reads the daemon's data.
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(self, ProjectCommand::List)
    }
}

/// Runs `regatta project`.
pub(crate) fn project(app: &CommandContext, command: &ProjectCommand) -> CommandResult {
    if let ProjectCommand::Rm { name } = command {
        let _done = app.call(call::ProjectRm(input::ProjectNameInput {
            name: name.clone(),
        }))?;
        let next = ["regatta init".to_owned()];
        return app.output.print_answer("project.rm", name, &next, |_| {
            format!("removed {name}; its repository and history are kept\n")
        });
    }
    let reply: CallReply<Vec<ProjectView>> = app.call(call::ProjectList(input::EmptyInput {}))?;
    let next = if reply.data.is_empty() {
        vec!["regatta init".into()]
    } else {
        vec![]
    };
    app.output
        .print_answer("project.list", &reply.data, &next, |_| {
            if reply.data.is_empty() {
                return "no projects yet\n".into();
            }
            let mut rows = vec![
                ["NAME", "TRUNK", "TIP", "OPEN", "QUEUE", "PATH"]
                    .map(String::from)
                    .to_vec(),
            ];
            for project in &reply.data {
                let tip = project
                    .tip
                    .as_ref()
                    .map_or("-".into(), |id| id.as_str()[..10].to_owned());
                rows.push(vec![
                    project.name.to_string(),
                    project.trunk.clone(),
                    tip,
                    project.open_tasks.to_string(),
                    project.queue.to_string(),
                    project.path.clone(),
                ]);
            }
            format_table(&rows)
        })
}
