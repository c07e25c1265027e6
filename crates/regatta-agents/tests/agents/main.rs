//! Tests of the agents port with real processes. Every test starts real shims and process trees.

#![allow(clippy::unwrap_used, reason = "a test helper may fail the test")]

mod checks;
mod conversations;
mod copies;
mod egress;
mod journals;
mod paused_start; // programs that wait for their shim
mod programs;
mod sandbox;
mod scripts;
mod session_loop;
mod stops;
mod support;
