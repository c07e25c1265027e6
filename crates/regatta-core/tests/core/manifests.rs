//! Manifests: derived files, serial packages, the ownership map, and missions with `isolate`.

use regatta_core::claim::{Mode as Held, Owner};
use regatta_core::command::{Command, Outcome, PlannedTask};
use regatta_core::ids::{MissionId, TaskId};
use regatta_core::manifest::{Because, Ownership, Part, Rules, ownership, reach, serial_packages};
use regatta_core::mission::{Mode, Start};
use regatta_core::project::{self, Derived, Run};
use regatta_core::schedule::{Grant, WaitKind};
use regatta_core::task::Status;

use crate::world::{World, agent, files, passed, shop, work};

/// Returns settings in which the lock file is derived from the workspace's manifests, and a page
/// from the lock file.
fn run() -> Run {
    let derived = |file: &str, from: &[&str]| Derived { file: files(&[file]).remove(0), from: files(from) };
    Run {
        derived: vec![
            derived("docs/versions.md", &["Cargo.lock"]),
            derived("Cargo.lock", &["Cargo.toml", "crates/*/Cargo.toml"]),
        ],
        ..Run::default()
    }
}

fn with_settings(world: &mut World, run: Run) {
    let mut add = world.project("shop", &["make test"]);
    add.settings = project::Settings { run, ..project::Settings::default() };
    world.ask("ann", Command::AddProject(add));
}

fn planned(subject: &str, manifest: &[&str], after: &[usize]) -> PlannedTask {
    PlannedTask { task: work(subject, manifest), after: after.to_vec(), assign: None }
}

fn start(world: &mut World, ask: impl FnOnce(&mut Start), tasks: Vec<PlannedTask>) -> MissionId {
    let mut mission = Start {
        project: shop(),
        title: "goal".into(),
        agents: world.board.agents.keys().cloned().collect(),
        team: None,
        max_workers: 9,
        mode: Mode::Flow,
        isolate: false,
        wave_commits: false,
        serial: vec![],
        budget: Default::default(),
    };
    ask(&mut mission);
    match world.ask("ann", Command::StartMission { mission, tasks, adopt: vec![] }) {
        Outcome::Mission { mission, .. } => mission,
        other => panic!("{other:?}"),
    }
}

fn takes(world: &mut World) -> Vec<Grant> {
    std::iter::from_fn(|| world.poll("ada")).collect()
}

fn tasks(grants: &[Grant]) -> Vec<u64> {
    grants.iter().map(|it| it.task.0).collect()
}

#[test]
fn files_derived_from_a_manifest_belong_to_it() {
    let texts = |manifest: &[&str]| -> Vec<String> {
        reach(&run(), &files(manifest)).iter().map(ToString::to_string).collect()
    };
    assert_eq!(texts(&["src/a.rs"]), ["src/a.rs"]);
    assert_eq!(
        texts(&["crates/a/**"]),
        ["crates/a/**", "Cargo.lock", "docs/versions.md"],
        "files derived from derived files belong to it, too"
    );
    assert_eq!(texts(&["Cargo.toml", "Cargo.lock"]), ["Cargo.toml", "Cargo.lock", "docs/versions.md"]);
    assert_eq!(texts(&[]), [""; 0], "an empty manifest stays empty");
}

/// L1: two tasks that derive the same file collide, although their own files are disjoint.
#[test]
fn l1_tasks_that_derive_the_same_file_collide() {
    let mut world = World::with(&[("ada", 5)]);
    with_settings(&mut world, run());
    let plan = vec![
        planned("one", &["crates/a/Cargo.toml"], &[]),
        planned("two", &["crates/b/Cargo.toml"], &[]),
        planned("three", &["crates/b/src/**"], &[]),
    ];
    start(&mut world, |_| {}, plan);
    let got = takes(&mut world);
    assert_eq!(tasks(&got), [1, 3]);
    assert!(world.reasons(TaskId(2)).contains(&WaitKind::Claim));
    assert_eq!(world.owner_of("file://shop/Cargo.lock"), Some(Owner::Attempt(got[0].attempt)));
    // The task may change the derived file. A task that does not derive it may not.
    world.finish(&got[0]);
    world
        .judge(&got[0], passed(&["crates/a/Cargo.toml", "Cargo.lock"]))
        .expect("the derived file is not a scope escape");
    world.finish(&got[1]);
    assert_eq!(
        world.judge(&got[1], passed(&["crates/b/src/x.rs", "Cargo.lock"])),
        None,
        "the lock file is a scope escape of this task"
    );
    assert_eq!(world.status(TaskId(3)), Status::Unassigned);
}

#[test]
fn packages_with_shared_test_helpers_or_many_test_files_are_serial() {
    let find = |paths: &[&str], set: &[&str]| -> Vec<String> {
        let set: Vec<String> = set.iter().map(ToString::to_string).collect();
        serial_packages(paths.iter().copied(), &set).unwrap().iter().map(ToString::to_string).collect()
    };
    let table: [(&[&str], &[&str]); 12] = [
        (&["cli/cmd/ao/testutil_test.go", "cli/cmd/ao/goals.go"], &["cli/cmd/ao/*"]),
        (&["cli/cmd/ao/helpers_test.go"], &["cli/cmd/ao/*"]),
        (&["cli/cmd/ao/goals_test.go", "cli/cmd/ao/goals.go"], &[]),
        (&["py/tests/conftest.py"], &["py/tests/**"]),
        (&["a/tests/common/mod.rs"], &["a/tests/**"]),
        (&["tests/common/mod.rs"], &["tests/**"]),
        (&["tests/support.rs"], &["tests/**"]),
        (&["src/common/mod.rs", "common/mod.rs", "src/common.rs"], &[]),
        (&["web/src/test-utils.tsx"], &["web/src/**"]),
        (&["main_test.go"], &["*"]),
        (&["conftest.py"], &["*"]),
        (&["docs/testutil_test.md", "a/mytestutil_test.go"], &[]),
    ];
    for (paths, expected) in table {
        assert_eq!(find(paths, &[]), expected, "{paths:?}");
    }
    // More than five test files, in the naming of each language. Five files are not enough.
    for name in
        ["a/x{}_test.go", "a/test_x{}.py", "a/x{}.test.ts", "a/x{}.spec.jsx", "a/tests/x{}.rs", "a/X{}Test.java"]
    {
        let paths: Vec<String> = (0..6).map(|it| name.replace("{}", &it.to_string())).collect();
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        assert_eq!(find(&paths[..5], &[]), [""; 0], "{name}");
        assert_eq!(find(&paths, &[]).len(), 1, "{name}");
    }
    // The settings override what was found.
    let shared = ["a/testutil_test.go", "b/testutil_test.go"];
    assert_eq!(find(&shared, &["c", "!a", "d/*.sql"]), ["b/*", "c/**", "d/*.sql"]);
    assert_eq!(find(&shared, &["!a/", "!b"]), [""; 0]);
    assert!(serial_packages([], &["/abs".to_owned()]).is_err());
}

/// L1: tasks of a serial package run one after the other although their files are disjoint. Other
/// tasks do not wait.
#[test]
fn l1_a_serial_package_has_one_task_at_a_time() {
    let mut world = World::with(&[("ada", 5)]);
    let plan = vec![
        planned("one", &["cli/a.go"], &[]),
        planned("two", &["cli/b.go"], &[]),
        planned("three", &["web/c.ts"], &[]),
        planned("four", &["cli/sub/d.go"], &[]),
    ];
    start(&mut world, |it| it.serial = files(&["cli/*"]), plan);
    let got = takes(&mut world);
    assert_eq!(tasks(&got), [1, 3, 4]);
    // The serial claim is not permission to change the whole package.
    world.finish(&got[0]);
    assert_eq!(world.judge(&got[0], passed(&["cli/a.go", "cli/other.go"])), None);
    assert_eq!(tasks(&takes(&mut world)), [1], "the older task is tried again first");
    world.cancel(TaskId(1));
    assert_eq!(tasks(&takes(&mut world)), [2]);
}

/// In waves, tasks of a serial package and tasks that derive the same file go into sub-waves.
#[test]
fn serial_packages_and_derived_files_split_waves() {
    let mut world = World::with(&[("ada", 5)]);
    with_settings(&mut world, run());
    let plan = vec![
        planned("one", &["cli/a.go"], &[]),
        planned("two", &["cli/b.go"], &[]),
        planned("three", &["crates/a/Cargo.toml"], &[]),
        planned("four", &["crates/b/Cargo.toml"], &[]),
    ];
    start(&mut world, |it| (it.mode, it.serial) = (Mode::Waves, files(&["cli/**"])), plan);
    let steps: Vec<String> = world.board.tasks.values().map(|it| it.step().to_string()).collect();
    assert_eq!(steps, ["1", "1.2", "1", "1.2"]);
}

fn map(parts: &[(&[&str], &[usize])], serial: &[&str], isolate: bool) -> Ownership {
    let parts: Vec<Part> =
        parts.iter().map(|(manifest, after)| Part { files: files(manifest), after: after.to_vec() }).collect();
    ownership(&parts, Rules { run: &run(), serial: &files(serial), isolate }).unwrap()
}

fn steps(map: &Ownership) -> Vec<String> {
    map.steps.iter().map(ToString::to_string).collect()
}

/// The example of an authentication project: task 1, then 2 and 3, then 4, then 5.
#[test]
fn the_example_plan_with_five_tasks_has_four_waves() {
    let it = map(
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
    assert_eq!(steps(&it), ["1", "2", "2", "3", "4"]);
    assert_eq!((it.waves.len(), it.conflicts()), (4, 0));
    let owners: Vec<(&str, &[usize])> =
        it.waves[1].owned.iter().map(|it| (it.pattern.as_str(), &it.owners[..])).collect();
    assert_eq!(owners, [("api/login.go", &[2][..]), ("auth/hash.go", &[1][..])]);
}

/// settings.go is owned by tasks 1 and 3, so task 3 goes into the second sub-wave.
#[test]
fn the_ownership_map_shows_conflicts_and_how_they_are_resolved() {
    let plan: [(&[&str], &[usize]); 4] = [
        (&["src/auth/middleware.go", "src/auth/middleware_test.go", "src/config/settings.go"], &[]),
        (&["src/api/routes.go"], &[]),
        (&["src/config/settings.go"], &[]),
        (&["src/config/settings.go"], &[0]),
    ];
    let it = map(&plan, &[], false);
    assert_eq!(steps(&it), ["1", "1", "1.2", "2"]);
    assert_eq!(it.conflicts(), 1, "an owner in a later wave counts as a conflict");
    assert_eq!(it.waves[0].moved, [(2, 1)]);
    let conflict = it.waves[0].owned.iter().find(|it| it.conflict()).unwrap();
    assert_eq!(
        (conflict.pattern.as_str(), &conflict.owners[..], &conflict.subs[..]),
        ("src/config/settings.go", &[0, 2][..], &[0, 1][..])
    );
    // With `isolate` the conflict is still shown, but no task is moved.
    let it = map(&plan, &[], true);
    assert_eq!(steps(&it), ["1", "1", "1", "2"]);
    assert_eq!((it.conflicts(), it.waves[0].moved.len()), (1, 0));
}

/// Overlapping patterns, derived files and serial packages are all in the map, each with its
/// reason.
#[test]
fn the_ownership_map_gives_the_reason_for_each_entry() {
    let it = map(
        &[
            (&["cli/a.go", "Cargo.toml"], &[]),
            (&["crates/x/Cargo.toml"], &[]),
            (&["cli/*.md"], &[]),
            (&["web/**"], &[]),
        ],
        &["cli/**"],
        false,
    );
    assert_eq!(steps(&it), ["1", "1.2", "1.2", "1"]);
    let rows: Vec<(&str, Because, &[usize])> =
        it.waves[0].owned.iter().map(|it| (it.pattern.as_str(), it.because, &it.owners[..])).collect();
    assert_eq!(
        rows,
        [
            ("Cargo.lock", Because::Derived, &[0, 1][..]),
            ("Cargo.toml", Because::Manifest, &[0]),
            ("cli/**", Because::Serial, &[0, 2]),
            ("cli/*.md", Because::Manifest, &[2]),
            ("cli/a.go", Because::Manifest, &[0]),
            ("crates/x/Cargo.toml", Because::Manifest, &[1]),
            ("docs/versions.md", Because::Derived, &[0, 1]),
            ("web/**", Because::Manifest, &[3]),
        ]
    );
    assert_eq!(
        ownership(&[Part { files: vec![], after: vec![0] }], Rules { run: &run(), serial: &[], isolate: true }),
        Err(vec![0, 0])
    );
}

/// L1: with `isolate`, tasks with overlapping manifests run at the same time. An outside claim on a
/// file still stops them.
#[test]
fn l1_isolated_tasks_share_their_files() {
    for mode in [Mode::Flow, Mode::Waves] {
        let mut world = World::with(&[("ada", 5), ("bob", 5)]);
        let held = world.hold("bob", &["file://shop/settings.go"]);
        let plan = || vec![planned("one", &["settings.go"], &[]), planned("two", &["settings.*", "b.go"], &[])];
        start(&mut world, |it| (it.mode, it.isolate) = (mode, true), plan());
        assert_eq!(takes(&mut world).len(), 0, "a task started although bob holds the file");
        assert!(world.reasons(TaskId(1)).contains(&WaitKind::Claim));
        world.release("bob", held);
        let got = takes(&mut world);
        assert_eq!(tasks(&got), [1, 2]);
        assert!(world.board.claims.values().all(|it| it.mode == Held::Shared));
        // A mission without `isolate` waits for missions with it.
        start(&mut world, |it| it.agents = vec![agent("bob")], vec![planned("three", &["settings.go"], &[])]);
        assert_eq!(world.poll("bob"), None);
        let landings: Vec<_> = got.iter().map(|it| world.submit(it)).collect();
        landings.into_iter().for_each(|it| world.land(it));
        assert_eq!(world.take("bob").task, TaskId(3));
    }
}

/// Isolated work that a person sends to the queue again takes its files as shared, too.
#[test]
fn isolated_work_lands_beside_other_isolated_work() {
    let mut world = World::with(&[("ada", 5)]);
    start(&mut world, |it| it.isolate = true, vec![planned("one", &["a.go"], &[]), planned("two", &["a.go"], &[0])]);
    world.conflict_until_a_person_is_needed();
    world.edit(TaskId(2), regatta_core::task::Edit { blocked_by: Some(vec![]), ..Default::default() });
    assert_eq!(tasks(&takes(&mut world)), [2]);
    world.ask("ann", Command::Land { task: TaskId(1), first: false });
    assert_eq!(world.status(TaskId(1)), Status::Landing);
}

/// Tasks that existed before the mission are put into waves like the tasks of a plan.
#[test]
fn adopted_tasks_are_put_into_waves() {
    let mut world = World::with(&[("ada", 5)]);
    let first = world.add_task("first", &["a.go"]);
    let same = world.add_task("same file", &["a.go"]);
    let after = world.add(regatta_core::task::Add { blocked_by: vec![first], ..work("after", &["b.go"]) });
    let mission = Start {
        project: shop(),
        title: "goal".into(),
        agents: vec![agent("ada")],
        team: None,
        max_workers: 9,
        mode: Mode::Waves,
        isolate: false,
        wave_commits: false,
        serial: vec![],
        budget: Default::default(),
    };
    let mut last = planned("last", &["c.go"], &[]);
    last.task.blocked_by = vec![after];
    world.ask("ann", Command::StartMission { mission, tasks: vec![last], adopt: vec![first, same, after] });
    let steps: Vec<String> = world.board.tasks.values().map(|it| it.step().to_string()).collect();
    assert_eq!(steps, ["1", "1.2", "2", "3"]);
}
