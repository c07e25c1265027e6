//! The port: one writing connection, and the history that any thread may read.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use regatta_engine::ports::store::{Batch, History, Loaded, Store, StoreError};
use rusqlite::Connection;

use crate::checkpoint::{Bounds, Checkpoints};
use crate::history::SqliteHistory;
use crate::{backup, commit, load, open};

/// A store in one SQLite file. The only connection that writes is in here.
#[derive(Debug)]
pub struct SqliteStore {
    /// Ends before the connection it works beside.
    checkpoints: Option<Checkpoints>,
    connection: Connection,
    path: PathBuf,
    history: Arc<SqliteHistory>,
    json: Vec<u8>,
}

impl SqliteStore {
    /// Opens the store at `path`; makes it if there is none. A file that is damaged, foreign or newer than
    /// this program is refused and left as it is (D6).
    pub fn open(path: &Path) -> Result<SqliteStore, StoreError> {
        let mut connection = open::open(path)?;
        let checkpoints = Some(Checkpoints::of(&mut connection, path, Bounds::USUAL)?);
        let history = Arc::new(SqliteHistory::open(path)?);
        Ok(SqliteStore { checkpoints, connection, path: path.to_owned(), history, json: Vec::with_capacity(4096) })
    }
}

impl Drop for SqliteStore {
    /// Whoever closes a store last moves its log into it, and a reader cannot: so the others go first.
    fn drop(&mut self) {
        self.checkpoints.take();
        self.history.rest();
    }
}

impl Store for SqliteStore {
    fn load(&mut self) -> Result<Loaded, StoreError> {
        load::load(&self.connection).map_err(|it| it.say("read", &self.path))
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
        commit::commit(&mut self.connection, &mut self.json, batch, &self.path)
            .map_err(|it| it.say("write to", &self.path))
    }

    fn revision(&mut self) -> Result<u64, StoreError> {
        commit::stored_revision(&self.connection).map_err(|it| it.say("read", &self.path))
    }

    fn check(&mut self) -> Result<(), StoreError> {
        backup::check(&self.connection).map_err(|it| it.say("check", &self.path))
    }

    fn backup(&mut self, to: &Path) -> Result<(), StoreError> {
        backup::copy(&self.connection, to).map_err(|it| it.say("copy", &self.path))
    }

    fn history(&self) -> Arc<dyn History> {
        self.history.clone()
    }
}

#[cfg(test)]
mod tests {
    use regatta_testkit::store_suite::story::everything;

    use super::*;

    /// D1: a test cannot cut the power, but it can see that every commit waits for the disk.
    #[test]
    fn d1_every_commit_is_synced() {
        let directory = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&directory.path().join("regatta.db")).unwrap();
        let setting = |name| store.connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!(setting("synchronous"), 2, "2 is FULL");
        assert_eq!(setting("foreign_keys"), 1);
        let mode: String = store.connection.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
        assert_eq!(mode, "wal");
    }

    /// D1 on a full disk: what was refused left nothing, and once there is room the store goes on.
    #[test]
    fn a_store_that_may_not_grow_is_full_and_works_again_when_it_may() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = SqliteStore::open(&directory.path().join("regatta.db")).unwrap();
        let pages: i64 = store.connection.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
        let limit = |store: &SqliteStore, most: i64| {
            store.connection.pragma_update_and_check(None, "max_page_count", most, |row| row.get::<_, i64>(0)).unwrap()
        };
        let mut refusals = 0;
        for step in everything() {
            let before = store.load().unwrap();
            let used: i64 = store.connection.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
            limit(&store, used.max(pages));
            if let Err(why) = store.commit(&step.batch) {
                refusals += 1;
                assert_eq!((why.code, &*why.what), ("disk_full", "the disk is full; nothing was recorded"));
                assert!(why.hint.contains(&*directory.path().to_string_lossy()), "{}", why.hint);
                let after = store.load().unwrap();
                assert!(after.board == before.board && after.outbox == before.outbox, "something was recorded");
                limit(&store, i64::from(u32::MAX) - 1);
                store.commit(&step.batch).unwrap();
            }
            assert!(store.load().unwrap().board == step.board);
        }
        assert!(refusals > 5, "only {refusals} commits needed more room");
        store.check().unwrap();
    }
}
