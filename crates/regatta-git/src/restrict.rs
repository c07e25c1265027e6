//! Reads captures (commits that store agents' work): the paths that a capture changed and the lines
//! that it added. Reduces a capture to the changes in certain paths. Also finds out which paths git
//! ignores in the user's checkout, and which files have changed there.

use std::os::unix::fs::MetadataExt;

use regatta_core::ids::{AttemptId, CommitId};
use regatta_engine::ports::git::{Authorship, Capture, FileChange, GitError, ProjectRepo};

use crate::git_command::{path_from_bytes, path_to_text, split_nul};
use crate::layout::LockKey;
use crate::{GitAdapter, disk, errors};

/// One changed path in git's raw diff format.
struct DiffEntry {
    new_mode: Vec<u8>,
    new_id: Vec<u8>,
    status: u8,
    path: Vec<u8>,
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

    /// Creates a commit with only those changes of a capture that are in `paths`, and points the
    /// attempt's ref to this commit.
    pub(crate) fn restrict_capture(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        (capture, paths): (&Capture, &[String]),
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

    /// Returns the changes in a capture (a commit that stores an attempt's work), sorted by path.
    /// Includes the added lines if `with_lines` is set.
    pub(crate) fn captured_changes(
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

    /// Returns the lines that a capture added, as one list for each part of git's patch. The parts
    /// of the patch are in the same order as the paths in git's raw diff.
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

    /// Returns whether git ignores the path in the user's checkout.
    pub(crate) fn is_ignored_in_checkout(
        &self,
        repo: &ProjectRepo,
        path: &str,
    ) -> Result<bool, GitError> {
        const OPERATION: &str = "find out which files are ignored";
        let user = self.discover_at(&repo.path)?;
        if user.is_bare {
            return Ok(false);
        }
        // Add the prefix `./`, because git interprets a name that starts with `:` as a pattern.
        let input = format!("./{path}\0").into_bytes();
        let output = self
            .git
            .in_checkout(&user.top, OPERATION)
            .args(["check-ignore", "-z", "--stdin"])
            .input(input)
            .run()?;
        match output.status {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            _ => Err(errors::git_failed(OPERATION, &output.stderr)),
        }
    }

    /// Returns the paths in the user's checkout that have local changes or are new. Each path comes
    /// with a text that changes whenever the file is written.
    pub(crate) fn read_checkout_marks(
        &self,
        repo: &ProjectRepo,
    ) -> Result<Vec<(String, String)>, GitError> {
        let user = self.discover_at(&repo.path)?;
        if user.is_bare {
            return Ok(vec![]);
        }
        let output = self
            .git
            .in_checkout(&user.top, "read the state of the checkout")
            .args([
                "status",
                "--porcelain=v1",
                "-z",
                "--untracked-files=normal",
                "--no-renames",
            ])
            .arg("--ignore-submodules=all")
            .run_expecting_success()?;
        let mark = |entry: Vec<u8>| {
            let (state, path) = entry.split_at_checked(3)?;
            let metadata = std::fs::symlink_metadata(user.top.join(path_from_bytes(path))).ok();
            let stamp = metadata.map(|metadata| {
                (
                    metadata.size(),
                    metadata.mtime(),
                    metadata.mtime_nsec(),
                    metadata.ino(),
                )
            });
            Some((
                path_to_text(path),
                format!("{}{stamp:?}", path_to_text(state)),
            ))
        };
        Ok(split_nul(&output.stdout)
            .into_iter()
            .filter_map(mark)
            .collect())
    }
}
