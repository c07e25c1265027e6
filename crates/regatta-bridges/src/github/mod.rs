//! GitHub: one App for each agent, its webhooks, comments, pull requests and checks.

pub(crate) mod api;
pub(crate) mod inbound;
pub(crate) mod outbound;

mod checks; // the landing's status on what was pushed
mod markup; // what of a text counts, and how an agent's words stay quiet
mod missed; // deliveries that did not arrive
mod token; // who the app is, signed
