//! Writes a batch in one transaction. Only the statements in this module write rows.
//!
//! Every claim (lease on files) of every agent is stored through this code, so the code must be
//! fast. SQL statements are prepared once, and JSON is written into one buffer that is reused.

use std::path::Path;

use regatta_core::attempt::Attempt;
use regatta_core::board::{BoardMeta, Row, RowKey, Rows};
use regatta_core::bus::Message;
use regatta_core::task::Task;
use regatta_engine::ports::store::StoreBatch;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{
    CachedStatement, Connection, OptionalExtension, Params, ToSql, Transaction, TransactionBehavior,
};
use serde::Serialize;

use crate::deferred_rows::DeferredRows;
use crate::errors::{self, StoreFault};
use crate::load::decode_row;
use crate::{event_log, message_index};

/// Returns two revisions (event numbers): the revision of the store, and the revision up to which
/// rows are written (rows are written later than their events under load). The revision of the
/// store is the number of the last event, or the number that a restore has set.
pub(crate) fn revisions(connection: &Connection) -> Result<(u64, u64), StoreFault> {
    const QUERY: &str =
        "SELECT (SELECT coalesce(max(revision), 0) FROM events), revision FROM meta WHERE id = 1";
    let (last, written): (i64, i64) = connection
        .prepare_cached(QUERY)?
        .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok((last.max(written).unsigned_abs(), written.unsigned_abs()))
}

/// Checks that the store's revision (event number) is still the one that this process's last
/// transaction wrote. Another revision means that another process wrote to the store.
pub(crate) fn check_revision(
    connection: &Connection,
    revision: u64,
    deferred: &DeferredRows,
    path: &Path,
) -> Result<(), StoreFault> {
    let (stored, written) = revisions(connection)?;
    if stored != revision {
        return Err(errors::changed_by_another_process(path, revision, stored).into());
    }
    if written != deferred.written_revision(revision) {
        return Err(errors::changed_by_another_process(
            path,
            deferred.written_revision(revision),
            written,
        )
        .into());
    }
    Ok(())
}

/// Stores a batch completely or not at all. Its events and effects (outside actions such as
/// starting a program) are written now, and its rows too unless they may be deferred. `json` is a
/// buffer that is reused.
///
/// One failure leaves a doubt that no store can resolve. If syncing the disk fails at the end,
/// SQLite rolls the transaction back, and the next transaction overwrites the rolled-back data. But
/// if the machine stops in between, the next start may find the transaction complete.
pub(crate) fn commit_batch(
    connection: &mut Connection,
    json: &mut Vec<u8>,
    batch: &StoreBatch,
    deferred: &mut DeferredRows,
    path: &Path,
) -> Result<(), StoreFault> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    check_revision(&transaction, batch.base_revision, deferred, path)?;
    let mut writer = BatchWriter {
        connection: &transaction,
        json,
    };
    writer.write_log(batch)?;
    let is_deferred = deferred.can_defer(batch);
    if !is_deferred {
        let older = deferred
            .rows
            .iter()
            .filter(|(key, _)| !batch.rows.contains_key(key));
        writer.write_rows(older)?;
        writer.write_rows(&batch.rows)?;
        writer.write_meta(&batch.meta)?;
    }
    let committed = transaction.commit();
    // A transaction that returned an error may have been stored anyway. In that case its rows must
    // count as deferred or written too, as after a success.
    let was_stored = || {
        batch.meta.revision != batch.base_revision
            && revisions(connection).is_ok_and(|(last, _)| last == batch.meta.revision)
    };
    if committed.is_ok() || was_stored() {
        if is_deferred {
            deferred.defer(batch);
        } else {
            deferred.clear();
        }
    }
    Ok(committed?)
}

/// Writes rows whose events are already stored, and the `meta` row with the counters of the board
/// (the state of all unfinished work).
pub(crate) fn write_rows(
    transaction: &Transaction<'_>,
    json: &mut Vec<u8>,
    rows: &Rows,
    meta: &BoardMeta,
) -> Result<(), StoreFault> {
    let mut writer = BatchWriter {
        connection: transaction,
        json,
    };
    writer.write_rows(rows)?;
    writer.write_meta(meta)
}

struct BatchWriter<'a> {
    connection: &'a Connection,
    json: &'a mut Vec<u8>,
}

/// JSON text as bytes, which are valid UTF-8 because serde wrote them.
pub(crate) struct JsonText<'a>(pub(crate) &'a [u8]);

impl ToSql for JsonText<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Text(self.0)))
    }
}

impl BatchWriter<'_> {
    /// Writes the events and effects (outside actions such as starting a program) of a batch. Once
    /// these are stored, the batch is durable.
    fn write_log(&mut self, batch: &StoreBatch) -> Result<(), StoreFault> {
        self.write_events(batch)?;
        for (key, effect) in &batch.effects {
            let body = to_json(self.json, effect)?;
            execute_sql(
                self.connection,
                "INSERT INTO outbox (revision, nth, body) VALUES (?1, ?2, ?3)",
                (to_sql_number(key.revision)?, key.nth, body),
            )?;
        }
        for key in &batch.completed_effects {
            execute_sql(
                self.connection,
                "DELETE FROM outbox WHERE revision = ?1 AND nth = ?2",
                (to_sql_number(key.revision)?, key.nth),
            )?;
        }
        Ok(())
    }

    fn write_rows<'b>(
        &mut self,
        rows: impl IntoIterator<Item = (&'b RowKey, &'b Option<Row>)>,
    ) -> Result<(), StoreFault> {
        // Most rows that are written are claims (leases on files), so the statements for claims are
        // looked up only once per batch.
        let connection = self.connection;
        let mut put_claim = connection
            .prepare_cached("INSERT OR REPLACE INTO claims (id, body) VALUES (?1, ?2)")?;
        let mut remove_claim = connection.prepare_cached("DELETE FROM claims WHERE id = ?1")?;
        for (key, row) in rows {
            match (key, row) {
                (RowKey::Claim(id), Some(Row::Claim(claim))) => {
                    put_claim.execute((to_sql_number(id.0)?, to_json(self.json, claim)?))?;
                }
                (RowKey::Claim(id), None) => {
                    remove_claim.execute([to_sql_number(id.0)?])?;
                }
                (_, Some(row)) => self.put_row(row)?,
                (_, None) => self.remove_row(key)?,
            }
        }
        Ok(())
    }

    fn write_meta(&mut self, meta: &BoardMeta) -> Result<(), StoreFault> {
        let body = to_json(self.json, meta)?;
        execute_sql(
            self.connection,
            "UPDATE meta SET revision = ?1, body = ?2 WHERE id = 1",
            (to_sql_number(meta.revision)?, body),
        )
    }

    /// Writes the events of a batch. Returns an error if the first event does not directly follow
    /// the last stored event.
    fn write_events(&mut self, batch: &StoreBatch) -> Result<(), StoreFault> {
        let mut last = batch.base_revision;
        for event in &batch.events {
            if event.revision != last + 1 {
                return Err(errors::out_of_order(last + 1, event.revision).into());
            }
            last = event.revision;
        }
        if batch.meta.revision != last {
            return Err(errors::out_of_order(last, batch.meta.revision).into());
        }
        event_log::append_events(self.connection, self.json, &batch.events)
    }

    fn put_row(&mut self, row: &Row) -> Result<(), StoreFault> {
        let (db, json) = (self.connection, &mut *self.json);
        let live = row.is_live();
        match row {
            // The code above writes the `meta` row and the claims (leases on files) separately.
            Row::Meta(_) | Row::Claim(_) => Ok(()),
            Row::Project(project) => execute_sql(
                db,
                "INSERT OR REPLACE INTO projects (name, body) VALUES (?1, ?2)",
                (project.name.as_str(), to_json(json, project)?),
            ),
            Row::Agent(agent) => execute_sql(
                db,
                "INSERT OR REPLACE INTO agents (name, body) VALUES (?1, ?2)",
                (agent.name.as_str(), to_json(json, agent)?),
            ),
            Row::Mission(mission, _) => execute_sql(
                db,
                "INSERT OR REPLACE INTO missions (id, live, body) VALUES (?1, ?2, ?3)",
                (to_sql_number(mission.id.0)?, live, to_json(json, mission)?),
            ),
            Row::Task(task) => self.put_task(task, live),
            Row::Attempt(attempt) => self.put_attempt(attempt, live),
            Row::Wait(wait) => execute_sql(
                db,
                "INSERT OR REPLACE INTO waits (id, body) VALUES (?1, ?2)",
                (to_sql_number(wait.id.0)?, to_json(json, wait)?),
            ),
            Row::Landing(landing) => execute_sql(
                db,
                "INSERT OR REPLACE INTO landings (id, project, live, body) VALUES (?1, ?2, ?3, ?4)",
                (
                    to_sql_number(landing.id.0)?,
                    landing.project.as_str(),
                    live,
                    to_json(json, landing)?,
                ),
            ),
            Row::Cursor(cursor) => execute_sql(
                db,
                "INSERT OR REPLACE INTO cursors (agent, channel, body) VALUES (?1, ?2, ?3)",
                (
                    cursor.agent.as_str(),
                    cursor.channel.as_str(),
                    to_json(json, cursor)?,
                ),
            ),
            Row::Answer(answer) => execute_sql(
                db,
                "INSERT OR REPLACE INTO answers (request, body) VALUES (?1, ?2)",
                (answer.key.as_str(), to_json(json, answer)?),
            ),
            Row::Message(message) => self.put_message(message),
            Row::Approval(approval) => execute_sql(
                db,
                "INSERT OR REPLACE INTO approvals (id, attempt, live, body) VALUES (?1, ?2, ?3, \
                ?4)",
                (
                    to_sql_number(approval.id.0)?,
                    to_sql_number(approval.attempt.0)?,
                    live,
                    to_json(json, approval)?,
                ),
            ),
            Row::Rule(rule) => execute_sql(
                db,
                "INSERT OR REPLACE INTO rules (id, body) VALUES (?1, ?2)",
                (to_sql_number(rule.id.0)?, to_json(json, rule)?),
            ),
            Row::Budget(budget) => execute_sql(
                db,
                "INSERT OR REPLACE INTO budgets (scope, body) VALUES (?1, ?2)",
                (budget.scope.to_string(), to_json(json, budget)?),
            ),
            Row::Day(spend) => execute_sql(
                db,
                "INSERT OR REPLACE INTO days (day, agent, body) VALUES (?1, ?2, ?3)",
                (
                    to_sql_number(spend.day)?,
                    spend.agent.as_ref().map_or("", |agent| agent.as_str()),
                    to_json(json, spend)?,
                ),
            ),
            Row::Parked(outage) => execute_sql(
                db,
                "INSERT OR REPLACE INTO parked (name, body) VALUES (?1, ?2)",
                (outage.name.as_str(), to_json(json, outage)?),
            ),
            Row::Team(team) => execute_sql(
                db,
                "INSERT OR REPLACE INTO teams (name, body) VALUES (?1, ?2)",
                (team.name.as_str(), to_json(json, team)?),
            ),
            Row::Launch(launch) => execute_sql(
                db,
                "INSERT OR REPLACE INTO launches (id, team, live, body) VALUES (?1, ?2, ?3, ?4)",
                (
                    to_sql_number(launch.id.0)?,
                    launch.team.as_str(),
                    live,
                    to_json(json, launch)?,
                ),
            ),
            Row::Conversation(conversation) => execute_sql(
                db,
                "INSERT OR REPLACE INTO conversations (id, project, live, body) VALUES (?1, ?2, \
                ?3, ?4)",
                (
                    to_sql_number(conversation.id.0)?,
                    conversation.project.as_str(),
                    live,
                    to_json(json, conversation)?,
                ),
            ),
            Row::Delivery(delivery) => execute_sql(
                db,
                "INSERT OR REPLACE INTO deliveries (key, body) VALUES (?1, ?2)",
                (delivery.key.as_str(), to_json(json, delivery)?),
            ),
            Row::Runner(runner) => execute_sql(
                db,
                "INSERT OR REPLACE INTO runners (name, body) VALUES (?1, ?2)",
                (runner.name.as_str(), to_json(json, runner)?),
            ),
            Row::Hook(hook) => execute_sql(
                db,
                "INSERT OR REPLACE INTO hooks (id, body) VALUES (?1, ?2)",
                (to_sql_number(hook.id.0)?, to_json(json, hook)?),
            ),
            Row::Firing(firing) => execute_sql(
                db,
                "INSERT OR REPLACE INTO firings (id, hook, live, body) VALUES (?1, ?2, ?3, ?4)",
                (
                    to_sql_number(firing.id.0)?,
                    to_sql_number(firing.hook.0)?,
                    live,
                    to_json(json, firing)?,
                ),
            ),
        }
    }

    fn remove_row(&mut self, key: &RowKey) -> Result<(), StoreFault> {
        let db = self.connection;
        match key {
            // The `meta` row is never removed, and the code above removes the claims (leases on
            // files).
            RowKey::Meta | RowKey::Claim(_) => Ok(()),
            RowKey::Project(project) => execute_sql(
                db,
                "DELETE FROM projects WHERE name = ?1",
                [project.as_str()],
            ),
            RowKey::Agent(agent) => {
                execute_sql(db, "DELETE FROM agents WHERE name = ?1", [agent.as_str()])
            }
            RowKey::Mission(id) => execute_sql(
                db,
                "DELETE FROM missions WHERE id = ?1",
                [to_sql_number(id.0)?],
            ),
            RowKey::Task(id) => execute_sql(
                db,
                "DELETE FROM tasks WHERE id = ?1",
                [to_sql_number(id.0)?],
            ),
            RowKey::Attempt(id) => execute_sql(
                db,
                "DELETE FROM attempts WHERE id = ?1",
                [to_sql_number(id.0)?],
            ),
            RowKey::Wait(id) => execute_sql(
                db,
                "DELETE FROM waits WHERE id = ?1",
                [to_sql_number(id.0)?],
            ),
            RowKey::Landing(id) => execute_sql(
                db,
                "DELETE FROM landings WHERE id = ?1",
                [to_sql_number(id.0)?],
            ),
            RowKey::Cursor(agent, channel) => execute_sql(
                db,
                "DELETE FROM cursors WHERE agent = ?1 AND channel = ?2",
                [agent.as_str(), channel.as_str()],
            ),
            RowKey::Answer(key) => {
                execute_sql(db, "DELETE FROM answers WHERE request = ?1", [key.as_str()])
            }
            RowKey::Message(id) => self.remove_message(to_sql_number(id.0)?),
            RowKey::Approval(id) => execute_sql(
                db,
                "DELETE FROM approvals WHERE id = ?1",
                [to_sql_number(id.0)?],
            ),
            RowKey::Rule(id) => execute_sql(
                db,
                "DELETE FROM rules WHERE id = ?1",
                [to_sql_number(id.0)?],
            ),
            RowKey::Budget(scope) => execute_sql(
                db,
                "DELETE FROM budgets WHERE scope = ?1",
                [scope.to_string()],
            ),
            RowKey::Day(day, agent) => {
                let agent = agent.as_ref().map_or("", |agent| agent.as_str());
                execute_sql(
                    db,
                    "DELETE FROM days WHERE day = ?1 AND agent = ?2",
                    (to_sql_number(*day)?, agent),
                )
            }
            RowKey::Team(team) => {
                execute_sql(db, "DELETE FROM teams WHERE name = ?1", [team.as_str()])
            }
            RowKey::Launch(id) => execute_sql(
                db,
                "DELETE FROM launches WHERE id = ?1",
                [to_sql_number(id.0)?],
            ),
            RowKey::Conversation(id) => execute_sql(
                db,
                "DELETE FROM conversations WHERE id = ?1",
                [to_sql_number(id.0)?],
            ),
            RowKey::Delivery(key) => {
                execute_sql(db, "DELETE FROM deliveries WHERE key = ?1", [key.as_str()])
            }
            RowKey::Runner(runner) => {
                execute_sql(db, "DELETE FROM runners WHERE name = ?1", [runner.as_str()])
            }
            RowKey::Hook(id) => execute_sql(
                db,
                "DELETE FROM hooks WHERE id = ?1",
                [to_sql_number(id.0)?],
            ),
            RowKey::Firing(id) => execute_sql(
                db,
                "DELETE FROM firings WHERE id = ?1",
                [to_sql_number(id.0)?],
            ),
            RowKey::Parked(name) => {
                execute_sql(db, "DELETE FROM parked WHERE name = ?1", [name.as_str()])
            }
        }
    }

    /// Writes a task. A task is written often while its indexed columns seldom change, so an update
    /// that touches no index is tried first. `INSERT OR REPLACE` would be slower, because it first
    /// removes the row from all indexes and keeps a journal in case it fails.
    fn put_task(&mut self, task: &Task, live: bool) -> Result<(), StoreFault> {
        const UPDATE_BODY: &str = "UPDATE tasks SET status = ?4, body = ?6 WHERE id = ?1 AND \
            project = ?2 AND mission IS ?3 AND live = ?5";
        const UPDATE_INDEXED_COLUMNS: &str = "UPDATE tasks SET project = ?2, mission = ?3, status \
            = ?4, live = ?5, body = ?6 WHERE id = ?1";
        const INSERT_TASK: &str = "INSERT INTO tasks (id, project, mission, status, live, body) \
            VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let (id, mission) = (
            to_sql_number(task.id.0)?,
            task.mission.map(|id| to_sql_number(id.0)).transpose()?,
        );
        let (db, body) = (self.connection, to_json(self.json, task)?);
        let was_written = |sql: &str| -> Result<bool, StoreFault> {
            let row = (
                id,
                task.project.as_str(),
                mission,
                task.status.name(),
                live,
                &body,
            );
            Ok(cached_statement(db, sql)?.execute(row)? > 0)
        };
        let _written = (live && was_written(UPDATE_BODY)?)
            || was_written(UPDATE_INDEXED_COLUMNS)?
            || was_written(INSERT_TASK)?;
        Ok(())
    }

    fn put_attempt(&mut self, attempt: &Attempt, live: bool) -> Result<(), StoreFault> {
        const UPDATE_BODY: &str =
            "UPDATE attempts SET live = ?3, body = ?4 WHERE id = ?1 AND task = ?2";
        const INSERT_ATTEMPT: &str = "INSERT INTO attempts (id, task, live, body) VALUES (?1, ?2, \
            ?3, ?4) ON CONFLICT (id) DO UPDATE SET task = ?2, live = ?3, body = ?4";
        let (id, task) = (to_sql_number(attempt.id.0)?, to_sql_number(attempt.task.0)?);
        let (db, body) = (self.connection, to_json(self.json, attempt)?);
        let was_written = |sql: &str| -> Result<bool, StoreFault> {
            Ok(cached_statement(db, sql)?.execute((id, task, live, &body))? > 0)
        };
        let _written = was_written(UPDATE_BODY)? || was_written(INSERT_ATTEMPT)?;
        Ok(())
    }

    fn put_message(&mut self, message: &Message) -> Result<(), StoreFault> {
        let id = to_sql_number(message.id.0)?;
        let sender = message.sender.to_string();
        const INSERT: &str =
            "INSERT OR IGNORE INTO messages (id, channel, sender, body) VALUES (?1, ?2, ?3, ?4)";
        if cached_statement(self.connection, INSERT)?.execute((
            id,
            message.channel.as_str(),
            &sender,
            to_json(self.json, message)?,
        ))? == 0
        {
            self.remove_message(id)?;
            execute_sql(
                self.connection,
                INSERT,
                (
                    id,
                    message.channel.as_str(),
                    &sender,
                    to_json(self.json, message)?,
                ),
            )?;
        }
        message_index::index_message(self.connection, message)
    }

    fn remove_message(&mut self, id: i64) -> Result<(), StoreFault> {
        let old = cached_statement(self.connection, "SELECT body FROM messages WHERE id = ?1")?
            .query_row([id], |row| row.get::<_, String>(0))
            .optional()?;
        if let Some(old) = old {
            // The index entries of the message are found by its content. An index by message id
            // would make every new message slower, and messages are hardly ever removed.
            message_index::unindex_message(
                self.connection,
                &decode_row("messages", ValueRef::Integer(id), old.as_bytes())?,
            )?;
            execute_sql(self.connection, "DELETE FROM messages WHERE id = ?1", [id])?;
        }
        Ok(())
    }
}

fn to_json<'a>(
    buffer: &'a mut Vec<u8>,
    value: &impl Serialize,
) -> Result<JsonText<'a>, StoreFault> {
    buffer.clear();
    serde_json::to_writer(&mut *buffer, value)?;
    Ok(JsonText(buffer))
}

fn cached_statement<'a>(
    connection: &'a Connection,
    sql: &str,
) -> Result<CachedStatement<'a>, StoreFault> {
    Ok(connection.prepare_cached(sql)?)
}

pub(crate) fn execute_sql(
    connection: &Connection,
    sql: &str,
    params: impl Params,
) -> Result<(), StoreFault> {
    cached_statement(connection, sql)?.execute(params)?;
    Ok(())
}

/// Converts a number to SQLite's signed integers. Returns an error if the number is too large.
pub(crate) fn to_sql_number(number: u64) -> Result<i64, StoreFault> {
    i64::try_from(number).map_err(|_| errors::too_large(number).into())
}

#[cfg(test)]
mod tests {
    use regatta_core::ids::{MissionId, TaskId};
    use regatta_core::task::TaskStatus;
    use regatta_testkit::store_suite::history_fixture::all_steps;

    use super::*;
    use crate::open;

    /// The indexed columns of a row are right, regardless of the way in which the row is written.
    #[test]
    fn indexed_columns_follow_every_change_of_a_row() {
        let directory = tempfile::tempdir().unwrap();
        let connection = open::open_for_writing(&directory.path().join("regatta.db")).unwrap();
        let steps = all_steps();
        let first_task = |step: &regatta_testkit::store_suite::history_fixture::CommitStep| {
            step.board.tasks.values().next().cloned()
        };
        let mut task: Task = steps.iter().find_map(first_task).unwrap().as_ref().clone();
        let mut attempt: Attempt = steps
            .iter()
            .find_map(|step| step.board.attempts.values().next().cloned())
            .unwrap()
            .as_ref()
            .clone();
        let mut json_buffer = Vec::new();
        let mut writer = BatchWriter {
            connection: &connection,
            json: &mut json_buffer,
        };
        let parse_name = |name: &str| name.parse().unwrap();
        for (name, mission, status) in [
            ("lake", None, TaskStatus::Pending),        // inserted
            ("lake", None, TaskStatus::InProgress),     // no indexed column changes
            ("lake", Some(3), TaskStatus::InProgress),  // a mission is set
            ("river", Some(3), TaskStatus::InProgress), // the project is renamed
            ("river", Some(4), TaskStatus::Completed),  // it ends
            ("river", Some(4), TaskStatus::Pending),    // it is reopened
            ("river", Some(4), TaskStatus::NeedsHuman),
        ] {
            (task.project, task.mission, task.status) = (
                parse_name(name),
                mission.map(|mission: u32| MissionId(mission.into())),
                status,
            );
            writer.put_row(&Row::Task(task.clone().into())).unwrap();
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
            assert_eq!(
                found,
                (
                    name.to_owned(),
                    mission,
                    status.name().to_owned(),
                    status.is_live(),
                    body
                )
            );
        }
        for (task_id, ended) in [(1u32, false), (1, true), (2, true), (2, false)] {
            attempt.task = TaskId(task_id.into());
            attempt.end = ended.then(|| regatta_core::attempt::AttemptEnd {
                cause: regatta_core::attempt::AttemptCause::Reported,
                detail: String::new(),
                unix_ms: 7,
            });
            let row = Row::Attempt(attempt.clone().into());
            writer.put_row(&row).unwrap();
            let found = connection
                .query_row("SELECT task, live, body FROM attempts", [], |row| {
                    Ok((
                        row.get::<_, u32>(0)?,
                        row.get::<_, bool>(1)?,
                        row.get::<_, String>(2)?,
                    ))
                })
                .unwrap();
            assert_eq!(
                found,
                (
                    task_id,
                    row.is_live(),
                    serde_json::to_string(&attempt).unwrap()
                )
            );
        }
    }
}
