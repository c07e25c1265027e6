//! The bridge to GitHub. Each agent has its own GitHub App, which receives webhooks and writes
//! comments, pull requests and checks.

pub(crate) mod api;
pub(crate) mod inbound;
pub(crate) mod outbound;

mod checks; // a check run with the landing's status
mod markup; // mentions in texts, and texts without mentions
mod redelivery; // redelivery of missed deliveries
mod token; // the app's signed token
