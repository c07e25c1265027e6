//! Whether an attempt worked where it should: that isolation engaged is verified, not assumed.

use std::time::{Duration, Instant};

use regatta_core::command::{Actor, Command, Request};
use regatta_core::ids::ProjectName;
use regatta_core::isolation::Sign;
use regatta_core::landing::State;

use crate::Engine;

use super::{Scene, block_on_until};

/// The user's checkout as it was found: what differs from its commit, each with a mark.
pub(super) struct Marks(Vec<(String, String)>);

/// No more paths are told of.
const MOST_PATHS: usize = 50;

/// How long a move of the trunk is waited for: while it goes on, the checkout is neither old nor new.
const PATIENCE: Duration = Duration::from_secs(10);

impl Marks {
    /// Takes them before a program that nothing but good will holds.
    pub(super) fn take(engine: &Engine, scene: &Scene) -> Option<Marks> {
        engine.shared.git.checkout_marks(&scene.repo).ok().map(Marks)
    }

    /// Reports what was written to the checkout since.
    pub(super) fn compare(&self, engine: &Engine, scene: &Scene) {
        let looked = |known: &[(String, String)]| {
            let now = engine.shared.git.checkout_marks(&scene.repo).ok()?;
            Some(now.into_iter().filter(|it| !known.contains(it)).collect::<Vec<_>>())
        };
        let Some(found) = looked(&self.0).filter(|it| !it.is_empty()) else { return };
        // A landing writes there, too, for a moment: what is still the same when none does is somebody else's.
        if !while_nothing_moves(engine, &scene.attempt.project) {
            return;
        }
        let Some(still) = looked(&self.0) else { return };
        let paths: Vec<String> =
            still.into_iter().filter(|it| found.contains(it)).map(|it| it.0).take(MOST_PATHS).collect();
        if !paths.is_empty() {
            report(engine, scene, Sign::Checkout { paths });
        }
    }
}

/// Waits until the project's trunk is not being moved; `false` when that takes too long.
fn while_nothing_moves(engine: &Engine, project: &ProjectName) -> bool {
    let mut board = engine.watch();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let moves = board.borrow_and_update().queue_of(project).any(|it| matches!(it.state, State::Moving { .. }));
        if !moves {
            return true;
        }
        if Instant::now() >= deadline || engine.is_stopping() {
            return false;
        }
        let _changed = block_on_until(board.changed(), deadline);
    }
}

/// Tells the board. Told again, it changes nothing.
pub(super) fn report(engine: &Engine, scene: &Scene, sign: Sign) {
    tracing::warn!(attempt = %scene.attempt.id, "isolation is in doubt: {sign:?}");
    let command = Command::ReportDoubted { attempt: scene.attempt.id, token: scene.attempt.token, sign };
    // Refused when it has ended meanwhile: then nobody relies on it any longer.
    if let Err(failure) = engine.submit(Request { by: Actor::Regatta, key: None, command }) {
        tracing::debug!(attempt = %scene.attempt.id, "it is not written down: {failure}");
    }
}
