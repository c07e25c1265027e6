//! Q12: the trunk is compared with the board. A difference is announced once and shown until it is
//! gone.

use regatta_core::command::{Command, Report};
use regatta_core::ids::{LandingId, TaskId};
use regatta_core::landing::trunk_check::{
    TrunkCommit, TrunkSeen, difference_sentence, lost_commits, recorded,
};

use crate::world::{World, commit, shop};

fn trunk_commit(number: u64, landing: u64, task: u64, subject: &str) -> TrunkCommit {
    TrunkCommit {
        commit: commit(number),
        landing: Some(LandingId(landing)),
        task: Some(TaskId(task)),
        subject: subject.to_owned(),
    }
}

/// Reports a comparison with the commits that the board has recorded now.
fn report_difference(world: &mut World, missing: Vec<TrunkCommit>, added: Vec<TrunkCommit>) {
    let seen = TrunkSeen {
        recorded: recorded(&world.board.projects[&shop()]),
        missing,
        added,
    };
    report_trunk(world, seen);
}

fn report_trunk(world: &mut World, seen: TrunkSeen) {
    world.report(Report::TrunkCompared {
        project: shop(),
        seen,
    });
}

fn trunk_sentence(world: &World) -> String {
    difference_sentence(&world.board.projects[&shop()]).unwrap_or_default()
}

fn announcement_count(world: &World) -> usize {
    world.count("trunk.compared")
}

/// Returns a world in which a task has landed, and its commit on the trunk.
fn world_with_landing() -> (World, TrunkCommit) {
    let mut world = World::with_serial_queue(&[("ada", 1)]);
    let task = world.add_task("Add a cart", &["src/cart.rs"]);
    let grant = world.take_task("ada");
    world.finish_and_land(&grant);
    let tip = world.board.projects[&shop()]
        .queue
        .tip
        .clone()
        .expect("a landing records the trunk's tip");
    let landed = TrunkCommit {
        commit: tip,
        landing: Some(LandingId(1)),
        task: Some(task),
        subject: "Add a cart".into(),
    };
    (world, landed)
}

#[test]
fn q12_a_trunk_that_agrees_is_not_announced() {
    let (mut world, _) = world_with_landing();
    report_difference(&mut world, vec![], vec![]);
    // A person pushed a commit on top.
    let foreign = TrunkCommit {
        commit: commit(50),
        landing: None,
        task: None,
        subject: "By hand".into(),
    };
    report_difference(&mut world, vec![], vec![foreign]);
    assert_eq!(
        (announcement_count(&world), trunk_sentence(&world).as_str()),
        (0, "")
    );
}

#[test]
fn q12_landed_work_missing_from_the_trunk_is_announced_once_and_shown_until_it_is_back() {
    let (mut world, gone) = world_with_landing();
    report_difference(&mut world, vec![gone.clone()], vec![]);
    report_difference(&mut world, vec![gone.clone()], vec![]);
    assert_eq!(
        announcement_count(&world),
        1,
        "the same difference is not announced again"
    );
    let sentence = trunk_sentence(&world);
    assert!(
        sentence.contains("main no longer contains") && sentence.contains("(T1)"),
        "{sentence}"
    );
    assert!(
        sentence.contains("git merge") && sentence.contains("regatta queue accept"),
        "{sentence}"
    );

    // More work lands on the shortened trunk. The lost commit is still looked for.
    world.add_task("Add a till", &["src/till.rs"]);
    let grant = world.take_task("ada");
    world.finish_and_land(&grant);
    assert!(recorded(&world.board.projects[&shop()]).contains(&gone.commit));
    report_difference(&mut world, vec![gone], vec![]);
    assert!(!trunk_sentence(&world).is_empty());
    report_difference(&mut world, vec![], vec![]);
    assert_eq!(
        (announcement_count(&world), trunk_sentence(&world).as_str()),
        (2, ""),
        "the commit is back"
    );
}

#[test]
fn q12_a_rewritten_trunk_with_the_landing_as_another_commit_is_complete() {
    let (mut world, gone) = world_with_landing();
    let rewritten = TrunkCommit {
        commit: commit(60),
        ..gone.clone()
    };
    report_difference(&mut world, vec![gone], vec![rewritten]);
    assert_eq!(trunk_sentence(&world), "");
}

#[test]
fn q12_a_person_can_accept_the_trunk_as_it_is() {
    let (mut world, gone) = world_with_landing();
    report_difference(&mut world, vec![gone], vec![]);
    world.ask(
        "ann",
        Command::AcceptTrunk {
            project: shop(),
            tip: None,
        },
    );
    assert_eq!(
        (
            trunk_sentence(&world).as_str(),
            world.count("trunk.accepted")
        ),
        ("", 1)
    );
    assert!(
        recorded(&world.board.projects[&shop()]).is_empty(),
        "the lost tip is no longer expected"
    );
    world.ask(
        "ann",
        Command::AcceptTrunk {
            project: shop(),
            tip: None,
        },
    );
    assert_eq!(
        world.count("trunk.accepted"),
        1,
        "there is nothing more to accept"
    );
}

/// Q12: accepting covers every lost commit, also those that are not listed. A later loss is
/// announced again.
#[test]
fn q12_accepted_commits_are_no_longer_missing() {
    let (mut world, gone) = world_with_landing();
    let many: Vec<TrunkCommit> = (0..30)
        .map(|nth| trunk_commit(100 + nth, 100 + nth, 100 + nth, "One of many"))
        .collect();
    report_difference(
        &mut world,
        [vec![gone.clone()], many.clone()].concat(),
        vec![],
    );
    assert!(
        trunk_sentence(&world).contains("and 11 more"),
        "{}",
        trunk_sentence(&world)
    );
    world.ask(
        "ann",
        Command::AcceptTrunk {
            project: shop(),
            tip: Some(commit(7)),
        },
    );
    assert_eq!(
        recorded(&world.board.projects[&shop()]),
        [commit(7)],
        "the accepted tip is the recorded one"
    );
    // The gate still looks for every landing, under any commit id.
    let replayed = TrunkCommit {
        commit: commit(61),
        ..gone.clone()
    };
    let missing = [vec![gone, replayed], many].concat();
    let later = trunk_commit(8, 8, 8, "Landed later");
    let seen = TrunkSeen {
        recorded: vec![commit(7)],
        missing: [missing, vec![later.clone()]].concat(),
        added: vec![],
    };
    let project = world.board.projects[&shop()].clone();
    assert_eq!(lost_commits(&project, &seen).collect::<Vec<_>>(), [&later]);
    report_trunk(&mut world, seen);
    assert!(
        trunk_sentence(&world).contains("(T8)") && !trunk_sentence(&world).contains("(T1)"),
        "{}",
        trunk_sentence(&world)
    );
}

/// Q12: a task that needs a person although its commit is on the trunk is named. A task in the
/// queue is not, because its next trial records the commit. A commit of another fleet with the same
/// numbers is ignored.
#[test]
fn q12_work_of_an_open_task_on_the_trunk_is_named() {
    let (mut world, _) = world_with_landing();
    let task = world.add_task("Add a till", &["src/till.rs"]);
    let grant = world.take_task("ada");
    let landing = world.submit(&grant);
    let on = trunk_commit(70, landing.0, task.0, "Add a till");
    report_difference(&mut world, vec![], vec![on.clone()]);
    assert_eq!(trunk_sentence(&world), "", "a task in the queue is named");
    world.fail_trials(landing, "make test");
    assert_eq!(world.landing_state(landing), "gone");
    report_difference(
        &mut world,
        vec![],
        vec![TrunkCommit {
            subject: "Another fleet's".into(),
            ..on.clone()
        }],
    );
    report_difference(
        &mut world,
        vec![],
        vec![TrunkCommit {
            landing: Some(LandingId(999)),
            ..on.clone()
        }],
    );
    assert_eq!(trunk_sentence(&world), "");
    report_difference(&mut world, vec![], vec![on]);
    let sentence = trunk_sentence(&world);
    assert!(
        sentence.contains("tasks that are open")
            && sentence.contains(&format!("regatta land {task}")),
        "{sentence}"
    );
}

#[test]
fn q12_a_comparison_from_before_a_landing_is_ignored() {
    let (mut world, gone) = world_with_landing();
    report_trunk(
        &mut world,
        TrunkSeen {
            recorded: vec![commit(99)],
            missing: vec![gone],
            added: vec![],
        },
    );
    assert_eq!(trunk_sentence(&world), "");
}
