//! The daemon aborts at each failpoint of the queue. Nothing is lost, nothing lands twice, and the
//! queue goes on.

use std::collections::BTreeMap;
use std::io::Write;

use crate::world::{TEST_TIMEOUT, World, is_alive, wait_until};

/// Returns a plan of two tasks that end once the file `gate` exists.
fn plan_with_gate(round: usize, gate: &str) -> String {
    let task = |name: &str| {
        format!(
            "[[task]]\nid = \"{name}{round}\"\nsubject = \"Write {name}{round}\"\nfiles = \
             [\"{name}{round}.txt\"]\n\
             script = [{{ write = {{ path = \"{name}{round}.txt\", text = \"{name}{round}\\n\" }} \
             }}, \
             {{ run = \"while [ ! -e {gate} ]; do sleep 0.02; done\" }}]\n"
        )
    };
    task("a") + &task("b")
}

/// Returns how many commits of the trunk each task has, by the trailer.
fn commits_per_task(world: &World) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for task in world
        .git(&[
            "log",
            "--format=%(trailers:key=Regatta-Task,valueonly)",
            "main",
        ])
        .split_whitespace()
    {
        *counts.entry(task.to_owned()).or_default() += 1;
    }
    counts
}

/// Pushes a commit from another clone.
fn push_from_elsewhere(world: &World, remote: &std::path::Path, round: usize) {
    let clone = world.root.join(format!("clone{round}"));
    world.git_in(
        &world.root,
        &[
            "clone",
            "-q",
            remote.to_str().unwrap(),
            clone.to_str().unwrap(),
        ],
    );
    std::fs::write(clone.join(format!("theirs{round}.txt")), "theirs\n").unwrap();
    world.git_in(&clone, &["add", "-A"]);
    world.git_in(&clone, &["commit", "-q", "-m", "Theirs"]);
    world.git_in(&clone, &["push", "-q", "origin", "HEAD:main"]);
}

/// Q1, Q2, Q4, Q7, Q8, J8, D2: the daemon aborts at every failpoint while two branches are on their
/// way to the trunk.
#[test]
fn q7_no_failpoint_loses_or_repeats_a_landing() {
    let times = std::env::var("REGATTA_FAILPOINT_TIMES")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(1);
    let world = World::with_repo();
    let (after, remote) = (world.root.join("after"), world.root.join("remote.git"));
    world.git_in(
        &world.root,
        &[
            "init",
            "-q",
            "--bare",
            "-b",
            "main",
            remote.to_str().unwrap(),
        ],
    );
    world.git(&["remote", "add", "origin", remote.to_str().unwrap()]);
    world.run_ok(&["init", "--yes"]);
    let settings = world.read_file("regatta.toml");
    let landing = format!(
        "[landing]\npush = \"origin\"\nafter = [\"echo $REGATTA_TASK >> {}\"]\n",
        after.display()
    );
    let content: String = settings
        .lines()
        .take_while(|setting| !setting.starts_with("[landing]"))
        .map(|setting| format!("{setting}\n"))
        .collect();
    world.write_file("regatta.toml", &(content + &landing));
    world.run_ok(&["init", "--yes"]);
    world.commit_all("Use regatta");
    world.run_ok(&[
        "agent",
        "add",
        "robot",
        "--runtime",
        "scripted",
        "--max-tasks",
        "2",
    ]);
    let points = world.run_json(&["failpoints"]);
    let points: Vec<String> = points
        .as_array()
        .unwrap()
        .iter()
        .map(|point| point.as_str().unwrap().to_owned())
        .collect();
    assert!(points.len() >= 20, "{points:?}");

    let mut all: Vec<String> = Vec::new();
    for (round, point) in (0..times).flat_map(|_| &points).enumerate() {
        // The work starts before the daemon with the failpoint does, and ends only after that.
        let gate = world.root.join(format!("gate{round}"));
        let path = world.write_plan(&plan_with_gate(round, gate.to_str().unwrap()));
        let mission = world.run_json(&["run", &path, "--agents", "robot", "--yes"]);
        let tasks = mission["tasks"]
            .as_array()
            .unwrap()
            .iter()
            .map(|mission| mission["id"].as_str().unwrap().to_owned());
        all.extend(tasks);
        world.run_ok(&["down", "--keep-agents"]);
        let nth = if point.starts_with("commit.") { 6 } else { 1 };
        let mut up = world.command(&["up", "--json"]);
        up.env("REGATTA_FAILPOINT", format!("{point}:{nth}"));
        let output = crate::world::run_command(up, None);
        if point.starts_with("join.") {
            push_from_elsewhere(&world, &remote, round);
        }
        std::fs::write(&gate, "").unwrap();
        // Leftover work of the previous round may reach the failpoint before the daemon is ready.
        // That crash counts as well.
        if output.exit_code == 0 {
            let pid =
                serde_json::from_str::<serde_json::Value>(&output.stdout).unwrap()["data"]["pid"]
                    .as_u64()
                    .unwrap();
            assert!(
                wait_until(TEST_TIMEOUT, || !is_alive(pid as u32)),
                "{point} was never reached"
            );
        } else {
            assert!(
                output.stderr.contains("ended before it was ready"),
                "{point}: {output:?}"
            );
        }

        world.run_ok(&["up"]);
        for task in &all[all.len() - 2..] {
            let landed = || world.run_json(&["show", task])["word"] == "landed";
            assert!(
                wait_until(TEST_TIMEOUT, landed),
                "J1, Q8: {task} did not land after {point}: {}",
                world.run_json(&["why", task])
            );
        }
        assert!(
            commits_per_task(&world).values().all(|count| *count == 1),
            "Q7: after {point}: {:?}",
            commits_per_task(&world)
        );
        assert_eq!(
            commits_per_task(&world).len(),
            all.len(),
            "J1: after {point}"
        );
        let pushed = || {
            let there = world.git_in(
                &remote,
                &["for-each-ref", "--format=%(objectname)", "refs/heads/main"],
            );
            there == world.git(&["rev-parse", "main"])
        };
        assert!(
            wait_until(TEST_TIMEOUT, pushed),
            "the trunk was not pushed after {point}"
        );
        let run_count = || {
            std::fs::read_to_string(&after)
                .unwrap_or_default()
                .lines()
                .count()
        };
        assert!(
            wait_until(TEST_TIMEOUT, || run_count() >= all.len()),
            "a command after a landing did not run: {point}"
        );
        assert_eq!(
            run_count(),
            all.len(),
            "J8: a command after a landing ran twice: {point}"
        );
        assert_eq!(
            world.git(&["status", "--porcelain"]),
            "",
            "the checkout does not follow the trunk after {point}"
        );
    }
    world.assert_green_everywhere();
    let queue = world.run_json(&["queue"]);
    assert_eq!(queue[0]["queue"].as_array().unwrap().len(), 0, "{queue}");
    assert_eq!(
        world.git(&["rev-list", "--min-parents=2", "main"]),
        "",
        "the trunk's history is not linear"
    );
    let _shown = writeln!(
        std::io::stdout(),
        "{} failpoints, {times} times each",
        points.len()
    );
}
