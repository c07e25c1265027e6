//! Imitates GitHub's issues, their comments, and the reactions to both.

use serde_json::{Value, json};

use super::super::double::{ServiceAnswer, ViolationKind};
use super::super::signature;
use super::payloads;
use super::routes::{GitHubError, GitHubRequest, GitHubResult, invalid, not_found};
use super::state::{GitHubComment, GitHubIssue, GitHubReaction};

const REACTION_CONTENTS: [&str; 8] = [
    "+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes",
];

pub(crate) fn parse_number(number: &str) -> Result<u64, GitHubError> {
    number.parse().map_err(|_| not_found())
}

pub(crate) fn answer_issue(
    turn: &mut GitHubRequest<'_>,
    repo: &str,
    method: &str,
    rest: &[&str],
) -> GitHubResult {
    match (method, rest) {
        (_, ["comments", id]) => answer_comment(turn, repo, method, parse_number(id)?),
        (_, ["comments", id, "reactions", rest @ ..]) => {
            let id = parse_number(id)?;
            let of = &mut turn
                .repo(repo)?
                .comment_mut(id)
                .ok_or_else(not_found)?
                .1
                .clone();
            let answered = answer_reactions(turn, method, rest, of)?;
            turn.repo(repo)?
                .comment_mut(id)
                .ok_or_else(not_found)?
                .1
                .reactions
                .clone_from(&of.reactions);
            Ok(answered)
        }
        ("POST", []) => create_issue(turn, repo),
        (_, [number]) => answer_one_issue(turn, repo, method, parse_number(number)?),
        ("GET", [number, "comments"]) => {
            let number = parse_number(number)?;
            turn.repo(repo)?.issues.get(&number).ok_or_else(not_found)?;
            let since = turn.request.query("since").unwrap_or_default();
            let repo_state = turn.github.repo(repo).ok_or_else(not_found)?;
            let all = turn
                .github
                .comments(repo, number)
                .iter()
                .filter(|github_comment| *signature::iso_time(github_comment.updated) >= *since);
            let all = all
                .map(|github_comment| {
                    payloads::comment(turn.github, repo_state, number, github_comment)
                })
                .collect();
            Ok(turn.page(all, None))
        }
        ("POST", [number, "comments"]) => {
            let (number, body) = (parse_number(number)?, turn.body_text(true)?);
            turn.repo(repo)?.issues.get(&number).ok_or_else(not_found)?;
            let (login, slug) = (turn.app_login(), turn.app_slug());
            let id =
                turn.github
                    .add_comment(turn.records, repo, number, (&login, Some(&slug)), &body);
            Ok(ServiceAnswer::with_status(
                201,
                comment_json(turn, repo, id)?,
            ))
        }
        (_, [number, "reactions", rest @ ..]) => {
            let number = parse_number(number)?;
            let of = &mut turn
                .repo(repo)?
                .issues
                .get(&number)
                .ok_or_else(not_found)?
                .body
                .clone();
            let answered = answer_reactions(turn, method, rest, of)?;
            let issue = turn
                .repo(repo)?
                .issues
                .get_mut(&number)
                .ok_or_else(not_found)?;
            issue.body.reactions.clone_from(&of.reactions);
            Ok(answered)
        }
        _ => Err(not_found()),
    }
}

/// Answers requests that list, add or remove reactions.
pub(crate) fn answer_reactions(
    turn: &mut GitHubRequest<'_>,
    method: &str,
    rest: &[&str],
    of: &mut GitHubComment,
) -> GitHubResult {
    let login = turn.app_login();
    match (method, rest) {
        ("GET", []) => Ok(turn.page(of.reactions.iter().map(payloads::reaction).collect(), None)),
        ("POST", []) => {
            let content = turn.required_text("content")?;
            if !REACTION_CONTENTS.contains(&content.as_str()) {
                return Err(invalid(
                    ViolationKind::BadField,
                    "content",
                    "content is not one of GitHub's eight reactions",
                ));
            }
            if let Some(had) = of.reactions.iter().find(|github_reaction| {
                github_reaction.content == content && github_reaction.user == login
            }) {
                return Ok(ServiceAnswer::ok(payloads::reaction(had)));
            }
            let added = GitHubReaction {
                id: turn.records.next(),
                content,
                user: login,
            };
            of.reactions.push(added.clone());
            Ok(ServiceAnswer::with_status(201, payloads::reaction(&added)))
        }
        ("DELETE", [id]) => {
            let id = parse_number(id)?;
            let index = of
                .reactions
                .iter()
                .position(|github_reaction| github_reaction.id == id)
                .ok_or_else(not_found)?;
            of.reactions.remove(index);
            Ok(ServiceAnswer::with_status(204, Value::Null))
        }
        _ => Err(not_found()),
    }
}

fn comment_json(turn: &mut GitHubRequest<'_>, repo: &str, id: u64) -> Result<Value, GitHubError> {
    let (number, comment) = turn
        .repo(repo)?
        .comment_mut(id)
        .map(|turn| (turn.0, turn.1.clone()))
        .ok_or_else(not_found)?;
    let repo_state = turn.github.repo(repo).ok_or_else(not_found)?;
    Ok(payloads::comment(turn.github, repo_state, number, &comment))
}

fn answer_comment(turn: &mut GitHubRequest<'_>, repo: &str, method: &str, id: u64) -> GitHubResult {
    let (number, found) = turn
        .repo(repo)?
        .comment_mut(id)
        .map(|turn| (turn.0, turn.1.clone()))
        .ok_or_else(not_found)?;
    if method == "GET" {
        return Ok(ServiceAnswer::ok(comment_json(turn, repo, id)?));
    }
    let (login, slug) = (turn.app_login(), turn.app_slug());
    if found.user != login {
        // GitHub lets an app with write access change comments of others. But if Regatta's bridge
        // to GitHub does so, that is a bug.
        turn.records.add_violation(
            &slug,
            ViolationKind::NotOwned,
            format!("{method} of comment {id} by {}", found.user),
        );
        return Err(GitHubError {
            status: 403,
            message: "Must have admin rights to Repository.".into(),
            errors: Value::Null,
            violation: None,
        });
    }
    if method == "DELETE" {
        turn.github
            .delete_comment(turn.records, repo, (number, id), &login);
        return Ok(ServiceAnswer::with_status(204, Value::Null));
    }
    let body = turn.body_text(true)?;
    turn.github
        .edit_comment(turn.records, repo, id, &login, &body);
    Ok(ServiceAnswer::ok(comment_json(turn, repo, id)?))
}

fn create_issue(turn: &mut GitHubRequest<'_>, repo: &str) -> GitHubResult {
    let (title, body) = (turn.required_text("title")?, turn.body_text(false)?);
    turn.repo(repo)?;
    let (login, slug) = (turn.app_login(), turn.app_slug());
    let number = turn.github.open(
        turn.records,
        repo,
        (&login, Some(&slug)),
        (&title, &body),
        None,
    );
    let repo_state = turn.github.repo(repo).ok_or_else(not_found)?;
    Ok(ServiceAnswer::with_status(
        201,
        payloads::issue(turn.github, repo_state, &repo_state.issues[&number]),
    ))
}

/// Changes an issue or a pull request as the fields of a PATCH request say.
pub(crate) fn apply_patch(
    turn: &mut GitHubRequest<'_>,
    repo: &str,
    number: u64,
) -> Result<(), GitHubError> {
    let (title, state) = (turn.input["title"].as_str(), turn.input["state"].as_str());
    let body = if turn.input["body"].is_null() {
        None
    } else {
        Some(turn.body_text(false)?)
    };
    if state.is_some_and(|state| state != "open" && state != "closed") {
        return Err(invalid(
            ViolationKind::BadField,
            "state",
            "state must be open or closed",
        ));
    }
    let (title, state) = (title.map(str::to_owned), state.map(str::to_owned));
    let issue = turn
        .repo(repo)?
        .issues
        .get_mut(&number)
        .ok_or_else(not_found)?;
    if let Some(title) = title {
        issue.title = title;
    }
    if let Some(body) = body {
        issue.body.body.clone_from(&body);
        issue.body.versions.push(body);
        issue.body.updated = signature::unix_time();
    }
    if let Some(state) = state {
        issue.is_open = state == "open";
    }
    Ok(())
}

fn answer_one_issue(
    turn: &mut GitHubRequest<'_>,
    repo: &str,
    method: &str,
    number: u64,
) -> GitHubResult {
    turn.repo(repo)?.issues.get(&number).ok_or_else(not_found)?;
    if method == "PATCH" {
        apply_patch(turn, repo, number)?;
    }
    let repo_state = turn.github.repo(repo).ok_or_else(not_found)?;
    Ok(ServiceAnswer::ok(payloads::issue(
        turn.github,
        repo_state,
        &repo_state.issues[&number],
    )))
}

impl super::state::GitHubState {
    /// Opens an issue or a pull request, and queues the webhook about it. Returns its number.
    pub(crate) fn open(
        &mut self,
        ledger: &mut super::super::double::CallRecords,
        repo: &str,
        (user, app): (&str, Option<&str>),
        (title, body): (&str, &str),
        pull: Option<super::state::GitHubPullRequest>,
    ) -> u64 {
        let repo_state = self.repo_mut(repo).expect("there is such a repository");
        let number = repo_state.issues.keys().last().copied().unwrap_or(0) + 1;
        let is_pull = pull.is_some();
        let (text, title) = (new_comment(ledger, user, app, body), title.to_owned());
        let issue = GitHubIssue {
            number,
            title,
            body: text,
            is_open: true,
            labels: vec![],
            assignees: vec![],
            comments: vec![],
            pull,
        };
        repo_state.issues.insert(number, issue);
        let (event, payload) = self.webhook_subject(repo, number);
        debug_assert_eq!(is_pull, event == "pull_request");
        self.queue_webhooks(ledger, repo, (event, "opened", user), payload, None);
        number
    }

    /// Returns the name of the webhook event for an issue or a pull request, and the JSON that
    /// describes the object in it.
    pub(crate) fn webhook_subject(&self, repo: &str, number: u64) -> (&'static str, Value) {
        let repo_state = self.repo(repo).expect("there is such a repository");
        let issue = &repo_state.issues[&number];
        if issue.pull.is_some() {
            return (
                "pull_request",
                json!({"number": number, "pull_request": payloads::pull(self, repo_state, issue)}),
            );
        }
        (
            "issues",
            json!({"issue": payloads::issue(self, repo_state, issue)}),
        )
    }

    fn comment_payload(&self, repo: &str, number: u64, comment: &GitHubComment) -> Value {
        let repo_state = self.repo(repo).expect("there is such a repository");
        let issue = payloads::issue(self, repo_state, &repo_state.issues[&number]);
        json!({"issue": issue, "comment": payloads::comment(self, repo_state, number, comment)})
    }

    /// Adds a comment, and queues the webhook about it. Returns the comment's id.
    pub(crate) fn add_comment(
        &mut self,
        ledger: &mut super::super::double::CallRecords,
        repo: &str,
        number: u64,
        (user, app): (&str, Option<&str>),
        body: &str,
    ) -> u64 {
        let comment = new_comment(ledger, user, app, body);
        let repo_state = self.repo_mut(repo).expect("there is such a repository");
        repo_state
            .issues
            .get_mut(&number)
            .expect("there is such an issue")
            .comments
            .push(comment.clone());
        let payload = self.comment_payload(repo, number, &comment);
        self.queue_webhooks(
            ledger,
            repo,
            ("issue_comment", "created", user),
            payload,
            None,
        );
        comment.id
    }

    /// Changes a comment, and queues the webhook about it.
    pub(crate) fn edit_comment(
        &mut self,
        ledger: &mut super::super::double::CallRecords,
        repo: &str,
        id: u64,
        user: &str,
        body: &str,
    ) {
        let repo_state = self.repo_mut(repo).expect("there is such a repository");
        let (number, comment) = repo_state.comment_mut(id).expect("there is such a comment");
        let before = std::mem::replace(&mut comment.body, body.to_owned());
        comment.versions.push(body.to_owned());
        comment.updated = signature::unix_time();
        let comment = comment.clone();
        let mut payload = self.comment_payload(repo, number, &comment);
        payload["changes"] = json!({"body": {"from": before}});
        self.queue_webhooks(
            ledger,
            repo,
            ("issue_comment", "edited", user),
            payload,
            None,
        );
    }

    /// Deletes a comment, and queues the webhook about it.
    pub(crate) fn delete_comment(
        &mut self,
        ledger: &mut super::super::double::CallRecords,
        repo: &str,
        (number, id): (u64, u64),
        user: &str,
    ) {
        let repo_state = self.repo_mut(repo).expect("there is such a repository");
        let removed = repo_state
            .comment_mut(id)
            .expect("there is such a comment")
            .1
            .clone();
        let payload = self.comment_payload(repo, number, &removed);
        let repo_state = self.repo_mut(repo).expect("there is such a repository");
        repo_state
            .issues
            .get_mut(&number)
            .expect("there is such an issue")
            .comments
            .retain(|github_comment| github_comment.id != id);
        self.queue_webhooks(
            ledger,
            repo,
            ("issue_comment", "deleted", user),
            payload,
            None,
        );
    }
}

/// Returns a new comment by this user. The text of an issue is a comment too.
pub(crate) fn new_comment(
    ledger: &mut super::super::double::CallRecords,
    user: &str,
    app: Option<&str>,
    body: &str,
) -> GitHubComment {
    let now = signature::unix_time();
    GitHubComment {
        id: 1_000_000 + ledger.next(),
        user: user.to_owned(),
        app: app.map(str::to_owned),
        body: body.to_owned(),
        reactions: vec![],
        created: now,
        updated: now,
        versions: vec![body.to_owned()],
    }
}
