//! Reverts a landed change.

use regatta_core::ids::CommitId;
use regatta_engine::ports::git::{Authorship, GitError, Repo, Trial};

use crate::merge::{Merged, Sides};
use crate::{GitAdapter, words};

impl GitAdapter {
    /// Merges the inverse of a landed commit onto `tip`.
    pub(crate) fn take_back(
        &self,
        repo: &Repo,
        tip: &CommitId,
        commit: &CommitId,
        authorship: &Authorship,
    ) -> Result<Trial, GitError> {
        self.vault_with(repo, tip)?;
        let vault = self.vault_with(repo, commit)?;
        self.with_odb(&vault, |odb| {
            // The first parent of a merge is the trunk before it.
            let before = odb.commit(commit)?.parents.into_iter().next().ok_or_else(|| words::first_commit(commit))?;
            let (ours, theirs) = (odb.commit(tip)?.tree, odb.commit(&before)?.tree);
            match self.merge_trees(odb, &vault, &Sides { base: commit, ours: &ours, theirs: &theirs })? {
                Merged::Conflict(_, found) => Ok(Trial::Conflict(found.names())),
                Merged::Clean(tree) if tree == ours => Ok(Trial::Empty),
                Merged::Clean(tree) => {
                    let reverted = odb.write_commit(&tree, &[tip], authorship)?;
                    odb.adopt()?;
                    Ok(Trial::Clean(reverted))
                }
            }
        })
    }
}
