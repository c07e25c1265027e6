//! A task's life as the log tells it: every wait begins and ends with its reason (W1, over time).

use regatta_core::board::Board;
use regatta_core::command::Command;
use regatta_core::ids::TaskId;
use regatta_core::life::{Doing, Life, Stretch, Telling};
use regatta_core::schedule::WaitKind;
use regatta_core::task::{Edit, How, Pause};

use crate::world::{SECOND, World, agent, work};

/// A task's life, from the log alone.
pub(crate) fn told(world: &World, id: TaskId) -> Life {
    let mut telling = Telling::begin(Board::default(), &[id]);
    world.log.iter().for_each(|it| telling.hear(it));
    telling.rest();
    assert!(telling.board().revision == world.board.revision, "the whole log was heard");
    telling.lives()[0].1.clone()
}

/// W1 over time: from its first commit to its end a task is in exactly one stretch, each begins where the one before
/// it ended, and each in which nobody works has a reason in words.
pub(crate) fn check(world: &World) {
    for id in (1..=world.board.counters.task).map(TaskId) {
        let life = told(world, id);
        assert_eq!(life.left_out, 0, "a story is shorter than what is kept of a life");
        let open = world.board.tasks.contains_key(&id);
        let lasts = life.stretches.last().is_some_and(|it| it.to_wall.is_none());
        assert_eq!(open, lasts, "W1: {id} is open and its life is over, or the other way round: {life:?}");
        for (nth, it) in life.stretches.iter().enumerate() {
            let next = life.stretches.get(nth + 1);
            assert_eq!(it.to_wall.is_none(), next.is_none() && open, "W1: a hole in the life of {id}: {life:?}");
            if let Some(next) = next {
                let met = next.from_wall.max(it.from_wall);
                assert_eq!(it.to_wall, Some(met), "W1: a hole between two stretches of {id}: {life:?}");
                let same = (it.doing, it.attempt) == (next.doing, next.attempt);
                assert!(!same, "{id} was at one thing in two stretches: {life:?}");
                assert!(it.revision < next.revision, "{id}'s stretches are out of order");
            }
            if let Doing::Waiting(_) = it.doing {
                assert!(
                    !it.text.trim().is_empty() && !it.text.contains("the reason is unknown"),
                    "W1: {id} waits for nothing"
                );
            } else {
                assert!(it.attempt.is_some(), "{id} is worked on by nobody");
            }
        }
        let seen = world.lives.get(&id).cloned().unwrap_or_default();
        // Of two commits in one millisecond only the last is looked at, so words may differ; what it is at may not.
        let shape = |life: &Life| {
            let of = |it: &Stretch| (it.doing, it.attempt, it.from_wall, it.to_wall);
            life.stretches.iter().map(of).collect::<Vec<_>>()
        };
        assert_eq!(shape(&life), shape(&seen), "D4: the log tells {id}'s life otherwise than it was");
    }
}

fn kinds(life: &Life) -> Vec<(Doing, u64)> {
    life.stretches.iter().map(|it| (it.doing, it.to_wall.map_or(0, |to| to - it.from_wall))).collect()
}

/// W1: what a task waited for, in order and to the millisecond: a blocker, its agent's room, a claim; then it is
/// worked on, comes back, is paused, and ends.
#[test]
fn w1_a_life_tells_each_wait_with_its_reason_and_its_length() {
    let mut world = World::with(&[("ada", 1)]);
    let first = world.add_task("first", &["src/a.rs"]);
    let mut second = work("second", &["src/b.rs"]);
    second.blocked_by = vec![first];
    world.ask("ann", Command::AddTask { task: second, assign: Some(agent("ada")), how: How::Queue });
    let second = TaskId(first.0 + 1);
    world.pass(7 * SECOND);
    world.ask("ann", Command::CancelTask { task: first, reason: "not needed".into() });
    world.pass(3 * SECOND);
    // A dead blocker still holds it; taking it away does not.
    let edit = Edit { blocked_by: Some(vec![]), ..Edit::default() };
    world.ask("ann", Command::EditTask { task: second, edit });
    world.pass(2 * SECOND);
    let grant = world.poll("ada").expect("it is ready");
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

/// What lasted no time was seen by nobody: two commits in one millisecond are one look.
#[test]
fn what_lasts_no_time_leaves_no_trace() {
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

/// A life of many turns is kept within bounds, and its sums lose nothing.
#[test]
fn a_long_life_is_summed_up() {
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
