//! Putting off what needs a person: for a while, never for good, and nothing is decided by it.

use regatta_core::approval::Reach;
use regatta_core::attempt::Exited;
use regatta_core::command::Command;
use regatta_core::ids::ApprovalId;
use regatta_core::inbox::{Item, LONGEST_MS};
use regatta_core::refusal::Refusal;
use regatta_core::session::{Answer, Ask, Want};
use regatta_core::task::Status;

use crate::world::{SECOND, World, exits, passed};

const Q1: Item = Item::Approval(ApprovalId(1));

/// A world in which somebody asks something.
fn asked() -> World {
    let mut world = World::with(&[("ada", 1)]);
    let task = world.add_task("work", &["src/a.rs"]);
    let grant = world.poll("ada").unwrap();
    let want = Want::Question { text: "Which?".into(), choices: vec![], schema: None };
    let ask = Ask { id: "1".into(), want };
    world.ask("ada", Command::Ask { task, attempt: grant.attempt, token: grant.token, ask });
    world
}

fn snoozed(world: &World) -> bool {
    world.board.approvals[&ApprovalId(1)].snoozed.is_some()
}

#[test]
fn what_is_put_off_comes_back_by_itself_undecided() {
    let mut world = asked();
    world.ask("ann", Command::Snooze { item: Q1, ms: Some(60 * SECOND) });
    assert!(snoozed(&world));
    world.advance(59 * SECOND);
    assert!(snoozed(&world), "not before its time");
    world.advance(SECOND);
    assert!(!snoozed(&world), "its time is over");
    assert!(world.board.approvals[&ApprovalId(1)].is_open(), "nothing was decided by it");
    // Longer, shorter, and not at all: the last word counts.
    world.ask("ann", Command::Snooze { item: Q1, ms: Some(3_600 * SECOND) });
    world.ask("ann", Command::Snooze { item: Q1, ms: Some(2 * SECOND) });
    world.advance(2 * SECOND);
    assert!(!snoozed(&world));
    world.ask("ann", Command::Snooze { item: Q1, ms: Some(3_600 * SECOND) });
    world.restart();
    assert!(snoozed(&world), "a restart does not bring it back");
    world.ask("ann", Command::Snooze { item: Q1, ms: None });
    assert!(!snoozed(&world));
    let before = world.log.len();
    world.ask("ann", Command::Snooze { item: Q1, ms: None });
    assert_eq!(world.log.len(), before, "the same again changes nothing");
}

#[test]
fn only_what_is_open_is_put_off_and_not_for_ever() {
    let mut world = asked();
    for ms in [0, 999, LONGEST_MS + 1, u64::MAX] {
        assert!(
            matches!(world.refused("ann", Command::Snooze { item: Q1, ms: Some(ms) }), Refusal::Invalid { .. }),
            "{ms}"
        );
    }
    let nothing = Item::Approval(ApprovalId(9));
    world.refused("ann", Command::Snooze { item: nothing, ms: Some(SECOND) });
    let task = world.board.tasks.keys().next().copied().unwrap();
    world.refused("ann", Command::Snooze { item: Item::Task(task), ms: Some(SECOND) });
    // An answer ends it.
    world.ask("ann", Command::Snooze { item: Q1, ms: Some(60 * SECOND) });
    let answer = Answer::Text { text: "this".into() };
    world.ask("ann", Command::Decide { approval: ApprovalId(1), answer, reach: Reach::Once });
    let late = world.refused("ann", Command::Snooze { item: Q1, ms: Some(SECOND) });
    assert!(matches!(late, Refusal::AlreadyAnswered { .. }), "{late:?}");
    world.advance(120 * SECOND);
}

/// A task that needs a person is put off as well; what moves it on ends that.
#[test]
fn a_task_that_needs_somebody_is_put_off_until_it_moves_on() {
    let mut world = World::with(&[("ada", 1)]);
    let task = world.add_task("work", &["src/a.rs"]);
    for _ in 0..3 {
        let grant = world.poll_supervised("ada").unwrap();
        world.ask("regatta", exits(&grant, Exited::Done { output: None }));
        world.judge(&grant, passed(&[]));
        world.advance(3_600 * SECOND);
    }
    let Some(it) = world.board.tasks.get(&task).filter(|it| it.status == Status::NeedsHuman).cloned() else {
        panic!("it needs somebody: {:?}", world.board.tasks.get(&task))
    };
    world.ask("ann", Command::Snooze { item: Item::Task(task), ms: Some(60 * SECOND) });
    let put_off = world.board.tasks[&task].clone();
    assert!(put_off.snoozed.is_some());
    assert_eq!(put_off.updated_wall, it.updated_wall, "it needs somebody for as long as before");
    world.ask("ann", Command::RetryTask { task, failed: None });
    assert_eq!(world.board.tasks[&task].snoozed, None, "it does not need anybody now");
    world.advance(120 * SECOND);
}
