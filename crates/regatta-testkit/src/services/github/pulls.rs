//! Imitates GitHub's pull requests, and comments on their lines.

use serde_json::{Value, json};

use super::super::double::{CallRecords, ServiceAnswer, ViolationKind};
use super::super::signature;
use super::issues::{self, new_comment, parse_number};
use super::payloads;
use super::routes::{GitHubError, GitHubRequest, GitHubResult, invalid, not_found};
use super::state::{GitHubPullRequest, GitHubRepo, GitHubReviewComment, GitHubState};

pub(crate) fn answer_pulls(
    turn: &mut GitHubRequest<'_>,
    repo: &str,
    method: &str,
    rest: &[&str],
) -> GitHubResult {
    match (method, rest) {
        ("GET", []) => list_pulls(turn, repo),
        ("POST", []) => create_pull(turn, repo),
        ("PATCH", ["comments", id]) => answer_review_comment(turn, repo, parse_number(id)?),
        (_, ["comments", id, "reactions", rest @ ..]) => {
            let id = parse_number(id)?;
            let mut of = turn
                .repo(repo)?
                .review_comment_mut(id)
                .ok_or_else(not_found)?
                .comment
                .clone();
            let answered = issues::answer_reactions(turn, method, rest, &mut of)?;
            turn.repo(repo)?
                .review_comment_mut(id)
                .ok_or_else(not_found)?
                .comment
                .reactions = of.reactions;
            Ok(answered)
        }
        (_, [number]) => answer_one_pull(turn, repo, method, parse_number(number)?),
        ("GET", [number, "comments"]) => {
            let number = parse_number(number)?;
            turn.repo(repo)?.issues.get(&number).ok_or_else(not_found)?;
            let repo_state = turn.github.repo(repo).ok_or_else(not_found)?;
            let all = turn.github.review_comments(repo, number);
            let mut all: Vec<Value> = all
                .iter()
                .map(|github_review_comment| {
                    payloads::review_comment(turn.github, repo_state, number, github_review_comment)
                })
                .collect();
            if turn.request.query("direction") == Some("desc") {
                all.reverse();
            }
            Ok(turn.page(all, None))
        }
        ("POST", [number, "comments", id, "replies"]) => {
            reply_to_comment(turn, repo, parse_number(number)?, parse_number(id)?)
        }
        _ => Err(not_found()),
    }
}

fn list_pulls(turn: &mut GitHubRequest<'_>, repo: &str) -> GitHubResult {
    turn.repo(repo)?;
    let repo_state = turn.github.repo(repo).ok_or_else(not_found)?;
    let state = turn.request.query("state").unwrap_or("open");
    let (head, base) = (turn.request.query("head"), turn.request.query("base"));
    let matches_filter = |github_issue: &&super::state::GitHubIssue| {
        let Some(pull) = &github_issue.pull else {
            return false;
        };
        // The query parameter `head` has the form `owner:branch`.
        (state == "all" || github_issue.is_open == (state == "open"))
            && head.is_none_or(|head| head == format!("{}:{}", repo_state.owner, pull.head))
            && base.is_none_or(|base| base == pull.base)
    };
    let found = repo_state
        .issues
        .values()
        .rev()
        .filter(matches_filter)
        .map(|github_issue| payloads::pull(turn.github, repo_state, github_issue))
        .collect();
    Ok(turn.page(found, None))
}

fn create_pull(turn: &mut GitHubRequest<'_>, repo: &str) -> GitHubResult {
    let (title, body) = (turn.required_text("title")?, turn.body_text(false)?);
    let (head, base) = (turn.required_text("head")?, turn.required_text("base")?);
    let draft = turn.input["draft"].as_bool().unwrap_or(false);
    let repo_state = turn.repo(repo)?;
    let head = head
        .strip_prefix(&format!("{}:", repo_state.owner))
        .unwrap_or(&head)
        .to_owned();
    if head == base {
        return Err(invalid(
            ViolationKind::BadField,
            "head",
            &format!("No commits between {base} and {head}"),
        ));
    }
    let same = |github_pull_request: &super::state::GitHubPullRequest| {
        github_pull_request.head == head && github_pull_request.base == base
    };
    if repo_state
        .issues
        .values()
        .any(|github_issue| github_issue.is_open && github_issue.pull.as_ref().is_some_and(same))
    {
        let message = format!(
            "A pull request already exists for {}:{head}.",
            repo_state.owner
        );
        // This error is not a violation, because a correct client gets it too when it repeats a
        // request whose answer was lost.
        return Err(GitHubError {
            violation: None,
            ..invalid(ViolationKind::WrongState, "head", &message)
        });
    }
    if repo_state.remote.is_some()
        && (repo_state.branch(&head).is_none() || repo_state.branch(&base).is_none())
    {
        return Err(invalid(
            ViolationKind::WrongState,
            "head",
            &format!("{head} or {base} is not a branch of the repository"),
        ));
    }
    let pull = new_pull(repo_state, &head, &base, "");
    let pull = GitHubPullRequest {
        is_draft: draft,
        ..pull
    };
    let (login, slug) = (turn.app_login(), turn.app_slug());
    let number = turn.github.open(
        turn.records,
        repo,
        (&login, Some(&slug)),
        (&title, &body),
        Some(pull),
    );
    let repo_state = turn.github.repo(repo).ok_or_else(not_found)?;
    Ok(ServiceAnswer::with_status(
        201,
        payloads::pull(turn.github, repo_state, &repo_state.issues[&number]),
    ))
}

pub(crate) fn new_pull(repo: &GitHubRepo, head: &str, base: &str, diff: &str) -> GitHubPullRequest {
    let head_sha = repo
        .branch(head)
        .unwrap_or_else(|| signature::fake_token(&format!("{} {head}", repo.full_name()), 40));
    let (head, base, diff) = (head.to_owned(), base.to_owned(), diff.to_owned());
    GitHubPullRequest {
        head,
        head_sha,
        base,
        is_draft: false,
        diff,
        comments: vec![],
    }
}

fn answer_one_pull(
    turn: &mut GitHubRequest<'_>,
    repo: &str,
    method: &str,
    number: u64,
) -> GitHubResult {
    let is_pull = turn
        .repo(repo)?
        .issues
        .get(&number)
        .is_some_and(|github_issue| github_issue.pull.is_some());
    if !is_pull {
        return Err(not_found());
    }
    if method == "PATCH" {
        issues::apply_patch(turn, repo, number)?;
    }
    let repo_state = turn.github.repo(repo).ok_or_else(not_found)?;
    let issue = &repo_state.issues[&number];
    if turn
        .request
        .header("accept")
        .is_some_and(|request| request.contains("diff"))
    {
        let diff = issue
            .pull
            .as_ref()
            .map(|github_pull_request| github_pull_request.diff.clone())
            .unwrap_or_default();
        return Ok(ServiceAnswer::ok(Value::String(diff))
            .with_header("content-type", "application/vnd.github.diff; charset=utf-8"));
    }
    Ok(ServiceAnswer::ok(payloads::pull(
        turn.github,
        repo_state,
        issue,
    )))
}

fn reply_to_comment(
    turn: &mut GitHubRequest<'_>,
    repo: &str,
    number: u64,
    id: u64,
) -> GitHubResult {
    let body = turn.body_text(true)?;
    let parent = turn
        .repo(repo)?
        .review_comment_mut(id)
        .ok_or_else(not_found)?
        .clone();
    if parent.in_reply_to.is_some() {
        return Err(invalid(
            ViolationKind::WrongState,
            "in_reply_to",
            "replies to replies are not supported",
        ));
    }
    let (login, slug) = (turn.app_login(), turn.app_slug());
    let made = turn.github.add_review_comment(
        turn.records,
        repo,
        number,
        (&login, Some(&slug)),
        (&parent.path, parent.line, Some(id), &body),
    );
    let repo_state = turn.github.repo(repo).ok_or_else(not_found)?;
    let made = turn
        .github
        .review_comments(repo, number)
        .iter()
        .find(|github_review_comment| github_review_comment.comment.id == made)
        .ok_or_else(not_found)?;
    Ok(ServiceAnswer::with_status(
        201,
        payloads::review_comment(turn.github, repo_state, number, made),
    ))
}

fn answer_review_comment(turn: &mut GitHubRequest<'_>, repo: &str, id: u64) -> GitHubResult {
    let body = turn.body_text(true)?;
    let (login, slug) = (turn.app_login(), turn.app_slug());
    let found = turn
        .repo(repo)?
        .review_comment_mut(id)
        .ok_or_else(not_found)?;
    if found.comment.user != login {
        let what = format!("a change of review comment {id} by {}", found.comment.user);
        turn.records
            .add_violation(&slug, ViolationKind::NotOwned, what);
        return Err(GitHubError {
            status: 403,
            message: "Must have admin rights to Repository.".into(),
            errors: Value::Null,
            violation: None,
        });
    }
    found.comment.body.clone_from(&body);
    found.comment.versions.push(body);
    found.comment.updated = signature::unix_time();
    let found = found.clone();
    let repo_state = turn.github.repo(repo).ok_or_else(not_found)?;
    let in_it = |github_issue: &&super::state::GitHubIssue| {
        github_issue
            .pull
            .as_ref()
            .is_some_and(|github_pull_request| {
                github_pull_request
                    .comments
                    .iter()
                    .any(|github_review_comment| github_review_comment.comment.id == id)
            })
    };
    let number = repo_state
        .issues
        .values()
        .find(in_it)
        .map_or(0, |github_issue| github_issue.number);
    Ok(ServiceAnswer::ok(payloads::review_comment(
        turn.github,
        repo_state,
        number,
        &found,
    )))
}

impl GitHubState {
    /// Adds a comment on a line, and queues the webhook about it. Returns the comment's id.
    pub(crate) fn add_review_comment(
        &mut self,
        ledger: &mut CallRecords,
        repo: &str,
        number: u64,
        (user, app): (&str, Option<&str>),
        (path, line, in_reply_to, body): (&str, u64, Option<u64>, &str),
    ) -> u64 {
        let comment = new_comment(ledger, user, app, body);
        let made = GitHubReviewComment {
            comment,
            path: path.to_owned(),
            line,
            in_reply_to,
        };
        let repo_state = self.repo_mut(repo).expect("there is such a repository");
        let pull = repo_state
            .issues
            .get_mut(&number)
            .and_then(|github_issue| github_issue.pull.as_mut())
            .expect("there is such a pull request");
        pull.comments.push(made.clone());
        let repo_state = self.repo(repo).expect("there is such a repository");
        let payload = json!({
            "pull_request": payloads::pull(self, repo_state, &repo_state.issues[&number]),
            "comment": payloads::review_comment(self, repo_state, number, &made),
        });
        self.queue_webhooks(
            ledger,
            repo,
            ("pull_request_review_comment", "created", user),
            payload,
            None,
        );
        made.comment.id
    }
}
