//! Effects: side actions, such as git commands or starting programs, that the engine must do after
//! a change of the board (Regatta's stored state). Each effect has its own key and is done at least
//! once.
//!
//! An effect only names an object on the board and holds no copy of it, so an effect that is done
//! late uses the object's state at that time. An effect stays in the outbox (the stored list of
//! effects to do) until its report is stored. After a crash an effect may be done again, so doing
//! it twice must end in the same state.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{
    AttemptId, CommitId, ConversationId, FiringId, LandingId, LaunchId, ProjectName, TaskId,
};

/// Identifies an effect (a side action such as a git command): the number of the event that caused
/// it, and its position among the effects of that event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EffectKey {
    pub revision: u64,
    pub nth: u32,
}

impl fmt::Display for EffectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.revision, self.nth)
    }
}

/// A side action, such as a git command, that the engine must perform after an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Effect {
    /// Create the attempt's workspace, run its agent's program, and report when the program has
    /// ended.
    RunAttempt { attempt: AttemptId },
    /// Create the workspace for an attempt of an agent that Regatta does not start.
    PrepareWorkspace { attempt: AttemptId },
    /// Wake the supervisor of the attempt's program, so that the supervisor delivers new prompts
    /// and answers.
    Nudge { attempt: AttemptId },
    /// Stop all processes of the attempt.
    StopAttempt { attempt: AttemptId },
    /// Save the attempt's work as a commit and run the checks that the work must pass.
    Validate { attempt: AttemptId },
    /// Check whether the programs of a team's members can be started, before the team is launched.
    ResolveTeam { launch: LaunchId },
    /// Merge the landing's work on top of the trunk as a test, and check the result.
    TryLanding { landing: LandingId },
    /// Move the trunk to the landing's tested commit. `fence` is the token of the landing's claim
    /// on the trunk. If that claim has expired, the trunk does not move.
    MoveTrunk { landing: LandingId, fence: u64 },
    /// Run the commands that the project wants after a landing, for this landed commit.
    AfterLanding {
        project: ProjectName,
        task: TaskId,
        commit: CommitId,
    },
    /// Push the trunk at this commit to the project's remote.
    PushTrunk {
        project: ProjectName,
        commit: CommitId,
    },
    /// Remove the workspace of an attempt that no later attempt will continue.
    RemoveWorkspace { attempt: AttemptId },
    /// Run the command of a hook that was triggered.
    RunHook { firing: FiringId },
    /// Push this commit as the branch of a conversation's work.
    PushBranch {
        conversation: ConversationId,
        commit: CommitId,
    },
}
