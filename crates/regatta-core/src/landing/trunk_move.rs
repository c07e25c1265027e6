//! Handles the results of moves of the trunk, and records each landing that has reached the trunk
//! by a move.

use serde::{Deserialize, Serialize};

use crate::agent_texts;
use crate::attempt::first_few;
use crate::board::Draft;
use crate::claim::{self, ClaimOwner};
use crate::event::Event;
use crate::ids::{CommitId, LandingId, Now, TaskId};
use crate::pattern::PathPattern;
use crate::refusal::Refusal;
use crate::task::{self, Expects};
use crate::{intervention, lead};

use super::trial_result::{announce_with, hold_with_backoff, requeue};
use super::{
    CarriedLanding, DroppedSides, Landing, LandingLanded, LandingState, QueueOvertaken, find,
    trial_start,
};

/// The result of trying to move the trunk to a validated commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum MoveOutcome {
    Moved,
    /// Somebody outside Regatta moved the trunk, so the results of all trial merges are outdated.
    #[serde(rename = "elsewhere")]
    TrunkMoved,
    /// The trunk was not moved, because the user's checkout has uncommitted changes in these files.
    Dirty {
        paths: Vec<String>,
    },
    Held {
        reason: String,
    },
}

/// Handles the report of a move of the trunk: records the landed work, or puts it back into the
/// queue. Only a report with the number of the claim under which the move began (`fence`) counts
/// (L6).
pub fn on_move_result(
    draft: &mut Draft,
    id: LandingId,
    fence: u64,
    found: MoveOutcome,
    now: Now,
) -> Result<(), Refusal> {
    let landing = find(draft.board(), id)?;
    let LandingState::Moving {
        old,
        new,
        fence: current_fence,
        carries,
    } = landing.state.clone()
    else {
        return Err(Refusal::StaleLanding { landing: id });
    };
    if current_fence != fence {
        return Err(Refusal::StaleLanding { landing: id });
    }
    let trial = landing.trial_landings();
    match found {
        MoveOutcome::Moved => {
            for carried in &carries {
                if let Some(dropped) = &carried.dropped {
                    add_follow_up(draft, carried.landing, dropped, now)?;
                }
            }
            // Records of older versions have no list of commits, because each of their moves had
            // one landing.
            let carries = if carries.is_empty() {
                vec![CarriedLanding::new(id, new)]
            } else {
                carries
            };
            return land_all(draft, &carries, &old, now);
        }
        MoveOutcome::TrunkMoved => on_trunk_moved(
            draft,
            &landing,
            "somebody else moved the trunk; merging again",
        ),
        MoveOutcome::Dirty { paths } => {
            let names: Vec<&str> = paths.iter().map(String::as_str).collect();
            let trunk = draft
                .board()
                .projects
                .get(&landing.project)
                .map(|project| project.trunk.to_string());
            let reason = |task: TaskId| {
                format!(
                    "the checkout of {} has changes in {}, which {task} changes too: commit, \
                    stash or move them, and it lands (git commit -a, or git stash)",
                    trunk.as_deref().unwrap_or("the trunk"),
                    first_few(&names)
                )
            };
            return_trunk(draft, &landing, "the checkout of the trunk has changes");
            // Hold back only the landings that change files with uncommitted changes in the user's
            // checkout, or all landings of the trial if none of them does. They are tried again
            // later, and other landings continue (Q9).
            let members: Vec<_> = trial
                .iter()
                .filter_map(|id| draft.board().landings.get(id).cloned())
                .collect();
            let touches = |landing: &Landing| {
                landing
                    .submission
                    .changed
                    .iter()
                    .any(|path| paths.contains(path))
            };
            let nobody_touches = !members.iter().any(|landing| touches(landing));
            for member in members
                .iter()
                .filter(|landing| nobody_touches || touches(landing))
            {
                hold_with_backoff(draft, member.id, reason(member.task), now)?;
            }
        }
        MoveOutcome::Held { reason } => {
            return_trunk(draft, &landing, &reason);
            hold_with_backoff(draft, id, reason, now)?;
        }
    }
    trial_start::advance(draft, &landing.project, now)
}

/// Ends a move of the trunk that was not carried out: queues the landing again and releases the
/// claim on the trunk.
fn return_trunk(draft: &mut Draft, landing: &Landing, reason: &str) {
    requeue(draft, landing.id, reason);
    // Release only the claims that can expire. The claim on the trunk can; the claims on files
    // cannot, so the landing keeps them.
    claim::release_leased(draft, &ClaimOwner::Landing(landing.id));
}

/// Ends a move after somebody else moved the trunk, and discards the results of all trial merges.
fn on_trunk_moved(draft: &mut Draft, landing: &Landing, reason: &str) {
    return_trunk(draft, landing, reason);
    draft.record(Event::QueueOvertaken(QueueOvertaken {
        project: landing.project.clone(),
    }));
}

/// Adds a task to check changes that were left out when a conflict was resolved in favour of a
/// file's owner, because some may still be needed.
fn add_follow_up(
    draft: &mut Draft,
    id: LandingId,
    dropped: &DroppedSides,
    now: Now,
) -> Result<(), Refusal> {
    let task = task::find(draft.board(), find(draft.board(), id)?.task)?;
    let text = agent_texts::dropped_changes_task(task.id, dropped);
    let request = task::AddTask {
        issue_type: task.issue_type,
        files: dropped
            .paths
            .iter()
            .filter_map(|path| PathPattern::new(path).ok())
            .collect(),
        validation: task.validation.clone(),
        blocked_by: vec![task.id],
        priority: task.priority,
        expects: Expects::Changes,
        ..task::AddTask::new_report(task.project.clone(), text)
    };
    task::add(draft, request, None, now).map(|_| ())
}

/// Records that every landing of a trial merge has reached the trunk, in merge order. `old` is the
/// trunk's commit before the first landing.
pub(super) fn land_all(
    draft: &mut Draft,
    carries: &[CarriedLanding],
    old: &CommitId,
    now: Now,
) -> Result<(), Refusal> {
    let mut tip = old.clone();
    for carried in carries {
        let Some(landing) = draft.board().landings.get(&carried.landing).cloned() else {
            continue;
        };
        record_landed(draft, &landing, tip, carried, now)?;
        tip = carried.commit.clone();
    }
    Ok(())
}

/// Records that a landing has reached the trunk, completes its task, and announces it in the
/// project's channel.
fn record_landed(
    draft: &mut Draft,
    landing: &Landing,
    old: CommitId,
    carried: &CarriedLanding,
    now: Now,
) -> Result<(), Refusal> {
    let tip = &carried.commit;
    // A landing that changes nothing did not make the trunk's newest commit. Do not record that
    // commit as this landing's own, because a later undo of this task would revert other work.
    let own = match &carried.nothing_new {
        None => Some(tip.clone()),
        Some(nothing) => nothing.landed_as.clone(),
    };
    let commit = own.clone().unwrap_or_else(|| tip.clone());
    let tip = (commit != *tip).then(|| tip.clone());
    let settled = carried
        .dropped
        .as_ref()
        .map(|dropped| dropped.paths.clone());
    let event = LandingLanded {
        landing: landing.id,
        task: landing.task,
        old,
        commit: commit.clone(),
        tip,
        settled,
    };
    draft.record(Event::LandingLanded(event));
    claim::release_all(draft, &ClaimOwner::Landing(landing.id));
    let subject = task::find(draft.board(), landing.task)?.subject.clone();
    // The mission's labels are read first, because completing its last task ends the mission and
    // removes the mission from the board (the state of all live work).
    let mission = landing
        .mission
        .and_then(|id| draft.board().missions.get(&id));
    let labels = mission.map_or_else(Vec::new, |mission| lead::mission_labels(mission));
    task::complete(draft, landing.task, own.clone())?;
    let Some(commit) = own else {
        let text = format!(
            "{} ({}): {subject}: nothing to merge, the trunk contains it",
            landing.branch, landing.task
        );
        return announce_with(
            draft,
            &landing.project,
            "coord:unchanged",
            labels,
            text,
            now,
        );
    };
    let files: Vec<&str> = landing
        .submission
        .changed
        .iter()
        .map(String::as_str)
        .collect();
    let text = format!(
        "Merged {} ({}): {subject} [{}] as {}",
        landing.branch,
        landing.task,
        first_few(&files),
        &commit.as_str()[..10]
    );
    announce_with(draft, &landing.project, "coord:merge", labels, text, now)?;
    notify_siblings(draft, landing, &commit)
}

/// Sends a message to each agent that works on a task whose list of files contains a file that this
/// landing changed. The agent can then adapt its work before it conflicts.
fn notify_siblings(draft: &mut Draft, landing: &Landing, commit: &CommitId) -> Result<(), Refusal> {
    let board = draft.board();
    let at_work = board
        .attempts
        .values()
        .filter(|attempt| attempt.project == landing.project && attempt.stopping.is_none());
    let tasks: Vec<_> = at_work
        .filter_map(|attempt| board.tasks.get(&attempt.task))
        .filter(|task| task.id != landing.task)
        .cloned()
        .collect();
    for task in tasks {
        let changed = landing.submission.changed.iter().map(String::as_str);
        let common: Vec<&str> = changed
            .filter(|path| task.files.iter().any(|pattern| pattern.matches(path)))
            .collect();
        if !common.is_empty() {
            let text = agent_texts::landed_change(landing.task, commit, &common);
            intervention::send_message(draft, task.id, text)?;
        }
    }
    Ok(())
}

/// Gives up the move of the trunk that uses a person's claim, because the claim has ended. `token`
/// is the fencing token of this claim.
pub(crate) fn on_lent_fence_expired(
    draft: &mut Draft,
    token: u64,
    now: Now,
) -> Result<(), Refusal> {
    let moving = draft.board().landings.values().find(
        |landing| matches!(landing.state, LandingState::Moving { fence, .. } if fence == token),
    );
    let Some(id) = moving.map(|landing| landing.id) else {
        return Ok(());
    };
    on_fence_expired(draft, id, token, now)
}

/// Gives up a landing's move of the trunk, because the claim for the move ended before the report
/// of the move arrived. `token` is the fencing token of this claim.
pub(crate) fn on_fence_expired(
    draft: &mut Draft,
    id: LandingId,
    token: u64,
    now: Now,
) -> Result<(), Refusal> {
    let Some(landing) = draft.board().landings.get(&id).cloned() else {
        return Ok(());
    };
    match landing.state {
        LandingState::Moving { fence, .. } if fence == token => {
            // The move may have succeeded although its report did not arrive. If the trunk was
            // moved, the next trial merge finds the work on the trunk (Q7).
            on_trunk_moved(
                draft,
                &landing,
                "moving the trunk took too long; trying again",
            );
            trial_start::advance(draft, &landing.project, now)
        }
        _ => Ok(()),
    }
}
