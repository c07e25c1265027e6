//! A launch is one start of a team (a lead agent with its members). This module has the launch's
//! record, with one entry for each member that should start.
//!
//! The state of the launch as a whole is never stored: [`TeamLaunch::phase`] and
//! [`TeamLaunch::outcome`] compute it from the members' states (T2). The coordinator in
//! `launch/coordinator.rs` changes members' states. Each report is about exactly one member, so
//! that one member's failure cannot change another's state (T3).

mod announce; // announcements on the bus
mod coordinator; // the next step of a launch
mod evidence; // records rebuilt from running sessions
mod member_state; // observations of a member's session
mod messages; // descriptions for people
mod plan; // the provider and settings of each member when a launch begins
pub mod recovery; // the choice of a record after a restart, and its comparison with the sessions
mod state; // the states of a member and their changes
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
pub use state::{MemberChange, MemberState};
pub(crate) use stop::relaunch_if_requested;
pub use stop::{relaunch, stop};
pub use summary::{MAX_SUMMARY_BYTES, MemberSummary, TeamSummary, summary};

/// The progress of a launch, computed from all its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LaunchPhase {
    /// At least one member is still starting, or the team is being stopped.
    Active,
    /// Every member is alive or has failed, stopped or been skipped.
    Finished,
    /// Like `Finished`. In addition, after a stop or a restart of the daemon, the record was
    /// compared with the programs that really run.
    Reconciled,
}

/// The result of a launch so far: whether members are still starting, have failed or were skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LaunchOutcome {
    CleanSuccess,
    PartialPending,
    PartialFailure,
    PartialSkipped,
}

/// The category of the reason why a team member does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum MemberCauseKind {
    /// The member's program is not installed, or cannot stay open as a member's session must.
    Program,
    /// The member's program is not signed in to its provider.
    SignIn,
    /// The member's provider accepts no work at present, for example because a limit is reached.
    Provider,
    /// The member's program ended by itself or violated its protocol.
    Crashed,
    /// The member's program did not start in time or exceeded its time limit.
    TimedOut,
    /// The member's program sent nothing for too long.
    Hung,
    /// The member's program is no longer running, and how it ended is unknown.
    Lost,
    /// A person stopped the member or its team.
    Stopped,
    /// Regatta itself could not start the member's session.
    Environment,
    /// The team's lead does not run, so a member that starts after the lead was not started.
    NoLead,
    /// A person left the member out of the launch.
    LeftOut,
    /// The record does not contain the member's lane (the group of members with which it is
    /// started), and Regatta does not guess the lane.
    LaneUnknown,
    /// Another problem, which the `text` beside this kind describes.
    Other,
}

/// The reason why a team member does not run, as a category and a sentence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemberCause {
    pub kind: MemberCauseKind,
    pub text: String,
}

/// The source of an observation about a team member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EvidenceSource {
    /// The process of the member's program: for example, it started, it ended, or its program file
    /// was found.
    Process,
    /// The protocol between Regatta and the member's program: for example, a session was opened or
    /// a turn ended.
    Protocol,
    /// A permission request of the member's program, or the answer to it.
    Permission,
    /// A decision of Regatta or of a person, such as a retry.
    Decision,
}

/// A dated observation from which a team member's state follows, shown to people as an explanation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemberEvidence {
    #[serde(rename = "wall")]
    pub unix_ms: u64,
    #[serde(rename = "sign")]
    pub source: EvidenceSource,
    pub text: String,
}

/// Maximum number of observations that a member's entry keeps; older observations are removed.
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
    /// Directory, within the member's workspace, in which its program starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
}

/// The lane of a member: the group of team members with which it is started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LaneRef {
    /// Name of the lane (start group): `primary`, or provider and member, such as `opencode:tom`.
    pub id: String,
    pub kind: LaneKind,
    /// Provider that starts the members of the lane (start group).
    pub owner: String,
}

/// Facts about a member's installed program that were found before it was started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ProgramFacts {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Description of the user's sign-in to the program's provider, if it could be found out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sign_in: Option<String>,
    /// Some of the models that the program offers; `None` if it cannot list them before it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub models: Option<Vec<String>>,
}

/// Maximum number of models of a program that [`ProgramFacts::models`] lists.
pub const MAX_MODELS: usize = 32;

/// The record of one member in a launch of its team: its settings, its state, and the reason for
/// this state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LaunchEntry {
    pub name: MemberName,
    #[serde(default)]
    pub lead: bool,
    pub agent: AgentName,
    /// Lane of the member, that is, the group of members with which it is started. `None` if an old
    /// or rebuilt record does not contain the lane, because Regatta never guesses a lane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<LaneRef>,
    /// Settings that the team's configuration requested when the launch began.
    #[serde(default)]
    #[serde(rename = "asked")]
    pub requested: MemberIdentity,
    /// Settings with which the member really runs.
    #[serde(default)]
    #[serde(rename = "got")]
    pub effective: MemberIdentity,
    /// Explanations for people of how `effective` differs from `requested`: a setting was inherited
    /// from the lead, the provider was replaced, a mode is not available.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<ProgramFacts>,
    /// Set when the member's program was checked and can be started.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub prepared: bool,
    pub state: MemberState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<MemberCause>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<MemberEvidence>,
    /// The task that exists only to hold the member's session open. Set, like `attempt`, while the
    /// member has a session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<AttemptId>,
    /// Number of times that a person retried starting this member.
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
    /// Returns a new launch entry for a member that waits to start, without a lane (start group) or
    /// settings.
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

    /// Returns whether the record says that the member is started on its own lane (start group),
    /// after the lead.
    pub fn is_on_secondary_lane(&self) -> bool {
        self.lane
            .as_ref()
            .is_some_and(|lane| lane.kind == LaneKind::Secondary)
    }

    /// Returns this entry of a member with the cause of the member's state set.
    fn with_cause(mut self, kind: MemberCauseKind, text: impl Into<String>) -> LaunchEntry {
        self.cause = Some(MemberCause {
            kind,
            text: text.into(),
        });
        self
    }
}

/// The record of one start of a team, with the state of each member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TeamLaunch {
    pub id: LaunchId,
    pub team: TeamName,
    pub project: ProjectName,
    /// All members that the team had when the launch began, the lead first, whether or not they
    /// started (T1).
    pub expected_members: Vec<MemberName>,
    /// Members that start together with the lead, on the primary lane (start group).
    #[serde(default)]
    pub bootstrap_expected_members: Vec<MemberName>,
    /// The lanes (groups in which the members are started). Empty in records of older versions,
    /// which had no lanes.
    #[serde(default)]
    pub lanes: Vec<Lane>,
    pub members: Vec<LaunchEntry>,
    /// Reason why the team is being stopped; `None` if it is not being stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopping: Option<String>,
    /// Date of the last comparison of this record with the programs that really run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "reconciled_wall")]
    pub reconciled_unix_ms: Option<u64>,
    /// Text of the last announcement of this launch in the project's channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "told")]
    pub announced: Option<String>,
    /// Set when a later launch of the team has replaced this one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub superseded: bool,
    /// Revision (number of the event) of the record's last change.
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
    /// Returns the entry of the member with this name in this launch, if there is one.
    pub fn entry(&self, name: &MemberName) -> Option<&LaunchEntry> {
        self.members.iter().find(|entry| entry.name == *name)
    }

    /// Returns the lead's entry in this launch, or `None` if the record of the launch has lost it.
    pub fn lead(&self) -> Option<&LaunchEntry> {
        self.members.iter().find(|entry| entry.lead)
    }

    /// Returns whether some members are started on lanes (start groups) of their own and not
    /// together with the lead.
    pub fn is_mixed(&self) -> bool {
        self.members.iter().any(LaunchEntry::is_on_secondary_lane)
    }

    /// Computes the phase from the members' states (T2). The launch stays active while any member
    /// waits to start or is starting, even if all members that start together with the lead have
    /// started.
    pub fn phase(&self) -> LaunchPhase {
        if self.stopping.is_some() || self.members.iter().any(|entry| entry.state.is_pending()) {
            LaunchPhase::Active
        } else if self.reconciled_unix_ms.is_some() {
            LaunchPhase::Reconciled
        } else {
            LaunchPhase::Finished
        }
    }

    /// Computes the outcome of the launch so far from the members' states (T2).
    pub fn outcome(&self) -> LaunchOutcome {
        // A member that was stopped before it answered its first prompt counts as skipped, whatever
        // the reason for the stop was.
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

/// Computes a launch's outcome from its members' states. A member whose lane (start group) is
/// unknown counts as pending, not as failed.
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

/// The result of checking the installed program of one member before it is started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemberResolution {
    pub member: MemberName,
    /// The way in which Regatta drives the member's program; `None` if the program cannot be
    /// started.
    pub runtime: Option<Runtime>,
    /// The program that was found, as the name of a preset (built-in settings), such as `codex`.
    pub backend: Option<String>,
    #[serde(default)]
    pub program: ProgramFacts,
    /// API keys that the user's environment has for this program.
    #[serde(default)]
    pub keys: Vec<SecretVariable>,
    /// Files in which the program keeps the user's sign-in.
    #[serde(default)]
    pub files: Vec<String>,
    /// Availability of the requested fast mode; `None` if fast mode was not requested.
    #[serde(default)]
    pub fast_mode: Option<bool>,
    /// Remarks for people about the check, which are added to the member's entry.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Reason why the member cannot be started, with what a person can do about it.
    #[serde(default)]
    pub problem: Option<MemberCause>,
}

/// Marks an attempt that is the session of a team member, and names the member and the launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SessionOf {
    pub launch: LaunchId,
    pub member: MemberName,
}

facts! {
    LaunchBegun { launch: Arc<TeamLaunch> }
    /// A member's entry in the record of the launch was replaced by `entry`, or added if the member
    /// had none.
    LaunchMember { launch: LaunchId, entry: Arc<LaunchEntry> }
    /// The launch as a whole changed: it is being stopped, was compared with the programs that
    /// really run, was replaced by a later launch, or was announced.
    LaunchChanged {
        launch: LaunchId,
        stopping: Option<String>,
        reconciled_wall: Option<u64>,
        superseded: bool,
        told: Option<String>,
    }
}

/// Returns the record of a team's latest launch, or `None` if the team was never launched.
pub fn latest_launch<'a>(board: &'a Board, team: &Team) -> Option<&'a Arc<TeamLaunch>> {
    board.launches.get(&team.launch?)
}

/// Returns whether any part of a team runs or is starting. A running attempt of a member counts
/// even if the record says that the member is down (T7).
pub fn is_up(board: &Board, team: &Team) -> bool {
    let is_active =
        latest_launch(board, team).is_some_and(|launch| launch.phase() == LaunchPhase::Active);
    is_active || live_attempts(board, team).next().is_some()
}

/// Returns all attempts of a team's members that have not ended: the members' sessions and their
/// work on tasks.
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

/// Returns which member of `team` an agent is, or `None`. The agents of a team are named
/// `TEAM/MEMBER`.
pub(crate) fn member_of(team: &Team, agent: &AgentName) -> Option<MemberName> {
    let name = agent
        .as_str()
        .strip_prefix(team.name.as_str())?
        .strip_prefix('/')?;
    MemberName::new(name).ok()
}

/// Returns the team of which an agent is a member, whether or not the team is running.
pub(crate) fn team_of<'a>(board: &'a Board, agent: &AgentName) -> Option<&'a TeamName> {
    board
        .teams
        .values()
        .find(|team| member_of(team, agent).is_some())
        .map(|team| &team.name)
}

/// Returns whether a member's session or its work on any task is running.
pub fn is_member_running(board: &Board, entry: &LaunchEntry) -> bool {
    board
        .attempts
        .values()
        .any(|attempt| attempt.agent == entry.agent && attempt.supervised)
}

/// Returns whether a member's session has not ended, so that its program may still run.
pub fn has_session(board: &Board, entry: &LaunchEntry) -> bool {
    entry
        .attempt
        .is_some_and(|id| board.attempts.contains_key(&id))
}
