//! Checks whether a trial still counts while its checks run. A trial that no longer counts is
//! cancelled, so that its slot is free at once.

use std::cell::Cell;
use std::time::{Duration, Instant};

use regatta_core::ids::{CommitId, LandingId};
use regatta_core::landing::LandingState;

use crate::Engine;
use crate::ports::git::ProjectRepo;

/// The interval at which the trunk's tip is read, because somebody else may have moved it.
const TIP_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// A running trial.
pub(super) struct TrialWatch<'a> {
    engine: &'a Engine,
    repo: &'a ProjectRepo,
    landing: LandingId,
    /// The places where the trunk may be: where the trial began, or at a landing of the trial that
    /// has landed in the meantime.
    tips: Vec<CommitId>,
    last_checked: Cell<Instant>,
    has_trunk_moved: Cell<bool>,
}

impl<'a> TrialWatch<'a> {
    pub(super) fn new(
        engine: &'a Engine,
        repo: &'a ProjectRepo,
        landing: LandingId,
        tips: Vec<CommitId>,
    ) -> TrialWatch<'a> {
        TrialWatch {
            engine,
            repo,
            landing,
            tips,
            last_checked: Cell::new(Instant::now()),
            has_trunk_moved: Cell::new(false),
        }
    }

    /// Returns whether the trial's result would still count.
    pub(super) fn is_still_relevant(&self) -> bool {
        if self.has_trunk_moved.get() {
            return false;
        }
        let mut tip = None;
        if self.last_checked.get().elapsed() >= TIP_CHECK_INTERVAL {
            self.last_checked.set(Instant::now());
            // If the trunk cannot be read now, the move finds out where it is.
            tip = self.engine.shared.git.tip(self.repo).ok();
        }
        // The board is read after the trunk, so it already shows a move that the queue itself made.
        let board = self.engine.board();
        let mut queued = board.queue_of(&self.repo.project);
        let state = board
            .landings
            .get(&self.landing)
            .map(|landing| &landing.state);
        if !matches!(state, Some(LandingState::Trying { void: false, .. })) {
            return false;
        }
        let is_unexpected = tip.is_some_and(|id| !self.tips.contains(&id));
        self.has_trunk_moved.set(
            is_unexpected
                && !queued.any(|landing| matches!(landing.state, LandingState::Moving { .. })),
        );
        !self.has_trunk_moved.get()
    }

    /// Returns whether the trial was given up because somebody else moved the trunk.
    pub(super) fn has_trunk_moved(&self) -> bool {
        self.has_trunk_moved.get()
    }
}
