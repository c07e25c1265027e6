//! Prepares staging directories, in which merged work is checked before it lands.
//!
//! A staging directory is reused: to get from one commit to the next, only the files that differ
//! are written. A check (such as a build) may leave files behind and may change existing files.
//! Therefore every file is examined, and everything that is not in the commit is removed, including
//! ignored files. An unchanged file is recognised by its inode, size and times on the disk. A file
//! that was written so recently that another change could have the same time is written again.
//!
//! If git would convert files at a checkout (line endings, encodings, `$Id$`), git checks out
//! everything anew.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use regatta_core::ids::{CommitId, ProjectName};
use regatta_engine::ports::git::{CopiedFiles, GitError, ProjectRepo, StagingGit};

use crate::git_command::path_from_bytes;
use crate::gitdir::{self, HeadTarget};
use crate::layout::LockKey;
use crate::object_store::{GITLINK, ObjectStore, raw_bytes};
use crate::tree_diff::{TreeDiff, TreeFile};
use crate::workspace::NewTree;
use crate::{GitAdapter, disk, errors};

/// Names one staging directory (in which merged work is checked) by its project and its number.
type SlotKey = (ProjectName, u32);

/// The contents of the staging directories, as this process wrote them. A new process knows nothing
/// about their contents.
#[derive(Debug, Default)]
pub(crate) struct StagedSlots(Mutex<HashMap<SlotKey, StagedTree>>);

/// The largest number of files in a project whose staging directory is updated file by file. In a
/// larger project, git checks out all files each time, because the list of files would take too
/// much memory.
const MAX_TRACKED_FILES: usize = 200_000;

/// The age from which the last change of a file is certain. This age is longer than the resolution
/// of the timestamps of any file system, so a later change gives the file a different time.
const TIMESTAMP_MARGIN: Duration = Duration::from_millis(50);

/// The files in a staging directory, and the id of the git tree that they come from.
#[derive(Debug)]
struct StagedTree {
    tree: CommitId,
    files: BTreeMap<Vec<u8>, StagedFile>,
}

/// A file in a staging directory, as it was when it was written.
#[derive(Debug)]
struct StagedFile {
    file: TreeFile,
    stamp: StagedFileStamp,
    /// True if the current examination of the directory found this file unchanged on the disk.
    is_unchanged: AtomicBool,
}

impl StagedFile {
    fn new(file: TreeFile, stamp: StagedFileStamp) -> StagedFile {
        StagedFile {
            file,
            stamp,
            is_unchanged: AtomicBool::new(false),
        }
    }
}

/// A file's metadata, which change whenever somebody changes the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct StagedFileStamp {
    device: u64,
    inode: u64,
    mode: u32,
    size: u64,
    owner: (u32, u32),
    modified: (i64, i64),
    changed: (i64, i64),
    /// True if the file's last change was long ago when this metadata was read, so that any later
    /// change gives the file a different time.
    is_certain: bool,
}

impl StagedFileStamp {
    fn from_metadata(metadata: &fs::Metadata, now: SystemTime) -> StagedFileStamp {
        let before = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default()
            .saturating_sub(TIMESTAMP_MARGIN);
        let changed = (metadata.ctime(), metadata.ctime_nsec());
        StagedFileStamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            mode: metadata.mode(),
            size: metadata.size(),
            owner: (metadata.uid(), metadata.gid()),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed,
            is_certain: changed < (before.as_secs() as i64, i64::from(before.subsec_nanos())),
        }
    }

    fn matches(&self, metadata: &fs::Metadata) -> bool {
        let now = StagedFileStamp {
            is_certain: self.is_certain,
            ..StagedFileStamp::from_metadata(metadata, SystemTime::UNIX_EPOCH)
        };
        self.is_certain && *self == now
    }
}

impl StagingGit for GitAdapter {
    fn stage(&self, repo: &ProjectRepo, slot: u32, commit: &CommitId) -> Result<PathBuf, GitError> {
        self.locks
            .with_lock(LockKey::Slot(repo.project.clone(), slot), || {
                let vault = self.vault_with(repo, commit)?;
                let path = self.layout.staging(&repo.project, slot);
                let key = (repo.project.clone(), slot);
                let staged = self
                    .slots
                    .0
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .remove(&key);
                let updated = match staged.filter(|_| disk::is_real_dir(&path)) {
                    Some(staged) => self.with_object_store(&vault, |odb| {
                        update_staged_tree(odb, &path, staged, commit)
                    })?,
                    None => None,
                };
                let staged = match updated {
                    Some(staged) => {
                        remake_git_dir(&vault, &path, commit, &staged)?;
                        Some(staged)
                    }
                    None => self.stage_from_scratch(repo, &vault, &path, commit)?,
                };
                let index = self.layout.scratch(&repo.project);
                let tree = NewTree {
                    vault: &vault,
                    dir: &path,
                    commit,
                    index: index.path(),
                    sparse: None,
                };
                self.check_out_submodules(repo, &tree)?;
                if let Some(staged) = staged {
                    self.slots
                        .0
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .insert(key, staged);
                }
                Ok(path)
            })
    }

    fn prepare_staging(
        &self,
        repo: &ProjectRepo,
        slot: u32,
        commit: &CommitId,
    ) -> Result<CopiedFiles, GitError> {
        if repo.workspace.copy.is_empty() {
            return Ok(CopiedFiles::default());
        }
        self.locks
            .with_lock(LockKey::Slot(repo.project.clone(), slot), || {
                let vault = self.vault(repo)?;
                let staging_dir = self.layout.staging(&repo.project, slot);
                let Some((mut source, items, mut copied)) =
                    self.files_to_copy(repo, &vault, commit)?
                else {
                    return Ok(CopiedFiles::default());
                };
                source.copy_all(&items, &staging_dir, &mut copied)?;
                Ok(copied)
            })
    }

    fn unstage(&self, repo: &ProjectRepo, from: u32) -> Result<(), GitError> {
        let slots = self.layout.staging(&repo.project, from);
        let Some(dir) = slots.parent() else {
            return Ok(());
        };
        let entries = match fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(cause) => return Err(errors::io_error("read the directory", dir, &cause)),
        };
        let numbers = entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        for slot in numbers.filter(|number| *number >= from).collect::<Vec<_>>() {
            self.locks
                .with_lock(LockKey::Slot(repo.project.clone(), slot), || {
                    self.slots
                        .0
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .remove(&(repo.project.clone(), slot));
                    disk::remove_tree(&self.layout.staging(&repo.project, slot))
                })?;
        }
        Ok(())
    }
}

impl GitAdapter {
    /// Checks the commit out into an empty directory. Returns the directory's content, or `None` if
    /// the directory cannot be updated file by file later.
    fn stage_from_scratch(
        &self,
        repo: &ProjectRepo,
        vault: &Path,
        path: &Path,
        commit: &CommitId,
    ) -> Result<Option<StagedTree>, GitError> {
        disk::remove_tree(path)?;
        let index = self.layout.scratch(&repo.project);
        let tree = NewTree {
            vault,
            dir: path,
            commit,
            index: index.path(),
            sparse: None,
        };
        self.fill_tree(&tree, &HeadTarget::Detached)?;
        self.verify_isolation(path)?;
        self.with_object_store(vault, |odb| {
            let tree = odb.commit(commit)?.tree;
            let files = TreeDiff::between(odb, None, &tree)?.files;
            let files: BTreeMap<_, _> = files
                .into_iter()
                .filter_map(|(path, file)| Some((path, file.1?)))
                .collect();
            if files.len() > MAX_TRACKED_FILES
                || needs_conversion(odb, files.iter().map(|(path, file)| (path, &file.1)))?
            {
                return Ok(None);
            }
            let now = SystemTime::now();
            let mut staged_files = BTreeMap::new();
            for (name, file) in files {
                let stamp = match fs::symlink_metadata(path.join(path_from_bytes(&name))) {
                    Ok(metadata) => StagedFileStamp::from_metadata(&metadata, now),
                    // Without metadata the file counts as changed, so it is written again when the
                    // staging directory is used next.
                    Err(_) => StagedFileStamp::default(),
                };
                staged_files.insert(name, StagedFile::new(file, stamp));
            }
            Ok(Some(StagedTree {
                tree,
                files: staged_files,
            }))
        })
    }
}

/// Returns whether git would convert one of the files at a checkout.
fn needs_conversion<'a>(
    odb: &mut ObjectStore,
    files: impl Iterator<Item = (&'a Vec<u8>, &'a CommitId)>,
) -> Result<bool, GitError> {
    for (path, id) in files {
        let rules = path == b".gitattributes" || path.ends_with(b"/.gitattributes");
        if rules && has_conversion_rule(&odb.blob(id)?) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns whether a `.gitattributes` file contains an attribute that makes git convert files at a
/// checkout. No other attribute makes git convert files, because git runs with Regatta's own
/// configuration.
fn has_conversion_rule(rules: &[u8]) -> bool {
    let text = String::from_utf8_lossy(rules).to_ascii_lowercase();
    ["crlf", "ident", "working-tree-encoding"]
        .iter()
        .any(|rule| text.contains(rule))
}

/// Updates a staging directory from its old content to the commit. Returns `None` if git must check
/// out the whole directory again.
fn update_staged_tree(
    odb: &mut ObjectStore,
    dir: &Path,
    mut staged: StagedTree,
    commit: &CommitId,
) -> Result<Option<StagedTree>, GitError> {
    let tree = odb.commit(commit)?.tree;
    let difference = TreeDiff::between(odb, Some(&staged.tree), &tree)?;
    for (path, (_, after)) in &difference.files {
        match after {
            Some(file) => {
                let stamp = StagedFileStamp::default(); // unknown, so the file is written
                staged
                    .files
                    .insert(path.clone(), StagedFile::new(file.clone(), stamp));
            }
            None => drop(staged.files.remove(path)),
        }
    }
    let rules = difference
        .files
        .iter()
        .filter_map(|(path, file)| Some((path, &file.1.as_ref()?.1)));
    if staged.files.len() > MAX_TRACKED_FILES || needs_conversion(odb, rules)? {
        return Ok(None);
    }
    let missing = remove_changed(dir, &mut staged.files)?;
    for path in &missing {
        let Some(staged_file) = staged.files.get(path) else {
            continue;
        };
        write_file(odb, &dir.join(path_from_bytes(path)), &staged_file.file)?;
    }
    let now = SystemTime::now();
    for path in missing {
        if let Some(staged_file) = staged.files.get_mut(&path)
            && let Ok(metadata) = fs::symlink_metadata(dir.join(path_from_bytes(&path)))
        {
            staged_file.stamp = StagedFileStamp::from_metadata(&metadata, now);
        }
    }
    staged.tree = tree;
    Ok(Some(staged))
}

/// Removes from the directory `top` everything that is not in `files`, and every file that has
/// changed since it was written. Returns the paths of the files that must be written again.
///
/// Several threads examine the files, because this examination takes most of the time that is
/// needed to prepare a staging directory.
fn remove_changed(
    top: &Path,
    files: &mut BTreeMap<Vec<u8>, StagedFile>,
) -> Result<Vec<Vec<u8>>, GitError> {
    let sweep = Sweep {
        top,
        files,
        queued_dirs: Mutex::new(vec![Vec::new()]),
        unfinished_dirs: AtomicUsize::new(1),
    };
    let thread_count = std::thread::available_parallelism()
        .map_or(1, |count| count.get())
        .min(MAX_SWEEP_THREADS);
    std::thread::scope(|scope| {
        let helpers: Vec<_> = (1..thread_count)
            .map(|_| scope.spawn(|| sweep.run_sweep()))
            .collect();
        let result = sweep.run_sweep();
        helpers
            .into_iter()
            .map(|thread| thread.join().unwrap_or(Ok(())))
            .fold(result, |combined, outcome| combined.and(outcome))
    })?;
    let is_missing =
        |staged_file: &mut StagedFile| !std::mem::take(staged_file.is_unchanged.get_mut());
    Ok(files
        .iter_mut()
        .filter_map(|(path, staged_file)| is_missing(staged_file).then(|| path.clone()))
        .collect())
}

/// The largest number of threads that examine a directory. More threads would only wait for the
/// same locks in the kernel.
const MAX_SWEEP_THREADS: usize = 4;

/// The state that several threads share while they examine a staging directory.
struct Sweep<'a> {
    top: &'a Path,
    files: &'a BTreeMap<Vec<u8>, StagedFile>,
    /// The directories that no thread has examined yet. The paths end with a slash.
    queued_dirs: Mutex<Vec<Vec<u8>>>,
    /// The number of directories that are queued or being examined. The threads end when this
    /// number is zero.
    unfinished_dirs: AtomicUsize,
}

impl Sweep<'_> {
    /// Examines queued directories until none is left. Several threads run this at the same time.
    fn run_sweep(&self) -> Result<(), GitError> {
        while self.unfinished_dirs.load(Ordering::Acquire) > 0 {
            let next = self
                .queued_dirs
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop();
            let Some(prefix) = next else {
                std::thread::yield_now();
                continue;
            };
            let examined = self.examine_dir(&prefix);
            if examined.is_err() {
                self.unfinished_dirs.store(0, Ordering::Release); // all threads stop
                return examined;
            }
            // Another thread may have set the count to zero because of an error, so the count must
            // not be decremented below zero.
            let _ended =
                self.unfinished_dirs
                    .fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| {
                        count.checked_sub(1)
                    });
        }
        Ok(())
    }

    fn examine_dir(&self, prefix: &[u8]) -> Result<(), GitError> {
        let dir = self.top.join(path_from_bytes(prefix));
        let entries = fs::read_dir(&dir)
            .map_err(|cause| errors::io_error("read the directory", &dir, &cause))?;
        for entry in entries {
            let entry =
                entry.map_err(|cause| errors::io_error("read the directory", &dir, &cause))?;
            let path = [prefix, entry.file_name().as_bytes()].concat();
            if path == b".git" {
                continue; // it is replaced as a whole
            }
            // For a symbolic link, this reads the metadata of the link itself and does not follow
            // the link.
            let metadata = entry
                .metadata()
                .map_err(|cause| errors::io_error("read the metadata of", &entry.path(), &cause))?;
            if let Some(staged_file) = self.files.get(&path) {
                if staged_file.file.0 != GITLINK && staged_file.stamp.matches(&metadata) {
                    staged_file.is_unchanged.store(true, Ordering::Relaxed);
                } else {
                    disk::remove_tree(&entry.path())?;
                }
                continue;
            }
            let inner = [path.as_slice(), b"/"].concat();
            let is_needed = self
                .files
                .range(inner.clone()..)
                .next()
                .is_some_and(|(file, _)| file.starts_with(&inner));
            if is_needed && metadata.is_dir() && metadata.mode() & 0o700 == 0o700 {
                self.unfinished_dirs.fetch_add(1, Ordering::AcqRel);
                self.queued_dirs
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(inner);
            } else {
                disk::remove_tree(&entry.path())?;
            }
        }
        Ok(())
    }
}

/// Writes a file, a symbolic link or the directory of a submodule, in the same way as a checkout by
/// git.
fn write_file(odb: &mut ObjectStore, path: &Path, (mode, id): &TreeFile) -> Result<(), GitError> {
    if let Some(folder) = path.parent() {
        disk::make_dirs(folder)?;
    }
    if *mode == GITLINK {
        // For a submodule, only the directory is created here. The submodule's files are checked
        // out later.
        return disk::make_dirs(path);
    }
    let content = odb.blob(id)?;
    let to_error = |cause| errors::io_error("write the file", path, &cause);
    if *mode == 0o120_000 {
        return std::os::unix::fs::symlink(OsStr::from_bytes(&content), path).map_err(to_error);
    }
    let permissions = if mode & 0o111 == 0 { 0o666 } else { 0o777 };
    let file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(permissions)
        .open(path);
    file.and_then(|mut file| file.write_all(&content))
        .map_err(to_error)
}

/// Replaces the `.git` of a staging directory, because a check may have changed the old one.
fn remake_git_dir(
    vault: &Path,
    dir: &Path,
    commit: &CommitId,
    staged: &StagedTree,
) -> Result<(), GitError> {
    let git_dir = dir.join(".git");
    disk::remove_tree(&git_dir)?;
    gitdir::make_git_dir(&git_dir, vault, commit, &HeadTarget::Detached, None)?;
    disk::write_unsynced(&git_dir.join("index"), &index_bytes(staged))
}

/// Returns the bytes of a git index (version 2) of the directory's content. The checksum at the end
/// is empty, because git does not verify the checksum.
fn index_bytes(staged: &StagedTree) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(staged.files.len() * 100);
    bytes.extend(b"DIRC");
    bytes.extend(2u32.to_be_bytes());
    bytes.extend((staged.files.len() as u32).to_be_bytes());
    for (
        path,
        StagedFile {
            file: (mode, id),
            stamp,
            ..
        },
    ) in &staged.files
    {
        let start = bytes.len();
        let times = [
            stamp.changed.0,
            stamp.changed.1,
            stamp.modified.0,
            stamp.modified.1,
        ];
        let identity = [
            stamp.device,
            stamp.inode,
            u64::from(*mode),
            stamp.owner.0.into(),
            stamp.owner.1.into(),
            stamp.size,
        ];
        // Git's index stores only the lower 32 bits of each time.
        times
            .iter()
            .for_each(|time| bytes.extend((*time as u32).to_be_bytes()));
        identity
            .iter()
            .for_each(|field| bytes.extend((*field as u32).to_be_bytes()));
        bytes.extend(raw_bytes(id));
        bytes.extend((path.len().min(0xfff) as u16).to_be_bytes());
        bytes.extend(path);
        // Each entry is filled up with one to eight NUL bytes, so that its length is a multiple of
        // eight.
        let length = bytes.len() - start;
        bytes.resize(start + (length / 8 + 1) * 8, 0);
    }
    let checksum_bytes = if staged.tree.as_str().len() == 64 {
        32
    } else {
        20
    };
    bytes.resize(bytes.len() + checksum_bytes, 0);
    bytes
}
