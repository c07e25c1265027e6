//! After a failed trial (a test merge of several landings), finds the landing at fault and decides
//! what happens to it.
//!
//! The last landing of a failed trial is at fault when the same trial without it passed, or when no
//! other landing is in the trial. A longer trial that passes proves nothing, because a later
//! landing may repair the failure, and the earlier commit would still fail on the trunk (Q1).
//!
//! The first failure may be an unreliable check, so the landing is tried once more. It is tried
//! after some of the other landings, so that a series of failing branches does not delay good
//! branches (Q9). After the second failure the landing is taken out of the queue, but only when the
//! other landings of the failed trial are on the trunk. The agent that repairs the work therefore
//! sees the code with which the work failed.

use std::sync::Arc;

use crate::board::{Board, Draft};
use crate::event::Event;
use crate::ids::{LandingId, Now, ProjectName};
use crate::refusal::Refusal;
use crate::task::Fixup;

use super::{
    FailedTrial, Landing, LandingState, LandingSuspected, queue, trial_result, wave_commit,
};

/// Number of failed trial merges after which a landing that is at fault is taken out of the queue.
pub(crate) const MAX_FAULTS: u32 = 2;

/// Maximum number of later landings that may overtake a landing that failed for the first time.
const MAX_OVERTAKING: usize = 8;

/// Returns the last landing of the trial merge to which the trunk is being moved now, if that trial
/// includes this landing.
///
/// Until the result of that move is reported, nobody knows whether this landing is on the trunk, so
/// nothing else may change it.
pub(super) fn carrying_move(board: &Board, id: LandingId) -> Option<LandingId> {
    let project = &board.landings.get(&id)?.project;
    let carries = |landing: &&Arc<Landing>| {
        matches!(landing.state, LandingState::Moving { .. })
            && landing.trial_landings().contains(&id)
    };
    board
        .queue_of(project)
        .find(carries)
        .map(|landing| landing.id)
}

/// Handles a project's failed trial merges for which the landing at fault is known. Defers that
/// landing; after its second failure, takes it out of the queue once no other landing can be the
/// cause.
pub(super) fn settle_failed_trials(
    draft: &mut Draft,
    project: &ProjectName,
    now: Now,
) -> Result<(), Refusal> {
    while let Some((landing, failed_trial)) = next_fault(draft.board(), project) {
        let faults = landing.faults + 1;
        let ahead = failed_trial.ahead.as_slice();
        let fails_in_wave = wave_commit::is_alone_at_fault(draft.board(), landing.id, ahead);
        if faults >= MAX_FAULTS && (ahead.is_empty() || fails_in_wave) {
            eject_at_fault(draft, &landing, failed_trial, fails_in_wave, now)?;
            continue;
        }
        let behind = if faults >= MAX_FAULTS {
            failed_trial.ahead
        } else {
            landings_going_first(draft.board(), &landing, failed_trial.ahead, now)
        };
        draft.record(Event::LandingSuspected(LandingSuspected {
            landing: landing.id,
            behind,
            reason: failed_trial.reason,
        }));
    }
    Ok(())
}

/// Returns a landing (queue entry) that is known to have made its trial merge fail, with the result
/// of that trial.
fn next_fault(board: &Board, project: &ProjectName) -> Option<(Arc<Landing>, FailedTrial)> {
    let at_fault = |landing: &&Arc<Landing>| {
        let Some(failed_trial) = &landing.failed_trial else {
            return false;
        };
        let ahead = &failed_trial.ahead;
        let is_verdict = landing.faults >= MAX_FAULTS && !landing.deferred_behind.is_empty();
        let is_known = ahead.is_empty() || has_trial_passed(board, project, ahead);
        is_known && (!is_verdict || ahead.is_empty()) && carrying_move(board, landing.id).is_none()
    };
    let landing = board.queue_of(project).find(at_fault)?.clone();
    let failed_trial = landing.failed_trial.clone()?;
    Some((landing, failed_trial))
}

/// Returns whether a trial merge of exactly the landings in `trial`, in this order, passed.
fn has_trial_passed(board: &Board, project: &ProjectName, trial: &[LandingId]) -> bool {
    let has_passed = |landing: &Landing| {
        matches!(
            landing.state,
            LandingState::Validated { .. } | LandingState::Moving { .. }
        )
    };
    board
        .queue_of(project)
        .any(|landing| has_passed(landing) && landing.trial_landings() == trial)
}

/// Returns the landings that go before `landing` after its first failure: the landings ahead of it
/// in the trial merge, and the next few after it. The list is empty for a landing of a wave (tasks
/// that land as one commit), because such a landing must stay with its wave.
fn landings_going_first(
    board: &Board,
    landing: &Landing,
    ahead: Vec<LandingId>,
    now: Now,
) -> Vec<LandingId> {
    if wave_commit::wave_of(board, landing).is_some() {
        return vec![];
    }
    let order = queue::merge_order(board, &landing.project, now);
    let after = order
        .iter()
        .skip_while(|id| **id != landing.id)
        .skip(1)
        .take(MAX_OVERTAKING);
    let mut behind = ahead;
    behind.extend(after);
    behind
}

/// Takes a landing at fault out of the queue, and orders a fix-up (an agent's repair of the work)
/// that describes the failure.
fn eject_at_fault(
    draft: &mut Draft,
    landing: &Landing,
    failed_trial: FailedTrial,
    fails_in_wave: bool,
    now: Now,
) -> Result<(), Refusal> {
    let other_work = if fails_in_wave {
        "the rest of its wave"
    } else {
        "work that landed since"
    };
    let reason = format!(
        "merged with {other_work}, it fails: {}",
        failed_trial.reason
    );
    let output = failed_trial.output.unwrap_or_else(|| reason.clone());
    // If a conflict was resolved in favour of the owner of a file, the agent that repairs the work
    // may change that file, even if another task owns it.
    let paths = failed_trial
        .settled
        .iter()
        .map(|settled| settled.path.clone())
        .collect();
    let commit = landing.submission.commit.clone();
    let fixup = Fixup {
        paths,
        output: Some(output),
        settled: failed_trial.settled,
        ..Fixup::new(commit)
    };
    trial_result::eject(draft, landing, fixup, &reason, now)
}
