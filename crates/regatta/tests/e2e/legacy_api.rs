//! The HTTP interface for older clients: agents register, poll and report over plain HTTP, under
//! the same rules.

use serde_json::{Value, json};

use crate::http::{ApiClient, HttpReply};
use crate::world::{TEST_TIMEOUT, World, wait_until};

fn legacy_request(
    api: &ApiClient,
    token: &str,
    agent: Option<&str>,
    method: &str,
    path: &str,
    body: &Value,
) -> HttpReply {
    let mut headers = vec![
        ("host", api.address()),
        ("authorization", format!("Bearer {token}")),
    ];
    headers.extend(agent.map(|agent| ("x-agent-id", agent.to_owned())));
    api.request_over_tcp(method, path, &headers, body.to_string().as_bytes())
}

/// An agent registers with its capacity, polls, reports and finishes one task and fails another.
#[test]
fn an_older_client_can_register_poll_report_and_finish() {
    let world = World::with_project();
    let api = ApiClient::for_data_dir(&world.data_dir);
    let made = world.run_json(&["token", "add", "box", "--scope", "runner"]);
    let runner = made["token"].as_str().unwrap();
    let operator = api.token.clone();
    let register = |max: Value| {
        let body = json!({
            "name": "ann", "isLead": false, "role": "writes texts", "capabilities": ["text"], "maxTasks": max,
        });
        legacy_request(&api, runner, None, "POST", "/api/agents", &body)
    };
    let first = register(json!(3));
    assert_eq!(
        (first.status, &first.json()["capacity"]["max"]),
        (201, &json!(3)),
        "{}",
        first.json()
    );
    for bad in [json!(0), json!(21)] {
        assert_eq!(register(bad).status, 400);
    }
    let again = register(json!(2));
    assert_eq!(
        (again.status, &again.json()["maxTasks"]),
        (200, &json!(2)),
        "another registration updates the agent"
    );
    let agent = |reply: &Value| {
        (
            reply["role"].clone(),
            reply["capabilities"].clone(),
            reply["createdAt"].is_string(),
        )
    };
    let me = legacy_request(&api, runner, Some("ann"), "GET", "/me", &json!({})).json();
    assert_eq!(
        agent(&me),
        (json!("writes texts"), json!(["text"]), true),
        "{me}"
    );
    assert_eq!(
        me["capacity"],
        json!({ "current": 0, "max": 2, "available": 2 })
    );

    for nth in 0..3 {
        let body = json!({ "task": format!("Write {nth}\nAll of it."), "agentId": "ann", "files": [format!("{nth}.txt")] });
        let added = legacy_request(&api, &operator, None, "POST", "/api/tasks", &body);
        assert_eq!(added.status, 201, "{}", added.json());
        let task = added.json()["id"].as_str().unwrap().to_owned();
        world.run_ok(&["edit", &task, "--validate", "true"]);
    }
    let poll = || legacy_request(&api, runner, Some("ann"), "GET", "/api/poll", &json!({})).json();
    let (one, two, three) = (poll(), poll(), poll());
    assert_eq!(
        (&one["trigger"]["type"], &one["capacity"]["current"]),
        (&json!("task_assigned"), &json!(1)),
        "{one}"
    );
    assert_ne!(one["trigger"]["taskId"], two["trigger"]["taskId"]);
    assert_eq!(
        (&three["trigger"], &three["capacity"]["available"]),
        (&Value::Null, &json!(0)),
        "the agent is full: {three}"
    );
    let listed = legacy_request(&api, runner, None, "GET", "/api/agents", &json!({})).json();
    assert_eq!(
        (
            &listed["agents"][0]["status"],
            &listed["agents"][0]["capacity"]["current"]
        ),
        (&json!("busy"), &json!(2))
    );

    // Only the attempt's own token can report on the attempt, not the runner's token.
    let path = |value: &Value, what: &str| {
        format!(
            "/api/tasks/{}/{what}",
            value["trigger"]["taskId"].as_str().unwrap()
        )
    };
    let token = |value: &Value| value["trigger"]["token"].as_str().unwrap().to_owned();
    let body = json!({ "progress": "half way" });
    assert_eq!(
        legacy_request(
            &api,
            runner,
            Some("ann"),
            "POST",
            &path(&one, "progress"),
            &body
        )
        .status,
        403
    );
    assert_eq!(
        legacy_request(
            &api,
            &token(&two),
            None,
            "POST",
            &path(&one, "progress"),
            &body
        )
        .status,
        403
    );
    assert_eq!(
        legacy_request(
            &api,
            &token(&one),
            None,
            "POST",
            &path(&one, "progress"),
            &body
        )
        .status,
        200
    );
    let own = legacy_request(&api, &token(&one), None, "GET", "/me", &json!({})).json();
    assert_eq!(own["name"], "ann");

    let place = std::path::Path::new(one["trigger"]["workspace"].as_str().unwrap()).to_owned();
    std::fs::write(place.join("0.txt"), "text\n").unwrap();
    let body = json!({ "status": "completed", "output": "It is written." });
    let finished = legacy_request(
        &api,
        &token(&one),
        None,
        "POST",
        &path(&one, "finish"),
        &body,
    );
    assert_eq!(finished.status, 200, "{}", finished.json());
    let failed = legacy_request(
        &api,
        &token(&two),
        None,
        "POST",
        &path(&two, "finish"),
        &json!({ "status": "failed" }),
    );
    assert_eq!(failed.status, 200, "{}", failed.json());
    let (first, second) = (
        one["trigger"]["taskId"].as_str().unwrap(),
        two["trigger"]["taskId"].as_str().unwrap(),
    );
    assert_eq!(
        world.run_json(&["show", second])["reason"],
        "Unknown failure"
    );
    assert!(
        wait_until(TEST_TIMEOUT, || world.run_json(&["show", first])["status"]
            == "completed"),
        "{}",
        world.run_ok(&["why", first])
    );
    assert_eq!(world.run_json(&["show", first])["output"], "It is written.");
}

/// A runner's token registers agents by name, but no programs and no leads. A viewer's token
/// registers none.
#[test]
fn a_runners_token_registers_neither_leads_nor_programs() {
    let world = World::with_project();
    let api = ApiClient::for_data_dir(&world.data_dir);
    world.run_ok(&["agent", "add", "bob", "--runtime", "scripted"]);
    let token = |name: &str, scope: &str| {
        world.run_json(&["token", "add", name, "--scope", scope])["token"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let (runner, viewer) = (token("box", "runner"), token("eye", "viewer"));
    let register = |token: &str, body: Value| {
        legacy_request(&api, token, None, "POST", "/api/agents", &body).status
    };
    let before = world.events();
    assert_eq!(
        register(&runner, json!({ "name": "eve", "isLead": true })),
        403
    );
    assert_eq!(
        register(&runner, json!({ "name": "bob", "maxTasks": 5 })),
        409
    );
    assert_eq!(
        register(&runner, json!({ "name": "ann", "role": "x".repeat(101) })),
        400
    );
    assert_eq!(register(&viewer, json!({ "name": "ann" })), 403);
    assert_eq!(
        legacy_request(&api, &viewer, Some("bob"), "GET", "/api/poll", &json!({})).status,
        403
    );
    assert_eq!(
        legacy_request(
            &api,
            &viewer,
            None,
            "POST",
            "/api/tasks",
            &json!({ "task": "x" })
        )
        .status,
        403
    );
    assert_eq!(
        legacy_request(&api, "wrong", None, "GET", "/me", &json!({})).status,
        401
    );
    assert_eq!(world.events(), before, "nothing changed");
    let document = legacy_request(
        &api,
        &viewer,
        None,
        "GET",
        "/api/v1/openapi.json",
        &json!({}),
    );
    assert_eq!(
        (document.status, &document.json()["openapi"]),
        (200, &json!("3.1.0"))
    );
    assert_eq!(
        legacy_request(
            &api,
            "wrong",
            None,
            "GET",
            "/api/v1/openapi.json",
            &json!({})
        )
        .status,
        401
    );
}

/// A poll also reports mentions, ended tasks (to a lead) and a task that a budget holds back.
#[test]
fn a_poll_reports_mentions_ended_tasks_and_budgets() {
    let world = World::with_project();
    let api = ApiClient::for_data_dir(&world.data_dir);
    let own = api.token.clone();
    let post = |path: &str, agent: Option<&str>, body: Value| {
        legacy_request(&api, &own, agent, "POST", path, &body)
    };
    for (name, lead) in [
        ("ann", false),
        ("lea", true),
        ("w-10", false),
        ("w-2", false),
    ] {
        assert_eq!(
            post("/api/agents", None, json!({ "name": name, "isLead": lead })).status,
            201
        );
    }
    let listed = world.run_json(&["agent", "list"]);
    let names = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|listed| listed["name"].as_str().unwrap());
    let names: Vec<&str> = names
        .filter(|name| ["lea", "w-2", "w-10"].contains(name))
        .collect();
    assert_eq!(
        names,
        ["lea", "w-2", "w-10"],
        "names are sorted by their numbers"
    );
    let poll = |agent: &str, query: &str| {
        let reply = legacy_request(
            &api,
            &own,
            Some(agent),
            "GET",
            &format!("/api/poll{query}"),
            &json!({}),
        );
        assert_eq!(reply.status, 200, "{}", reply.json());
        reply.json()
    };
    let first = poll("lea", "");
    assert_eq!(first["trigger"], Value::Null, "{first}");
    let since = format!("?since={}", first["date"].as_str().unwrap());
    // A waiting lead gets the end of a task as soon as it is committed.
    let waits = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| poll("lea", &format!("{since}&wait=60s")));
        world.run_ok(&["task", "add", "Look", "--report", "--assign", "ann"]);
        let granted = poll("ann", "");
        assert_eq!(granted["trigger"]["type"], "task_assigned", "{granted}");
        let token = granted["trigger"]["token"].as_str().unwrap();
        let reply = legacy_request(
            &api,
            token,
            None,
            "POST",
            "/api/tasks/T1/finish",
            &json!({ "status": "failed" }),
        );
        assert_eq!(reply.status, 200, "{}", reply.json());
        waiting.join().unwrap()
    });
    let trigger = &waits["trigger"];
    assert_eq!(
        (
            &trigger["type"],
            &trigger["count"],
            &trigger["tasks"][0]["id"]
        ),
        (&json!("tasks_finished"), &json!(1), &json!("T1"))
    );
    assert_eq!(
        trigger["tasks"][0]["failureReason"], "Unknown failure",
        "{trigger}"
    );
    assert_eq!(
        poll("ann", &since)["trigger"],
        Value::Null,
        "only a lead gets ended tasks"
    );
    assert_eq!(
        poll(
            "lea",
            &format!("?since={}", waits["date"].as_str().unwrap())
        )["trigger"],
        Value::Null
    );

    world.run_ok(&["msg", "send", "shop", "look at this, @ann"]);
    let mentioned = poll("ann", "");
    assert_eq!(
        (
            &mentioned["trigger"]["type"],
            &mentioned["trigger"]["mentionsCount"]
        ),
        (&json!("unread_mentions"), &json!(1)),
        "{mentioned}"
    );
    world.run_ok(&["msg", "read", "shop", "--as", "ann"]);
    assert_eq!(
        poll("ann", "")["trigger"],
        Value::Null,
        "the mention was read"
    );

    world.run_ok(&["budget", "set", "agent:ann", "--tokens", "0"]);
    let again = world.run_json(&["task", "add", "Look again", "--report", "--assign", "ann"]);
    let kept = poll("ann", "");
    assert_eq!(
        (&kept["trigger"]["type"], &kept["trigger"]["taskId"]),
        (&json!("budget_refused"), &again["id"]),
        "{kept}"
    );
}

/// A grant whose answer was lost is given again to the same slot, also after a restart. After the
/// end of its attempt the slot gets another one.
#[test]
fn a_grant_is_repeated_to_the_same_slot_until_its_attempt_ends() {
    let world = World::with_project();
    let api = ApiClient::for_data_dir(&world.data_dir);
    let token = |name: &str| {
        world.run_json(&["token", "add", name, "--scope", "runner"])["token"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let (one, two) = (token("one"), token("two"));
    let ann = json!({ "name": "ann", "maxTasks": 3 });
    assert_eq!(
        legacy_request(&api, &one, None, "POST", "/api/agents", &ann).status,
        201
    );
    for nth in 0..4 {
        world.run_ok(&["task", "add", &format!("Look {nth}"), "--report"]);
    }
    let poll = |token: &str, slot: u32| {
        let reply = legacy_request(
            &api,
            token,
            Some("ann"),
            "GET",
            &format!("/api/poll?slot={slot}"),
            &json!({}),
        )
        .json();
        reply["trigger"]["attempt"]
            .as_str()
            .unwrap_or("none")
            .to_owned()
    };
    let parallel: Vec<String> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..6).map(|_| scope.spawn(|| poll(&one, 0))).collect();
        all.into_iter()
            .map(|scoped_join_handle| scoped_join_handle.join().unwrap())
            .collect()
    });
    assert!(
        parallel.iter().all(|parallel| parallel == "A1"),
        "one slot, one grant: {parallel:?}"
    );
    assert_eq!(
        (poll(&one, 1), poll(&two, 0)),
        ("A2".into(), "A3".into()),
        "other slots and runners get other attempts"
    );
    world.run_ok(&["up", "--restart"]);
    assert_eq!(
        (poll(&one, 0), poll(&one, 1), poll(&two, 0)),
        ("A1".into(), "A2".into(), "A3".into())
    );
    assert_eq!(poll(&one, 2), "none", "J4: the agent is full");
    let task = world.run_json(&["show", "A1"])["task"]
        .as_str()
        .unwrap()
        .to_owned();
    let path = format!("/api/tasks/{task}/finish");
    assert_eq!(
        legacy_request(
            &api,
            &api.token.clone(),
            None,
            "POST",
            &path,
            &json!({ "status": "failed" })
        )
        .status,
        200
    );
    assert_eq!(
        (poll(&one, 0), poll(&one, 0)),
        ("A4".into(), "A4".into()),
        "the slot's next attempt"
    );
    for bad in ["", "a/b", "123456789012345678901"] {
        let reply = legacy_request(
            &api,
            &one,
            Some("ann"),
            "GET",
            &format!("/api/poll?slot={bad}"),
            &json!({}),
        );
        assert_eq!(reply.status, 400, "{bad}");
    }
}

/// An agent that closes is offline and gets no tasks until it registers again. Finishing its work
/// does not make it idle.
#[test]
fn an_agent_that_closes_is_offline_until_it_registers_again() {
    let world = World::with_project();
    let api = ApiClient::for_data_dir(&world.data_dir);
    let runner = world.run_json(&["token", "add", "box", "--scope", "runner"])["token"]
        .as_str()
        .unwrap()
        .to_owned();
    let post =
        |path: &str, body: Value| legacy_request(&api, &runner, Some("ann"), "POST", path, &body);
    let register = || {
        post(
            "/api/agents",
            json!({ "name": "ann", "maxTasks": 2, "role": "ä".repeat(100) }),
        )
    };
    assert_eq!(register().status, 201);
    world.run_ok(&["task", "add", "One", "--report", "--assign", "ann"]);
    world.run_ok(&["task", "add", "Two", "--report", "--assign", "ann"]);
    let poll = || post("/api/poll", json!({})).json()["trigger"].clone();
    let one = poll();
    assert_eq!(one["taskId"], "T1");
    let status = || post("/ping", json!({})).json()["status"].clone();
    assert_eq!(status(), "busy");
    let closed = post("/close", json!({}));
    assert_eq!(
        (closed.status, &closed.json()["status"]),
        (200, &json!("offline"))
    );
    assert_eq!(
        (poll(), status()),
        (Value::Null, json!("offline")),
        "an offline agent gets no task"
    );
    assert!(
        world.run_ok(&["why", "T2"]).contains("ann is offline"),
        "{}",
        world.run_ok(&["why", "T2"])
    );
    let token = one["token"].as_str().unwrap();
    let reply = legacy_request(
        &api,
        token,
        None,
        "POST",
        "/api/tasks/T1/finish",
        &json!({ "status": "failed" }),
    );
    assert_eq!(
        reply.status,
        200,
        "its present work goes on: {}",
        reply.json()
    );
    assert_eq!(status(), "offline", "an agent without work stays offline");
    let again = register();
    assert_eq!(
        (again.status, &again.json()["status"]),
        (200, &json!("idle"))
    );
    assert_eq!(
        (poll()["taskId"].clone(), status()),
        (json!("T2"), json!("busy"))
    );
}

/// A fourth task for a full agent is refused with the message that older clients expect. An offer
/// or a queued task is accepted.
#[test]
fn a_full_agent_gets_offers_and_queued_tasks_only() {
    let world = World::with_project();
    let api = ApiClient::for_data_dir(&world.data_dir);
    let token = api.token.clone();
    let ann = json!({ "name": "ann", "maxTasks": 3 });
    assert_eq!(
        legacy_request(&api, &token, None, "POST", "/api/agents", &ann).status,
        201
    );
    let add = |more: Value| {
        let mut body = json!({ "task": "Write", "agentId": "ann" });
        more.as_object()
            .unwrap()
            .iter()
            .for_each(|(name, value)| body[name] = value.clone());
        let reply = legacy_request(&api, &token, None, "POST", "/api/tasks", &body);
        (reply.status, reply.json())
    };
    for _ in 0..3 {
        let (status, added) = add(json!({}));
        assert_eq!(status, 201, "{added}");
        world.run_ok(&["edit", added["id"].as_str().unwrap(), "--type", "chore"]);
        let taken =
            legacy_request(&api, &token, Some("ann"), "POST", "/api/poll", &json!({})).json();
        assert_eq!(taken["trigger"]["type"], "task_assigned", "{taken}");
    }
    let (status, refused) = add(json!({}));
    assert_eq!((status, &refused["code"]), (409, &json!("at_capacity")));
    assert_eq!(
        refused["message"],
        "Agent \"ann\" is at capacity (3/3 tasks)"
    );
    let hint = refused["hint"].as_str().unwrap();
    assert!(
        hint.contains("\"offerMode\": true") && !hint.contains("--"),
        "the hint is for an HTTP client: {hint}"
    );
    let (status, offered) = add(json!({ "offerMode": true }));
    assert_eq!(
        (status, &offered["task"]["status"]),
        (201, &json!("offered")),
        "{offered}"
    );
    let (status, queued) = add(json!({ "queue": true }));
    assert_eq!(
        (status, &queued["task"]["status"]),
        (201, &json!("pending")),
        "{queued}"
    );
}

/// Returns a plan of tasks that each write a file and wait at a gate.
fn plan_with_gate(count: usize, gate: &std::path::Path) -> String {
    let task_text = |nth: usize| {
        format!(
            "[[task]]\nid = \"t{nth}\"\nsubject = \"Write {nth}\"\nfiles = [\"{nth}.txt\"]\n\
             script = [{{ write = {{ path = \"{nth}.txt\", text = \"x\\n\" }} }}, \
             {{ run = \"while [ ! -e {gate}-{nth} ]; do sleep 0.02; done\" }}]\n",
            gate = gate.display()
        )
    };
    (0..count).map(task_text).collect()
}

/// J4, with real programs: by default an agent runs one task at a time. With three slots, three of
/// five tasks run and two wait, and each task that ends lets one start. The status shows the same.
#[test]
fn j4_three_of_five_tasks_run_two_wait_and_the_status_agrees() {
    let world = World::with_project();
    let api = ApiClient::for_data_dir(&world.data_dir);
    let gate = world.root.join("gate");
    world.run_ok(&[
        "agent",
        "add",
        "ann",
        "--runtime",
        "scripted",
        "--confine",
        "off",
    ]);
    let me = || {
        let value = legacy_request(&api, &api.token, Some("ann"), "GET", "/me", &json!({})).json();
        (
            value["status"].as_str().unwrap().to_owned(),
            value["capacity"]["current"].as_u64().unwrap(),
            value["maxTasks"].clone(),
        )
    };
    let counts = || {
        let tasks = world.run_json(&["task", "list"]);
        let tasks_with_status = |status: &str| {
            tasks
                .as_array()
                .unwrap()
                .iter()
                .filter(|task| task["status"] == status)
                .count()
        };
        (
            tasks_with_status("in_progress"),
            tasks_with_status("unassigned") + tasks_with_status("pending"),
        )
    };
    let start = |count: usize| {
        world.run_json(&[
            "run",
            &world.write_plan(&plan_with_gate(count, &gate)),
            "--agents",
            "ann",
        ]);
    };
    let open = |nth: usize| std::fs::write(format!("{}-{nth}", gate.display()), "").unwrap();
    let close = |nth: usize| std::fs::remove_file(format!("{}-{nth}", gate.display())).unwrap();
    assert_eq!(me(), ("idle".into(), 0, json!(1)), "one slot by default");
    start(2);
    assert!(
        wait_until(TEST_TIMEOUT, || counts() == (1, 1)),
        "{:?}",
        counts()
    );
    assert_eq!(me().0, "busy");
    (0..2).for_each(open);
    assert!(
        wait_until(TEST_TIMEOUT, || counts() == (0, 0) && me().0 == "idle"),
        "{:?} {:?}",
        counts(),
        me()
    );
    (0..2).for_each(close);

    world.run_ok(&[
        "agent",
        "add",
        "ann",
        "--runtime",
        "scripted",
        "--confine",
        "off",
        "--max-tasks",
        "3",
    ]);
    start(5);
    assert!(
        wait_until(TEST_TIMEOUT, || counts() == (3, 2)),
        "{:?}",
        counts()
    );
    assert_eq!(me(), ("busy".into(), 3, json!(3)));
    // When one task ends, one waiting task starts, and never more than three run.
    open(0);
    assert!(
        wait_until(TEST_TIMEOUT, || counts() == (3, 1)),
        "{:?}",
        counts()
    );
    (1..5).for_each(open);
    assert!(
        wait_until(TEST_TIMEOUT, || counts() == (0, 0) && me().0 == "idle"),
        "{:?} {:?}",
        counts(),
        me()
    );
    // The event log shows that the slots were never exceeded at any revision.
    let (mut now, mut most) = (0i64, 0);
    for event in world.events() {
        match event["kind"].as_str().unwrap() {
            "attempt.started" => now += 1,
            "attempt.ended" => now -= 1,
            _ => {}
        }
        most = most.max(now);
    }
    assert_eq!((now, most), (0, 3));
}

/// A poll without a workspace gets none for a report, which is completed as soon as it is finished.
/// A change still gets a workspace.
#[test]
fn a_report_needs_no_workspace() {
    let world = World::with_project();
    world.run_ok(&["up"]);
    let api = ApiClient::for_data_dir(&world.data_dir);
    let token = api.token.clone();
    legacy_request(
        &api,
        &token,
        None,
        "POST",
        "/api/agents",
        &json!({ "name": "ann", "maxTasks": 3 }),
    );
    api.call_ok(
        "task.add",
        json!({ "subject": "What does it do?", "issue_type": "chore", "expects": "report" }),
    );
    api.call_ok(
        "task.add",
        json!({ "subject": "And this?", "issue_type": "chore", "expects": "report" }),
    );
    world.run_ok(&["add", "A change", "--files", "a.txt", "--validate", "true"]);
    let poll = || {
        legacy_request(
            &api,
            &token,
            Some("ann"),
            "GET",
            "/api/poll?workspace=false",
            &json!({}),
        )
        .json()
    };
    for task in ["T1", "T2"] {
        let given = poll()["trigger"].clone();
        assert_eq!(
            (&given["taskId"], &given["workspace"]),
            (&json!(task), &Value::Null)
        );
        let own = given["token"].as_str().unwrap();
        let body = json!({ "status": "completed", "output": "It sorts." });
        let path = format!("/api/tasks/{task}/finish");
        let finished = legacy_request(&api, own, None, "POST", &path, &body);
        assert_eq!(finished.status, 200, "{}", finished.json());
        assert_eq!(
            world.run_json(&["show", task])["status"],
            "completed",
            "the report is completed at once"
        );
        assert_eq!(
            legacy_request(&api, own, None, "POST", &path, &body).status,
            401,
            "the token ends with the attempt"
        );
    }
    let change = poll()["trigger"].clone();
    assert!(
        std::path::Path::new(change["workspace"].as_str().unwrap()).is_dir(),
        "{change}"
    );
    let made = api.call_ok("task.list", json!({ "status": ["completed"] }));
    assert_eq!(
        made["tasks"].as_array().or(made.as_array()).map(Vec::len),
        Some(2),
        "{made}"
    );
}

/// A task keeps its type, its expected result and its checks. Unknown fields are refused, not
/// dropped.
#[test]
fn a_task_keeps_every_field_and_refuses_unknown_ones() {
    let world = World::with_project();
    let api = ApiClient::for_data_dir(&world.data_dir);
    let add = |body: &Value| legacy_request(&api, &api.token, None, "POST", "/api/tasks", body);
    let whole = json!({
        "task": "Tidy up", "issue_type": "chore", "expects": "report", "priority": 4,
        "validation": { "tests": ["true"] },
    });
    let added = add(&whole).json();
    let task = world.run_json(&["show", added["id"].as_str().unwrap()]);
    assert_eq!(
        (&task["issue_type"], &task["purpose"]),
        (&json!("chore"), &json!({ "work": { "expects": "report" } })),
        "{task}"
    );
    assert_eq!(
        (&task["priority"], &task["validation"]["tests"]),
        (&json!(4), &json!(["true"])),
        "{task}"
    );
    let camel = add(&json!({ "task": "Write", "issueType": "docs" })).json();
    assert_eq!(camel["task"]["issue_type"], "docs", "{camel}");
    let single = add(&json!({ "task": "Look", "issue_type": "docs", "validation": {
        "tests": "cargo test", "files_exist": "a.md", "content_check": { "file": "a.md", "pattern": "x" },
    } }))
    .json();
    let validation = &single["task"]["validation"];
    assert_eq!(
        validation["tests"],
        json!(["cargo test"]),
        "a single value is a list of one: {single}"
    );
    assert_eq!(validation["files_exist"], json!(["a.md"]), "{single}");
    assert_eq!(
        validation["content_check"],
        json!([{ "file": "a.md", "pattern": "x" }]),
        "{single}"
    );
    let misspelt = add(&json!({ "task": "x", "isue_type": "chore" }));
    assert_eq!(misspelt.status, 400, "{}", misspelt.json());
    assert!(
        misspelt
            .json()
            .to_string()
            .contains("unknown field `isue_type`"),
        "{}",
        misspelt.json()
    );
    assert_eq!(
        add(&json!({ "task": "x", "issue_type": "story" })).status,
        400
    );
    assert_eq!(
        world.run_json(&["task", "list"]).as_array().unwrap().len(),
        3
    );
}

/// Another registration changes only the fields that it contains.
#[test]
fn a_registration_keeps_the_fields_it_does_not_contain() {
    let world = World::with_project();
    let api = ApiClient::for_data_dir(&world.data_dir);
    let register =
        |body: &Value| legacy_request(&api, &api.token, None, "POST", "/api/agents", body);
    let whole = json!({
        "name": "ann", "isLead": true, "role": "builder", "capabilities": ["rust"], "description": "d", "maxTasks": 2,
    });
    register(&whole);
    let again = register(&json!({ "name": "ann", "maxTasks": 3 })).json();
    let kept = [
        &again["role"],
        &again["capabilities"],
        &again["description"],
        &again["isLead"],
        &again["maxTasks"],
    ];
    assert_eq!(
        kept,
        [
            &json!("builder"),
            &json!(["rust"]),
            &json!("d"),
            &json!(true),
            &json!(3)
        ],
        "{again}"
    );
    let cleared =
        register(&json!({ "name": "ann", "role": "", "capabilities": [], "maxTasks": 3 })).json();
    assert_eq!(
        (&cleared["role"], &cleared["capabilities"]),
        (&json!(""), &json!([])),
        "empty values are set"
    );
    assert_eq!(
        register(&json!({ "name": "ann", "maxTask": 3 })).status,
        400
    );
}
