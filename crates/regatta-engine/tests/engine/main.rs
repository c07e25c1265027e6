//! Tests of the engine with fakes of all ports. Each module tests one area, and `crash` kills the
//! engine at every step.

#![expect(clippy::unwrap_used, reason = "a helper that fails must fail its test")]

mod claims; // waits for claims
mod collision_scan; // collisions of unfinished work
mod commits; // durable before answered, and committed together
mod crash; // a crash between every two steps
mod dropped_work_gc;
mod landings; // from a task to the trunk
mod redaction; // secrets in stored and passed-on texts
mod restarts; // shutdown, stop and restart
mod sessions;
mod support;
mod timeline; // the board at any revision, and the timelines of tasks
mod validation;
mod views;
mod workspaces; // setup of workspaces
