//! Starts, watches and stops any agent program, and the checks that judge its work.
//!
//! ```text
//! daemon                      shim (one per attempt, outlives the daemon)      program and its tree
//! supervise::AgentsAdapter →  shim::main: lock, subreaper, spawn, wait, sweep → out.log, result.json
//!        ↑ shim.json, exit.json, control (fifo), pidfd
//! ```
//! Layout, in reading order: [`supervise`] is the port as the daemon sees it; [`shim`] is the
//! supervisor process; `check` runs a command to its end under the same shim; `tree` finds and ends
//! processes; `process` is one process as nobody can mistake it; `environment` is what a child may
//! see; `rundir` is the directory the daemon and the shim share; `script` and [`scripted`] are the
//! agent that follows a script; `words` is everything said to people.
//!
//! Deliberately absent: async, signal handlers, `pre_exec`, signals to a bare process number, and
//! output held in memory. Not here yet: cgroups, sandboxes, output limits for agents, ACP.

mod check;
pub mod confine;
pub mod driver;
pub mod drivers;
mod environment;
pub mod home;
pub mod keys;
mod process;
pub mod redact;
mod rundir;
pub mod script;
pub mod scripted;
mod shapes;
pub mod shim;
pub mod supervise;
mod tree;
mod words;

pub use script::{ScriptError, Step, parse};
pub use supervise::AgentsAdapter;
