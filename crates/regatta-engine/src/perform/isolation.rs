//! Checks that an attempt without a sandbox wrote only into its workspace: compares the user's
//! checkout before and after the attempt's program ran.

use std::time::{Duration, Instant};

use regatta_core::command::Report;
use regatta_core::ids::ProjectName;
use regatta_core::isolation_breach::IsolationBreach;
use regatta_core::landing::LandingState;

use crate::Engine;

use super::{AttemptContext, block_on_until};

/// The state of the user's checkout at one moment: each path that differs from the checked-out
/// commit, with a value that identifies its content.
pub(super) struct CheckoutMarks(Vec<(String, String)>);

/// The largest number of changed paths that one report names.
const MAX_PATHS: usize = 50;

/// The longest time to wait until no landing moves the trunk. The wait is needed because moving the
/// trunk also changes files in the user's checkout.
const TRUNK_MOVE_TIMEOUT: Duration = Duration::from_secs(10);

impl CheckoutMarks {
    /// Reads the state of the user's checkout before a program starts without a sandbox. Returns
    /// `None` if the state cannot be read.
    pub(super) fn read(engine: &Engine, context: &AttemptContext) -> Option<CheckoutMarks> {
        engine
            .shared
            .git
            .checkout_marks(&context.repo)
            .ok()
            .map(CheckoutMarks)
    }

    /// Reports the paths of the user's checkout that have changed since `self` was read.
    pub(super) fn report_changes(&self, engine: &Engine, context: &AttemptContext) {
        let changes_since = |known: &[(String, String)]| -> Option<Vec<(String, String)>> {
            let marks = engine.shared.git.checkout_marks(&context.repo).ok()?;
            Some(
                marks
                    .into_iter()
                    .filter(|mark| !known.contains(mark))
                    .collect(),
            )
        };
        let Some(first) = changes_since(&self.0).filter(|changes| !changes.is_empty()) else {
            return;
        };
        // A landing also writes to the checkout for a moment. A path that still differs when no
        // landing moves the trunk was written by something else.
        if !wait_for_trunk_move(engine, &context.attempt.project) {
            return;
        }
        let Some(second) = changes_since(&self.0) else {
            return;
        };
        let paths: Vec<String> = second
            .into_iter()
            .filter(|change| first.contains(change))
            .map(|(path, _)| path)
            .take(MAX_PATHS)
            .collect();
        if !paths.is_empty() {
            report_breach(engine, context, IsolationBreach::Checkout { paths });
        }
    }
}

/// Waits until no landing moves the project's trunk. Returns `false` when that takes too long.
fn wait_for_trunk_move(engine: &Engine, project: &ProjectName) -> bool {
    let mut board = engine.watch_board();
    let deadline = Instant::now() + TRUNK_MOVE_TIMEOUT;
    loop {
        let moves = board
            .borrow_and_update()
            .queue_of(project)
            .any(|landing| matches!(landing.state, LandingState::Moving { .. }));
        if !moves {
            return true;
        }
        if Instant::now() >= deadline || engine.is_stopping() {
            return false;
        }
        let _changed = block_on_until(board.changed(), deadline);
    }
}

/// Reports that an attempt may have written outside its workspace. A repeated report changes
/// nothing.
pub(super) fn report_breach(engine: &Engine, context: &AttemptContext, sign: IsolationBreach) {
    tracing::warn!(attempt = %context.attempt.id, "attempt {} may have written outside its \
        workspace: {sign:?}", context.attempt.id);
    let report = Report::IsolationBreach {
        attempt: context.attempt.id,
        token: context.attempt.token,
        sign,
    };
    // The report is refused if the attempt has ended in the meantime. In that case it no longer
    // matters whether the attempt was isolated.
    if let Err(failure) = engine.report(report) {
        tracing::debug!(attempt = %context.attempt.id, "could not record that attempt {} may have \
            written outside its workspace, so the warning is not shown to people: {failure}",
            context.attempt.id);
    }
}
