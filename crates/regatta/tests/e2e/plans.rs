//! Plan files: what is checked without a daemon, and that a refused plan leaves the board as it was.

use serde_json::{Value, json};

use crate::world::{World, text};

const BAD: &str = "[[task]]\nid = \"a\"\nsubject = \"x\"\nblocked_by = [\"b\"]\nfiles = [\"/etc\"]\n\n\
                   [[task]]\nid = \"b\"\nsubjct = \"y\"\nblocked_by = [\"a\"]\n";

/// Checking needs no daemon and no repository, finds everything at once, and creates nothing.
#[test]
fn plan_check_names_every_place_and_starts_nothing() {
    let world = World::new();
    let path = world.plan(BAD);
    let ran = world.run(&["plan", "check", &path]);
    assert_eq!((ran.code, ran.err.as_str()), (2, ""), "{ran:?}");
    for line in [
        format!("error: {path}:4:15: these tasks wait for each other for ever: a → b → a; take one"),
        format!("error: {path}:5:10: "),
        format!("error: {path}:9:1: unknown field `subjct` in a task; write `subject`"),
    ] {
        assert!(ran.out.contains(&line), "{line} in {}", ran.out);
    }
    assert!(ran.out.ends_with(": 3 mistakes; nothing was created\n"), "{}", ran.out);
    let (found, ran) = world.answer(&["plan", "check", &path]);
    assert_eq!(ran.code, 2);
    let places: Vec<(&Value, &Value)> =
        found["problems"].as_array().unwrap().iter().map(|it| (&it["line"], &it["column"])).collect();
    assert_eq!(json!(places), json!([[4, 15], [5, 10], [9, 1]]), "{found}");

    let good = world.plan("[[task]]\nsubject = \"x\"\nfiles = [\"a\"]\n[[task]]\nsubject = \"y\"\n");
    let found = world.json(&["plan", "check", &good]);
    assert_eq!((&found["tasks"], &found["problems"]), (&json!(2), &json!([])));
    assert_eq!(found["warnings"][0]["line"], 4, "a task without files will not start: {found}");
    let from_input = world.run_with_input(&["plan", "check", "-"], BAD);
    assert!(from_input.code == 2 && from_input.out.contains("standard input:9:1: "), "{from_input:?}");
    assert!(!world.data.exists(), "no daemon was started and nothing was kept");
    assert_eq!(world.refused(&["plan", "check", "/nowhere.toml"], 2)["code"], "usage");
}

/// A refused plan changes nothing: not the board, not the history.
#[test]
fn a_refused_plan_leaves_the_board_as_it_was() {
    let world = World::set_up();
    world.ok(&["task", "add", "stay", "--files", "s"]);
    let (board, history) = (world.json(&["task", "list", "--all"]), world.events());
    let path = world.plan(BAD);
    for flags in [vec!["--yes"], vec!["--wait"], vec!["--mode", "waves"], vec!["--plan-only"]] {
        let error = world.refused(&[&["run", &path, "--agents", "scripted"], &flags[..]].concat(), 2);
        assert!(error["message"].as_str().unwrap().contains(":9:1: unknown field"), "{error}");
        assert!(error["hint"].as_str().unwrap().contains("nothing was created"), "{error}");
    }
    let bytes = world.root.join("bytes.json");
    std::fs::write(&bytes, b"[{\"subject\": \"\xff\"}]").unwrap();
    world.refused(&["run", text(&bytes), "--agents", "scripted"], 2);
    assert_eq!((world.json(&["task", "list", "--all"]), world.events()), (board, history));
}
