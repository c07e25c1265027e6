//! Views of missions and of guides.

use regatta_core::board::Board;
use regatta_core::budget::Spend;
use regatta_core::ids::{AgentName, MissionId, ProjectName};
use regatta_core::lead;
use regatta_core::mission::{self, Mission};
use regatta_core::schedule::{self, MissionOutlook};
use serde::{Deserialize, Serialize};

use super::TaskView;

/// A mission in one row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MissionLineView {
    pub id: MissionId,
    pub project: ProjectName,
    pub title: String,
    pub state: mission::MissionState,
    /// The agent that leads it now.
    pub lead: Option<AgentName>,
    /// Its position in the queue for a lead, counting from 1.
    pub place: Option<usize>,
    /// Why it has lost its lead.
    pub lost: Option<String>,
    pub workers: Vec<AgentName>,
    /// Its state in a sentence.
    pub summary: String,
    pub outlook: MissionOutlook,
    pub spent: Spend,
    pub created_wall: u64,
}

impl MissionLineView {
    /// Builds the row of a mission from the board.
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

/// A guide, or the names of all guides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GuideView {
    pub name: String,
    pub title: String,
    pub text: String,
}

/// The state of a mission.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MissionView {
    #[serde(flatten)]
    pub mission: Mission,
    pub running: bool,
    pub outlook: MissionOutlook,
    /// Set if nothing more happens without a person.
    pub settled: bool,
    pub tasks: Vec<TaskView>,
}
