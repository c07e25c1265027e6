//! Tests of the stores. They run the common suite, and cause the failures that only a file can
//! have, such as damage, full disks and other programs that use the file.

#![allow(clippy::unwrap_used, reason = "a helper of a test may fail the test")]

mod backups;
mod conformance;
mod damage;
mod disk;
mod hostile;
mod marks;
mod postgres;
mod postgres_cluster;
mod repairs;
mod support;
mod unreadable;
