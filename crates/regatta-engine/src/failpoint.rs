//! Failpoints: places in the code where a test can abort Regatta's process, to prove that a
//! crash there loses nothing and repeats nothing.
//!
//! `REGATTA_FAILPOINT=move.ref` aborts the process when it reaches the place `move.ref` for the
//! first time, and `REGATTA_FAILPOINT=move.ref:3` when it does so for the third time. Failpoints
//! are always compiled in, so that the tested program is the shipped one. If the variable is not
//! set, a failpoint costs one read of a value in memory.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The names of all failpoints (places where a test can abort Regatta's process) that a task
/// passes on its way to the trunk, in the order in which the task passes them.
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

/// The names of all failpoints (places where a test can abort Regatta's process) around the
/// command of a hook (a rule that runs a command when something happens).
pub const HOOK_POINTS: &[&str] = &["hook.begin", "hook.ran", "hook.recorded"];

struct Armed {
    point: String,
    hits_left: AtomicU32,
}

static ARMED: OnceLock<Option<Armed>> = OnceLock::new();

/// Aborts Regatta's process if `REGATTA_FAILPOINT` names `point` and the process has reached
/// `point` as often as the variable says.
pub fn hit(point: &'static str) {
    debug_assert!(
        POINTS.contains(&point) || HOOK_POINTS.contains(&point),
        "{point} is in neither POINTS nor HOOK_POINTS"
    );
    let Some(armed) = ARMED.get_or_init(read_armed_point) else {
        return;
    };
    if armed.point == point && armed.hits_left.fetch_sub(1, Ordering::SeqCst) == 1 {
        std::process::abort();
    }
}

fn read_armed_point() -> Option<Armed> {
    let setting = std::env::var("REGATTA_FAILPOINT").ok()?;
    let (point, nth) = setting.split_once(':').unwrap_or((&setting, "1"));
    Some(Armed {
        point: point.to_owned(),
        hits_left: AtomicU32::new(nth.parse().unwrap_or(1)),
    })
}
