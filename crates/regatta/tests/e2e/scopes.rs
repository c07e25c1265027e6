//! Scopes: each token may call only the verbs of its scope, and an attempt's token reaches only its
//! own work.

use regatta_api::VERBS;
use regatta_api::verb::{TokenScope, Verb};
use serde_json::{Value, json};

use crate::http::{ApiClient, HttpReply};
use crate::world::World;

/// Calls a verb with a token over loopback.
fn call_with_token(api: &ApiClient, token: &str, verb: &str, input: &Value) -> HttpReply {
    let headers = [
        ("host", api.address()),
        ("authorization", format!("Bearer {token}")),
    ];
    api.request_over_tcp(
        "POST",
        &format!("/api/v1/{verb}"),
        &headers,
        &serde_json::to_vec(input).unwrap(),
    )
}

fn create_token(world: &World, name: &str, scope: &str, more: &[&str]) -> String {
    let made = world.run_json(&[&["token", "add", name, "--scope", scope], more].concat());
    made["token"].as_str().unwrap().to_owned()
}

/// Adds a task with this file in its manifest, lets an outside agent take it, and returns the
/// grant.
fn granted_attempt(world: &World, agent: &str, file: &str) -> Value {
    world.run_ok(&[
        "add",
        &format!("Write {file}"),
        "--files",
        file,
        "--validate",
        "true",
    ]);
    let granted =
        ApiClient::for_data_dir(&world.data_dir).call_ok("task.poll", json!({ "agent": agent }));
    assert!(
        granted["bearer"]
            .as_str()
            .is_some_and(|granted| granted.starts_with("ra_A")),
        "{granted}"
    );
    granted
}

fn world_with_outside_agents() -> World {
    let world = World::with_project();
    for (name, role) in [("ann", "worker"), ("bob", "worker"), ("eve", "lead")] {
        ApiClient::for_data_dir(&world.data_dir).call_ok(
            "agent.add",
            json!({ "name": name, "runtime": "outside", "role": role, "max_tasks": 5 }),
        );
    }
    world
}

fn bearer_of(granted: &Value) -> &str {
    granted["bearer"].as_str().unwrap()
}

/// S1, S2 and S10: every verb refuses a missing token, a wrong scope, a foreign Host, a foreign
/// Origin, an expired token and the token of an ended attempt, and nothing changes. With the right
/// scope the same verb is reached.
///
/// Checked with a planted fault: a guard that treats a missing token as the owner's. This test and
/// `routes.rs` found it.
#[test]
fn s10_every_verb_refuses_tokens_outside_its_scope() {
    let world = world_with_outside_agents();
    let api = ApiClient::for_data_dir(&world.data_dir);
    let given = [
        TokenScope::Admin,
        TokenScope::Operator,
        TokenScope::Viewer,
        TokenScope::Runner,
    ];
    let mut tokens: Vec<(TokenScope, String)> = given
        .iter()
        .map(|token_scope| {
            (
                *token_scope,
                create_token(
                    &world,
                    &format!("the-{token_scope}"),
                    &token_scope.to_string(),
                    &[],
                ),
            )
        })
        .collect();
    let expired = create_token(&world, "late", "admin", &["--expires", "1ms"]);
    let ended = granted_attempt(&world, "ann", "ended.txt");
    api.call_ok(
        "task.fail",
        json!({ "task": ended["task"]["id"], "attempt": ended["attempt"], "token": ended["token"], "reason": "no" }),
    );
    tokens.push((
        TokenScope::Attempt,
        bearer_of(&granted_attempt(&world, "ann", "a.txt")).to_owned(),
    ));
    tokens.push((
        TokenScope::Lead,
        bearer_of(&granted_attempt(&world, "eve", "e.txt")).to_owned(),
    ));
    let removed = create_token(&world, "gone", "admin", &[]);
    world.run_ok(&["token", "rm", "gone"]);

    let (own, evil) = (("host", api.address()), "http://evil.example".to_owned());
    let shows = |token: &str| ("authorization", format!("Bearer {token}"));
    // A field that no verb has. A token with the right scope gets an error about it, and nothing is
    // done.
    let strange = br#"{"no_such_field":1}"#;
    let before = world.events();
    for verb in VERBS {
        let path = format!("/api/v1/{}", verb.name);
        let refused = |code: &str, status: u16, headers: &[(&str, String)]| {
            let reply = api.request_over_tcp("POST", &path, headers, strange);
            assert_eq!(
                (reply.status, reply.json()["code"].as_str()),
                (status, Some(code)),
                "{path} {headers:?}"
            );
        };
        refused("no_token", 401, std::slice::from_ref(&own));
        refused("no_token", 401, &[own.clone(), shows(&removed)]);
        refused("expired_token", 401, &[own.clone(), shows(&expired)]);
        refused(
            "attempt_over",
            401,
            &[own.clone(), shows(bearer_of(&ended))],
        );
        for (scope, token) in &tokens {
            refused(
                "foreign_host",
                403,
                &[("host", "evil.example".into()), shows(token)],
            );
            refused(
                "foreign_origin",
                403,
                &[own.clone(), shows(token), ("origin", evil.clone())],
            );
            if scope.allows(verb) {
                refused("bad_input", 400, &[own.clone(), shows(token)]);
            } else {
                refused("wrong_scope", 403, &[own.clone(), shows(token)]);
            }
        }
    }
    // The stream of events needs a scope that may read everything.
    for (scope, token) in &tokens {
        let reply = api.request_over_tcp(
            "GET",
            "/api/v1/events?after=0&follow=false",
            &[own.clone(), shows(token)],
            b"",
        );
        assert_eq!(
            reply.status,
            if scope.can_read_all() { 200 } else { 403 },
            "{scope}"
        );
    }
    for token in [&expired, &removed, &bearer_of(&ended).to_owned()] {
        let reply = api.request_over_tcp(
            "GET",
            "/api/v1/events?after=0&follow=false",
            &[own.clone(), shows(token)],
            b"",
        );
        assert_eq!(reply.status, 401);
    }
    assert_eq!(world.events(), before, "nothing changed");
    // No verb that decides for people is open to an attempt.
    for name in [
        "inbox.answer",
        "policy.add",
        "budget.set",
        "limits.set",
        "down",
        "token.add",
        "agent.add",
        "status",
    ] {
        let verb = Verb::find(name).unwrap();
        assert!(
            !TokenScope::Attempt.allows(verb) && !TokenScope::Runner.allows(verb),
            "{name}"
        );
        // A lead may answer requests of its own workers, which the core checks.
        assert!(
            !TokenScope::Lead.allows(verb) || name == "inbox.answer",
            "{name}"
        );
    }
}

/// A token is shown once and stored as a hash. Its writes carry its name, whatever name the caller
/// sends.
#[test]
fn writes_carry_the_tokens_name_and_the_token_is_stored_only_as_a_hash() {
    let world = world_with_outside_agents();
    let api = ApiClient::for_data_dir(&world.data_dir);
    let operator = create_token(&world, "olga", "operator", &["--expires", "30d"]);
    let headers = [
        ("host", api.address()),
        ("authorization", format!("Bearer {operator}")),
        ("x-regatta-person", "somebody-else".to_owned()),
    ];
    let body = json!({ "subject": "From afar", "issue_type": "docs" }).to_string();
    assert_eq!(
        api.request_over_tcp("POST", "/api/v1/task.add", &headers, body.as_bytes())
            .status,
        200
    );
    let added = world
        .events()
        .into_iter()
        .rfind(|event| event["kind"] == "task.added")
        .unwrap();
    assert_eq!(added["by"], "person:olga");
    let listed = world.run_json(&["token", "list"]);
    assert_eq!(
        (&listed[0]["name"], &listed[0]["scope"]),
        (&json!("olga"), &json!("operator"))
    );
    assert!(
        listed[0]["expires_wall"]
            .as_u64()
            .is_some_and(|unix_ms| unix_ms > listed[0]["made_wall"].as_u64().unwrap())
    );
    // The token works after a kill -9, too, because it is stored on disk.
    crate::world::kill_process(
        u32::try_from(world.daemon_info().unwrap()["pid"].as_u64().unwrap()).unwrap(),
    );
    world.run_ok(&["status"]);
    assert_eq!(
        call_with_token(&api, &operator, "status", &json!({})).status,
        200
    );
    assert!(world.run_ok(&["token", "list"]).contains("olga"));
    world.run_ok(&["down"]);
    for file in files_below(&world.data_dir) {
        let bytes = std::fs::read(&file).unwrap();
        let found = bytes
            .windows(operator.len())
            .any(|bytes| bytes == operator.as_bytes());
        assert!(!found, "the token is in {}", file.display());
    }
}

fn files_below(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = vec![];
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let kind = entry.file_type().unwrap();
        match (kind.is_dir(), kind.is_file()) {
            (true, _) => found.extend(files_below(&entry.path())),
            (_, true) => found.push(entry.path()),
            _ => {}
        }
    }
    found
}

/// An attempt's token is refused for everything except its own work (J3, L8).
#[test]
fn an_attempts_token_reaches_only_its_own_work() {
    let world = world_with_outside_agents();
    let api = ApiClient::for_data_dir(&world.data_dir);
    let (mine, other) = (
        granted_attempt(&world, "ann", "a.txt"),
        granted_attempt(&world, "bob", "b.txt"),
    );
    let token = bearer_of(&mine).to_owned();
    let by_hand = api.call_ok(
        "claim.acquire",
        json!({ "uris": ["release://shop"], "agent": "operator", "ttl_ms": 60_000 }),
    );
    let claims = api.call_ok("claim.list", json!({}));
    let manifest = claims["held"]
        .as_array()
        .unwrap()
        .iter()
        .find(|claim| claim["owner"]["attempt"] == mine["attempt"]);
    let manifest = manifest.unwrap()["claim"].clone();
    let say = |verb: &str, input: Value| call_with_token(&api, &token, verb, &input);
    let before = world.events();
    let credentials_of = |grant: &Value| json!({ "task": grant["task"]["id"], "attempt": grant["attempt"], "token": grant["token"] });
    let with_field = |mut item: Value, name: &str, value: Value| {
        item[name] = value;
        item
    };
    let refused: Vec<(&str, Value)> = vec![
        // Another attempt, with its right token.
        (
            "task.progress",
            with_field(credentials_of(&other), "text", json!("hello")),
        ),
        ("task.finish", credentials_of(&other)),
        ("task.fail", credentials_of(&other)),
        (
            "task.finish",
            with_field(credentials_of(&mine), "task", other["task"]["id"].clone()),
        ),
        // Another owner's claim, with its right token, and the claim on its own manifest.
        (
            "claim.release",
            json!({ "claim": by_hand["claim"], "token": by_hand["token"] }),
        ),
        (
            "claim.renew",
            json!({ "claim": by_hand["claim"], "token": by_hand["token"] }),
        ),
        (
            "claim.release",
            json!({ "claim": manifest, "token": mine["token"] }),
        ),
        // Claims on the trunk, on answers and on other agents' names, and claims in another
        // project.
        (
            "claim.acquire",
            json!({ "uris": ["workspace://shop/default"], "agent": "ann", "ttl_ms": 1000 }),
        ),
        (
            "claim.acquire",
            json!({ "uris": ["respond://shop-dev"], "agent": "ann", "ttl_ms": 1000 }),
        ),
        (
            "claim.acquire",
            json!({ "uris": ["agent://bob"], "agent": "ann", "ttl_ms": 1000 }),
        ),
        (
            "claim.acquire",
            json!({ "uris": ["file://other/x"], "agent": "ann", "ttl_ms": 1000 }),
        ),
        ("claim.check", json!({ "uris": ["agent://bob"] })),
        // Other channels, other senders and reserved labels.
        ("msg.send", json!({ "channel": "elsewhere", "text": "x" })),
        (
            "msg.send",
            json!({ "channel": "shop", "text": "x", "agent": "bob" }),
        ),
        (
            "msg.send",
            json!({ "channel": "shop", "text": "x", "labels": ["lead:bob"] }),
        ),
        ("msg.read", json!({ "agent": "bob", "channel": "@bob" })),
        ("msg.history", json!({ "channel": "shopping" })),
        (
            "msg.wait",
            json!({ "channel": "elsewhere", "timeout_ms": 1 }),
        ),
        (
            "msg.send",
            json!({ "channel": "shop", "text": "Merged", "labels": ["coord:merge"] }),
        ),
        // Tasks with commands to run.
        (
            "task.add",
            json!({ "subject": "x", "script": [{ "run": "id" }] }),
        ),
        (
            "task.add",
            json!({ "subject": "x", "validation": { "tests": ["id"] } }),
        ),
        ("task.add", json!({ "subject": "x", "ratchet": ["id"] })),
        ("task.add", json!({ "subject": "x", "assign": "bob" })),
        // Requests of other attempts.
        (
            "attempt.ask",
            with_field(credentials_of(&other), "question", json!("May I?")),
        ),
        (
            "attempt.answer",
            json!({ "attempt": other["attempt"], "id": "Q1" }),
        ),
        ("briefing", json!({ "attempt": other["attempt"] })),
        // Other agents, attempts and missions.
        ("show", json!({ "id": "bob" })),
        ("show", json!({ "id": other["attempt"] })),
        ("show", json!({ "id": "M1" })),
        // Verbs of a lead.
        ("task.list", json!({})),
        ("tell", json!({ "id": other["task"]["id"], "text": "stop" })),
        ("land", json!({ "id": other["task"]["id"] })),
    ];
    for (verb, input) in &refused {
        let reply = say(verb, input.clone());
        let code = reply.json()["code"].clone();
        assert_eq!(reply.status, 403, "{verb} {input}: {}", reply.json());
        assert!(
            code == "not_yours" || code == "wrong_scope",
            "{verb} {input}: {code}"
        );
    }
    // A token that differs in one character, and the fencing token alone.
    let last = if token.ends_with('0') { "1" } else { "0" };
    let near = format!("{}{last}", &token[..token.len() - 1]);
    let (number, fence) = (
        mine["attempt"].as_str().unwrap(),
        mine["token"].as_u64().unwrap(),
    );
    for wrong in [
        near,
        format!("ra_{number}_{fence}"),
        format!("ra_{number}_"),
        "ra_".into(),
        fence.to_string(),
    ] {
        assert_eq!(
            call_with_token(&api, &wrong, "show", &json!({ "id": mine["task"]["id"] })).status,
            401,
            "{wrong}"
        );
    }
    assert_eq!(world.events(), before, "nothing changed");

    // Its own work: the sender is always its agent, and the fencing token is not needed.
    let own = with_field(
        with_field(credentials_of(&mine), "token", json!(0)),
        "text",
        json!("half way"),
    );
    assert_eq!(say("task.progress", own).status, 200);
    for (channel, text) in [("shop", "hi @bob"), ("@bob", "a word in private")] {
        let sent = say("msg.send", json!({ "channel": channel, "text": text }));
        assert_eq!(sent.json()["data"]["sender"], "ann");
    }
    let held = say(
        "claim.acquire",
        json!({ "uris": ["file://shop/c.txt"], "agent": "bob", "ttl_ms": 60_000 }),
    );
    assert_eq!(held.status, 200, "{}", held.json());
    let held = held.json()["data"].clone();
    let listed = api.call_ok("claim.list", json!({}));
    let found = listed["held"]
        .as_array()
        .unwrap()
        .iter()
        .find(|listed| listed["claim"] == held["claim"])
        .cloned()
        .unwrap();
    assert_eq!(found["owner"]["attempt"], mine["attempt"]);
    // A follow-up of a worker goes to the backlog.
    let follow_up = say(
        "task.add",
        json!({ "subject": "Also this", "issue_type": "docs" }),
    );
    assert_eq!(
        (follow_up.status, &follow_up.json()["data"]["status"]),
        (200, &json!("backlog"))
    );
    let by: Vec<Value> = world
        .events()
        .iter()
        .skip(before.len())
        .map(|event| event["by"].clone())
        .collect();
    assert!(!by.is_empty() && by.iter().all(|by| by == "ann"), "{by:?}");

    // The token and the claims end with the attempt.
    assert_eq!(
        say(
            "task.fail",
            with_field(credentials_of(&mine), "reason", json!("enough"))
        )
        .status,
        200
    );
    assert_eq!(
        say("show", json!({ "id": mine["task"]["id"] })).json()["code"],
        "attempt_over"
    );
    let claims = api.call_ok("claim.list", json!({}));
    assert!(
        !claims["held"]
            .as_array()
            .unwrap()
            .iter()
            .any(|claims| claims["owner"]["attempt"] == mine["attempt"]),
        "{claims}"
    );
}

/// A lead's token reaches the tasks of its project and nothing else.
#[test]
fn a_leads_token_reaches_only_the_tasks_of_its_project() {
    let world = world_with_outside_agents();
    let api = ApiClient::for_data_dir(&world.data_dir);
    let (mine, other) = (
        granted_attempt(&world, "eve", "e.txt"),
        granted_attempt(&world, "bob", "b.txt"),
    );
    let say = |verb: &str, input: Value| call_with_token(&api, bearer_of(&mine), verb, &input);
    assert_eq!(say("task.list", json!({})).status, 200);
    let answer = say(
        "tell",
        json!({ "id": other["task"]["id"], "text": "Mind the tests." }),
    );
    assert_eq!(answer.status, 200, "{}", answer.json());
    let added = say(
        "task.add",
        json!({ "subject": "Next", "issue_type": "docs", "assign": "bob" }),
    );
    assert_eq!(added.status, 200, "{}", added.json());
    for (verb, input) in [
        (
            "inbox.answer",
            json!({ "id": "Q1", "answer": { "say": "allow" } }),
        ),
        ("stop", json!({})),
        (
            "task.set",
            json!({ "task": other["task"]["id"], "edit": {} }),
        ),
        ("mission.start", json!({ "title": "x", "agents": [] })),
        ("mission.show", json!({ "id": "M1" })),
        ("task.add", json!({ "subject": "x", "script": [] })),
    ] {
        assert_eq!(say(verb, input).status, 403, "{verb}");
    }
}
