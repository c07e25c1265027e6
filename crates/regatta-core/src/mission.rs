//! Missions: a goal, its tasks, and the agents that may work on them.

use serde::{Deserialize, Serialize};

use crate::board::Draft;
use crate::budget::Spend;
use crate::event::{Event, facts};
use crate::ids::{AgentName, MissionId, Now, ProjectName};
use crate::pattern::PathPattern;
use crate::refusal::Refusal;

/// When a mission's tasks may start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// As soon as each is ready.
    #[default]
    Flow,
    /// Layer by layer, with a barrier between.
    Waves,
}

/// Where a running mission is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Its ready tasks start.
    Active,
    /// Nothing new starts; what runs goes on (J10).
    Draining,
}

/// A goal and who may work on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Mission {
    pub id: MissionId,
    pub project: ProjectName,
    pub title: String,
    pub agents: Vec<AgentName>,
    /// How many attempts it may have at once.
    pub max_workers: u32,
    pub mode: Mode,
    /// Its attempts hold their files together with each other: overlapping manifests run at once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub isolate: bool,
    /// Packages of the trunk whose tasks run one after the other, as they were when it started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub serial: Vec<PathPattern>,
    pub state: State,
    #[serde(default, skip_serializing_if = "Spend::is_nothing")]
    pub spent: Spend,
    pub created_wall: u64,
}

facts! {
    Started { mission: Mission }
    Changed { mission: MissionId, state: State }
    /// Nothing of it is left to do.
    Ended { mission: MissionId }
}

/// What is asked of [`start`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Start {
    pub project: ProjectName,
    pub title: String,
    pub agents: Vec<AgentName>,
    pub max_workers: u32,
    pub mode: Mode,
    #[serde(default)]
    pub isolate: bool,
    /// What [`crate::manifest::serial_packages`] found on the trunk.
    #[serde(default)]
    pub serial: Vec<PathPattern>,
}

/// Starts a mission; its tasks are added in the same command.
pub(crate) fn start(draft: &mut Draft, ask: Start, now: Now) -> Result<MissionId, Refusal> {
    if !draft.board().projects.contains_key(&ask.project) {
        return Err(Refusal::NoSuchProject { project: ask.project });
    }
    if ask.agents.is_empty() {
        return Err(Refusal::invalid(
            "a mission needs an agent",
            "name some with --agents, or add one: regatta agent add NAME --runtime scripted",
        ));
    }
    for agent in &ask.agents {
        crate::agent::find(draft.board(), agent)?;
    }
    if ask.max_workers == 0 || ask.max_workers > 1_000 {
        return Err(Refusal::invalid("max_workers is 1 to 1000", "give a number in that range"));
    }
    let id = MissionId(draft.board().counters.mission + 1);
    let mission = Mission {
        id,
        project: ask.project,
        title: ask.title,
        agents: ask.agents,
        max_workers: ask.max_workers,
        mode: ask.mode,
        isolate: ask.isolate,
        serial: ask.serial,
        state: State::Active,
        spent: Spend::default(),
        created_wall: now.wall,
    };
    draft.record(Event::MissionStarted(Started { mission }));
    Ok(id)
}

/// Lets nothing new start.
pub fn drain(draft: &mut Draft, id: MissionId) -> Result<(), Refusal> {
    let mission = draft.board().missions.get(&id).ok_or(Refusal::NoSuchMission { mission: id })?;
    if mission.state == State::Active {
        draft.record(Event::MissionChanged(Changed { mission: id, state: State::Draining }));
    }
    Ok(())
}

/// Lets a drained mission's ready tasks start again.
pub fn resume(draft: &mut Draft, id: MissionId) -> Result<(), Refusal> {
    let mission = draft.board().missions.get(&id).ok_or(Refusal::NoSuchMission { mission: id })?;
    if mission.state == State::Draining {
        draft.record(Event::MissionChanged(Changed { mission: id, state: State::Active }));
    }
    Ok(())
}

/// Ends a mission that has no open task, if it is still there.
pub(crate) fn end_if_done(draft: &mut Draft, id: MissionId) {
    let board = draft.board();
    if board.missions.contains_key(&id) && board.open_tasks_of(id).next().is_none() {
        draft.record(Event::MissionEnded(Ended { mission: id }));
    }
}
