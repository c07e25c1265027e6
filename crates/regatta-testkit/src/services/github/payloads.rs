//! Formats objects as JSON, as GitHub's API and webhooks do.

use serde_json::{Value, json};

use super::super::signature;
use super::state::{
    CheckRun, GitHubApp, GitHubAppState, GitHubComment, GitHubDelivery, GitHubIssue, GitHubRepo,
    GitHubReviewComment, GitHubState,
};

const SITE_URL: &str = "https://github.com";

/// Returns a user id that is always the same for the same login.
fn user_number(login: &str) -> u64 {
    u64::from_str_radix(&signature::fake_token(login, 7), 16).unwrap_or(1)
}

pub(crate) fn user(login: &str) -> Value {
    let kind = if login.ends_with("[bot]") {
        "Bot"
    } else {
        "User"
    };
    json!({
        "login": login, "id": user_number(login), "node_id": format!("U_{}", signature::fake_token(login, 12)), "type": kind,
        "html_url": format!("{SITE_URL}/{login}"), "site_admin": false,
    })
}

pub(crate) fn app(of: &GitHubAppState) -> Value {
    let app = &of.app;
    json!({
        "id": app.id, "client_id": app.client_id, "slug": app.slug, "name": app.slug,
        "node_id": format!("A_{}", signature::fake_token(&app.slug, 12)), "owner": user("acme"),
        "html_url": format!("{SITE_URL}/apps/{}", app.slug), "events": of.events, "permissions": permissions(),
        "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z",
    })
}

pub(crate) fn permissions() -> Value {
    json!({"issues": "write", "pull_requests": "write", "checks": "write", "contents": "write", "metadata": "read"})
}

pub(crate) fn installation(app: &GitHubAppState, id: u64, owner: &str) -> Value {
    json!({
        "id": id, "app_id": app.app.id, "app_slug": app.app.slug, "account": user(owner), "target_type": "Organization",
        "repository_selection": "selected", "permissions": permissions(), "events": app.events, "suspended_at": null,
        "access_tokens_url": format!("https://api.github.com/app/installations/{id}/access_tokens"),
    })
}

pub(crate) fn repository(repo: &GitHubRepo) -> Value {
    json!({
        "id": repo.id, "node_id": format!("R_{}", repo.id), "name": repo.name, "full_name": repo.full_name(),
        "private": true, "owner": user(&repo.owner), "html_url": format!("{SITE_URL}/{}", repo.full_name()),
        "default_branch": "main", "clone_url": format!("{SITE_URL}/{}.git", repo.full_name()),
    })
}

fn association(repo: &GitHubRepo, login: &str) -> &'static str {
    match repo.people.get(login).map(String::as_str) {
        Some("admin") => "OWNER",
        Some("maintain" | "write" | "triage") => "COLLABORATOR",
        _ => "NONE",
    }
}

fn app_of_comment(world: &GitHubState, slug: Option<&String>) -> Value {
    let found = slug.and_then(|slug| {
        world
            .apps
            .iter()
            .find(|github_app_state| github_app_state.app.slug == *slug)
    });
    found.map_or(Value::Null, app)
}

fn reactions(comment: &GitHubComment) -> Value {
    let mut shown = json!({"total_count": comment.reactions.len()});
    for name in [
        "+1", "-1", "laugh", "hooray", "confused", "heart", "rocket", "eyes",
    ] {
        shown[name] = json!(
            comment
                .reactions
                .iter()
                .filter(|github_reaction| github_reaction.content == name)
                .count()
        );
    }
    shown
}

fn iso_time(unix_time: std::time::Duration) -> String {
    signature::iso_time(unix_time)
        .split('.')
        .next()
        .unwrap_or_default()
        .to_owned()
        + "Z"
}

pub(crate) fn comment(
    world: &GitHubState,
    repo: &GitHubRepo,
    number: u64,
    comment: &GitHubComment,
) -> Value {
    json!({
        "id": comment.id, "node_id": format!("IC_{}", comment.id), "body": comment.body, "user": user(&comment.user),
        "html_url": format!("{SITE_URL}/{}/issues/{number}#issuecomment-{}", repo.full_name(), comment.id),
        "issue_url": format!("https://api.github.com/repos/{}/issues/{number}", repo.full_name()),
        "created_at": iso_time(comment.created), "updated_at": iso_time(comment.updated),
        "author_association": association(repo, &comment.user), "reactions": reactions(comment),
        "performed_via_github_app": app_of_comment(world, comment.app.as_ref()),
    })
}

pub(crate) fn review_comment(
    world: &GitHubState,
    repo: &GitHubRepo,
    number: u64,
    of: &GitHubReviewComment,
) -> Value {
    let mut shown = comment(world, repo, number, &of.comment);
    let id = of.comment.id;
    shown["html_url"] = json!(format!(
        "{SITE_URL}/{}/pull/{number}#discussion_r{id}",
        repo.full_name()
    ));
    shown["pull_request_url"] = json!(format!(
        "https://api.github.com/repos/{}/pulls/{number}",
        repo.full_name()
    ));
    shown["path"] = json!(of.path);
    shown["line"] = json!(of.line);
    shown["side"] = json!("RIGHT");
    shown["diff_hunk"] = json!(format!("@@ -{0},1 +{0},1 @@", of.line));
    if let Some(object) = shown.as_object_mut() {
        object.remove("issue_url");
        object.remove("performed_via_github_app");
    }
    if let Some(parent) = of.in_reply_to {
        shown["in_reply_to_id"] = json!(parent);
    }
    shown
}

pub(crate) fn issue(world: &GitHubState, repo: &GitHubRepo, issue: &GitHubIssue) -> Value {
    let mut shown = json!({
        "id": issue.body.id, "node_id": format!("I_{}", issue.body.id), "number": issue.number, "title": issue.title,
        "body": issue.body.body, "user": user(&issue.body.user), "state": if issue.is_open { "open" } else { "closed" },
        "labels": issue.labels.iter().map(|label| json!({"name": label})).collect::<Vec<_>>(),
        "assignees": issue.assignees.iter().map(|assignee| user(assignee)).collect::<Vec<_>>(),
        "assignee": issue.assignees.first().map(|assignee| user(assignee)),
        "comments": issue.comments.len(), "html_url": format!("{SITE_URL}/{}/issues/{}", repo.full_name(), issue.number),
        "author_association": association(repo, &issue.body.user), "reactions": reactions(&issue.body),
        "created_at": iso_time(issue.body.created), "updated_at": iso_time(issue.body.updated),
        "performed_via_github_app": app_of_comment(world, issue.body.app.as_ref()),
    });
    if issue.pull.is_some() {
        let page = format!("{SITE_URL}/{}/pull/{}", repo.full_name(), issue.number);
        shown["html_url"] = json!(page);
        shown["pull_request"] = json!({
            "url": format!("https://api.github.com/repos/{}/pulls/{}", repo.full_name(), issue.number),
            "html_url": page, "diff_url": format!("{page}.diff"), "merged_at": null,
        });
    }
    shown
}

pub(crate) fn pull(world: &GitHubState, repo: &GitHubRepo, of: &GitHubIssue) -> Value {
    let Some(own) = &of.pull else {
        return Value::Null;
    };
    let mut shown = issue(world, repo, of);
    if let Some(object) = shown.as_object_mut() {
        object.remove("pull_request");
        object.remove("performed_via_github_app");
    }
    let side = |name: &str, sha: &str| {
        let label = format!("{}:{name}", repo.owner);
        json!({"ref": name, "sha": sha, "label": label, "repo": repository(repo), "user": user(&repo.owner)})
    };
    shown["head"] = side(&own.head, &own.head_sha);
    shown["base"] = side(&own.base, &repo.branch(&own.base).unwrap_or_default());
    shown["draft"] = json!(own.is_draft);
    shown["merged"] = json!(false);
    shown["mergeable"] = json!(true);
    shown["review_comments"] = json!(own.comments.len());
    shown
}

pub(crate) fn check(world: &GitHubState, repo: &GitHubRepo, check_run: &CheckRun) -> Value {
    let owner = world
        .apps
        .iter()
        .find(|github_app_state| github_app_state.app.slug == check_run.app);
    let mut shown = json!({
        "id": check_run.id, "node_id": format!("CR_{}", check_run.id), "name": check_run.name, "head_sha": check_run.head_sha,
        "status": check_run.status, "conclusion": check_run.conclusion, "app": owner.map(app), "pull_requests": [],
        "html_url": format!("{SITE_URL}/{}/runs/{}", repo.full_name(), check_run.id), "check_suite": {"id": check_run.id + 1},
        "external_id": "", "details_url": null, "started_at": null, "completed_at": null,
        "output": {"title": null, "summary": null, "text": null, "annotations_count": 0},
    });
    for name in [
        "external_id",
        "details_url",
        "started_at",
        "completed_at",
        "output",
    ] {
        if let Some(said) = check_run.fields.get(name) {
            shown[name] = said.clone();
        }
    }
    shown
}

pub(crate) fn reaction(reaction: &super::state::GitHubReaction) -> Value {
    json!({"id": reaction.id, "node_id": format!("REA_{}", reaction.id), "user": user(&reaction.user), "content": reaction.content,
        "created_at": iso_time(signature::unix_time())})
}

pub(crate) fn delivery(
    world: &GitHubState,
    of: &GitHubDelivery,
    whole: Option<&GitHubApp>,
) -> Value {
    let repository = of.payload["repository"]["id"].clone();
    let mut shown = json!({
        "id": of.id, "guid": of.guid, "delivered_at": signature::iso_time(of.delivered_at), "redelivery": of.is_redelivery,
        "duration": 0.1, "status": of.status, "status_code": of.status_code.unwrap_or(0), "event": of.event,
        "action": if of.action.is_empty() { Value::Null } else { json!(of.action) },
        "installation_id": of.installation, "repository_id": repository, "throttled_at": null,
    });
    if let Some(app) = whole {
        let url = world
            .apps
            .iter()
            .find(|github_app_state| github_app_state.app.id == app.id)
            .and_then(|github_app_state| github_app_state.webhook.clone());
        shown["url"] = json!(url);
        shown["request"] = json!({
            "headers": {"X-GitHub-Delivery": of.guid, "X-GitHub-Event": of.event}, "payload": of.payload,
        });
        shown["response"] = json!({"headers": {}, "payload": null});
    }
    shown
}
