//! Sentences about landings in the queue.

use crate::attempt::first_few;
use crate::board::Board;
use crate::ids::{LandingId, TaskId};
use crate::landing::Landing;
use crate::landing::batches::{LandingProgress, QueueBatch};

/// Describes the state of a landing in more detail: the other landings of its batch, or the
/// landings for which it waits. `before` is the task whose work is directly ahead in the queue.
pub fn landing_detail(
    board: &Board,
    landing: &Landing,
    batch: &QueueBatch,
    before: Option<TaskId>,
) -> String {
    match batch.progress {
        LandingProgress::Held => landing.held.clone().unwrap_or_default(),
        LandingProgress::Moving | LandingProgress::Passed | LandingProgress::Testing => {
            let others = batch.landings.iter().filter(|id| **id != landing.id);
            let companions = task_names(board, others);
            let base = task_names(board, &batch.stands_on);
            let parts = [("with", companions), ("on top of", base)];
            parts
                .iter()
                .filter(|(_, names)| !names.is_empty())
                .map(|(relation, names)| format!("{relation} {names}"))
                .collect::<Vec<_>>()
                .join(", ")
        }
        LandingProgress::Searching => searching_text(board, landing, batch),
        LandingProgress::Deferred => deferral_text(board, landing),
        LandingProgress::Queued => before.map_or(String::new(), |task| format!("after {task}")),
    }
}

/// Describes the failure of a landing's batch. Only the first landing of the batch has the reason.
fn searching_text(board: &Board, landing: &Landing, batch: &QueueBatch) -> String {
    let fault = if batch.landings.len() > 1 {
        format!(
            "one of {} breaks its batch",
            task_names(board, &batch.landings)
        )
    } else {
        "its batch failed".into()
    };
    let reason = batch.failed.as_deref().and_then(|text| text.lines().next());
    let is_first = batch.landings.first() == Some(&landing.id);
    match reason.filter(|reason| is_first && !reason.is_empty()) {
        Some(reason) => format!("{fault}: {reason}"),
        None => fault,
    }
}

/// Explains why finished work waits for other work in the landing queue. Either the waiting work
/// failed a check and is tried again after the other work, or it conflicts with the other work.
pub fn deferral_text(board: &Board, landing: &Landing) -> String {
    let names = task_names(board, &landing.deferred_behind);
    if landing.faults > 0 {
        format!("it failed a check once merged; it is tried again after {names}")
    } else if landing.deferred_behind.len() == 1 {
        format!("it conflicts with {names}, which lands first")
    } else {
        format!("it conflicts with one of {names}, which land first")
    }
}

/// Names the tasks of landings.
fn task_names<'a>(board: &Board, ids: impl IntoIterator<Item = &'a LandingId>) -> String {
    let names: Vec<String> = ids
        .into_iter()
        .filter_map(|id| Some(board.landings.get(id)?.task.to_string()))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    first_few(&names)
}
