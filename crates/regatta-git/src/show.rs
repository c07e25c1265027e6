//! Reads what a commit holds, for people and for the queue.

use regatta_core::ids::CommitId;
use regatta_engine::ports::git::{GitError, Repo};

use crate::run::text_of;
use crate::{GitAdapter, words};

impl GitAdapter {
    pub(crate) fn file_of(&self, repo: &Repo, commit: &CommitId, path: &str) -> Result<Option<Vec<u8>>, GitError> {
        const DOING: &str = "read a file of a commit";
        let vault = self.vault_with(repo, commit)?;
        let call = self.git.ours(&vault, DOING).args(["ls-tree", "-z", "--full-tree", commit.as_str(), "--"]);
        // A pathspec: git must not take a name for a pattern.
        let entries = call.arg(format!(":(literal){path}")).list()?;
        let Some(entry) = entries.first().map(|it| text_of(it)) else { return Ok(None) };
        let mut words = entry.split([' ', '\t']);
        let (mode, kind, id) = (words.next(), words.next(), words.next());
        match (mode, kind, id) {
            (Some("100644" | "100755"), Some("blob"), Some(id)) => {
                Ok(Some(self.git.ours(&vault, DOING).args(["cat-file", "blob", id]).done()?.stdout))
            }
            (Some(_), Some(_), Some(_)) => Ok(None),
            _ => Err(words::unexpected(DOING)),
        }
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
