//! One commit per wave: which landings wait, which land together, and which leave the wave.

use regatta_core::command::{Command, CommandOutcome, PlannedTask};
use regatta_core::event::Event;
use regatta_core::ids::{CommitId, LandingId, MissionId, TaskId};
use regatta_core::landing::{CarriedLanding, LandingState, MoveOutcome, TrialOutcome};
use regatta_core::mission::{StartMission, StartMode};
use regatta_core::refusal::Refusal;
use regatta_core::schedule::WaitKind;
use regatta_core::task::TaskStatus;

use crate::world::{MINUTE_MS, World, agent, commit, shop, task_to_add};

fn wave_mission(mode: StartMode, isolate: bool) -> StartMission {
    StartMission {
        project: shop(),
        title: "goal".into(),
        agents: vec![agent("ada")],
        team: None,
        max_workers: 9,
        mode,
        isolate,
        wave_commits: true,
        serial: vec![],
        budget: Default::default(),
    }
}

/// Returns a mission with one wave of this many running tasks. With `isolate` they all change the
/// same file.
fn world_with_wave(count: usize, isolate: bool) -> (World, MissionId) {
    let mut world = World::with_agents(&[("ada", 9)]);
    world.speculate(2, Some(1));
    let tasks = (0..count).map(|nth| {
        let file = if isolate {
            "src/all.rs".to_owned()
        } else {
            format!("src/{nth}.rs")
        };
        PlannedTask {
            task: task_to_add(&format!("part {nth}"), &[&file]),
            after: vec![],
            assign: None,
        }
    });
    let command = Command::StartMission {
        mission: wave_mission(StartMode::Waves, isolate),
        tasks: tasks.collect(),
        adopt: vec![],
    };
    let CommandOutcome::Mission { mission, .. } = world.ask("ann", command) else {
        panic!()
    };
    for _ in 0..count {
        world.take_task("ada");
    }
    (world, mission)
}

fn submit_task(world: &mut World, task: u64) -> LandingId {
    let grant = world
        .grants
        .iter()
        .rev()
        .find(|poll_grant| poll_grant.task == TaskId(task))
        .cloned()
        .unwrap();
    world.submit(&grant)
}

fn submit_all(world: &mut World, count: u64) -> Vec<LandingId> {
    (1..=count).map(|n| submit_task(world, n)).collect()
}

fn running_trials(world: &World) -> Vec<Vec<u64>> {
    let trains = world
        .board
        .landings
        .values()
        .filter(|landing| matches!(landing.state, LandingState::Trying { .. }));
    let mut trains: Vec<Vec<u64>> = trains
        .map(|landing| landing.trial_landings().iter().map(|id| id.0).collect())
        .collect();
    trains.sort();
    trains
}

/// Reports that the trial that ends in this landing passed as one commit.
fn report_passed(world: &mut World, landing: LandingId, new: u64) {
    let train = world.board.landings[&landing].trial_landings();
    let carries = train
        .into_iter()
        .map(|landing| CarriedLanding::new(landing, commit(new)))
        .collect();
    world.report_trial(
        landing,
        TrialOutcome::Passed {
            old: commit(10),
            new: commit(new),
            carries,
        },
    );
}

fn report_failed(world: &mut World, landing: LandingId) {
    world.report_trial(
        landing,
        TrialOutcome::Failed {
            reason: "make test".into(),
            output: None,
            settled: vec![],
        },
    );
}

fn landed_commits(world: &World) -> Vec<(u64, CommitId)> {
    let landed = |event: &regatta_core::event::Recorded| match &event.event {
        Event::LandingLanded(landing_landed) => {
            Some((landing_landed.task().0, landing_landed.commit().clone()))
        }
        _ => None,
    };
    world.log.iter().filter_map(landed).collect()
}

#[test]
fn a_wave_waits_for_all_its_tasks_and_lands_as_one_commit() {
    let (mut world, _) = world_with_wave(3, false);
    submit_task(&mut world, 2);
    submit_task(&mut world, 1);
    assert!(
        running_trials(&world).is_empty(),
        "a trial started while a task of the wave is running"
    );
    assert_eq!(world.wait_kinds(TaskId(1)), [WaitKind::Wave]);
    let last = submit_task(&mut world, 3);
    assert_eq!(
        running_trials(&world),
        [vec![1, 2, 3]],
        "the wave is one trial, although batches have one landing"
    );
    world.restart();
    report_passed(&mut world, last, 11);
    world.report_move(last, MoveOutcome::Moved);
    assert_eq!(
        landed_commits(&world),
        [(2, commit(11)), (1, commit(11)), (3, commit(11))]
    );
}

/// Q9: the failing landing leaves the wave for a fix-up. The others land as one commit without it.
#[test]
fn q9_a_failing_landing_leaves_its_wave_and_the_others_land_together() {
    let (mut world, _) = world_with_wave(3, false);
    let ids = submit_all(&mut world, 3);
    report_failed(&mut world, ids[2]);
    assert_eq!(running_trials(&world), [vec![1], vec![1, 2]]);
    report_passed(&mut world, ids[0], 11);
    assert_eq!(
        world.landing_state(ids[0]),
        "validated",
        "the landing does not land before the rest of the wave is known"
    );
    report_failed(&mut world, ids[1]);
    assert_eq!(
        running_trials(&world),
        [vec![1, 2, 3]],
        "the whole wave is tried again, because the failure may be a flake"
    );
    report_failed(&mut world, ids[2]);
    assert_eq!(running_trials(&world), [vec![1, 2]]);
    report_failed(&mut world, ids[1]);
    assert_eq!(
        (world.landing_state(ids[1]), world.status(TaskId(2))),
        ("gone", TaskStatus::Unassigned)
    );
    assert!(world.task(TaskId(2)).fixup.is_some());
    assert_eq!(running_trials(&world), [vec![1, 3]]);
    report_passed(&mut world, ids[2], 12);
    world.report_move(ids[2], MoveOutcome::Moved);
    assert_eq!(landed_commits(&world), [(1, commit(12)), (3, commit(12))]);
    // After its fix-up the landing lands alone.
    let grant = world.take_task("ada");
    assert_eq!(grant.task, TaskId(2));
    let mended = world.submit(&grant);
    assert_eq!(running_trials(&world), [vec![mended.0]]);
    world.move_and_land(mended);
    assert_eq!(world.status(TaskId(2)), TaskStatus::Completed);
}

/// Q9: a flaky failure in a wave does not split it.
#[test]
fn q9_a_flaky_failure_does_not_split_a_wave() {
    let (mut world, _) = world_with_wave(2, false);
    let ids = submit_all(&mut world, 2);
    report_failed(&mut world, ids[1]);
    assert_eq!(running_trials(&world), [vec![1]]);
    report_passed(&mut world, ids[0], 11);
    assert_eq!(running_trials(&world), [vec![1, 2]]);
    report_passed(&mut world, ids[1], 12);
    world.report_move(ids[1], MoveOutcome::Moved);
    assert_eq!(landed_commits(&world), [(1, commit(12)), (2, commit(12))]);
}

/// Q9: the same with a serial queue.
#[test]
fn q9_a_serial_queue_finds_the_failing_landing_of_a_wave() {
    let (mut world, _) = world_with_wave(3, false);
    let mut request = world.project("shop", &["cargo test"]);
    request.settings.landing.mode = regatta_core::project::QueueMode::Serial;
    world.ask("ann", Command::AddProject(request));
    let ids = submit_all(&mut world, 3);
    assert_eq!(running_trials(&world), [vec![1, 2, 3]]);
    report_failed(&mut world, ids[2]);
    for _ in 0..9 {
        let Some(train) = running_trials(&world).pop() else {
            break;
        };
        let last = LandingId(*train.last().unwrap());
        if train.contains(&2) {
            report_failed(&mut world, last)
        } else {
            report_passed(&mut world, last, 20 + train.len() as u64)
        }
        if world.landing_state(last) == "moving" {
            world.report_move(last, MoveOutcome::Moved);
        }
    }
    assert_eq!(landed_commits(&world), [(1, commit(22)), (3, commit(22))]);
    assert_eq!(world.status(TaskId(2)), TaskStatus::Unassigned);
}

/// A landing that conflicts within its wave waits until the other has landed, and then gets a
/// fix-up.
#[test]
fn a_landing_that_conflicts_within_its_wave_leaves_it() {
    let (mut world, _) = world_with_wave(3, true);
    let ids = submit_all(&mut world, 3);
    world.report_trial(
        ids[2],
        TrialOutcome::Conflict {
            landing: ids[1],
            paths: vec!["src/all.rs".into()],
            kinds: vec![],
        },
    );
    assert_eq!(running_trials(&world), [vec![1, 3]]);
    report_passed(&mut world, ids[2], 11);
    world.report_move(ids[2], MoveOutcome::Moved);
    assert_eq!(running_trials(&world), [vec![2]]);
    world.report_trial(
        ids[1],
        TrialOutcome::Conflict {
            landing: ids[1],
            paths: vec!["src/all.rs".into()],
            kinds: vec![],
        },
    );
    assert!(world.task(TaskId(2)).fixup.is_some());
}

/// A way in which the third task of a wave leaves it.
type LeaveWave = fn(&mut World, MissionId);

/// A wave does not wait for a task that cannot go on by itself.
#[test]
fn a_wave_does_not_wait_for_a_task_that_cannot_go_on_by_itself() {
    let leave: [(&str, LeaveWave); 4] = [
        ("cancelled", |world, _| world.cancel(TaskId(3))),
        ("given up", |world, _| {
            let grant = world
                .grants
                .iter()
                .rev()
                .find(|poll_grant| poll_grant.task == TaskId(3))
                .cloned()
                .unwrap();
            world.give_up(&grant);
        }),
        ("stopped and paused", |world, _| {
            _ = world.ask(
                "ann",
                Command::StopTask {
                    task: TaskId(3),
                    reason: "lunch".into(),
                    pause: true,
                },
            );
        }),
        ("needs a person", |world, _| {
            let grant = world
                .grants
                .iter()
                .rev()
                .find(|poll_grant| poll_grant.task == TaskId(3))
                .cloned()
                .unwrap();
            world.finish(&grant);
            let verdict = regatta_core::attempt::WorkVerdict::NeedsPerson {
                kind: WaitKind::Question,
                reason: "which colour?".into(),
            };
            assert!(world.report_verdict(&grant, verdict).is_none());
        }),
    ];
    for (how, leave) in leave {
        let (mut world, mission) = world_with_wave(3, false);
        submit_task(&mut world, 1);
        submit_task(&mut world, 2);
        assert!(running_trials(&world).is_empty(), "{how}");
        leave(&mut world, mission);
        assert_eq!(running_trials(&world), [vec![1, 2]], "{how}");
    }
}

/// P11: stopping and resuming a mission stops and resumes its wave as a whole.
#[test]
fn p11_a_wave_that_is_stopped_with_its_mission_waits_for_all_tasks_after_the_resume() {
    let (mut world, mission) = world_with_wave(3, false);
    submit_task(&mut world, 1);
    submit_task(&mut world, 2);
    world.ask(
        "ann",
        Command::StopMission {
            mission,
            reason: "lunch".into(),
        },
    );
    assert!(
        running_trials(&world).is_empty(),
        "the stopped mission started a trial"
    );
    world.ask("ann", Command::ResumeMission { mission });
    assert!(
        running_trials(&world).is_empty(),
        "T3 runs again, so the wave waits for it"
    );
    world.cancel(TaskId(3));
    assert_eq!(running_trials(&world), [vec![1, 2]]);
}

/// A dirty checkout for one landing holds the whole wave. One `move_and_land` lets the whole wave
/// go on.
#[test]
fn a_wave_is_held_and_continued_as_a_whole() {
    let (mut world, _) = world_with_wave(3, false);
    let ids = submit_all(&mut world, 3);
    report_passed(&mut world, ids[2], 11);
    world.report_move(
        ids[2],
        MoveOutcome::Dirty {
            paths: vec!["src/1.rs".into()],
        },
    );
    assert!(running_trials(&world).is_empty());
    assert!(ids.iter().all(|id| world.board.landings[id].held.is_some()));
    world.ask(
        "ann",
        Command::Land {
            task: TaskId(2),
            first: false,
        },
    );
    assert_eq!(running_trials(&world), [vec![1, 2, 3]]);
    report_passed(&mut world, ids[2], 11);
    world.report_move(
        ids[2],
        MoveOutcome::Dirty {
            paths: vec!["src/1.rs".into()],
        },
    );
    world.advance(MINUTE_MS);
    assert_eq!(
        running_trials(&world),
        [vec![1, 2, 3]],
        "the landings of the wave were not retried together"
    );
}

/// A landing that a person puts first lands alone and does not wait for its wave.
#[test]
fn a_landing_that_is_put_first_leaves_its_wave() {
    let (mut world, _) = world_with_wave(3, false);
    let one = submit_task(&mut world, 1);
    world.ask(
        "ann",
        Command::Land {
            task: TaskId(1),
            first: true,
        },
    );
    assert_eq!(running_trials(&world), [vec![one.0]]);
    let two = submit_task(&mut world, 2);
    world.move_and_land(one);
    assert_eq!(world.landing_state(two), "queued");
}

#[test]
fn one_commit_per_wave_is_refused_in_flow() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let tasks = vec![PlannedTask {
        task: task_to_add("part", &["a"]),
        after: vec![],
        assign: None,
    }];
    let command = Command::StartMission {
        mission: wave_mission(StartMode::Flow, false),
        tasks,
        adopt: vec![],
    };
    assert!(matches!(
        world.ask_refused("ann", command),
        Refusal::Invalid { .. }
    ));
}

/// An undo of one task reverts only that task's part of the wave's commit.
#[test]
fn undoing_one_task_of_a_wave_reverts_its_own_part() {
    let (mut world, _) = world_with_wave(2, false);
    let ids = submit_all(&mut world, 2);
    report_passed(&mut world, ids[1], 11);
    world.report_move(ids[1], MoveOutcome::Moved);
    let task = world.stored_task(TaskId(1));
    let own_commit = task.submission.clone().unwrap().commit;
    assert_eq!(
        (task.landed.clone(), task.shares_commit),
        (Some(commit(11)), true)
    );
    let CommandOutcome::Queued(place) = world.ask(
        "ann",
        Command::Undo {
            done: Box::new(task),
        },
    ) else {
        panic!()
    };
    assert_eq!(
        world.board.landings[&place.landing].submission.commit,
        own_commit
    );
}
