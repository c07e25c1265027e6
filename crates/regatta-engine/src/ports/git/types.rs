//! The data that the interface to git takes and returns: repositories, workspaces, commits of
//! agents' work, and the results of merges, pushes and moves of the trunk.

use std::path::PathBuf;

pub use regatta_core::attempt::Capture;
use regatta_core::ids::{AttemptId, BranchName, CommitId, ProjectName};
use regatta_core::project::{CheckoutPolicy, Project, WorkspaceSettings};

/// A project's repository, its trunk, and the settings for its workspaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectRepo {
    /// The name of the project.
    pub project: ProjectName,
    /// The path of the user's repository: the top of the working tree, or the git directory of a
    /// bare repository.
    pub path: PathBuf,
    /// The trunk: the branch on which finished work lands.
    pub trunk: BranchName,
    /// True if moving the trunk also updates the user's checkout of the trunk, provided that the
    /// checkout has no local changes.
    pub should_update_checkout: bool,
    /// The project's settings for the workspaces of its attempts.
    pub workspace: WorkspaceSettings,
}

impl ProjectRepo {
    /// Returns the repository of a project as the project's settings describe it.
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

/// Facts about a repository that the user named, read before it becomes a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepoFacts {
    /// The top of the working tree, or the directory of a bare repository.
    pub top: PathBuf,
    /// The checked-out branch, or `None` if HEAD names no existing branch.
    pub branch: Option<BranchName>,
    /// True if HEAD names a branch that has no commit yet.
    pub is_unborn: bool,
    /// True if the repository is bare, that is, has no working tree.
    pub is_bare: bool,
    /// Tracked files whose content differs from HEAD. At most ten are listed.
    pub dirty_files: Vec<String>,
    /// True if the repository's `regatta.toml` exists but is not committed and not ignored.
    pub has_untracked_settings: bool,
    /// The unfinished operation of the user in the repository, such as "a rebase" or "a merge".
    /// `None` if there is no such operation.
    pub operation_in_progress: Option<&'static str>,
    /// The submodules in the user's checkout, sorted by path.
    pub submodules: Vec<SubmoduleFacts>,
    /// True if some files are stored with Git LFS.
    pub has_lfs: bool,
}

/// A submodule that is checked out in the user's copy of the repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubmoduleFacts {
    pub path: String,
    pub is_checked_out: bool,
}

/// The trunk's newest commit, and how the trunk relates to its upstream branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrunkFacts {
    /// The trunk's newest commit.
    pub tip: CommitId,
    /// The upstream branch of the trunk, such as `origin/main`. `None` if the trunk has no upstream
    /// branch.
    pub upstream: Option<String>,
    /// The number of commits that the upstream branch has and the trunk lacks, as of the last
    /// fetch.
    pub commits_behind: u32,
}

/// The separate working tree in which one attempt works.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Workspace {
    /// The top directory of the working tree.
    pub path: PathBuf,
    /// The branch that is checked out in the workspace.
    pub branch: BranchName,
    /// The commit of the trunk from which the work in the workspace started.
    pub base: CommitId,
    /// A directory outside the workspace from which git must be able to read objects, so the
    /// programs in the workspace need access to it. `None` if there is no such directory.
    pub objects: Option<PathBuf>,
}

/// The result of copying untracked files from the user's checkout.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopiedFiles {
    /// The number of files and symbolic links that were copied.
    pub files: u64,
    pub bytes: u64,
    /// The matching paths that were not copied: symbolic links that lead out of the checkout, and
    /// git repositories inside it.
    pub skipped: Vec<String>,
}

/// The disk space that a project's workspaces take, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUse {
    /// Bytes in workspaces of running attempts, and of ended attempts whose files are not yet
    /// proved to be stored elsewhere.
    pub live_bytes: u64,
    /// Bytes in cleaned workspaces that are kept for reuse.
    pub pooled_bytes: u64,
}

/// The author, the message and the date for a new commit.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Authorship {
    /// The author's name, as `git log` shows it.
    pub name: String,
    /// The author's e-mail address, as `git log` shows it.
    pub email: String,
    /// The whole commit message, including trailers such as `Regatta-Task: T3`.
    pub message: String,
    /// The commit's date in seconds since 1970. The caller supplies it, so that the same input
    /// always makes the same commit.
    #[serde(rename = "seconds")]
    pub unix_seconds: u64,
}

/// The commits in which an attempt's work is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptWork {
    /// The commit of the trunk from which the attempt's work started.
    pub base: CommitId,
    /// The newest stored commit. If the work was checked, this commit has only the changes inside
    /// the task's file patterns.
    pub commit: CommitId,
    /// The commit with the most changes: everything that the attempt left, including changes
    /// outside the task's file patterns.
    pub whole: CommitId,
}

/// A commit of finished work that is to be merged, and the authorship for the commit that results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthoredChange {
    /// The commit with the finished work to merge.
    pub commit: CommitId,
    /// The author, the message and the date of the resulting commit.
    pub authorship: Authorship,
}

/// Two commits that are compared.
#[derive(Clone, Copy, Debug)]
pub struct CommitRange<'a> {
    /// The older commit.
    pub base: &'a CommitId,
    /// The newer commit.
    pub commit: &'a CommitId,
}

/// A path that a commit changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileChange {
    /// The path relative to the top of the working tree, with `/` as separator.
    pub path: String,
    /// True if the path did not exist before the commit.
    pub is_new: bool,
    /// The lines that the commit added to the file. Empty unless the caller requested the lines.
    pub added_lines: Vec<String>,
}

/// The result of merging a change onto the trunk without checking out files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrialMerge {
    /// The change merges without conflicts. The commit is the result and descends from the trunk's
    /// newest commit.
    Clean(CommitId),
    /// The change conflicts with the trunk at these paths.
    Conflict(Vec<String>),
    /// The trunk already contains the change, so there is nothing to merge.
    Empty,
}

/// The side of a merge whose version of a conflicting file is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeSide {
    /// Take the trunk's version.
    Trunk,
    /// Take the version of the change that is being merged.
    Change,
}

/// The result of a merge that resolves conflicts by taking one side's version of each conflicting
/// file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnershipMerge {
    /// The result of the merge. If the caller named no side for a path that conflicts, the result
    /// is a conflict, and no version was dropped.
    pub trial: TrialMerge,
    /// The versions of files that were not taken. `None` if no version was dropped.
    pub dropped: Option<DroppedVersions>,
}

/// The versions of conflicting files that a merge did not take. These versions are kept for ever
/// (Q6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedVersions {
    /// The ref of the vault (Regatta's own repository) that keeps the dropped versions.
    pub reference: String,
    /// A child of the merge's commit in which each path has the version that was not taken. The
    /// difference between the two commits is the dropped work.
    pub commit: CommitId,
    /// The paths of the conflicting files whose version from one side was dropped.
    pub paths: Vec<String>,
}

/// Unfinished work that conflicts with the trunk or with other unfinished work.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkspaceCollision {
    /// The attempt whose unfinished work conflicts.
    pub attempt: AttemptId,
    /// The attempt whose work conflicts with that of `attempt`. `None` means that the conflict is
    /// with the trunk.
    pub other_attempt: Option<AttemptId>,
    /// The paths at which the work conflicts.
    pub paths: Vec<String>,
}

/// A commit of the trunk that came after the last tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreleasedCommit {
    /// The first line of the commit's message.
    pub subject: String,
    /// The id of the task whose work the commit contains. `None` if the commit's message names no
    /// task.
    pub task: Option<String>,
}

/// The result of pushing a commit to a remote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PushResult {
    /// The remote's branch contains the commit, perhaps followed by newer commits.
    Pushed,
    /// The remote's branch has commits that the local branch lacks, so git rejected the push.
    NonFastForward,
    /// The push failed, and the text is the reason. A later push may succeed.
    Failed(String),
}

/// The trunk of a remote, after a fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamTrunk {
    pub tip: CommitId,
    /// The sorted paths that changed on the remote's trunk after the newest commit that both trunks
    /// contain.
    pub changed: Vec<String>,
}

/// The result of rebasing the local trunk's own commits onto a remote's trunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RebaseResult {
    /// The remote's trunk has no commit that the local trunk lacks. `tip` is the local trunk's
    /// newest commit.
    UpToDate { tip: CommitId },
    /// The local trunk's own commits, up to `old`, were rebased onto the remote's trunk. `tasks`
    /// are the tasks that the messages of these commits name.
    Rebased {
        old: CommitId,
        new: CommitId,
        tasks: Vec<String>,
    },
    /// These files conflict, so nothing was rebased.
    Conflict { paths: Vec<String> },
}

/// The result of moving the trunk to a new commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrunkMoveResult {
    /// The trunk is at the new commit. A repeated move that finds the trunk already at the new
    /// commit gives the same result.
    Moved,
    /// The trunk was at neither the old nor the new commit, so it was not moved. Something other
    /// than Regatta had moved the trunk to the commit in this value.
    TrunkElsewhere(CommitId),
    /// The trunk is checked out with local changes in these files, which the move would overwrite,
    /// so the trunk was not moved.
    CheckoutDirty(Vec<String>),
}
