//! Tests of the doubles with the services' own clients, so that a double and a bridge do not share
//! a mistake.
//!
//! The clients come from the npm registry, pinned by the lock file beside the scripts, and are
//! installed into the build directory. If there is no Node or no npm, or if the registry is
//! unreachable and no earlier installation exists, the tests print the reason and pass. With
//! `REGATTA_SERVICES_SDK=needed` they fail instead.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;

use regatta_testkit::services::ServiceFault;
use regatta_testkit::services::github::GitHub;
use regatta_testkit::services::linear::Linear;
use regatta_testkit::services::slack::Slack;
use regatta_testkit::services::telegram::Telegram;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::http_client::TEST_TIMEOUT;

const SCRIPTS_DIR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/services/sdk");
/// Error codes that npm prints when the registry is unreachable.
const NETWORK_ERRORS: [&str; 6] = [
    "ENOTFOUND",
    "EAI_AGAIN",
    "ECONNREFUSED",
    "ETIMEDOUT",
    "ENETUNREACH",
    "ECONNRESET",
];

static INSTALL_LOCK: Mutex<()> = Mutex::new(());

/// Returns the directory with the scripts and the clients, or the reason why they are not
/// available.
fn install_clients() -> Result<PathBuf, String> {
    let _one_at_a_time = INSTALL_LOCK
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("services-sdk");
    let version = std::process::Command::new("node")
        .arg("--version")
        .output()
        .map_err(|error| format!("no node: {error}"))?;
    let version = String::from_utf8_lossy(&version.stdout)
        .trim()
        .trim_start_matches('v')
        .to_owned();
    let major: u32 = version
        .split('.')
        .next()
        .and_then(|version| version.parse().ok())
        .unwrap_or(0);
    if major < 20 {
        return Err(format!(
            "the clients need Node 20 or later, this is {version}"
        ));
    }
    std::fs::create_dir_all(&home).unwrap();
    for entry in std::fs::read_dir(SCRIPTS_DIR).unwrap().flatten() {
        std::fs::copy(entry.path(), home.join(entry.file_name())).unwrap();
    }
    let lock = std::fs::read_to_string(home.join("package-lock.json")).unwrap();
    let stamp = home.join("installed");
    if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == lock) {
        return Ok(home);
    }
    let output = std::process::Command::new("npm")
        .args([
            "ci",
            "--no-audit",
            "--no-fund",
            "--no-update-notifier",
            "--ignore-scripts",
            "--loglevel=error",
        ])
        .current_dir(&home)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("no npm: {error}"))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    if NETWORK_ERRORS
        .iter()
        .any(|word| !output.status.success() && stderr.contains(word))
    {
        return Err(format!("the registry cannot be reached: {stderr}"));
    }
    assert!(output.status.success(), "npm ci failed: {stderr}");
    std::fs::write(stamp, lock).unwrap();
    Ok(home)
}

/// A running script that uses the clients.
struct ClientScript {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// Reports that arrived before the test asked for them.
    unread: Vec<Value>,
}

impl ClientScript {
    /// Starts a script with its task. Returns `None` and prints the reason if the clients are not
    /// available.
    async fn start(name: &str, task: &Value) -> Option<ClientScript> {
        let home = match tokio::task::spawn_blocking(install_clients).await.unwrap() {
            Ok(home) => home,
            Err(why) => {
                assert!(std::env::var_os("REGATTA_SERVICES_SDK").is_none(), "{why}");
                println!("skipped: the services' own clients are not available: {why}");
                return None;
            }
        };
        let mut command = Command::new("node");
        command
            .arg(name)
            .arg(task.to_string())
            .current_dir(home)
            .kill_on_drop(true);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Some(ClientScript {
            child,
            lines,
            unread: vec![],
        })
    }

    /// Returns the script's next report of this kind. Other reports are kept.
    async fn next_report(&mut self, description: &str) -> Value {
        if let Some(at) = self
            .unread
            .iter()
            .position(|unread| unread["what"] == description)
        {
            return self.unread.remove(at);
        }
        let reading = async {
            loop {
                let line =
                    self.lines.next_line().await.unwrap().unwrap_or_else(|| {
                        panic!("the script ended before it reported {description}")
                    });
                // The clients print their own lines here too.
                let Ok(said) = serde_json::from_str::<Value>(&line) else {
                    continue;
                };
                assert_ne!(said["what"], "failed", "{said:#}");
                if said["what"] == description {
                    return said;
                }
                self.unread.push(said);
            }
        };
        tokio::time::timeout(3 * TEST_TIMEOUT, reading)
            .await
            .unwrap_or_else(|_| panic!("the script did not report {description}"))
    }

    async fn send_order(&mut self, word: &str) {
        self.child
            .stdin
            .as_mut()
            .unwrap()
            .write_all(word.as_bytes())
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn slack_double_works_with_slacks_own_clients() {
    let slack = Slack::start().await;
    let claude = slack.add_socket_app("claude");
    let ann = slack.add_person("ann");
    let dev = slack.add_channel("dev", &["ann", "claude"]);
    let task = json!({"base": slack.base_url(), "bot_token": claude.bot_token, "app_token": claude.app_token, "team": slack.team_id()});
    let Some(mut script) = ClientScript::start("slack.mjs", &task).await else {
        return;
    };
    let me = script.next_report("me").await;
    assert_eq!(
        (&me["user_id"], &me["bot_id"]),
        (&json!(claude.bot_user), &json!(claude.bot_id))
    );
    script.next_report("connected").await;
    assert_eq!(
        script.next_report("refused").await["error"],
        "channel_not_found"
    );

    let root = slack.post_as_person("ann", "dev", "@claude fix it", None);
    let asked = script.next_report("asked").await;
    let ts = asked["ts"].as_str().unwrap().to_owned();
    assert_eq!(asked["found"], asked["ts"], "the script finds its own mark");
    assert_eq!(
        slack.reactions("dev", &root),
        [("eyes".to_owned(), claude.bot_user.clone())]
    );
    slack.click("ann", "dev", &ts, "allow");
    let clicked = script.next_report("clicked").await;
    assert_eq!(
        (&clicked["action"], &clicked["user"]),
        (&json!("allow"), &json!(ann))
    );
    let message = slack
        .view(|view| view.message("dev", &ts).cloned())
        .unwrap();
    assert_eq!(
        (message.text.as_str(), message.buttons().len()),
        ("Allowed 7", 0)
    );
    slack.send_slash_command("ann", "dev", "claude", "/regatta", "status");
    assert_eq!(script.next_report("command").await["text"], "status");

    slack.disconnect("claude", "refresh_requested");
    script.next_report("connected").await;
    let root = slack.post_as_person("ann", "dev", "@claude stream it", None);
    script.next_report("streamed").await;
    let thread = slack.thread("dev", &root);
    assert_eq!(
        (thread[0].text.as_str(), thread[0].is_streaming),
        ("**One** and two and three. Done.", Some(false))
    );
    let acknowledged = |slack_envelope: &regatta_testkit::services::slack::SlackEnvelope| {
        slack_envelope.acknowledged.is_some()
    };
    slack
        .wait_for(
            |view| view.envelopes("claude").iter().all(acknowledged),
            TEST_TIMEOUT,
        )
        .await;
    slack.assert_well_behaved();

    // The script posts five messages at once. Two get status 429 at first, and all five arrive.
    slack.post_as_person("ann", &dev, "@claude many", None);
    script.next_report("many").await;
    assert_eq!(
        slack
            .messages("dev")
            .iter()
            .filter(|slack_message| slack_message.text.starts_with("number"))
            .count(),
        5
    );
    assert!(
        slack
            .calls_of("chat.postMessage")
            .iter()
            .any(|service_call| service_call.status == 429)
    );
}

#[tokio::test]
async fn github_double_works_with_githubs_own_clients() {
    let github = GitHub::start().await;
    let claude = github.add_app("claude-bot");
    github.add_repo("acme/shop", &["claude-bot"]);
    github.add_person("ann", "acme/shop", "write");
    let task = json!({"base": github.base_url(), "app_id": claude.id, "private_key": claude.private_key, "webhook_secret": claude.webhook_secret});
    let Some(mut script) = ClientScript::start("github.mjs", &task).await else {
        return;
    };
    let ready = script.next_report("ready").await;
    let installation = github.installation("claude-bot", "acme");
    assert_eq!(
        (&ready["slug"], &ready["installations"]),
        (&json!("claude-bot"), &json!([installation]))
    );
    assert_eq!(ready["here"], installation);
    let number = github.open_issue("ann", "acme/shop", "Login", "It fails.");
    for at in 0..25 {
        github.comment("ann", "acme/shop", number, &format!("before {at}"));
    }
    github.subscribe(
        "claude-bot",
        &["issue_comment", "pull_request_review_comment", "check_run"],
    );
    // The deliveries of the comments above are removed, so they are not sent to the new address.
    github.forget_deliveries("claude-bot");
    github.set_webhook_url("claude-bot", ready["url"].as_str().unwrap());
    let id = github.comment("ann", "acme/shop", number, "@claude-bot fix it");
    assert_eq!(
        script.next_report("comment").await["body"],
        "@claude-bot fix it"
    );
    assert_eq!(script.next_report("own").await["via"], "claude-bot");
    let answered = script.next_report("answered").await;
    assert_eq!(
        (&answered["role"], &answered["comments"], &answered["diff"]),
        (&json!("write"), &json!(27), &json!("string"))
    );
    let comments = github.comments("acme/shop", number);
    let own = comments
        .iter()
        .find(|github_comment| github_comment.app.is_some())
        .unwrap();
    assert_eq!(own.versions, ["Working", "Done"]);
    assert_eq!(
        comments
            .iter()
            .find(|github_comment| github_comment.id == id)
            .unwrap()
            .reactions[0]
            .content,
        "eyes"
    );
    let check = &github.checks("acme/shop")[0];
    assert_eq!(
        (check.status.as_str(), check.conclusion.as_deref()),
        ("completed", Some("success"))
    );
    github.rerequest("ann", "acme/shop", check.id);
    assert_eq!(script.next_report("again").await["id"], check.id);
    let pull = github.pulls("acme/shop")[0].number;
    let remark = github.review_comment("ann", "acme/shop", pull, (("src/a.rs", 3), "Why?"), None);
    script.next_report("replied").await;
    assert_eq!(
        github.review_comments("acme/shop", pull)[1].in_reply_to,
        Some(remark)
    );

    // The official verifier refuses a webhook with a wrong signature. The script then requests its
    // redelivery.
    github.corrupt_signatures("claude-bot", 1);
    github.comment("ann", "acme/shop", number, "@claude-bot once more");
    github
        .wait_for(
            |view| {
                view.deliveries("claude-bot")
                    .iter()
                    .any(|github_delivery| github_delivery.status_code == Some(400))
            },
            TEST_TIMEOUT,
        )
        .await;
    script.send_order("redeliver\n").await;
    let again = script.next_report("redelivered").await;
    assert_eq!(again["status"], 202);
    let sent = script.next_report("comment").await;
    assert_eq!(
        (&sent["id"], &sent["body"]),
        (&again["guid"], &json!("@claude-bot once more"))
    );
    github.assert_well_behaved();
}

#[tokio::test]
async fn linear_double_works_with_linears_own_client() {
    let linear = Linear::start().await;
    let claude = linear.add_app("claude");
    linear.add_person("ann");
    linear.add_issue("ENG-1", "Login fails", "Since Monday.");
    linear.fail_next("viewer", 1, ServiceFault::Delay(std::time::Duration::ZERO));
    linear.fail_next("viewer", 1, ServiceFault::RetryAfter(60.0));
    let task = json!({"base": linear.base_url(), "access_token": claude.access_token, "webhook_secret": claude.webhook_secret});
    let Some(mut script) = ClientScript::start("linear.mjs", &task).await else {
        return;
    };
    let ready = script.next_report("ready").await;
    assert_eq!(
        (&ready["id"], &ready["sessions"]),
        (&json!(claude.app_user_id), &json!(0))
    );
    let limited = script.next_report("limited").await;
    assert!(
        limited["type"] == "Ratelimited" && limited["reset"].is_number(),
        "{limited}"
    );
    linear.set_webhook_url("claude", ready["url"].as_str().unwrap());
    let session = linear.delegate("ann", "ENG-1", "claude");
    assert_eq!(script.next_report("event").await["action"], "created");
    let asked = script.next_report("asked").await;
    let typed = json!([
        "AgentActivityActionContent",
        "AgentActivityElicitationContent"
    ]);
    assert_eq!(
        (&asked["activities"], &asked["status"]),
        (&typed, &json!("awaitingInput")),
        "{asked}"
    );
    assert_eq!(
        (&asked["issue"], &asked["success"]),
        (&json!("ENG-1"), &json!(true))
    );
    let session_state = linear.session(&session);
    assert_eq!(
        (
            session_state.activities.len(),
            session_state.external_urls.len(),
            session_state.plan[0]["status"].as_str()
        ),
        (3, 1, Some("completed"))
    );
    linear.press_stop("ann", &session);
    assert_eq!(script.next_report("event").await["signal"], "stop");
    script.next_report("stopped").await;
    assert_eq!(linear.session(&session).status, "complete");
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
    linear.assert_well_behaved();
}

#[tokio::test]
async fn telegram_double_works_with_a_well_known_client() {
    let telegram = Telegram::start().await;
    let bot = telegram.add_bot("claude_bot");
    telegram.add_person("ann");
    telegram.add_group("dev", &["ann", "claude_bot"]);
    let task = json!({"base": telegram.base_url(), "token": bot.token});
    let Some(mut script) = ClientScript::start("telegram.mjs", &task).await else {
        return;
    };
    assert_eq!(script.next_report("ready").await["username"], "claude_bot");
    let message = telegram.post_as_person("ann", "dev", "@claude_bot may you?", None);
    let id = script.next_report("asked").await["id"].as_i64().unwrap();
    telegram.click("ann", "dev", id, "allow:7");
    script.next_report("clicked").await;
    let messages = telegram.messages("dev");
    assert_eq!(
        (messages[0].id, messages[0].reactions[0].0.as_str()),
        (message, "👀")
    );
    assert_eq!(
        (messages[1].plain_text.as_str(), messages[1].reply_to),
        ("Allowed allow:7", Some(message))
    );
    assert_eq!(
        telegram.callbacks()[0].answered.as_deref(),
        Some("Thank you")
    );
    telegram
        .wait_for(|view| view.unconfirmed("claude_bot") == 0, TEST_TIMEOUT)
        .await;
    telegram.assert_well_behaved();
}
