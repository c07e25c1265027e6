//! Receives events from GitHub as signed webhooks. Requests missed events from GitHub again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use regatta_core::conversation::review::{self, PullRequest};
use reqwest::Method;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::time::{Instant, timeout_at};

use crate::config::{Requester, Secret};
use crate::intake::Intake;
use crate::service::{
    Backoff, Inbound, IncomingEvent, IncomingMessage, ReceiveOutcome, ServiceError, ServiceFuture,
    header,
};
use crate::signature;

use super::api::{GithubApi, GithubIdentity};
use super::redelivery::MissedDeliveries;
use super::{checks, markup};

/// Maximum size of a webhook delivery in bytes, as documented by GitHub.
const MAX_DELIVERY_BYTES: usize = 25 * 1024 * 1024;
/// Time limit for looking up the author and reading the thread of a message. The limit is short,
/// because meanwhile GitHub waits for the answer to its webhook delivery.
const READ_TIMEOUT: Duration = Duration::from_millis(2_200);
/// Maximum length of the thread's text that the agent receives, in characters.
const MAX_CONTEXT_CHARS: usize = 16_000;
const MAX_HUNK_CHARS: usize = 2_000;
/// Maximum length of a pull request's diff that the agent receives, in characters.
const MAX_DIFF_CHARS: usize = 60_000;
/// Time between two searches for missed webhook deliveries. If a search finds missed deliveries,
/// the next search follows earlier, after `NEXT_SEARCH_DELAY`.
const SEARCH_INTERVAL: Duration = Duration::from_secs(300);
const NEXT_SEARCH_DELAY: Duration = Duration::from_secs(30);
const RETRY_DELAY: Duration = Duration::from_secs(1);

pub(crate) struct GithubInbound {
    api: Arc<GithubApi>,
    webhook_secret: Option<Secret>,
}

/// A message of a person on GitHub: an issue, a pull request, a review or a comment.
struct GithubMessage<'a> {
    /// Unique id of the message. If GitHub delivers the message again, the id is the same.
    delivery: String,
    repo: &'a str,
    /// The issue or pull request to which the message belongs.
    issue: &'a Value,
    kind: &'static str,
    author: &'a Value,
    text: String,
    source: String,
    /// Id of the first comment of the review thread in which the agent answers. Empty if the answer
    /// is a comment on the issue or pull request itself.
    reply_to: String,
    association: &'a Value,
    /// The assigned user, if the event is an assignment. In this case mentions in the issue's text
    /// do not count, because the text was handled earlier.
    assignee: Option<&'a Value>,
    /// True if a message that does not mention the agent must also be examined, because the message
    /// may belong to a running conversation.
    may_continue: bool,
    /// The lines of code on which a review comment was written.
    code_lines: Option<String>,
}

/// The answer to a webhook delivery that cannot be handled now. GitHub then lists the delivery as
/// failed, and the search for missed deliveries later requests the delivery again.
const NOT_AVAILABLE: ReceiveOutcome = ReceiveOutcome::refused(
    503,
    "GitHub's API is not available at present; send the delivery again",
);

impl GithubInbound {
    pub(crate) fn new(api: Arc<GithubApi>, webhook_secret: Option<Secret>) -> GithubInbound {
        GithubInbound {
            api,
            webhook_secret,
        }
    }

    async fn parse_delivery(
        &self,
        intake: &Intake,
        event: &str,
        body: &[u8],
        payload: &Value,
    ) -> ReceiveOutcome {
        let nothing = ReceiveOutcome::Events(vec![]);
        let Some(repo) = payload["repository"]["full_name"].as_str() else {
            return nothing;
        };
        if event == "check_run" {
            return self.parse_check_rerun(intake, repo, body, payload).await;
        }
        if let Some((number, source)) = deleted_source(event, payload) {
            let key = format!("github:{repo}:{number}:{}", intake.agent);
            return ReceiveOutcome::Events(vec![IncomingEvent::MessageDeleted {
                key,
                source,
                requester: Requester::default(),
            }]);
        }
        let Some(message) = parse_message(event, repo, payload) else {
            return nothing;
        };
        let Ok(identity) = self.api.identity().await else {
            return NOT_AVAILABLE;
        };
        if self.is_own_event(&identity, payload, event) {
            return nothing;
        }
        match self.to_incoming_message(intake, &identity, message).await {
            Ok(incoming) => {
                ReceiveOutcome::Events(incoming.map(IncomingEvent::Message).into_iter().collect())
            }
            Err(_) => NOT_AVAILABLE,
        }
    }

    /// Returns whether the agent's own app caused the event, so that it must be ignored.
    fn is_own_event(&self, identity: &GithubIdentity, payload: &Value, event: &str) -> bool {
        let is_own_login = |value: &Value| {
            value["login"]
                .as_str()
                .is_some_and(|login| login.eq_ignore_ascii_case(&identity.login))
        };
        let subject = match event {
            "issues" => &payload["issue"],
            "pull_request" => &payload["pull_request"],
            "pull_request_review" => &payload["review"],
            _ => &payload["comment"],
        };
        // An assignment is never the app's own event, because a person makes it, even on an issue
        // that the app opened.
        let is_own = payload["action"] != "assigned"
            && (is_own_login(&subject["user"])
                || self
                    .api
                    .is_own_app(&subject["performed_via_github_app"]["id"]));
        is_own_login(&payload["sender"]) || is_own
    }

    /// Returns the facts about a person that decide whether the person may ask for work. `Err`
    /// means that the lookup at GitHub failed.
    async fn requester(
        &self,
        intake: &Intake,
        repo: &str,
        user: &Value,
        association: &Value,
    ) -> Result<Requester, ServiceError> {
        let login = user["login"].as_str().unwrap_or_default();
        let mut requester = Requester {
            id: login.to_owned(),
            name: login.to_owned(),
            is_in_team: matches!(association.as_str(), Some("OWNER" | "MEMBER")),
            can_write: false,
            is_bot: user["type"] == "Bot" || login.ends_with("[bot]"),
            is_uncertain: false,
        };
        // Skip the lookup of write access if the settings already allow the person to ask, or if
        // the author is a bot.
        if !requester.is_bot && !intake.may_ask(&requester) {
            requester.can_write = self.api.can_write(repo, login).await?;
        }
        Ok(requester)
    }

    async fn to_incoming_message(
        &self,
        intake: &Intake,
        identity: &GithubIdentity,
        message: GithubMessage<'_>,
    ) -> Result<Option<IncomingMessage>, ServiceError> {
        let Some(number) = message.issue["number"].as_u64() else {
            return Ok(None);
        };
        let thread = format!("github:{}:{number}", message.repo);
        let key = format!("{thread}:{}", intake.agent);
        let mentions = markup::mentioned_names(&message.text);
        let is_own_name = |name: &str| {
            name.eq_ignore_ascii_case(&identity.slug) || name.eq_ignore_ascii_case(&identity.login)
        };
        let is_mentioned = match message.assignee {
            Some(assignee) => assignee["login"].as_str().is_some_and(is_own_name),
            None => mentions.iter().any(|mention| is_own_name(mention)),
        };
        let is_relevant = is_mentioned || (message.may_continue && intake.has_conversation(&key));
        if !is_relevant {
            return Ok(None); // not for this agent, so nothing is looked up
        }
        let deadline = Instant::now() + READ_TIMEOUT;
        let requester = self
            .requester(intake, message.repo, message.author, message.association)
            .await?;
        // Read the thread only if the author of the message may ask the agent for work.
        let mut context = None;
        if is_mentioned && intake.may_ask(&requester) && intake.needs_context(message.repo) {
            context = timeout_at(
                deadline,
                self.thread_text(message.repo, number, &message.source),
            )
            .await
            .ok()
            .flatten();
        }
        let mut pull = None;
        if intake.may_ask(&requester) {
            pull = match timeout_at(deadline, self.requested_review(intake, &message, number)).await
            {
                Ok(found) => found?,
                Err(_) => {
                    return Err(ServiceError::OutcomeUnknown(
                        "GitHub took too long to return a pull request".into(),
                    ));
                }
            };
        }
        let context: Vec<String> = context.into_iter().chain(message.code_lines).collect();
        let number = number.to_string();
        let address = [
            ("repo", message.repo),
            ("number", &number),
            ("kind", message.kind),
            ("reply_to", &message.reply_to),
        ];
        let text = |name: &str| message.issue[name].as_str().unwrap_or_default().to_owned();
        Ok(Some(IncomingMessage {
            delivery: message.delivery,
            channel: message.repo.to_owned(),
            thread,
            key,
            address: address
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect::<BTreeMap<_, _>>(),
            title: text("title"),
            url: Some(text("html_url")).filter(|s| !s.is_empty()),
            author: requester,
            text: markup::visible_text(&message.text, &identity.slug),
            source: message.source,
            mentions_agent: is_mentioned,
            // A comment that begins with the mention of another user is addressed to that user.
            addresses_another: !is_mentioned
                && (is_addressed(&message.text, &mentions)
                    || mentions.iter().any(|name| intake.is_other_agent(name))),
            context: (!context.is_empty()).then(|| context.join("\n\n")),
            // GitHub puts an attached file into the text as a link, so there is no list of files.
            attachments: vec![],
            pull,
        }))
    }

    /// Returns the pull request that a message asks the agent to review, or `None` if it asks for
    /// no review. Pull requests that a Regatta agent opened are left out, because Regatta already
    /// knows the work in them.
    async fn requested_review(
        &self,
        intake: &Intake,
        message: &GithubMessage<'_>,
        thread: u64,
    ) -> Result<Option<PullRequest>, ServiceError> {
        if !review::asks_for_review(&message.text) {
            return Ok(None);
        }
        let is_pull = matches!(message.kind, "pull" | "review_comment");
        let Some(number) = review::first_number(&message.text).or(is_pull.then_some(thread)) else {
            return Ok(None);
        };
        let board = intake.board();
        let is_ours = |pull: &regatta_core::conversation::ConversationPull| {
            pull.number == number
                && pull.thread.as_deref() == Some(&format!("github:{}:{number}", message.repo))
        };
        if board
            .conversations
            .values()
            .any(|other| other.pull.as_ref().is_some_and(is_ours))
        {
            return Ok(None);
        }
        let pull = match self
            .api
            .call_repo(message.repo, Method::GET, &format!("/pulls/{number}"), None)
            .await
        {
            Ok(answer) => answer.body,
            Err(ServiceError::Rejected(_)) => return Ok(None), // there is no such pull request
            Err(error) => return Err(error),
        };
        let diff = match self.api.pull_diff(message.repo, number).await {
            Ok(diff) => shorten_diff(&diff),
            Err(ServiceError::Rejected(why)) => format!("(The diff is not available: {why})"),
            Err(error) => return Err(error),
        };
        let text_of = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let text = format!(
            "#{number}: {}\nby {}, from {} onto {}\n\n{}\n\n{diff}",
            text_of(&pull["title"]),
            text_of(&pull["user"]["login"]),
            text_of(&pull["head"]["sha"]),
            text_of(&pull["base"]["ref"]),
            text_of(&pull["body"]),
        );
        Ok(Some(PullRequest { number, text }))
    }

    /// Returns the visible text of an issue or pull request, with its comments before the message
    /// `source`.
    async fn thread_text(&self, repo: &str, number: u64, source: &str) -> Option<String> {
        let issue = self
            .api
            .call_repo(repo, Method::GET, &format!("/issues/{number}"), None)
            .await
            .ok()?
            .body;
        let own_id = source
            .strip_prefix("comment:")
            .and_then(|id| id.parse::<u64>().ok());
        let is_own = |value: &Value| own_id.is_some() && value["id"].as_u64() == own_id;
        let comments = self
            .api
            .list_until(repo, &format!("/issues/{number}/comments"), is_own)
            .await
            .ok()?;
        let line = |value: &Value| {
            let text = markup::visible_text(value["body"].as_str().unwrap_or_default(), "");
            format!(
                "{}: {text}",
                value["user"]["login"].as_str().unwrap_or("somebody")
            )
        };
        let first = format!(
            "{}\n{}",
            issue["title"].as_str().unwrap_or_default(),
            line(&issue)
        );
        let before: Vec<String> = comments
            .iter()
            .take_while(|comment| !is_own(comment))
            .map(line)
            .collect();
        let comments_text = before.join("\n");
        // Put the issue's description first. If the thread is too long, keep only its last
        // comments.
        let first: String = first.chars().take(MAX_CONTEXT_CHARS / 2).collect();
        let excess = comments_text
            .chars()
            .count()
            .saturating_sub(MAX_CONTEXT_CHARS - first.chars().count());
        let comments_text: String = comments_text.chars().skip(excess).collect();
        Some(format!("{first}\n{comments_text}").trim().to_owned())
    }

    /// Parses the event that GitHub sends when a person asks to run one of the app's check runs
    /// again.
    async fn parse_check_rerun(
        &self,
        intake: &Intake,
        repo: &str,
        body: &[u8],
        payload: &Value,
    ) -> ReceiveOutcome {
        let nothing = ReceiveOutcome::Events(vec![]);
        let is_rerun = match payload["action"].as_str() {
            Some("rerequested") => true,
            Some("requested_action") => {
                payload["requested_action"]["identifier"] == checks::RETRY_ACTION_ID
            }
            _ => false,
        };
        let check = &payload["check_run"];
        let Some(key) = check["external_id"].as_str().filter(|_| is_rerun) else {
            return nothing;
        };
        // Trust the `external_id` of a check run only if this app created the check run. Otherwise
        // it may name a conversation of another agent, or be invented.
        let is_own = self.api.is_own_app(&check["app"]["id"])
            && key.ends_with(&format!(":{}", intake.agent));
        if !is_own || !intake.has_conversation(key) {
            return nothing;
        }
        let requester = match self
            .requester(intake, repo, &payload["sender"], &Value::Null)
            .await
        {
            Ok(requester) => requester,
            Err(_) => return NOT_AVAILABLE,
        };
        // A request to run a check again has no id at GitHub, so identify the request by a hash of
        // the signed body.
        let digest = data_encoding::HEXLOWER.encode(&Sha256::digest(body)[..12]);
        let delivery = format!("check:{}:{digest}", check["id"]);
        ReceiveOutcome::Events(vec![IncomingEvent::RetryRequested {
            delivery,
            key: key.to_owned(),
            requester,
        }])
    }

    /// Looks up the app's identity and searches for missed deliveries, in a loop until the bridge
    /// ends.
    async fn search_missed(&self, intake: &Intake) {
        let (mut missed, mut backoff) = (MissedDeliveries::default(), Backoff::new(RETRY_DELAY));
        let clock = intake.registry().config.clock.max(0.001);
        loop {
            match self.search_missed_once(intake, &mut missed).await {
                Ok(requested) => {
                    backoff.reset();
                    let next = if requested > 0 {
                        NEXT_SEARCH_DELAY
                    } else {
                        SEARCH_INTERVAL
                    };
                    tokio::time::sleep(next.div_f64(clock)).await;
                }
                Err(error) => {
                    intake.on_disconnected(&error).await;
                    backoff.wait_after(&error).await;
                }
            }
        }
    }

    async fn search_missed_once(
        &self,
        intake: &Intake,
        missed: &mut MissedDeliveries,
    ) -> Result<usize, ServiceError> {
        let identity = self.api.check_app().await?;
        intake.set_names(&[&identity.slug, &identity.login]);
        // Request no delivery again while the bridge is paused or has no webhook secret, because
        // the bridge would refuse the repeated delivery too.
        let mut requested = 0;
        if self.webhook_secret.is_some() && !intake.is_paused() {
            requested = missed.request_redelivery(&self.api).await?;
        }
        if intake
            .directory
            .health(intake.service, &intake.agent)
            .connected
            .is_none()
        {
            intake.on_connected().await;
        }
        Ok(requested)
    }
}

impl Inbound for GithubInbound {
    fn run<'a>(&'a self, intake: &'a Intake) -> ServiceFuture<'a, ()> {
        Box::pin(async move {
            tokio::join!(
                self.search_missed(intake),
                checks::show_check_runs(intake, &self.api)
            );
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
            let header = |name: &str| header(headers, name);
            let signature_header = header("x-hub-signature-256")
                .strip_prefix("sha256=")
                .unwrap_or_default();
            if !signature::is_valid(secret, &[body], signature_header) {
                return ReceiveOutcome::refused(401, "the signature is not GitHub's");
            }
            if self
                .api
                .is_for_other_app(header("x-github-hook-installation-target-id"))
            {
                return ReceiveOutcome::refused(401, "the delivery is meant for another app");
            }
            let Ok(payload) = serde_json::from_slice::<Value>(body) else {
                return ReceiveOutcome::refused(
                    400,
                    "the delivery cannot be parsed; webhooks must be sent as JSON",
                );
            };
            self.parse_delivery(intake, header("x-github-event"), body, &payload)
                .await
        })
    }

    fn max_request_bytes(&self) -> usize {
        MAX_DELIVERY_BYTES
    }
}

/// Returns whether a comment begins with one of the mentions. Such a comment is addressed to the
/// mentioned user.
fn is_addressed(text: &str, mentions: &[String]) -> bool {
    let Some(rest) = text.trim_start().strip_prefix('@') else {
        return false;
    };
    mentions
        .first()
        .is_some_and(|name| rest.to_lowercase().starts_with(&name.to_lowercase()))
}

/// Cuts a diff that is longer than the limit, and appends a note for the agent.
fn shorten_diff(diff: &str) -> String {
    if diff.chars().count() <= MAX_DIFF_CHARS {
        return diff.to_owned();
    }
    let beginning: String = diff.chars().take(MAX_DIFF_CHARS).collect();
    format!(
        "{beginning}\n(The diff is longer than this. Say in your answer that you have not seen all of \
        it.)"
    )
}

/// Returns the number of the issue or pull request and the source id of a deleted comment. Returns
/// `None` if the event does not report a deletion.
fn deleted_source(event: &str, payload: &Value) -> Option<(u64, String)> {
    if payload["action"] != "deleted" {
        return None;
    }
    let comment = &payload["comment"];
    let id = comment["id"].as_u64()?;
    match event {
        "issue_comment" => Some((
            payload["issue"]["number"].as_u64()?,
            format!("comment:{id}"),
        )),
        "pull_request_review_comment" => {
            let root = comment["in_reply_to_id"].as_u64().unwrap_or(id);
            Some((
                payload["pull_request"]["number"].as_u64()?,
                format!("review_comment:{id}:{root}"),
            ))
        }
        _ => None,
    }
}

/// Returns the message in an event, or `None` if the event contains no message.
fn parse_message<'a>(event: &str, repo: &'a str, payload: &'a Value) -> Option<GithubMessage<'a>> {
    let action = payload["action"].as_str().unwrap_or_default();
    let (issue, pull) = (&payload["issue"], &payload["pull_request"]);
    let body = |value: &Value| value["body"].as_str().unwrap_or_default().to_owned();
    let title_and_body = |value: &Value| {
        format!(
            "{}\n\n{}",
            value["title"].as_str().unwrap_or_default(),
            body(value)
        )
    };
    let kind_of = |value: &Value| {
        if value["pull_request"].is_object() {
            "pull"
        } else {
            "issue"
        }
    };
    let base = GithubMessage {
        delivery: String::new(),
        repo,
        issue,
        kind: "issue",
        author: &payload["sender"],
        text: String::new(),
        source: format!("issue:{}", issue["number"]),
        reply_to: String::new(),
        association: &Value::Null,
        assignee: None,
        may_continue: false,
        code_lines: None,
    };
    Some(match (event, action) {
        ("issue_comment", "created") => {
            let comment = &payload["comment"];
            let id = comment["id"].as_u64()?;
            GithubMessage {
                delivery: format!("comment:{id}"),
                kind: kind_of(issue),
                text: body(comment),
                source: format!("comment:{id}"),
                association: &comment["author_association"],
                may_continue: true,
                ..base
            }
        }
        ("issues", "opened") => GithubMessage {
            delivery: format!("issue:{}", issue["id"].as_u64()?),
            text: title_and_body(issue),
            association: &issue["author_association"],
            ..base
        },
        // The issue's text was already handled when the issue was opened, so the event is handled
        // only as an assignment.
        ("issues", "assigned") => {
            let updated_at = issue["updated_at"].as_str().unwrap_or_default();
            GithubMessage {
                delivery: format!("assigned:{}:{updated_at}", issue["id"].as_u64()?),
                text: title_and_body(issue),
                assignee: Some(&payload["assignee"]),
                ..base
            }
        }
        ("pull_request", "opened") => GithubMessage {
            delivery: format!("pull:{}", pull["id"].as_u64()?),
            issue: pull,
            kind: "pull",
            text: title_and_body(pull),
            source: format!("issue:{}", pull["number"]),
            association: &pull["author_association"],
            ..base
        },
        ("pull_request_review_comment", "created") => {
            let comment = &payload["comment"];
            let id = comment["id"].as_u64()?;
            // Store the first comment of the review thread, because GitHub accepts replies only to
            // the first comment.
            let root = comment["in_reply_to_id"].as_u64().unwrap_or(id);
            let line = comment["line"]
                .as_u64()
                .map_or(String::new(), |line| format!(" line {line}"));
            let path = comment["path"].as_str().unwrap_or_default();
            let hunk = comment["diff_hunk"].as_str().unwrap_or_default();
            let excess = hunk.chars().count().saturating_sub(MAX_HUNK_CHARS);
            let hunk: String = hunk.chars().skip(excess).collect();
            GithubMessage {
                delivery: format!("review_comment:{id}"),
                issue: pull,
                kind: "review_comment",
                text: body(comment),
                source: format!("review_comment:{id}:{root}"),
                reply_to: root.to_string(),
                association: &comment["author_association"],
                may_continue: true,
                code_lines: Some(format!("It is about {path}{line}:\n{hunk}")),
                ..base
            }
        }
        ("pull_request_review", "submitted") => {
            let review = &payload["review"];
            GithubMessage {
                delivery: format!("review:{}", review["id"].as_u64()?),
                issue: pull,
                kind: "pull",
                text: Some(body(review)).filter(|s| !s.trim().is_empty())?,
                source: format!("issue:{}", pull["number"]),
                association: &review["author_association"],
                may_continue: true,
                ..base
            }
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn deleted_comment_has_the_source_of_its_creation() {
        let comment =
            json!({ "action": "deleted", "issue": { "number": 7 }, "comment": { "id": 5 } });
        assert_eq!(
            deleted_source("issue_comment", &comment),
            Some((7, "comment:5".into()))
        );
        let review = json!({
            "action": "deleted",
            "pull_request": { "number": 8 },
            "comment": { "id": 6, "in_reply_to_id": 4 }
        });
        assert_eq!(
            deleted_source("pull_request_review_comment", &review),
            Some((8, "review_comment:6:4".into()))
        );
        let created = json!({ "action": "created", "issue": { "number": 7 }, "comment": { "id": 5, "body": "x" } });
        assert_eq!(deleted_source("issue_comment", &created), None);
        let source =
            parse_message("issue_comment", "acme/shop", &created).map(|message| message.source);
        assert_eq!(source.as_deref(), Some("comment:5"));
        assert_eq!(
            deleted_source(
                "issues",
                &json!({ "action": "deleted", "issue": { "number": 7 } })
            ),
            None
        );
    }
}
