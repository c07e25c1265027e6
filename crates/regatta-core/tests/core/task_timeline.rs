//! The history of a task, computed from the log: every wait has a beginning, an end and a reason
//! (W1, over time).

use regatta_core::board::Board;
use regatta_core::command::Command;
use regatta_core::ids::TaskId;
use regatta_core::schedule::WaitKind;
use regatta_core::task::{AssignMode, EditTask, SetPause};
use regatta_core::task_timeline::{Activity, ActivityInterval, TaskTimeline, TimelineFold};

use crate::world::{SECOND_MS, World, agent, task_to_add};

/// Returns a task's history, computed from the log alone.
pub(crate) fn timeline_from_log(world: &World, id: TaskId) -> TaskTimeline {
    let mut telling = TimelineFold::new(Board::default(), &[id]);
    world.log.iter().for_each(|event| telling.apply(event));
    telling.finish_commit();
    assert!(
        telling.board().revision == world.board.revision,
        "part of the log was not applied"
    );
    telling.timelines()[0].1.clone()
}

/// W1 over time: from its first commit to its end, a task is in exactly one stretch. Each stretch
/// begins where the previous one ended, and each stretch of waiting has a reason.
pub(crate) fn check_timelines(world: &World) {
    for id in (1..=world.board.counters.task).map(TaskId) {
        let life = timeline_from_log(world, id);
        assert_eq!(
            life.omitted_count, 0,
            "the test is too long: stretches were left out"
        );
        let open = world.board.tasks.contains_key(&id);
        let lasts = life
            .intervals
            .last()
            .is_some_and(|activity_interval| activity_interval.to_unix_ms.is_none());
        assert_eq!(
            open, lasts,
            "W1: {id} is open and its history has ended, or the reverse: {life:?}"
        );
        for (nth, activity_interval) in life.intervals.iter().enumerate() {
            let next = life.intervals.get(nth + 1);
            assert_eq!(
                activity_interval.to_unix_ms.is_none(),
                next.is_none() && open,
                "W1: a gap in the history of {id}: {life:?}"
            );
            if let Some(next) = next {
                let met = next.from_unix_ms.max(activity_interval.from_unix_ms);
                assert_eq!(
                    activity_interval.to_unix_ms,
                    Some(met),
                    "W1: a gap between two stretches of {id}: {life:?}"
                );
                let same = (activity_interval.activity, activity_interval.attempt)
                    == (next.activity, next.attempt);
                assert!(
                    !same,
                    "two adjacent stretches of {id} are the same: {life:?}"
                );
                assert!(
                    activity_interval.revision < next.revision,
                    "{id}'s stretches are out of order"
                );
            }
            if let Activity::Waiting(_) = activity_interval.activity {
                assert!(
                    !activity_interval.text.trim().is_empty()
                        && !activity_interval.text.contains("the reason is unknown"),
                    "W1: {id} waits without a reason"
                );
            } else {
                assert!(
                    activity_interval.attempt.is_some(),
                    "{id} is being worked on without an attempt"
                );
            }
        }
        let timeline = world.timelines.get(&id).cloned().unwrap_or_default();
        // Of two commits in one millisecond only the last is recorded, so the reasons may differ,
        // but the states may not.
        let shape = |life: &TaskTimeline| {
            let interval_shape = |activity_interval: &ActivityInterval| {
                (
                    activity_interval.activity,
                    activity_interval.attempt,
                    activity_interval.from_unix_ms,
                    activity_interval.to_unix_ms,
                )
            };
            life.intervals
                .iter()
                .map(interval_shape)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            shape(&life),
            shape(&timeline),
            "D4: the log gives another history of {id} than was seen"
        );
    }
}

fn activities(life: &TaskTimeline) -> Vec<(Activity, u64)> {
    life.intervals
        .iter()
        .map(|activity_interval| {
            (
                activity_interval.activity,
                activity_interval
                    .to_unix_ms
                    .map_or(0, |to| to - activity_interval.from_unix_ms),
            )
        })
        .collect()
}

/// W1: the waits of a task are recorded in order and to the millisecond: a blocker, then an agent.
/// Afterwards the task is worked on and paused.
#[test]
fn w1_a_history_has_each_wait_with_its_reason_and_length() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let first = world.add_task("first", &["src/a.rs"]);
    let mut second = task_to_add("second", &["src/b.rs"]);
    second.blocked_by = vec![first];
    world.ask(
        "ann",
        Command::AddTask {
            task: second,
            assign: Some(agent("ada")),
            how: AssignMode::Queue,
        },
    );
    let second = TaskId(first.0 + 1);
    world.advance_without_tick(7 * SECOND_MS);
    world.ask(
        "ann",
        Command::CancelTask {
            task: first,
            reason: "not needed".into(),
        },
    );
    world.advance_without_tick(3 * SECOND_MS);
    // A cancelled blocker still blocks. Removing it from the task does not.
    let edit = EditTask {
        blocked_by: Some(vec![]),
        ..EditTask::default()
    };
    world.ask("ann", Command::EditTask { task: second, edit });
    world.advance_without_tick(2 * SECOND_MS);
    let grant = world.poll("ada").expect("the task is ready");
    assert_eq!(grant.task, second);
    world.advance_without_tick(5 * SECOND_MS);
    world.ask(
        "ann",
        Command::StopTask {
            task: second,
            reason: "a pause".into(),
            pause: true,
        },
    );
    world.advance_without_tick(4 * SECOND_MS);
    let life = timeline_from_log(&world, second);
    assert_eq!(
        activities(&life),
        [
            (Activity::Waiting(WaitKind::Dependency), 10_000),
            (Activity::Waiting(WaitKind::Runner), 2_000),
            (Activity::Working, 5_000),
            (Activity::Waiting(WaitKind::Paused), 0),
        ],
        "{life:?}"
    );
    assert_eq!(life.intervals[2].attempt, Some(grant.attempt));
    let shown = life.with_totals_until(world.now.unix_ms);
    let sums: Vec<(Activity, u64)> = shown
        .sums
        .iter()
        .map(|activity_total| (activity_total.activity, activity_total.ms))
        .collect();
    assert_eq!(
        sums,
        [
            (Activity::Waiting(WaitKind::Dependency), 10_000),
            (Activity::Working, 5_000),
            (Activity::Waiting(WaitKind::Paused), 4_000),
            (Activity::Waiting(WaitKind::Runner), 2_000),
        ]
    );
    assert_eq!(
        timeline_from_log(&world, first)
            .intervals
            .last()
            .and_then(|activity_interval| activity_interval.to_unix_ms),
        Some(world.now.unix_ms - 14 * SECOND_MS)
    );
    check_timelines(&world);
}

fn set_pause(world: &mut World, task: TaskId, how: SetPause) {
    let edit = EditTask {
        paused: Some(how),
        ..EditTask::default()
    };
    world.ask("ann", Command::EditTask { task, edit });
}

/// A state that lasted no time is not recorded. Here two commits happen in the same millisecond.
#[test]
fn a_state_that_lasts_no_time_is_not_in_the_history() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let id = world.add_task("quick", &["src/a.rs"]);
    world.advance_without_tick(SECOND_MS);
    set_pause(&mut world, id, SetPause::Pause("wait".into()));
    set_pause(&mut world, id, SetPause::Resume);
    world.advance_without_tick(SECOND_MS);
    let life = timeline_from_log(&world, id);
    assert_eq!(life.intervals.len(), 1, "{life:?}");
    check_timelines(&world);
}

/// A long history keeps a limited number of stretches, and its sums still include all of them.
#[test]
fn a_long_history_is_shortened_and_its_sums_are_complete() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let id = world.add_task("restless", &["src/a.rs"]);
    for _ in 0..150 {
        world.advance_without_tick(SECOND_MS);
        set_pause(&mut world, id, SetPause::Pause("wait".into()));
        world.advance_without_tick(SECOND_MS);
        set_pause(&mut world, id, SetPause::Resume);
    }
    let life = timeline_from_log(&world, id);
    assert_eq!((life.intervals.len(), life.omitted_count), (200, 101));
    let shown = life.with_totals_until(world.now.unix_ms);
    assert_eq!(
        shown
            .sums
            .iter()
            .map(|activity_total| activity_total.ms)
            .sum::<u64>(),
        300 * SECOND_MS
    );
    assert_eq!(
        shown
            .sums
            .iter()
            .map(|activity_total| activity_total.times)
            .sum::<u32>(),
        301
    );
}
