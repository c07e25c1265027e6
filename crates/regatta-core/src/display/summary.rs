//! The counts that every view shows of a whole fleet or of one project: tasks by state, attempts,
//! agents, missions and inbox items.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::board::Board;
use crate::ids::{MissionId, Now, ProjectName};
use crate::inbox::{InboxItem, OpenItem};
use crate::mission::MissionState;
use crate::task::{Task, TaskStatus};
use crate::{budget, inbox, lead, plural, schedule};

use super::{DisplayState, task_display};

/// The counts of a fleet or of one project. The number of agents, the maximum number of attempts and
/// the costs always belong to the whole fleet, because agents, machines and budgets belong to no
/// project. All other values belong to the summary's scope.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FleetSummary {
    /// The number of the last event that the counts include.
    pub revision: u64,
    /// The scope of the summary: one project, or the whole fleet if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<ProjectName>,
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
    /// Number of these items that are agents that cannot work. They belong to no task, so the tasks
    /// in the state `needs` do not include them.
    #[serde(default)]
    pub agents_needing_you: usize,
    /// Number of attempts that run on the daemon's machine and count towards its maximum, `slots`.
    pub running: usize,
    /// Maximum number of attempts on the daemon's machine, for all projects together.
    pub slots: u32,
    /// Number of agents of the whole fleet.
    pub agents: usize,
    /// Cost of today's work on all projects in millionths of a US dollar, if the agents report
    /// prices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent_today_micro_usd: Option<u64>,
    /// Number of tokens that today's work on all projects used.
    #[serde(default)]
    pub spent_today_tokens: u64,
    /// Today's limit for the cost of all work, in millionths of a US dollar, if a limit is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daily_limit_micro_usd: Option<u64>,
    pub missions: Vec<MissionSummary>,
}

impl FleetSummary {
    /// Returns today's costs and the limit for today as a short text for people.
    pub fn spend_text(&self) -> String {
        spend_text(
            self.spent_today_micro_usd,
            self.spent_today_tokens,
            self.daily_limit_micro_usd,
        )
    }

    /// Returns the number of inbox items as a text for people. The text names the agents that cannot
    /// work, because no task is in the state `needs` for them.
    pub fn needs_you_text(&self) -> String {
        let text = format!(
            "{} {} you",
            self.needs_you,
            plural::choose(self.needs_you, "needs", "need")
        );
        let others = self.needs_you.saturating_sub(self.agents_needing_you);
        match (self.agents_needing_you, others) {
            (0, _) => text,
            (agents, 0) => format!("{text}: {} cannot work", plural::count(agents, "agent")),
            (agents, others) => format!(
                "{text}: {} cannot work, {}",
                plural::count(agents, "agent"),
                plural::count(others, "other")
            ),
        }
    }

    /// Returns whether today's work has used tokens or has a cost. Short lists of figures leave
    /// out the costs of a day without any.
    pub fn has_spent(&self) -> bool {
        self.spent_today_tokens > 0 || self.spent_today_micro_usd.is_some()
    }
}

/// Describes today's costs and the limit for today. If the price is unknown, the text says so
/// instead of showing zero.
pub fn spend_text(micro_usd: Option<u64>, tokens: u64, limit_micro_usd: Option<u64>) -> String {
    let spent = match micro_usd {
        Some(micro_usd) => budget::format_dollars(micro_usd),
        None if tokens == 0 => "nothing spent".into(),
        None => format!("{}, no price reported", plural::count(tokens, "token")),
    };
    match limit_micro_usd.map(budget::format_dollars) {
        None => spent,
        Some(limit) if micro_usd.is_none() && tokens > 0 => format!("{spent}, limit {limit}"),
        Some(limit) => format!("{spent} of {limit}"),
    }
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
    /// True if the mission is stopped, so that it starts no tasks until a person resumes it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
}

impl MissionSummary {
    /// Returns the progress as a short text for people, such as "2 of 5 landed".
    pub fn progress_text(&self) -> String {
        let progress = self.landed_text();
        if self.stopped {
            progress + " · stopped"
        } else {
            progress
        }
    }

    fn landed_text(&self) -> String {
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
    count_states(board, shown.map(|task| &**task))
}

/// Counts the open tasks of a mission per state, without the tasks of its lead agent and its
/// conversations.
pub fn mission_state_counts(board: &Board, mission: MissionId) -> BTreeMap<DisplayState, usize> {
    let open = board
        .open_tasks_of(mission)
        .filter_map(|(_, id)| board.tasks.get(&id))
        .filter(|task| task.is_polled() && !task.status.is_terminal());
    count_states(board, open.map(|task| &**task))
}

/// Counts these tasks per state.
pub fn count_states<'a>(
    board: &Board,
    tasks: impl IntoIterator<Item = &'a Task>,
) -> BTreeMap<DisplayState, usize> {
    let states = tasks
        .into_iter()
        .map(|task| task_display(board, task).state);
    count_each(states)
}

/// Counts how often each value occurs. Views count the states of the tasks that they list with this
/// function, so the counts have the order of the states.
pub fn count_each<T: Ord>(values: impl IntoIterator<Item = T>) -> BTreeMap<T, usize> {
    let mut counts = BTreeMap::new();
    for value in values {
        *counts.entry(value).or_default() += 1;
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
    let items = inbox::open_items(board, now);
    let shown_items = || {
        items
            .iter()
            .filter(|item| item.is_shown() && is_selected(item.project.as_ref()))
    };
    let is_agent = |item: &&OpenItem| matches!(item.item, InboxItem::Agent(_));
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
            stopped: mission.state == MissionState::Draining,
        })
        .collect();
    let daily = board.budgets.get(&budget::BudgetScope::Day);
    let spent = budget::spent_on(board, budget::day_of(now), None).usage;
    FleetSummary {
        revision: board.revision,
        project: project.cloned(),
        working: count(DisplayState::Working),
        waiting: count(DisplayState::Waiting),
        backlog: count(DisplayState::Backlog),
        blocked_on_person: count(DisplayState::Needs),
        review: count(DisplayState::Review),
        landing: count(DisplayState::Landing),
        completed: ended.completed,
        failed: ended.failed,
        needs_you: shown_items().count(),
        agents_needing_you: shown_items().filter(is_agent).count(),
        running: schedule::machine_running(board, project),
        slots: board.limits.max_attempts,
        agents: board.agents.len(),
        spent_today_micro_usd: spent.micro_usd,
        spent_today_tokens: spent.tokens(),
        daily_limit_micro_usd: daily.and_then(|budget| budget.ceiling.micro_usd),
        missions,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_that_cannot_work_are_named_because_no_task_needs_a_person_for_them() {
        let cases = [
            (0, 0, "0 need you"),
            (1, 0, "1 needs you"),
            (30, 30, "30 need you: 30 agents cannot work"),
            (3, 1, "3 need you: 1 agent cannot work, 2 others"),
        ];
        for (needs_you, agents_needing_you, text) in cases {
            let summary = FleetSummary {
                needs_you,
                agents_needing_you,
                ..FleetSummary::default()
            };
            assert_eq!(summary.needs_you_text(), text);
        }
    }

    #[test]
    fn the_progress_of_a_stopped_mission_says_so() {
        let mut mission = MissionSummary {
            id: MissionId(1),
            title: "plan".into(),
            open: 1,
            landed: 1,
            tasks: 2,
            queue_position: None,
            stopped: false,
        };
        assert_eq!(mission.progress_text(), "1 of 2 landed");
        mission.stopped = true;
        assert_eq!(mission.progress_text(), "1 of 2 landed · stopped");
    }

    #[test]
    fn spend_is_described_in_words_and_an_unknown_price_is_not_zero() {
        let dollars = |dollars: u64| Some(dollars * 1_000_000);
        let cases = [
            (None, 0, None, "nothing spent"),
            (None, 0, dollars(4), "nothing spent of $4.00"),
            (None, 1, None, "1 token, no price reported"),
            (
                None,
                12,
                dollars(4),
                "12 tokens, no price reported, limit $4.00",
            ),
            (Some(2_845_000), 9, None, "$2.85"),
            (Some(999_999), 9, dollars(4), "$1.00 of $4.00"),
        ];
        for (micro_usd, tokens, limit, text) in cases {
            assert_eq!(spend_text(micro_usd, tokens, limit), text);
        }
    }
}
