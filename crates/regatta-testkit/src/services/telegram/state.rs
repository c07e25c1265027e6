//! The state of the double: bots, people, and chats with their messages.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::double::{self, CallRecords};
use super::super::rate_limit::header_text;
use super::super::signature;

/// The data that a bot must know about itself to use Telegram.
#[derive(Clone, Debug)]
pub struct TelegramBot {
    pub id: i64,
    /// The bot's username, without the @.
    pub username: String,
    pub token: String,
}

pub(crate) struct TelegramBotState {
    pub(crate) bot: TelegramBot,
    /// Updates (news for the bot) that the bot has not confirmed yet.
    pub(crate) updates: Vec<Value>,
    /// The number of polls that the bot has started. A new poll ends the one before it.
    pub(crate) poll_number: u64,
    pub(crate) allowed_updates: Option<Vec<String>>,
    /// True if the bot receives only mentions and replies in groups (privacy mode).
    pub(crate) is_private: bool,
    pub(crate) next_update: i64,
}

/// A message in its present form.
#[derive(Clone, Debug)]
pub struct TelegramMessage {
    pub id: i64,
    /// The name of the person or bot that posted the message.
    pub from: String,
    /// The text with its markup, as it was sent.
    pub text: String,
    /// The text as people see it.
    pub plain_text: String,
    pub reply_to: Option<i64>,
    pub thread: Option<i64>,
    pub keyboard: Value,
    /// The reactions to the message, each with its emoji and user.
    pub reactions: Vec<(String, String)>,
    /// The time when the message was posted, counted from the start of the double (the imitation of
    /// Telegram).
    pub posted: Duration,
    pub changed: Duration,
    /// All texts that the message has had, the present one last.
    pub versions: Vec<String>,
}

impl TelegramMessage {
    /// Returns the text and the data of each button of the message.
    pub fn buttons(&self) -> Vec<(String, String)> {
        let text =
            |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
        let rows = self.keyboard["inline_keyboard"]
            .as_array()
            .into_iter()
            .flatten();
        let buttons = rows.flat_map(|row| row.as_array().into_iter().flatten());
        buttons
            .map(|button| (text(button, "text"), text(button, "callback_data")))
            .collect()
    }
}

pub(crate) struct TelegramChat {
    pub(crate) id: i64,
    pub(crate) name: String,
    /// The bot of a private chat. The id of a private chat is the person's id, so several private
    /// chats of one person differ only in the bot.
    pub(crate) direct_bot: Option<String>,
    /// The names of the people and bots in the chat.
    pub(crate) members: BTreeSet<String>,
    pub(crate) messages: Vec<TelegramMessage>,
    /// The activities that bots have shown in the chat, such as "typing". Each entry has the bot,
    /// the activity and the time.
    pub(crate) actions: Vec<(String, String, Duration)>,
}

impl TelegramChat {
    pub(crate) fn is_group(&self) -> bool {
        self.direct_bot.is_none()
    }
}

/// A person's press of a button, as a bot receives it.
#[derive(Clone, Debug)]
pub struct CallbackQuery {
    pub id: String,
    pub bot: String,
    pub data: String,
    /// The text of the bot's answer; empty if the answer has no text. `None` until the bot answers.
    pub answered: Option<String>,
}

/// The state of the imitated Telegram: the parts that bots use.
pub struct TelegramState {
    pub(crate) bots: Vec<TelegramBotState>,
    /// The ids and names of people.
    pub(crate) people: Vec<(i64, String)>,
    pub(crate) chats: Vec<TelegramChat>,
    pub(crate) callbacks: Vec<CallbackQuery>,
}

impl double::ServiceState for TelegramState {
    fn rate_limit_answer(_: &str, seconds: f64) -> (u16, Vec<(&'static str, String)>, Value) {
        let number = if seconds.fract() == 0.0 {
            json!(seconds as u64)
        } else {
            json!(seconds)
        };
        let words = header_text(seconds);
        let body = json!({
            "ok": false, "error_code": 429, "description": format!("Too Many Requests: retry \
                after {words}"),
            "parameters": {"retry_after": number},
        });
        (429, vec![("retry-after", words)], body)
    }
}

impl TelegramState {
    /// Returns the messages of a chat, by its name or id.
    pub fn messages(&self, chat: &str) -> &[TelegramMessage] {
        self.chat(chat)
            .map(|telegram_chat| telegram_chat.messages.as_slice())
            .unwrap_or_default()
    }

    /// Returns a message of a chat, if it exists.
    pub fn message(&self, chat: &str, id: i64) -> Option<&TelegramMessage> {
        self.messages(chat)
            .iter()
            .find(|telegram_message| telegram_message.id == id)
    }

    /// Returns the activities that bots have shown in a chat, such as "typing". Each entry has the
    /// bot, the activity and the time.
    pub fn actions(&self, chat: &str) -> &[(String, String, Duration)] {
        self.chat(chat)
            .map(|telegram_chat| telegram_chat.actions.as_slice())
            .unwrap_or_default()
    }

    /// Returns all presses of buttons by people, with the bots' answers.
    pub fn callbacks(&self) -> &[CallbackQuery] {
        &self.callbacks
    }

    /// Returns the number of updates (news for the bot) that a bot has not confirmed.
    pub fn unconfirmed(&self, bot: &str) -> usize {
        self.bots
            .iter()
            .find(|telegram_bot_state| telegram_bot_state.bot.username == bot)
            .map_or(0, |telegram_bot_state| telegram_bot_state.updates.len())
    }

    /// Returns how many polls a bot has started.
    pub fn poll_count(&self, bot: &str) -> u64 {
        self.bots
            .iter()
            .find(|telegram_bot_state| telegram_bot_state.bot.username == bot)
            .map_or(0, |telegram_bot_state| telegram_bot_state.poll_number)
    }

    pub(crate) fn chat(&self, name: &str) -> Option<&TelegramChat> {
        self.chats.iter().find(|telegram_chat| {
            telegram_chat.name == name || telegram_chat.id.to_string() == name
        })
    }

    pub(crate) fn chat_index(&self, name: &str) -> usize {
        let found = self.chats.iter().position(|telegram_chat| {
            telegram_chat.name == name || telegram_chat.id.to_string() == name
        });
        found.unwrap_or_else(|| panic!("no chat is called {name}"))
    }

    /// Returns the position of the chat with this id, if the bot is in it.
    pub(crate) fn chat_of(&self, bot: &str, id: i64) -> Option<usize> {
        self.chats.iter().position(|telegram_chat| {
            telegram_chat.id == id
                && telegram_chat
                    .direct_bot
                    .as_ref()
                    .is_none_or(|direct_bot| direct_bot == bot)
        })
    }

    pub(crate) fn user_json(&self, name: &str) -> Value {
        if let Some(telegram_bot_state) = self
            .bots
            .iter()
            .find(|telegram_bot_state| telegram_bot_state.bot.username == name)
        {
            return json!({"id": telegram_bot_state.bot.id, "is_bot": true, "first_name": name, "username": name});
        }
        let id = self
            .people
            .iter()
            .find(|people| people.1 == name)
            .map(|people| people.0);
        json!({"id": id, "is_bot": false, "first_name": name, "username": name, "language_code": "en"})
    }

    pub(crate) fn message_json(&self, chat: usize, message: &TelegramMessage) -> Value {
        let place = &self.chats[chat];
        let kind = if place.is_group() {
            json!({"id": place.id, "type": "supergroup", "title": place.name})
        } else {
            let person = self
                .people
                .iter()
                .find(|people| people.0 == place.id)
                .map(|people| people.1.clone())
                .unwrap_or_default();
            json!({"id": place.id, "type": "private", "first_name": person, "username": person})
        };
        let mut shown = json!({
            "message_id": message.id, "from": self.user_json(&message.from), "chat": kind, "date": signature::unix_time().as_secs(),
            "text": message.plain_text,
        });
        let entities = message_entities(&message.plain_text);
        if !entities.is_empty() {
            shown["entities"] = Value::Array(entities);
        }
        if let Some(thread) = message.thread {
            shown["message_thread_id"] = json!(thread);
        }
        if !message.keyboard.is_null() {
            shown["reply_markup"] = message.keyboard.clone();
        }
        let answered = message.reply_to.and_then(|id| {
            place
                .messages
                .iter()
                .find(|telegram_message| telegram_message.id == id)
        });
        if let Some(answered) = answered {
            let mut inner = answered.clone();
            inner.reply_to = None;
            shown["reply_to_message"] = self.message_json(chat, &inner);
        }
        if message.versions.len() > 1 {
            shown["edit_date"] = json!(signature::unix_time().as_secs());
        }
        shown
    }

    /// Adds a message to a chat, and queues updates for the bots that may see it. Bots do not see
    /// messages of other bots.
    pub(crate) fn add_message(&mut self, chat: usize, message: TelegramMessage) {
        let from_bot = self
            .bots
            .iter()
            .any(|telegram_bot_state| telegram_bot_state.bot.username == message.from);
        self.chats[chat].messages.push(message.clone());
        if from_bot {
            return;
        }
        let shown = self.message_json(chat, &message);
        self.queue_updates(chat, &message, "message", &shown);
    }

    /// Queues updates (news for a bot) about a person's message for the bots of the chat.
    pub(crate) fn queue_updates(
        &mut self,
        chat: usize,
        message: &TelegramMessage,
        kind: &str,
        shown: &Value,
    ) {
        let place = &self.chats[chat];
        let replied = message.reply_to.and_then(|id| {
            place
                .messages
                .iter()
                .find(|telegram_message| telegram_message.id == id)
        });
        let replied = replied.map(|telegram_message| telegram_message.from.clone());
        let (members, group, only) = (
            place.members.clone(),
            place.is_group(),
            place.direct_bot.clone(),
        );
        for bot in &mut self.bots {
            let name = &bot.bot.username;
            let named = message.plain_text.contains(&format!("@{name}"))
                || message.plain_text.starts_with('/');
            let sees = !group || !bot.is_private || named || replied.as_ref() == Some(name);
            if members.contains(name) && only.as_ref().is_none_or(|only| only == name) && sees {
                bot.add_update(kind, shown.clone());
            }
        }
    }

    pub(crate) fn new_message(
        &self,
        ledger: &mut CallRecords,
        from: &str,
        text: &str,
    ) -> TelegramMessage {
        let now = ledger.elapsed();
        TelegramMessage {
            id: i64::try_from(ledger.next()).unwrap_or(i64::MAX),
            from: from.to_owned(),
            text: text.to_owned(),
            plain_text: text.to_owned(),
            reply_to: None,
            thread: None,
            keyboard: Value::Null,
            reactions: vec![],
            posted: now,
            changed: now,
            versions: vec![text.to_owned()],
        }
    }
}

impl TelegramBotState {
    pub(crate) fn add_update(&mut self, kind: &str, what: Value) {
        // A bot that has named no allowed updates receives all kinds of updates (news for the bot)
        // except a few.
        let asked = self
            .allowed_updates
            .as_ref()
            .filter(|allowed_updates| !allowed_updates.is_empty());
        let is_allowed = asked.map_or(kind != "message_reaction", |asked| {
            asked.iter().any(|s| s == kind)
        });
        if is_allowed {
            self.next_update += 1;
            let mut update = json!({"update_id": self.next_update});
            update[kind] = what;
            self.updates.push(update);
        }
    }
}

/// Returns the mentions and commands in a text, with their positions in UTF-16 units.
fn message_entities(text: &str) -> Vec<Value> {
    let mut found = vec![];
    let mut offset = 0;
    for word in text.split_inclusive([' ', '\n']) {
        let name: String = word
            .chars()
            .take_while(|c| c.is_alphanumeric() || "_@/".contains(*c))
            .collect();
        let kind = match name.chars().next() {
            Some('@') => "mention",
            Some('/') => "bot_command",
            _ => "",
        };
        if !kind.is_empty() && name.len() > 1 {
            found.push(
                json!({"type": kind, "offset": offset, "length": name.encode_utf16().count()}),
            );
        }
        offset += word.encode_utf16().count();
    }
    found
}
