//! `bridge …`

use clap::{Subcommand, ValueEnum};
use regatta_core::conversation::Service;
use regatta_core::ids::{AgentName, ConversationId};

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ServiceName {
    Slack,
    Github,
    Linear,
    Telegram,
}

impl From<ServiceName> for Service {
    fn from(it: ServiceName) -> Service {
        match it {
            ServiceName::Slack => Service::Slack,
            ServiceName::Github => Service::Github,
            ServiceName::Linear => Service::Linear,
            ServiceName::Telegram => Service::Telegram,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum BridgeWord {
    /// List which agent is at which service, and what is off and why
    List,
    /// See whether every bridge hears its service; fails if one does not
    Test {
        /// Only this agent's
        agent: Option<AgentName>,
    },
    /// Let an agent's bridges rest: nothing is heard or said
    Pause {
        agent: AgentName,
        #[arg(long, value_enum)]
        service: Option<ServiceName>,
    },
    /// Let them go on
    Resume {
        agent: AgentName,
        #[arg(long, value_enum)]
        service: Option<ServiceName>,
    },
    /// List the conversations
    Conversations {
        /// Closed ones, too
        #[arg(long)]
        all: bool,
    },
    /// Show a conversation: its turns, and what was posted
    Show { id: ConversationId },
    /// Take a request of somebody who is not on the list
    Accept { id: ConversationId },
    /// Drop the requests of people who are not on the list
    Refuse { id: ConversationId },
    /// Stop a conversation's turn
    Stop { id: ConversationId },
    /// End a conversation for good
    Close { id: ConversationId },
}
