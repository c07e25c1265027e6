//! Races of real processes that start together: one wins.

use std::collections::BTreeSet;
use std::process::Stdio;

use serde_json::Value;

use crate::world::{CommandOutput, TEST_TIMEOUT, World, wait_for_child};

/// Starts all processes before it waits for any.
fn run_at_once(
    world: &World,
    args: impl Fn(usize) -> Vec<String>,
    racers: usize,
) -> Vec<CommandOutput> {
    let started: Vec<_> = (0..racers)
        .map(|nth| {
            let args = args(nth);
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            world
                .command(&args)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    started
        .into_iter()
        .map(|child| wait_for_child(child, TEST_TIMEOUT).unwrap())
        .collect()
}

fn to_strings(args: &[&str]) -> Vec<String> {
    args.iter().map(|arg| (*arg).to_owned()).collect()
}

fn assert_one_winner(world: &World, uri: &str) {
    let output = run_at_once(
        world,
        |nth| {
            to_strings(&[
                "claim",
                "acquire",
                uri,
                "--as",
                &format!("ann/racer-{nth}"),
                "--json",
            ])
        },
        20,
    );
    let won = output
        .iter()
        .filter(|command_output| command_output.exit_code == 0)
        .count();
    let winners: Vec<&CommandOutput> = output
        .iter()
        .filter(|command_output| command_output.exit_code == 5)
        .collect();
    assert_eq!((won, winners.len()), (1, 19), "L1: {output:?}");
    for command_output in winners {
        let error: Value = serde_json::from_str(&command_output.stderr).unwrap();
        assert_eq!(error["error"]["code"], "claim_held", "{command_output:?}");
    }
    assert_eq!(
        world.run_json(&["claim", "list"])["held"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

/// L1: twenty processes acquire one URI and one succeeds, when the daemon runs and when they start
/// the daemon themselves.
#[test]
fn one_of_twenty_racing_acquires_wins() {
    let world = World::new();
    assert_one_winner(&world, "port://7");
    assert_eq!(
        world
            .events()
            .iter()
            .filter(|event| event["kind"] == "fleet.resumed")
            .count(),
        1,
        "one daemon was started"
    );
    let world = World::new();
    world.run_ok(&["up"]);
    assert_one_winner(&world, "port://7");
}

/// J4: twelve polls race for three slots. Three different tasks are granted and five wait.
#[test]
fn three_of_twelve_racing_polls_are_granted() {
    let world = World::with_project();
    world.run_ok(&[
        "agent",
        "add",
        "zoe",
        "--runtime",
        "outside",
        "--max-tasks",
        "3",
    ]);
    for nth in 1..=8 {
        world.run_ok(&[
            "task",
            "add",
            &format!("Task {nth}"),
            "--files",
            &format!("{nth}.txt"),
        ]);
    }
    let output = run_at_once(
        &world,
        |_| to_strings(&["task", "poll", "--as", "zoe", "--json"]),
        12,
    );
    let grants: Vec<Value> = output
        .iter()
        .map(|command_output| {
            assert_eq!(command_output.exit_code, 0, "{command_output:?}");
            serde_json::from_str::<Value>(&command_output.stdout).unwrap()["data"].clone()
        })
        .filter(|output| !output.is_null())
        .collect();
    let distinct = |field: &dyn Fn(&Value) -> String| {
        grants.iter().map(field).collect::<BTreeSet<String>>().len()
    };
    assert_eq!(grants.len(), 3, "{grants:?}");
    assert_eq!(distinct(&|grant| grant["task"]["id"].to_string()), 3);
    assert_eq!(distinct(&|grant| grant["attempt"].to_string()), 3);
    assert_eq!(distinct(&|grant| grant["workspace"].to_string()), 3);
    assert_eq!(
        world
            .run_json(&["task", "list", "--status", "in_progress"])
            .as_array()
            .unwrap()
            .len(),
        3
    );
    let status = world.run_json(&["status"]);
    assert_eq!(
        (&status["working"], &status["waiting"]),
        (&3.into(), &5.into()),
        "{status}"
    );
    for waiting in world
        .run_json(&["task", "list", "--status", "unassigned"])
        .as_array()
        .unwrap()
    {
        assert!(
            !waiting["waits"].as_array().unwrap().is_empty(),
            "W1: {waiting}"
        );
    }
}

/// Two daemons on one store: one serves, and the other exits with 1 and names the first one's
/// process and address.
#[test]
fn one_of_two_racing_daemons_serves() {
    let world = World::new();
    let serve = |_| {
        world
            .command(&["serve", "--json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let mut racers: Vec<_> = (0..2).map(serve).collect();
    let mut lost = None;
    assert!(crate::world::wait_until(TEST_TIMEOUT, || {
        lost = racers
            .iter_mut()
            .position(|child| child.try_wait().unwrap().is_some());
        lost.is_some()
    }));
    let output = wait_for_child(racers.remove(lost.unwrap()), TEST_TIMEOUT).unwrap();
    assert_eq!(
        (output.exit_code, output.stdout.as_str()),
        (1, ""),
        "{output:?}"
    );
    assert!(output.stderr.contains("already_running"), "{output:?}");
    let winner = racers.remove(0);
    assert!(crate::world::wait_until(TEST_TIMEOUT, || world
        .daemon_info()
        .is_some_and(|world| world["pid"] == winner.id())));
    let url = world.daemon_info().unwrap()["url"]
        .as_str()
        .unwrap()
        .to_owned();
    // Once the first daemon is ready, a second one names it.
    let late = world.run(&["serve"]);
    assert_eq!(late.exit_code, 1, "{late:?}");
    assert!(
        late.stderr.contains(&format!("pid {}", winner.id())) && late.stderr.contains(&url),
        "{late:?}"
    );
    assert!(late.stderr.contains("hint"), "{late:?}");
    world.run_ok(&["down"]);
    assert_eq!(wait_for_child(winner, TEST_TIMEOUT).unwrap().exit_code, 0);
}

/// Racing `up` commands agree on one daemon, and racing `down` commands all succeed.
#[test]
fn eight_racing_ups_start_one_daemon() {
    let world = World::new();
    let output = run_at_once(&world, |_| to_strings(&["up", "--json"]), 8);
    let pids: BTreeSet<String> = output
        .iter()
        .map(|command_output| {
            assert_eq!(command_output.exit_code, 0, "{command_output:?}");
            serde_json::from_str::<Value>(&command_output.stdout).unwrap()["data"]["pid"]
                .to_string()
        })
        .collect();
    assert_eq!(pids.len(), 1, "{output:?}");
    for command_output in run_at_once(&world, |_| to_strings(&["down", "--json"]), 4) {
        assert_eq!(command_output.exit_code, 0, "{command_output:?}");
    }
    assert!(world.daemon_info().is_none());
}

/// A command during the shutdown of the daemon waits for the next daemon. A `down` starts none.
#[test]
fn commands_during_a_shutdown_are_served_by_the_next_daemon() {
    let world = World::new();
    for round in 0..10 {
        world.run_ok(&["up"]);
        let args = |nth: usize| match nth % 2 {
            0 => to_strings(&["down", "--json"]),
            _ => to_strings(&["msg", "send", "dev", &format!("{round}-{nth}"), "--json"]),
        };
        for command_output in run_at_once(&world, args, 6) {
            assert_eq!(command_output.exit_code, 0, "{command_output:?}");
        }
    }
    world.run_ok(&["up"]);
    assert_eq!(
        world
            .run_json(&["msg", "history", "dev"])
            .as_array()
            .unwrap()
            .len(),
        30
    );
    world.run_ok(&["down"]);
    for command_output in run_at_once(&world, |_| to_strings(&["down", "--json"]), 6) {
        assert!(
            command_output.exit_code == 0 && command_output.stdout.contains("\"was_up\":false"),
            "{command_output:?}"
        );
    }
    assert_eq!(world.processes(), [] as [u32; 0], "down starts nothing");
}

/// J1: ten commands find no daemon. One of them starts it, and each message is stored once.
#[test]
fn commands_that_start_the_daemon_together_all_get_their_answer() {
    let world = World::new();
    let output = run_at_once(
        &world,
        |nth| to_strings(&["msg", "send", "dev", &format!("from {nth}"), "--json"]),
        10,
    );
    assert!(
        output
            .iter()
            .all(|command_output| command_output.exit_code == 0),
        "{output:?}"
    );
    let texts = world.run_json(&["msg", "history", "dev"]);
    let texts: BTreeSet<String> = texts
        .as_array()
        .unwrap()
        .iter()
        .map(|text| text["text"].to_string())
        .collect();
    assert_eq!(texts.len(), 10, "each message once");
}
