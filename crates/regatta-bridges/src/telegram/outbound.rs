//! Posts in Telegram: an immediate reaction, one edited message per turn, and buttons for requests.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::bucket::Limit;
use crate::render::{self, Lines};
use crate::service::{Button, Card, Fut, Outbound, Shot, Sight, Tone, Trouble};

use super::api::Api;
use super::{markup, name_of, number_of};

/// Maximum text length. A message has at most 4,096 UTF-16 units, and the lines above and below the
/// text need some.
const LONGEST: usize = 3_600;
const SECOND: Duration = Duration::from_secs(1);
/// The name of a message that may or may not exist.
const UNSURE: &str = "?";

pub(crate) struct Telegram {
    api: Arc<Api>,
}

impl Telegram {
    pub(crate) fn new(api: Arc<Api>) -> Telegram {
        Telegram { api }
    }

    async fn seen(&self, shot: &Shot, source: &str) -> Result<String, Trouble> {
        let chat = chat_of(shot)?;
        let reaction = json!([{"type": "emoji", "emoji": "👀"}]);
        let body = json!({"chat_id": chat, "message_id": number(source), "reaction": reaction});
        match self.api.call("setMessageReaction", &body).await {
            // A group may allow only other reactions, or none.
            Err(Trouble::Never(_)) => {
                let mut body = json!({"chat_id": chat, "action": "typing"});
                set_topic(&mut body, shot);
                self.api.call("sendChatAction", &body).await.map(|_| String::new())
            }
            other => other.map(|_| String::new()),
        }
    }

    async fn card(&self, shot: &Shot, card: &Card) -> Result<String, Trouble> {
        let text = spoken(card);
        let keyboard = keyboard(&card.buttons);
        let sum = sum_of(&text, &keyboard);
        let passing = matches!(card.tone, Tone::Working | Tone::Waiting | Tone::Answered);
        match shot.shown_as.as_deref() {
            // The message may exist, and a progress message is not worth sending twice.
            None if shot.begun && passing => Ok(UNSURE.into()),
            Some(UNSURE) if passing => Ok(UNSURE.into()),
            Some(name) if name != UNSURE => {
                if name == name_of(number_of(name), &sum) {
                    return Ok(name.to_owned()); // Telegram refuses an edit without a change
                }
                match self.edit(shot, number_of(name), &text, &keyboard).await {
                    Ok(()) => Ok(name_of(number_of(name), &sum)),
                    Err(Trouble::Never(why)) if is_unchanged(&why) => Ok(name_of(number_of(name), &sum)),
                    // The message was deleted or is too old to edit. An answer is sent again below.
                    Err(Trouble::Never(why)) if is_gone(&why) && !passing => {
                        let number = self.send(shot, &text, &keyboard).await?;
                        Ok(name_of(&number, &sum))
                    }
                    Err(trouble) => Err(trouble),
                }
            }
            _ => {
                let number = self.send(shot, &text, &keyboard).await?;
                Ok(name_of(&number, &sum))
            }
        }
    }

    async fn send(&self, shot: &Shot, text: &str, keyboard: &Value) -> Result<String, Trouble> {
        let mut body = message(shot, text, keyboard)?;
        set_topic(&mut body, shot);
        if let Some(reply) = shot.place.get("reply") {
            let reply = shot.place.get("source").unwrap_or(reply);
            body["reply_parameters"] = json!({"message_id": number(reply), "allow_sending_without_reply": true});
        }
        let said = self.say("sendMessage", body, text).await?;
        let number = said["message_id"].as_i64().map(|it| it.to_string());
        number.ok_or_else(|| Trouble::Unknown("sendMessage: Telegram returned no message id".into()))
    }

    async fn edit(&self, shot: &Shot, id: &str, text: &str, keyboard: &Value) -> Result<(), Trouble> {
        let mut body = message(shot, text, keyboard)?;
        body["message_id"] = json!(number(id));
        self.say("editMessageText", body, text).await.map(drop)
    }

    /// Sends a message, without its markup if Telegram cannot parse that.
    async fn say(&self, method: &str, mut body: Value, text: &str) -> Result<Value, Trouble> {
        match self.api.call(method, &body).await {
            Err(Trouble::Never(why)) if why.contains("can't parse entities") => {
                tracing::warn!("sending a message without markup: {why}");
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

impl Outbound for Telegram {
    fn limits(&self, shot: &Shot) -> Vec<Limit> {
        let mut limits = vec![Limit::window("all", 29, SECOND)];
        let chat = shot.place.get("chat").cloned().unwrap_or_default();
        if matches!(shot.sight, Sight::Card(_)) {
            limits.push(Limit::bucket(format!("chat:{chat}"), 2.0, SECOND));
            if chat.starts_with('-') {
                limits.push(Limit::window(format!("group:{chat}"), 20, 60 * SECOND));
            }
        }
        limits
    }

    fn pace(&self) -> Duration {
        3 * SECOND
    }

    fn pieces(&self, card: &Card) -> Vec<Card> {
        render::in_pieces(card, texts(&card.text))
    }

    fn show<'a>(&'a self, shot: &'a Shot) -> Fut<'a, Result<String, Trouble>> {
        Box::pin(async move {
            match &shot.sight {
                Sight::Seen { source } => self.seen(shot, source).await,
                Sight::Card(card) => self.card(shot, card).await,
                Sight::Pull { .. } => Err(Trouble::Never("Telegram has no pull requests".into())),
            }
        })
    }
}

/// Splits a text by the length that Telegram counts, which is in UTF-16 units.
fn texts(text: &str) -> Vec<String> {
    let mut most = LONGEST;
    loop {
        let pieces = render::split(text, most);
        if most <= LONGEST / 2 || pieces.iter().all(|it| it.encode_utf16().count() <= LONGEST) {
            return pieces; // no character has more than two units
        }
        most -= LONGEST / 10;
    }
}

fn chat_of(shot: &Shot) -> Result<Value, Trouble> {
    let chat = shot.place.get("chat").map(|it| number(it));
    chat.ok_or_else(|| Trouble::Never("the Telegram chat of this conversation is unknown".into()))
}

fn number(text: &str) -> Value {
    text.parse::<i64>().map_or_else(|_| json!(text), |it| json!(it))
}

fn set_topic(body: &mut Value, shot: &Shot) {
    if let Some(topic) = shot.place.get("topic") {
        body["message_thread_id"] = number(topic);
    }
}

fn message(shot: &Shot, text: &str, keyboard: &Value) -> Result<Value, Trouble> {
    Ok(json!({
        "chat_id": chat_of(shot)?,
        "text": markup::html(text),
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

/// Returns a hash of a message, the same in every run of this version.
fn sum_of(text: &str, keyboard: &Value) -> String {
    let mut hasher = DefaultHasher::new();
    (text, keyboard.to_string()).hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// Lays out buttons: short ones share a row.
fn keyboard(buttons: &[Button]) -> Value {
    let mut rows: Vec<Vec<Value>> = Vec::new();
    let mut room = 0;
    for it in buttons.iter().filter(|it| it.value.len() <= 64).take(25) {
        let label: String = it.label.chars().take(60).collect();
        let length = label.chars().count() + 4;
        let button = json!({"text": label, "callback_data": it.value});
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

/// Returns the whole text of a card, in CommonMark.
fn spoken(card: &Card) -> String {
    render::spoken(card, &Lines { most: 12, longest: 80, sign: render::sign })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_answer_is_split_into_messages_within_telegrams_limit() {
        let outbound = Telegram::new(Arc::new(Api::new(
            crate::http::Http::new().unwrap(),
            "http://127.0.0.1:1".into(),
            crate::registry::Secret::new("x"),
        )));
        for text in ["word ".repeat(4_000), "🚀".repeat(9_000), format!("```\n{}```", "let x = 1;\n".repeat(2_000))] {
            let buttons = vec![Button { label: "Land".into(), value: "land:V1".into(), danger: false }];
            let card = Card { tone: Tone::Done, text: text.clone(), buttons, ..Card::default() };
            let pieces = outbound.pieces(&card);
            assert!(pieces.len() > 3);
            for (at, piece) in pieces.iter().enumerate() {
                assert!(spoken(piece).encode_utf16().count() <= 4_096);
                assert_eq!(piece.buttons.is_empty(), at + 1 < pieces.len());
            }
            let letters = |it: &str| it.chars().filter(|it| it.is_alphabetic() || *it == '🚀').count();
            assert_eq!(pieces.iter().map(|it| letters(&it.text)).sum::<usize>(), letters(&text), "letters were lost");
        }
    }

    #[test]
    fn buttons_share_a_row_while_there_is_room() {
        let button = |label: &str| Button { label: label.into(), value: format!("x:{}", label.len()), danger: false };
        let rows = keyboard(&[button("Allow"), button("Always in this task"), button("Deny"), button(&"x".repeat(60))]);
        let rows: Vec<usize> = rows.as_array().unwrap().iter().map(|it| it.as_array().unwrap().len()).collect();
        assert_eq!(rows, [3, 1]);
        assert_eq!(keyboard(&[]), json!([]));
        let long = Button { label: "x".into(), value: "y".repeat(65), danger: false };
        assert_eq!(keyboard(&[long]), json!([]));
    }
}
