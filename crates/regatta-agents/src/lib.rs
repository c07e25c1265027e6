//! Starts, supervises and stops the programs of coding agents, and runs the checks that judge their
//! work.
//!
//! ```text
//! daemon                            shim (one per attempt,              program and
//!                                   outlives the daemon)                its children
//!
//! AgentsAdapter           ────────► main thread: lock, subreaper,  ───► starts, ends
//!                                   reap, exit record
//! session loop:           ◄──────── journal writer: journal,       ◄──► its pipes
//!   journal → driver                stdin, stdout, stderr
//!   input for the program ────────► control socket: shim.sock,
//!                                   signals
//! ```
//!
//! The daemon and the shim share nothing but a run directory per attempt, so either side may die at
//! any moment. [`adapter`] implements the engine's port. A start resolves the agent's
//! [`agent_home`], its secrets ([`secrets`]), its sandbox ([`sandbox`]) and its environment; a
//! program without a network reaches the outside only through [`egress`]. One thread per attempt
//! reads the journal, shows it to the program's driver ([`driver`], [`drivers`]) and sends input
//! back through the shim's socket. [`shim`] is the supervisor process. The shim writes the journal,
//! and [`redact`] removes secrets from the journal.
//!
//! Checks and commands run under the same shim. Other modules find and end processes, keep copies
//! of journals from other machines, and remove old data; [`leftovers`] finds processes and
//! directories whose owner is gone. [`presets`] lists the programs known by name and
//! [`program_discovery`] finds them on this machine. [`scripted`] is the built-in agent that
//! follows a script. [`gc_program_worker`] drives one worker of a pool that a foreign program named gc
//! manages.
//!
//! This crate has no async code, no signal handlers and no `pre_exec`. No code here sends a signal
//! to a bare process number or holds a program's whole output in memory.

pub mod adapter;
pub mod agent_home;
mod cgroup;
pub mod contact_deadline; // ends a runner's programs when the daemon is out of contact
pub mod driver;
pub mod drivers;
pub mod egress;
mod environment;
mod errors;
mod free_memory;
pub mod gc_program_worker;
mod journal;
mod journal_copy;
pub mod launch_check;
pub mod leftovers;
pub mod model_list;
mod named_secrets;
mod output_changes; // the complete output of tool calls
pub mod presets;
mod process;
mod process_tree;
pub mod profile_credentials;
pub mod program_discovery;
mod program_launch;
mod reaper;
pub mod redact;
mod relay;
mod retention;
mod run_check;
mod run_dir;
mod run_once;
mod run_phase;
pub mod sandbox;
mod sandbox_command;
pub mod script;
pub mod scripted;
mod secret_patterns;
pub mod secrets;
mod session_loop;
pub mod shim;
mod shim_protocol; // the sign-in methods of a known program
mod transcript_end; // the last lines of a transcript

pub use adapter::AgentsAdapter;
pub use retention::PrunedJournals;
pub use script::{ScriptError, ScriptStep, parse_script};
pub use shim::ShimLimits;

use regatta_engine::ports::agents::{JournalRecord, JournalStream};

/// Returns the text of a journal record for a person who follows a program's output. A printed line
/// is unchanged, and a mark (a remark of the supervisor process) becomes a sentence. Returns `None`
/// for the program's input.
pub fn record_text(record: &JournalRecord) -> Option<String> {
    match record.stream {
        JournalStream::Out | JournalStream::Err => Some(record.line.clone()),
        JournalStream::Mark => journal::JournalMark::explain(&record.line),
        JournalStream::In | JournalStream::InEnd => None,
    }
}
