//! What services tell again and again, in any order and while the daemon is killed, is handled once (B1).
//!
//! `REGATTA_SEED=…` gives the same order again.

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

/// How many things people say, how often each is told, and after how many of all tellings the daemon is killed.
const SAID: usize = 100;
const TOLD: usize = 1_000;
const KILLS: [usize; 3] = [200, 450, 700];
/// How much faster than the services' the doubles' clocks run; what they ask of our promptness is not tested here.
const FASTER: f64 = 60.0;

fn scale() -> Scale {
    Scale::faster(FASTER).deadlines(0.1)
}

/// A daemon with one agent that never ends, so that whatever is taken is to be counted.
fn quay(allow: String, (service, url): (&'static str, String), variables: Vec<(String, String)>) -> Quay {
    let urls = vec![(service, url)];
    let told = Told { agents: &["claude"], allow: vec![allow], urls, clock: FASTER, more: "" };
    let quay = Quay::new(&told, variables);
    quay.agent("claude", 1, &json!([{ "sleep": "1h" }]));
    quay
}

/// Tells each of so many things again and again, in an order of the dice, while the daemon is killed. As services do,
/// whatever is not answered with 200 is told once more.
#[allow(clippy::print_stdout, reason = "which dice, and what came of it")]
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
                    assert!(sent, "it is never taken: {which}");
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
    println!("{TOLD} tellings of {things} things, 3 kills: {again:?} had to be told once more");
}

/// Each was handled once.
fn assert_each_once(quay: &Quay) {
    let all = quay.conversations();
    assert_eq!(all.len(), SAID, "B1");
    let odd: Vec<&Value> = all.iter().filter(|it| it["turns"] != 1).collect();
    assert!(odd.is_empty(), "B1: these were not handled once: {odd:#?}");
    assert_eq!((quay.events("delivery.taken"), quay.events("task.added")), (SAID, SAID), "B1");
}

/// B1: by both kinds of events that Slack has for a mention.
#[test]
fn b1_a_thousand_redeliveries_of_a_hundred_deliveries_of_slack_are_a_hundred() {
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
    assert_eq!(events.len(), 2 * SAID, "a mention is told as app_mention and as message");
    tell_again_and_again(&quay, events.len(), |which| {
        Letter::slack("/webhooks/slack", &claude.signing_secret, &events[which], 0)
    });
    assert_each_once(&quay);
    // Everybody is shown once that they were heard.
    let seen = |ts: &String| slack.reactions("dev", ts) == [("eyes".to_owned(), claude.bot_user.clone())];
    assert!(until(LONG, || said.iter().all(seen)), "somebody was not heard");
    slack.assert_well_behaved();
}

/// B1: under the same GUID and under others.
#[test]
fn b1_a_thousand_redeliveries_of_a_hundred_deliveries_of_github_are_a_hundred() {
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
    assert!(until(LONG, || said.iter().all(seen)), "somebody was not heard, or answered twice");
    github.assert_well_behaved();
}

/// B1: told of, and found at every start by a look at the sessions.
#[test]
fn b1_a_thousand_redeliveries_of_a_hundred_deliveries_of_linear_are_a_hundred() {
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
    assert!(until(LONG, || sessions.iter().all(seen)), "somebody was not heard");
    linear.assert_well_behaved();
}

/// B1: what was not confirmed by its offset comes again with the next poll, of whoever polls then.
#[test]
fn b1_a_hundred_updates_of_telegram_across_kills_are_a_hundred() {
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
        // Some is said while nobody listens, some while it works.
        let more = |from: usize, to: usize| {
            (from..to).map(|n| telegram.say("ann", "dev", &format!("@claude_bot do {n}"), None)).collect::<Vec<_>>()
        };
        said.extend(more(said.len(), share - 5));
        if nth > 0 {
            quay.up(&[]);
        }
        said.extend(more(said.len(), share));
        if share < SAID {
            assert!(until(LONG, || heard() >= share - 10), "only {} of {share} were heard", heard());
            kill_daemon(&quay.world);
        }
    }
    assert!(until(LONG, || heard() == SAID), "only {} were heard", heard());
    assert_each_once(&quay);
    let polled = |view: &regatta_testkit::services::View<'_, regatta_testkit::services::telegram::World>| {
        view.unconfirmed("claude_bot") == 0
    };
    runtime.block_on(telegram.wait_for(polled, LONG));
    assert_eq!(said.len(), SAID);
    telegram.assert_well_behaved();
}
