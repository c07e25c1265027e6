//! Rules for the claims (leases on files and other things) of an attempt.

use super::{AttemptPrincipal, not_allowed};
use crate::board::Board;
use crate::claim::ClaimOwner;
use crate::ids::ClaimId;
use crate::pattern::Uri;
use crate::refusal::Refusal;

/// Maximum number of claims that an attempt may acquire in addition to the claim on its task's
/// files.
const MAX_CLAIMS: usize = 32;
/// Maximum time that a claim of an attempt is valid without being renewed.
pub(super) const MAX_TTL_MS: u64 = 30 * 60_000;

impl AttemptPrincipal {
    fn claim_owner(&self) -> ClaimOwner {
        ClaimOwner::Attempt(self.attempt)
    }

    /// Checks that an attempt may claim the things with these URIs. The attempt may claim files of
    /// its project, ports, and its own task, workspace and agent name. URIs that protect people's
    /// work or the trunk are refused.
    pub(super) fn require_claimable(&self, uris: &[Uri]) -> Result<(), Refusal> {
        let (project, task, agent) = (&self.project, self.task, &self.agent);
        for uri in uris {
            let text = uri.as_str();
            let is_allowed = text
                .strip_prefix(&format!("file://{project}/"))
                .is_some_and(|path| self.is_bounded(path))
                || text.starts_with("port://")
                || text == format!("task://{project}/{task}")
                || text == format!("workspace://{project}/{task}")
                || text == format!("agent://{agent}")
                || (self.is_lead() && text == format!("workspace://{project}/default"));
            if !is_allowed {
                return Err(Refusal::not_yours(
                    format!("an attempt cannot claim {text}"),
                    format!(
                        "claim files or a directory of your project (file://{project}/src/*) or \
                        ports (port://…)"
                    ),
                ));
            }
        }
        Ok(())
    }

    /// Returns whether an attempt may claim the files that match a pattern. An attempt may claim
    /// single files or one directory, and a lead may also claim everything below a directory. An
    /// attempt cannot claim a whole project or its top directory, because no other task could then
    /// start. The files of the attempt's own task are claimed automatically.
    fn is_bounded(&self, path: &str) -> bool {
        let has_wildcard = |segment: &str| segment.contains(['*', '?']);
        let top = path.split('/').next().unwrap_or_default();
        !has_wildcard(top) && (self.is_lead() || !path.split('/').any(|segment| segment == "**"))
    }

    /// Checks that the attempt has acquired fewer claims than the limit.
    pub(super) fn require_room_for_claim(&self, board: &Board) -> Result<(), Refusal> {
        let owner = self.claim_owner();
        let held_claims = board
            .claims
            .values()
            .filter(|claim| claim.owner == owner && claim.ttl_ms.is_some())
            .count();
        if held_claims < MAX_CLAIMS {
            return Ok(());
        }
        Err(Refusal::TooMany {
            what: format!(
                "the attempt {} already holds {held_claims} claims, which is the limit",
                self.attempt
            ),
            hint: "release claims that you no longer need".into(),
        })
    }

    /// Checks that the attempt itself acquired this claim. The attempt cannot release the automatic
    /// claim on the files of its task, because other attempts could then write the same files.
    pub(super) fn require_holds_claim(&self, board: &Board, id: ClaimId) -> Result<(), Refusal> {
        let Some(claim) = board.claims.get(&id) else {
            return Err(Refusal::ClaimEnded { claim: id });
        };
        if claim.owner != self.claim_owner() {
            return Err(not_allowed(&id.to_string()));
        }
        if claim.ttl_ms.is_some() {
            return Ok(());
        }
        Err(Refusal::not_yours(
            format!(
                "{id} covers the files of your task and lasts as long as your attempt, so you \
                cannot release it"
            ),
            "finish the task or give up instead",
        ))
    }
}
