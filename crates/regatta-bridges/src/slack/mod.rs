//! Slack: Socket Mode, or events over HTTP.

pub(crate) mod api;
pub(crate) mod inbound;
pub(crate) mod outbound;

mod markup; // CommonMark to Slack's markup
