//! D10: a store that is older than its high-water mark is refused, and no number is assigned twice
//! (L2).

use std::fs;
use std::time::{Duration, Instant};

use regatta_engine::ports::store::Store;
use regatta_store::{SqliteStore, examine, restore};
use regatta_testkit::store_suite::history_fixture::{CommitStep, all_steps};
use serde_json::Value;

use crate::support::{StoreFile, commit_all};

const RESTORE_REVISION_GAP: u64 = 1 << 32;

fn read_mark(store_file: &StoreFile) -> Value {
    // The file may be replaced while it is read, but it is always whole.
    serde_json::from_slice(&fs::read(store_file.file_path("regatta.db.mark")).unwrap()).unwrap()
}

/// Waits until the mark has the expected content. The time limit only detects that this never
/// happens.
fn wait_for_mark(store_file: &StoreFile, is_expected: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let mark = read_mark(store_file);
        if is_expected(&mark) {
            return mark;
        }
        assert!(Instant::now() < deadline, "the mark stays {mark}");
        std::thread::yield_now();
    }
}

/// Copies these files of another store into a new directory, as a killed daemon would leave them.
fn copy_files(from: &StoreFile, names: &[&str]) -> StoreFile {
    let to = StoreFile::new();
    for name in names {
        fs::copy(from.file_path(name), to.file_path(name)).unwrap();
    }
    to
}

const STORE_FILES: [&str; 4] = [
    "regatta.db",
    "regatta.db-wal",
    "regatta.db.mark",
    "regatta.db.reached",
];

/// Returns an open store whose last commits are in its log and whose mark names the log. The reader
/// keeps the log from restarting.
fn store_with_full_log(steps: &[CommitStep]) -> (StoreFile, SqliteStore, rusqlite::Connection) {
    let store_file = StoreFile::new();
    let mut store = store_file.store();
    store.commit(&steps[0].batch).unwrap();
    let reader = store_file.raw_connection();
    reader
        .execute_batch("BEGIN; SELECT count(*) FROM events")
        .unwrap();
    commit_all(&mut store, &steps[1..]);
    wait_for_mark(&store_file, |mark| mark["log"].is_u64());
    (store_file, store, reader)
}

fn assert_refused(store_file: &StoreFile, case: &str, expected_text: &str) {
    // SQLite leaves an empty log where there was none.
    let bytes = || STORE_FILES.map(|name| fs::read(store_file.file_path(name)).unwrap_or_default());
    let before = bytes();
    let error = store_file.open_error();
    assert_eq!(error.code, "store_behind", "{case}: {error:?}");
    assert!(
        error.message.contains(expected_text) && error.hint.contains("regatta restore"),
        "{case}: {error:?}"
    );
    assert!(bytes() == before, "{case}: a file was changed");
}

#[test]
fn d10_a_store_that_lost_its_log_is_refused() {
    let steps = all_steps();
    let (store_file, _store, _reader) = store_with_full_log(&steps);
    let complete = copy_files(&store_file, &STORE_FILES);
    assert!(
        complete.store().load().unwrap().board == steps.last().unwrap().board,
        "a killed daemon's store is whole"
    );

    let lost = copy_files(&store_file, &["regatta.db", "regatta.db.mark"]);
    assert_refused(
        &lost,
        "the log is deleted",
        "regatta.db-wal contained the last changes, but",
    );
    for (what, bytes) in [
        ("empty", vec![]),
        ("garbage", b"some log".repeat(999)),
        ("zeroes", vec![0; 9_000]),
    ] {
        let lost = copy_files(&store_file, &STORE_FILES);
        fs::write(lost.file_path("regatta.db-wal"), bytes).unwrap();
        assert_refused(
            &lost,
            what,
            "regatta.db-wal contained the last changes, but",
        );
    }
    // This is the log of another store whose first commit was the same.
    let (other_file, _other_store, _other_reader) = store_with_full_log(&steps);
    let lost = copy_files(&store_file, &STORE_FILES);
    fs::copy(
        other_file.file_path("regatta.db-wal"),
        lost.file_path("regatta.db-wal"),
    )
    .unwrap();
    assert_refused(
        &lost,
        "another store's log",
        "regatta.db-wal contained the last changes, but",
    );

    // The log is damaged in the middle, where SQLite would stop reading silently.
    let lost = copy_files(&store_file, &STORE_FILES);
    let mut log = fs::read(lost.file_path("regatta.db-wal")).unwrap();
    let middle = log.len() / 2;
    log[middle..middle + 64].fill(0xA5);
    fs::write(lost.file_path("regatta.db-wal"), log).unwrap();
    assert_refused(&lost, "a damaged log", "regatta.db-wal is damaged");
}

/// Returns the end of each commit in a log, in bytes. A frame whose second number is not 0
/// completes a commit.
fn ends_of_commits(log: &[u8]) -> Vec<usize> {
    const HEADER_BYTES: usize = 32;
    const FRAME_BYTES: usize = 24 + 4096;
    let frames = (HEADER_BYTES..)
        .step_by(FRAME_BYTES)
        .take_while(|start| start + FRAME_BYTES <= log.len());
    frames
        .filter(|start| log[start + 4..start + 8] != [0; 4])
        .map(|start| start + FRAME_BYTES)
        .collect()
}

/// To SQLite, a log that ends at a whole commit looks complete.
#[test]
fn d10_a_log_cut_between_two_commits_is_detected() {
    let steps = all_steps();
    let (store_file, _store, _reader) = store_with_full_log(&steps);
    let log = fs::read(store_file.file_path("regatta.db-wal")).unwrap();
    let ends = ends_of_commits(&log);
    let cut_at = |end: usize| {
        let cut = copy_files(&store_file, &STORE_FILES);
        fs::write(cut.file_path("regatta.db-wal"), &log[..end]).unwrap();
        cut
    };
    let (last, earlier) = ends.split_last().unwrap();
    assert!(earlier.len() > 10 && *last == log.len(), "{ends:?}");
    let mut refused = 0;
    for end in earlier[1..].iter().step_by(8) {
        let cut = cut_at(*end);
        match SqliteStore::open(&cut.path()) {
            // Only rows were cut off, and they are computed again from the events.
            Ok(mut store) => assert!(
                store.load().unwrap().board == steps.last().unwrap().board,
                "cut at {end}"
            ),
            Err(_) => {
                assert_refused(&cut, &format!("cut at {end}"), "had already been stored");
                refused += 1;
            }
        }
    }
    assert!(refused > steps.len() / 16, "{refused} of {}", steps.len());
    assert!(cut_at(*last).store().load().unwrap().board == steps.last().unwrap().board);

    // L2: the remaining data can be restored, and continues above all assigned numbers.
    let lost = cut_at(earlier[earlier.len() / 2]);
    restore(&lost.path(), &lost.path()).unwrap();
    assert!(
        lost.store().load().unwrap().board.revision
            >= steps.last().unwrap().board.revision + RESTORE_REVISION_GAP
    );

    // A count of another store, or an empty count after a power cut, is ignored.
    for count in ["", "another 00000000000000009999\n", "\0\0\0"] {
        let store_file = copy_files(&store_file, &STORE_FILES);
        fs::write(store_file.file_path("regatta.db.reached"), count).unwrap();
        store_file.store();
    }
}

#[test]
fn d10_an_old_copy_or_another_store_in_the_place_of_a_store_is_refused() {
    let steps = all_steps();
    let store_file = StoreFile::new();
    let mut store = store_file.store();
    commit_all(&mut store, &steps[..40]);
    store.backup(&store_file.file_path("old.db")).unwrap();
    commit_all(&mut store, &steps[40..]);
    drop(store);
    let last = steps.last().unwrap().board.revision;
    assert_eq!(
        (
            &read_mark(&store_file)["revision"],
            &read_mark(&store_file)["log"]
        ),
        (&last.into(), &Value::Null),
        "the mark of a closed store names no log"
    );
    fs::copy(store_file.file_path("old.db"), store_file.path()).unwrap();
    assert_refused(
        &store_file,
        "an old copy",
        &format!("but event {last} had already"),
    );

    let other_file = StoreFile::new();
    commit_all(&mut other_file.store(), &steps);
    fs::copy(other_file.path(), store_file.path()).unwrap();
    assert_refused(&store_file, "another store", "is not the one that was used");

    fs::remove_file(store_file.path()).unwrap();
    assert_refused(&store_file, "no store", "is missing");
}

/// L2: the command that the hint names works, and the store continues above every assigned number.
#[test]
fn l2_a_store_that_lost_its_log_can_be_restored_from_itself() {
    let steps = all_steps();
    let (store_file, _store, _reader) = store_with_full_log(&steps);
    let reached = read_mark(&store_file)["revision"].as_u64().unwrap();
    let lost = copy_files(&store_file, &["regatta.db", "regatta.db.mark"]);
    assert_refused(
        &lost,
        "the log is deleted",
        "regatta.db-wal contained the last changes, but",
    );
    assert_eq!(restore(&lost.path(), &lost.path()).unwrap(), []);
    let mut store = lost.store();
    assert!(store.load().unwrap().board.revision >= reached + RESTORE_REVISION_GAP);
    store.check().unwrap();
    assert!(lost.file_path("backups/replaced-1.db").exists());
}

/// A restore writes a new mark before the new store, so that an interrupted restore is detected and
/// repeated.
#[test]
fn d2_a_restore_sets_the_mark_and_can_be_repeated() {
    let steps = all_steps();
    let store_file = StoreFile::with_commits(&steps);
    let backup = store_file.file_path("copy.db");
    store_file.store().backup(&backup).unwrap();
    restore(&backup, &store_file.path()).unwrap();
    let revision = store_file.store().load().unwrap().board.revision;
    assert_eq!(read_mark(&store_file)["revision"], revision);

    // This restore was interrupted after the mark was written.
    let ahead = serde_json::json!({ "store": read_mark(&store_file)["store"], "revision": revision + RESTORE_REVISION_GAP, "log": null });
    fs::write(store_file.file_path("regatta.db.mark"), ahead.to_string()).unwrap();
    assert_refused(&store_file, "cut off", "had already been stored");
    restore(&backup, &store_file.path()).unwrap();
    assert!(
        store_file.store().load().unwrap().board.revision >= revision + 2 * RESTORE_REVISION_GAP,
        "a number was used twice"
    );

    // A failed restore leaves the mark unchanged.
    let before = read_mark(&store_file);
    fs::write(
        store_file.file_path("torn.db"),
        &fs::read(&backup).unwrap()[..9_000],
    )
    .unwrap();
    restore(&store_file.file_path("torn.db"), &store_file.path()).unwrap_err();
    assert_eq!(read_mark(&store_file), before);
    store_file.store();
}

/// When no commits come, the log is moved into the store, so a copy of the store alone is complete.
#[test]
fn d10_an_idle_store_needs_no_log() {
    let steps = all_steps();
    let store_file = StoreFile::new();
    let mut store = store_file.store();
    commit_all(&mut store, &steps);
    let last = steps.last().unwrap().board.revision;
    wait_for_mark(&store_file, |mark| {
        mark["log"].is_null() && mark["revision"] == last
    });
    let alone = copy_files(&store_file, &["regatta.db", "regatta.db.mark"]);
    assert!(alone.store().load().unwrap().board == steps.last().unwrap().board);
}

/// If the last mark cannot be written, the log that the old mark names stays.
#[test]
fn d10_a_store_whose_mark_could_not_be_written_keeps_its_log() {
    let steps = all_steps();
    let (store_file, store, reader) = store_with_full_log(&steps);
    // A directory in the place of the file that becomes the mark makes writing fail, even for root.
    fs::create_dir_all(store_file.file_path("regatta.db.mark.new/x")).unwrap();
    drop(reader);
    drop(store);
    assert!(
        read_mark(&store_file)["log"].is_u64() && store_file.file_path("regatta.db-wal").exists()
    );
    fs::remove_dir_all(store_file.file_path("regatta.db.mark.new")).unwrap();
    assert!(store_file.store().load().unwrap().board == steps.last().unwrap().board);
}

/// A store of a program that wrote no mark gets a mark. A damaged mark is refused.
#[test]
fn store_without_a_mark_gets_one() {
    let store_file = StoreFile::with_commits(&all_steps());
    fs::remove_file(store_file.file_path("regatta.db.mark")).unwrap();
    drop(store_file.store());
    assert!(read_mark(&store_file)["revision"].as_u64() > Some(100));
    fs::write(store_file.file_path("regatta.db.mark"), "{").unwrap();
    let why = store_file.open_error();
    assert!(
        why.code == "corrupt"
            && why.hint.contains("rm ")
            && why.message.contains("regatta.db.mark"),
        "{why:?}"
    );
}

/// `examine` finds everything that would keep a store from opening, reads the board, and leaves
/// every file unchanged.
#[test]
fn examining_a_store_changes_nothing() {
    let names = |store_file: &StoreFile| {
        let mut names: Vec<_> = fs::read_dir(store_file.file_path(""))
            .unwrap()
            .map(|result| result.unwrap().file_name())
            .collect();
        names.sort();
        names
    };
    let steps = all_steps();
    let closed = StoreFile::with_commits(&steps);
    let (before, bytes) = (names(&closed), fs::read(closed.path()).unwrap());
    let found = examine(&closed.path()).unwrap().unwrap();
    assert!(found.board == steps.last().unwrap().board && found.unreadable_rows.is_empty());
    assert_eq!(
        (names(&closed), fs::read(closed.path()).unwrap()),
        (before, bytes)
    );

    let (opened_file, _store, _reader) = store_with_full_log(&steps);
    let killed = copy_files(&opened_file, &STORE_FILES);
    let log = fs::read(killed.file_path("regatta.db-wal")).unwrap();
    let found = examine(&killed.path()).unwrap().unwrap();
    assert!(found.board == steps.last().unwrap().board);
    assert!(
        fs::read(killed.file_path("regatta.db-wal")).unwrap() == log,
        "the log was changed"
    );
    assert!(killed.store().load().unwrap().board == steps.last().unwrap().board);

    let lost = copy_files(&opened_file, &["regatta.db", "regatta.db.mark"]);
    assert_eq!(examine(&lost.path()).unwrap_err().code, "store_behind");
    let only_mark = copy_files(&opened_file, &["regatta.db.mark"]);
    assert_eq!(examine(&only_mark.path()).unwrap_err().code, "store_behind");
    assert!(examine(&StoreFile::new().path()).unwrap().is_none());
    fs::write(lost.path(), &fs::read(lost.path()).unwrap()[..9_000]).unwrap();
    assert_eq!(examine(&lost.path()).unwrap_err().code, "corrupt");
}
