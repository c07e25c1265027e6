//! The parts of the git interface that make commits of agents' work, read commits, and merge them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use regatta_core::ids::{AttemptId, CommitId};
use regatta_core::landing::guard::SpecialFile;
use regatta_core::project::CommitStyle;
use regatta_core::task::Conflict;

use super::{
    AuthoredChange, Authorship, Capture, CommitRange, CopiedFiles, FileChange, GitError, KeptWork,
    MergeSide, OwnershipMerge, ProjectRepo, TrialMerge,
};

/// Stores the attempts' work in commits (captures).
pub trait CaptureGit: Send + Sync {
    /// Stores the files of the workspace (tracked, new and deleted ones, but never ignored ones) as
    /// one commit in the vault, Regatta's own bare repository of the project. The ref
    /// `refs/regatta/keep/<attempt>` keeps the commit.
    fn capture(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        authorship: &Authorship,
    ) -> Result<Capture, GitError>;

    /// Returns the paths in the attempt's workspace whose content is neither on the trunk nor in
    /// the vault (Regatta's own repository of the project).
    fn uncaptured_paths(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
    ) -> Result<Vec<String>, GitError>;
}

/// Reads the stored work of attempts, and makes commits that contain only some paths of that work.
pub trait KeptWorkGit: Send + Sync {
    /// Returns the newest commit of an attempt's files that is in the vault (Regatta's own
    /// repository). The server reads the commit from the vault, because it does not trust the
    /// description that a runner (a process on another machine) sends.
    fn captured(&self, repo: &ProjectRepo, attempt: AttemptId)
    -> Result<Option<Capture>, GitError>;

    /// Returns the stored commits of an attempt's work, or `None` if there are none.
    fn kept_work(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
    ) -> Result<Option<KeptWork>, GitError>;

    /// Makes a commit with only those changes of a capture (the commit of an attempt's work) that
    /// are in the given paths. Keeps the new commit in addition to the whole capture (Q3).
    fn restrict(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        capture: &Capture,
        paths: &[String],
        authorship: &Authorship,
    ) -> Result<Capture, GitError>;

    /// Returns the changed files of a capture (the commit of an attempt's work), sorted by path.
    /// Includes the added lines if `lines` is true.
    fn changed_files(
        &self,
        repo: &ProjectRepo,
        capture: &Capture,
        lines: bool,
    ) -> Result<Vec<FileChange>, GitError>;
}

/// Reads commits and the changes between them.
pub trait CommitGit: Send + Sync {
    /// Returns the content of a file in a commit, or `None` if the path does not exist in that
    /// commit or is not a file.
    fn file_at(
        &self,
        repo: &ProjectRepo,
        commit: &CommitId,
        path: &str,
    ) -> Result<Option<Vec<u8>>, GitError>;

    /// Returns the id of a commit's tree. Two commits with the same files have the same tree.
    fn tree_of(&self, repo: &ProjectRepo, commit: &CommitId) -> Result<CommitId, GitError>;

    /// Returns the changes in a range as a patch.
    fn diff(&self, repo: &ProjectRepo, range: CommitRange<'_>) -> Result<String, GitError>;

    /// Lists the paths that differ between two commits and are not plain files in at least one of
    /// the two: executables, symbolic links, submodules, and folders in which git would find a
    /// repository. Sorted by path.
    fn special_files(
        &self,
        repo: &ProjectRepo,
        range: CommitRange<'_>,
    ) -> Result<Vec<SpecialFile>, GitError>;

    /// Lists the submodules that `commit` sets to an unpublished commit, sorted by path. A commit
    /// is unpublished if no known branch or tag of the submodule's remote contains it. Also copies
    /// such a commit into the user's copy of the submodule, so that a person can push it from
    /// there.
    fn unpublished_submodules(
        &self,
        repo: &ProjectRepo,
        range: CommitRange<'_>,
    ) -> Result<Vec<String>, GitError>;
}

/// Merges commits without checking out files. Moves no branch.
pub trait MergeGit: Send + Sync {
    /// Merges several captures (commits of attempts' work), the first onto `tip` and each further
    /// commit onto the result before it, up to the first conflict. Returns one result for each
    /// commit that was tried, so only the last can be a conflict. The merged commits are stored only
    /// if there is no conflict. One call is faster than single merges, because it waits for the disk
    /// only once.
    fn trial_merges(
        &self,
        repo: &ProjectRepo,
        tip: &CommitId,
        changes: &[AuthoredChange],
        style: CommitStyle,
    ) -> Result<Vec<TrialMerge>, GitError>;

    /// Merges one change like [`MergeGit::trial_merges`] with the style `Squash`. At each path that
    /// conflicts, takes the version of the side that `sides` names.
    fn merge_with_ownership(
        &self,
        repo: &ProjectRepo,
        tip: &CommitId,
        change: &AuthoredChange,
        sides: &BTreeMap<String, MergeSide>,
    ) -> Result<OwnershipMerge, GitError>;

    /// Returns the paths at which `change` conflicts with `tip`, each with the kind of conflict.
    fn conflicts(
        &self,
        repo: &ProjectRepo,
        tip: &CommitId,
        change: &CommitId,
    ) -> Result<Vec<Conflict>, GitError>;

    /// Makes one commit with the parent `onto` and the files of `change`. The commits between
    /// `onto` and `change` are not part of the history of the new commit.
    fn squash_range(
        &self,
        repo: &ProjectRepo,
        onto: &CommitId,
        change: &AuthoredChange,
    ) -> Result<CommitId, GitError>;

    /// Reverts the changes of a landed commit on top of `tip`, without checking out files.
    fn revert(
        &self,
        repo: &ProjectRepo,
        tip: &CommitId,
        change: &AuthoredChange,
    ) -> Result<TrialMerge, GitError>;
}

/// Checks out merged commits in staging directories, which are separate checkouts for checks.
pub trait StagingGit: Send + Sync {
    /// Checks out exactly `commit` into the staging directory (a separate checkout for checks) with
    /// the number `slot`, and removes everything else from the directory. Returns the path of the
    /// directory.
    fn stage(&self, repo: &ProjectRepo, slot: u32, commit: &CommitId) -> Result<PathBuf, GitError>;

    /// Copies the untracked files that the setting `workspace.copy` names from the user's checkout
    /// into a staging directory (a separate checkout for checks) that has `commit` checked out.
    fn prepare_staging(
        &self,
        repo: &ProjectRepo,
        slot: u32,
        commit: &CommitId,
    ) -> Result<CopiedFiles, GitError>;

    /// Removes the staging directories (separate checkouts for checks) whose number is `from` or
    /// higher.
    fn unstage(&self, repo: &ProjectRepo, from: u32) -> Result<(), GitError>;
}
