//! The site on a runner's machine: sends what a [`Site`] is asked to the runner as calls, and waits
//! for the answers.
//!
//! A call stays open until it is answered. A runner polls for the calls after the last one that it
//! has seen, so it repeats an answer that was lost, and a restarted runner gets all open calls.
//! Call numbers only rise, also across restarts of the daemon. Every call can be repeated (see
//! [`Site`]), so no further protocol is needed.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use regatta_core::ids::{AttemptId, RunnerName};
use regatta_core::refusal::Refusal;
use regatta_core::runner;
use regatta_core::session::Said;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::watch;

use crate::Engine;
use crate::keep::Evidence;
use crate::perform::LOOK_UP;
use crate::ports::agents::{AgentError, Desk, Exit, Launch, ProcessState, Started, Verdict, Wishes};
use crate::ports::git::{Authorship, Capture, Repo, Workspace};
use crate::ports::site::{Heard, Order, Site, SiteError};
use crate::running_commands::{CommandOwner, Entry};

/// A request to a runner. Each is one method of [`Site`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "do")]
pub enum Ask {
    Taken {
        ports: Vec<u16>,
    },
    Ready {
        order: Box<Order>,
        ports: Vec<(String, String)>,
    },
    Brief {
        order: Box<Order>,
        briefing: Option<String>,
    },
    State {
        attempt: AttemptId,
    },
    Start {
        launch: Box<Launch>,
    },
    /// Answered when the program has ended. Its events come as [`Words`] until then.
    Attend {
        attempt: AttemptId,
    },
    /// The complete input that is wanted for an attended program. It replaces earlier input.
    Wish {
        attempt: AttemptId,
        wishes: Wishes,
        silence_ms: u64,
    },
    Stop {
        attempt: AttemptId,
        grace_ms: u64,
    },
    Hear {
        order: Box<Order>,
    },
    Capture {
        order: Box<Order>,
        authorship: Authorship,
    },
    Examine {
        order: Box<Order>,
    },
    Ratchet {
        order: Box<Order>,
    },
    Clear {
        order: Box<Order>,
        authorship: Authorship,
    },
}

impl Ask {
    /// Returns the attempt that the request is about, if it is about one.
    pub fn attempt(&self) -> Option<AttemptId> {
        match self {
            Ask::Taken { .. } => None,
            Ask::State { attempt }
            | Ask::Attend { attempt }
            | Ask::Wish { attempt, .. }
            | Ask::Stop { attempt, .. } => Some(*attempt),
            Ask::Start { launch } => Some(launch.attempt),
            Ask::Ready { order, .. }
            | Ask::Brief { order, .. }
            | Ask::Hear { order }
            | Ask::Capture { order, .. }
            | Ask::Examine { order }
            | Ask::Ratchet { order }
            | Ask::Clear { order, .. } => Some(order.attempt.id),
        }
    }
}

/// A request to a runner, with its number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    pub id: u64,
    pub ask: Ask,
}

/// A runner's answer: the result of the call, or the reason why it failed.
pub type CallAnswer = Result<Value, SiteError>;

/// The new events of an attended program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Words {
    /// Events with their place in the program's journal.
    pub heard: Vec<(u64, Said)>,
    /// The milliseconds since the last sign of life, or `Some(None)` when the program became active
    /// again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent: Option<Option<u64>>,
}

/// A message to the thread that waits for a runner.
enum Word {
    Answered(CallAnswer),
    Said(Words, mpsc::Sender<()>),
    Nudge,
}

struct Open {
    ask: Ask,
    /// The waiting thread, or nobody when only the call itself matters.
    answer: Option<mpsc::Sender<Word>>,
}

#[derive(Default)]
struct State {
    last: u64,
    open: BTreeMap<(RunnerName, u64), Open>,
    desks: HashMap<AttemptId, mpsc::Sender<Word>>,
}

/// All open calls.
pub(crate) struct Calls {
    state: Mutex<State>,
    bell: watch::Sender<u64>,
}

impl Calls {
    /// Creates the table. `revision` is the board's at the start, which makes the numbers higher
    /// than those of the last start.
    pub(crate) fn new(revision: u64) -> Calls {
        let state = State { last: revision << 24, ..State::default() };
        Calls { state: Mutex::new(state), bell: watch::Sender::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self, runner: &RunnerName, ask: Ask, answer: Option<mpsc::Sender<Word>>) -> u64 {
        let mut state = self.lock();
        if let Ask::Wish { attempt, .. } = &ask {
            // Only the last input counts.
            let attempt = *attempt;
            state.open.retain(|key, it| {
                key.0 != *runner || !matches!(&it.ask, Ask::Wish { attempt: old, .. } if *old == attempt)
            });
        }
        state.last += 1;
        let id = state.last;
        state.open.insert((runner.clone(), id), Open { ask, answer });
        drop(state);
        self.bell.send_modify(|it| *it += 1);
        id
    }

    fn close(&self, runner: &RunnerName, id: u64) -> Option<Open> {
        self.lock().open.remove(&(runner.clone(), id))
    }

    fn after(&self, runner: &RunnerName, after: u64) -> Vec<Call> {
        let state = self.lock();
        let range = (runner.clone(), after.saturating_add(1))..=(runner.clone(), u64::MAX);
        state.open.range(range).take(64).map(|(key, it)| Call { id: key.1, ask: it.ask.clone() }).collect()
    }
}

impl Engine {
    /// Returns the open calls to a runner after the last one that it has seen.
    pub fn runner_calls(&self, name: &RunnerName, session: u64, after: u64) -> Result<Vec<Call>, Refusal> {
        runner::speaks_for(&self.board(), name, session)?;
        Ok(self.shared.calls.after(name, after))
    }

    /// Returns a receiver that changes whenever a runner gets a call.
    pub fn runner_bell(&self) -> watch::Receiver<u64> {
        self.shared.calls.bell.subscribe()
    }

    /// Accepts a runner's answer. An answer for which nobody waits any more changes nothing.
    pub fn runner_answered(&self, name: &RunnerName, session: u64, id: u64, answer: CallAnswer) -> Result<(), Refusal> {
        runner::speaks_for(&self.board(), name, session)?;
        if let Some(waiting) = self.shared.calls.close(name, id).and_then(|it| it.answer) {
            let _gone = waiting.send(Word::Answered(answer));
        }
        Ok(())
    }

    /// Accepts the events of a program at a runner, and returns when they were handled. Returns
    /// `false` if no thread attends the program now; the next one gets all its events.
    pub fn runner_said(
        &self,
        name: &RunnerName,
        session: u64,
        attempt: AttemptId,
        words: Words,
    ) -> Result<bool, Refusal> {
        runner::speaks_for(&self.board(), name, session)?;
        let own = self.board().attempts.get(&attempt).is_some_and(|it| it.runner.as_ref() == Some(name));
        let desk = self.shared.calls.lock().desks.get(&attempt).cloned();
        let (Some(desk), true) = (desk, own) else { return Ok(false) };
        let (heard, hears) = mpsc::channel();
        Ok(desk.send(Word::Said(words, heard)).is_ok() && hears.recv().is_ok())
    }
}

/// A runner's machine, as seen by the daemon.
pub(crate) struct There {
    engine: Engine,
    runner: RunnerName,
}

impl There {
    pub(crate) fn new(engine: &Engine, runner: RunnerName) -> There {
        There { engine: engine.clone(), runner }
    }

    /// Returns why waiting for the runner is useless, if it is.
    fn given_up(&self) -> Option<String> {
        if self.engine.is_stopping() {
            return Some("the daemon is stopping".into());
        }
        let board = self.engine.board();
        let there = board.runners.get(&self.runner).is_some_and(|it| it.is_there());
        (!there).then(|| format!("the runner {} is not connected", self.runner))
    }

    fn call<T: DeserializeOwned>(&self, ask: Ask) -> Result<T, SiteError> {
        let (sender, words) = mpsc::channel();
        let calls = &self.engine.shared.calls;
        let id = calls.open(&self.runner, ask, Some(sender));
        loop {
            match words.recv_timeout(LOOK_UP) {
                Ok(Word::Answered(answer)) => return understand(answer),
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err("the call to the runner was dropped".to_owned().into());
                }
            }
            if let Some(why) = self.given_up() {
                calls.close(&self.runner, id);
                return Err(why.into());
            }
        }
    }

    /// Records that commands run for an attempt on the runner's machine, until the entry is
    /// dropped.
    fn enter(&self, order: &Order, commands: &str) -> Entry<'_> {
        let what = format!("{commands}, on the runner {}", self.runner);
        self.engine.shared.commands.enter(CommandOwner::Attempt(order.attempt.id), &what)
    }

    fn ask_agents<T: DeserializeOwned>(&self, ask: Ask) -> Result<T, AgentError> {
        self.call(ask).map_err(|error| self.unwell(error.reason))
    }

    /// Returns the fault of the repository on this machine that keeps a runner from fetching it, if
    /// that is the cause. The runner itself only learns that the fetch failed.
    fn fault_here(&self, order: &Order) -> Option<SiteError> {
        let error = self.engine.shared.git.compare_trunk(&Repo::of(&order.project), &[]).err()?;
        Some(SiteError::from(error)).filter(|error| error.fault.is_some())
    }

    fn unwell(&self, what: String) -> AgentError {
        AgentError { what, hint: format!("look at the runner {}: regatta runner list", self.runner) }
    }
}

fn understand<T: DeserializeOwned>(answer: CallAnswer) -> Result<T, SiteError> {
    let read = serde_json::from_value(answer?);
    read.map_err(|error| format!("could not read the runner's answer: {error}").into())
}

fn boxed(order: &Order) -> Box<Order> {
    Box::new(order.clone())
}

impl Site for There {
    fn taken(&self, ports: &[u16]) -> Result<Vec<u16>, String> {
        self.call(Ask::Taken { ports: ports.to_vec() }).map_err(String::from)
    }

    fn ready(&self, order: &Order, ports: &[(String, String)]) -> Result<Workspace, SiteError> {
        let _entry = self.enter(order, "its setup commands");
        let ready = self.call(Ask::Ready { order: boxed(order), ports: ports.to_vec() });
        ready.map_err(|error: SiteError| self.fault_here(order).filter(|_| error.fault.is_none()).unwrap_or(error))
    }

    fn brief(&self, order: &Order, briefing: Option<&str>) -> Result<bool, String> {
        self.call(Ask::Brief { order: boxed(order), briefing: briefing.map(str::to_owned) }).map_err(String::from)
    }

    fn state(&self, attempt: AttemptId) -> Result<ProcessState, AgentError> {
        self.ask_agents(Ask::State { attempt })
    }

    fn start(&self, launch: &Launch) -> Result<Started, AgentError> {
        self.ask_agents(Ask::Start { launch: Box::new(launch.clone()) })
    }

    fn attend(&self, attempt: AttemptId, desk: &dyn Desk) -> Result<Option<Verdict>, AgentError> {
        let (sender, words) = mpsc::channel();
        let calls = &self.engine.shared.calls;
        calls.lock().desks.insert(attempt, sender.clone());
        let id = calls.open(&self.runner, Ask::Attend { attempt }, Some(sender));
        let mut sent = None;
        let ended = loop {
            if !desk.goes_on() {
                break Ok(None);
            }
            if let Some(why) = self.given_up() {
                break Err(self.unwell(why));
            }
            let session = self.engine.board().runners.get(&self.runner).map(|it| it.session);
            let silence_ms = u64::try_from(desk.silence().as_millis()).unwrap_or(u64::MAX);
            let wanted = (session, desk.wishes(), silence_ms);
            if sent.as_ref() != Some(&wanted) {
                calls.open(&self.runner, Ask::Wish { attempt, wishes: wanted.1.clone(), silence_ms }, None);
                sent = Some(wanted);
            }
            match words.recv_timeout(LOOK_UP) {
                Ok(Word::Answered(answer)) => {
                    break understand::<Option<Verdict>>(answer).map_err(|error| self.unwell(error.reason));
                }
                Ok(Word::Said(words, heard)) => {
                    for (n, said) in words.heard {
                        desk.heard(n, said);
                    }
                    if let Some(since) = words.silent {
                        desk.silent(since.map(Duration::from_millis));
                    }
                    let _gone = heard.send(());
                }
                Ok(Word::Nudge) | Err(_) => {}
            }
        };
        calls.lock().desks.remove(&attempt);
        calls.close(&self.runner, id);
        ended
    }

    fn nudge(&self, attempt: AttemptId) {
        if let Some(desk) = self.engine.shared.calls.lock().desks.get(&attempt) {
            let _gone = desk.send(Word::Nudge);
        }
    }

    fn stop(&self, attempt: AttemptId, grace: Duration) -> Result<Exit, AgentError> {
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        self.ask_agents(Ask::Stop { attempt, grace_ms })
    }

    fn hear(&self, order: &Order) -> Result<Heard, String> {
        self.call(Ask::Hear { order: boxed(order) }).map_err(String::from)
    }

    /// By now the runner has pushed the capture. Only what arrived in the vault counts.
    fn capture(&self, order: &Order, authorship: &Authorship) -> Result<Capture, SiteError> {
        let said: Capture = self.call(Ask::Capture { order: boxed(order), authorship: authorship.clone() })?;
        let repo = Repo::of(&order.project);
        let (git, of) = (&self.engine.shared.git, order.attempt.workspace());
        let kept = git.kept(&repo, of).map_err(|it| it.to_string())?;
        match kept {
            Some(kept) if kept.commit == said.commit => {
                let base = kept.base.clone();
                let known = match &order.task.fixup {
                    Some(fixup) => git.recognise_fixup(&repo, of, &base, fixup),
                    None => git.tip(&repo).and_then(|tip| git.contains(&repo, &tip, &base)),
                };
                if known.map_err(|it| it.to_string())? {
                    return Ok(kept);
                }
                Err(format!("the runner worked on {base}, which is not the base that it was given").into())
            }
            Some(kept) => Err(format!("the runner captured {}, but pushed {}", said.commit, kept.commit).into()),
            None => Err(format!("the runner captured {}, but pushed nothing", said.commit).into()),
        }
    }

    fn examine(&self, order: &Order) -> Result<Vec<Evidence>, String> {
        let _entry = self.enter(order, "its checks");
        self.call(Ask::Examine { order: boxed(order) }).map_err(String::from)
    }

    fn ratchet(&self, order: &Order) -> Result<Option<String>, String> {
        let ratchet = order.task.ratchet.as_ref();
        let _entry = ratchet.map(|argv| self.enter(order, &format!("ratchet `{}`", argv.join(" "))));
        self.call(Ask::Ratchet { order: boxed(order) }).map_err(String::from)
    }

    fn clear(&self, order: &Order, authorship: &Authorship) -> Result<(), String> {
        if !self.engine.board().runners.contains_key(&self.runner) {
            let id = order.attempt.id;
            tracing::warn!(attempt = %id, "the files of the attempt stay on the machine of the runner {}, which was removed", self.runner);
            return Ok(());
        }
        self.call(Ask::Clear { order: boxed(order), authorship: authorship.clone() }).map_err(String::from)
    }

    fn place(&self, _order: &Order) -> Option<PathBuf> {
        None
    }
}
