//! The Web API: credentials, rate limits and methods.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::super::desk::{Answer, Desk, Ledger, Wrong, limited};
use super::super::door::{Asked, Reply, pairs};
use super::super::limit::Rule;
use super::super::sign;
use super::blocks::{self, length};
use super::world::{Message, Workspace};

const MINUTE: Duration = Duration::from_secs(60);
/// The burst of `chat.postMessage` and similar methods in one channel. The rate is one message per
/// second.
pub const BURST: u32 = 3;
/// The limit of posts per minute in all channels. Slack documents "several hundred".
pub const POSTS_PER_MINUTE: u32 = 300;

/// Returns the tier of a method: the number of calls per minute for one app in one workspace.
pub fn tier(method: &str) -> Option<u32> {
    Some(match method {
        "chat.startStream" | "chat.stopStream" | "reactions.remove" | "apps.connections.open" => 20,
        "chat.update" | "chat.delete" | "reactions.add" => 50,
        "conversations.info" | "conversations.replies" | "conversations.history" => 50,
        "chat.appendStream" | "chat.postEphemeral" | "users.info" => 100,
        "chat.postMessage" => POSTS_PER_MINUTE,
        "auth.test" => 600,
        _ => return None,
    })
}

/// The reason why a method fails.
struct Slip {
    error: &'static str,
    /// Set if the call breaks the contract, and does not only fail because of the current state.
    wrong: Option<(Wrong, String)>,
    more: Vec<String>,
}

fn slip(error: &'static str) -> Slip {
    Slip { error, wrong: None, more: vec![] }
}

fn fault(error: &'static str, wrong: Wrong, what: impl Into<String>) -> Slip {
    Slip { error, wrong: Some((wrong, what.into())), more: vec![] }
}

type Done = Result<Value, Slip>;

/// Methods that accept a JSON body. Slack documents that for methods that write. A method that
/// reads ignores the body, and answers as if no argument had been sent.
const TAKES_JSON: [&str; 9] = [
    "chat.postMessage",
    "chat.postEphemeral",
    "chat.update",
    "chat.delete",
    "chat.startStream",
    "chat.appendStream",
    "chat.stopStream",
    "reactions.add",
    "reactions.remove",
];

/// The largest number of messages on a page.
const MAX_PAGE: usize = 1000;

/// The arguments: a JSON object where the method accepts one, or a form whose structured fields are
/// JSON text.
struct Arguments(Map<String, Value>);

impl Arguments {
    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str).filter(|it| !it.is_empty())
    }

    fn needed(&self, name: &str, error: &'static str) -> Result<&str, Slip> {
        self.text(name).ok_or_else(|| fault(error, Wrong::Field, format!("{name} is missing")))
    }

    /// Returns a structured field from a JSON body or a form.
    fn structured(&self, name: &str, error: &'static str) -> Result<Value, Slip> {
        match self.0.get(name) {
            None => Ok(Value::Null),
            Some(Value::String(text)) if text.is_empty() => Ok(Value::Null),
            Some(Value::String(text)) => {
                serde_json::from_str(text).map_err(|it| fault(error, Wrong::Markup, format!("{name}: {it}")))
            }
            Some(other) => Ok(other.clone()),
        }
    }

    fn truth(&self, name: &str) -> bool {
        matches!(self.0.get(name), Some(Value::Bool(true)))
            || matches!(self.text(name), Some("true" | "1"))
            || self.0.get(name).and_then(Value::as_u64) == Some(1)
    }
}

pub(crate) async fn handle(desk: Arc<Desk<Workspace>>, asked: Asked) -> Reply {
    if asked.path == "/link" {
        return super::socket::open(desk, asked).await;
    }
    let method = asked.path.strip_prefix("/api/").unwrap_or(&asked.path).to_owned();
    let (arguments, unreadable) = match arguments(&asked, &method) {
        Ok(arguments) => (arguments, None),
        Err(slip) => (Arguments(Map::new()), Some(slip)),
    };
    // With a JSON body the token must be in the header.
    let in_form = arguments.text("token").filter(|_| !is_json(&asked)).map(str::to_owned);
    let token = asked.bearer().map(str::to_owned).or(in_form);
    let by = desk.view(|view| {
        let of = |it: &&super::world::AppState| {
            token.as_deref().is_some_and(|token| it.app.bot_token == token || it.app.app_token == token)
        };
        view.apps.iter().find(of).map(|it| it.app.name.clone()).unwrap_or_default()
    });
    let mut input = arguments.0.clone();
    input.remove("token");
    let posted = asked.method == "POST" || asked.method == "GET";
    let address = desk.door().address();
    desk.call(&method, &by, Value::Object(input), |world, ledger| {
        let token = token.as_deref().unwrap_or_default();
        let result = if !posted || tier(&method).is_none() {
            Err(fault("unknown_method", Wrong::Unknown, format!("{} {}", asked.method, asked.path)))
        } else {
            authorized(world, &method, token)
        };
        let at = match result {
            Ok(at) => at,
            Err(slip) => return refuse(ledger, &by, &method, slip),
        };
        if let Some(slip) = unreadable {
            return refuse(ledger, &by, &method, slip);
        }
        if is_json(&asked) && !TAKES_JSON.contains(&method.as_str()) && asked.body.len() > 2 {
            ledger.wrong(&by, Wrong::Field, format!("{method}: a JSON body is ignored by a method that reads"));
        }
        if let Err(refused) = ledger.take(&by, &method, &rules(&method, &by, &arguments)) {
            return limited::<Workspace>(&method, refused.seconds);
        }
        let mut turn = Turn { world, ledger, at, arguments: &arguments };
        let done = match method.as_str() {
            "apps.connections.open" => turn.open(&address.to_string()),
            "auth.test" => turn.auth_test(),
            "chat.postMessage" => turn.post(false),
            "chat.postEphemeral" => turn.post(true),
            "chat.update" => turn.update(),
            "chat.delete" => turn.delete(),
            "reactions.add" => turn.react(true),
            "reactions.remove" => turn.react(false),
            "conversations.info" => turn.info(),
            "conversations.replies" => turn.replies(true),
            "conversations.history" => turn.replies(false),
            "users.info" => turn.user(),
            "chat.startStream" => turn.start_stream(),
            "chat.appendStream" => turn.append_stream(false),
            _ => turn.append_stream(true),
        };
        match done {
            Ok(mut body) => {
                body["ok"] = json!(true);
                Answer::ok(body)
            }
            Err(slip) => refuse(ledger, &by, &method, slip),
        }
    })
    .await
}

fn refuse(ledger: &mut Ledger, by: &str, method: &str, slip: Slip) -> Answer {
    if let Some((wrong, what)) = slip.wrong {
        ledger.wrong(by, wrong, format!("{method}: {}: {what}", slip.error));
    }
    let mut body = json!({"ok": false, "error": slip.error});
    if !slip.more.is_empty() {
        body["response_metadata"] = json!({"messages": slip.more});
    }
    Answer::error(200, slip.error, body)
}

fn is_json(asked: &Asked) -> bool {
    asked.header("content-type").is_some_and(|kind| kind.starts_with("application/json"))
}

fn arguments(asked: &Asked, method: &str) -> Result<Arguments, Slip> {
    let mut all: Map<String, Value> = asked.query.iter().map(|it| (it.0.clone(), json!(it.1))).collect();
    let kind = asked.header("content-type").unwrap_or_default();
    let is_form = ["application/x-www-form-urlencoded", "multipart/form-data"].iter().any(|it| kind.starts_with(it));
    if is_json(asked) && TAKES_JSON.contains(&method) {
        match serde_json::from_slice(&asked.body) {
            Ok(Value::Object(body)) => all.extend(body),
            Ok(_) => return Err(fault("json_not_object", Wrong::Field, "the body is not an object")),
            Err(error) => return Err(fault("invalid_json", Wrong::Field, error.to_string())),
        }
    } else if is_form {
        all.extend(pairs(&String::from_utf8_lossy(&asked.body)).into_iter().map(|it| (it.0, json!(it.1))));
    } else if !is_json(asked) && !asked.body.is_empty() {
        return Err(fault("invalid_post_type", Wrong::Field, format!("a body of the type {kind:?}")));
    }
    Ok(Arguments(all))
}

fn authorized(world: &Workspace, method: &str, token: &str) -> Result<usize, Slip> {
    if token.is_empty() {
        return Err(fault("not_authed", Wrong::Auth, "no token"));
    }
    let found = world.apps.iter().position(|it| it.app.bot_token == token || it.app.app_token == token);
    let at = found.ok_or_else(|| fault("invalid_auth", Wrong::Auth, "the token is unknown"))?;
    let wants_app_token = method == "apps.connections.open";
    if wants_app_token != (world.apps[at].app.app_token == token) {
        return Err(fault("not_allowed_token_type", Wrong::Auth, "the method needs the other kind of token"));
    }
    Ok(at)
}

fn rules(method: &str, by: &str, arguments: &Arguments) -> Vec<Rule> {
    let mut rules = vec![];
    if let Some(most) = tier(method) {
        rules.push(Rule::window(format!("{method} of {by}"), most, MINUTE));
    }
    if ["chat.postMessage", "chat.startStream"].contains(&method) {
        let channel = arguments.text("channel").unwrap_or_default();
        rules.push(Rule::bucket(format!("posts of {by} in {channel}"), Duration::from_secs(1), BURST));
    }
    rules
}

/// Returns the cursor of the page that begins at `place`. As in Slack, it has characters that a
/// form must escape.
fn cursor_at(place: usize) -> String {
    format!("bmV4dF90czo{place}==")
}

fn place_of(cursor: &str) -> Option<usize> {
    cursor.strip_prefix("bmV4dF90czo")?.strip_suffix("==")?.parse().ok()
}

struct Turn<'a> {
    world: &'a mut Workspace,
    ledger: &'a mut Ledger,
    at: usize,
    arguments: &'a Arguments,
}

impl Turn<'_> {
    fn open(&mut self, address: &str) -> Done {
        let app = &mut self.world.apps[self.at];
        let ticket = sign::uuid(&format!("ticket {}", self.ledger.next()));
        app.tickets.insert(ticket.clone());
        Ok(json!({"url": format!("ws://{address}/link?ticket={ticket}&app_id={}", app.app.id)}))
    }

    fn auth_test(&mut self) -> Done {
        let app = &self.world.apps[self.at].app;
        Ok(json!({
            "url": "https://regatta.slack.com/", "team": "Regatta", "user": app.name, "team_id": self.world.team,
            "user_id": app.bot_user, "bot_id": app.bot_id, "is_enterprise_install": false,
        }))
    }

    /// Returns the channel argument. The app must be a member of the channel.
    fn channel(&self) -> Result<String, Slip> {
        let id = self.arguments.needed("channel", "invalid_arguments")?;
        let channel = self.world.channels.iter().find(|it| it.id == id).ok_or_else(|| slip("channel_not_found"))?;
        if !channel.members.contains(&self.world.apps[self.at].app.bot_user) {
            return Err(slip("not_in_channel"));
        }
        Ok(channel.id.clone())
    }

    /// Returns text and blocks after checking their sizes.
    fn content(&self, most: usize) -> Result<(String, Value), Slip> {
        let text = self.arguments.text("text").unwrap_or_default();
        let markdown = self.arguments.text("markdown_text").unwrap_or_default();
        let blocks = self.arguments.structured("blocks", "invalid_blocks_format")?;
        if !markdown.is_empty() && (!text.is_empty() || !blocks.is_null()) {
            return Err(fault("markdown_text_conflict", Wrong::Field, "markdown_text excludes text and blocks"));
        }
        if length(markdown) > 12_000 || length(text) > most {
            return Err(fault(
                "msg_too_long",
                Wrong::TooLong,
                format!("{} characters", length(text) + length(markdown)),
            ));
        }
        if !blocks.is_null() {
            let complaints = blocks::complaints(&blocks);
            if !complaints.is_empty() {
                let mut slip = fault("invalid_blocks", Wrong::Markup, complaints.join("; "));
                slip.more = complaints;
                return Err(slip);
            }
        }
        if text.is_empty() && markdown.is_empty() && blocks.as_array().is_none_or(Vec::is_empty) {
            return Err(fault("no_text", Wrong::Field, "neither text nor blocks"));
        }
        Ok((if text.is_empty() { markdown } else { text }.to_owned(), blocks))
    }

    fn metadata(&self) -> Result<Value, Slip> {
        let metadata = self.arguments.structured("metadata", "invalid_metadata_format")?;
        let good = metadata.is_null() || (metadata["event_type"].is_string() && metadata["event_payload"].is_object());
        if good { Ok(metadata) } else { Err(fault("invalid_metadata_schema", Wrong::Field, metadata.to_string())) }
    }

    fn blank(&mut self, channel: &str) -> Result<Message, Slip> {
        let thread_ts = self.arguments.text("thread_ts").map(str::to_owned);
        if let Some(thread) = &thread_ts
            && !self.world.messages(channel).iter().any(|it| it.ts == *thread && it.thread_ts.is_none())
        {
            return Err(fault("cannot_reply_to_message", Wrong::Unknown, format!("no thread {thread}")));
        }
        let (ts, now) = (self.world.stamp(), self.ledger.elapsed());
        let app = &self.world.apps[self.at].app;
        Ok(Message {
            ts,
            thread_ts,
            user: app.bot_user.clone(),
            app: Some(app.name.clone()),
            text: String::new(),
            blocks: Value::Null,
            metadata: Value::Null,
            only_for: None,
            reactions: vec![],
            streaming: None,
            posted: now,
            changed: now,
            versions: vec![],
        })
    }

    fn post(&mut self, ephemeral: bool) -> Done {
        let channel = self.channel()?;
        let (text, blocks) = self.content(40_000)?;
        let metadata = self.metadata()?;
        let mut message = self.blank(&channel)?;
        if ephemeral {
            let user = self.arguments.needed("user", "invalid_arguments")?;
            if !self.world.channel(&channel).is_some_and(|it| it.members.contains(user)) {
                return Err(slip("user_not_in_channel"));
            }
            message.only_for = Some(user.to_owned());
        }
        message.versions.push(text.clone());
        (message.text, message.blocks, message.metadata) = (text, blocks, metadata);
        let ts = message.ts.clone();
        let shown = self.world.json(&message, true);
        self.world.put(self.ledger, &channel, message);
        if ephemeral {
            return Ok(json!({"message_ts": ts}));
        }
        Ok(json!({"channel": channel, "ts": ts, "message": shown}))
    }

    /// Returns a message of this app.
    fn own(&mut self, channel: &str, error: &'static str) -> Result<&mut Message, Slip> {
        let ts = self.arguments.needed("ts", "message_not_found")?;
        let name = self.world.apps[self.at].app.name.clone();
        let message = self.world.message_mut(channel, ts).ok_or_else(|| slip("message_not_found"))?;
        if message.app.as_ref() != Some(&name) || message.only_for.is_some() {
            return Err(fault(error, Wrong::Foreign, format!("{ts} is not a message of {name}")));
        }
        Ok(message)
    }

    fn update(&mut self) -> Done {
        let channel = self.channel()?;
        let before = self.own(&channel, "cant_update_message")?.clone();
        let (text, blocks) = self.content(4_000)?;
        let metadata = self.metadata()?;
        if before.streaming == Some(true) {
            return Err(slip("streaming_state_conflict"));
        }
        let now = self.ledger.elapsed();
        let message = self.own(&channel, "cant_update_message")?;
        message.text.clone_from(&text);
        message.versions.push(text.clone());
        // Without the field the old blocks stay; an empty list removes them.
        if !blocks.is_null() {
            message.blocks = blocks;
        }
        if !metadata.is_null() {
            message.metadata = metadata;
        }
        message.changed = now;
        let message = message.clone();
        let (shown, previous) = (self.world.json(&message, false), self.world.json(&before, false));
        let event = json!({"subtype": "message_changed", "message": shown, "previous_message": previous});
        self.world.tell_change(self.ledger, &channel, event);
        Ok(json!({"channel": channel, "ts": message.ts, "text": text, "message": self.world.json(&message, true)}))
    }

    fn delete(&mut self) -> Done {
        let channel = self.channel()?;
        let gone = self.own(&channel, "cant_delete_message")?.clone();
        if let Some(place) = self.world.channel_mut(&channel) {
            place.messages.retain(|it| it.ts != gone.ts);
        }
        let previous = self.world.json(&gone, false);
        let event = json!({"subtype": "message_deleted", "deleted_ts": gone.ts, "previous_message": previous});
        self.world.tell_change(self.ledger, &channel, event);
        Ok(json!({"channel": channel, "ts": gone.ts}))
    }

    fn react(&mut self, add: bool) -> Done {
        let channel = self.channel()?;
        let ts = self.arguments.needed("timestamp", "no_item_specified")?.to_owned();
        let name = self.arguments.needed("name", "invalid_name")?.to_owned();
        if name.is_empty()
            || !name.chars().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || "_-+'".contains(it))
        {
            return Err(fault("invalid_name", Wrong::Field, format!("\"{name}\" is not the name of an emoji")));
        }
        let user = self.world.apps[self.at].app.bot_user.clone();
        self.world.reaction(self.ledger, &channel, &ts, (&name, &user), add).map_err(slip)?;
        Ok(json!({}))
    }

    fn info(&mut self) -> Done {
        let id = self.channel()?;
        let channel = self.world.channel(&id).ok_or_else(|| slip("channel_not_found"))?;
        Ok(json!({"channel": {
            "id": channel.id, "name": channel.name, "is_channel": channel.kind == "channel",
            "is_group": channel.kind == "group", "is_im": channel.kind == "im", "is_private": channel.kind != "channel",
            "is_member": true, "is_archived": false, "topic": {"value": ""}, "purpose": {"value": ""},
        }}))
    }

    fn replies(&mut self, thread: bool) -> Done {
        let channel = self.channel()?;
        let with_metadata = self.arguments.truth("include_all_metadata");
        let visible: Vec<&Message> = if thread {
            let ts = self.arguments.needed("ts", "invalid_arguments")?;
            let found: Vec<&Message> = self
                .world
                .messages(&channel)
                .iter()
                .filter(|it| it.only_for.is_none() && (it.ts == ts || it.thread_ts.as_deref() == Some(ts)))
                .collect();
            if found.is_empty() {
                return Err(slip("thread_not_found"));
            }
            found
        } else {
            let roots =
                self.world.messages(&channel).iter().filter(|it| it.only_for.is_none() && it.thread_ts.is_none());
            roots.rev().collect()
        };
        let number = |name: &str| self.arguments.text(name).and_then(|it| it.parse::<usize>().ok());
        let numeric = |name: &str| self.arguments.0.get(name).and_then(Value::as_u64).and_then(|it| it.try_into().ok());
        let limit = number("limit").or_else(|| numeric("limit")).unwrap_or(MAX_PAGE);
        if !(1..=MAX_PAGE).contains(&limit) {
            return Err(fault("invalid_limit", Wrong::Field, format!("the limit {limit} is out of range")));
        }
        let from = match self.arguments.text("cursor") {
            None => 0,
            Some(cursor) => place_of(cursor)
                .ok_or_else(|| fault("invalid_cursor", Wrong::Field, format!("{cursor:?} is unknown")))?,
        };
        let oldest = self.arguments.text("oldest").unwrap_or("0").to_owned();
        let all: Vec<&Message> = visible.into_iter().filter(|it| it.ts > oldest || it.thread_ts.is_none()).collect();
        let page: Vec<Value> = all.iter().skip(from).take(limit).map(|it| self.world.json(it, with_metadata)).collect();
        let more = from + page.len() < all.len();
        let cursor = if more { cursor_at(from + page.len()) } else { String::new() };
        Ok(json!({"messages": page, "has_more": more, "response_metadata": {"next_cursor": cursor}}))
    }

    fn user(&mut self) -> Done {
        let id = self.arguments.needed("user", "user_not_found")?;
        let person = self.world.people.iter().find(|it| it.0 == id).map(|it| (it.1.clone(), false));
        let bot = || self.world.apps.iter().find(|it| it.app.bot_user == id).map(|it| (it.app.name.clone(), true));
        let (name, is_bot) = person.or_else(bot).ok_or_else(|| slip("user_not_found"))?;
        Ok(json!({"user": {
            "id": id, "team_id": self.world.team, "name": name, "real_name": name, "deleted": false, "is_bot": is_bot,
            "profile": {"display_name": name, "real_name": name}, "tz": "Europe/London",
        }}))
    }

    /// Returns the text for a stream: `markdown_text`, or its chunks.
    fn streamed(&self) -> Result<String, Slip> {
        let mut text = self.arguments.text("markdown_text").unwrap_or_default().to_owned();
        let chunks = self.arguments.structured("chunks", "invalid_chunks")?;
        for chunk in chunks.as_array().into_iter().flatten() {
            match chunk["type"].as_str() {
                Some("markdown_text") => text.push_str(chunk["text"].as_str().unwrap_or_default()),
                Some("task_update") => {
                    let known = ["pending", "in_progress", "complete", "error"];
                    if !chunk["id"].is_string() || !known.iter().any(|it| chunk["status"] == *it) {
                        return Err(fault("invalid_chunks", Wrong::Field, chunk.to_string()));
                    }
                }
                Some("plan_update" | "blocks") => {}
                _ => return Err(fault("invalid_chunks", Wrong::Field, chunk.to_string())),
            }
        }
        if length(&text) > 12_000 {
            return Err(fault("msg_too_long", Wrong::TooLong, format!("{} characters", length(&text))));
        }
        Ok(text)
    }

    fn start_stream(&mut self) -> Done {
        let channel = self.channel()?;
        let thread = self.arguments.needed("thread_ts", "invalid_arguments")?.to_owned();
        let direct = self.world.channel(&channel).is_some_and(|it| it.kind == "im");
        if !direct {
            self.arguments.needed("recipient_user_id", "missing_recipient_user_id")?;
            self.arguments.needed("recipient_team_id", "missing_recipient_team_id")?;
        }
        let text = self.streamed()?;
        let mut message = self.blank(&channel)?;
        (message.text, message.streaming, message.thread_ts) = (text.clone(), Some(true), Some(thread));
        message.versions.push(text);
        let ts = message.ts.clone();
        self.world.put(self.ledger, &channel, message);
        Ok(json!({"channel": channel, "ts": ts}))
    }

    fn append_stream(&mut self, stop: bool) -> Done {
        let channel = self.channel()?;
        let text = self.streamed()?;
        if !stop && text.is_empty() && !self.arguments.0.contains_key("chunks") {
            return Err(fault("no_text", Wrong::Field, "nothing to append"));
        }
        let metadata = self.metadata()?;
        let blocks = self.arguments.structured("blocks", "invalid_blocks_format")?;
        let now = self.ledger.elapsed();
        let message = self.own(&channel, "message_not_owned_by_app")?;
        if message.streaming != Some(true) {
            return Err(slip("message_not_in_streaming_state"));
        }
        if length(&message.text) + length(&text) > 12_000 {
            return Err(slip("msg_too_long"));
        }
        message.text.push_str(&text);
        // A stream has no versions, because it only grows.
        message.versions = vec![message.text.clone()];
        (message.changed, message.streaming) = (now, Some(!stop));
        if stop && !blocks.is_null() {
            message.blocks = blocks;
        }
        if stop && !metadata.is_null() {
            message.metadata = metadata;
        }
        let message = message.clone();
        let shown = self.world.json(&message, true);
        Ok(if stop {
            json!({"channel": channel, "ts": message.ts, "message": shown})
        } else {
            json!({"channel": channel, "ts": message.ts})
        })
    }
}
