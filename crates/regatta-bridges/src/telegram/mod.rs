//! Telegram: bots by long poll, in groups and in chats of two.
//!
//! Telegram cannot be asked whether a message is there. When we end between sending something and writing that down,
//! what only shows how far a turn is, is not sent again; an answer, a question or a note is, and may then be there twice.

pub(crate) mod api;
pub(crate) mod inbound;
pub(crate) mod outbound;

mod markup; // CommonMark as Telegram's HTML

/// What a message of ours is known by: its number, and a sum of what it shows.
fn name_of(message: &str, sum: &str) -> String {
    format!("{message} {sum}")
}

/// The number of a message of ours.
fn number_of(name: &str) -> &str {
    name.split_once(' ').map_or(name, |it| it.0)
}
