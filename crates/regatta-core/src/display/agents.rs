//! The state of each agent: the activity of its program, or the reason why it does nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent::Agent;
use crate::attempt::Attempt;
use crate::board::Board;
use crate::ids::{AgentName, AttemptId, Now, TaskId};
use crate::landing::batches;
use crate::task::{Task, TaskStatus};
use crate::{provider_outage, runner, schedule};

use super::{
    DisplayState, ItemDisplay, is_quiet, landing_display, program_activity_text, task_display,
};

/// If there are more agents than this, waiting agents are shown without their reasons. Computing a
/// reason is slow, and nobody reads the reasons of so many agents.
const MAX_AGENTS_WITH_REASONS: usize = 60;
/// If there are more open tasks than this, Regatta does not search them for a task of an idle agent
/// that needs a person or a review. The search would be too slow, because the states are computed
/// up to ten times a second.
const MAX_SEARCHED_TASKS: usize = 5_000;
/// Maximum number of a mission's open tasks that are searched for waiting tasks of its idle agents.
const MAX_WAITING_TASKS: usize = 500;

/// The state of an agent as people see it, with the agent's task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentDisplay {
    pub state: DisplayState,
    /// The word that people see for the state.
    pub label: &'static str,
    /// The task that the agent works on or waits for.
    pub task: Option<TaskId>,
    /// The details of the state, in a few words.
    pub text: String,
}

/// Whether an agent could take work. [`AgentDisplay`] says what the agent does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AgentAvailability {
    /// The agent works on nothing.
    Idle,
    /// The agent works on at least one attempt now.
    Busy,
    /// The agent gets no work at present, for example because its provider's limit is used up.
    Parked,
    /// The agent gets no work until the agent or its runner registers again.
    Offline,
}

impl AgentAvailability {
    /// Returns the name in the API.
    pub fn name(self) -> &'static str {
        match self {
            AgentAvailability::Idle => "idle",
            AgentAvailability::Busy => "busy",
            AgentAvailability::Parked => "parked",
            AgentAvailability::Offline => "offline",
        }
    }
}

impl Default for AgentDisplay {
    fn default() -> AgentDisplay {
        AgentDisplay::without_task(DisplayState::Idle, String::new())
    }
}

impl AgentDisplay {
    fn of_task(shown: impl Into<ItemDisplay>, task: TaskId, text: String) -> AgentDisplay {
        AgentDisplay {
            task: Some(task),
            ..AgentDisplay::without_task(shown, text)
        }
    }

    fn without_task(shown: impl Into<ItemDisplay>, text: String) -> AgentDisplay {
        let shown = shown.into();
        AgentDisplay {
            state: shown.state,
            label: shown.label,
            task: None,
            text,
        }
    }
}

/// Returns the name by which agents are grouped: the agent's provider, or its runtime if no
/// provider is named.
pub fn provider_or_runtime(agent: &Agent) -> String {
    agent
        .provider
        .clone()
        .unwrap_or_else(|| agent.runtime.name().to_owned())
}

/// Returns the reason why an agent cannot be reached, or `None` if the agent can be reached.
pub fn offline_reason(board: &Board, agent: &Agent) -> Option<String> {
    agent
        .offline
        .clone()
        .or_else(|| runner::runner_away_reason(board, agent))
}

/// Returns whether an agent could take work. [`agent_displays`] returns the activity of an agent.
pub fn agent_availability(board: &Board, agent: &Agent) -> AgentAvailability {
    if offline_reason(board, agent).is_some() {
        AgentAvailability::Offline
    } else if provider_outage::find_parked(board, agent).is_some() {
        AgentAvailability::Parked
    } else if crate::agent::capacity(board, agent).current == 0 {
        AgentAvailability::Idle
    } else {
        AgentAvailability::Busy
    }
}

/// Returns the state of one agent, or `None` if no such agent is registered. The state depends on
/// the other agents, so use [`agent_displays`] for several agents.
pub fn agent_display(board: &Board, name: &AgentName, now: Now) -> Option<AgentDisplay> {
    agent_displays(board, now).remove(name)
}

/// Returns the states of all agents. An agent without work waits only for tasks that are assigned to
/// it. Tasks of other agents and tasks without an agent do not keep it from working, so it is idle.
pub fn agent_displays(board: &Board, now: Now) -> BTreeMap<AgentName, AgentDisplay> {
    let working = working_attempts(board);
    let requests = open_requests(board);
    let landing = landing_displays(board, now);
    let waiting = waiting_tasks(board);
    let hides_reasons = board.agents.len() > MAX_AGENTS_WITH_REASONS;
    let mut displays = BTreeMap::new();
    for (name, agent) in &board.agents {
        let display = if let Some(attempt) = working.get(name) {
            match requests.get(&attempt.id) {
                Some(text) => {
                    AgentDisplay::of_task(DisplayState::Needs, attempt.task, text.clone())
                }
                None => AgentDisplay::of_task(
                    attempt_display(board, attempt),
                    attempt.task,
                    progress_text(board, attempt),
                ),
            }
        } else if let Some(display) = display_without_work(board, agent, landing.get(name)) {
            display
        } else {
            let next = waiting.get(name).map(|task| task.id);
            match next.and_then(|id| Some((id, wait_text(board, id, hides_reasons, now)?))) {
                Some((id, text)) => AgentDisplay::of_task(DisplayState::Waiting, id, text),
                None => AgentDisplay::default(),
            }
        };
        displays.insert(name.clone(), display);
    }
    displays
}

/// Returns the attempt that each agent works on. A team's session counts as work only during a
/// turn, and work on a task takes precedence over a session. An agent whose task a person has taken
/// over counts as idle.
fn working_attempts(board: &Board) -> BTreeMap<&AgentName, &Attempt> {
    let attempts = board.attempts.values().filter(|attempt| !attempt.by_hand);
    let (sessions, task_attempts): (Vec<_>, Vec<_>) =
        attempts.partition(|attempt| attempt.session_of.is_some());
    let busy_sessions = sessions
        .into_iter()
        .filter(|attempt| attempt.session.in_turn);
    let mut working: BTreeMap<&AgentName, &Attempt> = BTreeMap::new();
    for attempt in task_attempts.into_iter().chain(busy_sessions) {
        working.entry(&attempt.agent).or_insert(attempt);
    }
    working
}

/// Returns, for each attempt with an unanswered permission request or question, the id and one line
/// of that request.
fn open_requests(board: &Board) -> BTreeMap<AttemptId, String> {
    board
        .approvals
        .values()
        .filter(|approval| approval.is_open())
        .map(|approval| {
            let text = format!("{} {}", approval.id, approval.subject());
            (approval.attempt, text)
        })
        .collect()
}

/// Returns, for each agent with work in the landing queue, the state of its oldest landing.
fn landing_displays(board: &Board, now: Now) -> BTreeMap<&AgentName, AgentDisplay> {
    let mut labels = BTreeMap::new();
    for project in board.projects.keys() {
        for batch in batches::batches_of(board, project, now) {
            let label = landing_display(batch.progress).label;
            labels.extend(batch.landings.into_iter().map(|landing| (landing, label)));
        }
    }
    let mut displays = BTreeMap::new();
    let queued = board
        .landings
        .values()
        .filter(|landing| landing.end.is_none());
    for landing in queued {
        let text = labels.get(&landing.id).copied().unwrap_or("queued");
        displays.entry(&landing.agent).or_insert_with(|| {
            AgentDisplay::of_task(DisplayState::Landing, landing.task, text.to_owned())
        });
    }
    displays
}

/// Returns the waiting task of each agent to which a mission's waiting tasks are assigned: the first
/// one in the order of the plan.
fn waiting_tasks(board: &Board) -> BTreeMap<&AgentName, &Arc<Task>> {
    let mut waiting = BTreeMap::new();
    for mission in board.missions.keys() {
        let open = board.open_tasks_of(*mission).take(MAX_WAITING_TASKS);
        let tasks = open.filter_map(|(_, id)| board.tasks.get(&id));
        for task in tasks.filter(|task| task.status.is_waiting()) {
            if let Some(assignee) = &task.assignee {
                waiting.entry(assignee).or_insert(task);
            }
        }
    }
    waiting
}

/// Returns the first reason why a task waits; an empty text if reasons are hidden; `None` if the
/// task is gone or has no reason.
fn wait_text(board: &Board, id: TaskId, hides_reasons: bool, now: Now) -> Option<String> {
    if hides_reasons {
        return Some(String::new());
    }
    let task = board.tasks.get(&id)?;
    let reason = schedule::wait_reasons(board, task, now)
        .into_iter()
        .next()?;
    Some(reason.text)
}

/// Returns the state of an attempt that its agent works on. The session of a team's member and a
/// quiet attempt are in the state of their task.
fn attempt_display(board: &Board, attempt: &Attempt) -> ItemDisplay {
    let task = board.tasks.get(&attempt.task);
    match task.filter(|task| attempt.session_of.is_some() || is_quiet(board, task)) {
        Some(task) => task_display(board, task),
        None => DisplayState::Working.into(),
    }
}

/// Returns the agent's own report of its progress, or the activity of its program.
fn progress_text(board: &Board, attempt: &Attempt) -> String {
    let progress = board
        .tasks
        .get(&attempt.task)
        .and_then(|task| task.progress.lines().next());
    match progress {
        Some(line) if !attempt.is_hung() => line.to_owned(),
        _ => program_activity_text(board, attempt),
    }
}

/// Returns the state of an agent without work: offline, parked (it cannot work at present), or the
/// state of its last task. Returns `None` for an idle agent.
fn display_without_work(
    board: &Board,
    agent: &Agent,
    landing: Option<&AgentDisplay>,
) -> Option<AgentDisplay> {
    if let Some(text) = offline_reason(board, agent) {
        return Some(AgentDisplay::without_task(DisplayState::Offline, text));
    }
    if let Some(parked) = provider_outage::find_parked(board, agent) {
        // An outage without a known end needs a person, so the state is `Failed` and not `Waiting`.
        let state = if parked.deadline_fleet_ms.is_some() {
            DisplayState::Waiting
        } else {
            DisplayState::Failed
        };
        let shown = ItemDisplay::new(state, "parked");
        return Some(AgentDisplay::without_task(shown, parked.reason.clone()));
    }
    // A failed task that was retried or dismissed no longer counts as the agent's last work.
    let last_failed = agent.last_failed;
    if let Some(task) = last_failed.filter(|task| board.failed.contains_key(task)) {
        return Some(AgentDisplay::of_task(
            DisplayState::Failed,
            task,
            "failed".into(),
        ));
    }
    if let Some(landing) = landing {
        return Some(landing.clone());
    }
    if board.tasks.len() > MAX_SEARCHED_TASKS {
        return None;
    }
    let is_own = |task: &&Arc<Task>| {
        task.agent.as_ref() == Some(&agent.name) || task.assignee.as_ref() == Some(&agent.name)
    };
    let task_with_status = |status: TaskStatus| {
        board
            .tasks
            .values()
            .filter(is_own)
            .find(|task| task.status == status)
    };
    if let Some(task) = task_with_status(TaskStatus::NeedsHuman) {
        let text = task.reason.clone().unwrap_or_default();
        return Some(AgentDisplay::of_task(DisplayState::Needs, task.id, text));
    }
    let task = task_with_status(TaskStatus::InReview)?;
    Some(AgentDisplay::of_task(
        DisplayState::Review,
        task.id,
        "in review".into(),
    ))
}
