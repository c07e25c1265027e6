//! Imitates Slack's Web API: checks credentials and rate limits, and performs the methods.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::super::double::{
    CallRecords, ServiceAnswer, ServiceDouble, ViolationKind, rate_limited,
};
use super::super::listener::{DoubleReply, DoubleRequest, parse_form};
use super::super::rate_limit::RateRule;
use super::super::signature;
use super::blocks::{self, char_count};
use super::state::{SlackMessage, SlackState};

const MINUTE: Duration = Duration::from_secs(60);
/// Number of messages that an app may post at once in one channel (`chat.postMessage` and similar
/// methods). After these messages, the app may post one message per second.
pub const POST_BURST: u32 = 3;
/// Number of messages that an app may post per minute in all channels. Slack documents "several
/// hundred".
pub const MAX_POSTS_PER_MINUTE: u32 = 300;

/// Returns the number of times per minute that one app may call a method in one workspace. Slack
/// calls this limit the method's tier.
pub fn max_calls_per_minute(method: &str) -> Option<u32> {
    Some(match method {
        "chat.startStream" | "chat.stopStream" | "reactions.remove" | "apps.connections.open" => 20,
        "chat.update" | "chat.delete" | "reactions.add" => 50,
        "conversations.info" | "conversations.replies" | "conversations.history" => 50,
        "chat.appendStream" | "chat.postEphemeral" | "users.info" => 100,
        "chat.postMessage" => MAX_POSTS_PER_MINUTE,
        "auth.test" => 600,
        _ => return None,
    })
}

/// The error with which an API method fails.
struct SlackError {
    error: &'static str,
    /// The rule of Slack that the API call breaks. `None` if the call breaks no rule and only fails
    /// because of the present state of the imitated Slack.
    violation: Option<(ViolationKind, String)>,
    messages: Vec<String>,
}

fn slack_error(error: &'static str) -> SlackError {
    SlackError {
        error,
        violation: None,
        messages: vec![],
    }
}

fn violation_error(
    error: &'static str,
    kind: ViolationKind,
    description: impl Into<String>,
) -> SlackError {
    SlackError {
        error,
        violation: Some((kind, description.into())),
        messages: vec![],
    }
}

type SlackResult = Result<Value, SlackError>;

/// The methods that accept a JSON body. According to Slack's documentation, these are methods that
/// write. A method that reads ignores a JSON body, and answers as if the call had no arguments.
const JSON_METHODS: [&str; 9] = [
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

/// Maximum number of messages on one page of a list.
const MAX_PAGE_MESSAGES: usize = 1000;

/// The arguments of an API call. They come from a JSON object, if the method accepts JSON, or from
/// a form in which structured fields contain JSON.
struct Arguments(Map<String, Value>);

impl Arguments {
    fn text(&self, name: &str) -> Option<&str> {
        self.0
            .get(name)
            .and_then(Value::as_str)
            .filter(|s| !s.is_empty())
    }

    fn required(&self, name: &str, error: &'static str) -> Result<&str, SlackError> {
        self.text(name).ok_or_else(|| {
            violation_error(
                error,
                ViolationKind::BadField,
                format!("the API call lacks the argument {name}"),
            )
        })
    }

    /// Returns an argument that is a JSON object or list, from a JSON body or a form.
    fn structured(&self, name: &str, error: &'static str) -> Result<Value, SlackError> {
        match self.0.get(name) {
            None => Ok(Value::Null),
            Some(Value::String(text)) if text.is_empty() => Ok(Value::Null),
            Some(Value::String(text)) => serde_json::from_str(text).map_err(|problem| {
                violation_error(
                    error,
                    ViolationKind::BadMarkup,
                    format!("the argument {name} is not valid JSON: {problem}"),
                )
            }),
            Some(other) => Ok(other.clone()),
        }
    }

    fn flag(&self, name: &str) -> bool {
        matches!(self.0.get(name), Some(Value::Bool(true)))
            || matches!(self.text(name), Some("true" | "1"))
            || self.0.get(name).and_then(Value::as_u64) == Some(1)
    }
}

pub(crate) async fn handle_request(
    double: Arc<ServiceDouble<SlackState>>,
    request: DoubleRequest,
) -> DoubleReply {
    if request.path == "/link" {
        return super::socket::open(double, request).await;
    }
    let method = request
        .path
        .strip_prefix("/api/")
        .unwrap_or(&request.path)
        .to_owned();
    let (arguments, unreadable) = match parse_arguments(&request, &method) {
        Ok(arguments) => (arguments, None),
        Err(slip) => (Arguments(Map::new()), Some(slip)),
    };
    // A call with a JSON body must have its token in the header. A call with a form may also have
    // the token in a field of the form.
    let in_form = arguments
        .text("token")
        .filter(|_| !is_json(&request))
        .map(str::to_owned);
    let token = request.bearer().map(str::to_owned).or(in_form);
    let caller = double.view(|view| {
        let matches_token = |slack_app_state: &&super::state::SlackAppState| {
            token.as_deref().is_some_and(|token| {
                slack_app_state.app.bot_token == token || slack_app_state.app.app_token == token
            })
        };
        view.apps
            .iter()
            .find(matches_token)
            .map(|slack_app_state| slack_app_state.app.name.clone())
            .unwrap_or_default()
    });
    let mut input = arguments.0.clone();
    input.remove("token");
    let posted = request.method == "POST" || request.method == "GET";
    let address = double.listener().address();
    double
        .perform_call(&method, &caller, Value::Object(input), |world, ledger| {
            let token = token.as_deref().unwrap_or_default();
            let result = if !posted || max_calls_per_minute(&method).is_none() {
                Err(violation_error(
                    "unknown_method",
                    ViolationKind::Unknown,
                    format!("Slack has no method {} {}", request.method, request.path),
                ))
            } else {
                authorize(world, &method, token)
            };
            let at = match result {
                Ok(at) => at,
                Err(slip) => return error_answer(ledger, &caller, &method, slip),
            };
            if let Some(slip) = unreadable {
                return error_answer(ledger, &caller, &method, slip);
            }
            if is_json(&request)
                && !JSON_METHODS.contains(&method.as_str())
                && request.body.len() > 2
            {
                ledger.add_violation(
                    &caller,
                    ViolationKind::BadField,
                    format!("{method}: a JSON body is ignored by a method that reads"),
                );
            }
            if let Err(refused) =
                ledger.count_call(&caller, &method, &rate_rules(&method, &caller, &arguments))
            {
                return rate_limited::<SlackState>(&method, refused.seconds);
            }
            let mut turn = SlackRequest {
                workspace: world,
                records: ledger,
                app: at,
                arguments: &arguments,
            };
            let result = match method.as_str() {
                "apps.connections.open" => turn.open(&address.to_string()),
                "auth.test" => turn.auth_test(),
                "chat.postMessage" => turn.post(false),
                "chat.postEphemeral" => turn.post(true),
                "chat.update" => turn.update(),
                "chat.delete" => turn.delete(),
                "reactions.add" => turn.react(true),
                "reactions.remove" => turn.react(false),
                "conversations.info" => turn.conversation_info(),
                "conversations.replies" => turn.list_messages(true),
                "conversations.history" => turn.list_messages(false),
                "users.info" => turn.user_info(),
                "chat.startStream" => turn.start_stream(),
                "chat.appendStream" => turn.append_stream(false),
                _ => turn.append_stream(true),
            };
            match result {
                Ok(mut body) => {
                    body["ok"] = json!(true);
                    ServiceAnswer::ok(body)
                }
                Err(slip) => error_answer(ledger, &caller, &method, slip),
            }
        })
        .await
}

fn error_answer(
    ledger: &mut CallRecords,
    caller: &str,
    method: &str,
    slip: SlackError,
) -> ServiceAnswer {
    if let Some((wrong, what)) = slip.violation {
        ledger.add_violation(caller, wrong, format!("{method}: {}: {what}", slip.error));
    }
    let mut body = json!({"ok": false, "error": slip.error});
    if !slip.messages.is_empty() {
        body["response_metadata"] = json!({"messages": slip.messages});
    }
    ServiceAnswer::error(200, slip.error, body)
}

fn is_json(request: &DoubleRequest) -> bool {
    request
        .header("content-type")
        .is_some_and(|kind| kind.starts_with("application/json"))
}

fn parse_arguments(request: &DoubleRequest, method: &str) -> Result<Arguments, SlackError> {
    let mut all: Map<String, Value> = request
        .query
        .iter()
        .map(|query| (query.0.clone(), json!(query.1)))
        .collect();
    let kind = request.header("content-type").unwrap_or_default();
    let is_form = ["application/x-www-form-urlencoded", "multipart/form-data"]
        .iter()
        .any(|prefix| kind.starts_with(prefix));
    if is_json(request) && JSON_METHODS.contains(&method) {
        match serde_json::from_slice(&request.body) {
            Ok(Value::Object(body)) => all.extend(body),
            Ok(_) => {
                return Err(violation_error(
                    "json_not_object",
                    ViolationKind::BadField,
                    "the request's body is not a JSON object",
                ));
            }
            Err(error) => {
                return Err(violation_error(
                    "invalid_json",
                    ViolationKind::BadField,
                    error.to_string(),
                ));
            }
        }
    } else if is_form {
        all.extend(
            parse_form(&String::from_utf8_lossy(&request.body))
                .into_iter()
                .map(|pair| (pair.0, json!(pair.1))),
        );
    } else if !is_json(request) && !request.body.is_empty() {
        return Err(violation_error(
            "invalid_post_type",
            ViolationKind::BadField,
            format!("a request body of the type {kind:?} is not allowed"),
        ));
    }
    Ok(Arguments(all))
}

fn authorize(world: &SlackState, method: &str, token: &str) -> Result<usize, SlackError> {
    if token.is_empty() {
        return Err(violation_error(
            "not_authed",
            ViolationKind::Auth,
            "the API call has no token",
        ));
    }
    let found = world.apps.iter().position(|slack_app_state| {
        slack_app_state.app.bot_token == token || slack_app_state.app.app_token == token
    });
    let app_index = found.ok_or_else(|| {
        violation_error(
            "invalid_auth",
            ViolationKind::Auth,
            "the token of the API call is unknown",
        )
    })?;
    let wants_app_token = method == "apps.connections.open";
    if wants_app_token != (world.apps[app_index].app.app_token == token) {
        return Err(violation_error(
            "not_allowed_token_type",
            ViolationKind::Auth,
            "the API call has the wrong token: its method needs the app's other token (bot token or app token)",
        ));
    }
    Ok(app_index)
}

fn rate_rules(method: &str, caller: &str, arguments: &Arguments) -> Vec<RateRule> {
    let mut rules = vec![];
    if let Some(most) = max_calls_per_minute(method) {
        rules.push(RateRule::window(
            format!("{method} of {caller}"),
            most,
            MINUTE,
        ));
    }
    if ["chat.postMessage", "chat.startStream"].contains(&method) {
        let channel = arguments.text("channel").unwrap_or_default();
        rules.push(RateRule::bucket(
            format!("posts of {caller} in {channel}"),
            Duration::from_secs(1),
            POST_BURST,
        ));
    }
    rules
}

/// Returns the cursor for the page that begins at `place`. As in Slack, a cursor contains
/// characters that a form must escape.
fn encode_cursor(place: usize) -> String {
    format!("bmV4dF90czo{place}==")
}

fn decode_cursor(cursor: &str) -> Option<usize> {
    cursor
        .strip_prefix("bmV4dF90czo")?
        .strip_suffix("==")?
        .parse()
        .ok()
}

struct SlackRequest<'a> {
    workspace: &'a mut SlackState,
    records: &'a mut CallRecords,
    app: usize,
    arguments: &'a Arguments,
}

impl SlackRequest<'_> {
    fn open(&mut self, address: &str) -> SlackResult {
        let app = &mut self.workspace.apps[self.app];
        let ticket = signature::fake_uuid(&format!("ticket {}", self.records.next()));
        app.tickets.insert(ticket.clone());
        Ok(json!({"url": format!("ws://{address}/link?ticket={ticket}&app_id={}", app.app.id)}))
    }

    fn auth_test(&mut self) -> SlackResult {
        let app = &self.workspace.apps[self.app].app;
        Ok(json!({
            "url": "https://regatta.slack.com/", "team": "Regatta", "user": app.name, "team_id": self.workspace.team,
            "user_id": app.bot_user, "bot_id": app.bot_id, "is_enterprise_install": false,
        }))
    }

    /// Returns the channel that the API call names, or an error if the app is not a member of the
    /// channel.
    fn channel(&self) -> Result<String, SlackError> {
        let id = self.arguments.required("channel", "invalid_arguments")?;
        let channel = self
            .workspace
            .channels
            .iter()
            .find(|slack_channel| slack_channel.id == id)
            .ok_or_else(|| slack_error("channel_not_found"))?;
        if !channel
            .members
            .contains(&self.workspace.apps[self.app].app.bot_user)
        {
            return Err(slack_error("not_in_channel"));
        }
        Ok(channel.id.clone())
    }

    /// Returns the text and the blocks of a message, or an error if they are too long.
    fn text_and_blocks(&self, max: usize) -> Result<(String, Value), SlackError> {
        let text = self.arguments.text("text").unwrap_or_default();
        let markdown = self.arguments.text("markdown_text").unwrap_or_default();
        let blocks = self
            .arguments
            .structured("blocks", "invalid_blocks_format")?;
        if !markdown.is_empty() && (!text.is_empty() || !blocks.is_null()) {
            return Err(violation_error(
                "markdown_text_conflict",
                ViolationKind::BadField,
                "markdown_text cannot be combined with text or blocks",
            ));
        }
        if char_count(markdown) > 12_000 || char_count(text) > max {
            return Err(violation_error(
                "msg_too_long",
                ViolationKind::TooLong,
                format!(
                    "the message has {} characters, more than Slack allows",
                    char_count(text) + char_count(markdown)
                ),
            ));
        }
        if !blocks.is_null() {
            let complaints = blocks::block_problems(&blocks);
            if !complaints.is_empty() {
                let mut slip = violation_error(
                    "invalid_blocks",
                    ViolationKind::BadMarkup,
                    complaints.join("; "),
                );
                slip.messages = complaints;
                return Err(slip);
            }
        }
        if text.is_empty() && markdown.is_empty() && blocks.as_array().is_none_or(Vec::is_empty) {
            return Err(violation_error(
                "no_text",
                ViolationKind::BadField,
                "the message has neither text nor blocks",
            ));
        }
        Ok((
            if text.is_empty() { markdown } else { text }.to_owned(),
            blocks,
        ))
    }

    fn metadata(&self) -> Result<Value, SlackError> {
        let metadata = self
            .arguments
            .structured("metadata", "invalid_metadata_format")?;
        let good = metadata.is_null()
            || (metadata["event_type"].is_string() && metadata["event_payload"].is_object());
        if good {
            Ok(metadata)
        } else {
            Err(violation_error(
                "invalid_metadata_schema",
                ViolationKind::BadField,
                metadata.to_string(),
            ))
        }
    }

    fn new_message(&mut self, channel: &str) -> Result<SlackMessage, SlackError> {
        let thread_ts = self.arguments.text("thread_ts").map(str::to_owned);
        if let Some(thread) = &thread_ts
            && !self
                .workspace
                .messages(channel)
                .iter()
                .any(|slack_message| {
                    slack_message.ts == *thread && slack_message.thread_ts.is_none()
                })
        {
            return Err(violation_error(
                "cannot_reply_to_message",
                ViolationKind::Unknown,
                format!("the channel has no thread {thread}"),
            ));
        }
        let (ts, now) = (self.workspace.next_timestamp(), self.records.elapsed());
        let app = &self.workspace.apps[self.app].app;
        Ok(SlackMessage {
            ts,
            thread_ts,
            user: app.bot_user.clone(),
            app: Some(app.name.clone()),
            text: String::new(),
            blocks: Value::Null,
            metadata: Value::Null,
            ephemeral_for: None,
            reactions: vec![],
            is_streaming: None,
            posted: now,
            changed: now,
            versions: vec![],
        })
    }

    fn post(&mut self, ephemeral: bool) -> SlackResult {
        let channel = self.channel()?;
        let (text, blocks) = self.text_and_blocks(40_000)?;
        let metadata = self.metadata()?;
        let mut message = self.new_message(&channel)?;
        if ephemeral {
            let user = self.arguments.required("user", "invalid_arguments")?;
            if !self
                .workspace
                .channel(&channel)
                .is_some_and(|slack_channel| slack_channel.members.contains(user))
            {
                return Err(slack_error("user_not_in_channel"));
            }
            message.ephemeral_for = Some(user.to_owned());
        }
        message.versions.push(text.clone());
        (message.text, message.blocks, message.metadata) = (text, blocks, metadata);
        let ts = message.ts.clone();
        let shown = self.workspace.message_json(&message, true);
        self.workspace.add_message(self.records, &channel, message);
        if ephemeral {
            return Ok(json!({"message_ts": ts}));
        }
        Ok(json!({"channel": channel, "ts": ts, "message": shown}))
    }

    /// Returns the message that the API call names, or an error if another app or a person posted
    /// it.
    fn own_message(
        &mut self,
        channel: &str,
        error: &'static str,
    ) -> Result<&mut SlackMessage, SlackError> {
        let ts = self.arguments.required("ts", "message_not_found")?;
        let name = self.workspace.apps[self.app].app.name.clone();
        let message = self
            .workspace
            .message_mut(channel, ts)
            .ok_or_else(|| slack_error("message_not_found"))?;
        if message.app.as_ref() != Some(&name) || message.ephemeral_for.is_some() {
            return Err(violation_error(
                error,
                ViolationKind::NotOwned,
                format!("the message {ts} was not posted by the app {name}"),
            ));
        }
        Ok(message)
    }

    fn update(&mut self) -> SlackResult {
        let channel = self.channel()?;
        let before = self.own_message(&channel, "cant_update_message")?.clone();
        let (text, blocks) = self.text_and_blocks(4_000)?;
        let metadata = self.metadata()?;
        if before.is_streaming == Some(true) {
            return Err(slack_error("streaming_state_conflict"));
        }
        let now = self.records.elapsed();
        let message = self.own_message(&channel, "cant_update_message")?;
        message.text.clone_from(&text);
        message.versions.push(text.clone());
        // If the API call has no `blocks`, the message keeps its blocks. An empty list removes the
        // blocks.
        if !blocks.is_null() {
            message.blocks = blocks;
        }
        if !metadata.is_null() {
            message.metadata = metadata;
        }
        message.changed = now;
        let message = message.clone();
        let (shown, previous) = (
            self.workspace.message_json(&message, false),
            self.workspace.message_json(&before, false),
        );
        let event =
            json!({"subtype": "message_changed", "message": shown, "previous_message": previous});
        self.workspace
            .queue_change_event(self.records, &channel, event);
        Ok(
            json!({"channel": channel, "ts": message.ts, "text": text, "message": self.workspace.message_json(&message, true)}),
        )
    }

    fn delete(&mut self) -> SlackResult {
        let channel = self.channel()?;
        let closing = self.own_message(&channel, "cant_delete_message")?.clone();
        if let Some(place) = self.workspace.channel_mut(&channel) {
            place
                .messages
                .retain(|slack_message| slack_message.ts != closing.ts);
        }
        let previous = self.workspace.message_json(&closing, false);
        let event = json!({"subtype": "message_deleted", "deleted_ts": closing.ts, "previous_message": previous});
        self.workspace
            .queue_change_event(self.records, &channel, event);
        Ok(json!({"channel": channel, "ts": closing.ts}))
    }

    fn react(&mut self, add: bool) -> SlackResult {
        let channel = self.channel()?;
        let ts = self
            .arguments
            .required("timestamp", "no_item_specified")?
            .to_owned();
        let name = self.arguments.required("name", "invalid_name")?.to_owned();
        if name.is_empty()
            || !name
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-+'".contains(c))
        {
            return Err(violation_error(
                "invalid_name",
                ViolationKind::BadField,
                format!("\"{name}\" is not the name of an emoji"),
            ));
        }
        let user = self.workspace.apps[self.app].app.bot_user.clone();
        self.workspace
            .change_reaction(self.records, &channel, &ts, (&name, &user), add)
            .map_err(slack_error)?;
        Ok(json!({}))
    }

    fn conversation_info(&mut self) -> SlackResult {
        let id = self.channel()?;
        let channel = self
            .workspace
            .channel(&id)
            .ok_or_else(|| slack_error("channel_not_found"))?;
        Ok(json!({"channel": {
            "id": channel.id, "name": channel.name, "is_channel": channel.kind == "channel",
            "is_group": channel.kind == "group", "is_im": channel.kind == "im", "is_private": channel.kind != "channel",
            "is_member": true, "is_archived": false, "topic": {"value": ""}, "purpose": {"value": ""},
        }}))
    }

    fn list_messages(&mut self, thread: bool) -> SlackResult {
        let channel = self.channel()?;
        let with_metadata = self.arguments.flag("include_all_metadata");
        let visible: Vec<&SlackMessage> = if thread {
            let ts = self.arguments.required("ts", "invalid_arguments")?;
            let found: Vec<&SlackMessage> = self
                .workspace
                .messages(&channel)
                .iter()
                .filter(|slack_message| {
                    slack_message.ephemeral_for.is_none()
                        && (slack_message.ts == ts
                            || slack_message.thread_ts.as_deref() == Some(ts))
                })
                .collect();
            if found.is_empty() {
                return Err(slack_error("thread_not_found"));
            }
            found
        } else {
            let roots = self
                .workspace
                .messages(&channel)
                .iter()
                .filter(|slack_message| {
                    slack_message.ephemeral_for.is_none() && slack_message.thread_ts.is_none()
                });
            roots.rev().collect()
        };
        let number = |name: &str| {
            self.arguments
                .text(name)
                .and_then(|argument| argument.parse::<usize>().ok())
        };
        let numeric = |name: &str| {
            self.arguments
                .0
                .get(name)
                .and_then(Value::as_u64)
                .and_then(|n| n.try_into().ok())
        };
        let limit = number("limit")
            .or_else(|| numeric("limit"))
            .unwrap_or(MAX_PAGE_MESSAGES);
        if !(1..=MAX_PAGE_MESSAGES).contains(&limit) {
            return Err(violation_error(
                "invalid_limit",
                ViolationKind::BadField,
                format!("the limit {limit} is out of range"),
            ));
        }
        let from = match self.arguments.text("cursor") {
            None => 0,
            Some(cursor) => decode_cursor(cursor).ok_or_else(|| {
                violation_error(
                    "invalid_cursor",
                    ViolationKind::BadField,
                    format!("the cursor {cursor:?} is unknown"),
                )
            })?,
        };
        let oldest = self.arguments.text("oldest").unwrap_or("0").to_owned();
        let all: Vec<&SlackMessage> = visible
            .into_iter()
            .filter(|slack_message| slack_message.ts > oldest || slack_message.thread_ts.is_none())
            .collect();
        let page: Vec<Value> = all
            .iter()
            .skip(from)
            .take(limit)
            .map(|slack_message| self.workspace.message_json(slack_message, with_metadata))
            .collect();
        let more = from + page.len() < all.len();
        let cursor = if more {
            encode_cursor(from + page.len())
        } else {
            String::new()
        };
        Ok(
            json!({"messages": page, "has_more": more, "response_metadata": {"next_cursor": cursor}}),
        )
    }

    fn user_info(&mut self) -> SlackResult {
        let id = self.arguments.required("user", "user_not_found")?;
        let person = self
            .workspace
            .people
            .iter()
            .find(|people| people.0 == id)
            .map(|people| (people.1.clone(), false));
        let bot = || {
            self.workspace
                .apps
                .iter()
                .find(|slack_app_state| slack_app_state.app.bot_user == id)
                .map(|slack_app_state| (slack_app_state.app.name.clone(), true))
        };
        let (name, is_bot) = person
            .or_else(bot)
            .ok_or_else(|| slack_error("user_not_found"))?;
        Ok(json!({"user": {
            "id": id, "team_id": self.workspace.team, "name": name, "real_name": name, "deleted": false, "is_bot": is_bot,
            "profile": {"display_name": name, "real_name": name}, "tz": "Europe/London",
        }}))
    }

    /// Returns the text that an API call appends to a streamed message: the argument
    /// `markdown_text`, or the joined chunks.
    fn stream_content(&self) -> Result<String, SlackError> {
        let mut text = self
            .arguments
            .text("markdown_text")
            .unwrap_or_default()
            .to_owned();
        let chunks = self.arguments.structured("chunks", "invalid_chunks")?;
        for chunk in chunks.as_array().into_iter().flatten() {
            match chunk["type"].as_str() {
                Some("markdown_text") => text.push_str(chunk["text"].as_str().unwrap_or_default()),
                Some("task_update") => {
                    let known = ["pending", "in_progress", "complete", "error"];
                    if !chunk["id"].is_string()
                        || !known.iter().any(|known| chunk["status"] == *known)
                    {
                        return Err(violation_error(
                            "invalid_chunks",
                            ViolationKind::BadField,
                            chunk.to_string(),
                        ));
                    }
                }
                Some("plan_update" | "blocks") => {}
                _ => {
                    return Err(violation_error(
                        "invalid_chunks",
                        ViolationKind::BadField,
                        chunk.to_string(),
                    ));
                }
            }
        }
        if char_count(&text) > 12_000 {
            return Err(violation_error(
                "msg_too_long",
                ViolationKind::TooLong,
                format!(
                    "the streamed text has {} characters, more than Slack allows",
                    char_count(&text)
                ),
            ));
        }
        Ok(text)
    }

    fn start_stream(&mut self) -> SlackResult {
        let channel = self.channel()?;
        let thread = self
            .arguments
            .required("thread_ts", "invalid_arguments")?
            .to_owned();
        let direct = self
            .workspace
            .channel(&channel)
            .is_some_and(|slack_channel| slack_channel.kind == "im");
        if !direct {
            self.arguments
                .required("recipient_user_id", "missing_recipient_user_id")?;
            self.arguments
                .required("recipient_team_id", "missing_recipient_team_id")?;
        }
        let text = self.stream_content()?;
        let mut message = self.new_message(&channel)?;
        (message.text, message.is_streaming, message.thread_ts) =
            (text.clone(), Some(true), Some(thread));
        message.versions.push(text);
        let ts = message.ts.clone();
        self.workspace.add_message(self.records, &channel, message);
        Ok(json!({"channel": channel, "ts": ts}))
    }

    fn append_stream(&mut self, stop: bool) -> SlackResult {
        let channel = self.channel()?;
        let text = self.stream_content()?;
        if !stop && text.is_empty() && !self.arguments.0.contains_key("chunks") {
            return Err(violation_error(
                "no_text",
                ViolationKind::BadField,
                "the API call has no text to append to the message",
            ));
        }
        let metadata = self.metadata()?;
        let blocks = self
            .arguments
            .structured("blocks", "invalid_blocks_format")?;
        let now = self.records.elapsed();
        let message = self.own_message(&channel, "message_not_owned_by_app")?;
        if message.is_streaming != Some(true) {
            return Err(slack_error("message_not_in_streaming_state"));
        }
        if char_count(&message.text) + char_count(&text) > 12_000 {
            return Err(slack_error("msg_too_long"));
        }
        message.text.push_str(&text);
        // A streamed message only grows, so only its latest version is kept.
        message.versions = vec![message.text.clone()];
        (message.changed, message.is_streaming) = (now, Some(!stop));
        if stop && !blocks.is_null() {
            message.blocks = blocks;
        }
        if stop && !metadata.is_null() {
            message.metadata = metadata;
        }
        let message = message.clone();
        let shown = self.workspace.message_json(&message, true);
        Ok(if stop {
            json!({"channel": channel, "ts": message.ts, "message": shown})
        } else {
            json!({"channel": channel, "ts": message.ts})
        })
    }
}
