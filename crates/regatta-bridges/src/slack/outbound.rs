//! Posts in Slack: an immediate reaction, one edited message per turn, and buttons for requests.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::bucket::Limit;
use crate::render::{self, Lines};
use crate::service::{Card, Fut, Outbound, Shot, Sight, Trouble};

use super::api::Api;
use super::markup;

/// Maximum text length of one message. Blocks accept 12,000 characters, and the lines above the
/// text need some.
const LONGEST: usize = 9_000;
const MINUTE: Duration = Duration::from_secs(60);
const EVENT: &str = "regatta_post";
/// Burst of posts into one channel. Slack accepts a short burst, and does not say how short.
const POSTS_AT_ONCE: f64 = 2.0;

pub(crate) struct Slack {
    api: Arc<Api>,
}

impl Slack {
    pub(crate) fn new(api: Arc<Api>) -> Slack {
        Slack { api }
    }

    async fn card(&self, shot: &Shot, card: &Card) -> Result<String, Trouble> {
        let place = |name: &str| shot.place.get(name).cloned().unwrap_or_default();
        let (channel, thread) = (place("channel"), place("thread_ts"));
        let words = spoken(card);
        let mut body = json!({
            "channel": channel,
            "text": markup::fallback(&words),
            "blocks": blocks(card, &words),
            "metadata": {"event_type": EVENT, "event_payload": {"mark": shot.mark}},
        });
        let mut known = shot.shown_as.clone();
        if known.is_none() && shot.begun {
            // The message may exist, because a call was under way when the last run ended.
            let messages = self.api.thread(&channel, &thread).await?;
            let ours = |it: &&Value| it["metadata"]["event_payload"]["mark"] == json!(shot.mark);
            known = messages.iter().find(ours).and_then(|it| it["ts"].as_str()).map(str::to_owned);
        }
        match known {
            Some(ts) => {
                body["ts"] = json!(ts);
                self.api.write("chat.update", &body).await?;
                Ok(ts)
            }
            None => {
                body["thread_ts"] = json!(thread);
                body["unfurl_links"] = json!(false);
                body["unfurl_media"] = json!(false);
                let said = self.api.write("chat.postMessage", &body).await?;
                said["ts"]
                    .as_str()
                    .map(str::to_owned)
                    .ok_or_else(|| Trouble::Unknown("Slack returned no message id".into()))
            }
        }
    }
}

impl Outbound for Slack {
    fn limits(&self, shot: &Shot) -> Vec<Limit> {
        let channel = shot.place.get("channel").cloned().unwrap_or_default();
        match (&shot.sight, &shot.shown_as) {
            (Sight::Seen { .. }, _) => vec![Limit::window("reactions.add", 50, MINUTE)],
            (_, Some(_)) => vec![Limit::window("chat.update", 50, MINUTE)],
            (_, None) => {
                let mut limits = vec![
                    Limit::window("chat.postMessage", 300, MINUTE),
                    Limit::bucket(format!("post:{channel}"), POSTS_AT_ONCE, Duration::from_secs(1)),
                ];
                if shot.begun {
                    // The message is looked up first, and edited if it exists.
                    limits.push(Limit::window("conversations.replies", 50, MINUTE));
                    limits.push(Limit::window("chat.update", 50, MINUTE));
                }
                limits
            }
        }
    }

    fn pace(&self) -> Duration {
        Duration::from_secs(3)
    }

    fn pieces(&self, card: &Card) -> Vec<Card> {
        render::in_pieces(card, render::split(&card.text, LONGEST))
    }

    fn show<'a>(&'a self, shot: &'a Shot) -> Fut<'a, Result<String, Trouble>> {
        Box::pin(async move {
            match &shot.sight {
                Sight::Seen { source } => {
                    let channel = shot.place.get("channel").cloned().unwrap_or_default();
                    let body = json!({"channel": channel, "timestamp": source, "name": "eyes"});
                    match self.api.write("reactions.add", &body).await {
                        Err(Trouble::Never(why)) if why.ends_with("already_reacted") => Ok(String::new()),
                        other => other.map(|_| String::new()),
                    }
                }
                Sight::Card(card) => self.card(shot, card).await,
                Sight::Pull { .. } => Err(Trouble::Never("Slack has no pull requests".into())),
            }
        })
    }
}

/// Returns the whole text of a card, in CommonMark.
fn spoken(card: &Card) -> String {
    markup::quiet(&render::spoken(card, &Lines { most: 20, longest: 150, sign: render::sign }))
}

fn blocks(card: &Card, words: &str) -> Value {
    let mut blocks = vec![json!({"type": "markdown", "text": words.chars().take(12_000).collect::<String>()})];
    if !card.buttons.is_empty() {
        let buttons: Vec<Value> = card
            .buttons
            .iter()
            .take(25)
            .enumerate()
            .map(|(nth, it)| {
                let label: String = it.label.chars().take(75).collect();
                let mut button = json!({
                    "type": "button",
                    "action_id": format!("regatta-{nth}"),
                    "text": {"type": "plain_text", "text": label, "emoji": true},
                    "value": it.value,
                });
                if it.danger {
                    button["style"] = json!("danger");
                }
                button
            })
            .collect();
        blocks.push(json!({"type": "actions", "elements": buttons}));
    }
    Value::Array(blocks)
}
