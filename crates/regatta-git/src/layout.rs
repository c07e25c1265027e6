//! Defines where this crate stores its files in the data directory, and the locks that protect
//! them.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use regatta_core::ids::{AttemptId, ProjectName};

/// The paths of all files and directories in the data directory that this crate uses.
///
/// A name that starts with a dot belongs to a file or directory that is being created or removed.
/// No project, attempt or staging directory has such a name.
#[derive(Debug)]
pub(crate) struct DataLayout {
    data_dir: PathBuf,
}

/// The next number for the name of a temporary file. The number is shared by the whole process,
/// because several adapters may use the same data directory.
static NEXT_SCRATCH_NUMBER: AtomicU64 = AtomicU64::new(0);

impl DataLayout {
    pub(crate) fn new(data_dir: PathBuf) -> DataLayout {
        DataLayout { data_dir }
    }
    /// Returns the path of Regatta's own global git configuration.
    pub(crate) fn global_config(&self) -> PathBuf {
        self.data_dir.join("vaults").join(".gitconfig")
    }
    /// Returns the free disk space in the data directory in mebibytes, or `None` if it is unknown.
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
    /// Returns the path of a marker file that exists while the trunk is being fetched into the
    /// vault (Regatta's own repository).
    pub(crate) fn fetch_marker(&self, vault: &Path) -> PathBuf {
        vault.join("regatta").join("fetching")
    }
    /// Returns the directory in which a runner keeps its copy of a project from the server.
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
    /// Returns the path of the git index from the moment when the workspace was created. With this
    /// index, storing the workspace's files as a commit reads only the files that have changed
    /// since.
    pub(crate) fn base_index(&self, project: &ProjectName, attempt: AttemptId) -> PathBuf {
        self.vault(project)
            .join("regatta")
            .join(format!("{attempt}.index"))
    }
    /// Returns the path of an unused directory for git objects that must not be in the vault
    /// (Regatta's own repository) yet.
    pub(crate) fn scratch_objects(&self, vault: &Path) -> PathBuf {
        let number = NEXT_SCRATCH_NUMBER.fetch_add(1, Ordering::Relaxed);
        vault
            .join("passing")
            .join(format!("{}-{number}", std::process::id()))
    }
    /// Removes the temporary object directories that belonged to processes which have ended.
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
                // If the directory cannot be removed, the next call of this function tries again.
                let _ = crate::disk::remove_tree(&entry.path());
            }
        }
    }
    /// Returns the path of a marker file that exists as soon as the workspace is prepared and an
    /// agent can start to work in it.
    pub(crate) fn ready_marker(&self, project: &ProjectName, attempt: AttemptId) -> PathBuf {
        self.vault(project)
            .join("regatta")
            .join(format!("{attempt}.settled"))
    }
    /// Returns the path of a list of files. The list names the workspace's files that existed
    /// before the attempt began and that its base commit does not contain.
    pub(crate) fn foreign_list(&self, project: &ProjectName, attempt: AttemptId) -> PathBuf {
        self.vault(project)
            .join("regatta")
            .join(format!("{attempt}.foreign"))
    }
    /// Returns the directory of a project's workspaces that are kept for reuse.
    pub(crate) fn pool(&self, project: &ProjectName) -> PathBuf {
        self.data_dir.join("pool").join(project.as_str())
    }
    pub(crate) fn data_dir(&self) -> &Path {
        &self.data_dir
    }
    /// Returns the name of a temporary file that does not exist yet. Dropping the returned value
    /// removes the file.
    pub(crate) fn scratch(&self, project: &ProjectName) -> ScratchFile {
        let number = NEXT_SCRATCH_NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("scratch-{}-{number}", std::process::id());
        ScratchFile(self.vault(project).join("regatta").join(name))
    }
}

/// The path of a temporary file. Dropping this value removes the file.
#[derive(Debug)]
pub(crate) struct ScratchFile(PathBuf);

impl ScratchFile {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ScratchFile {
    fn drop(&mut self) {
        // The removal fails if the file was never written, and this failure can be ignored.
        let _ = fs::remove_file(&self.0);
        let _ = fs::remove_file(self.0.with_extension("lock"));
    }
}

/// A part of the data directory on which only one thread may work at a time.
///
/// A thread that needs several locks takes them in the order of these variants, so that two threads
/// never wait for each other.
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

/// The locks on the parts of the data directory. The locks only exclude other threads of this
/// process, because no other process uses the data directory.
#[derive(Debug, Default)]
pub(crate) struct Locks(Mutex<HashMap<LockKey, Arc<Mutex<()>>>>);

impl Locks {
    /// Runs `action` while no other thread works on the part `key` of the data directory.
    pub(crate) fn with_lock<T>(&self, key: LockKey, action: impl FnOnce() -> T) -> T {
        let lock = self.lock_of(&key);
        let guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        let result = action();
        drop(guard);
        self.release(&key, lock);
        result
    }

    fn lock_of(&self, key: &LockKey) -> Arc<Mutex<()>> {
        Arc::clone(self.lock_table().entry(key.clone()).or_default())
    }

    fn release(&self, key: &LockKey, lock: Arc<Mutex<()>>) {
        drop(lock);
        // The last thread that uses a lock removes the lock from the table, because otherwise the
        // table would grow with every attempt.
        let mut table = self.lock_table();
        if table
            .get(key)
            .is_some_and(|mutex| Arc::strong_count(mutex) == 1)
        {
            table.remove(key);
        }
    }

    fn lock_table(&self) -> MutexGuard<'_, HashMap<LockKey, Arc<Mutex<()>>>> {
        // Every statement leaves the table in a consistent state, so a panic of another thread does
        // no damage.
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
