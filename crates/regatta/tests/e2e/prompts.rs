//! The prompts of agents, as they reach the programs. `golden/prompt_*.md` have one complete prompt
//! of each kind.

use std::fs;

use crate::fixups;
use crate::world::{LONG, World, until};

/// A program that writes the file of its task and succeeds.
const PROGRAM: &str = "#!/bin/sh\ncat > /dev/null\nmkdir -p src\necho 'pub fn limit() {}' > src/limit.rs\n";

/// Creates a repository with a worker with tools, a worker without tools, and a lead.
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

/// Returns the prompt of an attempt, without the parts that differ from run to run.
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

/// A worker's prompt has one way to end: the tool `finish` if it has tools, or else a result file.
/// A short briefing is part of the prompt.
#[test]
fn the_prompt_of_a_worker_has_one_way_to_end() {
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

/// A lead's prompt lists its workers and the purpose of its tools. It has no `finish`, which would
/// end nothing.
#[test]
fn the_prompt_of_a_lead_has_its_workers_and_tools() {
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

/// A planner's prompt has the project's checks and the number of tasks that can run at once.
#[test]
fn the_prompt_of_a_planner_has_the_checks_and_the_workers() {
    let world = world();
    let child =
        world.run(&["run", "Add login with rate limits", "--planner", "tooled", "--no-input", "--timeout", "1s"]);
    let told = prompt(&world, "A1");
    crate::golden::check("prompt_planner.md", &told);
    assert!(told.contains("Regatta runs `sh ./test.sh`") || told.contains("has no checks"), "{told}\n{child:?}");
    assert!(told.contains("Its `detail` is the plan"), "{told}");
    assert!(!told.contains("learnings") && !told.contains("scope_escapes"), "{told}");
}

/// A fix-up's prompt starts with the present job, and has the finished task at the end.
#[test]
fn the_prompt_of_a_fixup_starts_with_the_conflict() {
    let world = fixups::world("");
    let task = fixups::start(&world, "a.txt");
    world.write("a.txt", "ann's\n");
    world.commit("Change it too");
    let told = prompt(&world, &fixups::fixup(&world, &task));
    crate::golden::check("prompt_fixup.md", &told);
    let (now, order) = (told.find("leave no conflict marks").unwrap(), told.find("Write the file.").unwrap());
    assert!(now < order, "{told}");
}
