//! Tests of shutdown, stop and restart: programs outlive the engine, and nothing is done twice.

use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use regatta_core::attempt::AttemptCause;
use regatta_core::board::Board;
use regatta_core::command::Command;
use regatta_core::ids::{AttemptId, TaskId};
use regatta_core::task::TaskStatus;
use regatta_engine::ports::agents::Exit;
use regatta_engine::{CommandFailure, Engine, Ports};
use regatta_testkit::crash_points::{EngineLife, StoreInLife};
use regatta_testkit::fake_agents::FakeProgram;
use regatta_testkit::fake_store::CommitFault;

use crate::support::*;

const FIRST_ATTEMPT: AttemptId = AttemptId(1);

/// A program that works until the test releases it.
fn run_until_released(program: &FakeProgram) -> Exit {
    program
        .wait_for("go")
        .map_or_else(|exit| exit, |()| append_own_name(program))
}

fn start_unfinished_attempt(world: &World, life: &EngineLife) -> Engine {
    let engine = world.start_in(life).unwrap();
    launch(&engine, &["ann"], vec![planned("a", "a", &[])]);
    world.agents.wait_until_started(FIRST_ATTEMPT);
    engine
}

fn finish_once(world: &World) {
    let life = EngineLife::new();
    let engine = world.start_in(&life).unwrap();
    world.agents.release("go");
    wait_until_done(&engine, &life, world);
    assert_eq!(world.git.trunk(Path::new(REPO))["a"], "T1\n");
    assert_eq!(
        (
            world.agents.program_counts()["T1"],
            world.agents.start_requests(FIRST_ATTEMPT),
            world.git.trunk_moves().len()
        ),
        (1, 1, 1)
    );
    assert_clean(&engine, world);
    engine.shutdown();
}

#[test]
fn shutdown_answers_all_queued_requests() {
    let (world, life) = (World::new(append_own_name), EngineLife::new());
    let engine = world.start_in(&life).unwrap();
    let commit = life.hold_next("store.commit");
    let first = start_submit(&engine, person_request(post("being committed")));
    commit.wait_until_reached();
    let queued: Vec<_> = (0..20)
        .map(|nth| start_submit(&engine, person_request(post(&format!("{nth}")))))
        .collect();
    let stopping = std::thread::spawn({
        let engine = engine.clone();
        move || engine.shutdown()
    });
    commit.release();
    block_on(first).unwrap();
    for answer in queued {
        block_on(answer).unwrap();
    }
    stopping.join().unwrap();
    assert_eq!(
        engine.submit(person_request(post("too late"))),
        Err(CommandFailure::Stopping)
    );
    assert_eq!(engine.board().counters.message, 21);
}

/// J11: a clean restart changes nothing except the record of the restart.
#[test]
fn j11_a_clean_restart_changes_nothing() {
    let world = World::new(append_own_name);
    let engine = world.start();
    submit(&engine, add_project());
    submit(&engine, register("ann"));
    submit(&engine, add_task("a"));
    granted(&submit(
        &engine,
        Command::Acquire(acquire("ann", "file://shop/b", 0)),
    ));
    let before = engine.board();
    engine.shutdown();
    let engine = world.start();
    let mut after = Board::clone(&engine.board());
    after.revision = before.revision;
    assert_eq!(after, *before);
    engine.shutdown();
}

/// P1: a daemon that shuts down ends no agent. The next daemon re-attaches to it, and the work is
/// done once.
#[test]
fn p1_programs_continue_without_the_engine() {
    let world = World::new(run_until_released);
    start_unfinished_attempt(&world, &EngineLife::new()).shutdown();
    assert_eq!(world.agents.running(), [FIRST_ATTEMPT]);
    finish_once(&world);
}

#[test]
fn p1_a_program_that_ended_without_an_engine_is_found() {
    let world = World::new(run_until_released);
    start_unfinished_attempt(&world, &EngineLife::new()).shutdown();
    world.agents.release("go");
    finish_once(&world);
}

/// P1: the same after `kill -9`.
#[test]
fn p1_a_killed_engine_ends_no_program() {
    let (world, life) = (World::new(run_until_released), EngineLife::new());
    let killed = start_unfinished_attempt(&world, &life);
    life.end();
    finish_once(&world);
    killed.shutdown();
}

#[test]
fn a_lost_program_does_not_count_as_a_failure() {
    let world = World::new(|program| {
        if program.run_number() == 1 {
            run_until_released(program)
        } else {
            append_own_name(program)
        }
    });
    start_unfinished_attempt(&world, &EngineLife::new()).shutdown();
    world.agents.cut_power(FIRST_ATTEMPT);
    let life = EngineLife::new();
    let engine = world.start_in(&life).unwrap();
    wait_until_done(&engine, &life, &world);
    let ended = engine
        .history()
        .attempt(FIRST_ATTEMPT)
        .unwrap()
        .unwrap()
        .end
        .unwrap();
    assert_eq!(
        (
            ended.cause,
            engine.history().task(TaskId(1)).unwrap().unwrap().failures
        ),
        (AttemptCause::Lost, 0)
    );
    assert_clean(&engine, &world);
    engine.shutdown();
}

/// J2: when the next engine cannot read a program's state, it does not start another program beside
/// it.
#[test]
fn j2_a_program_with_an_unreadable_state_is_ended_before_the_next_one_starts() {
    let world = World::new(|program| {
        if program.run_number() == 1 {
            program.hang_until_stopped()
        } else {
            append_own_name(program)
        }
    });
    start_unfinished_attempt(&world, &EngineLife::new()).shutdown();
    let life = EngineLife::new();
    life.fail_next("agents.state", "the run directory cannot be read");
    let engine = world.start_in(&life).unwrap();
    wait_until_done(&engine, &life, &world);
    assert_eq!(world.agents.program_counts()["T1"], 2);
    assert_clean(&engine, &world);
    engine.shutdown();
}

/// Q7: the trunk moved, the report was lost, and a person has committed on top since.
#[test]
fn q7_work_that_landed_before_a_crash_is_not_landed_again() {
    let (world, life) = (World::new(append_own_name), EngineLife::new());
    let killed = world.start_in(&life).unwrap();
    // the report of the move is then the only further commit
    let unreported = life.hold_next("git.unkept");
    launch(&killed, &["ann"], vec![planned("a", "a", &[])]);
    unreported.wait_until_reached();
    life.wait_until("the trunk has moved", || {
        !world.git.trunk_moves().is_empty()
    });
    life.end();
    world.git.commit_as_person(Path::new(REPO), "b", "on top\n");

    let life = EngineLife::new();
    let engine = world.start_in(&life).unwrap();
    wait_until_done(&engine, &life, &world);
    assert_eq!(world.git.trunk_moves().len(), 1);
    assert_eq!(
        world.git.commit_messages(Path::new(REPO)),
        ["first", "Change a", "a person's"]
    );
    assert_clean(&engine, &world);
    engine.shutdown();
    killed.shutdown();
}

/// P3: a stop leaves nothing running. The tasks wait again, and finished work is kept.
#[test]
fn p3_stop_leaves_nothing_running() {
    let world = World::new(|program| {
        program.append("a", "half\n");
        if program.task() == "T1" {
            program.hang_until_stopped()
        } else {
            program.hang_until_killed()
        }
    });
    let engine = world.start();
    launch(
        &engine,
        &["ann", "bob"],
        vec![planned("a", "a", &[]), planned("b", "b", &[])],
    );
    world.agents.wait_until_started(FIRST_ATTEMPT);
    world.agents.wait_until_started(AttemptId(2));
    assert_eq!(
        engine.stop_attempts("enough"),
        Ok(vec![]),
        "programs still run"
    );
    assert_eq!(world.agents.running(), []);
    let board = engine.board();
    assert!(board.attempts.is_empty() && board.claims.is_empty());
    assert!(
        board
            .tasks
            .values()
            .all(|task| task.status == TaskStatus::Unassigned && task.failures == 0)
    );
    engine.shutdown();
    // The sweep continues at the next start and loses nothing.
    let life = EngineLife::new();
    let engine = world.start_in(&life).unwrap();
    life.wait_until("the old workspaces are gone", || {
        !world.git.captures_of(FIRST_ATTEMPT).is_empty()
            && !world.git.workspaces().contains(&FIRST_ATTEMPT)
    });
    assert_eq!(world.git.captures_of(FIRST_ATTEMPT)[0]["a"], "half\n");
    engine.stop_attempts("enough").unwrap();
    engine.shutdown();
    assert_eq!(world.agents.running(), []);
    world.git.assert_no_violations();
}

/// P10: while the store fails, neither the stop nor the end of a program is recorded. Only the
/// processes count. The next start records the end, and the work continues (J1).
#[test]
fn p10_a_stop_counts_processes_and_not_the_board() {
    let (mut world, life) = (
        World::new(FakeProgram::hang_until_stopped),
        EngineLife::new(),
    );
    // A wait for the board would take an hour here.
    world.settings.stop_grace = Some(Duration::from_secs(3_600));
    let engine = start_unfinished_attempt(&world, &life);
    life.wait_until("the program is watched", || {
        life.call_count("agents.attend") > 0
    });
    world.store.set_full(true);
    assert_eq!(
        engine.stop_attempts("enough"),
        Ok(vec![]),
        "programs still run"
    );
    assert_eq!(world.agents.running(), []);
    assert_eq!(
        engine.board().attempts.len(),
        1,
        "the end was recorded although the store fails"
    );
    engine.shutdown();

    world.store.set_full(false);
    let life = EngineLife::new();
    let engine = world.start_in(&life).unwrap();
    life.wait_until("the end is recorded", || {
        !engine.board().attempts.contains_key(&FIRST_ATTEMPT)
    });
    assert_eq!(engine.stop_attempts("enough"), Ok(vec![]));
    engine.shutdown();
}

/// P10: a program that continues is counted although the store fails.
#[test]
fn p10_a_stop_on_a_full_disk_reports_running_programs() {
    let (mut world, life) = (
        World::new(FakeProgram::hang_until_stopped),
        EngineLife::new(),
    );
    world.settings.stop_grace = Some(Duration::from_millis(1));
    let engine = start_unfinished_attempt(&world, &life);
    world.store.set_full(true);
    let stop = life.hold_next("agents.stop");
    let stopping = std::thread::spawn({
        let engine = engine.clone();
        move || engine.stop_attempts("enough")
    });
    stop.wait_until_reached();
    assert_eq!(
        stopping
            .join()
            .unwrap()
            .map(|still_running| still_running.len()),
        Ok(1),
        "the running program is not reported"
    );
    world.store.set_full(false);
    stop.release();
    assert_eq!(engine.stop_attempts("enough"), Ok(vec![]));
    engine.shutdown();
}

/// P3, P10: the same when the store is slower than the engine's polling threads.
#[test]
fn p3_stop_waits_for_a_slow_store() {
    let (world, life) = (
        World::new(FakeProgram::hang_until_stopped),
        EngineLife::new(),
    );
    let engine = start_unfinished_attempt(&world, &life);
    life.wait_until("the program is watched", || {
        life.call_count("agents.attend") > 0
    });
    let commit = life.hold_next("store.commit");
    let stopping = std::thread::spawn({
        let engine = engine.clone();
        move || engine.stop_attempts("enough")
    });
    commit.wait_until_reached();
    commit.release();
    assert_eq!(stopping.join().unwrap(), Ok(vec![]));
    assert_eq!(
        (world.agents.running(), engine.board().attempts.len()),
        (vec![], 0)
    );
    engine.shutdown();
}

/// P3: an attempt that was being granted when the stop came is stopped too.
#[test]
fn p3_a_stop_also_stops_an_attempt_that_is_being_granted() {
    let (world, life) = (
        World::new(FakeProgram::hang_until_stopped),
        EngineLife::new(),
    );
    let engine = world.start_in(&life).unwrap();
    submit(&engine, add_project());
    submit(&engine, register("ann"));
    let commit = life.hold_next("store.commit");
    let started = start_submit(
        &engine,
        person_request(mission(&["ann"], vec![planned("a", "a", &[])])),
    );
    commit.wait_until_reached();
    let grant = life.hold_next("store.commit");
    commit.release();
    block_on(started).unwrap();
    grant.wait_until_reached();
    let (sender, receiver) = mpsc::channel();
    let stopper = engine.clone();
    std::thread::spawn(move || sender.send(stopper.stop_attempts("enough")));
    let early = receiver.recv_timeout(Duration::from_millis(300));
    assert!(
        early.is_err(),
        "the stop returned while an attempt was being granted"
    );
    grant.release();
    receiver.recv().unwrap().unwrap();
    engine.shutdown();
    assert_eq!(world.agents.running(), []);
    assert!(engine.board().attempts.is_empty());
}

/// P10: a failed stop is not reported as done. It does not delay a shutdown, and the next start
/// tries again.
#[test]
fn p10_a_stop_that_failed_is_tried_again() {
    let (world, life) = (
        World::new(FakeProgram::hang_until_stopped),
        EngineLife::new(),
    );
    let engine = start_unfinished_attempt(&world, &life);
    life.wait_until("the program is watched", || {
        life.call_count("agents.attend") > 0
    });
    life.fail_next("agents.stop", "the signal was refused");
    submit(
        &engine,
        Command::StopTask {
            task: TaskId(1),
            reason: "enough".into(),
            pause: false,
        },
    );
    life.wait_until("the stop was tried", || life.call_count("agents.stop") == 1);
    engine.shutdown();
    assert_eq!(
        (world.agents.running(), engine.board().attempts.len()),
        (vec![FIRST_ATTEMPT], 1)
    );

    let engine = world.start();
    wait_until(&engine, "the first attempt has ended", |board| {
        !board.attempts.contains_key(&FIRST_ATTEMPT)
    });
    assert!(!world.agents.running().contains(&FIRST_ATTEMPT));
    engine.stop_attempts("enough").unwrap();
    engine.shutdown();
    world.agents.assert_no_violations();
}

/// A shutdown at any moment joins every thread, and after a restart everything is done once.
#[test]
fn shutdown_at_any_moment_joins_every_thread() {
    let work = |rounds: u64| {
        let world = World::new(append_own_name);
        for round in 0..rounds {
            let life = EngineLife::new();
            let git = Arc::new(world.git.with_life(&life));
            let store = Box::new(StoreInLife::new(&life, world.store.clone()));
            let agents = Arc::new(world.agents.with_life(&life));
            let ports = Ports {
                store,
                git: git.clone(),
                agents,
                clock: Arc::new(world.clock.clone()),
            };
            let engine = Engine::start(ports, world.settings.clone()).unwrap().engine;
            if round == 0 {
                launch(
                    &engine,
                    &["ann", "bob"],
                    (0..6)
                        .map(|nth| planned(&format!("{nth}"), &format!("{nth}"), &[]))
                        .collect(),
                );
            }
            life.wait_until("the engine has done some steps", || {
                life.step_count() > 20 || engine.board().tasks.is_empty()
            });
            engine.shutdown();
            drop(engine);
            assert_eq!(Arc::strong_count(&git), 1, "a thread is left");
        }
        let life = EngineLife::new();
        let engine = world.start_in(&life).unwrap();
        wait_until_done(&engine, &life, &world);
        assert_eq!(
            world.git.commit_messages(std::path::Path::new(REPO)).len(),
            1 + 6,
            "each task landed once"
        );
        assert!(
            world
                .agents
                .program_counts()
                .values()
                .all(|count| *count == 1),
            "{:?}",
            world.agents.program_counts()
        );
        assert_clean(&engine, &world);
        engine.shutdown();
    };
    std::thread::scope(|scope| (0..6).for_each(|_| _ = scope.spawn(|| work(6))));
}

/// A failed start leaves no thread behind.
#[test]
fn a_failed_start_of_the_engine_leaves_no_thread() {
    let world = World::new(append_own_name);
    let error = regatta_engine::ports::store::StoreError {
        code: "disk_full",
        message: "full".into(),
        hint: "free some".into(),
    };
    world
        .store
        .fail_next(CommitFault::BeforeCommit(error.clone()));
    let clock = Arc::new(world.clock.clone());
    let ports = Ports {
        store: Box::new(world.store.clone()),
        git: Arc::new(world.git.clone()),
        agents: Arc::new(world.agents.clone()),
        clock: clock.clone(),
    };
    let failed = Engine::start(ports, world.settings.clone()).err();
    assert_eq!(failed, Some(CommandFailure::Store(error)));
    assert_eq!(Arc::strong_count(&clock), 1, "a thread is left");
}
