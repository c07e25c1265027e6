//! The demo, a newcomer's first command: seven tasks and three agents, and everything lands.

use std::path::{Path, PathBuf};

use crate::world::{World, assert_green_everywhere, path_text, processes_of};

fn leftovers(world: &World) -> Vec<PathBuf> {
    std::fs::read_dir(world.root.join("tmp"))
        .unwrap()
        .map(|result| result.unwrap().path())
        .collect()
}

/// Everything lands, and no directory and no process stays (P3).
#[test]
fn the_demo_lands_seven_tasks_and_leaves_nothing() {
    let world = World::new();
    let data = world.run_json(&["demo", "--no-input"]);
    assert_eq!(
        (&data["tasks"], &data["landed"]),
        (&7.into(), &7.into()),
        "{data}"
    );
    assert_eq!(
        data["url"],
        serde_json::Value::Null,
        "a daemon still runs: {data}"
    );
    assert_eq!(leftovers(&world), [] as [PathBuf; 0]);
    assert_eq!(world.processes(), [] as [u32; 0]);
    assert!(
        !world.data_dir.exists(),
        "the demo must use its own data directory"
    );
}

/// A kept demo is a clean repository with a linear history that passes its checks at every commit
/// (Q1). No process stays.
#[test]
fn a_kept_demo_is_green_at_every_commit() {
    let world = World::new();
    let data = world.run_json(&["demo", "--keep", "--no-input"]);
    assert_eq!(
        (&data["tasks"], &data["landed"]),
        (&7.into(), &7.into()),
        "{data}"
    );
    let repo = Path::new(data["repo"].as_str().unwrap());
    let commits = |args: &[&str]| -> Vec<String> {
        world
            .git_in(repo, &[&["rev-list"], args, &["main"]].concat())
            .lines()
            .map(str::to_owned)
            .collect()
    };
    let trunk = commits(&["--first-parent"]);
    assert_eq!(trunk.len(), 8, "one commit per task on top of the first");
    assert_eq!(
        commits(&["--merges"]),
        [] as [String; 0],
        "the history is linear"
    );
    assert_eq!(commits(&[]), trunk, "a commit is not on the trunk");
    assert_eq!(
        world.git_in(repo, &["status", "--porcelain"]),
        "",
        "the checkout follows the trunk"
    );
    assert_eq!(
        world.git_in(repo, &["symbolic-ref", "--short", "HEAD"]),
        "main"
    );
    assert_green_everywhere(&world, repo, &trunk);
    let tasks = world.git_in(
        repo,
        &[
            "log",
            "--format=%(trailers:key=Regatta-Task,valueonly)",
            "main",
        ],
    );
    let mut tasks: Vec<&str> = tasks.lines().filter(|task| !task.is_empty()).collect();
    tasks.sort_unstable();
    assert_eq!(
        tasks,
        ["T1", "T2", "T3", "T4", "T5", "T6", "T7"],
        "each task landed exactly once (Q7)"
    );
    assert_eq!(processes_of(repo.parent().unwrap()), [] as [u32; 0], "P3");
}

/// `--serve` leaves the daemon running. `--size` sets the number of agents and adds tasks.
#[test]
fn a_served_demo_of_six_agents_answers_commands() {
    let mut world = World::new();
    let data = world.run_json(&["demo", "--serve", "--size", "6", "--no-input"]);
    assert_eq!(
        (&data["agents"], &data["tasks"], &data["landed"]),
        (&6.into(), &13.into(), &13.into()),
        "{data}"
    );
    assert!(
        data["url"]
            .as_str()
            .unwrap()
            .starts_with("http://127.0.0.1:"),
        "{data}"
    );
    world.data_dir = PathBuf::from(data["data_dir"].as_str().unwrap());
    world.repo = PathBuf::from(data["repo"].as_str().unwrap());
    let pid = world.daemon_info().unwrap()["pid"].clone();
    let status = world.run_json(&["status"]);
    assert_eq!(status["completed"], 13, "{status}");
    assert_eq!(
        world.run_json(&["agent", "list"]).as_array().unwrap().len(),
        6
    );
    assert_eq!(
        world
            .run_json(&["task", "list", "--all"])
            .as_array()
            .unwrap()
            .len(),
        13
    );
    assert_eq!(
        world.run_json(&["up"])["pid"],
        pid,
        "the same daemon answers"
    );
    world.run_json(&["down"]);
    assert_eq!(world.processes(), [] as [u32; 0], "P3");
}

/// A served demo leaves decisions to people and prints the commands to type. Those commands land
/// everything.
#[test]
fn a_served_demo_leaves_decisions_to_people() {
    let mut world = World::new();
    let result = world.run(&["demo", "--serve", "--json"]);
    assert_eq!(result.exit_code, 0, "{result:?}");
    let output: serde_json::Value = serde_json::from_str(result.stdout.trim()).unwrap();
    let data = &output["data"];
    assert_eq!(
        (&data["needs_you"], &data["landed"]),
        (&1.into(), &5.into()),
        "{output}"
    );
    world.data_dir = PathBuf::from(data["data_dir"].as_str().unwrap());
    world.repo = PathBuf::from(data["repo"].as_str().unwrap());
    let next: Vec<&str> = output["next"]
        .as_array()
        .unwrap()
        .iter()
        .map(|output| output.as_str().unwrap())
        .collect();
    // The tests have no `regatta` on their PATH, so each command starts with the program's path.
    let program = Path::new(env!("CARGO_BIN_EXE_regatta"))
        .canonicalize()
        .unwrap();
    let expected = ["answer Q1 'one line'", "open", "status", "down"]
        .map(|words| format!("{} {words}", program.display()));
    assert_eq!(next[1..], expected, "{next:?}");
    assert_eq!(
        world.run_json(&["status"])["needs_you"],
        1,
        "a question needs a person"
    );
    world.run_ok(&["answer", "Q1", "one line"]);
    let reviewed = || world.run_json(&["show", "T6"])["word"] == "review";
    assert!(
        crate::world::wait_until(crate::world::TEST_TIMEOUT, reviewed),
        "T6 is not in review"
    );
    world.run_ok(&["land", "T6", "--wait"]);
    assert_eq!(world.run_json(&["status"])["completed"], 7);
    world.run_json(&["down"]);
    assert_eq!(world.processes(), [] as [u32; 0], "P3");
}

/// The question of a served demo comes with a command that works in any shell, also where no program
/// `regatta` is installed.
#[test]
fn a_served_demo_prints_a_command_that_answers_its_question() {
    let mut world = World::new();
    let output = world.run(&["demo", "--serve"]);
    assert_eq!(output.exit_code, 0, "{output:?}");
    let mut lines = output.stdout.lines();
    assert!(
        lines.any(|line| line.starts_with("needs  Q1 ")),
        "{output:?}"
    );
    let command = lines.next().unwrap().trim();
    assert!(
        command.starts_with("REGATTA_DATA_DIR=/") && command.ends_with("answer Q1 'one line'"),
        "{command}"
    );
    let data_dir = command.split(['=', ' ']).nth(1).unwrap();
    world.data_dir = PathBuf::from(data_dir);
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", command]).current_dir("/");
    world.clean_environment(&mut shell);
    shell.env_remove("REGATTA_DATA_DIR");
    let answered = crate::world::run_command(shell, None);
    assert_eq!(answered.exit_code, 0, "{command}: {answered:?}");
    assert_eq!(world.run_json(&["inbox"]), serde_json::json!([]));
    // A project of a person must not get into the store of the demo, which is deleted.
    let refused = world.run_refused(&["init"], 1);
    assert_eq!(refused["hint"], "unset REGATTA_DATA_DIR", "{refused}");
    let end = output.stdout.lines().find(|line| line.starts_with("end "));
    let top = Path::new(data_dir).parent().unwrap().to_str().unwrap();
    assert!(
        end.unwrap().ends_with(&format!("down && rm -r {top}")),
        "{output:?}"
    );
    world.run_json(&["down"]);
    assert_eq!(world.processes(), [] as [u32; 0], "P3");
}

/// The demo prints the table, the graph of commits and the next commands for people.
#[test]
fn the_demo_ends_with_the_commands_to_type_next() {
    let world = World::new();
    let output = world.run(&["demo", "--no-input"]);
    assert_eq!(output.exit_code, 0, "{output:?}");
    assert!(
        output
            .stderr
            .contains("no API key, nothing leaves this machine"),
        "{output:?}"
    );
    assert_eq!(
        output
            .stdout
            .lines()
            .filter(|stdout| stdout.contains("✓ landed"))
            .count(),
        7,
        "{output:?}"
    );
    assert_eq!(
        output
            .stdout
            .lines()
            .filter(|stdout| stdout.starts_with("* "))
            .count(),
        8,
        "{output:?}"
    );
    assert_eq!(
        output
            .stderr
            .lines()
            .filter(|stderr| stderr.contains(" landed "))
            .count(),
        7,
        "each landing has its line: {output:?}"
    );
    for words in [
        "done   7 of 7 landed",
        "regatta demo --keep   keeps the repository",
        "yours  cd your-repo && ",
        "regatta init && ",
    ] {
        assert!(output.stdout.contains(words), "{words}: {output:?}");
    }
    assert!(
        !output.stdout.contains('\x1b') && !output.stderr.contains('\x1b'),
        "no escape sequences without a terminal: {output:?}"
    );
}

/// A missing temporary directory gives an error with a fix, not a panic.
#[test]
fn a_demo_without_a_temporary_directory_names_the_fix() {
    let world = World::new();
    let mut command = world.command(&["demo", "--no-input", "--json"]);
    command.env("TMPDIR", path_text(&world.root.join("nowhere")));
    let output = crate::world::run_command(command, None);
    assert_eq!(output.exit_code, 1, "{output:?}");
    assert!(
        output
            .stderr
            .contains("set TMPDIR to a directory with free space"),
        "{output:?}"
    );
}
