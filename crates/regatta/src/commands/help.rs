//! The commands `help` and `version`.

use clap::Args;

use crate::args::EXIT_CODES;
use crate::command_line;
use crate::commands::{CommandContext, CommandExamples};
use crate::output::{CommandResult, usage_error};

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[
    ("version", &["regatta version --json"]),
    ("help", &["regatta help run", "regatta help exit-codes"]),
];

#[derive(Debug, Args)]
pub(crate) struct HelpArgs {
    /// Command to explain, such as run or queue hold, or the topic exit-codes
    pub(crate) topic: Vec<String>,
}

/// Runs `regatta help`.
pub(crate) fn help(app: &CommandContext, topic: &[String]) -> CommandResult {
    if topic == ["exit-codes"] {
        return app.output.print(EXIT_CODES);
    }
    let mut command = command_line::clap_command();
    command.build();
    let mut found = &mut command;
    for name in topic {
        found = found.find_subcommand_mut(name).ok_or_else(|| {
            usage_error(
                format!("there is no command {:?}", topic.join(" ")),
                "list all commands: regatta --help",
            )
        })?;
    }
    let text = found.render_long_help().to_string();
    app.output.print(&format!("{}\n", text.trim_end()))
}

/// Runs `regatta version`.
pub(crate) fn version(app: &CommandContext) -> CommandResult {
    let version = env!("CARGO_PKG_VERSION");
    app.output.print_answer(
        "version",
        &serde_json::json!({ "version": version, "api": 1 }),
        &[],
        |_| format!("regatta {version}\n"),
    )
}
