//! Starts, supervises and stops agent programs, and runs the checks that judge their work.
//!
//! ```text
//! daemon                          shim (one per attempt, outlives the daemon)        program and its children
//! AgentsAdapter             ───→  main thread: lock, subreaper, reap, exit record ─→ starts, ends
//! session loop: journal → driver ← journal writer: stdin, stdout, stderr ⇄ journal ←→ its pipes
//!   input for the program   ───→  control socket: shim.sock, signals
//! ```
//!
//! The daemon and the shim share nothing but a run directory per attempt, so either side may die at
//! any moment. [`supervise`] implements the engine's port. A start resolves the agent's [`home`],
//! its secrets ([`keys`]), its sandbox ([`confine`]) and its environment; a program without a
//! network reaches the outside only through [`egress`]. One thread per attempt reads the journal,
//! shows it to the program's driver ([`driver`], [`drivers`]) and sends input back through the
//! shim's socket. [`shim`] is the supervisor process. It writes the journal, and [`redact`] removes
//! secrets from it.
//!
//! Checks and commands run under the same shim. Other modules find and end processes, keep copies
//! of journals from other machines, and remove old data; [`strays`] finds processes and directories
//! whose owner is gone. [`presets`] lists the programs known by name and [`discover`] finds them on
//! this machine. [`scripted`] is the built-in agent that follows a script. [`gc`] drives one worker
//! of a pool that a foreign program named gc manages.
//!
//! This crate has no async code, no signal handlers and no `pre_exec`. It never sends a signal to a
//! bare process number and never holds a program's whole output in memory.

mod attend;
mod cgroup;
mod check;
pub mod confine;
mod copies;
pub mod discover;
pub mod driver;
pub mod drivers;
pub mod egress;
mod environment;
pub mod gc;
pub mod home;
mod journal;
pub mod keys;
mod launch;
pub mod leash; // ends a runner's programs when the daemon is out of contact
mod memory;
pub mod models;
mod named_secrets;
mod once;
pub mod presets;
mod process;
mod reaper;
pub mod redact;
mod relay;
pub mod resolve;
mod retention;
mod rundir;
pub mod script;
pub mod scripted;
mod shapes;
pub mod shim;
mod shut_in;
pub mod sign_in; // the sign-in methods of a known program
mod socket;
pub mod strays;
pub mod supervise;
mod tree;
mod words;

pub use retention::Pruned;
pub use script::{ScriptError, Step, parse};
pub use shim::Limits;
pub use supervise::AgentsAdapter;

use regatta_engine::ports::agents::{Record, Stream};

/// Returns the text of a record for a person who follows a program's output: a printed line as it
/// is, a mark as a sentence, and nothing for input.
pub fn printed(record: &Record) -> Option<String> {
    match record.stream {
        Stream::Out | Stream::Err => Some(record.line.clone()),
        Stream::Mark => journal::Mark::explain(&record.line),
        Stream::In | Stream::InEnd => None,
    }
}
