//! Commits that a remote has and the local trunk lacks: a landing of its own brings them in before
//! all others.

use regatta_core::command::{Command, Outcome};
use regatta_core::effect::Effect;
use regatta_core::ids::{LandingId, TaskId};
use regatta_core::landing::join::Diverged;
use regatta_core::landing::{Moved, Tried};
use regatta_core::project::QueueMode;
use regatta_core::schedule::WaitKind;
use regatta_core::task::{Add, How, Status};

use crate::world::{SECOND, World, agent, commit, shop, work};

/// Returns a world that pushes to `origin`, with landings of these priorities in its queue.
fn pushing(priorities: &[u8]) -> (World, Vec<LandingId>) {
    let mut world = World::serial(&[("ada", 8)]);
    let mut ask = world.project("shop", &["cargo test"]);
    ask.settings.landing.mode = QueueMode::Serial;
    ask.settings.landing.push = Some("origin".into());
    world.ask("ann", Command::AddProject(ask));
    let mut landings = Vec::new();
    for (nth, priority) in priorities.iter().enumerate() {
        world.add(Add { priority: *priority, ..work(&format!("part {nth}"), &[&format!("src/{nth}.rs")]) });
        let grant = world.take("ada");
        landings.push(world.submit(&grant));
    }
    (world, landings)
}

fn diverged(world: &mut World) {
    let found = Diverged { remote: "origin".into(), tip: commit(900), changed: vec!["src/1.rs".into()] };
    world.ask("regatta", Command::ReportDiverged { project: shop(), commit: commit(world.trunk), found });
}

fn joining(world: &World) -> LandingId {
    let joins = world.board.landings.values().find(|it| it.submission.joins.is_some());
    joins.expect("the landing of the remote's commits is queued").id
}

fn held_by(world: &World) -> Option<String> {
    world.board.projects[&shop()].queue.held.as_ref().map(|it| it.by.clone())
}

/// Q1, Q10: the trial under way no longer counts, the remote's commits land first and alone, and
/// then the others.
#[test]
fn q10_commits_of_a_remote_land_first_and_alone() {
    let (mut world, landings) = pushing(&[0, 2]);
    assert_eq!(world.landing(landings[0]), "trying");
    diverged(&mut world);
    let join = joining(&world);
    diverged(&mut world);
    assert_eq!(joining(&world), join, "the same commits were queued twice");
    assert_eq!(world.landing(join), "queued", "the only slot is still taken by a trial that no longer counts");
    world.merge(landings[0]);
    assert_eq!((world.landing(landings[0]), world.landing(join)), ("queued", "trying"));
    world.tried(join, Tried::Passed { old: commit(world.trunk), new: commit(901), carries: vec![] });
    assert_eq!(world.landing(join), "moving");
    world.moved(join, Moved::Moved);
    let pushes = |it: &&Effect| matches!(it, Effect::PushTrunk { commit: it, .. } if *it == commit(901));
    assert_eq!(world.outbox.values().filter(pushes).count(), 1, "the merged trunk is pushed at once");
    assert_eq!(world.landing(landings[0]), "trying", "the other landings go on");
    let unpushed = |world: &World| world.board.projects[&shop()].queue.unpushed.clone();
    assert!(unpushed(&world).is_some_and(|it| it.reason.contains("commits that are not here")));
    let done = Command::ReportPushed { project: shop(), remote: "origin".into(), commit: commit(901), trouble: None };
    world.ask("regatta", done);
    assert_eq!(unpushed(&world), None);
}

/// Q6: commits of a remote that conflict hold the queue, with instructions for a person. `regatta
/// land` of their task continues the queue.
#[test]
fn q6_conflicting_commits_of_a_remote_need_a_person() {
    let (mut world, landings) = pushing(&[2]);
    world.land(landings[0]);
    diverged(&mut world);
    let (join, waiting) = (joining(&world), {
        world.add_task("later", &["later"]);
        let grant = world.take("ada");
        world.submit(&grant)
    });
    let task = world.board.landings[&join].task;
    world.tried(join, Tried::Conflict { at: join, paths: vec!["src/0.rs".into()], kinds: vec![] });
    assert_eq!((held_by(&world).as_deref(), world.status(task)), (Some("regatta"), Status::NeedsHuman));
    assert_eq!(world.reasons(task), [WaitKind::Conflict]);
    let said = world.task(task).reason.clone().unwrap_or_default();
    for word in ["src/0.rs", "git pull --rebase origin main", &format!("regatta land {task}")] {
        assert!(said.contains(word), "{said}");
    }
    assert_eq!(world.landing(waiting), "queued");
    let Outcome::Queued(place) = world.ask("ann", Command::Land { task, first: false }) else { panic!() };
    assert_eq!(held_by(&world), None);
    assert_eq!(
        world.board.landings[&place.landing].submission.joins.as_deref(),
        Some("origin"),
        "the task lost its remote"
    );
    assert_eq!(world.landing(place.landing), "trying");
    world.tried(place.landing, Tried::AlreadyThere { tip: commit(950), landed_as: vec![] });
    assert_eq!((world.status(task), world.landing(waiting)), (Status::Completed, "trying"));
}

/// The task that brings in a remote's commits cannot be given to an agent, and the refusal says
/// what to do instead. Dropping it releases the queue, and the next push finds the missing commits
/// again.
#[test]
fn commits_of_a_remote_are_given_to_no_agent_and_dropping_them_releases_the_queue() {
    let (mut world, landings) = pushing(&[2]);
    world.land(landings[0]);
    diverged(&mut world);
    let join = joining(&world);
    let task = world.board.landings[&join].task;
    let revise = |task| Command::Revise { task, text: "do it better".into() };
    assert_eq!(world.refused("ann", revise(task)).code(), "invalid", "a task under trial can be sent back");
    world.tried(join, Tried::Conflict { at: join, paths: vec!["src/0.rs".into()], kinds: vec![] });
    for ask in [
        revise(task),
        Command::RetryTask { task, failed: None },
        Command::AssignTask { task, to: Some(agent("ada")), how: How::Queue },
    ] {
        let refusal = world.refused("ann", ask.clone());
        let hint = refusal.hint();
        assert!(hint.contains("git pull --rebase origin main") && hint.contains("regatta drop"), "{ask:?}: {hint}");
    }
    assert_eq!((held_by(&world).as_deref(), world.status(task)), (Some("regatta"), Status::NeedsHuman));

    world.ask("ann", Command::CancelTask { task, reason: "dropped".into() });
    assert_eq!(held_by(&world), None, "the queue is still held");
    let unpushed = world.board.projects[&shop()].queue.unpushed.clone();
    assert!(unpushed.is_some_and(|it| it.reason.contains("was dropped")), "the missing commits are no longer reported");
    let gone = Box::new(world.stored(task));
    assert!(world.refused("ann", Command::RetryTask { task, failed: Some(gone) }).hint().contains("next landing"));
    diverged(&mut world);
    assert_ne!(world.board.landings[&joining(&world)].task, task, "the next push queues the commits again");
}

/// A queue that a person holds stays held when the landing of a remote's commits is dropped.
#[test]
fn a_queue_held_by_hand_stays_held_when_a_remotes_commits_are_dropped() {
    let (mut world, landings) = pushing(&[2]);
    world.land(landings[0]);
    diverged(&mut world);
    let task = world.board.landings[&joining(&world)].task;
    world.ask("ann", Command::HoldQueue { project: shop(), reason: "a release".into() });
    world.ask("ann", Command::CancelTask { task, reason: "dropped".into() });
    assert_eq!(held_by(&world).as_deref(), Some("ann"));
}

/// Q9: while a remote cannot be reached, other landings land, and the remote is tried again later.
#[test]
fn q9_an_unreachable_remote_does_not_delay_other_landings() {
    let (mut world, landings) = pushing(&[2, 2]);
    world.land(landings[0]);
    diverged(&mut world);
    world.merge(landings[1]);
    let join = joining(&world);
    world.tried(join, Tried::Held { at: None, reason: "origin cannot be reached".into() });
    assert_eq!(world.landing(landings[1]), "trying");
    world.land(landings[1]);
    assert_eq!(world.status(TaskId(2)), Status::Completed);
    world.advance(6 * SECOND);
    assert_eq!(world.landing(join), "trying");
}

/// Repeated failures of a push for the same reason are recorded once, and one message is posted.
#[test]
fn a_repeated_push_failure_is_recorded_once() {
    let (mut world, _) = pushing(&[]);
    let told = world.count("message.posted");
    let trouble = |reason: &str| Command::ReportPushed {
        project: shop(),
        remote: "origin".into(),
        commit: commit(7),
        trouble: Some(reason.into()),
    };
    for reason in ["no route", "no route", "refused", "refused"] {
        world.ask("regatta", trouble(reason));
    }
    assert_eq!((world.count("queue.unpushed"), world.count("message.posted") - told), (2, 1));
    let done = Command::ReportPushed { project: shop(), remote: "origin".into(), commit: commit(7), trouble: None };
    for _ in 0..2 {
        world.ask("regatta", done.clone());
    }
    assert_eq!(world.count("queue.pushed"), 1);
}

/// A revert that conflicts needs a person, and is still a revert when the person lands it.
#[test]
fn a_revert_that_a_person_lands_again_is_still_a_revert() {
    let (mut world, landings) = pushing(&[2]);
    world.land(landings[0]);
    let done = Box::new(world.stored(TaskId(1)));
    let Outcome::Queued(place) = world.ask("ann", Command::Undo { done }) else { panic!() };
    world.tried(place.landing, Tried::Conflict { at: place.landing, paths: vec!["src/0.rs".into()], kinds: vec![] });
    assert_eq!(world.status(place.task), Status::NeedsHuman);
    let Outcome::Queued(again) = world.ask("ann", Command::Land { task: place.task, first: false }) else { panic!() };
    assert!(world.board.landings[&again.landing].reverts);
}
