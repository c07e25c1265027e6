//! Checks whether a trial still counts while its checks run. A trial that no longer counts is
//! cancelled, so that its slot is free at once.

use std::cell::Cell;
use std::time::{Duration, Instant};

use regatta_core::ids::{CommitId, LandingId};
use regatta_core::landing::State;

use crate::Engine;
use crate::ports::git::Repo;

/// The interval at which the trunk's tip is read, because somebody else may have moved it.
const LOOK: Duration = Duration::from_secs(1);

/// A running trial.
pub(super) struct Watch<'a> {
    engine: &'a Engine,
    repo: &'a Repo,
    landing: LandingId,
    /// The places where the trunk may be: where the trial began, or at a landing of the trial that
    /// has landed in the meantime.
    tips: Vec<CommitId>,
    looked: Cell<Instant>,
    elsewhere: Cell<bool>,
}

impl<'a> Watch<'a> {
    pub(super) fn new(engine: &'a Engine, repo: &'a Repo, landing: LandingId, tips: Vec<CommitId>) -> Watch<'a> {
        Watch { engine, repo, landing, tips, looked: Cell::new(Instant::now()), elsewhere: Cell::new(false) }
    }

    /// Returns whether the trial's result would still count.
    pub(super) fn counts(&self) -> bool {
        if self.elsewhere.get() {
            return false;
        }
        let mut tip = None;
        if self.looked.get().elapsed() >= LOOK {
            self.looked.set(Instant::now());
            // If the trunk cannot be read now, the move finds out where it is.
            tip = self.engine.shared.git.tip(self.repo).ok();
        }
        // The board is read after the trunk, so it already shows a move that the queue itself made.
        let board = self.engine.board();
        let mut queue = board.queue_of(&self.repo.project);
        let state = board.landings.get(&self.landing).map(|it| &it.state);
        if !matches!(state, Some(State::Trying { void: false, .. })) {
            return false;
        }
        let strange = tip.is_some_and(|it| !self.tips.contains(&it));
        self.elsewhere.set(strange && !queue.any(|it| matches!(it.state, State::Moving { .. })));
        !self.elsewhere.get()
    }

    /// Returns whether the trial was given up because somebody else moved the trunk.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.elsewhere.get()
    }
}
