//! Tests of the scripted agent as the program of an attempt.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use regatta_engine::ports::agents::{Agents, Exit, ProgramLaunch};
use serde_json::{Value, json};

use crate::support::{A1, World, eventually, fixture, printed_output};

fn scripted_launch(world: &World, script: Value) -> ProgramLaunch {
    let mut launch = world.launch(&[fixture(), "scripted-agent"]);
    launch.script = Some(script.to_string());
    launch
        .env
        .push(("REGATTA_TASK".to_owned(), "T7".to_owned()));
    launch
}

/// Follows a script to its end. Returns the exit, the printed lines and the result.
fn run_script(world: &World, script: Value) -> (Exit, Vec<Value>, Value) {
    world
        .adapter
        .start(&scripted_launch(world, script))
        .unwrap();
    let exit = world.wait();
    let lines = world
        .output()
        .lines()
        .map(|line| serde_json::from_str(line).expect("one JSON object per line"))
        .collect();
    let result = fs::read_to_string(world.adapter.result_file(A1)).unwrap();
    (exit, lines, serde_json::from_str(&result).unwrap())
}

#[test]
fn every_step_of_a_script_has_its_effect() {
    let world = World::new();
    fs::write(world.workspace.join("old.txt"), "one two two\n").unwrap();
    fs::write(world.workspace.join("gone.txt"), "").unwrap();
    let script = json!([
        {"say": "Hello."},
        {"write": {"path": "src/deep/a.txt", "text": "a\n"}},
        {"append": {"path": "src/deep/a.txt", "text": "b\n"}},
        {"append": {"path": "new.txt", "text": "n\n"}},
        {"replace": {"path": "old.txt", "from": "two", "to": "2"}},
        {"remove": "gone.txt"},
        {"remove": {"path": "new.txt"}},
        {"run": "cat old.txt; echo oops >&2; cp old.txt copy.txt"},
        {"ask": {"question": "Keep it?", "choices": ["keep", "drop"], "default": "keep"}},
        {"permission": {"what": "rm -r build", "default": "allow"}},
        {"sleep": "1ms"},
        {"usage": {"input": 10, "output": 20, "cost": 0.25}},
        {"hang": false},
        {"say": "All done."}
    ]);
    let (exit, lines, result) = run_script(&world, script);
    assert_eq!(exit, Exit::Code(0), "{lines:?}");
    assert_eq!(world.file("src/deep/a.txt"), "a\nb\n");
    assert_eq!(world.file("copy.txt"), "one 2 two\n");
    assert!(
        !world.workspace.join("gone.txt").exists() && !world.workspace.join("new.txt").exists()
    );
    for line in [
        json!({"step": 1, "kind": "say", "text": "Hello."}),
        json!({"step": 2, "kind": "write", "path": "src/deep/a.txt"}),
        json!({"step": 8, "kind": "output", "text": "one 2 two"}),
        json!({"step": 8, "kind": "output", "text": "oops"}),
        json!({"step": 9, "kind": "ask", "question": "Keep it?", "choices": ["keep", "drop"]}),
        json!({"step": 9, "kind": "answer", "text": "keep", "by": "the script's default"}),
        json!({"step": 10, "kind": "answer", "text": "allow", "by": "the script's default"}),
        json!({"step": 12, "kind": "usage", "input": 10, "output": 20, "cost": 0.25}),
        json!({"step": 14, "kind": "done", "text": "All done."}),
    ] {
        assert!(lines.contains(&line), "{line} is not in {lines:#?}");
    }
    let artifacts = json!(["src/deep/a.txt", "new.txt", "old.txt", "gone.txt"]);
    let expected = json!({
        "type": "completion", "issue_id": "T7", "status": "done", "detail": "All done.", "artifacts": artifacts,
        "scripted": true,
    });
    assert_eq!(result, expected);
}

#[test]
fn failed_step_is_reported_and_ends_the_script() {
    for (step, code, words) in [
        (json!({"fail": "No luck today."}), 1, "No luck today."),
        (
            json!({"run": "exit 4"}),
            1,
            "`exit 4` failed: exit status: 4.",
        ),
        (
            json!({"replace": {"path": "a.txt", "from": "nowhere", "to": "x"}}),
            1,
            "the file does not contain \"nowhere\"",
        ),
        (
            json!({"replace": {"path": "b.txt", "from": "x", "to": "x"}}),
            1,
            "Could not replace text in b.txt",
        ),
        (json!({"remove": "b.txt"}), 1, "Could not remove b.txt"),
        (
            json!({"ask": {"question": "Why?", "choices": ["a", "b"]}}),
            1,
            "cannot ask a person",
        ),
        (json!({"permission": "rm -rf /"}), 1, "cannot ask a person"),
        (
            json!({"permission": {"what": "rm -rf /", "default": "deny"}}),
            1,
            "Not allowed: rm -rf /.",
        ),
    ] {
        let world = World::new();
        fs::write(world.workspace.join("a.txt"), "text").unwrap();
        let (exit, _, result) = run_script(
            &world,
            json!([step, {"write": {"path": "after", "text": "x"}}]),
        );
        assert_eq!(
            (exit, &result["status"]),
            (Exit::Code(code), &json!("failed"))
        );
        assert!(
            result["detail"].as_str().unwrap().contains(words),
            "{result}"
        );
        assert!(!world.workspace.join("after").exists());
    }
}

#[test]
fn invalid_script_changes_nothing() {
    for (script, words) in [
        (
            json!([{"write": {"path": "a", "text": "x"}}, {"dance": 1}]),
            "`dance`, which is not a step",
        ),
        (
            json!([{"write": {"path": "a", "text": "x"}}, {"write": {"path": "../b", "text": "x"}}]),
            "not inside",
        ),
        (json!({"say": "x"}), "not a list"),
    ] {
        let world = World::new();
        let (exit, lines, _) = run_script(&world, script);
        assert_eq!(exit, Exit::Code(2));
        assert!(
            lines[0]["text"].as_str().unwrap().contains(words),
            "{lines:?}"
        );
        assert_eq!(fs::read_dir(&world.workspace).unwrap().count(), 0);
    }
    let world = World::new();
    world
        .adapter
        .start(&world.launch(&[fixture(), "scripted-agent"]))
        .unwrap();
    assert_eq!(world.wait(), Exit::Code(2));
    assert!(world.output().contains("has no script"));
}

#[test]
fn s6_a_step_that_leaves_the_workspace_through_a_link_is_refused() {
    let world = World::new();
    let outside = world.data();
    fs::create_dir_all(&outside).unwrap();
    fs::write(outside.join("secret.txt"), "secret").unwrap();
    symlink(&outside, world.workspace.join("dir")).unwrap();
    symlink(outside.join("secret.txt"), world.workspace.join("file")).unwrap();
    symlink(outside.join("not-there"), world.workspace.join("dangling")).unwrap();
    for step in [
        json!({"write": {"path": "dir/new.txt", "text": "x"}}),
        json!({"write": {"path": "dir/sub/new.txt", "text": "x"}}),
        json!({"write": {"path": "file", "text": "x"}}),
        json!({"write": {"path": "dangling", "text": "x"}}),
        json!({"append": {"path": "file", "text": "x"}}),
        json!({"replace": {"path": "file", "from": "secret", "to": "x"}}),
        json!({"remove": "dir/secret.txt"}),
    ] {
        // Each step is an attempt of its own in the same workspace.
        let mut launch = scripted_launch(&world, json!([step]));
        launch.attempt = regatta_core::ids::AttemptId(step.to_string().len() as u64 + 100);
        world.adapter.start(&launch).unwrap();
        assert_eq!(
            world
                .adapter
                .wait(launch.attempt, crate::support::TEST_TIMEOUT)
                .unwrap(),
            Some(Exit::Code(1)),
            "{step}"
        );
        let log = printed_output(&world.adapter, launch.attempt);
        assert!(log.contains("Refused"), "{log}");
    }
    assert_eq!(
        fs::read_to_string(outside.join("secret.txt")).unwrap(),
        "secret"
    );
    assert!(
        !outside.join("not-there").exists()
            && !outside.join("new.txt").exists()
            && !outside.join("sub").exists()
    );
    // A link itself may be removed, and a link that stays inside may be followed.
    fs::create_dir(world.workspace.join("real")).unwrap();
    symlink("real", world.workspace.join("inner")).unwrap();
    let (exit, lines, _) = run_script(
        &world,
        json!([{"remove": "file"}, {"write": {"path": "inner/x", "text": "x"}}]),
    );
    assert_eq!(exit, Exit::Code(0), "{lines:?}");
    assert!(outside.join("secret.txt").exists() && world.workspace.join("real/x").exists());
}

#[test]
fn output_of_3_mb_arrives_whole() {
    let world = World::new();
    let (exit, lines, _) = run_script(
        &world,
        json!([{"flood": {"bytes": 3_000_000}}, {"say": "end"}]),
    );
    assert_eq!(exit, Exit::Code(0));
    assert!(world.output().len() >= 3_000_000);
    assert_eq!(lines.last().unwrap()["kind"], "done");
}

#[test]
fn background_process_of_a_command_does_not_hang_the_agent() {
    let world = World::new();
    let (exit, lines, _) = run_script(&world, json!([{"run": "echo here; sleep 1000 &"}]));
    assert_eq!(exit, Exit::Code(0), "{lines:?}");
    assert!(lines.contains(&json!({"step": 1, "kind": "output", "text": "here"})));
    world.assert_nothing_runs();
}

#[test]
fn hanging_agent_can_be_stopped() {
    let world = World::new();
    world
        .adapter
        .start(&scripted_launch(&world, json!([{"hang": true}])))
        .unwrap();
    eventually("the agent hangs", || world.output().contains("hang"));
    assert_eq!(
        world.adapter.stop(A1, Duration::from_secs(10)),
        Ok(Exit::Signal(15))
    );
    world.assert_nothing_runs();
}
