//! Test cases that every store must pass: the in-memory fake as well as SQLite (J12).
//!
//! The tests of a store implement [`StoreHarness`], and
//! `regatta_testkit::store_suite!(make_harness)` creates one `#[test]` for each case. Expected
//! values are computed from the batches that a case commits, and never read from another store.

mod conversations; // the part of the test history about conversations
mod history; // queries of the history
pub mod history_fixture; // the committed batches
mod teams; // the part of the test history about teams

pub use history::*;
pub use teams::j12_launches_are_found_newest_first;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use regatta_core::board::{Board, Row, RowKey};
use regatta_core::command::Command;
use regatta_core::event::{Event, Recorded};
use regatta_core::ids::{MissionId, TaskId};
use regatta_core::limits::MachineLimits;
use regatta_engine::ports::store::{MessageFilter, Store, StoreBatch, TaskFilter};

use history_fixture::{CommitStep, HistoryBuilder, all_steps, person};

/// Creates and opens the store under test. The store is empty at first.
pub trait StoreHarness {
    /// Opens the store, or opens it again. Every handle uses the same data.
    fn open(&mut self) -> Box<dyn Store>;
    /// Opens a copy of the store in the state that a crash at this moment would leave. The original
    /// store may still be open.
    fn open_after_crash(&mut self) -> Box<dyn Store>;
    /// Returns a path for a backup, at which no file exists yet.
    fn backup_path(&mut self) -> PathBuf;
    /// Opens a backup as a separate store.
    fn open_backup(&mut self, path: &Path) -> Box<dyn Store>;
    /// Runs `during`. Meanwhile, makes every transaction fail after the transaction has written
    /// rows and before the rows are durable.
    fn with_failing_commits(&mut self, during: &mut dyn FnMut());
}

macro_rules! cases {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        /// All test cases, with their names.
        pub const CASES: &[(&str, fn(&mut dyn StoreHarness))] = &[$((stringify!($name), $name)),*];

        /// Creates a `#[test]` for each test case. `$make` is an expression that creates a new
        /// [`StoreHarness`].
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
    load_returns_the_committed_state_after_every_commit;
    d1_l4_acknowledged_commits_survive_a_crash;
    d4_applying_all_events_gives_the_board;
    d3_the_check_passes_after_every_commit;
    batched_commands_are_stored_like_single_commands;
    effects_stay_in_the_outbox_until_they_are_performed;
    a_second_writer_is_refused_and_nothing_is_stored;
    batches_with_gaps_are_refused_and_nothing_is_stored;
    a_failed_commit_leaves_nothing_and_the_next_one_works;
    a_row_written_again_replaces_the_old_one;
    history_sees_each_commit_at_once;
    j12_tasks_are_found_by_every_filter;
    j12_ended_entities_are_found_in_history;
    j12_messages_are_found_by_every_filter;
    j12_messages_are_found_by_thread_time_and_words;
    j12_firings_are_found_newest_first;
    j12_launches_are_found_newest_first;
    events_are_read_page_by_page;
    d7_a_backup_is_exact_and_overwrites_nothing;
}

fn commit_all(store: &mut dyn Store, steps: &[CommitStep]) {
    for step in steps {
        store.commit(&step.batch).unwrap();
    }
}

/// Asserts that the store loads the state that is expected after a step. Tasks are compared one by
/// one, because a failure would otherwise print two whole boards (states of the daemon).
fn assert_loads(store: &mut dyn Store, step: &CommitStep, when: &str) {
    let loaded = store.load().unwrap();
    assert_eq!(loaded.board.revision, step.board.revision, "{when}");
    for (nth, (found, expected)) in loaded
        .board
        .tasks
        .values()
        .zip(step.board.tasks.values())
        .enumerate()
    {
        assert_eq!(found, expected, "{when}: open task {nth}");
    }
    assert!(loaded.board == step.board, "{when}: the board differs");
    assert_eq!(loaded.outbox, step.outbox, "{when}");
}

/// Returns the last value of each database row that the steps wrote.
fn last_rows(steps: &[CommitStep]) -> BTreeMap<RowKey, Row> {
    let mut rows = BTreeMap::new();
    for (key, row) in steps
        .iter()
        .flat_map(|commit_step| commit_step.batch.rows.clone())
    {
        match row {
            Some(row) => rows.insert(key, row),
            None => rows.remove(&key),
        };
    }
    rows
}

pub fn the_story_has_every_kind_of_event(_: &mut dyn StoreHarness) {
    let steps = all_steps();
    let told: BTreeSet<&str> = steps
        .iter()
        .flat_map(|commit_step| &commit_step.batch.events)
        .map(|event| event.event.kind())
        .collect();
    // No command can cause the event `event.unreadable`. Only a store creates this event, in place
    // of an event that the store cannot read.
    let recorded = Event::KINDS
        .iter()
        .filter(|kind| **kind != "event.unreadable");
    let missing: Vec<_> = recorded
        .filter(|recorded| !told.contains(*recorded))
        .collect();
    assert!(missing.is_empty(), "the story lacks {missing:?}");
    let end = &steps.last().unwrap().board;
    assert!(
        !end.projects.is_empty()
            && !end.agents.is_empty()
            && !end.missions.is_empty()
            && !end.tasks.is_empty()
    );
    assert!(
        !end.attempts.is_empty()
            && !end.claims.is_empty()
            && !end.waits.is_empty()
            && !end.landings.is_empty()
    );
    assert!(!end.hooks.is_empty() && !end.firings.is_empty());
    assert!(
        !end.cursors.is_empty()
            && !end.answers.is_empty()
            && !steps.last().unwrap().outbox.is_empty()
    );
}

pub fn an_empty_store_gives_an_empty_board(harness: &mut dyn StoreHarness) {
    for _ in 0..2 {
        let mut store = harness.open();
        let loaded = store.load().unwrap();
        assert!(loaded.board == Board::default() && loaded.outbox.is_empty());
        store.check().unwrap();
        let history = store.history();
        assert_eq!(history.events(0, 10).unwrap(), []);
        assert_eq!(
            history
                .messages(&MessageFilter {
                    limit: 10,
                    ..MessageFilter::default()
                })
                .unwrap(),
            []
        );
        assert_eq!(history.tasks(&TaskFilter::default()).unwrap(), []);
        assert_eq!(history.task(TaskId(1)).unwrap(), None);
        assert_eq!(history.mission(MissionId(u64::MAX)).unwrap(), None);
    }
}

pub fn load_returns_the_committed_state_after_every_commit(harness: &mut dyn StoreHarness) {
    let mut store = harness.open();
    for (nth, step) in all_steps().iter().enumerate() {
        store.commit(&step.batch).unwrap();
        assert_loads(&mut *store, step, &format!("after commit {nth}"));
        if nth % 10 == 0 {
            drop(store);
            store = harness.open();
            assert_loads(
                &mut *store,
                step,
                &format!("opened again after commit {nth}"),
            );
        }
    }
}

/// Tests D1 and L4: a batch is stored when the call that commits the batch returns, even if the
/// process crashes directly afterwards.
pub fn d1_l4_acknowledged_commits_survive_a_crash(harness: &mut dyn StoreHarness) {
    let mut store = harness.open();
    for (nth, step) in all_steps().iter().enumerate() {
        store.commit(&step.batch).unwrap();
        let mut found = harness.open_after_crash();
        assert_loads(&mut *found, step, &format!("crashed after commit {nth}"));
    }
}

/// Tests D4: applying all events of the event log gives the board (the whole state of the daemon).
pub fn d4_applying_all_events_gives_the_board(harness: &mut dyn StoreHarness) {
    let mut store = harness.open();
    let mut folded = Board::default();
    for (nth, step) in all_steps().iter().enumerate() {
        store.commit(&step.batch).unwrap();
        for event in store.history().events(folded.revision, usize::MAX).unwrap() {
            folded.fold(&event);
        }
        assert!(folded == store.load().unwrap().board, "after commit {nth}");
    }
}

pub fn d3_the_check_passes_after_every_commit(harness: &mut dyn StoreHarness) {
    let mut store = harness.open();
    for step in all_steps() {
        store.commit(&step.batch).unwrap();
        store.check().unwrap();
    }
}

pub fn batched_commands_are_stored_like_single_commands(harness: &mut dyn StoreHarness) {
    let mut store = harness.open();
    for steps in all_steps().chunks(7) {
        let last = steps.last().unwrap();
        let mut batch = StoreBatch {
            base_revision: steps[0].batch.base_revision,
            meta: last.batch.meta,
            ..StoreBatch::default()
        };
        for store_batch in steps.iter().map(|commit_step| commit_step.batch.clone()) {
            batch.events.extend(store_batch.events);
            batch.rows.extend(store_batch.rows);
            batch.effects.extend(store_batch.effects);
            batch
                .completed_effects
                .extend(store_batch.completed_effects);
        }
        store.commit(&batch).unwrap();
        assert_loads(&mut *store, last, "after a group");
    }
    store.check().unwrap();
}

pub fn effects_stay_in_the_outbox_until_they_are_performed(harness: &mut dyn StoreHarness) {
    let steps = all_steps();
    let last = steps.last().unwrap();
    let mut store = harness.open();
    commit_all(&mut *store, &steps);
    let mut left = last.outbox.clone();
    assert!(left.len() > 1, "the story leaves some effects");
    assert!(left.is_sorted_by_key(|left| left.0), "oldest first");
    assert_eq!(store.load().unwrap().outbox, left);
    // Report the newest effects as done first, because the normal order, oldest first, could hide a
    // mistake. The batches of these reports contain no events.
    while let Some((key, _)) = left.pop() {
        let batch = StoreBatch {
            base_revision: last.board.revision,
            meta: last.board.meta(),
            completed_effects: vec![key],
            ..StoreBatch::default()
        };
        store.commit(&batch).unwrap();
        store.commit(&batch).unwrap(); // removing an effect again is not an error
        drop(store);
        store = harness.open();
        assert_eq!(store.load().unwrap().outbox, left);
    }
}

pub fn a_second_writer_is_refused_and_nothing_is_stored(harness: &mut dyn StoreHarness) {
    let steps = all_steps();
    let (mut first, mut second) = (harness.open(), harness.open());
    commit_all(&mut *first, &steps[..4]);
    let refused = second.commit(&steps[0].batch).unwrap_err();
    assert_eq!(refused.code, "second_writer");
    assert!(
        !refused.message.is_empty() && !refused.message.ends_with('.') && !refused.hint.is_empty()
    );
    assert_eq!(
        second.commit(&steps[5].batch).unwrap_err().code,
        "second_writer",
        "a batch of a later revision is refused too"
    );
    assert_loads(&mut *second, &steps[3], "refused");
    assert_eq!(
        first.history().events(0, 1000).unwrap(),
        all_events(&steps[..4])
    );
    first.commit(&steps[4].batch).unwrap();
    first.check().unwrap();
}

pub fn batches_with_gaps_are_refused_and_nothing_is_stored(harness: &mut dyn StoreHarness) {
    let steps = all_steps();
    let mut store = harness.open();
    commit_all(&mut *store, &steps[..4]);
    let longest = steps[4..]
        .iter()
        .position(|commit_step| commit_step.batch.events.len() > 2)
        .unwrap()
        + 4;
    commit_all(&mut *store, &steps[4..longest]);
    let good = &steps[longest];
    let spoil = |change: fn(&mut StoreBatch)| {
        let mut batch = good.batch.clone();
        change(&mut batch);
        batch
    };
    let spoilt = [
        spoil(|store_batch| drop(store_batch.events.remove(1))),
        spoil(|store_batch| drop(store_batch.events.pop())),
        spoil(|store_batch| store_batch.events.swap(0, 1)),
        spoil(|store_batch| store_batch.meta.revision += 1),
    ];
    for batch in spoilt {
        assert_eq!(store.commit(&batch).unwrap_err().code, "io");
        assert_loads(&mut *store, &steps[longest - 1], "refused");
        assert_eq!(
            store.history().events(0, usize::MAX).unwrap(),
            all_events(&steps[..longest])
        );
    }
    store.commit(&good.batch).unwrap();
    assert_loads(&mut *store, good, "the valid batch");
}

pub fn a_failed_commit_leaves_nothing_and_the_next_one_works(harness: &mut dyn StoreHarness) {
    let mut store = harness.open();
    let mut before = CommitStep {
        batch: StoreBatch::default(),
        board: Board::default(),
        outbox: vec![],
    };
    for step in all_steps() {
        harness.with_failing_commits(&mut || {
            store.commit(&step.batch).unwrap_err();
        });
        assert_loads(&mut *store, &before, "after a failure");
        assert_loads(
            &mut *harness.open_after_crash(),
            &before,
            "after a failure and a crash",
        );
        store.commit(&step.batch).unwrap();
        before = step;
    }
    store.check().unwrap();
    assert_loads(&mut *store, &before, "in the end");
}

/// Tests D7: a backup has exactly the state of the time at which it was made, even if the original
/// store is changed later.
pub fn d7_a_backup_is_exact_and_overwrites_nothing(harness: &mut dyn StoreHarness) {
    let steps = all_steps();
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
    assert_eq!(history.events(0, usize::MAX).unwrap(), all_events(before));
    let everyone = MessageFilter {
        limit: usize::MAX,
        ..MessageFilter::default()
    };
    let messages = last_rows(before)
        .into_values()
        .filter(|row| matches!(row, Row::Message(_)))
        .count();
    assert_eq!(history.messages(&everyone).unwrap().len(), messages);
    assert_loads(&mut *store, steps.last().unwrap(), "the original");
    // The opened backup is a complete store, so it also accepts new batches.
    let mut history = HistoryBuilder::default();
    history.board = copy.load().unwrap().board;
    history.run(
        &person("ann"),
        None,
        Command::SetLimits {
            limits: MachineLimits {
                max_attempts: 3,
                ..MachineLimits::default()
            },
        },
    );
    copy.commit(&history.steps[0].batch).unwrap();
}

fn all_events(steps: &[CommitStep]) -> Vec<Recorded> {
    steps
        .iter()
        .flat_map(|commit_step| commit_step.batch.events.clone())
        .collect()
}
