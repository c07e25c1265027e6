//! The landing queue admits finished work, puts it in order, starts trial merges, and decides when
//! the trunk moves.

use std::collections::BTreeSet;

use crate::approval::{self, QuestionGate};
use crate::attempt::Attempt;
use crate::board::{Board, Draft};
use crate::claim::{self, ClaimOwner};
use crate::command::Actor;
use crate::event::Event;
use crate::ids::{AgentName, CommitId, LandingId, Now, ProjectName, TaskId};
use crate::pattern::Uri;
use crate::project::{QueueMode, VerifyMode};
use crate::refusal::Refusal;
use crate::task::{self, Submission, Task, TaskStatus};

use super::operator::{guarded_parts, person_needed_reason, require_free_claims};
use super::speculation::{self, TrialLimits, TrialResults};
use super::wave_commit::{self, WaveCompleteness};
use super::{
    Landing, LandingBegun, LandingEnded, LandingMoving, LandingQueued, LandingState, fault, guard,
    remote_sync,
};

/// The source from which a landing gets its claims (leases) on the files that it changes.
enum ClaimSource {
    /// The landing takes over the claims of the attempt that did the work.
    FromAttempt,
    /// The landing acquires new claims, because nobody holds claims for this work any longer.
    /// Acquiring fails if somebody else holds a claim on one of the files.
    New,
}

/// Puts an attempt's finished work into the landing queue, with the attempt's claims on the files.
/// If the work needs an answer or approval first, keeps it outside the queue and returns `None`.
pub(crate) fn submit(
    draft: &mut Draft,
    task: &Task,
    attempt: &Attempt,
    submission: Submission,
    now: Now,
) -> Result<Option<LandingId>, Refusal> {
    pass_gates(
        draft,
        task,
        attempt,
        ClaimSource::FromAttempt,
        submission,
        now,
    )
}

/// Submits file changes that a lead (the agent that plans a mission) made itself, under the same
/// rules as a worker's. Returns whether they are queued; otherwise they wait for a person.
pub(crate) fn submit_edits(
    draft: &mut Draft,
    id: TaskId,
    attempt: &Attempt,
    work: Submission,
    now: Now,
) -> Result<bool, Refusal> {
    let task = task::find(draft.board(), id)?;
    Ok(pass_gates(draft, &task, attempt, ClaimSource::New, work, now)?.is_some())
}

/// Checks whether finished work may enter the queue. Checks in this order: changes that never land,
/// open questions, files that somebody else holds, approval by a person or reviewer. Work that
/// fails a check is kept for a person. It goes back to its agent if the agent has not read an
/// answer.
fn pass_gates(
    draft: &mut Draft,
    task: &Task,
    attempt: &Attempt,
    claims: ClaimSource,
    submission: Submission,
    now: Now,
) -> Result<Option<LandingId>, Refusal> {
    if let Some(reason) = guard::never_lands_reason(&submission.changed, &submission.special) {
        task::keep_for_review(
            draft,
            task.id,
            submission,
            format!("it cannot land: {reason}"),
        )?;
        return Ok(None);
    }
    match approval::question_gate(draft.board(), task) {
        QuestionGate::Pass => approval::warn_unanswered(draft, task.id),
        QuestionGate::Wait(reason) => {
            task::keep_for_review(draft, task.id, submission, reason)?;
            return Ok(None);
        }
        QuestionGate::ReturnWork(instructions) => {
            task::keep_for_review(
                draft,
                task.id,
                submission,
                "its agent has not read an answer".into(),
            )?;
            super::revise(draft, task.id, instructions)?;
            return Ok(None);
        }
    }
    let person_needed = person_needed_reason(draft.board(), task, &submission);
    let acquired = match claims {
        ClaimSource::FromAttempt => None,
        ClaimSource::New => match require_free_claims(draft, task, &attempt.agent, now) {
            Ok(free) => Some(free),
            Err(_) => {
                let id = task.id;
                let reason = person_needed.unwrap_or_else(|| {
                    format!("somebody else holds its files; when they are free: regatta land {id}")
                });
                task::keep_for_review(draft, id, submission, reason)?;
                return Ok(None);
            }
        },
    };
    if let Some(reason) = person_needed {
        task::keep_for_review(draft, task.id, submission, reason)?;
        super::review::begin(draft, task.id, &attempt.agent, None, now)?;
        return Ok(None);
    }
    let landing = new_landing(draft, task, attempt.agent.clone(), submission, now);
    let id = enqueue(draft, landing, None)?;
    match acquired {
        None => claim::transfer_all(
            draft,
            &ClaimOwner::Attempt(attempt.id),
            &ClaimOwner::Landing(id),
        ),
        Some(claims) => claim::acquire_for_landing(draft, id, claims, now),
    }
    Ok(Some(id))
}

/// Returns the agent name that stands for Regatta itself in work that no agent did, such as an
/// undo.
pub(super) fn regatta_agent_name() -> AgentName {
    AgentName::new("regatta").expect("a plain word is a name")
}

/// Builds a new landing (queue entry) of this task's work, without recording it.
pub(super) fn new_landing(
    draft: &Draft,
    task: &Task,
    agent: AgentName,
    submission: Submission,
    now: Now,
) -> Landing {
    Landing {
        id: LandingId(draft.board().counters.landing + 1),
        project: task.project.clone(),
        task: task.id,
        mission: task.mission,
        agent,
        branch: task.branch(),
        reverts: submission.reverts,
        submission,
        priority: task.priority,
        state: LandingState::Queued,
        held: None,
        hold_count: None,
        retry_fleet_ms: None,
        tries: 0,
        queued_unix_ms: now.unix_ms,
        end: None,
        first: false,
        approved: None,
        failed_trial: None,
        faults: 0,
        is_squashed: false,
        deferred_behind: vec![],
        lent_claim: None,
    }
}

/// Puts a landing (finished work on its way to the trunk) into its project's queue. No other
/// function does.
///
/// Work that only a person may approve enters only if a person approved exactly this submission
/// (Q13). A later submission of the same task needs a new approval.
pub(super) fn enqueue(
    draft: &mut Draft,
    landing: Landing,
    approved_by: Option<&Actor>,
) -> Result<LandingId, Refusal> {
    let (id, work) = (landing.id, &landing.submission);
    let task = task::find(draft.board(), landing.task)?;
    let is_by_person = matches!(approved_by, Some(Actor::Person(_)));
    // A revert that a person asked for passes this check, because a revert restores only content
    // that the trunk had before.
    if let Some(reason) = guard::never_lands_reason(&work.changed, &work.special)
        .filter(|_| !(work.reverts && is_by_person))
    {
        return Err(Refusal::invalid(
            reason,
            format!("send the work back: regatta revise {} -m \"…\"", task.id),
        ));
    }
    if !is_by_person && !guarded_parts(draft.board(), &task, work).is_empty() {
        let reason = person_needed_reason(draft.board(), &task, work).unwrap_or_default();
        return Err(Refusal::PersonNeeded {
            task: task.id,
            reason,
        });
    }
    task::submit(draft, landing.task, id, landing.submission.clone())?;
    draft.record(Event::LandingQueued(LandingQueued {
        landing: landing.into(),
    }));
    Ok(id)
}

/// Returns the landings that may enter a trial merge, in the order in which they would merge (Q10).
///
/// Landings that are already in a trial keep their order. The others follow by priority, age and
/// id, each after its dependencies. Landings of one wave commit stay adjacent. A landing that is
/// held back, or that waits for another landing, is left out (Q9).
pub(super) fn merge_order(board: &Board, project: &ProjectName, now: Now) -> Vec<LandingId> {
    if let Some(alone) = remote_sync::due_sync_landing(board, project, now) {
        return vec![alone];
    }
    let mut order: Vec<LandingId> = Vec::new();
    for landing in board.queue_of(project) {
        let trial = match (&landing.state, &landing.failed_trial) {
            (
                LandingState::Trying { void: false, .. }
                | LandingState::Validated { .. }
                | LandingState::Moving { .. },
                _,
            ) => landing.trial_landings(),
            (_, Some(failed_trial)) if !is_deferred(board, landing) => {
                let ahead = failed_trial.ahead.iter().copied();
                ahead.chain([landing.id]).collect()
            }
            _ => continue,
        };
        if trial.len() > order.len() {
            order = trial;
        }
    }
    let mut waves = WaveCompleteness::new(board);
    let mut candidates: Vec<&Landing> = board
        .queue_of(project)
        .map(|landing| &**landing)
        .filter(|landing| !order.contains(&landing.id))
        .filter(|landing| !landing.is_held_now(now))
        .filter(|landing| !is_deferred(board, landing))
        .filter(|landing| waves.allows(landing))
        .collect();
    // A dependency has usually landed before its dependant starts. Both can be queued only if a
    // person edited the blockers in the meantime.
    loop {
        let mate = wave_commit::next_of_wave(board, order.last(), &candidates)
            .filter(|index| !has_queued_blocker(board, candidates[*index], &order));
        let next = mate.or_else(|| {
            candidates
                .iter()
                .position(|landing| !has_queued_blocker(board, landing, &order))
        });
        let Some(next) = next else { return order };
        order.push(candidates.remove(next).id);
    }
}

/// Returns whether a landing must wait for another landing: it was deferred behind that other
/// landing, which is still in the queue. A landing that is held back does not make other landings
/// wait.
pub(super) fn is_deferred(board: &Board, landing: &Landing) -> bool {
    landing
        .deferred_behind
        .iter()
        .filter_map(|id| board.landings.get(id))
        .any(|other| other.held.is_none())
}

/// Returns whether a task that this landing's task depends on is in the queue but not among the
/// landings `before`.
fn has_queued_blocker(board: &Board, landing: &Landing, before: &[LandingId]) -> bool {
    let Some(task) = board.tasks.get(&landing.task) else {
        return false;
    };
    task.blocked_by
        .iter()
        .filter_map(|id| board.tasks.get(id))
        .any(|blocker| {
            blocker.status == TaskStatus::Landing
                && blocker.landing.is_none_or(|id| !before.contains(&id))
        })
}

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

/// Advances the queue when the retry time of a held landing (finished work on its way to the trunk)
/// has passed, so that the landing is tried again.
pub(crate) fn retry(draft: &mut Draft, id: LandingId, now: Now) -> Result<(), Refusal> {
    let Some(landing) = draft.board().landings.get(&id).cloned() else {
        return Ok(());
    };
    if landing.state == LandingState::Queued
        && landing
            .retry_fleet_ms
            .is_some_and(|retry_fleet_ms| retry_fleet_ms <= now.fleet_ms)
    {
        advance(draft, &landing.project, now)?;
    }
    Ok(())
}

/// Takes a landing (finished work on its way to the trunk) out of the queue, because a person or
/// Regatta asks for it. Refuses while the trunk is being moved to a commit that contains this
/// landing.
pub(crate) fn withdraw(draft: &mut Draft, id: LandingId, reason: &str) -> Result<(), Refusal> {
    let Some(landing) = draft.board().landings.get(&id).cloned() else {
        return Ok(());
    };
    if fault::carrying_move(draft.board(), id).is_some() {
        return Err(Refusal::InUse {
            what: landing.task.to_string(),
            by: "a move of the trunk that is under way".into(),
        });
    }
    draft.record(Event::LandingEnded(LandingEnded {
        landing: id,
        task: landing.task,
        reason: reason.to_owned(),
        retry: false,
        fault: None,
    }));
    claim::release_all(draft, &ClaimOwner::Landing(id));
    Ok(())
}
