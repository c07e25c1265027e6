//! Verifies isolation: compares the user's checkout before and after a program that runs without a
//! sandbox.

use std::time::{Duration, Instant};

use regatta_core::command::{Actor, Command, Request};
use regatta_core::ids::ProjectName;
use regatta_core::isolation::Sign;
use regatta_core::landing::State;

use crate::Engine;

use super::{Scene, block_on_until};

/// The state of the user's checkout: each path that differs from its commit, with a mark of its
/// content.
pub(super) struct Marks(Vec<(String, String)>);

/// The largest number of paths that a report names.
const MOST_PATHS: usize = 50;

/// The time to wait for a move of the trunk to end, because the checkout changes during a move.
const PATIENCE: Duration = Duration::from_secs(10);

impl Marks {
    /// Reads the marks before a program starts that no sandbox restricts.
    pub(super) fn take(engine: &Engine, scene: &Scene) -> Option<Marks> {
        engine.shared.git.checkout_marks(&scene.repo).ok().map(Marks)
    }

    /// Reports the paths of the checkout that were written since.
    pub(super) fn compare(&self, engine: &Engine, scene: &Scene) {
        let looked = |known: &[(String, String)]| {
            let now = engine.shared.git.checkout_marks(&scene.repo).ok()?;
            Some(now.into_iter().filter(|it| !known.contains(it)).collect::<Vec<_>>())
        };
        let Some(found) = looked(&self.0).filter(|it| !it.is_empty()) else { return };
        // A landing also writes to the checkout for a moment. A path that is still different when
        // no landing moves the trunk was written by somebody else.
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

/// Waits until the project's trunk is not being moved. Returns `false` when that takes too long.
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

/// Reports a breach of isolation. A repeated report changes nothing.
pub(super) fn report(engine: &Engine, scene: &Scene, sign: Sign) {
    tracing::warn!(attempt = %scene.attempt.id, "the attempt may have written outside its workspace: {sign:?}");
    let command = Command::ReportDoubted { attempt: scene.attempt.id, token: scene.attempt.token, sign };
    // The board refuses the report when the attempt has ended in the meantime, and then nobody
    // relies on its isolation any longer.
    if let Err(failure) = engine.submit(Request { by: Actor::Regatta, key: None, command }) {
        tracing::debug!(attempt = %scene.attempt.id, "could not record the breach of isolation: {failure}");
    }
}
