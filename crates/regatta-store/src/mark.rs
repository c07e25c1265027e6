//! The high-water mark: a small file beside a store that says which revision the store must have
//! reached (D10).
//!
//! SQLite cannot tell a store that lost its log from a store in which nothing happened. The mark
//! can: it names the store, a revision that must be in it, and, while commits may be in the log
//! alone, the log. The thread of `checkpoint.rs` writes it beside the commits and never inside one,
//! so the mark lags by a moment and is never ahead.
//!
//! The commits of that moment are counted by [`Reached`], a second file that every commit
//! overwrites without waiting for the disk. It survives a kill. After a power cut it may be old,
//! and then only the mark counts.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use regatta_engine::ports::store::StoreError;
use rusqlite::{Connection, OptionalExtension};
use serde::{Deserialize, Serialize};

use crate::wal::LogState;
use crate::words::{self, Fault};
use crate::{commit, files};

/// The largest number of restarts that a log may have had since the mark named it. The log of
/// another store has a random number.
const MAX_LOG_RESTARTS: u32 = 1 << 16;

/// The facts about a store that are kept outside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    /// The store's name, as [`identity`] returns it.
    pub(crate) store: String,
    /// A revision that the store has reached.
    pub(crate) revision: u64,
    /// The first salt of the log, if commits may be in the log alone. `None` means that the store
    /// has all of them.
    pub(crate) log: Option<u32>,
}

/// The reason why a store is not the one that its mark describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mismatch {
    /// The file is another store.
    Other,
    /// The store is older than it was.
    Behind { found: u64, expected: u64 },
    /// The log is missing, or belongs to another store.
    NoLog,
    /// Commits in the log cannot be read.
    BrokenLog,
}

/// Compares a store with its mark. `store` and `revision` are the store's own.
pub(crate) fn compare(mark: &Mark, store: &str, revision: u64, log: LogState) -> Result<(), Mismatch> {
    if !mark.store.is_empty() && !store.is_empty() && mark.store != store {
        return Err(Mismatch::Other);
    }
    match (mark.log, log) {
        (_, LogState::Present { is_broken: true, .. }) => return Err(Mismatch::BrokenLog),
        (Some(named), LogState::Present { salt, .. }) if salt.wrapping_sub(named) <= MAX_LOG_RESTARTS => {}
        (Some(_), _) | (None, LogState::Garbled) => return Err(Mismatch::NoLog),
        (None, LogState::Absent | LogState::Present { .. }) => {}
    }
    if revision < mark.revision {
        return Err(Mismatch::Behind { found: revision, expected: mark.revision });
    }
    Ok(())
}

/// Returns the name of a store, which is empty for a store of an older schema.
pub(crate) fn identity(connection: &Connection) -> Result<String, Fault> {
    let named = "SELECT 1 FROM sqlite_schema WHERE name = 'identity'";
    if !connection.prepare_cached(named)?.exists([])? {
        return Ok(String::new());
    }
    let name = connection.prepare_cached("SELECT name FROM identity")?.query_row([], |row| row.get(0)).optional()?;
    Ok(name.unwrap_or_default())
}

/// Returns the file of the mark of the store at `path`.
pub(crate) fn file(path: &Path) -> PathBuf {
    files::beside(path, ".mark")
}

/// Reads the mark of the store at `path`, if it has one. Stores of older versions have none. The
/// returned revision is the highest one that is known to have been reached.
pub(crate) fn read(path: &Path) -> Result<Option<Mark>, StoreError> {
    let file = file(path);
    let mut mark: Mark = match fs::read(&file) {
        Ok(text) => serde_json::from_slice(&text).map_err(|cause| words::bad_mark(&file, &cause))?,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(words::io("read", &file, &cause)),
    };
    mark.revision = mark.revision.max(Reached::read(path, &mark.store));
    Ok(Some(mark))
}

/// The file with the revision of the last commit. Its length is fixed, and every commit overwrites
/// it.
#[derive(Debug)]
pub(crate) struct Reached {
    file: File,
    store: String,
}

impl Reached {
    /// Opens the file of the store at `path` and writes the store's own revision into it.
    pub(crate) fn open(path: &Path, store: String, revision: u64) -> io::Result<Reached> {
        let name = Reached::file(path);
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&name)?;
        files::make_private(&name)?;
        let reached = Reached { file, store };
        let line = reached.line(revision);
        // Overwriting the content needs no space on a full disk.
        reached.file.write_all_at(line.as_bytes(), 0)?;
        reached.file.set_len(line.len() as u64)?;
        Ok(reached)
    }

    /// Records a commit. This costs one write to memory, because nothing is synced.
    pub(crate) fn note(&self, revision: u64) -> io::Result<()> {
        self.file.write_all_at(self.line(revision).as_bytes(), 0)
    }

    /// Returns the content of the file, which has the same length for every revision.
    fn line(&self, revision: u64) -> String {
        format!("{} {revision:020}\n", self.store)
    }

    /// Returns the revision that the file names for `store`. Returns 0 if the file is missing,
    /// unreadable or another store's, because the file can only raise the revision of the mark.
    fn read(path: &Path, store: &str) -> u64 {
        let text = fs::read_to_string(Reached::file(path)).unwrap_or_default();
        let of_store = text.strip_prefix(store).and_then(|rest| rest.strip_prefix(' '));
        of_store.and_then(|revision| revision.trim_end().parse().ok()).unwrap_or(0)
    }

    fn file(path: &Path) -> PathBuf {
        files::beside(path, ".reached")
    }
}

/// Writes the mark of the store at `path`, whole or not at all.
pub(crate) fn write(path: &Path, mark: &Mark) -> io::Result<()> {
    let (file, nascent) = (file(path), files::beside(path, ".mark.new"));
    files::create_private(&nascent)?;
    fs::OpenOptions::new().write(true).open(&nascent)?.write_all(&serde_json::to_vec(mark)?)?;
    files::settle(&nascent, &file)
}

/// Writes the mark of a store to which nobody commits, with its last revision. The mark names no
/// log.
pub(crate) fn write_complete(connection: &Connection, path: &Path) -> Result<(), Fault> {
    let mark = Mark { store: identity(connection)?, revision: commit::revisions(connection)?.0, log: None };
    write(path, &mark).map_err(|cause| words::io("write", &file(path), &cause).into())
}

/// Refuses a store that is not the one of its mark, or has not reached the mark's revision.
pub(crate) fn verify(connection: &Connection, path: &Path, log: LogState) -> Result<(), Fault> {
    let Some(mark) = read(path)? else { return Ok(()) };
    let (store, revision) = (identity(connection)?, commit::revisions(connection)?.0);
    compare(&mark, &store, revision, log).map_err(|mismatch| words::mismatched(path, &mismatch).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d10_a_store_is_compared_with_its_mark() {
        let mark = |log| Mark { store: "a".into(), revision: 10, log };
        let log = |salt| LogState::Present { salt, is_broken: false };
        let behind = |found| Err(Mismatch::Behind { found, expected: 10 });
        for (named, store, revision, found, expected) in [
            // Every commit was in the store itself.
            (None, "a", 10, LogState::Absent, Ok(())),
            (None, "a", 10, log(7), Ok(())),
            (None, "a", 99, log(7), Ok(())),
            (None, "a", 9, LogState::Absent, behind(9)),
            (None, "a", 0, LogState::Absent, behind(0)),
            (None, "", 0, LogState::Absent, behind(0)),
            (None, "b", 99, LogState::Absent, Err(Mismatch::Other)),
            (None, "a", 10, LogState::Garbled, Err(Mismatch::NoLog)),
            // Commits were in the log.
            (Some(5), "a", 10, log(5), Ok(())),
            (Some(5), "a", 12, log(6), Ok(())),
            (Some(u32::MAX), "a", 12, log(1), Ok(())),
            (Some(5), "a", 12, log(4), Err(Mismatch::NoLog)),
            (Some(5), "a", 12, log(1 << 20), Err(Mismatch::NoLog)),
            (Some(5), "a", 12, LogState::Absent, Err(Mismatch::NoLog)),
            (Some(5), "a", 12, LogState::Garbled, Err(Mismatch::NoLog)),
            (Some(5), "a", 9, log(5), behind(9)),
            (Some(5), "a", 12, LogState::Present { salt: 5, is_broken: true }, Err(Mismatch::BrokenLog)),
        ] {
            let what = format!("{named:?} {store} {revision} {found:?}");
            assert_eq!(compare(&mark(named), store, revision, found), expected, "{what}");
        }
        let new = Mark { store: "a".into(), revision: 0, log: None };
        assert_eq!(compare(&new, "a", 3, log(5)), Ok(()), "the mark of a new store allows any revision");
    }
}
