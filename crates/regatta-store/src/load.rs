//! Loads the board (the state of all unfinished work) from the store's rows when the daemon starts.
//! Also checks on request that all rows can be read.

use std::sync::Arc;

use regatta_core::board::{Board, BoardLoader, Row, Rows};
use regatta_core::effect::EffectKey;
use regatta_core::ids::TaskId;
use regatta_core::task::TaskStatus;
use regatta_engine::ports::store::{LoadedState, UnreadableRow};
use rusqlite::Connection;
use rusqlite::types::ValueRef;
use serde::de::DeserializeOwned;

use crate::commit::to_sql_number;
use crate::errors::StoreFault;
use crate::{event_log, event_rows};

/// Reads the board (the state of all unfinished work) and the uncompleted effects, both as of the
/// last transaction. Effects are outside actions, such as starting a program.
pub(crate) fn load_store(connection: &Connection) -> Result<LoadedState, StoreFault> {
    let snapshot = connection.unchecked_transaction()?;
    let mut unreadable = Vec::new();
    let board = read_board(&snapshot, &mut Rows::new(), &mut unreadable)?;
    let outbox = read_outbox(&snapshot, &mut unreadable)?;
    drop(snapshot);
    // Free the memory of SQLite's cached pages, because these pages of up to a hundred thousand
    // rows are not needed again.
    connection.release_memory()?;
    Ok(LoadedState {
        board,
        outbox,
        unreadable_rows: unreadable,
    })
}

/// Reads the board (the state of all unfinished work) from the stored rows. Then applies the later
/// events, whose rows were deferred (not written yet), to the board. Adds the rows that these
/// events change to `rows`. Adds the rows and events that cannot be read to `unreadable_rows`
/// (D11).
pub(crate) fn read_board(
    snapshot: &Connection,
    rows: &mut Rows,
    unreadable_rows: &mut Vec<UnreadableRow>,
) -> Result<Board, StoreFault> {
    let mut board = read_written_rows(snapshot, unreadable_rows)?;
    let written_revision = board.revision;
    let mut statement = snapshot.prepare_cached(&event_log::query_after())?;
    let mut remaining = statement.query([to_sql_number(board.revision)?])?;
    while let Some(row) = remaining.next()? {
        for event in event_log::events_of_row(row)?
            .iter()
            .filter(|event| event.revision > written_revision)
        {
            let unreadable = event_rows::unreadable_row(event);
            if event.revision != board.revision + 1 && unreadable.is_none() {
                return Err(StoreFault::Damaged(format!(
                    "event {} is missing from its log",
                    board.revision + 1
                )));
            }
            unreadable_rows.extend(unreadable);
            board.fold_into(event, rows);
        }
    }
    Ok(board)
}

/// Reads the board (the state of all unfinished work) from the stored rows of everything that has
/// not ended. Ignores events whose rows are deferred (not written yet).
fn read_written_rows(
    snapshot: &Connection,
    unreadable_rows: &mut Vec<UnreadableRow>,
) -> Result<Board, StoreFault> {
    let mut board = BoardLoader::default();
    let mut meta = snapshot.prepare_cached("SELECT id, body FROM meta")?;
    let mut rows = meta.query([])?;
    match rows.next()? {
        // Return an error if the `meta` row cannot be read. The store cannot be used without this
        // row, because it is unknown which numbers were already assigned.
        Some(row) => board.put(Row::Meta(decode_row(
            "meta",
            row.get_ref(0)?,
            text_bytes(row.get_ref(1)?),
        )?)),
        None => return Err(StoreFault::Damaged("its revision is missing".into())),
    }
    read_table(
        snapshot,
        "projects",
        "SELECT name, body FROM projects",
        unreadable_rows,
        |project| board.put(Row::Project(Arc::new(project))),
    )?;
    read_table(
        snapshot,
        "agents",
        "SELECT name, body FROM agents",
        unreadable_rows,
        |agent| board.put(Row::Agent(Arc::new(agent))),
    )?;
    read_table(
        snapshot,
        "missions",
        "SELECT id, body FROM missions WHERE live = 1",
        unreadable_rows,
        |mission| board.put(Row::Mission(Arc::new(mission), true)),
    )?;
    read_tasks(snapshot, &mut board, unreadable_rows)?;
    read_table(
        snapshot,
        "attempts",
        "SELECT id, body FROM attempts WHERE live = 1",
        unreadable_rows,
        |attempt| board.put(Row::Attempt(Arc::new(attempt))),
    )?;
    read_table(
        snapshot,
        "claims",
        "SELECT id, body FROM claims",
        unreadable_rows,
        |claim| board.put(Row::Claim(Arc::new(claim))),
    )?;
    read_table(
        snapshot,
        "waits",
        "SELECT id, body FROM waits",
        unreadable_rows,
        |wait| board.put(Row::Wait(Arc::new(wait))),
    )?;
    read_table(
        snapshot,
        "landings",
        "SELECT id, body FROM landings WHERE live = 1",
        unreadable_rows,
        |landing| board.put(Row::Landing(Arc::new(landing))),
    )?;
    read_table(
        snapshot,
        "cursors",
        "SELECT agent, body FROM cursors",
        unreadable_rows,
        |cursor| board.put(Row::Cursor(cursor)),
    )?;
    read_table(
        snapshot,
        "answers",
        "SELECT request, body FROM answers",
        unreadable_rows,
        |answer| board.put(Row::Answer(Arc::new(answer))),
    )?;
    read_table(
        snapshot,
        "approvals",
        "SELECT id, body FROM approvals WHERE live = 1",
        unreadable_rows,
        |approval| board.put(Row::Approval(Arc::new(approval))),
    )?;
    read_table(
        snapshot,
        "rules",
        "SELECT id, body FROM rules",
        unreadable_rows,
        |rule| board.put(Row::Rule(Arc::new(rule))),
    )?;
    read_table(
        snapshot,
        "budgets",
        "SELECT scope, body FROM budgets",
        unreadable_rows,
        |budget| board.put(Row::Budget(Arc::new(budget))),
    )?;
    read_table(
        snapshot,
        "days",
        "SELECT day, body FROM days",
        unreadable_rows,
        |spend| board.put(Row::Day(spend)),
    )?;
    read_table(
        snapshot,
        "parked",
        "SELECT name, body FROM parked",
        unreadable_rows,
        |outage| board.put(Row::Parked(Arc::new(outage))),
    )?;
    read_table(
        snapshot,
        "runners",
        "SELECT name, body FROM runners",
        unreadable_rows,
        |runner| board.put(Row::Runner(Arc::new(runner))),
    )?;
    read_table(
        snapshot,
        "hooks",
        "SELECT id, body FROM hooks",
        unreadable_rows,
        |hook| board.put(Row::Hook(Arc::new(hook))),
    )?;
    read_table(
        snapshot,
        "firings",
        "SELECT id, body FROM firings WHERE live = 1",
        unreadable_rows,
        |firing| board.put(Row::Firing(Arc::new(firing))),
    )?;
    read_table(
        snapshot,
        "teams",
        "SELECT name, body FROM teams",
        unreadable_rows,
        |team| board.put(Row::Team(Arc::new(team))),
    )?;
    read_table(
        snapshot,
        "launches",
        "SELECT id, body FROM launches WHERE live = 1",
        unreadable_rows,
        |launch| board.put(Row::Launch(Arc::new(launch))),
    )?;
    read_table(
        snapshot,
        "conversations",
        "SELECT id, body FROM conversations WHERE live = 1",
        unreadable_rows,
        |conversation| board.put(Row::Conversation(Arc::new(conversation))),
    )?;
    read_table(
        snapshot,
        "deliveries",
        "SELECT key, body FROM deliveries",
        unreadable_rows,
        |delivery| board.put(Row::Delivery(delivery)),
    )?;
    Ok(board.finish())
}

/// Reads open and failed tasks completely. Of other ended tasks reads only the status, so that many
/// ended tasks do not slow down every start.
fn read_tasks(
    connection: &Connection,
    board: &mut BoardLoader,
    unreadable_rows: &mut Vec<UnreadableRow>,
) -> Result<(), StoreFault> {
    let mut statement =
        connection.prepare_cached("SELECT id, body, status FROM tasks WHERE live = 1")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let status = text_bytes(row.get_ref(2)?);
        let ended_status = TaskStatus::ALL
            .into_iter()
            .find(|ended| ended.is_terminal() && ended.name().as_bytes() == status);
        // Failed tasks are read completely, because a person may still have to decide about them.
        if let Some(status) = ended_status.filter(|status| !status.has_failed()) {
            board.put_ended(TaskId(row.get::<_, i64>(0)?.unsigned_abs()), status);
            continue;
        }
        let Some(task) = keep_readable(
            decode_row("tasks", row.get_ref(0)?, text_bytes(row.get_ref(1)?)),
            unreadable_rows,
        )?
        else {
            continue;
        };
        match ended_status {
            Some(_) => board.put(Row::Task(Arc::new(task))),
            None => board.put_task(task),
        }
    }
    Ok(())
}

fn read_outbox(
    connection: &Connection,
    unreadable_rows: &mut Vec<UnreadableRow>,
) -> Result<Vec<(EffectKey, regatta_core::effect::Effect)>, StoreFault> {
    let mut effects = Vec::new();
    let mut statement = connection
        .prepare_cached("SELECT revision, body, nth FROM outbox ORDER BY revision, nth")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let key = EffectKey {
            revision: row.get::<_, i64>(0)?.unsigned_abs(),
            nth: row.get(2)?,
        };
        if let Some(effect) = keep_readable(
            decode_row("outbox", row.get_ref(0)?, text_bytes(row.get_ref(1)?)),
            unreadable_rows,
        )? {
            effects.push((key, effect));
        }
    }
    Ok(effects)
}

/// Reads every row of the store except the events, and returns the rows that cannot be read.
/// Reading every row is the only way to find changed bytes inside a text.
pub(crate) fn find_unreadable_rows(
    connection: &Connection,
) -> Result<Vec<UnreadableRow>, StoreFault> {
    use regatta_core::{
        approval, attempt, bus, conversation, hook, landing, launch, mission, task,
    };
    let mut unreadable_rows = load_store(connection)?.unreadable_rows;
    let mut unreadable_history: Vec<UnreadableRow> = Vec::new();
    read_table(
        connection,
        "missions",
        "SELECT id, body FROM missions",
        &mut unreadable_history,
        |_: mission::Mission| (),
    )?;
    read_table(
        connection,
        "tasks",
        "SELECT id, body FROM tasks",
        &mut unreadable_history,
        |_: task::Task| (),
    )?;
    read_table(
        connection,
        "attempts",
        "SELECT id, body FROM attempts",
        &mut unreadable_history,
        |_: attempt::Attempt| (),
    )?;
    read_table(
        connection,
        "landings",
        "SELECT id, body FROM landings",
        &mut unreadable_history,
        |_: landing::Landing| (),
    )?;
    read_table(
        connection,
        "launches",
        "SELECT id, body FROM launches",
        &mut unreadable_history,
        |_: launch::TeamLaunch| (),
    )?;
    let sql = "SELECT id, body FROM conversations";
    read_table(
        connection,
        "conversations",
        sql,
        &mut unreadable_history,
        |_: conversation::Conversation| (),
    )?;
    read_table(
        connection,
        "approvals",
        "SELECT id, body FROM approvals",
        &mut unreadable_history,
        |_: approval::Approval| (),
    )?;
    read_table(
        connection,
        "firings",
        "SELECT id, body FROM firings",
        &mut unreadable_history,
        |_: hook::Firing| (),
    )?;
    read_table(
        connection,
        "messages",
        "SELECT id, body FROM messages",
        &mut unreadable_history,
        |_: bus::Message| (),
    )?;
    // Leave out the rows that the load above has already listed, because they belong to the board
    // (the state of all unfinished work).
    unreadable_history.retain(|row| !unreadable_rows.contains(row));
    unreadable_rows.extend(unreadable_history);
    Ok(unreadable_rows)
}

/// Calls `each` for each row of one table, with its key and decoded body. Adds rows that cannot be
/// read to `unreadable_rows`.
fn read_table<T: DeserializeOwned>(
    connection: &Connection,
    table: &'static str,
    sql: &str,
    unreadable_rows: &mut Vec<UnreadableRow>,
    mut each: impl FnMut(T),
) -> Result<(), StoreFault> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        if let Some(value) = keep_readable(
            decode_row(table, row.get_ref(0)?, text_bytes(row.get_ref(1)?)),
            unreadable_rows,
        )? {
            each(value);
        }
    }
    Ok(())
}

/// Returns the decoded row. If the row cannot be read, adds it to `unreadable_rows` and returns
/// `None`. Returns all other errors to the caller.
pub(crate) fn keep_readable<T>(
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

/// Returns the bytes of a text column. If the column contains a number, the row is damaged, and the
/// result is not valid JSON.
pub(crate) fn text_bytes(value: ValueRef<'_>) -> &[u8] {
    value.as_bytes().unwrap_or_default()
}

/// Decodes the JSON body of a row. The error names the table and the row.
pub(crate) fn decode_row<T: DeserializeOwned>(
    table: &'static str,
    id: ValueRef<'_>,
    body: &[u8],
) -> Result<T, StoreFault> {
    serde_json::from_slice(body).map_err(|cause| {
        let id = match id {
            ValueRef::Integer(number) => number.to_string(),
            text => String::from_utf8_lossy(text_bytes(text)).into_owned(),
        };
        StoreFault::UndecodableRow { table, id, cause }
    })
}
