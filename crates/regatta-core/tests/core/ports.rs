//! Ports: leased in the same commit as an attempt's files, and free when the attempt has ended.

use regatta_core::claim::ClaimOwner;
use regatta_core::command::{Command, Report};
use regatta_core::schedule::{PollGrant, WaitKind};
use regatta_core::task::TaskStatus;

use crate::world::{World, acquire, agent, poll_of, uri};

/// Returns a world whose project gives each attempt `count` ports from 41000 to `last`.
fn world_with_ports(count: u32, last: u16) -> World {
    let mut world = World::with_agents(&[("ada", 2), ("bob", 2)]);
    let mut project = world.project("shop", &["cargo test"]);
    project.settings.workspace.ports = count;
    project.settings.workspace.port_range = (41_000, last);
    world.ask("ann", Command::AddProject(project));
    world
}

impl World {
    fn ports_of(&self, grant: &PollGrant) -> Vec<u16> {
        self.board.attempts[&grant.attempt].ports.clone()
    }
    fn is_port_free(&self, port: u16) -> bool {
        let mut other = self.clone();
        other
            .try_ask(
                "bob",
                Command::Acquire(acquire(
                    ClaimOwner::Agent(agent("bob")),
                    &[&format!("port://{port}")],
                )),
            )
            .is_ok()
    }
}

#[test]
fn the_lowest_free_ports_are_leased_with_the_start() {
    let mut world = world_with_ports(2, 41_999);
    for name in ["a", "b", "c"] {
        world.add_task(name, &[&format!("{name}/**")]);
    }
    // An outside agent holds the second port.
    world.ask(
        "bob",
        Command::Acquire(acquire(ClaimOwner::Agent(agent("bob")), &["port://41001"])),
    );
    let (first, second) = (world.take_task("ada"), world.take_supervised_task("ada"));
    assert_eq!(world.ports_of(&first), [41_000, 41_002]);
    assert_eq!(world.ports_of(&second), [41_003, 41_004]);
    // L1: no other agent gets these ports, neither one of them nor a pattern.
    world.ask_refused(
        "bob",
        Command::Acquire(acquire(ClaimOwner::Agent(agent("bob")), &["port://41002"])),
    );
    world.ask_refused(
        "bob",
        Command::Acquire(acquire(ClaimOwner::Agent(agent("bob")), &["port://*"])),
    );
    world.restart();
    assert_eq!(world.ports_of(&second), [41_003, 41_004]);
}

/// L11: the end of an attempt frees its ports in the same commit, also when its files pass to a
/// landing.
#[test]
fn l11_ports_are_freed_at_the_attempts_end_and_do_not_pass_to_the_landing() {
    let mut world = world_with_ports(2, 41_001);
    world.add_task("a", &["src/**"]);
    world.add_task("b", &["docs/**"]);
    let first = world.take_task("ada");
    assert!(!world.is_port_free(41_000));
    let landing = world.submit(&first);
    assert!(world.is_port_free(41_000) && world.is_port_free(41_001));
    let claimed_ports: Vec<_> = world
        .board
        .claims
        .values()
        .filter(|claim| claim.owner == ClaimOwner::Landing(landing))
        .collect();
    assert_eq!(claimed_ports.len(), 1);
    assert_eq!(claimed_ports[0].uris, [uri("file://shop/src/**")]);
    let second = world.take_task("ada");
    assert_eq!(world.ports_of(&second), [41_000, 41_001]);
    world.stop(second.task);
    assert!(world.is_port_free(41_000));
}

/// W1: a task that waits for ports has a wait reason, and starts when the ports are free.
#[test]
fn w1_a_task_waits_for_free_ports() {
    let mut world = world_with_ports(2, 41_002);
    world.add_task("a", &["a/**"]);
    let waits = world.add_task("b", &["b/**"]);
    let first = world.take_task("ada");
    assert_eq!(
        world.try_ask("ada", Command::Poll(poll_of("ada"))),
        Ok(regatta_core::command::CommandOutcome::Polled(None))
    );
    assert_eq!(world.status(waits), TaskStatus::Unassigned);
    let kinds = world.wait_kinds(waits);
    assert!(kinds.contains(&WaitKind::Claim), "{kinds:?}");
    world.submit(&first);
    assert_eq!(world.take_task("ada").task, waits);
}

#[test]
fn a_port_used_by_another_program_is_replaced() {
    let mut world = world_with_ports(2, 41_999);
    world.add_task("a", &["a/**"]);
    world.add_task("b", &["b/**"]);
    let grant = world.take_supervised_task("ada");
    let PollGrant { attempt, token, .. } = grant;
    world.report(Report::PortsTaken {
        attempt,
        token,
        taken: vec![41_000, 45_000],
    });
    assert_eq!(
        world.ports_of(&grant),
        [41_002, 41_001],
        "the taken port is replaced at its position"
    );
    assert!(!world.is_port_free(41_000), "the taken port can be claimed");
    let revision = world.board.revision;
    world.report(Report::PortsTaken {
        attempt,
        token,
        taken: vec![41_000],
    });
    assert_eq!(
        world.board.revision, revision,
        "the same report again changed something"
    );
    let other = world.take_task("bob");
    assert_eq!(world.ports_of(&other), [41_003, 41_004]);
    // J3: only the current attempt can report on its ports.
    world.report_refused(Report::PortsTaken {
        attempt,
        token: token + 1,
        taken: vec![41_001],
    });
}

#[test]
fn a_task_that_needs_more_ports_than_the_range_has_waits_with_a_reason() {
    let mut world = world_with_ports(3, 41_001);
    let task = world.add_task("a", &["a/**"]);
    assert_eq!(
        world.try_ask("ada", Command::Poll(poll_of("ada"))),
        Ok(regatta_core::command::CommandOutcome::Polled(None))
    );
    assert!(world.wait_kinds(task).contains(&WaitKind::Claim));
}
