//! Chooses the next task for an agent, and explains why a task has no agent yet.
//!
//! Agents get tasks only through [`poll`]. [`wait_reasons`] checks the same conditions in the same
//! order and tells people which conditions fail, so that every waiting task has a reason (W1).
//!
//! Not here: the start of a task ([`crate::task`]), the six conditions that are checked before it
//! ([`crate::start_gates`]), and the index of ready tasks ([`crate::board`]).

mod dispatch; // the order of the daemon's own requests for work
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

pub use reasons::{resume_command, wait_reasons};

pub use outlook::{MissionOutlook, outlook};

pub use dispatch::{PollPlan, plan_polls};

/// An agent's request for a task to work on; see [`poll`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PollRequest {
    pub agent: AgentName,
    /// If set, the agent asks only for tasks of this project.
    #[serde(default)]
    pub project: Option<ProjectName>,
    /// If set, the agent asks only for tasks of this mission.
    #[serde(default)]
    pub mission: Option<MissionId>,
    /// If set, the agent asks only for this task.
    #[serde(default)]
    pub task: Option<TaskId>,
    /// Time without contact after which an outside agent's attempt is given up; `None` means the
    /// default.
    #[serde(default)]
    pub lease_ms: Option<u64>,
    /// Set if the agent needs no workspace for a task that only expects a report.
    #[serde(default)]
    #[serde(rename = "bare")]
    pub no_workspace: bool,
    /// Set if a person does the work under the name of an agent whose program Regatta would
    /// otherwise start.
    #[serde(default)]
    pub by_hand: bool,
}

impl PollRequest {
    /// Returns a request for any task that `agent` may work on.
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

/// The answer to a request for work: the task, and the attempt that was started at it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PollGrant {
    pub attempt: AttemptId,
    pub token: u64,
    pub task: TaskId,
    pub project: ProjectName,
}

/// Gives an agent the next task and starts an attempt at it. Tasks offered to the agent come first,
/// then tasks assigned to it, and then tasks of its missions and tasks without a mission together.
/// Within each of these three groups, tasks with a higher priority come first, and then older
/// tasks. Returns `None` if no task is ready or the agent or machine is full.
///
/// `facts` are given when the engine polls for an agent whose program it will start. These facts
/// are observations, such as the free memory, for the conditions that are checked before a start.
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
    // A lead's turn or an answer to a question is light, which means that it does not count against
    // the machine's maximum number of attempts.
    let is_light = request
        .task
        .and_then(|id| board.tasks.get(&id))
        .is_some_and(|task| task.is_light());
    let is_full = match facts {
        Some(_) if is_light && runner.is_none() => agent.needs_runner(),
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
    // The search updates the index of ready tasks, so the index is taken out and always put back.
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

/// Returns whether a request for work by an outside agent would now be answered with a task or a
/// refusal. An agent that waits for work is woken only then.
pub fn would_grant(board: &Board, request: &PollRequest, now: Now) -> bool {
    let Some(agent) = board.agents.get(&request.agent) else {
        // No agent has this name, so the request will be refused. Wake the caller, so that it gets
        // the refusal at once.
        return true;
    };
    // Regatta starts this agent's program itself, so the request will be refused. The waiting caller
    // must wake up to get the refusal.
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

/// Returns the first ready task that an agent may not start because a budget is used up, with the
/// reason.
pub fn kept_by_budget(board: &Board, agent: &AgentName, now: Now) -> Option<(TaskId, String)> {
    /// Maximum number of tasks that are checked in each list of ready tasks, to limit the time.
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

/// Checks the start conditions (gates) that concern a whole mission, and records the conditions
/// that block the mission. Returns whether one condition blocks all tasks of the mission.
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

/// Returns whether an agent of `provider` may take a task that requires the provider `required`.
fn provider_matches(provider: Option<&str>, required: &str) -> bool {
    provider.is_some_and(|provider| provider_name::is_same(provider, required))
}

/// Returns the best ready task for a request for work. `place` is where the attempt would run:
/// `None` for an outside agent, `Some(None)` for this machine, and otherwise a runner.
fn next_task(
    board: &Board,
    ready_index: &mut ReadyIndex,
    request: &PollRequest,
    place: Option<Option<&RunnerName>>,
    now: Now,
) -> Option<TaskId> {
    let agent = board.agents.get(&request.agent)?;
    // Find the step of each mission whose tasks may start now, once for each mission and not for
    // each of its tasks.
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
    // Compare the first task of each mission and of each project's pool (tasks without a mission),
    // and take the best by priority and then by id.
    mission_queues
        .chain(pools)
        .filter_map(|queue| first_in(&queue))
        .filter_map(|id| board.tasks.get(&id).map(|task| (task.priority, id)))
        .min()
        .map(|(_, id)| id)
}

/// Returns whether Regatta starts this task although it belongs to no mission, because it is
/// assigned to an agent whose program Regatta starts.
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

/// Returns whether one of the mission's start conditions (gates) blocks this task in particular.
fn is_held_back(board: &Board, task: &Task) -> bool {
    let mission = task.mission.and_then(|id| board.missions.get(&id));
    mission.is_some_and(|mission| {
        mission
            .blocking_gates
            .iter()
            .any(|result| result.tasks.contains(&task.id))
    })
}

/// Returns whether a task can continue on this runner. A task with unfinished work must run where
/// that work is, unless that runner is gone.
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

/// Returns the step (wave) of a mission whose tasks may start now, or [`PlanStep::ANY`] if the
/// mission has no waves. Returns `None` while the mission is not active or has its maximum number
/// of workers.
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

/// Returns the number of attempts that count against this machine's maximum. Turns of leads,
/// answers to questions, and attempts on other runners do not count. If a project is named, only
/// the attempts of this project are counted.
pub fn machine_running(board: &Board, project: Option<&ProjectName>) -> usize {
    // If there are no other runners, as is usual, the number of attempts here follows from two
    // counters, without looking at each attempt.
    if board.runners.is_empty() && project.is_none() {
        return board.attempts.len() - board.attempts_without_slot;
    }
    board
        .attempts
        .values()
        .filter(|attempt| attempt.runner.is_none() && !attempt.takes_no_slot)
        .filter(|attempt| project.is_none_or(|only| *only == attempt.project))
        .count()
}

/// Returns the reason why this machine takes no more attempts, or `None` if it has room.
pub fn machine_full_reason(board: &Board) -> Option<String> {
    let (running, max_attempts) = (machine_running(board, None), board.limits.max_attempts);
    (running as u32 >= max_attempts)
        .then(|| format!("this machine runs {running} of at most {max_attempts} attempts"))
}

/// Returns the reason why a mission starts no more attempts, or `None` if it has fewer than its
/// maximum.
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

/// Returns the reason why a task must wait for an earlier wave (tasks that run at the same time) of
/// its mission, or `None` if its wave is at work.
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

/// Returns the refusal if there are not enough free network ports for the project's next attempt.
fn port_shortage(draft: &Draft, project: &ProjectName, now: Now) -> Option<Refusal> {
    let settings = &draft.board().projects.get(project)?.settings.workspace;
    claim::free_ports(draft, settings.ports as usize, settings.port_range, now).err()
}

/// Returns the projects that do not have enough free network ports for one more attempt.
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

/// Returns the first step (wave) of a mission that has a task on which agents can still work. Tasks
/// that wait for a person do not hold back later steps.
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

/// Returns whether a task cannot continue without a person: it needs a decision, is paused or in
/// the backlog, lacks files or checks that it must have, or is blocked by a rule of the project.
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

/// Returns whether an unfinished task will continue without a person's help or a new event.
pub(crate) fn is_active(board: &Board, task: &Task) -> bool {
    let mission = task.mission.and_then(|id| board.missions.get(&id));
    let is_resting = task.status.is_waiting()
        && task.attempt.is_none()
        && mission
            .is_some_and(|mission| is_stopped_for_person(mission) || is_held_back(board, task));
    task.status.is_running()
        || !(is_resting || task.resting || waits_for_person(board, task) || is_stuck(board, task))
}

/// Returns whether a task waits to start, but no agent that could start it gets work until a person
/// fixes a problem.
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

/// Returns whether a mission starts no tasks at present, because it is drained, waits for a lead,
/// or is blocked by a start condition that a person must fix.
fn is_stopped_for_person(mission: &Mission) -> bool {
    let stops_all =
        |result: &GateResult| result.kind == Some(WaitKind::Gate) && result.tasks.is_empty();
    mission.state != mission::MissionState::Active || mission.blocking_gates.iter().any(stops_all)
}

/// Returns whether a task depends, directly or indirectly, on a task that failed, was cancelled, or
/// cannot continue without a person.
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

/// Returns whether a task of this kind must have a list of files and checks before an agent can get
/// it.
fn needs_contract(issue_type: IssueType, expects: Expects) -> bool {
    issue_type.needs_contract() && expects == Expects::Changes
}

/// Returns whether a task cannot go to an agent because it must name the files that it may change,
/// and names none.
pub fn lacks_manifest(issue_type: IssueType, expects: Expects, files: &[PathPattern]) -> bool {
    needs_contract(issue_type, expects) && files.is_empty()
}

/// Returns a sentence about what a task lacks before an agent can get it: a list of files, a test,
/// or a check of its result. Returns `None` if nothing is missing.
pub fn missing_contract_part(board: &Board, task: &Task) -> Option<String> {
    if !needs_contract(task.issue_type, task.expects()) {
        return None;
    }
    if lacks_manifest(task.issue_type, task.expects(), &task.files) {
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
        let reason =
            "it has no test; it starts when its project gets one: regatta init --validate 'CMD'";
        return Some(reason.to_owned());
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
