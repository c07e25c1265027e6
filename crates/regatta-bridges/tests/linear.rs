//! Tests of the Linear bridge, against a double that enforces the service's rules and limits.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails")]

mod world;

use regatta_bridges::config::Secret;
use regatta_bridges::signature;
use regatta_core::conversation::TurnState;
use regatta_testkit::services::linear::{Linear, LinearApp};
use regatta_testkit::services::{ServiceFault, TimeScale};
use serde_json::{Value, json};
use world::{TEST_TIMEOUT, World};

const ROUTE: &str = "/webhooks/linear";

/// Returns a double of Linear with an agent of ours, a permitted person and an issue, and a Regatta
/// that is not started yet.
async fn set_up() -> (Linear, LinearApp, World) {
    let linear = Linear::start().await;
    linear.set_time_scale(TimeScale::with_faster_limits(20.0));
    let app = linear.add_app("claude");
    linear.add_person("ann");
    linear.add_issue("ENG-1", "Login fails", "Since Monday.");
    let mut world = World::new(&["claude"]).await;
    world.config.allow = vec!["linear:team".into()];
    world
        .config
        .url
        .insert("linear".into(), format!("{}/graphql", linear.base_url()));
    world
        .vars
        .insert("LINEAR_ACCESS_TOKEN".into(), app.access_token.clone());
    world
        .vars
        .insert("LINEAR_AGENT_ID".into(), app.app_user_id.clone());
    world
        .vars
        .insert("LINEAR_WEBHOOK_SECRET".into(), app.webhook_secret.clone());
    (linear, app, world)
}

/// Returns the agent's activities that are not ephemeral, with their kinds.
fn lasting_activities(linear: &Linear, session: &str) -> Vec<(String, String)> {
    let session = linear.session(session);
    let lasting = session
        .agent_activities()
        .filter(|activity| !activity.is_ephemeral);
    lasting
        .map(|activity| (activity.kind.clone(), activity.body().to_owned()))
        .collect()
}

async fn wait_for_status(linear: &Linear, session: &str, status: &str) {
    linear
        .wait_for(
            |view| {
                view.session(session)
                    .is_some_and(|session| session.status == status)
            },
            TEST_TIMEOUT,
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn session_shows_a_thought_a_plan_and_its_responses() {
    let (linear, _, mut world) = set_up().await;
    world.start().await;
    linear.set_webhook_url("claude", &world.url(ROUTE));
    let session = linear.mention("ann", "ENG-1", "claude", "fix it, with a plan, and wait");
    // The session shows a sign of life, and then the plan while the agent works.
    linear
        .wait_for(
            |view| {
                view.session(&session)
                    .is_some_and(|session| session.plan.is_array())
            },
            TEST_TIMEOUT,
        )
        .await;
    let shown = linear.session(&session);
    assert_eq!(
        shown.plan,
        json!([{"content": "look", "status": "completed"}, {"content": "repair", "status": "inProgress"}])
    );
    let first = shown.agent_activities().next().unwrap();
    assert_eq!((first.kind.as_str(), first.is_ephemeral), ("thought", true));
    assert_eq!(shown.status, "active");
    linear.send_prompt("ann", &session, "what was it?");
    world
        .wait_for(1, "the second prompt is queued", |conversation| {
            conversation.queued_count() == 1
        })
        .await;
    world.agents.release("go");
    linear
        .wait_for(
            |view| {
                view.activities(&session)
                    .iter()
                    .filter(|activity| activity.kind == "response")
                    .count()
                    == 2
            },
            TEST_TIMEOUT,
        )
        .await;
    world.wait_until_idle(1).await;
    let activities = lasting_activities(&linear, &session);
    let kinds: Vec<&str> = activities.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(
        kinds.iter().filter(|kind| **kind == "response").count(),
        2,
        "{activities:?}"
    );
    assert!(
        activities
            .iter()
            .any(|(_, text)| text.starts_with("**Fixed** the login bug")),
        "{activities:?}"
    );
    assert!(
        activities
            .last()
            .unwrap()
            .1
            .contains("I was told: what was it?"),
        "{activities:?}"
    );
    assert_eq!(linear.session(&session).status, "complete");
    let conversation = &world.conversations()[0];
    assert_eq!(
        (conversation.key.clone(), conversation.title.as_str()),
        (format!("linear:{session}"), "ENG-1 Login fails")
    );
    assert_eq!(conversation.turns[0].text, "fix it, with a plan, and wait");
    linear.assert_well_behaved();
}

/// A person whose lookup failed is not treated as unknown. Linear repeats the event, or the search
/// finds it.
#[tokio::test(flavor = "multi_thread")]
async fn failed_lookup_of_a_person_is_retried() {
    let (linear, _, mut world) = set_up().await;
    world.config.clock = 1_200.0; // the next search is soon
    world.start().await;
    linear.set_webhook_url("claude", &world.url(ROUTE));
    linear.fail_next("user", 1, ServiceFault::Status(503));
    let session = linear.mention("ann", "ENG-1", "claude", "fix it");
    wait_for_status(&linear, &session, "complete").await;
    world.wait_until_idle(1).await;
    let all = world.conversations();
    assert_eq!(
        (all.len(), all[0].turns.len(), all[0].turns[0].text.as_str()),
        (1, 1, "fix it")
    );
    let looked: Vec<u16> = linear
        .calls_of("user")
        .iter()
        .map(|service_call| service_call.status)
        .collect();
    assert!(looked.starts_with(&[503, 200]), "{looked:?}");
    linear.assert_well_behaved();
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_signal_ends_the_turn_with_a_final_activity() {
    let (linear, _, mut world) = set_up().await;
    world.start().await;
    linear.set_webhook_url("claude", &world.url(ROUTE));
    let session = linear.delegate("ann", "ENG-1", "claude");
    wait_for_status(&linear, &session, "complete").await;
    linear.send_prompt("ann", &session, "wait for me");
    world
        .wait_for(1, "the turn works", |conversation| {
            conversation
                .current_turn()
                .is_some_and(|conversation_turn| conversation_turn.number == 2)
        })
        .await;
    wait_for_status(&linear, &session, "active").await;
    linear.press_stop("ann", &session);
    wait_for_status(&linear, &session, "complete").await;
    world.wait_until_idle(1).await;
    let activities = lasting_activities(&linear, &session);
    assert!(
        activities
            .last()
            .unwrap()
            .1
            .starts_with("Stopped: ann stopped it"),
        "{activities:?}"
    );
    assert_eq!(linear.session(&session).status, "complete");
    assert_eq!(world.conversations()[0].turns[1].state, TurnState::Stopped);
    linear.assert_well_behaved();
}

#[tokio::test(flavor = "multi_thread")]
async fn permission_request_is_an_elicitation_and_stays_the_last_activity_until_its_answer() {
    let (linear, _, mut world) = set_up().await;
    world.config.clock = 1_200.0; // 14 minutes are 0.7 s
    world.start().await;
    linear.set_webhook_url("claude", &world.url(ROUTE));
    let session = linear.mention("ann", "ENG-1", "claude", "ask me");
    wait_for_status(&linear, &session, "awaitingInput").await;
    let asked = linear
        .activities(&session)
        .iter()
        .rfind(|activity| activity.kind == "elicitation")
        .unwrap()
        .clone();
    assert_eq!(asked.signal.as_deref(), Some("select"));
    let options = asked.signal_metadata["options"].as_array().unwrap().clone();
    let values: Vec<&str> = options
        .iter()
        .filter_map(|option| option["value"].as_str())
        .collect();
    assert_eq!(values, ["allow:Q1", "always:Q1", "deny:Q1"]);
    // Signs of life create no activity while the request is open.
    let before = linear.activities(&session).len();
    world.wait_for_sent(3).await;
    assert_eq!(
        linear.activities(&session).len(),
        before,
        "{:?}",
        linear.activities(&session)
    );
    assert_eq!(linear.session(&session).status, "awaitingInput");
    linear.send_prompt("ann", &session, "deny:Q1");
    wait_for_status(&linear, &session, "complete").await;
    world.wait_until_idle(1).await;
    assert!(
        lasting_activities(&linear, &session)
            .last()
            .unwrap()
            .1
            .contains("Deny"),
        "{:?}",
        lasting_activities(&linear, &session)
    );
    assert_eq!(
        world.conversations()[0].turn_count,
        1,
        "the answer started a turn"
    );
    linear.assert_well_behaved();
}

/// Nothing is lost and nothing appears twice, although Regatta ends in the middle of a turn and
/// Linear's answer to the last activity is lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_in_the_middle_of_a_turn_posts_nothing_twice() {
    let (linear, _, mut world) = set_up().await;
    world.start().await;
    linear.set_webhook_url("claude", &world.url(ROUTE));
    let session = linear.mention("ann", "ENG-1", "claude", "wait, then fix it");
    linear
        .wait_for(|view| view.activities(&session).len() >= 2, TEST_TIMEOUT)
        .await;
    world
        .wait_for(1, "the turn works", |conversation| {
            conversation.current_turn().is_some()
        })
        .await;
    world.kill().await;
    world.start().await;
    linear.fail_next("agentActivityCreate", 1, ServiceFault::DropAfterCall);
    world.agents.release("go");
    wait_for_status(&linear, &session, "complete").await;
    world.wait_until_idle(1).await;
    let activities = lasting_activities(&linear, &session);
    assert_eq!(
        activities
            .iter()
            .filter(|(kind, _)| kind == "response")
            .count(),
        1,
        "{activities:?}"
    );
    assert_eq!(world.conversations().len(), 1);
    assert_eq!(world.conversations()[0].turn_count, 1);
    assert_eq!(
        world.agents.program_counts().values().sum::<usize>(),
        1,
        "the agent's program was started again"
    );
    linear.assert_well_behaved();
}

/// A session that began while Regatta was down is found at the start. A later webhook about it is
/// the same delivery (B1).
#[tokio::test(flavor = "multi_thread")]
async fn b1_a_session_missed_during_downtime_is_found_at_the_start_and_handled_once() {
    let (linear, _, mut world) = set_up().await;
    let session = linear.mention("ann", "ENG-1", "claude", "fix it");
    world.start().await;
    wait_for_status(&linear, &session, "complete").await;
    linear.set_webhook_url("claude", &world.url(ROUTE));
    linear
        .wait_for(
            |view| {
                view.deliveries("claude")
                    .iter()
                    .all(|linear_delivery| linear_delivery.is_accepted())
            },
            TEST_TIMEOUT,
        )
        .await;
    world.wait_until_idle(1).await;
    // A prompt during the downtime is found at the next start, and prompts that were answered
    // before are not repeated.
    world.kill().await;
    linear.set_webhook_url("claude", "http://127.0.0.1:1/nobody");
    linear.send_prompt("ann", &session, "and again");
    world.start().await;
    world
        .wait_for(1, "the second prompt arrived", |conversation| {
            conversation.turn_count == 2
        })
        .await;
    world.wait_until_idle(1).await;
    assert_eq!(world.conversations()[0].turn_count, 2);
    assert_eq!(
        lasting_activities(&linear, &session)
            .iter()
            .filter(|lasting_activity| lasting_activity.0 == "response")
            .count(),
        2
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn rate_limit_and_an_outage_of_linear_lose_no_activity() {
    let (linear, _, mut world) = set_up().await;
    world.start().await;
    linear.set_webhook_url("claude", &world.url(ROUTE));
    linear.fail_next("agentActivityCreate", 1, ServiceFault::RetryAfter(0.3));
    let session = linear.mention("ann", "ENG-1", "claude", "wait and fix it");
    linear
        .wait_for(|view| view.activities(&session).len() >= 2, TEST_TIMEOUT)
        .await;
    linear.go_offline().await;
    world.agents.release("go");
    world
        .wait_for(1, "the turn is done", |conversation| {
            conversation.turns[0].state == TurnState::Done
        })
        .await;
    linear.go_online().await;
    wait_for_status(&linear, &session, "complete").await;
    world.wait_until_idle(1).await;
    assert_eq!(
        lasting_activities(&linear, &session)
            .iter()
            .filter(|lasting_activity| lasting_activity.0 == "response")
            .count(),
        1
    );
    linear.assert_well_behaved();
}

/// A silent working turn shows a sign of life long before Linear calls its session stale.
#[tokio::test(flavor = "multi_thread")]
async fn silent_turn_repeats_its_sign_of_life() {
    let (linear, _, mut world) = set_up().await;
    world.config.clock = 1_200.0; // 14 minutes are 0.7 s
    world.start().await;
    linear.set_webhook_url("claude", &world.url(ROUTE));
    let session = linear.mention("ann", "ENG-1", "claude", "wait");
    let same = |view: &regatta_testkit::services::DoubleView<
        '_,
        regatta_testkit::services::linear::LinearState,
    >| {
        let last = view
            .activities(&session)
            .last()
            .map(|activity| activity.content.clone());
        view.activities(&session)
            .iter()
            .filter(|activity| Some(&activity.content) == last.as_ref())
            .count()
            >= 4
    };
    linear.wait_for(same, TEST_TIMEOUT).await;
    assert!(
        linear
            .session(&session)
            .agent_activities()
            .all(|activity| activity.is_ephemeral),
        "a sign of life is permanent"
    );
    world.agents.release("go");
    wait_for_status(&linear, &session, "complete").await;
}

async fn post_webhook(url: &str, signature: Option<&str>, body: &[u8]) -> u16 {
    let mut request = reqwest::Client::new().post(url).body(body.to_vec());
    if let Some(signature) = signature {
        request = request.header("linear-signature", signature);
    }
    request.send().await.unwrap().status().as_u16()
}

fn now_ms() -> u64 {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    u64::try_from(now.as_millis()).unwrap()
}

/// Guards against a fault of an older bridge, which accepted every request when it had no secret,
/// and accepted the secret of another agent.
#[tokio::test(flavor = "multi_thread")]
async fn webhook_without_the_agents_own_secret_is_refused() {
    let (linear, app, mut world) = set_up().await;
    let other_app = linear.add_app("codex");
    world.vars.remove("LINEAR_WEBHOOK_SECRET");
    world.start().await;
    let event = |agent: &LinearApp, sent_ms: u64| -> Value {
        json!({
            "type": "AgentSessionEvent", "action": "created", "appUserId": agent.app_user_id, "organizationId": "O",
            "agentSession": {"id": "11111111-1111-4111-8111-111111111111", "issue": {"identifier": "ENG-1"}},
            "promptContext": "fix it", "webhookTimestamp": sent_ms,
        })
    };
    let sign = |agent: &LinearApp, body: &str| {
        signature::hex_signature(&Secret::new(&agent.webhook_secret), &[body.as_bytes()])
    };
    let url = world.url(ROUTE);
    let valid = event(&app, now_ms()).to_string();
    let empty_signature = signature::hex_signature(&Secret::new(""), &[valid.as_bytes()]);
    for signature_header in [
        None,
        Some(empty_signature.as_str()),
        Some(sign(&app, &valid).as_str()),
    ] {
        assert_eq!(
            post_webhook(&url, signature_header, valid.as_bytes()).await,
            503,
            "no secret is set"
        );
    }
    world.kill().await;
    world
        .vars
        .insert("LINEAR_WEBHOOK_SECRET".into(), app.webhook_secret.clone());
    world.start().await;
    let valid = event(&app, now_ms()).to_string();
    assert_eq!(post_webhook(&url, None, valid.as_bytes()).await, 401);
    assert_eq!(
        post_webhook(&url, Some(&sign(&other_app, &valid)), valid.as_bytes()).await,
        401,
        "another agent's secret"
    );
    assert_eq!(
        post_webhook(&url, Some(&empty_signature), valid.as_bytes()).await,
        401
    );
    let changed_event = valid.replace("fix it", "rm it");
    assert_eq!(
        post_webhook(&url, Some(&sign(&app, &valid)), changed_event.as_bytes()).await,
        401
    );
    for skew in [-61_000_i64, 61_000, -3_600_000] {
        let stale_event = event(&app, now_ms().saturating_add_signed(skew)).to_string();
        assert_eq!(
            post_webhook(
                &url,
                Some(&sign(&app, &stale_event)),
                stale_event.as_bytes()
            )
            .await,
            401,
            "{skew}"
        );
    }
    assert_eq!(
        post_webhook(&url, Some(&sign(&app, "no")), b"no").await,
        400
    );
    let foreign_event = event(&other_app, now_ms()).to_string();
    assert_eq!(
        post_webhook(
            &url,
            Some(&sign(&app, &foreign_event)),
            foreign_event.as_bytes()
        )
        .await,
        200,
        "signed, and not for us"
    );
    assert!(world.conversations().is_empty(), "an event was accepted");
    // A request of a person who is not on the allow-list is held, and starts nothing.
    assert_eq!(
        post_webhook(&url, Some(&sign(&app, &valid)), valid.as_bytes()).await,
        200
    );
    let conversations = world.conversations();
    assert_eq!(
        (
            conversations.len(),
            conversations[0].turn_count,
            conversations[0].held.len()
        ),
        (1, 0, 1)
    );
}
