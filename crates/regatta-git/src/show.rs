//! Reads what a commit holds, for people and for the queue.

use regatta_core::ids::CommitId;
use regatta_engine::ports::git::{GitError, Repo};

use crate::GitAdapter;
use crate::odb::DIRECTORY;
use crate::run::text_of;

impl GitAdapter {
    pub(crate) fn file_of(&self, repo: &Repo, commit: &CommitId, path: &str) -> Result<Option<Vec<u8>>, GitError> {
        let vault = self.vault_with(repo, commit)?;
        self.with_odb(&vault, |odb| {
            let mut at = odb.commit(commit)?.tree;
            let mut names = path.split('/').peekable();
            while let Some(name) = names.next() {
                let found = odb.tree(&at)?.into_iter().find(|it| it.name == name.as_bytes());
                match (found, names.peek()) {
                    (Some(it), Some(_)) if it.mode == DIRECTORY => at = it.id,
                    (Some(it), None) if it.mode & 0o170_000 == 0o100_000 => return odb.blob(&it.id).map(Some),
                    _ => return Ok(None),
                }
            }
            Ok(None)
        })
    }

    pub(crate) fn patch(&self, repo: &Repo, base: &CommitId, commit: &CommitId) -> Result<String, GitError> {
        self.vault_with(repo, base)?;
        let vault = self.vault_with(repo, commit)?;
        let said = self
            .git
            .ours(&vault, "compare two commits")
            .args(["diff-tree", "-r", "--patch", "--find-renames", "--no-color", "--no-ext-diff", "--no-textconv"])
            .args(["--src-prefix=a/", "--dst-prefix=b/", base.as_str(), commit.as_str()])
            .done()?;
        Ok(text_of(&said.stdout))
    }
}
