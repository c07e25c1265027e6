//! The parts of the git interface that manage the attempts' workspaces, and the disk space and the
//! stored work in Regatta's own directories.

use std::path::PathBuf;
use std::time::Duration;

use regatta_core::ids::{AttemptId, BranchName, CommitId};
use regatta_core::pattern::PathPattern;
use regatta_core::task::Fixup;

use super::{
    Authorship, Capture, CopiedFiles, DiskUse, DroppedProof, GitError, ProjectRepo,
    ReachabilityProof, Workspace, WorkspaceCollision,
};

/// Creates, prepares and removes the attempts' workspaces.
pub trait WorkspaceGit: Send + Sync {
    /// Returns the path of the attempt's workspace, even if the workspace does not exist.
    fn workspace_path(&self, repo: &ProjectRepo, attempt: AttemptId) -> PathBuf;

    /// Creates the attempt's workspace from the newest commit of the trunk. If the workspace
    /// exists, returns it unchanged.
    fn prepare_workspace(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        branch: &BranchName,
    ) -> Result<Workspace, GitError>;

    /// Copies the untracked files that the setting `workspace.copy` names from the user's checkout
    /// into the workspace. The copied files do not count as the attempt's work and are never stored
    /// with it, except files that match `manifest`. Does not overwrite existing files.
    fn copy_untracked(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        manifest: &[PathPattern],
    ) -> Result<CopiedFiles, GitError>;

    /// Returns whether [`WorkspaceGit::mark_ready`] was called for the workspace, so that it need not be
    /// prepared again.
    fn is_ready(&self, repo: &ProjectRepo, attempt: AttemptId) -> bool;

    /// Records that the workspace is prepared. Untracked files that exist now and do not match
    /// `manifest` do not count as the attempt's work.
    fn mark_ready(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        manifest: &[PathPattern],
    ) -> Result<(), GitError>;

    /// Removes the attempt's workspace, or cleans its directory and keeps it for reuse by another
    /// attempt.
    fn remove_workspace(
        &self,
        proof: &ReachabilityProof,
        repo: &ProjectRepo,
    ) -> Result<(), GitError>;
}

/// Handles fix-ups: attempts that resolve the conflicts between finished work and the trunk.
pub trait FixupGit: Send + Sync {
    /// Creates the workspace of a fix-up, an attempt that repairs finished work. If the workspace
    /// exists, returns it unchanged. The workspace has the trunk's newest commit with the finished
    /// work merged onto it, and conflict markers in the conflicting files. If ownership of the
    /// files resolved a conflict, the file has the chosen version without markers. This merged
    /// state becomes the base commit of the workspace, so a later capture of the workspace contains
    /// only the repair.
    fn prepare_fixup(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        branch: &BranchName,
        fixup: &Fixup,
        authorship: &Authorship,
    ) -> Result<Workspace, GitError>;

    /// Checks the base commit of the workspace of a fix-up (an attempt that repairs finished work)
    /// on another machine. Accepts `base` only if `prepare_fixup` would make exactly this commit
    /// from the finished work and some commit of the trunk. Returns whether `base` was accepted.
    fn recognise_fixup(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        base: &CommitId,
        fixup: &Fixup,
    ) -> Result<bool, GitError>;

    /// Returns a capture (the commit of an attempt's work) as a change that can be merged onto the
    /// trunk. For a fix-up, squashes the repair and the repaired work into one commit on top of the
    /// trunk's newest commit, and keeps the original capture too. Returns any other capture
    /// unchanged.
    fn squash_fixup(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        capture: Capture,
        authorship: &Authorship,
    ) -> Result<Capture, GitError>;
}

/// Manages the files of Regatta's own repositories (vaults), and git's helper processes.
pub trait StorageGit: Send + Sync {
    /// Returns the attempts whose work is still stored under a ref of the vault (Regatta's own
    /// repository).
    fn kept_attempts(&self, repo: &ProjectRepo) -> Result<Vec<AttemptId>, GitError>;

    /// Deletes all stored work of an attempt. Requires a proof that the work was dropped and need
    /// not be kept any longer.
    fn forget_dropped(&self, proof: &DroppedProof, repo: &ProjectRepo) -> Result<(), GitError>;

    /// Deletes git objects that no ref of the vault (Regatta's own repository) reaches and that
    /// were last written at least `unused_for` ago. Keeps the commits in `landed`, even if the
    /// trunk has lost them.
    fn collect_garbage(
        &self,
        repo: &ProjectRepo,
        landed: &[CommitId],
        unused_for: Duration,
    ) -> Result<(), GitError>;

    /// Returns the directory of git objects that the project's workspaces and staging directories
    /// (separate checkouts for checks) share. Returns `None` if there is no such directory.
    fn objects_dir(&self, repo: &ProjectRepo) -> Option<PathBuf>;

    /// Ends the git processes that are kept running to answer queries. Later queries start new
    /// processes.
    fn stop_helpers(&self);
}

/// Measures and limits the disk space that workspaces take.
pub trait DiskGit: Send + Sync {
    /// Returns how many mebibytes are free on the disk with the workspaces, or `None` if that is
    /// unknown.
    fn free_disk_mb(&self) -> Option<u64>;

    /// Measures the disk space that the project's workspaces take.
    fn disk_use(&self, repo: &ProjectRepo) -> Result<DiskUse, GitError>;

    /// Removes workspaces that are kept for reuse, oldest first, until the remaining ones take no
    /// more than `most` bytes.
    fn shrink_pool(&self, repo: &ProjectRepo, most: u64) -> Result<(), GitError>;
}

/// Finds conflicts between unfinished work.
pub trait CollisionGit: Send + Sync {
    /// Returns which of these attempts' workspaces, with their files as they are on disk now, would
    /// conflict with each other or with the trunk. Stores nothing.
    fn collisions(
        &self,
        repo: &ProjectRepo,
        attempts: &[AttemptId],
        tip: &CommitId,
    ) -> Result<Vec<WorkspaceCollision>, GitError>;
}
