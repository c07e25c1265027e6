//! Crash tests: a crash between every two steps of the engine.
//!
//! A step is the moment before or after the effect of a call into a port. The scenario first runs
//! once to count the steps. Then it runs once for each step: the engine is killed there, and
//! another one is started on the state that is left.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use regatta_core::attempt::AttemptCause;
use regatta_core::board::Board;
use regatta_core::command::{Command, CommandOutcome, Request};
use regatta_core::ids::{AttemptId, TaskId};
use regatta_engine::ports::agents::Exit;
use regatta_engine::ports::git::{ProjectRepo, WorkspaceGit};
use regatta_engine::ports::store::Store;
use regatta_engine::{CommandFailure, Engine};
use regatta_testkit::crash_points::EngineLife;
use regatta_testkit::fake_agents::FakeProgram;

use crate::support::*;
use crate::workspaces::{ready_project, repo, settings};

/// A scenario: the requests of the client, the programs' work, and the conditions at the end.
#[derive(Clone, Copy)]
struct Scenario {
    commands: fn() -> Vec<Command>,
    /// Returns whether the client may send its nth request.
    can_send: fn(usize, &Board) -> bool,
    program: fn(&FakeProgram) -> Exit,
    assert_done_once: fn(&World, &Engine),
    task_count: u64,
}

impl Scenario {
    fn requests(self) -> Vec<Request> {
        (1..)
            .zip((self.commands)())
            .map(|(nth, command)| keyed_request(&format!("client-{nth}"), command))
            .collect()
    }
}

/// Three tasks and two agents. The second task's first program works while a person commits to the
/// same file, so its landing conflicts. The third task depends on the first.
const THREE_TASKS: Scenario = Scenario {
    commands: || {
        let plan = vec![
            planned("a", "a", &[]),
            planned("b", "b", &[]),
            planned("c", "c", &[0]),
        ];
        vec![
            add_project(),
            register("ann"),
            register("bob"),
            mission(&["ann", "bob"], plan),
        ]
    },
    can_send: |_, _| true,
    program: |program| {
        if program.task() == "T2" && program.run_number() == 1 {
            program
                .git()
                .commit_as_person(Path::new(REPO), "b", "a person's\n");
        }
        if program.task() == "T3" {
            assert_eq!(
                program.read("a"),
                "T1\n",
                "J5: the task starts without the work it depends on"
            );
        }
        append_own_name(program)
    },
    assert_done_once: assert_three_landed,
    task_count: 3,
};

/// Two tasks in one wave and one in the next, with one commit per wave.
const ONE_COMMIT_PER_WAVE: Scenario = Scenario {
    commands: || {
        let plan = vec![
            planned("a", "a", &[]),
            planned("b", "b", &[]),
            planned("c", "c", &[0]),
        ];
        vec![
            add_project(),
            register("ann"),
            register("bob"),
            wave_mission(&["ann", "bob"], plan),
        ]
    },
    can_send: |_, _| true,
    program: append_own_name,
    assert_done_once: |world, engine| {
        let log = world.git.commit_messages(Path::new(REPO));
        assert_eq!(log, ["first", "All of it: wave 1 of M1", "Change c"], "Q7");
        assert_eq!(world.git.trunk_moves().len(), 2, "Q7");
        let landed = |id: u64| {
            engine
                .history()
                .task(TaskId(id))
                .unwrap()
                .unwrap()
                .landed
                .unwrap()
        };
        assert_eq!(
            landed(1),
            landed(2),
            "the tasks of a wave landed as different commits"
        );
        assert_eq!(event_counter(engine)("attempt.started"), 3, "J8");
    },
    task_count: 3,
};

/// One task whose first attempt never ends by itself and is stopped. The second attempt lands.
const ONE_STOP: Scenario = Scenario {
    commands: || {
        let plan = vec![planned("a", "a", &[])];
        let stop = Command::StopTask {
            task: TaskId(1),
            reason: "again, please".into(),
            pause: false,
        };
        vec![
            add_project(),
            register("ann"),
            mission(&["ann"], plan),
            stop,
        ]
    },
    can_send: |nth, board| nth < 3 || board.counters.attempt > 0,
    program: |program| {
        if program.attempt() == AttemptId(1) {
            program.hang_until_stopped()
        } else {
            append_own_name(program)
        }
    },
    assert_done_once: assert_stopped_and_landed,
    task_count: 1,
};

/// One task in a project whose workspaces have a copied file, two setup commands and ports.
const PREPARED_WORKSPACE: Scenario = Scenario {
    commands: || {
        vec![
            ready_project(),
            register("ann"),
            mission(&["ann"], vec![planned("a", "a", &[])]),
        ]
    },
    can_send: |_, _| true,
    program: |program| {
        let repo = ProjectRepo {
            workspace: settings().workspace,
            ..repo()
        };
        assert!(
            program.git().is_ready(&repo, program.attempt()),
            "the program started before its workspace was ready"
        );
        assert!(
            program
                .launch()
                .env
                .iter()
                .any(|(name, _)| name == "REGATTA_PORT_1"),
            "{:?}",
            program.launch().env
        );
        append_own_name(program)
    },
    assert_done_once: |world, engine| {
        assert_eq!(world.git.trunk(Path::new(REPO))["a"], "T1\n");
        assert_eq!(
            (
                world.git.trunk_moves().len(),
                world.agents.program_counts()["T1"]
            ),
            (1, 1),
            "J8"
        );
        assert_eq!(event_counter(engine)("attempt.started"), 1, "J8");
    },
    task_count: 1,
};

/// A client that repeats its requests until it is answered, across engines.
#[derive(Default)]
struct Client {
    answers: Vec<CommandOutcome>,
    /// The newest revision in an answer.
    revision: u64,
}

impl Client {
    /// Sends the remaining requests. Stops at the first request without an answer.
    fn send_requests(
        &mut self,
        scenario: Scenario,
        engine: &Engine,
        world: &World,
        life: &EngineLife,
    ) -> bool {
        for (nth, request) in scenario
            .requests()
            .into_iter()
            .enumerate()
            .skip(self.answers.len())
        {
            let can_send = || (scenario.can_send)(nth, &world.store.clone().load().unwrap().board);
            life.wait_until("the client may ask", || life.is_over() || can_send());
            match engine.submit(request) {
                // The threads of a killed engine still run here and can answer, so their answers
                // are ignored.
                _ if life.is_over() => return false,
                Ok(reply) => {
                    self.revision = self.revision.max(reply.revision);
                    self.answers.push(reply.outcome);
                }
                Err(CommandFailure::Store(_) | CommandFailure::Stopping) => return false,
                Err(failure) => panic!("{failure:?}"),
            }
        }
        true
    }
}

/// The result of one run.
struct Run {
    /// The number of lives that ended at their step.
    crashes: usize,
    /// The number of steps of the last life.
    steps: usize,
    ended_engines: Vec<JoinHandle<()>>,
}

/// Runs the scenario through lives that end at these steps, and then one that does not end.
fn run(scenario: Scenario, ends: &[usize]) -> Run {
    let world = World::new(scenario.program);
    let mut client = Client::default();
    let mut result = Run {
        crashes: 0,
        steps: 0,
        ended_engines: vec![],
    };
    for end in ends.iter().copied().map(Some).chain([None]) {
        let life = end.map_or_else(EngineLife::new, EngineLife::until_step);
        let is_done = run_life(
            scenario,
            &world,
            &life,
            &mut client,
            &mut result.ended_engines,
        );
        result.crashes += usize::from(life.is_over());
        result.steps = life.step_count();
        if is_done {
            break; // the scenario ended before the step at which the engine should be killed
        }
    }
    result
}

/// Runs one life. Returns `true` if everything was done in it.
fn run_life(
    scenario: Scenario,
    world: &World,
    life: &EngineLife,
    client: &mut Client,
    ended_engines: &mut Vec<JoinHandle<()>>,
) -> bool {
    let Ok(engine) = world.start_in(life) else {
        assert!(life.is_over());
        return false;
    };
    assert!(
        engine.board().revision >= client.revision,
        "D1: the client has seen revision {}",
        client.revision
    );
    let has_sent_all = client.send_requests(scenario, &engine, world, life);
    assert!(has_sent_all || life.is_over());
    // Reads the store, because the board is published one step after it is stored.
    let is_done = || {
        let stored = world.store.clone().load().unwrap();
        client.answers.len() == scenario.requests().len()
            && stored.board.counters.task == scenario.task_count
            && stored.board.tasks.is_empty()
            && stored.outbox.is_empty()
    };
    life.wait_until("everything is done", || life.is_over() || is_done());
    if !life.is_over() {
        // The store has the result one step before the engine does, and that step may be its last.
        // Another request to the writer is answered after that step.
        let _answered = engine.submit(scenario.requests().remove(0));
    }
    if life.is_over() {
        // The threads of killed engines end by themselves in the background.
        ended_engines.push(std::thread::spawn(move || engine.shutdown()));
        return false;
    }
    let revision = world.store.clone().load().unwrap().board.revision;
    wait_until(&engine, "the last revision is published", |board| {
        board.revision == revision
    });
    assert_clean(&engine, world);
    (scenario.assert_done_once)(world, &engine);
    // D1, J9: every acknowledged result exists, and repeating a request does nothing.
    for (request, answer) in scenario.requests().into_iter().zip(&client.answers) {
        assert_eq!(engine.submit(request).unwrap().outcome, *answer, "J9");
    }
    assert_eq!(engine.board().revision, revision, "J9");
    ended_engines.push(std::thread::spawn(move || engine.shutdown()));
    true
}

fn event_counter(engine: &Engine) -> impl Fn(&str) -> usize {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for event in engine.history().events(0, usize::MAX).unwrap() {
        *counts.entry(event.event.kind()).or_default() += 1;
    }
    move |kind| counts.get(kind).copied().unwrap_or(0)
}

fn assert_three_landed(world: &World, engine: &Engine) {
    let trunk = world.git.trunk(Path::new(REPO));
    let expected = [
        ("README", "shop\n"),
        ("a", "T1\n"),
        ("b", "a person's\nT2\n"),
        ("c", "T3\n"),
    ];
    assert!(
        trunk
            .iter()
            .map(|(path, content)| (path.as_str(), content.as_str()))
            .eq(expected),
        "{trunk:?}"
    );
    // At most one move for each landing, and one commit for each task and the person (Q7). The
    // fakes check Q1 and Q2.
    assert!(
        world.git.trunk_moves().len() <= 3,
        "Q7: {:?}",
        world.git.trunk_moves()
    );
    assert_eq!(world.git.commit_messages(Path::new(REPO)).len(), 5, "Q7");
    // No crash cost or repeated an attempt (J2, J8).
    let programs: Vec<_> = world.agents.program_counts().into_iter().collect();
    assert_eq!(
        programs,
        [("T1".into(), 1), ("T2".into(), 2), ("T3".into(), 1)],
        "J8"
    );
    let count = event_counter(engine);
    assert_eq!(
        (
            count("attempt.started"),
            count("attempt.ended"),
            count("task.completed")
        ),
        (4, 4, 3),
        "J6, J7"
    );
    assert_eq!(
        (
            count("landing.landed"),
            count("landing.ended"),
            count("mission.ended")
        ),
        (3, 1, 1),
        "Q8"
    );
    for attempt in (1..=4).map(AttemptId) {
        assert_eq!(
            engine
                .history()
                .attempt(attempt)
                .unwrap()
                .unwrap()
                .end
                .unwrap()
                .cause,
            AttemptCause::Submitted,
            "J6"
        );
    }
}

fn assert_stopped_and_landed(world: &World, engine: &Engine) {
    assert_eq!(world.git.trunk(Path::new(REPO))["a"], "T1\n");
    assert_eq!(
        (
            world.git.trunk_moves().len(),
            world.git.commit_messages(Path::new(REPO)).len()
        ),
        (1, 2),
        "Q7"
    );
    let causes = [1, 2].map(|id| {
        engine
            .history()
            .attempt(AttemptId(id))
            .unwrap()
            .unwrap()
            .end
            .unwrap()
            .cause
    });
    assert_eq!(
        causes,
        [AttemptCause::Stopped, AttemptCause::Submitted],
        "J6"
    );
    let count = event_counter(engine);
    assert_eq!(
        (
            count("attempt.started"),
            count("attempt.stopping"),
            count("landing.landed")
        ),
        (2, 1, 1),
        "J8"
    );
}

/// Runs many plans, a few at a time. A failure names its plan.
fn run_all(scenario: Scenario, plans: &[Vec<usize>]) -> usize {
    let (next, crashes, ended_engines) = (
        AtomicUsize::new(0),
        AtomicUsize::new(0),
        Mutex::new(Vec::new()),
    );
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                while let Some(plan) = plans.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let result = std::panic::catch_unwind(|| run(scenario, plan));
                    let result = result
                        .unwrap_or_else(|_| panic!("with engines killed at the steps {plan:?}"));
                    crashes.fetch_add(result.crashes, Ordering::SeqCst);
                    ended_engines.lock().unwrap().extend(result.ended_engines);
                }
            });
        }
    });
    for thread in ended_engines.into_inner().unwrap() {
        thread.join().unwrap();
    }
    crashes.into_inner()
}

/// Kills one engine at each step, and checks that about as many were killed.
fn crash_everywhere(scenario: Scenario) -> String {
    let steps = run(scenario, &[]).steps;
    // The number of steps varies a little between runs, because threads interleave differently. An
    // engine that finishes before its step is not killed.
    let crashes = run_all(
        scenario,
        &(1..=steps + 10).map(|step| vec![step]).collect::<Vec<_>>(),
    );
    assert!(
        steps > 40 && crashes > steps * 8 / 10,
        "only {crashes} engines were killed in about {steps} steps"
    );
    format!("{steps} steps, {crashes} engines killed, one in each run")
}

#[test]
fn a_crash_at_any_step_loses_nothing_and_repeats_nothing() {
    println!("{}", crash_everywhere(THREE_TASKS));
}

#[test]
fn a_crash_at_any_step_does_not_split_a_wave() {
    println!("{}", crash_everywhere(ONE_COMMIT_PER_WAVE));
}

#[test]
fn a_crash_at_any_step_of_a_stop_leaves_nothing_running() {
    println!("{}", crash_everywhere(ONE_STOP));
}

#[test]
fn a_crash_at_any_step_of_preparing_a_workspace_starts_nothing_early() {
    println!("{}", crash_everywhere(PREPARED_WORKSPACE));
}

/// D2: recovery is idempotent under repeated crashes.
#[test]
fn d2_a_crash_during_the_recovery_from_a_crash_changes_nothing() {
    for scenario in [THREE_TASKS, ONE_STOP] {
        let mut plans = Vec::new();
        for first in (2..run(scenario, &[]).steps).step_by(5) {
            plans.extend([1, 2, 4, 5, 7, 9, 12, 16].map(|second| vec![first, second]));
            plans.push(vec![first, 3, 3, 6, 10]);
        }
        let crashes = run_all(scenario, &plans);
        println!("{} runs, {crashes} engines killed", plans.len());
        assert!(crashes > plans.len());
    }
}
