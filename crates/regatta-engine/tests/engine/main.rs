//! Tests of the engine against fakes of all ports: one story per promise, the low-level ones first,
//! and a crash between every two steps last.

#![expect(clippy::unwrap_used, reason = "a helper that cannot go on fails its test")]

mod claims; // waits for claims
mod commits; // durable before answered, and committed together
mod crash; // a crash between every two steps
mod forgetting;
mod judging;
mod landings; // from a task to the trunk
mod past; // the board at any revision, and the timelines of tasks
mod radar; // collisions of unfinished work
mod redaction; // secrets in stored and passed-on texts
mod restarts; // shutdown, stop and restart
mod support;
mod talks;
mod views;
mod workspaces; // setup of workspaces
