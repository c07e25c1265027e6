//! Carries a landing's objects into the user's repository.
//!
//! The usual landing brings a handful of small files that the vault has as files of their own: they are linked (or
//! copied, across file systems) and waited for, with no git process at all. Whatever is unusual (merge commits, a
//! repository shared by a group, objects that the vault has only in a pack) goes through `git fetch`.

use std::collections::BTreeSet;
use std::fs::{self, File, FileTimes};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use regatta_core::ids::CommitId;
use regatta_engine::ports::git::GitError;

use crate::difference::Difference;
use crate::odb::{Odb, loose_path};
use crate::vault::FETCH;
use crate::{GitAdapter, disk, words};

/// How many commits one move may bring before `git fetch` does it.
const MOST_COMMITS: usize = 100;

/// Unreachable objects of this age are far from being collected by a `git gc` with its defaults.
const OLD: Duration = Duration::from_secs(3600);

/// What a landing brings.
pub(crate) struct Cargo {
    /// Every object of the new commits that the old one has not.
    objects: Vec<CommitId>,
    /// What changes from the old commit to the new.
    pub(crate) difference: Difference,
    /// There are merges, so more may be needed.
    merges: bool,
}

impl GitAdapter {
    /// Finds what lies between two commits of the trunk; none if the new one does not follow the old one.
    pub(crate) fn cargo(&self, vault: &Path, old: &CommitId, new: &CommitId) -> Result<Option<Cargo>, GitError> {
        let line = self.with_odb(vault, |odb| line(odb, old, new))?;
        if line.is_none() && !self.contains(vault, new, old)? {
            return Ok(None);
        }
        let merges = line.is_none();
        self.with_odb(vault, |odb| {
            let (old_tree, new_tree) = (odb.commit(old)?.tree, odb.commit(new)?.tree);
            let mut objects = Vec::new();
            let mut before = old_tree.clone();
            for (commit, tree) in line.unwrap_or_default() {
                objects.append(&mut Difference::between(odb, Some(&before), &tree)?.objects);
                objects.push(commit);
                before = tree;
            }
            let difference = Difference::between(odb, Some(&old_tree), &new_tree)?;
            Ok(Some(Cargo { objects, difference, merges }))
        })
    }

    /// What lies between two commits of which neither follows the other.
    pub(crate) fn cargo_across(&self, vault: &Path, old: &CommitId, new: &CommitId) -> Result<Cargo, GitError> {
        self.with_odb(vault, |odb| {
            let (old, new) = (odb.commit(old)?.tree, odb.commit(new)?.tree);
            Ok(Cargo { objects: vec![], difference: Difference::between(odb, Some(&old), &new)?, merges: true })
        })
    }

    /// Brings the cargo to the user's repository, where nothing refers to it yet.
    pub(crate) fn carry(&self, vault: &Path, common: &Path, cargo: &Cargo, new: &CommitId) -> Result<(), GitError> {
        let (from, to) = (vault.join("objects"), common.join("objects"));
        if cargo.merges || !plain(&to) || !self.link_all(&from, &to, common, cargo)? {
            self.git
                .ours(common, "copy the commit into your repository")
                .args(FETCH)
                .arg(vault)
                .arg(new.as_str())
                .done()?;
            return disk::sync_objects(common);
        }
        Ok(())
    }

    /// Links every object; `false` if some could not be.
    fn link_all(&self, from: &Path, to: &Path, common: &Path, cargo: &Cargo) -> Result<bool, GitError> {
        let mut elsewhere = Vec::new();
        let mut touched = BTreeSet::new();
        let (mut brought, mut found) = (Vec::new(), Vec::new());
        // Deepest first: whatever sees a commit there sees all of it.
        for id in &cargo.objects {
            let (source, target) = (loose_path(from, id), loose_path(to, id));
            let folder = target.parent().unwrap_or(to).to_path_buf();
            if disk::occupied(&target) {
                touched.insert(folder);
                found.push(target);
                continue;
            }
            if !disk::occupied(&source) {
                elsewhere.push(id.clone());
                continue;
            }
            if !folder.is_dir() {
                disk::make_dirs(&folder)?;
                touched.insert(to.to_path_buf());
            }
            link(&source, &target).map_err(|cause| words::io("write", &target, &cause))?;
            touched.insert(folder);
            brought.push(target);
        }
        let now = SystemTime::now();
        for path in brought.iter().chain(&found) {
            // As new as it must look to a `git gc` that might run just now.
            let file = File::open(path).map_err(|cause| words::io("read", path, &cause))?;
            let age = file.metadata().and_then(|it| it.modified()).ok().and_then(|it| now.duration_since(it).ok());
            if age.is_some_and(|it| it > OLD) {
                file.set_times(FileTimes::new().set_modified(now)).map_err(|cause| words::io("touch", path, &cause))?;
            }
        }
        // What the vault has is on disk, and a link to it is the same file: only its new name is waited for. Who wrote what
        // was there already may not have waited.
        disk::sync_all(found)?;
        disk::sync_all(touched)?;
        Ok(elsewhere.is_empty() || self.has_all(common, &elsewhere)?)
    }

    /// Whether the user's repository has all these already.
    fn has_all(&self, common: &Path, ids: &[CommitId]) -> Result<bool, GitError> {
        let asked: String = ids.iter().map(|it| format!("{it}\n")).collect();
        let call = self.git.ours(common, "look for objects in your repository");
        let said = call.args(["cat-file", "--batch-check"]).input(asked.into()).done()?;
        Ok(!String::from_utf8_lossy(&said.stdout).lines().any(|it| it.ends_with(" missing")))
    }
}

/// The commits after `old` up to `new` with their trees, oldest first, if they are a line without merges.
fn line(odb: &mut Odb, old: &CommitId, new: &CommitId) -> Result<Option<Vec<(CommitId, CommitId)>>, GitError> {
    let (mut found, mut at) = (Vec::new(), new.clone());
    while at != *old {
        let commit = odb.commit(&at)?;
        let [parent] = commit.parents.as_slice() else { return Ok(None) };
        if found.len() == MOST_COMMITS {
            return Ok(None);
        }
        found.push((at, commit.tree));
        at = parent.clone();
    }
    found.reverse();
    Ok(Some(found))
}

/// Whether new files there need no other owner or rights than git's own default.
fn plain(objects: &Path) -> bool {
    let Ok(found) = fs::symlink_metadata(objects) else { return false };
    let uid = rustix::process::geteuid().as_raw();
    found.is_dir() && found.uid() == uid && found.permissions().mode() & 0o6000 == 0
}

/// Links a file, or copies it where that is not possible.
fn link(source: &Path, target: &Path) -> io::Result<()> {
    match fs::hard_link(source, target) {
        Ok(()) => Ok(()),
        Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(_) => {
            let new: PathBuf = target.with_extension("regatta");
            let _ = fs::remove_file(&new);
            fs::copy(source, &new)?;
            File::open(&new)?.sync_all()?;
            fs::set_permissions(&new, fs::Permissions::from_mode(0o444))?;
            fs::rename(&new, target)
        }
    }
}
