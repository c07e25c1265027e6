//! Fix-ups: a change merged onto the trunk as far as it goes, for somebody to mend where it does not.
//!
//! The workspace stands on a commit of its own: a child of the trunk's tip, with the change in it and marks in the files
//! that conflict. So what is captured there is only what was mended, and is held to the conflicting files. Before it
//! lands it is told as what it is to the trunk: one change, a child of the tip.

use std::path::Path;

use regatta_core::ids::{AttemptId, BranchName, CommitId};
use regatta_core::task::{ConflictKind, Fixup};
use regatta_engine::ports::git::{Authorship, Capture, GitError, Repo, Workspace};

use crate::merge::{Merged, Sides};
use crate::places::Key;
use crate::{GitAdapter, disk, words};

/// Names the commit that a fix-up's workspace stands on.
fn fixup_ref(attempt: AttemptId) -> String {
    format!("refs/regatta/fixup/{attempt}")
}

impl GitAdapter {
    pub(crate) fn prepare_mending(
        &self,
        repo: &Repo,
        attempt: AttemptId,
        branch: &BranchName,
        fixup: &Fixup,
        authorship: &Authorship,
    ) -> Result<Workspace, GitError> {
        self.prepare_workspace(repo, attempt, branch, || {
            let tip = self.refresh(repo)?;
            let vault = self.vault_with(repo, &fixup.commit)?;
            let tree = self.tree_to_mend(repo, &vault, &tip, fixup)?;
            let merged = self.commit_tree(&vault, &tree, &[&tip], authorship)?;
            // Named before the workspace is: one that has its name is known for what it is.
            self.update_refs(&vault, format!("update {} {merged}\n", fixup_ref(attempt)))?;
            Ok(merged)
        })
    }

    /// Merges a change onto `tip` as far as it goes.
    ///
    /// A conflict that was settled by ownership has the version that was taken. A file that git moved out of the way of a
    /// directory, under a name of its own, is left out: it is in the change's commit, or in the trunk's.
    fn tree_to_mend(&self, repo: &Repo, vault: &Path, tip: &CommitId, fixup: &Fixup) -> Result<CommitId, GitError> {
        let (ours, theirs, merged) = self.with_odb(vault, |odb| {
            let (ours, change) = (odb.commit(tip)?.tree, odb.commit(&fixup.commit)?);
            let Some(base) = change.parents.first() else { return Err(words::no_such_commit(tip)) };
            let sides = Sides { base, ours: &ours, theirs: &change.tree };
            let merged = self.merge_trees(odb, vault, &sides)?;
            odb.adopt()?;
            Ok((ours, change.tree, merged))
        })?;
        let (tree, found) = match merged {
            Merged::Clean(tree) => return Ok(tree),
            Merged::Conflict(tree, found) => (tree, found),
        };
        let of_types = found.paths.iter().filter(|conflict| conflict.kind == ConflictKind::Type);
        let is_settled = |path: &str| fixup.settled.iter().find(|settled| settled.path == path);
        let settled = found.paths.iter().filter(|conflict| is_settled(&conflict.path).is_some());
        let mut paths: Vec<String> = settled.chain(of_types).map(|conflict| conflict.path.clone()).collect();
        paths.extend(found.invented);
        if paths.is_empty() {
            return Ok(tree);
        }
        let version = |path: &str| match is_settled(path) {
            Some(settled) if !settled.is_trunks => &theirs,
            _ => &ours,
        };
        self.with_paths(repo, vault, &tree, &paths, &version)
    }

    /// Takes a commit that another machine's workspace stood on for the base of a fix-up, if it is what it would be here:
    /// the change merged onto a commit of the trunk, and nothing else.
    pub(crate) fn recognise(
        &self,
        repo: &Repo,
        attempt: AttemptId,
        base: &CommitId,
        fixup: &Fixup,
    ) -> Result<bool, GitError> {
        let tip = self.refresh(repo)?;
        let vault = self.vault_with(repo, &fixup.commit)?;
        let found = self.with_odb(&vault, |odb| odb.commit(base))?;
        let [onto] = found.parents.as_slice() else { return Ok(false) };
        if !self.contains(&vault, &tip, onto)? || self.tree_to_mend(repo, &vault, onto, fixup)? != found.tree {
            return Ok(false);
        }
        self.update_refs(&vault, format!("update {} {base}\n", fixup_ref(attempt)))?;
        Ok(true)
    }

    pub(crate) fn mended(
        &self,
        repo: &Repo,
        attempt: AttemptId,
        capture: Capture,
        authorship: &Authorship,
    ) -> Result<Capture, GitError> {
        self.locks.holding(Key::Attempt(repo.project.clone(), attempt), || {
            let vault = self.vault_with(repo, &capture.commit)?;
            if self.find(&vault, &fixup_ref(attempt))?.as_ref() != Some(&capture.base) {
                return Ok(capture);
            }
            let (tip, tree) = self.with_odb(&vault, |odb| {
                let tip = odb.commit(&capture.base)?.parents.first().cloned();
                Ok((tip.ok_or_else(|| words::no_such_commit(&capture.base))?, odb.commit(&capture.commit)?.tree))
            })?;
            let commit = self.commit_tree(&vault, &tree, &[&tip], authorship)?;
            let changed = self.paths_between(&vault, &tip, &commit)?;
            disk::sync_objects(&vault)?;
            self.pin(&vault, attempt, &commit)?;
            Ok(Capture { commit, base: tip, changed })
        })
    }

    /// Forgets that a workspace was a fix-up's, once it is gone.
    pub(crate) fn forget_fixup(&self, vault: &Path, attempt: AttemptId) -> Result<(), GitError> {
        match self.find(vault, &fixup_ref(attempt))? {
            Some(_) => self.update_refs(vault, format!("delete {}\n", fixup_ref(attempt))),
            None => Ok(()),
        }
    }
}
