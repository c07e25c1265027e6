//! Idempotency keys: which requests are the same, and which answer a client gets (J9).

use std::sync::Arc;

use regatta_core::board::Row;
use regatta_core::claim::ClaimOwner;
use regatta_core::command::{Actor, Command, CommandOutcome, Request};
use regatta_core::event::{Event, Recorded};
use regatta_core::idempotency::{ANSWER_RETENTION_MS, FingerprintForm};
use regatta_core::ids::RequestKey;
use serde_json::{Value, json};

use crate::world::{World, acquire, agent};

/// The fingerprint of [`claim_request`] by ann, computed by another program: FNV-1a over
/// `person:ann {"command":"acquire","memo":"","mode":"exclusive","owner":{"agent":"ada"},
/// "ttl_ms":5000,"uris":["port://1"],"wait_ms":0}` in one line.
const CLAIM_FINGERPRINT: u64 = 0x3d81_faac_cc29_87c4;

/// Returns a request for a claim as JSON, without the fields that have a default.
fn claim_json() -> Value {
    json!({ "command": "acquire", "owner": { "agent": "ada" }, "uris": ["port://1"], "ttl_ms": 5000 })
}

fn parse_command(json: &str) -> Command {
    serde_json::from_str(json).unwrap()
}

fn claim_request() -> Command {
    parse_command(&claim_json().to_string())
}

/// Restarts the daemon with another record of the stored answer.
fn restart_with_answer(world: &mut World, edit: impl Fn(&mut Value)) {
    world.restart_damaged(|rows| {
        for row in rows.values_mut() {
            if let Row::Answer(answer) = row {
                let mut json = serde_json::to_value(&**answer).unwrap();
                edit(&mut json);
                *answer = Arc::new(serde_json::from_value(json).unwrap());
            }
        }
    });
}

/// J9: a client may repeat its request with the fields in another order, or with the defaults
/// written out.
#[test]
fn j9_the_order_of_fields_does_not_make_another_request() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let claim = world.ask_with_key("one", claim_request()).unwrap();
    let repeated = r#"{ "wait_ms": 0, "memo": "", "ttl_ms": 5000, "uris": [ "port://1" ],
        "mode": "exclusive", "owner": { "agent": "ada" }, "command": "acquire" }"#;
    let revision = world.board.revision;
    assert_eq!(
        world.ask_with_key("one", parse_command(repeated)),
        Ok(claim)
    );
    assert_eq!(world.board.revision, revision);
}

/// J9: the fingerprint of a request does not depend on the version of Regatta that computed it.
#[test]
fn j9_a_fingerprint_of_another_build_is_recognised() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let claim = world.ask_with_key("one", claim_request()).unwrap();
    let stored = world.board.answers.values().next().unwrap();
    assert_eq!(
        (stored.fingerprint_form, stored.command_fingerprint),
        (FingerprintForm::CanonicalJson, CLAIM_FINGERPRINT)
    );
    restart_with_answer(&mut world, |answer| {
        answer["command"] = CLAIM_FINGERPRINT.into();
        answer["form"] = "canonical_json".into();
    });
    assert_eq!(world.ask_with_key("one", claim_request()), Ok(claim));
}

/// J9: another command or another actor is another request.
#[test]
fn j9_another_command_or_actor_under_the_same_key_is_refused() {
    let mut world = World::with_agents(&[("ada", 1)]);
    world.ask_with_key("one", claim_request()).unwrap();
    let before = world.board.clone();
    for (field, value) in [
        ("uris", json!(["port://2"])),
        ("ttl_ms", json!(5001)),
        ("mode", json!("shared")),
        ("memo", json!("tests")),
    ] {
        let mut other = claim_json();
        other[field] = value;
        let other = parse_command(&other.to_string());
        let refusal = world.ask_with_key("one", other).unwrap_err();
        assert_eq!(refusal.code(), "key_reused", "{field}");
    }
    let refusal = world.request(Request {
        by: Actor::Agent(agent("ada")),
        key: Some(RequestKey::new("one").unwrap()),
        command: claim_request(),
    });
    assert_eq!(refusal.unwrap_err().code(), "key_reused");
    assert_eq!(world.board, before);
}

/// J9: an answer that version 0.1 stored has a fingerprint of another form. The client gets the
/// answer, because nothing shows that the request is another one.
#[test]
fn j9_an_answer_of_an_earlier_version_is_given_without_a_comparison() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let claim = world.ask_with_key("one", claim_request()).unwrap();
    restart_with_answer(&mut world, |answer| {
        answer["command"] = 7.into();
        answer.as_object_mut().unwrap().remove("form");
    });
    let revision = world.board.revision;
    assert_eq!(
        world.ask_with_key("one", claim_request()),
        Ok(claim.clone())
    );
    let other = Command::Acquire(acquire(ClaimOwner::Agent(agent("ada")), &["port://2"]));
    assert_eq!(world.ask_with_key("one", other.clone()), Ok(claim));
    assert_eq!(world.board.revision, revision, "nothing was carried out");
    // The next answer under this key has the new form, so it is compared.
    world.advance(ANSWER_RETENTION_MS);
    world.ask_with_key("one", other).unwrap();
    let refusal = world.ask_with_key("one", claim_request()).unwrap_err();
    assert_eq!(refusal.code(), "key_reused");
}

/// The log keeps the events of earlier versions, whose answers have no form.
#[test]
fn an_event_of_an_earlier_version_is_read_and_written_unchanged() {
    let old = concat!(
        r#"{"revision":1,"now":{"at":1,"wall":2},"by":"person:ann","event":"#,
        r#"{"kind":"request.answered","#,
        r#""data":{"key":"one","command":7,"outcome":"done","until_at":9}}}"#
    );
    let read: Recorded = serde_json::from_str(old).unwrap();
    let Event::RequestAnswered(answered) = &read.event else {
        panic!("{read:?}")
    };
    assert_eq!(
        (*answered.form(), answered.outcome()),
        (FingerprintForm::DebugText, &CommandOutcome::Done)
    );
    assert_eq!(serde_json::to_string(&read).unwrap(), old);
}
