//! Tests of the git adapter against real repositories on disk.

#![expect(
    clippy::unwrap_used,
    reason = "a helper that cannot continue fails its test"
)]

mod capture;
mod checkout;
mod collision_scan;
mod conformance;
mod fixup;
mod gc;
mod git_server;
mod hostile_workspace;
mod inspect;
mod land;
mod merge;
mod pool;
mod rebase_trunk;
mod remote;
mod scope;
mod serve;
mod sparse;
mod special;
mod submodules;
mod tree_merge;
mod trunk_facts;
mod untracked_files;
mod unusual_repos;
mod workspace;
mod world;
