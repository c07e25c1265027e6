//! Copies untracked files from the user's checkout into a workspace, such as `.env` and caches,
//! because a new clone lacks them. The setting `workspace.copy` names the files.
//!
//! - Files are copied by reflink where the file system supports it (two files share their content
//!   until one is written), otherwise byte by byte.
//! - Only files that git itself calls untracked in the checkout are copied. A path that the base
//!   commit tracks and anything called `.git` are never copied.
//! - No symbolic link is followed (invariant S6). A link to a target inside the checkout is copied
//!   as a link, and a link that leads out of the checkout is not copied. Every directory on a path
//!   is opened separately, so that a symbolic link in the path is noticed.
//! - Copied files are not part of the agent's work. A list in Regatta's data directory names the
//!   copied files, and Regatta leaves them out when it stores the agent's work, even if somebody
//!   changes `.gitignore`. The list is written before the files are copied, so that even after a
//!   crash no secret is stored as work.

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use regatta_core::ids::{AttemptId, CommitId};
use regatta_core::pattern::PathPattern;
use regatta_engine::ports::git::{CopiedFiles, GitError, ProjectRepo};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};

use crate::git_command::{join_nul, path_from_bytes, path_to_text, split_nul};
use crate::{GitAdapter, disk, errors};

/// The largest number of files that are copied into one workspace. If more files match, a pattern
/// in the settings is probably wrong.
const MAX_FILES: u64 = 200_000;
const MAX_BYTES: u64 = 16 << 30;
/// The largest number of copied paths that are listed in the exclude file of the workspace's own
/// `.git`. All copied paths, also those above this number, are left out when the workspace's files
/// are stored as the agent's work.
const MAX_EXCLUDED_PATHS: usize = 1_000;
/// The largest number of paths that the result lists as not copied.
const MAX_NAMED_PATHS: usize = 20;

/// A file or symbolic link to copy.
pub(crate) enum CopyItem {
    File { path: Vec<u8>, size: u64 },
    Link { path: Vec<u8>, target: PathBuf },
}

impl CopyItem {
    pub(crate) fn path(&self) -> &[u8] {
        match self {
            CopyItem::File { path, .. } | CopyItem::Link { path, .. } => path,
        }
    }
}

impl GitAdapter {
    /// Returns the files to copy into a checkout of `base`, together with a reader of the user's
    /// checkout. Returns `None` if the user has no checkout.
    pub(crate) fn files_to_copy(
        &self,
        repo: &ProjectRepo,
        vault: &Path,
        base: &CommitId,
    ) -> Result<Option<(CheckoutReader, Vec<CopyItem>, CopiedFiles)>, GitError> {
        let user = self.discover_at(&repo.path)?;
        if user.is_bare {
            return Ok(None); // there is no checkout to copy from
        }
        let list = self
            .git
            .in_vault(vault, "list the files of the base commit");
        let tracked: HashSet<Vec<u8>> = list
            .args(["ls-tree", "-r", "--name-only", "-z", base.as_str()])
            .run_for_list()?
            .into_iter()
            .collect();
        let mut source = CheckoutReader::open(&user.top)?;
        let mut copied = CopiedFiles::default();
        let mut items = Vec::new();
        for path in self.matching_untracked(repo, &user.top)? {
            if tracked.contains(&path) || !self.may_copy(&user.top, &path) {
                continue;
            }
            match source.item_at(path)? {
                Ok(item) => {
                    if let CopyItem::File { size, .. } = &item {
                        copied.bytes += size;
                    }
                    items.push(item);
                }
                Err(path) if copied.skipped.len() < MAX_NAMED_PATHS => {
                    copied.skipped.push(path_to_text(&path))
                }
                Err(_) => {}
            }
        }
        copied.files = items.len() as u64;
        if copied.files > MAX_FILES || copied.bytes > MAX_BYTES {
            return Err(errors::too_much_to_copy(
                copied.files,
                copied.bytes,
                MAX_FILES,
                MAX_BYTES,
            ));
        }
        Ok(Some((source, items, copied)))
    }

    /// Returns the untracked files in the user's checkout that match the project's patterns.
    fn matching_untracked(&self, repo: &ProjectRepo, top: &Path) -> Result<Vec<Vec<u8>>, GitError> {
        let call = self
            .git
            .in_checkout(top, "list your untracked files")
            .args(["ls-files", "--others", "-z", "--"]);
        let call = repo.workspace.copy.iter().fold(call, |call, pattern| {
            // In Regatta's patterns a bracket is a plain character, but in git's patterns it begins
            // a character class, so escape it.
            let text = pattern.as_str().replace('\\', "\\\\").replace('[', "\\[");
            call.arg(format!(":(top,glob){text}"))
        });
        Ok(split_nul(&call.run_expecting_success()?.stdout))
    }

    /// Returns whether a file at this path may be copied, judged by the names in the path. For
    /// example, nothing called `.git` is copied.
    fn may_copy(&self, top: &Path, path: &[u8]) -> bool {
        let path = path_from_bytes(path);
        let is_plain = path.components().all(|component| match component {
            Component::Normal(name) => !name.as_bytes().eq_ignore_ascii_case(b".git"),
            _ => false,
        });
        // Regatta's data directory may lie inside the checkout and must not be copied.
        is_plain
            && !path.starts_with(".regatta")
            && !top.join(path).starts_with(self.layout.data_dir())
    }

    /// Adds paths to the list of the workspace's files that are not the agent's work. Leaves out
    /// paths that match `manifest`.
    pub(crate) fn add_foreign_paths(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        paths: impl Iterator<Item = Vec<u8>>,
        manifest: &[PathPattern],
    ) -> Result<(), GitError> {
        let is_in_manifest = |path: &[u8]| {
            manifest
                .iter()
                .any(|pattern| pattern.matches(&path_to_text(path)))
        };
        let known = self.foreign_paths(repo, attempt)?;
        let all: BTreeSet<Vec<u8>> = known
            .iter()
            .cloned()
            .chain(paths.filter(|path| !is_in_manifest(path)))
            .collect();
        if all.len() == known.len() {
            return Ok(());
        }
        let list = self.layout.foreign_list(&repo.project, attempt);
        let temporary = list.with_extension("foreign-new");
        disk::write_synced(&temporary, &join_nul(all.iter().map(Vec::as_slice)))?;
        disk::rename_synced(&temporary, &list)
    }

    /// Reads the list of the workspace's files that are not the agent's work.
    pub(crate) fn foreign_paths(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
    ) -> Result<HashSet<Vec<u8>>, GitError> {
        let list = self.layout.foreign_list(&repo.project, attempt);
        match fs::read(&list) {
            Ok(bytes) => Ok(split_nul(&bytes).into_iter().collect()),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(HashSet::new()),
            Err(cause) => Err(errors::io_error(
                "read the list of files that are not the agent's work",
                &list,
                &cause,
            )),
        }
    }

    /// Writes the copied paths into the exclude file of the workspace's own git, so that the
    /// agent's `git status` does not list the copied files as new.
    pub(crate) fn exclude_foreign_paths(
        &self,
        repo: &ProjectRepo,
        attempt: AttemptId,
        tree: &Path,
    ) -> Result<(), GitError> {
        let foreign: BTreeSet<Vec<u8>> = self.foreign_paths(repo, attempt)?.into_iter().collect();
        let info = tree.join(".git").join("info");
        if foreign.len() > MAX_EXCLUDED_PATHS
            || !disk::is_real_dir(&tree.join(".git"))
            || !disk::is_real_dir(&info)
        {
            return Ok(());
        }
        let mut text = b".regatta/\n".to_vec();
        for path in foreign.iter().filter(|path| !path.contains(&b'\n')) {
            text.push(b'/');
            for byte in path {
                if b"*?[\\ ".contains(byte) {
                    text.push(b'\\');
                }
                text.push(*byte);
            }
            text.push(b'\n');
        }
        let temporary = disk::hidden_sibling(tree, ".copy");
        disk::remove_tree(&temporary)?;
        disk::write_unsynced(&temporary, &text)?;
        disk::rename_synced(&temporary, &info.join("exclude"))
    }
}

/// Reads files from the user's checkout. Opens each directory on a path separately, so that no
/// symbolic link is followed.
pub(crate) struct CheckoutReader {
    top: PathBuf,
    fd: OwnedFd,
    /// The directory that was opened last. It stays open, because the paths are sorted and the next
    /// path is often in the same directory.
    last_dir: Option<(Vec<u8>, OwnedFd)>,
}

impl CheckoutReader {
    fn open(top: &Path) -> Result<CheckoutReader, GitError> {
        let fd = open_dir(CWD, top.as_os_str(), OFlags::empty())
            .map_err(|cause| errors::io_error("open the directory", top, &cause))?;
        Ok(CheckoutReader {
            top: top.to_owned(),
            fd,
            last_dir: None,
        })
    }

    /// Returns the opened directory that contains `path`, and the name of the file in it. Returns
    /// an error if the path leads through a symbolic link.
    fn parent<'a>(&mut self, path: &'a [u8]) -> io::Result<(&OwnedFd, &'a OsStr)> {
        let (dir, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => (&path[..slash], &path[slash + 1..]),
            None => (&[][..], path),
        };
        let name = OsStr::from_bytes(name);
        if dir.is_empty() {
            return Ok((&self.fd, name));
        }
        if self
            .last_dir
            .as_ref()
            .is_none_or(|(last_path, _)| last_path != dir)
        {
            let mut current: Option<OwnedFd> = None;
            for part in dir.split(|byte| *byte == b'/') {
                let part = OsStr::from_bytes(part);
                let parent = current.as_ref().unwrap_or(&self.fd);
                current = Some(open_dir(parent, part, OFlags::NOFOLLOW)?);
            }
            self.last_dir = current.map(|fd| (dir.to_vec(), fd));
        }
        match &self.last_dir {
            Some((_, fd)) => Ok((fd, name)),
            None => Ok((&self.fd, name)),
        }
    }

    /// Returns the file or link at `path`. If the path must not be copied, returns the path itself
    /// as the inner error.
    fn item_at(&mut self, path: Vec<u8>) -> Result<Result<CopyItem, Vec<u8>>, GitError> {
        if path.ends_with(b"/") {
            return Ok(Err(path)); // a nested repository
        }
        let found = self.parent(&path).and_then(|(dir, name)| {
            let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
            Ok(match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => Some((u64::try_from(stat.st_size).unwrap_or(0), None)),
                FileType::Symlink => {
                    let target = rustix::fs::readlinkat(dir, name, Vec::new())?;
                    Some((0, Some(PathBuf::from(OsStr::from_bytes(target.as_bytes())))))
                }
                _ => None,
            })
        });
        match found {
            Ok(Some((size, None))) => Ok(Ok(CopyItem::File { path, size })),
            Ok(Some((_, Some(target))))
                if is_link_target_inside(path_from_bytes(&path), &target) =>
            {
                Ok(Ok(CopyItem::Link { path, target }))
            }
            Ok(_) => Ok(Err(path)),
            // The file was removed since it was listed, or replaced by a symbolic link, so it is
            // not copied.
            Err(cause) if is_outside_or_gone(&cause) => Ok(Err(path)),
            Err(cause) => Err(errors::io_error(
                "read the metadata of",
                &self.top.join(path_from_bytes(&path)),
                &cause,
            )),
        }
    }

    /// Copies files and links into the directory `tree`, and adds the paths that could not be copied
    /// to `copied`.
    pub(crate) fn copy_all(
        &mut self,
        items: &[CopyItem],
        tree: &Path,
        copied: &mut CopiedFiles,
    ) -> Result<(), GitError> {
        for item in items {
            if !self.copy(item, tree)? && copied.skipped.len() < MAX_NAMED_PATHS {
                copied.skipped.push(path_to_text(item.path()));
            }
        }
        disk::remove_tree(&disk::hidden_sibling(tree, ".copy"))
    }

    /// Copies a file or link into the directory `tree`, unless something already exists at its
    /// path. Returns `false` if the item could not be copied for another reason.
    fn copy(&mut self, item: &CopyItem, tree: &Path) -> Result<bool, GitError> {
        let path = path_from_bytes(item.path()).to_owned();
        let (from, to) = (self.top.join(&path), tree.join(&path));
        if !create_parent_dirs(tree, &path)? {
            return Ok(false);
        }
        if disk::is_occupied(&to) {
            return Ok(true);
        }
        let temporary = disk::hidden_sibling(tree, ".copy");
        disk::remove_tree(&temporary)?;
        let to_error = |cause: io::Error| errors::io_error("copy the file", &from, &cause);
        match item {
            CopyItem::Link { target, .. } => symlink(target, &temporary).map_err(to_error)?,
            CopyItem::File { path, .. } => match self
                .parent(path)
                .and_then(|(dir, name)| copy_file(dir, name, &temporary))
            {
                Ok(()) => {}
                Err(cause) if is_outside_or_gone(&cause) => return Ok(false),
                Err(cause) => return Err(to_error(cause)),
            },
        }
        fs::rename(&temporary, &to).map_err(to_error)?;
        Ok(true)
    }
}

fn is_outside_or_gone(cause: &io::Error) -> bool {
    use rustix::io::Errno;
    let gone = [Errno::NOENT, Errno::NOTDIR, Errno::LOOP, Errno::MLINK];
    cause
        .raw_os_error()
        .is_some_and(|code| gone.iter().any(|errno| errno.raw_os_error() == code))
}

fn open_dir(
    parent: impl std::os::fd::AsFd,
    name: &OsStr,
    extra_flags: OFlags,
) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | extra_flags;
    Ok(rustix::fs::openat(parent, name, flags, Mode::empty())?)
}

fn copy_file(dir: &OwnedFd, name: &OsStr, to: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let from = File::from(rustix::fs::openat(dir, name, flags, Mode::empty())?);
    let metadata = from.metadata()?;
    if !metadata.is_file() {
        return Err(rustix::io::Errno::NOTDIR.into()); // it was a plain file a moment ago
    }
    let mut copy = File::options().write(true).create_new(true).open(to)?;
    if rustix::fs::ioctl_ficlone(&copy, &from).is_err() {
        // The file may grow while it is read. Only as many bytes are copied as were counted against
        // the limit.
        io::copy(&mut (&from).take(metadata.len()), &mut copy)?;
    }
    copy.set_permissions(fs::Permissions::from_mode(
        metadata.permissions().mode() & 0o777,
    ))?;
    copy.set_modified(metadata.modified()?) // build tools compare times
}

/// Creates the parent directories of `path` in the directory `tree`. Returns `false` if something
/// on the path exists and is not a directory.
fn create_parent_dirs(tree: &Path, path: &Path) -> Result<bool, GitError> {
    let mut current = tree.to_owned();
    for part in path.parent().into_iter().flat_map(Path::components) {
        current.push(part);
        if disk::is_real_dir(&current) {
            continue;
        }
        if disk::is_occupied(&current) {
            return Ok(false);
        }
        fs::create_dir(&current)
            .map_err(|cause| errors::io_error("create the directory", &current, &cause))?;
    }
    Ok(true)
}

/// Returns whether the target of a symbolic link stays inside the checkout. Compares only the texts
/// of `target` and of the link's own path `path`.
fn is_link_target_inside(path: &Path, target: &Path) -> bool {
    let mut depth = path.components().count().saturating_sub(1);
    for part in target.components() {
        match part {
            Component::Normal(name) if name.as_bytes().eq_ignore_ascii_case(b".git") => {
                return false;
            }
            Component::Normal(_) => depth += 1,
            Component::CurDir => {}
            Component::ParentDir if depth > 0 => depth -= 1,
            _ => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s6_a_link_that_leads_outside_is_not_copied() {
        for (path, target, is_inside) in [
            ("a", "b", true),
            ("a/b", "../c", true),
            ("a/b", "../../c", false),
            ("a", "/etc/passwd", false),
            ("a", "..", false),
            ("a/b/c", "../../d/../e", true),
            ("a", "x/../../y", false),
            ("a", ".git/config", false),
        ] {
            assert_eq!(
                is_link_target_inside(Path::new(path), Path::new(target)),
                is_inside,
                "{path} -> {target}"
            );
        }
    }
}
