//! What the engine needs from version control.

mod wire;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use regatta_core::ids::{AttemptId, BranchName, CommitId, LandingId, ProjectName};
use regatta_core::landing::guard::SpecialFile;
use regatta_core::landing::trunk_check::TrunkSeen;
use regatta_core::pattern::PathPattern;
use regatta_core::project::{Checkout, Project, Style, Workspace as WorkspaceSettings};
use regatta_core::task::{Conflict, Fixup};

pub use wire::{Remote, Service, Wire, keeps_for};

/// A project's repository and its trunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repo {
    /// The project.
    pub project: ProjectName,
    /// The user's repository: its working tree's top, or the git directory of a bare one.
    pub path: PathBuf,
    /// The branch on which work lands.
    pub trunk: BranchName,
    /// Whether a clean checkout of the trunk comes along when the trunk moves.
    pub update_checkout: bool,
    /// How its workspaces are made.
    pub workspace: WorkspaceSettings,
}

impl Repo {
    /// The repository of a project on the board.
    pub fn of(project: &Project) -> Repo {
        Repo {
            project: project.name.clone(),
            path: PathBuf::from(&project.location),
            trunk: project.trunk.clone(),
            update_checkout: project.settings.landing.checkout == Checkout::Update,
            workspace: project.settings.workspace.clone(),
        }
    }
}

/// What was found where the user pointed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepoFacts {
    /// The working tree's top (or the bare repository's directory).
    pub top: PathBuf,
    /// The branch HEAD names, if it names one and it exists.
    pub branch: Option<BranchName>,
    /// HEAD names a branch that has no commit yet.
    pub unborn: bool,
    /// There is no working tree.
    pub bare: bool,
    /// Tracked files that differ from HEAD (at most ten are named).
    pub dirty: Vec<String>,
    /// What the repository is in the middle of: "a rebase", "a merge", …
    pub in_progress: Option<&'static str>,
    /// The submodules of the checkout, sorted by path.
    pub submodules: Vec<SubmoduleFacts>,
    /// Whether some files are stored with Git LFS.
    pub has_lfs: bool,
}

/// A submodule of the user's checkout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubmoduleFacts {
    pub path: String,
    pub is_checked_out: bool,
}

/// How the trunk stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrunkFacts {
    /// Its tip.
    pub tip: CommitId,
    /// The branch it follows, if it follows one: `origin/main`.
    pub upstream: Option<String>,
    /// How many commits its upstream has that it has not, as of the last fetch.
    pub behind: u32,
}

/// An attempt's isolated working tree.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Workspace {
    /// The working tree's top.
    pub path: PathBuf,
    /// The branch checked out there.
    pub branch: BranchName,
    /// The commit of the trunk it started from.
    pub base: CommitId,
    /// Where its git reads objects that are not its own; whoever works there must be able to read it.
    pub objects: Option<PathBuf>,
}

/// What was brought along from the user's checkout.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Brought {
    /// How many files and links.
    pub files: u64,
    pub bytes: u64,
    /// What matches, but was left where it is: links that lead out of the checkout, repositories within it.
    pub left_out: Vec<String>,
}

/// What a project's workspaces take on the disk, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUse {
    /// Workspaces of attempts, whether they run or wait for their proof.
    pub live: u64,
    /// Finished ones that are kept warm.
    pub pooled: u64,
}

/// Who made a change and what is said of it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Authorship {
    /// The author's name as git shows it.
    pub name: String,
    /// The author's address as git shows it.
    pub email: String,
    /// The whole commit message, trailers included.
    pub message: String,
    /// Seconds since 1970, so that the same input gives the same commit.
    pub seconds: u64,
}

/// What is kept of an attempt's work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptWork {
    /// Where its workspace started.
    pub base: CommitId,
    /// What was kept last: for work that was judged, the part of it inside the task's manifest.
    pub commit: CommitId,
    /// The capture with the most changes: all that the attempt left, also outside the manifest.
    pub whole: CommitId,
}

/// What an attempt left on disk, kept in the vault under a keep-ref.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Capture {
    /// The commit that holds it, a child of `base`.
    pub commit: CommitId,
    /// The commit of the trunk it is based on.
    pub base: CommitId,
    /// Paths that differ from `base`, relative to the top, `/`-separated, sorted.
    pub changed: Vec<String>,
}

/// One changed path of a commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Relative to the top, `/`-separated.
    pub path: String,
    /// It was not there before.
    pub new: bool,
    /// The lines that were added to it, if they were asked for.
    pub added: Vec<String>,
}

/// The result of merging without a working copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trial {
    /// It merges: this commit, a descendant of the trunk's tip, is what would land.
    Clean(CommitId),
    /// It does not: these paths conflict.
    Conflict(Vec<String>),
    /// The trunk already contains the change: there is nothing left to land.
    Empty,
}

/// Whose version of a conflicting file is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The trunk's.
    Trunk,
    /// The change's.
    Change,
}

/// A merge in which somebody's version of each conflicting file was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// What came of it. Paths for which no side was named still conflict, and then nothing was dropped.
    pub trial: Trial,
    /// The versions that were not taken, if there were any.
    pub dropped: Option<Dropped>,
}

/// The sides of conflicts that were not taken, kept for good (Q6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// The ref of the vault that keeps them.
    pub reference: String,
    /// A child of what would land, with the other version of each path: the difference is what was dropped.
    pub commit: CommitId,
    /// The paths.
    pub paths: Vec<String>,
}

/// Work in progress that will not merge.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Collision {
    /// Whose workspace.
    pub one: AttemptId,
    /// Whose workspace it collides with; the trunk when none is named.
    pub other: Option<AttemptId>,
    /// The paths that conflict.
    pub paths: Vec<String>,
}

/// A commit of the trunk that no tag has yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreleased {
    /// Its first line.
    pub subject: String,
    /// The task it landed, if it landed one.
    pub task: Option<String>,
}

/// What became of a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Push {
    /// The remote has the commit, or one that follows it.
    Pushed,
    /// The remote's branch has commits that are not here.
    NonFastForward,
    /// It did not work, for this reason; it may later.
    Failed(String),
}

/// A remote's trunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    pub tip: CommitId,
    /// What changed there since it and the trunk here were the same, sorted.
    pub changed: Vec<String>,
}

/// What the trunk becomes on top of a remote's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replanted {
    /// The remote has nothing that is not here; this is the trunk's tip.
    InStep { tip: CommitId },
    /// All that is only here, `old` being the last of it, replayed on top of what the remote has. `tasks` are those that
    /// the replayed commits say they landed.
    Onto { old: CommitId, new: CommitId, tasks: Vec<String> },
    /// These files do not merge.
    Conflict { paths: Vec<String> },
}

/// What became of a move of the trunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Move {
    /// The trunk is at the new commit (also when it already was: moving is idempotent).
    Moved,
    /// The trunk was at neither the old nor the new commit: somebody else moved it here.
    Elsewhere(CommitId),
    /// The trunk is checked out and these tracked or colliding files would be overwritten.
    Dirty(Vec<String>),
}

/// Permission to move one project's trunk. Only the engine can make one.
#[derive(Debug)]
pub struct TrunkPermit {
    project: ProjectName,
    landing: LandingId,
    fence: u64,
    replants: bool,
}

impl TrunkPermit {
    pub(crate) fn mint(project: ProjectName, landing: LandingId, fence: u64) -> TrunkPermit {
        TrunkPermit { project, landing, fence, replants: false }
    }
    /// The same for a trunk that is brought onto what a remote has: the new commit need not follow the old one, which
    /// then is kept (Q3).
    pub(crate) fn replanting(self) -> TrunkPermit {
        TrunkPermit { replants: true, ..self }
    }
    /// Whether the new commit may stand elsewhere than on the old one.
    pub fn replants(&self) -> bool {
        self.replants
    }
    /// Makes one that may replant, for an adapter's own tests.
    #[cfg(feature = "testing")]
    pub fn replanting_for_tests(project: ProjectName) -> TrunkPermit {
        TrunkPermit::for_tests(project).replanting()
    }
    /// Makes one for an adapter's own tests.
    #[cfg(feature = "testing")]
    pub fn for_tests(project: ProjectName) -> TrunkPermit {
        TrunkPermit::mint(project, LandingId(1), 1)
    }
    /// The project whose trunk may move.
    pub fn project(&self) -> &ProjectName {
        &self.project
    }
    /// The landing that moves it.
    pub fn landing(&self) -> LandingId {
        self.landing
    }
    /// The token of the claim under which it moves.
    pub fn fence(&self) -> u64 {
        self.fence
    }
}

/// Proof that everything in a workspace can be reached from the trunk or a keep-ref.
#[derive(Debug)]
pub struct ReachabilityProof {
    attempt: AttemptId,
}

impl ReachabilityProof {
    pub(crate) fn mint(attempt: AttemptId) -> ReachabilityProof {
        ReachabilityProof { attempt }
    }
    /// Makes one for an adapter's own tests.
    #[cfg(feature = "testing")]
    pub fn for_tests(attempt: AttemptId) -> ReachabilityProof {
        ReachabilityProof::mint(attempt)
    }
    /// The attempt whose workspace may go.
    pub fn attempt(&self) -> AttemptId {
        self.attempt
    }
}

/// Proof that an attempt's work was dropped by somebody, and that the time is up for which that is kept.
#[derive(Debug)]
pub struct DroppedProof {
    attempt: AttemptId,
}

impl DroppedProof {
    pub(crate) fn mint(attempt: AttemptId) -> DroppedProof {
        DroppedProof { attempt }
    }
    /// Makes one for an adapter's own tests.
    #[cfg(feature = "testing")]
    pub fn for_tests(attempt: AttemptId) -> DroppedProof {
        DroppedProof::mint(attempt)
    }
    /// The attempt of which nothing need be kept any more.
    pub fn attempt(&self) -> AttemptId {
        self.attempt
    }
}

/// A git operation that could not be done, in words for a person.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct GitError {
    /// A short code: `not_a_repository`, `unborn_branch`, `no_such_branch`, `git_missing`, `git_failed`, `io`,
    /// `busy`, `checkout_behind`, `no_such_commit`, `no_workspace`, `not_a_descendant`, `wrong_permit`,
    /// `isolation_failed`, `unreadable`, `unstorable`, `unencodable`, `grafted`, `path_too_long`, `unsafe_repository`,
    /// `first_commit`, `unsettled`, `no_such_object`,
    /// `too_much_to_copy`, `bad_sparse`, `git_slow`; between machines also `bad_request`, `ref_refused`, `bad_remote`,
    /// `unreachable`, `unauthorized`, `cut`, `not_a_mirror`, `no_wire`.
    pub code: &'static str,
    /// What happened and why, one sentence.
    pub what: String,
    /// What to do next.
    pub hint: String,
}

impl GitError {
    /// What a port answers that speaks to no other machine.
    fn no_wire() -> GitError {
        GitError {
            code: "no_wire",
            what: "This version control speaks to no other machine.".into(),
            hint: "Use the project on the machine where it is.".into(),
        }
    }
}

/// The version-control port. Every method may be called again with the same arguments after a crash
/// and then finishes or repeats the same outcome.
pub trait Git: Send + Sync {
    /// Looks at the repository that contains `path`, changing nothing.
    fn inspect(&self, path: &Path) -> Result<RepoFacts, GitError>;
    /// The trunk's tip in the user's repository.
    fn tip(&self, repo: &Repo) -> Result<CommitId, GitError>;
    /// Every path of the trunk's tip, `/`-separated.
    fn paths_at_tip(&self, repo: &Repo) -> Result<Vec<String>, GitError>;
    /// How the trunk stands against its upstream, without asking any other machine.
    fn trunk(&self, repo: &Repo) -> Result<TrunkFacts, GitError>;
    /// Whether `commit`, or what it became when the trunk was brought onto a remote's, is in the trunk's history up to
    /// `tip`.
    fn contains(&self, repo: &Repo, tip: &CommitId, commit: &CommitId) -> Result<bool, GitError>;
    /// Returns those of `commits` that the trunk's history up to `tip` does not contain, in any form that
    /// [`Git::contains`] knows.
    fn missing(&self, repo: &Repo, tip: &CommitId, commits: &[CommitId]) -> Result<Vec<CommitId>, GitError> {
        let mut missing = Vec::new();
        for commit in commits {
            if !self.contains(repo, tip, commit)? {
                missing.push(commit.clone());
            }
        }
        Ok(missing)
    }
    /// As which commit the trunk has `commit` now: itself, or what it became when the trunk was brought onto a remote's.
    fn stands_as(&self, repo: &Repo, commit: &CommitId) -> Result<Option<CommitId>, GitError> {
        Ok(self.contains(repo, &self.tip(repo)?, commit)?.then(|| commit.clone()))
    }
    /// Whether the trunk has this very commit now.
    fn holds(&self, repo: &Repo, commit: &CommitId) -> Result<bool, GitError> {
        self.contains(repo, &self.tip(repo)?, commit)
    }
    /// Returns the commits between `from` and `to` along first parents, oldest first, without both.
    fn commits_between(&self, repo: &Repo, from: &CommitId, to: &CommitId) -> Result<Vec<CommitId>, GitError>;
    /// Returns the commits in which the trunk and these recorded commits of it differ, along first parents.
    fn compare_trunk(&self, repo: &Repo, recorded: &[CommitId]) -> Result<TrunkSeen, GitError>;
    /// Returns the newest commit of the trunk's own line whose trailer names this landing.
    fn landed_as(&self, repo: &Repo, landing: LandingId) -> Result<Option<CommitId>, GitError>;
    /// How many mebibytes are free where workspaces are made, if that can be known.
    fn free_disk_mb(&self) -> Option<u64> {
        None
    }
    /// Ends the programs that are kept for the next question. It may be asked again afterwards.
    fn rest(&self) {}
    /// Where the project's workspaces and slots read the objects that are not their own.
    fn objects(&self, repo: &Repo) -> Option<PathBuf> {
        let _ = repo;
        None
    }
    /// Where the attempt's workspace is, or would be.
    fn workspace_path(&self, repo: &Repo, attempt: AttemptId) -> PathBuf;
    /// Makes the attempt's workspace at the trunk's tip, or finds it as it is.
    fn prepare(&self, repo: &Repo, attempt: AttemptId, branch: &BranchName) -> Result<Workspace, GitError>;
    /// Makes the workspace of a fix-up, or finds it as it is: at the trunk's tip, with `change` merged onto it as far as
    /// it goes, and marks in the files that conflict; where a conflict was settled by ownership, the version that was taken
    /// is there, without marks. All of that is its base, so a capture holds only what was mended.
    fn prepare_fixup(
        &self,
        repo: &Repo,
        attempt: AttemptId,
        branch: &BranchName,
        fixup: &Fixup,
        authorship: &Authorship,
    ) -> Result<Workspace, GitError>;
    /// Returns the paths at which `change` conflicts with `tip`, and how.
    fn conflicts(&self, repo: &Repo, tip: &CommitId, change: &CommitId) -> Result<Vec<Conflict>, GitError> {
        let _ = (repo, tip, change);
        Ok(vec![])
    }
    /// Takes the commit that a fix-up's workspace on another machine stood on for its base, if it is what `prepare_fixup`
    /// makes of the change on some commit of the trunk.
    fn recognise_fixup(
        &self,
        repo: &Repo,
        attempt: AttemptId,
        base: &CommitId,
        fixup: &Fixup,
    ) -> Result<bool, GitError> {
        let _ = (repo, attempt, base, fixup);
        Err(GitError::no_wire())
    }
    /// What a capture is to the trunk. A fix-up's becomes one change with what it mended, a child of the tip it stands
    /// on, and is kept beside the capture; any other is that already.
    fn as_change(
        &self,
        repo: &Repo,
        attempt: AttemptId,
        capture: Capture,
        authorship: &Authorship,
    ) -> Result<Capture, GitError>;
    /// Brings the untracked files along that `workspace.copy` names. They are not the attempt's work and never
    /// captured, but for those that its manifest names. What is already there stays as it is.
    fn bring(&self, repo: &Repo, attempt: AttemptId, manifest: &[PathPattern]) -> Result<Brought, GitError>;
    /// Whether [`Git::settle`] was called for the workspace.
    fn is_settled(&self, repo: &Repo, attempt: AttemptId) -> bool;
    /// Remembers that the workspace is ready to be worked in. Untracked files that are there by now, and that the
    /// manifest does not name, are not the attempt's work.
    fn settle(&self, repo: &Repo, attempt: AttemptId, manifest: &[PathPattern]) -> Result<(), GitError>;
    /// Keeps what is in the workspace (tracked, new and deleted files; never ignored ones) as one commit
    /// in the vault, pinned under `refs/regatta/keep/<attempt>`.
    fn capture(&self, repo: &Repo, attempt: AttemptId, authorship: &Authorship) -> Result<Capture, GitError>;
    /// Makes the part of a capture that touches only these paths, and keeps it beside the whole (Q3).
    fn restrict(
        &self,
        repo: &Repo,
        attempt: AttemptId,
        part: (&Capture, &[String]),
        authorship: &Authorship,
    ) -> Result<Capture, GitError>;
    /// What a captured commit changed, sorted by path; with the added lines when `lines`.
    fn changed_files(&self, repo: &Repo, capture: &Capture, lines: bool) -> Result<Vec<Change>, GitError>;
    /// Lists the paths between two commits that are more than plain files, before or after: executables, symbolic links,
    /// submodules, and folders in which git would find a repository. Sorted by path.
    fn special_files(&self, repo: &Repo, base: &CommitId, commit: &CommitId) -> Result<Vec<SpecialFile>, GitError>;
    /// Lists the submodules that a change moves to a commit which no branch or tag of their remote is known to contain,
    /// sorted by path. Such a commit is put into the user's copy of the submodule, from where a person can push it.
    fn unpublished_submodules(&self, repo: &Repo, base: &CommitId, commit: &CommitId) -> Result<Vec<String>, GitError> {
        let _ = (repo, base, commit);
        Ok(vec![])
    }
    /// Whether git leaves this path of the user's checkout alone. Never in a repository that has none.
    fn ignores(&self, repo: &Repo, path: &str) -> Result<bool, GitError>;
    /// What is changed or new in the user's checkout, each with a mark that changes when it is written to.
    fn checkout_marks(&self, repo: &Repo) -> Result<Vec<(String, String)>, GitError>;
    /// Merges a captured commit onto `tip` with no working copy.
    ///
    /// `Squash` gives one commit, `Rebase` one for each of the agent's own, `Merge` a merge commit.
    fn trial_merge(
        &self,
        repo: &Repo,
        tip: &CommitId,
        commit: &CommitId,
        authorship: &Authorship,
        style: Style,
    ) -> Result<Trial, GitError>;
    /// Merges several captured commits onto `tip`, each onto the one before, as far as they go: one outcome for each, the
    /// last of them the only one that may be a conflict. Waiting once for the disk makes it cheaper than one by one.
    fn trial_merges(
        &self,
        repo: &Repo,
        tip: &CommitId,
        changes: &[(CommitId, Authorship)],
        style: Style,
    ) -> Result<Vec<Trial>, GitError> {
        let mut tip = tip.clone();
        let mut found = Vec::with_capacity(changes.len());
        for (commit, authorship) in changes {
            let trial = self.trial_merge(repo, &tip, commit, authorship, style)?;
            match &trial {
                Trial::Clean(next) => tip = next.clone(),
                Trial::Empty => {}
                Trial::Conflict(_) => {
                    found.push(trial);
                    break;
                }
            }
            found.push(trial);
        }
        Ok(found)
    }
    /// Merges like `trial_merge` (`Squash`), and takes the named side of every path that conflicts.
    fn merge_with_ownership(
        &self,
        repo: &Repo,
        tip: &CommitId,
        commit: &CommitId,
        sides: &BTreeMap<String, Side>,
        authorship: &Authorship,
    ) -> Result<Settled, GitError>;
    /// One commit on `onto` with the content of `commit`, whatever is between them.
    fn fold(
        &self,
        repo: &Repo,
        onto: &CommitId,
        commit: &CommitId,
        authorship: &Authorship,
    ) -> Result<CommitId, GitError>;
    /// Takes what `commit` changed back from `tip`, with no working copy.
    fn revert(
        &self,
        repo: &Repo,
        tip: &CommitId,
        commit: &CommitId,
        authorship: &Authorship,
    ) -> Result<Trial, GitError>;
    /// A file's content in a commit, if it is there and is a file.
    fn file_at(&self, repo: &Repo, commit: &CommitId, path: &str) -> Result<Option<Vec<u8>>, GitError>;
    /// Whether a person has edited a file in the checkout of the trunk, where its content is not `committed`, and has not
    /// staged the edit.
    fn is_edited(&self, repo: &Repo, path: &str, committed: &[u8]) -> Result<bool, GitError>;
    /// The tree of a commit: the same for the same content, whoever made it.
    fn tree(&self, repo: &Repo, commit: &CommitId) -> Result<CommitId, GitError>;
    /// What changed from `base` to `commit`, as a patch.
    fn diff(&self, repo: &Repo, base: &CommitId, commit: &CommitId) -> Result<String, GitError>;
    /// Brings a slot's directory for validation to `commit` exactly: nothing else is left in it.
    fn stage(&self, repo: &Repo, slot: u32, commit: &CommitId) -> Result<PathBuf, GitError>;
    /// Brings the untracked files that `workspace.copy` names into a slot's directory, which holds `commit`; nothing
    /// where there are none to bring.
    fn furnish(&self, repo: &Repo, slot: u32, commit: &CommitId) -> Result<Brought, GitError> {
        let _ = (repo, slot, commit);
        Ok(Brought::default())
    }
    /// Removes the directories of this slot and of all with a higher number.
    fn unstage(&self, repo: &Repo, from: u32) -> Result<(), GitError>;
    /// Moves the trunk from `old` to `new`, which may be several commits on, by compare-and-swap, and a clean checkout
    /// of it along. Where the permit lets `new` stand elsewhere, `old` is kept under `refs/regatta/keep/trunk-<old>`, here
    /// and in the user's repository.
    fn move_trunk(&self, permit: &TrunkPermit, repo: &Repo, old: &CommitId, new: &CommitId) -> Result<Move, GitError>;
    /// Pushes a commit of the trunk to the branch of the same name at one of the user's remotes, never by force.
    fn push(&self, repo: &Repo, remote: &str, commit: &CommitId) -> Result<Push, GitError>;
    /// Pushes a commit as a branch of ours (`regatta/…`) to one of the user's remotes. What was there of it is replaced.
    fn push_branch(&self, repo: &Repo, remote: &str, branch: &BranchName, commit: &CommitId) -> Result<Push, GitError> {
        let _ = (repo, remote, branch, commit);
        Err(GitError::no_wire())
    }
    /// Fetches where a remote's trunk is, as the user would, so that the trunk can be brought onto it.
    fn upstream(&self, repo: &Repo, remote: &str) -> Result<Upstream, GitError> {
        let _ = (repo, remote);
        Err(GitError::no_wire())
    }
    /// Replays what is only on the trunk here on top of a remote's, with no working copy. Moves nothing.
    fn replant(&self, repo: &Repo, onto: &CommitId) -> Result<Replanted, GitError> {
        let _ = (repo, onto);
        Err(GitError::no_wire())
    }
    /// The commits up to this one that came after the last tag, the newest first; none where that cannot be told.
    fn unreleased(&self, repo: &Repo, commit: &CommitId) -> Result<Option<Vec<Unreleased>>, GitError> {
        let _ = (repo, commit);
        Ok(None)
    }
    /// Which of these attempts' workspaces, as they are on disk now, would conflict with each other or with the trunk.
    /// Keeps nothing.
    fn collisions(&self, repo: &Repo, attempts: &[AttemptId], tip: &CommitId) -> Result<Vec<Collision>, GitError>;
    /// Paths in the attempt's workspace whose content no ref of the vault or the trunk keeps.
    fn unkept(&self, repo: &Repo, attempt: AttemptId) -> Result<Vec<String>, GitError>;
    /// Removes the attempt's workspace, or keeps its cleaned directory warm for another attempt.
    fn remove_workspace(&self, proof: &ReachabilityProof, repo: &Repo) -> Result<(), GitError>;
    /// The attempts of which something is kept under a keep-ref.
    fn kept_attempts(&self, repo: &Repo) -> Result<Vec<AttemptId>, GitError>;
    /// Returns what an attempt left, if something of it is kept.
    fn kept_work(&self, repo: &Repo, attempt: AttemptId) -> Result<Option<KeptWork>, GitError>;
    /// Lets go of everything that is kept of an attempt.
    fn forget_dropped(&self, proof: &DroppedProof, repo: &Repo) -> Result<(), GitError>;
    /// Deletes what no ref of the vault leads to, as far as nobody has written it for so long. What `landed` stays, whatever
    /// became of the trunk.
    fn collect_garbage(&self, repo: &Repo, landed: &[CommitId], unused_for: Duration) -> Result<(), GitError>;
    /// Measures what the project's workspaces take on the disk.
    fn disk_use(&self, repo: &Repo) -> Result<DiskUse, GitError>;
    /// Removes warm workspaces, the oldest first, until all of them together take at most `most` bytes.
    fn shrink_pool(&self, repo: &Repo, most: u64) -> Result<(), GitError>;
    /// What git is told first over HTTP, the answer to `GET info/refs?service=…` with its header line: of a vault that was
    /// brought up to the trunk. The trunk is its `HEAD` and only branch; of other refs those are told that `may_write`
    /// allows, and only to who pushes.
    fn advertise(&self, repo: &Repo, wire: &Wire<'_>, may_write: &dyn Fn(&str) -> bool) -> Result<Vec<u8>, GitError> {
        let _ = (repo, wire, may_write);
        Err(GitError::no_wire())
    }
    /// Answers `POST git-upload-pack` or `git-receive-pack` from the vault, streaming both ways: neither side is held in
    /// memory. Any commit of the vault may be fetched by its id. A push may write only refs that `may_write` allows,
    /// deletes none, and what a moved ref had stays kept; if it names any other ref, nothing of it is written, and that is
    /// the answer. What a push is told was written is on the disk.
    ///
    /// When nothing was written to `answer`, an error is the whole answer (`bad_request` is the other side's fault);
    /// else what was written must be broken off, not ended. The two streams must end by themselves, with an error, when
    /// the other side falls silent.
    fn serve(
        &self,
        repo: &Repo,
        wire: &Wire<'_>,
        may_write: &dyn Fn(&str) -> bool,
        request: &mut dyn Read,
        answer: &mut dyn Write,
    ) -> Result<(), GitError> {
        let _ = (repo, wire, may_write, request, answer);
        Err(GitError::no_wire())
    }
    /// Where a runner keeps its own copy of a project that is on another machine: the [`Repo::path`] of that project here.
    fn mirror_path(&self, project: &ProjectName) -> PathBuf {
        PathBuf::from(format!("{project}.git"))
    }
    /// Makes or refreshes a runner's mirror of a project, at [`Git::mirror_path`], so that everything else here works on
    /// it as on a user's repository: its trunk is where the server's is, wherever it was before, and these commits are
    /// there too.
    fn take_in(&self, repo: &Repo, from: &Remote, wants: &[CommitId]) -> Result<(), GitError> {
        let _ = (repo, from, wants);
        Err(GitError::no_wire())
    }
    /// Gives the server everything that is kept of an attempt here, under the same names, all or nothing.
    fn hand_over(&self, repo: &Repo, to: &Remote, attempt: AttemptId) -> Result<(), GitError> {
        let _ = (repo, to, attempt);
        Err(GitError::no_wire())
    }
    /// Lets the names go under which an attempt's work was kept here, once it is kept where it was handed over to.
    fn let_go(&self, _repo: &Repo, _attempt: AttemptId) -> Result<(), GitError> {
        Ok(())
    }
    /// What was captured last of an attempt, as the vault has it: for the server, which takes a runner's word for nothing.
    fn kept(&self, repo: &Repo, attempt: AttemptId) -> Result<Option<Capture>, GitError> {
        let _ = (repo, attempt);
        Err(GitError::no_wire())
    }
}
