//! Ends the tree when that is asked, or when the program has left someone behind.

use std::time::{Duration, Instant};

use crate::tree::{Asked, Tree};

/// How long processes that the program left behind may take to end by themselves.
const LEFTOVER_GRACE: Duration = Duration::from_millis(500);

/// How often newcomers among the processes left behind are looked for.
const ASK_ROUND: Duration = Duration::from_millis(100);

/// How often the survivors of a kill are killed again.
const KILL_ROUND: Duration = Duration::from_millis(20);

/// Longer than anyone means; keeps a silly number from overflowing the clock.
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

    /// When there is something to do, if nothing else happens.
    pub(super) fn next(&self) -> Option<Instant> {
        self.kill_at.map(|it| if self.program_ended { it.min(Instant::now() + ASK_ROUND) } else { it })
    }

    /// Does what there is to do: after a command to stop within a grace, after the program's end, or in time.
    pub(super) fn step(&mut self, stop: Option<Duration>, program_ended: bool) {
        let just_ended = program_ended && !self.program_ended;
        self.program_ended = program_ended;
        // Under a stop the program's children keep the grace that was given.
        let leftover = (just_ended && self.kill_at.is_none()).then_some(LEFTOVER_GRACE);
        // Once the program has ended, those born since are asked too: nobody else will tell them.
        // Before, they may be the program's own way to clean up.
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
