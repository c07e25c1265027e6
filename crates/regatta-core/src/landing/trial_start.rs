//! The start of trial merges: decides which landings are merged onto the trunk for a test, and when
//! the trunk moves to a trial that passed.
//!
//! Not here: the order of the queue (see [`queue`](super::queue)), the number and the length of
//! trials (see [`speculation`]), and their results (see [`trial_result`](super::trial_result)). The
//! engine performs the merge.

use std::collections::BTreeSet;

use crate::board::{Board, Draft};
use crate::claim;
use crate::event::Event;
use crate::ids::{CommitId, LandingId, Now, ProjectName};
use crate::pattern::Uri;
use crate::project::{QueueMode, VerifyMode};
use crate::refusal::Refusal;

use super::queue::{is_deferred, merge_order};
use super::speculation::{self, TrialLimits, TrialResults};
use super::{Landing, LandingBegun, LandingMoving, LandingState, fault, remote_sync, wave_commit};

/// Advances a project's queue: starts to move the trunk to the longest run of landings that passed
/// together, and begins new trial merges while there are free slots.
pub(crate) fn advance(draft: &mut Draft, project: &ProjectName, now: Now) -> Result<(), Refusal> {
    let Some(project_record) = draft.board().projects.get(project).cloned() else {
        return Ok(());
    };
    fault::settle_failed_trials(draft, project, now)?;
    if project_record.queue.held.is_some() {
        return Ok(());
    }
    if let Some(alone) = remote_sync::due_sync_landing(draft.board(), project, now)
        && !remote_sync::void_other_trials(draft, project, alone)
    {
        return Ok(());
    }
    claim_trunk(draft, project, now);
    let board = draft.board();
    let order = merge_order(board, project, now);
    let known = known_results(board, project, &order);
    let settings = &project_record.settings.landing;
    let trial_limits = match settings.mode {
        QueueMode::Serial
            if board
                .queue_of(project)
                .any(|landing| is_under_way(board, &order, landing)) =>
        {
            return Ok(());
        }
        QueueMode::Serial => TrialLimits {
            verify: VerifyMode::Every,
            slots: 1,
            batch: 1,
        },
        QueueMode::Speculative => TrialLimits {
            verify: settings.verify,
            slots: speculation::slots(&project_record, board.limits.landing_slots) as usize,
            batch: match settings.batch {
                Some(batch) => batch.clamp(1, 64) as usize,
                None => speculation::batch_size_for(
                    project_record.queue.recent_failures.count_ones(),
                    project_record.queue.recent_count,
                ),
            },
        },
    };
    let mut checkpoints: BTreeSet<usize> =
        known.passed.iter().chain(&known.running).copied().collect();
    for length in speculation::next_trials(&known, trial_limits) {
        let unverified = match trial_limits.verify {
            VerifyMode::Every => vec![],
            VerifyMode::Tip => unverified_landings(&known, &order[..length], &checkpoints),
        };
        begin_trial(draft, &order[..length], unverified);
        checkpoints.insert(length);
    }
    Ok(())
}

/// Returns the landings of `trial` that get no checks of their own, because no trial merge ends
/// with them. `checkpoints` has the number of landings of each trial that passed or is running.
fn unverified_landings(
    known: &TrialResults,
    trial: &[LandingId],
    checkpoints: &BTreeSet<usize>,
) -> Vec<LandingId> {
    let is_verified = |index: usize| {
        let end = known
            .wave_ends
            .iter()
            .copied()
            .find(|end| *end > index)
            .unwrap_or(trial.len())
            .min(trial.len());
        end == trial.len() || checkpoints.contains(&end)
    };
    trial
        .iter()
        .enumerate()
        .filter(|(index, _)| !is_verified(*index))
        .map(|(_, id)| *id)
        .collect()
}

/// Returns whether a landing is being tried, has passed, or is moving the trunk. A landing that
/// passed but must wait for the other tasks of its wave (tasks that land as one commit) does not
/// count.
fn is_under_way(board: &Board, order: &[LandingId], landing: &Landing) -> bool {
    match landing.state {
        LandingState::Queued => false,
        LandingState::Validated { .. } => {
            !wave_commit::cuts_wave(board, order, &landing.trial_landings())
        }
        LandingState::Trying { .. } | LandingState::Moving { .. } => true,
    }
}

/// Begins a trial merge of the landings (queue entries) in `trial`, unless the last of them is
/// still in an earlier trial.
fn begin_trial(draft: &mut Draft, trial: &[LandingId], unverified: Vec<LandingId>) {
    let Some((last, ahead)) = trial.split_last() else {
        return;
    };
    if draft
        .board()
        .landings
        .get(last)
        .is_some_and(|landing| landing.state == LandingState::Queued)
    {
        let unverified = Some(unverified).filter(|list| !list.is_empty());
        draft.record(Event::LandingBegun(LandingBegun {
            landing: *last,
            ahead: Some(ahead.to_vec()),
            unverified,
        }));
    }
}

/// Returns the known results of trial merges. Each trial tests the first N landings of `order`, and
/// the result identifies the trial by the number N.
fn known_results(board: &Board, project: &ProjectName, order: &[LandingId]) -> TrialResults {
    let mut known = TrialResults {
        queue_len: order.len(),
        wave_ends: wave_commit::wave_ends(board, order),
        ..TrialResults::default()
    };
    let length = |trial: &[LandingId]| order.starts_with(trial).then_some(trial.len());
    for landing in board.queue_of(project) {
        match (&landing.state, length(&landing.trial_landings())) {
            (LandingState::Trying { void: false, .. }, Some(length)) => known.running.push(length),
            (LandingState::Trying { .. }, _) => known.wasted_slots += 1,
            (LandingState::Validated { .. }, Some(length)) => {
                known.passed.insert(length);
                if is_verified(board, landing) && known.wave_ends.contains(&length) {
                    known.landable = known.landable.max(length);
                }
                known.needed.extend(unproven_prefixes(board, landing));
            }
            (LandingState::Moving { .. }, Some(length)) => {
                known.landable = known.landable.max(length)
            }
            _ => {}
        }
        if let Some(failed_trial) = &landing.failed_trial
            && !is_deferred(board, landing)
        {
            let ahead = failed_trial.ahead.iter().copied();
            let trial: Vec<_> = ahead.chain([landing.id]).collect();
            known.failed.extend(length(&trial));
        }
    }
    known
}

/// Returns whether the trial that ends with this landing passed and is fully verified: each of its
/// commits that will be marked as validated is the last commit of a passed trial (Q1, Q14).
pub(super) fn is_verified(board: &Board, landing: &Landing) -> bool {
    matches!(landing.state, LandingState::Validated { .. })
        && unproven_prefixes(board, landing).is_empty()
}

/// Returns the parts of a passed trial merge (a test merge of several landings) that are not
/// verified yet. Each part begins with the first landing of the trial, and is given as its number
/// of landings. A part is not verified if its last commit will be marked as validated but no passed
/// trial ends with that commit.
fn unproven_prefixes(board: &Board, landing: &Landing) -> BTreeSet<usize> {
    let LandingState::Validated { carries, .. } = &landing.state else {
        return BTreeSet::new();
    };
    let passed = |commit: &CommitId| {
        board
            .queue_of(&landing.project)
            .any(|landing| matches!(&landing.state, LandingState::Validated { new, .. } if new == commit))
    };
    let claims = carries
        .iter()
        .filter(|carried| !carried.unverified && !passed(&carried.commit));
    // Several landings have the same commit if they belong to one wave (tasks that land as one
    // commit). Only a trial that includes the last of these landings tests the whole commit.
    let end = |commit: &CommitId| {
        carries
            .iter()
            .rposition(|carried| carried.commit == *commit)
            .map(|index| index + 1)
    };
    claims.filter_map(|carried| end(&carried.commit)).collect()
}

/// Claims the trunk for the longest trial merge that passed, and begins the move. Does nothing if
/// somebody else holds the claim on the trunk; this function is called again when that claim ends.
fn claim_trunk(draft: &mut Draft, project: &ProjectName, now: Now) {
    let board = draft.board();
    if board
        .queue_of(project)
        .any(|landing| matches!(landing.state, LandingState::Moving { .. }))
    {
        return;
    }
    let passed = board
        .queue_of(project)
        .filter(|landing| matches!(landing.state, LandingState::Validated { .. }));
    let order = merge_order(board, project, now);
    let alone = remote_sync::due_sync_landing(board, project, now);
    let passed: Vec<_> = passed
        .filter(|landing| {
            !wave_commit::cuts_wave(board, &order, &landing.trial_landings())
                && alone.is_none_or(|alone| alone == landing.id)
        })
        .filter(|landing| is_verified(board, landing))
        .cloned()
        .collect();
    // A person who holds the claim on the trunk may let one landing use this claim. In that case
    // only a trial merge with that landing can move the trunk.
    let lent = board.queue_of(project).find_map(|landing| {
        let under = landing
            .lent_claim
            .clone()
            .filter(|lent_claim| claim::check_lent_trunk(board, lent_claim, project).is_ok())?;
        Some((landing.id, under.token))
    });
    if let Some((lent, fence)) = lent {
        let carries = passed
            .iter()
            .filter(|landing| landing.trial_landings().contains(&lent))
            .min_by_key(|landing| landing.trial_landings().len());
        if let Some(landing) = carries.map(|landing| landing.id) {
            draft.record(Event::LandingMoving(LandingMoving { landing, fence }));
        }
        return;
    }
    let Some(id) = passed
        .iter()
        .max_by_key(|landing| landing.trial_landings().len())
        .map(|landing| landing.id)
    else {
        return;
    };
    if let Ok(fence) = claim::claim_trunk(draft, id, Uri::for_trunk(project), now) {
        draft.record(Event::LandingMoving(LandingMoving { landing: id, fence }));
    }
}
