//! The cost ledger from the log: the spending of each attempt and day, and the tasks that ended.

use regatta_core::attempt::Exited;
use regatta_core::budget;
use regatta_core::command::Command;
use regatta_core::cost::Book;
use regatta_core::session::{Said, Usage};

use crate::world::{HOUR, World, exits, passed};

fn book(world: &World) -> Book {
    let mut book = Book::default();
    world.log.iter().for_each(|it| book.fold(it, None));
    book
}

/// Works on the next task and spends this amount.
fn spends(world: &mut World, micro_usd: u64) -> regatta_core::schedule::Grant {
    let grant = world.take_supervised("ada");
    let usage = Usage { input: 10, micro_usd: Some(micro_usd), ..Usage::default() };
    for (n, said) in [(1, Said::Started { session: None, model: None }), (2, Said::Usage { session: None, usage })] {
        world.ask("regatta", Command::ReportSaid { attempt: grant.attempt, token: grant.token, n, said });
    }
    grant
}

#[test]
fn the_log_gives_the_spending_and_the_ended_tasks_of_each_day() {
    let mut world = World::serial(&[("ada", 1)]);
    world.advance(2 * HOUR); // past midnight
    let day = budget::day_of(world.now);
    let lands = world.add_task("lands", &["a.rs"]);
    let first = spends(&mut world, 100);
    world.ask("regatta", exits(&first, Exited::Done { output: None }));
    let landing = world.judge(&first, passed(&["a.rs"])).expect("the work enters the queue");
    world.land(landing);
    let fails = world.add_task("fails", &["b.rs"]);
    for _ in 0..3 {
        let grant = world.take("ada");
        world.fail_once(&grant);
        world.advance(HOUR);
    }
    let ends = |world: &World, day: u64| book(world).ended_since(day).into_iter().map(|it| it.1).collect::<Vec<_>>();
    assert_eq!(ends(&world, day), [lands, fails], "the tasks that ended on that day, the latest last");
    world.advance(24 * HOUR);
    world.add_task("other", &["c.rs"]);
    let second = spends(&mut world, 7);
    let gone = world.add_task("gone", &["d.rs"]);
    world.cancel(gone);
    assert_eq!(budget::day_of(world.now), day + 1);
    let money = |since: u64| {
        let spent = book(&world).since(since).into_iter();
        spent.filter_map(|(attempt, it)| Some((attempt, it.usage.micro_usd?))).collect::<Vec<_>>()
    };
    assert_eq!(money(day), [(first.attempt, 100), (second.attempt, 7)]);
    assert_eq!(money(day + 1), [(second.attempt, 7)], "the spending of that day alone");
    assert_eq!(ends(&world, day), [lands, fails, gone]);
    assert_eq!(ends(&world, day + 1), [gone], "a cancelled task has ended, too");
    assert_eq!(ends(&world, day + 2), []);
    let mut late = book(&world);
    late.forget_before(day + 1);
    assert_eq!((late.since(0), late.ended_since(0)), (book(&world).since(day + 1), book(&world).ended_since(day + 1)));
}
