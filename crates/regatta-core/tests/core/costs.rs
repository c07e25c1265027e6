//! The cost ledger from the log: the spending of each attempt and day, and the tasks that ended.

use regatta_core::agent_protocol::{AgentEvent, Usage};
use regatta_core::attempt::{AttemptCause, ProgramExit};
use regatta_core::budget;
use regatta_core::command::Report;
use regatta_core::spend_ledger::SpendLedger;

use crate::world::{HOUR_MS, World, exit_report, passed_verdict};

fn ledger_of(world: &World) -> SpendLedger {
    let mut book = SpendLedger::default();
    world.log.iter().for_each(|event| book.fold(event, None));
    book
}

/// Works on the next task and spends this amount.
fn spend_on_next_task(world: &mut World, micro_usd: u64) -> regatta_core::schedule::PollGrant {
    let grant = world.take_supervised_task("ada");
    let usage = Usage {
        input: 10,
        micro_usd: Some(micro_usd),
        ..Usage::default()
    };
    for (n, said) in [
        (
            1,
            AgentEvent::Started {
                session: None,
                model: None,
            },
        ),
        (
            2,
            AgentEvent::Usage {
                session: None,
                usage,
            },
        ),
    ] {
        world.report(Report::AgentEvent {
            attempt: grant.attempt,
            token: grant.token,
            n,
            event: said,
        });
    }
    grant
}

#[test]
fn the_log_gives_the_spending_and_the_ended_tasks_of_each_day() {
    let mut world = World::with_serial_queue(&[("ada", 1)]);
    world.advance(2 * HOUR_MS); // past midnight
    let day = budget::day_of(world.now);
    let lands = world.add_task("lands", &["a.rs"]);
    let first = spend_on_next_task(&mut world, 100);
    world.report(exit_report(&first, ProgramExit::Done { output: None }));
    let landing = world
        .report_verdict(&first, passed_verdict(&["a.rs"]))
        .expect("the work enters the queue");
    world.move_and_land(landing);
    let fails = world.add_task("fails", &["b.rs"]);
    for _ in 0..3 {
        let grant = world.take_task("ada");
        world.fail_once(&grant);
        world.advance(HOUR_MS);
    }
    let ends = |world: &World, day: u64| {
        ledger_of(world)
            .ended_since(day)
            .into_iter()
            .map(|pair| pair.1)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        ends(&world, day),
        [lands, fails],
        "the tasks that ended on that day, the latest last"
    );
    world.advance(24 * HOUR_MS);
    world.add_task("other", &["c.rs"]);
    let second = spend_on_next_task(&mut world, 7);
    let removed_task = world.add_task("gone", &["d.rs"]);
    world.cancel(removed_task);
    assert_eq!(budget::day_of(world.now), day + 1);
    let money = |since: u64| {
        let spent = ledger_of(&world).spend_since(since).into_iter();
        spent
            .filter_map(|(attempt, spend)| Some((attempt, spend.usage.micro_usd?)))
            .collect::<Vec<_>>()
    };
    assert_eq!(money(day), [(first.attempt, 100), (second.attempt, 7)]);
    assert_eq!(
        money(day + 1),
        [(second.attempt, 7)],
        "the spending of that day alone"
    );
    assert_eq!(ends(&world, day), [lands, fails, removed_task]);
    assert_eq!(
        ends(&world, day + 1),
        [removed_task],
        "a cancelled task has ended, too"
    );
    assert_eq!(ends(&world, day + 2), []);
    let mut late = ledger_of(&world);
    late.forget_before(day + 1);
    assert_eq!(
        (late.spend_since(0), late.ended_since(0)),
        (
            ledger_of(&world).spend_since(day + 1),
            ledger_of(&world).ended_since(day + 1)
        )
    );
}

/// Work that goes on in another attempt is not lost. All other causes count as lost.
#[test]
fn work_that_continues_in_another_attempt_is_not_lost() {
    let cases = [
        (AttemptCause::Submitted, false),
        (AttemptCause::Reported, false),
        (AttemptCause::Rested, false),
        (AttemptCause::Parked, false),
        (AttemptCause::ContextFull, false),
        (AttemptCause::Crashed, true),
        (AttemptCause::Rejected, true),
        (AttemptCause::Stopped, true),
        (AttemptCause::OverBudget, true),
    ];
    for (cause, is_lost) in cases {
        assert_eq!(cause.loses_work(), is_lost, "{cause:?}");
    }
}
