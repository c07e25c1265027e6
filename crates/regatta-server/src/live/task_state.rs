//! Derives the state of a task as the web page shows it, and counts tasks by state.

use std::collections::BTreeMap;

use regatta_api::live_view::{DisplayState, TaskRowView};
use regatta_api::view;
use regatta_core::board::Board;
use regatta_core::ids::{Now, ProjectName};
use regatta_core::launch::{self, MemberActivity};
use regatta_core::task::{Task, TaskStatus};
use regatta_core::{approval, schedule};

/// Builds the row that shows a task in a list.
pub(crate) fn task_row(board: &Board, task: &Task, now: Now) -> TaskRowView {
    let reason = || {
        schedule::wait_reasons(board, task, now)
            .into_iter()
            .next()
            .map(|wait_reason| wait_reason.text)
    };
    let at = display_state(board, task);
    let text = match task.attempt {
        // The agent waits for a person, so its request is shown instead of its last progress
        // report.
        Some(_) if at == DisplayState::Needs => {
            regatta_core::task_timeline::current_activity(board, task, now).1
        }
        Some(_) => task.progress.lines().next().unwrap_or_default().to_owned(),
        None => reason().or_else(|| task.reason.clone()).unwrap_or_default(),
    };
    TaskRowView {
        id: task.id,
        project: task.project.clone(),
        mission: task.mission,
        subject: task.subject.clone(),
        // The word must match the shown state. A task whose attempt waits for an answer is labelled
        // as needing a person.
        word: if at == DisplayState::Needs {
            TaskStatus::NeedsHuman.label()
        } else {
            view::task_state_label(board, task)
        }
        .into(),
        at,
        agent: task.agent.clone().or_else(|| task.assignee.clone()),
        text,
        since_wall: task.updated_unix_ms,
        blocked_by: task.blocked_by.clone(),
        wave: task.wave,
        priority: task.priority,
        micro_usd: task.spent.usage.micro_usd,
    }
}

/// Number of tasks on the board in each state. The page and `regatta status` show the same numbers.
pub(crate) struct StateCounts(BTreeMap<DisplayState, usize>);

impl StateCounts {
    /// Counts the tasks of the projects that `is_selected` accepts. The sessions of team members
    /// are left out, because the page of their team shows them.
    pub(crate) fn new(board: &Board, is_selected: impl Fn(&ProjectName) -> bool) -> StateCounts {
        let mut counts = BTreeMap::new();
        for task in board
            .tasks
            .values()
            .filter(|task| task.session_of.is_none() && is_selected(&task.project))
        {
            *counts.entry(display_state(board, task)).or_default() += 1;
        }
        StateCounts(counts)
    }

    pub(crate) fn count(&self, state: DisplayState) -> usize {
        self.0.get(&state).copied().unwrap_or_default()
    }
}

/// Returns the state in which the page shows a task.
pub(super) fn display_state(board: &Board, task: &Task) -> DisplayState {
    let attempt = task.attempt.and_then(|id| board.attempts.get(&id));
    let has_open_request =
        attempt.is_some_and(|attempt| approval::open_request_of(board, attempt).is_some());
    match task.status {
        _ if has_open_request => DisplayState::Needs,
        TaskStatus::Completed => DisplayState::Landed,
        TaskStatus::Failed | TaskStatus::Cancelled => DisplayState::Failed,
        TaskStatus::NeedsHuman => DisplayState::Needs,
        TaskStatus::InReview => DisplayState::Review,
        TaskStatus::Landing => DisplayState::Landing,
        // The session of a team member counts as in progress while it runs. If the member has
        // nothing to do, it is shown as idle.
        _ if launch::activity_of_task(board, task, None)
            .is_some_and(|member_activity| member_activity == MemberActivity::Idle) =>
        {
            DisplayState::Idle
        }
        TaskStatus::InProgress | TaskStatus::Validating => DisplayState::Working,
        TaskStatus::Backlog
        | TaskStatus::Unassigned
        | TaskStatus::Offered
        | TaskStatus::Pending => DisplayState::Waiting,
    }
}
