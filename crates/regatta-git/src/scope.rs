//! Reads a capture: the paths it changed with their added lines, and the part of it within some
//! paths. Also reads the user's checkout: ignored paths, and marks of changed files.

use std::os::unix::fs::MetadataExt;

use regatta_core::ids::{AttemptId, CommitId};
use regatta_engine::ports::git::{Authorship, Capture, Change, GitError, Repo};

use crate::places::Key;
use crate::run::{path_of, split, text_of};
use crate::{GitAdapter, disk, words};

/// One entry of a raw diff.
struct Entry {
    new_mode: Vec<u8>,
    new_id: Vec<u8>,
    status: u8,
    path: Vec<u8>,
}

impl GitAdapter {
    fn entries(&self, vault: &std::path::Path, base: &CommitId, commit: &CommitId) -> Result<Vec<Entry>, GitError> {
        const DOING: &str = "list the captured changes";
        let fields = self
            .git
            .ours(vault, DOING)
            .args(["diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", base.as_str(), commit.as_str()])
            .list()?;
        let entry = |pair: &[Vec<u8>]| {
            let [head, path] = pair else { return None };
            let mut words = head.strip_prefix(b":")?.split(|it| *it == b' ');
            let (_, new_mode, _, new_id, status) =
                (words.next()?, words.next()?, words.next()?, words.next()?, words.next()?);
            let status = *status.first()?;
            Some(Entry { new_mode: new_mode.to_vec(), new_id: new_id.to_vec(), status, path: path.clone() })
        };
        fields.chunks(2).map(|it| entry(it).ok_or_else(|| words::unexpected(DOING))).collect()
    }

    /// Returns the paths in which two commits differ, as text, sorted.
    pub(crate) fn paths_between(
        &self,
        vault: &std::path::Path,
        base: &CommitId,
        commit: &CommitId,
    ) -> Result<Vec<String>, GitError> {
        let mut paths: Vec<String> = self.entries(vault, base, commit)?.iter().map(|it| text_of(&it.path)).collect();
        paths.sort_unstable();
        Ok(paths)
    }

    /// Makes the part of a capture that touches only these paths, and pins it.
    pub(crate) fn restrict_capture(
        &self,
        repo: &Repo,
        attempt: AttemptId,
        (capture, paths): (&Capture, &[String]),
        authorship: &Authorship,
    ) -> Result<Capture, GitError> {
        self.locks.holding(Key::Attempt(repo.project.clone(), attempt), || {
            let vault = self.vault_with(repo, &capture.commit)?;
            let mut info = Vec::new();
            let mut changed = Vec::new();
            for entry in self.entries(&vault, &capture.base, &capture.commit)? {
                let name = text_of(&entry.path);
                if paths.contains(&name) {
                    // A deletion has mode 0, which removes a path from an index.
                    info.extend([&entry.new_mode, &b" "[..], &entry.new_id, b"\t", &entry.path, b"\0"].concat());
                    changed.push(name);
                }
            }
            changed.sort_unstable();
            if changed.is_empty() {
                return Ok(Capture { commit: capture.base.clone(), base: capture.base.clone(), changed });
            }
            let scratch = self.places.scratch(&repo.project);
            let git = |doing| self.git.ours(&vault, doing).index(scratch.path());
            git("read the base").args(["read-tree", capture.base.as_str()]).done()?;
            git("take over the captured paths").args(["update-index", "-z", "--index-info"]).input(info).done()?;
            let tree = git("write the captured tree").arg("write-tree").object()?;
            let commit = self.commit_tree(&vault, &tree, &[&capture.base], authorship)?;
            disk::sync_objects(&vault)?;
            self.pin(&vault, attempt, &commit)?;
            Ok(Capture { commit, base: capture.base.clone(), changed })
        })
    }

    /// Returns the changes of a capture, sorted by path.
    pub(crate) fn captured_changes(
        &self,
        repo: &Repo,
        capture: &Capture,
        lines: bool,
    ) -> Result<Vec<Change>, GitError> {
        let vault = self.vault_with(repo, &capture.commit)?;
        let entries = self.entries(&vault, &capture.base, &capture.commit)?;
        let mut parts = if lines { self.added_lines(&vault, capture)?.into_iter() } else { vec![].into_iter() };
        let mut changes = Vec::new();
        for entry in entries {
            let mut added = parts.next().unwrap_or_default();
            if entry.status == b'T' {
                // Git reports a change of type as two parts: a deletion and an addition.
                added = parts.next().unwrap_or_default();
            }
            changes.push(Change { path: text_of(&entry.path), new: entry.status == b'A', added });
        }
        changes.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(changes)
    }

    /// Returns the added lines of each part of the patch, in the order of the raw diff.
    fn added_lines(&self, vault: &std::path::Path, capture: &Capture) -> Result<Vec<Vec<String>>, GitError> {
        let said = self
            .git
            .ours(vault, "read the captured changes")
            .args(["diff-tree", "-r", "-p", "-U0", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color"])
            .args([capture.base.as_str(), capture.commit.as_str()])
            .done()?;
        let mut parts: Vec<Vec<String>> = Vec::new();
        let mut in_hunk = false;
        // Only the head of a part is at the beginning of a line; content has a sign before it.
        for line in said.stdout.split(|it| *it == b'\n') {
            if line.starts_with(b"diff --git ") {
                parts.push(vec![]);
                in_hunk = false;
            } else if line.starts_with(b"@@ ") {
                in_hunk = true;
            } else if in_hunk && let (Some(text), Some(part)) = (line.strip_prefix(b"+"), parts.last_mut()) {
                part.push(text_of(text));
            }
        }
        Ok(parts)
    }

    /// Returns whether git ignores a path of the user's checkout.
    pub(crate) fn ignored_in_checkout(&self, repo: &Repo, path: &str) -> Result<bool, GitError> {
        const DOING: &str = "ask which files are ignored";
        let user = self.discover_at(&repo.path)?;
        if user.bare {
            return Ok(false);
        }
        // The prefix keeps git from interpreting a name that starts with `:`.
        let asked = format!("./{path}\0").into_bytes();
        let call = self.git.users(&user.top, DOING).args(["check-ignore", "-z", "--stdin"]).input(asked);
        match call.run()? {
            said if said.status == Some(0) => Ok(true),
            said if said.status == Some(1) => Ok(false),
            said => Err(words::git_failed(DOING, &said.stderr)),
        }
    }

    /// Returns the changed and new paths of the user's checkout with marks that change when a file
    /// is written.
    pub(crate) fn marks_of_checkout(&self, repo: &Repo) -> Result<Vec<(String, String)>, GitError> {
        let user = self.discover_at(&repo.path)?;
        if user.bare {
            return Ok(vec![]);
        }
        let said = self
            .git
            .users(&user.top, "look at the checkout")
            .args(["status", "--porcelain=v1", "-z", "--untracked-files=normal", "--no-renames"])
            .arg("--ignore-submodules=all")
            .done()?;
        let mark = |entry: Vec<u8>| {
            let (state, path) = entry.split_at_checked(3)?;
            let found = std::fs::symlink_metadata(user.top.join(path_of(path))).ok();
            let when = found.map(|it| (it.size(), it.mtime(), it.mtime_nsec(), it.ino()));
            Some((text_of(path), format!("{}{when:?}", text_of(state))))
        };
        Ok(split(&said.stdout).into_iter().filter_map(mark).collect())
    }
}
