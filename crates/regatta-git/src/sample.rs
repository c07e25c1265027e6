//! A small sample repository for the demo and for tests.

use std::path::Path;

use regatta_engine::ports::git::{Authorship, GitError};

use crate::run::Runner;
use crate::words;

/// Creates a repository at `path` with one commit of `files` on the branch `main`. Files that start
/// with `#!` are executable.
pub fn make(path: &Path, files: &[(&str, &str)]) -> Result<(), GitError> {
    let io = |error| words::io("write the files of", path, &error);
    std::fs::create_dir_all(path).map_err(io)?;
    for (name, text) in files {
        let file = path.join(name);
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder).map_err(io)?;
        }
        std::fs::write(&file, text).map_err(io)?;
        if text.starts_with("#!") {
            use std::os::unix::fs::PermissionsExt;
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).map_err(io)?;
        }
    }
    let git = Runner::new("/dev/null".into());
    git.ours_in(path, "make a repository").args(["init", "--quiet", "--initial-branch=main"]).done()?;
    git.ours_in(path, "stage the first files").args(["add", "--all"]).done()?;
    let by = Authorship {
        name: "regatta demo".into(),
        email: "demo@regatta.invalid".into(),
        message: String::new(),
        seconds: 1_700_000_000,
    };
    git.ours_in(path, "make the first commit")
        .authorship(&by)
        .args(["commit", "--quiet", "--no-verify", "--message=Start"])
        .done()?;
    Ok(())
}

/// Returns the graph of the newest `count` commits, as `git log` draws it.
pub fn graph(path: &Path, count: usize) -> Result<String, GitError> {
    let git = Runner::new("/dev/null".into());
    let said = git
        .ours_in(path, "draw the history")
        .args(["log", "--graph", "--no-color", "--format=%h %s (%an)"])
        .arg(format!("--max-count={count}"))
        .done()?;
    Ok(String::from_utf8_lossy(&said.stdout).into_owned())
}
