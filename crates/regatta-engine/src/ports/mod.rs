//! The ports: the traits through which the engine reaches git, programs, the store and machines.
//! Adapters implement them and never call each other.

pub mod agents;
pub mod git;
pub mod site;
pub mod store;
