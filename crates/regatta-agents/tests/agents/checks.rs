//! Tests of checks and one-time commands.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use regatta_core::agent::SandboxLevel;
use regatta_engine::ports::agents::{Agents, CheckCommand, CheckResult, CommandSandbox, Exit};

use crate::support::{TEST_TIMEOUT, World, eventually, fixture, send_signal};

fn run_check(world: &World, command: &str, timeout: Duration) -> CheckResult {
    let env = vec![("TOKEN".to_owned(), world.token.clone())];
    let check = CheckCommand {
        command: command.to_owned(),
        dir: world.workspace.clone(),
        env,
        timeout,
        once_name: None,
        sandbox: None,
    };
    let result = world.adapter.run_check(&check).unwrap();
    world.assert_nothing_runs();
    let remaining_dirs = fs::read_dir(world.data().join("checks")).unwrap().count();
    assert_eq!(remaining_dirs, 0, "the check's directory is removed");
    result
}

fn expected_result(exit: Exit, output: &str) -> CheckResult {
    CheckResult {
        exit,
        has_timed_out: false,
        output: output.to_owned(),
        sandbox: None,
    }
}

#[test]
fn check_result_has_the_exit_code_and_the_output() {
    let world = World::new();
    let passed = run_check(&world, "echo out; echo err >&2; pwd; cat", TEST_TIMEOUT);
    assert!(passed.passed());
    assert_eq!(
        passed.output,
        format!("out\nerr\n{}\n", world.workspace.display())
    );
    let failed = run_check(&world, "echo broken; exit 3", TEST_TIMEOUT);
    assert_eq!(failed, expected_result(Exit::Code(3), "broken\n"));
    assert!(!failed.passed());
    assert_eq!(
        run_check(&world, "kill -SEGV $$", TEST_TIMEOUT).exit,
        Exit::Signal(11)
    );
}

/// S4: the output of a check is stored and shown, so it contains no secrets. A one-time command
/// leaves none on the disk.
#[test]
fn s4_secrets_are_redacted_in_a_checks_output() {
    let world = World::new();
    // The command is written so that it does not contain its own output.
    let command = "echo \"pass\"\"word=hunter2\"\"secret is wrong\"; exit 1";
    let printed = "password=[redacted] is wrong\n";
    assert_eq!(run_check(&world, command, TEST_TIMEOUT).output, printed);
    assert_eq!(
        run_once(&world, "say-it", command, TEST_TIMEOUT).output,
        printed
    );
    let found = Command::new("grep")
        .arg("-r")
        .arg("hunter2secret")
        .arg(world.data())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");
}

#[test]
fn check_in_a_missing_directory_is_not_started() {
    let world = World::new();
    fs::remove_dir(&world.workspace).unwrap();
    assert!(
        matches!(run_check(&world, "true", TEST_TIMEOUT).exit, Exit::NotStarted(reason) if reason.contains("does not exist"))
    );
}

#[test]
fn check_that_times_out_is_ended_with_all_its_processes() {
    let world = World::new();
    let before = Instant::now();
    let script = "trap '' TERM; setsid sh -c 'trap \"\" TERM; sleep 1000; :' & echo started; \
        while :; do sleep 1000; done";
    let result = run_check(&world, script, Duration::from_millis(300));
    assert!(result.has_timed_out && !result.passed());
    assert_eq!(result.output, "started\n");
    assert!(
        before.elapsed() < Duration::from_secs(5),
        "{:?}",
        before.elapsed()
    );
}

/// P3: a check that is no longer needed is ended with all its processes, long before its time is
/// up. A check that is not needed in the first place is not begun.
#[test]
fn p3_a_check_that_is_no_longer_needed_is_ended_with_all_its_processes() {
    let world = World::new();
    let began = world.workspace.join("began");
    let script =
        "setsid sh -c 'trap \"\" TERM; sleep 1000; :' & touch began; while :; do sleep 1000; done";
    let check = CheckCommand {
        command: script.to_owned(),
        dir: world.workspace.clone(),
        env: vec![("TOKEN".to_owned(), world.token.clone())],
        timeout: TEST_TIMEOUT,
        once_name: None,
        sandbox: None,
    };
    assert_eq!(
        world.adapter.run_check_while(&check, &|| false).unwrap(),
        None
    );
    assert!(!began.exists());
    assert_eq!(
        world
            .adapter
            .run_check_while(&check, &|| !began.exists())
            .unwrap(),
        None
    );
    assert!(began.exists());
    world.assert_nothing_runs();
    assert_eq!(
        fs::read_dir(world.data().join("checks")).unwrap().count(),
        0
    );
    let flood = CheckCommand {
        command: "rm began; while :; do echo flood; touch began; done".into(),
        ..check.clone()
    };
    assert_eq!(
        world
            .adapter
            .run_check_while(&flood, &|| !began.exists())
            .unwrap(),
        None
    );
    let quick = CheckCommand {
        command: "echo said".into(),
        ..check
    };
    let result = world
        .adapter
        .run_check_while(&quick, &|| true)
        .unwrap()
        .unwrap();
    assert!(result.passed() && result.output == "said\n", "{result:?}");
}

/// P3: when the daemon shuts down, running checks are ended with all their processes before the
/// caller returns, and no new check begins.
#[test]
fn p3_shutdown_ends_running_checks_and_begins_no_new_check() {
    let world = World::new();
    let began = world.workspace.join("began");
    let check = CheckCommand {
        command: "setsid sh -c 'trap \"\" TERM; sleep 1000; :' & touch began; sleep 1000"
            .to_owned(),
        dir: world.workspace.clone(),
        env: vec![("TOKEN".to_owned(), world.token.clone())],
        timeout: TEST_TIMEOUT,
        once_name: None,
        sandbox: None,
    };
    std::thread::scope(|scope| {
        let runs = scope.spawn(|| world.adapter.run_check(&check));
        eventually("the check runs", || began.exists());
        world.adapter.stop_checks();
        assert!(
            runs.join()
                .unwrap()
                .is_err_and(|error| error.message.contains("is shutting down"))
        );
    });
    world.assert_nothing_runs();
    assert_eq!(
        fs::read_dir(world.data().join("checks")).unwrap().count(),
        0
    );
    fs::remove_file(&began).unwrap();
    assert!(world.adapter.run_check(&check).is_err());
    assert!(!began.exists(), "no new check begins");
}

#[test]
fn long_output_of_a_check_is_cut_to_16_kib_and_keeps_its_end() {
    let world = World::new();
    let before = resident_memory_kib();
    let result = run_check(
        &world,
        "head -c 100000000 /dev/zero | tr '\\0' x; echo; echo the end",
        TEST_TIMEOUT,
    );
    assert!(result.passed());
    assert!(result.output.ends_with("x\nthe end\n"));
    assert_eq!(result.output.len(), 16 * 1024);
    assert!(
        resident_memory_kib() < before + 32 * 1024,
        "{} KiB, then {} KiB",
        before,
        resident_memory_kib()
    );
}

#[test]
fn check_with_endless_output_times_out() {
    let world = World::new();
    let before = Instant::now();
    assert!(run_check(&world, "yes", Duration::from_millis(200)).has_timed_out);
    assert!(before.elapsed() < Duration::from_secs(5));
}

#[test]
fn check_does_not_wait_for_a_background_process() {
    let world = World::new();
    let before = Instant::now();
    let result = run_check(
        &world,
        "setsid sh -c 'trap \"\" TERM HUP; sleep 1000; :' & echo done",
        TEST_TIMEOUT,
    );
    assert!(result.passed());
    assert_eq!(result.output, "done\n");
    assert!(
        before.elapsed() < Duration::from_secs(5),
        "{:?}",
        before.elapsed()
    );
}

#[test]
fn check_ends_when_its_daemon_is_killed() {
    let world = World::new();
    let script = format!(
        "trap '' TERM; touch up; while :; do sleep 1000; done; : {}",
        world.token
    );
    let mut daemon = Command::new(fixture())
        .args([
            "check".as_ref(),
            world.data().as_os_str(),
            world.workspace.as_os_str(),
            script.as_ref(),
        ])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    world.wait_for("up");
    send_signal(daemon.id(), "KILL");
    daemon.wait().unwrap();
    eventually("the check is gone", || world.living_processes().is_empty());
    eventually("its directory is gone", || {
        fs::read_dir(world.data().join("checks")).unwrap().count() == 0
    });
}

fn run_once(world: &World, name: &str, command: &str, timeout: Duration) -> CheckResult {
    let check = CheckCommand {
        command: command.to_owned(),
        dir: world.workspace.clone(),
        env: vec![],
        timeout,
        once_name: Some(name.to_owned()),
        sandbox: None,
    };
    world.adapter.run_check(&check).unwrap()
}

#[test]
fn named_command_runs_once_and_is_answered_from_its_record() {
    let world = World::new();
    for _ in 0..3 {
        let result = run_once(
            &world,
            "ratchet-A1",
            "echo x >> runs; echo no >&2; exit 3",
            TEST_TIMEOUT,
        );
        assert_eq!(result, expected_result(Exit::Code(3), "no\n"));
    }
    assert!(run_once(&world, "ratchet-A2", "echo x >> runs", TEST_TIMEOUT).passed());
    assert_eq!(
        fs::read_to_string(world.workspace.join("runs")).unwrap(),
        "x\nx\n"
    );
    let late = run_once(
        &world,
        "late",
        "trap 'exit 0' TERM; while :; do sleep 0.05; done",
        Duration::from_millis(200),
    );
    assert!(late.has_timed_out && !late.passed(), "{late:?}");
    assert!(
        run_once(&world, "late", "true", TEST_TIMEOUT).has_timed_out,
        "the record has the timeout"
    );
    world.assert_nothing_runs();
    let check = CheckCommand {
        command: "true".into(),
        dir: world.workspace.clone(),
        env: vec![],
        timeout: TEST_TIMEOUT,
        once_name: Some("../x".into()),
        sandbox: None,
    };
    assert!(world.adapter.run_check(&check).is_err());
}

/// Old records are removed. The records of running commands and of recently ended commands stay.
/// stay.
#[test]
fn old_records_of_commands_are_pruned_and_new_ones_stay() {
    let world = World::new();
    assert_eq!(
        world
            .adapter
            .prune_commands(Duration::ZERO, std::time::SystemTime::now()),
        Ok(0),
        "there are no records yet"
    );
    for name in ["old", "young"] {
        assert!(run_once(&world, name, "echo x >> runs", TEST_TIMEOUT).passed());
    }
    let commands = world.data().join("commands");
    let record = fs::File::options()
        .append(true)
        .open(commands.join("old/exit.json"))
        .unwrap();
    record
        .set_modified(std::time::SystemTime::now() - Duration::from_secs(1_000))
        .unwrap();
    // A shim holds its lock for a moment after its last record.
    eventually("the old record is gone", || {
        world
            .adapter
            .prune_commands(Duration::from_secs(500), std::time::SystemTime::now())
            .unwrap();
        !commands.join("old").exists()
    });
    assert!(
        run_once(&world, "young", "echo x >> runs", TEST_TIMEOUT).passed(),
        "answered from its record"
    );
    assert_eq!(
        fs::read_to_string(world.workspace.join("runs")).unwrap(),
        "x\nx\n"
    );
}

/// J8: a command that outlives its daemon is joined and not repeated.
#[test]
fn j8_a_named_command_outlives_its_daemon_and_is_not_repeated() {
    let world = World::new();
    let script = "echo x >> runs; touch up; while ! test -e go; do sleep 0.02; done; echo through";
    let mut daemon = Command::new(fixture())
        .args([
            "check".as_ref(),
            world.data().as_os_str(),
            world.workspace.as_os_str(),
            script.as_ref(),
        ])
        .env("REGATTA_TEST_ONCE", "job")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    world.wait_for("up");
    send_signal(daemon.id(), "KILL");
    daemon.wait().unwrap();
    fs::write(world.workspace.join("go"), "").unwrap();
    let result = run_once(&world, "job", script, TEST_TIMEOUT);
    assert_eq!(result, expected_result(Exit::Code(0), "through\n"));
    assert_eq!(
        fs::read_to_string(world.workspace.join("runs")).unwrap(),
        "x\n"
    );
}

/// Returns whether a check can be sandboxed on this machine, and prints a note if not.
#[allow(clippy::print_stdout, reason = "a test that does not run says so")]
fn can_sandbox() -> bool {
    let found = regatta_agents::sandbox::detect_mechanisms(std::path::Path::new(fixture()))
        .best_mechanism()
        .is_some();
    if !found {
        println!("not run: no sandbox mechanism works on this machine");
    }
    found
}

/// S6, S11: a sandboxed check can use its directory, and neither the database nor the user's
/// repository nor the user's home. The check reaches the caches of toolchains through its own home.
#[test]
fn s6_s11_a_sandboxed_check_reaches_only_its_directory_and_the_toolchain_caches() {
    let world = World::new();
    if !can_sandbox() {
        return;
    }
    let repo = world.data().with_file_name("repo");
    fs::create_dir_all(&repo).unwrap();
    fs::create_dir_all(world.data()).unwrap();
    fs::write(repo.join("mine"), "mine").unwrap();
    fs::write(world.data().join("regatta.db"), "rows").unwrap();
    let home = std::env::var("HOME").unwrap();
    let script = format!(
        "echo made > made; cat '{repo}/mine'; cat '{data}/regatta.db'; echo x > '{repo}/stray'; \
         test \"$HOME\" != '{home}' \
         && echo own home; touch \"$HOME/kept\" && test -d \"$TMPDIR\" && echo temporary; echo \
         $REGATTA_PORT_0; \
         test ! -d '{home}/.cargo/registry' || test -d \"$HOME/.cargo/registry\" && echo caches; \
         true",
        repo = repo.display(),
        data = world.data().display(),
    );
    let project = regatta_core::ids::ProjectName::new("shop").unwrap();
    let shut_in = |level| {
        Some(CommandSandbox {
            project: project.clone(),
            level,
            objects: None,
            hidden: vec![repo.clone()],
        })
    };
    for (level, once) in [
        (None, None),
        (Some(SandboxLevel::Workspace), Some("setup-A1-0".to_owned())),
        (Some(SandboxLevel::Strict), None),
    ] {
        let env = vec![("REGATTA_PORT_0".to_owned(), "40001".to_owned())];
        let check = CheckCommand {
            command: script.clone(),
            dir: world.workspace.clone(),
            env,
            timeout: TEST_TIMEOUT,
            once_name: once,
            sandbox: shut_in(level),
        };
        let found = world.adapter.run_check(&check).unwrap();
        assert!(found.passed(), "{level:?}: {found:?}");
        assert!(found.sandbox.is_some(), "{level:?}: {found:?}");
        for secret in ["mine", "rows"] {
            assert!(
                !found.output.lines().any(|output| output == secret),
                "{level:?}: {found:?}"
            );
        }
        for word in ["own home", "temporary", "40001", "caches"] {
            assert!(found.output.contains(word), "{level:?}: {word}: {found:?}");
        }
        assert!(
            world.workspace.join("made").exists() && !repo.join("stray").exists(),
            "{level:?}"
        );
        fs::remove_file(world.workspace.join("made")).unwrap();
        world.assert_nothing_runs();
    }
    // With the sandbox off, the check can read everything.
    let check = CheckCommand {
        command: format!("cat '{}/mine'", repo.display()),
        dir: world.workspace.clone(),
        env: vec![],
        timeout: TEST_TIMEOUT,
        once_name: None,
        sandbox: shut_in(Some(SandboxLevel::Off)),
    };
    assert_eq!(
        world.adapter.run_check(&check).unwrap(),
        expected_result(Exit::Code(0), "mine")
    );
}

/// S11: simultaneous checks share the home of their project, and each verifies its sandbox from
/// inside.
#[test]
fn s11_simultaneous_sandboxed_checks_do_not_disturb_each_other() {
    let world = World::new();
    if !can_sandbox() {
        return;
    }
    let project = regatta_core::ids::ProjectName::new("shop").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..8 {
                    let shut_in = CommandSandbox {
                        project: project.clone(),
                        level: None,
                        objects: None,
                        hidden: vec![],
                    };
                    let check = CheckCommand {
                        command: "true".to_owned(),
                        dir: world.workspace.clone(),
                        env: vec![],
                        timeout: TEST_TIMEOUT,
                        once_name: None,
                        sandbox: Some(shut_in),
                    };
                    let found = world.adapter.run_check(&check).unwrap();
                    assert!(found.passed(), "{found:?}");
                }
            });
        }
    });
}

/// P3: a sandboxed check is ended with all its processes too.
#[test]
fn p3_a_sandboxed_check_that_times_out_is_ended_with_all_its_processes() {
    let world = World::new();
    if !can_sandbox() {
        return;
    }
    let project = regatta_core::ids::ProjectName::new("shop").unwrap();
    let check = CheckCommand {
        command: "trap '' TERM; setsid sleep 1000 & echo started; while :; do sleep 1000; done"
            .to_owned(),
        dir: world.workspace.clone(),
        env: vec![("TOKEN".to_owned(), world.token.clone())],
        timeout: Duration::from_millis(700),
        once_name: None,
        sandbox: Some(CommandSandbox {
            project,
            level: None,
            objects: None,
            hidden: vec![],
        }),
    };
    let found = world.adapter.run_check(&check).unwrap();
    assert!(
        found.has_timed_out && found.output.contains("started"),
        "{found:?}"
    );
    world.assert_nothing_runs();
}

/// Returns the resident memory of this process in KiB.
fn resident_memory_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|status| status.starts_with("VmRSS"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
