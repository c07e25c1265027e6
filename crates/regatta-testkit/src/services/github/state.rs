//! The state of the double: repositories with issues, pull requests and checks, and apps with
//! installations and webhooks.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::double;
use super::super::rate_limit::header_text;

/// The data that an app must know about itself to use GitHub.
#[derive(Clone, Debug)]
pub struct GitHubApp {
    pub id: u64,
    pub client_id: String,
    /// The app's name, such as `claude-bot`. People mention the app as `@claude-bot`; the login of
    /// its user is `claude-bot[bot]`.
    pub slug: String,
    /// The app's private key as PEM, in GitHub's format.
    pub private_key: String,
    pub webhook_secret: String,
}

impl GitHubApp {
    /// Returns the login of the app's user.
    pub fn login(&self) -> String {
        format!("{}[bot]", self.slug)
    }
}

pub(crate) struct GitHubAppState {
    pub(crate) app: GitHubApp,
    pub(crate) webhook: Option<String>,
    pub(crate) events: Vec<String>,
    /// The app's installations: the id, and the owner of the repositories.
    pub(crate) installations: Vec<(u64, String)>,
    pub(crate) deliveries: Vec<GitHubDelivery>,
    pub(crate) in_flight: usize,
    /// The number of further webhooks that are signed with a wrong secret.
    pub(crate) forged_signatures: u32,
}

/// An access token of an installation.
pub(crate) struct InstallationToken {
    pub(crate) token: String,
    pub(crate) app: usize,
    pub(crate) installation: u64,
    /// The repositories to which the token gives access; all repositories of the owner if empty.
    pub(crate) repositories: Vec<String>,
    pub(crate) expires: Instant,
}

/// A webhook, sent or waiting to be sent.
#[derive(Clone, Debug)]
pub struct GitHubDelivery {
    pub id: u64,
    /// The GUID, which stays the same when the webhook is sent again.
    pub guid: String,
    pub event: String,
    pub action: String,
    pub payload: Value,
    pub is_redelivery: bool,
    /// The time (since 1970) when the webhook was last sent or, before it was sent, when it was
    /// created.
    pub delivered_at: Duration,
    /// The HTTP status of the receiver's answer: `None` before the answer, 0 if there was no
    /// answer.
    pub status_code: Option<u16>,
    pub status: String,
    pub(crate) installation: u64,
    pub(crate) is_sent: bool,
}

/// A comment on an issue or a pull request.
#[derive(Clone, Debug)]
pub struct GitHubComment {
    pub id: u64,
    /// The login of the author.
    pub user: String,
    /// The name (slug) of the app that wrote the comment. `None` if a person wrote it.
    pub app: Option<String>,
    pub body: String,
    /// The reactions (`+1`, `eyes`, `rocket`, …) with the logins of their users, in order.
    pub reactions: Vec<GitHubReaction>,
    pub created: Duration,
    pub updated: Duration,
    /// All texts that the comment has had, the present one last.
    pub versions: Vec<String>,
}

/// A reaction of a user to a comment, such as `+1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitHubReaction {
    pub id: u64,
    pub content: String,
    pub user: String,
}

/// A comment on a line of a pull request's changes.
#[derive(Clone, Debug)]
pub struct GitHubReviewComment {
    pub comment: GitHubComment,
    pub path: String,
    pub line: u64,
    /// The id of the first comment of the thread. `None` if this comment is the first one.
    pub in_reply_to: Option<u64>,
}

/// An issue. Every pull request has an issue too, which holds everything that pull requests and
/// issues have in common.
#[derive(Clone, Debug)]
pub struct GitHubIssue {
    pub number: u64,
    pub title: String,
    /// The text of the issue, with its reactions and versions.
    pub body: GitHubComment,
    pub is_open: bool,
    pub labels: Vec<String>,
    pub assignees: Vec<String>,
    pub comments: Vec<GitHubComment>,
    pub pull: Option<GitHubPullRequest>,
}

/// The fields of a pull request that an issue does not have.
#[derive(Clone, Debug)]
pub struct GitHubPullRequest {
    pub head: String,
    pub head_sha: String,
    pub base: String,
    pub is_draft: bool,
    pub diff: String,
    pub comments: Vec<GitHubReviewComment>,
}

/// A check run: the result of a check on a commit.
#[derive(Clone, Debug)]
pub struct CheckRun {
    pub id: u64,
    pub app: String,
    pub name: String,
    pub head_sha: String,
    pub status: String,
    pub conclusion: Option<String>,
    /// All fields that were sent for the check run. A later value of a field replaces an earlier
    /// one.
    pub fields: Value,
    /// All values that the status and the conclusion have had, in order.
    pub versions: Vec<(String, Option<String>)>,
}

pub(crate) struct GitHubRepo {
    pub(crate) id: u64,
    pub(crate) owner: String,
    pub(crate) name: String,
    /// The role of each person, by login: `admin`, `maintain`, `write`, `triage`, `read`.
    pub(crate) people: BTreeMap<String, String>,
    pub(crate) issues: BTreeMap<u64, GitHubIssue>,
    pub(crate) checks: Vec<CheckRun>,
    pub(crate) branches: BTreeMap<String, String>,
    /// A bare repository on disk that has the branches, if the test set one.
    pub(crate) remote: Option<PathBuf>,
}

impl GitHubRepo {
    pub(crate) fn full_name(&self) -> String {
        format!("{}/{}", self.owner, self.name)
    }

    /// Returns the commit to which a branch points, if the branch exists.
    pub(crate) fn branch(&self, name: &str) -> Option<String> {
        let Some(remote) = &self.remote else {
            return self.branches.get(name).cloned();
        };
        let full = format!("refs/heads/{name}");
        let loose = std::fs::read_to_string(remote.join(&full))
            .ok()
            .map(|s| s.trim().to_owned());
        loose.or_else(|| {
            let packed = std::fs::read_to_string(remote.join("packed-refs")).ok()?;
            let line = packed
                .lines()
                .find(|packed| packed.split(' ').nth(1) == Some(&full))?;
            line.split(' ').next().map(str::to_owned)
        })
    }

    /// Returns a comment, and the number of the issue or pull request to which it belongs.
    pub(crate) fn comment_mut(&mut self, id: u64) -> Option<(u64, &mut GitHubComment)> {
        let mut all = self.issues.values_mut().flat_map(|issue| {
            let number = issue.number;
            issue
                .comments
                .iter_mut()
                .map(move |comment| (number, comment))
        });
        all.find(|(_, comment)| comment.id == id)
    }

    pub(crate) fn review_comment_mut(&mut self, id: u64) -> Option<&mut GitHubReviewComment> {
        let pulls = self
            .issues
            .values_mut()
            .filter_map(|github_issue| github_issue.pull.as_mut());
        pulls
            .flat_map(|github_pull_request| github_pull_request.comments.iter_mut())
            .find(|github_review_comment| github_review_comment.comment.id == id)
    }
}

/// The state of the imitated GitHub: the parts that bridges (Regatta's connections to services)
/// use.
pub struct GitHubState {
    pub(crate) apps: Vec<GitHubAppState>,
    pub(crate) repos: Vec<GitHubRepo>,
    pub(crate) tokens: Vec<InstallationToken>,
}

impl double::ServiceState for GitHubState {
    fn rate_limit_answer(_: &str, seconds: f64) -> (u16, Vec<(&'static str, String)>, Value) {
        let body = json!({
            "message": "You have exceeded a secondary rate limit. Please wait a few minutes \
                before you try again.",
            "documentation_url": "https://docs.github.com/rest/overview/rate-limits-for-the-rest-api#about-secondary-rate-limits",
            "status": "403",
        });
        (
            403,
            vec![
                ("retry-after", header_text(seconds)),
                ("x-ratelimit-remaining", "4000".into()),
            ],
            body,
        )
    }
}

impl GitHubState {
    pub(crate) fn repo(&self, name: &str) -> Option<&GitHubRepo> {
        self.repos
            .iter()
            .find(|github_repo| github_repo.full_name() == name)
    }

    pub(crate) fn repo_mut(&mut self, name: &str) -> Option<&mut GitHubRepo> {
        self.repos
            .iter_mut()
            .find(|github_repo| github_repo.full_name() == name)
    }

    /// Returns an issue or a pull request of a repository, if it exists.
    pub fn issue(&self, repo: &str, number: u64) -> Option<&GitHubIssue> {
        self.repo(repo)?.issues.get(&number)
    }

    /// Returns the comments of an issue or a pull request.
    pub fn comments(&self, repo: &str, number: u64) -> &[GitHubComment] {
        self.issue(repo, number)
            .map(|github_issue| github_issue.comments.as_slice())
            .unwrap_or_default()
    }

    /// Returns the comments on lines of a pull request.
    pub fn review_comments(&self, repo: &str, number: u64) -> &[GitHubReviewComment] {
        let pull = self
            .issue(repo, number)
            .and_then(|github_issue| github_issue.pull.as_ref());
        pull.map(|github_pull_request| github_pull_request.comments.as_slice())
            .unwrap_or_default()
    }

    /// Returns all pull requests of a repository.
    pub fn pulls(&self, repo: &str) -> impl Iterator<Item = &GitHubIssue> {
        self.repo(repo)
            .into_iter()
            .flat_map(|github_repo| github_repo.issues.values())
            .filter(|github_issue| github_issue.pull.is_some())
    }

    /// Returns all check runs of a repository.
    pub fn checks(&self, repo: &str) -> &[CheckRun] {
        self.repo(repo)
            .map(|github_repo| github_repo.checks.as_slice())
            .unwrap_or_default()
    }

    /// Returns all webhooks for an app, those that were sent and those that still wait.
    pub fn deliveries(&self, app: &str) -> &[GitHubDelivery] {
        self.apps
            .iter()
            .find(|github_app_state| github_app_state.app.slug == app)
            .map(|github_app_state| github_app_state.deliveries.as_slice())
            .unwrap_or_default()
    }
}
