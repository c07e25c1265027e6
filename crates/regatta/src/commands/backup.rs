//! The command `backup`, which copies the daemon's database to a file.

use std::path::{Path, PathBuf};

use clap::Args;
use regatta_api::{call, input};

use crate::client::CallReply;
use crate::commands::{CommandContext, CommandExamples};
use crate::output::{CommandResult, usage_error};

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[("backup", &["regatta backup fleet.db"])];

#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    /// File to create, which must not exist yet
    pub(crate) file: PathBuf,
}

/// Runs `regatta backup`. The daemon writes the file.
pub(crate) fn backup(app: &CommandContext, file: &Path) -> CommandResult {
    let file = std::path::absolute(file).map_err(|error| {
        usage_error(
            format!(
                "the backup cannot be written to {}: {error}",
                file.display()
            ),
            "name a file that does not exist yet",
        )
    })?;
    let path = file
        .to_str()
        .ok_or_else(|| {
            usage_error(
                "the name of the backup file is not valid UTF-8",
                "choose another name",
            )
        })?
        .to_owned();
    let reply: CallReply<String> = app.call(call::Backup(input::FileInput { path }))?;
    let data = serde_json::json!({ "file": reply.data, "revision": reply.revision });
    app.output.print_answer("backup", &data, &[], |_| {
        format!("wrote {} at revision {}\n", reply.data, reply.revision)
    })
}
