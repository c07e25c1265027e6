//! Receives events from Slack, through a WebSocket (Socket Mode) or as signed HTTP requests.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::HeaderMap;
use futures_util::stream::FuturesUnordered;
use futures_util::{SinkExt, StreamExt};
use regatta_core::ids::{ApprovalId, ConversationId};
use serde_json::{Value, json};
use tokio_tungstenite::connect_async;
use tokio_tungstenite::tungstenite::Message;

use crate::config::Secret;
use crate::intake::{Intake, unix_time_ms};
use crate::service::{
    Backoff, Inbound, IncomingEvent, IncomingMessage, ReceiveOutcome, ServiceError, ServiceFuture,
    header,
};
use crate::signature;

use super::api::SlackApi;
use super::markup;

/// Maximum age of a signed HTTP request. An older request is refused, because it may be a replay by
/// an attacker.
const MAX_REQUEST_AGE_S: u64 = 300;
/// Time without any data after which a WebSocket counts as broken. Slack sends pings far more
/// often.
const SOCKET_SILENCE_TIMEOUT: Duration = Duration::from_secs(120);
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// Maximum number of envelopes (Slack's packaging of an event) that are handled at the same time
/// per WebSocket. Slack waits three seconds for the answer to each envelope, no matter how many
/// arrive at the same time. Envelopes of the same thread are handled in order.
const MAX_CONCURRENT_ENVELOPES: usize = 16;
/// Maximum number of envelopes (Slack's packaging of events) that wait until an earlier envelope of
/// the same thread is handled.
const MAX_QUEUED_ENVELOPES: usize = 256;

/// An event in an envelope, as Slack sends it through the WebSocket.
struct SlackEnvelope {
    id: String,
    kind: String,
    payload: Value,
}

impl SlackEnvelope {
    /// Returns the thread to which the event belongs. Events of the same thread are handled in
    /// order.
    fn thread(&self) -> String {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (event, container) = (&self.payload["event"], &self.payload["container"]);
        let first_text = |preferred: &Value, fallback: &Value| {
            if preferred.is_string() {
                text(preferred)
            } else {
                text(fallback)
            }
        };
        // A deletion belongs to the thread of the deleted message, so that the deletion is handled
        // after the message.
        if let Some((root, _)) = deleted_message(event) {
            return format!("{}:{root}", text(&event["channel"]));
        }
        if event.is_object() {
            format!(
                "{}:{}",
                text(&event["channel"]),
                first_text(&event["thread_ts"], &event["ts"])
            )
        } else {
            format!(
                "{}:{}",
                text(&container["channel_id"]),
                first_text(&container["thread_ts"], &container["message_ts"])
            )
        }
    }
}

pub(crate) struct SlackInbound {
    api: Arc<SlackApi>,
    signing_secret: Option<Secret>,
    uses_socket: bool,
}

impl SlackInbound {
    pub(crate) fn new(
        api: Arc<SlackApi>,
        signing_secret: Option<Secret>,
        uses_socket: bool,
    ) -> SlackInbound {
        SlackInbound {
            api,
            signing_secret,
            uses_socket,
        }
    }

    /// Opens a WebSocket and handles its events until the WebSocket ends. Returns `Ok` if Slack
    /// asked the bridge to open a new WebSocket.
    async fn serve_socket(&self, intake: &Intake) -> Result<(), ServiceError> {
        let identity = self.api.identity().await?;
        intake.set_names(&[&identity.user, &identity.bot, &identity.name]);
        let url = self.api.open_socket().await?;
        let unknown = |error: tokio_tungstenite::tungstenite::Error| {
            ServiceError::OutcomeUnknown(format!("the socket broke: {error}"))
        };
        let (socket, _) = connect_async(url).await.map_err(unknown)?;
        let (mut write, mut read) = socket.split();
        let mut waiting_by_thread: HashMap<String, VecDeque<SlackEnvelope>> = HashMap::new();
        let mut in_progress = FuturesUnordered::new();
        let mut last_frame = Instant::now();
        loop {
            let waiting: usize = waiting_by_thread.values().map(VecDeque::len).sum();
            let next = tokio::select! {
                Some((thread, id, handled)) = in_progress.next() => {
                    match handled {
                        // Acknowledge the envelope only now, after its event is stored, because
                        // Slack never sends an acknowledged envelope again.
                        Ok(()) => {
                            let ack = json!({"envelope_id": id}).to_string();
                            write.send(Message::text(ack)).await.map_err(unknown)?;
                        }
                        Err(why) => tracing::warn!(agent = %intake.agent, "could not store an event from Slack for \
                            the agent {}, so the event is not acknowledged and Slack will send it again: {why}", intake.agent),
                    }
                    match waiting_by_thread.get_mut(&thread).and_then(VecDeque::pop_front) {
                        Some(envelope) => in_progress.push(self.handle_envelope(intake, thread, envelope)),
                        None => _ = waiting_by_thread.remove(&thread),
                    }
                    continue;
                }
                next = read.next(), if in_progress.len() < MAX_CONCURRENT_ENVELOPES && waiting < MAX_QUEUED_ENVELOPES => next,
                () = tokio::time::sleep_until((last_frame + SOCKET_SILENCE_TIMEOUT).into()) => {
                    return Err(ServiceError::OutcomeUnknown("the socket was silent for too long".into()));
                }
            };
            last_frame = Instant::now();
            let text = match next {
                None => return Err(ServiceError::OutcomeUnknown("the socket was closed".into())),
                Some(Err(error)) => return Err(unknown(error)),
                Some(Ok(Message::Text(text))) => text,
                Some(Ok(Message::Close(_))) => {
                    return Err(ServiceError::OutcomeUnknown("the socket was closed".into()));
                }
                Some(Ok(_)) => continue, // the library answers pings
            };
            let Ok(frame) = serde_json::from_str::<Value>(&text) else {
                continue;
            };
            match frame["type"].as_str() {
                Some("hello") => intake.on_connected().await,
                Some("disconnect") => {
                    return match frame["reason"].as_str() {
                        Some("link_disabled") => Err(ServiceError::Unauthorized(
                            "Socket Mode is switched off for the app".into(),
                        )),
                        // Return without an error. Slack sends the unacknowledged envelopes again
                        // through the next WebSocket.
                        _ => Ok(()),
                    };
                }
                _ => {}
            }
            let Some(id) = frame["envelope_id"].as_str() else {
                continue;
            };
            if intake.is_paused() {
                continue; // Slack sends it again
            }
            let kind = frame["type"].as_str().unwrap_or_default().to_owned();
            let envelope = SlackEnvelope {
                id: id.to_owned(),
                kind,
                payload: frame["payload"].clone(),
            };
            let thread = envelope.thread();
            match waiting_by_thread.entry(thread.clone()) {
                Entry::Occupied(mut waiting_envelopes) => {
                    waiting_envelopes.get_mut().push_back(envelope)
                }
                Entry::Vacant(waiting_envelopes) => {
                    waiting_envelopes.insert(VecDeque::new());
                    in_progress.push(self.handle_envelope(intake, thread, envelope));
                }
            }
        }
    }

    /// Handles the event in an envelope. Returns the event's thread, the envelope's id and the
    /// result.
    async fn handle_envelope(
        &self,
        intake: &Intake,
        thread: String,
        envelope: SlackEnvelope,
    ) -> (String, String, Result<(), String>) {
        let handled = self.handle(intake, &envelope.kind, &envelope.payload).await;
        (thread, envelope.id, handled)
    }

    async fn handle(&self, intake: &Intake, kind: &str, payload: &Value) -> Result<(), String> {
        for event in self.parse_payload(intake, kind, payload).await {
            intake.accept(event).await?;
        }
        Ok(())
    }

    async fn parse_payload(
        &self,
        intake: &Intake,
        kind: &str,
        payload: &Value,
    ) -> Vec<IncomingEvent> {
        match kind {
            "events_api" => self
                .parse_event(intake, payload)
                .await
                .into_iter()
                .collect(),
            "interactive" => self
                .parse_click(intake, payload)
                .await
                .into_iter()
                .collect(),
            _ => vec![],
        }
    }

    async fn parse_event(&self, intake: &Intake, payload: &Value) -> Option<IncomingEvent> {
        let event = &payload["event"];
        let text = |name: &str| event[name].as_str().unwrap_or_default();
        if text("type") == "agent_session_stopped" {
            let team = payload["team_id"].as_str().unwrap_or_default();
            let thread = format!("slack:{team}:{}:{}", text("channel"), text("thread_ts"));
            let requester = self.api.requester(text("user"), None).await;
            let delivery = payload["event_id"].as_str().unwrap_or_default().to_owned();
            return Some(IncomingEvent::StopRequested {
                delivery,
                key: format!("{thread}:{}", intake.agent),
                requester,
            });
        }
        if !matches!(text("type"), "app_mention" | "message") {
            return None;
        }
        if let Some((root, ts)) = deleted_message(event) {
            let team = match payload["team_id"].as_str().filter(|team| !team.is_empty()) {
                Some(team) => team.to_owned(),
                None => self.api.identity().await.ok()?.team,
            };
            let key = format!("slack:{team}:{}:{root}:{}", text("channel"), intake.agent);
            return Some(IncomingEvent::MessageDeleted {
                key,
                source: ts.to_owned(),
                requester: Default::default(),
            });
        }
        // Ignore messages of other subtypes, such as edits and joins, because they contain no new
        // message.
        if !matches!(
            text("subtype"),
            "" | "file_share" | "thread_broadcast" | "bot_message"
        ) {
            return None;
        }
        let identity = self.api.identity().await.ok()?;
        let (user, bot) = (text("user"), text("bot_id"));
        if user == identity.user || (!bot.is_empty() && bot == identity.bot) {
            return None; // our own message
        }
        let (channel, ts) = (text("channel"), text("ts"));
        if channel.is_empty() || ts.is_empty() {
            return None;
        }
        let root = if text("thread_ts").is_empty() {
            ts
        } else {
            text("thread_ts")
        };
        let team = payload["team_id"]
            .as_str()
            .filter(|team| !team.is_empty())
            .unwrap_or(&identity.team);
        let thread = format!("slack:{team}:{channel}:{root}");
        let key = format!("{thread}:{}", intake.agent);
        let mentions = markup::mentioned_ids(text("text"));
        let is_mentioned = mentions.contains(&identity.user)
            || text("type") == "app_mention"
            || text("channel_type") == "im";
        if !is_mentioned && !intake.has_conversation(&key) {
            return None; // not for this agent, so nothing is looked up
        }
        let mut requester = match (bot.is_empty(), user.is_empty()) {
            (true, false) => self.api.requester(user, event["user_team"].as_str()).await,
            _ => crate::config::Requester {
                id: if user.is_empty() { bot } else { user }.into(),
                ..Default::default()
            },
        };
        requester.is_bot |= !bot.is_empty();
        let mut context = None;
        if is_mentioned && intake.needs_context(channel) && root != ts {
            context = self.thread_text(channel, root, ts).await;
        }
        let address = [("channel", channel), ("thread_ts", root), ("team", team)];
        Some(IncomingEvent::Message(IncomingMessage {
            delivery: format!("{channel}:{ts}"),
            channel: channel.to_owned(),
            thread,
            key,
            address: address
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect::<BTreeMap<_, _>>(),
            title: if is_mentioned {
                self.api.channel_name(channel).await
            } else {
                channel.to_owned()
            },
            url: None,
            author: requester,
            text: markup::plain_text(text("text"), &identity.user),
            source: ts.to_owned(),
            mentions_agent: is_mentioned,
            // If a message begins with the mention of another user, it is addressed to that user.
            addresses_another: !is_mentioned
                && (text("text").trim_start().starts_with("<@")
                    || mentions
                        .iter()
                        .any(|mention| intake.is_other_agent(mention))),
            context,
            attachments: attachment_names(event),
            pull: None,
        }))
    }

    /// Returns the visible messages of a thread that precede the message `before`.
    async fn thread_text(&self, channel: &str, root: &str, before: &str) -> Option<String> {
        let messages = self.api.thread_messages(channel, root).await.ok()?;
        let mut lines = Vec::new();
        for message in messages
            .iter()
            .filter(|message| message["ts"].as_str().is_some_and(|s| s < before))
        {
            let user = message["user"].as_str().unwrap_or_default();
            let requester = self.api.requester(user, None).await;
            let name = if requester.name.is_empty() {
                requester.id
            } else {
                requester.name
            };
            lines.push(format!(
                "{name}: {}",
                markup::plain_text(message["text"].as_str().unwrap_or_default(), "")
            ));
        }
        let text = lines.join("\n");
        let excess = text.chars().count().saturating_sub(16_000);
        (!text.is_empty()).then(|| text.chars().skip(excess).collect())
    }

    async fn parse_click(&self, intake: &Intake, payload: &Value) -> Option<IncomingEvent> {
        let action = payload["actions"].as_array()?.first()?;
        let (choice, subject) = action["value"].as_str()?.split_once(':')?;
        let user = payload["user"]["id"].as_str()?;
        let requester = self
            .api
            .requester(user, payload["user"]["team_id"].as_str())
            .await;
        let delivery = format!(
            "act:{}:{user}:{choice}:{subject}",
            action["action_ts"].as_str().unwrap_or_default()
        );
        if let Ok(approval) = subject.parse::<ApprovalId>()
            && subject.starts_with('Q')
        {
            return Some(IncomingEvent::ButtonPressed {
                delivery,
                approval,
                choice: choice.to_owned(),
                requester,
            });
        }
        let conversation: ConversationId = subject.parse().ok()?;
        // The button's value names a conversation. Accept this conversation only if it belongs to
        // the channel in which the button was pressed.
        let board = intake.board();
        let own_conversation = board
            .conversations
            .get(&conversation)
            .filter(|conversation| conversation.agent == intake.agent)?;
        let channel = payload["channel"]["id"].as_str();
        if own_conversation.address.get("channel").map(String::as_str) != channel {
            return None;
        }
        let key = own_conversation.key.clone();
        IncomingEvent::from_button(choice, delivery, key, requester)
    }
}

/// Returns the names of the files that are attached to a message.
fn attachment_names(event: &Value) -> Vec<String> {
    let files = event["files"].as_array().into_iter().flatten();
    let name = |file: &Value| {
        file["name"]
            .as_str()
            .or(file["title"].as_str())
            .unwrap_or("a file")
            .to_owned()
    };
    files.map(name).collect()
}

/// Returns the thread and the id of the deleted message, if the event reports a deletion. If the
/// deleted message has replies, Slack reports that the message was replaced by a placeholder (a
/// tombstone).
fn deleted_message(event: &Value) -> Option<(&str, &str)> {
    let (changed, before) = (&event["message"], &event["previous_message"]);
    let ts = match event["subtype"].as_str()? {
        "message_deleted" => event["deleted_ts"].as_str().or(before["ts"].as_str())?,
        "message_changed" if changed["subtype"] == "tombstone" => changed["ts"].as_str()?,
        _ => return None,
    };
    let root = before["thread_ts"]
        .as_str()
        .or(changed["thread_ts"].as_str())
        .unwrap_or(ts);
    Some((root, ts))
}

impl Inbound for SlackInbound {
    fn run<'a>(&'a self, intake: &'a Intake) -> ServiceFuture<'a, ()> {
        Box::pin(async move {
            let mut backoff = Backoff::new(RETRY_DELAY);
            loop {
                let result = if self.uses_socket {
                    self.serve_socket(intake).await
                } else {
                    // Without Socket Mode, events arrive as HTTP requests in `receive`, so this
                    // function only looks up the app's identity.
                    match self.api.identity().await {
                        Ok(identity) => {
                            intake.set_names(&[&identity.user, &identity.bot, &identity.name]);
                            intake.on_connected().await;
                            return;
                        }
                        Err(error) => Err(error),
                    }
                };
                let health = intake.directory.health(intake.service, &intake.agent);
                if result.is_ok() || health.connected.is_some() {
                    backoff.reset();
                }
                if let Err(error) = result {
                    intake.on_disconnected(&error).await;
                    backoff.wait_after(&error).await;
                }
            }
        })
    }

    fn receive<'a>(
        &'a self,
        intake: &'a Intake,
        headers: &'a HeaderMap,
        body: &'a [u8],
    ) -> ServiceFuture<'a, ReceiveOutcome> {
        Box::pin(async move {
            let Some(secret) = &self.signing_secret else {
                return ReceiveOutcome::refused(503, "no signing secret is set for this agent");
            };
            let header = |name: &str| header(headers, name);
            let timestamp = header("x-slack-request-timestamp");
            let signature_header = header("x-slack-signature")
                .strip_prefix("v0=")
                .unwrap_or_default();
            if !signature::is_valid(
                secret,
                &[b"v0:", timestamp.as_bytes(), b":", body],
                signature_header,
            ) {
                return ReceiveOutcome::refused(401, "the signature is not Slack's");
            }
            let is_fresh = timestamp
                .parse::<u64>()
                .is_ok_and(|sent_s| (unix_time_ms() / 1_000).abs_diff(sent_s) <= MAX_REQUEST_AGE_S);
            if !is_fresh {
                return ReceiveOutcome::refused(401, "the request is too old");
            }
            let is_form = header("content-type").starts_with("application/x-www-form-urlencoded");
            let (kind, payload) = if is_form {
                ("interactive", form_payload(body))
            } else {
                ("events_api", serde_json::from_slice(body).ok())
            };
            let Some(payload) = payload else {
                return ReceiveOutcome::refused(400, "the request cannot be parsed");
            };
            if payload["type"] == "url_verification" {
                return ReceiveOutcome::Answer(
                    payload["challenge"].as_str().unwrap_or_default().to_owned(),
                );
            }
            ReceiveOutcome::Events(self.parse_payload(intake, kind, &payload).await)
        })
    }
}

/// Returns the parsed JSON of the field `payload` in a web form.
fn form_payload(body: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(body).ok()?;
    let field = text
        .split('&')
        .find_map(|field| field.strip_prefix("payload="))?;
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let (high, low) = (rest.next()?, rest.next()?);
                let digit = |byte: u8| {
                    char::from(byte)
                        .to_digit(16)
                        .and_then(|n| u8::try_from(n).ok())
                };
                digit(high)? * 16 + digit(low)?
            }
            other => other,
        });
    }
    serde_json::from_slice(&bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deletion_has_its_thread_and_its_message() {
        let reply = json!({ "thread_ts": "17.1", "ts": "17.2" });
        for (event, expected) in [
            (
                json!({ "subtype": "message_deleted", "deleted_ts": "17.2", "previous_message": reply }),
                Some(("17.1", "17.2")),
            ),
            (
                json!({ "subtype": "message_deleted", "deleted_ts": "17.1" }),
                Some(("17.1", "17.1")),
            ),
            (
                json!({ "subtype": "message_changed", "message": { "subtype": "tombstone", "ts": "17.1" } }),
                Some(("17.1", "17.1")),
            ),
            (
                json!({ "subtype": "message_changed", "message": { "ts": "17.1", "text": "edited" } }),
                None,
            ),
            (json!({ "ts": "17.1", "text": "hello" }), None),
        ] {
            assert_eq!(deleted_message(&event), expected, "{event}");
        }
        let envelope = |event: Value| SlackEnvelope {
            id: String::new(),
            kind: String::new(),
            payload: json!({ "event": event }),
        };
        let message = envelope(json!({ "channel": "C1", "thread_ts": "17.1", "ts": "17.2" }));
        let deletion = envelope(json!({
            "channel": "C1", "ts": "18.9", "subtype": "message_deleted", "deleted_ts": "17.2", "previous_message": reply
        }));
        assert_eq!(
            message.thread(),
            deletion.thread(),
            "a deletion has the place of its message, so it is handled later"
        );
    }
}
