//! Receives messages and pressed buttons from Telegram by long polling.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use regatta_core::board::Board;
use regatta_core::conversation::{Conversation, MAX_TEXT_BYTES, Service};
use regatta_core::ids::{ApprovalId, ConversationId};
use serde_json::Value;

use crate::config::Requester;
use crate::intake::Intake;
use crate::service::{
    Backoff, Inbound, IncomingEvent, IncomingMessage, ReceiveOutcome, ServiceError, ServiceFuture,
};

use super::api::{TelegramApi, TelegramIdentity};
use super::{markup, message_number};

const RETRY_DELAY: Duration = Duration::from_millis(500);

pub(crate) struct TelegramInbound {
    api: Arc<TelegramApi>,
}

impl TelegramInbound {
    pub(crate) fn new(api: Arc<TelegramApi>) -> TelegramInbound {
        TelegramInbound { api }
    }

    /// Polls Telegram once and handles the updates. Every update is stored before the next poll
    /// tells Telegram that the update was handled.
    async fn poll_once(&self, intake: &Intake, offset: &mut i64) -> Result<(), ServiceError> {
        let identity = self.api.identity().await?;
        if intake
            .directory
            .health(intake.service, &intake.agent)
            .connected
            .is_none()
        {
            intake.set_names(&[&identity.id.to_string(), &identity.username]);
            intake.on_connected().await;
        }
        for update in self.api.updates(*offset).await? {
            if intake.is_paused() {
                return Ok(()); // Telegram sends the update again
            }
            self.handle_update(intake, &identity, &update)
                .await
                .map_err(ServiceError::OutcomeUnknown)?;
            *offset = update["update_id"].as_i64().map_or(*offset, |id| id + 1);
        }
        Ok(())
    }

    async fn handle_update(
        &self,
        intake: &Intake,
        identity: &TelegramIdentity,
        update: &Value,
    ) -> Result<(), String> {
        if let Some(click) = update.get("callback_query") {
            let accepted = async {
                match parse_click(&intake.board(), intake, click) {
                    Some(event) => intake.accept(event).await,
                    None => Ok(()),
                }
            };
            let id = click["id"].as_str().unwrap_or_default();
            return tokio::join!(self.api.answer_click(id), accepted).1;
        }
        match update
            .get("message")
            .and_then(|message| parse_message(intake, identity, message))
        {
            Some(message) => intake.accept(IncomingEvent::Message(message)).await,
            None => Ok(()),
        }
    }
}

impl Inbound for TelegramInbound {
    fn run<'a>(&'a self, intake: &'a Intake) -> ServiceFuture<'a, ()> {
        Box::pin(async move {
            let (mut backoff, mut offset) = (Backoff::new(RETRY_DELAY), 0);
            loop {
                if intake.is_paused() {
                    tokio::time::sleep(RETRY_DELAY).await;
                    continue;
                }
                match self.poll_once(intake, &mut offset).await {
                    Ok(()) => backoff.reset(),
                    Err(error) => {
                        intake.on_disconnected(&error).await;
                        backoff.wait_after(&error).await;
                    }
                }
            }
        })
    }

    fn receive<'a>(
        &'a self,
        _: &'a Intake,
        _: &'a HeaderMap,
        _: &'a [u8],
    ) -> ServiceFuture<'a, ReceiveOutcome> {
        Box::pin(async {
            ReceiveOutcome::refused(503, "Telegram is polled; it has no webhook route")
        })
    }
}

/// Returns the facts about a user: the permanent number and the user name. The first name is not
/// used for permissions, because anybody can choose it.
fn requester_from(user: &Value) -> Requester {
    Requester {
        id: user["id"]
            .as_i64()
            .map(|id| id.to_string())
            .unwrap_or_default(),
        name: user["username"].as_str().unwrap_or_default().to_owned(),
        is_bot: user["is_bot"].as_bool().unwrap_or(false),
        ..Requester::default()
    }
}

fn parse_message(
    intake: &Intake,
    identity: &TelegramIdentity,
    message: &Value,
) -> Option<IncomingMessage> {
    let board = intake.board();
    let (chat, id) = (
        message["chat"]["id"].as_i64()?,
        message["message_id"].as_i64()?,
    );
    let attachments = attachment_names(message);
    let (text, entities) = match message["text"].as_str() {
        Some(text) => (text, &message["entities"]),
        None if attachments.is_empty() => return None,
        None => (
            message["caption"].as_str().unwrap_or_default(),
            &message["caption_entities"],
        ),
    };
    let mut requester = requester_from(message.get("from")?);
    if requester.id == identity.id.to_string() {
        return None; // our own message
    }
    // A message that is sent in the name of a channel or group does not name its author, so treat
    // the author as a bot.
    requester.is_bot |= message.get("sender_chat").is_some();
    let parsed = markup::parse_text(text, entities, identity);
    let reply = &message["reply_to_message"];
    let names_another = parsed
        .other_mentions
        .iter()
        .any(|name| intake.is_other_agent(name));
    let replies_to = reply["from"]["id"].as_i64();
    let is_private = message["chat"]["type"].as_str() == Some("private");
    let is_mentioned =
        is_private || parsed.mentions_agent || (replies_to == Some(identity.id) && !names_another);
    let replies_to_another =
        replies_to.is_some_and(|replies_to| intake.is_other_agent(&replies_to.to_string()));
    let root = conversation_root(&board, chat, id, message);
    let thread = format!("telegram:{chat}:{root}");
    let key = format!("{thread}:{}", intake.agent);
    if !is_mentioned && !intake.has_conversation(&key) {
        return None;
    }
    let mut address = BTreeMap::from([
        ("chat".to_owned(), chat.to_string()),
        ("root".to_owned(), root),
    ]);
    if !is_private {
        address.insert("reply".into(), id.to_string());
    }
    if let Some(topic) = forum_topic(message) {
        address.insert("topic".into(), topic.to_string());
    }
    let quoted = reply["text"]
        .as_str()
        .or(reply["caption"].as_str())
        .filter(|_| replies_to != Some(identity.id));
    let context = quoted
        .filter(|_| is_mentioned && intake.needs_context(&chat.to_string()))
        .map(|quoted| {
            let reply_author = requester_from(&reply["from"]);
            let name = if reply_author.name.is_empty() {
                reply_author.id
            } else {
                reply_author.name
            };
            format!(
                "{name}: {}",
                quoted.chars().take(16_000).collect::<String>()
            )
        });
    let title = message["chat"]["title"]
        .as_str()
        .map_or_else(|| format!("a chat with {}", requester.name), str::to_owned);
    Some(IncomingMessage {
        delivery: format!("{chat}:{id}"),
        channel: chat.to_string(),
        thread,
        key,
        address,
        title,
        url: message_url(&message["chat"], id),
        author: requester,
        text: parsed.text.chars().take(MAX_TEXT_BYTES / 4).collect(),
        source: id.to_string(),
        mentions_agent: is_mentioned,
        // If a message begins with `@` and a name, it is addressed to the user with that name.
        addresses_another: !is_mentioned
            && (names_another || replies_to_another || text.trim_start().starts_with('@')),
        context,
        attachments,
        pull: None,
    })
}

/// Returns a text for each attachment of a message: the name of the file, otherwise the kind of
/// attachment.
fn attachment_names(message: &Value) -> Vec<String> {
    let kinds = [
        "document",
        "photo",
        "audio",
        "video",
        "voice",
        "video_note",
        "animation",
        "sticker",
    ];
    let has = |kind: &&&str| message.get(**kind).is_some();
    // Telegram also lists an animation as a document. Ignore this document, so that the animation
    // counts only once.
    let is_twice = |kind: &&&str| **kind == "document" && message.get("animation").is_some();
    let name = |kind: &&str| {
        message[*kind]["file_name"]
            .as_str()
            .map_or_else(|| format!("a {kind}"), str::to_owned)
    };
    kinds
        .iter()
        .filter(has)
        .filter(|kind| !is_twice(kind))
        .map(name)
        .collect()
}

/// Returns the forum topic to which a message belongs, or `None` if it belongs to no topic.
fn forum_topic(message: &Value) -> Option<i64> {
    let is_topic = message["is_topic_message"].as_bool().unwrap_or(false);
    message["message_thread_id"].as_i64().filter(|_| is_topic)
}

/// Returns a text that identifies the conversation of a message within its chat. The text names the
/// message's forum topic. Without a topic, the text names the first message of the conversation
/// that the message answers, or else the message itself. A private chat is a single conversation.
fn conversation_root(board: &Board, chat: i64, id: i64, message: &Value) -> String {
    if let Some(topic) = forum_topic(message) {
        return topic.to_string();
    }
    if message["chat"]["type"].as_str() == Some("private") {
        return "0".into();
    }
    let Some(replied_to) = message["reply_to_message"]["message_id"].as_i64() else {
        return id.to_string();
    };
    let known = board
        .conversations
        .values()
        .find(|conversation| contains_message(conversation, chat, replied_to));
    match known.and_then(|conversation| conversation.address.get("root").cloned()) {
        Some(root) => root,
        None => message["message_thread_id"]
            .as_i64()
            .unwrap_or(replied_to)
            .to_string(),
    }
}

/// Returns whether a message belongs to a conversation. Only messages and posts that are still on
/// the board (the daemon's state) are found.
fn contains_message(conversation: &Conversation, chat: i64, message: i64) -> bool {
    let (chat, message) = (chat.to_string(), message.to_string());
    let is_in_chat = conversation.service == Service::Telegram
        && conversation.address.get("chat") == Some(&chat);
    is_in_chat
        && (conversation.address.get("root") == Some(&message)
            || conversation
                .posts
                .iter()
                .flat_map(|post| &post.refs)
                .any(|post| message_number(post) == message)
            || conversation.turns.iter().any(|turn| turn.source == message))
}

fn message_url(chat: &Value, id: i64) -> Option<String> {
    if let Some(name) = chat["username"]
        .as_str()
        .filter(|_| chat["type"].as_str() != Some("private"))
    {
        return Some(format!("https://t.me/{name}/{id}"));
    }
    let number = chat["id"].as_i64()?.to_string();
    number
        .strip_prefix("-100")
        .map(|number| format!("https://t.me/c/{number}/{id}"))
}

/// Parses the event of a pressed button. The button's value names a conversation, which is accepted
/// only if it belongs to the same chat.
fn parse_click(board: &Board, intake: &Intake, click: &Value) -> Option<IncomingEvent> {
    let (choice, subject) = click["data"].as_str()?.split_once(':')?;
    let chat = click["message"]["chat"]["id"].as_i64()?.to_string();
    let (requester, delivery) = (
        requester_from(&click["from"]),
        format!("click:{}", click["id"].as_str()?),
    );
    let is_in_chat = |conversation: &&Arc<Conversation>| {
        conversation.service == Service::Telegram
            && conversation.agent == intake.agent
            && conversation.address.get("chat") == Some(&chat)
    };
    if subject.starts_with('Q') {
        let approval: ApprovalId = subject.parse().ok()?;
        let task = board.approvals.get(&approval)?.task;
        board
            .conversations
            .values()
            .filter(is_in_chat)
            .find(|conversation| conversation.task == Some(task))?;
        return Some(IncomingEvent::ButtonPressed {
            delivery,
            approval,
            choice: choice.to_owned(),
            requester,
        });
    }
    let id: ConversationId = subject.parse().ok()?;
    let key = board.conversations.get(&id).filter(is_in_chat)?.key.clone();
    IncomingEvent::from_button(choice, delivery, key, requester)
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
            (
                json!({"chat": {"id": 5, "type": "private"}, "reply_to_message": {"message_id": 2}}),
                "0",
            ),
            (json!({"chat": group}), "9"),
            (
                json!({"chat": group, "message_thread_id": 4, "is_topic_message": true}),
                "4",
            ),
            (
                json!({"chat": group, "reply_to_message": {"message_id": 2}}),
                "2",
            ),
            (
                json!({"chat": group, "message_thread_id": 1, "reply_to_message": {"message_id": 2}}),
                "1",
            ),
        ] {
            assert_eq!(
                conversation_root(&board, -1001, 9, &message),
                root,
                "{message}"
            );
        }
    }

    /// A first name is free text, so anybody could take the name of a permitted person.
    #[test]
    fn person_is_not_identified_by_a_first_name() {
        let user = json!({"id": 6, "is_bot": false, "first_name": "ann"});
        assert_eq!(
            requester_from(&user),
            Requester {
                id: "6".into(),
                ..Requester::default()
            }
        );
        let user = json!({"id": 6, "is_bot": true, "first_name": "x", "username": "ann"});
        assert_eq!(
            (
                requester_from(&user).name.as_str(),
                requester_from(&user).is_bot
            ),
            ("ann", true)
        );
    }

    #[test]
    fn message_has_a_url_where_telegram_supports_one() {
        let url = |chat| message_url(&chat, 3);
        assert_eq!(
            url(json!({"id": -1_001_234, "type": "supergroup"})).as_deref(),
            Some("https://t.me/c/1234/3")
        );
        assert_eq!(
            url(json!({"id": -1, "type": "supergroup", "username": "dev"})).as_deref(),
            Some("https://t.me/dev/3")
        );
        assert_eq!(
            url(json!({"id": 5, "type": "private", "username": "ann"})),
            None
        );
    }
}
