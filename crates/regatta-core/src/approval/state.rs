//! The states of an agent's permission request or question, and the only table that says which
//! changes between these states are allowed.

use super::{Approval, ApprovalDecision};
use crate::transition::{UnlistedTransition, write_state};

/// The state of an agent's permission request or question. An [`Approval`] does not store this
/// state itself: the state follows from its fields `decision`, `is_kept_for_task` and `closed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalState {
    /// The request waits for an answer, and the program that asked waits too.
    Open,
    /// The question waits for an answer. No program waits for it any more, so the task's current or
    /// next attempt gets the answer.
    Kept,
    /// The request is answered. The program that asked gets the answer.
    Answered,
    /// The question is answered. The task's current or next attempt gets the answer.
    AnsweredForTask,
    /// Nobody needs the request any more. It leaves the board (the state in memory), and only the
    /// store keeps it, as history.
    Closed,
}

/// An event that changes the state of a permission request or question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalChange {
    /// A person, a lead agent or the permission policy answered the request.
    Answer,
    /// The question now belongs to the task, because the program that asked no longer waits for the
    /// answer.
    Keep,
    /// The answer needs no further delivery, for example because the agent has read it.
    Read {
        /// True if the attempt whose agent asked is over.
        is_attempt_over: bool,
    },
    /// The request is closed, because nobody needs its answer any more.
    Withdraw,
    /// The attempt whose agent asked is over.
    EndAttempt,
}

impl ApprovalState {
    /// Returns the state that follows after `change`, or an error if this state does not allow the
    /// change.
    pub fn after(self, change: ApprovalChange) -> Result<ApprovalState, UnlistedTransition> {
        use ApprovalState::*;
        match (self, change) {
            (Open, ApprovalChange::Answer) => Ok(Answered),
            (Kept, ApprovalChange::Answer) => Ok(AnsweredForTask),
            // A kept question may be kept again, because the agent can state another assumption.
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
            // An answer that waits for the next attempt is withdrawn when its task ends.
            (Open | Kept | Answered | AnsweredForTask, ApprovalChange::Withdraw) => Ok(Closed),
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
    /// Returns the state of the request, which follows from its stored fields.
    pub fn state(&self) -> ApprovalState {
        match (self.closed, &self.decision, self.is_kept_for_task) {
            (true, _, _) => ApprovalState::Closed,
            (false, None, false) => ApprovalState::Open,
            (false, None, true) => ApprovalState::Kept,
            (false, Some(_), false) => ApprovalState::Answered,
            (false, Some(_), true) => ApprovalState::AnsweredForTask,
        }
    }

    /// Stores the answer to this request. The caller must have checked that the request is neither
    /// answered nor closed.
    pub(crate) fn answer(&mut self, decision: ApprovalDecision) {
        if self.change_state(ApprovalChange::Answer) {
            self.decision = Some(decision);
        }
    }

    /// Changes the state of the request if the present state allows the change, and returns whether
    /// it does. A change that is not allowed is a bug of the caller and fails the tests. No other
    /// code writes the fields `closed` and `is_kept_for_task`.
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
                [Some(Closed), Some(Closed), Some(Closed), Some(Closed), None],
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
