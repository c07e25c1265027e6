//! Implements the API verbs for claims (leases on files and other things): acquire, renew, list and
//! check.
//!
//! A claim that an attempt acquires belongs to the attempt and ends with it. Every other claim
//! belongs to an agent. If a caller waits for a claim, the engine answers as soon as the claim is
//! granted. The rules about conflicts and deadlocks are in `regatta_core::claim`.

use regatta_api::view::WorkClaimView;

use regatta_core::claim;
use regatta_core::ids::ClaimId;

use super::*;

impl VerbHandler<'_> {
    pub(super) async fn claim_acquire(&self, input: input::ClaimAcquire) -> Reply<GrantedClaim> {
        // A claim (lease) that an attempt acquires belongs to the attempt, so that the claim ends
        // together with the attempt.
        let owner = match &self.principal {
            Principal::Attempt { id, .. } => ClaimOwner::Attempt(*id),
            Principal::Owner | Principal::Named { .. } | Principal::Firing { .. } => {
                ClaimOwner::Agent(input.agent.clone())
            }
        };
        claim::check_agent_and_project(&self.board(), &input.agent, &input.uris, &self.actor)
            .map_err(|refusal| Problem::from(&refusal))?;
        let acquire = Acquire {
            owner,
            uris: input.uris,
            mode: input.mode,
            ttl_ms: input.ttl_ms,
            wait_ms: input.wait_ms,
            memo: input.memo,
        };
        let acquired = self
            .engine()
            .acquire(
                Actor::Agent(input.agent),
                self.idempotency_key.clone(),
                acquire,
            )
            .await
            .map_err(problem_from_failure)?;
        match acquired.outcome {
            CommandOutcome::Claim(Acquired::Granted {
                claim,
                token,
                ttl_ms,
            }) => reply(
                acquired.revision,
                GrantedClaim {
                    claim,
                    token,
                    ttl_ms,
                },
            ),
            other => Err(unexpected_outcome(&other)),
        }
    }

    pub(super) async fn claim_renew(&self, input: input::HeldClaimInput) -> Reply<GrantedClaim> {
        match self
            .run(Command::Renew {
                claim: input.claim,
                token: input.token,
            })
            .await?
        {
            (revision, CommandOutcome::Renewed { ttl_ms }) => reply(
                revision,
                GrantedClaim {
                    claim: input.claim,
                    token: input.token,
                    ttl_ms,
                },
            ),
            other => Err(unexpected_outcome(&other.1)),
        }
    }

    pub(super) async fn claim_list(
        &self,
        _: input::EmptyInput,
        page: &PageRequest,
    ) -> PageReply<ClaimsView> {
        let (board, now) = (self.board(), self.engine().now());
        let claims = board.claims.range(page.id_range::<ClaimId>()?);
        let held = page.first_of(claims, |(_, claim)| ClaimView::new(&board, claim, now));
        let view = held.map(|held| ClaimsView {
            held,
            by_work: claim::held_by_work(&board)
                .filter(|(_, uris)| !uris.is_empty())
                .map(|(owner, uris)| WorkClaimView { owner, uris })
                .collect(),
            waiting: board
                .waits
                .values()
                .map(|claim_wait| ClaimWaitView::new(claim_wait, now))
                .collect(),
        });
        reply(board.revision, view)
    }

    pub(super) async fn claim_check(&self, input: input::UrisInput) -> Reply<ClaimCheckView> {
        let (board, now) = (self.board(), self.engine().now());
        let holders = claim::conflicting_holders(
            &Draft::new(&board, now),
            &input.uris,
            ClaimMode::Exclusive,
            None,
            now,
        );
        reply(
            board.revision,
            ClaimCheckView {
                free: holders.is_empty(),
                holders,
            },
        )
    }
}
