//! A crash between every two steps of the engine.
//!
//! A step is every call into a port, before and after its effect. The scenario runs once to see how many there are,
//! and then once for each of them with the engine killed there and another started on what is left.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use regatta_core::command::{Command, Outcome, Request};
use regatta_core::event::Event;
use regatta_core::ids::TaskId;
use regatta_core::task::Status;
use regatta_engine::ports::agents::Exit;
use regatta_engine::ports::store::Store;
use regatta_engine::{Engine, Failure};
use regatta_testkit::fake_agents::Program;
use regatta_testkit::steps::Life;

use crate::support::*;

/// What the client asks, one after the other, each under a key of its own.
fn commands() -> Vec<Request> {
    let plan = vec![planned("a", "a", &[]), planned("b", "b", &[]), planned("c", "c", &[0])];
    let all: [Command; 4] = [add_project(), register("ann"), register("bob"), mission(&["ann", "bob"], plan)];
    (1..).zip(all).map(|(nth, it)| keyed(&format!("client-{nth}"), it)).collect()
}

/// The second task's first program works while a person commits to the same file: that one conflicts.
fn program(program: &Program) -> Exit {
    if program.task() == "T2" && program.nth() == 1 {
        program.git().person_commits(Path::new(REPO), "b", "a person's\n");
    }
    if program.task() == "T3" {
        assert_eq!(program.read("a"), "T1\n", "J5: it starts from what it depends on");
    }
    append_own_name(program)
}

/// A client that keeps asking until it is answered, across engines.
#[derive(Default)]
struct Client {
    answers: Vec<Outcome>,
    /// The newest revision it was told.
    revision: u64,
}

impl Client {
    /// Asks what is left to ask; stops at the first answer that does not come.
    fn talk(&mut self, engine: &Engine) -> bool {
        for request in commands().into_iter().skip(self.answers.len()) {
            match engine.submit(request) {
                Ok(reply) => {
                    self.revision = self.revision.max(reply.revision);
                    self.answers.push(reply.outcome);
                }
                Err(Failure::Store(_) | Failure::Stopping) => return false,
                Err(refused) => panic!("{refused:?}"),
            }
        }
        true
    }
}

/// What became of one run.
struct Run {
    /// How many lives ended where they should.
    deaths: usize,
    /// The steps of the last life.
    steps: usize,
    funerals: Vec<JoinHandle<()>>,
}

/// Runs the scenario through lives that end at these steps, and then one that does not end.
fn run(ends: &[usize]) -> Run {
    let world = World::new(program);
    let mut client = Client::default();
    let mut run = Run { deaths: 0, steps: 0, funerals: vec![] };
    for end in ends.iter().copied().map(Some).chain([None]) {
        let life = end.map_or_else(Life::new, Life::until_step);
        let lived = live(&world, &life, &mut client, &mut run.funerals);
        run.deaths += usize::from(life.is_over());
        run.steps = life.steps();
        if lived {
            break; // it was done before its time came
        }
    }
    run
}

/// One life. `true` when everything was done in it.
fn live(world: &World, life: &Life, client: &mut Client, funerals: &mut Vec<JoinHandle<()>>) -> bool {
    let Ok(engine) = world.start_in(life) else {
        assert!(life.is_over());
        return false;
    };
    assert!(engine.board().revision >= client.revision, "D1: the client was told of revision {}", client.revision);
    let all_said = client.talk(&engine);
    assert!(all_said || life.is_over());
    // Asked of the store, since the board is shown after the step in which it is stored.
    let done = || {
        let stored = world.store.clone().load().unwrap();
        stored.board.counters.task == 3 && stored.board.tasks.is_empty() && stored.outbox.is_empty()
    };
    life.until("everything is done", || life.is_over() || done());
    if life.is_over() {
        // The dead hold up nobody: their threads end by themselves, in the background.
        funerals.push(std::thread::spawn(move || engine.shutdown()));
        return false;
    }
    let revision = world.store.clone().load().unwrap().board.revision;
    until(&engine, "all of it is shown", |board| board.revision == revision);
    assert_all_done_once(world, &engine, client);
    funerals.push(std::thread::spawn(move || engine.shutdown()));
    true
}

fn assert_all_done_once(world: &World, engine: &Engine, client: &Client) {
    assert_clean(engine, world);
    let trunk = world.git.trunk(Path::new(REPO));
    let expected = [("README", "shop\n"), ("a", "T1\n"), ("b", "a person's\nT2\n"), ("c", "T3\n")];
    assert!(trunk.iter().map(|(path, content)| (path.as_str(), content.as_str())).eq(expected), "{trunk:?}");
    // One move for each landing that landed, and one commit for each task and the person (Q7; Q1 and Q2 are the judge's).
    assert_eq!(world.git.moves().len(), 3, "Q7");
    assert_eq!(world.git.log(Path::new(REPO)).len(), 5, "Q7");
    // No crash cost an attempt or repeated one (J2, J8).
    let programs: Vec<_> = world.agents.programs().into_iter().collect();
    assert_eq!(programs, [("T1".into(), 1), ("T2".into(), 2), ("T3".into(), 1)], "J8");
    let events = engine.history().events(0, usize::MAX).unwrap();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for it in &events {
        *counts.entry(it.event.kind()).or_default() += 1;
    }
    let count = |kind| counts.get(kind).copied().unwrap_or(0);
    assert_eq!((count("attempt.started"), count("attempt.ended"), count("task.completed")), (4, 4, 3), "J6, J7");
    assert_eq!((count("landing.landed"), count("landing.ended"), count("mission.ended")), (3, 1, 1), "Q8");
    assert!(events.iter().all(|it| !matches!(&it.event, Event::AttemptEnded(it) if it.detail().contains("over"))));
    for id in 1..=3 {
        assert_eq!(engine.history().task(TaskId(id)).unwrap().unwrap().status, Status::Completed);
    }
    // D1, J9: everything the client was told is there, and asking again does nothing.
    let revision = engine.board().revision;
    for (request, answer) in commands().into_iter().zip(&client.answers) {
        assert_eq!(engine.submit(request).unwrap().outcome, *answer, "J9");
    }
    assert_eq!((client.answers.len(), engine.board().revision), (4, revision), "J9");
}

/// Runs many, a few at a time; every failure says where it was.
fn run_all(plans: Vec<Vec<usize>>) -> usize {
    let (next, deaths, funerals) = (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                while let Some(plan) = plans.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let ran = std::panic::catch_unwind(|| run(plan))
                        .unwrap_or_else(|_| panic!("with engines killed at the steps {plan:?}"));
                    deaths.fetch_add(ran.deaths, Ordering::SeqCst);
                    funerals.lock().unwrap().extend(ran.funerals);
                }
            });
        }
    });
    for thread in funerals.into_inner().unwrap() {
        thread.join().unwrap();
    }
    deaths.into_inner()
}

#[test]
fn a_crash_between_every_two_steps_loses_nothing_and_repeats_nothing() {
    let whole = run(&[]);
    assert!(whole.steps > 80, "the scenario has only {} steps", whole.steps);
    // The count varies by a few, since threads meet differently: a life that is done early just does not end.
    let last = whole.steps + 10;
    let deaths = run_all((1..=last).map(|step| vec![step]).collect());
    assert!(deaths > whole.steps - 20, "only {deaths} of about {} engines were killed", whole.steps);
    println!("{} steps, {deaths} engines killed, one in each run", whole.steps);
}

/// D2: recovery is idempotent under repeated crashes.
#[test]
fn d2_a_crash_during_the_recovery_from_a_crash_changes_nothing() {
    let steps = run(&[]).steps;
    let mut plans = Vec::new();
    for first in (2..steps).step_by(7) {
        for second in [1, 2, 4, 5, 7, 9, 12, 16] {
            plans.push(vec![first, second]);
        }
        plans.push(vec![first, 3, 3, 6, 10]);
    }
    let deaths = run_all(plans.clone());
    println!("{} runs, {deaths} engines killed", plans.len());
    assert!(deaths > plans.len());
}
