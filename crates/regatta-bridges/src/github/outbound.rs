//! Shows an agent's work on GitHub: an immediate reaction to a message, one comment for each turn
//! (edited while the agent works), and pull requests.

use std::sync::Arc;
use std::time::Duration;

use regatta_core::agent_protocol::ToolStatus;
use reqwest::Method;
use serde_json::{Value, json};

use crate::http::percent_encoded;
use crate::rate_limit::RateLimit;
use crate::render::{self, PlanFormat};
use crate::service::{
    CardButton, CardTone, Outbound, PostCard, SendContent, SendRequest, ServiceError, ServiceFuture,
};

use super::api::GithubApi;
use super::markup;

/// Maximum length of an agent's text in one comment. GitHub accepts 65,536 characters, but Regatta
/// adds some lines to the text.
const MAX_COMMENT_CHARS: usize = 60_000;
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
/// GitHub's limit for creating and editing comments and pull requests, per minute.
const MAX_CONTENT_PER_MINUTE: u32 = 80;
const MAX_CONTENT_PER_HOUR: u32 = 500;
/// Number of points per minute that calls may use. GitHub allows 900 points per minute, and counts
/// 5 points for a write and 1 for a read. Some points stay free for reads that Regatta does not
/// count.
const MAX_POINTS_PER_MINUTE: u32 = 800;
const WRITE_POINTS: u32 = 5;
/// Rate limit points that a search for a comment uses. A search reads one or two pages of comments.
const SEARCH_POINTS: u32 = 2;

pub(crate) struct GithubOutbound {
    api: Arc<GithubApi>,
}

/// The place of a comment. GitHub uses different ids and API methods for comments in different
/// places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CommentThread {
    Issue,
    /// A review thread on a line of code, by the id of its first comment.
    ReviewThread(u64),
}

impl CommentThread {
    fn comment_name(self, id: u64) -> String {
        match self {
            CommentThread::Issue => format!("comment:{id}"),
            CommentThread::ReviewThread(_) => format!("review_comment:{id}"),
        }
    }
}

impl GithubOutbound {
    pub(crate) fn new(api: Arc<GithubApi>) -> GithubOutbound {
        GithubOutbound { api }
    }

    async fn react(&self, request: &SendRequest, source: &str) -> Result<String, ServiceError> {
        let (kind, id) = source.split_once(':').unwrap_or((source, ""));
        let id: u64 = id
            .split(':')
            .next()
            .and_then(|id| id.parse().ok())
            .ok_or_else(|| unknown_source(source))?;
        let path = match kind {
            "comment" => format!("/issues/comments/{id}/reactions"),
            "review_comment" => format!("/pulls/comments/{id}/reactions"),
            "issue" => format!("/issues/{id}/reactions"),
            _ => return Err(unknown_source(source)),
        };
        // If the reaction already exists, GitHub returns the existing reaction, so no search is
        // needed before this call.
        let body = json!({"content": "eyes"});
        match self
            .api
            .call_repo(target_repo(request), Method::POST, &path, Some(&body))
            .await
        {
            Ok(_) => Ok(String::new()),
            // If the app lacks the permission for reactions, this is not treated as an error,
            // because the app can still write comments.
            Err(ServiceError::Unauthorized(why)) if why.contains("GitHub says 403") => {
                Err(ServiceError::Rejected(why))
            }
            Err(error) => Err(error),
        }
    }

    async fn show_card(
        &self,
        request: &SendRequest,
        card: &PostCard,
    ) -> Result<String, ServiceError> {
        let repo = target_repo(request);
        let body =
            json!({"body": format!("{}\n\n{}", card_text(card), hidden_mark(&request.post_mark))});
        let mut existing = request.existing_name.clone();
        if existing.is_none() && request.may_exist {
            // The comment may already exist, because the daemon may have ended during an earlier
            // call. Search for it, so that it is not created twice.
            existing = self.find_comment(request).await?;
        }
        if let Some(name) = existing {
            let path = match name.split_once(':') {
                Some(("comment", id)) => format!("/issues/comments/{id}"),
                Some(("review_comment", id)) => format!("/pulls/comments/{id}"),
                _ => return Err(ServiceError::Rejected(format!("{name:?} is not a comment"))),
            };
            match self
                .api
                .call_repo(repo, Method::PATCH, &path, Some(&body))
                .await
            {
                Ok(_) => return Ok(name),
                // Somebody deleted the comment. A comment with the result of a turn is created
                // again below. A comment that only shows progress is not.
                Err(ServiceError::Rejected(why))
                    if is_gone(&why) && card.tone != CardTone::Working => {}
                Err(error) => return Err(error),
            }
        }
        let number = target_issue(request)?;
        let thread = target_thread(request);
        let path = match thread {
            CommentThread::Issue => format!("/issues/{number}/comments"),
            CommentThread::ReviewThread(root) => format!("/pulls/{number}/comments/{root}/replies"),
        };
        let created = self
            .api
            .call_repo(repo, Method::POST, &path, Some(&body))
            .await?;
        let id = created.body["id"]
            .as_u64()
            .ok_or_else(|| ServiceError::OutcomeUnknown("GitHub returned no comment id".into()))?;
        Ok(thread.comment_name(id))
    }

    /// Searches for a comment by the agent's app that ends with the mark of the post (a hidden id).
    /// Returns the name under which Regatta stores the comment.
    async fn find_comment(&self, request: &SendRequest) -> Result<Option<String>, ServiceError> {
        let (identity, thread, number) = (
            self.api.identity().await?,
            target_thread(request),
            target_issue(request)?,
        );
        let mark = hidden_mark(&request.post_mark);
        let is_own = |value: &Value| {
            let is_own_author = value["user"]["login"]
                .as_str()
                .is_some_and(|s| s.eq_ignore_ascii_case(&identity.login));
            is_own_author
                && value["body"]
                    .as_str()
                    .is_some_and(|s| s.trim_end().ends_with(&mark))
        };
        let path = match thread {
            CommentThread::Issue => format!("/issues/{number}/comments"),
            CommentThread::ReviewThread(_) => {
                format!("/pulls/{number}/comments?sort=created&direction=desc")
            }
        };
        let found = self
            .api
            .list_until(target_repo(request), &path, is_own)
            .await?;
        Ok(found
            .iter()
            .find(|comment| is_own(comment))
            .and_then(|comment| comment["id"].as_u64())
            .map(|id| thread.comment_name(id)))
    }

    async fn show_pull_request(
        &self,
        request: &SendRequest,
        title: &str,
        body: &str,
        (head, base): (&str, &str),
    ) -> Result<String, ServiceError> {
        if let Some(name) = self.find_open_pull_request(request, head, base).await? {
            return Ok(name);
        }
        let origin_note =
            target_issue(request).map_or(String::new(), |n| format!("\n\nAsked for in #{n}."));
        let text: String = markup::without_mentions(body)
            .chars()
            .take(MAX_COMMENT_CHARS)
            .collect();
        let title = if title.trim().is_empty() { head } else { title };
        let request_body = json!({
            "title": markup::without_mentions(title), "head": head, "base": base,
            "body": format!("{text}{origin_note}\n\n{}", hidden_mark(&request.post_mark)),
        });
        match self
            .api
            .call_repo(
                target_repo(request),
                Method::POST,
                "/pulls",
                Some(&request_body),
            )
            .await
        {
            Ok(created) => pull_request_name(&created.body).ok_or_else(|| {
                ServiceError::OutcomeUnknown("GitHub returned no pull request".into())
            }),
            // The rejection may mean that the pull request already exists, because somebody else or
            // an earlier call opened it.
            Err(ServiceError::Rejected(why)) => self
                .find_open_pull_request(request, head, base)
                .await?
                .ok_or(ServiceError::Rejected(why)),
            Err(error) => Err(error),
        }
    }

    async fn find_open_pull_request(
        &self,
        request: &SendRequest,
        head: &str,
        base: &str,
    ) -> Result<Option<String>, ServiceError> {
        let repo = target_repo(request);
        let owner = repo.split('/').next().unwrap_or_default();
        let head = percent_encoded(&format!("{owner}:{head}"));
        let path = format!(
            "/pulls?state=open&head={head}&base={}",
            percent_encoded(base)
        );
        let found = self.api.call_repo(repo, Method::GET, &path, None).await?;
        Ok(found
            .body
            .as_array()
            .and_then(|body| body.first())
            .and_then(pull_request_name))
    }
}

fn pull_request_name(pull: &Value) -> Option<String> {
    Some(format!(
        "{} {}",
        pull["number"].as_u64()?,
        pull["html_url"].as_str()?
    ))
}

fn target_repo(request: &SendRequest) -> &str {
    request.address.get("repo").map_or("", String::as_str)
}

fn target_issue(request: &SendRequest) -> Result<u64, ServiceError> {
    let number = request
        .address
        .get("number")
        .and_then(|address| address.parse().ok());
    number.ok_or_else(|| ServiceError::Rejected("the issue of this conversation is unknown".into()))
}

/// Returns the thread in which the answer is written: the thread of the message that began the
/// turn, otherwise the thread of the latest message.
fn target_thread(request: &SendRequest) -> CommentThread {
    let root = match request.address.get("source") {
        Some(source) => source
            .strip_prefix("review_comment:")
            .and_then(|source| source.split(':').next_back()),
        None => request.address.get("reply_to").map(String::as_str),
    };
    root.and_then(|root| root.parse().ok())
        .map_or(CommentThread::Issue, CommentThread::ReviewThread)
}

fn hidden_mark(mark: &str) -> String {
    format!("<!-- {mark} -->")
}

fn is_gone(why: &str) -> bool {
    ["GitHub says 404", "GitHub says 410"]
        .iter()
        .any(|s| why.contains(s))
}

fn unknown_source(source: &str) -> ServiceError {
    ServiceError::Rejected(format!("{source:?} cannot have a reaction"))
}

impl Outbound for GithubOutbound {
    fn rate_limits(&self, request: &SendRequest) -> Vec<RateLimit> {
        let is_searched = match request.content {
            SendContent::Reaction { .. } => false,
            SendContent::Card(_) => request.may_exist && request.existing_name.is_none(),
            SendContent::PullRequest { .. } => true,
        };
        let points = WRITE_POINTS + if is_searched { SEARCH_POINTS } else { 0 };
        let mut limits =
            vec![RateLimit::window("points", MAX_POINTS_PER_MINUTE, MINUTE).with_cost(points)];
        // GitHub counts a reaction as a write but not as content, because a reaction notifies
        // nobody.
        if !matches!(request.content, SendContent::Reaction { .. }) {
            limits.push(RateLimit::window(
                "content a minute",
                MAX_CONTENT_PER_MINUTE,
                MINUTE,
            ));
            limits.push(RateLimit::window(
                "content an hour",
                MAX_CONTENT_PER_HOUR,
                HOUR,
            ));
        }
        limits
    }

    fn min_edit_interval(&self) -> Duration {
        Duration::from_secs(8)
    }

    fn split_card(&self, card: &PostCard) -> Vec<PostCard> {
        // Disable mentions before splitting the text, because this inserts characters and makes the
        // text longer.
        render::split_card(
            card,
            render::split_text(&markup::without_mentions(&card.text), MAX_COMMENT_CHARS),
        )
    }

    fn show<'a>(
        &'a self,
        request: &'a SendRequest,
    ) -> ServiceFuture<'a, Result<String, ServiceError>> {
        Box::pin(async move {
            match &request.content {
                SendContent::Reaction { source } => self.react(request, source).await,
                SendContent::Card(card) => self.show_card(request, card).await,
                SendContent::PullRequest {
                    title,
                    body,
                    head,
                    base,
                } => {
                    self.show_pull_request(request, title, body, (head, base))
                        .await
                }
            }
        })
    }
}

/// Returns the complete text of the comment for a card (the content of a post), in GitHub's
/// Markdown.
fn card_text(card: &PostCard) -> String {
    let lines = PlanFormat {
        max_lines: 20,
        max_line_chars: 150,
        sign: status_sign,
    };
    let sections = [
        render::card_header(card),
        lines.format_plan(card),
        Some(card.text.clone()).filter(|s| !s.trim().is_empty()),
    ];
    let mut parts: Vec<String> = sections
        .into_iter()
        .flatten()
        .map(|section| markup::without_mentions(&section))
        .collect();
    parts.extend(text_commands(&card.buttons, &card.text));
    parts.extend(render::link_line(card));
    if parts.is_empty() {
        "…".to_owned()
    } else {
        parts.join("\n\n")
    }
}

fn status_sign(status: ToolStatus) -> &'static str {
    match status {
        ToolStatus::Completed => "- [x]",
        ToolStatus::InProgress => "- [ ] ▶️",
        ToolStatus::Failed => "- [ ] ❌",
        ToolStatus::Pending => "- [ ]",
    }
}

/// Returns the text commands that replace a card's buttons, because GitHub comments have no
/// buttons.
fn text_commands(buttons: &[CardButton], text: &str) -> Vec<String> {
    let has_button = |word: &str| {
        buttons
            .iter()
            .any(|button| button.value.starts_with(&format!("{word}:")))
    };
    let mut lines = Vec::new();
    let choices: Vec<String> = buttons
        .iter()
        .filter(|button| button.value.starts_with("choice-"))
        .enumerate()
        .map(|(index, button)| {
            format!("{}. {}", index + 1, markup::without_mentions(&button.label))
        })
        .collect();
    if !choices.is_empty() {
        lines.push(choices.join("\n"));
    }
    let is_in_text = |word: &str| text.contains(&format!("`{word}`"));
    if has_button("allow") && has_button("deny") && !(is_in_text("allow") && is_in_text("deny")) {
        lines.push("Say `allow` or `deny`.".to_owned());
    }
    if has_button("land") && !is_in_text("land") {
        lines.push("Say `land` to merge it.".to_owned());
    }
    if has_button("stop") {
        lines.push("<sub>Say `stop` to end it.</sub>".to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn test_outbound() -> GithubOutbound {
        let http = crate::http::HttpClient::new().unwrap();
        let key = crate::config::Secret::new("");
        GithubOutbound::new(Arc::new(GithubApi::new(
            http,
            "http://127.0.0.1:9".into(),
            "1".into(),
            &key,
        )))
    }

    #[test]
    fn long_answer_is_split_into_allowed_comments_without_loss() {
        let line = "@ann @bob look at `@x` here\n";
        let text = format!(
            "```rust\n{}```\n{}",
            "let x = 1;\n".repeat(9_000),
            line.repeat(4_000)
        );
        let plan = vec![("@ann ".repeat(60), ToolStatus::Pending); 50];
        let card = PostCard {
            tone: CardTone::Done,
            text,
            plan,
            ..PostCard::default()
        };
        let pieces = test_outbound().split_card(&card);
        let bodies: Vec<String> = pieces
            .iter()
            .map(|card| format!("{}\n\n{}", card_text(card), hidden_mark("regatta:V1:1:0")))
            .collect();
        assert!(bodies.len() > 3);
        for body in &bodies {
            assert!(body.chars().count() <= 65_536, "{}", body.chars().count());
            assert_eq!(
                body.matches("```").count() % 2,
                0,
                "code is open at the end"
            );
            assert!(body.ends_with("<!-- regatta:V1:1:0 -->"));
            assert!(!body.contains("@ann") && !body.contains("@bob"));
        }
        let whole = bodies.concat();
        assert_eq!(whole.matches("let x = 1;").count(), 9_000);
        assert_eq!(whole.matches("`@x`").count(), 4_000);
    }

    #[test]
    fn buttons_are_described_in_words() {
        let button = |label: &str, value: &str| CardButton {
            label: label.into(),
            value: value.into(),
            is_dangerous: false,
        };
        let rendered = |text: &str, buttons: Vec<CardButton>| {
            card_text(&PostCard {
                text: text.into(),
                buttons,
                ..PostCard::default()
            })
        };
        let permission = vec![
            button("Allow", "allow:Q1"),
            button("Always", "always:Q1"),
            button("Deny", "deny:Q1"),
        ];
        assert_eq!(
            rendered("May I?", permission.clone()),
            "May I?\n\nSay `allow` or `deny`."
        );
        assert_eq!(
            rendered("Say `allow` or `deny`.", permission),
            "Say `allow` or `deny`.",
            "the text already has the command"
        );
        let choices = vec![button("Red", "choice-0:Q1"), button("@ann", "choice-1:Q1")];
        assert_eq!(
            rendered("Which?", choices),
            "Which?\n\n1. Red\n2. @\u{200b}ann"
        );
        assert_eq!(
            rendered("Done.", vec![button("Land", "land:V1")]),
            "Done.\n\nSay `land` to merge it."
        );
        assert!(rendered("", vec![button("Stop", "stop:V1")]).contains("`stop`"));
        assert_eq!(rendered("", vec![]), "…");
    }

    #[test]
    fn answer_is_placed_where_its_request_was() {
        let thread_for = |pairs: &[(&str, &str)]| {
            let address: BTreeMap<String, String> = pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect();
            let content = SendContent::Card(PostCard::default());
            target_thread(&SendRequest {
                address,
                post_mark: "m".into(),
                may_exist: false,
                existing_name: None,
                content,
            })
        };
        assert_eq!(thread_for(&[("reply_to", "")]), CommentThread::Issue);
        assert_eq!(
            thread_for(&[("reply_to", "50")]),
            CommentThread::ReviewThread(50)
        );
        assert_eq!(
            thread_for(&[("reply_to", "50"), ("source", "comment:7")]),
            CommentThread::Issue
        );
        assert_eq!(
            thread_for(&[("reply_to", ""), ("source", "review_comment:55:50")]),
            CommentThread::ReviewThread(50)
        );
    }

    #[test]
    fn reaction_uses_points_and_a_comment_uses_content_limits() {
        let limit_keys = |content: SendContent| {
            let request = SendRequest {
                address: BTreeMap::new(),
                post_mark: "m".into(),
                may_exist: false,
                existing_name: None,
                content,
            };
            test_outbound()
                .rate_limits(&request)
                .into_iter()
                .map(|limit| limit.key)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            limit_keys(SendContent::Reaction {
                source: "comment:1".into()
            }),
            ["points"]
        );
        let content_keys = ["points", "content a minute", "content an hour"];
        assert_eq!(
            limit_keys(SendContent::Card(PostCard::default())),
            content_keys
        );
        let text = String::new;
        assert_eq!(
            limit_keys(SendContent::PullRequest {
                title: text(),
                body: text(),
                head: text(),
                base: text()
            }),
            content_keys
        );
    }
}
