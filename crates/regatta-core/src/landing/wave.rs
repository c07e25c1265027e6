//! Wave commits: if a mission wants it, the landings of one of its steps stay adjacent in the
//! queue, are tried together, and become one commit of the trunk.
//!
//! Landings of a wave wait for each other only while more of the wave is coming without a person's
//! help. A landing that fails, conflicts or needs a person leaves its wave, and the others land
//! without it; after a fix it lands as a commit of its own. A sub-wave is a wave of its own here,
//! because it starts from the landed work of the wave before. A landing that somebody moved to the
//! front goes alone.

use std::collections::BTreeMap;

use crate::board::{Board, Draft};
use crate::event::Event;
use crate::graph::Step;
use crate::ids::{LandingId, MissionId, Now, ProjectName, TaskId};
use crate::refusal::Refusal;
use crate::schedule;
use crate::task::{Status, Task};

use super::{Asked, Landing, State, queue};

/// A mission and one of its steps.
pub type Wave = (MissionId, Step);

/// Returns the wave whose commit will contain this landing, if there is one.
pub fn of(board: &Board, landing: &Landing) -> Option<Wave> {
    let mission = board.missions.get(&landing.mission?).filter(|it| it.wave_commits)?;
    let task = board.tasks.get(&landing.task)?;
    (!landing.first && !landing.reverts).then(|| (mission.id, task.step()))
}

/// Like [`of`], by id.
fn of_id(board: &Board, id: &LandingId) -> Option<Wave> {
    of(board, board.landings.get(id)?)
}

/// Returns the tasks for which a wave's commit still waits: open tasks of its step that need no
/// person.
pub fn awaited(board: &Board, (mission, step): Wave) -> Vec<TaskId> {
    board.open_tasks_of(mission).filter(|it| it.0 == step && comes(board, it.1)).map(|it| it.1).collect()
}

/// Returns whether a task will reach the queue without a person's help and join its wave's commit.
fn comes(board: &Board, id: TaskId) -> bool {
    let joins = |it: &Task| it.status != Status::Landing && it.fixup.is_none() && schedule::goes_on(board, it);
    board.tasks.get(&id).is_some_and(|it| joins(it))
}

/// A cache that tells for each wave if all of it has arrived in the queue.
pub(super) struct Waves<'a> {
    board: &'a Board,
    complete: BTreeMap<Wave, bool>,
}

impl<'a> Waves<'a> {
    pub(super) fn new(board: &'a Board) -> Waves<'a> {
        Waves { board, complete: BTreeMap::new() }
    }

    /// Returns whether a landing may be tried: its wave is complete, or it has none.
    pub(super) fn lets(&mut self, landing: &Landing) -> bool {
        let Some(wave) = of(self.board, landing) else { return true };
        let board = self.board;
        *self.complete.entry(wave).or_insert_with(|| awaited(board, wave).is_empty())
    }
}

/// Returns the index in `rest` of a landing of the same wave as `last`, which must follow it
/// directly.
pub(super) fn mate(board: &Board, last: Option<&LandingId>, rest: &[&Landing]) -> Option<usize> {
    let wave = of_id(board, last?)?;
    rest.iter().position(|it| of(board, it) == Some(wave))
}

/// Returns the lengths of prefixes that do not cut a wave.
pub(super) fn ends(board: &Board, order: &[LandingId]) -> Vec<usize> {
    let waves: Vec<Option<Wave>> = order.iter().map(|id| of_id(board, id)).collect();
    let cuts = |length: usize| waves[length - 1].is_some() && waves.get(length) == Some(&waves[length - 1]);
    (1..=order.len()).filter(|length| !cuts(*length)).collect()
}

/// Returns whether a prefix ends inside a wave. Such a prefix does not land without the rest of the
/// wave.
pub(super) fn is_cut(board: &Board, order: &[LandingId], train: &[LandingId]) -> bool {
    let (Some(last), Some(next)) = (train.last(), order.get(train.len())) else { return false };
    order.starts_with(train) && of_id(board, last).is_some_and(|it| of_id(board, next) == Some(it))
}

/// Returns whether only the last landing of a failed trial is at fault, although others of its wave
/// are ahead of it: they passed without it.
pub(super) fn alone_at_fault(board: &Board, id: LandingId, ahead: &[LandingId]) -> bool {
    let green = |it: &Landing| matches!(it.state, State::Validated { .. }) && it.train() == ahead;
    let last = ahead.last().and_then(|it| board.landings.get(it));
    of_id(board, &id).is_some() && last.is_some_and(|it| of(board, it) == of_id(board, &id) && green(it))
}

/// Returns a landing together with the other landings of its wave that are in the queue.
pub(super) fn together(board: &Board, id: LandingId) -> Vec<LandingId> {
    let Some(landing) = board.landings.get(&id) else { return vec![id] };
    match of(board, landing) {
        None => vec![id],
        Some(wave) => board
            .queue_of(&landing.project)
            .filter(|it| of(board, it) == Some(wave) && it.behind.is_empty())
            .map(|it| it.id)
            .chain(landing.behind.first().map(|_| id))
            .collect(),
    }
}

/// Releases the held landings of a wave, because somebody asked for one of them.
pub(super) fn ask_for_mates(draft: &mut Draft, id: LandingId) {
    let board = draft.board();
    let held = |it: &LandingId| *it != id && board.landings.get(it).is_some_and(|it| it.held.is_some());
    for landing in together(board, id).into_iter().filter(held).collect::<Vec<_>>() {
        draft.record(Event::LandingAsked(Asked { landing, first: false, under: None }));
    }
}

/// Advances the queues with wave commits, because an event may have completed a wave.
pub(crate) fn look_again(draft: &mut Draft, now: Now) -> Result<(), Refusal> {
    let board = draft.board();
    let mut projects: Vec<ProjectName> = board
        .missions
        .values()
        .filter(|it| it.wave_commits)
        .map(|it| it.project.clone())
        .filter(|it| board.queue_of(it).any(|it| it.state == State::Queued))
        .collect();
    projects.dedup();
    for project in projects {
        queue::advance(draft, &project, now)?;
    }
    Ok(())
}
