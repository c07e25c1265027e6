//! The surface that older clients know: agents register, poll and report over plain HTTP, with the same rules.

use serde_json::{Value, json};

use crate::http::{Door, Reply};
use crate::world::{LONG, World, until};

fn ask(door: &Door, token: &str, agent: Option<&str>, method: &str, path: &str, body: &Value) -> Reply {
    let mut headers = vec![("host", door.address()), ("authorization", format!("Bearer {token}"))];
    headers.extend(agent.map(|it| ("x-agent-id", it.to_owned())));
    door.over_tcp(method, path, &headers, body.to_string().as_bytes())
}

/// An agent's whole day: it registers with its capacity, polls, reports and finishes; a second one fails.
#[test]
fn an_older_clients_day_goes_as_it_did() {
    let world = World::set_up();
    let door = Door::of(&world.data);
    let made = world.json(&["token", "add", "box", "--scope", "runner"]);
    let runner = made["token"].as_str().unwrap();
    let operator = door.token.clone();
    let register = |max: Value| {
        let body = json!({
            "name": "ann", "isLead": false, "role": "writes texts", "capabilities": ["text"], "maxTasks": max,
        });
        ask(&door, runner, None, "POST", "/api/agents", &body)
    };
    let first = register(json!(3));
    assert_eq!((first.status, &first.json()["capacity"]["max"]), (201, &json!(3)), "{}", first.json());
    for bad in [json!(0), json!(21)] {
        assert_eq!(register(bad).status, 400);
    }
    let again = register(json!(2));
    assert_eq!((again.status, &again.json()["maxTasks"]), (200, &json!(2)), "re-registration brings it up to date");
    let agent = |reply: &Value| (reply["role"].clone(), reply["capabilities"].clone(), reply["createdAt"].is_string());
    let me = ask(&door, runner, Some("ann"), "GET", "/me", &json!({})).json();
    assert_eq!(agent(&me), (json!("writes texts"), json!(["text"]), true), "{me}");
    assert_eq!(me["capacity"], json!({ "current": 0, "max": 2, "available": 2 }));

    for nth in 0..3 {
        let body =
            json!({ "task": format!("Write {nth}\nAll of it."), "agentId": "ann", "files": [format!("{nth}.txt")] });
        let added = ask(&door, &operator, None, "POST", "/api/tasks", &body);
        assert_eq!(added.status, 201, "{}", added.json());
        let task = added.json()["id"].as_str().unwrap().to_owned();
        world.ok(&["edit", &task, "--validate", "true"]);
    }
    let poll = || ask(&door, runner, Some("ann"), "GET", "/api/poll", &json!({})).json();
    let (one, two, three) = (poll(), poll(), poll());
    assert_eq!((&one["trigger"]["type"], &one["capacity"]["current"]), (&json!("task_assigned"), &json!(1)), "{one}");
    assert_ne!(one["trigger"]["taskId"], two["trigger"]["taskId"]);
    assert_eq!((&three["trigger"], &three["capacity"]["available"]), (&Value::Null, &json!(0)), "it is full: {three}");
    let listed = ask(&door, runner, None, "GET", "/api/agents", &json!({})).json();
    assert_eq!(
        (&listed["agents"][0]["status"], &listed["agents"][0]["capacity"]["current"]),
        (&json!("busy"), &json!(2))
    );

    // Only the attempt's own token speaks for it, not the runner's.
    let path = |it: &Value, what: &str| format!("/api/tasks/{}/{what}", it["trigger"]["taskId"].as_str().unwrap());
    let token = |it: &Value| it["trigger"]["token"].as_str().unwrap().to_owned();
    let body = json!({ "progress": "half way" });
    assert_eq!(ask(&door, runner, Some("ann"), "POST", &path(&one, "progress"), &body).status, 403);
    assert_eq!(ask(&door, &token(&two), None, "POST", &path(&one, "progress"), &body).status, 403);
    assert_eq!(ask(&door, &token(&one), None, "POST", &path(&one, "progress"), &body).status, 200);
    let own = ask(&door, &token(&one), None, "GET", "/me", &json!({})).json();
    assert_eq!(own["name"], "ann");

    let place = std::path::Path::new(one["trigger"]["workspace"].as_str().unwrap()).to_owned();
    std::fs::write(place.join("0.txt"), "text\n").unwrap();
    let done = json!({ "status": "completed", "output": "It is written." });
    let finished = ask(&door, &token(&one), None, "POST", &path(&one, "finish"), &done);
    assert_eq!(finished.status, 200, "{}", finished.json());
    let failed = ask(&door, &token(&two), None, "POST", &path(&two, "finish"), &json!({ "status": "failed" }));
    assert_eq!(failed.status, 200, "{}", failed.json());
    let (first, second) = (one["trigger"]["taskId"].as_str().unwrap(), two["trigger"]["taskId"].as_str().unwrap());
    assert_eq!(world.json(&["show", second])["reason"], "Unknown failure");
    assert!(until(LONG, || world.json(&["show", first])["status"] == "completed"), "{}", world.ok(&["why", first]));
    assert_eq!(world.json(&["show", first])["output"], "It is written.");
}

/// A runner's token registers names, never programs or leads; an attempt's registers nobody.
#[test]
fn a_runner_registers_names_and_nothing_more() {
    let world = World::set_up();
    let door = Door::of(&world.data);
    world.ok(&["agent", "add", "bob", "--runtime", "scripted"]);
    let token = |name: &str, scope: &str| {
        world.json(&["token", "add", name, "--scope", scope])["token"].as_str().unwrap().to_owned()
    };
    let (runner, viewer) = (token("box", "runner"), token("eye", "viewer"));
    let register = |token: &str, body: Value| ask(&door, token, None, "POST", "/api/agents", &body).status;
    let before = world.events();
    assert_eq!(register(&runner, json!({ "name": "eve", "isLead": true })), 403);
    assert_eq!(register(&runner, json!({ "name": "bob", "maxTasks": 5 })), 409);
    assert_eq!(register(&runner, json!({ "name": "ann", "role": "x".repeat(101) })), 400);
    assert_eq!(register(&viewer, json!({ "name": "ann" })), 403);
    assert_eq!(ask(&door, &viewer, Some("bob"), "GET", "/api/poll", &json!({})).status, 403);
    assert_eq!(ask(&door, &viewer, None, "POST", "/api/tasks", &json!({ "task": "x" })).status, 403);
    assert_eq!(ask(&door, "wrong", None, "GET", "/me", &json!({})).status, 401);
    assert_eq!(world.events(), before, "nothing changed");
    let document = ask(&door, &viewer, None, "GET", "/api/v1/openapi.json", &json!({}));
    assert_eq!((document.status, &document.json()["openapi"]), (200, &json!("3.1.0")));
    assert_eq!(ask(&door, "wrong", None, "GET", "/api/v1/openapi.json", &json!({})).status, 401);
}
