//! Defers writing the rows of tasks, claims (leases on files) and so on until after their events
//! were stored.
//!
//! A transaction is durable as soon as its events are stored. The rows follow from the events and
//! can be computed again from the events (D4). Under load a row changes several times within a few
//! transactions, so rows are written only when many of them can be written together. With little
//! load, rows are written immediately. The `meta` row says up to which event the rows are written.
//! Before rows are read, the deferred rows are written. When a store is opened whose daemon was
//! killed, its deferred rows are computed from the events.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Mutex, PoisonError};

use regatta_core::board::{BoardMeta, Rows};
use regatta_engine::ports::store::StoreBatch;
use rusqlite::{Connection, TransactionBehavior};

use crate::errors::StoreFault;
use crate::{commit, load};

/// The limits that decide whether rows are deferred (written later than their events).
#[derive(Clone, Copy, Debug)]
pub struct DeferralLimits {
    /// The smallest number of changed rows with which a transaction may defer its rows (write them
    /// later than their events). A transaction that changes fewer rows writes its rows immediately,
    /// together with all deferred rows.
    pub min_rows_to_defer: usize,
    /// The largest number of rows that may be deferred (written later than their events).
    pub max_deferred_rows: usize,
}

impl DeferralLimits {
    /// With these values, transactions of only a few callers never defer rows (write them later
    /// than their events). Writing the largest number of deferred rows takes about as long as two
    /// transactions.
    pub const DEFAULT: DeferralLimits = DeferralLimits {
        min_rows_to_defer: 24,
        max_deferred_rows: 512,
    };
}

/// The largest number of events whose rows may be deferred (written later than the events). After a
/// crash up to this many events are applied again, even if they change only a few rows.
const MAX_DEFERRED_EVENTS: u64 = 4_096;

/// The rows that are not written yet although their events are stored, and the revision (event
/// number) up to which rows are written.
#[derive(Debug)]
pub(crate) struct DeferredRows {
    limits: DeferralLimits,
    pub(crate) rows: Rows,
    /// The revision (event number) up to which rows are written, and the counters of the board
    /// including the deferred rows. The board is the state of all unfinished work. `None` if no
    /// rows are deferred.
    written_up_to: Option<(u64, BoardMeta)>,
}

impl DeferredRows {
    pub(crate) fn new(limits: DeferralLimits) -> DeferredRows {
        DeferredRows {
            limits,
            rows: Rows::new(),
            written_up_to: None,
        }
    }

    /// Returns whether the rows of this batch may be deferred (written later than their events), in
    /// addition to the rows that are already deferred.
    pub(crate) fn can_defer(&self, batch: &StoreBatch) -> bool {
        let changed = batch.rows.len();
        changed >= self.limits.min_rows_to_defer
            && self.rows.len() + changed <= self.limits.max_deferred_rows
            && batch.meta.revision - self.written_revision(batch.base_revision)
                <= MAX_DEFERRED_EVENTS
    }

    /// Returns the revision (event number) up to which rows are written, in a store whose events
    /// end at `revision`. If no rows are deferred, this is `revision` itself.
    pub(crate) fn written_revision(&self, revision: u64) -> u64 {
        self.written_up_to.map_or(revision, |(written, _)| written)
    }

    /// Adds the rows of a batch, whose events are already stored, to the deferred rows (rows that
    /// are written later than their events).
    pub(crate) fn defer(&mut self, batch: &StoreBatch) {
        self.written_up_to = Some((self.written_revision(batch.base_revision), batch.meta));
        self.rows.extend(
            batch
                .rows
                .iter()
                .map(|(key, row)| (key.clone(), row.clone())),
        );
    }

    /// Forgets the deferred rows (rows that are written later than their events) after all of them
    /// were written.
    pub(crate) fn clear(&mut self) {
        self.rows.clear();
        self.written_up_to = None;
    }
}

/// The only connection that writes to the store, with the rows that are not written yet although
/// their events are stored.
#[derive(Debug)]
pub(crate) struct StoreWriter {
    pub(crate) connection: Connection,
    json_buffer: Vec<u8>,
    deferred: DeferredRows,
}

impl StoreWriter {
    pub(crate) fn new(connection: Connection, limits: DeferralLimits) -> StoreWriter {
        StoreWriter {
            connection,
            json_buffer: Vec::with_capacity(4096),
            deferred: DeferredRows::new(limits),
        }
    }

    pub(crate) fn commit(&mut self, batch: &StoreBatch, path: &Path) -> Result<(), StoreFault> {
        commit::commit_batch(
            &mut self.connection,
            &mut self.json_buffer,
            batch,
            &mut self.deferred,
            path,
        )
    }

    pub(crate) fn has_deferred_rows(&self) -> bool {
        self.deferred.written_up_to.is_some()
    }

    /// Writes all deferred rows (rows that are written later than their events) in one transaction.
    pub(crate) fn write_deferred_rows(&mut self, path: &Path) -> Result<(), StoreFault> {
        if let Some((_, meta)) = self.deferred.written_up_to {
            let transaction = self
                .connection
                .transaction_with_behavior(TransactionBehavior::Immediate)?;
            commit::check_revision(&transaction, meta.revision, &self.deferred, path)?;
            commit::write_rows(
                &transaction,
                &mut self.json_buffer,
                &self.deferred.rows,
                &meta,
            )?;
            let committed = transaction.commit();
            let was_stored = || {
                commit::revisions(&self.connection)
                    .is_ok_and(|(_, written)| written == meta.revision)
            };
            if committed.is_ok() || was_stored() {
                self.deferred.clear();
            }
            committed?;
        }
        Ok(())
    }
}

/// The connection that writes to the store, which the writer thread and the readers share. The
/// connection is removed when the store is closed.
#[derive(Debug)]
pub(crate) struct SharedWriter {
    writer: Mutex<Option<StoreWriter>>,
    /// True if rows are deferred (written later than their events). Readers check this flag first,
    /// so that they wait for the writing connection only if necessary.
    has_deferred_rows: AtomicBool,
}

impl SharedWriter {
    pub(crate) fn new(writer: StoreWriter) -> SharedWriter {
        SharedWriter {
            writer: Mutex::new(Some(writer)),
            has_deferred_rows: AtomicBool::new(false),
        }
    }

    pub(crate) fn has_deferred_rows(&self) -> bool {
        self.has_deferred_rows.load(Acquire)
    }

    /// Runs `action` with the writing connection. Returns `None` if the store is closed. In that
    /// case all rows are already written.
    pub(crate) fn with_writer<T>(&self, action: impl FnOnce(&mut StoreWriter) -> T) -> Option<T> {
        let mut guard = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let result = guard.as_mut().map(action);
        self.has_deferred_rows.store(
            guard.as_ref().is_some_and(StoreWriter::has_deferred_rows),
            Release,
        );
        result
    }

    /// Writes all deferred rows (rows that are written later than their events), if there are any.
    /// Readers call this method first, so that they see every committed change.
    pub(crate) fn write_deferred_rows(&self, path: &Path) -> Result<(), StoreFault> {
        if self.has_deferred_rows() {
            self.with_writer(|writer| writer.write_deferred_rows(path))
                .unwrap_or(Ok(()))
        } else {
            Ok(())
        }
    }

    /// Removes the writing connection, so that it cannot be used any more, and returns it.
    pub(crate) fn close(&self) -> Option<StoreWriter> {
        self.writer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

/// Writes the rows that a killed daemon left unwritten: computes them from the events. The store
/// must not be open elsewhere. In most stores nothing is left to write.
pub(crate) fn write_leftover_rows(connection: &mut Connection) -> Result<(), StoreFault> {
    let (stored, written) = commit::revisions(connection)?;
    if stored == written {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut rows = Rows::new();
    let mut unreadable = Vec::new();
    let board = load::read_board(&transaction, &mut rows, &mut unreadable)?;
    for event in unreadable.iter().filter(|row| row.table == "events") {
        tracing::error!(
            "could not read {event} of the store, so the rows that are computed from the events \
            lack the changes of that event"
        );
    }
    commit::write_rows(&transaction, &mut Vec::new(), &rows, &board.meta())?;
    transaction.commit()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use regatta_core::board::{Row, RowKey};
    use regatta_core::ids::TaskId;
    use regatta_engine::ports::store::Store;
    use regatta_testkit::store_suite::history_fixture::all_steps;

    use super::*;
    use crate::SqliteStore;

    #[test]
    fn rows_are_deferred_only_within_the_lags_limits() {
        let rows: Rows = all_steps()
            .into_iter()
            .flat_map(|step| step.batch.rows)
            .collect();
        let commit = |after: u64, events: u64, changed: usize| {
            let meta = BoardMeta {
                revision: after + events,
                ..BoardMeta::default()
            };
            StoreBatch {
                base_revision: after,
                meta,
                rows: rows.clone().into_iter().take(changed).collect(),
                ..StoreBatch::default()
            }
        };
        let mut deferred = DeferredRows::new(DeferralLimits {
            min_rows_to_defer: 3,
            max_deferred_rows: 10,
        });
        for (changed, expected) in [(0, false), (2, false), (3, true), (10, true), (11, false)] {
            assert_eq!(
                deferred.can_defer(&commit(7, 5, changed)),
                expected,
                "{changed} rows, none waiting"
            );
        }
        deferred.defer(&commit(7, 5, 6));
        for (changed, expected) in [(2, false), (3, true), (4, true), (5, false)] {
            assert_eq!(
                deferred.can_defer(&commit(12, 5, changed)),
                expected,
                "{changed} rows, 6 waiting"
            );
        }
        assert_eq!(deferred.written_revision(12), 7);
        // Only a few rows are deferred, and they change repeatedly.
        for (events, expected) in [
            (1, true),
            (MAX_DEFERRED_EVENTS - 5, true),
            (MAX_DEFERRED_EVENTS - 4, false),
        ] {
            assert_eq!(
                deferred.can_defer(&commit(12, events, 3)),
                expected,
                "{events} more events"
            );
        }
        deferred.clear();
        assert_eq!(deferred.written_revision(12), 12);
        assert!(deferred.can_defer(&commit(12, MAX_DEFERRED_EVENTS, 3)));
    }

    /// D1: a transaction with deferred rows is in the log. When a reader asks for its rows, they
    /// are written to their tables.
    #[test]
    fn d1_deferred_rows_are_in_the_log_and_written_before_a_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("regatta.db");
        let mut store = SqliteStore::open_with_limits(
            &path,
            DeferralLimits {
                min_rows_to_defer: 0,
                max_deferred_rows: usize::MAX,
            },
        )
        .unwrap();
        let raw = Connection::open(&path).unwrap();
        let count = |sql: &str| raw.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
        let steps = all_steps();
        for step in &steps {
            store.commit(&step.batch).unwrap();
            assert_eq!(commit::revisions(&raw).unwrap(), (step.board.revision, 0));
            if step.batch.rows.contains_key(&RowKey::Task(TaskId(1))) {
                break;
            }
        }
        assert!(store.has_deferred_rows());
        assert_eq!(count("SELECT count(*) FROM tasks"), 0);
        let history = store.history();
        assert!(
            history.events(0, 1).unwrap().len() == 1 && store.has_deferred_rows(),
            "events are never behind"
        );
        assert!(history.task(TaskId(1)).unwrap().is_some());
        assert!(!store.has_deferred_rows());
        assert_eq!(count("SELECT count(*) FROM tasks"), 1);
    }

    /// A deferred row that changed several times is written once, in its last version.
    #[test]
    fn deferred_rows_are_written_in_their_last_version() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = SqliteStore::open_with_limits(
            &directory.path().join("regatta.db"),
            DeferralLimits {
                min_rows_to_defer: 0,
                max_deferred_rows: usize::MAX,
            },
        )
        .unwrap();
        let (steps, history) = (all_steps(), store.history());
        let mut last = Rows::new();
        for step in &steps {
            store.commit(&step.batch).unwrap();
            last.extend(step.batch.rows.clone());
        }
        for (key, row) in last {
            match (key, row) {
                (RowKey::Task(id), Some(Row::Task(task))) => {
                    assert_eq!(history.task(id).unwrap().as_ref(), Some(&*task))
                }
                (RowKey::Task(id), None) => assert_eq!(history.task(id).unwrap(), None),
                (RowKey::Attempt(id), Some(Row::Attempt(attempt))) => {
                    assert_eq!(history.attempt(id).unwrap().as_ref(), Some(&*attempt));
                }
                _ => {}
            }
        }
        store.check().unwrap();
    }
}
