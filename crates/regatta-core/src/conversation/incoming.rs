//! Incoming messages: decides for each message in a thread whether it is for the agent, and whether
//! it is a command, an answer to the agent's question, or a prompt.
//!
//! Not here: the turn that a prompt begins (see [`turn`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::agent_protocol::{RequestAnswer, RequestContent};
use crate::board::{Board, Draft};
use crate::bus::{self, Message};
use crate::command::Actor;
use crate::ids::{ApprovalId, ConversationId, MessageId, Now};
use crate::refusal::Refusal;
use crate::{agent, approval, message_router, task};

use super::{
    Author, Conversation, FollowUps, HeldRequest, MAX_HELD_CONVERSATIONS, MAX_HELD_REQUESTS,
    MAX_QUEUED_PROMPTS, MAX_TEXT_BYTES, NoteTone, PostContent, ThreadMessage, ThreadMessageOutcome,
    find, find_by_key, message_to_task, pending_approval, post, record_change, record_delivery,
    review, turn, work_landing,
};

/// Returns whether a message that mentions no agent is for this agent. The bridge (the connection
/// to the service) cannot decide this, because the service sends every message to the apps of all
/// agents in the thread.
fn is_for_agent(board: &Board, message: &ThreadMessage, own: Option<&Conversation>) -> bool {
    let Some(own) = own.filter(|conversation| conversation.turn_count > 0) else {
        return false;
    };
    if message.addresses_another {
        return false;
    }
    let in_same_thread: Vec<_> = board
        .conversations
        .values()
        .filter(|conversation| {
            conversation.is_in_thread(&message.thread) && conversation.turn_count > 0
        })
        .collect();
    match (message.follow_ups, in_same_thread.len()) {
        (FollowUps::Never, _) => false,
        (FollowUps::All, _) | (FollowUps::Mention | FollowUps::Last, 0 | 1) => true,
        (FollowUps::Mention, _) => false,
        (FollowUps::Last, _) => in_same_thread
            .iter()
            .all(|conversation| conversation.addressed_revision <= own.addressed_revision),
    }
}

/// Handles a message that somebody wrote in a thread, and returns the outcome.
pub(super) fn on_message(
    draft: &mut Draft,
    message: ThreadMessage,
    now: Now,
) -> Result<ThreadMessageOutcome, Refusal> {
    let board = draft.board();
    if board.deliveries.contains_key(&message.delivery) {
        return Ok(ThreadMessageOutcome::Duplicate);
    }
    let known =
        find_by_key(board, &message.key).map(|conversation| Conversation::clone(conversation));
    if !message.mentions_agent && !is_for_agent(board, &message, known.as_ref()) {
        return Ok(ThreadMessageOutcome::Ignored);
    }
    if !board.projects.contains_key(&message.project) {
        return Err(Refusal::NoSuchProject {
            project: message.project,
        });
    }
    agent::find(board, &message.agent)?;
    let has_only_held_requests = |conversation: &&Arc<Conversation>| {
        !conversation.held.is_empty() && conversation.turn_count == 0
    };
    if !message.may_ask_for_work
        && known.is_none()
        && board
            .conversations
            .values()
            .filter(has_only_held_requests)
            .count()
            >= MAX_HELD_CONVERSATIONS
    {
        // Too many people without permission have already asked. Ignore further requests, so that
        // the operators, who decide these requests, are not flooded.
        return Ok(ThreadMessageOutcome::Ignored);
    }
    record_delivery(draft, &message.delivery, now);
    let mut conversation = known.unwrap_or_else(|| new_conversation(draft.board(), &message, now));
    let id = conversation.id;
    if !message.may_ask_for_work {
        if conversation.held.len() < MAX_HELD_REQUESTS {
            let text = message.text.chars().take(2_000).collect();
            conversation.held.push(HeldRequest {
                by: message.author.clone(),
                text,
                source: message.source.clone(),
                unix_ms: now.unix_ms,
            });
        }
        let was_told = conversation.posts.iter().any(|post| {
            matches!(
                &post.content,
                PostContent::Note {
                    tone: NoteTone::Refusal,
                    ..
                }
            )
        });
        if message.should_reply_to_refused && !was_told {
            let text = "Only people on the list of permitted people can ask for work here. An \
                operator has been notified.";
            post::add_note(&mut conversation, NoteTone::Refusal, text.into());
        }
        record_change(draft, conversation, now);
        return Ok(ThreadMessageOutcome::Held { conversation: id });
    }
    conversation.deliver = message.deliver;
    conversation.prompt = message.prompt.clone();
    conversation.idle_ms = message.idle_ms;
    conversation.address.extend(message.address.clone());
    conversation.idle_deadline_fleet_ms = Some(now.fleet_ms + message.idle_ms);
    conversation.addressed_revision = draft.next_revision();
    if message.text.len() > MAX_TEXT_BYTES {
        let text = "This message is longer than 64 KiB, so it was ignored. Shorten it, or put the \
            text into a file.";
        post::add_note(&mut conversation, NoteTone::Trouble, text.into());
        record_change(draft, conversation, now);
        return Ok(ThreadMessageOutcome::Commanded { conversation: id });
    }
    let mut text = message.text.trim().to_owned();
    match parse_command(&text) {
        Some(ThreadCommand::Stop) => {
            record_change(draft, conversation, now);
            turn::stop(draft, id, &message.author.name, now)?;
            return Ok(ThreadMessageOutcome::Stopped { conversation: id });
        }
        Some(ThreadCommand::Land) if conversation.task.is_some() => {
            post::add_seen(&mut conversation, &message.source);
            record_change(draft, conversation, now);
            work_landing::land(draft, id, &message.author, now)?;
            return Ok(ThreadMessageOutcome::Commanded { conversation: id });
        }
        Some(ThreadCommand::Router) => {
            post::add_seen(&mut conversation, &message.source);
            record_change(draft, conversation, now);
            send_to_router(draft, id, &message.author, text, now)?;
            return Ok(ThreadMessageOutcome::Commanded { conversation: id });
        }
        _ => {}
    }
    if let Some((approval, answer)) = approval_answer(draft.board(), &conversation, &text) {
        post::add_seen(&mut conversation, &message.source);
        let by = Actor::Person(format!("{}:{}", conversation.service, message.author.name));
        record_change(draft, conversation, now);
        let answer = approval::ApprovalAnswer {
            answer,
            scope: approval::AnswerScope::Once,
            by,
        };
        approval::decide(draft, approval, &answer, now)?;
        return Ok(ThreadMessageOutcome::Commanded { conversation: id });
    }
    if text.is_empty() && message.context.is_none() {
        let note = if message.attachments.is_empty() {
            "Say what is to be done, in the same message."
        } else {
            "I cannot open attachments. Say in words what is to be done."
        };
        post::add_note(&mut conversation, NoteTone::Plain, note.into());
        record_change(draft, conversation, now);
        return Ok(ThreadMessageOutcome::Commanded { conversation: id });
    }
    if !message.attachments.is_empty() {
        let names = task::one_line(&message.attachments.join(", "), 300);
        text += &format!("\n\n(Attached to this message, and not readable for you: {names})");
        let note = format!(
            "I cannot open attachments, so I go on without {names}. Paste what matters as text."
        );
        post::add_note(&mut conversation, NoteTone::Plain, note);
    }
    if conversation.queued_count() >= MAX_QUEUED_PROMPTS {
        let text =
            format!("{MAX_QUEUED_PROMPTS} messages already wait here, so this one was ignored.");
        post::add_note(&mut conversation, NoteTone::Trouble, text);
        record_change(draft, conversation, now);
        return Ok(ThreadMessageOutcome::Commanded { conversation: id });
    }
    let has_work = turn::work_to_review(draft.board(), &conversation, &text).is_some();
    if let Some(why) = review::nothing_to_review(&conversation, &message, has_work) {
        post::add_note(&mut conversation, NoteTone::Trouble, why);
        record_change(draft, conversation, now);
        return Ok(ThreadMessageOutcome::Commanded { conversation: id });
    }
    let request = message_to_task::TurnRequest {
        by: message.author,
        text,
        source: message.source,
        address: message.address,
        context: message.context,
        pull: message.pull,
    };
    let (turn_number, ahead) = message_to_task::queue_prompt(draft, conversation, request, now)?;
    Ok(ThreadMessageOutcome::Prompted {
        conversation: id,
        turn: turn_number,
        ahead,
    })
}

/// Returns the agent's open permission request or question, and the answer that the message `text`
/// gives to it. Any text answers a question. Only certain words, such as `yes`, allow or deny a
/// permission request. Any other text is a new prompt, and the result is `None`.
fn approval_answer(
    board: &Board,
    conversation: &Conversation,
    text: &str,
) -> Option<(ApprovalId, RequestAnswer)> {
    let id = pending_approval(board, conversation)?;
    let command = text
        .trim()
        .trim_end_matches(['.', '!'])
        .to_ascii_lowercase();
    let answer = match &board.approvals.get(&id)?.request.content {
        RequestContent::Question { .. } if !text.is_empty() => RequestAnswer::Text {
            text: text.to_owned(),
        },
        RequestContent::Permission { .. } => match command.as_str() {
            "allow" | "yes" | "approve" | "approved" | "ok" => RequestAnswer::Allow,
            "deny" | "no" | "reject" => RequestAnswer::Deny { reason: None },
            _ => return None,
        },
        RequestContent::Question { .. } => return None,
    };
    Some((id, answer))
}

/// Returns a new conversation for the thread of a message.
fn new_conversation(board: &Board, message: &ThreadMessage, now: Now) -> Conversation {
    Conversation {
        id: ConversationId(board.counters.conversation + 1),
        key: message.key.clone(),
        service: message.service,
        agent: message.agent.clone(),
        project: message.project.clone(),
        thread: message.thread.clone(),
        address: message.address.clone(),
        title: task::one_line(&message.title, 200),
        url: message.url.clone(),
        deliver: message.deliver,
        prompt: message.prompt.clone(),
        task: None,
        turns: vec![],
        turn_count: 0,
        posts: vec![],
        post_count: 0,
        held: vec![],
        pushed: None,
        pull: None,
        landing_end: None,
        bus_messages: vec![],
        addressed_revision: 0,
        idle_ms: message.idle_ms,
        idle_deadline_fleet_ms: None,
        expired: false,
        closed: false,
        created_unix_ms: now.unix_ms,
        updated_unix_ms: now.unix_ms,
    }
}

/// A message that is a command to Regatta itself and not a prompt for the agent, such as `stop`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ThreadCommand {
    Stop,
    Land,
    Router,
}

/// Returns the command that a message consists of, or `None` if the message is no command.
fn parse_command(text: &str) -> Option<ThreadCommand> {
    let command = text
        .trim()
        .trim_end_matches(['.', '!'])
        .to_ascii_lowercase();
    match command.as_str() {
        "stop" | "cancel" | "!stop" => Some(ThreadCommand::Stop),
        "land" | "!land" | "land it" | "merge it" => Some(ThreadCommand::Land),
        _ => match message_router::parse(text, "") {
            message_router::RouterCommand::PlainText(_) => None,
            _ => Some(ThreadCommand::Router),
        },
    }
}

/// Posts a command in the project's channel and lets the router (the part of Regatta that runs
/// commands from messages) handle the command. The router's answer is shown in the thread.
fn send_to_router(
    draft: &mut Draft,
    id: ConversationId,
    by: &Author,
    text: String,
    now: Now,
) -> Result<(), Refusal> {
    let mut conversation = find(draft.board(), id)?;
    let sender = Actor::Person(format!("{}:{}", conversation.service, by.name));
    let post = bus::PostMessage {
        channel: bus::channel_of(&conversation.project),
        text,
        labels: vec![],
        reply_to: None,
    };
    let message = bus::post_and_return(draft, post, sender, now)?;
    conversation.bus_messages.push(message.id);
    if conversation.bus_messages.len() > 20 {
        conversation.bus_messages.remove(0);
    }
    let project = conversation.project.clone();
    record_change(draft, conversation, now);
    message_router::on_message(draft, &project, &message, now)
}

/// Shows a message from Regatta's own channels in a thread, if it answers a command from that
/// thread.
pub(crate) fn on_bus_message(draft: &mut Draft, message: &Message, now: Now) {
    if matches!(message.sender, Actor::Person(_)) {
        return;
    }
    let answers = |id: &MessageId| message.reply_to == Some(*id) || message.thread == Some(*id);
    let found = draft
        .board()
        .conversations
        .values()
        .find(|conversation| conversation.bus_messages.iter().any(answers));
    if let Some(found) = found {
        let mut conversation = Conversation::clone(found);
        let text: String = message.text.chars().take(8_000).collect();
        let text = if message.sender == Actor::Regatta {
            text
        } else {
            format!("{}: {text}", message.sender)
        };
        post::add_note(&mut conversation, NoteTone::Plain, text);
        record_change(draft, conversation, now);
    }
}

/// Makes each request that was held until an operator allowed it the prompt of a turn.
pub(super) fn accept_held(draft: &mut Draft, id: ConversationId, now: Now) -> Result<(), Refusal> {
    let mut conversation = find(draft.board(), id)?;
    if conversation.held.is_empty() {
        return Err(Refusal::invalid(
            format!("the conversation {id} has no held requests, so there is nothing to accept"),
            "see the held requests: regatta inbox",
        ));
    }
    conversation.addressed_revision = draft.next_revision();
    for held in std::mem::take(&mut conversation.held) {
        let request = message_to_task::TurnRequest {
            by: held.by,
            text: held.text,
            source: held.source,
            address: BTreeMap::new(),
            context: None,
            pull: None,
        };
        message_to_task::queue_prompt(draft, conversation, request, now)?;
        conversation = find(draft.board(), id)?;
    }
    Ok(())
}
