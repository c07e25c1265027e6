//! Rules for the messages that an attempt may read and post.

use super::{AttemptPrincipal, ProposedMessage, not_allowed};
use crate::bus::{self, Message};
use crate::ids::{AgentName, ChannelName, Label};
use crate::refusal::Refusal;

/// The label that only Regatta itself may put on a message.
const RESERVED_LABEL: &str = "coord:merge";
/// The prefix of message labels that name the lead to whom the message is addressed. Only Regatta
/// adds them.
const LEAD_LABEL_PREFIX: &str = "lead:";

impl AttemptPrincipal {
    /// Checks that an attempt may read a channel. The attempt may read its project's channel and
    /// channels whose names begin with the project's name, the channels of its mission and task,
    /// and its agent's mailbox.
    pub(super) fn require_may_read(&self, channel: &ChannelName) -> Result<(), Refusal> {
        let name = channel.as_str().trim_start_matches('#');
        let project = self.project.as_str();
        let is_own = name == project
            || name
                .strip_prefix(project)
                .is_some_and(|rest| rest.starts_with(['-', '.']))
            || self.mission.is_some_and(|id| name == id.to_string())
            || name == self.task.to_string()
            || name.strip_prefix('@') == Some(self.agent.as_str());
        if is_own {
            return Ok(());
        }
        Err(Refusal::not_yours(
            format!("this attempt may not use the channel {channel}"),
            format!("use {project}, and mention an agent there: @name"),
        ))
    }

    /// Checks that an attempt may post to a channel. The attempt may post to every channel that it
    /// may read, and to every agent's mailbox.
    fn require_may_post(&self, channel: &ChannelName) -> Result<(), Refusal> {
        if bus::addressee(channel).is_some() {
            Ok(())
        } else {
            self.require_may_read(channel)
        }
    }

    /// Checks a message that an attempt wants to post, and returns the agent that sends it.
    pub(super) fn narrow_post(&self, message: &ProposedMessage<'_>) -> Result<AgentName, Refusal> {
        self.require_may_post(message.channel)?;
        let agent = self.posting_agent(message.agent)?;
        if let Some(replied_to) = &message.reply_to {
            self.require_readable_message(replied_to)?;
        }
        require_free_labels(message.labels)?;
        Ok(agent)
    }

    /// Returns the agent in whose name an attempt posts a message: the attempt's own agent, such as
    /// `claude-1`, or an agent below that one, such as `claude-1/helper`.
    fn posting_agent(&self, named: Option<&AgentName>) -> Result<AgentName, Refusal> {
        let own_agent = &self.agent;
        match named {
            None => Ok(own_agent.clone()),
            Some(name) if bus::is_same_or_below(name, own_agent) => Ok(name.clone()),
            Some(name) => Err(Refusal::not_yours(
                format!("an attempt of {own_agent} cannot post as {name}"),
                format!("post as {own_agent}, or as an agent below it: {own_agent}/…"),
            )),
        }
    }

    /// Checks that an attempt may read a message. The message must be in one of the attempt's
    /// channels, or the attempt's agent must have sent or received the message.
    pub(super) fn require_readable_message(&self, message: &Message) -> Result<(), Refusal> {
        if bus::addressee(&message.channel).is_none() {
            return self.require_may_read(&message.channel);
        }
        if message.may_be_read_by(&self.agent) {
            return Ok(());
        }
        Err(not_allowed(&format!(
            "{}, which was sent to another agent",
            message.id
        )))
    }

    /// Returns the channel and the sender to which reading is limited. The attempt may read its own
    /// channels, its own messages in another agent's mailbox, and the thread of a message that the
    /// attempt may read. If the request names no channel, the attempt reads its project's channel.
    pub(super) fn narrow_message_filter(
        &self,
        channel: Option<&ChannelName>,
        from: Option<&str>,
        selected_by: &[Message],
    ) -> Result<(Option<ChannelName>, Option<String>), Refusal> {
        for message in selected_by {
            self.require_readable_message(message)?;
        }
        let mut from = from.map(str::to_owned);
        let channel = match channel {
            Some(channel) => {
                if let Err(refusal) = self.require_may_read(channel) {
                    bus::addressee(channel).ok_or(refusal)?;
                    from = Some(self.agent.to_string());
                }
                Some(channel.clone())
            }
            None if selected_by.is_empty() => Some(bus::channel_of(&self.project)),
            None => None,
        };
        Ok((channel, from))
    }
}

/// Checks that a new message has no label that only Regatta may use.
fn require_free_labels(labels: &[Label]) -> Result<(), Refusal> {
    let is_reserved = |label: &&Label| {
        label.as_str() == RESERVED_LABEL || label.as_str().starts_with(LEAD_LABEL_PREFIX)
    };
    match labels.iter().find(is_reserved) {
        None => Ok(()),
        Some(label) => Err(Refusal::not_yours(
            format!("only Regatta may use the label {label}"),
            "send the message without that label",
        )),
    }
}
