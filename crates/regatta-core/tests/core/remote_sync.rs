//! Commits that a remote has and the local trunk lacks: a landing of its own brings them in before
//! all others.

use regatta_core::command::{Command, CommandOutcome, Report};
use regatta_core::effect::Effect;
use regatta_core::ids::{LandingId, TaskId};
use regatta_core::landing::remote_sync::DivergedRemote;
use regatta_core::landing::{MoveOutcome, TrialOutcome, merged_remote};
use regatta_core::project::QueueMode;
use regatta_core::schedule::WaitKind;
use regatta_core::task::{AddTask, AssignMode, TaskStatus};

use crate::world::{SECOND_MS, World, agent, commit, shop, task_to_add};

/// Returns a world that pushes to `origin`, with landings of these priorities in its queue.
fn world_that_pushes(priorities: &[u8]) -> (World, Vec<LandingId>) {
    let mut world = World::with_serial_queue(&[("ada", 8)]);
    let mut project = world.project("shop", &["cargo test"]);
    project.settings.landing.mode = QueueMode::Serial;
    project.settings.landing.push = Some("origin".into());
    world.ask("ann", Command::AddProject(project));
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

fn report_diverged(world: &mut World) {
    let found = DivergedRemote {
        remote: "origin".into(),
        tip: commit(900),
        changed: vec!["src/1.rs".into()],
    };
    world.report(Report::Diverged {
        project: shop(),
        commit: commit(world.trunk),
        found,
    });
}

fn sync_landing(world: &World) -> LandingId {
    let joins = world
        .board
        .landings
        .values()
        .find(|landing| merged_remote(&world.board, landing).is_some());
    joins
        .expect("the landing of the remote's commits is queued")
        .id
}

fn held_by(world: &World) -> Option<String> {
    world.board.projects[&shop()]
        .queue
        .held
        .as_ref()
        .map(|queue_hold| queue_hold.by.clone())
}

/// Q1, Q10: the trial under way no longer counts, the remote's commits land first and alone, and
/// then the others.
#[test]
fn q10_commits_of_a_remote_land_first_and_alone() {
    let (mut world, landings) = world_that_pushes(&[0, 2]);
    assert_eq!(world.landing_state(landings[0]), "trying");
    report_diverged(&mut world);
    let join = sync_landing(&world);
    report_diverged(&mut world);
    assert_eq!(
        sync_landing(&world),
        join,
        "the same commits were queued twice"
    );
    assert_eq!(
        world.landing_state(join),
        "queued",
        "the only slot is still taken by a trial that no longer counts"
    );
    world.pass_trial(landings[0]);
    assert_eq!(
        (world.landing_state(landings[0]), world.landing_state(join)),
        ("queued", "trying")
    );
    world.report_trial(
        join,
        TrialOutcome::Passed {
            old: commit(world.trunk),
            new: commit(901),
            carries: vec![],
        },
    );
    assert_eq!(world.landing_state(join), "moving");
    world.report_move(join, MoveOutcome::Moved);
    let pushes = |effect: &&Effect| matches!(effect, Effect::PushTrunk { commit: id, .. } if *id == commit(901));
    assert_eq!(
        world.outbox.values().filter(pushes).count(),
        1,
        "the merged trunk is pushed at once"
    );
    assert_eq!(
        world.landing_state(landings[0]),
        "trying",
        "the other landings go on"
    );
    let unpushed = |world: &World| world.board.projects[&shop()].queue.unpushed.clone();
    assert!(
        unpushed(&world)
            .is_some_and(|unpushed| unpushed.reason.contains("commits that are not here"))
    );
    let command = Report::Pushed {
        project: shop(),
        remote: "origin".into(),
        commit: commit(901),
        failure: None,
    };
    world.report(command);
    assert_eq!(unpushed(&world), None);
}

/// Q6: commits of a remote that conflict hold the queue, with instructions for a person. `regatta
/// land` of their task continues the queue.
#[test]
fn q6_conflicting_commits_of_a_remote_need_a_person() {
    let (mut world, landings) = world_that_pushes(&[2]);
    world.move_and_land(landings[0]);
    report_diverged(&mut world);
    let (join, waiting) = (sync_landing(&world), {
        world.add_task("later", &["later"]);
        let grant = world.take_task("ada");
        world.submit(&grant)
    });
    let task = world.board.landings[&join].task;
    world.report_trial(
        join,
        TrialOutcome::Conflict {
            landing: join,
            paths: vec!["src/0.rs".into()],
            kinds: vec![],
        },
    );
    assert_eq!(
        (held_by(&world).as_deref(), world.status(task)),
        (Some("regatta"), TaskStatus::NeedsHuman)
    );
    assert_eq!(world.wait_kinds(task), [WaitKind::Conflict]);
    let reason = world.task(task).reason.clone().unwrap_or_default();
    for word in [
        "src/0.rs",
        "git pull --rebase origin main",
        &format!("regatta land {task}"),
    ] {
        assert!(reason.contains(word), "{reason}");
    }
    assert_eq!(world.landing_state(waiting), "queued");
    let CommandOutcome::Queued(place) = world.ask("ann", Command::Land { task, first: false })
    else {
        panic!()
    };
    assert_eq!(held_by(&world), None);
    assert_eq!(
        merged_remote(&world.board, &world.board.landings[&place.landing]),
        Some("origin"),
        "the task lost its remote"
    );
    assert_eq!(world.landing_state(place.landing), "trying");
    world.report_trial(
        place.landing,
        TrialOutcome::AlreadyOnTrunk {
            tip: commit(950),
            landed_as: vec![],
        },
    );
    assert_eq!(
        (world.status(task), world.landing_state(waiting)),
        (TaskStatus::Completed, "trying")
    );
}

/// The task that brings in a remote's commits cannot be given to an agent, and the refusal says
/// what to do instead. Dropping it releases the queue, and the next push finds the missing commits
/// again.
#[test]
fn commits_of_a_remote_are_given_to_no_agent_and_dropping_them_releases_the_queue() {
    let (mut world, landings) = world_that_pushes(&[2]);
    world.move_and_land(landings[0]);
    report_diverged(&mut world);
    let join = sync_landing(&world);
    let task = world.board.landings[&join].task;
    let revise = |task| Command::Revise {
        task,
        text: "do it better".into(),
    };
    assert_eq!(
        world.ask_refused("ann", revise(task)).code(),
        "invalid",
        "a task under trial can be sent back"
    );
    world.report_trial(
        join,
        TrialOutcome::Conflict {
            landing: join,
            paths: vec!["src/0.rs".into()],
            kinds: vec![],
        },
    );
    for ask in [
        revise(task),
        Command::RetryTask { task, failed: None },
        Command::AssignTask {
            task,
            to: Some(agent("ada")),
            how: AssignMode::Queue,
        },
    ] {
        let refusal = world.ask_refused("ann", ask.clone());
        let hint = refusal.hint();
        assert!(
            hint.contains("git pull --rebase origin main") && hint.contains("regatta drop"),
            "{ask:?}: {hint}"
        );
    }
    assert_eq!(
        (held_by(&world).as_deref(), world.status(task)),
        (Some("regatta"), TaskStatus::NeedsHuman)
    );

    world.ask(
        "ann",
        Command::CancelTask {
            task,
            reason: "dropped".into(),
        },
    );
    assert_eq!(held_by(&world), None, "the queue is still held");
    let unpushed = world.board.projects[&shop()].queue.unpushed.clone();
    assert!(
        unpushed.is_some_and(|unpushed| unpushed.reason.contains("was dropped")),
        "the missing commits are no longer reported"
    );
    let undone_task = Box::new(world.stored_task(task));
    assert!(
        world
            .ask_refused(
                "ann",
                Command::RetryTask {
                    task,
                    failed: Some(undone_task)
                }
            )
            .hint()
            .contains("next landing")
    );
    report_diverged(&mut world);
    assert_ne!(
        world.board.landings[&sync_landing(&world)].task,
        task,
        "the next push queues the commits again"
    );
}

/// A queue that a person holds stays held when the landing of a remote's commits is dropped.
#[test]
fn a_queue_held_by_hand_stays_held_when_a_remotes_commits_are_dropped() {
    let (mut world, landings) = world_that_pushes(&[2]);
    world.move_and_land(landings[0]);
    report_diverged(&mut world);
    let task = world.board.landings[&sync_landing(&world)].task;
    world.ask(
        "ann",
        Command::HoldQueue {
            project: shop(),
            reason: "a release".into(),
        },
    );
    world.ask(
        "ann",
        Command::CancelTask {
            task,
            reason: "dropped".into(),
        },
    );
    assert_eq!(held_by(&world).as_deref(), Some("ann"));
}

/// Q9: while a remote cannot be reached, other landings land, and the remote is tried again later.
#[test]
fn q9_an_unreachable_remote_does_not_delay_other_landings() {
    let (mut world, landings) = world_that_pushes(&[2, 2]);
    world.move_and_land(landings[0]);
    report_diverged(&mut world);
    world.pass_trial(landings[1]);
    let join = sync_landing(&world);
    world.report_trial(
        join,
        TrialOutcome::Held {
            landing: None,
            reason: "origin cannot be reached".into(),
        },
    );
    assert_eq!(world.landing_state(landings[1]), "trying");
    world.move_and_land(landings[1]);
    assert_eq!(world.status(TaskId(2)), TaskStatus::Completed);
    world.advance(6 * SECOND_MS);
    assert_eq!(world.landing_state(join), "trying");
}

/// Repeated failures of a push for the same reason are recorded once, and one message is posted.
#[test]
fn a_repeated_push_failure_is_recorded_once() {
    let (mut world, _) = world_that_pushes(&[]);
    let count = world.count("message.posted");
    let trouble = |reason: &str| Report::Pushed {
        project: shop(),
        remote: "origin".into(),
        commit: commit(7),
        failure: Some(reason.into()),
    };
    for reason in ["no route", "no route", "refused", "refused"] {
        world.report(trouble(reason));
    }
    assert_eq!(
        (
            world.count("queue.unpushed"),
            world.count("message.posted") - count
        ),
        (2, 1)
    );
    let command = Report::Pushed {
        project: shop(),
        remote: "origin".into(),
        commit: commit(7),
        failure: None,
    };
    for _ in 0..2 {
        world.report(command.clone());
    }
    assert_eq!(world.count("queue.pushed"), 1);
}

/// A revert that conflicts needs a person, and is still a revert when the person lands it.
#[test]
fn a_revert_that_a_person_lands_again_is_still_a_revert() {
    let (mut world, landings) = world_that_pushes(&[2]);
    world.move_and_land(landings[0]);
    let task = Box::new(world.stored_task(TaskId(1)));
    let CommandOutcome::Queued(place) = world.ask("ann", Command::Undo { done: task }) else {
        panic!()
    };
    world.report_trial(
        place.landing,
        TrialOutcome::Conflict {
            landing: place.landing,
            paths: vec!["src/0.rs".into()],
            kinds: vec![],
        },
    );
    assert_eq!(world.status(place.task), TaskStatus::NeedsHuman);
    let CommandOutcome::Queued(again) = world.ask(
        "ann",
        Command::Land {
            task: place.task,
            first: false,
        },
    ) else {
        panic!()
    };
    assert!(world.board.landings[&again.landing].reverts);
}
