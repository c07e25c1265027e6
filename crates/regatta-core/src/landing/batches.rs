//! A project's queue for display: batches in the order in which they will reach the trunk.
//!
//! A trial's state is kept in the row of its last landing. The landings before it in the same trial
//! have the stored state `Queued`, although they are being tested or moved, too. This module gives
//! each landing its effective state.

use serde::{Deserialize, Serialize};

use crate::board::Board;
use crate::ids::{LandingId, Now, ProjectName};

use super::{Landing, LandingState, queue};

/// The effective state of a landing, in its own trial or as a member of another landing's trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LandingProgress {
    // The states nearest to the trunk come first, because the derived order is used.
    Moving,
    /// It passed its trial and waits for the trunk.
    Passed,
    Testing,
    /// A trial with it failed, and the queue searches for the landing at fault.
    Searching,
    Queued,
    /// It is deferred behind the landings with which it conflicts.
    #[serde(rename = "behind")]
    Deferred,
    /// It is held until its retry time or until somebody asks for it.
    Held,
}

/// Landings that are tried or moved together, in order: the members of one trial that no shorter
/// trial carries, or a single landing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueBatch {
    pub progress: LandingProgress,
    pub landings: Vec<LandingId>,
    /// The last landing of the batch below this one; `None` if this batch is based on the trunk.
    pub stands_on: Option<LandingId>,
    /// Reason for which the trial of this batch failed.
    pub failed: Option<String>,
}

/// Returns the whole queue of a project, nearest to the trunk first: landings that may be tried in
/// merge order, then all others.
pub fn batches_of(board: &Board, project: &ProjectName, now: Now) -> Vec<QueueBatch> {
    let order = queue::merge_order(board, project, now);
    let aside = board
        .queue_of(project)
        .map(|landing| landing.id)
        .filter(|id| !order.contains(id));
    let mut batches: Vec<QueueBatch> = Vec::new();
    // The trial to which the last batch belongs, if it belongs to one.
    let mut trial_of_last_batch: Option<LandingId> = None;
    for id in order.iter().copied().chain(aside) {
        let Some(landing) = board.landings.get(&id) else {
            continue;
        };
        let (progress, trial) = progress_of(board, landing);
        match batches.last_mut() {
            Some(batch)
                if trial.is_some()
                    && trial_of_last_batch == trial
                    && batch.progress == progress =>
            {
                batch.landings.push(id);
            }
            below => {
                let is_tried = matches!(
                    progress,
                    LandingProgress::Moving | LandingProgress::Passed | LandingProgress::Testing
                );
                let stands_on = below
                    .and_then(|batch| batch.landings.last())
                    .copied()
                    .filter(|_| is_tried);
                batches.push(QueueBatch {
                    progress,
                    landings: vec![id],
                    stands_on,
                    failed: None,
                });
                trial_of_last_batch = trial;
            }
        }
        if let (LandingProgress::Searching, Some(batch)) = (progress, batches.last_mut()) {
            batch.failed = trial
                .and_then(|id| board.landings.get(&id)?.failed_trial.as_ref())
                .map(|failed_trial| failed_trial.reason.clone());
        }
    }
    batches
}

/// Returns a landing's effective state, with the last landing of the trial that determines it.
fn progress_of(board: &Board, landing: &Landing) -> (LandingProgress, Option<LandingId>) {
    if landing.held.is_some() {
        return (LandingProgress::Held, None);
    }
    let queue = || board.queue_of(&landing.project);
    // The shortest failed trial that contains the landing, as its length and its last landing.
    let failed_trial = queue()
        .filter_map(|last| {
            let failed_trial = last
                .failed_trial
                .as_ref()
                .filter(|_| !queue::is_deferred(board, last))?;
            (last.id == landing.id || failed_trial.ahead.contains(&landing.id))
                .then_some((failed_trial.ahead.len() + 1, last.id))
        })
        .min();
    let trials = queue().filter_map(|last| {
        let progress = match &last.state {
            LandingState::Moving { .. } => LandingProgress::Moving,
            // A passed trial proves nothing for members ahead whose own trial has not passed (Q1).
            LandingState::Validated { .. }
                if last.id != landing.id && !queue::is_verified(board, last) =>
            {
                return None;
            }
            LandingState::Validated { .. } => LandingProgress::Passed,
            LandingState::Trying { void: false, .. } => LandingProgress::Testing,
            LandingState::Trying { .. } | LandingState::Queued => return None,
        };
        let trial = last.trial_landings();
        // A longer trial than the failed one contains the failure, so its result will add nothing.
        // A trial of equal length repeats the failed one, because all trials are prefixes of one
        // order.
        let contains_failure = |(failed_length, _): (usize, LandingId)| {
            progress == LandingProgress::Testing && trial.len() > failed_length
        };
        if !trial.contains(&landing.id) || failed_trial.is_some_and(contains_failure) {
            return None;
        }
        Some((progress, trial.len(), last.id))
    });
    match (trials.min(), failed_trial) {
        (Some((progress, _, last)), _) => (progress, Some(last)),
        (None, Some((_, last))) => (LandingProgress::Searching, Some(last)),
        (None, None) if queue::is_deferred(board, landing) => (LandingProgress::Deferred, None),
        (None, None) => (LandingProgress::Queued, None),
    }
}
