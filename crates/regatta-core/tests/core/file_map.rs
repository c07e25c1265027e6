//! The map of a project's files: the holder of each file, the end of each claim, and the files that
//! tasks collide in.

use std::collections::BTreeMap;

use regatta_core::collision_forecast::FoundCollision;
use regatta_core::command::{Command, Report};
use regatta_core::file_map::{self, FileCell};
use regatta_core::ids::TaskId;
use regatta_core::mission;
use regatta_core::task::AddTask;

use crate::world::{SECOND_MS, World, agent, shop, task_to_add};

fn draw_map(world: &World, landed: &[(&str, u32)]) -> Vec<String> {
    let landed: BTreeMap<String, u32> = landed
        .iter()
        .map(|landed| (landed.0.to_owned(), landed.1))
        .collect();
    let ids = |of: &[TaskId]| {
        of.iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("+")
    };
    let line = |file_cell: FileCell| {
        let mut text = file_cell.path.clone();
        for one in &file_cell.held {
            text += &format!(
                " held by {} {}",
                one.agent.as_ref().map_or("-", |agent| agent.as_str()),
                one.until
            );
        }
        for (word, of) in [
            ("wanted by", &file_cell.wanted),
            ("meet", &file_cell.clashing_tasks),
        ] {
            text += &if of.is_empty() {
                String::new()
            } else {
                format!(" {word} {}", ids(of))
            };
        }
        text + &if file_cell.changes_today > 0 {
            format!(" hot {}", file_cell.changes_today)
        } else {
            String::new()
        }
    };
    file_map::file_cells(&world.board, &shop(), &landed, world.now, 100)
        .into_iter()
        .map(line)
        .collect()
}

#[test]
fn a_file_shows_its_holder_its_end_and_the_tasks_that_collide() {
    let mut world = World::with_serial_queue(&[("ada", 1), ("bob", 1)]);
    world.add_task("one", &["src/api/**"]);
    world.add_task("two", &["src/api/a.rs"]);
    world.add_task("three", &["docs/a.md"]);
    assert_eq!(
        draw_map(&world, &[]),
        [
            "docs/a.md wanted by T3",
            "src/api/** wanted by T1 meet T1+T2",
            "src/api/a.rs wanted by T2 meet T1+T2"
        ],
        "a pattern collides with a path that it matches"
    );
    let grant = world.take_task("ada");
    assert_eq!(
        draw_map(
            &world,
            &[("src/api/a.rs", 2), ("src/api/b.rs", 1), ("src/main.rs", 1)]
        ),
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
        draw_map(&world, &[])[1].starts_with("src/api/** held by ada until T1 has landed"),
        "{:?}",
        draw_map(&world, &[])
    );
}

/// The map is about one project. Claims and tasks of another project are not on it, even if the
/// names are similar.
#[test]
fn files_of_another_project_are_not_on_the_map() {
    let mut world = World::with_serial_queue(&[("ada", 1)]);
    let other = world.project("shopping", &["cargo test"]);
    let name = other.name.clone();
    world.ask("ann", Command::AddProject(other));
    world.hold_claim("ada", &["file://shop/a.rs"]);
    world.hold_claim("ada", &["file://shopping/b.rs"]);
    world.add(AddTask {
        project: name.clone(),
        ..task_to_add("there", &["c.rs"])
    });
    assert_eq!(draw_map(&world, &[]), ["a.rs held by ada "]);
    let there = file_map::file_cells(&world.board, &name, &BTreeMap::new(), world.now, 100);
    assert_eq!(
        there
            .iter()
            .map(|file_cell| file_cell.path.as_str())
            .collect::<Vec<_>>(),
        ["b.rs", "c.rs"]
    );
}

/// A lease's end is shown as a date, rounded to the second. The date does not move while time
/// passes.
#[test]
fn the_map_shows_the_date_at_which_a_lease_ends() {
    let mut world = World::with_serial_queue(&[("ada", 1)]);
    world.advance_without_tick(1);
    let wall = world.now.unix_ms;
    world.hold_claim("ada", &["file://shop/a.rs"]);
    for later in [0, 1, 998] {
        world.advance_without_tick(later);
        let spots = file_map::file_cells(&world.board, &shop(), &BTreeMap::new(), world.now, 100);
        assert_eq!(
            spots[0].held[0].deadline_unix_ms,
            Some(wall - 1 + 31 * SECOND_MS),
            "the end of the lease moved"
        );
    }
}

/// Tasks of a mission with `isolate` share their files, because the queue merges the changes. That
/// is not a collision.
#[test]
fn tasks_that_isolate_do_not_collide() {
    for (isolate, meet) in [
        (true, "a.rs wanted by T1+T2"),
        (false, "a.rs wanted by T1+T2 meet T1+T2"),
    ] {
        let mut world = World::with_serial_queue(&[("ada", 1)]);
        let ids = [
            world.add_task("one", &["a.rs"]),
            world.add_task("two", &["a.rs"]),
        ];
        let mission = mission::StartMission {
            project: shop(),
            title: "Both".into(),
            agents: vec![agent("ada")],
            team: None,
            max_workers: 1,
            mode: mission::StartMode::Flow,
            isolate,
            wave_commits: false,
            serial: vec![],
            budget: Default::default(),
        };
        world.ask(
            "ann",
            Command::StartMission {
                mission,
                tasks: vec![],
                adopt: ids.to_vec(),
            },
        );
        assert_eq!(draw_map(&world, &[]), [meet]);
    }
}

/// A collision that was found in work in progress is on the map, also in files that no task holds.
#[test]
fn a_found_collision_is_on_the_map() {
    let mut world = World::with_serial_queue(&[("ada", 1), ("bob", 1)]);
    world.add_task("one", &["a.rs"]);
    world.add_task("two", &["b.rs"]);
    let (one, two) = (world.take_task("ada"), world.take_task("bob"));
    let found = vec![FoundCollision {
        one: one.attempt,
        other: Some(two.attempt),
        paths: vec!["shared.rs".into()],
    }];
    world.report(Report::Collisions {
        project: shop(),
        found,
    });
    assert_eq!(draw_map(&world, &[])[2], "shared.rs meet T1+T2");
}

/// The size of the map is limited. Held files are always on it, and the rest up to the limit.
#[test]
fn a_map_shows_held_files_first_and_has_a_maximum_size() {
    let mut world = World::with_serial_queue(&[("ada", 1)]);
    world.hold_claim("ada", &["file://shop/held.rs"]);
    let many: Vec<String> = (0..60).map(|n| format!("src/{n:02}.rs")).collect();
    world.add_task("many", &many.iter().map(String::as_str).collect::<Vec<_>>());
    world.add_task("same", &["src/00.rs"]);
    let paths = |most: usize| {
        let landed = BTreeMap::from([("hot.rs".to_owned(), 1), ("src/00.rs".to_owned(), 1)]);
        file_map::file_cells(&world.board, &shop(), &landed, world.now, most)
    };
    assert_eq!(
        paths(100).len(),
        52,
        "fifty files of one task, the held file and the hot file"
    );
    let few = paths(2);
    assert_eq!(
        few.iter()
            .map(|file_cell| file_cell.path.as_str())
            .collect::<Vec<_>>(),
        ["held.rs", "src/00.rs"]
    );
    assert_eq!(
        (few[1].wanted.len(), few[1].changes_today),
        (2, 1),
        "the entries that remain are complete"
    );
}

/// Two tasks of which one depends on the other do not collide, however long the chain of blockers
/// is.
#[test]
fn a_task_does_not_collide_with_its_blockers() {
    let mut world = World::with_serial_queue(&[("ada", 1)]);
    let one = world.add_task("one", &["a.rs"]);
    let two = world.add(AddTask {
        blocked_by: vec![one],
        ..task_to_add("two", &["b.rs"])
    });
    world.add(AddTask {
        blocked_by: vec![two],
        ..task_to_add("three", &["a.rs"])
    });
    assert_eq!(
        draw_map(&world, &[]),
        ["a.rs wanted by T1+T3", "b.rs wanted by T2"]
    );
    world.add_task("four", &["a.rs"]);
    assert_eq!(
        draw_map(&world, &[])[0],
        "a.rs wanted by T1+T3+T4 meet T1+T3+T4"
    );
}
