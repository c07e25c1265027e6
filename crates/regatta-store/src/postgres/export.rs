//! Copies the store into a SQLite file, which is a complete store of its own (D7).
//!
//! A task of the store's runtime reads one snapshot of the database and sends it piece by piece.
//! The calling thread writes the pieces, because a SQLite connection belongs to one thread.

use std::path::Path;
use std::sync::Arc;

use regatta_core::board::{BoardMeta, Row, RowKey, Rows};
use regatta_engine::ports::store::StoreError;
use rusqlite::Transaction;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio_postgres::Client;

use super::connection::{Database, Statement, run};
use super::load::{
    BEGIN_SNAPSHOT, EVENT_COLUMNS, ROW_COLUMNS, read_gaps, read_meta, stored_row, stream,
};
use super::{WHOLE_FLEET, faults};
use crate::errors::{self, StoreFault};
use crate::row_codec::{self, KINDS};
use crate::{commit, open, store_files, store_mark};

/// The number of pieces that may wait to be written.
const CHANNEL_CAPACITY: usize = 256;
/// The number of rows that are written into the file at a time.
const ROWS_PER_CHUNK: usize = 512;

/// A piece of the store.
enum Piece {
    Meta(BoardMeta),
    Row(Row),
    Event(EventColumns),
    Effect(i64, i64, String),
    Gap(u64, u64),
    /// Everything was sent.
    End,
    Failed(StoreError),
}

/// A row of the table of events.
struct EventColumns {
    revision: i64,
    fleet_ms: i64,
    unix_ms: i64,
    author: String,
    body: String,
}

/// Copies the store as of one revision to a new file. The file exists either completely or not at
/// all.
pub(super) fn copy_to_file(database: &Arc<Database>, to: &Path) -> Result<(), StoreError> {
    let to_error = |cause| errors::io_error("write the backup", to, &cause);
    if to.try_exists().map_err(to_error)? {
        return Err(errors::already_exists(to));
    }
    let (sender, receiver) = channel(CHANNEL_CAPACITY);
    let reading = database.clone();
    database.spawn(async move {
        let last = match send_pieces(&reading, &sender).await {
            Ok(()) => Piece::End,
            Err(error) => Piece::Failed(error),
        };
        // The thread that writes has given up if nobody receives.
        let _unsent = sender.send(last).await;
    });
    let partial = store_files::with_suffix(to, ".partial");
    let written = write_pieces(database, receiver, &partial);
    let result = written.and_then(|()| store_files::rename_durably(&partial, to).map_err(to_error));
    store_files::remove_with_log(&store_mark::mark_file(&partial)).map_err(to_error)?;
    if result.is_err() {
        store_files::remove_with_log(&partial).map_err(to_error)?;
    }
    result
}

/// Writes all pieces into a new SQLite store in one transaction.
fn write_pieces(
    database: &Database,
    mut pieces: Receiver<Piece>,
    file: &Path,
) -> Result<(), StoreError> {
    let to_error = |fault: StoreFault| fault.into_error("write the backup", file);
    let mut sqlite = open::open_for_writing(file)?;
    let transaction = sqlite
        .transaction()
        .map_err(|error| to_error(error.into()))?;
    let mut writer = FileWriter {
        sqlite: &transaction,
        meta: BoardMeta::default(),
        chunk: Rows::new(),
        json: Vec::new(),
    };
    loop {
        match pieces.blocking_recv() {
            Some(Piece::End) => break,
            Some(Piece::Failed(error)) => return Err(error),
            Some(piece) => writer.write(piece).map_err(to_error)?,
            None => return Err(faults::interrupted(&database.settings)),
        }
    }
    writer.flush().map_err(to_error)?;
    transaction
        .commit()
        .map_err(|error| to_error(error.into()))?;
    // Without its write-ahead log the file can be moved and copied alone.
    sqlite
        .pragma_update(None, "journal_mode", "delete")
        .map_err(|error| to_error(error.into()))?;
    sqlite.close().map_err(|(_, error)| to_error(error.into()))
}

struct FileWriter<'a> {
    sqlite: &'a Transaction<'a>,
    meta: BoardMeta,
    chunk: Rows,
    json: Vec<u8>,
}

impl FileWriter<'_> {
    fn write(&mut self, piece: Piece) -> Result<(), StoreFault> {
        match piece {
            Piece::Meta(meta) => self.meta = meta,
            Piece::Row(row) => {
                self.chunk.insert(key_of(&row), Some(row));
                if self.chunk.len() >= ROWS_PER_CHUNK {
                    self.flush()?;
                }
            }
            Piece::Event(event) => {
                let sql = "INSERT INTO events (revision, at, wall, by, body) VALUES (?1, ?2, ?3, \
                    ?4, ?5)";
                let times = (event.fleet_ms, event.unix_ms);
                let values = (event.revision, times.0, times.1, event.author, event.body);
                commit::execute_sql(self.sqlite, sql, values)?;
            }
            Piece::Effect(revision, nth, body) => {
                let sql = "INSERT INTO outbox (revision, nth, body) VALUES (?1, ?2, ?3)";
                commit::execute_sql(self.sqlite, sql, (revision, nth, body))?;
            }
            Piece::Gap(last, next) => {
                let gap = (commit::to_sql_number(last)?, commit::to_sql_number(next)?);
                let sql = "INSERT INTO gaps (last, next) VALUES (?1, ?2)";
                commit::execute_sql(self.sqlite, sql, gap)?;
            }
            Piece::End | Piece::Failed(_) => {}
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), StoreFault> {
        commit::write_rows(self.sqlite, &mut self.json, &self.chunk, &self.meta)?;
        self.chunk.clear();
        Ok(())
    }
}

/// Reads one snapshot of the database and sends it.
async fn send_pieces(database: &Database, sender: &Sender<Piece>) -> Result<(), StoreError> {
    let to_error = |error: tokio_postgres::Error| faults::database(&database.settings, &error);
    let client = database.reader().await?;
    client
        .batch_execute(BEGIN_SNAPSHOT)
        .await
        .map_err(to_error)?;
    let sent = send_snapshot(database, &client, sender).await;
    client.batch_execute("COMMIT").await.map_err(to_error)?;
    sent?;
    database.return_reader(client);
    Ok(())
}

async fn send_snapshot(
    database: &Database,
    client: &Client,
    sender: &Sender<Piece>,
) -> Result<(), StoreError> {
    let settings = &database.settings;
    let to_error = |error: tokio_postgres::Error| faults::database(settings, &error);
    let send = async |piece: Piece| {
        let sent = sender.send(piece).await;
        sent.map_err(|_| faults::interrupted(settings))
    };
    send(Piece::Meta(read_meta(database, client).await?)).await?;
    let sql = format!(
        "SELECT {ROW_COLUMNS} FROM rows WHERE project = $1 AND kind = $2 ORDER BY number, name"
    );
    for kind in KINDS {
        let mut rows = stream(database, client, &sql, &[WHOLE_FLEET, kind]).await?;
        while let Some(row) = rows.next().await? {
            let decoded = row_codec::row_of(&stored_row(kind, &row));
            let row = decoded.map_err(|fault| faults::from_fault(settings, fault))?;
            send(Piece::Row(row)).await?;
        }
    }
    let sql = format!("SELECT {EVENT_COLUMNS} FROM events WHERE project = $1 ORDER BY revision");
    let mut rows = stream(database, client, &sql, &[WHOLE_FLEET]).await?;
    while let Some(row) = rows.next().await? {
        let event = EventColumns {
            revision: row.get(0),
            fleet_ms: row.get(1),
            unix_ms: row.get(2),
            author: row.get(3),
            body: row.get(4),
        };
        send(Piece::Event(event)).await?;
    }
    let outbox = "SELECT revision, nth, body FROM outbox WHERE project = $1";
    let outbox = Statement::new(outbox, vec![WHOLE_FLEET.into()]);
    for row in run(client, &outbox).await.map_err(to_error)? {
        send(Piece::Effect(row.get(0), row.get(1), row.get(2))).await?;
    }
    for (last, next) in read_gaps(database, client).await? {
        send(Piece::Gap(last, next)).await?;
    }
    Ok(())
}

/// Returns the key of a row.
fn key_of(row: &Row) -> RowKey {
    match row {
        Row::Meta(_) => RowKey::Meta,
        Row::Project(project) => RowKey::Project(project.name.clone()),
        Row::Agent(agent) => RowKey::Agent(agent.name.clone()),
        Row::Mission(mission, _) => RowKey::Mission(mission.id),
        Row::Task(task) => RowKey::Task(task.id),
        Row::Attempt(attempt) => RowKey::Attempt(attempt.id),
        Row::Claim(claim) => RowKey::Claim(claim.id),
        Row::Wait(wait) => RowKey::Wait(wait.id),
        Row::Landing(landing) => RowKey::Landing(landing.id),
        Row::Cursor(cursor) => RowKey::Cursor(cursor.agent.clone(), cursor.channel.clone()),
        Row::Answer(answer) => RowKey::Answer(answer.key.clone()),
        Row::Message(message) => RowKey::Message(message.id),
        Row::Approval(approval) => RowKey::Approval(approval.id),
        Row::Rule(rule) => RowKey::Rule(rule.id),
        Row::Budget(budget) => RowKey::Budget(budget.scope.clone()),
        Row::Day(spend) => RowKey::Day(spend.day, spend.agent.clone()),
        Row::Parked(outage) => RowKey::Parked(outage.name.clone()),
        Row::Runner(runner) => RowKey::Runner(runner.name.clone()),
        Row::Hook(hook) => RowKey::Hook(hook.id),
        Row::Firing(firing) => RowKey::Firing(firing.id),
        Row::Team(team) => RowKey::Team(team.name.clone()),
        Row::Launch(launch) => RowKey::Launch(launch.id),
        Row::Conversation(conversation) => RowKey::Conversation(conversation.id),
        Row::Delivery(delivery) => RowKey::Delivery(delivery.key.clone()),
    }
}
