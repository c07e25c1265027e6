//! Views of claims: held, waiting, and granted.

use regatta_core::board::Board;
use regatta_core::claim::{Claim, ClaimMode, ClaimOwner, ClaimWait};
use regatta_core::file_map;
use regatta_core::ids::{ClaimId, Now, WaitId};
use regatta_core::pattern::Uri;
use regatta_core::refusal::ClaimHolder;
use serde::{Deserialize, Serialize};

/// A claim that is held.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClaimView {
    pub claim: ClaimId,
    pub owner: ClaimOwner,
    pub uris: Vec<Uri>,
    pub mode: ClaimMode,
    /// Milliseconds until the claim ends unless it is renewed; empty while something supervised
    /// keeps it.
    pub ends_in_ms: Option<u64>,
    /// The end of the claim in that case, in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub until: String,
    pub memo: String,
    pub granted_wall: u64,
}

impl ClaimView {
    /// Builds the view of a claim. The token is its holder's secret and is left out.
    pub fn new(board: &Board, claim: &Claim, now: Now) -> ClaimView {
        ClaimView {
            until: file_map::end_of_claim(board, claim, now).1,
            claim: claim.id,
            owner: claim.owner.clone(),
            uris: claim.uris.clone(),
            mode: claim.mode,
            ends_in_ms: claim
                .expires_fleet_ms
                .map(|at| at.saturating_sub(now.fleet_ms)),
            memo: claim.memo.clone(),
            granted_wall: claim.granted_unix_ms,
        }
    }
}

/// URIs that an attempt or a landing holds because it runs: nobody granted them, and they end with
/// their owner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WorkClaimView {
    pub owner: ClaimOwner,
    pub uris: Vec<Uri>,
}

/// A queued request for a claim.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClaimWaitView {
    pub wait: WaitId,
    pub owner: ClaimOwner,
    pub uris: Vec<Uri>,
    pub ends_in_ms: u64,
}

impl ClaimWaitView {
    /// Builds the view of a queued request.
    pub fn new(wait: &ClaimWait, now: Now) -> ClaimWaitView {
        ClaimWaitView {
            wait: wait.id,
            owner: wait.owner.clone(),
            uris: wait.uris.clone(),
            ends_in_ms: wait.deadline_fleet_ms.saturating_sub(now.fleet_ms),
        }
    }
}

/// The held claims and the requests that wait.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClaimsView {
    pub held: Vec<ClaimView>,
    /// URIs that attempts and landings hold because they run, in addition to their files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_work: Vec<WorkClaimView>,
    pub waiting: Vec<ClaimWaitView>,
}

/// A granted claim, as the holder needs it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GrantedClaim {
    pub claim: ClaimId,
    pub token: u64,
    pub ttl_ms: u64,
}

/// The answer to the question whether URIs are free.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClaimCheckView {
    pub free: bool,
    pub holders: Vec<ClaimHolder>,
}
