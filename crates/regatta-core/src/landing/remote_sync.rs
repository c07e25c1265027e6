//! Brings in commits that a remote's trunk has and the local trunk lacks.
//!
//! A special landing (queue entry) does this. It replays landed work that the remote does not have
//! yet on top of the remote's trunk, and validates exactly the resulting tree (Q1). Then it moves
//! the trunk to the result by compare-and-swap (Q2). A git ref keeps the old trunk (Q3). After
//! that, the trunk can be pushed.
//!
//! The special landing is based on the remote's trunk, but all other landings are based on the
//! local trunk. The special landing is therefore tried alone and before the others. If the two
//! histories conflict, a person must merge them. Until then the queue is held with instructions, so
//! that local and remote do not drift further apart.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent_texts;
use crate::attempt::first_few;
use crate::board::{Board, Draft};
use crate::check_output;
use crate::claim::{self, ClaimOwner};
use crate::command::Actor;
use crate::event::Event;
use crate::ids::{AttemptId, CommitId, LandingId, Now, ProjectName, TaskId};
use crate::refusal::Refusal;
use crate::schedule::WaitKind;
use crate::task::{self, Expects, Fixup, Purpose, Submission, Task, TaskStatus};

use super::operator::approve;
use super::queue::{enqueue, new_landing, regatta_agent_name};
use super::trial_result::announce;
use super::{
    Landing, LandingEnded, LandingState, QueueHeld, QueueHold, QueueOvertaken, QueuePushed,
    QueueReleased, QueueUnpushed,
};

/// Landed work that could not yet be pushed to the remote that the setting `push` names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Unpushed {
    pub remote: String,
    /// The newest commit that should have been pushed and was not.
    pub commit: CommitId,
    /// Reason why the latest push failed.
    pub reason: String,
    /// Time of the first failed push.
    #[serde(rename = "since_wall")]
    pub since_unix_ms: u64,
}

/// A remote whose trunk has commits that the local trunk lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DivergedRemote {
    pub remote: String,
    /// Newest commit of the remote's trunk.
    pub tip: CommitId,
    /// Paths that the remote's additional commits changed.
    pub changed: Vec<String>,
}

/// Handles the report that landed work was pushed to a remote, or that the push failed. Without
/// `failure`, the remote has all landed work. A failure that is repeated unchanged is recorded
/// once.
pub fn on_pushed(
    draft: &mut Draft,
    project: &ProjectName,
    (remote, commit): (String, CommitId),
    failure: Option<String>,
    now: Now,
) -> Result<(), Refusal> {
    let Some(project_record) = draft.board().projects.get(project).cloned() else {
        return Err(Refusal::NoSuchProject {
            project: project.clone(),
        });
    };
    let before = project_record.queue.unpushed.as_ref();
    match failure {
        None if before.is_some() => draft.record(Event::QueuePushed(QueuePushed {
            project: project.clone(),
            commit,
        })),
        None => {}
        Some(reason)
            if before
                .is_some_and(|unpushed| unpushed.reason == reason && unpushed.commit == commit) => {
        }
        Some(reason) => {
            let since_unix_ms = before.map_or(now.unix_ms, |unpushed| unpushed.since_unix_ms);
            if before.is_none() {
                let text = format!(
                    "{} was not pushed to {remote}, and is tried again: {reason}",
                    short_id(&commit)
                );
                announce(draft, project, "coord:push", text, now)?;
            }
            let unpushed = Unpushed {
                remote,
                commit,
                reason,
                since_unix_ms,
            };
            draft.record(Event::QueueUnpushed(QueueUnpushed {
                project: project.clone(),
                unpushed,
            }));
        }
    }
    Ok(())
}

/// Returns the first ten characters of a commit id.
fn short_id(commit: &CommitId) -> &str {
    &commit.as_str()[..10]
}

/// Handles the report that a remote's trunk has commits that the local trunk lacks. Puts a landing
/// that brings in these commits at the front of the queue, unless such a landing is already queued.
pub fn on_diverged(
    draft: &mut Draft,
    project: &ProjectName,
    commit: CommitId,
    found: DivergedRemote,
    now: Now,
) -> Result<(), Refusal> {
    let DivergedRemote {
        remote,
        tip,
        changed,
    } = found;
    let open = open_sync_task(draft.board(), project);
    let queued = open.as_ref().is_some_and(|task| task.landing.is_some());
    let id = match &open {
        Some(task) => task.id,
        None => add_sync_task(draft, project, &remote, now)?,
    };
    let reason = format!("{remote} has commits that are not here; {id} brings them in");
    on_pushed(draft, project, (remote.clone(), commit), Some(reason), now)?;
    if queued {
        return Ok(());
    }
    if let Some(task) = open {
        // An earlier try to bring in the remote's commits ended in a conflict, and a person was
        // asked to resolve it. The remote may have changed since then, so Regatta tries again.
        return approve(draft, &task, true, &Actor::Regatta, now).map(drop);
    }
    let submission = Submission {
        attempt: AttemptId(0),
        base: tip.clone(),
        commit: tip,
        changed,
        reverts: false,
        undoes: None,
        special: vec![],
    };
    let task = task::find(draft.board(), id)?;
    let landing = Landing {
        first: true,
        ..new_landing(draft, &task, regatta_agent_name(), submission, now)
    };
    enqueue(draft, landing, None).map(drop)
}

/// Returns the project's unfinished task that brings in a remote's commits, if there is one.
fn open_sync_task(board: &Board, project: &ProjectName) -> Option<Task> {
    let is_open_sync_task = |task: &&Arc<Task>| {
        let is_open = matches!(
            task.status,
            TaskStatus::Landing | TaskStatus::NeedsHuman | TaskStatus::InReview
        );
        is_open && task.project == *project && task.merged_remote().is_some()
    };
    board
        .tasks
        .values()
        .find(is_open_sync_task)
        .map(|task| Task::clone(task))
}

/// Adds the task that stands for bringing in a remote's commits.
fn add_sync_task(
    draft: &mut Draft,
    project: &ProjectName,
    remote: &str,
    now: Now,
) -> Result<TaskId, Refusal> {
    let trunk = draft
        .board()
        .projects
        .get(project)
        .map(|project| project.trunk.to_string())
        .unwrap_or_default();
    let text = agent_texts::remote_sync_task(remote, &trunk);
    let request = task::AddTask {
        priority: 0,
        expects: Expects::Changes,
        ..task::AddTask::new_report(project.clone(), text)
    };
    let id = task::add(draft, request, None, now)?;
    let purpose = Purpose::MergeRemote {
        remote: remote.to_owned(),
    };
    task::set_purpose(draft, id, purpose, None)?;
    Ok(id)
}

/// Returns the landing that brings in a remote's commits, if it must be tried now, alone. A person
/// who holds the claim on the trunk can let another landing use this claim. Then only that other
/// landing can move the trunk, so this function returns `None`.
pub(super) fn due_sync_landing(
    board: &Board,
    project: &ProjectName,
    now: Now,
) -> Option<LandingId> {
    let is_lent = |landing: &Landing| {
        landing
            .lent_claim
            .as_ref()
            .is_some_and(|lent_claim| claim::check_lent_trunk(board, lent_claim, project).is_ok())
    };
    let sync_landing = board
        .queue_of(project)
        .find(|landing| merged_remote(board, landing).is_some())?;
    if sync_landing.is_held_now(now) || board.queue_of(project).any(|landing| is_lent(landing)) {
        return None;
    }
    Some(sync_landing.id)
}

/// Discards the results of all other trial merges before the landing `alone` begins, because they
/// are based on a trunk that will change. Returns `false` while another landing is moving the
/// trunk, so the caller must wait for the report of that move.
pub(super) fn void_other_trials(
    draft: &mut Draft,
    project: &ProjectName,
    alone: LandingId,
) -> bool {
    let board = draft.board();
    let is_about_to_begin = board
        .landings
        .get(&alone)
        .is_some_and(|landing| landing.state == LandingState::Queued);
    let others = || {
        board
            .queue_of(project)
            .filter(|landing| landing.id != alone)
    };
    let has_result = |landing: &Landing| {
        matches!(
            landing.state,
            LandingState::Trying { void: false, .. } | LandingState::Validated { .. }
        ) || landing.failed_trial.is_some()
    };
    let is_moving = others().any(|landing| matches!(landing.state, LandingState::Moving { .. }));
    if is_about_to_begin && others().any(|landing| has_result(landing)) {
        draft.record(Event::QueueOvertaken(QueueOvertaken {
            project: project.clone(),
        }));
    }
    !is_moving
}

/// Discards the trial merge that brings in a remote's commits, because another landing goes first.
/// A person who holds the claim on the trunk lets that other landing use the claim.
pub(super) fn defer_sync(draft: &mut Draft, project: &ProjectName) {
    let board = draft.board();
    let has_sync_trial = board.queue_of(project).any(|landing| {
        landing.state != LandingState::Queued && merged_remote(board, landing).is_some()
    });
    if has_sync_trial {
        draft.record(Event::QueueOvertaken(QueueOvertaken {
            project: project.clone(),
        }));
    }
}

/// Hands a conflict between the remote's commits and the local commits to a person, and holds the
/// queue until the person has resolved it.
pub(super) fn on_sync_conflict(
    draft: &mut Draft,
    landing: &Landing,
    fixup: &Fixup,
    now: Now,
) -> Result<(), Refusal> {
    let (project, task) = (&landing.project, landing.task);
    let remote = merged_remote(draft.board(), landing)
        .unwrap_or("origin")
        .to_owned();
    let trunk = draft
        .board()
        .projects
        .get(project)
        .map(|project| project.trunk.to_string())
        .unwrap_or_default();
    let names: Vec<&str> = fixup.paths.iter().map(String::as_str).collect();
    let (problem, kind) = match &fixup.output {
        Some(output) => {
            let output = check_output::summary(output);
            (
                format!(
                    "work that landed here fails the checks together with the commits of \
                    {remote}/{trunk} ({output})"
                ),
                WaitKind::Review,
            )
        }
        None => {
            let files = first_few(&names);
            (
                format!("work that landed here conflicts with {remote}/{trunk} in {files}"),
                WaitKind::Conflict,
            )
        }
    };
    let reason = format!(
        "{problem}: in your checkout of {trunk} run git pull --rebase {remote} {trunk}, fix it \
        there, then regatta land {task}"
    );
    draft.record(Event::LandingEnded(LandingEnded {
        landing: landing.id,
        task,
        reason: reason.clone(),
        retry: false,
        fault: None,
    }));
    claim::release_all(draft, &ClaimOwner::Landing(landing.id));
    task::needs_human(draft, task, kind, &reason)?;
    let hold = QueueHold {
        by: HOLDER_NAME.into(),
        reason: reason.chars().take(500).collect(),
        unix_ms: now.unix_ms,
    };
    draft.record(Event::QueueHeld(QueueHeld {
        project: project.clone(),
        hold,
    }));
    announce(
        draft,
        project,
        "coord:push",
        format!("The queue is held: {reason}"),
        now,
    )
}

/// Name under which a stop of the landing queue is recorded if Regatta itself stopped it.
const HOLDER_NAME: &str = "regatta";

/// Returns the remote whose commits a landing brings into the trunk, or `None` if the landing merges
/// the work of a task.
pub fn merged_remote<'a>(board: &'a Board, landing: &Landing) -> Option<&'a str> {
    board.tasks.get(&landing.task)?.merged_remote()
}

/// Refuses a request that would give a task to an agent if the task only brings in a remote's
/// commits. Such a task has no work for an agent.
pub(crate) fn refuse_work(board: &Board, task: &Task) -> Result<(), Refusal> {
    let Some(remote) = task.merged_remote() else {
        return Ok(());
    };
    let trunk = board
        .projects
        .get(&task.project)
        .map(|project| project.trunk.to_string())
        .unwrap_or_default();
    let id = task.id;
    let hint = if board.tasks.contains_key(&id) {
        format!(
            "fix it in your checkout of {trunk}: git pull --rebase {remote} {trunk}, then regatta \
             land {id}; or regatta drop {id}, and the next landing tries it again"
        )
    } else {
        "there is nothing to do: the next landing tries it again".into()
    };
    Err(Refusal::invalid(
        format!(
            "task {id} only brings in the commits of {remote}/{trunk}, so no agent can work on it"
        ),
        hint,
    ))
}

/// Lets the landing queue continue after a person dropped the task that brings in a remote's
/// commits, if the queue was held because of this task. The remote's commits are still missing
/// here, so the next push finds them again.
pub(crate) fn on_sync_task_dropped(draft: &mut Draft, task: &Task) {
    release_queue_held_for(draft, task);
    let queue = draft
        .board()
        .projects
        .get(&task.project)
        .map(|project| project.queue.clone());
    if let Some(unpushed) = queue
        .and_then(|queue| queue.unpushed)
        .filter(|_| task.merged_remote().is_some())
    {
        let reason = format!(
            "{} has commits that are not here, and the task {} that should bring them in was \
            dropped; the next landing tries again",
            unpushed.remote, task.id
        );
        let unpushed = Unpushed { reason, ..unpushed };
        draft.record(Event::QueueUnpushed(QueueUnpushed {
            project: task.project.clone(),
            unpushed,
        }));
    }
}

/// Lets the project's landing queue continue if Regatta stopped it because of a conflict in this
/// task.
pub(super) fn release_queue_held_for(draft: &mut Draft, task: &Task) {
    let held = draft
        .board()
        .projects
        .get(&task.project)
        .and_then(|project| project.queue.held.as_ref());
    if task.merged_remote().is_some() && held.is_some_and(|hold| hold.by == HOLDER_NAME) {
        draft.record(Event::QueueReleased(QueueReleased {
            project: task.project.clone(),
        }));
    }
}
