//! Moves the trunk to a new commit. No other code in Regatta moves a trunk.
//!
//! A move has three steps. First the git objects are copied into the user's repository. Then the
//! trunk's branch is moved if it is still at the old commit. Finally the checkouts of the trunk are
//! updated.
//!
//! The move stops before the branch changes if a checkout has local changes in files that the move
//! changes, or an untracked file at a path where the move adds a file. Local changes in other files
//! stay as they are.
//!
//! If Regatta crashes after the branch has moved, a second call with the same commits finishes the
//! move. The second call finds the trunk at the new commit, and updates each checkout if its index
//! still has the old content of the changed files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, thread};

use regatta_core::ids::CommitId;
use regatta_engine::failpoint;
use regatta_engine::ports::git::{
    GitError, ProjectRepo, TrunkMoveGit, TrunkMoveResult, TrunkPermit,
};

use crate::case_collisions::refuse_case_collisions;
use crate::git_command::{GitCommand, GitProcess, join_nul, path_from_bytes, path_to_text};
use crate::layout::LockKey;
use crate::transfer_objects::ObjectTransfer;
use crate::tree_diff::{TreeDiff, TreeFile};
use crate::user_repo::{ModifiedFile, UserRepo, operation_in_progress};
use crate::vault::kept_trunk_ref;
use crate::{GitAdapter, disk, errors};

/// The maximum time to wait until another git program, such as the `git status` of an editor or a
/// shell prompt, unlocks the index.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The old and the new commit of a move of the trunk, and the repositories involved.
struct TrunkMove<'a> {
    repo: &'a ProjectRepo,
    user: &'a UserRepo,
    old: &'a CommitId,
    new: &'a CommitId,
    /// True if the new commit need not be a descendant of the old commit.
    allows_rebase: bool,
}

/// A working tree of the user in which the trunk is checked out.
struct Checkout {
    top: PathBuf,
    git_dir: PathBuf,
}

impl TrunkMoveGit for GitAdapter {
    fn move_trunk(
        &self,
        permit: &TrunkPermit,
        repo: &ProjectRepo,
        old: &CommitId,
        new: &CommitId,
    ) -> Result<TrunkMoveResult, GitError> {
        if *permit.project() != repo.project {
            return Err(errors::wrong_permit(
                permit.project().as_str(),
                repo.project.as_str(),
            ));
        }
        self.locks
            .with_lock(LockKey::Trunk(repo.project.clone()), || {
                let user = self.discover_at(&repo.path)?;
                let trunk_move = TrunkMove {
                    repo,
                    user: &user,
                    old,
                    new,
                    allows_rebase: permit.allows_rebase(),
                };
                let tip = self.trunk_tip(&user, repo)?;
                if tip == *new {
                    self.finish_checkouts(&trunk_move)?;
                    return Ok(TrunkMoveResult::Moved);
                }
                if tip != *old {
                    return Ok(TrunkMoveResult::TrunkElsewhere(tip));
                }
                // Start the git process that will move the branch before the objects are copied, so
                // that the process is ready afterwards.
                let mover = self
                    .ref_update_command(&trunk_move, permit)
                    .start_process()?;
                let transfer = self.transfer_new_objects(&trunk_move)?;
                failpoint::hit("move.objects");
                let checkouts = self.checkouts(&trunk_move)?;
                let mut blocking = BTreeSet::new();
                for checkout in &checkouts {
                    blocking.append(&mut self.blocking_paths(
                        &trunk_move,
                        checkout,
                        &transfer.diff,
                    )?);
                }
                if !blocking.is_empty() {
                    return Ok(TrunkMoveResult::CheckoutDirty(
                        blocking.iter().map(|path| path_to_text(path)).collect(),
                    ));
                }
                failpoint::hit("move.checked");
                if let Some(elsewhere) = self.swap_ref(&trunk_move, mover, permit)? {
                    return Ok(TrunkMoveResult::TrunkElsewhere(elsewhere));
                }
                failpoint::hit("move.ref");
                for checkout in &checkouts {
                    self.update_checkout(&trunk_move, checkout)?;
                }
                failpoint::hit("move.checkout");
                Ok(TrunkMoveResult::Moved)
            })
    }
}

impl GitAdapter {
    /// Copies the objects of the new commit into the user's repository. No ref of the user's
    /// repository reaches these objects yet.
    fn transfer_new_objects(&self, trunk_move: &TrunkMove<'_>) -> Result<ObjectTransfer, GitError> {
        let vault = self.vault_with(trunk_move.repo, trunk_move.new)?;
        self.vault_with(trunk_move.repo, trunk_move.old)?;
        let transfer = match self.object_transfer(&vault, trunk_move.old, trunk_move.new)? {
            Some(transfer) => transfer,
            None if trunk_move.allows_rebase => {
                // The new trunk does not contain the old commit, so a ref must protect the old
                // commit before the branch moves (invariant Q3: stored work stays reachable).
                self.update_refs(
                    &vault,
                    format!(
                        "update {} {}\n",
                        kept_trunk_ref(trunk_move.old),
                        trunk_move.old
                    ),
                )?;
                self.object_transfer_across(&vault, trunk_move.old, trunk_move.new)?
            }
            None => return Err(errors::not_a_descendant(trunk_move.old, trunk_move.new)),
        };
        // A trial merge already refuses file names that differ only in case. This check also covers
        // commits that reach the trunk without a trial merge.
        if trunk_move.user.confuses_case() {
            self.with_object_store(&vault, |odb| {
                refuse_case_collisions(odb, trunk_move.old, trunk_move.new)
            })?;
        }
        self.transfer_objects(
            &vault,
            &trunk_move.user.common_dir,
            &transfer,
            trunk_move.new,
        )?;
        Ok(transfer)
    }

    /// Returns the git command that will move the branch as soon as the command gets its input.
    fn ref_update_command(&self, trunk_move: &TrunkMove<'_>, permit: &TrunkPermit) -> GitCommand {
        self.git
            .in_vault(&trunk_move.user.common_dir, "move the trunk")
            .args(["update-ref", "--create-reflog", "-m"])
            .arg(format!("regatta: landing {}", permit.landing()))
            .arg("--stdin")
    }

    /// Moves the branch if it is still at the old commit. Otherwise returns the commit to which the
    /// branch points.
    fn swap_ref(
        &self,
        trunk_move: &TrunkMove<'_>,
        mut process: GitProcess,
        permit: &TrunkPermit,
    ) -> Result<Option<CommitId>, GitError> {
        let TrunkMove {
            repo,
            user,
            old,
            new,
            allows_rebase,
        } = trunk_move;
        let name = format!("refs/heads/{}", repo.trunk);
        let keep = if *allows_rebase {
            format!("update {} {old}\n", kept_trunk_ref(old))
        } else {
            String::new()
        };
        let commands = format!("start\nupdate {name} {new} {old}\n{keep}prepare\ncommit\n");
        let is_sent = process.send(commands.as_bytes()).is_ok();
        let is_moved = is_sent
            && ["start", "prepare", "commit"]
                .iter()
                .all(|command| process.read_line() == Ok(format!("{command}: ok")));
        drop(process);
        if !is_moved {
            // The long-running git process did not confirm the move. Another process may have moved
            // the branch, perhaps even to the new commit, so read the branch. If the branch did not
            // move, try again with a git process that reports its error.
            match self.trunk_tip(user, repo)? {
                tip if tip == **new => return Ok(None),
                tip if tip != **old => return Ok(Some(tip)),
                _ => self
                    .ref_update_command(trunk_move, permit)
                    .input(commands.into())
                    .run_expecting_success()?,
            };
        }
        // Wait until the new position of the branch is on the disk. Only a repository that stores
        // refs as files has a directory of branches.
        if let Some(dir) = user
            .common_dir
            .join(&name)
            .parent()
            .filter(|path| path.is_dir())
        {
            disk::sync_dir(dir)?;
        }
        Ok(None)
    }

    /// Returns all of the user's working trees in which the trunk is checked out.
    fn checkouts(&self, trunk_move: &TrunkMove<'_>) -> Result<Vec<Checkout>, GitError> {
        let TrunkMove { repo, user, .. } = trunk_move;
        let name = format!("refs/heads/{}", repo.trunk);
        if !repo.should_update_checkout {
            return Ok(Vec::new()); // the user's settings say that working trees are not updated
        }
        refuse_during_rebase(trunk_move, &name)?;
        let mut checkouts = Vec::new();
        if !user.is_bare && self.head_branch(user)?.as_ref() == Some(&name) {
            checkouts.push(Checkout {
                top: user.top.clone(),
                git_dir: user.git_dir.clone(),
            });
        }
        if !user.common_dir.join("worktrees").is_dir() && !user.is_bare {
            return Ok(checkouts);
        }
        let listed = self
            .git
            .in_vault(&user.common_dir, "list your worktrees")
            .args(["worktree", "list", "--porcelain", "-z"]);
        let mut top = PathBuf::new();
        for line in listed.run_for_list()? {
            if let Some(path) = line.strip_prefix(b"worktree ") {
                top = path_from_bytes(path).to_path_buf();
            }
            let is_trunk_checkout = line
                .strip_prefix(b"branch ")
                .is_some_and(|branch| branch == name.as_bytes());
            // Git also lists working trees that the user deleted by hand. Such a working tree is
            // skipped.
            if !is_trunk_checkout || !top.is_dir() || is_same_path(&top, &user.top) {
                continue;
            }
            match self.discover_at(&top) {
                Ok(other) if other.is_bare => {}
                Ok(other) => checkouts.push(Checkout {
                    top: other.top,
                    git_dir: other.git_dir,
                }),
                // If a git directory is stored apart from its working tree, git lists the git
                // directory as a working tree. This entry is skipped.
                Err(error) if error.code == "not_a_repository" => {}
                Err(error) => return Err(error),
            }
        }
        Ok(checkouts)
    }

    /// Returns the paths in a checkout whose local changes prevent an update from the old commit to
    /// the new one.
    fn blocking_paths(
        &self,
        trunk_move: &TrunkMove<'_>,
        checkout: &Checkout,
        difference: &TreeDiff,
    ) -> Result<BTreeSet<Vec<u8>>, GitError> {
        if let Some(operation) =
            operation_in_progress(&checkout.git_dir).filter(|name| *name != "a bisect")
        {
            return Err(errors::operation_in_progress(operation, &checkout.top));
        }
        wait_for_index_lock(checkout)?;
        // This comparison with HEAD finds staged changes only while the trunk is at the old commit,
        // and never in submodules. The code below searches for the remaining changes.
        let changes = self.modified_files(&checkout.top)?;
        let is_clean = changes.is_empty();
        let is_at_old = self.trunk_tip(trunk_move.user, trunk_move.repo)? == *trunk_move.old;
        let changes = changes
            .into_iter()
            .filter(|file| is_at_old || file.is_edited || file.is_unmerged);
        let mut blocking = BTreeSet::new();
        for ModifiedFile {
            path,
            is_staged,
            is_unmerged,
            ..
        } in changes
        {
            // Git does not update a checkout that has any unmerged path, even if the update does
            // not touch that path.
            let is_in_the_way = is_unmerged || overlaps_diff(difference, &path);
            if is_in_the_way
                || (is_staged && is_at_old && self.is_stale_in_index(checkout, &path)?)
            {
                blocking.insert(path);
            }
        }
        if !is_at_old || disk::is_occupied(&checkout.top.join(".gitmodules")) {
            blocking.append(&mut self.staged_paths(trunk_move.old, checkout, difference)?);
        }
        blocking.append(&mut untracked_collisions(difference, checkout));
        if blocking.is_empty() && !(is_clean && changes_content_only(difference)) {
            // Let a dry run of git decide whether the checkout can be updated.
            let (mut status, mut stderr) = self.read_tree(trunk_move, checkout, &["--dry-run"])?;
            if status != Some(0) {
                // A file whose times changed looks modified to git until the index is refreshed, so
                // refresh it and try again.
                self.refresh_index(checkout)?;
                (status, stderr) = self.read_tree(trunk_move, checkout, &["--dry-run"])?;
            }
            if status != Some(0) {
                blocking.extend(path_in_error(&stderr));
                if blocking.is_empty() {
                    return Err(errors::git_failed(
                        "check whether your working tree can be updated",
                        &stderr,
                    ));
                }
            }
        }
        Ok(blocking)
    }

    /// Returns whether a checkout's index still has a file as it was before the trunk's last change
    /// of this file. In this case an earlier move of the trunk could not update the checkout, and a
    /// person who commits this index would undo the change without noticing.
    fn is_stale_in_index(&self, checkout: &Checkout, path: &[u8]) -> Result<bool, GitError> {
        let call = self
            .git
            .in_checkout(&checkout.top, "find the last change of a file")
            .arg("--literal-pathspecs");
        let last_change = call
            .args(["log", "-1", "--first-parent", "--format=%H", "HEAD", "--"])
            .arg(path_from_bytes(path))
            .run()?;
        let last_change = path_to_text(last_change.stdout.trim_ascii());
        if last_change.is_empty() {
            return Ok(false);
        }
        let call = self
            .git
            .in_checkout(&checkout.top, "compare the index with an earlier commit")
            .arg("--literal-pathspecs");
        let call = call
            .args(["diff-index", "--cached", "--quiet"])
            .arg(format!("{last_change}^"))
            .arg("--");
        // If the commit of the last change has no parent, git fails, and the file does not count as
        // stale.
        Ok(call.arg(path_from_bytes(path)).run()?.status == Some(0))
    }

    /// Returns the tracked files that the move of the trunk changes and whose staged content
    /// differs from `commit`.
    fn staged_paths(
        &self,
        commit: &CommitId,
        checkout: &Checkout,
        difference: &TreeDiff,
    ) -> Result<BTreeSet<Vec<u8>>, GitError> {
        self.git
            .in_checkout(&checkout.top, "compare the index with a commit")
            .args([
                "diff-index",
                "--cached",
                "--name-only",
                "-z",
                "--no-renames",
                "--ignore-submodules=none",
            ])
            .arg(commit.as_str())
            .run_for_list()
            .map(|paths| {
                paths
                    .into_iter()
                    .filter(|path| overlaps_diff(difference, path))
                    .collect()
            })
    }

    /// Returns the tracked files that the move of the trunk changes and whose content in the
    /// working tree differs from the index.
    fn edited_paths(
        &self,
        checkout: &Checkout,
        difference: &TreeDiff,
    ) -> Result<BTreeSet<Vec<u8>>, GitError> {
        let changes = self.modified_files(&checkout.top)?;
        let edited = changes
            .into_iter()
            .filter(|file| file.is_edited && overlaps_diff(difference, &file.path));
        Ok(edited.map(|file| file.path).collect())
    }

    /// Refreshes the index. Git then no longer treats a file as modified if only its times changed,
    /// and not its content.
    fn refresh_index(&self, checkout: &Checkout) -> Result<(), GitError> {
        let call = self.git.in_checkout(&checkout.top, "refresh the index");
        // The exit status is ignored, because the command also fails when a file differs. A later
        // comparison finds such files.
        call.args(["update-index", "-q", "--ignore-submodules", "--refresh"])
            .run()
            .map(drop)
    }

    fn read_tree(
        &self,
        trunk_move: &TrunkMove<'_>,
        checkout: &Checkout,
        flags: &[&str],
    ) -> Result<(Option<i32>, String), GitError> {
        let call = self
            .git
            .in_checkout(&checkout.top, "update your working tree")
            .args(["read-tree", "-m", "-u"]);
        let call = flags.iter().fold(call, |call, flag| call.arg(flag));
        let output = call
            .args([trunk_move.old.as_str(), trunk_move.new.as_str()])
            .run()?;
        Ok((output.status, output.stderr))
    }

    /// Updates the files of a checkout from the old commit to the new one. Local changes in other
    /// files stay.
    fn update_checkout(
        &self,
        trunk_move: &TrunkMove<'_>,
        checkout: &Checkout,
    ) -> Result<(), GitError> {
        let began = Instant::now();
        let mut is_refreshed = false;
        loop {
            wait_for_index_lock(checkout)?;
            let (status, stderr) = self.read_tree(trunk_move, checkout, &[])?;
            if status == Some(0) {
                return Ok(());
            }
            if !stderr.contains("index.lock") && !is_refreshed {
                // A file whose times changed looks modified to git until the index is refreshed, so
                // refresh it and try again.
                is_refreshed = true;
                self.refresh_index(checkout)?;
                continue;
            }
            if !stderr.contains("index.lock") {
                return Err(errors::checkout_behind(
                    &checkout.top,
                    trunk_move.old,
                    trunk_move.new,
                    &stderr,
                ));
            }
            // Another process locked the index since the check above, so try again until the time
            // limit is reached.
            if began.elapsed() > LOCK_TIMEOUT {
                return Err(errors::index_locked(&checkout.git_dir.join("index.lock")));
            }
        }
    }

    /// Updates the checkouts after the branch has moved. Skips a checkout if local changes prevent
    /// the update.
    fn finish_checkouts(&self, trunk_move: &TrunkMove<'_>) -> Result<(), GitError> {
        let checkouts = self.checkouts(trunk_move)?;
        if checkouts.is_empty() {
            return Ok(());
        }
        let vault = self.vault_with(trunk_move.repo, trunk_move.new)?;
        self.vault_with(trunk_move.repo, trunk_move.old)?;
        let difference = self.with_object_store(&vault, |odb| {
            let (old, new) = (
                odb.commit(trunk_move.old)?.tree,
                odb.commit(trunk_move.new)?.tree,
            );
            TreeDiff::between(odb, Some(&old), &new)
        })?;
        for checkout in checkouts {
            wait_for_index_lock(&checkout)?;
            if operation_in_progress(&checkout.git_dir).is_some()
                || !self
                    .staged_paths(trunk_move.old, &checkout, &difference)?
                    .is_empty()
            {
                // The checkout is already updated, or a person is working in it, so skip this
                // checkout.
                continue;
            }
            if self
                .blocking_paths(trunk_move, &checkout, &difference)?
                .is_empty()
                || self.repair_index(trunk_move, &checkout, &difference)?
            {
                self.update_checkout(trunk_move, &checkout)?;
            }
        }
        Ok(())
    }

    /// Completes the index of a checkout in which a crash interrupted an update, so that the files
    /// are new and the index is still old. Returns whether the index was completed.
    ///
    /// Changes nothing unless every file that differs from the index has exactly the content of the
    /// new commit, because any other content is the work of a person.
    fn repair_index(
        &self,
        trunk_move: &TrunkMove<'_>,
        checkout: &Checkout,
        difference: &TreeDiff,
    ) -> Result<bool, GitError> {
        let mut differing = self.edited_paths(checkout, difference)?;
        differing.append(&mut untracked_collisions(difference, checkout));
        let input = join_nul(differing.iter().map(Vec::as_slice));
        let update = |index: &Path| {
            let call = self
                .git
                .in_checkout(&checkout.top, "complete the index")
                .index(index);
            call.args([
                "update-index",
                "--add",
                "--remove",
                "--replace",
                "-z",
                "--stdin",
            ])
            .input(input.clone())
            .run_expecting_success()
        };
        self.vault(trunk_move.repo)?;
        let real_index = checkout.git_dir.join("index");
        let trial_index = self.layout.scratch(&trunk_move.repo.project);
        disk::copy_index(&real_index, trial_index.path())
            .map_err(|cause| errors::io_error("copy the git index", &real_index, &cause))?;
        update(trial_index.path())?;
        let wrong = self
            .git
            .in_checkout(&checkout.top, "compare the index with the new commit")
            .index(trial_index.path())
            .args([
                "diff-index",
                "--cached",
                "--name-only",
                "-z",
                "--no-renames",
                trunk_move.new.as_str(),
            ])
            .run_for_list()?;
        if wrong.iter().any(|path| differing.contains(path)) {
            return Ok(false);
        }
        update(&real_index)?;
        Ok(true)
    }
}

/// Returns whether the locally changed `path` collides with a path that the move of the trunk
/// changes: both paths are equal, or one of them lies below the other.
fn overlaps_diff(difference: &TreeDiff, path: &[u8]) -> bool {
    let parent_dirs = path
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'/')
        .map(|(end, _)| &path[..end]);
    let inner = [path, b"/"].concat();
    difference.files.contains_key(path)
        || parent_dirs
            .into_iter()
            .any(|dir| difference.files.contains_key(dir))
        || difference
            .files
            .range(inner.clone()..)
            .next()
            .is_some_and(|(found, _)| found.starts_with(&inner))
}

/// Returns whether the move of the trunk changes only contents and modes of existing files. Nothing
/// can prevent such an update in a checkout without local changes, so git's dry run is skipped.
fn changes_content_only(difference: &TreeDiff) -> bool {
    const REGULAR_FILE: u32 = 0o100_000;
    let is_regular = |file: &Option<TreeFile>| {
        file.as_ref()
            .is_some_and(|(mode, _)| mode & 0o170_000 == REGULAR_FILE)
    };
    difference
        .files
        .values()
        .all(|(old, new)| is_regular(old) && is_regular(new))
}

/// Returns the untracked files, including ignored ones, at paths where the new commit has a file.
///
/// Git itself would overwrite an ignored file at such a path, but the file may be a person's only
/// copy.
fn untracked_collisions(difference: &TreeDiff, checkout: &Checkout) -> BTreeSet<Vec<u8>> {
    const FILE_TYPE_MASK: u32 = 0o170_000;
    let mut leaving = BTreeSet::new();
    let mut arriving = Vec::new();
    for (path, sides) in &difference.files {
        match sides {
            (Some(_), None) => {
                leaving.insert(path.clone());
            }
            (None, Some(_)) => arriving.push(path),
            (Some(old), Some(new)) if old.0 & FILE_TYPE_MASK != new.0 & FILE_TYPE_MASK => {
                leaving.insert(path.clone());
            }
            _ => {}
        }
    }
    arriving
        .into_iter()
        .filter_map(|path| collision_at(&checkout.top, path, &leaving))
        .collect()
}

/// Returns an error while a person is rebasing the trunk. During a rebase git lists the branch in
/// no checkout, although the rebase is about to move the branch.
fn refuse_during_rebase(trunk_move: &TrunkMove<'_>, name: &str) -> Result<(), GitError> {
    let mut git_dirs = vec![trunk_move.user.common_dir.clone()];
    if let Ok(entries) = fs::read_dir(trunk_move.user.common_dir.join("worktrees")) {
        git_dirs.extend(entries.flatten().map(|entry| entry.path()));
    }
    let is_rebasing = |dir: &PathBuf| {
        ["rebase-merge", "rebase-apply"].iter().any(|kind| {
            fs::read_to_string(dir.join(kind).join("head-name"))
                .is_ok_and(|text| text.trim() == name)
        })
    };
    if git_dirs.iter().any(is_rebasing) {
        Err(errors::being_rebased(&trunk_move.repo.trunk))
    } else {
        Ok(())
    }
}

/// Waits until the checkout's index is not locked by another git program. Returns an error after
/// [`LOCK_TIMEOUT`].
fn wait_for_index_lock(checkout: &Checkout) -> Result<(), GitError> {
    let lock = checkout.git_dir.join("index.lock");
    let began = Instant::now();
    while disk::is_occupied(&lock) {
        if began.elapsed() > LOCK_TIMEOUT {
            return Err(errors::index_locked(&lock));
        }
        thread::sleep(LOCK_POLL_INTERVAL);
    }
    Ok(())
}

/// Returns the path of the file or directory that is in the way of the new file `path`. Tracked
/// files that the move of the trunk removes (`leaving`) are not in the way.
fn collision_at(top: &Path, path: &[u8], leaving: &BTreeSet<Vec<u8>>) -> Option<Vec<u8>> {
    let ends = path
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'/')
        .map(|(slash, _)| slash)
        .chain([path.len()]);
    for end in ends {
        let part = &path[..end];
        let metadata = fs::symlink_metadata(top.join(path_from_bytes(part))).ok()?;
        if !metadata.is_dir() {
            return (!leaving.contains(part)).then(|| part.to_vec());
        }
    }
    // A directory exists at the path of the new file. The directory is in the way unless the move
    // of the trunk removes every file in it.
    untracked_file_below(top, path, leaving)
}

/// Returns the first file below `dir` that the move of the trunk does not remove.
fn untracked_file_below(top: &Path, dir: &[u8], leaving: &BTreeSet<Vec<u8>>) -> Option<Vec<u8>> {
    use std::os::unix::ffi::OsStrExt;
    let mut pending = vec![dir.to_vec()];
    while let Some(dir) = pending.pop() {
        for entry in fs::read_dir(top.join(path_from_bytes(&dir)))
            .ok()?
            .flatten()
        {
            let path = [dir.as_slice(), b"/", entry.file_name().as_bytes()].concat();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                pending.push(path);
            } else if !leaving.contains(&path) {
                return Some(path);
            }
        }
    }
    None
}

/// Returns the path that git names in an error message, or `None` if the message names no path.
fn path_in_error(stderr: &str) -> Option<Vec<u8>> {
    let line = stderr.lines().find(|line| line.starts_with("error: "))?;
    let (first, last) = (line.find('\'')?, line.rfind('\'')?);
    (first < last).then(|| line.as_bytes()[first + 1..last].to_vec())
}

fn is_same_path(one: &Path, other: &Path) -> bool {
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
            let call = adapter.git.in_dir(&path, "arrange the test");
            args.iter()
                .fold(call, |call, arg| call.arg(arg))
                .run_for_line()
                .unwrap()
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
        let repo = ProjectRepo {
            project,
            path: path.clone(),
            trunk: BranchName::new("main").unwrap(),
            should_update_checkout: true,
            workspace: Default::default(),
        };
        let user = adapter.discover_at(&path).unwrap();
        let trunk_move = TrunkMove {
            repo: &repo,
            user: &user,
            old: &old,
            new: &new,
            allows_rebase: false,
        };
        let checkout = adapter.checkouts(&trunk_move).unwrap().remove(0);
        let vault = adapter.vault_with(&repo, &new).unwrap();
        let transfer = adapter
            .object_transfer(&vault, &old, &new)
            .unwrap()
            .unwrap();
        assert!(
            adapter
                .blocking_paths(&trunk_move, &checkout, &transfer.diff)
                .unwrap()
                .is_empty()
        );
        fs::write(path.join("b"), "a person's").unwrap();
        assert_eq!(
            adapter
                .update_checkout(&trunk_move, &checkout)
                .unwrap_err()
                .code,
            "checkout_behind"
        );
        assert_eq!(fs::read_to_string(path.join("b")).unwrap(), "a person's");
        assert_eq!(fs::read_to_string(path.join("a")).unwrap(), "old");
        // On the second call the trunk is already in place, and the person's file still has
        // priority.
        adapter.finish_checkouts(&trunk_move).unwrap();
        assert_eq!(fs::read_to_string(path.join("b")).unwrap(), "a person's");
        // After the steps in the hint, the update succeeds.
        fs::write(path.join("b"), "old").unwrap();
        adapter.finish_checkouts(&trunk_move).unwrap();
        assert_eq!(fs::read_to_string(path.join("b")).unwrap(), "new");
    }
}
