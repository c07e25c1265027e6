//! Verbs between agents: claims and messages.

use super::*;

impl Caller<'_> {
    pub(super) async fn claim_acquire(&self, ask: input::ClaimAcquire) -> Json {
        // An attempt's claims end with it.
        let owner = match &self.visitor {
            Visitor::Attempt { id, .. } => Owner::Attempt(*id),
            Visitor::Owner | Visitor::Named { .. } => Owner::Agent(ask.agent.clone()),
        };
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
            held: board.claims.values().map(|it| ClaimView::of(it, now)).collect(),
            waiting: board.waits.values().map(|it| WaitView::of(it, now)).collect(),
        };
        answer(board.revision, &view)
    }

    pub(super) fn claim_check(&self, ask: &input::Uris) -> Json {
        let (board, now) = (self.board(), self.engine().now());
        let holders = claim::in_the_way(&Draft::of(&board, now), &ask.uris, Mode::Exclusive, None, now);
        answer(board.revision, &CheckView { free: holders.is_empty(), holders })
    }

    pub(super) async fn msg_send(&self, ask: input::MsgSend) -> Json {
        let by = ask.agent.map_or(self.by.clone(), Actor::Agent);
        let post = bus::Post { channel: ask.channel, text: ask.text, labels: ask.labels, reply_to: ask.reply_to };
        match self.ask_as(by, Command::Post(post)).await? {
            (revision, Outcome::Message(id)) => {
                let filter = MessageFilter { after: Some(MessageId(id.0 - 1)), limit: 1, ..MessageFilter::default() };
                let sent = self.read(move |history| history.messages(&filter)).await?;
                answer(revision, &sent.first())
            }
            other => Err(unexpected(&other.1)),
        }
    }

    pub(super) async fn msg_history(&self, ask: input::MsgHistory) -> Json {
        let filter = MessageFilter {
            channel: Some(ask.channel),
            label: ask.label,
            from: ask.from,
            mention: None,
            after: ask.after,
            limit: ask.limit.clamp(1, 10_000),
            ..MessageFilter::default()
        };
        let messages = self.read(move |history| history.messages(&filter)).await?;
        answer(self.board().revision, &messages)
    }

    pub(super) async fn msg_wait(&self, ask: input::MsgWait) -> Json {
        let mut bell = self.shared.hub.bell();
        let mut seen = self.board().counters.message;
        let after = ask.after.unwrap_or(MessageId(seen));
        let deadline = deadline(ask.timeout_ms);
        let filter = MessageFilter {
            channel: Some(ask.channel),
            label: ask.label,
            from: ask.from,
            mention: ask.mention,
            after: Some(after),
            limit: 1,
            ..MessageFilter::default()
        };
        loop {
            if seen > after.0 {
                let filter = filter.clone();
                if let Some(found) = self.read(move |history| history.messages(&filter)).await?.into_iter().next() {
                    return answer(self.board().revision, &found);
                }
            }
            let more = async {
                loop {
                    bell.mark_unchanged();
                    match self.board().counters.message {
                        now if now > seen => return now,
                        _ => _ = bell.changed().await,
                    }
                }
            };
            let Ok(now) = tokio::time::timeout_at(deadline, more).await else {
                return Err(Problem::new(
                    408,
                    "timed_out",
                    "no such message came in time",
                    "give it longer: --timeout 5m",
                ));
            };
            seen = now;
        }
    }

    pub(super) async fn msg_read(&self, ask: input::MsgRead) -> Json {
        let read = self.board().cursors.get(&(ask.agent.clone(), ask.channel.clone())).copied().unwrap_or_default();
        let filter = MessageFilter {
            channel: Some(ask.channel.clone()),
            after: Some(read),
            limit: 1_000,
            ..MessageFilter::default()
        };
        let messages = self.read(move |history| history.messages(&filter)).await?;
        if let (Some(last), false) = (messages.last(), ask.keep_unread) {
            self.ask(Command::MarkRead { agent: ask.agent, channel: ask.channel, read: last.id }).await?;
        }
        answer(self.board().revision, &messages)
    }
}
