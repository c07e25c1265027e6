//! Finds unfinished work that will conflict: merges workspaces with each other and with the trunk,
//! without changing them.
//!
//! A cheap walk through the files first checks whether a workspace has changed. Only the files of a
//! changed workspace are stored as a commit, in a scratch directory of git objects. The scratch
//! directory is wiped when the program starts and when it has grown too large, and no ref protects
//! its objects. Two workspaces are merged only if both changed the same path, and one git process
//! merges all pairs.

use std::collections::{BTreeMap, BTreeSet, HashMap, hash_map::DefaultHasher};
use std::fs;
use std::hash::{Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use regatta_core::ids::{AttemptId, CommitId, ProjectName};
use regatta_engine::ports::git::{
    Authorship, CollisionGit, GitError, ProjectRepo, WorkspaceCollision,
};

use crate::git_command::path_from_bytes;
use crate::layout::LockKey;
use crate::merge::path_names;
use crate::vault::base_ref;
use crate::{GitAdapter, disk, errors};

/// The results of the last scan of each project, so that the next scan repeats only what has
/// changed.
#[derive(Debug, Default)]
pub(crate) struct CollisionScans(Mutex<HashMap<ProjectName, ProjectScan>>);

/// The results of the last scan of one project.
#[derive(Debug, Default)]
struct ProjectScan {
    workspaces: BTreeMap<AttemptId, WorkspaceScan>,
    /// The scratch directory with the git objects of the workspaces' files. `None` before the first
    /// scan.
    objects: Option<PathBuf>,
    /// The number of times that a workspace's files were stored in the scratch directory since the
    /// scratch directory was last wiped.
    capture_count: usize,
    /// The conflicting paths of each pair of commits that was merged. A pair is removed when one of
    /// its commits is replaced by a newer one.
    outcomes: HashMap<(CommitId, CommitId), Vec<String>>,
}

/// The result of the last scan of one workspace.
#[derive(Clone, Debug)]
struct WorkspaceScan {
    fingerprint: u64,
    /// Directories that contain only files ignored by git, such as build output. The search for
    /// changes skips these directories, because their files change all the time and are not part of
    /// the work.
    ignored_dirs: BTreeSet<Vec<u8>>,
    /// A commit of the workspace's files whose parent is the workspace's base commit.
    commit: CommitId,
    base: CommitId,
    changed: BTreeSet<Vec<u8>>,
}

/// The number of times that a workspace's files may be stored in the scratch directory. After that,
/// the scratch directory is wiped, and the files of every workspace are stored again.
const MAX_CAPTURES: usize = 2_000;
/// The maximum number of files and directories that the search for changes visits in one workspace.
/// A change in a file beyond this limit is noticed only when a visited file of the workspace also
/// changes.
const MAX_ENTRIES: usize = 200_000;

impl CollisionGit for GitAdapter {
    fn collisions(
        &self,
        repo: &ProjectRepo,
        attempts: &[AttemptId],
        tip: &CommitId,
    ) -> Result<Vec<WorkspaceCollision>, GitError> {
        let vault = self.vault_with(repo, tip)?;
        let previous = self
            .scans
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&repo.project);
        let mut scan = previous.unwrap_or_default();
        let collisions = self.scan_project(repo, &vault, &mut scan, (attempts, tip));
        if collisions.is_ok() {
            self.scans
                .0
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(repo.project.clone(), scan);
        } else if let Some(objects) = scan.objects {
            // The scan results are stored for the next scan only if this scan succeeds. After an
            // error, the scratch directory is removed and the next scan starts from nothing.
            disk::remove_tree(&objects)?;
        }
        collisions
    }
}

impl GitAdapter {
    fn scan_project(
        &self,
        repo: &ProjectRepo,
        vault: &Path,
        scan: &mut ProjectScan,
        (attempts, tip): (&[AttemptId], &CommitId),
    ) -> Result<Vec<WorkspaceCollision>, GitError> {
        if scan.capture_count > MAX_CAPTURES {
            if let Some(objects) = scan.objects.take() {
                disk::remove_tree(&objects)?;
            }
            *scan = ProjectScan::default();
        }
        let objects = scan
            .objects
            .get_or_insert_with(|| self.layout.scratch_objects(vault))
            .clone();
        disk::make_dirs(&objects)?;
        scan.workspaces.retain(|id, _| attempts.contains(id));
        for attempt in attempts {
            let dir = self.layout.workspace(&repo.project, *attempt);
            let before = scan.workspaces.get(attempt);
            let new_fingerprint =
                before.and_then(|workspace| fingerprint(&dir, &workspace.ignored_dirs));
            if new_fingerprint.is_some()
                && new_fingerprint == before.map(|workspace| workspace.fingerprint)
            {
                continue;
            }
            match self.capture_for_scan(repo, vault, *attempt, &objects) {
                Ok(Some(workspace)) => drop(scan.workspaces.insert(*attempt, workspace)),
                // The attempt has no workspace, because the workspace was removed or not created
                // yet. So forget the result of its last scan.
                Ok(None) => drop(scan.workspaces.remove(attempt)),
                // The files of this workspace cannot be stored now, for example because the agent
                // is writing a file. The conflicts of the other workspaces are still found, and the
                // next scan tries this workspace again.
                Err(error) => {
                    tracing::debug!(%attempt, "could not compare the work of attempt {attempt} \
                        with the trunk and with other attempts; the next scan tries again: {error}");
                    scan.workspaces.remove(attempt);
                }
            }
            scan.capture_count += 1;
        }
        let pairs = self.overlapping_pairs(vault, &scan.workspaces, tip)?;
        let current: BTreeSet<_> = pairs
            .iter()
            .map(|(_, _, ours, theirs)| (ours.clone(), theirs.clone()))
            .collect();
        scan.outcomes.retain(|pair, _| current.contains(pair));
        let new_pairs: Vec<_> = current
            .into_iter()
            .filter(|pair| !scan.outcomes.contains_key(pair))
            .collect();
        let outcomes = self.merge_pairs(vault, &objects, &new_pairs)?;
        scan.outcomes.extend(new_pairs.into_iter().zip(outcomes));
        let collision = |(attempt, other_attempt, ours, theirs): (
            AttemptId,
            Option<AttemptId>,
            CommitId,
            CommitId,
        )| {
            let paths = scan.outcomes.get(&(ours, theirs))?.clone();
            (!paths.is_empty()).then_some(WorkspaceCollision {
                attempt,
                other_attempt,
                paths,
            })
        };
        Ok(pairs.into_iter().filter_map(collision).collect())
    }

    /// Stores the files of a workspace as a temporary commit for the scan. Returns `None` if the
    /// workspace does not exist.
    fn capture_for_scan(
        &self,
        repo: &ProjectRepo,
        vault: &Path,
        attempt: AttemptId,
        objects: &Path,
    ) -> Result<Option<WorkspaceScan>, GitError> {
        self.locks
            .with_lock(LockKey::Attempt(repo.project.clone(), attempt), || {
                let dir = self.layout.workspace(&repo.project, attempt);
                let Some(base) = self.find_object(vault, &base_ref(attempt))? else {
                    return Ok(None);
                };
                if !disk::is_real_dir(&dir) {
                    return Ok(None);
                }
                // The fingerprint must be computed before the files are read. If a file changes in
                // between, the next scan then sees a different fingerprint.
                let listed = self
                    .git
                    .in_vault(vault, "list ignored directories")
                    .work_tree(&dir)
                    .index(&self.layout.base_index(&repo.project, attempt))
                    .args([
                        "ls-files",
                        "--others",
                        "--ignored",
                        "--exclude-standard",
                        "--directory",
                        "-z",
                    ])
                    .run_for_list()?;
                let ignored_dirs: BTreeSet<Vec<u8>> = listed
                    .into_iter()
                    .filter_map(|path| path.strip_suffix(b"/").map(<[u8]>::to_vec))
                    .collect();
                let new_fingerprint = fingerprint(&dir, &ignored_dirs).unwrap_or_default();
                let tree = self.write_scan_tree(repo, attempt, vault, (&base, objects))?;
                let changed = self
                    .git
                    .in_vault(vault, "list the changes of a workspace")
                    .alternate_objects(objects)
                    .args([
                        "diff-tree",
                        "-r",
                        "--name-only",
                        "-z",
                        "--no-renames",
                        base.as_str(),
                        tree.as_str(),
                    ])
                    .run_for_list()?;
                let authorship = Authorship {
                    name: String::new(),
                    email: String::new(),
                    message: "collision scan".into(),
                    unix_seconds: 0,
                };
                let commit = self
                    .git
                    .in_vault(vault, "commit the files of a workspace")
                    .without_sync()
                    .object_dirs(objects, &vault.join("objects"))
                    .authorship(&authorship)
                    .args(["commit-tree", "-p", base.as_str(), tree.as_str()])
                    .input(authorship.message.clone().into_bytes())
                    .run_for_object()?;
                Ok(Some(WorkspaceScan {
                    fingerprint: new_fingerprint,
                    ignored_dirs,
                    commit,
                    base,
                    changed: changed.into_iter().collect(),
                }))
            })
    }

    /// Returns the pairs of commits to merge. Both commits of a pair changed the same path. A pair
    /// is the work of two attempts, or the work of an attempt and the trunk.
    #[expect(
        clippy::type_complexity,
        reason = "a row of a table that only the caller reads"
    )]
    fn overlapping_pairs(
        &self,
        vault: &Path,
        workspaces: &BTreeMap<AttemptId, WorkspaceScan>,
        tip: &CommitId,
    ) -> Result<Vec<(AttemptId, Option<AttemptId>, CommitId, CommitId)>, GitError> {
        let mut pairs = Vec::new();
        let mut trunk_changes: BTreeMap<CommitId, BTreeSet<Vec<u8>>> = BTreeMap::new();
        for (attempt, scan) in workspaces {
            if scan.changed.is_empty() {
                continue;
            }
            for (other_attempt, other_scan) in workspaces.range(*attempt..).skip(1) {
                if overlap(&scan.changed, &other_scan.changed) {
                    pairs.push((
                        *attempt,
                        Some(*other_attempt),
                        scan.commit.clone(),
                        other_scan.commit.clone(),
                    ));
                }
            }
            if scan.base == *tip {
                continue;
            }
            if !trunk_changes.contains_key(&scan.base) {
                let difference = self.with_object_store(vault, |odb| {
                    let (old, new) = (odb.commit(&scan.base)?.tree, odb.commit(tip)?.tree);
                    crate::tree_diff::TreeDiff::between(odb, Some(&old), &new)
                })?;
                trunk_changes.insert(scan.base.clone(), difference.files.into_keys().collect());
            }
            if trunk_changes
                .get(&scan.base)
                .is_some_and(|changed| overlap(&scan.changed, changed))
            {
                pairs.push((*attempt, None, tip.clone(), scan.commit.clone()));
            }
        }
        Ok(pairs)
    }

    /// Merges each pair of commits, and returns the conflicting paths of each pair.
    fn merge_pairs(
        &self,
        vault: &Path,
        objects: &Path,
        pairs: &[(CommitId, CommitId)],
    ) -> Result<Vec<Vec<String>>, GitError> {
        const OPERATION: &str = "merge the unfinished work of two attempts";
        if pairs.is_empty() {
            return Ok(Vec::new());
        }
        let input: String = pairs
            .iter()
            .map(|(ours, theirs)| format!("{ours} {theirs}\n"))
            .collect();
        let call = self
            .git
            .in_vault(vault, OPERATION)
            .without_sync()
            .object_dirs(objects, &vault.join("objects"));
        let call = call.args([
            "merge-tree",
            "--write-tree",
            "-z",
            "--name-only",
            "--no-messages",
            "--stdin",
        ]);
        let output = call.input(input.into()).run_expecting_success()?;
        let mut fields = output.stdout.split(|byte| *byte == 0);
        let mut outcomes = Vec::new();
        for _ in pairs {
            // For each pair git prints a flag that is set for a clean merge, the tree, the
            // conflicting paths, and an empty field.
            let (Some(clean), Some(_tree)) = (fields.next(), fields.next()) else {
                return Err(errors::unexpected(OPERATION));
            };
            let paths: Vec<Vec<u8>> = fields
                .by_ref()
                .take_while(|field| !field.is_empty())
                .map(<[u8]>::to_vec)
                .collect();
            outcomes.push(if clean == b"1" {
                Vec::new()
            } else {
                path_names(&paths)
            });
        }
        Ok(outcomes)
    }
}

/// Returns whether two sets of changed paths overlap: a path is in both sets, or a path in one set
/// is a directory above a path in the other set.
fn overlap(one: &BTreeSet<Vec<u8>>, other: &BTreeSet<Vec<u8>>) -> bool {
    let overlaps_path = |paths: &BTreeSet<Vec<u8>>, path: &Vec<u8>| {
        let inner = [path.as_slice(), b"/"].concat();
        paths.contains(path)
            || paths
                .range(inner.clone()..)
                .next()
                .is_some_and(|found| found.starts_with(&inner))
    };
    one.iter().any(|path| overlaps_path(other, path))
        || other.iter().any(|path| overlaps_path(one, path))
}

/// Returns a number that changes when a file below `top` changes, or `None` if a directory cannot
/// be read. Skips the directories in `ignored`.
fn fingerprint(top: &Path, ignored: &BTreeSet<Vec<u8>>) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    let mut entries = 0;
    let mut pending = vec![Vec::new()];
    while let Some(prefix) = pending.pop() {
        let mut dir_hash: u64 = 0;
        for entry in fs::read_dir(top.join(path_from_bytes(&prefix)))
            .ok()?
            .flatten()
        {
            let path = [prefix.as_slice(), entry.file_name().as_bytes()].concat();
            if path == b".git" || ignored.contains(&path) {
                continue;
            }
            entries += 1;
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            let mut entry_hasher = DefaultHasher::new();
            (&path, metadata.mode()).hash(&mut entry_hasher);
            if metadata.is_dir() {
                pending.push([path.as_slice(), b"/"].concat());
            } else {
                (
                    metadata.ino(),
                    metadata.size(),
                    metadata.mtime(),
                    metadata.mtime_nsec(),
                    metadata.ctime(),
                    metadata.ctime_nsec(),
                )
                    .hash(&mut entry_hasher);
            }
            // The hashes of the entries are added up, because a sum does not depend on the order in
            // which the directory lists its entries.
            dir_hash = dir_hash.wrapping_add(entry_hasher.finish());
        }
        (prefix, dir_hash).hash(&mut hasher);
        if entries > MAX_ENTRIES {
            break;
        }
    }
    Some(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_overlap_if_they_are_equal_or_one_contains_the_other() {
        let set = |paths: &[&str]| {
            paths
                .iter()
                .map(|path| path.as_bytes().to_vec())
                .collect::<BTreeSet<_>>()
        };
        assert!(overlap(&set(&["a", "b"]), &set(&["b"])));
        assert!(overlap(&set(&["a"]), &set(&["a/b"])) && overlap(&set(&["a/b/c"]), &set(&["a"])));
        assert!(!overlap(&set(&["a"]), &set(&["ab", "b/a"])) && !overlap(&set(&[]), &set(&["a"])));
    }
}
