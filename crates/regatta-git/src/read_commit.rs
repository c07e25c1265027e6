//! Reads facts about commits for people and for the landing queue: the list of commits since the
//! last tag, contents of files, and patches.

use std::collections::HashSet;

use regatta_core::ids::CommitId;
use regatta_core::landing::guard::SpecialFile;
use regatta_engine::ports::git::{CommitGit, CommitRange, GitError, ProjectRepo};

use crate::GitAdapter;
use crate::changed_special_files::special_files;
use crate::git_command::path_to_text;
use crate::object_store::DIRECTORY;
use crate::submodules::{Submodule, UserCopies};
use crate::tree_diff::TreeDiff;

impl CommitGit for GitAdapter {
    fn file_at(
        &self,
        repo: &ProjectRepo,
        commit: &CommitId,
        path: &str,
    ) -> Result<Option<Vec<u8>>, GitError> {
        let vault = self.vault_with(repo, commit)?;
        self.with_object_store(&vault, |odb| {
            let mut tree_id = odb.commit(commit)?.tree;
            let mut names = path.split('/').peekable();
            while let Some(name) = names.next() {
                let entry = odb
                    .tree(&tree_id)?
                    .into_iter()
                    .find(|entry| entry.name == name.as_bytes());
                match (entry, names.peek()) {
                    (Some(entry), Some(_)) if entry.mode == DIRECTORY => tree_id = entry.id,
                    (Some(entry), None) if entry.mode & 0o170_000 == 0o100_000 => {
                        return odb.blob(&entry.id).map(Some);
                    }
                    _ => return Ok(None),
                }
            }
            Ok(None)
        })
    }

    fn tree_of(&self, repo: &ProjectRepo, commit: &CommitId) -> Result<CommitId, GitError> {
        let vault = self.vault_with(repo, commit)?;
        self.tree_of_commit(&vault, commit)
    }

    fn diff(
        &self,
        repo: &ProjectRepo,
        CommitRange { base, commit }: CommitRange<'_>,
    ) -> Result<String, GitError> {
        self.vault_with(repo, base)?;
        let vault = self.vault_with(repo, commit)?;
        let output = self
            .git
            .in_vault(&vault, "compare two commits")
            .args([
                "diff-tree",
                "-r",
                "--patch",
                "--find-renames",
                "--no-color",
                "--no-ext-diff",
                "--no-textconv",
            ])
            .args([
                "--src-prefix=a/",
                "--dst-prefix=b/",
                base.as_str(),
                commit.as_str(),
            ])
            .run_expecting_success()?;
        Ok(path_to_text(&output.stdout))
    }

    fn special_files(
        &self,
        repo: &ProjectRepo,
        CommitRange { base, commit }: CommitRange<'_>,
    ) -> Result<Vec<SpecialFile>, GitError> {
        self.vault_with(repo, base)?;
        let vault = self.vault_with(repo, commit)?;
        self.with_object_store(&vault, |odb| {
            let (old, new) = (odb.commit(base)?.tree, odb.commit(commit)?.tree);
            let difference = TreeDiff::between(odb, Some(&old), &new)?;
            special_files(odb, &difference)
        })
    }

    fn unpublished_submodules(
        &self,
        repo: &ProjectRepo,
        CommitRange { base, commit }: CommitRange<'_>,
    ) -> Result<Vec<String>, GitError> {
        self.vault_with(repo, base)?;
        let vault = self.vault_with(repo, commit)?;
        let moved = self.moved_submodules(&vault, Some(base), commit)?;
        if moved.is_empty() {
            return Ok(vec![]);
        }
        let (mut unpublished, mut seen) = (Vec::new(), HashSet::new());
        let mut pending = vec![(
            Vec::new(),
            UserCopies::of_project(&self.discover_at(&repo.path)?),
            moved,
        )];
        while let Some((prefix, parent_copies, moved)) = pending.pop() {
            for (old, Submodule { path, commit, name }) in moved {
                let copies = parent_copies.of_submodule(&path, name.as_deref());
                if !seen.insert(commit.clone()) || self.is_published(&vault, &copies, &commit)? {
                    continue;
                }
                self.copy_to_user(&vault, &copies, &commit);
                let path = [prefix.as_slice(), &path].concat();
                unpublished.push(path_to_text(&path));
                let find_commit =
                    |commit: &CommitId| self.find_object(&vault, &format!("{commit}^{{commit}}"));
                if find_commit(&commit)?.is_some() {
                    let old = match old {
                        Some(old) if find_commit(&old)?.is_some() => Some(old),
                        _ => None,
                    };
                    let nested = self.moved_submodules(&vault, old.as_ref(), &commit)?;
                    pending.push(([path.as_slice(), b"/"].concat(), copies, nested));
                }
            }
        }
        unpublished.sort();
        Ok(unpublished)
    }
}
