//! Checks a whole store for damage, makes an exact copy (D7), and restores such a copy.
//!
//! A restored store must never assign a revision (event number) or a fencing token a second time
//! (L2). Its numbers therefore continue far above every number that was assigned before: 2^32 above
//! the revision of the backup or of the replaced store, whichever is higher. Another 2^32 is added
//! for each store that was replaced earlier, because perhaps none of these stores can be read. The
//! events then have a gap. The table `gaps` records the gap, so that [`check_store`] can tell the
//! gap from a loss of events. The fleet clock (which counts only while a daemon runs) does not go
//! back either, but continues from the later time of the two stores.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use regatta_core::board::BoardMeta;
use regatta_engine::ports::store::{StoreError, UnreadableRow};
use rusqlite::backup::{Backup, StepResult};
use rusqlite::config::DbConfig;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};

use crate::commit::to_sql_number;
use crate::errors::{self, StoreFault};
use crate::load::{self, decode_row};
use crate::store_mark::{self, HighWaterMark};
use crate::{deferred_rows, open, schema, store_files};
use crate::{event_log, event_rows};

/// The distance between the revision (event number) of a restored store and the highest revision
/// that was assigned before.
const RESTORE_REVISION_GAP: u64 = 1 << 32;

/// Checks the whole store for damage (D3): checks SQLite's pages, indexes and references, then
/// checks that no event is missing and that every row can be read.
pub(crate) fn check_store(connection: &Connection) -> Result<(), StoreFault> {
    let unreadable = check_and_list_unreadable(connection)?;
    if unreadable.is_empty() {
        Ok(())
    } else {
        Err(StoreFault::UnreadableRows(unreadable))
    }
}

/// Checks the store like [`check_store`], but returns no error for rows and events that cannot be
/// read, because a store works without them (D11). Returns a list of them instead.
fn check_and_list_unreadable(connection: &Connection) -> Result<Vec<UnreadableRow>, StoreFault> {
    open::run_sqlite_check(connection, "integrity_check")?;
    let orphan_table: Option<String> = {
        let mut statement = connection.prepare("PRAGMA foreign_key_check")?;
        let mut rows = statement.query([])?;
        rows.next()?.map(|row| row.get(0)).transpose()?
    };
    if let Some(table) = orphan_table {
        return Err(StoreFault::Damaged(format!(
            "a row of its table {table} refers to a row that is missing"
        )));
    }
    let mut unreadable = check_continuity(connection)?;
    unreadable.extend(
        load::find_unreadable_rows(connection)?
            .into_iter()
            .filter(|row| row.table != "events"),
    );
    Ok(unreadable)
}

/// Checks that no event is missing up to the store's revision (event number), except in the gaps
/// that restores made. Returns the events that cannot be read.
fn check_continuity(connection: &Connection) -> Result<Vec<UnreadableRow>, StoreFault> {
    let mut unreadable = Vec::new();
    let numbers = |sql: &str| -> Result<Vec<(i64, i64)>, StoreFault> {
        let mut statement = connection.prepare(sql)?;
        let pairs = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(pairs.collect::<Result<_, _>>()?)
    };
    let gaps: BTreeMap<i64, i64> = numbers("SELECT last, next FROM gaps")?
        .into_iter()
        .collect();
    let skip_gaps = |mut revision: i64| {
        while let Some(next) = gaps.get(&revision).filter(|next| **next > revision) {
            revision = *next;
        }
        revision
    };
    let mut last = 0;
    let mut statement = connection.prepare(&format!(
        "SELECT {} FROM events ORDER BY revision",
        event_log::COLUMNS
    ))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        for event in event_log::events_of_row(row)? {
            let revision = to_sql_number(event.revision)?;
            let row = event_rows::unreadable_row(&event);
            // An event row that cannot be read may contain several events, so the revision (event
            // number) may jump after such a row.
            if revision != skip_gaps(last) + 1 && (row.is_none() || revision <= last) {
                return Err(StoreFault::Damaged(format!(
                    "event {} is missing",
                    skip_gaps(last) + 1
                )));
            }
            unreadable.extend(row);
            last = revision;
        }
    }
    let meta = read_meta(connection)?;
    let stored_revision: i64 =
        connection.query_row("SELECT revision FROM meta WHERE id = 1", [], |row| {
            row.get(0)
        })?;
    if stored_revision != skip_gaps(last) || u64::try_from(stored_revision) != Ok(meta.revision) {
        return Err(StoreFault::Damaged(format!(
            "its counters are at revision {}, but its last event is {}",
            meta.revision,
            skip_gaps(last)
        )));
    }
    Ok(unreadable)
}

/// Copies the store as of the last transaction to a new file. The file exists either completely or
/// not at all.
pub(crate) fn copy_store(connection: &Connection, to: &Path) -> Result<(), StoreFault> {
    let to_error = |cause| StoreFault::Reported(errors::io_error("write the backup", to, &cause));
    if to.try_exists().map_err(to_error)? {
        return Err(errors::already_exists(to).into());
    }
    let partial = store_files::with_suffix(to, ".partial");
    store_files::create_private(&partial).map_err(to_error)?;
    let copied = copy_pages(connection, &partial)
        .map_err(|fault| fault.into_error("write the backup", to).into());
    let result = copied.and_then(|()| store_files::rename_durably(&partial, to).map_err(to_error));
    if result.is_err() {
        store_files::remove_with_log(&partial).map_err(to_error)?;
    }
    result
}

fn copy_pages(connection: &Connection, to: &Path) -> Result<(), StoreFault> {
    let mut copy = Connection::open_with_flags(
        to,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    // No rollback journal is needed, because an unfinished copy is deleted. The copy is therefore
    // written to the disk only once, at the end.
    copy.pragma_update(None, "journal_mode", "off")?;
    copy.pragma_update(None, "synchronous", "off")?;
    let step = Backup::new(connection, &mut copy)?.step(-1)?;
    match step {
        StepResult::Done => Ok(copy.close().map_err(|(_, cause)| cause)?),
        _ => Err(StoreFault::Damaged(
            "some of its pages could not be copied".into(),
        )),
    }
}

/// Replaces the store at `to` by the backup `from`. No daemon may have the store open.
///
/// Changes nothing unless the backup is undamaged. Keeps the old store as `backups/replaced-N.db`.
/// Returns the rows and events of the backup that cannot be read. Such rows and events are restored
/// unchanged, and the store works without them.
pub fn restore(from: &Path, to: &Path) -> Result<Vec<UnreadableRow>, StoreError> {
    open::inspect_store_header(from)?;
    let temporary = store_files::with_suffix(to, ".restoring");
    let to_error = |cause: std::io::Error| errors::io_error("restore the store", to, &cause);
    // A mark (the file that says up to which event the store must be complete) that cannot be read
    // counts as missing and is replaced.
    let old_mark = store_mark::read_mark(to).unwrap_or_default();
    let result = prepare_restore(from, &temporary).and_then(|unreadable| {
        let (nth, old) = replaced_store(to);
        let reached_revision = old_mark.as_ref().map_or(0, |mark| mark.revision);
        let new_mark = raise_revision(&temporary, nth, old, reached_revision)
            .map_err(|fault| fault.into_error("restore the store", to))?;
        // Write the mark (the file that says up to which event the store must be complete) before
        // the restored store takes its place. If the restore is interrupted in between, the old
        // store is older than the mark says, so the old store is refused until the restore is
        // repeated.
        store_mark::write_mark(to, &new_mark).map_err(to_error)?;
        move_aside(to, nth)?;
        store_files::rename_durably(&temporary, to).map_err(to_error)?;
        Ok(unreadable)
    });
    if result.is_err() {
        match &old_mark {
            Some(mark) => store_mark::write_mark(to, mark).map_err(to_error)?,
            None => store_files::remove_with_log(&store_mark::mark_file(to)).map_err(to_error)?,
        }
        store_files::remove_with_log(&temporary)
            .map_err(|error| errors::io_error("restore the store", to, &error))?;
    }
    result
}

/// Copies the backup together with its write-ahead log, if it has one. Checks that the copy is
/// undamaged, and brings the copy to the current schema.
fn prepare_restore(from: &Path, temporary: &Path) -> Result<Vec<UnreadableRow>, StoreError> {
    let copy = |from: &Path, to: &Path| -> std::io::Result<()> {
        store_files::create_private(to)?;
        let mut target = fs::OpenOptions::new().write(true).open(to)?;
        std::io::copy(&mut fs::File::open(from)?, &mut target).map(|_| ())
    };
    copy(from, temporary).map_err(|error| errors::io_error("copy the backup", from, &error))?;
    let log = store_files::with_suffix(from, "-wal");
    if store_files::has_content(&log) {
        copy(&log, &store_files::with_suffix(temporary, "-wal"))
            .map_err(|error| errors::io_error("copy the backup's log", &log, &error))?;
    }
    let verify = || {
        let mut store = open::connect_for_writing(temporary)?;
        open::inspect_store(&store, from)?;
        open::run_sqlite_check(&store, "integrity_check")?;
        schema::migrate(&mut store, schema::MIGRATIONS)?;
        deferred_rows::write_leftover_rows(&mut store)?;
        check_and_list_unreadable(&store)
    };
    verify().map_err(|fault| fault.into_error("read the backup", from))
}

/// Returns the number N for the name `replaced-N.db` under which the old store at `to` is kept, and
/// the counters of that store, if they can be read.
fn replaced_store(to: &Path) -> (u64, Option<BoardMeta>) {
    let names = fs::read_dir(store_files::backups_dir(to))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    let used = names
        .filter_map(|name| {
            name.strip_prefix("replaced-")?
                .strip_suffix(".db")?
                .parse::<u64>()
                .ok()
        })
        .max()
        .unwrap_or(0);
    let old = if to.exists() {
        read_meta_of(to).ok()
    } else {
        None
    };
    // If only the write-ahead log is left, an interrupted restore has already moved its store away.
    // Use the number of that store again, so that the log gets the same name.
    let has_orphan_log = !to.exists() && used > 0 && store_files::with_suffix(to, "-wal").exists();
    (if has_orphan_log { used } else { used + 1 }, old)
}

/// Reads the `meta` row (the revision, the fleet clock and the id counters) of a store that may be
/// damaged. Changes neither the store nor its write-ahead log.
fn read_meta_of(path: &Path) -> Result<BoardMeta, StoreFault> {
    let store = open::connect_for_writing(path)?;
    store.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    let mut meta = read_meta(&store)?;
    // The stored counters can lag behind the events, because rows are written later under load. So
    // take the revision and the time of the last event if they are higher.
    if let Some((revision, fleet_ms)) = event_log::last_event(&store)? {
        meta.revision = meta.revision.max(revision);
        meta.fleet_ms = meta.fleet_ms.max(fleet_ms);
    }
    Ok(meta)
}

/// Raises the revision (event number) of a restored store above all revisions that were ever
/// assigned, including `reached`. Returns the mark (the file that says up to which event the store
/// must be complete) for the restored store.
fn raise_revision(
    temporary: &Path,
    nth: u64,
    old: Option<BoardMeta>,
    reached: u64,
) -> Result<HighWaterMark, StoreFault> {
    let mut store = open::connect_for_writing(temporary)?;
    open::configure(&store)?;
    let transaction = store.transaction()?;
    let mut meta = read_meta(&transaction)?;
    let last = meta.revision;
    meta.revision =
        last.max(old.map_or(0, |meta| meta.revision)).max(reached) + nth * RESTORE_REVISION_GAP;
    meta.fleet_ms = meta.fleet_ms.max(old.map_or(0, |meta| meta.fleet_ms));
    transaction.execute(
        "INSERT INTO gaps (last, next) VALUES (?1, ?2)",
        (to_sql_number(last)?, to_sql_number(meta.revision)?),
    )?;
    transaction.execute(
        "UPDATE meta SET revision = ?1, body = ?2 WHERE id = 1",
        (to_sql_number(meta.revision)?, serde_json::to_string(&meta)?),
    )?;
    transaction.commit()?;
    let mark = HighWaterMark {
        store: store_mark::store_identity(&store)?,
        revision: meta.revision,
        log: None,
    };
    store.close().map_err(|(_, cause)| cause)?;
    Ok(mark)
}

fn read_meta(connection: &Connection) -> Result<BoardMeta, StoreFault> {
    let body: String =
        connection.query_row("SELECT body FROM meta WHERE id = 1", [], |row| row.get(0))?;
    decode_row("meta", ValueRef::Integer(1), body.as_bytes())
}

/// Moves the old store away, together with its write-ahead log. The store is moved before its log.
/// If a crash in between leaves only the log, the next open refuses the log. If it left only the
/// store, the store would wrongly look complete.
fn move_aside(to: &Path, nth: u64) -> Result<(), StoreError> {
    let to_error = |cause| errors::io_error("move away the old store", to, &cause);
    let parts: Vec<(PathBuf, &str)> = ["", "-wal", "-shm"]
        .map(|suffix| (store_files::with_suffix(to, suffix), suffix))
        .into_iter()
        .filter(|(part, _)| part.exists())
        .collect();
    if parts.is_empty() {
        return Ok(());
    }
    let directory = store_files::create_backups_dir(to).map_err(to_error)?;
    let target = directory.join(format!("replaced-{nth}.db"));
    for (part, suffix) in parts {
        fs::rename(&part, store_files::with_suffix(&target, suffix)).map_err(to_error)?;
    }
    store_files::sync_directory(&directory)
        .and_then(|()| store_files::sync_directory(store_files::directory_of(to)))
        .map_err(to_error)
}
