//! The writer: the one thread that decides requests, commits their changes and answers them, always
//! in this order.
//!
//! The writer owns the board (the state of all unfinished work) and the store. Requests that are
//! queued together are decided one after the other and committed in one transaction. Each request,
//! even a refused one, is answered only when the transaction is durable, so that no answer is about
//! a state that a crash could undo.
//!
//! A report of Regatta itself, such as the result of an effect, takes the same way as a request.
//!
//! `regatta_core::command` decides which changes a request or a report makes.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use regatta_core::board::{Board, Row};
use regatta_core::claim::Acquired;
use regatta_core::command::{
    Actor, BoardInput, Command, CommandOutcome, Commit, Report, Request, decide,
};
use regatta_core::effect::{Effect, EffectKey};
use regatta_core::event::Recorded;
use regatta_core::ids::{Now, WaitId};
use regatta_core::refusal::Refusal;
use regatta_core::task::Task;
use tokio::sync::{broadcast, mpsc, oneshot, watch};

use crate::metrics::WriterMetrics;
use crate::perform::block_on_until;
use crate::ports::store::{Store, StoreBatch, StoreError};
use crate::timer::{Alarm, FleetClock};

/// The largest number of requests in one transaction. Many requests share the cost of one disk
/// sync, but a larger batch would delay their answers.
const MAX_BATCH_COMMANDS: usize = 512;

/// The answer to a command that was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandReply {
    /// The revision (the number of the last event) after the command was applied. The revision also
    /// serves as the position in the event stream, as proof of the state that the caller saw, and
    /// as fencing token.
    pub revision: u64,
    /// The result of the accepted command, for example the id of a new task.
    pub outcome: CommandOutcome,
    /// The task that the command completed, if any. The board (the state of all unfinished work) no
    /// longer contains this task, but callers want to show it.
    pub completed_task: Option<Arc<Task>>,
}

/// The reason why a command changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandFailure {
    /// The rules did not allow the command. `revision` identifies the state on which the decision
    /// was based.
    #[error("{}", refusal.message())]
    Refused { refusal: Refusal, revision: u64 },
    /// The store could not store the command's changes, so nothing was changed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The daemon is stopping and accepts no more commands.
    #[error("the daemon is stopping and accepts no more commands")]
    Stopping,
}

pub(crate) type SubmitResult = Result<CommandReply, CommandFailure>;

/// A condition of a request: the entity `subject` must not have changed after the revision (event
/// number) `unchanged_since`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Precondition {
    pub subject: String,
    pub unchanged_since: u64,
}

/// The revision (event number) at which each subject (for example a task) last changed, to check
/// [`Precondition`]s. The table is limited in size and not stored. After a start, everything counts
/// as changed at the start's revision, so that clients with older data read the data again.
#[derive(Debug, Default)]
pub(crate) struct LastChanged {
    floor_revision: u64,
    by_subject: HashMap<String, u64>,
}

impl LastChanged {
    /// The largest number of subjects (for example tasks) in the table of last changes. When the
    /// table grows larger, it is cleared.
    const MAX_SUBJECTS: usize = 65_536;

    fn record(&mut self, events: &[Recorded]) {
        for recorded in events
            .iter()
            .filter(|event| !is_ignored_by_preconditions(event))
        {
            self.by_subject
                .insert(recorded.event.subject(), recorded.revision);
        }
        if self.by_subject.len() > LastChanged::MAX_SUBJECTS {
            self.floor_revision = self
                .by_subject
                .values()
                .copied()
                .max()
                .unwrap_or(self.floor_revision);
            self.by_subject.clear();
        }
    }

    fn check(&self, precondition: &Precondition) -> Result<(), Refusal> {
        let changed_at = self
            .by_subject
            .get(&precondition.subject)
            .copied()
            .unwrap_or(self.floor_revision);
        if changed_at > precondition.unchanged_since {
            return Err(Refusal::Changed {
                what: precondition.subject.clone(),
                seen_revision: precondition.unchanged_since,
                current_revision: changed_at,
            });
        }
        Ok(())
    }
}

/// Returns whether [`Precondition`] ignores an event. Progress reports and notes of an agent must
/// not invalidate a person's edit of a task.
fn is_ignored_by_preconditions(recorded: &Recorded) -> bool {
    ["task.progressed", "task.noted"].contains(&recorded.event.kind())
}

/// A message from any thread to the writer (the thread that decides and stores requests).
pub(crate) enum WriterMessage {
    Submit {
        input: Box<BoardInput>,
        completed_effect: Option<EffectKey>,
        precondition: Option<Precondition>,
        answer: oneshot::Sender<SubmitResult>,
    },
    /// An effect (an outside action such as starting a program) was performed and has no result to
    /// report.
    EffectCompleted {
        key: EffectKey,
    },
    DeadlineReached,
    Backup {
        to: PathBuf,
        answer: oneshot::Sender<Result<u64, StoreError>>,
    },
    Check {
        answer: oneshot::Sender<Result<(), StoreError>>,
    },
    Stop,
}

/// Effects (outside actions such as starting a program) that were performed but are still in the
/// outbox, the stored list of uncompleted effects. The writer removes such effects together with
/// the next commit, or after a short time, because a separate transaction for each of them would be
/// slow. After a crash these effects are performed again, which changes nothing.
#[derive(Debug, Default)]
pub(crate) struct CompletedEffects {
    keys: Vec<EffectKey>,
    /// The latest time at which the completed effects must be removed from the outbox (the stored
    /// list of uncompleted effects). `None` if there are none to remove.
    flush_at: Option<Instant>,
}

impl CompletedEffects {
    /// The time for which a completed effect (an outside action such as starting a program) may
    /// wait to be removed together with another commit.
    const FLUSH_DELAY: Duration = Duration::from_millis(20);

    fn add(&mut self, key: EffectKey) {
        self.flush_at
            .get_or_insert_with(|| Instant::now() + CompletedEffects::FLUSH_DELAY);
        self.keys.push(key);
    }

    fn is_due(&self) -> bool {
        self.flush_at
            .is_some_and(|instant| instant <= Instant::now())
    }
}

/// The channels through which the writer (the thread that decides and stores requests) notifies the
/// other threads of a commit.
pub(crate) struct Publishers {
    pub(crate) board: watch::Sender<Arc<Board>>,
    pub(crate) events: broadcast::Sender<Arc<[Recorded]>>,
    pub(crate) dispatch_effect: Box<dyn Fn(EffectKey, Effect) + Send>,
    pub(crate) alarm: Arc<Alarm>,
    /// Wakes the dispatcher, which starts agents' programs. Used only while there is an agent whose
    /// program Regatta runs.
    pub(crate) wake_dispatcher: watch::Sender<u64>,
}

pub(crate) struct Writer {
    pub(crate) board: Board,
    pub(crate) store: Box<dyn Store>,
    pub(crate) clock: Arc<FleetClock>,
    pub(crate) publishers: Publishers,
    /// Waits for claims (leases) whose callers closed the connection before they got the answer.
    /// The next batch of requests cancels these waits.
    pub(crate) abandoned_waits: Vec<WaitId>,
    pub(crate) metrics: Arc<WriterMetrics>,
    pub(crate) last_changed: LastChanged,
    pub(crate) completed_effects: CompletedEffects,
    /// The time at which the store should write its deferred rows (rows that lack changes that are
    /// stored only as events), unless requests arrive before. `None` if there are no deferred rows.
    pub(crate) flush_idle_at: Option<Instant>,
}

impl Writer {
    /// The time for which the writer must be idle before the store writes its deferred rows (rows
    /// that lack changes that are stored only as events).
    const IDLE_FLUSH_AFTER: Duration = Duration::from_millis(20);
    /// The delay before a failed write of deferred rows (rows that lack changes that are stored
    /// only as events) is tried again.
    const FLUSH_RETRY_DELAY: Duration = Duration::from_secs(1);

    /// Processes messages until a stop message comes, or until no sender is left.
    pub(crate) fn run(mut self, mut inbox: mpsc::Receiver<WriterMessage>) {
        self.last_changed.floor_revision = self.board.revision;
        let mut messages = Vec::with_capacity(MAX_BATCH_COMMANDS);
        let mut callers = 0;
        loop {
            let due = self
                .completed_effects
                .flush_at
                .into_iter()
                .chain(self.flush_idle_at)
                .min();
            let received = match due {
                None => Some(inbox.blocking_recv_many(&mut messages, MAX_BATCH_COMMANDS)),
                Some(due) => {
                    block_on_until(inbox.recv_many(&mut messages, MAX_BATCH_COMMANDS), due)
                }
            };
            if received == Some(0) {
                self.completed_effects.flush_at =
                    self.completed_effects.flush_at.map(|_| Instant::now());
                self.process_batch(&mut messages);
                return;
            }
            gather_messages(&mut inbox, &mut messages, callers);
            // A completed effect does not start a batch on its own, because no caller waits for it.
            messages.retain(|message| match message {
                WriterMessage::EffectCompleted { key } => {
                    self.completed_effects.add(*key);
                    false
                }
                _ => true,
            });
            if messages.is_empty() && !self.completed_effects.is_due() {
                self.flush_if_idle();
                continue;
            }
            callers = messages.len() + inbox.len();
            let mut stop = self.process_batch(&mut messages);
            if !self.abandoned_waits.is_empty() {
                messages.extend(self.abandoned_waits.drain(..).map(cancel_wait));
                stop |= self.process_batch(&mut messages);
            }
            if stop {
                inbox.close();
            }
        }
    }

    /// Decides and commits one batch of messages. Returns whether the batch contained the stop
    /// message.
    fn process_batch(&mut self, messages: &mut Vec<WriterMessage>) -> bool {
        let now = self.clock.now();
        let before = self.board.clone();
        let mut batch = StoreBatch {
            base_revision: before.revision,
            ..StoreBatch::default()
        };
        let mut answers = Vec::with_capacity(messages.len());
        let mut deferred = Vec::new();
        let mut stop = false;
        // A lease may have begun in the middle of a millisecond, so it has ended only when its last
        // millisecond has passed completely (L5). Timers are therefore compared with the time one
        // millisecond ago.
        let past = Now {
            fleet_ms: now.fleet_ms.saturating_sub(1),
            ..now
        };
        if !self.board.expired_timers(past).is_empty()
            && let Err(refusal) =
                decide(&self.board, Report::Tick, past).map(|commit| self.apply(commit, &mut batch))
        {
            tracing::error!(
                code = refusal.code(),
                "could not process the timers that have expired, trying again with the next \
                batch: {}",
                refusal.message()
            );
        }
        for message in messages.drain(..) {
            match message {
                WriterMessage::Submit {
                    input,
                    completed_effect: effect,
                    precondition,
                    answer,
                } => {
                    // A repeated request with an idempotency key gets the answer of its first
                    // execution, whatever has changed since (J9).
                    let is_repeated = input
                        .key()
                        .is_some_and(|key| self.board.answers.contains_key(key));
                    let allowed = precondition
                        .filter(|_| !is_repeated)
                        .map_or(Ok(()), |precondition| {
                            self.last_changed.check(&precondition)
                        });
                    let decided = allowed
                        .and_then(|()| decide(&self.board, *input, now))
                        .map(|commit| (completed_task(&commit), self.apply(commit, &mut batch)));
                    let revision = self.board.revision;
                    answers.push((
                        answer,
                        match decided {
                            Ok((completed, outcome)) => {
                                self.metrics.accepted.fetch_add(1, Relaxed);
                                Ok(CommandReply {
                                    revision,
                                    outcome,
                                    completed_task: completed,
                                })
                            }
                            Err(refusal) => {
                                self.metrics.refused.fetch_add(1, Relaxed);
                                Err(CommandFailure::Refused { refusal, revision })
                            }
                        },
                    ));
                    batch.completed_effects.extend(effect);
                }
                WriterMessage::EffectCompleted { .. } | WriterMessage::DeadlineReached => {}
                WriterMessage::Stop => stop = true,
                other => deferred.push(other),
            }
        }
        let includes_completed = self.completed_effects.is_due()
            || !batch.events.is_empty()
            || !batch.completed_effects.is_empty();
        if includes_completed {
            batch.completed_effects.extend(&self.completed_effects.keys);
        }
        match self.store_and_publish(&mut batch, before.revision) {
            Ok(()) => {
                if includes_completed {
                    self.completed_effects = CompletedEffects::default();
                }
                for (answer, reply) in answers {
                    // The caller may have closed the connection. The decision still takes effect,
                    // but a wait for a claim (a lease) is cancelled, because nobody would use the
                    // claim.
                    if let Err(Ok(CommandReply {
                        outcome: CommandOutcome::Claim(Acquired::Waiting { wait, .. }),
                        ..
                    })) = answer.send(reply)
                    {
                        self.abandoned_waits.push(wait);
                    }
                }
                for (key, effect) in batch.effects {
                    (self.publishers.dispatch_effect)(key, effect);
                }
                self.publishers
                    .alarm
                    .set(self.board.next_deadline(past).map(|fleet_ms| fleet_ms + 1));
            }
            Err(error) => {
                tracing::error!(
                    code = error.code,
                    "could not write a batch of changes to the store; none \
                    of its requests takes effect, and each caller gets this error: {error}"
                );
                self.metrics.on_commit_failed(Instant::now());
                self.board = before;
                for (answer, _) in answers {
                    let _gone = answer.send(Err(CommandFailure::Store(error.clone())));
                }
                self.completed_effects.flush_at = self
                    .completed_effects
                    .flush_at
                    .map(|_| Instant::now() + Duration::from_secs(1));
                // The batch could not be stored, so process the expired timers a second later, when
                // the store may work again.
                self.publishers.alarm.set(Some(now.fleet_ms + 1_000));
            }
        }
        for message in deferred {
            match message {
                WriterMessage::Backup { to, answer } => {
                    let _gone = answer.send(self.store.backup(&to).map(|()| self.board.revision));
                }
                WriterMessage::Check { answer } => {
                    let _gone = answer.send(self.store.check());
                }
                WriterMessage::Submit { .. }
                | WriterMessage::EffectCompleted { .. }
                | WriterMessage::DeadlineReached
                | WriterMessage::Stop => {}
            }
        }
        stop
    }

    /// Makes the store write its deferred rows (rows that lack changes that are stored only as
    /// events), if the writer has been idle long enough.
    fn flush_if_idle(&mut self) {
        if self
            .flush_idle_at
            .is_some_and(|instant| instant <= Instant::now())
        {
            let flushed = self.store.flush_idle();
            self.flush_idle_at = flushed
                .is_err()
                .then(|| Instant::now() + Writer::FLUSH_RETRY_DELAY);
            if let Err(error) = flushed {
                tracing::warn!(
                    code = error.code,
                    "could not write the rows of recent changes into the store's tables, trying \
                    again later; the changes are already stored as events: {error}"
                );
            }
        }
    }

    /// Makes the board (the state of all unfinished work) that results from a decided request the
    /// current board, and adds the request's changes to the batch.
    fn apply(&mut self, commit: Commit, batch: &mut StoreBatch) -> CommandOutcome {
        self.board = commit.board;
        self.last_changed.record(&commit.events);
        batch.events.extend(commit.events);
        batch.rows.extend(commit.rows);
        batch.effects.extend(commit.effects);
        commit.outcome
    }

    /// Writes the batch to the store and publishes the new board (the state of all unfinished work)
    /// and events. No other code writes state.
    fn store_and_publish(
        &mut self,
        batch: &mut StoreBatch,
        base_revision: u64,
    ) -> Result<(), StoreError> {
        if batch.events.is_empty() && batch.completed_effects.is_empty() {
            return Ok(());
        }
        batch.meta = self.board.meta();
        crate::failpoint::hit("commit.begin");
        let began = Instant::now();
        if let Err(error) = self.store.commit(batch) {
            // The store may have the batch although the call failed. In that case the changes are
            // valid and are published.
            let was_stored = self.board.revision != base_revision
                && self
                    .store
                    .revision()
                    .is_ok_and(|revision| revision == self.board.revision);
            if !was_stored {
                return Err(error);
            }
            tracing::warn!(
                code = error.code,
                "the store reported an error for a batch of changes although it stored the batch, \
                so the changes take effect: {error}"
            );
        }
        self.metrics.on_commit(began.elapsed());
        self.flush_idle_at = self
            .store
            .has_deferred_rows()
            .then(|| Instant::now() + Writer::IDLE_FLUSH_AFTER);
        crate::failpoint::hit("commit.stored");
        if !batch.events.is_empty() {
            self.publishers
                .board
                .send_replace(Arc::new(self.board.clone()));
            // The dispatcher (the thread that starts attempts) starts only agents whose programs
            // Regatta runs, so wake it only if there is such an agent.
            if self
                .board
                .agents
                .values()
                .any(|agent| agent.is_run_by_regatta())
            {
                self.publishers
                    .wake_dispatcher
                    .send_replace(self.board.revision);
            }
            let _nobody_listens = self
                .publishers
                .events
                .send(std::mem::take(&mut batch.events).into());
        }
        Ok(())
    }
}

/// Returns the task that a decided request completed, or `None` if the request completed no task.
fn completed_task(commit: &Commit) -> Option<Arc<Task>> {
    commit.rows.iter().find_map(|(_, row)| match row {
        Some(row @ Row::Task(task)) if !row.is_live() => Some(task.clone()),
        _ => None,
    })
}

/// Under load, waits a moment for the next requests of the callers that were just answered. Each
/// transaction costs one sync of the disk, and a transaction with twice as many requests costs
/// little more. `callers` is the number of requests in the last batch.
///
/// With few callers the wait gains nothing, so it is skipped.
fn gather_messages(
    inbox: &mut mpsc::Receiver<WriterMessage>,
    messages: &mut Vec<WriterMessage>,
    callers: usize,
) {
    const MIN_CALLERS: usize = 8;
    const MAX_WAIT: Duration = Duration::from_micros(300);
    const MAX_SILENCE: Duration = Duration::from_micros(80);
    let expected = callers.min(MAX_BATCH_COMMANDS);
    if expected < MIN_CALLERS {
        return;
    }
    let began = Instant::now();
    let mut last_received = began;
    while messages.len() < expected {
        match inbox.try_recv() {
            Ok(message) => {
                messages.push(message);
                last_received = Instant::now();
            }
            Err(_) if last_received.elapsed() > MAX_SILENCE || began.elapsed() > MAX_WAIT => return,
            // Let the callers run, because they may need the processor that this thread occupies.
            Err(_) => std::thread::yield_now(),
        }
    }
}

/// Returns the message that cancels a wait for a claim (a lease) whose caller is gone. If the store
/// fails, the wait ends at its own deadline.
fn cancel_wait(wait: WaitId) -> WriterMessage {
    let request = Request {
        by: Actor::Regatta,
        key: None,
        command: Command::CancelWait { wait },
    };
    WriterMessage::Submit {
        input: Box::new(request.into()),
        completed_effect: None,
        precondition: None,
        answer: oneshot::channel().0,
    }
}
