//! Takes a landed change back.

use regatta_core::ids::CommitId;
use regatta_engine::ports::git::{Authorship, GitError, Repo, Trial};

use crate::merge::{Merged, Sides, named};
use crate::{GitAdapter, disk, words};

impl GitAdapter {
    pub(crate) fn take_back(
        &self,
        repo: &Repo,
        tip: &CommitId,
        commit: &CommitId,
        authorship: &Authorship,
    ) -> Result<Trial, GitError> {
        self.vault_with(repo, tip)?;
        let vault = self.vault_with(repo, commit)?;
        // Of a merge the first parent is the trunk as it was before.
        let before = self.find(&vault, &format!("{commit}^1"))?.ok_or_else(|| words::first_commit(commit))?;
        let (ours, theirs) = (self.tree_of(&vault, tip)?, self.tree_of(&vault, &before)?);
        match self.merge_trees(&vault, &Sides { base: commit, ours: &ours, theirs: &theirs })? {
            Merged::Conflict(paths) => Ok(Trial::Conflict(named(&paths))),
            Merged::Clean(tree) if tree == ours => Ok(Trial::Empty),
            Merged::Clean(tree) => {
                let reverted = self.commit_tree(&vault, &tree, &[tip], authorship)?;
                disk::sync_objects(&vault)?;
                Ok(Trial::Clean(reverted))
            }
        }
    }
}
