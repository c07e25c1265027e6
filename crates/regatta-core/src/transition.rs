//! The error that all state machines share: an event that the current state does not allow.
//!
//! Each machine is one `match` from a state and an event to the next state: [`LandingState::after`],
//! [`MemberState::after`], [`TurnState::after`] and [`ApprovalState::after`]. A pair that the match
//! does not list is this error. The machine of a task is `task::status::next_status`, whose error is
//! a refusal, because people can request a change of a task's status that the status does not allow.
//!
//! [`LandingState::after`]: crate::landing::LandingState::after
//! [`MemberState::after`]: crate::launch::MemberState::after
//! [`TurnState::after`]: crate::conversation::TurnState::after
//! [`ApprovalState::after`]: crate::approval::ApprovalState::after

/// The error of a state machine that gets an event which its present state does not allow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{machine} that is {state} cannot {event}")]
pub struct UnlistedTransition {
    pub machine: &'static str,
    pub state: &'static str,
    pub event: &'static str,
}

/// Writes the next state of a machine.
///
/// The command that causes an event checks first that the state allows the event. A pair that the
/// machine does not list is therefore a bug of that command: it fails the tests, and a daemon keeps
/// the state as it was.
pub(crate) fn write_state<S>(state: &mut S, next: Result<S, UnlistedTransition>) {
    match next {
        Ok(next) => *state = next,
        Err(error) => debug_assert!(false, "{error}"),
    }
}
