//! Wave commits: a wave is the tasks of a mission that can run at the same time, one step of its
//! plan. If a mission has wave commits, the finished work of a wave stays adjacent in the landing
//! queue, is tested together, and becomes one commit of the trunk.
//!
//! The landings of a wave wait only for tasks of the wave that will finish without a person's help.
//! A landing that fails, conflicts or needs a person leaves its wave, and the other landings of the
//! wave land without it; after a fix, the removed landing gets its own commit. A sub-wave (part of
//! a wave, split because tasks need the same files) counts as a separate wave, because it starts
//! from the landed work of the part before. A landing that somebody moved to the front of the queue
//! also gets its own commit.

use std::collections::BTreeMap;

use crate::board::{Board, Draft};
use crate::event::Event;
use crate::graph::PlanStep;
use crate::ids::{LandingId, MissionId, Now, ProjectName, TaskId};
use crate::refusal::Refusal;
use crate::schedule;
use crate::task::{Task, TaskStatus};

use super::{Landing, LandingAsked, LandingState, trial_start};

/// Identifies a wave (tasks that land as one commit): a mission and one step of its plan.
pub type WaveId = (MissionId, PlanStep);

/// Returns the wave (tasks that land as one commit) of this landing, or `None` if the landing gets
/// its own commit.
pub fn wave_of(board: &Board, landing: &Landing) -> Option<WaveId> {
    let mission = board
        .missions
        .get(&landing.mission?)
        .filter(|mission| mission.wave_commits)?;
    let task = board.tasks.get(&landing.task)?;
    (!landing.first && !landing.reverts).then(|| (mission.id, task.step()))
}

/// Like [`wave_of`], but looks the landing up by its id.
fn wave_of_id(board: &Board, id: &LandingId) -> Option<WaveId> {
    wave_of(board, board.landings.get(id)?)
}

/// Returns the tasks for which a wave (tasks that land as one commit) still waits: its unfinished
/// tasks that can finish without a person.
pub fn awaited_tasks(board: &Board, (mission, step): WaveId) -> Vec<TaskId> {
    board
        .open_tasks_of(mission)
        .filter(|(task_step, task)| *task_step == step && will_join(board, *task))
        .map(|(_, task)| task)
        .collect()
}

/// Returns whether an unfinished task will get into the landing queue without a person's help and
/// become part of the commit of its wave (tasks that land as one commit).
fn will_join(board: &Board, id: TaskId) -> bool {
    let joins = |task: &Task| {
        task.status != TaskStatus::Landing
            && task.fixup.is_none()
            && schedule::is_active(board, task)
    };
    board.tasks.get(&id).is_some_and(|task| joins(task))
}

/// Remembers, while one merge order is computed, which waves (tasks that land as one commit) are
/// complete. A wave is complete when it waits for no further task.
pub(super) struct WaveCompleteness<'a> {
    board: &'a Board,
    complete: BTreeMap<WaveId, bool>,
}

impl<'a> WaveCompleteness<'a> {
    pub(super) fn new(board: &'a Board) -> WaveCompleteness<'a> {
        WaveCompleteness {
            board,
            complete: BTreeMap::new(),
        }
    }

    /// Returns whether a landing may enter a trial merge: all awaited tasks of its wave (tasks that
    /// land as one commit) are in the queue, or it belongs to no wave.
    pub(super) fn allows(&mut self, landing: &Landing) -> bool {
        let Some(wave) = wave_of(self.board, landing) else {
            return true;
        };
        let board = self.board;
        *self
            .complete
            .entry(wave)
            .or_insert_with(|| awaited_tasks(board, wave).is_empty())
    }
}

/// Returns the index in `rest` of a landing that must follow `last` directly, because both belong
/// to the same wave (tasks that land as one commit).
pub(super) fn next_of_wave(
    board: &Board,
    last: Option<&LandingId>,
    rest: &[&Landing],
) -> Option<usize> {
    let wave = wave_of_id(board, last?)?;
    rest.iter()
        .position(|landing| wave_of(board, landing) == Some(wave))
}

/// Returns each length at which `order` can be cut without splitting a wave (tasks that land as one
/// commit). The landings before such a cut can land without the landings after it.
pub(super) fn wave_ends(board: &Board, order: &[LandingId]) -> Vec<usize> {
    let waves: Vec<Option<WaveId>> = order.iter().map(|id| wave_of_id(board, id)).collect();
    let cuts = |length: usize| {
        waves[length - 1].is_some() && waves.get(length) == Some(&waves[length - 1])
    };
    (1..=order.len()).filter(|length| !cuts(*length)).collect()
}

/// Returns whether a trial merge ends inside a wave (tasks that land as one commit), so that it
/// must not land without the wave's other landings.
pub(super) fn cuts_wave(board: &Board, order: &[LandingId], trial: &[LandingId]) -> bool {
    let (Some(last), Some(next)) = (trial.last(), order.get(trial.len())) else {
        return false;
    };
    order.starts_with(trial)
        && wave_of_id(board, last).is_some_and(|wave| wave_of_id(board, next) == Some(wave))
}

/// Returns whether `id` alone made its trial merge fail although other landings of its wave (tasks
/// that land as one commit) were in the trial. `ahead` are the landings before `id` in the trial.
/// The answer is yes if a trial of exactly `ahead` passed and the last landing of `ahead` belongs
/// to the same wave.
pub(super) fn is_alone_at_fault(board: &Board, id: LandingId, ahead: &[LandingId]) -> bool {
    let Some(wave) = wave_of_id(board, &id) else {
        return false;
    };
    let Some(last_ahead) = ahead.last().and_then(|id| board.landings.get(id)) else {
        return false;
    };
    wave_of(board, last_ahead) == Some(wave)
        && matches!(last_ahead.state, LandingState::Validated { .. })
        && last_ahead.trial_landings() == ahead
}

/// Returns a landing and the other queued landings of its wave (tasks that land as one commit), or
/// the landing alone if it belongs to no wave.
pub(super) fn with_wave_mates(board: &Board, id: LandingId) -> Vec<LandingId> {
    let Some(landing) = board.landings.get(&id) else {
        return vec![id];
    };
    let Some(wave) = wave_of(board, landing) else {
        return vec![id];
    };
    let mut mates: Vec<LandingId> = board
        .queue_of(&landing.project)
        .filter(|mate| wave_of(board, mate) == Some(wave) && mate.deferred_behind.is_empty())
        .map(|mate| mate.id)
        .collect();
    if !landing.deferred_behind.is_empty() {
        mates.push(id);
    }
    mates
}

/// Releases the held landings that belong to the same wave (tasks that land as one commit) as `id`,
/// because somebody asked for `id` and they must land together.
pub(super) fn release_wave_mates(draft: &mut Draft, id: LandingId) {
    let board = draft.board();
    let is_held = |mate: &LandingId| {
        *mate != id
            && board
                .landings
                .get(mate)
                .is_some_and(|landing| landing.held.is_some())
    };
    let mut held_mates = with_wave_mates(board, id);
    held_mates.retain(is_held);
    for landing in held_mates {
        draft.record(Event::LandingAsked(LandingAsked {
            landing,
            first: false,
            under: None,
        }));
    }
}

/// Advances the queues of all projects with wave commits, because the latest events may have
/// completed a wave (tasks that land as one commit).
pub(crate) fn recheck_wave_commits(draft: &mut Draft, now: Now) -> Result<(), Refusal> {
    let board = draft.board();
    let mut projects: Vec<ProjectName> = board
        .missions
        .values()
        .filter(|mission| mission.wave_commits)
        .map(|mission| mission.project.clone())
        .filter(|project| {
            board
                .queue_of(project)
                .any(|landing| landing.state == LandingState::Queued)
        })
        .collect();
    projects.dedup();
    for project in projects {
        trial_start::advance(draft, &project, now)?;
    }
    Ok(())
}
