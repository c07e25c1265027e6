//! The actions that a person can take on a task in its present state.

use crate::landing::Landing;
use crate::task::{Task, TaskStatus};

/// An action that a person can take on a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskAction {
    /// Lets reviewed work enter the merge queue.
    Land,
    /// Moves work in the merge queue to the front.
    LandFirst,
    /// Sends the work back to the agent with a text.
    Revise,
    /// Gives up the work.
    Drop,
    /// Starts the task again.
    Retry,
    /// Reverts the landed work.
    Undo,
    /// Sends a text to the agent that works on the task.
    Tell,
    Resume,
    Pause,
    Cancel,
}

/// Returns the actions that a person can take on a task, the most important first. `landing` is the
/// task's landing in the merge queue, if there is one.
pub fn possible_actions(task: &Task, landing: Option<&Landing>) -> Vec<TaskAction> {
    let is_queued = landing.is_some_and(|landing| landing.end.is_none());
    let mut actions = match task.status {
        TaskStatus::InReview => vec![TaskAction::Land, TaskAction::Revise, TaskAction::Drop],
        TaskStatus::Landing if is_queued => {
            vec![TaskAction::LandFirst, TaskAction::Revise, TaskAction::Drop]
        }
        TaskStatus::NeedsHuman | TaskStatus::Failed | TaskStatus::Cancelled => {
            vec![TaskAction::Retry]
        }
        TaskStatus::Completed if task.landed.is_some() => vec![TaskAction::Undo],
        _ => vec![],
    };
    let is_open = !task.status.is_terminal();
    let is_checked = matches!(task.status, TaskStatus::InReview | TaskStatus::Landing);
    let can_be_paused = task.attempt.is_some() || task.status.is_waiting();
    let others = [
        (task.attempt.is_some(), TaskAction::Tell),
        (is_open && task.paused.is_some(), TaskAction::Resume),
        (
            can_be_paused && !(is_open && task.paused.is_some()),
            TaskAction::Pause,
        ),
        (is_open && !is_checked, TaskAction::Cancel),
    ];
    let possible = others.into_iter().filter(|(is_possible, _)| *is_possible);
    actions.extend(possible.map(|(_, action)| action));
    actions
}
