//! Formats objects as JSON, as Linear's API and webhooks do. Every field of a type is present. A
//! field without a value is null.

use serde_json::{Value, json};

use super::super::signature;
use super::state::{LinearComment, LinearIssue, LinearSession, LinearState, SessionActivity};

pub(crate) fn now_text() -> String {
    signature::iso_time(signature::unix_time())
}

pub(crate) fn user(world: &LinearState, id: &str) -> Value {
    let app = world
        .apps
        .iter()
        .find(|linear_app_state| linear_app_state.app.app_user_id == id)
        .map(|linear_app_state| linear_app_state.app.name.clone());
    let person = world
        .people
        .iter()
        .find(|people| people.0 == id)
        .map(|people| people.1.clone());
    let is_app = app.is_some();
    let Some(name) = app.or(person) else {
        return Value::Null;
    };
    let mut shown = json!({
        "__typename": "User", "id": id, "name": name, "displayName": name, "email": format!("{name}@example.com"),
        "url": format!("https://linear.app/regatta/profiles/{name}"), "active": true, "app": is_app, "isMe": is_app,
        "admin": false, "guest": false, "owner": false, "isAssignable": is_app, "isMentionable": is_app,
        "supportsAgentSessions": is_app, "canAccessAnyPublicTeam": true, "createdAt": now_text(), "updatedAt": now_text(),
        "createdIssueCount": 0, "avatarBackgroundColor": "#000000", "initials": "X", "inviteHash": "", "calendarHash": null,
    });
    let empty = [
        "description",
        "avatarUrl",
        "statusUntilAt",
        "statusEmoji",
        "lastSeen",
        "timezone",
        "disableReason",
        "statusLabel",
        "archivedAt",
        "gitHubUserId",
        "title",
    ];
    for name in empty {
        shown[name] = Value::Null;
    }
    shown["organization"] = organization(world);
    shown
}

pub(crate) fn organization(world: &LinearState) -> Value {
    json!({"__typename": "Organization", "id": world.organization, "name": "Regatta", "urlKey": "regatta"})
}

pub(crate) fn issue(world: &LinearState, issue: &LinearIssue) -> Value {
    let team = json!({"__typename": "Team", "id": signature::fake_uuid("team"), "key": "ENG", "name": "Engineering"});
    json!({
        "__typename": "Issue", "id": issue.id, "identifier": issue.identifier, "title": issue.title,
        "description": issue.description, "url": format!("https://linear.app/regatta/issue/{}", issue.identifier),
        "branchName": issue.identifier.to_lowercase(), "createdAt": now_text(), "updatedAt": now_text(), "archivedAt": null,
        "team": team, "assignee": null, "priority": 0, "number": 1,
        "delegate": issue.delegate.as_ref().map(|delegate| user(world, delegate)),
        "state": {"__typename": "WorkflowState", "id": signature::fake_uuid("state"), "name": "Todo", "type": "unstarted"},
    })
}

pub(crate) fn comment(world: &LinearState, comment: &LinearComment) -> Value {
    json!({
        "__typename": "Comment", "id": comment.id, "body": comment.body, "user": user(world, &comment.user), "parent": null,
        "issue": world.issue(&comment.issue).map(|linear_issue| issue(world, linear_issue)), "createdAt": now_text(), "updatedAt": now_text(),
        "archivedAt": null, "url": format!("https://linear.app/regatta/comment/{}", comment.id),
    })
}

pub(crate) fn activity(world: &LinearState, session: &str, activity: &SessionActivity) -> Value {
    let mut content = activity.content.clone();
    let name: String = activity.kind[..1].to_uppercase() + &activity.kind[1..];
    content["__typename"] = json!(format!("AgentActivity{name}Content"));
    for field in match activity.kind.as_str() {
        "action" => &["result"][..],
        "error" => &["reasonCode"],
        "prompt" => &["title"],
        _ => &[],
    } {
        if content.get(field).is_none() {
            content[field] = Value::Null;
        }
    }
    json!({
        "__typename": "AgentActivity", "id": activity.id, "agentSession": {"__typename": "AgentSession", "id": session},
        "content": content, "ephemeral": activity.is_ephemeral, "signal": activity.signal, "signalMetadata": activity.signal_metadata,
        "sourceMetadata": null, "sourceComment": null, "user": user(world, &activity.user), "createdAt": now_text(),
        "updatedAt": now_text(), "archivedAt": null,
    })
}

pub(crate) fn session(world: &LinearState, session: &LinearSession) -> Value {
    let app = world
        .apps
        .iter()
        .find(|linear_app_state| linear_app_state.app.name == session.app)
        .map(|linear_app_state| linear_app_state.app.app_user_id.clone());
    let comment = session.comment.as_ref().and_then(|id| {
        world
            .comments
            .iter()
            .find(|linear_comment| linear_comment.id == *id)
    });
    let urls: Vec<Value> = session
        .external_urls
        .iter()
        .map(|external_url| json!({"label": external_url.0, "url": external_url.1}))
        .collect();
    let links = session.external_urls.iter();
    let links: Vec<Value> = links
        .map(|link| json!({"__typename": "AgentSessionExternalLink", "label": link.0, "url": link.1}))
        .collect();
    let activities: Vec<Value> = session
        .visible_activities()
        .map(|session_activity| activity(world, &session.id, session_activity))
        .collect();
    json!({
        "__typename": "AgentSession", "id": session.id, "status": session.status, "plan": session.plan, "externalUrls": urls,
        "externalLinks": links, "externalLink": null, "summary": session.summary, "slugId": &session.id[..8],
        "url": format!("https://linear.app/regatta/session/{}", session.id), "type": "commentThread", "context": {},
        "appUser": app.map(|app| user(world, &app)), "creator": session.creator.as_ref().map(|creator| user(world, creator)),
        "issue": session.issue.as_ref().and_then(|issue| world.issue(issue)).map(|linear_issue| issue(world, linear_issue)),
        "comment": comment.map(|linear_comment| self::comment(world, linear_comment)), "sourceComment": null, "sourceMetadata": null,
        "activities": {"__typename": "AgentActivityConnection", "nodes": activities}, "createdAt": now_text(),
        "updatedAt": now_text(), "startedAt": null, "endedAt": null, "archivedAt": null, "dismissedAt": null,
        "dismissedBy": null,
    })
}

/// Converts an object from the API's format to the format of webhooks. Webhooks have no type names
/// and no lists with cursors, but they have the id of each nested object in an additional field.
pub(crate) fn webhook_json(mut value: Value, organization: &str) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.remove("__typename");
                fields.remove("activities");
                fields.values_mut().for_each(strip);
            }
            Value::Array(list) => list.iter_mut().for_each(strip),
            _ => {}
        }
    }
    strip(&mut value);
    for (field, of) in [
        ("issueId", "issue"),
        ("commentId", "comment"),
        ("creatorId", "creator"),
        ("appUserId", "appUser"),
        ("userId", "user"),
        ("agentSessionId", "agentSession"),
    ] {
        if value.get(of).is_some() {
            value[field] = value[of]["id"].clone();
        }
    }
    value["organizationId"] = json!(organization);
    value
}
