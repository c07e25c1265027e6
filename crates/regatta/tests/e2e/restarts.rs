//! `regatta stop NAME --again`, the restart of an agent, with real processes. Also agents that
//! reach the daemon again after its restart.

use serde_json::json;

use crate::world::{TEST_TIMEOUT, World, is_alive, run_command, wait_until};

/// Adds a task whose program logs its process id and then waits until the agent's pipe is opened.
/// Returns the log.
fn start_waiting_program(world: &World, agent: &str) -> std::path::PathBuf {
    let (pipe, log) = (
        world.root.join(format!("{agent}.pipe")),
        world.root.join(format!("{agent}.log")),
    );
    let mut mkfifo = std::process::Command::new("mkfifo");
    mkfifo.arg(&pipe);
    assert_eq!(run_command(mkfifo, None).exit_code, 0);
    let begins = format!(
        "echo $$ $PPID $(cat {agent}.txt 2>&1) >> '{}'",
        log.display()
    );
    let script = json!([
        { "run": begins },
        { "write": { "path": format!("{agent}.txt"), "text": "half done\n" } },
        { "run": format!("echo stands >> '{}'; exec cat '{}'", log.display(), pipe.display()) },
        { "append": { "path": format!("{agent}.txt"), "text": "done\n" } },
    ]);
    world.run_ok(&["agent", "add", agent, "--runtime", "scripted"]);
    let file = format!("{agent}.txt");
    world.run_ok(&[
        "add",
        agent,
        "--files",
        &file,
        "--assign",
        agent,
        "--queue",
        "--script",
        &script.to_string(),
    ]);
    log
}

/// Lets a waiting program go on.
fn open_pipe(world: &World, agent: &str) {
    std::fs::write(world.root.join(format!("{agent}.pipe")), "").unwrap();
}

/// A restart ends the old process before the new attempt starts from scratch. The old work and its
/// log are kept, and other agents are not affected.
#[test]
fn a_restarted_agent_loses_no_work() {
    let world = World::with_project();
    let (ann, bob) = (
        start_waiting_program(&world, "ann"),
        start_waiting_program(&world, "bob"),
    );
    let lines_of = |log: &std::path::Path| -> Vec<String> {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    };
    let has_started = |log: &std::path::Path, times: usize| {
        lines_of(log)
            .iter()
            .filter(|line| *line == "stands")
            .count()
            == times
    };
    assert!(
        wait_until(TEST_TIMEOUT, || has_started(&ann, 1)
            && has_started(&bob, 1)),
        "{:?}",
        world.run_json(&["status"])
    );
    let program = |line: &str| line.split(' ').nth(1).unwrap().parse::<u32>().unwrap();
    let (old, other) = (program(&lines_of(&ann)[0]), program(&lines_of(&bob)[0]));
    assert!(is_alive(old) && is_alive(other));
    let before = world.run_json(&["show", "T1"])["attempt"].clone();

    let output = world.run_ok(&["stop", "ann", "--again"]);
    assert!(output.contains("T1"), "{output}");
    assert!(
        wait_until(TEST_TIMEOUT, || has_started(&ann, 2)),
        "{:?}: {}",
        lines_of(&ann),
        world.run_json(&["why", "T1"])
    );
    assert!(!is_alive(old), "the old program is gone");
    let new = program(&lines_of(&ann)[2]);
    assert!(new != old && is_alive(new));
    assert!(
        lines_of(&ann)[2].ends_with("No such file or directory"),
        "the new attempt starts from scratch: {:?}",
        lines_of(&ann)
    );
    let shown = world.run_json(&["show", "T1"]);
    assert_ne!(shown["attempt"], before, "{shown}");
    assert_eq!(
        (&shown["word"], &shown["agent"], &shown["failures"]),
        (&json!("working"), &json!("ann"), &json!(0))
    );
    let attempts = shown["attempts"].as_array().unwrap();
    assert_eq!(
        (attempts.len(), &attempts[0]["ended"]["cause"]),
        (2, &json!("stopped")),
        "{shown}"
    );
    let vault = std::fs::read_dir(world.data_dir.join("vaults"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    // The new attempt does not wait until the old work is stored, because that is another effect.
    let kept = format!("refs/regatta/keep/{}", before.as_str().unwrap());
    assert!(
        wait_until(TEST_TIMEOUT, || world
            .git_in(&vault, &["for-each-ref", "refs/regatta/keep"])
            .contains(&kept)),
        "{kept}"
    );
    let kept = format!("{kept}:ann.txt");
    assert_eq!(
        world.git_in(&vault, &["show", &kept]),
        "half done",
        "the old work is kept"
    );
    assert!(
        world
            .run_ok(&["logs", before.as_str().unwrap()])
            .contains("ann.txt"),
        "the old log is kept"
    );
    assert!(
        is_alive(other) && has_started(&bob, 1),
        "another agent was affected"
    );
    assert!(world.run_json(&["inbox"]).as_array().unwrap().is_empty());

    open_pipe(&world, "ann");
    open_pipe(&world, "bob");
    assert!(wait_until(TEST_TIMEOUT, || {
        ["T1", "T2"]
            .iter()
            .all(|task| world.run_json(&["show", task])["word"] == "landed")
    }));
    assert_eq!(world.read_file("ann.txt"), "half done\ndone\n");
    assert!(
        wait_until(TEST_TIMEOUT, || world.foreign_processes().is_empty()),
        "{:?}",
        world.foreign_processes()
    );
    // An idle agent cannot be restarted.
    assert_eq!(
        world.run_refused(&["stop", "ann", "--again"], 1)["code"],
        "no_such_attempt"
    );
}

/// Returns the port of the daemon.
fn daemon_port(world: &World) -> u16 {
    let url = world.daemon_info().unwrap()["url"]
        .as_str()
        .unwrap()
        .to_owned();
    url.trim_end_matches('/')
        .rsplit(':')
        .next()
        .unwrap()
        .parse()
        .unwrap()
}

/// Starts the daemon without a chosen port.
fn start_daemon_with_defaults(world: &World) {
    let mut up = world.command(&["up"]);
    up.env_remove("REGATTA_LISTEN");
    let output = run_command(up, None);
    assert_eq!(output.exit_code, 0, "{output:?}");
}

/// P13: an agent reaches the daemon before and after a kill -9. The default port is taken by
/// another program, and the second time so is the daemon's own port.
#[test]
fn p13_a_live_agent_reaches_the_daemon_after_a_crash() {
    // If the port cannot be bound, another program has it, which serves the test as well.
    let _usual = std::net::TcpListener::bind(("127.0.0.1", 7777));
    let world = World::with_project();
    world.run_ok(&["down"]);
    start_daemon_with_defaults(&world);
    let (log, gate) = (world.root.join("calls"), world.root.join("gate"));
    let calls = format!(
        "while [ ! -e '{}' ]; do '{}' show T1 --json >/dev/null 2>&1 && echo ok >> '{}'; sleep \
        0.1; done",
        gate.display(),
        env!("CARGO_BIN_EXE_regatta"),
        log.display()
    );
    let script = json!([{ "run": calls }, { "write": { "path": "a.md", "text": "x\n" } }]);
    world.run_ok(&["agent", "add", "ann", "--runtime", "scripted"]);
    world.run_ok(&[
        "add",
        "Call",
        "--files",
        "a.md",
        "--assign",
        "ann",
        "--queue",
        "--script",
        &script.to_string(),
    ]);
    let many = || {
        std::fs::read_to_string(&log)
            .unwrap_or_default()
            .lines()
            .count()
    };
    assert!(
        wait_until(TEST_TIMEOUT, || many() >= 2),
        "the agent cannot reach the daemon: {}",
        world.run_json(&["status"])
    );
    let crash = |world: &World| {
        let daemon = world.daemon_info().unwrap()["pid"].as_u64().unwrap() as u32;
        crate::world::kill_process(daemon);
        assert!(wait_until(TEST_TIMEOUT, || !is_alive(daemon)));
    };

    let first = daemon_port(&world);
    crash(&world);
    start_daemon_with_defaults(&world);
    assert_eq!(daemon_port(&world), first, "the daemon keeps its port");
    let before = many();
    assert!(
        wait_until(TEST_TIMEOUT, || many() >= before + 2),
        "the agent does not reach the new daemon"
    );

    crash(&world);
    let stranger = std::net::TcpListener::bind(("127.0.0.1", first)).unwrap();
    start_daemon_with_defaults(&world);
    assert_ne!(daemon_port(&world), first);
    let before = many();
    assert!(
        wait_until(TEST_TIMEOUT, || many() >= before + 2),
        "the agent does not reach the daemon on its new port"
    );
    drop(stranger);
    std::fs::write(&gate, "").unwrap();
    let landed = wait_until(TEST_TIMEOUT, || {
        world.run_json(&["show", "T1"])["word"] == "landed"
    });
    assert!(landed, "{}", world.run_json(&["why", "T1"]));
}
