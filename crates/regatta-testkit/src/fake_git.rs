//! Version control in memory, with a check of every trunk move.
//!
//! A tree is a map from path to content, and merging is three-way by path. The repositories outlive
//! the engine: the handle of another [`Life`] uses the same ones. A move that breaks a rule of
//! landing (Q1, Q2, Q5) is performed and recorded, and [`FakeGit::assert_lawful`] then fails the
//! test.
//!
//! There are no files on disk. Directories are only names, so the engine cannot check `files_exist`
//! and `content_check` here. Commands work (see [`crate::fake_agents`]).

mod collisions; // conflicts between workspaces
mod mending; // workspaces of fix-ups
mod trunk_line; // the commits of a trunk and their trailers
mod world; // commits, trunks and merges in memory

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use regatta_core::ids::{AttemptId, BranchName, CommitId, LandingId, ProjectName};
use regatta_core::landing::guard::SpecialFile;
use regatta_core::landing::trunk_check::TrunkSeen;
use regatta_core::pattern::PathPattern;
use regatta_core::project::Style;
use regatta_core::task::Fixup;
use regatta_engine::ports::git::{
    Authorship, Brought, Capture, Change, Collision, DiskUse, Dropped, DroppedProof, Git, GitError, KeptWork, Move,
    Push, ReachabilityProof, Repo, RepoFacts, Settled, Side, Trial, TrunkFacts, TrunkPermit, Workspace,
};

use self::world::merge;
use crate::steps::Life;

use mending::Space;

/// A tree: content by path.
pub type Files = BTreeMap<String, String>;

/// A trunk move that took place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrunkMove {
    pub project: ProjectName,
    pub landing: LandingId,
    pub fence: u64,
    pub old: CommitId,
    pub new: CommitId,
}

#[derive(Clone, Debug)]
struct Commit {
    parent: Option<CommitId>,
    /// The other parent, if this is a merge commit.
    merged: Option<CommitId>,
    message: String,
    files: Files,
}

#[derive(Clone, Debug)]
struct Trunk {
    tip: CommitId,
    /// Uncommitted files in the user's checkout.
    dirty: Vec<String>,
}

#[derive(Default)]
struct World {
    /// Untracked files in the users' checkouts.
    untracked: BTreeMap<PathBuf, Files>,
    /// The number of finished workspaces in the pool.
    warm: u32,
    commits: BTreeMap<CommitId, Commit>,
    trunks: BTreeMap<PathBuf, Trunk>,
    spaces: BTreeMap<AttemptId, Space>,
    /// The keep-refs of each attempt, newest last.
    kept: BTreeMap<AttemptId, Vec<CommitId>>,
    /// The staged commit by project and slot.
    staged: BTreeMap<(ProjectName, u32), CommitId>,
    /// The losing side of each conflict, by the ref that keeps it.
    dropped: BTreeMap<String, CommitId>,
    /// The base commits of fix-up workspaces.
    fixups: BTreeMap<AttemptId, CommitId>,
    /// Paths that count as special files whenever they change.
    special: Vec<SpecialFile>,
    /// The last pushed commit, by remote.
    remotes: BTreeMap<String, CommitId>,
    ever_staged: BTreeSet<CommitId>,
    passed: BTreeSet<(CommitId, String)>,
    required: BTreeSet<String>,
    moves: Vec<TrunkMove>,
    unlawful: Vec<String>,
}

/// Version control for tests. Clones and handles of other lives share the repositories.
#[derive(Clone, Default)]
pub struct FakeGit {
    world: Arc<Mutex<World>>,
    life: Life,
}

impl FakeGit {
    /// Returns a world without repositories.
    pub fn new() -> FakeGit {
        FakeGit::default()
    }

    /// Returns a handle for one life of the engine. Its calls are named `git.<method>`.
    pub fn in_life(&self, life: &Life) -> FakeGit {
        FakeGit { world: self.world.clone(), life: life.clone() }
    }

    /// Creates a repository whose trunk has one commit.
    pub fn create(&self, path: &Path, files: &[(&str, &str)]) -> CommitId {
        let files = files.iter().map(|(path, content)| ((*path).to_owned(), (*content).to_owned())).collect();
        let mut world = self.lock();
        let tip = world.commit(None, files, "first", 0);
        world.trunks.insert(path.to_owned(), Trunk { tip: tip.clone(), dirty: vec![] });
        tip
    }

    /// Requires that this command passes on a staged commit before that commit may land (Q1).
    pub fn require(&self, command: &str) {
        self.lock().required.insert(command.to_owned());
    }

    /// Returns the files on the trunk.
    pub fn trunk(&self, path: &Path) -> Files {
        let world = self.lock();
        world.files(&world.trunks[path].tip)
    }

    /// Returns the subjects of the trunk's commits, oldest first.
    pub fn log(&self, path: &Path) -> Vec<String> {
        let world = self.lock();
        let mut at = Some(world.trunks[path].tip.clone());
        let mut found = Vec::new();
        while let Some(commit) = at.and_then(|it| world.commits.get(&it)) {
            found.push(commit.message.lines().next().unwrap_or_default().to_owned());
            at = commit.parent.clone();
        }
        found.reverse();
        found
    }

    /// Commits to the trunk as a person would, without Regatta.
    pub fn person_commits(&self, path: &Path, file: &str, content: &str) -> CommitId {
        let mut world = self.lock();
        let old = world.trunks[path].tip.clone();
        let mut files = world.files(&old);
        files.insert(file.to_owned(), content.to_owned());
        let tip = world.commit(Some(old), files, "a person's", 0);
        world.trunks.get_mut(path).unwrap().tip = tip.clone();
        tip
    }

    /// Sets the uncommitted files in the user's checkout.
    pub fn set_dirty(&self, path: &Path, files: &[&str]) {
        self.lock().trunks.get_mut(path).unwrap().dirty = files.iter().map(|it| (*it).to_owned()).collect();
    }

    /// Adds an untracked file to the user's checkout.
    pub fn put_untracked(&self, path: &Path, file: &str, content: &str) {
        self.lock().untracked.entry(path.to_owned()).or_default().insert(file.to_owned(), content.to_owned());
    }

    /// Returns the files in a workspace that are not the attempt's work.
    pub fn foreign(&self, attempt: AttemptId) -> Files {
        self.lock().spaces.get(&attempt).map(|it| it.foreign.clone()).unwrap_or_default()
    }

    /// Returns every trunk move that took place, in order.
    pub fn moves(&self) -> Vec<TrunkMove> {
        self.lock().moves.clone()
    }

    /// Returns the attempts whose workspaces exist.
    pub fn workspaces(&self) -> Vec<AttemptId> {
        self.lock().spaces.keys().copied().collect()
    }

    /// Returns the slots whose staging directories exist.
    pub fn staged(&self) -> Vec<(ProjectName, u32)> {
        self.lock().staged.keys().cloned().collect()
    }

    /// Returns the trunk's commit on a remote.
    pub fn remote(&self, name: &str) -> Option<CommitId> {
        self.lock().remotes.get(name).cloned()
    }

    /// Sets the trunk's commit on a remote, as somebody else's push would. If the commit is unknown
    /// here, a push is refused.
    pub fn set_remote(&self, name: &str, commit: &CommitId) {
        self.lock().remotes.insert(name.to_owned(), commit.clone());
    }

    /// Marks a path as a special file whenever it changes.
    pub fn set_special(&self, file: SpecialFile) {
        self.lock().special.push(file);
    }

    /// Returns the losing sides of conflicts, by the ref that keeps them.
    pub fn dropped(&self) -> BTreeMap<String, Files> {
        let world = self.lock();
        world.dropped.iter().map(|(name, commit)| (name.clone(), world.files(commit))).collect()
    }

    /// Returns the captures of an attempt, oldest first. A newer capture never replaces an older
    /// one (Q3).
    pub fn kept(&self, attempt: AttemptId) -> Vec<Files> {
        let world = self.lock();
        world.kept.get(&attempt).into_iter().flatten().map(|it| world.files(it)).collect()
    }

    /// Changes the files in a workspace, as a program in it would. Returns false if there is no
    /// workspace.
    pub fn edit(&self, attempt: AttemptId, change: impl FnOnce(&mut Files)) -> bool {
        self.lock().spaces.get_mut(&attempt).map(|it| change(&mut it.files)).is_some()
    }

    /// Returns the files in a directory that [`Git::prepare`] or [`Git::stage`] created.
    pub fn look_into(&self, dir: &Path) -> Option<Files> {
        let world = self.lock();
        match place(dir)? {
            Place::Space(attempt) => world.spaces.get(&attempt).map(|it| it.files.clone()),
            Place::Stage(project, slot) => world.staged.get(&(project, slot)).map(|it| world.files(it)),
        }
    }

    /// Records that a check passed in a directory, which validates the exact commit that is staged
    /// there.
    pub(crate) fn note_passed(&self, dir: &Path, command: &str) {
        let mut world = self.lock();
        if let Some(Place::Stage(project, slot)) = place(dir)
            && let Some(commit) = world.staged.get(&(project, slot)).cloned()
        {
            world.passed.insert((commit, command.to_owned()));
        }
    }

    /// Fails the test if a trunk ever moved to a tree that was not validated (Q1), without
    /// compare-and-swap (Q2), or with a fence no newer than the last one (L6), or if a workspace
    /// was removed while nothing kept its content (Q5).
    pub fn assert_lawful(&self) {
        let world = self.lock();
        assert!(world.unlawful.is_empty(), "{:?}", world.unlawful);
    }

    fn lock(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call<T>(
        &self,
        call: &'static str,
        effect: impl FnOnce(&mut World) -> Result<T, GitError>,
    ) -> Result<T, GitError> {
        self.life.call(call, || effect(&mut self.lock())).unwrap_or_else(|what| Err(error("io", &what)))
    }
}

fn error(code: &'static str, what: &str) -> GitError {
    GitError { code, what: what.to_owned(), hint: "see the test".into() }
}

enum Place {
    Space(AttemptId),
    Stage(ProjectName, u32),
}

fn place(dir: &Path) -> Option<Place> {
    let mut names = dir.iter().rev().map(|it| it.to_str().unwrap_or_default());
    let (name, above) = (names.next()?, names.next()?);
    if above == "workspaces" {
        return name.parse().ok().map(Place::Space);
    }
    (names.next()? == "staging").then_some(())?;
    Some(Place::Stage(ProjectName::new(above).ok()?, name.parse().ok()?))
}

impl Git for FakeGit {
    fn inspect(&self, path: &Path) -> Result<RepoFacts, GitError> {
        self.call("git.inspect", |world| {
            let trunk =
                world.trunks.get(path).ok_or_else(|| error("not_a_repository", "there is no repository at this path"))?;
            let branch = BranchName::new("main").ok();
            Ok(RepoFacts {
                top: path.to_owned(),
                branch,
                unborn: false,
                bare: false,
                dirty: trunk.dirty.clone(),
                in_progress: None,
                submodules: vec![],
                has_lfs: false,
            })
        })
    }

    fn tip(&self, repo: &Repo) -> Result<CommitId, GitError> {
        self.call("git.tip", |world| world.trunk(repo).map(|it| it.tip.clone()))
    }

    fn paths_at_tip(&self, repo: &Repo) -> Result<Vec<String>, GitError> {
        self.call("git.paths_at_tip", |world| {
            let tip = world.trunk(repo)?.tip.clone();
            Ok(world.files(&tip).into_keys().collect())
        })
    }

    fn trunk(&self, repo: &Repo) -> Result<TrunkFacts, GitError> {
        self.lock().trunk(repo).map(|it| TrunkFacts { tip: it.tip.clone(), upstream: None, behind: 0 })
    }

    fn contains(&self, _: &Repo, tip: &CommitId, commit: &CommitId) -> Result<bool, GitError> {
        let world = self.lock();
        let mut at = Some(tip.clone());
        while let Some(here) = at {
            if here == *commit {
                return Ok(true);
            }
            at = world.commits.get(&here).and_then(|it| it.parent.clone());
        }
        Ok(false)
    }

    fn commits_between(&self, _: &Repo, from: &CommitId, to: &CommitId) -> Result<Vec<CommitId>, GitError> {
        Ok(trunk_line::between(&self.lock(), from, to))
    }

    fn compare_trunk(&self, repo: &Repo, recorded: &[CommitId]) -> Result<TrunkSeen, GitError> {
        trunk_line::compare(&self.lock(), repo, recorded)
    }

    fn landed_as(&self, repo: &Repo, landing: LandingId) -> Result<Option<CommitId>, GitError> {
        trunk_line::landed_as(&self.lock(), repo, landing)
    }

    fn workspace_path(&self, _: &Repo, attempt: AttemptId) -> PathBuf {
        PathBuf::from(format!("/nowhere/workspaces/{attempt}"))
    }

    fn prepare(&self, repo: &Repo, attempt: AttemptId, branch: &BranchName) -> Result<Workspace, GitError> {
        self.call("git.prepare", |world| {
            let tip = world.trunk(repo)?.tip.clone();
            let files = world.files(&tip);
            let space = world.spaces.entry(attempt).or_insert_with(|| Space {
                branch: branch.clone(),
                base: tip,
                files,
                foreign: Files::new(),
                settled: false,
            });
            let path = PathBuf::from(format!("/nowhere/workspaces/{attempt}"));
            Ok(Workspace { path, branch: space.branch.clone(), base: space.base.clone(), objects: None })
        })
    }

    fn prepare_fixup(
        &self,
        repo: &Repo,
        attempt: AttemptId,
        branch: &BranchName,
        fixup: &Fixup,
        authorship: &Authorship,
    ) -> Result<Workspace, GitError> {
        self.call("git.prepare_fixup", |world| mending::prepare(world, (repo, attempt), branch, fixup, authorship))
    }

    fn as_change(
        &self,
        _: &Repo,
        attempt: AttemptId,
        capture: Capture,
        authorship: &Authorship,
    ) -> Result<Capture, GitError> {
        self.call("git.as_change", |world| mending::as_change(world, attempt, capture, authorship))
    }

    fn bring(&self, repo: &Repo, attempt: AttemptId, manifest: &[PathPattern]) -> Result<Brought, GitError> {
        self.call("git.bring", |world| {
            let tracked = world.files(&world.space(attempt)?.base);
            let all = world.untracked.get(&repo.path).cloned().unwrap_or_default();
            let wanted = |path: &String| repo.workspace.copy.iter().any(|it| it.matches(path));
            let found: Files = all.into_iter().filter(|it| wanted(&it.0) && !tracked.contains_key(&it.0)).collect();
            let space = world.spaces.get_mut(&attempt).ok_or_else(|| error("no_workspace", "the attempt has no workspace"))?;
            let brought = Brought {
                files: found.len() as u64,
                bytes: found.values().map(|it| it.len() as u64).sum(),
                left_out: vec![],
            };
            for (path, content) in found {
                let named = manifest.iter().any(|it| it.matches(&path));
                let to = if named { &mut space.files } else { &mut space.foreign };
                to.entry(path).or_insert(content);
            }
            Ok(brought)
        })
    }

    fn is_settled(&self, _: &Repo, attempt: AttemptId) -> bool {
        self.lock().spaces.get(&attempt).is_some_and(|it| it.settled)
    }

    fn settle(&self, _: &Repo, attempt: AttemptId, manifest: &[PathPattern]) -> Result<(), GitError> {
        self.call("git.settle", |world| {
            let tracked = world.files(&world.space(attempt)?.base);
            let space = world.spaces.get_mut(&attempt).ok_or_else(|| error("no_workspace", "the attempt has no workspace"))?;
            let foreign = |path: &String| !tracked.contains_key(path) && !manifest.iter().any(|it| it.matches(path));
            let (made, files) = std::mem::take(&mut space.files).into_iter().partition(|it| foreign(&it.0));
            space.files = files;
            space.foreign.extend::<Files>(made);
            space.settled = true;
            Ok(())
        })
    }

    fn capture(&self, _: &Repo, attempt: AttemptId, authorship: &Authorship) -> Result<Capture, GitError> {
        self.call("git.capture", |world| {
            let Space { base, files, .. } = world.space(attempt)?.clone();
            let before = world.files(&base);
            let paths: BTreeSet<&String> = before.keys().chain(files.keys()).collect();
            let changed = paths.into_iter().filter(|it| before.get(*it) != files.get(*it)).cloned().collect();
            let commit = world.commit(Some(base.clone()), files, &authorship.message, authorship.seconds);
            let kept = world.kept.entry(attempt).or_default();
            if kept.last() != Some(&commit) {
                kept.push(commit.clone());
            }
            Ok(Capture { commit, base, changed })
        })
    }

    fn restrict(
        &self,
        _: &Repo,
        attempt: AttemptId,
        (capture, paths): (&Capture, &[String]),
        authorship: &Authorship,
    ) -> Result<Capture, GitError> {
        self.call("git.restrict", |world| {
            let (mut files, whole) = (world.files(&capture.base), world.files(&capture.commit));
            let changed: Vec<String> = capture.changed.iter().filter(|it| paths.contains(it)).cloned().collect();
            for path in &changed {
                match whole.get(path) {
                    Some(content) => drop(files.insert(path.clone(), content.clone())),
                    None => drop(files.remove(path)),
                }
            }
            let base = capture.base.clone();
            if changed.is_empty() {
                return Ok(Capture { commit: base.clone(), base, changed });
            }
            let commit = world.commit(Some(base.clone()), files, &authorship.message, authorship.seconds);
            let kept = world.kept.entry(attempt).or_default();
            if kept.last() != Some(&commit) {
                kept.push(commit.clone());
            }
            Ok(Capture { commit, base, changed })
        })
    }

    fn changed_files(&self, _: &Repo, capture: &Capture, lines: bool) -> Result<Vec<Change>, GitError> {
        self.call("git.changed_files", |world| {
            let (before, after) = (world.files(&capture.base), world.files(&capture.commit));
            let change = |path: &String| {
                let old = before.get(path);
                let known: Vec<&str> = old.iter().flat_map(|it| it.lines()).collect();
                let added = after.get(path).into_iter().flat_map(|it| it.lines()).filter(|it| !known.contains(it));
                let added = if lines { added.map(str::to_owned).collect() } else { vec![] };
                Change { path: path.clone(), new: old.is_none(), added }
            };
            Ok(capture.changed.iter().map(change).collect())
        })
    }

    fn special_files(&self, _: &Repo, base: &CommitId, commit: &CommitId) -> Result<Vec<SpecialFile>, GitError> {
        self.call("git.special_files", |world| {
            let (before, after) = (world.files(base), world.files(commit));
            let is_changed = |file: &&SpecialFile| before.get(&file.path) != after.get(&file.path);
            Ok(world.special.iter().filter(is_changed).cloned().collect())
        })
    }

    fn ignores(&self, _: &Repo, _: &str) -> Result<bool, GitError> {
        Ok(false)
    }

    fn checkout_marks(&self, repo: &Repo) -> Result<Vec<(String, String)>, GitError> {
        Ok(self.lock().trunk(repo)?.dirty.iter().map(|it| (it.clone(), "dirty".into())).collect())
    }

    fn trial_merge(
        &self,
        _: &Repo,
        tip: &CommitId,
        commit: &CommitId,
        authorship: &Authorship,
        style: Style,
    ) -> Result<Trial, GitError> {
        self.call("git.trial_merge", |world| {
            let ours = world.files(tip);
            Ok(match world.merge_onto(tip, commit)? {
                Err(paths) => Trial::Conflict(paths),
                Ok(merged) if merged == ours => Trial::Empty,
                Ok(merged) => {
                    let new = world.commit(Some(tip.clone()), merged, &authorship.message, authorship.seconds);
                    if style == Style::Merge {
                        world.commits.get_mut(&new).unwrap().merged = Some(commit.clone());
                    }
                    Trial::Clean(new)
                }
            })
        })
    }

    fn merge_with_ownership(
        &self,
        _: &Repo,
        tip: &CommitId,
        commit: &CommitId,
        sides: &BTreeMap<String, Side>,
        authorship: &Authorship,
    ) -> Result<Settled, GitError> {
        self.call("git.merge_with_ownership", |world| {
            let (ours, theirs) = (world.files(tip), world.get(commit)?.files);
            let conflicts = world.merge_onto(tip, commit)?.err().unwrap_or_default();
            let open: Vec<String> = conflicts.iter().filter(|it| !sides.contains_key(*it)).cloned().collect();
            if !open.is_empty() {
                return Ok(Settled { trial: Trial::Conflict(open), dropped: None });
            }
            // Without the conflicting paths the rest merges cleanly.
            let mut base = world.files(world.get(commit)?.parent.as_ref().unwrap());
            let (mut mine, mut yours) = (ours.clone(), theirs.clone());
            for files in [&mut base, &mut mine, &mut yours] {
                files.retain(|path, _| !conflicts.contains(path));
            }
            let merged = merge(&base, &mine, &yours).unwrap();
            let with = |taken: Side| {
                let mut files = merged.clone();
                for path in &conflicts {
                    let from = if (sides[path] == Side::Trunk) == (taken == Side::Trunk) { &ours } else { &theirs };
                    files.extend(from.get(path).map(|it| (path.clone(), it.clone())));
                }
                files
            };
            let (taken, other) = (with(Side::Trunk), with(Side::Change));
            if taken == ours && conflicts.is_empty() {
                return Ok(Settled { trial: Trial::Empty, dropped: None });
            }
            let new = world.commit(Some(tip.clone()), taken, &authorship.message, authorship.seconds);
            let mut dropped = None;
            if !conflicts.is_empty() {
                let kept = world.commit(Some(new.clone()), other, "dropped", authorship.seconds);
                let reference = format!("refs/regatta/dropped/{new}");
                world.dropped.insert(reference.clone(), kept.clone());
                dropped = Some(Dropped { reference, commit: kept, paths: conflicts });
            }
            Ok(Settled { trial: Trial::Clean(new), dropped })
        })
    }

    fn fold(&self, _: &Repo, onto: &CommitId, commit: &CommitId, by: &Authorship) -> Result<CommitId, GitError> {
        self.call("git.fold", |world| {
            let files = world.get(commit)?.files;
            Ok(world.commit(Some(onto.clone()), files, &by.message, by.seconds))
        })
    }

    fn revert(&self, _: &Repo, tip: &CommitId, commit: &CommitId, authorship: &Authorship) -> Result<Trial, GitError> {
        self.call("git.revert", |world| {
            let Commit { parent, files, .. } = world.get(commit)?;
            let (ours, before) = (world.files(tip), parent.map(|it| world.files(&it)).unwrap_or_default());
            Ok(match merge(&files, &ours, &before) {
                Err(paths) => Trial::Conflict(paths),
                Ok(merged) if merged == ours => Trial::Empty,
                Ok(merged) => {
                    Trial::Clean(world.commit(Some(tip.clone()), merged, &authorship.message, authorship.seconds))
                }
            })
        })
    }

    fn file_at(&self, _: &Repo, commit: &CommitId, path: &str) -> Result<Option<Vec<u8>>, GitError> {
        self.call("git.file_at", |world| Ok(world.get(commit)?.files.get(path).map(|it| it.clone().into_bytes())))
    }

    /// Returns false: nobody edits files in this checkout.
    fn is_edited(&self, _: &Repo, _: &str, _: &[u8]) -> Result<bool, GitError> {
        self.call("git.is_edited", |_| Ok(false))
    }

    fn tree(&self, _: &Repo, commit: &CommitId) -> Result<CommitId, GitError> {
        self.call("git.tree", |world| {
            world.get(commit)?;
            Ok(commit.clone())
        })
    }

    fn diff(&self, _: &Repo, base: &CommitId, commit: &CommitId) -> Result<String, GitError> {
        self.call("git.diff", |world| {
            let (before, after) = (world.get(base)?.files, world.get(commit)?.files);
            let paths: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
            let mut patch = String::new();
            for path in paths.into_iter().filter(|it| before.get(*it) != after.get(*it)) {
                patch += &format!("diff --git a/{path} b/{path}\n");
                for (sign, files) in [('-', &before), ('+', &after)] {
                    files
                        .get(path)
                        .into_iter()
                        .flat_map(|it| it.lines())
                        .for_each(|it| patch += &format!("{sign}{it}\n"));
                }
            }
            Ok(patch)
        })
    }

    fn stage(&self, repo: &Repo, slot: u32, commit: &CommitId) -> Result<PathBuf, GitError> {
        self.call("git.stage", |world| {
            world.get(commit)?;
            world.staged.insert((repo.project.clone(), slot), commit.clone());
            world.ever_staged.insert(commit.clone());
            Ok(PathBuf::from(format!("/nowhere/staging/{}/{slot}", repo.project)))
        })
    }

    fn unstage(&self, repo: &Repo, from: u32) -> Result<(), GitError> {
        self.call("git.unstage", |world| {
            world.staged.retain(|(project, slot), _| *project != repo.project || *slot < from);
            Ok(())
        })
    }

    fn move_trunk(&self, permit: &TrunkPermit, repo: &Repo, old: &CommitId, new: &CommitId) -> Result<Move, GitError> {
        self.call("git.move_trunk", |world| {
            if *permit.project() != repo.project {
                return Err(error("wrong_permit", "the permit belongs to another project"));
            }
            let Trunk { tip, dirty } = world.trunk(repo)?.clone();
            if tip == *new {
                return Ok(Move::Moved);
            }
            if tip != *old {
                return Ok(Move::Elsewhere(tip));
            }
            if !dirty.is_empty() {
                return Ok(Move::Dirty(dirty));
            }
            world.judge_move(permit, old, new);
            world.moves.push(TrunkMove {
                project: permit.project().clone(),
                landing: permit.landing(),
                fence: permit.fence(),
                old: old.clone(),
                new: new.clone(),
            });
            world.trunks.insert(repo.path.clone(), Trunk { tip: new.clone(), dirty });
            Ok(Move::Moved)
        })
    }

    fn push(&self, _: &Repo, remote: &str, commit: &CommitId) -> Result<Push, GitError> {
        self.call("git.push", |world| {
            match world.remotes.get(remote) {
                Some(there) if world.follows(commit, there) => return Ok(Push::Pushed),
                Some(there) if !world.follows(there, commit) => return Ok(Push::NonFastForward),
                _ => {}
            }
            world.remotes.insert(remote.to_owned(), commit.clone());
            Ok(Push::Pushed)
        })
    }

    fn collisions(&self, _: &Repo, attempts: &[AttemptId], tip: &CommitId) -> Result<Vec<Collision>, GitError> {
        self.call("git.collisions", |world| collisions::between(world, attempts, tip))
    }

    fn unkept(&self, repo: &Repo, attempt: AttemptId) -> Result<Vec<String>, GitError> {
        self.call("git.unkept", |world| world.unkept(repo, attempt))
    }

    fn remove_workspace(&self, proof: &ReachabilityProof, repo: &Repo) -> Result<(), GitError> {
        self.call("git.remove_workspace", |world| {
            let lost = world.unkept(repo, proof.attempt())?;
            if !lost.is_empty() {
                world.unlawful.push(format!("Q5: the workspace of {} was removed with {lost:?} in it", proof.attempt()));
            }
            if world.spaces.remove(&proof.attempt()).is_some() && world.warm < repo.workspace.pool {
                world.warm += 1;
            }
            Ok(())
        })
    }

    fn kept_work(&self, _: &Repo, attempt: AttemptId) -> Result<Option<KeptWork>, GitError> {
        self.call("git.kept_work", |world| {
            let Some(kept) = world.kept.get(&attempt).filter(|kept| !kept.is_empty()) else { return Ok(None) };
            let (whole, commit) = (kept[0].clone(), kept[kept.len() - 1].clone());
            Ok(Some(KeptWork { base: world.space(attempt)?.base.clone(), commit, whole }))
        })
    }

    fn kept_attempts(&self, _: &Repo) -> Result<Vec<AttemptId>, GitError> {
        self.call("git.kept_attempts", |world| Ok(world.kept.keys().copied().collect()))
    }

    fn forget_dropped(&self, proof: &DroppedProof, _: &Repo) -> Result<(), GitError> {
        self.call("git.forget_dropped", |world| {
            world.kept.remove(&proof.attempt());
            Ok(())
        })
    }

    fn collect_garbage(&self, _: &Repo, _: &[CommitId], _: Duration) -> Result<(), GitError> {
        self.call("git.collect_garbage", |_| Ok(()))
    }

    fn disk_use(&self, _: &Repo) -> Result<DiskUse, GitError> {
        self.call("git.disk_use", |world| {
            let size = |files: &Files| files.values().map(|it| it.len() as u64).sum::<u64>();
            let live = world.spaces.values().map(|it| size(&it.files) + size(&it.foreign)).sum();
            Ok(DiskUse { live, pooled: u64::from(world.warm) })
        })
    }

    fn shrink_pool(&self, _: &Repo, most: u64) -> Result<(), GitError> {
        self.call("git.shrink_pool", |world| {
            world.warm = world.warm.min(u32::try_from(most).unwrap_or(u32::MAX));
            Ok(())
        })
    }
}
