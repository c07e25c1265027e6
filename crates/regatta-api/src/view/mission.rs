//! How missions stand.

use regatta_core::board::Board;
use regatta_core::budget::Spend;
use regatta_core::ids::{AgentName, MissionId, ProjectName};
use regatta_core::lead;
use regatta_core::mission::{self, Mission};
use regatta_core::schedule::{self, Outlook};
use serde::{Deserialize, Serialize};

use super::TaskView;

/// A mission in a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MissionLineView {
    pub id: MissionId,
    pub project: ProjectName,
    pub title: String,
    pub state: mission::State,
    /// Who leads it now.
    pub lead: Option<AgentName>,
    /// Its place in the line for a lead, from 1.
    pub place: Option<usize>,
    /// Why nobody leads it any more.
    pub lost: Option<String>,
    pub workers: Vec<AgentName>,
    /// How it stands, in a sentence.
    pub summary: String,
    pub outlook: Outlook,
    pub spent: Spend,
    pub created_wall: u64,
}

impl MissionLineView {
    pub fn of(board: &Board, mission: &Mission) -> MissionLineView {
        let lead = mission.lead.as_ref();
        MissionLineView {
            id: mission.id,
            project: mission.project.clone(),
            title: mission.title.clone(),
            state: mission.state,
            lead: lead.and_then(|it| it.at_work().cloned()),
            place: lead::place(board, mission.id),
            lost: lead.and_then(|it| it.lost.clone()),
            workers: mission.agents.clone(),
            summary: lead::summary(board, mission),
            outlook: schedule::outlook(board, mission.id),
            spent: mission.spent,
            created_wall: mission.created_wall,
        }
    }
}

/// A guide, or the names of all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GuideView {
    pub name: String,
    pub title: String,
    pub text: String,
}

/// How a mission stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MissionView {
    #[serde(flatten)]
    pub mission: Mission,
    pub running: bool,
    pub outlook: Outlook,
    /// Whether nothing more happens by itself.
    pub settled: bool,
    pub tasks: Vec<TaskView>,
}
