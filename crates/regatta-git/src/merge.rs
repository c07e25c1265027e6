//! Merges without a working copy.

use regatta_core::ids::CommitId;
use regatta_engine::ports::git::{Authorship, GitError, Repo, Trial};

use crate::run::{split, text_of};
use crate::{GitAdapter, disk, words};

impl GitAdapter {
    pub(crate) fn merge_onto(
        &self,
        repo: &Repo,
        tip: &CommitId,
        commit: &CommitId,
        authorship: &Authorship,
    ) -> Result<Trial, GitError> {
        const DOING: &str = "merge the change onto the trunk";
        self.vault_with(repo, tip)?;
        let vault = self.vault_with(repo, commit)?;
        let tip_tree = self.tree_of(&vault, tip)?;
        let ours = self.ours_side(&vault, tip, &tip_tree, commit, authorship)?;
        let said = self
            .git
            .ours(&vault, DOING)
            .args(["merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", "--end-of-options"])
            .args([ours.as_str(), commit.as_str()])
            .run()?;
        let mut parts = split(&said.stdout).into_iter();
        match (said.status, parts.next()) {
            (Some(0), Some(tree)) => {
                let tree = CommitId::new(text_of(&tree).trim()).map_err(|_| words::unexpected(DOING))?;
                if tree == tip_tree {
                    return Ok(Trial::Empty);
                }
                // One parent: the attempt's commits are kept under its keep-ref, the trunk stays a line.
                let merged = self.commit_tree(&vault, &tree, tip, authorship)?;
                disk::sync_objects(&vault)?;
                Ok(Trial::Clean(merged))
            }
            (Some(1), Some(_)) => {
                let mut paths: Vec<String> = parts.map(|it| text_of(&it)).collect();
                paths.sort_unstable();
                paths.dedup();
                Ok(Trial::Conflict(paths))
            }
            _ => Err(words::git_failed(DOING, &said.stderr)),
        }
    }

    /// The trunk's side of the merge: a commit with the tip's files that has the change's base in its history.
    ///
    /// That is the tip itself, unless somebody rewrote the trunk. Then the common ancestor lies before the base,
    /// and a plain merge would bring back the commits that were taken off the trunk; only the change is wanted.
    /// (`merge-tree --merge-base` says the same, but is younger than the oldest git we support.)
    fn ours_side(
        &self,
        vault: &std::path::Path,
        tip: &CommitId,
        tip_tree: &CommitId,
        commit: &CommitId,
        authorship: &Authorship,
    ) -> Result<CommitId, GitError> {
        let Some(base) = self.find(vault, &format!("{commit}^1"))? else { return Ok(tip.clone()) };
        let follows = self.git.ours(vault, "look for the change's base on the trunk");
        let follows = follows.args(["merge-base", "--is-ancestor", base.as_str(), tip.as_str()]);
        if follows.yes()? { Ok(tip.clone()) } else { self.commit_tree(vault, tip_tree, &base, authorship) }
    }
}
