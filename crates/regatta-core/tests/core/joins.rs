//! A remote that has what is not here: it is brought in by a landing of its own, before all others.

use regatta_core::command::{Command, Outcome};
use regatta_core::effect::Effect;
use regatta_core::ids::{LandingId, TaskId};
use regatta_core::landing::join::Diverged;
use regatta_core::landing::{Moved, Tried};
use regatta_core::project::QueueMode;
use regatta_core::schedule::WaitKind;
use regatta_core::task::{Add, How, Status};

use crate::world::{SECOND, World, agent, commit, shop, work};

/// A world that pushes to `origin`, with landings of these priorities in its queue.
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
    joins.expect("what the remote has is queued").id
}

fn held_by(world: &World) -> Option<String> {
    world.board.projects[&shop()].queue.held.as_ref().map(|it| it.by.clone())
}

/// Q1, Q10: what was found out before no longer counts, what the remote has goes first and alone, and then the others.
#[test]
fn q10_what_a_remote_has_goes_first_and_alone() {
    let (mut world, landings) = pushing(&[0, 2]);
    assert_eq!(world.landing(landings[0]), "trying");
    diverged(&mut world);
    let join = joining(&world);
    diverged(&mut world);
    assert_eq!(joining(&world), join, "one is enough");
    assert_eq!(world.landing(join), "queued", "the only slot is still taken by a trial that no longer counts");
    world.merge(landings[0]);
    assert_eq!((world.landing(landings[0]), world.landing(join)), ("queued", "trying"));
    world.tried(join, Tried::Passed { old: commit(world.trunk), new: commit(901), carries: vec![] });
    assert_eq!(world.landing(join), "moving");
    world.moved(join, Moved::Moved);
    let pushes = |it: &&Effect| matches!(it, Effect::PushTrunk { commit: it, .. } if *it == commit(901));
    assert_eq!(world.outbox.values().filter(pushes).count(), 1, "it is pushed at once");
    assert_eq!(world.landing(landings[0]), "trying", "the others go on behind it");
    let unpushed = |world: &World| world.board.projects[&shop()].queue.unpushed.clone();
    assert!(unpushed(&world).is_some_and(|it| it.reason.contains("commits that are not here")));
    let done = Command::ReportPushed { project: shop(), remote: "origin".into(), commit: commit(901), trouble: None };
    world.ask("regatta", done);
    assert_eq!(unpushed(&world), None);
}

/// Q6: what does not go together holds the queue and says what to do; `land` of its task is what lets both go on.
#[test]
fn q6_what_does_not_go_together_is_a_persons() {
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
        "it is still what it was"
    );
    assert_eq!(world.landing(place.landing), "trying");
    world.tried(place.landing, Tried::AlreadyThere { tip: commit(950), landed_as: vec![] });
    assert_eq!((world.status(task), world.landing(waiting)), (Status::Completed, "trying"));
}

/// What brings in what a remote has is no agent's work: whoever would give it to one is told what to do instead. Dropped,
/// it lets the queue go on, and the next push finds again what is missing here.
#[test]
fn what_a_remote_has_is_given_to_no_agent_and_dropped_frees_the_queue() {
    let (mut world, landings) = pushing(&[2]);
    world.land(landings[0]);
    diverged(&mut world);
    let join = joining(&world);
    let task = world.board.landings[&join].task;
    let revise = |task| Command::Revise { task, text: "do it better".into() };
    assert_eq!(world.refused("ann", revise(task)).code(), "invalid", "while it is tried, too");
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
    assert_eq!(held_by(&world), None, "nobody waits for it any longer");
    let unpushed = world.board.projects[&shop()].queue.unpushed.clone();
    assert!(unpushed.is_some_and(|it| it.reason.contains("was dropped")), "what is missing is still said");
    let gone = Box::new(world.stored(task));
    assert!(world.refused("ann", Command::RetryTask { task, failed: Some(gone) }).hint().contains("next landing"));
    diverged(&mut world);
    assert_ne!(world.board.landings[&joining(&world)].task, task, "the next push queues it anew");
}

/// Who holds a queue by hand holds it, whatever becomes of what a remote has.
#[test]
fn a_queue_held_by_hand_stays_so_when_what_a_remote_has_is_dropped() {
    let (mut world, landings) = pushing(&[2]);
    world.land(landings[0]);
    diverged(&mut world);
    let task = world.board.landings[&joining(&world)].task;
    world.ask("ann", Command::HoldQueue { project: shop(), reason: "a release".into() });
    world.ask("ann", Command::CancelTask { task, reason: "dropped".into() });
    assert_eq!(held_by(&world).as_deref(), Some("ann"));
}

/// A remote that cannot be reached holds up nobody: the others land meanwhile, and it is tried again.
#[test]
fn q9_a_remote_that_cannot_be_reached_holds_up_nobody() {
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

/// The same trouble with a push is written down once, and told once.
#[test]
fn trouble_with_a_push_is_written_down_once() {
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

/// A revert that conflicts is a person's, and is still a revert when they let it land.
#[test]
fn a_revert_that_is_let_in_again_is_still_one() {
    let (mut world, landings) = pushing(&[2]);
    world.land(landings[0]);
    let done = Box::new(world.stored(TaskId(1)));
    let Outcome::Queued(place) = world.ask("ann", Command::Undo { done }) else { panic!() };
    world.tried(place.landing, Tried::Conflict { at: place.landing, paths: vec!["src/0.rs".into()], kinds: vec![] });
    assert_eq!(world.status(place.task), Status::NeedsHuman);
    let Outcome::Queued(again) = world.ask("ann", Command::Land { task: place.task, first: false }) else { panic!() };
    assert!(world.board.landings[&again.landing].reverts);
}
