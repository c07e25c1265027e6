//! The output that scripts rely on, command by command.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::world::{TEST_TIMEOUT, World, path_text, run_command, wait_for_child};

/// `serve` prints on its first line that it is ready, with its address and process id. SIGTERM ends
/// it cleanly.
#[test]
fn serve_prints_ready_on_its_first_line() {
    let world = World::new();
    for _ in 0..2 {
        let mut command = world.command(&["serve", "--listen", "127.0.0.1:0", "--json"]);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut first).unwrap();
        let ready: Value = serde_json::from_str(&first).unwrap();
        assert_eq!(
            (&ready["v"], &ready["kind"]),
            (&json!(1), &json!("ready")),
            "{ready}"
        );
        assert_eq!(ready["data"]["pid"], child.id());
        assert_eq!(ready["data"]["data_dir"], path_text(&world.data_dir));
        assert!(
            ready["data"]["url"]
                .as_str()
                .unwrap()
                .starts_with("http://127.0.0.1:"),
            "{ready}"
        );
        assert_eq!(world.daemon_info().unwrap()["pid"], child.id());
        world.run_json(&["claim", "list"]);
        rustix::process::kill_process(
            rustix::process::Pid::from_child(&child),
            rustix::process::Signal::TERM,
        )
        .unwrap();
        child.stdout = Some(stdout.into_inner());
        let output = wait_for_child(child, TEST_TIMEOUT).unwrap();
        assert_eq!(
            (output.exit_code, output.stdout.as_str()),
            (0, ""),
            "{output:?}"
        );
        assert!(
            world.daemon_info().is_none() && !world.data_dir.join("daemon.sock").exists(),
            "the card or the socket was left behind"
        );
    }
}

/// Adding, listing and removing projects and agents.
#[test]
fn projects_and_agents_are_listed() {
    let world = World::with_repo();
    let made = world.run_json(&[
        "init",
        "--trunk",
        "main",
        "--validate",
        "sh ./test.sh",
        "--yes",
    ]);
    assert_eq!(made["project"]["trunk"], "main");
    let projects = world.run_json(&["project", "list"]);
    assert_eq!(
        (&projects[0]["name"], &projects[0]["path"]),
        (&json!("shop"), &json!(path_text(&world.repo)))
    );
    let agent = world.run_json(&[
        "agent",
        "add",
        "scripted-1",
        "--runtime",
        "scripted",
        "--max-tasks",
        "3",
    ]);
    assert_eq!(
        (&agent["name"], &agent["max_tasks"]),
        (&json!("scripted-1"), &json!(3)),
        "{agent}"
    );
    assert_eq!(
        agent["capacity"],
        json!({ "max": 3, "current": 0, "available": 3 }),
        "{agent}"
    );
    world.run_json(&[
        "agent",
        "add",
        "cmd-1",
        "--runtime",
        "command",
        "--command",
        "sh -c 'true' {prompt}",
    ]);
    let names: Vec<String> = string_list(&world.run_json(&["agent", "list"]), "name");
    assert_eq!(names, ["cmd-1", "scripted-1"]);
    assert_eq!(
        world.run_json(&["agent", "show", "cmd-1"])["runtime"],
        world.run_json(&["agent", "list"])[0]["runtime"]
    );
    world.run_json(&["agent", "rm", "cmd-1"]);
    assert_eq!(
        string_list(&world.run_json(&["agent", "list"]), "name"),
        ["scripted-1"]
    );
    for bad in ["0", "21"] {
        world.run_refused(
            &[
                "agent",
                "add",
                "x",
                "--runtime",
                "scripted",
                "--max-tasks",
                bad,
            ],
            2,
        );
    }
    world.run_refused(&["agent", "add", "x", "--runtime", "command"], 2);
    world.run_refused(
        &[
            "agent",
            "add",
            "x",
            "--runtime",
            "scripted",
            "--command",
            "sh",
        ],
        2,
    );
    world.run_refused(&["agent", "add", "x", "--runtime", "acp"], 2);
}

fn string_list(data: &Value, field: &str) -> Vec<String> {
    data.as_array()
        .unwrap()
        .iter()
        .map(|data| data[field].as_str().unwrap().to_owned())
        .collect()
}

/// Tasks: adding with all options, listing, showing, editing, assigning in three ways, and
/// cancelling.
#[test]
fn tasks_are_added_listed_changed_and_cancelled() {
    let world = World::with_project();
    world.run_ok(&[
        "agent",
        "add",
        "zoe",
        "--runtime",
        "outside",
        "--max-tasks",
        "1",
    ]);
    let first = world.run_json(&[
        "task",
        "add",
        "First",
        "--type",
        "task",
        "--files",
        "a.rs,b/**",
        "--validate",
        "true",
    ]);
    assert_eq!(
        (&first["id"], &first["status"]),
        (&json!("T1"), &json!("unassigned")),
        "{first}"
    );
    assert_eq!(first["files"], json!(["a.rs", "b/**"]));
    assert!(
        !first["waits"].as_array().unwrap().is_empty(),
        "W1: a waiting task has a reason"
    );
    let second = world.run_json(&[
        "add",
        "Second",
        "--files",
        "c.rs",
        "--blocked-by",
        "T1",
        "--priority",
        "1",
    ]);
    assert_eq!(
        (&second["blocked_by"], &second["priority"]),
        (&json!(["T1"]), &json!(1)),
        "{second}"
    );
    let third = world.run_json(&["task", "add", "Third", "--files", "d.rs", "--assign", "zoe"]);
    assert_eq!(
        (&third["status"], &third["assignee"]),
        (&json!("pending"), &json!("zoe")),
        "{third}"
    );
    assert_eq!(
        world.run_json(&["task", "poll", "--as", "zoe"])["task"]["id"],
        "T3"
    );
    // Assigning to a full agent is refused with its limit and the alternatives. `--offer` and
    // `--queue` wait.
    let full = world.run_refused(
        &[
            "task", "add", "Fourth", "--files", "e.rs", "--assign", "zoe",
        ],
        1,
    );
    assert_eq!(full["code"], "at_capacity");
    assert!(full["message"].as_str().unwrap().contains("1/1"), "{full}");
    assert!(
        full["hint"].as_str().unwrap().contains("--offer")
            && full["hint"].as_str().unwrap().contains("--queue")
    );
    let offered = world.run_json(&[
        "task", "add", "Fourth", "--files", "e.rs", "--assign", "zoe", "--offer",
    ]);
    assert_eq!(offered["status"], "offered", "{offered}");
    let queued = world.run_json(&[
        "task", "add", "Fifth", "--files", "f.rs", "--assign", "zoe", "--queue",
    ]);
    assert_eq!(queued["status"], "pending", "{queued}");
    let rejected = world.run_json(&[
        "task",
        "reject",
        offered["id"].as_str().unwrap(),
        "--as",
        "zoe",
    ]);
    assert_eq!(rejected["status"], "unassigned", "{rejected}");
    assert_eq!(
        string_list(&world.run_json(&["task", "list"]), "id"),
        ["T1", "T2", "T3", "T4", "T5"]
    );
    assert_eq!(
        string_list(
            &world.run_json(&["task", "list", "--status", "in_progress"]),
            "id"
        ),
        ["T3"]
    );
    assert_eq!(
        string_list(&world.run_json(&["task", "list", "--limit", "2"]), "id"),
        ["T1", "T2"]
    );
    assert_eq!(
        world.run_json(&["task", "show", "t1"])["id"],
        "T1",
        "ids ignore case"
    );
    let changed = world.run_json(&[
        "edit",
        "T1",
        "--subject",
        "First, better",
        "--priority",
        "0",
        "--pause",
        "wait for Ann",
    ]);
    assert_eq!(
        (&changed["subject"], &changed["paused"]),
        (&json!("First, better"), &json!("wait for Ann"))
    );
    assert!(
        world
            .run_ok(&["why", "T1"])
            .contains("it is paused: wait for Ann")
    );
    world.run_json(&["edit", "T1", "--ready"]);
    assert_eq!(
        world.run_json(&["assign", "T1", "zoe", "--queue"])["assignee"],
        "zoe"
    );
    let cancelled = world.run_json(&["task", "cancel", "T1", "-m", "not needed"]);
    assert_eq!(
        (&cancelled["status"], &cancelled["reason"]),
        (&json!("cancelled"), &json!("not needed"))
    );
    let error = world.run_refused(&["task", "cancel", "T1"], 1);
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("T1 was already cancelled"),
        "J7: {error}"
    );
    assert_eq!(
        string_list(&world.run_json(&["task", "list"]), "id"),
        ["T2", "T3", "T4", "T5"]
    );
    assert_eq!(
        string_list(&world.run_json(&["task", "list", "--all"]), "id").len(),
        5
    );
}

/// Exported tasks can be imported into another fleet, and a second import changes nothing.
#[test]
fn exported_tasks_can_be_imported_elsewhere() {
    let world = World::with_project();
    let plan = world.write_plan(
        "[[task]]\nid = \"a\"\nsubject = \"First\"\ndescription = \"two\\nlines\"\nissue_type = \
         \"bug\"\nfiles = [\"x/{a,b}.rs\"]\n\
         validation = { tests = \"true\", lint = [\"true\", \"true\"], files_exist = [\"x/a.rs\"], \
         content_check = { file = \"x/a.rs\", pattern = \"fn\" } }\n\
         priority = 1\nscript = [{ say = \"hi\" }, { sleep = 0.5 }, { write = { path = \"x/a.rs\", \
         text = \"fn\" } }]\n\
         [[task]]\nid = \"b\"\nsubject = \"Second\"\nfiles = [\"y.rs\"]\nblocked_by = \
         [\"a\"]\nexpects = \"report\"\neffort = \"low\"\n",
    );
    let imported = world.run_json(&["task", "import", &plan]);
    assert_eq!(imported, json!({ "added": ["T1", "T2"], "there": [] }));
    assert_eq!(
        world.run_json(&["task", "import", &plan]),
        json!({ "added": [], "there": ["T1", "T2"] })
    );
    let exported = world.run_ok(&["task", "export"]);
    let other = World::with_project();
    let file = other.write_plan(&exported);
    assert_eq!(
        other.run_json(&["task", "import", &file])["added"],
        json!(["T1", "T2"])
    );
    let timeless_tasks = |world: &World| -> Vec<Value> {
        let mut tasks = world.run_json(&["task", "list"]);
        for task in tasks.as_array_mut().unwrap() {
            for moment in ["created_wall", "updated_wall"] {
                task[moment] = Value::Null;
            }
        }
        tasks.as_array().unwrap().clone()
    };
    assert_eq!(
        timeless_tasks(&other),
        timeless_tasks(&world),
        "the import differs from the export:\n{exported}"
    );
    assert_eq!(
        world.run_json(&["task", "export"])["task"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

/// Claims: a grant has a token, a held claim gives exit code 5 and `claim_held`, and only the token
/// renews and releases (L6, L8).
#[test]
fn claims_are_granted_held_renewed_and_released() {
    let world = World::with_project();
    for name in ["zoe", "yan", "a", "b", "c"] {
        world.run_ok(&["agent", "add", name, "--runtime", "outside"]);
    }
    let uri = "file://shop/src/**";
    let grant = world.run_json(&[
        "claim",
        "acquire",
        uri,
        "agent://zoe",
        "--as",
        "zoe",
        "--ttl",
        "60s",
        "-m",
        "refactor",
    ]);
    assert_eq!(
        (&grant["claim"], &grant["ttl_ms"]),
        (&json!("C1"), &json!(60_000)),
        "{grant}"
    );
    let token = grant["token"].to_string();
    let error = world.run_refused(
        &[
            "claim",
            "acquire",
            "file://shop/src/a.rs",
            "--as",
            "yan",
            "--ttl",
            "60s",
        ],
        5,
    );
    assert_eq!(
        (&error["code"], &error["retryable"], &error["ref"]),
        (&json!("claim_held"), &json!(true), &json!("C1"))
    );
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains("held by zoe (refactor), for 5") && message.contains("unless renewed"),
        "{message}"
    );
    // A claim on several URIs is granted whole or not at all (L7).
    world.run_refused(
        &[
            "claim",
            "acquire",
            "file://shop/b.rs",
            "file://shop/src/b.rs",
            "--as",
            "yan",
        ],
        5,
    );
    assert_eq!(
        world.run_json(&["claim", "check", "file://shop/b.rs"]),
        json!({ "free": true, "holders": [] })
    );
    let (check, ran) = world.run_json_any_exit(&["claim", "check", "file://shop/src/b.rs"]);
    assert_eq!(ran.exit_code, 5, "{ran:?}");
    assert_eq!(
        (&check["free"], &check["holders"][0]["owner"]),
        (&json!(false), &json!({ "agent": "zoe" })),
        "{check}"
    );
    // A wait that times out gives the same error.
    let error = world.run_refused(
        &["claim", "acquire", uri, "--as", "yan", "--wait", "100ms"],
        5,
    );
    assert_eq!(error["code"], "claim_held");
    assert_eq!(
        world.run_json(&["claim", "list"])["waiting"],
        json!([]),
        "no wait is left"
    );
    for word in ["renew", "release"] {
        assert_eq!(
            world.run_refused(&["claim", word, "C1", "--token", "1"], 5)["code"],
            "stale_token"
        );
    }
    assert_eq!(
        world.run_json(&["claim", "renew", "C1", "--token", &token])["ttl_ms"],
        60_000
    );
    // A waiting request is granted when the claim is released.
    std::thread::scope(|threads| {
        let waiting = threads
            .spawn(|| world.run_json(&["claim", "acquire", uri, "--as", "yan", "--wait", "60s"]));
        assert!(crate::world::wait_until(TEST_TIMEOUT, || world
            .run_json(&["claim", "list"])["waiting"]
            != json!([])));
        world.run_json(&["claim", "release", "C1", "--token", &token]);
        let next = waiting.join().unwrap();
        assert!(
            next["token"].as_u64() > grant["token"].as_u64(),
            "L2: {next}"
        );
    });
    assert_eq!(
        world.run_refused(&["claim", "renew", "C1", "--token", &token], 5)["code"],
        "claim_ended"
    );
    world.run_json(&[
        "claim",
        "acquire",
        "port://shop/8080",
        "--as",
        "a",
        "--shared",
    ]);
    world.run_json(&[
        "claim",
        "acquire",
        "port://shop/8080",
        "--as",
        "b",
        "--shared",
    ]);
    world.run_refused(&["claim", "acquire", "port://shop/8080", "--as", "c"], 5);
    let claims = world.run_json(&["claim", "list"]);
    assert_eq!(claims["held"].as_array().unwrap().len(), 3);
    assert!(
        claims["held"][0].get("token").is_none(),
        "the list must not show tokens: {claims}"
    );
    assert_eq!(world.run_ok(&["claim", "list"]).lines().count(), 3);
}

/// Messages: labels, senders, replies, waiting, unread.
#[test]
fn messages_are_sent_filtered_and_waited_for() {
    let world = World::new();
    let first = world.run_json(&[
        "msg",
        "send",
        "dev",
        "hello @yan",
        "-L",
        "note",
        "-L",
        "hi",
        "--as",
        "zoe",
    ]);
    assert_eq!(
        (&first["id"], &first["channel"]),
        (&json!("B1"), &json!("dev")),
        "{first}"
    );
    world.run_json(&["msg", "send", "dev", "all right", "--reply-to", "B1"]);
    world.run_json(&["msg", "send", "other", "elsewhere"]);
    let texts = |args: &[&str]| {
        string_list(
            &world.run_json(&[&["msg", "history"], args].concat()),
            "text",
        )
    };
    assert_eq!(texts(&["dev"]), ["hello @yan", "all right"]);
    assert_eq!(texts(&["dev", "-L", "note"]), ["hello @yan"]);
    assert_eq!(texts(&["dev", "--from", "zoe"]), ["hello @yan"]);
    assert_eq!(texts(&["dev", "--after", "B1"]), ["all right"]);
    assert_eq!(texts(&["dev", "--limit", "1"]).len(), 1);
    std::thread::scope(|threads| {
        let waiting = threads
            .spawn(|| world.run_json(&["msg", "wait", "dev", "-L", "ping", "--timeout", "60s"]));
        // Other messages do not end the wait. The matching message may arrive before or after the
        // wait begins.
        let woken = || {
            world.run_json(&["msg", "send", "dev", "no", "-L", "pong"]);
            world.run_json(&["msg", "send", "dev", "now", "-L", "ping"]);
            waiting.is_finished()
        };
        assert!(crate::world::wait_until(TEST_TIMEOUT, woken));
        assert_eq!(waiting.join().unwrap()["text"], "now");
    });
    assert_eq!(
        world.run_refused(&["msg", "wait", "dev", "--timeout", "100ms"], 124)["code"],
        "timed_out"
    );
    assert!(
        world
            .run_json(&["msg", "read", "dev", "--as", "yan"])
            .as_array()
            .unwrap()
            .len()
            >= 4
    );
    assert_eq!(
        world.run_json(&["msg", "read", "dev", "--as", "yan"]),
        json!([])
    );
}

/// Events: one JSON object per line with revision, time, kind, subject and data, from any revision
/// on, and followed.
#[test]
fn events_are_lines_without_gaps() {
    let world = World::new();
    for nth in 0..5 {
        world.run_json(&["msg", "send", "dev", &format!("message {nth}")]);
    }
    let events = world.events();
    for (at, event) in events.iter().enumerate() {
        assert_eq!(event["revision"], at as u64 + 1, "{event}");
        let time = event["time"].as_str().unwrap();
        assert!(
            time.len() >= 20 && time.as_bytes()[10] == b'T' && time.ends_with('Z'),
            "RFC 3339: {event}"
        );
        assert!(
            event["kind"].is_string() && event["subject"].is_string() && event["data"].is_object(),
            "{event}"
        );
    }
    let last = events.len() - 1;
    let after = world.run_ok(&["events", "--after", &last.to_string(), "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&after).unwrap(), events[last]);
    assert_eq!(
        world.run_refused(&["events", "--after", "99999"], 2)["code"],
        "no_such_revision"
    );
    // With `--follow`, later events arrive on the same stream.
    let mut follow = world.command(&[
        "events",
        "--after",
        &events.len().to_string(),
        "--follow",
        "--json",
    ]);
    let mut child = follow
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    world.run_json(&["msg", "send", "dev", "one more"]);
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    let event: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(
        (&event["revision"], &event["kind"]),
        (&json!(events.len() + 1), &json!("message.posted"))
    );
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&child),
        rustix::process::Signal::INT,
    )
    .unwrap();
    child.stdout = Some(lines.into_inner());
    assert_eq!(wait_for_child(child, TEST_TIMEOUT).unwrap().exit_code, 130);
    // A reader that closes the pipe early is no error.
    let mut head = std::process::Command::new("sh");
    world.clean_environment(&mut head);
    head.args([
        "-c",
        "\"$0\" events --json | head -n 1 >/dev/null",
        env!("CARGO_BIN_EXE_regatta"),
    ]);
    let output = run_command(head, None);
    assert_eq!(
        (output.exit_code, output.stderr.as_str()),
        (0, ""),
        "{output:?}"
    );
}

/// `land`, `queue`, `why`, `status`, `json` and `stop` while work runs.
#[test]
fn running_work_is_shown_drained_stopped_and_resumed() {
    let world = World::with_project();
    assert_eq!(
        world.run_refused(&["land", "T9", "--wait"], 1)["code"],
        "no_such_task"
    );
    world.run_ok(&["task", "add", "Later", "--files", "l.txt"]);
    assert_eq!(
        world.run_refused(&["land", "T1"], 1)["code"],
        "nothing_to_land"
    );
    assert_eq!(world.run_json(&["stop"]), json!([]), "nothing runs");
    // Without a plan, a terminal and `--yes`, a run does not start tasks that were not named.
    let error = world.run_refused(&["run", "--agents", "scripted"], 2);
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("1 task without a mission: T1"),
        "{error}"
    );
    assert!(
        error["hint"]
            .as_str()
            .unwrap()
            .contains("regatta run --yes"),
        "{error}"
    );
    assert_eq!(world.run_json(&["show", "T1"])["mission"], json!(null));
    let plan = world.write_plan(
        "[[task]]\nid = \"h\"\nsubject = \"Hang\"\nfiles = [\"h.txt\"]\nscript = [{ hang = true \
         }]\n\
         [[task]]\nid = \"n\"\nsubject = \"Next\"\nfiles = [\"n.txt\"]\nblocked_by = [\"h\"]\n\
         script = [{ say = \"done\" }]\n",
    );
    let mission = world.run_json(&["run", &plan, "--agents", "scripted", "--yes"]);
    assert_eq!(
        (&mission["id"], mission["tasks"].as_array().unwrap().len()),
        (&json!("M1"), 2),
        "{mission}"
    );
    assert!(crate::world::wait_until(TEST_TIMEOUT, || world
        .run_json(&["show", "T2"])["word"]
        == "working"));
    let explanation = world.run_json(&["why", "T3"]);
    assert_eq!(
        explanation["task"]["waits"][0]["kind"], "dep",
        "{explanation}"
    );
    let status = world.run_json(&["status"]);
    assert_eq!(
        (&status["working"], &status["waiting"]),
        (&json!(1), &json!(2)),
        "{status}"
    );
    assert_eq!(world.run_json(&["queue"])[0]["queue"], json!([]));
    assert_eq!(world.run_json(&["show", "M1"])["title"], "plan");
    assert_eq!(world.run_json(&["show", "scripted"])["state"], "busy");
    assert_eq!(world.run_json(&["show", "A1"])["task"], "T2");
    let refused = world.run_refused(&["agent", "rm", "scripted"], 5);
    assert_eq!(refused["code"], "in_use", "{refused}");
    assert_eq!(world.run_json(&["stop", "--drain"]), json!(["M1"]));
    assert_eq!(
        world.run_json(&["show", "T2"])["word"],
        "working",
        "J10: draining lets running work finish"
    );
    assert_eq!(world.run_json(&["stop", "--now"]), json!(["M1"]));
    assert!(crate::world::wait_until(TEST_TIMEOUT, || world
        .run_json(&["agent", "show", "scripted"])["state"]
        == "idle"));
    assert_eq!(
        world.run_json(&["show", "T2"])["word"],
        "waiting",
        "all work is kept"
    );
    world.run_json(&["run", "--resume", "M1"]);
    assert!(crate::world::wait_until(TEST_TIMEOUT, || world
        .run_json(&["agent", "show", "scripted"])["state"]
        == "busy"));
}

/// Checks the commit and its date that `--version` prints. The commit must be one of this checkout,
/// but not its newest: somebody may commit while the tests run.
fn check_built_commit(printed: &str) {
    let mut git = std::process::Command::new("git");
    let commit = printed.split(' ').next().unwrap();
    git.args(["log", "-1", "--format=%h %cs", "--abbrev=10", commit])
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    match git.output() {
        Ok(output) if output.status.success() => {
            assert_eq!(printed, String::from_utf8(output.stdout).unwrap().trim());
        }
        _ => assert_eq!(printed, "built without git"),
    }
}

/// Utility commands: name, schema, completions, man, version, backup, restore and config.
#[test]
fn utility_commands_work() {
    let world = World::with_project();
    assert!(world.run_json(&["name"]).as_str().unwrap().contains('-'));
    assert_eq!(
        world.run_json(&["version"])["version"],
        env!("CARGO_PKG_VERSION")
    );
    let version = world.run_ok(&["--version"]);
    let start = format!("regatta {} (", env!("CARGO_PKG_VERSION"));
    let built = version.strip_prefix(&start).unwrap();
    check_built_commit(built.strip_suffix(")\n").unwrap());
    for shell in ["bash", "zsh", "fish"] {
        assert!(
            world.run_ok(&["completions", shell]).contains("regatta"),
            "{shell}"
        );
    }
    assert!(world.run_ok(&["man"]).contains(".TH"));
    let pages = world.root.join("man");
    world.run_json(&["man", "--out", path_text(&pages)]);
    assert!(pages.join("regatta.1").is_file() && pages.join("regatta-task-poll.1").is_file());
    let verbs = world.run_json(&["schema"]);
    assert!(verbs.as_array().unwrap().len() > 30, "{verbs}");
    world.run_ok(&["task", "add", "Keep me", "--files", "k.txt"]);
    let copy = world.root.join("copy.db");
    world.run_json(&["backup", path_text(&copy)]);
    let again = world.run_refused(&["backup", path_text(&copy)], 1);
    assert!(
        again["message"]
            .as_str()
            .unwrap()
            .contains("does not overwrite"),
        "{again}"
    );
    world.run_ok(&["task", "cancel", "T1"]);
    assert_eq!(
        world.run_refused(&["restore", path_text(&copy)], 1)["code"],
        "in_use"
    );
    world.run_ok(&["down"]);
    world.run_json(&["restore", path_text(&copy)]);
    world.run_ok(&["up"]);
    assert_eq!(
        world.run_json(&["task", "list"])[0]["subject"],
        "Keep me",
        "D7"
    );
    let settings = world.run_json(&["config", "show", "--origin"]);
    let origin = |name: &str| {
        settings
            .as_array()
            .unwrap()
            .iter()
            .find(|setting| setting["name"] == name)
            .unwrap()["origin"]
            .clone()
    };
    assert_eq!(
        (origin("data_dir"), origin("run.max_workers")),
        (json!("REGATTA_DATA_DIR"), json!("default"))
    );
    assert_eq!(
        origin("project.name"),
        path_text(&world.repo.join("regatta.toml"))
    );
    assert_eq!(
        world.run_json(&["config", "set", "max_attempts", "2"]),
        json!({ "max_attempts": 2 })
    );
}

/// `up` and `down` have the same result when repeated, and `--restart` replaces the daemon.
#[test]
fn up_and_down_can_be_repeated() {
    let world = World::new();
    assert_eq!(world.run_json(&["down"]), json!({ "was_up": false }));
    let first = world.run_json(&["up"]);
    assert_eq!(world.run_json(&["up"]), first);
    world.run_ok(&["msg", "send", "dev", "kept"]);
    let before = world.events().len();
    let second = world.run_json(&["up", "--restart"]);
    assert_ne!(second["pid"], first["pid"]);
    assert_eq!(
        world.run_json(&["msg", "history", "dev"])[0]["text"],
        "kept"
    );
    let after = world.events();
    let new: Vec<&Value> = after[before..]
        .iter()
        .filter(|after| after["kind"] != "fleet.resumed")
        .collect();
    assert_eq!(
        new,
        [] as [&Value; 0],
        "J11: a clean restart changes nothing"
    );
    assert_eq!(world.run_json(&["down"]), json!({ "was_up": true }));
    assert_eq!(world.run_json(&["down"]), json!({ "was_up": false }));
    // Global flags may stand before or after the command.
    for args in [["--json", "version"], ["version", "--json"]] {
        let output = run_command(world.command(&args), None);
        assert!(
            output.exit_code == 0 && output.stdout.starts_with("{\"v\":1"),
            "{output:?}"
        );
    }
}
