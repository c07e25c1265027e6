//! Creates stores, and checks an existing file before it is used as a store.
//!
//! A new store is built under another name and then renamed, so an empty or unfinished file with
//! the store's name was never a store. A refused file stays as it is, because this module writes to
//! an existing file only after all checks have passed.
//!
//! Every open reads the file's header, the application id, the schema's number and all declarations
//! of tables and indexes. Only a file of up to [`QUICK_CHECK_BYTES`] also gets SQLite's
//! `quick_check`. That check reads every page, including the history, so it would make the start
//! with a large store slow. The load that follows each open reads all rows of unfinished work, and
//! finds damage to these rows in a store of any size. [`Store::check`] finds all other damage.
//!
//! [`Store::check`]: regatta_engine::ports::store::Store::check

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use regatta_engine::ports::store::{LoadedState, StoreError};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::errors::{self, StoreFault};
use crate::wal::{self, LogState};
use crate::{backup, deferred_rows, load, schema, store_files, store_mark};

/// The largest size in bytes of a store that gets a `quick_check` at every open. For this size the
/// check takes about 50 ms.
pub(crate) const QUICK_CHECK_BYTES: u64 = 64 * 1024 * 1024;

/// The time to wait for a lock that another connection holds. Only another connection of this
/// program should ever hold such a lock, for a moment while that connection closes.
const LOCK_TIMEOUT: Duration = Duration::from_millis(250);

/// Opens the store at `path` for writing, and creates it if it does not exist. Returns an error and
/// changes nothing if an existing file fails a check.
pub(crate) fn open_for_writing(path: &Path) -> Result<Connection, StoreError> {
    if !is_new_enough(rusqlite::version_number()) {
        return Err(errors::old_sqlite(rusqlite::version()));
    }
    match path.try_exists() {
        Ok(true) => {}
        // Only a write-ahead log exists, without its store. Refuse to create a store, because
        // SQLite would take this old log for the log of the new store.
        Ok(false) if store_files::has_content(&store_files::with_suffix(path, "-wal")) => {
            return Err(errors::corrupt(
                path,
                "its log exists, but the store itself is missing",
            ));
        }
        // The mark (the file that says up to which event the store must be complete) proves that
        // there was a store. Refuse to create an empty store in its place, because it would assign
        // the same numbers again (D10).
        Ok(false) if store_mark::read_mark(path)?.is_some() => {
            return Err(errors::store_missing(path));
        }
        Ok(false) => create_store(path)?,
        Err(cause) => return Err(errors::io_error("open the store", path, &cause)),
    }
    inspect_store_header(path)?;
    store_files::make_private(path)
        .map_err(|error| errors::io_error("open the store", path, &error))?;
    let log = wal::inspect_log(path)
        .map_err(|cause| errors::io_error("read the log of the store", path, &cause))?;
    let mut connection =
        connect_for_writing(path).map_err(|fault| fault.into_error("open the store", path))?;
    accept_store(&mut connection, path, log)
        .map_err(|fault| fault.into_error("open the store", path))?;
    Ok(connection)
}

/// Checks the store at `path` like [`open_for_writing`] but changes nothing: it does not change the
/// schema, copy the write-ahead log or create a file. Returns the board (the state of all
/// unfinished work), or `None` if there is no store or an older version wrote it.
pub fn examine(path: &Path) -> Result<Option<LoadedState>, StoreError> {
    if !path
        .try_exists()
        .map_err(|cause| errors::io_error("read the store", path, &cause))?
    {
        return if store_mark::read_mark(path)?.is_some() {
            Err(errors::store_missing(path))
        } else {
            Ok(None)
        };
    }
    inspect_store_header(path)?;
    let log = wal::inspect_log(path)
        .map_err(|cause| errors::io_error("read the log of the store", path, &cause))?;
    let inspect = || -> Result<Option<LoadedState>, StoreFault> {
        // SQLite creates files beside a store even to read it. A store without a write-ahead log
        // can be opened as immutable, and then SQLite creates no files.
        let connection = match log {
            LogState::Absent => connect_read_only(path)?,
            LogState::InvalidHeader | LogState::Present { .. } => connect_for_writing(path)?,
        };
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        inspect_store(&connection, path)?;
        run_sqlite_check(&connection, "quick_check")?;
        store_mark::verify_mark(&connection, path, log)?;
        // Only a start of the daemon migrates the rows of an older version.
        if schema::schema_version(&connection)? < schema::newest_version() {
            return Ok(None);
        }
        load::load_store(&connection).map(Some)
    };
    inspect().map_err(|fault| fault.into_error("read the store", path))
}

/// Opens a store for reading without creating a file beside it. No other connection may write to
/// the store.
fn connect_read_only(path: &Path) -> Result<Connection, StoreFault> {
    let escaped = path
        .to_string_lossy()
        .replace('%', "%25")
        .replace('?', "%3f")
        .replace('#', "%23");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Ok(Connection::open_with_flags(
        format!("file:{escaped}?immutable=1"),
        flags,
    )?)
}

/// Returns whether this version of SQLite is safe. Versions below 3.51.3 can damage a database when
/// they reset its write-ahead log, and 3.52 was withdrawn without the fix for that.
fn is_new_enough(version: i32) -> bool {
    (3_051_003..3_052_000).contains(&version) || version >= 3_053_000
}

/// Builds an empty store under another name and then renames it to `path`.
fn create_store(path: &Path) -> Result<(), StoreError> {
    let temporary = store_files::with_suffix(path, ".new");
    store_files::create_private(&temporary)
        .map_err(|error| errors::io_error("create the store", path, &error))?;
    let created = connect_for_writing(&temporary).and_then(|mut connection| {
        configure(&connection)?;
        schema::create_schema(&mut connection)?;
        connection.close().map_err(|(_, cause)| cause.into())
    });
    created.map_err(|fault| fault.into_error("create the store", path))?;
    store_files::rename_durably(&temporary, path)
        .map_err(|error| errors::io_error("create the store", path, &error))
}

/// Checks the header of the file by reading it directly. Opening the file with SQLite could already
/// begin to repair it, which would change the file.
pub(crate) fn inspect_store_header(path: &Path) -> Result<(), StoreError> {
    let mut header = Vec::with_capacity(100);
    let read = File::options()
        .read(true)
        .open(path)
        .and_then(|file| file.take(100).read_to_end(&mut header));
    read.map_err(|error| errors::io_error("read the store", path, &error))?;
    if header.is_empty() {
        return Err(errors::corrupt(path, "it is empty"));
    }
    if !header.starts_with(b"SQLite format 3\0") || header.len() < 100 {
        return Err(errors::foreign_file(path, "it is not a SQLite file"));
    }
    let number_at = |offset: usize| {
        i64::from(u32::from_be_bytes([
            header[offset],
            header[offset + 1],
            header[offset + 2],
            header[offset + 3],
        ]))
    };
    if number_at(68) != schema::APPLICATION_ID {
        return Err(errors::foreign_file(
            path,
            "it is another program's SQLite file",
        ));
    }
    if number_at(60) > schema::newest_version() {
        return Err(errors::newer_schema(
            path,
            number_at(60),
            schema::newest_version(),
        ));
    }
    // SQLite accepts a file whose last page is incomplete if that page is unused, but such a file
    // was cut off and is refused here. If the store has a write-ahead log, an incomplete page is
    // allowed, because that page may have been in the middle of being copied from the log.
    let length = path
        .metadata()
        .map_err(|error| errors::io_error("read the store", path, &error))?
        .len();
    let page_bytes = match u64::from(u16::from_be_bytes([header[16], header[17]])) {
        1 => 65_536,
        page_bytes => page_bytes.max(512),
    };
    let has_log = store_files::with_suffix(path, "-wal")
        .metadata()
        .is_ok_and(|metadata| metadata.len() > 0);
    if !length.is_multiple_of(page_bytes) && !has_log {
        return Err(errors::corrupt(
            path,
            "it was cut off in the middle of a page",
        ));
    }
    Ok(())
}

/// Opens a connection that can write, but does not write anything yet.
pub(crate) fn connect_for_writing(path: &Path) -> Result<Connection, StoreFault> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(LOCK_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(64);
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    Ok(connection)
}

/// Sets the connection's options for writing, such as its cache size.
pub(crate) fn configure(connection: &Connection) -> Result<(), StoreFault> {
    let mode: String =
        connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
    if mode != "wal" {
        return Err(StoreFault::Damaged(format!(
            "its disk does not allow a write-ahead log (the mode stayed {mode})"
        )));
    }
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    // While a reader runs for a long time, the write-ahead log may grow. With this limit, SQLite
    // makes the log file smaller again afterwards.
    connection.pragma_update(None, "journal_size_limit", 64 * 1024 * 1024)?;
    // A cache of 8 MiB is enough, because a batch touches few pages and a load reads each page only
    // once.
    connection.pragma_update(None, "cache_size", -8 * 1024)?;
    // Sort in memory only, because the disk may be full.
    connection.pragma_update(None, "temp_store", "memory")?;
    Ok(())
}

/// Checks that the file is an undamaged store, and then brings it to this program's schema.
fn accept_store(connection: &mut Connection, path: &Path, log: LogState) -> Result<(), StoreFault> {
    // Until the checks have passed, closing the connection must not copy the write-ahead log into
    // the store file, because that would change the file.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    inspect_store(connection, path)?;
    if path
        .metadata()
        .is_ok_and(|metadata| metadata.len() <= QUICK_CHECK_BYTES)
    {
        run_sqlite_check(connection, "quick_check")?;
    }
    store_mark::verify_mark(connection, path, log)?;
    configure(connection)?;
    back_up_and_migrate(connection, path, schema::MIGRATIONS)?;
    if schema::read_declarations(connection)? != schema::expected_declarations()? {
        return Err(StoreFault::Damaged(format!(
            "its tables are not those of schema {}",
            schema::newest_version()
        )));
    }
    deferred_rows::write_leftover_rows(connection)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    Ok(())
}

/// Checks the application id and the schema of a store, as they are after the transactions in its
/// write-ahead log.
pub(crate) fn inspect_store(connection: &Connection, path: &Path) -> Result<(), StoreFault> {
    let application: i64 =
        connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let version = schema::schema_version(connection)?;
    if application != schema::APPLICATION_ID {
        return Err(errors::foreign_file(path, "it is another program's SQLite file").into());
    }
    if version > schema::newest_version() {
        return Err(errors::newer_schema(path, version, schema::newest_version()).into());
    }
    if version == 0 {
        return Err(StoreFault::Damaged(
            "it contains no tables of Regatta".into(),
        ));
    }
    Ok(())
}

/// Runs one of SQLite's own checks, `quick_check` or `integrity_check`. Returns an error that
/// describes the damage if there is any.
pub(crate) fn run_sqlite_check(connection: &Connection, check: &str) -> Result<(), StoreFault> {
    let report: String =
        connection.query_row(&format!("PRAGMA {check}(1)"), [], |row| row.get(0))?;
    if report == "ok" {
        Ok(())
    } else {
        Err(StoreFault::Damaged(report.replace('\n', " ")))
    }
}

/// Brings a store to a newer schema. First makes a backup of the store in the directory for its
/// backups.
fn back_up_and_migrate(
    connection: &mut Connection,
    path: &Path,
    migrations: &[&str],
) -> Result<(), StoreFault> {
    let target_version = migrations.len();
    if schema::schema_version(connection)? < target_version as i64 {
        let directory = store_files::create_backups_dir(path).map_err(|error| {
            errors::io_error(
                "create the directory",
                &store_files::backups_dir(path),
                &error,
            )
        })?;
        let mut copy = directory.join(format!("before-schema-{target_version}.db"));
        for nth in 2.. {
            // The backup of an earlier attempt is kept and not overwritten, because that attempt
            // may have changed the store.
            if !copy.exists() {
                break;
            }
            copy = directory.join(format!("before-schema-{target_version}-{nth}.db"));
        }
        backup::copy_store(connection, &copy)?;
        schema::migrate(connection, migrations)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use regatta_core::board::RowKey;
    use regatta_core::event::Recorded;
    use regatta_engine::ports::store::Store;
    use regatta_testkit::store_suite::history_fixture::{CommitStep, all_steps};

    use super::*;
    use crate::deferred_rows::{DeferralLimits, DeferredRows};
    use crate::{SqliteStore, commit};

    #[test]
    fn versions_of_sqlite_that_can_damage_a_store_are_refused() {
        for refused in [
            3_007_017, 3_046_000, 3_050_004, 3_051_000, 3_051_002, 3_052_000,
        ] {
            assert!(!is_new_enough(refused), "{refused}");
        }
        for accepted in [3_051_003, 3_051_009, 3_053_000, 3_054_001, 4_000_000] {
            assert!(is_new_enough(accepted), "{accepted}");
        }
        assert!(is_new_enough(rusqlite::version_number()));
    }

    #[test]
    fn older_store_is_backed_up_before_its_migration() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("regatta.db");
        let mut store = open_for_writing(&path).unwrap();
        let newer_migrations: Vec<&str> = schema::MIGRATIONS
            .iter()
            .copied()
            .chain(["CREATE TABLE more (x)"])
            .collect();
        let broken_migrations: Vec<&str> = schema::MIGRATIONS
            .iter()
            .copied()
            .chain(["CREATE TABLE more (x); SELECT nothing"])
            .collect();

        assert!(back_up_and_migrate(&mut store, &path, &broken_migrations).is_err());
        assert_eq!(
            schema::read_declarations(&store).unwrap(),
            schema::expected_declarations().unwrap()
        );
        back_up_and_migrate(&mut store, &path, &newer_migrations).unwrap();
        let newer_version = schema::newest_version() + 1;
        assert_eq!(schema::schema_version(&store).unwrap(), newer_version);
        for copy in [
            format!("backups/before-schema-{newer_version}.db"),
            format!("backups/before-schema-{newer_version}-2.db"),
        ] {
            let copy = open_for_writing(&directory.path().join(copy)).unwrap();
            assert_eq!(
                schema::schema_version(&copy).unwrap(),
                schema::newest_version(),
                "the copy was made before the migration"
            );
        }

        // D6: a program that does not know the next schema does not change the store.
        drop(store);
        let before = std::fs::read(&path).unwrap();
        assert_eq!(open_for_writing(&path).unwrap_err().code, "newer_version");
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }

    /// A store of schema 1, in which each event has a row of its own, is backed up, migrated and
    /// continued.
    #[test]
    fn store_of_schema_1_is_migrated_without_loss() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("regatta.db");
        let steps = all_steps();
        // No step up to this one needs a table that schema 1 lacks.
        let needs_newer_schema = |step: &CommitStep| {
            step.batch
                .rows
                .keys()
                .any(|key| matches!(key, RowKey::Day(..) | RowKey::Approval(_)))
        };
        let split = steps.iter().position(needs_newer_schema).unwrap();
        store_files::create_private(&path).unwrap();
        let mut old = connect_for_writing(&path).unwrap();
        configure(&old).unwrap();
        old.pragma_update(None, "application_id", schema::APPLICATION_ID)
            .unwrap();
        schema::migrate(&mut old, schema::MIGRATIONS).unwrap();
        let meta = serde_json::to_string(&regatta_core::board::BoardMeta::default()).unwrap();
        old.execute(
            "INSERT INTO meta (id, revision, body) VALUES (1, 0, ?1)",
            [meta],
        )
        .unwrap();
        for step in &steps[..split] {
            commit::commit_batch(
                &mut old,
                &mut Vec::new(),
                &step.batch,
                &mut DeferredRows::new(DeferralLimits::DEFAULT),
                &path,
            )
            .unwrap();
        }
        // Removes the tables that only newer schemas have, including the search indexes of
        // messages.
        let mut first = Connection::open_in_memory().unwrap();
        schema::migrate(&mut first, &schema::MIGRATIONS[..1]).unwrap();
        let first_declarations = schema::read_declarations(&first).unwrap();
        let newer = schema::read_declarations(&old)
            .unwrap()
            .into_iter()
            .filter(|declaration| !first_declarations.contains(declaration));
        // The tables of the search index are removed with it.
        let newer = newer.filter(|(_, sql)| {
            sql.as_ref()
                .is_some_and(|sql| !sql.contains("'message_words_"))
        });
        for (name, sql) in newer {
            let kind = if sql.unwrap().starts_with("CREATE INDEX") {
                "INDEX"
            } else {
                "TABLE"
            };
            old.execute_batch(&format!("DROP {kind} IF EXISTS {name}"))
                .unwrap();
        }
        // Adds the indexes that newer schemas have dropped.
        let current = schema::read_declarations(&old).unwrap();
        for (_, sql) in first_declarations
            .iter()
            .filter(|declaration| !current.contains(declaration))
        {
            old.execute_batch(sql.as_ref().unwrap()).unwrap();
        }
        assert_eq!(schema::read_declarations(&old).unwrap(), first_declarations);
        old.pragma_update(None, "user_version", 1).unwrap();
        old.execute("DELETE FROM events", []).unwrap();
        for event in steps[..split].iter().flat_map(|step| &step.batch.events) {
            let (by, body) = (
                event.by.to_string(),
                serde_json::to_string(&event.event).unwrap(),
            );
            let row = (
                event.revision as i64,
                event.now.fleet_ms as i64,
                event.now.unix_ms as i64,
                by,
                body,
            );
            old.execute(
                "INSERT INTO events (revision, at, wall, by, body) VALUES (?1, ?2, ?3, ?4, ?5)",
                row,
            )
            .unwrap();
        }
        drop(old);

        let mut store = SqliteStore::open(&path).unwrap();
        let events_of = |steps: &[CommitStep]| -> Vec<Recorded> {
            steps
                .iter()
                .flat_map(|step| step.batch.events.clone())
                .collect()
        };
        assert!(store.load().unwrap().board == steps[split - 1].board);
        assert!(store.history().events(0, usize::MAX).unwrap() == events_of(&steps[..split]));
        store.check().unwrap();
        for step in &steps[split..] {
            store.commit(&step.batch).unwrap();
        }
        store.check().unwrap();
        assert!(store.history().events(0, usize::MAX).unwrap() == events_of(&steps));
        let copy = directory.path().join(format!(
            "backups/before-schema-{}.db",
            schema::newest_version()
        ));
        assert_eq!(
            schema::schema_version(&Connection::open(&copy).unwrap()).unwrap(),
            1,
            "the copy was made before the migration"
        );
        assert!(SqliteStore::open(&copy).unwrap().load().unwrap().board == steps[split - 1].board);
    }
}
