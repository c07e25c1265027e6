//! The interface through which the engine uses git: repositories, agents' workspaces, commits of
//! their work (captures), merges, moves of the trunk, and transfers between machines.

mod commits;
mod transport;
mod trunk;
mod types;
mod workspaces;

use regatta_core::ids::{AttemptId, LandingId, ProjectName};

pub use parts::*;
pub use transport::{GitHttpRequest, GitRemote, GitService, PeerStreams, attempt_of_keep_ref};
pub use types::*;

/// Every part of the git interface, for code that calls a concrete adapter instead of `dyn Git`.
pub mod parts {
    pub use super::commits::{CaptureGit, CommitGit, KeptWorkGit, MergeGit, StagingGit};
    pub use super::transport::{MirrorGit, ServeGit};
    pub use super::trunk::{CheckoutGit, RemoteGit, TrunkGit, TrunkMoveGit};
    pub use super::workspaces::{CollisionGit, DiskGit, FixupGit, StorageGit, WorkspaceGit};
}

/// Permission to move one project's trunk once. Only the engine can create this permission, so no
/// other code can move a trunk.
#[derive(Debug)]
pub struct TrunkPermit {
    project: ProjectName,
    landing: LandingId,
    fence: u64,
    allows_rebase: bool,
}

impl TrunkPermit {
    /// Creates a permit (permission to move the trunk once) for one landing. The landing must hold
    /// a claim (a lease) on the trunk. `fence` is the fencing token of that claim (the number of
    /// the event that granted it).
    pub(crate) fn mint(project: ProjectName, landing: LandingId, fence: u64) -> TrunkPermit {
        TrunkPermit {
            project,
            landing,
            fence,
            allows_rebase: false,
        }
    }
    /// Turns the permit (permission to move the trunk once) into a permit for a rebase, which puts
    /// the trunk's own commits on top of a remote's trunk. After a rebase, the new commit need not
    /// be a descendant of the old commit. The old commit stays reachable under a ref (Q3).
    pub(crate) fn for_rebase(self) -> TrunkPermit {
        TrunkPermit {
            allows_rebase: true,
            ..self
        }
    }
    /// Returns whether the permit (permission to move the trunk once) allows a new commit that is
    /// not a descendant of the old commit.
    pub fn allows_rebase(&self) -> bool {
        self.allows_rebase
    }
    /// Creates a permit (permission to move the trunk once) for a rebase. Only the tests of
    /// adapters call this.
    #[cfg(feature = "testing")]
    pub fn rebase_for_tests(project: ProjectName) -> TrunkPermit {
        TrunkPermit::for_tests(project).for_rebase()
    }
    /// Creates a permit (permission to move the trunk once). Only the tests of adapters call this.
    #[cfg(feature = "testing")]
    pub fn for_tests(project: ProjectName) -> TrunkPermit {
        TrunkPermit::mint(project, LandingId(1), 1)
    }
    /// Returns the project whose trunk the permit (permission to move the trunk once) allows to
    /// move.
    pub fn project(&self) -> &ProjectName {
        &self.project
    }
    /// Returns the landing for which the permit (permission to move the trunk once) was created.
    pub fn landing(&self) -> LandingId {
        self.landing
    }
    /// Returns the fencing token of the claim (a lease) on the trunk, which is the number of the
    /// event that granted the claim. The holder of this claim may move the trunk.
    pub fn fence(&self) -> u64 {
        self.fence
    }
}

/// Proof that every file in a workspace is also in a commit that the trunk or one of Regatta's own
/// refs reaches. Only with this proof may the workspace be deleted.
#[derive(Debug)]
pub struct ReachabilityProof {
    attempt: AttemptId,
}

impl ReachabilityProof {
    pub(crate) fn mint(attempt: AttemptId) -> ReachabilityProof {
        ReachabilityProof { attempt }
    }
    /// Creates a proof. Only the tests of adapters call this.
    #[cfg(feature = "testing")]
    pub fn for_tests(attempt: AttemptId) -> ReachabilityProof {
        ReachabilityProof::mint(attempt)
    }
    /// Returns the attempt whose workspace this proof allows to remove.
    pub fn attempt(&self) -> AttemptId {
        self.attempt
    }
}

/// Proof that the work of an attempt was dropped long ago and need not be kept any longer. Only
/// with this proof may the work be deleted.
#[derive(Debug)]
pub struct DroppedProof {
    attempt: AttemptId,
}

impl DroppedProof {
    pub(crate) fn mint(attempt: AttemptId) -> DroppedProof {
        DroppedProof { attempt }
    }
    /// Creates a proof. Only the tests of adapters call this.
    #[cfg(feature = "testing")]
    pub fn for_tests(attempt: AttemptId) -> DroppedProof {
        DroppedProof::mint(attempt)
    }
    /// Returns the attempt whose stored work this proof allows to delete.
    pub fn attempt(&self) -> AttemptId {
        self.attempt
    }
}

/// An error of a git operation, worded for a person.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct GitError {
    /// A short code: `not_a_repository`, `unborn_branch`, `no_such_branch`, `git_missing`,
    /// `git_failed`, `io`, `busy`, `checkout_behind`, `no_such_commit`, `no_workspace`,
    /// `not_a_descendant`, `wrong_permit`, `isolation_failed`, `unreadable`, `unstorable`,
    /// `unencodable`, `grafted`, `path_too_long`, `unsafe_repository`, `first_commit`, `unsettled`,
    /// `no_such_object`, `too_much_to_copy`, `bad_sparse`, `git_slow`; between machines also
    /// `bad_request`, `ref_refused`, `bad_remote`, `unreachable`, `unauthorized`, `cut`,
    /// `not_a_mirror`, `no_wire`.
    pub code: &'static str,
    /// A sentence about what happened and why, for people.
    pub message: String,
    /// What the person can do next, for example run a command.
    pub hint: String,
}

/// The whole interface of the engine to git. A function that needs only one part takes the trait of
/// that part.
///
/// Every method may be called again with the same arguments after a crash. The second call then
/// finishes the work of the first call, or gives the same outcome again.
pub trait Git:
    SiteGit + UserRepoGit + ReadGit + DiskGit + CollisionGit + MergeGit + StagingGit
{
}

impl<T> Git for T where T: SiteGit + UserRepoGit + DiskGit + CollisionGit + MergeGit + StagingGit {}

/// The parts of the git interface that only read, for the server and the other interfaces.
pub trait ReadGit: CheckoutGit + TrunkGit + CommitGit + KeptWorkGit {}

impl<T: CheckoutGit + TrunkGit + CommitGit + KeptWorkGit> ReadGit for T {}

/// The parts of the git interface that the machine of an attempt needs.
pub trait SiteGit: WorkspaceGit + FixupGit + CaptureGit + KeptWorkGit + StorageGit {}

impl<T: WorkspaceGit + FixupGit + CaptureGit + KeptWorkGit + StorageGit> SiteGit for T {}

/// The parts of the git interface that concern the user's repository and its trunk.
pub trait UserRepoGit: CheckoutGit + TrunkGit + TrunkMoveGit + RemoteGit + CommitGit {}

impl<T: CheckoutGit + TrunkGit + TrunkMoveGit + RemoteGit + CommitGit> UserRepoGit for T {}

/// The parts of the git interface that a runner (a process that executes attempts on another
/// machine) needs.
pub trait RunnerGit: SiteGit + MirrorGit {}

impl<T: SiteGit + MirrorGit> RunnerGit for T {}
