//! Scheduling: the choice of the next task for an agent, and the reasons why a task has no agent
//! yet.
//!
//! Agents get tasks only through [`poll`]. [`wait_reasons`] checks the same conditions in
//! the same order and describes the ones that fail to people (W1: every waiting task has a reason).

mod wait; // the kinds of reasons for which a task waits

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::attempt::BeginAttempt;
use crate::board::{Board, Draft, ReadyFor, ReadyIndex};
use crate::graph::PlanStep;
use crate::ids::{AgentName, AttemptId, MissionId, Now, ProjectName, RunnerName, TaskId};
use crate::landing::{LandingState, wave_commit};
use crate::mission::Mission;
use crate::pattern::PathPattern;
use crate::provider_name;
use crate::provider_outage::ProviderOutage;
use crate::refusal::{ClaimHolder, Refusal, seconds};
use crate::start_gates::{self, GateResult, StartFacts};
use crate::task::{Expects, IssueType, Task, TaskStatus};
use crate::{
    agent, approval, attempt, budget, claim, collision_forecast, intervention, launch, manifest,
    mission, project_rules, provider_outage, runner, task,
};

pub use wait::{WaitKind, WaitReason};

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
/// `facts` come with a poll of the shell, which runs the attempt. They are observations of the
/// world that the gates check.
pub fn poll(
    draft: &mut Draft,
    ask: &PollRequest,
    facts: Option<&StartFacts>,
    now: Now,
) -> Result<Option<PollGrant>, Refusal> {
    if let Some(task) = ask.task.filter(|_| ask.by_hand && facts.is_none()) {
        return intervention::take_over(draft, task, now).map(Some);
    }
    let board = draft.board();
    let agent = agent::find(board, &ask.agent)?;
    if facts.is_none() && !ask.by_hand && agent.is_run_by_regatta() {
        return Err(Refusal::RunByRegatta {
            agent: ask.agent.clone(),
        });
    }
    if agent.offline.is_some() {
        return Ok(None);
    }
    if facts.is_some() && provider_outage::find_parked(board, agent).is_some() {
        return Ok(None);
    }
    let runner = facts.and_then(|start_facts| start_facts.runner.as_ref());
    // Turns of a lead and answers take no slot of the machine.
    let light = ask
        .task
        .and_then(|id| board.tasks.get(&id))
        .is_some_and(|task| task.is_light());
    let full = match facts {
        Some(_) if light && runner.is_none() => !agent.profile.labels.is_empty(),
        None if light => false,
        Some(_) => runner::full_reason(board, runner, agent).is_some(),
        None => machine_full_reason(board).is_some(),
    };
    if agent::capacity(board, agent).available == 0
        || full
        || !claim::name_holders(board, &ask.agent, now).is_empty()
    {
        return Ok(None);
    }
    if let Some(facts) = facts
        && record_failing_gates(draft, ask, facts, now)
    {
        return Ok(None);
    }
    // The search uses and corrects the cached index, so the index is put back in any case.
    let mut lots = draft.take_ready_index();
    let next = next_task(
        draft.board(),
        &mut lots,
        ask,
        facts.map(|start_facts| start_facts.runner.as_ref()),
        now,
    );
    draft.put_ready_index(lots);
    let Some(next) = next else { return Ok(None) };
    let task = task::find(draft.board(), next)?;
    let bare = ask.no_workspace && facts.is_none() && task.needs_no_workspace();
    let unknown = StartFacts::default();
    let by = BeginAttempt {
        agent: ask.agent.clone(),
        supervised: facts.is_some(),
        runner: runner.cloned(),
        lease_ms: ask
            .lease_ms
            .unwrap_or(attempt::DEFAULT_LEASE_MS)
            .clamp(1_000, 7 * 24 * 3_600_000),
        no_workspace: bare,
        by_hand: false,
        gates: start_gates::notable_results(
            start_gates::evaluate(draft.board(), &task, facts.unwrap_or(&unknown), now),
            bare,
        ),
    };
    let attempt = task::start(draft, next, &by, now)?;
    let live = draft
        .board()
        .attempts
        .get(&attempt)
        .cloned()
        .ok_or(Refusal::NoSuchTask { task: next })?;
    Ok(Some(PollGrant {
        attempt,
        token: live.token,
        task: next,
        project: live.project.clone(),
    }))
}

/// Returns whether a poll of an outside agent would succeed or be refused now. A waiting poller is
/// woken only then.
pub fn would_grant(board: &Board, ask: &PollRequest, now: Now) -> bool {
    let Some(agent) = board.agents.get(&ask.agent) else {
        return true;
    }; // the poll is refused
    if agent.is_run_by_regatta() && !ask.by_hand {
        return true; // the poll is refused, and the caller should get the refusal at once
    }
    agent.offline.is_none()
        && board.ready_count() > 0
        && agent::capacity(board, agent).available > 0
        && machine_full_reason(board).is_none()
        && claim::name_holders(board, &ask.agent, now).is_empty()
        && next_task(board, &mut board.ready_index.clone(), ask, None, now).is_some()
}

/// Returns the first task that only a budget keeps from an agent, with the budget's reason.
pub fn kept_by_budget(board: &Board, agent: &AgentName, now: Now) -> Option<(TaskId, String)> {
    /// Maximum number of tasks to check per queue; the first few are enough.
    const MAX_CHECKED_TASKS: usize = 100;
    let own = [
        ReadyFor::Offered(agent.clone()),
        ReadyFor::Agent(agent.clone()),
    ];
    let lines = own
        .into_iter()
        .chain(board.projects.keys().cloned().map(ReadyFor::Pool));
    let first = |line: ReadyFor| {
        let waiting: Vec<TaskId> = board.ready_for(&line).take(MAX_CHECKED_TASKS).collect();
        let kept = |id: TaskId| {
            Some((
                id,
                budget::blocking_budget(board, board.tasks.get(&id)?, agent, now)?,
            ))
        };
        waiting.into_iter().find_map(kept)
    };
    lines.into_iter().find_map(first)
}

/// Records the gates that fail for this mission. Returns whether one of them blocks the whole
/// mission.
fn record_failing_gates(
    draft: &mut Draft,
    ask: &PollRequest,
    facts: &StartFacts,
    now: Now,
) -> bool {
    let Some(mission) = ask
        .mission
        .and_then(|id| draft.board().missions.get(&id))
        .cloned()
    else {
        return false;
    };
    let against = start_gates::mission_blocks(draft.board(), &mission, facts, now);
    let blocked = against.iter().any(|passage| passage.tasks.is_empty());
    mission::record_gates(draft, mission.id, against);
    blocked
}

/// Returns whether an agent of `provider` may take a task that only agents of `wanted` may take.
fn provider_matches(provider: Option<&str>, wanted: &str) -> bool {
    provider.is_some_and(|provider| provider_name::is_same(provider, wanted))
}

/// Returns the first ready task that fits a poll. `place` is `None` for an outside agent,
/// `Some(None)` for this machine, and otherwise the runner that polls.
fn next_task(
    board: &Board,
    lots: &mut ReadyIndex,
    ask: &PollRequest,
    place: Option<Option<&RunnerName>>,
    now: Now,
) -> Option<TaskId> {
    let agent = board.agents.get(&ask.agent)?;
    // Conditions of a whole mission are checked once.
    let missions: BTreeMap<MissionId, Option<PlanStep>> = board
        .missions
        .values()
        .map(|mission| (mission.id, open_step(board, mission)))
        .collect();
    let paced = |task: &Task| match task.mission.map(|id| missions.get(&id)) {
        _ if !task.is_polled() => task
            .mission
            .and_then(|id| board.missions.get(&id))
            .is_none_or(|mission| mission.state == mission::MissionState::Active),
        None | Some(None) => true,
        Some(Some(None)) => false,
        Some(Some(Some(step))) => *step == PlanStep::ANY || *step == task.step(),
    };
    let short_of_ports = projects_short_of_ports(board, now);
    let fits = |task: &Task| {
        ask.project
            .as_ref()
            .is_none_or(|project| *project == task.project)
            && ask.mission.is_none_or(|id| task.mission == Some(id))
            && ask.task.is_none_or(|id| task.id == id)
            && task
                .provider
                .as_deref()
                .is_none_or(|wanted| provider_matches(agent.provider.as_deref(), wanted))
            && paced(task)
            && place.is_none_or(|runner| can_run_at(board, task, runner))
            && !short_of_ports.contains(&task.project)
            && collision_forecast::reason_to_wait(board, task).is_none()
            && !is_held_back(board, task)
            && budget::blocking_budget(board, task, &ask.agent, now).is_none()
    };
    let mut first = |line: &ReadyFor| board.first_startable(lots, line, &ask.agent, fits);
    let own = first(&ReadyFor::Offered(ask.agent.clone()));
    if let Some(own) = own.or_else(|| first(&ReadyFor::Agent(ask.agent.clone()))) {
        return Some(own);
    }
    let pools = board
        .projects
        .keys()
        .filter(|project| {
            ask.mission.is_none() && ask.project.as_ref().is_none_or(|asked| asked == *project)
        })
        .cloned()
        .map(ReadyFor::Pool);
    let asked = |id: &MissionId| ask.mission.is_none_or(|asked| asked == *id);
    let open = board
        .missions
        .values()
        .filter(|mission| asked(&mission.id) && mission.agents.contains(&ask.agent))
        .filter_map(|mission| match (*missions.get(&mission.id)?)? {
            PlanStep::ANY => Some(ReadyFor::Mission(mission.id)),
            step => Some(ReadyFor::Step(mission.id, step)),
        });
    // The first task of each queue, then the best of those.
    let firsts: BTreeSet<(u8, TaskId)> = open
        .chain(pools)
        .filter_map(|line| first(&line))
        .filter_map(|id| board.tasks.get(&id).map(|task| (task.priority, id)))
        .collect();
    firsts.into_iter().next().map(|first| first.1)
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
            .any(|passage| passage.tasks.contains(&task.id))
    })
}

/// Returns whether a task can run on this runner: its unfinished work is there, or the runner with
/// that work is gone.
fn can_run_at(board: &Board, task: &Task, runner: Option<&RunnerName>) -> bool {
    let Some(resume) = &task.resume else {
        return true;
    };
    let gone = |runner: &RunnerName| {
        board
            .runners
            .get(runner)
            .is_none_or(|runner| !runner.is_present())
    };
    resume.runner.as_ref() == runner || resume.runner.as_ref().is_some_and(gone)
}

/// Returns the step of a mission whose tasks may start now, or [`Step::ANY`] in flow mode. Returns
/// `None` while the mission drains or has its maximum number of workers.
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
    let (running, most) = (machine_running(board), board.limits.max_attempts);
    (running as u32 >= most)
        .then(|| format!("this machine runs {running} of at most {most} attempts"))
}

/// Returns the reason why a mission takes no more workers, if it is full.
pub(crate) fn mission_full_reason(board: &Board, mission: &Mission) -> Option<String> {
    let running = board
        .attempts
        .values()
        .filter(|attempt| attempt.mission == Some(mission.id) && !attempt.takes_no_slot)
        .count();
    let most = mission.max_workers;
    (running >= most as usize)
        .then(|| format!("{} runs {running} of at most {most} workers", mission.id))
}

/// Returns the reason why it is not the turn of a task's wave, if that is so.
pub(crate) fn wave_closed_reason(board: &Board, mission: &Mission, task: &Task) -> Option<String> {
    if mission.mode == mission::StartMode::Flow {
        return None;
    }
    let at_work = current_step(board, mission.id);
    (task.step() != at_work).then(|| {
        format!(
            "it is in wave {}, and wave {at_work} is at work",
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
        .map_or(PlanStep::default(), |board| board.0)
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
    let rests = task.status.is_waiting()
        && task.attempt.is_none()
        && mission
            .is_some_and(|mission| is_stopped_for_person(mission) || is_held_back(board, task));
    task.status.is_running()
        || !(rests || task.resting || waits_for_person(board, task) || is_stuck(board, task))
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
        |passage: &GateResult| passage.kind == Some(WaitKind::Gate) && passage.tasks.is_empty();
    mission.state != mission::MissionState::Active || mission.blocking_gates.iter().any(stops_all)
}

/// Returns whether a task waits, directly or indirectly, for a task that only a person can move
/// forward.
fn is_stuck(board: &Board, task: &Task) -> bool {
    let mut open: Vec<TaskId> = task.blocked_by.clone();
    let mut seen = BTreeSet::new();
    while let Some(id) = open.pop() {
        match (board.tasks.get(&id), board.ended_status(id)) {
            (_, Some(TaskStatus::Failed | TaskStatus::Cancelled)) => return true,
            (Some(blocker), _) if seen.insert(id) => {
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
             FILE, or give the project \
             checks of its own ([validation] commands)",
            task.id
        ));
    }
    None
}

/// Returns all reasons why a task waits. The list is never empty for a task that neither runs nor
/// has ended (W1).
pub fn wait_reasons(board: &Board, task: &Task, now: Now) -> Vec<WaitReason> {
    let mut reasons = Vec::new();
    let mut say = |kind, text: String| reasons.push(WaitReason { kind, text });
    let asked = approval::question_blocking_work(board, task);
    match task.status {
        TaskStatus::InProgress
        | TaskStatus::Validating
        | TaskStatus::Completed
        | TaskStatus::Failed
        | TaskStatus::Cancelled => {
            return reasons;
        }
        TaskStatus::Backlog => say(
            WaitKind::Policy,
            format!("it is in the backlog: regatta edit {} --ready", task.id),
        ),
        TaskStatus::InReview if asked.is_some() => {
            let Some(asked) = asked else { return reasons };
            let assumed = asked
                .assumed
                .as_ref()
                .map_or(String::new(), |text| format!("; it assumed: {text}"));
            let text = format!(
                "its work waits for the answer to {} ({}){assumed}",
                asked.id,
                asked.subject()
            );
            say(WaitKind::Question, format!("{text}. regatta inbox"));
        }
        TaskStatus::InReview => {
            let reason = task
                .reason
                .clone()
                .unwrap_or_else(|| "somebody must review it".into());
            say(
                WaitKind::Review,
                format!("{reason}, then regatta land {}", task.id),
            );
        }
        TaskStatus::NeedsHuman => {
            let kind = task.needed_decision.unwrap_or(WaitKind::Review);
            say(
                kind,
                task.reason
                    .clone()
                    .unwrap_or_else(|| "it needs a person".into()),
            );
        }
        TaskStatus::Landing => match task.landing.and_then(|id| board.landings.get(&id)) {
            Some(landing) => {
                let ahead = board
                    .queue_of(&landing.project)
                    .take_while(|board| board.id != landing.id)
                    .count();
                let stopped = board
                    .projects
                    .get(&landing.project)
                    .and_then(|project| project.queue.held.as_ref());
                let awaited = wave_commit::wave_of(board, landing)
                    .map(|pair| wave_commit::awaited_tasks(board, pair))
                    .unwrap_or_default();
                match (&landing.held, &landing.state) {
                    (Some(reason), _) => say(WaitKind::Policy, reason.clone()),
                    (None, LandingState::Moving { .. }) => {
                        say(WaitKind::Queue, "it is moving the trunk".into())
                    }
                    (None, _) if stopped.is_some() => {
                        let (by, why) = stopped
                            .map_or(("", ""), |queue_hold| (&queue_hold.by, &queue_hold.reason));
                        say(
                            WaitKind::Policy,
                            format!("{by} holds the queue: {why}. regatta queue release"),
                        );
                    }
                    (None, LandingState::Validated { .. }) => {
                        say(WaitKind::Claim, trunk_holder(board, landing, now))
                    }
                    (None, LandingState::Trying { ahead, .. }) if ahead.is_empty() => {
                        say(WaitKind::Queue, "it is being merged and validated".into())
                    }
                    (None, LandingState::Trying { ahead, .. }) => say(
                        WaitKind::Queue,
                        format!(
                            "it is being merged and validated on top of {} more",
                            ahead.len()
                        ),
                    ),
                    (None, _) if !landing.deferred_behind.is_empty() && landing.faults > 0 => {
                        let names: Vec<String> = landing
                            .deferred_behind
                            .iter()
                            .filter_map(|id| Some(board.landings.get(id)?.task.to_string()))
                            .collect();
                        let names: Vec<&str> = names.iter().map(String::as_str).collect();
                        say(
                            WaitKind::Queue,
                            format!(
                                "it failed a check once merged; it is tried again after {}",
                                attempt::first_few(&names)
                            ),
                        )
                    }
                    (None, _) if !landing.deferred_behind.is_empty() => {
                        let names: Vec<String> = landing
                            .deferred_behind
                            .iter()
                            .filter_map(|id| Some(board.landings.get(id)?.task.to_string()))
                            .collect();
                        let text = match names.as_slice() {
                            [one] => format!("it conflicts with {one}, which lands first"),
                            several => format!(
                                "it conflicts with one of {}, which land first",
                                several.join(", ")
                            ),
                        };
                        say(WaitKind::Conflict, text)
                    }
                    (None, LandingState::Queued) if !awaited.is_empty() => {
                        let names: Vec<String> = awaited.iter().map(ToString::to_string).collect();
                        let names: Vec<&str> = names.iter().map(String::as_str).collect();
                        say(
                            WaitKind::Wave,
                            format!(
                                "its wave lands as one commit, with {}",
                                attempt::first_few(&names)
                            ),
                        )
                    }
                    (None, _) => say(
                        WaitKind::Queue,
                        format!("it is number {} in the landing queue", ahead + 1),
                    ),
                }
            }
            None => say(
                WaitKind::Queue,
                "it is on its way into the landing queue".into(),
            ),
        },
        TaskStatus::Unassigned | TaskStatus::Offered | TaskStatus::Pending => {
            if task.resting && task.is_conversation() {
                say(
                    WaitKind::Question,
                    "its turn is over; it continues when somebody writes in its thread".into(),
                );
            } else if task.resting {
                say(
                    WaitKind::Lead,
                    "its turn is over; it continues when an event concerns its mission".into(),
                );
            }
            if let Some(reason) = &task.paused {
                say(WaitKind::Paused, format!("it is paused: {reason}"));
            }
            if let Some(attempt) = task.attempt {
                say(
                    WaitKind::Runner,
                    format!("its last attempt {attempt} is still being stopped"),
                );
            }
            for blocker in &task.blocked_by {
                match (board.tasks.get(blocker), board.ended_status(*blocker)) {
                    (Some(other), _) => say(
                        WaitKind::Dependency,
                        format!(
                            "needs {blocker} \"{}\", which {}",
                            other.subject,
                            describe_blocker(board, other, now)
                        ),
                    ),
                    (None, Some(TaskStatus::Completed)) => {}
                    (None, Some(status)) => say(
                        WaitKind::Dependency,
                        format!(
                            "needs {blocker}, which {}: take the blocker away, or cancel this",
                            status.phrase()
                        ),
                    ),
                    (None, None) => {}
                }
            }
            if let Some(at) = task.not_before_fleet_ms {
                let wait = seconds(at.saturating_sub(now.fleet_ms));
                say(
                    WaitKind::Backoff,
                    format!("its last attempt was interrupted; the next starts in {wait}"),
                );
            }
            if let Some(gate) = missing_contract_part(board, task) {
                say(WaitKind::Gate, gate);
            }
            if let Some(rule) = project_rules::blocking_rule(board, task) {
                say(WaitKind::Policy, rule);
            }
            let (uris, mode) = (
                manifest::claims_of_task(board, task),
                manifest::claim_mode(board, task),
            );
            let mut holders =
                claim::conflicting_holders(&Draft::new(board, now), &uris, mode, None, now);
            holders.extend(claim::task_holders(
                board,
                task,
                task.assignee.as_ref(),
                now,
            ));
            for holder in holders.iter().take(5) {
                say(WaitKind::Claim, describe_holder(board, holder));
            }
            if let Some(hot) = collision_forecast::reason_to_wait(board, task) {
                say(WaitKind::Conflict, hot);
            }
            if let Some(short) = port_shortage(&Draft::new(board, now), &task.project, now) {
                say(
                    WaitKind::Claim,
                    format!("it needs ports: {}", short.message()),
                );
            }
            if let Some(who) = report_agent_waits(board, task, now, &mut say) {
                let text = if reasons.is_empty() {
                    format!("{who} is about to start on it")
                } else {
                    format!(
                        "{who} has a free slot and starts on it when the reasons above are gone"
                    )
                };
                reasons.push(WaitReason {
                    kind: WaitKind::Runner,
                    text,
                });
            }
        }
    }
    reasons
}

/// Returns the current state of a blocker as part of a sentence, including the person or agent for
/// which it waits. Its own blockers are left out, because they are shown with that task.
fn describe_blocker(board: &Board, task: &Task, now: Now) -> String {
    let attempt = task.attempt.and_then(|id| board.attempts.get(&id));
    match task.status {
        TaskStatus::InProgress | TaskStatus::Validating => match attempt {
            Some(attempt) if attempt.stopping.is_some() => "is being stopped".into(),
            Some(attempt) => match approval::open_request_of(board, attempt) {
                Some(open) => format!("waits for you ({})", open.id),
                None if task.status == TaskStatus::Validating => "is being checked".into(),
                None => task.status.phrase().into(),
            },
            None => task.status.phrase().into(),
        },
        TaskStatus::InReview => "is in review, and waits for you".into(),
        TaskStatus::Landing => match task.landing.and_then(|id| board.landings.get(&id)) {
            Some(landing) if landing.held.is_some() => "is landing, and waits for you".into(),
            Some(landing) if matches!(landing.state, LandingState::Queued) => {
                let ahead = board
                    .queue_of(&landing.project)
                    .take_while(|board| board.id != landing.id)
                    .count();
                format!("is number {} in the landing queue", ahead + 1)
            }
            _ => task.status.phrase().into(),
        },
        status if status.is_waiting() => {
            let agent = task
                .agent
                .as_ref()
                .or(task.assignee.as_ref())
                .and_then(|agent| board.agents.get(agent));
            let parked = agent.and_then(|agent| {
                provider_outage::find_parked(board, agent)
                    .map(|parked| provider_outage::describe(parked, now))
            });
            match (&task.paused, parked) {
                (Some(reason), _) => format!("is paused: {reason}"),
                (None, Some(parked)) => format!("waits because {parked}"),
                (None, None) => status.phrase().into(),
            }
        }
        status => status.phrase().into(),
    }
}

/// Returns a sentence about the holder of the trunk for which a landing waits.
fn trunk_holder(board: &Board, landing: &crate::landing::Landing, now: Now) -> String {
    let uri = crate::pattern::Uri::for_trunk(&landing.project);
    let draft = Draft::new(board, now);
    match claim::conflicting_holders(
        &draft,
        std::slice::from_ref(&uri),
        claim::ClaimMode::Exclusive,
        None,
        now,
    )
    .first()
    {
        Some(holder) => describe_holder(board, holder),
        None => "it is about to move the trunk".into(),
    }
}

/// Returns a sentence that names the holder of a URI and the remaining time.
fn describe_holder(board: &Board, holder: &ClaimHolder) -> String {
    let ends = holder.ends_in_ms.map_or(String::new(), |ms| {
        format!(" for {} more unless renewed", seconds(ms))
    });
    format!(
        "{} is held by {}{ends}",
        holder.uri,
        describe_owner(board, &holder.owner)
    )
}

fn describe_owner(board: &Board, owner: &claim::ClaimOwner) -> String {
    match owner {
        claim::ClaimOwner::Agent(name) => name.to_string(),
        claim::ClaimOwner::Attempt(id) => match board.attempts.get(id) {
            Some(attempt) => format!("{} for {}", attempt.agent, attempt.task),
            None => id.to_string(),
        },
        claim::ClaimOwner::Landing(id) => match board.landings.get(id) {
            Some(landing) => format!("{}, which is landing", landing.task),
            None => id.to_string(),
        },
    }
}

/// Reports the reasons why the agents of a task do not start it. Returns the agent that has a free
/// slot for it, if there is one.
fn report_agent_waits(
    board: &Board,
    task: &Task,
    now: Now,
    say: &mut impl FnMut(WaitKind, String),
) -> Option<String> {
    let candidates: Vec<&AgentName> = match (
        &task.assignee,
        task.mission.and_then(|id| board.missions.get(&id)),
    ) {
        (Some(name), _) => vec![name],
        (None, Some(mission)) => mission.agents.iter().collect(),
        (None, None) => vec![],
    };
    // Agents that wait for a person for the same reason are named together.
    let of = |name: &&AgentName| {
        board
            .agents
            .get(*name)
            .and_then(|agent| provider_outage::find_parked(board, agent))
    };
    let mut stuck: Vec<&ProviderOutage> = candidates
        .iter()
        .filter_map(of)
        .filter(|parked| parked.deadline_fleet_ms.is_none())
        .collect();
    for agent in candidates
        .iter()
        .filter_map(|agent| board.agents.get(*agent))
    {
        if let Some(why) = &agent.offline {
            say(
                WaitKind::Runner,
                format!("{} is offline until it registers again: {why}", agent.name),
            );
        }
        match provider_outage::find_parked(board, agent) {
            Some(parked) if parked.deadline_fleet_ms.is_some() => {
                say(WaitKind::RateLimit, provider_outage::describe(parked, now))
            }
            Some(parked) => {
                let alike = |other: &&ProviderOutage| {
                    (other.class, &other.reason) == (parked.class, &parked.reason)
                };
                let (same, others): (Vec<_>, Vec<_>) = stuck.into_iter().partition(alike);
                stuck = others;
                match same.len() {
                    0 => {}
                    1 => say(WaitKind::Provider, provider_outage::describe(parked, now)),
                    _ => say(WaitKind::Provider, provider_outage::describe_all(&same)),
                }
            }
            None => {}
        }
        if let Some(holder) = claim::name_holders(board, &agent.name, now).first() {
            say(WaitKind::Claim, describe_holder(board, holder));
        }
        if let Some(text) = budget::blocking_budget(board, task, &agent.name, now) {
            say(WaitKind::Budget, text);
        }
        if let Some(text) = runner::no_runner_reason(board, agent) {
            say(WaitKind::Runner, text);
        }
    }
    if let Some(name) = task
        .resume
        .as_ref()
        .and_then(|resume_point| resume_point.runner.as_ref())
        && board
            .runners
            .get(name)
            .is_some_and(|runner| runner.is_present())
    {
        say(
            WaitKind::Runner,
            format!("its unfinished work is on runner {name}, so it waits for a free slot there"),
        );
    }
    if let Some(full) = machine_full_reason(board).filter(|_| !task.is_light()) {
        say(WaitKind::Machine, full);
    }
    let mission = task.mission.and_then(|id| board.missions.get(&id));
    if let Some(mission) = mission {
        if mission.state != mission::MissionState::Active {
            say(
                WaitKind::Paused,
                format!("{} is draining: regatta run --resume", mission.id),
            );
        }
        if let Some(reason) = wave_closed_reason(board, mission, task) {
            say(WaitKind::Wave, reason);
        }
        if let Some(full) = mission_full_reason(board, mission).filter(|_| task.is_polled()) {
            say(WaitKind::Slot, full);
        }
        for gate_result in mission
            .blocking_gates
            .iter()
            .filter(|passage| passage.concerns(task.id))
        {
            say(
                gate_result.kind.unwrap_or(WaitKind::Gate),
                gate_result.reason.clone(),
            );
        }
    }
    let slots = |name: &AgentName| {
        let room = board
            .agents
            .get(name)
            .map(|agent| agent::capacity(board, agent))?;
        Some((
            room.available == 0,
            format!("{name} {}/{}", room.current, room.max),
        ))
    };
    match (&task.assignee, mission) {
        (Some(name), _) => match slots(name) {
            Some((true, text)) => say(WaitKind::Slot, format!("its agent is at capacity: {text}")),
            _ if mission.is_some() || task.duty.is_some() || starts_by_assignment(board, task) => {
                return Some(name.to_string());
            }
            _ if let Some(team) = launch::team_of(board, name) => say(
                WaitKind::Lane,
                format!("{name} is a member of team {team}, and works while the team is up"),
            ),
            _ if task.status == TaskStatus::Offered => say(
                WaitKind::Offer,
                format!("it is offered to {name}, which has not answered"),
            ),
            _ => say(
                WaitKind::Runner,
                format!("{name} has not asked for it yet: regatta task poll --as {name}"),
            ),
        },
        (None, Some(mission)) => {
            let full: Vec<String> = mission
                .agents
                .iter()
                .filter_map(&slots)
                .filter(|agent| agent.0)
                .map(|agent| agent.1)
                .collect();
            if full.len() == mission.agents.len() {
                say(
                    WaitKind::Slot,
                    format!("its agents are at capacity: {}", full.join(", ")),
                );
            } else {
                return Some("an agent".into());
            }
        }
        (None, None) => say(
            WaitKind::Runner,
            format!(
                "no mission or agent has it: regatta run, or regatta assign {} NAME",
                task.id
            ),
        ),
    }
    None
}

/// Counts of a mission's open tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MissionOutlook {
    pub open: usize,
    pub running: usize,
    pub landing: usize,
    /// Open tasks that only a person can move: they need a decision, their contract is incomplete,
    /// or a blocker is stuck.
    pub stuck: usize,
    /// Landings that wait for a person to clean up the checkout.
    pub held: usize,
}

impl MissionOutlook {
    /// Returns whether nothing more happens without a person.
    pub fn is_settled(&self) -> bool {
        self.running == 0 && self.landing == self.held && self.stuck + self.held == self.open
    }
}

/// Counts the open tasks of a mission.
pub fn outlook(board: &Board, mission: MissionId) -> MissionOutlook {
    let open: Vec<_> = board
        .open_tasks_of(mission)
        .filter_map(|(_, id)| board.tasks.get(&id))
        .collect();
    let dead = stuck_tasks(board, mission, &open);
    let mut out = MissionOutlook::default();
    for task in &open {
        out.open += 1;
        match task.status {
            status if status.is_running() => out.running += 1,
            TaskStatus::Landing => {
                out.landing += 1;
                out.held += usize::from(needs_clean_checkout(board, task));
            }
            _ if dead.contains(&task.id) => out.stuck += 1,
            _ => {}
        }
    }
    out
}

/// Returns whether a task's landing is held until a person has cleaned up the checkout.
fn needs_clean_checkout(board: &Board, task: &Task) -> bool {
    task.landing
        .and_then(|id| board.landings.get(&id))
        .is_some_and(|landing| landing.held.is_some())
}

/// Returns a mission's open tasks that do not continue without a person.
fn stuck_tasks(board: &Board, mission: MissionId, open: &[&Arc<Task>]) -> BTreeSet<TaskId> {
    let Some(mission) = board.missions.get(&mission) else {
        return BTreeSet::new();
    };
    let hopeless = |task: &Task| {
        task.status != TaskStatus::Landing
            && (!is_active(board, task) || has_only_parked_agents(board, mission, task))
    };
    let mut dead: BTreeSet<TaskId> = open
        .iter()
        .filter(|task| hopeless(task))
        .map(|task| task.id)
        .collect();
    // A task that waits for a held landing waits for a person, and so do all tasks that wait for
    // that task.
    let by_hand: BTreeSet<TaskId> = open
        .iter()
        .filter(|task| needs_clean_checkout(board, task))
        .map(|task| task.id)
        .collect();
    let at_work = current_step(board, mission.id);
    loop {
        let stands = |id: &TaskId| dead.contains(id) || by_hand.contains(id);
        // A wave in which nothing moves blocks the later waves.
        let barrier = mission.mode == mission::StartMode::Waves
            && !by_hand.is_empty()
            && open
                .iter()
                .filter(|task| task.step() == at_work)
                .all(|task| stands(&task.id));
        let more: Vec<TaskId> = open
            .iter()
            .filter(|task| task.status.is_waiting() && !dead.contains(&task.id))
            .filter(|task| {
                task.blocked_by.iter().any(stands) || (barrier && task.step() != at_work)
            })
            .map(|task| task.id)
            .collect();
        if more.is_empty() {
            return dead;
        }
        dead.extend(more);
    }
}
