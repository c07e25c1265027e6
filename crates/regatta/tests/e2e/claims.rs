//! Claims bind running work and outside agents alike.

use serde_json::json;

use crate::world::{TEST_TIMEOUT, World, wait_until};

/// An outside agent's claim on a task stops Regatta from starting it. `why` names the holder, and
/// after the release the task lands. A running attempt keeps others from its task, its workspace
/// and its agent's name.
#[test]
fn l1_claims_on_tasks_bind_in_both_directions() {
    let world = World::with_project();
    for name in ["zoe", "bob"] {
        world.run_ok(&["agent", "add", name, "--runtime", "outside"]);
    }
    let claim = world.run_json(&[
        "claim",
        "acquire",
        "bead://shop/T1",
        "--as",
        "bob",
        "--ttl",
        "10m",
        "-m",
        "mine",
    ]);
    let plan = world.write_plan(
        "[[task]]\nid = \"a\"\nsubject = \"A\"\nfiles = [\"a.txt\"]\n\
         script = [{ write = { path = \"a.txt\", text = \"done\\n\" } }]\n",
    );
    world.run_json(&["run", &plan, "--agents", "scripted"]);
    let waits = || {
        world
            .run_ok(&["why", "T1"])
            .contains("task://shop/T1 is held by bob for ")
    };
    assert!(
        wait_until(TEST_TIMEOUT, waits),
        "{}",
        world.run_ok(&["why", "T1"])
    );
    let explanation = world.run_ok(&["why", "T1"]);
    assert!(
        explanation.contains("regatta claim list") && !explanation.contains("list only files"),
        "a smaller manifest would not free the task: {explanation}"
    );
    assert_eq!(world.run_json(&["show", "T1"])["status"], "unassigned");
    world.run_ok(&[
        "claim",
        "release",
        claim["claim"].as_str().unwrap(),
        "--token",
        &claim["token"].to_string(),
    ]);
    assert!(
        wait_until(TEST_TIMEOUT, || world.run_json(&["show", "T1"])["status"]
            == "completed"),
        "{}",
        world.run_ok(&["why", "T1"])
    );
    let listed = world.run_json(&["claim", "list"]);
    assert_eq!(
        (&listed["held"], listed.get("by_work")),
        (&json!([]), None),
        "the claims ended with the landing"
    );

    world.run_ok(&["task", "add", "B", "--files", "b.txt"]);
    world.run_ok(&["claim", "acquire", "task://shop/T2", "--as", "zoe"]);
    assert_eq!(
        world.run_json(&["task", "poll", "--as", "bob"]),
        json!(null)
    );
    assert_eq!(
        world.run_json(&["task", "poll", "--as", "zoe"])["task"]["id"],
        "T2",
        "an agent's own claim does not block the agent"
    );
    assert!(
        world
            .run_ok(&["claim", "list"])
            .contains("task://shop/T2 agent://zoe workspace://shop/T2")
    );
    for uri in [
        "task://shop/T2",
        "bead://shop/T2",
        "workspace://shop/T2",
        "agent://zoe",
    ] {
        let error = world.run_refused(&["claim", "acquire", uri, "--as", "bob"], 5);
        assert_eq!(error["code"], "claim_held", "{uri}: {error}");
    }
}

/// A claim on an unknown project or by an unknown agent is refused with a hint.
#[test]
fn claims_on_unknown_projects_or_by_unknown_agents_are_refused() {
    let world = World::with_project();
    let error = world.run_refused(
        &["claim", "acquire", "file://shed/src/**", "--as", "ann"],
        1,
    );
    assert_eq!(error["code"], "no_such_project", "{error}");
    let error = world.run_refused(
        &["claim", "acquire", "file://shop/src/**", "--as", "stranger"],
        1,
    );
    assert_eq!(error["code"], "no_such_agent", "{error}");
    assert!(
        error["hint"]
            .as_str()
            .unwrap()
            .contains("regatta agent add stranger --runtime outside"),
        "{error}"
    );
    world.run_ok(&[
        "claim",
        "acquire",
        "file://shop/src/**",
        "--as",
        "ann",
        "--ttl",
        "60s",
        "--wait",
        "30s",
    ]);
}
