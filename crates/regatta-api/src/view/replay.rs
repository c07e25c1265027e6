//! Views of past missions: the board at any revision of a mission, and two missions side by side.

use regatta_core::budget::Spend;
use regatta_core::ids::{MissionId, ProjectName};
use regatta_core::task_timeline::ActivityTotal;
use serde::{Deserialize, Serialize};

use super::LandingView;
use crate::live_view::TaskRowView;

/// A mission as it stood at one revision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReplayView {
    pub mission: MissionId,
    pub project: ProjectName,
    pub title: String,
    /// The revision at which the mission began, and its last one.
    pub first: u64,
    pub last: u64,
    /// The revision that is shown.
    pub at: u64,
    pub wall: u64,
    /// The event of that revision.
    pub event: String,
    /// Its tasks at that revision, by number.
    pub tasks: Vec<TaskRowView>,
    /// The landing queue of its project at that revision.
    pub queue: Vec<LandingView>,
    /// Notable moments, in order.
    pub marks: Vec<ReplayMarkView>,
}

/// A moment of a mission.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReplayMarkView {
    pub revision: u64,
    pub wall: u64,
    pub text: String,
}

/// The results of a mission in numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MissionFiguresView {
    pub mission: MissionId,
    pub title: String,
    pub running: bool,
    pub agents: usize,
    pub tasks: usize,
    pub landed: usize,
    pub failed: usize,
    /// Number of attempts beyond the first one of each task.
    pub retries: usize,
    /// Number of times that finished work was sent back to be fixed.
    pub fixups: u32,
    /// Number of tasks whose work conflicted with landed work.
    pub conflicts: usize,
    /// Time from its start to its last change.
    pub wall_ms: u64,
    /// Total time of all attempts.
    pub work_ms: u64,
    pub spent: Spend,
    /// The activities of its tasks by time, the longest first; empty for very large missions.
    pub time: Vec<ActivityTotal>,
}
