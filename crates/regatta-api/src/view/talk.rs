//! The bus and the hooks, as they are shown.

use regatta_core::board::Board;
use regatta_core::hook::{Firing, Hold, Hook};
use regatta_core::ids::{ChannelName, HookId, MessageId};
use serde::{Deserialize, Serialize};

/// What an agent has not read of a channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UnreadView {
    pub channel: ChannelName,
    /// How far it has read.
    pub read: MessageId,
    /// How many messages came since.
    pub unread: u64,
    /// How many of them mention it, counted up to a thousand.
    pub mentions: u64,
}

/// A file that goes with a message, and what is in it: as text if it is text, else in hex.
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

/// A hook, and how many commands of it run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HookView {
    #[serde(flatten)]
    pub hook: Hook,
    pub running: u32,
}

impl HookView {
    pub fn of(board: &Board, hook: &Hook) -> HookView {
        let running = board.firings.values().filter(|it| it.hook == hook.id).count();
        HookView { hook: hook.clone(), running: u32::try_from(running).unwrap_or(u32::MAX) }
    }
}

/// Whether a message fires a hook, and if not, why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HookTestView {
    pub hook: HookId,
    pub fires: bool,
    /// Why it does not; what it would run, if it does.
    pub why: String,
}

/// A firing as it is shown: without the token that speaks for it.
pub fn without_firing_token(firing: &Firing) -> Firing {
    Firing { token: 0, claim: firing.claim.map(|it| Hold { token: 0, ..it }), ..firing.clone() }
}
