//! Reads the board from its live rows, and reads all rows to check that they can be read.

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
use crate::event_log;

/// Reads the board and the outbox as of one commit.
pub(crate) fn load_store(connection: &Connection) -> Result<LoadedState, StoreFault> {
    let seen = connection.unchecked_transaction()?;
    let mut unreadable = Vec::new();
    let board = read_board(&seen, &mut Rows::new(), &mut unreadable)?;
    let outbox = read_outbox(&seen, &mut unreadable)?;
    drop(seen);
    // The pages of up to a hundred thousand rows are not needed again.
    connection.release_memory()?;
    Ok(LoadedState {
        board,
        outbox,
        unreadable_rows: unreadable,
    })
}

/// Reads the board from its rows and folds the later events into it. Adds the rows that these
/// events change to `rows`, and the rows and events that cannot be read to `aside` (D11).
pub(crate) fn read_board(
    seen: &Connection,
    rows: &mut Rows,
    aside: &mut Vec<UnreadableRow>,
) -> Result<Board, StoreFault> {
    let mut board = read_written_rows(seen, aside)?;
    let from = board.revision;
    let mut statement = seen.prepare_cached(&event_log::query_after())?;
    let mut left = statement.query([to_sql_number(board.revision)?])?;
    while let Some(row) = left.next()? {
        for event in event_log::events_of_row(row)?
            .iter()
            .filter(|event| event.revision > from)
        {
            let unreadable = event_log::unreadable_row(event);
            if event.revision != board.revision + 1 && unreadable.is_none() {
                return Err(StoreFault::Damaged(format!(
                    "event {} is missing from its log",
                    board.revision + 1
                )));
            }
            aside.extend(unreadable);
            board.fold_into(event, rows);
        }
    }
    Ok(board)
}

/// Reads the board from its live rows.
fn read_written_rows(
    seen: &Connection,
    aside: &mut Vec<UnreadableRow>,
) -> Result<Board, StoreFault> {
    let mut board = BoardLoader::default();
    let mut meta = seen.prepare_cached("SELECT id, body FROM meta")?;
    let mut rows = meta.query([])?;
    match rows.next()? {
        // Without the meta row the assigned numbers are unknown, so the store cannot be used.
        Some(row) => board.put(Row::Meta(decode_row(
            "meta",
            row.get_ref(0)?,
            text_bytes(row.get_ref(1)?),
        )?)),
        None => return Err(StoreFault::Damaged("its revision is missing".into())),
    }
    read_table(
        seen,
        "projects",
        "SELECT name, body FROM projects",
        aside,
        |project| board.put(Row::Project(Arc::new(project))),
    )?;
    read_table(
        seen,
        "agents",
        "SELECT name, body FROM agents",
        aside,
        |agent| board.put(Row::Agent(Arc::new(agent))),
    )?;
    read_table(
        seen,
        "missions",
        "SELECT id, body FROM missions WHERE live = 1",
        aside,
        |mission| board.put(Row::Mission(Arc::new(mission), true)),
    )?;
    read_tasks(seen, &mut board, aside)?;
    read_table(
        seen,
        "attempts",
        "SELECT id, body FROM attempts WHERE live = 1",
        aside,
        |attempt| board.put(Row::Attempt(Arc::new(attempt))),
    )?;
    read_table(
        seen,
        "claims",
        "SELECT id, body FROM claims",
        aside,
        |claim| board.put(Row::Claim(Arc::new(claim))),
    )?;
    read_table(
        seen,
        "waits",
        "SELECT id, body FROM waits",
        aside,
        |claim_wait| board.put(Row::Wait(Arc::new(claim_wait))),
    )?;
    read_table(
        seen,
        "landings",
        "SELECT id, body FROM landings WHERE live = 1",
        aside,
        |landing| board.put(Row::Landing(Arc::new(landing))),
    )?;
    read_table(
        seen,
        "cursors",
        "SELECT agent, body FROM cursors",
        aside,
        |read_cursor| board.put(Row::Cursor(read_cursor)),
    )?;
    read_table(
        seen,
        "answers",
        "SELECT request, body FROM answers",
        aside,
        |stored_answer| board.put(Row::Answer(Arc::new(stored_answer))),
    )?;
    read_table(
        seen,
        "approvals",
        "SELECT id, body FROM approvals WHERE live = 1",
        aside,
        |approval| board.put(Row::Approval(Arc::new(approval))),
    )?;
    read_table(
        seen,
        "rules",
        "SELECT id, body FROM rules",
        aside,
        |policy_rule| board.put(Row::Rule(Arc::new(policy_rule))),
    )?;
    read_table(
        seen,
        "budgets",
        "SELECT scope, body FROM budgets",
        aside,
        |budget| board.put(Row::Budget(Arc::new(budget))),
    )?;
    read_table(
        seen,
        "days",
        "SELECT day, body FROM days",
        aside,
        |day_spend| board.put(Row::Day(day_spend)),
    )?;
    read_table(
        seen,
        "parked",
        "SELECT name, body FROM parked",
        aside,
        |provider_outage| board.put(Row::Parked(Arc::new(provider_outage))),
    )?;
    read_table(
        seen,
        "runners",
        "SELECT name, body FROM runners",
        aside,
        |runner| board.put(Row::Runner(Arc::new(runner))),
    )?;
    read_table(seen, "hooks", "SELECT id, body FROM hooks", aside, |hook| {
        board.put(Row::Hook(Arc::new(hook)))
    })?;
    read_table(
        seen,
        "firings",
        "SELECT id, body FROM firings WHERE live = 1",
        aside,
        |firing| board.put(Row::Firing(Arc::new(firing))),
    )?;
    read_table(
        seen,
        "teams",
        "SELECT name, body FROM teams",
        aside,
        |team| board.put(Row::Team(Arc::new(team))),
    )?;
    read_table(
        seen,
        "launches",
        "SELECT id, body FROM launches WHERE live = 1",
        aside,
        |team_launch| board.put(Row::Launch(Arc::new(team_launch))),
    )?;
    read_table(
        seen,
        "conversations",
        "SELECT id, body FROM conversations WHERE live = 1",
        aside,
        |conversation| board.put(Row::Conversation(Arc::new(conversation))),
    )?;
    read_table(
        seen,
        "deliveries",
        "SELECT key, body FROM deliveries",
        aside,
        |delivery| board.put(Row::Delivery(delivery)),
    )?;
    Ok(board.finish())
}

/// Reads open and failed tasks completely, and only the status of other ended ones, so that many
/// cancelled tasks do not slow down every start.
fn read_tasks(
    connection: &Connection,
    board: &mut BoardLoader,
    aside: &mut Vec<UnreadableRow>,
) -> Result<(), StoreFault> {
    let mut statement =
        connection.prepare_cached("SELECT id, body, status FROM tasks WHERE live = 1")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let status = text_bytes(row.get_ref(2)?);
        let ended = TaskStatus::ALL.into_iter().find(|task_status| {
            task_status.is_terminal() && task_status.name().as_bytes() == status
        });
        // A failed task may still need an answer from a person.
        if let Some(status) = ended.filter(|status| *status != TaskStatus::Failed) {
            board.put_ended(TaskId(row.get::<_, i64>(0)?.unsigned_abs()), status);
            continue;
        }
        let Some(task) = keep_readable(
            decode_row("tasks", row.get_ref(0)?, text_bytes(row.get_ref(1)?)),
            aside,
        )?
        else {
            continue;
        };
        match ended {
            Some(_) => board.put(Row::Task(Arc::new(task))),
            None => board.put_task(task),
        }
    }
    Ok(())
}

fn read_outbox(
    connection: &Connection,
    aside: &mut Vec<UnreadableRow>,
) -> Result<Vec<(EffectKey, regatta_core::effect::Effect)>, StoreFault> {
    let mut found = Vec::new();
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
            aside,
        )? {
            found.push((key, effect));
        }
    }
    Ok(found)
}

/// Reads every row except the events, live or history, and returns those that cannot be read.
/// Changed bytes inside a text are found only this way.
pub(crate) fn find_unreadable_rows(
    connection: &Connection,
) -> Result<Vec<UnreadableRow>, StoreFault> {
    use regatta_core::{
        approval, attempt, bus, conversation, hook, landing, launch, mission, task,
    };
    let mut aside = load_store(connection)?.unreadable_rows;
    let mut ended: Vec<UnreadableRow> = Vec::new();
    let db = connection;
    read_table(
        db,
        "missions",
        "SELECT id, body FROM missions",
        &mut ended,
        |_: mission::Mission| (),
    )?;
    read_table(
        db,
        "tasks",
        "SELECT id, body FROM tasks",
        &mut ended,
        |_: task::Task| (),
    )?;
    read_table(
        db,
        "attempts",
        "SELECT id, body FROM attempts",
        &mut ended,
        |_: attempt::Attempt| (),
    )?;
    read_table(
        db,
        "landings",
        "SELECT id, body FROM landings",
        &mut ended,
        |_: landing::Landing| (),
    )?;
    read_table(
        db,
        "launches",
        "SELECT id, body FROM launches",
        &mut ended,
        |_: launch::TeamLaunch| (),
    )?;
    let sql = "SELECT id, body FROM conversations";
    read_table(
        db,
        "conversations",
        sql,
        &mut ended,
        |_: conversation::Conversation| (),
    )?;
    read_table(
        db,
        "approvals",
        "SELECT id, body FROM approvals",
        &mut ended,
        |_: approval::Approval| (),
    )?;
    read_table(
        db,
        "firings",
        "SELECT id, body FROM firings",
        &mut ended,
        |_: hook::Firing| (),
    )?;
    read_table(
        db,
        "messages",
        "SELECT id, body FROM messages",
        &mut ended,
        |_: bus::Message| (),
    )?;
    // An unreadable live row was already found by the load.
    ended.retain(|row| !aside.contains(row));
    aside.extend(ended);
    Ok(aside)
}

/// Reads the rows of one table: a key and a body each. Adds those that cannot be read to `aside`.
fn read_table<T: DeserializeOwned>(
    connection: &Connection,
    table: &'static str,
    sql: &str,
    aside: &mut Vec<UnreadableRow>,
    mut each: impl FnMut(T),
) -> Result<(), StoreFault> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        if let Some(found) = keep_readable(
            decode_row(table, row.get_ref(0)?, text_bytes(row.get_ref(1)?)),
            aside,
        )? {
            each(found);
        }
    }
    Ok(())
}

/// Returns a decoded row, or adds it to `aside` if it cannot be read. Other failures are returned.
pub(crate) fn keep_readable<T>(
    decoded: Result<T, StoreFault>,
    aside: &mut Vec<UnreadableRow>,
) -> Result<Option<T>, StoreFault> {
    match decoded {
        Ok(row) => Ok(Some(row)),
        Err(StoreFault::UndecodableRow { table, id, cause }) => {
            aside.push(UnreadableRow {
                table,
                id,
                reason: cause.to_string(),
            });
            Ok(None)
        }
        Err(fault) => Err(fault),
    }
}

/// Returns the content of a text column. A number there would be damage and is no JSON of this
/// program.
pub(crate) fn text_bytes(value_ref: ValueRef<'_>) -> &[u8] {
    value_ref.as_bytes().unwrap_or_default()
}

/// Decodes a stored body. The error names the row that cannot be read.
pub(crate) fn decode_row<T: DeserializeOwned>(
    table: &'static str,
    id: ValueRef<'_>,
    body: &[u8],
) -> Result<T, StoreFault> {
    serde_json::from_slice(body).map_err(|cause| {
        let id = match id {
            ValueRef::Integer(n) => n.to_string(),
            other => String::from_utf8_lossy(text_bytes(other)).into_owned(),
        };
        StoreFault::UndecodableRow { table, id, cause }
    })
}
