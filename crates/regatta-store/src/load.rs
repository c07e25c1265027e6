//! The board, from its live rows; and the reading of every row, to see that it can be read.

use std::sync::Arc;

use regatta_core::board::{Board, Loading, Row, Rows};
use regatta_core::effect::EffectKey;
use regatta_core::ids::TaskId;
use regatta_core::task::Status;
use regatta_engine::ports::store::Loaded;
use rusqlite::Connection;
use rusqlite::types::ValueRef;
use serde::de::DeserializeOwned;

use crate::commit::number;
use crate::log;
use crate::words::Fault;

/// Reads the board and the outbox, as of one commit.
pub(crate) fn load(connection: &Connection) -> Result<Loaded, Fault> {
    let seen = connection.unchecked_transaction()?;
    let board = board(&seen, &mut Rows::new())?;
    let outbox = outbox(&seen)?;
    drop(seen);
    // The pages of a hundred thousand rows were read once and are not wanted again.
    connection.release_memory()?;
    Ok(Loaded { board, outbox })
}

/// The board as its rows have it and then as the log goes on; `rows` become those that changed in between.
pub(crate) fn board(seen: &Connection, rows: &mut Rows) -> Result<Board, Fault> {
    let mut board = written(seen)?;
    let from = board.revision;
    let mut statement = seen.prepare_cached(&log::after())?;
    let mut left = statement.query([number(board.revision)?])?;
    while let Some(row) = left.next()? {
        for it in log::events(row)?.iter().filter(|it| it.revision > from) {
            if it.revision != board.revision + 1 {
                return Err(Fault::Damaged(format!("event {} is missing from its log", board.revision + 1)));
            }
            board.fold_into(it, rows);
        }
    }
    Ok(board)
}

/// The board as its live rows have it.
fn written(seen: &Connection) -> Result<Board, Fault> {
    let mut board = Loading::default();
    let mut revisions = 0;
    read(seen, "meta", "SELECT id, body FROM meta", |it| {
        revisions += 1;
        board.put(Row::Meta(it));
    })?;
    if revisions == 0 {
        return Err(Fault::Damaged("it does not say at which revision it is".into()));
    }
    read(seen, "projects", "SELECT name, body FROM projects", |it| board.put(Row::Project(Arc::new(it))))?;
    read(seen, "agents", "SELECT name, body FROM agents", |it| board.put(Row::Agent(Arc::new(it))))?;
    read(seen, "missions", "SELECT id, body FROM missions WHERE live = 1", |it| {
        board.put(Row::Mission(Arc::new(it), true))
    })?;
    tasks(seen, &mut board)?;
    read(seen, "attempts", "SELECT id, body FROM attempts WHERE live = 1", |it| board.put(Row::Attempt(Arc::new(it))))?;
    read(seen, "claims", "SELECT id, body FROM claims", |it| board.put(Row::Claim(Arc::new(it))))?;
    read(seen, "waits", "SELECT id, body FROM waits", |it| board.put(Row::Wait(Arc::new(it))))?;
    read(seen, "landings", "SELECT id, body FROM landings WHERE live = 1", |it| board.put(Row::Landing(Arc::new(it))))?;
    read(seen, "cursors", "SELECT agent, body FROM cursors", |it| board.put(Row::Cursor(it)))?;
    read(seen, "answers", "SELECT request, body FROM answers", |it| board.put(Row::Answer(Arc::new(it))))?;
    read(seen, "approvals", "SELECT id, body FROM approvals WHERE live = 1", |it| {
        board.put(Row::Approval(Arc::new(it)))
    })?;
    read(seen, "rules", "SELECT id, body FROM rules", |it| board.put(Row::Rule(Arc::new(it))))?;
    read(seen, "budgets", "SELECT scope, body FROM budgets", |it| board.put(Row::Budget(Arc::new(it))))?;
    read(seen, "days", "SELECT day, body FROM days", |it| board.put(Row::Day(it)))?;
    read(seen, "parked", "SELECT name, body FROM parked", |it| board.put(Row::Parked(Arc::new(it))))?;
    read(seen, "runners", "SELECT name, body FROM runners", |it| board.put(Row::Runner(Arc::new(it))))?;
    read(seen, "hooks", "SELECT id, body FROM hooks", |it| board.put(Row::Hook(Arc::new(it))))?;
    read(seen, "firings", "SELECT id, body FROM firings WHERE live = 1", |it| board.put(Row::Firing(Arc::new(it))))?;
    read(seen, "teams", "SELECT name, body FROM teams", |it| board.put(Row::Team(Arc::new(it))))?;
    read(seen, "launches", "SELECT id, body FROM launches WHERE live = 1", |it| board.put(Row::Launch(Arc::new(it))))?;
    read(seen, "conversations", "SELECT id, body FROM conversations WHERE live = 1", |it| {
        board.put(Row::Conversation(Arc::new(it)))
    })?;
    read(seen, "deliveries", "SELECT key, body FROM deliveries", |it| board.put(Row::Delivery(it)))?;
    Ok(board.done())
}

/// Open and failed tasks whole, other ended ones by how they ended: a fleet that cancels much must not pay for it at every start.
fn tasks(connection: &Connection, board: &mut Loading) -> Result<(), Fault> {
    let mut statement = connection.prepare_cached("SELECT id, body, status FROM tasks WHERE live = 1")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let status = text(row.get_ref(2)?);
        match Status::ALL.into_iter().find(|it| it.is_terminal() && it.name().as_bytes() == status) {
            // What failed may still be somebody's to answer.
            Some(Status::Failed) => {
                board.put(Row::Task(Arc::new(decode("tasks", row.get_ref(0)?, text(row.get_ref(1)?))?)));
            }
            Some(status) => board.put_ended(TaskId(row.get::<_, i64>(0)?.unsigned_abs()), status),
            None => board.put_task(decode("tasks", row.get_ref(0)?, text(row.get_ref(1)?))?),
        }
    }
    Ok(())
}

fn outbox(connection: &Connection) -> Result<Vec<(EffectKey, regatta_core::effect::Effect)>, Fault> {
    let mut found = Vec::new();
    let mut statement = connection.prepare_cached("SELECT revision, body, nth FROM outbox ORDER BY revision, nth")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let key = EffectKey { revision: row.get::<_, i64>(0)?.unsigned_abs(), nth: row.get(2)? };
        found.push((key, decode("outbox", row.get_ref(0)?, text(row.get_ref(1)?))?));
    }
    Ok(found)
}

/// Reads every row there is but the log's, live or history: bytes that changed inside a text are found only so.
pub(crate) fn read_all(connection: &Connection) -> Result<(), Fault> {
    use regatta_core::{approval, attempt, bus, conversation, hook, landing, launch, mission, task};
    load(connection)?;
    read(connection, "missions", "SELECT id, body FROM missions", |_: mission::Mission| ())?;
    read(connection, "tasks", "SELECT id, body FROM tasks", |_: task::Task| ())?;
    read(connection, "attempts", "SELECT id, body FROM attempts", |_: attempt::Attempt| ())?;
    read(connection, "landings", "SELECT id, body FROM landings", |_: landing::Landing| ())?;
    read(connection, "launches", "SELECT id, body FROM launches", |_: launch::Launch| ())?;
    read(connection, "conversations", "SELECT id, body FROM conversations", |_: conversation::Conversation| ())?;
    read(connection, "approvals", "SELECT id, body FROM approvals", |_: approval::Approval| ())?;
    read(connection, "firings", "SELECT id, body FROM firings", |_: hook::Firing| ())?;
    read(connection, "messages", "SELECT id, body FROM messages", |_: bus::Message| ())
}

/// Reads rows of one table: the name of each, and its body.
fn read<T: DeserializeOwned>(
    connection: &Connection,
    table: &'static str,
    sql: &str,
    mut each: impl FnMut(T),
) -> Result<(), Fault> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        each(decode(table, row.get_ref(0)?, text(row.get_ref(1)?))?);
    }
    Ok(())
}

/// What a text column holds. A number there would be damage, and has no JSON form of ours.
pub(crate) fn text(it: ValueRef<'_>) -> &[u8] {
    it.as_bytes().unwrap_or_default()
}

/// Makes a stored body a row again, or says which one cannot be read.
pub(crate) fn decode<T: DeserializeOwned>(table: &'static str, id: ValueRef<'_>, body: &[u8]) -> Result<T, Fault> {
    serde_json::from_slice(body).map_err(|cause| {
        let id = match id {
            ValueRef::Integer(it) => it.to_string(),
            other => String::from_utf8_lossy(text(other)).into_owned(),
        };
        Fault::Row { table, id, cause }
    })
}
