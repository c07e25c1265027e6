//! A user's repository with a data directory, and helpers that work in both.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use regatta_core::ids::{AttemptId, BranchName, CommitId, ProjectName};
pub(crate) use regatta_core::project::CommitStyle;
pub(crate) use regatta_engine::ports::git::parts::*;
use regatta_engine::ports::git::{
    AuthoredChange, Authorship, Capture, GitError, ProjectRepo, ReachabilityProof, TrialMerge,
    TrunkMoveResult, TrunkPermit, Workspace,
};
use regatta_git::GitAdapter;
use tempfile::TempDir;

pub(crate) struct World {
    pub(crate) home: TempDir,
    pub(crate) repo: ProjectRepo,
    pub(crate) git: GitAdapter,
}

pub(crate) const A1: AttemptId = AttemptId(1);
pub(crate) const A2: AttemptId = AttemptId(2);
pub(crate) const SLOT: u32 = 0;

pub(crate) fn branch(name: &str) -> BranchName {
    BranchName::new(name).unwrap()
}

pub(crate) fn authorship(message: &str) -> Authorship {
    Authorship {
        name: "amber".into(),
        email: "amber@regatta.invalid".into(),
        message: message.into(),
        unix_seconds: 1000,
    }
}

/// Returns a commit as a change that lands with this message.
pub(crate) fn change_of(commit: &CommitId, message: &str) -> AuthoredChange {
    AuthoredChange {
        commit: commit.clone(),
        authorship: authorship(message),
    }
}

/// Merges a single change.
pub(crate) trait SingleMerge {
    fn trial_merge(
        &self,
        repo: &ProjectRepo,
        tip: &CommitId,
        change: &AuthoredChange,
        style: CommitStyle,
    ) -> Result<TrialMerge, GitError>;
}

impl SingleMerge for GitAdapter {
    fn trial_merge(
        &self,
        repo: &ProjectRepo,
        tip: &CommitId,
        change: &AuthoredChange,
        style: CommitStyle,
    ) -> Result<TrialMerge, GitError> {
        let mut merges = self.trial_merges(repo, tip, std::slice::from_ref(change), style)?;
        Ok(merges.pop().expect("one change has one result"))
    }
}

pub(crate) fn write(path: impl AsRef<Path>, text: impl AsRef<[u8]>) {
    fs::create_dir_all(path.as_ref().parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

pub(crate) fn read(path: impl AsRef<Path>) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned()
}

pub(crate) fn make_executable(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Returns a directory in memory where there is one, because these tests sync often.
pub(crate) fn temp_dir() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        tempfile::tempdir_in(memory).unwrap()
    } else {
        tempfile::tempdir().unwrap()
    }
}

/// Runs git as a person or an agent would, including hooks.
pub(crate) fn try_git<S: AsRef<OsStr>>(dir: &Path, args: impl IntoIterator<Item = S>) -> Output {
    Command::new("git")
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", "/nonexistent")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .envs([
            ("GIT_AUTHOR_NAME", "Ann"),
            ("GIT_AUTHOR_EMAIL", "ann@example.org"),
        ])
        .envs([
            ("GIT_COMMITTER_NAME", "Ann"),
            ("GIT_COMMITTER_EMAIL", "ann@example.org"),
        ])
        .current_dir(dir)
        .args(args)
        .output()
        .unwrap()
}

pub(crate) fn git(dir: &Path, args: &[&str]) -> String {
    let output = try_git(dir, args);
    assert!(
        output.status.success(),
        "git {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout)
        .trim_end()
        .to_owned()
}

pub(crate) fn init(dir: &Path, args: &[&str]) {
    fs::create_dir_all(dir).unwrap();
    git(dir, &[&["init", "-q", "-b", "main"], args].concat());
}

pub(crate) fn commit_all(dir: &Path, message: &str) -> CommitId {
    git(dir, &["add", "-A"]);
    git(dir, &["commit", "-q", "--allow-empty", "-m", message]);
    CommitId::new(&git(dir, &["rev-parse", "HEAD"])).unwrap()
}

impl World {
    /// Creates a repository with `a.txt`, `src/lib.rs` and `run.sh` on `main`, checked out and
    /// clean.
    pub(crate) fn new() -> World {
        World::with_init_args(&[])
    }

    pub(crate) fn with_init_args(init_args: &[&str]) -> World {
        let home = temp_dir();
        let path = home.path().join("user's repo");
        init(&path, init_args);
        write(path.join("a.txt"), "one\n");
        write(path.join("src/lib.rs"), "fn main() {}\n");
        write(path.join("run.sh"), "#!/bin/sh\n");
        make_executable(&path.join("run.sh"));
        write(path.join(".gitignore"), "*.log\ntarget/\n.env\n");
        commit_all(&path, "start");
        World::with_repo_at(home, path)
    }

    pub(crate) fn with_repo_at(home: TempDir, path: PathBuf) -> World {
        let git = GitAdapter::new(home.path().join("data dir"));
        let repo = ProjectRepo {
            project: ProjectName::new("shop").unwrap(),
            path,
            trunk: branch("main"),
            should_update_checkout: true,
            workspace: Default::default(),
        };
        World { home, repo, git }
    }

    pub(crate) fn user(&self) -> &Path {
        &self.repo.path
    }
    pub(crate) fn data(&self) -> PathBuf {
        self.home.path().join("data dir")
    }
    pub(crate) fn vault(&self) -> PathBuf {
        self.data().join("vaults/shop.git")
    }
    pub(crate) fn tip(&self) -> CommitId {
        self.git.tip(&self.repo).unwrap()
    }
    pub(crate) fn prepare(&self, attempt: AttemptId) -> Workspace {
        self.git
            .prepare_workspace(&self.repo, attempt, &branch(&format!("regatta/{attempt}")))
            .unwrap()
    }
    pub(crate) fn capture(&self, attempt: AttemptId) -> Capture {
        self.git
            .capture(&self.repo, attempt, &authorship("work"))
            .unwrap()
    }
    pub(crate) fn trial(&self, commit: &CommitId) -> TrialMerge {
        self.git
            .trial_merge(
                &self.repo,
                &self.tip(),
                &change_of(commit, "land it"),
                CommitStyle::Squash,
            )
            .unwrap()
    }
    pub(crate) fn clean_trial(&self, commit: &CommitId) -> CommitId {
        match self.trial(commit) {
            TrialMerge::Clean(merged) => merged,
            other => panic!("{other:?}"),
        }
    }
    /// Returns a commit that changes these files and is ready to land.
    pub(crate) fn change_ready_to_land(
        &self,
        attempt: AttemptId,
        files: &[(&str, &str)],
    ) -> CommitId {
        let workspace = self.prepare(attempt);
        for (path, text) in files {
            write(workspace.path.join(path), text);
        }
        self.clean_trial(&self.capture(attempt).commit)
    }
    pub(crate) fn permit(&self) -> TrunkPermit {
        TrunkPermit::for_tests(self.repo.project.clone())
    }
    pub(crate) fn land(&self, old: &CommitId, new: &CommitId) -> TrunkMoveResult {
        self.git
            .move_trunk(&self.permit(), &self.repo, old, new)
            .unwrap()
    }
    pub(crate) fn uncaptured_paths(&self, attempt: AttemptId) -> Vec<String> {
        self.git.uncaptured_paths(&self.repo, attempt).unwrap()
    }
    pub(crate) fn remove_workspace(&self, attempt: AttemptId) {
        self.git
            .remove_workspace(&ReachabilityProof::for_tests(attempt), &self.repo)
            .unwrap();
    }
    pub(crate) fn status(&self) -> String {
        git(self.user(), &["status", "--porcelain"])
    }
    /// Returns a file of a commit in the vault.
    pub(crate) fn read_from_vault(&self, commit: &CommitId, path: &str) -> String {
        git(
            &self.vault(),
            &["cat-file", "blob", &format!("{commit}:{path}")],
        )
    }
}
