//! Brings the trunk onto what a remote's has: fetched, then each commit that is only here replayed on top of it.
//!
//! Nothing moves here. What is made is in the vault, for `stage` to check out and for `land` to move to, under a permit
//! that says so. A replayed commit keeps its author, its dates and its words; a signature that no longer fits goes. The
//! vault remembers what each commit became (`refs/regatta/replanted/<old>`), so that "is it on the trunk" stays true.

use std::path::Path;

use regatta_core::ids::CommitId;
use regatta_engine::ports::git::{GitError, Replanted, Repo, Upstream};

use crate::merge::{Merged, Sides, named};
use crate::run::text_of;
use crate::vault::FETCH;
use crate::{GitAdapter, disk, words};

/// More than this is not replayed unasked.
const MOST: usize = 500;

fn replanted_ref(commit: &CommitId) -> String {
    format!("refs/regatta/replanted/{commit}")
}

impl GitAdapter {
    /// Fetches a remote's trunk, as the user would, into the user's repository and into the vault.
    pub(crate) fn fetch_upstream(&self, repo: &Repo, remote: &str) -> Result<Upstream, GitError> {
        let user = self.discover_at(&repo.path)?;
        self.known_remote(&user, remote)?.map_err(|reason| words::not_fetched(&reason))?;
        // A name of our own, so that the user's own tracking branches are only moved as they configured it.
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

    /// Replays what is only on the trunk here onto `onto`, which [`GitAdapter::fetch_upstream`] found.
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
                // What the remote has already is not made again; what never changed anything was meant so.
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

    /// The commits of the trunk's own line that the other one has not, oldest first.
    fn only_here(&self, vault: &Path, old: &CommitId, onto: &CommitId) -> Result<Vec<CommitId>, GitError> {
        let listed = self.git.ours(vault, "list what is only here").args(["rev-list", "--first-parent", "--reverse"]);
        let listed = listed.arg(old.as_str()).arg(format!("^{onto}")).line()?;
        let line: Result<Vec<CommitId>, _> = listed.lines().map(CommitId::new).collect();
        let line = line.map_err(|_| words::unexpected("list what is only here"))?;
        if line.len() > MOST { Err(words::too_far_apart(line.len(), MOST)) } else { Ok(line) }
    }

    /// What a commit became when the trunk was brought onto a remote's.
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

/// The task that a commit says it landed.
fn task_of(message: &str) -> Option<String> {
    let line = message.lines().rev().find_map(|it| it.strip_prefix("Regatta-Task: "))?;
    Some(line.trim().to_owned())
}
