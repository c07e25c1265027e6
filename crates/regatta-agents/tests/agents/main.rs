//! The port to programs, with real processes: every test starts real shims and real trees.

#![allow(clippy::unwrap_used, reason = "a helper of a test may fail the test")]

mod attending;
mod checks;
mod confine;
mod conversations;
mod copies;
mod egress;
mod held; // the word of the shim
mod journals;
mod programs;
mod scripts;
mod stops;
mod support;
