//! Views of claims (leases on files and other resources): held claims, queued requests, and a claim
//! that was just granted.

use regatta_core::board::Board;
use regatta_core::claim::{Claim, ClaimMode, ClaimOwner, ClaimWait};
use regatta_core::ids::{ClaimId, Now, WaitId};
use regatta_core::pattern::Uri;
use regatta_core::refusal::ClaimHolder;
use serde::{Deserialize, Serialize};

use crate::file_map;

/// A claim (a lease on files or other resources) that somebody holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClaimView {
    pub claim: ClaimId,
    pub owner: ClaimOwner,
    pub uris: Vec<Uri>,
    pub mode: ClaimMode,
    /// Milliseconds until the claim (lease) ends if its holder does not renew it. Empty if the
    /// claim lasts as long as an attempt runs, or until work is merged.
    pub ends_in_ms: Option<u64>,
    /// The end of the claim (lease) in words, such as "until T3 has landed"; empty if `ends_in_ms`
    /// is set.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub until: String,
    pub memo: String,
    pub granted_wall: u64,
}

impl ClaimView {
    /// Builds the view of a claim (a lease) without its fencing token, because only the holder may
    /// know this token.
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

/// Resources that a running attempt or a landing (work that is being merged) holds automatically.
/// Nobody requested a claim on these resources, and they become free when the attempt or landing
/// ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WorkClaimView {
    pub owner: ClaimOwner,
    pub uris: Vec<Uri>,
}

/// A request for a claim (a lease on files or other resources) that waits until other claims end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClaimWaitView {
    pub wait: WaitId,
    pub owner: ClaimOwner,
    pub uris: Vec<Uri>,
    pub ends_in_ms: u64,
}

impl ClaimWaitView {
    /// Builds the view of a request for a claim that waits until other claims end.
    pub fn new(wait: &ClaimWait, now: Now) -> ClaimWaitView {
        ClaimWaitView {
            wait: wait.id,
            owner: wait.owner.clone(),
            uris: wait.uris.clone(),
            ends_in_ms: wait.deadline_fleet_ms.saturating_sub(now.fleet_ms),
        }
    }
}

/// All claims (leases on files and other resources), and all requests that wait for claims.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClaimsView {
    pub held: Vec<ClaimView>,
    /// Resources other than files that running attempts and landings (work that is being merged)
    /// hold automatically.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_work: Vec<WorkClaimView>,
    pub waiting: Vec<ClaimWaitView>,
}

/// A claim (a lease on files or other resources) that was just granted, with the fencing token that
/// only the holder gets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GrantedClaim {
    pub claim: ClaimId,
    pub token: u64,
    pub ttl_ms: u64,
}

/// The answer to the question whether some resources (files or other URIs) can be claimed now. If
/// they cannot, the answer names the holders.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClaimCheckView {
    pub free: bool,
    pub holders: Vec<ClaimHolder>,
}
