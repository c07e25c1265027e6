//! The map of a project's files: who holds what until when, and where two meet.

use std::collections::BTreeMap;

use regatta_core::command::Command;
use regatta_core::ids::TaskId;
use regatta_core::map::{self, Spot};
use regatta_core::mission;
use regatta_core::radar::Found;
use regatta_core::task::Add;

use crate::world::{SECOND, World, agent, shop, work};

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

/// The map is one project's: neither what is claimed in another nor what is wanted there is on it, however alike they
/// are called.
#[test]
fn another_project_is_not_on_the_map() {
    let mut world = World::serial(&[("ada", 1)]);
    let other = world.project("shopping", &["cargo test"]);
    let name = other.name.clone();
    world.ask("ann", Command::AddProject(other));
    world.hold("ada", &["file://shop/a.rs"]);
    world.hold("ada", &["file://shopping/b.rs"]);
    world.add(Add { project: name.clone(), ..work("there", &["c.rs"]) });
    assert_eq!(drawn(&world, &[]), ["a.rs held by ada "]);
    let there = map::spots(&world.board, &name, &BTreeMap::new(), (world.now, 100));
    assert_eq!(there.iter().map(|it| it.path.as_str()).collect::<Vec<_>>(), ["b.rs", "c.rs"]);
}

/// A lease ends at a date, to the second: the two clocks are read apart.
#[test]
fn a_lease_is_held_until_a_date() {
    let mut world = World::serial(&[("ada", 1)]);
    world.pass(1);
    let wall = world.now.wall;
    world.hold("ada", &["file://shop/a.rs"]);
    for later in [0, 1, 998] {
        world.pass(later);
        let spots = map::spots(&world.board, &shop(), &BTreeMap::new(), (world.now, 100));
        assert_eq!(spots[0].held[0].until_wall, Some(wall - 1 + 31 * SECOND), "nor does it move while time passes");
    }
}

/// Those of a mission that isolates share what they hold: the queue merges it, and that is no quarrel.
#[test]
fn who_shares_does_not_meet() {
    for (isolate, meet) in [(true, "a.rs wanted by T1+T2"), (false, "a.rs wanted by T1+T2 meet T1+T2")] {
        let mut world = World::serial(&[("ada", 1)]);
        let ids = [world.add_task("one", &["a.rs"]), world.add_task("two", &["a.rs"])];
        let mission = mission::Start {
            project: shop(),
            title: "Both".into(),
            agents: vec![agent("ada")],
            team: None,
            max_workers: 1,
            mode: mission::Mode::Flow,
            isolate,
            wave_commits: false,
            serial: vec![],
            budget: Default::default(),
        };
        world.ask("ann", Command::StartMission { mission, tasks: vec![], adopt: ids.to_vec() });
        assert_eq!(drawn(&world, &[]), [meet]);
    }
}

/// Work in progress that will not merge meets where it will not, held or not.
#[test]
fn what_will_collide_is_on_the_map() {
    let mut world = World::serial(&[("ada", 1), ("bob", 1)]);
    world.add_task("one", &["a.rs"]);
    world.add_task("two", &["b.rs"]);
    let (one, two) = (world.take("ada"), world.take("bob"));
    let found = vec![Found { one: one.attempt, other: Some(two.attempt), paths: vec!["shared.rs".into()] }];
    world.ask("regatta", Command::ReportCollisions { project: shop(), found });
    assert_eq!(drawn(&world, &[])[2], "shared.rs meet T1+T2");
}

/// However much is wanted, a map can be drawn: what is held is all there, of the rest only so much.
#[test]
fn a_map_has_an_end() {
    let mut world = World::serial(&[("ada", 1)]);
    world.hold("ada", &["file://shop/held.rs"]);
    let many: Vec<String> = (0..60).map(|it| format!("src/{it:02}.rs")).collect();
    world.add_task("many", &many.iter().map(String::as_str).collect::<Vec<_>>());
    world.add_task("same", &["src/00.rs"]);
    let paths = |most: usize| {
        let landed = BTreeMap::from([("hot.rs".to_owned(), 1), ("src/00.rs".to_owned(), 1)]);
        map::spots(&world.board, &shop(), &landed, (world.now, most))
    };
    assert_eq!(paths(100).len(), 52, "fifty of one task, what is held and what is hot");
    let few = paths(2);
    assert_eq!(few.iter().map(|it| it.path.as_str()).collect::<Vec<_>>(), ["held.rs", "src/00.rs"]);
    assert_eq!((few[1].wanted.len(), few[1].hot), (2, 1), "what is on it is drawn whole");
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
