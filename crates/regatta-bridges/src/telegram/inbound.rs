//! Events from Telegram, by long polling: messages and pressed buttons.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use regatta_core::board::Board;
use regatta_core::conversation::{Conversation, LONGEST_TEXT, Service};
use regatta_core::ids::{ApprovalId, ConversationId};
use serde_json::Value;

use crate::desk::Desk;
use crate::registry::Standing;
use crate::service::{Fut, Inbound, Incoming, Received, Said, Trouble};

use super::api::{Api, Me};
use super::{markup, number_of};

const AGAIN: Duration = Duration::from_millis(500);
const AGAIN_AT_MOST: Duration = Duration::from_secs(60);

pub(crate) struct Telegram {
    api: Arc<Api>,
}

impl Telegram {
    pub(crate) fn new(api: Arc<Api>) -> Telegram {
        Telegram { api }
    }

    /// Polls once. Each update is stored before the next poll confirms it.
    async fn poll(&self, desk: &Desk, offset: &mut i64) -> Result<(), Trouble> {
        let me = self.api.me().await?;
        if desk.people.health(desk.service, &desk.agent).connected.is_none() {
            desk.known_as(&[&me.id.to_string(), &me.username]);
            desk.connected().await;
        }
        for update in self.api.updates(*offset).await? {
            if desk.is_paused() {
                return Ok(()); // the update comes again
            }
            self.handle(desk, &me, &update).await.map_err(Trouble::Unknown)?;
            *offset = update["update_id"].as_i64().map_or(*offset, |it| it + 1);
        }
        Ok(())
    }

    async fn handle(&self, desk: &Desk, me: &Me, update: &Value) -> Result<(), String> {
        if let Some(click) = update.get("callback_query") {
            let taken = async {
                match clicked(&desk.board(), desk, click) {
                    Some(it) => desk.take(it).await,
                    None => Ok(()),
                }
            };
            let id = click["id"].as_str().unwrap_or_default();
            return tokio::join!(self.api.answer_click(id), taken).1;
        }
        match update.get("message").and_then(|it| said(desk, me, it)) {
            Some(said) => desk.take(Incoming::Said(said)).await,
            None => Ok(()),
        }
    }
}

impl Inbound for Telegram {
    fn run<'a>(&'a self, desk: &'a Desk) -> Fut<'a, ()> {
        Box::pin(async move {
            let (mut pause, mut offset) = (AGAIN, 0);
            loop {
                if desk.is_paused() {
                    tokio::time::sleep(AGAIN).await;
                    continue;
                }
                match self.poll(desk, &mut offset).await {
                    Ok(()) => pause = AGAIN,
                    Err(trouble) => {
                        let words = match &trouble {
                            Trouble::Later(pause) => {
                                format!("Telegram asks to wait {} s", pause.as_secs().max(1))
                            }
                            Trouble::Unknown(why) | Trouble::Never(why) | Trouble::Locked(why) => why.clone(),
                        };
                        desk.disconnected(&trouble, &words).await;
                        match trouble {
                            Trouble::Later(least) => pause = pause.max(least),
                            Trouble::Locked(_) => pause = AGAIN_AT_MOST,
                            Trouble::Unknown(_) | Trouble::Never(_) => {}
                        }
                        tokio::time::sleep(pause).await;
                        pause = (pause * 2).min(AGAIN_AT_MOST);
                    }
                }
            }
        })
    }

    fn receive<'a>(&'a self, _: &'a Desk, _: &'a HeaderMap, _: &'a [u8]) -> Fut<'a, Received> {
        Box::pin(async { Received::Refused { status: 503, why: "Telegram is polled; it has no webhook route" } })
    }
}

/// Returns the facts about a user: the permanent number and the user name. The first name is not
/// used, because anybody can choose it.
fn standing(user: &Value) -> Standing {
    Standing {
        id: user["id"].as_i64().map(|it| it.to_string()).unwrap_or_default(),
        name: user["username"].as_str().unwrap_or_default().to_owned(),
        is_bot: user["is_bot"].as_bool().unwrap_or(false),
        ..Standing::default()
    }
}

fn said(desk: &Desk, me: &Me, message: &Value) -> Option<Said> {
    let board = desk.board();
    let (chat, id) = (message["chat"]["id"].as_i64()?, message["message_id"].as_i64()?);
    let attachments = attachments(message);
    let (text, entities) = match message["text"].as_str() {
        Some(text) => (text, &message["entities"]),
        None if attachments.is_empty() => return None,
        None => (message["caption"].as_str().unwrap_or_default(), &message["caption_entities"]),
    };
    let mut by = standing(message.get("from")?);
    if by.id == me.id.to_string() {
        return None; // our own message
    }
    // A message in the name of a channel or group has no identifiable author.
    by.is_bot |= message.get("sender_chat").is_some();
    let read = markup::read(text, entities, me);
    let reply = &message["reply_to_message"];
    let names_another = read.others.iter().any(|it| desk.is_another(it));
    let replies_to = reply["from"]["id"].as_i64();
    let is_private = message["chat"]["type"].as_str() == Some("private");
    let called = is_private || read.called || (replies_to == Some(me.id) && !names_another);
    let to_another = replies_to.is_some_and(|it| desk.is_another(&it.to_string()));
    let root = root_of(&board, chat, id, message);
    let thread = format!("telegram:{chat}:{root}");
    let key = format!("{thread}:{}", desk.agent);
    if !called && !desk.has_conversation(&key) {
        return None;
    }
    let mut place = BTreeMap::from([("chat".to_owned(), chat.to_string()), ("root".to_owned(), root)]);
    if !is_private {
        place.insert("reply".into(), id.to_string());
    }
    if let Some(topic) = topic_of(message) {
        place.insert("topic".into(), topic.to_string());
    }
    let answered = reply["text"].as_str().or(reply["caption"].as_str()).filter(|_| replies_to != Some(me.id));
    let context = answered.filter(|_| called && desk.wants_context(&chat.to_string())).map(|it| {
        let who = standing(&reply["from"]);
        let name = if who.name.is_empty() { who.id } else { who.name };
        format!("{name}: {}", it.chars().take(16_000).collect::<String>())
    });
    let title = message["chat"]["title"].as_str().map_or_else(|| format!("a chat with {}", by.name), str::to_owned);
    Some(Said {
        delivery: format!("{chat}:{id}"),
        channel: chat.to_string(),
        thread,
        key,
        place,
        title,
        url: url_of(&message["chat"], id),
        by,
        text: read.text.chars().take(LONGEST_TEXT / 4).collect(),
        source: id.to_string(),
        called,
        // A message that begins with a name is addressed to its owner.
        calls_another: !called && (names_another || to_another || text.trim_start().starts_with('@')),
        context,
        attachments,
        pull: None,
    })
}

/// Returns the attachments of a message: a file's name, or the kind of attachment.
fn attachments(message: &Value) -> Vec<String> {
    let kinds = ["document", "photo", "audio", "video", "voice", "video_note", "animation", "sticker"];
    let has = |kind: &&&str| message.get(**kind).is_some();
    // Telegram also sends an animation as a document.
    let is_twice = |kind: &&&str| **kind == "document" && message.get("animation").is_some();
    let name = |kind: &&str| message[*kind]["file_name"].as_str().map_or_else(|| format!("a {kind}"), str::to_owned);
    kinds.iter().filter(has).filter(|kind| !is_twice(kind)).map(name).collect()
}

/// Returns the topic of a forum that a message belongs to.
fn topic_of(message: &Value) -> Option<i64> {
    let is_topic = message["is_topic_message"].as_bool().unwrap_or(false);
    message["message_thread_id"].as_i64().filter(|_| is_topic)
}

/// Returns the root of a message's conversation: its topic, the root of the conversation of the
/// message that it replies to, or that message itself. A private chat is one conversation.
fn root_of(board: &Board, chat: i64, id: i64, message: &Value) -> String {
    if let Some(topic) = topic_of(message) {
        return topic.to_string();
    }
    if message["chat"]["type"].as_str() == Some("private") {
        return "0".into();
    }
    let Some(answered) = message["reply_to_message"]["message_id"].as_i64() else { return id.to_string() };
    let known = board.conversations.values().find(|it| is_in(it, chat, answered));
    match known.and_then(|it| it.place.get("root").cloned()) {
        Some(root) => root,
        None => message["message_thread_id"].as_i64().unwrap_or(answered).to_string(),
    }
}

/// Returns whether a message is part of a conversation, as far as the board remembers.
fn is_in(it: &Conversation, chat: i64, message: i64) -> bool {
    let (chat, message) = (chat.to_string(), message.to_string());
    let here = it.service == Service::Telegram && it.place.get("chat") == Some(&chat);
    here && (it.place.get("root") == Some(&message)
        || it.posts.iter().flat_map(|it| &it.refs).any(|it| number_of(it) == message)
        || it.turns.iter().any(|it| it.source == message))
}

fn url_of(chat: &Value, id: i64) -> Option<String> {
    if let Some(name) = chat["username"].as_str().filter(|_| chat["type"].as_str() != Some("private")) {
        return Some(format!("https://t.me/{name}/{id}"));
    }
    let number = chat["id"].as_i64()?.to_string();
    number.strip_prefix("-100").map(|it| format!("https://t.me/c/{it}/{id}"))
}

/// Parses a pressed button. Only conversations of the same chat are accepted, whatever the request
/// says.
fn clicked(board: &Board, desk: &Desk, click: &Value) -> Option<Incoming> {
    let (choice, of) = click["data"].as_str()?.split_once(':')?;
    let chat = click["message"]["chat"]["id"].as_i64()?.to_string();
    let (by, delivery) = (standing(&click["from"]), format!("click:{}", click["id"].as_str()?));
    let here = |it: &&Arc<Conversation>| {
        it.service == Service::Telegram && it.agent == desk.agent && it.place.get("chat") == Some(&chat)
    };
    if of.starts_with('Q') {
        let approval: ApprovalId = of.parse().ok()?;
        let task = board.approvals.get(&approval)?.task;
        board.conversations.values().filter(here).find(|it| it.task == Some(task))?;
        return Some(Incoming::Chosen { delivery, approval, choice: choice.to_owned(), by });
    }
    let id: ConversationId = of.parse().ok()?;
    let key = board.conversations.get(&id).filter(here)?.key.clone();
    match choice {
        "stop" => Some(Incoming::Stop { delivery, key, by }),
        "land" => Some(Incoming::Rerun { delivery, key, by }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn message_belongs_to_its_topic_its_chat_or_the_message_it_replies_to() {
        let board = Board::default();
        let group = json!({"id": -1001, "type": "supergroup"});
        for (message, root) in [
            (json!({"chat": {"id": 5, "type": "private"}}), "0"),
            (json!({"chat": {"id": 5, "type": "private"}, "reply_to_message": {"message_id": 2}}), "0"),
            (json!({"chat": group}), "9"),
            (json!({"chat": group, "message_thread_id": 4, "is_topic_message": true}), "4"),
            (json!({"chat": group, "reply_to_message": {"message_id": 2}}), "2"),
            (json!({"chat": group, "message_thread_id": 1, "reply_to_message": {"message_id": 2}}), "1"),
        ] {
            assert_eq!(root_of(&board, -1001, 9, &message), root, "{message}");
        }
    }

    /// A first name is free text, so anybody could take the name of a permitted person.
    #[test]
    fn person_is_not_identified_by_a_first_name() {
        let user = json!({"id": 6, "is_bot": false, "first_name": "ann"});
        assert_eq!(standing(&user), Standing { id: "6".into(), ..Standing::default() });
        let user = json!({"id": 6, "is_bot": true, "first_name": "x", "username": "ann"});
        assert_eq!((standing(&user).name.as_str(), standing(&user).is_bot), ("ann", true));
    }

    #[test]
    fn message_has_a_url_where_telegram_supports_one() {
        let url = |chat| url_of(&chat, 3);
        assert_eq!(url(json!({"id": -1_001_234, "type": "supergroup"})).as_deref(), Some("https://t.me/c/1234/3"));
        assert_eq!(
            url(json!({"id": -1, "type": "supergroup", "username": "dev"})).as_deref(),
            Some("https://t.me/dev/3")
        );
        assert_eq!(url(json!({"id": 5, "type": "private", "username": "ann"})), None);
    }
}
