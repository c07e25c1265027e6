//! The log: how events become rows and rows events.
//!
//! Events that were decided at one moment share a row, so that a commit of sixty-four claims writes one row of
//! history and not sixty-four. A row is named by the last event in it. One event alone is kept as schema 1 kept
//! all of them, its author beside it; of several, each has its author with it.

use regatta_core::command::Actor;
use regatta_core::event::{Event, Recorded};
use regatta_core::ids::Now;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row};

use crate::commit::{Json, number};
use crate::load::{decode, text};
use crate::words::Fault;

/// The most events in a row: who reads one event from the middle reads them all.
const MOST_EVENTS: usize = 64;
/// A row that is this long takes no more.
const LONG_ENOUGH: usize = 32 * 1024;

/// Stores events that follow each other. `json` is only a buffer.
pub(crate) fn append(connection: &Connection, json: &mut Vec<u8>, events: &[Recorded]) -> Result<(), Fault> {
    let mut insert =
        connection.prepare_cached("INSERT INTO events (revision, at, wall, by, body) VALUES (?1, ?2, ?3, ?4, ?5)")?;
    let mut left = events;
    while let Some(first) = left.first() {
        json.clear();
        let alone = left.get(1).is_none_or(|it| it.now != first.now);
        let taken = if alone {
            serde_json::to_writer(&mut *json, &first.event)?;
            1
        } else {
            several(json, left)?
        };
        let (row, rest) = left.split_at(taken);
        let last = row.last().map_or(first.revision, |it| it.revision);
        let by = if alone { first.by.to_string() } else { String::new() };
        insert.execute((number(last)?, number(first.now.at)?, number(first.now.wall)?, by, Json(json)))?;
        left = rest;
    }
    Ok(())
}

/// Writes as many as go into one row: `[["ann",{…}],["bob",{…}]]`.
fn several(json: &mut Vec<u8>, events: &[Recorded]) -> Result<usize, Fault> {
    let mut taken = 0;
    for it in events.iter().take(MOST_EVENTS).take_while(|it| it.now == events[0].now) {
        if json.len() > LONG_ENOUGH {
            break;
        }
        json.push(if taken == 0 { b'[' } else { b',' });
        serde_json::to_writer(&mut *json, &(&it.by, &it.event))?;
        taken += 1;
    }
    json.push(b']');
    Ok(taken)
}

/// What [`events`] needs of a row, in this order.
pub(crate) const COLUMNS: &str = "revision, body, at, wall, by";

/// Asks for the rows whose last event is after a revision, oldest first.
pub(crate) fn after() -> String {
    format!("SELECT {COLUMNS} FROM events WHERE revision > ?1 ORDER BY revision")
}

/// The last event's revision, and when it was on the fleet clock.
pub(crate) fn last(connection: &Connection) -> Result<Option<(u64, u64)>, Fault> {
    let newest = "SELECT revision, at FROM events ORDER BY revision DESC LIMIT 1";
    let found =
        connection.query_row(newest, [], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))).optional()?;
    Ok(found.map(|(revision, at)| (revision.unsigned_abs(), at.unsigned_abs())))
}

/// The events of a row, oldest first.
pub(crate) fn events(row: &Row<'_>) -> Result<Vec<Recorded>, Fault> {
    let (id, body) = (row.get_ref(0)?, text(row.get_ref(1)?));
    let last = row.get::<_, i64>(0)?.unsigned_abs();
    let now = Now { at: row.get::<_, i64>(2)?.unsigned_abs(), wall: row.get::<_, i64>(3)?.unsigned_abs() };
    if body.first() != Some(&b'[') {
        let by = Actor::try_from(row.get::<_, String>(4)?)
            .map_err(|it| Fault::Damaged(format!("event {last} is by nobody: {it}")))?;
        return Ok(vec![Recorded { revision: last, now, by, event: decode("events", id, body)? }]);
    }
    let found: Vec<(Actor, Event)> = decode("events", id, body)?;
    let before = last.checked_sub(found.len() as u64).filter(|_| !found.is_empty()).ok_or_else(|| misplaced(id))?;
    let numbered = (before + 1..).zip(found);
    Ok(numbered.map(|(revision, (by, event))| Recorded { revision, now, by, event }).collect())
}

fn misplaced(id: ValueRef<'_>) -> Fault {
    Fault::Damaged(format!("row {} of its table events holds none, or more than there were", id.as_i64().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use regatta_engine::ports::store::Store;
    use regatta_testkit::store_suite::story::everything;

    use super::*;
    use crate::SqliteStore;

    /// Many events, as if most of them were decided at one moment.
    fn many() -> Vec<Recorded> {
        let told: Vec<Recorded> = everything().into_iter().flat_map(|it| it.batch.events).collect();
        let later = |at: u64| Now { at, wall: 5 };
        let rounds = (0..4).flat_map(|round| told.iter().map(move |it| (round, it.clone())));
        let at = |round: u64, revision: u64| if revision.is_multiple_of(97) { later(9) } else { later(round) };
        (1..).zip(rounds).map(|(revision, (round, it))| Recorded { revision, now: at(round, revision), ..it }).collect()
    }

    #[test]
    fn events_share_rows_and_come_back_from_any_place() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("regatta.db");
        let store = SqliteStore::open(&path).unwrap();
        let (told, raw) = (many(), Connection::open(&path).unwrap());
        append(&raw, &mut Vec::new(), &told).unwrap();
        let count = |sql: &str| raw.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap() as usize;
        let rows = count("SELECT count(*) FROM events");
        assert!(told.len() > 3 * MOST_EVENTS && rows < told.len() / 4, "{} events are in {rows} rows", told.len());
        assert!(count("SELECT count(*) FROM events WHERE body LIKE '{%'") > 0, "some are alone");
        assert!(count("SELECT max(json_array_length(body)) FROM events WHERE body LIKE '[%'") <= MOST_EVENTS);
        assert!(count("SELECT max(length(body)) FROM events") < LONG_ENOUGH + 8 * 1024);
        let history = store.history();
        for after in [0, 1, 2, 62, 63, 64, 65, 96, 97, 98, told.len() - 1, told.len(), told.len() + 5] {
            for limit in [0, 1, 2, 63, 64, 65, 1_000_000] {
                let found = history.events(after as u64, limit).unwrap();
                let expected: Vec<Recorded> = told.iter().skip(after).take(limit).cloned().collect();
                assert!(found == expected, "{limit} after {after}");
            }
        }
    }

    #[test]
    fn a_row_with_more_events_than_there_were_is_damage() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("regatta.db");
        let store = SqliteStore::open(&path).unwrap();
        let raw = Connection::open(&path).unwrap();
        append(&raw, &mut Vec::new(), &many()[..9]).unwrap();
        for spoil in ["UPDATE events SET revision = 2 WHERE revision = 9", "UPDATE events SET body = '[]'"] {
            raw.execute_batch(spoil).unwrap();
            assert_eq!(store.history().events(0, 10).unwrap_err().code, "corrupt", "{spoil}");
        }
    }
}
