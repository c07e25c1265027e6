//! The doubles of chat services, used by a plain client: what they do, what they count, what they punish.

#![allow(clippy::unwrap_used, reason = "failing is the answer here")]
#![allow(clippy::print_stdout, reason = "what is skipped is said")]

mod github;
mod hook;
mod linear;
mod plain;
mod sdk;
mod slack;
mod telegram;
