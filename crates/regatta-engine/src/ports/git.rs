//! The port to version control: repositories, workspaces, captures, merges, moves of the trunk, and
//! transfers between machines.

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

/// Permission to move one project's trunk. Only the engine can create one.
#[derive(Debug)]
pub struct TrunkPermit {
    project: ProjectName,
    landing: LandingId,
    fence: u64,
    allows_rebase: bool,
}

impl TrunkPermit {
    /// Creates a permit for one landing, under the claim with the token `fence`.
    pub(crate) fn mint(project: ProjectName, landing: LandingId, fence: u64) -> TrunkPermit {
        TrunkPermit {
            project,
            landing,
            fence,
            allows_rebase: false,
        }
    }
    /// Returns a permit for a rebase of the trunk onto a remote's trunk. The new commit need not be
    /// a descendant of the old one, which is kept (Q3).
    pub(crate) fn for_rebase(self) -> TrunkPermit {
        TrunkPermit {
            allows_rebase: true,
            ..self
        }
    }
    /// Returns whether the new commit need not be a descendant of the old one.
    pub fn allows_rebase(&self) -> bool {
        self.allows_rebase
    }
    /// Creates a permit for a rebase, for an adapter's own tests.
    #[cfg(feature = "testing")]
    pub fn rebase_for_tests(project: ProjectName) -> TrunkPermit {
        TrunkPermit::for_tests(project).for_rebase()
    }
    /// Creates a permit for an adapter's own tests.
    #[cfg(feature = "testing")]
    pub fn for_tests(project: ProjectName) -> TrunkPermit {
        TrunkPermit::mint(project, LandingId(1), 1)
    }
    /// Returns the project whose trunk may move.
    pub fn project(&self) -> &ProjectName {
        &self.project
    }
    /// Returns the landing that moves the trunk.
    pub fn landing(&self) -> LandingId {
        self.landing
    }
    /// Returns the token of the claim under which the trunk moves.
    pub fn fence(&self) -> u64 {
        self.fence
    }
}

/// Proof that everything in a workspace can be reached from the trunk or from a keep-ref.
#[derive(Debug)]
pub struct ReachabilityProof {
    attempt: AttemptId,
}

impl ReachabilityProof {
    pub(crate) fn mint(attempt: AttemptId) -> ReachabilityProof {
        ReachabilityProof { attempt }
    }
    /// Creates a proof for an adapter's own tests.
    #[cfg(feature = "testing")]
    pub fn for_tests(attempt: AttemptId) -> ReachabilityProof {
        ReachabilityProof::mint(attempt)
    }
    /// Returns the attempt whose workspace may be removed.
    pub fn attempt(&self) -> AttemptId {
        self.attempt
    }
}

/// Proof that an attempt's work was dropped, and that the time for which it is kept is over.
#[derive(Debug)]
pub struct DroppedProof {
    attempt: AttemptId,
}

impl DroppedProof {
    pub(crate) fn mint(attempt: AttemptId) -> DroppedProof {
        DroppedProof { attempt }
    }
    /// Creates a proof for an adapter's own tests.
    #[cfg(feature = "testing")]
    pub fn for_tests(attempt: AttemptId) -> DroppedProof {
        DroppedProof::mint(attempt)
    }
    /// Returns the attempt whose work may be deleted.
    pub fn attempt(&self) -> AttemptId {
        self.attempt
    }
}

/// A failure of a git operation, described for a person.
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
    /// A sentence about what happened and why.
    pub message: String,
    /// The next thing to do.
    pub hint: String,
}

impl GitError {
    /// Returns the error of a port that cannot reach other machines.
    fn transport_unsupported() -> GitError {
        GitError {
            code: "no_wire",
            message: "This version control cannot reach other machines.".into(),
            hint: "Use the project on the machine where it is.".into(),
        }
    }
}

/// The version-control port. Every method may be called again with the same arguments after a
/// crash, and then finishes or repeats the same outcome.
pub trait Git: Send + Sync {
    /// Reads the facts about the repository that contains `path`. Changes nothing.
    fn inspect(&self, path: &Path) -> Result<RepoFacts, GitError>;
    /// Returns the trunk's tip in the user's repository.
    fn tip(&self, repo: &ProjectRepo) -> Result<CommitId, GitError>;
    /// Returns every path of the trunk's tip, `/`-separated.
    fn paths_at_tip(&self, repo: &ProjectRepo) -> Result<Vec<String>, GitError>;
    /// Compares the trunk with its upstream branch as of the last fetch.
    fn trunk_facts(&self, repo: &ProjectRepo) -> Result<TrunkFacts, GitError>;
    /// Returns whether the trunk's history up to `tip` contains `commit`, or the commit that
    /// replaced it when the trunk was rebased onto a remote's.
    fn contains(
        &self,
        repo: &ProjectRepo,
        tip: &CommitId,
        commit: &CommitId,
    ) -> Result<bool, GitError>;
    /// Returns those of `commits` that the trunk's history up to `tip` does not contain, in any
    /// form that [`Git::contains`] recognises.
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
    /// Returns the commit that stands for `commit` on the trunk now: itself, or the one that
    /// replaced it when the trunk was rebased onto a remote's.
    fn current_commit_of(
        &self,
        repo: &ProjectRepo,
        commit: &CommitId,
    ) -> Result<Option<CommitId>, GitError> {
        Ok(self
            .contains(repo, &self.tip(repo)?, commit)?
            .then(|| commit.clone()))
    }
    /// Returns whether the trunk contains exactly this commit now.
    fn contains_exactly(&self, repo: &ProjectRepo, commit: &CommitId) -> Result<bool, GitError> {
        self.contains(repo, &self.tip(repo)?, commit)
    }
    /// Returns the commits between `from` and `to` along first parents, oldest first, without both.
    fn commits_between(
        &self,
        repo: &ProjectRepo,
        from: &CommitId,
        to: &CommitId,
    ) -> Result<Vec<CommitId>, GitError>;
    /// Returns the commits in which the trunk and these recorded commits of it differ, along first
    /// parents.
    fn compare_trunk(
        &self,
        repo: &ProjectRepo,
        recorded: &[CommitId],
    ) -> Result<TrunkSeen, GitError>;
    /// Returns the newest commit on the trunk's first-parent line whose trailer names this landing.
    fn find_landing(
        &self,
        repo: &ProjectRepo,
        landing: LandingId,
    ) -> Result<Option<CommitId>, GitError>;
    /// Returns the mebibytes that are free where workspaces are made, if that is known.
    fn free_disk_mb(&self) -> Option<u64> {
        None
    }
    /// Ends the helper processes that are kept for the next query. Later queries start new ones.
    fn stop_helpers(&self) {}
    /// Returns the directory from which the project's workspaces and slots read objects that are
    /// not their own.
    fn objects_dir(&self, repo: &ProjectRepo) -> Option<PathBuf> {
        let _ = repo;
        None
    }
    /// Returns the path of the attempt's workspace, even if the workspace does not exist.
    fn workspace_path(&self, repo: &ProjectRepo, attempt: AttemptId) -> PathBuf;
    /// Makes the attempt's workspace at the trunk's tip, or finds it as it is.
    fn prepare_workspace(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        branch: &BranchName,
    ) -> Result<Workspace, GitError>;
    /// Makes the workspace of a fix-up, or finds it as it is. It is at the trunk's tip, with the
    /// fix-up's commit merged onto it and conflict markers in the conflicting files. Where
    /// ownership resolved a conflict, it has the taken version without markers. The result is the
    /// workspace's base, so a capture contains only the fixes.
    fn prepare_fixup(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        branch: &BranchName,
        fixup: &Fixup,
        authorship: &Authorship,
    ) -> Result<Workspace, GitError>;
    /// Returns the paths at which `change` conflicts with `tip`, with the kind of each conflict.
    fn conflicts(
        &self,
        repo: &ProjectRepo,
        tip: &CommitId,
        change: &CommitId,
    ) -> Result<Vec<Conflict>, GitError> {
        let _ = (repo, tip, change);
        Ok(vec![])
    }
    /// Accepts the commit on which a fix-up's workspace on another machine stood as its base, if
    /// `prepare_fixup` makes that commit from the change and some commit of the trunk. Returns
    /// whether it was accepted.
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
    /// Returns a capture as a change of the trunk. A fix-up's capture is squashed with the commit
    /// that it fixes into one child of the trunk's tip, which is kept beside the capture. Any other
    /// capture is returned as it is.
    fn squash_fixup(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        capture: Capture,
        authorship: &Authorship,
    ) -> Result<Capture, GitError>;
    /// Copies the untracked files that `workspace.copy` names into the workspace. They are not the
    /// attempt's work and are never captured, except those that its manifest names. Existing files
    /// stay as they are.
    fn copy_untracked(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        manifest: &[PathPattern],
    ) -> Result<CopiedFiles, GitError>;
    /// Returns whether [`Git::mark_ready`] was called for the workspace.
    fn is_ready(&self, repo: &ProjectRepo, attempt: AttemptId) -> bool;
    /// Records that the workspace is ready. Untracked files that exist by now and that the manifest
    /// does not name are not the attempt's work.
    fn mark_ready(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        manifest: &[PathPattern],
    ) -> Result<(), GitError>;
    /// Captures the files of the workspace (tracked, new and deleted ones; never ignored ones) as
    /// one commit in the vault, pinned under `refs/regatta/keep/<attempt>`.
    fn capture(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        authorship: &Authorship,
    ) -> Result<Capture, GitError>;
    /// Makes the part of a capture that touches only these paths, and keeps it beside the whole
    /// capture (Q3).
    fn restrict(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        part: (&Capture, &[String]),
        authorship: &Authorship,
    ) -> Result<Capture, GitError>;
    /// Returns the changes of a captured commit, sorted by path, with the added lines if `lines` is
    /// true.
    fn changed_files(
        &self,
        repo: &ProjectRepo,
        capture: &Capture,
        lines: bool,
    ) -> Result<Vec<FileChange>, GitError>;
    /// Lists the paths between two commits that are more than plain files, before or after:
    /// executables, symbolic links, submodules, and folders in which git would find a repository.
    /// Sorted by path.
    fn special_files(
        &self,
        repo: &ProjectRepo,
        base: &CommitId,
        commit: &CommitId,
    ) -> Result<Vec<SpecialFile>, GitError>;
    /// Lists the submodules that a change moves to a commit which no known branch or tag of their
    /// remote contains, sorted by path. Such a commit is also put into the user's copy of the
    /// submodule, so that a person can push it from there.
    fn unpublished_submodules(
        &self,
        repo: &ProjectRepo,
        base: &CommitId,
        commit: &CommitId,
    ) -> Result<Vec<String>, GitError> {
        let _ = (repo, base, commit);
        Ok(vec![])
    }
    /// Returns whether git ignores this path of the user's checkout. Always false in a bare
    /// repository.
    fn is_ignored(&self, repo: &ProjectRepo, path: &str) -> Result<bool, GitError>;
    /// Returns the changed and new paths of the user's checkout, each with a mark that changes when
    /// the file is written.
    fn checkout_marks(&self, repo: &ProjectRepo) -> Result<Vec<(String, String)>, GitError>;
    /// Merges a captured commit onto `tip` without a working copy.
    ///
    /// `Squash` makes one commit, `Rebase` one for each of the agent's own commits, `Merge` a merge
    /// commit.
    fn trial_merge(
        &self,
        repo: &ProjectRepo,
        tip: &CommitId,
        commit: &CommitId,
        authorship: &Authorship,
        style: CommitStyle,
    ) -> Result<TrialMerge, GitError>;
    /// Merges several captured commits onto `tip`, each onto the one before, up to the first
    /// conflict. Returns one result for each merged commit; only the last can be a conflict. It is
    /// cheaper than single merges, because it waits for the disk once.
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
    /// Merges like `trial_merge` with `Squash`, and takes the named side at every path that
    /// conflicts.
    fn merge_with_ownership(
        &self,
        repo: &ProjectRepo,
        tip: &CommitId,
        commit: &CommitId,
        sides: &BTreeMap<String, MergeSide>,
        authorship: &Authorship,
    ) -> Result<OwnershipMerge, GitError>;
    /// Makes one commit on `onto` with the content of `commit`, and leaves out the commits between
    /// them.
    fn squash_range(
        &self,
        repo: &ProjectRepo,
        onto: &CommitId,
        commit: &CommitId,
        authorship: &Authorship,
    ) -> Result<CommitId, GitError>;
    /// Undoes the changes of `commit` on top of `tip`, without a working copy.
    fn revert(
        &self,
        repo: &ProjectRepo,
        tip: &CommitId,
        commit: &CommitId,
        authorship: &Authorship,
    ) -> Result<TrialMerge, GitError>;
    /// Returns a file's content in a commit, if the path exists there and is a file.
    fn file_at(
        &self,
        repo: &ProjectRepo,
        commit: &CommitId,
        path: &str,
    ) -> Result<Option<Vec<u8>>, GitError>;
    /// Returns whether a person has edited a file in the checkout of the trunk, so that its content
    /// is not `committed`, and has not staged the edit.
    fn is_edited(&self, repo: &ProjectRepo, path: &str, committed: &[u8])
    -> Result<bool, GitError>;
    /// Returns the tree of a commit, which is the same for the same content.
    fn tree_of(&self, repo: &ProjectRepo, commit: &CommitId) -> Result<CommitId, GitError>;
    /// Returns the changes from `base` to `commit` as a patch.
    fn diff(
        &self,
        repo: &ProjectRepo,
        base: &CommitId,
        commit: &CommitId,
    ) -> Result<String, GitError>;
    /// Checks exactly `commit` out into a slot's directory for validation, and removes everything
    /// else from it.
    fn stage(&self, repo: &ProjectRepo, slot: u32, commit: &CommitId) -> Result<PathBuf, GitError>;
    /// Copies the untracked files that `workspace.copy` names into a slot's directory, which
    /// contains `commit`.
    fn prepare_staging(
        &self,
        repo: &ProjectRepo,
        slot: u32,
        commit: &CommitId,
    ) -> Result<CopiedFiles, GitError> {
        let _ = (repo, slot, commit);
        Ok(CopiedFiles::default())
    }
    /// Removes the directories of this slot and of all slots with a higher number.
    fn unstage(&self, repo: &ProjectRepo, from: u32) -> Result<(), GitError>;
    /// Moves the trunk from `old` to `new` by compare-and-swap, and updates a clean checkout of it.
    /// `new` may be several commits ahead. Where the permit allows a `new` that is no descendant of
    /// `old`, `old` is kept under `refs/regatta/keep/trunk-<old>`, in the vault and in the user's
    /// repository.
    fn move_trunk(
        &self,
        permit: &TrunkPermit,
        repo: &ProjectRepo,
        old: &CommitId,
        new: &CommitId,
    ) -> Result<TrunkMoveResult, GitError>;
    /// Pushes a commit of the trunk to the branch of the same name at one of the user's remotes,
    /// never by force.
    fn push(
        &self,
        repo: &ProjectRepo,
        remote: &str,
        commit: &CommitId,
    ) -> Result<PushResult, GitError>;
    /// Pushes a commit as one of Regatta's own branches (`regatta/…`) to one of the user's remotes.
    /// Replaces the branch there.
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
    /// Fetches a remote's trunk with the user's credentials, so that the trunk can be rebased onto
    /// it.
    fn fetch_upstream(&self, repo: &ProjectRepo, remote: &str) -> Result<UpstreamTrunk, GitError> {
        let _ = (repo, remote);
        Err(GitError::transport_unsupported())
    }
    /// Replays the commits that are only on the local trunk on top of a remote's trunk, without a
    /// working copy. Moves nothing.
    fn rebase_trunk(&self, repo: &ProjectRepo, onto: &CommitId) -> Result<RebaseResult, GitError> {
        let _ = (repo, onto);
        Err(GitError::transport_unsupported())
    }
    /// Returns the commits up to this one that came after the last tag, newest first, or nothing
    /// where that is unknown.
    fn unreleased_commits(
        &self,
        repo: &ProjectRepo,
        commit: &CommitId,
    ) -> Result<Option<Vec<UnreleasedCommit>>, GitError> {
        let _ = (repo, commit);
        Ok(None)
    }
    /// Returns which of these attempts' workspaces, as they are on disk now, would conflict with
    /// each other or with the trunk. Stores nothing.
    fn collisions(
        &self,
        repo: &ProjectRepo,
        attempts: &[AttemptId],
        tip: &CommitId,
    ) -> Result<Vec<WorkspaceCollision>, GitError>;
    /// Returns the paths of the attempt's workspace whose content is neither in the vault nor on
    /// the trunk.
    fn uncaptured_paths(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
    ) -> Result<Vec<String>, GitError>;
    /// Removes the attempt's workspace, or cleans its directory and puts it into the pool for
    /// another attempt.
    fn remove_workspace(
        &self,
        proof: &ReachabilityProof,
        repo: &ProjectRepo,
    ) -> Result<(), GitError>;
    /// Returns the attempts of which something is kept under a keep-ref.
    fn kept_attempts(&self, repo: &ProjectRepo) -> Result<Vec<AttemptId>, GitError>;
    /// Returns the kept commits of an attempt, if there are any.
    fn kept_work(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
    ) -> Result<Option<KeptWork>, GitError>;
    /// Deletes everything that is kept of an attempt.
    fn forget_dropped(&self, proof: &DroppedProof, repo: &ProjectRepo) -> Result<(), GitError>;
    /// Deletes objects that no ref of the vault reaches and that nobody has written for
    /// `unused_for`. The commits in `landed` stay, even if the trunk has lost them.
    fn collect_garbage(
        &self,
        repo: &ProjectRepo,
        landed: &[CommitId],
        unused_for: Duration,
    ) -> Result<(), GitError>;
    /// Measures the disk space of the project's workspaces.
    fn disk_use(&self, repo: &ProjectRepo) -> Result<DiskUse, GitError>;
    /// Removes pooled workspaces, oldest first, until the pool takes at most `most` bytes.
    fn shrink_pool(&self, repo: &ProjectRepo, most: u64) -> Result<(), GitError>;
    /// Answers `GET info/refs?service=…` of git's HTTP protocol, including its header line, from a
    /// vault that was updated to the trunk. The trunk is its `HEAD` and only branch. Of the other
    /// refs, those that `may_write` allows are listed, and only for a push.
    fn advertise(
        &self,
        repo: &ProjectRepo,
        request: &GitHttpRequest<'_>,
        may_write: &dyn Fn(&str) -> bool,
    ) -> Result<Vec<u8>, GitError> {
        let _ = (repo, request, may_write);
        Err(GitError::transport_unsupported())
    }
    /// Answers `POST git-upload-pack` or `git-receive-pack` from the vault. Both directions are
    /// streamed, so neither is held in memory. Any commit of the vault may be fetched by its id. A
    /// push may write only refs that `may_write` allows, deletes none, and keeps the old commit of
    /// a moved ref. If a push names any other ref, none of it is written and the answer says so.
    /// Refs that the answer reports as written are on the disk.
    ///
    /// If nothing was written to `answer`, an error is the whole answer (`bad_request` is the other
    /// side's fault). Otherwise the caller must abort the answer instead of ending it. The two
    /// streams must end by themselves, with an error, when the other side falls silent.
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
    /// Returns the directory in which a runner keeps its own copy of a project of another machine:
    /// the [`ProjectRepo::path`] of that project there.
    fn mirror_path(&self, project: &ProjectName) -> PathBuf {
        PathBuf::from(format!("{project}.git"))
    }
    /// Makes or updates a runner's mirror of a project at [`Git::mirror_path`], so that everything
    /// else works on it as on a user's repository. Its trunk is moved to the server's trunk, and
    /// the commits in `wants` are fetched too.
    fn fetch_project(
        &self,
        repo: &ProjectRepo,
        from: &GitRemote,
        wants: &[CommitId],
    ) -> Result<(), GitError> {
        let _ = (repo, from, wants);
        Err(GitError::transport_unsupported())
    }
    /// Pushes all kept commits of an attempt to the server, under the same names, all or nothing.
    fn push_capture(
        &self,
        repo: &ProjectRepo,
        to: &GitRemote,
        attempt: AttemptId,
    ) -> Result<(), GitError> {
        let _ = (repo, to, attempt);
        Err(GitError::transport_unsupported())
    }
    /// Deletes the refs under which an attempt's work was kept on this machine, once the server has
    /// it.
    fn forget_attempt(&self, _repo: &ProjectRepo, _attempt: AttemptId) -> Result<(), GitError> {
        Ok(())
    }
    /// Returns the last capture of an attempt from the vault. The server uses it because it trusts
    /// no capture that a runner only reports.
    fn captured(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
    ) -> Result<Option<Capture>, GitError> {
        let _ = (repo, attempt);
        Err(GitError::transport_unsupported())
    }
}
