//! Views of past missions: a mission's state at any revision (number of an event), and two missions
//! side by side.

use regatta_core::budget::Spend;
use regatta_core::ids::{MissionId, ProjectName, TaskId};
use regatta_core::task_timeline::ActivityTotal;
use serde::{Deserialize, Serialize};

use super::LandingView;
use crate::live_view::{DisplayState, TaskRowView};

/// A mission, with its tasks and its landing queue, as it was at one revision (number of an event).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReplayView {
    pub mission: MissionId,
    pub project: ProjectName,
    pub title: String,
    /// The revision (number of an event) at which the mission began. `last` is the revision of its
    /// last event.
    pub first: u64,
    pub last: u64,
    /// The revision (number of an event) for which this view shows the mission.
    pub at: u64,
    pub wall: u64,
    /// The event with the revision `at`, in words.
    pub event: String,
    /// The mission's tasks as they were at the revision `at`, sorted by id.
    pub tasks: Vec<TaskRowView>,
    /// The landing queue of the mission's project as it was at the revision `at`.
    pub queue: Vec<LandingView>,
    /// Notable moments of the mission, in order of time.
    pub marks: Vec<ReplayMarkView>,
}

/// A notable moment of a mission, with its revision (number of the event) and a short text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReplayMarkView {
    pub revision: u64,
    pub wall: u64,
    pub text: String,
    /// The state that the moment brought about, such as `landed`; `idle` for a moment that changed
    /// the state of no task.
    #[serde(default = "idle")]
    pub at: DisplayState,
    /// The task that the moment is about, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
}

/// The results of a mission in numbers, for comparison with other missions.
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
    /// The number of repeated attempts, which are all attempts except the first attempt at each
    /// task.
    pub retries: usize,
    /// The number of times that finished work was sent back to be fixed.
    pub fixups: u32,
    /// The number of tasks whose work conflicted with landed work.
    pub conflicts: usize,
    /// The time in milliseconds from the mission's start to its last change.
    pub wall_ms: u64,
    /// The sum of the durations of all attempts, in milliseconds.
    pub work_ms: u64,
    pub spent: Spend,
    /// The time that the mission's tasks spent in each activity, the longest first; empty for very
    /// large missions.
    pub time: Vec<ActivityTotal>,
}

fn idle() -> DisplayState {
    DisplayState::Idle
}
