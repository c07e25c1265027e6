//! Imports the commits that an agent made itself, as far as they are valid.
//!
//! The workspace's `.git` belongs to the agent, so no git runs in it. Its HEAD is read as text, its
//! objects are copied as plain files to a scratch directory, and git checks every object before it
//! becomes the vault's. A history is left out if it is not a plain line from the base (merges, too
//! many commits, missing objects), or if it has a file from before the attempt (`copy.rs`). The
//! files are captured anyway.

use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use regatta_core::ids::{BranchName, CommitId};
use regatta_engine::ports::git::GitError;

use crate::merge::MOST_OWN_COMMITS;
use crate::run::{Said, split};
use crate::{GitAdapter, disk};

/// The limits for copying an agent's objects.
const MOST_BYTES: u64 = 256 << 20;
const MOST_FILES: usize = 20_000;

impl GitAdapter {
    /// Returns the agent's newest own commit, after importing it into the vault with everything it
    /// needs since `base`.
    pub(crate) fn own_history(
        &self,
        vault: &Path,
        workspace: &Path,
        (base, foreign): (&CommitId, &HashSet<Vec<u8>>),
    ) -> Result<Option<CommitId>, GitError> {
        let git_dir = workspace.join(".git");
        let Some(head) = head_of(&git_dir).filter(|it| it != base) else { return Ok(None) };
        if self.find(vault, &format!("{head}^{{commit}}"))?.is_some() {
            let fits = self.is_line(vault, None, base, &head)? && self.is_own(vault, None, (base, &head), foreign)?;
            return Ok(fits.then_some(head));
        }
        let copy = self.places.scratch_objects(vault);
        let taken = self.take_objects(vault, &git_dir, &copy, (base, &head, foreign));
        disk::remove(&copy)?;
        Ok(taken?.then_some(head))
    }

    fn take_objects(
        &self,
        vault: &Path,
        git_dir: &Path,
        copy: &Path,
        (base, head, foreign): (&CommitId, &CommitId, &HashSet<Vec<u8>>),
    ) -> Result<bool, GitError> {
        if !copy_objects(&git_dir.join("objects"), copy)
            || !self.is_line(vault, Some(copy), base, head)?
            || !self.is_own(vault, Some(copy), (base, head), foreign)?
        {
            return Ok(false);
        }
        let packed = self
            .git
            .ours(vault, "read the agent's commits")
            .also_objects(copy)
            .args(["pack-objects", "--quiet", "--revs", "--stdout", "--no-reuse-delta"])
            .input(format!("{head}\n^{base}\n").into_bytes())
            .run()?;
        self.unpack(vault, packed)
    }

    /// Imports a commit from the git directory of an agent's submodule, with everything it needs.
    /// Returns `false` if it is not there.
    pub(crate) fn take_submodule(&self, vault: &Path, git_dir: &Path, commit: &CommitId) -> Result<bool, GitError> {
        let copy = self.places.scratch_objects(vault);
        let taken = if copy_objects(&git_dir.join("objects"), &copy) {
            self.take_whole(vault, &copy, commit)
        } else {
            Ok(false)
        };
        disk::remove(&copy)?;
        taken
    }

    fn take_whole(&self, vault: &Path, copy: &Path, commit: &CommitId) -> Result<bool, GitError> {
        let listed = self.git.ours(vault, "list the submodules' commits");
        let listed = listed.args(["for-each-ref", "--format=^%(objectname)", "refs/regatta/modules/"]).line()?;
        let packed = self
            .git
            .ours(vault, "read the agent's commits")
            .also_objects(copy)
            .args(["pack-objects", "--quiet", "--revs", "--stdout", "--no-reuse-delta"])
            .input(format!("{commit}\n{listed}\n").into_bytes())
            .run()?;
        self.unpack(vault, packed)
    }

    /// Imports the objects of a pack that was just made, after git has checked each of them.
    fn unpack(&self, vault: &Path, packed: Said) -> Result<bool, GitError> {
        if packed.status != Some(0) {
            return Ok(false); // an object is missing or broken, which only costs the agent's own commits
        }
        let taken = self.git.ours(vault, "check the agent's commits").args(["unpack-objects", "-q", "--strict"]);
        if taken.input(packed.stdout).run()?.status != Some(0) {
            return Ok(false);
        }
        disk::sync_objects(vault)?;
        Ok(true)
    }

    /// Returns whether no commit from `base` to `head` has a file from before the attempt. Such a
    /// file may be a secret of the user and is nobody's work.
    fn is_own(
        &self,
        vault: &Path,
        copy: Option<&Path>,
        (base, head): (&CommitId, &CommitId),
        foreign: &HashSet<Vec<u8>>,
    ) -> Result<bool, GitError> {
        if foreign.is_empty() {
            return Ok(true);
        }
        let call = self.git.ours(vault, "list what the agent committed");
        let call = copy.into_iter().fold(call, |call, copy| call.also_objects(copy));
        let said = call
            .args(["log", "--format=", "--name-only", "--no-renames", "-z"])
            .args([head.as_str(), &format!("^{base}"), "--"])
            .run()?;
        Ok(said.status == Some(0) && !split(&said.stdout).iter().any(|it| foreign.contains(it)))
    }

    /// Returns whether the commits from `base` to `head` follow one another without merges.
    fn is_line(&self, vault: &Path, copy: Option<&Path>, base: &CommitId, head: &CommitId) -> Result<bool, GitError> {
        let call = self.git.ours(vault, "list the agent's own commits");
        let call = copy.into_iter().fold(call, |call, copy| call.also_objects(copy));
        let said = call
            .args(["rev-list", "--parents", "--topo-order"])
            .arg(format!("--max-count={}", MOST_OWN_COMMITS + 1))
            .args([head.as_str(), &format!("^{base}")])
            .run()?;
        if said.status != Some(0) {
            return Ok(false);
        }
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        let lines: Vec<Vec<&str>> = text.lines().map(|it| it.split(' ').collect()).collect();
        let mut wanted = head.as_str();
        for line in &lines {
            match line[..] {
                [commit, parent] if commit == wanted => wanted = parent,
                _ => return Ok(false),
            }
        }
        Ok(lines.len() <= MOST_OWN_COMMITS && wanted == base.as_str())
    }
}

/// Returns the commit that a submodule of a workspace has checked out, read as text.
pub(crate) fn checked_out(workspace: &Path, submodule: &Path) -> Option<CommitId> {
    head_of(&git_dir_of(workspace, submodule)?)
}

/// Returns the git directory of a workspace or of a submodule in it.
///
/// It is in the tree itself, or below the workspace's own git directory, as `git submodule update`
/// makes it. Other places are ignored.
pub(crate) fn git_dir_of(workspace: &Path, tree: &Path) -> Option<PathBuf> {
    let place = tree.join(".git");
    if disk::is_real_dir(&place) {
        return Some(place);
    }
    let text = String::from_utf8(read_plain(&place, 4 << 10)?).ok()?;
    let named = tree.join(text.trim_end().strip_prefix("gitdir: ")?);
    let (real, modules) = (named.canonicalize().ok()?, workspace.join(".git/modules").canonicalize().ok()?);
    real.starts_with(&modules).then_some(real)
}

/// Returns the commit that HEAD names, read as text.
fn head_of(git_dir: &Path) -> Option<CommitId> {
    if !disk::is_real_dir(git_dir) {
        return None;
    }
    let head = read_plain(&git_dir.join("HEAD"), 4 << 10)?;
    let head = String::from_utf8(head).ok()?;
    let Some(name) = head.trim_end().strip_prefix("ref: ") else { return CommitId::new(head.trim_end()).ok() };
    // An accepted name contains no `..`.
    let branch = BranchName::new(name.strip_prefix("refs/heads/")?).ok()?;
    let loose = read_plain(&git_dir.join("refs/heads").join(branch.as_str()), 4 << 10);
    if let Some(id) = loose.and_then(|it| CommitId::new(String::from_utf8_lossy(&it).trim_end()).ok()) {
        return Some(id);
    }
    let packed = String::from_utf8_lossy(&read_plain(&git_dir.join("packed-refs"), 1 << 20)?).into_owned();
    packed.lines().find_map(|it| CommitId::new(it.strip_suffix(name)?.strip_suffix(' ')?).ok())
}

/// Reads a file, if it is a plain file of at most `limit` bytes and not a link, a pipe or a device.
pub(crate) fn read_plain(path: &Path, limit: u64) -> Option<Vec<u8>> {
    let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    let found = file.metadata().ok()?;
    let mut bytes = Vec::new();
    (found.is_file() && found.len() <= limit).then_some(())?;
    file.take(limit).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Copies the plain files of an object directory. Returns `false` if there is too much or a file
/// cannot be read.
fn copy_objects(from: &Path, to: &Path) -> bool {
    let (mut files, mut bytes) = (0, 0);
    let Ok(folders) = fs::read_dir(from) else { return false };
    for folder in folders.flatten() {
        let name = folder.file_name();
        let name = name.to_string_lossy();
        let wanted = name == "pack" || (name.len() == 2 && name.bytes().all(|it| it.is_ascii_hexdigit()));
        if !wanted || !disk::is_real_dir(&folder.path()) {
            continue;
        }
        let to: PathBuf = to.join(&*name);
        let Ok(entries) = fs::read_dir(folder.path()) else { return false };
        for entry in entries.flatten() {
            let Ok(found) = entry.metadata() else { return false };
            if !found.is_file() {
                continue;
            }
            (files, bytes) = (files + 1, bytes + found.len());
            if files > MOST_FILES || bytes > MOST_BYTES {
                return false;
            }
            let Some(content) = read_plain(&entry.path(), MOST_BYTES) else { return false };
            if disk::make_dirs(&to).is_err() || fs::write(to.join(entry.file_name()), content).is_err() {
                return false;
            }
        }
    }
    files > 0
}
