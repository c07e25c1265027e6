//! Posts in Linear: activities of an agent session, its plan and its links.
//!
//! An activity cannot be edited, so each update creates another one. Progress updates are
//! ephemeral: the next activity replaces them. Every activity has an id that is derived from its
//! purpose, so that sending it again after a crash creates no second one.

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

/// Maximum text length of one activity.
const MAX_ACTIVITY_CHARS: usize = 16_000;
/// Interval of signs of life. A session counts as stale after 30 minutes of silence, so two of them
/// fit.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(14 * 60);
/// Linear allows 5,000 calls an hour, in a bucket that refills evenly. Some are left for other
/// users of the token.
const CALL_BURST: f64 = 4_000.0;
const CALL_INTERVAL: Duration = Duration::from_millis(720);
/// Capacity of the cache of sessions.
const MAX_CACHED_SESSIONS: usize = 5_000;

pub(crate) struct LinearOutbound {
    api: Arc<LinearApi>,
    intake: Intake,
    displays: Mutex<HashMap<String, SessionDisplay>>,
}

/// The plan and links that a session shows. They can be lost, because sending them again changes
/// nothing.
#[derive(Clone, Debug, Default)]
struct SessionDisplay {
    plan: Option<Value>,
    links: Vec<(String, String)>,
    /// Set when this run has shown something there. The same content again is then a sign of life,
    /// and not a repetition after a restart.
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
        let mut told = self.displays.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() >= MAX_CACHED_SESSIONS && !told.contains_key(session) {
            told.clear();
        }
        change(told.entry(session.to_owned()).or_default())
    }

    async fn create_activity(
        &self,
        session: &str,
        id: &str,
        act: &LinearActivity,
    ) -> Result<(), ServiceError> {
        let mut input = json!({"id": id, "agentSessionId": session, "content": act.content, "ephemeral": act.is_ephemeral});
        if !act.options.is_empty() {
            let options: Vec<Value> = act
                .options
                .iter()
                .map(|(label, value)| json!({"label": label, "value": value}))
                .collect();
            (input["signal"], input["signalMetadata"]) =
                (json!("select"), json!({"options": options}));
        }
        self.api.create_activity(&input).await?;
        self.with_display(session, |session_display| {
            session_display.has_shown_activity = true
        });
        Ok(())
    }

    async fn show_card(
        &self,
        shot: &SendRequest,
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
        // A new store counts from one again, and its activities must not get the ids of the old
        // store's.
        let born = conversation
            .as_ref()
            .map_or(0, |conversation| conversation.created_unix_ms);
        let of = format!("{born} {}", shot.post_mark);
        let shown_as = shot.existing_name.as_deref().unwrap_or_default();
        let name = match (activity_of_card(card, now), card.tone) {
            (None, _) if shown_as.is_empty() => derived_id(&[&of, session, "unsaid"]),
            (None, _) => shown_as.to_owned(),
            (Some(act), CardTone::Working) => {
                self.show_progress(session, &act, &of, shown_as).await?
            }
            (Some(act), tone) => {
                // Created only once, even if its links change afterwards.
                let id = derived_id(&[&of, session, &format!("{tone:?}")]);
                if shown_as != id {
                    self.create_activity(session, &id, &act).await?;
                }
                id
            }
        };
        self.update_session(session, card).await?;
        Ok(name)
    }

    /// Shows progress. The name has a hash of the content. The id also depends on the previous
    /// activity, because the same content may return later.
    async fn show_progress(
        &self,
        session: &str,
        act: &LinearActivity,
        of: &str,
        shown_as: &str,
    ) -> Result<String, ServiceError> {
        let content = act.content.to_string();
        let sum = derived_id(&[&content]);
        let awake = self.with_display(session, |session_display| {
            std::mem::replace(&mut session_display.has_shown_activity, true)
        });
        if shown_as.ends_with(&sum) {
            if awake {
                // Nothing new for a long time, so it shows a sign of life.
                self.create_activity(
                    session,
                    &derived_id(&[of, session, &content, &unix_time_ms().to_string()]),
                    act,
                )
                .await?;
            }
            return Ok(shown_as.to_owned());
        }
        let id = derived_id(&[of, session, &content, shown_as]);
        self.create_activity(session, &id, act).await?;
        Ok(format!("{id} {sum}"))
    }

    /// Sends the plan and the links if they are new. If Linear rejects them, the post is still
    /// shown.
    async fn update_session(&self, session: &str, card: &PostCard) -> Result<(), ServiceError> {
        let plan = plan_json(card);
        let told = self.with_display(session, |session_display| session_display.clone());
        let mut input = json!({});
        if let Some(plan) = plan
            .as_ref()
            .filter(|plan| told.plan.as_ref() != Some(plan))
        {
            input["plan"] = plan.clone();
        }
        let fresh: Vec<&(String, String)> = card
            .links
            .iter()
            .filter(|link| !told.links.contains(link))
            .collect();
        if !fresh.is_empty() {
            let links = fresh
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
                .update_health(|bridge_health| bridge_health.trouble = Some(why)),
            Err(trouble) => return Err(trouble),
        }
        self.with_display(session, |session_display| {
            session_display.plan = plan.or(session_display.plan.take());
            session_display.links.extend(fresh.into_iter().cloned());
        });
        Ok(())
    }
}

impl Outbound for LinearOutbound {
    fn rate_limits(&self, shot: &SendRequest) -> Vec<RateLimit> {
        let calls = match &shot.content {
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
        shot: &'a SendRequest,
    ) -> ServiceFuture<'a, Result<String, ServiceError>> {
        Box::pin(async move {
            let Some(session) = shot.address.get("session") else {
                return Err(ServiceError::Rejected(
                    "the Linear session of this conversation is unknown".into(),
                ));
            };
            match &shot.content {
                SendContent::Reaction { source } => {
                    let act = LinearActivity::from_text(
                        "thought",
                        "I have seen this and look into it.",
                        true,
                    );
                    let id = derived_id(&[&shot.post_mark, session, source]);
                    self.create_activity(session, &id, &act).await.map(|()| id)
                }
                SendContent::Card(card) => self.show_card(shot, card, session).await,
                SendContent::PullRequest { .. } => {
                    Err(ServiceError::Rejected("Linear has no pull requests".into()))
                }
            }
        })
    }
}

/// The present state of a conversation.
#[derive(Clone, Copy, Debug, Default)]
struct ConversationNow {
    is_working: bool,
    /// Set while its agent waits for an answer.
    is_waiting: bool,
}

/// The content of one activity.
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

/// Returns a card as an activity. Linear derives a session's state from its last activity, so an
/// activity that would show the wrong state is left out.
fn activity_of_card(card: &PostCard, now: ConversationNow) -> Option<LinearActivity> {
    let last_word = if now.is_working {
        "thought"
    } else {
        "response"
    };
    Some(match card.tone {
        // While the agent waits for an answer, the question must stay the last activity.
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
                .map(|card_button| (card_button.label.clone(), card_button.value.clone()))
                .collect();
            LinearActivity {
                options,
                ..LinearActivity::from_text("elicitation", &card.text, false)
            }
        }
        // The end of the turn has already shown it.
        CardTone::Answered if !now.is_working => return None,
        CardTone::Answered => LinearActivity::from_text("thought", &card.text, true),
    })
}

/// Returns progress as an activity: the last step as an action, or the agent's words if it wrote
/// some since.
fn progress_activity(card: &PostCard) -> LinearActivity {
    let doing = card.activity.as_deref().unwrap_or("working");
    let says = card.text.lines().any(|text| text.starts_with("> "));
    let step = card
        .text
        .lines()
        .rev()
        .find_map(|text| text.strip_prefix("- `"))
        .filter(|_| !says);
    match step {
        Some(step) => {
            let step = step.trim_matches([' ', '`']);
            let content = json!({"type": "action", "action": doing, "parameter": step});
            LinearActivity {
                content,
                is_ephemeral: true,
                options: vec![],
            }
        }
        None => {
            LinearActivity::from_text("thought", format!("{doing}\n\n{}", card.text).trim(), true)
        }
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

/// Returns an id in the form of a random UUID, which is always the same for the same parts.
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
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
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
        let works = ConversationNow {
            is_working: true,
            is_waiting: false,
        };
        let waits = ConversationNow {
            is_working: true,
            is_waiting: true,
        };
        for (tone, now, kind) in [
            (CardTone::Working, works, Some("thought")),
            (CardTone::Working, waits, None),
            (CardTone::Waiting, works, Some("thought")),
            (CardTone::Note, works, Some("thought")),
            (CardTone::Note, idle, Some("response")),
            (CardTone::Done, idle, Some("response")),
            (CardTone::Done, works, Some("response")),
            (CardTone::Stopped, idle, Some("response")),
            (CardTone::Failed, idle, Some("error")),
            (CardTone::Question, waits, Some("elicitation")),
            (CardTone::Answered, works, Some("thought")),
            (CardTone::Answered, idle, None),
        ] {
            let act = activity_of_card(&card(tone), now);
            assert_eq!(
                act.as_ref()
                    .and_then(|linear_activity| linear_activity.content["type"].as_str()),
                kind,
                "{tone:?} {now:?}"
            );
        }
        let buttons = vec![CardButton {
            label: "Allow".into(),
            value: "allow:Q1".into(),
            is_dangerous: false,
        }];
        let asked = activity_of_card(
            &PostCard {
                buttons,
                ..card(CardTone::Question)
            },
            waits,
        )
        .unwrap();
        assert_eq!(asked.options, [("Allow".to_owned(), "allow:Q1".to_owned())]);
        assert!(!asked.is_ephemeral);
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
        let words = progress_activity(&card("- `cargo test`\n\n> All is well."));
        assert_eq!(words.content["type"], "thought");
        assert!(
            words.content["body"]
                .as_str()
                .unwrap()
                .contains("All is well.")
        );
        assert_eq!(progress_activity(&card("")).content["body"], "working");
        assert!(step.is_ephemeral && words.is_ephemeral);
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
