//! Tests of backups and restores.

use std::fs;

use regatta_core::command::{Actor, Command};
use regatta_core::ids::Now;
use regatta_core::limits::MachineLimits;
use regatta_engine::ports::store::Store;
use regatta_store::{DeferralLimits, SqliteStore, restore};
use regatta_testkit::store_suite::history_fixture::{HistoryBuilder, all_steps};

use crate::support::{StoreFile, commit_all, file_mode};

const RESTORE_REVISION_GAP: u64 = 1 << 32;

/// Commits once more on the store's present state. Returns the revision of the first new event.
fn commit_one_more(store: &mut dyn Store, max_attempts: u32) -> u64 {
    let mut teller = HistoryBuilder::default();
    teller.board = store.load().unwrap().board;
    teller.now = Now {
        fleet_ms: teller.board.fleet_ms,
        unix_ms: 1,
    };
    teller.run(
        &Actor::Regatta,
        None,
        Command::SetLimits {
            limits: MachineLimits {
                max_attempts,
                ..MachineLimits::default()
            },
        },
    );
    store.commit(&teller.steps[0].batch).unwrap();
    teller.steps[0].batch.events[0].revision
}

/// D7, L2: a restored store equals the backup, but continues above every number that was ever
/// assigned.
#[test]
fn d7_l2_a_restored_store_equals_the_backup_and_never_repeats_a_number() {
    let steps = all_steps();
    let (before, after) = steps.split_at(60);
    let store_file = StoreFile::new();
    let mut store = store_file.store();
    commit_all(&mut store, before);
    let backup = store_file.file_path("copy.db");
    store.backup(&backup).unwrap();
    let copied = fs::read(&backup).unwrap();
    commit_all(&mut store, after);
    drop(store);

    let mut highest = steps.last().unwrap().board.revision;
    for (nth, times) in [(1, 11), (2, 12), (3, 13)] {
        restore(&backup, &store_file.path()).unwrap();
        let mut store = store_file.store();
        let loaded = store.load().unwrap();
        let expected = before.last().unwrap();
        assert!(
            loaded.board.revision >= highest + RESTORE_REVISION_GAP,
            "{} after {highest}",
            loaded.board.revision
        );
        assert!(
            loaded.board.fleet_ms
                >= if nth == 1 {
                    steps.last().unwrap().board.fleet_ms
                } else {
                    expected.board.fleet_ms
                },
            "the clock went back"
        );
        let mut board = loaded.board.clone();
        (board.revision, board.fleet_ms) = (expected.board.revision, expected.board.fleet_ms);
        assert!(board == expected.board && loaded.outbox == expected.outbox);
        store.check().unwrap();
        highest = commit_one_more(&mut store, times);
        assert_eq!(highest, loaded.board.revision + 1);
        store.check().unwrap();
        let events = store.history().events(expected.board.revision, 10).unwrap();
        assert_eq!(
            events
                .iter()
                .map(|event| event.revision)
                .collect::<Vec<_>>(),
            [highest]
        );
        assert!(
            store_file
                .file_path(&format!("backups/replaced-{nth}.db"))
                .exists()
        );
    }
    assert_eq!(
        fs::read(&backup).unwrap(),
        copied,
        "the restore changed the backup"
    );
    // The first replaced store is complete.
    let mut first = SqliteStore::open(&store_file.file_path("backups/replaced-1.db")).unwrap();
    assert!(first.load().unwrap().board == steps.last().unwrap().board);
}

/// D3: a gap in the log of events is accepted only where a restore made it.
#[test]
fn d3_a_gap_that_no_restore_made_is_found() {
    let steps = all_steps();
    let store_file = StoreFile::with_commits(&steps);
    store_file
        .store()
        .backup(&store_file.file_path("copy.db"))
        .unwrap();
    restore(&store_file.file_path("copy.db"), &store_file.path()).unwrap();
    let mut store = store_file.store();
    commit_one_more(&mut store, 11);
    commit_one_more(&mut store, 12);
    store.check().unwrap();
    drop(store);
    store_file
        .raw_connection()
        .execute_batch("DELETE FROM events WHERE revision = (SELECT max(revision) FROM events) - 1")
        .unwrap();
    assert_eq!(store_file.store().check().unwrap_err().code, "corrupt");
}

/// L2: the numbers also rise when the replaced store is too damaged to show its revision.
#[test]
fn l2_replacing_a_damaged_store_keeps_it_and_repeats_no_number() {
    let steps = all_steps();
    let store_file = StoreFile::with_commits(&steps);
    store_file
        .store()
        .backup(&store_file.file_path("copy.db"))
        .unwrap();
    let mut revisions = Vec::new();
    for nth in 1..=3 {
        fs::write(store_file.path(), format!("damage {nth}")).unwrap();
        fs::write(store_file.file_path("regatta.db-wal"), "its log").unwrap();
        restore(&store_file.file_path("copy.db"), &store_file.path()).unwrap();
        assert_eq!(
            fs::read(store_file.file_path(&format!("backups/replaced-{nth}.db"))).unwrap(),
            format!("damage {nth}").as_bytes()
        );
        assert_eq!(
            fs::read(store_file.file_path(&format!("backups/replaced-{nth}.db-wal"))).unwrap(),
            b"its log"
        );
        let mut store = store_file.store();
        store.check().unwrap();
        revisions.push(commit_one_more(&mut store, 11));
    }
    assert!(
        revisions
            .windows(2)
            .all(|revisions| revisions[0] + RESTORE_REVISION_GAP <= revisions[1]),
        "{revisions:?}"
    );
}

#[test]
fn damaged_backup_is_refused_and_changes_nothing() {
    let steps = all_steps();
    let store_file = StoreFile::with_commits(&steps);
    let before = fs::read(store_file.path()).unwrap();
    let sound = store_file.file_path("copy.db");
    store_file.store().backup(&sound).unwrap();
    let (torn, empty, newer, gap) = (
        store_file.file_path("torn.db"),
        store_file.file_path("empty.db"),
        store_file.file_path("newer.db"),
        store_file.file_path("gap.db"),
    );
    let bytes = fs::read(&sound).unwrap();
    fs::write(&torn, &bytes[..bytes.len() / 2]).unwrap();
    fs::write(&empty, "").unwrap();
    fs::copy(&sound, &newer).unwrap();
    rusqlite::Connection::open(&newer)
        .unwrap()
        .pragma_update(None, "user_version", 99)
        .unwrap();
    fs::copy(&sound, &gap).unwrap();
    rusqlite::Connection::open(&gap)
        .unwrap()
        .execute_batch("DELETE FROM events WHERE revision = 3")
        .unwrap();
    for (from, code) in [
        (torn, "corrupt"),
        (empty, "corrupt"),
        (newer, "newer_version"),
        (gap, "corrupt"),
        (store_file.file_path("none.db"), "io"),
    ] {
        let why = restore(&from, &store_file.path()).unwrap_err();
        assert_eq!(why.code, code, "{why:?}");
        assert!(why.message.contains(&*from.to_string_lossy()), "{why:?}");
        assert_eq!(fs::read(store_file.path()).unwrap(), before);
        assert!(
            !store_file.file_path("backups").exists()
                && !store_file.file_path("regatta.db.restoring").exists()
        );
    }
}

/// D2: a restore that a crash interrupted between two steps is repeated.
#[test]
fn d2_an_interrupted_restore_can_be_repeated() {
    let steps = all_steps();
    let store_file = StoreFile::with_commits(&steps);
    store_file
        .store()
        .backup(&store_file.file_path("copy.db"))
        .unwrap();
    fs::create_dir(store_file.file_path("backups")).unwrap();
    // The old store was moved away without its log, and the new store was not yet in place.
    fs::rename(
        store_file.path(),
        store_file.file_path("backups/replaced-1.db"),
    )
    .unwrap();
    fs::write(store_file.file_path("regatta.db-wal"), "its log").unwrap();
    fs::write(store_file.file_path("regatta.db.restoring"), "half").unwrap();
    assert_eq!(
        store_file.open_error().code,
        "corrupt",
        "a log without its store"
    );
    restore(&store_file.file_path("copy.db"), &store_file.path()).unwrap();
    assert_eq!(
        fs::read(store_file.file_path("backups/replaced-1.db-wal")).unwrap(),
        b"its log"
    );
    let mut store = store_file.store();
    store.check().unwrap();
    assert!(
        store.load().unwrap().board.revision
            >= steps.last().unwrap().board.revision + RESTORE_REVISION_GAP
    );
}

#[test]
fn backup_can_be_restored_into_an_empty_directory() {
    let steps = all_steps();
    let (store_file, other_file) = (StoreFile::with_commits(&steps), StoreFile::new());
    store_file
        .store()
        .backup(&store_file.file_path("copy.db"))
        .unwrap();
    restore(&store_file.file_path("copy.db"), &other_file.path()).unwrap();
    assert_eq!(file_mode(&other_file.path()), 0o600);
    assert!(!other_file.file_path("backups").exists());
    assert_eq!(
        other_file.store().load().unwrap().board.tasks,
        steps.last().unwrap().board.tasks
    );
}

/// A file that was copied by hand from an open store has its log next to it.
#[test]
fn copy_by_hand_is_restored_with_its_log() {
    let steps = all_steps();
    let (store_file, other_file) = (StoreFile::new(), StoreFile::new());
    let mut store = store_file.store();
    commit_all(&mut store, &steps);
    fs::copy(store_file.path(), other_file.file_path("hand.db")).unwrap();
    fs::copy(
        store_file.file_path("regatta.db-wal"),
        other_file.file_path("hand.db-wal"),
    )
    .unwrap();
    restore(&other_file.file_path("hand.db"), &other_file.path()).unwrap();
    assert_eq!(
        other_file.store().load().unwrap().board.tasks,
        steps.last().unwrap().board.tasks
    );
}

/// The rows are behind the events. The backup and the restored store contain all events
/// nevertheless.
#[test]
fn l2_a_store_with_deferred_rows_is_backed_up_and_restored_whole() {
    let steps = all_steps();
    let last = steps.last().unwrap();
    let (store_file, other_file) = (
        StoreFile::with_limits(DeferralLimits {
            min_rows_to_defer: 0,
            max_deferred_rows: usize::MAX,
        }),
        StoreFile::new(),
    );
    let mut store = store_file.store();
    commit_all(&mut store, &steps);
    for name in ["regatta.db", "regatta.db-wal"] {
        fs::copy(
            store_file.file_path(name),
            other_file.file_path(&name.replace("regatta", "hand")),
        )
        .unwrap();
    }
    store.backup(&other_file.file_path("copy.db")).unwrap();
    assert!(store.has_deferred_rows());
    restore(&other_file.file_path("hand.db"), &other_file.path()).unwrap();
    let mut restored = other_file.store();
    let loaded = restored.load().unwrap();
    assert_eq!(
        (loaded.board.revision, loaded.board.fleet_ms),
        (
            last.board.revision + RESTORE_REVISION_GAP,
            last.board.fleet_ms
        )
    );
    assert!(loaded.board.tasks == last.board.tasks && loaded.board.claims == last.board.claims);
    restored.check().unwrap();
    let copied = SqliteStore::open(&other_file.file_path("copy.db"))
        .unwrap()
        .load()
        .unwrap();
    assert!(copied.board == last.board && copied.outbox == last.outbox);
}

/// L2: all events of a replaced store count, even if its rows are behind them.
#[test]
fn l2_the_events_of_a_replaced_store_with_deferred_rows_count() {
    let steps = all_steps();
    let (store_file, other_file) = (
        StoreFile::with_limits(DeferralLimits {
            min_rows_to_defer: 0,
            max_deferred_rows: usize::MAX,
        }),
        StoreFile::new(),
    );
    let mut store = store_file.store();
    commit_all(&mut store, &steps[..9]);
    store.backup(&other_file.file_path("early.db")).unwrap();
    commit_all(&mut store, &steps[9..]);
    for name in ["regatta.db", "regatta.db-wal"] {
        fs::copy(store_file.file_path(name), other_file.file_path(name)).unwrap();
    }
    restore(&other_file.file_path("early.db"), &other_file.path()).unwrap();
    let (loaded, last) = (
        other_file.store().load().unwrap().board,
        &steps.last().unwrap().board,
    );
    assert_eq!(
        (loaded.revision, loaded.fleet_ms),
        (last.revision + RESTORE_REVISION_GAP, last.fleet_ms)
    );
}

/// The leftover of an interrupted backup does not prevent another backup.
#[test]
fn interrupted_backup_can_be_repeated() {
    let steps = all_steps();
    let store_file = StoreFile::with_commits(&steps);
    fs::write(store_file.file_path("copy.db.partial"), "half").unwrap();
    store_file
        .store()
        .backup(&store_file.file_path("copy.db"))
        .unwrap();
    assert!(!store_file.file_path("copy.db.partial").exists());
    assert!(
        SqliteStore::open(&store_file.file_path("copy.db"))
            .unwrap()
            .load()
            .unwrap()
            .board
            == steps.last().unwrap().board
    );
}
