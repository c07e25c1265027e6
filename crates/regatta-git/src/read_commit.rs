//! Reads facts about commits for people and for the landing queue: the list of commits since the
//! last tag, contents of files, and patches.

use regatta_core::ids::CommitId;
use regatta_engine::ports::git::{GitError, ProjectRepo, UnreleasedCommit};

use crate::GitAdapter;
use crate::git_command::path_to_text;
use crate::object_store::DIRECTORY;

impl GitAdapter {
    /// Returns the commits on the user's trunk after its last tag. If there is no tag, returns the
    /// newest commits up to a limit.
    pub(crate) fn since_last_tag(
        &self,
        repo: &ProjectRepo,
        commit: &CommitId,
    ) -> Result<Vec<UnreleasedCommit>, GitError> {
        const OPERATION: &str = "list the unreleased commits";
        let user = self.discover_at(&repo.path)?;
        let git = || self.git.in_vault(&user.common_dir, OPERATION);
        // Git fails if the history has no tag. This case is not an error here, so the exit status
        // is examined below.
        let described = git()
            .args(["describe", "--tags", "--abbrev=0", commit.as_str()])
            .run()?;
        let tag = String::from_utf8_lossy(&described.stdout).trim().to_owned();
        let log = git().args([
            "log",
            "-z",
            "-n",
            "2000",
            "--format=%s%n%(trailers:key=Regatta-Task,valueonly)",
        ]);
        let log = log.arg("--end-of-options").arg(commit.as_str());
        let log = if described.status == Some(0) {
            log.arg(format!("^refs/tags/{tag}"))
        } else {
            log
        };
        let parse_entry = |entry: Vec<u8>| {
            let text = path_to_text(&entry);
            let mut lines = text.lines();
            let subject = lines.next().unwrap_or_default().to_owned();
            UnreleasedCommit {
                subject,
                task: lines
                    .map(str::trim)
                    .find(|line| !line.is_empty())
                    .map(str::to_owned),
            }
        };
        Ok(log.run_for_list()?.into_iter().map(parse_entry).collect())
    }

    /// Returns the content of a file in a commit, or `None` if the commit has no file at that path.
    pub(crate) fn read_file_at(
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

    /// Returns the changes between two commits as a patch.
    pub(crate) fn patch(
        &self,
        repo: &ProjectRepo,
        base: &CommitId,
        commit: &CommitId,
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
}
