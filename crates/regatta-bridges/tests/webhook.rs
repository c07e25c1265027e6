//! Tests of signed webhooks to a receiver that checks signatures, fails and recovers.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails")]

mod world;

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use data_encoding::BASE64;
use regatta_bridges::config::WebhookConfig;
use regatta_core::command::{Actor, Request};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use world::{TEST_TIMEOUT, World, register_agent};

/// A receiver with the requests that it got and its next answers.
#[derive(Clone)]
struct TestReceiver {
    received: Arc<Mutex<Vec<(HeaderMap, Bytes)>>>,
    answers: Arc<Mutex<Vec<u16>>>,
    received_count: watch::Sender<usize>,
}

async fn receive_event(
    State(test_receiver): State<TestReceiver>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    let answer = test_receiver.answers.lock().unwrap().pop().unwrap_or(204);
    test_receiver.received.lock().unwrap().push((headers, body));
    test_receiver
        .received_count
        .send_modify(|received_count| *received_count += 1);
    StatusCode::from_u16(answer).unwrap()
}

impl TestReceiver {
    async fn start() -> (TestReceiver, String) {
        let test_receiver = TestReceiver {
            received: Arc::default(),
            answers: Arc::default(),
            received_count: watch::channel(0).0,
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!(
            "http://{}/hook/very-secret-path",
            listener.local_addr().unwrap()
        );
        let router = Router::new()
            .route("/hook/very-secret-path", post(receive_event))
            .with_state(test_receiver.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        (test_receiver, url)
    }

    /// Waits for `times` events about this agent, and returns all events received.
    async fn wait_for_events(&self, agent: &str, times: usize) -> Vec<(HeaderMap, Value)> {
        let mut changes = self.received_count.subscribe();
        let deadline = tokio::time::Instant::now() + TEST_TIMEOUT;
        loop {
            changes.borrow_and_update();
            let deliveries: Vec<(HeaderMap, Bytes)> = self.received.lock().unwrap().clone();
            let events: Vec<(HeaderMap, Value)> = deliveries
                .into_iter()
                .map(|(headers, body)| (headers, serde_json::from_slice(&body).unwrap()))
                .collect();
            if events
                .iter()
                .filter(|(_, body)| body["data"]["subject"] == agent)
                .count()
                >= times
            {
                return events;
            }
            tokio::time::timeout_at(deadline, changes.changed())
                .await
                .unwrap()
                .unwrap();
        }
    }
}

/// Causes an event.
async fn cause_event(world: &World, name: &str) {
    world
        .engine()
        .submit_async(Request {
            by: Actor::Person("ann".into()),
            key: None,
            command: register_agent(name),
        })
        .await
        .unwrap();
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).unwrap().to_str().unwrap()
}

fn revisions(events: &[(HeaderMap, Value)]) -> Vec<u64> {
    events
        .iter()
        .filter_map(|(_, body)| body["data"]["revision"].as_u64())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook_receiver_gets_signed_events_in_order_and_continues_after_a_restart() {
    let (receiver, url) = TestReceiver::start().await;
    let data = tempfile::tempdir().unwrap();
    let mut world = World::new(&["claude"]).await;
    world.vars.insert(
        "HOOK".into(),
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".into(),
    );
    world.config.webhook = vec![WebhookConfig {
        url,
        secret: "HOOK".into(),
        events: vec!["agent.".into()],
    }];
    world.start().await;
    world.send_webhooks(data.path());
    cause_event(&world, "ann").await;
    let events = receiver.wait_for_events("ann", 1).await;
    assert_eq!(events[0].1["type"], events[0].1["data"]["kind"]);
    assert!(
        events[0].1["type"].as_str().unwrap().starts_with("agent."),
        "{:?}",
        events[0].1
    );
    // After two failed deliveries, the same event arrives again under the same id, and no other
    // event arrives before it.
    receiver.answers.lock().unwrap().extend([503, 500]);
    cause_event(&world, "bob").await;
    let events = receiver.wait_for_events("bob", 3).await;
    let last: Vec<&str> = events[events.len() - 3..]
        .iter()
        .map(|(headers, _)| header(headers, "webhook-id"))
        .collect();
    assert_eq!(
        (last[0], last[1]),
        (last[2], last[2]),
        "a repetition has another id"
    );
    let mut before = revisions(&events);
    before.dedup();
    assert!(before.is_sorted(), "{before:?}");
    // Events from the time without webhooks are sent at the next start. At most the last events
    // before the stop are repeated, if their delivery was not recorded.
    world.kill().await;
    world.start().await;
    cause_event(&world, "cid").await;
    world.send_webhooks(data.path());
    let after = receiver.wait_for_events("cid", 1).await;
    let fresh = revisions(&after[events.len()..]);
    assert!(
        fresh.iter().all(|fresh| fresh >= before.last().unwrap()),
        "{before:?} {fresh:?}"
    );
    let (headers, body) = receiver.received.lock().unwrap().last().unwrap().clone();
    let signed = [
        header(&headers, "webhook-id"),
        header(&headers, "webhook-timestamp"),
    ]
    .join(".");
    assert!(is_valid_signature(
        &signed,
        &body,
        header(&headers, "webhook-signature")
    ));
    assert!(!is_valid_signature(
        &signed,
        b"{}",
        header(&headers, "webhook-signature")
    ));
    assert!(
        !String::from_utf8_lossy(&body).contains("\"token\""),
        "a fencing token was sent"
    );
}

/// Verifies a signature as a receiver does, with a library that the bridge does not use.
fn is_valid_signature(signed: &str, body: &[u8], given: &str) -> bool {
    use ring::hmac;
    let secret: [u8; 24] = [
        0x31, 0xf2, 0x90, 0xf6, 0xbf, 0x06, 0x29, 0x8a, 0xab, 0x4f, 0x08, 0xd4, 0x3c, 0x3f, 0x08,
        0x2c, 0xf6, 0x48, 0xa3, 0x62, 0xda, 0x2d, 0xa4, 0xb0,
    ];
    let key = hmac::Key::new(hmac::HMAC_SHA256, &secret);
    let content = [signed.as_bytes(), b".", body].concat();
    let signature = BASE64.decode(given.strip_prefix("v1,").unwrap().as_bytes());
    hmac::verify(&key, &content, &signature.unwrap()).is_ok()
}
