//! The measurements, each with its targets.

pub(crate) mod agents; // stops, floods, restarts, and what a start costs
pub(crate) mod claims; // claims per second, against a connection per caller
pub(crate) mod decide; // how long a decision takes on a small and on a large board
pub(crate) mod doors; // the doors under load
pub(crate) mod landing; // a landing against rebase and merge by hand
pub(crate) mod linearizable; // a million operations, and whether they could have happened one by one
pub(crate) mod radar; // what looking for collisions costs
pub(crate) mod sandbox; // what a confined program can and cannot do
pub(crate) mod schedule; // how long one start takes with ten thousand ready tasks
pub(crate) mod start; // size, time to ready, memory at rest
pub(crate) mod workspace; // fresh and warm ones against git worktree add

mod baseline; // what most programs would do instead of one writer
mod board; // boards with many tasks
mod checker; // the sequential model: an opinion independent of core's
mod history; // what was asked, answered and logged
mod lake; // the small universe of patterns, with overlap found by brute force
mod plant; // faults that the checker must find
