//! Messages: what people and agents post in channels, with labels and mentions, and how far each
//! agent has read each channel. All channels together are called the bus.
//!
//! The board knows only the number of the last message; the store keeps the messages and searches
//! them. Not here: the meaning of commands in messages (see [`message_router`](crate::message_router)).

use serde::{Deserialize, Serialize};

use crate::agent::Role;
use crate::agent_texts;
use crate::board::{Board, Draft};
use crate::command::Actor;
use crate::event::{Event, facts};
use crate::hook;
use crate::ids::{AgentName, ChannelName, FiringId, Label, MessageId, Now, ProjectName};
use crate::intervention;
use crate::refusal::Refusal;

/// A message that was posted in a channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Message {
    pub id: MessageId,
    pub channel: ChannelName,
    /// The sender. The server sets it from the sender's credential, so it cannot be forged.
    pub sender: Actor,
    pub text: String,
    pub labels: Vec<Label>,
    /// The agents that the text mentions as `@name`.
    pub mentions: Vec<AgentName>,
    pub reply_to: Option<MessageId>,
    /// The first message of the thread that this message belongs to. `None` if this message itself
    /// begins a thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<MessageId>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
    /// The number of hooks in the chain that led to this message (each hook caused the next one); 0
    /// if no hook was involved. Regatta uses this number to stop endless chains of hooks.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub depth: u32,
    #[serde(rename = "wall")]
    pub unix_ms: u64,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl Message {
    /// Returns the first message of this message's thread, which may be this message itself.
    pub fn root(&self) -> MessageId {
        self.thread.unwrap_or(self.id)
    }

    /// Returns whether an agent may read the message. All agents may read a normal channel. A
    /// message in an agent's mailbox may be read only by that agent and the sender.
    pub fn may_be_read_by(&self, agent: &AgentName) -> bool {
        let to = addressee(&self.channel);
        to.is_none_or(|to| to == agent.as_str()) || self.sender == Actor::Agent(agent.clone())
    }
}

/// Returns the name of the agent whose mailbox the channel is, or `None` for a normal channel.
pub fn addressee(channel: &ChannelName) -> Option<&str> {
    channel.as_str().strip_prefix('@')
}

/// A file that is attached to a message. Its content is stored in a file of its own, named by the
/// content's hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Attachment {
    /// The file's name, as the sender gave it.
    pub name: String,
    pub bytes: u64,
    /// The SHA-256 hash of the file's content, in hexadecimal.
    pub sha256: String,
}

/// Maximum number of attachments of one message.
pub const MAX_ATTACHMENTS: usize = 10;
/// Maximum size of one attachment, in bytes.
pub const MAX_ATTACHMENT_BYTES: u64 = 4 * 1024 * 1024;

/// The last message of a channel that an agent has read.
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

/// A message that somebody wants to post: the arguments of [`post`].
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

/// Properties of a message that the server sets and the sender cannot choose.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PostContext {
    /// The first message of the thread that contains `reply_to`. If `None`, `reply_to` itself is
    /// the first message.
    pub thread: Option<MessageId>,
    pub attachments: Vec<Attachment>,
    /// The run of a hook whose command posts the message. `None` if no hook's command posts the
    /// message.
    pub firing: Option<FiringId>,
}

/// Maximum size of a message's text, in bytes.
pub const MAX_TEXT_BYTES: usize = 64 * 1024;

/// Maximum number of labels that a sender can give one message.
const MAX_LABELS: usize = 20;
/// Maximum number of agents that one message can mention.
const MAX_MENTIONS: usize = 50;

/// Posts a message in the name of `sender` and returns its id.
pub fn post(
    draft: &mut Draft,
    content: PostMessage,
    sender: Actor,
    now: Now,
) -> Result<MessageId, Refusal> {
    post_with(draft, content, PostContext::default(), sender, now)
}

/// Like [`post`], but returns the whole message.
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

/// Like [`post`], but with properties of the message that the server knows, such as the hook that
/// posts it.
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

/// Checks a message that somebody wants to post. Returns the message with its id, mentions and
/// automatic labels.
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
            format!("remove labels until at most {MAX_LABELS} are left"),
        ));
    }
    if let Some(to) = content.reply_to
        && to.0 > draft.board().counters.message
    {
        return Err(Refusal::missing(
            format!("there is no message {to}, so nobody can reply to it"),
            "list the messages: regatta msg history CHANNEL",
        ));
    }
    if context.attachments.len() > MAX_ATTACHMENTS {
        return Err(Refusal::invalid(
            format!("a message is limited to {MAX_ATTACHMENTS} attachments"),
            "attach the other files to another message",
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

/// Returns the name of a project's own channel.
pub fn channel_of(project: &ProjectName) -> ChannelName {
    ChannelName::new(project.as_str()).expect("every project name is a valid channel name")
}

/// Posts a message in the name of Regatta itself.
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

/// Returns the labels that Regatta adds to a message: `lead:NAME` if the sender is a lead (an agent
/// that splits a mission into tasks) or a helper of a lead. An agent `a/b` is a helper of `a`; the
/// nearest lead in the name counts.
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

/// Returns an agent's name and the names of the agents that it belongs to, nearest first: `a/b/c`,
/// `a/b`, `a`.
fn ancestry(name: &AgentName) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(name.as_str()), |name| {
        name.rsplit_once('/').map(|(parent, _)| parent)
    })
}

/// Returns whether `child` is the agent `parent` or belongs to it, as `a/b` belongs to `a`.
pub fn is_same_or_below(child: &AgentName, parent: &AgentName) -> bool {
    ancestry(child).any(|name| name == parent.as_str())
}

/// Sends a message as a prompt to the team members that the message mentions, or to the team member
/// in whose mailbox the message is.
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
        intervention::send_prompt(draft, attempt, agent_texts::mailbox_prompt(message));
    }
}

/// Records that an agent has read a channel up to the message `read`. Does nothing if the agent has
/// already read further.
pub fn mark_read(
    draft: &mut Draft,
    agent: AgentName,
    channel: ChannelName,
    read: MessageId,
) -> Result<(), Refusal> {
    if read.0 > draft.board().counters.message {
        return Err(Refusal::missing(
            format!("there is no message {read}"),
            "list the messages: regatta msg history CHANNEL",
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

/// Returns the agents that a text mentions: the names after each `@` at the start of a word, in
/// order and without repetition.
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
