//! Transfers a landing's objects into the user's repository.
//!
//! The usual landing has a few small objects that are separate files in the vault. They are linked
//! (or copied, across file systems) and synced without a git process. Unusual cases go through `git
//! fetch`: merge commits, a repository shared by a group, objects that the vault has only in a
//! pack.

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

/// The largest number of commits in one move above which `git fetch` transfers the objects.
const MAX_COMMITS: usize = 100;

/// The age at which an unreachable object gets a new time. It is far below the age at which a `git
/// gc` with its defaults collects it.
const REFRESH_AGE: Duration = Duration::from_secs(3600);

/// The objects and changes of a landing.
pub(crate) struct ObjectTransfer {
    /// Every object of the new commits that the old commit does not have.
    objects: Vec<CommitId>,
    /// The changes from the old commit to the new one.
    pub(crate) diff: TreeDiff,
    /// True if there are merges, so that more objects may be needed.
    has_merges: bool,
}

impl GitAdapter {
    /// Computes the transfer between two commits of the trunk. Returns nothing if the new one does
    /// not follow the old one.
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

    /// Computes the transfer between two commits of which neither follows the other.
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

    /// Transfers the objects to the user's repository, where no ref reaches them yet.
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

    /// Links every object. Returns `false` if some are missing.
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
        // Blobs and trees come before their commit, so a commit that exists there is always
        // complete.
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
                .map_err(|cause| errors::io_error("write", &target, &cause))?;
            changed_dirs.insert(dir);
            linked.push(target);
        }
        let now = SystemTime::now();
        for path in linked.iter().chain(&existing) {
            // A fresh time keeps a concurrent `git gc` from collecting the object.
            let file = File::open(path).map_err(|cause| errors::io_error("read", path, &cause))?;
            let modified = file.metadata().and_then(|metadata| metadata.modified());
            let age = modified
                .ok()
                .and_then(|modified| now.duration_since(modified).ok());
            if age.is_some_and(|age| age > REFRESH_AGE) {
                file.set_times(FileTimes::new().set_modified(now))
                    .map_err(|cause| errors::io_error("touch", path, &cause))?;
            }
        }
        // The vault's files are on disk, and a link is the same file, so only its new name must be
        // synced. A file that was there before may not have been synced by its writer.
        disk::sync_all(existing)?;
        disk::sync_all(changed_dirs)?;
        Ok(not_loose.is_empty() || self.has_all(common, &not_loose)?)
    }

    /// Returns whether the user's repository has all these objects.
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

/// Returns the commits after `old` up to `new` with their trees, oldest first, if they are a line
/// without merges.
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

/// Returns whether new files in this directory need no owner or rights other than git's defaults.
fn has_default_permissions(objects: &Path) -> bool {
    let Ok(metadata) = fs::symlink_metadata(objects) else {
        return false;
    };
    let uid = rustix::process::geteuid().as_raw();
    metadata.is_dir() && metadata.uid() == uid && metadata.permissions().mode() & 0o6000 == 0
}

/// Links a file, or copies it where linking is not possible.
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
