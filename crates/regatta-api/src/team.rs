//! Inputs and views of the verbs of teams.
//!
//! The list shows [`TeamSummary`]. The detail shows the same summary beside three separate records:
//! the desired, the resolved and the live state.

use regatta_core::board::Board;
use regatta_core::ids::{AttemptId, MemberName, TaskId, TeamName};
use regatta_core::launch::{self, MemberActivity, TeamLaunch, TeamSummary};
use regatta_core::team::{EditTeam, Team, TeamBackup};
use serde::{Deserialize, Serialize};

use crate::input::inputs;

inputs! {
    TeamNameInput { team: TeamName }
    /// Selects the teams to list.
    TeamFilter {
        /// Also deleted teams.
        #[serde(default)] deleted: bool,
    }
    TeamEdit { team: TeamName, edit: EditTeam }
    StartTeam {
        team: TeamName,
        /// Members that are not started this time.
        #[serde(default)] left_out: Vec<MemberName>,
        /// Time to wait for the outcome of every lane.
        #[serde(default)] wait_ms: u64,
    }
    RelaunchTeam {
        team: TeamName,
        #[serde(default)] wait_ms: u64,
    }
    StopTeam {
        team: TeamName,
        #[serde(default)] reason: String,
        /// Time to wait until no program of the team runs.
        #[serde(default)] wait_ms: u64,
    }
    RetryTeam {
        team: TeamName,
        member: MemberName,
        #[serde(default)] wait_ms: u64,
    }
    RestoreTeam { backup: TeamBackup }
}

/// The live state of a member, with its evidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemberLiveView {
    pub name: MemberName,
    pub live: MemberActivity,
    /// Its session, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<AttemptId>,
    /// Its tasks besides its session.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<TaskId>,
    /// Milliseconds since its program last wrote something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_ms: Option<u64>,
}

/// A team in full: desired, resolved and live state, and the same summary as in the list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TeamView {
    pub summary: TeamSummary,
    pub desired: Team,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved: Option<TeamLaunch>,
    pub live: Vec<MemberLiveView>,
    /// Set if anything of the team runs or is being started.
    pub up: bool,
    /// Launches before the last one, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<TeamLaunch>,
}

impl TeamView {
    /// Builds the view of a team; `silent` returns the milliseconds since an attempt's program last
    /// wrote something.
    pub fn new(board: &Board, team: &Team, silent: impl Fn(AttemptId) -> Option<u64>) -> TeamView {
        let resolved = launch::latest_launch(board, team);
        let live = resolved
            .map(|team_launch| &team_launch.members)
            .into_iter()
            .flatten()
            .map(|member| {
                let session = member.attempt.filter(|id| board.attempts.contains_key(id));
                let silent_ms = session.and_then(&silent);
                let attempts = board.attempts.values().filter(|attempt| {
                    attempt.agent == member.agent && attempt.session_of.is_none()
                });
                MemberLiveView {
                    name: member.name.clone(),
                    live: launch::activity(board, member, silent_ms),
                    session,
                    tasks: attempts.map(|attempt| attempt.task).collect(),
                    silent_ms,
                }
            });
        TeamView {
            summary: launch::summary(board, team),
            live: live.collect(),
            up: launch::is_up(board, team),
            desired: team.clone(),
            resolved: resolved.map(|team_launch| TeamLaunch::clone(team_launch)),
            history: vec![],
        }
    }
}
