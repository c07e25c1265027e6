//! The counts that every view shows of a whole fleet or of one project: tasks by state, attempts,
//! agents, missions and inbox items.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::board::Board;
use crate::ids::{MissionId, Now, ProjectName};
use crate::task::{Task, TaskStatus};
use crate::{budget, inbox, lead, schedule};

use super::{DisplayState, task_display};

/// The counts of a fleet or of one project.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FleetSummary {
    /// The number of the last event that the counts include.
    pub revision: u64,
    /// Number of open tasks in the state `working`.
    pub working: usize,
    /// Number of open tasks in the state `waiting`.
    pub waiting: usize,
    /// Number of tasks that are kept for later.
    pub backlog: usize,
    /// Number of tasks in the state `needs`.
    pub blocked_on_person: usize,
    /// Number of tasks in the state `review`.
    pub review: usize,
    /// Number of tasks whose change is in the merge queue.
    pub landing: usize,
    /// Number of completed tasks. A task is completed when its change has landed or its report was
    /// delivered.
    #[serde(default)]
    pub completed: u64,
    /// Number of failed tasks, without cancelled tasks.
    #[serde(default)]
    pub failed: u64,
    /// Number of items in the inbox that are not snoozed.
    pub needs_you: usize,
    /// Number of attempts that run on the daemon's machine and count towards its maximum, `slots`.
    pub running: usize,
    pub slots: u32,
    /// Number of agents. Agents belong to no project, so the summary of one project also counts all
    /// agents.
    pub agents: usize,
    /// Cost of today's work on all projects in millionths of a US dollar, if the agents report
    /// prices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent_today_micro_usd: Option<u64>,
    /// Today's limit for the cost of all work, in millionths of a US dollar, if a limit is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daily_limit_micro_usd: Option<u64>,
    pub missions: Vec<MissionSummary>,
}

/// A running mission.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MissionSummary {
    pub id: MissionId,
    pub title: String,
    /// Number of the mission's tasks that are not over.
    pub open: usize,
    /// Number of the mission's tasks that are completed.
    #[serde(default)]
    pub landed: u64,
    /// Number of the mission's tasks, without the tasks of its lead (an agent that splits the
    /// mission into tasks).
    #[serde(default)]
    pub tasks: u64,
    /// The mission's position in the queue for a lead (an agent that splits the mission into
    /// tasks), counting from 1. Present while the mission waits for a lead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "place")]
    pub queue_position: Option<usize>,
}

impl MissionSummary {
    /// Returns the progress as a short text for people, such as "2 of 5 landed".
    pub fn progress_text(&self) -> String {
        match (self.queue_position, self.tasks) {
            (Some(position), _) => format!("queued for a lead, position {position}"),
            (None, 0) => "no task yet".into(),
            (None, tasks) => format!("{} of {tasks} landed", self.landed),
        }
    }
}

/// Numbers of tasks by how the tasks ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskCounts {
    /// Number of all tasks, including open tasks.
    pub tasks: u64,
    pub completed: u64,
    pub failed: u64,
    pub cancelled: u64,
}

impl TaskCounts {
    /// Counts these tasks.
    pub fn from_tasks<'a>(tasks: impl IntoIterator<Item = &'a Task>) -> TaskCounts {
        let mut counts = TaskCounts::default();
        for task in tasks {
            counts.tasks += 1;
            match task.status {
                TaskStatus::Completed => counts.completed += 1,
                TaskStatus::Failed => counts.failed += 1,
                TaskStatus::Cancelled => counts.cancelled += 1,
                _ => {}
            }
        }
        counts
    }
}

/// The numbers of ended tasks of a fleet or of one project. The caller reads these numbers from the
/// store, because the board contains only open tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndedCounts {
    pub completed: u64,
    pub failed: u64,
    /// The counts of each running mission. In a mission with a lead, only tasks that agents poll
    /// are counted, because the lead's own tasks land nothing.
    pub missions: BTreeMap<MissionId, TaskCounts>,
}

/// Counts the open tasks per state. The sessions of teams are left out, because nobody asked for
/// these sessions as work; the team's view shows the sessions.
pub fn state_counts(board: &Board, project: Option<&ProjectName>) -> BTreeMap<DisplayState, usize> {
    let shown = board
        .tasks
        .values()
        .filter(|task| task.session_of().is_none())
        .filter(|task| project.is_none_or(|only| *only == task.project));
    count_states(board, shown)
}

/// Counts the open tasks of a mission per state, without the tasks of its lead agent and its
/// conversations.
pub fn mission_state_counts(board: &Board, mission: MissionId) -> BTreeMap<DisplayState, usize> {
    let open = board
        .open_tasks_of(mission)
        .filter_map(|(_, id)| board.tasks.get(&id))
        .filter(|task| task.is_polled() && !task.status.is_terminal());
    count_states(board, open)
}

fn count_states<'a>(
    board: &Board,
    tasks: impl Iterator<Item = &'a Arc<Task>>,
) -> BTreeMap<DisplayState, usize> {
    let mut counts = BTreeMap::new();
    for task in tasks {
        let state = task_display(board, task).state;
        *counts.entry(state).or_default() += 1;
    }
    counts
}

/// Returns the counts of the whole fleet (all projects of the daemon), or of one project. `ended`
/// contains the counts that are only in the store.
pub fn fleet_summary(
    board: &Board,
    project: Option<&ProjectName>,
    ended: &EndedCounts,
    now: Now,
) -> FleetSummary {
    let counts = state_counts(board, project);
    let count = |state| counts.get(&state).copied().unwrap_or_default();
    let is_selected = |of: Option<&ProjectName>| of.is_none() || project.is_none() || of == project;
    let needs_you = inbox::open_items(board, now)
        .iter()
        .filter(|item| item.is_shown() && is_selected(item.project.as_ref()))
        .count();
    let ended_of = |id: MissionId| ended.missions.get(&id).copied().unwrap_or_default();
    let missions = board
        .missions
        .values()
        .filter(|mission| is_selected(Some(&mission.project)))
        .map(|mission| MissionSummary {
            id: mission.id,
            title: mission.title.clone(),
            open: mission_state_counts(board, mission.id).values().sum(),
            landed: ended_of(mission.id).completed,
            tasks: ended_of(mission.id).tasks,
            queue_position: lead::queue_position(board, mission.id),
        })
        .collect();
    let daily = board.budgets.get(&budget::BudgetScope::Day);
    FleetSummary {
        revision: board.revision,
        working: count(DisplayState::Working),
        waiting: count(DisplayState::Waiting),
        backlog: count(DisplayState::Backlog),
        blocked_on_person: count(DisplayState::Needs),
        review: count(DisplayState::Review),
        landing: count(DisplayState::Landing),
        completed: ended.completed,
        failed: ended.failed,
        needs_you,
        running: schedule::machine_running(board),
        slots: board.limits.max_attempts,
        agents: board.agents.len(),
        spent_today_micro_usd: budget::spent_on(board, budget::day_of(now), None)
            .usage
            .micro_usd,
        daily_limit_micro_usd: daily.and_then(|budget| budget.ceiling.micro_usd),
        missions,
    }
}
