//! Tests of the Telegram bridge, against a double that enforces the service's rules and limits.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails")]

mod world;

use regatta_core::conversation::TurnState;
use regatta_testkit::services::telegram::{Telegram, TelegramMessage};
use regatta_testkit::services::{ServiceFault, TimeScale};
use world::{SECRET, TEST_TIMEOUT, World};

/// Returns a double of Telegram with two bots of ours and two people in a group, of whom only ann
/// may ask.
async fn set_up() -> (Telegram, World) {
    let telegram = Telegram::start().await;
    telegram.set_time_scale(TimeScale::with_faster_limits(20.0));
    let (claude, codex) = (
        telegram.add_bot("claude_bot"),
        telegram.add_bot("codex_bot"),
    );
    telegram.add_person("ann");
    telegram.add_person("eve");
    telegram.add_group("dev", &["ann", "eve", "claude_bot", "codex_bot"]);
    let mut world = World::new(&["claude", "codex"]).await;
    world.config.allow = vec!["telegram:ann".into()];
    world
        .config
        .url
        .insert("telegram".into(), telegram.base_url());
    world.vars.insert("TELEGRAM_BOT_TOKEN".into(), claude.token);
    world
        .vars
        .insert("TELEGRAM_BOT_TOKEN__CODEX".into(), codex.token);
    (telegram, world)
}

fn messages_from<'a>(messages: &'a [TelegramMessage], bot: &str) -> Vec<&'a TelegramMessage> {
    messages
        .iter()
        .filter(|message| message.from == bot)
        .collect()
}

async fn wait_for_message(telegram: &Telegram, chat: &str, expected_text: &str) -> TelegramMessage {
    let find_message = |messages: &[TelegramMessage]| {
        messages
            .iter()
            .find(|message| message.plain_text.contains(expected_text))
            .cloned()
    };
    telegram
        .wait_for_some(|view| find_message(view.messages(chat)), TEST_TIMEOUT)
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn mention_in_a_group_gets_a_reaction_and_one_message_that_becomes_the_answer() {
    let (telegram, mut world) = set_up().await;
    world.start().await;
    let request_id = telegram.post_as_person("ann", "dev", "@claude_bot wait and fix it", None);
    let working = wait_for_message(&telegram, "dev", "⏳").await;
    assert_eq!(working.reply_to, Some(request_id));
    assert_eq!(
        working.buttons(),
        [("Stop".to_owned(), "stop:V1".to_owned())]
    );
    world.agents.release("go");
    let done = wait_for_message(&telegram, "dev", "Fixed the login bug").await;
    world.wait_until_idle(1).await;
    assert_eq!(done.id, working.id, "the answer is another message");
    assert!(
        done.plain_text.contains("1 < 2") && done.text.contains("<b>Fixed</b>"),
        "{}",
        done.text
    );
    let messages = telegram.messages("dev");
    assert_eq!(messages_from(&messages, "claude_bot").len(), 1);
    assert!(
        messages_from(&messages, "codex_bot").is_empty(),
        "another agent answered"
    );
    let root = messages
        .iter()
        .find(|message| message.id == request_id)
        .unwrap();
    assert_eq!(root.reactions, [("👀".to_owned(), "claude_bot".to_owned())]);
    // A reply to our message needs no mention and continues the conversation.
    telegram.post_as_person("ann", "dev", "what did I say?", Some(done.id));
    wait_for_message(&telegram, "dev", "I was told: what did I say?").await;
    // Another agent is mentioned in the same thread, and gets its own conversation there.
    telegram.post_as_person("ann", "dev", "@codex_bot look at it", Some(done.id));
    wait_for_message(&telegram, "dev", "I was told: look at it").await;
    world.wait_until_idle(1).await;
    world.wait_until_idle(2).await;
    let all = world.conversations();
    assert_eq!(all.len(), 2);
    assert_eq!((all[0].turn_count, all[1].turn_count), (2, 1));
    assert_eq!(
        (all[1].agent.as_str(), &all[1].thread),
        ("codex", &all[0].thread)
    );
    telegram
        .wait_for(
            |view| view.unconfirmed("claude_bot") == 0 && view.unconfirmed("codex_bot") == 0,
            TEST_TIMEOUT,
        )
        .await;
    telegram.assert_well_behaved();
}

/// S4: neither a plan nor an answer shows a secret.
#[tokio::test(flavor = "multi_thread")]
async fn s4_secrets_are_redacted_in_plans_and_answers() {
    let (telegram, mut world) = set_up().await;
    world.start().await;
    telegram.post_as_person("ann", "dev", "@claude_bot leak it and wait", None);
    let working = wait_for_message(&telegram, "dev", "use [redacted]").await;
    assert!(!working.text.contains(SECRET), "{}", working.text);
    world.agents.release("go");
    let done = wait_for_message(&telegram, "dev", "The password is [redacted].").await;
    assert!(!done.text.contains(SECRET), "{}", done.text);
    world.wait_until_idle(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn private_chat_is_one_conversation_and_stop_ends_its_turn() {
    let (telegram, mut world) = set_up().await;
    telegram.add_direct_chat("ann", "claude_bot");
    world.start().await;
    let chat = "ann and claude_bot";
    telegram.post_as_person("ann", chat, "/start", None);
    wait_for_message(&telegram, chat, "Say what is to be done").await;
    telegram.post_as_person("ann", chat, "wait for me", None);
    wait_for_message(&telegram, chat, "⏳").await;
    world
        .wait_for(1, "the turn works", |conversation| {
            conversation.current_turn().is_some()
        })
        .await;
    telegram.post_as_person("ann", chat, "/stop", None);
    let stopped = wait_for_message(&telegram, chat, "Stopped: ann stopped it").await;
    assert!(
        stopped.buttons().is_empty(),
        "a stopped turn still has a stop button"
    );
    world.wait_until_idle(1).await;
    assert_eq!(world.conversations().len(), 1);
    assert_eq!(world.conversations()[0].turns[0].state, TurnState::Stopped);
    telegram.assert_well_behaved();
}

#[tokio::test(flavor = "multi_thread")]
async fn permission_request_has_buttons_for_permitted_people_only() {
    let (telegram, mut world) = set_up().await;
    world.start().await;
    telegram.post_as_person("ann", "dev", "@claude_bot ask me", None);
    let request = wait_for_message(&telegram, "dev", "May I do this?").await;
    let data: Vec<String> = request
        .buttons()
        .into_iter()
        .map(|(_, data)| data)
        .collect();
    assert_eq!(data, ["allow:Q1", "always:Q1", "deny:Q1"]);
    telegram.click("eve", "dev", request.id, "allow:Q1");
    telegram
        .wait_for(
            |view| {
                view.callbacks()
                    .iter()
                    .all(|query| query.answered.is_some())
            },
            TEST_TIMEOUT,
        )
        .await;
    telegram.click("ann", "dev", request.id, "deny:Q1");
    wait_for_message(&telegram, "dev", "Deny").await;
    world.wait_until_idle(1).await;
    telegram
        .wait_for(
            |view| {
                view.callbacks()
                    .iter()
                    .all(|query| query.answered.is_some())
            },
            TEST_TIMEOUT,
        )
        .await;
    let after = telegram.messages("dev");
    assert!(
        after
            .iter()
            .find(|message| message.id == request.id)
            .unwrap()
            .buttons()
            .is_empty(),
        "an answered request still has buttons"
    );
    telegram.assert_well_behaved();
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_people_and_messages_without_a_mention_start_nothing() {
    let (telegram, mut world) = set_up().await;
    world.start().await;
    telegram.post_as_person("eve", "dev", "@claude_bot fix it", None);
    telegram.post_as_person("ann", "dev", "good morning", None);
    telegram.post_as_person("ann", "dev", "mail ann@claude_bot.org", None);
    telegram.post_as_person("ann", "dev", "@claude_bot_2 fix it", None);
    telegram
        .wait_for(
            |view| view.unconfirmed("claude_bot") == 0 && view.unconfirmed("codex_bot") == 0,
            TEST_TIMEOUT,
        )
        .await;
    let all = world.conversations();
    assert_eq!(all.len(), 1, "{all:#?}");
    assert_eq!((all[0].turn_count, all[0].held.len()), (0, 1));
    assert!(messages_from(&telegram.messages("dev"), "claude_bot").is_empty());
    telegram.assert_well_behaved();
}

/// Regatta ends in the middle of a turn. After a restart the same message becomes the answer, and
/// nothing appears twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_in_the_middle_of_a_turn_posts_nothing_twice() {
    let (telegram, mut world) = set_up().await;
    world.start().await;
    telegram.post_as_person("ann", "dev", "@claude_bot wait and fix it", None);
    let working = wait_for_message(&telegram, "dev", "⏳").await;
    world
        .wait_for(
            1,
            "the progress message is recorded as shown",
            |conversation| conversation.unshown_posts().next().is_none(),
        )
        .await;
    world.kill().await;
    telegram.post_as_person("ann", "dev", "and then?", Some(working.id));
    world.start().await;
    world
        .wait_for(1, "the message from the downtime arrived", |conversation| {
            conversation.turn_count == 2
        })
        .await;
    world.agents.release("go");
    let done = wait_for_message(&telegram, "dev", "Fixed the login bug").await;
    assert_eq!(done.id, working.id);
    wait_for_message(&telegram, "dev", "I was told: and then?").await;
    world.wait_until_idle(1).await;
    let messages = telegram.messages("dev");
    let answers = messages_from(&messages, "claude_bot")
        .iter()
        .filter(|message| message.plain_text.contains("Fixed"))
        .count();
    assert_eq!(answers, 1, "{messages:#?}");
    assert_eq!(world.agents.program_counts().values().sum::<usize>(), 2);
    telegram.assert_well_behaved();
}

/// Telegram has no request to look up a message. After an unconfirmed send, progress is therefore
/// not sent again, but an answer is.
#[tokio::test(flavor = "multi_thread")]
async fn after_an_unconfirmed_send_only_an_answer_is_sent_again() {
    let (telegram, mut world) = set_up().await;
    world.start().await;
    telegram.fail_next("sendMessage", 1, ServiceFault::DropAfterCall);
    telegram.post_as_person("ann", "dev", "@claude_bot wait and fix it", None);
    wait_for_message(&telegram, "dev", "⏳").await;
    world
        .wait_for(
            1,
            "the progress message is recorded as shown",
            |conversation| conversation.unshown_posts().next().is_none(),
        )
        .await;
    assert_eq!(
        messages_from(&telegram.messages("dev"), "claude_bot").len(),
        1,
        "progress was sent twice"
    );
    world.agents.release("go");
    wait_for_message(&telegram, "dev", "Fixed the login bug").await;
    world.wait_until_idle(1).await;
    assert_eq!(
        messages_from(&telegram.messages("dev"), "claude_bot").len(),
        2
    );
}

/// A flood in one group waits for Telegram's limits. A private chat does not wait with it, and
/// every final state is right.
#[tokio::test(flavor = "multi_thread")]
async fn flood_in_a_group_keeps_the_limits_and_every_answer_arrives() {
    let (telegram, mut world) = set_up().await;
    telegram.add_direct_chat("ann", "claude_bot");
    world.start().await;
    let roots: Vec<i64> = (0..12)
        .map(|n| telegram.post_as_person("ann", "dev", &format!("@claude_bot say {n}!"), None))
        .collect();
    telegram.post_as_person("ann", "ann and claude_bot", "say it here", None);
    wait_for_message(&telegram, "ann and claude_bot", "I was told: say it here").await;
    for n in 0..12 {
        wait_for_message(&telegram, "dev", &format!("I was told: say {n}!")).await;
    }
    for id in 1..=13 {
        world.wait_until_idle(id).await;
    }
    let messages = telegram.messages("dev");
    for root in roots {
        let answers: Vec<_> = messages
            .iter()
            .filter(|message| message.reply_to == Some(root))
            .collect();
        assert_eq!(answers.len(), 1, "{answers:#?}");
    }
    telegram.assert_well_behaved();
}
