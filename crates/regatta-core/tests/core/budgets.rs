//! Budgets of time: running attempts use them up while time passes.

use regatta_core::attempt::ProgramExit;
use regatta_core::budget::{BudgetScope, Ceiling};
use regatta_core::command::{Command, Report};
use regatta_core::schedule::WaitKind;
use regatta_core::task::AssignMode;

use crate::world::{World, task_to_add};

fn time_limit(ms: u64) -> Ceiling {
    Ceiling {
        wall_ms: Some(ms),
        ..Ceiling::default()
    }
}

/// Two attempts use up a day's minute in half a minute. Both are then parked, and go on when the
/// budget is raised.
#[test]
fn a_budget_of_time_is_used_up_by_running_attempts() {
    let mut world = World::with_agents(&[("ada", 2)]);
    for name in ["a", "b"] {
        world.add_for(task_to_add(name, &[name]), Some("ada"), AssignMode::Queue);
    }
    world.ask(
        "ann",
        Command::SetBudget {
            scope: BudgetScope::Day,
            ceiling: time_limit(60_000),
        },
    );
    let grants = [
        world.take_supervised_task("ada"),
        world.take_supervised_task("ada"),
    ];
    world.advance(29_000);
    assert!(
        world
            .board
            .attempts
            .values()
            .all(|attempt| attempt.stopping.is_none()),
        "an attempt is stopped before the budget is used up"
    );
    world.advance(2_000);
    assert!(
        world
            .board
            .attempts
            .values()
            .all(|attempt| attempt.stopping.is_some()),
        "two attempts use up a minute in half a minute"
    );
    for grant in &grants {
        let how = ProgramExit::Lost;
        world.report(Report::Exited {
            attempt: grant.attempt,
            token: grant.token,
            exit: how,
        });
    }
    assert_eq!(world.poll_supervised("ada"), None);
    assert!(world.wait_kinds(grants[0].task).contains(&WaitKind::Budget));
    assert_eq!(
        world.task(grants[0].task).failures,
        0,
        "the stop counts as a failed attempt"
    );
    world.ask(
        "ann",
        Command::SetBudget {
            scope: BudgetScope::Day,
            ceiling: time_limit(600_000),
        },
    );
    let again = world.take_supervised_task("ada");
    assert_eq!(
        world.board.attempts[&again.attempt].workspace(),
        grants[0].attempt,
        "the task goes on in a new workspace"
    );
}

/// A budget that is set or raised while an attempt runs applies from then on.
#[test]
fn a_budget_of_time_that_is_raised_applies_to_the_running_attempt() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let task = world.add_for(task_to_add("a", &["a"]), Some("ada"), AssignMode::Queue);
    let grant = world.take_supervised_task("ada");
    world.advance(10_000);
    world.ask(
        "ann",
        Command::SetBudget {
            scope: BudgetScope::Task(task),
            ceiling: time_limit(30_000),
        },
    );
    world.ask(
        "ann",
        Command::SetBudget {
            scope: BudgetScope::Task(task),
            ceiling: time_limit(40_000),
        },
    );
    world.advance(25_000);
    assert!(
        world.board.attempts[&grant.attempt].stopping.is_none(),
        "the first ceiling still applies"
    );
    world.advance(10_000);
    assert!(world.board.attempts[&grant.attempt].stopping.is_some());
}
