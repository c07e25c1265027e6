//! Computes a project's landing queue for display, as batches in the order in which they will reach
//! the trunk.
//!
//! The state of a trial (a test merge of several landings) is stored only in the row of its last
//! landing. The landings before it in the trial have the stored state `Queued`, although they are
//! being tested or moved, too. This module computes for each landing the state that people should
//! see.

use serde::{Deserialize, Serialize};

use crate::board::Board;
use crate::ids::{LandingId, Now, ProjectName};

use super::{Landing, LandingState, queue, trial_start};

/// The state of a landing as people see it, including landings that are tested or moved as part of
/// another landing's trial merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LandingProgress {
    // The order of the variants matters, because the code compares them with the derived `Ord`: the
    // variant nearest to the trunk comes first.
    Moving,
    /// The landing passed its trial merge and waits until the trunk can move.
    Passed,
    Testing,
    /// A trial merge that contains this landing failed, and Regatta is finding out which landing is
    /// at fault.
    Searching,
    Queued,
    /// The landing waits until certain other landings have landed or left the queue, because it
    /// conflicts with them or failed a trial merge.
    #[serde(rename = "behind")]
    Deferred,
    /// The landing is held back until its retry time, or until somebody asks for it.
    Held,
}

/// Landings that are tested or moved together, in merge order: a single landing, or all landings of
/// one trial merge that are not part of a shorter trial merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueBatch {
    pub progress: LandingProgress,
    pub landings: Vec<LandingId>,
    /// If this batch is being tested on top of another batch, the last landing of that other batch.
    /// `None` if this batch is based on the trunk or is not being tested.
    pub stands_on: Option<LandingId>,
    /// Reason why the trial merge of this batch failed. Set only while Regatta searches for the
    /// landing at fault.
    pub failed: Option<String>,
}

/// Returns the whole queue of a project, nearest to the trunk first: the landings that may enter a
/// trial merge, in merge order, and then all other landings.
pub fn batches_of(board: &Board, project: &ProjectName, now: Now) -> Vec<QueueBatch> {
    let order = queue::merge_order(board, project, now);
    let aside = board
        .queue_of(project)
        .map(|landing| landing.id)
        .filter(|id| !order.contains(id));
    let mut batches: Vec<QueueBatch> = Vec::new();
    // The trial merge that determines the state of the last batch, named by the trial's last
    // landing. The next landing joins the batch if the same trial determines its state.
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

/// Returns the state of a landing as people see it. If a trial merge determines the state, also
/// returns that trial's last landing.
fn progress_of(board: &Board, landing: &Landing) -> (LandingProgress, Option<LandingId>) {
    if landing.held.is_some() {
        return (LandingProgress::Held, None);
    }
    let queue = || board.queue_of(&landing.project);
    // The shortest failed trial merge that contains this landing: its number of landings, and its
    // last landing.
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
            // A passed trial merge that ends with `last` proves nothing about the landings ahead of
            // `last` while some commits of the trial have not passed a trial of their own (Q1). So
            // this trial gives those landings no state.
            LandingState::Validated { .. }
                if last.id != landing.id && !trial_start::is_verified(board, last) =>
            {
                return None;
            }
            LandingState::Validated { .. } => LandingProgress::Passed,
            LandingState::Trying { void: false, .. } => LandingProgress::Testing,
            LandingState::Trying { .. } | LandingState::Queued => return None,
        };
        let trial = last.trial_landings();
        // A running trial merge that is longer than the failed one contains the failing commit, so
        // its result will tell nothing new. A trial of equal length repeats the failed one, because
        // every trial tests the first landings of the same order.
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
