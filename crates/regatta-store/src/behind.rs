//! Rows that are written later than their events.
//!
//! The events alone make a commit durable: rows are the result of folding the events into the
//! board, and can be computed again (D4). Under load a row changes several times within a few
//! commits, so its writing is deferred until many rows can be written at once. With little load it
//! is never deferred. The `meta` row says up to which event the rows are written. A reader of rows
//! has the deferred ones written first. When a killed store is opened, they are computed from the
//! events.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Mutex, PoisonError};

use regatta_core::board::{Meta, Rows};
use regatta_engine::ports::store::Batch;
use rusqlite::{Connection, TransactionBehavior};

use crate::words::Fault;
use crate::{commit, load};

/// The limits of deferred rows.
#[derive(Clone, Copy, Debug)]
pub struct Lag {
    /// A commit that changes fewer rows than this writes them together with all deferred rows.
    pub few: usize,
    /// The number of rows that may be deferred.
    pub most: usize,
}

impl Lag {
    /// The rows of a commit of a few callers are never deferred. Writing the largest number takes
    /// about as long as two commits.
    pub const USUAL: Lag = Lag { few: 24, most: 512 };
}

/// The largest number of events whose rows may be deferred. It limits the events that are folded
/// again after a crash, even if only few rows change repeatedly.
const MOST_EVENTS: u64 = 4_096;

/// The rows that are deferred.
#[derive(Debug)]
pub(crate) struct Behind {
    lag: Lag,
    pub(crate) rows: Rows,
    /// The revision up to which rows are written, and the board's counters including the deferred
    /// rows.
    since: Option<(u64, Meta)>,
}

impl Behind {
    pub(crate) fn new(lag: Lag) -> Behind {
        Behind { lag, rows: Rows::new(), since: None }
    }

    /// Returns whether the rows of a commit may be deferred in addition to the present ones.
    pub(crate) fn may_wait(&self, batch: &Batch) -> bool {
        let changed = batch.rows.len();
        changed >= self.lag.few
            && self.rows.len() + changed <= self.lag.most
            && batch.meta.revision - self.written(batch.after) <= MOST_EVENTS
    }

    /// Returns the revision up to which rows are written, in a store that is at `revision`.
    pub(crate) fn written(&self, revision: u64) -> u64 {
        self.since.map_or(revision, |it| it.0)
    }

    /// Defers the rows of a durable commit.
    pub(crate) fn wait(&mut self, batch: &Batch) {
        self.since = Some((self.written(batch.after), batch.meta));
        self.rows.extend(batch.rows.iter().map(|(key, row)| (key.clone(), row.clone())));
    }

    /// Clears the list after all rows are written.
    pub(crate) fn clear(&mut self) {
        self.rows.clear();
        self.since = None;
    }
}

/// The only connection that writes, with its deferred rows.
#[derive(Debug)]
pub(crate) struct Writing {
    pub(crate) connection: Connection,
    json: Vec<u8>,
    behind: Behind,
}

impl Writing {
    pub(crate) fn new(connection: Connection, lag: Lag) -> Writing {
        Writing { connection, json: Vec::with_capacity(4096), behind: Behind::new(lag) }
    }

    pub(crate) fn commit(&mut self, batch: &Batch, path: &Path) -> Result<(), Fault> {
        commit::commit(&mut self.connection, &mut self.json, batch, &mut self.behind, path)
    }

    pub(crate) fn is_behind(&self) -> bool {
        self.behind.since.is_some()
    }

    /// Writes the deferred rows.
    pub(crate) fn catch_up(&mut self, path: &Path) -> Result<(), Fault> {
        if let Some((_, meta)) = self.behind.since {
            let change = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            commit::is_at(&change, meta.revision, &self.behind, path)?;
            commit::rows(&change, &mut self.json, &self.behind.rows, &meta)?;
            let committed = change.commit();
            let kept = || commit::revisions(&self.connection).is_ok_and(|it| it.1 == meta.revision);
            if committed.is_ok() || kept() {
                self.behind.clear();
            }
            committed?;
        }
        Ok(())
    }
}

/// The writing side, shared by the writer and the readers. It is removed when the store is closed.
#[derive(Debug)]
pub(crate) struct Shared {
    writing: Mutex<Option<Writing>>,
    /// True if rows are deferred. Readers check it so that they wait for a commit only if
    /// necessary.
    is_behind: AtomicBool,
}

impl Shared {
    pub(crate) fn new(writing: Writing) -> Shared {
        Shared { writing: Mutex::new(Some(writing)), is_behind: AtomicBool::new(false) }
    }

    pub(crate) fn is_behind(&self) -> bool {
        self.is_behind.load(Acquire)
    }

    /// Runs `work` with the writing side. Returns `None` if the store is closed; then all rows are
    /// written.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Writing) -> T) -> Option<T> {
        let mut writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let done = writing.as_mut().map(work);
        self.is_behind.store(writing.as_ref().is_some_and(Writing::is_behind), Release);
        done
    }

    /// Writes the deferred rows, if there are any.
    pub(crate) fn catch_up(&self, path: &Path) -> Result<(), Fault> {
        if self.is_behind() { self.with(|it| it.catch_up(path)).unwrap_or(Ok(())) } else { Ok(()) }
    }

    /// Removes the writing side, so that nobody can use it any more.
    pub(crate) fn close(&self) -> Option<Writing> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Writes the rows of a store that nobody has open up to its last event. In most stores there are
/// none left to write.
pub(crate) fn settle(connection: &mut Connection) -> Result<(), Fault> {
    let (stored, written) = commit::revisions(connection)?;
    if stored == written {
        return Ok(());
    }
    let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut rows = Rows::new();
    let mut unreadable = Vec::new();
    let board = load::board(&change, &mut rows, &mut unreadable)?;
    for event in unreadable.iter().filter(|row| row.table == "events") {
        tracing::error!("could not read {event} of the store; the board lacks the changes of that event");
    }
    commit::rows(&change, &mut Vec::new(), &rows, &board.meta())?;
    change.commit()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use regatta_core::board::{Row, RowKey};
    use regatta_core::ids::TaskId;
    use regatta_engine::ports::store::Store;
    use regatta_testkit::store_suite::story::everything;

    use super::*;
    use crate::SqliteStore;

    #[test]
    fn rows_are_deferred_only_within_the_lags_limits() {
        let told: Rows = everything().into_iter().flat_map(|it| it.batch.rows).collect();
        let commit = |after: u64, events: u64, changed: usize| {
            let meta = Meta { revision: after + events, ..Meta::default() };
            Batch { after, meta, rows: told.clone().into_iter().take(changed).collect(), ..Batch::default() }
        };
        let mut behind = Behind::new(Lag { few: 3, most: 10 });
        for (changed, may) in [(0, false), (2, false), (3, true), (10, true), (11, false)] {
            assert_eq!(behind.may_wait(&commit(7, 5, changed)), may, "{changed} rows, none waiting");
        }
        behind.wait(&commit(7, 5, 6));
        for (changed, may) in [(2, false), (3, true), (4, true), (5, false)] {
            assert_eq!(behind.may_wait(&commit(12, 5, changed)), may, "{changed} rows, 6 waiting");
        }
        assert_eq!(behind.written(12), 7);
        // Only a few rows are deferred, and they change repeatedly.
        for (events, may) in [(1, true), (MOST_EVENTS - 5, true), (MOST_EVENTS - 4, false)] {
            assert_eq!(behind.may_wait(&commit(12, events, 3)), may, "{events} more events");
        }
        behind.clear();
        assert_eq!(behind.written(12), 12);
        assert!(behind.may_wait(&commit(12, MOST_EVENTS, 3)));
    }

    /// D1: a commit with deferred rows is in the log. When a reader asks for its rows, they are
    /// written to their tables.
    #[test]
    fn d1_deferred_rows_are_in_the_log_and_written_before_a_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("regatta.db");
        let mut store = SqliteStore::open_with(&path, Lag { few: 0, most: usize::MAX }).unwrap();
        let raw = Connection::open(&path).unwrap();
        let count = |sql: &str| raw.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
        let steps = everything();
        for step in &steps {
            store.commit(&step.batch).unwrap();
            assert_eq!(commit::revisions(&raw).unwrap(), (step.board.revision, 0));
            if step.batch.rows.contains_key(&RowKey::Task(TaskId(1))) {
                break;
            }
        }
        assert!(store.is_behind());
        assert_eq!(count("SELECT count(*) FROM tasks"), 0);
        let history = store.history();
        assert!(history.events(0, 1).unwrap().len() == 1 && store.is_behind(), "events are never behind");
        assert!(history.task(TaskId(1)).unwrap().is_some());
        assert!(!store.is_behind());
        assert_eq!(count("SELECT count(*) FROM tasks"), 1);
    }

    /// A deferred row that changed several times is written once, in its last version.
    #[test]
    fn deferred_rows_are_written_in_their_last_version() {
        let directory = tempfile::tempdir().unwrap();
        let mut store =
            SqliteStore::open_with(&directory.path().join("regatta.db"), Lag { few: 0, most: usize::MAX }).unwrap();
        let (steps, history) = (everything(), store.history());
        let mut last = Rows::new();
        for step in &steps {
            store.commit(&step.batch).unwrap();
            last.extend(step.batch.rows.clone());
        }
        for (key, row) in last {
            match (key, row) {
                (RowKey::Task(id), Some(Row::Task(it))) => assert_eq!(history.task(id).unwrap().as_ref(), Some(&*it)),
                (RowKey::Task(id), None) => assert_eq!(history.task(id).unwrap(), None),
                (RowKey::Attempt(id), Some(Row::Attempt(it))) => {
                    assert_eq!(history.attempt(id).unwrap().as_ref(), Some(&*it));
                }
                _ => {}
            }
        }
        store.check().unwrap();
    }
}
