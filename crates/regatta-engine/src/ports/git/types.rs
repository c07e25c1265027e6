//! The data that the git port takes and returns: repositories, workspaces, captures and the results
//! of merges, pushes and moves of the trunk.

use std::path::PathBuf;

use regatta_core::ids::{AttemptId, BranchName, CommitId, ProjectName};
use regatta_core::project::{CheckoutPolicy, Project, WorkspaceSettings};

/// A project's repository and its trunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectRepo {
    /// The project.
    pub project: ProjectName,
    /// The user's repository: the top of its working tree, or the git directory of a bare one.
    pub path: PathBuf,
    /// The branch on which work lands.
    pub trunk: BranchName,
    /// True if a clean checkout of the trunk is updated when the trunk moves.
    pub should_update_checkout: bool,
    /// The settings of the project's workspaces.
    pub workspace: WorkspaceSettings,
}

impl ProjectRepo {
    /// Returns the repository of a project on the board.
    pub fn from_project(project: &Project) -> ProjectRepo {
        ProjectRepo {
            project: project.name.clone(),
            path: PathBuf::from(&project.location),
            trunk: project.trunk.clone(),
            should_update_checkout: project.settings.landing.checkout == CheckoutPolicy::Update,
            workspace: project.settings.workspace.clone(),
        }
    }
}

/// Facts about a repository that the user named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepoFacts {
    /// The top of the working tree, or the bare repository's directory.
    pub top: PathBuf,
    /// The branch that HEAD names, if it names an existing one.
    pub branch: Option<BranchName>,
    /// True if HEAD names a branch that has no commit yet.
    pub is_unborn: bool,
    /// True if there is no working tree.
    pub is_bare: bool,
    /// Tracked files that differ from HEAD, at most ten.
    pub dirty_files: Vec<String>,
    /// The operation that the repository is in the middle of: "a rebase", "a merge", …
    pub operation_in_progress: Option<&'static str>,
    /// The submodules of the checkout, sorted by path.
    pub submodules: Vec<SubmoduleFacts>,
    /// True if some files are stored with Git LFS.
    pub has_lfs: bool,
}

/// A submodule of the user's checkout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubmoduleFacts {
    pub path: String,
    pub is_checked_out: bool,
}

/// The state of the trunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrunkFacts {
    /// The trunk's tip.
    pub tip: CommitId,
    /// The branch that the trunk follows, if it follows one: `origin/main`.
    pub upstream: Option<String>,
    /// The number of commits that only the upstream branch has, as of the last fetch.
    pub commits_behind: u32,
}

/// An attempt's isolated working tree.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Workspace {
    /// The top of the working tree.
    pub path: PathBuf,
    /// The branch that is checked out there.
    pub branch: BranchName,
    /// The commit of the trunk from which the workspace started.
    pub base: CommitId,
    /// The directory from which the workspace's git reads objects that are not its own. Programs in
    /// the workspace must be able to read it.
    pub objects: Option<PathBuf>,
}

/// The untracked files that were copied from the user's checkout.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopiedFiles {
    /// The number of files and links.
    pub files: u64,
    pub bytes: u64,
    /// Matching paths that were not copied: links that lead out of the checkout, and repositories
    /// inside it.
    pub skipped: Vec<String>,
}

/// The disk space of a project's workspaces, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUse {
    /// Workspaces of attempts that run or whose files are not yet proved kept.
    pub live_bytes: u64,
    /// Cleaned workspaces in the pool.
    pub pooled_bytes: u64,
}

/// The author and the message of a commit.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Authorship {
    /// The author's name as git shows it.
    pub name: String,
    /// The author's address as git shows it.
    pub email: String,
    /// The whole commit message, including trailers.
    pub message: String,
    /// The date in seconds since 1970. It is given so that the same input makes the same commit.
    #[serde(rename = "seconds")]
    pub unix_seconds: u64,
}

/// The commits that keep an attempt's work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptWork {
    /// The commit from which the attempt's workspace started.
    pub base: CommitId,
    /// The last commit that was kept. For validated work, this is the part inside the task's
    /// manifest.
    pub commit: CommitId,
    /// The capture with the most changes: everything that the attempt left, also outside the
    /// manifest.
    pub whole: CommitId,
}

/// The commit of an attempt's files, kept in the vault under a keep-ref.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Capture {
    /// The commit with the files, a child of `base`.
    pub commit: CommitId,
    /// The commit of the trunk on which it is based.
    pub base: CommitId,
    /// The paths that differ from `base`, relative to the top, `/`-separated, sorted.
    pub changed: Vec<String>,
}

/// One changed path of a commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileChange {
    /// The path relative to the top, `/`-separated.
    pub path: String,
    /// True if the path did not exist before.
    pub is_new: bool,
    /// The lines that were added, if they were requested.
    pub added_lines: Vec<String>,
}

/// The result of a merge without a working copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrialMerge {
    /// The change merges. This commit, a descendant of the trunk's tip, is what would land.
    Clean(CommitId),
    /// These paths conflict.
    Conflict(Vec<String>),
    /// The trunk already contains the change, so nothing is left to land.
    Empty,
}

/// The side whose version of a conflicting file is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeSide {
    /// The trunk's.
    Trunk,
    /// The change's.
    Change,
}

/// A merge in which conflicts were resolved by taking one side's version of each file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnershipMerge {
    /// The result. Paths for which no side was named still conflict, and then nothing was dropped.
    pub trial: TrialMerge,
    /// The versions that were not taken, if there were any.
    pub dropped: Option<DroppedVersions>,
}

/// The versions of conflicting files that were not taken, kept for good (Q6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedVersions {
    /// The ref of the vault that keeps them.
    pub reference: String,
    /// A child of the merged commit with the other version of each path. Their difference is the
    /// dropped work.
    pub commit: CommitId,
    /// The paths.
    pub paths: Vec<String>,
}

/// Unfinished work that conflicts with the trunk or with other unfinished work.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkspaceCollision {
    /// The attempt whose workspace conflicts.
    pub attempt: AttemptId,
    /// The other attempt, or the trunk if none is named.
    pub other_attempt: Option<AttemptId>,
    /// The paths that conflict.
    pub paths: Vec<String>,
}

/// A commit of the trunk that came after the last tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreleasedCommit {
    /// The first line of its message.
    pub subject: String,
    /// The task that the commit landed, if it landed one.
    pub task: Option<String>,
}

/// The result of a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PushResult {
    /// The remote has the commit, or a descendant of it.
    Pushed,
    /// The remote's branch has commits that are not here.
    NonFastForward,
    /// The push failed for this reason. It may succeed later.
    Failed(String),
}

/// The trunk of a remote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamTrunk {
    pub tip: CommitId,
    /// The paths that changed there since the two trunks were the same, sorted.
    pub changed: Vec<String>,
}

/// The result of rebasing the trunk onto a remote's trunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RebaseResult {
    /// The remote has no commit that is not here. `tip` is the trunk's tip.
    UpToDate { tip: CommitId },
    /// The commits that are only here, up to `old`, were replayed on top of the remote's trunk.
    /// `tasks` are the tasks that their trailers name.
    Rebased {
        old: CommitId,
        new: CommitId,
        tasks: Vec<String>,
    },
    /// These files conflict.
    Conflict { paths: Vec<String> },
}

/// The result of a move of the trunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrunkMoveResult {
    /// The trunk is at the new commit. This is also the result if it already was, because moving is
    /// idempotent.
    Moved,
    /// The trunk was at neither the old nor the new commit, because somebody else moved it to this
    /// one.
    TrunkElsewhere(CommitId),
    /// The trunk is checked out, and the move would overwrite these tracked or colliding files.
    CheckoutDirty(Vec<String>),
}
