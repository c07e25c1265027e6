//! The table `events` in SQLite. The format of its rows is in `event_rows.rs`.

use regatta_core::event::Recorded;
use regatta_core::ids::Now;
use rusqlite::{Connection, OptionalExtension, Row};

use crate::commit::{JsonText, to_sql_number};
use crate::errors::StoreFault;
use crate::event_rows::{self, EventRow};
use crate::load::text_bytes;

/// Stores consecutive events in as few rows as possible. `json` is a buffer that is reused.
pub(crate) fn append_events(
    connection: &Connection,
    json: &mut Vec<u8>,
    events: &[Recorded],
) -> Result<(), StoreFault> {
    let mut insert = connection.prepare_cached(
        "INSERT INTO events (revision, at, wall, by, body) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    event_rows::encode_events(json, events, |row| {
        insert.execute((
            to_sql_number(row.revision)?,
            to_sql_number(row.now.fleet_ms)?,
            to_sql_number(row.now.unix_ms)?,
            row.author,
            JsonText(row.body),
        ))?;
        Ok::<(), StoreFault>(())
    })
}

/// The columns that a query must return, in this order, for [`events_of_row`].
pub(crate) const COLUMNS: &str = "revision, body, at, wall, by";

/// Returns the SQL query for the rows whose last event is after a given revision (event number),
/// oldest first.
pub(crate) fn query_after() -> String {
    format!("SELECT {COLUMNS} FROM events WHERE revision > ?1 ORDER BY revision")
}

/// Returns the revision (event number) of the last event and its time on the fleet clock, which
/// counts only while a daemon runs. Returns `None` if there are no events.
pub(crate) fn last_event(connection: &Connection) -> Result<Option<(u64, u64)>, StoreFault> {
    let newest = "SELECT revision, at FROM events ORDER BY revision DESC LIMIT 1";
    let last = connection
        .query_row(newest, [], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
        })
        .optional()?;
    Ok(last.map(|(revision, fleet_ms)| (revision.unsigned_abs(), fleet_ms.unsigned_abs())))
}

/// Returns the events of a row, oldest first, like [`event_rows::decode_events`].
pub(crate) fn events_of_row(row: &Row<'_>) -> Result<Vec<Recorded>, StoreFault> {
    let author: String = row.get(4)?;
    Ok(event_rows::decode_events(&EventRow {
        revision: row.get::<_, i64>(0)?.unsigned_abs(),
        now: Now {
            fleet_ms: row.get::<_, i64>(2)?.unsigned_abs(),
            unix_ms: row.get::<_, i64>(3)?.unsigned_abs(),
        },
        author: &author,
        body: text_bytes(row.get_ref(1)?),
    }))
}

#[cfg(test)]
mod tests {
    use regatta_engine::ports::store::Store;
    use regatta_testkit::store_suite::history_fixture::all_steps;

    use regatta_core::event::Event;

    use super::*;
    use crate::SqliteStore;

    /// Returns many events, most of which have the same time.
    fn many_events() -> Vec<Recorded> {
        let events: Vec<Recorded> = all_steps()
            .into_iter()
            .flat_map(|step| step.batch.events)
            .collect();
        let now_at = |fleet_ms: u64| Now {
            fleet_ms,
            unix_ms: 5,
        };
        let rounds =
            (0..4).flat_map(|round| events.iter().map(move |event| (round, event.clone())));
        let now_of = |round: u64, revision: u64| {
            if revision.is_multiple_of(97) {
                now_at(9)
            } else {
                now_at(round)
            }
        };
        (1..)
            .zip(rounds)
            .map(|(revision, (round, event))| Recorded {
                revision,
                now: now_of(round, revision),
                ..event
            })
            .collect()
    }

    #[test]
    fn events_share_rows_and_are_read_from_any_revision() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("regatta.db");
        let store = SqliteStore::open(&path).unwrap();
        let (events, raw) = (many_events(), Connection::open(&path).unwrap());
        append_events(&raw, &mut Vec::new(), &events).unwrap();
        let count =
            |sql: &str| raw.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap() as usize;
        let rows = count("SELECT count(*) FROM events");
        assert!(
            events.len() > 3 * event_rows::MAX_EVENTS_PER_ROW && rows < events.len() / 4,
            "{} events are in {rows} rows",
            events.len()
        );
        assert!(
            count("SELECT count(*) FROM events WHERE body LIKE '{%'") > 0,
            "some events have their own row"
        );
        assert!(
            count("SELECT max(json_array_length(body)) FROM events WHERE body LIKE '[%'")
                <= event_rows::MAX_EVENTS_PER_ROW
        );
        assert!(
            count("SELECT max(length(body)) FROM events") < event_rows::FULL_ROW_BYTES + 8 * 1024
        );
        let history = store.history();
        for after in [
            0,
            1,
            2,
            62,
            63,
            64,
            65,
            96,
            97,
            98,
            events.len() - 1,
            events.len(),
            events.len() + 5,
        ] {
            for limit in [0, 1, 2, 63, 64, 65, 1_000_000] {
                let found = history.events(after as u64, limit).unwrap();
                let expected: Vec<Recorded> =
                    events.iter().skip(after).take(limit).cloned().collect();
                assert!(found == expected, "{limit} after {after}");
            }
        }
    }

    /// D11: a row whose events cannot be counted becomes one unreadable event, and reading
    /// continues after it.
    #[test]
    fn d11_a_row_with_a_wrong_number_of_events_is_unreadable() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("regatta.db");
        let store = SqliteStore::open(&path).unwrap();
        let raw = Connection::open(&path).unwrap();
        let events = many_events();
        append_events(&raw, &mut Vec::new(), &events[..9]).unwrap();
        append_events(&raw, &mut Vec::new(), &events[9..12]).unwrap();
        for damage in ["body = '[]'", "body = '[[1'", "revision = 2"] {
            raw.execute_batch(&format!("UPDATE events SET {damage} WHERE revision = 9"))
                .unwrap();
            let found = store.history().events(0, 10).unwrap();
            assert!(
                matches!(found[0].event, Event::EventUnreadable(_)),
                "{damage}"
            );
            assert!(found[1..] == events[9..12], "{damage}");
        }
    }

    /// The repair of schema 8 rewrote rows with their fields in alphabetical order.
    #[test]
    fn events_with_data_before_their_kind_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("regatta.db");
        let store = SqliteStore::open(&path).unwrap();
        let raw = Connection::open(&path).unwrap();
        let events = many_events();
        append_events(&raw, &mut Vec::new(), &events[..9]).unwrap();
        append_events(
            &raw,
            &mut Vec::new(),
            &[Recorded {
                revision: 10,
                ..events[9].clone()
            }],
        )
        .unwrap();
        let rows = "SELECT revision, body FROM events";
        let columns = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?));
        let bodies: Vec<(i64, String)> = raw
            .prepare(rows)
            .unwrap()
            .query_map([], columns)
            .unwrap()
            .map(Result::unwrap)
            .collect();
        assert_eq!(bodies.len(), 2);
        for (revision, body) in bodies {
            let sorted = serde_json::from_str::<serde_json::Value>(&body)
                .unwrap()
                .to_string();
            assert!(sorted.contains(r#"{"data":"#), "{sorted}");
            raw.execute(
                "UPDATE events SET body = ?1 WHERE revision = ?2",
                (sorted, revision),
            )
            .unwrap();
        }
        assert!(store.history().events(0, 99).unwrap() == events[..10]);
    }

    /// D11: only the unreadable events of a row are lost.
    #[test]
    fn d11_one_unreadable_event_hides_no_other_in_its_row() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("regatta.db");
        let store = SqliteStore::open(&path).unwrap();
        let raw = Connection::open(&path).unwrap();
        let events = many_events();
        append_events(&raw, &mut Vec::new(), &events[..9]).unwrap();
        let body: String = raw
            .query_row("SELECT body FROM events", [], |row| row.get(0))
            .unwrap();
        let fourth = serde_json::to_string(&(&events[3].by, &events[3].event)).unwrap();
        for damage in [
            r#"["ann",{"kind":"from.the.future"}]"#,
            r#"["no name",{}]"#,
            "7",
        ] {
            let damaged_body = body.replacen(&fourth, damage, 1);
            raw.execute("UPDATE events SET body = ?1", [damaged_body])
                .unwrap();
            let found = store.history().events(0, 99).unwrap();
            assert_eq!(found.len(), 9, "{damage}");
            for (found, expected) in found.iter().zip(&events) {
                assert_eq!(found.revision, expected.revision);
                let is_right = if expected.revision == 4 {
                    matches!(&found.event, Event::EventUnreadable(event) if !event.why().is_empty())
                } else {
                    found == expected
                };
                assert!(is_right, "{damage}: {found:?}");
            }
        }
    }
}
