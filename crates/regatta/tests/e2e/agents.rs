//! Interactive agents through the real binary: permission requests, questions, messages, pauses,
//! limits and the sandbox. Nothing is lost when the daemon is killed in mid-turn.

use serde_json::{Value, json};

use crate::world::{TEST_TIMEOUT, World, is_alive, kill_process, wait_until};

/// Starts a mission in which one scripted agent works on a task that follows `script`.
fn world_with_mission(script: &Value) -> World {
    let world = World::with_project();
    world.run_ok(&[
        "agent",
        "add",
        "bob",
        "--runtime",
        "scripted",
        "--provider",
        "acme",
    ]);
    start_mission(&world, script, "bob");
    world
}

fn start_mission(world: &World, script: &Value, agent: &str) {
    world.run_ok(&[
        "add",
        "Work",
        "--files",
        "out.txt",
        "--script",
        &script.to_string(),
    ]);
    world.run_ok(&["run", "--agents", agent, "--yes"]);
}

fn inbox_items(world: &World) -> Vec<Value> {
    world.run_json(&["inbox"]).as_array().unwrap().clone()
}

fn wait_for_request(world: &World) -> Value {
    assert!(
        wait_until(TEST_TIMEOUT, || !inbox_items(world).is_empty()),
        "the agent sent no request: {}",
        world.run(&["show", "T1"]).stdout
    );
    inbox_items(world)[0].clone()
}

fn wait_until_landed(world: &World) {
    let status = || {
        world.run_json(&["show", "T1"])["status"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let done = wait_until(TEST_TIMEOUT, || {
        ["completed", "failed", "needs_human"].contains(&status().as_str())
    });
    assert!(
        done && status() == "completed",
        "{}\n{}",
        world.run(&["why", "T1"]).stdout,
        world.run(&["logs", "T1", "--raw"]).stdout
    );
}

fn write_step(text: &str) -> Value {
    json!({ "append": { "path": "out.txt", "text": format!("{text}\n") } })
}

/// A permission request is one item of the inbox. The first answer counts, and "always" adds a rule
/// that answers the next similar request.
#[test]
fn a_request_waits_for_a_person_and_the_first_answer_counts() {
    let world = world_with_mission(&json!([
        { "permission": { "what": "npm install zod", "default": "deny" } },
        write_step("one"),
        { "permission": { "what": "npm install left-pad", "default": "deny" } },
        write_step("two"),
    ]));
    let item = wait_for_request(&world);
    assert_eq!(
        (&item["id"], &item["kind"], &item["subject"]),
        (
            &json!("Q1"),
            &json!("permission"),
            &json!("npm install zod")
        )
    );
    assert_eq!(world.run(&["inbox", "--check"]).exit_code, 3);
    assert!(
        world
            .run_ok(&["show", "T1"])
            .contains("waiting for permission (Q1)")
    );
    let output = world.run_ok(&["allow", "Q1", "--for", "always"]);
    assert!(
        output.contains("npm install *"),
        "the rule is shown: {output}"
    );
    let late = world.run_refused(&["deny", "Q1"], 5);
    assert_eq!(late["code"], "already_answered");
    wait_until_landed(&world);
    assert_eq!(world.read_file("out.txt"), "one\ntwo\n");
    assert_eq!(
        world
            .run_json(&["policy", "list"])
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let kinds: Vec<String> = world
        .events()
        .iter()
        .map(|event| event["kind"].as_str().unwrap().to_owned())
        .filter(|event| event.starts_with("approval"))
        .collect();
    assert_eq!(
        kinds,
        [
            "approval.asked",
            "approval.decided",
            "approval.asked",
            "approval.decided"
        ],
        "the rule decided the second request"
    );
}

/// A question is answered in words. A message that a person sends in the meantime reaches the agent
/// after its turn.
#[test]
fn a_question_is_answered_and_a_message_reaches_the_agent_after_its_turn() {
    let world = world_with_mission(&json!([
        { "ask": { "question": "Which colour?", "choices": ["red", "blue"], "default": "red" } },
        write_step("asked"),
        { "end_turn": true },
        write_step("told"),
    ]));
    let item = wait_for_request(&world);
    assert_eq!(
        (&item["kind"], &item["choices"]),
        (&json!("question"), &json!(["red", "blue"]))
    );
    world.run_refused(&["allow", "Q1"], 2);
    let output = world.run_ok(&["tell", "T1", "and", "mind", "the", "gap"]);
    assert!(output.contains("A1 receives the message"), "{output}");
    world.run_ok(&["answer", "Q1", "blue"]);
    wait_until_landed(&world);
    assert_eq!(world.read_file("out.txt"), "asked\ntold\n");
    let log = world.run_ok(&["logs", "T1", "--raw"]);
    assert!(
        log.contains("blue") && log.contains("and mind the gap"),
        "{log}"
    );
    world.run_refused(&["tell", "T1", "too late"], 1);
}

/// P1, P2: kill -9 of the daemon while the agent waits in mid-turn for an answer. The agent lives
/// on and the next daemon reattaches to it. Nothing is sent or asked twice, and the answer still
/// arrives.
#[test]
fn p1_a_daemon_killed_in_mid_turn_loses_nothing() {
    let world = world_with_mission(&json!([
        { "say": "before" },
        { "usage": { "input": 100, "output": 20 } },
        { "permission": { "what": "make all", "default": "deny" } },
        { "say": "after" },
        write_step("done"),
        { "usage": { "input": 50, "output": 10 } },
    ]));
    wait_for_request(&world);
    for _ in 0..3 {
        let pid = u32::try_from(world.daemon_info().unwrap()["pid"].as_u64().unwrap()).unwrap();
        kill_process(pid);
        assert!(wait_until(TEST_TIMEOUT, || !is_alive(pid)));
        assert_eq!(
            wait_for_request(&world)["id"],
            "Q1",
            "the same request, once"
        );
        assert_eq!(inbox_items(&world).len(), 1);
    }
    world.run_ok(&["allow", "Q1"]);
    wait_until_landed(&world);
    assert_eq!(world.read_file("out.txt"), "done\n");
    let log = world.run_ok(&["logs", "T1"]);
    assert_eq!(
        (log.matches("before").count(), log.matches("after").count()),
        (1, 1),
        "{log}"
    );
    let raw = world.run_ok(&["logs", "T1", "--raw"]);
    for once in ["\"initialize\"", "\"session/new\"", "\"session/prompt\""] {
        assert_eq!(
            raw.lines()
                .filter(|raw| raw.starts_with('<') && raw.contains(once))
                .count(),
            1,
            "{once} in {raw}"
        );
    }
    let spent = &world.run_json(&["show", "T1"])["spent"];
    assert_eq!(
        (
            &spent["usage"]["input"],
            &spent["usage"]["output"],
            &spent["turns"]
        ),
        (&json!(150), &json!(30), &json!(1))
    );
}

/// A pause keeps the session. The work goes on in the same session and attempt.
#[test]
fn a_pause_keeps_the_session_and_the_attempt() {
    let world = world_with_mission(&json!([
        write_step("one"),
        { "sleep": 600 },
        write_step("two"),
    ]));
    assert!(wait_until(TEST_TIMEOUT, || world.run_json(&["show", "T1"])
        ["live"]
        == "working"));
    assert!(wait_until(TEST_TIMEOUT, || world
        .run_ok(&["logs", "T1"])
        .contains("out.txt")));
    world.run_ok(&["pause", "T1", "--because", "look first"]);
    assert!(wait_until(TEST_TIMEOUT, || world.run_json(&["show", "T1"])
        ["live"]
        .as_str()
        .is_some_and(|world| world.starts_with("held"))));
    let workspace = world.run_json(&["show", "T1"])["workspace"]
        .as_str()
        .unwrap()
        .to_owned();
    let output = world.run_ok(&["takeover", "T1", "--", "cat", "out.txt"]);
    assert!(output.contains("one"), "{output}");
    let no = world.run(&["takeover", "T1", "--session"]);
    assert!(
        no.stderr
            .contains("cannot continue a session in a terminal"),
        "{}",
        no.stderr
    );
    assert!(workspace.contains("A1"));
    wait_until_landed(&world);
    assert_eq!(world.read_file("out.txt"), "one\ntwo\n");
    assert_eq!(
        world.run_json(&["show", "T1"])["attempts"]
            .as_array()
            .unwrap()
            .len(),
        1,
        "there must be one attempt"
    );
}

/// A rate limit parks the provider until the limit is reset and does not count as a failure. The
/// work then resumes by itself in the same workspace and session.
#[test]
fn a_rate_limit_parks_the_provider_and_the_work_resumes_by_itself() {
    let world = world_with_mission(
        &json!([write_step("half"), { "rate_limit": { "reset_in": 3 } }, write_step("whole")]),
    );
    assert!(
        wait_until(TEST_TIMEOUT, || {
            world.run_json(&["agent", "show", "bob"])["parked"].is_string()
        }),
        "{}",
        world.run(&["why", "T1"]).stdout
    );
    let explanation = world.run_json(&["why", "T1"]);
    let kinds: Vec<&str> = explanation["task"]["waits"]
        .as_array()
        .unwrap()
        .iter()
        .map(|explanation| explanation["kind"].as_str().unwrap())
        .collect();
    assert!(kinds.contains(&"rate_limit"), "{explanation}");
    wait_until_landed(&world);
    assert_eq!(
        world.read_file("out.txt"),
        "half\nwhole\n",
        "the same workspace, the same session"
    );
    let task = world.run_json(&["show", "T1"]);
    assert_eq!(
        (&task["failures"], &task["attempts"][0]["ended"]["cause"]),
        (&json!(0), &json!("parked"))
    );
    assert_eq!(task["attempts"][1]["resumes"]["workspace"], "A1");
}

/// A used-up budget stops the attempt, and `why` names the budget. Without a price no cost is shown
/// as "$0.00".
#[test]
fn a_budget_stops_an_attempt_that_used_it_up() {
    let world = World::with_project();
    world.run_ok(&["agent", "add", "bob", "--runtime", "scripted"]);
    world.run_ok(&["budget", "set", "attempt", "--tokens", "100"]);
    start_mission(
        &world,
        &json!([write_step("dear"), { "usage": { "input": 90, "output": 30 } }]),
        "bob",
    );
    assert!(wait_until(TEST_TIMEOUT, || world.run_json(&["show", "T1"])
        ["status"]
        == "needs_human"));
    assert!(wait_until(TEST_TIMEOUT, || world.run_json(&["show", "T1"])
        ["attempts"][0]["ended"]["cause"]
        == "over_budget"));
    let explanation = world.run_ok(&["why", "T1"]);
    assert!(explanation.contains("120 of 100 tokens"), "{explanation}");
    assert!(!world.run_ok(&["budget", "list"]).contains("$0.00"));
    let item = wait_for_request(&world);
    assert_eq!(
        (&item["id"], &item["choices"]),
        (&json!("T1"), &json!(["retry", "tell", "cancel"]))
    );
    world.run_ok(&["answer", "T1", "cancel"]);
    assert!(
        wait_until(TEST_TIMEOUT, || world.foreign_processes().is_empty()),
        "only the daemon is left"
    );
}

/// S11, S6: a sandboxed program cannot reach the user's repository, home directory or the store,
/// and still does its work. On a machine without a sandbox the start is refused with the reason.
#[test]
fn s11_a_requested_sandbox_is_in_force_or_the_start_fails() {
    let world = World::with_project();
    world.write_file("../home/secret", "a secret of the user's\n");
    let script = format!(
        "cat {0}/home/secret {0}/data/regatta.db {0}/shop/a.txt > out.txt 2>/dev/null; \
         echo hi > {0}/home/mine 2>/dev/null; git status >/dev/null && git add -A && git -c \
         user.name=a -c user.email=b commit -qm x && echo done >> out.txt",
        world.root.display()
    );
    world.run_ok(&[
        "agent",
        "add",
        "sh",
        "--runtime",
        "command",
        "--confine",
        "workspace",
        "--command",
        &format!("sh -c '{script}'"),
    ]);
    world.run_ok(&["add", "Work", "--files", "out.txt"]);
    world.run_ok(&["run", "--agents", "sh", "--yes"]);
    let ended = wait_until(TEST_TIMEOUT, || {
        let value = world.run_json(&["show", "T1"]);
        value["status"] == "completed"
            || value["attempts"].as_array().is_some_and(|items| {
                items
                    .iter()
                    .any(|attempt| attempt["ended"]["cause"] == "environment")
            })
    });
    assert!(ended, "{}", world.run(&["why", "T1"]).stdout);
    let task = world.run_json(&["show", "T1"]);
    if task["status"] == "completed" {
        assert_eq!(
            world.read_file("out.txt"),
            "done\n",
            "the program reached files outside its workspace"
        );
        assert!(!world.root.join("home/mine").exists());
        assert!(task["attempts"][0]["sandbox"].is_string());
    } else {
        let explanation = world.run(&["why", "T1"]).stdout;
        assert!(
            explanation.contains("confine") || explanation.contains("sandbox"),
            "{explanation}"
        );
    }
}

/// An agent can be tested without a task. If its program is missing, the error names the program.
#[test]
fn an_agent_is_tested_without_a_task() {
    let world = World::with_project();
    world.run_ok(&["agent", "add", "bob", "--runtime", "scripted"]);
    let output = world.run_ok(&["agent", "test", "bob"]);
    assert!(
        output.contains("READY") && output.contains("bob works"),
        "{output}"
    );
    world.run_ok(&[
        "agent",
        "add",
        "gone",
        "--runtime",
        "acp",
        "--command",
        "no-such-program-here acp",
        "--anyway",
    ]);
    let result = world.run(&["agent", "test", "gone"]);
    assert_eq!(result.exit_code, 1, "{}{}", result.stdout, result.stderr);
    assert!((result.stdout + &result.stderr).contains("no-such-program-here"));
    let shown = world.run_json(&["provider"]);
    assert!(
        shown
            .as_array()
            .unwrap()
            .iter()
            .any(|shown| shown["preset"] == "claude")
    );
    world.run_refused(&["agent", "add", "x", "--preset", "nobody"], 2);
    world.run_refused(
        &[
            "agent",
            "add",
            "x",
            "--runtime",
            "acp",
            "--command",
            "a",
            "--key",
            "A=sk-value",
        ],
        2,
    );
}

/// A program that falls silent or opens no session is ended with its whole process tree. The
/// attempt records the cause.
#[test]
fn a_program_that_hangs_is_ended_and_the_cause_is_kept() {
    let world = World::with_project();
    world.run_ok(&["config", "set", "retry", "0s"]);
    world.run_refused(&["config", "set", "silence", "soon"], 2);
    world.run_ok(&["agent", "add", "bob", "--runtime", "scripted"]);
    world.run_ok(&[
        "agent",
        "add",
        "mute",
        "--runtime",
        "acp",
        "--confine",
        "off",
        "--command",
        "sleep 1000",
    ]);
    for (nth, (agent, cause)) in [("bob", "hung"), ("mute", "timed_out")]
        .into_iter()
        .enumerate()
    {
        world.run_ok(&[
            "config",
            "set",
            "silence",
            if cause == "hung" { "1s" } else { "15m" },
        ]);
        world.run_ok(&[
            "config",
            "set",
            "startup",
            if cause == "hung" { "60s" } else { "2s" },
        ]);
        let file = format!("f{nth}");
        let script = json!([{ "say": "hello" }, { "hang": true }]).to_string();
        world.run_ok(&["add", "Work", "--files", &file, "--script", &script]);
        let task = format!("T{}", nth + 1);
        world.run_ok(&["run", "--agents", agent, "--yes"]);
        let ended = || world.run_json(&["show", &task])["attempts"][0]["ended"]["cause"] == cause;
        assert!(
            wait_until(TEST_TIMEOUT, ended),
            "{}",
            world.run(&["why", &task]).stdout
        );
        world.run(&["task", "cancel", &task]); // refused if the task has failed for good by now
    }
    assert!(
        wait_until(TEST_TIMEOUT, || world.foreign_processes().is_empty()),
        "only the daemon is left"
    );
}

/// A missing program or key is reported when the agent is added and tested, and once more when its
/// task starts. It does not count as a failure. The daemon's environment decides, not the shell's.
#[test]
fn a_setup_fault_is_reported_once_and_is_not_counted_as_a_failure() {
    let world = World::with_project();
    let add = [
        "agent",
        "add",
        "gone",
        "--runtime",
        "acp",
        "--command",
        "no-such-program-here acp",
    ];
    let refused = world.run_refused(&add, 4);
    assert!(
        refused["message"]
            .as_str()
            .unwrap()
            .contains("`no-such-program-here`"),
        "{refused}"
    );
    assert!(
        refused["hint"].as_str().unwrap().contains("--anyway"),
        "{refused}"
    );
    assert_eq!(
        world.run_json(&["agent", "list"]),
        json!([]),
        "nothing was created"
    );
    let output = world.run_ok(&[&add[..], &["--anyway"]].concat());
    assert!(
        output.contains("! The program `no-such-program-here`")
            && output.contains("hint: Install it"),
        "{output}"
    );
    let key = [
        "agent",
        "add",
        "keyless",
        "--runtime",
        "command",
        "--command",
        "true",
        "--key",
        "K=env:NOT_SET_HERE",
    ];
    let fix = "NOT_SET_HERE=… regatta up --restart";
    let keyless = world.run_ok(&key);
    assert!(keyless.contains(fix), "{keyless}");
    let tested = world
        .command(&["agent", "test", "keyless"])
        .env("NOT_SET_HERE", "x")
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&tested.stderr).into_owned();
    assert!(
        !tested.status.success() && stderr.contains(fix),
        "a variable of the shell must not count: {stderr}"
    );
    world.run_ok(&["add", "One", "--files", "one.txt", "--assign", "gone"]);
    world.run_ok(&["add", "Two", "--files", "two.txt", "--assign", "keyless"]);
    // Assigned tasks start by themselves. A run with these agents would be refused.
    let parked = || {
        inbox_items(&world)
            .iter()
            .filter(|item| item["kind"] == "settings")
            .count()
            == 2
    };
    assert!(
        wait_until(TEST_TIMEOUT, parked),
        "{}",
        world.run_ok(&["inbox"])
    );
    assert!(
        world.run_ok(&["inbox"]).contains(fix),
        "{}",
        world.run_ok(&["inbox"])
    );
    for id in ["T1", "T2"] {
        let task = world.run_json(&["show", id]);
        assert_eq!(task["failures"].as_u64().unwrap_or(0), 0, "{task}");
        assert_eq!(
            task["attempts"].as_array().map(Vec::len),
            Some(1),
            "the task was retried by itself: {task}"
        );
        assert_eq!(
            task["attempts"][0]["ended"]["cause"], "bad_config",
            "{task}"
        );
    }
}

/// A run is refused before it creates anything if none of its agents can start.
#[test]
fn a_run_whose_agents_cannot_start_is_refused() {
    let world = World::with_project();
    let add = |name: &str, program: &str| {
        world.run_ok(&[
            "agent",
            "add",
            name,
            "--runtime",
            "command",
            "--command",
            program,
            "--anyway",
        ]);
    };
    add("gone", "no-such-program-here");
    let plan = world.write_plan("[[task]]\nsubject = \"Add a limiter\"\nfiles = [\"limit.rs\"]\n");
    let refused = world.run_refused(&["run", &plan, "--agents", "gone", "--wait"], 4);
    let message = refused["message"].as_str().unwrap();
    assert!(
        message.contains("gone cannot be started") && message.contains("`no-such-program-here`"),
        "{refused}"
    );
    assert!(
        refused["hint"].as_str().unwrap().contains("Install it"),
        "{refused}"
    );
    // The same holds for a plan without scripts and for a goal in words.
    let refused = world.run_refused(&["run", &plan, "--agents", "scripted", "--wait"], 4);
    assert!(
        refused["message"]
            .as_str()
            .unwrap()
            .contains("\"Add a limiter\" has no script"),
        "{refused}"
    );
    let refused = world.run_refused(
        &["run", "Add a limiter", "--agents", "scripted", "--no-input"],
        4,
    );
    assert!(
        refused["message"]
            .as_str()
            .unwrap()
            .contains("has no script"),
        "{refused}"
    );
    assert_eq!(
        world.run_json(&["task", "list"]),
        json!([]),
        "nothing was created"
    );
    assert_eq!(world.run_json(&["mission", "list"]), json!([]));
    // One agent that can start is enough.
    add("here", "true");
    let output = world.run(&["run", &plan, "--agents", "gone,here"]);
    assert_eq!(output.exit_code, 0, "{output:?}");
    let warnings: Vec<&str> = output
        .stderr
        .lines()
        .filter(|line| line.contains("cannot start"))
        .collect();
    assert_eq!(
        warnings.len(),
        1,
        "one warning for the agent that cannot start: {output:?}"
    );
    assert!(
        warnings[0].contains("gone cannot start") && warnings[0].contains("`no-such-program-here`"),
        "{output:?}"
    );
}

/// A task without a script needs a person. The scripted agent goes on with the next task.
#[test]
fn a_scripted_agent_is_not_parked_for_a_task_without_a_script() {
    let world = World::with_project();
    world.run_ok(&["agent", "add", "bot", "--runtime", "scripted"]);
    world.run_ok(&["add", "No script", "--files", "a.txt", "--assign", "bot"]);
    let needs_person = || world.run_json(&["show", "T1"])["status"] == "needs_human";
    assert!(
        wait_until(TEST_TIMEOUT, needs_person),
        "{}",
        world.run_ok(&["why", "T1"])
    );
    let explanation = world.run_ok(&["why", "T1"]);
    assert!(explanation.contains("no script"), "{explanation}");
    assert!(world.run_json(&["agent", "show", "bot"])["parked"].is_null());
    let plan = world.write_plan(
        "[[task]]\nsubject = \"x\"\nfiles = [\"x\"]\nscript = [{ write = { path \
            = \"x\", text = \"x\" } }]\n",
    );
    world.run_ok(&["run", &plan, "--agents", "bot", "--wait"]);
}

/// The scripted agent of a rehearsal takes no part in a run that other agents can do.
#[test]
fn a_run_without_named_agents_leaves_out_the_agent_of_a_rehearsal() {
    let world = World::with_project();
    let rehearsal = world.write_plan(
        "[[task]]\nsubject = \"x\"\nfiles = [\"x\"]\nscript = [{ write = { path = \"x\", text = \
         \"x\" } }]\n",
    );
    world.run_ok(&["run", &rehearsal, "--agents", "scripted", "--wait"]);
    let worker = ["--runtime", "command", "--command", "sh -c 'echo y > y'"];
    world.run_ok(&[&["agent", "add", "writer"], &worker[..]].concat());
    let plan = world.write_plan("[[task]]\nsubject = \"y\"\nfiles = [\"y\"]\n");
    let output = world.run(&["run", &plan, "--wait"]);
    assert_eq!(output.exit_code, 0, "{output:?}");
    assert!(output.stderr.contains("· agents writer\n"), "{output:?}");
    assert_eq!(world.read_file("y"), "y\n");
}

/// `--wait` ends with exit code 3 when every agent is parked until a person acts.
#[test]
fn a_wait_ends_when_every_agent_needs_a_person() {
    let world = World::with_project();
    // A shell exits with 127 when it cannot find a program.
    world.run_ok(&[
        "agent",
        "add",
        "broken",
        "--runtime",
        "command",
        "--command",
        "sh -c 'exit 127'",
    ]);
    let plan = world.write_plan(
        "[[task]]\nsubject = \"One\"\nfiles = [\"a\"]\n[[task]]\nsubject \
            = \"Two\"\nfiles = [\"b\"]\n",
    );
    let output = world.run(&["run", &plan, "--agents", "broken", "--wait"]);
    assert_eq!(output.exit_code, 3, "{output:?}");
    let items = inbox_items(&world);
    assert!(
        items.iter().any(|item| item["kind"] == "settings"),
        "{items:?}"
    );
}

/// Q3: a task whose files cannot be captured completely needs a person at once, and nothing of it
/// lands.
#[test]
fn q3_files_that_cannot_be_captured_need_a_person_at_once() {
    let deep = "d=$(printf 'd%.0s' $(seq 240)); p=.; for n in $(seq 13); do p=$p/$d; done; mkdir \
        -p $p; echo a > $p/x";
    for (made, words, way) in [
        (
            "mkdir -p sub/.GIT && echo a > sub/.GIT/x",
            "git does not store",
            "Rename",
        ),
        (
            deep,
            "which cannot be stored: ddd",
            "Move or remove that file",
        ),
    ] {
        let world = world_with_mission(&json!([{ "run": format!("echo a > out.txt; {made}") }]));
        let before = world.trunk_commits();
        let needs_person = || world.run_json(&["show", "T1"])["status"] == "needs_human";
        assert!(
            wait_until(TEST_TIMEOUT, needs_person),
            "{}",
            world.run_ok(&["why", "T1"])
        );
        let task = world.run_json(&["show", "T1"]);
        assert_eq!(
            (
                task["attempts"].as_array().map(Vec::len),
                task["failures"].as_u64().unwrap_or(0)
            ),
            (Some(1), 0),
            "{task}"
        );
        let explanation = world.run_ok(&["why", "T1"]);
        assert!(
            explanation.contains(words) && explanation.contains(way),
            "{explanation}"
        );
        assert_eq!(world.trunk_commits(), before);
    }
}

/// An agent may report that no change is needed. The task is then completed if its checks pass.
#[test]
fn a_task_may_need_no_change() {
    let world = World::with_project();
    world.run_ok(&["agent", "add", "bob", "--runtime", "scripted"]);
    let result =
        r#"printf '{"status": "not_needed", "detail": "it is there"}' > "$REGATTA_RESULT""#;
    let script = json!([{ "run": result }]).to_string();
    for (subject, check) in [("Agreed", "true"), ("Refuted", "false")] {
        world.run_ok(&[
            "add",
            subject,
            "--files",
            "x.txt",
            "--validate",
            check,
            "--script",
            &script,
        ]);
    }
    // The scripted agent still writes a result with the status "done" after this call.
    let call = json!([{ "call": { "tool": "finish", "input": { "not_needed": true, "detail": "it is there" } } }]);
    world.run_ok(&[
        "add",
        "By tool",
        "--files",
        "y.txt",
        "--validate",
        "true",
        "--script",
        &call.to_string(),
    ]);
    world.run_ok(&["run", "--agents", "bob", "--yes"]);
    assert!(
        wait_until(TEST_TIMEOUT, || world.run_json(&["show", "T3"])["status"]
            == "completed"),
        "{}",
        world.run_ok(&["show", "T3"])
    );
    assert!(
        wait_until(TEST_TIMEOUT, || world.run_json(&["show", "T1"])["status"]
            == "completed"),
        "{}",
        world.run_ok(&["why", "T1"])
    );
    let answer = world.run_json(&["show", "T1"]);
    assert!(
        answer["landed"].is_null() && answer["attempts"].as_array().map(Vec::len) == Some(1),
        "{answer}"
    );
    let refuted = || {
        world.run_json(&["show", "T2"])["failures"]
            .as_u64()
            .unwrap_or(0)
            > 0
    };
    assert!(
        wait_until(TEST_TIMEOUT, refuted),
        "{}",
        world.run_ok(&["show", "T2"])
    );
}
