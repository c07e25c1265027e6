//! Ports: leased with an attempt's files, in one commit, and free when it has ended.

use regatta_core::claim::Owner;
use regatta_core::command::Command;
use regatta_core::schedule::{Grant, WaitKind};
use regatta_core::task::Status;

use crate::world::{World, acquire, agent, polls, uri};

/// A project whose attempts get `count` ports of 41000 to `last`.
fn world(count: u32, last: u16) -> World {
    let mut world = World::with(&[("ada", 2), ("bob", 2)]);
    let mut project = world.project("shop", &["cargo test"]);
    project.settings.workspace.ports = count;
    project.settings.workspace.port_range = (41_000, last);
    world.ask("ann", Command::AddProject(project));
    world
}

impl World {
    fn ports(&self, grant: &Grant) -> Vec<u16> {
        self.board.attempts[&grant.attempt].ports.clone()
    }
    fn is_free(&self, port: u16) -> bool {
        let mut other = self.clone();
        other
            .try_ask("bob", Command::Acquire(acquire(Owner::Agent(agent("bob")), &[&format!("port://{port}")])))
            .is_ok()
    }
}

#[test]
fn the_lowest_free_ports_are_leased_with_the_start() {
    let mut world = world(2, 41_999);
    for name in ["a", "b", "c"] {
        world.add_task(name, &[&format!("{name}/**")]);
    }
    // Somebody outside uses the second one.
    world.ask("bob", Command::Acquire(acquire(Owner::Agent(agent("bob")), &["port://41001"])));
    let (first, second) = (world.take("ada"), world.take_supervised("ada"));
    assert_eq!(world.ports(&first), [41_000, 41_002]);
    assert_eq!(world.ports(&second), [41_003, 41_004]);
    // L1: nobody else gets them, and the whole line is refused.
    world.refused("bob", Command::Acquire(acquire(Owner::Agent(agent("bob")), &["port://41002"])));
    world.refused("bob", Command::Acquire(acquire(Owner::Agent(agent("bob")), &["port://*"])));
    world.restart();
    assert_eq!(world.ports(&second), [41_003, 41_004]);
}

/// L11: an attempt's end frees its ports in the same commit, also when its files go on to a landing.
#[test]
fn l11_ports_are_free_when_the_attempt_has_ended_and_do_not_go_to_the_landing() {
    let mut world = world(2, 41_001);
    world.add_task("a", &["src/**"]);
    world.add_task("b", &["docs/**"]);
    let first = world.take("ada");
    assert!(!world.is_free(41_000));
    let landing = world.submit(&first);
    assert!(world.is_free(41_000) && world.is_free(41_001));
    let held: Vec<_> = world.board.claims.values().filter(|it| it.owner == Owner::Landing(landing)).collect();
    assert_eq!(held.len(), 1);
    assert_eq!(held[0].uris, [uri("file://shop/src/**")]);
    let second = world.take("ada");
    assert_eq!(world.ports(&second), [41_000, 41_001]);
    world.stop(second.task);
    assert!(world.is_free(41_000));
}

/// W1: a task that waits for ports says so, and starts when they are free.
#[test]
fn w1_a_task_without_ports_waits_for_them() {
    let mut world = world(2, 41_002);
    world.add_task("a", &["a/**"]);
    let waits = world.add_task("b", &["b/**"]);
    let first = world.take("ada");
    assert_eq!(world.try_ask("ada", Command::Poll(polls("ada"))), Ok(regatta_core::command::Outcome::Polled(None)));
    assert_eq!(world.status(waits), Status::Unassigned);
    let told = world.reasons(waits);
    assert!(told.contains(&WaitKind::Claim), "{told:?}");
    world.submit(&first);
    assert_eq!(world.take("ada").task, waits);
}

#[test]
fn a_port_that_a_stranger_uses_is_replaced_and_kept_from_others() {
    let mut world = world(2, 41_999);
    world.add_task("a", &["a/**"]);
    world.add_task("b", &["b/**"]);
    let grant = world.take_supervised("ada");
    let Grant { attempt, token, .. } = grant;
    world.ask("regatta", Command::ReportPortsTaken { attempt, token, taken: vec![41_000, 45_000] });
    assert_eq!(world.ports(&grant), [41_002, 41_001], "the one that is taken is replaced in its place");
    assert!(!world.is_free(41_000), "nobody else is sent there meanwhile");
    let revision = world.board.revision;
    world.ask("regatta", Command::ReportPortsTaken { attempt, token, taken: vec![41_000] });
    assert_eq!(world.board.revision, revision, "told again, it changes nothing");
    let other = world.take("bob");
    assert_eq!(world.ports(&other), [41_003, 41_004]);
    // J3: only the live attempt's token says so.
    world.refused("regatta", Command::ReportPortsTaken { attempt, token: token + 1, taken: vec![41_001] });
}

#[test]
fn more_ports_than_the_range_has_are_told_with_a_way_out() {
    let mut world = world(3, 41_001);
    let task = world.add_task("a", &["a/**"]);
    assert_eq!(world.try_ask("ada", Command::Poll(polls("ada"))), Ok(regatta_core::command::Outcome::Polled(None)));
    assert!(world.reasons(task).contains(&WaitKind::Claim));
}
