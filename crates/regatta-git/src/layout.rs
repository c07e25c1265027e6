//! The layout of the data directory, and the locks on its parts.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use regatta_core::ids::{AttemptId, ProjectName};

/// The layout of the data directory.
///
/// Names that start with a dot are being created or removed. No project, attempt or slot has such a
/// name.
#[derive(Debug)]
pub(crate) struct DataLayout {
    data_dir: PathBuf,
}

/// Numbers for scratch names. One counter serves the whole process, because it may have several
/// adapters on one data directory.
static NEXT_SCRATCH_NUMBER: AtomicU64 = AtomicU64::new(0);

impl DataLayout {
    pub(crate) fn new(data_dir: PathBuf) -> DataLayout {
        DataLayout { data_dir }
    }
    /// Returns Regatta's own "global" git configuration.
    pub(crate) fn global_config(&self) -> PathBuf {
        self.data_dir.join("vaults").join(".gitconfig")
    }
    /// Returns the free disk space here, in mebibytes.
    pub(crate) fn free_mb(&self) -> Option<u64> {
        let existing = self.data_dir.ancestors().find(|path| path.is_dir())?;
        rustix::fs::statvfs(existing)
            .ok()
            .map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize) >> 20)
    }
    pub(crate) fn vault(&self, project: &ProjectName) -> PathBuf {
        self.data_dir.join("vaults").join(format!("{project}.git"))
    }
    pub(crate) fn vault_in_creation(&self, project: &ProjectName) -> PathBuf {
        self.data_dir.join("vaults").join(format!(".{project}.new"))
    }
    /// Returns a file that exists while the vault is being updated to the trunk.
    pub(crate) fn fetch_marker(&self, vault: &Path) -> PathBuf {
        vault.join("regatta").join("fetching")
    }
    /// Returns the directory in which a runner keeps its own copy of a project of another machine.
    pub(crate) fn mirror(&self, project: &ProjectName) -> PathBuf {
        self.data_dir.join("mirrors").join(format!("{project}.git"))
    }
    pub(crate) fn workspaces(&self, project: &ProjectName) -> PathBuf {
        self.data_dir.join("workspaces").join(project.as_str())
    }
    pub(crate) fn workspace(&self, project: &ProjectName, attempt: AttemptId) -> PathBuf {
        self.workspaces(project).join(attempt.to_string())
    }
    pub(crate) fn staging(&self, project: &ProjectName, slot: u32) -> PathBuf {
        self.data_dir
            .join("staging")
            .join(project.as_str())
            .join(slot.to_string())
    }
    /// Returns the file with the index from the time when the workspace was made. With it a capture
    /// reads only files that changed since.
    pub(crate) fn base_index(&self, project: &ProjectName, attempt: AttemptId) -> PathBuf {
        self.vault(project)
            .join("regatta")
            .join(format!("{attempt}.index"))
    }
    /// Returns an unused directory for objects that are not yet the vault's.
    pub(crate) fn scratch_objects(&self, vault: &Path) -> PathBuf {
        let number = NEXT_SCRATCH_NUMBER.fetch_add(1, Ordering::Relaxed);
        vault
            .join("passing")
            .join(format!("{}-{number}", std::process::id()))
    }
    /// Removes the scratch objects of processes that have ended.
    pub(crate) fn remove_dead_scratch(&self, vault: &Path) {
        let Ok(entries) = fs::read_dir(vault.join("passing")) else {
            return;
        };
        for entry in entries.flatten() {
            let pid = entry
                .file_name()
                .to_string_lossy()
                .split('-')
                .next()
                .and_then(|text| text.parse::<u32>().ok());
            if pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
                // A directory that cannot be removed is tried again the next time.
                let _ = crate::disk::remove_tree(&entry.path());
            }
        }
    }
    /// Returns a file that exists once the workspace is ready to be worked in.
    pub(crate) fn ready_marker(&self, project: &ProjectName, attempt: AttemptId) -> PathBuf {
        self.vault(project)
            .join("regatta")
            .join(format!("{attempt}.settled"))
    }
    /// Returns the file that lists the workspace's paths from before its attempt that the base does
    /// not have.
    pub(crate) fn foreign_list(&self, project: &ProjectName, attempt: AttemptId) -> PathBuf {
        self.vault(project)
            .join("regatta")
            .join(format!("{attempt}.foreign"))
    }
    /// Returns the directory of a project's pooled workspaces.
    pub(crate) fn pool(&self, project: &ProjectName) -> PathBuf {
        self.data_dir.join("pool").join(project.as_str())
    }
    pub(crate) fn data_dir(&self) -> &Path {
        &self.data_dir
    }
    /// Returns an unused file name. Dropping it removes the file.
    pub(crate) fn scratch(&self, project: &ProjectName) -> ScratchFile {
        let number = NEXT_SCRATCH_NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("scratch-{}-{number}", std::process::id());
        ScratchFile(self.vault(project).join("regatta").join(name))
    }
}

/// The name of a temporary file, which is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct ScratchFile(PathBuf);

impl ScratchFile {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ScratchFile {
    fn drop(&mut self) {
        // The file may never have been written, and then nothing is left to do.
        let _ = fs::remove_file(&self.0);
        let _ = fs::remove_file(self.0.with_extension("lock"));
    }
}

/// A part of the data directory that one thread at a time may work on.
///
/// Locks are taken in the order of the variants, so that two threads never wait for each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LockKey {
    Attempt(ProjectName, AttemptId),
    Slot(ProjectName, u32),
    Pool(ProjectName),
    Trunk(ProjectName),
    Mirror(ProjectName),
    Submodules(ProjectName),
    Vault(ProjectName),
}

/// The locks of this process. No other process uses the data directory, so these suffice.
#[derive(Debug, Default)]
pub(crate) struct Locks(Mutex<HashMap<LockKey, Arc<Mutex<()>>>>);

impl Locks {
    /// Runs `action` while nobody else works on `key`.
    pub(crate) fn with_lock<T>(&self, key: LockKey, action: impl FnOnce() -> T) -> T {
        let lock = Arc::clone(self.lock_table().entry(key.clone()).or_default());
        let guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        let result = action();
        drop(guard);
        drop(lock);
        // The last user removes the lock, because the number of attempts is unlimited.
        let mut table = self.lock_table();
        if table
            .get(&key)
            .is_some_and(|mutex| Arc::strong_count(mutex) == 1)
        {
            table.remove(&key);
        }
        result
    }

    fn lock_table(&self) -> MutexGuard<'_, HashMap<LockKey, Arc<Mutex<()>>>> {
        // The table is consistent between any two statements, so a panic elsewhere does not damage
        // it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_excludes_others_and_its_entry_is_removed_afterwards() {
        let locks = Locks::default();
        let key = || LockKey::Vault(ProjectName::new("shop").unwrap());
        let inside = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        locks.with_lock(key(), || {
                            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                            inside.fetch_sub(1, Ordering::SeqCst);
                        });
                    }
                });
            }
        });
        assert!(locks.lock_table().is_empty());
    }
}
