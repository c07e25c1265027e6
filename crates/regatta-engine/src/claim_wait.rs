//! Acquires a claim (an exclusive or shared lease on files or other things), and waits while
//! another owner holds it.
//!
//! The board (the state of all unfinished work) stores each wait. When the caller drops the future,
//! the wait is cancelled, so that no claim is granted to a caller that is gone.
//! `regatta_core::claim` decides which wait gets a claim.

use std::sync::Arc;

use regatta_core::board::{Board, Draft};
use regatta_core::claim::{self, Acquire, Acquired};
use regatta_core::command::{Actor, BoardInput, Command, CommandOutcome, Request};
use regatta_core::ids::{RequestKey, WaitId};
use regatta_core::refusal::Refusal;
use tokio::sync::{mpsc, oneshot};

use crate::writer::{CommandFailure, CommandReply, SubmitResult, WriterMessage};
use crate::{Engine, redact};

impl Engine {
    /// Acquires a claim (a lease), and waits for at most the time that the request states. Dropping
    /// the future cancels the wait.
    pub async fn acquire(
        &self,
        by: Actor,
        key: Option<RequestKey>,
        acquire: Acquire,
    ) -> SubmitResult {
        let requested = acquire.clone();
        let command = Command::Acquire(acquire);
        let mut input = BoardInput::from(Request { by, key, command });
        redact::redact_input(&self.shared.settings.redactor, &mut input);
        let (answer, reply) = oneshot::channel();
        let message = WriterMessage::Submit {
            input: Box::new(input),
            completed_effect: None,
            precondition: None,
            answer,
        };
        self.shared
            .writer
            .send(message)
            .await
            .map_err(|_| CommandFailure::Stopping)?;
        let mut pending = PendingAcquire {
            engine: self,
            reply,
        };
        let reply = (&mut pending.reply)
            .await
            .map_err(|_| CommandFailure::Stopping)??;
        let CommandOutcome::Claim(Acquired::Waiting { wait, .. }) = reply.outcome else {
            return Ok(reply);
        };
        let mut queued = QueuedWait {
            engine: self,
            wait,
            is_over: false,
        };
        let mut boards = self.shared.board.clone();
        loop {
            let board = boards.borrow_and_update().clone();
            if !board.waits.contains_key(&wait) {
                queued.is_over = true;
                return self.end_of_wait(&board, wait, &requested);
            }
            boards
                .changed()
                .await
                .map_err(|_| CommandFailure::Stopping)?;
        }
    }

    /// Returns the answer for the caller after its wait has ended: the claim (a lease) that was
    /// granted, or a refusal that names the current holders.
    fn end_of_wait(&self, board: &Arc<Board>, wait: WaitId, requested: &Acquire) -> SubmitResult {
        let mut claims = board.claims.values();
        let Some(claim) = claims.find(|claim| claim.from_wait == Some(wait)) else {
            let draft = Draft::new(board, self.now());
            let holders = claim::conflicting_holders(
                &draft,
                &requested.uris,
                requested.mode,
                None,
                self.now(),
            );
            return Err(CommandFailure::Refused {
                refusal: Refusal::ClaimHeld { holders },
                revision: board.revision,
            });
        };
        let now_fleet_ms = self.now().fleet_ms;
        let ttl_ms = claim
            .expires_fleet_ms
            .map_or(0, |expires| expires.saturating_sub(now_fleet_ms));
        Ok(CommandReply {
            revision: board.revision,
            outcome: CommandOutcome::Claim(Acquired::Granted {
                claim: claim.id,
                token: claim.token,
                ttl_ms,
            }),
            completed_task: None,
        })
    }
}

/// A future that resolves to the answer to a request for a claim (a lease). If the future is
/// dropped after a wait was stored on the board (the state of all unfinished work), that wait is
/// cancelled.
struct PendingAcquire<'a> {
    engine: &'a Engine,
    reply: oneshot::Receiver<SubmitResult>,
}

impl Drop for PendingAcquire<'_> {
    fn drop(&mut self) {
        self.reply.close(); // the writer now sees that nobody reads the answer
        if let Ok(Ok(CommandReply {
            outcome: CommandOutcome::Claim(Acquired::Waiting { wait, .. }),
            ..
        })) = self.reply.try_recv()
        {
            drop(QueuedWait {
                engine: self.engine,
                wait,
                is_over: false,
            });
        }
    }
}

/// A wait for a claim (a lease) that is stored on the board (the state of all unfinished work).
/// Dropping this value cancels the wait.
struct QueuedWait<'a> {
    engine: &'a Engine,
    wait: WaitId,
    is_over: bool,
}

impl Drop for QueuedWait<'_> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let request = Request {
            by: Actor::Regatta,
            key: None,
            command: Command::CancelWait { wait: self.wait },
        };
        let (answer, _) = oneshot::channel();
        let message = WriterMessage::Submit {
            input: Box::new(request.into()),
            completed_effect: None,
            precondition: None,
            answer,
        };
        if let Err(mpsc::error::TrySendError::Full(message)) =
            self.engine.shared.writer.try_send(message)
        {
            // The queue of the writer (the thread that decides and stores requests) is full, and
            // `drop` must not block. So another thread waits for room in the queue and then cancels
            // the wait.
            let writer = self.engine.shared.writer.clone();
            self.engine.spawn_thread("cancel-wait", move || {
                let _stopping = writer.blocking_send(message);
            });
        }
    }
}
