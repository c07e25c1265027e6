//! Moves the log into the store, beside the commits and not inside one of them.
//!
//! SQLite would do it in the commit that makes the log too long, and everybody in that commit would wait for thousands
//! of pages. Here a thread copies them, and chooses its moment: while commits follow each other closely they need the
//! disk themselves, so it waits for a quiet one, until the log is long. What is written while it copies is little;
//! the next commit copies that, and then the log begins anew. Only when the thread cannot keep up does a commit copy
//! everything itself.
//!
//! What is committed is as durable in the log as in the store. But the log can be lost by itself: by a copy that leaves it
//! out, by whoever clears files away. So the thread also copies it whenever the store has been quiet for a while, and keeps
//! the store's mark (`mark.rs`) up to date: it names the log while commits may be in it alone.

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

/// How long the log may be, in pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// From here on it is copied in the next quiet moment.
    many: c_int,
    /// From here on it is copied however busy the commits are.
    long: c_int,
    /// From here on a commit copies it.
    most: c_int,
}

impl Bounds {
    /// 16, 96 and 128 MiB.
    pub(crate) const USUAL: Bounds = Bounds { many: 4_000, long: 24_000, most: 32_000 };
}

/// How few pages the thread leaves to a commit, and how often it tries to.
const LITTLE: c_int = 48;
const TRIES: usize = 6;
/// A moment, and how many commits in it are still quiet.
const MOMENT: Duration = Duration::from_millis(20);
const FEW: u64 = 4;

/// After so long without a commit everything is moved into the store.
const QUIET: Duration = Duration::from_secs(1);
/// While commits follow each other, the mark is renewed so often.
const MARK_INTERVAL: Duration = Duration::from_secs(5);

/// What the thread and the commits have to tell each other.
#[derive(Debug)]
struct State {
    bounds: Bounds,
    stage: AtomicU8,
    /// How long the log is.
    pages: AtomicI32,
    commits: AtomicU64,
    /// The revision of the last commit that returned.
    revision: AtomicU64,
    /// The thread sleeps until the next commit.
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
    /// The log is long: the thread copies.
    const ASKED: u8 = 1;
    /// All but a little is copied: the next commit does the rest.
    const NEARLY: u8 = 2;
    const END: u8 = 3;

    fn is(&self, stage: u8) -> bool {
        self.stage.load(Acquire) == stage
    }

    /// Goes on, unless somebody else did.
    fn go(&self, from: u8, to: u8) -> bool {
        self.stage.compare_exchange(from, to, AcqRel, Acquire).is_ok()
    }

    /// Whether the thread may copy now, when there were so many commits a moment before.
    fn is_its_moment(&self, before: u64) -> bool {
        self.commits.load(Relaxed) - before <= FEW || self.pages.load(Relaxed) >= self.bounds.long
    }
}

/// The thread that copies. It ends when this does.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
    /// `None` if the file could not be written. The mark alone is then a moment behind.
    reached: Option<Reached>,
}

impl Checkpoints {
    /// Takes over from SQLite on `writer`, the connection that writes to the store at `path`.
    pub(crate) fn of(writer: &mut Connection, path: &Path, bounds: Bounds) -> Result<Checkpoints, StoreError> {
        let own = beside(path).map_err(|it| it.say("open", path))?;
        let revision = commit::revisions(&own).map_err(|fault| fault.say("open", path))?.0;
        let store = mark::identity(&own).map_err(|fault| fault.say("open", path))?;
        let reached = Reached::open(path, store, revision)
            .inspect_err(|error| tracing::warn!("commits are not counted beside the store: {error}"))
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

    /// Notes the revision of a commit that has returned: the mark may name it from now on.
    pub(crate) fn committed(&self, revision: u64) {
        self.state.revision.store(revision, Release);
        if let Some(Err(error)) = self.reached.as_ref().map(|reached| reached.note(revision)) {
            tracing::debug!("a commit was not counted beside the store: {error}");
        }
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        self.state.stage.store(State::END, Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            if thread.join().is_err() {
                tracing::error!("the thread that moves the store's log into it had panicked");
            }
        }
    }
}

/// A connection that only ever copies what is committed.
fn beside(path: &Path) -> Result<Connection, Fault> {
    let own = open::connect(path)?;
    own.pragma_update(None, "synchronous", "full")?;
    // Whoever closes a store last moves its log into it, and that is the writer.
    own.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(own)
}

/// What a commit that made the log so long does for it. It never fails: the commit has succeeded.
fn after_commit(log: &mut Wal, pages: c_int, state: &State, thread: &Thread) {
    state.pages.store(pages, Relaxed);
    state.commits.fetch_add(1, SeqCst);
    if state.is_asleep.load(SeqCst) {
        thread.unpark();
    }
    if pages >= state.bounds.most || state.is(State::NEARLY) {
        if let Err(error) = log.checkpoint_v2(PASSIVE) {
            tracing::debug!("the store's log was not moved into it and goes on growing: {error}");
        }
        state.go(State::NEARLY, State::IDLE);
    } else if pages >= state.bounds.many && state.go(State::IDLE, State::ASKED) {
        thread.unpark();
    }
}

/// What the thread does until the store is closed.
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
                    tracing::warn!("the store's log was not moved into it and goes on growing: {error}");
                    break;
                }
            }
        }
        state.go(State::ASKED, State::NEARLY);
    }
}

/// Writes a store's mark while the store is open.
struct MarkKeeper<'a> {
    own: &'a Connection,
    path: &'a Path,
    /// The mark says that the store itself has every commit, up to the number in `commits`.
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
            // The first commit after a quiet time: from here on the log matters.
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
            // A reader or a commit was in the way: the next quiet moment will do.
            Ok(_) => {}
            Err(error) => tracing::debug!("the store's log was not moved into it in a quiet moment: {error}"),
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

    /// Writes how far the store is, and which log its commits may be in.
    fn write_open(&mut self, state: &State) {
        let revision = state.revision.load(Acquire);
        let log = wal::inspect_header(self.path).unwrap_or_else(|error| {
            tracing::warn!("the header of the store's log cannot be read: {error}");
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
        // On a full disk the old one stays, which asks for less.
        if let Err(error) = written {
            tracing::debug!("the store's mark stays as it was: {error}");
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

        /// A commit of about so many pages, always the same ones.
        fn commit(&self, pages: i64) {
            let put = "INSERT OR REPLACE INTO heap VALUES (1, randomblob(?1 * 4096))";
            self.writer.execute(put, [pages]).unwrap();
        }

        /// How long the log is, in pages.
        fn pages(&self) -> c_int {
            self.writer.wal_checkpoint_v2(Some(MAIN_DB), PASSIVE).unwrap().0
        }

        /// Waits until the log is at a stage, `what` in words. That it takes long is no fault, only that it never comes.
        fn wait_for(&self, stage: u8, what: &str) {
            let state = &self.checkpoints.state;
            let patience = Instant::now() + Duration::from_secs(60);
            while !state.is(stage) {
                let at = state.stage.load(Acquire);
                assert!(Instant::now() < patience, "{what}: waited for stage {stage} in vain, it is at {at}");
                thread::yield_now();
            }
        }
    }

    #[test]
    fn a_long_log_is_moved_beside_the_commits_and_begins_anew() {
        let place = Place::new();
        for round in 1..=3 {
            while place.checkpoints.state.is(State::IDLE) {
                place.commit(25);
            }
            // It is quiet now: the thread copies, and the next commit does the little that is left.
            place.wait_for(State::NEARLY, "the thread copies a long log");
            place.commit(2);
            assert!(place.checkpoints.state.is(State::IDLE), "round {round}");
            place.commit(2);
            assert!(place.pages() < BOUNDS.many, "round {round}: the log did not begin anew: {} pages", place.pages());
        }
        let length = place.log.metadata().unwrap().len();
        assert!(length < 2 * 4096 * BOUNDS.many as u64, "the log is {length} bytes long");
    }

    #[test]
    fn commits_that_follow_each_other_closely_are_left_alone_until_the_log_is_long() {
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
    fn a_commit_moves_the_log_itself_when_the_thread_cannot() {
        let place = Place::new();
        // As if the thread were at it for ever.
        place.checkpoints.state.stage.store(State::END, Release);
        for _ in 0..100 {
            place.commit(25);
        }
        let length = place.log.metadata().unwrap().len();
        assert!(length < 4096 * (BOUNDS.most + 100) as u64, "the log is {length} bytes long");
    }

    #[test]
    fn a_store_that_is_closed_leaves_no_log() {
        let Place { writer, checkpoints, log, _directory } = Place::new();
        writer.execute_batch("INSERT INTO heap VALUES (1, randomblob(4096))").unwrap();
        assert!(log.exists());
        drop(checkpoints);
        drop(writer);
        assert!(!log.exists(), "whoever closes it last moves the log");
    }
}
