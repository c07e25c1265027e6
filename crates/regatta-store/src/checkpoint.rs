//! Copies SQLite's write-ahead log into the store file in a separate thread, so that the threads
//! that store changes need not do so.
//!
//! SQLite itself would copy the log at the end of the transaction that makes the log too long, and
//! all callers of that transaction would wait for thousands of pages. Here a thread copies the
//! pages and chooses the moment. Transactions in quick succession need the disk themselves, so the
//! thread waits for a quiet moment unless the log is long. While the thread copies, transactions
//! add a few pages to the log. The next transaction copies these pages, and then the log starts
//! again from its beginning. If the thread cannot keep up, a transaction copies everything itself.
//!
//! A transaction is as durable in the log as in the store file. But the log can be lost on its own:
//! somebody may copy the store without the log, or delete the log. So the thread also copies the
//! log whenever no transactions have arrived for a while. It also keeps the store's mark
//! (`mark.rs`) up to date, a file that says up to which event the store must be complete. The mark
//! names the log while the log may have changes that the store file lacks.

use std::ffi::c_int;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use regatta_engine::ports::store::StoreError;
use rusqlite::config::DbConfig;
use rusqlite::hooks::Wal;
use rusqlite::wal::CheckpointMode::PASSIVE;
use rusqlite::{Connection, MAIN_DB};

use crate::errors::{self, StoreFault};
use crate::store_mark::{self, HighWaterMark, ReachedFile};
use crate::{commit, open, wal};

/// The lengths of the write-ahead log, in pages, at which it is copied into the store file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogLimits {
    /// The length of the write-ahead log from which the copying thread copies the log in the next
    /// quiet moment.
    quiet_copy_pages: c_int,
    /// The length of the write-ahead log from which the copying thread copies the log even if
    /// transactions follow each other closely.
    forced_copy_pages: c_int,
    /// The length of the write-ahead log from which a transaction copies the log itself, because
    /// the copying thread cannot keep up.
    commit_copy_pages: c_int,
}

impl LogLimits {
    /// With SQLite's pages of 4 KiB, these limits are about 16, 96 and 128 MiB.
    pub(crate) const DEFAULT: LogLimits = LogLimits {
        quiet_copy_pages: 4_000,
        forced_copy_pages: 24_000,
        commit_copy_pages: 32_000,
    };
}

/// The largest number of pages of SQLite's write-ahead log that the copying thread may leave for a
/// transaction to copy.
const MAX_LEFT_PAGES: c_int = 48;
/// The maximum number of times that the copying thread copies the log, to leave at most
/// [`MAX_LEFT_PAGES`] for a transaction.
const MAX_COPY_TRIES: usize = 6;
/// The time over which transactions are counted. The moment is quiet if at most
/// [`MAX_COMMITS_IN_WINDOW`] transactions happened in this time.
const QUIET_WINDOW: Duration = Duration::from_millis(20);
/// The largest number of transactions in [`QUIET_WINDOW`] for a moment to count as quiet.
const MAX_COMMITS_IN_WINDOW: u64 = 4;

/// The time without a transaction after which SQLite's whole write-ahead log is copied into the
/// store file.
const IDLE_BEFORE_FULL_COPY: Duration = Duration::from_secs(1);
/// The interval at which the mark (the file that says up to which event the store must be complete)
/// is written while transactions arrive.
const MARK_INTERVAL: Duration = Duration::from_secs(5);

/// The state that is shared by the thread that copies SQLite's write-ahead log and the threads that
/// store changes.
#[derive(Debug)]
struct State {
    limits: LogLimits,
    stage: AtomicU8,
    /// The length of the write-ahead log in pages after the last transaction.
    pages: AtomicI32,
    commits: AtomicU64,
    /// The revision (event number) after the last completed transaction.
    revision: AtomicU64,
    /// True if the copying thread sleeps until the next transaction wakes it.
    is_sleeping: AtomicBool,
}

impl State {
    fn new(limits: LogLimits, revision: u64) -> State {
        State {
            limits,
            stage: State::IDLE.into(),
            pages: 0.into(),
            commits: 0.into(),
            revision: revision.into(),
            is_sleeping: false.into(),
        }
    }

    const IDLE: u8 = 0;
    /// SQLite's write-ahead log is long, so the thread should copy the log, or is copying it.
    const COPY_REQUESTED: u8 = 1;
    /// The thread has copied all but a few pages of SQLite's write-ahead log. The next transaction
    /// copies the rest.
    const NEARLY_COPIED: u8 = 2;
    const ENDED: u8 = 3;

    fn is_at_stage(&self, stage: u8) -> bool {
        self.stage.load(Acquire) == stage
    }

    /// Changes the stage of copying the log from `from` to `to`. Returns `false` and changes
    /// nothing if another thread has changed the stage in the meantime.
    fn change_stage(&self, from: u8, to: u8) -> bool {
        self.stage
            .compare_exchange(from, to, AcqRel, Acquire)
            .is_ok()
    }

    /// Returns whether the copying thread may copy SQLite's write-ahead log now. `before` is an
    /// earlier number of transactions. The thread may copy if only few transactions happened since
    /// then, or if the log is too long to wait.
    fn is_quiet_since(&self, before: u64) -> bool {
        self.commits.load(Relaxed) - before <= MAX_COMMITS_IN_WINDOW
            || self.pages.load(Relaxed) >= self.limits.forced_copy_pages
    }
}

/// A handle on the thread that copies the write-ahead log. Dropping the handle ends the thread.
#[derive(Debug)]
pub(crate) struct Checkpointer {
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
    /// The file into which the revision (event number) is written after every transaction. `None`
    /// if the file could not be opened. Then only the mark can show that changes were lost, and the
    /// mark may be a few transactions old. The mark is the file that says up to which event the
    /// store must be complete.
    reached: Option<ReachedFile>,
}

impl Checkpointer {
    /// Starts the thread that copies SQLite's write-ahead log, and turns off SQLite's own copying
    /// on `writer`, the connection that writes to the store at `path`.
    pub(crate) fn start(
        writer: &mut Connection,
        path: &Path,
        limits: LogLimits,
    ) -> Result<Checkpointer, StoreError> {
        let connection =
            open_beside(path).map_err(|fault| fault.into_error("open the store", path))?;
        let revision = commit::revisions(&connection)
            .map_err(|fault| fault.into_error("open the store", path))?
            .0;
        let store = store_mark::store_identity(&connection)
            .map_err(|fault| fault.into_error("open the store", path))?;
        let reached = ReachedFile::open(path, store, revision)
            .inspect_err(|error| {
                tracing::warn!(
                    "could not open the file that records the last change of the store {}, so \
                    the loss of the very last changes may go unnoticed: {error}",
                    path.display()
                )
            })
            .ok();
        let state = Arc::new(State::new(limits, revision));
        let (thread_state, thread_path) = (state.clone(), path.to_owned());
        let thread = thread::Builder::new()
            .name("checkpoints".into())
            .spawn(move || run_checkpointer(&connection, &thread_state, &thread_path))
            .map_err(|error| errors::io_error("open the store", path, &error))?;
        let (hook_state, waker) = (state.clone(), thread.thread().clone());
        let checkpointer = Checkpointer {
            state,
            thread: Some(thread),
            reached,
        };
        let hook = move |log: &mut Wal, pages| {
            after_commit(log, pages, &hook_state, &waker);
            Ok(())
        };
        writer
            .wal_hook(Some(hook))
            .map_err(|error| errors::sqlite_error("open the store", path, &error))?;
        Ok(checkpointer)
    }

    /// Records the revision (event number) of a completed transaction, so that the mark may name
    /// this revision from now on. The mark is the file that says up to which event the store must
    /// be complete.
    pub(crate) fn on_commit(&self, revision: u64) {
        self.state.revision.store(revision, Release);
        if let Some(Err(error)) = self
            .reached
            .as_ref()
            .map(|reached| reached.record(revision))
        {
            tracing::debug!(
                "event {revision} is stored, but its number could not be written to the file beside \
                the store, so Regatta may not notice if a power failure loses this event: {error}"
            );
        }
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.state.stage.store(State::ENDED, Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            if thread.join().is_err() {
                tracing::error!(
                    "the thread that copies SQLite's write-ahead log into the store file panicked; \
                    no change is lost, because the changes stay in the log"
                );
            }
        }
    }
}

/// Opens a second connection to the store, which is used only to copy SQLite's write-ahead log.
fn open_beside(path: &Path) -> Result<Connection, StoreFault> {
    let connection = open::connect_for_writing(path)?;
    connection.pragma_update(None, "synchronous", "full")?;
    // When the last connection to a store is closed, SQLite copies the write-ahead log. Only the
    // writer's connection may do so, so turn this off for the connection of the copying thread.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(connection)
}

/// Wakes the thread that copies SQLite's write-ahead log, or copies the log here, depending on the
/// length of the log. SQLite calls this function after each transaction. Errors are only logged,
/// because the transaction has already succeeded.
fn after_commit(log: &mut Wal, pages: c_int, state: &State, thread: &Thread) {
    state.pages.store(pages, Relaxed);
    state.commits.fetch_add(1, SeqCst);
    if state.is_sleeping.load(SeqCst) {
        thread.unpark();
    }
    if pages >= state.limits.commit_copy_pages || state.is_at_stage(State::NEARLY_COPIED) {
        if let Err(error) = log.checkpoint_v2(PASSIVE) {
            tracing::debug!(
                "could not copy SQLite's write-ahead log into the store file after a change, so \
                the log keeps growing until a copy succeeds: {error}"
            );
        }
        state.change_stage(State::NEARLY_COPIED, State::IDLE);
    } else if pages >= state.limits.quiet_copy_pages
        && state.change_stage(State::IDLE, State::COPY_REQUESTED)
    {
        thread.unpark();
    }
}

/// Copies SQLite's write-ahead log and keeps the mark (the file that says up to which event the
/// store must be complete) up to date until the store is closed. This is the main function of the
/// copying thread.
fn run_checkpointer(connection: &Connection, state: &State, path: &Path) {
    let mut keeper = MarkKeeper {
        connection,
        path,
        is_complete: true,
        commits: 0,
        last_written: Instant::now(),
    };
    while !state.is_at_stage(State::ENDED) {
        if !state.is_at_stage(State::COPY_REQUESTED) {
            keeper.step(state);
            continue;
        }
        let before = state.commits.load(Relaxed);
        thread::park_timeout(QUIET_WINDOW);
        if !state.is_quiet_since(before) {
            continue;
        }
        for _ in 0..MAX_COPY_TRIES {
            match connection.wal_checkpoint_v2(Some(MAIN_DB), PASSIVE) {
                Ok((log, copied)) if log - copied > MAX_LEFT_PAGES => {}
                Ok(_) => break,
                Err(error) => {
                    tracing::warn!(
                        "could not copy SQLite's write-ahead log into the store file, so the log \
                        keeps growing until a copy succeeds: {error}"
                    );
                    break;
                }
            }
        }
        state.change_stage(State::COPY_REQUESTED, State::NEARLY_COPIED);
    }
}

/// Keeps the mark (the file that says up to which event the store must be complete) of an open
/// store up to date.
struct MarkKeeper<'a> {
    connection: &'a Connection,
    path: &'a Path,
    /// True if the mark (the file that says up to which event the store must be complete) says that
    /// the store file itself contains every change.
    is_complete: bool,
    /// The number of transactions at the time when such a mark was last written.
    commits: u64,
    last_written: Instant,
}

impl MarkKeeper<'_> {
    /// Updates the mark (the file that says up to which event the store must be complete) if that
    /// is due, otherwise sleeps until something happens.
    fn step(&mut self, state: &State) {
        let commits = state.commits.load(SeqCst);
        if self.is_complete && commits == self.commits {
            self.sleep_until_commit(state);
            return;
        }
        if self.is_complete {
            // This is the first transaction after a quiet time. From now on the write-ahead log may
            // have changes that the store file lacks. So the mark (the file that says up to which
            // event the store must be complete) must name the log.
            self.write_mark_with_log(state);
        }
        thread::park_timeout(IDLE_BEFORE_FULL_COPY);
        if state.is_at_stage(State::COPY_REQUESTED) || state.is_at_stage(State::ENDED) {
            return;
        }
        if state.commits.load(SeqCst) != commits {
            if self.last_written.elapsed() >= MARK_INTERVAL {
                self.write_mark_with_log(state);
            }
            return;
        }
        let revision = state.revision.load(Acquire);
        match self.connection.wal_checkpoint_v2(Some(MAIN_DB), PASSIVE) {
            Ok((log, copied)) if log == copied && state.commits.load(SeqCst) == commits => {
                self.write_mark(revision, None);
                (self.is_complete, self.commits) = (true, commits);
            }
            // A reader or a transaction prevented a complete copy of the write-ahead log. Do
            // nothing now, because the next quiet moment tries again.
            Ok(_) => {}
            Err(error) => {
                tracing::debug!(
                    "could not copy SQLite's write-ahead log into the store file while no changes \
                    arrived, trying again at the next quiet moment: {error}"
                )
            }
        }
    }

    /// Sleeps until the next transaction, or until the store is closed.
    fn sleep_until_commit(&self, state: &State) {
        state.is_sleeping.store(true, SeqCst);
        if state.commits.load(SeqCst) == self.commits
            && !state.is_at_stage(State::COPY_REQUESTED)
            && !state.is_at_stage(State::ENDED)
        {
            thread::park();
        }
        state.is_sleeping.store(false, SeqCst);
    }

    /// Writes a mark, which is the file that says up to which event the store must be complete.
    /// This mark names the store's revision (event number), and also the write-ahead log, which may
    /// have changes that the store file lacks.
    fn write_mark_with_log(&mut self, state: &State) {
        let revision = state.revision.load(Acquire);
        let log = wal::read_first_salt(self.path).unwrap_or_else(|error| {
            tracing::warn!(
                "could not read the header of SQLite's write-ahead log, so the file that says up \
                to which event the store must be complete does not name the log: {error}"
            );
            None
        });
        self.write_mark(revision, log);
        self.is_complete = false;
        self.last_written = Instant::now();
    }

    fn write_mark(&self, revision: u64, log: Option<u32>) {
        let written = store_mark::store_identity(self.connection)
            .map_err(|fault| fault.to_string())
            .and_then(|store| {
                store_mark::write_mark(
                    self.path,
                    &HighWaterMark {
                        store,
                        revision,
                        log,
                    },
                )
                .map_err(|error| error.to_string())
            });
        // If the disk is full, the old mark (the file that says up to which event the store must be
        // complete) stays. The old mark requires only an older revision (event number), so no good
        // store is refused because of it.
        if let Err(error) = written {
            tracing::debug!(
                "could not update the file that records the last event the store must have; the \
                file still names an earlier event: {error}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store_files;

    const TEST_LIMITS: LogLimits = LogLimits {
        quiet_copy_pages: 200,
        forced_copy_pages: 1_200,
        commit_copy_pages: 1_600,
    };

    struct TestStore {
        writer: Connection,
        checkpoints: Checkpointer,
        log: std::path::PathBuf,
        _directory: tempfile::TempDir,
    }

    impl TestStore {
        fn new() -> TestStore {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("regatta.db");
            let mut writer = open::open_for_writing(&path).unwrap();
            writer.pragma_update(None, "synchronous", "off").unwrap();
            writer
                .execute_batch("CREATE TABLE heap (id INTEGER PRIMARY KEY, body BLOB)")
                .unwrap();
            let checkpoints = Checkpointer::start(&mut writer, &path, TEST_LIMITS).unwrap();
            TestStore {
                writer,
                checkpoints,
                log: store_files::with_suffix(&path, "-wal"),
                _directory: directory,
            }
        }

        /// Commits a transaction with about this many pages, always the same pages.
        fn commit(&self, pages: i64) {
            let put = "INSERT OR REPLACE INTO heap VALUES (1, randomblob(?1 * 4096))";
            self.writer.execute(put, [pages]).unwrap();
        }

        /// Returns the length of the log in pages.
        fn pages(&self) -> c_int {
            self.writer
                .wal_checkpoint_v2(Some(MAIN_DB), PASSIVE)
                .unwrap()
                .0
        }

        /// Waits until the log reaches a stage. `expectation` describes the stage. The time limit
        /// only detects that the stage never comes.
        fn wait_for(&self, stage: u8, expectation: &str) {
            let state = &self.checkpoints.state;
            let deadline = Instant::now() + Duration::from_secs(60);
            while !state.is_at_stage(stage) {
                let current = state.stage.load(Acquire);
                assert!(
                    Instant::now() < deadline,
                    "{expectation}: timed out waiting for stage {stage}, the log is at stage {current}"
                );
                thread::yield_now();
            }
        }
    }

    #[test]
    fn long_log_is_copied_by_the_thread_and_restarts() {
        let store = TestStore::new();
        for round in 1..=3 {
            while store.checkpoints.state.is_at_stage(State::IDLE) {
                store.commit(25);
            }
            // No transaction follows, so the thread copies, and the next transaction copies the few
            // remaining pages.
            store.wait_for(State::NEARLY_COPIED, "the thread copies a long log");
            store.commit(2);
            assert!(
                store.checkpoints.state.is_at_stage(State::IDLE),
                "round {round}"
            );
            store.commit(2);
            assert!(
                store.pages() < TEST_LIMITS.quiet_copy_pages,
                "round {round}: the log did not restart: {} pages",
                store.pages()
            );
        }
        let length = store.log.metadata().unwrap().len();
        assert!(
            length < 2 * 4096 * TEST_LIMITS.quiet_copy_pages as u64,
            "the log is {length} bytes long"
        );
    }

    #[test]
    fn copying_the_log_waits_for_a_pause_in_commits_unless_the_log_is_long() {
        let state = State::new(TEST_LIMITS, 0);
        state.stage.store(State::COPY_REQUESTED, Release);
        state.commits.store(100, SeqCst);
        for (before, pages, expected) in [
            (100, 300, true),
            (100 - MAX_COMMITS_IN_WINDOW, 300, true),
            (100 - MAX_COMMITS_IN_WINDOW - 1, 300, false),
            (0, TEST_LIMITS.forced_copy_pages - 1, false),
            (0, TEST_LIMITS.forced_copy_pages, true),
        ] {
            state.pages.store(pages, Relaxed);
            assert_eq!(
                state.is_quiet_since(before),
                expected,
                "{} commits, {pages} pages",
                100 - before
            );
        }
    }

    #[test]
    fn commit_copies_the_log_itself_when_the_thread_is_stuck() {
        let store = TestStore::new();
        // Simulates a thread that never finishes.
        store.checkpoints.state.stage.store(State::ENDED, Release);
        for _ in 0..100 {
            store.commit(25);
        }
        let length = store.log.metadata().unwrap().len();
        assert!(
            length < 4096 * (TEST_LIMITS.commit_copy_pages + 100) as u64,
            "the log is {length} bytes long"
        );
    }

    #[test]
    fn closed_store_leaves_no_log() {
        let TestStore {
            writer,
            checkpoints,
            log,
            _directory,
        } = TestStore::new();
        writer
            .execute_batch("INSERT INTO heap VALUES (1, randomblob(4096))")
            .unwrap();
        assert!(log.exists());
        drop(checkpoints);
        drop(writer);
        assert!(
            !log.exists(),
            "the last connection that closes removes the log"
        );
    }
}
