//! The one thread that decides, commits and answers, always in this order.
//!
//! It owns the board and the store. Commands that are queued together are decided one after the
//! other and committed together. Each is answered when the batch is durable, refusals included, so
//! that no answer is about a state that a crash could undo.
//!
//! Which change a command makes is decided by `regatta_core::command`.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use regatta_core::board::{Board, Row};
use regatta_core::claim::Acquired;
use regatta_core::command::{Actor, Command, Commit, Outcome, Request, decide, decide_owned};
use regatta_core::effect::{Effect, EffectKey};
use regatta_core::event::Recorded;
use regatta_core::ids::{Now, WaitId};
use regatta_core::refusal::Refusal;
use regatta_core::task::Task;
use tokio::sync::{broadcast, mpsc, oneshot, watch};

use crate::meters::Meters;
use crate::perform::block_on_until;
use crate::ports::store::{Batch, Store, StoreError};
use crate::timer::{Alarm, FleetClock};

/// The largest number of commands in one transaction: enough to share an fsync, few enough for a
/// quick answer.
const LARGEST_BATCH: usize = 512;

/// The answer to an accepted command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The revision of the fleet's log when the command was decided. It also serves as cursor,
    /// witness and token.
    pub revision: u64,
    /// The result of the command.
    pub outcome: Outcome,
    /// The task that the command completed. It is no longer on the board, and the caller wants to
    /// show it.
    pub completed: Option<Arc<Task>>,
}

/// The reason why a command was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The rules do not allow the command, as of `revision`.
    #[error("{}", refusal.message())]
    Refused { refusal: Refusal, revision: u64 },
    /// The store could not commit the command, and nothing was changed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The daemon is stopping.
    #[error("the daemon is stopping")]
    Stopping,
}

pub(crate) type Answer = Result<Reply, Failure>;

/// A condition of a request: `subject` must not have changed after `since`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unless {
    pub subject: String,
    pub since: u64,
}

/// The revisions at which each subject last changed. The table is limited and not stored. After a
/// start everything counts as changed at that revision, so that clients with older data read it
/// again.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    floor: u64,
    last: HashMap<String, u64>,
}

impl Changes {
    /// The largest number of subjects in the table.
    const MOST: usize = 65_536;

    fn note(&mut self, events: &[Recorded]) {
        for recorded in events.iter().filter(|it| !is_chatter(it)) {
            self.last.insert(recorded.event.subject(), recorded.revision);
        }
        if self.last.len() > Changes::MOST {
            self.floor = self.last.values().copied().max().unwrap_or(self.floor);
            self.last.clear();
        }
    }

    fn check(&self, unless: &Unless) -> Result<(), Refusal> {
        let at = self.last.get(&unless.subject).copied().unwrap_or(self.floor);
        if at > unless.since {
            return Err(Refusal::Changed { what: unless.subject.clone(), since: unless.since, at });
        }
        Ok(())
    }
}

/// Returns whether [`Unless`] ignores an event: progress and notes do not invalidate a person's
/// edit of a task.
fn is_chatter(recorded: &Recorded) -> bool {
    ["task.progressed", "task.noted"].contains(&recorded.event.kind())
}

/// A message to the writer.
pub(crate) enum Note {
    Submit {
        request: Box<Request>,
        performed: Option<EffectKey>,
        unless: Option<Unless>,
        answer: oneshot::Sender<Answer>,
    },
    /// An effect was performed and has no other result.
    Settled {
        key: EffectKey,
    },
    Ring,
    Backup {
        to: PathBuf,
        answer: oneshot::Sender<Result<u64, StoreError>>,
    },
    Check {
        answer: oneshot::Sender<Result<(), StoreError>>,
    },
    Stop,
}

/// Effects that were performed and are still in the outbox. Removing them needs no transaction of
/// its own: they are removed with the next commit, or a moment later. After a crash they are
/// performed again, which changes nothing.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    keys: Vec<EffectKey>,
    /// The latest time of the transaction that removes them.
    due: Option<Instant>,
}

impl Settled {
    /// The time for which they wait for another transaction.
    const PATIENCE: Duration = Duration::from_millis(20);

    fn add(&mut self, key: EffectKey) {
        self.due.get_or_insert_with(|| Instant::now() + Settled::PATIENCE);
        self.keys.push(key);
    }

    fn is_due(&self) -> bool {
        self.due.is_some_and(|it| it <= Instant::now())
    }
}

/// The channels on which the writer publishes a commit.
pub(crate) struct Outlets {
    pub(crate) board: watch::Sender<Arc<Board>>,
    pub(crate) events: broadcast::Sender<Arc<[Recorded]>>,
    pub(crate) effects: Box<dyn Fn(EffectKey, Effect) + Send>,
    pub(crate) alarm: Arc<Alarm>,
    /// Notifies the runner, only when there is an agent whose program it could start.
    pub(crate) runner: watch::Sender<u64>,
}

pub(crate) struct Writer {
    pub(crate) board: Board,
    pub(crate) store: Box<dyn Store>,
    pub(crate) clock: Arc<FleetClock>,
    pub(crate) outlets: Outlets,
    /// Waits for claims whose callers hung up before they got the answer.
    pub(crate) hung_up: Vec<WaitId>,
    pub(crate) meters: Arc<Meters>,
    pub(crate) changes: Changes,
    pub(crate) settled: Settled,
    /// The time at which an idle store may update its rows.
    pub(crate) rest: Option<Instant>,
}

impl Writer {
    /// The idle time after which the store updates its rows, and the delay after a failed update.
    const MOMENT: Duration = Duration::from_millis(20);
    const LATER: Duration = Duration::from_secs(1);

    /// Runs until a stop message, or until all senders are gone.
    pub(crate) fn run(mut self, mut inbox: mpsc::Receiver<Note>) {
        self.changes.floor = self.board.revision;
        let mut notes = Vec::with_capacity(LARGEST_BATCH);
        let mut callers = 0;
        loop {
            let due = self.settled.due.into_iter().chain(self.rest).min();
            let came = match due {
                None => Some(inbox.blocking_recv_many(&mut notes, LARGEST_BATCH)),
                Some(due) => block_on_until(inbox.recv_many(&mut notes, LARGEST_BATCH), due),
            };
            if came == Some(0) {
                self.settled.due = self.settled.due.map(|_| Instant::now());
                self.turn(&mut notes);
                return;
            }
            gather(&mut inbox, &mut notes, callers);
            // Completed effects do not force a batch of their own, and no caller waits for them.
            notes.retain(|note| match note {
                Note::Settled { key } => {
                    self.settled.add(*key);
                    false
                }
                _ => true,
            });
            if notes.is_empty() && !self.settled.is_due() {
                self.rest_if_due();
                continue;
            }
            callers = notes.len() + inbox.len();
            let mut stop = self.turn(&mut notes);
            if !self.hung_up.is_empty() {
                notes.extend(self.hung_up.drain(..).map(give_up));
                stop |= self.turn(&mut notes);
            }
            if stop {
                inbox.close();
            }
        }
    }

    /// Decides and commits one batch. Returns whether it contained a stop message.
    fn turn(&mut self, notes: &mut Vec<Note>) -> bool {
        let now = self.clock.now();
        let before = self.board.clone();
        let mut batch = Batch { after: before.revision, ..Batch::default() };
        let mut answers = Vec::with_capacity(notes.len());
        let mut after = Vec::new();
        let mut stop = false;
        // A lease began somewhere within its millisecond, so it is over only when its last
        // millisecond has passed too (L5).
        let past = Now { at: now.at.saturating_sub(1), ..now };
        if !self.board.due(past).is_empty() {
            let tick = Request { by: Actor::Regatta, key: None, command: Command::Tick };
            if let Err(refusal) = decide(&self.board, &tick, past).map(|commit| self.take(commit, &mut batch)) {
                tracing::error!(code = refusal.code(), "could not process expired timers: {}", refusal.message());
            }
        }
        for note in notes.drain(..) {
            match note {
                Note::Submit { request, performed, unless, answer } => {
                    // A command that was carried out before gets the same answer, whatever has
                    // changed since (J9).
                    let known = request.key.as_ref().is_some_and(|it| self.board.answers.contains_key(it));
                    let may = unless.filter(|_| !known).map_or(Ok(()), |it| self.changes.check(&it));
                    let decided = may
                        .and_then(|()| decide_owned(&self.board, *request, now))
                        .map(|commit| (completed_by(&commit), self.take(commit, &mut batch)));
                    let revision = self.board.revision;
                    answers.push((
                        answer,
                        match decided {
                            Ok((completed, outcome)) => {
                                self.meters.accepted.fetch_add(1, Relaxed);
                                Ok(Reply { revision, outcome, completed })
                            }
                            Err(refusal) => {
                                self.meters.refused.fetch_add(1, Relaxed);
                                Err(Failure::Refused { refusal, revision })
                            }
                        },
                    ));
                    batch.performed.extend(performed);
                }
                Note::Settled { .. } | Note::Ring => {}
                Note::Stop => stop = true,
                other => after.push(other),
            }
        }
        let along = self.settled.is_due() || !batch.events.is_empty() || !batch.performed.is_empty();
        if along {
            batch.performed.extend(&self.settled.keys);
        }
        match self.commit(&mut batch, before.revision) {
            Ok(()) => {
                if along {
                    self.settled = Settled::default();
                }
                for (answer, reply) in answers {
                    // The caller may have hung up. The decision stands, but a wait for a claim
                    // without a caller is cancelled.
                    if let Err(Ok(Reply { outcome: Outcome::Claim(Acquired::Waiting { wait, .. }), .. })) =
                        answer.send(reply)
                    {
                        self.hung_up.push(wait);
                    }
                }
                for (key, effect) in batch.effects {
                    (self.outlets.effects)(key, effect);
                }
                self.outlets.alarm.set(self.board.next_deadline(past).map(|it| it + 1));
            }
            Err(error) => {
                tracing::error!(code = error.code, "could not commit a batch: {error}");
                self.meters.not_kept(Instant::now());
                self.board = before;
                for (answer, _) in answers {
                    let _gone = answer.send(Err(Failure::Store(error.clone())));
                }
                self.settled.due = self.settled.due.map(|_| Instant::now() + Duration::from_secs(1));
                // Expired timers are processed when the store works again.
                self.outlets.alarm.set(Some(now.at + 1_000));
            }
        }
        for note in after {
            match note {
                Note::Backup { to, answer } => {
                    let _gone = answer.send(self.store.backup(&to).map(|()| self.board.revision));
                }
                Note::Check { answer } => {
                    let _gone = answer.send(self.store.check());
                }
                Note::Submit { .. } | Note::Settled { .. } | Note::Ring | Note::Stop => {}
            }
        }
        stop
    }

    /// Lets the store update its rows, if it is idle long enough.
    fn rest_if_due(&mut self) {
        if self.rest.is_some_and(|it| it <= Instant::now()) {
            let rested = self.store.rest();
            self.rest = rested.is_err().then(|| Instant::now() + Writer::LATER);
            if let Err(error) = rested {
                tracing::warn!(
                    code = error.code,
                    "could not update the store's rows from its log, trying again later: {error}"
                );
            }
        }
    }

    /// Applies a decided commit to the board and adds it to the batch.
    fn take(&mut self, commit: Commit, batch: &mut Batch) -> Outcome {
        self.board = commit.board;
        self.changes.note(&commit.events);
        batch.events.extend(commit.events);
        batch.rows.extend(commit.rows);
        batch.effects.extend(commit.effects);
        commit.outcome
    }

    /// Writes the batch to the store and publishes it. This is the only place where state is
    /// written.
    fn commit(&mut self, batch: &mut Batch, before: u64) -> Result<(), StoreError> {
        if batch.events.is_empty() && batch.performed.is_empty() {
            return Ok(());
        }
        batch.meta = self.board.meta();
        crate::failpoint::at("commit.begin");
        let began = Instant::now();
        if let Err(error) = self.store.commit(batch) {
            // The batch may be stored although the call failed. Then it stands, and everybody is
            // notified of it.
            let kept = self.board.revision != before && self.store.revision().is_ok_and(|it| it == self.board.revision);
            if !kept {
                return Err(error);
            }
            tracing::warn!(code = error.code, "the store reported an error, but committed the batch: {error}");
        }
        self.meters.kept(began.elapsed());
        self.rest = self.store.is_behind().then(|| Instant::now() + Writer::MOMENT);
        crate::failpoint::at("commit.stored");
        if !batch.events.is_empty() {
            self.outlets.board.send_replace(Arc::new(self.board.clone()));
            // Only agents whose programs Regatta runs get their work from the runner.
            if self.board.agents.values().any(|agent| agent.is_run_by_regatta()) {
                self.outlets.runner.send_replace(self.board.revision);
            }
            let _nobody_listens = self.outlets.events.send(std::mem::take(&mut batch.events).into());
        }
        Ok(())
    }
}

/// Returns the task that a commit ended, if it ended one.
fn completed_by(commit: &Commit) -> Option<Arc<Task>> {
    commit.rows.iter().find_map(|(_, row)| match row {
        Some(row @ Row::Task(task)) if !row.is_live() => Some(task.clone()),
        _ => None,
    })
}

/// Under load, waits a moment for callers that were just answered and will send again: a
/// transaction costs a sync of the disk, and twice as many commands in it cost little more.
/// `callers` is the size of the last batch.
///
/// With few callers the wait gains nothing, so it is skipped.
fn gather(inbox: &mut mpsc::Receiver<Note>, notes: &mut Vec<Note>, callers: usize) {
    const FEW: usize = 8;
    const LONGEST: Duration = Duration::from_micros(300);
    const SILENCE: Duration = Duration::from_micros(80);
    let expected = callers.min(LARGEST_BATCH);
    if expected < FEW {
        return;
    }
    let began = Instant::now();
    let mut heard = began;
    while notes.len() < expected {
        match inbox.try_recv() {
            Ok(note) => {
                notes.push(note);
                heard = Instant::now();
            }
            Err(_) if heard.elapsed() > SILENCE || began.elapsed() > LONGEST => return,
            // The callers may need this very processor.
            Err(_) => std::thread::yield_now(),
        }
    }
}

/// Cancels a claim's wait for a caller that is gone. If the store fails, the wait ends at its own
/// deadline.
fn give_up(wait: WaitId) -> Note {
    let request = Request { by: Actor::Regatta, key: None, command: Command::CancelWait { wait } };
    Note::Submit { request: Box::new(request), performed: None, unless: None, answer: oneshot::channel().0 }
}
