//! Isolation that does not hold: which attempts go on, which are stopped, and which only get a
//! warning.

use regatta_core::command::{Command, CommandOutcome, PlannedTask, Report};
use regatta_core::ids::{MissionId, TaskId};
use regatta_core::isolation_breach::IsolationBreach;
use regatta_core::mission::{StartMission, StartMode};
use regatta_core::schedule::{PollGrant, WaitKind};
use regatta_core::task::TaskStatus;

use crate::world::{World, agent, shop, task_to_add};

/// Returns a mission with `isolate` that has one running task for each manifest.
fn isolated_mission(manifests: &[&str]) -> (World, MissionId, Vec<PollGrant>) {
    let mut world = World::with_agents(&[("ada", 9)]);
    let planned = |subject: &&str| PlannedTask {
        task: task_to_add(subject, &[subject]),
        after: vec![],
        assign: None,
    };
    let mission = StartMission {
        project: shop(),
        title: "goal".into(),
        agents: vec![agent("ada")],
        team: None,
        max_workers: 9,
        mode: StartMode::Waves,
        isolate: true,
        wave_commits: false,
        serial: vec![],
        budget: Default::default(),
    };
    let tasks = manifests.iter().map(planned).collect();
    let CommandOutcome::Mission { mission, .. } = world.ask(
        "ann",
        Command::StartMission {
            mission,
            tasks,
            adopt: vec![],
        },
    ) else {
        panic!()
    };
    let grants = manifests.iter().map(|_| world.take_task("ada")).collect();
    (world, mission, grants)
}

fn report_breach(world: &mut World, grant: &PollGrant, sign: IsolationBreach) {
    let (attempt, token) = (grant.attempt, grant.token);
    world.report(Report::IsolationBreach {
        attempt,
        token,
        sign,
    });
}

fn checkout_breach(paths: &[&str]) -> IsolationBreach {
    IsolationBreach::Checkout {
        paths: paths.iter().map(ToString::to_string).collect(),
    }
}

/// L1: when isolation fails in a wave whose tasks share files, the wave becomes serial. One task of
/// those that overlap goes on, the others wait.
#[test]
fn l1_an_overlapping_wave_is_aborted_to_serial() {
    for sign in [
        checkout_breach(&["src/a.rs"]),
        checkout_breach(&["src/"]),
        IsolationBreach::OtherDirectory {
            path: "/elsewhere".into(),
        },
        IsolationBreach::NoWorkspace,
    ] {
        let (mut world, mission, grants) =
            isolated_mission(&["src/a.rs", "src/**", "docs/b.md", "src/a.rs"]);
        report_breach(&mut world, &grants[0], sign.clone());
        assert!(!world.board.missions[&mission].isolate, "{sign:?}");
        assert!(
            world.board.missions[&mission]
                .serialised_reason
                .as_ref()
                .unwrap()
                .contains("isolation did not hold")
        );
        let running = |world: &World| {
            let at_work = world
                .board
                .tasks
                .values()
                .filter(|task| task.status.is_running());
            at_work.map(|task| task.id.0).collect::<Vec<_>>()
        };
        assert_eq!(
            running(&world),
            [1, 3],
            "{sign:?}: tasks that share no files go on"
        );
        assert_eq!(
            world.task(TaskId(2)).failures,
            0,
            "the stop counts as a failed attempt"
        );
        assert_eq!(
            world.count("message.posted"),
            1,
            "the message is posted once"
        );
        // The same report again changes nothing.
        let before = world.board.revision;
        report_breach(&mut world, &grants[0], sign.clone());
        assert_eq!(world.board.revision, before);
        assert!(world.poll("ada").is_none());
        assert!(
            world.wait_kinds(TaskId(2)).contains(&WaitKind::Claim),
            "{:?}",
            world.wait_kinds(TaskId(2))
        );
        // From here on the tasks run one after the other.
        for (task, next) in [(1, 2), (2, 4)] {
            let grant = world
                .grants
                .iter()
                .rev()
                .find(|poll_grant| poll_grant.task == TaskId(task))
                .cloned()
                .unwrap();
            world.finish_and_land(&grant);
            assert_eq!(world.take_task("ada").task, TaskId(next));
            assert!(world.poll("ada").is_none());
        }
    }
}

/// A wave whose tasks share no files goes on, with a warning.
#[test]
fn a_disjoint_wave_goes_on_with_a_warning() {
    let (mut world, mission, grants) = isolated_mission(&["src/a.rs", "docs/b.md"]);
    report_breach(&mut world, &grants[0], checkout_breach(&["src/a.rs"]));
    assert!(world.board.missions[&mission].isolate);
    assert_eq!(
        world.count("attempt.stopping") + world.count("mission.serialised"),
        0
    );
    let warnings = &world.task(TaskId(1)).warnings;
    assert!(
        warnings[0].contains("isolation did not hold for A1") && warnings[0].contains("src/a.rs"),
        "{warnings:?}"
    );
    assert_eq!(world.status(TaskId(2)), TaskStatus::InProgress);
}

/// A change of files that no task works on may be a person's. It only gets a warning.
#[test]
fn a_change_of_files_in_no_manifest_only_warns() {
    let (mut world, mission, grants) = isolated_mission(&["src/a.rs", "src/**"]);
    report_breach(
        &mut world,
        &grants[0],
        checkout_breach(&["notes.txt", "tmp/"]),
    );
    assert!(world.board.missions[&mission].isolate);
    assert!(world.task(TaskId(1)).warnings[0].contains("check if you made these changes"));
}

/// J3: a report for an attempt that has ended is refused.
#[test]
fn j3_a_report_about_isolation_of_an_ended_attempt_is_refused() {
    let (mut world, mission, grants) = isolated_mission(&["src/a.rs", "src/**"]);
    world.submit(&grants[0]);
    let (attempt, token) = (grants[0].attempt, grants[0].token);
    world.report_refused(Report::IsolationBreach {
        attempt,
        token,
        sign: IsolationBreach::NoWorkspace,
    });
    assert!(world.board.missions[&mission].isolate);
}

/// An attempt whose files a landing changed gets a message with the commit and the files. Other
/// attempts do not.
#[test]
fn attempts_get_a_message_when_a_landing_changes_their_files() {
    let (mut world, _, grants) = isolated_mission(&["src/a.rs", "src/**", "docs/b.md"]);
    let landing = world.submit(&grants[0]);
    world.move_and_land(landing);
    let warnings_for = |grant: &PollGrant| {
        let subjects = [grant.attempt.to_string(), grant.task.to_string()];
        let texts = world
            .log
            .iter()
            .filter(|event| matches!(event.event.kind(), "attempt.told" | "task.noted"));
        let words = texts
            .filter(|event| subjects.contains(&event.event.subject()))
            .map(|event| format!("{:?}", event.event));
        words
            .filter(|word| word.contains("src/a.rs") && word.contains("git show"))
            .count()
    };
    assert_eq!((warnings_for(&grants[1]), warnings_for(&grants[2])), (1, 0));
}
