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
//!   `submodules` checks submodules out, and `submodule_work` stores the work in them. `special` and
//!   `special_files` find links, submodules, pipes and other entries that are not plain files.
//! - Merging: `merge` and `revert` try a merge. `tree_merge` computes simple merges without git, and
//!   `conflicts` parses the conflicts that git reports. `fixup` prepares a conflict so that an agent
//!   can resolve it, `staging` checks merged work out for its checks, and `collision_scan` finds
//!   conflicts between unfinished workspaces.
//! - The trunk: `transfer_objects` copies objects into the user's repository, `land` moves the
//!   trunk, `push` pushes the trunk, and `rebase_trunk` rebases the trunk onto the trunk of a remote.
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
mod collision_scan;
mod conflicts;
mod disk;
mod errors;
mod fixup;
mod gc;
mod git_command;
mod git_stream;
mod gitdir;
mod land;
mod layout;
mod merge;
mod object_store;
mod pktline;
mod push;
mod read_commit;
mod rebase_trunk;
mod restrict;
mod revert;
mod runner_mirror;
pub mod sample_repo;
mod serve;
mod special;
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

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use regatta_core::ids::{AttemptId, BranchName, CommitId, LandingId, ProjectName};
use regatta_core::landing::guard::SpecialFile;
use regatta_core::landing::trunk_check::TrunkSeen;
use regatta_core::pattern::PathPattern;
use regatta_core::project::CommitStyle;
use regatta_core::task::{Conflict, Fixup};
use regatta_engine::ports::git::{
    Authorship, Capture, CopiedFiles, DiskUse, DroppedProof, FileChange, Git, GitError,
    GitHttpRequest, GitRemote, KeptWork, MergeSide, OwnershipMerge, ProjectRepo, PushResult,
    ReachabilityProof, RebaseResult, RepoFacts, TrialMerge, TrunkFacts, TrunkMoveResult,
    TrunkPermit, UnreleasedCommit, UpstreamTrunk, Workspace, WorkspaceCollision,
};

use crate::collision_scan::CollisionScans;
use crate::git_command::GitLauncher;
use crate::git_stream::PeerStreams;
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

impl Git for GitAdapter {
    fn stop_helpers(&self) {
        self.processes.end_all();
    }
    fn inspect(&self, path: &Path) -> Result<RepoFacts, GitError> {
        self.repo_facts(path)
    }
    fn tip(&self, repo: &ProjectRepo) -> Result<CommitId, GitError> {
        let user = self.discover_at(&repo.path)?;
        self.trunk_tip(&user, repo)
    }
    fn paths_at_tip(&self, repo: &ProjectRepo) -> Result<Vec<String>, GitError> {
        self.tip_paths(repo)
    }
    fn trunk_facts(&self, repo: &ProjectRepo) -> Result<TrunkFacts, GitError> {
        self.read_trunk_facts(repo)
    }
    fn contains(
        &self,
        repo: &ProjectRepo,
        tip: &CommitId,
        commit: &CommitId,
    ) -> Result<bool, GitError> {
        Ok(self.current_form_of(repo, tip, commit)?.is_some())
    }
    fn missing_commits(
        &self,
        repo: &ProjectRepo,
        tip: &CommitId,
        commits: &[CommitId],
    ) -> Result<Vec<CommitId>, GitError> {
        self.missing_from_history(repo, tip, commits)
    }
    fn current_commit_of(
        &self,
        repo: &ProjectRepo,
        commit: &CommitId,
    ) -> Result<Option<CommitId>, GitError> {
        self.current_form_of(repo, &self.tip(repo)?, commit)
    }
    fn contains_exactly(&self, repo: &ProjectRepo, commit: &CommitId) -> Result<bool, GitError> {
        self.is_ancestor(repo, &self.tip(repo)?, commit)
    }
    fn commits_between(
        &self,
        repo: &ProjectRepo,
        from: &CommitId,
        to: &CommitId,
    ) -> Result<Vec<CommitId>, GitError> {
        self.first_parent_commits(repo, from, to)
    }
    fn compare_trunk(
        &self,
        repo: &ProjectRepo,
        recorded: &[CommitId],
    ) -> Result<TrunkSeen, GitError> {
        self.compare_trunk_commits(repo, recorded)
    }
    fn find_landing(
        &self,
        repo: &ProjectRepo,
        landing: LandingId,
    ) -> Result<Option<CommitId>, GitError> {
        self.landing_on_trunk(repo, landing)
    }
    fn free_disk_mb(&self) -> Option<u64> {
        self.layout.free_mb()
    }
    fn objects_dir(&self, repo: &ProjectRepo) -> Option<PathBuf> {
        let objects = self.layout.vault(&repo.project).join("objects");
        objects.is_dir().then_some(objects)
    }
    fn workspace_path(&self, repo: &ProjectRepo, attempt: AttemptId) -> PathBuf {
        self.layout.workspace(&repo.project, attempt)
    }
    fn prepare_workspace(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        branch: &BranchName,
    ) -> Result<Workspace, GitError> {
        self.make_workspace(repo, attempt, branch, || self.refresh_trunk(repo))
    }
    fn prepare_fixup(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        branch: &BranchName,
        fixup: &Fixup,
        authorship: &Authorship,
    ) -> Result<Workspace, GitError> {
        self.make_fixup_workspace(repo, attempt, branch, fixup, authorship)
    }
    fn conflicts(
        &self,
        repo: &ProjectRepo,
        tip: &CommitId,
        change: &CommitId,
    ) -> Result<Vec<Conflict>, GitError> {
        self.merge_conflicts(repo, tip, change)
    }
    fn recognise_fixup(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        base: &CommitId,
        fixup: &Fixup,
    ) -> Result<bool, GitError> {
        self.recognise_fixup_base(repo, attempt, base, fixup)
    }
    fn squash_fixup(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        capture: Capture,
        authorship: &Authorship,
    ) -> Result<Capture, GitError> {
        self.squash_with_base(repo, attempt, capture, authorship)
    }
    fn copy_untracked(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        manifest: &[PathPattern],
    ) -> Result<CopiedFiles, GitError> {
        self.copy_into_workspace(repo, attempt, manifest)
    }
    fn is_ready(&self, repo: &ProjectRepo, attempt: AttemptId) -> bool {
        self.layout.ready_marker(&repo.project, attempt).exists()
    }
    fn mark_ready(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        manifest: &[PathPattern],
    ) -> Result<(), GitError> {
        self.mark_workspace_ready(repo, attempt, manifest)
    }
    fn capture(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        authorship: &Authorship,
    ) -> Result<Capture, GitError> {
        self.capture_workspace(repo, attempt, authorship)
    }
    fn restrict(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        part: (&Capture, &[String]),
        authorship: &Authorship,
    ) -> Result<Capture, GitError> {
        self.restrict_capture(repo, attempt, part, authorship)
    }
    fn changed_files(
        &self,
        repo: &ProjectRepo,
        capture: &Capture,
        lines: bool,
    ) -> Result<Vec<FileChange>, GitError> {
        self.captured_changes(repo, capture, lines)
    }
    fn special_files(
        &self,
        repo: &ProjectRepo,
        base: &CommitId,
        commit: &CommitId,
    ) -> Result<Vec<SpecialFile>, GitError> {
        self.special_between(repo, base, commit)
    }
    fn unpublished_submodules(
        &self,
        repo: &ProjectRepo,
        base: &CommitId,
        commit: &CommitId,
    ) -> Result<Vec<String>, GitError> {
        self.unpublished_submodules_between(repo, base, commit)
    }
    fn is_ignored(&self, repo: &ProjectRepo, path: &str) -> Result<bool, GitError> {
        self.is_ignored_in_checkout(repo, path)
    }
    fn checkout_marks(&self, repo: &ProjectRepo) -> Result<Vec<(String, String)>, GitError> {
        self.read_checkout_marks(repo)
    }
    fn trial_merge(
        &self,
        repo: &ProjectRepo,
        tip: &CommitId,
        commit: &CommitId,
        authorship: &Authorship,
        style: CommitStyle,
    ) -> Result<TrialMerge, GitError> {
        let change = [(commit.clone(), authorship.clone())];
        let merges = self.merge_all_onto(repo, tip, &change, style)?.pop();
        merges.ok_or_else(|| errors::no_such_commit(commit))
    }
    fn trial_merges(
        &self,
        repo: &ProjectRepo,
        tip: &CommitId,
        changes: &[(CommitId, Authorship)],
        style: CommitStyle,
    ) -> Result<Vec<TrialMerge>, GitError> {
        self.merge_all_onto(repo, tip, changes, style)
    }
    fn merge_with_ownership(
        &self,
        repo: &ProjectRepo,
        tip: &CommitId,
        commit: &CommitId,
        sides: &BTreeMap<String, MergeSide>,
        authorship: &Authorship,
    ) -> Result<OwnershipMerge, GitError> {
        self.merge_by_ownership(repo, tip, commit, sides, authorship)
    }
    fn squash_range(
        &self,
        repo: &ProjectRepo,
        onto: &CommitId,
        commit: &CommitId,
        authorship: &Authorship,
    ) -> Result<CommitId, GitError> {
        self.vault_with(repo, onto)?;
        let vault = self.vault_with(repo, commit)?;
        let tree = self.tree_of_commit(&vault, commit)?;
        self.commit_tree(&vault, &tree, &[onto], authorship)
    }
    fn revert(
        &self,
        repo: &ProjectRepo,
        tip: &CommitId,
        commit: &CommitId,
        authorship: &Authorship,
    ) -> Result<TrialMerge, GitError> {
        self.revert_commit(repo, tip, commit, authorship)
    }
    fn file_at(
        &self,
        repo: &ProjectRepo,
        commit: &CommitId,
        path: &str,
    ) -> Result<Option<Vec<u8>>, GitError> {
        self.read_file_at(repo, commit, path)
    }
    fn is_edited(
        &self,
        repo: &ProjectRepo,
        path: &str,
        committed: &[u8],
    ) -> Result<bool, GitError> {
        self.has_unstaged_edit(repo, path, committed)
    }
    fn tree_of(&self, repo: &ProjectRepo, commit: &CommitId) -> Result<CommitId, GitError> {
        let vault = self.vault_with(repo, commit)?;
        self.tree_of_commit(&vault, commit)
    }
    fn diff(
        &self,
        repo: &ProjectRepo,
        base: &CommitId,
        commit: &CommitId,
    ) -> Result<String, GitError> {
        self.patch(repo, base, commit)
    }
    fn stage(&self, repo: &ProjectRepo, slot: u32, commit: &CommitId) -> Result<PathBuf, GitError> {
        self.stage_commit(repo, slot, commit)
    }
    fn prepare_staging(
        &self,
        repo: &ProjectRepo,
        slot: u32,
        commit: &CommitId,
    ) -> Result<CopiedFiles, GitError> {
        self.copy_into_slot(repo, slot, commit)
    }
    fn unstage(&self, repo: &ProjectRepo, from: u32) -> Result<(), GitError> {
        self.remove_stages(repo, from)
    }
    fn move_trunk(
        &self,
        permit: &TrunkPermit,
        repo: &ProjectRepo,
        old: &CommitId,
        new: &CommitId,
    ) -> Result<TrunkMoveResult, GitError> {
        self.land(permit, repo, old, new)
    }
    fn push(
        &self,
        repo: &ProjectRepo,
        remote: &str,
        commit: &CommitId,
    ) -> Result<PushResult, GitError> {
        self.push_trunk(repo, remote, commit)
    }
    fn push_branch(
        &self,
        repo: &ProjectRepo,
        remote: &str,
        branch: &BranchName,
        commit: &CommitId,
    ) -> Result<PushResult, GitError> {
        self.force_push_branch(repo, remote, branch, commit)
    }
    fn fetch_upstream(&self, repo: &ProjectRepo, remote: &str) -> Result<UpstreamTrunk, GitError> {
        self.fetch_upstream_trunk(repo, remote)
    }
    fn rebase_trunk(&self, repo: &ProjectRepo, onto: &CommitId) -> Result<RebaseResult, GitError> {
        self.rebase_onto(repo, onto)
    }
    fn unreleased_commits(
        &self,
        repo: &ProjectRepo,
        commit: &CommitId,
    ) -> Result<Option<Vec<UnreleasedCommit>>, GitError> {
        self.since_last_tag(repo, commit).map(Some)
    }
    fn collisions(
        &self,
        repo: &ProjectRepo,
        attempts: &[AttemptId],
        tip: &CommitId,
    ) -> Result<Vec<WorkspaceCollision>, GitError> {
        self.find_collisions(repo, attempts, tip)
    }
    fn uncaptured_paths(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
    ) -> Result<Vec<String>, GitError> {
        self.list_uncaptured_paths(repo, attempt)
    }
    fn remove_workspace(
        &self,
        proof: &ReachabilityProof,
        repo: &ProjectRepo,
    ) -> Result<(), GitError> {
        self.destroy_workspace(proof, repo)
    }
    fn kept_work(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
    ) -> Result<Option<KeptWork>, GitError> {
        self.read_kept_work(repo, attempt)
    }
    fn kept_attempts(&self, repo: &ProjectRepo) -> Result<Vec<AttemptId>, GitError> {
        self.list_kept_attempts(repo)
    }
    fn forget_dropped(&self, proof: &DroppedProof, repo: &ProjectRepo) -> Result<(), GitError> {
        self.delete_keep_refs(proof, repo)
    }
    fn collect_garbage(
        &self,
        repo: &ProjectRepo,
        landed: &[CommitId],
        unused_for: Duration,
    ) -> Result<(), GitError> {
        self.prune_vault(repo, landed, unused_for)
    }
    fn disk_use(&self, repo: &ProjectRepo) -> Result<DiskUse, GitError> {
        self.measure_disk_use(repo)
    }
    fn shrink_pool(&self, repo: &ProjectRepo, max_bytes: u64) -> Result<(), GitError> {
        self.shrink_pool_to(repo, max_bytes)
    }
    fn advertise(
        &self,
        repo: &ProjectRepo,
        http_request: &GitHttpRequest<'_>,
        may_write: &dyn Fn(&str) -> bool,
    ) -> Result<Vec<u8>, GitError> {
        self.advertise_refs(repo, http_request, may_write)
    }
    fn serve(
        &self,
        repo: &ProjectRepo,
        http_request: &GitHttpRequest<'_>,
        may_write: &dyn Fn(&str) -> bool,
        request: &mut dyn Read,
        answer: &mut dyn Write,
    ) -> Result<(), GitError> {
        self.serve_request(
            repo,
            http_request,
            may_write,
            PeerStreams { request, answer },
        )
    }
    fn mirror_path(&self, project: &ProjectName) -> PathBuf {
        self.layout.mirror(project)
    }
    fn fetch_project(
        &self,
        repo: &ProjectRepo,
        from: &GitRemote,
        wants: &[CommitId],
    ) -> Result<(), GitError> {
        self.fetch_mirror(repo, from, wants)
    }
    fn push_capture(
        &self,
        repo: &ProjectRepo,
        to: &GitRemote,
        attempt: AttemptId,
    ) -> Result<(), GitError> {
        self.push_kept_commits(repo, to, attempt)
    }
    fn forget_attempt(&self, repo: &ProjectRepo, attempt: AttemptId) -> Result<(), GitError> {
        self.delete_pushed_keep_refs(repo, attempt)
    }
    fn captured(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
    ) -> Result<Option<Capture>, GitError> {
        self.last_capture(repo, attempt)
    }
}
