//! The six gates: when each one passes, warns or blocks, and where its result is shown.

use regatta_core::attempt::ProgramExit;
use regatta_core::command::{Command, CommandOutcome, PlannedTask, Report};
use regatta_core::ids::{AttemptId, MissionId, RunnerName, TaskId};
use regatta_core::limits::MachineLimits;
use regatta_core::mission::{StartMission, StartMode};
use regatta_core::runner::RegisterRunner;
use regatta_core::schedule::{PollGrant, WaitKind, outlook, wait_reasons};
use regatta_core::start_gates::{
    GateResult, GateVerdict, LostLanding, StartFacts, StartGate, TrunkState, evaluate,
    restore_results,
};
use regatta_core::task::{AddTask, IssueType, TaskStatus};

use crate::world::{MINUTE_MS, SECOND_MS, World, commit, exit_report, shop, task_to_add};

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
    let mission = StartMission {
        project: shop(),
        title: "goal".into(),
        agents: world.board.agents.keys().cloned().collect(),
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

fn trunk_present(behind: u32, lost: Option<LostLanding>) -> StartFacts {
    let lost = lost.into_iter().collect();
    let base = TrunkState::Present {
        tip: commit(9),
        upstream: Some("origin/main".into()),
        behind,
        lost,
    };
    StartFacts {
        base: Some(base),
        ..StartFacts::default()
    }
}

fn trunk_broken() -> StartFacts {
    StartFacts {
        base: Some(TrunkState::Broken {
            reason: "there is no branch main".into(),
        }),
        ..StartFacts::default()
    }
}

fn result_of_attempt(world: &World, id: AttemptId, gate: StartGate) -> GateResult {
    let gates = restore_results(&world.board.attempts[&id].gates);
    assert_eq!(
        gates
            .iter()
            .map(|gate_result| gate_result.gate)
            .collect::<Vec<_>>(),
        StartGate::ALL,
        "all six, in order"
    );
    gates
        .iter()
        .find(|gate_result| gate_result.gate == gate)
        .unwrap()
        .clone()
}

fn result_of_task(world: &World, id: u64, gate: StartGate) -> GateResult {
    let all = evaluate(
        &world.board,
        world.task(TaskId(id)),
        &StartFacts::default(),
        world.now,
    );
    all.into_iter()
        .find(|gate_result| gate_result.gate == gate)
        .unwrap()
}

fn end_attempt(world: &mut World, grant: &PollGrant) {
    world.report(exit_report(grant, ProgramExit::Done { output: None }));
    let landing = world
        .report_verdict(
            grant,
            crate::world::passed_verdict(&[&world.task(grant.task).files[0]
                .as_str()
                .replace('*', "x")]),
        )
        .expect("the work is queued");
    world.move_and_land(landing);
}

/// When nothing is wrong, all six gates pass, and the attempt records it.
#[test]
fn all_gates_pass_where_nothing_is_wrong() {
    let mut world = World::with_agents(&[("ada", 1)]);
    start_mission(
        &mut world,
        StartMode::Flow,
        5,
        vec![planned_task("one", &["a"], &[])],
    );
    let facts = StartFacts {
        memory_mb: Some(4_000),
        disk_mb: Some(4_000),
        ..trunk_present(0, None)
    };
    let grant = world.poll_with("ada", facts).unwrap();
    for gate in StartGate::ALL {
        assert_eq!(
            result_of_attempt(&world, grant.attempt, gate),
            GateResult {
                gate,
                verdict: GateVerdict::Pass,
                kind: None,
                reason: String::new(),
                files: vec![],
                tasks: vec![]
            }
        );
    }
}

/// Base sync: a stale base is a warning. A base that cannot be read blocks until it can.
#[test]
fn base_sync_warns_of_a_stale_base_and_blocks_without_one() {
    let mut world = World::with_agents(&[("ada", 2)]);
    let id = start_mission(
        &mut world,
        StartMode::Flow,
        5,
        vec![
            planned_task("one", &["a"], &[]),
            planned_task("two", &["b"], &[]),
        ],
    );
    assert_eq!(world.poll_with("ada", trunk_broken()), None);
    assert!(world.wait_kinds(TaskId(1)).contains(&WaitKind::Gate));
    assert!(
        outlook(&world.board, id).is_settled(),
        "only a person can fix the base"
    );
    assert_eq!(world.poll_with("ada", trunk_broken()), None);
    assert_eq!(
        world.count("mission.weighed"),
        1,
        "the same result is recorded once"
    );
    let grant = world.poll_with("ada", trunk_present(3, None)).unwrap();
    assert_eq!(world.count("mission.weighed"), 2);
    let found = result_of_attempt(&world, grant.attempt, StartGate::BaseSync);
    assert_eq!(found.verdict, GateVerdict::Warn);
    assert!(
        found.reason.contains("3 commits behind origin/main"),
        "{}",
        found.reason
    );
    assert!(
        !world.wait_kinds(TaskId(2)).contains(&WaitKind::Gate),
        "the gate still blocks"
    );
    // For an agent that polls from outside nobody looked at the base, and the gate's reason says
    // so.
    let outside = world.take_task("ada");
    assert!(
        result_of_attempt(&world, outside.attempt, StartGate::BaseSync)
            .reason
            .contains("nobody looked")
    );
}

/// File manifest: a task that must name its files and does not is blocked. A task that need not
/// name files gets a warning.
#[test]
fn file_manifest_blocks_a_missing_manifest_and_warns_of_an_optional_one() {
    let mut world = World::with_agents(&[("ada", 2)]);
    let bare = world.add_task("no files", &[]);
    assert_eq!(
        result_of_task(&world, bare.0, StartGate::FileManifest).kind,
        Some(WaitKind::Gate)
    );
    assert!(world.wait_kinds(bare).contains(&WaitKind::Gate));
    let docs = world.add(AddTask {
        issue_type: IssueType::Docs,
        ..task_to_add("docs", &[])
    });
    let grant = world.take_task("ada");
    assert_eq!(grant.task, docs);
    assert!(
        world.board.claims.is_empty(),
        "an attempt that names no files is granted no claim"
    );
    assert_eq!(
        result_of_attempt(&world, grant.attempt, StartGate::FileManifest).verdict,
        GateVerdict::Warn
    );
}

/// In waves, the changed files of a step are kept for the warnings of the next step. In flow they
/// are not needed.
#[test]
fn only_waves_remember_the_changed_files_of_a_step() {
    for (mode, remembered) in [(StartMode::Flow, 0), (StartMode::Waves, 1)] {
        let mut world = World::with_agents(&[("ada", 2)]);
        let plan = vec![
            planned_task("one", &["a"], &[]),
            planned_task("two", &["b"], &[0]),
        ];
        let mission = start_mission(&mut world, mode, 5, plan);
        let grant = world.take_task("ada");
        world.finish_and_land(&grant);
        let landed = &world.board.missions[&mission].landed;
        assert!(landed.last.is_some());
        assert_eq!(landed.changed.len(), remembered, "{mode:?}: {landed:?}");
    }
}

/// Dependency graph: a task is blocked by each blocker that is not completed.
#[test]
fn dependency_graph_names_the_open_blockers() {
    let mut world = World::with_agents(&[("ada", 2)]);
    start_mission(
        &mut world,
        StartMode::Flow,
        5,
        vec![
            planned_task("one", &["a"], &[]),
            planned_task("two", &["b"], &[0]),
        ],
    );
    let found = result_of_task(&world, 2, StartGate::DependencyGraph);
    assert_eq!(
        (found.verdict, found.kind),
        (GateVerdict::Block, Some(WaitKind::Dependency))
    );
    assert!(found.reason.contains("T1"), "{}", found.reason);
    assert!(world.wait_kinds(TaskId(2)).contains(&WaitKind::Dependency));
    assert_eq!(
        result_of_task(&world, 1, StartGate::DependencyGraph).verdict,
        GateVerdict::Pass
    );
}

/// Misalignment breaker: an attempt that is silent for 15 minutes is stopped, and its task's next
/// attempt gets a warning.
#[test]
fn misalignment_breaker_stops_a_silent_attempt_and_warns_the_next() {
    let mut world = World::with_agents(&[("ada", 1)]);
    start_mission(
        &mut world,
        StartMode::Flow,
        5,
        vec![planned_task("one", &["a"], &[])],
    );
    let grant = world.poll_with("ada", trunk_present(0, None)).unwrap();
    let silent = |since_ms| Report::Silent {
        attempt: grant.attempt,
        token: grant.token,
        since_ms,
    };
    world.report(silent(Some(15 * MINUTE_MS - 1)));
    assert_eq!(world.status(TaskId(1)), TaskStatus::InProgress);
    world.report(silent(Some(15 * MINUTE_MS)));
    assert_eq!(world.status(TaskId(1)), TaskStatus::Unassigned);
    world.report(exit_report(&grant, ProgramExit::Lost));
    world.advance(MINUTE_MS);
    let next = world.poll_with("ada", trunk_present(0, None)).unwrap();
    assert_eq!(
        result_of_attempt(&world, next.attempt, StartGate::MisalignmentBreaker).verdict,
        GateVerdict::Warn
    );
    // The warning does not keep the next attempt from completing the task.
    end_attempt(&mut world, &next);
    assert_eq!(world.status(TaskId(1)), TaskStatus::Completed);
}

/// A mission's task starts on a runner while the daemon's own machine is full. The gates count only
/// the attempts of the machine on which the task would run.
#[test]
fn j4_the_gates_of_a_runner_do_not_count_the_daemons_machine() {
    let mut world = World::with_agents(&[("ada", 9)]);
    world.ask(
        "ann",
        Command::SetLimits {
            limits: MachineLimits {
                max_attempts: 1,
                attempt_memory_mb: 100,
                ..world.board.limits
            },
        },
    );
    let plan = ["a", "b"].map(|file| planned_task("part", &[file], &[]));
    start_mission(&mut world, StartMode::Flow, 3, plan.into());
    let runner = RunnerName::new("box").unwrap();
    world.ask(
        "regatta",
        Command::RegisterRunner(RegisterRunner {
            name: runner.clone(),
            identity: "box-1".into(),
            token: "t".into(),
            labels: vec![],
            agents: vec![],
            max_tasks: 2,
            version: "1".into(),
        }),
    );
    let facts = |runner: Option<RunnerName>| StartFacts {
        memory_mb: Some(150),
        disk_mb: Some(100_000),
        runner,
        ..trunk_present(0, None)
    };
    assert!(world.poll_with("ada", facts(None)).is_some());
    assert_eq!(
        world.poll_with("ada", facts(None)),
        None,
        "the daemon's machine is full"
    );
    assert!(
        world.poll_with("ada", facts(Some(runner))).is_some(),
        "150 MiB are enough for the runner's first attempt"
    );
}

/// Wave cap: the smallest of the mission's workers, the machine's attempts, its memory and its
/// disk.
#[test]
fn wave_cap_is_the_smallest_limit() {
    let mut world = World::with_agents(&[("ada", 9)]);
    let plan = (0..6)
        .map(|n| planned_task("part", &[&format!("{n}.rs")], &[]))
        .collect();
    let id = start_mission(&mut world, StartMode::Flow, 3, plan);
    world.ask(
        "ann",
        Command::SetLimits {
            limits: MachineLimits {
                max_attempts: 2,
                ..MachineLimits::default()
            },
        },
    );
    let rich = || StartFacts {
        memory_mb: Some(100_000),
        disk_mb: Some(100_000),
        ..trunk_present(0, None)
    };
    let grants: Vec<PollGrant> = std::iter::from_fn(|| world.poll_with("ada", rich())).collect();
    assert_eq!(grants.len(), 2);
    let found = result_of_task(&world, 3, StartGate::WaveCap);
    assert_eq!(
        (found.verdict, found.kind),
        (GateVerdict::Block, Some(WaitKind::Machine))
    );
    assert!(world.wait_kinds(TaskId(3)).contains(&WaitKind::Machine));

    world.ask(
        "ann",
        Command::SetLimits {
            limits: MachineLimits {
                attempt_memory_mb: 100,
                attempt_disk_mb: 50,
                ..MachineLimits::default()
            },
        },
    );
    // Two attempts have just started and have not yet used the memory they need. 300 MiB are enough
    // for one more, and 299 are not.
    let memory = |free| StartFacts {
        memory_mb: Some(free),
        ..rich()
    };
    assert_eq!(world.poll_with("ada", memory(299)), None);
    assert_eq!(world.wait_kinds(TaskId(3))[0], WaitKind::Machine);
    assert!(
        !outlook(&world.board, id).is_settled(),
        "memory becomes free again by itself"
    );
    let disk = |free| StartFacts {
        disk_mb: Some(free),
        ..rich()
    };
    assert_eq!(world.poll_with("ada", disk(149)), None);
    assert_eq!(world.wait_kinds(TaskId(3))[0], WaitKind::Disk);
    assert_eq!(
        world
            .poll_with(
                "ada",
                StartFacts {
                    memory_mb: Some(300),
                    disk_mb: Some(150),
                    ..rich()
                }
            )
            .unwrap()
            .task,
        TaskId(3)
    );
    // The mission has its three attempts. Half a minute later the running attempts use what they
    // need.
    assert_eq!(
        result_of_task(&world, 4, StartGate::WaveCap).kind,
        Some(WaitKind::Slot)
    );
    end_attempt(&mut world, &grants[0]);
    world.advance(30 * SECOND_MS);
    assert_eq!(world.poll_with("ada", memory(99)), None);
    assert!(world.poll_with("ada", memory(100)).is_some());
}

#[test]
fn wave_cap_blocks_a_task_of_a_later_wave() {
    let mut world = World::with_agents(&[("ada", 9)]);
    start_mission(
        &mut world,
        StartMode::Waves,
        3,
        vec![
            planned_task("one", &["a"], &[]),
            planned_task("two", &["a"], &[]),
        ],
    );
    let found = result_of_task(&world, 2, StartGate::WaveCap);
    assert_eq!(
        (found.verdict, found.kind),
        (GateVerdict::Block, Some(WaitKind::Wave))
    );
    assert_eq!(found.reason, "it is in wave 1.2, and wave 1 is at work");
    assert!(world.wait_kinds(TaskId(2)).contains(&WaitKind::Wave));
}

/// Base ancestry: when landed work is missing from the trunk, waves start nothing. In flow only
/// tasks that need that work are blocked, and the others get a warning. Work that landed later does
/// not matter.
#[test]
fn base_ancestry_blocks_when_landed_work_is_missing_from_the_trunk() {
    for mode in [StartMode::Waves, StartMode::Flow] {
        let mut world = World::with_agents(&[("ada", 9)]);
        let plan = vec![
            planned_task("one", &["a"], &[]),
            planned_task("other", &["b"], &[]),
            planned_task("needs one", &["c"], &[0]),
            planned_task("needs other", &["d"], &[1]),
        ];
        start_mission(&mut world, mode, 3, plan);
        for _ in 0..2 {
            let grant = world.poll_with("ada", trunk_present(0, None)).unwrap();
            end_attempt(&mut world, &grant);
        }
        let first = world.stored_task(TaskId(1)).landed.unwrap();
        assert_ne!(
            world.stored_task(TaskId(2)).landed.as_ref(),
            Some(&first),
            "another task landed after it"
        );
        let lost = || {
            trunk_present(
                0,
                Some(LostLanding {
                    task: TaskId(1),
                    commit: first.clone(),
                }),
            )
        };
        if mode == StartMode::Waves {
            assert_eq!(world.poll_with("ada", lost()), None);
            assert!(world.wait_kinds(TaskId(4)).contains(&WaitKind::Gate));
        } else {
            let grant = world.poll_with("ada", lost()).unwrap();
            assert_eq!(
                grant.task,
                TaskId(4),
                "only a task that needs T1 waits for it"
            );
            let found = result_of_attempt(&world, grant.attempt, StartGate::BaseAncestry);
            assert!(
                found.verdict == GateVerdict::Warn && found.reason.contains(&first.as_str()[..10]),
                "{found:?}"
            );
            assert_eq!(world.poll_with("ada", lost()), None);
            assert_eq!(
                world.poll("ada"),
                None,
                "an outside poll got the blocked task"
            );
        }
        let reasons = wait_reasons(&world.board, world.task(TaskId(3)), world.now);
        let gate = reasons
            .iter()
            .find(|reason| reason.kind == WaitKind::Gate)
            .unwrap_or_else(|| panic!("{reasons:?}"));
        assert!(
            gate.text.contains(&first.as_str()[..10]) && gate.text.contains("T1"),
            "{gate:?}"
        );
        assert!(
            world.poll_with("ada", trunk_present(0, None)).is_some(),
            "the task is still blocked although the work is back"
        );
    }
}

/// A task of wave 2 is warned about its files that wave 1 changed, and a task of wave 3 only about
/// those of wave 2.
#[test]
fn an_attempt_lists_its_files_that_the_previous_wave_changed() {
    let mut world = World::with_agents(&[("ada", 9)]);
    let plan = vec![
        planned_task("one", &["settings.go", "a.go"], &[]),
        planned_task("two", &["b.go"], &[]),
        planned_task("three", &["settings.*"], &[0]),
        planned_task("four", &["*.go"], &[2]),
    ];
    start_mission(&mut world, StartMode::Waves, 9, plan);
    let first: Vec<PollGrant> =
        std::iter::from_fn(|| world.poll_with("ada", trunk_present(0, None))).collect();
    assert_eq!(first.len(), 2);
    for poll_grant in &first {
        assert_eq!(
            result_of_attempt(&world, poll_grant.attempt, StartGate::BaseAncestry).verdict,
            GateVerdict::Pass
        );
        end_attempt(&mut world, poll_grant);
    }
    let third = world.poll_with("ada", trunk_present(0, None)).unwrap();
    let found = result_of_attempt(&world, third.attempt, StartGate::BaseAncestry);
    assert_eq!(
        (found.verdict, &found.files[..]),
        (GateVerdict::Warn, &["settings.go".to_owned()][..])
    );
    end_attempt(&mut world, &third);
    let fourth = world.poll_with("ada", trunk_present(0, None)).unwrap();
    assert_eq!(
        result_of_attempt(&world, fourth.attempt, StartGate::BaseAncestry).files,
        [""; 0],
        "settings.x is not a .go file"
    );
}

/// A mission in flow has no steps, so it keeps no changed files of a step.
#[test]
fn flow_keeps_no_changed_files_of_steps() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let plan = vec![
        planned_task("one", &["a.go"], &[]),
        planned_task("two", &["a.go"], &[0]),
    ];
    let mission = start_mission(&mut world, StartMode::Flow, 1, plan);
    let first = world.poll_with("ada", trunk_present(0, None)).unwrap();
    end_attempt(&mut world, &first);
    let landed = world.board.missions[&mission].landed.clone();
    assert!(landed.last.is_some(), "the first task has landed");
    assert_eq!((landed.changed, landed.before), (vec![], vec![]));
    let second = world.poll_with("ada", trunk_present(0, None)).unwrap();
    let found = result_of_attempt(&world, second.attempt, StartGate::BaseAncestry);
    assert_eq!((found.verdict, found.files), (GateVerdict::Pass, vec![]));
}

/// The same rule about missing manifests applies to a plan before its start and to a task on the
/// board.
#[test]
fn a_task_that_lacks_a_manifest_is_given_to_no_agent() {
    use regatta_core::schedule::{lacks_manifest, missing_contract_part};
    use regatta_core::task::Expects;
    for (issue_type, expects, files, lacks) in [
        (IssueType::Feature, Expects::Changes, &[][..], true),
        (IssueType::Bug, Expects::Changes, &[], true),
        (IssueType::Task, Expects::Changes, &[], true),
        (IssueType::Task, Expects::Changes, &["a.rs"], false),
        (IssueType::Task, Expects::Report, &[], false),
        (IssueType::Docs, Expects::Changes, &[], false),
        (IssueType::Chore, Expects::Changes, &[], false),
        (IssueType::Ci, Expects::Changes, &[], false),
    ] {
        let mut world = World::with_agents(&[("ada", 1)]);
        let add = AddTask {
            issue_type,
            expects,
            ..task_to_add("x", files)
        };
        assert_eq!(
            lacks_manifest(issue_type, expects, &add.files),
            lacks,
            "{issue_type:?} {expects:?} {files:?}"
        );
        let id = world.add(add);
        assert_eq!(
            missing_contract_part(&world.board, world.task(id)).is_some(),
            lacks
        );
        assert_eq!(world.ready_task("ada").is_none(), lacks);
    }
}
