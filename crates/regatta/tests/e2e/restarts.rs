//! `regatta stop NAME --again`, the restart of an agent, with real processes. Also agents that
//! reach the daemon again after its restart.

use serde_json::json;

use crate::world::{LONG, World, alive, run, until};

/// Adds a task whose program logs its process id and then waits until the agent's pipe is opened.
/// Returns the log.
fn stands_still(world: &World, agent: &str) -> std::path::PathBuf {
    let (pipe, log) = (world.root.join(format!("{agent}.pipe")), world.root.join(format!("{agent}.log")));
    let mut mkfifo = std::process::Command::new("mkfifo");
    mkfifo.arg(&pipe);
    assert_eq!(run(mkfifo, None).code, 0);
    let begins = format!("echo $$ $PPID $(cat {agent}.txt 2>&1) >> '{}'", log.display());
    let script = json!([
        { "run": begins },
        { "write": { "path": format!("{agent}.txt"), "text": "half done\n" } },
        { "run": format!("echo stands >> '{}'; exec cat '{}'", log.display(), pipe.display()) },
        { "append": { "path": format!("{agent}.txt"), "text": "done\n" } },
    ]);
    world.ok(&["agent", "add", agent, "--runtime", "scripted"]);
    let file = format!("{agent}.txt");
    world.ok(&["add", agent, "--files", &file, "--assign", agent, "--queue", "--script", &script.to_string()]);
    log
}

/// Lets a waiting program go on.
fn open(world: &World, agent: &str) {
    std::fs::write(world.root.join(format!("{agent}.pipe")), "").unwrap();
}

/// A restart ends the old process before the new attempt starts from scratch. The old work and its
/// log are kept, and other agents are not affected.
#[test]
fn a_restarted_agent_loses_no_work() {
    let world = World::set_up();
    let (ann, bob) = (stands_still(&world, "ann"), stands_still(&world, "bob"));
    let told = |log: &std::path::Path| -> Vec<String> {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    };
    let stands = |log: &std::path::Path, times: usize| told(log).iter().filter(|it| *it == "stands").count() == times;
    assert!(until(LONG, || stands(&ann, 1) && stands(&bob, 1)), "{:?}", world.json(&["status"]));
    let program = |line: &str| line.split(' ').nth(1).unwrap().parse::<u32>().unwrap();
    let (old, other) = (program(&told(&ann)[0]), program(&told(&bob)[0]));
    assert!(alive(old) && alive(other));
    let before = world.json(&["show", "T1"])["attempt"].clone();

    let said = world.ok(&["stop", "ann", "--again"]);
    assert!(said.contains("T1"), "{said}");
    assert!(until(LONG, || stands(&ann, 2)), "{:?}: {}", told(&ann), world.json(&["why", "T1"]));
    assert!(!alive(old), "the old program is gone");
    let new = program(&told(&ann)[2]);
    assert!(new != old && alive(new));
    assert!(
        told(&ann)[2].ends_with("No such file or directory"),
        "the new attempt starts from scratch: {:?}",
        told(&ann)
    );
    let shown = world.json(&["show", "T1"]);
    assert_ne!(shown["attempt"], before, "{shown}");
    assert_eq!((&shown["word"], &shown["agent"], &shown["failures"]), (&json!("working"), &json!("ann"), &json!(0)));
    let attempts = shown["attempts"].as_array().unwrap();
    assert_eq!((attempts.len(), &attempts[0]["ended"]["cause"]), (2, &json!("stopped")), "{shown}");
    let vault = std::fs::read_dir(world.data.join("vaults")).unwrap().next().unwrap().unwrap().path();
    // The new attempt does not wait until the old work is stored, because that is another effect.
    let kept = format!("refs/regatta/keep/{}", before.as_str().unwrap());
    assert!(until(LONG, || world.git_in(&vault, &["for-each-ref", "refs/regatta/keep"]).contains(&kept)), "{kept}");
    let kept = format!("{kept}:ann.txt");
    assert_eq!(world.git_in(&vault, &["show", &kept]), "half done", "the old work is kept");
    assert!(world.ok(&["logs", before.as_str().unwrap()]).contains("ann.txt"), "the old log is kept");
    assert!(alive(other) && stands(&bob, 1), "another agent was affected");
    assert!(world.json(&["inbox"]).as_array().unwrap().is_empty());

    open(&world, "ann");
    open(&world, "bob");
    assert!(until(LONG, || ["T1", "T2"].iter().all(|it| world.json(&["show", it])["word"] == "landed")));
    assert_eq!(world.read("ann.txt"), "half done\ndone\n");
    assert!(until(LONG, || world.programs().is_empty()), "{:?}", world.programs());
    // An idle agent cannot be restarted.
    assert_eq!(world.refused(&["stop", "ann", "--again"], 1)["code"], "no_such_attempt");
}

/// Returns the port of the daemon.
fn port_of(world: &World) -> u16 {
    let url = world.card().unwrap()["url"].as_str().unwrap().to_owned();
    url.trim_end_matches('/').rsplit(':').next().unwrap().parse().unwrap()
}

/// Starts the daemon without a chosen port.
fn up_by_default(world: &World) {
    let mut up = world.command(&["up"]);
    up.env_remove("REGATTA_LISTEN");
    let ran = run(up, None);
    assert_eq!(ran.code, 0, "{ran:?}");
}

/// P13: an agent reaches the daemon before and after a kill -9. The default port is taken by
/// another program, and the second time so is the daemon's own port.
#[test]
fn p13_a_live_agent_reaches_the_daemon_after_a_crash() {
    // If the port cannot be bound, another program has it, which serves the test as well.
    let _usual = std::net::TcpListener::bind(("127.0.0.1", 7777));
    let world = World::set_up();
    world.ok(&["down"]);
    up_by_default(&world);
    let (log, gate) = (world.root.join("calls"), world.root.join("gate"));
    let calls = format!(
        "while [ ! -e '{}' ]; do '{}' show T1 --json >/dev/null 2>&1 && echo ok >> '{}'; sleep 0.1; done",
        gate.display(),
        env!("CARGO_BIN_EXE_regatta"),
        log.display()
    );
    let script = json!([{ "run": calls }, { "write": { "path": "a.md", "text": "x\n" } }]);
    world.ok(&["agent", "add", "ann", "--runtime", "scripted"]);
    world.ok(&["add", "Call", "--files", "a.md", "--assign", "ann", "--queue", "--script", &script.to_string()]);
    let many = || std::fs::read_to_string(&log).unwrap_or_default().lines().count();
    assert!(until(LONG, || many() >= 2), "the agent cannot reach the daemon: {}", world.json(&["status"]));
    let crash = |world: &World| {
        let daemon = world.card().unwrap()["pid"].as_u64().unwrap() as u32;
        crate::world::kill(daemon);
        assert!(until(LONG, || !alive(daemon)));
    };

    let first = port_of(&world);
    crash(&world);
    up_by_default(&world);
    assert_eq!(port_of(&world), first, "the daemon keeps its port");
    let before = many();
    assert!(until(LONG, || many() >= before + 2), "the agent does not reach the new daemon");

    crash(&world);
    let stranger = std::net::TcpListener::bind(("127.0.0.1", first)).unwrap();
    up_by_default(&world);
    assert_ne!(port_of(&world), first);
    let before = many();
    assert!(until(LONG, || many() >= before + 2), "the agent does not reach the daemon on its new port");
    drop(stranger);
    std::fs::write(&gate, "").unwrap();
    let landed = until(LONG, || world.json(&["show", "T1"])["word"] == "landed");
    assert!(landed, "{}", world.json(&["why", "T1"]));
}
