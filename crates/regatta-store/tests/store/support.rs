//! Stores in temporary directories.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use regatta_engine::ports::store::{Store, StoreError};
use regatta_store::{DeferralLimits, SqliteStore};
use regatta_testkit::store_suite::StoreHarness;
use regatta_testkit::store_suite::history_fixture::CommitStep;
use rusqlite::Connection;
use tempfile::TempDir;

/// Returns a directory on a memory file system, if there is one, because these tests sync often.
pub(crate) fn test_dir() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        tempfile::tempdir_in(memory)
            .or_else(|_| tempfile::tempdir())
            .unwrap()
    } else {
        tempfile::tempdir().unwrap()
    }
}

/// A store in a file, and copies of it.
pub(crate) struct StoreFile {
    directory: TempDir,
    copies: usize,
    limits: DeferralLimits,
}

impl StoreFile {
    pub(crate) fn new() -> StoreFile {
        StoreFile::with_limits(DeferralLimits::DEFAULT)
    }

    /// Creates a place whose store has these limits for deferred rows.
    pub(crate) fn with_limits(limits: DeferralLimits) -> StoreFile {
        StoreFile {
            directory: test_dir(),
            copies: 0,
            limits,
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("regatta.db")
    }

    pub(crate) fn file_path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn store(&self) -> SqliteStore {
        SqliteStore::open_with_limits(&self.path(), self.limits).unwrap()
    }

    /// Returns the error with which the store is refused.
    pub(crate) fn open_error(&self) -> StoreError {
        SqliteStore::open(&self.path()).map(|_| ()).unwrap_err()
    }

    /// Creates a closed store with these commits.
    pub(crate) fn with_commits(steps: &[CommitStep]) -> StoreFile {
        let store_file = StoreFile::new();
        commit_all(&mut store_file.store(), steps);
        store_file
    }

    /// Returns a connection to the file without the store's rules.
    pub(crate) fn raw_connection(&self) -> Connection {
        Connection::open(self.path()).unwrap()
    }
}

pub(crate) fn commit_all(store: &mut dyn Store, steps: &[CommitStep]) {
    for step in steps {
        store.commit(&step.batch).unwrap();
    }
}

pub(crate) fn file_mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

impl StoreHarness for StoreFile {
    fn open(&mut self) -> Box<dyn Store> {
        Box::new(self.store())
    }

    /// A process that dies leaves the file and the log as they are at that moment.
    fn open_after_crash(&mut self) -> Box<dyn Store> {
        self.copies += 1;
        let copy = self.file_path(&format!("crash-{}", self.copies));
        fs::create_dir(&copy).unwrap();
        for name in ["regatta.db", "regatta.db-wal"] {
            fs::copy(self.file_path(name), copy.join(name)).unwrap();
        }
        Box::new(SqliteStore::open_with_limits(&copy.join("regatta.db"), self.limits).unwrap())
    }

    fn backup_path(&mut self) -> PathBuf {
        self.file_path("backup.db")
    }

    fn open_backup(&mut self, path: &Path) -> Box<dyn Store> {
        Box::new(SqliteStore::open(path).unwrap())
    }

    /// Makes the last write of a commit fail. This is the insertion of events where rows are
    /// deferred, and otherwise the update of the revision.
    fn with_failing_commits(&mut self, during: &mut dyn FnMut()) {
        let waits = self.limits.min_rows_to_defer == 1;
        let log = ["AFTER INSERT ON events", "AFTER DELETE ON outbox"];
        let broken = log
            .into_iter()
            .filter(|_| waits)
            .chain(["BEFORE UPDATE ON meta"]);
        for (nth, s) in broken.clone().enumerate() {
            let sql =
                format!("CREATE TRIGGER broken{nth} {s} BEGIN SELECT RAISE(ABORT, 'broken'); END");
            self.raw_connection().execute_batch(&sql).unwrap();
        }
        during();
        for (nth, _) in broken.enumerate() {
            self.raw_connection()
                .execute_batch(&format!("DROP TRIGGER broken{nth}"))
                .unwrap();
        }
    }
}
