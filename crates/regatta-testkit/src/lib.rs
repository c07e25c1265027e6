//! Test doubles: in-memory ports of the engine, a conformance suite for stores, a scripted model
//! server, and strict doubles of the chat services.
//!
//! This crate is only a dev-dependency. Nothing here is part of the program.

#![allow(
    clippy::unwrap_used,
    reason = "this code only runs in tests, where a panic is the right failure"
)]

pub mod crash_points;
pub mod fake_agents; // programs that are closures of the test and outlive the engine
pub mod fake_clock; // a clock that only the test moves
// repositories in memory, with a check of every trunk move // one life of the engine: count, fail
// or hold calls, or end at a call
pub mod fake_git;

pub mod fake_store; // a store in memory that can fail on request
pub mod store_suite; // the test cases that every store must pass

pub mod models; // a scripted model server, so that real programs run without network or key

pub mod services; // doubles of Slack, GitHub, Linear and Telegram on loopback
