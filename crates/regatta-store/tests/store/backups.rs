//! Tests of backups and restores.

use std::fs;

use regatta_core::command::{Actor, Command};
use regatta_core::fleet::Limits;
use regatta_core::ids::Now;
use regatta_engine::ports::store::Store;
use regatta_store::{Lag, SqliteStore, restore};
use regatta_testkit::store_suite::story::{Teller, everything};

use crate::support::{Place, commit_all, mode};

const LEAP: u64 = 1 << 32;

/// Commits once more on the store's present state. Returns the revision of the first new event.
fn one_more(store: &mut dyn Store, max_attempts: u32) -> u64 {
    let mut teller = Teller::default();
    teller.board = store.load().unwrap().board;
    teller.now = Now { at: teller.board.at, wall: 1 };
    teller.tell(&Actor::Regatta, None, Command::SetLimits { limits: Limits { max_attempts, ..Limits::default() } });
    store.commit(&teller.steps[0].batch).unwrap();
    teller.steps[0].batch.events[0].revision
}

/// D7, L2: a restored store equals the backup, but continues above every number that was ever
/// assigned.
#[test]
fn d7_l2_a_restored_store_equals_the_backup_and_never_repeats_a_number() {
    let steps = everything();
    let (before, after) = steps.split_at(60);
    let place = Place::new();
    let mut store = place.store();
    commit_all(&mut store, before);
    let backup = place.file("copy.db");
    store.backup(&backup).unwrap();
    let copied = fs::read(&backup).unwrap();
    commit_all(&mut store, after);
    drop(store);

    let mut highest = steps.last().unwrap().board.revision;
    for (nth, times) in [(1, 11), (2, 12), (3, 13)] {
        restore(&backup, &place.path()).unwrap();
        let mut store = place.store();
        let found = store.load().unwrap();
        let expected = before.last().unwrap();
        assert!(found.board.revision >= highest + LEAP, "{} after {highest}", found.board.revision);
        assert!(
            found.board.at >= if nth == 1 { steps.last().unwrap().board.at } else { expected.board.at },
            "the clock went back"
        );
        let mut board = found.board.clone();
        (board.revision, board.at) = (expected.board.revision, expected.board.at);
        assert!(board == expected.board && found.outbox == expected.outbox);
        store.check().unwrap();
        highest = one_more(&mut store, times);
        assert_eq!(highest, found.board.revision + 1);
        store.check().unwrap();
        let events = store.history().events(expected.board.revision, 10).unwrap();
        assert_eq!(events.iter().map(|it| it.revision).collect::<Vec<_>>(), [highest]);
        assert!(place.file(&format!("backups/replaced-{nth}.db")).exists());
    }
    assert_eq!(fs::read(&backup).unwrap(), copied, "the restore changed the backup");
    // The first replaced store is complete.
    let mut first = SqliteStore::open(&place.file("backups/replaced-1.db")).unwrap();
    assert!(first.load().unwrap().board == steps.last().unwrap().board);
}

/// D3: a gap in the log of events is accepted only where a restore made it.
#[test]
fn d3_a_gap_that_no_restore_made_is_found() {
    let steps = everything();
    let place = Place::filled(&steps);
    place.store().backup(&place.file("copy.db")).unwrap();
    restore(&place.file("copy.db"), &place.path()).unwrap();
    let mut store = place.store();
    one_more(&mut store, 11);
    one_more(&mut store, 12);
    store.check().unwrap();
    drop(store);
    place.raw().execute_batch("DELETE FROM events WHERE revision = (SELECT max(revision) FROM events) - 1").unwrap();
    assert_eq!(place.store().check().unwrap_err().code, "corrupt");
}

/// L2: the numbers also rise when the replaced store is too damaged to show its revision.
#[test]
fn l2_replacing_a_damaged_store_keeps_it_and_repeats_no_number() {
    let steps = everything();
    let place = Place::filled(&steps);
    place.store().backup(&place.file("copy.db")).unwrap();
    let mut revisions = Vec::new();
    for nth in 1..=3 {
        fs::write(place.path(), format!("damage {nth}")).unwrap();
        fs::write(place.file("regatta.db-wal"), "its log").unwrap();
        restore(&place.file("copy.db"), &place.path()).unwrap();
        assert_eq!(
            fs::read(place.file(&format!("backups/replaced-{nth}.db"))).unwrap(),
            format!("damage {nth}").as_bytes()
        );
        assert_eq!(fs::read(place.file(&format!("backups/replaced-{nth}.db-wal"))).unwrap(), b"its log");
        let mut store = place.store();
        store.check().unwrap();
        revisions.push(one_more(&mut store, 11));
    }
    assert!(revisions.windows(2).all(|it| it[0] + LEAP <= it[1]), "{revisions:?}");
}

#[test]
fn damaged_backup_is_refused_and_changes_nothing() {
    let steps = everything();
    let place = Place::filled(&steps);
    let before = fs::read(place.path()).unwrap();
    let sound = place.file("copy.db");
    place.store().backup(&sound).unwrap();
    let (torn, empty, newer, gap) =
        (place.file("torn.db"), place.file("empty.db"), place.file("newer.db"), place.file("gap.db"));
    let bytes = fs::read(&sound).unwrap();
    fs::write(&torn, &bytes[..bytes.len() / 2]).unwrap();
    fs::write(&empty, "").unwrap();
    fs::copy(&sound, &newer).unwrap();
    rusqlite::Connection::open(&newer).unwrap().pragma_update(None, "user_version", 99).unwrap();
    fs::copy(&sound, &gap).unwrap();
    rusqlite::Connection::open(&gap).unwrap().execute_batch("DELETE FROM events WHERE revision = 3").unwrap();
    for (from, code) in [
        (torn, "corrupt"),
        (empty, "corrupt"),
        (newer, "newer_version"),
        (gap, "corrupt"),
        (place.file("none.db"), "io"),
    ] {
        let why = restore(&from, &place.path()).unwrap_err();
        assert_eq!(why.code, code, "{why:?}");
        assert!(why.what.contains(&*from.to_string_lossy()), "{why:?}");
        assert_eq!(fs::read(place.path()).unwrap(), before);
        assert!(!place.file("backups").exists() && !place.file("regatta.db.restoring").exists());
    }
}

/// D2: a restore that a crash interrupted between two steps is repeated.
#[test]
fn d2_an_interrupted_restore_can_be_repeated() {
    let steps = everything();
    let place = Place::filled(&steps);
    place.store().backup(&place.file("copy.db")).unwrap();
    fs::create_dir(place.file("backups")).unwrap();
    // The old store was moved away without its log, and the new store was not yet in place.
    fs::rename(place.path(), place.file("backups/replaced-1.db")).unwrap();
    fs::write(place.file("regatta.db-wal"), "its log").unwrap();
    fs::write(place.file("regatta.db.restoring"), "half").unwrap();
    assert_eq!(place.refused().code, "corrupt", "a log without its store");
    restore(&place.file("copy.db"), &place.path()).unwrap();
    assert_eq!(fs::read(place.file("backups/replaced-1.db-wal")).unwrap(), b"its log");
    let mut store = place.store();
    store.check().unwrap();
    assert!(store.load().unwrap().board.revision >= steps.last().unwrap().board.revision + LEAP);
}

#[test]
fn backup_can_be_restored_into_an_empty_directory() {
    let steps = everything();
    let (place, elsewhere) = (Place::filled(&steps), Place::new());
    place.store().backup(&place.file("copy.db")).unwrap();
    restore(&place.file("copy.db"), &elsewhere.path()).unwrap();
    assert_eq!(mode(&elsewhere.path()), 0o600);
    assert!(!elsewhere.file("backups").exists());
    assert_eq!(elsewhere.store().load().unwrap().board.tasks, steps.last().unwrap().board.tasks);
}

/// A file that was copied by hand from an open store has its log next to it.
#[test]
fn copy_by_hand_is_restored_with_its_log() {
    let steps = everything();
    let (place, elsewhere) = (Place::new(), Place::new());
    let mut store = place.store();
    commit_all(&mut store, &steps);
    fs::copy(place.path(), elsewhere.file("hand.db")).unwrap();
    fs::copy(place.file("regatta.db-wal"), elsewhere.file("hand.db-wal")).unwrap();
    restore(&elsewhere.file("hand.db"), &elsewhere.path()).unwrap();
    assert_eq!(elsewhere.store().load().unwrap().board.tasks, steps.last().unwrap().board.tasks);
}

/// The rows are behind the events. The backup and the restored store contain all events
/// nevertheless.
#[test]
fn l2_a_store_with_deferred_rows_is_backed_up_and_restored_whole() {
    let steps = everything();
    let last = steps.last().unwrap();
    let (place, elsewhere) = (Place::behind(Lag { few: 0, most: usize::MAX }), Place::new());
    let mut store = place.store();
    commit_all(&mut store, &steps);
    for name in ["regatta.db", "regatta.db-wal"] {
        fs::copy(place.file(name), elsewhere.file(&name.replace("regatta", "hand"))).unwrap();
    }
    store.backup(&elsewhere.file("copy.db")).unwrap();
    assert!(store.is_behind());
    restore(&elsewhere.file("hand.db"), &elsewhere.path()).unwrap();
    let mut restored = elsewhere.store();
    let found = restored.load().unwrap();
    assert_eq!((found.board.revision, found.board.at), (last.board.revision + LEAP, last.board.at));
    assert!(found.board.tasks == last.board.tasks && found.board.claims == last.board.claims);
    restored.check().unwrap();
    let copied = SqliteStore::open(&elsewhere.file("copy.db")).unwrap().load().unwrap();
    assert!(copied.board == last.board && copied.outbox == last.outbox);
}

/// L2: all events of a replaced store count, even if its rows are behind them.
#[test]
fn l2_the_events_of_a_replaced_store_with_deferred_rows_count() {
    let steps = everything();
    let (place, elsewhere) = (Place::behind(Lag { few: 0, most: usize::MAX }), Place::new());
    let mut store = place.store();
    commit_all(&mut store, &steps[..9]);
    store.backup(&elsewhere.file("early.db")).unwrap();
    commit_all(&mut store, &steps[9..]);
    for name in ["regatta.db", "regatta.db-wal"] {
        fs::copy(place.file(name), elsewhere.file(name)).unwrap();
    }
    restore(&elsewhere.file("early.db"), &elsewhere.path()).unwrap();
    let (found, last) = (elsewhere.store().load().unwrap().board, &steps.last().unwrap().board);
    assert_eq!((found.revision, found.at), (last.revision + LEAP, last.at));
}

/// The leftover of an interrupted backup does not prevent another backup.
#[test]
fn interrupted_backup_can_be_repeated() {
    let steps = everything();
    let place = Place::filled(&steps);
    fs::write(place.file("copy.db.partial"), "half").unwrap();
    place.store().backup(&place.file("copy.db")).unwrap();
    assert!(!place.file("copy.db.partial").exists());
    assert!(SqliteStore::open(&place.file("copy.db")).unwrap().load().unwrap().board == steps.last().unwrap().board);
}
