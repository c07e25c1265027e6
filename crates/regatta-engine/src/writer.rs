//! The one writer: decide, commit, answer, then perform. In that order, always.
//!
//! One thread owns the board and the store. Commands that wait together are decided one after the other and
//! committed together; each is answered when the batch is durable, refusals too, so that nobody is told
//! of a state that a crash could take back.

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

/// The most commands in one transaction: enough to share an fsync, few enough to answer soon.
const LARGEST_BATCH: usize = 512;

/// The answer to an accepted command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Where the fleet's log was when the command was decided: cursor, witness and token in one.
    pub revision: u64,
    /// What the command gave.
    pub outcome: Outcome,
    /// The task that the command completed: the board has it no more, and who asked wants to see it.
    pub completed: Option<Arc<Task>>,
}

/// Why a command was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The rules do not allow it, as of `revision`.
    #[error("{}", refusal.message())]
    Refused { refusal: Refusal, revision: u64 },
    /// The store could not keep it; nothing was changed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The daemon is stopping.
    #[error("the daemon is stopping")]
    Stopping,
}

pub(crate) type Answer = Result<Reply, Failure>;

/// A condition: nothing about `subject` may have happened after `since`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unless {
    pub subject: String,
    pub since: u64,
}

/// When each thing changed last, as far back as is remembered. It is not stored: after a start everything counts as
/// changed by then, so that whoever read it before reads it again.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    floor: u64,
    last: HashMap<String, u64>,
}

impl Changes {
    /// How many things are remembered.
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
        match at > unless.since {
            true => Err(Refusal::Changed { what: unless.subject.clone(), since: unless.since, at }),
            false => Ok(()),
        }
    }
}

/// What nobody who edits a thing means by a change of it.
fn is_chatter(recorded: &Recorded) -> bool {
    ["task.progressed", "task.noted"].contains(&recorded.event.kind())
}

/// What the writer is told.
pub(crate) enum Note {
    Submit {
        request: Box<Request>,
        performed: Option<EffectKey>,
        unless: Option<Unless>,
        answer: oneshot::Sender<Answer>,
    },
    /// An effect was performed, and there is nothing more to say of it.
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

/// Effects that were performed and are still in the outbox. Taking them out is worth no transaction of its own: it
/// comes along with the next, or a moment later. After a crash they are performed again, which changes nothing.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    keys: Vec<EffectKey>,
    /// When they are written at the latest.
    due: Option<Instant>,
}

impl Settled {
    /// How long they wait for a transaction that comes anyway.
    const PATIENCE: Duration = Duration::from_millis(20);

    fn add(&mut self, key: EffectKey) {
        self.due.get_or_insert_with(|| Instant::now() + Settled::PATIENCE);
        self.keys.push(key);
    }

    fn is_due(&self) -> bool {
        self.due.is_some_and(|it| it <= Instant::now())
    }
}

/// What the writer tells.
pub(crate) struct Outlets {
    pub(crate) board: watch::Sender<Arc<Board>>,
    pub(crate) events: broadcast::Sender<Arc<[Recorded]>>,
    pub(crate) effects: Box<dyn Fn(EffectKey, Effect) + Send>,
    pub(crate) alarm: Arc<Alarm>,
    /// Rings for the runner, only when there is an agent whose program it could start.
    pub(crate) runner: watch::Sender<u64>,
}

pub(crate) struct Writer {
    pub(crate) board: Board,
    pub(crate) store: Box<dyn Store>,
    pub(crate) clock: Arc<FleetClock>,
    pub(crate) outlets: Outlets,
    /// Places in line whose callers hung up before they could be told of them.
    pub(crate) hung_up: Vec<WaitId>,
    pub(crate) meters: Arc<Meters>,
    pub(crate) changes: Changes,
    pub(crate) settled: Settled,
    /// When the store may rest, if nobody asks for anything until then.
    pub(crate) rest: Option<Instant>,
}

impl Writer {
    /// How long a quiet moment is, and how long the store is left alone when it could not use one.
    const MOMENT: Duration = Duration::from_millis(20);
    const LATER: Duration = Duration::from_secs(1);

    /// Works until told to stop, or until nobody can tell it anything.
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
            // What is settled needs no turn of its own, and nobody waits for it who could ask again.
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

    /// One batch. Returns whether it was told to stop.
    fn turn(&mut self, notes: &mut Vec<Note>) -> bool {
        let now = self.clock.now();
        let before = self.board.clone();
        let mut batch = Batch { after: before.revision, ..Batch::default() };
        let mut answers = Vec::with_capacity(notes.len());
        let mut after = Vec::new();
        let mut stop = false;
        // A lease began somewhere within its millisecond, so it is over only when the last one has passed too (L5).
        let past = Now { at: now.at.saturating_sub(1), ..now };
        if !self.board.due(past).is_empty() {
            let tick = Request { by: Actor::Regatta, key: None, command: Command::Tick };
            if let Err(refusal) = decide(&self.board, &tick, past).map(|commit| self.take(commit, &mut batch)) {
                tracing::error!(code = refusal.code(), "what fell due could not be settled: {}", refusal.message());
            }
        }
        for note in notes.drain(..) {
            match note {
                Note::Submit { request, performed, unless, answer } => {
                    // One that was carried out before is answered as it was, whatever has changed since (J9).
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
                    // The caller may have hung up; what was decided stands, but nobody stands in line for no one.
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
                tracing::error!(code = error.code, "nothing of this batch was kept: {error}");
                self.meters.not_kept(Instant::now());
                self.board = before;
                for (answer, _) in answers {
                    let _gone = answer.send(Err(Failure::Store(error.clone())));
                }
                self.settled.due = self.settled.due.map(|_| Instant::now() + Duration::from_secs(1));
                // What fell due is settled when the store is well again.
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

    fn rest_if_due(&mut self) {
        if self.rest.is_some_and(|it| it <= Instant::now()) {
            let rested = self.store.rest();
            self.rest = rested.is_err().then(|| Instant::now() + Writer::LATER);
            if let Err(error) = rested {
                tracing::warn!(
                    code = error.code,
                    "the store is behind its log, and is brought up to date later: {error}"
                );
            }
        }
    }

    fn take(&mut self, commit: Commit, batch: &mut Batch) -> Outcome {
        self.board = commit.board;
        self.changes.note(&commit.events);
        batch.events.extend(commit.events);
        batch.rows.extend(commit.rows);
        batch.effects.extend(commit.effects);
        commit.outcome
    }

    /// The only place where state is written.
    fn commit(&mut self, batch: &mut Batch, before: u64) -> Result<(), StoreError> {
        if batch.events.is_empty() && batch.performed.is_empty() {
            return Ok(());
        }
        batch.meta = self.board.meta();
        crate::failpoint::at("commit.begin");
        let began = Instant::now();
        if let Err(error) = self.store.commit(batch) {
            // It may have been kept and only the word of it lost: then it stands, and everybody is told so.
            let kept = self.board.revision != before && self.store.revision().is_ok_and(|it| it == self.board.revision);
            if !kept {
                return Err(error);
            }
            tracing::warn!(code = error.code, "the store complained, but kept the batch: {error}");
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

fn completed_by(commit: &Commit) -> Option<Arc<Task>> {
    commit.rows.iter().find_map(|(_, row)| match row {
        Some(row @ Row::Task(task)) if !row.is_live() => Some(task.clone()),
        _ => None,
    })
}

/// Under load, waits a moment for those who were just answered and will ask again: a transaction costs a sync
/// of the disk, and twice as many commands in it cost little more. `callers` is how many there were last time.
///
/// Where few are waiting nothing is gained, so nobody waits.
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
            // Those who are waited for may need this very processor.
            Err(_) => std::thread::yield_now(),
        }
    }
}

/// Ends a wait for a caller that is gone. Should the store not keep even that, it ends at its own deadline.
fn give_up(wait: WaitId) -> Note {
    let request = Request { by: Actor::Regatta, key: None, command: Command::CancelWait { wait } };
    Note::Submit { request: Box::new(request), performed: None, unless: None, answer: oneshot::channel().0 }
}
