//! Telegram: bots in groups and private chats, by long polling.
//!
//! Telegram cannot be asked whether a message exists. If this process ends after it sent a message
//! and before that was stored, a progress message is not sent again. An answer, a question or a
//! note is sent again, and may then appear twice.

pub(crate) mod api;
pub(crate) mod inbound;
pub(crate) mod outbound;

mod markup; // CommonMark to Telegram's HTML

/// Returns the name of a message of ours: its number, and a hash of its content.
fn message_name(message: &str, hash: &str) -> String {
    format!("{message} {hash}")
}

/// Returns the number of a message of ours.
fn message_number(name: &str) -> &str {
    name.split_once(' ').map_or(name, |(number, _)| number)
}
