//! Finds pipes, sockets and devices in a workspace. Git would read them as files and block for
//! ever.
//!
//! Pipes, sockets and devices have no content, so nothing is lost when Regatta removes them before
//! it stores the workspace's files. Regatta removes only those that git would read. The others
//! stay, because a program that still runs may use them.

use std::collections::HashSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use regatta_engine::ports::git::GitError;

use crate::errors;
use crate::git_command::path_from_bytes;

/// The names of the files that git opens in every directory.
const READ_BY_NAME: [&[u8]; 4] = [
    b".gitignore",
    b".gitattributes",
    b".gitmodules",
    b".mailmap",
];

/// The pipes, sockets and devices in a workspace.
#[derive(Debug, Default)]
pub(crate) struct NonRegularFiles {
    /// The pipes, sockets and devices that git opens because of their names, and those in the git
    /// directory of a nested repository.
    pub(crate) read_by_git: Vec<PathBuf>,
    /// All other pipes, sockets and devices, as paths relative to the top of the workspace.
    pub(crate) others: Vec<Vec<u8>>,
}

impl NonRegularFiles {
    /// Finds the pipes, sockets and devices in the workspace at `top`. Skips the workspace's
    /// `.git`, because Regatta never runs git with this directory.
    pub(crate) fn find_in_tree(top: &Path) -> Result<NonRegularFiles, GitError> {
        let mut found = NonRegularFiles::default();
        let mut pending = vec![(top.to_owned(), false)];
        while let Some((dir, is_in_git)) = pending.pop() {
            let entries = match fs::read_dir(&dir) {
                Ok(entries) => entries,
                // A directory that cannot be read is skipped here. Git reports it later, unless it
                // is ignored by git.
                Err(_) => continue,
            };
            for entry in entries {
                let entry =
                    entry.map_err(|cause| errors::io_error("read the directory", &dir, &cause))?;
                let Ok(kind) = entry.file_type() else {
                    continue;
                };
                let name = entry.file_name();
                if kind.is_dir() {
                    let is_dot_git = name.as_bytes() == b".git";
                    if !(is_dot_git && dir == top) {
                        pending.push((entry.path(), is_in_git || is_dot_git));
                    }
                } else if kind.is_fifo()
                    || kind.is_socket()
                    || kind.is_char_device()
                    || kind.is_block_device()
                {
                    let path = entry.path();
                    if is_in_git
                        || READ_BY_NAME.contains(&name.as_bytes())
                        || name.as_bytes() == b".git"
                    {
                        found.read_by_git.push(path);
                    } else if let Ok(path) = path.strip_prefix(top) {
                        found.others.push(path.as_os_str().as_bytes().to_vec());
                    }
                }
            }
        }
        Ok(found)
    }

    /// Returns the pipes, sockets and devices on which git would block. `tracked` returns the paths
    /// at which git expects a file.
    pub(crate) fn blocking(
        self,
        top: &Path,
        tracked: impl FnOnce() -> Result<HashSet<Vec<u8>>, GitError>,
    ) -> Result<Vec<PathBuf>, GitError> {
        let mut blocking = self.read_by_git;
        if !self.others.is_empty() {
            let tracked = tracked()?;
            blocking.extend(
                self.others
                    .iter()
                    .filter(|path| tracked.contains(*path))
                    .map(|path| top.join(path_from_bytes(path))),
            );
        }
        Ok(blocking)
    }
}
