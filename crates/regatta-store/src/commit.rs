//! Writes a batch in one transaction. The statements here are the only ones that write rows.
//!
//! This is the hot path of every claim in the fleet, so statements are prepared once and JSON is
//! written into one buffer that is kept.

use std::path::Path;

use regatta_core::attempt::Attempt;
use regatta_core::board::{Meta, Row, RowKey, Rows};
use regatta_core::bus::Message;
use regatta_core::task::Task;
use regatta_engine::ports::store::Batch;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, Connection, OptionalExtension, Params, ToSql, Transaction, TransactionBehavior};
use serde::Serialize;

use crate::behind::Behind;
use crate::load::decode;
use crate::words::{self, Fault};
use crate::{index, log};

/// Returns the revision of the last commit and the one up to which rows are written. The former is
/// that of the log's last event, or the one that a restore has set.
pub(crate) fn revisions(connection: &Connection) -> Result<(u64, u64), Fault> {
    const BOTH: &str = "SELECT (SELECT coalesce(max(revision), 0) FROM events), revision FROM meta WHERE id = 1";
    let (last, written): (i64, i64) =
        connection.prepare_cached(BOTH)?.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok((last.max(written).unsigned_abs(), written.unsigned_abs()))
}

/// Checks that a store is at the revision where its only writer left it.
pub(crate) fn is_at(connection: &Connection, revision: u64, behind: &Behind, path: &Path) -> Result<(), Fault> {
    let (stored, written) = revisions(connection)?;
    if stored != revision {
        return Err(words::moved_on(path, revision, stored).into());
    }
    if written != behind.written(revision) {
        return Err(words::moved_on(path, behind.written(revision), written).into());
    }
    Ok(())
}

/// Stores a batch completely or not at all: its events and effects at once, its rows too unless
/// they may be deferred. `json` is only a buffer.
///
/// One failure leaves a doubt that no store can resolve. When the last sync itself fails, the
/// commit is rolled back and the next one overwrites it, but if the machine stops in between, the
/// commit may be found whole.
pub(crate) fn commit(
    connection: &mut Connection,
    json: &mut Vec<u8>,
    batch: &Batch,
    behind: &mut Behind,
    path: &Path,
) -> Result<(), Fault> {
    let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    is_at(&change, batch.after, behind, path)?;
    let mut writer = Writer { connection: &change, json };
    writer.log(batch)?;
    let waits = behind.may_wait(batch);
    if !waits {
        writer.rows(behind.rows.iter().filter(|it| !batch.rows.contains_key(it.0)))?;
        writer.rows(&batch.rows)?;
        writer.meta(&batch.meta)?;
    }
    let committed = change.commit();
    // A failed commit may still be stored, and then its rows count as deferred or written.
    let kept =
        || batch.meta.revision != batch.after && revisions(connection).is_ok_and(|it| it.0 == batch.meta.revision);
    if committed.is_ok() || kept() {
        if waits {
            behind.wait(batch);
        } else {
            behind.clear();
        }
    }
    Ok(committed?)
}

/// Writes rows whose events are in the log already, and the `meta` row.
pub(crate) fn rows(change: &Transaction<'_>, json: &mut Vec<u8>, rows: &Rows, meta: &Meta) -> Result<(), Fault> {
    let mut writer = Writer { connection: change, json };
    writer.rows(rows)?;
    writer.meta(meta)
}

struct Writer<'a> {
    connection: &'a Connection,
    json: &'a mut Vec<u8>,
}

/// Text that is known to be UTF-8, because serde wrote it.
pub(crate) struct Json<'a>(pub(crate) &'a [u8]);

impl ToSql for Json<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Text(self.0)))
    }
}

impl Writer<'_> {
    /// Writes the events and effects, which make a batch durable.
    fn log(&mut self, batch: &Batch) -> Result<(), Fault> {
        self.events(batch)?;
        for (key, effect) in &batch.effects {
            let body = json(self.json, effect)?;
            run(
                self.connection,
                "INSERT INTO outbox (revision, nth, body) VALUES (?1, ?2, ?3)",
                (number(key.revision)?, key.nth, body),
            )?;
        }
        for key in &batch.performed {
            run(
                self.connection,
                "DELETE FROM outbox WHERE revision = ?1 AND nth = ?2",
                (number(key.revision)?, key.nth),
            )?;
        }
        Ok(())
    }

    fn rows<'b>(&mut self, rows: impl IntoIterator<Item = (&'b RowKey, &'b Option<Row>)>) -> Result<(), Fault> {
        // Most written rows are claims, so their statements are looked up once per batch.
        let connection = self.connection;
        let mut put_claim = connection.prepare_cached("INSERT OR REPLACE INTO claims (id, body) VALUES (?1, ?2)")?;
        let mut remove_claim = connection.prepare_cached("DELETE FROM claims WHERE id = ?1")?;
        for (key, row) in rows {
            match (key, row) {
                (RowKey::Claim(id), Some(Row::Claim(it))) => {
                    put_claim.execute((number(id.0)?, json(self.json, it)?))?;
                }
                (RowKey::Claim(id), None) => {
                    remove_claim.execute([number(id.0)?])?;
                }
                (_, Some(row)) => self.put(row)?,
                (_, None) => self.remove(key)?,
            }
        }
        Ok(())
    }

    fn meta(&mut self, it: &Meta) -> Result<(), Fault> {
        let body = json(self.json, it)?;
        run(self.connection, "UPDATE meta SET revision = ?1, body = ?2 WHERE id = 1", (number(it.revision)?, body))
    }

    /// Writes the events. Refuses events that would leave a gap in the log.
    fn events(&mut self, batch: &Batch) -> Result<(), Fault> {
        let mut last = batch.after;
        for it in &batch.events {
            if it.revision != last + 1 {
                return Err(words::out_of_order(last + 1, it.revision).into());
            }
            last = it.revision;
        }
        if batch.meta.revision != last {
            return Err(words::out_of_order(last, batch.meta.revision).into());
        }
        log::append(self.connection, self.json, &batch.events)
    }

    fn put(&mut self, row: &Row) -> Result<(), Fault> {
        let (db, text) = (self.connection, &mut *self.json);
        let live = row.is_live();
        match row {
            // The meta row and the claims are written separately.
            Row::Meta(_) | Row::Claim(_) => Ok(()),
            Row::Project(it) => run(
                db,
                "INSERT OR REPLACE INTO projects (name, body) VALUES (?1, ?2)",
                (it.name.as_str(), json(text, it)?),
            ),
            Row::Agent(it) => run(
                db,
                "INSERT OR REPLACE INTO agents (name, body) VALUES (?1, ?2)",
                (it.name.as_str(), json(text, it)?),
            ),
            Row::Mission(it, _) => run(
                db,
                "INSERT OR REPLACE INTO missions (id, live, body) VALUES (?1, ?2, ?3)",
                (number(it.id.0)?, live, json(text, it)?),
            ),
            Row::Task(it) => self.put_task(it, live),
            Row::Attempt(it) => self.put_attempt(it, live),
            Row::Wait(it) => {
                run(db, "INSERT OR REPLACE INTO waits (id, body) VALUES (?1, ?2)", (number(it.id.0)?, json(text, it)?))
            }
            Row::Landing(it) => run(
                db,
                "INSERT OR REPLACE INTO landings (id, project, live, body) VALUES (?1, ?2, ?3, ?4)",
                (number(it.id.0)?, it.project.as_str(), live, json(text, it)?),
            ),
            Row::Cursor(it) => run(
                db,
                "INSERT OR REPLACE INTO cursors (agent, channel, body) VALUES (?1, ?2, ?3)",
                (it.agent.as_str(), it.channel.as_str(), json(text, it)?),
            ),
            Row::Answer(it) => run(
                db,
                "INSERT OR REPLACE INTO answers (request, body) VALUES (?1, ?2)",
                (it.key.as_str(), json(text, it)?),
            ),
            Row::Message(it) => self.put_message(it),
            Row::Approval(it) => run(
                db,
                "INSERT OR REPLACE INTO approvals (id, attempt, live, body) VALUES (?1, ?2, ?3, ?4)",
                (number(it.id.0)?, number(it.attempt.0)?, live, json(text, it)?),
            ),
            Row::Rule(it) => {
                run(db, "INSERT OR REPLACE INTO rules (id, body) VALUES (?1, ?2)", (number(it.id.0)?, json(text, it)?))
            }
            Row::Budget(it) => run(
                db,
                "INSERT OR REPLACE INTO budgets (scope, body) VALUES (?1, ?2)",
                (it.scope.to_string(), json(text, it)?),
            ),
            Row::Day(it) => run(
                db,
                "INSERT OR REPLACE INTO days (day, agent, body) VALUES (?1, ?2, ?3)",
                (number(it.day)?, it.agent.as_ref().map_or("", |it| it.as_str()), json(text, it)?),
            ),
            Row::Parked(it) => run(
                db,
                "INSERT OR REPLACE INTO parked (name, body) VALUES (?1, ?2)",
                (it.name.as_str(), json(text, it)?),
            ),
            Row::Team(it) => run(
                db,
                "INSERT OR REPLACE INTO teams (name, body) VALUES (?1, ?2)",
                (it.name.as_str(), json(text, it)?),
            ),
            Row::Launch(it) => run(
                db,
                "INSERT OR REPLACE INTO launches (id, team, live, body) VALUES (?1, ?2, ?3, ?4)",
                (number(it.id.0)?, it.team.as_str(), live, json(text, it)?),
            ),
            Row::Conversation(it) => run(
                db,
                "INSERT OR REPLACE INTO conversations (id, project, live, body) VALUES (?1, ?2, ?3, ?4)",
                (number(it.id.0)?, it.project.as_str(), live, json(text, it)?),
            ),
            Row::Delivery(it) => run(
                db,
                "INSERT OR REPLACE INTO deliveries (key, body) VALUES (?1, ?2)",
                (it.key.as_str(), json(text, it)?),
            ),
            Row::Runner(it) => run(
                db,
                "INSERT OR REPLACE INTO runners (name, body) VALUES (?1, ?2)",
                (it.name.as_str(), json(text, it)?),
            ),
            Row::Hook(it) => {
                run(db, "INSERT OR REPLACE INTO hooks (id, body) VALUES (?1, ?2)", (number(it.id.0)?, json(text, it)?))
            }
            Row::Firing(it) => run(
                db,
                "INSERT OR REPLACE INTO firings (id, hook, live, body) VALUES (?1, ?2, ?3, ?4)",
                (number(it.id.0)?, number(it.hook.0)?, live, json(text, it)?),
            ),
        }
    }

    fn remove(&mut self, key: &RowKey) -> Result<(), Fault> {
        let db = self.connection;
        match key {
            // There is always a meta row, and the claims are removed above.
            RowKey::Meta | RowKey::Claim(_) => Ok(()),
            RowKey::Project(it) => run(db, "DELETE FROM projects WHERE name = ?1", [it.as_str()]),
            RowKey::Agent(it) => run(db, "DELETE FROM agents WHERE name = ?1", [it.as_str()]),
            RowKey::Mission(it) => run(db, "DELETE FROM missions WHERE id = ?1", [number(it.0)?]),
            RowKey::Task(it) => run(db, "DELETE FROM tasks WHERE id = ?1", [number(it.0)?]),
            RowKey::Attempt(it) => run(db, "DELETE FROM attempts WHERE id = ?1", [number(it.0)?]),
            RowKey::Wait(it) => run(db, "DELETE FROM waits WHERE id = ?1", [number(it.0)?]),
            RowKey::Landing(it) => run(db, "DELETE FROM landings WHERE id = ?1", [number(it.0)?]),
            RowKey::Cursor(agent, channel) => {
                run(db, "DELETE FROM cursors WHERE agent = ?1 AND channel = ?2", [agent.as_str(), channel.as_str()])
            }
            RowKey::Answer(it) => run(db, "DELETE FROM answers WHERE request = ?1", [it.as_str()]),
            RowKey::Message(it) => self.remove_message(number(it.0)?),
            RowKey::Approval(it) => run(db, "DELETE FROM approvals WHERE id = ?1", [number(it.0)?]),
            RowKey::Rule(it) => run(db, "DELETE FROM rules WHERE id = ?1", [number(it.0)?]),
            RowKey::Budget(it) => run(db, "DELETE FROM budgets WHERE scope = ?1", [it.to_string()]),
            RowKey::Day(day, agent) => {
                let agent = agent.as_ref().map_or("", |it| it.as_str());
                run(db, "DELETE FROM days WHERE day = ?1 AND agent = ?2", (number(*day)?, agent))
            }
            RowKey::Team(it) => run(db, "DELETE FROM teams WHERE name = ?1", [it.as_str()]),
            RowKey::Launch(it) => run(db, "DELETE FROM launches WHERE id = ?1", [number(it.0)?]),
            RowKey::Conversation(it) => run(db, "DELETE FROM conversations WHERE id = ?1", [number(it.0)?]),
            RowKey::Delivery(it) => run(db, "DELETE FROM deliveries WHERE key = ?1", [it.as_str()]),
            RowKey::Runner(it) => run(db, "DELETE FROM runners WHERE name = ?1", [it.as_str()]),
            RowKey::Hook(it) => run(db, "DELETE FROM hooks WHERE id = ?1", [number(it.0)?]),
            RowKey::Firing(it) => run(db, "DELETE FROM firings WHERE id = ?1", [number(it.0)?]),
            RowKey::Parked(it) => run(db, "DELETE FROM parked WHERE name = ?1", [it.as_str()]),
        }
    }

    /// Writes a task. A task is written often, and its indexed columns seldom change, so an update
    /// that touches no index is tried first. (`INSERT OR REPLACE` would remove the row from all
    /// indexes first, and keep a journal of its own in case it fails.)
    fn put_task(&mut self, it: &Task, live: bool) -> Result<(), Fault> {
        const STAYS: &str =
            "UPDATE tasks SET status = ?4, body = ?6 WHERE id = ?1 AND project = ?2 AND mission IS ?3 AND live = ?5";
        const MOVES: &str =
            "UPDATE tasks SET project = ?2, mission = ?3, status = ?4, live = ?5, body = ?6 WHERE id = ?1";
        const COMES: &str =
            "INSERT INTO tasks (id, project, mission, status, live, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let (id, mission) = (number(it.id.0)?, it.mission.map(|it| number(it.0)).transpose()?);
        let (db, body) = (self.connection, json(self.json, it)?);
        let put = |sql: &str| -> Result<bool, Fault> {
            let row = (id, it.project.as_str(), mission, it.status.name(), live, &body);
            Ok(prepared(db, sql)?.execute(row)? > 0)
        };
        let _put = (live && put(STAYS)?) || put(MOVES)? || put(COMES)?;
        Ok(())
    }

    fn put_attempt(&mut self, it: &Attempt, live: bool) -> Result<(), Fault> {
        const STAYS: &str = "UPDATE attempts SET live = ?3, body = ?4 WHERE id = ?1 AND task = ?2";
        const COMES: &str = "INSERT INTO attempts (id, task, live, body) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (id) DO UPDATE SET task = ?2, live = ?3, body = ?4";
        let (id, task) = (number(it.id.0)?, number(it.task.0)?);
        let (db, body) = (self.connection, json(self.json, it)?);
        let put = |sql: &str| -> Result<bool, Fault> { Ok(prepared(db, sql)?.execute((id, task, live, &body))? > 0) };
        let _put = put(STAYS)? || put(COMES)?;
        Ok(())
    }

    fn put_message(&mut self, it: &Message) -> Result<(), Fault> {
        let id = number(it.id.0)?;
        let sender = it.sender.to_string();
        const INSERT: &str = "INSERT OR IGNORE INTO messages (id, channel, sender, body) VALUES (?1, ?2, ?3, ?4)";
        if prepared(self.connection, INSERT)?.execute((id, it.channel.as_str(), &sender, json(self.json, it)?))? == 0 {
            self.remove_message(id)?;
            run(self.connection, INSERT, (id, it.channel.as_str(), &sender, json(self.json, it)?))?;
        }
        index::put(self.connection, it)
    }

    fn remove_message(&mut self, id: i64) -> Result<(), Fault> {
        let old = prepared(self.connection, "SELECT body FROM messages WHERE id = ?1")?
            .query_row([id], |row| row.get::<_, String>(0))
            .optional()?;
        if let Some(old) = old {
            // The message's entries are found by their content. An index by message would slow down
            // every message for something that hardly ever happens.
            index::remove(self.connection, &decode("messages", ValueRef::Integer(id), old.as_bytes())?)?;
            run(self.connection, "DELETE FROM messages WHERE id = ?1", [id])?;
        }
        Ok(())
    }
}

fn json<'a>(buffer: &'a mut Vec<u8>, it: &impl Serialize) -> Result<Json<'a>, Fault> {
    buffer.clear();
    serde_json::to_writer(&mut *buffer, it)?;
    Ok(Json(buffer))
}

fn prepared<'a>(connection: &'a Connection, sql: &str) -> Result<CachedStatement<'a>, Fault> {
    Ok(connection.prepare_cached(sql)?)
}

pub(crate) fn run(connection: &Connection, sql: &str, params: impl Params) -> Result<(), Fault> {
    prepared(connection, sql)?.execute(params)?;
    Ok(())
}

/// Converts to SQLite's signed numbers.
pub(crate) fn number(it: u64) -> Result<i64, Fault> {
    i64::try_from(it).map_err(|_| words::too_large(it).into())
}

#[cfg(test)]
mod tests {
    use regatta_core::ids::{MissionId, TaskId};
    use regatta_core::task::Status;
    use regatta_testkit::store_suite::story::everything;

    use super::*;
    use crate::open;

    /// The indexed columns of a row are right, regardless of the way in which the row is written.
    #[test]
    fn indexed_columns_follow_every_change_of_a_row() {
        let directory = tempfile::tempdir().unwrap();
        let connection = open::open(&directory.path().join("regatta.db")).unwrap();
        let boards = everything();
        let find = |step: &regatta_testkit::store_suite::story::Step| step.board.tasks.values().next().cloned();
        let mut task: Task = boards.iter().find_map(find).unwrap().as_ref().clone();
        let mut attempt: Attempt =
            boards.iter().find_map(|it| it.board.attempts.values().next().cloned()).unwrap().as_ref().clone();
        let mut text = Vec::new();
        let mut writer = Writer { connection: &connection, json: &mut text };
        let project = |name: &str| name.parse().unwrap();
        for (name, mission, status) in [
            ("lake", None, Status::Pending),        // inserted
            ("lake", None, Status::InProgress),     // no indexed column changes
            ("lake", Some(3), Status::InProgress),  // a mission is set
            ("river", Some(3), Status::InProgress), // the project is renamed
            ("river", Some(4), Status::Completed),  // it ends
            ("river", Some(4), Status::Pending),    // it is reopened
            ("river", Some(4), Status::NeedsHuman),
        ] {
            (task.project, task.mission, task.status) =
                (project(name), mission.map(|it: u32| MissionId(it.into())), status);
            writer.put(&Row::Task(task.clone().into())).unwrap();
            let sql = "SELECT project, mission, status, live, body FROM tasks";
            let found = connection
                .query_row(sql, [], |row| {
                    let body = row.get::<_, String>(4)?;
                    Ok((
                        row.get::<_, String>(0)?,
                        row.get::<_, Option<u32>>(1)?,
                        row.get::<_, String>(2)?,
                        row.get(3)?,
                        body,
                    ))
                })
                .unwrap();
            let body = serde_json::to_string(&task).unwrap();
            assert_eq!(found, (name.to_owned(), mission, status.name().to_owned(), status.is_live(), body));
        }
        for (of, ended) in [(1u32, false), (1, true), (2, true), (2, false)] {
            attempt.task = TaskId(of.into());
            attempt.ended = ended.then(|| regatta_core::attempt::End {
                cause: regatta_core::attempt::Cause::Reported,
                detail: String::new(),
                wall: 7,
            });
            let row = Row::Attempt(attempt.clone().into());
            writer.put(&row).unwrap();
            let found = connection
                .query_row("SELECT task, live, body FROM attempts", [], |row| {
                    Ok((row.get::<_, u32>(0)?, row.get::<_, bool>(1)?, row.get::<_, String>(2)?))
                })
                .unwrap();
            assert_eq!(found, (of, row.is_live(), serde_json::to_string(&attempt).unwrap()));
        }
    }
}
