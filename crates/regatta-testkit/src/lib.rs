//! Helpers for tests:
//! - fakes of git, agents' programs, the clock and the store, which work in memory
//! - sets of test cases for every store and every git adapter
//! - a model server with scripted answers
//! - strict doubles (imitations) of Slack, GitHub, Linear and Telegram
//!
//! This crate is used only by tests. Nothing here is part of the released program.

#![allow(
    clippy::unwrap_used,
    reason = "this code only runs in tests, where a panic is the right failure"
)]

pub mod crash_points; // calls of an engine that a test can count, hold, fail or end
pub mod fake_agents; // programs that are closures of the test and outlive the engine
pub mod fake_clock; // a clock that only the test moves
// Git repositories in memory. Every move of a trunk is checked against the rules of landing.
pub mod fake_git;

pub mod git_suite; // the test cases that every git adapter must pass

pub mod fake_store; // a store in memory that can fail on request
pub mod store_suite; // the test cases that every store must pass

pub mod models; // a scripted model server, so that real programs run without network or key

pub mod services; // doubles of Slack, GitHub, Linear and Telegram on loopback
