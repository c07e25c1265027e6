//! The bridge to Slack. Events arrive through a WebSocket (Socket Mode) or as HTTP requests.

pub(crate) mod api;
pub(crate) mod inbound;
pub(crate) mod outbound;

mod markup; // CommonMark to Slack's markup
