//! Tests of Telegram's double: the poll and its offset, messages and buttons, limits and faults.

use regatta_testkit::services::telegram::{MAX_PER_MINUTE_IN_GROUP, Telegram, TelegramBot};
use regatta_testkit::services::{ServiceFault, TimeScale, ViolationKind};
use serde_json::{Value, json};

use crate::http_client::{TEST_TIMEOUT, TestResponse, call_json, send_http};

async fn api(telegram: &Telegram, bot: &TelegramBot, method: &str, body: Value) -> TestResponse {
    let url = format!("{}/bot{}/{method}", telegram.base_url(), bot.token);
    call_json("POST", &url, "unused", &body)
        .await
        .expect("the request is answered")
}

async fn result(telegram: &Telegram, bot: &TelegramBot, method: &str, body: Value) -> Value {
    let answer = api(telegram, bot, method, body).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.body["result"].clone()
}

async fn start_with_group() -> (Telegram, TelegramBot, i64) {
    let telegram = Telegram::start().await;
    let bot = telegram.add_bot("claude_bot");
    telegram.add_person("ann");
    let dev = telegram.add_group("dev", &["ann", "claude_bot"]);
    (telegram, bot, dev)
}

#[tokio::test]
async fn updates_are_confirmed_only_by_an_offset() {
    let (telegram, bot, dev) = start_with_group().await;
    assert_eq!(
        result(&telegram, &bot, "getMe", json!({})).await["username"],
        "claude_bot"
    );
    let waiting = api(&telegram, &bot, "getUpdates", json!({"timeout": 20}));
    let speaking = async {
        telegram
            .wait_for(|view| view.unconfirmed("claude_bot") == 0, TEST_TIMEOUT)
            .await;
        telegram.post_as_person("ann", "dev", "@claude_bot fix it", None)
    };
    let (got, id) = tokio::join!(waiting, speaking);
    let update = &got.body["result"][0];
    assert_eq!(
        (
            &update["message"]["message_id"],
            &update["message"]["chat"]["id"]
        ),
        (&json!(id), &json!(dev))
    );
    assert_eq!(
        update["message"]["entities"][0],
        json!({"type": "mention", "offset": 0, "length": 11})
    );
    let again = result(&telegram, &bot, "getUpdates", json!({})).await;
    assert_eq!(
        again[0]["update_id"], update["update_id"],
        "the update was not confirmed yet"
    );
    let next = update["update_id"].as_i64().unwrap() + 1;
    assert_eq!(
        result(&telegram, &bot, "getUpdates", json!({"offset": next})).await,
        json!([])
    );
    assert_eq!(telegram.view(|view| view.unconfirmed("claude_bot")), 0);
    telegram.assert_well_behaved();
}

#[tokio::test]
async fn second_poll_ends_the_first() {
    let (telegram, bot, _) = start_with_group().await;
    let first = api(&telegram, &bot, "getUpdates", json!({"timeout": 50}));
    let second = async {
        telegram
            .wait_for_some(
                |view| view.poll_count("claude_bot").checked_sub(1),
                TEST_TIMEOUT,
            )
            .await;
        api(&telegram, &bot, "getUpdates", json!({"timeout": 0})).await
    };
    let (first, second) = tokio::join!(first, second);
    assert_eq!((first.status, second.status), (409, 200));
    assert_eq!(
        telegram
            .violations()
            .iter()
            .map(|violation| violation.kind)
            .collect::<Vec<_>>(),
        [ViolationKind::WrongState]
    );
}

#[tokio::test]
async fn messages_have_buttons_edits_and_reactions() {
    let (telegram, bot, dev) = start_with_group().await;
    let asked = telegram.post_as_person("ann", "dev", "@claude_bot may you?", None);
    let keyboard = json!({"inline_keyboard": [[{"text": "Allow", "callback_data": "allow:7"}]]});
    let body = json!({"chat_id": dev, "text": "<b>May I?</b>", "parse_mode": "HTML", "reply_markup": keyboard, "reply_parameters": {"message_id": asked}});
    let sent = result(&telegram, &bot, "sendMessage", body).await;
    assert_eq!(
        (&sent["text"], &sent["reply_to_message"]["message_id"]),
        (&json!("May I?"), &json!(asked))
    );
    let id = sent["message_id"].as_i64().unwrap();
    let callback = telegram.click("ann", "dev", id, "allow:7");
    let updates = result(&telegram, &bot, "getUpdates", json!({})).await;
    assert_eq!(
        updates.as_array().unwrap().len(),
        2,
        "a bot gets no update about its own messages"
    );
    assert_eq!(updates[1]["callback_query"]["id"], callback);
    result(
        &telegram,
        &bot,
        "answerCallbackQuery",
        json!({"callback_query_id": callback}),
    )
    .await;
    assert_eq!(
        api(
            &telegram,
            &bot,
            "answerCallbackQuery",
            json!({"callback_query_id": callback})
        )
        .await
        .status,
        400
    );
    let edit =
        json!({"chat_id": dev, "message_id": id, "text": "Allowed\\.", "parse_mode": "MarkdownV2"});
    result(&telegram, &bot, "editMessageText", edit.clone()).await;
    let same = api(&telegram, &bot, "editMessageText", edit).await;
    assert!(
        same.body["description"]
            .as_str()
            .unwrap()
            .starts_with("Bad Request: message is not modified")
    );
    let reaction = json!([{"type": "emoji", "emoji": "👀"}]);
    result(
        &telegram,
        &bot,
        "setMessageReaction",
        json!({"chat_id": dev, "message_id": asked, "reaction": reaction}),
    )
    .await;
    result(
        &telegram,
        &bot,
        "sendChatAction",
        json!({"chat_id": dev, "action": "typing"}),
    )
    .await;
    let messages = telegram.messages("dev");
    assert_eq!(
        (
            messages[0].reactions.len(),
            messages[1].plain_text.as_str(),
            messages[1].buttons().len()
        ),
        (1, "Allowed.", 0)
    );
    assert_eq!(telegram.actions("dev").len(), 1);
    assert_eq!(telegram.callbacks()[0].answered.as_deref(), Some(""));
}

#[tokio::test]
async fn requests_that_telegram_refuses_are_refused_and_recorded() {
    let (telegram, bot, dev) = start_with_group().await;
    telegram.set_time_scale(TimeScale::with_faster_limits(10_000.0));
    let asked = telegram.post_as_person("ann", "dev", "hello", None);
    let button = |data: &str| json!({"inline_keyboard": [[{"text": "x", "callback_data": data}]]});
    let cases = [
        (
            "sendMessage",
            json!({"chat_id": dev, "text": ""}),
            "message text is empty",
            true,
        ),
        (
            "sendMessage",
            json!({"chat_id": dev, "text": "x".repeat(4097)}),
            "message is too long",
            true,
        ),
        (
            "sendMessage",
            json!({"chat_id": dev, "text": "a.b", "parse_mode": "MarkdownV2"}),
            "can't parse entities",
            true,
        ),
        (
            "sendMessage",
            json!({"chat_id": dev, "text": "x", "reply_markup": button(&"x".repeat(65))}),
            "BUTTON_DATA_INVALID",
            true,
        ),
        (
            "sendMessage",
            json!({"chat_id": dev, "text": "x", "reply_markup": "{"}),
            "can't parse reply_markup",
            true,
        ),
        (
            "sendMessage",
            json!({"chat_id": 5, "text": "x"}),
            "chat not found",
            false,
        ),
        (
            "editMessageText",
            json!({"chat_id": dev, "message_id": asked, "text": "x"}),
            "message can't be edited",
            true,
        ),
        (
            "editMessageText",
            json!({"chat_id": dev, "message_id": 99_999, "text": "x"}),
            "message to edit not found",
            false,
        ),
        (
            "setMessageReaction",
            json!({"chat_id": dev, "message_id": asked, "reaction": [{"type": "emoji", "emoji": "🦀"}]}),
            "REACTION_INVALID",
            true,
        ),
        (
            "sendChatAction",
            json!({"chat_id": dev, "action": "sleeping"}),
            "wrong parameter action",
            true,
        ),
        ("sendCoffee", json!({}), "method not found", true),
    ];
    for (method, body, words, wrong) in &cases {
        let before = telegram.violations().len();
        let answer = api(&telegram, &bot, method, body.clone()).await;
        assert!(
            answer.body["description"].as_str().unwrap().contains(words),
            "{method} {body}: {}",
            answer.body
        );
        assert_eq!(
            telegram.violations().len() > before,
            *wrong,
            "{method} {body}"
        );
    }
    let stranger = format!("{}/bot1:x/getMe", telegram.base_url());
    assert_eq!(
        send_http("GET", &stranger, &[], "").await.unwrap().status,
        401
    );
}

#[tokio::test]
async fn limits_apply_per_chat_and_per_group() {
    let (telegram, bot, dev) = start_with_group().await;
    let ann = telegram.add_direct_chat("ann", "claude_bot");
    let send = |chat: i64| {
        api(
            &telegram,
            &bot,
            "sendMessage",
            json!({"chat_id": chat, "text": "x"}),
        )
    };
    // The clock is twenty times slower, so that the pauses of a busy machine do not avoid the
    // limit.
    telegram.set_time_scale(TimeScale::with_faster_limits(0.05));
    let mut statuses = vec![];
    for _ in 0..4 {
        statuses.push(send(ann).await.status);
    }
    assert_eq!(statuses, [200, 200, 200, 429]);
    let refused = send(ann).await;
    let wait = refused.body["parameters"]["retry_after"].as_f64().unwrap();
    assert!(wait > 0.0 && wait <= 20.0, "{wait}");
    assert_eq!(send(dev).await.status, 200, "another chat");
    let (telegram, bot, dev) = start_with_group().await;
    // The clock is ten times faster, so the group's minute takes six seconds. A client that sends
    // without a pause exceeds the limit after twenty messages.
    telegram.set_time_scale(TimeScale::with_faster_limits(10.0));
    let mut good = 0;
    let met = |violation: &regatta_testkit::services::Violation| {
        violation.description.contains("the group dev")
    };
    let asking = async {
        while !telegram.violations().iter().any(met) {
            let answer = api(
                &telegram,
                &bot,
                "sendMessage",
                json!({"chat_id": dev, "text": "x"}),
            )
            .await;
            good += u32::from(answer.status == 200);
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, asking)
        .await
        .expect("the group's limit is exceeded in time");
    assert!(good >= MAX_PER_MINUTE_IN_GROUP, "{good}");
    let wrong: Vec<ViolationKind> = telegram
        .violations()
        .iter()
        .map(|violation| violation.kind)
        .collect();
    assert!(wrong.iter().all(|violation_kind| matches!(
        violation_kind,
        ViolationKind::RateLimit | ViolationKind::TooSoon
    )));
}

#[tokio::test]
async fn bot_in_privacy_mode_sees_only_mentions_and_replies_and_no_bot_sees_a_bot() {
    let (telegram, bot, dev) = start_with_group().await;
    let other = telegram.add_bot("codex_bot");
    let both = telegram.add_group("both", &["ann", "claude_bot", "codex_bot"]);
    telegram.set_privacy("codex_bot", true);
    telegram.post_as_person("ann", "both", "nobody's business", None);
    let sent = result(
        &telegram,
        &other,
        "sendMessage",
        json!({"chat_id": both, "text": "Hi"}),
    )
    .await;
    telegram.post_as_person("ann", "both", "thanks", sent["message_id"].as_i64());
    telegram.post_as_person("ann", "both", "@codex_bot go", None);
    let seen = |updates: Value| -> Vec<String> {
        let all = updates.as_array().unwrap().iter();
        all.map(|update| update["message"]["text"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        seen(result(&telegram, &other, "getUpdates", json!({})).await),
        ["thanks", "@codex_bot go"]
    );
    assert_eq!(
        seen(result(&telegram, &bot, "getUpdates", json!({})).await),
        ["nobody's business", "thanks", "@codex_bot go"]
    );
    assert_eq!(
        api(
            &telegram,
            &other,
            "sendMessage",
            json!({"chat_id": dev, "text": "x"})
        )
        .await
        .status,
        403
    );
    telegram.fail_next("sendMessage", 1, ServiceFault::DropAfterCall);
    let url = format!("{}/bot{}/sendMessage", telegram.base_url(), bot.token);
    assert!(
        call_json("POST", &url, "", &json!({"chat_id": dev, "text": "once"}))
            .await
            .is_none()
    );
    assert_eq!(telegram.messages("dev").len(), 1);
}
