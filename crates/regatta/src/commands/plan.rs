//! The command `plan check`, which checks a plan file without starting it.

use regatta_core::plural;
use std::path::{Path, PathBuf};

use clap::Subcommand;

use crate::commands::{CommandContext, CommandExamples};
use crate::output::{CommandError, CommandResult};
use crate::plan;

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[("plan check", &["regatta plan check plan.toml"])];

#[derive(Debug, Subcommand)]
pub(crate) enum PlanCommand {
    /// Check a plan and report problems by line and column, without starting it
    Check {
        /// Plan file to check (TOML or JSON); - reads standard input
        file: PathBuf,
    },
}

/// Runs `regatta plan`.
pub(crate) fn plan(app: &CommandContext, command: &PlanCommand) -> CommandResult {
    match command {
        PlanCommand::Check { file } => check_plan_file(app, file),
    }
}

/// Checks a plan file and prints all its problems. Needs neither a daemon nor a repository.
fn check_plan_file(app: &CommandContext, file: &Path) -> CommandResult {
    let (source, found) = plan::check_plan(file)?;
    let next = if found.problems.is_empty() {
        vec![format!("regatta run {}", found.file)]
    } else {
        vec![]
    };
    app.output
        .print_answer("plan.check", &found, &next, |out| {
            let mut text = String::new();
            for diagnostic in &found.problems {
                text += &format!(
                    "{} {}\n",
                    out.paint("error:", "31;1"),
                    source.format_line(diagnostic)
                );
            }
            for diagnostic in &found.warnings {
                text += &format!(
                    "{} {}\n",
                    out.paint("warning:", "33"),
                    source.format_line(diagnostic)
                );
            }
            text + &match (found.problems.len(), found.warnings.len()) {
                (0, 0) => format!(
                    "{}: {}, no problems\n",
                    found.file,
                    plural::count(found.tasks, "task")
                ),
                (0, 1) => {
                    format!(
                        "{}: {}, 1 of them will not start yet\n",
                        found.file,
                        plural::count(found.tasks, "task")
                    )
                }
                (0, n) => {
                    format!(
                        "{}: {}, {n} of them will not start yet\n",
                        found.file,
                        plural::count(found.tasks, "task")
                    )
                }
                (n, _) => format!(
                    "{}: {}; nothing was created\n",
                    found.file,
                    plural::count(n, "error")
                ),
            }
        })?;
    if found.problems.is_empty() {
        Ok(())
    } else {
        Err(CommandError::Exit(2))
    }
}
