//! One commit per wave: the landings of one step of a mission that wants it so stand together in the queue, are tried
//! together, and become one commit of the trunk.
//!
//! They wait for each other only as long as something more comes by itself. Who fails, conflicts or needs a person
//! leaves its wave, and the others land without it; mended, it lands as a commit of its own. A sub-wave is a wave of
//! its own here: it starts from what the one before it landed. A landing that somebody put first goes alone.

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

/// The wave whose commit a landing is to be part of, if it is.
pub fn of(board: &Board, landing: &Landing) -> Option<Wave> {
    let mission = board.missions.get(&landing.mission?).filter(|it| it.wave_commits)?;
    let task = board.tasks.get(&landing.task)?;
    (!landing.first && !landing.reverts).then(|| (mission.id, task.step()))
}

fn of_id(board: &Board, id: &LandingId) -> Option<Wave> {
    of(board, board.landings.get(id)?)
}

/// What a wave's commit still waits for: tasks of its step that will come by themselves.
pub fn awaited(board: &Board, (mission, step): Wave) -> Vec<TaskId> {
    board.open_tasks_of(mission).filter(|it| it.0 == step && comes(board, it.1)).map(|it| it.1).collect()
}

fn comes(board: &Board, id: TaskId) -> bool {
    let joins = |it: &Task| it.status != Status::Landing && it.fixup.is_none() && schedule::goes_on(board, it);
    board.tasks.get(&id).is_some_and(|it| joins(it))
}

/// The waves of a project's landings of which nothing more is to come, and those that still wait.
pub(super) struct Waves<'a> {
    board: &'a Board,
    complete: BTreeMap<Wave, bool>,
}

impl<'a> Waves<'a> {
    pub(super) fn new(board: &'a Board) -> Waves<'a> {
        Waves { board, complete: BTreeMap::new() }
    }

    /// Whether it may be tried: its wave is complete, or it has none.
    pub(super) fn lets(&mut self, landing: &Landing) -> bool {
        let Some(wave) = of(self.board, landing) else { return true };
        let board = self.board;
        *self.complete.entry(wave).or_insert_with(|| awaited(board, wave).is_empty())
    }
}

/// Who of these comes next behind `last`: who belongs into the same commit, if anybody does.
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

/// Whether a prefix ends within a wave of which more is behind it: it does not land without them.
pub(super) fn is_cut(board: &Board, order: &[LandingId], train: &[LandingId]) -> bool {
    let (Some(last), Some(next)) = (train.last(), order.get(train.len())) else { return false };
    order.starts_with(train) && of_id(board, last).is_some_and(|it| of_id(board, next) == Some(it))
}

/// Whether a trial's failure is its last landing's own doing, though others of its wave are before it: they passed
/// without it.
pub(super) fn alone_at_fault(board: &Board, id: LandingId, ahead: &[LandingId]) -> bool {
    let green = |it: &Landing| matches!(it.state, State::Validated { .. }) && it.train() == ahead;
    let last = ahead.last().and_then(|it| board.landings.get(it));
    of_id(board, &id).is_some() && last.is_some_and(|it| of(board, it) == of_id(board, &id) && green(it))
}

/// A landing and all of its wave that are in the queue.
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

/// Lets everybody of a wave go on that is held, since somebody asked for one of them.
pub(super) fn ask_for_mates(draft: &mut Draft, id: LandingId) {
    let board = draft.board();
    let held = |it: &LandingId| *it != id && board.landings.get(it).is_some_and(|it| it.held.is_some());
    for landing in together(board, id).into_iter().filter(held).collect::<Vec<_>>() {
        draft.record(Event::LandingAsked(Asked { landing, first: false, under: None }));
    }
}

/// Something happened that may have completed a wave: its landings go on.
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
