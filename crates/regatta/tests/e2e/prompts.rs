//! The prompts of agents, as they reach the programs. `golden/prompt_*.md` have one complete prompt
//! of each kind.

use std::fs;

use crate::fixups;
use crate::world::{TEST_TIMEOUT, World, wait_until};

/// A program that writes the file of its task and succeeds.
const WORKER_SCRIPT: &str =
    "#!/bin/sh\ncat > /dev/null\nmkdir -p src\necho 'pub fn limit() {}' > src/limit.rs\n";

/// Creates a repository with a worker with tools, a worker without tools, and a lead.
fn world_with_agents() -> World {
    let world = World::with_project();
    world.write_file("README.md", "The shop\n");
    world.commit_all("Describe the shop");
    let program = world.root.join("program.sh");
    fs::write(&program, WORKER_SCRIPT).unwrap();
    let command = format!("sh {}", program.display());
    world.run_ok(&[
        "agent",
        "add",
        "plain",
        "--runtime",
        "command",
        "--command",
        &command,
        "--confine",
        "off",
    ]);
    let acp = format!("{} scripted-agent --acp", env!("CARGO_BIN_EXE_regatta"));
    for name in ["tooled", "boss"] {
        world.run_ok(&[
            "agent",
            "add",
            name,
            "--runtime",
            "acp",
            "--command",
            &acp,
            "--confine",
            "off",
        ]);
    }
    world
}

/// Returns the prompt of an attempt, without the parts that differ from run to run.
fn prompt_of(world: &World, attempt: &str) -> String {
    let path = world
        .data_dir
        .join("attempts")
        .join(attempt)
        .join("prompt.md");
    assert!(
        wait_until(TEST_TIMEOUT, || path.is_file()),
        "{}",
        world.run_ok(&["status"])
    );
    let text = fs::read_to_string(path)
        .unwrap()
        .replace(world.root.to_str().unwrap(), "ROOT");
    let is_commit =
        |word: &str| word.len() == 40 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let mut plain = String::new();
    for part in text.split_inclusive(|letter: char| !letter.is_ascii_alphanumeric()) {
        let word = part.trim_end_matches(|letter: char| !letter.is_ascii_alphanumeric());
        plain += &if is_commit(word) {
            part.replace(word, "COMMIT")
        } else {
            part.to_owned()
        };
    }
    plain
}

fn add_limiter_task(world: &World) {
    world.run_ok(&[
        "add",
        "Add a rate limiter",
        "--description",
        "Requests are limited to 5 per minute.",
        "--type",
        "feature",
        "--files",
        "src/limit.rs",
        "--validate",
        "cargo test limit",
    ]);
}

/// A worker's prompt has one way to end: the tool `finish` if it has tools, or else a result file.
/// A short briefing is part of the prompt.
#[test]
fn the_prompt_of_a_worker_has_one_way_to_end() {
    for agent in ["tooled", "plain"] {
        let world = world_with_agents();
        add_limiter_task(&world);
        world.run_ok(&["run", "--agents", agent, "--yes"]);
        let prompt = prompt_of(&world, "A1");
        crate::golden::assert_golden(&format!("prompt_worker_{agent}.md"), &prompt);
        let has_tools = agent == "tooled";
        assert_eq!(prompt.contains("`finish`"), has_tools, "{prompt}");
        assert_eq!(prompt.contains("REGATTA_RESULT"), !has_tools, "{prompt}");
        assert_eq!(prompt.contains("exit with code 0"), !has_tools, "{prompt}");
        assert!(
            !prompt.contains("briefing.md") && prompt.contains("README.md"),
            "{prompt}"
        );
        assert!(!prompt.contains("Nothing is known"), "{prompt}");
        let briefing = fs::read_to_string(
            world
                .data_dir
                .join("workspaces/shop/T1/.regatta/briefing.md"),
        );
        if let Ok(briefing) = briefing {
            assert!(
                briefing.contains("## PROTOCOL") && briefing.contains("## HISTORY"),
                "{briefing}"
            );
        }
    }
}

/// A lead's prompt lists its workers and the purpose of its tools. It has no `finish`, which would
/// end nothing.
#[test]
fn the_prompt_of_a_lead_has_its_workers_and_tools() {
    let world = world_with_agents();
    let settings = world.read_file("regatta.toml");
    let content: String = settings
        .lines()
        .take_while(|line| !line.starts_with("[leads]"))
        .map(|line| format!("{line}\n"))
        .collect();
    world.write_file(
        "regatta.toml",
        &format!("{content}[leads]\nagent = \"boss\"\nworkers = [\"plain\"]\nmax_workers = 2\n"),
    );
    world.commit_all("Let boss lead");
    world.run_ok(&["mission", "start", "Limit all requests"]);
    let prompt = prompt_of(&world, "A1");
    crate::golden::assert_golden("prompt_lead.md", &prompt);
    assert!(prompt.contains("(sh): works on 0 of 1 tasks"), "{prompt}");
    assert!(
        prompt.contains("`mission_finish`") && !prompt.contains("`finish`"),
        "{prompt}"
    );
    assert!(!prompt.contains("REGATTA_RESULT"), "{prompt}");
}

/// A planner's prompt has the project's checks and the number of tasks that can run at once.
#[test]
fn the_prompt_of_a_planner_has_the_checks_and_the_workers() {
    let world = world_with_agents();
    let child = world.run(&[
        "run",
        "Add login with rate limits",
        "--planner",
        "tooled",
        "--no-input",
        "--timeout",
        "1s",
    ]);
    let prompt = prompt_of(&world, "A1");
    crate::golden::assert_golden("prompt_planner.md", &prompt);
    assert!(
        prompt.contains("Regatta runs `sh ./test.sh`") || prompt.contains("has no checks"),
        "{prompt}\n{child:?}"
    );
    assert!(prompt.contains("Its `detail` is the plan"), "{prompt}");
    assert!(
        !prompt.contains("learnings") && !prompt.contains("scope_escapes"),
        "{prompt}"
    );
}

/// A fix-up's prompt starts with the present job, and has the finished task at the end.
#[test]
fn the_prompt_of_a_fixup_starts_with_the_conflict() {
    let world = fixups::world_with_check("");
    let task = fixups::start_waiting_task(&world, "a.txt");
    world.write_file("a.txt", "ann's\n");
    world.commit_all("Change it too");
    let prompt = prompt_of(&world, &fixups::wait_for_fixup(&world, &task));
    crate::golden::assert_golden("prompt_fixup.md", &prompt);
    let (now, order) = (
        prompt.find("leave no conflict marks").unwrap(),
        prompt.find("Write the file.").unwrap(),
    );
    assert!(now < order, "{prompt}");
}
