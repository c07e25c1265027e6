//! Imitates Slack's Socket Mode: the websocket connections of apps, the events sent over them, and
//! the acknowledgements that apps must send.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{SinkExt as _, StreamExt as _};
use http_body_util::Full;
use hyper::Response;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Message as Frame, Role};

use super::super::double::{CallRecords, ServiceDouble, ViolationKind};
use super::super::listener::{DoubleReply, DoubleRequest};
use super::super::signature;
use super::events::socket_frame;
use super::state::{EnvelopeState, SlackAppState, SlackState};

/// The time that an app may take to acknowledge an event.
pub const ACKNOWLEDGE_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum number of open websockets of one app.
pub const MAX_SOCKETS: usize = 10;
/// The time between two pings that the double (the imitation of Slack) sends.
/// [`WARNING_BEFORE_END`] is the time between the warning and the end of a connection.
const PING_INTERVAL: Duration = Duration::from_secs(5);
const WARNING_BEFORE_END: Duration = Duration::from_secs(10);
/// The delays after which an event that was not acknowledged is sent again.
pub(crate) const RETRY_DELAYS: [Duration; 3] = [
    Duration::ZERO,
    Duration::from_secs(60),
    Duration::from_secs(300),
];

type EventSocket = WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>;

/// Accepts a websocket connection, and serves the connection until it ends.
pub(crate) async fn open(
    double: Arc<ServiceDouble<SlackState>>,
    request: DoubleRequest,
) -> DoubleReply {
    let ticket = request.query("ticket").unwrap_or_default().to_owned();
    let key = request
        .header("sec-websocket-key")
        .map(|request| derive_accept_key(request.as_bytes()));
    let found = double.update(|world, ledger| {
        let found = world
            .apps
            .iter_mut()
            .position(|slack_app_state| slack_app_state.tickets.remove(&ticket));
        if found.is_none() {
            ledger.add_violation(
                "",
                ViolationKind::Auth,
                "a socket's ticket is unknown or was used before",
            );
        }
        found
    });
    let (Some(at), Some(key), Some(upgrade)) = (found, key, request.upgrade) else {
        let refusal = Response::builder()
            .status(404)
            .body(Full::new(Bytes::new()))
            .expect("the response is valid");
        return DoubleReply::Answer(refusal);
    };
    tokio::spawn(async move {
        if let Ok(upgraded) = upgrade.await {
            let line =
                WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await;
            serve_socket(double, at, line).await;
        }
    });
    let response = Response::builder()
        .status(101)
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-accept", key)
        .body(Full::new(Bytes::new()))
        .expect("the response is valid");
    DoubleReply::Answer(response)
}

async fn serve_socket(
    double: Arc<ServiceDouble<SlackState>>,
    app_index: usize,
    mut line: EventSocket,
) {
    let mut closing = double.listener().watch_closing();
    let (connection, number, app_id) = double.update(|world, ledger| {
        let app = &mut world.apps[app_index];
        let connection = ledger.next();
        if app.connections.len() < MAX_SOCKETS {
            app.connections.push(connection);
            app.orders.insert(connection, Default::default());
        } else {
            ledger.add_violation(
                &app.app.name,
                ViolationKind::RateLimit,
                format!("more than {MAX_SOCKETS} sockets"),
            );
        }
        let open = app.connections.contains(&connection);
        (
            connection,
            open.then_some(app.connections.len()),
            app.app.id.clone(),
        )
    });
    let Some(number) = number else {
        let _ = line
            .send(text_frame(
                &json!({"type": "disconnect", "reason": "too_many_websockets"}),
            ))
            .await;
        let _ = line.close(None).await;
        return;
    };
    let hello = json!({
        "type": "hello", "num_connections": number, "connection_info": {"app_id": app_id},
        "debug_info": {"host": "applink-double", "build_number": 1, "approximate_connection_time": 18_060},
    });
    if line.send(text_frame(&hello)).await.is_ok() {
        tokio::select! {
            _ = closing.changed() => {}
            () = run_socket(&double, app_index, connection, &mut line) => {}
        }
    }
    double.update(|world, ledger| world.apps[app_index].on_socket_closed(connection, ledger));
}

fn text_frame(value: &Value) -> Frame {
    Frame::text(value.to_string())
}

async fn run_socket(
    double: &Arc<ServiceDouble<SlackState>>,
    app_index: usize,
    connection: u64,
    line: &mut EventSocket,
) {
    let mut changes = double.watch_changes();
    let mut pings = tokio::time::interval(PING_INTERVAL);
    pings.tick().await;
    let mut end: Option<tokio::time::Instant> = None;
    let mut leaving = false;
    loop {
        changes.borrow_and_update();
        if !double.view(|view| view.apps[app_index].is_muted) {
            while let Some(order) =
                double.update_silently(|world, _| world.apps[app_index].next_order(connection))
            {
                let frame = json!({"type": "disconnect", "reason": order, "debug_info": {"host": "applink-double"}});
                if line.send(text_frame(&frame)).await.is_err() {
                    return;
                }
                // After a warning, the connection stays open for some time. After any other order
                // of the test, the connection ends.
                leaving |= order != "warning";
                let timeout = if order == "warning" {
                    WARNING_BEFORE_END
                } else {
                    Duration::from_secs(1)
                };
                let scaled = double.view(|view| view.scale().scale_deadline(timeout));
                end = Some(tokio::time::Instant::now() + scaled);
            }
            let next = || {
                let now = Instant::now();
                double.update_silently(|world, ledger| {
                    world.apps[app_index].next(connection, now, ledger)
                })
            };
            while let Some(next) = if leaving { None } else { next() } {
                if line.send(text_frame(&next)).await.is_err() {
                    return;
                }
            }
        }
        let wake = double.view(|view| {
            view.apps[app_index]
                .next_wakeup(connection, view.scale().scale_deadline(ACKNOWLEDGE_TIMEOUT))
        });
        let wake = wake
            .map(tokio::time::Instant::from_std)
            .into_iter()
            .chain(end)
            .min();
        tokio::select! {
            _ = changes.changed() => {}
            () = async { match wake {
                Some(wake) => tokio::time::sleep_until(wake).await,
                None => std::future::pending().await,
            } } => {
                double.update(|world, ledger| world.apps[app_index].retry_unacknowledged(connection, ledger));
                if end.is_some_and(|instant| instant <= tokio::time::Instant::now()) {
                    let _ = line.close(None).await;
                    return;
                }
            }
            _ = pings.tick() => {
                let mute = double.view(|view| view.apps[app_index].is_muted);
                if !mute && line.send(Frame::Ping(Bytes::from_static(b"Ping from applink-double"))).await.is_err() {
                    return;
                }
            }
            received = line.next() => match received {
                Some(Ok(Frame::Text(said))) => {
                    double.update(|world, ledger| world.apps[app_index].on_acknowledged(connection, &said, ledger));
                }
                Some(Ok(Frame::Close(_))) => {
                    // Send the answer to the client's close frame, because the client waits for it.
                    let _ = line.flush().await;
                    return;
                }
                Some(Err(_)) | None => return,
                Some(Ok(_)) => {}
            }
        }
    }
}

impl SlackAppState {
    fn next_order(&mut self, connection: u64) -> Option<&'static str> {
        self.orders
            .get_mut(&connection)
            .and_then(std::collections::VecDeque::pop_front)
    }

    /// Returns the next event for this websocket. The app must acknowledge the event.
    fn next(&mut self, connection: u64, now: Instant, ledger: &mut CallRecords) -> Option<Value> {
        let ready = |slack_envelope: &&mut super::state::SlackEnvelope| {
            slack_envelope.state == EnvelopeState::Waiting
                && slack_envelope
                    .not_before
                    .is_none_or(|instant| instant <= now)
        };
        let envelope = self.open_envelopes().iter_mut().find(ready)?;
        if envelope.retries > 0 {
            // When an event is sent again, its envelope gets a new id. Only the id of the event
            // inside stays the same.
            let fresh = signature::fake_uuid(&format!("envelope {}", ledger.next()));
            let old = std::mem::replace(&mut envelope.envelope_id, fresh);
            envelope.older_ids.push(old);
        }
        envelope.state = EnvelopeState::Sent {
            connection,
            sent_at: now,
        };
        Some(socket_frame(envelope))
    }

    /// Returns the next time at which something must be done for this websocket: send an event,
    /// repeat one, or check a deadline.
    fn next_wakeup(&self, connection: u64, timeout: Duration) -> Option<Instant> {
        let deadline_of = |slack_envelope: &super::state::SlackEnvelope| match slack_envelope.state
        {
            EnvelopeState::Sent {
                connection: deadline_of,
                sent_at: at,
            } if deadline_of == connection => Some(at + timeout),
            EnvelopeState::Waiting => slack_envelope
                .not_before
                .filter(|instant| *instant > Instant::now()),
            _ => None,
        };
        self.envelopes[self.settled_count..]
            .iter()
            .filter_map(deadline_of)
            .min()
    }

    /// Queues an envelope (an event packed for an app) again if the app did not acknowledge it in
    /// time. Each envelope is repeated at most three times.
    fn retry_unacknowledged(&mut self, connection: u64, ledger: &mut CallRecords) {
        let (now, scale) = (Instant::now(), ledger.scale);
        let name = self.app.name.clone();
        for slack_envelope in self.open_envelopes() {
            let EnvelopeState::Sent {
                connection: of,
                sent_at: at,
            } = slack_envelope.state
            else {
                continue;
            };
            if of == connection && at + scale.scale_deadline(ACKNOWLEDGE_TIMEOUT) <= now {
                ledger.add_violation(
                    &name,
                    ViolationKind::Late,
                    format!(
                        "{} {} was not acknowledged",
                        slack_envelope.kind, slack_envelope.envelope_id
                    ),
                );
                slack_envelope.schedule_retry("timeout", now, scale);
            }
        }
    }

    fn on_acknowledged(&mut self, connection: u64, text: &str, ledger: &mut CallRecords) {
        let name = self.app.name.clone();
        let acknowledgement: Value = serde_json::from_str(text).unwrap_or_default();
        let id = acknowledgement["envelope_id"].as_str().unwrap_or_default();
        if self.envelopes.iter().any(|slack_envelope| {
            slack_envelope
                .older_ids
                .iter()
                .any(|older_id| older_id == id)
        }) {
            // The acknowledgement came too late. This is already recorded as a violation, and the
            // event is being sent again.
            return;
        }
        let Some(slack_envelope) = self
            .envelopes
            .iter_mut()
            .rev()
            .find(|slack_envelope| slack_envelope.envelope_id == id)
        else {
            ledger.add_violation(
                &name,
                ViolationKind::Unknown,
                format!("an acknowledgement without an envelope: {acknowledgement}"),
            );
            return;
        };
        match slack_envelope.state {
            EnvelopeState::Sent { connection: of, .. } if of != connection => {
                ledger.add_violation(
                    &name,
                    ViolationKind::WrongState,
                    format!("{id} was acknowledged on another socket"),
                );
            }
            EnvelopeState::Acknowledged => ledger.add_violation(
                &name,
                ViolationKind::WrongState,
                format!("{id} was acknowledged twice"),
            ),
            _ => {}
        }
        slack_envelope.state = EnvelopeState::Acknowledged;
        slack_envelope.acknowledged.get_or_insert(ledger.elapsed());
    }

    /// Handles the end of a websocket. Its unacknowledged envelopes (events packed for an app) are
    /// sent over the app's next websocket.
    fn on_socket_closed(&mut self, connection: u64, ledger: &mut CallRecords) {
        self.connections.retain(|n| *n != connection);
        self.orders.remove(&connection);
        let scale = ledger.scale;
        for slack_envelope in self.open_envelopes() {
            if matches!(slack_envelope.state, EnvelopeState::Sent { connection: of, .. } if of == connection)
            {
                slack_envelope.schedule_retry("timeout", Instant::now(), scale);
                // Send the envelope over the next websocket without delay.
                slack_envelope.not_before = None;
            }
        }
    }
}
