//! Identity claims: a running attempt holds its task, its workspace and its agent's name. A claim
//! of somebody else on one of them keeps it from starting.

use regatta_core::board::Draft;
use regatta_core::claim::{ClaimMode, ClaimOwner, check_agent_and_project, conflicting_holders};
use regatta_core::command::{Actor, Command};
use regatta_core::refusal::Refusal;
use regatta_core::schedule::{WaitKind, wait_reasons};
use regatta_core::task::{AddTask, AssignMode};

use crate::world::{MINUTE_MS, SECOND_MS, World, acquire, agent, attempt_owner, task_to_add, uri};

fn claim_by_hand(name: &str, text: &str) -> Command {
    Command::Acquire(acquire(ClaimOwner::Agent(agent(name)), &[text]))
}

/// Returns the owner that keeps others from claiming this URI.
fn holder_of(world: &World, text: &str) -> Option<ClaimOwner> {
    let draft = Draft::new(&world.board, world.now);
    conflicting_holders(&draft, &[uri(text)], ClaimMode::Exclusive, None, world.now)
        .first()
        .map(|holder| holder.owner.clone())
}

/// The URIs with which others can keep ada from starting T1 of shop.
const IDENTITIES: [&str; 7] = [
    "task://shop/T1",
    "bead://shop/T1",
    "task://shop/*",
    "workspace://shop/T1",
    "workspace://shop/*",
    "agent://ada",
    "bead://shop/bd-7",
];

fn world_with_task() -> World {
    let mut world = World::with_agents(&[("ada", 2), ("bob", 1)]);
    world.add(AddTask {
        alias: Some("bd-7".into()),
        ..task_to_add("words", &["src/**"])
    });
    world
}

/// L1: a claim of an outsider on a task, its workspace or its agent's name keeps the task from
/// starting until the claim ends. The task's wait reason names the holder and the remaining time.
#[test]
fn l1_a_claim_by_an_outsider_stops_the_start() {
    for text in IDENTITIES {
        let mut world = world_with_task();
        world.ask(
            "ann",
            Command::AssignTask {
                task: task_id(),
                to: Some(agent("ada")),
                how: AssignMode::Direct,
            },
        );
        let held_claim = world.hold_claim("bob", &[text]);
        assert_eq!(world.poll("ada"), None, "{text} did not stop the start");
        assert_eq!(
            world.poll_supervised("ada"),
            None,
            "{text} did not stop the start by Regatta"
        );
        let reasons = wait_reasons(&world.board, world.task(task_id()), world.now);
        let claim = reasons
            .iter()
            .find(|reason| reason.kind == WaitKind::Claim)
            .unwrap_or_else(|| panic!("{reasons:?}"));
        let canonical = text.replace("bead://", "task://");
        assert!(
            claim.text.contains("held by bob for 30 s more"),
            "{text}: {}",
            claim.text
        );
        assert!(
            claim.text.contains(&canonical) || text.contains("bd-7"),
            "{text}: {}",
            claim.text
        );
        world.release("bob", held_claim);
        assert_eq!(world.take_task("ada").task, task_id(), "{text}");
    }
}

/// L1: nobody else gets the task, the workspace or the agent's name of running work. A waiting
/// claim is granted at its end.
#[test]
fn l1_running_work_keeps_outsiders_out() {
    for text in IDENTITIES {
        let mut world = world_with_task();
        let grant = world.take_task("ada");
        let refusal = world.ask_refused("bob", claim_by_hand("bob", text));
        let Refusal::ClaimHeld { holders } = refusal else {
            panic!("{text}: {refusal:?}")
        };
        assert_eq!(holders[0].owner, attempt_owner(grant.attempt), "{text}");
        world.wait_for("bob", &[text], MINUTE_MS);
        world.give_up(&grant);
        assert_eq!(
            holder_of(&world, text),
            Some(ClaimOwner::Agent(agent("bob"))),
            "{text} did not go to the waiting claim"
        );
    }
}

/// An agent's own claims do not keep it from work, nor do its lead's, whether they are older than
/// the start or not.
#[test]
fn own_claims_do_not_block_the_start() {
    for text in IDENTITIES {
        let mut world = world_with_task();
        let claim = world.hold_claim("ada", &[text]);
        assert_eq!(world.take_task("ada").task, task_id(), "{text}");
        world.release("ada", claim);
        assert!(
            world.try_ask("bob", claim_by_hand("bob", text)).is_err(),
            "{text} is held by the attempt"
        );
        world.hold_claim("ada", &[text]);
        let twice = world.ask_refused("ada", claim_by_hand("ada", text));
        assert_eq!(
            twice.code(),
            "claim_held",
            "two claims of the same agent exclude each other"
        );
    }
    let mut world = world_with_task();
    world.register("ada/worker-1", 1);
    world.hold_claim("ada", &["task://shop/T1"]);
    assert_eq!(world.poll("bob"), None);
    assert_eq!(world.take_task("ada/worker-1").task, task_id());
}

/// A pattern that covers many tasks keeps every agent but its holder from them.
#[test]
fn a_pattern_over_many_tasks_blocks_every_agent_but_its_holder() {
    let mut world = World::with_agents(&[("ada", 1), ("bob", 1)]);
    for nth in 0..200 {
        world.add_task("words", &[&format!("src/{nth}.rs")]);
    }
    world.hold_claim("bob", &["bead://shop/*"]);
    for _ in 0..3 {
        assert_eq!(world.poll("ada"), None);
    }
    assert_eq!(world.take_task("bob").task, task_id());
}

/// Several attempts of one agent share its name. The name is free when the last of them has ended.
#[test]
fn attempts_of_one_agent_share_its_name() {
    let mut world = World::with_agents(&[("ada", 2), ("bob", 1)]);
    world.add_task("words", &["src/**"]);
    world.add_task("docs", &["docs/**"]);
    let (first, second) = (world.take_task("ada"), world.take_task("ada"));
    world.give_up(&first);
    assert!(
        world
            .try_ask("bob", claim_by_hand("bob", "agent://ada"))
            .is_err()
    );
    world.give_up(&second);
    world.hold_claim("bob", &["agent://ada"]);
}

/// The task and its workspace pass to the landing and end with it. The agent's name does not,
/// because the agent no longer runs.
#[test]
fn claims_on_task_and_workspace_pass_to_the_landing_and_end_with_it() {
    let mut world = world_with_task();
    let grant = world.take_task("ada");
    world.wait_for("bob", &["agent://ada"], MINUTE_MS);
    let landing = world.submit(&grant);
    assert_eq!(
        holder_of(&world, "agent://ada"),
        Some(ClaimOwner::Agent(agent("bob")))
    );
    for text in [
        "task://shop/T1",
        "workspace://shop/T1",
        "file://shop/src/a.rs",
    ] {
        assert_eq!(
            holder_of(&world, text),
            Some(ClaimOwner::Landing(landing)),
            "{text}"
        );
        assert!(
            world.try_ask("bob", claim_by_hand("bob", text)).is_err(),
            "{text}"
        );
    }
    world.move_and_land(landing);
    for text in [
        "task://shop/T1",
        "workspace://shop/T1",
        "file://shop/src/a.rs",
    ] {
        assert_eq!(holder_of(&world, text), None, "{text}");
    }
}

/// The expiry of a claim lets the task start, as a release does.
#[test]
fn an_expired_claim_does_not_stop_the_start() {
    let mut world = world_with_task();
    world.hold_claim("bob", &["task://shop/T1"]);
    assert_eq!(world.poll("ada"), None);
    world.advance(30 * SECOND_MS);
    world.take_task("ada");
}

/// A claim for an unknown agent, or on a project that does not exist, is refused.
#[test]
fn claims_of_unknown_agents_and_on_unknown_projects_are_refused() {
    let mut world = World::with_agents(&[("ada", 1)]);
    world.register("crew/lead", 1);
    let person = Actor::Person("ann".into());
    let known = |name: &str, text: &str, by: &Actor| {
        check_agent_and_project(&world.board, &agent(name), &[uri(text)], by)
            .map_err(|refusal| refusal.code())
    };
    for (name, text, expected) in [
        ("ada", "file://shop/src/**", Ok(())),
        ("ada/helper", "file://shop/src/**", Ok(())),
        ("crew/lead/worker-1", "bead://shop/bd-1", Ok(())),
        ("shop-dev", "respond://shop-dev", Ok(())),
        ("ann", "workspace://shop/default", Ok(())),
        ("ada", "file://*/src", Ok(())),
        ("ada", "file://s*p/src", Ok(())),
        ("ada", "port://8080", Ok(())),
        ("ada", "agent://ada", Ok(())),
        ("ada", "message://B7", Ok(())),
        ("zoe", "file://shop/src/**", Err("no_such_agent")),
        ("crew", "file://shop/src/**", Err("no_such_agent")),
        ("adam", "file://shop/src/**", Err("no_such_agent")),
        ("shed-dev", "port://1", Err("no_such_agent")),
        ("ada", "file://shed/src/**", Err("no_such_project")),
        ("ada", "bead://shed/bd-1", Err("no_such_project")),
        ("ada", "workspace://shed/default", Err("no_such_project")),
        ("ada", "release://shed", Err("no_such_project")),
        ("ada", "file://x*/src", Err("invalid")),
    ] {
        assert_eq!(known(name, text, &person), expected, "{name} claims {text}");
    }
    assert_eq!(
        known("hook/H1", "port://1", &Actor::Agent(agent("hook/H1"))),
        Ok(())
    );
    assert_eq!(
        known("ann", "port://1", &Actor::Person("bea".into())),
        Err("no_such_agent")
    );
}

fn task_id() -> regatta_core::ids::TaskId {
    regatta_core::ids::TaskId(1)
}
