//! The command `restore`, which replaces the daemon's database by a copy that `regatta backup`
//! wrote.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::client::Client;
use crate::commands::{CommandContext, CommandExamples};
use crate::composition;
use crate::output::{CommandResult, command_error};

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[("restore", &["regatta restore fleet.db"])];

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// File that regatta backup wrote
    pub(crate) file: PathBuf,
}

/// Runs `regatta restore`. This process replaces the database itself, so no daemon may use the
/// database.
pub(crate) fn restore(app: &CommandContext, file: &Path) -> CommandResult {
    let data_dir = app.data_dir()?;
    if Client::find(&data_dir, app.timeout())?.is_some() {
        return Err(command_error(
            "in_use",
            "the daemon is running and uses the database that would be replaced",
            "stop the daemon first: regatta down",
        ));
    }
    crate::daemon::DataDir::new(&data_dir).create()?;
    let unreadable: Vec<String> = composition::restore_store(file, &data_dir)?
        .iter()
        .map(ToString::to_string)
        .collect();
    let data = serde_json::json!({
        "file": file.display().to_string(),
        "data_dir": data_dir.display().to_string(),
        "unreadable": unreadable,
    });
    app.output
        .print_answer("restore", &data, &["regatta up".into()], |_| {
            let backups = data_dir.join("backups");
            let mut text = format!(
                "restored {}; the previous store is in {}\n",
                file.display(),
                backups.display()
            );
            for row in &unreadable {
                text += &format!("! the backup has an unreadable row, which was left out: {row}\n");
            }
            text
        })
}
