//! Metrics and traces.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;

use serde_json::{Value, json};

use crate::http::ApiClient;
use crate::world::{TEST_TIMEOUT, World, wait_until};

fn http_get(api: &ApiClient, token: Option<&str>, path: &str) -> (u16, String) {
    let mut headers = vec![("host", api.address())];
    headers.extend(token.map(|token| ("authorization", format!("Bearer {token}"))));
    let reply = api.request_over_tcp("GET", path, &headers, b"");
    (reply.status, String::from_utf8(reply.body).unwrap())
}

/// The metrics count correctly, and need a token whose scope allows reading the fleet.
#[test]
fn metrics_count_correctly_and_need_a_viewers_token() {
    let world = World::with_project();
    let api = ApiClient::for_data_dir(&world.data_dir);
    let token = |name: &str, scope: &str| {
        world.run_json(&["token", "add", name, "--scope", scope])["token"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let (viewer, runner) = (token("eye", "viewer"), token("box", "runner"));
    assert_eq!(http_get(&api, None, "/metrics").0, 401);
    assert_eq!(http_get(&api, Some(&runner), "/metrics").0, 403);
    world.run_ok(&[
        "agent",
        "add",
        "zoe",
        "--runtime",
        "outside",
        "--max-tasks",
        "2",
    ]);
    for nth in 0..3 {
        world.run_ok(&[
            "task",
            "add",
            &format!("Task {nth}"),
            "--files",
            &format!("{nth}.txt"),
            "--report",
        ]);
    }
    world.run_json(&["task", "poll", "--as", "zoe"]);
    let page = || http_get(&api, Some(&viewer), "/metrics").1;
    let value = |page: &str, name: &str| -> f64 {
        let line = page.lines().find(|page| {
            page.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with(' '))
        });
        let line = line.unwrap_or_else(|| panic!("no {name} in\n{page}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert!(
        wait_until(TEST_TIMEOUT, || value(
            &page(),
            "regatta_events_total{kind=\"task.added\"}"
        ) == 3.0),
        "{}",
        page()
    );
    let page = page();
    assert_eq!(value(&page, "regatta_tasks{status=\"unassigned\"}"), 2.0);
    assert_eq!(value(&page, "regatta_tasks{status=\"in_progress\"}"), 1.0);
    assert_eq!(value(&page, "regatta_attempts{state=\"working\"}"), 1.0);
    assert_eq!(value(&page, "regatta_agents{state=\"busy\"}"), 1.0);
    assert_eq!(
        value(
            &page,
            "regatta_calls_total{verb=\"task.add\",status=\"200\"}"
        ),
        3.0
    );
    assert_eq!(
        value(&page, "regatta_turned_away_total{code=\"no_token\"}"),
        1.0
    );
    assert!(
        value(&page, "regatta_commit_seconds_count") >= 5.0,
        "{page}"
    );
    assert_eq!(
        value(&page, "regatta_commit_seconds_bucket{le=\"+Inf\"}"),
        value(&page, "regatta_commit_seconds_count")
    );
    assert_eq!(value(&page, "regatta_landing_queue{project=\"shop\"}"), 0.0);
    for line in page.lines() {
        let fine =
            line.starts_with("# ") || line.rsplit(' ').next().unwrap().parse::<f64>().is_ok();
        assert!(fine && line.starts_with(['#', 'r']), "{line}");
    }
}

/// Traces reach a collector. A call belongs to its caller's trace, and an attempt and its calls
/// share one trace.
#[test]
fn traces_reach_a_collector() {
    let world = World::with_project();
    world.run_ok(&["down"]);
    let collector = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", collector.local_addr().unwrap());
    let (sender, heard) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in collector.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut text = Vec::new();
            let mut chunk = [0; 4096];
            while let Ok(count) = stream.read(&mut chunk) {
                text.extend_from_slice(&chunk[..count]);
                let Some(end) = text.windows(4).position(|text| text == b"\r\n\r\n") else {
                    continue;
                };
                let head = String::from_utf8_lossy(&text[..end]).to_ascii_lowercase();
                let length = head
                    .lines()
                    .find_map(|head| head.strip_prefix("content-length: ")?.parse::<usize>().ok());
                if count == 0 || text.len() >= end + 4 + length.unwrap_or(0) {
                    assert!(head.starts_with("post /v1/traces "), "{head}");
                    let _gone =
                        sender.send(serde_json::from_slice::<Value>(&text[end + 4..]).unwrap());
                    break;
                }
            }
            let _gone = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}");
        }
    });
    let mut command = world.command(&["up", "--json"]);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint);
    assert_eq!(crate::world::run_command(command, None).exit_code, 0);
    let api = ApiClient::for_data_dir(&world.data_dir);
    world.run_ok(&["agent", "add", "zoe", "--runtime", "outside"]);
    world.run_ok(&["task", "add", "Look", "--report"]);
    let granted = api.call_ok("task.poll", json!({ "agent": "zoe" }));
    let bearer = granted["bearer"].as_str().unwrap();
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let ask = |token: &str, verb: &str, body: Value, parent: Option<String>| {
        let mut headers = vec![
            ("host", api.address()),
            ("authorization", format!("Bearer {token}")),
        ];
        headers.extend(parent.map(|parent| ("traceparent", parent)));
        api.request_over_tcp(
            "POST",
            &format!("/api/v1/{verb}"),
            &headers,
            body.to_string().as_bytes(),
        )
        .status
    };
    assert_eq!(
        ask(
            &api.token,
            "status",
            json!({}),
            Some(format!("00-{trace}-00f067aa0ba902b7-01"))
        ),
        200
    );
    let with_attempt = |more: Value| {
        let mut item = json!({ "task": "T1", "attempt": "A1", "token": granted["token"] });
        more.as_object()
            .unwrap()
            .iter()
            .for_each(|(name, value)| item[name] = value.clone());
        item
    };
    assert_eq!(
        ask(
            bearer,
            "task.progress",
            with_attempt(json!({ "text": "half way" })),
            None
        ),
        200
    );
    assert_eq!(
        ask(
            bearer,
            "task.fail",
            with_attempt(json!({ "reason": "no" })),
            None
        ),
        200
    );
    let mut spans: Vec<Value> = Vec::new();
    let found = wait_until(TEST_TIMEOUT, || {
        spans.extend(heard.try_iter().flat_map(|heard| {
            heard["resourceSpans"][0]["scopeSpans"][0]["spans"]
                .as_array()
                .cloned()
                .unwrap()
        }));
        spans.iter().any(|span| span["name"] == "attempt T1 zoe")
    });
    assert!(found, "{spans:?}");
    let named = |name: &str| {
        spans
            .iter()
            .find(|span| span["name"] == name)
            .unwrap_or_else(|| panic!("no {name}: {spans:?}"))
    };
    assert_eq!(
        (&named("status")["traceId"], &named("status")["kind"]),
        (&json!(trace), &json!(2))
    );
    assert_eq!(named("status")["parentSpanId"], "00f067aa0ba902b7");
    let attempt = named("attempt T1 zoe");
    for call in ["task.progress", "task.fail"] {
        assert_eq!(
            (&named(call)["traceId"], &named(call)["parentSpanId"]),
            (&attempt["traceId"], &attempt["spanId"])
        );
    }
    assert_eq!(
        attempt["status"]["code"], 2,
        "the attempt failed: {attempt}"
    );
    let nanos = |value: &Value, name: &str| value[name].as_str().unwrap().parse::<u128>().unwrap();
    for span in &spans {
        assert!(
            nanos(span, "startTimeUnixNano") <= nanos(span, "endTimeUnixNano"),
            "{span}"
        );
        assert!(
            span["traceId"].as_str().unwrap().len() == 32
                && span["spanId"].as_str().unwrap().len() == 16,
            "{span}"
        );
    }
}
