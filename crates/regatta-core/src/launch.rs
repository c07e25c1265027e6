//! Launches: one start of a team and its result. This is the resolved record, with one entry for
//! each expected member.
//!
//! Aggregates are never stored: [`Launch::phase`] and [`Launch::outcome`] are derived from the
//! members' states (T2). The coordinator in `launch/coordinate.rs` changes members' states. Each
//! report names exactly one member, so that a failure cannot affect another (T3).

mod coordinate; // the next step of a launch
mod evidence; // records rebuilt from running sessions
mod herald; // announcements on the bus
mod observe; // observations of a member's session
mod summary; // the one summary for every reader
mod words; // descriptions for people

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent::{Key, Runtime};
use crate::attempt::Attempt;
use crate::board::Board;
use crate::event::facts;
use crate::extra::Extra;
use crate::ids::{AgentName, AttemptId, LaunchId, MemberName, ProjectName, TaskId, TeamName};
use crate::lane::{Kind, Lane};
use crate::team::Team;

pub(crate) use coordinate::{advance, again_after, degrade, reconciled, restore, supersede_record};
pub use coordinate::{begin, relaunch, resolved, retry, stop};
pub(crate) use evidence::{begin_from_evidence, fill_roster, record_session};
pub(crate) use herald::announce;
pub use observe::{Live, at, live};
pub(crate) use observe::{ended, seen};
pub use summary::{LARGEST_SUMMARY, Line, Summary, summary};
pub use words::{describe, explain};

/// The state of a member within a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Its lane has not begun.
    Queued,
    /// Its session is being created.
    Starting,
    /// Its program runs and has not answered yet.
    PendingBootstrap,
    /// It waits for a permission before it is up.
    PendingPermission,
    /// It has answered its first prompt.
    Alive,
    /// It never came up.
    FailedToStart,
    /// Its start was not tried.
    Skipped,
    /// It was up and is down now, or its former state is unknown.
    Degraded,
    Stopped,
}

impl State {
    pub const ALL: [State; 9] = [
        State::Queued,
        State::Starting,
        State::PendingBootstrap,
        State::PendingPermission,
        State::Alive,
        State::FailedToStart,
        State::Skipped,
        State::Degraded,
        State::Stopped,
    ];

    /// Returns its name in the API.
    pub fn word(self) -> &'static str {
        match self {
            State::Queued => "queued",
            State::Starting => "starting",
            State::PendingBootstrap => "pending_bootstrap",
            State::PendingPermission => "pending_permission",
            State::Alive => "alive",
            State::FailedToStart => "failed_to_start",
            State::Skipped => "skipped",
            State::Degraded => "degraded",
            State::Stopped => "stopped",
        }
    }

    /// Returns whether the member's start is still under way.
    pub fn is_pending(self) -> bool {
        matches!(self, State::Queued | State::Starting | State::PendingBootstrap | State::PendingPermission)
    }
}

/// The progress of a launch as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// At least one planned lane is still starting or stopping.
    Active,
    /// All planned lanes have reached an end.
    Finished,
    /// The record was compared with the running processes, after a stop or a restart.
    Reconciled,
}

/// The result of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    CleanSuccess,
    PartialPending,
    PartialFailure,
    PartialSkipped,
}

/// The kind of a problem that led to a member's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// Its program is missing, or cannot run as a member.
    Program,
    /// Nobody is signed in.
    SignIn,
    /// Its provider accepts no work for now.
    Provider,
    /// Its program ended or violated its protocol.
    Crashed,
    /// It took too long.
    TimedOut,
    /// It was silent for too long.
    Hung,
    /// Its process vanished.
    Lost,
    /// Somebody stopped it.
    Stopped,
    /// Regatta itself failed to start it.
    Environment,
    /// The lead is not up, so there is no team to attach to.
    NoLead,
    /// A person left it out of the launch.
    LeftOut,
    /// Its lane is unknown, and Regatta does not guess.
    LaneUnknown,
    /// Another problem; the text names it.
    Other,
}

/// The cause of a member's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cause {
    pub kind: Why,
    pub text: String,
}

/// The source of a piece of evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Sign {
    /// The program: its path, its start, its end.
    Process,
    /// The protocol: a session, a turn.
    Protocol,
    /// A permission request or its answer.
    Permission,
    /// A decision of the coordinator or of a person.
    Decision,
}

/// An observation about a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Evidence {
    pub wall: u64,
    pub sign: Sign,
    pub text: String,
}

/// Number of the latest observations that a member's entry keeps.
pub const MOST_EVIDENCE: usize = 8;

/// The provider and settings with which a member runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Identity {
    pub provider: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fast_mode: Option<bool>,
    /// The directory of its workspace in which it starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
}

/// The lane of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Place {
    /// `primary`, or `opencode:tom`.
    pub id: String,
    pub kind: Kind,
    /// The provider that owns the lane.
    pub owner: String,
}

/// Facts that the real program reported before it was started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Program {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The way in which the user is signed in, as far as it can be seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sign_in: Option<String>,
    /// Some of the models that it offers; `None` if it cannot list them before it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub models: Option<Vec<String>>,
}

/// Maximum number of a program's models that are recorded.
pub const MOST_MODELS: usize = 32;

/// One member's entry in a launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Entry {
    pub name: MemberName,
    #[serde(default)]
    pub lead: bool,
    pub agent: AgentName,
    /// `None` in records from before lanes existed. No lane is inferred for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<Place>,
    /// Settings that were requested at launch.
    #[serde(default)]
    pub asked: Identity,
    /// Settings that are in effect.
    #[serde(default)]
    pub got: Identity,
    /// Explanations of the differences: inherited, moved, not available.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<Program>,
    /// Its program was checked and can be started.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub prepared: bool,
    pub state: State,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Evidence>,
    /// Its standing task and the attempt of its session, while it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<AttemptId>,
    /// Number of retries of its lane.
    #[serde(default)]
    pub retries: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_wall: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alive_wall: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_wall: Option<u64>,
    #[serde(flatten)]
    pub extra: Extra,
}

impl Entry {
    /// Returns a queued entry without a lane or any other fact.
    fn new(team: &Team, name: &MemberName) -> Entry {
        Entry {
            name: name.clone(),
            lead: *name == team.lead.name,
            agent: team.agent(name),
            lane: None,
            asked: Identity::default(),
            got: Identity::default(),
            notes: vec![],
            program: None,
            prepared: false,
            state: State::Queued,
            cause: None,
            evidence: vec![],
            task: None,
            attempt: None,
            retries: 0,
            started_wall: None,
            alive_wall: None,
            ended_wall: None,
            extra: Extra::new(),
        }
    }

    /// Returns whether the member is known to be on a secondary lane.
    pub fn is_aside(&self) -> bool {
        self.lane.as_ref().is_some_and(|it| it.kind == Kind::Secondary)
    }

    /// Returns the entry with this cause.
    fn because(mut self, kind: Why, text: impl Into<String>) -> Entry {
        self.cause = Some(Cause { kind, text: text.into() });
        self
    }
}

/// The record of one start of a team.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Launch {
    pub id: LaunchId,
    pub team: TeamName,
    pub project: ProjectName,
    /// The whole roster, always: the lead first (T1).
    pub expected_members: Vec<MemberName>,
    /// Members that start with the primary lane.
    #[serde(default)]
    pub bootstrap_expected_members: Vec<MemberName>,
    /// The planned lanes; empty in records from before lanes existed.
    #[serde(default)]
    pub lanes: Vec<Lane>,
    pub members: Vec<Entry>,
    /// Reason for which it is being stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopping: Option<String>,
    /// Time of the last comparison with the running processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reconciled_wall: Option<u64>,
    /// The last announcement on the bus.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<String>,
    /// A later launch of the team has replaced it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub superseded: bool,
    /// The revision of its last change.
    #[serde(default)]
    pub revision: u64,
    pub begun_wall: u64,
    #[serde(default)]
    pub updated_wall: u64,
    #[serde(flatten)]
    pub extra: Extra,
}

impl Launch {
    /// Returns the entry of a member.
    pub fn entry(&self, name: &MemberName) -> Option<&Entry> {
        self.members.iter().find(|it| it.name == *name)
    }

    /// Returns the lead's entry.
    pub fn lead(&self) -> Option<&Entry> {
        self.members.iter().find(|it| it.lead)
    }

    /// Returns whether some members are on secondary lanes.
    pub fn is_mixed(&self) -> bool {
        self.members.iter().any(Entry::is_aside)
    }

    /// Returns the phase, derived from the members (T2). The launch stays active until every
    /// planned lane has reached an end, whatever the primary lane does.
    pub fn phase(&self) -> Phase {
        if self.stopping.is_some() || self.members.iter().any(|it| it.state.is_pending()) {
            Phase::Active
        } else if self.reconciled_wall.is_some() {
            Phase::Reconciled
        } else {
            Phase::Finished
        }
    }

    /// Returns the outcome, derived from the members (T2).
    pub fn outcome(&self) -> Outcome {
        // A member that was stopped before it came up counts as skipped, whatever the reason.
        let state = |entry: &Entry| match entry.state {
            State::Stopped if entry.alive_wall.is_none() => State::Skipped,
            state => state,
        };
        fold(self.members.iter().map(|entry| (state(entry), entry.cause.as_ref().map(|cause| cause.kind))))
    }
}

/// Returns the outcome for a list of member states. An unknown lane counts as pending, not as a
/// failure.
pub fn fold(members: impl IntoIterator<Item = (State, Option<Why>)>) -> Outcome {
    let (mut pending, mut failed, mut skipped) = (false, false, false);
    for (state, why) in members {
        match state {
            State::Queued | State::Starting | State::PendingBootstrap | State::PendingPermission => pending = true,
            State::Degraded if why == Some(Why::LaneUnknown) => pending = true,
            State::FailedToStart | State::Degraded => failed = true,
            State::Skipped => skipped = true,
            State::Alive | State::Stopped => {}
        }
    }
    match (pending, failed, skipped) {
        (true, ..) => Outcome::PartialPending,
        (_, true, _) => Outcome::PartialFailure,
        (_, _, true) => Outcome::PartialSkipped,
        _ => Outcome::CleanSuccess,
    }
}

/// The result of checking the real program of one member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Resolution {
    pub member: MemberName,
    /// The runtime that drives its program, if the program can be started.
    pub runtime: Option<Runtime>,
    /// The program, as a preset's name.
    pub backend: Option<String>,
    #[serde(default)]
    pub program: Program,
    /// API keys that the user has set for this program.
    #[serde(default)]
    pub keys: Vec<Key>,
    /// Files with which the user is signed in.
    #[serde(default)]
    pub files: Vec<String>,
    /// Result for the requested fast mode; `None` if none was requested.
    #[serde(default)]
    pub fast_mode: Option<bool>,
    /// Remarks for people.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Reason why it cannot be started, and the remedy.
    #[serde(default)]
    pub problem: Option<Cause>,
}

/// The team member whose session an attempt is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Standing {
    pub launch: LaunchId,
    pub member: MemberName,
}

facts! {
    Begun { launch: Arc<Launch> }
    /// A member's whole entry. A member that the record lacks is added.
    Moved { launch: LaunchId, entry: Arc<Entry> }
    /// The launch is being stopped, was compared with the running processes, was replaced, or was
    /// announced.
    Changed {
        launch: LaunchId,
        stopping: Option<String>,
        reconciled_wall: Option<u64>,
        superseded: bool,
        told: Option<String>,
    }
}

/// Returns a team's latest launch.
pub fn of<'a>(board: &'a Board, team: &Team) -> Option<&'a Arc<Launch>> {
    board.launches.get(&team.launch?)
}

/// Returns whether any part of a team runs or is starting. Attempts are the evidence, whatever the
/// record has (T7).
pub fn is_up(board: &Board, team: &Team) -> bool {
    let is_active = of(board, team).is_some_and(|launch| launch.phase() == Phase::Active);
    is_active || living(board, team).next().is_some()
}

/// Returns the attempts of a team's members: their sessions and their tasks.
pub fn living<'a>(board: &'a Board, team: &'a Team) -> impl Iterator<Item = &'a Arc<Attempt>> {
    let record = of(board, team);
    board.attempts.values().filter(move |attempt| {
        let Some(name) = member_of(team, &attempt.agent) else { return false };
        let is_known = || team.member(&name).is_some() || record.is_some_and(|launch| launch.entry(&name).is_some());
        attempt.supervised && (attempt.standing.is_some() || is_known())
    })
}

/// Returns the member that an agent is: a team's agents are named `TEAM/MEMBER`.
pub(crate) fn member_of(team: &Team, agent: &AgentName) -> Option<MemberName> {
    let name = agent.as_str().strip_prefix(team.name.as_str())?.strip_prefix('/')?;
    MemberName::new(name).ok()
}

/// Returns the team that an agent is a member of, whether it is up or not.
pub(crate) fn team_of<'a>(board: &'a Board, agent: &AgentName) -> Option<&'a TeamName> {
    board.teams.values().find(|team| member_of(team, agent).is_some()).map(|team| &team.name)
}

/// Returns whether a session or a task of a member runs.
pub fn lives(board: &Board, entry: &Entry) -> bool {
    board.attempts.values().any(|it| it.agent == entry.agent && it.supervised)
}

/// Returns whether a member's session is still on the board, so that its process may be alive.
pub fn has_session(board: &Board, entry: &Entry) -> bool {
    entry.attempt.is_some_and(|it| board.attempts.contains_key(&it))
}
