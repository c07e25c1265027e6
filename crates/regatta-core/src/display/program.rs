//! The activity of the program of an attempt.

use serde::{Deserialize, Serialize};

use crate::agent_protocol::RequestContent;
use crate::approval;
use crate::attempt::{Attempt, AttemptPhase};
use crate::board::Board;

/// The label of a task or attempt whose result is being checked.
pub(super) const CHECKING: &str = "checking";

/// The activity of an attempt's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ProgramActivity {
    /// The program is being stopped.
    Stopping,
    /// The program has ended, and its work is being checked.
    Checking,
    /// The program waits for a permission.
    AwaitsPermission,
    /// The program waits for the answer to a question.
    AwaitsAnswer,
    /// A person has taken the task over and works in its workspace.
    TakenOver,
    /// The program gets no prompt at present, for example because a limit is used up.
    Held,
    /// The program starts.
    Starting,
    /// The program has been asked to end.
    Ending,
    /// The program waits for a prompt.
    Idle,
    /// The program works on a prompt, but has written nothing for suspiciously long.
    Hung,
    /// The program works on a prompt.
    InTurn,
}

impl ProgramActivity {
    /// Returns the words that people see.
    pub fn label(self) -> &'static str {
        match self {
            ProgramActivity::Stopping => "stopping",
            ProgramActivity::Checking => CHECKING,
            ProgramActivity::AwaitsPermission => "waiting for permission",
            ProgramActivity::AwaitsAnswer => "waiting for an answer",
            ProgramActivity::TakenOver => "a person works on it",
            ProgramActivity::Held => "held",
            ProgramActivity::Starting => "starting",
            ProgramActivity::Ending => "ending",
            ProgramActivity::Idle => "idle",
            ProgramActivity::Hung => "hung",
            ProgramActivity::InTurn => "working",
        }
    }
}

/// Returns the activity of an attempt's program, judged from the stored state of the attempt.
pub fn program_activity(board: &Board, attempt: &Attempt) -> ProgramActivity {
    let session = &attempt.session;
    if attempt.stopping.is_some() {
        ProgramActivity::Stopping
    } else if attempt.phase == AttemptPhase::Validating {
        ProgramActivity::Checking
    } else if let Some(open) = approval::open_request_of(board, attempt) {
        match open.request.content {
            RequestContent::Permission { .. } => ProgramActivity::AwaitsPermission,
            RequestContent::Question { .. } => ProgramActivity::AwaitsAnswer,
        }
    } else if attempt.by_hand {
        ProgramActivity::TakenOver
    } else if session.hold_reason.is_some() {
        ProgramActivity::Held
    } else if !attempt.accepts_follow_ups {
        hung_or_in_turn(attempt)
    } else if session.session_id.is_none() && session.turns == 0 {
        ProgramActivity::Starting
    } else if session.closing {
        ProgramActivity::Ending
    } else if !session.in_turn {
        ProgramActivity::Idle
    } else {
        hung_or_in_turn(attempt)
    }
}

fn hung_or_in_turn(attempt: &Attempt) -> ProgramActivity {
    if attempt.is_hung() {
        ProgramActivity::Hung
    } else {
        ProgramActivity::InTurn
    }
}

/// Describes the activity of an attempt's program, with the request for which the program waits or
/// the reason why it is held.
pub fn program_activity_text(board: &Board, attempt: &Attempt) -> String {
    let activity = program_activity(board, attempt);
    let label = activity.label();
    let request = || approval::open_request_of(board, attempt);
    match activity {
        ProgramActivity::AwaitsPermission | ProgramActivity::AwaitsAnswer => {
            request().map_or(label.to_owned(), |open| format!("{label} ({})", open.id))
        }
        ProgramActivity::Held => match &attempt.session.hold_reason {
            Some(reason) => format!("{label}: {reason}"),
            None => label.to_owned(),
        },
        _ => label.to_owned(),
    }
}
