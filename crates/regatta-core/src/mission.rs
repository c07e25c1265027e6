//! Missions: a goal, its tasks, and the agents that may work on them.
//!
//! Left to others: the lead of a mission ([`crate::lead`]), the choice of its next task
//! ([`crate::schedule`]), and its budget ([`crate::budget`]).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::board::Draft;
use crate::budget::{self, BudgetScope, Ceiling, Spend};
use crate::event::{Event, facts};
use crate::graph::PlanStep;
use crate::ids::{AgentName, CommitId, MissionId, Now, ProjectName, TaskId, TeamName};
use crate::landing;
use crate::lead::{self, Lead};
use crate::pattern::PathPattern;
use crate::refusal::Refusal;
use crate::start_gates::GateResult;
use crate::task::{self, Task};
use crate::team;

/// The rule for the start of a mission's tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StartMode {
    /// Each task starts as soon as it is ready.
    #[default]
    Flow,
    /// Tasks start layer by layer, with a barrier between the layers.
    Waves,
}

/// The state of a running mission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum MissionState {
    /// It waits for a lead.
    Queued,
    /// Its ready tasks start.
    Active,
    /// Nothing new starts, and running attempts continue (J10).
    Draining,
}

/// A goal with its tasks, and the agents that may work on them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Mission {
    pub id: MissionId,
    pub project: ProjectName,
    pub title: String,
    pub agents: Vec<AgentName>,
    /// Maximum number of simultaneous attempts.
    pub max_workers: u32,
    pub mode: StartMode,
    /// Its attempts share claims on files, so tasks with overlapping manifests run at the same
    /// time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub isolate: bool,
    /// Reason why it no longer isolates, although it was started with `isolate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "serialised")]
    pub serialised_reason: Option<String>,
    /// The work of a wave lands as one commit, once all of it has passed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wave_commits: bool,
    /// Packages whose tasks run one after the other, as of the start of the mission.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub serial: Vec<PathPattern>,
    pub state: MissionState,
    /// The goal, in the words of the person who asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<String>,
    /// Its lead, or the agent that is to lead it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lead: Option<Lead>,
    /// The result of the mission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<MissionEnd>,
    /// Landed work of the mission, as far as the next start needs it.
    #[serde(default, skip_serializing_if = "LandedWork::is_nothing")]
    pub landed: LandedWork,
    /// Gates that keep it from starting anything, as of the engine's last check.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(rename = "held")]
    pub blocking_gates: Vec<GateResult>,
    #[serde(default, skip_serializing_if = "Spend::is_nothing")]
    pub spent: Spend,
    #[serde(rename = "created_wall")]
    pub created_unix_ms: u64,
}

/// The end of a mission.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MissionEnd {
    pub how: MissionEndKind,
    /// Its lead's report, or the reason of the cancellation.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub report: String,
    #[serde(rename = "wall")]
    pub unix_ms: u64,
}

/// The kind of a mission's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum MissionEndKind {
    /// All its work is done.
    Done,
    /// Somebody cancelled it.
    Cancelled,
}

/// The landed work of a mission.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct LandedWork {
    /// The trunk's commit with the mission's latest work. A wave starts from the commit that closed
    /// the previous wave.
    pub last: Option<CommitId>,
    /// The step whose work landed last, in wave mode.
    pub step: PlanStep,
    /// Paths that this step changed.
    pub changed: Vec<String>,
    /// Paths that the previous step changed.
    pub before: Vec<String>,
}

/// Maximum number of remembered paths per step. They are a hint for workers, not a record.
const MAX_PATHS_PER_STEP: usize = 500;

impl LandedWork {
    fn is_nothing(&self) -> bool {
        *self == LandedWork::default()
    }

    /// Records a landing.
    pub(crate) fn record(
        &mut self,
        commit: CommitId,
        step: PlanStep,
        changed: &[String],
        mode: StartMode,
    ) {
        self.last = Some(commit);
        if mode == StartMode::Flow {
            return;
        }
        if step > self.step {
            self.before = std::mem::take(&mut self.changed);
            self.step = step;
        }
        for path in changed {
            if self.changed.len() < MAX_PATHS_PER_STEP && !self.changed.contains(path) {
                self.changed.push(path.clone());
            }
        }
    }

    /// Returns the files of a task's manifest that the previous step changed.
    pub fn changed_in_manifest(&self, task: &Task) -> Vec<String> {
        let changed = if task.step() > self.step {
            &self.changed
        } else {
            &self.before
        };
        changed
            .iter()
            .filter(|path| task.files.iter().any(|pattern| pattern.matches(path)))
            .cloned()
            .collect()
    }
}

facts! {
    MissionStarted { mission: Arc<Mission> }
    /// The engine's check of the gates had another result than before.
    MissionWeighed { mission: MissionId, held: Vec<GateResult> }
    MissionChanged { mission: MissionId, state: MissionState }
    /// All its work is done, or somebody cancelled it.
    MissionEnded { mission: MissionId, end: Option<MissionEnd> }
}

/// A mission to start with [`start`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StartMission {
    pub project: ProjectName,
    pub title: String,
    pub agents: Vec<AgentName>,
    /// A team whose workers may work on it, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team: Option<TeamName>,
    pub max_workers: u32,
    pub mode: StartMode,
    #[serde(default)]
    pub isolate: bool,
    #[serde(default)]
    pub wave_commits: bool,
    /// Result of [`crate::manifest::serial_packages`] for the trunk.
    #[serde(default)]
    pub serial: Vec<PathPattern>,
    /// Budget of the mission; omitted limits are unlimited.
    #[serde(default)]
    pub budget: Ceiling,
}

/// Starts a mission. The same command adds its tasks.
pub(crate) fn start(
    draft: &mut Draft,
    request: StartMission,
    now: Now,
) -> Result<MissionId, Refusal> {
    if !draft.board().projects.contains_key(&request.project) {
        return Err(Refusal::NoSuchProject {
            project: request.project,
        });
    }
    let mut agents = request.agents;
    if let Some(team) = &request.team {
        let members = team::workers(draft.board(), team, &request.project)?;
        agents.extend(
            members
                .into_iter()
                .filter(|agent| !agents.contains(agent))
                .collect::<Vec<_>>(),
        );
    }
    if agents.is_empty() {
        return Err(Refusal::invalid(
            "a mission needs an agent",
            "name some with --agents, or add one: regatta agent add NAME --runtime scripted",
        ));
    }
    for agent in &agents {
        crate::agent::find(draft.board(), agent)?;
    }
    if request.max_workers == 0 || request.max_workers > 1_000 {
        return Err(Refusal::invalid(
            "max_workers is 1 to 1000",
            "give a number in that range",
        ));
    }
    if request.wave_commits && request.mode == StartMode::Flow {
        return Err(Refusal::invalid(
            "one commit per wave needs waves, and flow mode has none",
            "run it in waves with --mode waves, or use one commit per task",
        ));
    }
    let id = MissionId(draft.board().counters.mission + 1);
    let mission = Mission {
        id,
        project: request.project,
        title: request.title,
        agents,
        max_workers: request.max_workers,
        mode: request.mode,
        isolate: request.isolate,
        serialised_reason: None,
        wave_commits: request.wave_commits,
        serial: request.serial,
        state: MissionState::Active,
        goal: None,
        lead: None,
        result: None,
        landed: LandedWork::default(),
        blocking_gates: vec![],
        spent: Spend::default(),
        created_unix_ms: now.unix_ms,
    };
    begin(draft, mission);
    if request.budget != Ceiling::default() {
        budget::set(draft, BudgetScope::Mission(id), request.budget)?;
    }
    Ok(id)
}

/// Records a new mission.
pub(crate) fn begin(draft: &mut Draft, mission: Mission) {
    draft.record(Event::MissionStarted(MissionStarted {
        mission: mission.into(),
    }));
}

/// Records the gates that block a mission, if the gates or the kinds of their results changed.
/// Changed amounts alone are not recorded.
pub(crate) fn record_gates(draft: &mut Draft, id: MissionId, held: Vec<GateResult>) {
    let kinds = |gate_results: &[GateResult]| {
        gate_results
            .iter()
            .map(|result| (result.gate, result.kind))
            .collect::<Vec<_>>()
    };
    if draft
        .board()
        .missions
        .get(&id)
        .is_some_and(|mission| kinds(&mission.blocking_gates) != kinds(&held))
    {
        draft.record(Event::MissionWeighed(MissionWeighed { mission: id, held }));
    }
}

/// Drains a mission, so that nothing new starts.
pub fn drain(draft: &mut Draft, id: MissionId) -> Result<(), Refusal> {
    let mission = draft
        .board()
        .missions
        .get(&id)
        .ok_or(Refusal::NoSuchMission { mission: id })?;
    if mission.state != MissionState::Draining {
        draft.record(Event::MissionChanged(MissionChanged {
            mission: id,
            state: MissionState::Draining,
        }));
    }
    Ok(())
}

/// Resumes a drained mission, or queues it for a lead again.
pub fn resume(draft: &mut Draft, id: MissionId, now: Now) -> Result<(), Refusal> {
    let mission = draft
        .board()
        .missions
        .get(&id)
        .cloned()
        .ok_or(Refusal::NoSuchMission { mission: id })?;
    if mission.state != MissionState::Draining {
        return Ok(());
    }
    if let Some(lost_reason) = mission
        .lead
        .as_ref()
        .and_then(|lead| lead.lost_reason.as_ref())
    {
        return Err(Refusal::invalid(
            format!("nobody leads {id} any more: {lost_reason}"),
            format!("give it another lead: regatta mission handover {id}"),
        ));
    }
    let needs_lead = mission
        .lead
        .as_ref()
        .is_some_and(|lead| lead.name.is_none());
    let state = if needs_lead {
        MissionState::Queued
    } else {
        MissionState::Active
    };
    draft.record(Event::MissionChanged(MissionChanged { mission: id, state }));
    let tasks: Vec<TaskId> = draft
        .board()
        .open_tasks_of(id)
        .map(|(_, task)| task)
        .collect();
    for task in tasks {
        landing::resume_landing(draft, task)?;
    }
    if needs_lead {
        lead::start_queued_missions(draft, &mission.project, now)
    } else {
        Ok(())
    }
}

/// Ends a mission without open tasks. A mission with a lead ends only after the lead's report.
pub(crate) fn end_if_done(draft: &mut Draft, id: MissionId, now: Now) {
    let board = draft.board();
    let Some(mission) = board.missions.get(&id) else {
        return;
    };
    let report = match &mission.lead {
        None => Some(String::new()),
        Some(lead) => lead.report.clone(),
    };
    let is_done = board.open_tasks_of(id).next().is_none();
    if let (Some(report), true) = (report, is_done) {
        end(draft, id, MissionEndKind::Done, report, now);
    }
}

/// Records the end of a mission.
fn end(draft: &mut Draft, id: MissionId, how: MissionEndKind, report: String, now: Now) {
    let end = Some(MissionEnd {
        how,
        report,
        unix_ms: now.unix_ms,
    });
    draft.record(Event::MissionEnded(MissionEnded { mission: id, end }));
}

/// Cancels a mission: stops its processes and cancels its open tasks. Captured work is kept.
pub fn cancel(draft: &mut Draft, id: MissionId, reason: &str, now: Now) -> Result<(), Refusal> {
    if !draft.board().missions.contains_key(&id) {
        return Err(Refusal::NoSuchMission { mission: id });
    }
    let open: Vec<TaskId> = draft
        .board()
        .open_tasks_of(id)
        .map(|(_, task)| task)
        .collect();
    for task in open {
        task::cancel(draft, task, reason)?;
    }
    end(draft, id, MissionEndKind::Cancelled, reason.to_owned(), now);
    Ok(())
}
