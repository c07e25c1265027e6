//! Reverts a commit on the trunk.

use regatta_core::ids::CommitId;
use regatta_engine::ports::git::{Authorship, GitError, ProjectRepo, TrialMerge};

use crate::merge::{MergeSides, MergedTree};
use crate::{GitAdapter, errors};

impl GitAdapter {
    /// Merges the inverse of a landed commit onto `tip`, without checking out files.
    pub(crate) fn revert_commit(
        &self,
        repo: &ProjectRepo,
        tip: &CommitId,
        commit: &CommitId,
        authorship: &Authorship,
    ) -> Result<TrialMerge, GitError> {
        self.vault_with(repo, tip)?;
        let vault = self.vault_with(repo, commit)?;
        self.with_object_store(&vault, |odb| {
            // If the commit is a merge, its first parent is the trunk's previous commit.
            let before = odb
                .commit(commit)?
                .parents
                .into_iter()
                .next()
                .ok_or_else(|| errors::cannot_replay_first_commit(commit))?;
            let (ours, theirs) = (odb.commit(tip)?.tree, odb.commit(&before)?.tree);
            match self.merge_trees(
                odb,
                &vault,
                &MergeSides {
                    base: commit,
                    ours: &ours,
                    theirs: &theirs,
                },
            )? {
                MergedTree::Conflict(_, conflicts) => {
                    Ok(TrialMerge::Conflict(conflicts.path_names()))
                }
                MergedTree::Clean(tree) if tree == ours => Ok(TrialMerge::Empty),
                MergedTree::Clean(tree) => {
                    let reverted = odb.write_commit(&tree, &[tip], authorship)?;
                    odb.adopt()?;
                    Ok(TrialMerge::Clean(reverted))
                }
            }
        })
    }
}
