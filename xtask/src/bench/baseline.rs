//! What most programs would do instead of one writer: a connection per caller, `BEGIN IMMEDIATE`, and a busy
//! timeout. Written as well as that can be: prepared statements, a small schema, one transaction per operation.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

use crate::dice::Dice;
use crate::report::Times;

pub(crate) const SCHEMA: &str = "\
CREATE TABLE claims (uri TEXT PRIMARY KEY, holder TEXT NOT NULL, token INTEGER NOT NULL, expires_at INTEGER NOT NULL) STRICT;
CREATE TABLE events (id INTEGER PRIMARY KEY, at INTEGER NOT NULL, kind TEXT NOT NULL, uri TEXT NOT NULL, holder TEXT NOT NULL) STRICT;";
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Prepares the file.
pub(crate) fn create(path: &Path) -> rusqlite::Result<()> {
    connect(path)?.execute_batch(SCHEMA)
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(PATIENCE)?;
    connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get::<_, String>(0))?;
    connection.pragma_update(None, "synchronous", "full")?;
    Ok(connection)
}

/// One caller: acquire, renew, release, on URIs that only it uses, so that every operation writes.
pub(crate) fn caller(
    path: &Path,
    number: usize,
    uris: &[String],
    steps: usize,
    commits: &AtomicU64,
) -> rusqlite::Result<Times> {
    let mut connection = connect(path)?;
    let mut dice = Dice::new(number as u64);
    let (holder, epoch) = (format!("agent-{number}"), Instant::now());
    let mut times = Times::default();
    for _ in 0..steps {
        let Some(uri) = dice.pick(uris) else { break };
        let mut token = 0;
        for kind in ["granted", "renewed", "released"] {
            let began = Instant::now();
            let now = epoch.elapsed().as_millis() as i64;
            let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            change
                .prepare_cached("INSERT INTO events (at, kind, uri, holder) VALUES (?1, ?2, ?3, ?4)")?
                .execute((now, kind, uri, &holder))?;
            let changed = match kind {
                "granted" => {
                    token = change.last_insert_rowid();
                    let held: Option<i64> = change
                        .prepare_cached("SELECT token FROM claims WHERE uri = ?1 AND expires_at > ?2")?
                        .query_row((uri, now), |row| row.get(0))
                        .optional()?;
                    if held.is_some() {
                        return Err(rusqlite::Error::QueryReturnedMoreThanOneRow);
                    }
                    change
                        .prepare_cached(
                            "INSERT OR REPLACE INTO claims (uri, holder, token, expires_at) VALUES (?1, ?2, ?3, ?4)",
                        )?
                        .execute((uri, &holder, token, now + 60_000))?
                }
                "renewed" => change
                    .prepare_cached("UPDATE claims SET expires_at = ?3 WHERE uri = ?1 AND token = ?2")?
                    .execute((uri, token, now + 60_000))?,
                _ => {
                    change.prepare_cached("DELETE FROM claims WHERE uri = ?1 AND token = ?2")?.execute((uri, token))?
                }
            };
            if changed != 1 {
                return Err(rusqlite::Error::StatementChangedRows(changed));
            }
            change.commit()?;
            commits.fetch_add(1, Relaxed);
            times.add(began.elapsed());
        }
    }
    Ok(times)
}
