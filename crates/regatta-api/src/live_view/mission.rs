//! The data of the page of one mission, and of the list of missions.

use regatta_core::budget::{Ceiling, Spend};
use regatta_core::ids::{AgentName, ApprovalId, CommitId, MissionId, ProjectName, TaskId};
use serde::{Deserialize, Serialize};

use super::{DisplayState, LaneBar, PageAction, TaskRowView};
use crate::task_list::StateCount;

/// A mission as one row of the list of missions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MissionRowView {
    pub id: MissionId,
    pub project: ProjectName,
    pub title: String,
    pub running: bool,
    pub at: DisplayState,
    /// The mission's state in one or two words.
    pub word: String,
    /// The progress of a running mission or the result of an ended mission, in a few words.
    pub text: String,
    pub tasks: usize,
    pub landed: usize,
    /// The number of tasks in each state, the most urgent state first, without the tasks of the
    /// lead.
    pub counts: Vec<StateCount>,
    pub lead: Option<AgentName>,
    /// The mission's cost in words. An unknown price is never shown as zero.
    pub spend: String,
    pub created_wall: u64,
    /// The time when the mission ended; empty while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_wall: Option<u64>,
}

/// The page of one mission.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MissionPage {
    pub mission: MissionRowView,
    /// The goal in the words of the person who asked for it; empty for a mission that runs a plan.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub goal: String,
    /// The person or agent who started the mission; empty if the log does not say it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub asked_by: String,
    /// The lead's final report, or the reason why the mission was cancelled.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub report: String,
    /// The reasons why the mission as a whole does not continue as planned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    pub waves: Vec<MissionWave>,
    pub spent: Spend,
    /// The limits of the mission's budget, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Ceiling>,
    /// Open tasks, those that need a person first. `open_total` also counts the tasks that the list
    /// leaves out.
    pub open: Vec<TaskRowView>,
    pub open_total: usize,
    /// The latest landed work, newest first. `landings_total` also counts older work.
    pub landings: Vec<MissionLanding>,
    pub landings_total: usize,
    /// The latest questions and permission requests, open ones first, then the newest.
    /// `decisions_total` also counts older requests.
    pub decisions: Vec<MissionDecision>,
    pub decisions_total: usize,
    /// The agents that worked on the mission, with their attempts as bars over time.
    pub lanes: Vec<MissionLane>,
    /// The number of agents that worked on the mission, including those without a lane here.
    pub lanes_total: usize,
    pub actions: Vec<PageAction>,
}

/// A wave of a mission: tasks that depend only on tasks of earlier waves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MissionWave {
    /// The number of the wave, counting from 1.
    pub wave: u32,
    pub tasks: usize,
    pub landed: usize,
    /// The number of tasks in each state, the most urgent state first.
    pub counts: Vec<StateCount>,
}

/// Work of a mission that reached the trunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MissionLanding {
    pub task: TaskId,
    pub subject: String,
    pub agent: Option<AgentName>,
    pub commit: CommitId,
    pub wall: u64,
    /// The number of added and removed lines; empty if they could not be counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<ChangedLines>,
}

/// The size of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ChangedLines {
    pub files: usize,
    pub added: usize,
    pub removed: usize,
}

/// A question or a permission request of an agent, with its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MissionDecision {
    pub id: ApprovalId,
    pub at: DisplayState,
    /// The kind of request: `question` or `permission`.
    pub kind: String,
    pub task: TaskId,
    pub agent: AgentName,
    pub subject: String,
    /// The answer in a few words, such as `allowed`.
    pub answer: String,
    /// The person who answered, or the rule that did; empty if nobody has answered.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
    pub asked_wall: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_wall: Option<u64>,
}

/// An agent that worked on a mission, with its attempts as bars over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MissionLane {
    pub agent: AgentName,
    /// The state of the agent's current attempt at a task of this mission; idle if it has none.
    pub at: DisplayState,
    pub word: String,
    /// The task of the mission on which the agent works now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    pub bars: Vec<LaneBar>,
}
