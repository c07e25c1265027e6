//! Writes files and directories so that they survive a power cut, and removes files and directories
//! even if they are read-only.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use regatta_engine::ports::git::GitError;

use crate::errors;

/// Writes a file and waits until it is on the disk.
pub(crate) fn write_synced(path: &Path, bytes: &[u8]) -> Result<(), GitError> {
    File::create(path)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .map_err(|cause| errors::io_error("write the file", path, &cause))
}

/// Writes a file without waiting until it is on the disk.
pub(crate) fn write_unsynced(path: &Path, bytes: &[u8]) -> Result<(), GitError> {
    fs::write(path, bytes).map_err(|cause| errors::io_error("write the file", path, &cause))
}

/// Appends bytes to a file without waiting until they are on the disk.
pub(crate) fn append(path: &Path, bytes: &[u8]) -> Result<(), GitError> {
    let file = File::options().append(true).open(path);
    file.and_then(|mut file| file.write_all(bytes))
        .map_err(|cause| errors::io_error("write the file", path, &cause))
}

pub(crate) fn make_dirs(path: &Path) -> Result<(), GitError> {
    fs::create_dir_all(path).map_err(|cause| errors::io_error("create the directory", path, &cause))
}

/// Renames a file or directory, and waits until the new name is on the disk.
pub(crate) fn rename_synced(from: &Path, to: &Path) -> Result<(), GitError> {
    fs::rename(from, to).map_err(|cause| errors::io_error("rename the path", from, &cause))?;
    to.parent().map_or(Ok(()), sync_dir)
}

/// Waits until the names in a directory are on the disk. Git syncs the contents of its files but
/// not their names, so the caller must sync the directory.
pub(crate) fn sync_dir(path: &Path) -> Result<(), GitError> {
    File::open(path)
        .and_then(|file| file.sync_all())
        .map_err(|cause| errors::io_error("flush to the disk the path", path, &cause))
}

/// Waits until the given files and directories are on the disk. Syncs all of them at the same time,
/// which is faster than one after the other.
pub(crate) fn sync_all(paths: impl IntoIterator<Item = PathBuf>) -> Result<(), GitError> {
    const MAX_CONCURRENT_SYNCS: usize = 32;
    let paths: Vec<PathBuf> = paths.into_iter().collect();
    for part in paths.chunks(MAX_CONCURRENT_SYNCS) {
        std::thread::scope(|scope| {
            let threads: Vec<_> = part
                .iter()
                .map(|path| scope.spawn(|| sync_dir(path)))
                .collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().unwrap_or(Ok(())))
        })?;
    }
    Ok(())
}

/// Waits until everything on the file system that contains `path` is on the disk.
///
/// For a tree of many small files, one such wait is far cheaper than a wait for each file.
pub(crate) fn sync_file_system(path: &Path) -> Result<(), GitError> {
    File::open(path)
        .and_then(|file| rustix::fs::syncfs(&file).map_err(io::Error::from))
        .map_err(|cause| errors::io_error("flush to the disk the file system of", path, &cause))
}

/// Waits until the names of all object files in a git directory are on the disk.
///
/// Syncs every directory, because to sync an unchanged directory takes only microseconds, and a
/// record of the changed directories could be wrong.
pub(crate) fn sync_objects(git_dir: &Path) -> Result<(), GitError> {
    let objects = git_dir.join("objects");
    let entries = fs::read_dir(&objects)
        .map_err(|cause| errors::io_error("read the directory", &objects, &cause))?;
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            match sync_dir(&entry.path()) {
                // Git removes an object directory that has become empty. A removed directory need
                // not be synced.
                Err(_) if !entry.path().exists() => {}
                outcome => outcome?,
            }
        }
    }
    sync_dir(&objects)
}

/// Copies a git index, and gives the copy the modification time of the original.
///
/// If the index is newer than a file, git treats the file as unchanged. If the copy were newer than
/// the original, git would miss an edit that was made right after the checkout.
pub(crate) fn copy_index(from: &Path, to: &Path) -> io::Result<()> {
    let time = fs::metadata(from)?.modified()?;
    fs::copy(from, to)?;
    File::options().append(true).open(to)?.set_modified(time)
}

/// Returns whether something exists at `path`, including a symbolic link without a target.
pub(crate) fn is_occupied(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// Returns whether `path` is a directory, and not a link to a directory.
pub(crate) fn is_real_dir(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir())
}

/// Removes a file, or a directory with everything in it, without following symbolic links. Does
/// nothing if the path does not exist.
pub(crate) fn remove_tree(path: &Path) -> Result<(), GitError> {
    let to_error =
        |cause: io::Error| errors::io_error("remove the file or directory", path, &cause);
    match fs::symlink_metadata(path) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(cause) => return Err(to_error(cause)),
        Ok(metadata) if !metadata.is_dir() => return fs::remove_file(path).map_err(to_error),
        Ok(_) => {}
    }
    match fs::remove_dir_all(path) {
        Ok(()) => Ok(()),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound && !is_occupied(path) => Ok(()),
        Err(_) => remove_stubborn_tree(path).map_err(to_error),
    }
}

/// Removes a directory after [`fs::remove_dir_all`] has failed. Agents and package managers make
/// directories read-only, and directories may be nested so deeply that their paths are too long or
/// need too many open files. So this function makes each directory writable and moves its
/// subdirectories to the top, until none are left.
fn remove_stubborn_tree(top: &Path) -> io::Result<()> {
    let make_writable = |dir: &Path| fs::set_permissions(dir, fs::Permissions::from_mode(0o700));
    let mut unused_numbers = 0_u64..;
    make_writable(top)?;
    loop {
        let mut dirs = Vec::new();
        for entry in fs::read_dir(top)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                dirs.push(entry.path())
            } else {
                fs::remove_file(entry.path())?
            }
        }
        if dirs.is_empty() {
            return fs::remove_dir(top);
        }
        for dir in dirs {
            make_writable(&dir)?;
            for entry in fs::read_dir(&dir)? {
                let path = entry?.path();
                if !is_real_dir(&path) {
                    fs::remove_file(&path)?;
                    continue;
                }
                make_writable(&path)?; // moving a directory writes to it
                let unused = unused_numbers
                    .by_ref()
                    .map(|number| top.join(format!(".{number}")))
                    .find(|path| !is_occupied(path));
                unused.map_or(Ok(()), |to| fs::rename(&path, to))?;
            }
            fs::remove_dir(&dir)?;
        }
    }
}

/// Returns the disk space that a directory takes in bytes. The result is only an estimate, because
/// files that cannot be read, or that an agent deletes during the measurement, are not counted.
pub(crate) fn disk_size(top: &Path) -> u64 {
    let mut bytes = 0;
    let mut pending = vec![top.to_path_buf()];
    while let Some(dir) = pending.pop() {
        let Ok(entries) = fs::read_dir(&dir) else {
            continue;
        };
        for entry in entries.flatten() {
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            bytes += metadata.blocks() * 512;
            if metadata.is_dir() {
                pending.push(entry.path());
            }
        }
    }
    bytes
}

/// Returns a path in the same directory as `path`. The file name gets a dot in front and `suffix`
/// at the end.
pub(crate) fn hidden_sibling(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsStr::new(".").to_owned();
    name.push(path.file_name().unwrap_or_default());
    name.push(suffix);
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn copied_index_keeps_the_time_of_the_original() {
        let home = tempfile::tempdir().unwrap();
        let (from, to) = (home.path().join("from"), home.path().join("to"));
        let time = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
        fs::write(&from, "index").unwrap();
        File::options()
            .append(true)
            .open(&from)
            .unwrap()
            .set_modified(time)
            .unwrap();
        copy_index(&from, &to).unwrap();
        assert_eq!(fs::metadata(&to).unwrap().modified().unwrap(), time);
    }

    #[test]
    fn removing_follows_no_link_and_removes_read_only_directories() {
        let home = tempfile::tempdir().unwrap();
        let (tree, outside) = (home.path().join("tree"), home.path().join("outside"));
        fs::create_dir_all(tree.join("locked/deep")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("precious"), "x").unwrap();
        fs::write(tree.join("locked/deep/file"), "x").unwrap();
        std::os::unix::fs::symlink(&outside, tree.join("locked/link")).unwrap();
        fs::set_permissions(tree.join("locked"), fs::Permissions::from_mode(0o500)).unwrap();
        fs::set_permissions(tree.join("locked/deep"), fs::Permissions::from_mode(0o000)).unwrap();
        remove_tree(&tree).unwrap();
        remove_tree(&tree).unwrap();
        assert!(!is_occupied(&tree) && outside.join("precious").exists());

        std::os::unix::fs::symlink(&outside, &tree).unwrap();
        remove_tree(&tree).unwrap();
        assert!(!is_occupied(&tree) && outside.join("precious").exists());
    }

    /// Tests the fallback for users whom file modes restrict. The test calls it directly, because
    /// tests may run as root, whom no mode restricts.
    #[test]
    fn tree_with_read_only_directories_is_dismantled() {
        let home = tempfile::tempdir().unwrap();
        let (tree, outside) = (home.path().join("tree"), home.path().join("outside"));
        fs::create_dir_all(tree.join("a/b/c/d")).unwrap();
        fs::create_dir_all(tree.join(".0/.1/.2")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("precious"), "x").unwrap();
        fs::write(tree.join("a/b/file"), "x").unwrap();
        std::os::unix::fs::symlink(&outside, tree.join("a/b/c/link")).unwrap();
        for locked in ["a/b/c/d", "a/b/c", "a/b", "a", ""] {
            fs::set_permissions(tree.join(locked), fs::Permissions::from_mode(0o500)).unwrap();
        }
        remove_stubborn_tree(&tree).unwrap();
        assert!(!is_occupied(&tree) && outside.join("precious").exists());
    }
}
