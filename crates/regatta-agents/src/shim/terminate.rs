//! Ends the program's processes when the daemon sends a stop command, and the processes that remain
//! after the program has ended.

use std::time::{Duration, Instant};

use crate::process_tree::{ProcessTree, SignalledProcesses};

/// The time between asking the program's leftover processes to end and killing them.
const LEFTOVER_GRACE_PERIOD: Duration = Duration::from_millis(500);

/// The interval at which new processes are searched and asked to end after the program has ended.
const TERM_INTERVAL: Duration = Duration::from_millis(100);

/// The interval at which processes that survived a kill are killed again.
const KILL_INTERVAL: Duration = Duration::from_millis(20);

/// The longest time between asking processes to end and killing them. Larger values from a command
/// are cut to this time, so that adding it to the current time cannot overflow.
const MAX_GRACE_PERIOD: Duration = Duration::from_secs(24 * 60 * 60);

pub(super) struct TreeTerminator {
    tree: ProcessTree,
    signalled: SignalledProcesses,
    kill_at: Option<Instant>,
    has_program_ended: bool,
}

impl TreeTerminator {
    pub(super) fn new(tree: ProcessTree) -> TreeTerminator {
        TreeTerminator {
            tree,
            signalled: SignalledProcesses::new(),
            kill_at: None,
            has_program_ended: false,
        }
    }

    /// Returns the latest time at which [`TreeTerminator::step`] must be called again, or `None` if
    /// nothing is being ended.
    pub(super) fn next_step_at(&self) -> Option<Instant> {
        self.kill_at.map(|kill_at| {
            if self.has_program_ended {
                kill_at.min(Instant::now() + TERM_INTERVAL)
            } else {
                kill_at
            }
        })
    }

    /// Asks processes to end, or kills processes whose grace period is over. `stop` is the grace
    /// period of a new stop command; `program_ended` is true if the program itself has ended.
    pub(super) fn step(&mut self, stop: Option<Duration>, program_ended: bool) {
        let has_just_ended = program_ended && !self.has_program_ended;
        self.has_program_ended = program_ended;
        // Use the short grace period for leftover processes only if no stop is in progress;
        // otherwise they keep the grace period of the stop.
        let leftover = (has_just_ended && self.kill_at.is_none()).then_some(LEFTOVER_GRACE_PERIOD);
        // After the program has ended, ask processes that appear later to end too, because nobody
        // else asks them. Before the program's end, new processes may belong to the program's own
        // cleanup.
        if program_ended || stop.is_some() {
            drop(self.tree.terminate(&mut self.signalled));
        }
        if let Some(grace) = stop.or(leftover) {
            let kill_at = Instant::now() + grace.min(MAX_GRACE_PERIOD);
            self.kill_at = Some(self.kill_at.map_or(kill_at, |earlier| earlier.min(kill_at)));
        }
        if self
            .kill_at
            .is_some_and(|earlier| earlier <= Instant::now())
        {
            drop(self.tree.kill());
            self.kill_at = Some(Instant::now() + KILL_INTERVAL);
        }
    }
}
