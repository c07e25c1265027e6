//! Races of real processes that start together: one wins.

use std::collections::BTreeSet;
use std::process::Stdio;

use serde_json::Value;

use crate::world::{LONG, Ran, World, finish};

/// Starts all processes before it waits for any.
fn race(world: &World, args: impl Fn(usize) -> Vec<String>, racers: usize) -> Vec<Ran> {
    let started: Vec<_> = (0..racers)
        .map(|nth| {
            let args = args(nth);
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            world.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    started.into_iter().map(|it| finish(it, LONG).unwrap()).collect()
}

fn strings(args: &[&str]) -> Vec<String> {
    args.iter().map(|it| (*it).to_owned()).collect()
}

fn assert_one_winner(world: &World, uri: &str) {
    let ran = race(world, |nth| strings(&["claim", "acquire", uri, "--as", &format!("ann/racer-{nth}"), "--json"]), 20);
    let won = ran.iter().filter(|it| it.code == 0).count();
    let held: Vec<&Ran> = ran.iter().filter(|it| it.code == 5).collect();
    assert_eq!((won, held.len()), (1, 19), "L1: {ran:?}");
    for it in held {
        let error: Value = serde_json::from_str(&it.err).unwrap();
        assert_eq!(error["error"]["code"], "claim_held", "{it:?}");
    }
    assert_eq!(world.json(&["claim", "list"])["held"].as_array().unwrap().len(), 1);
}

/// L1: twenty processes acquire one URI and one succeeds, when the daemon runs and when they start
/// the daemon themselves.
#[test]
fn one_of_twenty_racing_acquires_wins() {
    let world = World::new();
    assert_one_winner(&world, "port://7");
    assert_eq!(world.events().iter().filter(|it| it["kind"] == "fleet.resumed").count(), 1, "one daemon was started");
    let world = World::new();
    world.ok(&["up"]);
    assert_one_winner(&world, "port://7");
}

/// J4: twelve polls race for three slots. Three different tasks are granted and five wait.
#[test]
fn three_of_twelve_racing_polls_are_granted() {
    let world = World::set_up();
    world.ok(&["agent", "add", "zoe", "--runtime", "outside", "--max-tasks", "3"]);
    for nth in 1..=8 {
        world.ok(&["task", "add", &format!("Task {nth}"), "--files", &format!("{nth}.txt")]);
    }
    let ran = race(&world, |_| strings(&["task", "poll", "--as", "zoe", "--json"]), 12);
    let grants: Vec<Value> = ran
        .iter()
        .map(|it| {
            assert_eq!(it.code, 0, "{it:?}");
            serde_json::from_str::<Value>(&it.out).unwrap()["data"].clone()
        })
        .filter(|it| !it.is_null())
        .collect();
    let distinct = |field: &dyn Fn(&Value) -> String| grants.iter().map(field).collect::<BTreeSet<String>>().len();
    assert_eq!(grants.len(), 3, "{grants:?}");
    assert_eq!(distinct(&|it| it["task"]["id"].to_string()), 3);
    assert_eq!(distinct(&|it| it["attempt"].to_string()), 3);
    assert_eq!(distinct(&|it| it["workspace"].to_string()), 3);
    assert_eq!(world.json(&["task", "list", "--status", "in_progress"]).as_array().unwrap().len(), 3);
    let status = world.json(&["status"]);
    assert_eq!((&status["working"], &status["waiting"]), (&3.into(), &5.into()), "{status}");
    for waiting in world.json(&["task", "list", "--status", "unassigned"]).as_array().unwrap() {
        assert!(!waiting["waits"].as_array().unwrap().is_empty(), "W1: {waiting}");
    }
}

/// Two daemons on one store: one serves, and the other exits with 1 and names the first one's
/// process and address.
#[test]
fn one_of_two_racing_daemons_serves() {
    let world = World::new();
    let serve = |_| world.command(&["serve", "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut racers: Vec<_> = (0..2).map(serve).collect();
    let mut lost = None;
    assert!(crate::world::until(LONG, || {
        lost = racers.iter_mut().position(|it| it.try_wait().unwrap().is_some());
        lost.is_some()
    }));
    let ran = finish(racers.remove(lost.unwrap()), LONG).unwrap();
    assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{ran:?}");
    assert!(ran.err.contains("already_running"), "{ran:?}");
    let winner = racers.remove(0);
    assert!(crate::world::until(LONG, || world.card().is_some_and(|it| it["pid"] == winner.id())));
    let url = world.card().unwrap()["url"].as_str().unwrap().to_owned();
    // Once the first daemon is ready, a second one names it.
    let late = world.run(&["serve"]);
    assert_eq!(late.code, 1, "{late:?}");
    assert!(late.err.contains(&format!("pid {}", winner.id())) && late.err.contains(&url), "{late:?}");
    assert!(late.err.contains("hint"), "{late:?}");
    world.ok(&["down"]);
    assert_eq!(finish(winner, LONG).unwrap().code, 0);
}

/// Racing `up` commands agree on one daemon, and racing `down` commands all succeed.
#[test]
fn eight_racing_ups_start_one_daemon() {
    let world = World::new();
    let ran = race(&world, |_| strings(&["up", "--json"]), 8);
    let pids: BTreeSet<String> = ran
        .iter()
        .map(|it| {
            assert_eq!(it.code, 0, "{it:?}");
            serde_json::from_str::<Value>(&it.out).unwrap()["data"]["pid"].to_string()
        })
        .collect();
    assert_eq!(pids.len(), 1, "{ran:?}");
    for it in race(&world, |_| strings(&["down", "--json"]), 4) {
        assert_eq!(it.code, 0, "{it:?}");
    }
    assert!(world.card().is_none());
}

/// A command during the shutdown of the daemon waits for the next daemon. A `down` starts none.
#[test]
fn commands_during_a_shutdown_are_served_by_the_next_daemon() {
    let world = World::new();
    for round in 0..10 {
        world.ok(&["up"]);
        let args = |nth: usize| match nth % 2 {
            0 => strings(&["down", "--json"]),
            _ => strings(&["msg", "send", "dev", &format!("{round}-{nth}"), "--json"]),
        };
        for it in race(&world, args, 6) {
            assert_eq!(it.code, 0, "{it:?}");
        }
    }
    world.ok(&["up"]);
    assert_eq!(world.json(&["msg", "history", "dev"]).as_array().unwrap().len(), 30);
    world.ok(&["down"]);
    for it in race(&world, |_| strings(&["down", "--json"]), 6) {
        assert!(it.code == 0 && it.out.contains("\"was_up\":false"), "{it:?}");
    }
    assert_eq!(world.processes(), [] as [u32; 0], "down starts nothing");
}

/// J1: ten commands find no daemon. One of them starts it, and each message is stored once.
#[test]
fn commands_that_start_the_daemon_together_all_get_their_answer() {
    let world = World::new();
    let ran = race(&world, |nth| strings(&["msg", "send", "dev", &format!("from {nth}"), "--json"]), 10);
    assert!(ran.iter().all(|it| it.code == 0), "{ran:?}");
    let texts = world.json(&["msg", "history", "dev"]);
    let texts: BTreeSet<String> = texts.as_array().unwrap().iter().map(|it| it["text"].to_string()).collect();
    assert_eq!(texts.len(), 10, "each message once");
}
