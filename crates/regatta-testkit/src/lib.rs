//! The fake world for tests: an in-memory store, fake ports, the suite that every store must pass, and a
//! scripted model server for real programs, and doubles of the chat services that a bridge talks to.
//!
//! Deliberately absent: anything the program itself needs. This crate is a dev-dependency only.

#![allow(clippy::unwrap_used, reason = "all of this runs inside tests, where failing is the answer")]

pub mod fake_agents; // programs that are functions of the test's, and outlive the engine
pub mod fake_clock; // hands that the test turns
pub mod fake_git; // repositories in memory, and a judge of every move of a trunk
pub mod steps; // one life of the engine: every call of a port counted, failed, held, or its last

pub mod memory; // a store that forgets when the test ends, and fails when told to
pub mod store_suite; // what every store must do

pub mod models; // a scripted model server, for real programs with no network and no key

pub mod services; // Slack, GitHub, Linear and Telegram on loopback: strict, counting and punishing
