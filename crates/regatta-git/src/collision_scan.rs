//! Scans unfinished work for collisions: which workspaces will conflict with each other or with the
//! trunk.
//!
//! A cheap walk first checks whether a workspace has changed. Only a changed one is captured, into
//! a scratch object directory that is wiped when the program starts and when it has grown too much.
//! No ref keeps anything of it. Two workspaces are merged only where both changed the same path,
//! all pairs in one git process.

use std::collections::{BTreeMap, BTreeSet, HashMap, hash_map::DefaultHasher};
use std::fs;
use std::hash::{Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use regatta_core::ids::{AttemptId, CommitId, ProjectName};
use regatta_engine::ports::git::{Authorship, GitError, ProjectRepo, WorkspaceCollision};

use crate::git_command::path_from_bytes;
use crate::layout::LockKey;
use crate::merge::path_names;
use crate::vault::base_ref;
use crate::{GitAdapter, disk, errors};

/// The last scan of each project's workspaces.
#[derive(Debug, Default)]
pub(crate) struct CollisionScans(Mutex<HashMap<ProjectName, ProjectScan>>);

/// The last scan of one project.
#[derive(Debug, Default)]
struct ProjectScan {
    workspaces: BTreeMap<AttemptId, WorkspaceScan>,
    /// The object directory of the captured trees.
    objects: Option<PathBuf>,
    /// The number of captures in that directory.
    capture_count: usize,
    /// The conflicting paths of each merged pair, as long as both commits are current.
    outcomes: HashMap<(CommitId, CommitId), Vec<String>>,
}

/// The last scan of a workspace.
#[derive(Clone, Debug)]
struct WorkspaceScan {
    fingerprint: u64,
    /// Directories with ignored files only. A build's output changes all the time and is
    /// irrelevant.
    ignored_dirs: BTreeSet<Vec<u8>>,
    /// A commit with the workspace's files on its base.
    commit: CommitId,
    base: CommitId,
    changed: BTreeSet<Vec<u8>>,
}

/// The largest number of captures after which the object directory is wiped and everything is
/// captured again.
const MAX_CAPTURES: usize = 2_000;
/// The largest number of entries after which the walk of a workspace ends. Changes beyond are seen
/// when it is captured for another reason.
const MAX_ENTRIES: usize = 200_000;

impl GitAdapter {
    pub(crate) fn find_collisions(
        &self,
        repo: &ProjectRepo,
        attempts: &[AttemptId],
        tip: &CommitId,
    ) -> Result<Vec<WorkspaceCollision>, GitError> {
        let vault = self.vault_with(repo, tip)?;
        let mut sight = self
            .scans
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&repo.project);
        let sight_now = sight.get_or_insert_with(ProjectScan::default);
        let found = self.scan_project(repo, &vault, sight_now, (attempts, tip));
        // After an error everything is scanned anew.
        match (&found, sight) {
            (Ok(_), Some(sight)) => {
                self.scans
                    .0
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .insert(repo.project.clone(), sight);
            }
            (_, sight) => {
                if let Some(objects) = sight.and_then(|project_scan| project_scan.objects) {
                    disk::remove_tree(&objects)?;
                }
            }
        }
        found
    }

    fn scan_project(
        &self,
        repo: &ProjectRepo,
        vault: &Path,
        sight: &mut ProjectScan,
        (attempts, tip): (&[AttemptId], &CommitId),
    ) -> Result<Vec<WorkspaceCollision>, GitError> {
        if sight.capture_count > MAX_CAPTURES {
            if let Some(objects) = sight.objects.take() {
                disk::remove_tree(&objects)?;
            }
            *sight = ProjectScan::default();
        }
        let objects = sight
            .objects
            .get_or_insert_with(|| self.layout.scratch_objects(vault))
            .clone();
        disk::make_dirs(&objects)?;
        sight.workspaces.retain(|id, _| attempts.contains(id));
        for attempt in attempts {
            let dir = self.layout.workspace(&repo.project, *attempt);
            let before = sight.workspaces.get(attempt);
            let sign =
                before.and_then(|workspace_scan| fingerprint(&dir, &workspace_scan.ignored_dirs));
            if sign.is_some() && sign == before.map(|workspace_scan| workspace_scan.fingerprint) {
                continue;
            }
            match self.capture_for_scan(repo, vault, *attempt, &objects) {
                Ok(Some(seen)) => drop(sight.workspaces.insert(*attempt, seen)),
                // The workspace was removed, or does not exist yet.
                Ok(None) => drop(sight.workspaces.remove(attempt)),
                // The workspace is half written or unusual. It must not hide the others, and is
                // scanned again the next time.
                Err(error) => {
                    tracing::debug!(%attempt, "could not scan the attempt's workspace for \
                        collisions: {error}");
                    sight.workspaces.remove(attempt);
                }
            }
            sight.capture_count += 1;
        }
        let pairs = self.overlapping_pairs(vault, &sight.workspaces, tip)?;
        let current: BTreeSet<_> = pairs
            .iter()
            .map(|pair| (pair.2.clone(), pair.3.clone()))
            .collect();
        sight
            .outcomes
            .retain(|outcome, _| current.contains(outcome));
        let new: Vec<_> = current
            .into_iter()
            .filter(|current| !sight.outcomes.contains_key(current))
            .collect();
        let outcomes = self.merge_pairs(vault, &objects, &new)?;
        sight.outcomes.extend(new.into_iter().zip(outcomes));
        let collision =
            |(one, other, ours, theirs): (AttemptId, Option<AttemptId>, CommitId, CommitId)| {
                let paths = sight.outcomes.get(&(ours, theirs))?.clone();
                (!paths.is_empty()).then_some(WorkspaceCollision {
                    attempt: one,
                    other_attempt: other,
                    paths,
                })
            };
        Ok(pairs.into_iter().filter_map(collision).collect())
    }

    /// Captures a workspace for the scan only.
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
                // The sign is computed before the files are read, so that a change in between is
                // noticed by the next scan.
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
                let ignored: BTreeSet<Vec<u8>> = listed
                    .into_iter()
                    .filter_map(|listed| listed.strip_suffix(b"/").map(<[u8]>::to_vec))
                    .collect();
                let sign = fingerprint(&dir, &ignored).unwrap_or_default();
                let tree = self.write_scan_tree(repo, attempt, vault, (&base, objects))?;
                let changed = self
                    .git
                    .in_vault(vault, "list what a workspace changed")
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
                let by = Authorship {
                    name: String::new(),
                    email: String::new(),
                    message: "radar".into(),
                    unix_seconds: 0,
                };
                let commit = self
                    .git
                    .in_vault(vault, "note what a workspace holds")
                    .without_sync()
                    .object_dirs(objects, &vault.join("objects"))
                    .authorship(&by)
                    .args(["commit-tree", "-p", base.as_str(), tree.as_str()])
                    .input(by.message.clone().into_bytes())
                    .run_for_object()?;
                Ok(Some(WorkspaceScan {
                    fingerprint: sign,
                    ignored_dirs: ignored,
                    commit,
                    base,
                    changed: changed.into_iter().collect(),
                }))
            })
    }

    /// Returns the pairs of commits to merge, those whose sides changed the same path: two
    /// attempts, or an attempt and the trunk.
    #[expect(
        clippy::type_complexity,
        reason = "a row of a table that only the caller reads"
    )]
    fn overlapping_pairs(
        &self,
        vault: &Path,
        seen: &BTreeMap<AttemptId, WorkspaceScan>,
        tip: &CommitId,
    ) -> Result<Vec<(AttemptId, Option<AttemptId>, CommitId, CommitId)>, GitError> {
        let mut pairs = Vec::new();
        let mut trunk: BTreeMap<CommitId, BTreeSet<Vec<u8>>> = BTreeMap::new();
        for (one, mine) in seen {
            if mine.changed.is_empty() {
                continue;
            }
            for (other, theirs) in seen.range(*one..).skip(1) {
                if overlap(&mine.changed, &theirs.changed) {
                    pairs.push((
                        *one,
                        Some(*other),
                        mine.commit.clone(),
                        theirs.commit.clone(),
                    ));
                }
            }
            if mine.base == *tip {
                continue;
            }
            if !trunk.contains_key(&mine.base) {
                let moved = self.with_object_store(vault, |odb| {
                    let (old, new) = (odb.commit(&mine.base)?.tree, odb.commit(tip)?.tree);
                    crate::tree_diff::TreeDiff::between(odb, Some(&old), &new)
                })?;
                trunk.insert(mine.base.clone(), moved.files.into_keys().collect());
            }
            if trunk
                .get(&mine.base)
                .is_some_and(|trunk| overlap(&mine.changed, trunk))
            {
                pairs.push((*one, None, tip.clone(), mine.commit.clone()));
            }
        }
        Ok(pairs)
    }

    /// Merges each pair, and returns the conflicting paths.
    fn merge_pairs(
        &self,
        vault: &Path,
        objects: &Path,
        pairs: &[(CommitId, CommitId)],
    ) -> Result<Vec<Vec<String>>, GitError> {
        const OPERATION: &str = "merge work in progress";
        if pairs.is_empty() {
            return Ok(Vec::new());
        }
        let asked: String = pairs
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
        let said = call.input(asked.into()).run_expecting_success()?;
        let mut parts = said.stdout.split(|byte| *byte == 0);
        let mut outcomes = Vec::new();
        for _ in pairs {
            // For each pair: a clean flag, the tree, the paths, and an empty field.
            let (Some(clean), Some(_tree)) = (parts.next(), parts.next()) else {
                return Err(errors::unexpected(OPERATION));
            };
            let paths: Vec<Vec<u8>> = parts
                .by_ref()
                .take_while(|parts| !parts.is_empty())
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

/// Returns whether two sets of paths share a path, or one has a file where the other has a
/// directory.
fn overlap(one: &BTreeSet<Vec<u8>>, other: &BTreeSet<Vec<u8>>) -> bool {
    let under = |paths: &BTreeSet<Vec<u8>>, path: &Vec<u8>| {
        let inner = [path.as_slice(), b"/"].concat();
        paths.contains(path)
            || paths
                .range(inner.clone()..)
                .next()
                .is_some_and(|paths| paths.starts_with(&inner))
    };
    one.iter().any(|one| under(other, one)) || other.iter().any(|other| under(one, other))
}

/// Returns a number that changes when a file changes, or nothing if the directory cannot be read.
fn fingerprint(top: &Path, ignored: &BTreeSet<Vec<u8>>) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    let mut entries = 0;
    let mut left = vec![Vec::new()];
    while let Some(prefix) = left.pop() {
        let mut here: u64 = 0;
        for entry in fs::read_dir(top.join(path_from_bytes(&prefix)))
            .ok()?
            .flatten()
        {
            let path = [prefix.as_slice(), entry.file_name().as_bytes()].concat();
            if path == b".git" || ignored.contains(&path) {
                continue;
            }
            entries += 1;
            let Ok(found) = entry.metadata() else {
                continue;
            };
            let mut of = DefaultHasher::new();
            (&path, found.mode()).hash(&mut of);
            if found.is_dir() {
                left.push([path.as_slice(), b"/"].concat());
            } else {
                (
                    found.ino(),
                    found.size(),
                    found.mtime(),
                    found.mtime_nsec(),
                    found.ctime(),
                    found.ctime_nsec(),
                )
                    .hash(&mut of);
            }
            // The order in which a directory lists its entries is irrelevant.
            here = here.wrapping_add(of.finish());
        }
        (prefix, here).hash(&mut hasher);
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
