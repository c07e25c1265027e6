//! Imports the commits that an agent made itself in its workspace, if the commits are valid.
//!
//! The workspace's `.git` directory belongs to the agent and may be hostile, so no git runs in it.
//! Regatta reads HEAD as text and copies the git objects as plain files to a scratch directory. Git
//! checks every object before the object enters the vault (Regatta's own repository). The agent's
//! commits are left out if they do not form a plain line from the base commit, for example because
//! of merges, too many commits or missing objects. They are also left out if they contain a file
//! that was in the workspace before the attempt (see `untracked_files.rs`). In these cases only the
//! agent's commits are lost, and its files are still captured.

use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use regatta_core::ids::{BranchName, CommitId};
use regatta_engine::ports::git::GitError;

use crate::git_command::split_nul;
use crate::merge::MAX_OWN_COMMITS;
use crate::{GitAdapter, disk};

/// The largest total size in bytes of the git objects that are copied from an agent's repository.
/// `MAX_FILES` limits the number of their files.
const MAX_BYTES: u64 = 256 << 20;
const MAX_FILES: usize = 20_000;

impl GitAdapter {
    /// Imports the agent's newest own commit into the vault (Regatta's own repository), with all
    /// commits and files since `base`. Returns the commit, or `None` if the agent made no valid
    /// commits.
    pub(crate) fn import_own_history(
        &self,
        vault: &Path,
        workspace: &Path,
        (base, foreign): (&CommitId, &HashSet<Vec<u8>>),
    ) -> Result<Option<CommitId>, GitError> {
        let git_dir = workspace.join(".git");
        let Some(head) = head_of(&git_dir).filter(|id| id != base) else {
            return Ok(None);
        };
        if self
            .find_object(vault, &format!("{head}^{{commit}}"))?
            .is_some()
        {
            let is_valid = self.is_linear(vault, None, base, &head)?
                && self.is_free_of_foreign_files(vault, None, (base, &head), foreign)?;
            return Ok(is_valid.then_some(head));
        }
        let copy = self.layout.scratch_objects(vault);
        let is_imported = self.import_objects(vault, &git_dir, &copy, (base, &head, foreign));
        disk::remove_tree(&copy)?;
        Ok(is_imported?.then_some(head))
    }

    fn import_objects(
        &self,
        vault: &Path,
        git_dir: &Path,
        copy: &Path,
        (base, head, foreign): (&CommitId, &CommitId, &HashSet<Vec<u8>>),
    ) -> Result<bool, GitError> {
        if !copy_objects(&git_dir.join("objects"), copy)
            || !self.is_linear(vault, Some(copy), base, head)?
            || !self.is_free_of_foreign_files(vault, Some(copy), (base, head), foreign)?
        {
            return Ok(false);
        }
        self.import_revisions(vault, copy, format!("{head}\n^{base}\n"))
    }

    /// Imports a commit from the git directory of a submodule in the workspace into the vault
    /// (Regatta's own repository), with all objects that it needs. Returns `false` if the git
    /// directory does not contain the commit.
    pub(crate) fn import_submodule_commit(
        &self,
        vault: &Path,
        git_dir: &Path,
        commit: &CommitId,
    ) -> Result<bool, GitError> {
        let copy = self.layout.scratch_objects(vault);
        let is_imported = if copy_objects(&git_dir.join("objects"), &copy) {
            self.import_complete_commit(vault, &copy, commit)
        } else {
            Ok(false)
        };
        disk::remove_tree(&copy)?;
        is_imported
    }

    fn import_complete_commit(
        &self,
        vault: &Path,
        copy: &Path,
        commit: &CommitId,
    ) -> Result<bool, GitError> {
        let listed = self.git.in_vault(vault, "list the submodules' commits");
        let listed = listed
            .args([
                "for-each-ref",
                "--format=^%(objectname)",
                "refs/regatta/modules/",
            ])
            .run_for_line()?;
        self.import_revisions(vault, copy, format!("{commit}\n{listed}\n"))
    }

    /// Imports the objects of some revisions, in the syntax of `git rev-list --stdin`, from a copy
    /// of the agent's objects. Git checks each object. Returns `false` if an object is missing or
    /// broken.
    fn import_revisions(
        &self,
        vault: &Path,
        copy: &Path,
        revisions: String,
    ) -> Result<bool, GitError> {
        let pack = self
            .git
            .in_vault(vault, "read the agent's commits")
            .alternate_objects(copy)
            .args([
                "pack-objects",
                "--quiet",
                "--revs",
                "--stdout",
                "--no-reuse-delta",
            ])
            .input(revisions.into_bytes())
            .run()?;
        if pack.status != Some(0) {
            // Git fails if an object is missing or broken. Only the agent's own commits are lost in
            // this case, because the agent's files are captured separately.
            return Ok(false);
        }
        let unpack = self.git.in_vault(vault, "check the agent's commits").args([
            "unpack-objects",
            "-q",
            "--strict",
        ]);
        if unpack.input(pack.stdout).run()?.status != Some(0) {
            return Ok(false);
        }
        disk::sync_objects(vault)?;
        Ok(true)
    }

    /// Returns whether the commits from `base` to `head` contain none of the `foreign` files, which
    /// were in the workspace before the attempt. A foreign file may be a secret of the user and is
    /// not the agent's work.
    fn is_free_of_foreign_files(
        &self,
        vault: &Path,
        copy: Option<&Path>,
        (base, head): (&CommitId, &CommitId),
        foreign: &HashSet<Vec<u8>>,
    ) -> Result<bool, GitError> {
        if foreign.is_empty() {
            return Ok(true);
        }
        let call = self
            .git
            .in_vault(vault, "list the files in the agent's commits");
        let call = copy
            .into_iter()
            .fold(call, |call, copy| call.alternate_objects(copy));
        let output = call
            .args(["log", "--format=", "--name-only", "--no-renames", "-z"])
            .args([head.as_str(), &format!("^{base}"), "--"])
            .run()?;
        Ok(output.status == Some(0)
            && !split_nul(&output.stdout)
                .iter()
                .any(|path| foreign.contains(path)))
    }

    /// Returns whether the commits from `base` to `head` follow one another without merges.
    fn is_linear(
        &self,
        vault: &Path,
        copy: Option<&Path>,
        base: &CommitId,
        head: &CommitId,
    ) -> Result<bool, GitError> {
        let call = self.git.in_vault(vault, "list the agent's own commits");
        let call = copy
            .into_iter()
            .fold(call, |call, copy| call.alternate_objects(copy));
        let output = call
            .args(["rev-list", "--parents", "--topo-order"])
            .arg(format!("--max-count={}", MAX_OWN_COMMITS + 1))
            .args([head.as_str(), &format!("^{base}")])
            .run()?;
        if output.status != Some(0) {
            return Ok(false);
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
        let mut expected = head.as_str();
        for line in &lines {
            match line[..] {
                [commit, parent] if commit == expected => expected = parent,
                _ => return Ok(false),
            }
        }
        Ok(lines.len() <= MAX_OWN_COMMITS && expected == base.as_str())
    }
}

/// Returns the commit that a submodule of a workspace has checked out. Reads the file HEAD as text
/// and runs no git.
pub(crate) fn submodule_head(workspace: &Path, submodule: &Path) -> Option<CommitId> {
    head_of(&git_dir_of(workspace, submodule)?)
}

/// Returns the git directory of a workspace, or of a submodule in it.
///
/// Accepts a `.git` directory in `tree` itself, or a directory below the workspace's own
/// `.git/modules`, where `git submodule update` puts the git directories of submodules. A git
/// directory at any other place is ignored, because the agent could have pointed to any directory
/// of the machine.
pub(crate) fn git_dir_of(workspace: &Path, tree: &Path) -> Option<PathBuf> {
    let dot_git = tree.join(".git");
    if disk::is_real_dir(&dot_git) {
        return Some(dot_git);
    }
    let text = String::from_utf8(read_plain_file(&dot_git, 4 << 10)?).ok()?;
    let git_dir = tree.join(text.trim_end().strip_prefix("gitdir: ")?);
    let (real_dir, modules) = (
        git_dir.canonicalize().ok()?,
        workspace.join(".git/modules").canonicalize().ok()?,
    );
    real_dir.starts_with(&modules).then_some(real_dir)
}

/// Returns the commit that the HEAD of a git directory names. Reads HEAD and the refs as text and
/// runs no git.
fn head_of(git_dir: &Path) -> Option<CommitId> {
    if !disk::is_real_dir(git_dir) {
        return None;
    }
    let head = read_plain_file(&git_dir.join("HEAD"), 4 << 10)?;
    let head = String::from_utf8(head).ok()?;
    let Some(name) = head.trim_end().strip_prefix("ref: ") else {
        return CommitId::new(head.trim_end()).ok();
    };
    // A valid branch name contains no `..`, so the path cannot lead out of the git directory.
    let branch = BranchName::new(name.strip_prefix("refs/heads/")?).ok()?;
    let loose_ref = read_plain_file(&git_dir.join("refs/heads").join(branch.as_str()), 4 << 10);
    if let Some(id) = loose_ref
        .and_then(|loose_ref| CommitId::new(String::from_utf8_lossy(&loose_ref).trim_end()).ok())
    {
        return Some(id);
    }
    let packed_refs =
        String::from_utf8_lossy(&read_plain_file(&git_dir.join("packed-refs"), 1 << 20)?)
            .into_owned();
    packed_refs
        .lines()
        .find_map(|line| CommitId::new(line.strip_suffix(name)?.strip_suffix(' ')?).ok())
}

/// Reads a file. Returns `None` unless it is a plain file (not a link, pipe or device) of at most
/// `limit` bytes.
pub(crate) fn read_plain_file(path: &Path, limit: u64) -> Option<Vec<u8>> {
    let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits() as i32;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)
        .ok()?;
    let metadata = file.metadata().ok()?;
    if !metadata.is_file() || metadata.len() > limit {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Copies the plain files of a directory with git objects. Returns `false` if the files exceed the
/// limits or a file cannot be read.
fn copy_objects(from: &Path, to: &Path) -> bool {
    let (mut files, mut bytes) = (0, 0);
    let Ok(dirs) = fs::read_dir(from) else {
        return false;
    };
    for dir in dirs.flatten() {
        let name = dir.file_name();
        let name = name.to_string_lossy();
        let is_object_dir = name == "pack"
            || (name.len() == 2 && name.bytes().all(|byte| byte.is_ascii_hexdigit()));
        if !is_object_dir || !disk::is_real_dir(&dir.path()) {
            continue;
        }
        let target: PathBuf = to.join(&*name);
        let Ok(entries) = fs::read_dir(dir.path()) else {
            return false;
        };
        for entry in entries.flatten() {
            let Ok(metadata) = entry.metadata() else {
                return false;
            };
            if !metadata.is_file() {
                continue;
            }
            (files, bytes) = (files + 1, bytes + metadata.len());
            if files > MAX_FILES || bytes > MAX_BYTES {
                return false;
            }
            let Some(content) = read_plain_file(&entry.path(), MAX_BYTES) else {
                return false;
            };
            if disk::make_dirs(&target).is_err()
                || fs::write(target.join(entry.file_name()), content).is_err()
            {
                return false;
            }
        }
    }
    files > 0
}
