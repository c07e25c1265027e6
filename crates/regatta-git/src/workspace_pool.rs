//! The pool of finished workspaces, which are cleaned and kept for another attempt.
//!
//! A directory of 10,000 files that differs from the next base in ten of them is updated by writing
//! ten files. Five rules make reuse safe (S5). A workspace gets here only with its proof of
//! reachability. Its `.git` is deleted whole and a new one is written. Everything that the base
//! does not track is removed, including ignored files. Tracked files are compared with the pool's
//! own index (size, times, inode; an agent cannot set a file's change time) and written again if
//! they differ in anything, or have a second name, an unusual mode or attributes. Directories get
//! their ordinary mode back. A tree with extended attributes that new files would inherit is not
//! kept.
//!
//! Every step may be interrupted. A tree that is being cleaned or taken has a name that starts with
//! a dot, and such names are deleted when the daemon first reads the pool. Only a rename gives a
//! cleaned tree its final name.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use regatta_core::ids::{AttemptId, CommitId, ProjectName};
use regatta_engine::ports::git::{DiskUse, GitError, ProjectRepo};

use crate::gitdir::SparseDirs;
use crate::layout::LockKey;
use crate::{GitAdapter, disk, errors};

/// The state of the pools in memory.
#[derive(Debug, Default)]
pub(crate) struct PoolState {
    /// The projects whose pools were read since the daemon started.
    cleaned_projects: Mutex<HashSet<ProjectName>>,
    /// The disk space of each project's workspaces at the last measurement, with its time and
    /// duration.
    measured: Mutex<HashMap<ProjectName, (Instant, Duration, DiskUse)>>,
}

/// The paths of a working tree that stay when it is cleaned.
struct TrackedPaths {
    files: HashSet<Vec<u8>>,
    dirs: HashSet<Vec<u8>>,
}

impl TrackedPaths {
    /// Collects the entries of `ls-files -t`, without those that are not checked out.
    fn from_index_entries(entries: &[Vec<u8>]) -> TrackedPaths {
        let files: HashSet<Vec<u8>> = entries
            .iter()
            .filter_map(|bytes| bytes.strip_prefix(b"H ").map(<[u8]>::to_vec))
            .collect();
        let mut dirs = HashSet::new();
        for file in &files {
            let mut rest = file.as_slice();
            while let Some(at) = rest.iter().rposition(|byte| *byte == b'/') {
                rest = &rest[..at];
                if !dirs.insert(rest.to_vec()) {
                    break;
                }
            }
        }
        TrackedPaths { files, dirs }
    }
}

impl GitAdapter {
    /// Runs `work` on a project's pool while nobody else uses it, after removing leftovers of a
    /// crash.
    fn with_pool<T>(
        &self,
        repo: &ProjectRepo,
        work: impl FnOnce(&Path) -> Result<T, GitError>,
    ) -> Result<T, GitError> {
        self.locks
            .with_lock(LockKey::Pool(repo.project.clone()), || {
                let pool = self.layout.pool(&repo.project);
                let seen = || {
                    self.pool_state
                        .cleaned_projects
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                };
                if !seen().contains(&repo.project) {
                    for entry in dir_entries(&pool)? {
                        if !is_pooled(&entry) {
                            disk::remove_tree(&entry)?;
                        }
                    }
                    seen().insert(repo.project.clone());
                }
                work(&pool)
            })
    }

    /// Puts the finished workspace in `gone` into the pool, if there is room. Otherwise leaves it
    /// where it is.
    pub(crate) fn pool_workspace(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        gone: &Path,
        base: &CommitId,
    ) -> Result<(), GitError> {
        let index = self.layout.base_index(&repo.project, attempt);
        let most = repo.workspace.pool as usize;
        let room = |pool: &Path| Ok(pooled_workspaces(pool)?.len() < most);
        if most == 0
            || !index.is_file()
            || !disk::is_real_dir(gone)
            || !self.with_pool(repo, room)?
        {
            return Ok(());
        }
        let sparse = SparseDirs::parse(&repo.workspace.sparse)?;
        let pool = self.layout.pool(&repo.project);
        let (name, making) = (
            pool.join(attempt.to_string()),
            pool.join(format!(".{attempt}.new")),
        );
        disk::remove_tree(&making)?;
        disk::make_dirs(&making)?;
        let made = || {
            let (tree, kept) = (making.join("tree"), making.join("index"));
            disk::rename_synced(gone, &tree)?;
            disk::rename_synced(&index, &kept)?;
            if !self.reset_tree(repo, &tree, &kept, base, sparse.as_ref())? {
                return Ok(());
            }
            disk::write_synced(
                &making.join("sparse"),
                SparseDirs::fingerprint(sparse.as_ref()).as_bytes(),
            )?;
            disk::sync_file_system(&making)?;
            self.with_pool(repo, |pool| {
                if pooled_workspaces(pool)?.len() >= most || disk::is_occupied(&name) {
                    return Ok(());
                }
                disk::rename_synced(&making, &name)
            })
        };
        let outcome = made();
        disk::remove_tree(&making)?;
        outcome
    }

    /// Resets a tree to `base`. Returns `false` if the result cannot be trusted.
    fn reset_tree(
        &self,
        repo: &ProjectRepo,
        tree: &Path,
        index: &Path,
        base: &CommitId,
        sparse: Option<&SparseDirs>,
    ) -> Result<bool, GitError> {
        let vault = self.vault(repo)?;
        let list = self
            .git
            .in_vault(&vault, "list the base's files")
            .index(index)
            .args(["ls-files", "-t", "-z"]);
        let tracked = TrackedPaths::from_index_entries(&list.run_for_list()?);
        if !delete_untracked(tree, &tracked)? {
            return Ok(false);
        }
        // A temporary git directory, so that git knows the files that are not checked out.
        let git_dir = tree.join(".git");
        crate::gitdir::make_git_dir(
            &git_dir,
            &vault,
            base,
            &crate::gitdir::HeadTarget::Detached,
            sparse,
        )?;
        self.check_out(tree, &git_dir, index, base)?;
        disk::remove_tree(&git_dir)?;
        Ok(true)
    }

    /// Moves a pooled workspace to `dir` and its index to `index`. Returns `false` when none fits.
    pub(crate) fn take_pooled(
        &self,
        repo: &ProjectRepo,
        sparse: Option<&SparseDirs>,
        dir: &Path,
        index: &Path,
    ) -> Result<bool, GitError> {
        if repo.workspace.pool == 0 {
            return Ok(false);
        }
        let wanted = SparseDirs::fingerprint(sparse);
        let taken = self.with_pool(repo, |pool| {
            for entry in pooled_workspaces(pool)?.into_iter().rev() {
                // A workspace with another sparse checkout is removed, because its kind may never
                // be needed again.
                if fs::read(entry.join("sparse")).is_ok_and(|bytes| bytes == wanted.as_bytes()) {
                    let taking = disk::hidden_sibling(&entry, ".taken");
                    disk::rename_synced(&entry, &taking)?;
                    return Ok(Some(taking));
                }
                disk::remove_tree(&entry)?;
            }
            Ok(None)
        })?;
        let Some(taking) = taken else {
            return Ok(false);
        };
        let moved = disk::rename_synced(&taking.join("index"), index)
            .and_then(|()| disk::rename_synced(&taking.join("tree"), dir));
        disk::remove_tree(&taking)?;
        // If the pooled workspace is incomplete, the caller makes a fresh one.
        Ok(moved.is_ok())
    }

    /// Measures the disk space, but spends at most a twentieth of the time on it, because there may
    /// be millions of files.
    pub(crate) fn measure_disk_use(&self, repo: &ProjectRepo) -> Result<DiskUse, GitError> {
        let seen = || {
            self.pool_state
                .measured
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        if let Some((at, took, used)) = seen().get(&repo.project).copied()
            && at.elapsed() < took * 20
        {
            return Ok(used);
        }
        let began = Instant::now();
        let live = disk::disk_size(&self.layout.workspaces(&repo.project));
        let pooled = self.with_pool(repo, |pool| Ok(disk::disk_size(pool)))?;
        let used = DiskUse {
            live_bytes: live,
            pooled_bytes: pooled,
        };
        seen().insert(
            repo.project.clone(),
            (Instant::now(), began.elapsed(), used),
        );
        Ok(used)
    }

    /// Discards the last measurement, because a workspace was added or removed.
    pub(crate) fn discard_measurement(&self, repo: &ProjectRepo) {
        self.pool_state
            .measured
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&repo.project);
    }

    /// Removes the oldest pooled workspaces until the pool takes at most `most` bytes.
    pub(crate) fn shrink_pool_to(&self, repo: &ProjectRepo, most: u64) -> Result<(), GitError> {
        self.discard_measurement(repo);
        self.with_pool(repo, |pool| {
            let mut left = disk::disk_size(pool);
            for entry in pooled_workspaces(pool)? {
                if left <= most {
                    break;
                }
                left = left.saturating_sub(disk::disk_size(&entry));
                // Renamed to a dotted name first, so that a half-deleted workspace is never taken
                // from the pool.
                let going = disk::hidden_sibling(&entry, ".gone");
                disk::rename_synced(&entry, &going)?;
                disk::remove_tree(&going)?;
            }
            Ok(())
        })
    }
}

/// Returns the entries of a directory, or none if it does not exist.
fn dir_entries(dir: &Path) -> Result<Vec<PathBuf>, GitError> {
    match fs::read_dir(dir) {
        Ok(found) => found
            .map(|found| found.map(|entry| entry.path()))
            .collect::<Result<_, _>>(),
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(cause) => Err(cause),
    }
    .map_err(|cause| errors::io_error("read", dir, &cause))
}

fn attempt_of_dir(path: &Path) -> Option<AttemptId> {
    path.file_name()?.to_str()?.parse().ok()
}

fn is_pooled(path: &Path) -> bool {
    attempt_of_dir(path).is_some()
}

/// Returns the pooled workspaces, oldest first.
fn pooled_workspaces(pool: &Path) -> Result<Vec<PathBuf>, GitError> {
    let mut found: Vec<_> = dir_entries(pool)?
        .into_iter()
        .filter(|path| is_pooled(path))
        .collect();
    found.sort_by_key(|path| attempt_of_dir(path));
    Ok(found)
}

/// Deletes everything in `tree` that is not tracked, and gives its directories their ordinary mode.
/// Returns `false` when a directory has attributes that new files in it would inherit.
fn delete_untracked(tree: &Path, tracked: &TrackedPaths) -> Result<bool, GitError> {
    let ordinary = default_dir_mode(tree)?;
    // Read-only directories must not stop the walk, so each directory is made accessible before it
    // is read.
    let mut left = vec![Vec::new()];
    while let Some(inner) = left.pop() {
        let dir = tree.join(OsStr::from_bytes(&inner));
        let failed = |cause: std::io::Error| errors::io_error("clean", &dir, &cause);
        let mode = fs::symlink_metadata(&dir)
            .map_err(failed)?
            .permissions()
            .mode()
            & 0o7777;
        if mode != ordinary {
            fs::set_permissions(&dir, fs::Permissions::from_mode(ordinary)).map_err(failed)?;
        }
        if has_extended_attributes(&dir) {
            return Ok(false);
        }
        for entry in fs::read_dir(&dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let mut path = inner.clone();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(entry.file_name().as_bytes());
            let is_dir = entry.file_type().map_err(failed)?.is_dir();
            if is_dir && tracked.dirs.contains(&path) {
                left.push(path);
            } else if is_dir
                || !tracked.files.contains(&path)
                || has_unusual_metadata(&entry, ordinary)
            {
                disk::remove_tree(&entry.path())?;
            }
        }
    }
    Ok(true)
}

/// Returns the mode of a newly created directory.
fn default_dir_mode(tree: &Path) -> Result<u32, GitError> {
    let probe = tree.with_file_name("probe");
    disk::remove_tree(&probe)?;
    disk::make_dirs(&probe)?;
    let mode = fs::metadata(&probe)
        .map_err(|cause| errors::io_error("look at", &probe, &cause))?
        .permissions()
        .mode();
    disk::remove_tree(&probe)?;
    Ok(mode & 0o7777)
}

/// Returns whether a tracked file has a second link, an unusual mode or extended attributes. Git
/// compares times in seconds, so it misses such a change of a file in the file's first second.
fn has_unusual_metadata(entry: &fs::DirEntry, ordinary: u32) -> bool {
    let Ok(found) = entry.metadata() else {
        return true;
    };
    if found.is_symlink() {
        return found.nlink() != 1;
    }
    let mode = found.permissions().mode() & 0o7777;
    let ours = mode == ordinary || mode == ordinary & 0o666;
    found.nlink() != 1 || !ours || has_extended_attributes(&entry.path())
}

/// Returns whether a file or directory has extended attributes other than those of the security
/// module.
fn has_extended_attributes(path: &Path) -> bool {
    let mut names = [0u8; 4096];
    match rustix::fs::llistxattr(path, &mut names) {
        Ok(length) => names[..length]
            .split(|byte| *byte == 0)
            .any(|names| !names.is_empty() && !names.starts_with(b"security.")),
        // A file system without support has no attributes. A list too long to read is suspicious.
        Err(error) => error != rustix::io::Errno::NOTSUP,
    }
}
