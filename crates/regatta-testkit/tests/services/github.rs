//! Tests of GitHub's double: keys and tokens, webhooks and redeliveries, posted content, limits and
//! faults.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use regatta_testkit::services::github::{GitHub, GitHubApp, MAX_CONTENT_PER_MINUTE};
use regatta_testkit::services::{ServiceFault, TimeScale, ViolationKind};
use serde_json::{Value, json};

use crate::http_client::{TEST_TIMEOUT, TestResponse, send_http};
use crate::webhook_server::TestWebhookServer;

const SHOP_REPO: &str = "acme/shop";

async fn try_api(
    github: &GitHub,
    token: &str,
    method: &str,
    path: &str,
    body: Value,
) -> Option<TestResponse> {
    let bearer = format!("Bearer {token}");
    let headers = [
        ("authorization", bearer.as_str()),
        ("user-agent", "test"),
        ("content-type", "application/json"),
    ];
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    send_http(
        method,
        &format!("{}{path}", github.base_url()),
        &headers,
        body,
    )
    .await
}

async fn api(github: &GitHub, token: &str, method: &str, path: &str, body: Value) -> TestResponse {
    try_api(github, token, method, path, body)
        .await
        .expect("the request is answered")
}

async fn installation_token(github: &GitHub, app: &GitHubApp) -> String {
    let path = format!(
        "/app/installations/{}/access_tokens",
        github.installation(&app.slug, "acme")
    );
    let answer = api(
        github,
        &github.app_token(&app.slug),
        "POST",
        &path,
        json!({}),
    )
    .await;
    assert_eq!(answer.status, 201);
    answer.body["token"].as_str().unwrap().to_owned()
}

async fn start_with_two_apps() -> (GitHub, GitHubApp, GitHubApp) {
    let github = GitHub::start().await;
    let (claude, codex) = (github.add_app("claude-bot"), github.add_app("codex-bot"));
    github.add_repo(SHOP_REPO, &["claude-bot", "codex-bot"]);
    github.add_repo("other/thing", &["codex-bot"]);
    github.add_person("ann", SHOP_REPO, "write");
    (github, claude, codex)
}

#[tokio::test]
async fn malformed_request_is_refused() {
    let (github, claude, _) = start_with_two_apps().await;
    let bearer = format!("Bearer {}", installation_token(&github, &claude).await);
    let url = format!("{}/repos/{SHOP_REPO}/issues/1/comments", github.base_url());
    let json = ("content-type", "application/json");
    let own = [
        ("authorization", bearer.as_str()),
        ("user-agent", "test"),
        json,
    ];
    for (body, message) in [
        ("{", "Problems parsing JSON"),
        ("[]", "Body should be a JSON object"),
    ] {
        let answer = send_http("POST", &url, &own, body.to_owned())
            .await
            .unwrap();
        assert_eq!(
            (answer.status, &answer.body["message"]),
            (400, &json!(message)),
            "{body}"
        );
    }
    let old = [own.as_slice(), &[("x-github-api-version", "1999-01-01")]].concat();
    let answer = send_http("GET", &url, &old, String::new()).await.unwrap();
    assert!(
        answer.status == 400 && answer.body["message"].to_string().contains("1999-01-01"),
        "{}",
        answer.body
    );
}

#[tokio::test]
async fn app_is_authenticated_only_by_its_own_key() {
    let (github, claude, _) = start_with_two_apps().await;
    let answer = api(
        &github,
        &github.app_token("claude-bot"),
        "GET",
        "/app",
        Value::Null,
    )
    .await;
    assert_eq!(
        (answer.status, &answer.body["slug"]),
        (200, &json!("claude-bot"))
    );
    github.assert_well_behaved();
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let cases = [
        (
            github.sign_claims(
                "codex-bot",
                &json!({"iss": claude.id, "iat": now, "exp": now + 60}),
            ),
            "could not be decoded",
        ),
        (
            github.sign_claims(
                "claude-bot",
                &json!({"iss": claude.id, "iat": now, "exp": now + 700}),
            ),
            "too far in",
        ),
        (
            github.sign_claims(
                "claude-bot",
                &json!({"iss": claude.id, "iat": now - 99, "exp": now - 9}),
            ),
            "the future time",
        ),
        (
            github.sign_claims(
                "claude-bot",
                &json!({"iss": claude.id, "iat": now + 90, "exp": now + 99}),
            ),
            "Issued at",
        ),
        (
            github.sign_claims(
                "claude-bot",
                &json!({"iss": 1, "iat": now, "exp": now + 60}),
            ),
            "not found",
        ),
        (
            github.sign_claims("claude-bot", &json!({"iat": now, "exp": now + 60})),
            "issuer",
        ),
        ("ghs_nobody".into(), "Bad credentials"),
    ];
    for (token, words) in &cases {
        let answer = api(&github, token, "GET", "/app", Value::Null).await;
        assert_eq!(answer.status, 401);
        assert!(
            answer.body["message"].as_str().unwrap().contains(words),
            "{}",
            answer.body
        );
    }
    let violations = github.violations();
    assert!(
        violations.len() == cases.len()
            && violations
                .iter()
                .all(|violation| violation.kind == ViolationKind::Auth)
    );
    // The client id is accepted as the issuer too, as GitHub recommends.
    let good = json!({"iss": claude.client_id, "iat": now - 60, "exp": now + 500});
    assert_eq!(
        api(
            &github,
            &github.sign_claims("claude-bot", &good),
            "GET",
            "/app",
            Value::Null
        )
        .await
        .status,
        200
    );
}

#[tokio::test]
async fn installation_token_reaches_only_its_own_owner_and_expires() {
    let (github, claude, codex) = start_with_two_apps().await;
    let found = api(
        &github,
        &github.app_token("claude-bot"),
        "GET",
        "/repos/acme/shop/installation",
        Value::Null,
    )
    .await;
    assert_eq!(found.body["id"], github.installation("claude-bot", "acme"));
    let path = "/repos/other/thing/installation";
    assert_eq!(
        api(
            &github,
            &github.app_token("claude-bot"),
            "GET",
            path,
            Value::Null
        )
        .await
        .status,
        404
    );
    let (one, other) = (
        installation_token(&github, &claude).await,
        installation_token(&github, &codex).await,
    );
    assert_ne!(one, other);
    assert_eq!(
        api(&github, &one, "GET", "/repos/acme/shop", Value::Null)
            .await
            .status,
        200
    );
    assert_eq!(
        api(&github, &other, "GET", "/repos/other/thing", Value::Null)
            .await
            .status,
        404,
        "another installation"
    );
    let role = api(
        &github,
        &one,
        "GET",
        "/repos/acme/shop/collaborators/ann/permission",
        Value::Null,
    )
    .await
    .body;
    assert_eq!(
        (&role["permission"], &role["user"]["login"]),
        (&json!("write"), &json!("ann"))
    );
    let role = api(
        &github,
        &one,
        "GET",
        "/repos/acme/shop/collaborators/eve/permission",
        Value::Null,
    )
    .await
    .body;
    assert_eq!(role["permission"], "none");
    github.set_time_scale(TimeScale::REAL_TIME.with_faster_deadlines(3_600_000.0));
    let short = installation_token(&github, &claude).await;
    let ends = async {
        while api(&github, &short, "GET", "/repos/acme/shop", Value::Null)
            .await
            .status
            != 401
        {}
    };
    tokio::time::timeout(TEST_TIMEOUT, ends)
        .await
        .expect("an hour is scaled to a millisecond");
}

#[tokio::test]
async fn comment_is_delivered_to_both_apps_and_answered_by_one() {
    let (github, claude, codex) = start_with_two_apps().await;
    let mut hooks = [
        TestWebhookServer::listen(|_| Some((200, String::new()))).await,
        TestWebhookServer::listen(|_| Some((200, String::new()))).await,
    ];
    github.set_webhook_url("claude-bot", &hooks[0].url);
    github.set_webhook_url("codex-bot", &hooks[1].url);
    github.subscribe("claude-bot", &["issue_comment"]);
    github.subscribe("codex-bot", &["issue_comment"]);
    let number = github.open_issue("ann", SHOP_REPO, "Login", "It fails.");
    let id = github.comment("ann", SHOP_REPO, number, "@claude-bot fix it");
    for (hook, app) in hooks.iter_mut().zip([&claude, &codex]) {
        let letter = hook.next().await;
        assert_eq!(letter.header("x-github-event"), "issue_comment");
        assert_eq!(
            letter.header("x-github-hook-installation-target-id"),
            app.id.to_string()
        );
        assert_eq!(
            letter.header("x-hub-signature-256").len(),
            "sha256=".len() + 64
        );
        let payload = letter.json();
        assert_eq!(
            (&payload["action"], &payload["comment"]["id"]),
            (&json!("created"), &json!(id))
        );
        assert_eq!(payload["comment"]["author_association"], "COLLABORATOR");
        assert_eq!(
            payload["installation"]["id"],
            github.installation(&app.slug, "acme")
        );
    }
    let token = installation_token(&github, &claude).await;
    let path = format!("/repos/acme/shop/issues/{number}/comments");
    let made = api(
        &github,
        &token,
        "POST",
        &path,
        json!({"body": "Working <!-- turn 1 -->"}),
    )
    .await;
    assert_eq!(
        (made.status, &made.body["user"]["type"]),
        (201, &json!("Bot"))
    );
    let own = hooks[0].next().await.json();
    assert_eq!(
        own["sender"]["login"], "claude-bot[bot]",
        "an app gets webhooks about its own comments"
    );
    assert_eq!(own["comment"]["performed_via_github_app"]["id"], claude.id);
    let comment_path = format!("/repos/acme/shop/issues/comments/{}", made.body["id"]);
    assert_eq!(
        api(
            &github,
            &token,
            "PATCH",
            &comment_path,
            json!({"body": "Done."})
        )
        .await
        .status,
        200
    );
    let react = format!("/repos/acme/shop/issues/comments/{id}/reactions");
    assert_eq!(
        api(&github, &token, "POST", &react, json!({"content": "eyes"}))
            .await
            .status,
        201
    );
    assert_eq!(
        api(&github, &token, "POST", &react, json!({"content": "eyes"}))
            .await
            .status,
        200,
        "a repeated reaction changes nothing"
    );
    let comments = github.comments(SHOP_REPO, number);
    assert_eq!(comments[1].versions, ["Working <!-- turn 1 -->", "Done."]);
    assert_eq!(
        (
            comments[0].reactions.len(),
            comments[0].reactions[0].user.as_str()
        ),
        (1, "claude-bot[bot]")
    );
    github.assert_well_behaved();
    let theirs = format!("/repos/acme/shop/issues/comments/{id}");
    assert_eq!(
        api(&github, &token, "PATCH", &theirs, json!({"body": "no"}))
            .await
            .status,
        403
    );
    assert_eq!(
        github
            .violations()
            .iter()
            .map(|violation| violation.kind)
            .collect::<Vec<_>>(),
        [ViolationKind::NotOwned]
    );
}

#[tokio::test]
async fn missed_webhook_is_listed_and_redelivered_with_its_guid() {
    let (github, claude, _) = start_with_two_apps().await;
    let mut answers = [500, 200].into_iter();
    let mut hook =
        TestWebhookServer::listen(move |_| Some((answers.next().unwrap(), String::new()))).await;
    github.set_webhook_url("claude-bot", &hook.url);
    let number = github.open_issue("ann", SHOP_REPO, "Login", "@claude-bot");
    let first = hook.next().await;
    github
        .wait_for(
            |view| view.deliveries("claude-bot")[0].status_code == Some(500),
            TEST_TIMEOUT,
        )
        .await;
    let jwt = github.app_token("claude-bot");
    let listed = api(
        &github,
        &jwt,
        "GET",
        "/app/hook/deliveries?per_page=1",
        Value::Null,
    )
    .await
    .body;
    assert_eq!(
        (&listed[0]["guid"], &listed[0]["status_code"]),
        (&json!(first.header("x-github-delivery")), &json!(500))
    );
    let path = format!("/app/hook/deliveries/{}/attempts", listed[0]["id"]);
    assert_eq!(
        api(&github, &jwt, "POST", &path, Value::Null).await.status,
        202
    );
    let again = hook.next().await;
    assert_eq!(
        (again.header("x-github-delivery"), &again.body),
        (first.header("x-github-delivery"), &first.body)
    );
    github
        .wait_for(
            |view| {
                view.deliveries("claude-bot").iter().any(|github_delivery| {
                    github_delivery.is_redelivery && github_delivery.status == "OK"
                })
            },
            TEST_TIMEOUT,
        )
        .await;
    let listed = api(
        &github,
        &jwt,
        "GET",
        "/app/hook/deliveries?per_page=1",
        Value::Null,
    )
    .await;
    assert!(
        listed.header("link").unwrap().contains("cursor="),
        "the older delivery is on the next page"
    );
    assert_eq!((number, claude.login().as_str()), (1, "claude-bot[bot]"));
    github.assert_well_behaved();
}

#[tokio::test]
async fn webhook_that_is_answered_too_late_is_not_repeated() {
    let (github, _, _) = start_with_two_apps().await;
    github.set_time_scale(TimeScale::REAL_TIME.with_faster_deadlines(100.0));
    let hook = TestWebhookServer::listen(|_| None).await;
    github.set_webhook_url("claude-bot", &hook.url);
    github.open_issue("ann", SHOP_REPO, "Login", "@claude-bot");
    github
        .wait_for(
            |view| view.deliveries("claude-bot")[0].status == "timed out",
            TEST_TIMEOUT,
        )
        .await;
    assert_eq!(
        github
            .violations()
            .iter()
            .map(|violation| violation.kind)
            .collect::<Vec<_>>(),
        [ViolationKind::Late]
    );
    assert_eq!(github.deliveries("claude-bot").len(), 1);
}

#[tokio::test]
async fn pull_requests_are_opened_once_and_have_replies_on_lines() {
    let (github, claude, _) = start_with_two_apps().await;
    let token = installation_token(&github, &claude).await;
    let body = json!({"title": "Fix login", "head": "regatta/7", "base": "main", "body": "x"});
    let made = api(
        &github,
        &token,
        "POST",
        "/repos/acme/shop/pulls",
        body.clone(),
    )
    .await;
    assert_eq!(
        (made.status, &made.body["head"]["ref"]),
        (201, &json!("regatta/7"))
    );
    let again = api(&github, &token, "POST", "/repos/acme/shop/pulls", body).await;
    assert_eq!(again.status, 422);
    assert!(
        again.body["errors"][0]["message"]
            .as_str()
            .unwrap()
            .starts_with("A pull request already exists")
    );
    let found = api(
        &github,
        &token,
        "GET",
        "/repos/acme/shop/pulls?head=acme:regatta/7",
        Value::Null,
    )
    .await
    .body;
    assert_eq!(found[0]["number"], made.body["number"]);
    let number = github.open_pull(
        "ann",
        SHOP_REPO,
        ("Mine", ""),
        ("ann/x", "main"),
        "diff --git a/a b/a\n",
    );
    let bearer = format!("token {token}");
    let headers = [
        ("authorization", bearer.as_str()),
        ("user-agent", "x"),
        ("accept", "application/vnd.github.diff"),
    ];
    let url = format!("{}/repos/acme/shop/pulls/{number}", github.base_url());
    assert_eq!(
        send_http("GET", &url, &headers, "").await.unwrap().body,
        "diff --git a/a b/a\n"
    );
    let id = github.review_comment("ann", SHOP_REPO, number, (("a", 3), "Why?"), None);
    let path = format!("/repos/acme/shop/pulls/{number}/comments/{id}/replies");
    let reply = api(&github, &token, "POST", &path, json!({"body": "Because."})).await;
    assert_eq!(
        (reply.status, &reply.body["in_reply_to_id"]),
        (201, &json!(id))
    );
    assert_eq!(github.review_comments(SHOP_REPO, number).len(), 2);
    let path = format!("/repos/acme/shop/pulls/{number}/comments?direction=desc");
    let listed = api(&github, &token, "GET", &path, Value::Null).await.body;
    assert_eq!(listed[1]["id"], id, "the oldest is last");
    let issue = api(
        &github,
        &token,
        "GET",
        &format!("/repos/acme/shop/issues/{number}"),
        Value::Null,
    )
    .await
    .body;
    assert!(issue["pull_request"]["url"].is_string());
    github.assert_well_behaved();
}

#[tokio::test]
async fn check_runs_are_changed_only_by_their_app_and_validated() {
    let (github, claude, codex) = start_with_two_apps().await;
    let mut hook = TestWebhookServer::listen(|_| Some((200, String::new()))).await;
    github.set_webhook_url("claude-bot", &hook.url);
    let (one, other) = (
        installation_token(&github, &claude).await,
        installation_token(&github, &codex).await,
    );
    let actions =
        json!([{"label": "Re-run", "description": "Land it again", "identifier": "again"}]);
    let body = json!({"name": "landing", "head_sha": "a".repeat(40), "status": "in_progress", "actions": actions});
    let made = api(&github, &one, "POST", "/repos/acme/shop/check-runs", body).await;
    assert_eq!(made.status, 201);
    let id = made.body["id"].as_u64().unwrap();
    let path = format!("/repos/acme/shop/check-runs/{id}");
    assert_eq!(
        api(
            &github,
            &one,
            "PATCH",
            &path,
            json!({"status": "completed"})
        )
        .await
        .status,
        422
    );
    let output = json!({"title": "Landed", "summary": "x".repeat(65_536)});
    let long = json!({"conclusion": "success", "output": output});
    assert_eq!(api(&github, &one, "PATCH", &path, long).await.status, 422);
    assert_eq!(
        api(
            &github,
            &other,
            "PATCH",
            &path,
            json!({"conclusion": "failure"})
        )
        .await
        .status,
        403
    );
    let good = json!({"status": "completed", "conclusion": "success", "output": {"title": "Landed", "summary": "x"}});
    assert_eq!(
        api(&github, &one, "PATCH", &path, good).await.body["conclusion"],
        "success"
    );
    let wrong: Vec<ViolationKind> = github
        .violations()
        .iter()
        .map(|violation| violation.kind)
        .collect();
    assert_eq!(
        wrong,
        [
            ViolationKind::BadField,
            ViolationKind::TooLong,
            ViolationKind::NotOwned
        ]
    );
    github.request_action("ann", SHOP_REPO, id, "again");
    let payload = hook.next().await.json();
    assert_eq!(
        (
            &payload["action"],
            &payload["requested_action"]["identifier"]
        ),
        (&json!("requested_action"), &json!("again"))
    );
    let body = json!({"name": "landing", "head_sha": "a".repeat(40)});
    let newer = api(&github, &one, "POST", "/repos/acme/shop/check-runs", body)
        .await
        .body["id"]
        .clone();
    let path = format!("/repos/acme/shop/commits/{}/check-runs", "a".repeat(40));
    let latest = api(
        &github,
        &one,
        "GET",
        &format!("{path}?check_name=landing"),
        Value::Null,
    )
    .await
    .body;
    assert_eq!(
        (&latest["total_count"], &latest["check_runs"][0]["id"]),
        (&json!(1), &newer)
    );
    let all = api(
        &github,
        &one,
        "GET",
        &format!("{path}?filter=all"),
        Value::Null,
    )
    .await
    .body;
    assert_eq!(all["total_count"], 2);
    let versions = &github.checks(SHOP_REPO)[0].versions;
    assert_eq!(
        versions.last().unwrap(),
        &("completed".to_owned(), Some("success".to_owned()))
    );
}

#[tokio::test]
async fn new_content_is_limited_per_minute_and_a_page_has_30_entries() {
    let (github, claude, codex) = start_with_two_apps().await;
    let (one, other) = (
        installation_token(&github, &claude).await,
        installation_token(&github, &codex).await,
    );
    let number = github.open_issue("ann", SHOP_REPO, "Login", "x");
    let path = format!("/repos/acme/shop/issues/{number}/comments");
    let mut good = 0;
    let refused = loop {
        let answer = api(&github, &one, "POST", &path, json!({"body": "x"})).await;
        if answer.status != 201 {
            break answer;
        }
        good += 1;
    };
    assert_eq!((good, refused.status), (MAX_CONTENT_PER_MINUTE, 403));
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    assert!(
        refused.body["message"]
            .as_str()
            .unwrap()
            .contains("secondary rate limit")
    );
    let listed = api(&github, &one, "GET", &path, Value::Null).await;
    assert_eq!(
        listed.body.as_array().unwrap().len(),
        30,
        "reading is still allowed"
    );
    assert!(
        listed
            .header("link")
            .unwrap()
            .contains("page=2>; rel=\"next\"")
    );
    assert_eq!(
        api(&github, &other, "POST", &path, json!({"body": "x"}))
            .await
            .status,
        201,
        "another app has its own limit"
    );
    assert_eq!(
        github
            .violations()
            .iter()
            .map(|violation| violation.kind)
            .collect::<Vec<_>>(),
        [ViolationKind::RateLimit]
    );
}

#[tokio::test]
async fn more_than_100_simultaneous_requests_are_refused() {
    let (github, claude, _) = start_with_two_apps().await;
    let token = installation_token(&github, &claude).await;
    github.fail_next(
        "repos/get",
        150,
        ServiceFault::Delay(Duration::from_secs(2)),
    );
    let many = (0..150).map(|_| api(&github, &token, "GET", "/repos/acme/shop", Value::Null));
    let all = futures_util::future::join_all(many).await;
    let refused = all
        .iter()
        .filter(|test_response| test_response.status == 403)
        .count();
    assert!((1..=50).contains(&refused), "{refused}");
    assert!(
        github
            .violations()
            .iter()
            .all(|violation| violation.kind == ViolationKind::RateLimit)
    );
}

#[tokio::test]
async fn requests_that_github_refuses_are_refused_and_recorded() {
    let (github, claude, _) = start_with_two_apps().await;
    let token = installation_token(&github, &claude).await;
    let number = github.open_issue("ann", SHOP_REPO, "Login", "x");
    let path = format!("/repos/acme/shop/issues/{number}/comments");
    assert_eq!(
        api(&github, &token, "POST", &path, json!({"body": " "}))
            .await
            .status,
        422
    );
    assert_eq!(
        api(
            &github,
            &token,
            "POST",
            &path,
            json!({"body": "x".repeat(65_537)})
        )
        .await
        .status,
        422
    );
    assert_eq!(
        api(&github, &token, "GET", "/repos/acme/shop/wiki", Value::Null)
            .await
            .status,
        404
    );
    let nameless = [("authorization", format!("Bearer {token}"))];
    let nameless: Vec<(&str, &str)> = nameless
        .iter()
        .map(|nameless| (nameless.0, nameless.1.as_str()))
        .collect();
    assert_eq!(
        send_http(
            "GET",
            &format!("{}{path}", github.base_url()),
            &nameless,
            ""
        )
        .await
        .unwrap()
        .status,
        403
    );
    assert_eq!(
        api(&github, &token, "GET", "/app", Value::Null)
            .await
            .status,
        401,
        "this path needs the app's own token"
    );
    let wrong: Vec<ViolationKind> = github
        .violations()
        .iter()
        .map(|violation| violation.kind)
        .collect();
    assert_eq!(
        wrong,
        [
            ViolationKind::BadField,
            ViolationKind::TooLong,
            ViolationKind::Unknown,
            ViolationKind::BadField,
            ViolationKind::Auth
        ]
    );
    assert_eq!(
        api(
            &github,
            &token,
            "GET",
            "/repos/acme/shop/issues/99",
            Value::Null
        )
        .await
        .status,
        404
    );
    assert_eq!(
        github.violations().len(),
        5,
        "a missing issue is no violation"
    );
    github.fail_next("issues/create-comment", 1, ServiceFault::DropAfterCall);
    assert!(
        try_api(&github, &token, "POST", &path, json!({"body": "once"}))
            .await
            .is_none()
    );
    assert_eq!(github.comments(SHOP_REPO, number).len(), 1);
    let found = api(&github, &token, "GET", &path, Value::Null).await.body;
    assert_eq!(found[0]["body"], "once", "the comment exists");
}
