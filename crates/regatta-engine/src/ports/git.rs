//! The interface through which the engine uses git: repositories, agents' workspaces, commits of
//! their work (captures), merges, moves of the trunk, and transfers between machines.

mod transport;
mod types;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use regatta_core::ids::{AttemptId, BranchName, CommitId, LandingId, ProjectName};
use regatta_core::landing::guard::SpecialFile;
use regatta_core::landing::trunk_check::TrunkSeen;
use regatta_core::pattern::PathPattern;
use regatta_core::project::CommitStyle;
use regatta_core::task::{Conflict, Fixup};

pub use transport::{GitHttpRequest, GitRemote, GitService, attempt_of_keep_ref};
pub use types::*;

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
    /// The next step for the person, for example a command.
    pub hint: String,
}

impl GitError {
    /// Returns the error of an adapter that cannot exchange commits with other machines.
    fn transport_unsupported() -> GitError {
        GitError {
            code: "no_wire",
            message: "This git adapter cannot exchange commits with other machines.".into(),
            hint: "Work on the project on the machine that has its repository.".into(),
        }
    }
}

/// The interface to git. Every method may be called again with the same arguments after a crash.
/// The second call then finishes the work of the first call, or gives the same outcome again.
pub trait Git: Send + Sync {
    /// Reads the facts about the repository that contains the directory `path`. Changes nothing.
    fn inspect(&self, path: &Path) -> Result<RepoFacts, GitError>;
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
    /// [`Git::contains`], a commit that was replaced by a rebase of the trunk counts as contained.
    fn missing_commits(
        &self,
        repo: &ProjectRepo,
        tip: &CommitId,
        commits: &[CommitId],
    ) -> Result<Vec<CommitId>, GitError> {
        let mut missing = Vec::new();
        for commit in commits {
            if !self.contains(repo, tip, commit)? {
                missing.push(commit.clone());
            }
        }
        Ok(missing)
    }
    /// Returns the commit on the trunk that now has the role of `commit`: `commit` itself, or the
    /// commit that replaced it when the trunk was rebased onto a remote's trunk. Returns `None` if
    /// there is no such commit.
    fn current_commit_of(
        &self,
        repo: &ProjectRepo,
        commit: &CommitId,
    ) -> Result<Option<CommitId>, GitError> {
        Ok(self
            .contains(repo, &self.tip(repo)?, commit)?
            .then(|| commit.clone()))
    }
    /// Returns whether the trunk contains exactly `commit` now. A commit that replaced `commit` in
    /// a rebase does not count.
    fn contains_exactly(&self, repo: &ProjectRepo, commit: &CommitId) -> Result<bool, GitError> {
        self.contains(repo, &self.tip(repo)?, commit)
    }
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
    /// Returns how many mebibytes are free on the disk with the workspaces, or `None` if that is
    /// unknown.
    fn free_disk_mb(&self) -> Option<u64> {
        None
    }
    /// Ends the git processes that are kept running to answer queries. Later queries start new
    /// processes.
    fn stop_helpers(&self) {}
    /// Returns the directory of git objects that the project's workspaces and staging directories
    /// (separate checkouts for checks) share. Returns `None` if there is no such directory.
    fn objects_dir(&self, repo: &ProjectRepo) -> Option<PathBuf> {
        let _ = repo;
        None
    }
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
    /// Returns the paths at which `change` conflicts with `tip`, each with the kind of conflict.
    fn conflicts(
        &self,
        repo: &ProjectRepo,
        tip: &CommitId,
        change: &CommitId,
    ) -> Result<Vec<Conflict>, GitError> {
        let _ = (repo, tip, change);
        Ok(vec![])
    }
    /// Checks the base commit of the workspace of a fix-up (an attempt that repairs finished work)
    /// on another machine. Accepts `base` only if `prepare_fixup` would make exactly this commit
    /// from the finished work and some commit of the trunk. Returns whether `base` was accepted.
    fn recognise_fixup(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        base: &CommitId,
        fixup: &Fixup,
    ) -> Result<bool, GitError> {
        let _ = (repo, attempt, base, fixup);
        Err(GitError::transport_unsupported())
    }
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
    /// Copies the untracked files that the setting `workspace.copy` names from the user's checkout
    /// into the workspace. The copied files do not count as the attempt's work and are never stored
    /// with it, except files that match `manifest`. Does not overwrite existing files.
    fn copy_untracked(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        manifest: &[PathPattern],
    ) -> Result<CopiedFiles, GitError>;
    /// Returns whether [`Git::mark_ready`] was called for the workspace, so that it need not be
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
    /// Stores the files of the workspace (tracked, new and deleted ones, but never ignored ones) as
    /// one commit in the vault, Regatta's own bare repository of the project. The ref
    /// `refs/regatta/keep/<attempt>` keeps the commit.
    fn capture(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        authorship: &Authorship,
    ) -> Result<Capture, GitError>;
    /// Makes a commit with only those changes of a capture (the commit of an attempt's work) that
    /// are in the given paths. Keeps the new commit in addition to the whole capture (Q3).
    fn restrict(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        part: (&Capture, &[String]),
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
    /// Lists the paths that differ between two commits and are not plain files in at least one of
    /// the two: executables, symbolic links, submodules, and folders in which git would find a
    /// repository. Sorted by path.
    fn special_files(
        &self,
        repo: &ProjectRepo,
        base: &CommitId,
        commit: &CommitId,
    ) -> Result<Vec<SpecialFile>, GitError>;
    /// Lists the submodules that `commit` sets to an unpublished commit, sorted by path. A commit
    /// is unpublished if no known branch or tag of the submodule's remote contains it. Also copies
    /// such a commit into the user's copy of the submodule, so that a person can push it from
    /// there.
    fn unpublished_submodules(
        &self,
        repo: &ProjectRepo,
        base: &CommitId,
        commit: &CommitId,
    ) -> Result<Vec<String>, GitError> {
        let _ = (repo, base, commit);
        Ok(vec![])
    }
    /// Returns whether git ignores `path` in the user's checkout. A bare repository has no
    /// checkout, so the result is always false there.
    fn is_ignored(&self, repo: &ProjectRepo, path: &str) -> Result<bool, GitError>;
    /// Returns the changed and new paths of the user's checkout, each with a value that changes
    /// when the file is written.
    fn checkout_marks(&self, repo: &ProjectRepo) -> Result<Vec<(String, String)>, GitError>;
    /// Merges a capture (the commit of an attempt's work) onto `tip` without checking out files.
    ///
    /// The style `Squash` makes one commit, `Rebase` makes one for each of the agent's own commits,
    /// and `Merge` makes a merge commit.
    fn trial_merge(
        &self,
        repo: &ProjectRepo,
        tip: &CommitId,
        commit: &CommitId,
        authorship: &Authorship,
        style: CommitStyle,
    ) -> Result<TrialMerge, GitError>;
    /// Merges several captures (commits of attempts' work), the first onto `tip` and each further
    /// commit onto the result before it, up to the first conflict. Returns one result for each
    /// commit that was tried, so only the last can be a conflict. One call is faster than single
    /// merges, because it waits for the disk only once.
    fn trial_merges(
        &self,
        repo: &ProjectRepo,
        tip: &CommitId,
        changes: &[(CommitId, Authorship)],
        style: CommitStyle,
    ) -> Result<Vec<TrialMerge>, GitError> {
        let mut tip = tip.clone();
        let mut merges = Vec::with_capacity(changes.len());
        for (commit, authorship) in changes {
            let trial = self.trial_merge(repo, &tip, commit, authorship, style)?;
            match &trial {
                TrialMerge::Clean(next) => tip = next.clone(),
                TrialMerge::Empty => {}
                TrialMerge::Conflict(_) => {
                    merges.push(trial);
                    break;
                }
            }
            merges.push(trial);
        }
        Ok(merges)
    }
    /// Merges like [`Git::trial_merge`] with the style `Squash`. At each path that conflicts, takes
    /// the version of the side that `sides` names.
    fn merge_with_ownership(
        &self,
        repo: &ProjectRepo,
        tip: &CommitId,
        commit: &CommitId,
        sides: &BTreeMap<String, MergeSide>,
        authorship: &Authorship,
    ) -> Result<OwnershipMerge, GitError>;
    /// Makes one commit with the parent `onto` and the files of `commit`. The commits between
    /// `onto` and `commit` are not part of the history of the new commit.
    fn squash_range(
        &self,
        repo: &ProjectRepo,
        onto: &CommitId,
        commit: &CommitId,
        authorship: &Authorship,
    ) -> Result<CommitId, GitError>;
    /// Reverts the changes of `commit` on top of `tip`, without checking out files.
    fn revert(
        &self,
        repo: &ProjectRepo,
        tip: &CommitId,
        commit: &CommitId,
        authorship: &Authorship,
    ) -> Result<TrialMerge, GitError>;
    /// Returns the content of a file in a commit, or `None` if the path does not exist in that
    /// commit or is not a file.
    fn file_at(
        &self,
        repo: &ProjectRepo,
        commit: &CommitId,
        path: &str,
    ) -> Result<Option<Vec<u8>>, GitError>;
    /// Returns whether a person has edited a file in the checkout of the trunk: its content differs
    /// from `committed`, and the edit is not staged.
    fn is_edited(&self, repo: &ProjectRepo, path: &str, committed: &[u8])
    -> Result<bool, GitError>;
    /// Returns the id of a commit's tree. Two commits with the same files have the same tree.
    fn tree_of(&self, repo: &ProjectRepo, commit: &CommitId) -> Result<CommitId, GitError>;
    /// Returns the changes from `base` to `commit` as a patch.
    fn diff(
        &self,
        repo: &ProjectRepo,
        base: &CommitId,
        commit: &CommitId,
    ) -> Result<String, GitError>;
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
    ) -> Result<CopiedFiles, GitError> {
        let _ = (repo, slot, commit);
        Ok(CopiedFiles::default())
    }
    /// Removes the staging directories (separate checkouts for checks) whose number is `from` or
    /// higher.
    fn unstage(&self, repo: &ProjectRepo, from: u32) -> Result<(), GitError>;
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
    ) -> Result<PushResult, GitError> {
        let _ = (repo, remote, branch, commit);
        Err(GitError::transport_unsupported())
    }
    /// Fetches a remote's trunk with the user's credentials, so that the local trunk can be rebased
    /// onto it.
    fn fetch_upstream(&self, repo: &ProjectRepo, remote: &str) -> Result<UpstreamTrunk, GitError> {
        let _ = (repo, remote);
        Err(GitError::transport_unsupported())
    }
    /// Rebases the local trunk's own commits onto a remote's trunk, which lacks these commits.
    /// Checks out no files and does not move the trunk.
    fn rebase_trunk(&self, repo: &ProjectRepo, onto: &CommitId) -> Result<RebaseResult, GitError> {
        let _ = (repo, onto);
        Err(GitError::transport_unsupported())
    }
    /// Returns the commits up to `commit` that came after the last tag, newest first. Returns
    /// `None` if the adapter cannot tell.
    fn unreleased_commits(
        &self,
        repo: &ProjectRepo,
        commit: &CommitId,
    ) -> Result<Option<Vec<UnreleasedCommit>>, GitError> {
        let _ = (repo, commit);
        Ok(None)
    }
    /// Returns which of these attempts' workspaces, with their files as they are on disk now, would
    /// conflict with each other or with the trunk. Stores nothing.
    fn collisions(
        &self,
        repo: &ProjectRepo,
        attempts: &[AttemptId],
        tip: &CommitId,
    ) -> Result<Vec<WorkspaceCollision>, GitError>;
    /// Returns the paths in the attempt's workspace whose content is neither on the trunk nor in
    /// the vault (Regatta's own repository of the project).
    fn uncaptured_paths(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
    ) -> Result<Vec<String>, GitError>;
    /// Removes the attempt's workspace, or cleans its directory and keeps it for reuse by another
    /// attempt.
    fn remove_workspace(
        &self,
        proof: &ReachabilityProof,
        repo: &ProjectRepo,
    ) -> Result<(), GitError>;
    /// Returns the attempts whose work is still stored under a ref of the vault (Regatta's own
    /// repository).
    fn kept_attempts(&self, repo: &ProjectRepo) -> Result<Vec<AttemptId>, GitError>;
    /// Returns the stored commits of an attempt's work, or `None` if there are none.
    fn kept_work(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
    ) -> Result<Option<KeptWork>, GitError>;
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
    /// Measures the disk space that the project's workspaces take.
    fn disk_use(&self, repo: &ProjectRepo) -> Result<DiskUse, GitError>;
    /// Removes workspaces that are kept for reuse, oldest first, until the remaining ones take no
    /// more than `most` bytes.
    fn shrink_pool(&self, repo: &ProjectRepo, most: u64) -> Result<(), GitError>;
    /// Answers the request `GET info/refs?service=…` of git's HTTP protocol, including its header
    /// line. The data comes from the vault (Regatta's own repository), after it was updated to the
    /// trunk. The trunk is the answer's `HEAD` and only branch. Other refs are listed only for a
    /// push, and only if `may_write` allows them.
    fn advertise(
        &self,
        repo: &ProjectRepo,
        request: &GitHttpRequest<'_>,
        may_write: &dyn Fn(&str) -> bool,
    ) -> Result<Vec<u8>, GitError> {
        let _ = (repo, request, may_write);
        Err(GitError::transport_unsupported())
    }
    /// Serves the vault (Regatta's own repository) to a client that fetches (`POST
    /// git-upload-pack`) or pushes (`git-receive-pack`). Both directions are streamed, so neither
    /// is held in memory. Any commit of the vault may be fetched by its id. A push may write only
    /// refs that `may_write` allows, and cannot delete a ref. If a push names any other ref, none
    /// of its refs is written, and the answer says so. When a push moves a ref, the old commit is
    /// kept. Refs that the answer reports as written are on the disk.
    ///
    /// If the call fails before it wrote to `answer`, the error is the whole answer (`bad_request`
    /// means that the client made the mistake). If the call fails later, the caller must abort the
    /// connection instead of ending the answer. Both streams must time out with an error when the
    /// client stops sending or receiving.
    fn serve(
        &self,
        repo: &ProjectRepo,
        request: &GitHttpRequest<'_>,
        may_write: &dyn Fn(&str) -> bool,
        client_stream: &mut dyn Read,
        answer: &mut dyn Write,
    ) -> Result<(), GitError> {
        let _ = (repo, request, may_write, client_stream, answer);
        Err(GitError::transport_unsupported())
    }
    /// Returns the directory in which a runner (a process that executes attempts on another
    /// machine) keeps its copy of a project from the server. On the runner's machine, this
    /// directory is the [`ProjectRepo::path`] of the project.
    fn mirror_path(&self, project: &ProjectName) -> PathBuf {
        PathBuf::from(format!("{project}.git"))
    }
    /// Creates or updates the copy of a project that a runner (a process that executes attempts on
    /// another machine) keeps at [`Git::mirror_path`]. Moves the trunk of the copy to the server's
    /// trunk, and also fetches the commits in `wants`. All other methods treat the copy like a
    /// user's repository.
    fn fetch_project(
        &self,
        repo: &ProjectRepo,
        from: &GitRemote,
        wants: &[CommitId],
    ) -> Result<(), GitError> {
        let _ = (repo, from, wants);
        Err(GitError::transport_unsupported())
    }
    /// Pushes all stored commits of an attempt's work to the server, under the same refs. Either
    /// all of them are written or none.
    fn push_capture(
        &self,
        repo: &ProjectRepo,
        to: &GitRemote,
        attempt: AttemptId,
    ) -> Result<(), GitError> {
        let _ = (repo, to, attempt);
        Err(GitError::transport_unsupported())
    }
    /// Deletes the refs that keep an attempt's work on this machine, after the server has that
    /// work.
    fn forget_attempt(&self, _repo: &ProjectRepo, _attempt: AttemptId) -> Result<(), GitError> {
        Ok(())
    }
    /// Returns the newest commit of an attempt's files that is in the vault (Regatta's own
    /// repository). The server reads the commit from the vault, because it does not trust the
    /// description that a runner (a process on another machine) sends.
    fn captured(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
    ) -> Result<Option<Capture>, GitError> {
        let _ = (repo, attempt);
        Err(GitError::transport_unsupported())
    }
}
