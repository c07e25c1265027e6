//! The bus: messages in channels, with labels and mentions, and each agent's place in what it has read.
//!
//! Messages are history: the board knows only how many there were; the store keeps and searches them.

use serde::{Deserialize, Serialize};

use crate::board::Draft;
use crate::command::Actor;
use crate::event::{Event, facts};
use crate::ids::{AgentName, ChannelName, Label, MessageId, Now, ProjectName};
use crate::refusal::Refusal;

/// An entry of a channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Message {
    pub id: MessageId,
    pub channel: ChannelName,
    /// Who really sent it.
    pub sender: Actor,
    pub text: String,
    pub labels: Vec<Label>,
    /// Agents named in the text as `@name`.
    pub mentions: Vec<AgentName>,
    pub reply_to: Option<MessageId>,
    pub wall: u64,
}

/// How far an agent has read a channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cursor {
    pub agent: AgentName,
    pub channel: ChannelName,
    pub read: MessageId,
}

facts! {
    Posted { message: Message }
    CursorMoved { agent: AgentName, channel: ChannelName, read: MessageId }
}

/// What is asked of [`post`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Post {
    pub channel: ChannelName,
    pub text: String,
    #[serde(default)]
    pub labels: Vec<Label>,
    #[serde(default)]
    pub reply_to: Option<MessageId>,
}

/// The longest text of a message.
pub const LONGEST_TEXT: usize = 64 * 1024;

/// Posts a message as `sender`.
pub fn post(draft: &mut Draft, ask: Post, sender: Actor, now: Now) -> Result<MessageId, Refusal> {
    if ask.text.trim().is_empty() || ask.text.len() > LONGEST_TEXT {
        return Err(Refusal::invalid(
            "a message has 1 to 65536 bytes of text",
            "write a file and name its path in the message",
        ));
    }
    if ask.labels.len() > 20 {
        return Err(Refusal::invalid("a message has at most 20 labels", "drop some"));
    }
    if let Some(to) = ask.reply_to
        && to.0 > draft.board().counters.message
    {
        return Err(Refusal::invalid(
            format!("there is no message {to} to reply to"),
            "see them: regatta msg history CHANNEL",
        ));
    }
    let id = MessageId(draft.board().counters.message + 1);
    let mentions = mentions(&ask.text);
    let message = Message {
        id,
        channel: ask.channel,
        sender,
        text: ask.text,
        labels: ask.labels,
        mentions,
        reply_to: ask.reply_to,
        wall: now.wall,
    };
    draft.record(Event::MessagePosted(Posted { message }));
    Ok(id)
}

/// The channel of a project.
pub fn channel_of(project: &ProjectName) -> ChannelName {
    ChannelName::new(project.as_str()).expect("a project's name is a channel's name")
}

/// Posts a message of Regatta's own.
pub(crate) fn say(
    draft: &mut Draft,
    channel: ChannelName,
    text: String,
    (labels, reply_to): (Vec<Label>, Option<MessageId>),
    now: Now,
) -> Result<MessageId, Refusal> {
    post(draft, Post { channel, text, labels, reply_to }, Actor::Regatta, now)
}

/// Moves an agent's cursor forward; it never goes back.
pub fn mark_read(draft: &mut Draft, agent: AgentName, channel: ChannelName, read: MessageId) -> Result<(), Refusal> {
    if read.0 > draft.board().counters.message {
        return Err(Refusal::invalid(format!("there is no message {read}"), "see them: regatta msg history CHANNEL"));
    }
    let at = draft.board().cursors.get(&(agent.clone(), channel.clone())).copied().unwrap_or_default();
    if read > at {
        draft.record(Event::CursorMoved(CursorMoved { agent, channel, read }));
    }
    Ok(())
}

/// The names after an `@` that starts a word, each once, in order.
pub fn mentions(text: &str) -> Vec<AgentName> {
    let mut found: Vec<AgentName> = Vec::new();
    let mut before = ' ';
    for (at, it) in text.char_indices() {
        if it == '@' && !before.is_alphanumeric() {
            let rest = &text[at + 1..];
            let end = rest.find(|it: char| !(it.is_ascii_alphanumeric() || "-_./".contains(it))).unwrap_or(rest.len());
            let name = rest[..end].trim_end_matches(['.', '/', '-']);
            if let Ok(name) = AgentName::new(name)
                && !found.contains(&name)
                && found.len() < 50
            {
                found.push(name);
            }
        }
        before = it;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mentions_are_words_that_start_with_an_at_sign() {
        let names = |text: &str| mentions(text).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(names("@ann look, @shop-dev/lead-1. (@bob) @ann"), ["ann", "shop-dev/lead-1", "bob"]);
        assert_eq!(names("mail a@b.c, @ , @@x @-y"), ["x"]);
    }
}
