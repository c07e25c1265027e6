//! Granting claims: checks a request, and grants it, queues it or refuses it. Every new claim of the
//! workspace is created in this file.
//!
//! Not here: which claims conflict (see [`conflict`](super::conflict)), and the end of claims.

use crate::board::{Board, Draft};
use crate::event::Event;
use crate::ids::{AgentName, AttemptId, ClaimId, LandingId, Now, WaitId};
use crate::pattern::Uri;
use crate::refusal::{ClaimHolder, Refusal};

use super::conflict::{WantedUris, cycle_through, holders_conflicting_with, position};
use super::identity::{self, Party};
use super::trunk::{is_trunk, max_trunk_hold_ms, max_wait_ms};
use super::{
    Acquire, Acquired, Claim, ClaimGranted, ClaimMode, ClaimOwner, ClaimQueued, ClaimWait,
    MAX_TTL_MS, MAX_URIS, MAX_WAIT_MS,
};

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
pub(super) fn grant_owned(
    draft: &mut Draft,
    owner: ClaimOwner,
    uris: Vec<Uri>,
    mode: ClaimMode,
    now: Now,
) {
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
pub(super) fn grant(
    draft: &mut Draft,
    request: Acquire,
    wait: Option<WaitId>,
    now: Now,
) -> Acquired {
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
