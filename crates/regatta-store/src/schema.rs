//! Defines the tables of the store, and the migrations from older schemas to the newest.
//!
//! Migrations only go forward. Each migration runs in one transaction that also sets its number
//! (`PRAGMA user_version`), so a store always has exactly one schema. A migration that was ever
//! released is never changed.

use regatta_core::board::BoardMeta;
use rusqlite::{Connection, TransactionBehavior};

use crate::errors::StoreFault;
use crate::{message_index, purpose_migration, repair};

/// The letters "Rgta", which mark a SQLite file as a store of Regatta.
pub(crate) const APPLICATION_ID: i64 = 0x5267_7461;

/// The SQL of the migrations in their order. The migration at index `n` leads from schema `n` to
/// schema `n + 1`.
///
/// There is one table for each kind of entity, such as tasks. Each table has the whole row as JSON
/// in the column `body`, and otherwise only the columns that are needed to find the row. `live`
/// says whether the row is needed when the board (the state of all unfinished work) is loaded.
pub(crate) const MIGRATIONS: &[&str] = &["
CREATE TABLE meta (id INTEGER PRIMARY KEY CHECK (id = 1), revision INTEGER NOT NULL, body TEXT NOT NULL) STRICT;
CREATE TABLE projects (name TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE agents (name TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT, WITHOUT ROWID;

CREATE TABLE missions (id INTEGER PRIMARY KEY, live INTEGER NOT NULL, body TEXT NOT NULL) STRICT;
CREATE INDEX missions_live ON missions (live) WHERE live = 1;

CREATE TABLE tasks (id INTEGER PRIMARY KEY, project TEXT NOT NULL, mission INTEGER, status TEXT NOT NULL, live INTEGER NOT NULL, body TEXT NOT NULL) STRICT;
CREATE INDEX tasks_live ON tasks (live) WHERE live = 1;
CREATE INDEX tasks_status ON tasks (status);
CREATE INDEX tasks_project ON tasks (project, status);
CREATE INDEX tasks_mission ON tasks (mission) WHERE mission IS NOT NULL;

CREATE TABLE attempts (id INTEGER PRIMARY KEY, task INTEGER NOT NULL, live INTEGER NOT NULL, body TEXT NOT NULL) STRICT;
CREATE INDEX attempts_live ON attempts (live) WHERE live = 1;
CREATE INDEX attempts_task ON attempts (task);

CREATE TABLE claims (id INTEGER PRIMARY KEY, body TEXT NOT NULL) STRICT;
CREATE TABLE waits (id INTEGER PRIMARY KEY, body TEXT NOT NULL) STRICT;

CREATE TABLE landings (id INTEGER PRIMARY KEY, project TEXT NOT NULL, live INTEGER NOT NULL, body TEXT NOT NULL) STRICT;
CREATE INDEX landings_live ON landings (live) WHERE live = 1;
CREATE INDEX landings_project ON landings (project);

CREATE TABLE cursors (agent TEXT NOT NULL, channel TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (agent, channel)) STRICT, WITHOUT ROWID;
CREATE TABLE answers (request TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT, WITHOUT ROWID;

CREATE TABLE messages (id INTEGER PRIMARY KEY, channel TEXT NOT NULL, sender TEXT NOT NULL, body TEXT NOT NULL) STRICT;
CREATE INDEX messages_channel ON messages (channel);
CREATE INDEX messages_sender ON messages (sender);
CREATE TABLE message_labels (label TEXT NOT NULL, message INTEGER NOT NULL REFERENCES messages (id), PRIMARY KEY (label, message)) STRICT, WITHOUT ROWID;
CREATE TABLE message_mentions (agent TEXT NOT NULL, message INTEGER NOT NULL REFERENCES messages (id), PRIMARY KEY (agent, message)) STRICT, WITHOUT ROWID;

CREATE TABLE events (revision INTEGER PRIMARY KEY, at INTEGER NOT NULL, wall INTEGER NOT NULL, by TEXT NOT NULL, body TEXT NOT NULL) STRICT;
CREATE TABLE outbox (revision INTEGER NOT NULL, nth INTEGER NOT NULL, body TEXT NOT NULL, PRIMARY KEY (revision, nth)) STRICT, WITHOUT ROWID;

-- The gaps in the numbers of events. A restored store continues far above every number that it may have assigned.
CREATE TABLE gaps (last INTEGER PRIMARY KEY, next INTEGER NOT NULL) STRICT;
", "
-- No table of an older schema changes. But from this schema on, a row of `events` may contain several events (see
-- `event_log.rs`). An older program, which does not know this, must not open the store (D6).
CREATE TABLE approvals (id INTEGER PRIMARY KEY, attempt INTEGER NOT NULL, live INTEGER NOT NULL, body TEXT NOT NULL) STRICT;
CREATE INDEX approvals_live ON approvals (live) WHERE live = 1;
CREATE INDEX approvals_attempt ON approvals (attempt);
CREATE TABLE rules (id INTEGER PRIMARY KEY, body TEXT NOT NULL) STRICT;
CREATE TABLE budgets (scope TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE days (day INTEGER NOT NULL, agent TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (day, agent)) STRICT, WITHOUT ROWID;
CREATE TABLE parked (name TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT, WITHOUT ROWID;
", "
CREATE TABLE runners (name TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT, WITHOUT ROWID;
", BUS_MIGRATION, TEAMS_MIGRATION, BRIDGES_MIGRATION, ENDED_TASKS_MIGRATION, DEFERRED_ROWS_MIGRATION, ESCAPED_CLAIMS_MIGRATION, PURPOSE_MIGRATION];

/// Adds threads, full-text search and hooks (rules that react to events). Code in Rust then adds
/// the existing messages to the search index. SQL cannot do that, because `search.rs` in
/// `regatta_core` defines what a word is.
///
/// The search index does not contain texts, only which messages have which word. The words come
/// from `regatta_core`, in letters that SQLite's `ascii` tokeniser does not change.
const BUS_MIGRATION: &str = "
CREATE TABLE message_threads (root INTEGER NOT NULL, message INTEGER NOT NULL REFERENCES messages (id), PRIMARY KEY (root, message)) STRICT, WITHOUT ROWID;
CREATE TABLE message_replies (parent INTEGER NOT NULL, message INTEGER NOT NULL REFERENCES messages (id), PRIMARY KEY (parent, message)) STRICT, WITHOUT ROWID;
CREATE VIRTUAL TABLE message_words USING fts5(words, content='', columnsize=0, detail=none, tokenize='ascii');

CREATE TABLE hooks (id INTEGER PRIMARY KEY, body TEXT NOT NULL) STRICT;
CREATE TABLE firings (id INTEGER PRIMARY KEY, hook INTEGER NOT NULL, live INTEGER NOT NULL, body TEXT NOT NULL) STRICT;
CREATE INDEX firings_live ON firings (live) WHERE live = 1;
CREATE INDEX firings_hook ON firings (hook);
";

/// Adds the teams that people requested, and the outcome of each launch of a team. `live` marks the
/// last launch of each team.
const TEAMS_MIGRATION: &str = "
CREATE TABLE teams (name TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE launches (id INTEGER PRIMARY KEY, team TEXT NOT NULL, live INTEGER NOT NULL, body TEXT NOT NULL) STRICT;
CREATE INDEX launches_live ON launches (live) WHERE live = 1;
CREATE INDEX launches_team ON launches (team);
";

/// Adds conversations in outside services, and the deliveries (events from these services) that
/// were accepted. `live` marks the conversations that can continue.
const BRIDGES_MIGRATION: &str = "
CREATE TABLE conversations (id INTEGER PRIMARY KEY, project TEXT NOT NULL, live INTEGER NOT NULL, body TEXT NOT NULL) STRICT;
CREATE INDEX conversations_live ON conversations (live) WHERE live = 1;
CREATE INDEX conversations_project ON conversations (project);
CREATE TABLE deliveries (key TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT, WITHOUT ROWID;
";

/// Makes changes of a task's status cheaper, because they are frequent. Open tasks are found by the
/// column `live`, so that only the end of a task changes an index.
const ENDED_TASKS_MIGRATION: &str = "
DROP INDEX tasks_status;
DROP INDEX tasks_project;
CREATE INDEX tasks_ended ON tasks (project) WHERE live = 0;
";

/// From this schema on, rows may be older than the events (`deferred_rows.rs`): they are written up
/// to the revision (event number) in `meta`. An older program, which does not know this, must not
/// open the store (D6), so the schema's number changes although no table changes.
const DEFERRED_ROWS_MIGRATION: &str = "-- no table changes";

/// From this schema on, the URIs of claims (leases on files) are escaped. An older program would
/// take `%25` literally and mistake one file for another, so an older program must not open the
/// store (D6). `repair.rs` repairs the rows that older programs wrote. The store also gets a random
/// name, which only its copies share.
const ESCAPED_CLAIMS_MIGRATION: &str = "
CREATE TABLE identity (id INTEGER PRIMARY KEY CHECK (id = 1), name TEXT NOT NULL) STRICT;
INSERT INTO identity (id, name) VALUES (1, lower(hex(randomblob(16))));
";

/// From this schema on, the field `purpose` says what kind of work a task is. An older program
/// would take every task for ordinary work, so an older program must not open the store (D6).
/// `purpose_migration.rs` changes the rows and events that older programs wrote.
const PURPOSE_MIGRATION: &str = "-- the tables stay the same, only tasks inside of them change";

/// Returns the number of the newest schema, which this program writes.
pub(crate) fn newest_version() -> i64 {
    MIGRATIONS.len() as i64
}

/// Returns the number of a store's schema.
pub(crate) fn schema_version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// Runs the migrations that a store still needs to have the newest schema.
pub(crate) fn migrate(connection: &mut Connection, migrations: &[&str]) -> Result<(), StoreFault> {
    for (version, sql) in (1_i64..).zip(migrations) {
        if schema_version(connection)? < version {
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            transaction.execute_batch(sql)?;
            if *sql == BUS_MIGRATION {
                message_index::index_all_messages(&transaction)?;
            }
            if *sql == ESCAPED_CLAIMS_MIGRATION {
                repair::escape_claims(&transaction)?;
            }
            if *sql == PURPOSE_MIGRATION {
                purpose_migration::set_purposes(&transaction)?;
            }
            transaction.pragma_update(None, "user_version", version)?;
            transaction.commit()?;
        }
    }
    Ok(())
}

/// Creates the tables of a new store, which contains no work yet, in an empty database.
pub(crate) fn create_schema(connection: &mut Connection) -> Result<(), StoreFault> {
    connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    migrate(connection, MIGRATIONS)?;
    connection.execute(
        "INSERT INTO meta (id, revision, body) VALUES (1, 0, ?1)",
        [serde_json::to_string(&BoardMeta::default())?],
    )?;
    Ok(())
}

/// Returns the SQL declarations of all tables and indexes in a database, to compare them with the
/// expected declarations.
pub(crate) fn read_declarations(
    connection: &Connection,
) -> rusqlite::Result<Vec<(String, Option<String>)>> {
    let mut statement = connection.prepare("SELECT name, sql FROM sqlite_schema ORDER BY name")?;
    statement
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect()
}

/// Returns the SQL declarations of all tables and indexes that a new store has.
pub(crate) fn expected_declarations() -> Result<Vec<(String, Option<String>)>, StoreFault> {
    let mut model = Connection::open_in_memory()?;
    migrate(&mut model, MIGRATIONS)?;
    Ok(read_declarations(&model)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn migration_is_applied_once_and_whole_or_not_at_all() {
        let mut store = Connection::open_in_memory().unwrap();
        migrate(&mut store, &["CREATE TABLE a (x)"]).unwrap();
        migrate(&mut store, &["CREATE TABLE a (x)"]).unwrap();
        assert_eq!(schema_version(&store).unwrap(), 1);

        let broken = [
            "CREATE TABLE a (x)",
            "CREATE TABLE b (x); INSERT INTO nowhere VALUES (1)",
        ];
        assert!(migrate(&mut store, &broken).is_err());
        assert_eq!(schema_version(&store).unwrap(), 1);
        assert_eq!(
            read_declarations(&store).unwrap().len(),
            1,
            "a part of the failed migration was kept"
        );

        migrate(
            &mut store,
            &[
                "CREATE TABLE a (x)",
                "CREATE TABLE b (x)",
                "CREATE TABLE c (x)",
            ],
        )
        .unwrap();
        assert_eq!(schema_version(&store).unwrap(), 3);
        assert_eq!(read_declarations(&store).unwrap().len(), 3);
    }
}
