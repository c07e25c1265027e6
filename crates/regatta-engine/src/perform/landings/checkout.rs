//! Watches the files in the user's checkout whose local changes block a landing, and notifies the
//! queue when one of these files changes.
//!
//! Without this watch, the landing would be tried again only at its retry time, and would show an
//! outdated reason until then. Watching takes a few system calls per interval. The watched files
//! are not stored: after a restart of the daemon, these landings are tried again at their retry
//! time.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use regatta_core::command::Report;
use regatta_core::ids::LandingId;

use crate::Engine;
use crate::perform::POLL_INTERVAL;

/// A file's metadata, which change whenever somebody writes, replaces, creates or removes the file.
/// `None` means that the file does not exist.
type WatchedFileStamp = Option<(u64, u64, i64, i64)>;

fn file_stamp(path: &Path) -> WatchedFileStamp {
    fs::symlink_metadata(path).ok().map(|metadata| {
        (
            metadata.ino(),
            metadata.size(),
            metadata.mtime(),
            metadata.mtime_nsec(),
        )
    })
}

/// The files to watch: the files that block a landing (finished work of one task), and the files
/// that git writes when a person commits or stashes.
pub(super) struct WatchedFiles {
    files: Vec<PathBuf>,
    stamps: Vec<WatchedFileStamp>,
}

impl WatchedFiles {
    pub(super) fn new(top: &Path, paths: &[String]) -> WatchedFiles {
        let git_files = [".git/index", ".git/HEAD"]
            .iter()
            .map(|name| top.join(name));
        let files: Vec<PathBuf> = paths
            .iter()
            .map(|path| top.join(path))
            .chain(git_files)
            .collect();
        let stamps = files.iter().map(|file| file_stamp(file)).collect();
        WatchedFiles { files, stamps }
    }

    fn has_changed(&self) -> bool {
        self.files
            .iter()
            .map(|file| file_stamp(file))
            .ne(self.stamps.iter().copied())
    }
}

/// Watches the files until they block none of these landings (finished work of one task each) any
/// longer. When a file changes, asks the queue to try the landings again.
pub(super) fn watch_files(engine: &Engine, landings: Vec<LandingId>, watched: WatchedFiles) {
    let engine_clone = engine.clone();
    engine.spawn_thread("checkout", move || {
        while !engine_clone.is_stopping() {
            let board = engine_clone.board();
            let is_held = |id: &&LandingId| {
                board
                    .landings
                    .get(*id)
                    .is_some_and(|landing| landing.held.is_some())
            };
            let held: Vec<LandingId> = landings.iter().filter(is_held).copied().collect();
            if held.is_empty() {
                return;
            }
            if watched.has_changed() {
                for landing in held {
                    let report = Report::CheckoutChanged { landing };
                    if let Err(error) = engine_clone.report(report) {
                        tracing::debug!(%landing, "a file of the user's checkout that \
                            blocked landing {landing} has changed, but the queue could not be \
                            notified; the landing is tried again at its retry time: {error}");
                    }
                }
                return;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_of_a_file_or_the_index_is_noticed() {
        let home = tempfile::tempdir().unwrap();
        let top = home.path();
        fs::create_dir(top.join(".git")).unwrap();
        fs::write(top.join(".git/index"), "1").unwrap();
        fs::write(top.join("a.txt"), "mine").unwrap();
        let paths = ["a.txt".to_owned(), "new.txt".to_owned()];
        let changes: [(&str, &dyn Fn()); 4] = [
            ("edited", &|| {
                fs::write(top.join("a.txt"), "mine again").unwrap()
            }),
            ("removed", &|| fs::remove_file(top.join("a.txt")).unwrap()),
            ("made", &|| fs::write(top.join("new.txt"), "").unwrap()),
            ("staged", &|| {
                fs::write(top.join(".git/index"), "23").unwrap()
            }),
        ];
        for (description, change) in changes {
            let watched = WatchedFiles::new(top, &paths);
            assert!(
                !watched.has_changed(),
                "a change was noticed before the file was {description}"
            );
            change();
            assert!(watched.has_changed(), "{description}");
        }
        let watched = WatchedFiles::new(top, &paths);
        fs::write(top.join("other.txt"), "x").unwrap();
        assert!(
            !watched.has_changed(),
            "a change of another file was noticed"
        );
    }
}
