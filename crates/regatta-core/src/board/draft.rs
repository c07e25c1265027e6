//! A change in progress: the only way to change a board.

use crate::command::Actor;
use crate::event::Event;
use crate::ids::Now;

use super::{Board, ReadyIndex, Rows};

/// A change in progress: a copy of the board plus the events that changed it. A refused command
/// drops its draft, so it leaves no trace.
pub struct Draft {
    board: Board,
    now: Now,
    actor: Actor,
    events: Vec<Event>,
    rows: Rows,
}

impl Draft {
    /// Begins a change of `board`.
    pub fn new(board: &Board, now: Now) -> Draft {
        Draft {
            board: board.clone(),
            now,
            actor: Actor::Regatta,
            events: Vec::new(),
            rows: Rows::new(),
        }
    }

    /// Sets the actor who asks for the change.
    pub(crate) fn with_actor(mut self, by: Actor) -> Draft {
        self.actor = by;
        self
    }

    /// Returns the actor who asks for the change.
    pub(crate) fn actor(&self) -> &Actor {
        &self.actor
    }

    /// Returns the board with all events so far applied.
    pub fn board(&self) -> &Board {
        &self.board
    }

    /// Takes the index of ready tasks out of the board, so that it can be changed while the board
    /// is read. [`Draft::put_ready_index`] puts it back.
    pub(crate) fn take_ready_index(&mut self) -> ReadyIndex {
        std::mem::take(&mut self.board.ready_index)
    }

    /// Puts the index of ready tasks back into the board.
    pub(crate) fn put_ready_index(&mut self, index: ReadyIndex) {
        self.board.ready_index = index;
    }

    /// Returns the time at which the change is made.
    pub(crate) fn now(&self) -> Now {
        self.now
    }

    /// Returns the revision of the next event. It is the fencing token of whatever that event
    /// grants.
    pub fn next_revision(&self) -> u64 {
        self.board.revision + 1
    }

    /// Records an event and applies it to the draft's board, so that later checks of the same
    /// command see it.
    pub(crate) fn record(&mut self, event: Event) {
        self.board.apply(&event, self.now, &mut self.rows);
        self.events.push(event);
    }

    /// Returns whether the draft has an event that [`Draft::take_events`] has not returned yet.
    pub(crate) fn has_recorded(&self) -> bool {
        !self.events.is_empty()
    }

    /// Removes and returns the events since the last call, in order.
    pub(crate) fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Returns the changed board and the changed rows.
    pub(crate) fn into_parts(self) -> (Board, Rows) {
        (self.board, self.rows)
    }
}
