//! Implements the engine's interface to storage: one connection writes, and any thread may read the
//! history through other connections.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use regatta_engine::ports::store::{LoadedState, Store, StoreBatch, StoreError, StoreHistory};
use rusqlite::config::DbConfig;

use crate::checkpoint::{Checkpointer, LogLimits};
use crate::deferred_rows::{DeferralLimits, SharedWriter, StoreWriter};
use crate::errors::{self, StoreFault};
use crate::history::SqliteHistory;
use crate::{backup, commit, load, open, store_mark};

/// A store in one SQLite file. The store owns the only connection that writes.
#[derive(Debug)]
pub struct SqliteStore {
    /// The handle on the thread that copies the write-ahead log. The handle must be dropped before
    /// the writing connection.
    checkpointer: Option<Checkpointer>,
    writer: Arc<SharedWriter>,
    path: PathBuf,
    history: Arc<SqliteHistory>,
}

impl SqliteStore {
    /// Opens the store at `path`, and creates it if it does not exist. Refuses a file that is
    /// damaged, not a store of Regatta, or newer than this program, and leaves such a file
    /// unchanged (D6).
    pub fn open(path: &Path) -> Result<SqliteStore, StoreError> {
        SqliteStore::open_with_limits(path, DeferralLimits::DEFAULT)
    }

    /// Like [`SqliteStore::open`], but with other limits for deferred rows (rows that are written
    /// later than their events).
    pub fn open_with_limits(
        path: &Path,
        limits: DeferralLimits,
    ) -> Result<SqliteStore, StoreError> {
        let mut connection = open::open_for_writing(path)?;
        if store_mark::read_mark(path)?.is_none()
            && let Err(fault) = store_mark::write_complete_mark(&connection, path)
        {
            tracing::warn!(
                "could not write the file that says up to which event the store {} must be \
                complete; the next update of that file tries again: {fault}",
                path.display()
            );
        }
        let checkpointer = Some(Checkpointer::start(
            &mut connection,
            path,
            LogLimits::DEFAULT,
        )?);
        let writer = Arc::new(SharedWriter::new(StoreWriter::new(connection, limits)));
        let history = Arc::new(SqliteHistory::open(path, &writer)?);
        Ok(SqliteStore {
            checkpointer,
            writer,
            path: path.to_owned(),
            history,
        })
    }

    /// Runs `action` with the writing connection. `operation` describes `action` in error messages,
    /// such as "read the store".
    fn with_writer<T>(
        &self,
        operation: &str,
        action: impl FnOnce(&mut StoreWriter) -> Result<T, StoreFault>,
    ) -> Result<T, StoreError> {
        let store_closed = || Err(errors::store_closed(&self.path).into());
        self.writer
            .with_writer(action)
            .unwrap_or_else(store_closed)
            .map_err(|fault| fault.into_error(operation, &self.path))
    }
}

impl Drop for SqliteStore {
    /// Closes the store. The readers' connections are closed first: closing the last connection
    /// copies the write-ahead log into the store file, and a connection that only reads cannot do
    /// that.
    fn drop(&mut self) {
        if let Err(error) = self.flush_idle() {
            tracing::warn!(
                "could not write the rows of the last changes while closing the store; they are \
                computed from the stored events when the store is opened again: {error}"
            );
        }
        self.checkpointer.take();
        // From here on there are no transactions, so the mark can name the last revision (event
        // number). The mark is the file that says up to which event the store must be complete.
        // Once it is written, it does not matter if closing the store copies the write-ahead log or
        // is interrupted.
        let mark_result = self.with_writer("write the mark of the store", |writer| {
            let mark_result = store_mark::write_complete_mark(&writer.connection, &self.path);
            if mark_result.is_err() {
                // If the disk is full, the old mark (the file that says up to which event the store
                // must be complete) stays. The old mark names the write-ahead log, so the log must
                // stay too.
                writer
                    .connection
                    .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
            }
            mark_result
        });
        if let Err(error) = mark_result {
            tracing::debug!(
                "could not update the file that records the last event the store must have, while \
                closing the store; the file still names an earlier event: {error}"
            );
        }
        self.history.close_idle();
        drop(self.writer.close());
    }
}

impl Store for SqliteStore {
    fn load(&mut self) -> Result<LoadedState, StoreError> {
        self.with_writer("read the store", |writer| {
            load::load_store(&writer.connection)
        })
    }

    fn commit(&mut self, batch: &StoreBatch) -> Result<(), StoreError> {
        self.with_writer("write to the store", |writer| {
            writer.commit(batch, &self.path)
        })?;
        if let Some(checkpointer) = &self.checkpointer {
            checkpointer.on_commit(batch.meta.revision);
        }
        Ok(())
    }

    fn revision(&mut self) -> Result<u64, StoreError> {
        self.with_writer("read the store", |writer| {
            Ok(commit::revisions(&writer.connection)?.0)
        })
    }

    fn has_deferred_rows(&self) -> bool {
        self.writer.has_deferred_rows()
    }

    fn flush_idle(&mut self) -> Result<(), StoreError> {
        self.with_writer("write the last changes into the store", |writer| {
            writer.write_deferred_rows(&self.path)
        })
    }

    fn check(&mut self) -> Result<(), StoreError> {
        self.flush_idle()?;
        self.with_writer("check the store", |writer| {
            backup::check_store(&writer.connection)
        })
    }

    fn backup(&mut self, to: &Path) -> Result<(), StoreError> {
        self.with_writer("copy the store", |writer| {
            backup::copy_store(&writer.connection, to)
        })
    }

    fn history(&self) -> Arc<dyn StoreHistory> {
        self.history.clone()
    }
}

#[cfg(test)]
mod tests {
    use regatta_testkit::store_suite::history_fixture::all_steps;

    use super::*;

    fn pragma<T: rusqlite::types::FromSql>(store: &SqliteStore, name: &str) -> T {
        store
            .with_writer("ask", |writer| {
                Ok(writer
                    .connection
                    .pragma_query_value(None, name, |row| row.get(0))?)
            })
            .unwrap()
    }

    /// D1: a test cannot cut the power, but it can check that every transaction waits for the disk.
    #[test]
    fn d1_every_commit_is_synced() {
        let directory = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&directory.path().join("regatta.db")).unwrap();
        let setting = |name| pragma::<i64>(&store, name);
        assert_eq!(setting("synchronous"), 2, "2 is FULL");
        assert_eq!(setting("foreign_keys"), 1);
        assert_eq!(pragma::<String>(&store, "journal_mode"), "wal");
    }

    /// D1: on a full disk a refused transaction leaves nothing, and the store works again when
    /// there is space.
    #[test]
    fn d1_a_store_that_cannot_grow_refuses_commits_until_it_can() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = SqliteStore::open(&directory.path().join("regatta.db")).unwrap();
        let pages: i64 = pragma(&store, "page_count");
        let limit = |store: &SqliteStore, max_pages: i64| {
            let set = |writer: &mut StoreWriter| -> Result<i64, StoreFault> {
                Ok(writer.connection.pragma_update_and_check(
                    None,
                    "max_page_count",
                    max_pages,
                    |row| row.get(0),
                )?)
            };
            store.with_writer("limit", set).unwrap()
        };
        let mut refusals = 0;
        for step in all_steps() {
            let before = store.load().unwrap();
            let used: i64 = pragma(&store, "page_count");
            limit(&store, used.max(pages));
            if let Err(error) = store.commit(&step.batch) {
                refusals += 1;
                assert_eq!(
                    (error.code, &*error.message),
                    (
                        "disk_full",
                        "the disk of the store is full, so nothing was recorded"
                    )
                );
                assert!(
                    error.hint.contains(&*directory.path().to_string_lossy()),
                    "{}",
                    error.hint
                );
                let after = store.load().unwrap();
                assert!(
                    after.board == before.board && after.outbox == before.outbox,
                    "something was recorded"
                );
                limit(&store, i64::from(u32::MAX) - 1);
                store.commit(&step.batch).unwrap();
            }
            assert!(store.load().unwrap().board == step.board);
        }
        assert!(refusals > 5, "only {refusals} commits needed more space");
        store.check().unwrap();
    }
}
