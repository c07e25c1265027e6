//! The kinds of reasons why a task waits.

use serde::{Deserialize, Serialize};

/// The kinds of reasons why a task can wait. Every reason has one of these kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum WaitKind {
    #[serde(rename = "dep")]
    Dependency,
    Claim,
    Slot,
    Machine,
    Gate,
    Wave,
    Lane,
    RateLimit,
    Budget,
    Policy,
    Review,
    Question,
    Permission,
    Queue,
    Conflict,
    Provider,
    Runner,
    Backoff,
    Offer,
    Lead,
    Disk,
    Paused,
}

/// One reason why a task waits: its kind, and a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WaitReason {
    pub kind: WaitKind,
    pub text: String,
}

impl WaitKind {
    /// Returns the kind's name in the API, which people also type in filters.
    pub fn name(self) -> &'static str {
        match self {
            WaitKind::Dependency => "dep",
            WaitKind::Claim => "claim",
            WaitKind::Slot => "slot",
            WaitKind::Machine => "machine",
            WaitKind::Gate => "gate",
            WaitKind::Wave => "wave",
            WaitKind::Lane => "lane",
            WaitKind::RateLimit => "rate_limit",
            WaitKind::Budget => "budget",
            WaitKind::Policy => "policy",
            WaitKind::Review => "review",
            WaitKind::Question => "question",
            WaitKind::Permission => "permission",
            WaitKind::Queue => "queue",
            WaitKind::Conflict => "conflict",
            WaitKind::Provider => "provider",
            WaitKind::Runner => "runner",
            WaitKind::Backoff => "backoff",
            WaitKind::Offer => "offer",
            WaitKind::Lead => "lead",
            WaitKind::Disk => "disk",
            WaitKind::Paused => "paused",
        }
    }
}
