//! Fix-ups: merges a change onto the trunk as far as possible, so that an agent can resolve the
//! rest.
//!
//! The workspace is based on a commit of its own: a child of the trunk's tip, with the change
//! merged in and conflict markers in the conflicting files. A capture there therefore contains only
//! the resolution, and is restricted to the conflicting files. Before it lands, it is squashed with
//! the merge into one change, a child of the tip.

use std::path::Path;

use regatta_core::ids::{AttemptId, BranchName, CommitId};
use regatta_core::task::{ConflictKind, Fixup};
use regatta_engine::ports::git::{Authorship, Capture, GitError, Repo, Workspace};

use crate::merge::{Merged, Sides};
use crate::places::Key;
use crate::{GitAdapter, disk, words};

/// Returns the ref of the commit on which a fix-up's workspace is based.
fn fixup_ref(attempt: AttemptId) -> String {
    format!("refs/regatta/fixup/{attempt}")
}

impl GitAdapter {
    /// Makes the workspace of a fix-up, or finds it as it is.
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
            // The ref is written before the workspace exists, so that a workspace with its final
            // name is always recognised.
            self.update_refs(&vault, format!("update {} {merged}\n", fixup_ref(attempt)))?;
            Ok(merged)
        })
    }

    /// Merges a change onto `tip` as far as possible.
    ///
    /// A conflict that ownership resolved has the version that was taken. A file that git moved out
    /// of the way of a directory, under an invented name, is left out: it is in the change's
    /// commit, or in the trunk's.
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

    /// Accepts a commit of another machine's workspace as the base of a fix-up, if this machine
    /// would make the same one: the change merged onto a commit of the trunk, and nothing else.
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

    /// Squashes a fix-up's capture with its base into one change on the trunk's tip. Returns other
    /// captures as they are.
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

    /// Deletes the fix-up's ref of a workspace that was removed.
    pub(crate) fn forget_fixup(&self, vault: &Path, attempt: AttemptId) -> Result<(), GitError> {
        match self.find(vault, &fixup_ref(attempt))? {
            Some(_) => self.update_refs(vault, format!("delete {}\n", fixup_ref(attempt))),
            None => Ok(()),
        }
    }
}
