//! The ports: interfaces (traits) through which the engine reaches git, programs, the store and the
//! machines of attempts. Adapters implement the traits and never call each other.

pub mod agents;
pub mod git;
pub mod site;
pub mod store;
