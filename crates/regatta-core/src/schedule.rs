//! Scheduling: the choice of the next task for an agent, and the reasons why a task has no agent
//! yet.
//!
//! Agents get tasks only through [`poll`]. [`wait_reasons`] checks the same conditions in the same
//! order and describes the failed conditions to people (W1: every waiting task has a reason).
//!
//! Left to others: the start itself ([`crate::task`]), the gates ([`crate::start_gates`]) and the
//! index of ready tasks ([`crate::board`]).

mod outlook; // counts of the open tasks of a mission
mod reasons; // the reasons why one task waits
mod wait; // the kinds of reasons for which a task waits

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::attempt::BeginAttempt;
use crate::board::{Board, Draft, ReadyFor, ReadyIndex};
use crate::graph::PlanStep;
use crate::ids::{AgentName, AttemptId, MissionId, Now, ProjectName, RunnerName, TaskId};
use crate::mission::Mission;
use crate::pattern::PathPattern;
use crate::provider_name;
use crate::refusal::Refusal;
use crate::start_gates::{self, GateResult, StartFacts};
use crate::task::{Expects, IssueType, Task, TaskStatus};
use crate::{
    agent, attempt, budget, claim, collision_forecast, intervention, launch, mission,
    project_rules, provider_outage, runner, task,
};

pub use wait::{WaitKind, WaitReason};

pub use reasons::wait_reasons;

pub use outlook::{MissionOutlook, outlook};

/// A request for work; see [`poll`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PollRequest {
    pub agent: AgentName,
    /// Restricts the poll to this project's tasks.
    #[serde(default)]
    pub project: Option<ProjectName>,
    /// Restricts the poll to this mission's tasks.
    #[serde(default)]
    pub mission: Option<MissionId>,
    /// Restricts the poll to this task.
    #[serde(default)]
    pub task: Option<TaskId>,
    /// Maximum silence of the attempt in milliseconds; `None` means the default.
    #[serde(default)]
    pub lease_ms: Option<u64>,
    /// The agent wants no workspace for a task that only needs a report.
    #[serde(default)]
    #[serde(rename = "bare")]
    pub no_workspace: bool,
    /// A person does the work as an agent whose program Regatta would otherwise run.
    #[serde(default)]
    pub by_hand: bool,
}

impl PollRequest {
    /// Returns a request for any task that `agent` may do.
    pub fn new(agent: AgentName) -> PollRequest {
        PollRequest {
            agent,
            project: None,
            mission: None,
            task: None,
            lease_ms: None,
            no_workspace: false,
            by_hand: false,
        }
    }
}

/// The attempt that a poll started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PollGrant {
    pub attempt: AttemptId,
    pub token: u64,
    pub task: TaskId,
    pub project: ProjectName,
}

/// Gives the agent the oldest ready task of the highest priority. Tasks offered to it come first,
/// then tasks assigned to it, then the tasks of its missions and of the pool. Returns `None` when
/// there is no free slot or no ready task.
///
/// `facts` come with a poll of the engine, which runs the attempt. They are observations of the
/// world that the gates check.
pub fn poll(
    draft: &mut Draft,
    request: &PollRequest,
    facts: Option<&StartFacts>,
    now: Now,
) -> Result<Option<PollGrant>, Refusal> {
    if let Some(task) = request.task.filter(|_| request.by_hand && facts.is_none()) {
        return intervention::take_over(draft, task, now).map(Some);
    }
    let board = draft.board();
    let agent = agent::find(board, &request.agent)?;
    if facts.is_none() && !request.by_hand && agent.is_run_by_regatta() {
        return Err(Refusal::RunByRegatta {
            agent: request.agent.clone(),
        });
    }
    if agent.offline.is_some() {
        return Ok(None);
    }
    if facts.is_some() && provider_outage::find_parked(board, agent).is_some() {
        return Ok(None);
    }
    let runner = facts.and_then(|facts| facts.runner.as_ref());
    // Turns of a lead and answers take no slot of the machine.
    let is_light = request
        .task
        .and_then(|id| board.tasks.get(&id))
        .is_some_and(|task| task.is_light());
    let is_full = match facts {
        Some(_) if is_light && runner.is_none() => !agent.profile.labels.is_empty(),
        None if is_light => false,
        Some(_) => runner::full_reason(board, runner, agent).is_some(),
        None => machine_full_reason(board).is_some(),
    };
    if agent::capacity(board, agent).available == 0
        || is_full
        || !claim::name_holders(board, &request.agent, now).is_empty()
    {
        return Ok(None);
    }
    if let Some(facts) = facts
        && record_failing_gates(draft, request, facts, now)
    {
        return Ok(None);
    }
    // The search uses and corrects the cached index, so the index is put back in any case.
    let mut ready_index = draft.take_ready_index();
    let next = next_task(
        draft.board(),
        &mut ready_index,
        request,
        facts.map(|facts| facts.runner.as_ref()),
        now,
    );
    draft.put_ready_index(ready_index);
    let Some(next) = next else { return Ok(None) };
    let task = task::find(draft.board(), next)?;
    let no_workspace = request.no_workspace && facts.is_none() && task.needs_no_workspace();
    let no_facts = StartFacts::default();
    let begin = BeginAttempt {
        agent: request.agent.clone(),
        supervised: facts.is_some(),
        runner: runner.cloned(),
        lease_ms: request
            .lease_ms
            .unwrap_or(attempt::DEFAULT_LEASE_MS)
            .clamp(1_000, 7 * 24 * 3_600_000),
        no_workspace,
        by_hand: false,
        gates: start_gates::notable_results(
            start_gates::evaluate(draft.board(), &task, facts.unwrap_or(&no_facts), now),
            no_workspace,
        ),
    };
    let attempt = task::start(draft, next, &begin, now)?;
    let attempt_record = draft
        .board()
        .attempts
        .get(&attempt)
        .cloned()
        .ok_or(Refusal::NoSuchTask { task: next })?;
    Ok(Some(PollGrant {
        attempt,
        token: attempt_record.token,
        task: next,
        project: attempt_record.project.clone(),
    }))
}

/// Returns whether a poll of an outside agent would succeed or be refused now. A waiting poller is
/// woken only then.
pub fn would_grant(board: &Board, request: &PollRequest, now: Now) -> bool {
    let Some(agent) = board.agents.get(&request.agent) else {
        // The poll is refused, and the caller should get the refusal at once.
        return true;
    };
    // This poll is refused, too.
    if agent.is_run_by_regatta() && !request.by_hand {
        return true;
    }
    agent.offline.is_none()
        && board.ready_count() > 0
        && agent::capacity(board, agent).available > 0
        && machine_full_reason(board).is_none()
        && claim::name_holders(board, &request.agent, now).is_empty()
        && next_task(board, &mut board.ready_index.clone(), request, None, now).is_some()
}

/// Returns the first task that only a budget keeps from an agent, with the budget's reason.
pub fn kept_by_budget(board: &Board, agent: &AgentName, now: Now) -> Option<(TaskId, String)> {
    /// Maximum number of tasks to check per queue; the first few are enough.
    const MAX_CHECKED_TASKS: usize = 100;
    let assigned = [
        ReadyFor::Offered(agent.clone()),
        ReadyFor::Agent(agent.clone()),
    ];
    let queues = assigned
        .into_iter()
        .chain(board.projects.keys().cloned().map(ReadyFor::Pool));
    let first_in = |queue: ReadyFor| {
        let waiting: Vec<TaskId> = board.ready_for(&queue).take(MAX_CHECKED_TASKS).collect();
        waiting.into_iter().find_map(|id| {
            let task = board.tasks.get(&id)?;
            let reason = budget::blocking_budget(board, task, agent, now)?;
            Some((id, reason))
        })
    };
    queues.into_iter().find_map(first_in)
}

/// Records the gates that fail for this mission. Returns whether one of them blocks the whole
/// mission.
fn record_failing_gates(
    draft: &mut Draft,
    request: &PollRequest,
    facts: &StartFacts,
    now: Now,
) -> bool {
    let Some(mission) = request
        .mission
        .and_then(|id| draft.board().missions.get(&id))
        .cloned()
    else {
        return false;
    };
    let blocks = start_gates::mission_blocks(draft.board(), &mission, facts, now);
    let is_blocked = blocks.iter().any(|result| result.tasks.is_empty());
    mission::record_gates(draft, mission.id, blocks);
    is_blocked
}

/// Returns whether an agent of `provider` may take a task that only agents of `required` may take.
fn provider_matches(provider: Option<&str>, required: &str) -> bool {
    provider.is_some_and(|provider| provider_name::is_same(provider, required))
}

/// Returns the first ready task that fits a poll. `place` is `None` for an outside agent,
/// `Some(None)` for this machine, and otherwise the runner that polls.
fn next_task(
    board: &Board,
    ready_index: &mut ReadyIndex,
    request: &PollRequest,
    place: Option<Option<&RunnerName>>,
    now: Now,
) -> Option<TaskId> {
    let agent = board.agents.get(&request.agent)?;
    // Conditions of a whole mission are checked once.
    let missions: BTreeMap<MissionId, Option<PlanStep>> = board
        .missions
        .values()
        .map(|mission| (mission.id, open_step(board, mission)))
        .collect();
    let may_start_in_mission = |task: &Task| match task.mission.map(|id| missions.get(&id)) {
        _ if !task.is_polled() => task
            .mission
            .and_then(|id| board.missions.get(&id))
            .is_none_or(|mission| mission.state == mission::MissionState::Active),
        None | Some(None) => true,
        Some(Some(None)) => false,
        Some(Some(Some(step))) => *step == PlanStep::ANY || *step == task.step(),
    };
    let projects_without_ports = projects_short_of_ports(board, now);
    let fits = |task: &Task| {
        request
            .project
            .as_ref()
            .is_none_or(|project| *project == task.project)
            && request.mission.is_none_or(|id| task.mission == Some(id))
            && request.task.is_none_or(|id| task.id == id)
            && task
                .provider
                .as_deref()
                .is_none_or(|required| provider_matches(agent.provider.as_deref(), required))
            && may_start_in_mission(task)
            && place.is_none_or(|runner| can_run_at(board, task, runner))
            && !projects_without_ports.contains(&task.project)
            && collision_forecast::reason_to_wait(board, task).is_none()
            && !is_held_back(board, task)
            && budget::blocking_budget(board, task, &request.agent, now).is_none()
    };
    let mut first_in =
        |queue: &ReadyFor| board.first_startable(ready_index, queue, &request.agent, fits);
    let assigned = first_in(&ReadyFor::Offered(request.agent.clone()));
    if let Some(assigned) = assigned.or_else(|| first_in(&ReadyFor::Agent(request.agent.clone()))) {
        return Some(assigned);
    }
    let pools = board
        .projects
        .keys()
        .filter(|project| {
            request.mission.is_none()
                && request
                    .project
                    .as_ref()
                    .is_none_or(|requested| requested == *project)
        })
        .cloned()
        .map(ReadyFor::Pool);
    let is_requested_mission =
        |id: &MissionId| request.mission.is_none_or(|requested| requested == *id);
    let mission_queues = board
        .missions
        .values()
        .filter(|mission| {
            is_requested_mission(&mission.id) && mission.agents.contains(&request.agent)
        })
        .filter_map(|mission| match (*missions.get(&mission.id)?)? {
            PlanStep::ANY => Some(ReadyFor::Mission(mission.id)),
            step => Some(ReadyFor::Step(mission.id, step)),
        });
    // The best of the first tasks of all queues.
    mission_queues
        .chain(pools)
        .filter_map(|queue| first_in(&queue))
        .filter_map(|id| board.tasks.get(&id).map(|task| (task.priority, id)))
        .min()
        .map(|(_, id)| id)
}

/// Returns whether a task starts without a mission, because it is assigned to an agent whose
/// program Regatta runs.
pub fn starts_by_assignment(board: &Board, task: &Task) -> bool {
    let agent = task
        .assignee
        .as_ref()
        .and_then(|name| board.agents.get(name));
    task.mission.is_none()
        && task.is_polled()
        && matches!(task.status, TaskStatus::Pending | TaskStatus::Offered)
        && agent.is_some_and(|agent| {
            agent.is_run_by_regatta()
                && agent.derived_from.is_none()
                && launch::team_of(board, &agent.name).is_none()
        })
}

/// Returns whether a gate of the mission holds back this task in particular.
fn is_held_back(board: &Board, task: &Task) -> bool {
    let mission = task.mission.and_then(|id| board.missions.get(&id));
    mission.is_some_and(|mission| {
        mission
            .blocking_gates
            .iter()
            .any(|result| result.tasks.contains(&task.id))
    })
}

/// Returns whether a task can run on this runner: its unfinished work is there, or the runner with
/// that work is gone.
fn can_run_at(board: &Board, task: &Task, runner: Option<&RunnerName>) -> bool {
    let Some(resume) = &task.resume else {
        return true;
    };
    let is_gone = |runner: &RunnerName| {
        board
            .runners
            .get(runner)
            .is_none_or(|runner| !runner.is_present())
    };
    resume.runner.as_ref() == runner || resume.runner.as_ref().is_some_and(is_gone)
}

/// Returns the step of a mission whose tasks may start now, or [`PlanStep::ANY`] in flow mode.
/// Returns `None` while the mission drains or has its maximum number of workers.
fn open_step(board: &Board, mission: &Mission) -> Option<PlanStep> {
    if mission.state != mission::MissionState::Active
        || mission_full_reason(board, mission).is_some()
    {
        return None;
    }
    Some(if mission.mode == mission::StartMode::Flow {
        PlanStep::ANY
    } else {
        current_step(board, mission.id)
    })
}

/// Returns the number of the machine's slots in use. Turns of leads, answers, and attempts on other
/// runners take none.
pub fn machine_running(board: &Board) -> usize {
    // Most boards have no runner but the daemon's own.
    if board.runners.is_empty() {
        board.attempts.len() - board.attempts_without_slot
    } else {
        board
            .attempts
            .values()
            .filter(|attempt| attempt.runner.is_none() && !attempt.takes_no_slot)
            .count()
    }
}

/// Returns the reason why the machine takes no more attempts, if it is full.
pub fn machine_full_reason(board: &Board) -> Option<String> {
    let (running, max_attempts) = (machine_running(board), board.limits.max_attempts);
    (running as u32 >= max_attempts)
        .then(|| format!("this machine runs {running} of at most {max_attempts} attempts"))
}

/// Returns the reason why a mission takes no more workers, if it is full.
pub(crate) fn mission_full_reason(board: &Board, mission: &Mission) -> Option<String> {
    let running = board
        .attempts
        .values()
        .filter(|attempt| attempt.mission == Some(mission.id) && !attempt.takes_no_slot)
        .count();
    let max_attempts = mission.max_workers;
    (running >= max_attempts as usize).then(|| {
        format!(
            "{} runs {running} of at most {max_attempts} workers",
            mission.id
        )
    })
}

/// Returns the reason why it is not the turn of a task's wave, if that is so.
pub(crate) fn wave_closed_reason(board: &Board, mission: &Mission, task: &Task) -> Option<String> {
    if mission.mode == mission::StartMode::Flow {
        return None;
    }
    let current = current_step(board, mission.id);
    (task.step() != current).then(|| {
        format!(
            "it is in wave {}, and wave {current} is at work",
            task.step()
        )
    })
}

/// Returns the refusal that the project's next attempt would get for its ports, if there is one.
fn port_shortage(draft: &Draft, project: &ProjectName, now: Now) -> Option<Refusal> {
    let settings = &draft.board().projects.get(project)?.settings.workspace;
    claim::free_ports(draft, settings.ports as usize, settings.port_range, now).err()
}

/// Returns the projects that have too few free ports for one more attempt.
fn projects_short_of_ports(board: &Board, now: Now) -> BTreeSet<ProjectName> {
    let with_ports = || {
        board
            .projects
            .values()
            .filter(|project| project.settings.workspace.ports > 0)
    };
    if with_ports().next().is_none() {
        return BTreeSet::new();
    }
    let draft = Draft::new(board, now);
    with_ports()
        .filter(|project| port_shortage(&draft, &project.name, now).is_some())
        .map(|project| project.name.clone())
        .collect()
}

/// Returns the first step that still has work for an agent. Tasks that only a person can move do
/// not hold back later steps.
fn current_step(board: &Board, mission: MissionId) -> PlanStep {
    board
        .open_tasks_of(mission)
        .find(|(_, id)| {
            board
                .tasks
                .get(id)
                .is_some_and(|task| !waits_for_person(board, task) && !is_stuck(board, task))
        })
        .map_or(PlanStep::default(), |(step, _)| step)
}

/// Returns whether only a person can move a task forward: it needs a decision, it is paused or in
/// the backlog, or its contract or a standing rule blocks it.
fn waits_for_person(board: &Board, task: &Task) -> bool {
    match task.status {
        TaskStatus::NeedsHuman | TaskStatus::InReview | TaskStatus::Backlog => true,
        status if status.is_waiting() => {
            task.paused.is_some()
                || missing_contract_part(board, task).is_some()
                || project_rules::blocking_rule(board, task).is_some()
        }
        _ => false,
    }
}

/// Returns whether an open task continues without a person's help.
pub(crate) fn is_active(board: &Board, task: &Task) -> bool {
    let mission = task.mission.and_then(|id| board.missions.get(&id));
    let is_resting = task.status.is_waiting()
        && task.attempt.is_none()
        && mission
            .is_some_and(|mission| is_stopped_for_person(mission) || is_held_back(board, task));
    task.status.is_running()
        || !(is_resting || task.resting || waits_for_person(board, task) || is_stuck(board, task))
}

/// Returns whether a task waits to start and each agent that could start it is parked until a
/// person acts.
fn has_only_parked_agents(board: &Board, mission: &Mission, task: &Task) -> bool {
    let needs_person = |name: &AgentName| {
        let parked = board
            .agents
            .get(name)
            .and_then(|agent| provider_outage::find_parked(board, agent));
        parked.is_some_and(|parked| parked.deadline_fleet_ms.is_none())
    };
    task.status.is_waiting()
        && match &task.assignee {
            Some(name) => needs_person(name),
            None => !mission.agents.is_empty() && mission.agents.iter().all(needs_person),
        }
}

/// Returns whether a mission starts nothing until a person acts.
fn is_stopped_for_person(mission: &Mission) -> bool {
    let stops_all =
        |result: &GateResult| result.kind == Some(WaitKind::Gate) && result.tasks.is_empty();
    mission.state != mission::MissionState::Active || mission.blocking_gates.iter().any(stops_all)
}

/// Returns whether a task waits, directly or indirectly, for a task that only a person can move
/// forward.
fn is_stuck(board: &Board, task: &Task) -> bool {
    let mut open: Vec<TaskId> = task.blocked_by.clone();
    let mut visited = BTreeSet::new();
    while let Some(id) = open.pop() {
        match (board.tasks.get(&id), board.ended_status(id)) {
            (_, Some(TaskStatus::Failed | TaskStatus::Cancelled)) => return true,
            (Some(blocker), _) if visited.insert(id) => {
                if waits_for_person(board, blocker) {
                    return true;
                }
                open.extend(&blocker.blocked_by);
            }
            _ => {}
        }
    }
    false
}

/// Returns whether work needs a manifest and checks before an agent can get it.
fn needs_contract(issue_type: IssueType, expects: Expects) -> bool {
    issue_type.needs_contract() && expects == Expects::Changes
}

/// Returns whether work cannot go to an agent because it has no manifest.
pub fn lacks_manifest(issue_type: IssueType, expects: Expects, files: &[PathPattern]) -> bool {
    needs_contract(issue_type, expects) && files.is_empty()
}

/// Returns the part of the contract that a task lacks: a manifest, a test, or a check of its
/// result.
pub fn missing_contract_part(board: &Board, task: &Task) -> Option<String> {
    if !needs_contract(task.issue_type, task.expects) {
        return None;
    }
    if lacks_manifest(task.issue_type, task.expects, &task.files) {
        return Some(format!(
            "it has no manifest: name its files with regatta edit {} --files …",
            task.id
        ));
    }
    let project_checks = board
        .projects
        .get(&task.project)
        .is_some_and(|project| !project.validation.is_empty());
    if project_checks {
        return None;
    }
    if task.validation.tests.is_empty() {
        return Some(format!(
            "it has no test: add one with regatta edit {} --validate 'CMD'",
            task.id
        ));
    }
    if !task.validation.has_structure() {
        return Some(format!(
            "nothing checks its result: name a file that must exist with regatta edit {} --exists \
             FILE, or give the project checks of its own ([validation] commands)",
            task.id
        ));
    }
    None
}
