//! The baseline that the engine is compared with: a SQLite connection per caller, `BEGIN
//! IMMEDIATE`, and a busy timeout.
//!
//! It is written as well as this design allows: prepared statements, a small schema, one
//! transaction per operation.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

use crate::report::Times;
use crate::rng::Rng;

pub(crate) const SCHEMA: &str = "\
CREATE TABLE claims (uri TEXT PRIMARY KEY, holder TEXT NOT NULL, token INTEGER NOT NULL, expires_at INTEGER NOT NULL) STRICT;
CREATE TABLE events (id INTEGER PRIMARY KEY, at INTEGER NOT NULL, kind TEXT NOT NULL, uri TEXT NOT NULL, holder TEXT NOT NULL) STRICT;";
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_secs(30);

/// Creates the database file.
pub(crate) fn create_database(path: &Path) -> rusqlite::Result<()> {
    connect(path)?.execute_batch(SCHEMA)
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(LOCK_TIMEOUT)?;
    connection
        .pragma_update_and_check(None, "journal_mode", "wal", |row| row.get::<_, String>(0))?;
    connection.pragma_update(None, "synchronous", "full")?;
    Ok(connection)
}

/// Runs one caller: acquire, renew and release, on URIs that only this caller uses, so that every
/// operation writes.
pub(crate) fn run_caller(
    path: &Path,
    number: usize,
    uris: &[String],
    steps: usize,
    commits: &AtomicU64,
) -> rusqlite::Result<Times> {
    let (mut caller, mut times) = (BaselineCaller::new(path, number, uris)?, Times::default());
    for _ in 0..steps * 3 {
        let began = Instant::now();
        caller.step()?;
        commits.fetch_add(1, Relaxed);
        times.add(began.elapsed());
    }
    Ok(times)
}

/// Runs a caller on a schedule. An operation's time counts from the moment when it was due.
pub(crate) fn run_scheduled_caller(
    path: &Path,
    number: usize,
    uris: &[String],
    due: impl Iterator<Item = Instant>,
) -> rusqlite::Result<Times> {
    let (mut caller, mut times) = (BaselineCaller::new(path, number, uris)?, Times::default());
    for due in due {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        caller.step()?;
        times.add(due.elapsed());
    }
    Ok(times)
}

struct BaselineCaller<'a> {
    connection: Connection,
    holder: String,
    epoch: Instant,
    uris: &'a [String],
    rng: Rng,
    /// The claims of the caller, and whether each was renewed.
    held: Option<(&'a String, i64, bool)>,
}

impl<'a> BaselineCaller<'a> {
    fn new(path: &Path, number: usize, uris: &'a [String]) -> rusqlite::Result<BaselineCaller<'a>> {
        let (dice, holder) = (Rng::new(number as u64), format!("agent-{number}"));
        Ok(BaselineCaller {
            connection: connect(path)?,
            holder,
            epoch: Instant::now(),
            uris,
            rng: dice,
            held: None,
        })
    }

    /// Performs one operation in a transaction of its own: a claim and an event.
    fn step(&mut self) -> rusqlite::Result<()> {
        let now = self.epoch.elapsed().as_millis() as i64;
        let kind = match self.held {
            None => "granted",
            Some((_, _, false)) => "renewed",
            Some((_, _, true)) => "released",
        };
        let picked = self
            .held
            .map(|held| held.0)
            .or_else(|| self.rng.pick(self.uris));
        let Some(uri) = picked else { return Ok(()) };
        let change = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        change
            .prepare_cached("INSERT INTO events (at, kind, uri, holder) VALUES (?1, ?2, ?3, ?4)")?
            .execute((now, kind, uri, &self.holder))?;
        let (changed, held) = match self.held {
            None => {
                let token = change.last_insert_rowid();
                let taken: Option<i64> = change
                    .prepare_cached("SELECT token FROM claims WHERE uri = ?1 AND expires_at > ?2")?
                    .query_row((uri, now), |row| row.get(0))
                    .optional()?;
                if taken.is_some() {
                    return Err(rusqlite::Error::QueryReturnedMoreThanOneRow);
                }
                let sql = "INSERT OR REPLACE INTO claims (uri, holder, token, expires_at) VALUES \
                    (?1, ?2, ?3, ?4)";
                let changed = change.prepare_cached(sql)?.execute((
                    uri,
                    &self.holder,
                    token,
                    now + 60_000,
                ))?;
                (changed, Some((uri, token, false)))
            }
            Some((_, token, false)) => {
                let sql = "UPDATE claims SET expires_at = ?3 WHERE uri = ?1 AND token = ?2";
                (
                    change
                        .prepare_cached(sql)?
                        .execute((uri, token, now + 60_000))?,
                    Some((uri, token, true)),
                )
            }
            Some((_, token, true)) => {
                let sql = "DELETE FROM claims WHERE uri = ?1 AND token = ?2";
                (change.prepare_cached(sql)?.execute((uri, token))?, None)
            }
        };
        if changed != 1 {
            return Err(rusqlite::Error::StatementChangedRows(changed));
        }
        change.commit()?;
        self.held = held;
        Ok(())
    }
}
