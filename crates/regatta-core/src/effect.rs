//! Effects: what the shell must do after a commit, at least once, each under its own key.
//!
//! An effect names a thing on the board, never a copy of it, so that performing it late uses what is true
//! then. It stays in the outbox until its report is committed; performing it again after a crash must end
//! in the same state.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{AttemptId, CommitId, ConversationId, FiringId, LandingId, LaunchId, ProjectName, TaskId};

/// One effect's name: the event it follows from, and which of that event's effects it is.
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

/// Something the shell must do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Effect {
    /// Make the attempt's workspace, start its agent, and report when it has ended.
    RunAttempt { attempt: AttemptId },
    /// Make the workspace of an attempt whose agent is not ours to start.
    PrepareWorkspace { attempt: AttemptId },
    /// Make whoever attends the attempt look at what it is to be told.
    Nudge { attempt: AttemptId },
    /// End the attempt's process tree.
    StopAttempt { attempt: AttemptId },
    /// Capture what the attempt left and run its validation contract.
    Validate { attempt: AttemptId },
    /// Ask the programs of a launch's members whether they can be started.
    ResolveTeam { launch: LaunchId },
    /// Merge the landing onto the trunk's tip and validate the merged tree.
    TryLanding { landing: LandingId },
    /// Move the trunk, under this fence.
    MoveTrunk { landing: LandingId, fence: u64 },
    /// Run the project's own commands for what has landed as this commit.
    AfterLanding { project: ProjectName, task: TaskId, commit: CommitId },
    /// Push this commit of the trunk where the project says.
    PushTrunk { project: ProjectName, commit: CommitId },
    /// Remove the attempt's workspace once everything in it is kept.
    RemoveWorkspace { attempt: AttemptId },
    /// Run the command of a hook that fired.
    RunHook { firing: FiringId },
    /// Push this commit as the branch of a conversation.
    PushBranch { conversation: ConversationId, commit: CommitId },
}
