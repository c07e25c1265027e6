//! The verbs and views as plain data: what every door takes and gives.
//!
//! [`verb`] is the one table of verbs: the HTTP routes and the CLI's calls are served from it. [`view`] is
//! what people and programs are shown; a door draws it and computes nothing. [`problem`] is how every door
//! says no. Deliberately absent: rules (core), transport (server, CLI).

pub mod guide; // how an agent's day goes
pub mod input; // what each verb takes
pub mod openapi; // the verbs as an OpenAPI document
pub mod page; // what the web page draws
pub mod patch; // files and lines of a patch
pub mod plan; // plans made of words
pub mod problem; // how every door says no
pub mod schema; // JSON Schema of inputs and answers
pub mod team; // teams: inputs and views
pub mod verb; // the one table of verbs
pub mod view; // what is shown

pub use problem::Problem;
pub use verb::{Call, VERBS};
