//! The command `completions`, which prints a script that completes `regatta` commands in a shell.

use clap::Args;

use crate::commands::{CommandContext, CommandExamples};
use crate::output::CommandResult;
use crate::{command_line, completion};

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[(
    "completions",
    &["regatta completions bash > ~/.local/share/bash-completion/completions/regatta"],
)];

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// Shell to print the script for
    pub(crate) shell: clap_complete::Shell,
}

/// Runs `regatta completions`.
pub(crate) fn completions(app: &CommandContext, shell: clap_complete::Shell) -> CommandResult {
    if let Some(script) = completion::completion_script(shell) {
        return app.output.print(script);
    }
    let mut script = Vec::new();
    clap_complete::generate(
        shell,
        &mut command_line::public_clap_command(),
        "regatta",
        &mut script,
    );
    app.output.print(&String::from_utf8_lossy(&script))
}
