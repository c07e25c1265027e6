//! Builds the row that the web page shows for each task.

use regatta_api::live_view::{DisplayState, TaskRowView};
use regatta_core::board::Board;
use regatta_core::ids::Now;
use regatta_core::task::Task;
use regatta_core::{display, schedule};

/// Builds the row of a task in the page's list of tasks. `board` is the daemon's state in memory.
pub(crate) fn task_row(board: &Board, task: &Task, now: Now) -> TaskRowView {
    let reason = || {
        schedule::wait_reasons(board, task, now)
            .into_iter()
            .next()
            .map(|wait_reason| wait_reason.text)
    };
    let shown = display::task_display(board, task);
    let text = match task.attempt {
        // Show the request of the task's agent instead of its last progress report, because a
        // person must answer the request.
        Some(_) if shown.state == DisplayState::Needs => {
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
        word: shown.label.into(),
        at: shown.state,
        rank: display::task_rank(board, task),
        agent: task.agent.clone().or_else(|| task.assignee.clone()),
        text,
        since_wall: task.updated_unix_ms,
        blocked_by: task.blocked_by.clone(),
        wave: task.wave,
        priority: task.priority,
        micro_usd: task.spent.usage.micro_usd,
    }
}
