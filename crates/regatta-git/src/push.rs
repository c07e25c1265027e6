//! Pushes the trunk and Regatta's own branches to the user's remotes.
//!
//! Git runs with the user's configuration, credentials, SSH setup and proxies, which no agent can
//! change. Regatta never pushes the trunk by force, and git never asks for input.

use regatta_core::ids::{BranchName, CommitId};
use regatta_engine::ports::git::{GitError, ProjectRepo, PushResult};

use crate::user_repo::UserRepo;
use crate::vault::FETCH_OPTIONS;
use crate::{GitAdapter, errors};

impl GitAdapter {
    /// Pushes a commit of the trunk to the branch of the same name at a remote.
    pub(crate) fn push_trunk(
        &self,
        repo: &ProjectRepo,
        remote: &str,
        commit: &CommitId,
    ) -> Result<PushResult, GitError> {
        let user = self.discover_at(&repo.path)?;
        if let Err(reason) = self.check_remote_name(&user, remote)? {
            return Ok(PushResult::Failed(reason));
        }
        let output = self
            .git
            .in_checkout_online(&user.top, "push the trunk")
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
        if output.status == Some(0) {
            return Ok(PushResult::Pushed);
        }
        let printed = String::from_utf8_lossy(&output.stdout);
        let refused = printed
            .lines()
            .find(|line| line.starts_with("!\t"))
            .unwrap_or_default();
        if refused.contains("fetch first") {
            return Ok(PushResult::NonFastForward); // the remote has commits that are not here
        }
        if refused.contains("non-fast-forward") {
            let ahead = self.is_remote_ahead(&user, repo, remote, commit)?;
            return Ok(if ahead {
                PushResult::Pushed
            } else {
                PushResult::NonFastForward
            });
        }
        Ok(PushResult::Failed(errors::push_failed(
            remote,
            refused,
            &output.stderr,
        )))
    }

    /// Pushes a branch of Regatta by force, because Regatta replaces the commits of such a branch
    /// after every turn of the agent. Only Regatta uses branches named `regatta/…`.
    pub(crate) fn force_push_branch(
        &self,
        repo: &ProjectRepo,
        remote: &str,
        branch: &BranchName,
        commit: &CommitId,
    ) -> Result<PushResult, GitError> {
        if !branch.as_str().starts_with("regatta/") {
            return Ok(PushResult::Failed(format!(
                "Regatta did not push {branch}, because it may force-push only branches named regatta/…"
            )));
        }
        let user = self.discover_at(&repo.path)?;
        if let Err(reason) = self.check_remote_name(&user, remote)? {
            return Ok(PushResult::Failed(reason));
        }
        let vault = self.layout.vault(&repo.project);
        let fetch = self
            .git
            .in_vault(&user.common_dir, "copy the branch into your repository");
        fetch
            .args(FETCH_OPTIONS)
            .arg(&vault)
            .arg(commit.as_str())
            .run_expecting_success()?;
        let output = self
            .git
            .in_checkout_online(&user.top, "push the branch")
            .args([
                "push",
                "--porcelain",
                "--no-follow-tags",
                "--no-recurse-submodules",
                "--no-verify",
                "--end-of-options",
            ])
            .arg(remote)
            .arg(format!("+{commit}:refs/heads/{branch}"))
            .run()?;
        if output.status == Some(0) {
            return Ok(PushResult::Pushed);
        }
        let printed = String::from_utf8_lossy(&output.stdout);
        let refused = printed
            .lines()
            .find(|line| line.starts_with("!\t"))
            .unwrap_or_default();
        Ok(PushResult::Failed(errors::push_failed(
            remote,
            refused,
            &output.stderr,
        )))
    }

    /// Checks that the user's repository has a remote with this name. Refuses an address or a path
    /// in place of a name, because git would run the program that some addresses name.
    pub(crate) fn check_remote_name(
        &self,
        user: &UserRepo,
        remote: &str,
    ) -> Result<Result<(), String>, GitError> {
        let remotes = self
            .git
            .in_checkout(&user.top, "list your remotes")
            .arg("remote")
            .run_for_line()?;
        let exists = remotes.lines().any(|name| name == remote);
        Ok(if exists {
            Ok(())
        } else {
            Err(errors::no_such_remote(remote, &user.top))
        })
    }

    /// Returns whether the remote's branch is at a descendant of the commit, so that nothing must
    /// be pushed.
    fn is_remote_ahead(
        &self,
        user: &UserRepo,
        repo: &ProjectRepo,
        remote: &str,
        commit: &CommitId,
    ) -> Result<bool, GitError> {
        let name = format!("refs/heads/{}", repo.trunk);
        let call = self
            .git
            .in_checkout_online(&user.top, "read the remote's branch");
        let output = call
            .args(["ls-remote", "--end-of-options"])
            .arg(remote)
            .arg(name)
            .run()?;
        let remote_tip = String::from_utf8_lossy(&output.stdout)
            .split_whitespace()
            .next()
            .map(CommitId::new);
        let Some(Ok(remote_tip)) = remote_tip else {
            return Ok(false);
        };
        let call = self
            .git
            .in_vault(&user.common_dir, "compare with the remote");
        Ok(call
            .args([
                "merge-base",
                "--is-ancestor",
                commit.as_str(),
                remote_tip.as_str(),
            ])
            .run()?
            .status
            == Some(0))
    }
}
