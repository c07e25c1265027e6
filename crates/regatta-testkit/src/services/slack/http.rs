//! Sends events as signed HTTP requests to the apps that have a URL.

use std::sync::{Arc, Weak};
use std::time::Instant;

use hyper::body::Bytes;
use serde_json::{Value, json};

use super::super::double::{ServiceDouble, ViolationKind};
use super::super::listener::escape_form;
use super::super::outgoing_request::{self, DeliveryError, OutgoingRequest};
use super::super::rate_limit::TimeScale;
use super::super::signature;
use super::socket::{ACKNOWLEDGE_TIMEOUT, RETRY_DELAYS};
use super::state::{EnvelopeState, EventTransport, SlackEnvelope, SlackState};

impl SlackEnvelope {
    /// Queues an envelope (an event packed for an app) to be sent again, or gives the envelope up
    /// after three retries.
    pub(crate) fn schedule_retry(&mut self, reason: &'static str, now: Instant, scale: TimeScale) {
        let wait = usize::try_from(self.retries)
            .ok()
            .and_then(|index| RETRY_DELAYS.get(index));
        self.reason = reason;
        match wait {
            Some(wait) if self.kind == "events_api" => {
                self.retries += 1;
                self.state = EnvelopeState::Waiting;
                self.not_before = Some(now + scale.scale_limit(*wait));
            }
            // A click or a command is sent only once. If that fails, Slack shows the failure to the
            // person.
            _ => self.state = EnvelopeState::GivenUp,
        }
    }
}

fn sign_body(secret: &str, stamp: &str, body: &str) -> String {
    signature::hmac_hex(secret, &[b"v0:", stamp.as_bytes(), b":", body.as_bytes()])
}

/// Returns a request that is signed as Slack signs its requests.
pub(crate) fn signed_request(secret: &str, url: &str, form: bool, body: String) -> OutgoingRequest {
    let stamp = signature::unix_time().as_secs().to_string();
    let signature = sign_body(secret, &stamp, &body);
    let kind = if form {
        "application/x-www-form-urlencoded"
    } else {
        "application/json"
    };
    let headers = [
        ("content-type", kind.to_owned()),
        (
            "user-agent",
            "Slackbot 1.0 (+https://api.slack.com/robots)".to_owned(),
        ),
        ("x-slack-request-timestamp", stamp),
        ("x-slack-signature", format!("v0={signature}")),
    ];
    let headers = headers
        .into_iter()
        .map(|header| (header.0.to_owned(), header.1))
        .collect();
    OutgoingRequest {
        url: url.to_owned(),
        headers,
        body: Bytes::from(body),
    }
}

fn envelope_request(secret: &str, url: &str, envelope: &SlackEnvelope) -> OutgoingRequest {
    let (form, body) = match envelope.kind {
        "interactive" => (
            true,
            format!("payload={}", escape_form(&envelope.payload.to_string())),
        ),
        "slash_commands" => {
            let fields = envelope.payload.as_object().into_iter().flatten();
            let encode_field = |(name, value): (&String, &Value)| {
                format!("{name}={}", escape_form(value.as_str().unwrap_or_default()))
            };
            (true, fields.map(encode_field).collect::<Vec<_>>().join("&"))
        }
        _ => (false, envelope.payload.to_string()),
    };
    let mut delivery = signed_request(secret, url, form, body);
    if envelope.retries > 0 {
        delivery
            .headers
            .push(("x-slack-retry-num".into(), envelope.retries.to_string()));
        delivery
            .headers
            .push(("x-slack-retry-reason".into(), envelope.reason.into()));
    }
    delivery
}

/// Sends the events for an app, each event in a separate request. Runs until the double (the
/// imitation of Slack) ends.
pub(crate) async fn deliver_events(double: Weak<ServiceDouble<SlackState>>, app_index: usize) {
    let Some(mut changes) = double
        .upgrade()
        .map(|service_double| service_double.watch_changes())
    else {
        return;
    };
    loop {
        changes.borrow_and_update();
        let Some(strong) = double.upgrade() else {
            return;
        };
        let now = Instant::now();
        let mut wake = None;
        let ready: Vec<usize> = strong.view(|view| {
            let app = &view.apps[app_index];
            let later = |slack_envelope: &SlackEnvelope| {
                (slack_envelope.state == EnvelopeState::Waiting)
                    .then_some(slack_envelope.not_before)
                    .flatten()
            };
            wake = app.envelopes[app.settled_count..]
                .iter()
                .filter_map(later)
                .filter(|instant| *instant > now)
                .min();
            let due = |slack_envelope: &SlackEnvelope| {
                slack_envelope.state == EnvelopeState::Waiting
                    && slack_envelope
                        .not_before
                        .is_none_or(|instant| instant <= now)
            };
            let open = strong.listener().is_open() && app.mode != EventTransport::Socket;
            (app.settled_count..app.envelopes.len())
                .filter(|index| open && due(&app.envelopes[*index]))
                .collect()
        });
        for which in ready {
            strong.update_silently(|world, _| {
                world.apps[app_index].open_envelopes();
                world.apps[app_index].envelopes[which].state = EnvelopeState::Sent {
                    connection: 0,
                    sent_at: now,
                };
            });
            tokio::spawn(deliver_one(strong.clone(), app_index, which));
        }
        drop(strong);
        let sleep = async {
            match wake {
                Some(wake) => tokio::time::sleep_until(wake.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = sleep => {}
            more = changes.changed() => if more.is_err() { return },
        }
    }
}

async fn deliver_one(double: Arc<ServiceDouble<SlackState>>, app_index: usize, which: usize) {
    let (delivery, timeout) = double.view(|view| {
        let app = &view.apps[app_index];
        let url = if let EventTransport::Http(url) = &app.mode {
            url.as_str()
        } else {
            ""
        };
        (
            envelope_request(&app.app.signing_secret, url, &app.envelopes[which]),
            view.scale().scale_deadline(ACKNOWLEDGE_TIMEOUT),
        )
    });
    let result = outgoing_request::deliver_request(delivery, timeout).await;
    double.update(|world, ledger| {
        let (scale, now) = (ledger.scale, Instant::now());
        let app = &mut world.apps[app_index];
        let envelope = &mut app.envelopes[which];
        let (what, reason) = match &result {
            Ok(receipt) if (200..300).contains(&receipt.status) => {
                envelope.state = EnvelopeState::Acknowledged;
                envelope.acknowledged = Some(ledger.elapsed());
                return;
            }
            Ok(receipt) => {
                if receipt
                    .headers
                    .get("x-slack-no-retry")
                    .is_some_and(|value| value == "1")
                {
                    envelope.state = EnvelopeState::GivenUp;
                    return;
                }
                (format!("was answered {}", receipt.status), "http_error")
            }
            Err(DeliveryError::TimedOut) => ("was not answered in time".into(), "http_timeout"),
            Err(DeliveryError::Refused) => ("could not be delivered".into(), "connection_failed"),
        };
        if reason != "connection_failed" {
            ledger.add_violation(
                &app.app.name,
                ViolationKind::Late,
                format!("{} {what}", envelope.kind),
            );
        }
        envelope.schedule_retry(reason, now, scale);
    });
}

/// Sends Slack's challenge (a text that the app must send back) to a new URL. Returns true if the
/// app has sent the challenge back.
pub(crate) async fn verify_url(
    double: &ServiceDouble<SlackState>,
    app_index: usize,
    challenge: &str,
) -> bool {
    let (secret, url, timeout) = double.view(|view| {
        let app = &view.apps[app_index];
        let url = if let EventTransport::Http(url) = &app.mode {
            url.clone()
        } else {
            String::new()
        };
        (
            app.app.signing_secret.clone(),
            url,
            view.scale().scale_deadline(ACKNOWLEDGE_TIMEOUT),
        )
    });
    let body =
        json!({"token": "verification-token", "challenge": challenge, "type": "url_verification"});
    let receipt = outgoing_request::deliver_request(
        signed_request(&secret, &url, false, body.to_string()),
        timeout,
    )
    .await;
    let echoed = receipt
        .ok()
        .filter(|received_response| received_response.status == 200)
        .map(|received_response| String::from_utf8_lossy(&received_response.body).into_owned());
    let in_json = |s: &str| {
        serde_json::from_str::<Value>(s).is_ok_and(|from_str| from_str["challenge"] == challenge)
    };
    echoed.is_some_and(|echoed| echoed.trim() == challenge || in_json(&echoed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_matches_slacks_documented_example() {
        let body = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c";
        let digest = sign_body("8f742231b10e8888abcd99yyyzzz85a5", "1531420618", body);
        assert_eq!(
            digest,
            "a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"
        );
    }
}
