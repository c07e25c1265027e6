//! The daemon's side of a runner (a process that executes attempts on another machine). Each method
//! of [`Site`] (the interface to the machine of an attempt) creates a call that the runner fetches,
//! and waits for the runner's answer.
//!
//! A call stays open until the runner answers it. The runner always asks for the calls after the
//! last call that it has seen. The runner repeats an answer that may have been lost, and a
//! restarted runner gets all open calls again. Call numbers only rise, even across restarts of the
//! daemon. Every call can be repeated, so no further protocol is needed.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use regatta_core::agent_protocol::AgentEvent;
use regatta_core::attempt::CheckEvidence;
use regatta_core::ids::{AttemptId, RunnerName};
use regatta_core::refusal::Refusal;
use regatta_core::runner;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::watch;

use crate::Engine;
use crate::perform::POLL_INTERVAL;
use crate::ports::agents::{
    AgentError, DriverVerdict, Exit, ProcessState, ProgramLaunch, SessionInput, SessionSink,
    StartOutcome,
};
use crate::ports::git::{Authorship, Capture, ProjectRepo, Workspace};
use crate::ports::site::{AttemptSpec, Site, SiteError, WorkerReport};
use crate::running_commands::{CommandEntry, CommandOwner};

/// A request to a runner (a process that executes attempts on another machine). Each variant is one
/// method of [`Site`], the interface to that machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "do")]
pub enum RunnerRequest {
    #[serde(rename = "taken")]
    PortsInUse {
        ports: Vec<u16>,
    },
    #[serde(rename = "ready")]
    MakeReady {
        order: Box<AttemptSpec>,
        ports: Vec<(String, String)>,
    },
    #[serde(rename = "brief")]
    WriteBriefing {
        order: Box<AttemptSpec>,
        briefing: Option<String>,
    },
    State {
        attempt: AttemptId,
    },
    Start {
        launch: Box<ProgramLaunch>,
    },
    /// Follow the attempt's program. The runner answers when the program has ended, and until then
    /// sends its events as [`SessionEvents`].
    Attend {
        attempt: AttemptId,
    },
    /// The complete input that a running program should have received by now. This input replaces
    /// the input of earlier requests.
    #[serde(rename = "wish")]
    UpdateInput {
        attempt: AttemptId,
        wishes: SessionInput,
        silence_ms: u64,
    },
    Stop {
        attempt: AttemptId,
        grace_ms: u64,
    },
    #[serde(rename = "hear")]
    ReadReport {
        order: Box<AttemptSpec>,
    },
    Capture {
        order: Box<AttemptSpec>,
        authorship: Authorship,
    },
    #[serde(rename = "examine")]
    RunChecks {
        order: Box<AttemptSpec>,
    },
    #[serde(rename = "ratchet")]
    RunRatchet {
        order: Box<AttemptSpec>,
    },
    #[serde(rename = "clear")]
    RemoveWorkspace {
        order: Box<AttemptSpec>,
        authorship: Authorship,
    },
}

impl RunnerRequest {
    /// Returns the attempt that the request is about, or `None` for a request about the whole
    /// machine.
    pub fn attempt(&self) -> Option<AttemptId> {
        match self {
            RunnerRequest::PortsInUse { .. } => None,
            RunnerRequest::State { attempt }
            | RunnerRequest::Attend { attempt }
            | RunnerRequest::UpdateInput { attempt, .. }
            | RunnerRequest::Stop { attempt, .. } => Some(*attempt),
            RunnerRequest::Start { launch } => Some(launch.attempt),
            RunnerRequest::MakeReady { order, .. }
            | RunnerRequest::WriteBriefing { order, .. }
            | RunnerRequest::ReadReport { order }
            | RunnerRequest::Capture { order, .. }
            | RunnerRequest::RunChecks { order }
            | RunnerRequest::RunRatchet { order }
            | RunnerRequest::RemoveWorkspace { order, .. } => Some(order.attempt.id),
        }
    }
}

/// A request to a runner (a process that executes attempts on another machine), with the number to
/// which the runner's answer refers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnerCall {
    pub id: u64,
    pub ask: RunnerRequest,
}

/// The answer of a runner (a process that executes attempts on another machine) to a call: the
/// result as JSON, or the reason why the call failed.
pub type CallAnswer = Result<Value, SiteError>;

/// New events of a program on a runner's machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionEvents {
    /// The events, each with the number of its record in the journal (the file that records
    /// everything that goes in and out of the agent's program).
    #[serde(rename = "heard")]
    pub events: Vec<(u64, AgentEvent)>,
    /// The number of milliseconds for which the agent's program has been without output.
    /// `Some(None)` means that the program produces output again, and `None` means that nothing has
    /// changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent: Option<Option<u64>>,
}

/// A message to the thread of the daemon that waits for a runner (a process that executes attempts
/// on another machine).
enum CallMessage {
    Answered(CallAnswer),
    Events(SessionEvents, mpsc::Sender<()>),
    RefreshInput,
}

struct OpenCall {
    ask: RunnerRequest,
    /// The channel to the thread that waits for the answer. `None` if no thread waits for the
    /// answer.
    waiter: Option<mpsc::Sender<CallMessage>>,
}

#[derive(Default)]
struct State {
    last_id: u64,
    open: BTreeMap<(RunnerName, u64), OpenCall>,
    sinks: HashMap<AttemptId, mpsc::Sender<CallMessage>>,
}

/// All calls that runners (processes that execute attempts on other machines) have not answered
/// yet.
pub(crate) struct RunnerCallTable {
    state: Mutex<State>,
    notifier: watch::Sender<u64>,
}

impl RunnerCallTable {
    /// Creates the table. The first call number is computed from the store's current `revision`, so
    /// that it is higher than all call numbers of the daemon's last run.
    pub(crate) fn new(revision: u64) -> RunnerCallTable {
        let state = State {
            last_id: revision << 24,
            ..State::default()
        };
        RunnerCallTable {
            state: Mutex::new(state),
            notifier: watch::Sender::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(
        &self,
        runner: &RunnerName,
        request: RunnerRequest,
        waiter: Option<mpsc::Sender<CallMessage>>,
    ) -> u64 {
        let mut state = self.lock();
        if let RunnerRequest::UpdateInput { attempt, .. } = &request {
            // A newer input contains all earlier ones, so earlier calls with an input for the same
            // program are removed.
            let attempt = *attempt;
            state.open.retain(|(open_runner, _), open_call| {
                let is_same_program = matches!(
                    &open_call.ask,
                    RunnerRequest::UpdateInput { attempt: other, .. } if *other == attempt
                );
                open_runner != runner || !is_same_program
            });
        }
        state.last_id += 1;
        let id = state.last_id;
        let call = OpenCall {
            ask: request,
            waiter,
        };
        state.open.insert((runner.clone(), id), call);
        drop(state);
        self.notifier.send_modify(|version| *version += 1);
        id
    }

    fn close(&self, runner: &RunnerName, id: u64) -> Option<OpenCall> {
        self.lock().open.remove(&(runner.clone(), id))
    }

    fn open_after(&self, runner: &RunnerName, after: u64) -> Vec<RunnerCall> {
        let state = self.lock();
        let range = (runner.clone(), after.saturating_add(1))..=(runner.clone(), u64::MAX);
        state
            .open
            .range(range)
            .take(64)
            .map(|((_, id), open_call)| RunnerCall {
                id: *id,
                ask: open_call.ask.clone(),
            })
            .collect()
    }
}

impl Engine {
    /// Returns the open calls to a runner (a process that executes attempts on another machine)
    /// with numbers above `after`, the last call that the runner has seen. Refuses a `session` that
    /// is not the runner's current session.
    pub fn runner_calls(
        &self,
        name: &RunnerName,
        session: u64,
        after: u64,
    ) -> Result<Vec<RunnerCall>, Refusal> {
        runner::require_session(&self.board(), name, session)?;
        Ok(self.shared.runner_calls.open_after(name, after))
    }

    /// Returns a receiver that is notified whenever there is a new call to any runner (a process
    /// that executes attempts on another machine).
    pub fn watch_runner_calls(&self) -> watch::Receiver<u64> {
        self.shared.runner_calls.notifier.subscribe()
    }

    /// Accepts the answer of a runner (a process that executes attempts on another machine) to call
    /// `id`. If no thread waits for the answer any more, nothing happens.
    pub fn on_runner_answer(
        &self,
        name: &RunnerName,
        session: u64,
        id: u64,
        answer: CallAnswer,
    ) -> Result<(), Refusal> {
        runner::require_session(&self.board(), name, session)?;
        if let Some(waiter) = self
            .shared
            .runner_calls
            .close(name, id)
            .and_then(|open_call| open_call.waiter)
        {
            let _gone = waiter.send(CallMessage::Answered(answer));
        }
        Ok(())
    }

    /// Accepts the events of a program on a runner's machine, and returns after they were handled.
    /// Returns `false` if no thread of the daemon follows the program now. The next thread that
    /// follows the program receives all events from the beginning.
    pub fn on_runner_events(
        &self,
        name: &RunnerName,
        session: u64,
        attempt: AttemptId,
        events: SessionEvents,
    ) -> Result<bool, Refusal> {
        runner::require_session(&self.board(), name, session)?;
        let is_own = self
            .board()
            .attempts
            .get(&attempt)
            .is_some_and(|attempt| attempt.runner.as_ref() == Some(name));
        let sink = self.shared.runner_calls.lock().sinks.get(&attempt).cloned();
        let (Some(sink), true) = (sink, is_own) else {
            return Ok(false);
        };
        let (handled, wait_handled) = mpsc::channel();
        Ok(sink.send(CallMessage::Events(events, handled)).is_ok() && wait_handled.recv().is_ok())
    }
}

/// The daemon's interface to a runner's machine, on which attempts work.
pub(crate) struct RemoteSite {
    engine: Engine,
    runner: RunnerName,
}

impl RemoteSite {
    pub(crate) fn new(engine: &Engine, runner: RunnerName) -> RemoteSite {
        RemoteSite {
            engine: engine.clone(),
            runner,
        }
    }

    /// Returns the reason why the runner (a process that executes attempts on another machine)
    /// cannot answer now, or `None` if the runner can.
    fn unreachable_reason(&self) -> Option<String> {
        if self.engine.is_stopping() {
            return Some("the daemon is stopping".into());
        }
        let board = self.engine.board();
        let is_connected = board
            .runners
            .get(&self.runner)
            .is_some_and(|runner| runner.is_present());
        (!is_connected).then(|| format!("the runner {} is not connected", self.runner))
    }

    fn call<T: DeserializeOwned>(&self, request: RunnerRequest) -> Result<T, SiteError> {
        let (sender, messages) = mpsc::channel();
        let calls = &self.engine.shared.runner_calls;
        let id = calls.open(&self.runner, request, Some(sender));
        loop {
            match messages.recv_timeout(POLL_INTERVAL) {
                Ok(CallMessage::Answered(answer)) => return parse_answer(answer),
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err("the call to the runner was dropped".to_owned().into());
                }
            }
            if let Some(why) = self.unreachable_reason() {
                calls.close(&self.runner, id);
                return Err(why.into());
            }
        }
    }

    /// Records that commands run for an attempt on the runner's machine. The record ends when the
    /// returned entry is dropped.
    fn register_commands(&self, spec: &AttemptSpec, commands: &str) -> CommandEntry<'_> {
        let message = format!("{commands}, on the runner {}", self.runner);
        self.engine
            .shared
            .commands
            .register(CommandOwner::Attempt(spec.attempt.id), &message)
    }

    fn call_agents<T: DeserializeOwned>(&self, request: RunnerRequest) -> Result<T, AgentError> {
        self.call(request)
            .map_err(|error| self.runner_error(error.reason))
    }

    /// Checks the repository on this machine after a runner (a process that executes attempts on
    /// another machine) could not fetch from it. Returns the problem that a person must fix, or
    /// `None` if the repository is fine. The runner itself only learns that its fetch failed.
    fn local_repo_fault(&self, spec: &AttemptSpec) -> Option<SiteError> {
        let error = self
            .engine
            .shared
            .git
            .compare_trunk(&ProjectRepo::from_project(&spec.project), &[])
            .err()?;
        Some(SiteError::from(error)).filter(|error| error.fault.is_some())
    }

    fn runner_error(&self, message: String) -> AgentError {
        AgentError {
            message,
            hint: format!("look at the runner {}: regatta runner list", self.runner),
        }
    }
}

fn parse_answer<T: DeserializeOwned>(answer: CallAnswer) -> Result<T, SiteError> {
    let parsed = serde_json::from_value(answer?);
    parsed.map_err(|error| format!("could not read the runner's answer: {error}").into())
}

fn boxed_spec(spec: &AttemptSpec) -> Box<AttemptSpec> {
    Box::new(spec.clone())
}

impl Site for RemoteSite {
    fn ports_in_use(&self, ports: &[u16]) -> Result<Vec<u16>, String> {
        self.call(RunnerRequest::PortsInUse {
            ports: ports.to_vec(),
        })
        .map_err(String::from)
    }

    fn make_ready(
        &self,
        spec: &AttemptSpec,
        ports: &[(String, String)],
    ) -> Result<Workspace, SiteError> {
        let _entry = self.register_commands(spec, "its setup commands");
        let ready = self.call(RunnerRequest::MakeReady {
            order: boxed_spec(spec),
            ports: ports.to_vec(),
        });
        ready.map_err(|error: SiteError| {
            self.local_repo_fault(spec)
                .filter(|_| error.fault.is_none())
                .unwrap_or(error)
        })
    }

    fn write_briefing(&self, spec: &AttemptSpec, briefing: Option<&str>) -> Result<bool, String> {
        self.call(RunnerRequest::WriteBriefing {
            order: boxed_spec(spec),
            briefing: briefing.map(str::to_owned),
        })
        .map_err(String::from)
    }

    fn state(&self, attempt: AttemptId) -> Result<ProcessState, AgentError> {
        self.call_agents(RunnerRequest::State { attempt })
    }

    fn start(&self, launch: &ProgramLaunch) -> Result<StartOutcome, AgentError> {
        self.call_agents(RunnerRequest::Start {
            launch: Box::new(launch.clone()),
        })
    }

    fn attend(
        &self,
        attempt: AttemptId,
        sink: &dyn SessionSink,
    ) -> Result<Option<DriverVerdict>, AgentError> {
        let (sender, messages) = mpsc::channel();
        let calls = &self.engine.shared.runner_calls;
        calls.lock().sinks.insert(attempt, sender.clone());
        let id = calls.open(
            &self.runner,
            RunnerRequest::Attend { attempt },
            Some(sender),
        );
        let mut sent = None;
        let ended = loop {
            if !sink.should_continue() {
                break Ok(None);
            }
            if let Some(why) = self.unreachable_reason() {
                break Err(self.runner_error(why));
            }
            let session = self
                .engine
                .board()
                .runners
                .get(&self.runner)
                .map(|runner| runner.session);
            let silence_ms =
                u64::try_from(sink.silence_threshold().as_millis()).unwrap_or(u64::MAX);
            let desired = (session, sink.desired_input(), silence_ms);
            if sent.as_ref() != Some(&desired) {
                calls.open(
                    &self.runner,
                    RunnerRequest::UpdateInput {
                        attempt,
                        wishes: desired.1.clone(),
                        silence_ms,
                    },
                    None,
                );
                sent = Some(desired);
            }
            match messages.recv_timeout(POLL_INTERVAL) {
                Ok(CallMessage::Answered(answer)) => {
                    break parse_answer::<Option<DriverVerdict>>(answer)
                        .map_err(|error| self.runner_error(error.reason));
                }
                Ok(CallMessage::Events(events, handled)) => {
                    for (position, event) in events.events {
                        sink.on_event(position, event);
                    }
                    if let Some(since) = events.silent {
                        sink.on_silence(since.map(Duration::from_millis));
                    }
                    let _gone = handled.send(());
                }
                Ok(CallMessage::RefreshInput) | Err(_) => {}
            }
        };
        calls.lock().sinks.remove(&attempt);
        calls.close(&self.runner, id);
        ended
    }

    fn refresh_input(&self, attempt: AttemptId) {
        if let Some(sink) = self.engine.shared.runner_calls.lock().sinks.get(&attempt) {
            let _gone = sink.send(CallMessage::RefreshInput);
        }
    }

    fn stop(&self, attempt: AttemptId, grace: Duration) -> Result<Exit, AgentError> {
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        self.call_agents(RunnerRequest::Stop { attempt, grace_ms })
    }

    fn read_report(&self, spec: &AttemptSpec) -> Result<WorkerReport, String> {
        self.call(RunnerRequest::ReadReport {
            order: boxed_spec(spec),
        })
        .map_err(String::from)
    }

    /// The runner has already pushed the work. The daemon reads the work from its own vault
    /// (Regatta's own repository), because the daemon does not rely on what the runner reports.
    fn capture(&self, spec: &AttemptSpec, authorship: &Authorship) -> Result<Capture, SiteError> {
        let reported: Capture = self.call(RunnerRequest::Capture {
            order: boxed_spec(spec),
            authorship: authorship.clone(),
        })?;
        let repo = ProjectRepo::from_project(&spec.project);
        let (git, workspace_id) = (&self.engine.shared.git, spec.attempt.workspace());
        let captured = git
            .captured(&repo, workspace_id)
            .map_err(|error| error.to_string())?;
        match captured {
            Some(captured) if captured.commit == reported.commit => {
                let base = captured.base.clone();
                let is_known_base = match &spec.task.fixup {
                    Some(fixup) => git.recognise_fixup(&repo, workspace_id, &base, fixup),
                    None => git
                        .tip(&repo)
                        .and_then(|tip| git.contains(&repo, &tip, &base)),
                };
                if is_known_base.map_err(|error| error.to_string())? {
                    return Ok(captured);
                }
                Err(
                    format!("the runner started from {base} instead of the requested commit")
                        .into(),
                )
            }
            Some(captured) => Err(format!(
                "the runner reported the commit {}, but pushed {}",
                reported.commit, captured.commit
            )
            .into()),
            None => Err(format!(
                "the runner reported the commit {}, but pushed nothing",
                reported.commit
            )
            .into()),
        }
    }

    fn run_checks(&self, spec: &AttemptSpec) -> Result<Vec<CheckEvidence>, String> {
        let _entry = self.register_commands(spec, "its checks");
        self.call(RunnerRequest::RunChecks {
            order: boxed_spec(spec),
        })
        .map_err(String::from)
    }

    fn run_ratchet(&self, spec: &AttemptSpec) -> Result<Option<String>, String> {
        let ratchet = spec.task.ratchet.as_ref();
        let _entry = ratchet
            .map(|argv| self.register_commands(spec, &format!("ratchet `{}`", argv.join(" "))));
        self.call(RunnerRequest::RunRatchet {
            order: boxed_spec(spec),
        })
        .map_err(String::from)
    }

    fn remove_workspace(&self, spec: &AttemptSpec, authorship: &Authorship) -> Result<(), String> {
        if !self.engine.board().runners.contains_key(&self.runner) {
            let id = spec.attempt.id;
            tracing::warn!(attempt = %id, "could not remove the files of attempt {id} from the \
                machine of runner {}, because that runner was removed; delete them there by hand",
                self.runner);
            return Ok(());
        }
        self.call(RunnerRequest::RemoveWorkspace {
            order: boxed_spec(spec),
            authorship: authorship.clone(),
        })
        .map_err(String::from)
    }

    fn working_dir(&self, _spec: &AttemptSpec) -> Option<PathBuf> {
        None
    }
}
