//! What drives a program: a translator without IO, one for each protocol.
//!
//! A driver learns everything from the journal: what was said to the program and what it said, in the order in
//! which the shim wrote them down. What to say next is computed from that and from what is wished. So a daemon that
//! starts anew makes a fresh driver, shows it the journal, and goes on in mid-turn as if nothing had happened.

use std::time::Duration;

use regatta_core::session::{Class, Said, Usage};
use regatta_engine::ports::agents::{Exit, Wishes};
pub use regatta_engine::ports::agents::{Record, Stream};

/// What to do with the program's input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Say {
    /// Write this line, with a newline.
    Line(String),
    /// Close its input: most programs end then.
    Close,
}

/// How a program ended, as its driver judges it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// `None` when it did what it was asked.
    pub class: Option<Class>,
    /// What it said last, or what went wrong.
    pub detail: String,
    /// Cumulative by native session.
    pub usage: Vec<(Option<String>, Usage)>,
}

/// Translates one program's stream.
pub trait Driver: Send {
    /// Takes the next record of the journal, also those of [`Stream::In`], and says what it means.
    fn saw(&mut self, record: &Record) -> Vec<Said>;

    /// The next thing to say, or nothing for now. It is called again after what was said has come back through
    /// [`Driver::saw`], never twice for one thing; it changes nothing by itself.
    fn next(&self, wishes: &Wishes) -> Option<Say>;

    /// What the program's end means.
    fn judge(&self, exit: &Exit) -> Judgement;

    /// How long the program may take to open its session.
    fn start_patience(&self) -> Duration {
        Duration::from_secs(60)
    }
}
