//! Ends the process tree on command, or when the program has left processes behind.

use std::time::{Duration, Instant};

use crate::tree::{Asked, Tree};

/// The time that processes which the program left behind may take to end by themselves.
const LEFTOVER_GRACE: Duration = Duration::from_millis(500);

/// The interval of the search for new processes among those that the program left behind.
const ASK_ROUND: Duration = Duration::from_millis(100);

/// The interval at which the survivors of a kill are killed again.
const KILL_ROUND: Duration = Duration::from_millis(20);

/// The longest accepted grace period. It keeps an absurd number from overflowing the clock.
const LONGEST_GRACE: Duration = Duration::from_secs(24 * 60 * 60);

pub(super) struct Ender {
    tree: Tree,
    asked: Asked,
    kill_at: Option<Instant>,
    program_ended: bool,
}

impl Ender {
    pub(super) fn new(tree: Tree) -> Ender {
        Ender { tree, asked: Asked::new(), kill_at: None, program_ended: false }
    }

    /// Returns the time of the next step if no event comes first.
    pub(super) fn next(&self) -> Option<Instant> {
        self.kill_at.map(|it| if self.program_ended { it.min(Instant::now() + ASK_ROUND) } else { it })
    }

    /// Asks or kills processes as necessary: after a stop command with its grace period, after the
    /// program's end, or when the grace period is over.
    pub(super) fn step(&mut self, stop: Option<Duration>, program_ended: bool) {
        let just_ended = program_ended && !self.program_ended;
        self.program_ended = program_ended;
        // During a stop the program's children keep the grace period of the stop.
        let leftover = (just_ended && self.kill_at.is_none()).then_some(LEFTOVER_GRACE);
        // Once the program has ended, its new children are asked too, because no other process will
        // tell them. Before that they may be the program's own way to clean up.
        if program_ended || stop.is_some() {
            drop(self.tree.ask(&mut self.asked));
        }
        if let Some(grace) = stop.or(leftover) {
            let after = Instant::now() + grace.min(LONGEST_GRACE);
            self.kill_at = Some(self.kill_at.map_or(after, |it| it.min(after)));
        }
        if self.kill_at.is_some_and(|it| it <= Instant::now()) {
            drop(self.tree.kill());
            self.kill_at = Some(Instant::now() + KILL_ROUND);
        }
    }
}
