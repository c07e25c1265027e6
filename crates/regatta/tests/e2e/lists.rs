//! Lists in pages, conditional updates, and limits of request bodies.

use std::io::{Read, Write};

use serde_json::{Value, json};

use crate::http::{ApiClient, HttpReply};
use crate::world::{TEST_TIMEOUT, World, wait_until};

fn http_post(api: &ApiClient, path: &str, more: &[(&str, &str)], body: &Value) -> HttpReply {
    let mut headers = vec![
        ("host", api.address()),
        ("authorization", format!("Bearer {}", api.token)),
    ];
    headers.extend(more.iter().map(|more| (more.0, more.1.to_owned())));
    api.request_over_tcp("POST", path, &headers, body.to_string().as_bytes())
}

/// Returns the entries in the data of a list verb's answer.
fn entries_of(data: &Value) -> Vec<Value> {
    let list = data.get("held").unwrap_or(data);
    list.as_array().unwrap().clone()
}

/// Returns what a list verb's entry is about, without figures that change with the time.
fn subject_of(entry: &Value) -> String {
    let names = [
        "id", "claim", "n", "team", "name", "check", "project", "channel",
    ];
    let found = names.iter().find_map(|name| entry.get(name));
    found
        .unwrap_or_else(|| panic!("no key in {entry}"))
        .to_string()
}

/// Reads a list in pages of `limit` entries, and returns the subjects of all entries.
fn read_pages(api: &ApiClient, verb: &str, limit: usize, input: &Value) -> Vec<String> {
    let (mut subjects, mut after) = (Vec::new(), String::new());
    loop {
        let path = format!("/api/v1/{verb}?limit={limit}{after}");
        let reply = http_post(api, &path, &[], input);
        let page = reply.json();
        assert_eq!(reply.status, 200, "{path}: {page}");
        let entries = entries_of(&page["data"]);
        assert!(entries.len() <= limit, "{path}: {page}");
        subjects.extend(entries.iter().map(subject_of));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return subjects,
        }
    }
}

/// Pages have every entry of a list, although a call that asks for no page gets fifty entries.
#[test]
fn pages_continue_after_the_number_of_entries_that_a_call_without_pages_returns() {
    let world = World::with_project();
    let api = ApiClient::for_data_dir(&world.data_dir);
    // A hook fires at most twenty times in a minute, so four hooks fire.
    for _ in 0..4 {
        world.run_ok(&[
            "hook",
            "add",
            "--channel",
            "shop",
            "--prefix",
            "!go",
            "--",
            "true",
        ]);
    }
    for nth in 0..120 {
        let text = if nth < 15 { "!go" } else { "hello" };
        api.call_ok("msg.send", json!({ "channel": "shop", "text": text }));
    }
    let everything = json!({ "limit": 1_000 });
    let mut firings = Vec::new();
    let all_ended = wait_until(TEST_TIMEOUT, || {
        firings = entries_of(&api.call_ok("hook.log", everything.clone()));
        firings.len() == 60 && firings.iter().all(|firing| !firing["ended"].is_null())
    });
    assert!(all_ended, "{firings:?}");
    for verb in ["msg.history", "audit", "hook.log"] {
        let all = entries_of(&api.call_ok(verb, everything.clone()));
        let all: Vec<String> = all.iter().map(subject_of).collect();
        assert!(all.len() >= 60, "{verb}: {all:?}");
        assert_eq!(
            entries_of(&api.call_ok(verb, json!({}))).len(),
            50,
            "{verb}"
        );
        assert_eq!(read_pages(&api, verb, 20, &json!({})), all, "{verb}");
        // A limit in the input limits the whole list.
        let limited = json!({ "limit": 30 });
        let newest: Vec<String> = entries_of(&api.call_ok(verb, limited.clone()))
            .iter()
            .map(subject_of)
            .collect();
        assert_eq!(read_pages(&api, verb, 20, &limited), newest, "{verb}");
    }
}

/// The pages of every list verb have the entries of the whole list in the same order.
#[test]
fn pages_of_every_list_verb_are_the_whole_list() {
    let world = World::with_project();
    let api = ApiClient::for_data_dir(&world.data_dir);
    for nth in 0..3 {
        let name = format!("agent-{nth}");
        api.call_ok("agent.add", json!({ "name": name, "runtime": "outside" }));
        api.call_ok("token.add", json!({ "name": name, "scope": "viewer" }));
        api.call_ok("task.add", json!({ "subject": name, "backlog": true }));
        api.call_ok(
            "mission.start",
            json!({ "title": name, "agents": [name], "tasks": [{ "task": { "subject": name } }] }),
        );
        api.call_ok(
            "policy.add",
            json!({ "effect": "allow", "matter": { "command": name } }),
        );
        api.call_ok(
            "claim.acquire",
            json!({ "uris": [format!("file://shop/{nth}")], "agent": name, "ttl_ms": 600_000 }),
        );
        api.call_ok(
            "msg.send",
            json!({ "channel": name, "text": "@agent-0 hello" }),
        );
        world.run_ok(&[
            "hook",
            "add",
            "--channel",
            "shop",
            "--prefix",
            "!go",
            "--",
            "true",
        ]);
    }
    api.call_ok("task.cancel", json!({ "task": "T1" }));
    let mut long_lists = Vec::new();
    for verb in regatta_api::VERBS.iter().filter(|verb| verb.returns_list) {
        let input = match verb.name {
            // These lists are about an attempt, and no attempt runs here.
            "siblings" | "attempt.checks" => continue,
            "msg.inbox" => json!({ "agent": "agent-0" }),
            "task.list" | "conversation.list" => json!({ "all": true }),
            _ => json!({}),
        };
        let whole = entries_of(&api.call_ok(verb.name, input.clone()));
        let whole: Vec<String> = whole.iter().map(subject_of).collect();
        assert_eq!(
            read_pages(&api, verb.name, 1, &input),
            whole,
            "{}",
            verb.name
        );
        if whole.len() > 1 {
            long_lists.push(verb.name);
        }
    }
    assert!(long_lists.len() >= 10, "{long_lists:?}");
}

/// All pages together have every item once, and the last page has no next one.
#[test]
fn a_long_list_comes_in_pages() {
    let world = World::with_project();
    let api = ApiClient::for_data_dir(&world.data_dir);
    for nth in 0..12 {
        api.call_ok(
            "task.add",
            json!({ "subject": format!("Task {nth}"), "backlog": true }),
        );
    }
    let (mut seen, mut after, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let reply = http_post(
            &api,
            &format!("/api/v1/task.list?limit=5{after}"),
            &[],
            &json!({}),
        );
        assert_eq!(reply.status, 200, "{}", reply.json());
        let page = reply.json();
        let ids = page["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|page| page["id"].as_str().unwrap().to_owned());
        seen.extend(ids);
        pages += 1;
        if pages == 1 {
            // Tasks that end meanwhile do not shift the pages.
            api.call_ok("task.cancel", json!({ "task": "T5" }));
            api.call_ok("task.cancel", json!({ "task": "T1" }));
        }
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(
        (seen, pages),
        ((1..=12).map(|n| format!("T{n}")).collect::<Vec<_>>(), 3)
    );
    assert_eq!(
        http_post(&api, "/api/v1/status?limit=5", &[], &json!({})).status,
        400
    );
    // A call that changes something and cannot have pages is refused before the change.
    let refused = http_post(
        &api,
        "/api/v1/task.cancel?limit=5",
        &[],
        &json!({ "task": "T2" }),
    );
    assert_eq!(
        (refused.status, &refused.json()["code"]),
        (400, &json!("no_list"))
    );
    assert_eq!(world.run_json(&["show", "T2"])["status"], "backlog");
    let odd = http_post(&api, "/api/v1/task.list?limit=many", &[], &json!({}));
    assert_eq!(
        (odd.status, &odd.json()["code"]),
        (400, &json!("bad_input"))
    );
}

/// Two people read a task and edit it. The second edit is refused, so the first one is not lost.
#[test]
fn an_update_based_on_an_old_revision_is_refused() {
    let world = World::with_project();
    let api = ApiClient::for_data_dir(&world.data_dir);
    let added = http_post(
        &api,
        "/api/v1/task.add",
        &[],
        &json!({ "subject": "One", "backlog": true }),
    );
    let revision = added.json()["revision"].as_u64().unwrap();
    let edit = |subject: &str, since: &str| {
        let body = json!({ "task": "T1", "edit": { "subject": subject } });
        http_post(&api, "/api/v1/task.set", &[("if-match", since)], &body)
    };
    // Changes of other things do not matter.
    api.call_ok("msg.send", json!({ "channel": "shop", "text": "hello" }));
    let first = edit("Two", &format!("\"{revision}\""));
    assert_eq!(first.status, 200, "{}", first.json());
    let second = edit("Three", &format!("\"{revision}\""));
    assert_eq!(
        (second.status, &second.json()["code"]),
        (412, &json!("changed")),
        "{}",
        second.json()
    );
    assert_eq!(world.run_json(&["show", "T1"])["subject"], "Two");
    let revision = first.json()["revision"].as_u64().unwrap();
    assert_eq!(
        edit("Three", &revision.to_string()).status,
        200,
        "an update based on the present revision"
    );
    // After a restart the daemon does not know when the task last changed, so a client must read it
    // again.
    world.run_ok(&["up", "--restart"]);
    let last = world.run_json(&["show", "T1"]);
    assert_eq!(last["subject"], "Three");
    assert_eq!(edit("Four", &revision.to_string()).status, 412);
    let now =
        http_post(&api, "/api/v1/show", &[], &json!({ "id": "T1" })).json()["revision"].to_string();
    assert_eq!(edit("Four", &now).status, 200);
    // A condition on a verb that supports none is refused instead of ignored.
    let other = http_post(
        &api,
        "/api/v1/msg.send",
        &[("if-match", "1")],
        &json!({ "channel": "shop", "text": "x" }),
    );
    assert_eq!(
        (other.status, &other.json()["code"]),
        (400, &json!("no_condition"))
    );
    assert_eq!(edit("Five", "nonsense").status, 400);
    // A repeated key gives the same answer, whatever has changed since (J9).
    let body = json!({ "task": "T1", "edit": { "subject": "Six" } });
    let now =
        http_post(&api, "/api/v1/show", &[], &json!({ "id": "T1" })).json()["revision"].to_string();
    let once = || {
        http_post(
            &api,
            "/api/v1/task.set",
            &[("if-match", &now), ("idempotency-key", "six")],
            &body,
        )
    };
    assert_eq!((once().status, once().status), (200, 200));
}

/// Of sixteen edits based on the same revision one succeeds, because the condition is checked where
/// the edit is decided.
#[test]
fn one_of_sixteen_racing_updates_succeeds() {
    let world = World::with_project();
    let api = ApiClient::for_data_dir(&world.data_dir);
    let added = http_post(
        &api,
        "/api/v1/task.add",
        &[],
        &json!({ "subject": "One", "backlog": true }),
    )
    .json();
    let revision = added["revision"].to_string();
    let made: Vec<u16> = std::thread::scope(|scope| {
        let edit = |nth: usize| {
            let body = json!({ "task": "T1", "edit": { "subject": format!("By {nth}") } });
            http_post(&api, "/api/v1/task.set", &[("if-match", &revision)], &body).status
        };
        let all: Vec<_> = (0..16).map(|nth| scope.spawn(move || edit(nth))).collect();
        all.into_iter()
            .map(|scoped_join_handle| scoped_join_handle.join().unwrap())
            .collect()
    });
    assert_eq!(
        made.iter().filter(|made| **made == 200).count(),
        1,
        "{made:?}"
    );
    assert_eq!(
        made.iter().filter(|made| **made == 412).count(),
        15,
        "{made:?}"
    );
}

/// Oversized bodies and wrong methods are refused with their error codes, and events can be
/// filtered.
#[test]
fn oversized_bodies_and_wrong_methods_are_refused_and_events_are_filtered() {
    let world = World::with_project();
    let api = ApiClient::for_data_dir(&world.data_dir);
    let large = http_post(
        &api,
        "/api/v1/msg.send",
        &[],
        &json!({ "channel": "shop", "text": "x".repeat(9 << 20) }),
    );
    assert_eq!(
        (large.status, &large.json()["code"]),
        (413, &json!("too_large"))
    );
    let headers = [
        ("host", api.address()),
        ("authorization", format!("Bearer {}", api.token)),
    ];
    let wrong = api.request_over_tcp("PUT", "/api/v1/status", &headers, b"");
    assert_eq!(
        (wrong.status, &wrong.json()["code"]),
        (405, &json!("wrong_method"))
    );
    api.call_ok("task.add", json!({ "subject": "One", "backlog": true }));
    // a channel without a hook
    api.call_ok("msg.send", json!({ "channel": "elsewhere", "text": "x" }));
    let kinds = |query: &str| -> Vec<String> {
        let events = api.open_event_stream(&format!("?after=0&follow=false{query}"), None);
        events
            .map(|event| event["kind"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(kinds("&kind=message.*"), ["message.posted"]);
    assert_eq!(kinds("&kind=task.*&about=T1"), ["task.added"]);
    assert!(kinds("").len() > 4);
}

/// Requests whose headers never end do not delay other requests. That the daemon closes them in the
/// end is not tested here.
#[test]
fn fifty_slow_requests_delay_no_other_request() {
    let world = World::with_project();
    let api = ApiClient::for_data_dir(&world.data_dir);
    let mut slow: Vec<std::net::TcpStream> = (0..50)
        .map(|_| std::net::TcpStream::connect(api.address()).unwrap())
        .collect();
    slow.iter_mut().for_each(|stream| {
        stream
            .write_all(b"POST /api/v1/status HTTP/1.1\r\nhost: x")
            .unwrap()
    });
    api.call_ok("status", json!({}));
    let mut one = slow.pop().unwrap();
    one.write_all(b"\r\n\r\n").unwrap();
    let mut reply = [0; 12];
    one.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"HTTP/1.1 403", "a foreign host in a slow request");
}
