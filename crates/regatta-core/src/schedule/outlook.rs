//! Counts a mission's unfinished tasks, and how many of them cannot continue without a person.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::board::Board;
use crate::budget;
use crate::display::{self, DisplayState};
use crate::ids::{MissionId, TaskId};
use crate::mission;
use crate::task::Task;

use super::{current_step, has_only_parked_agents, is_active};

/// The number of a mission's unfinished tasks, and the number of those tasks that cannot continue
/// without a person.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MissionOutlook {
    pub open: usize,
    /// Tasks in the state `working`.
    pub running: usize,
    /// Tasks in the state `landing`.
    pub landing: usize,
    /// Tasks that cannot continue without a person: they need a decision, lack files or checks that
    /// they must have, have used up their budget, or depend on such a task.
    pub stuck: usize,
    /// Tasks whose finished work cannot be merged at present, for example because the user's
    /// checkout has local changes.
    pub held: usize,
}

impl MissionOutlook {
    /// Returns whether the mission cannot make any progress without a person.
    pub fn is_settled(&self) -> bool {
        self.stuck + self.held == self.open
    }
}

/// Counts a mission's unfinished tasks, and how many of them cannot continue without a person. A
/// task whose agent waits for an answer is not stuck, because the agent may continue without it.
pub fn outlook(board: &Board, mission: MissionId) -> MissionOutlook {
    let open: Vec<_> = board
        .open_tasks_of(mission)
        .filter_map(|(_, id)| board.tasks.get(&id))
        .collect();
    let counts = display::count_states(board, open.iter().map(|task| &***task));
    let count = |state| counts.get(&state).copied().unwrap_or_default();
    let stuck = stuck_tasks(board, mission, &open);
    let is_stuck = |task: &&&Arc<Task>| stuck.contains(&task.id) && !is_moving(task);
    MissionOutlook {
        open: open.len(),
        running: count(DisplayState::Working),
        landing: count(DisplayState::Landing),
        stuck: open.iter().filter(is_stuck).count(),
        held: open.iter().filter(|task| is_held(board, task)).count(),
    }
}

/// Returns whether a task is worked on, or its work is in the merge queue.
fn is_moving(task: &Task) -> bool {
    task.status.is_running() || task.status.is_landing()
}

/// Returns whether a task's finished work is in the landing queue but cannot be merged.
fn is_held(board: &Board, task: &Task) -> bool {
    task.status.is_landing() && needs_clean_checkout(board, task)
}

/// Returns whether a task's finished work is held in the landing queue, which happens when local
/// changes in the user's checkout are in the way.
fn needs_clean_checkout(board: &Board, task: &Task) -> bool {
    task.landing
        .and_then(|id| board.landings.get(&id))
        .is_some_and(|landing| landing.held.is_some())
}

/// Returns a mission's unfinished tasks that cannot continue without a person.
fn stuck_tasks(board: &Board, mission: MissionId, open: &[&Arc<Task>]) -> BTreeSet<TaskId> {
    let Some(mission) = board.missions.get(&mission) else {
        return BTreeSet::new();
    };
    let is_hopeless = |task: &Task| {
        !task.status.is_landing()
            && (!is_active(board, task)
                || has_only_parked_agents(board, mission, task)
                || (task.status.is_waiting() && budget::needs_raise(board, mission, task)))
    };
    let mut stuck: BTreeSet<TaskId> = open
        .iter()
        .filter(|task| is_hopeless(task))
        .map(|task| task.id)
        .collect();
    // Finished work that is held back waits for a person, and so does every task that depends on
    // such work directly or indirectly.
    let held: BTreeSet<TaskId> = open
        .iter()
        .filter(|task| needs_clean_checkout(board, task))
        .map(|task| task.id)
        .collect();
    let current = current_step(board, mission.id);
    loop {
        let is_stopped = |id: &TaskId| stuck.contains(id) || held.contains(id);
        // If all tasks of the current wave (tasks that run at the same time) are stopped and at
        // least one is held back, the later waves cannot start either.
        let is_wave_blocked = mission.mode == mission::StartMode::Waves
            && !held.is_empty()
            && open
                .iter()
                .filter(|task| task.step() == current)
                .all(|task| is_stopped(&task.id));
        let more: Vec<TaskId> = open
            .iter()
            .filter(|task| task.status.is_waiting() && !stuck.contains(&task.id))
            .filter(|task| {
                task.blocked_by.iter().any(is_stopped)
                    || (is_wave_blocked && task.step() != current)
            })
            .map(|task| task.id)
            .collect();
        if more.is_empty() {
            return stuck;
        }
        stuck.extend(more);
    }
}
