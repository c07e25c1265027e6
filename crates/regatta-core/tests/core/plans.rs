//! Whole plans, executed by eight workers in random order and checked with the log.
//!
//! The check sees the plan and the events but not the board, so it is independent of the core's
//! own rules.

use std::collections::{BTreeMap, BTreeSet};

use regatta_core::claim::{Acquired, ClaimOwner};
use regatta_core::command::{Command, CommandOutcome, PlannedTask};
use regatta_core::event::{Event, Recorded};
use regatta_core::ids::{AttemptId, CommitId, TaskId};
use regatta_core::landing::LandingState;
use regatta_core::mission::{StartMission, StartMode};
use regatta_core::pattern::PathPattern;
use regatta_core::project::{self, DerivedFile};
use regatta_core::schedule::{PollGrant, wait_reasons};
use regatta_core::task::AddTask;

use crate::world::{World, acquire, agent, files, shop, task_to_add};

const TASK_COUNT: usize = 60;
const WORKER_COUNT: u32 = 8;
const SEED_COUNT: u64 = 200;

/// A deterministic pseudo-random number generator.
struct PlanRng(u64);

impl PlanRng {
    fn below(&mut self, max: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % max.max(1) as u64) as usize
    }

    fn chance(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }
}

/// A random plan for each seed: a dependency graph, and manifests that are disjoint, shared, nested
/// or patterns, some with lock files.
#[derive(Clone, Debug)]
struct RandomPlan {
    manifests: Vec<Vec<String>>,
    after: Vec<Vec<usize>>,
    mode: StartMode,
    isolate: bool,
    wave_commits: bool,
    serial: Vec<String>,
}

impl RandomPlan {
    fn from_seed(seed: u64, mode: StartMode) -> RandomPlan {
        let mut dice = PlanRng(seed * 2 + u64::from(mode == StartMode::Waves));
        let wave_commits = mode == StartMode::Waves && seed % 2 == 1;
        let isolate = seed % 10 == 9;
        let mut plan = RandomPlan {
            manifests: vec![],
            after: vec![],
            mode,
            isolate,
            wave_commits,
            serial: vec![],
        };
        let shape = seed % 4;
        for nth in 0..TASK_COUNT {
            let mut manifest = vec![match dice.below(8) {
                0 => format!("src/{}/**", dice.below(6)),
                1 => "Cargo.toml".to_owned(),
                2 => format!("src/{}/*.rs", dice.below(6)),
                3 => format!("pkg/{}.go", dice.below(20)),
                _ => format!("src/{}/part{nth}.rs", dice.below(6)),
            }];
            if dice.chance(30) {
                manifest.push(format!("docs/{}.md", dice.below(12)));
            }
            let most = [0, 1, 2, 4][shape as usize];
            let blockers: BTreeSet<usize> = (0..dice.below(most + 1))
                .filter(|_| nth > 0)
                .map(|_| nth - 1 - dice.below(nth.min(12)))
                .collect();
            plan.manifests.push(manifest);
            plan.after.push(blockers.into_iter().collect());
        }
        if dice.chance(50) {
            plan.serial.push("pkg/**".into());
        }
        plan
    }

    fn tasks(&self) -> Vec<PlannedTask> {
        let planned = |nth: usize| {
            let manifest: Vec<&str> = self.manifests[nth].iter().map(String::as_str).collect();
            PlannedTask {
                task: task_to_add(&format!("part {nth}"), &manifest),
                after: self.after[nth].clone(),
                assign: None,
            }
        };
        (0..TASK_COUNT).map(planned).collect()
    }

    /// Returns the patterns that a task holds, computed here independently of the core.
    fn held_paths(&self, nth: usize) -> Vec<PathPattern> {
        let mut all = self.manifests[nth].clone();
        if all.iter().any(|path| path == "Cargo.toml") {
            all.push("Cargo.lock".into());
        }
        if all.iter().any(|path| path.starts_with("pkg/")) {
            all.extend(self.serial.clone());
        }
        files(&all.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn do_overlap(&self, a: usize, b: usize) -> bool {
        let (a, b) = (self.held_paths(a), self.held_paths(b));
        a.iter().any(|x| b.iter().any(|y| x.overlaps(y)))
    }

    /// Returns the length of the longest chain of blockers before each task.
    fn depths(&self) -> Vec<usize> {
        let mut depths = vec![0; TASK_COUNT];
        for nth in 0..TASK_COUNT {
            depths[nth] = self.after[nth]
                .iter()
                .map(|after| depths[*after] + 1)
                .max()
                .unwrap_or(0);
        }
        depths
    }
}

fn start_plan(plan: &RandomPlan) -> World {
    let names: Vec<String> = (0..WORKER_COUNT).map(|n| format!("w{n}")).collect();
    let agents: Vec<(&str, u32)> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let mut world = World::with_agents(&agents);
    world.skips_invariants = true;
    let mut add = world.project("shop", &["make test"]);
    let derived = DerivedFile {
        file: files(&["Cargo.lock"]).remove(0),
        from: files(&["Cargo.toml"]),
    };
    add.settings.run = project::RunSettings {
        derived: vec![derived],
        ..project::RunSettings::default()
    };
    world.ask("ann", Command::AddProject(add));
    let mission = StartMission {
        project: shop(),
        title: "goal".into(),
        agents: names.iter().map(|name| agent(name)).collect(),
        team: None,
        max_workers: WORKER_COUNT,
        mode: plan.mode,
        isolate: plan.isolate,
        wave_commits: plan.wave_commits,
        serial: files(&plan.serial.iter().map(String::as_str).collect::<Vec<_>>()),
        budget: Default::default(),
    };
    let done = world.ask(
        "ann",
        Command::StartMission {
            mission,
            tasks: plan.tasks(),
            adopt: vec![],
        },
    );
    assert!(matches!(done, CommandOutcome::Mission { .. }));
    world
}

/// Executes the plan: idle workers poll, working ones end at random, and finished work lands in the
/// order of the queue.
fn run_plan(plan: &RandomPlan, seed: u64) -> World {
    let mut world = start_plan(plan);
    let mut dice = PlanRng(seed ^ 0x5eed);
    let mut live: Vec<PollGrant> = vec![];
    for turn in 0..TASK_COUNT * 40 {
        if world.board.tasks.is_empty() {
            break;
        }
        if dice.chance(60) {
            live.extend(world.poll(&format!("w{}", dice.below(WORKER_COUNT as usize))));
        } else if !live.is_empty() && dice.chance(70) {
            let grant = live.swap_remove(dice.below(live.len()));
            if dice.chance(10) && world.task(grant.task).failures < 2 {
                world.fail_once(&grant);
            } else {
                world.submit(&grant);
            }
        } else {
            land_one(&mut world);
        }
        // W1: a task that neither runs nor has ended has a wait reason. Checked now and then only,
        // because it takes long.
        for task in world
            .board
            .tasks
            .values()
            .filter(|task| turn % 97 == 0 && !task.status.is_running())
        {
            assert!(
                !wait_reasons(&world.board, task, world.now).is_empty(),
                "W1: {} waits without a reason",
                task.id
            );
        }
    }
    world
}

fn land_one(world: &mut World) {
    let trying = world
        .board
        .landings
        .values()
        .find(|landing| !matches!(landing.state, LandingState::Queued))
        .map(|landing| landing.id);
    if let Some(id) = trying {
        world.move_and_land(id);
    }
}

/// Returns every rule that the log breaks against the plan.
fn broken_rules(plan: &RandomPlan, log: &[Recorded]) -> Vec<String> {
    let mut found = Vec::new();
    let mut working: BTreeMap<AttemptId, usize> = BTreeMap::new();
    let mut of_task: BTreeMap<usize, AttemptId> = BTreeMap::new();
    let mut landing: BTreeSet<usize> = BTreeSet::new();
    let mut done: BTreeSet<usize> = BTreeSet::new();
    let mut carriers: BTreeMap<usize, BTreeSet<CommitId>> = BTreeMap::new();
    let depths = plan.depths();
    let index_of = |id: &TaskId| id.0 as usize - 1;
    for event in log {
        match &event.event {
            Event::TaskStarted(task_started) => {
                let nth = index_of(task_started.task());
                if let Some(missing) = plan.after[nth].iter().find(|on| !done.contains(on)) {
                    found.push(format!("J5: {nth} before {missing}"));
                }
                for other in working.values().chain(&landing).filter(|_| !plan.isolate) {
                    if plan.do_overlap(nth, *other) {
                        found.push(format!("L1: {nth} beside {other}"));
                    }
                }
                if of_task.insert(nth, *task_started.attempt()).is_some() {
                    found.push(format!("J2: {nth} twice at once"));
                }
                if plan.mode == StartMode::Waves {
                    let early = (0..TASK_COUNT)
                        .find(|index| depths[*index] < depths[nth] && !done.contains(index));
                    found.extend(early.map(|early| {
                        format!("wave {} started before {early} was done", depths[nth])
                    }));
                }
                working.insert(*task_started.attempt(), nth);
                if working.len() > WORKER_COUNT as usize {
                    found.push(format!("J4: {} at once", working.len()));
                }
            }
            Event::TaskSubmitted(task_submitted) => {
                _ = landing.insert(index_of(task_submitted.task()))
            }
            Event::AttemptEnded(attempt_ended) => {
                if let Some(nth) = working.remove(attempt_ended.attempt()) {
                    of_task.remove(&nth);
                }
            }
            Event::TaskReturned(task_returned) => {
                _ = landing.remove(&index_of(task_returned.task()))
            }
            Event::TaskCompleted(task_completed) => {
                landing.remove(&index_of(task_completed.task()));
                done.insert(index_of(task_completed.task()));
                carriers
                    .entry(depths[index_of(task_completed.task())])
                    .or_default()
                    .extend(task_completed.landed().clone());
            }
            _ => {}
        }
    }
    if done.len() != TASK_COUNT {
        found.push(format!("J1: {} of {TASK_COUNT} done", done.len()));
    }
    // With `isolate` a wave has no sub-waves. Each sub-wave would have a commit of its own.
    if plan.wave_commits && plan.isolate {
        let torn = carriers.iter().filter(|carrier| carrier.1.len() != 1);
        found
            .extend(torn.map(|torn| format!("wave {} landed as {} commits", torn.0, torn.1.len())));
    }
    found
}

fn check_plans(mode: StartMode) {
    for seed in 0..SEED_COUNT {
        let plan = RandomPlan::from_seed(seed, mode);
        let world = run_plan(&plan, seed);
        assert_eq!(
            broken_rules(&plan, &world.log),
            [""; 0],
            "seed {seed} in {mode:?}"
        );
    }
}

/// J5, L1, J1, J2, J4, W1: 200 seeded plans of 60 tasks and 8 workers.
#[test]
fn j5_l1_200_plans_complete_in_flow() {
    check_plans(StartMode::Flow);
}

/// The same 200 plans in waves. The check covers the barriers between waves, and the single commit
/// of each wave where the plan asks for it.
#[test]
fn j5_l1_200_plans_complete_in_waves() {
    check_plans(StartMode::Waves);
}

/// The check itself finds faults: the log is compared with a plan that has one blocker, one overlap
/// or one wave more.
#[test]
fn the_check_of_plans_finds_planted_faults() {
    for mode in [StartMode::Flow, StartMode::Waves] {
        // A graph without edges and with few overlaps, so that many tasks run at the same time.
        let plan = RandomPlan::from_seed(4, mode);
        let world = run_plan(&plan, 4);
        assert_eq!(broken_rules(&plan, &world.log), [""; 0]);
        let order: Vec<usize> = world
            .log
            .iter()
            .filter_map(|event| match &event.event {
                Event::TaskStarted(task_started) => Some(task_started.task().0 as usize - 1),
                _ => None,
            })
            .collect();
        let saw = |plan: &RandomPlan, log: &[Recorded], rule: &str| {
            assert!(
                broken_rules(plan, log)
                    .iter()
                    .any(|broken_rule| broken_rule.contains(rule)),
                "a broken {rule} in {mode:?} was not found"
            );
        };
        // J5: in the changed plan the first task that started needs the last one.
        let mut wrong = plan.clone();
        wrong.after[order[0]] = vec![order[order.len() - 1]];
        wrong.mode = StartMode::Flow;
        saw(&wrong, &world.log, "J5");
        // L1: in the changed plan all tasks change the same file.
        let mut wrong = plan.clone();
        wrong
            .manifests
            .iter_mut()
            .for_each(|manifests| manifests.push("README.md".into()));
        saw(&wrong, &world.log, "L1");
        // J1: the end of the log is missing.
        saw(&plan, &world.log[..world.log.len() - 20], "J1");
        // Waves: in the changed plan each task belongs to a later wave than the one before.
        let mut wrong = RandomPlan {
            mode: StartMode::Waves,
            ..plan.clone()
        };
        wrong.after = vec![vec![]; TASK_COUNT];
        for nth in 1..TASK_COUNT {
            wrong.after[nth] = vec![nth - 1];
        }
        saw(&wrong, &world.log, "wave");
    }
}

/// With hundreds of tasks for the same files, a poll skips whole groups of tasks at once. It must
/// still give the task that a full scan gives, which the world checks after every command.
#[test]
fn a_poll_that_skips_groups_of_tasks_gives_the_same_task_as_a_full_scan() {
    for seed in 0..3 {
        let mut dice = PlanRng(seed);
        let mut world = World::with_agents(&[("ada", 3), ("bob", 3)]);
        let wants = ["src/settings.rs", "src/**", "src/x/**", "Cargo.lock"];
        let mut planned = |nth: usize| {
            let own_file = format!("src/x/part{nth}.rs");
            let manifest = match dice.below(10) {
                0 => vec![wants[1]],
                1 => vec![wants[2]],
                2..6 => vec![wants[0]],
                6 | 7 => vec![own_file.as_str(), wants[3]],
                _ => vec![own_file.as_str()],
            };
            let task = AddTask {
                priority: dice.below(3) as u8,
                ..task_to_add("part", &manifest)
            };
            PlannedTask {
                task,
                after: vec![],
                assign: None,
            }
        };
        let tasks: Vec<PlannedTask> = (0..220).map(&mut planned).collect();
        let mission = StartMission {
            project: shop(),
            title: "goal".into(),
            agents: vec![agent("ada"), agent("bob")],
            team: None,
            max_workers: 6,
            mode: StartMode::Flow,
            isolate: seed == 2,
            wave_commits: false,
            serial: vec![],
            budget: Default::default(),
        };
        world.ask(
            "ann",
            Command::StartMission {
                mission,
                tasks,
                adopt: vec![],
            },
        );
        let mut live: Vec<PollGrant> = vec![];
        let mut most = 0;
        for _ in 0..60 {
            match dice.below(5) {
                0 | 1 => live.extend(world.poll("ada")),
                2 => live.extend(world.poll("bob")),
                3 if !live.is_empty() => {
                    let grant = live.swap_remove(dice.below(live.len()));
                    world.give_up(&grant);
                }
                _ => {
                    // An outside agent holds a file for a moment, or is refused.
                    let request = acquire(
                        ClaimOwner::Agent(agent("eve")),
                        &["file://shop/src/x/part7.rs"],
                    );
                    if let Ok(CommandOutcome::Claim(Acquired::Granted { claim, token, .. })) =
                        world.try_ask("eve", Command::Acquire(request))
                    {
                        live.extend(world.poll("ada"));
                        world.ask("eve", Command::Release { claim, token });
                    }
                }
            }
            most = most.max(live.len());
        }
        assert!(
            most > 2 || seed != 2,
            "with isolate several attempts run at the same time: {most}"
        );
    }
}
