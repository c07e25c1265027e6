//! Claims: the right to use files, tasks, workspaces, ports or the trunk, alone or shared with
//! others, for a limited time. A claim names its objects by URI patterns such as
//! `file://shop/src/**`. Each claim has a token, a number that grows with every grant, so that the
//! holder of an expired claim can no longer act under it.
//!
//! One rule holds for everybody: two overlapping claims exist at the same time only if both are
//! shared, even if both belong to one owner. The only exception is an agent and its own work, see
//! [`identity`]. Requests that must wait form one queue in order of arrival. A new request that
//! overlaps an earlier waiting request is queued behind it. A request is refused if its wait would
//! close a circle of owners who wait for each other, so there is no deadlock.
//!
//! Not here: which files a task claims (see [`manifest`](crate::manifest)), and whether two
//! patterns overlap (see [`pattern`](crate::pattern)).

mod conflict; // the holders that keep a request from being granted
mod grant; // new claims
mod identity; // the task, the workspace and the agent's name that running work holds
mod ports; // ports of the machine
mod trunk; // claims on a project's trunk

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::board::{Board, Draft};
use crate::event::{Event, facts};
use crate::ids::{AgentName, AttemptId, ClaimId, LandingId, Now, WaitId};
use crate::pattern::Uri;
use crate::refusal::Refusal;

pub(crate) use conflict::{WantedUris, conflicting_holders_on_board, holders_conflicting_with};
pub use conflict::{conflicting_holders, position};
pub use grant::acquire;
use grant::grant;
pub(crate) use grant::{
    WorkClaims, acquire_for_attempt, acquire_for_landing, claim_agent_name, work_conflicts,
};
pub(crate) use identity::{
    Party, held_by_attempt, held_by_landing, is_own, name_holders, task_holders, uris_of_start,
    uris_of_task,
};
pub use identity::{check_agent_and_project, held_by_work};
pub(crate) use ports::{free_ports, lease_ports};
pub use trunk::{MAX_TRUNK_HOLD_MS, TRUNK_TTL_MS, claim_trunk};
pub(crate) use trunk::{check_lent_trunk, is_trunk, trunk_projects};

/// The owner of a claim or of a waiting request: an agent (or a person under an agent's name), an
/// attempt, or a landing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ClaimOwner {
    Agent(AgentName),
    Attempt(AttemptId),
    Landing(LandingId),
}

impl fmt::Display for ClaimOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClaimOwner::Agent(name) => name.fmt(f),
            ClaimOwner::Attempt(id) => id.fmt(f),
            ClaimOwner::Landing(id) => id.fmt(f),
        }
    }
}

/// The rule for overlapping claims: with `Exclusive`, nobody else may hold an overlapping claim;
/// with `Shared`, others may hold overlapping claims that are shared too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ClaimMode {
    #[default]
    Exclusive,
    Shared,
}

/// A granted claim: the right of its owner to use the objects that its URIs name, until the claim
/// ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Claim {
    pub id: ClaimId,
    pub owner: ClaimOwner,
    pub uris: Vec<Uri>,
    pub mode: ClaimMode,
    /// The number of the event that granted the claim. The number is higher than every earlier
    /// token, so with this number the holder can prove that its claim is the current one.
    pub token: u64,
    /// The time for which the claim lives without renewal, in milliseconds. `None` if it lives as
    /// long as its owner.
    pub ttl_ms: Option<u64>,
    /// The time, in milliseconds of Regatta's own clock (the fleet clock), at which the claim
    /// expires unless it is renewed. `None` if it lives as long as its owner.
    #[serde(rename = "expires_at")]
    pub expires_fleet_ms: Option<u64>,
    /// The time, in milliseconds of Regatta's own clock (the fleet clock), beyond which no renewal
    /// extends the claim. Set only for claims on a trunk that are made by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "latest_at")]
    pub latest_end_fleet_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub memo: String,
    /// The waiting request that this claim fulfilled, if there was one. A caller that missed the
    /// reply can find its claim by this id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_wait: Option<WaitId>,
    /// The time at which the claim was granted, in Unix milliseconds.
    #[serde(rename = "granted_wall")]
    pub granted_unix_ms: u64,
}

/// A request for a claim that waits in the queue until its URIs are free.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClaimWait {
    pub id: WaitId,
    pub owner: ClaimOwner,
    pub uris: Vec<Uri>,
    pub mode: ClaimMode,
    pub ttl_ms: u64,
    pub memo: String,
    /// The time, in milliseconds of Regatta's own clock (the fleet clock), at which the request
    /// gives up waiting.
    #[serde(rename = "until_at")]
    pub deadline_fleet_ms: u64,
    #[serde(rename = "since_wall")]
    pub since_unix_ms: u64,
}

/// The reason why a claim ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ClaimEndCause {
    Released,
    Expired,
    OwnerEnded,
}

/// The reason why a waiting request ended without a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ClaimWaitEnd {
    TimedOut,
    CallerGone,
}

facts! {
    /// A claim was granted. `wait` is the waiting request that it fulfils, if there was one.
    ClaimGranted { claim: Claim, wait: Option<WaitId> }
    ClaimRenewed { claim: ClaimId, expires_at: Option<u64> }
    /// A claim passed directly from one owner to another, for example from an attempt to the
    /// landing of its work.
    ClaimTransferred { claim: ClaimId, to: ClaimOwner }
    ClaimReleased { claim: ClaimId, cause: ClaimEndCause }
    ClaimQueued { wait: ClaimWait }
    ClaimWaitEnded { wait: WaitId, cause: ClaimWaitEnd }
}

/// A request for a claim: the arguments of [`acquire`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Acquire {
    pub owner: ClaimOwner,
    pub uris: Vec<Uri>,
    #[serde(default)]
    pub mode: ClaimMode,
    pub ttl_ms: u64,
    /// The time to wait if the URIs are not free, in milliseconds; 0 refuses at once.
    #[serde(default)]
    pub wait_ms: u64,
    #[serde(default)]
    pub memo: String,
}

/// The result of [`acquire`]: a granted claim, or a place in the queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum Acquired {
    Granted {
        claim: ClaimId,
        token: u64,
        ttl_ms: u64,
    },
    Waiting {
        wait: WaitId,
        position: usize,
    },
}

/// Maximum time to live of a claim without renewal: a week.
pub const MAX_TTL_MS: u64 = 7 * 24 * 3_600_000;
/// Maximum time to wait for a claim: a day.
pub const MAX_WAIT_MS: u64 = 24 * 3_600_000;
/// Maximum number of URIs in one claim.
pub const MAX_URIS: usize = 512;

/// Renews a claim, so that its full time to live starts again, and returns the time left in
/// milliseconds. Refuses if `token` is not the claim's token (L8).
pub fn renew(draft: &mut Draft, id: ClaimId, token: u64, now: Now) -> Result<u64, Refusal> {
    let claim = require_claim(draft, id, token)?;
    let Some(ttl_ms) = claim.ttl_ms else {
        return Ok(0);
    };
    let expires_at = claim
        .latest_end_fleet_ms
        .unwrap_or(u64::MAX)
        .min(now.fleet_ms + ttl_ms);
    let left = expires_at.saturating_sub(now.fleet_ms);
    draft.record(Event::ClaimRenewed(ClaimRenewed {
        claim: id,
        expires_at: Some(expires_at),
    }));
    Ok(left)
}

/// Ends a claim before it expires. Refuses if `token` is not the claim's token (L8).
pub fn release(draft: &mut Draft, id: ClaimId, token: u64) -> Result<(), Refusal> {
    let claim = require_claim(draft, id, token)?;
    // Refuse to release two kinds of claims early: claims that live as long as their owner, and the
    // claim under which a landing moves the trunk.
    if claim.ttl_ms.is_none() || matches!(claim.owner, ClaimOwner::Landing(_)) {
        return Err(Refusal::InUse {
            what: id.to_string(),
            by: claim.owner.to_string(),
        });
    }
    draft.record(Event::ClaimReleased(ClaimReleased {
        claim: id,
        cause: ClaimEndCause::Released,
    }));
    Ok(())
}

/// Returns claim `id` if `token` is its token, and refuses otherwise.
fn require_claim(draft: &Draft, id: ClaimId, token: u64) -> Result<Arc<Claim>, Refusal> {
    require_claim_on_board(draft.board(), id, token)
}

/// Like [`require_claim`], for a board that is not part of a draft.
fn require_claim_on_board(board: &Board, id: ClaimId, token: u64) -> Result<Arc<Claim>, Refusal> {
    match board.claims.get(&id) {
        None if id.0 > board.counters.claim => Err(Refusal::missing(
            format!("there is no claim {id}"),
            "see the claims: regatta claim list",
        )),
        None => Err(Refusal::ClaimEnded { claim: id }),
        Some(claim) if claim.token != token => Err(Refusal::StaleClaimToken { claim: id }),
        Some(claim) => Ok(claim.clone()),
    }
}

/// Ends all claims and waiting requests of an owner that has ended. One transaction of the store
/// ends them all, so that none is left behind (L11).
pub fn release_all(draft: &mut Draft, owner: &ClaimOwner) {
    for claim in draft.board().claims_of(owner) {
        draft.record(Event::ClaimReleased(ClaimReleased {
            claim,
            cause: ClaimEndCause::OwnerEnded,
        }));
    }
    for wait in draft.board().waits_of(owner) {
        draft.record(Event::ClaimWaitEnded(ClaimWaitEnded {
            wait,
            cause: ClaimWaitEnd::CallerGone,
        }));
    }
}

/// Ends the claims of an owner that have a time to live, and keeps the claims that live as long as
/// the owner.
pub(crate) fn release_leased(draft: &mut Draft, owner: &ClaimOwner) {
    for claim in draft.board().claims_of(owner) {
        if draft
            .board()
            .claims
            .get(&claim)
            .is_some_and(|claim| claim.ttl_ms.is_some())
        {
            draft.record(Event::ClaimReleased(ClaimReleased {
                claim,
                cause: ClaimEndCause::Released,
            }));
        }
    }
}

/// Passes all claims of `from` to `to` directly, so that nobody else can get a claim in between.
/// Claims on ports are not passed on.
pub fn transfer_all(draft: &mut Draft, from: &ClaimOwner, to: &ClaimOwner) {
    let is_port = |claim: &ClaimId| {
        draft
            .board()
            .claims
            .get(claim)
            .is_some_and(|claim| claim.uris.iter().all(Uri::is_port))
    };
    let claims: Vec<_> = draft
        .board()
        .claims_of(from)
        .into_iter()
        .filter(|id| !is_port(id))
        .collect();
    for claim in claims {
        draft.record(Event::ClaimTransferred(ClaimTransferred {
            claim,
            to: to.clone(),
        }));
    }
}

/// Ends a claim whose time has run out. Until this end is recorded, the claim counts as held, so no
/// code compares times to find out whether a claim is held.
pub fn expire(draft: &mut Draft, id: ClaimId, now: Now) {
    let is_due = draft
        .board()
        .claims
        .get(&id)
        .is_some_and(|claim| claim.expires_fleet_ms.is_some_and(|at| at <= now.fleet_ms));
    if is_due {
        draft.record(Event::ClaimReleased(ClaimReleased {
            claim: id,
            cause: ClaimEndCause::Expired,
        }));
    }
}

/// Ends a request that waits for a claim and whose time has run out.
pub fn expire_wait(draft: &mut Draft, id: WaitId, now: Now) {
    if draft
        .board()
        .waits
        .get(&id)
        .is_some_and(|wait| wait.deadline_fleet_ms <= now.fleet_ms)
    {
        draft.record(Event::ClaimWaitEnded(ClaimWaitEnded {
            wait: id,
            cause: ClaimWaitEnd::TimedOut,
        }));
    }
}

/// Ends a request that waits for a claim, because its caller disconnected. Does nothing if the
/// request has already ended.
pub fn cancel_wait(draft: &mut Draft, id: WaitId) {
    if draft.board().waits.contains_key(&id) {
        draft.record(Event::ClaimWaitEnded(ClaimWaitEnded {
            wait: id,
            cause: ClaimWaitEnd::CallerGone,
        }));
    }
}

/// Gives every claim with a time to live its full time again when the daemon starts, because nobody
/// could renew claims while the daemon was down (L5).
pub fn renew_leases(draft: &mut Draft, now: Now) {
    let leased: Vec<_> = draft
        .board()
        .claims
        .values()
        .filter(|claim| claim.ttl_ms.is_some())
        .cloned()
        .collect();
    for claim in leased {
        let expires_fleet_ms = claim
            .latest_end_fleet_ms
            .unwrap_or(u64::MAX)
            .min(now.fleet_ms + claim.ttl_ms.unwrap_or(0));
        if claim
            .expires_fleet_ms
            .is_some_and(|at| at < expires_fleet_ms)
        {
            draft.record(Event::ClaimRenewed(ClaimRenewed {
                claim: claim.id,
                expires_at: Some(expires_fleet_ms),
            }));
        }
    }
}

/// Grants the waiting requests that have become possible, in order of arrival. `freed` are the URIs
/// that just became free.
pub fn serve_waiters(draft: &mut Draft, freed: &[Uri], now: Now) {
    let candidates: BTreeSet<u64> = freed
        .iter()
        .flat_map(|uri| {
            draft
                .board()
                .awaited_patterns
                .overlapping(uri)
                .map(|(id, _)| id)
        })
        .collect();
    for id in candidates {
        let Some(wait) = draft.board().waits.get(&WaitId(id)).cloned() else {
            continue;
        };
        if holders_conflicting_with(draft.board(), WantedUris::from_wait(&wait), now).is_empty() {
            let request = Acquire {
                owner: wait.owner.clone(),
                uris: wait.uris.clone(),
                mode: wait.mode,
                ttl_ms: wait.ttl_ms,
                wait_ms: 0,
                memo: wait.memo.clone(),
            };
            grant(draft, request, Some(wait.id), now);
        }
    }
}
