//! Every commit that lands was validated as its exact tree, and the board agrees with the trunk.

use regatta_core::command::Command;
use regatta_core::event::Event;
use regatta_core::ids::LandingId;
use regatta_core::landing::{
    CarriedLanding, FailedTrial, LandingState, MoveOutcome, NothingNew, TrialOutcome,
};
use regatta_core::task::{SettledPath, TaskStatus};

use crate::speculation::{
    held_queue, landed_commits, release_queue, report_failed, report_passed, running_trials,
};
use crate::world::{World, commit};

fn world_with_queue(count: usize, slots: u32) -> (World, Vec<LandingId>) {
    let (mut world, landings) = held_queue(count);
    world.verify_every_commit(slots);
    release_queue(&mut world);
    (world, landings)
}

/// Q1: X passes, X+A fails, X+A+B passes. A's commit would be red on the trunk, so B lands before
/// A.
#[test]
fn q1_a_longer_trial_that_passes_does_not_excuse_a_failing_commit() {
    let (mut world, ids) = world_with_queue(3, 3);
    assert_eq!(running_trials(&world), [vec![1], vec![1, 2], vec![1, 2, 3]]);
    report_passed(&mut world, ids[2], 10, 13);
    assert_eq!(
        world.landing_state(ids[2]),
        "validated",
        "a shorter trial has not passed"
    );
    report_failed(&mut world, ids[1]);
    assert_eq!(
        world.landing_state(ids[2]),
        "validated",
        "the first trial has no result yet"
    );
    report_passed(&mut world, ids[0], 10, 11);
    assert_eq!(
        world.landing_state(ids[0]),
        "moving",
        "the first landing may land alone"
    );
    assert_eq!(world.board.landings[&ids[1]].faults, 1);
    assert_eq!(running_trials(&world), [vec![1, 3]], "A lets B go first");
    world.report_move(ids[0], MoveOutcome::Moved);
    world.report_trial(
        ids[2],
        TrialOutcome::Passed {
            old: commit(10),
            new: commit(12),
            carries: vec![
                CarriedLanding::new(ids[0], commit(11)),
                CarriedLanding::new(ids[2], commit(12)),
            ],
        },
    );
    world.report_move(ids[2], MoveOutcome::Moved);
    assert_eq!(
        running_trials(&world),
        [vec![2]],
        "now A is tried on top of both"
    );
    report_passed(&mut world, ids[1], 12, 13);
    world.report_move(ids[1], MoveOutcome::Moved);
    assert_eq!(
        landed_commits(&world),
        [(1, commit(11)), (3, commit(12)), (2, commit(13))]
    );
}

/// Q1: trials that pass out of order land together after the shortest has passed.
#[test]
fn q1_a_trial_waits_for_every_shorter_one() {
    let (mut world, ids) = world_with_queue(3, 3);
    report_passed(&mut world, ids[2], 10, 13);
    report_passed(&mut world, ids[1], 10, 12);
    assert!(landed_commits(&world).is_empty());
    assert_eq!(world.landing_state(ids[1]), "validated");
    report_passed(&mut world, ids[0], 10, 11);
    assert_eq!(world.landing_state(ids[2]), "moving");
    world.report_move(ids[2], MoveOutcome::Moved);
    assert_eq!(
        landed_commits(&world),
        [(1, commit(11)), (2, commit(12)), (3, commit(13))]
    );
}

/// Q9: a first failure may be a flake. A second failure counts once the landings before it in that
/// trial have landed.
#[test]
fn q9_a_second_failure_counts_after_the_landings_before_it_have_landed() {
    let (mut world, ids) = world_with_queue(2, 2);
    report_passed(&mut world, ids[0], 10, 11);
    report_failed(&mut world, ids[1]);
    world.report_move(ids[0], MoveOutcome::Moved);
    assert_eq!(
        running_trials(&world),
        [vec![2]],
        "the failed landing was not tried again"
    );
    report_failed(&mut world, ids[1]);
    assert_eq!(world.landing_state(ids[1]), "gone");

    // The same, but in the second trial another landing is ahead of it, whose move has not ended.
    let (mut world, ids) = world_with_queue(3, 3);
    report_failed(&mut world, ids[0]);
    assert_eq!(
        world.board.landings[&ids[0]].deferred_behind,
        [ids[1], ids[2]]
    );
    assert_eq!(
        running_trials(&world),
        [vec![1, 2], vec![1, 2, 3]],
        "void trials keep their slots until they end"
    );
    let hand = world.hold_claim("ada", &["workspace://shop/default"]);
    report_failed(&mut world, ids[1]);
    report_passed(&mut world, ids[2], 10, 13);
    assert_eq!(running_trials(&world), [vec![2], vec![2, 3]]);
    report_passed(&mut world, ids[1], 10, 11);
    report_passed(&mut world, ids[2], 10, 12);
    world.release("ada", hand);
    world.report_move(ids[2], MoveOutcome::Moved);
    assert_eq!(running_trials(&world), [vec![1]]);
    report_failed(&mut world, ids[0]);
    assert_eq!(world.landing_state(ids[0]), "gone");
    assert_eq!(landed_commits(&world).len(), 2);
}

/// Q1: one of a landing's own commits fails (`style = "rebase"`). The landing is tried again as one
/// commit, and so is every trial that builds on it.
#[test]
fn q1_a_landing_with_a_failing_commit_of_its_own_lands_as_one_commit() {
    let (mut world, ids) = world_with_queue(2, 2);
    world.report_trial(
        ids[0],
        TrialOutcome::CommitFailed {
            reason: "its commit 5 fails by itself".into(),
        },
    );
    assert!(world.board.landings[&ids[0]].is_squashed);
    assert_eq!(running_trials(&world), [vec![1], vec![1, 2]]);
    report_passed(&mut world, ids[1], 10, 12);
    assert_eq!(
        world.landing_state(ids[1]),
        "trying",
        "the trial was built on the old commits"
    );
    report_passed(&mut world, ids[0], 10, 11);
    world.report_move(ids[0], MoveOutcome::Moved);
    assert_eq!(landed_commits(&world), [(1, commit(11))]);
}

/// Q12: while a move carries a landing, a late result of its trial changes nothing.
#[test]
fn q12_a_late_report_does_not_change_a_landing_that_is_being_moved() {
    let late = [
        TrialOutcome::Failed {
            reason: "make test".into(),
            output: None,
            settled: vec![],
        },
        TrialOutcome::Conflict {
            landing: LandingId(1),
            paths: vec!["src/0.rs".into()],
            kinds: vec![],
        },
        TrialOutcome::Held {
            landing: Some(LandingId(1)),
            reason: "git failed".into(),
        },
        TrialOutcome::AlreadyOnTrunk {
            tip: commit(11),
            landed_as: vec![],
        },
    ];
    for found in late {
        let (mut world, ids) = held_queue(2);
        world.speculate(2, Some(2));
        release_queue(&mut world);
        // The batch passes and moves. Then the board is edited so that its first landing is tried
        // alone.
        report_passed(&mut world, ids[1], 10, 12);
        assert_eq!(world.landing_state(ids[1]), "moving");
        let mut alone = (*world.board.landings[&ids[0]]).clone();
        alone.state = LandingState::Trying {
            ahead: vec![],
            base: None,
            unverified: vec![],
            void: false,
        };
        // The landing already has one fault, so a second one would remove it from the queue.
        alone.faults = 1;
        world.insert_landing(alone);
        world.report_trial(ids[0], found.clone());
        assert_eq!(world.landing_state(ids[0]), "queued", "{found:?}");
        let (faults, is_red) = (
            world.board.landings[&ids[0]].faults,
            world.board.landings[&ids[0]].failed_trial.is_some(),
        );
        assert_eq!(
            (faults, is_red),
            (1, false),
            "the late report was recorded: {found:?}"
        );
        assert_eq!(world.board.landings[&ids[0]].held, None, "{found:?}");
        let task = world.board.landings[&ids[0]].task;
        let drop = Command::CancelTask {
            task,
            reason: "changed my mind".into(),
        };
        assert!(
            world
                .ask_refused("ann", drop)
                .message()
                .contains("move of the trunk"),
            "{found:?}"
        );
        world.report_move(ids[1], MoveOutcome::Moved);
        assert_eq!(world.status(task), TaskStatus::Completed, "{found:?}");
        assert_eq!(
            landed_commits(&world),
            [(1, commit(11)), (2, commit(12))],
            "{found:?}"
        );
    }
}

/// Q12: a failure from before the move is not acted on while the move carries its landing.
#[test]
fn q12_an_earlier_failure_does_not_remove_a_landing_that_is_being_moved() {
    let (mut world, ids) = held_queue(3);
    world.speculate(2, Some(2));
    release_queue(&mut world);
    report_passed(&mut world, ids[1], 10, 12);
    assert_eq!(world.landing_state(ids[1]), "moving");
    let mut failed = (*world.board.landings[&ids[0]]).clone();
    failed.faults = 1;
    failed.failed_trial = Some(FailedTrial {
        ahead: vec![],
        reason: "make test".into(),
        output: None,
        settled: vec![],
    });
    let task = failed.task;
    world.insert_landing(failed);
    // A report about another landing lets the queue continue.
    world.report_trial(
        ids[2],
        TrialOutcome::Held {
            landing: Some(ids[2]),
            reason: "git failed".into(),
        },
    );
    assert_eq!(world.status(task), TaskStatus::Landing);
    world.report_move(ids[1], MoveOutcome::Moved);
    assert_eq!(world.status(task), TaskStatus::Completed);
    assert_eq!(landed_commits(&world), [(1, commit(11)), (2, commit(12))]);
}

/// Q6: when ownership resolved a conflict and the result fails, the fix-up may change the task's
/// own files and the resolved ones.
#[test]
fn q6_a_fixup_after_ownership_may_change_its_own_and_the_resolved_files() {
    let (mut world, ids) = world_with_queue(1, 1);
    let task = world.board.landings[&ids[0]].task;
    for _ in 0..2 {
        let settled = vec![SettledPath {
            path: "src/shared.rs".into(),
            is_trunks: false,
        }];
        world.report_trial(
            ids[0],
            TrialOutcome::Failed {
                reason: "make test".into(),
                output: None,
                settled,
            },
        );
    }
    let task = world.board.tasks[&task].clone();
    let fixup = task
        .fixup
        .as_ref()
        .expect("the task goes back for a fix-up");
    assert_eq!(
        (fixup.paths.as_slice(), fixup.settled.len()),
        (["src/shared.rs".to_owned()].as_slice(), 1)
    );
    let open: Vec<String> = task.manifest().iter().map(ToString::to_string).collect();
    assert_eq!(open, ["src/0.rs", "src/shared.rs"]);
}

/// Q2: a trial that was merged onto other commits than those that landed is void.
#[test]
fn q2_a_trial_merged_onto_commits_that_did_not_land_is_tried_again() {
    let (mut world, ids) = world_with_queue(2, 2);
    report_passed(&mut world, ids[0], 10, 11);
    world.report_move(ids[0], MoveOutcome::Moved);
    let carries = vec![
        CarriedLanding::new(ids[0], commit(31)),
        CarriedLanding::new(ids[1], commit(32)),
    ];
    world.report_trial(
        ids[1],
        TrialOutcome::Passed {
            old: commit(10),
            new: commit(32),
            carries,
        },
    );
    assert_eq!(
        world.landing_state(ids[1]),
        "trying",
        "the landing is not tried again on the current trunk"
    );

    // The longer trial passed before the first landing landed as another commit.
    let (mut world, ids) = world_with_queue(2, 2);
    let carries = vec![
        CarriedLanding::new(ids[0], commit(31)),
        CarriedLanding::new(ids[1], commit(32)),
    ];
    world.report_trial(
        ids[1],
        TrialOutcome::Passed {
            old: commit(10),
            new: commit(32),
            carries,
        },
    );
    report_passed(&mut world, ids[0], 10, 11);
    assert_eq!(
        world.landing_state(ids[0]),
        "moving",
        "Q14: the longer trial carries a commit that did not pass"
    );
    world.report_move(ids[0], MoveOutcome::Moved);
    assert_eq!(world.landing_state(ids[1]), "trying");
}

/// Q7: work that the trunk already contains has no commit of its own, so undoing it cannot revert
/// another task's commit.
#[test]
fn q7_work_that_changes_nothing_has_no_commit_of_its_own() {
    let (mut world, ids) = world_with_queue(2, 2);
    let empty = CarriedLanding {
        nothing_new: Some(NothingNew::default()),
        ..CarriedLanding::new(ids[1], commit(11))
    };
    world.report_trial(
        ids[1],
        TrialOutcome::Passed {
            old: commit(10),
            new: commit(11),
            carries: vec![CarriedLanding::new(ids[0], commit(11)), empty],
        },
    );
    report_passed(&mut world, ids[0], 10, 11);
    let tasks: Vec<_> = ids.iter().map(|id| world.board.landings[id].task).collect();
    world.report_move(ids[1], MoveOutcome::Moved);
    assert_eq!(world.stored_task(tasks[0]).landed, Some(commit(11)));
    assert_eq!(
        (
            world.stored_task(tasks[1]).status,
            world.stored_task(tasks[1]).landed
        ),
        (TaskStatus::Completed, None)
    );

    // The report of a move was lost. The trunk's commit names the landing, so that commit is the
    // task's own.
    let (mut world, ids) = world_with_queue(1, 1);
    let task = world.board.landings[&ids[0]].task;
    world.report_trial(
        ids[0],
        TrialOutcome::AlreadyOnTrunk {
            tip: commit(13),
            landed_as: vec![(ids[0], commit(12))],
        },
    );
    assert_eq!(world.stored_task(task).landed, Some(commit(12)));
    let tips = world.log.iter().filter_map(|event| match &event.event {
        Event::LandingLanded(landing_landed) => landing_landed.tip().clone(),
        _ => None,
    });
    assert_eq!(tips.collect::<Vec<_>>(), [commit(13)]);
}

/// Q14: with `verify = "tip"` the commits before a tip are marked as unverified, unless they are
/// the tip of another trial.
#[test]
fn q14_only_the_tips_of_batches_count_as_validated() {
    let (mut world, ids) = held_queue(6);
    world.speculate(2, Some(3));
    release_queue(&mut world);
    let unverified = |world: &World, id: LandingId| match &world.board.landings[&id].state {
        LandingState::Trying { unverified, .. } => unverified.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(unverified(&world, ids[2]), ids[..2]);
    assert_eq!(
        unverified(&world, ids[5]),
        [ids[0], ids[1], ids[3], ids[4]],
        "the third commit is another trial's tip"
    );
    let (world, ids) = world_with_queue(3, 3);
    assert!(
        unverified(&world, ids[2]).is_empty(),
        "every commit is validated"
    );
}
