//! Tests of the git adapter against real repositories on disk.

#![expect(clippy::unwrap_used, reason = "a helper that cannot continue fails its test")]

mod capture;
mod checkout;
mod copy;
mod forget;
mod inspect;
mod land;
mod look;
mod merge;
mod odd;
mod pool;
mod radar;
mod remote;
mod replant;
mod scope;
mod serve;
mod sparse;
mod special;
mod submodules;
mod traps;
mod weave;
mod wire;
mod workspace;
mod world;
