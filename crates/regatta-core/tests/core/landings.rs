//! Landings: one branch at a time per project, in order, under a fence.

mod person_decisions;
mod trunk_claims;

use regatta_core::claim::{Acquire, ClaimOwner, TRUNK_TTL_MS};
use regatta_core::command::{Command, CommandOutcome, Report};
use regatta_core::event::Event;
use regatta_core::ids::{LandingId, ProjectName, TaskId};
use regatta_core::landing::{Landing, MoveOutcome, TrialOutcome, median_time_ms};
use regatta_core::schedule::{PollRequest, WaitKind};
use regatta_core::task::{AddTask, AssignMode, Task, TaskStatus};

use crate::world::{
    HeldClaim, MINUTE_MS, SECOND_MS, World, acquire, agent, attempt_owner, commit, task_to_add,
};

const TRUNK: &str = "workspace://shop/default";

/// Returns a world in which one task for each of these priorities was submitted, in this order.
fn queued_world(priorities: &[u8]) -> (World, Vec<LandingId>) {
    let mut world = World::with_serial_queue(&[("ada", 1)]);
    let mut landings = Vec::new();
    for (nth, priority) in priorities.iter().enumerate() {
        world.add(AddTask {
            priority: *priority,
            ..task_to_add(&format!("part {nth}"), &[&format!("src/{nth}.rs")])
        });
        let grant = world.take_task("ada");
        landings.push(world.submit(&grant));
    }
    (world, landings)
}

fn landing_states(world: &World, landings: &[LandingId]) -> Vec<&'static str> {
    landings.iter().map(|id| world.landing_state(*id)).collect()
}

fn landed_tasks(world: &World) -> Vec<u64> {
    world
        .log
        .iter()
        .filter_map(|event| match &event.event {
            Event::LandingLanded(landing_landed) => Some(landing_landed.landing().0),
            _ => None,
        })
        .collect()
}

/// Q10: landings run one at a time, by priority and then age. A landing under way is not
/// interrupted.
#[test]
fn q10_landings_run_one_at_a_time_by_priority_and_age() {
    let (mut world, landings) = queued_world(&[2, 5, 2, 0]);
    assert_eq!(
        landing_states(&world, &landings),
        ["trying", "queued", "queued", "queued"]
    );
    let position = |world: &mut World, task| match world.ask(
        "ann",
        Command::Land {
            task: TaskId(task),
            first: false,
        },
    ) {
        CommandOutcome::Queued(position) => position.position,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        [1, 2, 3, 4].map(|task| position(&mut world, task)),
        [1, 4, 3, 2],
        "asking for the position does not change it"
    );
    while let Some(id) = landings
        .iter()
        .copied()
        .find(|id| world.landing_state(*id) == "trying")
    {
        world.move_and_land(id);
    }
    assert_eq!(landed_tasks(&world), [1, 4, 3, 2]);
}

/// Q10: each project has its own queue.
#[test]
fn q10_projects_do_not_wait_for_each_other() {
    let (mut world, landings) = queued_world(&[2]);
    world.ask("ann", Command::AddProject(world.project("docs", &["make"])));
    world.add(AddTask {
        project: ProjectName::new("docs").unwrap(),
        ..task_to_add("page", &["a.md"])
    });
    let grant = world.take_task("ada");
    let other = world.submit(&grant);
    assert_eq!(
        (world.landing_state(landings[0]), world.landing_state(other)),
        ("trying", "trying")
    );
    world.move_and_land(other);
    world.move_and_land(landings[0]);
}

/// L6: a move whose fence expires is given up. Its late report changes nothing, and the landing is
/// tried again.
#[test]
fn l6_an_expired_fence_moves_nothing() {
    let (mut world, landings) = queued_world(&[2]);
    let id = landings[0];
    world.pass_trial(id);
    let fence = world.fence_of(id);
    world.advance(TRUNK_TTL_MS - 1);
    assert_eq!(world.landing_state(id), "moving");
    world.advance(1);
    assert_eq!(world.landing_state(id), "trying");
    assert_eq!(world.owner_of(TRUNK), None);
    let late = Report::TrunkMove {
        landing: id,
        fence,
        outcome: MoveOutcome::Moved,
    };
    assert_eq!(world.report_refused(late.clone()).code(), "stale_landing");
    world.pass_trial(id);
    assert!(world.fence_of(id) > fence, "L2");
    assert_eq!(world.report_refused(late).code(), "stale_landing");
    world.report_move(id, MoveOutcome::Moved);
    assert_eq!(landed_tasks(&world), [1]);
}

/// L6: the fence is one specific claim. The end of another lease of the same owner does not affect
/// the move.
#[test]
fn l6_another_lease_is_not_the_fence() {
    let mut world = World::with_serial_queue(&[("ada", 1)]);
    world.add_task("words", &["src/**"]);
    let grant = world.take_task("ada");
    world.hold_requested_claim(
        "ada",
        Acquire {
            ttl_ms: MINUTE_MS,
            ..acquire(attempt_owner(grant.attempt), &["port://1"])
        },
    );
    let landing = world.submit(&grant);
    world.pass_trial(landing);
    world.advance(MINUTE_MS);
    assert_eq!(
        world.landing_state(landing),
        "moving",
        "the port's lease ended, not the trunk's"
    );
    world.report_move(landing, MoveOutcome::Moved);
}

/// Q7: the trunk moved but the report was lost. The next trial finds the work on the trunk, and it
/// counts as landed.
#[test]
fn q7_work_that_is_already_on_the_trunk_has_landed() {
    let (mut world, landings) = queued_world(&[2, 2]);
    world.pass_trial(landings[0]);
    world.advance(TRUNK_TTL_MS);
    world.report_trial(
        landings[0],
        TrialOutcome::AlreadyOnTrunk {
            tip: commit(77),
            landed_as: vec![],
        },
    );
    assert_eq!(
        (landed_tasks(&world), world.status(TaskId(1))),
        (vec![1], TaskStatus::Completed)
    );
    assert_eq!(
        world.stored_task(TaskId(1)).landed,
        None,
        "the tip may be a commit of another task or person"
    );
    let labels = |label: &str| {
        let posted = world.log.iter().filter_map(|event| match &event.event {
            Event::MessagePosted(message_posted) => Some(message_posted.message().labels.clone()),
            _ => None,
        });
        posted
            .flatten()
            .filter(|found| found.as_str() == label)
            .count()
    };
    assert_eq!(
        (labels("coord:unchanged"), labels("coord:merge")),
        (1, 0),
        "nothing was merged"
    );
    assert_eq!(world.landing_state(landings[1]), "trying");
    world.report_refused(Report::Trial {
        landing: landings[0],
        outcome: TrialOutcome::AlreadyOnTrunk {
            tip: commit(77),
            landed_as: vec![],
        },
    });
}

/// Q2: when somebody else moves the trunk, the trial's result is dropped and the work is merged
/// again at once.
#[test]
fn q2_a_trunk_that_moved_elsewhere_is_merged_again() {
    let (mut world, landings) = queued_world(&[2]);
    world.pass_trial(landings[0]);
    world.report_move(landings[0], MoveOutcome::TrunkMoved);
    assert_eq!(
        (world.landing_state(landings[0]), world.owner_of(TRUNK)),
        ("trying", None)
    );
    assert_eq!(world.board.landings[&landings[0]].tries, 2);
    world.move_and_land(landings[0]);
}

/// Q9: a person's uncommitted changes hold the landing that touches the same files, not the
/// landings behind it. The held landing is tried again later, or at once when a person asks.
#[test]
fn q9_a_dirty_checkout_holds_its_own_landing() {
    let (mut world, landings) = queued_world(&[2, 2]);
    let id = landings[0];
    world.pass_trial(id);
    world.report_move(
        id,
        MoveOutcome::Dirty {
            paths: vec!["src/0.rs".into()],
        },
    );
    assert_eq!(
        (landing_states(&world, &landings), world.owner_of(TRUNK)),
        (vec!["queued", "trying"], None)
    );
    world.move_and_land(landings[1]);
    assert_eq!(world.wait_kinds(TaskId(1)), [WaitKind::Policy]);
    let reason = world.board.landings[&id].held.clone().unwrap();
    assert_eq!(
        reason,
        "the checkout of main has changes in src/0.rs, which T1 changes too: commit, stash or \
        move them, and it lands (git commit -a, or git stash)"
    );
    world.advance(5 * SECOND_MS - 1);
    assert_eq!(world.landing_state(id), "queued");
    world.advance(1);
    assert_eq!(world.landing_state(id), "trying");
    world.pass_trial(id);
    world.report_move(
        id,
        MoveOutcome::Dirty {
            paths: vec!["src/0.rs".into()],
        },
    );
    world.advance(5 * SECOND_MS);
    assert_eq!(
        world.landing_state(id),
        "queued",
        "the second wait is not longer than the first"
    );
    world.ask(
        "ann",
        Command::Land {
            task: TaskId(1),
            first: false,
        },
    );
    assert_eq!(world.landing_state(id), "trying");
    world.move_and_land(id);
}

/// Q10: asking for a held landing does not start a second trial.
#[test]
fn q10_asking_for_a_held_landing_stays_serial() {
    let (mut world, mut landings) = queued_world(&[2]);
    world.pass_trial(landings[0]);
    world.report_move(
        landings[0],
        MoveOutcome::Held {
            reason: "no disk".into(),
        },
    );
    world.add(AddTask {
        priority: 0,
        ..task_to_add("urgent", &["src/urgent.rs"])
    });
    let grant = world.take_task("ada");
    landings.push(world.submit(&grant));
    assert_eq!(
        landing_states(&world, &landings),
        ["queued", "trying"],
        "the urgent landing waits for the held one"
    );
    world.ask(
        "ann",
        Command::Land {
            task: TaskId(1),
            first: false,
        },
    );
    assert_eq!(landing_states(&world, &landings), ["queued", "trying"]);
    world.move_and_land(landings[1]);
    world.advance(MINUTE_MS);
    world.move_and_land(landings[0]);
}

/// When a trial gives no result, the landing is held and tried again, and nothing counts against
/// the task.
#[test]
fn a_trial_without_a_result_is_tried_again() {
    let (mut world, landings) = queued_world(&[2]);
    for _ in 0..6 {
        world.report_trial(
            landings[0],
            TrialOutcome::Held {
                landing: None,
                reason: "no disk".into(),
            },
        );
        assert_eq!(world.landing_state(landings[0]), "queued");
        world.advance(80 * SECOND_MS);
        assert_eq!(world.landing_state(landings[0]), "trying");
    }
    assert_eq!(world.task(TaskId(1)).failures, 0);
    world.move_and_land(landings[0]);
}

/// Q6, Q8, Q9: a conflict or a failed validation is sent back for a fix-up of the affected files.
/// After three fix-ups the task needs a person.
#[test]
fn q8_a_conflict_is_retried_up_to_the_limit() {
    for red in [false, true] {
        let mut world = World::with_serial_queue(&[("ada", 1)]);
        let task = world.add_task("words", &["src/**"]);
        for round in 0..=3 {
            assert_eq!(world.task(task).fixups, round);
            let grant = world.take_task("ada");
            let landing = world.submit(&grant);
            assert_eq!(
                world.task(task).fixup,
                None,
                "submitted work still has a fix-up"
            );
            if red {
                world.fail_trials(landing, "2 tests failed")
            } else {
                world.report_trial(
                    landing,
                    TrialOutcome::Conflict {
                        landing,
                        paths: vec!["src/words.rs".into()],
                        kinds: vec![],
                    },
                )
            }
            assert_eq!(
                world.owner_of("file://shop/src/a.rs"),
                None,
                "round {round}"
            );
            let item = world.task(task);
            if round < 3 {
                let fixup = item.fixup.clone().expect("the task has a fix-up");
                assert_eq!(
                    Some(&fixup.commit),
                    item.submission
                        .as_ref()
                        .map(|submission| &submission.commit)
                );
                let manifest: Vec<String> =
                    item.manifest().iter().map(ToString::to_string).collect();
                assert_eq!(manifest, [if red { "src/**" } else { "src/words.rs" }]);
                assert_eq!(
                    fixup
                        .output
                        .is_some_and(|output| output.contains("2 tests failed")),
                    red
                );
            }
        }
        assert_eq!(world.status(task), TaskStatus::NeedsHuman);
        assert_eq!(
            world.wait_kinds(task),
            [if red {
                WaitKind::Review
            } else {
                WaitKind::Conflict
            }]
        );
        assert_eq!(world.poll("ada"), None);
        let last = world
            .task(task)
            .fixup
            .clone()
            .expect("the last failure is kept for the person");
        assert_eq!(
            last.paths,
            if red {
                vec![]
            } else {
                vec!["src/words.rs".to_owned()]
            }
        );
        assert!(
            world.task(task).submission.is_some(),
            "Q6: the work is lost"
        );
        assert_eq!(
            world.task(task).failures,
            0,
            "a failed landing counted as a failed attempt"
        );
    }
}

/// Q6: a failed fix-up counts as one of the three. The task then needs a person; it does not fail,
/// and its work is kept.
#[test]
fn q6_a_fixup_that_fails_counts_and_the_work_is_kept() {
    let mut world = World::with_serial_queue(&[("ada", 1)]);
    let task = world.add_task("words", &["src/**"]);
    let grant = world.take_task("ada");
    let landing = world.submit(&grant);
    world.report_trial(
        landing,
        TrialOutcome::Conflict {
            landing,
            paths: vec!["src/words.rs".into()],
            kinds: vec![],
        },
    );
    for round in 1..=3 {
        assert_eq!(
            (world.task(task).fixups, world.status(task)),
            (round, TaskStatus::Unassigned)
        );
        let grant = world.take_task("ada");
        world.finish(&grant);
        let verdict = regatta_core::attempt::WorkVerdict::Failed {
            reason: "it still has marks".into(),
        };
        assert_eq!(world.report_verdict(&grant, verdict), None);
    }
    assert_eq!(
        (world.status(task), world.wait_kinds(task)),
        (TaskStatus::NeedsHuman, vec![WaitKind::Conflict])
    );
    assert!(world.task(task).submission.is_some() && world.task(task).failures == 0);
}

/// Q6: the side of a conflict that ownership dropped becomes a follow-up task, but only after the
/// other side has landed.
#[test]
fn q6_a_side_dropped_by_ownership_becomes_a_task() {
    let (mut world, landings) = queued_world(&[2]);
    let dropped = regatta_core::landing::DroppedSides {
        reference: "refs/regatta/dropped/x".into(),
        commit: commit(9),
        paths: vec!["src/0.rs".into()],
    };
    let carries = vec![regatta_core::landing::CarriedLanding {
        dropped: Some(dropped),
        ..regatta_core::landing::CarriedLanding::new(landings[0], commit(8))
    }];
    world.report_trial(
        landings[0],
        TrialOutcome::Passed {
            old: commit(4),
            new: commit(8),
            carries,
        },
    );
    assert_eq!(world.board.tasks.len(), 1);
    world.report_move(landings[0], MoveOutcome::Moved);
    let made = world
        .board
        .tasks
        .values()
        .next()
        .expect("a follow-up")
        .clone();
    assert_eq!(
        made.files
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        ["src/0.rs"]
    );
    assert!(
        made.description.contains("refs/regatta/dropped/x") && made.description.contains("T1"),
        "{made:?}"
    );
}

/// Q9: a failing landing delays the others by its own trial and no more.
#[test]
fn q9_a_failing_landing_lets_the_others_go_first() {
    let (mut world, landings) = queued_world(&[2, 2]);
    world.report_trial(
        landings[0],
        TrialOutcome::Failed {
            reason: "a test failed".into(),
            output: None,
            settled: vec![],
        },
    );
    assert_eq!(landing_states(&world, &landings), ["queued", "trying"]);
    assert_eq!(world.wait_kinds(TaskId(1)), [WaitKind::Queue]);
    world.move_and_land(landings[1]);
    assert_eq!(
        landing_states(&world, &landings),
        ["trying", "gone"],
        "a first failure is tried again because it may be a flake"
    );
    world.report_trial(
        landings[0],
        TrialOutcome::Failed {
            reason: "a test failed".into(),
            output: None,
            settled: vec![],
        },
    );
    assert_eq!(landing_states(&world, &landings), ["gone", "gone"]);
    assert_eq!(world.status(TaskId(1)), TaskStatus::Unassigned);
}

/// L6: a report that is late, early or about an unknown landing changes nothing.
#[test]
fn l6_stale_reports_change_nothing() {
    let (mut world, landings) = queued_world(&[2, 2]);
    let tried = |landing| Report::Trial {
        landing,
        outcome: TrialOutcome::Passed {
            old: commit(1),
            new: commit(2),
            carries: vec![],
        },
    };
    let moved = |landing, fence| Report::TrunkMove {
        landing,
        fence,
        outcome: MoveOutcome::Moved,
    };
    world.report_refused(tried(landings[1]));
    world.report_refused(tried(LandingId(99)));
    world.report_refused(moved(landings[0], 1));
    world.pass_trial(landings[0]);
    let fence = world.fence_of(landings[0]);
    world.report_refused(tried(landings[0]));
    for wrong in [0, fence - 1, fence + 1, u64::MAX] {
        world.report_refused(moved(landings[0], wrong));
    }
    world.report_move(landings[0], MoveOutcome::Moved);
    world.report_refused(moved(landings[0], fence));
    assert_eq!(landed_tasks(&world), [1], "Q7");
}

/// A `coord:pass_trial` message names branch, task, subject and files. A `coord:conflict` message
/// says why a landing left the queue.
#[test]
fn landings_and_conflicts_post_a_message() {
    let mut world = World::with_serial_queue(&[("ada", 1)]);
    world.add_task("Word list!", &["src/words.rs"]);
    let grant = world.take_task("ada");
    let landing = world.submit(&grant);
    world.report_trial(
        landing,
        TrialOutcome::Conflict {
            landing,
            paths: vec!["src/words.rs".into()],
            kinds: vec![],
        },
    );
    let grant = world.take_task("ada");
    world.finish_and_land(&grant);
    let said: Vec<(String, String, String)> = world
        .log
        .iter()
        .filter_map(|event| match &event.event {
            Event::MessagePosted(message_posted) => Some(message_posted.message()),
            _ => None,
        })
        .map(|message| {
            (
                message.channel.to_string(),
                message.labels[0].to_string(),
                message.text.clone(),
            )
        })
        .collect();
    let expected = [
        (
            "shop",
            "coord:conflict",
            "T1 is out of the queue: it conflicts with work that landed since in src/words.rs",
        ),
        (
            "shop",
            "coord:merge",
            "Merged regatta/T1-word-list (T1): Word list! [src/words.rs] as 0000000000",
        ),
    ];
    let expected = expected.map(|expected| {
        (
            expected.0.to_owned(),
            expected.1.to_owned(),
            expected.2.to_owned(),
        )
    });
    assert_eq!(said, expected);
}

/// A held queue finishes the trial under way, but starts no trial and does not move the trunk.
#[test]
fn a_held_queue_starts_no_trial_and_moves_nothing() {
    let (mut world, landings) = queued_world(&[2, 2]);
    world.ask(
        "ann",
        Command::HoldQueue {
            project: crate::world::shop(),
            reason: "a release".into(),
        },
    );
    world.pass_trial(landings[0]);
    assert_eq!(landing_states(&world, &landings), ["validated", "queued"]);
    assert_eq!(world.wait_kinds(TaskId(2)), [WaitKind::Policy]);
    world.ask(
        "ann",
        Command::ReleaseQueue {
            project: crate::world::shop(),
        },
    );
    assert_eq!(landing_states(&world, &landings), ["moving", "queued"]);
    world.report_move(landings[0], MoveOutcome::Moved);
    world.move_and_land(landings[1]);
}

/// The usual duration of a landing is the median of those that landed.
#[test]
fn the_usual_duration_of_a_landing_is_the_median() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let id = world.add_for(task_to_add("a", &["a"]), Some("ada"), AssignMode::Queue);
    let grant = world.take_task("ada");
    let landing = world.submit(&grant);
    let landing = Landing::clone(&world.board.landings[&landing]);
    let open = Task::clone(world.task(id));
    let took = |ms: u64| Task {
        landed: Some(commit(1)),
        updated_unix_ms: landing.queued_unix_ms + ms,
        ..open.clone()
    };
    let tasks = [took(900_000), took(1_200), took(1_900)];
    assert_eq!(
        median_time_ms(tasks.iter().map(|task| (&landing, Some(task)))),
        Some(1_900)
    );
    assert_eq!(
        median_time_ms([(&landing, Some(&open)), (&landing, None)].into_iter()),
        None,
        "landings that did not land have no duration"
    );
}

/// A landing that is held because of a person's files is tried again as soon as the checkout
/// changes. Reports about other landings change nothing.
#[test]
fn a_change_of_the_checkout_retries_the_held_landing() {
    let mut world = World::with_agents(&[("ada", 3)]);
    world.add_task("words", &["src/0.rs"]);
    let grant = world.take_task("ada");
    let id = world.submit(&grant);
    world.pass_trial(id);
    world.report_move(
        id,
        MoveOutcome::Dirty {
            paths: vec!["src/0.rs".into()],
        },
    );
    assert!(world.board.landings[&id].held.is_some());
    world.report(Report::CheckoutChanged { landing: id });
    assert!(world.board.landings[&id].held.is_none());
    assert_eq!(world.landing_state(id), "trying");
    let before = world.board.revision;
    world.report(Report::CheckoutChanged { landing: id });
    world.report(Report::CheckoutChanged {
        landing: LandingId(99),
    });
    assert_eq!(world.board.revision, before);

    // A landing that a person stopped stays stopped.
    world.ask(
        "ann",
        Command::StopTask {
            task: grant.task,
            reason: "stopped by ann".into(),
            pause: true,
        },
    );
    world.report(Report::CheckoutChanged { landing: id });
    assert!(world.board.landings[&id].held.is_some());
}

/// P11: a stop ends the trial and keeps the landing in the queue until somebody asks for it. Other
/// landings go on.
#[test]
fn p11_a_stopped_landing_waits_until_a_person_asks_for_it() {
    for asks in ["resume", "land"] {
        let mut world = World::with_serial_queue(&[("ada", 2)]);
        for file in ["a", "b"] {
            world.add_task(file, &[file]);
        }
        let (first, second) = (world.take_task("ada"), world.take_task("ada"));
        let (stopped, other) = (world.submit(&first), world.submit(&second));
        assert_eq!(
            (world.landing_state(stopped), world.landing_state(other)),
            ("trying", "queued")
        );
        world.ask(
            "ann",
            Command::StopTask {
                task: first.task,
                reason: "stopped by ann".into(),
                pause: true,
            },
        );
        world.report(Report::Trial {
            landing: stopped,
            outcome: TrialOutcome::Held {
                landing: None,
                reason: "broken off".into(),
            },
        });
        let landing = &world.board.landings[&stopped];
        assert!(
            landing
                .held
                .as_ref()
                .is_some_and(|held| held.contains("regatta land T1"))
                && landing.retry_fleet_ms.is_none(),
            "{landing:?}"
        );
        assert_eq!(
            (world.landing_state(stopped), world.landing_state(other)),
            ("queued", "trying"),
            "the other landing waits"
        );
        world.advance_without_tick(60 * MINUTE_MS);
        world.report(Report::Tick);
        assert_eq!(
            world.landing_state(stopped),
            "queued",
            "the stopped landing started again by itself"
        );
        world.move_and_land(other);
        assert_eq!(world.landing_state(stopped), "queued");
        match asks {
            "resume" => world.ask("ann", Command::ResumeTask { task: first.task }),
            _ => world.ask(
                "ann",
                Command::Land {
                    task: first.task,
                    first: false,
                },
            ),
        };
        assert_eq!(world.landing_state(stopped), "trying", "{asks}");
    }
}
