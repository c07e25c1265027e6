//! Views of missions (goals with their tasks) and of guides for agents.

use regatta_core::board::Board;
use regatta_core::budget::Spend;
use regatta_core::ids::{AgentName, MissionId, ProjectName};
use regatta_core::lead;
use regatta_core::mission::{self, Mission};
use regatta_core::schedule::{self, MissionOutlook};
use serde::{Deserialize, Serialize};

use super::TaskView;

/// A mission as one row of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MissionLineView {
    pub id: MissionId,
    pub project: ProjectName,
    pub title: String,
    pub state: mission::MissionState,
    /// The agent that leads the mission now, if there is one.
    pub lead: Option<AgentName>,
    /// The mission's position, counting from 1, among the missions that wait for a lead (an agent
    /// that leads the mission); empty if the mission does not wait.
    pub place: Option<usize>,
    /// The reason why the mission has lost its lead (the agent that leads it); empty if it has not.
    pub lost: Option<String>,
    pub workers: Vec<AgentName>,
    /// The state of the mission in a sentence.
    pub summary: String,
    pub outlook: MissionOutlook,
    pub spent: Spend,
    pub created_wall: u64,
}

impl MissionLineView {
    /// Builds the row for a mission from the board (the current state of everything).
    pub fn new(board: &Board, mission: &Mission) -> MissionLineView {
        let lead = mission.lead.as_ref();
        MissionLineView {
            id: mission.id,
            project: mission.project.clone(),
            title: mission.title.clone(),
            state: mission.state,
            lead: lead.and_then(|lead| lead.acting_name().cloned()),
            place: lead::queue_position(board, mission.id),
            lost: lead.and_then(|lead| lead.lost_reason.clone()),
            workers: mission.agents.clone(),
            summary: lead::summary(board, mission),
            outlook: schedule::outlook(board, mission.id),
            spent: mission.spent,
            created_wall: mission.created_unix_ms,
        }
    }
}

/// A guide for agents, or a list of the names of all guides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GuideView {
    pub name: String,
    pub title: String,
    pub text: String,
}

/// A mission with its tasks and its progress.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MissionView {
    #[serde(flatten, deserialize_with = "crate::json::read_flattened")]
    pub mission: Mission,
    pub running: bool,
    pub outlook: MissionOutlook,
    /// True if nothing more can happen in the mission until a person acts.
    pub settled: bool,
    pub tasks: Vec<TaskView>,
}
