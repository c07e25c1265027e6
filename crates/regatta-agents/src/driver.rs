//! The interface of a driver: a translator without IO, one for each program protocol.
//!
//! A driver learns everything from the journal, which holds the program's input and output in the
//! order in which the shim wrote them. It computes the next input from the journal and from the
//! requested session input. A daemon that restarts therefore creates a new driver, replays the
//! journal to it, and continues in the middle of a turn.

use std::time::Duration;

use regatta_core::session::{Class, Said, Usage};
use regatta_engine::ports::agents::{Exit, Wishes};
pub use regatta_engine::ports::agents::{Record, Stream};

/// An action on the program's input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Say {
    /// Writes this line, with a newline.
    Line(String),
    /// Closes the input, upon which most programs end.
    Close,
}

/// A driver's judgement of how a program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The class of the failure, or `None` when the program did its work.
    pub class: Option<Class>,
    /// The program's last message, or the error.
    pub detail: String,
    /// Cumulative usage per native session of the program.
    pub usage: Vec<(Option<String>, Usage)>,
}

/// The translator of one program's stream.
pub trait Driver: Send {
    /// Processes the next record of the journal, including records of [`Stream::In`], and returns
    /// the events that follow from it.
    fn saw(&mut self, record: &Record) -> Vec<Said>;

    /// Returns the next input to send, or `None` if there is none for now. The session loop calls
    /// it again only after the last input has come back through [`Driver::saw`], so it never
    /// returns the same input twice. It changes no state.
    fn next(&self, wishes: &Wishes) -> Option<Say>;

    /// Judges how the program ended.
    fn judge(&self, exit: &Exit) -> Judgement;

    /// Returns how long the program may take to open its session.
    fn start_patience(&self) -> Duration {
        Duration::from_secs(60)
    }
}
