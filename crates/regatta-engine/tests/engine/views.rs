//! Tests of reading: boards, watchers and events.

use std::time::Duration;

use regatta_testkit::crash_points::{EngineLife, TEST_TIMEOUT};
use tokio::sync::broadcast::error::RecvError;

use crate::support::*;

#[test]
fn reading_does_not_wait_for_the_store() {
    let (world, life) = (World::new(append_own_name), EngineLife::new());
    let engine = world.start_in(&life).unwrap();
    let before = engine.board().revision;
    let commit = life.hold_next("store.commit");
    let written = start_submit(&engine, person_request(post("held")));
    commit.wait_until_reached();
    let (sender, receiver) = std::sync::mpsc::channel();
    let reader = engine.clone();
    std::thread::spawn(move || {
        sender.send((
            reader.board().revision,
            reader.watch_board().borrow().revision,
            reader.now(),
        ))
    });
    let (board, watched, _) = receiver
        .recv_timeout(TEST_TIMEOUT)
        .expect("reading does not wait for the commit");
    assert_eq!(
        (board, watched),
        (before, before),
        "a revision is shown before it is durable"
    );
    commit.release();
    block_on(written).unwrap();
    assert!(engine.board().revision > before);
    engine.shutdown();
}

#[test]
fn events_come_in_order_and_without_gaps() {
    let (world, life) = (World::new(append_own_name), EngineLife::new());
    let engine = world.start_in(&life).unwrap();
    let from = engine.board().revision;
    let (mut events, mut watch) = (engine.subscribe_events(), engine.watch_board());
    launch(
        &engine,
        &["ann", "bob"],
        vec![
            planned("a", "a", &[]),
            planned("b", "b", &[0]),
            planned("c", "c", &[]),
        ],
    );
    wait_until_done(&engine, &life, &world);
    let last = engine.board().revision;

    let mut received = Vec::new();
    while received.len() < (last - from) as usize {
        received.extend(block_on(events.recv()).unwrap().iter().cloned());
    }
    assert!((from + 1..=last).eq(received.iter().map(|event| event.revision)));
    assert_eq!(received, engine.history().events(from, usize::MAX).unwrap());
    assert_eq!(watch.borrow_and_update().revision, last);
    engine.shutdown();
}

/// A watcher sees rising revisions only, and never one whose events are not in the history yet.
#[test]
fn a_watcher_sees_only_durable_and_rising_revisions() {
    let world = World::new(append_own_name);
    let engine = world.start();
    let mut watch = engine.watch_board();
    let target = engine.board().revision + 300;
    std::thread::scope(|scope| {
        scope.spawn(|| (0..300).for_each(|nth| _ = submit(&engine, post(&format!("{nth}")))));
        let mut last_seen = 0;
        while last_seen < target {
            let revision = watch.borrow_and_update().revision;
            assert!(revision >= last_seen);
            last_seen = revision;
            assert_eq!(engine.history().events(last_seen - 1, 1).unwrap().len(), 1);
            if last_seen < target {
                block_on(watch.changed()).unwrap();
            }
        }
    });
    engine.shutdown();
}

#[test]
fn a_subscriber_that_falls_behind_continues_from_the_history() {
    let world = World::new(append_own_name);
    let engine = world.start();
    let from = engine.board().revision;
    let mut events = engine.subscribe_events();
    for nth in 0..1_100 {
        submit(&engine, post(&format!("{nth}")));
    }
    let RecvError::Lagged(missed) = block_on(events.recv()).unwrap_err() else {
        panic!("the engine is open")
    };
    let mut received = engine.history().events(from, missed as usize).unwrap();
    while received.len() < 1_100 {
        received.extend(block_on(events.recv()).unwrap().iter().cloned());
    }
    assert!((from + 1..=from + 1_100).eq(received.iter().map(|event| event.revision)));
    engine.shutdown();
}

#[test]
fn the_store_is_checked_and_copied_between_two_commits() {
    let world = World::new(append_own_name);
    let engine = world.start();
    submit(&engine, post("kept"));
    block_on(engine.check_store()).unwrap();
    let path = std::path::PathBuf::from("/nowhere/copy");
    assert_eq!(
        block_on(engine.backup(path.clone())),
        Ok(engine.board().revision)
    );
    engine.shutdown();
    let copy = World {
        store: world.store.open_backup(&path).unwrap(),
        ..World::new(append_own_name)
    };
    assert_eq!(copy.start().board().counters.message, 1);
}

/// A lease ends by itself in real time, and not early (L5).
#[test]
fn l5_a_lease_ends_in_real_time_and_not_early() {
    let world = World {
        uses_real_time: true,
        ..World::new(append_own_name)
    };
    let engine = world.start();
    let started = std::time::Instant::now();
    let lease = regatta_core::claim::Acquire {
        ttl_ms: 120,
        ..acquire("ann", "file://shop/a", 0)
    };
    submit(&engine, regatta_core::command::Command::Acquire(lease));
    wait_until(&engine, "the lease has ended", |board| {
        board.claims.is_empty()
    });
    // The fleet clock counts whole milliseconds, and the millisecond in which the lease was granted
    // counts in full.
    assert!(started.elapsed() >= Duration::from_millis(120));
    engine.shutdown();
}
