//! Tests of starting programs, reading their state and waiting for them.

use std::fs;
use std::process::Command;
use std::time::Duration;

use regatta_engine::ports::agents::{Agents, Exit, JournalStream, ProcessState};

use crate::support::{A1, World, adapter, eventually, fixture};

#[test]
fn p2_the_exit_and_all_output_of_a_program_are_kept() {
    let world = World::new();
    assert_eq!(world.adapter.state(A1), Ok(ProcessState::NotStarted));
    assert!(
        world
            .adapter
            .wait(A1, Duration::ZERO)
            .unwrap_err()
            .message
            .contains("A1")
    );
    let exit = world.run("cat; pwd; cat \"$REGATTA_PROMPT_FILE\" >&2; seq 1 200000; exit 7");
    assert_eq!(exit, Exit::Code(7));
    assert_eq!(
        world.adapter.state(A1),
        Ok(ProcessState::Exited(Exit::Code(7)))
    );
    let mut lines = vec!["Do it.".to_owned(), world.workspace.display().to_string()];
    lines.extend((1..=200_000).map(|n| n.to_string()));
    assert_eq!(world.lines(JournalStream::Out), lines);
    assert_eq!(world.lines(JournalStream::Err), ["Do it."]);
    assert!(
        (1..)
            .zip(world.records())
            .all(|(position, record)| record.position == position)
    );
}

#[test]
fn exit_by_a_signal_is_reported_as_that_signal() {
    assert_eq!(World::new().run("kill -KILL $$"), Exit::Signal(9));
}

#[test]
fn prompt_can_be_an_argument() {
    let world = World::new();
    world
        .adapter
        .start(&world.launch(&["printf", "%s|", "--prompt={prompt}", "{prompt}"]))
        .unwrap();
    assert_eq!(world.wait(), Exit::Code(0));
    assert_eq!(
        world.lines(JournalStream::Out),
        ["--prompt=Do it.", "|Do it.", "|"],
        "the last line has no newline"
    );
}

#[test]
fn wait_times_out_while_the_program_runs() {
    let world = World::new();
    world.start("exec sleep 1000");
    assert_eq!(world.adapter.wait(A1, Duration::from_millis(20)), Ok(None));
    assert!(matches!(
        world.adapter.state(A1),
        Ok(ProcessState::Running(_))
    ));
}

#[test]
fn second_start_of_an_attempt_starts_nothing() {
    let world = World::new();
    let script = "echo ran >> count; read line < gate";
    assert!(
        Command::new("mkfifo")
            .arg(world.workspace.join("gate"))
            .status()
            .unwrap()
            .success()
    );
    world.start(script);
    let shim = world.shim_identity();
    world.start(script);
    assert_eq!(world.shim_identity(), shim);
    fs::write(world.workspace.join("gate"), "go\n").unwrap();
    assert_eq!(world.wait(), Exit::Code(0));
    world.start(script);
    assert_eq!(world.wait(), Exit::Code(0));
    assert_eq!(world.file("count"), "ran\n");
}

#[test]
fn simultaneous_starts_of_an_attempt_run_it_once() {
    let world = World::new();
    let launch = world.launch(&["sh", "-c", "echo ran >> count"]);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            // Each thread has its own adapter, like a second daemon.
            scope.spawn(|| adapter(&world.data()).start(&launch).unwrap());
        }
    });
    assert_eq!(world.wait(), Exit::Code(0));
    assert_eq!(world.file("count"), "ran\n");
}

#[test]
fn p6_a_second_shim_runs_nothing_and_keeps_the_exit_record() {
    let world = World::new();
    let second = || {
        Command::new(fixture())
            .arg("shim")
            .arg(world.run_dir())
            .status()
            .unwrap()
            .code()
    };
    world.start("echo ran >> count; touch up; [ $(wc -l < count) -gt 1 ] || sleep 1000");
    world.wait_for("up");
    assert_eq!(second(), Some(3), "another shim has the lock");
    let exit = world.adapter.stop(A1, Duration::ZERO).unwrap();
    let record = fs::read_to_string(world.run_dir().join("exit.json")).unwrap();
    assert_eq!(second(), Some(3), "the attempt has ended");
    assert_eq!(world.adapter.stop(A1, Duration::ZERO), Ok(exit.clone()));
    assert_eq!(world.wait(), exit);
    assert_eq!(
        fs::read_to_string(world.run_dir().join("exit.json")).unwrap(),
        record
    );
    assert_eq!(world.file("count"), "ran\n");
    let names = fs::read_dir(world.run_dir())
        .unwrap()
        .map(|result| result.unwrap().file_name().into_string().unwrap());
    assert_eq!(
        names
            .filter(|name| name.contains("exit") || name.ends_with(".tmp"))
            .collect::<Vec<_>>(),
        ["exit.json"]
    );
}

#[test]
fn p6_simultaneous_stops_and_waits_get_the_same_exit() {
    let world = World::new();
    world.start("touch up; exec sleep 1000");
    world.wait_for("up");
    let shim = world.shim_identity();
    crate::support::send_signal(shim.pid, "KILL");
    let exits: Vec<Exit> = std::thread::scope(|scope| {
        let ask = |stop: bool| {
            let world = &world;
            scope.spawn(move || {
                if stop {
                    world.adapter.stop(A1, Duration::ZERO).unwrap()
                } else {
                    world.wait()
                }
            })
        };
        let all = [ask(true), ask(false), ask(true), ask(false)];
        all.into_iter()
            .map(|scoped_join_handle| scoped_join_handle.join().unwrap())
            .collect()
    });
    assert_eq!(exits, vec![Exit::Lost; 4]);
}

#[test]
fn p1_a_program_outlives_the_daemon_that_started_it() {
    let world = World::new();
    assert!(
        Command::new("mkfifo")
            .arg(world.workspace.join("gate"))
            .status()
            .unwrap()
            .success()
    );
    let script = "echo before; read line < gate; echo after; exit 5";
    let daemon = Command::new(fixture())
        .args([
            "start-and-die".as_ref(),
            world.data().as_os_str(),
            world.workspace.as_os_str(),
            script.as_ref(),
        ])
        .stderr(std::process::Stdio::null())
        .status()
        .unwrap();
    assert_eq!(daemon.code(), None, "the daemon should die of a signal");
    let adopted = world.shim_identity();
    assert_eq!(world.adapter.wait(A1, Duration::from_millis(1)), Ok(None));
    fs::write(world.workspace.join("gate"), "go\n").unwrap();
    assert_eq!(world.wait(), Exit::Code(5));
    assert_eq!(world.output(), "before\nafter\n");
    eventually("the shim is gone", || {
        crate::support::process_entry(adopted.pid)
            .is_none_or(|process| process.start_ticks != adopted.start_ticks || process.is_zombie)
    });
}

#[test]
fn interrupted_start_can_be_repeated() {
    let world = World::new();
    let launch = world.launch(&["sh", "-c", "echo ran >> count"]);
    let broken = regatta_agents::AgentsAdapter::new(world.data(), "/bin/false".into());
    assert!(
        broken
            .start(&launch)
            .unwrap_err()
            .hint
            .contains("nothing runs twice")
    );
    assert_eq!(world.adapter.state(A1), Ok(ProcessState::NotStarted));
    let missing = regatta_agents::AgentsAdapter::new(world.data(), "/nowhere/regatta".into());
    assert!(
        missing
            .start(&launch)
            .unwrap_err()
            .message
            .contains("/nowhere/regatta")
    );
    world.adapter.start(&launch).unwrap();
    assert_eq!(world.wait(), Exit::Code(0));
    assert_eq!(world.file("count"), "ran\n");
}

#[test]
fn program_that_cannot_start_has_a_reason() {
    let long = "x".repeat(200 * 1024);
    for (argv, words) in [
        (
            vec!["no-such-agent", "--yes"],
            "`no-such-agent` was not found on PATH",
        ),
        (vec!["./no/such"], "no/such does not exist"),
        (vec!["./plain.txt"], "make it executable"),
        (vec![], "names no program"),
        (vec![""], "names no program"),
        (vec!["echo", &long], "leave {prompt} out"),
    ] {
        let world = World::new();
        fs::write(world.workspace.join("plain.txt"), "hello").unwrap();
        world.adapter.start(&world.launch(&argv)).unwrap();
        match world.wait() {
            Exit::NotStarted(reason) => assert!(reason.contains(words), "{reason}"),
            other => panic!("{argv:?} ended as {other:?}"),
        }
    }
    let world = World::new();
    fs::remove_dir(&world.workspace).unwrap();
    assert!(
        matches!(world.run("true"), Exit::NotStarted(reason) if reason.contains("does not exist"))
    );
}

#[test]
fn s3_a_program_sees_only_the_allowed_variables() {
    const LIST: [&str; 31] = [
        "HOME",
        "LANG",
        "LC_ALL",
        "PATH",
        "REGATTA_ATTEMPT",
        "REGATTA_ATTEMPT_MARK",
        "REGATTA_PROMPT_FILE",
        "REGATTA_RESULT",
        "REGATTA_SCRIPTED_HOME",
        "REGATTA_SCRIPT_FILE",
        "REGATTA_WORKSPACE",
        "SHELL",
        "TERM",
        "NO_COLOR",
        "TMPDIR",
        "TZ",
        "USER",
        // Certificates and proxies, if this machine has them.
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "NODE_EXTRA_CA_CERTS",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "http_proxy",
        "https_proxy",
        "no_proxy",
        // Variables that sh itself sets.
        "PWD",
        "OLDPWD",
        "SHLVL",
        // Variables that only the shim has.
        "MIMALLOC_ALLOW_THP",
        "MIMALLOC_PURGE_DELAY",
    ];
    // Locations of toolchains outside a home, which checks get.
    const PLACES: [&str; 7] = [
        "CARGO_HOME",
        "RUSTUP_HOME",
        "GOROOT",
        "GOPATH",
        "JAVA_HOME",
        "PYENV_ROOT",
        "NVM_DIR",
    ];
    let world = World::new();
    // The script prints the names of its own variables and then those of its shim.
    let dump = "tr '\\0' '\\n' < /proc/self/environ | sed s/=.*// ; tr '\\0' '\\n' < \
        /proc/$PPID/environ | sed s/=.*//";
    for mode in ["start-and-die", "check"] {
        let output = Command::new(fixture())
            .args([
                mode.as_ref(),
                world.data().as_os_str(),
                world.workspace.as_os_str(),
                dump.as_ref(),
            ])
            .env("CANARY_API_KEY", "a-secret-of-the-daemon")
            .env("https_proxy", "http://me:a-password@proxy:8080")
            .output()
            .unwrap();
        let names = if mode == "check" {
            String::from_utf8(output.stdout).unwrap()
        } else {
            assert_eq!(world.wait(), Exit::Code(0));
            world.output()
        };
        assert_eq!(
            names.matches("MIMALLOC").count(),
            2,
            "the shim's own settings are not passed on"
        );
        assert!(
            names.contains("PATH") && names.contains("REGATTA_ATTEMPT_MARK"),
            "{names}"
        );
        let is_listed = |name: &str| {
            LIST.contains(&name) || (mode == "check" && PLACES.contains(&name)) || name == "_"
        };
        let unlisted: Vec<&str> = names.lines().filter(|name| !is_listed(name)).collect();
        assert_eq!(unlisted, Vec::<&str>::new(), "in {mode}");
        assert!(
            !names.lines().any(|name| name == "https_proxy"),
            "a proxy with a password is a secret"
        );
    }
    // S4: neither the canary nor the variables of the launch are on the disk.
    let world = World::new();
    let mut launch = world.launch(&["true"]);
    launch
        .env
        .push(("AGENT_KEY".to_owned(), "a-secret-of-the-agent".to_owned()));
    world.adapter.start(&launch).unwrap();
    world.wait();
    let found = Command::new("grep")
        .arg("-r")
        .arg("a-secret-of")
        .arg(world.data())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");
}

#[test]
fn launch_can_set_home_but_not_the_attempts_id() {
    let world = World::new();
    let mut launch = world.launch(&[
        "sh",
        "-c",
        "echo $HOME $REGATTA_ATTEMPT $TERM; [ -d \"$TMPDIR\" ]",
    ]);
    launch.env.extend(
        [("HOME", "/my/home"), ("REGATTA_ATTEMPT", "A99")]
            .map(|(k, v)| (k.to_owned(), v.to_owned())),
    );
    world.adapter.start(&launch).unwrap();
    assert_eq!(world.wait(), Exit::Code(0));
    assert_eq!(world.output(), "/my/home A1 dumb\n");
}
