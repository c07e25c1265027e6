//! Checks a whole store, copies it exactly (D7), and restores a copy.
//!
//! A restored store continues at a revision far above every number that it may have assigned
//! before, so that no token is ever assigned twice (L2): 2^32 above the revision of the backup or
//! of the replaced store, whichever is higher, and another 2^32 for each store that was replaced
//! before, in case none of them can be read. The log of events then has a gap, which is recorded in
//! `gaps`, so that [`check`] can tell it from a loss. The fleet clock does not go back either: it
//! continues from the later of the two.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use regatta_core::board::Meta;
use regatta_engine::ports::store::{StoreError, UnreadableRow};
use rusqlite::backup::{Backup, StepResult};
use rusqlite::config::DbConfig;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};

use crate::commit::number;
use crate::load::{self, decode};
use crate::log;
use crate::mark::{self, Mark};
use crate::words::{self, Fault};
use crate::{behind, files, open, schema};

/// The distance of a restored store's revision from all earlier ones.
const LEAP: u64 = 1 << 32;

/// Checks the whole store for damage (D3): pages, indexes, references, the continuity of events,
/// every row.
pub(crate) fn check(connection: &Connection) -> Result<(), Fault> {
    let unreadable = examine(connection)?;
    if unreadable.is_empty() { Ok(()) } else { Err(Fault::Unreadable(unreadable)) }
}

/// Checks the store like [`check`], but returns the rows and events that cannot be read, because a
/// store works without them (D11).
fn examine(connection: &Connection) -> Result<Vec<UnreadableRow>, Fault> {
    open::sound(connection, "integrity_check")?;
    let astray: Option<String> = {
        let mut statement = connection.prepare("PRAGMA foreign_key_check")?;
        let mut rows = statement.query([])?;
        rows.next()?.map(|row| row.get(0)).transpose()?
    };
    if let Some(table) = astray {
        return Err(Fault::Damaged(format!("a row of its table {table} belongs to a missing row")));
    }
    let mut unreadable = continuous(connection)?;
    unreadable.extend(load::read_all(connection)?.into_iter().filter(|row| row.table != "events"));
    Ok(unreadable)
}

/// Checks that events follow each other without a gap up to the store's revision, except where a
/// restore made one. Returns the events that cannot be read.
fn continuous(connection: &Connection) -> Result<Vec<UnreadableRow>, Fault> {
    let mut unreadable = Vec::new();
    let numbers = |sql: &str| -> Result<Vec<(i64, i64)>, Fault> {
        let mut statement = connection.prepare(sql)?;
        let found = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(found.collect::<Result<_, _>>()?)
    };
    let gaps: BTreeMap<i64, i64> = numbers("SELECT last, next FROM gaps")?.into_iter().collect();
    let leap = |mut at: i64| {
        while let Some(next) = gaps.get(&at).filter(|it| **it > at) {
            at = *next;
        }
        at
    };
    let mut last = 0;
    let mut statement = connection.prepare(&format!("SELECT {} FROM events ORDER BY revision", log::COLUMNS))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        for event in log::events(row)? {
            let revision = number(event.revision)?;
            let row = log::unreadable(&event);
            // An unreadable event may stand for several.
            if revision != leap(last) + 1 && (row.is_none() || revision <= last) {
                return Err(Fault::Damaged(format!("event {} is missing from its log", leap(last) + 1)));
            }
            unreadable.extend(row);
            last = revision;
        }
    }
    let meta = meta(connection)?;
    let column: i64 = connection.query_row("SELECT revision FROM meta WHERE id = 1", [], |row| row.get(0))?;
    if column != leap(last) || u64::try_from(column) != Ok(meta.revision) {
        return Err(Fault::Damaged(format!(
            "it says it is at revision {}, and its log ends at {}",
            meta.revision,
            leap(last)
        )));
    }
    Ok(unreadable)
}

/// Copies the store as of the last commit to a new file, which exists whole or not at all.
pub(crate) fn copy(connection: &Connection, to: &Path) -> Result<(), Fault> {
    let cannot = |cause| Fault::Said(words::io("write the backup", to, &cause));
    if to.try_exists().map_err(cannot)? {
        return Err(words::there_already(to).into());
    }
    let partial = files::beside(to, ".partial");
    files::create_private(&partial).map_err(cannot)?;
    let copied = copy_pages(connection, &partial).map_err(|it| it.say("write the backup", to).into());
    let settled = copied.and_then(|()| files::settle(&partial, to).map_err(cannot));
    if settled.is_err() {
        files::remove_all(&partial).map_err(cannot)?;
    }
    settled
}

fn copy_pages(connection: &Connection, to: &Path) -> Result<(), Fault> {
    let mut copy =
        Connection::open_with_flags(to, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    // An unfinished copy is thrown away, so the copy is made durable only once, at the end.
    copy.pragma_update(None, "journal_mode", "off")?;
    copy.pragma_update(None, "synchronous", "off")?;
    let step = Backup::new(connection, &mut copy)?.step(-1)?;
    match step {
        StepResult::Done => Ok(copy.close().map_err(|(_, cause)| cause)?),
        _ => Err(Fault::Damaged("its pages could not all be copied".into())),
    }
}

/// Replaces the store at `to`, which no daemon may have open, by the backup `from`.
///
/// Changes nothing unless the backup is sound. The old store is kept as `backups/replaced-N.db`.
/// Returns the rows and events of the backup that cannot be read: they are restored as they are,
/// and the store works without them.
pub fn restore(from: &Path, to: &Path) -> Result<Vec<UnreadableRow>, StoreError> {
    open::inspect_header(from)?;
    let nascent = files::beside(to, ".restoring");
    let cannot = |cause: std::io::Error| words::io("restore", to, &cause);
    // A mark that cannot be read counts as missing and is replaced.
    let old_mark = mark::read(to).unwrap_or_default();
    let settled = prepare(from, &nascent).and_then(|unreadable| {
        let (nth, old) = replaced(to);
        let reached = old_mark.as_ref().map_or(0, |mark| mark.revision);
        let new_mark = leap(&nascent, nth, old, reached).map_err(|it| it.say("restore", to))?;
        // The mark is written first. If the restore is interrupted, the old store is behind the
        // mark and refused until the restore is repeated.
        mark::write(to, &new_mark).map_err(cannot)?;
        move_aside(to, nth)?;
        files::settle(&nascent, to).map_err(cannot)?;
        Ok(unreadable)
    });
    if settled.is_err() {
        match &old_mark {
            Some(mark) => mark::write(to, mark).map_err(cannot)?,
            None => files::remove_all(&mark::file(to)).map_err(cannot)?,
        }
        files::remove_all(&nascent).map_err(|it| words::io("restore", to, &it))?;
    }
    settled
}

/// Copies the backup with its log, if it has one, and checks that the copy is sound and of this
/// schema.
fn prepare(from: &Path, nascent: &Path) -> Result<Vec<UnreadableRow>, StoreError> {
    let copy = |from: &Path, to: &Path| -> std::io::Result<()> {
        files::create_private(to)?;
        let mut target = fs::OpenOptions::new().write(true).open(to)?;
        std::io::copy(&mut fs::File::open(from)?, &mut target).map(|_| ())
    };
    copy(from, nascent).map_err(|it| words::io("copy", from, &it))?;
    let log = files::beside(from, "-wal");
    if files::has_content(&log) {
        copy(&log, &files::beside(nascent, "-wal")).map_err(|it| words::io("copy", &log, &it))?;
    }
    let verify = || {
        let mut store = open::connect(nascent)?;
        open::inspect(&store, from)?;
        open::sound(&store, "integrity_check")?;
        schema::migrate(&mut store, schema::MIGRATIONS)?;
        behind::settle(&mut store)?;
        examine(&store)
    };
    verify().map_err(|it| it.say("read", from))
}

/// Returns the number under which the store at `to` is put away, and its counters, if they can be
/// read.
fn replaced(to: &Path) -> (u64, Option<Meta>) {
    let names = fs::read_dir(files::backups(to))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|it| it.file_name().into_string().ok());
    let used = names
        .filter_map(|it| it.strip_prefix("replaced-")?.strip_suffix(".db")?.parse::<u64>().ok())
        .max()
        .unwrap_or(0);
    let old = if to.exists() { meta_of(to).ok() } else { None };
    // A log without a store belongs to the store that an interrupted restore has put away.
    let orphan = !to.exists() && used > 0 && files::beside(to, "-wal").exists();
    (if orphan { used } else { used + 1 }, old)
}

/// Reads the counters of a store that may be damaged. Leaves the store and its log unchanged.
fn meta_of(path: &Path) -> Result<Meta, Fault> {
    let store = open::connect(path)?;
    store.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    let mut meta = meta(&store)?;
    // The rows may be behind the events.
    if let Some((revision, at)) = log::last(&store)? {
        meta.revision = meta.revision.max(revision);
        meta.at = meta.at.max(at);
    }
    Ok(meta)
}

/// Raises the revision of a restored store above all that were assigned, including `reached`.
/// Returns the store's mark.
fn leap(nascent: &Path, nth: u64, old: Option<Meta>, reached: u64) -> Result<Mark, Fault> {
    let mut store = open::connect(nascent)?;
    open::set_up(&store)?;
    let change = store.transaction()?;
    let mut meta = meta(&change)?;
    let last = meta.revision;
    meta.revision = last.max(old.map_or(0, |it| it.revision)).max(reached) + nth * LEAP;
    meta.at = meta.at.max(old.map_or(0, |it| it.at));
    change.execute("INSERT INTO gaps (last, next) VALUES (?1, ?2)", (number(last)?, number(meta.revision)?))?;
    change.execute(
        "UPDATE meta SET revision = ?1, body = ?2 WHERE id = 1",
        (number(meta.revision)?, serde_json::to_string(&meta)?),
    )?;
    change.commit()?;
    let mark = Mark { store: mark::identity(&store)?, revision: meta.revision, log: None };
    store.close().map_err(|(_, cause)| cause)?;
    Ok(mark)
}

fn meta(connection: &Connection) -> Result<Meta, Fault> {
    let body: String = connection.query_row("SELECT body FROM meta WHERE id = 1", [], |row| row.get(0))?;
    decode("meta", ValueRef::Integer(1), body.as_bytes())
}

/// Puts the old store away with its log. The store is moved first, because a log alone is refused
/// at open, while a store without its log would look complete.
fn move_aside(to: &Path, nth: u64) -> Result<(), StoreError> {
    let cannot = |cause| words::io("put away", to, &cause);
    let parts: Vec<(PathBuf, &str)> =
        ["", "-wal", "-shm"].map(|it| (files::beside(to, it), it)).into_iter().filter(|it| it.0.exists()).collect();
    if parts.is_empty() {
        return Ok(());
    }
    let directory = files::make_backups(to).map_err(cannot)?;
    let target = directory.join(format!("replaced-{nth}.db"));
    for (part, suffix) in parts {
        fs::rename(&part, files::beside(&target, suffix)).map_err(cannot)?;
    }
    files::sync(&directory).and_then(|()| files::sync(files::directory(to))).map_err(cannot)
}
