//! Budgets of time: what runs counts as it passes.

use regatta_core::attempt::Exited;
use regatta_core::budget::{Ceiling, Scope};
use regatta_core::command::Command;
use regatta_core::schedule::WaitKind;
use regatta_core::task::How;

use crate::world::{World, work};

fn wall(ms: u64) -> Ceiling {
    Ceiling { wall_ms: Some(ms), ..Ceiling::default() }
}

/// Two at once use a day's minute up in half of it; both are parked then, and go on when there is more.
#[test]
fn a_budget_of_time_is_used_up_while_they_run() {
    let mut world = World::with(&[("ada", 2)]);
    for name in ["a", "b"] {
        world.add_for(work(name, &[name]), Some("ada"), How::Queue);
    }
    world.ask("ann", Command::SetBudget { scope: Scope::Day, ceiling: wall(60_000) });
    let grants = [world.take_supervised("ada"), world.take_supervised("ada")];
    world.advance(29_000);
    assert!(world.board.attempts.values().all(|it| it.stopping.is_none()), "there was time left");
    world.advance(2_000);
    assert!(world.board.attempts.values().all(|it| it.stopping.is_some()), "a minute is used up by two in half of it");
    for grant in &grants {
        let how = Exited::Lost;
        world.ask("regatta", Command::ReportExited { attempt: grant.attempt, token: grant.token, how });
    }
    assert_eq!(world.poll_supervised("ada"), None);
    assert!(world.reasons(grants[0].task).contains(&WaitKind::Budget));
    assert_eq!(world.task(grants[0].task).failures, 0, "it costs no attempt");
    world.ask("ann", Command::SetBudget { scope: Scope::Day, ceiling: wall(600_000) });
    let again = world.take_supervised("ada");
    assert_eq!(world.board.attempts[&again.attempt].workspace(), grants[0].attempt, "it goes on where it was");
}

/// A budget that is set, raised or taken away while something runs counts from then on.
#[test]
fn a_budget_of_time_may_change_while_they_run() {
    let mut world = World::with(&[("ada", 1)]);
    let task = world.add_for(work("a", &["a"]), Some("ada"), How::Queue);
    let grant = world.take_supervised("ada");
    world.advance(10_000);
    world.ask("ann", Command::SetBudget { scope: Scope::Task(task), ceiling: wall(30_000) });
    world.ask("ann", Command::SetBudget { scope: Scope::Task(task), ceiling: wall(40_000) });
    world.advance(25_000);
    assert!(world.board.attempts[&grant.attempt].stopping.is_none(), "the first ceiling counts no more");
    world.advance(10_000);
    assert!(world.board.attempts[&grant.attempt].stopping.is_some());
}
