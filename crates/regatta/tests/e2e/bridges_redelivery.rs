//! Services deliver the same events many times, in any order, while the daemon is killed. Each
//! event is handled once (B1).
//!
//! `REGATTA_SEED=…` repeats an order.

use std::sync::atomic::{AtomicUsize, Ordering};

use regatta_testkit::services::TimeScale;
use regatta_testkit::services::github::GitHub;
use regatta_testkit::services::linear::Linear;
use regatta_testkit::services::slack::Slack;
use regatta_testkit::services::telegram::Telegram;
use serde_json::{Value, json};

use crate::bridge_world::{
    BridgeWorld, BridgeWorldSettings, InboundRequest, SlackTransport, github_variables,
    linear_variables, new_runtime, number_from_environment, slack_variables, unix_time,
};
use crate::chaos::kill_daemon;
use crate::kills::SeededRng;
use crate::world::{TEST_TIMEOUT, wait_until};

/// The number of messages that people write, the number of deliveries, and after how many accepted
/// deliveries the daemon is killed.
const MESSAGE_COUNT: usize = 100;
const DELIVERY_COUNT: usize = 1_000;
const KILL_AFTER_DELIVERIES: [usize; 3] = [200, 450, 700];
/// How many times faster than the services' clocks the doubles' clocks run. The services' deadlines
/// are not tested here.
const CLOCK_SPEED: f64 = 60.0;

fn service_scale() -> TimeScale {
    TimeScale::with_faster_limits(CLOCK_SPEED).with_faster_deadlines(0.1)
}

/// Starts a daemon with one agent whose turns never end, so that the turns can be counted.
fn start_world(
    allow: String,
    (service, url): (&'static str, String),
    variables: Vec<(String, String)>,
) -> BridgeWorld {
    let urls = vec![(service, url)];
    let settings = BridgeWorldSettings {
        agents: &["claude"],
        allowed_people: vec![allow],
        urls,
        clock_speed: CLOCK_SPEED,
        extra_lines: "",
    };
    let quay = BridgeWorld::new(&settings, variables);
    quay.add_agent("claude", 1, &json!([{ "sleep": "1h" }]));
    quay
}

/// Delivers each of `things` events many times, in a random order, while the daemon is killed. Like
/// the services, it repeats a delivery that was not answered with 200.
#[allow(clippy::print_stdout, reason = "the seed and the result")]
fn deliver_repeatedly(
    quay: &BridgeWorld,
    things: usize,
    letter: impl Fn(usize) -> InboundRequest + Sync,
) {
    let seed = number_from_environment("REGATTA_SEED").unwrap_or(20_261_116) as u64;
    println!("REGATTA_SEED={seed}");
    let mut order: Vec<usize> = (0..DELIVERY_COUNT).map(|nth| nth % things).collect();
    let mut dice = SeededRng(seed);
    for at in (1..order.len()).rev() {
        order.swap(at, dice.below(at as u64 + 1) as usize);
    }
    let (next, taken, again) = (
        AtomicUsize::new(0),
        AtomicUsize::new(0),
        AtomicUsize::new(0),
    );
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(which) = order.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let sent = wait_until(TEST_TIMEOUT, || {
                        let kept = quay.send_request(&letter(*which)) == Some(200);
                        again.fetch_add(usize::from(!kept), Ordering::SeqCst);
                        kept
                    });
                    assert!(sent, "no delivery of event {which} was accepted");
                    taken.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        for share in KILL_AFTER_DELIVERIES {
            assert!(
                wait_until(TEST_TIMEOUT, || taken.load(Ordering::SeqCst) >= share),
                "only {taken:?} of {share}"
            );
            kill_daemon(&quay.world);
            quay.start_daemon_without(&[]);
        }
    });
    println!(
        "{DELIVERY_COUNT} deliveries of {things} events, 3 kills: {again:?} had to be repeated"
    );
}

/// Checks that each message started exactly one turn.
fn assert_one_turn_each(quay: &BridgeWorld) {
    let all = quay.conversations();
    assert_eq!(all.len(), MESSAGE_COUNT, "B1");
    let odd: Vec<&Value> = all
        .iter()
        .filter(|conversation| conversation["turns"] != 1)
        .collect();
    assert!(
        odd.is_empty(),
        "B1: these conversations do not have exactly one turn: {odd:#?}"
    );
    assert_eq!(
        (
            quay.event_count("delivery.taken"),
            quay.event_count("task.added")
        ),
        (MESSAGE_COUNT, MESSAGE_COUNT),
        "B1"
    );
}

/// B1: Slack delivers each mention as two kinds of events.
#[test]
fn b1_a_hundred_slack_mentions_in_a_thousand_deliveries_start_a_hundred_turns() {
    let runtime = new_runtime();
    let slack = runtime.block_on(Slack::start());
    slack.set_time_scale(service_scale());
    let claude = slack.add_socket_app("claude");
    let ann = slack.add_person("ann");
    slack.add_channel("dev", &["ann", "claude"]);
    let url = format!("{}/api", slack.base_url());
    let quay = start_world(
        format!("slack:{ann}"),
        ("slack", url),
        slack_variables(&claude, "", SlackTransport::Http),
    );
    let said: Vec<String> = (0..MESSAGE_COUNT)
        .map(|n| slack.post_as_person("ann", "dev", &format!("@claude do {n}"), None))
        .collect();
    let events: Vec<String> = slack
        .envelopes("claude")
        .iter()
        .map(|slack_envelope| slack_envelope.payload.to_string())
        .collect();
    assert_eq!(
        events.len(),
        2 * MESSAGE_COUNT,
        "a mention is delivered as app_mention and as message"
    );
    deliver_repeatedly(&quay, events.len(), |which| {
        InboundRequest::slack("/webhooks/slack", &claude.signing_secret, &events[which], 0)
    });
    assert_one_turn_each(&quay);
    // Each message gets one reaction that shows its receipt.
    let seen =
        |ts: &String| slack.reactions("dev", ts) == [("eyes".to_owned(), claude.bot_user.clone())];
    assert!(
        wait_until(TEST_TIMEOUT, || said.iter().all(seen)),
        "a message got no receipt"
    );
    slack.assert_well_behaved();
}

/// B1: the same events arrive under the same and under other GUIDs.
#[test]
fn b1_a_hundred_github_comments_in_a_thousand_deliveries_start_a_hundred_turns() {
    let runtime = new_runtime();
    let github = runtime.block_on(GitHub::start());
    github.set_time_scale(service_scale());
    let app = github.add_app("claude-bot");
    github.add_repo("acme/shop", &["claude-bot"]);
    github.add_person("ann", "acme/shop", "write");
    let quay = start_world(
        "github:write".into(),
        ("github", github.base_url()),
        github_variables(&app, ""),
    );
    let said: Vec<(u64, u64)> = (0..MESSAGE_COUNT)
        .map(|n| {
            let issue = github.open_issue("ann", "acme/shop", &format!("Issue {n}"), "It fails.");
            (
                issue,
                github.comment("ann", "acme/shop", issue, &format!("@claude-bot do {n}")),
            )
        })
        .collect();
    let told = github
        .deliveries("claude-bot")
        .into_iter()
        .filter(|github_delivery| github_delivery.event == "issue_comment");
    let events: Vec<String> = told
        .map(|github_delivery| github_delivery.payload.to_string())
        .collect();
    assert_eq!(events.len(), MESSAGE_COUNT);
    deliver_repeatedly(&quay, MESSAGE_COUNT, |which| {
        InboundRequest::github(
            "/webhooks/github",
            &app.webhook_secret,
            "issue_comment",
            &events[which],
        )
    });
    assert_one_turn_each(&quay);
    let has_answer = |(issue, comment): &(u64, u64)| {
        let all = github.comments("acme/shop", *issue);
        let reactions = all
            .iter()
            .find(|github_comment| github_comment.id == *comment)
            .map_or(0, |github_comment| github_comment.reactions.len());
        reactions == 1
            && all
                .iter()
                .filter(|github_comment| github_comment.app.is_some())
                .count()
                == 1
    };
    assert!(
        wait_until(TEST_TIMEOUT, || said.iter().all(has_answer)),
        "a comment got no receipt, or two answers"
    );
    github.assert_well_behaved();
}

/// B1: sessions arrive by webhook, and each start of the daemon also finds them in the list of
/// sessions.
#[test]
fn b1_a_hundred_linear_sessions_in_a_thousand_deliveries_start_a_hundred_turns() {
    let runtime = new_runtime();
    let linear = runtime.block_on(Linear::start());
    linear.set_time_scale(service_scale());
    let app = linear.add_app("claude");
    linear.add_person("ann");
    linear.add_issue("ENG-1", "Login fails", "Since Monday.");
    let url = format!("{}/graphql", linear.base_url());
    let quay = start_world(
        "linear:team".into(),
        ("linear", url),
        linear_variables(&app, ""),
    );
    let sessions: Vec<String> = (0..MESSAGE_COUNT)
        .map(|n| linear.mention("ann", "ENG-1", "claude", &format!("do {n}")))
        .collect();
    let events: Vec<Value> = linear
        .deliveries("claude")
        .into_iter()
        .map(|linear_delivery| linear_delivery.payload)
        .collect();
    assert_eq!(events.len(), MESSAGE_COUNT);
    deliver_repeatedly(&quay, MESSAGE_COUNT, |which| {
        let mut event = events[which].clone();
        event["webhookTimestamp"] = json!(unix_time().as_millis() as u64); // as Linear does
        InboundRequest::linear("/webhooks/linear", &app.webhook_secret, &event.to_string())
    });
    assert_one_turn_each(&quay);
    let has_activity =
        |session: &String| linear.session(session).agent_activities().next().is_some();
    assert!(
        wait_until(TEST_TIMEOUT, || sessions.iter().all(has_activity)),
        "a message got no receipt"
    );
    linear.assert_well_behaved();
}

/// B1: Telegram repeats an update until a poll confirms it by its offset, also to a later daemon.
#[test]
fn b1_a_hundred_telegram_updates_across_kills_start_a_hundred_turns() {
    let runtime = new_runtime();
    let telegram = runtime.block_on(Telegram::start());
    telegram.set_time_scale(service_scale());
    let bot = telegram.add_bot("claude_bot");
    let ann = telegram.add_person("ann");
    telegram.add_group("dev", &["ann", "claude_bot"]);
    let variables = vec![("TELEGRAM_BOT_TOKEN".to_owned(), bot.token.clone())];
    let quay = start_world(
        format!("telegram:{ann}"),
        ("telegram", telegram.base_url()),
        variables,
    );
    let reaction_count = || {
        telegram
            .messages("dev")
            .iter()
            .filter(|telegram_message| !telegram_message.reactions.is_empty())
            .count()
    };
    let mut said = Vec::new();
    for (nth, share) in [20, 45, 70, MESSAGE_COUNT].into_iter().enumerate() {
        // Some messages are written while no daemon runs, and some while one runs.
        let more = |from: usize, to: usize| {
            (from..to)
                .map(|n| {
                    telegram.post_as_person("ann", "dev", &format!("@claude_bot do {n}"), None)
                })
                .collect::<Vec<_>>()
        };
        said.extend(more(said.len(), share - 5));
        if nth > 0 {
            quay.start_daemon_without(&[]);
        }
        said.extend(more(said.len(), share));
        if share < MESSAGE_COUNT {
            assert!(
                wait_until(TEST_TIMEOUT, || reaction_count() >= share - 10),
                "only {} of {share} got a receipt",
                reaction_count()
            );
            kill_daemon(&quay.world);
        }
    }
    assert!(
        wait_until(TEST_TIMEOUT, || reaction_count() == MESSAGE_COUNT),
        "only {} got a receipt",
        reaction_count()
    );
    assert_one_turn_each(&quay);
    let polled = |view: &regatta_testkit::services::DoubleView<
        '_,
        regatta_testkit::services::telegram::TelegramState,
    >| { view.unconfirmed("claude_bot") == 0 };
    runtime.block_on(telegram.wait_for(polled, TEST_TIMEOUT));
    assert_eq!(said.len(), MESSAGE_COUNT);
    telegram.assert_well_behaved();
}
