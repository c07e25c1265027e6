//! The stores, held to the suite, and what only a file can suffer: damage, full disks, other programs.

#![allow(clippy::unwrap_used, reason = "a helper of a test may fail the test")]

mod backups;
mod conformance;
mod damage;
mod disk;
mod hostile;
mod marks;
mod repairs;
mod support;
mod unreadable;
