//! Hooks: they fire once, are logged, hold their claim while they run, are paused when they trigger
//! each other, and do not run twice after a crash of the daemon.

use serde_json::{Value, json};

use crate::http::ApiClient;
use crate::world::{TEST_TIMEOUT, World, is_alive, kill_process, run_command, wait_until};

/// Creates a world without hooks, not even the router.
fn without_router() -> World {
    let world = World::with_project();
    world.run_ok(&["hook", "rm", "H1"]);
    world
}

/// Writes an executable script beside the repository and returns its path.
fn write_script(world: &World, name: &str, text: &str) -> String {
    let path = world.root.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{text}")).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Adds a hook and returns its id. Arguments after `--` are the hook's command.
fn add_hook(world: &World, args: &[&str]) -> String {
    let output = world.run(&[&["--json", "hook", "add"], args].concat());
    assert_eq!(output.exit_code, 0, "{args:?}: {output:?}");
    let answer: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(answer["kind"], "hook.add");
    answer["data"]["id"].as_str().unwrap().to_owned()
}

fn send_message(world: &World, channel: &str, text: &str) -> String {
    world.run_json(&["msg", "send", channel, text])["id"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// Waits until a hook has `many` firings and all have ended, and returns them, oldest first.
fn wait_for_firings(world: &World, hook: &str, many: usize) -> Vec<Value> {
    let mut log = Vec::new();
    let over = wait_until(TEST_TIMEOUT, || {
        log = world
            .run_json(&["hook", "log", hook, "--limit", "100"])
            .as_array()
            .unwrap()
            .clone();
        log.len() >= many
            && log
                .iter()
                .all(|log| log["ended"].is_object() || log["ended"].is_string())
    });
    assert!(over, "{log:?}");
    assert_eq!(log.len(), many, "{log:?}");
    log.reverse();
    log
}

fn read_lines(path: &std::path::Path) -> Vec<String> {
    std::fs::read_to_string(path)
        .unwrap_or_default()
        .lines()
        .map(str::to_owned)
        .collect()
}

/// P3, P10: `down` also ends the command of a hook and succeeds only when nothing of it runs. The
/// end is recorded, so the next start does not run the command again.
#[test]
fn p3_down_ends_the_command_of_a_hook_and_the_next_start_does_not_repeat_it() {
    let world = without_router();
    let pids = world.root.join("pids");
    let command = write_script(
        &world,
        "long",
        &format!("echo $$ >> {}\nsleep 600 & wait\n", pids.display()),
    );
    let hook = add_hook(
        &world,
        &["--channel", "shop", "--prefix", "!go", "--", &command],
    );
    send_message(&world, "shop", "!go");
    assert!(
        wait_until(TEST_TIMEOUT, || read_lines(&pids).len() == 1),
        "the command did not start"
    );
    let pid: u32 = read_lines(&pids)[0].parse().unwrap();
    world.run_ok(&["down"]);
    assert!(!is_alive(pid), "P3: the command still runs");
    world.run_ok(&["up"]);
    let log = wait_for_firings(&world, &hook, 1);
    assert_eq!(log[0]["ended"], json!({ "signalled": 15 }), "{log:?}");
    assert_eq!(read_lines(&pids).len(), 1, "the command ran again");
    // `down --keep-agents` leaves the command running (P1).
    send_message(&world, "shop", "!go");
    assert!(wait_until(TEST_TIMEOUT, || read_lines(&pids).len() == 2));
    let pid: u32 = read_lines(&pids)[1].parse().unwrap();
    world.run_ok(&["down", "--keep-agents"]);
    assert!(is_alive(pid), "P1: the command ended");
    world.run_ok(&["up"]);
    world.run_ok(&["down"]);
    assert!(
        !is_alive(pid),
        "P3: the next daemon must end the command, too"
    );
}

/// A hook fires once for each matching message. Its environment has both names of each variable and
/// nothing else (S3), and its token is in no output (S4).
#[test]
fn s3_s4_a_hook_fires_once_with_a_clean_environment() {
    let world = without_router();
    let out = world.root.join("env");
    let command = write_script(
        &world,
        "tell",
        &format!(
            "env | sort > {0}.$REGATTA_MESSAGE_ID\nenv\npwd\nexit 3\n",
            out.display()
        ),
    );
    // The daemon's environment has a variable that no command may see.
    world.run_ok(&["down"]);
    let mut up = world.command(&["up"]);
    up.env("PRIVATE_THING", "hidden-from-all");
    assert_eq!(run_command(up, None).exit_code, 0);
    let place = world.repo.to_str().unwrap();
    let hook = add_hook(
        &world,
        &[
            "--channel",
            "shop",
            "--prefix",
            "!go",
            "--cwd",
            place,
            "--",
            &command,
            "a b",
            "$HOME",
        ],
    );
    let id = send_message(&world, "shop", "!go now");
    send_message(&world, "shop", "no go");
    send_message(&world, "shop", "!go but !nohooks");
    world.run_ok(&[
        "msg",
        "send",
        "shop",
        "!go myself",
        "--as",
        &format!("hook/{hook}"),
    ]);
    let log = wait_for_firings(&world, &hook, 1);
    assert_eq!(log[0]["ended"], json!({ "exited": 3 }));
    assert_eq!(
        log[0]["cause"],
        json!({ "by": "message", "message": id, "channel": "shop", "sender": "person:ann" })
    );
    assert_eq!((&log[0]["depth"], &log[0]["token"]), (&json!(1), &json!(0)));
    let env = read_lines(&out.with_extension(&id));
    let value = |name: &str| {
        env.iter()
            .find_map(|env| env.strip_prefix(&format!("{name}=")).map(str::to_owned))
    };
    for (name, expected) in [
        ("REGATTA_CHANNEL", "shop"),
        ("BOTBUS_CHANNEL", "shop"),
        ("REGATTA_MESSAGE_ID", &id),
        ("BOTBUS_MESSAGE_ID", &id),
        ("REGATTA_PROJECT", "shop"),
        ("BOTBOX_PROJECT", "shop"),
        ("REGATTA_HOOK_ID", &hook),
        ("REGATTA_AGENT", &format!("hook/{hook}")),
        ("REGATTA_SENDER", "person:ann"),
        ("BOTBUS_AGENT", "person:ann"),
        ("PWD", place),
    ] {
        assert_eq!(value(name).as_deref(), Some(expected), "{name} in {env:?}");
    }
    let listed = [
        "PATH", "LANG", "LC_ALL", "TZ", "USER", "SHELL", "TERM", "TMPDIR", "HOME", "PWD", "OLDPWD",
        "SHLVL", "_",
    ];
    let known = |id: &str| {
        listed.contains(&id)
            || [
                "REGATTA_",
                "BOTBUS_",
                "BOTBOX_",
                "SSL_",
                "NODE_EXTRA",
                "CARGO_HOME",
                "RUSTUP_HOME",
                "GO",
                "JAVA_HOME",
            ]
            .iter()
            .any(|prefix| id.starts_with(prefix))
    };
    let odd: Vec<&String> = env
        .iter()
        .filter(|env| !known(env.split('=').next().unwrap()))
        .collect();
    assert!(odd.is_empty(), "S3: {odd:?}");
    let output = log[0]["output"].as_str().unwrap();
    let token = value("REGATTA_TOKEN").unwrap();
    assert!(
        token.starts_with("rf_F1_") && !output.contains(&token),
        "S4: {output}"
    );
    assert!(output.contains("REGATTA_CHANNEL=shop"), "{output}");
    // The token ends with its command.
    let api = ApiClient {
        token,
        ..ApiClient::for_data_dir(&world.data_dir)
    };
    assert_eq!(api.call("status", &json!({}), None).unwrap().status, 401);
    // `hook test` says whether a message would fire the hook, and why not.
    let test = |args: &[&str]| world.run_json(&[&["hook", "test", &hook], args].concat());
    assert_eq!(test(&["--text", "!GO again"])["fires"], true);
    for (args, why) in [
        (&["--message", "B2"][..], "does not begin with !go"),
        (&["--text", "!go !nohooks"], "contains !nohooks"),
        (
            &["--text", "!go", "--channel", "else"],
            "the hook waits for messages in shop",
        ),
        (
            &["--text", "!go", "--from", &format!("hook/{hook}")],
            "itself do not fire the hook",
        ),
    ] {
        let outcome = test(args);
        assert!(
            outcome["fires"] == false && outcome["why"].as_str().unwrap().contains(why),
            "{args:?}: {outcome}"
        );
    }
    let shown = world.run_ok(&["hook", "list"]);
    assert!(
        shown.contains("no sandbox") && shown.contains("10 min at most"),
        "{shown}"
    );
    world.run_ok(&["hook", "rm", &hook]);
    send_message(&world, "shop", "!go after removal");
    assert_eq!(world.run_json(&["hook", "list"]), json!([]));
    assert_eq!(
        wait_for_firings(&world, &hook, 1).len(),
        1,
        "the log stays after the hook is removed"
    );
}

/// The claim is held while the command runs, refused to others meanwhile, and free afterwards.
/// Messages that arrive meanwhile are queued.
#[test]
fn a_hook_holds_its_claim_while_its_command_runs() {
    let world = without_router();
    let gate = world.root.join("gate");
    let wait = write_script(
        &world,
        "wait",
        &format!(
            "while [ ! -e {} ]; do sleep 0.02; done\necho over\n",
            gate.display()
        ),
    );
    let hook = add_hook(
        &world,
        &[
            "--channel",
            "shop",
            "--claim",
            "respond://shop-dev",
            "--ttl",
            "60s",
            "--cwd",
            "/",
            "--",
            &wait,
        ],
    );
    send_message(&world, "shop", "one");
    let refused = world.run_refused(
        &[
            "claim",
            "acquire",
            "respond://shop-dev",
            "--as",
            "ann",
            "--ttl",
            "5s",
        ],
        5,
    );
    assert_eq!(refused["code"], "claim_held");
    assert!(
        refused["message"]
            .as_str()
            .unwrap()
            .contains(&format!("hook/{hook}")),
        "{refused}"
    );
    send_message(&world, "shop", "two, while one is handled");
    let listed_hook = world.run_json(&["hook", "list"])[0].clone();
    assert_eq!(
        (
            &listed_hook["fired"],
            &listed_hook["skipped"],
            &listed_hook["running"]
        ),
        (&json!(1), &json!(0), &json!(1))
    );
    assert_eq!(
        listed_hook["waiting"][0]["cause"]["message"], "B2",
        "{listed_hook}"
    );
    let outcome = world.run_json(&["hook", "test", &hook, "--text", "three"]);
    assert!(
        outcome["why"]
            .as_str()
            .unwrap()
            .contains("respond://shop-dev is held by hook/"),
        "{outcome}"
    );
    std::fs::write(&gate, "").unwrap();
    let log = wait_for_firings(&world, &hook, 2);
    for firing in &log {
        assert_eq!(
            (firing["output"].as_str(), &firing["ended"]),
            (Some("over\n"), &json!({ "exited": 0 }))
        );
    }
    let own_hook = world.run_json(&[
        "claim",
        "acquire",
        "respond://shop-dev",
        "--as",
        "ann",
        "--ttl",
        "50s",
    ]);
    // Hooks also fire when a claim becomes free, and on events.
    let freed = add_hook(
        &world,
        &[
            "--on-free",
            "respond://shop-dev",
            "--cwd",
            "/",
            "--",
            "sh",
            "-c",
            "echo $REGATTA_FREE",
        ],
    );
    let added = add_hook(
        &world,
        &[
            "--event",
            "task.added",
            "--cwd",
            "/",
            "--",
            "sh",
            "-c",
            "echo $REGATTA_SUBJECT",
        ],
    );
    let (claim, token) = (
        own_hook["claim"].as_str().unwrap(),
        own_hook["token"].to_string(),
    );
    world.run_ok(&["claim", "release", claim, "--token", &token]);
    assert_eq!(
        wait_for_firings(&world, &freed, 1)[0]["output"],
        "respond://shop-dev\n"
    );
    world.run_ok(&["add", "A task", "--files", "x", "--validate", "true"]);
    assert_eq!(wait_for_firings(&world, &added, 1)[0]["output"], "T1\n");
}

/// Two hooks that trigger each other are paused after five firings, and a hook that fires too often
/// is paused.
#[test]
fn hooks_that_trigger_each_other_or_fire_too_often_are_paused() {
    let world = without_router();
    let exe = env!("CARGO_BIN_EXE_regatta");
    let answer = |to: &str| {
        write_script(
            &world,
            &format!("to-{to}"),
            &format!("exec {exe} msg send {to} 'your turn'\n"),
        )
    };
    let ping = add_hook(
        &world,
        &["--channel", "ping", "--cwd", "/", "--", &answer("pong")],
    );
    let pong = add_hook(
        &world,
        &["--channel", "pong", "--cwd", "/", "--", &answer("ping")],
    );
    send_message(&world, "ping", "go");
    let waited = world.run_json(&[
        "msg",
        "wait",
        "-L",
        "coord:hook",
        "--after",
        "B1",
        "--timeout",
        "60s",
    ]);
    assert!(
        waited["text"]
            .as_str()
            .unwrap()
            .contains("5 hooks triggered each other in a chain"),
        "{waited}"
    );
    let (pings, pongs) = (
        wait_for_firings(&world, &ping, 3),
        wait_for_firings(&world, &pong, 2),
    );
    let depths: Vec<u64> = pings
        .iter()
        .chain(&pongs)
        .map(|ping| ping["depth"].as_u64().unwrap())
        .collect();
    assert_eq!(depths, [1, 3, 5, 2, 4]);
    assert!(
        pings
            .iter()
            .chain(&pongs)
            .all(|ping| ping["ended"] == json!({ "exited": 0 })),
        "{pings:?}"
    );
    let list = world.run_ok(&["hook", "list"]);
    assert!(
        list.contains("paused: 5 hooks triggered each other in a chain"),
        "{list}"
    );
    let senders = world.run_json(&["msg", "history", "pong"]);
    assert_eq!(
        senders[0]["sender"],
        json!(format!("hook/{ping}")),
        "messages name their real sender"
    );
    assert_eq!(senders[0]["depth"], 1);
    // A hook's command cannot post as another agent.
    let forger = write_script(
        &world,
        "forge",
        &format!("exec {exe} msg send pong 'I am eve' --as eve\n"),
    );
    let forge = add_hook(&world, &["--channel", "forge", "--cwd", "/", "--", &forger]);
    send_message(&world, "forge", "go");
    let log = wait_for_firings(&world, &forge, 1);
    assert!(
        log[0]["output"]
            .as_str()
            .unwrap()
            .contains("cannot post as eve"),
        "{log:?}"
    );

    let busy = add_hook(&world, &["--channel", "busy", "--cwd", "/", "--", "true"]);
    for nth in 0..22 {
        send_message(&world, "busy", &format!("{nth}"));
    }
    assert_eq!(wait_for_firings(&world, &busy, 20).len(), 20);
    assert!(
        world
            .run_ok(&["hook", "list"])
            .contains("paused: it fired 20 times within a minute")
    );
    world.run_ok(&["hook", "resume", &busy]);
    send_message(&world, "busy", "again");
    wait_for_firings(&world, &busy, 21);
    world.run_ok(&["hook", "pause", &busy, "--because", "enough"]);
    send_message(&world, "busy", "not now");
    assert_eq!(
        world.run_json(&["hook", "test", &busy, "--text", "x"])["why"],
        "it is paused: enough"
    );
}

/// J8, P1: the daemon is killed while a hook's command runs. The command goes on, does not run
/// again, and its end is recorded.
#[test]
fn j8_a_killed_daemon_runs_no_hook_twice() {
    let world = without_router();
    let (gate, ran) = (world.root.join("gate"), world.root.join("ran"));
    let text = format!(
        "echo $REGATTA_MESSAGE_ID >> {ran}\nwhile [ ! -e {gate} ]; do sleep 0.02; done\necho \
        over\n",
        ran = ran.display(),
        gate = gate.display()
    );
    let wait = write_script(&world, "wait", &text);
    let hook = add_hook(
        &world,
        &[
            "--channel",
            "shop",
            "--claim",
            "respond://shop-dev",
            "--cwd",
            "/",
            "--",
            &wait,
        ],
    );
    let id = send_message(&world, "shop", "go");
    assert!(
        wait_until(TEST_TIMEOUT, || read_lines(&ran) == [id.clone()]),
        "the command did not start"
    );
    let pid = u32::try_from(world.daemon_info().unwrap()["pid"].as_u64().unwrap()).unwrap();
    kill_process(pid);
    assert!(wait_until(TEST_TIMEOUT, || !is_alive(pid)));
    world.run_ok(&["up"]);
    let refused = world.run_refused(
        &[
            "claim",
            "acquire",
            "respond://shop-dev",
            "--as",
            "ann",
            "--ttl",
            "5s",
        ],
        5,
    );
    assert_eq!(
        refused["code"], "claim_held",
        "the claim is held while the command runs"
    );
    std::fs::write(&gate, "").unwrap();
    let log = wait_for_firings(&world, &hook, 1);
    assert_eq!(
        (log[0]["output"].as_str(), &log[0]["ended"]),
        (Some("over\n"), &json!({ "exited": 0 }))
    );
    assert_eq!(read_lines(&ran), [id], "the command ran twice");

    // The daemon dies just before the command, just after it, and after its report.
    for (round, point) in ["hook.begin", "hook.ran", "hook.recorded"]
        .into_iter()
        .enumerate()
    {
        world.run_ok(&["down"]);
        let mut up = world.command(&["up", "--json"]);
        up.env("REGATTA_FAILPOINT", point);
        let up = run_command(up, None);
        let pid = serde_json::from_str::<Value>(&up.stdout).unwrap()["data"]["pid"]
            .as_u64()
            .unwrap();
        // The answer may be lost with the daemon, but the message was committed.
        let _maybe = world.run(&["msg", "send", "shop", "go"]);
        assert!(
            wait_until(TEST_TIMEOUT, || !is_alive(pid as u32)),
            "{point} was never reached"
        );
        world.run_ok(&["up"]);
        let log = wait_for_firings(&world, &hook, round + 2);
        assert_eq!(
            log[round + 1]["ended"],
            json!({ "exited": 0 }),
            "{point}: {log:?}"
        );
        assert_eq!(
            read_lines(&ran).len(),
            round + 2,
            "{point}: each command must run once"
        );
    }
}

/// A command that takes too long is ended. A missing program or directory is recorded in the log.
#[test]
fn a_command_that_times_out_or_cannot_start_is_logged() {
    let world = without_router();
    let slow = add_hook(
        &world,
        &[
            "--channel",
            "slow",
            "--cwd",
            "/",
            "--max-time",
            "200ms",
            "--",
            "sleep",
            "600",
        ],
    );
    let removed_hook = add_hook(
        &world,
        &["--channel", "gone", "--cwd", "/", "--", "/no/such/program"],
    );
    let place = world.root.join("place");
    std::fs::create_dir(&place).unwrap();
    let lost = add_hook(
        &world,
        &[
            "--channel",
            "lost",
            "--cwd",
            place.to_str().unwrap(),
            "--",
            "true",
        ],
    );
    std::fs::remove_dir(&place).unwrap();
    for channel in ["slow", "gone", "lost"] {
        send_message(&world, channel, "go");
    }
    assert_eq!(wait_for_firings(&world, &slow, 1)[0]["ended"], "timed_out");
    assert_eq!(
        wait_for_firings(&world, &removed_hook, 1)[0]["ended"],
        json!({ "exited": 127 })
    );
    let why = wait_for_firings(&world, &lost, 1)[0]["ended"]["not_run"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(why.contains("is not a directory"), "{why}");
    assert_eq!(
        world
            .run(&["hook", "add", "--event", "no.such", "--", "true"])
            .exit_code,
        2,
        "no such event"
    );
    assert_eq!(
        world.run(&["hook", "add", "--", "true"]).exit_code,
        2,
        "a hook without a condition"
    );
    assert_eq!(
        world.run(&["hook", "add", "--channel", "x"]).exit_code,
        2,
        "a hook without a command"
    );
}

/// The router is a hook like the others, and `hook list` counts its firings.
#[test]
fn the_router_counts_the_messages_it_handled() {
    let world = World::with_project();
    assert!(world.run_ok(&["hook", "list"]).contains("never fired"));
    send_message(&world, "shop", "!help");
    assert!(
        wait_until(
            TEST_TIMEOUT,
            || world.run_json(&["hook", "list"])[0]["fired"] == 1
        ),
        "{}",
        world.run_ok(&["hook", "list"])
    );
    let list = world.run_ok(&["hook", "list"]);
    assert!(list.contains("fired 1 time, last "), "{list}");
}
