//! Checks.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use regatta_engine::ports::agents::{Agents, Check, CheckResult, Exit};

use crate::support::{LONG, World, eventually, fixture, signal};

fn check(world: &World, command: &str, timeout: Duration) -> CheckResult {
    let env = vec![("TOKEN".to_owned(), world.token.clone())];
    let check = Check { command: command.to_owned(), dir: world.workspace.clone(), env, timeout, once: None };
    let result = world.adapter.check(&check).unwrap();
    world.assert_nothing_runs();
    let left = fs::read_dir(world.data().join("checks")).unwrap().count();
    assert_eq!(left, 0, "its directory is cleared away");
    result
}

#[test]
fn a_check_passes_or_fails_with_what_it_printed() {
    let world = World::new();
    let passed = check(&world, "echo out; echo err >&2; pwd; cat", LONG);
    assert!(passed.passed());
    assert_eq!(passed.output, format!("out\nerr\n{}\n", world.workspace.display()));
    let failed = check(&world, "echo broken; exit 3", LONG);
    assert_eq!(failed, CheckResult { exit: Exit::Code(3), timed_out: false, output: "broken\n".to_owned() });
    assert!(!failed.passed());
    assert_eq!(check(&world, "kill -SEGV $$", LONG).exit, Exit::Signal(11));
}

#[test]
fn a_check_without_its_directory_says_so() {
    let world = World::new();
    fs::remove_dir(&world.workspace).unwrap();
    assert!(matches!(check(&world, "true", LONG).exit, Exit::NotStarted(reason) if reason.contains("does not exist")));
}

#[test]
fn a_check_that_takes_too_long_is_ended_with_all_it_started() {
    let world = World::new();
    let before = Instant::now();
    let script =
        "trap '' TERM; setsid sh -c 'trap \"\" TERM; sleep 1000; :' & echo started; while :; do sleep 1000; done";
    let result = check(&world, script, Duration::from_millis(300));
    assert!(result.timed_out && !result.passed());
    assert_eq!(result.output, "started\n");
    assert!(before.elapsed() < Duration::from_secs(5), "{:?}", before.elapsed());
}

#[test]
fn a_flood_is_bounded_and_its_end_is_kept() {
    let world = World::new();
    let before = resident();
    let result = check(&world, "head -c 100000000 /dev/zero | tr '\\0' x; echo; echo the end", LONG);
    assert!(result.passed());
    assert!(result.output.ends_with("x\nthe end\n"));
    assert_eq!(result.output.len(), 16 * 1024);
    assert!(resident() < before + 32 * 1024, "{} KiB, then {} KiB", before, resident());
}

#[test]
fn an_endless_flood_does_not_outlast_its_time() {
    let world = World::new();
    let before = Instant::now();
    assert!(check(&world, "yes", Duration::from_millis(200)).timed_out);
    assert!(before.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_process_left_behind_does_not_hang_a_check() {
    let world = World::new();
    let before = Instant::now();
    let result = check(&world, "setsid sh -c 'trap \"\" TERM HUP; sleep 1000; :' & echo done", LONG);
    assert!(result.passed());
    assert_eq!(result.output, "done\n");
    assert!(before.elapsed() < Duration::from_secs(5), "{:?}", before.elapsed());
}

#[test]
fn a_check_ends_with_its_daemon() {
    let world = World::new();
    let script = format!("trap '' TERM; touch up; while :; do sleep 1000; done; : {}", world.token);
    let mut daemon = Command::new(fixture())
        .args(["check".as_ref(), world.data().as_os_str(), world.workspace.as_os_str(), script.as_ref()])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    world.wait_for("up");
    signal(daemon.id(), "KILL");
    daemon.wait().unwrap();
    eventually("the check is gone", || world.alive().is_empty());
    eventually("its directory is gone", || fs::read_dir(world.data().join("checks")).unwrap().count() == 0);
}

fn once(world: &World, name: &str, command: &str, timeout: Duration) -> CheckResult {
    let check = Check {
        command: command.to_owned(),
        dir: world.workspace.clone(),
        env: vec![],
        timeout,
        once: Some(name.to_owned()),
    };
    world.adapter.check(&check).unwrap()
}

#[test]
fn a_command_under_a_name_runs_once_and_is_answered_from_its_record() {
    let world = World::new();
    for _ in 0..3 {
        let said = once(&world, "ratchet-A1", "echo x >> runs; echo no >&2; exit 3", LONG);
        assert_eq!(said, CheckResult { exit: Exit::Code(3), timed_out: false, output: "no\n".to_owned() });
    }
    assert!(once(&world, "ratchet-A2", "echo x >> runs", LONG).passed());
    assert_eq!(fs::read_to_string(world.workspace.join("runs")).unwrap(), "x\nx\n");
    let late = once(&world, "late", "trap 'exit 0' TERM; while :; do sleep 0.05; done", Duration::from_millis(200));
    assert!(late.timed_out && !late.passed(), "{late:?}");
    assert!(once(&world, "late", "true", LONG).timed_out, "and so it is remembered");
    world.assert_nothing_runs();
    let check = Check {
        command: "true".into(),
        dir: world.workspace.clone(),
        env: vec![],
        timeout: LONG,
        once: Some("../x".into()),
    };
    assert!(world.adapter.check(&check).is_err());
}

/// J8: what the daemon's death interrupts is joined, not repeated.
#[test]
fn a_command_under_a_name_outlives_its_daemon_and_is_joined() {
    let world = World::new();
    let script = "echo x >> runs; touch up; while ! test -e go; do sleep 0.02; done; echo through";
    let mut daemon = Command::new(fixture())
        .args(["check".as_ref(), world.data().as_os_str(), world.workspace.as_os_str(), script.as_ref()])
        .env("REGATTA_TEST_ONCE", "job")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    world.wait_for("up");
    signal(daemon.id(), "KILL");
    daemon.wait().unwrap();
    fs::write(world.workspace.join("go"), "").unwrap();
    let said = once(&world, "job", script, LONG);
    assert_eq!(said, CheckResult { exit: Exit::Code(0), timed_out: false, output: "through\n".to_owned() });
    assert_eq!(fs::read_to_string(world.workspace.join("runs")).unwrap(), "x\n");
}

/// What this process holds in memory, in KiB.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|it| it.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
