//! Defines the names and access rights of the store's files, and renames files so that a power cut
//! cannot lose them.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Returns the directory that contains a file.
pub(crate) fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(path) if !path.as_os_str().is_empty() => path,
        _ => Path::new("."),
    }
}

/// Returns the path with a suffix added to the file's name, such as `regatta.db-wal`.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Returns the directory in which a store's automatic backups are kept.
pub(crate) fn backups_dir(path: &Path) -> PathBuf {
    directory_of(path).join("backups")
}

/// Creates the directory for a store's automatic backups, which only its owner can access.
pub(crate) fn create_backups_dir(path: &Path) -> io::Result<PathBuf> {
    let directory = backups_dir(path);
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&directory)?;
    Ok(directory)
}

/// Creates an empty file that only its owner may read, regardless of the umask. First removes an
/// existing file of that name, which only a crash of this program can have left.
pub(crate) fn create_private(path: &Path) -> io::Result<()> {
    remove_with_log(path)?;
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    make_private(path)
}

/// Changes a file's mode so that only its owner can access it.
pub(crate) fn make_private(path: &Path) -> io::Result<()> {
    if path.metadata()?.permissions().mode() & 0o777 != 0o600 {
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
    }
    Ok(())
}

/// Removes an unfinished database that this program was building, together with its write-ahead
/// log.
pub(crate) fn remove_with_log(path: &Path) -> io::Result<()> {
    for file in [
        with_suffix(path, "-wal"),
        with_suffix(path, "-shm"),
        with_suffix(path, "-journal"),
        path.to_owned(),
    ] {
        match fs::remove_file(file) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(cause),
            _ => {}
        }
    }
    Ok(())
}

/// Renames a finished file and waits for the disk. Even after a power cut, the renamed file exists
/// either completely or not at all.
pub(crate) fn rename_durably(from: &Path, to: &Path) -> io::Result<()> {
    File::open(from)?.sync_all()?;
    fs::rename(from, to)?;
    sync_directory(directory_of(to))
}

/// Waits until the names in a directory are on the disk.
pub(crate) fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Returns whether a file exists and is not empty.
pub(crate) fn has_content(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.len() > 0)
}

/// Returns whether the disk of a directory has no space for even a few pages of SQLite.
pub(crate) fn is_disk_full(directory: &Path) -> bool {
    rustix::fs::statvfs(directory)
        .is_ok_and(|stat| stat.f_bavail.saturating_mul(stat.f_frsize) < 64 * 1024)
}

/// Returns whether the directory exists but this process may not write to it.
pub(crate) fn is_read_only(directory: &Path) -> bool {
    use rustix::fs::{Access, access};
    access(directory, Access::EXISTS).is_ok() && access(directory, Access::WRITE_OK).is_err()
}
