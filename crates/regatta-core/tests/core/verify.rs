//! Every commit that lands was validated as its exact tree, and the board never contradicts the trunk.

use regatta_core::command::Command;
use regatta_core::event::Event;
use regatta_core::ids::LandingId;
use regatta_core::landing::{Carried, Moved, NothingNew, Red, State, Tried};
use regatta_core::task::{SettledPath, Status};

use crate::speculation::{held_queue, landed, passed, red, release, trying};
use crate::world::{World, commit};

fn queue(count: usize, slots: u32) -> (World, Vec<LandingId>) {
    let (mut world, landings) = held_queue(count);
    world.verify_every(slots);
    release(&mut world);
    (world, landings)
}

/// Q1: X passes, X+A fails, X+A+B passes. A's commit would be red on the trunk, so B lands before A.
#[test]
fn q1_a_longer_trial_that_passes_does_not_excuse_a_red_commit() {
    let (mut world, it) = queue(3, 3);
    assert_eq!(trying(&world), [vec![1], vec![1, 2], vec![1, 2, 3]]);
    passed(&mut world, it[2], 10, 13);
    assert_eq!(world.landing(it[2]), "validated", "the shorter ones have not passed");
    red(&mut world, it[1]);
    assert_eq!(world.landing(it[2]), "validated", "nothing is known of the first one");
    passed(&mut world, it[0], 10, 11);
    assert_eq!(world.landing(it[0]), "moving", "it may land alone");
    assert_eq!(world.board.landings[&it[1]].faults, 1);
    assert_eq!(trying(&world), [vec![1, 3]], "A lets B go first");
    world.moved(it[0], Moved::Moved);
    world.tried(
        it[2],
        Tried::Passed {
            old: commit(10),
            new: commit(12),
            carries: vec![Carried::new(it[0], commit(11)), Carried::new(it[2], commit(12))],
        },
    );
    world.moved(it[2], Moved::Moved);
    assert_eq!(trying(&world), [vec![2]], "now A is tried on top of both");
    passed(&mut world, it[1], 12, 13);
    world.moved(it[1], Moved::Moved);
    assert_eq!(landed(&world), [(1, commit(11)), (3, commit(12)), (2, commit(13))]);
}

/// Q1: trials that pass out of order land together once the shortest has passed.
#[test]
fn q1_a_trial_waits_for_every_shorter_one() {
    let (mut world, it) = queue(3, 3);
    passed(&mut world, it[2], 10, 13);
    passed(&mut world, it[1], 10, 12);
    assert!(landed(&world).is_empty());
    assert_eq!(world.landing(it[1]), "validated");
    passed(&mut world, it[0], 10, 11);
    assert_eq!(world.landing(it[2]), "moving");
    world.moved(it[2], Moved::Moved);
    assert_eq!(landed(&world), [(1, commit(11)), (2, commit(12)), (3, commit(13))]);
}

/// Q9: the first failure may be a flake; the second one is a verdict, once what it was tried with has landed.
#[test]
fn q9_the_second_fault_is_a_verdict_when_the_rest_has_landed() {
    let (mut world, it) = queue(2, 2);
    passed(&mut world, it[0], 10, 11);
    red(&mut world, it[1]);
    world.moved(it[0], Moved::Moved);
    assert_eq!(trying(&world), [vec![2]], "once more");
    red(&mut world, it[1]);
    assert_eq!(world.landing(it[1]), "gone");

    // The same with somebody ahead of it the second time, whose move is still to come.
    let (mut world, it) = queue(3, 3);
    red(&mut world, it[0]);
    assert_eq!(world.board.landings[&it[0]].behind, [it[1], it[2]]);
    assert_eq!(trying(&world), [vec![1, 2], vec![1, 2, 3]], "of no use any more, and still in their slots");
    let hand = world.hold("ada", &["workspace://shop/default"]);
    red(&mut world, it[1]);
    passed(&mut world, it[2], 10, 13);
    assert_eq!(trying(&world), [vec![2], vec![2, 3]]);
    passed(&mut world, it[1], 10, 11);
    passed(&mut world, it[2], 10, 12);
    world.release("ada", hand);
    world.moved(it[2], Moved::Moved);
    assert_eq!(trying(&world), [vec![1]]);
    red(&mut world, it[0]);
    assert_eq!(world.landing(it[0]), "gone");
    assert_eq!(landed(&world).len(), 2);
}

/// Q1: one of a landing's own commits is red (`style = "rebase"`). It is tried again as one commit, and so is every trial
/// that stands on it.
#[test]
fn q1_a_landing_with_a_red_commit_of_its_own_lands_as_one() {
    let (mut world, it) = queue(2, 2);
    world.tried(it[0], Tried::RedStep { reason: "its commit 5 fails by itself".into() });
    assert!(world.board.landings[&it[0]].is_squashed);
    assert_eq!(trying(&world), [vec![1], vec![1, 2]]);
    passed(&mut world, it[1], 10, 12);
    assert_eq!(world.landing(it[1]), "trying", "it stood on the commits of before");
    passed(&mut world, it[0], 10, 11);
    world.moved(it[0], Moved::Moved);
    assert_eq!(landed(&world), [(1, commit(11))]);
}

/// Q12: while a move carries a landing, a late trial of it decides nothing, whatever it found.
#[test]
fn q12_no_report_changes_a_landing_that_a_move_carries() {
    let late = [
        Tried::Red { reason: "make test".into(), output: None, settled: vec![] },
        Tried::Conflict { at: LandingId(1), paths: vec!["src/0.rs".into()], kinds: vec![] },
        Tried::Held { at: Some(LandingId(1)), reason: "git failed".into() },
        Tried::AlreadyThere { tip: commit(11), landed_as: vec![] },
    ];
    for found in late {
        let (mut world, it) = held_queue(2);
        world.speculate(2, Some(2));
        release(&mut world);
        // The batch passes and moves; then somebody lets its first landing be tried by itself.
        passed(&mut world, it[1], 10, 12);
        assert_eq!(world.landing(it[1]), "moving");
        let mut alone = (*world.board.landings[&it[0]]).clone();
        alone.state = State::Trying { ahead: vec![], base: None, unverified: vec![], void: false };
        // It was at fault before, so a second fault would take it out of the queue.
        alone.faults = 1;
        world.plant(alone);
        world.tried(it[0], found.clone());
        assert_eq!(world.landing(it[0]), "queued", "{found:?}");
        let (faults, is_red) = (world.board.landings[&it[0]].faults, world.board.landings[&it[0]].red.is_some());
        assert_eq!((faults, is_red), (1, false), "nothing is recorded of it: {found:?}");
        assert_eq!(world.board.landings[&it[0]].held, None, "{found:?}");
        let task = world.board.landings[&it[0]].task;
        let drop = Command::CancelTask { task, reason: "changed my mind".into() };
        assert!(world.refused("ann", drop).message().contains("move of the trunk"), "{found:?}");
        world.moved(it[1], Moved::Moved);
        assert_eq!(world.status(task), Status::Completed, "{found:?}");
        assert_eq!(landed(&world), [(1, commit(11)), (2, commit(12))], "{found:?}");
    }
}

/// Q12: a trial that failed before the move began is no verdict while the move carries its landing.
#[test]
fn q12_no_verdict_is_made_of_a_landing_that_a_move_carries() {
    let (mut world, it) = held_queue(3);
    world.speculate(2, Some(2));
    release(&mut world);
    passed(&mut world, it[1], 10, 12);
    assert_eq!(world.landing(it[1]), "moving");
    let mut failed = (*world.board.landings[&it[0]]).clone();
    failed.faults = 1;
    failed.red = Some(Red { ahead: vec![], reason: "make test".into(), output: None, settled: vec![] });
    let task = failed.task;
    world.plant(failed);
    // Whatever is reported of others lets the queue go on.
    world.tried(it[2], Tried::Held { at: Some(it[2]), reason: "git failed".into() });
    assert_eq!(world.status(task), Status::Landing);
    world.moved(it[1], Moved::Moved);
    assert_eq!(world.status(task), Status::Completed);
    assert_eq!(landed(&world), [(1, commit(11)), (2, commit(12))]);
}

/// Q6: work whose conflict was settled by ownership, and which then fails, is mended in its own files and the settled ones.
#[test]
fn q6_a_fixup_after_ownership_may_change_its_own_and_the_settled_files() {
    let (mut world, it) = queue(1, 1);
    let task = world.board.landings[&it[0]].task;
    for _ in 0..2 {
        let settled = vec![SettledPath { path: "src/shared.rs".into(), is_trunks: false }];
        world.tried(it[0], Tried::Red { reason: "make test".into(), output: None, settled });
    }
    let task = world.board.tasks[&task].clone();
    let fixup = task.fixup.as_ref().expect("it goes back to be mended");
    assert_eq!((fixup.paths.as_slice(), fixup.settled.len()), (["src/shared.rs".to_owned()].as_slice(), 1));
    let open: Vec<String> = task.manifest().iter().map(ToString::to_string).collect();
    assert_eq!(open, ["src/0.rs", "src/shared.rs"]);
}

/// Q2: a trial that was merged onto other commits than those that landed stands on nothing.
#[test]
fn q2_a_trial_on_other_commits_than_landed_is_tried_again() {
    let (mut world, it) = queue(2, 2);
    passed(&mut world, it[0], 10, 11);
    world.moved(it[0], Moved::Moved);
    let carries = vec![Carried::new(it[0], commit(31)), Carried::new(it[1], commit(32))];
    world.tried(it[1], Tried::Passed { old: commit(10), new: commit(32), carries });
    assert_eq!(world.landing(it[1]), "trying", "again, on the trunk as it is");

    // It passed before the other one landed as another commit.
    let (mut world, it) = queue(2, 2);
    let carries = vec![Carried::new(it[0], commit(31)), Carried::new(it[1], commit(32))];
    world.tried(it[1], Tried::Passed { old: commit(10), new: commit(32), carries });
    passed(&mut world, it[0], 10, 11);
    assert_eq!(world.landing(it[0]), "moving", "Q14: the longer one claims a commit that did not pass");
    world.moved(it[0], Moved::Moved);
    assert_eq!(world.landing(it[1]), "trying");
}

/// Q7: work that the trunk contains already has no commit of its own, so undoing it cannot take back another task's.
#[test]
fn q7_work_that_changes_nothing_has_no_commit_of_its_own() {
    let (mut world, it) = queue(2, 2);
    let empty = Carried { nothing_new: Some(NothingNew::default()), ..Carried::new(it[1], commit(11)) };
    world.tried(
        it[1],
        Tried::Passed { old: commit(10), new: commit(11), carries: vec![Carried::new(it[0], commit(11)), empty] },
    );
    passed(&mut world, it[0], 10, 11);
    let tasks: Vec<_> = it.iter().map(|it| world.board.landings[it].task).collect();
    world.moved(it[1], Moved::Moved);
    assert_eq!(world.stored(tasks[0]).landed, Some(commit(11)));
    assert_eq!((world.stored(tasks[1]).status, world.stored(tasks[1]).landed), (Status::Completed, None));

    // A move whose report was lost: the trunk names the landing, and that commit is its own.
    let (mut world, it) = queue(1, 1);
    let task = world.board.landings[&it[0]].task;
    world.tried(it[0], Tried::AlreadyThere { tip: commit(13), landed_as: vec![(it[0], commit(12))] });
    assert_eq!(world.stored(task).landed, Some(commit(12)));
    let tips = world.log.iter().filter_map(|it| match &it.event {
        Event::LandingLanded(it) => it.tip().clone(),
        _ => None,
    });
    assert_eq!(tips.collect::<Vec<_>>(), [commit(13)]);
}

/// Q14: with `verify = "tip"` the commits before a tip are marked, unless another trial ends in them.
#[test]
fn q14_only_the_tips_of_batches_claim_a_validation() {
    let (mut world, it) = held_queue(6);
    world.speculate(2, Some(3));
    release(&mut world);
    let unverified = |world: &World, id: LandingId| match &world.board.landings[&id].state {
        State::Trying { unverified, .. } => unverified.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(unverified(&world, it[2]), it[..2]);
    assert_eq!(unverified(&world, it[5]), [it[0], it[1], it[3], it[4]], "the third is another trial's tip");
    let (world, it) = queue(3, 3);
    assert!(unverified(&world, it[2]).is_empty(), "every commit is validated");
}
