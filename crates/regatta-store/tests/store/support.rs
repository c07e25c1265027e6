//! Stores in temporary directories.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use regatta_engine::ports::store::{Store, StoreError};
use regatta_store::{Lag, SqliteStore};
use regatta_testkit::store_suite::Harness;
use regatta_testkit::store_suite::story::Step;
use rusqlite::Connection;
use tempfile::TempDir;

/// Returns a directory on a memory file system, if there is one, because these tests sync often.
pub(crate) fn directory() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir()).unwrap()
    } else {
        tempfile::tempdir().unwrap()
    }
}

/// A store in a file, and copies of it.
pub(crate) struct Place {
    directory: TempDir,
    copies: usize,
    lag: Lag,
}

impl Place {
    pub(crate) fn new() -> Place {
        Place::behind(Lag::USUAL)
    }

    /// Creates a place whose store has these limits for deferred rows.
    pub(crate) fn behind(lag: Lag) -> Place {
        Place { directory: directory(), copies: 0, lag }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("regatta.db")
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn store(&self) -> SqliteStore {
        SqliteStore::open_with(&self.path(), self.lag).unwrap()
    }

    /// Returns the error with which the store is refused.
    pub(crate) fn refused(&self) -> StoreError {
        SqliteStore::open(&self.path()).map(|_| ()).unwrap_err()
    }

    /// Creates a closed store with these commits.
    pub(crate) fn filled(steps: &[Step]) -> Place {
        let place = Place::new();
        commit_all(&mut place.store(), steps);
        place
    }

    /// Returns a connection to the file without the store's rules.
    pub(crate) fn raw(&self) -> Connection {
        Connection::open(self.path()).unwrap()
    }
}

pub(crate) fn commit_all(store: &mut dyn Store, steps: &[Step]) {
    for step in steps {
        store.commit(&step.batch).unwrap();
    }
}

pub(crate) fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

impl Harness for Place {
    fn open(&mut self) -> Box<dyn Store> {
        Box::new(self.store())
    }

    /// A process that dies leaves the file and the log as they are at that moment.
    fn after_crash(&mut self) -> Box<dyn Store> {
        self.copies += 1;
        let copy = self.file(&format!("crash-{}", self.copies));
        fs::create_dir(&copy).unwrap();
        for name in ["regatta.db", "regatta.db-wal"] {
            fs::copy(self.file(name), copy.join(name)).unwrap();
        }
        Box::new(SqliteStore::open_with(&copy.join("regatta.db"), self.lag).unwrap())
    }

    fn backup_path(&mut self) -> PathBuf {
        self.file("backup.db")
    }

    fn open_backup(&mut self, path: &Path) -> Box<dyn Store> {
        Box::new(SqliteStore::open(path).unwrap())
    }

    /// Makes the last write of a commit fail. This is the insertion of events where rows are
    /// deferred, and otherwise the update of the revision.
    fn while_broken(&mut self, during: &mut dyn FnMut()) {
        let waits = self.lag.few == 1;
        let log = ["AFTER INSERT ON events", "AFTER DELETE ON outbox"];
        let broken = log.into_iter().filter(|_| waits).chain(["BEFORE UPDATE ON meta"]);
        for (nth, it) in broken.clone().enumerate() {
            let sql = format!("CREATE TRIGGER broken{nth} {it} BEGIN SELECT RAISE(ABORT, 'broken'); END");
            self.raw().execute_batch(&sql).unwrap();
        }
        during();
        for (nth, _) in broken.enumerate() {
            self.raw().execute_batch(&format!("DROP TRIGGER broken{nth}")).unwrap();
        }
    }
}
