//! Tests of the engine with fakes of all ports. Each module tests one area, and `crash` kills the
//! engine at every step.

#![expect(clippy::unwrap_used, reason = "a helper that fails must fail its test")]

mod claims; // waits for claims
mod commits; // durable before answered, and committed together
mod crash; // a crash between every two steps
mod dropped_work_gc;
mod validation;
mod landings; // from a task to the trunk
mod timeline; // the board at any revision, and the timelines of tasks
mod collision_scan; // collisions of unfinished work
mod redaction; // secrets in stored and passed-on texts
mod restarts; // shutdown, stop and restart
mod support;
mod sessions;
mod views;
mod workspaces; // setup of workspaces
