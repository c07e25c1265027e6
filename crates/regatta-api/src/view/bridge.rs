//! Views of bridges, and of conversations in one row each.

use regatta_core::conversation::{Conversation, Service, TurnState};
use regatta_core::ids::{AgentName, ConversationId, ProjectName, TaskId};
use serde::{Deserialize, Serialize};

/// The health of an agent's bridge to a service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct BridgeHealthView {
    /// Set while the bridge receives events: the date since when it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connected: Option<u64>,
    /// The agent's name at the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known_as: Option<String>,
    /// The last error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    pub taken: u64,
    pub refused: u64,
    pub sent: u64,
    pub delayed: u64,
    pub paused: bool,
}

/// One pair of agent and service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BridgeView {
    /// Service and agent: `slack:claude`
    pub name: String,
    pub agent: AgentName,
    pub service: Service,
    /// The route that receives its deliveries, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    /// Why it is switched off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub off: Option<String>,
    /// A missing setting, although the bridge runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    #[serde(flatten)]
    pub health: BridgeHealthView,
    /// Posts that were given up, and posts that wait.
    pub dead: usize,
    pub waiting: usize,
}

/// A conversation in one row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConversationLineView {
    pub id: ConversationId,
    pub key: String,
    pub service: Service,
    pub agent: AgentName,
    pub project: ProjectName,
    pub title: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// One of: working, idle, held, resting, closed.
    pub word: String,
    pub turns: u64,
    /// Number of prompts that wait.
    pub queued: usize,
    /// The last prompt, with its author.
    pub last: String,
    /// Posts that are not delivered yet, and posts that were given up.
    pub unshown: usize,
    pub dead: usize,
    pub updated_wall: u64,
}

impl ConversationLineView {
    /// Builds the row of a conversation.
    pub fn new(conversation: &Conversation) -> ConversationLineView {
        let last = conversation.turns.last().map(|turn| {
            format!(
                "{}: {}",
                turn.by.name,
                turn.text.lines().next().unwrap_or_default()
            )
        });
        let word = match conversation {
            conversation if conversation.closed => "closed",
            conversation
                if conversation
                    .turns
                    .iter()
                    .any(|turn| turn.state == TurnState::Working) =>
            {
                "working"
            }
            conversation if !conversation.held.is_empty() => "held",
            conversation if conversation.expired => "resting",
            _ => "idle",
        };
        ConversationLineView {
            id: conversation.id,
            key: conversation.key.clone(),
            service: conversation.service,
            agent: conversation.agent.clone(),
            project: conversation.project.clone(),
            title: conversation.title.clone(),
            url: conversation.url.clone(),
            task: conversation.task,
            word: word.into(),
            turns: conversation.turn_count,
            queued: conversation.queued_count(),
            last: last.unwrap_or_default().chars().take(200).collect(),
            unshown: conversation.unshown_posts().count(),
            dead: conversation
                .posts
                .iter()
                .filter(|thread_post| thread_post.failure.is_some())
                .count(),
            updated_wall: conversation.updated_unix_ms,
        }
    }
}
