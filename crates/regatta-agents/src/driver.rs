//! The interface of a driver: a translator without IO, one for each program protocol.
//!
//! A driver learns everything from the journal, which holds the program's input and output in the
//! order in which the shim wrote them. It computes the next input from the journal and from the
//! requested session input. A daemon that restarts therefore creates a new driver, replays the
//! journal to it, and continues in the middle of a turn.

use std::time::Duration;

use regatta_core::agent_protocol::{AgentEvent, FailureClass, Usage};
use regatta_engine::ports::agents::{Exit, SessionInput};
pub use regatta_engine::ports::agents::{JournalRecord, JournalStream};

/// An action on the program's input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputAction {
    /// Writes this line, with a newline.
    Line(String),
    /// Closes the input, upon which most programs end.
    Close,
}

/// A driver's judgement of how a program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitAssessment {
    /// The class of the failure, or `None` when the program did its work.
    pub class: Option<FailureClass>,
    /// The program's last message, or the error.
    pub detail: String,
    /// Cumulative usage per native session of the program.
    pub usage: Vec<(Option<String>, Usage)>,
}

/// The translator of one program's stream.
pub trait Driver: Send {
    /// Processes the next record of the journal, including records of [`JournalStream::In`], and
    /// returns the events that follow from it.
    fn on_record(&mut self, record: &JournalRecord) -> Vec<AgentEvent>;

    /// Returns the next input to send, or `None` if there is none for now. The session loop calls
    /// this method again only after the last input has come back through [`Driver::on_record`], so
    /// the driver never returns the same input twice. The call changes no state.
    fn next_input(&self, desired: &SessionInput) -> Option<InputAction>;

    /// Judges how the program ended.
    fn assess_exit(&self, exit: &Exit) -> ExitAssessment;

    /// Returns how long the program may take to open its session.
    fn start_timeout(&self) -> Duration {
        Duration::from_secs(60)
    }
}
