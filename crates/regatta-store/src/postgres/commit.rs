//! One transaction for one batch: the lease, the events, the rows and the outbox.

use std::collections::BTreeSet;

use regatta_core::board::{Row, RowKey};
use regatta_core::bus::Message;
use regatta_core::search;
use regatta_engine::ports::store::StoreBatch;

use super::WHOLE_FLEET;
use super::connection::{Param, Statement};
use super::lease::LeaseLimits;
use crate::errors::{self, StoreFault};
use crate::event_rows;
use crate::row_codec::{self, RowColumns, RowId};

/// The kinds of entries in the index of messages.
pub(super) mod entry {
    pub(in crate::postgres) const LABEL: &str = "label";
    pub(in crate::postgres) const MENTION: &str = "mention";
    pub(in crate::postgres) const REPLY_TO: &str = "reply_to";
    pub(in crate::postgres) const SENDER: &str = "sender";
    pub(in crate::postgres) const THREAD: &str = "thread";
    pub(in crate::postgres) const WORD: &str = "word";
}

/// Returns the SQL with which a transaction begins. A daemon that is paused inside it would hold
/// the row of the lease, so the server ends such a transaction well before the lease expires.
pub(super) fn begin(limits: LeaseLimits) -> String {
    let idle_ms = (limits.ttl_ms() * 3 / 8).max(1);
    format!("BEGIN; SET LOCAL idle_in_transaction_session_timeout = {idle_ms}")
}

/// Returns the statements of a batch. The first one fails, and with it the transaction, unless
/// `epoch` holds the lease and the store ends at the batch's base revision.
pub(super) fn statements(
    batch: &StoreBatch,
    epoch: i64,
    limits: LeaseLimits,
) -> Result<Vec<Statement>, StoreFault> {
    check_order(batch)?;
    let mut statements = vec![gate(batch, epoch, limits)?];
    statements.extend(insert_events(batch)?);
    statements.extend(change_outbox(batch)?);
    statements.extend(change_rows(batch)?);
    Ok(statements)
}

/// Checks that the events follow the base revision without gaps.
fn check_order(batch: &StoreBatch) -> Result<(), StoreFault> {
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
    Ok(())
}

fn number(value: u64) -> Result<i64, StoreFault> {
    i64::try_from(value).map_err(|_| errors::too_large(value).into())
}

/// An update that matches no row is no error for the server, so the rows that it returns are
/// counted and a division by that count fails.
fn gate(batch: &StoreBatch, epoch: i64, limits: LeaseLimits) -> Result<Statement, StoreFault> {
    let sql = "WITH held AS (UPDATE lease SET revision = $3, meta = $4, expires = \
        clock_timestamp() + $5 * interval '1 millisecond' WHERE project = $1 AND epoch = $2 AND \
        revision = $6 AND expires > clock_timestamp() RETURNING 1) SELECT 1 / count(*) FROM held";
    Ok(Statement::new(
        sql,
        vec![
            WHOLE_FLEET.into(),
            epoch.into(),
            number(batch.meta.revision)?.into(),
            Param::Text(serde_json::to_string(&batch.meta)?),
            limits.ttl_ms().into(),
            number(batch.base_revision)?.into(),
        ],
    ))
}

fn insert_events(batch: &StoreBatch) -> Result<Option<Statement>, StoreFault> {
    if batch.events.is_empty() {
        return Ok(None);
    }
    let (mut revisions, mut fleet_times, mut dates) = (Vec::new(), Vec::new(), Vec::new());
    let (mut authors, mut bodies) = (Vec::new(), Vec::new());
    event_rows::encode_events(&mut Vec::new(), &batch.events, |row| {
        revisions.push(number(row.revision)?);
        fleet_times.push(number(row.now.fleet_ms)?);
        dates.push(number(row.now.unix_ms)?);
        authors.push(row.author.to_owned());
        bodies.push(String::from_utf8_lossy(row.body).into_owned());
        Ok::<(), StoreFault>(())
    })?;
    let sql = "INSERT INTO events (project, revision, at, wall, by, body) SELECT $1, * FROM \
        unnest($2, $3, $4, $5, $6)";
    Ok(Some(Statement::new(
        sql,
        vec![
            WHOLE_FLEET.into(),
            Param::Numbers(revisions),
            Param::Numbers(fleet_times),
            Param::Numbers(dates),
            Param::Texts(authors),
            Param::Texts(bodies),
        ],
    )))
}

fn change_outbox(batch: &StoreBatch) -> Result<Vec<Statement>, StoreFault> {
    let mut statements = Vec::new();
    if !batch.effects.is_empty() {
        let (mut revisions, mut places, mut bodies) = (Vec::new(), Vec::new(), Vec::new());
        for (key, effect) in &batch.effects {
            revisions.push(number(key.revision)?);
            places.push(i64::from(key.nth));
            bodies.push(serde_json::to_string(effect)?);
        }
        let sql = "INSERT INTO outbox (project, revision, nth, body) SELECT $1, * FROM unnest($2, \
            $3, $4)";
        statements.push(Statement::new(
            sql,
            vec![
                WHOLE_FLEET.into(),
                Param::Numbers(revisions),
                Param::Numbers(places),
                Param::Texts(bodies),
            ],
        ));
    }
    if !batch.completed_effects.is_empty() {
        let (mut revisions, mut places) = (Vec::new(), Vec::new());
        for key in &batch.completed_effects {
            revisions.push(number(key.revision)?);
            places.push(i64::from(key.nth));
        }
        let sql = "DELETE FROM outbox o USING unnest($2, $3) done (revision, nth) WHERE o.project \
            = $1 AND o.revision = done.revision AND o.nth = done.nth";
        statements.push(Statement::new(
            sql,
            vec![
                WHOLE_FLEET.into(),
                Param::Numbers(revisions),
                Param::Numbers(places),
            ],
        ));
    }
    Ok(statements)
}

fn change_rows(batch: &StoreBatch) -> Result<Vec<Statement>, StoreFault> {
    let (mut put, mut removed, mut messages) = (Vec::new(), Vec::new(), Vec::new());
    // The ids of messages whose entries in the index are replaced or removed.
    let mut unindexed = Vec::new();
    for (key, row) in &batch.rows {
        if let RowKey::Message(id) = key {
            unindexed.push(number(id.0)?);
        }
        match row {
            Some(row) => {
                put.extend(row_codec::encode_row(key, row)?);
                if let Row::Message(message) = row {
                    messages.push(message.as_ref());
                }
            }
            None => removed.extend(row_codec::row_id(key)?),
        }
    }
    let mut statements = Vec::new();
    statements.extend(remove_rows(removed));
    statements.extend(put_rows(put));
    if !unindexed.is_empty() {
        let sql = "DELETE FROM message_index WHERE project = $1 AND message = ANY($2)";
        statements.push(Statement::new(
            sql,
            vec![WHOLE_FLEET.into(), Param::Numbers(unindexed)],
        ));
    }
    statements.extend(index_messages(&messages)?);
    Ok(statements)
}

fn remove_rows(rows: Vec<RowId>) -> Option<Statement> {
    if rows.is_empty() {
        return None;
    }
    let (mut kinds, mut numbers, mut names) = (Vec::new(), Vec::new(), Vec::new());
    for id in rows {
        kinds.push(id.kind.to_owned());
        numbers.push(id.number);
        names.push(id.name);
    }
    let sql = "DELETE FROM rows r USING unnest($2, $3, $4) gone (kind, number, name) WHERE \
        r.project = $1 AND r.kind = gone.kind AND r.number = gone.number AND r.name = gone.name";
    Some(Statement::new(
        sql,
        vec![
            WHOLE_FLEET.into(),
            Param::Texts(kinds),
            Param::Numbers(numbers),
            Param::Texts(names),
        ],
    ))
}

/// Writes rows in one statement. The keys are distinct, because a batch has each row once.
pub(super) fn put_rows(rows: Vec<RowColumns>) -> Option<Statement> {
    if rows.is_empty() {
        return None;
    }
    let (mut kinds, mut numbers, mut names) = (Vec::new(), Vec::new(), Vec::new());
    let (mut parents, mut missions, mut statuses) = (Vec::new(), Vec::new(), Vec::new());
    let (mut lives, mut bodies) = (Vec::new(), Vec::new());
    for row in rows {
        kinds.push(row.id.kind.to_owned());
        numbers.push(row.id.number);
        names.push(row.id.name);
        parents.push(row.parent);
        missions.push(row.mission);
        statuses.push(row.status.map(str::to_owned));
        lives.push(row.live);
        bodies.push(row.body);
    }
    let sql = "INSERT INTO rows (project, kind, number, name, parent, mission, status, live, body) \
        SELECT $1, * FROM unnest($2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (project, kind, \
        number, name) DO UPDATE SET parent = EXCLUDED.parent, mission = EXCLUDED.mission, status = \
        EXCLUDED.status, live = EXCLUDED.live, body = EXCLUDED.body";
    Some(Statement::new(
        sql,
        vec![
            WHOLE_FLEET.into(),
            Param::Texts(kinds),
            Param::Numbers(numbers),
            Param::Texts(names),
            Param::OptionalTexts(parents),
            Param::OptionalNumbers(missions),
            Param::OptionalTexts(statuses),
            Param::Bools(lives),
            Param::Texts(bodies),
        ],
    ))
}

/// Adds messages to the index. Each message also belongs to the thread that it may begin, so that a
/// thread without replies is found too.
fn index_messages(messages: &[&Message]) -> Result<Option<Statement>, StoreFault> {
    let mut entries: BTreeSet<(&str, String, i64)> = BTreeSet::new();
    for message in messages {
        let id = number(message.id.0)?;
        let mut add = |kind, value: String| {
            entries.insert((kind, value, id));
        };
        add(entry::SENDER, message.sender.to_string());
        add(entry::THREAD, message.root().0.to_string());
        if let Some(parent) = message.reply_to {
            add(entry::REPLY_TO, parent.0.to_string());
        }
        for label in &message.labels {
            add(entry::LABEL, label.to_string());
        }
        for agent in &message.mentions {
            add(entry::MENTION, agent.to_string());
        }
        for word in search::words(&message.text) {
            add(entry::WORD, word);
        }
    }
    if entries.is_empty() {
        return Ok(None);
    }
    let (mut kinds, mut values, mut ids) = (Vec::new(), Vec::new(), Vec::new());
    for (kind, value, id) in entries {
        kinds.push(kind.to_owned());
        values.push(value);
        ids.push(id);
    }
    let sql = "INSERT INTO message_index (project, kind, value, message) SELECT $1, * FROM \
        unnest($2, $3, $4) ON CONFLICT DO NOTHING";
    Ok(Some(Statement::new(
        sql,
        vec![
            WHOLE_FLEET.into(),
            Param::Texts(kinds),
            Param::Texts(values),
            Param::Numbers(ids),
        ],
    )))
}
