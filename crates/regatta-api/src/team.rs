//! Inputs and views of the verbs of teams.
//!
//! The list shows [`Summary`]. The detail shows the same summary beside three separate records: the desired, the
//! resolved and the live state.

use regatta_core::board::Board;
use regatta_core::ids::{AttemptId, MemberName, TaskId, TeamName};
use regatta_core::launch::{self, Launch, Live, Summary};
use regatta_core::team::{Backup, Edit, Team};
use serde::{Deserialize, Serialize};

use crate::input::inputs;

inputs! {
    Named { team: TeamName }
    /// Selects the teams to list.
    List {
        /// Also deleted teams.
        #[serde(default)] deleted: bool,
    }
    Change { team: TeamName, edit: Edit }
    Start {
        team: TeamName,
        /// Members that are not started this time.
        #[serde(default)] left_out: Vec<MemberName>,
        /// Time to wait for the outcome of every lane.
        #[serde(default)] wait_ms: u64,
    }
    Again {
        team: TeamName,
        #[serde(default)] wait_ms: u64,
    }
    Halt {
        team: TeamName,
        #[serde(default)] reason: String,
        /// Time to wait until no program of the team runs.
        #[serde(default)] wait_ms: u64,
    }
    Retry {
        team: TeamName,
        member: MemberName,
        #[serde(default)] wait_ms: u64,
    }
    Restore { backup: Backup }
}

/// The live state of a member, with its evidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LiveView {
    pub name: MemberName,
    pub live: Live,
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
    pub summary: Summary,
    pub desired: Team,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved: Option<Launch>,
    pub live: Vec<LiveView>,
    /// Set if anything of the team runs or is being started.
    pub up: bool,
    /// Launches before the last one, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Launch>,
}

impl TeamView {
    /// Builds the view of a team; `silent` returns the milliseconds since an attempt's program last wrote something.
    pub fn of(board: &Board, team: &Team, silent: impl Fn(AttemptId) -> Option<u64>) -> TeamView {
        let resolved = launch::of(board, team);
        let live = resolved.map(|it| &it.members).into_iter().flatten().map(|it| {
            let session = it.attempt.filter(|id| board.attempts.contains_key(id));
            let silent_ms = session.and_then(&silent);
            let works = board.attempts.values().filter(|at| at.agent == it.agent && at.standing.is_none());
            LiveView {
                name: it.name.clone(),
                live: launch::live(board, it, silent_ms),
                session,
                tasks: works.map(|it| it.task).collect(),
                silent_ms,
            }
        });
        TeamView {
            summary: launch::summary(board, team),
            live: live.collect(),
            up: launch::is_up(board, team),
            desired: team.clone(),
            resolved: resolved.map(|it| Launch::clone(it)),
            history: vec![],
        }
    }
}
