//! Everything that needs a person is one item, answered in one way: by its name and a choice.

use serde_json::{Value, json};

use crate::http::Door;
use crate::world::{LONG, World, until};

fn inbox(world: &World) -> Vec<Value> {
    world.json(&["inbox"]).as_array().unwrap().clone()
}

/// A task that an agent from outside takes and gives up.
fn fails(world: &World) -> String {
    let grant = world.json(&["task", "poll", "--as", "zoe"]);
    let (task, token) = (grant["task"]["id"].as_str().unwrap().to_owned(), grant["token"].to_string());
    let attempt = grant["attempt"].as_str().unwrap().to_owned();
    world.ok(&["task", "fail", &task, "--attempt", &attempt, "--token", &token, "-m", "cannot be done"]);
    task
}

/// A failed task stays in the inbox until somebody tries it again or drops it; the list is the same at every door, and
/// `status` counts what it shows. A choice may be said by its word or its number, and what is no choice is told.
#[test]
fn a_failure_is_an_item_until_somebody_has_dealt_with_it() {
    let world = World::set_up();
    world.ok(&["agent", "add", "zoe", "--runtime", "outside"]);
    world.ok(&["add", "Too hard", "--files", "b.txt"]);
    assert_eq!(inbox(&world), Vec::<Value>::new());
    assert_eq!(fails(&world), "T1");
    let all = inbox(&world);
    assert_eq!((all.len(), &all[0]["id"], &all[0]["kind"]), (1, &json!("T1"), &json!("failed")), "{all:?}");
    assert_eq!((&all[0]["choices"], &all[0]["why"]), (&json!(["retry", "drop"]), &json!("cannot be done")));
    let door = Door::of(&world.data);
    assert_eq!(door.ask("inbox.list", json!({})), Value::Array(all), "the same at every door");
    assert_eq!(world.json(&["status"])["needs_you"], 1);
    assert_eq!(world.run(&["inbox", "--check"]).code, 3);
    let text = world.ok(&["inbox"]);
    assert!(text.contains("T1  failed") && text.contains("1 retry  2 drop"), "{text}");
    // Put off, it is not counted; it is not gone.
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
    assert_eq!(world.json(&["show", "T2"])["word"], "failed", "J7: it stays as it ended");
    world.refused(&["answer", "T2", "drop"], 2);
    // Nobody is at a terminal: it says what to do instead.
    let wrong = world.refused(&["inbox", "-i"], 2);
    assert!(wrong["hint"].as_str().unwrap().contains("regatta answer ID CHOICE"), "{wrong}");
}

/// What is spent of a day's money is told at 80 %, and the choice that raises it does; an agent that is not signed in is
/// an item as long as it is not resumed.
#[test]
fn money_and_sign_ins_are_items() {
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
    assert_eq!((&total["tasks"], &spent["cap"]), (&json!(1), &Value::Null), "a cap is a day's: {spent}");
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

/// Requests that ask the same are one row and answered at once, as far as was said: each agent's own rule is shown. Who
/// comes second is told who was first, while the attempt lives and when it has ended.
#[test]
fn what_asks_the_same_is_answered_at_once_and_for_good() {
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
    // What the rules allow is not asked any more.
    assert!(until(LONG, || asks("rm -rf build") == 3), "{:?}", inbox(&world));
    assert_eq!(asks("npm install left-pad"), 0);
    let late = world.refused(&["deny", &first], 5);
    assert_eq!(
        (&late["code"], &late["message"]),
        (&json!("already_answered"), &json!(format!("{first} was answered by ann")))
    );
    // A choice is a choice, whatever is asked.
    let (one, last) = (inbox(&world)[0]["id"].clone(), inbox(&world)[1]["id"].as_str().unwrap().to_owned());
    let said = world.ok(&["answer", one.as_str().unwrap(), "1"]);
    assert!(said.starts_with(&format!("allowed {} for T", one.as_str().unwrap())), "{said}");
    world.ok(&["allow", &last, "--all"]);
    let landed = || ["T1", "T2", "T3"].iter().all(|it| world.json(&["show", it])["word"] == "landed");
    assert!(until(LONG, landed), "{}", world.ok(&["status"]));
    for id in [&first, &last] {
        let late = world.refused(&["allow", id], 5);
        assert_eq!(late["message"], format!("{id} was answered by ann"), "its attempt has ended: {late}");
    }
}
