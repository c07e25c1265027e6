//! Keep commits, give the board back, read history: SQLite.
//!
//! The store keeps whole rows and knows nothing of what they mean: `load(commit(x)) == x` is its contract,
//! and the suite in `regatta_testkit::store_suite` holds every store to it. One thread owns
//! [`SqliteStore`] and with it the only connection that changes anything; any thread may read through
//! [`SqliteHistory`], which sees what is committed and makes the writer wait only while it writes rows that were left
//! for later under load (`behind.rs`).
//!
//! Deliberately absent: rules. There is no trigger, no check and no query here that decides anything; the
//! few columns beside a row's `body` are there to find it.

mod backup; // exact copies, and putting one back
mod behind; // rows that are written later than their commit
mod checkpoint; // the log moved into the store, beside the commits
mod commit; // where a batch becomes durable
mod files; // names and modes of files beside the store
mod history; // the reading side
mod index; // what messages are found by
mod load; // the board, from its live rows
mod log; // events in rows
mod mark; // how far a store must be
mod open; // what is checked before a file is trusted
mod repair; // what older programs stored wrong
mod schema; // tables, migrations
mod store; // the port
mod wal; // SQLite's log as a file
mod words; // every sentence this crate says

pub use backup::restore;
pub use behind::Lag;
pub use history::SqliteHistory;
pub use open::examine;
pub use store::SqliteStore;
