//! A task that a person assigns to an agent starts by itself if Regatta runs that agent's program.

use serde_json::{Value, json};

use crate::world::{LONG, World, until};

fn writes(path: &str) -> String {
    json!([{ "write": { "path": path, "text": "done\n" } }]).to_string()
}

fn lands(world: &World, id: &str) {
    let has_landed = || world.json(&["show", id])["status"] == "completed";
    assert!(until(LONG, has_landed), "{}\n{}", world.ok(&["why", id]), world.ok(&["inbox"]));
}

/// A task can be assigned when it is added, assigned later, offered, or assigned while the agent is
/// busy. In each case it starts and lands without a run.
#[test]
fn an_assigned_task_starts_and_lands_without_a_run() {
    let world = World::set_up();
    world.ok(&["agent", "add", "bot", "--runtime", "scripted"]);
    world.ok(&["add", "One", "--files", "one.txt", "--script", &writes("one.txt"), "--assign", "bot"]);
    world.ok(&["add", "Two", "--files", "two.txt", "--script", &writes("two.txt"), "--assign", "bot", "--queue"]);
    world.ok(&["add", "Three", "--files", "three.txt", "--script", &writes("three.txt"), "--assign", "bot", "--offer"]);
    for id in ["T1", "T2", "T3"] {
        lands(&world, id);
    }
    world.ok(&["add", "Four", "--files", "four.txt", "--script", &writes("four.txt")]);
    let waiting = world.ok(&["why", "T4"]);
    assert!(waiting.contains("regatta run, or regatta assign T4 NAME"), "{waiting}");
    assert!(!waiting.contains("task poll"), "{waiting}");
    world.ok(&["assign", "T4", "bot"]);
    lands(&world, "T4");
    assert_eq!(world.read("four.txt"), "done\n");
    let missions = world.json(&["mission", "list"]);
    assert_eq!(missions.as_array().map(Vec::len), Some(0), "no mission may be created: {missions}");
}

/// Such a poll would mark the agent as working although no program runs, so it needs `--by-hand`.
#[test]
fn a_poll_for_an_agent_that_regatta_runs_needs_the_flag_by_hand() {
    let world = World::set_up();
    world.ok(&["agent", "add", "bot", "--runtime", "scripted"]);
    world.ok(&["agent", "add", "ann", "--runtime", "outside"]);
    world.ok(&["add", "Look", "--report"]);
    let refused = world.refused(&["task", "poll", "--as", "bot"], 5);
    assert_eq!(refused["code"], "run_by_regatta", "{refused}");
    assert!(refused["hint"].as_str().unwrap().contains("--by-hand"), "{refused}");
    assert_eq!(world.json(&["show", "T1"])["status"], "unassigned");
    let taken = world.json(&["task", "poll", "--as", "bot", "--by-hand"]);
    assert_eq!(taken["task"]["id"], "T1", "{taken}");
    world.ok(&["add", "Look again", "--report", "--assign", "ann"]);
    let why = world.ok(&["why", "T2"]);
    assert!(why.contains("regatta task poll --as ann"), "Regatta does not run ann: {why}");
    assert_eq!(world.json(&["task", "poll", "--as", "ann"])["task"]["id"], "T2");
}

/// A retried task starts again with the agent to which it was assigned.
#[test]
fn a_retried_task_starts_again_if_it_was_assigned() {
    let world = World::set_up();
    world.ok(&["agent", "add", "bot", "--runtime", "scripted"]);
    let once = format!(
        "test -e '{0}' && echo done > one.txt || {{ touch '{0}'; exit 1; }}",
        world.root.join("seen").display()
    );
    let script = json!([{ "run": once }]).to_string();
    world.write("regatta.toml", &world.read("regatta.toml").replace("[run]", "[run]\nattempts = 1"));
    world.commit("one attempt each");
    world.ok(&["init"]);
    world.ok(&["add", "One", "--files", "one.txt", "--script", &script, "--assign", "bot"]);
    let status = |id: &str| -> Value { world.json(&["show", id])["status"].clone() };
    let stands = || status("T1") == "needs_human" || status("T1") == "failed";
    assert!(until(LONG, stands), "{}", world.ok(&["why", "T1"]));
    let again = world.json(&["retry", "T1"]);
    let id = again["id"].as_str().unwrap_or("T1").to_owned();
    lands(&world, &id);
}
