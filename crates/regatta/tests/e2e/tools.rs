//! The tools that agents call: an official client lists and calls all of them, agents use them in
//! their attempts, and no other token can.

use std::collections::BTreeSet;

use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientConfig, ElicitRequestParams, ElicitResult,
    ElicitationAction, ElicitationCapability, ProtocolVersion, ReadResourceRequestParams,
};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt, RoleClient, RunningService};
use rmcp::transport::TokioChildProcess;
use serde_json::{Value, json};

use crate::http::ApiClient;
use crate::world::{TEST_TIMEOUT, World, wait_until};

type McpClient = RunningService<RoleClient, ()>;

/// Adds an outside agent and a task, and returns the grant that its poll gives.
fn granted_attempt(world: &World, name: &str, role: &str) -> Value {
    let api = ApiClient::for_data_dir(&world.data_dir);
    api.call_ok(
        "agent.add",
        json!({ "name": name, "runtime": "outside", "role": role }),
    );
    world.run_ok(&[
        "add",
        &format!("Work of {name}"),
        "--files",
        &format!("{name}.txt"),
        "--validate",
        "true",
    ]);
    api.call_ok("task.poll", json!({ "agent": name }))
}

/// Starts the official client, connected to `regatta mcp`.
async fn start_client(world: &World, token: Option<&str>, mode: ClientLifecycleMode) -> McpClient {
    let mut command = world.command(&["mcp"]);
    if let Some(token) = token {
        command.env("REGATTA_TOKEN", token).env(
            "REGATTA_SERVER",
            format!(
                "http://{}",
                ApiClient::for_data_dir(&world.data_dir).address()
            ),
        );
    }
    let transport = TokioChildProcess::new(tokio::process::Command::from(command)).unwrap();
    ().serve_with_lifecycle(transport, mode).await.unwrap()
}

async fn call_tool(client: &McpClient, tool: &str, input: Value) -> CallToolResult {
    let input = input.as_object().unwrap().clone();
    let asked = CallToolRequestParams::new(tool.to_owned()).with_arguments(input);
    client
        .call_tool(asked)
        .await
        .unwrap_or_else(|error| panic!("{tool}: {error}"))
}

fn result_text(result: &CallToolResult) -> String {
    result.content[0].as_text().unwrap().text.clone()
}

async fn tool_names(client: &McpClient) -> BTreeSet<String> {
    client
        .list_all_tools()
        .await
        .unwrap()
        .into_iter()
        .map(|tool| tool.name.to_string())
        .collect()
}

fn block_on(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        tokio::time::timeout(TEST_TIMEOUT, work)
            .await
            .expect("in time")
    });
}

fn discovery_mode() -> ClientLifecycleMode {
    ClientLifecycleMode::Discover {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
    }
}

/// A client calls every tool of a worker, with both ways to open a connection in the protocol.
#[test]
fn an_official_client_lists_and_calls_every_tool_of_a_worker() {
    for mode in [ClientLifecycleMode::Initialize, discovery_mode()] {
        let world = World::with_project();
        let grant = granted_attempt(&world, "ann", "worker");
        block_on(async {
            let client = start_client(&world, grant["bearer"].as_str(), mode).await;
            let mut tools = tool_names(&client).await;
            assert_eq!(tools.len(), 10, "{tools:?}");
            tools.remove("give_up"); // ends the work as `finish` does, and has its own test
            let mut use_it = async |tool: &str, input: Value| {
                tools.remove(tool);
                let result = call_tool(&client, tool, input).await;
                assert_eq!(
                    result.is_error,
                    Some(false),
                    "{tool}: {}",
                    result_text(&result)
                );
                assert!(
                    result
                        .structured_content
                        .as_ref()
                        .is_some_and(Value::is_object),
                    "{tool}"
                );
                result
            };
            let task = use_it("my_task", json!({}))
                .await
                .structured_content
                .unwrap();
            assert_eq!(task["task"]["subject"], "Work of ann");
            assert_eq!(
                use_it("briefing", json!({}))
                    .await
                    .structured_content
                    .unwrap()["project"],
                "shop"
            );
            use_it("progress", json!({ "text": "half way" })).await;
            assert_eq!(world.run_json(&["show", "T1"])["progress"], "half way");
            use_it("why", json!({})).await;
            use_it("siblings", json!({})).await;
            let claim = use_it("claim_acquire", json!({ "uris": ["file://shop/x.txt"] })).await;
            let claim = claim.structured_content.unwrap();
            let held = json!({ "claim": claim["claim"], "token": claim["token"] });
            use_it("claim_renew", held.clone()).await;
            use_it("claim_release", held).await;
            use_it("msg_send", json!({ "text": "hello @ann" })).await;
            let read = use_it("msg_read", json!({})).await;
            assert!(
                result_text(&read).contains("hello @ann"),
                "{}",
                result_text(&read)
            );
            // The wait may begin late, so messages are sent until it gets one.
            let heard = {
                let waiting = use_it(
                    "msg_wait",
                    json!({ "wait_seconds": 60, "from": "person:ann" }),
                );
                tokio::pin!(waiting);
                loop {
                    tokio::select! {
                        heard = &mut waiting => break heard,
                        () = tokio::time::sleep(std::time::Duration::from_millis(50)) => {
                            world.run_ok(&["msg", "send", "shop", "news"]);
                        }
                    }
                }
            };
            assert!(
                result_text(&heard).contains("news"),
                "{}",
                result_text(&heard)
            );
            let added = use_it(
                "task_add",
                json!({ "subject": "A follow-up", "issue_type": "docs" }),
            )
            .await;
            assert_eq!(added.structured_content.unwrap()["status"], "backlog");

            // A question stays open until a person answers it.
            let open = use_it(
                "ask",
                json!({ "question": "Blue or red?", "wait_seconds": 0 }),
            )
            .await;
            let id = open.structured_content.unwrap()["id"]
                .as_str()
                .unwrap()
                .to_owned();
            world.run_ok(&["answer", &id, "blue"]);
            assert_eq!(
                result_text(&use_it("ask", json!({ "id": id })).await),
                "blue"
            );
            // S13: a request shows its object. A request without one is denied with the reason.
            let hidden = json!({ "title": "Fetch it", "kind": "fetch", "wait_seconds": 0 });
            let hidden = result_text(&use_it("request_approval", hidden).await);
            assert!(
                hidden.starts_with("Denied") && hidden.contains("which address it would fetch"),
                "{hidden}"
            );
            let fetch = |path: &str| {
                let url = format!("https://docs.test/{path}");
                json!({ "title": "Fetch it", "kind": "fetch", "urls": [url], "wait_seconds": 0 })
            };
            let open = use_it("request_approval", fetch("a")).await;
            let id = open.structured_content.unwrap()["id"]
                .as_str()
                .unwrap()
                .to_owned();
            let item = world.run_json(&["inbox"])[0].clone();
            assert_eq!(
                (&item["id"], &item["subject"]),
                (&json!(id), &json!("Fetch it: https://docs.test/a")),
                "{item}"
            );
            assert_eq!(
                item["ask"]["tool"]["urls"],
                json!(["https://docs.test/a"]),
                "{item}"
            );
            world.run_ok(&["deny", &id]);
            assert!(result_text(&use_it("ask", json!({ "id": id })).await).starts_with("Denied"));
            let open = use_it("request_approval", fetch("b")).await;
            let id = open.structured_content.unwrap()["id"]
                .as_str()
                .unwrap()
                .to_owned();
            world.run_ok(&["allow", &id, "--for", "task"]);
            assert_eq!(
                result_text(&use_it("request_approval", fetch("c")).await),
                "Allowed."
            );
            assert!(
                world
                    .run_ok(&["policy", "list"])
                    .contains("url https://docs.test/*"),
                "{}",
                world.run_ok(&["policy", "list"])
            );
            let escape = json!({ "files": ["b.txt"], "reason": "It is used there, too." });
            use_it("report_scope_escape", escape).await;
            let escapes = world.run_json(&["scope"]);
            assert_eq!(
                (
                    &escapes[0]["finding"],
                    &escapes[0]["suggested_files"],
                    &escapes[0]["found"]
                ),
                (
                    &json!("It is used there, too."),
                    &json!(["b.txt"]),
                    &json!("said")
                ),
                "{escapes}"
            );
            let here = use_it("join", json!({})).await.structured_content.unwrap();
            assert_eq!(
                (&here["agent"], &here["task"]["id"]),
                (&json!("ann"), &json!("T1")),
                "{here}"
            );
            // An offer is declined. Claiming a task is refused while the agent is full, with the
            // message that older clients expect.
            world.run_ok(&["task", "add", "Beside", "--files", "beside.txt"]);
            let beside = world
                .run_json(&["task", "list"])
                .as_array()
                .unwrap()
                .last()
                .unwrap()["id"]
                .clone();
            world.run_ok(&["assign", beside.as_str().unwrap(), "ann", "--offer"]);
            use_it("task_action", json!({ "task": beside, "action": "reject" })).await;
            let full = call_tool(
                &client,
                "task_action",
                json!({ "task": beside, "action": "claim" }),
            )
            .await;
            let refusal = "You have no capacity (1/1 tasks). Complete a task first. ";
            assert!(
                full.is_error == Some(true) && result_text(&full).contains(refusal),
                "{}",
                result_text(&full)
            );
            for uri in [
                "file://shop/**",
                "file://shop/*",
                "file://shop/src/**",
                "file://other/a",
            ] {
                let wide = call_tool(&client, "claim_acquire", json!({ "uris": [uri] })).await;
                assert_eq!(wide.is_error, Some(true), "{uri}");
            }

            // Wrong arguments give a tool result with advice, not a protocol error.
            let wrong = call_tool(&client, "progress", json!({ "words": "x" })).await;
            assert_eq!(
                (
                    wrong.is_error,
                    result_text(&wrong).contains("its arguments: text")
                ),
                (Some(true), true),
                "{}",
                result_text(&wrong)
            );
            let foreign = call_tool(
                &client,
                "claim_acquire",
                json!({ "uris": ["workspace://shop/default"] }),
            )
            .await;
            assert_eq!(foreign.is_error, Some(true));
            let unknown = client
                .call_tool(CallToolRequestParams::new("inbox_answer"))
                .await;
            assert!(unknown.is_err(), "a worker has no such tool");

            let resources = client.list_all_resources().await.unwrap();
            assert_eq!(resources[0].uri, "regatta://task/T1");
            let task = client
                .read_resource(ReadResourceRequestParams::new("regatta://task/T1"))
                .await
                .unwrap();
            assert!(format!("{task:?}").contains("Work of ann"));

            // `finish` ends the outside agent's work.
            std::fs::write(
                std::path::Path::new(grant["workspace"].as_str().unwrap()).join("ann.txt"),
                "x\n",
            )
            .unwrap();
            let learnings = ["The limit is in config.rs.", "config.rs is generated."];
            use_it(
                "finish",
                json!({ "detail": "all done", "learnings": learnings }),
            )
            .await;
            assert!(tools.is_empty(), "never called: {tools:?}");
            let over = call_result_text(&client).await;
            assert!(over.contains("has ended"), "{over}");
        });
        assert!(
            wait_until(TEST_TIMEOUT, || world.run_json(&["show", "T1"])["status"]
                == "completed"),
            "{}",
            world.run_ok(&["why", "T1"])
        );
        let task = world.run_json(&["show", "T1"]);
        assert_eq!(task["output"], "all done", "{task}");
        let result = &task["attempts"][0]["result"];
        assert_eq!(
            result["learnings"],
            json!(["The limit is in config.rs.", "config.rs is generated."]),
            "{task}"
        );
        let content = std::fs::read_to_string(world.data_dir.join("learnings/shop.jsonl")).unwrap();
        assert!(content.contains("The limit is in config.rs."), "{content}");
    }
}

async fn call_result_text(client: &McpClient) -> String {
    match client
        .call_tool(CallToolRequestParams::new("my_task"))
        .await
    {
        Ok(result) => result_text(&result),
        Err(error) => error.to_string(),
    }
}

/// Work with an open question does not land until a person answers. The answer lets it land or
/// sends it back.
#[test]
fn work_with_an_open_question_waits_for_a_person() {
    let world = World::with_project();
    let grant = granted_attempt(&world, "ann", "worker");
    block_on(async {
        let client = start_client(
            &world,
            grant["bearer"].as_str(),
            ClientLifecycleMode::Initialize,
        )
        .await;
        let open = result_text(
            &call_tool(
                &client,
                "ask",
                json!({ "question": "Blue or red?", "wait_seconds": 0 }),
            )
            .await,
        );
        assert!(open.contains("Q1 stays open"), "{open}");
        let early = call_tool(&client, "finish", json!({ "detail": "done" })).await;
        assert!(
            early.is_error == Some(true)
                && result_text(&early).contains("nobody has answered the question Q1"),
            "{}",
            result_text(&early)
        );
        let on =
            result_text(&call_tool(&client, "ask", json!({ "id": "Q1", "assume": "green" })).await);
        assert!(on.contains("You go on with your assumption"), "{on}");
        std::fs::write(
            std::path::Path::new(grant["workspace"].as_str().unwrap()).join("ann.txt"),
            "x\n",
        )
        .unwrap();
        let answer = call_tool(&client, "finish", json!({ "detail": "done" })).await;
        assert_eq!(answer.is_error, Some(false), "{}", result_text(&answer));
    });
    let is_waiting = || world.run_json(&["show", "T1"])["waits"][0]["kind"] == "question";
    assert!(
        wait_until(TEST_TIMEOUT, is_waiting),
        "{}",
        world.run_ok(&["why", "T1"])
    );
    world.run_ok(&["up", "--restart"]);
    let explanation = world.run_ok(&["why", "T1"]);
    assert!(
        explanation.contains("Q1") && explanation.contains("green"),
        "{explanation}"
    );
    let inbox = world.run_json(&["inbox"]);
    assert_eq!(
        (inbox.as_array().map(Vec::len), &inbox[0]["id"]),
        (Some(1), &json!("Q1")),
        "{inbox}"
    );
    assert_eq!(inbox[0]["choices"], json!(["green"]), "{inbox}");
    let open = world.run_ok(&["show", "Q1"]);
    assert!(
        open.contains("Blue or red?") && open.contains("waits for an answer"),
        "{open}"
    );
    // The answer equals the assumption, so the work lands. The request can still be shown.
    let answered = world.run_ok(&["answer", "Q1", "1"]);
    assert!(
        answered.starts_with("answered Q1 for T1: Blue or red? → green"),
        "{answered}"
    );
    assert!(
        world
            .run_ok(&["show", "Q1"])
            .contains("answered: green by "),
        "{}",
        world.run_ok(&["show", "Q1"])
    );
    assert!(
        wait_until(TEST_TIMEOUT, || world.run_json(&["show", "T1"])["status"]
            == "completed"),
        "{}",
        world.run_ok(&["why", "T1"])
    );
}

#[test]
fn a_worker_can_give_up_with_a_tool() {
    let world = World::with_project();
    let grant = granted_attempt(&world, "ann", "worker");
    block_on(async {
        let client = start_client(
            &world,
            grant["bearer"].as_str(),
            ClientLifecycleMode::Initialize,
        )
        .await;
        let result = call_tool(
            &client,
            "give_up",
            json!({ "reason": "It cannot be done." }),
        )
        .await;
        assert_eq!(result.is_error, Some(false), "{}", result_text(&result));
    });
    let task = world.run_json(&["show", "T1"]);
    assert_eq!(
        (&task["status"], &task["reason"]),
        (&json!("failed"), &json!("It cannot be done."))
    );
}

#[test]
fn an_official_client_calls_every_tool_of_a_lead() {
    let world = World::with_project();
    granted_attempt(&world, "bob", "worker");
    let grant = granted_attempt(&world, "eve", "lead");
    block_on(async {
        let client = start_client(&world, grant["bearer"].as_str(), discovery_mode()).await;
        let all = tool_names(&client).await;
        let more = [
            "task_list",
            "task_assign",
            "task_action",
            "tell",
            "mission",
            "queue",
            "finish",
        ];
        assert!(more.iter().all(|more| all.contains(*more)), "{all:?}");
        let fine = async |tool: &str, input: Value| {
            let result = call_tool(&client, tool, input).await;
            assert_eq!(
                result.is_error,
                Some(false),
                "{tool}: {}",
                result_text(&result)
            );
            result.structured_content.unwrap()
        };
        let new = json!({ "subject": "Next", "files": ["n.txt"], "tests": ["true"] });
        let added = fine("task_add", new).await;
        assert_eq!(added["status"], "unassigned");
        fine(
            "task_assign",
            json!({ "task": added["id"], "agent": "bob", "how": "offer" }),
        )
        .await;
        let listed = fine("task_list", json!({})).await;
        assert_eq!(listed["data"].as_array().unwrap().len(), 3, "{listed}");
        fine("tell", json!({ "task": "T1", "text": "Mind the gap." })).await;
        fine("queue", json!({})).await;
        fine(
            "task_action",
            json!({ "task": added["id"], "action": "cancel", "reason": "no need" }),
        )
        .await;
        let none = call_tool(&client, "mission", json!({})).await;
        assert!(
            result_text(&none).contains("no mission"),
            "{}",
            result_text(&none)
        );
    });
}

/// A person's own client has a tool for every verb of its token. Each tool answers or says what is
/// wrong.
#[test]
fn an_official_client_calls_every_verb_as_a_tool() {
    let world = World::with_project();
    let viewer = world.run_json(&["token", "add", "eye", "--scope", "viewer"])["token"]
        .as_str()
        .unwrap()
        .to_owned();
    block_on(async {
        let owner = start_client(&world, None, ClientLifecycleMode::Initialize).await;
        let all = tool_names(&owner).await;
        assert!(
            all.contains("status") && all.contains("inbox_answer") && all.len() > 40,
            "{all:?}"
        );
        assert!(
            !all.contains("down") && !all.contains("token_add"),
            "{all:?}"
        );
        for tool in &all {
            // With or without sufficient arguments, no call gives a protocol error or breaks the
            // daemon.
            let input = if tool == "msg_wait" {
                json!({ "channel": "shop", "timeout_ms": 1 })
            } else {
                json!({})
            };
            let result = call_tool(&owner, tool, input).await;
            let text = result_text(&result);
            assert!(!text.contains("please report"), "{tool}: {text}");
            assert!(
                result.is_error == Some(false) || text.contains(". "),
                "{tool}: {text}"
            );
        }
        assert!(
            result_text(&call_tool(&owner, "status", json!({})).await).contains("\"projects\"")
        );
        let eye = start_client(&world, Some(&viewer), discovery_mode()).await;
        let tools = tool_names(&eye).await;
        assert!(
            tools.contains("status") && !tools.contains("task_add") && tools.is_subset(&all),
            "{tools:?}"
        );
        let refused = call_tool(&eye, "task_add", json!({ "subject": "x" })).await;
        assert!(
            result_text(&refused).contains("wrong_scope"),
            "{}",
            result_text(&refused)
        );
    });
    assert!(
        world
            .events()
            .iter()
            .all(|event| event["kind"] != "task.added")
    );
}

fn http_post(
    api: &ApiClient,
    token: Option<&str>,
    more: &[(&str, &str)],
    body: &Value,
) -> crate::http::HttpReply {
    let mut headers = vec![("host", api.address())];
    headers.extend(token.map(|token| ("authorization", format!("Bearer {token}"))));
    headers.retain(|header| !more.iter().any(|(name, _)| *name == header.0));
    headers.extend(
        more.iter()
            .map(|(name, value)| (*name, (*value).to_owned())),
    );
    api.request_over_tcp("POST", "/mcp", &headers, body.to_string().as_bytes())
}

/// S1 and S2 for the tools' address, and the rules of the protocol.
#[test]
fn s1_s2_the_tools_need_a_token_and_a_known_host_and_origin() {
    let world = World::with_project();
    let grant = granted_attempt(&world, "ann", "worker");
    let api = ApiClient::for_data_dir(&world.data_dir);
    let token = grant["bearer"].as_str();
    let list = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/list" });
    assert_eq!(http_post(&api, None, &[], &list).status, 401);
    assert_eq!(http_post(&api, Some("ra_A1_00"), &[], &list).status, 401);
    assert_eq!(
        http_post(&api, token, &[("origin", "http://evil.example")], &list).status,
        403
    );
    assert_eq!(
        http_post(&api, token, &[("host", "evil.example")], &list).status,
        403
    );
    let good = http_post(&api, token, &[], &list);
    assert_eq!((good.status, &good.json()["id"]), (200, &json!(7)));
    let note = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    assert_eq!(http_post(&api, token, &[], &note).status, 202);
    let old = [("mcp-protocol-version", "1999-01-01")];
    let unspoken = http_post(&api, token, &old, &list);
    assert_eq!(
        (unspoken.status, &unspoken.json()["error"]["code"]),
        (400, &json!(-32022))
    );
    assert_eq!(
        http_post(&api, token, &[], &json!([list])).status,
        400,
        "no batches"
    );
    assert_eq!(
        http_post(
            &api,
            token,
            &[],
            &json!({ "jsonrpc": "2.0", "id": null, "method": "ping" })
        )
        .status,
        400
    );
    let none = http_post(
        &api,
        token,
        &[],
        &json!({ "jsonrpc": "2.0", "id": 1, "method": "no/such" }),
    );
    assert_eq!(none.json()["error"]["code"], -32601);
    for method in ["GET", "DELETE"] {
        let headers = [
            ("host", api.address()),
            ("authorization", format!("Bearer {}", token.unwrap())),
        ];
        assert_eq!(
            api.request_over_tcp(method, "/mcp", &headers, b"").status,
            405,
            "{method}"
        );
    }
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": { "protocolVersion": "2025-06-18" } });
    assert_eq!(
        http_post(&api, token, &[], &hello).json()["result"]["protocolVersion"],
        "2025-06-18"
    );
}

/// An agent that Regatta runs has the tools in its session, and its token is written nowhere (S4).
#[test]
fn an_agent_can_use_its_tools_and_its_token_is_written_nowhere_s4() {
    let world = World::with_project();
    world.run_ok(&["agent", "add", "bob", "--runtime", "scripted"]);
    let script = json!([
        { "call": { "tool": "my_task" } },
        { "call": { "tool": "progress", "input": { "text": "on it" } } },
        { "call": { "tool": "ask", "input": { "question": "Which colour?", "wait_seconds": 60 } } },
        { "call": { "tool": "claim_acquire", "input": { "uris": ["workspace://shop/default"] }, "fails": true } },
        { "write": { "path": "out.txt", "text": "done\n" } },
        { "run": "test -n \"$REGATTA_TOKEN\" && test -n \"$REGATTA_SERVER\"" },
        { "call": { "tool": "finish", "input": { "detail": "It is blue." } } },
    ]);
    world.run_ok(&[
        "add",
        "Work",
        "--files",
        "out.txt",
        "--script",
        &script.to_string(),
    ]);
    world.run_ok(&["run", "--agents", "bob", "--yes"]);
    assert!(
        wait_until(TEST_TIMEOUT, || world
            .run_ok(&["inbox"])
            .contains("Which colour?")),
        "{}",
        world.run(&["logs", "T1"]).stdout
    );
    // No process has the token in its arguments.
    for pid in world.processes() {
        let command_line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        assert!(
            !String::from_utf8_lossy(&command_line).contains("ra_A"),
            "{}",
            String::from_utf8_lossy(&command_line)
        );
    }
    world.run_ok(&["answer", "Q1", "blue"]);
    let answer = wait_until(TEST_TIMEOUT, || {
        world.run_json(&["show", "T1"])["status"] == "completed"
    });
    assert!(
        answer,
        "{}\n{}",
        world.run_ok(&["why", "T1"]),
        world.run(&["logs", "T1", "--raw"]).stdout
    );
    assert_eq!(world.run_json(&["show", "T1"])["output"], "It is blue.");
    let log = world.run_ok(&["logs", "T1", "--raw"]);
    assert!(
        log.contains("mcpServers") && log.contains("${REGATTA_TOKEN}"),
        "{log}"
    );
    world.run_ok(&["down"]);
    for file in files_below(&world.data_dir) {
        let bytes = std::fs::read(&file).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert!(
            !text.contains("ra_A1_"),
            "the token is in {}",
            file.display()
        );
    }
}

fn files_below(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().flatten();
    entries
        .flat_map(|entry| match entry.file_type().unwrap() {
            kind if kind.is_dir() => files_below(&entry.path()),
            kind if kind.is_file() => vec![entry.path()],
            _ => vec![],
        })
        .collect()
}

/// A client with a user. It records the questions that it shows and returns the user's answer.
#[derive(Clone)]
struct ClientWithUser {
    answer: ElicitResult,
    shown_requests: std::sync::Arc<std::sync::Mutex<Vec<Value>>>,
}

impl rmcp::ClientHandler for ClientWithUser {
    fn get_info(&self) -> ClientConfig {
        let mut info = ClientConfig::default();
        info.capabilities.elicitation = Some(ElicitationCapability::default());
        info
    }

    async fn create_elicitation(
        &self,
        asked: ElicitRequestParams,
        _: rmcp::service::RequestContext<RoleClient>,
    ) -> Result<ElicitResult, rmcp::ErrorData> {
        self.shown_requests
            .lock()
            .unwrap()
            .push(serde_json::to_value(&asked).unwrap());
        Ok(self.answer.clone())
    }
}

/// Elicitation: the user at an outside agent's client is asked there, and the answer is recorded
/// under that user's name. A question that the user declines goes to the inbox.
#[test]
fn a_question_of_an_outside_agent_goes_to_its_clients_user() {
    let world = World::with_project();
    let grant = granted_attempt(&world, "ann", "worker");
    let accept =
        |content: Value| ElicitResult::new(ElicitationAction::Accept).with_content(content);
    let call_tool_and_answer = |says: ElicitResult, tool: &'static str, input: Value| {
        let (world, bearer) = (&world, grant["bearer"].as_str().unwrap().to_owned());
        async move {
            let mut command = world.command(&["mcp"]);
            command.env("REGATTA_TOKEN", bearer).env(
                "REGATTA_SERVER",
                format!(
                    "http://{}",
                    ApiClient::for_data_dir(&world.data_dir).address()
                ),
            );
            let transport = TokioChildProcess::new(tokio::process::Command::from(command)).unwrap();
            let sitting = ClientWithUser {
                answer: says,
                shown_requests: std::sync::Arc::default(),
            };
            let shown = sitting.shown_requests.clone();
            let client = sitting
                .serve_with_lifecycle(transport, discovery_mode())
                .await
                .unwrap();
            let asked =
                CallToolRequestParams::new(tool).with_arguments(input.as_object().unwrap().clone());
            let result = client
                .call_tool(asked)
                .await
                .unwrap_or_else(|error| panic!("{tool}: {error}"));
            let shown = shown.lock().unwrap().clone();
            (result, shown)
        }
    };
    block_on(async {
        let input = json!({ "question": "Blue or red?", "choices": ["blue", "red"] });
        let (result, shown) =
            call_tool_and_answer(accept(json!({ "answer": "red" })), "ask", input).await;
        assert_eq!(result_text(&result), "red");
        assert_eq!(
            (shown.len(), &shown[0]["message"]),
            (1, &json!("Blue or red?")),
            "{shown:?}"
        );
        // The user declines, so the question waits in the inbox.
        let input = json!({ "question": "Which port?", "wait_seconds": 0 });
        let (result, shown) =
            call_tool_and_answer(ElicitResult::new(ElicitationAction::Decline), "ask", input).await;
        assert!(
            result_text(&result).starts_with("Nobody has answered yet") && shown.len() == 1,
            "{}",
            result_text(&result)
        );
        assert!(world.run_ok(&["inbox"]).contains("Which port?"));
    });
    let decided: Vec<Value> = world
        .events()
        .into_iter()
        .filter(|event| event["kind"] == "approval.decided")
        .collect();
    assert_eq!(decided.len(), 1, "{decided:?}");
    assert_eq!(decided[0]["by"], "person:user-of-ann");
    assert!(
        world
            .run_json(&["audit"])
            .to_string()
            .contains("inbox.answer")
    );
}

/// An attempt cannot permit itself anything. Its client is shown no permission request, and an
/// answer to one with the attempt's own token is refused. The client of an agent that Regatta runs
/// has no user and is asked nothing. An answer counts only for the attempt's own question.
#[test]
fn an_attempts_token_cannot_answer_permission_requests() {
    let world = World::with_project();
    let mine = granted_attempt(&world, "ann", "worker");
    let other = granted_attempt(&world, "bob", "worker");
    let api = ApiClient::for_data_dir(&world.data_dir);
    let open = api.call_ok(
        "attempt.ask",
        json!({ "task": other["task"]["id"], "attempt": other["attempt"], "token": other["token"], "question": "Mine?" }),
    );
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} },
    });
    let call = |token: &str, state: Option<&str>| {
        let mut params = json!({ "name": "ask", "arguments": { "question": "May I?", "wait_seconds": 0 }, "_meta": meta });
        if let Some(state) = state {
            params["requestState"] = json!(state);
            params["inputResponses"] =
                json!({ "answer": { "action": "accept", "content": { "answer": "yes" } } });
        }
        let heads = [
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "ask"),
        ];
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        http_post(&api, Some(token), &heads, &body).json()
    };
    let mine = mine["bearer"].as_str().unwrap();
    let foreign = call(mine, open["id"].as_str());
    assert!(
        foreign["error"]["message"]
            .as_str()
            .is_some_and(|foreign| foreign.contains("does not belong to this attempt")),
        "{foreign}"
    );
    assert_eq!(call(mine, None)["result"]["resultType"], "input_required");

    // A permission request is only in the inbox, and can only be answered there.
    let may = json!({ "title": "Install zod", "kind": "fetch", "command": "npm i zod", "wait_seconds": 0 });
    let approve = |name: &'static str, state: Option<&str>| {
        let mut params = json!({ "name": name, "arguments": may, "_meta": meta });
        if let Some(state) = state {
            params["requestState"] = json!(state);
            params["arguments"] = json!({ "wait_seconds": 0 });
            params["inputResponses"] =
                json!({ "answer": { "action": "accept", "content": { "answer": true } } });
        }
        let heads = [
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", name),
        ];
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        http_post(&api, Some(mine), &heads, &body).json()
    };
    let asked = approve("request_approval", None);
    assert_eq!(
        asked["result"]["resultType"], "complete",
        "the client was shown a permission request: {asked}"
    );
    let wanted = asked["result"]["structuredContent"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let refused = approve("ask", Some(&wanted));
    assert!(
        refused["error"]["message"]
            .as_str()
            .is_some_and(|refused| refused.contains("token of the attempt that made the request")),
        "{refused}"
    );
    approve("request_approval", Some(&wanted));
    assert!(
        world.run_ok(&["inbox"]).contains("npm i zod"),
        "the request must still wait for a person"
    );

    world.run_ok(&[
        "agent",
        "add",
        "robot",
        "--runtime",
        "scripted",
        "--confine",
        "off",
    ]);
    let (gate, place) = (world.root.join("gate"), world.root.join("token-of-robot"));
    let script = json!([
        { "run": format!("printf %s \"$REGATTA_TOKEN\" > {}", place.display()) },
        { "run": format!("while [ ! -e {} ]; do sleep 0.02; done", gate.display()) },
        { "write": { "path": "out.txt", "text": "done\n" } },
    ]);
    world.run_ok(&[
        "add",
        "Work",
        "--files",
        "out.txt",
        "--script",
        &script.to_string(),
    ]);
    world.run_ok(&["run", "--agents", "robot", "--yes"]);
    assert!(wait_until(TEST_TIMEOUT, || std::fs::read_to_string(&place)
        .is_ok_and(|name| name.starts_with("ra_"))));
    let robot = std::fs::read_to_string(&place).unwrap();
    let asked = call(&robot, None);
    assert_eq!(
        asked["result"]["resultType"], "complete",
        "the client of the agent was asked: {asked}"
    );
    let id = asked["result"]["structuredContent"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    call(&robot, Some(&id));
    let decided = world
        .events()
        .iter()
        .filter(|event| event["kind"] == "approval.decided")
        .count();
    assert_eq!(decided, 0, "a request was answered");
    std::fs::write(&gate, "").unwrap();
}
