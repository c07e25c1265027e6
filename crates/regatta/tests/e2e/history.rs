//! History and planning: past waits, a mission at any revision, two missions compared, plans from
//! goals in words, and snoozed inbox items.

use serde_json::{Value, json};

use crate::world::{TEST_TIMEOUT, World, wait_until};

const TWO_TASK_PLAN: &str = r#"
title = "Two files"

[[task]]
id = "b"
subject = "Write b"
files = ["b.txt"]
script = [{ sleep = "300ms" }, { write = { path = "b.txt", text = "b\n" } }]

[[task]]
id = "c"
subject = "Write c"
files = ["c.txt"]
blocked_by = ["b"]
script = [{ write = { path = "c.txt", text = "c\n" } }]
"#;

fn world_after_run(plan: &str) -> World {
    let world = World::with_project();
    let plan = world.write_plan(plan);
    world.run_ok(&["run", &plan, "--agents", "scripted", "--yes", "--wait"]);
    world
}

/// W1: `why` shows the past waits of a completed task with times and durations, and `json` sums up
/// its time.
#[test]
fn w1_why_shows_past_waits_with_their_durations() {
    let world = world_after_run(TWO_TASK_PLAN);
    let explanation = world.run_json(&["why", "T2"]);
    let life = &explanation["task"]["life"];
    let kinds: Vec<&Value> = life["stretches"]
        .as_array()
        .unwrap()
        .iter()
        .map(|life| &life["doing"])
        .collect();
    assert_eq!(kinds[0], &json!({ "waiting": "dep" }), "{life}");
    assert!(
        kinds.contains(&&json!("working")) && kinds.contains(&&json!({ "waiting": "queue" })),
        "{life}"
    );
    let stretches = life["stretches"].as_array().unwrap();
    assert!(
        stretches.iter().all(|stretch| stretch["to_wall"].is_u64()),
        "every stretch has an end: {life}"
    );
    for pair in stretches.windows(2) {
        assert_eq!(
            pair[0]["to_wall"], pair[1]["from_wall"],
            "the stretches have no gap: {life}"
        );
    }
    let waited =
        stretches[0]["to_wall"].as_u64().unwrap() - stretches[0]["from_wall"].as_u64().unwrap();
    assert!(waited >= 300, "c waited for b: {waited}");
    let text = world.run_ok(&["why", "T2"]);
    assert!(
        text.contains("past") && text.contains("dep ") && text.contains("needs T1"),
        "{text}"
    );
    let text = world.run_ok(&["show", "T2"]);
    assert!(
        text.lines()
            .any(|text| text.starts_with("time ") && text.contains(" dep")),
        "{text}"
    );
    // An idle agent has one reason to wait.
    let agent = world.run_json(&["why", "scripted"]);
    assert_eq!(agent["waits"].as_array().unwrap().len(), 1, "{agent}");
    assert_eq!(
        world.run_refused(&["why", "nobody"], 1)["code"],
        "no_such_agent"
    );
}

/// `replay` shows a mission at its start, in the middle and at its end, from the event log.
/// `compare` shows two missions side by side.
#[test]
fn a_mission_is_replayed_and_compared() {
    let world = world_after_run(TWO_TASK_PLAN);
    let whole = world.run_json(&["replay", "M1"]);
    let (first, last) = (
        whole["first"].as_u64().unwrap(),
        whole["last"].as_u64().unwrap(),
    );
    assert!(first < last, "{whole}");
    let marks = whole["marks"].as_array().unwrap();
    let revision_of = |text: &str| {
        let mark = marks
            .iter()
            .find(|mark| mark["text"].as_str().unwrap().starts_with(text));
        mark.unwrap_or_else(|| panic!("{text} in {marks:?}"))["revision"]
            .as_u64()
            .unwrap()
    };
    let states_at = |revision: u64| -> Vec<String> {
        let then = world.run_json(&["replay", "M1", "--at", &revision.to_string()]);
        assert_eq!(then["at"], revision);
        let rows = then["tasks"].as_array().unwrap().clone();
        rows.iter()
            .map(|row| {
                format!(
                    "{} {}",
                    row["id"].as_str().unwrap(),
                    row["word"].as_str().unwrap()
                )
            })
            .collect()
    };
    assert_eq!(
        states_at(first),
        [] as [String; 0],
        "a mission starts without tasks"
    );
    assert_eq!(
        states_at(revision_of("T1 is started")),
        ["T1 working", "T2 waiting"]
    );
    assert_eq!(
        states_at(revision_of("T1 landed")),
        ["T1 landed", "T2 waiting"]
    );
    assert_eq!(
        states_at(revision_of("T2 is started")),
        ["T1 landed", "T2 working"]
    );
    assert_eq!(states_at(last), ["T1 landed", "T2 landed"]);
    let out = world.run_refused(&["replay", "M1", "--at", &(last + 1).to_string()], 2);
    assert_eq!(out["code"], "bad_revision");
    assert_eq!(
        world.run_refused(&["replay", "M9"], 1)["code"],
        "no_such_mission"
    );
    let steps = world.run_ok(&["replay", "M1", "--step"]);
    assert_eq!(
        steps.matches(&format!(" of {}   ", marks.len())).count(),
        marks.len(),
        "{steps}"
    );
    // Another mission, whose task fails repeatedly.
    let plan = world.write_plan(
        "[[task]]\nsubject = \"Nothing\"\nfiles = [\"d.txt\"]\nscript = [{ fail = \"no idea\" }]\n",
    );
    world.run(&["run", &plan, "--agents", "scripted", "--yes", "--wait"]);
    let both = world.run_json(&["compare", "M1", "M2"]);
    assert_eq!(both.as_array().unwrap().len(), 2);
    assert_eq!(
        (&both[0]["landed"], &both[0]["tasks"], &both[0]["retries"]),
        (&json!(2), &json!(2), &json!(0))
    );
    assert!(both[0]["wall_ms"].as_u64().unwrap() >= 300, "{both}");
    assert!(both[1]["retries"].as_u64().unwrap() >= 1, "{both}");
    let text = world.run_ok(&["compare", "M1", "M2"]);
    for row in ["landed", "time", "retries", "cost", "conflicts"] {
        assert!(
            text.lines().any(|text| text.starts_with(row)),
            "{row} in {text}"
        );
    }
    assert!(
        text.contains("no price reported"),
        "an unknown cost is not zero: {text}"
    );
    assert_eq!(world.run(&["compare", "M1"]).exit_code, 2);
}

/// An agent turns a goal in words into a plan, which is checked and shown like any other.
/// `--plan-only` starts nothing and `--yes` starts the plan. An invalid plan goes back to the
/// planner.
#[test]
fn a_goal_in_words_becomes_a_plan_that_is_checked_and_run() {
    let world = World::with_project();
    world.run_ok(&["agent", "add", "thinker", "--runtime", "scripted"]);
    world.run_ok(&["agent", "add", "bob", "--runtime", "scripted"]);
    let made = "```toml\n[[task]]\nid = \"b\"\nsubject = \"Write b\"\nfiles = [\"b.txt\"]\nscript \
        = [{ write = { path = \"b.txt\", text = \"b\\n\" } }]\n\n[[task]]\nid = \"c\"\nsubject \
        = \"Write c\"\nfiles = [\"b.txt\", \"c.txt\"]\nblocked_by = [\"b\"]\nscript = [{ write = \
        { path = \"c.txt\", text = \"c\\n\" } }]\n```\n";
    let planner = |detail: &str| {
        let result = json!({ "status": "done", "detail": detail }).to_string();
        let leave = format!("printf '%s' '{result}' > \"$REGATTA_RESULT\"");
        let script = world.root.join("planner.json");
        std::fs::write(
            &script,
            json!([{ "say": "thinking" }, { "run": leave }]).to_string(),
        )
        .unwrap();
        script.to_str().unwrap().to_owned()
    };
    let script = planner(&format!("Here is the plan.\n\n{made}"));
    let goal = "Write b and then c";
    let base = [
        "run",
        goal,
        "--planner",
        "thinker",
        "--planner-script",
        &script,
        "--agents",
        "bob",
    ];
    let output = world.run(&[&base[..], &["--plan-only"]].concat());
    assert_eq!(output.exit_code, 0, "{output:?}");
    assert!(
        output.stdout.contains(&format!("plan \"{goal}\"  2 tasks")),
        "{output:?}"
    );
    assert!(
        output.stdout.contains("needs b") && output.stdout.contains("owner"),
        "{output:?}"
    );
    assert_eq!(
        world
            .run_json(&["task", "list", "--all"])
            .as_array()
            .unwrap()
            .len(),
        1,
        "only the planning became a task"
    );
    let output = world.run(&[&base[..], &["--yes", "--wait"]].concat());
    assert_eq!(output.exit_code, 0, "{output:?}");
    assert!(
        output.stderr.contains("estimate  ") && output.stdout.contains("2 of 2 landed"),
        "{output:?}"
    );
    assert_eq!(
        (world.read_file("b.txt"), world.read_file("c.txt")),
        ("b\n".into(), "c\n".into())
    );
    // An invalid plan goes back to the planner with its errors, at most three times in all.
    planner("[[task]]\nsubjekt = \"x\"\n");
    let output = world.run(&[&base[..], &["--yes"]].concat());
    assert_ne!(output.exit_code, 0, "{output:?}");
    assert!(
        output.stderr.contains("made no valid plan in 3 rounds"),
        "{output:?}"
    );
    let tasks = world.run_json(&["task", "list", "--all"]);
    let rounds: Vec<&Value> = tasks
        .as_array()
        .unwrap()
        .iter()
        .filter(|task| task["subject"] == format!("Plan: {goal}"))
        .collect();
    assert_eq!(rounds.len(), 5, "one, one and three rounds: {tasks}");
    assert!(
        rounds[4]["description"]
            .as_str()
            .unwrap()
            .contains("could not be used"),
        "{tasks}"
    );
    // A path to a missing file is not taken for a goal.
    assert_eq!(
        world.run_refused(&["run", "no-such.toml", "--yes"], 2)["code"],
        "usage"
    );
}

/// An unusable plan can be requested again with its complete goal and another planner. A task with
/// the subject "Plan: x" is not a plan.
#[test]
fn an_unusable_plan_can_be_requested_again_with_its_goal_and_another_planner() {
    let world = World::with_project();
    world.run_ok(&["agent", "add", "bob", "--runtime", "scripted"]);
    world.run_ok(&["agent", "add", "eve", "--runtime", "outside"]);
    world.run_ok(&["agent", "add", "thinker", "--runtime", "scripted"]);
    let api = crate::http::ApiClient::for_data_dir(&world.data_dir);
    let call = |verb: &str, input: Value| api.call(verb, &input, None).unwrap().json();
    let goal = "Write b\n\nAnd then c, with care.";
    let script = json!([{ "run": "printf '%s' '{\"status\":\"done\",\"detail\":\"no plan\"}' \
        > \"$REGATTA_RESULT\"" }]);
    let asked = call(
        "plan.ask",
        json!({ "goal": goal, "planner": "thinker", "script": script.clone() }),
    );
    let task = asked["data"]["task"]
        .as_str()
        .unwrap_or_else(|| panic!("{asked:?}"))
        .to_owned();
    assert!(wait_until(TEST_TIMEOUT, || call(
        "plan.show",
        json!({ "task": task })
    )["data"]["state"]
        == "unusable"));
    let shown = call("plan.show", json!({ "task": task }))["data"].clone();
    assert_eq!(
        (&shown["title"], &shown["goal"]),
        (&json!("Write b"), &json!(goal)),
        "{shown}"
    );
    let again = &shown["actions"][0];
    assert_eq!(
        (&again["input"]["goal"], &again["input"]["planner"]),
        (&json!(goal), &json!("thinker")),
        "{again}"
    );
    assert_eq!(
        (&again["choice"]["of"], &again["choice"]["now"]),
        (&json!(["bob", "thinker"]), &json!("thinker"))
    );
    let mut input = again["input"].clone();
    input["planner"] = json!("bob");
    let unscripted = call("plan.ask", input.clone());
    assert_eq!(
        unscripted["code"], "no_provider",
        "a scripted planner needs a script: {unscripted}"
    );
    input["script"] = script;
    let other = call("plan.ask", input);
    assert_eq!(
        (&other["data"]["planner"], &other["data"]["goal"]),
        (&json!("bob"), &json!(goal)),
        "{other:?}"
    );
    let refused = call("plan.ask", json!({ "goal": goal, "planner": "eve" }));
    assert_eq!(refused["code"], "invalid", "{refused}");
    call(
        "task.add",
        json!({ "subject": "Plan: x", "issue_type": "chore", "expects": "report" }),
    );
    let own = world.run_json(&["task", "list"]);
    let own = own
        .as_array()
        .unwrap()
        .iter()
        .find(|own| own["subject"] == "Plan: x")
        .unwrap()["id"]
        .clone();
    let none = call("plan.show", json!({ "task": own }));
    assert_eq!(none["code"], "no_plan", "{none:?}");
}

/// A snoozed request returns by itself, unanswered. Requests for the same command are answered
/// together.
#[test]
fn a_snoozed_request_returns_and_equal_requests_are_answered_together() {
    let world = World::with_project();
    for name in ["ann", "bob"] {
        world.run_ok(&["agent", "add", name, "--runtime", "scripted"]);
        let script = json!([
            { "permission": { "what": "npm install zod", "default": "deny" } },
            { "write": { "path": format!("{name}.txt"), "text": "x\n" } },
        ]);
        let file = format!("{name}.txt");
        world.run_ok(&[
            "add",
            "Work",
            "--files",
            &file,
            "--script",
            &script.to_string(),
        ]);
    }
    world.run_ok(&["run", "--agents", "ann", "bob", "--yes"]);
    let inbox = || world.run_json(&["inbox"]).as_array().unwrap().clone();
    assert!(
        wait_until(TEST_TIMEOUT, || inbox().len() == 2),
        "{:?}",
        inbox()
    );
    let text = world.run_ok(&["inbox"]);
    assert!(
        text.contains("npm install zod × 2"),
        "one row for both: {text}"
    );
    // Tasks that wait for an answer are not counted as working.
    let asks: Vec<Value> = ["T1", "T2"]
        .iter()
        .map(|task| world.run_json(&["show", task])["asks"].clone())
        .collect();
    assert!(
        asks.contains(&json!("Q1")) && asks.contains(&json!("Q2")),
        "{asks:?}"
    );
    assert_eq!(
        (
            &world.run_json(&["status"])["working"],
            world.run_ok(&["task", "list"]).matches("needs you").count()
        ),
        (&json!(0), 2)
    );
    let put_off = world.run_json(&["inbox", "snooze", "Q1", "2h"]);
    assert!(put_off["snoozed_until_wall"].is_u64(), "{put_off}");
    let text = world.run_ok(&["inbox"]);
    assert!(
        text.contains("snoozed: Q1 until ") && !text.contains("× 2"),
        "{text}"
    );
    assert_eq!(
        world.run(&["inbox", "--check"]).exit_code,
        3,
        "the other request still waits"
    );
    // A snooze of one second ends and decides nothing.
    world.run_ok(&["inbox", "snooze", "Q1", "1s"]);
    assert!(
        wait_until(TEST_TIMEOUT, || inbox()
            .iter()
            .all(|value| value["snoozed_until_wall"].is_null())),
        "{:?}",
        inbox()
    );
    assert_eq!(inbox().len(), 2);
    assert_eq!(
        world.run_refused(&["inbox", "snooze", "Q1", "30d"], 2)["code"],
        "invalid"
    );
    let answer = world.run_json(&["allow", "Q1", "--all"]);
    assert_eq!(
        (&answer["answered"], &answer["left"]),
        (&json!(2), &json!(0)),
        "{answer}"
    );
    assert!(wait_until(TEST_TIMEOUT, || {
        ["T1", "T2"]
            .iter()
            .all(|task| world.run_json(&["show", task])["word"] == "landed")
    }));
    assert!(world.run_json(&["show", "T1"])["asks"].is_null());
}

/// The `[notify]` command gets each request as JSON. In quiet hours it is not called.
#[test]
fn notices_are_sent_except_in_quiet_hours() {
    let world = World::with_project();
    let file = world.root.join("notices");
    let toml = format!(
        "{}\n[notify]\ncommand = \"printf '%s\\\\n' \\\"$REGATTA_NOTICE\\\" >> '{}'\"\n",
        world.read_file("regatta.toml"),
        file.display()
    );
    world.write_file("regatta.toml", &toml);
    world.run_ok(&["init", "--yes"]);
    world.commit_all("Tell me");
    world.run_ok(&["agent", "add", "bob", "--runtime", "scripted"]);
    let script =
        json!([{ "ask": { "question": "Which colour?", "choices": ["red"], "default": "red" } }]);
    world.run_ok(&[
        "add",
        "Work",
        "--type",
        "chore",
        "--script",
        &script.to_string(),
    ]);
    world.run_ok(&["run", "--agents", "bob", "--yes"]);
    let notices = || std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        wait_until(TEST_TIMEOUT, || notices().lines().count() == 1),
        "{}",
        world.run(&["inbox"]).stdout
    );
    let notice: Value = serde_json::from_str(notices().trim()).unwrap();
    assert_eq!(
        (&notice["kind"], &notice["body"]),
        (&json!("question"), &json!("Which colour?")),
        "{notice}"
    );
    assert_eq!(
        (&notice["title"], &notice["task"]),
        (&json!("T1 bob - question"), &json!("T1"))
    );
    // A snoozed request sends a notice when it returns.
    world.run_ok(&["inbox", "snooze", "Q1", "1s"]);
    assert!(
        wait_until(TEST_TIMEOUT, || notices().lines().count() == 2),
        "{}",
        world.run(&["inbox"]).stdout
    );
    let notice: Value = serde_json::from_str(notices().lines().last().unwrap()).unwrap();
    assert_eq!(
        (&notice["kind"], &notice["title"]),
        (&json!("back"), &json!("Q1 - question is back")),
        "{notice}"
    );
    // With quiet hours that never end, no notice is sent.
    world.write_file("regatta.toml", &format!("{toml}quiet = \"00:00-23:59\"\n"));
    world.run_ok(&["init", "--yes"]);
    world.run_ok(&["agent", "add", "eve", "--runtime", "scripted"]);
    world.run_ok(&[
        "add",
        "More",
        "--type",
        "chore",
        "--script",
        &script.to_string(),
    ]);
    world.run_ok(&["run", "--agents", "eve", "--yes"]);
    assert!(wait_until(TEST_TIMEOUT, || world
        .run_json(&["inbox"])
        .as_array()
        .unwrap()
        .len()
        == 2));
    world.run_ok(&["answer", "Q2", "red"]);
    assert_eq!(
        notices().lines().count(),
        2,
        "a notice was sent in quiet hours"
    );
    world.write_file("regatta.toml", &format!("{toml}quiet = \"late\"\n"));
    assert_eq!(
        world.run_refused(&["init", "--yes"], 1)["code"],
        "bad_config"
    );
}
