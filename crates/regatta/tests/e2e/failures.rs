//! Work that fails its checks: every screen shows the first error, the whole output can be read,
//! and the work is kept.

use serde_json::json;

use crate::world::{LONG, World, until};

/// The output of cargo for an unclosed delimiter. Its last lines do not name the error.
const OUTPUT: &str = r"   Compiling strs v0.1.0 (/work/strs)
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

const ERROR: &str = "error: this file contains an unclosed delimiter (src/lib.rs:5:14)";

/// Creates a world in which every check fails as cargo does, and a task that has failed after its
/// retries.
fn failed() -> World {
    let world = World::set_up();
    world.write("Output", OUTPUT);
    let settings = world.read("regatta.toml");
    let commands = settings.lines().find(|line| line.starts_with("commands = ")).unwrap().to_owned();
    world.write("regatta.toml", &settings.replace(&commands, "commands = [\"cat Output; exit 101\"]"));
    world.ok(&["init", "--yes"]);
    world.commit("Never pass");
    world.ok(&["config", "set", "retry", "10ms"]);
    let plan = world.root.join("plan.json");
    let task = json!({ "subject": "Write b", "files": ["b.txt"],
        "script": [{ "run": "cp \"$REGATTA_PROMPT_FILE\" b.txt" }] });
    std::fs::write(&plan, json!({ "task": [task] }).to_string()).unwrap();
    world.run(&["run", plan.to_str().unwrap(), "--agents", "scripted", "--yes", "--wait"]);
    assert!(until(LONG, || world.json(&["show", "T1"])["status"] == "failed"), "{}", world.ok(&["why", "T1"]));
    world
}

#[test]
fn the_first_error_is_on_every_screen_and_in_the_next_prompt() {
    let world = failed();
    for screen in [&["why", "T1"][..], &["show", "T1"], &["inbox"], &["replay", "M1"]] {
        let text = world.ok(screen);
        assert!(text.contains(ERROR), "{screen:?}: {text}");
        assert!(!text.contains("waiting for other jobs"), "{screen:?}: {text}");
    }
    let shown = world.ok(&["show", "T1"]);
    assert!(
        shown.contains(": invalid: `cat Output; exit 101` exited with 101"),
        "the command as it was written: {shown}"
    );
    let prompt = world.data.join("attempts/A2/prompt.md");
    let prompt = std::fs::read_to_string(prompt).unwrap();
    assert!(prompt.contains(&format!("First error: {ERROR}")), "{prompt}");
    let why = world.ok(&["why", "T1"]);
    assert!(why.contains("regatta logs T1 --check"), "{why}");
    let checks = world.ok(&["logs", "T1", "--check"]);
    assert!(checks.contains("3 | pub fn b() {") && checks.contains("waiting for other jobs"), "{checks}");
}

/// The work of a failed task never entered the queue, but it is kept and `diff` shows it.
#[test]
fn the_work_of_a_failed_task_is_kept_and_shown_by_diff() {
    let world = failed();
    let last = world.json(&["show", "T1"])["attempts"].as_array().unwrap().last().unwrap()["id"].clone();
    let last = last.as_str().unwrap();
    let diff = world.ok(&["diff", "T1"]);
    assert!(
        diff.contains("+++ b/b.txt") && diff.contains(&format!("this is what {last} left; T1 has failed")),
        "{diff}"
    );
    assert!(world.ok(&["diff", last]).contains("+++ b/b.txt"));
    assert_eq!(world.refused(&["diff", "A99"], 1)["code"], "no_such_attempt");
}
