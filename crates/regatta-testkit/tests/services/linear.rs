//! Tests of Linear's double: sessions by GraphQL, webhooks with retries, deadlines, limits and
//! faults.

use std::time::Duration;

use regatta_testkit::services::linear::{Linear, LinearApp};
use regatta_testkit::services::{ServiceFault, TimeScale, ViolationKind};
use serde_json::{Value, json};

use crate::http_client::{TEST_TIMEOUT, TestResponse, call_json};
use crate::webhook_server::TestWebhookServer;

const CREATE_ACTIVITY: &str = "mutation A($input: AgentActivityCreateInput!) { \
    agentActivityCreate(input: $input) { success agentActivity { id } } }";

async fn run_query(
    linear: &Linear,
    app: &LinearApp,
    query: &str,
    variables: Value,
) -> TestResponse {
    let body = json!({"query": query, "variables": variables});
    call_json(
        "POST",
        &format!("{}/graphql", linear.base_url()),
        &app.access_token,
        &body,
    )
    .await
    .expect("the request is answered")
}

async fn create_activity(
    linear: &Linear,
    app: &LinearApp,
    session: &str,
    content: Value,
) -> TestResponse {
    run_query(
        linear,
        app,
        CREATE_ACTIVITY,
        json!({"input": {"agentSessionId": session, "content": content}}),
    )
    .await
}

async fn start_with_two_apps() -> (Linear, LinearApp, LinearApp) {
    let linear = Linear::start().await;
    let (claude, codex) = (linear.add_app("claude"), linear.add_app("codex"));
    linear.add_person("ann");
    linear.add_issue("ENG-1", "Login fails", "Since Monday.");
    (linear, claude, codex)
}

#[tokio::test]
async fn session_changes_its_status_from_created_to_response() {
    let (linear, claude, _) = start_with_two_apps().await;
    let mut hook = TestWebhookServer::listen(|_| Some((200, String::new()))).await;
    linear.set_webhook_url("claude", &hook.url);
    let session = linear.delegate("ann", "ENG-1", "claude");
    let letter = hook.next().await;
    let payload = letter.json();
    assert_eq!(
        (letter.header("linear-event"), &payload["action"]),
        ("AgentSessionEvent", &json!("created"))
    );
    assert_eq!(
        (
            &payload["agentSession"]["id"],
            &payload["agentSession"]["issue"]["identifier"]
        ),
        (&json!(session), &json!("ENG-1"))
    );
    assert!(
        payload["promptContext"]
            .as_str()
            .unwrap()
            .contains("Login fails")
    );
    assert_eq!(payload["appUserId"], claude.app_user_id);
    assert_eq!(letter.header("linear-signature").len(), 64);
    assert!(payload["webhookTimestamp"].is_u64() && payload["agentActivity"].is_null());
    assert_eq!(linear.session(&session).status, "pending");
    let steps = [
        (json!({"type": "thought", "body": "Looking."}), "active"),
        (
            json!({"type": "action", "action": "Read", "parameter": "login.rs"}),
            "active",
        ),
        (
            json!({"type": "elicitation", "body": "Which port?"}),
            "awaitingInput",
        ),
    ];
    for (content, status) in steps {
        assert_eq!(
            create_activity(&linear, &claude, &session, content)
                .await
                .body["data"]["agentActivityCreate"]["success"],
            true
        );
        assert_eq!(linear.session(&session).status, status);
    }
    linear.send_prompt("ann", &session, "The usual.");
    let payload = hook.next().await.json();
    assert_eq!(
        (
            &payload["action"],
            &payload["agentActivity"]["content"]["body"]
        ),
        (&json!("prompted"), &json!("The usual."))
    );
    linear.press_stop("ann", &session);
    assert_eq!(hook.next().await.json()["agentActivity"]["signal"], "stop");
    assert_eq!(linear.session(&session).status, "stopping");
    create_activity(
        &linear,
        &claude,
        &session,
        json!({"type": "response", "body": "Stopped."}),
    )
    .await;
    assert_eq!(linear.session(&session).status, "complete");
    linear.assert_well_behaved();
}

#[tokio::test]
async fn repeated_id_creates_one_activity_also_after_a_lost_answer() {
    let (linear, claude, codex) = start_with_two_apps().await;
    let session = linear.delegate("ann", "ENG-1", "claude");
    let id = "0b0c0f4e-7f5c-4c3d-8f3b-1a2b3c4d5e6f";
    let input = json!({"input": {"agentSessionId": session, "id": id, "content": {"type": "response", "body": "Done."}}});
    linear.fail_next("agentActivityCreate", 1, ServiceFault::DropAfterCall);
    let body = json!({"query": CREATE_ACTIVITY, "variables": input});
    assert!(
        call_json(
            "POST",
            &format!("{}/graphql", linear.base_url()),
            &claude.access_token,
            &body
        )
        .await
        .is_none()
    );
    let again = run_query(&linear, &claude, CREATE_ACTIVITY, input.clone())
        .await
        .body;
    assert_eq!(
        again["data"]["agentActivityCreate"]["agentActivity"]["id"],
        id
    );
    assert_eq!(linear.activities(&session).len(), 1);
    let foreign = run_query(&linear, &codex, CREATE_ACTIVITY, input)
        .await
        .body;
    assert_eq!(foreign["errors"][0]["extensions"]["code"], "FORBIDDEN");
    assert_eq!(
        linear
            .violations()
            .iter()
            .map(|violation| violation.kind)
            .collect::<Vec<_>>(),
        [ViolationKind::NotOwned]
    );
}

#[tokio::test]
async fn plans_links_and_pages_of_activities_can_be_read() {
    let (linear, claude, _) = start_with_two_apps().await;
    let session = linear.mention("ann", "ENG-1", "claude", "fix it");
    let update = "mutation($id: String!, $input: AgentSessionUpdateInput!) { \
        agentSessionUpdate(id: $id, input: $input) { success agentSession { plan externalUrls } } \
        }";
    let plan = json!([{"content": "Look", "status": "inProgress"}]);
    let input = json!({"plan": plan, "externalUrls": [{"label": "Run", "url": "http://x"}], "summary": "Login"});
    let answer = run_query(
        &linear,
        &claude,
        update,
        json!({"id": session, "input": input}),
    )
    .await
    .body;
    assert_eq!(
        answer["data"]["agentSessionUpdate"]["agentSession"],
        json!({"plan": plan, "externalUrls": [{"label": "Run", "url": "http://x"}]})
    );
    for at in 0..60 {
        create_activity(
            &linear,
            &claude,
            &session,
            json!({"type": "thought", "body": at.to_string()}),
        )
        .await;
    }
    let page = "query($id: String!) { agentSession(id: $id) { status comment { body } \
        activities(last: 2) { nodes { content { ... on AgentActivityThoughtContent { body } } } \
        pageInfo { hasPreviousPage } } } }";
    let answer = run_query(&linear, &claude, page, json!({"id": session}))
        .await
        .body["data"]["agentSession"]
        .clone();
    assert_eq!(
        (&answer["status"], &answer["comment"]["body"]),
        (&json!("active"), &json!("@claude fix it"))
    );
    assert_eq!(answer["activities"]["nodes"][1]["content"]["body"], "59");
    let answer = run_query(
        &linear,
        &claude,
        "{ agentSessions { nodes { id } } viewer { id app organization { id } } }",
        Value::Null,
    )
    .await
    .body["data"]
        .clone();
    assert_eq!(
        (
            &answer["agentSessions"]["nodes"][0]["id"],
            &answer["viewer"]["id"]
        ),
        (&json!(session), &json!(claude.app_user_id))
    );
    let begin = "mutation { agentSessionCreateOnIssue(input: { issueId: \"ENG-1\" }) { \
        agentSession { id status } } }";
    let answer = run_query(&linear, &claude, begin, Value::Null).await.body;
    assert_eq!(
        answer["data"]["agentSessionCreateOnIssue"]["agentSession"]["status"],
        "pending"
    );
    linear.assert_well_behaved();
}

#[tokio::test]
async fn ephemeral_activity_disappears_with_the_next_activity() {
    let (linear, claude, _) = start_with_two_apps().await;
    let session = linear.delegate("ann", "ENG-1", "claude");
    let input = json!({"input": {"agentSessionId": session, "ephemeral": true, "content": {"type": "thought", "body": "…"}}});
    run_query(&linear, &claude, CREATE_ACTIVITY, input).await;
    assert_eq!(linear.session(&session).visible_activities().count(), 1);
    create_activity(
        &linear,
        &claude,
        &session,
        json!({"type": "response", "body": "Done."}),
    )
    .await;
    let session_state = linear.session(&session);
    assert_eq!(
        session_state
            .visible_activities()
            .map(|session_activity| session_activity.body())
            .collect::<Vec<_>>(),
        ["Done."]
    );
    assert_eq!(session_state.activities.len(), 2);
}

#[tokio::test]
async fn refused_webhook_is_repeated_after_one_minute_one_hour_and_six_hours() {
    let (linear, _, _) = start_with_two_apps().await;
    linear.set_time_scale(TimeScale::with_faster_limits(360_000.0));
    let mut hook = TestWebhookServer::listen(|_| Some((500, String::new()))).await;
    linear.set_webhook_url("claude", &hook.url);
    linear.delegate("ann", "ENG-1", "claude");
    let letters = [
        hook.next().await,
        hook.next().await,
        hook.next().await,
        hook.next().await,
    ];
    assert!(letters.iter().all(
        |received_webhook| received_webhook.header("linear-delivery")
            == letters[0].header("linear-delivery")
    ));
    assert!(
        letters[3].json()["webhookTimestamp"].as_u64()
            >= letters[0].json()["webhookTimestamp"].as_u64()
    );
    linear
        .wait_for(
            |view| view.deliveries("claude")[0].attempts == 4,
            TEST_TIMEOUT,
        )
        .await;
    assert!(!linear.deliveries("claude")[0].is_accepted());
}

#[tokio::test]
async fn silent_session_is_unresponsive_after_10_seconds_and_stale_after_30_minutes() {
    let (linear, claude, _) = start_with_two_apps().await;
    linear.set_time_scale(TimeScale::with_faster_limits(6_000.0).with_faster_deadlines(10.0));
    let mut hook = TestWebhookServer::listen(|_| Some((200, String::new()))).await;
    linear.set_webhook_url("claude", &hook.url);
    let session = linear.delegate("ann", "ENG-1", "claude");
    hook.next().await;
    linear
        .wait_for(
            |view| view.session(&session).unwrap().is_unresponsive,
            TEST_TIMEOUT,
        )
        .await;
    linear.set_time_scale(TimeScale::REAL_TIME.with_faster_deadlines(18_000.0));
    create_activity(
        &linear,
        &claude,
        &session,
        json!({"type": "thought", "body": "Sorry."}),
    )
    .await;
    linear
        .wait_for(
            |view| view.session(&session).unwrap().status == "stale",
            TEST_TIMEOUT,
        )
        .await;
    assert!(
        linear
            .violations()
            .iter()
            .all(|violation| violation.kind == ViolationKind::Late && violation.app == "claude")
    );
    linear.set_time_scale(TimeScale::REAL_TIME);
    create_activity(
        &linear,
        &claude,
        &session,
        json!({"type": "thought", "body": "Here."}),
    )
    .await;
    assert_eq!(
        linear.session(&session).status,
        "active",
        "the session is active again"
    );
}

#[tokio::test]
async fn requests_that_linear_refuses_are_refused_and_recorded() {
    let (linear, claude, _) = start_with_two_apps().await;
    let session = linear.delegate("ann", "ENG-1", "claude");
    let activity_input =
        |content: Value| json!({"input": {"agentSessionId": session, "content": content}});
    let cases = [
        (
            CREATE_ACTIVITY,
            activity_input(json!({"type": "thought"})),
            ViolationKind::BadField,
        ),
        (
            CREATE_ACTIVITY,
            activity_input(json!({"type": "prompt", "body": "x"})),
            ViolationKind::BadField,
        ),
        (
            CREATE_ACTIVITY,
            activity_input(json!({"type": "action", "action": "x"})),
            ViolationKind::BadField,
        ),
        (
            CREATE_ACTIVITY,
            activity_input(json!({"type": "thought", "body": "x", "title": "y"})),
            ViolationKind::BadField,
        ),
        (
            CREATE_ACTIVITY,
            json!({"input": {"agentSessionId": session, "id": "7", "content": {"type": "thought", "body": "x"}}}),
            ViolationKind::BadField,
        ),
        (
            CREATE_ACTIVITY,
            json!({"input": {"agentSessionId": session, "ephemeral": true, "content": {"type": "error", "body": "x"}}}),
            ViolationKind::BadField,
        ),
        (
            CREATE_ACTIVITY,
            json!({"input": {"agentSession": session}}),
            ViolationKind::Unknown,
        ),
        (CREATE_ACTIVITY, json!({}), ViolationKind::Unknown),
        (
            "{ viewer { id shoeSize } }",
            json!({}),
            ViolationKind::Unknown,
        ),
        ("{ viewer }", json!({}), ViolationKind::Unknown),
        ("{ everything { id } }", json!({}), ViolationKind::Unknown),
        (
            "query($id: ID!) { agentSession(id: $id) { id } }",
            json!({"id": session}),
            ViolationKind::Unknown,
        ),
    ];
    for (query, variables, wrong) in &cases {
        let answer = run_query(&linear, &claude, query, variables.clone()).await;
        assert!(
            answer.body["errors"][0]["message"].is_string(),
            "{query} {variables}: {}",
            answer.body
        );
        assert_eq!(
            linear.violations().last().unwrap().kind,
            *wrong,
            "{query} {variables}"
        );
    }
    assert_eq!(linear.violations().len(), cases.len());
    let body = json!({"query": "{ viewer { id } }"});
    let url = format!("{}/graphql", linear.base_url());
    let bare = [
        ("authorization", claude.access_token.as_str()),
        ("content-type", "application/json"),
    ];
    assert_eq!(
        crate::http_client::send_http("POST", &url, &bare, body.to_string())
            .await
            .unwrap()
            .status,
        401,
        "Bearer is missing"
    );
    let gone = run_query(
        &linear,
        &claude,
        CREATE_ACTIVITY,
        json!({"input": {"agentSessionId": "x", "content": {"type": "thought", "body": "x"}}}),
    )
    .await;
    assert!(
        gone.body["errors"][0]["message"]
            .as_str()
            .unwrap()
            .starts_with("Entity not found")
    );
}

#[tokio::test]
async fn too_many_requests_are_refused_with_the_reset_time() {
    let (linear, claude, codex) = start_with_two_apps().await;
    linear.set_max_requests_per_hour(5);
    for _ in 0..5 {
        assert_eq!(
            run_query(&linear, &claude, "{ viewer { id } }", Value::Null)
                .await
                .status,
            200
        );
    }
    let refused = run_query(&linear, &claude, "{ viewer { id } }", Value::Null).await;
    assert_eq!(
        (
            refused.status,
            &refused.body["errors"][0]["extensions"]["code"]
        ),
        (400, &json!("RATELIMITED"))
    );
    let reset: u64 = refused
        .header("x-ratelimit-requests-reset")
        .unwrap()
        .parse()
        .unwrap();
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    assert!(
        Duration::from_millis(reset) > now,
        "the reset is in milliseconds and in the future"
    );
    assert_eq!(
        run_query(&linear, &codex, "{ viewer { id } }", Value::Null)
            .await
            .status,
        200
    );
}
