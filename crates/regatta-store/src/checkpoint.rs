//! Moves the write-ahead log into the store, in a thread beside the commits.
//!
//! SQLite itself would do it in the commit that makes the log too long, and all callers of that
//! commit would wait for thousands of pages. Here a thread copies the pages and chooses the moment.
//! Close commits need the disk themselves, so it waits for a quiet moment until the log is long.
//! Few pages are written while it copies. The next commit copies those, and then the log restarts.
//! Only when the thread cannot keep up does a commit copy everything itself.
//!
//! A commit is as durable in the log as in the store. But the log can be lost on its own: by a copy
//! that leaves it out, or by somebody who deletes it. So the thread also copies the log whenever
//! the store has been quiet for a while, and keeps the store's mark (`mark.rs`) up to date. The
//! mark names the log while commits may be in the log alone.

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

use crate::mark::{self, Mark, Reached};
use crate::words::{self, Fault};
use crate::{commit, open, wal};

/// The thresholds for the length of the log, in pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// The log is copied in the next quiet moment.
    many: c_int,
    /// The log is copied even if commits follow each other closely.
    long: c_int,
    /// A commit copies the log itself.
    most: c_int,
}

impl Bounds {
    /// 16, 96 and 128 MiB.
    pub(crate) const USUAL: Bounds = Bounds { many: 4_000, long: 24_000, most: 32_000 };
}

/// The largest number of pages that the thread may leave to a commit, and the number of its tries
/// to reach it.
const LITTLE: c_int = 48;
const TRIES: usize = 6;
/// The length of a moment, and the number of commits in it that still count as quiet.
const MOMENT: Duration = Duration::from_millis(20);
const FEW: u64 = 4;

/// The time without a commit after which everything is moved into the store.
const QUIET: Duration = Duration::from_secs(1);
/// The interval at which the mark is written while commits follow each other.
const MARK_INTERVAL: Duration = Duration::from_secs(5);

/// The state that the thread and the commits share.
#[derive(Debug)]
struct State {
    bounds: Bounds,
    stage: AtomicU8,
    /// The length of the log.
    pages: AtomicI32,
    commits: AtomicU64,
    /// The revision of the last commit that returned.
    revision: AtomicU64,
    /// True while the thread sleeps until the next commit.
    is_asleep: AtomicBool,
}

impl State {
    fn new(bounds: Bounds, revision: u64) -> State {
        State {
            bounds,
            stage: State::IDLE.into(),
            pages: 0.into(),
            commits: 0.into(),
            revision: revision.into(),
            is_asleep: false.into(),
        }
    }

    const IDLE: u8 = 0;
    /// The log is long, and the thread copies it.
    const ASKED: u8 = 1;
    /// All but a few pages are copied, and the next commit copies the rest.
    const NEARLY: u8 = 2;
    const END: u8 = 3;

    fn is(&self, stage: u8) -> bool {
        self.stage.load(Acquire) == stage
    }

    /// Changes the stage, unless another thread has changed it. Returns whether it did.
    fn go(&self, from: u8, to: u8) -> bool {
        self.stage.compare_exchange(from, to, AcqRel, Acquire).is_ok()
    }

    /// Returns whether the thread may copy now, given the number of commits a moment ago.
    fn is_its_moment(&self, before: u64) -> bool {
        self.commits.load(Relaxed) - before <= FEW || self.pages.load(Relaxed) >= self.bounds.long
    }
}

/// The thread that copies the log. Dropping this value ends it.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
    /// `None` if the file could not be written. Then the mark alone counts, which lags by a moment.
    reached: Option<Reached>,
}

impl Checkpoints {
    /// Replaces SQLite's own checkpoints on `writer`, the writing connection of the store at
    /// `path`.
    pub(crate) fn of(writer: &mut Connection, path: &Path, bounds: Bounds) -> Result<Checkpoints, StoreError> {
        let own = beside(path).map_err(|it| it.say("open", path))?;
        let revision = commit::revisions(&own).map_err(|fault| fault.say("open", path))?.0;
        let store = mark::identity(&own).map_err(|fault| fault.say("open", path))?;
        let reached = Reached::open(path, store, revision)
            .inspect_err(|error| tracing::warn!("could not open the file that counts the store's commits: {error}"))
            .ok();
        let state = Arc::new(State::new(bounds, revision));
        let (theirs, file) = (state.clone(), path.to_owned());
        let thread = thread::Builder::new()
            .name("checkpoints".into())
            .spawn(move || work(&own, &theirs, &file))
            .map_err(|it| words::io("open", path, &it))?;
        let (asked, waker) = (state.clone(), thread.thread().clone());
        let made = Checkpoints { state, thread: Some(thread), reached };
        let hook = move |log: &mut Wal, pages| {
            after_commit(log, pages, &asked, &waker);
            Ok(())
        };
        writer.wal_hook(Some(hook)).map_err(|it| words::sqlite("open", path, &it))?;
        Ok(made)
    }

    /// Records the revision of a commit that has returned. The mark may name it from now on.
    pub(crate) fn committed(&self, revision: u64) {
        self.state.revision.store(revision, Release);
        if let Some(Err(error)) = self.reached.as_ref().map(|reached| reached.note(revision)) {
            tracing::debug!("could not record a commit in the file beside the store: {error}");
        }
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        self.state.stage.store(State::END, Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            if thread.join().is_err() {
                tracing::error!("the thread that moves the store's log into the store panicked");
            }
        }
    }
}

/// Opens a connection that only copies the log.
fn beside(path: &Path) -> Result<Connection, Fault> {
    let own = open::connect(path)?;
    own.pragma_update(None, "synchronous", "full")?;
    // The last connection to close a store moves its log into it, and that must be the writer's.
    own.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(own)
}

/// Runs after each commit, with the length of the log. Never fails, because the commit has
/// succeeded.
fn after_commit(log: &mut Wal, pages: c_int, state: &State, thread: &Thread) {
    state.pages.store(pages, Relaxed);
    state.commits.fetch_add(1, SeqCst);
    if state.is_asleep.load(SeqCst) {
        thread.unpark();
    }
    if pages >= state.bounds.most || state.is(State::NEARLY) {
        if let Err(error) = log.checkpoint_v2(PASSIVE) {
            tracing::debug!("could not move the log into the store; the log keeps growing: {error}");
        }
        state.go(State::NEARLY, State::IDLE);
    } else if pages >= state.bounds.many && state.go(State::IDLE, State::ASKED) {
        thread.unpark();
    }
}

/// Copies the log and keeps the mark, until the store is closed.
fn work(own: &Connection, state: &State, path: &Path) {
    let mut keeper = MarkKeeper { own, path, is_complete: true, commits: 0, written: Instant::now() };
    while !state.is(State::END) {
        if !state.is(State::ASKED) {
            keeper.keep(state);
            continue;
        }
        let before = state.commits.load(Relaxed);
        thread::park_timeout(MOMENT);
        if !state.is_its_moment(before) {
            continue;
        }
        for _ in 0..TRIES {
            match own.wal_checkpoint_v2(Some(MAIN_DB), PASSIVE) {
                Ok((log, copied)) if log - copied > LITTLE => {}
                Ok(_) => break,
                Err(error) => {
                    tracing::warn!("could not move the log into the store; the log keeps growing: {error}");
                    break;
                }
            }
        }
        state.go(State::ASKED, State::NEARLY);
    }
}

/// Keeps the mark of an open store up to date.
struct MarkKeeper<'a> {
    own: &'a Connection,
    path: &'a Path,
    /// True if the mark says that the store itself has every commit, up to the number in `commits`.
    is_complete: bool,
    commits: u64,
    written: Instant,
}

impl MarkKeeper<'_> {
    /// Does the next step, or sleeps until there is one.
    fn keep(&mut self, state: &State) {
        let commits = state.commits.load(SeqCst);
        if self.is_complete && commits == self.commits {
            self.sleep(state);
            return;
        }
        if self.is_complete {
            // The first commit after a quiet time. From here on commits are in the log.
            self.write_open(state);
        }
        thread::park_timeout(QUIET);
        if state.is(State::ASKED) || state.is(State::END) {
            return;
        }
        if state.commits.load(SeqCst) != commits {
            if self.written.elapsed() >= MARK_INTERVAL {
                self.write_open(state);
            }
            return;
        }
        let revision = state.revision.load(Acquire);
        match self.own.wal_checkpoint_v2(Some(MAIN_DB), PASSIVE) {
            Ok((log, copied)) if log == copied && state.commits.load(SeqCst) == commits => {
                self.write(revision, None);
                (self.is_complete, self.commits) = (true, commits);
            }
            // A reader or a commit prevented it. The next quiet moment tries again.
            Ok(_) => {}
            Err(error) => tracing::debug!("could not move the log into the store in a quiet moment: {error}"),
        }
    }

    /// Sleeps until a commit or the end.
    fn sleep(&self, state: &State) {
        state.is_asleep.store(true, SeqCst);
        if state.commits.load(SeqCst) == self.commits && !state.is(State::ASKED) && !state.is(State::END) {
            thread::park();
        }
        state.is_asleep.store(false, SeqCst);
    }

    /// Writes a mark with the revision of the store and the log that its commits may be in.
    fn write_open(&mut self, state: &State) {
        let revision = state.revision.load(Acquire);
        let log = wal::inspect_header(self.path).unwrap_or_else(|error| {
            tracing::warn!("could not read the header of the store's log: {error}");
            None
        });
        self.write(revision, log);
        self.is_complete = false;
        self.written = Instant::now();
    }

    fn write(&self, revision: u64, log: Option<u32>) {
        let written = mark::identity(self.own).map_err(|fault| fault.to_string()).and_then(|store| {
            mark::write(self.path, &Mark { store, revision, log }).map_err(|error| error.to_string())
        });
        // On a full disk the old mark stays, which demands less.
        if let Err(error) = written {
            tracing::debug!("could not update the mark of the store: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files;

    const BOUNDS: Bounds = Bounds { many: 200, long: 1_200, most: 1_600 };

    struct Place {
        writer: Connection,
        checkpoints: Checkpoints,
        log: std::path::PathBuf,
        _directory: tempfile::TempDir,
    }

    impl Place {
        fn new() -> Place {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("regatta.db");
            let mut writer = open::open(&path).unwrap();
            writer.pragma_update(None, "synchronous", "off").unwrap();
            writer.execute_batch("CREATE TABLE heap (id INTEGER PRIMARY KEY, body BLOB)").unwrap();
            let checkpoints = Checkpoints::of(&mut writer, &path, BOUNDS).unwrap();
            Place { writer, checkpoints, log: files::beside(&path, "-wal"), _directory: directory }
        }

        /// Commits about this many pages, always the same ones.
        fn commit(&self, pages: i64) {
            let put = "INSERT OR REPLACE INTO heap VALUES (1, randomblob(?1 * 4096))";
            self.writer.execute(put, [pages]).unwrap();
        }

        /// Returns the length of the log in pages.
        fn pages(&self) -> c_int {
            self.writer.wal_checkpoint_v2(Some(MAIN_DB), PASSIVE).unwrap().0
        }

        /// Waits until the log reaches a stage. `what` describes the stage. The time limit only
        /// detects that the stage never comes.
        fn wait_for(&self, stage: u8, what: &str) {
            let state = &self.checkpoints.state;
            let patience = Instant::now() + Duration::from_secs(60);
            while !state.is(stage) {
                let at = state.stage.load(Acquire);
                assert!(Instant::now() < patience, "{what}: timed out waiting for stage {stage}, the log is at stage {at}");
                thread::yield_now();
            }
        }
    }

    #[test]
    fn long_log_is_copied_by_the_thread_and_restarts() {
        let place = Place::new();
        for round in 1..=3 {
            while place.checkpoints.state.is(State::IDLE) {
                place.commit(25);
            }
            // No commit follows, so the thread copies, and the next commit copies the few remaining
            // pages.
            place.wait_for(State::NEARLY, "the thread copies a long log");
            place.commit(2);
            assert!(place.checkpoints.state.is(State::IDLE), "round {round}");
            place.commit(2);
            assert!(place.pages() < BOUNDS.many, "round {round}: the log did not restart: {} pages", place.pages());
        }
        let length = place.log.metadata().unwrap().len();
        assert!(length < 2 * 4096 * BOUNDS.many as u64, "the log is {length} bytes long");
    }

    #[test]
    fn copying_the_log_waits_for_a_pause_in_commits_unless_the_log_is_long() {
        let state = State::new(BOUNDS, 0);
        state.stage.store(State::ASKED, Release);
        state.commits.store(100, SeqCst);
        for (before, pages, may) in [
            (100, 300, true),
            (100 - FEW, 300, true),
            (100 - FEW - 1, 300, false),
            (0, BOUNDS.long - 1, false),
            (0, BOUNDS.long, true),
        ] {
            state.pages.store(pages, Relaxed);
            assert_eq!(state.is_its_moment(before), may, "{} commits, {pages} pages", 100 - before);
        }
    }

    #[test]
    fn commit_copies_the_log_itself_when_the_thread_is_stuck() {
        let place = Place::new();
        // Simulates a thread that never finishes.
        place.checkpoints.state.stage.store(State::END, Release);
        for _ in 0..100 {
            place.commit(25);
        }
        let length = place.log.metadata().unwrap().len();
        assert!(length < 4096 * (BOUNDS.most + 100) as u64, "the log is {length} bytes long");
    }

    #[test]
    fn closed_store_leaves_no_log() {
        let Place { writer, checkpoints, log, _directory } = Place::new();
        writer.execute_batch("INSERT INTO heap VALUES (1, randomblob(4096))").unwrap();
        assert!(log.exists());
        drop(checkpoints);
        drop(writer);
        assert!(!log.exists(), "the last connection that closes removes the log");
    }
}
