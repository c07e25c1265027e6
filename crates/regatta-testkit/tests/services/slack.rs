//! Tests of Slack's double: sockets and acknowledgements, signed requests, methods, limits and
//! faults.

use futures_util::{SinkExt as _, StreamExt as _};
use regatta_testkit::services::slack::{Slack, SlackApp};
use regatta_testkit::services::{ServiceFault, TimeScale, ViolationKind};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use crate::http_client::{TEST_TIMEOUT, TestResponse, call_json, send_http};
use crate::webhook_server::TestWebhookServer;

/// Calls a method that takes only a form.
async fn read_api(slack: &Slack, token: &str, method: &str, form: &str) -> TestResponse {
    let bearer = format!("Bearer {token}");
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/x-www-form-urlencoded"),
    ];
    let url = format!("{}/api/{method}", slack.base_url());
    send_http("POST", &url, &headers, form.to_owned())
        .await
        .expect("the request is answered")
}

/// Like the real service, the double ignores a JSON body of a method that reads, and refuses a
/// cursor that it did not issue.
#[tokio::test]
async fn methods_that_read_accept_forms_only() {
    let (slack, claude, _, dev) = start_with_two_apps().await;
    let ann = slack.add_person("bea");
    let root = slack.post_as_person("ann", "dev", "hello", None);
    for n in 0..3 {
        slack.post_as_person("ann", "dev", &n.to_string(), Some(&root));
    }
    let token = &claude.bot_token;
    let error = |got: TestResponse| got.body["error"].as_str().unwrap_or_default().to_owned();
    assert_eq!(
        error(api(&slack, token, "users.info", json!({"user": ann})).await),
        "user_not_found"
    );
    let noted = slack
        .violations()
        .iter()
        .any(|found| format!("{found:?}").contains("users.info: a JSON body"));
    assert!(
        noted,
        "the JSON body is recorded as a violation: {:?}",
        slack.violations()
    );
    let thread = json!({"channel": dev, "ts": root});
    assert_eq!(
        error(api(&slack, token, "conversations.replies", thread).await),
        "invalid_arguments"
    );
    assert_eq!(
        error(api(&slack, token, "conversations.info", json!({"channel": dev})).await),
        "invalid_arguments"
    );
    assert_eq!(
        read_api(&slack, token, "users.info", &format!("user={ann}"))
            .await
            .body["ok"],
        true
    );
    let page = |cursor: &str| format!("channel={dev}&ts={root}&limit=2{cursor}");
    let first = read_api(&slack, token, "conversations.replies", &page(""))
        .await
        .body;
    let cursor = first["response_metadata"]["next_cursor"]
        .as_str()
        .unwrap()
        .to_owned();
    let rest = page(&format!("&cursor={}", cursor.replace('=', "%3D")));
    let second = read_api(&slack, token, "conversations.replies", &rest)
        .await
        .body;
    assert_eq!(second["messages"][1]["text"], "2", "{second}");
    let made_up = read_api(&slack, token, "conversations.replies", &page("&cursor=2")).await;
    assert_eq!(error(made_up), "invalid_cursor");
    assert_eq!(
        error(read_api(&slack, token, "chat.postMessage", "text=hi").await),
        "invalid_arguments"
    );
    let bearer = format!("Bearer {token}");
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
    ];
    let url = format!("{}/api/chat.postMessage", slack.base_url());
    for (body, why) in [("{", "invalid_json"), ("[]", "json_not_object")] {
        assert_eq!(
            error(
                send_http("POST", &url, &headers, body.to_owned())
                    .await
                    .unwrap()
            ),
            why
        );
    }
    let plain = [
        ("authorization", bearer.as_str()),
        ("content-type", "text/plain"),
    ];
    assert_eq!(
        error(
            send_http("POST", &url, &plain, "hi".to_owned())
                .await
                .unwrap()
        ),
        "invalid_post_type"
    );
    let in_body = json!({"token": token, "channel": dev, "text": "hi"}).to_string();
    let without = [("content-type", "application/json")];
    assert_eq!(
        error(send_http("POST", &url, &without, in_body).await.unwrap()),
        "not_authed"
    );
}

async fn api(slack: &Slack, token: &str, method: &str, body: Value) -> TestResponse {
    call_json(
        "POST",
        &format!("{}/api/{method}", slack.base_url()),
        token,
        &body,
    )
    .await
    .expect("the request is answered")
}

struct TestSocket(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl TestSocket {
    async fn open(slack: &Slack, app: &SlackApp) -> TestSocket {
        let answer = api(slack, &app.app_token, "apps.connections.open", json!({})).await;
        let (line, _) = tokio_tungstenite::connect_async(answer.body["url"].as_str().unwrap())
            .await
            .unwrap();
        let mut socket = TestSocket(line);
        assert_eq!(socket.next().await["type"], "hello");
        socket
    }

    async fn next(&mut self) -> Value {
        loop {
            match tokio::time::timeout(TEST_TIMEOUT, self.0.next())
                .await
                .unwrap()
            {
                Some(Ok(Message::Text(text))) => return serde_json::from_str(&text).unwrap(),
                Some(Ok(_)) => {}
                other => return json!({"type": "closed", "why": format!("{other:?}")}),
            }
        }
    }

    async fn acknowledge(&mut self, frame: &Value) {
        let acknowledgement = json!({"envelope_id": frame["envelope_id"]}).to_string();
        self.0.send(Message::text(acknowledgement)).await.unwrap();
    }
}

async fn start_with_two_apps() -> (Slack, SlackApp, SlackApp, String) {
    let slack = Slack::start().await;
    let (claude, codex) = (
        slack.add_socket_app("claude"),
        slack.add_socket_app("codex"),
    );
    slack.add_person("ann");
    let dev = slack.add_channel("dev", &["ann", "claude", "codex"]);
    (slack, claude, codex, dev)
}

#[tokio::test]
async fn mention_is_two_events_for_the_named_app_and_one_for_the_other() {
    let (slack, claude, codex, dev) = start_with_two_apps().await;
    let (mut one, mut other) = (
        TestSocket::open(&slack, &claude).await,
        TestSocket::open(&slack, &codex).await,
    );
    let ts = slack.post_as_person("ann", "dev", "@claude fix <it> & go", None);
    let (first, second) = (one.next().await, one.next().await);
    let kinds: Vec<&str> = [&first, &second]
        .iter()
        .map(|envelope| envelope["payload"]["event"]["type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["app_mention", "message"]);
    for value in [&first, &second] {
        let event = &value["payload"]["event"];
        assert_eq!(
            (event["ts"].as_str(), event["channel"].as_str()),
            (Some(ts.as_str()), Some(dev.as_str()))
        );
        assert_eq!(
            event["text"],
            format!("<@{}> fix &lt;it&gt; &amp; go", claude.bot_user)
        );
        assert_eq!(
            (&value["retry_attempt"], &value["type"]),
            (&json!(0), &json!("events_api"))
        );
        one.acknowledge(value).await;
    }
    let seen = other.next().await;
    assert_eq!(seen["payload"]["event"]["type"], "message");
    assert_eq!(
        seen["payload"]["authorizations"][0]["user_id"],
        codex.bot_user
    );
    other.acknowledge(&seen).await;
    let acknowledged = |view: &[regatta_testkit::services::slack::SlackEnvelope]| {
        view.iter()
            .all(|slack_envelope| slack_envelope.acknowledged.is_some())
    };
    slack
        .wait_for(
            |view| acknowledged(view.envelopes("claude")) && acknowledged(view.envelopes("codex")),
            TEST_TIMEOUT,
        )
        .await;
    slack.assert_well_behaved();
}

#[tokio::test]
async fn unacknowledged_event_is_repeated_on_the_next_socket() {
    let (slack, claude, _, _) = start_with_two_apps().await;
    slack.subscribe("claude", &["app_mention"]);
    let mut socket = TestSocket::open(&slack, &claude).await;
    slack.post_as_person("ann", "dev", "@claude hello", None);
    let first = socket.next().await;
    drop(socket);
    slack
        .wait_for(|view| view.sockets("claude") == 0, TEST_TIMEOUT)
        .await;
    let mut socket = TestSocket::open(&slack, &claude).await;
    let again = socket.next().await;
    assert_eq!(
        (&again["retry_attempt"], &again["retry_reason"]),
        (&json!(1), &json!("timeout"))
    );
    assert_eq!(again["payload"]["event_id"], first["payload"]["event_id"]);
    assert_ne!(again["envelope_id"], first["envelope_id"]);
    socket.acknowledge(&again).await;
    slack
        .wait_for(
            |view| {
                view.envelopes("claude")
                    .iter()
                    .all(|slack_envelope| slack_envelope.acknowledged.is_some())
            },
            TEST_TIMEOUT,
        )
        .await;
    slack.assert_well_behaved();
}

#[tokio::test]
async fn each_event_goes_to_one_of_two_sockets() {
    const EVENTS: usize = 500;
    let (slack, claude, _, _) = start_with_two_apps().await;
    slack.subscribe("claude", &["message.channels"]);
    let mut sockets = [
        TestSocket::open(&slack, &claude).await,
        TestSocket::open(&slack, &claude).await,
    ];
    let (slack, done) = (
        std::sync::Arc::new(slack),
        std::sync::Arc::new(tokio::sync::Notify::new()),
    );
    let reading = sockets.iter_mut().map(|socket| {
        let done = done.clone();
        async move {
            let mut seen = vec![];
            loop {
                tokio::select! {
                    () = done.notified() => return seen,
                    frame = socket.next() => {
                        socket.acknowledge(&frame).await;
                        seen.push(frame["payload"]["event"]["text"].as_str().unwrap().to_owned());
                    }
                }
            }
        }
    });
    let speaking = async {
        for at in 0..EVENTS {
            slack.post_as_person("ann", "dev", &at.to_string(), None);
            tokio::task::yield_now().await;
        }
        let all_acknowledged = |view: &regatta_testkit::services::slack::SlackState| {
            view.acknowledged("claude") == EVENTS
        };
        slack
            .wait_for(|view| all_acknowledged(view), 3 * TEST_TIMEOUT)
            .await;
        done.notify_waiters();
    };
    let [one, other] = <[_; 2]>::try_from(reading.collect::<Vec<_>>())
        .ok()
        .unwrap();
    let (one, other, ()) = tokio::join!(one, other, speaking);
    let all: std::collections::BTreeSet<&String> = one.iter().chain(&other).collect();
    assert_eq!(
        (one.len() + other.len(), all.len()),
        (EVENTS, EVENTS),
        "each event arrives once"
    );
    slack.assert_well_behaved();
}

#[tokio::test]
async fn late_acknowledgement_is_a_violation_and_the_event_is_repeated() {
    let (slack, claude, _, _) = start_with_two_apps().await;
    slack.set_time_scale(TimeScale::with_faster_limits(600.0).with_faster_deadlines(30.0));
    slack.subscribe("claude", &["app_mention"]);
    let mut socket = TestSocket::open(&slack, &claude).await;
    slack.post_as_person("ann", "dev", "@claude hello", None);
    let attempts = [
        socket.next().await,
        socket.next().await,
        socket.next().await,
        socket.next().await,
    ];
    let numbers: Vec<&Value> = attempts
        .iter()
        .map(|attempt| &attempt["retry_attempt"])
        .collect();
    assert_eq!(numbers, [0, 1, 2, 3]);
    slack
        .wait_for(|view| view.violations().len() == 4, TEST_TIMEOUT)
        .await;
    assert!(
        slack
            .violations()
            .iter()
            .all(|violation| violation.kind == ViolationKind::Late && violation.app == "claude")
    );
}

#[tokio::test]
async fn socket_is_refreshed_and_an_eleventh_socket_is_refused() {
    let (slack, claude, _, _) = start_with_two_apps().await;
    let mut socket = TestSocket::open(&slack, &claude).await;
    slack.disconnect("claude", "refresh_requested");
    let frame = socket.next().await;
    assert_eq!(
        (&frame["type"], &frame["reason"]),
        (&json!("disconnect"), &json!("refresh_requested"))
    );
    drop(socket);
    slack
        .wait_for(|view| view.sockets("claude") == 0, TEST_TIMEOUT)
        .await;
    // After a warning, events are still sent until the socket closes.
    slack.set_time_scale(TimeScale::REAL_TIME.with_faster_deadlines(10.0));
    let mut socket = TestSocket::open(&slack, &claude).await;
    slack.disconnect("claude", "warning");
    assert_eq!(socket.next().await["reason"], "warning");
    slack.post_as_person("ann", "dev", "still there?", None);
    let frame = socket.next().await;
    assert_eq!(frame["payload"]["event"]["text"], "still there?");
    socket.acknowledge(&frame).await;
    assert_eq!(socket.next().await["type"], "closed");
    slack.set_time_scale(TimeScale::REAL_TIME);
    slack
        .wait_for(|view| view.sockets("claude") == 0, TEST_TIMEOUT)
        .await;
    let mut open = vec![];
    for _ in 0..10 {
        open.push(TestSocket::open(&slack, &claude).await);
    }
    let answer = api(
        &slack,
        &claude.app_token,
        "apps.connections.open",
        json!({}),
    )
    .await;
    let (line, _) = tokio_tungstenite::connect_async(answer.body["url"].as_str().unwrap())
        .await
        .unwrap();
    assert_eq!(
        TestSocket(line).next().await["reason"],
        "too_many_websockets"
    );
    let again = tokio_tungstenite::connect_async(answer.body["url"].as_str().unwrap()).await;
    assert!(again.is_err(), "a ticket is used once");
}

#[tokio::test]
async fn messages_can_be_posted_edited_found_and_deleted() {
    let (slack, claude, codex, dev) = start_with_two_apps().await;
    let root = slack.post_as_person("ann", "dev", "@claude go", None);
    let mark = json!({"event_type": "regatta", "event_payload": {"mark": "turn-1"}});
    let body = json!({"channel": dev, "thread_ts": root, "text": "Working…", "metadata": mark});
    let posted = api(&slack, &claude.bot_token, "chat.postMessage", body)
        .await
        .body;
    let ts = posted["ts"].as_str().unwrap();
    assert_eq!(
        (&posted["ok"], &posted["message"]["bot_id"]),
        (&json!(true), &json!(claude.bot_id))
    );
    let body = json!({"channel": dev, "ts": ts, "text": "Done."});
    let foreign = api(&slack, &codex.bot_token, "chat.update", body.clone())
        .await
        .body;
    assert_eq!(foreign["error"], "cant_update_message");
    assert_eq!(
        api(&slack, &claude.bot_token, "chat.update", body)
            .await
            .body["ok"],
        true
    );
    let query = format!("channel={dev}&ts={root}&include_all_metadata=true");
    let found = read_api(&slack, &codex.bot_token, "conversations.replies", &query)
        .await
        .body;
    assert_eq!(
        found["messages"][1]["metadata"], mark,
        "the metadata of a message can be read"
    );
    assert_eq!(found["messages"][1]["text"], "Done.");
    let react = json!({"channel": dev, "timestamp": root, "name": "eyes"});
    assert_eq!(
        api(&slack, &claude.bot_token, "reactions.add", react.clone())
            .await
            .body["ok"],
        true
    );
    assert_eq!(
        api(&slack, &claude.bot_token, "reactions.add", react)
            .await
            .body["error"],
        "already_reacted"
    );
    assert_eq!(
        slack.reactions("dev", &root),
        [("eyes".to_owned(), claude.bot_user.clone())]
    );
    let thread = slack.thread("dev", &root);
    assert_eq!(
        (thread.len(), thread[0].versions.clone()),
        (1, vec!["Working…".to_owned(), "Done.".to_owned()])
    );
    assert_eq!(
        api(
            &slack,
            &claude.bot_token,
            "chat.delete",
            json!({"channel": dev, "ts": ts})
        )
        .await
        .body["ok"],
        true
    );
    assert_eq!(slack.thread("dev", &root).len(), 0);
    let wrong: Vec<ViolationKind> = slack
        .violations()
        .iter()
        .map(|violation| violation.kind)
        .collect();
    assert_eq!(wrong, [ViolationKind::NotOwned]);
}

/// The official clients send forms whose structured fields are JSON text.
#[tokio::test]
async fn button_is_posted_by_a_form_and_clicked() {
    let (slack, claude, _, dev) = start_with_two_apps().await;
    let mut socket = TestSocket::open(&slack, &claude).await;
    slack.subscribe("claude", &[]);
    let blocks = r#"[{"type":"actions","elements":[{"type":"button","action_id":"allow","value":"7","text":{"type":"plain_text","text":"Allow"}}]}]"#;
    let form = format!(
        "token={}&channel={dev}&text=May+I%3F&blocks={}",
        claude.bot_token,
        blocks.replace('"', "%22")
    );
    let headers = [("content-type", "application/x-www-form-urlencoded")];
    let posted = send_http(
        "POST",
        &format!("{}/api/chat.postMessage", slack.base_url()),
        &headers,
        form,
    )
    .await
    .unwrap()
    .body;
    assert_eq!(posted["message"]["text"], "May I?", "{posted}");
    slack.click("ann", "dev", posted["ts"].as_str().unwrap(), "allow");
    let frame = socket.next().await;
    let payload = &frame["payload"];
    assert_eq!(
        (&frame["type"], &payload["type"]),
        (&json!("interactive"), &json!("block_actions"))
    );
    assert_eq!(
        (&payload["actions"][0]["value"], &payload["user"]["name"]),
        (&json!("7"), &json!("ann"))
    );
    socket.acknowledge(&frame).await;
    slack.send_slash_command("ann", "dev", "claude", "/regatta", "status");
    let frame = socket.next().await;
    assert_eq!(
        (&frame["type"], &frame["payload"]["text"]),
        (&json!("slash_commands"), &json!("status"))
    );
    socket.acknowledge(&frame).await;
    slack
        .wait_for(
            |view| {
                view.envelopes("claude")
                    .iter()
                    .all(|slack_envelope| slack_envelope.acknowledged.is_some())
            },
            TEST_TIMEOUT,
        )
        .await;
    slack.assert_well_behaved();
}

#[tokio::test]
async fn stream_is_started_appended_to_and_stopped_once() {
    let (slack, claude, _, dev) = start_with_two_apps().await;
    let root = slack.post_as_person("ann", "dev", "@claude go", None);
    let ann = slack.view(|view| view.id("ann").unwrap().to_owned());
    let mut start =
        json!({"channel": dev, "thread_ts": root, "recipient_team_id": slack.team_id()});
    let missing = api(&slack, &claude.bot_token, "chat.startStream", start.clone())
        .await
        .body;
    assert_eq!(missing["error"], "missing_recipient_user_id");
    start["recipient_user_id"] = json!(ann);
    let ts = api(&slack, &claude.bot_token, "chat.startStream", start)
        .await
        .body["ts"]
        .clone();
    let update = json!({"channel": dev, "ts": ts, "text": "no"});
    assert_eq!(
        api(&slack, &claude.bot_token, "chat.update", update)
            .await
            .body["error"],
        "streaming_state_conflict"
    );
    for piece in ["One ", "two "] {
        let body = json!({"channel": dev, "ts": ts, "markdown_text": piece});
        assert_eq!(
            api(&slack, &claude.bot_token, "chat.appendStream", body)
                .await
                .body["ok"],
            true
        );
    }
    let task = json!([{"type": "task_update", "id": "1", "title": "Look", "status": "complete"}]);
    let body = json!({"channel": dev, "ts": ts, "chunks": task});
    assert_eq!(
        api(&slack, &claude.bot_token, "chat.appendStream", body)
            .await
            .body["ok"],
        true
    );
    let body = json!({"channel": dev, "ts": ts, "markdown_text": "three"});
    assert_eq!(
        api(&slack, &claude.bot_token, "chat.stopStream", body.clone())
            .await
            .body["ok"],
        true
    );
    let again = api(&slack, &claude.bot_token, "chat.stopStream", body)
        .await
        .body;
    assert_eq!(again["error"], "message_not_in_streaming_state");
    assert_eq!(slack.thread("dev", &root)[0].text, "One two three");
}

#[tokio::test]
async fn requests_that_slack_refuses_get_its_error_name_and_are_recorded() {
    let (slack, claude, _, dev) = start_with_two_apps().await;
    let elsewhere = slack.add_channel("private", &["ann"]);
    let token = claude.bot_token.as_str();
    let long = "x".repeat(4_001);
    let posted = api(
        &slack,
        token,
        "chat.postMessage",
        json!({"channel": dev, "text": "x"}),
    )
    .await
    .body;
    let cases = [
        (
            "",
            "chat.postMessage",
            json!({"channel": dev, "text": "x"}),
            "not_authed",
        ),
        (
            "xoxb-nobody",
            "chat.postMessage",
            json!({"channel": dev, "text": "x"}),
            "invalid_auth",
        ),
        (
            &claude.app_token,
            "chat.postMessage",
            json!({"channel": dev, "text": "x"}),
            "not_allowed_token_type",
        ),
        (
            token,
            "apps.connections.open",
            json!({}),
            "not_allowed_token_type",
        ),
        (token, "chat.sendTelegram", json!({}), "unknown_method"),
        (
            token,
            "chat.postMessage",
            json!({"channel": "C1", "text": "x"}),
            "channel_not_found",
        ),
        (
            token,
            "chat.postMessage",
            json!({"channel": elsewhere, "text": "x"}),
            "not_in_channel",
        ),
        (
            token,
            "chat.postEphemeral",
            json!({"channel": dev}),
            "no_text",
        ),
        (
            token,
            "chat.postEphemeral",
            json!({"channel": dev, "blocks": "[{"}),
            "invalid_blocks_format",
        ),
        (
            token,
            "chat.postEphemeral",
            json!({"channel": dev, "blocks": [{"type": "x"}]}),
            "invalid_blocks",
        ),
        (
            token,
            "chat.postEphemeral",
            json!({"channel": dev, "text": "x", "metadata": {}}),
            "invalid_metadata_schema",
        ),
        (
            token,
            "chat.update",
            json!({"channel": dev, "ts": posted["ts"], "text": long}),
            "msg_too_long",
        ),
        (
            token,
            "chat.update",
            json!({"channel": dev, "ts": "1.1", "text": "x"}),
            "message_not_found",
        ),
        (
            token,
            "reactions.add",
            json!({"channel": dev, "timestamp": posted["ts"], "name": ":eyes:"}),
            "invalid_name",
        ),
    ];
    for (token, method, body, error) in &cases {
        assert_eq!(
            api(&slack, token, method, body.clone()).await.body["error"],
            *error,
            "{method} {body}"
        );
    }
    // Three of these errors can happen to a correct client, so they are no violations.
    assert_eq!(
        slack.violations().len(),
        cases.len() - 3,
        "{:#?}",
        slack.violations()
    );
    assert_eq!(
        slack
            .calls()
            .iter()
            .filter(|service_call| service_call.error.is_some())
            .count(),
        cases.len()
    );
}

#[tokio::test]
async fn limits_are_counted_per_app_method_and_channel() {
    let (slack, claude, codex, dev) = start_with_two_apps().await;
    // The clock is twenty times slower, so that the pauses of a busy machine do not avoid the
    // limit.
    slack.set_time_scale(TimeScale::with_faster_limits(0.05));
    let post = json!({"channel": dev, "text": "x"});
    let mut statuses = vec![];
    for _ in 0..5 {
        statuses.push(
            api(&slack, &claude.bot_token, "chat.postMessage", post.clone())
                .await
                .status,
        );
    }
    assert_eq!(
        statuses,
        [200, 200, 200, 429, 429],
        "a burst of three is allowed, then one per second"
    );
    let refused = api(&slack, &claude.bot_token, "chat.postMessage", post.clone()).await;
    assert_eq!(refused.body["error"], "ratelimited");
    let wait: f64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!(wait > 0.0 && wait <= 20.0, "{wait}");
    assert_eq!(
        api(&slack, &codex.bot_token, "chat.postMessage", post.clone())
            .await
            .status,
        200
    );
    let wrong: Vec<ViolationKind> = slack
        .violations()
        .iter()
        .map(|violation| violation.kind)
        .collect();
    assert!(
        wrong.len() == 3
            && wrong.iter().all(|violation_kind| matches!(
                violation_kind,
                ViolationKind::RateLimit | ViolationKind::TooSoon
            )),
        "{wrong:?}"
    );

    let ts = slack.messages("dev")[0].ts.clone();
    let update = json!({"channel": dev, "ts": ts, "text": "y"});
    let mut good = 0;
    while api(&slack, &claude.bot_token, "chat.update", update.clone())
        .await
        .status
        == 200
    {
        good += 1;
    }
    assert_eq!(good, 50);
}

#[tokio::test]
async fn scaled_limit_has_a_scaled_retry_after() {
    let (slack, claude, _, dev) = start_with_two_apps().await;
    slack.set_time_scale(TimeScale::with_faster_limits(2.0));
    let post = json!({"channel": dev, "text": "x"});
    let many = (0..20).map(|_| api(&slack, &claude.bot_token, "chat.postMessage", post.clone()));
    let all = futures_util::future::join_all(many).await;
    let refused = all
        .into_iter()
        .find(|test_response| test_response.status == 429)
        .expect("twenty at once are too many");
    let wait: f64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!(wait > 0.0 && wait <= 0.5, "{wait}");
}

#[tokio::test]
async fn faults_happen_in_the_order_in_which_they_were_requested() {
    let (slack, claude, _, dev) = start_with_two_apps().await;
    let url = format!("{}/api/chat.postMessage", slack.base_url());
    let post = json!({"channel": dev, "text": "x"});
    slack.fail_next("chat.postMessage", 1, ServiceFault::Status(503));
    slack.fail_next("chat.postMessage", 1, ServiceFault::DropBeforeAnswer);
    slack.fail_next("chat.postMessage", 1, ServiceFault::DropAfterCall);
    assert_eq!(
        call_json("POST", &url, &claude.bot_token, &post)
            .await
            .unwrap()
            .status,
        503
    );
    assert!(
        call_json("POST", &url, &claude.bot_token, &post)
            .await
            .is_none()
    );
    assert_eq!(slack.messages("dev").len(), 0);
    assert!(
        call_json("POST", &url, &claude.bot_token, &post)
            .await
            .is_none()
    );
    assert_eq!(
        slack.messages("dev").len(),
        1,
        "the message was posted without an answer"
    );
    slack.fail_next("chat.postMessage", 1, ServiceFault::RetryAfter(30.0));
    assert_eq!(
        call_json("POST", &url, &claude.bot_token, &post)
            .await
            .unwrap()
            .header("retry-after"),
        Some("30")
    );
    assert_eq!(
        call_json("POST", &url, &claude.bot_token, &post)
            .await
            .unwrap()
            .status,
        429,
        "the wait is enforced"
    );
    let faults: Vec<bool> = slack
        .calls()
        .iter()
        .map(|service_call| service_call.fault.is_some())
        .collect();
    assert_eq!(faults, [true, true, true, true, false]);

    let mut socket = TestSocket::open(&slack, &claude).await;
    slack.go_offline().await;
    // The event of the message that was posted may be delivered first.
    let mut last = socket.next().await;
    while last["type"] == "events_api" {
        last = socket.next().await;
    }
    assert_eq!(last["type"], "closed");
    assert!(
        call_json("POST", &url, &claude.bot_token, &post)
            .await
            .is_none()
    );
    slack.go_online().await;
    slack
        .wait_for(|view| view.sockets("claude") == 0, TEST_TIMEOUT)
        .await;
    TestSocket::open(&slack, &claude).await;
}

#[tokio::test]
async fn signed_requests_are_retried_with_the_number_of_the_retry() {
    let slack = Slack::start().await;
    slack.set_time_scale(TimeScale::with_faster_limits(6000.0));
    let mut answers = vec![500, 500, 200].into_iter();
    let mut hook = TestWebhookServer::listen(move |letter| {
        let body: Value = serde_json::from_slice(&letter.body).unwrap();
        if body["type"] == "url_verification" {
            return Some((200, body["challenge"].as_str().unwrap().to_owned()));
        }
        Some((answers.next().unwrap(), String::new()))
    })
    .await;
    let app = slack.add_http_app("claude", &hook.url);
    slack.add_person("ann");
    slack.add_channel("dev", &["ann", "claude"]);
    slack.subscribe("claude", &["app_mention"]);
    assert!(slack.verify_url("claude").await);
    hook.next().await;
    slack.post_as_person("ann", "dev", "@claude hello", None);
    let letters = [hook.next().await, hook.next().await, hook.next().await];
    let numbers: Vec<&str> = letters
        .iter()
        .map(|received_webhook| received_webhook.header("x-slack-retry-num"))
        .collect();
    assert_eq!(numbers, ["", "1", "2"]);
    assert_eq!(letters[1].header("x-slack-retry-reason"), "http_error");
    for received_webhook in &letters {
        assert_eq!(
            received_webhook.json()["event_id"],
            letters[0].json()["event_id"]
        );
        assert!(
            received_webhook
                .header("x-slack-signature")
                .starts_with("v0=")
                && !app.signing_secret.is_empty()
        );
    }
    slack
        .wait_for(
            |view| view.envelopes("claude")[0].acknowledged.is_some(),
            TEST_TIMEOUT,
        )
        .await;
}
