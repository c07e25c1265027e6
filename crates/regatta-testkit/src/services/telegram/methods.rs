//! The Bot API: the long poll, and the methods of bots.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::super::desk::{Answer, Desk, Ledger, Wrong, limited};
use super::super::door::{Asked, Reply, pairs};
use super::super::limit::Rule;
use super::markup;
use super::world::{Message, World};

const SECOND: Duration = Duration::from_secs(1);
/// The limit of a bot in all chats, per second.
pub const PER_SECOND: u32 = 30;
/// The burst in one chat. The rate is one message per second.
pub const BURST: u32 = 3;
/// The limit in one group, per minute.
pub const PER_MINUTE_IN_GROUP: u32 = 20;
/// The largest number of UTF-16 units in a message without its markup.
pub const LENGTH: usize = 4096;

const ACTIONS: [&str; 11] = [
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
const EMOJI: &str = "👍👎❤🔥🥰👏😁🤔🤯😱🤬😢🎉🤩🤮💩🙏👌🕊🤡🥱🥴😍🐳🌚🌭💯🤣⚡🍌🏆💔🤨😐🍓🍾💋🖕😈😴😭🤓👻👀🎃🙈😇😨🤝✍🤗🫡🎅🎄☃💅🤪🗿🆒💘🙉🦄😘💊🙊😎👾🤷😡";

/// The reason why a method refuses a call.
struct Slip {
    status: u16,
    description: String,
    wrong: Option<Wrong>,
}

fn bad(what: impl std::fmt::Display) -> Slip {
    Slip { status: 400, description: format!("Bad Request: {what}"), wrong: None }
}

fn fault(wrong: Wrong, what: impl std::fmt::Display) -> Slip {
    Slip { wrong: Some(wrong), ..bad(what) }
}

type Done = Result<Value, Slip>;

struct Arguments(Map<String, Value>);

impl Arguments {
    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str).filter(|it| !it.is_empty())
    }

    fn number(&self, name: &str) -> Option<i64> {
        let found = self.0.get(name)?;
        found.as_i64().or_else(|| found.as_str()?.parse().ok())
    }

    /// Returns a structured field. A form has such a field as JSON text.
    fn structured(&self, name: &str) -> Result<Value, Slip> {
        match self.0.get(name) {
            Some(Value::String(text)) if text.is_empty() => Ok(Value::Null),
            Some(Value::String(text)) => {
                serde_json::from_str(text).map_err(|_| fault(Wrong::Markup, format!("can't parse {name} JSON object")))
            }
            Some(other) => Ok(other.clone()),
            None => Ok(Value::Null),
        }
    }
}

/// Returns the error for a body that cannot be parsed.
fn malformed(asked: &Asked) -> Option<&'static str> {
    let kind = asked.header("content-type").unwrap_or_default();
    let is_form = ["application/x-www-form-urlencoded", "multipart/form-data"].iter().any(|it| kind.starts_with(it));
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

fn arguments(asked: &Asked) -> Arguments {
    let mut all: Map<String, Value> = asked.query.iter().map(|it| (it.0.clone(), json!(it.1))).collect();
    if asked.header("content-type").is_some_and(|it| it.starts_with("application/json")) {
        if let Ok(Value::Object(body)) = serde_json::from_slice(&asked.body) {
            all.extend(body);
        }
    } else {
        all.extend(pairs(&String::from_utf8_lossy(&asked.body)).into_iter().map(|it| (it.0, json!(it.1))));
    }
    Arguments(all)
}

pub(crate) async fn handle(desk: Arc<Desk<World>>, asked: Asked) -> Reply {
    let rest = asked.path.strip_prefix("/bot").unwrap_or_default().to_owned();
    let (token, method) = rest.split_once('/').unwrap_or((&rest, ""));
    let at = desk.view(|view| view.bots.iter().position(|it| it.bot.token == token));
    let by = at.map(|at| desk.view(|view| view.bots[at].bot.username.clone())).unwrap_or_default();
    let arguments = arguments(&asked);
    let overtaken = match at {
        Some(at) if method == "getUpdates" => poll(&desk, at, &arguments).await,
        _ => false,
    };
    let input = Value::Object(arguments.0.clone());
    desk.call(method, &by, input, |world, ledger| {
        let done = match at {
            None => Err(Slip { status: 401, description: "Unauthorized".into(), wrong: Some(Wrong::Auth) }),
            Some(_) if malformed(&asked).is_some() => {
                let description = malformed(&asked).unwrap_or_default().to_owned();
                Err(Slip { status: 400, description, wrong: Some(Wrong::Field) })
            }
            Some(_) if overtaken => {
                let description =
                    "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running"
                        .into();
                Err(Slip { status: 409, description, wrong: Some(Wrong::State) })
            }
            Some(at) => {
                let rules = rules(world, at, method, &arguments);
                if let Err(refused) = ledger.take(&by, method, &rules) {
                    return limited::<World>(method, refused.seconds);
                }
                Turn { world, ledger, at, arguments: &arguments }.perform(method)
            }
        };
        match done {
            Ok(result) => Answer::ok(json!({"ok": true, "result": result})),
            Err(slip) => {
                if let Some(wrong) = slip.wrong {
                    ledger.wrong(&by, wrong, format!("{method}: {}", slip.description));
                }
                let body = json!({"ok": false, "error_code": slip.status, "description": slip.description});
                Answer::error(slip.status, &slip.description, body)
            }
        }
    })
    .await
}

/// Confirms updates below the offset, then waits for updates. Returns whether a newer poll took
/// over.
async fn poll(desk: &Desk<World>, at: usize, arguments: &Arguments) -> bool {
    let offset = arguments.number("offset").unwrap_or(0);
    let patience = Duration::from_secs(arguments.number("timeout").unwrap_or(0).clamp(0, 50).unsigned_abs());
    let allowed = arguments.structured("allowed_updates").ok();
    let mine = desk.change(|world, _| {
        let bot = &mut world.bots[at];
        if offset > 0 {
            bot.updates.retain(|it| it["update_id"].as_i64() >= Some(offset));
        } else if offset < 0 {
            let keep = usize::try_from(offset.unsigned_abs()).unwrap_or(usize::MAX);
            bot.updates.drain(..bot.updates.len().saturating_sub(keep));
        }
        if let Some(Value::Array(list)) = allowed {
            bot.allowed = Some(list.iter().filter_map(|it| it.as_str().map(str::to_owned)).collect());
        }
        bot.poll += 1;
        bot.poll
    });
    let mut changes = desk.changes();
    let deadline = tokio::time::Instant::now() + patience;
    loop {
        changes.borrow_and_update();
        let (newest, any) = desk.view(|view| (view.bots[at].poll, !view.bots[at].updates.is_empty()));
        if newest != mine {
            return true;
        }
        if any || tokio::time::timeout_at(deadline, changes.changed()).await.is_err() {
            return false;
        }
    }
}

fn rules(world: &World, at: usize, method: &str, arguments: &Arguments) -> Vec<Rule> {
    let says = ["sendMessage", "editMessageText"].contains(&method);
    let counts = says || ["sendChatAction", "setMessageReaction", "answerCallbackQuery"].contains(&method);
    let bot = &world.bots[at].bot.username;
    let mut rules = vec![];
    if counts {
        rules.push(Rule::window(format!("everything of {bot}"), PER_SECOND, SECOND));
    }
    let chat = arguments.number("chat_id").filter(|_| says);
    if let Some(chat) = chat.and_then(|id| world.chat_of(bot, id)).map(|at| &world.chats[at]) {
        rules.push(Rule::bucket(format!("{bot} in {}", chat.name), SECOND, BURST));
        if chat.is_group() {
            rules.push(Rule::window(format!("{bot} in the group {}", chat.name), PER_MINUTE_IN_GROUP, 60 * SECOND));
        }
    }
    rules
}

struct Turn<'a> {
    world: &'a mut World,
    ledger: &'a mut Ledger,
    at: usize,
    arguments: &'a Arguments,
}

impl Turn<'_> {
    fn perform(&mut self, method: &str) -> Done {
        match method {
            "getMe" => {
                let name = self.name();
                let mut me = self.world.user(&name);
                me["can_join_groups"] = json!(true);
                me["can_read_all_group_messages"] = json!(!self.world.bots[self.at].private);
                me["supports_inline_queries"] = json!(false);
                Ok(me)
            }
            "getUpdates" => {
                let limit = self.arguments.number("limit").unwrap_or(100).clamp(1, 100);
                let updates = self.world.bots[self.at].updates.iter();
                Ok(updates.take(usize::try_from(limit).unwrap_or(100)).cloned().collect())
            }
            "sendMessage" => self.send(),
            "editMessageText" => self.edit(),
            "editMessageReplyMarkup" => self.rekey(),
            "deleteMessage" => self.delete(),
            "answerCallbackQuery" => self.answer(),
            "sendChatAction" => self.show_action(),
            "setMessageReaction" => self.react(),
            "deleteWebhook" | "setMyCommands" => Ok(json!(true)),
            "getWebhookInfo" => {
                let waiting = self.world.bots[self.at].updates.len();
                Ok(json!({"url": "", "has_custom_certificate": false, "pending_update_count": waiting}))
            }
            _ => Err(Slip {
                status: 404,
                description: "Not Found: method not found".into(),
                wrong: Some(Wrong::Unknown),
            }),
        }
    }

    fn name(&self) -> String {
        self.world.bots[self.at].bot.username.clone()
    }

    fn chat(&self) -> Result<usize, Slip> {
        let id = self.arguments.number("chat_id").ok_or_else(|| fault(Wrong::Field, "chat_id is empty"))?;
        let name = self.name();
        let chat = self.world.chat_of(&name, id).ok_or_else(|| bad("chat not found"))?;
        if !self.world.chats[chat].members.contains(&name) {
            let description = "Forbidden: bot is not a member of the supergroup chat".into();
            return Err(Slip { status: 403, description, wrong: None });
        }
        Ok(chat)
    }

    /// Returns the text with and without its markup.
    fn text(&self, long: &str) -> Result<(String, String), Slip> {
        let text = self.arguments.text("text").unwrap_or_default();
        let shown = markup::plain(text, self.arguments.text("parse_mode"))
            .map_err(|it| fault(Wrong::Markup, format!("can't parse entities: {it}")))?;
        if shown.trim().is_empty() {
            return Err(fault(Wrong::Field, "message text is empty"));
        }
        if shown.encode_utf16().count() > LENGTH {
            return Err(fault(Wrong::TooLong, long));
        }
        Ok((text.to_owned(), shown))
    }

    fn keyboard(&self) -> Result<Value, Slip> {
        let markup = self.arguments.structured("reply_markup")?;
        let Some(rows) = markup.get("inline_keyboard") else { return Ok(Value::Null) };
        let rows = rows.as_array().ok_or_else(|| fault(Wrong::Markup, "object expected as reply markup"))?;
        for button in rows.iter().flat_map(|it| it.as_array().into_iter().flatten()) {
            let data = button["callback_data"].as_str();
            let acts = button.as_object().map_or(0, |it| it.len().saturating_sub(1));
            if !button["text"].is_string() || acts != 1 {
                return Err(fault(Wrong::Markup, "Text buttons are unallowed in the inline keyboard"));
            }
            if data.is_some_and(|it| it.is_empty() || it.len() > 64) {
                return Err(fault(Wrong::TooLong, "BUTTON_DATA_INVALID"));
            }
        }
        Ok(if rows.is_empty() { Value::Null } else { json!({"inline_keyboard": rows}) })
    }

    fn send(&mut self) -> Done {
        let chat = self.chat()?;
        let (text, shown) = self.text("message is too long")?;
        let keyboard = self.keyboard()?;
        let reply = self.arguments.structured("reply_parameters")?;
        let reply_to = reply["message_id"].as_i64().or_else(|| self.arguments.number("reply_to_message_id"));
        let lenient = reply["allow_sending_without_reply"].as_bool().unwrap_or(false);
        if let Some(id) = reply_to
            && !lenient
            && !self.world.chats[chat].messages.iter().any(|it| it.id == id)
        {
            return Err(bad("message to be replied not found"));
        }
        let name = self.name();
        let mut message = self.world.fresh(self.ledger, &name, &text);
        (message.shown, message.keyboard, message.reply_to) = (shown, keyboard, reply_to);
        message.thread = self.arguments.number("message_thread_id");
        self.world.put(chat, message.clone());
        Ok(self.world.show(chat, &message))
    }

    /// Returns a message of this bot.
    fn own(&mut self, chat: usize, verb: &str) -> Result<&mut Message, Slip> {
        let id = self
            .arguments
            .number("message_id")
            .ok_or_else(|| fault(Wrong::Field, "message identifier is not specified"))?;
        let name = self.name();
        let found = self.world.chats[chat].messages.iter_mut().find(|it| it.id == id);
        let found = found.ok_or_else(|| bad(format!("message to {verb} not found")))?;
        if found.from != name {
            return Err(fault(Wrong::Foreign, format!("message can't be {verb}ed")));
        }
        Ok(found)
    }

    fn edit(&mut self) -> Done {
        let chat = self.chat()?;
        let (text, shown) = self.text("MESSAGE_TOO_LONG")?;
        let keyboard = self.keyboard()?;
        let now = self.ledger.elapsed();
        let message = self.own(chat, "edit")?;
        // Without a keyboard in the call, the old one is removed.
        if message.text == text && message.keyboard == keyboard {
            return Err(fault(
                Wrong::State,
                "message is not modified: specified new message content and reply markup are exactly the same as a current content and reply markup of the message",
            ));
        }
        message.versions.push(text.clone());
        (message.text, message.shown, message.keyboard, message.changed) = (text, shown, keyboard, now);
        let message = message.clone();
        Ok(self.world.show(chat, &message))
    }

    fn rekey(&mut self) -> Done {
        let (chat, keyboard) = (self.chat()?, self.keyboard()?);
        let message = self.own(chat, "edit")?;
        if message.keyboard == keyboard {
            return Err(fault(Wrong::State, "message is not modified"));
        }
        message.keyboard = keyboard;
        let message = message.clone();
        Ok(self.world.show(chat, &message))
    }

    fn delete(&mut self) -> Done {
        let chat = self.chat()?;
        let id = self.own(chat, "delete")?.id;
        self.world.chats[chat].messages.retain(|it| it.id != id);
        Ok(json!(true))
    }

    fn answer(&mut self) -> Done {
        let id = self.arguments.text("callback_query_id").unwrap_or_default().to_owned();
        let said = self.arguments.text("text").unwrap_or_default().to_owned();
        if said.chars().count() > 200 {
            return Err(fault(Wrong::TooLong, "MESSAGE_TOO_LONG"));
        }
        let name = self.name();
        let found = self.world.callbacks.iter_mut().find(|it| it.id == id && it.bot == name && it.answered.is_none());
        let found = found.ok_or_else(|| bad("query is too old and response timeout expired or query ID is invalid"))?;
        found.answered = Some(said);
        Ok(json!(true))
    }

    fn show_action(&mut self) -> Done {
        let chat = self.chat()?;
        let action = self.arguments.text("action").unwrap_or_default().to_owned();
        if !ACTIONS.contains(&action.as_str()) {
            return Err(fault(Wrong::Field, "wrong parameter action in request"));
        }
        let (name, now) = (self.name(), self.ledger.elapsed());
        self.world.chats[chat].actions.push((name, action, now));
        Ok(json!(true))
    }

    fn react(&mut self) -> Done {
        let chat = self.chat()?;
        let reaction = self.arguments.structured("reaction")?;
        let list = reaction.as_array().cloned().unwrap_or_default();
        let plain = |it: &Value| it["emoji"].as_str().map(|it| it.trim_end_matches('\u{fe0f}').to_owned());
        let emoji: Option<Vec<String>> = list.iter().map(plain).collect();
        let emoji =
            emoji.filter(|it| it.len() <= 1 && it.iter().all(|it| !it.is_empty() && EMOJI.contains(it.as_str())));
        let emoji = emoji.ok_or_else(|| fault(Wrong::Field, "REACTION_INVALID"))?;
        let id = self.arguments.number("message_id");
        let name = self.name();
        let found = self.world.chats[chat].messages.iter_mut().find(|it| Some(it.id) == id);
        let found = found.ok_or_else(|| bad("message to react not found"))?;
        found.reactions.retain(|it| it.1 != name);
        found.reactions.extend(emoji.into_iter().map(|it| (it, name.clone())));
        Ok(json!(true))
    }
}
