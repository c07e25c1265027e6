//! Messages about errors of the server and of the connection to it.

use std::time::Duration;

use regatta_engine::ports::store::StoreError;
use tokio_postgres::error::SqlState;

use super::settings::{PostgresSettings, describe};
use crate::errors::StoreFault;

const AWAY_HINT: &str = "Regatta tries again by itself; check that the database runs and can be \
    reached: regatta doctor";

fn store_error(code: &'static str, message: String, hint: impl Into<String>) -> StoreError {
    StoreError {
        code,
        message,
        hint: hint.into(),
    }
}

/// Returns the error for a failure of a statement or a connection.
pub(super) fn database(settings: &PostgresSettings, cause: &tokio_postgres::Error) -> StoreError {
    let Some(db_error) = cause.as_db_error() else {
        return store_error(
            "database_away",
            format!(
                "the database {settings} cannot be reached, so nothing was recorded: {}",
                describe(cause)
            ),
            AWAY_HINT,
        );
    };
    let text = db_error.message();
    let state = db_error.code();
    if *state == SqlState::DISK_FULL || *state == SqlState::OUT_OF_MEMORY {
        return store_error(
            "disk_full",
            format!("the server of {settings} has no space left, so nothing was recorded: {text}"),
            "free some space on the machine of the database, then try again",
        );
    }
    if *state == SqlState::INVALID_PASSWORD
        || *state == SqlState::INVALID_AUTHORIZATION_SPECIFICATION
    {
        return store_error(
            "database_refused",
            format!("the database {settings} refused the user: {text}"),
            "check the user's name and password: psql with the same address must work",
        );
    }
    if *state == SqlState::INVALID_CATALOG_NAME {
        return store_error(
            "database_missing",
            format!("the database {settings} does not exist"),
            "create it: createdb NAME, as a user who may do that",
        );
    }
    if *state == SqlState::INSUFFICIENT_PRIVILEGE || *state == SqlState::READ_ONLY_SQL_TRANSACTION {
        return store_error(
            "read_only",
            format!("Regatta may not write to the database {settings}: {text}"),
            "make the user the owner of the database, and name the primary server",
        );
    }
    let is_going_down = ["57P01", "57P02", "57P03", "25P03", "53300"].contains(&state.code());
    if is_going_down {
        return store_error(
            "database_away",
            format!("the database {settings} does not accept work now: {text}"),
            AWAY_HINT,
        );
    }
    store_error(
        "io",
        format!(
            "the database {settings} refused a statement, so nothing was recorded: {text} ({})",
            state.code()
        ),
        "report this with the daemon's log; nothing was changed",
    )
}

/// Returns the error for a server that does not answer in time. Whether a commit was stored is
/// unknown then, until the server answers again.
pub(super) fn no_answer(settings: &PostgresSettings, limit: Duration) -> StoreError {
    store_error(
        "database_away",
        format!(
            "the database {settings} did not answer within {} s",
            limit.as_secs()
        ),
        AWAY_HINT,
    )
}

pub(super) fn no_threads(settings: &PostgresSettings, cause: &std::io::Error) -> StoreError {
    store_error(
        "io",
        format!("could not start the thread for the database {settings}: {cause}"),
        "check the limits on processes of this user: ulimit -u",
    )
}

pub(super) fn interrupted(settings: &PostgresSettings) -> StoreError {
    store_error(
        "io",
        format!("the work on the database {settings} ended without a result"),
        "report this with the daemon's log",
    )
}

/// Returns the error for a commit or start while another daemon may write.
pub(super) fn held_by_another(settings: &PostgresSettings, holder: &str, ms: i64) -> StoreError {
    store_error(
        "second_writer",
        format!(
            "{holder} writes to the database {settings}, and its lease lasts {ms} ms more, so \
            nothing was recorded"
        ),
        "only one daemon may write to a store: stop the other daemon (regatta down), then try \
        again",
    )
}

/// Returns the error for a store that another daemon has changed.
pub(super) fn changed_by_another(
    settings: &PostgresSettings,
    expected: u64,
    stored: i64,
) -> StoreError {
    store_error(
        "second_writer",
        format!(
            "another daemon wrote to the database {settings}: the last event has the number \
            {stored} instead of {expected}, so nothing was recorded"
        ),
        "only one daemon may write to a store: stop the other daemon (regatta down), then start \
        this one again",
    )
}

pub(super) fn newer_schema(settings: &PostgresSettings, stored: i64, known: i64) -> StoreError {
    store_error(
        "newer_version",
        format!(
            "a newer version of Regatta wrote the database {settings}: it has schema {stored}, \
            but this program supports only schemas up to {known}; nothing was changed"
        ),
        "run the newer version of Regatta that wrote the database",
    )
}

/// Turns a fault inside this crate into an error for people.
pub(super) fn from_fault(settings: &PostgresSettings, fault: StoreFault) -> StoreError {
    match fault {
        StoreFault::Reported(error) => error,
        StoreFault::Damaged(what) => corrupt(settings, &what),
        StoreFault::UndecodableRow { table, id, cause } => corrupt(
            settings,
            &format!("row {id} of {table} cannot be read ({cause})"),
        ),
        StoreFault::UnreadableRows(rows) => {
            let names: Vec<String> = rows.iter().take(5).map(ToString::to_string).collect();
            corrupt(
                settings,
                &format!("{} rows cannot be read: {}", rows.len(), names.join("; ")),
            )
        }
        other => store_error(
            "io",
            format!("the database {settings} could not be used: {other}"),
            "report this with the daemon's log",
        ),
    }
}

pub(super) fn corrupt(settings: &PostgresSettings, what: &str) -> StoreError {
    store_error(
        "corrupt",
        format!("the store in the database {settings} is damaged: {what}"),
        "nothing was changed; restore the database from its backup",
    )
}
