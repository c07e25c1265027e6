//! Bots, people, chats, and what was said in them.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::desk::{self, Ledger};
use super::super::limit::in_words;
use super::super::sign;

/// What a bot needs to know of itself.
#[derive(Clone, Debug)]
pub struct Bot {
    pub id: i64,
    /// Without the @.
    pub username: String,
    pub token: String,
}

pub(crate) struct BotState {
    pub(crate) bot: Bot,
    /// Updates that were not confirmed yet.
    pub(crate) updates: Vec<Value>,
    /// Counts the polls: a newer one ends an older one.
    pub(crate) poll: u64,
    pub(crate) allowed: Option<Vec<String>>,
    /// In groups it gets only what names it or answers it.
    pub(crate) private: bool,
    pub(crate) next_update: i64,
}

/// A message, as it stands now.
#[derive(Clone, Debug)]
pub struct Message {
    pub id: i64,
    /// A person's name, or a bot's.
    pub from: String,
    /// As it was sent, with its markup.
    pub text: String,
    /// As people see it.
    pub shown: String,
    pub reply_to: Option<i64>,
    pub thread: Option<i64>,
    pub keyboard: Value,
    /// Emoji and who reacted.
    pub reactions: Vec<(String, String)>,
    /// Since the double began.
    pub posted: Duration,
    pub changed: Duration,
    /// Every text it had, the present one last.
    pub versions: Vec<String>,
}

impl Message {
    /// Every button: its text and its data.
    pub fn buttons(&self) -> Vec<(String, String)> {
        let text = |it: &Value, field: &str| it[field].as_str().unwrap_or_default().to_owned();
        let rows = self.keyboard["inline_keyboard"].as_array().into_iter().flatten();
        let buttons = rows.flat_map(|it| it.as_array().into_iter().flatten());
        buttons.map(|it| (text(it, "text"), text(it, "callback_data"))).collect()
    }
}

pub(crate) struct Chat {
    pub(crate) id: i64,
    pub(crate) name: String,
    /// The bot of a chat of two: such a chat has its person's id, whichever the bot is.
    pub(crate) only: Option<String>,
    /// Names of people and bots.
    pub(crate) members: BTreeSet<String>,
    pub(crate) messages: Vec<Message>,
    /// What bots are seen to do there: who, what, when.
    pub(crate) actions: Vec<(String, String, Duration)>,
}

impl Chat {
    pub(crate) fn is_group(&self) -> bool {
        self.only.is_none()
    }
}

/// A click on a button.
#[derive(Clone, Debug)]
pub struct Callback {
    pub id: String,
    pub bot: String,
    pub data: String,
    /// What the bot answered; an empty answer only ends the wait.
    pub answered: Option<String>,
}

/// Telegram, as far as bots see it.
pub struct World {
    pub(crate) bots: Vec<BotState>,
    /// Id and name.
    pub(crate) people: Vec<(i64, String)>,
    pub(crate) chats: Vec<Chat>,
    pub(crate) callbacks: Vec<Callback>,
}

impl desk::World for World {
    fn limited(_: &str, seconds: f64) -> (u16, Vec<(&'static str, String)>, Value) {
        let number = if seconds.fract() == 0.0 { json!(seconds as u64) } else { json!(seconds) };
        let words = in_words(seconds);
        let body = json!({
            "ok": false, "error_code": 429, "description": format!("Too Many Requests: retry after {words}"),
            "parameters": {"retry_after": number},
        });
        (429, vec![("retry-after", words)], body)
    }
}

impl World {
    /// The messages of a chat, by its name or id.
    pub fn messages(&self, chat: &str) -> &[Message] {
        self.chat(chat).map(|it| it.messages.as_slice()).unwrap_or_default()
    }

    /// One message.
    pub fn message(&self, chat: &str, id: i64) -> Option<&Message> {
        self.messages(chat).iter().find(|it| it.id == id)
    }

    /// What bots were seen to do in a chat: who, what, when.
    pub fn actions(&self, chat: &str) -> &[(String, String, Duration)] {
        self.chat(chat).map(|it| it.actions.as_slice()).unwrap_or_default()
    }

    /// Every click.
    pub fn callbacks(&self) -> &[Callback] {
        &self.callbacks
    }

    /// How many updates a bot has not confirmed yet.
    pub fn unconfirmed(&self, bot: &str) -> usize {
        self.bots.iter().find(|it| it.bot.username == bot).map_or(0, |it| it.updates.len())
    }

    /// How many polls a bot has begun.
    pub fn polls(&self, bot: &str) -> u64 {
        self.bots.iter().find(|it| it.bot.username == bot).map_or(0, |it| it.poll)
    }

    pub(crate) fn chat(&self, name: &str) -> Option<&Chat> {
        self.chats.iter().find(|it| it.name == name || it.id.to_string() == name)
    }

    pub(crate) fn place(&self, name: &str) -> usize {
        let found = self.chats.iter().position(|it| it.name == name || it.id.to_string() == name);
        found.unwrap_or_else(|| panic!("no chat is called {name}"))
    }

    /// The chat of this id that this bot is in.
    pub(crate) fn chat_of(&self, bot: &str, id: i64) -> Option<usize> {
        self.chats.iter().position(|it| it.id == id && it.only.as_ref().is_none_or(|it| it == bot))
    }

    pub(crate) fn user(&self, name: &str) -> Value {
        if let Some(it) = self.bots.iter().find(|it| it.bot.username == name) {
            return json!({"id": it.bot.id, "is_bot": true, "first_name": name, "username": name});
        }
        let id = self.people.iter().find(|it| it.1 == name).map(|it| it.0);
        json!({"id": id, "is_bot": false, "first_name": name, "username": name, "language_code": "en"})
    }

    pub(crate) fn show(&self, chat: usize, message: &Message) -> Value {
        let place = &self.chats[chat];
        let kind = if place.is_group() {
            json!({"id": place.id, "type": "supergroup", "title": place.name})
        } else {
            let person = self.people.iter().find(|it| it.0 == place.id).map(|it| it.1.clone()).unwrap_or_default();
            json!({"id": place.id, "type": "private", "first_name": person, "username": person})
        };
        let mut shown = json!({
            "message_id": message.id, "from": self.user(&message.from), "chat": kind, "date": sign::now().as_secs(),
            "text": message.shown,
        });
        let entities = entities(&message.shown);
        if !entities.is_empty() {
            shown["entities"] = Value::Array(entities);
        }
        if let Some(thread) = message.thread {
            shown["message_thread_id"] = json!(thread);
        }
        if !message.keyboard.is_null() {
            shown["reply_markup"] = message.keyboard.clone();
        }
        let answered = message.reply_to.and_then(|id| place.messages.iter().find(|it| it.id == id));
        if let Some(answered) = answered {
            let mut inner = answered.clone();
            inner.reply_to = None;
            shown["reply_to_message"] = self.show(chat, &inner);
        }
        if message.versions.len() > 1 {
            shown["edit_date"] = json!(sign::now().as_secs());
        }
        shown
    }

    /// Puts a message into a chat, and tells the bots that may see it: never of what a bot said.
    pub(crate) fn put(&mut self, chat: usize, message: Message) {
        let from_bot = self.bots.iter().any(|it| it.bot.username == message.from);
        self.chats[chat].messages.push(message.clone());
        if from_bot {
            return;
        }
        let shown = self.show(chat, &message);
        self.tell(chat, &message, "message", &shown);
    }

    /// Tells the bots of a chat about a message of a person.
    pub(crate) fn tell(&mut self, chat: usize, message: &Message, kind: &str, shown: &Value) {
        let place = &self.chats[chat];
        let replied = message.reply_to.and_then(|id| place.messages.iter().find(|it| it.id == id));
        let replied = replied.map(|it| it.from.clone());
        let (members, group, only) = (place.members.clone(), place.is_group(), place.only.clone());
        for bot in &mut self.bots {
            let name = &bot.bot.username;
            let named = message.shown.contains(&format!("@{name}")) || message.shown.starts_with('/');
            let sees = !group || !bot.private || named || replied.as_ref() == Some(name);
            if members.contains(name) && only.as_ref().is_none_or(|it| it == name) && sees {
                bot.update(kind, shown.clone());
            }
        }
    }

    pub(crate) fn fresh(&self, ledger: &mut Ledger, from: &str, text: &str) -> Message {
        let now = ledger.elapsed();
        Message {
            id: i64::try_from(ledger.next()).unwrap_or(i64::MAX),
            from: from.to_owned(),
            text: text.to_owned(),
            shown: text.to_owned(),
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

impl BotState {
    pub(crate) fn update(&mut self, kind: &str, what: Value) {
        // By default everything but a few kinds that must be asked for.
        let asked = self.allowed.as_ref().filter(|it| !it.is_empty());
        let wanted = asked.map_or(kind != "message_reaction", |it| it.iter().any(|it| it == kind));
        if wanted {
            self.next_update += 1;
            let mut update = json!({"update_id": self.next_update});
            update[kind] = what;
            self.updates.push(update);
        }
    }
}

/// Mentions and commands, measured in UTF-16 as Telegram does.
fn entities(text: &str) -> Vec<Value> {
    let mut found = vec![];
    let mut offset = 0;
    for word in text.split_inclusive([' ', '\n']) {
        let name: String = word.chars().take_while(|it| it.is_alphanumeric() || "_@/".contains(*it)).collect();
        let kind = match name.chars().next() {
            Some('@') => "mention",
            Some('/') => "bot_command",
            _ => "",
        };
        if !kind.is_empty() && name.len() > 1 {
            found.push(json!({"type": kind, "offset": offset, "length": name.encode_utf16().count()}));
        }
        offset += word.encode_utf16().count();
    }
    found
}
