//! Keeps the fleet (everything that one daemon manages) in a SQLite file or a PostgreSQL database:
//! stores changes, loads the board at the start, and reads the history. The board is the state of
//! all unfinished work.
//!
//! The store keeps whole rows and does not know their meaning. The store's contract is
//! `load(commit(x)) == x`, and the tests in `regatta_testkit::store_suite` check that every kind of
//! store keeps this contract. One thread owns [`SqliteStore`] and with it the only connection that
//! writes. Any thread may read through [`SqliteHistory`], which sees committed data only. A reader
//! blocks the writer only while the reader writes rows that were deferred under load
//! (`deferred_rows.rs`).
//!
//! Deliberately absent: rules. No trigger, constraint or query here decides anything. The few
//! columns besides a row's `body` exist to find the row.

mod backup; // checks, backups and restores
mod checkpoint; // copies the write-ahead log into the store file
mod commit; // writes a batch in one transaction
mod deferred_rows; // rows that are written later than their events
mod errors; // the error type and its messages
mod event_log; // the table of events
mod event_rows; // the format of that table, for every kind of store
mod history; // reads everything that was ever stored
mod load; // reads the board from its rows
mod message_index; // the search indexes of messages
mod open; // creates stores, and checks existing ones
mod postgres; // the store in a PostgreSQL database
mod purpose_migration; // tasks of older stores get their purpose
mod repair; // repairs data of older versions
mod row_codec; // the format of rows, for stores with one table for all kinds
mod schema; // tables and migrations
mod store; // implements the engine's interface to storage
mod store_files; // names, modes and renames of the store's files
mod store_mark; // the file that says which revision the store must have
mod wal; // inspects SQLite's write-ahead log as a file

pub use backup::restore;
pub use deferred_rows::DeferralLimits;
pub use history::SqliteHistory;
pub use open::examine;
pub use postgres::{LeaseLimits, PostgresSettings, PostgresStore};
pub use store::SqliteStore;
