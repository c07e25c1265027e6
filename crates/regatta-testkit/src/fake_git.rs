//! A fake of git that works in memory and checks every move of a trunk.
//!
//! A tree is a map from path to content, and files are merged as a whole: a file that both sides
//! changed differently is a conflict. The repositories keep their state when an engine ends; the
//! handle for another [`EngineLife`] uses the same repositories. If the engine breaks a rule of
//! landing when it moves a trunk or removes a workspace, the fake still performs the action, but
//! records a violation. [`FakeGit::assert_no_violations`] lists the rules and fails the test.
//!
//! There are no files on disk. Directories are only names, so the engine's own checks `files_exist`
//! and `content_check` do not work here. Checks by commands work (see [`crate::fake_agents`]).

mod collisions;
mod commits;
mod fixup_workspaces;
mod repos;
mod trunk;
mod trunk_commits;
mod workspaces;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use regatta_core::ids::{AttemptId, BranchName, CommitId, LandingId, ProjectName};
use regatta_core::landing::guard::SpecialFile;
use regatta_core::landing::trunk_check::TrunkSeen;
use regatta_core::pattern::PathPattern;
use regatta_core::project::CommitStyle;
use regatta_core::task::{Conflict, ConflictKind, Fixup};
use regatta_engine::ports::git::{
    AuthoredChange, Authorship, Capture, CaptureGit, CheckoutGit, CollisionGit, CommitGit,
    CommitRange, CopiedFiles, DiskGit, DiskUse, DroppedProof, DroppedVersions, FileChange,
    FixupGit, GitError, KeptWork, KeptWorkGit, MergeGit, MergeSide, OwnershipMerge, ProjectRepo,
    PushResult, ReachabilityProof, RebaseResult, RemoteGit, RepoFacts, StagingGit, StorageGit,
    TrialMerge, TrunkFacts, TrunkGit, TrunkMoveGit, TrunkMoveResult, TrunkPermit, UnreleasedCommit,
    UpstreamTrunk, Workspace, WorkspaceCollision, WorkspaceGit,
};

use self::fixup_workspaces::FakeWorkspace;
use self::repos::{changed_paths, copied_files, merge_trees};
use crate::crash_points::EngineLife;

/// All files of a commit or workspace: their contents by path.
pub type FakeTree = BTreeMap<String, String>;

/// A move of a trunk from an old commit to a new one, recorded when it took place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedTrunkMove {
    pub project: ProjectName,
    pub landing: LandingId,
    pub fencing_token: u64,
    pub old: CommitId,
    pub new: CommitId,
}

#[derive(Clone, Debug)]
struct Commit {
    parent: Option<CommitId>,
    /// The second parent, if this is a merge commit.
    merged_parent: Option<CommitId>,
    message: String,
    files: FakeTree,
}

#[derive(Clone, Debug)]
struct Trunk {
    tip: CommitId,
    /// The files with uncommitted changes in the user's checkout.
    dirty_files: Vec<String>,
}

#[derive(Default)]
struct FakeRepos {
    /// Files in the users' checkouts that git does not track, by repository.
    untracked_files: BTreeMap<PathBuf, FakeTree>,
    /// The number of workspaces of ended attempts that are kept for reuse.
    pool_size: u32,
    commits: BTreeMap<CommitId, Commit>,
    trunks: BTreeMap<PathBuf, Trunk>,
    workspaces: BTreeMap<AttemptId, FakeWorkspace>,
    /// The commits with saved work of each attempt, newest last. Real git keeps such commits with
    /// refs ("keep-refs").
    keep_refs: BTreeMap<AttemptId, Vec<CommitId>>,
    /// The commit in each staging directory (a directory for checking a merged commit), by project
    /// and directory number.
    staged_commits: BTreeMap<(ProjectName, u32), CommitId>,
    /// The commits with the unused versions of conflicting files, by the ref that keeps each
    /// commit. A conflict between two versions of a file is decided in favour of the task that owns
    /// the file.
    dropped_sides: BTreeMap<String, CommitId>,
    /// The commits on which the workspaces of fix-ups (attempts that resolve a conflict) are based.
    fixup_bases: BTreeMap<AttemptId, CommitId>,
    /// Paths that count as special files, such as links, whenever they change.
    special_files: Vec<SpecialFile>,
    /// The commit that was last pushed to each remote.
    remotes: BTreeMap<String, CommitId>,
    /// The commit that was last pushed to each branch of Regatta, by remote and branch.
    pushed_branches: BTreeMap<(String, BranchName), CommitId>,
    /// The commits that replaced other commits when a trunk was rebased, by the replaced commit.
    rebased: BTreeMap<CommitId, CommitId>,
    ever_staged: BTreeSet<CommitId>,
    passed_checks: BTreeSet<(CommitId, String)>,
    required_checks: BTreeSet<String>,
    trunk_moves: Vec<RecordedTrunkMove>,
    violations: Vec<String>,
}

/// The fake of git. Clones, and handles for other lives of the engine (before and after a simulated
/// crash), share the repositories.
#[derive(Clone, Default)]
pub struct FakeGit {
    repos: Arc<Mutex<FakeRepos>>,
    life: EngineLife,
}

impl FakeGit {
    /// Returns a fake without any repository.
    pub fn new() -> FakeGit {
        FakeGit::default()
    }

    /// Returns a handle on the same repositories for one life of the engine, the time until its
    /// end or simulated crash. The calls through this handle are named `git.<method>`.
    pub fn with_life(&self, life: &EngineLife) -> FakeGit {
        FakeGit {
            repos: self.repos.clone(),
            life: life.clone(),
        }
    }

    /// Creates a repository whose trunk has one commit.
    pub fn create_repo(&self, path: &Path, files: &[(&str, &str)]) -> CommitId {
        let files = files
            .iter()
            .map(|(path, content)| ((*path).to_owned(), (*content).to_owned()))
            .collect();
        let mut repos = self.lock();
        let tip = repos.commit(None, files, "first", 0);
        repos.trunks.insert(
            path.to_owned(),
            Trunk {
                tip: tip.clone(),
                dirty_files: vec![],
            },
        );
        tip
    }

    /// Demands that this check passes on a commit before a trunk moves to that commit (Q1).
    pub fn require_check(&self, command: &str) {
        self.lock().required_checks.insert(command.to_owned());
    }

    /// Returns the files at the tip of the trunk.
    pub fn trunk(&self, path: &Path) -> FakeTree {
        let repos = self.lock();
        repos.files_of(&repos.trunks[path].tip)
    }

    /// Returns the first lines of the messages of the trunk's commits, oldest first.
    pub fn commit_messages(&self, path: &Path) -> Vec<String> {
        let repos = self.lock();
        let mut next = Some(repos.trunks[path].tip.clone());
        let mut subjects = Vec::new();
        while let Some(commit) = next.and_then(|id| repos.commits.get(&id)) {
            subjects.push(commit.message.lines().next().unwrap_or_default().to_owned());
            next = commit.parent.clone();
        }
        subjects.reverse();
        subjects
    }

    /// Adds a commit to the trunk, as a person would without Regatta.
    pub fn commit_as_person(&self, path: &Path, file: &str, content: &str) -> CommitId {
        let mut repos = self.lock();
        let old = repos.trunks[path].tip.clone();
        let mut files = repos.files_of(&old);
        files.insert(file.to_owned(), content.to_owned());
        let tip = repos.commit(Some(old), files, "a person's", 0);
        repos.trunks.get_mut(path).unwrap().tip = tip.clone();
        tip
    }

    /// Creates a commit on top of `parent` without moving a trunk, as another person's clone would.
    pub fn commit_on(&self, parent: &CommitId, file: &str, content: &str) -> CommitId {
        let mut repos = self.lock();
        let mut files = repos.files_of(parent);
        files.insert(file.to_owned(), content.to_owned());
        repos.commit(Some(parent.clone()), files, "another person's", 0)
    }

    /// Sets the files that have uncommitted changes in the user's checkout.
    pub fn set_dirty(&self, path: &Path, files: &[&str]) {
        self.lock().trunks.get_mut(path).unwrap().dirty_files =
            files.iter().map(|file| (*file).to_owned()).collect();
    }

    /// Adds a file to the user's checkout that git does not track.
    pub fn put_untracked(&self, path: &Path, file: &str, content: &str) {
        self.lock()
            .untracked_files
            .entry(path.to_owned())
            .or_default()
            .insert(file.to_owned(), content.to_owned());
    }

    /// Returns the files in a workspace that already existed before the attempt, so that they are
    /// not its work.
    pub fn foreign_files(&self, attempt: AttemptId) -> FakeTree {
        self.lock()
            .workspaces
            .get(&attempt)
            .map(|workspace| workspace.foreign_files.clone())
            .unwrap_or_default()
    }

    /// Returns every move of a trunk so far, in order.
    pub fn trunk_moves(&self) -> Vec<RecordedTrunkMove> {
        self.lock().trunk_moves.clone()
    }

    /// Returns the attempts whose workspaces exist.
    pub fn workspaces(&self) -> Vec<AttemptId> {
        self.lock().workspaces.keys().copied().collect()
    }

    /// Returns the project and number of each existing staging directory (a directory for checking
    /// a merged commit).
    pub fn staged_slots(&self) -> Vec<(ProjectName, u32)> {
        self.lock().staged_commits.keys().cloned().collect()
    }

    /// Returns the commit to which the trunk points on a remote.
    pub fn remote_tip(&self, name: &str) -> Option<CommitId> {
        self.lock().remotes.get(name).cloned()
    }

    /// Sets the commit to which the trunk points on a remote, as if somebody else had pushed. If
    /// the commit does not exist in this fake, later pushes are refused.
    pub fn set_remote_tip(&self, name: &str, commit: &CommitId) {
        self.lock().remotes.insert(name.to_owned(), commit.clone());
    }

    /// Makes the file at a path count as a special file, such as a link, whenever the file changes.
    pub fn set_special(&self, file: SpecialFile) {
        self.lock().special_files.push(file);
    }

    /// Returns the unused versions of conflicting files, by the ref that keeps each version. A
    /// conflict between two versions of a file is decided in favour of the task that owns the file.
    pub fn dropped_sides(&self) -> BTreeMap<String, FakeTree> {
        let repos = self.lock();
        repos
            .dropped_sides
            .iter()
            .map(|(name, commit)| (name.clone(), repos.files_of(commit)))
            .collect()
    }

    /// Returns the saved states of an attempt's work, oldest first. A newer saved state never
    /// replaces an older one (Q3).
    pub fn captures_of(&self, attempt: AttemptId) -> Vec<FakeTree> {
        let repos = self.lock();
        repos
            .keep_refs
            .get(&attempt)
            .into_iter()
            .flatten()
            .map(|id| repos.files_of(id))
            .collect()
    }

    /// Changes the files in a workspace, as a program in the workspace would. Returns false if
    /// there is no such workspace.
    pub fn edit_workspace(&self, attempt: AttemptId, change: impl FnOnce(&mut FakeTree)) -> bool {
        self.lock()
            .workspaces
            .get_mut(&attempt)
            .map(|workspace| change(&mut workspace.files))
            .is_some()
    }

    /// Returns the files in a directory that [`WorkspaceGit::prepare_workspace`] or [`StagingGit::stage`] created.
    pub fn files_in(&self, dir: &Path) -> Option<FakeTree> {
        let repos = self.lock();
        match parse_dir(dir)? {
            PreparedDir::Workspace(attempt) => repos
                .workspaces
                .get(&attempt)
                .map(|workspace| workspace.files.clone()),
            PreparedDir::Staging(project, slot) => repos
                .staged_commits
                .get(&(project, slot))
                .map(|id| repos.files_of(id)),
        }
    }

    /// Records that a check passed on the commit that is checked out in `dir`. Does nothing unless
    /// `dir` is a staging directory, in which a merged commit is checked.
    pub(crate) fn record_passed_check(&self, dir: &Path, command: &str) {
        let mut repos = self.lock();
        if let Some(PreparedDir::Staging(project, slot)) = parse_dir(dir)
            && let Some(commit) = repos.staged_commits.get(&(project, slot)).cloned()
        {
            repos.passed_checks.insert((commit, command.to_owned()));
        }
    }

    /// Fails the test if the engine ever broke one of these rules:
    /// - A trunk moves only to a commit that was checked (Q1).
    /// - A trunk moves only to a descendant of its old commit (Q2).
    /// - A trunk moves only under a newer claim (lease) on the trunk than before (L6).
    /// - A landing moves the trunk only once (Q7).
    /// - A workspace is removed only if all its content also exists elsewhere (Q5).
    pub fn assert_no_violations(&self) {
        let repos = self.lock();
        assert!(repos.violations.is_empty(), "{:?}", repos.violations);
    }

    fn lock(&self) -> MutexGuard<'_, FakeRepos> {
        self.repos.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `effect` as the engine's call `name`. The test can make the call fail, or end the
    /// engine's life (simulate a crash) before or after the call.
    fn call<T>(
        &self,
        name: &'static str,
        effect: impl FnOnce(&mut FakeRepos) -> Result<T, GitError>,
    ) -> Result<T, GitError> {
        self.life
            .call(name, || effect(&mut self.lock()))
            .unwrap_or_else(|reason| Err(git_error("io", &reason)))
    }
}

fn git_error(code: &'static str, message: &str) -> GitError {
    GitError {
        code,
        message: message.to_owned(),
        hint: "see the test".into(),
    }
}

/// The purpose of a directory of the fake. Such a directory is only a name and does not exist on
/// disk.
enum PreparedDir {
    Workspace(AttemptId),
    Staging(ProjectName, u32),
}

/// Returns the purpose for which [`WorkspaceGit::prepare_workspace`] or [`StagingGit::stage`] created a directory,
/// or `None` if neither of them created it.
fn parse_dir(dir: &Path) -> Option<PreparedDir> {
    let mut names = dir
        .iter()
        .rev()
        .map(|name| name.to_str().unwrap_or_default());
    let (name, parent) = (names.next()?, names.next()?);
    if parent == "workspaces" {
        return name.parse().ok().map(PreparedDir::Workspace);
    }
    if names.next()? != "staging" {
        return None;
    }
    let project = ProjectName::new(parent).ok()?;
    let slot = name.parse().ok()?;
    Some(PreparedDir::Staging(project, slot))
}
