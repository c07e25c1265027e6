//! Tests of full disks, read-only disks, other programs that use the store, and the modes of its
//! files.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use regatta_engine::ports::store::{Store, TaskFilter};
use regatta_store::{DeferralLimits, SqliteStore};
use regatta_testkit::store_suite::history_fixture::{CommitStep, all_steps};

use crate::support::{StoreFile, commit_all, file_mode, test_dir};

/// Commits until a commit is refused. Returns the number of the refused step and the error.
fn commit_until_refused(
    store: &mut SqliteStore,
    steps: &[CommitStep],
) -> (usize, regatta_engine::ports::store::StoreError) {
    steps
        .iter()
        .enumerate()
        .find_map(|(nth, step)| store.commit(&step.batch).err().map(|why| (nth, why)))
        .expect("a commit should have been refused")
}

/// Puts a long text into one row of each step, which fills small disks quickly.
fn with_long_texts(steps: &[CommitStep]) -> Vec<CommitStep> {
    use regatta_core::ids::ChannelName;
    use regatta_core::{bus, command};
    let mut teller = regatta_testkit::store_suite::history_fixture::HistoryBuilder::default();
    teller.board = steps.last().unwrap().board.clone();
    teller.now = regatta_core::ids::Now {
        fleet_ms: teller.board.fleet_ms,
        unix_ms: 1,
    };
    for nth in 0..80 {
        let post = bus::PostMessage {
            channel: ChannelName::new("shop").unwrap(),
            text: format!("{nth} ").repeat(15_000),
            labels: vec![],
            reply_to: None,
        };
        teller.run(&command::Actor::Regatta, None, command::Command::Post(post));
    }
    teller.steps
}

/// A small disk that exists as long as this value. Only root may mount one.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// Mounts the disk. Returns `None` where the tests may not mount one, and prints which test
    /// replaces this one, even where the output of passing tests is hidden.
    fn mount(instead: &str) -> Option<SmallDisk> {
        let store_file = test_dir();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=12m", "tmpfs"])
            .arg(store_file.path())
            .output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(SmallDisk(store_file));
        }
        let test = std::thread::current().name().unwrap_or_default().to_owned();
        let _gone = writeln!(
            std::io::stderr(),
            "NOT RUN: {test}: mounting a small file system needs root, so {instead} replaces it"
        );
        None
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("regatta.db")
    }

    fn remount(&self, how: &str) {
        let mounted = Command::new("mount")
            .args(["-o", &format!("remount,{how}")])
            .arg(self.0.path())
            .output()
            .unwrap();
        assert!(mounted.status.success(), "{mounted:?}");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).output();
    }
}

/// Uses a real small disk where the tests may mount one. The disk fills, commits are refused, the
/// disk gets space, and the store works again.
#[test]
fn full_disk_refuses_commits_until_it_has_space() {
    let Some(disk) = SmallDisk::mount("the store that may not grow (src/store.rs)") else {
        return;
    };
    let steps = all_steps();
    let mut store = SqliteStore::open(&disk.path()).unwrap();
    commit_all(&mut store, &steps);
    let large = with_long_texts(&steps);
    let (nth, why) = commit_until_refused(&mut store, &large);
    assert_eq!(why.code, "disk_full", "{why:?}");
    for _ in 0..3 {
        assert_eq!(
            store.commit(&large[nth].batch).unwrap_err().code,
            "disk_full"
        );
    }
    assert!(
        store.load().unwrap().board == large[nth - 1].board,
        "the board differs from the last acknowledged commit"
    );
    assert_eq!(
        store
            .backup(&disk.path().with_extension("copy"))
            .unwrap_err()
            .code,
        "disk_full"
    );
    assert!(
        !disk.path().with_extension("copy").exists()
            && !disk.path().with_extension("copy.partial").exists()
    );
    disk.remount("size=64m");
    commit_all(&mut store, &large[nth..]);
    store.check().unwrap();
    drop(store);
    assert!(
        SqliteStore::open(&disk.path())
            .unwrap()
            .load()
            .unwrap()
            .board
            == large.last().unwrap().board
    );
}

#[test]
fn store_on_a_read_only_disk_is_refused_as_read_only() {
    let Some(disk) = SmallDisk::mount("a directory that may not be written") else {
        return;
    };
    drop(SqliteStore::open(&disk.path()).unwrap());
    disk.remount("ro");
    assert_eq!(
        SqliteStore::open(&disk.path()).unwrap_err().code,
        "read_only"
    );
    assert_eq!(
        SqliteStore::open(&disk.0.path().join("other.db"))
            .unwrap_err()
            .code,
        "read_only"
    );
    disk.remount("rw");
    SqliteStore::open(&disk.path()).unwrap();
}

/// File modes do not restrict root, so this test does not run as root.
#[test]
fn store_in_a_directory_without_write_permission_is_refused_as_read_only() {
    use std::os::unix::fs::PermissionsExt;
    let store_file = StoreFile::with_commits(&all_steps());
    let mode = |mode| {
        fs::set_permissions(store_file.file_path(""), fs::Permissions::from_mode(mode)).unwrap()
    };
    mode(0o500);
    let probe = fs::write(store_file.file_path("probe"), "");
    if probe.is_ok() {
        fs::remove_file(store_file.file_path("probe")).unwrap();
        let _gone = writeln!(
            std::io::stderr(),
            "NOT RUN: store_in_a_directory_without_write_permission…: root may write anywhere, so \
            a read-only mount replaces it"
        );
    } else {
        assert_eq!(
            SqliteStore::open(&store_file.file_path("other.db"))
                .unwrap_err()
                .code,
            "read_only"
        );
        assert_eq!(store_file.open_error().code, "read_only");
    }
    mode(0o700);
    store_file.store().check().unwrap();
}

#[test]
fn missing_directory_is_named_in_the_error() {
    let why = SqliteStore::open(Path::new("/nowhere/at/all/regatta.db")).unwrap_err();
    assert!(
        why.code == "io" && why.message.contains("/nowhere/at/all/regatta.db"),
        "{why:?}"
    );
}

#[test]
fn transaction_of_another_program_is_reported_as_a_second_writer() {
    let steps = all_steps();
    let store_file = StoreFile::new();
    let mut store = store_file.store();
    let theirs = store_file.raw_connection();
    theirs.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(
        store.commit(&steps[0].batch).unwrap_err().code,
        "second_writer"
    );
    theirs.execute_batch("ROLLBACK").unwrap();
    store.commit(&steps[0].batch).unwrap();
}

/// A reader that remains after the close finds all rows.
#[test]
fn closing_a_store_writes_its_deferred_rows() {
    let steps = all_steps();
    let store_file = StoreFile::with_limits(DeferralLimits {
        min_rows_to_defer: 0,
        max_deferred_rows: usize::MAX,
    });
    let mut store = store_file.store();
    commit_all(&mut store, &steps);
    assert!(store.has_deferred_rows());
    let history = store.history();
    drop(store);
    assert!(!store_file.file_path("regatta.db-wal").exists());
    assert!(!history.tasks(&TaskFilter::default()).unwrap().is_empty());
}

/// Another program that opens the store computes the rows from the events. The deferred rows of
/// this store are then outdated and are not written.
#[test]
fn deferred_rows_do_not_overwrite_rows_of_another_program() {
    let steps = all_steps();
    let (mine, theirs) = steps.split_at(60);
    let store_file = StoreFile::with_limits(DeferralLimits {
        min_rows_to_defer: 0,
        max_deferred_rows: usize::MAX,
    });
    let mut store = store_file.store();
    commit_all(&mut store, mine);
    let mut other_store = SqliteStore::open(&store_file.path()).unwrap();
    assert_eq!(store.flush_idle().unwrap_err().code, "second_writer");
    commit_all(&mut other_store, theirs);
    assert_eq!(store.flush_idle().unwrap_err().code, "second_writer");
    assert_eq!(
        store.commit(&theirs[0].batch).unwrap_err().code,
        "second_writer"
    );
    drop(store);
    other_store.check().unwrap();
    drop(other_store);
    assert!(store_file.store().load().unwrap().board == steps.last().unwrap().board);
}

/// Deferred rows cannot be read while they cannot be written. The events and the board can be read.
#[test]
fn reading_rows_that_cannot_be_written_is_an_error() {
    let steps = all_steps();
    let store_file = StoreFile::with_limits(DeferralLimits {
        min_rows_to_defer: 0,
        max_deferred_rows: usize::MAX,
    });
    let mut store = store_file.store();
    commit_all(&mut store, &steps);
    let theirs = store_file.raw_connection();
    theirs.execute_batch("BEGIN IMMEDIATE").unwrap();
    let history = store.history();
    let why = history.tasks(&TaskFilter::default()).unwrap_err();
    assert_eq!(why.code, "second_writer");
    assert!(
        why.message.contains("are safe in the log") && !why.hint.is_empty(),
        "{why:?}"
    );
    assert!(store.has_deferred_rows() && store.flush_idle().is_err());
    assert!(!history.events(0, 10).unwrap().is_empty());
    assert!(store.load().unwrap().board == steps.last().unwrap().board);
    theirs.execute_batch("ROLLBACK").unwrap();
    assert!(!history.tasks(&TaskFilter::default()).unwrap().is_empty());
    assert!(!store.has_deferred_rows());
}

/// A reader in the middle of its work blocks no commit and sees no partial commit.
#[test]
fn reader_never_blocks_the_writer() {
    let steps = all_steps();
    let store_file = StoreFile::new();
    let mut store = store_file.store();
    store.commit(&steps[0].batch).unwrap();
    let reader = store_file.raw_connection();
    reader.execute_batch("BEGIN").unwrap();
    let count = || {
        reader
            .query_row("SELECT count(*) FROM events", [], |row| {
                row.get::<_, i64>(0)
            })
            .unwrap()
    };
    let count_before = count();
    commit_all(&mut store, &steps[1..]);
    assert_eq!(count(), count_before);
}

/// Eight threads read while one writes, and each answer is the state after a whole commit.
#[test]
fn threads_read_while_the_writer_writes() {
    let steps = all_steps();
    let store_file = StoreFile::new();
    let mut store = store_file.store();
    let history = store.history();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut last_revision = 0;
                loop {
                    let last_round = is_done.load(Ordering::SeqCst);
                    let events = history.events(last_revision, usize::MAX).unwrap();
                    assert!(
                        events
                            .iter()
                            .zip(last_revision + 1..)
                            .all(|(event, revision)| event.revision == revision)
                    );
                    last_revision = events.last().map_or(last_revision, |event| event.revision);
                    assert!(
                        history
                            .tasks(&TaskFilter::default())
                            .unwrap()
                            .is_sorted_by_key(|task| task.id)
                    );
                    if last_round {
                        return assert_eq!(last_revision, steps.last().unwrap().board.revision);
                    }
                }
            });
        }
        let written = steps.iter().try_for_each(|step| store.commit(&step.batch));
        is_done.store(true, Ordering::SeqCst);
        written.unwrap();
    });
}

/// A closed store is one file, so a copy by hand is complete.
#[test]
fn closed_store_has_no_log_although_a_reader_remains() {
    let steps = all_steps();
    let store_file = StoreFile::with_commits(&steps[..9]);
    let mut store = store_file.store();
    let history = store.history();
    assert_eq!(history.events(0, 3).unwrap().len(), 3);
    store.commit(&steps[9].batch).unwrap();
    drop(store);
    assert!(!store_file.file_path("regatta.db-wal").exists());
    assert_eq!(
        history.events(0, 3).unwrap().len(),
        3,
        "a remaining reader can still read"
    );
    assert!(store_file.store().load().unwrap().board == steps[9].board);
}

#[test]
fn files_of_a_store_are_readable_only_by_their_owner() {
    let steps = all_steps();
    let store_file = StoreFile::new();
    let mut store = store_file.store();
    store.commit(&steps[0].batch).unwrap();
    store.backup(&store_file.file_path("copy.db")).unwrap();
    for name in ["regatta.db", "regatta.db-wal", "regatta.db-shm", "copy.db"] {
        assert_eq!(file_mode(&store_file.file_path(name)), 0o600, "{name}");
    }
    drop(store);
    std::fs::set_permissions(
        store_file.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o644),
    )
    .unwrap();
    drop(store_file.store());
    assert_eq!(
        file_mode(&store_file.path()),
        0o600,
        "opening a store removes the permissions of others"
    );
}
