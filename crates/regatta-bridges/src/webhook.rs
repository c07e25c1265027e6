//! Signed webhooks to whoever wants to know what happens, in the way of Standard Webhooks.
//!
//! A receiver is told every committed event that it wants, in order and at least once: what it has been told is in a
//! small file, and what comes next is in the history. So nothing queues up in memory, a receiver that is away holds up
//! only itself, and after a restart it goes on where it was. What one event says is what the API says of it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use regatta_api::view::EventView;
use regatta_core::event::Recorded;
use regatta_engine::Engine;
use reqwest::Method;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::desk::wall;
use crate::http::{Answer, Call, Http};
use crate::registry::{Receiver, Secret};
use crate::service::Trouble;

/// How many events are read at once.
const PAGE: usize = 200;
const PATIENCE: Duration = Duration::from_secs(15);
const AGAIN: Duration = Duration::from_secs(1);
const AGAIN_AT_MOST: Duration = Duration::from_secs(300);
/// How often an event is sent to a receiver that is there and will not have it.
const MOST_REFUSALS: u32 = 6;
/// How long to wait when the history cannot be read.
const UNREADABLE: Duration = Duration::from_secs(5);

/// How far a receiver has been told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Told {
    /// Tells this fleet's events from another's, in what they are known by.
    fleet: String,
    revision: u64,
}

/// What becomes of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Came {
    Taken,
    /// The receiver wants nothing more, ever.
    Gone,
    /// It is there, and will not have this.
    Refused(String),
    /// It is not there, or busy; perhaps it says for how long.
    Away(String, Option<Duration>),
}

/// Tells one receiver until it is aborted, or wants nothing more: from where it was told last, else what comes after
/// `from`.
pub(crate) async fn run(engine: Engine, http: Http, it: Receiver, data: PathBuf, from: u64) {
    if let Some(why) = it.trouble() {
        return tracing::warn!("{} is told nothing: {why}", it.host());
    }
    let Some(Ok(key)) = it.secret.as_ref().map(key_of) else { return };
    let file = file_of(&data, &it.url);
    let mut told = read(&file).unwrap_or_else(|| Told { fleet: fresh_name(), revision: from });
    // A backup was restored: what it had not seen yet happens again.
    told.revision = told.revision.min(engine.board().revision);
    keep(&file, &told);
    let mut changes = engine.watch();
    loop {
        changes.borrow_and_update();
        let (history, after) = (engine.history().clone(), told.revision);
        let page = tokio::task::spawn_blocking(move || history.events(after, PAGE)).await;
        let Ok(Ok(page)) = page else {
            tracing::error!("the history could not be read for {}", it.host());
            tokio::time::sleep(UNREADABLE).await;
            continue;
        };
        for recorded in &page {
            if wants(&it.events, recorded.event.kind()) {
                if !tell(&http, &it, &key, (recorded, &told.fleet)).await {
                    return tracing::warn!("{} wants nothing more (410); it is told again after a restart", it.host());
                }
                keep(&file, &Told { revision: recorded.revision, ..told.clone() });
            }
            told.revision = recorded.revision;
        }
        if page.len() < PAGE {
            keep(&file, &told);
            if changes.changed().await.is_err() {
                return;
            }
        }
    }
}

/// Sends one event until it is taken, or refused often enough. `false` when the receiver is gone for good.
async fn tell(http: &Http, it: &Receiver, key: &[u8], (recorded, fleet): (&Recorded, &str)) -> bool {
    let body = body_of(recorded);
    let id = format!("evt_{fleet}_{}", recorded.revision);
    let (mut pause, mut refusals) = (AGAIN, 0);
    loop {
        let wait = match send(http, &it.url, key, &id, &body).await {
            Came::Taken => return true,
            Came::Gone => return false,
            Came::Refused(why) => {
                refusals += 1;
                if refusals >= MOST_REFUSALS {
                    tracing::warn!("{} will not have {id}: {why}; it goes on with the next", it.host());
                    return true;
                }
                None
            }
            Came::Away(why, wait) => {
                tracing::info!("{} was not told {id} yet: {why}", it.host());
                wait
            }
        };
        tokio::time::sleep(wait.unwrap_or(pause).max(AGAIN.min(pause))).await;
        pause = (pause * 2).min(AGAIN_AT_MOST);
    }
}

async fn send(http: &Http, url: &str, key: &[u8], id: &str, body: &Value) -> Came {
    let at = (wall() / 1_000).to_string();
    let text = body.to_string();
    let mut call = Call::new(Method::POST, url)
        .json(body)
        .header("webhook-id", id)
        .header("webhook-timestamp", at.clone())
        .header("webhook-signature", signed(key, id, &at, &text));
    call.patience = Some(PATIENCE);
    judged(http.call(call).await)
}

fn judged(answer: Result<Answer, Trouble>) -> Came {
    match answer {
        Ok(answer) => match answer.status {
            200..300 => Came::Taken,
            410 => Came::Gone,
            408 | 409 | 425 | 429 | 500.. => {
                let wait = answer.retry_after().map(|it| it.min(AGAIN_AT_MOST));
                Came::Away(format!("it answered {}", answer.status), wait)
            }
            status => Came::Refused(format!("it answered {status}")),
        },
        // It took it, whatever it says at such length.
        Err(Trouble::Never(_)) => Came::Taken,
        Err(Trouble::Unknown(why) | Trouble::Locked(why)) => Came::Away(why, None),
        Err(Trouble::Later(wait)) => Came::Away("it is busy".into(), Some(wait)),
    }
}

/// What an event says: its kind, its date, and what the API shows of it. Fencing tokens are not part of that.
fn body_of(recorded: &Recorded) -> Value {
    let date = jiff::Timestamp::from_millisecond(i64::try_from(recorded.now.wall).unwrap_or(0)).unwrap_or_default();
    let event = EventView::of(recorded, date.to_string());
    json!({"type": event.kind.clone(), "timestamp": event.time.clone(), "data": event})
}

/// Whether a receiver wants events of this kind.
fn wants(prefixes: &[String], kind: &str) -> bool {
    prefixes.is_empty() || prefixes.iter().any(|it| kind.starts_with(it.trim_end_matches('*')))
}

/// `v1,` and the signature of an id, a date and a body.
fn signed(key: &[u8], id: &str, at: &str, body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length is taken");
    for part in [id, ".", at, ".", body] {
        mac.update(part.as_bytes());
    }
    format!("v1,{}", base64(&mac.finalize().into_bytes()))
}

/// The key of a secret: `whsec_` and base64, as others make them, or any text as it is.
pub(crate) fn key_of(secret: &Secret) -> Result<Vec<u8>, &'static str> {
    match secret.reveal().strip_prefix("whsec_") {
        Some(text) => unbase64(text).ok_or("begins with whsec_, and what follows is not base64"),
        None if secret.reveal().len() < 16 => Err("is too short to be a secret: give it 24 random bytes or more"),
        None => Ok(secret.reveal().as_bytes().to_vec()),
    }
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn base64(bytes: &[u8]) -> String {
    let mut found = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let at = |nth: usize| u32::from(three.get(nth).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for nth in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * nth) & 63) as usize];
            found.push(if nth <= three.len() { char::from(digit) } else { '=' });
        }
    }
    found
}

fn unbase64(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim().trim_end_matches('=');
    let (mut found, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for it in digits.bytes() {
        let digit = DIGITS.iter().position(|known| *known == it)?;
        (bits, count) = (bits << 6 | u32::try_from(digit).ok()?, count + 6);
        if count >= 8 {
            count -= 8;
            found.push(u8::try_from(bits >> count & 0xff).ok()?);
        }
    }
    (!found.is_empty()).then_some(found)
}

/// A name that no other fleet has.
fn fresh_name() -> String {
    let mut bytes = [0_u8; 8];
    if SystemRandom::new().fill(&mut bytes).is_err() {
        bytes = wall().to_be_bytes();
    }
    bytes.iter().map(|it| format!("{it:02x}")).collect()
}

fn file_of(data: &Path, url: &str) -> PathBuf {
    let sum: String = Sha256::digest(url.as_bytes())[..8].iter().map(|it| format!("{it:02x}")).collect();
    data.join("webhooks").join(format!("{sum}.json"))
}

fn read(file: &Path) -> Option<Told> {
    serde_json::from_slice(&std::fs::read(file).ok()?).ok()
}

/// Writes down how far a receiver was told. If that cannot be kept, it is told some of it again.
fn keep(file: &Path, told: &Told) {
    let write = || {
        std::fs::create_dir_all(file.parent().unwrap_or(Path::new(".")))?;
        let beside = file.with_extension("new");
        std::fs::write(&beside, serde_json::to_vec(told)?)?;
        std::fs::rename(&beside, file)
    };
    if let Err(error) = write() {
        tracing::warn!("how far a webhook was told could not be written down: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vector of the Standard Webhooks specification's own libraries.
    #[test]
    fn the_signature_is_the_standards() {
        let key = key_of(&Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")).unwrap();
        let signature = signed(&key, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", r#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn base64_goes_both_ways() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(base64(bytes.as_bytes()), text);
            assert_eq!(unbase64(text).unwrap_or_default(), bytes.as_bytes());
        }
        assert_eq!(unbase64("no base64!"), None);
        assert!(key_of(&Secret::new("whsec_")).is_err());
        assert!(key_of(&Secret::new("short")).is_err());
    }

    #[test]
    fn a_receiver_is_told_what_it_wants() {
        let wanted =
            |prefixes: &[&str], kind| wants(&prefixes.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>(), kind);
        assert!(wanted(&[], "task.added"));
        assert!(wanted(&["task.", "landing.landed"], "task.added"));
        assert!(wanted(&["task.*"], "task.added"));
        assert!(wanted(&["landing.landed"], "landing.landed"));
        assert!(!wanted(&["landing.landed"], "landing.queued"));
    }

    #[test]
    fn what_is_answered_decides_what_comes_next() {
        let answer = |status| {
            let headers = reqwest::header::HeaderMap::new();
            judged(Ok(Answer { status, headers, body: Value::Null }))
        };
        assert_eq!(answer(204), Came::Taken);
        assert_eq!(answer(410), Came::Gone);
        assert!(matches!(answer(400), Came::Refused(_)));
        assert!(matches!(answer(302), Came::Refused(_)), "a redirect is not followed with what is signed");
        assert!(matches!(answer(429), Came::Away(..)));
        assert!(matches!(answer(503), Came::Away(..)));
        assert!(matches!(judged(Err(Trouble::Unknown("gone".into()))), Came::Away(..)));
    }
}
