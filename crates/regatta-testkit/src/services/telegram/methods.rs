//! Imitates Telegram's Bot API: the long poll for updates (news for a bot), and the methods that
//! bots call.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::super::double::{
    CallRecords, ServiceAnswer, ServiceDouble, ViolationKind, rate_limited,
};
use super::super::listener::{DoubleReply, DoubleRequest, parse_form};
use super::super::rate_limit::RateRule;
use super::markup;
use super::state::{TelegramMessage, TelegramState};

const SECOND: Duration = Duration::from_secs(1);
/// Number of messages that a bot may send per second in all chats together.
pub const MAX_PER_SECOND: u32 = 30;
/// Number of messages that a bot may send at once in one chat. After these messages, the bot may
/// send one message per second.
pub const CHAT_BURST: u32 = 3;
/// Number of messages that a bot may send per minute in one group.
pub const MAX_PER_MINUTE_IN_GROUP: u32 = 20;
/// Maximum length of a message without its markup, in UTF-16 units.
pub const MAX_MESSAGE_UNITS: usize = 4096;

const CHAT_ACTIONS: [&str; 11] = [
    "typing",
    "upload_photo",
    "record_video",
    "upload_video",
    "record_voice",
    "upload_voice",
    "upload_document",
    "choose_sticker",
    "find_location",
    "record_video_note",
    "upload_video_note",
];
const REACTION_EMOJI: &str = "👍👎❤🔥🥰👏😁🤔🤯😱🤬😢🎉🤩🤮💩🙏👌🕊🤡🥱🥴😍🐳🌚🌭💯🤣⚡🍌🏆💔🤨😐🍓🍾💋🖕😈😴😭🤓👻👀🎃🙈😇😨🤝✍🤗🫡🎅🎄☃💅🤪🗿🆒💘🙉🦄😘💊🙊😎👾🤷😡";

/// The error with which an API method refuses a call.
struct TelegramError {
    status: u16,
    description: String,
    violation: Option<ViolationKind>,
}

fn bad_request(description: impl std::fmt::Display) -> TelegramError {
    TelegramError {
        status: 400,
        description: format!("Bad Request: {description}"),
        violation: None,
    }
}

fn violation_error(kind: ViolationKind, description: impl std::fmt::Display) -> TelegramError {
    TelegramError {
        violation: Some(kind),
        ..bad_request(description)
    }
}

type TelegramResult = Result<Value, TelegramError>;

struct Arguments(Map<String, Value>);

impl Arguments {
    fn text(&self, name: &str) -> Option<&str> {
        self.0
            .get(name)
            .and_then(Value::as_str)
            .filter(|s| !s.is_empty())
    }

    fn number(&self, name: &str) -> Option<i64> {
        let found = self.0.get(name)?;
        found.as_i64().or_else(|| found.as_str()?.parse().ok())
    }

    /// Returns a field of the API call that is a JSON object or list. In a form, the field contains
    /// JSON as text.
    fn structured(&self, name: &str) -> Result<Value, TelegramError> {
        match self.0.get(name) {
            Some(Value::String(text)) if text.is_empty() => Ok(Value::Null),
            Some(Value::String(text)) => serde_json::from_str(text).map_err(|_| {
                violation_error(
                    ViolationKind::BadMarkup,
                    format!("can't parse {name} JSON object"),
                )
            }),
            Some(other) => Ok(other.clone()),
            None => Ok(Value::Null),
        }
    }
}

/// Returns the error for a request whose body cannot be parsed, or `None` if it can.
fn body_problem(asked: &DoubleRequest) -> Option<&'static str> {
    let kind = asked.header("content-type").unwrap_or_default();
    let is_form = ["application/x-www-form-urlencoded", "multipart/form-data"]
        .iter()
        .any(|prefix| kind.starts_with(prefix));
    if asked.body.is_empty() || is_form {
        return None;
    }
    if !kind.starts_with("application/json") {
        return Some("Bad Request: unsupported content type");
    }
    match serde_json::from_slice::<Value>(&asked.body) {
        Ok(Value::Object(_)) => None,
        _ => Some("Bad Request: can't parse JSON object"),
    }
}

fn parse_arguments(asked: &DoubleRequest) -> Arguments {
    let mut all: Map<String, Value> = asked
        .query
        .iter()
        .map(|query| (query.0.clone(), json!(query.1)))
        .collect();
    if asked
        .header("content-type")
        .is_some_and(|asked| asked.starts_with("application/json"))
    {
        if let Ok(Value::Object(body)) = serde_json::from_slice(&asked.body) {
            all.extend(body);
        }
    } else {
        all.extend(
            parse_form(&String::from_utf8_lossy(&asked.body))
                .into_iter()
                .map(|pair| (pair.0, json!(pair.1))),
        );
    }
    Arguments(all)
}

pub(crate) async fn handle_request(
    double: Arc<ServiceDouble<TelegramState>>,
    asked: DoubleRequest,
) -> DoubleReply {
    let rest = asked
        .path
        .strip_prefix("/bot")
        .unwrap_or_default()
        .to_owned();
    let (token, method) = rest.split_once('/').unwrap_or((&rest, ""));
    let bot_index = double.view(|view| view.bots.iter().position(|state| state.bot.token == token));
    let caller = bot_index
        .map(|bot_index| double.view(|view| view.bots[bot_index].bot.username.clone()))
        .unwrap_or_default();
    let arguments = parse_arguments(&asked);
    let overtaken = match bot_index {
        Some(bot_index) if method == "getUpdates" => {
            wait_for_updates(&double, bot_index, &arguments).await
        }
        _ => false,
    };
    let input = Value::Object(arguments.0.clone());
    double.perform_call(method, &caller, input, |world, ledger| {
        let done = match bot_index {
            None => Err(TelegramError { status: 401, description: "Unauthorized".into(), violation: Some(ViolationKind::Auth) }),
            Some(_) if body_problem(&asked).is_some() => {
                let description = body_problem(&asked).unwrap_or_default().to_owned();
                Err(TelegramError { status: 400, description, violation: Some(ViolationKind::BadField) })
            }
            Some(_) if overtaken => {
                let description =
                    "Conflict: terminated by other getUpdates request; make sure that only one \
                    bot instance is running"
                        .into();
                Err(TelegramError { status: 409, description, violation: Some(ViolationKind::WrongState) })
            }
            Some(bot_index) => {
                let rules = rate_rules(world, bot_index, method, &arguments);
                if let Err(refused) = ledger.count_call(&caller, method, &rules) {
                    return rate_limited::<TelegramState>(method, refused.seconds);
                }
                TelegramRequest { telegram: world, records: ledger, bot: bot_index, arguments: &arguments }.perform(method)
            }
        };
        match done {
            Ok(result) => ServiceAnswer::ok(json!({"ok": true, "result": result})),
            Err(slip) => {
                if let Some(wrong) = slip.violation {
                    ledger.add_violation(&caller, wrong, format!("{method}: {}", slip.description));
                }
                let body = json!({"ok": false, "error_code": slip.status, "description": slip.description});
                ServiceAnswer::error(slip.status, &slip.description, body)
            }
        }
    })
    .await
}

/// Removes the updates (news for the bot) that the bot confirms with its offset, and waits until
/// there are new updates. Returns true if a newer poll of the same bot has ended this poll.
async fn wait_for_updates(
    double: &ServiceDouble<TelegramState>,
    bot_index: usize,
    arguments: &Arguments,
) -> bool {
    let offset = arguments.number("offset").unwrap_or(0);
    let patience = Duration::from_secs(
        arguments
            .number("timeout")
            .unwrap_or(0)
            .clamp(0, 50)
            .unsigned_abs(),
    );
    let allowed = arguments.structured("allowed_updates").ok();
    let poll_number = double.update(|world, _| {
        let bot = &mut world.bots[bot_index];
        if offset > 0 {
            bot.updates
                .retain(|update| update["update_id"].as_i64() >= Some(offset));
        } else if offset < 0 {
            let keep = usize::try_from(offset.unsigned_abs()).unwrap_or(usize::MAX);
            bot.updates.drain(..bot.updates.len().saturating_sub(keep));
        }
        if let Some(Value::Array(list)) = allowed {
            bot.allowed_updates = Some(
                list.iter()
                    .filter_map(|list| list.as_str().map(str::to_owned))
                    .collect(),
            );
        }
        bot.poll_number += 1;
        bot.poll_number
    });
    let mut changes = double.watch_changes();
    let deadline = tokio::time::Instant::now() + patience;
    loop {
        changes.borrow_and_update();
        let (newest, any) = double.view(|view| {
            (
                view.bots[bot_index].poll_number,
                !view.bots[bot_index].updates.is_empty(),
            )
        });
        if newest != poll_number {
            return true;
        }
        if any
            || tokio::time::timeout_at(deadline, changes.changed())
                .await
                .is_err()
        {
            return false;
        }
    }
}

fn rate_rules(
    world: &TelegramState,
    bot_index: usize,
    method: &str,
    arguments: &Arguments,
) -> Vec<RateRule> {
    let says = ["sendMessage", "editMessageText"].contains(&method);
    let counts = says
        || [
            "sendChatAction",
            "setMessageReaction",
            "answerCallbackQuery",
        ]
        .contains(&method);
    let bot = &world.bots[bot_index].bot.username;
    let mut rules = vec![];
    if counts {
        rules.push(RateRule::window(
            format!("everything of {bot}"),
            MAX_PER_SECOND,
            SECOND,
        ));
    }
    let chat = arguments.number("chat_id").filter(|_| says);
    if let Some(chat) = chat
        .and_then(|id| world.chat_of(bot, id))
        .map(|chat_index| &world.chats[chat_index])
    {
        rules.push(RateRule::bucket(
            format!("{bot} in {}", chat.name),
            SECOND,
            CHAT_BURST,
        ));
        if chat.is_group() {
            rules.push(RateRule::window(
                format!("{bot} in the group {}", chat.name),
                MAX_PER_MINUTE_IN_GROUP,
                60 * SECOND,
            ));
        }
    }
    rules
}

struct TelegramRequest<'a> {
    telegram: &'a mut TelegramState,
    records: &'a mut CallRecords,
    bot: usize,
    arguments: &'a Arguments,
}

impl TelegramRequest<'_> {
    fn perform(&mut self, method: &str) -> TelegramResult {
        match method {
            "getMe" => {
                let name = self.bot_name();
                let mut me = self.telegram.user_json(&name);
                me["can_join_groups"] = json!(true);
                me["can_read_all_group_messages"] = json!(!self.telegram.bots[self.bot].is_private);
                me["supports_inline_queries"] = json!(false);
                Ok(me)
            }
            "getUpdates" => {
                let limit = self.arguments.number("limit").unwrap_or(100).clamp(1, 100);
                let updates = self.telegram.bots[self.bot].updates.iter();
                Ok(updates
                    .take(usize::try_from(limit).unwrap_or(100))
                    .cloned()
                    .collect())
            }
            "sendMessage" => self.send(),
            "editMessageText" => self.edit(),
            "editMessageReplyMarkup" => self.edit_keyboard(),
            "deleteMessage" => self.delete(),
            "answerCallbackQuery" => self.answer_callback(),
            "sendChatAction" => self.show_action(),
            "setMessageReaction" => self.react(),
            "deleteWebhook" | "setMyCommands" => Ok(json!(true)),
            "getWebhookInfo" => {
                let waiting = self.telegram.bots[self.bot].updates.len();
                Ok(
                    json!({"url": "", "has_custom_certificate": false, "pending_update_count": waiting}),
                )
            }
            _ => Err(TelegramError {
                status: 404,
                description: "Not Found: method not found".into(),
                violation: Some(ViolationKind::Unknown),
            }),
        }
    }

    fn bot_name(&self) -> String {
        self.telegram.bots[self.bot].bot.username.clone()
    }

    fn chat(&self) -> Result<usize, TelegramError> {
        let id = self
            .arguments
            .number("chat_id")
            .ok_or_else(|| violation_error(ViolationKind::BadField, "chat_id is empty"))?;
        let name = self.bot_name();
        let chat = self
            .telegram
            .chat_of(&name, id)
            .ok_or_else(|| bad_request("chat not found"))?;
        if !self.telegram.chats[chat].members.contains(&name) {
            let description = "Forbidden: bot is not a member of the supergroup chat".into();
            return Err(TelegramError {
                status: 403,
                description,
                violation: None,
            });
        }
        Ok(chat)
    }

    /// Returns the message's text, with and without its markup.
    fn message_text(&self, long: &str) -> Result<(String, String), TelegramError> {
        let text = self.arguments.text("text").unwrap_or_default();
        let shown = markup::plain_text(text, self.arguments.text("parse_mode")).map_err(|s| {
            violation_error(
                ViolationKind::BadMarkup,
                format!("can't parse entities: {s}"),
            )
        })?;
        if shown.trim().is_empty() {
            return Err(violation_error(
                ViolationKind::BadField,
                "message text is empty",
            ));
        }
        if shown.encode_utf16().count() > MAX_MESSAGE_UNITS {
            return Err(violation_error(ViolationKind::TooLong, long));
        }
        Ok((text.to_owned(), shown))
    }

    fn keyboard(&self) -> Result<Value, TelegramError> {
        let markup = self.arguments.structured("reply_markup")?;
        let Some(rows) = markup.get("inline_keyboard") else {
            return Ok(Value::Null);
        };
        let rows = rows.as_array().ok_or_else(|| {
            violation_error(ViolationKind::BadMarkup, "object expected as reply markup")
        })?;
        for button in rows
            .iter()
            .flat_map(|row| row.as_array().into_iter().flatten())
        {
            let data = button["callback_data"].as_str();
            let acts = button
                .as_object()
                .map_or(0, |object| object.len().saturating_sub(1));
            if !button["text"].is_string() || acts != 1 {
                return Err(violation_error(
                    ViolationKind::BadMarkup,
                    "Text buttons are unallowed in the inline keyboard",
                ));
            }
            if data.is_some_and(|data| data.is_empty() || data.len() > 64) {
                return Err(violation_error(
                    ViolationKind::TooLong,
                    "BUTTON_DATA_INVALID",
                ));
            }
        }
        Ok(if rows.is_empty() {
            Value::Null
        } else {
            json!({"inline_keyboard": rows})
        })
    }

    fn send(&mut self) -> TelegramResult {
        let chat = self.chat()?;
        let (text, shown) = self.message_text("message is too long")?;
        let keyboard = self.keyboard()?;
        let reply = self.arguments.structured("reply_parameters")?;
        let reply_to = reply["message_id"]
            .as_i64()
            .or_else(|| self.arguments.number("reply_to_message_id"));
        let lenient = reply["allow_sending_without_reply"]
            .as_bool()
            .unwrap_or(false);
        if let Some(id) = reply_to
            && !lenient
            && !self.telegram.chats[chat]
                .messages
                .iter()
                .any(|telegram_message| telegram_message.id == id)
        {
            return Err(bad_request("message to be replied not found"));
        }
        let name = self.bot_name();
        let mut message = self.telegram.new_message(self.records, &name, &text);
        (message.plain_text, message.keyboard, message.reply_to) = (shown, keyboard, reply_to);
        message.thread = self.arguments.number("message_thread_id");
        self.telegram.add_message(chat, message.clone());
        Ok(self.telegram.message_json(chat, &message))
    }

    /// Returns the message that the API call names, or an error if this bot did not post it.
    fn own_message(
        &mut self,
        chat: usize,
        verb: &str,
    ) -> Result<&mut TelegramMessage, TelegramError> {
        let id = self.arguments.number("message_id").ok_or_else(|| {
            violation_error(
                ViolationKind::BadField,
                "message identifier is not specified",
            )
        })?;
        let name = self.bot_name();
        let found = self.telegram.chats[chat]
            .messages
            .iter_mut()
            .find(|telegram_message| telegram_message.id == id);
        let found = found.ok_or_else(|| bad_request(format!("message to {verb} not found")))?;
        if found.from != name {
            return Err(violation_error(
                ViolationKind::NotOwned,
                format!("message can't be {verb}ed"),
            ));
        }
        Ok(found)
    }

    fn edit(&mut self) -> TelegramResult {
        let chat = self.chat()?;
        let (text, shown) = self.message_text("MESSAGE_TOO_LONG")?;
        let keyboard = self.keyboard()?;
        let now = self.records.elapsed();
        let message = self.own_message(chat, "edit")?;
        // A call that edits a message and has no keyboard removes the message's keyboard.
        if message.text == text && message.keyboard == keyboard {
            return Err(violation_error(
                ViolationKind::WrongState,
                "message is not modified: specified new message content and reply markup are \
                exactly the same as a current content and reply markup of the message",
            ));
        }
        message.versions.push(text.clone());
        (
            message.text,
            message.plain_text,
            message.keyboard,
            message.changed,
        ) = (text, shown, keyboard, now);
        let message = message.clone();
        Ok(self.telegram.message_json(chat, &message))
    }

    fn edit_keyboard(&mut self) -> TelegramResult {
        let (chat, keyboard) = (self.chat()?, self.keyboard()?);
        let message = self.own_message(chat, "edit")?;
        if message.keyboard == keyboard {
            return Err(violation_error(
                ViolationKind::WrongState,
                "message is not modified",
            ));
        }
        message.keyboard = keyboard;
        let message = message.clone();
        Ok(self.telegram.message_json(chat, &message))
    }

    fn delete(&mut self) -> TelegramResult {
        let chat = self.chat()?;
        let id = self.own_message(chat, "delete")?.id;
        self.telegram.chats[chat]
            .messages
            .retain(|telegram_message| telegram_message.id != id);
        Ok(json!(true))
    }

    fn answer_callback(&mut self) -> TelegramResult {
        let id = self
            .arguments
            .text("callback_query_id")
            .unwrap_or_default()
            .to_owned();
        let text = self.arguments.text("text").unwrap_or_default().to_owned();
        if text.chars().count() > 200 {
            return Err(violation_error(ViolationKind::TooLong, "MESSAGE_TOO_LONG"));
        }
        let name = self.bot_name();
        let found = self.telegram.callbacks.iter_mut().find(|callback_query| {
            callback_query.id == id
                && callback_query.bot == name
                && callback_query.answered.is_none()
        });
        let found = found.ok_or_else(|| {
            bad_request("query is too old and response timeout expired or query ID is invalid")
        })?;
        found.answered = Some(text);
        Ok(json!(true))
    }

    fn show_action(&mut self) -> TelegramResult {
        let chat = self.chat()?;
        let action = self.arguments.text("action").unwrap_or_default().to_owned();
        if !CHAT_ACTIONS.contains(&action.as_str()) {
            return Err(violation_error(
                ViolationKind::BadField,
                "wrong parameter action in request",
            ));
        }
        let (name, now) = (self.bot_name(), self.records.elapsed());
        self.telegram.chats[chat].actions.push((name, action, now));
        Ok(json!(true))
    }

    fn react(&mut self) -> TelegramResult {
        let chat = self.chat()?;
        let reaction = self.arguments.structured("reaction")?;
        let list = reaction.as_array().cloned().unwrap_or_default();
        let plain = |value: &Value| {
            value["emoji"]
                .as_str()
                .map(|emoji| emoji.trim_end_matches('\u{fe0f}').to_owned())
        };
        let emoji: Option<Vec<String>> = list.iter().map(plain).collect();
        let emoji = emoji.filter(|emoji| {
            emoji.len() <= 1
                && emoji
                    .iter()
                    .all(|emoji| !emoji.is_empty() && REACTION_EMOJI.contains(emoji.as_str()))
        });
        let emoji =
            emoji.ok_or_else(|| violation_error(ViolationKind::BadField, "REACTION_INVALID"))?;
        let id = self.arguments.number("message_id");
        let name = self.bot_name();
        let found = self.telegram.chats[chat]
            .messages
            .iter_mut()
            .find(|telegram_message| Some(telegram_message.id) == id);
        let found = found.ok_or_else(|| bad_request("message to react not found"))?;
        found.reactions.retain(|reaction| reaction.1 != name);
        found
            .reactions
            .extend(emoji.into_iter().map(|emoji| (emoji, name.clone())));
        Ok(json!(true))
    }
}
