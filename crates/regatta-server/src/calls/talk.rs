//! Verbs of claims.

use regatta_api::view::WorkClaimView;

use super::*;

impl Caller<'_> {
    pub(super) async fn claim_acquire(&self, ask: input::ClaimAcquire) -> Json {
        // Claims of an attempt end with the attempt.
        let owner = match &self.visitor {
            Visitor::Attempt { id, .. } => Owner::Attempt(*id),
            Visitor::Owner | Visitor::Named { .. } | Visitor::Firing { .. } => Owner::Agent(ask.agent.clone()),
        };
        claim::check_known(&self.board(), &ask.agent, &ask.uris, &self.by)
            .map_err(|refusal| Problem::from(&refusal))?;
        let acquire =
            Acquire { owner, uris: ask.uris, mode: ask.mode, ttl_ms: ask.ttl_ms, wait_ms: ask.wait_ms, memo: ask.memo };
        let reply = self.engine().acquire(Actor::Agent(ask.agent), self.key.clone(), acquire).await.map_err(refused)?;
        match reply.outcome {
            Outcome::Claim(Acquired::Granted { claim, token, ttl_ms }) => {
                answer(reply.revision, &GrantedClaim { claim, token, ttl_ms })
            }
            other => Err(unexpected(&other)),
        }
    }

    pub(super) async fn claim_renew(&self, ask: input::ClaimHeld) -> Json {
        match self.ask(Command::Renew { claim: ask.claim, token: ask.token }).await? {
            (revision, Outcome::Renewed { ttl_ms }) => {
                answer(revision, &GrantedClaim { claim: ask.claim, token: ask.token, ttl_ms })
            }
            other => Err(unexpected(&other.1)),
        }
    }

    pub(super) fn claim_list(&self) -> Json {
        let (board, now) = (self.board(), self.engine().now());
        let view = ClaimsView {
            held: board.claims.values().map(|it| ClaimView::of(&board, it, now)).collect(),
            by_work: claim::held_by_work(&board)
                .filter(|(_, uris)| !uris.is_empty())
                .map(|(owner, uris)| WorkClaimView { owner, uris })
                .collect(),
            waiting: board.waits.values().map(|it| WaitView::of(it, now)).collect(),
        };
        answer(board.revision, &view)
    }

    pub(super) fn claim_check(&self, ask: &input::Uris) -> Json {
        let (board, now) = (self.board(), self.engine().now());
        let holders = claim::in_the_way(&Draft::of(&board, now), &ask.uris, Mode::Exclusive, None, now);
        answer(board.revision, &CheckView { free: holders.is_empty(), holders })
    }
}
