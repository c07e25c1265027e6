//! The verbs and views of the API as plain data: the input and the answer of each verb.
//!
//! [`verb`] is the table of verbs. The HTTP routes and the calls of the CLI are generated from it.
//! [`view`] holds the data that people and programs receive; an interface draws a view and computes
//! nothing. [`problem`] is the error that every interface returns.
//!
//! Not here: rules (regatta-core) and transport (regatta-server, CLI).

pub mod guide; // guides that agents and people can read
pub mod input; // the inputs of the verbs
pub mod live_view; // the data of the web page
pub mod openapi; // the verbs as an OpenAPI document
pub mod patch; // files and lines of a patch
pub mod plan; // plans that an agent makes of a goal
pub mod problem; // errors of all interfaces
pub mod schema; // JSON Schema of inputs and answers
pub mod team; // teams: inputs and views
pub mod verb; // the table of verbs
pub mod view; // the data that is shown

pub use problem::Problem;
pub use verb::{Call, VERBS};
