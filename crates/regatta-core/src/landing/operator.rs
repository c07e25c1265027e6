//! Handles what people ask of the landing queue (finished work on its way to the trunk): land now,
//! hold, release, revise and undo.

use serde::{Deserialize, Serialize};

use crate::agent_texts;
use crate::attempt::first_few;
use crate::board::{Board, Draft};
use crate::claim::WorkClaims;
use crate::command::Actor;
use crate::event::Event;
use crate::ids::{AgentName, AttemptId, LandingId, Now, ProjectName, TaskId};
use crate::project::ReviewPolicy;
use crate::refusal::Refusal;
use crate::task::{self, Expects, Submission, Task, TaskStatus};
use crate::{approval, claim, intervention, manifest};

use super::guard::SpecialFile;
use super::queue::{enqueue, merge_order, new_landing, regatta_agent_name};
use super::{
    Landing, LandingAsked, LandingHeld, LentTrunkClaim, QueueHeld, QueueHold, QueueReleased, fault,
    find, guard, remote_sync, review, trial_start, wave_commit, withdraw,
};

/// Tells the person who asked to land a task's work where that work is in the queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueuePosition {
    pub landing: LandingId,
    pub task: TaskId,
    /// Position in the queue; 1 is the next to reach the trunk.
    pub position: usize,
}

/// Returns the parts of a finished change that only a person can approve, such as agents' settings
/// or protected files (Q13).
pub fn guarded_parts(board: &Board, task: &Task, work: &Submission) -> Vec<String> {
    // Work that brings in a remote's commits needs no approval: people published those commits
    // already, and agents' work among them was approved when it landed here.
    if task.merged_remote().is_some() {
        return vec![];
    }
    let protected = board
        .projects
        .get(&task.project)
        .map(|project| &project.settings.landing.protected);
    guard::guarded_changes(protected.map_or(&[], Vec::as_slice), work)
}

/// Returns the reason why a person or reviewing agent must approve this work before it lands, or
/// `None` if nobody must.
pub fn person_needed_reason(board: &Board, task: &Task, work: &Submission) -> Option<String> {
    let settings = &board.projects.get(&task.project)?.settings.landing;
    let guarded = guarded_parts(board, task, work);
    if !guarded.is_empty() {
        let names: Vec<&str> = guarded.iter().map(String::as_str).collect();
        return Some(format!(
            "only a person may let this through, because it changes {}: regatta diff {}",
            first_few(&names),
            task.id
        ));
    }
    match (
        settings.review,
        review::reviewer(board, task, task.agent.as_ref()),
    ) {
        (ReviewPolicy::None, _) => None,
        (ReviewPolicy::Agent, Some(reviewer)) => Some(format!(
            "{reviewer} reviews it, or you do: regatta diff {}",
            task.id
        )),
        (ReviewPolicy::Agent, None) => Some(format!(
            "no other agent can review it, so a person must: regatta diff {}",
            task.id
        )),
        (ReviewPolicy::Human, _) => {
            Some(format!("somebody must review it: regatta diff {}", task.id))
        }
    }
}

/// Checks that `by` may approve work that needs an approval. An agent may approve only if the
/// settings name it as reviewer, and never a change that only a person may approve.
fn check_may_approve(
    board: &Board,
    task: &Task,
    work: &Submission,
    by: &Actor,
) -> Result<(), Refusal> {
    let (Actor::Agent(name), Some(reason)) = (by, person_needed_reason(board, task, work)) else {
        return Ok(());
    };
    let settings = board
        .projects
        .get(&task.project)
        .map(|project| &project.settings.landing);
    let is_reviewer = settings.is_some_and(|settings| {
        settings.review == ReviewPolicy::Agent && settings.reviewer.as_ref() == Some(name)
    });
    if is_reviewer && guarded_parts(board, task, work).is_empty() {
        return Ok(());
    }
    Err(Refusal::PersonNeeded {
        task: task.id,
        reason,
    })
}

/// Lands a task's finished work, as `regatta land` asks. Work that waits for approval is thereby
/// approved and put into the queue. Work that is in the queue and held back is tried now. With
/// `first`, the work goes before all others that are not yet being tried.
pub fn land(
    draft: &mut Draft,
    id: TaskId,
    first: bool,
    by: &Actor,
    now: Now,
) -> Result<QueuePosition, Refusal> {
    let task = task::find(draft.board(), id)?;
    if let Some(landing) = task
        .landing
        .and_then(|id| draft.board().landings.get(&id).cloned())
    {
        if landing.held.is_some() || (first && !landing.first) {
            draft.record(Event::LandingAsked(LandingAsked {
                landing: landing.id,
                first: first || landing.first,
                under: None,
            }));
            wave_commit::release_wave_mates(draft, landing.id);
        }
        return position_of(draft.board(), landing.id, now);
    }
    if let Some(submission) = task
        .submission
        .as_ref()
        .filter(|_| task.status != TaskStatus::Landing)
    {
        check_may_approve(draft.board(), &task, submission, by)?;
    }
    approve(draft, &task, first, by, now)
}

/// Retries a landing before its retry time, because the user's checkout has changed. Local changes
/// in the checkout may have been the reason why the landing was held.
pub(crate) fn on_checkout_changed(draft: &mut Draft, id: LandingId) {
    let held = draft
        .board()
        .landings
        .get(&id)
        .filter(|landing| landing.held.is_some() && landing.retry_fleet_ms.is_some());
    if let Some(first) = held.map(|landing| landing.first) {
        draft.record(Event::LandingAsked(LandingAsked {
            landing: id,
            first,
            under: None,
        }));
        wave_commit::release_wave_mates(draft, id);
    }
}

/// Holds a task's queued work back until somebody asks to land it. Aborts a running trial merge of
/// this work. Does nothing if the trunk is already being moved to a commit with this work.
pub(crate) fn hold_landing(
    draft: &mut Draft,
    id: TaskId,
    reason: &str,
    now: Now,
) -> Result<(), Refusal> {
    let task = task::find(draft.board(), id)?;
    let Some(landing) = task
        .landing
        .filter(|landing| fault::carrying_move(draft.board(), *landing).is_none())
    else {
        return Ok(());
    };
    let reason = format!("{reason}; to land it: regatta land {id}");
    // The tasks of a wave (a group of tasks that run at the same time) land as one commit here, so
    // hold all of them back.
    for landing in wave_commit::with_wave_mates(draft.board(), landing) {
        draft.record(Event::LandingHeld(LandingHeld {
            landing,
            reason: reason.clone(),
            retry_at: None,
        }));
    }
    trial_start::advance(draft, &task.project, now)
}

/// Releases a task's queued work that [`hold_landing`] held back.
pub(crate) fn resume_landing(draft: &mut Draft, id: TaskId) -> Result<(), Refusal> {
    let task = task::find(draft.board(), id)?;
    let landing = task
        .landing
        .and_then(|landing| draft.board().landings.get(&landing).cloned());
    if let Some(landing) =
        landing.filter(|landing| landing.held.is_some() && landing.retry_fleet_ms.is_none())
    {
        draft.record(Event::LandingAsked(LandingAsked {
            landing: landing.id,
            first: landing.first,
            under: None,
        }));
        wave_commit::release_wave_mates(draft, landing.id);
    }
    Ok(())
}

/// Puts finished work that waited for a person or a reviewer into the queue, and records who
/// approved it.
pub(super) fn approve(
    draft: &mut Draft,
    task: &Task,
    first: bool,
    by: &Actor,
    now: Now,
) -> Result<QueuePosition, Refusal> {
    let Some(submission) = task
        .submission
        .clone()
        .filter(|_| matches!(task.status, TaskStatus::NeedsHuman | TaskStatus::InReview))
    else {
        return Err(Refusal::NothingToLand {
            task: task.id,
            status: task.status,
        });
    };
    let agent = task.agent.clone().unwrap_or_else(regatta_agent_name);
    // While the work waited for approval, nobody held claims (leases) on its files, so they must be
    // acquired again.
    let claims = require_free_claims(draft, task, &agent, now)?;
    remote_sync::release_queue_held_for(draft, task);
    let landing = new_landing(draft, task, agent, submission, now);
    let queued = enqueue(draft, landing, Some(by))?;
    claim::acquire_for_landing(draft, queued, claims, now);
    draft.record(Event::LandingApproved(super::LandingApproved {
        landing: queued,
        by: by.to_string(),
    }));
    approval::on_task_ended(
        draft,
        task.id,
        &format!("{by} landed its work without an answer"),
    );
    if first {
        draft.record(Event::LandingAsked(LandingAsked {
            landing: queued,
            first,
            under: None,
        }));
    }
    position_of(draft.board(), queued, now)
}

/// Lands a task's finished work before all others, using a claim on the trunk that the caller
/// already holds. The request must contain the claim's token (its number). A request with a token
/// that is no longer valid is refused (L6).
pub fn land_with_lent_claim(
    draft: &mut Draft,
    id: TaskId,
    under: LentTrunkClaim,
    by: &Actor,
    now: Now,
) -> Result<QueuePosition, Refusal> {
    let task = task::find(draft.board(), id)?;
    claim::check_lent_trunk(draft.board(), &under, &task.project)?;
    remote_sync::defer_sync(draft, &task.project);
    let position = land(draft, id, true, by, now)?;
    draft.record(Event::LandingAsked(LandingAsked {
        landing: position.landing,
        first: true,
        under: Some(under),
    }));
    Ok(position)
}

/// Returns the claims (leases on files) that landing this task's work needs, or a refusal if
/// somebody else holds one of them.
pub(super) fn require_free_claims(
    draft: &Draft,
    task: &Task,
    agent: &AgentName,
    now: Now,
) -> Result<WorkClaims, Refusal> {
    let board = draft.board();
    let claims = WorkClaims {
        files: manifest::claims_of_task(board, task),
        mode: manifest::claim_mode(board, task),
        identity: claim::uris_of_task(task),
    };
    let holders = claim::work_conflicts(board, &claims, agent, now);
    if holders.is_empty() {
        Ok(claims)
    } else {
        Err(Refusal::ClaimHeld { holders })
    }
}

/// Begins an agent's review of finished work. Called when the work no longer waits for an answer or
/// another event.
pub(crate) fn begin_review(draft: &mut Draft, task: &Task, now: Now) -> Result<(), Refusal> {
    match &task.agent {
        Some(agent) => review::begin(draft, task.id, agent, None, now).map(|_| ()),
        None => Ok(()),
    }
}

/// Returns whether a task's finished work can enter the landing queue, because nobody else holds a
/// claim (lease) on its files.
pub(crate) fn is_free_to_land(draft: &Draft, task: &Task, now: Now) -> bool {
    let agent = task.agent.clone().unwrap_or_else(regatta_agent_name);
    require_free_claims(draft, task, &agent, now).is_ok()
}

/// Returns the position of a landing (finished work on its way to the trunk) in its project's
/// queue.
fn position_of(board: &Board, id: LandingId, now: Now) -> Result<QueuePosition, Refusal> {
    let landing = find(board, id)?;
    let order = merge_order(board, &landing.project, now);
    // A landing that cannot be tried now is counted after all landings that can.
    let ahead = order
        .iter()
        .position(|landing_id| *landing_id == id)
        .unwrap_or(order.len());
    Ok(QueuePosition {
        landing: id,
        task: landing.task,
        position: ahead + 1,
    })
}

/// Stops a project's landing queue until somebody releases it. Trial merges and a move of the trunk
/// that are in progress finish, and no new ones begin.
pub fn hold_queue(
    draft: &mut Draft,
    project: &ProjectName,
    reason: String,
    by: &Actor,
    now: Now,
) -> Result<(), Refusal> {
    if !draft.board().projects.contains_key(project) {
        return Err(Refusal::NoSuchProject {
            project: project.clone(),
        });
    }
    if reason.len() > 500 {
        return Err(Refusal::invalid(
            "the reason for holding the queue is longer than 500 bytes",
            "shorten the reason",
        ));
    }
    let by = match by {
        Actor::Person(name) => name.clone(),
        other => other.to_string(),
    };
    let hold = QueueHold {
        by,
        reason,
        unix_ms: now.unix_ms,
    };
    draft.record(Event::QueueHeld(QueueHeld {
        project: project.clone(),
        hold,
    }));
    Ok(())
}

/// Lets a project's landing queue continue after it was held (stopped). Does nothing if the queue
/// is not held.
pub fn release_queue(draft: &mut Draft, project: &ProjectName) -> Result<(), Refusal> {
    let Some(project_record) = draft.board().projects.get(project) else {
        return Err(Refusal::NoSuchProject {
            project: project.clone(),
        });
    };
    if project_record.queue.held.is_some() {
        draft.record(Event::QueueReleased(QueueReleased {
            project: project.clone(),
        }));
    }
    Ok(())
}

/// Takes finished work out of the queue or review, and sends it back to an agent with instructions
/// for changing it.
pub fn revise(draft: &mut Draft, id: TaskId, text: String) -> Result<(), Refusal> {
    let task = task::find(draft.board(), id)?;
    let Some(submission) = task.submission.clone().filter(|_| {
        matches!(
            task.status,
            TaskStatus::NeedsHuman | TaskStatus::InReview | TaskStatus::Landing
        )
    }) else {
        return Err(Refusal::NothingToLand {
            task: id,
            status: task.status,
        });
    };
    remote_sync::refuse_work(draft.board(), &task)?;
    if let Some(landing) = task.landing {
        withdraw(draft, landing, "it is being revised")?;
    }
    task::send_back(draft, id, submission.commit.clone(), "it is being revised")?;
    task::clear_delay(draft, id);
    let commit = &submission.commit;
    let message = format!(
        "{}\n\nYour previous work is commit {commit}; `git cherry-pick {commit}` brings it back.",
        text.trim()
    );
    intervention::send_message(draft, id, message).map(|_| ())
}

/// Returns a refusal of an undo if another task has already reverted this task's work or is about
/// to revert it.
pub fn undone_refusal(board: &Board, id: TaskId) -> Option<Refusal> {
    let landed = board
        .projects
        .values()
        .find_map(|project| project.queue.undone.get(&id).copied());
    let undoes = |submission: &Submission| submission.undoes == Some(id);
    let open = || {
        let mut tasks = board.tasks.values();
        let queued = board
            .landings
            .values()
            .find(|landing| landing.end.is_none() && undoes(&landing.submission));
        let waiting = tasks
            .find(|task| task.submission.as_ref().is_some_and(undoes))
            .map(|task| task.id);
        queued.map(|landing| landing.task).or(waiting)
    };
    let by = landed.or_else(open)?;
    Some(Refusal::AlreadyUndone {
        task: id,
        by,
        has_landed: landed.is_some(),
    })
}

/// Undoes a completed task's work on the trunk: adds a new task that reverts its commit, and puts
/// the revert into the landing queue.
pub fn undo(
    draft: &mut Draft,
    done: &Task,
    by: &Actor,
    now: Now,
) -> Result<QueuePosition, Refusal> {
    let id = done.id;
    let landed = done
        .landed
        .clone()
        .filter(|_| draft.board().ended_status(id) == Some(TaskStatus::Completed));
    let Some(mut commit) = landed else {
        return Err(Refusal::NothingToUndo {
            task: id,
            status: done.status,
        });
    };
    if let Some(refusal) = undone_refusal(draft.board(), id) {
        return Err(refusal);
    }
    // The landed commit contains the work of several tasks. To undo only one of them, use the
    // commit that this task had before the work of all tasks was combined.
    if let Some(own) = done.submission.as_ref().filter(|_| done.shares_commit) {
        commit = own.commit.clone();
    }
    let text = agent_texts::undo_task(done, &commit);
    let undoing = task::add(
        draft,
        task::AddTask {
            files: done.files.clone(),
            priority: done.priority,
            expects: Expects::Changes,
            ..task::AddTask::new_report(done.project.clone(), text)
        },
        None,
        now,
    )?;
    let task = task::find(draft.board(), undoing)?;
    let claims = require_free_claims(draft, &task, &regatta_agent_name(), now)?;
    let work = done.submission.as_ref();
    let submission = Submission {
        attempt: AttemptId(0),
        base: commit.clone(),
        commit,
        changed: work.map(|work| work.changed.clone()).unwrap_or_default(),
        reverts: true,
        undoes: Some(id),
        special: work
            .iter()
            .flat_map(|work| &work.special)
            .map(SpecialFile::reversed)
            .collect(),
    };
    let landing = Landing {
        mission: None,
        approved: Some(by.to_string()),
        ..new_landing(draft, &task, regatta_agent_name(), submission, now)
    };
    let queued = enqueue(draft, landing, Some(by))?;
    claim::acquire_for_landing(draft, queued, claims, now);
    position_of(draft.board(), queued, now)
}
