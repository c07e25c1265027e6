//! The data for the web page: complete entities by topic, updates since a revision, and buttons
//! that work.

use serde_json::{Value, json};

use crate::http::ApiClient;
use crate::world::{TEST_TIMEOUT, World, wait_until};

/// Reads a stream that ends. Returns the topics that were reset, and the frames.
pub(crate) fn read_live_stream(api: &ApiClient, topics: &str) -> (Vec<String>, Vec<Value>) {
    let headers = [
        ("host", api.address()),
        ("authorization", format!("Bearer {}", api.token)),
    ];
    let reply = api.request_over_tcp(
        "GET",
        &format!("/api/v1/live?topics={topics}&follow=false"),
        &headers,
        b"",
    );
    assert_eq!(reply.status, 200, "{reply:?}");
    let (mut resets, mut frames) = (Vec::new(), Vec::new());
    let text = String::from_utf8(reply.body).unwrap();
    for block in text.split("\n\n") {
        // The body is chunked, so chunk lengths stand between the lines.
        let data = block.lines().find_map(|block| block.strip_prefix("data: "));
        let Some(data) = data.and_then(|data| serde_json::from_str::<Value>(data).ok()) else {
            continue;
        };
        match data.get("topics") {
            Some(topics) => resets.extend(
                topics
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|topic| topic.as_str().unwrap().to_owned()),
            ),
            None => frames.push(data),
        }
    }
    (resets, frames)
}

fn entity_keys(frames: &[Value]) -> Vec<String> {
    let parts = frames
        .iter()
        .flat_map(|frame| frame["p"].as_array().unwrap());
    parts
        .map(|part| {
            format!(
                "{}{}",
                part["k"].as_str().unwrap(),
                if part["v"].is_null() { " gone" } else { "" }
            )
        })
        .collect()
}

pub(crate) fn entity(frames: &[Value], key: &str) -> Value {
    let mut parts = frames
        .iter()
        .flat_map(|frame| frame["p"].as_array().unwrap());
    parts
        .find(|part| part["k"] == key)
        .unwrap_or_else(|| panic!("no {key} in {frames:?}"))["v"]
        .clone()
}

/// `status` and the page count the same tasks, including the backlog. An agent without work does
/// not wait for the tasks of another agent.
#[test]
fn the_page_and_status_show_equal_counts_and_idle_agents() {
    let world = World::with_project();
    for name in ["one", "two"] {
        world.run_ok(&[
            "agent",
            "add",
            name,
            "--runtime",
            "scripted",
            "--max-tasks",
            "1",
        ]);
    }
    let task = |file: &str| {
        json!({ "subject": file, "files": [file], "agent": "one",
            "script": [{ "permission": { "what": "go on", "default": "deny" } }] })
    };
    let plan = world.root.join("plan.json");
    std::fs::write(
        &plan,
        json!({ "task": [task("b1"), task("b2"), task("b3")] }).to_string(),
    )
    .unwrap();
    world.run_ok(&[
        "run",
        plan.to_str().unwrap(),
        "--agents",
        "one,two",
        "--yes",
    ]);
    world.run_ok(&["add", "Some day", "--files", "b4", "--backlog"]);
    assert!(
        wait_until(TEST_TIMEOUT, || !world
            .run_json(&["inbox"])
            .as_array()
            .unwrap()
            .is_empty()),
        "{}",
        world.run_ok(&["status"])
    );
    let api = ApiClient::for_data_dir(&world.data_dir);
    let (_, frames) = read_live_stream(&api, "head,lanes");
    let sentence = entity(&frames, "head")["sentence"].to_string();
    let status = world.run_json(&["status"]);
    for (count, word) in [
        (&status["working"], "working"),
        (&status["waiting"], "waiting"),
    ] {
        assert!(
            sentence.contains(&format!("{count} {word}")),
            "{word}: {status} {sentence}"
        );
    }
    assert_eq!(
        (&status["waiting"], &status["summary"]["backlog"]),
        (&json!(2), &json!(1)),
        "{status}"
    );
    assert_eq!(entity(&frames, "lane/two")["at"], "idle", "{frames:?}");
}

/// The page and the API get the same graph layout: of a mission, of a task with its neighbours, and
/// of all tasks. Tasks that ended long ago are included. The terminal prints it as text.
#[test]
fn the_page_and_the_api_have_the_same_graph() {
    let world = World::with_project();
    let task = |id: &str, after: &str| {
        format!(
            "[[task]]\nid = \"{id}\"\nsubject = \"Write {id}\"\nfiles = [\"{id}.txt\"]\n{after}\n\
             script = [{{ write = {{ path = \"{id}.txt\", text = \"x\" }} }}]\n"
        )
    };
    let chain = [
        ("b", ""),
        ("c", "blocked_by = [\"b\"]"),
        ("d", "blocked_by = [\"c\"]"),
        ("e", "blocked_by = [\"d\"]"),
    ];
    let tasks: String = chain.iter().map(|(id, after)| task(id, after)).collect();
    let plan = world.write_plan(&format!("title = \"Four files\"\n{tasks}"));
    world.run_ok(&["run", &plan, "--agents", "scripted", "--yes", "--wait"]);
    world.run_ok(&[
        "add",
        "Fifth",
        "--files",
        "f.txt",
        "--validate",
        "true",
        "--blocked-by",
        "T4",
    ]);
    world.run_ok(&[
        "add",
        "Sixth",
        "--files",
        "g.txt",
        "--validate",
        "true",
        "--blocked-by",
        "T5",
    ]);
    let api = ApiClient::for_data_dir(&world.data_dir);
    let drawn = |of: &str, topic: &str| {
        let view = world.run_json(&["graph", of]);
        assert_eq!(
            entity(&read_live_stream(&api, topic).1, "graph"),
            view,
            "{topic}"
        );
        let nodes = view["nodes"].as_array().unwrap().clone();
        let card_line = |value: &Value| {
            format!(
                "{} {} {}",
                value["tasks"][0].as_str().unwrap(),
                value["column"],
                value["word"].as_str().unwrap()
            )
        };
        (
            view["title"].as_str().unwrap().to_owned(),
            nodes.iter().map(card_line).collect::<Vec<_>>(),
            view["critical"].clone(),
        )
    };
    let landed = ["T1 0 landed", "T2 1 landed", "T3 2 landed", "T4 3 landed"];
    assert_eq!(
        drawn("M1", "graph.M1"),
        (
            "M1 Four files".into(),
            landed.map(str::to_owned).to_vec(),
            json!([])
        )
    );
    let near = ["T3 0 landed", "T4 1 landed", "T5 2 waiting", "T6 3 waiting"]
        .map(str::to_owned)
        .to_vec();
    assert_eq!(
        drawn("T5", "graph.T5"),
        ("around T5".into(), near, json!(["T5", "T6"]))
    );
    let all = world.run_json(&["graph"]);
    assert_eq!(
        (all["tasks"].as_u64(), all["columns"].as_u64()),
        (Some(6), Some(6)),
        "{all}"
    );
    assert_eq!(
        entity(&read_live_stream(&api, "graph").1, "graph")["nodes"],
        all["nodes"]
    );
    let text = world.run_ok(&["graph", "t5"]);
    assert!(
        text.contains("wave 4") && text.contains("longest path of open tasks: T5"),
        "{text}"
    );
    assert_eq!(
        world.run_refused(&["graph", "M9"], 1)["code"],
        "no_such_mission"
    );
    assert_eq!(
        world.run_refused(&["graph", "T99"], 1)["code"],
        "no_such_task"
    );
    assert_eq!(
        read_live_stream(&api, "graph.M9").1[0]["p"],
        json!([]),
        "nothing to draw"
    );
}

#[test]
fn a_browser_gets_only_changes_since_its_revision() {
    let world = World::with_project();
    world.run_ok(&["up"]);
    let api = ApiClient::for_data_dir(&world.data_dir);
    api.call_ok(
        "agent.add",
        json!({ "name": "ann", "runtime": "outside", "max_tasks": 1 }),
    );
    world.run_ok(&["add", "First", "--files", "a.txt", "--validate", "true"]);
    let (resets, frames) = read_live_stream(&api, "head,lanes,tasks");
    assert_eq!(resets, ["head", "lanes", "tasks"]);
    assert_eq!(entity_keys(&frames), ["head", "lane/ann", "task/T1"]);
    assert_eq!(entity(&frames, "task/T1")["at"], "waiting");
    let sequence = frames[0]["seq"].as_u64().unwrap();
    assert_eq!(
        read_live_stream(&api, &format!("tasks@{sequence}")),
        (vec![], vec![]),
        "nothing changed"
    );
    world.run_ok(&["add", "Second", "--files", "b.txt", "--validate", "true"]);
    let (resets, frames) = read_live_stream(&api, &format!("tasks@{sequence},T2"));
    assert_eq!(
        (resets, entity_keys(&frames)),
        (vec!["T2".to_owned()], vec!["task/T2".into(), "T2".into()])
    );
    // A revision that is unknown or too old resets the topic.
    assert_eq!(read_live_stream(&api, "tasks@99999999").0, ["tasks"]);
    assert_eq!(read_live_stream(&api, "tasks@1").0, ["tasks"]);
    let headers = [
        ("host", api.address()),
        ("authorization", format!("Bearer {}", api.token)),
    ];
    for bad in ["", "no-such", "head,../x", "T0x", "graph.x", "graph.m1"] {
        let reply = api.request_over_tcp(
            "GET",
            &format!("/api/v1/live?topics={bad}&follow=false"),
            &headers,
            b"",
        );
        assert_eq!(reply.status, 400, "{bad}");
    }
}

/// The buttons of an inbox item carry requests that answer it, and then the item disappears.
#[test]
fn the_buttons_of_an_inbox_item_answer_it() {
    let world = World::with_project();
    world.run_ok(&["up"]);
    let api = ApiClient::for_data_dir(&world.data_dir);
    api.call_ok(
        "agent.add",
        json!({ "name": "ann", "runtime": "outside", "max_tasks": 1 }),
    );
    world.run_ok(&["add", "First", "--files", "a.txt", "--validate", "true"]);
    let granted = api.call_ok("task.poll", json!({ "agent": "ann" }));
    let speaks = |more: Value| {
        let mut all =
            json!({ "task": "T1", "attempt": granted["attempt"], "token": granted["token"] });
        all.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        all
    };
    let permission =
        json!({ "title": "npm install zod@4", "kind": "execute", "command": "npm install zod@4" });
    api.call_ok("attempt.ask", speaks(json!({ "permission": permission })));
    api.call_ok(
        "attempt.ask",
        speaks(json!({ "question": "Keep v1?", "choices": ["keep", "410 Gone"] })),
    );
    let (_, frames) = read_live_stream(&api, "head,inbox,lanes,T1");
    assert_eq!(entity(&frames, "head")["needs_you"], 2);
    assert_eq!(entity(&frames, "lane/ann")["at"], "needs");
    assert_eq!(entity(&frames, "T1")["at"], "needs");
    let sequence = frames[0]["seq"].as_u64().unwrap();
    for (item, button, cli) in [
        (
            "item/Q1",
            "Allow for this task",
            "regatta allow Q1 --for task",
        ),
        ("item/Q2", "410 Gone", "regatta answer Q2 '410 Gone'"),
    ] {
        let actions = entity(&frames, item)["actions"].clone();
        let action = actions
            .as_array()
            .unwrap()
            .iter()
            .find(|action| action["label"] == button)
            .unwrap();
        assert_eq!(action["cli"], cli);
        api.call_ok(action["verb"].as_str().unwrap(), action["input"].clone());
    }
    let (resets, frames) = read_live_stream(&api, &format!("inbox@{sequence},lanes"));
    assert_eq!(resets, ["lanes"]);
    assert!(
        entity_keys(&frames).contains(&"item/Q1 gone".into())
            && entity_keys(&frames).contains(&"item/Q2 gone".into()),
        "{frames:?}"
    );
    assert_eq!(entity(&frames, "lane/ann")["at"], "working");
}

/// Compares the data of every view with a golden file, without dates and values of this run.
#[test]
fn the_data_of_every_view_matches_the_golden_file() {
    let world = World::with_project();
    world.run_ok(&["up"]);
    let api = ApiClient::for_data_dir(&world.data_dir);
    let profile = json!({ "model": "big" });
    let agent =
        json!({ "name": "ann", "runtime": "outside", "provider": "claude", "profile": profile });
    api.call_ok("agent.add", agent);
    api.call_ok("agent.add", json!({ "name": "bob", "runtime": "outside" }));
    api.call_ok(
        "budget.set",
        json!({ "scope": "day", "ceiling": { "micro_usd": 4_000_000 } }),
    );
    world.run_ok(&[
        "add",
        "First",
        "--files",
        "a.txt,src/**",
        "--validate",
        "true",
        "--assign",
        "ann",
    ]);
    world.run_ok(&[
        "add",
        "Second",
        "--files",
        "src/b.txt",
        "--validate",
        "true",
        "--blocked-by",
        "T1",
    ]);
    let granted = api.call_ok("task.poll", json!({ "agent": "ann" }));
    let speaks = |more: Value| {
        let mut all =
            json!({ "task": "T1", "attempt": granted["attempt"], "token": granted["token"] });
        all.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        all
    };
    api.call_ok(
        "attempt.ask",
        speaks(json!({ "question": "Keep v1?", "choices": ["keep", "410 Gone"] })),
    );
    let (_, frames) = read_live_stream(
        &api,
        "head,inbox,lanes,queue,spend,cost,tasks,files,runners,teams,T1,T2",
    );
    let mut all: Vec<Value> = frames[0]["p"].as_array().unwrap().clone();
    all.iter_mut().for_each(blank_volatile_fields);
    let text = serde_json::to_string_pretty(&all)
        .unwrap()
        .replace(world.root.to_str().unwrap(), "ROOT");
    crate::golden::assert_golden("pages.json", &(text + "\n"));
}

/// Replaces dates, revisions and the capacity of the machine.
fn blank_volatile_fields(item: &mut Value) {
    match item {
        Value::Array(all) => all.iter_mut().for_each(blank_volatile_fields),
        Value::Object(all) => {
            for (key, value) in all.iter_mut() {
                let own = matches!(
                    key.as_str(),
                    "slots" | "token" | "version" | "tip" | "base" | "line"
                ) || key.ends_with("_wall")
                    || key.ends_with("_at");
                // Large numbers are dates, under any key.
                let dated = key == "id"
                    && value
                        .as_str()
                        .is_some_and(|value| value.starts_with("tool-"));
                if dated
                    || (own && !value.is_null())
                    || value
                        .as_u64()
                        .is_some_and(|value| value > 1_000_000_000_000)
                {
                    *value = Value::from("OWN");
                } else {
                    blank_volatile_fields(value);
                }
            }
        }
        _ => {}
    }
}
