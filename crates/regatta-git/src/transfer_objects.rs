//! Copies the git objects of a landing from the vault (Regatta's own repository) into the user's
//! repository.
//!
//! A usual landing needs only a few small objects, and the vault stores each of them as a separate
//! file. Regatta hard-links these files into the user's repository (or copies them, if the user's
//! repository is on another file system) and syncs them, without starting git. In unusual cases
//! `git fetch` transfers the objects: for merge commits, for a repository that a group of users
//! shares, and for objects that the vault stores only in a pack.

use std::collections::BTreeSet;
use std::fs::{self, File, FileTimes};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use regatta_core::ids::CommitId;
use regatta_engine::ports::git::GitError;

use crate::object_store::{ObjectStore, loose_path};
use crate::tree_diff::TreeDiff;
use crate::vault::FETCH_OPTIONS;
use crate::{GitAdapter, disk, errors};

/// The largest number of commits whose objects are linked one by one. For more commits, `git fetch`
/// transfers the objects.
const MAX_COMMITS: usize = 100;

/// The age from which an unreachable object gets the current time, so that git does not delete it.
/// By default `git gc` deletes only much older objects.
const REFRESH_AGE: Duration = Duration::from_secs(3600);

/// The git objects of a landing (finished work of one task) that the user's repository needs, and
/// the changed paths.
pub(crate) struct ObjectTransfer {
    /// The ids of all git objects that the new commits need and the old commit does not have.
    objects: Vec<CommitId>,
    /// The changes between the files of the old commit and the files of the new commit.
    pub(crate) diff: TreeDiff,
    /// True if the new commits include merges. In this case `objects` may be incomplete, so `git
    /// fetch` must transfer the objects.
    has_merges: bool,
}

impl GitAdapter {
    /// Computes the git objects to transfer when the trunk moves from `old` to `new`. Returns
    /// `None` if `new` does not descend from `old`.
    pub(crate) fn object_transfer(
        &self,
        vault: &Path,
        old: &CommitId,
        new: &CommitId,
    ) -> Result<Option<ObjectTransfer>, GitError> {
        let commits = self.with_object_store(vault, |odb| linear_commits(odb, old, new))?;
        if commits.is_none() && !self.history_contains(vault, new, old)? {
            return Ok(None);
        }
        let has_merges = commits.is_none();
        self.with_object_store(vault, |odb| {
            let (old_tree, new_tree) = (odb.commit(old)?.tree, odb.commit(new)?.tree);
            let mut objects = Vec::new();
            let mut before = old_tree.clone();
            for (commit, tree) in commits.unwrap_or_default() {
                objects.append(&mut TreeDiff::between(odb, Some(&before), &tree)?.objects);
                objects.push(commit);
                before = tree;
            }
            let difference = TreeDiff::between(odb, Some(&old_tree), &new_tree)?;
            Ok(Some(ObjectTransfer {
                objects,
                diff: difference,
                has_merges,
            }))
        })
    }

    /// Computes the git objects to transfer when the trunk moves from `old` to a commit that does
    /// not descend from `old`.
    pub(crate) fn object_transfer_across(
        &self,
        vault: &Path,
        old: &CommitId,
        new: &CommitId,
    ) -> Result<ObjectTransfer, GitError> {
        self.with_object_store(vault, |odb| {
            let (old, new) = (odb.commit(old)?.tree, odb.commit(new)?.tree);
            Ok(ObjectTransfer {
                objects: vec![],
                diff: TreeDiff::between(odb, Some(&old), &new)?,
                has_merges: true,
            })
        })
    }

    /// Copies the objects into the user's repository, whose shared git directory is `common`. No
    /// ref of the user's repository reaches the objects yet.
    pub(crate) fn transfer_objects(
        &self,
        vault: &Path,
        common: &Path,
        transfer: &ObjectTransfer,
        new: &CommitId,
    ) -> Result<(), GitError> {
        let (vault_objects, user_objects) = (vault.join("objects"), common.join("objects"));
        if transfer.has_merges
            || !has_default_permissions(&user_objects)
            || !self.link_all(&vault_objects, &user_objects, common, transfer)?
        {
            self.git
                .in_vault(common, "copy the commit into your repository")
                .args(FETCH_OPTIONS)
                .arg(vault)
                .arg(new.as_str())
                .run_expecting_success()?;
            return disk::sync_objects(common);
        }
        Ok(())
    }

    /// Creates a hard link (or a copy) of every object of a transfer in the object directory `to`
    /// of the user's repository. The objects are in the object directory `from` of the vault,
    /// Regatta's own repository. Returns `false` if the vault does not store one of the objects as
    /// a separate file.
    fn link_all(
        &self,
        from: &Path,
        to: &Path,
        common: &Path,
        transfer: &ObjectTransfer,
    ) -> Result<bool, GitError> {
        let mut not_loose = Vec::new();
        let mut changed_dirs = BTreeSet::new();
        let (mut linked, mut existing) = (Vec::new(), Vec::new());
        // The objects are in an order in which files and directories come before their commit. So a
        // commit that exists in the user's repository is always complete.
        for id in &transfer.objects {
            let (source, target) = (loose_path(from, id), loose_path(to, id));
            let dir = target.parent().unwrap_or(to).to_path_buf();
            if disk::is_occupied(&target) {
                changed_dirs.insert(dir);
                existing.push(target);
                continue;
            }
            if !disk::is_occupied(&source) {
                not_loose.push(id.clone());
                continue;
            }
            if !dir.is_dir() {
                disk::make_dirs(&dir)?;
                changed_dirs.insert(to.to_path_buf());
            }
            link_or_copy(&source, &target)
                .map_err(|cause| errors::io_error("write the object file", &target, &cause))?;
            changed_dirs.insert(dir);
            linked.push(target);
        }
        let now = SystemTime::now();
        for path in linked.iter().chain(&existing) {
            // An object with the current time is not deleted by a `git gc` that runs at the same
            // time.
            let file = File::open(path)
                .map_err(|cause| errors::io_error("open the object file", path, &cause))?;
            let modified = file.metadata().and_then(|metadata| metadata.modified());
            let age = modified
                .ok()
                .and_then(|modified| now.duration_since(modified).ok());
            if age.is_some_and(|age| age > REFRESH_AGE) {
                file.set_times(FileTimes::new().set_modified(now))
                    .map_err(|cause| {
                        errors::io_error("set the modification time of", path, &cause)
                    })?;
            }
        }
        // A hard link to a file of the vault (Regatta's own repository) needs no sync of its
        // content, because the vault's files are already on the disk. A file that already existed
        // in the user's repository is synced, because the program that wrote the file perhaps did
        // not sync it.
        disk::sync_all(existing)?;
        disk::sync_all(changed_dirs)?;
        Ok(not_loose.is_empty() || self.has_all(common, &not_loose)?)
    }

    /// Returns whether the user's repository has all objects with these ids.
    fn has_all(&self, common: &Path, ids: &[CommitId]) -> Result<bool, GitError> {
        let input: String = ids.iter().map(|id| format!("{id}\n")).collect();
        let call = self
            .git
            .in_vault(common, "look for objects in your repository");
        let output = call
            .args(["cat-file", "--batch-check"])
            .input(input.into())
            .run_expecting_success()?;
        Ok(!String::from_utf8_lossy(&output.stdout)
            .lines()
            .any(|line| line.ends_with(" missing")))
    }
}

/// Returns the commits after `old` up to `new` with the ids of their trees, oldest first. Returns
/// `None` if one of these commits is a merge.
fn linear_commits(
    odb: &mut ObjectStore,
    old: &CommitId,
    new: &CommitId,
) -> Result<Option<Vec<(CommitId, CommitId)>>, GitError> {
    let (mut commits, mut current) = (Vec::new(), new.clone());
    while current != *old {
        let commit = odb.commit(&current)?;
        let [parent] = commit.parents.as_slice() else {
            return Ok(None);
        };
        if commits.len() == MAX_COMMITS {
            return Ok(None);
        }
        commits.push((current, commit.tree));
        current = parent.clone();
    }
    commits.reverse();
    Ok(Some(commits))
}

/// Returns whether a new file in the directory `objects` gets the right owner and permissions by
/// default. This is not so in a repository that a group of users shares.
fn has_default_permissions(objects: &Path) -> bool {
    let Ok(metadata) = fs::symlink_metadata(objects) else {
        return false;
    };
    let uid = rustix::process::geteuid().as_raw();
    metadata.is_dir() && metadata.uid() == uid && metadata.permissions().mode() & 0o6000 == 0
}

/// Creates a hard link to a file, or copies the file if a link is not possible.
fn link_or_copy(source: &Path, target: &Path) -> io::Result<()> {
    match fs::hard_link(source, target) {
        Ok(()) => Ok(()),
        Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(_) => {
            let temporary: PathBuf = target.with_extension("regatta");
            let _ = fs::remove_file(&temporary);
            fs::copy(source, &temporary)?;
            File::open(&temporary)?.sync_all()?;
            fs::set_permissions(&temporary, fs::Permissions::from_mode(0o444))?;
            fs::rename(&temporary, target)
        }
    }
}
