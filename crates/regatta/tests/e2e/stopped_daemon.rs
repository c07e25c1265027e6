//! `regatta down` lasts until a person starts the daemon again. Commands that only read do not
//! start it.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::world::{TEST_TIMEOUT, World, wait_until};

/// Commands that only read.
const READ_ONLY_COMMANDS: [&[&str]; 12] = [
    &["status"],
    &["inbox"],
    &["show", "T1"],
    &["why", "T1"],
    &["queue"],
    &["cost"],
    &["logs", "T1"],
    &["events"],
    &["agent", "list"],
    &["task", "list"],
    &["claim", "list"],
    &["mission", "list"],
];

#[test]
fn read_only_commands_do_not_start_a_daemon_after_down() {
    let world = World::with_project();
    world.run_ok(&["agent", "add", "bot", "--runtime", "scripted"]);
    let hangs = json!([{ "hang": true }]).to_string();
    world.run_ok(&[
        "add", "Hang", "--files", "a.txt", "--script", &hangs, "--assign", "bot",
    ]);
    assert!(
        wait_until(TEST_TIMEOUT, || !world.foreign_processes().is_empty()),
        "{}",
        world.run_ok(&["why", "T1"])
    );
    world.run_ok(&["down"]);
    for word in READ_ONLY_COMMANDS {
        let refused = world.run_refused(word, 6);
        assert_eq!(refused["code"], "down", "{word:?}: {refused}");
        assert!(
            refused["hint"].as_str().unwrap().contains("regatta up"),
            "{word:?}: {refused}"
        );
    }
    assert!(
        world.processes().is_empty(),
        "nothing was started: {:?}",
        world.processes()
    );

    let doctor = world.run_ok(&["doctor"]);
    assert!(
        doctor.contains("not running") && doctor.contains("intact"),
        "{doctor}"
    );
    assert!(
        world.processes().is_empty(),
        "doctor starts nothing: {:?}",
        world.processes()
    );

    world.run_ok(&["up"]);
    assert!(
        wait_until(TEST_TIMEOUT, || !world.foreign_processes().is_empty()),
        "{}",
        world.run_ok(&["why", "T1"])
    );
    world.run_ok(&["stop", "T1"]);
    // A command that changes something starts the daemon.
    world.run_ok(&["down"]);
    world.run_ok(&["add", "Later", "--files", "b.txt"]);
    assert_eq!(world.run_json(&["show", "T2"])["status"], "unassigned");
}

/// The daemon stops even where the file that records a `down` cannot be written, as on a full disk.
#[test]
fn down_stops_the_daemon_even_if_it_cannot_be_recorded() {
    let world = World::with_project();
    std::fs::create_dir(world.data_dir.join("stopped")).unwrap();
    for what in ["down; all work is kept", "the daemon was not running"] {
        let output = world.run(&["down"]);
        assert!(
            output.exit_code == 0 && output.stdout.contains(what),
            "{output:?}"
        );
        assert!(output.stderr.contains("could not note"), "{output:?}");
        assert!(
            world.processes().is_empty(),
            "{:?}",
            world.describe_foreign_processes()
        );
    }
    // The daemon can be started again, too.
    world.run_ok(&["up"]);
    world.run_ok(&["status"]);
}

/// A read-only command during a `down` does not start another daemon.
#[test]
fn a_read_only_command_during_a_down_starts_no_daemon() {
    let world = World::with_project();
    std::thread::scope(|scope| {
        let looks = scope.spawn(|| {
            loop {
                let output = world.run(&["status", "--json"]);
                if output.exit_code != 0 {
                    return output;
                }
            }
        });
        world.run_ok(&["down"]);
        let last = looks.join().unwrap();
        assert!(last.stderr.contains("\"code\":\"down\""), "{last:?}");
    });
    assert!(world.processes().is_empty(), "{:?}", world.processes());
}

/// `doctor` creates nothing, and does not report that all is well when it has warnings.
#[test]
fn doctor_creates_nothing_and_counts_its_warnings() {
    let world = World::with_repo();
    let nowhere = world.root.join("not/there/yet");
    let output = world
        .command(&["doctor"])
        .env("REGATTA_DATA_DIR", &nowhere)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        text.contains("created at the first start") && text.contains("none yet"),
        "{text}"
    );
    assert!(
        !world.root.join("not").exists(),
        "doctor created the data directory: {text}"
    );
    let has_warnings = text.lines().any(|line| line.starts_with('!'));
    assert_eq!(
        text.contains("no problems"),
        !has_warnings && output.status.success(),
        "{text}"
    );

    world.write_file("README.md", "changed\n");
    world.git(&["add", "-A"]);
    let text = world.run(&["doctor"]).stdout;
    assert!(
        text.lines().any(|line| line.starts_with("! repo")),
        "{text}"
    );
    assert!(
        !text.contains("no problems") && text.contains("warning"),
        "{text}"
    );
}

/// Returns every file below a directory with its bytes.
fn snapshot(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(next) = pending.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                pending.push(path);
            } else {
                files.push((path.clone(), std::fs::read(&path).unwrap_or_default()));
            }
        }
    }
    files.sort();
    files
}

/// Runs `doctor` while no daemon runs, and checks that it starts and changes nothing.
#[track_caller]
fn doctor_of_a_stopped_daemon(world: &World) -> String {
    let before = snapshot(&world.root);
    let output = world.run(&["doctor"]);
    assert_eq!(output.exit_code, 0, "{output:?}");
    assert!(world.processes().is_empty(), "{:?}", world.processes());
    assert!(snapshot(&world.root) == before, "doctor changed a file");
    output.stdout
}

#[track_caller]
fn assert_line(text: &str, start: &str, parts: &[&str]) {
    let line = text.lines().find(|line| line.starts_with(start));
    assert!(
        line.is_some_and(|line| parts.iter().all(|part| line.contains(part))),
        "no line {start} with {parts:?}: {text}"
    );
}

/// `doctor` never finds everything well in a repository that is no project, without agents, or with
/// scripted agents only, whether the daemon runs or not. It names the next command.
#[test]
fn doctor_names_the_missing_project_and_the_missing_agents() {
    let world = World::with_repo();
    let new = doctor_of_a_stopped_daemon(&world);
    assert_line(&new, "! project", &["not a project", "  regatta init"]);
    assert_line(&new, "! agents", &["none yet", "regatta agent add "]);

    world.run_ok(&["init", "--no-input"]);
    world.commit_all("Use regatta");
    let running = world.run_ok(&["doctor"]);
    assert_line(&running, "✓ project", &["shop"]);
    assert_line(&running, "! agents", &["none yet", "regatta agent add "]);
    world.run_ok(&["down"]);
    let without_agents = doctor_of_a_stopped_daemon(&world);
    assert_line(&without_agents, "✓ project", &["shop"]);
    assert_line(
        &without_agents,
        "! agents",
        &["none yet", "regatta agent add "],
    );

    world.run_ok(&["agent", "add", "bot", "--runtime", "scripted"]);
    let running = world.run_ok(&["doctor"]);
    assert_line(
        &running,
        "! agents",
        &["only scripted", "regatta agent add "],
    );
    world.run_ok(&["down"]);
    let only_scripted = doctor_of_a_stopped_daemon(&world);
    assert_line(
        &only_scripted,
        "! agents",
        &["only scripted", "regatta agent add "],
    );
    for text in [&new, &running, &without_agents, &only_scripted] {
        assert!(!text.contains("no problems"), "{text}");
    }

    let command = [
        "agent",
        "add",
        "echo-1",
        "--runtime",
        "command",
        "--command",
        "echo",
    ];
    world.run_ok(&command);
    world.run_ok(&["down"]);
    let complete = doctor_of_a_stopped_daemon(&world);
    assert_line(&complete, "✓ agent ", &["echo-1: echo"]);
    assert!(!complete.contains("! agents"), "{complete}");
    // A program that is missing is found without the daemon, too.
    let missing = [
        "agent",
        "add",
        "gone",
        "--runtime",
        "command",
        "--command",
        "no-such-x",
        "--anyway",
    ];
    world.run_ok(&missing);
    world.run_ok(&["down"]);
    let output = world.run(&["doctor"]);
    assert_eq!(output.exit_code, 1, "{output:?}");
    assert!(
        output.stdout.contains("gone: no-such-x is not installed"),
        "{output:?}"
    );
}
