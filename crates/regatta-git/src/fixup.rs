//! Fix-ups: a change merged onto the trunk as far as it goes, for somebody to mend where it does not.
//!
//! The workspace stands on a commit of its own: a child of the trunk's tip, with the change in it and marks in the files
//! that conflict. So what is captured there is only what was mended, and is held to the conflicting files. Before it
//! lands it is told as what it is to the trunk: one change, a child of the tip.

use std::path::Path;

use regatta_core::ids::{AttemptId, BranchName, CommitId};
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
        change: &CommitId,
        authorship: &Authorship,
    ) -> Result<Workspace, GitError> {
        self.prepare_workspace(repo, attempt, branch, || {
            let tip = self.refresh(repo)?;
            let vault = self.vault_with(repo, change)?;
            let merged = self.with_odb(&vault, |odb| {
                let (ours, change) = (odb.commit(&tip)?.tree, odb.commit(change)?);
                let Some(base) = change.parents.first() else { return Err(words::no_such_commit(&tip)) };
                let sides = Sides { base, ours: &ours, theirs: &change.tree };
                let (Merged::Clean(tree) | Merged::Conflict(tree, _)) = self.merge_trees(odb, &vault, &sides)?;
                let commit = odb.write_commit(&tree, &[&tip], authorship)?;
                odb.adopt()?;
                Ok(commit)
            })?;
            // Named before the workspace is: one that has its name is known for what it is.
            self.update_refs(&vault, format!("update {} {merged}\n", fixup_ref(attempt)))?;
            Ok(merged)
        })
    }

    /// Takes a commit that another machine's workspace stood on for the base of a fix-up, if it is what it would be here:
    /// the change merged onto a commit of the trunk, and nothing else.
    pub(crate) fn recognise(
        &self,
        repo: &Repo,
        attempt: AttemptId,
        base: &CommitId,
        change: &CommitId,
    ) -> Result<bool, GitError> {
        let tip = self.refresh(repo)?;
        let vault = self.vault_with(repo, change)?;
        let onto = self.with_odb(&vault, |odb| {
            let (found, change) = (odb.commit(base)?, odb.commit(change)?);
            let ([onto], Some(first)) = (found.parents.as_slice(), change.parents.first()) else { return Ok(None) };
            let ours = odb.commit(onto)?.tree;
            let sides = Sides { base: first, ours: &ours, theirs: &change.tree };
            let (Merged::Clean(tree) | Merged::Conflict(tree, _)) = self.merge_trees(odb, &vault, &sides)?;
            Ok((tree == found.tree).then(|| onto.clone()))
        })?;
        let Some(onto) = onto else { return Ok(false) };
        if !self.contains(&vault, &tip, &onto)? {
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
