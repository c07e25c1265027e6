//! Moves the trunk. Nothing else in Regatta does.
//!
//! First the objects are transferred, then the ref moves by one compare-and-swap (Q2), then the
//! checkouts of the trunk are updated. A checkout with changes in files that the move changes, or
//! with a file in the way, stops the move before the ref changes. Changes in other files stay as
//! they are. After a crash behind the ref's move the same call finishes it: the trunk is then at
//! the new commit, and a checkout whose index still has the old content of those files is updated.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use regatta_core::ids::CommitId;
use regatta_engine::failpoint;
use regatta_engine::ports::git::{GitError, Move, Repo, TrunkPermit};

use crate::carry::Cargo;
use crate::casing::refuse_same_names;
use crate::difference::{Difference, File};
use crate::inspect::{Change, UserRepo, in_progress};
use crate::places::Key;
use crate::run::{Call, Talk, join, path_of, text_of};
use crate::vault::kept_trunk;
use crate::{GitAdapter, disk, words};

/// The time to wait for an editor's or a prompt's `git status` to release the index.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// One move of the trunk between two commits.
struct Step<'a> {
    repo: &'a Repo,
    user: &'a UserRepo,
    old: &'a CommitId,
    new: &'a CommitId,
    /// True if the new commit need not be a descendant of the old one.
    replants: bool,
}

/// A working tree of the user in which the trunk is checked out.
struct Checkout {
    top: PathBuf,
    git_dir: PathBuf,
}

impl GitAdapter {
    /// Moves the trunk from `old` to `new`, or finishes such a move.
    pub(crate) fn land(
        &self,
        permit: &TrunkPermit,
        repo: &Repo,
        old: &CommitId,
        new: &CommitId,
    ) -> Result<Move, GitError> {
        if *permit.project() != repo.project {
            return Err(words::wrong_permit(permit.project().as_str(), repo.project.as_str()));
        }
        self.locks.holding(Key::Trunk(repo.project.clone()), || {
            let user = self.discover_at(&repo.path)?;
            let step = Step { repo, user: &user, old, new, replants: permit.replants() };
            let tip = self.trunk_tip(&user, repo)?;
            if tip == *new {
                self.finish(&step)?;
                return Ok(Move::Moved);
            }
            if tip != *old {
                return Ok(Move::Elsewhere(tip));
            }
            // The process starts while the objects are transferred.
            let mover = self.mover(&step, permit).converse()?;
            let cargo = self.load(&step)?;
            failpoint::at("move.objects");
            let checkouts = self.checkouts(&step)?;
            let mut blocked = BTreeSet::new();
            for checkout in &checkouts {
                blocked.append(&mut self.in_the_way(&step, checkout, &cargo.difference)?);
            }
            if !blocked.is_empty() {
                return Ok(Move::Dirty(blocked.iter().map(|it| text_of(it)).collect()));
            }
            failpoint::at("move.checked");
            if let Some(elsewhere) = self.swap(&step, mover, permit)? {
                return Ok(Move::Elsewhere(elsewhere));
            }
            failpoint::at("move.ref");
            for checkout in &checkouts {
                self.advance(&step, checkout)?;
            }
            failpoint::at("move.checkout");
            Ok(Move::Moved)
        })
    }

    /// Copies the objects of the new commit into the user's repository, where no ref reaches them
    /// yet.
    fn load(&self, step: &Step<'_>) -> Result<Cargo, GitError> {
        let vault = self.vault_with(step.repo, step.new)?;
        self.vault_with(step.repo, step.old)?;
        let cargo = match self.cargo(&vault, step.old, step.new)? {
            Some(cargo) => cargo,
            None if step.replants => {
                // The old trunk is kept before any ref drops it (Q3).
                self.update_refs(&vault, format!("update {} {}\n", kept_trunk(step.old), step.old))?;
                self.cargo_across(&vault, step.old, step.new)?
            }
            None => return Err(words::not_a_descendant(step.old, step.new)),
        };
        // Trials refuse such names one by one. This check covers all other ways.
        if step.user.mixes_names() {
            self.with_odb(&vault, |odb| refuse_same_names(odb, step.old, step.new))?;
        }
        self.carry(&vault, &step.user.common, &cargo, step.new)?;
        Ok(cargo)
    }

    /// Returns the call that moves the ref when it gets its input.
    fn mover(&self, step: &Step<'_>, permit: &TrunkPermit) -> Call {
        self.git
            .ours(&step.user.common, "move the trunk")
            .args(["update-ref", "--create-reflog", "-m"])
            .arg(format!("regatta: landing {}", permit.landing()))
            .arg("--stdin")
    }

    /// Moves the ref if it is still at the old commit, and otherwise returns where it is.
    fn swap(&self, step: &Step<'_>, mut waiting: Talk, permit: &TrunkPermit) -> Result<Option<CommitId>, GitError> {
        let Step { repo, user, old, new, replants } = step;
        let name = format!("refs/heads/{}", repo.trunk);
        let keep = if *replants { format!("update {} {old}\n", kept_trunk(old)) } else { String::new() };
        let order = format!("start\nupdate {name} {new} {old}\n{keep}prepare\ncommit\n");
        let told = waiting.say(order.as_bytes()).is_ok();
        let moved = told && ["start", "prepare", "commit"].iter().all(|it| waiting.line() == Ok(format!("{it}: ok")));
        drop(waiting);
        if !moved {
            // Another process may have moved the ref, perhaps to this very commit, which the
            // trunk's tip shows. If nobody did, the move is repeated with a process that reports
            // its error.
            match self.trunk_tip(user, repo)? {
                tip if tip == **new => return Ok(None),
                tip if tip != **old => return Ok(Some(tip)),
                _ => self.mover(step, permit).input(order.into()).done()?,
            };
        }
        // The directory is missing where refs are not stored as files.
        if let Some(folder) = user.common.join(&name).parent().filter(|it| it.is_dir()) {
            disk::sync_dir(folder)?;
        }
        Ok(None)
    }

    /// Returns every working tree of the user in which the trunk is checked out.
    fn checkouts(&self, step: &Step<'_>) -> Result<Vec<Checkout>, GitError> {
        let Step { repo, user, .. } = step;
        let name = format!("refs/heads/{}", repo.trunk);
        if !repo.update_checkout {
            return Ok(Vec::new()); // the user's settings say that working trees are not updated
        }
        refuse_during_rebase(step, &name)?;
        let mut found = Vec::new();
        if !user.bare && self.head_branch(user)?.as_ref() == Some(&name) {
            found.push(Checkout { top: user.top.clone(), git_dir: user.git_dir.clone() });
        }
        if !user.common.join("worktrees").is_dir() && !user.bare {
            return Ok(found);
        }
        let listed = self.git.ours(&user.common, "list your worktrees").args(["worktree", "list", "--porcelain", "-z"]);
        let mut top = PathBuf::new();
        for line in listed.list()? {
            if let Some(path) = line.strip_prefix(b"worktree ") {
                top = path_of(path).to_path_buf();
            }
            let here = line.strip_prefix(b"branch ").is_some_and(|it| it == name.as_bytes());
            // A worktree that was deleted by hand is still listed.
            if !here || !top.is_dir() || same_place(&top, &user.top) {
                continue;
            }
            match self.discover_at(&top) {
                Ok(other) if other.bare => {}
                Ok(other) => found.push(Checkout { top: other.top, git_dir: other.git_dir }),
                // Git lists the git directory itself when it lies apart from its working tree.
                Err(error) if error.code == "not_a_repository" => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// Returns the paths of a checkout that keep it from being updated from the old commit to the
    /// new one.
    fn in_the_way(
        &self,
        step: &Step<'_>,
        checkout: &Checkout,
        difference: &Difference,
    ) -> Result<BTreeSet<Vec<u8>>, GitError> {
        if let Some(what) = in_progress(&checkout.git_dir).filter(|it| *it != "a bisect") {
            return Err(words::in_the_middle(what, &checkout.top));
        }
        wait_for_index(checkout)?;
        // Staged changes show against HEAD, except those of submodules, which that comparison
        // leaves out.
        let changes = self.changes(&checkout.top)?;
        let is_clean = changes.is_empty();
        let at_old = self.trunk_tip(step.user, step.repo)? == *step.old;
        let changes = changes.into_iter().filter(|it| at_old || it.edited || it.unmerged);
        let mut blocked = BTreeSet::new();
        for Change { path, staged, unmerged, .. } in changes {
            // Git updates no checkout with an unmerged path, wherever that path is.
            let in_the_way = unmerged || touches(difference, &path);
            if in_the_way || (staged && at_old && self.is_left_behind(checkout, &path)?) {
                blocked.insert(path);
            }
        }
        if !at_old || disk::occupied(&checkout.top.join(".gitmodules")) {
            blocked.append(&mut self.staged(step.old, checkout, difference)?);
        }
        blocked.append(&mut collisions(difference, checkout));
        if blocked.is_empty() && !(is_clean && only_edits(difference)) {
            // A dry run of git decides.
            let mut said = self.read_tree(step, checkout, &["--dry-run"])?;
            if said.0 != Some(0) {
                // Git takes a touched file for a changed one until its index is refreshed.
                self.refresh_index(checkout)?;
                said = self.read_tree(step, checkout, &["--dry-run"])?;
            }
            if said.0 != Some(0) {
                blocked.extend(named_path(&said.1));
                if blocked.is_empty() {
                    return Err(words::git_failed("check your working tree", &said.1));
                }
            }
        }
        Ok(blocked)
    }

    /// Returns whether the index has a file as it was before the trunk's last change of it. An
    /// earlier move could not update the checkout then, and a person who commits this index would
    /// undo that change without knowing.
    fn is_left_behind(&self, checkout: &Checkout, path: &[u8]) -> Result<bool, GitError> {
        let call = self.git.users(&checkout.top, "find the last change of a file").arg("--literal-pathspecs");
        let last = call.args(["log", "-1", "--first-parent", "--format=%H", "HEAD", "--"]).arg(path_of(path)).run()?;
        let last = text_of(last.stdout.trim_ascii());
        if last.is_empty() {
            return Ok(false);
        }
        let call = self.git.users(&checkout.top, "compare the index with an earlier commit").arg("--literal-pathspecs");
        let call = call.args(["diff-index", "--cached", "--quiet"]).arg(format!("{last}^")).arg("--");
        // The call fails where that commit has no parent.
        Ok(call.arg(path_of(path)).run()?.status == Some(0))
    }

    /// Returns the tracked files that the move changes and whose staged content is not the
    /// commit's.
    fn staged(
        &self,
        commit: &CommitId,
        checkout: &Checkout,
        difference: &Difference,
    ) -> Result<BTreeSet<Vec<u8>>, GitError> {
        self.git
            .users(&checkout.top, "compare the index with a commit")
            .args(["diff-index", "--cached", "--name-only", "-z", "--no-renames", "--ignore-submodules=none"])
            .arg(commit.as_str())
            .list()
            .map(|paths| paths.into_iter().filter(|path| touches(difference, path)).collect())
    }

    /// Returns the tracked files that the move changes and whose content in the working tree
    /// differs from the index.
    fn edited(&self, checkout: &Checkout, difference: &Difference) -> Result<BTreeSet<Vec<u8>>, GitError> {
        let changes = self.changes(&checkout.top)?;
        let edited = changes.into_iter().filter(|it| it.edited && touches(difference, &it.path));
        Ok(edited.map(|it| it.path).collect())
    }

    /// Refreshes the index for files that were touched but not changed.
    fn refresh_index(&self, checkout: &Checkout) -> Result<(), GitError> {
        let call = self.git.users(&checkout.top, "refresh the index");
        // The call fails when a file differs; the comparison that follows finds which.
        call.args(["update-index", "-q", "--ignore-submodules", "--refresh"]).run().map(drop)
    }

    fn read_tree(
        &self,
        step: &Step<'_>,
        checkout: &Checkout,
        flags: &[&str],
    ) -> Result<(Option<i32>, String), GitError> {
        let call = self.git.users(&checkout.top, "update your working tree").args(["read-tree", "-m", "-u"]);
        let call = flags.iter().fold(call, |call, flag| call.arg(flag));
        let said = call.args([step.old.as_str(), step.new.as_str()]).run()?;
        Ok((said.status, said.stderr))
    }

    /// Updates a checkout from the old commit to the new one. Changes in other files stay.
    fn advance(&self, step: &Step<'_>, checkout: &Checkout) -> Result<(), GitError> {
        let since = Instant::now();
        let mut refreshed = false;
        loop {
            wait_for_index(checkout)?;
            let (status, stderr) = self.read_tree(step, checkout, &[])?;
            if status == Some(0) {
                return Ok(());
            }
            if !stderr.contains("index.lock") && !refreshed {
                // Git takes a touched file for a changed one until its index is refreshed.
                refreshed = true;
                self.refresh_index(checkout)?;
                continue;
            }
            if !stderr.contains("index.lock") {
                return Err(words::checkout_behind(&checkout.top, step.old, step.new, &stderr));
            }
            // Another process took the index between this module's check and git's.
            if since.elapsed() > LOCK_PATIENCE {
                return Err(words::locked(&checkout.git_dir.join("index.lock")));
            }
        }
    }

    /// Finishes the checkouts after the ref has moved, where no change of a person prevents it.
    fn finish(&self, step: &Step<'_>) -> Result<(), GitError> {
        let checkouts = self.checkouts(step)?;
        if checkouts.is_empty() {
            return Ok(());
        }
        let vault = self.vault_with(step.repo, step.new)?;
        self.vault_with(step.repo, step.old)?;
        let difference = self.with_odb(&vault, |odb| {
            let (old, new) = (odb.commit(step.old)?.tree, odb.commit(step.new)?.tree);
            Difference::between(odb, Some(&old), &new)
        })?;
        for checkout in checkouts {
            wait_for_index(&checkout)?;
            if in_progress(&checkout.git_dir).is_some() || !self.staged(step.old, &checkout, &difference)?.is_empty() {
                // The checkout was updated already, or a person is working in it.
                continue;
            }
            if self.in_the_way(step, &checkout, &difference)?.is_empty() || self.mend(step, &checkout, &difference)? {
                self.advance(step, &checkout)?;
            }
        }
        Ok(())
    }

    /// Completes the index after a crash during an update, when files are new and the index is old.
    ///
    /// Does so only if every differing file is exactly the new commit's, because any other content
    /// is a person's.
    fn mend(&self, step: &Step<'_>, checkout: &Checkout, difference: &Difference) -> Result<bool, GitError> {
        let mut differing = self.edited(checkout, difference)?;
        differing.append(&mut collisions(difference, checkout));
        let input = join(differing.iter().map(Vec::as_slice));
        let update = |index: &Path| {
            let call = self.git.users(&checkout.top, "complete the index").index(index);
            call.args(["update-index", "--add", "--remove", "--replace", "-z", "--stdin"]).input(input.clone()).done()
        };
        self.vault(step.repo)?;
        let real = checkout.git_dir.join("index");
        let trial = self.places.scratch(&step.repo.project);
        disk::copy_index(&real, trial.path()).map_err(|cause| words::io("copy", &real, &cause))?;
        update(trial.path())?;
        let wrong = self
            .git
            .users(&checkout.top, "compare the index with the new commit")
            .index(trial.path())
            .args(["diff-index", "--cached", "--name-only", "-z", "--no-renames", step.new.as_str()])
            .list()?;
        if wrong.iter().any(|it| differing.contains(it)) {
            return Ok(false);
        }
        update(&real)?;
        Ok(true)
    }
}

/// Returns whether a changed path conflicts with a path of the move: both are equal, or one is
/// below the other.
fn touches(difference: &Difference, path: &[u8]) -> bool {
    let folders = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| &path[..end]);
    let below = [path, b"/"].concat();
    difference.files.contains_key(path)
        || folders.into_iter().any(|folder| difference.files.contains_key(folder))
        || difference.files.range(below.clone()..).next().is_some_and(|(found, _)| found.starts_with(&below))
}

/// Returns whether only the content or the mode of files changes. In a checkout without changes
/// nothing can prevent that, so git's dry run is skipped.
fn only_edits(difference: &Difference) -> bool {
    const FILE: u32 = 0o100_000;
    let plain = |it: &Option<File>| it.as_ref().is_some_and(|it| it.0 & 0o170_000 == FILE);
    difference.files.values().all(|(old, new)| plain(old) && plain(new))
}

/// Returns the untracked files, including ignored ones, at paths where the new commit has a file.
///
/// Git itself would overwrite an ignored file here, but it may be a person's only copy.
fn collisions(difference: &Difference, checkout: &Checkout) -> BTreeSet<Vec<u8>> {
    const KIND: u32 = 0o170_000;
    let mut leaving = BTreeSet::new();
    let mut arriving = Vec::new();
    for (path, sides) in &difference.files {
        match sides {
            (Some(_), None) => drop(leaving.insert(path.clone())),
            (None, Some(_)) => arriving.push(path),
            (Some(old), Some(new)) if old.0 & KIND != new.0 & KIND => drop(leaving.insert(path.clone())),
            _ => {}
        }
    }
    arriving.into_iter().filter_map(|path| collision(&checkout.top, path, &leaving)).collect()
}

/// Refuses a move while the trunk is being rebased: the branch is then checked out nowhere, but is
/// about to be moved.
fn refuse_during_rebase(step: &Step<'_>, name: &str) -> Result<(), GitError> {
    let mut git_dirs = vec![step.user.common.clone()];
    if let Ok(entries) = fs::read_dir(step.user.common.join("worktrees")) {
        git_dirs.extend(entries.flatten().map(|it| it.path()));
    }
    let rebased = |dir: &PathBuf| {
        ["rebase-merge", "rebase-apply"]
            .iter()
            .any(|kind| fs::read_to_string(dir.join(kind).join("head-name")).is_ok_and(|it| it.trim() == name))
    };
    if git_dirs.iter().any(rebased) { Err(words::being_rebased(&step.repo.trunk)) } else { Ok(()) }
}

/// Waits a moment while another git program holds the checkout's index.
fn wait_for_index(checkout: &Checkout) -> Result<(), GitError> {
    let lock = checkout.git_dir.join("index.lock");
    let since = Instant::now();
    while disk::occupied(&lock) {
        if since.elapsed() > LOCK_PATIENCE {
            return Err(words::locked(&lock));
        }
        thread::sleep(LOCK_PAUSE);
    }
    Ok(())
}

/// Returns the path that exists where the new file `path` must go, unless it is a tracked file that
/// the move removes.
fn collision(top: &Path, path: &[u8], leaving: &BTreeSet<Vec<u8>>) -> Option<Vec<u8>> {
    let ends = path.iter().enumerate().filter(|(_, it)| **it == b'/').map(|(at, _)| at).chain([path.len()]);
    for end in ends {
        let part = &path[..end];
        let found = fs::symlink_metadata(top.join(path_of(part))).ok()?;
        if !found.is_dir() {
            return (!leaving.contains(part)).then(|| part.to_vec());
        }
    }
    // A directory exists where the file must go, so the move must remove every file in it.
    stranger(top, path, leaving)
}

/// Returns the first file below `dir` that the move does not remove.
fn stranger(top: &Path, dir: &[u8], leaving: &BTreeSet<Vec<u8>>) -> Option<Vec<u8>> {
    use std::os::unix::ffi::OsStrExt;
    let mut left = vec![dir.to_vec()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(top.join(path_of(&dir))).ok()?.flatten() {
            let path = [dir.as_slice(), b"/", entry.file_name().as_bytes()].concat();
            if entry.file_type().is_ok_and(|it| it.is_dir()) {
                left.push(path);
            } else if !leaving.contains(&path) {
                return Some(path);
            }
        }
    }
    None
}

/// Returns the path that git names in its error message.
fn named_path(stderr: &str) -> Option<Vec<u8>> {
    let line = stderr.lines().find(|it| it.starts_with("error: "))?;
    let (first, last) = (line.find('\'')?, line.rfind('\'')?);
    (first < last).then(|| line.as_bytes()[first + 1..last].to_vec())
}

fn same_place(one: &Path, other: &Path) -> bool {
    matches!((fs::canonicalize(one), fs::canonicalize(other)), (Ok(one), Ok(other)) if one == other)
}

#[cfg(test)]
mod tests {
    use regatta_core::ids::{BranchName, ProjectName};

    use super::*;

    /// Tests a race that no outside test can reproduce, in which a file changes between the last
    /// check and the update.
    #[test]
    fn change_between_the_last_check_and_the_update_is_not_overwritten() {
        let home = tempfile::tempdir().unwrap();
        let adapter = GitAdapter::new(home.path().join("data"));
        let path = home.path().join("repo");
        fs::create_dir(&path).unwrap();
        let git = |args: &[&str]| {
            let call = adapter.git.ours_in(&path, "arrange the test");
            args.iter().fold(call, |call, arg| call.arg(arg)).line().unwrap()
        };
        git(&["init", "-q", "-b", "main"]);
        let commit = |text: &str| {
            fs::write(path.join("a"), text).unwrap();
            fs::write(path.join("b"), text).unwrap();
            git(&["add", "-A"]);
            git(&["commit", "-q", "-m", text]);
            CommitId::new(&git(&["rev-parse", "HEAD"])).unwrap()
        };
        let (old, new) = (commit("old"), commit("new"));
        git(&["read-tree", "-m", "-u", new.as_str(), old.as_str()]);

        let project = ProjectName::new("shop").unwrap();
        let repo = Repo {
            project,
            path: path.clone(),
            trunk: BranchName::new("main").unwrap(),
            update_checkout: true,
            workspace: Default::default(),
        };
        let user = adapter.discover_at(&path).unwrap();
        let step = Step { repo: &repo, user: &user, old: &old, new: &new, replants: false };
        let checkout = adapter.checkouts(&step).unwrap().remove(0);
        let vault = adapter.vault_with(&repo, &new).unwrap();
        let cargo = adapter.cargo(&vault, &old, &new).unwrap().unwrap();
        assert!(adapter.in_the_way(&step, &checkout, &cargo.difference).unwrap().is_empty());
        fs::write(path.join("b"), "a person's").unwrap();
        assert_eq!(adapter.advance(&step, &checkout).unwrap_err().code, "checkout_behind");
        assert_eq!(fs::read_to_string(path.join("b")).unwrap(), "a person's");
        assert_eq!(fs::read_to_string(path.join("a")).unwrap(), "old");
        // On the second call the trunk is already in place, and the person's file still has
        // priority.
        adapter.finish(&step).unwrap();
        assert_eq!(fs::read_to_string(path.join("b")).unwrap(), "a person's");
        // After the steps in the hint, the update succeeds.
        fs::write(path.join("b"), "old").unwrap();
        adapter.finish(&step).unwrap();
        assert_eq!(fs::read_to_string(path.join("b")).unwrap(), "new");
    }
}
