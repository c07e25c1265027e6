//! Implements the engine's interface to storage with one connection that writes.

use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use regatta_engine::ports::store::{LoadedState, Store, StoreBatch, StoreError, StoreHistory};
use tokio::sync::Mutex;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::connection::{Database, Statement, lock, run_transaction};
use super::history::PostgresHistory;
use super::lease::LeaseLimits;
use super::settings::PostgresSettings;
use super::{commit, export, faults, lease, load, schema};

/// Time limit for giving the lease back when the store is closed.
const RESIGN_TIMEOUT: Duration = Duration::from_secs(1);

/// A store in a PostgreSQL database. It may write only while it holds the lease, which it acquires
/// with its first commit.
#[derive(Debug)]
pub struct PostgresStore {
    writer: Arc<Writer>,
    history: Arc<PostgresHistory>,
}

/// The connection that writes, and the lease that it holds.
#[derive(Debug)]
struct Writer {
    database: Arc<Database>,
    limits: LeaseLimits,
    /// The name of this store in the messages of other daemons.
    holder: String,
    /// The connection, or `None` after it was lost. The lock is held for a whole transaction.
    client: Mutex<Option<Client>>,
    held: std::sync::Mutex<Option<HeldLease>>,
}

#[derive(Clone, Copy, Debug)]
struct HeldLease {
    epoch: i64,
    /// When the last extension was sent, on this machine's clock.
    extended: Instant,
}

/// The result of one attempt to commit.
enum CommitAttempt {
    Stored,
    /// The lease is not held any more, or the store has another revision.
    NotHeld(lease::LeaseRow),
}

impl PostgresStore {
    /// Opens the store, and creates its tables in an empty database. `holder` names this daemon in
    /// the messages of others.
    pub fn open(settings: PostgresSettings, holder: &str) -> Result<PostgresStore, StoreError> {
        PostgresStore::open_with_limits(settings, holder, LeaseLimits::DEFAULT)
    }

    /// Like [`PostgresStore::open`], but with other limits for the lease.
    pub fn open_with_limits(
        settings: PostgresSettings,
        holder: &str,
        limits: LeaseLimits,
    ) -> Result<PostgresStore, StoreError> {
        let database = Database::new(settings)?;
        let opening = database.clone();
        let client = database.wait(async move {
            let mut client = opening.connect().await?;
            schema::migrate(&opening, &mut client).await?;
            Ok(client)
        })?;
        let writer = Arc::new(Writer {
            database: database.clone(),
            limits,
            holder: holder.to_owned(),
            client: Mutex::new(Some(client)),
            held: std::sync::Mutex::new(None),
        });
        database.spawn(extend_while_open(Arc::downgrade(&writer)));
        Ok(PostgresStore {
            writer,
            history: Arc::new(PostgresHistory { database }),
        })
    }
}

/// Extends the lease of an idle store until the store is closed.
async fn extend_while_open(writer: Weak<Writer>) {
    let Some(interval) = writer
        .upgrade()
        .map(|writer| writer.limits.renewal_interval)
    else {
        return;
    };
    loop {
        tokio::time::sleep(interval).await;
        let Some(writer) = writer.upgrade() else {
            return;
        };
        if let Err(error) = writer.extend().await {
            tracing::warn!(
                "could not extend the lease of the store, which another daemon may take over when \
                it expires: {error}"
            );
        }
    }
}

/// Returns the connection of a store, after connecting again if it was lost.
async fn connected<'a>(
    database: &Database,
    slot: &'a mut Option<Client>,
) -> Result<&'a Client, StoreError> {
    if slot.as_ref().is_none_or(Client::is_closed) {
        *slot = Some(database.connect().await?);
    }
    slot.as_ref()
        .ok_or_else(|| faults::interrupted(&database.settings))
}

impl Writer {
    /// Extends the lease if it is held and was not extended for a while.
    async fn extend(&self) -> Result<(), StoreError> {
        let due = |held: &HeldLease| held.extended.elapsed() >= self.limits.renewal_interval;
        let Some(held) = (*lock(&self.held)).filter(due) else {
            return Ok(());
        };
        let mut slot = self.client.lock().await;
        let client = connected(&self.database, &mut slot).await?;
        let sent = Instant::now();
        let extending = lease::extend(client, held.epoch, self.limits);
        match tokio::time::timeout(self.limits.ttl, extending).await {
            Ok(Ok(true)) => {
                if let Some(current) = lock(&self.held)
                    .as_mut()
                    .filter(|current| current.epoch == held.epoch)
                {
                    current.extended = sent;
                }
                Ok(())
            }
            // The next commit finds out who holds the lease now.
            Ok(Ok(false)) => Ok(()),
            Ok(Err(error)) => Err(faults::database(&self.database.settings, &error)),
            Err(_) => {
                *slot = None;
                Err(faults::no_answer(&self.database.settings, self.limits.ttl))
            }
        }
    }

    /// Acquires the lease of a store that ends at `revision`, and returns the epoch.
    fn acquire(self: &Arc<Self>, revision: u64) -> Result<i64, StoreError> {
        let writer = self.clone();
        self.database.wait(async move {
            let mut slot = writer.client.lock().await;
            let client = connected(&writer.database, &mut slot).await?;
            let extended = Instant::now();
            let epoch = lease::acquire(
                &writer.database,
                client,
                &writer.holder,
                writer.limits,
                revision,
            )
            .await?;
            *lock(&writer.held) = Some(HeldLease { epoch, extended });
            Ok(epoch)
        })
    }

    /// Runs the transaction of a batch once.
    fn try_commit(
        self: &Arc<Self>,
        statements: Vec<Statement>,
    ) -> Result<CommitAttempt, StoreError> {
        let writer = self.clone();
        self.database.wait(async move {
            let database = &writer.database;
            let mut slot = writer.client.lock().await;
            let client = connected(database, &mut slot).await?;
            let begin = commit::begin(writer.limits);
            let sent = Instant::now();
            let running = run_transaction(client, &begin, &statements);
            match tokio::time::timeout(writer.limits.ttl, running).await {
                Ok(Ok(_)) => {
                    if let Some(held) = lock(&writer.held).as_mut() {
                        held.extended = sent;
                    }
                    Ok(CommitAttempt::Stored)
                }
                Ok(Err(error)) if error.code() == Some(&SqlState::DIVISION_BY_ZERO) => {
                    let found = lease::read(database, client).await?;
                    Ok(CommitAttempt::NotHeld(found))
                }
                Ok(Err(error)) => Err(faults::database(&database.settings, &error)),
                Err(_) => {
                    // Without an answer it is unknown whether the batch was stored. The caller
                    // reads the revision on a new connection.
                    *slot = None;
                    Err(faults::no_answer(&database.settings, writer.limits.ttl))
                }
            }
        })
    }

    fn commit(self: &Arc<Self>, batch: &StoreBatch) -> Result<(), StoreError> {
        let to_error = |fault| faults::from_fault(&self.database.settings, fault);
        let held = *lock(&self.held);
        let epoch = match held {
            Some(held) => held.epoch,
            None => self.acquire(batch.base_revision)?,
        };
        let statements = commit::statements(batch, epoch, self.limits).map_err(to_error)?;
        let found = match self.try_commit(statements)? {
            CommitAttempt::Stored => return Ok(()),
            CommitAttempt::NotHeld(found) => found,
        };
        *lock(&self.held) = None;
        // The lease expired, but nobody else acquired it and nothing was stored since. So this
        // daemon may continue, with a new epoch.
        let has_expired = found.epoch == epoch && found.remaining_ms < 0;
        if !has_expired || u64::try_from(found.revision) != Ok(batch.base_revision) {
            return Err(lease::refusal(&self.database, &found, batch.base_revision));
        }
        let epoch = self.acquire(batch.base_revision)?;
        let statements = commit::statements(batch, epoch, self.limits).map_err(to_error)?;
        match self.try_commit(statements)? {
            CommitAttempt::Stored => Ok(()),
            CommitAttempt::NotHeld(found) => {
                Err(lease::refusal(&self.database, &found, batch.base_revision))
            }
        }
    }
}

impl Store for PostgresStore {
    fn load(&mut self) -> Result<LoadedState, StoreError> {
        let writer = self.writer.clone();
        self.writer.database.wait(async move {
            let mut slot = writer.client.lock().await;
            let client = connected(&writer.database, &mut slot).await?;
            load::load(&writer.database, client).await
        })
    }

    fn commit(&mut self, batch: &StoreBatch) -> Result<(), StoreError> {
        self.writer.commit(batch)
    }

    fn revision(&mut self) -> Result<u64, StoreError> {
        let writer = self.writer.clone();
        self.writer.database.wait(async move {
            let mut slot = writer.client.lock().await;
            let client = connected(&writer.database, &mut slot).await?;
            let found = lease::read(&writer.database, client).await?;
            Ok(found.revision.unsigned_abs())
        })
    }

    fn check(&mut self) -> Result<(), StoreError> {
        let writer = self.writer.clone();
        self.writer.database.wait(async move {
            let client = writer.database.reader().await?;
            load::check(&writer.database, &client).await?;
            writer.database.return_reader(client);
            Ok(())
        })
    }

    fn backup(&mut self, to: &Path) -> Result<(), StoreError> {
        export::copy_to_file(&self.writer.database, to)
    }

    fn history(&self) -> Arc<dyn StoreHistory> {
        self.history.clone()
    }
}

impl Drop for PostgresStore {
    /// Gives the lease back, so that another daemon need not wait until it expires.
    fn drop(&mut self) {
        let Some(held) = lock(&self.writer.held).take() else {
            return;
        };
        let writer = self.writer.clone();
        let resigned = self.writer.database.wait(async move {
            let slot = writer.client.lock().await;
            let Some(client) = slot.as_ref() else {
                return Ok(());
            };
            let resigning = lease::resign(client, held.epoch);
            match tokio::time::timeout(RESIGN_TIMEOUT, resigning).await {
                Ok(resigned) => {
                    resigned.map_err(|error| faults::database(&writer.database.settings, &error))
                }
                Err(_) => Err(faults::no_answer(&writer.database.settings, RESIGN_TIMEOUT)),
            }
        });
        if let Err(error) = resigned {
            tracing::warn!(
                "could not give back the lease of the store, so another daemon can take over only \
                when the lease expires: {error}"
            );
        }
    }
}
