//! Fix-ups: the prompts and screens when finished work conflicts, or fails after the merge.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::lost_work::StartedTask;
use crate::world::{TEST_TIMEOUT, World, wait_until};

/// Fails like a Node.js program, with the error long before the end of the output, when both files
/// exist.
const CHECK_SCRIPT: &str = r#"
if [ -e one.txt ] && [ -e two.txt ]; then
  echo "node:internal/modules/cjs/loader:1143"
  echo "Error: Cannot find module '../glue'"
  echo "Require stack:"
  echo "- src/groupBy.js"
  n=0; while [ $n -lt 30 ]; do echo "    at frame$n (node:internal/x:$n:1)"; n=$((n+1)); done
  echo "Node.js v20.20.2"
  exit 1
fi
if [ -e strict ] && grep -q task a.txt; then echo "Error: a.txt breaks the strict mode"; exit 1; fi
exit 0
"#;

/// Creates a world whose check is `CHECK_SCRIPT`, with an outside agent and a scripted one.
pub(crate) fn world_with_check(landing: &str) -> World {
    let world = World::with_project();
    world.write_file("check.sh", CHECK_SCRIPT);
    let settings = world.read_file("regatta.toml");
    let commands = settings
        .lines()
        .find(|line| line.starts_with("commands = "))
        .unwrap()
        .to_owned();
    let settings = settings.replace(&commands, "commands = [\"sh check.sh\"]");
    let content: String = settings
        .lines()
        .take_while(|line| !line.starts_with("[landing]"))
        .map(|line| format!("{line}\n"))
        .collect();
    world.write_file("regatta.toml", &format!("{content}[landing]\n{landing}"));
    world.run_ok(&["init", "--yes"]);
    world.commit_all("Check it so");
    world.run_ok(&["agent", "add", "zoe", "--runtime", "outside"]);
    world
}

/// Starts a task that writes a file and then waits for a permission. Returns its id.
pub(crate) fn start_waiting_task(world: &World, path: &str) -> String {
    let script = json!([
        { "write": { "path": path, "text": "the task's\n" } },
        { "permission": { "what": "go on", "default": "deny" } },
    ]);
    world.run_ok(&[
        "add",
        "Write it",
        "--description",
        "Write the file.",
        "--files",
        path,
        "--script",
        &script.to_string(),
    ]);
    world.run_ok(&["run", "--agents", "scripted", "--yes"]);
    assert!(
        wait_until(TEST_TIMEOUT, || open_request(world).is_some()),
        "{}",
        world.run_ok(&["status"])
    );
    open_request(world).unwrap()["task"]
        .as_str()
        .unwrap()
        .to_owned()
}

fn open_request(world: &World) -> Option<Value> {
    world
        .run_json(&["inbox"])
        .as_array()?
        .iter()
        .find(|item| item["subject"] == "go on")
        .cloned()
}

/// Grants the permission and waits for the task's fix-up. Returns the fix-up's attempt.
pub(crate) fn wait_for_fixup(world: &World, task: &str) -> String {
    let first = open_request(world).unwrap()["id"]
        .as_str()
        .unwrap()
        .to_owned();
    world.run_ok(&["allow", &first]);
    let again = || open_request(world).is_some_and(|item| item["id"] != first.as_str());
    assert!(
        wait_until(TEST_TIMEOUT, again),
        "{}",
        world.run_ok(&["why", task])
    );
    let shown = world.run_json(&["show", task]);
    assert_eq!(shown["fixups"], 1, "{shown}");
    shown["attempts"].as_array().unwrap().last().unwrap()["id"]
        .as_str()
        .unwrap()
        .to_owned()
}

fn prompt_of(world: &World, attempt: &str) -> String {
    fs::read_to_string(
        world
            .data_dir
            .join("attempts")
            .join(attempt)
            .join("prompt.md"),
    )
    .unwrap()
}

/// Lands a file as a task of zoe.
fn land_file(world: &World, path: &str, subject: &str) -> String {
    world.run_ok(&[
        "task",
        "add",
        subject,
        "--type",
        "chore",
        "--files",
        path,
        "--validate",
        "true",
    ]);
    let grant = world.run_json(&["task", "poll", "--as", "zoe", "--wait", "60s"]);
    let task = grant["task"]["id"].as_str().unwrap().to_owned();
    fs::write(
        Path::new(grant["workspace"].as_str().unwrap()).join(path),
        "zoe's\n",
    )
    .unwrap();
    let (attempt, token) = (
        grant["attempt"].as_str().unwrap(),
        grant["token"].to_string(),
    );
    world.run_ok(&[
        "task",
        "finish",
        &task,
        "--attempt",
        attempt,
        "--token",
        &token,
    ]);
    assert!(
        wait_until(TEST_TIMEOUT, || world.run_json(&["show", &task])["word"]
            == "landed"),
        "{}",
        world.run_ok(&["why", &task])
    );
    task
}

/// The prompt of a fix-up starts with the present job, and has the first error, its place, and the
/// tasks that landed since. People see the same error.
#[test]
fn the_prompt_of_a_fixup_has_the_first_error_and_the_tasks_landed_since() {
    let world = world_with_check("");
    let before = land_file(&world, "before.txt", "Land before it began");
    let task = start_waiting_task(&world, "one.txt");
    let since = land_file(&world, "two.txt", "Break the other");
    let prompt = prompt_of(&world, &wait_for_fixup(&world, &task));
    assert!(
        prompt.starts_with(&format!("# Fix-up of {task}\n\n## FIX-UP\n")),
        "{prompt}"
    );
    assert!(
        prompt.contains("First error: Error: Cannot find module '../glue' (src/groupBy.js)"),
        "{prompt}"
    );
    assert!(
        prompt.contains("Node.js v20.20.2"),
        "the end of the output: {prompt}"
    );
    assert!(
        prompt.contains(&format!("- {since} Break the other: two.txt")),
        "a task that landed since: {prompt}"
    );
    assert!(
        !prompt.contains(&format!("- {before} ")),
        "a task that landed before the start: {prompt}"
    );
    let checks = world.run_ok(&["logs", &task, "--check"]);
    assert!(
        checks.contains("the queue's checks") && checks.contains("at frame29"),
        "the whole output of the queue's checks: {checks}"
    );
    let (now, order) = (
        prompt.find("Make the checks pass").unwrap(),
        prompt.find("Write the file.").unwrap(),
    );
    assert!(
        now < order && prompt.contains("do not do it again"),
        "{prompt}"
    );
    let reason = world.run_ok(&["show", &task]);
    assert!(
        reason.contains("Error: Cannot find module '../glue'"),
        "people see the same error: {reason}"
    );
}

/// The prompt says how a path conflicts.
#[test]
fn the_prompt_of_a_fixup_names_the_kind_of_conflict() {
    let world = world_with_check("");
    let task = start_waiting_task(&world, "a.txt");
    std::fs::remove_file(world.repo.join("a.txt")).unwrap();
    world.commit_all("Do without it");
    let prompt = prompt_of(&world, &wait_for_fixup(&world, &task));
    assert!(
        prompt.contains("- a.txt: the trunk deleted it and this task changed it"),
        "{prompt}"
    );
    let reason = world.run_ok(&["show", &task]);
    assert!(
        reason.contains("a.txt (deleted on the trunk, changed by this task)"),
        "{reason}"
    );
}

/// Q6: when ownership settled the conflict, the fix-up starts with the chosen version without
/// conflict marks. The prompt says which side was taken.
#[test]
fn q6_a_fixup_after_ownership_has_no_marks() {
    let world = world_with_check("on_conflict = \"ownership\"\n");
    let task = start_waiting_task(&world, "a.txt");
    world.write_file("a.txt", "ann's\n");
    world.write_file("strict", "yes\n");
    world.commit_all("Be strict");
    let attempt = wait_for_fixup(&world, &task);
    let prompt = prompt_of(&world, &attempt);
    assert!(
        prompt.contains("- a.txt: this task's version was taken, the trunk's was dropped"),
        "{prompt}"
    );
    assert!(
        prompt.contains("Error: a.txt breaks the strict mode") && !prompt.contains("<<<<<<<"),
        "{prompt}"
    );
    let workspace = world.run_json(&["show", &task])["workspace"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(
        fs::read_to_string(Path::new(&workspace).join("a.txt")).unwrap(),
        "the task's\n"
    );
}

/// Q6: ownership settled the conflict in one file, and the checks fail because of another file of
/// the task. The fix-up may change both.
#[test]
fn q6_a_fixup_after_ownership_may_change_the_file_at_fault() {
    let world = world_with_check("on_conflict = \"ownership\"\n");
    world.write_file("b.txt", "one\n");
    world.commit_all("Have a b");
    let work = StartedTask::start(&world, "Write both", "a.txt,b.txt");
    work.write_file("a.txt", "zoe's\n");
    work.write_file("b.txt", "zoe's task\n");
    world.write_file("a.txt", "ann's\n");
    world.write_file(
        "check.sh",
        "! [ -e strict ] || ! grep -q task b.txt || { echo 'b.txt: no task here'; exit 1; }\n",
    );
    world.write_file("strict", "yes\n");
    world.commit_all("Be strict");
    work.finish(&world);
    let again = StartedTask::take_next(&world);
    assert_eq!(again.task, work.task, "the same task again, as a fix-up");
    assert_eq!(
        (again.read_file("a.txt"), again.read_file("b.txt")),
        ("zoe's\n".into(), "zoe's task\n".into())
    );
    again.write_file("a.txt", "zoe's and ann's\n");
    again.write_file("b.txt", "zoe's\n");
    again.finish(&world);
    again.wait_for_state(&world, "landed");
    assert_eq!(
        (world.read_file("a.txt"), world.read_file("b.txt")),
        ("zoe's and ann's\n".into(), "zoe's\n".into())
    );
}

/// Makes a task conflict with a person's commit to a.txt.
fn task_with_conflict(world: &World) -> String {
    let task = start_waiting_task(world, "a.txt");
    world.write_file("a.txt", "ann's\n");
    world.commit_all("Change it too");
    let first = open_request(world).unwrap()["id"]
        .as_str()
        .unwrap()
        .to_owned();
    world.run_ok(&["allow", &first]);
    task
}

fn merge_status(world: &World, task: &str) -> String {
    let table = world.run_ok(&["queue", "--all"]);
    table
        .lines()
        .find(|line| line.contains(&format!("regatta/{task}-")))
        .unwrap_or_default()
        .to_owned()
}

/// An unsettled conflict goes to a person. `takeover` opens a workspace with the conflict in it,
/// and `land_file` goes on from there.
#[test]
fn a_conflict_is_taken_over_by_hand_and_landed() {
    let world = world_with_check("on_conflict = \"fail\"\n");
    let task = task_with_conflict(&world);
    assert!(
        wait_until(TEST_TIMEOUT, || world.run_json(&["show", &task])["status"]
            == "needs_human"),
        "{}",
        world.run_ok(&["why", &task])
    );
    assert!(
        merge_status(&world, &task)
            .trim_end()
            .ends_with("1          0"),
        "{}",
        world.run_ok(&["queue", "--all"])
    );
    let explanation = world.run_ok(&["why", &task]);
    assert!(
        explanation.contains(&format!("regatta takeover {task}")),
        "{explanation}"
    );
    let output = world.run_ok(&["takeover", &task, "--", "cat", "a.txt"]);
    for part in ["<<<<<<<", "ann's", "the task's"] {
        assert!(output.contains(part), "{part}: {output}");
    }
    assert_eq!(world.run_json(&["show", &task])["status"], "in_progress");
    // The task is the person's now, and nothing suggests asking an agent.
    let explanation = world.run_ok(&["why", &task]);
    for part in [
        "by a person",
        &format!("regatta land {task}"),
        &format!("regatta takeover {task}"),
    ] {
        assert!(explanation.contains(part), "{part}: {explanation}");
    }
    assert!(
        !explanation.contains("follow the output of its agent"),
        "{explanation}"
    );
    assert!(
        world.run_ok(&["status"]).contains("a person works on it"),
        "{}",
        world.run_ok(&["status"])
    );
    // `takeover` opens the same workspace again until the conflict is settled.
    world.run_ok(&[
        "takeover",
        &task,
        "--",
        "sh",
        "-c",
        "printf 'both\\n' > a.txt",
    ]);
    let landed = world.run_ok(&["land", &task, "--wait"]);
    assert!(landed.contains(&format!("landed {task} as ")), "{landed}");
    assert_eq!(world.read_file("a.txt"), "both\n");
}

/// `queue --all` counts a conflict that the ownership of the file settled.
#[test]
fn a_conflict_that_ownership_settled_is_counted() {
    let world = world_with_check("on_conflict = \"ownership\"\n");
    let task = task_with_conflict(&world);
    assert!(
        wait_until(TEST_TIMEOUT, || world.run_json(&["show", &task])["word"]
            == "landed"),
        "{}",
        world.run_ok(&["why", &task])
    );
    assert!(
        merge_status(&world, &task).contains("1 (auto)"),
        "{}",
        world.run_ok(&["queue", "--all"])
    );
}

/// A task that was undone cannot be undone or landed again, and `undo` does not list it. Undoing
/// the revert makes it landed again.
#[test]
fn an_undone_task_cannot_be_undone_or_landed_again() {
    let world = world_with_check("");
    let task = land_file(&world, "one.txt", "Write one");
    let output = world.run_ok(&["undo", &task, "--wait"]);
    assert!(
        output.contains(&format!("reverted {task}: T2 landed the revert as ")),
        "{output}"
    );
    for again in [&["undo", &task][..], &["land", &task]] {
        let refused = world.run_refused(again, 5);
        assert_eq!(refused["code"], "taken_back", "{refused}");
        assert!(
            refused["message"].as_str().unwrap().contains("T2 undid it"),
            "{refused}"
        );
    }
    let listed = world.run_ok(&["undo"]);
    assert!(
        !listed.contains("Write one") || listed.contains("Undo T1"),
        "{listed}"
    );
    assert!(
        !listed
            .lines()
            .any(|line| line.starts_with(&format!("{task} "))),
        "{listed}"
    );
    world.run_ok(&["undo", "T2", "--wait"]);
    assert_eq!(world.read_file("one.txt"), "zoe's\n");
    assert!(
        world
            .run_ok(&["land", &task])
            .contains(&format!("landed {task} as "))
    );
}
