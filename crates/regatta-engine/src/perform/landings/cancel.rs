//! Finds out during a trial (a merge that is tested before the trunk moves) whether the trial's
//! result is still needed. If not, the trial is cancelled, so that another trial can use its
//! directory at once.

use std::cell::Cell;
use std::time::{Duration, Instant};

use regatta_core::ids::{CommitId, LandingId};
use regatta_core::landing::LandingState;

use crate::Engine;
use crate::ports::git::ProjectRepo;

/// The interval at which the trunk's newest commit is read, because a person or program outside
/// Regatta may have moved the trunk.
const TIP_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Watches whether the result of a running trial (a merge that is tested before the trunk moves) is
/// still needed.
pub(super) struct TrialWatch<'a> {
    engine: &'a Engine,
    repo: &'a ProjectRepo,
    landing: LandingId,
    /// The commits to which the trunk may point while the trial (a merge that is tested before the
    /// trunk moves) stays valid: the commit on which the trial began, and the commits that its
    /// landings make.
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

    /// Returns whether the result of the trial (a merge that is tested before the trunk moves) is
    /// still needed.
    pub(super) fn is_still_relevant(&self) -> bool {
        if self.has_trunk_moved.get() {
            return false;
        }
        let mut tip = None;
        if self.last_checked.get().elapsed() >= TIP_CHECK_INTERVAL {
            self.last_checked.set(Instant::now());
            // If the trunk cannot be read now, the check is skipped, because the later move of the
            // trunk compares again.
            tip = self.engine.shared.git.tip(self.repo).ok();
        }
        // Read the board (the state of all unfinished work) after the trunk, so that the board
        // already shows every move of the trunk that the queue itself made.
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

    /// Returns whether the trial (a merge that is tested before the trunk moves) became void
    /// because something outside the queue moved the trunk.
    pub(super) fn has_trunk_moved(&self) -> bool {
        self.has_trunk_moved.get()
    }
}
