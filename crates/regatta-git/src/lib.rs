//! Implements the git interface of the engine: creates agents' workspaces, stores agents' work in
//! commits (captures), merges work, and moves the trunk. No other crate moves a trunk.
//!
//! The repositories, and the code that may write each of them:
//!
//! | repository | place | code that may write it |
//! |---|---|---|
//! | the user's repository | where the user keeps it | `land.rs`: new objects, the trunk, and unchanged files of a checkout |
//! | the user's copies of submodules | `.git/modules` of the user's repository | `submodules.rs`: a commit that the user can then push |
//! | the vault, Regatta's own repository | `vaults/<project>.git` | this crate: stored work, the refs that protect it, and merges |
//! | a runner's copy of the trunk (mirror) | `mirrors/<project>.git` | this crate: the trunk of the server |
//! | the repository in a workspace | `workspaces/<project>/<attempt>/.git` | this crate creates it; then the agent writes it, and Regatta never trusts it |
//!
//! The modules:
//!
//! - Starting git: only `git_command` starts the program `git`. `object_store` reads and writes
//!   objects, and `tree_diff` compares trees.
//! - Repositories: `layout` defines the directory layout. `user_repo` reads the user's repository
//!   and `trunk_facts` the trunk in it. `vault` manages Regatta's own repository.
//! - Working trees: `workspace` creates and removes workspaces, and `gitdir` creates the disposable
//!   `.git` in each of them. `untracked_files` copies the user's untracked files into a workspace,
//!   and `workspace_pool` keeps finished workspaces for reuse.
//! - Storing agents' work: `capture` stores the files of a workspace as a commit, `agent_commits`
//!   imports the agent's own commits, and `restrict` reduces a stored commit to certain paths.
//!   `submodules` checks submodules out, and `submodule_work` stores the work in them.
//!   `changed_special_files` finds changed paths that are not plain files, such as links and
//!   submodules. `special_files` finds pipes, sockets and devices.
//! - Merging: `merge` tries a merge. `tree_merge` computes simple merges without git, and
//!   `conflicts` parses the conflicts that git reports. `fixup` prepares a conflict so that an
//!   agent can resolve it, `staging` checks merged work out for its checks, and `collision_scan`
//!   finds conflicts between unfinished workspaces.
//! - The trunk: `transfer_objects` copies objects into the user's repository, `land` moves the
//!   trunk, `remote_trunk` pushes the trunk and rebases it onto the trunk of a remote.
//!   `case_collisions` refuses file names that the user's file system would confuse.
//! - Deleting: `gc` deletes dropped work.
//! - Other machines: `serve` serves the vault to runners, `git_stream` streams the data, and
//!   `pktline` parses untrusted input. `runner_mirror` contains the runner's side.
//! - For people: `read_commit` reads commits, and `errors` contains the error messages.
//!
//! Three features of git are deliberately not used:
//! - Linked worktrees, because they share refs, hooks and configuration with the user's repository.
//! - Alternates that point to the user's repository, because a `git gc` in that repository could
//!   delete objects.
//! - Git LFS. Agents see LFS pointer files, and Regatta stores these pointer files.

mod agent_commits;
mod capture;
mod case_collisions;
mod changed_special_files;
mod collision_scan;
mod conflicts;
mod disk;
mod errors;
mod fixup;
mod gc;
mod git_command;
mod git_stream;
mod gitdir;
mod kept_work;
mod land;
mod layout;
mod merge;
mod object_store;
mod pktline;
mod read_commit;
mod remote_trunk;
mod runner_mirror;
pub mod sample_repo;
mod serve;
mod special_files;
mod staging;
mod submodule_work;
mod submodules;
mod transfer_objects;
mod tree_diff;
mod tree_merge;
mod trunk_facts;
mod untracked_files;
mod user_repo;
mod vault;
mod workspace;
mod workspace_pool;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use regatta_engine::ports::git::GitError;

use crate::collision_scan::CollisionScans;
use crate::git_command::GitLauncher;
use crate::layout::{DataLayout, Locks};
use crate::object_store::ProcessPool;
use crate::staging::StagedSlots;
use crate::user_repo::{RepoFingerprint, UserRepo};
use crate::workspace_pool::PoolState;

/// Implements the git interface of the engine by running the program `git`.
#[derive(Debug)]
pub struct GitAdapter {
    layout: DataLayout,
    locks: Locks,
    git: GitLauncher,
    processes: ProcessPool,
    /// For each staging directory (in which merged work is checked), the commit that is checked out
    /// there, and its files.
    slots: StagedSlots,
    /// The user's repositories that were already examined. Each repository is stored with a
    /// fingerprint that changes when the repository must be examined again.
    known_repos: Mutex<HashMap<PathBuf, (UserRepo, RepoFingerprint)>>,
    /// Facts about the finished workspaces that are kept for reuse.
    pool_state: PoolState,
    /// The results of the last scans for conflicts between unfinished work.
    scans: CollisionScans,
}

impl GitAdapter {
    /// Creates an adapter that stores all its files under `data_dir`. Does not write any file yet.
    pub fn new(data_dir: PathBuf) -> GitAdapter {
        // The directory is made absolute, because a relative path would name another directory
        // after a change of the working directory.
        let data_dir = std::path::absolute(&data_dir).unwrap_or(data_dir);
        let layout = DataLayout::new(data_dir);
        let git = GitLauncher::new(layout.global_config());
        GitAdapter {
            layout,
            locks: Locks::default(),
            git,
            processes: ProcessPool::default(),
            pool_state: PoolState::default(),
            slots: StagedSlots::default(),
            known_repos: Mutex::default(),
            scans: CollisionScans::default(),
        }
    }

    /// Returns the total number of git processes that this adapter has started.
    pub fn started_processes(&self) -> u64 {
        self.git.started_count()
    }
}

/// The oldest git with which Regatta works, as major and minor number. `git merge-tree --stdin`
/// exists since 2.39; `git merge-tree --write-tree` since 2.38.
pub const MIN_GIT_VERSION: (u32, u32) = (2, 39);

/// Fails if the installed git is missing or too old.
pub fn require_supported_version() -> Result<(), GitError> {
    match version()? {
        (_, true) => Ok(()),
        (found, false) => Err(errors::git_too_old(&found)),
    }
}

/// Returns the version of the installed git, and whether it is at least [`MIN_GIT_VERSION`].
pub fn version() -> Result<(String, bool), GitError> {
    let output = GitLauncher::new("/dev/null".into())
        .in_dir(Path::new("/"), "print its version")
        .args(["version"])
        .run_expecting_success()?;
    let text = String::from_utf8_lossy(&output.stdout)
        .trim()
        .trim_start_matches("git version ")
        .to_owned();
    let mut numbers = text.split('.').map(|text| text.parse::<u32>().unwrap_or(0));
    let (major, minor) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    Ok((text, (major, minor) >= MIN_GIT_VERSION))
}
