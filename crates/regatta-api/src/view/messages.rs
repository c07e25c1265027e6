//! Views of messages and of hooks (rules that run a command when a message matches). The views of
//! hooks contain no fencing tokens.

use regatta_core::board::Board;
use regatta_core::hook::{Firing, FiringClaim, Hook};
use regatta_core::ids::{ChannelName, HookId, MessageId};
use serde::{Deserialize, Serialize};

/// The number of messages in one channel that an agent has not read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UnreadView {
    pub channel: ChannelName,
    /// The last message in the channel that the agent has read.
    pub read: MessageId,
    /// The number of messages in the channel that are newer than the last message that the agent
    /// has read.
    pub unread: u64,
    /// The number of unread messages that mention the agent, counted up to a thousand.
    pub mentions: u64,
}

/// An attachment of a message with its content: in `text` if it is text, otherwise in `hex`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AttachmentView {
    pub message: MessageId,
    pub name: String,
    pub bytes: u64,
    pub sha256: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hex: Option<String>,
}

/// A hook, with the number of commands that it is running now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HookView {
    #[serde(flatten, deserialize_with = "crate::json::read_flattened")]
    pub hook: Hook,
    pub running: u32,
}

impl HookView {
    /// Builds the view of a hook, and counts its running commands on the board (the current state
    /// of everything).
    pub fn new(board: &Board, hook: &Hook) -> HookView {
        let running = board
            .firings
            .values()
            .filter(|firing| firing.hook == hook.id)
            .count();
        HookView {
            hook: hook.clone(),
            running: u32::try_from(running).unwrap_or(u32::MAX),
        }
    }
}

/// The answer to the question whether a message would trigger a hook.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HookTestView {
    pub hook: HookId,
    pub fires: bool,
    /// The reason why the message does not trigger the hook, or the command that the hook would
    /// run.
    pub why: String,
}

/// Returns a copy of a firing (one run of a hook's command) without its fencing tokens, because
/// anybody who knows these tokens can act in place of the command.
pub fn without_firing_token(firing: &Firing) -> Firing {
    Firing {
        token: 0,
        claim: firing.claim.map(|firing_claim| FiringClaim {
            token: 0,
            ..firing_claim
        }),
        ..firing.clone()
    }
}
