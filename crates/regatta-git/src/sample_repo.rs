//! Creates small sample repositories for the demo and for tests.

use std::path::Path;

use regatta_engine::ports::git::{Authorship, GitError};

use crate::errors;
use crate::git_command::GitLauncher;

/// Creates a repository at `path` with one commit on the branch `main`. `files` lists paths and
/// contents; a file whose content starts with `#!` is executable.
pub fn make_repo(path: &Path, files: &[(&str, &str)]) -> Result<(), GitError> {
    let to_error =
        |error| errors::io_error("write the files of the sample repository", path, &error);
    std::fs::create_dir_all(path).map_err(to_error)?;
    for (name, text) in files {
        let file = path.join(name);
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder).map_err(to_error)?;
        }
        std::fs::write(&file, text).map_err(to_error)?;
        if text.starts_with("#!") {
            use std::os::unix::fs::PermissionsExt;
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755))
                .map_err(to_error)?;
        }
    }
    let git = GitLauncher::new("/dev/null".into());
    git.in_dir(path, "make a repository")
        .args(["init", "--quiet", "--initial-branch=main"])
        .run_expecting_success()?;
    git.in_dir(path, "stage the first files")
        .args(["add", "--all"])
        .run_expecting_success()?;
    let authorship = Authorship {
        name: "regatta demo".into(),
        email: "demo@regatta.invalid".into(),
        message: String::new(),
        unix_seconds: 1_700_000_000,
    };
    git.in_dir(path, "make the first commit")
        .authorship(&authorship)
        .args(["commit", "--quiet", "--no-verify", "--message=Start"])
        .run_expecting_success()?;
    Ok(())
}

/// Returns the newest `count` commits as the text graph that `git log` draws.
pub fn commit_graph(path: &Path, count: usize) -> Result<String, GitError> {
    let git = GitLauncher::new("/dev/null".into());
    let output = git
        .in_dir(path, "draw the history")
        .args(["log", "--graph", "--no-color", "--format=%h %s (%an)"])
        .arg(format!("--max-count={count}"))
        .run_expecting_success()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
