//! Sends Regatta's events to receivers as signed webhooks, in the format of the Standard Webhooks
//! specification.
//!
//! A receiver gets every event that it subscribed to, in order and at least once. For each
//! receiver, a small file stores the position of the last event that was sent, and later events are
//! read from Regatta's event log. So no queue grows in memory, a receiver that does not answer
//! delays only its own events, and sending continues after a restart. The data of an event has the
//! same form as in Regatta's API.

use std::path::{Path, PathBuf};
use std::time::Duration;

use data_encoding::{BASE64, BASE64_NOPAD, HEXLOWER};
use hmac::{Hmac, KeyInit, Mac};
use regatta_api::view::EventView;
use regatta_core::event::Recorded;
use regatta_engine::Engine;
use reqwest::Method;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::config::{Secret, WebhookReceiver};
use crate::http::{HttpAnswer, HttpCall, HttpClient};
use crate::intake::unix_time_ms;
use crate::service::ServiceError;

/// Maximum number of events that one read of the event log returns.
const EVENTS_PER_READ: usize = 200;
const CALL_TIMEOUT: Duration = Duration::from_secs(15);
const RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(300);
/// Number of refusals by the receiver after which an event is skipped and the next event is sent.
const MAX_REFUSALS: u32 = 6;
/// Pause before the event log is read again after reading it failed.
const READ_RETRY_DELAY: Duration = Duration::from_secs(5);

/// The position of a receiver: the number of the last event that was sent to the receiver. The
/// position is stored in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct SendPosition {
    /// Random id of this installation of Regatta. The ids of events contain this id, so that two
    /// installations never send the same event id.
    fleet: String,
    revision: u64,
}

/// The result of one attempt to send an event to a webhook receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SendOutcome {
    Accepted,
    /// The receiver wants no more events (its answer had the HTTP status 410).
    Unsubscribed,
    /// The receiver refused this event. The value is the reason.
    Refused(String),
    /// The receiver cannot be reached or is busy. The values are the reason and the waiting time
    /// that the receiver requested.
    Unreachable(String, Option<Duration>),
}

/// Sends events to one receiver until the task is aborted or the receiver unsubscribes. Starts
/// after the last event that was sent, or after the event number `start_revision` if no event was
/// sent yet.
pub(crate) async fn run(
    engine: Engine,
    http: HttpClient,
    receiver: WebhookReceiver,
    data: PathBuf,
    start_revision: u64,
) {
    if let Some(why) = receiver.problem() {
        return tracing::warn!(
            "no events are sent to the webhook receiver {}, because its settings cannot be used: {why}",
            receiver.host()
        );
    }
    let Some(Ok(key)) = receiver.secret.as_ref().map(signing_key) else {
        return;
    };
    let file = position_file(&data, &receiver.url);
    let mut position = read_position(&file).unwrap_or_else(|| SendPosition {
        fleet: random_id(),
        revision: start_revision,
    });
    // If the data was restored from a backup, the number of the newest event is lower than the
    // stored position. Events that happen after the restore must be sent, although earlier events
    // with the same numbers were already sent.
    position.revision = position.revision.min(engine.board().revision);
    write_position(&file, &position);
    let mut changes = engine.watch_board();
    loop {
        changes.borrow_and_update();
        let (history, after) = (engine.history().clone(), position.revision);
        let page =
            tokio::task::spawn_blocking(move || history.events(after, EVENTS_PER_READ)).await;
        let Ok(Ok(page)) = page else {
            tracing::error!(
                "could not read Regatta's event log, so no events were sent to the webhook receiver {}; \
                 trying again in {READ_RETRY_DELAY:?}",
                receiver.host()
            );
            tokio::time::sleep(READ_RETRY_DELAY).await;
            continue;
        };
        for recorded in &page {
            if is_subscribed(&receiver.events, recorded.event.kind()) {
                if !send_until_accepted(&http, &receiver, &key, recorded, &position.fleet).await {
                    return tracing::warn!(
                        "the webhook receiver {} answered 410 (gone), so no more events are sent to it \
                         until the daemon restarts",
                        receiver.host()
                    );
                }
                write_position(
                    &file,
                    &SendPosition {
                        revision: recorded.revision,
                        ..position.clone()
                    },
                );
            }
            position.revision = recorded.revision;
        }
        if page.len() < EVENTS_PER_READ {
            write_position(&file, &position);
            if changes.changed().await.is_err() {
                return;
            }
        }
    }
}

/// Sends one event repeatedly until the receiver accepts the event, or has refused it
/// [`MAX_REFUSALS`] times. Returns `false` if the receiver wants no more events.
async fn send_until_accepted(
    http: &HttpClient,
    receiver: &WebhookReceiver,
    key: &[u8],
    recorded: &Recorded,
    fleet: &str,
) -> bool {
    let body = event_body(recorded);
    let id = format!("evt_{fleet}_{}", recorded.revision);
    let (mut pause, mut refusals) = (RETRY_DELAY, 0);
    loop {
        let wait = match send(http, &receiver.url, key, &id, &body).await {
            SendOutcome::Accepted => return true,
            SendOutcome::Unsubscribed => return false,
            SendOutcome::Refused(why) => {
                refusals += 1;
                if refusals >= MAX_REFUSALS {
                    tracing::warn!(
                        "the webhook receiver {} refused the event {id} {refusals} times, so the event is \
                         skipped: {why}",
                        receiver.host()
                    );
                    return true;
                }
                None
            }
            SendOutcome::Unreachable(why, wait) => {
                tracing::info!(
                    "could not send the event {id} to the webhook receiver {}; trying again later: {why}",
                    receiver.host()
                );
                wait
            }
        };
        tokio::time::sleep(wait.unwrap_or(pause).max(RETRY_DELAY.min(pause))).await;
        pause = (pause * 2).min(MAX_RETRY_DELAY);
    }
}

async fn send(http: &HttpClient, url: &str, key: &[u8], id: &str, body: &Value) -> SendOutcome {
    let timestamp_s = (unix_time_ms() / 1_000).to_string();
    let text = body.to_string();
    let mut call = HttpCall::new(Method::POST, url)
        .json(body)
        .header("webhook-id", id)
        .header("webhook-timestamp", timestamp_s.clone())
        .header(
            "webhook-signature",
            webhook_signature(key, id, &timestamp_s, &text),
        );
    call.timeout = Some(CALL_TIMEOUT);
    classify_answer(http.call(call).await)
}

fn classify_answer(answer: Result<HttpAnswer, ServiceError>) -> SendOutcome {
    match answer {
        Ok(answer) => match answer.status {
            200..300 => SendOutcome::Accepted,
            410 => SendOutcome::Unsubscribed,
            408 | 409 | 425 | 429 | 500.. => {
                let wait = answer
                    .retry_after()
                    .map(|duration| duration.min(MAX_RETRY_DELAY));
                SendOutcome::Unreachable(format!("it answered {}", answer.status), wait)
            }
            status => SendOutcome::Refused(format!("it answered {status}")),
        },
        // The answer was too long to read. The event still counts as accepted, because the receiver
        // got it.
        Err(ServiceError::Rejected(_)) => SendOutcome::Accepted,
        Err(ServiceError::OutcomeUnknown(why) | ServiceError::Unauthorized(why)) => {
            SendOutcome::Unreachable(why, None)
        }
        Err(ServiceError::RetryAfter(wait)) => {
            SendOutcome::Unreachable("it is busy".into(), Some(wait))
        }
    }
}

/// Returns the body of the webhook for an event: the event's kind, its date, and its data in the
/// same form as in the API. Fencing tokens are left out, because a person who has such a token
/// could change data.
fn event_body(recorded: &Recorded) -> Value {
    let date = jiff::Timestamp::from_millisecond(i64::try_from(recorded.now.unix_ms).unwrap_or(0))
        .unwrap_or_default();
    let event = EventView::new(recorded, date.to_string());
    json!({"type": event.kind.clone(), "timestamp": event.time.clone(), "data": event})
}

/// Returns whether a receiver that subscribed to the kinds of events with these prefixes wants
/// events of the kind `kind`.
fn is_subscribed(prefixes: &[String], kind: &str) -> bool {
    prefixes.is_empty()
        || prefixes
            .iter()
            .any(|prefix| kind.starts_with(prefix.trim_end_matches('*')))
}

/// Returns the signature of a webhook, computed from its id, its date and its body, with the prefix
/// `v1,`.
fn webhook_signature(key: &[u8], id: &str, timestamp_s: &str, body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC accepts keys of any length");
    for part in [id, ".", timestamp_s, ".", body] {
        mac.update(part.as_bytes());
    }
    format!("v1,{}", BASE64.encode(&mac.finalize().into_bytes()))
}

/// Returns the bytes of the key that signs webhooks. A secret that begins with `whsec_` (as other
/// tools create it) is decoded from base64. Any other text is used unchanged.
pub(crate) fn signing_key(secret: &Secret) -> Result<Vec<u8>, &'static str> {
    match secret.reveal().strip_prefix("whsec_") {
        Some(text) => {
            let key = BASE64_NOPAD.decode(text.trim().trim_end_matches('=').as_bytes());
            let key = key.ok().filter(|key| !key.is_empty());
            key.ok_or("begins with whsec_, and what follows is not base64")
        }
        None if secret.reveal().len() < 16 => {
            Err("is too short to be a secret: give it 24 random bytes or more")
        }
        None => Ok(secret.reveal().as_bytes().to_vec()),
    }
}

/// Returns a random id for this installation of Regatta.
fn random_id() -> String {
    let mut bytes = [0_u8; 8];
    if SystemRandom::new().fill(&mut bytes).is_err() {
        bytes = unix_time_ms().to_be_bytes();
    }
    HEXLOWER.encode(&bytes)
}

fn position_file(data: &Path, url: &str) -> PathBuf {
    let hash = HEXLOWER.encode(&Sha256::digest(url.as_bytes())[..8]);
    data.join("webhooks").join(format!("{hash}.json"))
}

fn read_position(file: &Path) -> Option<SendPosition> {
    serde_json::from_slice(&std::fs::read(file).ok()?).ok()
}

/// Stores the position of the last event that was sent to a receiver. If storing fails, some events
/// are sent again after a restart.
fn write_position(file: &Path, position: &SendPosition) {
    let write = || {
        std::fs::create_dir_all(file.parent().unwrap_or(Path::new(".")))?;
        let temporary = file.with_extension("new");
        std::fs::write(&temporary, serde_json::to_vec(position)?)?;
        std::fs::rename(&temporary, file)
    };
    if let Err(error) = write() {
        tracing::warn!(
            "could not store in {} the last event that was sent to a webhook's receiver, so events may \
             be sent again after a restart: {error}",
            file.display()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test vector of the libraries of the Standard Webhooks specification.
    #[test]
    fn signature_follows_the_standard_webhooks_specification() {
        let key = signing_key(&Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")).unwrap();
        let signature = webhook_signature(
            &key,
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            "1614265330",
            r#"{"test": 2432232314}"#,
        );
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn signing_key_is_base64_after_its_prefix_and_long_without_it() {
        for text in ["whsec_Zm9vYg==", "whsec_Zm9vYg"] {
            assert_eq!(signing_key(&Secret::new(text)), Ok(b"foob".to_vec()));
        }
        for text in ["whsec_no base64!", "whsec_", "short"] {
            assert!(signing_key(&Secret::new(text)).is_err(), "{text}");
        }
    }

    #[test]
    fn receiver_gets_the_events_that_match_its_prefixes() {
        let is_sent = |prefixes: &[&str], kind| {
            is_subscribed(
                &prefixes
                    .iter()
                    .map(|prefix| (*prefix).to_owned())
                    .collect::<Vec<_>>(),
                kind,
            )
        };
        assert!(is_sent(&[], "task.added"));
        assert!(is_sent(&["task.", "landing.landed"], "task.added"));
        assert!(is_sent(&["task.*"], "task.added"));
        assert!(is_sent(&["landing.landed"], "landing.landed"));
        assert!(!is_sent(&["landing.landed"], "landing.queued"));
    }

    #[test]
    fn delivery_outcome_follows_from_the_status_of_the_answer() {
        let answer = |status| {
            let headers = reqwest::header::HeaderMap::new();
            classify_answer(Ok(HttpAnswer {
                status,
                headers,
                body: Value::Null,
            }))
        };
        assert_eq!(answer(204), SendOutcome::Accepted);
        assert_eq!(answer(410), SendOutcome::Unsubscribed);
        assert!(matches!(answer(400), SendOutcome::Refused(_)));
        assert!(
            matches!(answer(302), SendOutcome::Refused(_)),
            "a signed request does not follow a redirect"
        );
        assert!(matches!(answer(429), SendOutcome::Unreachable(..)));
        assert!(matches!(answer(503), SendOutcome::Unreachable(..)));
        assert!(matches!(
            classify_answer(Err(ServiceError::OutcomeUnknown("gone".into()))),
            SendOutcome::Unreachable(..)
        ));
    }
}
