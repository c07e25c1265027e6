//! Tests of the git adapter against real repositories on disk.

#![expect(clippy::unwrap_used, reason = "a helper that cannot continue fails its test")]

mod capture;
mod checkout;
mod untracked_files;
mod gc;
mod inspect;
mod land;
mod trunk_facts;
mod merge;
mod unusual_repos;
mod pool;
mod collision_scan;
mod remote;
mod rebase_trunk;
mod scope;
mod serve;
mod sparse;
mod special;
mod submodules;
mod hostile_workspace;
mod tree_merge;
mod git_server;
mod workspace;
mod world;
