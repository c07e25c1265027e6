//! Events from GitHub: signed webhooks, and the search for missed ones.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use regatta_core::conversation::review::{self, PullRequest};
use reqwest::Method;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::time::{Instant, timeout_at};

use crate::desk::Desk;
use crate::registry::{Secret, Standing};
use crate::service::{Fut, Inbound, Incoming, Received, Said, Trouble};
use crate::signature;

use super::api::{Api, Me};
use super::missed::Missed;
use super::{checks, markup};

/// Maximum size of a delivery; GitHub sends no larger ones.
const LARGEST: usize = 25 * 1024 * 1024;
/// Time limit for looking up the author and reading the thread, because the answer to a delivery
/// waits for it.
const READ_WITHIN: Duration = Duration::from_millis(2_200);
/// Maximum length of a thread that is passed on, in characters.
const LONGEST_CONTEXT: usize = 16_000;
const LONGEST_HUNK: usize = 2_000;
/// Maximum length of a pull request's diff that is passed on, in characters.
const MAX_DIFF_CHARS: usize = 60_000;
/// Interval of the searches for missed deliveries, and the delay after a search that found some.
const LOOK_EVERY: Duration = Duration::from_secs(300);
const LOOK_AGAIN: Duration = Duration::from_secs(30);
const AGAIN: Duration = Duration::from_secs(1);
const AGAIN_AT_MOST: Duration = Duration::from_secs(60);

pub(crate) struct GitHub {
    api: Arc<Api>,
    webhook_secret: Option<Secret>,
}

/// A message of a person, anywhere on GitHub.
struct Spoken<'a> {
    /// Unique id of the message, the same for each delivery.
    delivery: String,
    repo: &'a str,
    /// The issue or pull request of the message.
    issue: &'a Value,
    kind: &'static str,
    by: &'a Value,
    text: String,
    source: String,
    /// The first comment of the thread to answer in, if the message is in a thread of its own.
    reply_to: String,
    association: &'a Value,
    /// The assignee, if the event is an assignment. Mentions in the text then do not count.
    given_to: Option<&'a Value>,
    /// Set if the message matters without a mention, because it may continue a conversation.
    follows: bool,
    /// The lines of code that the message is about.
    about: Option<String>,
}

/// The refusal of a delivery that cannot be handled at present. GitHub then lists it as failed, and
/// the search requests it again.
const NOT_NOW: Received =
    Received::Refused { status: 503, why: "GitHub's API is not available at present; send the delivery again" };

impl GitHub {
    pub(crate) fn new(api: Arc<Api>, webhook_secret: Option<Secret>) -> GitHub {
        GitHub { api, webhook_secret }
    }

    async fn understand(&self, desk: &Desk, event: &str, body: &[u8], payload: &Value) -> Received {
        let nothing = Received::Events(vec![]);
        let Some(repo) = payload["repository"]["full_name"].as_str() else { return nothing };
        if event == "check_run" {
            return self.check(desk, repo, body, payload).await;
        }
        if let Some((number, source)) = deleted(event, payload) {
            let key = format!("github:{repo}:{number}:{}", desk.agent);
            return Received::Events(vec![Incoming::Deleted { key, source, by: Standing::default() }]);
        }
        let Some(spoken) = spoken(event, repo, payload) else { return nothing };
        let Ok(me) = self.api.me().await else { return NOT_NOW };
        if self.is_own(&me, payload, event) {
            return nothing;
        }
        match self.said(desk, &me, spoken).await {
            Ok(said) => Received::Events(said.map(Incoming::Said).into_iter().collect()),
            Err(_) => NOT_NOW,
        }
    }

    /// Returns whether the event was caused by our own app.
    fn is_own(&self, me: &Me, payload: &Value, event: &str) -> bool {
        let login = |it: &Value| it["login"].as_str().is_some_and(|it| it.eq_ignore_ascii_case(&me.login));
        let what = match event {
            "issues" => &payload["issue"],
            "pull_request" => &payload["pull_request"],
            "pull_request_review" => &payload["review"],
            _ => &payload["comment"],
        };
        // A person may assign us to an issue that we opened.
        let ours = payload["action"] != "assigned"
            && (login(&what["user"]) || self.api.is_own_app(&what["performed_via_github_app"]["id"]));
        login(&payload["sender"]) || ours
    }

    /// Returns the facts about a person. `Err` means that GitHub could not be asked.
    async fn standing(&self, desk: &Desk, repo: &str, who: &Value, association: &Value) -> Result<Standing, Trouble> {
        let login = who["login"].as_str().unwrap_or_default();
        let mut found = Standing {
            id: login.to_owned(),
            name: login.to_owned(),
            in_team: matches!(association.as_str(), Some("OWNER" | "MEMBER")),
            may_write: false,
            is_bot: who["type"] == "Bot" || login.ends_with("[bot]"),
            unsure: false,
        };
        // Bots and people who are on the allow-list by name need no lookup.
        if !found.is_bot && !desk.may(&found) {
            found.may_write = self.api.may_write(repo, login).await?;
        }
        Ok(found)
    }

    async fn said(&self, desk: &Desk, me: &Me, it: Spoken<'_>) -> Result<Option<Said>, Trouble> {
        let Some(number) = it.issue["number"].as_u64() else { return Ok(None) };
        let thread = format!("github:{}:{number}", it.repo);
        let key = format!("{thread}:{}", desk.agent);
        let mentions = markup::mentions(&it.text);
        let is_us = |name: &str| name.eq_ignore_ascii_case(&me.slug) || name.eq_ignore_ascii_case(&me.login);
        let called = match it.given_to {
            Some(whom) => whom["login"].as_str().is_some_and(is_us),
            None => mentions.iter().any(|it| is_us(it)),
        };
        let ours = called || (it.follows && desk.has_conversation(&key));
        if !ours {
            return Ok(None); // not for this agent, so nothing is looked up
        }
        let until = Instant::now() + READ_WITHIN;
        let by = self.standing(desk, it.repo, it.by, it.association).await?;
        // Whole threads are read only for people who may ask.
        let mut context = None;
        if called && desk.may(&by) && desk.wants_context(it.repo) {
            context = timeout_at(until, self.context(it.repo, number, &it.source)).await.ok().flatten();
        }
        let mut pull = None;
        if desk.may(&by) {
            pull = match timeout_at(until, self.reviewed(desk, &it, number)).await {
                Ok(found) => found?,
                Err(_) => return Err(Trouble::Unknown("GitHub took too long to return a pull request".into())),
            };
        }
        let context: Vec<String> = context.into_iter().chain(it.about).collect();
        let number = number.to_string();
        let place = [("repo", it.repo), ("number", &number), ("kind", it.kind), ("reply_to", &it.reply_to)];
        let text = |name: &str| it.issue[name].as_str().unwrap_or_default().to_owned();
        Ok(Some(Said {
            delivery: it.delivery,
            channel: it.repo.to_owned(),
            thread,
            key,
            place: place
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect::<BTreeMap<_, _>>(),
            title: text("title"),
            url: Some(text("html_url")).filter(|it| !it.is_empty()),
            by,
            text: markup::plain(&it.text, &me.slug),
            source: it.source,
            called,
            // A comment that begins with a mention is addressed to that person.
            calls_another: !called
                && (is_addressed(&it.text, &mentions) || mentions.iter().any(|name| desk.is_another(name))),
            context: (!context.is_empty()).then(|| context.join("\n\n")),
            // A file on GitHub is a link in the text.
            attachments: vec![],
            pull,
        }))
    }

    /// Returns the pull request that a message asks to review. Pull requests of our own agents are
    /// left out, because their work is on the board.
    async fn reviewed(&self, desk: &Desk, it: &Spoken<'_>, thread: u64) -> Result<Option<PullRequest>, Trouble> {
        if !review::asks_for_review(&it.text) {
            return Ok(None);
        }
        let is_pull = matches!(it.kind, "pull" | "review_comment");
        let Some(number) = review::number_in(&it.text).or(is_pull.then_some(thread)) else { return Ok(None) };
        let board = desk.board();
        let is_ours = |pull: &regatta_core::conversation::Pull| {
            pull.number == number && pull.thread.as_deref() == Some(&format!("github:{}:{number}", it.repo))
        };
        if board.conversations.values().any(|other| other.pull.as_ref().is_some_and(is_ours)) {
            return Ok(None);
        }
        let pull = match self.api.repo(it.repo, Method::GET, &format!("/pulls/{number}"), None).await {
            Ok(answer) => answer.body,
            Err(Trouble::Never(_)) => return Ok(None), // there is no such pull request
            Err(trouble) => return Err(trouble),
        };
        let diff = match self.api.pull_diff(it.repo, number).await {
            Ok(diff) => shortened(&diff),
            Err(Trouble::Never(why)) => format!("(The diff is not available: {why})"),
            Err(trouble) => return Err(trouble),
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let text = format!(
            "#{number}: {}\nby {}, from {} onto {}\n\n{}\n\n{diff}",
            text(&pull["title"]),
            text(&pull["user"]["login"]),
            text(&pull["head"]["sha"]),
            text(&pull["base"]["ref"]),
            text(&pull["body"]),
        );
        Ok(Some(PullRequest { number, text }))
    }

    /// Returns the visible text of an issue or pull request before a message.
    async fn context(&self, repo: &str, number: u64, source: &str) -> Option<String> {
        let issue = self.api.repo(repo, Method::GET, &format!("/issues/{number}"), None).await.ok()?.body;
        let own = source.strip_prefix("comment:").and_then(|it| it.parse::<u64>().ok());
        let is_own = |it: &Value| own.is_some() && it["id"].as_u64() == own;
        let comments = self.api.list(repo, &format!("/issues/{number}/comments"), is_own).await.ok()?;
        let line = |it: &Value| {
            let text = markup::plain(it["body"].as_str().unwrap_or_default(), "");
            format!("{}: {text}", it["user"]["login"].as_str().unwrap_or("somebody"))
        };
        let first = format!("{}\n{}", issue["title"].as_str().unwrap_or_default(), line(&issue));
        let before: Vec<String> = comments.iter().take_while(|it| !is_own(it)).map(line).collect();
        let rest = before.join("\n");
        // The subject comes first. Of a long thread, only the end is kept.
        let first: String = first.chars().take(LONGEST_CONTEXT / 2).collect();
        let over = rest.chars().count().saturating_sub(LONGEST_CONTEXT - first.chars().count());
        let rest: String = rest.chars().skip(over).collect();
        Some(format!("{first}\n{rest}").trim().to_owned())
    }

    /// Parses a request to run one of our check runs again.
    async fn check(&self, desk: &Desk, repo: &str, body: &[u8], payload: &Value) -> Received {
        let nothing = Received::Events(vec![]);
        let again = match payload["action"].as_str() {
            Some("rerequested") => true,
            Some("requested_action") => payload["requested_action"]["identifier"] == checks::AGAIN,
            _ => false,
        };
        let check = &payload["check_run"];
        let Some(key) = check["external_id"].as_str().filter(|_| again) else { return nothing };
        // Only a check run that our app created names a conversation of ours.
        let ours = self.api.is_own_app(&check["app"]["id"]) && key.ends_with(&format!(":{}", desk.agent));
        if !ours || !desk.has_conversation(key) {
            return nothing;
        }
        let by = match self.standing(desk, repo, &payload["sender"], &Value::Null).await {
            Ok(by) => by,
            Err(_) => return NOT_NOW,
        };
        // GitHub gives these requests no id, so the hash of the signed body is used.
        let digest: String = Sha256::digest(body).iter().take(12).map(|it| format!("{it:02x}")).collect();
        let delivery = format!("check:{}:{digest}", check["id"]);
        Received::Events(vec![Incoming::Rerun { delivery, key: key.to_owned(), by }])
    }

    /// Looks up our identity and missed deliveries, repeatedly.
    async fn look(&self, desk: &Desk) {
        let (mut missed, mut pause) = (Missed::default(), AGAIN);
        let clock = desk.registry().config.clock.max(0.001);
        loop {
            let next = match self.look_once(desk, &mut missed).await {
                Ok(asked) => {
                    pause = AGAIN;
                    let next = if asked > 0 { LOOK_AGAIN } else { LOOK_EVERY };
                    next.div_f64(clock)
                }
                Err(trouble) => {
                    desk.disconnected(&trouble, &words(&trouble)).await;
                    let least = match trouble {
                        Trouble::Later(least) => least,
                        Trouble::Locked(_) => AGAIN_AT_MOST,
                        _ => Duration::ZERO,
                    };
                    let next = pause.max(least);
                    pause = (pause * 2).min(AGAIN_AT_MOST);
                    next
                }
            };
            tokio::time::sleep(next).await;
        }
    }

    async fn look_once(&self, desk: &Desk, missed: &mut Missed) -> Result<usize, Trouble> {
        let me = self.api.greet().await?;
        desk.known_as(&[&me.slug, &me.login]);
        // Without a secret, or while the bridge is paused, nothing would be accepted.
        let mut asked = 0;
        if self.webhook_secret.is_some() && !desk.is_paused() {
            asked = missed.ask_again(&self.api).await?;
        }
        if desk.people.health(desk.service, &desk.agent).connected.is_none() {
            desk.connected().await;
        }
        Ok(asked)
    }
}

impl Inbound for GitHub {
    fn run<'a>(&'a self, desk: &'a Desk) -> Fut<'a, ()> {
        Box::pin(async move {
            tokio::join!(self.look(desk), checks::run(desk, &self.api));
        })
    }

    fn receive<'a>(&'a self, desk: &'a Desk, headers: &'a HeaderMap, body: &'a [u8]) -> Fut<'a, Received> {
        Box::pin(async move {
            let Some(secret) = &self.webhook_secret else {
                return Received::Refused { status: 503, why: "no webhook secret is set for this agent" };
            };
            let header = |name: &str| headers.get(name).and_then(|it| it.to_str().ok()).unwrap_or_default();
            let given = header("x-hub-signature-256").strip_prefix("sha256=").unwrap_or_default();
            if !signature::is_of(secret, &[body], given) {
                return Received::Refused { status: 401, why: "the signature is not GitHub's" };
            }
            if self.api.is_for_another(header("x-github-hook-installation-target-id")) {
                return Received::Refused { status: 401, why: "the delivery is meant for another app" };
            }
            let Ok(payload) = serde_json::from_slice::<Value>(body) else {
                return Received::Refused {
                    status: 400,
                    why: "the delivery cannot be parsed; webhooks must be sent as JSON",
                };
            };
            self.understand(desk, header("x-github-event"), body, &payload).await
        })
    }

    fn largest(&self) -> usize {
        LARGEST
    }
}

/// Returns whether a comment begins with a mention.
fn is_addressed(text: &str, mentions: &[String]) -> bool {
    let Some(rest) = text.trim_start().strip_prefix('@') else { return false };
    mentions.first().is_some_and(|name| rest.to_lowercase().starts_with(&name.to_lowercase()))
}

/// Cuts a diff that is too long, and appends a note about the cut.
fn shortened(diff: &str) -> String {
    if diff.chars().count() <= MAX_DIFF_CHARS {
        return diff.to_owned();
    }
    let kept: String = diff.chars().take(MAX_DIFF_CHARS).collect();
    format!("{kept}\n(The diff is longer than this. Say in your answer that you have not seen all of it.)")
}

/// Returns the issue or pull request and the source of a comment that was deleted.
fn deleted(event: &str, payload: &Value) -> Option<(u64, String)> {
    if payload["action"] != "deleted" {
        return None;
    }
    let comment = &payload["comment"];
    let id = comment["id"].as_u64()?;
    match event {
        "issue_comment" => Some((payload["issue"]["number"].as_u64()?, format!("comment:{id}"))),
        "pull_request_review_comment" => {
            let root = comment["in_reply_to_id"].as_u64().unwrap_or(id);
            Some((payload["pull_request"]["number"].as_u64()?, format!("review_comment:{id}:{root}")))
        }
        _ => None,
    }
}

/// Parses the message of an event that has one.
fn spoken<'a>(event: &str, repo: &'a str, payload: &'a Value) -> Option<Spoken<'a>> {
    let action = payload["action"].as_str().unwrap_or_default();
    let (issue, pull) = (&payload["issue"], &payload["pull_request"]);
    let body = |of: &Value| of["body"].as_str().unwrap_or_default().to_owned();
    let whole = |of: &Value| format!("{}\n\n{}", of["title"].as_str().unwrap_or_default(), body(of));
    let kind_of = |of: &Value| if of["pull_request"].is_object() { "pull" } else { "issue" };
    let base = Spoken {
        delivery: String::new(),
        repo,
        issue,
        kind: "issue",
        by: &payload["sender"],
        text: String::new(),
        source: format!("issue:{}", issue["number"]),
        reply_to: String::new(),
        association: &Value::Null,
        given_to: None,
        follows: false,
        about: None,
    };
    Some(match (event, action) {
        ("issue_comment", "created") => {
            let comment = &payload["comment"];
            let id = comment["id"].as_u64()?;
            Spoken {
                delivery: format!("comment:{id}"),
                kind: kind_of(issue),
                text: body(comment),
                source: format!("comment:{id}"),
                association: &comment["author_association"],
                follows: true,
                ..base
            }
        }
        ("issues", "opened") => Spoken {
            delivery: format!("issue:{}", issue["id"].as_u64()?),
            text: whole(issue),
            association: &issue["author_association"],
            ..base
        },
        // The text was handled when the issue was opened. Only the assignment is new.
        ("issues", "assigned") => {
            let at = issue["updated_at"].as_str().unwrap_or_default();
            Spoken {
                delivery: format!("assigned:{}:{at}", issue["id"].as_u64()?),
                text: whole(issue),
                given_to: Some(&payload["assignee"]),
                ..base
            }
        }
        ("pull_request", "opened") => Spoken {
            delivery: format!("pull:{}", pull["id"].as_u64()?),
            issue: pull,
            kind: "pull",
            text: whole(pull),
            source: format!("issue:{}", pull["number"]),
            association: &pull["author_association"],
            ..base
        },
        ("pull_request_review_comment", "created") => {
            let comment = &payload["comment"];
            let id = comment["id"].as_u64()?;
            // Only the first comment of a thread can be answered.
            let root = comment["in_reply_to_id"].as_u64().unwrap_or(id);
            let line = comment["line"].as_u64().map_or(String::new(), |it| format!(" line {it}"));
            let path = comment["path"].as_str().unwrap_or_default();
            let hunk = comment["diff_hunk"].as_str().unwrap_or_default();
            let over = hunk.chars().count().saturating_sub(LONGEST_HUNK);
            let hunk: String = hunk.chars().skip(over).collect();
            Spoken {
                delivery: format!("review_comment:{id}"),
                issue: pull,
                kind: "review_comment",
                text: body(comment),
                source: format!("review_comment:{id}:{root}"),
                reply_to: root.to_string(),
                association: &comment["author_association"],
                follows: true,
                about: Some(format!("It is about {path}{line}:\n{hunk}")),
                ..base
            }
        }
        ("pull_request_review", "submitted") => {
            let review = &payload["review"];
            Spoken {
                delivery: format!("review:{}", review["id"].as_u64()?),
                issue: pull,
                kind: "pull",
                text: Some(body(review)).filter(|it| !it.trim().is_empty())?,
                source: format!("issue:{}", pull["number"]),
                association: &review["author_association"],
                follows: true,
                ..base
            }
        }
        _ => return None,
    })
}

pub(super) fn words(trouble: &Trouble) -> String {
    match trouble {
        Trouble::Later(pause) => format!("GitHub asks to wait {} s", pause.as_secs()),
        Trouble::Unknown(why) | Trouble::Never(why) | Trouble::Locked(why) => why.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn deleted_comment_has_the_source_of_its_creation() {
        let comment = json!({ "action": "deleted", "issue": { "number": 7 }, "comment": { "id": 5 } });
        assert_eq!(deleted("issue_comment", &comment), Some((7, "comment:5".into())));
        let review = json!({
            "action": "deleted",
            "pull_request": { "number": 8 },
            "comment": { "id": 6, "in_reply_to_id": 4 }
        });
        assert_eq!(deleted("pull_request_review_comment", &review), Some((8, "review_comment:6:4".into())));
        let created = json!({ "action": "created", "issue": { "number": 7 }, "comment": { "id": 5, "body": "x" } });
        assert_eq!(deleted("issue_comment", &created), None);
        let heard = spoken("issue_comment", "acme/shop", &created).map(|it| it.source);
        assert_eq!(heard.as_deref(), Some("comment:5"));
        assert_eq!(deleted("issues", &json!({ "action": "deleted", "issue": { "number": 7 } })), None);
    }
}
