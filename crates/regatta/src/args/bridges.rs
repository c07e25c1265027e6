//! The arguments of `bridge`.

use clap::{Subcommand, ValueEnum};
use regatta_core::conversation::Service;
use regatta_core::ids::{AgentName, ConversationId};

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ServiceArg {
    Slack,
    Github,
    Linear,
    Telegram,
}

impl From<ServiceArg> for Service {
    fn from(service_arg: ServiceArg) -> Service {
        match service_arg {
            ServiceArg::Slack => Service::Slack,
            ServiceArg::Github => Service::Github,
            ServiceArg::Linear => Service::Linear,
            ServiceArg::Telegram => Service::Telegram,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum BridgeCommand {
    /// List the bridges of each agent, and why a bridge is off
    List,
    /// Check that every bridge receives from its service; fails if one does not
    Test {
        /// Check only this agent's bridges
        agent: Option<AgentName>,
    },
    /// Pause an agent's bridges: they receive and send nothing
    Pause {
        /// Agent whose bridges to pause
        agent: AgentName,
        /// Pause only the bridge to this service
        #[arg(long, value_enum)]
        service: Option<ServiceArg>,
    },
    /// Resume an agent's paused bridges
    Resume {
        /// Agent whose bridges to resume
        agent: AgentName,
        /// Resume only the bridge to this service
        #[arg(long, value_enum)]
        service: Option<ServiceArg>,
    },
    /// List conversations
    Conversations {
        /// Include closed conversations
        #[arg(long)]
        all: bool,
    },
    /// Show a conversation: its turns and its posted messages
    Show {
        /// Conversation to show, such as V3
        id: ConversationId,
    },
    /// Accept the request of a person who is not on the bridge's list
    Accept {
        /// Conversation to accept, such as V3
        id: ConversationId,
    },
    /// Drop the requests of people who are not on the bridge's list
    Refuse {
        /// Conversation to refuse, such as V3
        id: ConversationId,
    },
    /// Stop the running turn of a conversation
    Stop {
        /// Conversation to stop, such as V3
        id: ConversationId,
    },
    /// End a conversation permanently
    Close {
        /// Conversation to close, such as V3
        id: ConversationId,
    },
}
