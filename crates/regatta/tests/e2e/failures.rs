//! Work that fails its checks: every screen shows the first error, the whole output can be read,
//! and the work is kept.

use serde_json::json;

use crate::world::{TEST_TIMEOUT, World, wait_until};

/// The output of cargo for an unclosed delimiter. Its last lines do not name the error.
const CARGO_OUTPUT: &str = r"   Compiling strs v0.1.0 (/work/strs)
error: this file contains an unclosed delimiter
 --> src/lib.rs:5:14
  |
3 | pub fn b() {
  |            - unclosed delimiter
5 |         a();
  |             ^

error: could not compile `strs` (lib) due to 1 previous error
warning: build failed, waiting for other jobs to finish...
error: could not compile `strs` (lib test) due to 1 previous error
";

const CARGO_ERROR: &str = "error: this file contains an unclosed delimiter (src/lib.rs:5:14)";

/// Creates a world in which every check fails as cargo does, and a task that has failed after its
/// retries.
fn world_with_failed_task() -> World {
    let world = World::with_project();
    world.write_file("Output", CARGO_OUTPUT);
    let settings = world.read_file("regatta.toml");
    let commands = settings
        .lines()
        .find(|line| line.starts_with("commands = "))
        .unwrap()
        .to_owned();
    world.write_file(
        "regatta.toml",
        &settings.replace(&commands, "commands = [\"cat Output; exit 101\"]"),
    );
    world.run_ok(&["init", "--yes"]);
    world.commit_all("Never pass");
    world.run_ok(&["config", "set", "retry", "10ms"]);
    let plan = world.root.join("plan.json");
    let task = json!({ "subject": "Write b", "files": ["b.txt"],
        "script": [{ "run": "cp \"$REGATTA_PROMPT_FILE\" b.txt" }] });
    std::fs::write(&plan, json!({ "task": [task] }).to_string()).unwrap();
    world.run(&[
        "run",
        plan.to_str().unwrap(),
        "--agents",
        "scripted",
        "--yes",
        "--wait",
    ]);
    assert!(
        wait_until(TEST_TIMEOUT, || world.run_json(&["show", "T1"])["status"]
            == "failed"),
        "{}",
        world.run_ok(&["why", "T1"])
    );
    world
}

#[test]
fn the_first_error_is_on_every_screen_and_in_the_next_prompt() {
    let world = world_with_failed_task();
    for screen in [
        &["why", "T1"][..],
        &["show", "T1"],
        &["inbox"],
        &["replay", "M1"],
    ] {
        let text = world.run_ok(screen);
        assert!(text.contains(CARGO_ERROR), "{screen:?}: {text}");
        assert!(
            !text.contains("waiting for other jobs"),
            "{screen:?}: {text}"
        );
    }
    let shown = world.run_ok(&["show", "T1"]);
    assert!(
        shown.contains(": invalid: `cat Output; exit 101` exited with 101"),
        "the command as it was written: {shown}"
    );
    let prompt = world.data_dir.join("attempts/A2/prompt.md");
    let prompt = std::fs::read_to_string(prompt).unwrap();
    assert!(
        prompt.contains(&format!("First error: {CARGO_ERROR}")),
        "{prompt}"
    );
    let explanation = world.run_ok(&["why", "T1"]);
    assert!(
        explanation.contains("regatta logs T1 --check"),
        "{explanation}"
    );
    let checks = world.run_ok(&["logs", "T1", "--check"]);
    assert!(
        checks.contains("3 | pub fn b() {") && checks.contains("waiting for other jobs"),
        "{checks}"
    );
}

/// The work of a failed task never entered the queue, but it is kept and `diff` shows it.
#[test]
fn the_work_of_a_failed_task_is_kept_and_shown_by_diff() {
    let world = world_with_failed_task();
    let last = world.run_json(&["show", "T1"])["attempts"]
        .as_array()
        .unwrap()
        .last()
        .unwrap()["id"]
        .clone();
    let last = last.as_str().unwrap();
    let diff = world.run_ok(&["diff", "T1"]);
    assert!(
        diff.contains("+++ b/b.txt")
            && diff.contains(&format!("these are the changes of {last}; T1 has failed")),
        "{diff}"
    );
    assert!(world.run_ok(&["diff", last]).contains("+++ b/b.txt"));
    assert_eq!(
        world.run_refused(&["diff", "A99"], 1)["code"],
        "no_such_attempt"
    );
}
