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
/// Maximum size of the memo (the reason that people see) of a claim, in bytes.
const MAX_MEMO_BYTES: usize = 500;

/// Claims all URIs of the request together. If somebody else holds one of the URIs, queues the
/// request or, if the request does not allow waiting, refuses it and names the holders.
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
            "give a shorter --wait, such as 1h",
        ));
    }
    if request.memo.len() > MAX_MEMO_BYTES {
        return Err(Refusal::invalid(
            format!("--memo is limited to {MAX_MEMO_BYTES} bytes"),
            "shorten the memo, or send the details as a message: regatta msg send",
        ));
    }
    // A request can arrive after its owner has ended. An ended owner must hold nothing, because
    // nobody would release its claim (L11).
    let has_ended = match &request.owner {
        ClaimOwner::Agent(_) => false,
        ClaimOwner::Attempt(id) => !draft.board().attempts.contains_key(id),
        ClaimOwner::Landing(id) => !draft.board().landings.contains_key(id),
    };
    if has_ended {
        return Err(Refusal::invalid(
            format!(
                "the owner {} has ended, so it cannot hold a claim",
                request.owner
            ),
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

/// The claims that an attempt needs while it runs, and that the landing of its work needs until the
/// work has landed.
pub(crate) struct WorkClaims {
    pub(crate) files: Vec<Uri>,
    /// The mode in which the work's files are claimed. With `Shared`, other work may hold shared
    /// claims on the same files.
    pub(crate) mode: ClaimMode,
    /// URIs of the task, its workspace and its agent. Nobody else may hold these URIs while the
    /// work runs; see [`identity`].
    pub(crate) identity: Vec<Uri>,
}

/// Claims an attempt's files for as long as the attempt lives. Refuses and names the holders if
/// others hold these files, or the attempt's task, workspace or agent name. An attempt never waits
/// for claims, because a task is not started while others hold a claim that the task needs.
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

/// Claims the files of finished work once more, for the landing of the work. The caller must have
/// checked that nobody else holds the files.
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

/// Returns the claims and waiting requests of others that prevent work of `agent` from starting.
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

/// Claims an agent's name for the agent itself for as long as the agent works, so that nobody else
/// can act under the name. The caller must have checked that the name is free.
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

/// Grants a claim that does not expire but lives as long as its owner.
fn grant_owned(draft: &mut Draft, owner: ClaimOwner, uris: Vec<Uri>, mode: ClaimMode, now: Now) {
    grant_owned_with_memo(draft, owner, String::new(), uris, mode, now);
}

/// Like [`grant_owned`], but with a memo (a reason that people see). Does nothing if `uris` is
/// empty.
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

/// Grants a claim that expires unless it is renewed. All such claims are created here.
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
