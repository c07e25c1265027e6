//! What the engine needs from version control.

use std::path::{Path, PathBuf};

use regatta_core::ids::{AttemptId, BranchName, CommitId, LandingId, ProjectName};
use regatta_core::project::{Checkout, Project};

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
}

impl Repo {
    /// The repository of a project on the board.
    pub fn of(project: &Project) -> Repo {
        Repo {
            project: project.name.clone(),
            path: PathBuf::from(&project.location),
            trunk: project.trunk.clone(),
            update_checkout: project.settings.landing.checkout == Checkout::Update,
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
}

/// An attempt's isolated working tree.
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// Who made a change and what is said of it.
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// What an attempt left on disk, kept in the vault under a keep-ref.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// The commit that holds it, a child of `base`.
    pub commit: CommitId,
    /// The commit of the trunk it is based on.
    pub base: CommitId,
    /// Paths that differ from `base`, relative to the top, `/`-separated, sorted.
    pub changed: Vec<String>,
}

/// The result of merging without a working copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trial {
    /// It merges: this commit, a child of the trunk's tip, is what would land.
    Clean(CommitId),
    /// It does not: these paths conflict.
    Conflict(Vec<String>),
    /// The trunk already contains the change: there is nothing left to land.
    Empty,
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
}

impl TrunkPermit {
    pub(crate) fn mint(project: ProjectName, landing: LandingId, fence: u64) -> TrunkPermit {
        TrunkPermit { project, landing, fence }
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

/// A git operation that could not be done, in words for a person.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct GitError {
    /// A short code: `not_a_repository`, `unborn_branch`, `no_such_branch`, `git_missing`, `git_failed`, `io`,
    /// `busy`, `checkout_behind`, `no_such_commit`, `no_workspace`, `not_a_descendant`, `wrong_permit`,
    /// `isolation_failed`, `unreadable`, `unstorable`, `unsafe_repository`.
    pub code: &'static str,
    /// What happened and why, one sentence.
    pub what: String,
    /// What to do next.
    pub hint: String,
}

/// The version-control port. Every method may be called again with the same arguments after a crash
/// and then finishes or repeats the same outcome.
pub trait Git: Send + Sync {
    /// Looks at the repository that contains `path`, changing nothing.
    fn inspect(&self, path: &Path) -> Result<RepoFacts, GitError>;
    /// The trunk's tip in the user's repository.
    fn tip(&self, repo: &Repo) -> Result<CommitId, GitError>;
    /// Where the attempt's workspace is, or would be.
    fn workspace_path(&self, repo: &Repo, attempt: AttemptId) -> PathBuf;
    /// Makes the attempt's workspace at the trunk's tip, or finds it as it is.
    fn prepare(&self, repo: &Repo, attempt: AttemptId, branch: &BranchName) -> Result<Workspace, GitError>;
    /// Keeps what is in the workspace (tracked, new and deleted files; never ignored ones) as one commit
    /// in the vault, pinned under `refs/regatta/keep/<attempt>`.
    fn capture(&self, repo: &Repo, attempt: AttemptId, authorship: &Authorship) -> Result<Capture, GitError>;
    /// Merges a captured commit onto `tip` with no working copy.
    fn trial_merge(
        &self,
        repo: &Repo,
        tip: &CommitId,
        commit: &CommitId,
        authorship: &Authorship,
    ) -> Result<Trial, GitError>;
    /// Checks `commit` out, exactly and alone, in a fresh directory for validation.
    fn stage(&self, repo: &Repo, landing: LandingId, commit: &CommitId) -> Result<PathBuf, GitError>;
    /// Removes what `stage` made.
    fn unstage(&self, repo: &Repo, landing: LandingId) -> Result<(), GitError>;
    /// Moves the trunk from `old` to `new` by compare-and-swap, and a clean checkout of it along.
    fn move_trunk(&self, permit: &TrunkPermit, repo: &Repo, old: &CommitId, new: &CommitId) -> Result<Move, GitError>;
    /// Paths in the attempt's workspace whose content no ref of the vault or the trunk keeps.
    fn unkept(&self, repo: &Repo, attempt: AttemptId) -> Result<Vec<String>, GitError>;
    /// Removes the attempt's workspace.
    fn remove_workspace(&self, proof: &ReachabilityProof, repo: &Repo) -> Result<(), GitError>;
}
