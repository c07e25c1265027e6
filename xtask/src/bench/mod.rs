//! The measurements, each with its targets.

pub(crate) mod agents; // supervision of agents: stops, floods, restarts, starts
pub(crate) mod claims; // claims per second
pub(crate) mod collision_scan; // the cost of looking for merge conflicts
pub(crate) mod decide; // the time of a decision
pub(crate) mod http; // the HTTP API under load
pub(crate) mod landing; // a landing compared with rebase and merge by hand
pub(crate) mod linearizable; // linearizability of a million claim operations
pub(crate) mod sandbox; // what a sandboxed program can and cannot do
pub(crate) mod schedule; // the time of a start with ten thousand ready tasks
pub(crate) mod start; // size, time to ready, idle memory
pub(crate) mod workspace; // new and pooled workspaces compared with git worktree add

mod baseline; // the baseline for claims: a connection per caller
mod board; // boards with many tasks
mod checker; // the sequential model, independent of core
mod history; // operations, answers and events
mod pattern_universe; // a small universe of patterns, with overlap by brute force
mod planted_faults; // faults that the checker must find
