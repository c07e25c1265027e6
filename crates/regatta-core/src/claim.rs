//! Claims: exclusive or shared leases on URI patterns, with a deadline and a fencing token.
//!
//! One rule of exclusion for everybody: two claims that overlap never live together unless both are shared,
//! not even when one owner asks twice. Only work and the agent that does it do not exclude each other, see
//! [`identity`]. Who must wait stands in one line, in order of arrival; a newcomer that overlaps an earlier waiter
//! stands behind it. Deadlock is refused at the door: a wait that would close a cycle of owners is never written down.

mod identity; // the task, the workspace and the name that running work holds

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::board::{Board, Draft};
use crate::event::{Event, facts};
use crate::ids::{AgentName, AttemptId, ClaimId, LandingId, Now, ProjectName, WaitId};
use crate::landing;
use crate::pattern::Uri;
use crate::project::Project;
use crate::refusal::{Holder, Refusal};

pub(crate) use identity::{
    Party, held_by_attempt, held_by_landing, is_own, name_holders, of_start, of_task, task_holders,
};
pub use identity::{check_known, held_by_work};

/// Who holds a claim.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    Agent(AgentName),
    Attempt(AttemptId),
    Landing(LandingId),
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Owner::Agent(name) => name.fmt(f),
            Owner::Attempt(id) => id.fmt(f),
            Owner::Landing(id) => id.fmt(f),
        }
    }
}

/// Whether others may hold the same at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    #[default]
    Exclusive,
    Shared,
}

/// A lease that is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Claim {
    pub id: ClaimId,
    pub owner: Owner,
    pub uris: Vec<Uri>,
    pub mode: Mode,
    /// Rises with every grant in the fleet: the revision of the grant.
    pub token: u64,
    /// How long it lives without renewal; `None` while something supervised keeps it alive.
    pub ttl_ms: Option<u64>,
    /// When it expires, on the fleet clock.
    pub expires_at: Option<u64>,
    /// The moment past which no renewal reaches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest_at: Option<u64>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub memo: String,
    /// The place in line it came from, so that a caller whose reply was lost finds it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_wait: Option<WaitId>,
    /// When it was granted, for people.
    pub granted_wall: u64,
}

/// A place in the line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Wait {
    pub id: WaitId,
    pub owner: Owner,
    pub uris: Vec<Uri>,
    pub mode: Mode,
    pub ttl_ms: u64,
    pub memo: String,
    /// When the wait ends without a grant, on the fleet clock.
    pub until_at: u64,
    pub since_wall: u64,
}

/// Why a claim ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EndCause {
    Released,
    Expired,
    OwnerEnded,
}

/// Why a wait ended without a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum WaitCause {
    TimedOut,
    CallerGone,
}

facts! {
    /// A claim was granted; `wait` is the place in the line it came from.
    Granted { claim: Claim, wait: Option<WaitId> }
    Renewed { claim: ClaimId, expires_at: Option<u64> }
    /// A claim passed to another owner without ever being free.
    Transferred { claim: ClaimId, to: Owner }
    Released { claim: ClaimId, cause: EndCause }
    Queued { wait: Wait }
    WaitEnded { wait: WaitId, cause: WaitCause }
}

/// What is asked of [`acquire`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Acquire {
    pub owner: Owner,
    pub uris: Vec<Uri>,
    #[serde(default)]
    pub mode: Mode,
    pub ttl_ms: u64,
    /// How long to stand in line; 0 means only to try.
    #[serde(default)]
    pub wait_ms: u64,
    #[serde(default)]
    pub memo: String,
}

/// What [`acquire`] gives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum Acquired {
    Granted { claim: ClaimId, token: u64, ttl_ms: u64 },
    Waiting { wait: WaitId, position: usize },
}

/// The longest a claim lives without renewal: a week.
pub const LONGEST_TTL_MS: u64 = 7 * 24 * 3_600_000;
/// The longest anybody stands in line: a day.
pub const LONGEST_WAIT_MS: u64 = 24 * 3_600_000;
/// How long the trunk may be held by hand, whatever is renewed, unless its project says otherwise.
pub const LONGEST_TRUNK_HOLD_MS: u64 = 600_000;
/// The most patterns in one claim.
pub const MOST_URIS: usize = 512;

/// Grants the set at once, or stands in line for it, or says who is in the way.
pub fn acquire(draft: &mut Draft, mut ask: Acquire, now: Now) -> Result<Acquired, Refusal> {
    if ask.uris.is_empty() || ask.uris.len() > MOST_URIS {
        return Err(Refusal::invalid(
            format!("a claim names 1 to {MOST_URIS} URIs"),
            "name what you need: regatta claim acquire file://shop/src/**",
        ));
    }
    if ask.ttl_ms == 0 || ask.ttl_ms > LONGEST_TTL_MS {
        return Err(Refusal::invalid("a claim lives for 1 ms to 7 days", "give a shorter --ttl and renew it"));
    }
    if ask.wait_ms > LONGEST_WAIT_MS {
        return Err(Refusal::invalid("nobody waits longer than a day", "give a shorter --wait"));
    }
    if ask.memo.len() > 500 {
        return Err(Refusal::invalid("a memo has at most 500 bytes", "say it shorter, or post it: regatta msg send"));
    }
    // Whoever has ended holds nothing, however late its request comes (L11).
    let ended = match &ask.owner {
        Owner::Agent(_) => false,
        Owner::Attempt(id) => !draft.board().attempts.contains_key(id),
        Owner::Landing(id) => !draft.board().landings.contains_key(id),
    };
    if ended {
        return Err(Refusal::invalid(format!("{} has ended", ask.owner), "claim it in an agent's own name"));
    }
    let aliased = identity::aliased(draft.board(), &ask.uris);
    ask.uris.extend(aliased);
    let party = Party::ByHand(&ask.owner);
    let wanted = Wanted { uris: &ask.uris, mode: ask.mode, line: None, party };
    let holders = conflicts(draft.board(), wanted, now);
    if holders.is_empty() {
        let (ttl_ms, id, token) = grant(draft, ask, None, now);
        return Ok(Acquired::Granted { claim: id, token, ttl_ms });
    }
    if ask.wait_ms == 0 {
        return Err(Refusal::ClaimHeld { holders });
    }
    if let Some(cycle) = cycle_through(draft, &ask.owner, holders.iter().map(|it| it.owner.clone())) {
        return Err(Refusal::Deadlock { cycle });
    }
    let most = longest_wait(draft.board(), &ask);
    let wait = Wait {
        id: WaitId(draft.board().counters.wait + 1),
        owner: ask.owner,
        uris: ask.uris,
        mode: ask.mode,
        ttl_ms: ask.ttl_ms,
        memo: ask.memo,
        until_at: now.at + ask.wait_ms.min(most),
        since_wall: now.wall,
    };
    let id = wait.id;
    draft.record(Event::ClaimQueued(Queued { wait }));
    Ok(Acquired::Waiting { wait: id, position: position(draft, id) })
}

/// What work needs for itself while it runs or lands.
pub(crate) struct WorkClaims {
    pub(crate) files: Vec<Uri>,
    /// Whether other work may hold the files, too.
    pub(crate) mode: Mode,
    /// What nobody else may hold, and what work holds by running: see [`identity`].
    pub(crate) identity: Vec<Uri>,
}

/// Grants an attempt its files for as long as it lives, or says who is in the way of these or of its identity. It never
/// waits: a task that cannot have them yet is simply not ready.
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
    hold(draft, Owner::Attempt(attempt), claims.files, claims.mode, now);
    Ok(())
}

/// Grants a landing the files of its work again; the caller has seen that they are free.
pub(crate) fn acquire_for_landing(draft: &mut Draft, landing: LandingId, claims: WorkClaims, now: Now) {
    hold(draft, Owner::Landing(landing), claims.files, claims.mode, now);
}

/// Returns who keeps work of `agent` from having what it needs.
pub(crate) fn work_conflicts(board: &Board, claims: &WorkClaims, agent: &AgentName, now: Now) -> Vec<Holder> {
    let party = Party::Work(agent);
    let files = Wanted { uris: &claims.files, mode: claims.mode, line: None, party };
    let identity = Wanted { uris: &claims.identity, mode: Mode::Exclusive, line: None, party };
    [files, identity].into_iter().flat_map(|wanted| conflicts(board, wanted, now)).collect()
}

/// Grants an agent its own name for as long as it is at work; the caller has seen that it is free.
pub(crate) fn hold_name(draft: &mut Draft, name: &AgentName, memo: String, now: Now) {
    hold_as(draft, (Owner::Agent(name.clone()), memo), vec![Uri::of_agent(name)], Mode::Exclusive, now);
}

/// Grants what lives as long as its owner.
fn hold(draft: &mut Draft, owner: Owner, uris: Vec<Uri>, mode: Mode, now: Now) {
    hold_as(draft, (owner, String::new()), uris, mode, now);
}

fn hold_as(draft: &mut Draft, (owner, memo): (Owner, String), uris: Vec<Uri>, mode: Mode, now: Now) {
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
        expires_at: None,
        latest_at: None,
        memo,
        from_wait: None,
        granted_wall: now.wall,
    };
    draft.record(Event::ClaimGranted(Granted { claim, wait: None }));
}

/// The only place where a leased claim comes to be.
fn grant(draft: &mut Draft, ask: Acquire, wait: Option<WaitId>, now: Now) -> (u64, ClaimId, u64) {
    let id = ClaimId(draft.board().counters.claim + 1);
    let token = draft.next_revision();
    let by_hand = matches!(ask.owner, Owner::Agent(_));
    let latest_at = (by_hand && ask.uris.iter().any(is_trunk)).then(|| now.at + longest_hold(draft.board(), &ask.uris));
    let expires_at = latest_at.unwrap_or(u64::MAX).min(now.at + ask.ttl_ms);
    let claim = Claim {
        id,
        owner: ask.owner,
        uris: ask.uris,
        mode: ask.mode,
        token,
        ttl_ms: Some(ask.ttl_ms),
        expires_at: Some(expires_at),
        latest_at,
        memo: ask.memo,
        from_wait: wait,
        granted_wall: now.wall,
    };
    draft.record(Event::ClaimGranted(Granted { claim, wait }));
    (expires_at - now.at, id, token)
}

/// How long somebody waits for these: for a trunk, by hand, no longer than the project's `merge_timeout`, so that they
/// take other work instead.
fn longest_wait(board: &Board, ask: &Acquire) -> u64 {
    let by_hand = matches!(ask.owner, Owner::Agent(_)) && ask.uris.iter().any(is_trunk);
    let named = |project: &Project| ask.uris.iter().any(|it| it.overlaps(&Uri::of_trunk(&project.name)));
    let allowed = board.projects.values().filter(|it| by_hand && named(it));
    allowed.map(|it| it.settings.landing.merge_timeout.ms()).filter(|it| *it > 0).min().unwrap_or(u64::MAX)
}

/// The projects whose trunks these are.
pub(crate) fn trunks<'a>(board: &'a Board, uris: &'a [Uri]) -> impl Iterator<Item = &'a Project> {
    let trunk = |it: &&Project| uris.iter().any(|uri| is_trunk(uri) && uri.overlaps(&Uri::of_trunk(&it.name)));
    board.projects.values().map(|it| &**it).filter(trunk)
}

/// How long these trunks may be held by hand: what the strictest of their projects allows.
fn longest_hold(board: &Board, uris: &[Uri]) -> u64 {
    let named = |project: &Project| uris.iter().any(|it| it.overlaps(&Uri::of_trunk(&project.name)));
    let allowed = board.projects.values().filter(|it| named(it)).map(|it| it.settings.landing.max_hold.ms());
    allowed.min().unwrap_or(LONGEST_TRUNK_HOLD_MS)
}

/// Says that the claim is held with this token and gives the project's trunk to itself, or why it is not.
pub(crate) fn lends_trunk(board: &Board, under: &landing::Under, project: &ProjectName) -> Result<(), Refusal> {
    let claim = held_on(board, under.claim, under.token)?;
    let trunk = Uri::of_trunk(project);
    if claim.mode != Mode::Exclusive || !claim.uris.iter().any(|it| it.overlaps(&trunk)) {
        return Err(Refusal::invalid(
            format!("{} does not hold {trunk} for itself", under.claim),
            format!("regatta claim acquire {trunk} --ttl 120s --wait 60s"),
        ));
    }
    Ok(())
}

/// Whether it names a project's trunk, or might.
pub(crate) fn is_trunk(uri: &Uri) -> bool {
    uri.as_str().strip_prefix("workspace://").is_some_and(|it| it.ends_with("/default") || it.contains(['*', '?']))
}

/// Prolongs a claim by its TTL. Needs the token (L8).
pub fn renew(draft: &mut Draft, id: ClaimId, token: u64, now: Now) -> Result<u64, Refusal> {
    let claim = held(draft, id, token)?;
    let Some(ttl_ms) = claim.ttl_ms else { return Ok(0) };
    let expires_at = claim.latest_at.unwrap_or(u64::MAX).min(now.at + ttl_ms);
    let left = expires_at.saturating_sub(now.at);
    draft.record(Event::ClaimRenewed(Renewed { claim: id, expires_at: Some(expires_at) }));
    Ok(left)
}

/// Ends a claim. Needs the token (L8).
pub fn release(draft: &mut Draft, id: ClaimId, token: u64) -> Result<(), Refusal> {
    let claim = held(draft, id, token)?;
    // What lives as long as its owner is not let go of before, nor is the fence of a landing; a lease that an attempt
    // asked for is its own to end.
    if claim.ttl_ms.is_none() || matches!(claim.owner, Owner::Landing(_)) {
        let by = claim.owner.to_string();
        return Err(Refusal::InUse { what: id.to_string(), by });
    }
    draft.record(Event::ClaimReleased(Released { claim: id, cause: EndCause::Released }));
    Ok(())
}

fn held(draft: &Draft, id: ClaimId, token: u64) -> Result<std::sync::Arc<Claim>, Refusal> {
    held_on(draft.board(), id, token)
}

fn held_on(board: &Board, id: ClaimId, token: u64) -> Result<std::sync::Arc<Claim>, Refusal> {
    match board.claims.get(&id) {
        None if id.0 > board.counters.claim => {
            Err(Refusal::missing(format!("there is no claim {id}"), "see them: regatta claim list"))
        }
        None => Err(Refusal::ClaimEnded { claim: id }),
        Some(claim) if claim.token != token => Err(Refusal::StaleClaimToken { claim: id }),
        Some(claim) => Ok(claim.clone()),
    }
}

/// Ends every claim and wait of an owner that has ended, in one commit (L11).
pub fn release_all(draft: &mut Draft, owner: &Owner) {
    for claim in draft.board().claims_of(owner) {
        draft.record(Event::ClaimReleased(Released { claim, cause: EndCause::OwnerEnded }));
    }
    for wait in draft.board().waits_of(owner) {
        draft.record(Event::ClaimWaitEnded(WaitEnded { wait, cause: WaitCause::CallerGone }));
    }
}

/// Ends an owner's leased claims and leaves those it keeps by being alive.
pub(crate) fn release_leased(draft: &mut Draft, owner: &Owner) {
    for claim in draft.board().claims_of(owner) {
        if draft.board().claims.get(&claim).is_some_and(|it| it.ttl_ms.is_some()) {
            draft.record(Event::ClaimReleased(Released { claim, cause: EndCause::Released }));
        }
    }
}

/// The lowest ports of a range that nobody holds or waits for, as many as are asked for, or who is in the way.
pub(crate) fn free_ports(draft: &Draft, count: usize, range: (u16, u16), now: Now) -> Result<Vec<u16>, Refusal> {
    let (mut ports, mut holders) = (Vec::new(), Vec::new());
    for port in range.0..=range.1 {
        if ports.len() == count {
            break;
        }
        let in_the_way = in_the_way(draft, &[Uri::of_port(port)], Mode::Exclusive, None, now);
        if in_the_way.is_empty() {
            ports.push(port);
        } else if holders.len() < 5 {
            holders.extend(in_the_way);
        }
    }
    match () {
        () if ports.len() == count => Ok(ports),
        () if holders.is_empty() => Err(Refusal::invalid(
            format!("workspace.ports is {count}, and {} to {} are fewer ports", range.0, range.1),
            "widen workspace.port_range in regatta.toml, or ask for fewer",
        )),
        () => Err(Refusal::ClaimHeld { holders }),
    }
}

/// Grants an attempt ports for as long as it lives. A landing listens nowhere, so they end with the attempt
/// ([`transfer_all`]).
pub(crate) fn lease_ports(
    draft: &mut Draft,
    attempt: AttemptId,
    count: usize,
    range: (u16, u16),
    now: Now,
) -> Result<Vec<u16>, Refusal> {
    let ports = free_ports(draft, count, range, now)?;
    // Each by itself: one that turns out to be taken is replaced alone.
    for port in &ports {
        hold(draft, Owner::Attempt(attempt), vec![Uri::of_port(*port)], Mode::Exclusive, now);
    }
    Ok(ports)
}

/// Hands every claim of one owner to another, without a moment in between. Ports are not handed on.
pub fn transfer_all(draft: &mut Draft, from: &Owner, to: &Owner) {
    let ports = |claim: &ClaimId| draft.board().claims.get(claim).is_some_and(|it| it.uris.iter().all(Uri::is_port));
    let claims: Vec<_> = draft.board().claims_of(from).into_iter().filter(|it| !ports(it)).collect();
    for claim in claims {
        draft.record(Event::ClaimTransferred(Transferred { claim, to: to.clone() }));
    }
}

/// Takes the trunk for a landing, or says who has it.
pub fn take_trunk(draft: &mut Draft, landing: LandingId, trunk: Uri, now: Now) -> Result<u64, Refusal> {
    let ask = Acquire {
        owner: Owner::Landing(landing),
        uris: vec![trunk],
        mode: Mode::Exclusive,
        ttl_ms: TRUNK_TTL_MS,
        wait_ms: 0,
        memo: "moving the trunk".into(),
    };
    match acquire(draft, ask, now)? {
        Acquired::Granted { token, .. } => Ok(token),
        Acquired::Waiting { .. } => Err(Refusal::StaleLanding { landing }),
    }
}

/// How long a landing may take to move the trunk before its fence falls.
pub const TRUNK_TTL_MS: u64 = 120_000;

/// Writes down that a claim's lease ran out, if it did. Expiry is an event, never a reader's comparison.
pub fn expire(draft: &mut Draft, id: ClaimId, now: Now) {
    let due = draft.board().claims.get(&id).is_some_and(|it| it.expires_at.is_some_and(|at| at <= now.at));
    if due {
        draft.record(Event::ClaimReleased(Released { claim: id, cause: EndCause::Expired }));
    }
}

/// Ends a wait whose time ran out.
pub fn expire_wait(draft: &mut Draft, id: WaitId, now: Now) {
    if draft.board().waits.get(&id).is_some_and(|it| it.until_at <= now.at) {
        draft.record(Event::ClaimWaitEnded(WaitEnded { wait: id, cause: WaitCause::TimedOut }));
    }
}

/// Ends a wait whose caller hung up. Asking twice is harmless.
pub fn cancel_wait(draft: &mut Draft, id: WaitId) {
    if draft.board().waits.contains_key(&id) {
        draft.record(Event::ClaimWaitEnded(WaitEnded { wait: id, cause: WaitCause::CallerGone }));
    }
}

/// Gives every leased claim one fresh TTL after the daemon was away: nobody could renew meanwhile (L5).
pub fn refresh(draft: &mut Draft, now: Now) {
    let leased: Vec<_> = draft.board().claims.values().filter(|it| it.ttl_ms.is_some()).cloned().collect();
    for claim in leased {
        let fresh = claim.latest_at.unwrap_or(u64::MAX).min(now.at + claim.ttl_ms.unwrap_or(0));
        if claim.expires_at.is_some_and(|it| it < fresh) {
            draft.record(Event::ClaimRenewed(Renewed { claim: claim.id, expires_at: Some(fresh) }));
        }
    }
}

/// Grants what became free to those who wait for it, in order of arrival. `freed` is what ended just now.
pub fn serve_waiters(draft: &mut Draft, freed: &[Uri], now: Now) {
    let candidates: BTreeSet<u64> =
        freed.iter().flat_map(|uri| draft.board().waiting.overlapping(uri).map(|it| it.0)).collect();
    for number in candidates {
        let Some(wait) = draft.board().waits.get(&WaitId(number)).cloned() else { continue };
        if conflicts(draft.board(), Wanted::by_wait(&wait), now).is_empty() {
            let ask = Acquire {
                owner: wait.owner.clone(),
                uris: wait.uris.clone(),
                mode: wait.mode,
                ttl_ms: wait.ttl_ms,
                wait_ms: 0,
                memo: wait.memo.clone(),
            };
            grant(draft, ask, Some(wait.id), now);
        }
    }
}

/// Who holds, or waits earlier for, something that these URIs overlap.
///
/// `line` is the asker's own place: only waiters before it count, and without one all do (L9).
pub fn in_the_way(draft: &Draft, uris: &[Uri], mode: Mode, line: Option<WaitId>, now: Now) -> Vec<Holder> {
    in_the_way_on(draft.board(), uris, mode, line, now)
}

/// [`in_the_way`] for who only looks.
pub(crate) fn in_the_way_on(board: &Board, uris: &[Uri], mode: Mode, line: Option<WaitId>, now: Now) -> Vec<Holder> {
    conflicts(board, Wanted { uris, mode, line, party: Party::Anybody }, now)
}

/// URIs that somebody wants to hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) uris: &'a [Uri],
    pub(crate) mode: Mode,
    /// The place in the line of whoever wants them, if it waits.
    pub(crate) line: Option<WaitId>,
    pub(crate) party: Party<'a>,
}

impl<'a> Wanted<'a> {
    fn by_wait(wait: &'a Wait) -> Wanted<'a> {
        Wanted { uris: &wait.uris, mode: wait.mode, line: Some(wait.id), party: Party::ByHand(&wait.owner) }
    }
}

/// Returns the claims and the earlier waits that keep `wanted` from being granted.
pub(crate) fn conflicts(board: &Board, wanted: Wanted, now: Now) -> Vec<Holder> {
    let Wanted { uris, mode, line, party } = wanted;
    let mut seen = BTreeSet::new();
    let mut holders = Vec::new();
    for uri in uris {
        for (owner, theirs) in identity::in_use(board, uri, party) {
            let memo = identity::describe(board, &owner);
            let holder = Holder { claim: None, owner, uri: theirs, ends_in_ms: None, memo };
            if !holders.contains(&holder) {
                holders.push(holder);
            }
        }
        for (number, theirs) in board.held.overlapping(uri) {
            let Some(claim) = board.claims.get(&ClaimId(number)) else { continue };
            if (mode == Mode::Exclusive || claim.mode == Mode::Exclusive)
                && !is_own(board, party, theirs, &claim.owner)
                && seen.insert((0, number))
            {
                holders.push(Holder {
                    claim: Some(claim.id),
                    owner: claim.owner.clone(),
                    uri: theirs.clone(),
                    ends_in_ms: claim.expires_at.map(|at| at.saturating_sub(now.at)),
                    memo: claim.memo.clone(),
                });
            }
        }
        for (number, theirs) in board.waiting.overlapping(uri) {
            let Some(wait) = board.waits.get(&WaitId(number)) else { continue };
            let earlier = line.is_none_or(|mine| wait.id < mine);
            if earlier
                && (mode == Mode::Exclusive || wait.mode == Mode::Exclusive)
                && !is_own(board, party, theirs, &wait.owner)
                && seen.insert((1, number))
            {
                holders.push(Holder {
                    claim: None,
                    owner: wait.owner.clone(),
                    uri: theirs.clone(),
                    ends_in_ms: Some(wait.until_at.saturating_sub(now.at)),
                    memo: format!("waiting since earlier as {}", wait.id),
                });
            }
        }
    }
    holders
}

/// The place in line, counting from 1, among those that overlap it.
pub fn position(draft: &Draft, id: WaitId) -> usize {
    let board = draft.board();
    let Some(mine) = board.waits.get(&id) else { return 0 };
    let ahead: BTreeSet<u64> = mine
        .uris
        .iter()
        .flat_map(|uri| board.waiting.overlapping(uri).map(|it| it.0))
        .filter(|it| *it < id.0)
        .collect();
    ahead.len() + 1
}

/// The cycle that would close if `owner` waited for `blockers` (L10).
fn cycle_through(draft: &Draft, owner: &Owner, blockers: impl Iterator<Item = Owner>) -> Option<Vec<Owner>> {
    // Nobody waits for an owner that holds nothing and stands in no line: the usual case, decided at once. Work holds
    // something by running.
    let is_agent = matches!(owner, Owner::Agent(_));
    if is_agent && draft.board().claims_of(owner).is_empty() && draft.board().waits_of(owner).is_empty() {
        return None;
    }
    let mut paths: Vec<Vec<Owner>> = blockers.map(|it| vec![owner.clone(), it]).collect();
    let mut seen = BTreeSet::new();
    while let Some(path) = paths.pop() {
        let last = path.last()?.clone();
        if last == *owner {
            return Some(path[..path.len() - 1].to_vec());
        }
        if !seen.insert(last.clone()) {
            continue;
        }
        for wait in draft.board().waits_of(&last) {
            let Some(wait) = draft.board().waits.get(&wait) else { continue };
            for next in conflicts(draft.board(), Wanted::by_wait(wait), Now::default()) {
                let mut longer = path.clone();
                longer.push(next.owner);
                paths.push(longer);
            }
        }
    }
    None
}
