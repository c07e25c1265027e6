//! Posts in Linear: activities of an agent session, its plan and its links.
//!
//! An activity cannot be edited, so each update creates another one. Progress updates are
//! ephemeral: the next activity replaces them. Every activity has an id that is derived from its
//! purpose, so that sending it again after a crash creates no second one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use regatta_core::conversation::waits_for;
use regatta_core::session::ToolStatus;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::bucket::Limit;
use crate::desk::{Desk, wall};
use crate::render;
use crate::service::{Card, Fut, Outbound, Shot, Sight, Tone, Trouble};

use super::api::Api;

/// Maximum text length of one activity.
const LONGEST: usize = 16_000;
/// Interval of signs of life. A session counts as stale after 30 minutes of silence, so two of them
/// fit.
const BEAT: Duration = Duration::from_secs(14 * 60);
/// Linear allows 5,000 calls an hour, in a bucket that refills evenly. Some are left for other
/// users of the token.
const BURST: f64 = 4_000.0;
const EVERY: Duration = Duration::from_millis(720);
/// Capacity of the cache of sessions.
const MOST_KNOWN: usize = 5_000;

pub(crate) struct Linear {
    api: Arc<Api>,
    desk: Desk,
    told: Mutex<HashMap<String, Told>>,
}

/// The plan and links that a session shows. They can be lost, because sending them again changes
/// nothing.
#[derive(Clone, Debug, Default)]
struct Told {
    plan: Option<Value>,
    links: Vec<(String, String)>,
    /// Set when this run has shown something there. The same content again is then a sign of life,
    /// and not a repetition after a restart.
    awake: bool,
}

impl Linear {
    pub(crate) fn new(api: Arc<Api>, desk: Desk) -> Linear {
        Linear { api, desk, told: Mutex::default() }
    }

    fn told<T>(&self, session: &str, change: impl FnOnce(&mut Told) -> T) -> T {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() >= MOST_KNOWN && !told.contains_key(session) {
            told.clear();
        }
        change(told.entry(session.to_owned()).or_default())
    }

    async fn create(&self, session: &str, id: &str, act: &Act) -> Result<(), Trouble> {
        let mut input =
            json!({"id": id, "agentSessionId": session, "content": act.content, "ephemeral": act.ephemeral});
        if !act.options.is_empty() {
            let options: Vec<Value> =
                act.options.iter().map(|(label, value)| json!({"label": label, "value": value})).collect();
            (input["signal"], input["signalMetadata"]) = (json!("select"), json!({"options": options}));
        }
        self.api.activity(&input).await?;
        self.told(session, |it| it.awake = true);
        Ok(())
    }

    async fn card(&self, shot: &Shot, card: &Card, session: &str) -> Result<String, Trouble> {
        let it = self.desk.conversation(&format!("linear:{session}"));
        let now = Now {
            works: it.as_ref().is_some_and(|it| it.working().is_some()),
            waits: it.as_ref().is_some_and(|it| waits_for(&self.desk.board(), it).is_some()),
        };
        // A new store counts from one again, and its activities must not get the ids of the old
        // store's.
        let born = it.as_ref().map_or(0, |it| it.created_wall);
        let of = format!("{born} {}", shot.mark);
        let shown_as = shot.shown_as.as_deref().unwrap_or_default();
        let name = match (act(card, now), card.tone) {
            (None, _) if shown_as.is_empty() => id_of(&[&of, session, "unsaid"]),
            (None, _) => shown_as.to_owned(),
            (Some(act), Tone::Working) => self.progress(session, &act, &of, shown_as).await?,
            (Some(act), tone) => {
                // Created only once, even if its links change afterwards.
                let id = id_of(&[&of, session, &format!("{tone:?}")]);
                if shown_as != id {
                    self.create(session, &id, &act).await?;
                }
                id
            }
        };
        self.update(session, card).await?;
        Ok(name)
    }

    /// Shows progress. The name has a hash of the content. The id also depends on the previous
    /// activity, because the same content may return later.
    async fn progress(&self, session: &str, act: &Act, of: &str, shown_as: &str) -> Result<String, Trouble> {
        let content = act.content.to_string();
        let sum = id_of(&[&content]);
        let awake = self.told(session, |it| std::mem::replace(&mut it.awake, true));
        if shown_as.ends_with(&sum) {
            if awake {
                // Nothing new for a long time, so it shows a sign of life.
                self.create(session, &id_of(&[of, session, &content, &wall().to_string()]), act).await?;
            }
            return Ok(shown_as.to_owned());
        }
        let id = id_of(&[of, session, &content, shown_as]);
        self.create(session, &id, act).await?;
        Ok(format!("{id} {sum}"))
    }

    /// Sends the plan and the links if they are new. If Linear rejects them, the post is still
    /// shown.
    async fn update(&self, session: &str, card: &Card) -> Result<(), Trouble> {
        let plan = plan_of(card);
        let told = self.told(session, |it| it.clone());
        let mut input = json!({});
        if let Some(plan) = plan.as_ref().filter(|plan| told.plan.as_ref() != Some(plan)) {
            input["plan"] = plan.clone();
        }
        let fresh: Vec<&(String, String)> = card.links.iter().filter(|it| !told.links.contains(it)).collect();
        if !fresh.is_empty() {
            let links = fresh.iter().map(|(label, url)| json!({"label": label, "url": url}));
            input["addedExternalUrls"] = links.collect();
        }
        if input == json!({}) {
            return Ok(());
        }
        match self.api.update(session, &input).await {
            Ok(()) => {}
            Err(Trouble::Never(why)) => self.desk.note(|it| it.trouble = Some(why)),
            Err(trouble) => return Err(trouble),
        }
        self.told(session, |it| {
            it.plan = plan.or(it.plan.take());
            it.links.extend(fresh.into_iter().cloned());
        });
        Ok(())
    }
}

impl Outbound for Linear {
    fn limits(&self, shot: &Shot) -> Vec<Limit> {
        let calls = match &shot.sight {
            Sight::Card(card) if !card.plan.is_empty() || !card.links.is_empty() => 2,
            _ => 1,
        };
        vec![Limit::bucket("requests", BURST, EVERY); calls]
    }

    fn pace(&self) -> Duration {
        Duration::from_secs(5)
    }

    fn heartbeat(&self) -> Option<Duration> {
        Some(BEAT.div_f64(self.desk.registry().config.clock.max(0.001)))
    }

    fn pieces(&self, card: &Card) -> Vec<Card> {
        render::in_pieces(card, render::split(&card.text, LONGEST))
    }

    fn show<'a>(&'a self, shot: &'a Shot) -> Fut<'a, Result<String, Trouble>> {
        Box::pin(async move {
            let Some(session) = shot.place.get("session") else {
                return Err(Trouble::Never("the Linear session of this conversation is unknown".into()));
            };
            match &shot.sight {
                Sight::Seen { source } => {
                    let act = Act::saying("thought", "I have seen this and look into it.", true);
                    let id = id_of(&[&shot.mark, session, source]);
                    self.create(session, &id, &act).await.map(|()| id)
                }
                Sight::Card(card) => self.card(shot, card, session).await,
                Sight::Pull { .. } => Err(Trouble::Never("Linear has no pull requests".into())),
            }
        })
    }
}

/// The present state of a conversation.
#[derive(Clone, Copy, Debug, Default)]
struct Now {
    works: bool,
    /// Set while its agent waits for an answer.
    waits: bool,
}

/// The content of one activity.
#[derive(Clone, Debug, PartialEq)]
struct Act {
    content: Value,
    ephemeral: bool,
    options: Vec<(String, String)>,
}

impl Act {
    fn saying(kind: &str, body: &str, ephemeral: bool) -> Act {
        let body = if body.trim().is_empty() { "…" } else { body };
        Act { content: json!({"type": kind, "body": body}), ephemeral, options: vec![] }
    }
}

/// Returns a card as an activity. Linear derives a session's state from its last activity, so an
/// activity that would show the wrong state is left out.
fn act(card: &Card, now: Now) -> Option<Act> {
    let last_word = if now.works { "thought" } else { "response" };
    Some(match card.tone {
        // While the agent waits for an answer, the question must stay the last activity.
        Tone::Working if now.waits => return None,
        Tone::Working => working(card),
        Tone::Waiting => Act::saying("thought", &card.text, false),
        Tone::Note => Act::saying(last_word, &card.text, false),
        Tone::Done | Tone::Stopped => Act::saying("response", &card.text, false),
        Tone::Failed => Act::saying("error", &card.text, false),
        Tone::Question => {
            let options = card.buttons.iter().map(|it| (it.label.clone(), it.value.clone())).collect();
            Act { options, ..Act::saying("elicitation", &card.text, false) }
        }
        // The end of the turn has already shown it.
        Tone::Answered if !now.works => return None,
        Tone::Answered => Act::saying("thought", &card.text, true),
    })
}

/// Returns progress as an activity: the last step as an action, or the agent's words if it wrote
/// some since.
fn working(card: &Card) -> Act {
    let doing = card.doing.as_deref().unwrap_or("working");
    let says = card.text.lines().any(|it| it.starts_with("> "));
    let step = card.text.lines().rev().find_map(|it| it.strip_prefix("- `")).filter(|_| !says);
    match step {
        Some(step) => {
            let step = step.trim_matches([' ', '`']);
            let content = json!({"type": "action", "action": doing, "parameter": step});
            Act { content, ephemeral: true, options: vec![] }
        }
        None => Act::saying("thought", format!("{doing}\n\n{}", card.text).trim(), true),
    }
}

fn plan_of(card: &Card) -> Option<Value> {
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
fn id_of(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    let mut bytes = [0_u8; 16];
    bytes.copy_from_slice(&hash.finalize()[..16]);
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let hex: String = bytes.iter().map(|it| format!("{it:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use crate::service::Button;

    use super::*;

    #[test]
    fn id_is_a_uuid_that_depends_only_on_its_parts() {
        let id = id_of(&["regatta:V1:2:0", "S1", "Done"]);
        assert_eq!(id, id_of(&["regatta:V1:2:0", "S1", "Done"]));
        assert_eq!(id.len(), 36);
        assert_eq!(&id[14..15], "4");
        assert!("89ab".contains(&id[19..20]));
        let others: [&[&str]; 4] =
            [&["regatta:V1:2:0", "S2", "Done"], &["regatta:V1:2:0S1", "", "Done"], &["regatta:V1:2:0", "S1"], &[]];
        for other in others {
            assert_ne!(id, id_of(other));
        }
    }

    #[test]
    fn kind_of_an_activity_follows_from_tone_and_state() {
        let card = |tone| Card { tone, text: "text".into(), ..Card::default() };
        let idle = Now::default();
        let works = Now { works: true, waits: false };
        let waits = Now { works: true, waits: true };
        for (tone, now, kind) in [
            (Tone::Working, works, Some("thought")),
            (Tone::Working, waits, None),
            (Tone::Waiting, works, Some("thought")),
            (Tone::Note, works, Some("thought")),
            (Tone::Note, idle, Some("response")),
            (Tone::Done, idle, Some("response")),
            (Tone::Done, works, Some("response")),
            (Tone::Stopped, idle, Some("response")),
            (Tone::Failed, idle, Some("error")),
            (Tone::Question, waits, Some("elicitation")),
            (Tone::Answered, works, Some("thought")),
            (Tone::Answered, idle, None),
        ] {
            let act = act(&card(tone), now);
            assert_eq!(act.as_ref().and_then(|it| it.content["type"].as_str()), kind, "{tone:?} {now:?}");
        }
        let buttons = vec![Button { label: "Allow".into(), value: "allow:Q1".into(), danger: false }];
        let asked = act(&Card { buttons, ..card(Tone::Question) }, waits).unwrap();
        assert_eq!(asked.options, [("Allow".to_owned(), "allow:Q1".to_owned())]);
        assert!(!asked.ephemeral);
    }

    #[test]
    fn step_is_an_action_and_text_is_a_thought() {
        let card = |text: &str| Card { text: text.into(), doing: Some("working".into()), ..Card::default() };
        let step = working(&card("- … 2 earlier steps\n- `cargo check`\n- `cargo test`"));
        assert_eq!(step.content, json!({"type": "action", "action": "working", "parameter": "cargo test"}));
        let words = working(&card("- `cargo test`\n\n> All is well."));
        assert_eq!(words.content["type"], "thought");
        assert!(words.content["body"].as_str().unwrap().contains("All is well."));
        assert_eq!(working(&card("")).content["body"], "working");
        assert!(step.ephemeral && words.ephemeral);
    }

    #[test]
    fn plan_has_all_its_steps() {
        let plan = vec![("look".to_owned(), ToolStatus::Completed), ("repair".to_owned(), ToolStatus::InProgress)];
        let plan = plan_of(&Card { plan, ..Card::default() }).unwrap();
        assert_eq!(
            plan,
            json!([{"content": "look", "status": "completed"}, {"content": "repair", "status": "inProgress"}])
        );
        assert_eq!(plan_of(&Card::default()), None);
    }
}
