//! Launches: one start of a team, as it became. This is resolved truth: one record, one entry for everybody expected.
//!
//! The aggregate is never stored: [`Launch::phase`] and [`Launch::outcome`] are folds of the members' states (T2). Who
//! changes a member's state is the coordinator in `launch/coordinate.rs`, and each report names exactly one member, so
//! that a failure cannot reach another (T3).

mod coordinate; // what is done next
mod evidence; // records from what lives
mod herald; // what is said of it on the bus
mod observe; // what is seen of a member's session
mod summary; // the one summary for every reader
mod words; // what people read

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

/// Where a member is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Its lane has not begun.
    Queued,
    /// Its session is being made.
    Starting,
    /// Its program runs and has not answered yet.
    PendingBootstrap,
    /// It waits for somebody to allow something before it is up.
    PendingPermission,
    /// It has answered.
    Alive,
    /// It never came up.
    FailedToStart,
    /// Nobody tried.
    Skipped,
    /// It was up and is not any more, or what it was is not known.
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

    /// Its name, as the API says it.
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

    /// Whether its launch is still under way.
    pub fn is_pending(self) -> bool {
        matches!(self, State::Queued | State::Starting | State::PendingBootstrap | State::PendingPermission)
    }
}

/// Whether a launch is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Some planned lane has not come to an end.
    Active,
    /// All have.
    Finished,
    /// The record was compared with what lives, after a stop or a restart.
    Reconciled,
}

/// What a launch came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    CleanSuccess,
    PartialPending,
    PartialFailure,
    PartialSkipped,
}

/// What stands behind a state that nobody wished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// Its program is not there, or cannot be a member.
    Program,
    /// Nobody is signed in.
    SignIn,
    /// Its provider takes no work for now.
    Provider,
    /// Its program ended, or broke its protocol.
    Crashed,
    /// It took too long.
    TimedOut,
    /// It said nothing for too long.
    Hung,
    /// Its process vanished.
    Lost,
    /// Somebody stopped it.
    Stopped,
    /// Regatta could not do its part.
    Environment,
    /// The lead is not up, so there is no team to attach to.
    NoLead,
    /// Somebody left it out.
    LeftOut,
    /// Which lane it was on is not known, and nothing is guessed.
    LaneUnknown,
    /// Something else; the words say what.
    Other,
}

/// Why a member is where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cause {
    pub kind: Why,
    pub text: String,
}

/// What kind of sign it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Sign {
    /// Of the program: where it is, that it runs, how it ended.
    Process,
    /// Of its protocol: a session, a turn.
    Protocol,
    /// It asked for something, or was answered.
    Permission,
    /// Of what was decided.
    Decision,
}

/// Something that was seen of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Evidence {
    pub wall: u64,
    pub sign: Sign,
    pub text: String,
}

/// How much evidence a member's entry keeps: the last few.
pub const MOST_EVIDENCE: usize = 8;

/// As what a member runs.
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
    /// The directory of its workspace in which it begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
}

/// Which lane a member is on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Place {
    /// `primary`, or `opencode:tom`.
    pub id: String,
    pub kind: Kind,
    /// The provider that owns the lane.
    pub owner: String,
}

/// What the real program said of itself before it was started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Program {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// How somebody is signed in, by the signs there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sign_in: Option<String>,
    /// The models it says it has, a few of them; nothing where it cannot say so before it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub models: Option<Vec<String>>,
}

/// How many models of a program are written down.
pub const MOST_MODELS: usize = 32;

/// One of a launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Entry {
    pub name: MemberName,
    #[serde(default)]
    pub lead: bool,
    pub agent: AgentName,
    /// Nothing in a record from before there were lanes, and nothing is read into that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<Place>,
    /// What was asked, when it was launched.
    #[serde(default)]
    pub asked: Identity,
    /// What it got.
    #[serde(default)]
    pub got: Identity,
    /// What is to be said of the difference: inherited, moved, not to be had.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<Program>,
    /// Its program was asked and can be started.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub prepared: bool,
    pub state: State,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Evidence>,
    /// Its standing task and the attempt that is its session, while it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<AttemptId>,
    /// How many times its lane was tried again.
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
    /// An entry of a member that is queued, has no lane yet, and of which nothing else is known.
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

    /// Whether it is on a lane of its own, as far as that is known.
    pub fn is_aside(&self) -> bool {
        self.lane.as_ref().is_some_and(|it| it.kind == Kind::Secondary)
    }

    fn because(mut self, kind: Why, text: impl Into<String>) -> Entry {
        self.cause = Some(Cause { kind, text: text.into() });
        self
    }
}

/// One start of a team.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Launch {
    pub id: LaunchId,
    pub team: TeamName,
    pub project: ProjectName,
    /// The whole roster, always: the lead first (T1).
    pub expected_members: Vec<MemberName>,
    /// Who starts with the primary lane.
    #[serde(default)]
    pub bootstrap_expected_members: Vec<MemberName>,
    /// The plan; nothing in a record from before there were lanes.
    #[serde(default)]
    pub lanes: Vec<Lane>,
    pub members: Vec<Entry>,
    /// Why it is being stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopping: Option<String>,
    /// When it was last compared with what lives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reconciled_wall: Option<u64>,
    /// What was last said of it on the bus.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<String>,
    /// A later launch of the team took its place.
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
    /// The entry of a member.
    pub fn entry(&self, name: &MemberName) -> Option<&Entry> {
        self.members.iter().find(|it| it.name == *name)
    }

    /// The lead's entry.
    pub fn lead(&self) -> Option<&Entry> {
        self.members.iter().find(|it| it.lead)
    }

    /// Whether some of it are on lanes of their own.
    pub fn is_mixed(&self) -> bool {
        self.members.iter().any(Entry::is_aside)
    }

    /// Whether it is under way: a fold of the members (T2). It stays active until every planned lane has come to an end,
    /// whatever the primary lane does.
    pub fn phase(&self) -> Phase {
        if self.stopping.is_some() || self.members.iter().any(|it| it.state.is_pending()) {
            Phase::Active
        } else if self.reconciled_wall.is_some() {
            Phase::Reconciled
        } else {
            Phase::Finished
        }
    }

    /// What it came to: a fold of the members (T2).
    pub fn outcome(&self) -> Outcome {
        // A member that was stopped before it came up was left out, whatever stopped it.
        let state = |entry: &Entry| match entry.state {
            State::Stopped if entry.alive_wall.is_none() => State::Skipped,
            state => state,
        };
        fold(self.members.iter().map(|entry| (state(entry), entry.cause.as_ref().map(|cause| cause.kind))))
    }
}

/// What the states of members come to. What is not known is no failure: it is still to be found out.
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

/// What the real programs said when they were asked, for one member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Resolution {
    pub member: MemberName,
    /// How its program is driven, if it can be started.
    pub runtime: Option<Runtime>,
    /// Which program that is: a preset's name.
    pub backend: Option<String>,
    #[serde(default)]
    pub program: Program,
    /// The keys that its user has set for such a program.
    #[serde(default)]
    pub keys: Vec<Key>,
    /// The files by which its user is signed in to it.
    #[serde(default)]
    pub files: Vec<String>,
    /// Whether it has the fast mode that was asked for; nothing when none was.
    #[serde(default)]
    pub fast_mode: Option<bool>,
    /// What a person should know.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Why it cannot be started, and what to do.
    #[serde(default)]
    pub problem: Option<Cause>,
}

/// Whose session an attempt is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Standing {
    pub launch: LaunchId,
    pub member: MemberName,
}

facts! {
    Begun { launch: Arc<Launch> }
    /// One member's entry, whole; a member that the record did not have is added to it.
    Moved { launch: LaunchId, entry: Arc<Entry> }
    /// It is being stopped, has been compared with what lives, was replaced, or was told of on the bus.
    Changed {
        launch: LaunchId,
        stopping: Option<String>,
        reconciled_wall: Option<u64>,
        superseded: bool,
        told: Option<String>,
    }
}

/// A team's last launch.
pub fn of<'a>(board: &'a Board, team: &Team) -> Option<&'a Arc<Launch>> {
    board.launches.get(&team.launch?)
}

/// Whether anything of a team lives or is on its way. Attempts are the evidence, whatever the record says (T7).
pub fn is_up(board: &Board, team: &Team) -> bool {
    let is_active = of(board, team).is_some_and(|launch| launch.phase() == Phase::Active);
    is_active || living(board, team).next().is_some()
}

/// Returns what runs in the names of a team's members: their sessions, and what they work on.
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

/// Whether anything runs in a member's name: its session, or what it works on.
pub fn lives(board: &Board, entry: &Entry) -> bool {
    board.attempts.values().any(|it| it.agent == entry.agent && it.supervised)
}

/// Whether a member's session is still on the board: its process may live.
pub fn has_session(board: &Board, entry: &Entry) -> bool {
    entry.attempt.is_some_and(|it| board.attempts.contains_key(&it))
}
