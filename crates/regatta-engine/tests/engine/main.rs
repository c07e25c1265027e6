//! The engine against the fake world: one story per promise, low-level ones first, and a crash between every two
//! steps last.

#![expect(clippy::unwrap_used, reason = "a helper that cannot go on fails its test")]

mod claims; // waiting in line
mod commits; // durable before answered; together when they wait together
mod crash; // a crash between every two steps
mod forgetting;
mod judging;
mod landings; // from a task to the trunk
mod past; // the board at any revision, and what a task was at
mod radar; // collisions of work in progress
mod redaction; // secrets in what is stored or handed on
mod restarts; // shutdown, stop, and going on
mod support;
mod talks;
mod views;
mod workspaces; // snapshots, watching, events
