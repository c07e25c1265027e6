//! A mission is a goal with its tasks and the agents that may work on them.
//!
//! Not here: the lead of a mission ([`crate::lead`]), the choice of its next task
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

/// The rule for when a mission's tasks may start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StartMode {
    /// Each task starts as soon as the tasks on which it depends are completed.
    #[default]
    Flow,
    /// Tasks start in waves: a wave is all tasks that can run at the same time, and the next wave
    /// starts when the previous wave is complete.
    Waves,
}

/// The state of a mission that has not ended, which decides whether its tasks start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum MissionState {
    /// The mission waits for a lead (the agent that will make and supervise its tasks).
    Queued,
    /// The mission runs: its tasks start when they are ready.
    Active,
    /// The mission starts no new tasks. Running attempts continue to their end (J10).
    Draining,
}

/// A goal with its tasks, the agents that may work on them, and the rules for starting them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Mission {
    pub id: MissionId,
    pub project: ProjectName,
    pub title: String,
    pub agents: Vec<AgentName>,
    /// Maximum number of the mission's tasks that are worked on at the same time.
    pub max_workers: u32,
    pub mode: StartMode,
    /// Set if tasks that need the same files may run at the same time, each in its own workspace.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub isolate: bool,
    /// Reason why `isolate` no longer has an effect, although the mission was started with it: an
    /// attempt worked outside its workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "serialised")]
    pub serialised_reason: Option<String>,
    /// Set if the finished work of a wave (tasks that run at the same time) is merged into the
    /// trunk as one commit and not as one commit for each task.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wave_commits: bool,
    /// Packages (directories, as patterns) whose tasks must run one after the other, as determined
    /// when the mission started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub serial: Vec<PathPattern>,
    pub state: MissionState,
    /// The goal in the words of the person who requested the mission; `None` for a mission that
    /// runs a plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<String>,
    /// The lead of the mission, or the agent chosen to lead it; `None` for a mission that runs a
    /// plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lead: Option<Lead>,
    /// The end of the mission; `None` while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<MissionEnd>,
    /// The mission's latest work on the trunk, from which the next tasks start.
    #[serde(default, skip_serializing_if = "LandedWork::is_nothing")]
    pub landed: LandedWork,
    /// Start gates (conditions checked before any task starts) that block the mission, as of the
    /// last check.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(rename = "held")]
    pub blocking_gates: Vec<GateResult>,
    #[serde(default, skip_serializing_if = "Spend::is_nothing")]
    pub spent: Spend,
    #[serde(rename = "created_wall")]
    pub created_unix_ms: u64,
}

/// The end of a mission, with the date and the final report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MissionEnd {
    pub how: MissionEndKind,
    /// The lead's final report, or the reason why the mission was cancelled. Empty for a completed
    /// mission that ran a plan.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub report: String,
    #[serde(rename = "wall")]
    pub unix_ms: u64,
}

/// The kind of a mission's end: completed or cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum MissionEndKind {
    /// No unfinished task is left, and the lead, if there is one, has reported.
    Done,
    /// A person cancelled the mission.
    Cancelled,
}

/// The latest work of a mission that was merged into the trunk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct LandedWork {
    /// Trunk commit with the mission's latest work. The tasks of a wave (tasks that run at the same
    /// time) start from the commit that contains all work of the previous wave.
    pub last: Option<CommitId>,
    /// Step of the plan whose work landed last: a wave (tasks that run at the same time) or part of
    /// a wave. Used only in wave mode.
    pub step: PlanStep,
    /// Paths that the work of `step` changed.
    pub changed: Vec<String>,
    /// Paths that the work of the step before `step` changed.
    pub before: Vec<String>,
}

/// Maximum number of changed paths that are kept for each step. The kept paths are a hint for
/// agents and need not be complete.
const MAX_PATHS_PER_STEP: usize = 500;

impl LandedWork {
    fn is_nothing(&self) -> bool {
        *self == LandedWork::default()
    }

    /// Records that work of this step was merged into the trunk as `commit`.
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

    /// Returns those of the task's files that were changed in the step (wave) before the task's own
    /// step. The task's agent should look at these files first.
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
    /// The check of the start gates (conditions before any task starts) had another result than
    /// before; `held` has the results that block the mission.
    MissionWeighed { mission: MissionId, held: Vec<GateResult> }
    MissionChanged { mission: MissionId, state: MissionState }
    /// The mission ended, because all its work is done or somebody cancelled it.
    MissionEnded { mission: MissionId, end: Option<MissionEnd> }
}

/// A request to start a mission that runs a plan; see [`start`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StartMission {
    pub project: ProjectName,
    pub title: String,
    pub agents: Vec<AgentName>,
    /// Team whose members other than the lead may also work on the mission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team: Option<TeamName>,
    pub max_workers: u32,
    pub mode: StartMode,
    #[serde(default)]
    pub isolate: bool,
    #[serde(default)]
    pub wave_commits: bool,
    /// Packages whose tasks must run one after the other: the result of
    /// [`crate::manifest::serial_packages`] for the trunk's files.
    #[serde(default)]
    pub serial: Vec<PathPattern>,
    /// Budget of the mission; omitted limits are unlimited.
    #[serde(default)]
    pub budget: Ceiling,
}

/// Starts a mission that runs a plan. The command that calls this function then adds the tasks.
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
            "the mission has no agent to work on it",
            "name agents with --agents, or add an agent: regatta agent add NAME --runtime scripted",
        ));
    }
    for agent in &agents {
        crate::agent::find(draft.board(), agent)?;
    }
    if request.max_workers == 0 || request.max_workers > 1_000 {
        return Err(Refusal::invalid(
            "max_workers must be 1 to 1000",
            "set a number in that range, for example: --max-workers 4",
        ));
    }
    if request.wave_commits && request.mode == StartMode::Flow {
        return Err(Refusal::invalid(
            "tasks cannot land as one commit per wave, because in flow mode there are no waves",
            "run the mission in waves with --mode waves, or use one commit per task",
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

/// Records a new mission, which then waits for a lead or starts at once.
pub(crate) fn begin(draft: &mut Draft, mission: Mission) {
    draft.record(Event::MissionStarted(MissionStarted {
        mission: mission.into(),
    }));
}

/// Records the start gates (conditions that are checked before any task starts) that block a
/// mission. Records nothing if the same gates block it for the same kinds of reasons as before. A
/// change of numbers alone, such as the amount of free memory, is therefore not recorded.
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

/// Drains a mission: it starts no new tasks until it is resumed, and its running attempts continue.
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

/// Lets a drained mission start tasks again, and lets its held finished work land. A mission whose
/// lead never started goes back to the queue for a lead.
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
            format!("mission {id} cannot be resumed, because it has lost its lead: {lost_reason}"),
            format!("give the mission another lead: regatta mission handover {id}"),
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

/// Ends a mission if it has no unfinished tasks. A mission with a lead ends only after the lead has
/// reported.
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

/// Records that a mission has ended, with the way in which it ended and the final report.
fn end(draft: &mut Draft, id: MissionId, how: MissionEndKind, report: String, now: Now) {
    let end = Some(MissionEnd {
        how,
        report,
        unix_ms: now.unix_ms,
    });
    draft.record(Event::MissionEnded(MissionEnded { mission: id, end }));
}

/// Cancels a mission: stops its agents' programs and cancels its unfinished tasks. Work that was
/// already saved as a commit is kept.
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
