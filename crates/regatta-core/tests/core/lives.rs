//! The history of a task, computed from the log: every wait has a beginning, an end and a reason
//! (W1, over time).

use regatta_core::board::Board;
use regatta_core::command::Command;
use regatta_core::ids::TaskId;
use regatta_core::life::{Doing, Life, Stretch, Telling};
use regatta_core::schedule::WaitKind;
use regatta_core::task::{Edit, How, Pause};

use crate::world::{SECOND, World, agent, work};

/// Returns a task's history, computed from the log alone.
pub(crate) fn told(world: &World, id: TaskId) -> Life {
    let mut telling = Telling::begin(Board::default(), &[id]);
    world.log.iter().for_each(|it| telling.hear(it));
    telling.rest();
    assert!(telling.board().revision == world.board.revision, "part of the log was not applied");
    telling.lives()[0].1.clone()
}

/// W1 over time: from its first commit to its end, a task is in exactly one stretch. Each stretch
/// begins where the previous one ended, and each stretch of waiting has a reason.
pub(crate) fn check(world: &World) {
    for id in (1..=world.board.counters.task).map(TaskId) {
        let life = told(world, id);
        assert_eq!(life.left_out, 0, "the test is too long: stretches were left out");
        let open = world.board.tasks.contains_key(&id);
        let lasts = life.stretches.last().is_some_and(|it| it.to_wall.is_none());
        assert_eq!(open, lasts, "W1: {id} is open and its history has ended, or the reverse: {life:?}");
        for (nth, it) in life.stretches.iter().enumerate() {
            let next = life.stretches.get(nth + 1);
            assert_eq!(it.to_wall.is_none(), next.is_none() && open, "W1: a gap in the history of {id}: {life:?}");
            if let Some(next) = next {
                let met = next.from_wall.max(it.from_wall);
                assert_eq!(it.to_wall, Some(met), "W1: a gap between two stretches of {id}: {life:?}");
                let same = (it.doing, it.attempt) == (next.doing, next.attempt);
                assert!(!same, "two adjacent stretches of {id} are the same: {life:?}");
                assert!(it.revision < next.revision, "{id}'s stretches are out of order");
            }
            if let Doing::Waiting(_) = it.doing {
                assert!(
                    !it.text.trim().is_empty() && !it.text.contains("the reason is unknown"),
                    "W1: {id} waits without a reason"
                );
            } else {
                assert!(it.attempt.is_some(), "{id} is being worked on without an attempt");
            }
        }
        let seen = world.lives.get(&id).cloned().unwrap_or_default();
        // Of two commits in one millisecond only the last is recorded, so the reasons may differ,
        // but the states may not.
        let shape = |life: &Life| {
            let of = |it: &Stretch| (it.doing, it.attempt, it.from_wall, it.to_wall);
            life.stretches.iter().map(of).collect::<Vec<_>>()
        };
        assert_eq!(shape(&life), shape(&seen), "D4: the log gives another history of {id} than was seen");
    }
}

fn kinds(life: &Life) -> Vec<(Doing, u64)> {
    life.stretches.iter().map(|it| (it.doing, it.to_wall.map_or(0, |to| to - it.from_wall))).collect()
}

/// W1: the waits of a task are recorded in order and to the millisecond: a blocker, then an agent.
/// Afterwards the task is worked on and paused.
#[test]
fn w1_a_history_has_each_wait_with_its_reason_and_length() {
    let mut world = World::with(&[("ada", 1)]);
    let first = world.add_task("first", &["src/a.rs"]);
    let mut second = work("second", &["src/b.rs"]);
    second.blocked_by = vec![first];
    world.ask("ann", Command::AddTask { task: second, assign: Some(agent("ada")), how: How::Queue });
    let second = TaskId(first.0 + 1);
    world.pass(7 * SECOND);
    world.ask("ann", Command::CancelTask { task: first, reason: "not needed".into() });
    world.pass(3 * SECOND);
    // A cancelled blocker still blocks. Removing it from the task does not.
    let edit = Edit { blocked_by: Some(vec![]), ..Edit::default() };
    world.ask("ann", Command::EditTask { task: second, edit });
    world.pass(2 * SECOND);
    let grant = world.poll("ada").expect("the task is ready");
    assert_eq!(grant.task, second);
    world.pass(5 * SECOND);
    world.ask("ann", Command::StopTask { task: second, reason: "a pause".into(), pause: true });
    world.pass(4 * SECOND);
    let life = told(&world, second);
    assert_eq!(
        kinds(&life),
        [
            (Doing::Waiting(WaitKind::Dep), 10_000),
            (Doing::Waiting(WaitKind::Runner), 2_000),
            (Doing::Working, 5_000),
            (Doing::Waiting(WaitKind::Paused), 0),
        ],
        "{life:?}"
    );
    assert_eq!(life.stretches[2].attempt, Some(grant.attempt));
    let shown = life.shown(world.now.wall);
    let sums: Vec<(Doing, u64)> = shown.sums.iter().map(|it| (it.doing, it.ms)).collect();
    assert_eq!(
        sums,
        [
            (Doing::Waiting(WaitKind::Dep), 10_000),
            (Doing::Working, 5_000),
            (Doing::Waiting(WaitKind::Paused), 4_000),
            (Doing::Waiting(WaitKind::Runner), 2_000),
        ]
    );
    assert_eq!(told(&world, first).stretches.last().and_then(|it| it.to_wall), Some(world.now.wall - 14 * SECOND));
    check(&world);
}

fn pause(world: &mut World, task: TaskId, how: Pause) {
    let edit = Edit { paused: Some(how), ..Edit::default() };
    world.ask("ann", Command::EditTask { task, edit });
}

/// A state that lasted no time is not recorded. Here two commits happen in the same millisecond.
#[test]
fn a_state_that_lasts_no_time_is_not_in_the_history() {
    let mut world = World::with(&[("ada", 1)]);
    let id = world.add_task("quick", &["src/a.rs"]);
    world.pass(SECOND);
    pause(&mut world, id, Pause::Because("wait".into()));
    pause(&mut world, id, Pause::No);
    world.pass(SECOND);
    let life = told(&world, id);
    assert_eq!(life.stretches.len(), 1, "{life:?}");
    check(&world);
}

/// A long history keeps a limited number of stretches, and its sums still include all of them.
#[test]
fn a_long_history_is_shortened_and_its_sums_are_complete() {
    let mut world = World::with(&[("ada", 1)]);
    let id = world.add_task("restless", &["src/a.rs"]);
    for _ in 0..150 {
        world.pass(SECOND);
        pause(&mut world, id, Pause::Because("wait".into()));
        world.pass(SECOND);
        pause(&mut world, id, Pause::No);
    }
    let life = told(&world, id);
    assert_eq!((life.stretches.len(), life.left_out), (200, 101));
    let shown = life.shown(world.now.wall);
    assert_eq!(shown.sums.iter().map(|it| it.ms).sum::<u64>(), 300 * SECOND);
    assert_eq!(shown.sums.iter().map(|it| it.times).sum::<u32>(), 301);
}
