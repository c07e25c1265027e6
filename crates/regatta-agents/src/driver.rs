//! The interface of a driver: a translator that does no input or output, one for each program
//! protocol.
//!
//! A driver learns everything from the journal, which holds the program's input and output in the
//! order in which the shim (supervisor process) wrote them. The driver computes the next input from
//! the journal and from the requested session input. A daemon that restarts therefore creates a new
//! driver, replays the journal to it, and continues in the middle of a turn.

use std::time::Duration;

use regatta_core::agent_protocol::{AgentEvent, FailureClass, Usage};
use regatta_engine::ports::agents::{Exit, SessionInput};
pub use regatta_engine::ports::agents::{JournalRecord, JournalStream};

/// An action on the program's standard input: write a line, or close it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputAction {
    /// Write this text and a newline to the program's standard input.
    Line(String),
    /// Close the program's standard input. Most programs end after that.
    Close,
}

/// A driver's judgement of an ended program: success or the kind of failure, a text, and the usage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitAssessment {
    /// The kind of failure, or `None` when the program did its work.
    pub class: Option<FailureClass>,
    /// The program's last message if it succeeded, or the description of its failure.
    pub detail: String,
    /// The tokens and cost since the start of each session, with the program's own id of that
    /// session if the id is known.
    pub usage: Vec<(Option<String>, Usage)>,
}

/// Translates between one program's protocol and Regatta's events and input.
pub trait Driver: Send {
    /// Processes the next record of the journal and returns the events that follow from it. The
    /// records include the program's input ([`JournalStream::In`]).
    fn on_record(&mut self, record: &JournalRecord) -> Vec<AgentEvent>;

    /// Returns the next input to send to the program, or `None` if there is none for now. The
    /// session loop calls this method again only after the last input has come back through
    /// [`Driver::on_record`], so the driver never returns the same input twice. The call changes no
    /// state.
    fn next_input(&self, desired: &SessionInput) -> Option<InputAction>;

    /// Decides from the journal and the exit status whether the program did its work or failed, and
    /// why.
    fn assess_exit(&self, exit: &Exit) -> ExitAssessment;

    /// Returns the time that the program may take after its start to open its session.
    fn start_timeout(&self) -> Duration {
        Duration::from_secs(60)
    }
}
