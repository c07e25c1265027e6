//! Missions looked back at: the board at any revision of one, and two side by side.

use regatta_core::budget::Spend;
use regatta_core::ids::{MissionId, ProjectName};
use regatta_core::life::Sum;
use serde::{Deserialize, Serialize};

use super::LandingView;
use crate::page::RowView;

/// A mission as it stood at one revision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReplayView {
    pub mission: MissionId,
    pub project: ProjectName,
    pub title: String,
    /// The revision at which it began, and the last there is of it.
    pub first: u64,
    pub last: u64,
    /// The revision that is shown.
    pub at: u64,
    pub wall: u64,
    /// What became true at it.
    pub event: String,
    /// Its tasks as they stood then, by number.
    pub tasks: Vec<RowView>,
    /// The landing queue of its project then.
    pub queue: Vec<LandingView>,
    /// Where something happened that is worth a look, in order.
    pub marks: Vec<MarkView>,
}

/// A moment of a mission.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MarkView {
    pub revision: u64,
    pub wall: u64,
    pub text: String,
}

/// What a mission came to, in figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FiguresView {
    pub mission: MissionId,
    pub title: String,
    pub running: bool,
    pub agents: usize,
    pub tasks: usize,
    pub landed: usize,
    pub failed: usize,
    /// Attempts beyond each task's first.
    pub retries: usize,
    /// How many times finished work was sent back to be mended.
    pub fixups: u32,
    /// Tasks whose work conflicted with what had landed.
    pub conflicts: usize,
    /// From its start to its last change.
    pub wall_ms: u64,
    /// All attempts together.
    pub work_ms: u64,
    pub spent: Spend,
    /// Where the time of its tasks went, the longest first; not of very large ones.
    pub time: Vec<Sum>,
}
