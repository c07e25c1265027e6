//! Claims: exclusive or shared leases on URI patterns, with a deadline and a fencing token.
//!
//! The same rule holds for everybody: two overlapping claims exist at the same time only if both
//! are shared, even when one owner asks twice. The only exception is an agent and its own work, see
//! [`identity`]. Requests that must wait form one queue in order of arrival. A new request that
//! overlaps an earlier wait is queued behind it. A wait that would close a cycle of owners is
//! refused and never stored, so there is no deadlock.
//!
//! Not here: the files that a task claims (see [`manifest`](crate::manifest)), and the test for an
//! overlap of two patterns (see [`pattern`](crate::pattern)).

mod conflict; // the holders that keep a request from being granted
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
use crate::refusal::{ClaimHolder, Refusal};

use conflict::cycle_through;
pub(crate) use conflict::{WantedUris, conflicting_holders_on_board, holders_conflicting_with};
pub use conflict::{conflicting_holders, position};
pub(crate) use identity::{
    Party, held_by_attempt, held_by_landing, is_own, name_holders, task_holders, uris_of_start,
    uris_of_task,
};
pub use identity::{check_agent_and_project, held_by_work};
pub(crate) use ports::{free_ports, lease_ports};
pub use trunk::{MAX_TRUNK_HOLD_MS, TRUNK_TTL_MS, claim_trunk};
pub(crate) use trunk::{check_lent_trunk, is_trunk, trunk_projects};
use trunk::{max_trunk_hold_ms, max_wait_ms};

/// The holder of a claim.
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

/// The sharing rule of a claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ClaimMode {
    #[default]
    Exclusive,
    Shared,
}

/// A lease that somebody holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Claim {
    pub id: ClaimId,
    pub owner: ClaimOwner,
    pub uris: Vec<Uri>,
    pub mode: ClaimMode,
    /// The revision at which the claim was granted. It is higher than every earlier token of the
    /// fleet.
    pub token: u64,
    /// The time to live without renewal. `None` while a supervised owner keeps the claim alive.
    pub ttl_ms: Option<u64>,
    /// The time of expiry, on the fleet clock.
    #[serde(rename = "expires_at")]
    pub expires_fleet_ms: Option<u64>,
    /// The latest time to which a renewal can extend the claim, on the fleet clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "latest_at")]
    pub latest_end_fleet_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub memo: String,
    /// The wait that the claim was granted to, so that a caller that lost the reply finds its
    /// claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_wait: Option<WaitId>,
    /// The date of the grant, for people.
    #[serde(rename = "granted_wall")]
    pub granted_unix_ms: u64,
}

/// A queued request for a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClaimWait {
    pub id: WaitId,
    pub owner: ClaimOwner,
    pub uris: Vec<Uri>,
    pub mode: ClaimMode,
    pub ttl_ms: u64,
    pub memo: String,
    /// The time at which the wait ends without a grant, on the fleet clock.
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

/// The reason why a wait ended without a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ClaimWaitEnd {
    TimedOut,
    CallerGone,
}

facts! {
    /// A claim was granted. `wait` is the wait that it was granted to.
    ClaimGranted { claim: Claim, wait: Option<WaitId> }
    ClaimRenewed { claim: ClaimId, expires_at: Option<u64> }
    /// A claim passed to another owner, and was never free in between.
    ClaimTransferred { claim: ClaimId, to: ClaimOwner }
    ClaimReleased { claim: ClaimId, cause: ClaimEndCause }
    ClaimQueued { wait: ClaimWait }
    ClaimWaitEnded { wait: WaitId, cause: ClaimWaitEnd }
}

/// The arguments of [`acquire`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Acquire {
    pub owner: ClaimOwner,
    pub uris: Vec<Uri>,
    #[serde(default)]
    pub mode: ClaimMode,
    pub ttl_ms: u64,
    /// The longest time to wait; with 0 the request does not wait.
    #[serde(default)]
    pub wait_ms: u64,
    #[serde(default)]
    pub memo: String,
}

/// The result of [`acquire`].
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

/// The longest time to live without renewal: a week.
pub const MAX_TTL_MS: u64 = 7 * 24 * 3_600_000;
/// The longest wait for a claim: a day.
pub const MAX_WAIT_MS: u64 = 24 * 3_600_000;
/// The largest number of patterns in one claim.
pub const MAX_URIS: usize = 512;
/// The largest memo of a claim, in bytes.
const MAX_MEMO_BYTES: usize = 500;

/// Grants all URIs at once. If somebody holds one of them, queues a wait, or refuses and names the
/// holders.
pub fn acquire(draft: &mut Draft, mut request: Acquire, now: Now) -> Result<Acquired, Refusal> {
    if request.uris.is_empty() || request.uris.len() > MAX_URIS {
        return Err(Refusal::invalid(
            format!("a claim must name 1 to {MAX_URIS} URIs"),
            "name the files that you need: regatta claim acquire file://shop/src/**",
        ));
    }
    if request.ttl_ms == 0 || request.ttl_ms > MAX_TTL_MS {
        return Err(Refusal::invalid(
            "--ttl must be between 1 ms and 7 days",
            "give a shorter --ttl and renew the claim: regatta claim renew",
        ));
    }
    if request.wait_ms > MAX_WAIT_MS {
        return Err(Refusal::invalid(
            "--wait is limited to 24h",
            "give a shorter --wait",
        ));
    }
    if request.memo.len() > MAX_MEMO_BYTES {
        return Err(Refusal::invalid(
            format!("--memo is limited to {MAX_MEMO_BYTES} bytes"),
            "shorten the memo, or send a message: regatta msg send",
        ));
    }
    // An owner that has ended holds nothing, however late its request arrives (L11).
    let has_ended = match &request.owner {
        ClaimOwner::Agent(_) => false,
        ClaimOwner::Attempt(id) => !draft.board().attempts.contains_key(id),
        ClaimOwner::Landing(id) => !draft.board().landings.contains_key(id),
    };
    if has_ended {
        return Err(Refusal::invalid(
            format!("{} has ended, so it cannot hold a claim", request.owner),
            "claim the URIs for an agent: regatta claim acquire URI --as AGENT",
        ));
    }
    let aliased_tasks = identity::tasks_by_alias(draft.board(), &request.uris);
    request.uris.extend(aliased_tasks);
    let party = Party::ByHand(&request.owner);
    let wanted = WantedUris {
        uris: &request.uris,
        mode: request.mode,
        own_wait: None,
        party,
    };
    let holders = holders_conflicting_with(draft.board(), wanted, now);
    if holders.is_empty() {
        return Ok(grant(draft, request, None, now));
    }
    if request.wait_ms == 0 {
        return Err(Refusal::ClaimHeld { holders });
    }
    let blockers = holders.iter().map(|holder| holder.owner.clone());
    if let Some(cycle) = cycle_through(draft, &request.owner, blockers) {
        return Err(Refusal::Deadlock { cycle });
    }
    let longest_wait_ms = max_wait_ms(draft.board(), &request);
    let wait = ClaimWait {
        id: WaitId(draft.board().counters.wait + 1),
        owner: request.owner,
        uris: request.uris,
        mode: request.mode,
        ttl_ms: request.ttl_ms,
        memo: request.memo,
        deadline_fleet_ms: now.fleet_ms + request.wait_ms.min(longest_wait_ms),
        since_unix_ms: now.unix_ms,
    };
    let id = wait.id;
    draft.record(Event::ClaimQueued(ClaimQueued { wait }));
    Ok(Acquired::Waiting {
        wait: id,
        position: position(draft, id),
    })
}

/// The claims that work needs while it runs or lands.
pub(crate) struct WorkClaims {
    pub(crate) files: Vec<Uri>,
    /// The mode for the files: with `Shared`, other work may hold them too.
    pub(crate) mode: ClaimMode,
    /// URIs that nobody else may hold and that the work holds implicitly while it runs, see
    /// [`identity`].
    pub(crate) identity: Vec<Uri>,
}

/// Grants an attempt its files for as long as it lives, or refuses and names the holders of these
/// files or of its identity. An attempt never waits for claims, because a task that cannot have
/// them yet is not ready.
pub(crate) fn acquire_for_attempt(
    draft: &mut Draft,
    attempt: AttemptId,
    agent: &AgentName,
    claims: WorkClaims,
    now: Now,
) -> Result<(), Refusal> {
    let holders = work_conflicts(draft.board(), &claims, agent, now);
    if !holders.is_empty() {
        return Err(Refusal::ClaimHeld { holders });
    }
    grant_owned(
        draft,
        ClaimOwner::Attempt(attempt),
        claims.files,
        claims.mode,
        now,
    );
    Ok(())
}

/// Grants a landing the files of its work again. The caller has checked that they are free.
pub(crate) fn acquire_for_landing(
    draft: &mut Draft,
    landing: LandingId,
    claims: WorkClaims,
    now: Now,
) {
    grant_owned(
        draft,
        ClaimOwner::Landing(landing),
        claims.files,
        claims.mode,
        now,
    );
}

/// Returns the claims and waits of others that keep work of `agent` from starting.
pub(crate) fn work_conflicts(
    board: &Board,
    claims: &WorkClaims,
    agent: &AgentName,
    now: Now,
) -> Vec<ClaimHolder> {
    let party = Party::Work(agent);
    let files = WantedUris {
        uris: &claims.files,
        mode: claims.mode,
        own_wait: None,
        party,
    };
    let identity = WantedUris {
        uris: &claims.identity,
        mode: ClaimMode::Exclusive,
        own_wait: None,
        party,
    };
    [files, identity]
        .into_iter()
        .flat_map(|wanted| holders_conflicting_with(board, wanted, now))
        .collect()
}

/// Grants an agent its own name for as long as it works. The caller has checked that the name is
/// free.
pub(crate) fn claim_agent_name(draft: &mut Draft, name: &AgentName, memo: String, now: Now) {
    grant_owned_with_memo(
        draft,
        ClaimOwner::Agent(name.clone()),
        memo,
        vec![Uri::for_agent(name)],
        ClaimMode::Exclusive,
        now,
    );
}

/// Grants a claim that lives as long as its owner.
fn grant_owned(draft: &mut Draft, owner: ClaimOwner, uris: Vec<Uri>, mode: ClaimMode, now: Now) {
    grant_owned_with_memo(draft, owner, String::new(), uris, mode, now);
}

/// Grants a claim that lives as long as its owner, with a memo. Without URIs, does nothing.
fn grant_owned_with_memo(
    draft: &mut Draft,
    owner: ClaimOwner,
    memo: String,
    uris: Vec<Uri>,
    mode: ClaimMode,
    now: Now,
) {
    if uris.is_empty() {
        return;
    }
    let id = ClaimId(draft.board().counters.claim + 1);
    let claim = Claim {
        id,
        owner,
        uris,
        mode,
        token: draft.next_revision(),
        ttl_ms: None,
        expires_fleet_ms: None,
        latest_end_fleet_ms: None,
        memo,
        from_wait: None,
        granted_unix_ms: now.unix_ms,
    };
    draft.record(Event::ClaimGranted(ClaimGranted { claim, wait: None }));
}

/// Grants a claim with a time to live. No other function creates such a claim.
fn grant(draft: &mut Draft, request: Acquire, wait: Option<WaitId>, now: Now) -> Acquired {
    let id = ClaimId(draft.board().counters.claim + 1);
    let token = draft.next_revision();
    let by_hand = matches!(request.owner, ClaimOwner::Agent(_));
    let latest_end_fleet_ms = (by_hand && request.uris.iter().any(is_trunk))
        .then(|| now.fleet_ms + max_trunk_hold_ms(draft.board(), &request.uris));
    let expires_fleet_ms = latest_end_fleet_ms
        .unwrap_or(u64::MAX)
        .min(now.fleet_ms + request.ttl_ms);
    let claim = Claim {
        id,
        owner: request.owner,
        uris: request.uris,
        mode: request.mode,
        token,
        ttl_ms: Some(request.ttl_ms),
        expires_fleet_ms: Some(expires_fleet_ms),
        latest_end_fleet_ms,
        memo: request.memo,
        from_wait: wait,
        granted_unix_ms: now.unix_ms,
    };
    draft.record(Event::ClaimGranted(ClaimGranted { claim, wait }));
    Acquired::Granted {
        claim: id,
        token,
        ttl_ms: expires_fleet_ms - now.fleet_ms,
    }
}

/// Extends a claim by its TTL and returns the time left in milliseconds. Needs the token (L8).
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

/// Ends a claim. Needs the token (L8).
pub fn release(draft: &mut Draft, id: ClaimId, token: u64) -> Result<(), Refusal> {
    let claim = require_claim(draft, id, token)?;
    // A claim that lives as long as its owner, and the fence of a landing, cannot be released
    // early. An attempt may release a lease that it asked for.
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

/// Returns the claim if `token` is its token.
fn require_claim(draft: &Draft, id: ClaimId, token: u64) -> Result<Arc<Claim>, Refusal> {
    require_claim_on_board(draft.board(), id, token)
}

/// Like [`require_claim`], but needs only a board.
fn require_claim_on_board(board: &Board, id: ClaimId, token: u64) -> Result<Arc<Claim>, Refusal> {
    match board.claims.get(&id) {
        None if id.0 > board.counters.claim => Err(Refusal::missing(
            format!("there is no claim {id}"),
            "see them: regatta claim list",
        )),
        None => Err(Refusal::ClaimEnded { claim: id }),
        Some(claim) if claim.token != token => Err(Refusal::StaleClaimToken { claim: id }),
        Some(claim) => Ok(claim.clone()),
    }
}

/// Ends every claim and wait of an owner that has ended, in one commit (L11).
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

/// Ends an owner's leased claims and keeps the claims that live as long as the owner.
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

/// Transfers every claim of one owner to another, so that no claim is free in between. Ports are
/// not transferred.
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

/// Records the expiry of a claim whose deadline has passed. Expiry is an event, and no reader
/// compares times.
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

/// Ends a wait whose deadline has passed.
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

/// Ends a wait whose caller disconnected. A second call does nothing.
pub fn cancel_wait(draft: &mut Draft, id: WaitId) {
    if draft.board().waits.contains_key(&id) {
        draft.record(Event::ClaimWaitEnded(ClaimWaitEnded {
            wait: id,
            cause: ClaimWaitEnd::CallerGone,
        }));
    }
}

/// Renews every leased claim by one TTL after the daemon was down, because nobody could renew in
/// the meantime (L5).
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

/// Grants the waits that became possible, in order of arrival. `freed` are the URIs that just
/// became free.
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
