//! Shows an agent's work in Linear: the activities (entries) of an agent session, its plan and its
//! links.
//!
//! An activity cannot be edited, so each update creates a new activity. An activity that only shows
//! progress is ephemeral, which means that Linear replaces it by the next activity. The id of an
//! activity is computed from its purpose, so sending the same activity again after a crash does not
//! create a second one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use regatta_core::agent_protocol::ToolStatus;
use regatta_core::conversation::pending_approval;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::intake::{Intake, unix_time_ms};
use crate::rate_limit::RateLimit;
use crate::render;
use crate::service::{
    CardTone, Outbound, PostCard, SendContent, SendRequest, ServiceError, ServiceFuture,
};

use super::api::LinearApi;

/// Maximum length of the text of one activity (an entry of a Linear session), in characters.
const MAX_ACTIVITY_CHARS: usize = 16_000;
/// Time after which an agent that still works creates a new activity although nothing changed.
/// Linear marks a session as stale after 30 minutes without an activity, so the interval is less
/// than half of this time.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(14 * 60);
/// Number of calls that can be made without a pause. Linear allows 5,000 calls per hour in a token
/// bucket that refills evenly. The other 1,000 calls are left for other programs that use the same
/// token.
const CALL_BURST: f64 = 4_000.0;
const CALL_INTERVAL: Duration = Duration::from_millis(720);
/// Maximum number of sessions for which the shown plan and links are cached.
const MAX_CACHED_SESSIONS: usize = 5_000;

pub(crate) struct LinearOutbound {
    api: Arc<LinearApi>,
    intake: Intake,
    displays: Mutex<HashMap<String, SessionDisplay>>,
}

/// The plan and the links that a Linear session currently shows. It is harmless to lose this cache,
/// because sending the same plan again changes nothing.
#[derive(Clone, Debug, Default)]
struct SessionDisplay {
    plan: Option<Value>,
    links: Vec<(String, String)>,
    /// True after this daemon has shown an activity in the session. Only then is a repeated
    /// activity a sign of life. Before that, it is only the same post, sent again after a restart.
    has_shown_activity: bool,
}

impl LinearOutbound {
    pub(crate) fn new(api: Arc<LinearApi>, intake: Intake) -> LinearOutbound {
        LinearOutbound {
            api,
            intake,
            displays: Mutex::default(),
        }
    }

    fn with_display<T>(&self, session: &str, change: impl FnOnce(&mut SessionDisplay) -> T) -> T {
        let mut displays = self.displays.lock().unwrap_or_else(PoisonError::into_inner);
        if displays.len() >= MAX_CACHED_SESSIONS && !displays.contains_key(session) {
            displays.clear();
        }
        change(displays.entry(session.to_owned()).or_default())
    }

    async fn create_activity(
        &self,
        session: &str,
        id: &str,
        activity: &LinearActivity,
    ) -> Result<(), ServiceError> {
        let mut input = json!({"id": id, "agentSessionId": session, "content": activity.content, "ephemeral": activity.is_ephemeral});
        if !activity.options.is_empty() {
            let options: Vec<Value> = activity
                .options
                .iter()
                .map(|(label, value)| json!({"label": label, "value": value}))
                .collect();
            (input["signal"], input["signalMetadata"]) =
                (json!("select"), json!({"options": options}));
        }
        self.api.create_activity(&input).await?;
        self.with_display(session, |display| display.has_shown_activity = true);
        Ok(())
    }

    async fn show_card(
        &self,
        request: &SendRequest,
        card: &PostCard,
        session: &str,
    ) -> Result<String, ServiceError> {
        let conversation = self.intake.conversation(&format!("linear:{session}"));
        let now = ConversationNow {
            is_working: conversation
                .as_ref()
                .is_some_and(|conversation| conversation.current_turn().is_some()),
            is_waiting: conversation.as_ref().is_some_and(|conversation| {
                pending_approval(&self.intake.board(), conversation).is_some()
            }),
        };
        // Make the conversation's creation time a part of the id. In a new database, conversations
        // are numbered from one again, and without the creation time their activities would get the
        // same ids as activities from the old database.
        let created_unix_ms = conversation
            .as_ref()
            .map_or(0, |conversation| conversation.created_unix_ms);
        let id_base = format!("{created_unix_ms} {}", request.post_mark);
        let existing_name = request.existing_name.as_deref().unwrap_or_default();
        let name = match (activity_of_card(card, now), card.tone) {
            (None, _) if existing_name.is_empty() => derived_id(&[&id_base, session, "unsaid"]),
            (None, _) => existing_name.to_owned(),
            (Some(activity), CardTone::Working) => {
                self.show_progress(session, &activity, &id_base, existing_name)
                    .await?
            }
            (Some(activity), tone) => {
                // The id does not depend on the links, so a later change of the links does not
                // create a second activity.
                let id = derived_id(&[&id_base, session, &format!("{tone:?}")]);
                if existing_name != id {
                    self.create_activity(session, &id, &activity).await?;
                }
                id
            }
        };
        self.update_session(session, card).await?;
        Ok(name)
    }

    /// Shows progress as a new activity if its content differs from the activity that is shown now.
    /// The returned name of the post contains a hash of this content. The id of the activity also
    /// depends on the previous activity, because the same content may appear again later.
    async fn show_progress(
        &self,
        session: &str,
        activity: &LinearActivity,
        id_base: &str,
        existing_name: &str,
    ) -> Result<String, ServiceError> {
        let content = activity.content.to_string();
        let content_hash = derived_id(&[&content]);
        let was_shown = self.with_display(session, |display| {
            std::mem::replace(&mut display.has_shown_activity, true)
        });
        if existing_name.ends_with(&content_hash) {
            if was_shown {
                // The content has not changed for a long time, so create the same activity again as
                // a sign of life.
                self.create_activity(
                    session,
                    &derived_id(&[id_base, session, &content, &unix_time_ms().to_string()]),
                    activity,
                )
                .await?;
            }
            return Ok(existing_name.to_owned());
        }
        let id = derived_id(&[id_base, session, &content, existing_name]);
        self.create_activity(session, &id, activity).await?;
        Ok(format!("{id} {content_hash}"))
    }

    /// Sends the plan and the links of a card to Linear if they have changed. Returns no error if
    /// Linear rejects them, because the post itself is already shown.
    async fn update_session(&self, session: &str, card: &PostCard) -> Result<(), ServiceError> {
        let plan = plan_json(card);
        let shown = self.with_display(session, |display| display.clone());
        let mut input = json!({});
        if let Some(plan) = plan
            .as_ref()
            .filter(|plan| shown.plan.as_ref() != Some(plan))
        {
            input["plan"] = plan.clone();
        }
        let new_links: Vec<&(String, String)> = card
            .links
            .iter()
            .filter(|link| !shown.links.contains(link))
            .collect();
        if !new_links.is_empty() {
            let links = new_links
                .iter()
                .map(|(label, url)| json!({"label": label, "url": url}));
            input["addedExternalUrls"] = links.collect();
        }
        if input == json!({}) {
            return Ok(());
        }
        match self.api.update_session(session, &input).await {
            Ok(()) => {}
            Err(ServiceError::Rejected(why)) => self
                .intake
                .update_health(|health| health.trouble = Some(why)),
            Err(error) => return Err(error),
        }
        self.with_display(session, |display| {
            display.plan = plan.or(display.plan.take());
            display.links.extend(new_links.into_iter().cloned());
        });
        Ok(())
    }
}

impl Outbound for LinearOutbound {
    fn rate_limits(&self, request: &SendRequest) -> Vec<RateLimit> {
        let calls = match &request.content {
            SendContent::Card(card) if !card.plan.is_empty() || !card.links.is_empty() => 2,
            _ => 1,
        };
        vec![RateLimit::bucket("requests", CALL_BURST, CALL_INTERVAL); calls]
    }

    fn min_edit_interval(&self) -> Duration {
        Duration::from_secs(5)
    }

    fn heartbeat_interval(&self) -> Option<Duration> {
        Some(HEARTBEAT_INTERVAL.div_f64(self.intake.registry().config.clock.max(0.001)))
    }

    fn split_card(&self, card: &PostCard) -> Vec<PostCard> {
        render::split_card(card, render::split_text(&card.text, MAX_ACTIVITY_CHARS))
    }

    fn show<'a>(
        &'a self,
        request: &'a SendRequest,
    ) -> ServiceFuture<'a, Result<String, ServiceError>> {
        Box::pin(async move {
            let Some(session) = request.address.get("session") else {
                return Err(ServiceError::Rejected(
                    "the Linear session of this conversation is unknown".into(),
                ));
            };
            match &request.content {
                SendContent::Reaction { source } => {
                    let activity = LinearActivity::from_text(
                        "thought",
                        "I have seen this and look into it.",
                        true,
                    );
                    let id = derived_id(&[&request.post_mark, session, source]);
                    self.create_activity(session, &id, &activity)
                        .await
                        .map(|()| id)
                }
                SendContent::Card(card) => self.show_card(request, card, session).await,
                SendContent::PullRequest { .. } => {
                    Err(ServiceError::Rejected("Linear has no pull requests".into()))
                }
            }
        })
    }
}

/// The facts about a conversation's current state on which the kind of an activity depends.
#[derive(Clone, Copy, Debug, Default)]
struct ConversationNow {
    is_working: bool,
    /// True while the agent waits for a person's answer.
    is_waiting: bool,
}

/// The content of one activity (an entry of a Linear session).
#[derive(Clone, Debug, PartialEq)]
struct LinearActivity {
    content: Value,
    is_ephemeral: bool,
    options: Vec<(String, String)>,
}

impl LinearActivity {
    fn from_text(kind: &str, body: &str, is_ephemeral: bool) -> LinearActivity {
        let body = if body.trim().is_empty() { "…" } else { body };
        LinearActivity {
            content: json!({"type": kind, "body": body}),
            is_ephemeral,
            options: vec![],
        }
    }
}

/// Converts a card (the content of a post) to an activity. Linear derives the state of a session
/// from its last activity, so the result is `None` if the activity would give the session a wrong
/// state.
fn activity_of_card(card: &PostCard, now: ConversationNow) -> Option<LinearActivity> {
    let last_word = if now.is_working {
        "thought"
    } else {
        "response"
    };
    Some(match card.tone {
        // While the agent waits for an answer, its question must stay the last activity. So show no
        // progress now.
        CardTone::Working if now.is_waiting => return None,
        CardTone::Working => progress_activity(card),
        CardTone::Waiting => LinearActivity::from_text("thought", &card.text, false),
        CardTone::Note => LinearActivity::from_text(last_word, &card.text, false),
        CardTone::Done | CardTone::Stopped => {
            LinearActivity::from_text("response", &card.text, false)
        }
        CardTone::Failed => LinearActivity::from_text("error", &card.text, false),
        CardTone::Question => {
            let options = card
                .buttons
                .iter()
                .map(|button| (button.label.clone(), button.value.clone()))
                .collect();
            LinearActivity {
                options,
                ..LinearActivity::from_text("elicitation", &card.text, false)
            }
        }
        // The result of the turn is already shown, so the answered question needs no activity.
        CardTone::Answered if !now.is_working => return None,
        CardTone::Answered => LinearActivity::from_text("thought", &card.text, true),
    })
}

/// Converts progress to an activity: the agent's newest text if there is one, otherwise the agent's
/// last step.
fn progress_activity(card: &PostCard) -> LinearActivity {
    let current_step = card.activity.as_deref().unwrap_or("working");
    let has_message = card.text.lines().any(|text| text.starts_with("> "));
    let step = card
        .text
        .lines()
        .rev()
        .find_map(|text| text.strip_prefix("- `"))
        .filter(|_| !has_message);
    match step {
        Some(step) => {
            let step = step.trim_matches([' ', '`']);
            let content = json!({"type": "action", "action": current_step, "parameter": step});
            LinearActivity {
                content,
                is_ephemeral: true,
                options: vec![],
            }
        }
        None => LinearActivity::from_text(
            "thought",
            format!("{current_step}\n\n{}", card.text).trim(),
            true,
        ),
    }
}

fn plan_json(card: &PostCard) -> Option<Value> {
    let steps = card.plan.iter().map(|(text, status)| {
        let status = match status {
            ToolStatus::Pending => "pending",
            ToolStatus::InProgress => "inProgress",
            ToolStatus::Completed => "completed",
            ToolStatus::Failed => "canceled",
        };
        json!({"content": text, "status": status})
    });
    (!card.plan.is_empty()).then(|| steps.collect())
}

/// Returns an id that looks like a random UUID but is computed from `parts`, so that the same parts
/// give the same id.
fn derived_id(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    let mut bytes = [0_u8; 16];
    bytes.copy_from_slice(&hash.finalize()[..16]);
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let hex = data_encoding::HEXLOWER.encode(&bytes);
    format!(
        "{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    )
}

#[cfg(test)]
mod tests {
    use crate::service::CardButton;

    use super::*;

    #[test]
    fn id_is_a_uuid_that_depends_only_on_its_parts() {
        let id = derived_id(&["regatta:V1:2:0", "S1", "Done"]);
        assert_eq!(id, derived_id(&["regatta:V1:2:0", "S1", "Done"]));
        assert_eq!(id.len(), 36);
        assert_eq!(&id[14..15], "4");
        assert!("89ab".contains(&id[19..20]));
        let others: [&[&str]; 4] = [
            &["regatta:V1:2:0", "S2", "Done"],
            &["regatta:V1:2:0S1", "", "Done"],
            &["regatta:V1:2:0", "S1"],
            &[],
        ];
        for other in others {
            assert_ne!(id, derived_id(other));
        }
    }

    #[test]
    fn kind_of_an_activity_follows_from_tone_and_state() {
        let card = |tone| PostCard {
            tone,
            text: "text".into(),
            ..PostCard::default()
        };
        let idle = ConversationNow::default();
        let working = ConversationNow {
            is_working: true,
            is_waiting: false,
        };
        let waiting = ConversationNow {
            is_working: true,
            is_waiting: true,
        };
        for (tone, now, kind) in [
            (CardTone::Working, working, Some("thought")),
            (CardTone::Working, waiting, None),
            (CardTone::Waiting, working, Some("thought")),
            (CardTone::Note, working, Some("thought")),
            (CardTone::Note, idle, Some("response")),
            (CardTone::Done, idle, Some("response")),
            (CardTone::Done, working, Some("response")),
            (CardTone::Stopped, idle, Some("response")),
            (CardTone::Failed, idle, Some("error")),
            (CardTone::Question, waiting, Some("elicitation")),
            (CardTone::Answered, working, Some("thought")),
            (CardTone::Answered, idle, None),
        ] {
            let activity = activity_of_card(&card(tone), now);
            assert_eq!(
                activity
                    .as_ref()
                    .and_then(|activity| activity.content["type"].as_str()),
                kind,
                "{tone:?} {now:?}"
            );
        }
        let buttons = vec![CardButton {
            label: "Allow".into(),
            value: "allow:Q1".into(),
            is_dangerous: false,
        }];
        let question = activity_of_card(
            &PostCard {
                buttons,
                ..card(CardTone::Question)
            },
            waiting,
        )
        .unwrap();
        assert_eq!(
            question.options,
            [("Allow".to_owned(), "allow:Q1".to_owned())]
        );
        assert!(!question.is_ephemeral);
    }

    #[test]
    fn step_is_an_action_and_text_is_a_thought() {
        let card = |text: &str| PostCard {
            text: text.into(),
            activity: Some("working".into()),
            ..PostCard::default()
        };
        let step = progress_activity(&card(
            "- … 2 earlier steps\n- `cargo check`\n- `cargo test`",
        ));
        assert_eq!(
            step.content,
            json!({"type": "action", "action": "working", "parameter": "cargo test"})
        );
        let thought = progress_activity(&card("- `cargo test`\n\n> All is well."));
        assert_eq!(thought.content["type"], "thought");
        assert!(
            thought.content["body"]
                .as_str()
                .unwrap()
                .contains("All is well.")
        );
        assert_eq!(progress_activity(&card("")).content["body"], "working");
        assert!(step.is_ephemeral && thought.is_ephemeral);
    }

    #[test]
    fn plan_has_all_its_steps() {
        let plan = vec![
            ("look".to_owned(), ToolStatus::Completed),
            ("repair".to_owned(), ToolStatus::InProgress),
        ];
        let plan = plan_json(&PostCard {
            plan,
            ..PostCard::default()
        })
        .unwrap();
        assert_eq!(
            plan,
            json!([{"content": "look", "status": "completed"}, {"content": "repair", "status": "inProgress"}])
        );
        assert_eq!(plan_json(&PostCard::default()), None);
    }
}
