//! Ends the process tree on command, or when the program has left processes behind.

use std::time::{Duration, Instant};

use crate::process_tree::{ProcessTree, SignalledProcesses};

/// The time that processes which the program left behind may take to end by themselves.
const LEFTOVER_GRACE_PERIOD: Duration = Duration::from_millis(500);

/// The interval of the search for new processes among those that the program left behind.
const TERM_INTERVAL: Duration = Duration::from_millis(100);

/// The interval at which the survivors of a kill are killed again.
const KILL_INTERVAL: Duration = Duration::from_millis(20);

/// The longest accepted grace period. It keeps an absurd number from overflowing the clock.
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

    /// Returns the time of the next step if no event comes first.
    pub(super) fn next_step_at(&self) -> Option<Instant> {
        self.kill_at.map(|kill_at| {
            if self.has_program_ended {
                kill_at.min(Instant::now() + TERM_INTERVAL)
            } else {
                kill_at
            }
        })
    }

    /// Asks or kills processes as necessary: after a stop command with its grace period, after the
    /// program's end, or when the grace period is over.
    pub(super) fn step(&mut self, stop: Option<Duration>, program_ended: bool) {
        let has_just_ended = program_ended && !self.has_program_ended;
        self.has_program_ended = program_ended;
        // During a stop the program's children keep the grace period of the stop.
        let leftover = (has_just_ended && self.kill_at.is_none()).then_some(LEFTOVER_GRACE_PERIOD);
        // Once the program has ended, its new children are asked too, because no other process will
        // tell them. Before that they may be the program's own way to clean up.
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
