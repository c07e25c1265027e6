//! Effects: the work that the engine must do after a commit, at least once, each under its own key.
//!
//! An effect names a thing on the board and holds no copy of it. An effect that is performed late
//! therefore uses the state at that time. An effect stays in the outbox until its report is
//! committed.
//! Performing it again after a crash must end in the same state.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{
    AttemptId, CommitId, ConversationId, FiringId, LandingId, LaunchId, ProjectName, TaskId,
};

/// The key of an effect: the revision of its event, and its number among the effects of that event.
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

/// Work for the engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Effect {
    /// Make the attempt's workspace, start its agent, and report when it has ended.
    RunAttempt { attempt: AttemptId },
    /// Make the workspace of an attempt whose agent Regatta does not start.
    PrepareWorkspace { attempt: AttemptId },
    /// Make the supervisor of the attempt's program check for new prompts and answers.
    Nudge { attempt: AttemptId },
    /// End the attempt's process tree.
    StopAttempt { attempt: AttemptId },
    /// Capture the attempt's work and run its validation contract.
    Validate { attempt: AttemptId },
    /// Ask the programs of a launch's members whether they can be started.
    ResolveTeam { launch: LaunchId },
    /// Merge the landing onto the trunk's tip and validate the merged tree.
    TryLanding { landing: LandingId },
    /// Move the trunk under this fence.
    MoveTrunk { landing: LandingId, fence: u64 },
    /// Run the project's own commands after this commit has landed.
    AfterLanding {
        project: ProjectName,
        task: TaskId,
        commit: CommitId,
    },
    /// Push this commit of the trunk to the project's remote.
    PushTrunk {
        project: ProjectName,
        commit: CommitId,
    },
    /// Remove the workspace of an attempt that nobody continues.
    RemoveWorkspace { attempt: AttemptId },
    /// Run the command of a hook that fired.
    RunHook { firing: FiringId },
    /// Push this commit as the branch of a conversation.
    PushBranch {
        conversation: ConversationId,
        commit: CommitId,
    },
}
