//! The audit log: every write has an entry, whichever transport carried it and whether it succeeded
//! or was refused.

use serde_json::{Value, json};

use crate::http::ApiClient;
use crate::world::{World, kill_process, wait_until};

fn audit_lines(world: &World) -> Vec<Value> {
    world
        .run_json(&["audit", "--limit", "10000"])
        .as_array()
        .unwrap()
        .clone()
}

/// Writes over HTTP, the tool protocol and the socket, successful or refused, have one entry each
/// with person, token, origin and outcome. Reads have none.
#[test]
fn every_write_is_logged_with_person_token_and_origin() {
    let world = World::with_project();
    let api = ApiClient::for_data_dir(&world.data_dir);
    let ann = world.run_json(&["token", "add", "ann", "--scope", "operator"])["token"]
        .as_str()
        .unwrap()
        .to_owned();
    let eye = world.run_json(&["token", "add", "eye", "--scope", "viewer"])["token"]
        .as_str()
        .unwrap()
        .to_owned();
    let before = audit_lines(&world).len();
    let asked = std::cell::Cell::new(0);
    let post = |token: &str, path: &str, body: Value| {
        asked.set(asked.get() + 1);
        let headers = [
            ("host", api.address()),
            ("authorization", format!("Bearer {token}")),
            ("idempotency-key", format!("k-{}", asked.get())),
        ];
        api.request_over_tcp("POST", path, &headers, body.to_string().as_bytes())
    };
    let added = post(
        &ann,
        "/api/v1/task.add",
        json!({ "subject": "a-secret-word", "files": ["a.txt"] }),
    );
    assert_eq!(added.status, 200, "{added:?}");
    assert_eq!(
        post(&eye, "/api/v1/task.cancel", json!({ "task": "T1" })).status,
        403
    );
    assert_eq!(
        post(&ann, "/api/v1/task.cancel", json!({ "task": "T99" })).status,
        404
    );
    assert_eq!(
        post(&ann, "/api/v1/status", json!({})).status,
        200,
        "a read"
    );
    assert_eq!(
        post(&ann, "/api/agents", json!({ "name": "zoe" })).status,
        201
    );
    let call = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "task_cancel", "arguments": { "task": "T1", "reason": "no more" } },
    });
    assert_eq!(post(&ann, "/mcp", call).status, 200);
    world.run_ok(&["agent", "rm", "zoe"]);

    let found = audit_lines(&world).split_off(before);
    let brief = |value: &Value| {
        let came = value["refused"]
            .as_str()
            .unwrap_or(if value["revision"].is_u64() {
                "done"
            } else {
                "?"
            })
            .to_owned();
        let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        (text("verb"), text("about"), text("by"), text("token"), came)
    };
    let line = |verb: &str, about: &str, by: &str, token: &str, came: &str| {
        (
            verb.to_owned(),
            about.to_owned(),
            by.to_owned(),
            token.to_owned(),
            came.to_owned(),
        )
    };
    assert_eq!(
        found.iter().map(brief).collect::<Vec<_>>(),
        [
            line("task.add", "", "person:ann", "ann", "done"),
            line("task.cancel", "T1", "person:eye", "eye", "wrong_scope"),
            line("task.cancel", "T99", "person:ann", "ann", "no_such_task"),
            line("agent.add", "zoe", "person:ann", "ann", "done"),
            line("task.cancel", "T1", "person:ann", "ann", "done"),
            line("agent.rm", "zoe", "person:ann", "owner", "done"),
        ]
    );
    assert!(
        found[0]["from"].as_str().unwrap().starts_with("127.0.0.1:"),
        "{}",
        found[0]
    );
    assert_eq!(found[0]["key"], "ann/k-1");
    assert!(
        found[5]["from"].as_str().unwrap().starts_with("unix uid="),
        "{}",
        found[5]
    );
    let numbers: Vec<u64> = audit_lines(&world)
        .iter()
        .map(|audit_line| audit_line["n"].as_u64().unwrap())
        .collect();
    assert_eq!(
        numbers,
        (1..=numbers.len() as u64).collect::<Vec<_>>(),
        "no number is missing"
    );
    let text = std::fs::read_to_string(world.data_dir.join("audit.jsonl")).unwrap();
    assert!(
        !text.contains(&ann) && !text.contains("a-secret-word"),
        "S4: a secret is in the log"
    );
    assert_eq!(
        world
            .run_json(&["audit", "--by", "eye"])
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let refused = post(&ann, "/api/v1/audit", json!({}));
    assert_eq!(refused.status, 403, "only for admins");
}

/// An acknowledged write is in the audit log even if the daemon is killed right afterwards (D1).
#[test]
fn an_acknowledged_write_is_in_the_audit_log_after_a_kill() {
    let world = World::with_project();
    let api = ApiClient::for_data_dir(&world.data_dir);
    for nth in 0..5 {
        let pid = world.run_json(&["up"])["pid"].as_u64().unwrap() as u32;
        api.call_ok(
            "msg.send",
            json!({ "channel": format!("c{nth}"), "text": "x" }),
        );
        kill_process(pid);
        assert!(wait_until(crate::world::TEST_TIMEOUT, || {
            !crate::world::is_alive(pid)
        }));
    }
    let sent = world.run_json(&["audit", "--verb", "msg.send"]);
    let about: Vec<&str> = sent
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|sent| sent["about"].as_str())
        .collect();
    assert_eq!(about, ["c0", "c1", "c2", "c3", "c4"]);
}
