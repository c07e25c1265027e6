//! Rebases the trunk onto a remote's trunk: fetches it, then replays each commit that is only here
//! on top of it.
//!
//! Nothing moves here. The new commits are in the vault, where `stage` can check them out and
//! `land` can move the trunk to them, under a permit that allows it. A replayed commit keeps its
//! author, its dates and its message, but loses a signature that no longer fits. The vault records
//! the new commit of each replayed one (`refs/regatta/replanted/<old>`), so that "is it on the
//! trunk" stays true.

use std::path::Path;

use regatta_core::ids::CommitId;
use regatta_engine::ports::git::{GitError, Replanted, Repo, Upstream};

use crate::merge::{Merged, Sides, named};
use crate::run::text_of;
use crate::vault::FETCH;
use crate::{GitAdapter, disk, words};

/// The largest number of commits that are replayed without asking.
const MOST: usize = 500;

fn replanted_ref(commit: &CommitId) -> String {
    format!("refs/regatta/replanted/{commit}")
}

impl GitAdapter {
    /// Fetches a remote's trunk into the user's repository, with the user's credentials, and into
    /// the vault.
    pub(crate) fn fetch_upstream(&self, repo: &Repo, remote: &str) -> Result<Upstream, GitError> {
        let user = self.discover_at(&repo.path)?;
        self.known_remote(&user, remote)?.map_err(|reason| words::not_fetched(&reason))?;
        // A ref of Regatta's own, so that the user's tracking branches move only as the user
        // configured it.
        let here = format!("refs/regatta/remote/{}", repo.trunk);
        let spec = format!("+refs/heads/{}:{here}", repo.trunk);
        let asked = self.git.users_online(&user.top, "fetch what the remote has");
        let said = asked.args(ONLINE_FETCH).arg(remote).arg(&spec).run()?;
        if said.status != Some(0) {
            return Err(words::not_fetched(&words::fetch_failed(remote, &said.stderr)));
        }
        disk::sync_objects(&user.common)?;
        self.refresh(repo)?;
        let vault = self.vault(repo)?;
        let fetch = self.git.ours(&vault, "take in what the remote has").args(FETCH);
        fetch.arg(&user.common).arg(format!("+{here}:{UPSTREAM}")).done()?;
        disk::sync_objects(&vault)?;
        let tip = self.find(&vault, UPSTREAM)?.ok_or_else(|| words::unexpected("fetch what the remote has"))?;
        let old = self.trunk_tip(&user, repo)?;
        self.vault_with(repo, &old)?;
        let asked = self.git.ours(&vault, "find where the remote left the trunk");
        let base = asked.args(["merge-base", old.as_str(), tip.as_str()]).run()?;
        let Ok(base) = CommitId::new(text_of(&base.stdout).trim()) else {
            return Err(words::unrelated(remote, &repo.trunk));
        };
        let listed = self.git.ours(&vault, "list what the remote changed");
        let listed = listed.args(["diff-tree", "-r", "--name-only", "--no-renames", "-z", base.as_str(), tip.as_str()]);
        Ok(Upstream { tip, changed: named(&listed.list()?) })
    }

    /// Replays the commits that are only on the local trunk onto `onto`, which
    /// [`GitAdapter::fetch_upstream`] found.
    pub(crate) fn replant_onto(&self, repo: &Repo, onto: &CommitId) -> Result<Replanted, GitError> {
        let old = self.refresh(repo)?;
        let vault = self.vault_with(repo, onto)?;
        if self.contains(&vault, &old, onto)? {
            return Ok(Replanted::InStep { tip: old });
        }
        let line = self.only_here(&vault, &old, onto)?;
        let (made, conflict) = self.with_odb(&vault, |odb| {
            let (mut at, mut tree) = (onto.clone(), odb.commit(onto)?.tree);
            let mut made = Vec::with_capacity(line.len());
            for id in &line {
                let commit = odb.commit(id)?;
                let Some(parent) = commit.parents.first() else {
                    return Err(words::unrelated("the remote", &repo.trunk));
                };
                let was_empty = odb.commit(parent)?.tree == commit.tree;
                let sides = Sides { base: parent, ours: &tree, theirs: &commit.tree };
                let next = match self.merge_trees(odb, &vault, &sides)? {
                    Merged::Clean(next) => next,
                    Merged::Conflict(_, found) => return Ok((vec![], Some(found.names()))),
                };
                // A commit that the remote has already is dropped. A commit that was always empty
                // is kept, because it was meant so.
                if next != tree || was_empty {
                    at = odb.rewrite_commit(id, &next, &at)?;
                    tree = next;
                }
                made.push((id.clone(), at.clone(), task_of(&commit.message)));
            }
            odb.adopt()?;
            Ok((made, None))
        })?;
        if let Some(paths) = conflict {
            return Ok(Replanted::Conflict { paths });
        }
        let new = made.last().map_or(onto, |it| &it.1).clone();
        let became = made.iter().map(|(old, new, _)| format!("update {} {new}\n", replanted_ref(old)));
        self.update_refs(&vault, became.collect())?;
        let tasks = made.into_iter().filter_map(|it| it.2).collect();
        Ok(Replanted::Onto { old, new, tasks })
    }

    /// Returns the commits of the trunk's first-parent line that the other trunk lacks, oldest
    /// first.
    fn only_here(&self, vault: &Path, old: &CommitId, onto: &CommitId) -> Result<Vec<CommitId>, GitError> {
        let listed = self.git.ours(vault, "list what is only here").args(["rev-list", "--first-parent", "--reverse"]);
        let listed = listed.arg(old.as_str()).arg(format!("^{onto}")).line()?;
        let line: Result<Vec<CommitId>, _> = listed.lines().map(CommitId::new).collect();
        let line = line.map_err(|_| words::unexpected("list what is only here"))?;
        if line.len() > MOST { Err(words::too_far_apart(line.len(), MOST)) } else { Ok(line) }
    }

    /// Returns the commit that replaced `commit` when the trunk was rebased onto a remote's.
    pub(crate) fn became(&self, repo: &Repo, commit: &CommitId) -> Result<Option<CommitId>, GitError> {
        let vault = self.places.vault(&repo.project);
        if !vault.is_dir() {
            return Ok(None);
        }
        self.find(&vault, &replanted_ref(commit)).map(|it| it.filter(|it| it != commit))
    }
}

/// The remote's trunk as last seen.
const UPSTREAM: &str = "refs/regatta/upstream";

const ONLINE_FETCH: [&str; 7] = [
    "fetch",
    "--quiet",
    "--no-tags",
    "--no-write-fetch-head",
    "--no-auto-maintenance",
    "--no-recurse-submodules",
    "--end-of-options",
];

/// Returns the task that a commit's trailer names.
fn task_of(message: &str) -> Option<String> {
    let line = message.lines().rev().find_map(|it| it.strip_prefix("Regatta-Task: "))?;
    Some(line.trim().to_owned())
}
