//! The bridge to Linear. A conversation is a Linear agent session: prompts arrive as signed
//! webhooks, and the agent's work is shown as activities.

pub(crate) mod api;
pub(crate) mod inbound;
pub(crate) mod outbound;
