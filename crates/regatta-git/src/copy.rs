//! Copies untracked files of the user's checkout into a workspace: `.env`, caches, everything that
//! `git clone` leaves behind.
//!
//! - Files are copied by reflink where the file system supports it (two files share their content
//!   until one is written), otherwise byte by byte.
//! - Only files that git itself calls untracked there are copied; never a path that the base
//!   tracks, and never anything called `.git`.
//! - No link is followed (S6). A link that stays inside is copied as a link; a link that leads out
//!   is left out. Every directory on the way is opened separately, refusing links.
//! - Copied files are not the attempt's work. A list beside the vault names them, and captures
//!   leave them out even if somebody changes `.gitignore`. The list is written first, so that a
//!   crash captures no secret.

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
use regatta_engine::ports::git::{Brought, GitError, Repo};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};

use crate::places::Key;
use crate::run::{join, path_of, split, text_of};
use crate::vault::base_ref;
use crate::{GitAdapter, disk, words};

/// The limits for one workspace. More files or bytes are a mistake in a pattern.
const MOST_FILES: u64 = 200_000;
const MOST_BYTES: u64 = 16 << 30;
/// The largest number of paths that are excluded in the workspace's own `.git`. Captures leave out
/// further paths all the same.
const MOST_EXCLUDED: usize = 1_000;
/// The largest number of left-out paths that are named.
const MOST_NAMED: usize = 20;

/// A file or link to copy.
enum Item {
    File { path: Vec<u8>, size: u64 },
    Link { path: Vec<u8>, to: PathBuf },
}

impl Item {
    fn path(&self) -> &[u8] {
        match self {
            Item::File { path, .. } | Item::Link { path, .. } => path,
        }
    }
}

impl GitAdapter {
    /// Copies the project's untracked files into an attempt's workspace.
    pub(crate) fn bring_files(
        &self,
        repo: &Repo,
        attempt: AttemptId,
        manifest: &[PathPattern],
    ) -> Result<Brought, GitError> {
        if repo.workspace.copy.is_empty() {
            return Ok(Brought::default());
        }
        self.locks.holding(Key::Attempt(repo.project.clone(), attempt), || {
            let vault = self.vault(repo)?;
            let to = self.places.workspace(&repo.project, attempt);
            let base = self.find(&vault, &base_ref(attempt))?.filter(|_| disk::is_real_dir(&to));
            let Some(base) = base else { return Err(words::no_workspace(attempt, &to)) };
            let Some((mut source, items, mut brought)) = self.to_bring(repo, &vault, &base)? else {
                return Ok(Brought::default());
            };
            let foreign = items.iter().map(|it| it.path().to_vec());
            self.add_foreign(repo, attempt, foreign, manifest)?;
            self.overlook(repo, attempt, &to)?;
            for item in &items {
                if !source.copy(item, &to)? && brought.left_out.len() < MOST_NAMED {
                    brought.left_out.push(text_of(item.path()));
                }
            }
            disk::remove(&disk::hidden(&to, ".copy"))?;
            Ok(brought)
        })
    }

    /// Copies the same files into the directory of a slot, which contains `commit`. The next
    /// staging removes them.
    pub(crate) fn furnish_stage(&self, repo: &Repo, slot: u32, commit: &CommitId) -> Result<Brought, GitError> {
        if repo.workspace.copy.is_empty() {
            return Ok(Brought::default());
        }
        self.locks.holding(Key::Slot(repo.project.clone(), slot), || {
            let vault = self.vault(repo)?;
            let to = self.places.staging(&repo.project, slot);
            let Some((mut source, items, mut brought)) = self.to_bring(repo, &vault, commit)? else {
                return Ok(Brought::default());
            };
            for item in &items {
                if !source.copy(item, &to)? && brought.left_out.len() < MOST_NAMED {
                    brought.left_out.push(text_of(item.path()));
                }
            }
            disk::remove(&disk::hidden(&to, ".copy"))?;
            Ok(brought)
        })
    }

    /// Returns the files to copy to a checkout of `base`, and their source, or nothing if the user
    /// has no checkout.
    fn to_bring(
        &self,
        repo: &Repo,
        vault: &Path,
        base: &CommitId,
    ) -> Result<Option<(Source, Vec<Item>, Brought)>, GitError> {
        let user = self.discover_at(&repo.path)?;
        if user.bare {
            return Ok(None); // there is no checkout to copy from
        }
        let list = self.git.ours(vault, "list the base's files");
        let tracked: HashSet<Vec<u8>> =
            list.args(["ls-tree", "-r", "--name-only", "-z", base.as_str()]).list()?.into_iter().collect();
        let mut source = Source::open(&user.top)?;
        let mut brought = Brought::default();
        let mut items = Vec::new();
        for path in self.untracked_of(repo, &user.top)? {
            if tracked.contains(&path) || !self.may_leave(&user.top, &path) {
                continue;
            }
            match source.look(path)? {
                Ok(item) => {
                    if let Item::File { size, .. } = &item {
                        brought.bytes += size;
                    }
                    items.push(item);
                }
                Err(path) if brought.left_out.len() < MOST_NAMED => brought.left_out.push(text_of(&path)),
                Err(_) => {}
            }
        }
        brought.files = items.len() as u64;
        if brought.files > MOST_FILES || brought.bytes > MOST_BYTES {
            return Err(words::too_much_to_copy(brought.files, brought.bytes, MOST_FILES, MOST_BYTES));
        }
        Ok(Some((source, items, brought)))
    }

    /// Returns the untracked files of the user's checkout that match the project's patterns.
    fn untracked_of(&self, repo: &Repo, top: &Path) -> Result<Vec<Vec<u8>>, GitError> {
        let call = self.git.users(top, "list your untracked files").args(["ls-files", "--others", "-z", "--"]);
        let call = repo.workspace.copy.iter().fold(call, |call, pattern| {
            // Brackets are plain characters in Regatta's patterns, but character classes in git's.
            let text = pattern.as_str().replace('\\', "\\\\").replace('[', "\\[");
            call.arg(format!(":(top,glob){text}"))
        });
        Ok(split(&call.done()?.stdout))
    }

    /// Returns whether a path may be copied at all, by its name.
    fn may_leave(&self, top: &Path, path: &[u8]) -> bool {
        let path = path_of(path);
        let plain = path.components().all(|it| match it {
            Component::Normal(name) => !name.as_bytes().eq_ignore_ascii_case(b".git"),
            _ => false,
        });
        // Regatta's own data may lie inside the checkout.
        plain && !path.starts_with(".regatta") && !top.join(path).starts_with(self.places.data())
    }

    /// Adds to the list of the workspace's paths that are not its attempt's work.
    fn add_foreign(
        &self,
        repo: &Repo,
        attempt: AttemptId,
        paths: impl Iterator<Item = Vec<u8>>,
        manifest: &[PathPattern],
    ) -> Result<(), GitError> {
        let named = |path: &[u8]| manifest.iter().any(|it| it.matches(&text_of(path)));
        let known = self.foreign(repo, attempt)?;
        let all: BTreeSet<Vec<u8>> = known.iter().cloned().chain(paths.filter(|it| !named(it))).collect();
        if all.len() == known.len() {
            return Ok(());
        }
        let list = self.places.foreign(&repo.project, attempt);
        let new = list.with_extension("foreign-new");
        disk::write(&new, &join(all.iter().map(Vec::as_slice)))?;
        disk::rename(&new, &list)
    }

    /// Reads the list of the workspace's paths that are not its attempt's work.
    pub(crate) fn foreign(&self, repo: &Repo, attempt: AttemptId) -> Result<HashSet<Vec<u8>>, GitError> {
        let list = self.places.foreign(&repo.project, attempt);
        match fs::read(&list) {
            Ok(bytes) => Ok(split(&bytes).into_iter().collect()),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(HashSet::new()),
            Err(cause) => Err(words::io("read", &list, &cause)),
        }
    }

    /// Excludes these paths in the workspace's own git, so that `git status` is clean there at
    /// first.
    fn overlook(&self, repo: &Repo, attempt: AttemptId, tree: &Path) -> Result<(), GitError> {
        let foreign: BTreeSet<Vec<u8>> = self.foreign(repo, attempt)?.into_iter().collect();
        let info = tree.join(".git").join("info");
        if foreign.len() > MOST_EXCLUDED || !disk::is_real_dir(&tree.join(".git")) || !disk::is_real_dir(&info) {
            return Ok(());
        }
        let mut text = b".regatta/\n".to_vec();
        for path in foreign.iter().filter(|it| !it.contains(&b'\n')) {
            text.push(b'/');
            for byte in path {
                if b"*?[\\ ".contains(byte) {
                    text.push(b'\\');
                }
                text.push(*byte);
            }
            text.push(b'\n');
        }
        let new = disk::hidden(tree, ".copy");
        disk::remove(&new)?;
        disk::write_unhurried(&new, &text)?;
        disk::rename(&new, &info.join("exclude"))
    }

    /// Records that a workspace is ready, and lists its new files as not the attempt's work.
    pub(crate) fn settle_workspace(
        &self,
        repo: &Repo,
        attempt: AttemptId,
        manifest: &[PathPattern],
    ) -> Result<(), GitError> {
        self.locks.holding(Key::Attempt(repo.project.clone(), attempt), || {
            let tree = self.places.workspace(&repo.project, attempt);
            let vault = self.vault(repo)?;
            let made = self.new_files(repo, attempt, &vault)?;
            self.add_foreign(repo, attempt, made.into_iter(), manifest)?;
            self.overlook(repo, attempt, &tree)?;
            disk::sync_everything(&tree)?;
            let settled = self.places.settled(&repo.project, attempt);
            disk::write(&settled, b"")?;
            settled.parent().map_or(Ok(()), disk::sync_dir)
        })
    }
}

/// The user's checkout, read directory by directory.
struct Source {
    top: PathBuf,
    fd: OwnedFd,
    /// The directory of the last path. Paths are sorted, so most share it with the one before.
    last: Option<(Vec<u8>, OwnedFd)>,
}

impl Source {
    fn open(top: &Path) -> Result<Source, GitError> {
        let fd = open_dir(CWD, top.as_os_str(), OFlags::empty()).map_err(|cause| words::io("open", top, &cause))?;
        Ok(Source { top: top.to_owned(), fd, last: None })
    }

    /// Returns the opened directory of `path`, and the name in it. Fails if a link is on the way.
    fn parent<'a>(&mut self, path: &'a [u8]) -> io::Result<(&OwnedFd, &'a OsStr)> {
        let (dir, name) = match path.iter().rposition(|it| *it == b'/') {
            Some(at) => (&path[..at], &path[at + 1..]),
            None => (&[][..], path),
        };
        let name = OsStr::from_bytes(name);
        if dir.is_empty() {
            return Ok((&self.fd, name));
        }
        if self.last.as_ref().is_none_or(|it| it.0 != dir) {
            let mut at: Option<OwnedFd> = None;
            for part in dir.split(|it| *it == b'/') {
                let part = OsStr::from_bytes(part);
                at = Some(open_dir(at.as_ref().unwrap_or(&self.fd), part, OFlags::NOFOLLOW)?);
            }
            self.last = at.map(|it| (dir.to_vec(), it));
        }
        match &self.last {
            Some((_, fd)) => Ok((fd, name)),
            None => Ok((&self.fd, name)),
        }
    }

    /// Returns the item at `path`, or gives the path back if it must be left out.
    fn look(&mut self, path: Vec<u8>) -> Result<Result<Item, Vec<u8>>, GitError> {
        if path.ends_with(b"/") {
            return Ok(Err(path)); // a nested repository
        }
        let found = self.parent(&path).and_then(|(dir, name)| {
            let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
            Ok(match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => Some((u64::try_from(stat.st_size).unwrap_or(0), None)),
                FileType::Symlink => {
                    let to = rustix::fs::readlinkat(dir, name, Vec::new())?;
                    Some((0, Some(PathBuf::from(OsStr::from_bytes(to.as_bytes())))))
                }
                _ => None,
            })
        });
        match found {
            Ok(Some((size, None))) => Ok(Ok(Item::File { path, size })),
            Ok(Some((_, Some(to)))) if stays_inside(path_of(&path), &to) => Ok(Ok(Item::Link { path, to })),
            Ok(_) => Ok(Err(path)),
            // The file was removed, or replaced by a link.
            Err(cause) if is_elsewhere(&cause) => Ok(Err(path)),
            Err(cause) => Err(words::io("look at", &self.top.join(path_of(&path)), &cause)),
        }
    }

    /// Copies one item into `tree`, unless it exists there. Returns `false` if it was left out.
    fn copy(&mut self, item: &Item, tree: &Path) -> Result<bool, GitError> {
        let path = path_of(item.path()).to_owned();
        let (from, to) = (self.top.join(&path), tree.join(&path));
        if !make_way(tree, &path)? {
            return Ok(false);
        }
        if disk::occupied(&to) {
            return Ok(true);
        }
        let part = disk::hidden(tree, ".copy");
        disk::remove(&part)?;
        let failed = |cause: io::Error| words::io("copy", &from, &cause);
        match item {
            Item::Link { to: target, .. } => symlink(target, &part).map_err(failed)?,
            Item::File { path, .. } => match self.parent(path).and_then(|(dir, name)| copy_file(dir, name, &part)) {
                Ok(()) => {}
                Err(cause) if is_elsewhere(&cause) => return Ok(false),
                Err(cause) => return Err(failed(cause)),
            },
        }
        fs::rename(&part, &to).map_err(failed)?;
        Ok(true)
    }
}

fn is_elsewhere(cause: &io::Error) -> bool {
    use rustix::io::Errno;
    let gone = [Errno::NOENT, Errno::NOTDIR, Errno::LOOP, Errno::MLINK];
    cause.raw_os_error().is_some_and(|code| gone.iter().any(|it| it.raw_os_error() == code))
}

fn open_dir(at: impl std::os::fd::AsFd, name: &OsStr, more: OFlags) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | more;
    Ok(rustix::fs::openat(at, name, flags, Mode::empty())?)
}

fn copy_file(dir: &OwnedFd, name: &OsStr, to: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let from = File::from(rustix::fs::openat(dir, name, flags, Mode::empty())?);
    let about = from.metadata()?;
    if !about.is_file() {
        return Err(rustix::io::Errno::NOTDIR.into()); // it was a plain file a moment ago
    }
    let mut new = File::options().write(true).create_new(true).open(to)?;
    if rustix::fs::ioctl_ficlone(&new, &from).is_err() {
        // The file may grow while it is read; only its counted size is copied.
        io::copy(&mut (&from).take(about.len()), &mut new)?;
    }
    new.set_permissions(fs::Permissions::from_mode(about.permissions().mode() & 0o777))?;
    new.set_modified(about.modified()?) // build tools compare times
}

/// Creates the directories for `path` in `tree`. Returns `false` if something on the way is not a
/// directory.
fn make_way(tree: &Path, path: &Path) -> Result<bool, GitError> {
    let mut at = tree.to_owned();
    for part in path.parent().into_iter().flat_map(Path::components) {
        at.push(part);
        if disk::is_real_dir(&at) {
            continue;
        }
        if disk::occupied(&at) {
            return Ok(false);
        }
        fs::create_dir(&at).map_err(|cause| words::io("create", &at, &cause))?;
    }
    Ok(true)
}

/// Returns whether the target `to` of a link at `path` stays in the checkout, judged by its
/// spelling.
fn stays_inside(path: &Path, to: &Path) -> bool {
    let mut depth = path.components().count().saturating_sub(1);
    for part in to.components() {
        match part {
            Component::Normal(name) if name.as_bytes().eq_ignore_ascii_case(b".git") => return false,
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
        for (path, to, inside) in [
            ("a", "b", true),
            ("a/b", "../c", true),
            ("a/b", "../../c", false),
            ("a", "/etc/passwd", false),
            ("a", "..", false),
            ("a/b/c", "../../d/../e", true),
            ("a", "x/../../y", false),
            ("a", ".git/config", false),
        ] {
            assert_eq!(stays_inside(Path::new(path), Path::new(to)), inside, "{path} -> {to}");
        }
    }
}
