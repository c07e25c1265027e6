//! The inputs and views of the API verbs for teams (agents that are launched and stopped together).
//!
//! A list contains a [`TeamSummary`] of each team. The view of one team contains the same summary
//! and three separate records. The desired record is the request of a person, the resolved record
//! is the decision of the planner, and the live record describes the programs that run.

use regatta_core::board::Board;
use regatta_core::ids::{AttemptId, MemberName, TaskId, TeamName};
use regatta_core::launch::{self, MemberActivity, TeamLaunch, TeamSummary};
use regatta_core::team::{EditTeam, Team, TeamBackup};
use serde::{Deserialize, Serialize};

use crate::input::inputs;

inputs! {
    TeamNameInput {
        /// The name of the team.
        team: TeamName,
    }
    /// Selects which teams to list.
    TeamFilter {
        /// List deleted teams too.
        #[serde(default)]
        deleted: bool,
    }
    TeamEdit {
        /// The name of the team.
        team: TeamName,
        /// The fields to change. A given field replaces the old one; an omitted field is not
        /// changed.
        edit: EditTeam,
    }
    StartTeam {
        /// The name of the team.
        team: TeamName,
        /// The members of the team that this launch does not start.
        #[serde(default)]
        left_out: Vec<MemberName>,
        /// Time in milliseconds to wait until the outcome of every member's start is known.
        #[serde(default)]
        wait_ms: u64,
    }
    RelaunchTeam {
        /// The name of the team.
        team: TeamName,
        /// The time in milliseconds to wait until the outcome of every member's start is known.
        #[serde(default)] wait_ms: u64,
    }
    StopTeam {
        /// The name of the team.
        team: TeamName,
        /// The reason for the stop, which the team's record keeps.
        #[serde(default)] reason: String,
        /// Time in milliseconds to wait until no program of the team runs any more.
        #[serde(default)]
        wait_ms: u64,
    }
    RetryTeam {
        /// The name of the team.
        team: TeamName,
        /// The name of the member, without the team's name.
        member: MemberName,
        /// The time in milliseconds to wait until the outcome of the member's start is known.
        #[serde(default)] wait_ms: u64,
    }
    RestoreTeam {
        /// The content of a backup file, as `team.backup` returned it.
        backup: TeamBackup,
    }
}

/// The present activity of a team's member, with the facts from which it is derived.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemberLiveView {
    pub name: MemberName,
    pub live: MemberActivity,
    /// The attempt that represents the member's session, if the member's program runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<AttemptId>,
    /// The tasks on which the member works in addition to its session.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<TaskId>,
    /// Milliseconds since the member's program last wrote something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_ms: Option<u64>,
}

/// A team with all details: the summary as in the list of teams, the request of a person
/// (`desired`), the decision of the planner (`resolved`), and the programs that run (`live`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TeamView {
    pub summary: TeamSummary,
    pub desired: Team,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved: Option<TeamLaunch>,
    pub live: Vec<MemberLiveView>,
    /// True if any program of the team runs or is being started.
    pub up: bool,
    /// The launches of the team before the latest one, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<TeamLaunch>,
}

impl TeamView {
    /// Builds the view of a team from the board (the current state of everything).
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
                    live: launch::activity(board, member),
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
