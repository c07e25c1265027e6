//! The state of the double: a Slack workspace with people, apps, and channels with their messages.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::double::{CallRecords, ServiceState};
use super::super::rate_limit::header_text;
use super::super::signature;

/// The data that an app must know about itself to use Slack.
#[derive(Clone, Debug)]
pub struct SlackApp {
    /// The name that people write after the @, such as `claude`.
    pub name: String,
    /// The app's id: `A…`.
    pub id: String,
    /// The id of the app's bot user, as mentions contain it: `U…`.
    pub bot_user: String,
    /// The id of the app's bot: `B…`.
    pub bot_id: String,
    /// The app's bot token, for API calls: `xoxb-…`.
    pub bot_token: String,
    /// The app's app-level token, for Socket Mode: `xapp-…`.
    pub app_token: String,
    pub signing_secret: String,
}

/// The way in which an app receives its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventTransport {
    Socket,
    /// The app receives its events as signed HTTP requests to this URL.
    Http(String),
}

/// A message in its present form.
#[derive(Clone, Debug)]
pub struct SlackMessage {
    pub ts: String,
    /// The `ts` of the first message of the thread, if this message is a reply.
    pub thread_ts: Option<String>,
    /// The user id of the author: a person or a bot.
    pub user: String,
    /// The app that posted the message. `None` if a person posted it.
    pub app: Option<String>,
    pub text: String,
    pub blocks: Value,
    pub metadata: Value,
    /// The only person who can see the message. `None` for a normal message.
    pub ephemeral_for: Option<String>,
    /// The reactions to the message in order, each with its emoji and user.
    pub reactions: Vec<(String, String)>,
    /// True if the message is still being streamed, false if its stream has ended. `None` if the
    /// message was never streamed.
    pub is_streaming: Option<bool>,
    /// The time when the message was posted, counted from the start of the double (the imitation of
    /// Slack). `changed` is the time when the message was last changed.
    pub posted: Duration,
    pub changed: Duration,
    /// All texts that the message has had, the present one last.
    pub versions: Vec<String>,
}

impl SlackMessage {
    /// Returns the `ts` of the first message of this message's thread. A message that is not a
    /// reply is the first message of its own thread.
    pub fn root(&self) -> &str {
        self.thread_ts.as_deref().unwrap_or(&self.ts)
    }

    /// Returns the `action_id` and the `value` of each button of the message.
    pub fn buttons(&self) -> Vec<(String, String)> {
        self.elements()
            .map(|element| {
                (
                    text_field(element, "action_id"),
                    text_field(element, "value"),
                )
            })
            .collect()
    }

    pub(crate) fn elements(&self) -> impl Iterator<Item = &Value> {
        let element_count = |block: &'_ Value| {
            block["elements"]
                .as_array()
                .cloned()
                .unwrap_or_default()
                .len()
        };
        let blocks = self
            .blocks
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        blocks.iter().flat_map(move |block| {
            let inner = (0..element_count(block)).map(|at| &block["elements"][at]);
            inner
                .chain(block.get("accessory"))
                .filter(|inner| inner["action_id"].is_string())
        })
    }
}

fn text_field(object: &Value, field: &str) -> String {
    object[field].as_str().unwrap_or_default().to_owned()
}

/// A channel or a direct conversation, with its messages.
#[derive(Clone, Debug)]
pub(crate) struct SlackChannel {
    pub(crate) id: String,
    pub(crate) name: String,
    /// The kind of channel: `channel` (public), `group` (private) or `im` (direct).
    pub(crate) kind: &'static str,
    pub(crate) members: BTreeSet<String>,
    pub(crate) messages: Vec<SlackMessage>,
}

/// An envelope: an event or interaction that an app must receive and acknowledge.
#[derive(Clone, Debug)]
pub struct SlackEnvelope {
    /// The kind of envelope: `events_api`, `interactive` or `slash_commands`.
    pub kind: &'static str,
    /// The event's id, which stays the same when the event is sent again. `None` for an
    /// interaction, such as a click.
    pub event_id: Option<String>,
    /// The id that the envelope (the event packed for an app) had when it was sent last.
    pub envelope_id: String,
    /// The ids that the envelope (the event packed for an app) had when it was sent earlier.
    pub(crate) older_ids: Vec<String>,
    pub payload: Value,
    /// The number of times that the envelope (the event packed for an app) was sent again.
    pub retries: u32,
    pub(crate) reason: &'static str,
    pub(crate) state: EnvelopeState,
    pub(crate) not_before: Option<Instant>,
    /// The time when the envelope was created, counted from the start of the double (the imitation
    /// of Slack). `acknowledged` is the time when the app acknowledged the envelope.
    pub created: Duration,
    pub acknowledged: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum EnvelopeState {
    Waiting,
    Sent { connection: u64, sent_at: Instant },
    Acknowledged,
    GivenUp,
}

pub(crate) struct SlackAppState {
    pub(crate) app: SlackApp,
    pub(crate) mode: EventTransport,
    /// The events to which the app is subscribed: `app_mention`, `message.channels`, …
    pub(crate) events: BTreeSet<String>,
    pub(crate) envelopes: Vec<SlackEnvelope>,
    /// The number of finished envelopes (events packed for an app) at the beginning of the list.
    /// They are skipped, because there can be thousands of them.
    pub(crate) settled_count: usize,
    pub(crate) connections: Vec<u64>,
    pub(crate) tickets: BTreeSet<String>,
    /// The actions that a test has ordered for the app's websockets and that are not carried out
    /// yet, by connection.
    pub(crate) orders: BTreeMap<u64, VecDeque<&'static str>>,
    /// True if the app's websockets send nothing, although they are open.
    pub(crate) is_muted: bool,
}

/// The state of the imitated Slack workspace.
pub struct SlackState {
    pub(crate) team: String,
    pub(crate) people: Vec<(String, String)>,
    pub(crate) apps: Vec<SlackAppState>,
    pub(crate) channels: Vec<SlackChannel>,
    last_timestamp: u64,
}

impl ServiceState for SlackState {
    fn rate_limit_answer(_: &str, seconds: f64) -> (u16, Vec<(&'static str, String)>, Value) {
        (
            429,
            vec![("retry-after", header_text(seconds))],
            json!({"ok": false, "error": "ratelimited"}),
        )
    }
}

impl SlackState {
    pub(crate) fn new() -> SlackState {
        SlackState {
            team: "T0REGATTA".into(),
            people: vec![],
            apps: vec![],
            channels: vec![],
            last_timestamp: 0,
        }
    }

    /// Returns the messages of a channel that people see now, by the channel's name or id.
    pub fn messages(&self, channel: &str) -> &[SlackMessage] {
        self.channel(channel)
            .map(|slack_channel| slack_channel.messages.as_slice())
            .unwrap_or_default()
    }

    /// Returns the replies to the message `root`, which is the first of a thread.
    pub fn thread<'a>(
        &'a self,
        channel: &str,
        root: &'a str,
    ) -> impl Iterator<Item = &'a SlackMessage> {
        self.messages(channel)
            .iter()
            .filter(move |slack_message| slack_message.thread_ts.as_deref() == Some(root))
    }

    /// Returns a message of a channel, if it exists.
    pub fn message(&self, channel: &str, ts: &str) -> Option<&SlackMessage> {
        self.messages(channel)
            .iter()
            .rev()
            .find(|slack_message| slack_message.ts == ts)
    }

    /// Returns the envelopes (events packed for an app), acknowledged or not.
    pub fn envelopes(&self, app: &str) -> &[SlackEnvelope] {
        self.apps
            .iter()
            .find(|slack_app_state| slack_app_state.app.name == app)
            .map(|slack_app_state| slack_app_state.envelopes.as_slice())
            .unwrap_or_default()
    }

    /// Returns the number of envelopes (events packed for an app) that an app has acknowledged.
    pub fn acknowledged(&self, app: &str) -> usize {
        self.envelopes(app)
            .iter()
            .filter(|slack_envelope| slack_envelope.acknowledged.is_some())
            .count()
    }

    /// Returns how many websockets of the app are open.
    pub fn sockets(&self, app: &str) -> usize {
        self.apps
            .iter()
            .find(|slack_app_state| slack_app_state.app.name == app)
            .map_or(0, |slack_app_state| slack_app_state.connections.len())
    }

    /// Returns the id of a person, an app's bot or a channel with this name.
    pub fn id(&self, name: &str) -> Option<&str> {
        let person = self
            .people
            .iter()
            .find(|people| people.1 == name || people.0 == name)
            .map(|people| people.0.as_str());
        let bot = || {
            self.apps.iter().find(|slack_app_state| {
                slack_app_state.app.name == name || slack_app_state.app.bot_user == name
            })
        };
        person
            .or_else(|| bot().map(|slack_app_state| slack_app_state.app.bot_user.as_str()))
            .or_else(|| {
                self.channel(name)
                    .map(|slack_channel| slack_channel.id.as_str())
            })
    }

    pub(crate) fn channel(&self, name: &str) -> Option<&SlackChannel> {
        self.channels
            .iter()
            .find(|slack_channel| slack_channel.id == name || slack_channel.name == name)
    }

    pub(crate) fn channel_mut(&mut self, id: &str) -> Option<&mut SlackChannel> {
        self.channels
            .iter_mut()
            .find(|slack_channel| slack_channel.id == id || slack_channel.name == id)
    }

    pub(crate) fn message_mut(&mut self, channel: &str, ts: &str) -> Option<&mut SlackMessage> {
        self.channel_mut(channel)?
            .messages
            .iter_mut()
            .rev()
            .find(|slack_message| slack_message.ts == ts)
    }

    /// Returns a timestamp that no other message has.
    pub(crate) fn next_timestamp(&mut self) -> String {
        self.last_timestamp = (self.last_timestamp + 1).max(
            signature::unix_time()
                .as_micros()
                .try_into()
                .unwrap_or(u64::MAX),
        );
        format!(
            "{}.{:06}",
            self.last_timestamp / 1_000_000,
            self.last_timestamp % 1_000_000
        )
    }

    /// Converts a text that a person typed to Slack's format: special characters are escaped, and
    /// mentions contain the id of the mentioned user.
    pub(crate) fn escape_typed(&self, text: &str) -> String {
        let mut escaped = text
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;");
        let mut names: Vec<(&str, &str)> = self
            .people
            .iter()
            .map(|people| (people.1.as_str(), people.0.as_str()))
            .collect();
        names.extend(self.apps.iter().map(|slack_app_state| {
            (
                slack_app_state.app.name.as_str(),
                slack_app_state.app.bot_user.as_str(),
            )
        }));
        // Replace the longest names first, so that `@claude-two` does not become `@claude` with a
        // suffix.
        names.sort_by_key(|name| std::cmp::Reverse(name.0.len()));
        for (name, id) in names {
            escaped = escaped.replace(&format!("@{name}"), &format!("<@{id}>"));
        }
        escaped
    }

    /// Adds a message to a channel and notifies the apps.
    pub(crate) fn add_message(
        &mut self,
        ledger: &mut CallRecords,
        channel: &str,
        message: SlackMessage,
    ) {
        let event = self.message_json(&message, false);
        if let Some(channel) = self.channel_mut(channel) {
            channel.messages.push(message.clone());
        }
        if message.ephemeral_for.is_none() {
            self.queue_message_event(ledger, channel, event, &message);
        }
    }

    /// Returns a message as JSON in the format of Slack's API.
    pub(crate) fn message_json(&self, message: &SlackMessage, metadata: bool) -> Value {
        let mut value = json!({
            "type": "message", "user": message.user, "text": message.text, "ts": message.ts, "team": self.team,
        });
        if let Some(thread) = &message.thread_ts {
            value["thread_ts"] = json!(thread);
        }
        if message
            .blocks
            .as_array()
            .is_some_and(|blocks| !blocks.is_empty())
        {
            value["blocks"] = message.blocks.clone();
        }
        if let Some(app) = message.app.as_ref().and_then(|name| {
            self.apps
                .iter()
                .find(|slack_app_state| slack_app_state.app.name == *name)
        }) {
            let app = &app.app;
            value["bot_id"] = json!(app.bot_id);
            value["app_id"] = json!(app.id);
            value["bot_profile"] =
                json!({"id": app.bot_id, "app_id": app.id, "name": app.name, "team_id": self.team});
        } else {
            value["client_msg_id"] = json!(signature::fake_uuid(&message.ts));
        }
        if metadata && !message.metadata.is_null() {
            value["metadata"] = message.metadata.clone();
        }
        if message.versions.len() > 1 {
            value["edited"] = json!({"user": message.user, "ts": message.ts});
        }
        if !message.reactions.is_empty() {
            let mut grouped: Vec<(String, Vec<String>)> = vec![];
            for (name, user) in &message.reactions {
                match grouped.iter_mut().find(|grouped| grouped.0 == *name) {
                    Some(group) => group.1.push(user.clone()),
                    None => grouped.push((name.clone(), vec![user.clone()])),
                }
            }
            let reaction_json = |(name, users): (String, Vec<String>)| json!({"name": name, "count": users.len(), "users": users});
            value["reactions"] = grouped.into_iter().map(reaction_json).collect();
        }
        value
    }
}
