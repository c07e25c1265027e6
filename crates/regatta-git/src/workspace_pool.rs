//! Manages the pool of a project: directories of finished workspaces that were cleaned, so that
//! later attempts can reuse them. Reuse saves time: a directory of 10,000 files that differs from
//! the next base commit in ten files is updated by writing ten files.
//!
//! Five rules ensure that nothing of the earlier agent remains (invariant S5):
//! 1. A workspace is put into the pool only with a proof that its contents are stored elsewhere.
//! 2. The workspace's `.git` is deleted, and a new `.git` is created.
//! 3. Everything that the base commit does not track is removed, including ignored files.
//! 4. Each tracked file is compared with Regatta's own index by size, inode and times, because an
//!    agent cannot choose a file's change time. The file is written again if it differs, or if it
//!    has a second hard link, an unusual mode or extended attributes.
//! 5. Each directory gets its ordinary mode back. A workspace is not reused if new files in one of
//!    its directories would inherit extended attributes.
//!
//! Every step may be interrupted by a crash. While a directory is being cleaned or taken from the
//! pool, its name starts with a dot. Directories with such names are deleted when the daemon first
//! reads the pool. Only a rename gives a cleaned directory its final name.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use regatta_core::ids::{AttemptId, CommitId, ProjectName};
use regatta_engine::ports::git::{DiskGit, DiskUse, GitError, ProjectRepo};

use crate::gitdir::SparseDirs;
use crate::layout::LockKey;
use crate::{GitAdapter, disk, errors};

/// Facts about the pools (finished workspaces that are kept for reuse) of all projects, in memory.
#[derive(Debug, Default)]
pub(crate) struct PoolState {
    /// The projects whose pool this daemon has already read. The first read of a pool removes the
    /// leftovers of a crash.
    cleaned_projects: Mutex<HashSet<ProjectName>>,
    /// The last measurement of the disk space of each project's workspaces: the time of the
    /// measurement, its duration and its result.
    measured: Mutex<HashMap<ProjectName, (Instant, Duration, DiskUse)>>,
}

/// The paths in a working tree that are not deleted when the working tree is cleaned.
struct TrackedPaths {
    files: HashSet<Vec<u8>>,
    dirs: HashSet<Vec<u8>>,
}

impl TrackedPaths {
    /// Collects the paths that `git ls-files -t` printed. Leaves out files that are not checked
    /// out.
    fn from_index_entries(entries: &[Vec<u8>]) -> TrackedPaths {
        let files: HashSet<Vec<u8>> = entries
            .iter()
            .filter_map(|bytes| bytes.strip_prefix(b"H ").map(<[u8]>::to_vec))
            .collect();
        let mut dirs = HashSet::new();
        for file in &files {
            let mut parent = file.as_slice();
            while let Some(slash) = parent.iter().rposition(|byte| *byte == b'/') {
                parent = &parent[..slash];
                if !dirs.insert(parent.to_vec()) {
                    break;
                }
            }
        }
        TrackedPaths { files, dirs }
    }
}

impl DiskGit for GitAdapter {
    fn free_disk_mb(&self) -> Option<u64> {
        self.layout.free_mb()
    }

    /// Measures the disk space of a project's workspaces. If the last measurement was slow, returns
    /// its result again for some time. At most a twentieth of the time is spent on measuring,
    /// because the workspaces may contain millions of files.
    fn disk_use(&self, repo: &ProjectRepo) -> Result<DiskUse, GitError> {
        let measurements = || {
            self.pool_state
                .measured
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        if let Some((measured_at, took, used)) = measurements().get(&repo.project).copied()
            && measured_at.elapsed() < took * 20
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
        measurements().insert(
            repo.project.clone(),
            (Instant::now(), began.elapsed(), used),
        );
        Ok(used)
    }

    fn shrink_pool(&self, repo: &ProjectRepo, max_bytes: u64) -> Result<(), GitError> {
        self.discard_measurement(repo);
        self.with_pool(repo, |pool| {
            let mut remaining = disk::disk_size(pool);
            for entry in pooled_workspaces(pool)? {
                if remaining <= max_bytes {
                    break;
                }
                remaining = remaining.saturating_sub(disk::disk_size(&entry));
                // The directory first gets a name that starts with a dot, so that a half-deleted
                // workspace is never taken from the pool.
                let removed = disk::hidden_sibling(&entry, ".gone");
                disk::rename_synced(&entry, &removed)?;
                disk::remove_tree(&removed)?;
            }
            Ok(())
        })
    }
}

impl GitAdapter {
    /// Runs `action` on a project's pool (finished workspaces that are kept for reuse) while no
    /// other thread uses the pool. The first call for a project removes the leftovers of a crash.
    fn with_pool<T>(
        &self,
        repo: &ProjectRepo,
        action: impl FnOnce(&Path) -> Result<T, GitError>,
    ) -> Result<T, GitError> {
        self.locks
            .with_lock(LockKey::Pool(repo.project.clone()), || {
                let pool = self.layout.pool(&repo.project);
                let cleaned = || {
                    self.pool_state
                        .cleaned_projects
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                };
                if !cleaned().contains(&repo.project) {
                    for entry in dir_entries(&pool)? {
                        if !is_pooled(&entry) {
                            disk::remove_tree(&entry)?;
                        }
                    }
                    cleaned().insert(repo.project.clone());
                }
                action(&pool)
            })
    }

    /// Cleans the finished workspace in the directory `workspace` and moves it into the project's
    /// pool (workspaces that are kept for reuse). If the pool has no room, leaves the workspace
    /// where it is.
    pub(crate) fn pool_workspace(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        workspace: &Path,
        base: &CommitId,
    ) -> Result<(), GitError> {
        let index = self.layout.base_index(&repo.project, attempt);
        let max_pooled = repo.workspace.pool as usize;
        let has_room = |pool: &Path| Ok(pooled_workspaces(pool)?.len() < max_pooled);
        if max_pooled == 0
            || !index.is_file()
            || !disk::is_real_dir(workspace)
            || !self.with_pool(repo, has_room)?
        {
            return Ok(());
        }
        let sparse = SparseDirs::parse(&repo.workspace.sparse)?;
        let pool = self.layout.pool(&repo.project);
        let (name, temporary) = (
            pool.join(attempt.to_string()),
            pool.join(format!(".{attempt}.new")),
        );
        disk::remove_tree(&temporary)?;
        disk::make_dirs(&temporary)?;
        let move_to_pool = || {
            let (tree, pooled_index) = (temporary.join("tree"), temporary.join("index"));
            disk::rename_synced(workspace, &tree)?;
            disk::rename_synced(&index, &pooled_index)?;
            if !self.reset_tree(repo, &tree, &pooled_index, base, sparse.as_ref())? {
                return Ok(());
            }
            disk::write_synced(
                &temporary.join("sparse"),
                SparseDirs::fingerprint(sparse.as_ref()).as_bytes(),
            )?;
            disk::sync_file_system(&temporary)?;
            self.with_pool(repo, |pool| {
                if pooled_workspaces(pool)?.len() >= max_pooled || disk::is_occupied(&name) {
                    return Ok(());
                }
                disk::rename_synced(&temporary, &name)
            })
        };
        let outcome = move_to_pool();
        disk::remove_tree(&temporary)?;
        outcome
    }

    /// Resets a directory to the files of `base`. Returns `false` if the directory must not be
    /// reused, because something of the earlier agent may remain in it.
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
            .in_vault(&vault, "list the files of the base commit")
            .index(index)
            .args(["ls-files", "-t", "-z"]);
        let tracked = TrackedPaths::from_index_entries(&list.run_for_list()?);
        if !delete_untracked(tree, &tracked)? {
            return Ok(false);
        }
        // In a sparse checkout, git reads from a temporary git directory which files are not
        // checked out.
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

    /// Takes a workspace from the project's pool (finished workspaces that are kept for reuse):
    /// moves its files to `dir` and its git index to `index`. Returns `false` if the pool has no
    /// workspace with the same sparse checkout.
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
        let fingerprint = SparseDirs::fingerprint(sparse);
        let taken_dir = self.with_pool(repo, |pool| {
            for entry in pooled_workspaces(pool)?.into_iter().rev() {
                // A workspace with a different sparse checkout is removed from the pool, because
                // perhaps no later attempt can use it.
                if fs::read(entry.join("sparse")).is_ok_and(|bytes| bytes == fingerprint.as_bytes())
                {
                    let taken_path = disk::hidden_sibling(&entry, ".taken");
                    disk::rename_synced(&entry, &taken_path)?;
                    return Ok(Some(taken_path));
                }
                disk::remove_tree(&entry)?;
            }
            Ok(None)
        })?;
        let Some(taken_path) = taken_dir else {
            return Ok(false);
        };
        let moved = disk::rename_synced(&taken_path.join("index"), index)
            .and_then(|()| disk::rename_synced(&taken_path.join("tree"), dir));
        disk::remove_tree(&taken_path)?;
        // If one of the renames failed, the caller creates the workspace from nothing.
        Ok(moved.is_ok())
    }

    /// Discards the last measurement of the disk space, because a workspace was added or removed.
    pub(crate) fn discard_measurement(&self, repo: &ProjectRepo) {
        self.pool_state
            .measured
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&repo.project);
    }
}

/// Returns the paths of the entries in a directory. Returns an empty list if the directory does not
/// exist.
fn dir_entries(dir: &Path) -> Result<Vec<PathBuf>, GitError> {
    match fs::read_dir(dir) {
        Ok(entries) => entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>(),
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(cause) => Err(cause),
    }
    .map_err(|cause| errors::io_error("read the directory", dir, &cause))
}

fn attempt_of_dir(path: &Path) -> Option<AttemptId> {
    path.file_name()?.to_str()?.parse().ok()
}

fn is_pooled(path: &Path) -> bool {
    attempt_of_dir(path).is_some()
}

/// Returns the directories of a project's pool (cleaned workspaces that are kept for reuse), oldest
/// first.
fn pooled_workspaces(pool: &Path) -> Result<Vec<PathBuf>, GitError> {
    let mut workspaces: Vec<_> = dir_entries(pool)?
        .into_iter()
        .filter(|path| is_pooled(path))
        .collect();
    workspaces.sort_by_key(|path| attempt_of_dir(path));
    Ok(workspaces)
}

/// Deletes everything in `tree` that is not tracked, and gives the directories in `tree` their
/// ordinary mode. Returns `false` if a directory has attributes that new files in it would inherit.
fn delete_untracked(tree: &Path, tracked: &TrackedPaths) -> Result<bool, GitError> {
    let default_mode = default_dir_mode(tree)?;
    // Each directory is made readable and writable before it is read, because an agent may have
    // made it read-only.
    let mut pending = vec![Vec::new()];
    while let Some(dir_path) = pending.pop() {
        let dir = tree.join(OsStr::from_bytes(&dir_path));
        let to_error = |cause: std::io::Error| {
            errors::io_error("delete untracked files in the directory", &dir, &cause)
        };
        let mode = fs::symlink_metadata(&dir)
            .map_err(to_error)?
            .permissions()
            .mode()
            & 0o7777;
        if mode != default_mode {
            fs::set_permissions(&dir, fs::Permissions::from_mode(default_mode))
                .map_err(to_error)?;
        }
        if has_extended_attributes(&dir) {
            return Ok(false);
        }
        for entry in fs::read_dir(&dir).map_err(to_error)? {
            let entry = entry.map_err(to_error)?;
            let mut path = dir_path.clone();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(entry.file_name().as_bytes());
            let is_dir = entry.file_type().map_err(to_error)?.is_dir();
            if is_dir && tracked.dirs.contains(&path) {
                pending.push(path);
            } else if is_dir
                || !tracked.files.contains(&path)
                || has_unusual_metadata(&entry, default_mode)
            {
                disk::remove_tree(&entry.path())?;
            }
        }
    }
    Ok(true)
}

/// Returns the permission bits that a new directory in `tree` gets.
fn default_dir_mode(tree: &Path) -> Result<u32, GitError> {
    let probe = tree.with_file_name("probe");
    disk::remove_tree(&probe)?;
    disk::make_dirs(&probe)?;
    let mode = fs::metadata(&probe)
        .map_err(|cause| errors::io_error("read the metadata of", &probe, &cause))?
        .permissions()
        .mode();
    disk::remove_tree(&probe)?;
    Ok(mode & 0o7777)
}

/// Returns whether a tracked file has a second hard link, an unusual mode or extended attributes.
/// Git misses such a change if it was made in the same second in which the file was written,
/// because git compares times in whole seconds.
fn has_unusual_metadata(entry: &fs::DirEntry, default_mode: u32) -> bool {
    let Ok(metadata) = entry.metadata() else {
        return true;
    };
    if metadata.is_symlink() {
        return metadata.nlink() != 1;
    }
    let mode = metadata.permissions().mode() & 0o7777;
    let is_default = mode == default_mode || mode == default_mode & 0o666;
    metadata.nlink() != 1 || !is_default || has_extended_attributes(&entry.path())
}

/// Returns whether a file or directory has extended attributes other than those that the system's
/// security module sets.
fn has_extended_attributes(path: &Path) -> bool {
    let mut names = [0u8; 4096];
    match rustix::fs::llistxattr(path, &mut names) {
        Ok(length) => names[..length]
            .split(|byte| *byte == 0)
            .any(|name| !name.is_empty() && !name.starts_with(b"security.")),
        // On a file system that does not support extended attributes, no file has any. If the
        // attributes cannot be read for another reason, the file counts as having some.
        Err(error) => error != rustix::io::Errno::NOTSUP,
    }
}
