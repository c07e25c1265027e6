//! The parts of the git interface that read and move the trunk, and the user's checkout of it.

use std::path::Path;

use regatta_core::ids::{BranchName, CommitId, LandingId};
use regatta_core::landing::trunk_check::TrunkSeen;

use super::{
    GitError, ProjectRepo, PushResult, RebaseResult, RepoFacts, TrunkFacts, TrunkMoveResult,
    TrunkPermit, UnreleasedCommit, UpstreamTrunk,
};

/// Reads the user's repository and its checkout. Changes nothing in them.
pub trait CheckoutGit: Send + Sync {
    /// Reads the facts about the repository that contains the directory `path`. Changes nothing.
    fn inspect(&self, path: &Path) -> Result<RepoFacts, GitError>;

    /// Returns whether git ignores `path` in the user's checkout. A bare repository has no
    /// checkout, so the result is always false there.
    fn is_ignored(&self, repo: &ProjectRepo, path: &str) -> Result<bool, GitError>;

    /// Returns whether a person has edited a file in the checkout of the trunk: its content differs
    /// from `committed`, and the edit is not staged.
    fn is_edited(&self, repo: &ProjectRepo, path: &str, committed: &[u8])
    -> Result<bool, GitError>;

    /// Returns the changed and new paths of the user's checkout, each with a value that changes
    /// when the file is written.
    fn checkout_marks(&self, repo: &ProjectRepo) -> Result<Vec<(String, String)>, GitError>;
}

/// Reads the trunk (the branch on which finished work lands) in the user's repository.
pub trait TrunkGit: Send + Sync {
    /// Returns the newest commit of the trunk in the user's repository.
    fn tip(&self, repo: &ProjectRepo) -> Result<CommitId, GitError>;

    /// Returns the path of every file in the newest commit of the trunk, with `/` as separator.
    fn paths_at_tip(&self, repo: &ProjectRepo) -> Result<Vec<String>, GitError>;

    /// Compares the trunk with its upstream branch as of the last fetch. Does not contact the
    /// remote.
    fn trunk_facts(&self, repo: &ProjectRepo) -> Result<TrunkFacts, GitError>;

    /// Returns whether the trunk's history up to `tip` contains `commit`, or contains the commit
    /// that replaced it when the trunk was rebased onto a remote's trunk.
    fn contains(
        &self,
        repo: &ProjectRepo,
        tip: &CommitId,
        commit: &CommitId,
    ) -> Result<bool, GitError>;

    /// Returns those of `commits` that the trunk's history up to `tip` does not contain. As in
    /// [`TrunkGit::contains`], a commit that was replaced by a rebase of the trunk counts as contained.
    fn missing_commits(
        &self,
        repo: &ProjectRepo,
        tip: &CommitId,
        commits: &[CommitId],
    ) -> Result<Vec<CommitId>, GitError>;

    /// Returns the commit on the trunk that now has the role of `commit`: `commit` itself, or the
    /// commit that replaced it when the trunk was rebased onto a remote's trunk. Returns `None` if
    /// there is no such commit.
    fn current_commit_of(
        &self,
        repo: &ProjectRepo,
        commit: &CommitId,
    ) -> Result<Option<CommitId>, GitError>;

    /// Returns whether the trunk contains exactly `commit` now. A commit that replaced `commit` in
    /// a rebase does not count.
    fn contains_exactly(&self, repo: &ProjectRepo, commit: &CommitId) -> Result<bool, GitError>;

    /// Returns the commits after `from` and before `to`, without these two. Follows first parents
    /// only. The oldest commit comes first.
    fn commits_between(
        &self,
        repo: &ProjectRepo,
        from: &CommitId,
        to: &CommitId,
    ) -> Result<Vec<CommitId>, GitError>;

    /// Compares the trunk with its recorded commits, following first parents only. Returns the
    /// recorded commits that the trunk lacks, and the commits of the trunk that are not recorded.
    fn compare_trunk(
        &self,
        repo: &ProjectRepo,
        recorded: &[CommitId],
    ) -> Result<TrunkSeen, GitError>;

    /// Returns the newest commit of the trunk whose message names `landing` in a trailer, following
    /// first parents only.
    fn find_landing(
        &self,
        repo: &ProjectRepo,
        landing: LandingId,
    ) -> Result<Option<CommitId>, GitError>;

    /// Returns the commits up to `commit` that came after the last tag, newest first. If
    /// there is no tag, returns the newest commits up to a limit.
    fn unreleased_commits(
        &self,
        repo: &ProjectRepo,
        commit: &CommitId,
    ) -> Result<Vec<UnreleasedCommit>, GitError>;
}

/// Moves the trunk. No other part of the git interface can move it.
pub trait TrunkMoveGit: Send + Sync {
    /// Moves the trunk from `old` to `new`, but only if the trunk is still at `old`, and updates a
    /// clean checkout of the trunk. `new` may be several commits ahead. If the permit allows a
    /// `new` that is not a descendant of `old`, keeps `old` under `refs/regatta/keep/trunk-<old>`
    /// in the vault (Regatta's own repository) and in the user's repository.
    fn move_trunk(
        &self,
        permit: &TrunkPermit,
        repo: &ProjectRepo,
        old: &CommitId,
        new: &CommitId,
    ) -> Result<TrunkMoveResult, GitError>;
}

/// Exchanges the trunk and Regatta's branches with the user's remotes.
pub trait RemoteGit: Send + Sync {
    /// Pushes a commit of the trunk to the branch of the same name at one of the user's remotes.
    /// Never forces the push.
    fn push(
        &self,
        repo: &ProjectRepo,
        remote: &str,
        commit: &CommitId,
    ) -> Result<PushResult, GitError>;

    /// Pushes a commit to one of Regatta's own branches (`regatta/…`) at one of the user's remotes.
    /// Replaces the branch there, if necessary by force.
    fn push_branch(
        &self,
        repo: &ProjectRepo,
        remote: &str,
        branch: &BranchName,
        commit: &CommitId,
    ) -> Result<PushResult, GitError>;

    /// Fetches a remote's trunk with the user's credentials, so that the local trunk can be rebased
    /// onto it.
    fn fetch_upstream(&self, repo: &ProjectRepo, remote: &str) -> Result<UpstreamTrunk, GitError>;

    /// Rebases the local trunk's own commits onto a remote's trunk, which lacks these commits.
    /// Checks out no files and does not move the trunk.
    fn rebase_trunk(&self, repo: &ProjectRepo, onto: &CommitId) -> Result<RebaseResult, GitError>;
}
