//! Reads the store through a few connections that cannot write. Any thread may use these
//! connections.
//!
//! Each query sees the state after a complete transaction. A reader makes the writer wait only
//! while the reader writes deferred rows (see `deferred_rows.rs`). While a reader reads, SQLite's
//! write-ahead log cannot start again from its beginning, so every read in this module is short.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use regatta_core::approval::Approval;
use regatta_core::attempt::Attempt;
use regatta_core::bus::Message;
use regatta_core::conversation::Conversation;
use regatta_core::event::Recorded;
use regatta_core::hook::Firing;
use regatta_core::ids::{
    ApprovalId, AttemptId, ChannelName, ConversationId, FiringId, HookId, MessageId, MissionId,
    ProjectName, TaskId, TeamName,
};
use regatta_core::landing::Landing;
use regatta_core::launch::TeamLaunch;
use regatta_core::mission::Mission;
use regatta_core::task::{Task, TaskStatus};
use regatta_engine::ports::store::{
    MessageFilter, StoreError, StoreHistory, TaskFilter, first_message_since,
};
use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params_from_iter};
use serde::de::DeserializeOwned;

use crate::deferred_rows::SharedWriter;
use crate::errors::{self, StoreFault};
use crate::load::{decode_row, keep_readable, text_bytes};
use crate::{event_log, message_index};

/// The largest number of unused connections that are kept for later readers. If more readers run at
/// the same time, they open their own.
const MAX_IDLE_CONNECTIONS: usize = 4;

/// Reads everything that was ever committed to a SQLite store.
#[derive(Debug)]
pub struct SqliteHistory {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
    writer: Weak<SharedWriter>,
}

impl SqliteHistory {
    /// Opens the reading part of a store that a [`SqliteStore`](crate::SqliteStore) already has
    /// open.
    pub(crate) fn open(
        path: &Path,
        writer: &Arc<SharedWriter>,
    ) -> Result<SqliteHistory, StoreError> {
        let first =
            connect(path).map_err(|error| errors::sqlite_error("read the store", path, &error))?;
        Ok(SqliteHistory {
            path: path.to_owned(),
            idle: Mutex::new(vec![first]),
            writer: Arc::downgrade(writer),
        })
    }

    /// Closes the unused connections. A later read opens a new one.
    pub(crate) fn close_idle(&self) {
        self.lock_idle().clear();
    }

    fn lock_idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads rows. First writes the deferred rows (rows that are written later than their events),
    /// so that the query finds every change that was committed.
    fn read_rows<T>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, StoreFault>,
    ) -> Result<T, StoreError> {
        if let Some(writer) = self.writer.upgrade() {
            writer.write_deferred_rows(&self.path).map_err(|fault| {
                let error = fault.into_error("write the last changes into the store", &self.path);
                errors::deferred_rows_failed(&self.path, error)
            })?;
        }
        self.read(query)
    }

    fn read<T>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, StoreFault>,
    ) -> Result<T, StoreError> {
        let idle_connection = self.lock_idle().pop();
        let read_snapshot = || -> Result<(T, Connection), StoreFault> {
            let connection = idle_connection.map_or_else(|| connect(&self.path), Ok)?;
            let snapshot = connection.unchecked_transaction()?;
            let answer = query(&snapshot)?;
            drop(snapshot);
            Ok((answer, connection))
        };
        // An error returns here and drops the connection, so that a connection which failed is not
        // kept for later reads.
        let (answer, connection) =
            read_snapshot().map_err(|fault| fault.into_error("read the store", &self.path))?;
        let mut idle = self.lock_idle();
        if idle.len() < MAX_IDLE_CONNECTIONS {
            idle.push(connection);
        }
        Ok(answer)
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    connection.pragma_update(None, "query_only", true)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "temp_store", "memory")?;
    connection.busy_timeout(std::time::Duration::from_secs(1))?;
    connection.set_prepared_statement_cache_capacity(32);
    Ok(connection)
}

impl StoreHistory for SqliteHistory {
    fn events(&self, after: u64, limit: usize) -> Result<Vec<Recorded>, StoreError> {
        self.read(|db| {
            let mut statement = db.prepare_cached(&event_log::query_after())?;
            let mut rows = statement.query([to_sql_key(after)])?;
            let mut events = Vec::new();
            while events.len() < limit
                && let Some(row) = rows.next()?
            {
                events.extend(
                    event_log::events_of_row(row)?
                        .into_iter()
                        .filter(|event| event.revision > after),
                );
            }
            events.truncate(limit);
            Ok(events)
        })
    }

    fn messages(&self, filter: &MessageFilter) -> Result<Vec<Message>, StoreError> {
        self.read_rows(|db| read_messages(db, filter))
    }

    fn firings(
        &self,
        hook: Option<HookId>,
        before: Option<FiringId>,
        limit: usize,
    ) -> Result<Vec<Firing>, StoreError> {
        let mut values = vec![
            Value::from(before.map_or(i64::MAX, |id| to_sql_key(id.0))),
            to_sql_limit(limit).into(),
        ];
        let mut hook_condition = "";
        if let Some(hook) = hook {
            values.push(to_sql_key(hook.0).into());
            hook_condition = " AND hook = ?3";
        }
        let sql = format!(
            "SELECT id, body FROM firings WHERE id < ?1{hook_condition} ORDER BY id DESC LIMIT ?2"
        );
        self.read_rows(|db| read_all(db, "firings", &sql, values))
    }

    fn count_messages(&self, channel: &ChannelName, after: MessageId) -> Result<u64, StoreError> {
        self.read_rows(|db| {
            let mut count =
                db.prepare_cached("SELECT count(*) FROM messages WHERE channel = ?1 AND id > ?2")?;
            Ok(from_sql_number(count.query_row(
                (channel.as_str(), to_sql_key(after.0)),
                |row| row.get(0),
            )?))
        })
    }

    fn task(&self, id: TaskId) -> Result<Option<Task>, StoreError> {
        self.read_rows(|db| {
            read_one(
                db,
                "tasks",
                "SELECT id, body FROM tasks WHERE id = ?1",
                id.0,
            )
        })
    }

    fn tasks(&self, filter: &TaskFilter) -> Result<Vec<Task>, StoreError> {
        self.read_rows(|db| read_tasks(db, filter))
    }

    fn count_tasks(&self, filter: &TaskFilter) -> Result<u64, StoreError> {
        self.read_rows(|db| count_tasks(db, filter))
    }

    fn approval(&self, id: ApprovalId) -> Result<Option<Approval>, StoreError> {
        self.read_rows(|db| {
            read_one(
                db,
                "approvals",
                "SELECT id, body FROM approvals WHERE id = ?1",
                id.0,
            )
        })
    }

    fn attempt(&self, id: AttemptId) -> Result<Option<Attempt>, StoreError> {
        self.read_rows(|db| {
            read_one(
                db,
                "attempts",
                "SELECT id, body FROM attempts WHERE id = ?1",
                id.0,
            )
        })
    }

    fn attempts_of(&self, task: TaskId) -> Result<Vec<Attempt>, StoreError> {
        let sql = "SELECT id, body FROM attempts WHERE task = ?1 ORDER BY id";
        self.read_rows(|db| read_all(db, "attempts", sql, vec![to_sql_key(task.0).into()]))
    }

    fn landings(&self, project: &ProjectName, limit: usize) -> Result<Vec<Landing>, StoreError> {
        let sql = "SELECT id, body FROM landings WHERE project = ?1 ORDER BY id DESC LIMIT ?2";
        self.read_rows(|db| {
            read_all(
                db,
                "landings",
                sql,
                vec![project.to_string().into(), to_sql_limit(limit).into()],
            )
        })
    }

    fn launches(&self, team: &TeamName, limit: usize) -> Result<Vec<TeamLaunch>, StoreError> {
        let sql = "SELECT id, body FROM launches WHERE team = ?1 ORDER BY id DESC LIMIT ?2";
        self.read_rows(|db| {
            read_all(
                db,
                "launches",
                sql,
                vec![team.as_str().to_owned().into(), to_sql_limit(limit).into()],
            )
        })
    }

    fn conversations(&self, limit: usize) -> Result<Vec<Conversation>, StoreError> {
        let sql = "SELECT id, body FROM conversations ORDER BY id DESC LIMIT ?1";
        self.read_rows(|db| read_all(db, "conversations", sql, vec![to_sql_limit(limit).into()]))
    }

    fn conversation(&self, id: ConversationId) -> Result<Option<Conversation>, StoreError> {
        self.read_rows(|db| {
            read_one(
                db,
                "conversations",
                "SELECT id, body FROM conversations WHERE id = ?1",
                id.0,
            )
        })
    }

    fn mission(&self, id: MissionId) -> Result<Option<(Mission, bool)>, StoreError> {
        self.read_rows(|db| {
            let live = db
                .prepare_cached("SELECT live FROM missions WHERE id = ?1")?
                .query_row([to_sql_key(id.0)], |row| row.get(0))
                .optional()?;
            let mission = read_one(
                db,
                "missions",
                "SELECT id, body FROM missions WHERE id = ?1",
                id.0,
            )?;
            Ok(mission.zip(live))
        })
    }
}

/// A search index that a filter's condition can use, with the value to look up in it.
struct IndexSource {
    table: &'static str,
    /// The SQL condition that selects entries of the index. `{}` stands for the value.
    condition: &'static str,
    id_column: &'static str,
    value: Value,
}

/// Reads the messages that meet the filter's conditions: goes through the shortest of the usable
/// indexes, and checks the other conditions for each message in it. SQLite itself cannot know which
/// index is the shortest, because a label may be on nearly every message or on three.
fn read_messages(db: &Connection, filter: &MessageFilter) -> Result<Vec<Message>, StoreFault> {
    let Some((low, high)) = id_range(db, filter)? else {
        return Ok(vec![]);
    };
    let sources = sort_by_length(db, index_sources(db, filter)?, (low, high))?;
    let mut values = vec![Value::from(low), high.into()];
    let mut sql = String::from("SELECT m.id, m.body FROM ");
    let mut order = "m.id";
    let mut conditions = String::new();
    // Compare the text of each message, unless the chosen index is the word index. The word index
    // finds only messages with the right words.
    let mut text_filter = filter.text.as_ref();
    for (nth, source) in sources.into_iter().enumerate() {
        let IndexSource {
            table,
            condition,
            id_column,
            value,
        } = source;
        if table == WORD_INDEX && nth > 0 {
            continue;
        }
        values.push(value);
        let condition = condition.replace("{}", &format!("?{}", values.len()));
        // A plus sign before the name of a column keeps SQLite from using that column's index, so
        // that SQLite uses the index that was chosen here.
        match (nth, table) {
            (0, "messages") => conditions += &format!(" AND m.{condition}"),
            (0, _) => {
                sql += &format!("{table} s CROSS JOIN ");
                conditions += &format!(" AND s.{condition} AND m.id = s.{id_column}");
                order = if table == WORD_INDEX {
                    "s.rowid"
                } else {
                    "s.message"
                };
                text_filter =
                    text_filter.filter(|query| table != WORD_INDEX || query.has_phrases());
            }
            (_, "messages") => conditions += &format!(" AND +m.{condition}"),
            _ => {
                conditions += &format!(
                    " AND EXISTS (SELECT 1 FROM {table} x WHERE x.{condition} AND x.{id_column} = \
                    m.id)"
                )
            }
        }
    }
    let is_newest_first = filter.after.is_none();
    let direction = if is_newest_first { "DESC" } else { "ASC" };
    sql += &format!(
        "messages m WHERE {order} > ?1 AND {order} <= ?2{conditions} ORDER BY {order} {direction}"
    );
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    let mut messages: Vec<Message> = Vec::new();
    while messages.len() < filter.limit
        && let Some(row) = rows.next()?
    {
        let Some(message): Option<Message> = skip_unreadable(decode_row(
            "messages",
            row.get_ref(0)?,
            text_bytes(row.get_ref(1)?),
        ))?
        else {
            continue;
        };
        if text_filter.is_none_or(|query| query.matches(&message.text)) {
            messages.push(message);
        }
    }
    if is_newest_first {
        messages.reverse();
    }
    Ok(messages)
}

/// The name of the table with the word index.
const WORD_INDEX: &str = "message_words";

/// Returns the indexes that the filter's conditions can use.
fn index_sources(db: &Connection, filter: &MessageFilter) -> Result<Vec<IndexSource>, StoreFault> {
    let source = |table, condition, id_column, value: Option<Value>| {
        value.map(|value| IndexSource {
            table,
            condition,
            id_column,
            value,
        })
    };
    let text_value = |text: Option<String>| text.map(Value::from);
    let id_value = |id: Option<MessageId>| id.map(|id| Value::from(to_sql_key(id.0)));
    // A thread may consist of a single message without replies. No index contains such a message,
    // so it is read directly.
    let mut thread = source(
        "message_threads",
        "root = {}",
        "message",
        id_value(filter.thread),
    );
    if let Some(root) = filter.thread {
        let thread_exists = "SELECT 1 FROM message_threads WHERE root = ?1 LIMIT 1";
        let has_answers = db
            .prepare_cached(thread_exists)?
            .exists([to_sql_key(root.0)])?;
        if !has_answers {
            thread = source("messages", "id = {}", "id", id_value(filter.thread));
        }
    }
    Ok([
        // The word index comes first, because then the other conditions are checked on columns.
        // With another index, the text of every message would have to be read.
        source(
            WORD_INDEX,
            "message_words MATCH {}",
            "rowid",
            text_value(filter.text.as_ref().map(message_index::index_query)),
        ),
        source(
            "message_labels",
            "label = {}",
            "message",
            text_value(filter.label.as_ref().map(ToString::to_string)),
        ),
        source(
            "message_mentions",
            "agent = {}",
            "message",
            text_value(filter.mention.as_ref().map(ToString::to_string)),
        ),
        source(
            "message_replies",
            "parent = {}",
            "message",
            id_value(filter.reply_to),
        ),
        thread,
        source(
            "messages",
            "channel = {}",
            "id",
            text_value(filter.channel.as_ref().map(ToString::to_string)),
        ),
        source(
            "messages",
            "sender = {}",
            "id",
            text_value(filter.from.clone()),
        ),
    ]
    .into_iter()
    .flatten()
    .collect())
}

/// Sorts the indexes by their number of entries between `low` and `high`, fewest first. Counts at
/// most 2,000 entries of each index, because the order of longer indexes makes no difference.
fn sort_by_length(
    db: &Connection,
    sources: Vec<IndexSource>,
    (low, high): (i64, i64),
) -> Result<Vec<IndexSource>, StoreFault> {
    if sources.len() < 2 {
        return Ok(sources);
    }
    let mut sized = Vec::new();
    for source in sources {
        let sql = format!(
            "SELECT count(*) FROM (SELECT 1 FROM {} WHERE {} AND {id} > ?2 AND {id} <= ?3 LIMIT \
            2000)",
            source.table,
            source.condition.replace("{}", "?1"),
            id = source.id_column
        );
        let size: i64 = db
            .prepare_cached(&sql)?
            .query_row((&source.value, low, high), |row| row.get(0))?;
        sized.push((size, source));
    }
    sized.sort_by_key(|(size, _)| *size);
    Ok(sized.into_iter().map(|(_, source)| source).collect())
}

/// Returns the range of ids in which the filter's messages must be: the lower bound is not
/// included, the upper bound is. Returns `None` if no message can match.
fn id_range(db: &Connection, filter: &MessageFilter) -> Result<Option<(i64, i64)>, StoreFault> {
    let mut low = to_sql_key(filter.after.unwrap_or_default().0);
    let mut high = filter
        .before
        .map_or(i64::MAX, |id| to_sql_key(id.0).saturating_sub(1));
    if filter.since_unix_ms.is_some() || filter.until_unix_ms.is_some() {
        let last: Option<i64> = db
            .prepare_cached("SELECT max(id) FROM messages")?
            .query_row([], |row| row.get(0))?;
        let last = from_sql_number(last.unwrap_or(0));
        let mut statement =
            db.prepare_cached("SELECT id, body FROM messages WHERE id >= ?1 ORDER BY id")?;
        let mut at_or_after = |id: u64| -> Result<Option<(u64, u64)>, StoreFault> {
            let mut rows = statement.query([to_sql_key(id)])?;
            while let Some(row) = rows.next()? {
                let message: Option<MessageDate> = skip_unreadable(decode_row(
                    "messages",
                    row.get_ref(0)?,
                    text_bytes(row.get_ref(1)?),
                ))?;
                if let Some(message) = message {
                    return Ok(Some((message.id.0, message.wall)));
                }
            }
            Ok(None)
        };
        if let Some(since) = filter.since_unix_ms {
            low = low.max(to_sql_key(first_message_since(since, last, &mut at_or_after)?) - 1);
        }
        if let Some(until) = filter.until_unix_ms {
            high = high.min(
                to_sql_key(first_message_since(
                    until.saturating_add(1),
                    last,
                    &mut at_or_after,
                )?) - 1,
            );
        }
    }
    Ok((low < high && filter.limit > 0).then_some((low, high)))
}

/// The id and the date of a message. A search by date decodes nothing else of a message.
#[derive(serde::Deserialize)]
struct MessageDate {
    id: MessageId,
    wall: u64,
}

/// Returns the SQL conditions for all parts of the filter except its statuses, and the values for
/// these conditions. The second value is the limit.
fn task_conditions(filter: &TaskFilter) -> (String, Vec<Value>) {
    let limit = if filter.limit == 0 {
        -1
    } else {
        to_sql_limit(filter.limit)
    };
    let mut sql = String::from("id > ?1");
    let mut values = vec![
        Value::from(to_sql_key(filter.after.unwrap_or_default().0)),
        limit.into(),
    ];
    if let Some(project) = &filter.project {
        values.push(project.to_string().into());
        sql += &format!(" AND project = ?{}", values.len());
    }
    if let Some(mission) = filter.mission {
        values.push(to_sql_key(mission.0).into());
        sql += &format!(" AND mission = ?{}", values.len());
    }
    (sql, values)
}

/// Counts the tasks that meet the filter's conditions. Uses only an index where possible, because
/// reading the tasks is slow.
fn count_tasks(db: &Connection, filter: &TaskFilter) -> Result<u64, StoreFault> {
    let (sql, values) = task_conditions(&TaskFilter {
        limit: 1,
        ..filter.clone()
    });
    let count = |sql: &str, values: Vec<Value>| -> Result<u64, StoreFault> {
        let sql = format!("SELECT count(*) FROM tasks WHERE {sql} LIMIT ?2");
        Ok(from_sql_number(
            db.prepare_cached(&sql)?
                .query_row(params_from_iter(values), |row| row.get(0))?,
        ))
    };
    if filter.statuses.is_empty() {
        return count(&sql, values);
    }
    query_per_index(filter.statuses.iter().copied(), &sql, &values)
        .into_iter()
        .map(|(sql, values)| count(&sql, values))
        .sum()
}

/// Reads the tasks that meet the filter's conditions.
fn read_tasks(db: &Connection, filter: &TaskFilter) -> Result<Vec<Task>, StoreFault> {
    let (sql, values) = task_conditions(filter);
    let mut statuses = filter.statuses.clone();
    if statuses.is_empty() && filter.mission.is_none() && filter.project.is_some() {
        statuses.extend(TaskStatus::ALL);
    }
    let read_where = |sql: &str, values| {
        read_all::<Task>(
            db,
            "tasks",
            &format!("SELECT id, body FROM tasks WHERE {sql} ORDER BY id LIMIT ?2"),
            values,
        )
    };
    if statuses.is_empty() {
        return read_where(&sql, values);
    }
    let mut tasks: Vec<Task> = Vec::new();
    for (sql, values) in query_per_index(statuses, &sql, &values) {
        tasks.extend(read_where(&sql, values)?);
    }
    tasks.sort_by_key(|task| task.id);
    if filter.limit > 0 {
        tasks.truncate(filter.limit);
    }
    Ok(tasks)
}

/// Returns one SQL query for the open statuses and one for the ended statuses, each with its values.
/// Open tasks and ended tasks have one index each, so each query goes along an index in the order
/// of the ids and stops at the limit.
fn query_per_index(
    statuses: impl IntoIterator<Item = TaskStatus>,
    sql: &str,
    values: &[Value],
) -> Vec<(String, Vec<Value>)> {
    let statuses: BTreeSet<TaskStatus> = statuses.into_iter().collect();
    let (live, ended): (Vec<TaskStatus>, Vec<TaskStatus>) =
        statuses.into_iter().partition(|status| status.is_live());
    let query = |(condition, statuses): (&str, Vec<TaskStatus>)| {
        let mut values = values.to_vec();
        let mut places = Vec::new();
        for status in statuses {
            values.push(status.name().to_owned().into());
            places.push(format!("?{}", values.len()));
        }
        let places = places.join(", ");
        (
            format!("{condition} AND {sql} AND status IN ({places})"),
            values,
        )
    };
    [("live = 1", live), ("live = 0", ended)]
        .into_iter()
        .filter(|(_, statuses)| !statuses.is_empty())
        .map(query)
        .collect()
}

fn read_all<T: DeserializeOwned>(
    db: &Connection,
    table: &'static str,
    sql: &str,
    values: Vec<Value>,
) -> Result<Vec<T>, StoreFault> {
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    let mut decoded_rows = Vec::new();
    while let Some(row) = rows.next()? {
        decoded_rows.extend(skip_unreadable(decode_row(
            table,
            row.get_ref(0)?,
            text_bytes(row.get_ref(1)?),
        ))?);
    }
    Ok(decoded_rows)
}

/// Turns a row that cannot be read into `None` and logs it, because one damaged row must not hide
/// the other rows of a list (D11).
fn skip_unreadable<T>(decoded: Result<T, StoreFault>) -> Result<Option<T>, StoreFault> {
    let mut unreadable_rows = Vec::new();
    let row = keep_readable(decoded, &mut unreadable_rows)?;
    for unreadable in unreadable_rows {
        tracing::warn!(
            "could not read {unreadable} of the store, so the list that somebody requested is \
                returned without this entry"
        );
    }
    Ok(row)
}

/// Reads one row. If the row cannot be read, returns an error and not `None`, because the row is
/// not missing.
fn read_one<T: DeserializeOwned>(
    db: &Connection,
    table: &'static str,
    sql: &str,
    id: u64,
) -> Result<Option<T>, StoreFault> {
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query([to_sql_key(id)])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    decode_row(table, row.get_ref(0)?, text_bytes(row.get_ref(1)?)).map(Some)
}

fn to_sql_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// Converts an id to a key for a query. An id that is too large for SQLite becomes the largest key,
/// which no row has.
fn to_sql_key(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn from_sql_number(number: i64) -> u64 {
    number.unsigned_abs()
}
