//! Tests of waits for claims.

use std::time::Duration;

use regatta_core::claim::Acquire;
use regatta_core::command::{Command, CommandOutcome};
use regatta_core::ids::RequestKey;
use regatta_core::refusal::Refusal;
use regatta_engine::{CommandFailure, CommandReply, Engine};
use regatta_testkit::crash_points::EngineLife;

use crate::support::*;

const FILE: &str = "file://shop/src/**";

fn start_acquire<'a>(
    engine: &'a Engine,
    acquire: Acquire,
) -> PolledFuture<'a, Result<CommandReply, CommandFailure>> {
    let waits = engine.board().waits.len();
    let mut future: PolledFuture<'a, _> = Box::pin(engine.acquire(person(), None, acquire));
    assert!(poll(&mut future).is_none());
    wait_until(engine, "the wait is stored", |board| {
        board.waits.len() == waits + 1
    });
    submit(engine, post("so that the answer is certainly sent"));
    assert!(
        poll(&mut future).is_none(),
        "the caller was answered although it waits"
    );
    future
}

fn acquire_command(engine: &Engine, owner: &str) -> Command {
    let (claim, token) = granted(&submit(engine, Command::Acquire(acquire(owner, FILE, 0))));
    Command::Release { claim, token }
}

/// L9: waits are served in their order, even if a later one asks for less.
#[test]
fn l9_waits_are_served_in_order_of_arrival() {
    let world = World::new(append_own_name);
    let engine = world.start();
    let release = acquire_command(&engine, "ann");
    let first = start_acquire(&engine, acquire("bob", FILE, 60_000));
    let mut second = start_acquire(&engine, acquire("cid", "file://shop/src/a.rs", 60_000));
    submit(&engine, release);
    let (claim, token) = granted(&block_on(first).unwrap());
    assert!(token > 0 && poll(&mut second).is_none());
    submit(&engine, Command::Release { claim, token });
    let (_, later) = granted(&block_on(second).unwrap());
    assert!(later > token, "L2: tokens only rise");
    assert!(engine.board().waits.is_empty());
    engine.shutdown();
}

#[test]
fn a_wait_that_times_out_names_the_holder() {
    let world = World::new(append_own_name);
    let engine = world.start();
    acquire_command(&engine, "ann");
    let waiting = start_acquire(&engine, acquire("bob", FILE, 1_000));
    world.clock.advance(Duration::from_millis(1_000));
    submit(&engine, post("tick"));
    assert_eq!(
        engine.board().waits.len(),
        1,
        "the wait ended early: the millisecond in which it began counts in full"
    );
    world.clock.advance(Duration::from_millis(1));
    submit(&engine, post("tick"));
    match block_on(waiting) {
        Err(CommandFailure::Refused {
            refusal: Refusal::ClaimHeld { holders },
            ..
        }) => {
            assert_eq!(holders[0].owner.to_string(), "ann")
        }
        other => panic!("{other:?}"),
    }
    assert!(engine.board().waits.is_empty());
    engine.shutdown();
}

/// The alarm fires in real time, without another request.
#[test]
fn a_wait_times_out_in_real_time_without_another_request() {
    let world = World {
        uses_real_time: true,
        ..World::new(append_own_name)
    };
    let engine = world.start();
    acquire_command(&engine, "ann");
    let answer = block_on(engine.acquire(person(), None, acquire("bob", FILE, 50)));
    assert!(
        matches!(
            answer,
            Err(CommandFailure::Refused {
                refusal: Refusal::ClaimHeld { .. },
                ..
            })
        ),
        "{answer:?}"
    );
    engine.shutdown();
}

/// A caller that disconnects while it waits leaves no wait behind.
#[test]
fn a_caller_that_disconnects_while_it_waits_leaves_no_wait_behind() {
    let world = World::new(append_own_name);
    let engine = world.start();
    let release = acquire_command(&engine, "ann");
    let abandoned = start_acquire(&engine, acquire("bob", FILE, 60_000));
    let next = start_acquire(&engine, acquire("cid", FILE, 60_000));
    drop(abandoned);
    wait_until(&engine, "the first wait is cancelled", |board| {
        board.waits.len() == 1
    });
    submit(&engine, release);
    granted(&block_on(next).unwrap());
    engine.shutdown();
}

#[test]
fn a_caller_that_disconnects_before_the_commit_leaves_no_wait_behind() {
    let (world, life) = (World::new(append_own_name), EngineLife::new());
    let engine = world.start_in(&life).unwrap();
    acquire_command(&engine, "ann");
    let commit = life.hold_next("store.commit");
    let mut abandoned: PolledFuture<'_, _> =
        Box::pin(engine.acquire(person(), None, acquire("bob", FILE, 60_000)));
    assert!(poll(&mut abandoned).is_none());
    commit.wait_until_reached();
    drop(abandoned);
    commit.release();
    wait_until(&engine, "the wait was stored and cancelled", |board| {
        board.counters.wait == 1 && board.waits.is_empty()
    });
    engine.shutdown();
}

#[test]
fn a_caller_that_disconnects_after_the_commit_leaves_no_wait_behind() {
    let world = World::new(append_own_name);
    let engine = world.start();
    acquire_command(&engine, "ann");
    let mut abandoned: PolledFuture<'_, _> =
        Box::pin(engine.acquire(person(), None, acquire("bob", FILE, 60_000)));
    assert!(poll(&mut abandoned).is_none());
    wait_until(&engine, "the wait is stored", |board| {
        board.waits.len() == 1
    });
    submit(&engine, post("so that the answer is certainly sent"));
    drop(abandoned);
    wait_until(&engine, "the wait is cancelled", |board| {
        board.waits.is_empty()
    });
    engine.shutdown();
}

/// A wait is cancelled even when the queue has no room for the cancellation.
#[test]
fn a_wait_is_cancelled_although_the_queue_is_full() {
    let mut world = World::new(append_own_name);
    world.settings.queue_capacity = 1;
    let life = EngineLife::new();
    let engine = world.start_in(&life).unwrap();
    acquire_command(&engine, "ann");
    let abandoned = start_acquire(&engine, acquire("bob", FILE, 60_000));
    let commit = life.hold_next("store.commit");
    let first = start_submit(&engine, person_request(post("being committed")));
    commit.wait_until_reached();
    let second = start_submit(&engine, person_request(post("fills the queue")));
    drop(abandoned);
    commit.release();
    block_on(first).unwrap();
    block_on(second).unwrap();
    wait_until(&engine, "the wait is cancelled", |board| {
        board.waits.is_empty()
    });
    engine.shutdown();
}

/// A grant whose reply was lost is returned again under the same key.
#[test]
fn a_grant_whose_reply_was_lost_is_returned_again() {
    let world = World::new(append_own_name);
    let engine = world.start();
    let key = RequestKey::new("grant").unwrap();
    let first =
        block_on(engine.acquire(person(), Some(key.clone()), acquire("bob", FILE, 0))).unwrap();
    engine.shutdown();
    let engine = world.start();
    let repeated = block_on(engine.acquire(person(), Some(key), acquire("bob", FILE, 0))).unwrap();
    assert_eq!(granted(&first), granted(&repeated));
    assert_eq!(engine.board().claims.len(), 1);
    engine.shutdown();
}

/// A restart ends all waits, because their callers have lost the connection, and keeps all claims
/// (L5).
#[test]
fn a_restart_keeps_claims_and_ends_waits() {
    let world = World::new(append_own_name);
    let engine = world.start();
    let release = acquire_command(&engine, "ann");
    let waiting = start_acquire(&engine, acquire("bob", FILE, 60_000));
    engine.shutdown();
    assert_eq!(block_on(waiting), Err(CommandFailure::Stopping));
    world.clock.advance(Duration::from_secs(3_600));
    let engine = world.start();
    assert!(engine.board().waits.is_empty());
    assert_eq!(
        engine.board().claims.len(),
        1,
        "L5: the time without a daemon counted"
    );
    assert_eq!(submit(&engine, release).outcome, CommandOutcome::Done);
    engine.shutdown();
}
