//! Claims on a project's trunk, the branch onto which finished work lands. This module limits how
//! long people and agents may hold the trunk or wait for it, and makes the claim under which a
//! landing moves the trunk.

use crate::board::{Board, Draft};
use crate::ids::{LandingId, Now, ProjectName};
use crate::landing;
use crate::pattern::Uri;
use crate::project::Project;
use crate::refusal::Refusal;

use super::{Acquire, Acquired, ClaimMode, ClaimOwner, acquire, require_claim_on_board};

/// Maximum time for which an agent may hold the trunk by hand, however often it renews the claim,
/// unless the project sets another limit.
pub const MAX_TRUNK_HOLD_MS: u64 = 600_000;

/// The time for which a landing's claim on the trunk lives. The landing must have moved the trunk
/// by then.
pub const TRUNK_TTL_MS: u64 = 120_000;

/// Returns how long `request` may wait at most, in milliseconds. A wait by hand for a trunk is
/// limited to the project's `merge_timeout`, so that the agent does other work instead.
pub(super) fn max_wait_ms(board: &Board, request: &Acquire) -> u64 {
    let by_hand =
        matches!(request.owner, ClaimOwner::Agent(_)) && request.uris.iter().any(is_trunk);
    let is_named = |project: &Project| {
        request
            .uris
            .iter()
            .any(|uri| uri.overlaps(&Uri::for_trunk(&project.name)))
    };
    if !by_hand {
        return u64::MAX;
    }
    let timeouts = board
        .projects
        .values()
        .filter(|project| is_named(project))
        .map(|project| project.settings.landing.merge_timeout.ms());
    timeouts
        .filter(|timeout| *timeout > 0)
        .min()
        .unwrap_or(u64::MAX)
}

/// Returns the projects that `uris` concern: one of the URIs names the project's trunk, or is a
/// pattern that matches the trunk.
pub(crate) fn trunk_projects<'a>(
    board: &'a Board,
    uris: &'a [Uri],
) -> impl Iterator<Item = &'a Project> {
    let has_trunk_named = |project: &&Project| {
        uris.iter()
            .any(|uri| is_trunk(uri) && uri.overlaps(&Uri::for_trunk(&project.name)))
    };
    board
        .projects
        .values()
        .map(|project| &**project)
        .filter(has_trunk_named)
}

/// Returns how long these trunks may be held by hand, in milliseconds: the smallest `max_hold` of
/// their projects.
pub(super) fn max_trunk_hold_ms(board: &Board, uris: &[Uri]) -> u64 {
    let is_named = |project: &Project| {
        uris.iter()
            .any(|uri| uri.overlaps(&Uri::for_trunk(&project.name)))
    };
    let limits = board
        .projects
        .values()
        .filter(|project| is_named(project))
        .map(|project| project.settings.landing.max_hold.ms());
    limits.min().unwrap_or(MAX_TRUNK_HOLD_MS)
}

/// Checks a claim on the trunk that somebody lends to Regatta for a landing. The claim must still
/// be held, its token must be right, and it must hold the project's trunk exclusively.
pub(crate) fn check_lent_trunk(
    board: &Board,
    lent: &landing::LentTrunkClaim,
    project: &ProjectName,
) -> Result<(), Refusal> {
    let claim = require_claim_on_board(board, lent.claim, lent.token)?;
    let trunk = Uri::for_trunk(project);
    if claim.mode != ClaimMode::Exclusive || !claim.uris.iter().any(|uri| uri.overlaps(&trunk)) {
        return Err(Refusal::invalid(
            format!("the claim {} does not hold {trunk} exclusively", lent.claim),
            format!("acquire the claim first: regatta claim acquire {trunk} --ttl 120s --wait 60s"),
        ));
    }
    Ok(())
}

/// Returns whether `uri` names the trunk of a project, or is a pattern that may match a trunk.
pub(crate) fn is_trunk(uri: &Uri) -> bool {
    uri.as_str()
        .strip_prefix("workspace://")
        .is_some_and(|path| path.ends_with("/default") || path.contains(['*', '?']))
}

/// Claims the trunk for a landing and returns the claim's token, or refuses and names the holder.
pub fn claim_trunk(
    draft: &mut Draft,
    landing: LandingId,
    trunk: Uri,
    now: Now,
) -> Result<u64, Refusal> {
    let request = Acquire {
        owner: ClaimOwner::Landing(landing),
        uris: vec![trunk],
        mode: ClaimMode::Exclusive,
        ttl_ms: TRUNK_TTL_MS,
        wait_ms: 0,
        memo: "moving the trunk".into(),
    };
    match acquire(draft, request, now)? {
        Acquired::Granted { token, .. } => Ok(token),
        Acquired::Waiting { .. } => Err(Refusal::StaleLanding { landing }),
    }
}
