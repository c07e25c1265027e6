//! Teams at the doors: what their verbs take, and what is shown of them.
//!
//! The list shows [`Summary`], the detail shows the same beside what is wanted, what became of it and what lives: three
//! fields, never one for another.

use regatta_core::board::Board;
use regatta_core::ids::{AttemptId, MemberName, TaskId, TeamName};
use regatta_core::launch::{self, Launch, Live, Summary};
use regatta_core::team::{Backup, Edit, Team};
use serde::{Deserialize, Serialize};

use crate::input::inputs;

inputs! {
    Named { team: TeamName }
    /// Which teams are listed.
    List {
        /// Also those that were deleted.
        #[serde(default)] deleted: bool,
    }
    Change { team: TeamName, edit: Edit }
    Start {
        team: TeamName,
        /// Members that are not started this time.
        #[serde(default)] left_out: Vec<MemberName>,
        /// How long to wait until every lane has come to an end.
        #[serde(default)] wait_ms: u64,
    }
    Again {
        team: TeamName,
        #[serde(default)] wait_ms: u64,
    }
    Halt {
        team: TeamName,
        #[serde(default)] reason: String,
        /// How long to wait until nothing of it lives.
        #[serde(default)] wait_ms: u64,
    }
    Retry {
        team: TeamName,
        member: MemberName,
        #[serde(default)] wait_ms: u64,
    }
    Restore { backup: Backup }
}

/// What lives of a member, and what shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LiveView {
    pub name: MemberName,
    pub live: Live,
    /// Its session, while it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<AttemptId>,
    /// What it works on beside its session.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<TaskId>,
    /// How long ago its program last said something, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_ms: Option<u64>,
}

/// A team in full: what is wanted, what became of it, what lives; and the same summary as in the list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TeamView {
    pub summary: Summary,
    pub desired: Team,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved: Option<Launch>,
    pub live: Vec<LiveView>,
    /// Whether anything of it lives or is on its way.
    pub up: bool,
    /// Launches before the last, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Launch>,
}

impl TeamView {
    /// Draws a team; `silent` tells how long ago an attempt's program was heard.
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
