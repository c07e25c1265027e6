//! The bus: messages in channels, with labels and mentions, and the position up to which each agent
//! has read a channel.
//!
//! Messages are history, so the board knows only their number. The store keeps them and searches
//! them. Not here: the router's reading of commands in messages (see [`router`](crate::router)).

use serde::{Deserialize, Serialize};

use crate::agent::Role;
use crate::board::{Board, Draft};
use crate::command::Actor;
use crate::event::{Event, facts};
use crate::hook;
use crate::ids::{AgentName, ChannelName, FiringId, Label, MessageId, Now, ProjectName};
use crate::intervention;
use crate::refusal::Refusal;

/// A message in a channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Message {
    pub id: MessageId,
    pub channel: ChannelName,
    /// The verified sender.
    pub sender: Actor,
    pub text: String,
    pub labels: Vec<Label>,
    /// Agents named in the text as `@name`.
    pub mentions: Vec<AgentName>,
    pub reply_to: Option<MessageId>,
    /// The first message of the thread; absent for a message that begins a thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<MessageId>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
    /// The length of the chain of hooks that led to the message: 0 for a message that no hook
    /// caused.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub depth: u32,
    #[serde(rename = "wall")]
    pub unix_ms: u64,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl Message {
    /// Returns the first message of the thread, which may be this message.
    pub fn root(&self) -> MessageId {
        self.thread.unwrap_or(self.id)
    }

    /// Returns whether an agent may read the message. Everybody reads a channel; only the sender
    /// and the addressee read a message to one agent.
    pub fn may_be_read_by(&self, agent: &AgentName) -> bool {
        let to = addressee(&self.channel);
        to.is_none_or(|to| to == agent.as_str()) || self.sender == Actor::Agent(agent.clone())
    }
}

/// Returns the agent whose mailbox a channel is.
pub fn addressee(channel: &ChannelName) -> Option<&str> {
    channel.as_str().strip_prefix('@')
}

/// A file attached to a message. Its bytes are stored by their hash, next to the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Attachment {
    /// The name of the file.
    pub name: String,
    pub bytes: u64,
    /// SHA-256 of the content, in hex.
    pub sha256: String,
}

/// The largest number of attachments of one message.
pub const MAX_ATTACHMENTS: usize = 10;
/// The largest size of an attachment.
pub const MAX_ATTACHMENT_BYTES: u64 = 4 * 1024 * 1024;

/// The position up to which an agent has read a channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReadCursor {
    pub agent: AgentName,
    pub channel: ChannelName,
    pub read: MessageId,
}

facts! {
    MessagePosted { message: Message }
    MessageRead { agent: AgentName, channel: ChannelName, read: MessageId }
}

/// The arguments of [`post`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PostMessage {
    pub channel: ChannelName,
    pub text: String,
    #[serde(default)]
    pub labels: Vec<Label>,
    #[serde(default)]
    pub reply_to: Option<MessageId>,
}

/// Properties of a message that the server determines and that the sender does not choose.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PostContext {
    /// The first message of the thread of `reply_to`. If absent, `reply_to` itself is that message.
    pub thread: Option<MessageId>,
    pub attachments: Vec<Attachment>,
    /// The firing whose hook command posts the message.
    pub firing: Option<FiringId>,
}

/// The largest text of a message, in bytes.
pub const MAX_TEXT_BYTES: usize = 64 * 1024;

/// The largest number of labels that a sender can give a message.
const MAX_LABELS: usize = 20;
/// The largest number of mentions in one message.
const MAX_MENTIONS: usize = 50;

/// Posts a message as `sender`.
pub fn post(
    draft: &mut Draft,
    content: PostMessage,
    sender: Actor,
    now: Now,
) -> Result<MessageId, Refusal> {
    post_with(draft, content, PostContext::default(), sender, now)
}

/// Like [`post`], but returns the message.
pub(crate) fn post_and_return(
    draft: &mut Draft,
    content: PostMessage,
    sender: Actor,
    now: Now,
) -> Result<Message, Refusal> {
    let message = new_message(draft, content, PostContext::default(), sender, now)?;
    draft.record(Event::MessagePosted(MessagePosted {
        message: message.clone(),
    }));
    Ok(message)
}

/// Replies to a message in its thread. The reply to a message in a mailbox goes to the mailbox of
/// its sender.
pub fn reply(
    draft: &mut Draft,
    to: &Message,
    (text, labels): (String, Vec<Label>),
    sender: Actor,
    now: Now,
) -> Result<MessageId, Refusal> {
    let mailbox = match (&to.sender, addressee(&to.channel)) {
        (Actor::Agent(name), Some(_)) => ChannelName::new(&format!("@{name}")).ok(),
        _ => None,
    };
    let channel = mailbox.unwrap_or_else(|| to.channel.clone());
    let content = PostMessage {
        channel,
        text,
        labels,
        reply_to: Some(to.id),
    };
    post_with(
        draft,
        content,
        PostContext {
            thread: Some(to.root()),
            ..PostContext::default()
        },
        sender,
        now,
    )
}

/// Like [`post`], with further properties.
pub fn post_with(
    draft: &mut Draft,
    content: PostMessage,
    context: PostContext,
    sender: Actor,
    now: Now,
) -> Result<MessageId, Refusal> {
    let message = new_message(draft, content, context, sender, now)?;
    let id = message.id;
    draft.record(Event::MessagePosted(MessagePosted { message }));
    Ok(id)
}

/// Checks a message and returns it with its number, mentions and automatic labels.
fn new_message(
    draft: &Draft,
    content: PostMessage,
    context: PostContext,
    sender: Actor,
    now: Now,
) -> Result<Message, Refusal> {
    if content.text.trim().is_empty() || content.text.len() > MAX_TEXT_BYTES {
        return Err(Refusal::invalid(
            format!("a message must have 1 to {MAX_TEXT_BYTES} bytes of text"),
            "put the text into a file and name its path in the message",
        ));
    }
    if content.labels.len() > MAX_LABELS {
        return Err(Refusal::invalid(
            format!("a message is limited to {MAX_LABELS} labels"),
            "remove some labels",
        ));
    }
    if let Some(to) = content.reply_to
        && to.0 > draft.board().counters.message
    {
        return Err(Refusal::missing(
            format!("there is no message {to} to reply to"),
            "see them: regatta msg history CHANNEL",
        ));
    }
    if context.attachments.len() > MAX_ATTACHMENTS {
        return Err(Refusal::invalid(
            format!("a message is limited to {MAX_ATTACHMENTS} attachments"),
            "send the other files with another message",
        ));
    }
    let id = MessageId(draft.board().counters.message + 1);
    let mentions = mentions(&content.text);
    let mut labels = content.labels;
    for label in automatic_labels(draft.board(), &sender) {
        if !labels.contains(&label) {
            labels.push(label);
        }
    }
    let firing_depth = context.firing.and_then(|id| {
        draft
            .board()
            .firings
            .get(&id)
            .map(|firing_depth| firing_depth.depth)
    });
    let depth = firing_depth.unwrap_or_else(|| hook::depth_of(draft.board(), &sender));
    Ok(Message {
        id,
        channel: content.channel,
        sender,
        text: content.text,
        labels,
        mentions,
        reply_to: content.reply_to,
        thread: content.reply_to.map(|id| context.thread.unwrap_or(id)),
        attachments: context.attachments,
        depth,
        unix_ms: now.unix_ms,
    })
}

/// Returns the channel of a project.
pub fn channel_of(project: &ProjectName) -> ChannelName {
    ChannelName::new(project.as_str()).expect("every project name is a valid channel name")
}

/// Posts a message as Regatta.
pub(crate) fn post_as_regatta(
    draft: &mut Draft,
    channel: ChannelName,
    text: String,
    (labels, reply_to): (Vec<Label>, Option<MessageId>),
    now: Now,
) -> Result<MessageId, Refusal> {
    post(
        draft,
        PostMessage {
            channel,
            text,
            labels,
            reply_to,
        },
        Actor::Regatta,
        now,
    )
}

/// Returns the labels that a message gets automatically: `lead:NAME` if its sender is a lead or
/// works for one. By name, `a/b` works for `a`, and the nearest lead counts.
fn automatic_labels(board: &Board, sender: &Actor) -> Vec<Label> {
    let Actor::Agent(sender) = sender else {
        return vec![];
    };
    let is_lead = |name: &&str| {
        let name = AgentName::new(name).ok();
        name.and_then(|agent| board.agents.get(&agent))
            .is_some_and(|agent| agent.role == Role::Lead)
    };
    let lead = ancestry(sender).find(is_lead);
    lead.and_then(|lead| Label::new(&format!("lead:{lead}")).ok())
        .into_iter()
        .collect()
}

/// Returns an agent's name and the names above it, nearest first: `a/b/c`, `a/b`, `a`.
fn ancestry(name: &AgentName) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(name.as_str()), |name| {
        name.rsplit_once('/').map(|(parent, _)| parent)
    })
}

/// Returns whether `child` is `parent` or a name below it.
pub fn is_same_or_below(child: &AgentName, parent: &AgentName) -> bool {
    ancestry(child).any(|name| name == parent.as_str())
}

/// Sends a message into the sessions of the team members that it mentions or whose mailbox it is
/// in.
pub(crate) fn deliver_to_members(draft: &mut Draft, message: &Message) {
    let board = draft.board();
    let mut recipients: Vec<AgentName> = message.mentions.clone();
    if let Some(name) = message.channel.as_str().strip_prefix('@')
        && let Ok(name) = AgentName::new(name)
        && !recipients.contains(&name)
    {
        recipients.push(name);
    }
    let sessions: Vec<_> = board
        .attempts
        .values()
        .filter(|attempt| {
            attempt.session_of.is_some()
                && attempt.accepts_prompts()
                && recipients.contains(&attempt.agent)
        })
        .filter(|attempt| message.sender != Actor::Agent(attempt.agent.clone()))
        .map(|attempt| attempt.id)
        .collect();
    for attempt in sessions {
        let prompt = format!(
            "Message {} from {} in {}:\n\n{}",
            message.id, message.sender, message.channel, message.text
        );
        intervention::send_prompt(draft, attempt, prompt);
    }
}

/// Moves an agent's cursor forward. A cursor never moves back.
pub fn mark_read(
    draft: &mut Draft,
    agent: AgentName,
    channel: ChannelName,
    read: MessageId,
) -> Result<(), Refusal> {
    if read.0 > draft.board().counters.message {
        return Err(Refusal::missing(
            format!("there is no message {read}"),
            "see them: regatta msg history CHANNEL",
        ));
    }
    let cursor = draft
        .board()
        .cursors
        .get(&(agent.clone(), channel.clone()))
        .copied()
        .unwrap_or_default();
    if read > cursor {
        draft.record(Event::MessageRead(MessageRead {
            agent,
            channel,
            read,
        }));
    }
    Ok(())
}

/// Returns the names after each `@` that starts a word, each once, in order.
pub fn mentions(text: &str) -> Vec<AgentName> {
    let mut found: Vec<AgentName> = Vec::new();
    let mut previous = ' ';
    for (at, letter) in text.char_indices() {
        if letter == '@' && !previous.is_alphanumeric() {
            let rest = &text[at + 1..];
            let end = rest
                .find(|letter: char| !(letter.is_ascii_alphanumeric() || "-_./".contains(letter)))
                .unwrap_or(rest.len());
            let name = rest[..end].trim_end_matches(['.', '/', '-']);
            if let Ok(name) = AgentName::new(name)
                && !found.contains(&name)
                && found.len() < MAX_MENTIONS
            {
                found.push(name);
            }
        }
        previous = letter;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mentions_are_words_that_start_with_an_at_sign() {
        let names = |text: &str| {
            mentions(text)
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            names("@ann look, @shop-dev/lead-1. (@bob) @ann"),
            ["ann", "shop-dev/lead-1", "bob"]
        );
        assert_eq!(names("mail a@b.c, @ , @@x @-y"), ["x"]);
    }
}
