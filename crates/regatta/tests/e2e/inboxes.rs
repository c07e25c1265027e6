//! Everything that needs a person is one inbox item, and each item is answered by its id and a
//! choice.

use serde_json::{Value, json};

use crate::http::Door;
use crate::world::{LONG, World, until};

fn inbox(world: &World) -> Vec<Value> {
    world.json(&["inbox"]).as_array().unwrap().clone()
}

/// Lets an outside agent take a task and report its failure. Returns the task.
fn fails(world: &World) -> String {
    let grant = world.json(&["task", "poll", "--as", "zoe"]);
    let (task, token) = (grant["task"]["id"].as_str().unwrap().to_owned(), grant["token"].to_string());
    let attempt = grant["attempt"].as_str().unwrap().to_owned();
    world.ok(&["task", "fail", &task, "--attempt", &attempt, "--token", &token, "-m", "cannot be done"]);
    task
}

/// A failed task stays in the inbox until a person retries or drops it. The API and the command
/// line show the same list, and `status` counts its items. A choice is given by its word or its
/// number, and an unknown choice is refused.
#[test]
fn a_failed_task_is_in_the_inbox_until_it_is_retried_or_dropped() {
    let world = World::set_up();
    world.ok(&["agent", "add", "zoe", "--runtime", "outside"]);
    world.ok(&["add", "Too hard", "--files", "b.txt"]);
    assert_eq!(inbox(&world), Vec::<Value>::new());
    assert_eq!(fails(&world), "T1");
    let all = inbox(&world);
    assert_eq!((all.len(), &all[0]["id"], &all[0]["kind"]), (1, &json!("T1"), &json!("failed")), "{all:?}");
    assert_eq!((&all[0]["choices"], &all[0]["why"]), (&json!(["retry", "drop"]), &json!("cannot be done")));
    let door = Door::of(&world.data);
    assert_eq!(door.ask("inbox.list", json!({})), Value::Array(all), "the API and the command line show the same");
    assert_eq!(world.json(&["status"])["needs_you"], 1);
    assert_eq!(world.run(&["inbox", "--check"]).code, 3);
    let text = world.ok(&["inbox"]);
    assert!(text.contains("T1  failed") && text.contains("1 retry  2 drop"), "{text}");
    // A snoozed item is not counted, but stays in the list.
    world.ok(&["inbox", "snooze", "t1", "2h"]);
    assert_eq!((world.json(&["status"])["needs_you"].as_u64(), inbox(&world).len()), (Some(0), 1));
    world.ok(&["inbox", "wake", "T1"]);
    let wrong = world.refused(&["answer", "T1", "forget"], 2);
    assert_eq!(wrong["message"], "T1 can be answered with retry, drop");
    let said = world.ok(&["answer", "T1", "retry"]);
    assert_eq!(said, "T1: retry as T2 (regatta retry T1) · 0 left in the inbox\n");
    assert_eq!(fails(&world), "T2");
    let said = world.ok(&["answer", "T2", "2"]);
    assert_eq!(said, "T2: drop (regatta drop T2) · 0 left in the inbox\n");
    assert_eq!((inbox(&world).len(), world.json(&["status"])["needs_you"].as_u64()), (0, Some(0)));
    assert_eq!(world.json(&["show", "T2"])["word"], "failed", "J7: the failed task stays failed");
    world.refused(&["answer", "T2", "drop"], 2);
    // Without a terminal the error names the command to use instead.
    let wrong = world.refused(&["inbox", "-i"], 2);
    assert!(wrong["hint"].as_str().unwrap().contains("regatta answer ID CHOICE"), "{wrong}");
}

/// A budget of which more than 80 % is spent is an inbox item, and one of its choices raises the
/// budget. `cost` shows the spending by provider, agent, mission and model.
#[test]
fn a_nearly_spent_budget_is_in_the_inbox_and_can_be_raised() {
    let world = World::set_up();
    world.ok(&["agent", "add", "poor", "--runtime", "scripted"]);
    world.ok(&["budget", "set", "day", "--usd", "1"]);
    let plan = world.plan(
        r#"
[[task]]
subject = "Dear"
files = ["b.txt"]
agent = "poor"
script = [{ usage = { input = 10, cost = 0.9 } }, { write = { path = "b.txt", text = "b\n" } }]
"#,
    );
    world.ok(&["run", &plan, "--agents", "poor", "--yes", "--wait"]);
    let all = inbox(&world);
    assert_eq!((all.len(), &all[0]["id"], &all[0]["kind"]), (1, &json!("budget:day"), &json!("budget")), "{all:?}");
    assert_eq!(all[0]["choices"], json!(["raise to $2.00", "leave"]));
    world.ok(&["answer", "budget:day", "raise"]);
    assert_eq!(inbox(&world), Vec::<Value>::new());
    let list = world.json(&["budget", "list"]);
    assert_eq!(list["budgets"][0]["ceiling"]["micro_usd"], 2_000_000, "{list}");
    let spent = world.json(&["cost", "--since", "7d"]);
    let total = &spent["total"];
    assert_eq!((&total["spent"]["usage"]["micro_usd"], &spent["days"]), (&json!(900_000), &json!(7)), "{spent}");
    assert_eq!((&total["tasks"], &spent["cap"]), (&json!(1), &Value::Null), "a cap applies to a day: {spent}");
    let by = |by: &str| world.json(&["cost", "--by", by])["tables"][0]["rows"][0].clone();
    assert_eq!((&by("provider")["name"], &by("agent")["name"]), (&json!("scripted"), &json!("poor")));
    assert_eq!((&by("mission")["name"], &by("model")["tasks"]), (&json!("M1"), &json!(1)));
    let landed = &world.json(&["cost"])["came"];
    assert_eq!((&landed["landed"]["tasks"], &landed["each"]), (&json!(1), &json!(900_000)), "{landed}");
    assert_eq!(landed["lines"], json!({ "tasks": 1, "lines": 1, "tokens_each": 10 }), "{landed}");
    let text = world.ok(&["cost"]);
    assert!(text.contains("$0.90 of $2.00 cap"), "{text}");
    assert!(text.contains("landed 1 task · $0.90 each · 10 tokens for each of 1 lines"), "{text}");
}

/// Requests for the same command are one row and are answered together. With `always` the answer
/// shows the new rule of each agent. A second answer names the person who answered first, also
/// after the attempt has ended.
#[test]
fn requests_for_the_same_command_are_answered_together_and_by_rules() {
    let world = World::set_up();
    for name in ["ann", "bob", "eve"] {
        world.ok(&["agent", "add", name, "--runtime", "scripted"]);
        let script = json!([
            { "permission": { "what": "npm install zod@4", "default": "deny" } },
            { "permission": { "what": "npm install left-pad", "default": "deny" } },
            { "permission": { "what": "rm -rf build", "default": "deny" } },
            { "write": { "path": format!("{name}.txt"), "text": "x\n" } },
        ]);
        let file = format!("{name}.txt");
        world.ok(&["add", "Work", "--files", &file, "--script", &script.to_string()]);
    }
    world.ok(&["run", "--agents", "ann", "bob", "eve", "--yes"]);
    let asks = |what: &str| inbox(&world).iter().filter(|it| it["subject"] == what).count();
    assert!(until(LONG, || asks("npm install zod@4") == 3), "{:?}", inbox(&world));
    assert!(world.ok(&["inbox"]).contains("npm install zod@4 × 3"), "{}", world.ok(&["inbox"]));
    let first = inbox(&world)[0]["id"].as_str().unwrap().to_owned();
    let said = world.ok(&["allow", &first, "--all", "--for", "always"]);
    assert!(said.starts_with(&format!("allowed {first} and 2 like it for T")), "{said}");
    for name in ["ann", "bob", "eve"] {
        assert!(said.contains(&format!("allow execute, command npm install * for {name}")), "{said}");
    }
    assert_eq!(world.json(&["policy", "list"]).as_array().unwrap().len(), 3);
    // The rules answer the next request.
    assert!(until(LONG, || asks("rm -rf build") == 3), "{:?}", inbox(&world));
    assert_eq!(asks("npm install left-pad"), 0);
    let late = world.refused(&["deny", &first], 5);
    assert_eq!(
        (&late["code"], &late["message"]),
        (&json!("already_answered"), &json!(format!("{first} was answered by ann")))
    );
    // A permission request is answered by the number of a choice, too.
    let (one, last) = (inbox(&world)[0]["id"].clone(), inbox(&world)[1]["id"].as_str().unwrap().to_owned());
    let said = world.ok(&["answer", one.as_str().unwrap(), "1"]);
    assert!(said.starts_with(&format!("allowed {} for T", one.as_str().unwrap())), "{said}");
    world.ok(&["allow", &last, "--all"]);
    let landed = || ["T1", "T2", "T3"].iter().all(|it| world.json(&["show", it])["word"] == "landed");
    assert!(until(LONG, landed), "{}", world.ok(&["status"]));
    for id in [&first, &last] {
        let late = world.refused(&["allow", id], 5);
        assert_eq!(late["message"], format!("{id} was answered by ann"), "the attempt has ended: {late}");
    }
}
