//! Reads captures (commits that store agents' work): the paths that a capture changed and the lines
//! that it added. Reduces a capture to the changes in certain paths. Also finds out which paths git
//! ignores in the user's checkout, and which files have changed there.

use regatta_core::ids::{AttemptId, CommitId};
use regatta_engine::ports::git::{
    Authorship, Capture, FileChange, GitError, KeptWork, KeptWorkGit, ProjectRepo,
};

use crate::gc::attempt_of_ref;
use crate::git_command::path_to_text;
use crate::layout::LockKey;
use crate::vault::{TRUNK_REF, base_ref, keep_ref};
use crate::{GitAdapter, disk, errors};

/// One changed path in git's raw diff format.
struct DiffEntry {
    new_mode: Vec<u8>,
    new_id: Vec<u8>,
    status: u8,
    path: Vec<u8>,
}

impl KeptWorkGit for GitAdapter {
    fn captured(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
    ) -> Result<Option<Capture>, GitError> {
        let vault = self.vault(repo)?;
        let Some(commit) =
            self.find_object(&vault, &format!("{}^{{commit}}", keep_ref(attempt)))?
        else {
            return Ok(None);
        };
        let parents = self
            .with_object_store(&vault, |odb| odb.commit(&commit))?
            .parents;
        let base = parents
            .into_iter()
            .next()
            .ok_or_else(|| errors::no_such_commit(&commit))?;
        let changed = self.paths_between(&vault, &base, &commit)?;
        Ok(Some(Capture {
            commit,
            base,
            changed,
        }))
    }

    /// Returns the stored commits of an attempt's work, or `None` if nothing is stored. The base
    /// commit of the work is recorded as long as the workspace exists. After that, the base commit
    /// is computed as the commit of the trunk from which the work started.
    fn kept_work(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
    ) -> Result<Option<KeptWork>, GitError> {
        let vault = self.layout.vault(&repo.project);
        if !vault.is_dir() {
            return Ok(None);
        }
        let Some(commit) = self.find_object(&vault, &keep_ref(attempt))? else {
            return Ok(None);
        };
        let base = match self.find_object(&vault, &base_ref(attempt))? {
            Some(base) => base,
            None => {
                const OPERATION: &str = "find the commit from which the work started";
                let base = self
                    .git
                    .in_vault(&vault, OPERATION)
                    .args(["merge-base", TRUNK_REF, commit.as_str()])
                    .run_for_line()?;
                CommitId::new(base.trim()).map_err(|_| errors::unexpected(OPERATION))?
            }
        };
        let count_changes = |commit: &CommitId| -> Result<usize, GitError> {
            let listed = self
                .git
                .in_vault(&vault, "compare the stored work with its base commit");
            let listed = listed.args([
                "diff-tree",
                "-r",
                "--name-only",
                "-z",
                "--no-renames",
                base.as_str(),
            ]);
            Ok(listed.arg(commit.as_str()).run_for_list()?.len())
        };
        let (mut whole, mut max_changes) = (commit.clone(), count_changes(&commit)?);
        let refs = self.keep_refs(repo)?;
        for name in refs
            .iter()
            .filter(|name| attempt_of_ref(name) == Some(attempt))
        {
            let Some(earlier) = self.find_object(&vault, name)? else {
                continue;
            };
            let changes = count_changes(&earlier)?;
            if changes > max_changes {
                (whole, max_changes) = (earlier, changes);
            }
        }
        Ok(Some(KeptWork {
            base,
            commit,
            whole,
        }))
    }

    fn restrict(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        capture: &Capture,
        paths: &[String],
        authorship: &Authorship,
    ) -> Result<Capture, GitError> {
        self.locks
            .with_lock(LockKey::Attempt(repo.project.clone(), attempt), || {
                let vault = self.vault_with(repo, &capture.commit)?;
                let mut info = Vec::new();
                let mut changed = Vec::new();
                for entry in self.diff_entries(&vault, &capture.base, &capture.commit)? {
                    let name = path_to_text(&entry.path);
                    if paths.contains(&name) {
                        // For a deleted path, `new_mode` is 0. An entry with mode 0 removes the
                        // path from the index.
                        info.extend(
                            [
                                &entry.new_mode,
                                &b" "[..],
                                &entry.new_id,
                                b"\t",
                                &entry.path,
                                b"\0",
                            ]
                            .concat(),
                        );
                        changed.push(name);
                    }
                }
                changed.sort_unstable();
                if changed.is_empty() {
                    return Ok(Capture {
                        commit: capture.base.clone(),
                        base: capture.base.clone(),
                        changed,
                    });
                }
                let index = self.layout.scratch(&repo.project);
                let git = |operation| self.git.in_vault(&vault, operation).index(index.path());
                git("read the base")
                    .args(["read-tree", capture.base.as_str()])
                    .run_expecting_success()?;
                git("select the captured paths")
                    .args(["update-index", "-z", "--index-info"])
                    .input(info)
                    .run_expecting_success()?;
                let tree = git("write the captured tree")
                    .arg("write-tree")
                    .run_for_object()?;
                let commit = self.commit_tree(&vault, &tree, &[&capture.base], authorship)?;
                disk::sync_objects(&vault)?;
                self.pin(&vault, attempt, &commit)?;
                Ok(Capture {
                    commit,
                    base: capture.base.clone(),
                    changed,
                })
            })
    }

    fn changed_files(
        &self,
        repo: &ProjectRepo,
        capture: &Capture,
        with_lines: bool,
    ) -> Result<Vec<FileChange>, GitError> {
        let vault = self.vault_with(repo, &capture.commit)?;
        let entries = self.diff_entries(&vault, &capture.base, &capture.commit)?;
        let mut line_groups = if with_lines {
            self.added_lines(&vault, capture)?.into_iter()
        } else {
            vec![].into_iter()
        };
        let mut changes = Vec::new();
        for entry in entries {
            let mut added_lines = line_groups.next().unwrap_or_default();
            if entry.status == b'T' {
                // If a path changes its type (for example from a file to a link), git prints two
                // parts for this path in the patch: a deletion and an addition.
                added_lines = line_groups.next().unwrap_or_default();
            }
            changes.push(FileChange {
                path: path_to_text(&entry.path),
                is_new: entry.status == b'A',
                added_lines,
            });
        }
        changes.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(changes)
    }
}

impl GitAdapter {
    fn diff_entries(
        &self,
        vault: &std::path::Path,
        base: &CommitId,
        commit: &CommitId,
    ) -> Result<Vec<DiffEntry>, GitError> {
        const OPERATION: &str = "list the captured changes";
        let fields = self
            .git
            .in_vault(vault, OPERATION)
            .args([
                "diff-tree",
                "-r",
                "-z",
                "--raw",
                "--no-renames",
                "--no-abbrev",
                base.as_str(),
                commit.as_str(),
            ])
            .run_for_list()?;
        let parse_entry = |fields_of_entry: &[Vec<u8>]| {
            let [head, path] = fields_of_entry else {
                return None;
            };
            let mut columns = head.strip_prefix(b":")?.split(|byte| *byte == b' ');
            let (_, new_mode, _, new_id, status) = (
                columns.next()?,
                columns.next()?,
                columns.next()?,
                columns.next()?,
                columns.next()?,
            );
            let status = *status.first()?;
            Some(DiffEntry {
                new_mode: new_mode.to_vec(),
                new_id: new_id.to_vec(),
                status,
                path: path.clone(),
            })
        };
        fields
            .chunks(2)
            .map(|fields| parse_entry(fields).ok_or_else(|| errors::unexpected(OPERATION)))
            .collect()
    }

    /// Returns the paths that differ between two commits, as text and sorted.
    pub(crate) fn paths_between(
        &self,
        vault: &std::path::Path,
        base: &CommitId,
        commit: &CommitId,
    ) -> Result<Vec<String>, GitError> {
        let mut paths: Vec<String> = self
            .diff_entries(vault, base, commit)?
            .iter()
            .map(|entry| path_to_text(&entry.path))
            .collect();
        paths.sort_unstable();
        Ok(paths)
    }

    /// Returns the lines that a capture added, as one list for each file in git's patch. The files
    /// are in the same order as the paths in git's raw diff.
    fn added_lines(
        &self,
        vault: &std::path::Path,
        capture: &Capture,
    ) -> Result<Vec<Vec<String>>, GitError> {
        let output = self
            .git
            .in_vault(vault, "read the captured changes")
            .args([
                "diff-tree",
                "-r",
                "-p",
                "-U0",
                "--no-renames",
                "--no-ext-diff",
                "--no-textconv",
                "--no-color",
            ])
            .args([capture.base.as_str(), capture.commit.as_str()])
            .run_expecting_success()?;
        let mut parts: Vec<Vec<String>> = Vec::new();
        let mut in_hunk = false;
        // In a patch, each line of a file's content begins with `+`, `-` or a space. So a line that
        // begins with another character belongs to the header of a part.
        for line in output.stdout.split(|byte| *byte == b'\n') {
            if line.starts_with(b"diff --git ") {
                parts.push(vec![]);
                in_hunk = false;
            } else if line.starts_with(b"@@ ") {
                in_hunk = true;
            } else if in_hunk
                && let (Some(text), Some(part)) = (line.strip_prefix(b"+"), parts.last_mut())
            {
                part.push(path_to_text(text));
            }
        }
        Ok(parts)
    }
}
