//! Keeps the fleet (everything that one writer manages) in a PostgreSQL database.
//!
//! One table has all rows as JSON, a second one the events, and a third one the words, labels and
//! threads by which messages are found. A commit is one transaction of a handful of statements,
//! which are sent at once, so that it costs one round trip however many rows it has.
//!
//! The row of the table `lease` is the truth about who may write. Every commit checks and extends
//! it in its own transaction ([`lease`]). Advisory locks and notifications are not used for that,
//! because both break behind connection poolers. For the same reason no statement is prepared by
//! name and no setting outlives its transaction.
//!
//! Deliberately absent: rules, as in SQLite. The key of every table begins with `project`. It is
//! empty as long as one writer manages all projects of a database.

mod commit; // one transaction for one batch
mod connection; // connections, and statements that are sent together
mod export; // copies the store into a SQLite file
mod faults; // messages about errors of the server
mod history; // reads everything that was ever stored
mod lease; // the row that says who may write
mod load; // reads the board from its rows
mod messages; // finds messages by words, labels and threads
mod schema; // tables and migrations
mod settings; // the address of a database
mod store; // implements the engine's interface to storage

pub use lease::LeaseLimits;
pub use settings::PostgresSettings;
pub use store::PostgresStore;

/// The value of the column `project` for everything that belongs to the only writer of a database.
const WHOLE_FLEET: &str = "";
