//! Reads the board (the state of all unfinished work) and the uncompleted effects when a daemon
//! starts, and checks on request that everything can be read.

use std::collections::BTreeMap;
use std::pin::Pin;

use futures_util::StreamExt;
use regatta_core::board::{BoardLoader, BoardMeta, Row as BoardRow};
use regatta_core::effect::EffectKey;
use regatta_core::event::Recorded;
use regatta_core::ids::Now;
use regatta_engine::ports::store::{LoadedState, StoreError, UnreadableRow};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row, RowStream};

use super::connection::{Database, Statement, run};
use super::{WHOLE_FLEET, faults, lease};
use crate::errors::StoreFault;
use crate::event_rows::{self, EventRow};
use crate::row_codec::{self, KINDS, MESSAGES, StoredRow};

/// Begins a transaction whose statements all see the same state.
pub(super) const BEGIN_SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// The columns of a row, in the order in which [`stored_row`] expects them.
pub(super) const ROW_COLUMNS: &str = "number, name, live, status, body";

/// Returns the row of a query for [`ROW_COLUMNS`].
pub(super) fn stored_row<'a>(kind: &'static str, row: &'a Row) -> StoredRow<'a> {
    StoredRow {
        kind,
        number: row.get(0),
        name: row.get(1),
        live: row.get(2),
        status: row.get(3),
        body: row.get(4),
    }
}

/// The columns of an event, in the order in which [`events_of_row`] expects them.
pub(super) const EVENT_COLUMNS: &str = "revision, at, wall, by, body";

pub(super) fn events_of_row(row: &Row) -> Vec<Recorded> {
    let body: &str = row.get(4);
    event_rows::decode_events(&EventRow {
        revision: row.get::<_, i64>(0).unsigned_abs(),
        now: Now {
            fleet_ms: row.get::<_, i64>(1).unsigned_abs(),
            unix_ms: row.get::<_, i64>(2).unsigned_abs(),
        },
        author: row.get(3),
        body: body.as_bytes(),
    })
}

/// Reads the board and the outbox as of one revision.
pub(super) async fn load(database: &Database, client: &Client) -> Result<LoadedState, StoreError> {
    let to_error = |error: tokio_postgres::Error| faults::database(&database.settings, &error);
    client
        .batch_execute(BEGIN_SNAPSHOT)
        .await
        .map_err(to_error)?;
    let loaded = load_in_snapshot(database, client).await;
    client.batch_execute("COMMIT").await.map_err(to_error)?;
    loaded
}

async fn load_in_snapshot(database: &Database, client: &Client) -> Result<LoadedState, StoreError> {
    let mut unreadable_rows = Vec::new();
    let mut loader = BoardLoader::default();
    loader.put(BoardRow::Meta(read_meta(database, client).await?));
    let sql = format!(
        "SELECT {ROW_COLUMNS} FROM rows WHERE project = $1 AND kind = $2 AND live ORDER BY number, \
        name"
    );
    for kind in KINDS.into_iter().filter(|kind| *kind != MESSAGES) {
        each_row(database, client, &sql, kind, |row| {
            keep_readable(row_codec::put_row(&mut loader, &row), &mut unreadable_rows).map(drop)
        })
        .await?;
    }
    let mut outbox = Vec::new();
    let sql = "SELECT revision, nth, body FROM outbox WHERE project = $1 ORDER BY revision, nth";
    let rows = run(client, &Statement::new(sql, vec![WHOLE_FLEET.into()]))
        .await
        .map_err(|error| faults::database(&database.settings, &error))?;
    for row in &rows {
        let key = EffectKey {
            revision: row.get::<_, i64>(0).unsigned_abs(),
            nth: u32::try_from(row.get::<_, i64>(1)).unwrap_or(u32::MAX),
        };
        let stored = StoredRow {
            kind: "outbox",
            number: row.get(0),
            name: "",
            live: true,
            status: None,
            body: row.get(2),
        };
        let effect = keep_readable(stored.decode(), &mut unreadable_rows)
            .map_err(|fault| faults::from_fault(&database.settings, fault))?;
        outbox.extend(effect.map(|effect| (key, effect)));
    }
    Ok(LoadedState {
        board: loader.finish(),
        outbox,
        unreadable_rows,
    })
}

/// Reads the board's counters. The store cannot be used without them, because it is unknown which
/// numbers were already assigned.
pub(super) async fn read_meta(
    database: &Database,
    client: &Client,
) -> Result<BoardMeta, StoreError> {
    let row = lease::read(database, client).await?;
    let meta: BoardMeta = serde_json::from_str(&row.meta).map_err(|error| {
        faults::corrupt(
            &database.settings,
            &format!("its counters cannot be read ({error})"),
        )
    })?;
    if i64::try_from(meta.revision) != Ok(row.revision) {
        return Err(faults::corrupt(
            &database.settings,
            &format!(
                "its counters are at revision {}, but its last event is {}",
                meta.revision, row.revision
            ),
        ));
    }
    Ok(meta)
}

/// The rows of a query, which are not held in memory at once.
pub(super) struct RowReader<'a> {
    database: &'a Database,
    rows: Pin<Box<RowStream>>,
}

impl RowReader<'_> {
    pub(super) async fn next(&mut self) -> Result<Option<Row>, StoreError> {
        let row = self.rows.next().await.transpose();
        row.map_err(|error| faults::database(&self.database.settings, &error))
    }
}

/// Starts a query whose parameters are texts.
pub(super) async fn stream<'a>(
    database: &'a Database,
    client: &Client,
    sql: &str,
    params: &[&str],
) -> Result<RowReader<'a>, StoreError> {
    let params = params.iter().map(|param| (*param, Type::TEXT));
    let rows = client
        .query_typed_raw(sql, params)
        .await
        .map_err(|error| faults::database(&database.settings, &error))?;
    Ok(RowReader {
        database,
        rows: Box::pin(rows),
    })
}

/// Calls `each` for every row of one kind. `sql` has the project and the kind as parameters.
async fn each_row(
    database: &Database,
    client: &Client,
    sql: &str,
    kind: &'static str,
    mut each: impl FnMut(StoredRow<'_>) -> Result<(), StoreFault>,
) -> Result<(), StoreError> {
    let mut rows = stream(database, client, sql, &[WHOLE_FLEET, kind]).await?;
    while let Some(row) = rows.next().await? {
        each(stored_row(kind, &row))
            .map_err(|fault| faults::from_fault(&database.settings, fault))?;
    }
    Ok(())
}

/// Calls `each` for every event from the oldest on.
async fn each_event(
    database: &Database,
    client: &Client,
    mut each: impl FnMut(Recorded) -> Result<(), StoreFault>,
) -> Result<(), StoreError> {
    let sql = format!("SELECT {EVENT_COLUMNS} FROM events WHERE project = $1 ORDER BY revision");
    let mut rows = stream(database, client, &sql, &[WHOLE_FLEET]).await?;
    while let Some(row) = rows.next().await? {
        for event in events_of_row(&row) {
            each(event).map_err(|fault| faults::from_fault(&database.settings, fault))?;
        }
    }
    Ok(())
}

/// Returns the decoded row. If the row cannot be read, adds it to `unreadable_rows` and returns
/// `None`. Returns all other errors to the caller (D11).
pub(super) fn keep_readable<T>(
    decoded: Result<T, StoreFault>,
    unreadable_rows: &mut Vec<UnreadableRow>,
) -> Result<Option<T>, StoreFault> {
    match decoded {
        Ok(row) => Ok(Some(row)),
        Err(StoreFault::UndecodableRow { table, id, cause }) => {
            unreadable_rows.push(UnreadableRow {
                table,
                id,
                reason: cause.to_string(),
            });
            Ok(None)
        }
        Err(fault) => Err(fault),
    }
}

/// Checks that no event is missing up to the store's revision, except in the gaps that a restore
/// made, and that every row and event can be read (D3).
pub(super) async fn check(database: &Database, client: &Client) -> Result<(), StoreError> {
    let to_error = |error: tokio_postgres::Error| faults::database(&database.settings, &error);
    client
        .batch_execute(BEGIN_SNAPSHOT)
        .await
        .map_err(to_error)?;
    let checked = check_in_snapshot(database, client).await;
    client.batch_execute("COMMIT").await.map_err(to_error)?;
    let unreadable_rows = checked?;
    if unreadable_rows.is_empty() {
        return Ok(());
    }
    Err(faults::from_fault(
        &database.settings,
        StoreFault::UnreadableRows(unreadable_rows),
    ))
}

async fn check_in_snapshot(
    database: &Database,
    client: &Client,
) -> Result<Vec<UnreadableRow>, StoreError> {
    let meta = read_meta(database, client).await?;
    let mut unreadable_rows = Vec::new();
    let gaps = read_gaps(database, client).await?;
    let skip_gaps = |mut revision: u64| {
        while let Some(next) = gaps.get(&revision).filter(|next| **next > revision) {
            revision = *next;
        }
        revision
    };
    let mut last = 0;
    each_event(database, client, |event| {
        let unreadable = event_rows::unreadable_row(&event);
        // A row that cannot be read may contain several events, so the revision may jump after
        // such a row.
        let follows = event.revision == skip_gaps(last) + 1
            || (unreadable.is_some() && event.revision > last);
        if !follows {
            return Err(StoreFault::Damaged(format!(
                "event {} is missing",
                skip_gaps(last) + 1
            )));
        }
        unreadable_rows.extend(unreadable);
        last = event.revision;
        Ok(())
    })
    .await?;
    if skip_gaps(last) != meta.revision {
        return Err(faults::corrupt(
            &database.settings,
            &format!(
                "its counters are at revision {}, but its last event is {}",
                meta.revision,
                skip_gaps(last)
            ),
        ));
    }
    let sql = format!(
        "SELECT {ROW_COLUMNS} FROM rows WHERE project = $1 AND kind = $2 ORDER BY number, name"
    );
    for kind in KINDS {
        each_row(database, client, &sql, kind, |row| {
            keep_readable(row_codec::row_of(&row), &mut unreadable_rows).map(drop)
        })
        .await?;
    }
    let outbox = load_in_snapshot(database, client).await?;
    let effects = outbox.unreadable_rows.into_iter();
    unreadable_rows.extend(effects.filter(|row| row.table == "outbox"));
    Ok(unreadable_rows)
}

/// Reads the gaps in the numbers of events. A restored store continues far above every number that
/// it may have assigned.
pub(super) async fn read_gaps(
    database: &Database,
    client: &Client,
) -> Result<BTreeMap<u64, u64>, StoreError> {
    let sql = "SELECT last, next FROM gaps WHERE project = $1";
    let rows = run(client, &Statement::new(sql, vec![WHOLE_FLEET.into()]))
        .await
        .map_err(|error| faults::database(&database.settings, &error))?;
    let number = |row: &Row, column: usize| row.get::<_, i64>(column).unsigned_abs();
    Ok(rows
        .iter()
        .map(|row| (number(row, 0), number(row, 1)))
        .collect())
}
