//! Shows an agent's work in Slack: an immediate reaction to a message, one message for each turn
//! (edited while the agent works), and buttons for the agent's requests.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::rate_limit::RateLimit;
use crate::render::{self, PlanFormat};
use crate::service::{Outbound, PostCard, SendContent, SendRequest, ServiceError, ServiceFuture};

use super::api::SlackApi;
use super::markup;

/// Maximum length of an agent's text in one message. Slack's blocks accept 12,000 characters, but
/// Regatta adds some lines to the text.
const MAX_MESSAGE_CHARS: usize = 9_000;
const MINUTE: Duration = Duration::from_secs(60);
const METADATA_EVENT_TYPE: &str = "regatta_post";
/// Number of posts that may be sent into a channel without a pause. Slack accepts short bursts of
/// posts, but does not document their length.
const POST_BURST: f64 = 2.0;

pub(crate) struct SlackOutbound {
    api: Arc<SlackApi>,
}

impl SlackOutbound {
    pub(crate) fn new(api: Arc<SlackApi>) -> SlackOutbound {
        SlackOutbound { api }
    }

    async fn show_card(
        &self,
        request: &SendRequest,
        card: &PostCard,
    ) -> Result<String, ServiceError> {
        let address = |name: &str| request.address.get(name).cloned().unwrap_or_default();
        let (channel, thread) = (address("channel"), address("thread_ts"));
        let text = card_text(card);
        let mut body = json!({
            "channel": channel,
            "text": markup::notification_text(&text),
            "blocks": card_blocks(card, &text),
            "metadata": {"event_type": METADATA_EVENT_TYPE, "event_payload": {"mark": request.post_mark}},
        });
        let mut existing = request.existing_name.clone();
        if existing.is_none() && request.may_exist {
            // The message may already exist, because the daemon may have ended during an earlier
            // call. So search the thread for the message.
            let messages = self.api.thread_messages(&channel, &thread).await?;
            let is_own = |value: &&Value| {
                value["metadata"]["event_payload"]["mark"] == json!(request.post_mark)
            };
            existing = messages
                .iter()
                .find(is_own)
                .and_then(|message| message["ts"].as_str())
                .map(str::to_owned);
        }
        match existing {
            Some(ts) => {
                body["ts"] = json!(ts);
                self.api.call_with_json("chat.update", &body).await?;
                Ok(ts)
            }
            None => {
                body["thread_ts"] = json!(thread);
                body["unfurl_links"] = json!(false);
                body["unfurl_media"] = json!(false);
                let answer = self.api.call_with_json("chat.postMessage", &body).await?;
                answer["ts"].as_str().map(str::to_owned).ok_or_else(|| {
                    ServiceError::OutcomeUnknown("Slack returned no message id".into())
                })
            }
        }
    }
}

impl Outbound for SlackOutbound {
    fn rate_limits(&self, request: &SendRequest) -> Vec<RateLimit> {
        let channel = request.address.get("channel").cloned().unwrap_or_default();
        match (&request.content, &request.existing_name) {
            (SendContent::Reaction { .. }, _) => {
                vec![RateLimit::window("reactions.add", 50, MINUTE)]
            }
            (_, Some(_)) => vec![RateLimit::window("chat.update", 50, MINUTE)],
            (_, None) => {
                let mut limits = vec![
                    RateLimit::window("chat.postMessage", 300, MINUTE),
                    RateLimit::bucket(
                        format!("post:{channel}"),
                        POST_BURST,
                        Duration::from_secs(1),
                    ),
                ];
                if request.may_exist {
                    // A message that may already exist can cost two more calls: one that searches
                    // the thread for the message, and one that edits it. Count these calls too.
                    limits.push(RateLimit::window("conversations.replies", 50, MINUTE));
                    limits.push(RateLimit::window("chat.update", 50, MINUTE));
                }
                limits
            }
        }
    }

    fn min_edit_interval(&self) -> Duration {
        Duration::from_secs(3)
    }

    fn split_card(&self, card: &PostCard) -> Vec<PostCard> {
        render::split_card(card, render::split_text(&card.text, MAX_MESSAGE_CHARS))
    }

    fn show<'a>(
        &'a self,
        request: &'a SendRequest,
    ) -> ServiceFuture<'a, Result<String, ServiceError>> {
        Box::pin(async move {
            match &request.content {
                SendContent::Reaction { source } => {
                    let channel = request.address.get("channel").cloned().unwrap_or_default();
                    let body = json!({"channel": channel, "timestamp": source, "name": "eyes"});
                    match self.api.call_with_json("reactions.add", &body).await {
                        Err(ServiceError::Rejected(why)) if why.ends_with("already_reacted") => {
                            Ok(String::new())
                        }
                        other => other.map(|_| String::new()),
                    }
                }
                SendContent::Card(card) => self.show_card(request, card).await,
                SendContent::PullRequest { .. } => {
                    Err(ServiceError::Rejected("Slack has no pull requests".into()))
                }
            }
        })
    }
}

/// Returns the complete text of the message for a card (the content of a post), in CommonMark.
fn card_text(card: &PostCard) -> String {
    markup::without_mentions(&render::card_text(
        card,
        &PlanFormat {
            max_lines: 20,
            max_line_chars: 150,
            sign: render::status_sign,
        },
    ))
}

fn card_blocks(card: &PostCard, text: &str) -> Value {
    let mut blocks =
        vec![json!({"type": "markdown", "text": text.chars().take(12_000).collect::<String>()})];
    if !card.buttons.is_empty() {
        let buttons: Vec<Value> = card
            .buttons
            .iter()
            .take(25)
            .enumerate()
            .map(|(index, button)| {
                let label: String = button.label.chars().take(75).collect();
                let mut element = json!({
                    "type": "button",
                    "action_id": format!("regatta-{index}"),
                    "text": {"type": "plain_text", "text": label, "emoji": true},
                    "value": button.value,
                });
                if button.is_dangerous {
                    element["style"] = json!("danger");
                }
                element
            })
            .collect();
        blocks.push(json!({"type": "actions", "elements": buttons}));
    }
    Value::Array(blocks)
}
