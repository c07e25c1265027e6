//! Tests of files that are no store, a damaged store, or a newer program's store. They are refused
//! and left unchanged.

use std::fs;

use regatta_engine::ports::store::Store;
use regatta_store::SqliteStore;
use regatta_testkit::store_suite::history_fixture::all_steps;
use rusqlite::Connection;

use crate::support::StoreFile;

/// Asserts that the store is refused with a helpful error, and that no byte of it changed.
fn assert_refused(store_file: &StoreFile, code: &str, case: &str) {
    let before = fs::read(store_file.path()).unwrap();
    let opened = SqliteStore::open(&store_file.path()).map(|_| ());
    let why = opened.expect_err(case);
    assert_eq!(why.code, code, "{case}: {why:?}");
    assert!(
        why.message.contains("regatta.db") && why.hint.contains("regatta restore"),
        "{case}: {why:?}"
    );
    assert!(
        !why.message.ends_with('.') && !why.message.contains('\n'),
        "{case}: {why:?}"
    );
    assert!(
        fs::read(store_file.path()).unwrap() == before,
        "{case}: the file was changed"
    );
}

#[test]
fn file_that_is_no_store_is_refused_and_left_unchanged() {
    let store_file = StoreFile::new();
    for (what, bytes) in [
        ("zero length", vec![]),
        ("short", b"SQLite format 3\0".to_vec()),
        ("text", b"Dear diary, ".repeat(1000)),
        (
            "random bytes",
            (0..20_000_u32)
                .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
                .collect(),
        ),
    ] {
        fs::write(store_file.path(), bytes).unwrap();
        assert_refused(&store_file, "corrupt", what);
    }
    fs::remove_file(store_file.path()).unwrap();
    Connection::open(store_file.path())
        .unwrap()
        .execute_batch("CREATE TABLE songs (title)")
        .unwrap();
    assert_refused(&store_file, "corrupt", "another program's database");
}

#[test]
fn damaged_store_is_refused_and_left_unchanged() {
    let sound = fs::read(StoreFile::with_commits(&all_steps()).path()).unwrap();
    let spoilt = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = sound.clone();
        change(&mut bytes);
        bytes
    };
    let cases = [
        (
            "truncated to half",
            spoilt(&|bytes| bytes.truncate(bytes.len() / 2)),
        ),
        (
            "truncated inside a page",
            spoilt(&|bytes| bytes.truncate(bytes.len() - 1_000)),
        ),
        // These ranges are large enough to hit more than free pages, whose content does not matter.
        (
            "garbage in the middle",
            spoilt(&|bytes| {
                (bytes.len() / 8..bytes.len() / 8 * 7).for_each(|position| bytes[position] = 0xA5)
            }),
        ),
        (
            "zeroes in the middle",
            spoilt(&|bytes| {
                (bytes.len() / 8..bytes.len() / 8 * 7).for_each(|position| bytes[position] = 0)
            }),
        ),
        (
            "a garbled first page",
            spoilt(&|bytes| bytes[100..4096].fill(0x5A)),
        ),
    ];
    for (what, bytes) in cases {
        let store_file = StoreFile::new();
        fs::write(store_file.path(), bytes).unwrap();
        assert_refused(&store_file, "corrupt", what);
    }
}

#[test]
fn error_names_the_newest_backup() {
    let store_file = StoreFile::new();
    fs::create_dir(store_file.file_path("backups")).unwrap();
    fs::write(store_file.file_path("backups/hourly-7.db"), "…").unwrap();
    fs::write(store_file.path(), "").unwrap();
    assert!(store_file.open_error().hint.ends_with(&format!(
        "regatta restore {}",
        store_file.file_path("backups/hourly-7.db").display()
    )));
}

#[test]
fn store_with_a_missing_table_or_a_foreign_trigger_is_refused() {
    let store_file = StoreFile::with_commits(&all_steps());
    store_file
        .raw_connection()
        .execute_batch("DROP TABLE waits")
        .unwrap();
    assert_refused(&store_file, "corrupt", "a table is missing");
    let store_file = StoreFile::with_commits(&all_steps());
    store_file
        .raw_connection()
        .execute_batch("CREATE TRIGGER bad AFTER INSERT ON events BEGIN DELETE FROM claims; END")
        .unwrap();
    assert_refused(&store_file, "corrupt", "a trigger was planted");
}

/// D6: a store of a newer program is not opened, whether its schema number is in the file or still
/// in the log.
#[test]
fn d6_a_newer_store_is_refused_and_left_unchanged() {
    let store_file = StoreFile::with_commits(&all_steps());
    store_file
        .raw_connection()
        .pragma_update(None, "user_version", 99)
        .unwrap();
    assert_refused(&store_file, "newer_version", "in the file");

    let (opened_file, store_file) = (StoreFile::with_commits(&all_steps()), StoreFile::new());
    let theirs = opened_file.raw_connection();
    theirs.pragma_update(None, "user_version", 107).unwrap();
    for name in ["regatta.db", "regatta.db-wal"] {
        // as their crash would leave it
        fs::copy(opened_file.file_path(name), store_file.file_path(name)).unwrap();
    }
    let log = fs::read(store_file.file_path("regatta.db-wal")).unwrap();
    assert_refused(&store_file, "newer_version", "in the log");
    assert!(
        store_file
            .open_error()
            .message
            .contains("schema version 107")
    );
    assert_eq!(
        fs::read(store_file.file_path("regatta.db-wal")).unwrap(),
        log
    );
}

#[test]
fn log_without_its_store_is_refused() {
    let store_file = StoreFile::new();
    fs::write(store_file.file_path("regatta.db-wal"), "some log").unwrap();
    assert_eq!(store_file.open_error().code, "corrupt");
    assert!(!store_file.path().exists());
    assert_eq!(
        fs::read(store_file.file_path("regatta.db-wal")).unwrap(),
        b"some log"
    );
}

/// The leftover of a crash during the creation of a store is replaced.
#[test]
fn interrupted_creation_of_a_store_is_repeated() {
    let store_file = StoreFile::new();
    fs::write(store_file.file_path("regatta.db.new"), "half").unwrap();
    fs::write(store_file.file_path("regatta.db.new-wal"), "half").unwrap();
    store_file.store().check().unwrap();
    assert!(!store_file.file_path("regatta.db.new").exists());
}

/// D3: the check finds damage that a load does not read.
#[test]
fn d3_the_check_finds_a_gap_a_lost_reference_and_a_bad_row() {
    for (what, damage) in [
        (
            "event 5 is missing",
            "DELETE FROM events WHERE revision = 5",
        ),
        (
            "event 1 is missing",
            "DELETE FROM events WHERE revision = 1",
        ),
        (
            "its last event is",
            "DELETE FROM events WHERE revision = (SELECT max(revision) FROM events)",
        ),
        (
            "its last event is",
            "UPDATE meta SET revision = revision + 1",
        ),
        (
            "message_labels",
            "PRAGMA foreign_keys = 0; INSERT INTO message_labels VALUES ('task', 999)",
        ),
        (
            "row 3 of its table events",
            "UPDATE events SET body = '{}' WHERE revision = 3",
        ),
        (
            "row 2 of its table tasks",
            "UPDATE tasks SET body = 'x' WHERE id = 2",
        ),
    ] {
        let store_file = StoreFile::with_commits(&all_steps());
        store_file.raw_connection().execute_batch(damage).unwrap();
        let mut store = store_file.store();
        let why = store.check().unwrap_err();
        assert_eq!(why.code, "corrupt", "{damage}");
        assert!(why.message.contains(what), "{damage}: {why:?}");
    }
}

/// D3: an index that disagrees with its table passes the quick check at open, but not this check.
#[test]
fn d3_the_check_finds_an_index_that_disagrees() {
    let store_file = StoreFile::with_commits(&all_steps());
    let hide = "PRAGMA writable_schema = 1; CREATE TABLE aside AS SELECT * FROM sqlite_schema \
        WHERE name = 'attempts_task'; DELETE FROM sqlite_schema WHERE name = 'attempts_task'";
    store_file.raw_connection().execute_batch(hide).unwrap();
    store_file
        .raw_connection()
        .execute_batch("UPDATE attempts SET task = 999 WHERE id = 1")
        .unwrap();
    store_file
        .raw_connection()
        .execute_batch(
            "PRAGMA writable_schema = 1; INSERT INTO sqlite_schema SELECT * FROM \
            aside; DROP TABLE aside",
        )
        .unwrap();
    let mut store = store_file.store();
    let why = store.check().unwrap_err();
    assert!(
        why.code == "corrupt" && why.message.contains("attempts_task"),
        "{why:?}"
    );
}

/// D1: a crash cut off the log in the middle of a commit.
#[test]
fn d1_a_torn_log_ends_at_the_last_whole_commit() {
    let steps = all_steps();
    let store_file = StoreFile::new();
    let mut store = store_file.store();
    // While a reader is active, the log does not restart in a quiet moment.
    let reader = store_file.raw_connection();
    for step in &steps[..20] {
        store.commit(&step.batch).unwrap();
        if step.board.revision == steps[0].board.revision {
            reader
                .execute_batch("BEGIN; SELECT count(*) FROM events")
                .unwrap();
        }
    }
    let commit_end = fs::metadata(store_file.file_path("regatta.db-wal"))
        .unwrap()
        .len();
    store.commit(&steps[20].batch).unwrap();
    let (file, log) = (
        fs::read(store_file.path()).unwrap(),
        fs::read(store_file.file_path("regatta.db-wal")).unwrap(),
    );
    for length in [
        commit_end,
        commit_end + 1,
        commit_end + 4096,
        log.len() as u64 - 1,
    ] {
        let crashed = StoreFile::new();
        fs::write(crashed.path(), &file).unwrap();
        fs::write(crashed.file_path("regatta.db-wal"), &log[..length as usize]).unwrap();
        let mut recovered = SqliteStore::open(&crashed.path()).unwrap();
        assert!(
            recovered.load().unwrap().board == steps[19].board,
            "cut at {length} of {}",
            log.len()
        );
        recovered.check().unwrap();
        recovered.commit(&steps[20].batch).unwrap();
    }
}
