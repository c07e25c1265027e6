//! Socket Mode: connections, their frames, and the acknowledgements that they wait for.

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

use super::super::desk::{Desk, Ledger, Wrong};
use super::super::door::{Asked, Reply};
use super::super::sign;
use super::events::frame;
use super::world::{AppState, State, Workspace};

/// The deadline for the acknowledgement of an envelope.
pub const ACKNOWLEDGE: Duration = Duration::from_secs(3);
/// The largest number of sockets for one app.
pub const SOCKETS: usize = 10;
/// How often the service sends a ping. [`WARNING`] is the time between a warning and the end of a
/// connection.
const PING: Duration = Duration::from_secs(5);
const WARNING: Duration = Duration::from_secs(10);
/// The delays after which an unacknowledged event is sent again.
pub(crate) const RETRIES: [Duration; 3] = [Duration::ZERO, Duration::from_secs(60), Duration::from_secs(300)];

type Line = WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>;

/// Answers the upgrade, and then serves the socket.
pub(crate) async fn open(desk: Arc<Desk<Workspace>>, asked: Asked) -> Reply {
    let ticket = asked.query("ticket").unwrap_or_default().to_owned();
    let key = asked.header("sec-websocket-key").map(|it| derive_accept_key(it.as_bytes()));
    let found = desk.change(|world, ledger| {
        let found = world.apps.iter_mut().position(|it| it.tickets.remove(&ticket));
        if found.is_none() {
            ledger.wrong("", Wrong::Auth, "a socket's ticket is unknown or was used before");
        }
        found
    });
    let (Some(at), Some(key), Some(upgrade)) = (found, key, asked.upgrade) else {
        let refusal = Response::builder().status(404).body(Full::new(Bytes::new())).expect("the response is valid");
        return Reply::Answer(refusal);
    };
    tokio::spawn(async move {
        if let Ok(upgraded) = upgrade.await {
            let line = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await;
            serve(desk, at, line).await;
        }
    });
    let response = Response::builder()
        .status(101)
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-accept", key)
        .body(Full::new(Bytes::new()))
        .expect("the response is valid");
    Reply::Answer(response)
}

async fn serve(desk: Arc<Desk<Workspace>>, at: usize, mut line: Line) {
    let mut gone = desk.door().gone();
    let (connection, number, app_id) = desk.change(|world, ledger| {
        let app = &mut world.apps[at];
        let connection = ledger.next();
        if app.connections.len() < SOCKETS {
            app.connections.push(connection);
            app.orders.insert(connection, Default::default());
        } else {
            ledger.wrong(&app.app.name, Wrong::Limit, format!("more than {SOCKETS} sockets"));
        }
        let open = app.connections.contains(&connection);
        (connection, open.then_some(app.connections.len()), app.app.id.clone())
    });
    let Some(number) = number else {
        let _ = line.send(text(&json!({"type": "disconnect", "reason": "too_many_websockets"}))).await;
        let _ = line.close(None).await;
        return;
    };
    let hello = json!({
        "type": "hello", "num_connections": number, "connection_info": {"app_id": app_id},
        "debug_info": {"host": "applink-double", "build_number": 1, "approximate_connection_time": 18_060},
    });
    if line.send(text(&hello)).await.is_ok() {
        tokio::select! {
            _ = gone.changed() => {}
            () = talk(&desk, at, connection, &mut line) => {}
        }
    }
    desk.change(|world, ledger| world.apps[at].hang_up(connection, ledger));
}

fn text(value: &Value) -> Frame {
    Frame::text(value.to_string())
}

async fn talk(desk: &Arc<Desk<Workspace>>, at: usize, connection: u64, line: &mut Line) {
    let mut changes = desk.changes();
    let mut pings = tokio::time::interval(PING);
    pings.tick().await;
    let mut end: Option<tokio::time::Instant> = None;
    let mut leaving = false;
    loop {
        changes.borrow_and_update();
        if !desk.view(|view| view.apps[at].mute) {
            while let Some(order) = desk.change_quietly(|world, _| world.apps[at].order(connection)) {
                let frame = json!({"type": "disconnect", "reason": order, "debug_info": {"host": "applink-double"}});
                if line.send(text(&frame)).await.is_err() {
                    return;
                }
                // After a warning the connection works for a while.
                leaving |= order != "warning";
                let patience = if order == "warning" { WARNING } else { Duration::from_secs(1) };
                let scaled = desk.view(|view| view.scale().deadline(patience));
                end = Some(tokio::time::Instant::now() + scaled);
            }
            let next = || {
                let now = Instant::now();
                desk.change_quietly(|world, ledger| world.apps[at].next(connection, now, ledger))
            };
            while let Some(next) = if leaving { None } else { next() } {
                if line.send(text(&next)).await.is_err() {
                    return;
                }
            }
        }
        let wake = desk.view(|view| view.apps[at].wake(connection, view.scale().deadline(ACKNOWLEDGE)));
        let wake = wake.map(tokio::time::Instant::from_std).into_iter().chain(end).min();
        tokio::select! {
            _ = changes.changed() => {}
            () = async { match wake {
                Some(wake) => tokio::time::sleep_until(wake).await,
                None => std::future::pending().await,
            } } => {
                desk.change(|world, ledger| world.apps[at].expire(connection, ledger));
                if end.is_some_and(|it| it <= tokio::time::Instant::now()) {
                    let _ = line.close(None).await;
                    return;
                }
            }
            _ = pings.tick() => {
                let mute = desk.view(|view| view.apps[at].mute);
                if !mute && line.send(Frame::Ping(Bytes::from_static(b"Ping from applink-double"))).await.is_err() {
                    return;
                }
            }
            received = line.next() => match received {
                Some(Ok(Frame::Text(said))) => {
                    desk.change(|world, ledger| world.apps[at].acknowledged(connection, &said, ledger));
                }
                Some(Ok(Frame::Close(_))) => {
                    // The client waits for the answer to its close frame.
                    let _ = line.flush().await;
                    return;
                }
                Some(Err(_)) | None => return,
                Some(Ok(_)) => {}
            }
        }
    }
}

impl AppState {
    fn order(&mut self, connection: u64) -> Option<&'static str> {
        self.orders.get_mut(&connection).and_then(std::collections::VecDeque::pop_front)
    }

    /// Returns the next frame for this socket. From now on the socket must acknowledge it.
    fn next(&mut self, connection: u64, now: Instant, ledger: &mut Ledger) -> Option<Value> {
        let ready =
            |it: &&mut super::world::Envelope| it.state == State::Waiting && it.not_before.is_none_or(|it| it <= now);
        let envelope = self.unsettled().iter_mut().find(ready)?;
        if envelope.retries > 0 {
            // A retry has a new envelope id; only the event in it is the same.
            let fresh = sign::uuid(&format!("envelope {}", ledger.next()));
            let old = std::mem::replace(&mut envelope.envelope_id, fresh);
            envelope.older_ids.push(old);
        }
        envelope.state = State::Sent { connection, at: now };
        Some(frame(envelope))
    }

    /// Returns when this socket has to be checked again.
    fn wake(&self, connection: u64, patience: Duration) -> Option<Instant> {
        let of = |it: &super::world::Envelope| match it.state {
            State::Sent { connection: of, at } if of == connection => Some(at + patience),
            State::Waiting => it.not_before.filter(|it| *it > Instant::now()),
            _ => None,
        };
        self.envelopes[self.settled..].iter().filter_map(of).min()
    }

    /// Sends unacknowledged envelopes again, at most three times.
    fn expire(&mut self, connection: u64, ledger: &mut Ledger) {
        let (now, scale) = (Instant::now(), ledger.scale);
        let name = self.app.name.clone();
        for it in self.unsettled() {
            let State::Sent { connection: of, at } = it.state else { continue };
            if of == connection && at + scale.deadline(ACKNOWLEDGE) <= now {
                ledger.wrong(&name, Wrong::Late, format!("{} {} was not acknowledged", it.kind, it.envelope_id));
                it.again("timeout", now, scale);
            }
        }
    }

    fn acknowledged(&mut self, connection: u64, said: &str, ledger: &mut Ledger) {
        let name = self.app.name.clone();
        let said: Value = serde_json::from_str(said).unwrap_or_default();
        let id = said["envelope_id"].as_str().unwrap_or_default();
        if self.envelopes.iter().any(|it| it.older_ids.iter().any(|it| it == id)) {
            // The late acknowledgement was recorded as a violation, and the event is being sent
            // again.
            return;
        }
        let Some(it) = self.envelopes.iter_mut().rev().find(|it| it.envelope_id == id) else {
            ledger.wrong(&name, Wrong::Unknown, format!("an acknowledgement without an envelope: {said}"));
            return;
        };
        match it.state {
            State::Sent { connection: of, .. } if of != connection => {
                ledger.wrong(&name, Wrong::State, format!("{id} was acknowledged on another socket"));
            }
            State::Done => ledger.wrong(&name, Wrong::State, format!("{id} was acknowledged twice")),
            _ => {}
        }
        it.state = State::Done;
        it.acknowledged.get_or_insert(ledger.elapsed());
    }

    /// Handles the end of a socket. Its unacknowledged envelopes go to the next socket.
    fn hang_up(&mut self, connection: u64, ledger: &mut Ledger) {
        self.connections.retain(|it| *it != connection);
        self.orders.remove(&connection);
        let scale = ledger.scale;
        for it in self.unsettled() {
            if matches!(it.state, State::Sent { connection: of, .. } if of == connection) {
                it.again("timeout", Instant::now(), scale);
                // The next socket receives it at once.
                it.not_before = None;
            }
        }
    }
}
