//! The state of a request, and the one table of its changes.

use super::{Approval, ApprovalDecision};
use crate::transition::{UnlistedTransition, write_state};

/// The state of a request. The record of a request stores the state in three fields: its decision,
/// whether it is kept for the task, and whether it is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalState {
    /// The request waits for an answer, and the program that asked waits too.
    Open,
    /// The question waits for an answer that the task gets, because no program waits for it.
    Kept,
    /// The request is answered. The program that asked gets the answer.
    Answered,
    /// The question is answered. The task's current or next attempt gets the answer.
    AnsweredForTask,
    /// Nobody needs the request any more. Only history has it.
    Closed,
}

/// A change of a request's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalChange {
    /// A person, a lead or the policy answered.
    Answer,
    /// The question now belongs to the task.
    Keep,
    /// The agent has read the answer.
    Read {
        /// True if the attempt that asked is over.
        is_attempt_over: bool,
    },
    /// Nobody needs the answer any more.
    Withdraw,
    /// The attempt that asked is over.
    EndAttempt,
}

impl ApprovalState {
    /// Returns the state that follows after a change, or an error if the state does not allow it.
    pub fn after(self, change: ApprovalChange) -> Result<ApprovalState, UnlistedTransition> {
        use ApprovalState::*;
        match (self, change) {
            (Open, ApprovalChange::Answer) => Ok(Answered),
            (Kept, ApprovalChange::Answer) => Ok(AnsweredForTask),
            // A question can be kept again with another assumption of the agent.
            (Open | Kept, ApprovalChange::Keep) => Ok(Kept),
            (
                Answered | AnsweredForTask,
                ApprovalChange::Read {
                    is_attempt_over: true,
                },
            ) => Ok(Closed),
            (
                state @ (Answered | AnsweredForTask),
                ApprovalChange::Read {
                    is_attempt_over: false,
                },
            ) => Ok(state),
            (Open | Kept, ApprovalChange::Withdraw) => Ok(Closed),
            (Open | Answered | AnsweredForTask, ApprovalChange::EndAttempt) => Ok(Closed),
            (Kept, ApprovalChange::EndAttempt) => Ok(Kept),
            (state, change) => Err(UnlistedTransition {
                machine: "a request",
                state: state.name(),
                event: change.name(),
            }),
        }
    }

    fn name(self) -> &'static str {
        match self {
            ApprovalState::Open => "open",
            ApprovalState::Kept => "kept for its task",
            ApprovalState::Answered => "answered",
            ApprovalState::AnsweredForTask => "answered for its task",
            ApprovalState::Closed => "closed",
        }
    }
}

impl ApprovalChange {
    fn name(self) -> &'static str {
        match self {
            ApprovalChange::Answer => "be answered",
            ApprovalChange::Keep => "be kept for its task",
            ApprovalChange::Read { .. } => "have its answer read",
            ApprovalChange::Withdraw => "be withdrawn",
            ApprovalChange::EndAttempt => "outlive its attempt",
        }
    }
}

impl Approval {
    /// Returns the state of the request.
    pub fn state(&self) -> ApprovalState {
        match (self.closed, &self.decision, self.is_kept_for_task) {
            (true, _, _) => ApprovalState::Closed,
            (false, None, false) => ApprovalState::Open,
            (false, None, true) => ApprovalState::Kept,
            (false, Some(_), false) => ApprovalState::Answered,
            (false, Some(_), true) => ApprovalState::AnsweredForTask,
        }
    }

    /// Stores an answer.
    pub(crate) fn answer(&mut self, decision: ApprovalDecision) {
        if self.change_state(ApprovalChange::Answer) {
            self.decision = Some(decision);
        }
    }

    /// Changes the state of the request. No other code writes the fields of the state. Returns
    /// whether the state allows the change.
    pub(crate) fn change_state(&mut self, change: ApprovalChange) -> bool {
        let next = self.state().after(change);
        let is_allowed = next.is_ok();
        let mut state = self.state();
        write_state(&mut state, next);
        self.closed = state == ApprovalState::Closed;
        self.is_kept_for_task |= state == ApprovalState::Kept;
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_of_state_and_change_has_its_result() {
        use ApprovalState::*;
        let states = [Open, Kept, Answered, AnsweredForTask, Closed];
        let read = |is_attempt_over| ApprovalChange::Read { is_attempt_over };
        let table = [
            (
                ApprovalChange::Answer,
                [Some(Answered), Some(AnsweredForTask), None, None, None],
            ),
            (
                ApprovalChange::Keep,
                [Some(Kept), Some(Kept), None, None, None],
            ),
            (
                read(false),
                [None, None, Some(Answered), Some(AnsweredForTask), None],
            ),
            (read(true), [None, None, Some(Closed), Some(Closed), None]),
            (
                ApprovalChange::Withdraw,
                [Some(Closed), Some(Closed), None, None, None],
            ),
            (
                ApprovalChange::EndAttempt,
                [Some(Closed), Some(Kept), Some(Closed), Some(Closed), None],
            ),
        ];
        for (change, row) in table {
            for (state, expected) in states.into_iter().zip(row) {
                assert_eq!(state.after(change).ok(), expected, "{state:?} {change:?}");
            }
        }
    }
}
