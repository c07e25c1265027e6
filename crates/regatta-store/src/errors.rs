//! Defines the errors of this crate and their messages for people, and translates SQLite's errors.

use std::io;
use std::path::{Path, PathBuf};

use regatta_engine::ports::store::{StoreError, UnreadableRow};
use rusqlite::ErrorCode;

use crate::store_files;
use crate::store_mark::MarkMismatch;

/// An error inside this crate. [`StoreFault::into_error`] adds the name of the file and the
/// operation to the message for people.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreFault {
    #[error("{0}")]
    Sqlite(#[from] rusqlite::Error),
    /// A stored row cannot be decoded.
    #[error("{cause}")]
    UndecodableRow {
        table: &'static str,
        id: String,
        cause: serde_json::Error,
    },
    /// A row cannot be written as JSON.
    #[error("{0}")]
    UnencodableRow(#[from] serde_json::Error),
    /// Some rows cannot be read, but the rest of the store is undamaged.
    #[error("{} rows of the store cannot be read", .0.len())]
    UnreadableRows(Vec<UnreadableRow>),
    #[error("{0}")]
    Damaged(String),
    #[error("{0}")]
    Reported(#[from] StoreError),
}

impl StoreFault {
    /// Turns the fault into an error for people. `operation` is the verb and object of the failed
    /// operation (such as "open the store"), and `path` is the file that follows them in the
    /// message.
    pub(crate) fn into_error(self, operation: &str, path: &Path) -> StoreError {
        match self {
            StoreFault::Sqlite(cause) => sqlite_error(operation, path, &cause),
            StoreFault::UndecodableRow { table, id, cause } => corrupt(
                path,
                &format!("row {id} of its table {table} cannot be read ({cause})"),
            ),
            StoreFault::UnencodableRow(cause) => store_error(
                "io",
                format!(
                    "Regatta could not {operation} {}, because a row cannot be written as JSON: \
                    {cause}",
                    path.display()
                ),
                REPORT_BUG_HINT,
            ),
            StoreFault::UnreadableRows(rows) => unreadable_rows(path, &rows),
            StoreFault::Damaged(what) => corrupt(path, &what),
            StoreFault::Reported(error) => error,
        }
    }
}

const REPORT_BUG_HINT: &str = "nothing was recorded; this is a bug in Regatta: report it with this \
    message and the daemon's log";

fn store_error(
    code: &'static str,
    message: impl Into<String>,
    hint: impl Into<String>,
) -> StoreError {
    StoreError {
        code,
        message: message.into(),
        hint: hint.into(),
    }
}

/// Returns the error for a failure of SQLite, depending on its cause. SQLite reports a full or
/// read-only disk sometimes only as a failed system call, so then the disk itself is examined.
pub(crate) fn sqlite_error(operation: &str, path: &Path, cause: &rusqlite::Error) -> StoreError {
    match cause.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => disk_full(path),
        Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen)
            if store_files::is_disk_full(store_files::directory_of(path)) =>
        {
            disk_full(path)
        }
        Some(ErrorCode::CannotOpen)
            if store_files::is_read_only(store_files::directory_of(path)) =>
        {
            read_only(path)
        }
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => read_only(path),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            corrupt(path, &cause.to_string())
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => store_error(
            "second_writer",
            format!(
                "another program is writing to the store {}, so nothing was recorded",
                path.display()
            ),
            "only one daemon may use a store: stop the other daemon (regatta down), then try again",
        ),
        _ => store_error(
            "io",
            format!("Regatta could not {operation} {}: {cause}", path.display()),
            "check that the disk works and is mounted, then try again",
        ),
    }
}

/// Returns the error for a failure of the file system, depending on its cause.
pub(crate) fn io_error(operation: &str, path: &Path, cause: &io::Error) -> StoreError {
    match cause.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => disk_full(path),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => read_only(path),
        _ => store_error(
            "io",
            format!("Regatta could not {operation} {}: {cause}", path.display()),
            "check that the path exists and can be accessed, then try again",
        ),
    }
}

fn disk_full(path: &Path) -> StoreError {
    let hint = format!(
        "free some disk space at {}, then try again",
        store_files::directory_of(path).display()
    );
    store_error(
        "disk_full",
        "the disk of the store is full, so nothing was recorded",
        hint,
    )
}

pub(crate) fn store_closed(path: &Path) -> StoreError {
    store_error(
        "io",
        format!(
            "the daemon is ending and has already closed its store {}",
            path.display()
        ),
        "start the daemon again: regatta up",
    )
}

/// Returns the error for a read that failed because the deferred rows (rows that are written later
/// than their events) could not be written first.
pub(crate) fn deferred_rows_failed(path: &Path, cause: StoreError) -> StoreError {
    let message = format!(
        "the last changes are safe in the log of the store {}, but cannot be read until the store \
        can be written again (cause: {})",
        path.display(),
        cause.code
    );
    StoreError { message, ..cause }
}

fn read_only(path: &Path) -> StoreError {
    store_error(
        "read_only",
        format!(
            "Regatta may not write to the store {}, so nothing was recorded",
            path.display()
        ),
        format!(
            "give the user who runs Regatta write access to {}, and check that the disk is \
            mounted for writing",
            store_files::directory_of(path).display()
        ),
    )
}

/// Returns the error for a damaged store. Nothing is deleted or overwritten, and the hint names the
/// newest backup to restore.
pub(crate) fn corrupt(path: &Path, reason: &str) -> StoreError {
    let hint = match newest_backup(path) {
        Some(backup) => {
            format!(
                "nothing was changed; restore the newest backup: regatta restore {}",
                backup.display()
            )
        }
        None => format!(
            "nothing was changed; restore a backup with regatta restore FILE, or move the \
            directory {} away to start with an empty store",
            store_files::directory_of(path).display()
        ),
    };
    store_error(
        "corrupt",
        format!("the store {} is damaged: {reason}", path.display()),
        hint,
    )
}

/// The largest number of unreadable rows that an error message names.
const MAX_NAMED_ROWS: usize = 5;

/// Returns the error for rows that cannot be read in a store that works without them (D11).
fn unreadable_rows(path: &Path, rows: &[UnreadableRow]) -> StoreError {
    let name = |row: &UnreadableRow| {
        format!(
            "row {} of its table {} cannot be read ({})",
            row.id, row.table, row.reason
        )
    };
    let mut descriptions: Vec<String> = rows.iter().take(MAX_NAMED_ROWS).map(name).collect();
    if rows.len() > MAX_NAMED_ROWS {
        descriptions.push(format!("and {} more", rows.len() - MAX_NAMED_ROWS));
    }
    let message = format!(
        "the store {} is damaged: {}",
        path.display(),
        descriptions.join("; ")
    );
    let backup = newest_backup(path).map_or("FILE".to_owned(), |file| file.display().to_string());
    let hint = format!(
        "everything else works; to get these rows back, restore a backup from before the damage: \
        regatta restore {backup}"
    );
    store_error("corrupt", message, hint)
}

/// Returns the error for a store that differs from its mark (D10). The mark is a file that says up
/// to which event the store must be complete. `mismatch` says how the store differs.
pub(crate) fn mark_mismatch(path: &Path, mismatch: &MarkMismatch) -> StoreError {
    let store = path.display();
    let (message, restore_advice) = match mismatch {
        MarkMismatch::OlderStore { found, expected } => (
            format!(
                "the store {store} ends at event {found}, but event {expected} had already been \
                 stored, so the store is an old copy, or its log was lost"
            ),
            format!("put {store} and {store}-wal back as they were"),
        ),
        MarkMismatch::LogMissing => (
            format!(
                "the log {store}-wal contained the last changes, but is missing or belongs to \
                another store"
            ),
            format!("put {store}-wal back as it was"),
        ),
        MarkMismatch::BrokenLog => (
            format!("the log {store}-wal is damaged: changes that were confirmed cannot be read"),
            format!("put {store}-wal back as it was"),
        ),
        MarkMismatch::OtherStore => (
            format!("the store {store} is not the one that was used in this directory before"),
            format!("put {store} and {store}-wal back as they were"),
        ),
    };
    let backup = newest_backup(path).map_or("FILE".to_owned(), |file| file.display().to_string());
    let hint = format!(
        "nothing was changed; {restore_advice}, or restore a backup: regatta restore {backup}; \
         to continue with the remaining data: regatta restore {store}"
    );
    store_error("store_behind", message, hint)
}

/// Returns the error for a missing store when its mark (the file that says up to which event the
/// store must be complete) shows that there was a store (D10).
pub(crate) fn store_missing(path: &Path) -> StoreError {
    let backup = newest_backup(path).map_or("FILE".to_owned(), |file| file.display().to_string());
    store_error(
        "store_behind",
        format!(
            "the store {} is missing, but other files that belong to it still exist",
            path.display()
        ),
        format!(
            "put the file back together with its log (the file that ends in -wal), or restore a \
            backup: regatta restore {backup}; to start with an empty store, move the directory \
            {} away",
            store_files::directory_of(path).display()
        ),
    )
}

/// Returns the error for a mark (the file that says up to which event the store must be complete)
/// that cannot be read.
pub(crate) fn bad_mark(file: &Path, cause: &serde_json::Error) -> StoreError {
    store_error(
        "corrupt",
        format!(
            "could not read the file {}, which says up to which event the store must be complete: \
            {cause}",
            file.display()
        ),
        format!(
            "if you are sure that this store is the newest copy, remove the file: rm {}",
            file.display()
        ),
    )
}

/// Returns the error for a file that is not a store of Regatta.
pub(crate) fn foreign_file(path: &Path, reason: &str) -> StoreError {
    store_error(
        "corrupt",
        format!("{} is not a store of Regatta: {reason}", path.display()),
        match newest_backup(path) {
            Some(backup) => {
                format!(
                    "nothing was changed; restore the newest backup: regatta restore {}",
                    backup.display()
                )
            }
            None => {
                "nothing was changed; name another file, or restore a backup: regatta restore FILE"
                    .into()
            }
        },
    )
}

pub(crate) fn newer_schema(path: &Path, store_version: i64, program_version: i64) -> StoreError {
    store_error(
        "newer_version",
        format!(
            "a newer version of Regatta wrote the store {}: the store has schema \
            version {store_version}, but this program supports only versions up to \
            {program_version}; nothing was changed",
            path.display()
        ),
        "run the newer version of Regatta that wrote the store, or restore an older backup: \
        regatta restore FILE",
    )
}

pub(crate) fn old_sqlite(version: &str) -> StoreError {
    store_error(
        "old_sqlite",
        format!(
            "this program contains SQLite {version}, which has a bug that can damage the store, so \
            the store was not opened"
        ),
        "install a build of Regatta that contains SQLite 3.51.3 or newer",
    )
}

pub(crate) fn changed_by_another_process(path: &Path, expected: u64, stored: u64) -> StoreError {
    store_error(
        "second_writer",
        format!(
            "another program wrote to the store {}: the last event has the number {stored} instead \
            of {expected}, so nothing was recorded",
            path.display()
        ),
        "only one daemon may use a store: stop the other daemon (regatta down), then start this \
        one again",
    )
}

pub(crate) fn out_of_order(expected: u64, found: u64) -> StoreError {
    store_error(
        "io",
        format!(
            "Regatta tried to store an event with the number {found}, but the next event must have \
            the number {expected}"
        ),
        REPORT_BUG_HINT,
    )
}

pub(crate) fn too_large(number: u64) -> StoreError {
    store_error(
        "io",
        format!("the number {number} is too large for the store, whose numbers have 63 bits"),
        REPORT_BUG_HINT,
    )
}

pub(crate) fn already_exists(to: &Path) -> StoreError {
    store_error(
        "io",
        format!(
            "the file {} already exists, and a backup does not overwrite files",
            to.display()
        ),
        "name a file that does not exist, or move the existing file away",
    )
}

fn newest_backup(path: &Path) -> Option<PathBuf> {
    let modified = |path: &PathBuf| {
        path.metadata()
            .and_then(|metadata| metadata.modified())
            .ok()
    };
    let backups = std::fs::read_dir(store_files::backups_dir(path))
        .ok()?
        .flatten()
        .map(|entry| entry.path());
    backups
        .filter(|path| path.extension().is_some_and(|extension| extension == "db"))
        .max_by_key(modified)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sqlite_errors_have_their_codes() {
        use rusqlite::ffi;
        let code = |n| {
            sqlite_error(
                "write to",
                Path::new("/nowhere/regatta.db"),
                &rusqlite::Error::SqliteFailure(ffi::Error::new(n), None),
            )
            .code
        };
        assert_eq!(code(ffi::SQLITE_FULL), "disk_full");
        assert_eq!(code(ffi::SQLITE_READONLY), "read_only");
        assert_eq!(code(ffi::SQLITE_READONLY_DIRECTORY), "read_only");
        assert_eq!(code(ffi::SQLITE_PERM), "read_only");
        assert_eq!(code(ffi::SQLITE_CORRUPT), "corrupt");
        assert_eq!(code(ffi::SQLITE_CORRUPT_INDEX), "corrupt");
        assert_eq!(code(ffi::SQLITE_NOTADB), "corrupt");
        assert_eq!(code(ffi::SQLITE_BUSY), "second_writer");
        assert_eq!(code(ffi::SQLITE_IOERR_FSYNC), "io");
        assert_eq!(code(ffi::SQLITE_CANTOPEN), "io");
    }

    #[test]
    fn file_system_errors_have_their_codes() {
        let code = |error_kind: io::ErrorKind| {
            io_error("read", Path::new("/nowhere/regatta.db"), &error_kind.into()).code
        };
        assert_eq!(code(io::ErrorKind::StorageFull), "disk_full");
        assert_eq!(code(io::ErrorKind::ReadOnlyFilesystem), "read_only");
        assert_eq!(code(io::ErrorKind::PermissionDenied), "read_only");
        assert_eq!(code(io::ErrorKind::NotFound), "io");
    }
}
