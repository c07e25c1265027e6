//! Starts, watches and stops any agent program, and the checks that judge its work.
//!
//! ```text
//! daemon                          shim (one per attempt, outlives the daemon)        program and its tree
//! supervise::AgentsAdapter  ───→  main: lock, subreaper, spawn, reap, exit record ─→ starts, ends
//! attend: journal → driver  ←───  scribe: stdin, stdout, stderr ⇄ journal        ←─→ its pipes
//!   its wishes → socket     ───→  porter: shim.sock; ender: signals
//! ```
//! Layout, in reading order: [`supervise`] is the port as the daemon sees it; `launch` settles what a program is started
//! with: its [`home`], its [`keys`], its sandbox ([`confine`]), its `environment`; [`egress`] is the only way out of a program that
//! has no network; `attend` follows one program with its
//! driver; [`driver`] is what a driver is and [`drivers`] are they; `journal` is what was said, for good, and [`redact`]
//! what is not; `socket` is what a daemon can ask of a shim; [`shim`] is the supervisor process; `check` runs a command
//! to its end under the same shim, `once` one that is never repeated; `tree` finds and ends processes; `cgroup` holds them together where the machine can;
//! `process` is one process as nobody can mistake it; `rundir` is the directory the daemon and the shim share;
//! `copies` are journals of programs elsewhere; `retention` clears it up; [`strays`] finds what nobody looks after; `relay` is
//! the address by which a program reaches its daemon; [`presets`] are the programs known by name and [`discover`] finds them; `script` and
//! [`scripted`] are the agent that follows a script; [`gc`] is a worker of a foreign pool; `words` is everything said
//! to people.
//!
//! Deliberately absent: async, signal handlers, `pre_exec`, signals to a bare process number, and output held in
//! memory.

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
pub mod leash; // a runner's programs end when it hears of nobody
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
pub mod sign_in; // what a known program signs in with
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

/// What a person who follows a program's output sees of a record: its lines, and marks in words.
pub fn printed(record: &Record) -> Option<String> {
    match record.stream {
        Stream::Out | Stream::Err => Some(record.line.clone()),
        Stream::Mark => journal::Mark::explain(&record.line),
        Stream::In | Stream::InEnd => None,
    }
}
