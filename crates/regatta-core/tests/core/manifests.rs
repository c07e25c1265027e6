//! Manifests: derived files, serial packages, the ownership map, and missions with `isolate`.

use regatta_core::claim::{ClaimMode as Held, ClaimOwner};
use regatta_core::command::{Command, CommandOutcome, PlannedTask};
use regatta_core::ids::{MissionId, TaskId};
use regatta_core::manifest::{
    OwnershipReason, OwnershipRules, OwnershipTask, PlanOwnership, ownership, serial_packages,
    with_derived_files,
};
use regatta_core::mission::{StartMission, StartMode};
use regatta_core::project::{self, DerivedFile, RunSettings};
use regatta_core::schedule::{PollGrant, WaitKind};
use regatta_core::task::TaskStatus;

use crate::world::{World, agent, files, passed_verdict, shop, task_to_add};

/// Returns settings in which the lock file is derived from the workspace's manifests, and a page
/// from the lock file.
fn run_settings() -> RunSettings {
    let derived = |file: &str, from: &[&str]| DerivedFile {
        file: files(&[file]).remove(0),
        from: files(from),
    };
    RunSettings {
        derived: vec![
            derived("docs/versions.md", &["Cargo.lock"]),
            derived("Cargo.lock", &["Cargo.toml", "crates/*/Cargo.toml"]),
        ],
        ..RunSettings::default()
    }
}

fn with_settings(world: &mut World, run: RunSettings) {
    let mut add = world.project("shop", &["make test"]);
    add.settings = project::ProjectSettings {
        run,
        ..project::ProjectSettings::default()
    };
    world.ask("ann", Command::AddProject(add));
}

fn planned_task(subject: &str, manifest: &[&str], after: &[usize]) -> PlannedTask {
    PlannedTask {
        task: task_to_add(subject, manifest),
        after: after.to_vec(),
        assign: None,
    }
}

fn start_mission(
    world: &mut World,
    ask: impl FnOnce(&mut StartMission),
    tasks: Vec<PlannedTask>,
) -> MissionId {
    let mut mission = StartMission {
        project: shop(),
        title: "goal".into(),
        agents: world.board.agents.keys().cloned().collect(),
        team: None,
        max_workers: 9,
        mode: StartMode::Flow,
        isolate: false,
        wave_commits: false,
        serial: vec![],
        budget: Default::default(),
    };
    ask(&mut mission);
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

fn take_all(world: &mut World) -> Vec<PollGrant> {
    std::iter::from_fn(|| world.poll("ada")).collect()
}

fn task_numbers(grants: &[PollGrant]) -> Vec<u64> {
    grants.iter().map(|poll_grant| poll_grant.task.0).collect()
}

#[test]
fn files_derived_from_a_manifest_belong_to_it() {
    let texts = |manifest: &[&str]| -> Vec<String> {
        with_derived_files(&run_settings(), &files(manifest))
            .iter()
            .map(ToString::to_string)
            .collect()
    };
    assert_eq!(texts(&["src/a.rs"]), ["src/a.rs"]);
    assert_eq!(
        texts(&["crates/a/**"]),
        ["crates/a/**", "Cargo.lock", "docs/versions.md"],
        "files derived from derived files belong to it, too"
    );
    assert_eq!(
        texts(&["Cargo.toml", "Cargo.lock"]),
        ["Cargo.toml", "Cargo.lock", "docs/versions.md"]
    );
    assert_eq!(texts(&[]), [""; 0], "an empty manifest stays empty");
}

/// L1: two tasks that derive the same file collide, although their own files are disjoint.
#[test]
fn l1_tasks_that_derive_the_same_file_collide() {
    let mut world = World::with_agents(&[("ada", 5)]);
    with_settings(&mut world, run_settings());
    let plan = vec![
        planned_task("one", &["crates/a/Cargo.toml"], &[]),
        planned_task("two", &["crates/b/Cargo.toml"], &[]),
        planned_task("three", &["crates/b/src/**"], &[]),
    ];
    start_mission(&mut world, |_| {}, plan);
    let grants = take_all(&mut world);
    assert_eq!(task_numbers(&grants), [1, 3]);
    assert!(world.wait_kinds(TaskId(2)).contains(&WaitKind::Claim));
    assert_eq!(
        world.owner_of("file://shop/Cargo.lock"),
        Some(ClaimOwner::Attempt(grants[0].attempt))
    );
    // The task may change the derived file. A task that does not derive it may not.
    world.finish(&grants[0]);
    world
        .report_verdict(
            &grants[0],
            passed_verdict(&["crates/a/Cargo.toml", "Cargo.lock"]),
        )
        .expect("the derived file is not a scope escape");
    world.finish(&grants[1]);
    assert_eq!(
        world.report_verdict(
            &grants[1],
            passed_verdict(&["crates/b/src/x.rs", "Cargo.lock"])
        ),
        None,
        "the lock file is a scope escape of this task"
    );
    assert_eq!(world.status(TaskId(3)), TaskStatus::Unassigned);
}

#[test]
fn packages_with_shared_test_helpers_or_many_test_files_are_serial() {
    let find = |paths: &[&str], set: &[&str]| -> Vec<String> {
        let set: Vec<String> = set.iter().map(ToString::to_string).collect();
        serial_packages(paths.iter().copied(), &set)
            .unwrap()
            .iter()
            .map(ToString::to_string)
            .collect()
    };
    let table: [(&[&str], &[&str]); 12] = [
        (
            &["cli/cmd/ao/testutil_test.go", "cli/cmd/ao/goals.go"],
            &["cli/cmd/ao/*"],
        ),
        (&["cli/cmd/ao/helpers_test.go"], &["cli/cmd/ao/*"]),
        (&["cli/cmd/ao/goals_test.go", "cli/cmd/ao/goals.go"], &[]),
        (&["py/tests/conftest.py"], &["py/tests/**"]),
        (&["a/tests/common/mod.rs"], &["a/tests/**"]),
        (&["tests/common/mod.rs"], &["tests/**"]),
        (&["tests/support.rs"], &["tests/**"]),
        (
            &["src/common/mod.rs", "common/mod.rs", "src/common.rs"],
            &[],
        ),
        (&["web/src/test-utils.tsx"], &["web/src/**"]),
        (&["main_test.go"], &["*"]),
        (&["conftest.py"], &["*"]),
        (&["docs/testutil_test.md", "a/mytestutil_test.go"], &[]),
    ];
    for (paths, expected) in table {
        assert_eq!(find(paths, &[]), expected, "{paths:?}");
    }
    // More than five test files, in the naming of each language. Five files are not enough.
    for name in [
        "a/x{}_test.go",
        "a/test_x{}.py",
        "a/x{}.test.ts",
        "a/x{}.spec.jsx",
        "a/tests/x{}.rs",
        "a/X{}Test.java",
    ] {
        let paths: Vec<String> = (0..6).map(|n| name.replace("{}", &n.to_string())).collect();
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        assert_eq!(find(&paths[..5], &[]), [""; 0], "{name}");
        assert_eq!(find(&paths, &[]).len(), 1, "{name}");
    }
    // The settings override the detected values.
    let shared = ["a/testutil_test.go", "b/testutil_test.go"];
    assert_eq!(
        find(&shared, &["c", "!a", "d/*.sql"]),
        ["b/*", "c/**", "d/*.sql"]
    );
    assert_eq!(find(&shared, &["!a/", "!b"]), [""; 0]);
    assert!(serial_packages([], &["/abs".to_owned()]).is_err());
}

/// L1: tasks of a serial package run one after the other although their files are disjoint. Other
/// tasks do not wait.
#[test]
fn l1_a_serial_package_has_one_task_at_a_time() {
    let mut world = World::with_agents(&[("ada", 5)]);
    let plan = vec![
        planned_task("one", &["cli/a.go"], &[]),
        planned_task("two", &["cli/b.go"], &[]),
        planned_task("three", &["web/c.ts"], &[]),
        planned_task("four", &["cli/sub/d.go"], &[]),
    ];
    start_mission(
        &mut world,
        |start_mission| start_mission.serial = files(&["cli/*"]),
        plan,
    );
    let grants = take_all(&mut world);
    assert_eq!(task_numbers(&grants), [1, 3, 4]);
    // The serial claim is not permission to change the whole package.
    world.finish(&grants[0]);
    assert_eq!(
        world.report_verdict(&grants[0], passed_verdict(&["cli/a.go", "cli/other.go"])),
        None
    );
    assert_eq!(
        task_numbers(&take_all(&mut world)),
        [1],
        "the older task is tried again first"
    );
    world.cancel(TaskId(1));
    assert_eq!(task_numbers(&take_all(&mut world)), [2]);
}

/// In waves, tasks of a serial package and tasks that derive the same file go into sub-waves.
#[test]
fn serial_packages_and_derived_files_split_waves() {
    let mut world = World::with_agents(&[("ada", 5)]);
    with_settings(&mut world, run_settings());
    let plan = vec![
        planned_task("one", &["cli/a.go"], &[]),
        planned_task("two", &["cli/b.go"], &[]),
        planned_task("three", &["crates/a/Cargo.toml"], &[]),
        planned_task("four", &["crates/b/Cargo.toml"], &[]),
    ];
    start_mission(
        &mut world,
        |start_mission| {
            (start_mission.mode, start_mission.serial) = (StartMode::Waves, files(&["cli/**"]))
        },
        plan,
    );
    let steps: Vec<String> = world
        .board
        .tasks
        .values()
        .map(|task| task.step().to_string())
        .collect();
    assert_eq!(steps, ["1", "1.2", "1", "1.2"]);
}

fn plan_ownership(parts: &[(&[&str], &[usize])], serial: &[&str], isolate: bool) -> PlanOwnership {
    let parts: Vec<OwnershipTask> = parts
        .iter()
        .map(|(manifest, after)| OwnershipTask {
            files: files(manifest),
            after: after.to_vec(),
        })
        .collect();
    ownership(
        &parts,
        OwnershipRules {
            run: &run_settings(),
            serial: &files(serial),
            isolate,
        },
    )
    .unwrap()
}

fn step_labels(map: &PlanOwnership) -> Vec<String> {
    map.steps.iter().map(ToString::to_string).collect()
}

/// The example of an authentication project: task 1, then 2 and 3, then 4, then 5.
#[test]
fn the_example_plan_with_five_tasks_has_four_waves() {
    let item = plan_ownership(
        &[
            (&["model/user.go"], &[]),
            (&["auth/hash.go"], &[0]),
            (&["api/login.go"], &[0]),
            (&["auth/jwt.go"], &[2]),
            (&["auth/auth_test.go"], &[1, 2, 3]),
        ],
        &[],
        false,
    );
    assert_eq!(step_labels(&item), ["1", "2", "2", "3", "4"]);
    assert_eq!((item.waves.len(), item.conflict_count()), (4, 0));
    let owners: Vec<(&str, &[usize])> = item.waves[1]
        .owned
        .iter()
        .map(|owned_pattern| (owned_pattern.pattern.as_str(), &owned_pattern.owners[..]))
        .collect();
    assert_eq!(
        owners,
        [("api/login.go", &[2][..]), ("auth/hash.go", &[1][..])]
    );
}

/// settings.go is owned by tasks 1 and 3, so task 3 goes into the second sub-wave.
#[test]
fn the_ownership_map_shows_conflicts_and_how_they_are_resolved() {
    let plan: [(&[&str], &[usize]); 4] = [
        (
            &[
                "src/auth/middleware.go",
                "src/auth/middleware_test.go",
                "src/config/settings.go",
            ],
            &[],
        ),
        (&["src/api/routes.go"], &[]),
        (&["src/config/settings.go"], &[]),
        (&["src/config/settings.go"], &[0]),
    ];
    let item = plan_ownership(&plan, &[], false);
    assert_eq!(step_labels(&item), ["1", "1", "1.2", "2"]);
    assert_eq!(
        item.conflict_count(),
        1,
        "an owner in a later wave counts as a conflict"
    );
    assert_eq!(item.waves[0].moved, [(2, 1)]);
    let conflict = item.waves[0]
        .owned
        .iter()
        .find(|owned_pattern| owned_pattern.is_conflict())
        .unwrap();
    assert_eq!(
        (
            conflict.pattern.as_str(),
            &conflict.owners[..],
            &conflict.sub_waves[..]
        ),
        ("src/config/settings.go", &[0, 2][..], &[0, 1][..])
    );
    // With `isolate` the conflict is still shown, but no task is moved.
    let item = plan_ownership(&plan, &[], true);
    assert_eq!(step_labels(&item), ["1", "1", "1", "2"]);
    assert_eq!((item.conflict_count(), item.waves[0].moved.len()), (1, 0));
}

/// Overlapping patterns, derived files and serial packages are all in the map, each with its
/// reason.
#[test]
fn the_ownership_map_gives_the_reason_for_each_entry() {
    let item = plan_ownership(
        &[
            (&["cli/a.go", "Cargo.toml"], &[]),
            (&["crates/x/Cargo.toml"], &[]),
            (&["cli/*.md"], &[]),
            (&["web/**"], &[]),
        ],
        &["cli/**"],
        false,
    );
    assert_eq!(step_labels(&item), ["1", "1.2", "1.2", "1"]);
    let rows: Vec<(&str, OwnershipReason, &[usize])> = item.waves[0]
        .owned
        .iter()
        .map(|owned_pattern| {
            (
                owned_pattern.pattern.as_str(),
                owned_pattern.reason,
                &owned_pattern.owners[..],
            )
        })
        .collect();
    assert_eq!(
        rows,
        [
            ("Cargo.lock", OwnershipReason::Derived, &[0, 1][..]),
            ("Cargo.toml", OwnershipReason::Manifest, &[0]),
            ("cli/**", OwnershipReason::Serial, &[0, 2]),
            ("cli/*.md", OwnershipReason::Manifest, &[2]),
            ("cli/a.go", OwnershipReason::Manifest, &[0]),
            ("crates/x/Cargo.toml", OwnershipReason::Manifest, &[1]),
            ("docs/versions.md", OwnershipReason::Derived, &[0, 1]),
            ("web/**", OwnershipReason::Manifest, &[3]),
        ]
    );
    assert_eq!(
        ownership(
            &[OwnershipTask {
                files: vec![],
                after: vec![0]
            }],
            OwnershipRules {
                run: &run_settings(),
                serial: &[],
                isolate: true
            }
        ),
        Err(vec![0, 0])
    );
}

/// L1: with `isolate`, tasks with overlapping manifests run at the same time. An outside claim on a
/// file still stops them.
#[test]
fn l1_isolated_tasks_share_their_files() {
    for mode in [StartMode::Flow, StartMode::Waves] {
        let mut world = World::with_agents(&[("ada", 5), ("bob", 5)]);
        let held_claim = world.hold_claim("bob", &["file://shop/settings.go"]);
        let plan = || {
            vec![
                planned_task("one", &["settings.go"], &[]),
                planned_task("two", &["settings.*", "b.go"], &[]),
            ]
        };
        start_mission(
            &mut world,
            |start_mission| (start_mission.mode, start_mission.isolate) = (mode, true),
            plan(),
        );
        assert_eq!(
            take_all(&mut world).len(),
            0,
            "a task started although bob holds the file"
        );
        assert!(world.wait_kinds(TaskId(1)).contains(&WaitKind::Claim));
        world.release("bob", held_claim);
        let grants = take_all(&mut world);
        assert_eq!(task_numbers(&grants), [1, 2]);
        assert!(
            world
                .board
                .claims
                .values()
                .all(|claim| claim.mode == Held::Shared)
        );
        // A mission without `isolate` waits for missions with it.
        start_mission(
            &mut world,
            |start_mission| start_mission.agents = vec![agent("bob")],
            vec![planned_task("three", &["settings.go"], &[])],
        );
        assert_eq!(world.poll("bob"), None);
        let landings: Vec<_> = grants
            .iter()
            .map(|poll_grant| world.submit(poll_grant))
            .collect();
        landings.into_iter().for_each(|id| world.move_and_land(id));
        assert_eq!(world.take_task("bob").task, TaskId(3));
    }
}

/// Isolated work that a person sends to the queue again takes its files as shared, too.
#[test]
fn isolated_work_lands_beside_other_isolated_work() {
    let mut world = World::with_agents(&[("ada", 5)]);
    start_mission(
        &mut world,
        |start_mission| start_mission.isolate = true,
        vec![
            planned_task("one", &["a.go"], &[]),
            planned_task("two", &["a.go"], &[0]),
        ],
    );
    world.conflict_until_a_person_is_needed();
    world.edit(
        TaskId(2),
        regatta_core::task::EditTask {
            blocked_by: Some(vec![]),
            ..Default::default()
        },
    );
    assert_eq!(task_numbers(&take_all(&mut world)), [2]);
    world.ask(
        "ann",
        Command::Land {
            task: TaskId(1),
            first: false,
        },
    );
    assert_eq!(world.status(TaskId(1)), TaskStatus::Landing);
}

/// Tasks that existed before the mission are put into waves like the tasks of a plan.
#[test]
fn adopted_tasks_are_put_into_waves() {
    let mut world = World::with_agents(&[("ada", 5)]);
    let first = world.add_task("first", &["a.go"]);
    let same = world.add_task("same file", &["a.go"]);
    let after = world.add(regatta_core::task::AddTask {
        blocked_by: vec![first],
        ..task_to_add("after", &["b.go"])
    });
    let mission = StartMission {
        project: shop(),
        title: "goal".into(),
        agents: vec![agent("ada")],
        team: None,
        max_workers: 9,
        mode: StartMode::Waves,
        isolate: false,
        wave_commits: false,
        serial: vec![],
        budget: Default::default(),
    };
    let mut last = planned_task("last", &["c.go"], &[]);
    last.task.blocked_by = vec![after];
    world.ask(
        "ann",
        Command::StartMission {
            mission,
            tasks: vec![last],
            adopt: vec![first, same, after],
        },
    );
    let steps: Vec<String> = world
        .board
        .tasks
        .values()
        .map(|task| task.step().to_string())
        .collect();
    assert_eq!(steps, ["1", "1.2", "2", "3"]);
}
