//! Broken isolation: a worker that writes into the user's own checkout, or that reports another
//! working directory.

use std::time::Duration;

use serde_json::{Value, json};

use crate::world::{World, wait_until};

fn write_plan(world: &World, tasks: &Value) -> String {
    let path = world.root.join("plan.json");
    std::fs::write(&path, tasks.to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}

fn attempts(world: &World, task: &str) -> Vec<Value> {
    world.run_json(&["show", task])["attempts"]
        .as_array()
        .unwrap()
        .clone()
}

/// L1: two tasks that share a file run at once, and one writes into the user's checkout. The other
/// attempt is stopped and its work kept, and from then on the tasks run one after the other.
/// Regatta never overwrites files in the checkout.
#[test]
fn l1_a_write_outside_its_workspace_makes_an_overlapping_wave_serial() {
    let world = World::with_project();
    let (begun, stray) = (world.root.join("begun"), world.repo.join("shared.txt"));
    let (begun, stray_path) = (begun.display(), stray.display());
    let first = format!(
        "until [ -e '{begun}' ]; do sleep 0.02; done; echo first >> shared.txt; echo stray > \
        '{stray_path}'; exit 0"
    );
    let second = format!(
        "if [ ! -e '{begun}' ]; then touch '{begun}'; sleep 100; fi; echo second >> shared.txt"
    );
    let tasks = json!([
        { "id": "a", "subject": "First", "files": ["shared.txt"], "script": [{ "run": first }] },
        { "id": "b", "subject": "Second", "files": ["shared.txt"], "script": [{ "run": second }] },
    ]);
    world.run_json(&[
        "run",
        &write_plan(&world, &tasks),
        "--isolate",
        "--mode",
        "waves",
        "--agents",
        "scripted",
        "--yes",
    ]);
    let patience = Duration::from_secs(60);
    let aborted = || {
        world
            .events()
            .iter()
            .any(|event| event["kind"] == "mission.serialised")
    };
    assert!(
        wait_until(patience, aborted),
        "tasks of the mission still share files"
    );
    let stopped = || attempts(&world, "T2")[0]["ended"]["cause"] == "stopped";
    assert!(
        wait_until(patience, stopped),
        "the second attempt still runs"
    );
    // The checkout is as the worker left it, and the first task waits for a person to deal with the
    // stray file.
    assert_eq!(std::fs::read_to_string(&stray).unwrap(), "stray\n");
    let warnings = world.run_json(&["show", "T1"])["warnings"].clone();
    assert!(
        warnings[0]
            .as_str()
            .unwrap()
            .contains("isolation did not hold for A1"),
        "{warnings}"
    );
    assert!(
        world
            .run_ok(&["show", "M1"])
            .contains("tasks that share files now run one after the other")
    );
    std::fs::remove_file(&stray).unwrap();
    let (_, ran) =
        world.run_json_any_exit(&["run", "--resume", "M1", "--wait", "--timeout", "120s"]);
    assert_eq!(ran.exit_code, 0, "{ran:?}");
    assert_eq!(
        world.read_file("shared.txt"),
        "first\nsecond\n",
        "one after the other"
    );
    assert_eq!(world.git(&["status", "--porcelain"]), "");
    assert_eq!(world.run_json(&["show", "T2"])["failures"], 0);
    let events = world.events();
    let last_position = |kind: &str, id: &str| {
        events
            .iter()
            .rposition(|event| event["kind"] == kind && event["subject"] == id)
    };
    assert!(
        last_position("task.completed", "T1") < last_position("task.started", "T2"),
        "the second task must restart after the first has landed"
    );
}

/// When no tasks share a file, the wave goes on with a warning. The same holds for a result that
/// names another working directory.
#[test]
fn a_write_outside_its_workspace_in_a_disjoint_wave_gives_a_warning() {
    let world = World::with_project();
    let stray = world.repo.join("new/a.txt");
    let wrote = format!(
        "mkdir -p new '{0}'; echo a > new/a.txt; echo a > '{0}/a.txt'",
        world.repo.join("new").display()
    );
    let says = r#"printf '{"status":"done","detail":"x","worktreePath":"/elsewhere"}' > "$REGATTA_RESULT""#;
    let none =
        r#"printf '{"status":"done","detail":"x","worktree_path":null}' > "$REGATTA_RESULT""#;
    let tasks = json!([
        { "id": "a", "subject": "First", "files": ["new/a.txt"], "script": [{ "run": wrote }] },
        { "id": "b", "subject": "Second", "files": ["b.txt"],
          "script": [{ "write": { "path": "b.txt", "text": "b\n" } }, { "run": says }] },
        { "id": "c", "subject": "Third", "files": ["c.txt"],
          "script": [{ "write": { "path": "c.txt", "text": "c\n" } }, { "run": none }] },
    ]);
    let (mission, ran) = world.run_json_any_exit(&[
        "run",
        &write_plan(&world, &tasks),
        "--isolate",
        "--agents",
        "scripted",
        "--wait",
        "--timeout",
        "120s",
    ]);
    assert!(
        ran.stderr.is_empty() || !ran.stderr.contains("panicked"),
        "{ran:?}"
    );
    // The stray file blocks only the first task's landing.
    let states: Vec<&Value> = mission["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|mission| &mission["word"])
        .collect();
    assert_eq!(states, ["landing", "landed", "landed"], "{mission}");
    assert!(
        !world
            .events()
            .iter()
            .any(|event| event["kind"] == "mission.serialised")
    );
    for (task, states) in [("T1", "new/"), ("T2", "/elsewhere"), ("T3", "no workspace")] {
        let warnings = world.run_json(&["show", task])["warnings"].to_string();
        assert!(
            warnings.contains("isolation did not hold") && warnings.contains(states),
            "{task}: {warnings}"
        );
    }
    std::fs::remove_file(&stray).unwrap();
    world.run_ok(&["land", "T1", "--wait"]);
    assert_eq!(
        (
            world.read_file("new/a.txt"),
            world.git(&["status", "--porcelain"])
        ),
        ("a\n".into(), String::new())
    );
}
