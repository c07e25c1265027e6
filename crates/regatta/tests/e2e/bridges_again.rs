//! Services deliver the same events many times, in any order, while the daemon is killed. Each
//! event is handled once (B1).
//!
//! `REGATTA_SEED=…` repeats an order.

use std::sync::atomic::{AtomicUsize, Ordering};

use regatta_testkit::services::Scale;
use regatta_testkit::services::github::GitHub;
use regatta_testkit::services::linear::Linear;
use regatta_testkit::services::slack::Slack;
use regatta_testkit::services::telegram::Telegram;
use serde_json::{Value, json};

use crate::chaos::kill_daemon;
use crate::kills::Dice;
use crate::quay::{By, Letter, Quay, Told, github_variables, linear_variables, number, runtime, slack_variables, wall};
use crate::world::{LONG, until};

/// The number of messages that people write, the number of deliveries, and after how many accepted
/// deliveries the daemon is killed.
const SAID: usize = 100;
const TOLD: usize = 1_000;
const KILLS: [usize; 3] = [200, 450, 700];
/// How many times faster than the services' clocks the doubles' clocks run. The services' deadlines
/// are not tested here.
const FASTER: f64 = 60.0;

fn scale() -> Scale {
    Scale::faster(FASTER).deadlines(0.1)
}

/// Starts a daemon with one agent whose turns never end, so that the turns can be counted.
fn quay(allow: String, (service, url): (&'static str, String), variables: Vec<(String, String)>) -> Quay {
    let urls = vec![(service, url)];
    let told = Told { agents: &["claude"], allow: vec![allow], urls, clock: FASTER, more: "" };
    let quay = Quay::new(&told, variables);
    quay.agent("claude", 1, &json!([{ "sleep": "1h" }]));
    quay
}

/// Delivers each of `things` events many times, in a random order, while the daemon is killed. Like
/// the services, it repeats a delivery that was not answered with 200.
#[allow(clippy::print_stdout, reason = "the seed and the result")]
fn tell_again_and_again(quay: &Quay, things: usize, letter: impl Fn(usize) -> Letter + Sync) {
    let seed = number("REGATTA_SEED").unwrap_or(20_261_116) as u64;
    println!("REGATTA_SEED={seed}");
    let mut order: Vec<usize> = (0..TOLD).map(|nth| nth % things).collect();
    let mut dice = Dice(seed);
    for at in (1..order.len()).rev() {
        order.swap(at, dice.below(at as u64 + 1) as usize);
    }
    let (next, taken, again) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(which) = order.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let sent = until(LONG, || {
                        let kept = quay.send(&letter(*which)) == Some(200);
                        again.fetch_add(usize::from(!kept), Ordering::SeqCst);
                        kept
                    });
                    assert!(sent, "no delivery of event {which} was accepted");
                    taken.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        for share in KILLS {
            assert!(until(LONG, || taken.load(Ordering::SeqCst) >= share), "only {taken:?} of {share}");
            kill_daemon(&quay.world);
            quay.up(&[]);
        }
    });
    println!("{TOLD} deliveries of {things} events, 3 kills: {again:?} had to be repeated");
}

/// Checks that each message started exactly one turn.
fn assert_each_once(quay: &Quay) {
    let all = quay.conversations();
    assert_eq!(all.len(), SAID, "B1");
    let odd: Vec<&Value> = all.iter().filter(|it| it["turns"] != 1).collect();
    assert!(odd.is_empty(), "B1: these conversations do not have exactly one turn: {odd:#?}");
    assert_eq!((quay.events("delivery.taken"), quay.events("task.added")), (SAID, SAID), "B1");
}

/// B1: Slack delivers each mention as two kinds of events.
#[test]
fn b1_a_hundred_slack_mentions_in_a_thousand_deliveries_start_a_hundred_turns() {
    let runtime = runtime();
    let slack = runtime.block_on(Slack::start());
    slack.limits(scale());
    let claude = slack.app("claude");
    let ann = slack.person("ann");
    slack.channel("dev", &["ann", "claude"]);
    let url = format!("{}/api", slack.base_url());
    let quay = quay(format!("slack:{ann}"), ("slack", url), slack_variables(&claude, "", By::Requests));
    let said: Vec<String> = (0..SAID).map(|n| slack.say("ann", "dev", &format!("@claude do {n}"), None)).collect();
    let events: Vec<String> = slack.envelopes("claude").iter().map(|it| it.payload.to_string()).collect();
    assert_eq!(events.len(), 2 * SAID, "a mention is delivered as app_mention and as message");
    tell_again_and_again(&quay, events.len(), |which| {
        Letter::slack("/webhooks/slack", &claude.signing_secret, &events[which], 0)
    });
    assert_each_once(&quay);
    // Each message gets one reaction that shows its receipt.
    let seen = |ts: &String| slack.reactions("dev", ts) == [("eyes".to_owned(), claude.bot_user.clone())];
    assert!(until(LONG, || said.iter().all(seen)), "a message got no receipt");
    slack.assert_well_behaved();
}

/// B1: the same events arrive under the same and under other GUIDs.
#[test]
fn b1_a_hundred_github_comments_in_a_thousand_deliveries_start_a_hundred_turns() {
    let runtime = runtime();
    let github = runtime.block_on(GitHub::start());
    github.limits(scale());
    let app = github.app("claude-bot");
    github.repo("acme/shop", &["claude-bot"]);
    github.person("ann", "acme/shop", "write");
    let quay = quay("github:write".into(), ("github", github.base_url()), github_variables(&app, ""));
    let said: Vec<(u64, u64)> = (0..SAID)
        .map(|n| {
            let issue = github.open_issue("ann", "acme/shop", &format!("Issue {n}"), "It fails.");
            (issue, github.comment("ann", "acme/shop", issue, &format!("@claude-bot do {n}")))
        })
        .collect();
    let told = github.deliveries("claude-bot").into_iter().filter(|it| it.event == "issue_comment");
    let events: Vec<String> = told.map(|it| it.payload.to_string()).collect();
    assert_eq!(events.len(), SAID);
    tell_again_and_again(&quay, SAID, |which| {
        Letter::github("/webhooks/github", &app.webhook_secret, "issue_comment", &events[which])
    });
    assert_each_once(&quay);
    let seen = |(issue, comment): &(u64, u64)| {
        let all = github.comments("acme/shop", *issue);
        let reactions = all.iter().find(|it| it.id == *comment).map_or(0, |it| it.reactions.len());
        reactions == 1 && all.iter().filter(|it| it.app.is_some()).count() == 1
    };
    assert!(until(LONG, || said.iter().all(seen)), "a comment got no receipt, or two answers");
    github.assert_well_behaved();
}

/// B1: sessions arrive by webhook, and each start of the daemon also finds them in the list of
/// sessions.
#[test]
fn b1_a_hundred_linear_sessions_in_a_thousand_deliveries_start_a_hundred_turns() {
    let runtime = runtime();
    let linear = runtime.block_on(Linear::start());
    linear.limits(scale());
    let app = linear.app("claude");
    linear.person("ann");
    linear.issue("ENG-1", "Login fails", "Since Monday.");
    let url = format!("{}/graphql", linear.base_url());
    let quay = quay("linear:team".into(), ("linear", url), linear_variables(&app, ""));
    let sessions: Vec<String> =
        (0..SAID).map(|n| linear.mention("ann", "ENG-1", "claude", &format!("do {n}"))).collect();
    let events: Vec<Value> = linear.deliveries("claude").into_iter().map(|it| it.payload).collect();
    assert_eq!(events.len(), SAID);
    tell_again_and_again(&quay, SAID, |which| {
        let mut event = events[which].clone();
        event["webhookTimestamp"] = json!(wall().as_millis() as u64); // as Linear does
        Letter::linear("/webhooks/linear", &app.webhook_secret, &event.to_string())
    });
    assert_each_once(&quay);
    let seen = |session: &String| linear.session(session).done().next().is_some();
    assert!(until(LONG, || sessions.iter().all(seen)), "a message got no receipt");
    linear.assert_well_behaved();
}

/// B1: Telegram repeats an update until a poll confirms it by its offset, also to a later daemon.
#[test]
fn b1_a_hundred_telegram_updates_across_kills_start_a_hundred_turns() {
    let runtime = runtime();
    let telegram = runtime.block_on(Telegram::start());
    telegram.limits(scale());
    let bot = telegram.bot("claude_bot");
    let ann = telegram.person("ann");
    telegram.group("dev", &["ann", "claude_bot"]);
    let variables = vec![("TELEGRAM_BOT_TOKEN".to_owned(), bot.token.clone())];
    let quay = quay(format!("telegram:{ann}"), ("telegram", telegram.base_url()), variables);
    let heard = || telegram.messages("dev").iter().filter(|it| !it.reactions.is_empty()).count();
    let mut said = Vec::new();
    for (nth, share) in [20, 45, 70, SAID].into_iter().enumerate() {
        // Some messages are written while no daemon runs, and some while one runs.
        let more = |from: usize, to: usize| {
            (from..to).map(|n| telegram.say("ann", "dev", &format!("@claude_bot do {n}"), None)).collect::<Vec<_>>()
        };
        said.extend(more(said.len(), share - 5));
        if nth > 0 {
            quay.up(&[]);
        }
        said.extend(more(said.len(), share));
        if share < SAID {
            assert!(until(LONG, || heard() >= share - 10), "only {} of {share} got a receipt", heard());
            kill_daemon(&quay.world);
        }
    }
    assert!(until(LONG, || heard() == SAID), "only {} got a receipt", heard());
    assert_each_once(&quay);
    let polled = |view: &regatta_testkit::services::View<'_, regatta_testkit::services::telegram::World>| {
        view.unconfirmed("claude_bot") == 0
    };
    runtime.block_on(telegram.wait_for(polled, LONG));
    assert_eq!(said.len(), SAID);
    telegram.assert_well_behaved();
}
