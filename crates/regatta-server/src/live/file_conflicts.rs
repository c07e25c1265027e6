//! Builds the conflicts and tasks of the page's map of files. A conflict is a set of tasks that
//! need the same files without an order between them. Each conflict says what happens if nobody
//! acts, and offers to put the tasks in order.

use std::collections::{BTreeMap, BTreeSet};

use regatta_api::file_map::FileCell;
use regatta_api::live_view::{FileConflictView, FileTaskView, PageAction};
use regatta_core::board::Board;
use regatta_core::display;
use regatta_core::ids::{Now, TaskId};
use regatta_core::plural;
use regatta_core::project::Project;
use serde_json::json;

use super::actions::new_button;

/// Maximum number of conflicts that the page shows for a project.
const MAX_CONFLICTS: usize = 50;
/// Maximum number of paths that the page names for one conflict.
const MAX_PATHS: usize = 6;
/// Maximum number of tasks that a sentence about a conflict names.
const MAX_NAMED_TASKS: usize = 3;

/// Returns the tasks that hold a shown file or wait for one.
pub(super) fn file_tasks(board: &Board, cells: &[FileCell], now: Now) -> Vec<FileTaskView> {
    let ids: BTreeSet<TaskId> = cells
        .iter()
        .flat_map(|cell| {
            let holders = cell.held.iter().filter_map(|holder| holder.task);
            holders
                .chain(cell.wanted.iter().copied())
                .chain(cell.clashing_tasks.iter().copied())
        })
        .collect();
    let view = |id: TaskId| {
        let task = board.tasks.get(&id)?;
        let shown = display::task_display(board, task);
        let attempt = task.attempt.and_then(|id| board.attempts.get(&id));
        let deadline_fleet_ms = attempt.and_then(|attempt| attempt.deadline_fleet_ms);
        Some(FileTaskView {
            id,
            subject: task.subject.clone(),
            agent: task.agent.clone().or_else(|| task.assignee.clone()),
            at: shown.state,
            word: shown.label.into(),
            deadline_unix_ms: deadline_fleet_ms.map(|at| {
                let left_ms = at.saturating_sub(now.fleet_ms);
                (now.unix_ms + left_ms).div_ceil(60_000) * 60_000
            }),
        })
    };
    ids.into_iter().filter_map(view).collect()
}

/// Returns the conflicts of a project: first those of unfinished changes, then those that only need
/// an order, each with the most tasks first.
pub(super) fn file_conflicts(
    board: &Board,
    project: &Project,
    cells: &[FileCell],
) -> Vec<FileConflictView> {
    let forecast = &project.collision_forecast.collisions;
    let merges = forecast.iter().map(|collision| {
        let tasks = [Some(collision.one), collision.other];
        let tasks: Vec<TaskId> = tasks.into_iter().flatten().collect();
        merge_conflict(&tasks, &collision.paths)
    });
    let merged: BTreeSet<Vec<TaskId>> = forecast
        .iter()
        .map(|collision| {
            let tasks: BTreeSet<TaskId> = [Some(collision.one), collision.other]
                .into_iter()
                .flatten()
                .collect();
            tasks.into_iter().collect()
        })
        .collect();
    let mut cells_by_tasks: BTreeMap<&[TaskId], Vec<&FileCell>> = BTreeMap::new();
    for cell in cells.iter().filter(|cell| !cell.clashing_tasks.is_empty()) {
        if !merged.contains(&cell.clashing_tasks) {
            cells_by_tasks
                .entry(&cell.clashing_tasks)
                .or_default()
                .push(cell);
        }
    }
    let mut unordered: Vec<FileConflictView> = cells_by_tasks
        .into_iter()
        .map(|(tasks, cells)| unordered_conflict(board, tasks, &cells))
        .collect();
    unordered.sort_by_key(|conflict| std::cmp::Reverse(conflict.tasks.len()));
    merges.chain(unordered).take(MAX_CONFLICTS).collect()
}

/// Describes unfinished changes that conflicted when they were merged as a test.
fn merge_conflict(tasks: &[TaskId], paths: &[String]) -> FileConflictView {
    let text = match tasks {
        [one, other] => format!("The unfinished changes of {one} and {other} conflict."),
        [one, ..] => format!("The unfinished change of {one} conflicts with the trunk."),
        [] => String::new(),
    };
    FileConflictView {
        tasks: tasks.to_vec(),
        paths: paths.iter().take(MAX_PATHS).cloned().collect(),
        path_count: paths.len(),
        is_merge_conflict: true,
        text,
        advice: "Nothing is lost: the change that lands second goes back to its agent to be \
                 adapted. To avoid that, tell the agents of each other's change."
            .into(),
        actions: Vec::new(),
    }
}

/// Describes tasks that need the same files, and between which nothing decides which goes first.
fn unordered_conflict(board: &Board, tasks: &[TaskId], cells: &[&FileCell]) -> FileConflictView {
    let is_holder = |id: &TaskId| {
        cells
            .iter()
            .flat_map(|cell| &cell.held)
            .any(|holder| holder.task == Some(*id))
    };
    let (holders, waiting): (Vec<TaskId>, Vec<TaskId>) = tasks.iter().partition(|id| is_holder(id));
    let text = if holders.is_empty() {
        format!(
            "{} need the same files. They run one after another, in no fixed order.",
            names(&waiting)
        )
    } else if waiting.is_empty() {
        format!("{} hold the same files now.", names(&holders))
    } else {
        let then = if waiting.len() > 1 {
            "start one after another when they are free, in no fixed order"
        } else {
            "starts when they are free"
        };
        format!(
            "{} {} the files now. {} {then}.",
            names(&holders),
            plural::choose(holders.len(), "holds", "hold"),
            names(&waiting),
        )
    };
    let actions = match (holders.first(), waiting.as_slice()) {
        (Some(first), [second, ..]) | (None, [first, second, ..]) => {
            order_actions(board, *first, *second)
        }
        _ => Vec::new(),
    };
    FileConflictView {
        tasks: holders.iter().chain(&waiting).copied().collect(),
        paths: cells
            .iter()
            .take(MAX_PATHS)
            .map(|cell| cell.path.clone())
            .collect(),
        path_count: cells.len(),
        is_merge_conflict: false,
        text,
        advice: "If the order matters, let one task wait for the other.".into(),
        actions,
    }
}

/// Names some tasks in a sentence: the first ones, and the number of the others.
fn names(tasks: &[TaskId]) -> String {
    let shown: Vec<String> = tasks
        .iter()
        .take(MAX_NAMED_TASKS)
        .map(ToString::to_string)
        .collect();
    let more = tasks.len().saturating_sub(MAX_NAMED_TASKS);
    match (more, shown.split_last()) {
        (0, Some((last, others))) if !others.is_empty() => {
            format!("{} and {last}", others.join(", "))
        }
        (0, _) => shown.join(", "),
        (more, _) => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Returns the button that lets the task `second` wait until the task `first` has landed.
fn order_actions(board: &Board, first: TaskId, second: TaskId) -> Vec<PageAction> {
    let Some(task) = board.tasks.get(&second) else {
        return Vec::new();
    };
    let mut blocked_by = task.blocked_by.clone();
    blocked_by.push(first);
    let listed: Vec<String> = blocked_by.iter().map(ToString::to_string).collect();
    vec![new_button(
        &format!("Run {second} after {first}"),
        "task.set",
        json!({ "task": second, "edit": { "blocked_by": blocked_by } }),
        format!(
            "regatta task set {second} --blocked-by {}",
            listed.join(",")
        ),
    )]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_names_three_tasks_and_counts_the_others() {
        let ids = |count: u64| (1..=count).map(TaskId).collect::<Vec<_>>();
        assert_eq!(names(&ids(1)), "T1");
        assert_eq!(names(&ids(2)), "T1 and T2");
        assert_eq!(names(&ids(3)), "T1, T2 and T3");
        assert_eq!(names(&ids(5)), "T1, T2, T3 and 2 more");
    }

    #[test]
    fn a_merge_conflict_names_both_tasks_or_the_trunk() {
        let paths = ["src/a.rs".to_owned()];
        let both = merge_conflict(&[TaskId(1), TaskId(2)], &paths);
        assert_eq!(both.text, "The unfinished changes of T1 and T2 conflict.");
        assert_eq!(
            merge_conflict(&[TaskId(1)], &paths).text,
            "The unfinished change of T1 conflicts with the trunk."
        );
        assert_eq!((both.path_count, both.is_merge_conflict), (1, true));
    }
}
