//! The whole daemon sends events, signed, to a webhook receiver.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use data_encoding::{BASE64, HEXLOWER};
use regatta_bridges::config::Secret;
use regatta_bridges::signature;
use serde_json::Value;

use crate::bridge_world::{BridgeWorld, BridgeWorldSettings};
use crate::chaos::kill_daemon;
use crate::world::{TEST_TIMEOUT, wait_until};

const SECRET: &str = "a secret of twenty-four bytes or more";

type PostedRequest = (BTreeMap<String, String>, Vec<u8>);

/// Starts a server that keeps every request that is posted to it. Returns its address and the
/// requests.
fn start_receiver() -> (String, Arc<Mutex<Vec<PostedRequest>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let received: Arc<Mutex<Vec<PostedRequest>>> = Arc::default();
    let kept = received.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = BufReader::new(stream);
            let (mut headers, mut line) = (BTreeMap::new(), String::new());
            while stream.read_line(&mut line).is_ok_and(|stream| stream > 2) {
                let pair = line
                    .trim_end()
                    .split_once(": ")
                    .map(|line| (line.0.to_ascii_lowercase(), line.1.to_owned()));
                headers.extend(pair);
                line.clear();
            }
            let length = headers
                .get("content-length")
                .and_then(|header| header.parse().ok())
                .unwrap_or(0);
            let mut body = vec![0; length];
            if stream.read_exact(&mut body).is_ok() {
                kept.lock().unwrap().push((headers, body));
                let _gone = stream
                    .get_mut()
                    .write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n");
            }
        }
    });
    (url, received)
}

/// Computes the signature as a receiver would: the base64 of the HMAC over id, time and body.
fn compute_signature(headers: &BTreeMap<String, String>, body: &[u8]) -> String {
    let part = |name: &str| headers[name].as_bytes().to_vec();
    let content = [
        &part("webhook-id")[..],
        b".",
        &part("webhook-timestamp"),
        b".",
        body,
    ]
    .concat();
    let hex = signature::hex_signature(&Secret::new(SECRET), &[&content]);
    let bytes = HEXLOWER.decode(hex.as_bytes()).unwrap();
    format!("v1,{}", BASE64.encode(&bytes))
}

/// A receiver needs no agent in any service. It gets only the events that it asked for, signed and
/// in order, including the events around a kill of the daemon.
#[test]
fn a_webhook_receiver_gets_signed_events_in_order_across_a_kill() {
    let (url, told) = start_receiver();
    let more =
        format!("[[bridges.webhook]]\nurl = \"{url}\"\nsecret = \"HOOK\"\nevents = [\"task.\"]");
    let settings = BridgeWorldSettings {
        agents: &[],
        allowed_people: vec![],
        urls: vec![],
        clock_speed: 1.0,
        extra_lines: &more,
    };
    let quay = BridgeWorld::new(&settings, vec![("HOOK".to_owned(), SECRET.to_owned())]);
    let add = |subject: &str| {
        quay.world.run_ok(&[
            "task",
            "add",
            subject,
            "--files",
            "a.txt",
            "--validate",
            "true",
            "--backlog",
        ]);
    };
    let bodies = || -> Vec<Value> {
        told.lock()
            .unwrap()
            .iter()
            .map(|told| serde_json::from_slice(&told.1).unwrap())
            .collect()
    };
    let knows = |subject: &str| {
        bodies()
            .iter()
            .any(|body| body["type"] == "task.added" && body.to_string().contains(subject))
    };
    add("The first of two");
    assert!(
        wait_until(TEST_TIMEOUT, || knows("The first of two")),
        "{:?}",
        bodies()
    );
    add("One more before the end");
    kill_daemon(&quay.world);
    quay.start_daemon_without(&[]);
    add("The second of two");
    assert!(
        wait_until(TEST_TIMEOUT, || knows("The second of two")),
        "{:?}",
        bodies()
    );
    assert!(
        knows("One more before the end"),
        "the event before the kill is lost: {:?}",
        bodies()
    );
    assert!(bodies().iter().all(|body| {
        body["type"]
            .as_str()
            .is_some_and(|kind| kind.starts_with("task."))
    }));
    let revisions: Vec<u64> = bodies()
        .iter()
        .map(|body| body["data"]["revision"].as_u64().unwrap())
        .collect();
    assert!(revisions.is_sorted(), "{revisions:?}");
    for (headers, body) in told.lock().unwrap().iter() {
        assert_eq!(
            headers["webhook-signature"],
            compute_signature(headers, body)
        );
        assert_ne!(
            headers["webhook-signature"],
            compute_signature(headers, b"{}")
        );
    }
}
