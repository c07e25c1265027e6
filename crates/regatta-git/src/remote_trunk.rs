//! Exchanges the trunk with the user's remotes: pushes the trunk and Regatta's own branches, fetches
//! a remote's trunk, and rebases the local trunk onto it.
//!
//! Git runs with the user's configuration, credentials, SSH setup and proxies, which no agent can
//! change. Regatta never pushes the trunk by force, and git never asks for input.
//!
//! A rebase replays each commit that only the local trunk has on top of the remote's trunk. It moves
//! no branch and only writes the new commits into the vault (Regatta's own repository). Then
//! `staging.rs` can check the new commits out, and `land.rs` can move the trunk to the last of them
//! if its permit allows a rebase. A replayed commit keeps its author, dates and message, but loses
//! its signature, because the signature would no longer be valid. For each replayed commit a ref in
//! the vault (`refs/regatta/replanted/<old>`) names the new commit, so that the old commit still
//! counts as being on the trunk.

use std::path::Path;

use regatta_core::ids::{BranchName, CommitId};
use regatta_engine::ports::git::{
    GitError, ProjectRepo, PushResult, RebaseResult, RemoteGit, UpstreamTrunk,
};

use crate::git_command::path_to_text;
use crate::merge::{MergeSides, MergedTree, path_names};
use crate::user_repo::UserRepo;
use crate::vault::FETCH_OPTIONS;
use crate::{GitAdapter, disk, errors};

/// The largest number of commits that Regatta replays. If the local trunk has more commits of its
/// own, a person must rebase it.
const MAX_REPLAYED_COMMITS: usize = 500;

fn rebased_ref(commit: &CommitId) -> String {
    format!("refs/regatta/replanted/{commit}")
}

/// The ref that names the commit of the remote's trunk that was fetched last.
const UPSTREAM_REF: &str = "refs/regatta/upstream";

const ONLINE_FETCH_OPTIONS: [&str; 7] = [
    "fetch",
    "--quiet",
    "--no-tags",
    "--no-write-fetch-head",
    "--no-auto-maintenance",
    "--no-recurse-submodules",
    "--end-of-options",
];

/// The output of git about a push that a remote refused.
struct PushRefusal {
    /// The line about the ref, such as `!\tmain:main\t[rejected] (fetch first)`; empty if git
    /// printed none.
    line: String,
    stderr: String,
}

impl PushRefusal {
    fn describe(&self, remote: &str) -> String {
        errors::push_failed(remote, &self.line, &self.stderr)
    }
}

impl RemoteGit for GitAdapter {
    fn push(
        &self,
        repo: &ProjectRepo,
        remote: &str,
        commit: &CommitId,
    ) -> Result<PushResult, GitError> {
        let user = self.discover_at(&repo.path)?;
        if let Err(reason) = self.check_remote_name(&user, remote)? {
            return Ok(PushResult::Failed(reason));
        }
        let refspec = format!("{commit}:refs/heads/{}", repo.trunk);
        let Err(refusal) = self.run_push(&user, "push the trunk", remote, &refspec)? else {
            return Ok(PushResult::Pushed);
        };
        if refusal.line.contains("fetch first") {
            return Ok(PushResult::NonFastForward); // the remote has commits that are not here
        }
        if refusal.line.contains("non-fast-forward") {
            let ahead = self.is_remote_ahead(&user, repo, remote, commit)?;
            return Ok(if ahead {
                PushResult::Pushed
            } else {
                PushResult::NonFastForward
            });
        }
        Ok(PushResult::Failed(refusal.describe(remote)))
    }

    /// Pushes a branch of Regatta by force, because Regatta replaces the commits of such a branch
    /// after every turn of the agent. Only Regatta uses branches named `regatta/…`.
    fn push_branch(
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
        let refspec = format!("+{commit}:refs/heads/{branch}");
        let Err(refusal) = self.run_push(&user, "push the branch", remote, &refspec)? else {
            return Ok(PushResult::Pushed);
        };
        Ok(PushResult::Failed(refusal.describe(remote)))
    }

    /// Fetches a remote's trunk with the user's credentials, first into the user's repository and
    /// then into the vault (Regatta's own repository).
    fn fetch_upstream(&self, repo: &ProjectRepo, remote: &str) -> Result<UpstreamTrunk, GitError> {
        let user = self.discover_at(&repo.path)?;
        self.check_remote_name(&user, remote)?
            .map_err(|reason| errors::fetch_needed(&reason))?;
        // Regatta fetches into a ref of its own, so that the user's remote-tracking branches do not
        // move.
        let tracking_ref = format!("refs/regatta/remote/{}", repo.trunk);
        let spec = format!("+refs/heads/{}:{tracking_ref}", repo.trunk);
        let fetched = self
            .git
            .in_checkout_online(&user.top, "fetch the remote's trunk")
            .args(ONLINE_FETCH_OPTIONS)
            .arg(remote)
            .arg(&spec)
            .run()?;
        if fetched.status != Some(0) {
            return Err(errors::fetch_needed(&errors::fetch_failed(
                remote,
                &fetched.stderr,
            )));
        }
        disk::sync_objects(&user.common_dir)?;
        self.refresh_trunk(repo)?;
        let vault = self.vault(repo)?;
        let fetch = self
            .git
            .in_vault(&vault, "import the remote's trunk")
            .args(FETCH_OPTIONS);
        fetch
            .arg(&user.common_dir)
            .arg(format!("+{tracking_ref}:{UPSTREAM_REF}"))
            .run_expecting_success()?;
        disk::sync_objects(&vault)?;
        let tip = self
            .find_object(&vault, UPSTREAM_REF)?
            .ok_or_else(|| errors::unexpected("fetch the remote's trunk"))?;
        let old = self.trunk_tip(&user, repo)?;
        self.vault_with(repo, &old)?;
        let base = self
            .git
            .in_vault(&vault, "find the common base with the remote")
            .args(["merge-base", old.as_str(), tip.as_str()])
            .run()?;
        let Ok(base) = CommitId::new(path_to_text(&base.stdout).trim()) else {
            return Err(errors::unrelated_histories(remote, &repo.trunk));
        };
        let listed = self.git.in_vault(&vault, "list the remote's changes");
        let listed = listed.args([
            "diff-tree",
            "-r",
            "--name-only",
            "--no-renames",
            "-z",
            base.as_str(),
            tip.as_str(),
        ]);
        Ok(UpstreamTrunk {
            tip,
            changed: path_names(&listed.run_for_list()?),
        })
    }

    fn rebase_trunk(&self, repo: &ProjectRepo, onto: &CommitId) -> Result<RebaseResult, GitError> {
        let old = self.refresh_trunk(repo)?;
        let vault = self.vault_with(repo, onto)?;
        if self.history_contains(&vault, &old, onto)? {
            return Ok(RebaseResult::UpToDate { tip: old });
        }
        let commits = self.local_only_commits(&vault, &old, onto)?;
        let (replayed, conflict) = self.with_object_store(&vault, |odb| {
            let (mut tip, mut tree) = (onto.clone(), odb.commit(onto)?.tree);
            let mut replayed = Vec::with_capacity(commits.len());
            for id in &commits {
                let commit = odb.commit(id)?;
                let Some(parent) = commit.parents.first() else {
                    return Err(errors::unrelated_histories("the remote", &repo.trunk));
                };
                let was_empty = odb.commit(parent)?.tree == commit.tree;
                let sides = MergeSides {
                    base: parent,
                    ours: &tree,
                    theirs: &commit.tree,
                };
                let next = match self.merge_trees(odb, &vault, &sides)? {
                    MergedTree::Clean(next) => next,
                    MergedTree::Conflict(_, conflicts) => {
                        return Ok((vec![], Some(conflicts.path_names())));
                    }
                };
                // A commit is left out if the remote's trunk already contains its change. A commit
                // that was empty from the start is kept, because somebody made it on purpose.
                if next != tree || was_empty {
                    tip = odb.rewrite_commit(id, &next, &tip)?;
                    tree = next;
                }
                replayed.push((id.clone(), tip.clone(), task_in_trailer(&commit.message)));
            }
            odb.adopt()?;
            Ok((replayed, None))
        })?;
        if let Some(paths) = conflict {
            return Ok(RebaseResult::Conflict { paths });
        }
        let new = replayed.last().map_or(onto, |(_, new, _)| new).clone();
        let new_refs = replayed
            .iter()
            .map(|(old, new, _)| format!("update {} {new}\n", rebased_ref(old)));
        self.update_refs(&vault, new_refs.collect())?;
        let tasks = replayed
            .into_iter()
            .filter_map(|(_, _, task)| task)
            .collect();
        Ok(RebaseResult::Rebased { old, new, tasks })
    }
}

impl GitAdapter {
    /// Pushes with the user's credentials. The inner error is the refusal of the push.
    fn run_push(
        &self,
        user: &UserRepo,
        what: &'static str,
        remote: &str,
        refspec: &str,
    ) -> Result<Result<(), PushRefusal>, GitError> {
        let output = self
            .git
            .in_checkout_online(&user.top, what)
            .args([
                "push",
                "--porcelain",
                "--no-follow-tags",
                "--no-recurse-submodules",
                "--no-verify",
                "--end-of-options",
            ])
            .arg(remote)
            .arg(refspec)
            .run()?;
        if output.status == Some(0) {
            return Ok(Ok(()));
        }
        let printed = String::from_utf8_lossy(&output.stdout);
        let line = printed.lines().find(|line| line.starts_with("!\t"));
        Ok(Err(PushRefusal {
            line: line.unwrap_or_default().to_owned(),
            stderr: output.stderr,
        }))
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

    /// Returns the commits of the local trunk that the remote's trunk does not have, oldest first.
    /// Follows first parents only.
    fn local_only_commits(
        &self,
        vault: &Path,
        old: &CommitId,
        onto: &CommitId,
    ) -> Result<Vec<CommitId>, GitError> {
        let listed = self.git.in_vault(vault, "list the local commits").args([
            "rev-list",
            "--first-parent",
            "--reverse",
        ]);
        let listed = listed
            .arg(old.as_str())
            .arg(format!("^{onto}"))
            .run_for_line()?;
        let commits: Result<Vec<CommitId>, _> = listed.lines().map(CommitId::new).collect();
        let commits = commits.map_err(|_| errors::unexpected("list the local commits"))?;
        if commits.len() > MAX_REPLAYED_COMMITS {
            Err(errors::too_far_apart(commits.len(), MAX_REPLAYED_COMMITS))
        } else {
            Ok(commits)
        }
    }

    /// Returns the commit that replaced `commit` when the trunk was rebased onto a remote's trunk,
    /// or `None` if no commit replaced it.
    pub(crate) fn rebased_as(
        &self,
        repo: &ProjectRepo,
        commit: &CommitId,
    ) -> Result<Option<CommitId>, GitError> {
        let vault = self.layout.vault(&repo.project);
        if !vault.is_dir() {
            return Ok(None);
        }
        self.find_object(&vault, &rebased_ref(commit))
            .map(|replacement| replacement.filter(|id| id != commit))
    }
}

/// Returns the id of the task that a commit message names in a trailer (`Regatta-Task: T3`), or
/// `None` if it names no task.
fn task_in_trailer(text: &str) -> Option<String> {
    let line = text
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("Regatta-Task: "))?;
    Some(line.trim().to_owned())
}
