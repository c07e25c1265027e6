//! The landing queue: admits finished work, puts it in order, and takes work out again.
//!
//! Not here: the start of trial merges, see `trial_start`.

use crate::approval::{self, QuestionGate};
use crate::attempt::Attempt;
use crate::board::{Board, Draft};
use crate::claim::{self, ClaimOwner};
use crate::command::Actor;
use crate::event::Event;
use crate::ids::{AgentName, LandingId, Now, ProjectName, TaskId};
use crate::refusal::Refusal;
use crate::task::{self, Submission, Task, TaskStatus};

use super::operator::{guarded_parts, person_needed_reason, require_free_claims};
use super::wave_commit::{self, WaveCompleteness};
use super::{
    Landing, LandingEnded, LandingQueued, LandingState, fault, guard, remote_sync, trial_start,
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
        trial_start::advance(draft, &landing.project, now)?;
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
