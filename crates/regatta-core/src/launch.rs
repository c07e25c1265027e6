//! Launches: one start of a team and its result. This is the resolved record, with one entry for
//! each expected member.
//!
//! Aggregates are never stored: [`TeamLaunch::phase`] and [`TeamLaunch::outcome`] are derived from
//! the members' states (T2). The coordinator in `launch/coordinator.rs` changes members' states.
//! Each report names exactly one member, so that a failure cannot affect another (T3).

mod announce; // announcements on the bus
mod coordinator; // the next step of a launch
mod evidence; // records rebuilt from running sessions
mod member_state; // observations of a member's session
mod messages; // descriptions for people
mod plan; // the provider and settings of each member when a launch begins
pub mod recovery; // the choice of a record after a restart, and its comparison with the sessions
mod stop; // the stop and the relaunch of a team
mod summary; // the one summary for every reader

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent::{Runtime, SecretVariable};
use crate::attempt::Attempt;
use crate::board::Board;
use crate::event::facts;
use crate::ids::{AgentName, AttemptId, LaunchId, MemberName, ProjectName, TaskId, TeamName};
use crate::lane::{Lane, LaneKind};
use crate::team::Team;
use crate::unknown_fields::UnknownFields;

pub(crate) use announce::announce;
pub(crate) use coordinator::{advance, restore};
pub use coordinator::{begin, on_resolved, retry};
pub use member_state::{MemberActivity, activity, activity_of_task};
pub(crate) use member_state::{on_session_ended, on_session_event};
pub use messages::{describe, explain};
pub(crate) use stop::relaunch_if_requested;
pub use stop::{relaunch, stop};
pub use summary::{MAX_SUMMARY_BYTES, MemberSummary, TeamSummary, summary};

/// The state of a member within a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum MemberState {
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

impl MemberState {
    pub const ALL: [MemberState; 9] = [
        MemberState::Queued,
        MemberState::Starting,
        MemberState::PendingBootstrap,
        MemberState::PendingPermission,
        MemberState::Alive,
        MemberState::FailedToStart,
        MemberState::Skipped,
        MemberState::Degraded,
        MemberState::Stopped,
    ];

    /// Returns its name in the API.
    pub fn name(self) -> &'static str {
        match self {
            MemberState::Queued => "queued",
            MemberState::Starting => "starting",
            MemberState::PendingBootstrap => "pending_bootstrap",
            MemberState::PendingPermission => "pending_permission",
            MemberState::Alive => "alive",
            MemberState::FailedToStart => "failed_to_start",
            MemberState::Skipped => "skipped",
            MemberState::Degraded => "degraded",
            MemberState::Stopped => "stopped",
        }
    }

    /// Returns whether the member's start is still under way.
    pub fn is_pending(self) -> bool {
        matches!(
            self,
            MemberState::Queued
                | MemberState::Starting
                | MemberState::PendingBootstrap
                | MemberState::PendingPermission
        )
    }
}

/// The progress of a launch as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LaunchPhase {
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
pub enum LaunchOutcome {
    CleanSuccess,
    PartialPending,
    PartialFailure,
    PartialSkipped,
}

/// The kind of a problem that led to a member's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum MemberCauseKind {
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
pub struct MemberCause {
    pub kind: MemberCauseKind,
    pub text: String,
}

/// The source of a piece of evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EvidenceSource {
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
pub struct MemberEvidence {
    #[serde(rename = "wall")]
    pub unix_ms: u64,
    #[serde(rename = "sign")]
    pub source: EvidenceSource,
    pub text: String,
}

/// Number of the latest observations that a member's entry keeps.
pub const MAX_EVIDENCE: usize = 8;

/// The provider and settings with which a member runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct MemberIdentity {
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
pub struct LaneRef {
    /// `primary`, or `opencode:tom`.
    pub id: String,
    pub kind: LaneKind,
    /// The provider that owns the lane.
    pub owner: String,
}

/// Facts that the real program reported before it was started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ProgramFacts {
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
pub const MAX_MODELS: usize = 32;

/// One member's entry in a launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LaunchEntry {
    pub name: MemberName,
    #[serde(default)]
    pub lead: bool,
    pub agent: AgentName,
    /// `None` in records from before lanes existed. No lane is inferred for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<LaneRef>,
    /// Settings that were requested at launch.
    #[serde(default)]
    #[serde(rename = "asked")]
    pub requested: MemberIdentity,
    /// Settings that are in effect.
    #[serde(default)]
    #[serde(rename = "got")]
    pub effective: MemberIdentity,
    /// Explanations of the differences: inherited, moved, not available.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<ProgramFacts>,
    /// Its program was checked and can be started.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub prepared: bool,
    pub state: MemberState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<MemberCause>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<MemberEvidence>,
    /// Its standing task and the attempt of its session, while it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<AttemptId>,
    /// Number of retries of its lane.
    #[serde(default)]
    pub retries: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "started_wall")]
    pub started_unix_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "alive_wall")]
    pub alive_since_unix_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "ended_wall")]
    pub ended_unix_ms: Option<u64>,
    #[serde(flatten)]
    pub extra: UnknownFields,
}

impl LaunchEntry {
    /// Returns a queued entry without a lane or any other fact.
    fn new(team: &Team, name: &MemberName) -> LaunchEntry {
        LaunchEntry {
            name: name.clone(),
            lead: *name == team.lead.name,
            agent: team.agent(name),
            lane: None,
            requested: MemberIdentity::default(),
            effective: MemberIdentity::default(),
            notes: vec![],
            program: None,
            prepared: false,
            state: MemberState::Queued,
            cause: None,
            evidence: vec![],
            task: None,
            attempt: None,
            retries: 0,
            started_unix_ms: None,
            alive_since_unix_ms: None,
            ended_unix_ms: None,
            extra: UnknownFields::new(),
        }
    }

    /// Returns whether the member is known to be on a secondary lane.
    pub fn is_on_secondary_lane(&self) -> bool {
        self.lane
            .as_ref()
            .is_some_and(|lane| lane.kind == LaneKind::Secondary)
    }

    /// Returns the entry with this cause.
    fn with_cause(mut self, kind: MemberCauseKind, text: impl Into<String>) -> LaunchEntry {
        self.cause = Some(MemberCause {
            kind,
            text: text.into(),
        });
        self
    }
}

/// The record of one start of a team.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TeamLaunch {
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
    pub members: Vec<LaunchEntry>,
    /// Reason for which it is being stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopping: Option<String>,
    /// Time of the last comparison with the running processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "reconciled_wall")]
    pub reconciled_unix_ms: Option<u64>,
    /// The last announcement on the bus.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "told")]
    pub announced: Option<String>,
    /// A later launch of the team has replaced it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub superseded: bool,
    /// The revision of its last change.
    #[serde(default)]
    pub revision: u64,
    #[serde(rename = "begun_wall")]
    pub begun_unix_ms: u64,
    #[serde(default)]
    #[serde(rename = "updated_wall")]
    pub updated_unix_ms: u64,
    #[serde(flatten)]
    pub extra: UnknownFields,
}

impl TeamLaunch {
    /// Returns the entry of a member.
    pub fn entry(&self, name: &MemberName) -> Option<&LaunchEntry> {
        self.members.iter().find(|entry| entry.name == *name)
    }

    /// Returns the lead's entry.
    pub fn lead(&self) -> Option<&LaunchEntry> {
        self.members.iter().find(|entry| entry.lead)
    }

    /// Returns whether some members are on secondary lanes.
    pub fn is_mixed(&self) -> bool {
        self.members.iter().any(LaunchEntry::is_on_secondary_lane)
    }

    /// Returns the phase, derived from the members (T2). The launch stays active until every
    /// planned lane has reached an end, whatever the primary lane does.
    pub fn phase(&self) -> LaunchPhase {
        if self.stopping.is_some() || self.members.iter().any(|entry| entry.state.is_pending()) {
            LaunchPhase::Active
        } else if self.reconciled_unix_ms.is_some() {
            LaunchPhase::Reconciled
        } else {
            LaunchPhase::Finished
        }
    }

    /// Returns the outcome, derived from the members (T2).
    pub fn outcome(&self) -> LaunchOutcome {
        // A member that was stopped before it came up counts as skipped, whatever the reason.
        let state = |entry: &LaunchEntry| match entry.state {
            MemberState::Stopped if entry.alive_since_unix_ms.is_none() => MemberState::Skipped,
            state => state,
        };
        outcome_of(
            self.members
                .iter()
                .map(|entry| (state(entry), entry.cause.as_ref().map(|cause| cause.kind))),
        )
    }
}

/// Returns the outcome for a list of member states. An unknown lane counts as pending, not as a
/// failure.
pub fn outcome_of(
    members: impl IntoIterator<Item = (MemberState, Option<MemberCauseKind>)>,
) -> LaunchOutcome {
    let (mut pending, mut failed, mut skipped) = (false, false, false);
    for (state, why) in members {
        match state {
            MemberState::Queued
            | MemberState::Starting
            | MemberState::PendingBootstrap
            | MemberState::PendingPermission => pending = true,
            MemberState::Degraded if why == Some(MemberCauseKind::LaneUnknown) => pending = true,
            MemberState::FailedToStart | MemberState::Degraded => failed = true,
            MemberState::Skipped => skipped = true,
            MemberState::Alive | MemberState::Stopped => {}
        }
    }
    match (pending, failed, skipped) {
        (true, ..) => LaunchOutcome::PartialPending,
        (_, true, _) => LaunchOutcome::PartialFailure,
        (_, _, true) => LaunchOutcome::PartialSkipped,
        _ => LaunchOutcome::CleanSuccess,
    }
}

/// The result of checking the real program of one member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemberResolution {
    pub member: MemberName,
    /// The runtime that drives its program, if the program can be started.
    pub runtime: Option<Runtime>,
    /// The program, as a preset's name.
    pub backend: Option<String>,
    #[serde(default)]
    pub program: ProgramFacts,
    /// API keys that the user has set for this program.
    #[serde(default)]
    pub keys: Vec<SecretVariable>,
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
    pub problem: Option<MemberCause>,
}

/// The team member whose session an attempt is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SessionOf {
    pub launch: LaunchId,
    pub member: MemberName,
}

facts! {
    LaunchBegun { launch: Arc<TeamLaunch> }
    /// A member's whole entry. A member that the record lacks is added.
    LaunchMember { launch: LaunchId, entry: Arc<LaunchEntry> }
    /// The launch is being stopped, was compared with the running processes, was replaced, or was
    /// announced.
    LaunchChanged {
        launch: LaunchId,
        stopping: Option<String>,
        reconciled_wall: Option<u64>,
        superseded: bool,
        told: Option<String>,
    }
}

/// Returns a team's latest launch.
pub fn latest_launch<'a>(board: &'a Board, team: &Team) -> Option<&'a Arc<TeamLaunch>> {
    board.launches.get(&team.launch?)
}

/// Returns whether any part of a team runs or is starting. Attempts are the evidence, whatever the
/// record has (T7).
pub fn is_up(board: &Board, team: &Team) -> bool {
    let is_active =
        latest_launch(board, team).is_some_and(|launch| launch.phase() == LaunchPhase::Active);
    is_active || live_attempts(board, team).next().is_some()
}

/// Returns the attempts of a team's members: their sessions and their tasks.
pub fn live_attempts<'a>(
    board: &'a Board,
    team: &'a Team,
) -> impl Iterator<Item = &'a Arc<Attempt>> {
    let record = latest_launch(board, team);
    board.attempts.values().filter(move |attempt| {
        let Some(name) = member_of(team, &attempt.agent) else {
            return false;
        };
        let is_known = || {
            team.member(&name).is_some()
                || record.is_some_and(|launch| launch.entry(&name).is_some())
        };
        attempt.supervised && (attempt.session_of.is_some() || is_known())
    })
}

/// Returns the member that an agent is: a team's agents are named `TEAM/MEMBER`.
pub(crate) fn member_of(team: &Team, agent: &AgentName) -> Option<MemberName> {
    let name = agent
        .as_str()
        .strip_prefix(team.name.as_str())?
        .strip_prefix('/')?;
    MemberName::new(name).ok()
}

/// Returns the team that an agent is a member of, whether it is up or not.
pub(crate) fn team_of<'a>(board: &'a Board, agent: &AgentName) -> Option<&'a TeamName> {
    board
        .teams
        .values()
        .find(|team| member_of(team, agent).is_some())
        .map(|team| &team.name)
}

/// Returns whether a session or a task of a member runs.
pub fn is_member_running(board: &Board, entry: &LaunchEntry) -> bool {
    board
        .attempts
        .values()
        .any(|attempt| attempt.agent == entry.agent && attempt.supervised)
}

/// Returns whether a member's session is still on the board, so that its process may be alive.
pub fn has_session(board: &Board, entry: &LaunchEntry) -> bool {
    entry
        .attempt
        .is_some_and(|id| board.attempts.contains_key(&id))
}
