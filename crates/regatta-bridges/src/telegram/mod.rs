//! The bridge to Telegram. Each agent is a bot in groups and private chats. The bridge fetches the
//! messages to the bot by long polling.
//!
//! Telegram has no function that finds out if a message exists. If the daemon ends after sending a
//! message and before recording that the message was sent, a message that only shows progress is
//! not sent again. An answer, a question or a note is sent again, and may appear twice.

pub(crate) mod api;
pub(crate) mod inbound;
pub(crate) mod outbound;

mod markup; // CommonMark to Telegram's HTML

/// Returns the name under which Regatta stores a sent message: the message's number at Telegram,
/// and a hash of its content.
fn message_name(message: &str, hash: &str) -> String {
    format!("{message} {hash}")
}

/// Returns Telegram's number of a message. `name` is the name under which Regatta stores the
/// message.
fn message_number(name: &str) -> &str {
    name.split_once(' ').map_or(name, |(number, _)| number)
}
