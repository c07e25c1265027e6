//! What the engine needs from the world. Adapters implement these; they never call each other.

pub mod agents;
pub mod git;
pub mod site;
pub mod store;
