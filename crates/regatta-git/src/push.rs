//! Pushes the trunk to one of the user's remotes.
//!
//! Under the user's configuration, as they would push themselves: their credentials, their SSH, their proxies. An
//! agent can write none of it. Never by force, and never with a prompt.

use regatta_core::ids::CommitId;
use regatta_engine::ports::git::{GitError, Push, Repo};

use crate::{GitAdapter, words};

impl GitAdapter {
    pub(crate) fn push_trunk(&self, repo: &Repo, remote: &str, commit: &CommitId) -> Result<Push, GitError> {
        let user = self.discover_at(&repo.path)?;
        // A remote by its name: an address or a path could name a program to run.
        let known = self.git.users(&user.top, "list your remotes").arg("remote").line()?;
        if !known.lines().any(|it| it == remote) {
            return Ok(Push::Failed(words::no_such_remote(remote, &user.top)));
        }
        let said = self
            .git
            .users_online(&user.top, "push the trunk")
            .args([
                "push",
                "--porcelain",
                "--no-follow-tags",
                "--no-recurse-submodules",
                "--no-verify",
                "--end-of-options",
            ])
            .arg(remote)
            .arg(format!("{commit}:refs/heads/{}", repo.trunk))
            .run()?;
        if said.status == Some(0) {
            return Ok(Push::Pushed);
        }
        let printed = String::from_utf8_lossy(&said.stdout);
        let refused = printed.lines().find(|it| it.starts_with("!\t")).unwrap_or_default();
        // `stale info` is not possible without a lease; the other two say that the remote has what is not here.
        if refused.contains("non-fast-forward") || refused.contains("fetch first") {
            return Ok(Push::NonFastForward);
        }
        Ok(Push::Failed(words::push_failed(remote, refused, &said.stderr)))
    }
}
