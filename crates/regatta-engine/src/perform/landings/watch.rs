//! Whether a trial still counts while its checks run. One that does not is broken off, so that its slot is free at once.

use std::cell::Cell;
use std::time::{Duration, Instant};

use regatta_core::ids::{CommitId, LandingId};
use regatta_core::landing::State;

use crate::Engine;
use crate::ports::git::Repo;

/// How often it is looked where the trunk is: somebody may have moved it.
const LOOK: Duration = Duration::from_secs(1);

/// A trial under way.
pub(super) struct Watch<'a> {
    engine: &'a Engine,
    repo: &'a Repo,
    landing: LandingId,
    /// Where the trunk may be: where the trial began, or at one of those in it, which landed meanwhile.
    tips: Vec<CommitId>,
    looked: Cell<Instant>,
    elsewhere: Cell<bool>,
}

impl<'a> Watch<'a> {
    pub(super) fn new(engine: &'a Engine, repo: &'a Repo, landing: LandingId, tips: Vec<CommitId>) -> Watch<'a> {
        Watch { engine, repo, landing, tips, looked: Cell::new(Instant::now()), elsewhere: Cell::new(false) }
    }

    /// Whether its result would still count.
    pub(super) fn counts(&self) -> bool {
        if self.elsewhere.get() {
            return false;
        }
        let mut tip = None;
        if self.looked.get().elapsed() >= LOOK {
            self.looked.set(Instant::now());
            // A trunk that cannot be read now is found out about by the move.
            tip = self.engine.shared.git.tip(self.repo).ok();
        }
        // The board after the trunk: if the queue itself moved it, the board says so by now.
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

    /// Whether it was given up because somebody else moved the trunk.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.elsewhere.get()
    }
}
