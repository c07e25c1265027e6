//! Everything that needs a person is one inbox item, and each item is answered by its id and a
//! choice.

use serde_json::{Value, json};

use crate::http::ApiClient;
use crate::world::{TEST_TIMEOUT, World, wait_until};

fn inbox_items(world: &World) -> Vec<Value> {
    world.run_json(&["inbox"]).as_array().unwrap().clone()
}

/// Lets an outside agent take a task and report its failure. Returns the task.
fn fail_task(world: &World) -> String {
    let grant = world.run_json(&["task", "poll", "--as", "zoe"]);
    let (task, token) = (
        grant["task"]["id"].as_str().unwrap().to_owned(),
        grant["token"].to_string(),
    );
    let attempt = grant["attempt"].as_str().unwrap().to_owned();
    world.run_ok(&[
        "task",
        "fail",
        &task,
        "--attempt",
        &attempt,
        "--token",
        &token,
        "-m",
        "cannot be done",
    ]);
    task
}

/// A failed task stays in the inbox until a person retries or drops it. The API and the command
/// line show the same list, and `status` counts its items. A choice is given by its word or its
/// number, and an unknown choice is refused.
#[test]
fn a_failed_task_is_in_the_inbox_until_it_is_retried_or_dropped() {
    let world = World::with_project();
    world.run_ok(&["agent", "add", "zoe", "--runtime", "outside"]);
    world.run_ok(&["add", "Too hard", "--files", "b.txt"]);
    assert_eq!(inbox_items(&world), Vec::<Value>::new());
    assert_eq!(fail_task(&world), "T1");
    let all = inbox_items(&world);
    assert_eq!(
        (all.len(), &all[0]["id"], &all[0]["kind"]),
        (1, &json!("T1"), &json!("failed")),
        "{all:?}"
    );
    assert_eq!(
        (&all[0]["choices"], &all[0]["why"]),
        (&json!(["retry", "drop"]), &json!("cannot be done"))
    );
    let api = ApiClient::for_data_dir(&world.data_dir);
    assert_eq!(
        api.call_ok("inbox.list", json!({})),
        Value::Array(all),
        "the API and the command line show the same"
    );
    assert_eq!(world.run_json(&["status"])["needs_you"], 1);
    assert_eq!(world.run(&["inbox", "--check"]).exit_code, 3);
    let text = world.run_ok(&["inbox"]);
    assert!(
        text.contains("T1  failed") && text.contains("1 retry  2 drop"),
        "{text}"
    );
    // A snoozed item is not counted, but stays in the list.
    world.run_ok(&["inbox", "snooze", "t1", "2h"]);
    assert_eq!(
        (
            world.run_json(&["status"])["needs_you"].as_u64(),
            inbox_items(&world).len()
        ),
        (Some(0), 1)
    );
    world.run_ok(&["inbox", "wake", "T1"]);
    let wrong = world.run_refused(&["answer", "T1", "forget"], 2);
    assert_eq!(
        wrong["message"],
        "\"forget\" is not an answer to T1; possible answers: retry, drop"
    );
    let output = world.run_ok(&["answer", "T1", "retry"]);
    assert_eq!(
        output,
        "T1: retry as T2 (regatta retry T1) · 0 left in the inbox\n"
    );
    assert_eq!(fail_task(&world), "T2");
    let output = world.run_ok(&["answer", "T2", "2"]);
    assert_eq!(output, "T2: drop (regatta drop T2) · 0 left in the inbox\n");
    assert_eq!(
        (
            inbox_items(&world).len(),
            world.run_json(&["status"])["needs_you"].as_u64()
        ),
        (0, Some(0))
    );
    assert_eq!(
        world.run_json(&["show", "T2"])["word"],
        "failed",
        "J7: the failed task stays failed"
    );
    world.run_refused(&["answer", "T2", "drop"], 2);
    // Without a terminal the error names the command to use instead.
    let wrong = world.run_refused(&["inbox", "-i"], 2);
    assert!(
        wrong["hint"]
            .as_str()
            .unwrap()
            .contains("regatta answer ID CHOICE"),
        "{wrong}"
    );
}

/// A budget of which more than 80 % is spent is an inbox item, and one of its choices raises the
/// budget. `cost` shows the spending by provider, agent, mission and model.
#[test]
fn a_nearly_spent_budget_is_in_the_inbox_and_can_be_raised() {
    let world = World::with_project();
    world.run_ok(&["agent", "add", "poor", "--runtime", "scripted"]);
    world.run_ok(&["budget", "set", "day", "--usd", "1"]);
    let plan = world.write_plan(
        r#"
[[task]]
subject = "Dear"
files = ["b.txt"]
agent = "poor"
script = [{ usage = { input = 10, cost = 0.9 } }, { write = { path = "b.txt", text = "b\n" } }]
"#,
    );
    world.run_ok(&["run", &plan, "--agents", "poor", "--yes", "--wait"]);
    let all = inbox_items(&world);
    assert_eq!(
        (all.len(), &all[0]["id"], &all[0]["kind"]),
        (1, &json!("budget:day"), &json!("budget")),
        "{all:?}"
    );
    assert_eq!(all[0]["choices"], json!(["raise to $2.00", "leave"]));
    world.run_ok(&["answer", "budget:day", "raise"]);
    assert_eq!(inbox_items(&world), Vec::<Value>::new());
    let list = world.run_json(&["budget", "list"]);
    assert_eq!(
        list["budgets"][0]["ceiling"]["micro_usd"], 2_000_000,
        "{list}"
    );
    let spent = world.run_json(&["cost", "--since", "7d"]);
    let total = &spent["total"];
    assert_eq!(
        (&total["spent"]["usage"]["micro_usd"], &spent["days"]),
        (&json!(900_000), &json!(7)),
        "{spent}"
    );
    assert_eq!(
        (&total["tasks"], &spent["cap"]),
        (&json!(1), &Value::Null),
        "a cap applies to a day: {spent}"
    );
    let cost_row =
        |column: &str| world.run_json(&["cost", "--by", column])["tables"][0]["rows"][0].clone();
    assert_eq!(
        (&cost_row("provider")["name"], &cost_row("agent")["name"]),
        (&json!("scripted"), &json!("poor"))
    );
    assert_eq!(
        (&cost_row("mission")["name"], &cost_row("model")["tasks"]),
        (&json!("M1"), &json!(1))
    );
    let landed = &world.run_json(&["cost"])["came"];
    assert_eq!(
        (&landed["landed"]["tasks"], &landed["each"]),
        (&json!(1), &json!(900_000)),
        "{landed}"
    );
    assert_eq!(
        landed["lines"],
        json!({ "tasks": 1, "lines": 1, "tokens_each": 10 }),
        "{landed}"
    );
    let text = world.run_ok(&["cost"]);
    assert!(text.contains("$0.90 of $2.00 cap"), "{text}");
    assert!(
        text.contains("landed 1 task · $0.90 each · 10 tokens for each of 1 line"),
        "{text}"
    );
}

/// Requests for the same command are one row and are answered together. With `always` the answer
/// shows the new rule of each agent. A second answer names the person who answered first, also
/// after the attempt has ended.
#[test]
fn requests_for_the_same_command_are_answered_together_and_by_rules() {
    let world = World::with_project();
    for name in ["ann", "bob", "eve"] {
        world.run_ok(&["agent", "add", name, "--runtime", "scripted"]);
        let script = json!([
            { "permission": { "what": "npm install zod@4", "default": "deny" } },
            { "permission": { "what": "npm install left-pad", "default": "deny" } },
            { "permission": { "what": "rm -rf build", "default": "deny" } },
            { "write": { "path": format!("{name}.txt"), "text": "x\n" } },
        ]);
        let file = format!("{name}.txt");
        world.run_ok(&[
            "add",
            "Work",
            "--files",
            &file,
            "--script",
            &script.to_string(),
        ]);
    }
    world.run_ok(&["run", "--agents", "ann", "bob", "eve", "--yes"]);
    let asks = |what: &str| {
        inbox_items(&world)
            .iter()
            .filter(|inbox_item| inbox_item["subject"] == what)
            .count()
    };
    assert!(
        wait_until(TEST_TIMEOUT, || asks("npm install zod@4") == 3),
        "{:?}",
        inbox_items(&world)
    );
    assert!(
        world.run_ok(&["inbox"]).contains("npm install zod@4 × 3"),
        "{}",
        world.run_ok(&["inbox"])
    );
    let first = inbox_items(&world)[0]["id"].as_str().unwrap().to_owned();
    let output = world.run_ok(&["allow", &first, "--all", "--for", "always"]);
    assert!(
        output.starts_with(&format!("allowed {first} and 2 like it for T")),
        "{output}"
    );
    for name in ["ann", "bob", "eve"] {
        assert!(
            output.contains(&format!("allow execute, command npm install * for {name}")),
            "{output}"
        );
    }
    assert_eq!(
        world
            .run_json(&["policy", "list"])
            .as_array()
            .unwrap()
            .len(),
        3
    );
    // The rules answer the next request.
    assert!(
        wait_until(TEST_TIMEOUT, || asks("rm -rf build") == 3),
        "{:?}",
        inbox_items(&world)
    );
    assert_eq!(asks("npm install left-pad"), 0);
    let late = world.run_refused(&["deny", &first], 5);
    assert_eq!(
        (&late["code"], &late["message"]),
        (
            &json!("already_answered"),
            &json!(format!("{first} was answered by ann"))
        )
    );
    // A permission request is answered by the number of a choice, too.
    let (one, last) = (
        inbox_items(&world)[0]["id"].clone(),
        inbox_items(&world)[1]["id"].as_str().unwrap().to_owned(),
    );
    let output = world.run_ok(&["answer", one.as_str().unwrap(), "1"]);
    assert!(
        output.starts_with(&format!("allowed {} for T", one.as_str().unwrap())),
        "{output}"
    );
    world.run_ok(&["allow", &last, "--all"]);
    let landed = || {
        ["T1", "T2", "T3"]
            .iter()
            .all(|task| world.run_json(&["show", task])["word"] == "landed")
    };
    assert!(
        wait_until(TEST_TIMEOUT, landed),
        "{}",
        world.run_ok(&["status"])
    );
    for id in [&first, &last] {
        let late = world.run_refused(&["allow", id], 5);
        assert_eq!(
            late["message"],
            format!("{id} was answered by ann"),
            "the attempt has ended: {late}"
        );
    }
}
