//! Tests of Linear's double: sessions by GraphQL, webhooks with retries, deadlines, limits and
//! faults.

use std::time::Duration;

use regatta_testkit::services::linear::{App, Linear};
use regatta_testkit::services::{Fault, Scale, Wrong};
use serde_json::{Value, json};

use crate::hook::Hook;
use crate::plain::{Got, PATIENCE, call};

const CREATE: &str = "mutation A($input: AgentActivityCreateInput!) { agentActivityCreate(input: $input) { success agentActivity { id } } }";

async fn ask(linear: &Linear, app: &App, query: &str, variables: Value) -> Got {
    let body = json!({"query": query, "variables": variables});
    call("POST", &format!("{}/graphql", linear.base_url()), &app.access_token, &body).await.expect("the request is answered")
}

async fn act(linear: &Linear, app: &App, session: &str, content: Value) -> Got {
    ask(linear, app, CREATE, json!({"input": {"agentSessionId": session, "content": content}})).await
}

async fn two() -> (Linear, App, App) {
    let linear = Linear::start().await;
    let (claude, codex) = (linear.app("claude"), linear.app("codex"));
    linear.person("ann");
    linear.issue("ENG-1", "Login fails", "Since Monday.");
    (linear, claude, codex)
}

#[tokio::test]
async fn session_changes_its_status_from_created_to_response() {
    let (linear, claude, _) = two().await;
    let mut hook = Hook::listen(|_| Some((200, String::new()))).await;
    linear.webhook("claude", &hook.url);
    let session = linear.delegate("ann", "ENG-1", "claude");
    let letter = hook.next().await;
    let said = letter.json();
    assert_eq!((letter.header("linear-event"), &said["action"]), ("AgentSessionEvent", &json!("created")));
    assert_eq!(
        (&said["agentSession"]["id"], &said["agentSession"]["issue"]["identifier"]),
        (&json!(session), &json!("ENG-1"))
    );
    assert!(said["promptContext"].as_str().unwrap().contains("Login fails"));
    assert_eq!(said["appUserId"], claude.app_user_id);
    assert_eq!(letter.header("linear-signature").len(), 64);
    assert!(said["webhookTimestamp"].is_u64() && said["agentActivity"].is_null());
    assert_eq!(linear.session(&session).status, "pending");
    let steps = [
        (json!({"type": "thought", "body": "Looking."}), "active"),
        (json!({"type": "action", "action": "Read", "parameter": "login.rs"}), "active"),
        (json!({"type": "elicitation", "body": "Which port?"}), "awaitingInput"),
    ];
    for (content, status) in steps {
        assert_eq!(act(&linear, &claude, &session, content).await.body["data"]["agentActivityCreate"]["success"], true);
        assert_eq!(linear.session(&session).status, status);
    }
    linear.prompt("ann", &session, "The usual.");
    let said = hook.next().await.json();
    assert_eq!(
        (&said["action"], &said["agentActivity"]["content"]["body"]),
        (&json!("prompted"), &json!("The usual."))
    );
    linear.stop("ann", &session);
    assert_eq!(hook.next().await.json()["agentActivity"]["signal"], "stop");
    assert_eq!(linear.session(&session).status, "stopping");
    act(&linear, &claude, &session, json!({"type": "response", "body": "Stopped."})).await;
    assert_eq!(linear.session(&session).status, "complete");
    linear.assert_well_behaved();
}

#[tokio::test]
async fn repeated_id_creates_one_activity_also_after_a_lost_answer() {
    let (linear, claude, codex) = two().await;
    let session = linear.delegate("ann", "ENG-1", "claude");
    let id = "0b0c0f4e-7f5c-4c3d-8f3b-1a2b3c4d5e6f";
    let input =
        json!({"input": {"agentSessionId": session, "id": id, "content": {"type": "response", "body": "Done."}}});
    linear.fail_next("agentActivityCreate", 1, Fault::DropAfterDoing);
    let body = json!({"query": CREATE, "variables": input});
    assert!(call("POST", &format!("{}/graphql", linear.base_url()), &claude.access_token, &body).await.is_none());
    let again = ask(&linear, &claude, CREATE, input.clone()).await.body;
    assert_eq!(again["data"]["agentActivityCreate"]["agentActivity"]["id"], id);
    assert_eq!(linear.activities(&session).len(), 1);
    let foreign = ask(&linear, &codex, CREATE, input).await.body;
    assert_eq!(foreign["errors"][0]["extensions"]["code"], "FORBIDDEN");
    assert_eq!(linear.violations().iter().map(|it| it.wrong).collect::<Vec<_>>(), [Wrong::Foreign]);
}

#[tokio::test]
async fn plans_links_and_pages_of_activities_can_be_read() {
    let (linear, claude, _) = two().await;
    let session = linear.mention("ann", "ENG-1", "claude", "fix it");
    let update = "mutation($id: String!, $input: AgentSessionUpdateInput!) { agentSessionUpdate(id: $id, input: $input) { success agentSession { plan externalUrls } } }";
    let plan = json!([{"content": "Look", "status": "inProgress"}]);
    let input = json!({"plan": plan, "externalUrls": [{"label": "Run", "url": "http://x"}], "summary": "Login"});
    let got = ask(&linear, &claude, update, json!({"id": session, "input": input})).await.body;
    assert_eq!(
        got["data"]["agentSessionUpdate"]["agentSession"],
        json!({"plan": plan, "externalUrls": [{"label": "Run", "url": "http://x"}]})
    );
    for at in 0..60 {
        act(&linear, &claude, &session, json!({"type": "thought", "body": at.to_string()})).await;
    }
    let page = "query($id: String!) { agentSession(id: $id) { status comment { body } activities(last: 2) { nodes { content { ... on AgentActivityThoughtContent { body } } } pageInfo { hasPreviousPage } } } }";
    let got = ask(&linear, &claude, page, json!({"id": session})).await.body["data"]["agentSession"].clone();
    assert_eq!((&got["status"], &got["comment"]["body"]), (&json!("active"), &json!("@claude fix it")));
    assert_eq!(got["activities"]["nodes"][1]["content"]["body"], "59");
    let got =
        ask(&linear, &claude, "{ agentSessions { nodes { id } } viewer { id app organization { id } } }", Value::Null)
            .await
            .body["data"]
            .clone();
    assert_eq!(
        (&got["agentSessions"]["nodes"][0]["id"], &got["viewer"]["id"]),
        (&json!(session), &json!(claude.app_user_id))
    );
    let begin = "mutation { agentSessionCreateOnIssue(input: { issueId: \"ENG-1\" }) { agentSession { id status } } }";
    let got = ask(&linear, &claude, begin, Value::Null).await.body;
    assert_eq!(got["data"]["agentSessionCreateOnIssue"]["agentSession"]["status"], "pending");
    linear.assert_well_behaved();
}

#[tokio::test]
async fn ephemeral_activity_disappears_with_the_next_activity() {
    let (linear, claude, _) = two().await;
    let session = linear.delegate("ann", "ENG-1", "claude");
    let input =
        json!({"input": {"agentSessionId": session, "ephemeral": true, "content": {"type": "thought", "body": "…"}}});
    ask(&linear, &claude, CREATE, input).await;
    assert_eq!(linear.session(&session).visible().count(), 1);
    act(&linear, &claude, &session, json!({"type": "response", "body": "Done."})).await;
    let of = linear.session(&session);
    assert_eq!(of.visible().map(|it| it.body()).collect::<Vec<_>>(), ["Done."]);
    assert_eq!(of.activities.len(), 2);
}

#[tokio::test]
async fn refused_webhook_is_repeated_after_one_minute_one_hour_and_six_hours() {
    let (linear, _, _) = two().await;
    linear.limits(Scale::faster(360_000.0));
    let mut hook = Hook::listen(|_| Some((500, String::new()))).await;
    linear.webhook("claude", &hook.url);
    linear.delegate("ann", "ENG-1", "claude");
    let letters = [hook.next().await, hook.next().await, hook.next().await, hook.next().await];
    assert!(letters.iter().all(|it| it.header("linear-delivery") == letters[0].header("linear-delivery")));
    assert!(letters[3].json()["webhookTimestamp"].as_u64() >= letters[0].json()["webhookTimestamp"].as_u64());
    linear.wait_for(|view| view.deliveries("claude")[0].attempts == 4, PATIENCE).await;
    assert!(!linear.deliveries("claude")[0].taken());
}

#[tokio::test]
async fn silent_session_is_unresponsive_after_10_seconds_and_stale_after_30_minutes() {
    let (linear, claude, _) = two().await;
    linear.limits(Scale::faster(6_000.0).deadlines(10.0));
    let mut hook = Hook::listen(|_| Some((200, String::new()))).await;
    linear.webhook("claude", &hook.url);
    let session = linear.delegate("ann", "ENG-1", "claude");
    hook.next().await;
    linear.wait_for(|view| view.session(&session).unwrap().unresponsive, PATIENCE).await;
    linear.limits(Scale::REAL.deadlines(18_000.0));
    act(&linear, &claude, &session, json!({"type": "thought", "body": "Sorry."})).await;
    linear.wait_for(|view| view.session(&session).unwrap().status == "stale", PATIENCE).await;
    assert!(linear.violations().iter().all(|it| it.wrong == Wrong::Late && it.by == "claude"));
    linear.limits(Scale::REAL);
    act(&linear, &claude, &session, json!({"type": "thought", "body": "Here."})).await;
    assert_eq!(linear.session(&session).status, "active", "the session is active again");
}

#[tokio::test]
async fn requests_that_linear_refuses_are_refused_and_recorded() {
    let (linear, claude, _) = two().await;
    let session = linear.delegate("ann", "ENG-1", "claude");
    let of = |content: Value| json!({"input": {"agentSessionId": session, "content": content}});
    let cases = [
        (CREATE, of(json!({"type": "thought"})), Wrong::Field),
        (CREATE, of(json!({"type": "prompt", "body": "x"})), Wrong::Field),
        (CREATE, of(json!({"type": "action", "action": "x"})), Wrong::Field),
        (CREATE, of(json!({"type": "thought", "body": "x", "title": "y"})), Wrong::Field),
        (
            CREATE,
            json!({"input": {"agentSessionId": session, "id": "7", "content": {"type": "thought", "body": "x"}}}),
            Wrong::Field,
        ),
        (
            CREATE,
            json!({"input": {"agentSessionId": session, "ephemeral": true, "content": {"type": "error", "body": "x"}}}),
            Wrong::Field,
        ),
        (CREATE, json!({"input": {"agentSession": session}}), Wrong::Unknown),
        (CREATE, json!({}), Wrong::Unknown),
        ("{ viewer { id shoeSize } }", json!({}), Wrong::Unknown),
        ("{ viewer }", json!({}), Wrong::Unknown),
        ("{ everything { id } }", json!({}), Wrong::Unknown),
        ("query($id: ID!) { agentSession(id: $id) { id } }", json!({"id": session}), Wrong::Unknown),
    ];
    for (query, variables, wrong) in &cases {
        let got = ask(&linear, &claude, query, variables.clone()).await;
        assert!(got.body["errors"][0]["message"].is_string(), "{query} {variables}: {}", got.body);
        assert_eq!(linear.violations().last().unwrap().wrong, *wrong, "{query} {variables}");
    }
    assert_eq!(linear.violations().len(), cases.len());
    let body = json!({"query": "{ viewer { id } }"});
    let url = format!("{}/graphql", linear.base_url());
    let bare = [("authorization", claude.access_token.as_str()), ("content-type", "application/json")];
    assert_eq!(
        crate::plain::ask("POST", &url, &bare, body.to_string()).await.unwrap().status,
        401,
        "Bearer is missing"
    );
    let gone = ask(
        &linear,
        &claude,
        CREATE,
        json!({"input": {"agentSessionId": "x", "content": {"type": "thought", "body": "x"}}}),
    )
    .await;
    assert!(gone.body["errors"][0]["message"].as_str().unwrap().starts_with("Entity not found"));
}

#[tokio::test]
async fn too_many_requests_are_refused_with_the_reset_time() {
    let (linear, claude, codex) = two().await;
    linear.requests_per_hour(5);
    for _ in 0..5 {
        assert_eq!(ask(&linear, &claude, "{ viewer { id } }", Value::Null).await.status, 200);
    }
    let refused = ask(&linear, &claude, "{ viewer { id } }", Value::Null).await;
    assert_eq!((refused.status, &refused.body["errors"][0]["extensions"]["code"]), (400, &json!("RATELIMITED")));
    let reset: u64 = refused.header("x-ratelimit-requests-reset").unwrap().parse().unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert!(Duration::from_millis(reset) > now, "the reset is in milliseconds and in the future");
    assert_eq!(ask(&linear, &codex, "{ viewer { id } }", Value::Null).await.status, 200);
}
