//! Checks that the crates can be published, without publishing them.

use std::path::Path;
use std::process::Command;

use super::tools::run;

/// Crates that only this repository uses.
const PRIVATE: [&str; 2] = ["xtask", "regatta-testkit"];

/// Packs every public crate and builds it from its own archive, in the order of their needs.
pub(crate) fn dry_run(root: &Path, with_changes: bool) -> anyhow::Result<()> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args(["publish", "--dry-run", "--locked", "--workspace"])
        .current_dir(root);
    for name in PRIVATE {
        command.args(["--exclude", name]);
    }
    if with_changes {
        command.arg("--allow-dirty");
    }
    run(&mut command)
}
