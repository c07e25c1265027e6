//! Runs every command of `examples/README.md`, in order, in a new repository.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::world::{TEST_TIMEOUT, World, run_command_for, wait_until};

/// Returns the commands of the README's shell blocks.
fn readme_commands(readme: &str) -> Vec<String> {
    let mut found = Vec::new();
    for block in readme.split("```sh\n").skip(1) {
        let (block, _) = block.split_once("```").expect("every block ends");
        found.extend(
            block
                .lines()
                .filter(|line| !line.trim().is_empty())
                .map(str::to_owned),
        );
    }
    found
}

#[test]
fn every_command_of_the_examples_works() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let world = World::with_repo();
    let mut named = Vec::new();
    for entry in fs::read_dir(&examples).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        world.write_file(
            &format!("examples/{name}"),
            &fs::read_to_string(&path).unwrap(),
        );
        named.push(name);
    }
    world.commit_all("Add the examples");
    let bin = world.root.join("bin");
    fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_regatta"), bin.join("regatta")).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let readme = world.read_file("examples/README.md");
    for name in named.iter().filter(|name| *name != "README.md") {
        assert!(
            readme.contains(&format!("examples/{name}")),
            "the README does not use {name}"
        );
    }
    let commands = readme_commands(&readme);
    assert!(commands.len() > 10, "{commands:?}");
    for command in &commands {
        let mut shell = std::process::Command::new("sh");
        shell
            .args(["-c", command])
            .current_dir(&world.repo)
            .stdin(std::process::Stdio::null());
        world.clean_environment(&mut shell);
        let ran = run_command_for(
            {
                shell.env("PATH", &path);
                shell
            },
            None,
            TEST_TIMEOUT,
        );
        let ran = ran.unwrap_or_else(|| panic!("{command} did not end"));
        assert_eq!(ran.exit_code, 0, "{command}: {ran:?}");
    }
    assert_eq!(world.read_file("greeting.txt"), "Ahoy from mine\n");
    let subjects = || world.git(&["log", "--format=%s", "main"]);
    // The README does not wait for the second wave, which starts after the answer to the question.
    let is_drawn = || subjects().lines().any(|line| line == "Draw the chart");
    assert!(wait_until(TEST_TIMEOUT, is_drawn), "{}", subjects());
    for subject in [
        "List the boats",
        "List the berths",
        "Link both lists",
        "Place the buoys",
        "Choose the lights",
        "Write a greeting",
    ] {
        assert!(
            subjects().lines().any(|line| line == subject),
            "{subject}: {}",
            subjects()
        );
    }
    // The hook fires on the next task.
    world.run_ok(&[
        "add",
        "Write another",
        "--files",
        "other.txt",
        "--validate",
        "true",
        "--assign",
        "mine",
    ]);
    let log = || world.run_json(&["hook", "log"]);
    let has_worked = |firing: &Value| {
        let output = firing["output"].as_str().unwrap_or_default();
        firing["ended"]["exited"] == 0
            && output.starts_with("task.completed: T")
            && output.ends_with(" of shop\n")
    };
    let has_fired = || {
        log()
            .as_array()
            .is_some_and(|log| log.iter().any(has_worked))
    };
    assert!(
        wait_until(TEST_TIMEOUT, has_fired),
        "{}\n{}",
        log(),
        world.run_ok(&["status"])
    );
}
