//! Claims bind running work and outside agents alike.

use serde_json::json;

use crate::world::{LONG, World, until};

/// An outside agent's claim on a task stops Regatta from starting it. `why` names the holder, and
/// after the release the task lands. A running attempt keeps others from its task, its workspace
/// and its agent's name.
#[test]
fn l1_claims_on_tasks_bind_in_both_directions() {
    let world = World::set_up();
    for name in ["zoe", "bob"] {
        world.ok(&["agent", "add", name, "--runtime", "outside"]);
    }
    let held = world.json(&["claim", "acquire", "bead://shop/T1", "--as", "bob", "--ttl", "10m", "-m", "mine"]);
    let plan = world.plan(
        "[[task]]\nid = \"a\"\nsubject = \"A\"\nfiles = [\"a.txt\"]\n\
         script = [{ write = { path = \"a.txt\", text = \"done\\n\" } }]\n",
    );
    world.json(&["run", &plan, "--agents", "scripted"]);
    let waits = || world.ok(&["why", "T1"]).contains("task://shop/T1 is held by bob for ");
    assert!(until(LONG, waits), "{}", world.ok(&["why", "T1"]));
    let why = world.ok(&["why", "T1"]);
    assert!(
        why.contains("regatta claim list") && !why.contains("fewer files"),
        "a smaller manifest would not free the task: {why}"
    );
    assert_eq!(world.json(&["show", "T1"])["status"], "unassigned");
    world.ok(&["claim", "release", held["claim"].as_str().unwrap(), "--token", &held["token"].to_string()]);
    assert!(until(LONG, || world.json(&["show", "T1"])["status"] == "completed"), "{}", world.ok(&["why", "T1"]));
    let listed = world.json(&["claim", "list"]);
    assert_eq!((&listed["held"], listed.get("by_work")), (&json!([]), None), "the claims ended with the landing");

    world.ok(&["task", "add", "B", "--files", "b.txt"]);
    world.ok(&["claim", "acquire", "task://shop/T2", "--as", "zoe"]);
    assert_eq!(world.json(&["task", "poll", "--as", "bob"]), json!(null));
    assert_eq!(
        world.json(&["task", "poll", "--as", "zoe"])["task"]["id"],
        "T2",
        "an agent's own claim does not block the agent"
    );
    assert!(world.ok(&["claim", "list"]).contains("task://shop/T2 agent://zoe workspace://shop/T2"));
    for uri in ["task://shop/T2", "bead://shop/T2", "workspace://shop/T2", "agent://zoe"] {
        let error = world.refused(&["claim", "acquire", uri, "--as", "bob"], 5);
        assert_eq!(error["code"], "claim_held", "{uri}: {error}");
    }
}

/// A claim on an unknown project or by an unknown agent is refused with a hint.
#[test]
fn claims_on_unknown_projects_or_by_unknown_agents_are_refused() {
    let world = World::set_up();
    let error = world.refused(&["claim", "acquire", "file://shed/src/**", "--as", "ann"], 1);
    assert_eq!(error["code"], "no_such_project", "{error}");
    let error = world.refused(&["claim", "acquire", "file://shop/src/**", "--as", "stranger"], 1);
    assert_eq!(error["code"], "no_such_agent", "{error}");
    assert!(error["hint"].as_str().unwrap().contains("regatta agent add stranger --runtime outside"), "{error}");
    world.ok(&["claim", "acquire", "file://shop/src/**", "--as", "ann", "--ttl", "60s", "--wait", "30s"]);
}
