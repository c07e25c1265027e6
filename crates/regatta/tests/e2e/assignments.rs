//! A task that a person assigns to an agent starts by itself if Regatta runs that agent's program.

use serde_json::{Value, json};

use crate::world::{TEST_TIMEOUT, World, wait_until};

fn write_plan(path: &str) -> String {
    json!([{ "write": { "path": path, "text": "done\n" } }]).to_string()
}

fn assert_lands(world: &World, id: &str) {
    let has_landed = || world.run_json(&["show", id])["status"] == "completed";
    assert!(
        wait_until(TEST_TIMEOUT, has_landed),
        "{}\n{}",
        world.run_ok(&["why", id]),
        world.run_ok(&["inbox"])
    );
}

/// A task can be assigned when it is added, assigned later, offered, or assigned while the agent is
/// busy. In each case it starts and lands without a run.
#[test]
fn an_assigned_task_starts_and_lands_without_a_run() {
    let world = World::with_project();
    world.run_ok(&["agent", "add", "bot", "--runtime", "scripted"]);
    world.run_ok(&[
        "add",
        "One",
        "--files",
        "one.txt",
        "--script",
        &write_plan("one.txt"),
        "--assign",
        "bot",
    ]);
    world.run_ok(&[
        "add",
        "Two",
        "--files",
        "two.txt",
        "--script",
        &write_plan("two.txt"),
        "--assign",
        "bot",
        "--queue",
    ]);
    world.run_ok(&[
        "add",
        "Three",
        "--files",
        "three.txt",
        "--script",
        &write_plan("three.txt"),
        "--assign",
        "bot",
        "--offer",
    ]);
    for id in ["T1", "T2", "T3"] {
        assert_lands(&world, id);
    }
    world.run_ok(&[
        "add",
        "Four",
        "--files",
        "four.txt",
        "--script",
        &write_plan("four.txt"),
    ]);
    let waiting = world.run_ok(&["why", "T4"]);
    assert!(
        waiting.contains("regatta run, or regatta assign T4 NAME"),
        "{waiting}"
    );
    assert!(!waiting.contains("task poll"), "{waiting}");
    world.run_ok(&["assign", "T4", "bot"]);
    assert_lands(&world, "T4");
    assert_eq!(world.read_file("four.txt"), "done\n");
    let missions = world.run_json(&["mission", "list"]);
    assert_eq!(
        missions.as_array().map(Vec::len),
        Some(0),
        "no mission may be created: {missions}"
    );
}

/// Such a poll would mark the agent as working although no program runs, so it needs `--by-hand`.
#[test]
fn a_poll_for_an_agent_that_regatta_runs_needs_the_flag_by_hand() {
    let world = World::with_project();
    world.run_ok(&["agent", "add", "bot", "--runtime", "scripted"]);
    world.run_ok(&["agent", "add", "ann", "--runtime", "outside"]);
    world.run_ok(&["add", "Look", "--report"]);
    let refused = world.run_refused(&["task", "poll", "--as", "bot"], 5);
    assert_eq!(refused["code"], "run_by_regatta", "{refused}");
    assert!(
        refused["hint"].as_str().unwrap().contains("--by-hand"),
        "{refused}"
    );
    assert_eq!(world.run_json(&["show", "T1"])["status"], "unassigned");
    let taken = world.run_json(&["task", "poll", "--as", "bot", "--by-hand"]);
    assert_eq!(taken["task"]["id"], "T1", "{taken}");
    world.run_ok(&["add", "Look again", "--report", "--assign", "ann"]);
    let explanation = world.run_ok(&["why", "T2"]);
    assert!(
        explanation.contains("regatta task poll --as ann"),
        "Regatta does not run ann: {explanation}"
    );
    assert_eq!(
        world.run_json(&["task", "poll", "--as", "ann"])["task"]["id"],
        "T2"
    );
}

/// A retried task starts again with the agent to which it was assigned.
#[test]
fn a_retried_task_starts_again_if_it_was_assigned() {
    let world = World::with_project();
    world.run_ok(&["agent", "add", "bot", "--runtime", "scripted"]);
    let once = format!(
        "test -e '{0}' && echo done > one.txt || {{ touch '{0}'; exit 1; }}",
        world.root.join("seen").display()
    );
    let script = json!([{ "run": once }]).to_string();
    world.write_file(
        "regatta.toml",
        &world
            .read_file("regatta.toml")
            .replace("[run]", "[run]\nattempts = 1"),
    );
    world.commit_all("one attempt each");
    world.run_ok(&["init"]);
    world.run_ok(&[
        "add", "One", "--files", "one.txt", "--script", &script, "--assign", "bot",
    ]);
    let status = |id: &str| -> Value { world.run_json(&["show", id])["status"].clone() };
    let stands = || status("T1") == "needs_human" || status("T1") == "failed";
    assert!(
        wait_until(TEST_TIMEOUT, stands),
        "{}",
        world.run_ok(&["why", "T1"])
    );
    let again = world.run_json(&["retry", "T1"]);
    let id = again["id"].as_str().unwrap_or("T1").to_owned();
    assert_lands(&world, &id);
}
