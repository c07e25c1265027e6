//! The prompts of agents, as they reach the programs. `golden/prompt_*.md` show a whole prompt of each kind.

use std::fs;

use crate::fixups;
use crate::world::{LONG, World, until};

/// A program that keeps its prompt and ends well. It writes the file of its task.
const PROGRAM: &str = "#!/bin/sh\ncat > /dev/null\nmkdir -p src\necho 'pub fn limit() {}' > src/limit.rs\n";

/// A repository with a worker that has tools, one that has none, and a lead.
fn world() -> World {
    let world = World::set_up();
    world.write("README.md", "The shop\n");
    world.commit("Describe the shop");
    let program = world.root.join("program.sh");
    fs::write(&program, PROGRAM).unwrap();
    let command = format!("sh {}", program.display());
    world.ok(&["agent", "add", "plain", "--runtime", "command", "--command", &command, "--confine", "off"]);
    let acp = format!("{} scripted-agent --acp", env!("CARGO_BIN_EXE_regatta"));
    for name in ["tooled", "boss"] {
        world.ok(&["agent", "add", name, "--runtime", "acp", "--command", &acp, "--confine", "off"]);
    }
    world
}

/// Returns the prompt of an attempt, without what differs from run to run.
fn prompt(world: &World, attempt: &str) -> String {
    let path = world.data.join("attempts").join(attempt).join("prompt.md");
    assert!(until(LONG, || path.is_file()), "{}", world.ok(&["status"]));
    let text = fs::read_to_string(path).unwrap().replace(world.root.to_str().unwrap(), "ROOT");
    let is_commit = |word: &str| word.len() == 40 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let mut plain = String::new();
    for part in text.split_inclusive(|letter: char| !letter.is_ascii_alphanumeric()) {
        let word = part.trim_end_matches(|letter: char| !letter.is_ascii_alphanumeric());
        plain += &if is_commit(word) { part.replace(word, "COMMIT") } else { part.to_owned() };
    }
    plain
}

fn add_limiter(world: &World) {
    world.ok(&[
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

/// One way to end: `finish` with tools, a result file without. A short briefing is part of the prompt.
#[test]
fn a_worker_is_told_one_way_to_end() {
    for agent in ["tooled", "plain"] {
        let world = world();
        add_limiter(&world);
        world.ok(&["run", "--agents", agent, "--yes"]);
        let told = prompt(&world, "A1");
        crate::golden::check(&format!("prompt_worker_{agent}.md"), &told);
        let has_tools = agent == "tooled";
        assert_eq!(told.contains("`finish`"), has_tools, "{told}");
        assert_eq!(told.contains("REGATTA_RESULT"), !has_tools, "{told}");
        assert_eq!(told.contains("exit with code 0"), !has_tools, "{told}");
        assert!(!told.contains("briefing.md") && told.contains("README.md"), "{told}");
        assert!(!told.contains("Nothing is known"), "{told}");
        let briefing = fs::read_to_string(world.data.join("workspaces/shop/T1/.regatta/briefing.md"));
        if let Ok(briefing) = briefing {
            assert!(briefing.contains("## PROTOCOL") && briefing.contains("## HISTORY"), "{briefing}");
        }
    }
}

/// A lead learns its workers and what its tools are for. It has no `finish`, which would end nothing.
#[test]
fn a_lead_is_told_its_workers_and_its_tools() {
    let world = world();
    let settings = world.read("regatta.toml");
    let kept: String =
        settings.lines().take_while(|line| !line.starts_with("[leads]")).map(|line| format!("{line}\n")).collect();
    world.write("regatta.toml", &format!("{kept}[leads]\nagent = \"boss\"\nworkers = [\"plain\"]\nmax_workers = 2\n"));
    world.commit("Let boss lead");
    world.ok(&["mission", "start", "Limit all requests"]);
    let told = prompt(&world, "A1");
    crate::golden::check("prompt_lead.md", &told);
    assert!(told.contains("(sh): works on 0 of 1 tasks"), "{told}");
    assert!(told.contains("`mission_finish`") && !told.contains("`finish`"), "{told}");
    assert!(!told.contains("REGATTA_RESULT"), "{told}");
}

/// A planner learns the project's checks and how many tasks can run at once.
#[test]
fn a_planner_is_told_the_checks_and_the_workers() {
    let world = world();
    let child =
        world.run(&["run", "Add login with rate limits", "--planner", "tooled", "--no-input", "--timeout", "1s"]);
    let told = prompt(&world, "A1");
    crate::golden::check("prompt_planner.md", &told);
    assert!(told.contains("Regatta runs `sh ./test.sh`") || told.contains("has no checks"), "{told}\n{child:?}");
    assert!(told.contains("Its `detail` is the plan"), "{told}");
    assert!(!told.contains("learnings") && !told.contains("scope_escapes"), "{told}");
}

/// A fix-up begins with what is to be done now, and ends with the task that is done.
#[test]
fn a_fixup_is_told_what_conflicts_first() {
    let world = fixups::world("");
    let task = fixups::start(&world, "a.txt");
    world.write("a.txt", "ann's\n");
    world.commit("Change it too");
    let told = prompt(&world, &fixups::fixup(&world, &task));
    crate::golden::check("prompt_fixup.md", &told);
    let (now, order) = (told.find("leave no conflict marks").unwrap(), told.find("Write the file.").unwrap());
    assert!(now < order, "{told}");
}
