//! Views of bridges (connections of agents to services such as Slack), and of conversations as rows
//! of a list.

use regatta_core::conversation::{Conversation, Service};
use regatta_core::display::{self, DisplayState};
use regatta_core::ids::{AgentName, ConversationId, ProjectName, TaskId};
use serde::{Deserialize, Serialize};

/// The health of an agent's bridge (its connection to a chat service): the state of the connection,
/// and the amount that was transferred.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct BridgeHealthView {
    /// The time when the bridge started to receive events, in milliseconds since 1970; empty while
    /// the bridge does not receive events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connected: Option<u64>,
    /// The agent's user name in the service, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known_as: Option<String>,
    /// The bridge's last error, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    pub taken: u64,
    pub refused: u64,
    pub sent: u64,
    pub delayed: u64,
    pub paused: bool,
}

/// A bridge (connection) of one agent to one service, such as Slack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BridgeView {
    /// The bridge's name, made of service and agent, such as `slack:claude`.
    pub name: String,
    pub agent: AgentName,
    pub service: Service,
    /// The HTTP route on which the service delivers events for this bridge, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    /// The reason why the bridge (connection to a chat service) does not run; empty if it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub off: Option<String>,
    /// A sentence about a setting that is missing, although the bridge can run without the setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    #[serde(flatten)]
    pub health: BridgeHealthView,
    /// Number of the agent's posts that could not be delivered and are no longer retried. `waiting`
    /// is the number of posts that are not delivered yet.
    pub dead: usize,
    pub waiting: usize,
}

/// A conversation (a thread in a service such as Slack) as one row of a list.
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
    /// The state of the conversation, one of: working, idle, held, resting, closed.
    pub word: String,
    /// The state of the conversation for programs. `word` is the same state as a word for people.
    pub at: DisplayState,
    pub turns: u64,
    /// Number of prompts that the agent has not received yet.
    pub queued: usize,
    /// The author and the first line of the last prompt.
    pub last: String,
    /// Number of posts that are not delivered to the service yet. `dead` is the number of posts
    /// that are no longer retried.
    pub unshown: usize,
    pub dead: usize,
    pub updated_wall: u64,
}

impl ConversationLineView {
    /// Builds the row for a conversation.
    pub fn new(conversation: &Conversation) -> ConversationLineView {
        let last = conversation.turns.last().map(|turn| {
            format!(
                "{}: {}",
                turn.by.name,
                turn.text.lines().next().unwrap_or_default()
            )
        });
        let shown = display::conversation_display(conversation);
        ConversationLineView {
            id: conversation.id,
            key: conversation.key.clone(),
            service: conversation.service,
            agent: conversation.agent.clone(),
            project: conversation.project.clone(),
            title: conversation.title.clone(),
            url: conversation.url.clone(),
            task: conversation.task,
            word: shown.label.into(),
            at: shown.state,
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
