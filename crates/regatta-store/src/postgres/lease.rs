//! The row that says which daemon may write.
//!
//! A daemon acquires the lease for a short time with a new epoch. Every commit checks in its own
//! transaction that the epoch and the revision are still the daemon's and that the lease has not
//! expired, and extends it. So a daemon that was paused and comes back can commit nothing (D12).
//! Only the clock of the database decides what has expired, and `clock_timestamp()` is used because
//! `now()` stands still inside a transaction.

use std::time::Duration;

use regatta_engine::ports::store::StoreError;
use tokio_postgres::Client;

use super::connection::{Database, Param, Statement, run, run_transaction};
use super::{WHOLE_FLEET, faults};

/// How long a lease lasts, and how often an idle daemon extends it.
#[derive(Clone, Copy, Debug)]
pub struct LeaseLimits {
    /// Time after its last extension at which another daemon may take over.
    pub ttl: Duration,
    /// Interval of extensions while nothing is committed.
    pub renewal_interval: Duration,
}

impl LeaseLimits {
    pub const DEFAULT: LeaseLimits = LeaseLimits {
        ttl: Duration::from_secs(4),
        renewal_interval: Duration::from_secs(1),
    };

    pub(super) fn ttl_ms(self) -> i64 {
        i64::try_from(self.ttl.as_millis()).unwrap_or(i64::MAX)
    }
}

/// The row of the lease, as another daemon sees it.
pub(super) struct LeaseRow {
    pub(super) revision: i64,
    pub(super) epoch: i64,
    pub(super) holder: String,
    /// Milliseconds until the lease expires, or a negative number if it has expired.
    pub(super) remaining_ms: i64,
    pub(super) meta: String,
}

/// Reads the row of the lease.
pub(super) async fn read(database: &Database, client: &Client) -> Result<LeaseRow, StoreError> {
    let sql = "SELECT revision, epoch, holder, meta, CASE WHEN expires = '-infinity' THEN -1 ELSE \
        (extract(epoch FROM expires - clock_timestamp()) * 1000)::bigint END FROM lease WHERE \
        project = $1";
    let rows = run(client, &Statement::new(sql, vec![WHOLE_FLEET.into()]))
        .await
        .map_err(|error| faults::database(&database.settings, &error))?;
    let row = rows
        .first()
        .ok_or_else(|| faults::corrupt(&database.settings, "the row of its lease is missing"))?;
    Ok(LeaseRow {
        revision: row.get(0),
        epoch: row.get(1),
        holder: row.get(2),
        meta: row.get(3),
        remaining_ms: row.get(4),
    })
}

/// Acquires the lease if it has expired and the store still ends at `revision`. Returns the new
/// epoch. Of several daemons that try at once, one succeeds.
pub(super) async fn acquire(
    database: &Database,
    client: &Client,
    holder: &str,
    limits: LeaseLimits,
    revision: u64,
) -> Result<i64, StoreError> {
    let sql = "UPDATE lease SET epoch = epoch + 1, holder = $2, expires = clock_timestamp() + $3 * \
        interval '1 millisecond' WHERE project = $1 AND expires < clock_timestamp() AND revision = \
        $4 RETURNING epoch";
    let statement = Statement::new(
        sql,
        vec![
            WHOLE_FLEET.into(),
            holder.into(),
            limits.ttl_ms().into(),
            i64::try_from(revision).unwrap_or(i64::MAX).into(),
        ],
    );
    // Another daemon may hold the row inside a transaction. Then this one reports it instead of
    // waiting for long.
    let begin = "BEGIN; SET LOCAL lock_timeout = '1s'";
    let answers = run_transaction(client, begin, &[statement])
        .await
        .map_err(|error| faults::database(&database.settings, &error))?;
    if let Some(row) = answers.first().and_then(|rows| rows.first()) {
        return Ok(row.get(0));
    }
    let found = read(database, client).await?;
    Err(refusal(database, &found, revision))
}

/// Returns why a daemon whose store ends at `revision` may not write.
pub(super) fn refusal(database: &Database, found: &LeaseRow, revision: u64) -> StoreError {
    if u64::try_from(found.revision) == Ok(revision) {
        faults::held_by_another(&database.settings, &found.holder, found.remaining_ms.max(0))
    } else {
        faults::changed_by_another(&database.settings, revision, found.revision)
    }
}

/// Extends the lease while nothing is committed. Returns whether the epoch still holds it.
pub(super) async fn extend(
    client: &Client,
    epoch: i64,
    limits: LeaseLimits,
) -> Result<bool, tokio_postgres::Error> {
    let sql = "UPDATE lease SET expires = clock_timestamp() + $3 * interval '1 millisecond' WHERE \
        project = $1 AND epoch = $2 AND expires > clock_timestamp() RETURNING epoch";
    let params = vec![WHOLE_FLEET.into(), epoch.into(), limits.ttl_ms().into()];
    Ok(!run(client, &Statement::new(sql, params)).await?.is_empty())
}

/// Ends the lease, so that another daemon can take over at once.
pub(super) async fn resign(client: &Client, epoch: i64) -> Result<(), tokio_postgres::Error> {
    let sql = "UPDATE lease SET expires = '-infinity' WHERE project = $1 AND epoch = $2";
    let params: Vec<Param> = vec![WHOLE_FLEET.into(), epoch.into()];
    run(client, &Statement::new(sql, params)).await.map(drop)
}
