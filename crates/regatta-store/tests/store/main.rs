//! Tests of the stores: the common suite, and the failures that only a file can have: damage, full
//! disks, other programs.

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
