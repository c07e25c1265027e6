//! Predicted collisions between running attempts: the starts that they delay, and how many of the
//! warnings came true.

use regatta_core::collision_forecast::FoundCollision;
use regatta_core::command::Report;
use regatta_core::ids::AttemptId;
use regatta_core::landing::TrialOutcome;
use regatta_core::schedule::WaitKind;
use regatta_core::task::TaskStatus;

use crate::world::{World, shop};

/// Reports collisions: an attempt, the attempt or trunk (`None`) that it collides with, and the file.
fn report_collisions(world: &mut World, collisions: &[(AttemptId, Option<AttemptId>, &str)]) {
    let found = collisions
        .iter()
        .map(|(attempt, other, path)| FoundCollision {
            one: *attempt,
            other: *other,
            paths: vec![(*path).to_owned()],
        })
        .collect();
    world.report(Report::Collisions {
        project: shop(),
        found,
    });
}

/// W1: a task whose manifest contains a file in which two attempts collide waits until the
/// collision is resolved, and has a wait reason.
#[test]
fn a_task_waits_while_two_attempts_collide_in_its_file() {
    let mut world = World::with_serial_queue(&[("ada", 1), ("bob", 1), ("eve", 1)]);
    world.add_task("one", &["src/a.rs"]);
    world.add_task("two", &["src/b.rs"]);
    let (one, two) = (world.take_task("ada"), world.take_task("bob"));
    // Both attempts changed the same file outside of their manifests.
    report_collisions(
        &mut world,
        &[(one.attempt, Some(two.attempt), "src/shared.rs")],
    );
    let colliding = world.add_task("three", &["src/shared.rs"]);
    let unaffected = world.add_task("four", &["src/d.rs"]);
    assert_eq!(
        world.poll("eve").map(|grant| grant.task),
        Some(unaffected),
        "a task without a collision starts"
    );
    assert!(
        world.wait_kinds(colliding).contains(&WaitKind::Conflict),
        "{:?}",
        world.wait_kinds(colliding)
    );
    report_collisions(&mut world, &[]);
    assert!(!world.wait_kinds(colliding).contains(&WaitKind::Conflict));
    world.finish_and_land(&one);
    assert_eq!(world.poll("ada").map(|grant| grant.task), Some(colliding));
}

/// A collision holds up nothing after its attempts have ended.
#[test]
fn a_collision_of_ended_attempts_holds_up_nothing() {
    let mut world = World::with_serial_queue(&[("ada", 1), ("bob", 1), ("eve", 1)]);
    world.add_task("one", &["src/a.rs"]);
    let one = world.take_task("ada");
    report_collisions(&mut world, &[(one.attempt, None, "src/shared.rs")]);
    let colliding = world.add_task("two", &["src/shared.rs"]);
    assert_eq!(world.poll("eve"), None);
    world.give_up(&one);
    assert_eq!(world.poll("eve").map(|grant| grant.task), Some(colliding));
}

/// A warning counts as proved when one of its two attempts conflicts in the queue, and as lapsed
/// when both end without a conflict. Each warning counts once.
#[test]
fn warnings_that_came_true_are_counted() {
    let mut world = World::with_serial_queue(&[("ada", 1), ("bob", 1), ("eve", 1), ("ian", 1)]);
    for (name, file) in [
        ("one", "src/a.rs"),
        ("two", "src/b.rs"),
        ("three", "src/c.rs"),
        ("four", "src/d.rs"),
    ] {
        world.add_task(name, &[file]);
    }
    let grants = ["ada", "bob", "eve", "ian"].map(|agent| world.take_task(agent));
    let [one, two, three, four] = &grants;
    let collisions = [
        (one.attempt, Some(two.attempt), "x"),
        (three.attempt, Some(four.attempt), "y"),
    ];
    report_collisions(&mut world, &collisions);
    report_collisions(&mut world, &collisions);
    let counts = |world: &World| {
        let forecast = &world.board.projects[&shop()].collision_forecast;
        (forecast.warned, forecast.proved, forecast.lapsed)
    };
    assert_eq!(
        counts(&world),
        (2, 0, 0),
        "a repeated warning was counted twice"
    );
    world.finish_and_land(one);
    let landing = world.submit(two);
    world.report_trial(
        landing,
        TrialOutcome::Conflict {
            landing,
            paths: vec!["x".into()],
            kinds: vec![],
        },
    );
    assert_eq!(counts(&world), (2, 1, 0));
    assert!(
        world.status(two.task).is_waiting(),
        "the task goes back for a fix-up"
    );
    report_collisions(&mut world, &collisions[1..]);
    assert_eq!(
        counts(&world),
        (2, 1, 0),
        "a proved warning counts as lapsed, too"
    );
    world.finish_and_land(three);
    world.finish_and_land(four);
    report_collisions(&mut world, &[]);
    assert_eq!(counts(&world), (2, 1, 1));
    assert_eq!(world.status(four.task), TaskStatus::Completed);
}
