//! Shows an agent's work in Telegram: an immediate reaction to a message, one message for each turn
//! (edited while the agent works), and buttons for the agent's requests.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::rate_limit::RateLimit;
use crate::render::{self, PlanFormat};
use crate::service::{
    CardButton, CardTone, Outbound, PostCard, SendContent, SendRequest, ServiceError, ServiceFuture,
};

use super::api::TelegramApi;
use super::{markup, message_name, message_number};

/// Maximum length of an agent's text in one message, in UTF-16 units. Telegram accepts 4,096 units,
/// but Regatta adds some lines to the text.
const MAX_TEXT_UNITS: usize = 3_600;
const SECOND: Duration = Duration::from_secs(1);
/// The name that is stored for a message if nobody knows whether Telegram got the message.
const UNCERTAIN_NAME: &str = "?";

pub(crate) struct TelegramOutbound {
    api: Arc<TelegramApi>,
}

impl TelegramOutbound {
    pub(crate) fn new(api: Arc<TelegramApi>) -> TelegramOutbound {
        TelegramOutbound { api }
    }

    async fn react(&self, request: &SendRequest, source: &str) -> Result<String, ServiceError> {
        let chat = target_chat(request)?;
        let reaction = json!([{"type": "emoji", "emoji": "👀"}]);
        let body =
            json!({"chat_id": chat, "message_id": number_or_text(source), "reaction": reaction});
        match self.api.call("setMessageReaction", &body).await {
            // A rejected reaction is not an error, because a group may forbid this reaction or all
            // reactions.
            Err(ServiceError::Rejected(_)) => {
                let mut body = json!({"chat_id": chat, "action": "typing"});
                set_topic(&mut body, request);
                self.api
                    .call("sendChatAction", &body)
                    .await
                    .map(|_| String::new())
            }
            other => other.map(|_| String::new()),
        }
    }

    async fn show_card(
        &self,
        request: &SendRequest,
        card: &PostCard,
    ) -> Result<String, ServiceError> {
        let text = card_text(card);
        let keyboard = keyboard_rows(&card.buttons);
        let hash = message_hash(&text, &keyboard);
        let is_passing = matches!(
            card.tone,
            CardTone::Working | CardTone::Waiting | CardTone::Answered
        );
        match request.existing_name.as_deref() {
            // The message may already exist, and Telegram has no function to search for it. A
            // message that only shows progress is then not sent, so that it never appears twice.
            None if request.may_exist && is_passing => Ok(UNCERTAIN_NAME.into()),
            Some(UNCERTAIN_NAME) if is_passing => Ok(UNCERTAIN_NAME.into()),
            Some(name) if name != UNCERTAIN_NAME => {
                if name == message_name(message_number(name), &hash) {
                    return Ok(name.to_owned()); // Telegram refuses an edit without a change
                }
                match self
                    .edit_message(request, message_number(name), &text, &keyboard)
                    .await
                {
                    Ok(()) => Ok(message_name(message_number(name), &hash)),
                    Err(ServiceError::Rejected(why)) if is_unchanged(&why) => {
                        Ok(message_name(message_number(name), &hash))
                    }
                    // Somebody deleted the message, or the message is too old to be edited. Send it
                    // again as a new message, because it is more than a progress message.
                    Err(ServiceError::Rejected(why)) if is_gone(&why) && !is_passing => {
                        let number = self.send_message(request, &text, &keyboard).await?;
                        Ok(message_name(&number, &hash))
                    }
                    Err(error) => Err(error),
                }
            }
            _ => {
                let number = self.send_message(request, &text, &keyboard).await?;
                Ok(message_name(&number, &hash))
            }
        }
    }

    async fn send_message(
        &self,
        request: &SendRequest,
        text: &str,
        keyboard: &Value,
    ) -> Result<String, ServiceError> {
        let mut body = message_body(request, text, keyboard)?;
        set_topic(&mut body, request);
        if let Some(reply) = request.address.get("reply") {
            let reply = request.address.get("source").unwrap_or(reply);
            body["reply_parameters"] =
                json!({"message_id": number_or_text(reply), "allow_sending_without_reply": true});
        }
        let answer = self.call_or_drop_markup("sendMessage", body, text).await?;
        let number = answer["message_id"].as_i64().map(|id| id.to_string());
        number.ok_or_else(|| {
            ServiceError::OutcomeUnknown("sendMessage: Telegram returned no message id".into())
        })
    }

    async fn edit_message(
        &self,
        request: &SendRequest,
        id: &str,
        text: &str,
        keyboard: &Value,
    ) -> Result<(), ServiceError> {
        let mut body = message_body(request, text, keyboard)?;
        body["message_id"] = json!(number_or_text(id));
        self.call_or_drop_markup("editMessageText", body, text)
            .await
            .map(drop)
    }

    /// Sends or edits a message. If Telegram cannot parse the message's markup, sends the message
    /// again as plain text.
    async fn call_or_drop_markup(
        &self,
        method: &str,
        mut body: Value,
        text: &str,
    ) -> Result<Value, ServiceError> {
        match self.api.call(method, &body).await {
            Err(ServiceError::Rejected(why)) if why.contains("can't parse entities") => {
                tracing::warn!(
                    "Telegram could not parse the markup of a message, so the message is sent as plain text: {why}"
                );
                body["text"] = json!(text);
                if let Some(fields) = body.as_object_mut() {
                    fields.remove("parse_mode");
                }
                self.api.call(method, &body).await
            }
            other => other,
        }
    }
}

impl Outbound for TelegramOutbound {
    fn rate_limits(&self, request: &SendRequest) -> Vec<RateLimit> {
        let mut limits = vec![RateLimit::window("all", 29, SECOND)];
        let chat = request.address.get("chat").cloned().unwrap_or_default();
        if matches!(request.content, SendContent::Card(_)) {
            limits.push(RateLimit::bucket(format!("chat:{chat}"), 2.0, SECOND));
            if chat.starts_with('-') {
                limits.push(RateLimit::window(format!("group:{chat}"), 20, 60 * SECOND));
            }
        }
        limits
    }

    fn min_edit_interval(&self) -> Duration {
        3 * SECOND
    }

    fn split_card(&self, card: &PostCard) -> Vec<PostCard> {
        render::split_card(card, split_by_units(&card.text))
    }

    fn show<'a>(
        &'a self,
        request: &'a SendRequest,
    ) -> ServiceFuture<'a, Result<String, ServiceError>> {
        Box::pin(async move {
            match &request.content {
                SendContent::Reaction { source } => self.react(request, source).await,
                SendContent::Card(card) => self.show_card(request, card).await,
                SendContent::PullRequest { .. } => Err(ServiceError::Rejected(
                    "Telegram has no pull requests".into(),
                )),
            }
        })
    }
}

/// Splits a text into pieces that fit into one message each. Like Telegram, counts the length in
/// UTF-16 units.
fn split_by_units(text: &str) -> Vec<String> {
    let mut max_chars = MAX_TEXT_UNITS;
    loop {
        let pieces = render::split_text(text, max_chars);
        if max_chars <= MAX_TEXT_UNITS / 2
            || pieces
                .iter()
                .all(|piece| piece.encode_utf16().count() <= MAX_TEXT_UNITS)
        {
            return pieces; // no character has more than two units
        }
        max_chars -= MAX_TEXT_UNITS / 10;
    }
}

fn target_chat(request: &SendRequest) -> Result<Value, ServiceError> {
    let chat = request.address.get("chat").map(|chat| number_or_text(chat));
    chat.ok_or_else(|| {
        ServiceError::Rejected("the Telegram chat of this conversation is unknown".into())
    })
}

fn number_or_text(text: &str) -> Value {
    text.parse::<i64>()
        .map_or_else(|_| json!(text), |number| json!(number))
}

fn set_topic(body: &mut Value, request: &SendRequest) {
    if let Some(topic) = request.address.get("topic") {
        body["message_thread_id"] = number_or_text(topic);
    }
}

fn message_body(
    request: &SendRequest,
    text: &str,
    keyboard: &Value,
) -> Result<Value, ServiceError> {
    Ok(json!({
        "chat_id": target_chat(request)?,
        "text": markup::to_html(text),
        "parse_mode": "HTML",
        "link_preview_options": {"is_disabled": true},
        "reply_markup": {"inline_keyboard": keyboard},
    }))
}

fn is_unchanged(why: &str) -> bool {
    why.contains("message is not modified")
}

fn is_gone(why: &str) -> bool {
    why.contains("message to edit not found") || why.contains("message can't be edited")
}

/// Returns a hash of a message's text and buttons. After a restart of the same version of Regatta,
/// the same message has the same hash.
fn message_hash(text: &str, keyboard: &Value) -> String {
    let mut hasher = DefaultHasher::new();
    (text, keyboard.to_string()).hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// Arranges the buttons of a message in rows. Several short buttons share a row.
fn keyboard_rows(buttons: &[CardButton]) -> Value {
    let mut rows: Vec<Vec<Value>> = Vec::new();
    let mut room = 0;
    for button in buttons
        .iter()
        .filter(|button| button.value.len() <= 64)
        .take(25)
    {
        let label: String = button.label.chars().take(60).collect();
        let length = label.chars().count() + 4;
        let button = json!({"text": label, "callback_data": button.value});
        match rows.last_mut().filter(|_| room >= length) {
            Some(row) => row.push(button),
            None => {
                rows.push(vec![button]);
                room = 44;
            }
        }
        room = room.saturating_sub(length);
    }
    json!(rows)
}

/// Returns the complete text of the message for a card (the content of a post), in CommonMark.
fn card_text(card: &PostCard) -> String {
    render::card_text(
        card,
        &PlanFormat {
            max_lines: 12,
            max_line_chars: 80,
            sign: render::status_sign,
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_answer_is_split_into_messages_within_telegrams_limit() {
        let outbound = TelegramOutbound::new(Arc::new(TelegramApi::new(
            crate::http::HttpClient::new().unwrap(),
            "http://127.0.0.1:1".into(),
            crate::config::Secret::new("x"),
        )));
        for text in [
            "word ".repeat(4_000),
            "🚀".repeat(9_000),
            format!("```\n{}```", "let x = 1;\n".repeat(2_000)),
        ] {
            let buttons = vec![CardButton {
                label: "Land".into(),
                value: "land:V1".into(),
                is_dangerous: false,
            }];
            let card = PostCard {
                tone: CardTone::Done,
                text: text.clone(),
                buttons,
                ..PostCard::default()
            };
            let pieces = outbound.split_card(&card);
            assert!(pieces.len() > 3);
            for (index, piece) in pieces.iter().enumerate() {
                assert!(card_text(piece).encode_utf16().count() <= 4_096);
                assert_eq!(piece.buttons.is_empty(), index + 1 < pieces.len());
            }
            let letters = |s: &str| {
                s.chars()
                    .filter(|c| c.is_alphabetic() || *c == '🚀')
                    .count()
            };
            assert_eq!(
                pieces
                    .iter()
                    .map(|piece| letters(&piece.text))
                    .sum::<usize>(),
                letters(&text),
                "letters were lost"
            );
        }
    }

    #[test]
    fn buttons_share_a_row_while_there_is_room() {
        let button = |label: &str| CardButton {
            label: label.into(),
            value: format!("x:{}", label.len()),
            is_dangerous: false,
        };
        let rows = keyboard_rows(&[
            button("Allow"),
            button("Always in this task"),
            button("Deny"),
            button(&"x".repeat(60)),
        ]);
        let rows: Vec<usize> = rows
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row.as_array().unwrap().len())
            .collect();
        assert_eq!(rows, [3, 1]);
        assert_eq!(keyboard_rows(&[]), json!([]));
        let long = CardButton {
            label: "x".into(),
            value: "y".repeat(65),
            is_dangerous: false,
        };
        assert_eq!(keyboard_rows(&[long]), json!([]));
    }
}
