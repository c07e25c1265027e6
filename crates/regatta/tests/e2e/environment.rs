//! Faults of the repository that no attempt can help: they are told once, with the fix, and cost no attempt.

use serde_json::Value;

use crate::world::{LONG, World, until};

/// Starts a task that writes one file.
fn start(world: &World, file: &str, text: &str) {
    let plan = world.plan(&format!(
        "[[task]]\nid = \"a\"\nsubject = \"Write it\"\nfiles = [\"{file}\"]\n\
         script = [{{ write = {{ path = \"{file}\", text = \"{text}\" }} }}]\n"
    ));
    world.ok(&["run", &plan, "--agents", "scripted", "--yes"]);
}

/// Waits until T1 needs a person after one attempt that did not count. Returns the reason.
#[track_caller]
fn told_once(world: &World) -> String {
    let needs_person = || world.json(&["show", "T1"])["word"] == "needs you";
    assert!(until(LONG, needs_person), "{}", world.ok(&["why", "T1"]));
    let task = world.json(&["show", "T1"]);
    assert_eq!((&task["failures"], task["attempts"].as_array().map(Vec::len)), (&Value::from(0), Some(1)), "{task}");
    let inbox = world.json(&["inbox"]);
    let about = inbox.as_array().unwrap().iter().filter(|item| item["task"] == "T1").count();
    assert_eq!(about, 1, "it is told once: {inbox}");
    task["reason"].as_str().unwrap().to_owned()
}

/// Retries T1 as the reason says, and waits until it has landed.
#[track_caller]
fn lands_after_retry(world: &World) {
    world.ok(&["retry", "T1"]);
    let landed = until(LONG, || world.json(&["show", "T1"])["word"] == "landed");
    assert!(landed, "{}", world.ok(&["why", "T1"]));
}

/// Grafts change what history looks like, so it cannot be copied. The advice given makes the task go on.
#[test]
fn grafts_are_told_once_and_cost_no_attempt() {
    let world = World::set_up();
    world.write("b.txt", "b\n");
    world.commit("Third");
    // The tip has a parent that was never fetched.
    let tip = world.git(&["rev-parse", "HEAD"]);
    let info = world.repo.join(".git/info");
    std::fs::create_dir_all(&info).unwrap();
    std::fs::write(info.join("grafts"), format!("{tip} {}\n", "1".repeat(40))).unwrap();
    start(&world, "note.txt", "hello\\n");
    let reason = told_once(&world);
    assert!(reason.contains("info/grafts") && reason.contains("git replace --convert-graft-file"), "{reason}");
    std::fs::remove_file(info.join("grafts")).unwrap();
    lands_after_retry(&world);
    assert_eq!(world.read("note.txt"), "hello\n");
}

/// A file that has not the encoding that its attribute claims cannot be stored, whoever tries again.
#[test]
fn an_encoding_that_does_not_fit_is_told_once_and_costs_no_attempt() {
    let world = World::set_up();
    world.write(".gitattributes", "*.utf16 working-tree-encoding=UTF-16\n");
    world.commit("Keep some files in another encoding");
    start(&world, "note.utf16", "plain\\n");
    let reason = told_once(&world);
    assert!(reason.contains("note.utf16") && reason.contains("working-tree-encoding"), "{reason}");
    world.write(".gitattributes", "");
    world.commit("Keep all files as they are");
    lands_after_retry(&world);
    assert_eq!(world.read("note.utf16"), "plain\n");
}
