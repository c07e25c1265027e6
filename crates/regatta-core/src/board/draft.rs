//! A change of the board that is being prepared. There is no other way to change a board.

use crate::command::Actor;
use crate::event::Event;
use crate::ids::Now;

use super::{Board, ReadyIndex, Rows};

/// A change of the board that is being prepared: a copy of the board, the new events, and the
/// stored rows that these events change. If a command is refused, its draft is dropped and the
/// board stays unchanged.
pub struct Draft {
    board: Board,
    now: Now,
    actor: Actor,
    events: Vec<Event>,
    rows: Rows,
}

impl Draft {
    /// Starts a draft: a copy of `board` on which a change at the time `now` is prepared.
    pub fn new(board: &Board, now: Now) -> Draft {
        Draft {
            board: board.clone(),
            now,
            actor: Actor::Regatta,
            events: Vec::new(),
            rows: Rows::new(),
        }
    }

    /// Sets the person, agent or service that asked for the change.
    pub(crate) fn with_actor(mut self, by: Actor) -> Draft {
        self.actor = by;
        self
    }

    /// Returns the person, agent or service that asked for the change.
    pub(crate) fn actor(&self) -> &Actor {
        &self.actor
    }

    /// Returns the draft's board, which includes the effect of all events that the draft has
    /// recorded.
    pub fn board(&self) -> &Board {
        &self.board
    }

    /// Takes the index of ready tasks out of the board, so that the caller can update the index
    /// while it reads the board. The caller must put it back with [`Draft::put_ready_index`].
    pub(crate) fn take_ready_index(&mut self) -> ReadyIndex {
        std::mem::take(&mut self.board.ready_index)
    }

    /// Puts the index of ready tasks back into the board, after [`Draft::take_ready_index`].
    pub(crate) fn put_ready_index(&mut self, index: ReadyIndex) {
        self.board.ready_index = index;
    }

    /// Returns the time of the change that this draft prepares.
    pub(crate) fn now(&self) -> Now {
        self.now
    }

    /// Returns the number that the next event will get. If that event grants a claim or starts an
    /// attempt, this number is also the token of the claim or attempt. The owner shows the token
    /// to prove that its claim or attempt is still the current one.
    pub fn next_revision(&self) -> u64 {
        self.board.revision + 1
    }

    /// Records an event and applies it to the draft's board at once, so that later checks of the
    /// same command see its effect.
    pub(crate) fn record(&mut self, event: Event) {
        self.board.apply(&event, self.now, &mut self.rows);
        self.events.push(event);
    }

    /// Returns whether the draft has recorded events that [`Draft::take_events`] has not returned
    /// yet.
    pub(crate) fn has_recorded(&self) -> bool {
        !self.events.is_empty()
    }

    /// Removes and returns the events that were recorded since the last call, oldest first.
    pub(crate) fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Ends the draft and returns the changed board with the rows that must be stored.
    pub(crate) fn into_parts(self) -> (Board, Rows) {
        (self.board, self.rows)
    }
}
