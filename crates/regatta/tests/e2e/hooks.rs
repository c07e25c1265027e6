//! Hooks: they fire once, are logged, hold their claim while they run, are paused when they trigger
//! each other, and do not run twice after a crash of the daemon.

use serde_json::{Value, json};

use crate::http::Door;
use crate::world::{LONG, World, alive, kill, run, until};

/// Creates a world without hooks, not even the router.
fn without_router() -> World {
    let world = World::set_up();
    world.ok(&["hook", "rm", "H1"]);
    world
}

/// Writes an executable script beside the repository and returns its path.
fn script(world: &World, name: &str, text: &str) -> String {
    let path = world.root.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{text}")).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Adds a hook and returns its id. Arguments after `--` are the hook's command.
fn add(world: &World, args: &[&str]) -> String {
    let ran = world.run(&[&["--json", "hook", "add"], args].concat());
    assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
    let answer: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(answer["kind"], "hook.add");
    answer["data"]["id"].as_str().unwrap().to_owned()
}

fn send(world: &World, channel: &str, text: &str) -> String {
    world.json(&["msg", "send", channel, text])["id"].as_str().unwrap().to_owned()
}

/// Waits until a hook has `many` firings and all have ended, and returns them, oldest first.
fn ended(world: &World, hook: &str, many: usize) -> Vec<Value> {
    let mut log = Vec::new();
    let over = until(LONG, || {
        log = world.json(&["hook", "log", hook, "--limit", "100"]).as_array().unwrap().clone();
        log.len() >= many && log.iter().all(|it| it["ended"].is_object() || it["ended"].is_string())
    });
    assert!(over, "{log:?}");
    assert_eq!(log.len(), many, "{log:?}");
    log.reverse();
    log
}

fn lines(path: &std::path::Path) -> Vec<String> {
    std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// P3, P10: `down` also ends the command of a hook and succeeds only when nothing of it runs. The
/// end is recorded, so the next start does not run the command again.
#[test]
fn p3_down_ends_the_command_of_a_hook_and_the_next_start_does_not_repeat_it() {
    let world = without_router();
    let pids = world.root.join("pids");
    let command = script(&world, "long", &format!("echo $$ >> {}\nsleep 600 & wait\n", pids.display()));
    let hook = add(&world, &["--channel", "shop", "--prefix", "!go", "--", &command]);
    send(&world, "shop", "!go");
    assert!(until(LONG, || lines(&pids).len() == 1), "the command did not start");
    let pid: u32 = lines(&pids)[0].parse().unwrap();
    world.ok(&["down"]);
    assert!(!alive(pid), "P3: the command still runs");
    world.ok(&["up"]);
    let log = ended(&world, &hook, 1);
    assert_eq!(log[0]["ended"], json!({ "signalled": 15 }), "{log:?}");
    assert_eq!(lines(&pids).len(), 1, "the command ran again");
    // `down --keep-agents` leaves the command running (P1).
    send(&world, "shop", "!go");
    assert!(until(LONG, || lines(&pids).len() == 2));
    let pid: u32 = lines(&pids)[1].parse().unwrap();
    world.ok(&["down", "--keep-agents"]);
    assert!(alive(pid), "P1: the command ended");
    world.ok(&["up"]);
    world.ok(&["down"]);
    assert!(!alive(pid), "P3: the next daemon must end the command, too");
}

/// A hook fires once for each matching message. Its environment has both names of each variable and
/// nothing else (S3), and its token is in no output (S4).
#[test]
fn s3_s4_a_hook_fires_once_with_a_clean_environment() {
    let world = without_router();
    let out = world.root.join("env");
    let command =
        script(&world, "tell", &format!("env | sort > {0}.$REGATTA_MESSAGE_ID\nenv\npwd\nexit 3\n", out.display()));
    // The daemon's environment has a variable that no command may see.
    world.ok(&["down"]);
    let mut up = world.command(&["up"]);
    up.env("PRIVATE_THING", "hidden-from-all");
    assert_eq!(run(up, None).code, 0);
    let place = world.repo.to_str().unwrap();
    let hook = add(&world, &["--channel", "shop", "--prefix", "!go", "--cwd", place, "--", &command, "a b", "$HOME"]);
    let id = send(&world, "shop", "!go now");
    send(&world, "shop", "no go");
    send(&world, "shop", "!go but !nohooks");
    world.ok(&["msg", "send", "shop", "!go myself", "--as", &format!("hook/{hook}")]);
    let log = ended(&world, &hook, 1);
    assert_eq!(log[0]["ended"], json!({ "exited": 3 }));
    assert_eq!(log[0]["cause"], json!({ "by": "message", "message": id, "channel": "shop", "sender": "person:ann" }));
    assert_eq!((&log[0]["depth"], &log[0]["token"]), (&json!(1), &json!(0)));
    let env = lines(&out.with_extension(&id));
    let value = |name: &str| env.iter().find_map(|it| it.strip_prefix(&format!("{name}=")).map(str::to_owned));
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
    let listed =
        ["PATH", "LANG", "LC_ALL", "TZ", "USER", "SHELL", "TERM", "TMPDIR", "HOME", "PWD", "OLDPWD", "SHLVL", "_"];
    let known = |it: &str| {
        listed.contains(&it)
            || ["REGATTA_", "BOTBUS_", "BOTBOX_", "SSL_", "NODE_EXTRA", "CARGO_HOME", "RUSTUP_HOME", "GO", "JAVA_HOME"]
                .iter()
                .any(|prefix| it.starts_with(prefix))
    };
    let odd: Vec<&String> = env.iter().filter(|it| !known(it.split('=').next().unwrap())).collect();
    assert!(odd.is_empty(), "S3: {odd:?}");
    let output = log[0]["output"].as_str().unwrap();
    let token = value("REGATTA_TOKEN").unwrap();
    assert!(token.starts_with("rf_F1_") && !output.contains(&token), "S4: {output}");
    assert!(output.contains("REGATTA_CHANNEL=shop"), "{output}");
    // The token ends with its command.
    let door = Door { token, ..Door::of(&world.data) };
    assert_eq!(door.call("status", &json!({}), None).unwrap().status, 401);
    // `hook test` says whether a message would fire the hook, and why not.
    let test = |args: &[&str]| world.json(&[&["hook", "test", &hook], args].concat());
    assert_eq!(test(&["--text", "!GO again"])["fires"], true);
    for (args, why) in [
        (&["--message", "B2"][..], "does not begin with !go"),
        (&["--text", "!go !nohooks"], "has !nohooks"),
        (&["--text", "!go", "--channel", "else"], "it is about shop"),
        (&["--text", "!go", "--from", &format!("hook/{hook}")], "itself do not fire it"),
    ] {
        let said = test(args);
        assert!(said["fires"] == false && said["why"].as_str().unwrap().contains(why), "{args:?}: {said}");
    }
    let shown = world.ok(&["hook", "list"]);
    assert!(shown.contains("not shut in") && shown.contains("10 min at most"), "{shown}");
    world.ok(&["hook", "rm", &hook]);
    send(&world, "shop", "!go in vain");
    assert_eq!(world.json(&["hook", "list"]), json!([]));
    assert_eq!(ended(&world, &hook, 1).len(), 1, "the log stays after the hook is removed");
}

/// The claim is held while the command runs, refused to others meanwhile, and free afterwards.
/// Messages that arrive meanwhile are queued.
#[test]
fn a_hook_holds_its_claim_while_its_command_runs() {
    let world = without_router();
    let gate = world.root.join("gate");
    let wait = script(&world, "wait", &format!("while [ ! -e {} ]; do sleep 0.02; done\necho over\n", gate.display()));
    let hook =
        add(&world, &["--channel", "shop", "--claim", "respond://shop-dev", "--ttl", "60s", "--cwd", "/", "--", &wait]);
    send(&world, "shop", "one");
    let refused = world.refused(&["claim", "acquire", "respond://shop-dev", "--as", "ann", "--ttl", "5s"], 5);
    assert_eq!(refused["code"], "claim_held");
    assert!(refused["message"].as_str().unwrap().contains(&format!("hook/{hook}")), "{refused}");
    send(&world, "shop", "two, while one is handled");
    let seen = world.json(&["hook", "list"])[0].clone();
    assert_eq!((&seen["fired"], &seen["skipped"], &seen["running"]), (&json!(1), &json!(0), &json!(1)));
    assert_eq!(seen["waiting"][0]["cause"]["message"], "B2", "{seen}");
    let said = world.json(&["hook", "test", &hook, "--text", "three"]);
    assert!(said["why"].as_str().unwrap().contains("respond://shop-dev is held by hook/"), "{said}");
    std::fs::write(&gate, "").unwrap();
    let log = ended(&world, &hook, 2);
    for firing in &log {
        assert_eq!((firing["output"].as_str(), &firing["ended"]), (Some("over\n"), &json!({ "exited": 0 })));
    }
    let mine = world.json(&["claim", "acquire", "respond://shop-dev", "--as", "ann", "--ttl", "50s"]);
    // Hooks also fire when a claim becomes free, and on events.
    let freed = add(&world, &["--on-free", "respond://shop-dev", "--cwd", "/", "--", "sh", "-c", "echo $REGATTA_FREE"]);
    let added = add(&world, &["--event", "task.added", "--cwd", "/", "--", "sh", "-c", "echo $REGATTA_SUBJECT"]);
    let (claim, token) = (mine["claim"].as_str().unwrap(), mine["token"].to_string());
    world.ok(&["claim", "release", claim, "--token", &token]);
    assert_eq!(ended(&world, &freed, 1)[0]["output"], "respond://shop-dev\n");
    world.ok(&["add", "A task", "--files", "x", "--validate", "true"]);
    assert_eq!(ended(&world, &added, 1)[0]["output"], "T1\n");
}

/// Two hooks that trigger each other are paused after five firings, and a hook that fires too often
/// is paused.
#[test]
fn hooks_that_trigger_each_other_or_fire_too_often_are_paused() {
    let world = without_router();
    let exe = env!("CARGO_BIN_EXE_regatta");
    let answer = |to: &str| script(&world, &format!("to-{to}"), &format!("exec {exe} msg send {to} 'your turn'\n"));
    let ping = add(&world, &["--channel", "ping", "--cwd", "/", "--", &answer("pong")]);
    let pong = add(&world, &["--channel", "pong", "--cwd", "/", "--", &answer("ping")]);
    send(&world, "ping", "go");
    let waited = world.json(&["msg", "wait", "-L", "coord:hook", "--after", "B1", "--timeout", "60s"]);
    assert!(waited["text"].as_str().unwrap().contains("5 hooks led to each other"), "{waited}");
    let (pings, pongs) = (ended(&world, &ping, 3), ended(&world, &pong, 2));
    let depths: Vec<u64> = pings.iter().chain(&pongs).map(|it| it["depth"].as_u64().unwrap()).collect();
    assert_eq!(depths, [1, 3, 5, 2, 4]);
    assert!(pings.iter().chain(&pongs).all(|it| it["ended"] == json!({ "exited": 0 })), "{pings:?}");
    let list = world.ok(&["hook", "list"]);
    assert!(list.contains("paused: 5 hooks led to each other"), "{list}");
    let senders = world.json(&["msg", "history", "pong"]);
    assert_eq!(senders[0]["sender"], json!(format!("hook/{ping}")), "messages name their real sender");
    assert_eq!(senders[0]["depth"], 1);
    // A hook's command cannot post as another agent.
    let forger = script(&world, "forge", &format!("exec {exe} msg send pong 'I am eve' --as eve\n"));
    let forge = add(&world, &["--channel", "forge", "--cwd", "/", "--", &forger]);
    send(&world, "forge", "go");
    let log = ended(&world, &forge, 1);
    assert!(log[0]["output"].as_str().unwrap().contains("cannot post as eve"), "{log:?}");

    let busy = add(&world, &["--channel", "busy", "--cwd", "/", "--", "true"]);
    for nth in 0..22 {
        send(&world, "busy", &format!("{nth}"));
    }
    assert_eq!(ended(&world, &busy, 20).len(), 20);
    assert!(world.ok(&["hook", "list"]).contains("paused: it fired 20 times within a minute"));
    world.ok(&["hook", "resume", &busy]);
    send(&world, "busy", "again");
    ended(&world, &busy, 21);
    world.ok(&["hook", "pause", &busy, "--because", "enough"]);
    send(&world, "busy", "not now");
    assert_eq!(world.json(&["hook", "test", &busy, "--text", "x"])["why"], "it is paused: enough");
}

/// J8, P1: the daemon is killed while a hook's command runs. The command goes on, does not run
/// again, and its end is recorded.
#[test]
fn j8_a_killed_daemon_runs_no_hook_twice() {
    let world = without_router();
    let (gate, ran) = (world.root.join("gate"), world.root.join("ran"));
    let text = format!(
        "echo $REGATTA_MESSAGE_ID >> {ran}\nwhile [ ! -e {gate} ]; do sleep 0.02; done\necho over\n",
        ran = ran.display(),
        gate = gate.display()
    );
    let wait = script(&world, "wait", &text);
    let hook = add(&world, &["--channel", "shop", "--claim", "respond://shop-dev", "--cwd", "/", "--", &wait]);
    let id = send(&world, "shop", "go");
    assert!(until(LONG, || lines(&ran) == [id.clone()]), "the command did not start");
    let pid = u32::try_from(world.card().unwrap()["pid"].as_u64().unwrap()).unwrap();
    kill(pid);
    assert!(until(LONG, || !alive(pid)));
    world.ok(&["up"]);
    let refused = world.refused(&["claim", "acquire", "respond://shop-dev", "--as", "ann", "--ttl", "5s"], 5);
    assert_eq!(refused["code"], "claim_held", "the claim is held while the command runs");
    std::fs::write(&gate, "").unwrap();
    let log = ended(&world, &hook, 1);
    assert_eq!((log[0]["output"].as_str(), &log[0]["ended"]), (Some("over\n"), &json!({ "exited": 0 })));
    assert_eq!(lines(&ran), [id], "the command ran twice");

    // The daemon dies just before the command, just after it, and after its report.
    for (round, point) in ["hook.begin", "hook.ran", "hook.recorded"].into_iter().enumerate() {
        world.ok(&["down"]);
        let mut up = world.command(&["up", "--json"]);
        up.env("REGATTA_FAILPOINT", point);
        let up = run(up, None);
        let pid = serde_json::from_str::<Value>(&up.out).unwrap()["data"]["pid"].as_u64().unwrap();
        // The answer may be lost with the daemon, but the message was committed.
        let _maybe = world.run(&["msg", "send", "shop", "go"]);
        assert!(until(LONG, || !alive(pid as u32)), "{point} was never reached");
        world.ok(&["up"]);
        let log = ended(&world, &hook, round + 2);
        assert_eq!(log[round + 1]["ended"], json!({ "exited": 0 }), "{point}: {log:?}");
        assert_eq!(lines(&ran).len(), round + 2, "{point}: each command must run once");
    }
}

/// A command that takes too long is ended. A missing program or directory is recorded in the log.
#[test]
fn a_command_that_times_out_or_cannot_start_is_logged() {
    let world = without_router();
    let slow = add(&world, &["--channel", "slow", "--cwd", "/", "--max-time", "200ms", "--", "sleep", "600"]);
    let gone = add(&world, &["--channel", "gone", "--cwd", "/", "--", "/no/such/program"]);
    let place = world.root.join("place");
    std::fs::create_dir(&place).unwrap();
    let lost = add(&world, &["--channel", "lost", "--cwd", place.to_str().unwrap(), "--", "true"]);
    std::fs::remove_dir(&place).unwrap();
    for channel in ["slow", "gone", "lost"] {
        send(&world, channel, "go");
    }
    assert_eq!(ended(&world, &slow, 1)[0]["ended"], "timed_out");
    assert_eq!(ended(&world, &gone, 1)[0]["ended"], json!({ "exited": 127 }));
    let why = ended(&world, &lost, 1)[0]["ended"]["not_run"].as_str().unwrap().to_owned();
    assert!(why.contains("is not a directory"), "{why}");
    assert_eq!(world.run(&["hook", "add", "--event", "no.such", "--", "true"]).code, 2, "no such event");
    assert_eq!(world.run(&["hook", "add", "--", "true"]).code, 2, "a hook without a condition");
    assert_eq!(world.run(&["hook", "add", "--channel", "x"]).code, 2, "a hook without a command");
}

/// The router is a hook like the others, and `hook list` counts its firings.
#[test]
fn the_router_counts_the_messages_it_handled() {
    let world = World::set_up();
    assert!(world.ok(&["hook", "list"]).contains("never fired"));
    send(&world, "shop", "!help");
    assert!(until(LONG, || world.json(&["hook", "list"])[0]["fired"] == 1), "{}", world.ok(&["hook", "list"]));
    let list = world.ok(&["hook", "list"]);
    assert!(list.contains("fired 1 times, last "), "{list}");
}
