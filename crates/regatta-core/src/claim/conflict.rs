//! Conflicts between claims: which holders prevent a request from being granted, a request's
//! position in the queue, and whether waiting would cause a deadlock.

use std::collections::BTreeSet;

use crate::board::{Board, Draft};
use crate::ids::{ClaimId, Now, WaitId};
use crate::pattern::Uri;
use crate::refusal::ClaimHolder;

use super::{ClaimMode, ClaimOwner, ClaimWait, Party, identity, is_own};

/// Returns the claims and the earlier waiting requests that prevent a new claim on these URIs.
///
/// `own_wait` is the caller's own waiting request, and only requests before `own_wait` count. If
/// `own_wait` is `None`, all waiting requests count (L9).
pub fn conflicting_holders(
    draft: &Draft,
    uris: &[Uri],
    mode: ClaimMode,
    own_wait: Option<WaitId>,
    now: Now,
) -> Vec<ClaimHolder> {
    conflicting_holders_on_board(draft.board(), uris, mode, own_wait, now)
}

/// Like [`conflicting_holders`], for a board that is not part of a draft.
pub(crate) fn conflicting_holders_on_board(
    board: &Board,
    uris: &[Uri],
    mode: ClaimMode,
    own_wait: Option<WaitId>,
    now: Now,
) -> Vec<ClaimHolder> {
    holders_conflicting_with(
        board,
        WantedUris {
            uris,
            mode,
            own_wait,
            party: Party::Anybody,
        },
        now,
    )
}

/// URIs that somebody wants to claim, with the mode of the claim and the party that wants it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WantedUris<'a> {
    pub(crate) uris: &'a [Uri],
    pub(crate) mode: ClaimMode,
    /// The waiting request of the party itself, if the party already waits for the URIs.
    pub(crate) own_wait: Option<WaitId>,
    pub(crate) party: Party<'a>,
}

impl<'a> WantedUris<'a> {
    pub(super) fn from_wait(wait: &'a ClaimWait) -> WantedUris<'a> {
        WantedUris {
            uris: &wait.uris,
            mode: wait.mode,
            own_wait: Some(wait.id),
            party: Party::ByHand(&wait.owner),
        }
    }
}

/// Returns the claims and earlier waiting requests that prevent `wanted` from being granted now.
pub(crate) fn holders_conflicting_with(
    board: &Board,
    wanted: WantedUris,
    now: Now,
) -> Vec<ClaimHolder> {
    let WantedUris {
        uris,
        mode,
        own_wait,
        party,
    } = wanted;
    let mut seen = BTreeSet::new();
    let mut holders = Vec::new();
    for uri in uris {
        for (owner, theirs) in identity::uses_by_others(board, uri, party) {
            let memo = identity::describe(board, &owner);
            let holder = ClaimHolder {
                claim: None,
                owner,
                uri: theirs,
                ends_in_ms: None,
                memo,
            };
            if !holders.contains(&holder) {
                holders.push(holder);
            }
        }
        for (id, theirs) in board.held_patterns.overlapping(uri) {
            let Some(claim) = board.claims.get(&ClaimId(id)) else {
                continue;
            };
            if (mode == ClaimMode::Exclusive || claim.mode == ClaimMode::Exclusive)
                && !is_own(board, party, theirs, &claim.owner)
                && seen.insert((0, id))
            {
                holders.push(ClaimHolder {
                    claim: Some(claim.id),
                    owner: claim.owner.clone(),
                    uri: theirs.clone(),
                    ends_in_ms: claim
                        .expires_fleet_ms
                        .map(|at| at.saturating_sub(now.fleet_ms)),
                    memo: claim.memo.clone(),
                });
            }
        }
        for (id, theirs) in board.awaited_patterns.overlapping(uri) {
            let Some(wait) = board.waits.get(&WaitId(id)) else {
                continue;
            };
            let is_earlier = own_wait.is_none_or(|own| wait.id < own);
            if is_earlier
                && (mode == ClaimMode::Exclusive || wait.mode == ClaimMode::Exclusive)
                && !is_own(board, party, theirs, &wait.owner)
                && seen.insert((1, id))
            {
                holders.push(ClaimHolder {
                    claim: None,
                    owner: wait.owner.clone(),
                    uri: theirs.clone(),
                    ends_in_ms: Some(wait.deadline_fleet_ms.saturating_sub(now.fleet_ms)),
                    memo: format!("queued earlier as {}", wait.id),
                });
            }
        }
    }
    holders
}

/// Returns the position, counted from 1, of a request that waits for a claim. Only earlier requests
/// that overlap this request count.
pub fn position(draft: &Draft, id: WaitId) -> usize {
    let board = draft.board();
    let Some(wait) = board.waits.get(&id) else {
        return 0;
    };
    let waits_ahead: BTreeSet<u64> = wait
        .uris
        .iter()
        .flat_map(|uri| {
            board
                .awaited_patterns
                .overlapping(uri)
                .map(|(number, _)| number)
        })
        .filter(|number| *number < id.0)
        .collect();
    waits_ahead.len() + 1
}

/// Returns the owners that would all wait for each other if `owner` waited for `blockers`, or
/// `None` if there would be no such deadlock (L10).
pub(super) fn cycle_through(
    draft: &Draft,
    owner: &ClaimOwner,
    blockers: impl Iterator<Item = ClaimOwner>,
) -> Option<Vec<ClaimOwner>> {
    // The usual case needs no search: nobody can be waiting for an agent that holds nothing and is
    // queued for nothing. Attempts and landings always need the search, because they hold their
    // task and workspace without a stored claim.
    let is_agent = matches!(owner, ClaimOwner::Agent(_));
    if is_agent
        && draft.board().claims_of(owner).is_empty()
        && draft.board().waits_of(owner).is_empty()
    {
        return None;
    }
    let mut paths: Vec<Vec<ClaimOwner>> = blockers
        .map(|blocker| vec![owner.clone(), blocker])
        .collect();
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
            let Some(wait) = draft.board().waits.get(&wait) else {
                continue;
            };
            for holder in
                holders_conflicting_with(draft.board(), WantedUris::from_wait(wait), Now::default())
            {
                let mut next_path = path.clone();
                next_path.push(holder.owner);
                paths.push(next_path);
            }
        }
    }
    None
}
