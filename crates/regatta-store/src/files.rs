//! Names, modes and durable renames of the files beside the store.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The directory a file is in.
pub(crate) fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(it) if !it.as_os_str().is_empty() => it,
        _ => Path::new("."),
    }
}

/// The name with something appended: `regatta.db-wal`.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Where a store's own backups are.
pub(crate) fn backups(path: &Path) -> PathBuf {
    directory(path).join("backups")
}

/// Makes that directory, for its owner only.
pub(crate) fn make_backups(path: &Path) -> io::Result<PathBuf> {
    let directory = backups(path);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
    Ok(directory)
}

/// Creates an empty file that only its owner may read, whatever the umask says. A leftover of a crash under
/// that name (it is a name of ours) goes first.
pub(crate) fn create_private(path: &Path) -> io::Result<()> {
    remove_all(path)?;
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    make_private(path)
}

/// Takes everybody else's access to a file away.
pub(crate) fn make_private(path: &Path) -> io::Result<()> {
    if path.metadata()?.permissions().mode() & 0o777 != 0o600 {
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
    }
    Ok(())
}

/// Removes a database of ours that never became one, with its log.
pub(crate) fn remove_all(path: &Path) -> io::Result<()> {
    for it in [beside(path, "-wal"), beside(path, "-shm"), beside(path, "-journal"), path.to_owned()] {
        match fs::remove_file(it) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(cause),
            _ => {}
        }
    }
    Ok(())
}

/// Puts a finished file into its place: it is there whole, or not at all, also after the power was cut.
pub(crate) fn settle(from: &Path, to: &Path) -> io::Result<()> {
    File::open(from)?.sync_all()?;
    fs::rename(from, to)?;
    sync(directory(to))
}

/// Makes a directory's entries durable.
pub(crate) fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Whether a file is there and has something in it.
pub(crate) fn has_content(path: &Path) -> bool {
    path.metadata().is_ok_and(|it| it.len() > 0)
}

/// Whether a directory's disk has no room for even a few pages.
pub(crate) fn is_full(directory: &Path) -> bool {
    rustix::fs::statvfs(directory).is_ok_and(|it| it.f_bavail.saturating_mul(it.f_frsize) < 64 * 1024)
}

/// Whether this process may not write to a directory that is there.
pub(crate) fn is_read_only(directory: &Path) -> bool {
    use rustix::fs::{Access, access};
    access(directory, Access::EXISTS).is_ok() && access(directory, Access::WRITE_OK).is_err()
}
