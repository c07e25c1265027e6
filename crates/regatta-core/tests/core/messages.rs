//! The bus, and repeated answers to the same idempotency key.

use regatta_core::bus::{MAX_TEXT_BYTES, PostMessage};
use regatta_core::command::{Actor, Command, CommandOutcome};
use regatta_core::event::Event;
use regatta_core::idempotency::ANSWER_RETENTION_MS;
use regatta_core::ids::{ChannelName, Label, MessageId};
use regatta_core::task::{AssignMode, TaskStatus};

use crate::world::{World, acquire, agent, poll_of, task_to_add};

fn post_message(text: &str) -> PostMessage {
    PostMessage {
        channel: ChannelName::new("shop").unwrap(),
        text: text.into(),
        labels: vec![],
        reply_to: None,
    }
}

fn read_cursor(world: &World) -> Option<u64> {
    world
        .board
        .cursors
        .get(&(agent("ada"), ChannelName::new("shop").unwrap()))
        .map(|id| id.0)
}

/// A cursor only moves forward, and not past the last message.
#[test]
fn a_cursor_only_moves_forward() {
    let mut world = World::empty();
    for nth in 0..3 {
        world.ask(
            "bob",
            Command::Post(post_message(&format!("message {nth}"))),
        );
    }
    let mark = |number| Command::MarkRead {
        agent: agent("ada"),
        channel: ChannelName::new("shop").unwrap(),
        read: MessageId(number),
    };
    for (number, expected) in [(2, 2), (1, 2), (2, 2), (3, 3), (0, 3)] {
        world.ask("ada", mark(number));
        assert_eq!(read_cursor(&world), Some(expected));
    }
    assert_eq!(world.ask_refused("ada", mark(4)).code(), "not_found");
    assert_eq!(
        world.count("message.read"),
        2,
        "a mark that changes nothing is not an event"
    );
}

#[test]
fn messages_record_their_sender_and_mentions() {
    let mut world = World::empty();
    world.ask(
        "bob",
        Command::Post(post_message(
            "@ada please ask @shop-dev/lead-1, not mail@eve or @ada",
        )),
    );
    let Some(Event::MessagePosted(posted)) = world.log.last().map(|event| &event.event) else {
        panic!()
    };
    let message = posted.message();
    assert_eq!(message.sender, Actor::Agent(agent("bob")));
    assert_eq!(message.mentions, [agent("ada"), agent("shop-dev/lead-1")]);
    let reply = PostMessage {
        reply_to: Some(message.id),
        ..post_message("yes")
    };
    assert_eq!(
        world.ask("ada", Command::Post(reply)),
        CommandOutcome::Message(MessageId(2))
    );
}

#[test]
fn a_message_outside_the_limits_is_refused() {
    let mut world = World::empty();
    let label = Label::new("x").unwrap();
    for wrong in [
        post_message(" \n"),
        post_message(&"x".repeat(MAX_TEXT_BYTES + 1)),
        PostMessage {
            labels: vec![label.clone(); 21],
            ..post_message("hello")
        },
    ] {
        assert_eq!(
            world.ask_refused("bob", Command::Post(wrong)).code(),
            "invalid"
        );
    }
    let reply = PostMessage {
        reply_to: Some(MessageId(1)),
        ..post_message("hello")
    };
    assert_eq!(
        world.ask_refused("bob", Command::Post(reply)).code(),
        "not_found"
    );
    world.ask(
        "bob",
        Command::Post(PostMessage {
            labels: vec![label; 20],
            ..post_message(&"x".repeat(MAX_TEXT_BYTES))
        }),
    );
}

/// J9: the same key gets the same answer, and the command is not executed a second time.
#[test]
fn j9_the_same_key_gets_the_same_answer() {
    let mut world = World::with_agents(&[("ada", 3)]);
    let add = |subject: &str| Command::AddTask {
        task: task_to_add(subject, &[]),
        assign: None,
        how: AssignMode::Direct,
    };
    let first = world.ask_with_key("one", add("words")).unwrap();
    let revision = world.board.revision;
    assert_eq!(world.ask_with_key("one", add("words")), Ok(first.clone()));
    assert_eq!(
        (world.board.revision, world.board.tasks.len()),
        (revision, 1)
    );
    world.restart();
    assert_eq!(
        world.ask_with_key("one", add("words")),
        Ok(first.clone()),
        "the answer was lost in a restart"
    );
    assert_ne!(world.ask_with_key("two", add("words")), Ok(first.clone()));
    world.advance(ANSWER_RETENTION_MS - 1);
    assert_eq!(world.ask_with_key("one", add("words")), Ok(first.clone()));
    world.advance(1);
    assert_ne!(
        world.ask_with_key("one", add("words")),
        Ok(first),
        "the answer was kept too long"
    );
}

/// J9: the same key with another command is refused and changes nothing.
#[test]
fn j9_a_key_used_for_another_request_is_refused() {
    let mut world = World::with_agents(&[("ada", 3)]);
    let add = |subject: &str| Command::AddTask {
        task: task_to_add(subject, &[]),
        assign: None,
        how: AssignMode::Direct,
    };
    world.ask_with_key("one", add("words")).unwrap();
    let before = world.board.clone();
    assert_eq!(
        world
            .ask_with_key("one", add("other words"))
            .unwrap_err()
            .code(),
        "key_reused"
    );
    assert_eq!(world.board, before);
}

/// J9: a client that lost the reply asks again under the same key and gets the same attempt or
/// claim.
#[test]
fn j9_a_request_whose_reply_was_lost_can_be_repeated() {
    let mut world = World::with_agents(&[("ada", 3)]);
    world.add_task("a", &["a"]);
    world.add_task("b", &["b"]);
    let poll = || Command::Poll(poll_of("ada"));
    let grant = world.ask_with_key("poll-1", poll());
    assert_eq!(world.ask_with_key("poll-1", poll()), grant);
    assert_eq!(world.board.attempts.len(), 1);
    let acquire_port = || {
        Command::Acquire(acquire(
            regatta_core::claim::ClaimOwner::Agent(agent("ada")),
            &["port://1"],
        ))
    };
    let claim = world.ask_with_key("claim-1", acquire_port());
    assert_eq!(world.ask_with_key("claim-1", acquire_port()), claim);
    assert_eq!(
        world.ask_refused("ada", acquire_port()).code(),
        "claim_held",
        "without the key it is a second claim"
    );
}

/// J9: an answer without a change is not remembered, so the same key is executed again.
#[test]
fn j9_an_answer_without_a_change_is_not_remembered() {
    let mut world = World::with_agents(&[("ada", 1)]);
    let poll = || Command::Poll(poll_of("ada"));
    assert_eq!(
        world.ask_with_key("poll-1", poll()),
        Ok(CommandOutcome::Polled(None))
    );
    let task = world.add_task("a", &["a"]);
    world.ask_with_key("poll-1", poll()).unwrap();
    assert_eq!(world.status(task), TaskStatus::InProgress);
}

/// J11: a clean restart changes nothing except the revision, because it adds its own event.
#[test]
fn j11_a_clean_restart_changes_nothing() {
    let mut world = World::with_agents(&[("ada", 2)]);
    world.add_task("a", &["a"]);
    world.add_task("b", &["b"]);
    let grant = world.take_task("ada");
    world.submit(&grant);
    world.take_supervised_task("ada");
    world.hold_claim("eve", &["port://1"]);
    let (before, revision) = (world.board.clone(), world.board.revision);
    world.restart();
    assert_eq!(world.kinds_since(revision), ["fleet.resumed"]);
    let mut after = world.board.clone();
    after.revision = before.revision;
    assert!(after == before);
}
