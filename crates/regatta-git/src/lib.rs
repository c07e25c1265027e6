//! Workspaces, capture, trial merges and the one move of the trunk.
//!
//! The repositories, and who may write each:
//!
//! | repository | where | who writes |
//! |---|---|---|
//! | the user's | where the user keeps it | `land.rs` only: objects, the trunk, a clean checkout of it |
//! | the user's submodules | in `.git/modules` of the user's | `submodules.rs` only: a commit that a person is to push |
//! | the vault | `vaults/<project>.git` | this crate: every capture, keep-ref and merge is here |
//! | a runner's mirror | `mirrors/<project>.git` | this crate: the server's trunk, in the place of the user's |
//! | a workspace's own | `workspaces/<project>/<attempt>/.git` | the agent; this crate creates it and never trusts it |
//!
//! In reading order:
//!
//! - `run` is the only module that starts git. `odb` reads and writes objects, and `difference`
//!   compares trees.
//! - `places` has the directory layout. `inspect` reads the user's repository and `look` its trunk.
//!   `vault` is Regatta's own repository.
//! - `workspace` makes and removes working trees, and `gitdir` the disposable `.git` in each.
//!   `copy` copies the user's untracked files, and `pool` keeps finished workspaces for reuse.
//! - `capture` captures the files of a workspace, `history` the agent's own commits, and `scope` a
//!   part of a capture. `submodules` checks submodules out, and `submodule_work` captures the work
//!   in them.
//! - `merge` and `revert` try a merge, and `weave` makes it where no file was changed twice.
//!   `fixup` prepares a conflict for an agent. `stage` checks a trial out for its checks.
//! - `carry` transfers objects to the user, `land` moves the trunk, `push` pushes it, and `replant`
//!   rebases it onto a remote's trunk. `forget` deletes dropped work.
//! - `serve` gives the vault to other machines: `exchange` streams the data, and `pktline` parses
//!   untrusted input. `remote` is the runner's side. `show` reads commits, and `words` has the
//!   messages for people.
//!
//! Deliberately absent: linked worktrees (they share refs, hooks and configuration with the user's
//! repository), alternates that point at the user's repository (a `git gc` there could delete
//! objects), and Git LFS (agents see pointer files, and captures keep them).

mod capture;
mod carry;
mod casing;
mod conflicts;
mod copy;
mod difference;
mod disk;
mod exchange;
mod fixup;
mod forget;
mod gitdir;
mod history;
mod inspect;
mod land;
mod look;
mod merge;
mod odb;
mod pipes;
mod pktline;
mod places;
mod pool;
mod push;
mod radar;
mod remote;
mod replant;
mod revert;
mod run;
pub mod sample;
mod scope;
mod serve;
mod show;
mod special;
mod stage;
mod submodule_work;
mod submodules;
mod vault;
mod weave;
mod words;
mod workspace;

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use regatta_core::ids::{AttemptId, BranchName, CommitId, LandingId, ProjectName};
use regatta_core::landing::guard::SpecialFile;
use regatta_core::landing::trunk_check::TrunkSeen;
use regatta_core::pattern::PathPattern;
use regatta_core::project::Style;
use regatta_core::task::{Conflict, Fixup};
use regatta_engine::ports::git::{
    Authorship, Brought, Capture, Change, Collision, DiskUse, DroppedProof, Git, GitError, KeptWork, Move, Push,
    ReachabilityProof, Remote, Replanted, Repo, RepoFacts, Settled, Side, Trial, TrunkFacts, TrunkPermit, Unreleased,
    Upstream, Wire, Workspace,
};

use crate::exchange::Ends;
use crate::inspect::{Sign, UserRepo};
use crate::odb::Pool;
use crate::places::{Locks, Places};
use crate::pool::Warm;
use crate::radar::Radar;
use crate::run::Runner;
use crate::stage::Slots;

/// Implements the engine's git port with the `git` program.
#[derive(Debug)]
pub struct GitAdapter {
    places: Places,
    locks: Locks,
    git: Runner,
    pool: Pool,
    /// The contents of the staging directories.
    slots: Slots,
    /// The user's repositories that were found, with a fingerprint of each.
    known: Mutex<HashMap<PathBuf, (UserRepo, Sign)>>,
    /// The pools of finished workspaces.
    warm: Warm,
    /// The results of the last collision scans.
    radar: Radar,
}

impl GitAdapter {
    /// Creates an adapter that keeps everything under `data_dir`. Writes nothing yet.
    pub fn new(data_dir: PathBuf) -> GitAdapter {
        // A relative directory would name another place after a change of the working directory.
        let data_dir = std::path::absolute(&data_dir).unwrap_or(data_dir);
        let places = Places::new(data_dir);
        let git = Runner::new(places.global_config());
        GitAdapter {
            places,
            locks: Locks::default(),
            git,
            pool: Pool::default(),
            warm: Warm::default(),
            slots: Slots::default(),
            known: Mutex::default(),
            radar: Radar::default(),
        }
    }

    /// Returns the number of git processes that this adapter has started.
    pub fn processes(&self) -> u64 {
        self.git.started()
    }
}

/// Returns the git program's version, and whether it is new enough (2.39 or later).
pub fn version() -> Result<(String, bool), GitError> {
    let said =
        Runner::new("/dev/null".into()).ours_in(Path::new("/"), "ask git for its version").args(["version"]).done()?;
    let text = String::from_utf8_lossy(&said.stdout).trim().trim_start_matches("git version ").to_owned();
    let mut numbers = text.split('.').map(|it| it.parse::<u32>().unwrap_or(0));
    let (major, minor) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    Ok((text, (major, minor) >= (2, 39)))
}

impl Git for GitAdapter {
    fn rest(&self) {
        self.pool.empty();
    }
    fn inspect(&self, path: &Path) -> Result<RepoFacts, GitError> {
        self.facts(path)
    }
    fn tip(&self, repo: &Repo) -> Result<CommitId, GitError> {
        let user = self.discover_at(&repo.path)?;
        self.trunk_tip(&user, repo)
    }
    fn paths_at_tip(&self, repo: &Repo) -> Result<Vec<String>, GitError> {
        self.tip_paths(repo)
    }
    fn trunk(&self, repo: &Repo) -> Result<TrunkFacts, GitError> {
        self.look_at_trunk(repo)
    }
    fn contains(&self, repo: &Repo, tip: &CommitId, commit: &CommitId) -> Result<bool, GitError> {
        Ok(self.found_as(repo, tip, commit)?.is_some())
    }
    fn missing(&self, repo: &Repo, tip: &CommitId, commits: &[CommitId]) -> Result<Vec<CommitId>, GitError> {
        self.missing_from(repo, tip, commits)
    }
    fn stands_as(&self, repo: &Repo, commit: &CommitId) -> Result<Option<CommitId>, GitError> {
        self.found_as(repo, &self.tip(repo)?, commit)
    }
    fn holds(&self, repo: &Repo, commit: &CommitId) -> Result<bool, GitError> {
        self.is_ancestor(repo, &self.tip(repo)?, commit)
    }
    fn commits_between(&self, repo: &Repo, from: &CommitId, to: &CommitId) -> Result<Vec<CommitId>, GitError> {
        self.steps_between(repo, from, to)
    }
    fn compare_trunk(&self, repo: &Repo, recorded: &[CommitId]) -> Result<TrunkSeen, GitError> {
        self.trunk_differences(repo, recorded)
    }
    fn landed_as(&self, repo: &Repo, landing: LandingId) -> Result<Option<CommitId>, GitError> {
        self.find_landing(repo, landing)
    }
    fn free_disk_mb(&self) -> Option<u64> {
        self.places.free_mb()
    }
    fn objects(&self, repo: &Repo) -> Option<PathBuf> {
        let objects = self.places.vault(&repo.project).join("objects");
        objects.is_dir().then_some(objects)
    }
    fn workspace_path(&self, repo: &Repo, attempt: AttemptId) -> PathBuf {
        self.places.workspace(&repo.project, attempt)
    }
    fn prepare(&self, repo: &Repo, attempt: AttemptId, branch: &BranchName) -> Result<Workspace, GitError> {
        self.prepare_workspace(repo, attempt, branch, || self.refresh(repo))
    }
    fn prepare_fixup(
        &self,
        repo: &Repo,
        attempt: AttemptId,
        branch: &BranchName,
        fixup: &Fixup,
        authorship: &Authorship,
    ) -> Result<Workspace, GitError> {
        self.prepare_mending(repo, attempt, branch, fixup, authorship)
    }
    fn conflicts(&self, repo: &Repo, tip: &CommitId, change: &CommitId) -> Result<Vec<Conflict>, GitError> {
        self.conflicts_with(repo, tip, change)
    }
    fn recognise_fixup(
        &self,
        repo: &Repo,
        attempt: AttemptId,
        base: &CommitId,
        fixup: &Fixup,
    ) -> Result<bool, GitError> {
        self.recognise(repo, attempt, base, fixup)
    }
    fn as_change(
        &self,
        repo: &Repo,
        attempt: AttemptId,
        capture: Capture,
        authorship: &Authorship,
    ) -> Result<Capture, GitError> {
        self.mended(repo, attempt, capture, authorship)
    }
    fn bring(&self, repo: &Repo, attempt: AttemptId, manifest: &[PathPattern]) -> Result<Brought, GitError> {
        self.bring_files(repo, attempt, manifest)
    }
    fn is_settled(&self, repo: &Repo, attempt: AttemptId) -> bool {
        self.places.settled(&repo.project, attempt).exists()
    }
    fn settle(&self, repo: &Repo, attempt: AttemptId, manifest: &[PathPattern]) -> Result<(), GitError> {
        self.settle_workspace(repo, attempt, manifest)
    }
    fn capture(&self, repo: &Repo, attempt: AttemptId, authorship: &Authorship) -> Result<Capture, GitError> {
        self.capture_workspace(repo, attempt, authorship)
    }
    fn restrict(
        &self,
        repo: &Repo,
        attempt: AttemptId,
        part: (&Capture, &[String]),
        authorship: &Authorship,
    ) -> Result<Capture, GitError> {
        self.restrict_capture(repo, attempt, part, authorship)
    }
    fn changed_files(&self, repo: &Repo, capture: &Capture, lines: bool) -> Result<Vec<Change>, GitError> {
        self.captured_changes(repo, capture, lines)
    }
    fn special_files(&self, repo: &Repo, base: &CommitId, commit: &CommitId) -> Result<Vec<SpecialFile>, GitError> {
        self.special_between(repo, base, commit)
    }
    fn unpublished_submodules(&self, repo: &Repo, base: &CommitId, commit: &CommitId) -> Result<Vec<String>, GitError> {
        self.unpublished_between(repo, base, commit)
    }
    fn ignores(&self, repo: &Repo, path: &str) -> Result<bool, GitError> {
        self.ignored_in_checkout(repo, path)
    }
    fn checkout_marks(&self, repo: &Repo) -> Result<Vec<(String, String)>, GitError> {
        self.marks_of_checkout(repo)
    }
    fn trial_merge(
        &self,
        repo: &Repo,
        tip: &CommitId,
        commit: &CommitId,
        authorship: &Authorship,
        style: Style,
    ) -> Result<Trial, GitError> {
        let change = [(commit.clone(), authorship.clone())];
        let found = self.merge_all_onto(repo, tip, &change, style)?.pop();
        found.ok_or_else(|| words::no_such_commit(commit))
    }
    fn trial_merges(
        &self,
        repo: &Repo,
        tip: &CommitId,
        changes: &[(CommitId, Authorship)],
        style: Style,
    ) -> Result<Vec<Trial>, GitError> {
        self.merge_all_onto(repo, tip, changes, style)
    }
    fn merge_with_ownership(
        &self,
        repo: &Repo,
        tip: &CommitId,
        commit: &CommitId,
        sides: &BTreeMap<String, Side>,
        authorship: &Authorship,
    ) -> Result<Settled, GitError> {
        self.settle(repo, tip, commit, sides, authorship)
    }
    fn fold(
        &self,
        repo: &Repo,
        onto: &CommitId,
        commit: &CommitId,
        authorship: &Authorship,
    ) -> Result<CommitId, GitError> {
        self.vault_with(repo, onto)?;
        let vault = self.vault_with(repo, commit)?;
        let tree = self.tree_of(&vault, commit)?;
        self.commit_tree(&vault, &tree, &[onto], authorship)
    }
    fn revert(
        &self,
        repo: &Repo,
        tip: &CommitId,
        commit: &CommitId,
        authorship: &Authorship,
    ) -> Result<Trial, GitError> {
        self.take_back(repo, tip, commit, authorship)
    }
    fn file_at(&self, repo: &Repo, commit: &CommitId, path: &str) -> Result<Option<Vec<u8>>, GitError> {
        self.file_of(repo, commit, path)
    }
    fn is_edited(&self, repo: &Repo, path: &str, committed: &[u8]) -> Result<bool, GitError> {
        self.is_edited_by_hand(repo, path, committed)
    }
    fn tree(&self, repo: &Repo, commit: &CommitId) -> Result<CommitId, GitError> {
        let vault = self.vault_with(repo, commit)?;
        self.tree_of(&vault, commit)
    }
    fn diff(&self, repo: &Repo, base: &CommitId, commit: &CommitId) -> Result<String, GitError> {
        self.patch(repo, base, commit)
    }
    fn stage(&self, repo: &Repo, slot: u32, commit: &CommitId) -> Result<PathBuf, GitError> {
        self.stage_commit(repo, slot, commit)
    }
    fn furnish(&self, repo: &Repo, slot: u32, commit: &CommitId) -> Result<Brought, GitError> {
        self.furnish_stage(repo, slot, commit)
    }
    fn unstage(&self, repo: &Repo, from: u32) -> Result<(), GitError> {
        self.remove_stages(repo, from)
    }
    fn move_trunk(&self, permit: &TrunkPermit, repo: &Repo, old: &CommitId, new: &CommitId) -> Result<Move, GitError> {
        self.land(permit, repo, old, new)
    }
    fn push(&self, repo: &Repo, remote: &str, commit: &CommitId) -> Result<Push, GitError> {
        self.push_trunk(repo, remote, commit)
    }
    fn push_branch(&self, repo: &Repo, remote: &str, branch: &BranchName, commit: &CommitId) -> Result<Push, GitError> {
        self.push_ours(repo, remote, branch, commit)
    }
    fn upstream(&self, repo: &Repo, remote: &str) -> Result<Upstream, GitError> {
        self.fetch_upstream(repo, remote)
    }
    fn replant(&self, repo: &Repo, onto: &CommitId) -> Result<Replanted, GitError> {
        self.replant_onto(repo, onto)
    }
    fn unreleased(&self, repo: &Repo, commit: &CommitId) -> Result<Option<Vec<Unreleased>>, GitError> {
        self.since_last_tag(repo, commit).map(Some)
    }
    fn collisions(&self, repo: &Repo, attempts: &[AttemptId], tip: &CommitId) -> Result<Vec<Collision>, GitError> {
        self.look_for_collisions(repo, attempts, tip)
    }
    fn unkept(&self, repo: &Repo, attempt: AttemptId) -> Result<Vec<String>, GitError> {
        self.unkept_paths(repo, attempt)
    }
    fn remove_workspace(&self, proof: &ReachabilityProof, repo: &Repo) -> Result<(), GitError> {
        self.destroy_workspace(proof, repo)
    }
    fn kept_work(&self, repo: &Repo, attempt: AttemptId) -> Result<Option<KeptWork>, GitError> {
        self.kept_work_of(repo, attempt)
    }
    fn kept_attempts(&self, repo: &Repo) -> Result<Vec<AttemptId>, GitError> {
        self.attempts_kept(repo)
    }
    fn forget_dropped(&self, proof: &DroppedProof, repo: &Repo) -> Result<(), GitError> {
        self.forget_attempt(proof, repo)
    }
    fn collect_garbage(&self, repo: &Repo, landed: &[CommitId], unused_for: Duration) -> Result<(), GitError> {
        self.prune_vault(repo, landed, unused_for)
    }
    fn disk_use(&self, repo: &Repo) -> Result<DiskUse, GitError> {
        self.measure(repo)
    }
    fn shrink_pool(&self, repo: &Repo, most: u64) -> Result<(), GitError> {
        self.shrink(repo, most)
    }
    fn advertise(&self, repo: &Repo, wire: &Wire<'_>, may_write: &dyn Fn(&str) -> bool) -> Result<Vec<u8>, GitError> {
        self.tell_refs(repo, wire, may_write)
    }
    fn serve(
        &self,
        repo: &Repo,
        wire: &Wire<'_>,
        may_write: &dyn Fn(&str) -> bool,
        request: &mut dyn Read,
        answer: &mut dyn Write,
    ) -> Result<(), GitError> {
        self.answer(repo, wire, may_write, Ends { request, answer })
    }
    fn mirror_path(&self, project: &ProjectName) -> PathBuf {
        self.places.mirror(project)
    }
    fn take_in(&self, repo: &Repo, from: &Remote, wants: &[CommitId]) -> Result<(), GitError> {
        self.take_project_in(repo, from, wants)
    }
    fn hand_over(&self, repo: &Repo, to: &Remote, attempt: AttemptId) -> Result<(), GitError> {
        self.hand_attempt_over(repo, to, attempt)
    }
    fn let_go(&self, repo: &Repo, attempt: AttemptId) -> Result<(), GitError> {
        self.let_attempt_go(repo, attempt)
    }
    fn kept(&self, repo: &Repo, attempt: AttemptId) -> Result<Option<Capture>, GitError> {
        self.last_kept(repo, attempt)
    }
}
