//! The tables of the store and their migrations.
//!
//! Migrations only go forward. All of them run in one transaction under an exclusive lock, so two
//! daemons that start at once make one schema. A migration that was ever released is never changed.

use regatta_core::board::BoardMeta;
use regatta_engine::ports::store::StoreError;
use tokio_postgres::Client;

use super::connection::{Database, Param, Statement, run};
use super::{WHOLE_FLEET, faults};

/// A number that no other program uses for its locks: the letters "Rgta".
const MIGRATION_LOCK: i64 = 0x5267_7461;

/// The migrations in their order. The migration at index `n` leads from schema `n` to `n + 1`.
///
/// Texts are compared byte by byte (`COLLATE "C"`), so that the order is the same on every machine
/// and in SQLite. Indexes contain no column that changes while a row is live, because then an
/// update need not touch any index.
const MIGRATIONS: &[&str] = &[r#"
CREATE TABLE lease (
    project TEXT COLLATE "C" PRIMARY KEY,
    store TEXT NOT NULL,
    epoch BIGINT NOT NULL,
    revision BIGINT NOT NULL,
    holder TEXT NOT NULL,
    expires TIMESTAMPTZ NOT NULL,
    meta TEXT NOT NULL
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE TABLE rows (
    project TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    parent TEXT COLLATE "C",
    mission BIGINT,
    status TEXT COLLATE "C",
    live BOOLEAN NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (project, kind, number, name)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX rows_live ON rows (project, kind, number) WHERE live;
CREATE INDEX rows_parent ON rows (project, kind, parent, number) WHERE parent IS NOT NULL;
CREATE INDEX rows_mission ON rows (project, kind, mission, number) WHERE mission IS NOT NULL;

CREATE TABLE message_index (
    project TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    value TEXT COLLATE "C" NOT NULL,
    message BIGINT NOT NULL,
    PRIMARY KEY (project, kind, value, message)
);
CREATE INDEX message_index_message ON message_index (project, message);

CREATE TABLE events (
    project TEXT COLLATE "C" NOT NULL,
    revision BIGINT NOT NULL,
    at BIGINT NOT NULL,
    wall BIGINT NOT NULL,
    by TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (project, revision)
);

CREATE TABLE outbox (
    project TEXT COLLATE "C" NOT NULL,
    revision BIGINT NOT NULL,
    nth BIGINT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (project, revision, nth)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE gaps (
    project TEXT COLLATE "C" NOT NULL,
    last BIGINT NOT NULL,
    next BIGINT NOT NULL,
    PRIMARY KEY (project, last)
);
"#];

/// The number of the newest schema, which this program writes.
fn newest_version() -> i64 {
    MIGRATIONS.len() as i64
}

/// Brings the database to the newest schema. Refuses a newer schema and changes nothing then (D6).
pub(super) async fn migrate(database: &Database, client: &mut Client) -> Result<(), StoreError> {
    let settings = &database.settings;
    let to_error = |error: tokio_postgres::Error| faults::database(settings, &error);
    let version = read_version(client).await.map_err(to_error)?;
    if version == newest_version() {
        return Ok(());
    }
    let transaction = client.transaction().await.map_err(to_error)?;
    let locked = format!("SELECT pg_advisory_xact_lock({MIGRATION_LOCK})");
    transaction.batch_execute(&locked).await.map_err(to_error)?;
    // Another daemon may have migrated the database while this one waited for the lock.
    let version = read_version(transaction.client()).await.map_err(to_error)?;
    if version > newest_version() {
        return Err(faults::newer_schema(settings, version, newest_version()));
    }
    let missing = MIGRATIONS
        .iter()
        .skip(usize::try_from(version).unwrap_or(0));
    for sql in missing {
        transaction.batch_execute(sql).await.map_err(to_error)?;
    }
    if version == 0 {
        let meta = serde_json::to_string(&BoardMeta::default())
            .map_err(|error| faults::from_fault(settings, error.into()))?;
        let sql = "INSERT INTO lease (project, store, epoch, revision, holder, expires, meta) \
            VALUES ($1, md5(random()::text || clock_timestamp()::text), 0, 0, '', '-infinity', $2)";
        let first = Statement::new(sql, vec![WHOLE_FLEET.into(), Param::Text(meta)]);
        run(transaction.client(), &first).await.map_err(to_error)?;
    }
    let record = format!(
        "CREATE TABLE IF NOT EXISTS regatta_schema (version BIGINT NOT NULL); DELETE FROM \
        regatta_schema; INSERT INTO regatta_schema (version) VALUES ({})",
        newest_version()
    );
    transaction.batch_execute(&record).await.map_err(to_error)?;
    transaction.commit().await.map_err(to_error)
}

/// Returns the number of the database's schema, or 0 for a database without our tables.
async fn read_version(client: &Client) -> Result<i64, tokio_postgres::Error> {
    let exists = Statement::new(
        "SELECT to_regclass('regatta_schema') IS NOT NULL",
        Vec::new(),
    );
    let rows = run(client, &exists).await?;
    if !rows.first().is_some_and(|row| row.get::<_, bool>(0)) {
        return Ok(0);
    }
    let version = Statement::new("SELECT max(version) FROM regatta_schema", Vec::new());
    let rows = run(client, &version).await?;
    Ok(rows
        .first()
        .and_then(|row| row.get::<_, Option<i64>>(0))
        .unwrap_or(0))
}
