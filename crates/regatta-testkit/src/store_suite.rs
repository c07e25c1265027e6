//! What every store must do, as named cases that each adapter's tests run (J12: every store agrees).
//!
//! A store is brought in through a [`Harness`], and `regatta_testkit::store_suite!(make_harness)` makes one
//! `#[test]` of each case. What is expected never comes from a store: it is worked out from the commits.

mod conversations; // what becomes true of conversations
mod history; // what the reading side must find
pub mod story; // what is committed
mod teams; // and what of teams

pub use history::*;
pub use teams::j12_launches_are_found_newest_first;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use regatta_core::board::{Board, Row, RowKey};
use regatta_core::command::Command;
use regatta_core::event::{Event, Recorded};
use regatta_core::fleet::Limits;
use regatta_core::ids::{MissionId, TaskId};
use regatta_engine::ports::store::{Batch, MessageFilter, Store, TaskFilter};

use story::{Step, Teller, everything, person};

/// One place where a store is kept, empty at first.
pub trait Harness {
    /// Opens the store, or opens it again; always the same data.
    fn open(&mut self) -> Box<dyn Store>;
    /// Opens what a crash at this moment would leave, as a store of its own, while the other is still open.
    fn after_crash(&mut self) -> Box<dyn Store>;
    /// A place for a backup; nothing is there.
    fn backup_path(&mut self) -> PathBuf;
    /// Opens a backup as a store of its own.
    fn open_backup(&mut self, path: &Path) -> Box<dyn Store>;
    /// Runs `during`, in which every commit fails late: after rows were written, before they are durable.
    fn while_broken(&mut self, during: &mut dyn FnMut());
}

macro_rules! cases {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        /// Every case by its name.
        pub const CASES: &[(&str, fn(&mut dyn Harness))] = &[$((stringify!($name), $name)),*];

        /// Makes a test of each case; `$make` gives a new [`Harness`].
        #[macro_export]
        macro_rules! store_suite {
            ($make:expr) => {
                $(#[test] fn $name() { $crate::store_suite::$name(&mut $make) })*
            };
        }
    };
}

cases! {
    the_story_has_every_kind_of_event;
    an_empty_store_gives_an_empty_board;
    load_gives_back_what_was_committed_after_every_commit;
    d1_l4_what_was_acknowledged_survives_a_crash;
    d4_the_fold_of_the_events_is_the_board;
    d3_the_check_passes_after_every_commit;
    commands_that_wait_together_are_stored_like_one_by_one;
    effects_stay_in_the_outbox_until_they_are_performed;
    a_second_writer_is_refused_and_nothing_is_stored;
    events_that_do_not_follow_are_refused_and_nothing_is_stored;
    a_failed_commit_leaves_nothing_and_the_next_one_works;
    a_row_written_again_replaces_the_old_one;
    history_sees_each_commit_at_once;
    j12_tasks_are_found_by_every_filter;
    j12_what_ended_is_found_in_history;
    j12_messages_are_found_by_every_filter;
    j12_messages_are_found_by_thread_time_and_words;
    j12_firings_are_found_newest_first;
    j12_launches_are_found_newest_first;
    events_are_read_page_by_page;
    d7_a_backup_is_exact_and_overwrites_nothing;
}

fn commit_all(store: &mut dyn Store, steps: &[Step]) {
    for step in steps {
        store.commit(&step.batch).unwrap();
    }
}

/// Asserts without printing two whole boards.
fn assert_loads(store: &mut dyn Store, step: &Step, when: &str) {
    let loaded = store.load().unwrap();
    assert_eq!(loaded.board.revision, step.board.revision, "{when}");
    for (nth, (found, expected)) in loaded.board.tasks.values().zip(step.board.tasks.values()).enumerate() {
        assert_eq!(found, expected, "{when}: open task {nth}");
    }
    assert!(loaded.board == step.board, "{when}: the board is another one");
    assert_eq!(loaded.outbox, step.outbox, "{when}");
}

/// The last value of each row that was ever written.
fn rows(steps: &[Step]) -> BTreeMap<RowKey, Row> {
    let mut rows = BTreeMap::new();
    for (key, row) in steps.iter().flat_map(|it| it.batch.rows.clone()) {
        match row {
            Some(row) => rows.insert(key, row),
            None => rows.remove(&key),
        };
    }
    rows
}

pub fn the_story_has_every_kind_of_event(_: &mut dyn Harness) {
    let steps = everything();
    let told: BTreeSet<&str> = steps.iter().flat_map(|it| &it.batch.events).map(|it| it.event.kind()).collect();
    // Only a store makes `event.unreadable`, in place of an event that it cannot read.
    let recorded = Event::KINDS.iter().filter(|kind| **kind != "event.unreadable");
    let missing: Vec<_> = recorded.filter(|it| !told.contains(*it)).collect();
    assert!(missing.is_empty(), "the story does not tell {missing:?}");
    let end = &steps.last().unwrap().board;
    assert!(!end.projects.is_empty() && !end.agents.is_empty() && !end.missions.is_empty() && !end.tasks.is_empty());
    assert!(!end.attempts.is_empty() && !end.claims.is_empty() && !end.waits.is_empty() && !end.landings.is_empty());
    assert!(!end.hooks.is_empty() && !end.firings.is_empty());
    assert!(!end.cursors.is_empty() && !end.answers.is_empty() && !steps.last().unwrap().outbox.is_empty());
}

pub fn an_empty_store_gives_an_empty_board(harness: &mut dyn Harness) {
    for _ in 0..2 {
        let mut store = harness.open();
        let loaded = store.load().unwrap();
        assert!(loaded.board == Board::default() && loaded.outbox.is_empty());
        store.check().unwrap();
        let history = store.history();
        assert_eq!(history.events(0, 10).unwrap(), []);
        assert_eq!(history.messages(&MessageFilter { limit: 10, ..MessageFilter::default() }).unwrap(), []);
        assert_eq!(history.tasks(&TaskFilter::default()).unwrap(), []);
        assert_eq!(history.task(TaskId(1)).unwrap(), None);
        assert_eq!(history.mission(MissionId(u64::MAX)).unwrap(), None);
    }
}

pub fn load_gives_back_what_was_committed_after_every_commit(harness: &mut dyn Harness) {
    let mut store = harness.open();
    for (nth, step) in everything().iter().enumerate() {
        store.commit(&step.batch).unwrap();
        assert_loads(&mut *store, step, &format!("after commit {nth}"));
        if nth % 10 == 0 {
            drop(store);
            store = harness.open();
            assert_loads(&mut *store, step, &format!("opened again after commit {nth}"));
        }
    }
}

/// D1, L4: a commit that returned is there, whatever happens to the process.
pub fn d1_l4_what_was_acknowledged_survives_a_crash(harness: &mut dyn Harness) {
    let mut store = harness.open();
    for (nth, step) in everything().iter().enumerate() {
        store.commit(&step.batch).unwrap();
        let mut found = harness.after_crash();
        assert_loads(&mut *found, step, &format!("crashed after commit {nth}"));
    }
}

/// D4: what the log says is what the board is.
pub fn d4_the_fold_of_the_events_is_the_board(harness: &mut dyn Harness) {
    let mut store = harness.open();
    let mut folded = Board::default();
    for (nth, step) in everything().iter().enumerate() {
        store.commit(&step.batch).unwrap();
        for event in store.history().events(folded.revision, usize::MAX).unwrap() {
            folded.fold(&event);
        }
        assert!(folded == store.load().unwrap().board, "after commit {nth}");
    }
}

pub fn d3_the_check_passes_after_every_commit(harness: &mut dyn Harness) {
    let mut store = harness.open();
    for step in everything() {
        store.commit(&step.batch).unwrap();
        store.check().unwrap();
    }
}

pub fn commands_that_wait_together_are_stored_like_one_by_one(harness: &mut dyn Harness) {
    let mut store = harness.open();
    for steps in everything().chunks(7) {
        let last = steps.last().unwrap();
        let mut batch = Batch { after: steps[0].batch.after, meta: last.batch.meta, ..Batch::default() };
        for it in steps.iter().map(|it| it.batch.clone()) {
            batch.events.extend(it.events);
            batch.rows.extend(it.rows);
            batch.effects.extend(it.effects);
            batch.performed.extend(it.performed);
        }
        store.commit(&batch).unwrap();
        assert_loads(&mut *store, last, "after a group");
    }
    store.check().unwrap();
}

pub fn effects_stay_in_the_outbox_until_they_are_performed(harness: &mut dyn Harness) {
    let steps = everything();
    let last = steps.last().unwrap();
    let mut store = harness.open();
    commit_all(&mut *store, &steps);
    let mut left = last.outbox.clone();
    assert!(left.len() > 1, "the story leaves some");
    assert!(left.is_sorted_by_key(|it| it.0), "oldest first");
    assert_eq!(store.load().unwrap().outbox, left);
    // The newest first, so that order does not hide a mistake. Nothing else happens, so no event is there.
    while let Some((key, _)) = left.pop() {
        let batch =
            Batch { after: last.board.revision, meta: last.board.meta(), performed: vec![key], ..Batch::default() };
        store.commit(&batch).unwrap();
        store.commit(&batch).unwrap(); // what is gone already is no error
        drop(store);
        store = harness.open();
        assert_eq!(store.load().unwrap().outbox, left);
    }
}

pub fn a_second_writer_is_refused_and_nothing_is_stored(harness: &mut dyn Harness) {
    let steps = everything();
    let (mut first, mut second) = (harness.open(), harness.open());
    commit_all(&mut *first, &steps[..4]);
    let refused = second.commit(&steps[0].batch).unwrap_err();
    assert_eq!(refused.code, "second_writer");
    assert!(!refused.what.is_empty() && !refused.what.ends_with('.') && !refused.hint.is_empty());
    assert_eq!(second.commit(&steps[5].batch).unwrap_err().code, "second_writer", "it cannot run ahead either");
    assert_loads(&mut *second, &steps[3], "refused");
    assert_eq!(first.history().events(0, 1000).unwrap(), events(&steps[..4]));
    first.commit(&steps[4].batch).unwrap();
    first.check().unwrap();
}

pub fn events_that_do_not_follow_are_refused_and_nothing_is_stored(harness: &mut dyn Harness) {
    let steps = everything();
    let mut store = harness.open();
    commit_all(&mut *store, &steps[..4]);
    let longest = steps[4..].iter().position(|it| it.batch.events.len() > 2).unwrap() + 4;
    commit_all(&mut *store, &steps[4..longest]);
    let good = &steps[longest];
    let spoil = |change: fn(&mut Batch)| {
        let mut batch = good.batch.clone();
        change(&mut batch);
        batch
    };
    let spoilt = [
        spoil(|it| drop(it.events.remove(1))),
        spoil(|it| drop(it.events.pop())),
        spoil(|it| it.events.swap(0, 1)),
        spoil(|it| it.meta.revision += 1),
    ];
    for batch in spoilt {
        assert_eq!(store.commit(&batch).unwrap_err().code, "io");
        assert_loads(&mut *store, &steps[longest - 1], "refused");
        assert_eq!(store.history().events(0, usize::MAX).unwrap(), events(&steps[..longest]));
    }
    store.commit(&good.batch).unwrap();
    assert_loads(&mut *store, good, "the right one");
}

pub fn a_failed_commit_leaves_nothing_and_the_next_one_works(harness: &mut dyn Harness) {
    let mut store = harness.open();
    let mut before = Step { batch: Batch::default(), board: Board::default(), outbox: vec![] };
    for step in everything() {
        harness.while_broken(&mut || {
            store.commit(&step.batch).unwrap_err();
        });
        assert_loads(&mut *store, &before, "after a failure");
        assert_loads(&mut *harness.after_crash(), &before, "after a failure and a crash");
        store.commit(&step.batch).unwrap();
        before = step;
    }
    store.check().unwrap();
    assert_loads(&mut *store, &before, "in the end");
}

/// D7: a backup taken at a revision is that revision, whatever happens to the original afterwards.
pub fn d7_a_backup_is_exact_and_overwrites_nothing(harness: &mut dyn Harness) {
    let steps = everything();
    let mut store = harness.open();
    let (before, after) = steps.split_at(steps.len() / 2);
    commit_all(&mut *store, before);
    let path = harness.backup_path();
    store.backup(&path).unwrap();
    commit_all(&mut *store, after);
    assert!(store.backup(&path).is_err(), "it must not overwrite");
    let mut copy = harness.open_backup(&path);
    assert_loads(&mut *copy, before.last().unwrap(), "the backup");
    copy.check().unwrap();
    let history = copy.history();
    assert_eq!(history.events(0, usize::MAX).unwrap(), events(before));
    let everyone = MessageFilter { limit: usize::MAX, ..MessageFilter::default() };
    let messages = rows(before).into_values().filter(|it| matches!(it, Row::Message(_))).count();
    assert_eq!(history.messages(&everyone).unwrap().len(), messages);
    assert_loads(&mut *store, steps.last().unwrap(), "the original");
    // The copy is a store: it goes on by itself.
    let mut teller = Teller::default();
    teller.board = copy.load().unwrap().board;
    teller.tell(&person("ann"), None, Command::SetLimits { limits: Limits { max_attempts: 3, ..Limits::default() } });
    copy.commit(&teller.steps[0].batch).unwrap();
}

fn events(steps: &[Step]) -> Vec<Recorded> {
    steps.iter().flat_map(|it| it.batch.events.clone()).collect()
}
