//! The mark: a small file beside a store that names a revision (event number). The store must be
//! complete up to this event (D10).
//!
//! SQLite cannot tell a store that lost its write-ahead log from a store in which nothing happened.
//! The mark can tell them apart. The mark names the store and a revision that the store must have
//! reached. It also names the log while the log may have changes that the store file lacks. The
//! thread of `checkpoint.rs` writes the mark after changes were stored, and never as part of a
//! transaction. The mark may therefore be a little older than the store, but is never newer.
//!
//! [`ReachedFile`] is a second file, which records the changes since the last mark. Every
//! transaction overwrites this file without waiting for the disk. The file is correct even after
//! the daemon was killed. After a power cut the file may be too old, and then only the mark counts.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use regatta_engine::ports::store::StoreError;
use rusqlite::{Connection, OptionalExtension};
use serde::{Deserialize, Serialize};

use crate::errors::{self, StoreFault};
use crate::wal::LogState;
use crate::{commit, store_files};

/// The largest number of times that the write-ahead log may have started again since the mark named
/// the log. The mark is the file that says up to which event the store must be complete. The log's
/// salt (its identifying number) rises by one at each restart, while the log of another store has a
/// random salt.
const MAX_LOG_RESTARTS: u32 = 1 << 16;

/// The contents of the mark, a file beside the store that says up to which event the store must be
/// complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HighWaterMark {
    /// The random name of the store, as [`store_identity`] returns it.
    pub(crate) store: String,
    /// A revision (event number) that the store must have reached.
    pub(crate) revision: u64,
    /// The first salt (the identifying number) of the write-ahead log, if the log may have changes
    /// that the store file lacks. `None` means that the store file contains all changes.
    pub(crate) log: Option<u32>,
}

/// The ways in which a store can differ from the description in its mark (the file that says up to
/// which event the store must be complete).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MarkMismatch {
    /// The file at the store's path is a different store.
    OtherStore,
    /// The store has only the revision (event number) `found`. Its mark, the file that says up to
    /// which event the store must be complete, says that the store had already reached `expected`.
    OlderStore { found: u64, expected: u64 },
    /// The store's write-ahead log is missing, or belongs to another store.
    LogMissing,
    /// The write-ahead log is damaged, so stored changes in it cannot be read.
    BrokenLog,
}

/// Compares a store with its mark (the file that says up to which event the store must be
/// complete). `store`, `revision` and `log` describe the store as it was found.
pub(crate) fn compare_mark(
    mark: &HighWaterMark,
    store: &str,
    revision: u64,
    log: LogState,
) -> Result<(), MarkMismatch> {
    if !mark.store.is_empty() && !store.is_empty() && mark.store != store {
        return Err(MarkMismatch::OtherStore);
    }
    match (mark.log, log) {
        (
            _,
            LogState::Present {
                is_broken: true, ..
            },
        ) => return Err(MarkMismatch::BrokenLog),
        (Some(named), LogState::Present { salt, .. })
            if salt.wrapping_sub(named) <= MAX_LOG_RESTARTS => {}
        (Some(_), _) | (None, LogState::InvalidHeader) => return Err(MarkMismatch::LogMissing),
        (None, LogState::Absent | LogState::Present { .. }) => {}
    }
    if revision < mark.revision {
        return Err(MarkMismatch::OlderStore {
            found: revision,
            expected: mark.revision,
        });
    }
    Ok(())
}

/// Returns the random name of a store. The name is empty for a store of an older schema, which has
/// no name.
pub(crate) fn store_identity(connection: &Connection) -> Result<String, StoreFault> {
    let identity_table = "SELECT 1 FROM sqlite_schema WHERE name = 'identity'";
    if !connection.prepare_cached(identity_table)?.exists([])? {
        return Ok(String::new());
    }
    let name = connection
        .prepare_cached("SELECT name FROM identity")?
        .query_row([], |row| row.get(0))
        .optional()?;
    Ok(name.unwrap_or_default())
}

/// Returns the path of the mark (the file that says up to which event the store must be complete)
/// of the store at `path`.
pub(crate) fn mark_file(path: &Path) -> PathBuf {
    store_files::with_suffix(path, ".mark")
}

/// Reads the mark (the file that says up to which event the store must be complete) of the store at
/// `path`. Returns `None` if there is no mark, as for stores of older versions. The result has the
/// higher of two revisions (event numbers): the one in the mark and the one in the [`ReachedFile`].
pub(crate) fn read_mark(path: &Path) -> Result<Option<HighWaterMark>, StoreError> {
    let file = mark_file(path);
    let mut mark: HighWaterMark = match fs::read(&file) {
        Ok(text) => {
            serde_json::from_slice(&text).map_err(|cause| errors::bad_mark(&file, &cause))?
        }
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(errors::io_error("read the file", &file, &cause)),
    };
    mark.revision = mark.revision.max(ReachedFile::read(path, &mark.store));
    Ok(Some(mark))
}

/// A file beside a store that contains the store's last revision (event number). The file has a
/// fixed length, and every transaction overwrites its content.
#[derive(Debug)]
pub(crate) struct ReachedFile {
    file: File,
    store: String,
}

impl ReachedFile {
    /// Opens the file for the store at `path`, creates it if necessary, and writes the store's
    /// current revision (event number) into it.
    pub(crate) fn open(path: &Path, store: String, revision: u64) -> io::Result<ReachedFile> {
        let name = ReachedFile::path_of(path);
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&name)?;
        store_files::make_private(&name)?;
        let reached = ReachedFile { file, store };
        let line = reached.file_content(revision);
        // The old content is overwritten in place, which needs no free space on a full disk.
        reached.file.write_all_at(line.as_bytes(), 0)?;
        reached.file.set_len(line.len() as u64)?;
        Ok(reached)
    }

    /// Writes the revision (event number) of a transaction into the file. This is fast, because the
    /// write is not synced to the disk.
    pub(crate) fn record(&self, revision: u64) -> io::Result<()> {
        self.file
            .write_all_at(self.file_content(revision).as_bytes(), 0)
    }

    /// Returns the content of the file for a revision (event number). The content has the same
    /// length for every revision.
    fn file_content(&self, revision: u64) -> String {
        format!("{} {revision:020}\n", self.store)
    }

    /// Returns the revision (event number) in the file for `store`. Returns 0 if the file is
    /// missing, cannot be read or belongs to another store. This is safe, because the file can only
    /// raise the revision of the mark (the file that says up to which event the store must be
    /// complete).
    fn read(path: &Path, store: &str) -> u64 {
        let text = fs::read_to_string(ReachedFile::path_of(path)).unwrap_or_default();
        let rest_of_line = text
            .strip_prefix(store)
            .and_then(|rest| rest.strip_prefix(' '));
        rest_of_line
            .and_then(|revision| revision.trim_end().parse().ok())
            .unwrap_or(0)
    }

    fn path_of(path: &Path) -> PathBuf {
        store_files::with_suffix(path, ".reached")
    }
}

/// Writes the mark (the file that says up to which event the store must be complete) of the store
/// at `path`. The file is replaced completely or not at all.
pub(crate) fn write_mark(path: &Path, mark: &HighWaterMark) -> io::Result<()> {
    let (file, temporary) = (mark_file(path), store_files::with_suffix(path, ".mark.new"));
    store_files::create_private(&temporary)?;
    fs::OpenOptions::new()
        .write(true)
        .open(&temporary)?
        .write_all(&serde_json::to_vec(mark)?)?;
    store_files::rename_durably(&temporary, &file)
}

/// Writes the mark of a store that is not in use, with the store's last revision (event number).
/// This mark names no write-ahead log. The mark is the file that says up to which event the store
/// must be complete.
pub(crate) fn write_complete_mark(connection: &Connection, path: &Path) -> Result<(), StoreFault> {
    let mark = HighWaterMark {
        store: store_identity(connection)?,
        revision: commit::revisions(connection)?.0,
        log: None,
    };
    write_mark(path, &mark)
        .map_err(|cause| errors::io_error("write the file", &mark_file(path), &cause).into())
}

/// Compares the store with its mark (the file that says up to which event the store must be
/// complete). Returns an error if they differ, for example because the store ends too early.
pub(crate) fn verify_mark(
    connection: &Connection,
    path: &Path,
    log: LogState,
) -> Result<(), StoreFault> {
    let Some(mark) = read_mark(path)? else {
        return Ok(());
    };
    let (store, revision) = (
        store_identity(connection)?,
        commit::revisions(connection)?.0,
    );
    compare_mark(&mark, &store, revision, log)
        .map_err(|mismatch| errors::mark_mismatch(path, &mismatch).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d10_a_store_is_compared_with_its_mark() {
        let mark = |log| HighWaterMark {
            store: "a".into(),
            revision: 10,
            log,
        };
        let present = |salt| LogState::Present {
            salt,
            is_broken: false,
        };
        let older_store = |revision| {
            Err(MarkMismatch::OlderStore {
                found: revision,
                expected: 10,
            })
        };
        for (named_salt, store, revision, log_state, expected) in [
            // Every commit was in the store itself.
            (None, "a", 10, LogState::Absent, Ok(())),
            (None, "a", 10, present(7), Ok(())),
            (None, "a", 99, present(7), Ok(())),
            (None, "a", 9, LogState::Absent, older_store(9)),
            (None, "a", 0, LogState::Absent, older_store(0)),
            (None, "", 0, LogState::Absent, older_store(0)),
            (
                None,
                "b",
                99,
                LogState::Absent,
                Err(MarkMismatch::OtherStore),
            ),
            (
                None,
                "a",
                10,
                LogState::InvalidHeader,
                Err(MarkMismatch::LogMissing),
            ),
            // Commits were in the log.
            (Some(5), "a", 10, present(5), Ok(())),
            (Some(5), "a", 12, present(6), Ok(())),
            (Some(u32::MAX), "a", 12, present(1), Ok(())),
            (Some(5), "a", 12, present(4), Err(MarkMismatch::LogMissing)),
            (
                Some(5),
                "a",
                12,
                present(1 << 20),
                Err(MarkMismatch::LogMissing),
            ),
            (
                Some(5),
                "a",
                12,
                LogState::Absent,
                Err(MarkMismatch::LogMissing),
            ),
            (
                Some(5),
                "a",
                12,
                LogState::InvalidHeader,
                Err(MarkMismatch::LogMissing),
            ),
            (Some(5), "a", 9, present(5), older_store(9)),
            (
                Some(5),
                "a",
                12,
                LogState::Present {
                    salt: 5,
                    is_broken: true,
                },
                Err(MarkMismatch::BrokenLog),
            ),
        ] {
            let case = format!("{named_salt:?} {store} {revision} {log_state:?}");
            assert_eq!(
                compare_mark(&mark(named_salt), store, revision, log_state),
                expected,
                "{case}"
            );
        }
        let new_mark = HighWaterMark {
            store: "a".into(),
            revision: 0,
            log: None,
        };
        assert_eq!(
            compare_mark(&new_mark, "a", 3, present(5)),
            Ok(()),
            "the mark of a new store allows any revision"
        );
    }
}
