//! Views of the bus and of hooks. Fencing tokens are removed here.

use regatta_core::board::Board;
use regatta_core::hook::{Firing, FiringClaim, Hook};
use regatta_core::ids::{ChannelName, HookId, MessageId};
use serde::{Deserialize, Serialize};

/// An agent's unread messages in one channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UnreadView {
    pub channel: ChannelName,
    /// The last message that the agent has read.
    pub read: MessageId,
    /// Number of messages after it.
    pub unread: u64,
    /// Number of them that mention the agent, counted up to a thousand.
    pub mentions: u64,
}

/// An attachment of a message with its contents, as text if it is text, otherwise in hex.
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

/// A hook, with the number of its running commands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HookView {
    #[serde(flatten)]
    pub hook: Hook,
    pub running: u32,
}

impl HookView {
    /// Builds the view of a hook from the board.
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

/// The answer to the question whether a message fires a hook.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HookTestView {
    pub hook: HookId,
    pub fires: bool,
    /// The reason why it does not fire, or the command that it would run.
    pub why: String,
}

/// Returns a firing as it is shown: without its fencing tokens.
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
