//! A workspace: its people, its apps, its channels, and what was said in them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::desk::{Ledger, World};
use super::super::limit::in_words;
use super::super::sign;

/// What an app needs to know of itself.
#[derive(Clone, Debug)]
pub struct App {
    /// `claude`: what people write after the @.
    pub name: String,
    /// `A…`.
    pub id: String,
    /// `U…`: whom a mention names.
    pub bot_user: String,
    /// `B…`.
    pub bot_id: String,
    /// `xoxb-…`.
    pub bot_token: String,
    /// `xapp-…`.
    pub app_token: String,
    pub signing_secret: String,
}

/// How an app takes its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    Socket,
    /// Signed requests to this URL.
    Http(String),
}

/// A message, as it stands now.
#[derive(Clone, Debug)]
pub struct Message {
    pub ts: String,
    /// The root of its thread, if it is a reply.
    pub thread_ts: Option<String>,
    /// Who wrote it: a person's or a bot's user id.
    pub user: String,
    /// The app that posted it.
    pub app: Option<String>,
    pub text: String,
    pub blocks: Value,
    pub metadata: Value,
    /// Only this person sees it.
    pub only_for: Option<String>,
    /// Name of the emoji and who reacted, in order.
    pub reactions: Vec<(String, String)>,
    /// Whether it is being streamed now; nothing for a message that never was a stream.
    pub streaming: Option<bool>,
    /// When it came, and when it was last changed, since the double began.
    pub posted: Duration,
    pub changed: Duration,
    /// Every text it had, the present one last.
    pub versions: Vec<String>,
}

impl Message {
    /// The root of the thread it is in or could begin.
    pub fn root(&self) -> &str {
        self.thread_ts.as_deref().unwrap_or(&self.ts)
    }

    /// Every action that can be clicked: `action_id` and `value`.
    pub fn buttons(&self) -> Vec<(String, String)> {
        self.elements().map(|it| (text(it, "action_id"), text(it, "value"))).collect()
    }

    pub(crate) fn elements(&self) -> impl Iterator<Item = &Value> {
        let of = |block: &'_ Value| block["elements"].as_array().cloned().unwrap_or_default().len();
        let blocks = self.blocks.as_array().map(Vec::as_slice).unwrap_or_default();
        blocks.iter().flat_map(move |block| {
            let inner = (0..of(block)).map(|at| &block["elements"][at]);
            inner.chain(block.get("accessory")).filter(|it| it["action_id"].is_string())
        })
    }
}

fn text(of: &Value, field: &str) -> String {
    of[field].as_str().unwrap_or_default().to_owned()
}

/// A place where things are said.
#[derive(Clone, Debug)]
pub(crate) struct Channel {
    pub(crate) id: String,
    pub(crate) name: String,
    /// `channel`, `group` or `im`.
    pub(crate) kind: &'static str,
    pub(crate) members: BTreeSet<String>,
    pub(crate) messages: Vec<Message>,
}

/// What an app is to be told, until it has acknowledged it.
#[derive(Clone, Debug)]
pub struct Envelope {
    /// `events_api`, `interactive` or `slash_commands`.
    pub kind: &'static str,
    /// The same at every attempt; nothing for what is no event.
    pub event_id: Option<String>,
    /// Of the last attempt.
    pub envelope_id: String,
    /// Of the attempts before.
    pub(crate) older_ids: Vec<String>,
    pub payload: Value,
    /// How often it was sent before.
    pub retries: u32,
    pub(crate) reason: &'static str,
    pub(crate) state: State,
    pub(crate) not_before: Option<Instant>,
    /// When it came to be, and when it was acknowledged, since the double began.
    pub made: Duration,
    pub acknowledged: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum State {
    Waiting,
    Sent { connection: u64, at: Instant },
    Done,
    GivenUp,
}

pub(crate) struct AppState {
    pub(crate) app: App,
    pub(crate) mode: Mode,
    /// `app_mention`, `message.channels`, …
    pub(crate) events: BTreeSet<String>,
    pub(crate) envelopes: Vec<Envelope>,
    /// So many of them, from the first, are done with: thousands are not looked at again for each that comes.
    pub(crate) settled: usize,
    pub(crate) connections: Vec<u64>,
    pub(crate) tickets: BTreeSet<String>,
    /// What its sockets are to be told, by connection.
    pub(crate) orders: BTreeMap<u64, VecDeque<&'static str>>,
    /// Its sockets fall silent without closing.
    pub(crate) mute: bool,
}

/// The workspace.
pub struct Workspace {
    pub(crate) team: String,
    pub(crate) people: Vec<(String, String)>,
    pub(crate) apps: Vec<AppState>,
    pub(crate) channels: Vec<Channel>,
    last: u64,
}

impl World for Workspace {
    fn limited(_: &str, seconds: f64) -> (u16, Vec<(&'static str, String)>, Value) {
        (429, vec![("retry-after", in_words(seconds))], json!({"ok": false, "error": "ratelimited"}))
    }
}

impl Workspace {
    pub(crate) fn new() -> Workspace {
        Workspace { team: "T0REGATTA".into(), people: vec![], apps: vec![], channels: vec![], last: 0 }
    }

    /// The visible messages of a channel, by its name or id.
    pub fn messages(&self, channel: &str) -> &[Message] {
        self.channel(channel).map(|it| it.messages.as_slice()).unwrap_or_default()
    }

    /// The replies to this message, without it.
    pub fn thread<'a>(&'a self, channel: &str, root: &'a str) -> impl Iterator<Item = &'a Message> {
        self.messages(channel).iter().filter(move |it| it.thread_ts.as_deref() == Some(root))
    }

    /// One message.
    pub fn message(&self, channel: &str, ts: &str) -> Option<&Message> {
        self.messages(channel).iter().rev().find(|it| it.ts == ts)
    }

    /// What an app was sent, acknowledged or not.
    pub fn envelopes(&self, app: &str) -> &[Envelope] {
        self.apps.iter().find(|it| it.app.name == app).map(|it| it.envelopes.as_slice()).unwrap_or_default()
    }

    /// How much of what an app was sent it has acknowledged.
    pub fn acknowledged(&self, app: &str) -> usize {
        self.envelopes(app).iter().filter(|it| it.acknowledged.is_some()).count()
    }

    /// How many sockets of this app are open.
    pub fn sockets(&self, app: &str) -> usize {
        self.apps.iter().find(|it| it.app.name == app).map_or(0, |it| it.connections.len())
    }

    /// The id of a person, an app's bot or a channel.
    pub fn id(&self, name: &str) -> Option<&str> {
        let person = self.people.iter().find(|it| it.1 == name || it.0 == name).map(|it| it.0.as_str());
        let bot = || self.apps.iter().find(|it| it.app.name == name || it.app.bot_user == name);
        person
            .or_else(|| bot().map(|it| it.app.bot_user.as_str()))
            .or_else(|| self.channel(name).map(|it| it.id.as_str()))
    }

    pub(crate) fn channel(&self, name: &str) -> Option<&Channel> {
        self.channels.iter().find(|it| it.id == name || it.name == name)
    }

    pub(crate) fn channel_mut(&mut self, id: &str) -> Option<&mut Channel> {
        self.channels.iter_mut().find(|it| it.id == id || it.name == id)
    }

    pub(crate) fn message_mut(&mut self, channel: &str, ts: &str) -> Option<&mut Message> {
        self.channel_mut(channel)?.messages.iter_mut().rev().find(|it| it.ts == ts)
    }

    /// A timestamp that no other message has.
    pub(crate) fn stamp(&mut self) -> String {
        self.last = (self.last + 1).max(sign::now().as_micros().try_into().unwrap_or(u64::MAX));
        format!("{}.{:06}", self.last / 1_000_000, self.last % 1_000_000)
    }

    /// What a person typed, as Slack hands it on: escaped, with mentions by id.
    pub(crate) fn typed(&self, text: &str) -> String {
        let mut escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let mut names: Vec<(&str, &str)> = self.people.iter().map(|it| (it.1.as_str(), it.0.as_str())).collect();
        names.extend(self.apps.iter().map(|it| (it.app.name.as_str(), it.app.bot_user.as_str())));
        // The longest first, so that `@claude-two` is not `@claude` with a tail.
        names.sort_by_key(|it| std::cmp::Reverse(it.0.len()));
        for (name, id) in names {
            escaped = escaped.replace(&format!("@{name}"), &format!("<@{id}>"));
        }
        escaped
    }

    /// Puts a message into a channel and tells the apps.
    pub(crate) fn put(&mut self, ledger: &mut Ledger, channel: &str, message: Message) {
        let event = self.json(&message, false);
        if let Some(channel) = self.channel_mut(channel) {
            channel.messages.push(message.clone());
        }
        if message.only_for.is_none() {
            self.tell_message(ledger, channel, event, &message);
        }
    }

    /// A message as the API shows it.
    pub(crate) fn json(&self, message: &Message, metadata: bool) -> Value {
        let mut it = json!({
            "type": "message", "user": message.user, "text": message.text, "ts": message.ts, "team": self.team,
        });
        if let Some(thread) = &message.thread_ts {
            it["thread_ts"] = json!(thread);
        }
        if message.blocks.as_array().is_some_and(|it| !it.is_empty()) {
            it["blocks"] = message.blocks.clone();
        }
        if let Some(app) = message.app.as_ref().and_then(|name| self.apps.iter().find(|it| it.app.name == *name)) {
            let app = &app.app;
            it["bot_id"] = json!(app.bot_id);
            it["app_id"] = json!(app.id);
            it["bot_profile"] = json!({"id": app.bot_id, "app_id": app.id, "name": app.name, "team_id": self.team});
        } else {
            it["client_msg_id"] = json!(sign::uuid(&message.ts));
        }
        if metadata && !message.metadata.is_null() {
            it["metadata"] = message.metadata.clone();
        }
        if message.versions.len() > 1 {
            it["edited"] = json!({"user": message.user, "ts": message.ts});
        }
        if !message.reactions.is_empty() {
            let mut grouped: Vec<(String, Vec<String>)> = vec![];
            for (name, user) in &message.reactions {
                match grouped.iter_mut().find(|it| it.0 == *name) {
                    Some(group) => group.1.push(user.clone()),
                    None => grouped.push((name.clone(), vec![user.clone()])),
                }
            }
            let of = |(name, users): (String, Vec<String>)| json!({"name": name, "count": users.len(), "users": users});
            it["reactions"] = grouped.into_iter().map(of).collect();
        }
        it
    }
}
