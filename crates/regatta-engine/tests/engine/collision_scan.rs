//! Tests of the collision scan: a collision of unfinished work is found before it lands, reported
//! once, and withdrawn when it is resolved.

use regatta_core::collision_forecast::{CollisionForecast, FoundCollision};
use regatta_core::command::{Command, Report};
use regatta_core::event::Event;
use regatta_core::ids::TaskId;
use regatta_core::project::{self, Millis};
use regatta_engine::{Engine, StartedEngine};
use regatta_testkit::crash_points::EngineLife;

use crate::support::*;

fn forecast(engine: &Engine) -> CollisionForecast {
    engine.board().projects[&shop_name()]
        .collision_forecast
        .clone()
}

fn warnings(engine: &Engine) -> Vec<String> {
    let is_warning = |message: &regatta_core::bus::Message| {
        message
            .labels
            .iter()
            .any(|is_warning| is_warning.as_str() == "coord:conflict")
    };
    let warnings = engine
        .history()
        .events(0, usize::MAX)
        .unwrap()
        .into_iter()
        .filter_map(|event| match event.event {
            Event::MessagePosted(posted) if is_warning(posted.message()) => {
                Some(posted.message().text.clone())
            }
            _ => None,
        });
    warnings.collect()
}

#[test]
fn a_collision_is_reported_once_and_withdrawn_when_it_is_resolved() {
    let (world, life) = (World::new(append_own_name), EngineLife::new());
    let engine = world.start_in(&life).unwrap();
    let Command::AddProject(mut project) = add_project() else {
        panic!()
    };
    project.settings.landing = project::LandingSettings {
        collision_scan_interval: Millis::new(20),
        ..project::LandingSettings::default()
    };
    submit(&engine, Command::AddProject(project));
    let mut attempts = Vec::new();
    for (agent, file) in [("ann", "a"), ("bob", "b")] {
        submit(&engine, register_outside(agent));
        submit(&engine, add_task(file));
        attempts.push(polled(&submit(&engine, poll_for(agent))).0);
    }
    life.wait_until("both workspaces are prepared", || {
        world.git.workspaces().len() == 2
    });
    for attempt in &attempts {
        // Both tasks write a file that is in neither manifest, so no claim could prevent it.
        assert!(world.git.edit_workspace(*attempt, |files| drop(
            files.insert("README".into(), format!("{attempt}\n"))
        )));
    }
    let board = wait_until(&engine, "the collision is found", |board| {
        !board.projects[&shop_name()]
            .collision_forecast
            .collisions
            .is_empty()
    });
    let collisions = &board.projects[&shop_name()].collision_forecast.collisions;
    assert_eq!(
        (
            collisions[0].one,
            collisions[0].other,
            collisions[0].paths.as_slice()
        ),
        (TaskId(1), Some(TaskId(2)), &["README".into()][..])
    );
    assert_eq!(
        warnings(&engine),
        ["T1 (@ann) and T2 (@bob) will collide in README"]
    );

    world.git.edit_workspace(attempts[1], |files| {
        drop(files.insert("README".into(), format!("{}\n", attempts[0])))
    });
    wait_until(&engine, "the collision is withdrawn", |board| {
        board.projects[&shop_name()]
            .collision_forecast
            .collisions
            .is_empty()
    });
    let CollisionForecast {
        warned,
        proved,
        lapsed,
        ..
    } = forecast(&engine);
    assert_eq!((warned, proved, lapsed), (1, 0, 1));
    assert_eq!(warnings(&engine).len(), 1);
    assert_eq!(folded(&engine), *engine.board());
    engine.shutdown();
}

#[test]
fn a_repeated_report_and_unknown_attempts_change_nothing() {
    let (world, life) = (World::new(append_own_name), EngineLife::new());
    let StartedEngine {
        engine, reports, ..
    } = world.start_with_reports(&life).unwrap();
    submit(&engine, add_project());
    submit(&engine, register_outside("ann"));
    submit(&engine, add_task("a"));
    let (attempt, _) = polled(&submit(&engine, poll_for("ann")));
    let report = |attempt, other| {
        let found = vec![FoundCollision {
            one: attempt,
            other,
            paths: vec!["x".into()],
        }];
        let project = shop_name();
        reports
            .send_and_block(Report::Collisions { project, found })
            .unwrap();
    };
    let unknown = regatta_core::ids::AttemptId(99);
    report(unknown, None);
    report(attempt, Some(unknown));
    report(attempt, Some(attempt));
    assert_eq!(forecast(&engine), CollisionForecast::default());
    report(attempt, None);
    let first = forecast(&engine);
    assert_eq!((first.warned, first.collisions.len()), (1, 1));
    report(attempt, None);
    assert_eq!(forecast(&engine), first);
    assert_eq!(
        warnings(&engine),
        ["T1 (@ann) and the trunk will collide in x"]
    );
    // Changing the settings does not delete known collisions.
    submit(&engine, add_project());
    assert_eq!(forecast(&engine), first);
    engine.shutdown();
}
