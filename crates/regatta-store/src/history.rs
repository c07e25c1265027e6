//! The reading side: a few connections that cannot write, for any thread.
//!
//! Each query sees the state of one commit. A reader takes no lock that the writer waits for,
//! except while it writes deferred rows (`behind.rs`). It also keeps the log from being reset while
//! it reads, so every read here is short.

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
    ApprovalId, AttemptId, ChannelName, ConversationId, FiringId, HookId, MessageId, MissionId, ProjectName, TaskId,
    TeamName,
};
use regatta_core::landing::Landing;
use regatta_core::launch::Launch;
use regatta_core::mission::Mission;
use regatta_core::task::{Status, Task};
use regatta_engine::ports::store::{History, MessageFilter, StoreError, TaskFilter, first_since};
use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params_from_iter};
use serde::de::DeserializeOwned;

use crate::behind::Shared;
use crate::load::{decode, readable, text};
use crate::words::{self, Fault};
use crate::{index, log};

/// The largest number of connections that are kept for later readers. Further concurrent readers
/// open their own.
const KEPT: usize = 4;

/// Reads everything that was ever committed.
#[derive(Debug)]
pub struct SqliteHistory {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
    store: Weak<Shared>,
}

impl SqliteHistory {
    /// Opens the reading side of a store that a [`SqliteStore`](crate::SqliteStore) has open.
    pub(crate) fn open(path: &Path, store: &Arc<Shared>) -> Result<SqliteHistory, StoreError> {
        let first = connect(path).map_err(|it| words::sqlite("read", path, &it))?;
        Ok(SqliteHistory { path: path.to_owned(), idle: Mutex::new(vec![first]), store: Arc::downgrade(store) })
    }

    /// Closes the idle connections. A later read opens its own.
    pub(crate) fn rest(&self) {
        self.idle().clear();
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads rows. First writes deferred rows, so that everything that was acknowledged is found.
    fn rows<T>(&self, ask: impl FnOnce(&Connection) -> Result<T, Fault>) -> Result<T, StoreError> {
        if let Some(store) = self.store.upgrade() {
            store
                .catch_up(&self.path)
                .map_err(|it| words::behind(&self.path, it.say("bring up to date", &self.path)))?;
        }
        self.read(ask)
    }

    fn read<T>(&self, ask: impl FnOnce(&Connection) -> Result<T, Fault>) -> Result<T, StoreError> {
        let kept = self.idle().pop();
        let answer = || -> Result<(T, Connection), Fault> {
            let connection = kept.map_or_else(|| connect(&self.path), Ok)?;
            let seen = connection.unchecked_transaction()?;
            let answer = ask(&seen)?;
            drop(seen);
            Ok((answer, connection))
        };
        // A connection on which something failed is not kept.
        let (answer, connection) = answer().map_err(|it| it.say("read", &self.path))?;
        let mut idle = self.idle();
        if idle.len() < KEPT {
            idle.push(connection);
        }
        Ok(answer)
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let connection =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.pragma_update(None, "query_only", true)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "temp_store", "memory")?;
    connection.busy_timeout(std::time::Duration::from_secs(1))?;
    connection.set_prepared_statement_cache_capacity(32);
    Ok(connection)
}

impl History for SqliteHistory {
    fn events(&self, after: u64, limit: usize) -> Result<Vec<Recorded>, StoreError> {
        self.read(|db| {
            let mut statement = db.prepare_cached(&log::after())?;
            let mut rows = statement.query([bound(after)])?;
            let mut found = Vec::new();
            while found.len() < limit
                && let Some(row) = rows.next()?
            {
                found.extend(log::events(row)?.into_iter().filter(|it| it.revision > after));
            }
            found.truncate(limit);
            Ok(found)
        })
    }

    fn messages(&self, filter: &MessageFilter) -> Result<Vec<Message>, StoreError> {
        self.rows(|db| messages(db, filter))
    }

    fn firings(&self, hook: Option<HookId>, before: Option<FiringId>, limit: usize) -> Result<Vec<Firing>, StoreError> {
        let mut values = vec![Value::from(before.map_or(i64::MAX, |it| bound(it.0))), at_most(limit).into()];
        let mut chosen = "";
        if let Some(hook) = hook {
            values.push(bound(hook.0).into());
            chosen = " AND hook = ?3";
        }
        let sql = format!("SELECT id, body FROM firings WHERE id < ?1{chosen} ORDER BY id DESC LIMIT ?2");
        self.rows(|db| all(db, "firings", &sql, values))
    }

    fn count_messages(&self, channel: &ChannelName, after: MessageId) -> Result<u64, StoreError> {
        self.rows(|db| {
            let mut count = db.prepare_cached("SELECT count(*) FROM messages WHERE channel = ?1 AND id > ?2")?;
            Ok(unsigned(count.query_row((channel.as_str(), bound(after.0)), |row| row.get(0))?))
        })
    }

    fn task(&self, id: TaskId) -> Result<Option<Task>, StoreError> {
        self.rows(|db| one(db, "tasks", "SELECT id, body FROM tasks WHERE id = ?1", id.0))
    }

    fn tasks(&self, filter: &TaskFilter) -> Result<Vec<Task>, StoreError> {
        self.rows(|db| tasks(db, filter))
    }

    fn count_tasks(&self, filter: &TaskFilter) -> Result<u64, StoreError> {
        self.rows(|db| count_tasks(db, filter))
    }

    fn approval(&self, id: ApprovalId) -> Result<Option<Approval>, StoreError> {
        self.rows(|db| one(db, "approvals", "SELECT id, body FROM approvals WHERE id = ?1", id.0))
    }

    fn attempt(&self, id: AttemptId) -> Result<Option<Attempt>, StoreError> {
        self.rows(|db| one(db, "attempts", "SELECT id, body FROM attempts WHERE id = ?1", id.0))
    }

    fn attempts_of(&self, task: TaskId) -> Result<Vec<Attempt>, StoreError> {
        let sql = "SELECT id, body FROM attempts WHERE task = ?1 ORDER BY id";
        self.rows(|db| all(db, "attempts", sql, vec![bound(task.0).into()]))
    }

    fn landings(&self, project: &ProjectName, limit: usize) -> Result<Vec<Landing>, StoreError> {
        let sql = "SELECT id, body FROM landings WHERE project = ?1 ORDER BY id DESC LIMIT ?2";
        self.rows(|db| all(db, "landings", sql, vec![project.to_string().into(), at_most(limit).into()]))
    }

    fn launches(&self, team: &TeamName, limit: usize) -> Result<Vec<Launch>, StoreError> {
        let sql = "SELECT id, body FROM launches WHERE team = ?1 ORDER BY id DESC LIMIT ?2";
        self.rows(|db| all(db, "launches", sql, vec![team.as_str().to_owned().into(), at_most(limit).into()]))
    }

    fn conversations(&self, limit: usize) -> Result<Vec<Conversation>, StoreError> {
        let sql = "SELECT id, body FROM conversations ORDER BY id DESC LIMIT ?1";
        self.rows(|db| all(db, "conversations", sql, vec![at_most(limit).into()]))
    }

    fn conversation(&self, id: ConversationId) -> Result<Option<Conversation>, StoreError> {
        self.rows(|db| one(db, "conversations", "SELECT id, body FROM conversations WHERE id = ?1", id.0))
    }

    fn mission(&self, id: MissionId) -> Result<Option<(Mission, bool)>, StoreError> {
        self.rows(|db| {
            let live = db
                .prepare_cached("SELECT live FROM missions WHERE id = ?1")?
                .query_row([bound(id.0)], |row| row.get(0))
                .optional()?;
            let mission = one(db, "missions", "SELECT id, body FROM missions WHERE id = ?1", id.0)?;
            Ok(mission.zip(live))
        })
    }
}

/// An index that applies to a filter, with the value to look up in it.
struct Source {
    from: &'static str,
    /// The condition on a row; `{}` stands for the value.
    choose: &'static str,
    id: &'static str,
    value: Value,
}

/// Walks the shortest of the applicable indexes, and checks the other conditions for each message
/// in it. SQLite cannot know which index is the shortest: a label may be on nearly every message or
/// on three.
fn messages(db: &Connection, filter: &MessageFilter) -> Result<Vec<Message>, Fault> {
    let Some((low, high)) = span(db, filter)? else { return Ok(vec![]) };
    let sources = by_length(db, sources(db, filter)?, (low, high))?;
    let mut values = vec![Value::from(low), high.into()];
    let mut sql = String::from("SELECT m.id, m.body FROM ");
    let mut order = "m.id";
    let mut rest = String::new();
    // The text is compared for each message, unless the index of words is walked and decides alone.
    let mut read = filter.text.as_ref();
    for (nth, it) in sources.into_iter().enumerate() {
        let Source { from, choose, id, value } = it;
        if from == WORDS && nth > 0 {
            continue;
        }
        values.push(value);
        let chosen = choose.replace("{}", &format!("?{}", values.len()));
        // The plus sign keeps SQLite from using that column's index.
        match (nth, from) {
            (0, "messages") => rest += &format!(" AND m.{chosen}"),
            (0, _) => {
                sql += &format!("{from} s CROSS JOIN ");
                rest += &format!(" AND s.{chosen} AND m.id = s.{id}");
                order = if from == WORDS { "s.rowid" } else { "s.message" };
                read = read.filter(|it| from != WORDS || it.has_phrases());
            }
            (_, "messages") => rest += &format!(" AND +m.{chosen}"),
            _ => rest += &format!(" AND EXISTS (SELECT 1 FROM {from} x WHERE x.{chosen} AND x.{id} = m.id)"),
        }
    }
    let newest = filter.after.is_none();
    let direction = if newest { "DESC" } else { "ASC" };
    sql += &format!("messages m WHERE {order} > ?1 AND {order} <= ?2{rest} ORDER BY {order} {direction}");
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    let mut found: Vec<Message> = Vec::new();
    while found.len() < filter.limit
        && let Some(row) = rows.next()?
    {
        let Some(message): Option<Message> =
            found_readable(decode("messages", row.get_ref(0)?, text(row.get_ref(1)?)))?
        else {
            continue;
        };
        if read.is_none_or(|it| it.matches(&message.text)) {
            found.push(message);
        }
    }
    if newest {
        found.reverse();
    }
    Ok(found)
}

/// The table of the word index.
const WORDS: &str = "message_words";

/// Returns the indexes that apply to a filter.
fn sources(db: &Connection, filter: &MessageFilter) -> Result<Vec<Source>, Fault> {
    let source = |from, choose, id, value: Option<Value>| value.map(|value| Source { from, choose, id, value });
    let named = |it: Option<String>| it.map(Value::from);
    let numbered = |it: Option<MessageId>| it.map(|it| Value::from(bound(it.0)));
    // A message without answers is a thread of its own and is in no index.
    let mut thread = source("message_threads", "root = {}", "message", numbered(filter.thread));
    if let Some(root) = filter.thread {
        let answered = "SELECT 1 FROM message_threads WHERE root = ?1 LIMIT 1";
        let found = db.prepare_cached(answered)?.exists([bound(root.0)])?;
        if !found {
            thread = source("messages", "id = {}", "id", numbered(filter.thread));
        }
    }
    Ok([
        // The word index comes first, because the other conditions are then checked on columns and
        // not on every text.
        source(WORDS, "message_words MATCH {}", "rowid", named(filter.text.as_ref().map(index::query))),
        source("message_labels", "label = {}", "message", named(filter.label.as_ref().map(ToString::to_string))),
        source("message_mentions", "agent = {}", "message", named(filter.mention.as_ref().map(ToString::to_string))),
        source("message_replies", "parent = {}", "message", numbered(filter.reply_to)),
        thread,
        source("messages", "channel = {}", "id", named(filter.channel.as_ref().map(ToString::to_string))),
        source("messages", "sender = {}", "id", named(filter.from.clone())),
    ]
    .into_iter()
    .flatten()
    .collect())
}

/// Sorts the indexes, the shortest first. Counts only as far as the difference matters.
fn by_length(db: &Connection, sources: Vec<Source>, (low, high): (i64, i64)) -> Result<Vec<Source>, Fault> {
    if sources.len() < 2 {
        return Ok(sources);
    }
    let mut sized = Vec::new();
    for it in sources {
        let sql = format!(
            "SELECT count(*) FROM (SELECT 1 FROM {} WHERE {} AND {id} > ?2 AND {id} <= ?3 LIMIT 2000)",
            it.from,
            it.choose.replace("{}", "?1"),
            id = it.id
        );
        let size: i64 = db.prepare_cached(&sql)?.query_row((&it.value, low, high), |row| row.get(0))?;
        sized.push((size, it));
    }
    sized.sort_by_key(|it| it.0);
    Ok(sized.into_iter().map(|it| it.1).collect())
}

/// Returns the range of ids for a filter's messages, exclusive below and inclusive above, or
/// nothing if there can be none.
fn span(db: &Connection, filter: &MessageFilter) -> Result<Option<(i64, i64)>, Fault> {
    let mut low = bound(filter.after.unwrap_or_default().0);
    let mut high = filter.before.map_or(i64::MAX, |it| bound(it.0).saturating_sub(1));
    if filter.since.is_some() || filter.until.is_some() {
        let last: Option<i64> = db.prepare_cached("SELECT max(id) FROM messages")?.query_row([], |row| row.get(0))?;
        let last = unsigned(last.unwrap_or(0));
        let mut look = db.prepare_cached("SELECT id, body FROM messages WHERE id >= ?1 ORDER BY id")?;
        let mut at_or_after = |id: u64| -> Result<Option<(u64, u64)>, Fault> {
            let mut rows = look.query([bound(id)])?;
            while let Some(row) = rows.next()? {
                let dated: Option<Dated> = found_readable(decode("messages", row.get_ref(0)?, text(row.get_ref(1)?)))?;
                if let Some(dated) = dated {
                    return Ok(Some((dated.id.0, dated.wall)));
                }
            }
            Ok(None)
        };
        if let Some(since) = filter.since {
            low = low.max(bound(first_since(since, last, &mut at_or_after)?) - 1);
        }
        if let Some(until) = filter.until {
            high = high.min(bound(first_since(until.saturating_add(1), last, &mut at_or_after)?) - 1);
        }
    }
    Ok((low < high && filter.limit > 0).then_some((low, high)))
}

/// The date of a message.
#[derive(serde::Deserialize)]
struct Dated {
    id: MessageId,
    wall: u64,
}

/// Returns the conditions of a filter except its statuses, with their values. The limit is value 2.
fn asked(filter: &TaskFilter) -> (String, Vec<Value>) {
    let limit = if filter.limit == 0 { -1 } else { at_most(filter.limit) };
    let mut sql = String::from("id > ?1");
    let mut values = vec![Value::from(bound(filter.after.unwrap_or_default().0)), limit.into()];
    if let Some(project) = &filter.project {
        values.push(project.to_string().into());
        sql += &format!(" AND project = ?{}", values.len());
    }
    if let Some(mission) = filter.mission {
        values.push(bound(mission.0).into());
        sql += &format!(" AND mission = ?{}", values.len());
    }
    (sql, values)
}

/// Returns the condition by which SQLite chooses the index for a status: live and ended tasks have
/// one each.
fn index_of(status: Status) -> &'static str {
    if status.is_live() { "live = 1" } else { "live = 0" }
}

/// Counts along an index where possible, without reading bodies.
fn count_tasks(db: &Connection, filter: &TaskFilter) -> Result<u64, Fault> {
    let (sql, values) = asked(&TaskFilter { limit: 1, ..filter.clone() });
    let count = |sql: &str, values: Vec<Value>| -> Result<u64, Fault> {
        let sql = format!("SELECT count(*) FROM tasks WHERE {sql} LIMIT ?2");
        Ok(unsigned(db.prepare_cached(&sql)?.query_row(params_from_iter(values), |row| row.get(0))?))
    };
    if filter.statuses.is_empty() {
        return count(&sql, values);
    }
    of_each(filter.statuses.iter().copied(), &sql, &values).map(|(sql, values)| count(&sql, values)).sum()
}

/// Reads the tasks of each status separately, because each query then walks an index and stops at
/// the limit.
fn tasks(db: &Connection, filter: &TaskFilter) -> Result<Vec<Task>, Fault> {
    let (sql, values) = asked(filter);
    let mut statuses = filter.statuses.clone();
    if statuses.is_empty() && filter.mission.is_none() && filter.project.is_some() {
        statuses.extend(Status::ALL);
    }
    let all = |sql: &str, values| {
        all::<Task>(db, "tasks", &format!("SELECT id, body FROM tasks WHERE {sql} ORDER BY id LIMIT ?2"), values)
    };
    if statuses.is_empty() {
        return all(&sql, values);
    }
    let mut found: Vec<Task> = Vec::new();
    for (sql, values) in of_each(statuses, &sql, &values) {
        found.extend(all(&sql, values)?);
    }
    found.sort_by_key(|it| it.id);
    if filter.limit > 0 {
        found.truncate(filter.limit);
    }
    Ok(found)
}

/// Returns the query for each status.
fn of_each(
    statuses: impl IntoIterator<Item = Status>,
    sql: &str,
    values: &[Value],
) -> impl Iterator<Item = (String, Vec<Value>)> {
    let statuses: BTreeSet<Status> = statuses.into_iter().collect();
    statuses.into_iter().map(move |status| {
        let values: Vec<Value> = values.iter().cloned().chain([status.name().to_owned().into()]).collect();
        (format!("{} AND {sql} AND status = ?{}", index_of(status), values.len()), values)
    })
}

fn all<T: DeserializeOwned>(
    db: &Connection,
    table: &'static str,
    sql: &str,
    values: Vec<Value>,
) -> Result<Vec<T>, Fault> {
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.extend(found_readable(decode(table, row.get_ref(0)?, text(row.get_ref(1)?)))?);
    }
    Ok(found)
}

/// Leaves a row that cannot be read out of a list and logs it, because one bad row must not hide
/// the others (D11).
fn found_readable<T>(decoded: Result<T, Fault>) -> Result<Option<T>, Fault> {
    let mut aside = Vec::new();
    let row = readable(decoded, &mut aside)?;
    for unreadable in aside {
        tracing::warn!("a list is incomplete: could not read {unreadable} of the store");
    }
    Ok(row)
}

/// Reads one row. A row that cannot be read is an error, because reporting it as missing would be
/// wrong.
fn one<T: DeserializeOwned>(db: &Connection, table: &'static str, sql: &str, id: u64) -> Result<Option<T>, Fault> {
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query([bound(id)])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    decode(table, row.get_ref(0)?, text(row.get_ref(1)?)).map(Some)
}

fn at_most(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// Converts a number to look up. A number that no row can have is still looked up, and not found.
fn bound(it: u64) -> i64 {
    i64::try_from(it).unwrap_or(i64::MAX)
}

fn unsigned(it: i64) -> u64 {
    it.unsigned_abs()
}
