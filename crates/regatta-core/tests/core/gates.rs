//! The six gates: when each one passes, warns or blocks, and where its result is shown.

use regatta_core::attempt::Exited;
use regatta_core::command::{Command, Outcome, PlannedTask};
use regatta_core::fleet::Limits;
use regatta_core::gates::{Base, Facts, Gate, LostLanding, Passage, Says, all, judge};
use regatta_core::ids::{AttemptId, MissionId, TaskId};
use regatta_core::mission::{Mode, Start};
use regatta_core::schedule::{Grant, WaitKind, outlook, wait_reasons};
use regatta_core::task::{Add, IssueType, Status};

use crate::world::{MINUTE, SECOND, World, commit, exits, shop, work};

fn planned(subject: &str, manifest: &[&str], after: &[usize]) -> PlannedTask {
    PlannedTask { task: work(subject, manifest), after: after.to_vec(), assign: None }
}

fn start(world: &mut World, mode: Mode, max_workers: u32, tasks: Vec<PlannedTask>) -> MissionId {
    let mission = Start {
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
    match world.ask("ann", Command::StartMission { mission, tasks, adopt: vec![] }) {
        Outcome::Mission { mission, .. } => mission,
        other => panic!("{other:?}"),
    }
}

fn there(behind: u32, lost: Option<LostLanding>) -> Facts {
    let lost = lost.into_iter().collect();
    let base = Base::There { tip: commit(9), upstream: Some("origin/main".into()), behind, lost };
    Facts { base: Some(base), ..Facts::default() }
}

fn broken() -> Facts {
    Facts { base: Some(Base::Broken { reason: "there is no branch main".into() }), ..Facts::default() }
}

fn of_attempt(world: &World, id: AttemptId, gate: Gate) -> Passage {
    let gates = all(&world.board.attempts[&id].gates);
    assert_eq!(gates.iter().map(|it| it.gate).collect::<Vec<_>>(), Gate::ALL, "all six, in order");
    gates.iter().find(|it| it.gate == gate).unwrap().clone()
}

fn of_task(world: &World, id: u64, gate: Gate) -> Passage {
    let all = judge(&world.board, world.task(TaskId(id)), &Facts::default(), world.now);
    all.into_iter().find(|it| it.gate == gate).unwrap()
}

fn end(world: &mut World, grant: &Grant) {
    world.ask("regatta", exits(grant, Exited::Done { output: None }));
    let landing = world
        .judge(grant, crate::world::passed(&[&world.task(grant.task).files[0].as_str().replace('*', "x")]))
        .expect("the work is queued");
    world.land(landing);
}

/// When nothing is wrong, all six gates pass, and the attempt records it.
#[test]
fn all_gates_pass_where_nothing_is_wrong() {
    let mut world = World::with(&[("ada", 1)]);
    start(&mut world, Mode::Flow, 5, vec![planned("one", &["a"], &[])]);
    let facts = Facts { memory_mb: Some(4_000), disk_mb: Some(4_000), ..there(0, None) };
    let grant = world.poll_with("ada", facts).unwrap();
    for gate in Gate::ALL {
        assert_eq!(
            of_attempt(&world, grant.attempt, gate),
            Passage { gate, says: Says::Pass, kind: None, reason: String::new(), files: vec![], tasks: vec![] }
        );
    }
}

/// Base sync: a stale base is a warning. A base that cannot be read blocks until it can.
#[test]
fn base_sync_warns_of_a_stale_base_and_blocks_without_one() {
    let mut world = World::with(&[("ada", 2)]);
    let id = start(&mut world, Mode::Flow, 5, vec![planned("one", &["a"], &[]), planned("two", &["b"], &[])]);
    assert_eq!(world.poll_with("ada", broken()), None);
    assert!(world.reasons(TaskId(1)).contains(&WaitKind::Gate));
    assert!(outlook(&world.board, id).is_settled(), "only a person can fix the base");
    assert_eq!(world.poll_with("ada", broken()), None);
    assert_eq!(world.count("mission.weighed"), 1, "the same result is recorded once");
    let grant = world.poll_with("ada", there(3, None)).unwrap();
    assert_eq!(world.count("mission.weighed"), 2);
    let found = of_attempt(&world, grant.attempt, Gate::BaseSync);
    assert_eq!(found.says, Says::Warn);
    assert!(found.reason.contains("3 commits behind origin/main"), "{}", found.reason);
    assert!(!world.reasons(TaskId(2)).contains(&WaitKind::Gate), "the gate still blocks");
    // For an agent that polls from outside nobody looked at the base, and the gate's reason says
    // so.
    let outside = world.take("ada");
    assert!(of_attempt(&world, outside.attempt, Gate::BaseSync).reason.contains("nobody looked"));
}

/// File manifest: a task that must name its files and does not is blocked. A task that need not
/// name files gets a warning.
#[test]
fn file_manifest_blocks_a_missing_manifest_and_warns_of_an_optional_one() {
    let mut world = World::with(&[("ada", 2)]);
    let bare = world.add_task("no files", &[]);
    assert_eq!(of_task(&world, bare.0, Gate::FileManifest).kind, Some(WaitKind::Gate));
    assert!(world.reasons(bare).contains(&WaitKind::Gate));
    let docs = world.add(Add { issue_type: IssueType::Docs, ..work("docs", &[]) });
    let grant = world.take("ada");
    assert_eq!(grant.task, docs);
    assert!(world.board.claims.is_empty(), "an attempt that names no files is granted no claim");
    assert_eq!(of_attempt(&world, grant.attempt, Gate::FileManifest).says, Says::Warn);
}

/// In waves, the changed files of a step are kept for the warnings of the next step. In flow they
/// are not needed.
#[test]
fn only_waves_remember_the_changed_files_of_a_step() {
    for (mode, remembered) in [(Mode::Flow, 0), (Mode::Waves, 1)] {
        let mut world = World::with(&[("ada", 2)]);
        let plan = vec![planned("one", &["a"], &[]), planned("two", &["b"], &[0])];
        let mission = start(&mut world, mode, 5, plan);
        let grant = world.take("ada");
        world.finish_and_land(&grant);
        let landed = &world.board.missions[&mission].landed;
        assert!(landed.last.is_some());
        assert_eq!(landed.changed.len(), remembered, "{mode:?}: {landed:?}");
    }
}

/// Dependency graph: a task is blocked by each blocker that is not completed.
#[test]
fn dependency_graph_names_the_open_blockers() {
    let mut world = World::with(&[("ada", 2)]);
    start(&mut world, Mode::Flow, 5, vec![planned("one", &["a"], &[]), planned("two", &["b"], &[0])]);
    let found = of_task(&world, 2, Gate::DependencyGraph);
    assert_eq!((found.says, found.kind), (Says::Block, Some(WaitKind::Dep)));
    assert!(found.reason.contains("T1"), "{}", found.reason);
    assert!(world.reasons(TaskId(2)).contains(&WaitKind::Dep));
    assert_eq!(of_task(&world, 1, Gate::DependencyGraph).says, Says::Pass);
}

/// Misalignment breaker: an attempt that is silent for 15 minutes is stopped, and its task's next
/// attempt gets a warning.
#[test]
fn misalignment_breaker_stops_a_silent_attempt_and_warns_the_next() {
    let mut world = World::with(&[("ada", 1)]);
    start(&mut world, Mode::Flow, 5, vec![planned("one", &["a"], &[])]);
    let grant = world.poll_with("ada", there(0, None)).unwrap();
    let silent = |since_ms| Command::ReportSilent { attempt: grant.attempt, token: grant.token, since_ms };
    world.ask("regatta", silent(Some(15 * MINUTE - 1)));
    assert_eq!(world.status(TaskId(1)), Status::InProgress);
    world.ask("regatta", silent(Some(15 * MINUTE)));
    assert_eq!(world.status(TaskId(1)), Status::Unassigned);
    world.ask("regatta", exits(&grant, Exited::Lost));
    world.advance(MINUTE);
    let next = world.poll_with("ada", there(0, None)).unwrap();
    assert_eq!(of_attempt(&world, next.attempt, Gate::MisalignmentBreaker).says, Says::Warn);
    // The warning does not keep the next attempt from completing the task.
    end(&mut world, &next);
    assert_eq!(world.status(TaskId(1)), Status::Completed);
}

/// Wave cap: the smallest of the mission's workers, the machine's attempts, its memory and its
/// disk.
#[test]
fn wave_cap_is_the_smallest_limit() {
    let mut world = World::with(&[("ada", 9)]);
    let plan = (0..6).map(|it| planned("part", &[&format!("{it}.rs")], &[])).collect();
    let id = start(&mut world, Mode::Flow, 3, plan);
    world.ask("ann", Command::SetLimits { limits: Limits { max_attempts: 2, ..Limits::default() } });
    let rich = || Facts { memory_mb: Some(100_000), disk_mb: Some(100_000), ..there(0, None) };
    let got: Vec<Grant> = std::iter::from_fn(|| world.poll_with("ada", rich())).collect();
    assert_eq!(got.len(), 2);
    let found = of_task(&world, 3, Gate::WaveCap);
    assert_eq!((found.says, found.kind), (Says::Block, Some(WaitKind::Machine)));
    assert!(world.reasons(TaskId(3)).contains(&WaitKind::Machine));

    world.ask(
        "ann",
        Command::SetLimits { limits: Limits { attempt_memory_mb: 100, attempt_disk_mb: 50, ..Limits::default() } },
    );
    // Two attempts have just started and have not yet used the memory they need. 300 MiB are enough
    // for one more, and 299 are not.
    let memory = |free| Facts { memory_mb: Some(free), ..rich() };
    assert_eq!(world.poll_with("ada", memory(299)), None);
    assert_eq!(world.reasons(TaskId(3))[0], WaitKind::Machine);
    assert!(!outlook(&world.board, id).is_settled(), "memory becomes free again by itself");
    let disk = |free| Facts { disk_mb: Some(free), ..rich() };
    assert_eq!(world.poll_with("ada", disk(149)), None);
    assert_eq!(world.reasons(TaskId(3))[0], WaitKind::Disk);
    assert_eq!(
        world.poll_with("ada", Facts { memory_mb: Some(300), disk_mb: Some(150), ..rich() }).unwrap().task,
        TaskId(3)
    );
    // The mission has its three attempts. Half a minute later the running attempts use what they
    // need.
    assert_eq!(of_task(&world, 4, Gate::WaveCap).kind, Some(WaitKind::Slot));
    end(&mut world, &got[0]);
    world.advance(30 * SECOND);
    assert_eq!(world.poll_with("ada", memory(99)), None);
    assert!(world.poll_with("ada", memory(100)).is_some());
}

#[test]
fn wave_cap_blocks_a_task_of_a_later_wave() {
    let mut world = World::with(&[("ada", 9)]);
    start(&mut world, Mode::Waves, 3, vec![planned("one", &["a"], &[]), planned("two", &["a"], &[])]);
    let found = of_task(&world, 2, Gate::WaveCap);
    assert_eq!((found.says, found.kind), (Says::Block, Some(WaitKind::Wave)));
    assert_eq!(found.reason, "it is in wave 1.2, and wave 1 is at work");
    assert!(world.reasons(TaskId(2)).contains(&WaitKind::Wave));
}

/// Base ancestry: when landed work is missing from the trunk, waves start nothing. In flow only
/// tasks that need that work are blocked, and the others get a warning. Work that landed later does
/// not matter.
#[test]
fn base_ancestry_blocks_when_landed_work_is_missing_from_the_trunk() {
    for mode in [Mode::Waves, Mode::Flow] {
        let mut world = World::with(&[("ada", 9)]);
        let plan = vec![
            planned("one", &["a"], &[]),
            planned("other", &["b"], &[]),
            planned("needs one", &["c"], &[0]),
            planned("needs other", &["d"], &[1]),
        ];
        start(&mut world, mode, 3, plan);
        for _ in 0..2 {
            let grant = world.poll_with("ada", there(0, None)).unwrap();
            end(&mut world, &grant);
        }
        let first = world.stored(TaskId(1)).landed.unwrap();
        assert_ne!(world.stored(TaskId(2)).landed.as_ref(), Some(&first), "another task landed after it");
        let lost = || there(0, Some(LostLanding { task: TaskId(1), commit: first.clone() }));
        if mode == Mode::Waves {
            assert_eq!(world.poll_with("ada", lost()), None);
            assert!(world.reasons(TaskId(4)).contains(&WaitKind::Gate));
        } else {
            let grant = world.poll_with("ada", lost()).unwrap();
            assert_eq!(grant.task, TaskId(4), "only a task that needs T1 waits for it");
            let found = of_attempt(&world, grant.attempt, Gate::BaseAncestry);
            assert!(found.says == Says::Warn && found.reason.contains(&first.as_str()[..10]), "{found:?}");
            assert_eq!(world.poll_with("ada", lost()), None);
            assert_eq!(world.poll("ada"), None, "an outside poll got the blocked task");
        }
        let reasons = wait_reasons(&world.board, world.task(TaskId(3)), world.now);
        let gate = reasons.iter().find(|reason| reason.kind == WaitKind::Gate).unwrap_or_else(|| panic!("{reasons:?}"));
        assert!(gate.text.contains(&first.as_str()[..10]) && gate.text.contains("T1"), "{gate:?}");
        assert!(
            world.poll_with("ada", there(0, None)).is_some(),
            "the task is still blocked although the work is back"
        );
    }
}

/// A task of wave 2 is warned about its files that wave 1 changed, and a task of wave 3 only about
/// those of wave 2.
#[test]
fn an_attempt_lists_its_files_that_the_previous_wave_changed() {
    let mut world = World::with(&[("ada", 9)]);
    let plan = vec![
        planned("one", &["settings.go", "a.go"], &[]),
        planned("two", &["b.go"], &[]),
        planned("three", &["settings.*"], &[0]),
        planned("four", &["*.go"], &[2]),
    ];
    start(&mut world, Mode::Waves, 9, plan);
    let first: Vec<Grant> = std::iter::from_fn(|| world.poll_with("ada", there(0, None))).collect();
    assert_eq!(first.len(), 2);
    for it in &first {
        assert_eq!(of_attempt(&world, it.attempt, Gate::BaseAncestry).says, Says::Pass);
        end(&mut world, it);
    }
    let third = world.poll_with("ada", there(0, None)).unwrap();
    let found = of_attempt(&world, third.attempt, Gate::BaseAncestry);
    assert_eq!((found.says, &found.files[..]), (Says::Warn, &["settings.go".to_owned()][..]));
    end(&mut world, &third);
    let fourth = world.poll_with("ada", there(0, None)).unwrap();
    assert_eq!(of_attempt(&world, fourth.attempt, Gate::BaseAncestry).files, [""; 0], "settings.x is not a .go file");
}

/// A mission in flow has no steps, so it keeps no changed files of a step.
#[test]
fn flow_keeps_no_changed_files_of_steps() {
    let mut world = World::with(&[("ada", 1)]);
    let plan = vec![planned("one", &["a.go"], &[]), planned("two", &["a.go"], &[0])];
    let mission = start(&mut world, Mode::Flow, 1, plan);
    let first = world.poll_with("ada", there(0, None)).unwrap();
    end(&mut world, &first);
    let landed = world.board.missions[&mission].landed.clone();
    assert!(landed.last.is_some(), "the first task has landed");
    assert_eq!((landed.changed, landed.before), (vec![], vec![]));
    let second = world.poll_with("ada", there(0, None)).unwrap();
    let found = of_attempt(&world, second.attempt, Gate::BaseAncestry);
    assert_eq!((found.says, found.files), (Says::Pass, vec![]));
}

/// The same rule about missing manifests applies to a plan before its start and to a task on the
/// board.
#[test]
fn a_task_that_lacks_a_manifest_is_given_to_no_agent() {
    use regatta_core::schedule::{gate, lacks_manifest};
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
        let mut world = World::with(&[("ada", 1)]);
        let add = Add { issue_type, expects, ..work("x", files) };
        assert_eq!(lacks_manifest(issue_type, expects, &add.files), lacks, "{issue_type:?} {expects:?} {files:?}");
        let id = world.add(add);
        assert_eq!(gate(&world.board, world.task(id)).is_some(), lacks);
        assert_eq!(world.ready("ada").is_none(), lacks);
    }
}
