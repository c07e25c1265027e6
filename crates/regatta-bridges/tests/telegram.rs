//! Tests of the Telegram bridge, against a double that enforces the service's rules and limits.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails")]

mod world;

use regatta_core::conversation::TurnState;
use regatta_testkit::services::telegram::{Message, Telegram};
use regatta_testkit::services::{Fault, Scale};
use world::{SECRET, SOON, World};

/// Returns a double of Telegram with two bots of ours and two people in a group, of whom only ann
/// may ask.
async fn setting() -> (Telegram, World) {
    let telegram = Telegram::start().await;
    telegram.limits(Scale::faster(20.0));
    let (claude, codex) = (telegram.bot("claude_bot"), telegram.bot("codex_bot"));
    telegram.person("ann");
    telegram.person("eve");
    telegram.group("dev", &["ann", "eve", "claude_bot", "codex_bot"]);
    let mut world = World::new(&["claude", "codex"]).await;
    world.config.allow = vec!["telegram:ann".into()];
    world.config.url.insert("telegram".into(), telegram.base_url());
    world.vars.insert("TELEGRAM_BOT_TOKEN".into(), claude.token);
    world.vars.insert("TELEGRAM_BOT_TOKEN__CODEX".into(), codex.token);
    (telegram, world)
}

fn of<'a>(messages: &'a [Message], bot: &str) -> Vec<&'a Message> {
    messages.iter().filter(|it| it.from == bot).collect()
}

async fn until_said(telegram: &Telegram, chat: &str, words: &str) -> Message {
    let found = |messages: &[Message]| messages.iter().find(|it| it.shown.contains(words)).cloned();
    telegram.find(|view| found(view.messages(chat)), SOON).await
}

#[tokio::test(flavor = "multi_thread")]
async fn mention_in_a_group_gets_a_reaction_and_one_message_that_becomes_the_answer() {
    let (telegram, mut world) = setting().await;
    world.start().await;
    let asked = telegram.say("ann", "dev", "@claude_bot wait and fix it", None);
    let working = until_said(&telegram, "dev", "⏳").await;
    assert_eq!(working.reply_to, Some(asked));
    assert_eq!(working.buttons(), [("Stop".to_owned(), "stop:V1".to_owned())]);
    world.agents.let_go("go");
    let done = until_said(&telegram, "dev", "Fixed the login bug").await;
    world.until_quiet(1).await;
    assert_eq!(done.id, working.id, "the answer is another message");
    assert!(done.shown.contains("1 < 2") && done.text.contains("<b>Fixed</b>"), "{}", done.text);
    let messages = telegram.messages("dev");
    assert_eq!(of(&messages, "claude_bot").len(), 1);
    assert!(of(&messages, "codex_bot").is_empty(), "another agent answered");
    let root = messages.iter().find(|it| it.id == asked).unwrap();
    assert_eq!(root.reactions, [("👀".to_owned(), "claude_bot".to_owned())]);
    // A reply to our message needs no mention and continues the conversation.
    telegram.say("ann", "dev", "what did I say?", Some(done.id));
    until_said(&telegram, "dev", "I was told: what did I say?").await;
    // Another agent is mentioned in the same thread, and gets its own conversation there.
    telegram.say("ann", "dev", "@codex_bot look at it", Some(done.id));
    until_said(&telegram, "dev", "I was told: look at it").await;
    world.until_quiet(1).await;
    world.until_quiet(2).await;
    let all = world.conversations();
    assert_eq!(all.len(), 2);
    assert_eq!((all[0].turn_count, all[1].turn_count), (2, 1));
    assert_eq!((all[1].agent.as_str(), &all[1].thread), ("codex", &all[0].thread));
    telegram.wait_for(|view| view.unconfirmed("claude_bot") == 0 && view.unconfirmed("codex_bot") == 0, SOON).await;
    telegram.assert_well_behaved();
}

/// S4: neither a plan nor an answer shows a secret.
#[tokio::test(flavor = "multi_thread")]
async fn s4_secrets_are_redacted_in_plans_and_answers() {
    let (telegram, mut world) = setting().await;
    world.start().await;
    telegram.say("ann", "dev", "@claude_bot leak it and wait", None);
    let working = until_said(&telegram, "dev", "use [redacted]").await;
    assert!(!working.text.contains(SECRET), "{}", working.text);
    world.agents.let_go("go");
    let done = until_said(&telegram, "dev", "The password is [redacted].").await;
    assert!(!done.text.contains(SECRET), "{}", done.text);
    world.until_quiet(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn private_chat_is_one_conversation_and_stop_ends_its_turn() {
    let (telegram, mut world) = setting().await;
    telegram.direct("ann", "claude_bot");
    world.start().await;
    let chat = "ann and claude_bot";
    telegram.say("ann", chat, "/start", None);
    until_said(&telegram, chat, "Say what is to be done").await;
    telegram.say("ann", chat, "wait for me", None);
    until_said(&telegram, chat, "⏳").await;
    world.until(1, "the turn works", |it| it.working().is_some()).await;
    telegram.say("ann", chat, "/stop", None);
    let stopped = until_said(&telegram, chat, "Stopped: ann stopped it").await;
    assert!(stopped.buttons().is_empty(), "a stopped turn still has a stop button");
    world.until_quiet(1).await;
    assert_eq!(world.conversations().len(), 1);
    assert_eq!(world.conversations()[0].turns[0].state, TurnState::Stopped);
    telegram.assert_well_behaved();
}

#[tokio::test(flavor = "multi_thread")]
async fn permission_request_has_buttons_for_permitted_people_only() {
    let (telegram, mut world) = setting().await;
    world.start().await;
    telegram.say("ann", "dev", "@claude_bot ask me", None);
    let asked = until_said(&telegram, "dev", "May I do this?").await;
    let data: Vec<String> = asked.buttons().into_iter().map(|it| it.1).collect();
    assert_eq!(data, ["allow:Q1", "always:Q1", "deny:Q1"]);
    telegram.click("eve", "dev", asked.id, "allow:Q1");
    telegram.wait_for(|view| view.callbacks().iter().all(|it| it.answered.is_some()), SOON).await;
    telegram.click("ann", "dev", asked.id, "deny:Q1");
    until_said(&telegram, "dev", "Deny").await;
    world.until_quiet(1).await;
    telegram.wait_for(|view| view.callbacks().iter().all(|it| it.answered.is_some()), SOON).await;
    let after = telegram.messages("dev");
    assert!(
        after.iter().find(|it| it.id == asked.id).unwrap().buttons().is_empty(),
        "an answered request still has buttons"
    );
    telegram.assert_well_behaved();
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_people_and_messages_without_a_mention_start_nothing() {
    let (telegram, mut world) = setting().await;
    world.start().await;
    telegram.say("eve", "dev", "@claude_bot fix it", None);
    telegram.say("ann", "dev", "good morning", None);
    telegram.say("ann", "dev", "mail ann@claude_bot.org", None);
    telegram.say("ann", "dev", "@claude_bot_2 fix it", None);
    telegram.wait_for(|view| view.unconfirmed("claude_bot") == 0 && view.unconfirmed("codex_bot") == 0, SOON).await;
    let all = world.conversations();
    assert_eq!(all.len(), 1, "{all:#?}");
    assert_eq!((all[0].turn_count, all[0].held.len()), (0, 1));
    assert!(of(&telegram.messages("dev"), "claude_bot").is_empty());
    telegram.assert_well_behaved();
}

/// Regatta ends in the middle of a turn. After a restart the same message becomes the answer, and
/// nothing appears twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_in_the_middle_of_a_turn_posts_nothing_twice() {
    let (telegram, mut world) = setting().await;
    world.start().await;
    telegram.say("ann", "dev", "@claude_bot wait and fix it", None);
    let working = until_said(&telegram, "dev", "⏳").await;
    world.until(1, "the progress message is recorded as shown", |it| it.unshown().next().is_none()).await;
    world.end().await;
    telegram.say("ann", "dev", "and then?", Some(working.id));
    world.start().await;
    world.until(1, "the message from the downtime arrived", |it| it.turn_count == 2).await;
    world.agents.let_go("go");
    let done = until_said(&telegram, "dev", "Fixed the login bug").await;
    assert_eq!(done.id, working.id);
    until_said(&telegram, "dev", "I was told: and then?").await;
    world.until_quiet(1).await;
    let messages = telegram.messages("dev");
    let answers = of(&messages, "claude_bot").iter().filter(|it| it.shown.contains("Fixed")).count();
    assert_eq!(answers, 1, "{messages:#?}");
    assert_eq!(world.agents.programs().values().sum::<usize>(), 2);
    telegram.assert_well_behaved();
}

/// Telegram has no request to look up a message. After an unconfirmed send, progress is therefore
/// not sent again, but an answer is.
#[tokio::test(flavor = "multi_thread")]
async fn after_an_unconfirmed_send_only_an_answer_is_sent_again() {
    let (telegram, mut world) = setting().await;
    world.start().await;
    telegram.fail_next("sendMessage", 1, Fault::DropAfterDoing);
    telegram.say("ann", "dev", "@claude_bot wait and fix it", None);
    until_said(&telegram, "dev", "⏳").await;
    world.until(1, "the progress message is recorded as shown", |it| it.unshown().next().is_none()).await;
    assert_eq!(of(&telegram.messages("dev"), "claude_bot").len(), 1, "progress was sent twice");
    world.agents.let_go("go");
    until_said(&telegram, "dev", "Fixed the login bug").await;
    world.until_quiet(1).await;
    assert_eq!(of(&telegram.messages("dev"), "claude_bot").len(), 2);
}

/// A flood in one group waits for Telegram's limits. A private chat does not wait with it, and
/// every final state is right.
#[tokio::test(flavor = "multi_thread")]
async fn flood_in_a_group_keeps_the_limits_and_every_answer_arrives() {
    let (telegram, mut world) = setting().await;
    telegram.direct("ann", "claude_bot");
    world.start().await;
    let roots: Vec<i64> = (0..12).map(|n| telegram.say("ann", "dev", &format!("@claude_bot say {n}!"), None)).collect();
    telegram.say("ann", "ann and claude_bot", "say it here", None);
    until_said(&telegram, "ann and claude_bot", "I was told: say it here").await;
    for n in 0..12 {
        until_said(&telegram, "dev", &format!("I was told: say {n}!")).await;
    }
    for id in 1..=13 {
        world.until_quiet(id).await;
    }
    let messages = telegram.messages("dev");
    for root in roots {
        let answers: Vec<_> = messages.iter().filter(|it| it.reply_to == Some(root)).collect();
        assert_eq!(answers.len(), 1, "{answers:#?}");
    }
    telegram.assert_well_behaved();
}
