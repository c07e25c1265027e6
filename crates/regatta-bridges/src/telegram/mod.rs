//! The bridge to Telegram: each agent is a bot in groups and private chats, and fetches its
//! messages by long polling.
//!
//! Telegram cannot be asked whether a message exists. If the daemon ends after it sent a message
//! and before it stored that fact, a progress message is not sent again. An answer, a question or a
//! note is sent again, and may then appear twice.

pub(crate) mod api;
pub(crate) mod inbound;
pub(crate) mod outbound;

mod markup; // CommonMark to Telegram's HTML

/// Returns the name under which the board stores a sent message: its number at Telegram, and a hash
/// of its content.
fn message_name(message: &str, hash: &str) -> String {
    format!("{message} {hash}")
}

/// Returns the Telegram number in the stored name of a message.
fn message_number(name: &str) -> &str {
    name.split_once(' ').map_or(name, |(number, _)| number)
}
