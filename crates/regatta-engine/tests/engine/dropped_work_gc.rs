//! Tests that the branches of dropped work are kept for thirty days, and all other branches for
//! good.

use std::time::Duration;

use regatta_core::command::Command;
use regatta_core::ids::TaskId;
use regatta_core::task::TaskStatus;
use regatta_testkit::crash_points::EngineLife;

use crate::support::*;

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// Q3: the branch of dropped work stays for exactly thirty days after the drop and is then deleted.
/// A branch that landed, and one that waits for a person for all that time, stay.
#[test]
fn q3_a_dropped_branch_is_kept_for_thirty_days() {
    let world = World::new(append_own_name);
    let life = EngineLife::new();
    let engine = world.start_in(&life).unwrap();
    let project = match add_project() {
        Command::AddProject(mut request) => {
            request.settings.landing.review = regatta_core::project::ReviewPolicy::Human;
            Command::AddProject(request)
        }
        command => command,
    };
    submit(&engine, project);
    submit(&engine, register("bob"));
    submit(
        &engine,
        mission(
            &["bob"],
            ["a", "b", "c"]
                .map(|file| planned(file, file, &[]))
                .to_vec(),
        ),
    );
    let all_done = |board: &regatta_core::board::Board| {
        [1, 2, 3].iter().all(|id| {
            board
                .tasks
                .get(&TaskId(*id))
                .is_some_and(|task| task.status == TaskStatus::InReview)
        })
    };
    wait_until(&engine, "all are finished", all_done);
    wait_until(&engine, "no attempt is left", |board| {
        board.attempts.is_empty()
    });
    let kept_count = || {
        (1..=3)
            .map(regatta_core::ids::AttemptId)
            .filter(|attempt| !world.git.captures_of(*attempt).is_empty())
            .count()
    };
    submit(
        &engine,
        Command::Land {
            task: TaskId(1),
            first: false,
        },
    );
    wait_until(&engine, "the first task has landed", |board| {
        board.ended_status(TaskId(1)) == Some(TaskStatus::Completed)
    });
    world.clock.advance(40 * DAY);
    submit(
        &engine,
        Command::CancelTask {
            task: TaskId(2),
            reason: "dropped".into(),
        },
    );
    assert_eq!(
        (engine.forget_dropped(engine.now().unix_ms), kept_count()),
        (Ok(0), 3),
        "the time before the drop does not count"
    );
    world.clock.advance(30 * DAY - Duration::from_millis(1));
    assert_eq!(
        (engine.forget_dropped(engine.now().unix_ms), kept_count()),
        (Ok(0), 3)
    );
    world.clock.advance(Duration::from_millis(1));
    assert_eq!(
        (engine.forget_dropped(engine.now().unix_ms), kept_count()),
        (Ok(1), 2)
    );
    assert_eq!(
        (engine.forget_dropped(engine.now().unix_ms), kept_count()),
        (Ok(0), 2)
    );
    world.git.assert_no_violations();
    engine.shutdown();
}
