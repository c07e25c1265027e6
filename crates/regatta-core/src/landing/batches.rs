//! A project's queue as people see it: batches in the order in which they will reach the trunk.
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
    // The nearest to the trunk comes first.
    Moving,
    /// It passed its trial and waits for the trunk.
    Passed,
    Testing,
    /// A trial with it failed, and the landing at fault is searched.
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
    /// The last landing of the batch below this one; `None` if this batch stands on the trunk.
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
    let mut batches: Vec<(Option<LandingId>, QueueBatch)> = Vec::new();
    for id in order.iter().copied().chain(aside) {
        let Some(landing) = board.landings.get(&id) else {
            continue;
        };
        let (ride, last) = progress_of(board, landing);
        match batches
            .last_mut()
            .filter(|batch| last.is_some() && batch.0 == last && batch.1.progress == ride)
        {
            Some((_, batch)) => batch.landings.push(id),
            None => {
                let tried = matches!(
                    ride,
                    LandingProgress::Moving | LandingProgress::Passed | LandingProgress::Testing
                );
                let on = batches
                    .last()
                    .and_then(|batch| batch.1.landings.last())
                    .copied()
                    .filter(|_| tried);
                batches.push((
                    last,
                    QueueBatch {
                        progress: ride,
                        landings: vec![id],
                        stands_on: on,
                        failed: None,
                    },
                ));
            }
        }
        if let (LandingProgress::Searching, Some((_, batch))) = (ride, batches.last_mut()) {
            batch.failed = last
                .and_then(|id| board.landings.get(&id)?.failed_trial.as_ref())
                .map(|failed_trial| failed_trial.reason.clone());
        }
    }
    batches.into_iter().map(|batch| batch.1).collect()
}

/// Returns a landing's effective state, with the last landing of the trial that determines it.
fn progress_of(board: &Board, landing: &Landing) -> (LandingProgress, Option<LandingId>) {
    if landing.held.is_some() {
        return (LandingProgress::Held, None);
    }
    let others = || board.queue_of(&landing.project);
    // The shortest failed trial that contains it.
    let red = others().filter_map(|other| {
        let red = other
            .failed_trial
            .as_ref()
            .filter(|_| !queue::is_deferred(board, other))?;
        (other.id == landing.id || red.ahead.contains(&landing.id))
            .then_some((red.ahead.len() + 1, other.id))
    });
    let red = red.min();
    let trains = others().filter_map(|other| {
        let ride = match &other.state {
            LandingState::Moving { .. } => LandingProgress::Moving,
            // A passed trial proves nothing for members ahead whose own trial has not passed (Q1).
            LandingState::Validated { .. }
                if other.id != landing.id && !queue::is_verified(board, other) =>
            {
                return None;
            }
            LandingState::Validated { .. } => LandingProgress::Passed,
            LandingState::Trying { void: false, .. } => LandingProgress::Testing,
            LandingState::Trying { .. } | LandingState::Queued => return None,
        };
        let train = other.trial_landings();
        // A longer trial than the failed one contains the failure, so its result will say nothing
        // new. A trial of equal length repeats the failed one, because all trials are prefixes of
        // one order.
        let stale = |(length, _): (usize, LandingId)| {
            ride == LandingProgress::Testing && train.len() > length
        };
        (train.contains(&landing.id) && !red.is_some_and(stale)).then_some((
            ride,
            train.len(),
            other.id,
        ))
    });
    match (trains.min(), red) {
        (Some((ride, _, last)), _) => (ride, Some(last)),
        (None, Some((_, last))) => (LandingProgress::Searching, Some(last)),
        (None, None) if queue::is_deferred(board, landing) => (LandingProgress::Deferred, None),
        (None, None) => (LandingProgress::Queued, None),
    }
}
