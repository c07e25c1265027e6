//! Implements the store port with one writing connection and a history that any thread may read.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use regatta_engine::ports::store::{Batch, History, Loaded, Store, StoreError};
use rusqlite::config::DbConfig;

use crate::behind::{Lag, Shared, Writing};
use crate::checkpoint::{Bounds, Checkpoints};
use crate::history::SqliteHistory;
use crate::words::{self, Fault};
use crate::{backup, commit, load, mark, open};

/// A store in one SQLite file, with the only connection that writes.
#[derive(Debug)]
pub struct SqliteStore {
    /// Dropped before the connection that it works beside.
    checkpoints: Option<Checkpoints>,
    shared: Arc<Shared>,
    path: PathBuf,
    history: Arc<SqliteHistory>,
}

impl SqliteStore {
    /// Opens the store at `path`, and creates it if there is none. A file that is damaged, foreign
    /// or newer than this program is refused and left unchanged (D6).
    pub fn open(path: &Path) -> Result<SqliteStore, StoreError> {
        SqliteStore::open_with(path, Lag::USUAL)
    }

    /// Opens the store with other limits for deferred rows.
    pub fn open_with(path: &Path, lag: Lag) -> Result<SqliteStore, StoreError> {
        let mut connection = open::open(path)?;
        if mark::read(path)?.is_none()
            && let Err(fault) = mark::write_complete(&connection, path)
        {
            tracing::warn!("could not write the first mark of the store {}: {fault}", path.display());
        }
        let checkpoints = Some(Checkpoints::of(&mut connection, path, Bounds::USUAL)?);
        let shared = Arc::new(Shared::new(Writing::new(connection, lag)));
        let history = Arc::new(SqliteHistory::open(path, &shared)?);
        Ok(SqliteStore { checkpoints, shared, path: path.to_owned(), history })
    }

    /// Runs `work` with the writing connection. `doing` names the work in error messages.
    fn work<T>(&self, doing: &str, work: impl FnOnce(&mut Writing) -> Result<T, Fault>) -> Result<T, StoreError> {
        let closed = || Err(words::closed(&self.path).into());
        self.shared.with(work).unwrap_or_else(closed).map_err(|it| it.say(doing, &self.path))
    }
}

impl Drop for SqliteStore {
    /// Closes the store. The readers are closed first, because the last connection to close a store
    /// moves its log into it, and a reader cannot do that.
    fn drop(&mut self) {
        if let Err(error) = self.rest() {
            tracing::warn!(
                "could not write the deferred rows of the store; the next open computes them from its log: {error}"
            );
        }
        self.checkpoints.take();
        // From here on there are no commits, so the mark names the last one. Closing may then move
        // the log, or be interrupted.
        let marked = self.work("mark", |writing| {
            let marked = mark::write_complete(&writing.connection, &self.path);
            if marked.is_err() {
                // On a full disk the old mark, which names the log, stays. So the log must stay
                // too.
                writing.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
            }
            marked
        });
        if let Err(error) = marked {
            tracing::debug!("could not update the mark of the store: {error}");
        }
        self.history.rest();
        drop(self.shared.close());
    }
}

impl Store for SqliteStore {
    fn load(&mut self) -> Result<Loaded, StoreError> {
        self.work("read", |it| load::load(&it.connection))
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
        self.work("write to", |it| it.commit(batch, &self.path))?;
        if let Some(checkpoints) = &self.checkpoints {
            checkpoints.committed(batch.meta.revision);
        }
        Ok(())
    }

    fn revision(&mut self) -> Result<u64, StoreError> {
        self.work("read", |it| Ok(commit::revisions(&it.connection)?.0))
    }

    fn is_behind(&self) -> bool {
        self.shared.is_behind()
    }

    fn rest(&mut self) -> Result<(), StoreError> {
        self.work("bring up to date", |it| it.catch_up(&self.path))
    }

    fn check(&mut self) -> Result<(), StoreError> {
        self.rest()?;
        self.work("check", |it| backup::check(&it.connection))
    }

    fn backup(&mut self, to: &Path) -> Result<(), StoreError> {
        self.work("copy", |it| backup::copy(&it.connection, to))
    }

    fn history(&self) -> Arc<dyn History> {
        self.history.clone()
    }
}

#[cfg(test)]
mod tests {
    use regatta_testkit::store_suite::story::everything;

    use super::*;

    fn pragma<T: rusqlite::types::FromSql>(store: &SqliteStore, name: &str) -> T {
        store.work("ask", |it| Ok(it.connection.pragma_query_value(None, name, |row| row.get(0))?)).unwrap()
    }

    /// D1: a test cannot cut the power, but it can check that every commit waits for the disk.
    #[test]
    fn d1_every_commit_is_synced() {
        let directory = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&directory.path().join("regatta.db")).unwrap();
        let setting = |name| pragma::<i64>(&store, name);
        assert_eq!(setting("synchronous"), 2, "2 is FULL");
        assert_eq!(setting("foreign_keys"), 1);
        assert_eq!(pragma::<String>(&store, "journal_mode"), "wal");
    }

    /// D1: on a full disk a refused commit leaves nothing, and the store works again when there is
    /// space.
    #[test]
    fn d1_a_store_that_cannot_grow_refuses_commits_until_it_can() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = SqliteStore::open(&directory.path().join("regatta.db")).unwrap();
        let pages: i64 = pragma(&store, "page_count");
        let limit = |store: &SqliteStore, most: i64| {
            let set = |it: &mut Writing| -> Result<i64, Fault> {
                Ok(it.connection.pragma_update_and_check(None, "max_page_count", most, |row| row.get(0))?)
            };
            store.work("limit", set).unwrap()
        };
        let mut refusals = 0;
        for step in everything() {
            let before = store.load().unwrap();
            let used: i64 = pragma(&store, "page_count");
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
        assert!(refusals > 5, "only {refusals} commits needed more space");
        store.check().unwrap();
    }
}
