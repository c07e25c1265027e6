//! The API as plain data: the verbs (named operations such as `task.add`) with their inputs and
//! answers.
//!
//! [`verb`] is the table of verbs. The HTTP routes and the calls of the command line are generated
//! from it. [`view`] holds the data that people and programs receive; an interface displays a view
//! and computes nothing. [`problem`] is the error that every interface returns.
//!
//! This crate leaves the rules to regatta-core, and the transport to regatta-server and the command
//! line.

pub mod agent_list; // the page's list of agents
pub mod cost_tables; // sums of cost, and the forecast of the day's limit
pub mod event_list; // the page's list of events
pub mod file_map; // the agents and tasks that use each file of a project
pub mod graph_layout; // the positions of tasks in a drawing of their graph
pub mod guide; // guides that agents and people can read
pub mod input; // the inputs of the verbs
pub mod json; // conversions between data and JSON values
pub mod live_view; // the data of the web page
pub mod openapi; // the verbs as an OpenAPI document
pub mod pagination; // pages of lists
pub mod patch; // files and lines of a patch
pub mod plan; // plans that an agent makes of a goal
pub mod problem; // errors of all interfaces
pub mod schema; // JSON Schema of inputs and answers
pub mod task_list; // the page's list of tasks
pub mod team; // teams: inputs and views
pub mod verb; // the table of verbs
pub mod view; // the data that is shown

pub use problem::Problem;
pub use verb::{Call, VERBS, call};
