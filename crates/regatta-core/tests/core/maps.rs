//! The map of a project's files: who holds what until when, and where two meet.

use std::collections::BTreeMap;

use regatta_core::ids::TaskId;
use regatta_core::map::{self, Spot};
use regatta_core::task::Add;

use crate::world::{World, shop, work};

fn drawn(world: &World, landed: &[(&str, u32)]) -> Vec<String> {
    let landed: BTreeMap<String, u32> = landed.iter().map(|it| (it.0.to_owned(), it.1)).collect();
    let ids = |of: &[TaskId]| of.iter().map(ToString::to_string).collect::<Vec<_>>().join("+");
    let line = |it: Spot| {
        let mut text = it.path.clone();
        for one in &it.held {
            text += &format!(" held by {} {}", one.agent.as_ref().map_or("-", |it| it.as_str()), one.until);
        }
        for (word, of) in [("wanted by", &it.wanted), ("meet", &it.clash)] {
            text += &if of.is_empty() { String::new() } else { format!(" {word} {}", ids(of)) };
        }
        text + &if it.hot > 0 { format!(" hot {}", it.hot) } else { String::new() }
    };
    map::spots(&world.board, &shop(), &landed, (world.now, 100)).into_iter().map(line).collect()
}

#[test]
fn a_file_says_who_has_it_until_when_and_who_meets() {
    let mut world = World::serial(&[("ada", 1), ("bob", 1)]);
    world.add_task("one", &["src/api/**"]);
    world.add_task("two", &["src/api/a.rs"]);
    world.add_task("three", &["docs/a.md"]);
    assert_eq!(
        drawn(&world, &[]),
        ["docs/a.md wanted by T3", "src/api/** wanted by T1 meet T1+T2", "src/api/a.rs wanted by T2 meet T1+T2"],
        "a pattern meets what it matches"
    );
    let grant = world.take("ada");
    assert_eq!(
        drawn(&world, &[("src/api/a.rs", 2), ("src/api/b.rs", 1), ("src/main.rs", 1)]),
        [
            "docs/a.md wanted by T3",
            "src/api/** held by ada while T1 is worked on meet T1+T2 hot 3",
            "src/api/a.rs wanted by T2 meet T1+T2 hot 2",
            "src/api/b.rs hot 1",
            "src/main.rs hot 1",
        ]
    );
    world.submit(&grant);
    assert!(
        drawn(&world, &[])[1].starts_with("src/api/** held by ada until T1 has landed"),
        "{:?}",
        drawn(&world, &[])
    );
}

/// Whoever waits for the other by its blockers has an order, however long the chain: that is no meeting.
#[test]
fn who_depends_on_another_does_not_meet_it() {
    let mut world = World::serial(&[("ada", 1)]);
    let one = world.add_task("one", &["a.rs"]);
    let two = world.add(Add { blocked_by: vec![one], ..work("two", &["b.rs"]) });
    world.add(Add { blocked_by: vec![two], ..work("three", &["a.rs"]) });
    assert_eq!(drawn(&world, &[]), ["a.rs wanted by T1+T3", "b.rs wanted by T2"]);
    world.add_task("four", &["a.rs"]);
    assert_eq!(drawn(&world, &[])[0], "a.rs wanted by T1+T3+T4 meet T1+T3+T4");
}
