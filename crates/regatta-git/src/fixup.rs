//! Prepares fix-ups. A fix-up is an attempt in which an agent resolves the conflicts between
//! finished work and the trunk. Regatta first merges the work onto the trunk as far as possible,
//! and the agent resolves the rest.
//!
//! The workspace has its own base commit: a child of the trunk's tip with the work merged in and
//! conflict markers in the conflicting files. Therefore the captured work (the difference from the
//! base commit) contains only the agent's resolution, and only in the conflicting files. Before the
//! work lands, the base commit and the resolution are squashed into one child of the tip.

use std::path::Path;

use regatta_core::ids::{AttemptId, BranchName, CommitId};
use regatta_core::task::{ConflictKind, Fixup};
use regatta_engine::ports::git::{Authorship, Capture, FixupGit, GitError, ProjectRepo, Workspace};

use crate::layout::LockKey;
use crate::merge::{MergeSides, MergedTree};
use crate::{GitAdapter, disk, errors};

/// Returns the ref that names the base commit of the workspace of a fix-up (an attempt that
/// resolves merge conflicts).
fn fixup_ref(attempt: AttemptId) -> String {
    format!("refs/regatta/fixup/{attempt}")
}

impl FixupGit for GitAdapter {
    fn prepare_fixup(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        branch: &BranchName,
        fixup: &Fixup,
        authorship: &Authorship,
    ) -> Result<Workspace, GitError> {
        self.make_workspace(repo, attempt, branch, || {
            let tip = self.refresh_trunk(repo)?;
            let vault = self.vault_with(repo, &fixup.commit)?;
            let tree = self.fixup_base_tree(repo, &vault, &tip, fixup)?;
            let merged = self.commit_tree(&vault, &tree, &[&tip], authorship)?;
            // The ref must be written before the workspace gets its final name, so that every
            // workspace with its final name has a ref for its base commit.
            self.update_refs(&vault, format!("update {} {merged}\n", fixup_ref(attempt)))?;
            Ok(merged)
        })
    }

    fn recognise_fixup(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        base: &CommitId,
        fixup: &Fixup,
    ) -> Result<bool, GitError> {
        let tip = self.refresh_trunk(repo)?;
        let vault = self.vault_with(repo, &fixup.commit)?;
        let base_commit = self.with_object_store(&vault, |odb| odb.commit(base))?;
        let [onto] = base_commit.parents.as_slice() else {
            return Ok(false);
        };
        if !self.history_contains(&vault, &tip, onto)?
            || self.fixup_base_tree(repo, &vault, onto, fixup)? != base_commit.tree
        {
            return Ok(false);
        }
        self.update_refs(&vault, format!("update {} {base}\n", fixup_ref(attempt)))?;
        Ok(true)
    }

    fn squash_fixup(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        capture: Capture,
        authorship: &Authorship,
    ) -> Result<Capture, GitError> {
        self.locks
            .with_lock(LockKey::Attempt(repo.project.clone(), attempt), || {
                let vault = self.vault_with(repo, &capture.commit)?;
                if self.find_object(&vault, &fixup_ref(attempt))?.as_ref() != Some(&capture.base) {
                    return Ok(capture);
                }
                let (tip, tree) = self.with_object_store(&vault, |odb| {
                    let tip = odb.commit(&capture.base)?.parents.first().cloned();
                    Ok((
                        tip.ok_or_else(|| errors::no_such_commit(&capture.base))?,
                        odb.commit(&capture.commit)?.tree,
                    ))
                })?;
                let commit = self.commit_tree(&vault, &tree, &[&tip], authorship)?;
                let changed = self.paths_between(&vault, &tip, &commit)?;
                disk::sync_objects(&vault)?;
                self.pin(&vault, attempt, &commit)?;
                Ok(Capture {
                    commit,
                    base: tip,
                    changed,
                })
            })
    }
}

impl GitAdapter {
    /// Merges the finished work onto the trunk's commit `tip` as far as possible, and returns the
    /// id of the resulting git tree, which has conflict markers in the conflicting files.
    ///
    /// If a conflict was already resolved by the ownership of the file, the tree has the chosen
    /// version. A file that git moved to an invented name, because the file collided with a
    /// directory, is left out of the tree. The commit of the work, or the trunk, still has this
    /// file.
    fn fixup_base_tree(
        &self,
        repo: &ProjectRepo,
        vault: &Path,
        tip: &CommitId,
        fixup: &Fixup,
    ) -> Result<CommitId, GitError> {
        let (ours, theirs, merged) = self.with_object_store(vault, |odb| {
            let (ours, change) = (odb.commit(tip)?.tree, odb.commit(&fixup.commit)?);
            let Some(base) = change.parents.first() else {
                return Err(errors::no_such_commit(tip));
            };
            let sides = MergeSides {
                base,
                ours: &ours,
                theirs: &change.tree,
            };
            let merged = self.merge_trees(odb, vault, &sides)?;
            odb.adopt()?;
            Ok((ours, change.tree, merged))
        })?;
        let (tree, conflicts) = match merged {
            MergedTree::Clean(tree) => return Ok(tree),
            MergedTree::Conflict(tree, conflicts) => (tree, conflicts),
        };
        let type_conflicts = conflicts
            .conflicts
            .iter()
            .filter(|conflict| conflict.kind == ConflictKind::Type);
        let is_settled = |path: &str| fixup.settled.iter().find(|settled| settled.path == path);
        let settled_conflicts = conflicts
            .conflicts
            .iter()
            .filter(|conflict| is_settled(&conflict.path).is_some());
        let mut paths: Vec<String> = settled_conflicts
            .chain(type_conflicts)
            .map(|conflict| conflict.path.clone())
            .collect();
        paths.extend(conflicts.invented_names);
        if paths.is_empty() {
            return Ok(tree);
        }
        let version = |path: &str| match is_settled(path) {
            Some(settled) if !settled.is_trunks => &theirs,
            _ => &ours,
        };
        self.replace_paths(repo, vault, &tree, &paths, &version)
    }

    /// Deletes the ref of the base commit of a fix-up (an attempt that resolves merge conflicts),
    /// after the fix-up's workspace was removed.
    pub(crate) fn delete_fixup_ref(
        &self,
        vault: &Path,
        attempt: AttemptId,
    ) -> Result<(), GitError> {
        match self.find_object(vault, &fixup_ref(attempt))? {
            Some(_) => self.update_refs(vault, format!("delete {}\n", fixup_ref(attempt))),
            None => Ok(()),
        }
    }
}
