//! Messages in a thread: reviews, attachments, long answers, and the notice that a message waits.

use regatta_core::conversation::review::PullRequest;
use regatta_core::conversation::{
    Conversation, PostContent, ThreadMessage, ThreadMessageOutcome, ThreadPost, TurnState,
};
use regatta_core::ids::{ConversationId, TaskId};

use crate::conversations::{
    begin_attempt, conversation_with_id, end_turn, open_session, send_message, slack_message,
    world_with_agents,
};

fn notes(conversation: &Conversation) -> String {
    let note = |post: &ThreadPost| match &post.content {
        PostContent::Note { text, .. } => Some(text.clone()),
        _ => None,
    };
    conversation
        .posts
        .iter()
        .filter_map(note)
        .collect::<Vec<_>>()
        .join("\n")
}

/// The reviewer gets a person's pull request as text. A reviewer's changes are not work.
#[test]
fn a_pull_request_of_a_person_is_handed_to_its_reviewer() {
    let mut world = world_with_agents();
    let diff = "#50: Login\nby eve, from 1a2b onto main\n\n+let admin = true;";
    let pull = Some(PullRequest {
        number: 50,
        text: diff.into(),
    });
    send_message(
        &mut world,
        ThreadMessage {
            pull,
            ..slack_message(
                "claude",
                "1",
                "review this PR and check for security issues",
            )
        },
    );
    let grant = begin_attempt(&mut world, TaskId(1));
    open_session(&mut world, &grant, "s-1");
    let notes = world.board.attempts[&grant.attempt].notes.join("\n");
    assert!(
        notes.contains("You review pull request #50") && notes.contains("+let admin = true;"),
        "{notes}"
    );
    end_turn(
        &mut world,
        &grant,
        "It makes everybody an administrator.",
        &["src/login.rs"],
    );
    let turn = &conversation_with_id(&world, 1).turns[0];
    assert_eq!((turn.state, turn.work.is_none()), (TurnState::Done, true));
    assert_eq!(
        turn.reviewed_pull_request
            .as_ref()
            .map(|pull| (pull.number, pull.text.as_str())),
        Some((50, ""))
    );
    assert_eq!(world.reloaded(), world.board);
}

/// A review without a pull request or work to look at starts no turn, and the thread gets the
/// reason.
#[test]
fn a_review_of_nothing_is_refused_in_the_thread() {
    for (text, words) in [
        ("review PR #999", "#999"),
        ("review it", "nothing here to review"),
    ] {
        let mut world = world_with_agents();
        let heard = send_message(&mut world, slack_message("claude", "1", text));
        assert_eq!(
            heard,
            ThreadMessageOutcome::Commanded {
                conversation: ConversationId(1)
            },
            "{text}"
        );
        assert!(
            notes(conversation_with_id(&world, 1)).contains(words),
            "{text}: {}",
            notes(conversation_with_id(&world, 1))
        );
        assert_eq!(
            (
                conversation_with_id(&world, 1).turn_count,
                world.board.tasks.len()
            ),
            (0, 0)
        );
        let plain = send_message(
            &mut world,
            slack_message("claude", "2", "review the login page"),
        );
        assert!(
            matches!(plain, ThreadMessageOutcome::Prompted { .. }),
            "{plain:?}"
        );
    }
}

/// Regatta does not read attachments. Their names are given to the agent, and the thread says that
/// they are not read.
#[test]
fn attachments_are_named_to_the_agent_and_to_the_person() {
    let mut world = world_with_agents();
    let attachments = vec!["shot.png".to_owned(), "log.txt".to_owned()];
    send_message(
        &mut world,
        ThreadMessage {
            attachments: attachments.clone(),
            ..slack_message("claude", "1", "why does this fail?")
        },
    );
    assert!(
        notes(conversation_with_id(&world, 1)).contains("shot.png, log.txt"),
        "{}",
        notes(conversation_with_id(&world, 1))
    );
    let grant = begin_attempt(&mut world, TaskId(1));
    let attempt_notes = world.board.attempts[&grant.attempt].notes.join("\n");
    assert!(
        attempt_notes.contains("not readable for you: shot.png, log.txt"),
        "{attempt_notes}"
    );
    let alone = send_message(
        &mut world,
        ThreadMessage {
            attachments,
            ..slack_message("claude", "2", "")
        },
    );
    assert_eq!(
        alone,
        ThreadMessageOutcome::Commanded {
            conversation: ConversationId(1)
        }
    );
    assert!(
        notes(conversation_with_id(&world, 1)).contains("Say in words"),
        "{}",
        notes(conversation_with_id(&world, 1))
    );
}

/// The notice that a message waits is updated when the message gets its turn and when it is
/// dropped.
#[test]
fn the_notice_that_a_message_waits_is_updated_when_the_wait_ends() {
    let mut world = world_with_agents();
    send_message(
        &mut world,
        slack_message("claude", "1", "fix the login bug"),
    );
    let first = begin_attempt(&mut world, TaskId(1));
    open_session(&mut world, &first, "s-1");
    send_message(&mut world, slack_message("claude", "2", "and add a test"));
    send_message(&mut world, slack_message("claude", "3", "and another"));
    let stages = |conversation: &Conversation| {
        let queued = conversation
            .posts
            .iter()
            .filter(|post| matches!(post.content, PostContent::Queued { .. }));
        queued.map(|post| post.stage).collect::<Vec<_>>()
    };
    assert_eq!(stages(conversation_with_id(&world, 1)), [1, 1]);
    end_turn(&mut world, &first, "Fixed it.", &[]);
    assert_eq!(stages(conversation_with_id(&world, 1)), [2, 1]);
    send_message(&mut world, slack_message("claude", "4", "stop"));
    assert_eq!(stages(conversation_with_id(&world, 1)), [2, 2]);
}

/// An answer is kept whole up to the limit of a thread. A longer answer says that it was cut.
#[test]
fn a_long_answer_keeps_its_beginning_and_says_when_it_is_cut() {
    let mut world = world_with_agents();
    for (n, length) in [(1, 9_000), (2, 40_000), (3, 90_000)] {
        send_message(
            &mut world,
            slack_message("claude", &n.to_string(), "explain"),
        );
        let grant = begin_attempt(&mut world, TaskId(1));
        open_session(&mut world, &grant, "s-1");
        let answer = format!("It begins. {} It ends.", "x".repeat(length));
        end_turn(&mut world, &grant, &answer, &[]);
        let turn = conversation_with_id(&world, 1)
            .turns
            .iter()
            .find(|turn| turn.number == n)
            .unwrap()
            .clone();
        let kept = turn.answer.unwrap();
        assert!(kept.starts_with("It begins."), "{length}");
        assert_eq!(kept.ends_with("It ends."), length < 48_000, "{length}");
        assert_eq!(
            kept.contains("The rest is left out"),
            length > 48_000,
            "{length}"
        );
    }
}
