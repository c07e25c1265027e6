//! Conversations and bridges, as people see them.

use regatta_core::conversation::{Conversation, Service, TurnState};
use regatta_core::ids::{AgentName, ConversationId, ProjectName, TaskId};
use serde::{Deserialize, Serialize};

/// How an agent is at a service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct HealthView {
    /// It hears, and since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connected: Option<u64>,
    /// What it calls itself at the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known_as: Option<String>,
    /// The last thing that went wrong.
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
    /// `slack:claude`
    pub name: String,
    pub agent: AgentName,
    pub service: Service,
    /// Where its deliveries come in, if they do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    /// Why it is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub off: Option<String>,
    /// What it lacks, though it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    #[serde(flatten)]
    pub health: HealthView,
    /// Posts that will never be shown, and posts that wait.
    pub dead: usize,
    pub waiting: usize,
}

/// A conversation in a line.
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
    /// working, idle, held, resting or closed.
    pub word: String,
    pub turns: u64,
    /// Prompts that wait.
    pub queued: usize,
    /// What was last asked, and by whom.
    pub last: String,
    /// Posts that nobody has seen yet, and such that nobody ever will.
    pub unshown: usize,
    pub dead: usize,
    pub updated_wall: u64,
}

impl ConversationLineView {
    pub fn of(it: &Conversation) -> ConversationLineView {
        let last = it.turns.last().map(|it| format!("{}: {}", it.by.name, it.text.lines().next().unwrap_or_default()));
        let word = match it {
            it if it.closed => "closed",
            it if it.turns.iter().any(|it| it.state == TurnState::Working) => "working",
            it if !it.held.is_empty() => "held",
            it if it.expired => "resting",
            _ => "idle",
        };
        ConversationLineView {
            id: it.id,
            key: it.key.clone(),
            service: it.service,
            agent: it.agent.clone(),
            project: it.project.clone(),
            title: it.title.clone(),
            url: it.url.clone(),
            task: it.task,
            word: word.into(),
            turns: it.turn_count,
            queued: it.queued(),
            last: last.unwrap_or_default().chars().take(200).collect(),
            unshown: it.unshown().count(),
            dead: it.posts.iter().filter(|it| it.dead.is_some()).count(),
            updated_wall: it.updated_wall,
        }
    }
}
