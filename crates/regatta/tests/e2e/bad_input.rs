//! Invalid input gives an error message, a hint and the right exit code. It changes nothing and
//! causes no panic.

use regatta_api::VERBS;
use serde_json::{Value, json};

use crate::http::ApiClient;
use crate::world::{World, path_text, run_command, split_words};

/// Each invalid command line exits with 2 and prints one JSON error.
#[test]
fn invalid_command_lines_exit_with_2() {
    let world = World::with_project();
    let before = world.events();
    for line in [
        "--nope",
        "status --nope",
        "statsu",
        "task",
        "task fly",
        "claim acquire --as ann",
        "claim acquire nonsense --as ann",
        "claim acquire file:// --as ann",
        "claim acquire ftp://x/y --as ann",
        "claim acquire file://shop/a//b --as ann",
        "claim acquire file://shop/../x --as ann",
        "claim acquire file://shop/a** --as ann",
        "claim acquire file://shop/x --as ann --ttl soon",
        "claim acquire file://shop/x --as ann --ttl -5s",
        "claim acquire file://shop/x --as ann --ttl 0",
        "claim acquire file://shop/x --as ann --ttl 99999d",
        "claim acquire file://shop/x --as ../zoe",
        "claim renew X1 --token 1",
        "claim renew C1 --token -1",
        "claim renew C1 --token 99999999999999999999999",
        "claim renew C1",
        "show 99999999999999999999999",
        "land banana",
        "task add x --priority 300",
        "task add x --priority 10 --files a",
        "task add x --type epic",
        "task add x --files /etc/passwd",
        "task add x --files ../x",
        "task add x --offer",
        "task add x --script nonsense",
        "task list --status asleep",
        "events --after -1",
        "agent add zoe --runtime magic",
        "agent add -x --runtime scripted",
        "run --mode sideways",
        "run /nowhere/plan.toml",
        "demo --size 0",
        "demo --size 301",
        "msg send UPPER/../x hello",
        "config set nonsense 1",
        "config set max_attempts many",
        "config set max_attempts 0",
        "schema no.such",
        "help no-such-word",
        "--timeout soon status",
        "--color purple status",
        "-C /nowhere status",
    ] {
        let error = world.run_refused(&split_words(line), 2);
        let message = error["message"].as_str().unwrap();
        assert!(message.len() < 2_000, "{line}: {message}");
    }
    assert_eq!(world.events(), before, "nothing changed");
}

/// An unknown id or name exits with 1 and the error code of its kind.
#[test]
fn unknown_ids_and_names_exit_with_1() {
    let world = World::with_project();
    for (line, code) in [
        ("show T999", "no_such_task"),
        ("why T999", "no_such_task"),
        ("why T-1", "no_such_agent"),
        ("why banana", "no_such_agent"),
        ("stop banana", "no_such_agent"),
        ("land T999", "no_such_task"),
        ("task cancel T999", "no_such_task"),
        ("edit T999 --priority 1", "no_such_task"),
        ("show A999", "no_such_attempt"),
        ("show M999", "no_such_mission"),
        ("stop M999", "no_such_mission"),
        ("agent rm nobody", "no_such_agent"),
        ("task poll --as nobody", "no_such_agent"),
        ("task add x --files a --assign nobody", "no_such_agent"),
        ("status --project nowhere", "no_such_project"),
        ("task add x --files a --project nowhere", "no_such_project"),
    ] {
        let error = world.run_refused(&split_words(line), 1);
        assert_eq!(error["code"], code, "{line}: {error}");
    }
}

/// A plan is imported completely or not at all, and the error names the fault.
#[test]
fn a_bad_plan_creates_nothing() {
    let world = World::with_project();
    for (plan, words) in [
        ("", "no [[task]]"),
        ("[[task]]\n", "missing field `subject`"),
        (
            "[[task]]\nsubject = \"x\"\ncolour = \"red\"\n",
            "unknown field `colour`",
        ),
        (
            "[[task]]\nsubject = \"x\"\nblocked_by = [\"y\"]\n",
            "not in the plan",
        ),
        (
            "[[task]]\nsubject = \"x\"\nid = \"x\"\nblocked_by = [\"x\"]\n",
            "is blocked by itself",
        ),
        (
            "[[task]]\nsubject = \"x\"\nfiles = [\"/abs\"]\n",
            "absolute",
        ),
        (
            "[[task]]\nsubject = \"x\"\nscript = [{ fly = true }]\n",
            ":3:11: invalid script",
        ),
        (
            "[[task]]\nsubject = \"x\"\npriority = \"high\"\n",
            "priority",
        ),
        ("not toml at all", ":1:5: this is not TOML"),
    ] {
        let path = world.write_plan(plan);
        for words_of in [
            vec!["run", &path, "--agents", "scripted"],
            vec!["task", "import", &path],
        ] {
            let error = world.run_refused(&words_of, 2);
            assert!(
                error["message"].as_str().unwrap().contains(words),
                "{plan}: {error}"
            );
        }
    }
    let json = world.root.join("plan.json");
    for plan in ["{", "[]", "{\"task\": {}}", "[{\"subject\": 1}]", "null"] {
        std::fs::write(&json, plan).unwrap();
        world.run_refused(&["run", path_text(&json), "--agents", "scripted"], 2);
    }
    std::fs::write(&json, [0xff, 0xfe, 0x00]).unwrap();
    world.run_refused(&["run", path_text(&json)], 2);
    world.run_refused(&["run", path_text(&world.repo)], 2);
    assert_eq!(world.run_json(&["task", "list", "--all"]), json!([]));
    // Faults that only the board can detect also create nothing.
    let path = world.write_plan(
        "[[task]]\nsubject = \"fine\"\nfiles = [\"f\"]\n[[task]]\nsubject \
        = \"\"\nfiles = [\"g\"]\n",
    );
    world.run_refused(&["run", &path, "--agents", "scripted"], 2);
    let path =
        world.write_plan("[[task]]\nsubject = \"fine\"\nfiles = [\"f\"]\nagent = \"nobody\"\n");
    assert_eq!(
        world.run_refused(&["run", &path, "--agents", "scripted"], 1)["code"],
        "no_such_agent"
    );
    assert_eq!(world.run_json(&["task", "list", "--all"]), json!([]));
}

/// Huge arguments are refused or stored whole. They are never truncated and never cause a crash.
#[test]
fn huge_arguments_are_kept_or_refused() {
    let world = World::with_project();
    let huge = "x".repeat(100_000);
    world.run_refused(&["task", "add", &huge, "--files", "a"], 2);
    world.run_refused(&["task", "add", "x", "--files", &huge], 2);
    world.run_refused(&["agent", "add", &huge, "--runtime", "scripted"], 2);
    world.run_refused(
        &[
            "claim",
            "acquire",
            &format!("file://shop/{huge}"),
            "--as",
            "ann",
        ],
        2,
    );
    world.run_refused(&["show", &huge], 2);
    world.run_refused(&[&huge], 2);
    let many: Vec<String> = (0..600).map(|n| format!("file://shop/{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    world.run_refused(
        &[&["claim", "acquire", "--as", "ann"], &many[..]].concat(),
        2,
    );
    // Text as a person may paste it.
    let text = "ü\t\"'\\ \u{1b}[31mred\u{1b}[0m\n".repeat(500);
    let sent = world.run(&["msg", "send", "dev", &text, "--json"]);
    if sent.exit_code == 0 {
        assert_eq!(world.run_json(&["msg", "history", "dev"])[0]["text"], text);
        assert!(
            !world.run_ok(&["msg", "history", "dev"]).contains('\u{1b}'),
            "S12: no escape sequence reaches the terminal"
        );
    } else {
        assert_eq!(sent.exit_code, 2, "{sent:?}");
    }
}

/// Over HTTP, every verb answers every malformed body with 400, a code and a hint, and the daemon
/// keeps running.
#[test]
fn bad_bodies_are_refused_with_a_problem() {
    let world = World::with_project();
    world.run_ok(&["up"]);
    let api = ApiClient::for_data_dir(&world.data_dir);
    let pid = world.daemon_info().unwrap()["pid"].clone();
    let before = world.events();
    let headers = |key: &str| {
        let mut headers = vec![
            ("host", api.address()),
            ("authorization", format!("Bearer {}", api.token)),
        ];
        if !key.is_empty() {
            headers.push(("idempotency-key", key.to_owned()));
        }
        headers
    };
    let bodies: [&[u8]; 8] = [
        b"{",
        b"[]",
        b"null",
        b"\"x\"",
        b"{\"no_such_field\":1}",
        b"\xff\xfe",
        b"{}{}",
        b"{\"id\":{\"a\":[[[[[[]]]]]]}}",
    ];
    for verb in VERBS {
        for body in bodies {
            // A verb without required fields accepts an empty list.
            if body == b"[]" && verb.name == "down" {
                continue;
            }
            let reply = api.request_over_tcp(
                "POST",
                &format!("/api/v1/{}", verb.name),
                &headers(""),
                body,
            );
            if body == b"[]" && reply.status == 200 {
                continue;
            }
            let problem = reply.json();
            assert_eq!(
                (reply.status, &problem["code"]),
                (400, &json!("bad_input")),
                "{} {body:?}: {problem}",
                verb.name
            );
            assert!(
                problem["hint"].as_str().unwrap().contains(verb.name),
                "{problem}"
            );
        }
    }
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let large = vec![b' '; 9 << 20];
    for (method, path, body, key, status) in [
        ("POST", "/api/v1/status", deep.as_bytes(), "", 400),
        ("POST", "/api/v1/status", &large[..], "", 413),
        ("POST", "/api/v1/no.such", b"{}", "", 404),
        ("POST", "/api/v1/../../etc/passwd", b"{}", "", 404),
        ("GET", "/api/v1/status", b"", "", 405),
        ("GET", "/nowhere", b"", "", 404),
        ("POST", "/api/v1/status", b"{}", "bad key\u{7f}", 400),
        ("POST", "/api/v1/status", b"{}", &"k".repeat(300), 400),
        ("GET", "/api/v1/events?after=x", b"", "", 400),
        ("GET", "/api/v1/events?after=999999", b"", "", 400),
        (
            "POST",
            "/api/v1/task.poll",
            b"{\"agent\":\"../x\"}",
            "",
            400,
        ),
        (
            "POST",
            "/api/v1/claim.acquire",
            b"{\"uris\":[\"file://a/b\"],\"agent\":\"a\",\"ttl_ms\":-1}",
            "",
            400,
        ),
    ] {
        let reply = api.request_over_tcp(method, path, &headers(key), body);
        assert_eq!(
            reply.status,
            status,
            "{method} {path} {:?}",
            String::from_utf8_lossy(&reply.body)
        );
    }
    assert_eq!(world.events(), before, "nothing changed");
    assert_eq!(world.run_json(&["up"])["pid"], pid, "the same daemon lives");
    let log = std::fs::read_to_string(world.data_dir.join("logs/daemon.log")).unwrap();
    assert!(!log.contains("panicked"), "{log}");
}

/// J9: the same idempotency key gives the same answer. The same key with a different request is
/// refused.
#[test]
fn an_idempotency_key_gives_one_answer_and_is_refused_for_another_request() {
    let world = World::new();
    world.run_ok(&["up"]);
    let api = ApiClient::for_data_dir(&world.data_dir);
    let send = json!({ "channel": "dev", "text": "once" });
    let first = api.call("msg.send", &send, Some("key-1")).unwrap().json();
    let second = api.call("msg.send", &send, Some("key-1")).unwrap().json();
    assert_eq!(first["data"], second["data"]);
    assert_eq!(
        world
            .run_json(&["msg", "history", "dev"])
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let other = json!({ "uris": ["port://1"], "agent": "operator", "ttl_ms": 1000 });
    let reused = api.call("claim.acquire", &other, Some("key-1")).unwrap();
    assert_eq!(
        (reused.status, &reused.json()["code"]),
        (409, &json!("key_reused")),
        "{reused:?}"
    );
}

/// Each kind of directory in which Regatta cannot work has its own error code.
#[test]
fn each_unusable_directory_has_its_own_error_code() {
    let world = World::new();
    let error = world.run_refused(&["init", "--yes"], 1);
    assert_eq!(error["code"], "not_a_repository");
    assert!(
        error["hint"].as_str().unwrap().contains("git init"),
        "{error}"
    );
    assert_eq!(
        std::fs::read_dir(&world.repo).unwrap().count(),
        0,
        "nothing was written"
    );
    let plan = world.write_plan("[[task]]\nsubject = \"x\"\nfiles = [\"x\"]\n");
    assert_eq!(
        world.run_refused(&["run", &plan, "--agents", "scripted"], 1)["code"],
        "not_a_repository"
    );

    world.git(&["init", "-q", "-b", "main", "."]);
    for args in [
        &["init", "--yes"][..],
        &["init", "--yes", "--trunk", "main"],
    ] {
        let output = world.run(&[args, &["--json"]].concat());
        let error: Value = serde_json::from_str(&output.stderr).unwrap();
        assert_eq!(error["error"]["code"], "unborn_branch", "{output:?}");
        assert!(
            error["error"]["hint"]
                .as_str()
                .unwrap()
                .contains("git commit --allow-empty"),
            "{error}"
        );
        assert_eq!(output.exit_code, 1, "{output:?}");
        assert!(!world.repo.join("regatta.toml").exists());
    }
    world.git(&["commit", "-q", "--allow-empty", "-m", "start"]);
    let error = world.run_refused(&["init", "--yes", "--trunk", "nowhere"], 1);
    assert_eq!(error["code"], "no_such_branch");
    assert!(
        error["hint"]
            .as_str()
            .unwrap()
            .contains("git branch nowhere"),
        "{error}"
    );
    let output = run_command(
        {
            let mut command = world.command(&["init", "--yes", "--json"]);
            command.current_dir(world.repo.join(".git"));
            command
        },
        None,
    );
    assert_eq!(output.exit_code, 1, "{output:?}");
    let plan = world.write_plan("[[task]]\nsubject = \"x\"\nfiles = [\"x\"]\n");
    assert_eq!(
        world.run_refused(&["run", &plan, "--agents", "scripted"], 1)["code"],
        "no_project"
    );
    // The error about an invalid settings file names the unknown key.
    world.write_file("regatta.toml", "[project]\nnmae = \"x\"\n");
    let error = world.run_refused(&["init", "--yes"], 1);
    assert_eq!(error["code"], "bad_config");
    assert!(
        error["message"].as_str().unwrap().contains("nmae"),
        "{error}"
    );
}

/// A server that cannot be reached gives exit code 6.
#[test]
fn an_unreachable_server_exits_with_6() {
    let world = World::new();
    world.run_ok(&["up"]);
    world.run_ok(&["down"]);
    let error = world.run_refused(&["status", "--server", "http://127.0.0.1:1"], 6);
    assert_eq!(error["code"], "unreachable");
}
