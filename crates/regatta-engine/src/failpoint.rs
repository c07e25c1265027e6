//! Places where a test may end the program at once, to see that nothing is lost and nothing happens twice.
//!
//! `REGATTA_FAILPOINT=move.ref` aborts the first time that place is reached, `move.ref:3` the third time. Without that
//! variable a place costs one look at a cell; it is compiled in always, so what is tested is what is shipped.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Every place there is, in the order a branch passes them on its way to the trunk.
pub const POINTS: &[&str] = &[
    "submit.begin",
    "submit.captured",
    "submit.judged",
    "submit.recorded",
    "trial.begin",
    "trial.tip",
    "trial.merged",
    "trial.staged",
    "trial.validated",
    "trial.recorded",
    "join.fetched",
    "join.replanted",
    "move.begin",
    "move.fenced",
    "move.objects",
    "move.checked",
    "move.ref",
    "move.checkout",
    "move.moved",
    "move.recorded",
    "commit.begin",
    "commit.stored",
    "after.begin",
    "after.ran",
    "after.recorded",
    "push.begin",
    "push.pushed",
    "remove.begin",
    "remove.kept",
    "remove.removed",
];

/// Every place on the way of a hook's command.
pub const HOOKS: &[&str] = &["hook.begin", "hook.ran", "hook.recorded"];

struct Armed {
    point: String,
    left: AtomicU32,
}

static ARMED: OnceLock<Option<Armed>> = OnceLock::new();

/// Ends the program here if a test asked for it.
pub fn at(point: &'static str) {
    debug_assert!(POINTS.contains(&point) || HOOKS.contains(&point), "{point} is in no list");
    let Some(armed) = ARMED.get_or_init(armed) else { return };
    if armed.point == point && armed.left.fetch_sub(1, Ordering::SeqCst) == 1 {
        std::process::abort();
    }
}

fn armed() -> Option<Armed> {
    let asked = std::env::var("REGATTA_FAILPOINT").ok()?;
    let (point, nth) = asked.split_once(':').unwrap_or((&asked, "1"));
    Some(Armed { point: point.to_owned(), left: AtomicU32::new(nth.parse().unwrap_or(1)) })
}
