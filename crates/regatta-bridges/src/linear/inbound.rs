//! Receives events about agent sessions from Linear as signed webhooks. Also searches Linear for
//! events that did not arrive.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use regatta_core::conversation::MAX_TEXT_BYTES;
use regatta_core::ids::ApprovalId;
use serde_json::Value;
use tokio::sync::Notify;

use crate::config::{Requester, Secret};
use crate::intake::{Intake, unix_time_ms};
use crate::service::{
    Backoff, Inbound, IncomingEvent, IncomingMessage, ReceiveOutcome, ServiceError, ServiceFuture,
    header,
};
use crate::signature;

use super::api::{LinearApi, LinearIdentity};

/// Maximum age of a webhook delivery, computed from the date in its signed body. An older delivery
/// is refused, because it may be a replay by an attacker.
const MAX_DELIVERY_AGE_MS: u64 = 60_000;
/// Maximum age of a Linear session or prompt that the search for missed events handles. Older ones
/// are ignored.
const MAX_MISSED_AGE_MS: u64 = 24 * 3_600_000;
/// Minimum time between two searches for missed events. The minimum limits the number of calls that
/// a flood of outdated deliveries can cause.
const MIN_SEARCH_INTERVAL: Duration = Duration::from_secs(60);
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// Maximum length of an issue's description that the agent receives, in characters.
const MAX_CONTEXT_CHARS: usize = 16_000;
/// Beginning of the comment that Linear writes automatically when a person assigns an issue to an
/// agent.
const ASSIGNMENT_COMMENT_PREFIX: &str = "This thread is for an agent session";

pub(crate) struct LinearInbound {
    api: Arc<LinearApi>,
    agent_id: String,
    webhook_secret: Option<Secret>,
    /// Wakes the search for missed events, when a delivery was refused or may be missing.
    search_needed: Notify,
}

impl LinearInbound {
    pub(crate) fn new(
        api: Arc<LinearApi>,
        agent_id: String,
        webhook_secret: Option<Secret>,
    ) -> LinearInbound {
        LinearInbound {
            api,
            agent_id,
            webhook_secret,
            search_needed: Notify::new(),
        }
    }

    /// Converts a webhook's body to an event. Returns `None` if the bridge ignores this kind of
    /// webhook.
    async fn parse_delivery(&self, payload: &Value) -> Option<IncomingEvent> {
        let session = &payload["agentSession"];
        let organization = payload["organizationId"].as_str().unwrap_or_default();
        match payload["action"].as_str()? {
            "created" => {
                let requester = self.api.requester(&session["creator"], organization).await;
                let identity = self.api.identity().await.unwrap_or_default();
                session_request(
                    session,
                    payload["promptContext"].as_str(),
                    requester,
                    &identity,
                )
                .map(IncomingEvent::Message)
            }
            "prompted" => {
                let activity = &payload["agentActivity"];
                let requester = self.api.requester(author(activity), organization).await;
                self.parse_prompt(session, activity, requester)
            }
            _ => None,
        }
    }

    fn parse_prompt(
        &self,
        session: &Value,
        activity: &Value,
        requester: Requester,
    ) -> Option<IncomingEvent> {
        let delivery = prompt_delivery_id(activity["id"].as_str()?);
        let key = conversation_key(session["id"].as_str()?);
        if requester.id == self.agent_id {
            return None; // our own prompt
        }
        if activity["signal"].as_str() == Some("stop") {
            return Some(IncomingEvent::StopRequested {
                delivery,
                key,
                requester,
            });
        }
        let body = activity["content"]["body"]
            .as_str()
            .or(activity["body"].as_str())
            .unwrap_or_default()
            .trim();
        if let Some((choice, approval)) = parse_choice(body) {
            return Some(IncomingEvent::ButtonPressed {
                delivery,
                approval,
                choice,
                requester,
            });
        }
        let source = activity["id"].as_str()?.to_owned();
        let message = message_in_session(session)?;
        Some(IncomingEvent::Message(IncomingMessage {
            delivery,
            author: requester,
            text: cut_to_max_length(body),
            source,
            mentions_agent: true,
            ..message
        }))
    }

    /// Searches the recent sessions for events that happened while no webhook reached the daemon,
    /// and handles these events.
    async fn catch_up(
        &self,
        intake: &Intake,
        identity: &LinearIdentity,
    ) -> Result<(), ServiceError> {
        for session in self.api.recent_sessions().await? {
            if session["appUser"]["id"].as_str() != Some(&self.agent_id) {
                continue;
            }
            for event in self.missed_events(intake, identity, &session).await {
                intake
                    .accept(event)
                    .await
                    .map_err(ServiceError::OutcomeUnknown)?;
            }
        }
        Ok(())
    }

    /// Returns the events of a session that were not handled yet: prompts, and the request that
    /// began the session if the agent has not shown any activity in it.
    async fn missed_events(
        &self,
        intake: &Intake,
        identity: &LinearIdentity,
        session: &Value,
    ) -> Vec<IncomingEvent> {
        let is_open = matches!(
            session["status"].as_str(),
            Some("pending" | "active" | "awaitingInput" | "stale" | "stopping")
        );
        let created_at = |value: &Value| parse_unix_ms(&value["createdAt"]);
        let mut activities: Vec<&Value> = session["activities"]["nodes"]
            .as_array()
            .into_iter()
            .flatten()
            .collect();
        activities.sort_by_key(|activity| created_at(activity));
        let last_own_index = activities
            .iter()
            .rposition(|activity| self.is_own_activity(activity));
        // If the board (the daemon's state) has a conversation for the session, compare each prompt
        // with the handled deliveries. Otherwise all prompts before the agent's last activity count
        // as answered.
        let conversation = intake.conversation(&conversation_key(text_id(session)));
        let from = if conversation.is_some() {
            0
        } else {
            last_own_index.map_or(0, |last_own_index| last_own_index + 1)
        };
        let mut found = Vec::new();
        let mut first = String::new();
        if is_open
            && last_own_index.is_none()
            && is_recent_enough(created_at(session))
            && conversation.is_none()
        {
            let requester = self
                .api
                .requester(&session["creator"], &identity.organization)
                .await;
            if let Some(message) = session_request(session, None, requester, identity) {
                first.clone_from(&message.text);
                found.push(IncomingEvent::Message(message));
            }
        }
        for activity in &activities[from..] {
            let is_prompt = activity["content"]["__typename"] == "AgentActivityPromptContent"
                && !self.is_own_activity(activity);
            let was_handled = intake.was_handled(&prompt_delivery_id(text_id(activity)));
            let is_before_conversation = conversation
                .as_ref()
                .is_some_and(|conversation| created_at(activity) < conversation.created_unix_ms);
            let is_first_message = activity["content"]["body"]
                .as_str()
                .is_some_and(|body| cut_to_max_length(body.trim()) == first);
            if !is_prompt
                || was_handled
                || is_before_conversation
                || is_first_message
                || !is_recent_enough(created_at(activity))
            {
                continue;
            }
            let requester = self
                .api
                .requester(author(activity), &identity.organization)
                .await;
            found.extend(self.parse_prompt(session, activity, requester));
        }
        found
    }

    fn is_own_activity(&self, activity: &Value) -> bool {
        activity["user"]["id"].as_str() == Some(&self.agent_id)
    }
}

impl Inbound for LinearInbound {
    fn run<'a>(&'a self, intake: &'a Intake) -> ServiceFuture<'a, ()> {
        Box::pin(async move {
            let mut backoff = Backoff::new(RETRY_DELAY);
            loop {
                while intake.is_paused() {
                    tokio::time::sleep(RETRY_DELAY).await;
                }
                let connected = async {
                    let identity = self.api.identity().await?;
                    intake.set_names(&[&self.agent_id, &identity.name]);
                    self.catch_up(intake, &identity).await?;
                    Ok::<_, ServiceError>(identity)
                };
                match connected.await {
                    Ok(identity) => {
                        let why = "the access token does not belong to LINEAR_AGENT_ID, so posts \
                            would appear under another name";
                        intake
                            .on_connected_with_problem(
                                (identity.id != self.agent_id).then_some(why),
                            )
                            .await;
                        backoff.reset();
                        self.search_needed.notified().await;
                        tokio::time::sleep(
                            MIN_SEARCH_INTERVAL.div_f64(intake.registry().config.clock.max(0.001)),
                        )
                        .await;
                    }
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
        intake: &'a Intake,
        headers: &'a HeaderMap,
        body: &'a [u8],
    ) -> ServiceFuture<'a, ReceiveOutcome> {
        Box::pin(async move {
            let Some(secret) = &self.webhook_secret else {
                return ReceiveOutcome::refused(503, "no webhook secret is set for this agent");
            };
            let signature_header = header(headers, "linear-signature");
            if !signature::is_valid(secret, &[body], signature_header) {
                return ReceiveOutcome::refused(401, "the signature is not Linear's");
            }
            let Ok(payload) = serde_json::from_slice::<Value>(body) else {
                return ReceiveOutcome::refused(400, "the request cannot be parsed");
            };
            let is_own = payload["type"] == "AgentSessionEvent"
                && payload["appUserId"].as_str() == Some(&self.agent_id);
            // Read the date from the body and not from the headers, because only the body is
            // signed.
            let is_fresh = payload["webhookTimestamp"]
                .as_u64()
                .is_some_and(|sent_ms| unix_time_ms().abs_diff(sent_ms) <= MAX_DELIVERY_AGE_MS);
            if !is_fresh {
                let is_repeated = is_own
                    && delivery_id(&payload).is_some_and(|delivery| intake.was_handled(&delivery));
                if is_repeated {
                    tracing::info!(agent = %intake.agent, "ignoring a webhook delivery from Linear, because an \
                        earlier delivery of the same event was already handled");
                    return ReceiveOutcome::Events(vec![]);
                }
                if is_own {
                    self.search_needed.notify_one();
                }
                return ReceiveOutcome::refused(401, "the request is too old");
            }
            if !is_own {
                return ReceiveOutcome::Events(vec![]);
            }
            let events: Vec<IncomingEvent> =
                self.parse_delivery(&payload).await.into_iter().collect();
            // The person could not be looked up, so the event will be refused. Linear repeats the
            // delivery only much later, so request a search for missed events now.
            if events.iter().any(|event| event.requester().is_uncertain) {
                self.search_needed.notify_one();
            }
            ReceiveOutcome::Events(events)
        })
    }
}

fn conversation_key(session: &str) -> String {
    format!("linear:{session}")
}

fn text_id(value: &Value) -> &str {
    value["id"].as_str().unwrap_or_default()
}

fn author(activity: &Value) -> &Value {
    &activity["user"]
}

/// Returns an id for the event in a delivery. If the search for missed events finds the same event,
/// the event gets the same id. (Linear's own delivery number differs for each delivery.)
fn delivery_id(payload: &Value) -> Option<String> {
    match payload["action"].as_str()? {
        "created" => Some(created_delivery_id(payload["agentSession"]["id"].as_str()?)),
        "prompted" => Some(prompt_delivery_id(payload["agentActivity"]["id"].as_str()?)),
        _ => None,
    }
}

fn created_delivery_id(session: &str) -> String {
    format!("created:{session}")
}

fn prompt_delivery_id(activity: &str) -> String {
    format!("prompted:{activity}")
}

/// Returns a message in which only the fields about the place (the session and the issue) are set.
/// The fields of `session` have the same names in webhooks and in the API.
fn message_in_session(session: &Value) -> Option<IncomingMessage> {
    let id = session["id"].as_str().filter(|id| !id.is_empty())?;
    let issue = &session["issue"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (identifier, title) = (text(&issue["identifier"]), text(&issue["title"]));
    let team = issue["team"]["key"]
        .as_str()
        .or(identifier.split_once('-').map(|(team, _)| team))
        .unwrap_or_default();
    let address = [
        ("session", id),
        ("issue", issue["id"].as_str().unwrap_or_default()),
        ("team", team),
    ];
    Some(IncomingMessage {
        channel: team.to_owned(),
        thread: conversation_key(id),
        key: conversation_key(id),
        address: address
            .iter()
            .map(|(name, address)| ((*name).to_owned(), (*address).to_owned()))
            .collect::<BTreeMap<_, _>>(),
        title: format!("{identifier} {title}").trim().to_owned(),
        url: session["url"]
            .as_str()
            .or(issue["url"].as_str())
            .map(str::to_owned),
        ..IncomingMessage::default()
    })
}

/// Returns the request that began a session: a comment that mentions the agent, or an issue that
/// was assigned to the agent.
fn session_request(
    session: &Value,
    description: Option<&str>,
    requester: Requester,
    identity: &LinearIdentity,
) -> Option<IncomingMessage> {
    let message = message_in_session(session)?;
    let id = session["id"].as_str()?;
    let issue = &session["issue"];
    let issue_text = format!(
        "{}\n\n{}",
        message.title,
        issue["description"].as_str().unwrap_or_default()
    );
    let description = description
        .map(str::trim)
        .filter(|description| !description.is_empty())
        .unwrap_or(issue_text.trim())
        .to_owned();
    let comment = session["comment"]["body"].as_str().unwrap_or_default();
    let request = without_mention(comment, identity);
    // If the session did not begin with a person's comment, take the issue's description as the
    // request.
    let (text, context) =
        if request.is_empty() || comment.trim_start().starts_with(ASSIGNMENT_COMMENT_PREFIX) {
            (cut_to_max_length(&description), None)
        } else {
            (
                cut_to_max_length(&request),
                Some(description.chars().take(MAX_CONTEXT_CHARS).collect()),
            )
        };
    Some(IncomingMessage {
        delivery: created_delivery_id(id),
        author: requester,
        text,
        context,
        source: id.to_owned(),
        mentions_agent: true,
        ..message
    })
}

/// Returns the text of a comment without the mention of the agent at the beginning.
fn without_mention(text: &str, identity: &LinearIdentity) -> String {
    let text = text.trim();
    let Some(rest) = text.strip_prefix('@') else {
        return text.to_owned();
    };
    let mut names = [&identity.display_name, &identity.name];
    names.sort_by_key(|name| std::cmp::Reverse(name.len())); // one name may be a prefix of the other
    for name in names {
        let is_named = rest
            .get(..name.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(name));
        let rest = rest.get(name.len()..).unwrap_or_default();
        if is_named && !name.is_empty() && !rest.starts_with(|c: char| c.is_alphanumeric()) {
            return rest.trim_start_matches([':', ',']).trim().to_owned();
        }
    }
    text.to_owned()
}

/// Parses the value of an option that a person chose from the agent's question, such as `allow:Q7`.
fn parse_choice(body: &str) -> Option<(String, ApprovalId)> {
    let (choice, approval_id) = body.split_once(':')?;
    let is_known = matches!(choice, "allow" | "always" | "deny") || choice.starts_with("choice-");
    if !is_known || !approval_id.starts_with('Q') {
        return None;
    }
    Some((choice.to_owned(), approval_id.parse().ok()?))
}

/// Cuts a text to the maximum length of a message that Regatta accepts.
fn cut_to_max_length(text: &str) -> String {
    let mut end = text.len().min(MAX_TEXT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].trim().to_owned()
}

/// Returns a date in milliseconds since 1970, or 0 if it cannot be parsed. The value 0 counts as
/// long ago.
fn parse_unix_ms(value: &Value) -> u64 {
    let timestamp = value
        .as_str()
        .and_then(|text| text.parse::<jiff::Timestamp>().ok());
    timestamp
        .and_then(|timestamp| u64::try_from(timestamp.as_millisecond()).ok())
        .unwrap_or(0)
}

fn is_recent_enough(at_unix_ms: u64) -> bool {
    unix_time_ms().saturating_sub(at_unix_ms) <= MAX_MISSED_AGE_MS
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn test_identity() -> LinearIdentity {
        LinearIdentity {
            id: "A1".into(),
            name: "Claude Code".into(),
            display_name: "claude".into(),
            organization: "O1".into(),
        }
    }

    fn session(comment: &str) -> Value {
        json!({
            "id": "S1", "url": "https://linear.app/x/session/S1", "comment": {"body": comment},
            "issue": {"id": "I1", "identifier": "ENG-12", "title": "Fix login", "description": "It hangs.",
                      "team": {"key": "ENG"}},
        })
    }

    #[test]
    fn request_is_the_comment_or_else_the_issue() {
        let issue_xml = "<issue identifier=\"ENG-12\">…</issue>";
        for (comment, description, text, context) in [
            ("@claude fix it", Some(issue_xml), "fix it", Some(issue_xml)),
            (
                "@Claude Code: fix it",
                None,
                "fix it",
                Some("ENG-12 Fix login\n\nIt hangs."),
            ),
            (
                "@claudette fix it",
                Some(issue_xml),
                "@claudette fix it",
                Some(issue_xml),
            ),
            (
                "please fix it",
                Some(issue_xml),
                "please fix it",
                Some(issue_xml),
            ),
            ("@claude", Some(issue_xml), issue_xml, None),
            ("", Some(issue_xml), issue_xml, None),
            ("", None, "ENG-12 Fix login\n\nIt hangs.", None),
            (
                "This thread is for an agent session with claude.",
                Some(issue_xml),
                issue_xml,
                None,
            ),
        ] {
            let message = session_request(
                &session(comment),
                description,
                Requester::default(),
                &test_identity(),
            )
            .unwrap();
            assert_eq!(
                (message.text.as_str(), message.context.as_deref()),
                (text, context),
                "{comment:?}"
            );
            assert!(message.mentions_agent);
        }
        let message =
            session_request(&session(""), None, Requester::default(), &test_identity()).unwrap();
        assert_eq!(
            (message.channel.as_str(), message.key.as_str()),
            ("ENG", "linear:S1")
        );
        assert_eq!(
            (message.title.as_str(), message.thread.as_str()),
            ("ENG-12 Fix login", "linear:S1")
        );
        assert_eq!(message.address["session"], "S1");
        assert!(
            session_request(
                &json!({"issue": {}}),
                None,
                Requester::default(),
                &test_identity()
            )
            .is_none()
        );
    }

    /// A session or a prompt gets the same delivery id from a webhook and from the search for
    /// missed events.
    #[test]
    fn webhook_and_session_lookup_give_the_same_delivery() {
        let payload = json!({"action": "created", "agentSession": session("")});
        let message =
            session_request(&session(""), None, Requester::default(), &test_identity()).unwrap();
        assert_eq!(delivery_id(&payload), Some(message.delivery));
        let payload = json!({"action": "prompted", "agentSession": {"id": "S1"}, "agentActivity": {"id": "P7"}});
        assert_eq!(delivery_id(&payload).as_deref(), Some("prompted:P7"));
        assert_eq!(
            delivery_id(&json!({"action": "updated", "agentSession": {"id": "S1"}})),
            None
        );
    }

    #[test]
    fn only_the_value_of_an_offered_option_is_an_answer() {
        assert_eq!(
            parse_choice("allow:Q7").map(|parsed| parsed.0),
            Some("allow".into())
        );
        assert_eq!(
            parse_choice("choice-1:Q7").map(|parsed| parsed.0),
            Some("choice-1".into())
        );
        for body in [
            "allow",
            "allow:T7",
            "allow:",
            "grant:Q7",
            "note: Q7 is open",
            "deny:Qx",
            "",
        ] {
            assert_eq!(parse_choice(body), None, "{body}");
        }
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        let text = "é".repeat(MAX_TEXT_BYTES);
        assert!(
            cut_to_max_length(&text).len() <= MAX_TEXT_BYTES
                && cut_to_max_length(&text).len() > MAX_TEXT_BYTES - 4
        );
        assert_eq!(
            parse_unix_ms(&json!("2026-11-16T00:00:00.000Z")),
            1_794_787_200_000
        );
        assert_eq!(parse_unix_ms(&json!("yesterday")), 0);
    }
}
