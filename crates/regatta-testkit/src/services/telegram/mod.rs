//! A double (imitation for tests) of Telegram: bots that poll for updates, groups and private
//! chats, and buttons.
//!
//! ```text
//! let telegram = Telegram::start().await;
//! let claude = telegram.add_bot("claude_bot"); // its id, username and token
//! telegram.add_person("ann");
//! telegram.add_group("dev", &["ann", "claude_bot"]);
//! telegram.add_direct_chat("ann", "claude_bot"); // its id is ann's id
//!
//! // The result is the message's id. The last argument is the message that this one replies to.
//! let id = telegram.post_as_person("ann", "dev", "@claude_bot fix it", None);
//! telegram.click("ann", "dev", id, "allow:7"); // a button, by its data
//! telegram.react("ann", "dev", id, "👍");
//! telegram.edit_message("dev", id, "text");
//!
//! telegram.messages("dev"); // the messages that people see now
//! telegram.actions("dev");
//! telegram.callbacks();
//! telegram.set_privacy("claude_bot", true); // in groups only mentions and replies reach the bot
//! ```
//!
//! The double also has everything in [`super`]. The name of an operation is the method's name, such
//! as `sendMessage`. The API is at `base_url() + "/bot" + token + "/" + method`. A private chat is
//! called `ann and claude_bot`.
//!
//! Rules that the double checks:
//!
//! - one poll at a time; an older poll ends with 409, and an offset confirms all updates before it;
//! - 30 calls per second ([`MAX_PER_SECOND`]), one per second in a chat with bursts of
//!   [`CHAT_BURST`], and 20 per minute in a group ([`MAX_PER_MINUTE_IN_GROUP`]); edits count like
//!   messages, and a refusal is 429 with `retry_after`;
//! - 4,096 UTF-16 units in a message ([`MAX_MESSAGE_UNITS`]) and 64 bytes in a button;
//! - HTML and MarkdownV2 as Telegram parses them;
//! - a bot changes only its own messages, and an edit must change something.
//!
//! Bots do not receive the messages of bots.

mod markup;
mod methods;
mod state;

use std::ops::Deref;
use std::sync::Arc;

use serde_json::json;

pub use methods::{CHAT_BURST, MAX_MESSAGE_UNITS, MAX_PER_MINUTE_IN_GROUP, MAX_PER_SECOND};
pub use state::{CallbackQuery, TelegramBot, TelegramMessage, TelegramState};

use super::double::ServiceDouble;
use super::signature;
use state::{TelegramBotState, TelegramChat};

/// The double of Telegram. Dropping it closes all its connections.
pub struct Telegram {
    double: Arc<ServiceDouble<TelegramState>>,
}

impl Deref for Telegram {
    type Target = ServiceDouble<TelegramState>;

    fn deref(&self) -> &ServiceDouble<TelegramState> {
        &self.double
    }
}

impl Drop for Telegram {
    fn drop(&mut self) {
        self.double.shut_down();
    }
}

impl Telegram {
    /// Starts the double on a free port of the loopback address.
    pub async fn start() -> Telegram {
        let world = TelegramState {
            bots: vec![],
            people: vec![],
            chats: vec![],
            callbacks: vec![],
        };
        Telegram {
            double: ServiceDouble::open(world, methods::handle_request).await,
        }
    }

    /// Adds a bot that receives all messages of its groups.
    pub fn add_bot(&self, username: &str) -> TelegramBot {
        self.update(|world, ledger| {
            let id = 700_000_000 + i64::try_from(ledger.next()).unwrap_or(0);
            let token = format!(
                "{id}:{}",
                signature::fake_token(&format!("bot {username}"), 35)
            );
            let bot = TelegramBot {
                id,
                username: username.to_owned(),
                token,
            };
            world.bots.push(TelegramBotState {
                bot: bot.clone(),
                updates: vec![],
                poll_number: 0,
                allowed_updates: None,
                is_private: false,
                next_update: 1000,
            });
            bot
        })
    }

    /// Sets whether a bot receives only mentions and replies in groups, which Telegram calls
    /// privacy mode.
    pub fn set_privacy(&self, bot: &str, on: bool) {
        self.update(|world, _| {
            let bot = world
                .bots
                .iter_mut()
                .find(|telegram_bot_state| telegram_bot_state.bot.username == bot)
                .expect("there is such a bot");
            bot.is_private = on;
        });
    }

    /// Adds a person to the imitated service. Returns the person's id.
    pub fn add_person(&self, name: &str) -> i64 {
        self.update(|world, ledger| {
            let id = 400_000 + i64::try_from(ledger.next()).unwrap_or(0);
            world.people.push((id, name.to_owned()));
            id
        })
    }

    /// Adds a group chat. Returns the chat's id.
    pub fn add_group(&self, name: &str, members: &[&str]) -> i64 {
        let members = members.iter().map(|member| (*member).to_owned()).collect();
        self.update(|world, ledger| {
            let id = -1_001_000_000_000 - i64::try_from(ledger.next()).unwrap_or(0);
            let name = name.to_owned();
            world.chats.push(TelegramChat {
                id,
                name,
                direct_bot: None,
                members,
                messages: vec![],
                actions: vec![],
            });
            id
        })
    }

    /// Starts a private chat between a person and a bot. Returns the id of the chat, which is the
    /// person's id.
    pub fn add_direct_chat(&self, person: &str, bot: &str) -> i64 {
        self.update(|world, _| {
            let id = world
                .people
                .iter()
                .find(|people| people.1 == person)
                .expect("there is such a person")
                .0;
            let members = [person, bot].into_iter().map(str::to_owned).collect();
            let (name, only) = (format!("{person} and {bot}"), Some(bot.to_owned()));
            world.chats.push(TelegramChat {
                id,
                name,
                direct_bot: only,
                members,
                messages: vec![],
                actions: vec![],
            });
            id
        })
    }

    /// Posts a message in the name of a person. With `reply_to`, the message is a reply. Returns
    /// the message's id.
    pub fn post_as_person(
        &self,
        person: &str,
        chat: &str,
        text: &str,
        reply_to: Option<i64>,
    ) -> i64 {
        self.update(|world, ledger| {
            let chat_index = world.chat_index(chat);
            let mut message = world.new_message(ledger, person, text);
            message.reply_to = reply_to;
            let id = message.id;
            world.add_message(chat_index, message);
            id
        })
    }

    /// Changes the text of a message, as the person who posted it would.
    pub fn edit_message(&self, chat: &str, id: i64, text: &str) {
        self.update(|world, ledger| {
            let (place, now) = (world.chat_index(chat), ledger.elapsed());
            let message = world.chats[place]
                .messages
                .iter_mut()
                .find(|telegram_message| telegram_message.id == id)
                .expect("there is such a message");
            (message.text, message.plain_text, message.changed) =
                (text.to_owned(), text.to_owned(), now);
            message.versions.push(text.to_owned());
            let message = message.clone();
            let shown = world.message_json(place, &message);
            world.queue_updates(place, &message, "edited_message", &shown);
        });
    }

    /// Presses a button in the name of a person. `data` is the data of the button. Returns the id
    /// of the callback query (the event) that the bot gets.
    pub fn click(&self, person: &str, chat: &str, id: i64, data: &str) -> String {
        self.update(|world, ledger| {
            let chat_index = world.chat_index(chat);
            let message = world.message(chat, id).expect("there is such a message").clone();
            assert!(message.buttons().iter().any(|button| button.1 == data), "no button {data} in {:?}", message.buttons());
            let callback = (4_000_000 + ledger.next()).to_string();
            let update = json!({
                "id": callback, "from": world.user_json(person), "message": world.message_json(chat_index, &message),
                "chat_instance": signature::fake_token(chat, 16), "data": data,
            });
            let bot = world.bots.iter_mut().find(|telegram_bot_state| telegram_bot_state.bot.username == message.from).expect("a bot posted it");
            bot.add_update("callback_query", update);
            let (id, bot, data) = (callback.clone(), message.from, data.to_owned());
            world.callbacks.push(CallbackQuery { id, bot, data, answered: None });
            callback
        })
    }

    /// Adds a person's reaction to a message. Only bots that asked for reactions are notified.
    pub fn react(&self, person: &str, chat: &str, id: i64, emoji: &str) {
        self.update(|world, _| {
            let chat_index = world.chat_index(chat);
            let user = world.user_json(person);
            let group = &mut world.chats[chat_index];
            let message = group.messages.iter_mut().find(|telegram_message| telegram_message.id == id).expect("there is such a message");
            message.reactions.push((emoji.to_owned(), person.to_owned()));
            let update = json!({
                "chat": {"id": group.id, "type": "supergroup"}, "message_id": id, "user": user,
                "date": signature::unix_time().as_secs(), "old_reaction": [], "new_reaction": [{"type": "emoji", "emoji": emoji}],
            });
            let members = group.members.clone();
            for bot in world.bots.iter_mut().filter(|telegram_bot_state| members.contains(&telegram_bot_state.bot.username)) {
                // A bot is notified of a reaction only if the bot's list of allowed updates
                // contains reactions.
                bot.add_update("message_reaction", update.clone());
            }
        });
    }

    /// Returns the messages of a chat.
    pub fn messages(&self, chat: &str) -> Vec<TelegramMessage> {
        self.view(|view| view.messages(chat).to_vec())
    }

    /// Returns the activities that bots have shown in a chat, such as "typing". Each entry has the
    /// bot, the activity and the time.
    pub fn actions(&self, chat: &str) -> Vec<(String, String, std::time::Duration)> {
        self.view(|view| view.actions(chat).to_vec())
    }

    /// Returns all presses of buttons by people, with the bots' answers.
    pub fn callbacks(&self) -> Vec<CallbackQuery> {
        self.view(|view| view.callbacks().to_vec())
    }
}
