//! The states of a team member in a launch, and the only table of the changes that each state
//! allows.

use serde::{Deserialize, Serialize};

use super::LaunchEntry;
use crate::transition::{UnlistedTransition, write_state};

/// The state of a team member in a launch of its team.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum MemberState {
    /// The member waits for its turn to be started.
    Queued,
    /// The member's session is being opened; its program is not yet running.
    Starting,
    /// The member's program runs, but has not yet answered its first prompt.
    PendingBootstrap,
    /// The member's program asked a person for permission before it answered its first prompt.
    PendingPermission,
    /// The member has answered its first prompt and can work.
    Alive,
    /// The member could not be started, or its program ended before it answered its first prompt.
    FailedToStart,
    /// The member was not started, because a person left it out or the lead is not running.
    Skipped,
    /// The member was alive and no longer runs, or its record was lost.
    Degraded,
    Stopped,
}

impl MemberState {
    pub const ALL: [MemberState; 9] = [
        MemberState::Queued,
        MemberState::Starting,
        MemberState::PendingBootstrap,
        MemberState::PendingPermission,
        MemberState::Alive,
        MemberState::FailedToStart,
        MemberState::Skipped,
        MemberState::Degraded,
        MemberState::Stopped,
    ];

    /// Returns the state's name in the API, such as `pending_bootstrap`.
    pub fn name(self) -> &'static str {
        match self {
            MemberState::Queued => "queued",
            MemberState::Starting => "starting",
            MemberState::PendingBootstrap => "pending_bootstrap",
            MemberState::PendingPermission => "pending_permission",
            MemberState::Alive => "alive",
            MemberState::FailedToStart => "failed_to_start",
            MemberState::Skipped => "skipped",
            MemberState::Degraded => "degraded",
            MemberState::Stopped => "stopped",
        }
    }

    /// Returns whether the member is waiting to start or still starting.
    pub fn is_pending(self) -> bool {
        matches!(
            self,
            MemberState::Queued
                | MemberState::Starting
                | MemberState::PendingBootstrap
                | MemberState::PendingPermission
        )
    }
}

/// A change of a team member's state, from which [`MemberState::after`] computes the next state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberChange {
    /// The member's session is created, for the first time or again with an empty context.
    Open,
    /// The member's program started, or its session was opened.
    Run,
    /// The member's program asks for permission before it has answered its first prompt.
    AskPermission,
    /// The member's program got the answer to its request for permission.
    GetPermission,
    /// The member has answered its first prompt.
    Answer,
    /// The member could not start, or its session ended before its first answer.
    FailStart,
    /// The launch goes on without the member.
    Skip,
    /// The member was alive and no longer runs, or its record is incomplete.
    Degrade,
    /// A person stopped the member or its team.
    Stop,
    /// A person retries the start of the member.
    Retry,
}

impl MemberChange {
    pub const ALL: [MemberChange; 10] = [
        MemberChange::Open,
        MemberChange::Run,
        MemberChange::AskPermission,
        MemberChange::GetPermission,
        MemberChange::Answer,
        MemberChange::FailStart,
        MemberChange::Skip,
        MemberChange::Degrade,
        MemberChange::Stop,
        MemberChange::Retry,
    ];

    fn name(self) -> &'static str {
        match self {
            MemberChange::Open => "open a session",
            MemberChange::Run => "run",
            MemberChange::AskPermission => "ask for permission",
            MemberChange::GetPermission => "get an answer",
            MemberChange::Answer => "answer its first prompt",
            MemberChange::FailStart => "fail to start",
            MemberChange::Skip => "be skipped",
            MemberChange::Degrade => "become degraded",
            MemberChange::Stop => "be stopped",
            MemberChange::Retry => "be retried",
        }
    }
}

impl MemberState {
    /// Returns the member's next state after `change`, or an error if its present state does not
    /// allow this change.
    pub fn after(self, change: MemberChange) -> Result<MemberState, UnlistedTransition> {
        use MemberState::*;
        match (self, change) {
            // A member that is alive gets a new session when its model's context is full.
            (Queued | Alive, MemberChange::Open) => Ok(Starting),
            (Starting, MemberChange::Run) => Ok(PendingBootstrap),
            // The start of the program and the opening of its session are reported in any order,
            // and again after a restart of the daemon. Only the first report changes the state.
            (state, MemberChange::Run) => Ok(state),
            (Starting | PendingBootstrap, MemberChange::AskPermission) => Ok(PendingPermission),
            (PendingPermission, MemberChange::GetPermission) => Ok(PendingBootstrap),
            (Queued | Starting | PendingBootstrap | PendingPermission, MemberChange::Answer) => {
                Ok(Alive)
            }
            // The session of a member that is already down may end later, so the states of such a
            // member also allow this change.
            (
                Queued | Starting | PendingBootstrap | PendingPermission | Alive | FailedToStart
                | Skipped | Degraded | Stopped,
                MemberChange::FailStart,
            ) => Ok(FailedToStart),
            (Queued, MemberChange::Skip) => Ok(Skipped),
            (
                Queued | Starting | PendingBootstrap | PendingPermission | Alive | FailedToStart
                | Skipped | Degraded,
                MemberChange::Degrade,
            ) => Ok(Degraded),
            (
                Queued | Starting | PendingBootstrap | PendingPermission | Alive | FailedToStart
                | Skipped | Degraded | Stopped,
                MemberChange::Stop,
            ) => Ok(Stopped),
            (Alive | FailedToStart | Skipped | Degraded | Stopped, MemberChange::Retry) => {
                Ok(Queued)
            }
            (state, change) => Err(UnlistedTransition {
                machine: "a member",
                state: state.name(),
                event: change.name(),
            }),
        }
    }
}

impl LaunchEntry {
    /// Returns this entry of a member with the member's state changed. No other code writes the
    /// state.
    pub(super) fn changed(mut self, change: MemberChange) -> LaunchEntry {
        let next = self.state.after(change);
        write_state(&mut self.state, next);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_of_state_and_change_has_its_result() {
        use MemberState::*;
        let all_to = |next: MemberState| [Some(next); 9];
        // The columns are in the order of `MemberState::ALL`.
        let table = [
            (
                MemberChange::Open,
                [
                    Some(Starting),
                    None,
                    None,
                    None,
                    Some(Starting),
                    None,
                    None,
                    None,
                    None,
                ],
            ),
            (
                MemberChange::Run,
                [
                    Some(Queued),
                    Some(PendingBootstrap),
                    Some(PendingBootstrap),
                    Some(PendingPermission),
                    Some(Alive),
                    Some(FailedToStart),
                    Some(Skipped),
                    Some(Degraded),
                    Some(Stopped),
                ],
            ),
            (
                MemberChange::AskPermission,
                [
                    None,
                    Some(PendingPermission),
                    Some(PendingPermission),
                    None,
                    None,
                    None,
                    None,
                    None,
                    None,
                ],
            ),
            (
                MemberChange::GetPermission,
                [
                    None,
                    None,
                    None,
                    Some(PendingBootstrap),
                    None,
                    None,
                    None,
                    None,
                    None,
                ],
            ),
            (
                MemberChange::Answer,
                [
                    Some(Alive),
                    Some(Alive),
                    Some(Alive),
                    Some(Alive),
                    None,
                    None,
                    None,
                    None,
                    None,
                ],
            ),
            (MemberChange::FailStart, all_to(FailedToStart)),
            (
                MemberChange::Skip,
                [
                    Some(Skipped),
                    None,
                    None,
                    None,
                    None,
                    None,
                    None,
                    None,
                    None,
                ],
            ),
            (MemberChange::Degrade, {
                let mut row = all_to(Degraded);
                row[8] = None;
                row
            }),
            (MemberChange::Stop, all_to(Stopped)),
            (
                MemberChange::Retry,
                [
                    None,
                    None,
                    None,
                    None,
                    Some(Queued),
                    Some(Queued),
                    Some(Queued),
                    Some(Queued),
                    Some(Queued),
                ],
            ),
        ];
        assert_eq!(table.map(|(change, _)| change), MemberChange::ALL);
        for (change, row) in table {
            for (state, expected) in MemberState::ALL.into_iter().zip(row) {
                assert_eq!(state.after(change).ok(), expected, "{state:?} {change:?}");
            }
        }
    }
}
