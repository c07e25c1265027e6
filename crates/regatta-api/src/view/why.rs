//! Explains why a task or an agent waits: the present reason, the reasons that come next, and the
//! history.

use regatta_core::board::Board;
use regatta_core::display;
use regatta_core::ids::{AttemptId, Now, TaskId};
use regatta_core::schedule::{WaitKind, WaitReason, machine_full_reason};
use regatta_core::task::Task;
use regatta_core::{agent, budget, provider_outage, runner};
use serde::{Deserialize, Serialize};

use super::{AgentView, TaskView};

/// The explanation why a task waits. The first of the wait reasons in `task` is the present reason,
/// and the others come next. `past` is the task's history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WhyView {
    pub task: TaskView,
    pub past: Vec<TaskHistoryView>,
    /// The conditions for a start that are met, so that the task does not wait for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clear: Vec<WaitReason>,
    /// The commands that run for the task now: a setup command or a check of its attempt, the
    /// ratchet (a command that must accept passed work), or a check of the landing queue.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
}

/// An entry of a task's history: something that happened in one of the task's attempts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TaskHistoryView {
    pub attempt: AttemptId,
    pub wall: u64,
    pub text: String,
    /// True if a check of the attempt's work failed; `regatta logs T5 --check` prints the check's
    /// whole output.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed_check: bool,
}

impl WhyView {
    /// Returns the conditions for a start that are met for a waiting task.
    pub fn passed_conditions(board: &Board, view: &TaskView, now: Now) -> Vec<WaitReason> {
        let task = &view.task;
        if !task.status.is_waiting() {
            return vec![];
        }
        let is_holding = |kind: WaitKind| {
            view.waits
                .iter()
                .any(|wait_reason| wait_reason.kind == kind)
        };
        let mut clear = Vec::new();
        let mut add = |kind: WaitKind, text: String| {
            if !is_holding(kind) {
                clear.push(WaitReason { kind, text });
            }
        };
        if !task.blocked_by.is_empty() {
            let names: Vec<String> = task.blocked_by.iter().map(ToString::to_string).collect();
            add(WaitKind::Dependency, format!("{} done", names.join(" ")));
        }
        if !task.files.is_empty() {
            add(WaitKind::Claim, "its files are free".into());
        }
        if let Some(text) = day_budget_left(board, now) {
            add(WaitKind::Budget, text);
        }
        add(WaitKind::Policy, "no rule blocks it".into());
        let available_agent = candidate_agents(board, task)
            .find(|agent| provider_outage::find_parked(board, agent).is_none());
        if let Some(agent) = available_agent
            && !is_holding(WaitKind::RateLimit)
        {
            add(WaitKind::Provider, format!("{} takes work", agent.name));
        }
        clear
    }
}

/// Returns a text with the remaining budget for today, or `None` if today has no budget.
fn day_budget_left(board: &Board, now: Now) -> Option<String> {
    let cap = board
        .budgets
        .get(&budget::BudgetScope::Day)?
        .ceiling
        .micro_usd?;
    let spent = budget::spent_on(board, budget::day_of(now), None).usage;
    Some(display::spend_text(
        spent.micro_usd,
        spent.tokens(),
        Some(cap),
    ))
}

fn candidate_agents<'a>(
    board: &'a Board,
    task: &'a Task,
) -> impl Iterator<Item = &'a agent::Agent> {
    let mission = task.mission.and_then(|id| board.missions.get(&id));
    let mission_agents = mission
        .map_or(&[][..], |mission| &mission.agents[..])
        .iter();
    let named = task
        .assignee
        .iter()
        .chain(mission_agents.filter(|_| task.assignee.is_none()));
    named.filter_map(|agent| board.agents.get(agent).map(|agent| &**agent))
}

/// The reason why an agent is idle, or its present work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentWhyView {
    #[serde(flatten, deserialize_with = "crate::json::read_flattened")]
    pub agent: AgentView,
    /// The reasons why the agent gets no more work. The first reason is the decisive one.
    pub waits: Vec<WaitReason>,
    /// The waiting tasks that are assigned to the agent.
    pub line: Vec<TaskId>,
}

impl AgentWhyView {
    /// Builds the view of an agent from the board (the current state of everything). Uses the same
    /// rules as when the agent asks for work.
    pub fn new(board: &Board, agent: &agent::Agent, now: Now) -> AgentWhyView {
        let view = AgentView::new(board, agent, now);
        let mut waits = Vec::new();
        let mut add = |kind, text: String| waits.push(WaitReason { kind, text });
        if let Some(why) = &view.agent.offline {
            add(WaitKind::Runner, format!("it is offline: {why}"));
        }
        if let Some(parked) = provider_outage::find_parked(board, agent) {
            let kind = if parked.deadline_fleet_ms.is_some() {
                WaitKind::RateLimit
            } else {
                WaitKind::Provider
            };
            add(kind, provider_outage::describe(parked, now));
        }
        if view.capacity.available == 0 {
            let task_ids: Vec<String> = view.tasks.iter().map(ToString::to_string).collect();
            let text = format!(
                "it works on {} of at most {}: {}",
                view.capacity.current,
                view.capacity.max,
                task_ids.join(" ")
            );
            add(WaitKind::Slot, text);
        }
        if let Some(text) = runner::no_runner_reason(board, agent) {
            add(WaitKind::Runner, text);
        }
        if let Some(text) = machine_full_reason(board) {
            add(WaitKind::Machine, text);
        }
        let is_assigned = |task: &&std::sync::Arc<Task>| {
            task.assignee.as_ref() == Some(&agent.name) && task.status.is_waiting()
        };
        let assigned: Vec<TaskId> = board
            .tasks
            .values()
            .filter(is_assigned)
            .map(|task| task.id)
            .take(50)
            .collect();
        if waits.is_empty() && view.capacity.current == 0 {
            let reason = |id: &TaskId| {
                Some((
                    *id,
                    TaskView::new(board, board.tasks.get(id)?, now)
                        .waits
                        .into_iter()
                        .next()?,
                ))
            };
            match assigned.first().and_then(reason) {
                Some((id, first)) => waits.push(WaitReason {
                    text: format!("{id} is next: {}", first.text),
                    ..first
                }),
                None => waits.push(WaitReason {
                    kind: WaitKind::Dependency,
                    text: "no task is assigned to it, and none is ready for it in a mission or \
                        the pool"
                        .into(),
                }),
            }
        }
        AgentWhyView {
            agent: view,
            waits,
            line: assigned,
        }
    }
}

/// Returns a duration in a short form: `12s`, `4m`, `3h`, `2d`.
pub fn short_duration(ms: u64) -> String {
    match ms / 1_000 {
        n @ 0..60 => format!("{n}s"),
        n @ 60..3_600 => format!("{}m", n / 60),
        n @ 3_600..172_800 => format!("{}h", n / 3_600),
        n => format!("{}d", n / 86_400),
    }
}
