//! The states of a turn (one message to the agent, with its work and answer), and the only table
//! that says which changes between these states are allowed.

use serde::{Deserialize, Serialize};

use super::ConversationTurn;
use crate::transition::{UnlistedTransition, write_state};

/// The progress of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TurnState {
    /// The turn waits until the turns before it have ended.
    Queued,
    Working,
    Done,
    Failed,
    Stopped,
}

/// An event that changes the state of a turn (one message to the agent, with its work and answer).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnEvent {
    /// The agent gets the message.
    Begin,
    /// The agent has answered.
    Finish,
    /// The agent's task has failed or cannot go on.
    Fail,
    /// Somebody stopped the turn, deleted its message, or ended its task.
    Stop,
}

impl TurnState {
    /// Returns the state that follows after `event`, or an error if this state does not allow the
    /// event.
    pub fn after(self, event: TurnEvent) -> Result<TurnState, UnlistedTransition> {
        use TurnState::*;
        match (self, event) {
            (Queued, TurnEvent::Begin) => Ok(Working),
            (Working, TurnEvent::Finish) => Ok(Done),
            (Working, TurnEvent::Fail) => Ok(Failed),
            (Queued | Working, TurnEvent::Stop) => Ok(Stopped),
            (state, event) => Err(UnlistedTransition {
                machine: "a turn",
                state: state.name(),
                event: event.name(),
            }),
        }
    }

    fn name(self) -> &'static str {
        match self {
            TurnState::Queued => "queued",
            TurnState::Working => "working",
            TurnState::Done => "done",
            TurnState::Failed => "failed",
            TurnState::Stopped => "stopped",
        }
    }
}

impl TurnEvent {
    fn name(self) -> &'static str {
        match self {
            TurnEvent::Begin => "begin",
            TurnEvent::Finish => "finish",
            TurnEvent::Fail => "fail",
            TurnEvent::Stop => "stop",
        }
    }
}

impl ConversationTurn {
    /// Changes the state of the turn. No other code changes it.
    pub(super) fn change_state(&mut self, event: TurnEvent) {
        let next = self.state.after(event);
        write_state(&mut self.state, next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_of_state_and_event_has_its_result() {
        use TurnState::*;
        let states = [Queued, Working, Done, Failed, Stopped];
        let table = [
            (TurnEvent::Begin, [Some(Working), None, None, None, None]),
            (TurnEvent::Finish, [None, Some(Done), None, None, None]),
            (TurnEvent::Fail, [None, Some(Failed), None, None, None]),
            (
                TurnEvent::Stop,
                [Some(Stopped), Some(Stopped), None, None, None],
            ),
        ];
        for (event, row) in table {
            for (state, expected) in states.into_iter().zip(row) {
                assert_eq!(state.after(event).ok(), expected, "{state:?} {event:?}");
            }
        }
        let error = Done.after(TurnEvent::Begin).unwrap_err();
        assert_eq!(error.to_string(), "a turn that is done cannot begin");
    }
}
