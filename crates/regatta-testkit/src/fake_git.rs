//! Version control in memory, with a check of every trunk move.
//!
//! A tree is a map from path to content, and merging is three-way by path. The repositories outlive
//! the engine: the handle of another [`EngineLife`] uses the same ones. A move that breaks a rule
//! of landing (Q1, Q2, Q5) is performed and recorded, and [`FakeGit::assert_no_violations`] then
//! fails the test.
//!
//! There are no files on disk. Directories are only names, so the engine cannot check `files_exist`
//! and `content_check` here. Commands work (see [`crate::fake_agents`]).

mod collisions; // conflicts between workspaces
mod repos;
mod trunk_commits; // the commits of a trunk and their trailers
mod workspaces; // workspaces of fix-ups // commits, trunks and merges in memory

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
use regatta_core::task::Fixup;
use regatta_engine::ports::git::{
    Authorship, Capture, CopiedFiles, DiskUse, DroppedProof, DroppedVersions, FileChange, Git,
    GitError, KeptWork, MergeSide, OwnershipMerge, ProjectRepo, PushResult, ReachabilityProof,
    RepoFacts, TrialMerge, TrunkFacts, TrunkMoveResult, TrunkPermit, Workspace, WorkspaceCollision,
};

use self::repos::merge_trees;
use crate::crash_points::EngineLife;

use workspaces::FakeWorkspace;

/// A tree: content by path.
pub type FakeTree = BTreeMap<String, String>;

/// A trunk move that took place.
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
    /// The other parent, if this is a merge commit.
    merged_parent: Option<CommitId>,
    message: String,
    files: FakeTree,
}

#[derive(Clone, Debug)]
struct Trunk {
    tip: CommitId,
    /// Uncommitted files in the user's checkout.
    dirty_files: Vec<String>,
}

#[derive(Default)]
struct FakeRepos {
    /// Untracked files in the users' checkouts.
    untracked_files: BTreeMap<PathBuf, FakeTree>,
    /// The number of finished workspaces in the pool.
    pool_size: u32,
    commits: BTreeMap<CommitId, Commit>,
    trunks: BTreeMap<PathBuf, Trunk>,
    workspaces: BTreeMap<AttemptId, FakeWorkspace>,
    /// The keep-refs of each attempt, newest last.
    keep_refs: BTreeMap<AttemptId, Vec<CommitId>>,
    /// The staged commit by project and slot.
    staged_commits: BTreeMap<(ProjectName, u32), CommitId>,
    /// The losing side of each conflict, by the ref that keeps it.
    dropped_sides: BTreeMap<String, CommitId>,
    /// The base commits of fix-up workspaces.
    fixup_bases: BTreeMap<AttemptId, CommitId>,
    /// Paths that count as special files whenever they change.
    special_files: Vec<SpecialFile>,
    /// The last pushed commit, by remote.
    remotes: BTreeMap<String, CommitId>,
    ever_staged: BTreeSet<CommitId>,
    passed_checks: BTreeSet<(CommitId, String)>,
    required_checks: BTreeSet<String>,
    trunk_moves: Vec<RecordedTrunkMove>,
    violations: Vec<String>,
}

/// Version control for tests. Clones and handles of other lives share the repositories.
#[derive(Clone, Default)]
pub struct FakeGit {
    repos: Arc<Mutex<FakeRepos>>,
    life: EngineLife,
}

impl FakeGit {
    /// Returns a world without repositories.
    pub fn new() -> FakeGit {
        FakeGit::default()
    }

    /// Returns a handle for one life of the engine. Its calls are named `git.<method>`.
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
        let mut world = self.lock();
        let tip = world.commit(None, files, "first", 0);
        world.trunks.insert(
            path.to_owned(),
            Trunk {
                tip: tip.clone(),
                dirty_files: vec![],
            },
        );
        tip
    }

    /// Requires that this command passes on a staged commit before that commit may land (Q1).
    pub fn require_check(&self, command: &str) {
        self.lock().required_checks.insert(command.to_owned());
    }

    /// Returns the files on the trunk.
    pub fn trunk(&self, path: &Path) -> FakeTree {
        let world = self.lock();
        world.files_of(&world.trunks[path].tip)
    }

    /// Returns the subjects of the trunk's commits, oldest first.
    pub fn commit_messages(&self, path: &Path) -> Vec<String> {
        let world = self.lock();
        let mut at = Some(world.trunks[path].tip.clone());
        let mut found = Vec::new();
        while let Some(commit) = at.and_then(|id| world.commits.get(&id)) {
            found.push(commit.message.lines().next().unwrap_or_default().to_owned());
            at = commit.parent.clone();
        }
        found.reverse();
        found
    }

    /// Commits to the trunk as a person would, without Regatta.
    pub fn commit_as_person(&self, path: &Path, file: &str, content: &str) -> CommitId {
        let mut world = self.lock();
        let old = world.trunks[path].tip.clone();
        let mut files = world.files_of(&old);
        files.insert(file.to_owned(), content.to_owned());
        let tip = world.commit(Some(old), files, "a person's", 0);
        world.trunks.get_mut(path).unwrap().tip = tip.clone();
        tip
    }

    /// Sets the uncommitted files in the user's checkout.
    pub fn set_dirty(&self, path: &Path, files: &[&str]) {
        self.lock().trunks.get_mut(path).unwrap().dirty_files =
            files.iter().map(|file| (*file).to_owned()).collect();
    }

    /// Adds an untracked file to the user's checkout.
    pub fn put_untracked(&self, path: &Path, file: &str, content: &str) {
        self.lock()
            .untracked_files
            .entry(path.to_owned())
            .or_default()
            .insert(file.to_owned(), content.to_owned());
    }

    /// Returns the files in a workspace that are not the attempt's work.
    pub fn foreign_files(&self, attempt: AttemptId) -> FakeTree {
        self.lock()
            .workspaces
            .get(&attempt)
            .map(|fake_workspace| fake_workspace.foreign_files.clone())
            .unwrap_or_default()
    }

    /// Returns every trunk move that took place, in order.
    pub fn trunk_moves(&self) -> Vec<RecordedTrunkMove> {
        self.lock().trunk_moves.clone()
    }

    /// Returns the attempts whose workspaces exist.
    pub fn workspaces(&self) -> Vec<AttemptId> {
        self.lock().workspaces.keys().copied().collect()
    }

    /// Returns the slots whose staging directories exist.
    pub fn staged_slots(&self) -> Vec<(ProjectName, u32)> {
        self.lock().staged_commits.keys().cloned().collect()
    }

    /// Returns the trunk's commit on a remote.
    pub fn remote_tip(&self, name: &str) -> Option<CommitId> {
        self.lock().remotes.get(name).cloned()
    }

    /// Sets the trunk's commit on a remote, as somebody else's push would. If the commit is unknown
    /// here, a push is refused.
    pub fn set_remote_tip(&self, name: &str, commit: &CommitId) {
        self.lock().remotes.insert(name.to_owned(), commit.clone());
    }

    /// Marks a path as a special file whenever it changes.
    pub fn set_special(&self, file: SpecialFile) {
        self.lock().special_files.push(file);
    }

    /// Returns the losing sides of conflicts, by the ref that keeps them.
    pub fn dropped_sides(&self) -> BTreeMap<String, FakeTree> {
        let world = self.lock();
        world
            .dropped_sides
            .iter()
            .map(|(name, commit)| (name.clone(), world.files_of(commit)))
            .collect()
    }

    /// Returns the captures of an attempt, oldest first. A newer capture never replaces an older
    /// one (Q3).
    pub fn captures_of(&self, attempt: AttemptId) -> Vec<FakeTree> {
        let world = self.lock();
        world
            .keep_refs
            .get(&attempt)
            .into_iter()
            .flatten()
            .map(|id| world.files_of(id))
            .collect()
    }

    /// Changes the files in a workspace, as a program in it would. Returns false if there is no
    /// workspace.
    pub fn edit_workspace(&self, attempt: AttemptId, change: impl FnOnce(&mut FakeTree)) -> bool {
        self.lock()
            .workspaces
            .get_mut(&attempt)
            .map(|fake_workspace| change(&mut fake_workspace.files))
            .is_some()
    }

    /// Returns the files in a directory that [`Git::prepare`] or [`Git::stage`] created.
    pub fn files_in(&self, dir: &Path) -> Option<FakeTree> {
        let world = self.lock();
        match parse_dir(dir)? {
            PreparedDir::Workspace(attempt) => world
                .workspaces
                .get(&attempt)
                .map(|fake_workspace| fake_workspace.files.clone()),
            PreparedDir::Staging(project, slot) => world
                .staged_commits
                .get(&(project, slot))
                .map(|id| world.files_of(id)),
        }
    }

    /// Records that a check passed in a directory, which validates the exact commit that is staged
    /// there.
    pub(crate) fn record_passed_check(&self, dir: &Path, command: &str) {
        let mut world = self.lock();
        if let Some(PreparedDir::Staging(project, slot)) = parse_dir(dir)
            && let Some(commit) = world.staged_commits.get(&(project, slot)).cloned()
        {
            world.passed_checks.insert((commit, command.to_owned()));
        }
    }

    /// Fails the test if a trunk ever moved to a tree that was not validated (Q1), without
    /// compare-and-swap (Q2), or with a fence no newer than the last one (L6), or if a workspace
    /// was removed while nothing kept its content (Q5).
    pub fn assert_no_violations(&self) {
        let world = self.lock();
        assert!(world.violations.is_empty(), "{:?}", world.violations);
    }

    fn lock(&self) -> MutexGuard<'_, FakeRepos> {
        self.repos.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call<T>(
        &self,
        call: &'static str,
        effect: impl FnOnce(&mut FakeRepos) -> Result<T, GitError>,
    ) -> Result<T, GitError> {
        self.life
            .call(call, || effect(&mut self.lock()))
            .unwrap_or_else(|what| Err(git_error("io", &what)))
    }
}

fn git_error(code: &'static str, what: &str) -> GitError {
    GitError {
        code,
        message: what.to_owned(),
        hint: "see the test".into(),
    }
}

enum PreparedDir {
    Workspace(AttemptId),
    Staging(ProjectName, u32),
}

fn parse_dir(dir: &Path) -> Option<PreparedDir> {
    let mut names = dir
        .iter()
        .rev()
        .map(|name| name.to_str().unwrap_or_default());
    let (name, above) = (names.next()?, names.next()?);
    if above == "workspaces" {
        return name.parse().ok().map(PreparedDir::Workspace);
    }
    (names.next()? == "staging").then_some(())?;
    Some(PreparedDir::Staging(
        ProjectName::new(above).ok()?,
        name.parse().ok()?,
    ))
}

impl Git for FakeGit {
    fn inspect(&self, path: &Path) -> Result<RepoFacts, GitError> {
        self.call("git.inspect", |world| {
            let trunk = world.trunks.get(path).ok_or_else(|| {
                git_error("not_a_repository", "there is no repository at this path")
            })?;
            let branch = BranchName::new("main").ok();
            Ok(RepoFacts {
                top: path.to_owned(),
                branch,
                is_unborn: false,
                is_bare: false,
                dirty_files: trunk.dirty_files.clone(),
                operation_in_progress: None,
                submodules: vec![],
                has_lfs: false,
            })
        })
    }

    fn tip(&self, repo: &ProjectRepo) -> Result<CommitId, GitError> {
        self.call("git.tip", |world| {
            world.trunk(repo).map(|trunk| trunk.tip.clone())
        })
    }

    fn paths_at_tip(&self, repo: &ProjectRepo) -> Result<Vec<String>, GitError> {
        self.call("git.paths_at_tip", |world| {
            let tip = world.trunk(repo)?.tip.clone();
            Ok(world.files_of(&tip).into_keys().collect())
        })
    }

    fn trunk_facts(&self, repo: &ProjectRepo) -> Result<TrunkFacts, GitError> {
        self.lock().trunk(repo).map(|trunk| TrunkFacts {
            tip: trunk.tip.clone(),
            upstream: None,
            commits_behind: 0,
        })
    }

    fn contains(
        &self,
        _: &ProjectRepo,
        tip: &CommitId,
        commit: &CommitId,
    ) -> Result<bool, GitError> {
        let world = self.lock();
        let mut at = Some(tip.clone());
        while let Some(here) = at {
            if here == *commit {
                return Ok(true);
            }
            at = world
                .commits
                .get(&here)
                .and_then(|commit| commit.parent.clone());
        }
        Ok(false)
    }

    fn commits_between(
        &self,
        _: &ProjectRepo,
        from: &CommitId,
        to: &CommitId,
    ) -> Result<Vec<CommitId>, GitError> {
        Ok(trunk_commits::commits_between(&self.lock(), from, to))
    }

    fn compare_trunk(
        &self,
        repo: &ProjectRepo,
        recorded: &[CommitId],
    ) -> Result<TrunkSeen, GitError> {
        trunk_commits::compare_trunk(&self.lock(), repo, recorded)
    }

    fn find_landing(
        &self,
        repo: &ProjectRepo,
        landing: LandingId,
    ) -> Result<Option<CommitId>, GitError> {
        trunk_commits::landed_as(&self.lock(), repo, landing)
    }

    fn workspace_path(&self, _: &ProjectRepo, attempt: AttemptId) -> PathBuf {
        PathBuf::from(format!("/nowhere/workspaces/{attempt}"))
    }

    fn prepare_workspace(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        branch: &BranchName,
    ) -> Result<Workspace, GitError> {
        self.call("git.prepare", |world| {
            let tip = world.trunk(repo)?.tip.clone();
            let files = world.files_of(&tip);
            let space = world
                .workspaces
                .entry(attempt)
                .or_insert_with(|| FakeWorkspace {
                    branch: branch.clone(),
                    base: tip,
                    files,
                    foreign_files: FakeTree::new(),
                    is_ready: false,
                });
            let path = PathBuf::from(format!("/nowhere/workspaces/{attempt}"));
            Ok(Workspace {
                path,
                branch: space.branch.clone(),
                base: space.base.clone(),
                objects: None,
            })
        })
    }

    fn prepare_fixup(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        branch: &BranchName,
        fixup: &Fixup,
        authorship: &Authorship,
    ) -> Result<Workspace, GitError> {
        self.call("git.prepare_fixup", |world| {
            workspaces::prepare(world, (repo, attempt), branch, fixup, authorship)
        })
    }

    fn squash_fixup(
        &self,
        _: &ProjectRepo,
        attempt: AttemptId,
        capture: Capture,
        authorship: &Authorship,
    ) -> Result<Capture, GitError> {
        self.call("git.as_change", |world| {
            workspaces::current_commit_of(world, attempt, capture, authorship)
        })
    }

    fn copy_untracked(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        manifest: &[PathPattern],
    ) -> Result<CopiedFiles, GitError> {
        self.call("git.bring", |world| {
            let tracked = world.files_of(&world.workspace(attempt)?.base);
            let all = world
                .untracked_files
                .get(&repo.path)
                .cloned()
                .unwrap_or_default();
            let wanted = |path: &String| {
                repo.workspace
                    .copy
                    .iter()
                    .any(|path_pattern| path_pattern.matches(path))
            };
            let found: FakeTree = all
                .into_iter()
                .filter(|pair| wanted(&pair.0) && !tracked.contains_key(&pair.0))
                .collect();
            let space = world
                .workspaces
                .get_mut(&attempt)
                .ok_or_else(|| git_error("no_workspace", "the attempt has no workspace"))?;
            let brought = CopiedFiles {
                files: found.len() as u64,
                bytes: found.values().map(|found| found.len() as u64).sum(),
                skipped: vec![],
            };
            for (path, content) in found {
                let named = manifest
                    .iter()
                    .any(|path_pattern| path_pattern.matches(&path));
                let to = if named {
                    &mut space.files
                } else {
                    &mut space.foreign_files
                };
                to.entry(path).or_insert(content);
            }
            Ok(brought)
        })
    }

    fn is_ready(&self, _: &ProjectRepo, attempt: AttemptId) -> bool {
        self.lock()
            .workspaces
            .get(&attempt)
            .is_some_and(|fake_workspace| fake_workspace.is_ready)
    }

    fn mark_ready(
        &self,
        _: &ProjectRepo,
        attempt: AttemptId,
        manifest: &[PathPattern],
    ) -> Result<(), GitError> {
        self.call("git.settle", |world| {
            let tracked = world.files_of(&world.workspace(attempt)?.base);
            let space = world
                .workspaces
                .get_mut(&attempt)
                .ok_or_else(|| git_error("no_workspace", "the attempt has no workspace"))?;
            let foreign = |path: &String| {
                !tracked.contains_key(path)
                    && !manifest
                        .iter()
                        .any(|path_pattern| path_pattern.matches(path))
            };
            let (made, files) = std::mem::take(&mut space.files)
                .into_iter()
                .partition(|pair| foreign(&pair.0));
            space.files = files;
            space.foreign_files.extend::<FakeTree>(made);
            space.is_ready = true;
            Ok(())
        })
    }

    fn capture(
        &self,
        _: &ProjectRepo,
        attempt: AttemptId,
        authorship: &Authorship,
    ) -> Result<Capture, GitError> {
        self.call("git.capture", |world| {
            let FakeWorkspace { base, files, .. } = world.workspace(attempt)?.clone();
            let before = world.files_of(&base);
            let paths: BTreeSet<&String> = before.keys().chain(files.keys()).collect();
            let changed = paths
                .into_iter()
                .filter(|path| before.get(*path) != files.get(*path))
                .cloned()
                .collect();
            let commit = world.commit(
                Some(base.clone()),
                files,
                &authorship.message,
                authorship.unix_seconds,
            );
            let kept = world.keep_refs.entry(attempt).or_default();
            if kept.last() != Some(&commit) {
                kept.push(commit.clone());
            }
            Ok(Capture {
                commit,
                base,
                changed,
            })
        })
    }

    fn restrict(
        &self,
        _: &ProjectRepo,
        attempt: AttemptId,
        (capture, paths): (&Capture, &[String]),
        authorship: &Authorship,
    ) -> Result<Capture, GitError> {
        self.call("git.restrict", |world| {
            let (mut files, whole) = (
                world.files_of(&capture.base),
                world.files_of(&capture.commit),
            );
            let changed: Vec<String> = capture
                .changed
                .iter()
                .filter(|changed| paths.contains(changed))
                .cloned()
                .collect();
            for path in &changed {
                match whole.get(path) {
                    Some(content) => drop(files.insert(path.clone(), content.clone())),
                    None => drop(files.remove(path)),
                }
            }
            let base = capture.base.clone();
            if changed.is_empty() {
                return Ok(Capture {
                    commit: base.clone(),
                    base,
                    changed,
                });
            }
            let commit = world.commit(
                Some(base.clone()),
                files,
                &authorship.message,
                authorship.unix_seconds,
            );
            let kept = world.keep_refs.entry(attempt).or_default();
            if kept.last() != Some(&commit) {
                kept.push(commit.clone());
            }
            Ok(Capture {
                commit,
                base,
                changed,
            })
        })
    }

    fn changed_files(
        &self,
        _: &ProjectRepo,
        capture: &Capture,
        lines: bool,
    ) -> Result<Vec<FileChange>, GitError> {
        self.call("git.changed_files", |world| {
            let (before, after) = (
                world.files_of(&capture.base),
                world.files_of(&capture.commit),
            );
            let change = |path: &String| {
                let old = before.get(path);
                let known: Vec<&str> = old.iter().flat_map(|old| old.lines()).collect();
                let added = after
                    .get(path)
                    .into_iter()
                    .flat_map(|after| after.lines())
                    .filter(|after| !known.contains(after));
                let added = if lines {
                    added.map(str::to_owned).collect()
                } else {
                    vec![]
                };
                FileChange {
                    path: path.clone(),
                    is_new: old.is_none(),
                    added_lines: added,
                }
            };
            Ok(capture.changed.iter().map(change).collect())
        })
    }

    fn special_files(
        &self,
        _: &ProjectRepo,
        base: &CommitId,
        commit: &CommitId,
    ) -> Result<Vec<SpecialFile>, GitError> {
        self.call("git.special_files", |world| {
            let (before, after) = (world.files_of(base), world.files_of(commit));
            let is_changed = |file: &&SpecialFile| before.get(&file.path) != after.get(&file.path);
            Ok(world
                .special_files
                .iter()
                .filter(is_changed)
                .cloned()
                .collect())
        })
    }

    fn is_ignored(&self, _: &ProjectRepo, _: &str) -> Result<bool, GitError> {
        Ok(false)
    }

    fn checkout_marks(&self, repo: &ProjectRepo) -> Result<Vec<(String, String)>, GitError> {
        Ok(self
            .lock()
            .trunk(repo)?
            .dirty_files
            .iter()
            .map(|dirty_file| (dirty_file.clone(), "dirty".into()))
            .collect())
    }

    fn trial_merge(
        &self,
        _: &ProjectRepo,
        tip: &CommitId,
        commit: &CommitId,
        authorship: &Authorship,
        style: CommitStyle,
    ) -> Result<TrialMerge, GitError> {
        self.call("git.trial_merge", |world| {
            let ours = world.files_of(tip);
            Ok(match world.merge_onto(tip, commit)? {
                Err(paths) => TrialMerge::Conflict(paths),
                Ok(merged) if merged == ours => TrialMerge::Empty,
                Ok(merged) => {
                    let new = world.commit(
                        Some(tip.clone()),
                        merged,
                        &authorship.message,
                        authorship.unix_seconds,
                    );
                    if style == CommitStyle::Merge {
                        world.commits.get_mut(&new).unwrap().merged_parent = Some(commit.clone());
                    }
                    TrialMerge::Clean(new)
                }
            })
        })
    }

    fn merge_with_ownership(
        &self,
        _: &ProjectRepo,
        tip: &CommitId,
        commit: &CommitId,
        sides: &BTreeMap<String, MergeSide>,
        authorship: &Authorship,
    ) -> Result<OwnershipMerge, GitError> {
        self.call("git.merge_with_ownership", |world| {
            let (ours, theirs) = (world.files_of(tip), world.find_commit(commit)?.files);
            let conflicts = world.merge_onto(tip, commit)?.err().unwrap_or_default();
            let open: Vec<String> = conflicts
                .iter()
                .filter(|conflict| !sides.contains_key(*conflict))
                .cloned()
                .collect();
            if !open.is_empty() {
                return Ok(OwnershipMerge {
                    trial: TrialMerge::Conflict(open),
                    dropped: None,
                });
            }
            // Without the conflicting paths the rest merges cleanly.
            let mut base = world.files_of(world.find_commit(commit)?.parent.as_ref().unwrap());
            let (mut mine, mut yours) = (ours.clone(), theirs.clone());
            for files in [&mut base, &mut mine, &mut yours] {
                files.retain(|path, _| !conflicts.contains(path));
            }
            let merged = merge_trees(&base, &mine, &yours).unwrap();
            let with = |taken: MergeSide| {
                let mut files = merged.clone();
                for path in &conflicts {
                    let from = if (sides[path] == MergeSide::Trunk) == (taken == MergeSide::Trunk) {
                        &ours
                    } else {
                        &theirs
                    };
                    files.extend(from.get(path).map(|from| (path.clone(), from.clone())));
                }
                files
            };
            let (taken, other) = (with(MergeSide::Trunk), with(MergeSide::Change));
            if taken == ours && conflicts.is_empty() {
                return Ok(OwnershipMerge {
                    trial: TrialMerge::Empty,
                    dropped: None,
                });
            }
            let new = world.commit(
                Some(tip.clone()),
                taken,
                &authorship.message,
                authorship.unix_seconds,
            );
            let mut dropped = None;
            if !conflicts.is_empty() {
                let kept =
                    world.commit(Some(new.clone()), other, "dropped", authorship.unix_seconds);
                let reference = format!("refs/regatta/dropped/{new}");
                world.dropped_sides.insert(reference.clone(), kept.clone());
                dropped = Some(DroppedVersions {
                    reference,
                    commit: kept,
                    paths: conflicts,
                });
            }
            Ok(OwnershipMerge {
                trial: TrialMerge::Clean(new),
                dropped,
            })
        })
    }

    fn squash_range(
        &self,
        _: &ProjectRepo,
        onto: &CommitId,
        commit: &CommitId,
        by: &Authorship,
    ) -> Result<CommitId, GitError> {
        self.call("git.fold", |world| {
            let files = world.find_commit(commit)?.files;
            Ok(world.commit(Some(onto.clone()), files, &by.message, by.unix_seconds))
        })
    }

    fn revert(
        &self,
        _: &ProjectRepo,
        tip: &CommitId,
        commit: &CommitId,
        authorship: &Authorship,
    ) -> Result<TrialMerge, GitError> {
        self.call("git.revert", |world| {
            let Commit { parent, files, .. } = world.find_commit(commit)?;
            let (ours, before) = (
                world.files_of(tip),
                parent.map(|id| world.files_of(&id)).unwrap_or_default(),
            );
            Ok(match merge_trees(&files, &ours, &before) {
                Err(paths) => TrialMerge::Conflict(paths),
                Ok(merged) if merged == ours => TrialMerge::Empty,
                Ok(merged) => TrialMerge::Clean(world.commit(
                    Some(tip.clone()),
                    merged,
                    &authorship.message,
                    authorship.unix_seconds,
                )),
            })
        })
    }

    fn file_at(
        &self,
        _: &ProjectRepo,
        commit: &CommitId,
        path: &str,
    ) -> Result<Option<Vec<u8>>, GitError> {
        self.call("git.file_at", |world| {
            Ok(world
                .find_commit(commit)?
                .files
                .get(path)
                .map(|file| file.clone().into_bytes()))
        })
    }

    /// Returns false: nobody edits files in this checkout.
    fn is_edited(&self, _: &ProjectRepo, _: &str, _: &[u8]) -> Result<bool, GitError> {
        self.call("git.is_edited", |_| Ok(false))
    }

    fn tree_of(&self, _: &ProjectRepo, commit: &CommitId) -> Result<CommitId, GitError> {
        self.call("git.tree", |world| {
            world.find_commit(commit)?;
            Ok(commit.clone())
        })
    }

    fn diff(
        &self,
        _: &ProjectRepo,
        base: &CommitId,
        commit: &CommitId,
    ) -> Result<String, GitError> {
        self.call("git.diff", |world| {
            let (before, after) = (
                world.find_commit(base)?.files,
                world.find_commit(commit)?.files,
            );
            let paths: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
            let mut patch = String::new();
            for path in paths
                .into_iter()
                .filter(|path| before.get(*path) != after.get(*path))
            {
                patch += &format!("diff --git a/{path} b/{path}\n");
                for (sign, files) in [('-', &before), ('+', &after)] {
                    files
                        .get(path)
                        .into_iter()
                        .flat_map(|file| file.lines())
                        .for_each(|file| patch += &format!("{sign}{file}\n"));
                }
            }
            Ok(patch)
        })
    }

    fn stage(&self, repo: &ProjectRepo, slot: u32, commit: &CommitId) -> Result<PathBuf, GitError> {
        self.call("git.stage", |world| {
            world.find_commit(commit)?;
            world
                .staged_commits
                .insert((repo.project.clone(), slot), commit.clone());
            world.ever_staged.insert(commit.clone());
            Ok(PathBuf::from(format!(
                "/nowhere/staging/{}/{slot}",
                repo.project
            )))
        })
    }

    fn unstage(&self, repo: &ProjectRepo, from: u32) -> Result<(), GitError> {
        self.call("git.unstage", |world| {
            world
                .staged_commits
                .retain(|(project, slot), _| *project != repo.project || *slot < from);
            Ok(())
        })
    }

    fn move_trunk(
        &self,
        permit: &TrunkPermit,
        repo: &ProjectRepo,
        old: &CommitId,
        new: &CommitId,
    ) -> Result<TrunkMoveResult, GitError> {
        self.call("git.move_trunk", |world| {
            if *permit.project() != repo.project {
                return Err(git_error(
                    "wrong_permit",
                    "the permit belongs to another project",
                ));
            }
            let Trunk {
                tip,
                dirty_files: dirty,
            } = world.trunk(repo)?.clone();
            if tip == *new {
                return Ok(TrunkMoveResult::Moved);
            }
            if tip != *old {
                return Ok(TrunkMoveResult::TrunkElsewhere(tip));
            }
            if !dirty.is_empty() {
                return Ok(TrunkMoveResult::CheckoutDirty(dirty));
            }
            world.check_trunk_move(permit, old, new);
            world.trunk_moves.push(RecordedTrunkMove {
                project: permit.project().clone(),
                landing: permit.landing(),
                fencing_token: permit.fence(),
                old: old.clone(),
                new: new.clone(),
            });
            world.trunks.insert(
                repo.path.clone(),
                Trunk {
                    tip: new.clone(),
                    dirty_files: dirty,
                },
            );
            Ok(TrunkMoveResult::Moved)
        })
    }

    fn push(
        &self,
        _: &ProjectRepo,
        remote: &str,
        commit: &CommitId,
    ) -> Result<PushResult, GitError> {
        self.call("git.push", |world| {
            match world.remotes.get(remote) {
                Some(there) if world.is_ancestor(commit, there) => return Ok(PushResult::Pushed),
                Some(there) if !world.is_ancestor(there, commit) => {
                    return Ok(PushResult::NonFastForward);
                }
                _ => {}
            }
            world.remotes.insert(remote.to_owned(), commit.clone());
            Ok(PushResult::Pushed)
        })
    }

    fn collisions(
        &self,
        _: &ProjectRepo,
        attempts: &[AttemptId],
        tip: &CommitId,
    ) -> Result<Vec<WorkspaceCollision>, GitError> {
        self.call("git.collisions", |world| {
            collisions::collisions_between(world, attempts, tip)
        })
    }

    fn uncaptured_paths(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
    ) -> Result<Vec<String>, GitError> {
        self.call("git.unkept", |world| world.uncaptured_paths(repo, attempt))
    }

    fn remove_workspace(
        &self,
        proof: &ReachabilityProof,
        repo: &ProjectRepo,
    ) -> Result<(), GitError> {
        self.call("git.remove_workspace", |world| {
            let lost = world.uncaptured_paths(repo, proof.attempt())?;
            if !lost.is_empty() {
                world.violations.push(format!(
                    "Q5: the workspace of {} was removed with {lost:?} in it",
                    proof.attempt()
                ));
            }
            if world.workspaces.remove(&proof.attempt()).is_some()
                && world.pool_size < repo.workspace.pool
            {
                world.pool_size += 1;
            }
            Ok(())
        })
    }

    fn kept_work(&self, _: &ProjectRepo, attempt: AttemptId) -> Result<Option<KeptWork>, GitError> {
        self.call("git.kept_work", |world| {
            let Some(kept) = world
                .keep_refs
                .get(&attempt)
                .filter(|kept| !kept.is_empty())
            else {
                return Ok(None);
            };
            let (whole, commit) = (kept[0].clone(), kept[kept.len() - 1].clone());
            Ok(Some(KeptWork {
                base: world.workspace(attempt)?.base.clone(),
                commit,
                whole,
            }))
        })
    }

    fn kept_attempts(&self, _: &ProjectRepo) -> Result<Vec<AttemptId>, GitError> {
        self.call("git.kept_attempts", |world| {
            Ok(world.keep_refs.keys().copied().collect())
        })
    }

    fn forget_dropped(&self, proof: &DroppedProof, _: &ProjectRepo) -> Result<(), GitError> {
        self.call("git.forget_dropped", |world| {
            world.keep_refs.remove(&proof.attempt());
            Ok(())
        })
    }

    fn collect_garbage(
        &self,
        _: &ProjectRepo,
        _: &[CommitId],
        _: Duration,
    ) -> Result<(), GitError> {
        self.call("git.collect_garbage", |_| Ok(()))
    }

    fn disk_use(&self, _: &ProjectRepo) -> Result<DiskUse, GitError> {
        self.call("git.disk_use", |world| {
            let size = |files: &FakeTree| files.values().map(|file| file.len() as u64).sum::<u64>();
            let live = world
                .workspaces
                .values()
                .map(|fake_workspace| {
                    size(&fake_workspace.files) + size(&fake_workspace.foreign_files)
                })
                .sum();
            Ok(DiskUse {
                live_bytes: live,
                pooled_bytes: u64::from(world.pool_size),
            })
        })
    }

    fn shrink_pool(&self, _: &ProjectRepo, most: u64) -> Result<(), GitError> {
        self.call("git.shrink_pool", |world| {
            world.pool_size = world.pool_size.min(u32::try_from(most).unwrap_or(u32::MAX));
            Ok(())
        })
    }
}
