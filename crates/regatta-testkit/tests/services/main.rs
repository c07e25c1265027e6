//! Tests of the doubles of chat services with a plain client: their answers, limits and recorded
//! violations.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue fails")]
#![allow(
    clippy::print_stdout,
    reason = "a test that is skipped prints the reason"
)]

mod github;
mod http_client;
mod linear;
mod sdk;
mod slack;
mod telegram;
mod webhook_server;
