//! Conversations in issues and pull requests: reactions, comments and commands.

use std::collections::BTreeMap;

use regatta_core::conversation::TurnState;

use super::{GithubView, SHOP, TEST_TIMEOUT, World};

fn mentions_nobody(text: &str) -> bool {
    text.split('@').skip(1).all(|text| {
        text.starts_with('\u{200b}') || text.starts_with("x`") || text.starts_with("ann\n```")
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn mention_gets_a_reaction_and_one_comment_that_becomes_the_answer() {
    let world = World::new().await;
    let regatta = world.start().await;
    let number = world.github.open_issue("ann", SHOP, "Login", "It fails.");
    let id = world.github.comment(
        "ann",
        SHOP,
        number,
        "@claude-bot fix it, change it and wait",
    );
    regatta
        .wait_for(|board| {
            board
                .conversations
                .values()
                .any(|conversation| conversation.turn_count == 1)
                .then_some(())
        })
        .await;
    let has_reaction = |view: &GithubView<'_>| {
        let comment = view
            .comments(SHOP, number)
            .iter()
            .find(|comment| comment.id == id)?;
        comment
            .reactions
            .iter()
            .any(|reaction| reaction.content == "eyes")
            .then_some(())
    };
    world.github.wait_for_some(has_reaction, TEST_TIMEOUT).await;
    let first = world
        .wait_for_comment("claude-bot", number, |comment| comment.body.contains('⏳'))
        .await;
    assert!(first.body.contains("Say `stop`"), "{}", first.body);
    assert!(
        first.body.ends_with(" -->") && first.body.contains("<!-- regatta:V1:"),
        "{}",
        first.body
    );
    world.agents.release("go");
    let last = world
        .wait_for_comment("claude-bot", number, |comment| {
            comment.body.contains("Done")
        })
        .await;
    assert_eq!(last.id, first.id, "one comment, edited");
    assert!(
        mentions_nobody(&last.body) && last.versions.iter().all(|version| mentions_nobody(version)),
        "{:?}",
        last.versions
    );
    assert!(
        last.body.contains("| 1 | `@x` |") && last.body.contains("```rust\n// @ann\n```"),
        "{}",
        last.body
    );
    assert!(last.body.contains("Branch:"), "{}", last.body);
    regatta.wait_until_all_shown().await;
    // GitHub delivered its own comments and edits to it, and they had no effect.
    let are_all_delivered = |view: &GithubView<'_>| {
        let answered = view
            .deliveries("claude-bot")
            .iter()
            .all(|delivery| delivery.status_code == Some(200));
        answered.then_some(())
    };
    world
        .github
        .wait_for_some(are_all_delivered, TEST_TIMEOUT)
        .await;
    let conversations = regatta.conversations();
    assert_eq!(conversations.len(), 1, "{conversations:#?}");
    assert_eq!(
        conversations[0].key,
        format!("github:{SHOP}:{number}:claude")
    );
    assert_eq!(
        (conversations[0].turn_count, conversations[0].title.as_str()),
        (1, "Login")
    );
    assert_eq!(conversations[0].turns[0].text, "fix it, change it and wait");
    // While only one agent is in a thread, messages there need no mention.
    world.github.comment("ann", SHOP, number, "and the tests?");
    regatta
        .wait_for(|board| {
            board
                .conversations
                .values()
                .any(|conversation| conversation.turn_count == 2)
                .then_some(())
        })
        .await;
    regatta.wait_until_all_shown().await;
    assert_eq!(world.own_comments("claude-bot", number).len(), 2);
    world.github.assert_well_behaved();
}

#[tokio::test(flavor = "multi_thread")]
async fn comment_without_a_mention_starts_no_agent_when_two_are_in_the_issue() {
    let world = World::new().await;
    let regatta = world.start().await;
    let number = world
        .github
        .open_issue("ann", SHOP, "Login", "@claude-bot please change it");
    world
        .wait_for_comment("claude-bot", number, |comment| {
            comment.body.contains("Done")
        })
        .await;
    assert!(
        world
            .github
            .issue(SHOP, number)
            .unwrap()
            .body
            .reactions
            .iter()
            .any(|reaction| reaction.user == "claude-bot[bot]")
    );
    world
        .github
        .comment("ann", SHOP, number, "@codex-bot review this");
    world
        .wait_for_comment("codex-bot", number, |comment| comment.body.contains("Done"))
        .await;
    regatta.wait_until_all_shown().await;
    world
        .github
        .comment("ann", SHOP, number, "thanks, and the tests?");
    world.github.comment(
        "ann",
        SHOP,
        number,
        "`@codex-bot` and\n\n> @claude-bot\n\nare only quoted",
    );
    let last_comment = world
        .github
        .comment("ann", SHOP, number, "@codex-bot again");
    regatta
        .wait_for(|board| {
            let codex = board
                .conversations
                .values()
                .find(|conversation| conversation.agent.as_str() == "codex")?;
            codex
                .turns
                .iter()
                .any(|turn| turn.source == format!("comment:{last_comment}"))
                .then_some(())
        })
        .await;
    regatta.wait_until_all_shown().await;
    let turns: BTreeMap<String, u64> = regatta
        .conversations()
        .iter()
        .map(|conversation| (conversation.agent.to_string(), conversation.turn_count))
        .collect();
    assert_eq!(
        turns,
        BTreeMap::from([("claude".to_owned(), 1), ("codex".to_owned(), 2)])
    );
    let codex = regatta
        .conversations()
        .into_iter()
        .find(|conversation| conversation.agent.as_str() == "codex")
        .unwrap();
    let reads_work: Vec<bool> = codex
        .turns
        .iter()
        .map(|turn| turn.reviewed_work.is_some())
        .collect();
    assert_eq!(
        reads_work,
        [true, false],
        "only a review reads the other agent's work"
    );
    world.github.assert_well_behaved();
}

#[tokio::test(flavor = "multi_thread")]
async fn review_comment_on_a_line_is_answered_in_its_own_thread() {
    let world = World::new().await;
    let regatta = world.start().await;
    let pull = world
        .github
        .open_pull("ann", SHOP, ("Mine", ""), ("ann/x", "main"), "diff");
    let root_id = world
        .github
        .review_comment("ann", SHOP, pull, (("src/a.rs", 3), "Why?"), None);
    let question_id = world.github.review_comment(
        "ann",
        SHOP,
        pull,
        (("src/a.rs", 3), "@claude-bot why and wait"),
        Some(root_id),
    );
    regatta
        .wait_for(|board| {
            board
                .conversations
                .values()
                .next()
                .and_then(|conversation| conversation.current_turn().cloned())
        })
        .await;
    // A comment elsewhere before the turn ends does not change where the turn is answered.
    world
        .github
        .comment("ann", SHOP, pull, "@claude-bot and the rest?");
    regatta
        .wait_for(|board| {
            board
                .conversations
                .values()
                .any(|conversation| conversation.queued_count() == 1)
                .then_some(())
        })
        .await;
    world.agents.release("go");
    let find_answer = |view: &GithubView<'_>| {
        let own = view
            .review_comments(SHOP, pull)
            .iter()
            .find(|review_comment| review_comment.comment.app.is_some())?;
        own.comment.body.contains("Done").then(|| own.clone())
    };
    let reply = world.github.wait_for_some(find_answer, TEST_TIMEOUT).await;
    assert_eq!(reply.in_reply_to, Some(root_id));
    regatta.wait_until_all_shown().await;
    world
        .wait_for_comment("claude-bot", pull, |comment| comment.body.contains("Done"))
        .await;
    let comments = world.github.review_comments(SHOP, pull);
    let question = comments
        .iter()
        .find(|review_comment| review_comment.comment.id == question_id)
        .unwrap();
    assert_eq!(question.comment.reactions[0].content, "eyes");
    assert_eq!(
        comments
            .iter()
            .filter(|review_comment| review_comment.comment.app.is_some())
            .count(),
        1
    );
    let own = world.own_comments("claude-bot", pull);
    assert_eq!(
        own.iter()
            .filter(|comment| comment.body.contains("Done"))
            .count(),
        1,
        "{own:#?}"
    );
    world.github.assert_well_behaved();
}

#[tokio::test(flavor = "multi_thread")]
async fn comment_allow_answers_a_request_and_comment_stop_ends_the_turn() {
    let world = World::new().await;
    let regatta = world.start().await;
    let number = world
        .github
        .open_issue("ann", SHOP, "Login", "@claude-bot ask first");
    let question = world
        .wait_for_comment("claude-bot", number, |comment| {
            comment.body.contains("May I do this?")
        })
        .await;
    assert!(
        question.body.contains("npm install zod") && question.body.contains("`allow` or `deny`")
    );
    assert!(!question.body.contains("button"), "{}", question.body);
    // A person without write permission may not answer either.
    world.github.comment("eve", SHOP, number, "allow");
    regatta
        .wait_for(|board| {
            board
                .conversations
                .values()
                .any(|conversation| !conversation.held.is_empty())
                .then_some(())
        })
        .await;
    assert!(
        regatta
            .engine
            .board()
            .approvals
            .values()
            .any(|approval| approval.is_open())
    );
    world.github.comment("ann", SHOP, number, "allow");
    world
        .wait_for_comment("claude-bot", number, |comment| {
            comment.body.contains("Done")
        })
        .await;
    regatta.wait_until_all_shown().await;
    world
        .github
        .comment("ann", SHOP, number, "@claude-bot now and wait");
    regatta
        .wait_for(|board| {
            board
                .conversations
                .values()
                .any(|conversation| {
                    conversation.turn_count == 2 && conversation.current_turn().is_some()
                })
                .then_some(())
        })
        .await;
    world.github.comment("ann", SHOP, number, "stop");
    world
        .wait_for_comment("claude-bot", number, |comment| {
            comment.body.contains("ann stopped it")
        })
        .await;
    regatta
        .wait_for(|board| {
            let conversation = board.conversations.values().next()?;
            (conversation.turns.last()?.state == TurnState::Stopped).then_some(())
        })
        .await;
    world.github.assert_well_behaved();
}

/// A comment that exceeds the maximum length is answered with an explanation in the thread.
#[tokio::test(flavor = "multi_thread")]
async fn comment_that_is_too_long_is_answered_with_an_explanation() {
    let world = World::new().await;
    let regatta = world.start().await;
    // 80,000 bytes, which GitHub still accepts
    let long = format!("@claude-bot {}", "é".repeat(40_000));
    let number = world.github.open_issue("ann", SHOP, "Login", "It fails.");
    world.github.comment("ann", SHOP, number, &long);
    world
        .wait_for_comment("claude-bot", number, |comment| {
            comment.body.contains("64 KiB")
        })
        .await;
    regatta.wait_until_all_shown().await;
    assert_eq!(regatta.conversations()[0].turn_count, 0);
}
