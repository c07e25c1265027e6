//! Missions: flow, waves, draining and their end.

use regatta_core::agent_protocol::FailureClass;
use regatta_core::attempt::ProgramExit;
use regatta_core::budget::{BudgetScope, Ceiling};
use regatta_core::command::{Command, CommandOutcome, PlannedTask, Report};
use regatta_core::ids::{AgentName, MissionId, TaskId};
use regatta_core::landing::MoveOutcome;
use regatta_core::mission::{StartMission, StartMode};
use regatta_core::schedule::{PollRequest, WaitKind, outlook};
use regatta_core::task::{AssignMode, EditTask, TaskStatus};

use crate::golden::auth_plan;
use crate::world::{World, agent, exit_report, files, grant_of_poll, poll_of, shop, task_to_add};

fn planned_task(subject: &str, manifest: &[&str], after: &[usize]) -> PlannedTask {
    PlannedTask {
        task: task_to_add(subject, manifest),
        after: after.to_vec(),
        assign: None,
    }
}

fn start_mission(
    world: &mut World,
    mode: StartMode,
    max_workers: u32,
    tasks: Vec<PlannedTask>,
) -> MissionId {
    let agents: Vec<AgentName> = world.board.agents.keys().cloned().collect();
    let mission = StartMission {
        project: shop(),
        title: "goal".into(),
        agents,
        team: None,
        max_workers,
        mode,
        isolate: false,
        wave_commits: false,
        serial: vec![],
        budget: Default::default(),
    };
    match world.ask(
        "ann",
        Command::StartMission {
            mission,
            tasks,
            adopt: vec![],
        },
    ) {
        CommandOutcome::Mission { mission, .. } => mission,
        other => panic!("{other:?}"),
    }
}

fn take_all(world: &mut World) -> Vec<u64> {
    let mut grants = Vec::new();
    while let Some(grant) = world.poll("ada") {
        grants.push(grant.task.0);
    }
    grants
}

fn grant_of(world: &World, task: u64) -> regatta_core::schedule::PollGrant {
    world
        .grants
        .iter()
        .rev()
        .find(|poll_grant| poll_grant.task == TaskId(task))
        .cloned()
        .unwrap()
}

/// J5: in flow a task starts as soon as its own blockers are completed.
#[test]
fn j5_in_flow_a_task_starts_when_its_blockers_are_completed() {
    let mut world = World::with_agents(&[("ada", 5)]);
    let id = start_mission(&mut world, StartMode::Flow, 5, auth_plan());
    assert_eq!(take_all(&mut world), [1]);
    world.finish_and_land(&grant_of(&world, 1));
    assert_eq!(take_all(&mut world), [2, 3]);
    world.finish_and_land(&grant_of(&world, 3));
    assert_eq!(
        take_all(&mut world),
        [4],
        "the login page waits for the token store"
    );
    world.finish_and_land(&grant_of(&world, 2));
    world.finish_and_land(&grant_of(&world, 4));
    assert_eq!(take_all(&mut world), [5]);
    world.finish_and_land(&grant_of(&world, 5));
    assert!(
        !world.board.missions.contains_key(&id),
        "the mission did not end with its last task"
    );
    assert_eq!(world.count("mission.ended"), 1);
}

/// J5: in waves, the next wave waits for the whole current wave.
#[test]
fn j5_waves_have_a_barrier() {
    let mut world = World::with_agents(&[("ada", 5)]);
    start_mission(&mut world, StartMode::Waves, 5, auth_plan());
    assert_eq!(take_all(&mut world), [1]);
    world.finish_and_land(&grant_of(&world, 1));
    assert_eq!(take_all(&mut world), [2, 3]);
    world.finish_and_land(&grant_of(&world, 3));
    assert_eq!(
        take_all(&mut world),
        [0; 0],
        "the login page did not wait for the token store"
    );
    assert!(world.wait_kinds(TaskId(4)).contains(&WaitKind::Wave));
    let landing = world.submit(&grant_of(&world, 2));
    assert_eq!(
        take_all(&mut world),
        [0; 0],
        "a task started before the wave had landed"
    );
    world.move_and_land(landing);
    assert_eq!(take_all(&mut world), [4]);
}

/// Tasks of one wave whose manifests overlap are split into sub-waves.
#[test]
fn overlapping_manifests_split_a_wave() {
    let mut world = World::with_agents(&[("ada", 5)]);
    let plan = vec![
        planned_task("task-1", &["settings.go", "a.go"], &[]),
        planned_task("task-2", &["b.go"], &[]),
        planned_task("task-3", &["settings.*"], &[]),
        planned_task("task-4", &["c.go"], &[2]),
    ];
    start_mission(&mut world, StartMode::Waves, 5, plan);
    let steps: Vec<String> = world
        .board
        .tasks
        .values()
        .map(|task| task.step().to_string())
        .collect();
    assert_eq!(steps, ["1", "1", "1.2", "2"]);
    assert_eq!(take_all(&mut world), [1, 2]);
}

/// A task that needs a person no longer holds up the next wave.
#[test]
fn a_task_that_needs_a_person_does_not_hold_up_the_next_wave() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let plan = vec![
        planned_task("hard", &["a"], &[]),
        planned_task("easy", &["b"], &[]),
        planned_task("next", &["c"], &[1]),
    ];
    let id = start_mission(&mut world, StartMode::Waves, 5, plan);
    world.conflict_until_a_person_is_needed();
    assert_eq!(world.status(TaskId(1)), TaskStatus::NeedsHuman);
    for task in [2, 3] {
        assert_eq!(take_all(&mut world), [task]);
        world.finish_and_land(&grant_of(&world, task));
    }
    assert!(
        world.board.missions.contains_key(&id),
        "the mission ended before a person decided"
    );
    let time_left = outlook(&world.board, id);
    assert!(time_left.is_settled() && time_left.stuck == 1);
    world.cancel(TaskId(1));
    assert!(!world.board.missions.contains_key(&id));
}

/// W1: a task that the gate holds does not hold up the next wave. The tasks that depend on it are
/// stuck.
#[test]
fn w1_a_task_held_by_the_manifest_gate_does_not_hold_up_the_next_wave() {
    let mut world = World::with_agents(&[("ada", 5)]);
    let plan = vec![
        planned_task("good", &["a"], &[]),
        planned_task("no files", &[], &[]),
        planned_task("next", &["c"], &[0]),
        planned_task("behind it", &["d"], &[1]),
        planned_task("last", &["e"], &[2]),
    ];
    let id = start_mission(&mut world, StartMode::Waves, 5, plan);
    assert!(world.wait_kinds(TaskId(2)).contains(&WaitKind::Gate));
    assert_eq!(take_all(&mut world), [1]);
    assert!(!outlook(&world.board, id).is_settled());
    for (done, next) in [(1, 3), (3, 5)] {
        world.finish_and_land(&grant_of(&world, done));
        assert_eq!(take_all(&mut world), [next]);
    }
    world.finish_and_land(&grant_of(&world, 5));
    let time_left = outlook(&world.board, id);
    assert_eq!(
        (time_left.open, time_left.stuck, time_left.is_settled()),
        (2, 2, true),
        "{time_left:?}"
    );
    let files = Some(files(&["b"]));
    world.edit(
        TaskId(2),
        EditTask {
            files,
            ..EditTask::default()
        },
    );
    assert!(!outlook(&world.board, id).is_settled());
    assert_eq!(take_all(&mut world), [2]);
    world.finish_and_land(&grant_of(&world, 2));
    assert_eq!(take_all(&mut world), [4]);
}

/// A task that a person paused or put into the backlog does not hold up the next wave.
#[test]
fn a_paused_task_does_not_hold_up_the_next_wave() {
    let mut world = World::with_agents(&[("ada", 5)]);
    let plan = vec![
        planned_task("one", &["a"], &[]),
        planned_task("two", &["b"], &[]),
        planned_task("next", &["c"], &[1]),
    ];
    let id = start_mission(&mut world, StartMode::Waves, 5, plan);
    world.ask(
        "ann",
        Command::PauseTask {
            task: TaskId(1),
            reason: "not now".into(),
        },
    );
    assert_eq!(take_all(&mut world), [2]);
    world.finish_and_land(&grant_of(&world, 2));
    assert_eq!(take_all(&mut world), [3]);
    world.finish_and_land(&grant_of(&world, 3));
    assert!(outlook(&world.board, id).is_settled());
}

/// A mission is settled when each of its agents is parked until a person acts, but not when they
/// wait for a rate limit.
#[test]
fn a_mission_is_settled_when_every_agent_needs_a_person() {
    for (class, is_settled) in [
        (FailureClass::BadConfig, true),
        (FailureClass::Auth, true),
        (FailureClass::RateLimit, false),
    ] {
        let mut world = World::with_agents(&[("ada", 1), ("bob", 1)]);
        let plan = vec![
            planned_task("one", &["a"], &[]),
            planned_task("two", &["b"], &[]),
            planned_task("three", &["c"], &[0]),
        ];
        let id = start_mission(&mut world, StartMode::Flow, 5, plan);
        for agent in ["ada", "bob"] {
            assert!(
                !outlook(&world.board, id).is_settled(),
                "{class:?}: {agent} can go on"
            );
            let grant = world.take_task(agent);
            world.report(exit_report(
                &grant,
                ProgramExit::Failed {
                    reason: "no".into(),
                    class: Some(class),
                },
            ));
        }
        let time_left = outlook(&world.board, id);
        assert_eq!(
            time_left.is_settled(),
            is_settled,
            "{class:?}: {time_left:?}"
        );
    }
}

/// W1: a landing that a person's files hold up keeps its wave open. The tasks behind it wait for
/// that person only.
#[test]
fn w1_the_waves_behind_a_held_landing_are_stuck() {
    for mode in [StartMode::Waves, StartMode::Flow] {
        let mut world = World::with_agents(&[("ada", 5)]);
        let plan = vec![
            planned_task("one", &["a"], &[]),
            planned_task("two", &["b"], &[0]),
            planned_task("three", &["c"], &[1]),
        ];
        let id = start_mission(&mut world, mode, 5, plan);
        let grant = world.take_task("ada");
        let landing = world.submit(&grant);
        assert!(!outlook(&world.board, id).is_settled());
        world.pass_trial(landing);
        world.report_move(
            landing,
            MoveOutcome::Dirty {
                paths: vec!["a".into()],
            },
        );
        let time_left = outlook(&world.board, id);
        assert_eq!(
            (
                time_left.open,
                time_left.held,
                time_left.stuck,
                time_left.is_settled()
            ),
            (3, 1, 2, true),
            "{mode:?}: {time_left:?}"
        );
    }
}

/// J4: a mission has at most `max_workers` attempts, and attempts at assigned tasks count.
#[test]
fn j4_a_mission_has_at_most_max_workers_attempts() {
    let mut world = World::with_agents(&[("ada", 5)]);
    let mut plan: Vec<_> = (0..4)
        .map(|n| planned_task("part", &[&format!("{n}.rs")], &[]))
        .collect();
    plan[3].assign = Some(agent("ada"));
    start_mission(&mut world, StartMode::Flow, 2, plan);
    assert_eq!(
        take_all(&mut world),
        [4, 1],
        "the agent's own queue comes first"
    );
    assert!(world.wait_kinds(TaskId(2)).contains(&WaitKind::Slot));
    world.finish_and_land(&grant_of(&world, 1));
    assert_eq!(take_all(&mut world), [2]);
}

/// J10: a draining mission starts nothing, ends nothing, and can be resumed.
#[test]
fn j10_a_draining_mission_starts_nothing() {
    let mut world = World::with_agents(&[("ada", 5)]);
    let mut plan = vec![
        planned_task("a", &["a"], &[]),
        planned_task("b", &["b"], &[]),
        planned_task("c", &["c"], &[0]),
    ];
    plan[1].assign = Some(agent("ada"));
    let id = start_mission(&mut world, StartMode::Flow, 1, plan);
    assert_eq!(take_all(&mut world), [2]);
    world.ask("ann", Command::DrainMission { mission: id });
    world.ask("ann", Command::DrainMission { mission: id });
    assert_eq!(world.count("mission.changed"), 1);
    let running = grant_of(&world, 2);
    world.stop(TaskId(2));
    assert_eq!(
        take_all(&mut world),
        [0; 0],
        "a draining mission started a task"
    );
    world.ask_refused("ada", crate::world::finish_command(&running));
    assert!(world.wait_kinds(TaskId(1)).contains(&WaitKind::Paused));
    world.ask("ann", Command::ResumeMission { mission: id });
    assert_eq!(take_all(&mut world), [2]);
}

/// J10: stopping a mission stops its attempts and lets nothing start. A second stop changes
/// nothing.
#[test]
fn j10_stopping_a_mission_stops_its_attempts() {
    let mut world = World::with_agents(&[("ada", 5)]);
    let id = start_mission(
        &mut world,
        StartMode::Flow,
        5,
        vec![
            planned_task("a", &["a"], &[]),
            planned_task("b", &["b"], &[]),
        ],
    );
    let supervised = world.take_supervised_task("ada");
    let outside = world.take_task("ada");
    for _ in 0..2 {
        world.ask(
            "ann",
            Command::StopMission {
                mission: id,
                reason: "enough".into(),
            },
        );
    }
    assert_eq!(world.count("attempt.stopping"), 1);
    assert_eq!(
        [1, 2].map(|task| world.status(TaskId(task))),
        [TaskStatus::Unassigned; 2]
    );
    world.ask_refused("ada", crate::world::finish_command(&outside));
    world.report(exit_report(&supervised, ProgramExit::Lost));
    assert!(world.board.attempts.is_empty());
    assert_eq!(take_all(&mut world), [0; 0]);
}

/// A plan is stored whole or not at all.
#[test]
fn a_plan_is_checked_as_a_whole() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let before = world.board.clone();
    let mut check = |agents: &[&str], max_workers, tasks: Vec<PlannedTask>, adopt: &[u64], code| {
        let agents = agents.iter().map(|name| agent(name)).collect();
        let mission = StartMission {
            project: shop(),
            title: "goal".into(),
            agents,
            team: None,
            max_workers,
            mode: StartMode::Flow,
            isolate: false,
            wave_commits: false,
            serial: vec![],
            budget: Default::default(),
        };
        let adopt = adopt.iter().map(|adopt| TaskId(*adopt)).collect();
        assert_eq!(
            world
                .ask_refused(
                    "ann",
                    Command::StartMission {
                        mission,
                        tasks,
                        adopt
                    }
                )
                .code(),
            code
        );
        assert!(world.board == before);
    };
    let one_task = || vec![planned_task("a", &["a"], &[])];
    check(&["ada"], 1, vec![], &[], "invalid");
    check(&[], 1, one_task(), &[], "invalid");
    check(&["bob"], 1, one_task(), &[], "no_such_agent");
    check(&["ada"], 0, one_task(), &[], "invalid");
    check(&["ada"], 1, one_task(), &[9], "no_such_task");
    check(
        &["ada"],
        1,
        vec![planned_task("a", &["a"], &[5])],
        &[],
        "invalid",
    );
    check(
        &["ada"],
        1,
        vec![
            planned_task("a", &["a"], &[1]),
            planned_task("b", &["b"], &[0]),
        ],
        &[],
        "cycle",
    );
    check(
        &["ada"],
        1,
        vec![
            planned_task("a", &["a"], &[]),
            planned_task("  ", &["b"], &[]),
        ],
        &[],
        "invalid",
    );
}

/// J5: the blockers of a task may come later in the plan.
#[test]
fn j5_a_plan_may_name_later_tasks() {
    let mut world = World::with_agents(&[("ada", 5)]);
    start_mission(
        &mut world,
        StartMode::Flow,
        5,
        vec![
            planned_task("last", &["a"], &[1]),
            planned_task("first", &["b"], &[]),
        ],
    );
    assert_eq!(take_all(&mut world), [2]);
    world.finish_and_land(&grant_of(&world, 2));
    assert_eq!(take_all(&mut world), [1]);
}

/// A mission can adopt existing tasks. Agents of other missions get none of them.
#[test]
fn a_mission_adopts_tasks() {
    let mut world = World::with_agents(&[("ada", 5), ("bob", 5)]);
    let task = world.add_task("words", &["src/**"]);
    let busy = world.add_for(
        task_to_add("docs", &["docs/**"]),
        Some("bob"),
        AssignMode::Queue,
    );
    let mission = StartMission {
        project: shop(),
        title: "goal".into(),
        agents: vec![agent("ada")],
        team: None,
        max_workers: 4,
        mode: StartMode::Flow,
        isolate: false,
        wave_commits: false,
        serial: vec![],
        budget: Default::default(),
    };
    let adopt = |tasks: &[TaskId]| Command::StartMission {
        mission: mission.clone(),
        tasks: vec![],
        adopt: tasks.to_vec(),
    };
    world.take_task("bob");
    assert_eq!(
        world.ask_refused("ann", adopt(&[task, busy])).code(),
        "in_use"
    );
    world.ask("ann", adopt(&[task]));
    assert_eq!(world.poll("bob"), None);
    assert_eq!(
        world.ask_refused("ann", adopt(&[task])).code(),
        "in_use",
        "a task was adopted by two missions"
    );
    assert_eq!(
        grant_of_poll(world.ask(
            "ada",
            Command::Poll(PollRequest {
                mission: Some(MissionId(7)),
                ..poll_of("ada")
            })
        )),
        None
    );
    let poll = PollRequest {
        mission: Some(MissionId(1)),
        ..poll_of("ada")
    };
    assert_eq!(
        grant_of_poll(world.ask("ada", Command::Poll(poll)))
            .unwrap()
            .task,
        task
    );
}

/// W1: tasks behind a failed blocker are stuck, and the mission reports that it does not go on by
/// itself.
#[test]
fn w1_a_mission_behind_a_failed_blocker_is_settled() {
    let mut world = World::with_agents(&[("ada", 5)]);
    let id = start_mission(&mut world, StartMode::Flow, 5, auth_plan());
    let first = world.take_task("ada");
    world.give_up(&first);
    let time_left = outlook(&world.board, id);
    assert_eq!(
        (time_left.open, time_left.stuck, time_left.is_settled()),
        (4, 4, true)
    );
    for task in 2..=5 {
        assert!(
            world
                .wait_kinds(TaskId(task))
                .contains(&WaitKind::Dependency)
        );
    }
    world.edit(
        TaskId(3),
        EditTask {
            blocked_by: Some(vec![]),
            ..EditTask::default()
        },
    );
    assert!(!outlook(&world.board, id).is_settled());
    assert_eq!(take_all(&mut world), [3]);
}

/// A run waits for a mission until nothing more happens without a person. A used-up budget of the
/// mission is such a state, and a raised budget ends it.
#[test]
fn a_mission_is_settled_when_its_budget_is_used_up() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let plan = vec![
        planned_task("one", &["a"], &[]),
        planned_task("two", &["b"], &[]),
    ];
    let id = start_mission(&mut world, StartMode::Flow, 5, plan);
    let minutes = |count: u64| Command::SetBudget {
        scope: BudgetScope::Mission(id),
        ceiling: Ceiling {
            wall_ms: Some(count * 60_000),
            ..Ceiling::default()
        },
    };
    world.ask("ann", minutes(1));
    let grant = world.take_supervised_task("ada");
    assert!(!outlook(&world.board, id).is_settled());
    world.advance(61_000);
    let report = Report::Exited {
        attempt: grant.attempt,
        token: grant.token,
        exit: ProgramExit::Lost,
    };
    world.report(report);
    assert_eq!(world.poll_supervised("ada"), None, "the budget is used up");
    assert!(world.wait_kinds(TaskId(2)).contains(&WaitKind::Budget));
    let time_left = outlook(&world.board, id);
    assert!(
        time_left.is_settled() && time_left.stuck == 2,
        "{time_left:?}"
    );
    world.ask("ann", minutes(10));
    assert!(!outlook(&world.board, id).is_settled());
    world.take_supervised_task("ada");
}
