//! Faults of the repository that no retry can fix. They are reported once, with the fix, and do not
//! count as failures.

use serde_json::Value;

use crate::world::{TEST_TIMEOUT, World, wait_until};

/// Starts a task that writes one file.
fn start_task(world: &World, file: &str, text: &str) {
    let plan = world.write_plan(&format!(
        "[[task]]\nid = \"a\"\nsubject = \"Write it\"\nfiles = [\"{file}\"]\n\
         script = [{{ write = {{ path = \"{file}\", text = \"{text}\" }} }}]\n"
    ));
    world.run_ok(&["run", &plan, "--agents", "scripted", "--yes"]);
}

/// Waits until T1 needs a person after one attempt that did not count. Returns the reason.
#[track_caller]
fn wait_for_uncounted_failure(world: &World) -> String {
    let needs_person = || world.run_json(&["show", "T1"])["word"] == "needs you";
    assert!(
        wait_until(TEST_TIMEOUT, needs_person),
        "{}",
        world.run_ok(&["why", "T1"])
    );
    let task = world.run_json(&["show", "T1"]);
    assert_eq!(
        (&task["failures"], task["attempts"].as_array().map(Vec::len)),
        (&Value::from(0), Some(1)),
        "{task}"
    );
    let inbox = world.run_json(&["inbox"]);
    let about = inbox
        .as_array()
        .unwrap()
        .iter()
        .filter(|item| item["task"] == "T1")
        .count();
    assert_eq!(about, 1, "one item in the inbox: {inbox}");
    task["reason"].as_str().unwrap().to_owned()
}

/// Retries T1, as the reason advises, and waits until it has landed.
#[track_caller]
fn assert_lands_after_retry(world: &World) {
    world.run_ok(&["retry", "T1"]);
    let landed = wait_until(TEST_TIMEOUT, || {
        world.run_json(&["show", "T1"])["word"] == "landed"
    });
    assert!(landed, "{}", world.run_ok(&["why", "T1"]));
}

/// Grafts change the visible history, so the repository cannot be copied. Following the advice lets
/// the task land.
#[test]
fn grafts_are_reported_once_and_not_counted_as_a_failure() {
    let world = World::with_project();
    world.write_file("b.txt", "b\n");
    world.commit_all("Third");
    // The tip has a parent that was never fetched.
    let tip = world.git(&["rev-parse", "HEAD"]);
    let info = world.repo.join(".git/info");
    std::fs::create_dir_all(&info).unwrap();
    std::fs::write(info.join("grafts"), format!("{tip} {}\n", "1".repeat(40))).unwrap();
    start_task(&world, "note.txt", "hello\\n");
    let reason = wait_for_uncounted_failure(&world);
    assert!(
        reason.contains("info/grafts") && reason.contains("git replace --convert-graft-file"),
        "{reason}"
    );
    std::fs::remove_file(info.join("grafts")).unwrap();
    assert_lands_after_retry(&world);
    assert_eq!(world.read_file("note.txt"), "hello\n");
}

/// A file whose content does not match the encoding of its attribute cannot be stored, however
/// often the task is retried.
#[test]
fn a_wrong_encoding_is_reported_once_and_not_counted_as_a_failure() {
    let world = World::with_project();
    world.write_file(".gitattributes", "*.utf16 working-tree-encoding=UTF-16\n");
    world.commit_all("Keep some files in another encoding");
    start_task(&world, "note.utf16", "plain\\n");
    let reason = wait_for_uncounted_failure(&world);
    assert!(
        reason.contains("note.utf16") && reason.contains("working-tree-encoding"),
        "{reason}"
    );
    world.write_file(".gitattributes", "");
    world.commit_all("Keep all files as they are");
    assert_lands_after_retry(&world);
    assert_eq!(world.read_file("note.utf16"), "plain\n");
}
