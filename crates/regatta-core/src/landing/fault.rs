//! Verdicts: the landing that made a trial fail, and what happens to it.
//!
//! The last landing of a failed trial is at fault when the trial without it passed, or when nothing
//! but the trunk is ahead of it. A longer trial that passes proves nothing, because a later landing
//! may fix the failure, and the earlier commit would still fail on the trunk (Q1).
//!
//! The first fault may be a flaky check, so the landing is tried once more, after some of the
//! others, because a series of failing branches must not delay good ones (Q9). The second fault
//! takes the landing out of the queue, as soon as everything it was tried with is on the trunk, so
//! that its fix-up sees the code with which it failed.

use std::sync::Arc;

use crate::board::{Board, Draft};
use crate::event::Event;
use crate::ids::{LandingId, Now, ProjectName};
use crate::refusal::Refusal;
use crate::task::Fixup;

use super::{
    FailedTrial, Landing, LandingState, LandingSuspected, queue, trial_result, wave_commit,
};

/// Number of failed trials after which the landing at fault leaves the queue.
pub(crate) const MAX_FAULTS: u32 = 2;

/// Maximum number of landings after a failed one that may go first.
const MAX_OVERTAKING: usize = 8;

/// Returns the landing whose move of the trunk carries this landing, if there is one.
///
/// Until that move is reported, nobody knows whether the landing is on the trunk, so nothing else
/// may decide about it.
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

/// Decides about each failed trial of a project whose landing at fault is known.
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

/// Returns a landing that made its trial fail, with that trial.
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

/// Returns whether exactly these landings, in this order, passed their trial.
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

/// Returns the landings that go before one that failed for the first time: the landings ahead of it
/// in the trial, and the next few after it. A landing of a wave stays with its wave.
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

/// Takes a landing at fault out of the queue, with a fix-up that names the failure.
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
    // A fix-up after ownership may also change the conflicting files, even if another task owns
    // them.
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
