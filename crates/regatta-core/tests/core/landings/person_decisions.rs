//! Decisions of people about landings: land again, approve, revise, undo, take over, put first.

use super::*;

/// A person can send work that needs a person to the queue again, if its files are not claimed.
#[test]
fn work_that_needs_a_person_can_be_landed_by_a_person() {
    let mut world = World::with_serial_queue(&[("ada", 1)]);
    let task = world.add_task("words", &["src/**"]);
    world.conflict_until_a_person_is_needed();
    let claim = world.hold_claim("eve", &["file://shop/src/a.rs"]);
    assert_eq!(
        world
            .ask_refused("ann", Command::Land { task, first: false })
            .code(),
        "claim_held"
    );
    assert_eq!(world.status(task), TaskStatus::NeedsHuman);
    world.release("eve", claim);
    let CommandOutcome::Queued(place) = world.ask("ann", Command::Land { task, first: false })
    else {
        panic!()
    };
    assert_eq!(
        (place.position, world.landing_state(place.landing)),
        (1, "trying")
    );
    assert_eq!(
        world.owner_of("file://shop/src/a.rs"),
        Some(ClaimOwner::Landing(place.landing))
    );
    world.move_and_land(place.landing);
    assert_eq!(world.status(task), TaskStatus::Completed);
}

#[test]
fn only_finished_work_can_be_landed() {
    let mut world = World::with_serial_queue(&[("ada", 1)]);
    let task = world.add_task("words", &["src/**"]);
    assert_eq!(
        world
            .ask_refused("ann", Command::Land { task, first: false })
            .code(),
        "nothing_to_land"
    );
    world.take_task("ada");
    assert_eq!(
        world
            .ask_refused("ann", Command::Land { task, first: false })
            .code(),
        "nothing_to_land"
    );
    assert_eq!(
        world
            .ask_refused(
                "ann",
                Command::Land {
                    task: TaskId(9),
                    first: false
                }
            )
            .code(),
        "no_such_task"
    );
}

/// Cancelling takes a landing out of the queue, unless the trunk is being moved for it at that
/// moment.
#[test]
fn a_cancelled_task_is_withdrawn() {
    let (mut world, landings) = queued_world(&[2, 2, 2]);
    world.cancel(TaskId(2));
    world.cancel(TaskId(1));
    assert_eq!(
        landing_states(&world, &landings),
        ["gone", "gone", "trying"]
    );
    let claim = world.hold_claim("eve", &[TRUNK]);
    world.pass_trial(landings[2]);
    world.release("eve", claim);
    let refusal = world.ask_refused(
        "ann",
        Command::CancelTask {
            task: TaskId(3),
            reason: "late".into(),
        },
    );
    assert_eq!(refusal.code(), "in_use");
    world.report_move(landings[2], MoveOutcome::Moved);
    assert_eq!(
        [1, 2, 3].map(|task| world.status(TaskId(task))),
        [
            TaskStatus::Cancelled,
            TaskStatus::Cancelled,
            TaskStatus::Completed
        ]
    );
}

fn task_in_review(world: &mut World, files: &[&str]) -> TaskId {
    let task = world.add_task("careful", files);
    let grant = world.take_task("ada");
    world.finish(&grant);
    let changed = files.iter().map(ToString::to_string).collect();
    let verdict = regatta_core::attempt::WorkVerdict::Passed {
        commit: commit(5),
        base: commit(4),
        changed,
    };
    assert_eq!(
        world.report_verdict(&grant, verdict),
        None,
        "work that needs a review is queued"
    );
    task
}

/// Files that decide which checks run, or that run unasked, land only with a person's approval,
/// never with an agent's.
#[test]
fn changes_of_protected_paths_need_a_persons_approval() {
    for path in [
        "regatta.toml",
        ".github/workflows/ci.yml",
        "docs/.gitattributes",
        ".husky/pre-commit",
    ] {
        let mut world = World::with_serial_queue(&[("ada", 1), ("eve", 1)]);
        let task = task_in_review(&mut world, &[path]);
        assert_eq!(
            (world.status(task), world.wait_kinds(task)),
            (TaskStatus::InReview, vec![WaitKind::Review])
        );
        assert_eq!(
            world.owner_of(&format!("file://shop/{path}")),
            None,
            "the files of work in review are still claimed"
        );
        assert_eq!(
            world
                .ask_refused("eve", Command::Land { task, first: false })
                .code(),
            "person_needed"
        );
        let CommandOutcome::Queued(place) = world.ask("ann", Command::Land { task, first: false })
        else {
            panic!()
        };
        assert_eq!(
            world.board.landings[&place.landing].approved.as_deref(),
            Some("person:ann")
        );
        world.move_and_land(place.landing);
        assert_eq!(world.status(task), TaskStatus::Completed);
    }
}

/// The agent that a project names as its reviewer may approve work that is not protected. Other
/// agents may not.
#[test]
fn of_all_agents_only_the_projects_reviewer_can_approve_work() {
    use regatta_core::project::ReviewPolicy;
    for (review, eve_may) in [(ReviewPolicy::Human, false), (ReviewPolicy::Agent, true)] {
        let mut world = World::with_serial_queue(&[("ada", 1), ("eve", 1)]);
        let mut request = world.project("shop", &["cargo test"]);
        (
            request.settings.landing.review,
            request.settings.landing.reviewer,
        ) = (review, Some(agent("eve")));
        world.ask("ann", Command::AddProject(request));
        let task = task_in_review(&mut world, &["src/a.rs"]);
        assert_eq!(
            world
                .ask_refused("ada", Command::Land { task, first: false })
                .code(),
            "person_needed"
        );
        assert_eq!(
            world
                .try_ask("eve", Command::Land { task, first: false })
                .is_ok(),
            eve_may
        );
    }
}

/// Work that a person sends back carries the person's text and the commit of the work so far, and
/// costs no attempt.
#[test]
fn revised_work_goes_back_with_the_persons_text() {
    let (mut world, landings) = queued_world(&[2, 2]);
    world.ask(
        "ann",
        Command::Revise {
            task: TaskId(1),
            text: "shorter, please".into(),
        },
    );
    assert_eq!(
        (landing_states(&world, &landings), world.status(TaskId(1))),
        (vec!["gone", "trying"], TaskStatus::Unassigned)
    );
    let task = world.task(TaskId(1));
    assert_eq!((task.failures, task.notes.len()), (0, 1));
    let looked_at = task
        .submission
        .as_ref()
        .map(|submission| submission.commit.clone());
    assert!(
        looked_at.is_some() && task.reviewed == looked_at,
        "the reviewed commit is not the one that was sent back"
    );
    assert!(
        task.notes[0].starts_with("shorter, please") && task.notes[0].contains("git cherry-pick"),
        "{:?}",
        task.notes
    );
    assert_eq!(
        world
            .ask_refused(
                "ann",
                Command::Revise {
                    task: TaskId(1),
                    text: "again".into()
                }
            )
            .code(),
        "nothing_to_land"
    );
}

/// An undo is queued and lands like any other landing.
#[test]
fn an_undo_lands_like_other_work_and_can_be_undone() {
    let (mut world, landings) = queued_world(&[2]);
    world.move_and_land(landings[0]);
    let task = Box::new(world.stored_task(TaskId(1)));
    let CommandOutcome::Queued(place) = world.ask("ann", Command::Undo { done: task.clone() })
    else {
        panic!()
    };
    let landing = world.board.landings[&place.landing].clone();
    assert!(landing.reverts);
    assert_eq!(Some(&landing.submission.commit), task.landed.as_ref());
    assert_eq!(
        world.owner_of("file://shop/src/0.rs"),
        Some(ClaimOwner::Landing(place.landing))
    );
    let again = world.ask_refused("ann", Command::Undo { done: task.clone() });
    assert_eq!(
        (again.code(), again.message()),
        ("taken_back", "T2 is already undoing T1".into())
    );
    world.move_and_land(place.landing);
    assert_eq!(world.status(place.task), TaskStatus::Completed);
    let again = world.ask_refused("ann", Command::Undo { done: task.clone() });
    assert_eq!(
        (again.code(), again.message()),
        ("taken_back", "T1 landed, and T2 undid it".into())
    );
    // The undo can be undone. The first work is then on the trunk again and can be undone again.
    let undoing = Box::new(world.stored_task(place.task));
    let CommandOutcome::Queued(back) = world.ask("ann", Command::Undo { done: undoing }) else {
        panic!()
    };
    world.move_and_land(back.landing);
    let CommandOutcome::Queued(_) = world.ask("ann", Command::Undo { done: task }) else {
        panic!()
    };
    let open = world.add_task("open", &["b"]);
    let open = Box::new(world.task(open).clone());
    assert_eq!(
        world
            .ask_refused("ann", Command::Undo { done: open })
            .code(),
        "nothing_to_undo"
    );
}

/// A person takes over a conflict that the fix-ups did not resolve. The person's attempt gets the
/// conflict, and lands.
#[test]
fn a_person_takes_over_a_conflict() {
    let mut world = World::with_serial_queue(&[("ada", 1)]);
    let task = world.add_task("words", &["src/**"]);
    world.conflict_until_a_person_is_needed();
    assert_eq!(world.status(task), TaskStatus::NeedsHuman);
    let poll = PollRequest {
        task: Some(task),
        by_hand: true,
        ..crate::world::poll_of("ada")
    };
    let CommandOutcome::Polled(Some(grant)) = world.ask("ann", Command::Poll(poll.clone())) else {
        panic!()
    };
    let attempt = &world.board.attempts[&grant.attempt];
    assert!(attempt.by_hand && !attempt.supervised, "{attempt:?}");
    let fixup = world
        .task(task)
        .fixup
        .clone()
        .expect("the taken-over task has no conflict to resolve");
    assert_eq!(fixup.paths, ["src/words.rs"]);
    world.restart();
    assert_eq!(
        world.ask_refused("ann", Command::Poll(poll)).code(),
        "illegal_transition"
    );
    let landing = world.submit(&grant);
    world.move_and_land(landing);
    assert_eq!(world.status(task), TaskStatus::Completed);
}

/// The revert of an undo has no workspace, so a person cannot take it over.
#[test]
fn an_undo_that_conflicts_is_not_taken_over() {
    let (mut world, landings) = queued_world(&[2]);
    world.move_and_land(landings[0]);
    let task = Box::new(world.stored_task(TaskId(1)));
    let CommandOutcome::Queued(place) = world.ask("ann", Command::Undo { done: task }) else {
        panic!()
    };
    let paths = vec!["src/0.rs".into()];
    world.report_trial(
        place.landing,
        TrialOutcome::Conflict {
            landing: place.landing,
            paths,
            kinds: vec![],
        },
    );
    assert_eq!(
        world.status(place.task),
        TaskStatus::NeedsHuman,
        "{:?}",
        world.task(place.task)
    );
    let poll = PollRequest {
        task: Some(place.task),
        by_hand: true,
        ..crate::world::poll_of("ada")
    };
    assert_eq!(
        world.ask_refused("ann", Command::Poll(poll)).code(),
        "illegal_transition"
    );
    assert_eq!(world.status(place.task), TaskStatus::NeedsHuman);
}

/// Q10: a landing that is put first goes before all landings that are not under way.
#[test]
fn q10_a_landing_put_first_goes_before_all_waiting_landings() {
    let (mut world, landings) = queued_world(&[0, 0, 2]);
    world.ask(
        "ann",
        Command::Land {
            task: TaskId(3),
            first: true,
        },
    );
    world.move_and_land(landings[0]);
    assert_eq!(
        landing_states(&world, &landings),
        ["gone", "queued", "trying"]
    );
}
