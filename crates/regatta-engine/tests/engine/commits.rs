//! Tests of commits: requests are durable before they are answered, and queued requests share a
//! commit.

use regatta_core::command::{Command, CommandOutcome};
use regatta_core::ids::TaskId;
use regatta_core::limits::MachineLimits;
use regatta_core::refusal::Refusal;
use regatta_engine::CommandFailure;
use regatta_engine::ports::store::{Store, StoreError};
use regatta_testkit::crash_points::EngineLife;
use regatta_testkit::fake_store::CommitFault;

use crate::support::*;

fn disk_full() -> StoreError {
    StoreError {
        code: "disk_full",
        message: "the disk is full".into(),
        hint: "free some".into(),
    }
}

/// D1, L4: no request is answered before its commit returned.
#[test]
fn d1_an_answer_comes_after_the_commit() {
    let (world, life) = (World::new(append_own_name), EngineLife::new());
    let engine = world.start_in(&life).unwrap();
    submit(&engine, add_project());
    let commit = life.hold_next("store.commit");
    let mut accepted = start_submit(&engine, person_request(add_task("a")));
    commit.wait_until_reached();
    // A refusal may depend on an earlier command of the same batch, so it is not sent before the
    // commit either.
    let mut refused = start_submit(
        &engine,
        person_request(Command::CancelTask {
            task: TaskId(7),
            reason: "no".into(),
        }),
    );
    assert!(poll(&mut accepted).is_none() && poll(&mut refused).is_none());
    assert_eq!(world.store.clone().load().unwrap().board.tasks.len(), 0);
    commit.release();
    let reply = block_on(accepted).unwrap();
    assert_eq!(reply.outcome, CommandOutcome::Task(TaskId(1)));
    assert!(world.store.clone().load().unwrap().board.revision >= reply.revision);
    let refusal = block_on(refused).unwrap_err();
    assert!(
        matches!(refusal, CommandFailure::Refused { refusal: Refusal::NoSuchTask { .. }, revision } if revision >= reply.revision)
    );
    engine.shutdown();
}

/// D1, L4, P9: a batch that could not be stored leaves no trace, and every request of it gets the
/// error.
#[test]
fn p9_a_commit_that_fails_changes_nothing_and_the_next_one_works() {
    let (world, life) = (World::new(append_own_name), EngineLife::new());
    let engine = world.start_in(&life).unwrap();
    submit(&engine, add_project());
    submit(&engine, register("ann"));
    let commit = life.hold_next("store.commit");
    let first = start_submit(&engine, person_request(post("first")));
    commit.wait_until_reached();
    let mission = mission(&["ann"], vec![planned("a", "a", &[])]);
    let batch: Vec<_> = [
        post("second"),
        mission.clone(),
        add_task("b"),
        Command::CancelTask {
            task: TaskId(9),
            reason: "no".into(),
        },
    ]
    .map(|command| start_submit(&engine, person_request(command)))
    .into();
    world
        .store
        .fail_after(1, CommitFault::BeforeCommit(disk_full()));
    let mut events = engine.subscribe_events();
    commit.release();
    block_on(first).unwrap();
    let before = wait_until(&engine, "the first message is stored", |board| {
        board.counters.message == 1
    });
    for answer in batch {
        assert_eq!(block_on(answer), Err(CommandFailure::Store(disk_full())));
    }

    assert_eq!(
        (engine.board(), folded(&engine)),
        (before.clone(), (*before).clone())
    );
    assert_eq!(
        events.try_recv().unwrap().last().unwrap().revision,
        before.revision
    );
    assert!(
        events.try_recv().is_err(),
        "an event of the failed batch was published"
    );
    assert_eq!(
        (
            world.outbox(),
            life.call_count("git.prepare"),
            life.call_count("agents.start")
        ),
        (0, 0, 0)
    );

    submit(&engine, mission);
    wait_until_done(&engine, &life, &world);
    assert_clean(&engine, &world);
    engine.shutdown();
}

/// P9: reports of effects are not lost while the store fails.
#[test]
fn p9_a_report_waits_for_the_store() {
    let world = World::new(|program| {
        program
            .wait_for("go")
            .map_or_else(|exit| exit, |()| append_own_name(program))
    });
    let life = EngineLife::new();
    let engine = world.start_in(&life).unwrap();
    launch(&engine, &["ann"], vec![planned("a", "a", &[])]);
    world
        .agents
        .wait_until_started(regatta_core::ids::AttemptId(1));
    world
        .store
        .fail_next(CommitFault::BeforeCommit(disk_full()));
    world.agents.release("go");
    wait_until_done(&engine, &life, &world);
    assert_eq!(world.agents.program_counts()["T1"], 1);
    assert_clean(&engine, &world);
    engine.shutdown();
}

/// D1: a batch that was stored although the store reported an error stands. It is answered as done,
/// and the engine continues from it.
#[test]
fn d1_a_batch_that_was_stored_despite_an_error_counts_as_done() {
    let world = World::new(append_own_name);
    let engine = world.start();
    submit(&engine, add_project());
    world.store.fail_next(CommitFault::AfterCommit(disk_full()));
    let first = engine.submit(person_request(post("first"))).unwrap();
    let second = engine.submit(person_request(post("second"))).unwrap();
    assert!(second.revision > first.revision);
    assert_eq!(engine.board().counters.message, 2);
    engine.shutdown();
}

#[test]
fn queued_requests_are_committed_together() {
    let (world, life) = (World::new(append_own_name), EngineLife::new());
    let engine = world.start_in(&life).unwrap();
    submit(&engine, add_project());
    let commit = life.hold_next("store.commit");
    let first = start_submit(&engine, person_request(post("first")));
    commit.wait_until_reached();
    let before = world.store.commit_count();
    let queued: Vec<_> = (0..400)
        .map(|nth| start_submit(&engine, person_request(post(&format!("number {nth}")))))
        .collect();
    commit.release();
    block_on(first).unwrap();
    let revisions: Vec<u64> = queued
        .into_iter()
        .map(|answer| block_on(answer).unwrap().revision)
        .collect();
    assert!(
        revisions.is_sorted_by(|a, b| a < b),
        "the revisions are not in order of arrival"
    );
    assert_eq!(
        world.store.commit_count() - before,
        2,
        "expected the held commit and one for all other requests"
    );
    engine.shutdown();
}

/// Requests of many threads are each answered once, whatever batches they are in.
#[test]
fn many_threads_share_the_writer() {
    let world = World::new(append_own_name);
    let engine = world.start();
    submit(&engine, add_project());
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let engine = &engine;
            scope.spawn(move || {
                (0..50).for_each(|nth| _ = submit(engine, post(&format!("{thread}.{nth}"))))
            });
        }
    });
    assert_eq!(engine.board().counters.message, 400);
    assert_eq!(folded(&engine), *engine.board());
    engine.shutdown();
}

#[test]
fn a_full_queue_holds_callers_back() {
    let mut world = World::new(append_own_name);
    world.settings.queue_capacity = 2;
    let life = EngineLife::new();
    let engine = world.start_in(&life).unwrap();
    let commit = life.hold_next("store.commit");
    let first = start_submit(&engine, person_request(post("being committed")));
    commit.wait_until_reached();
    let queued = [
        start_submit(&engine, person_request(post("queued"))),
        start_submit(&engine, person_request(post("queued too"))),
    ];
    let abandoned = start_submit(&engine, person_request(post("held back and given up")));
    let waiting = start_submit(&engine, person_request(post("held back and patient")));
    drop(abandoned);
    commit.release();
    block_on(first).unwrap();
    for answer in queued {
        block_on(answer).unwrap();
    }
    block_on(waiting).unwrap();
    assert_eq!(
        engine.board().counters.message,
        4,
        "a request that was given up before it was queued was executed"
    );
    engine.shutdown();
}

/// Deferred work of the store is done when the engine is idle, and repeated after a failure.
#[test]
fn a_store_that_is_behind_catches_up_when_the_engine_is_idle() {
    let (world, life) = (World::new(append_own_name), EngineLife::new());
    let engine = world.start_in(&life).unwrap();
    submit(&engine, add_project());
    world.store.set_behind(1);
    let flush = life.hold_next("store.rest");
    submit(&engine, add_task("a"));
    flush.wait_until_reached();
    assert!(world.store.has_deferred_rows());
    let next = start_submit(&engine, person_request(add_task("b")));
    flush.release();
    block_on(next).unwrap();
    life.wait_until("the store is no longer behind", || {
        !world.store.has_deferred_rows()
    });
    submit(&engine, add_task("c"));
    life.wait_until("the store is not behind after the next commit", || {
        !world.store.has_deferred_rows()
    });
    assert_eq!(engine.board().tasks.len(), 3);
    engine.shutdown();
}

/// J9: the same key gives the same answer, before a restart and after it.
#[test]
fn j9_the_same_key_gives_the_same_answer_after_a_restart() {
    let world = World::new(append_own_name);
    let engine = world.start();
    submit(&engine, add_project());
    let first = engine.submit(keyed_request("k1", add_task("a"))).unwrap();
    let revision = engine.board().revision;
    assert_eq!(
        engine
            .submit(keyed_request("k1", add_task("a")))
            .unwrap()
            .outcome,
        first.outcome
    );
    assert_eq!(engine.board().revision, revision);
    engine.shutdown();

    let engine = world.start();
    assert_eq!(
        engine
            .submit(keyed_request("k1", add_task("a")))
            .unwrap()
            .outcome,
        first.outcome
    );
    assert_eq!(
        engine
            .submit(keyed_request("k2", add_task("a")))
            .unwrap()
            .outcome,
        CommandOutcome::Task(TaskId(2))
    );
    assert_eq!(engine.board().tasks.len(), 2);
    engine.shutdown();
}

/// J9: the key also covers two copies of a request in one batch.
#[test]
fn j9_the_same_key_twice_in_one_batch_executes_once() {
    let (world, life) = (World::new(append_own_name), EngineLife::new());
    let engine = world.start_in(&life).unwrap();
    let commit = life.hold_next("store.commit");
    let first = start_submit(
        &engine,
        person_request(Command::SetLimits {
            limits: MachineLimits {
                max_attempts: 3,
                ..MachineLimits::default()
            },
        }),
    );
    commit.wait_until_reached();
    let [first_copy, second_copy] =
        [0, 1].map(|_| start_submit(&engine, keyed_request("k", post("once"))));
    commit.release();
    block_on(first).unwrap();
    assert_eq!(
        block_on(first_copy).unwrap().outcome,
        block_on(second_copy).unwrap().outcome
    );
    assert_eq!(engine.board().counters.message, 1);
    engine.shutdown();
}
