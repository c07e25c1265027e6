//! A runner: a process that runs agents on this machine for a daemon on another machine.
//!
//! A runner uses the same code as the daemon does for its own machine; only requests and results go
//! over the network. The runner registers with the daemon and sends a beat (a sign that the runner
//! still runs) every few seconds. The daemon may repeat a request, so the runner starts each
//! request once, and repeats its answer until the daemon has received it. After too long a time
//! without contact the runner stops its programs, because by then the daemon may give their tasks
//! to another runner.

mod daemon_client; // calls to the daemon
mod handle_call;
mod session_relay; // supervision of one program // execution of the daemon's requests

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use regatta_api::call;
use regatta_api::input;
use regatta_api::view::RunnerCallView;
use regatta_core::ids::{AgentName, AttemptId, RunnerName};
use regatta_core::plural;
use regatta_core::runner::{HEARTBEAT_INTERVAL_MS, RegisterRunner, SELF_FENCE_TIMEOUT_MS};
use regatta_engine::LocalSite;
use regatta_engine::ports::agents::{Agents, ProcessState, SessionInput};
use regatta_engine::ports::git::RunnerGit;
use regatta_engine::ports::site::{AttemptSpec, Site, SiteError};
use regatta_engine::remote_site;

use crate::composition;
use crate::daemon;
use crate::output::{CommandError, CommandResult, Output, command_error, runtime_error};
use daemon_client::{DaemonCallError, DaemonClient};
use session_relay::SupervisionState;

/// The time that a program has for ending by itself when it is stopped, before it is killed.
const STOP_GRACE: Duration = Duration::from_secs(10);
/// The interval at which to check, during a shutdown, whether the running attempts have finished.
const SHUTDOWN_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The interval at which old journals (records of a program's input and output) and records of
/// commands are removed.
const PRUNE_INTERVAL: Duration = Duration::from_secs(3_600);
/// The time to wait after a failed call before the daemon is called again.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// The settings of a runner (a process that runs agents for a daemon on another machine), from the
/// command line.
pub(crate) struct RunnerSettings {
    pub(crate) server: String,
    pub(crate) token: String,
    pub(crate) ca_file: Option<PathBuf>,
    pub(crate) name: RunnerName,
    pub(crate) max_tasks: u32,
    pub(crate) agents: Vec<AgentName>,
    pub(crate) labels: Vec<String>,
    /// The maximum time that running attempts (runs of an agent on a task) have for finishing after
    /// the runner was told to stop.
    pub(crate) shutdown_timeout: Duration,
}

/// The state of this runner, which its threads share.
struct RunnerProcess {
    settings: RunnerSettings,
    data_dir: PathBuf,
    identity: String,
    daemon: DaemonClient,
    local_site: LocalSite,
    git: Arc<dyn RunnerGit>,
    agents: Arc<dyn Agents>,
    session: AtomicU64,
    /// The time at which the daemon last answered.
    last_contact: Mutex<Instant>,
    /// The ids of the daemon's requests that are being executed.
    running_calls: Mutex<HashSet<u64>>,
    /// The state of the supervision of each attempt's program, with the daemon's instructions for
    /// the program.
    supervised: Mutex<HashMap<AttemptId, Arc<SupervisionState>>>,
    /// A lock for each attempt, so that only one thread at a time supervises its program.
    supervision_locks: Mutex<HashMap<AttemptId, Arc<Mutex<()>>>>,
    /// The attempts on this machine, as the daemon last described them.
    attempt_specs: Mutex<HashMap<AttemptId, AttemptSpec>>,
    /// The time at which the contact file was last written. If nobody writes the file for too long,
    /// the shims (processes that supervise agents' programs) stop their programs.
    contact_file_written: Mutex<Option<Instant>>,
    is_ending: AtomicBool,
    /// True from a failed call to the daemon until the daemon answers again.
    is_cut_off: AtomicBool,
    output: Output,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the runner until a signal asks it to stop.
pub(crate) fn run_runner(out: &Output, data_dir: &Path, settings: RunnerSettings) -> CommandResult {
    composition::require_supported_git()?;
    let runner_dir = daemon::DataDir::new(data_dir);
    runner_dir.create()?;
    let _lock = lock_data_dir(&runner_dir)?;
    let identity = load_or_create_identity(&runner_dir)?;
    let (git, agents) = composition::runner_adapters(data_dir)?;
    let daemon_client =
        DaemonClient::new(&settings.server, &settings.token, settings.ca_file.clone())?;
    let runner = Arc::new(RunnerProcess {
        data_dir: data_dir.to_owned(),
        identity,
        daemon: daemon_client,
        local_site: LocalSite::for_runner(git.clone(), agents.clone()),
        git,
        agents,
        session: AtomicU64::new(0),
        last_contact: Mutex::new(Instant::now()),
        running_calls: Mutex::default(),
        supervised: Mutex::default(),
        supervision_locks: Mutex::default(),
        attempt_specs: Mutex::default(),
        contact_file_written: Mutex::default(),
        is_ending: AtomicBool::new(false),
        is_cut_off: AtomicBool::new(false),
        output: out.clone(),
        settings,
    });
    let (name, server) = (runner.settings.name.clone(), runner.settings.server.clone());
    let signals = ShutdownSignals::install()?;
    runner.register(&signals)?;
    out.print_note(&format!(
        "the runner {name} works for {server}; Ctrl-C lets running attempts finish first"
    ));
    let beats = runner.clone();
    std::thread::spawn(move || beats.run_beats());
    let calls = runner.clone();
    std::thread::spawn(move || calls.run_calls());
    let dir = data_dir.to_owned();
    std::thread::spawn(move || {
        // In the first round of this loop keep the records of commands, because the daemon may
        // still ask how the commands ended.
        for nth in 0.. {
            if let Some(today_unix_ms) = composition::retention_date(&dir) {
                composition::prune_old_data(&dir, nth > 0, today_unix_ms);
            }
            std::thread::sleep(PRUNE_INTERVAL);
        }
    });
    signals.wait();
    runner.shut_down(out, &signals)
}

/// Locks the data directory for this runner. Fails if another runner holds the lock.
fn lock_data_dir(data_dir: &daemon::DataDir) -> Result<std::fs::File, CommandError> {
    let path = data_dir.path.join("runner.lock");
    let file = std::fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path);
    let file = file.map_err(|error| data_dir.io_error(&error))?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(command_error(
            "in_use",
            format!(
                "another runner already uses the data directory {}",
                data_dir.path.display()
            ),
            "stop the other runner, or set REGATTA_DATA_DIR to another directory",
        )),
        Err(error) => Err(data_dir.io_error(&error.into())),
    }
}

/// Returns the random identity of this installation, by which the daemon distinguishes this runner
/// from another runner with the same name. Creates the identity at the first start.
fn load_or_create_identity(data_dir: &daemon::DataDir) -> Result<String, CommandError> {
    let path = data_dir.path.join("runner.id");
    if let Ok(stored) = std::fs::read_to_string(&path)
        && !stored.trim().is_empty()
    {
        return Ok(stored.trim().to_owned());
    }
    let fresh = daemon::random_hex(16).map_err(|error| data_dir.io_error(&error))?;
    daemon::write_atomically(&path, &format!("{fresh}\n"))
        .map_err(|error| data_dir.io_error(&error))?;
    Ok(fresh)
}

impl RunnerProcess {
    fn session(&self) -> u64 {
        self.session.load(Ordering::SeqCst)
    }

    fn name(&self) -> RunnerName {
        self.settings.name.clone()
    }

    fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::SeqCst)
    }

    fn record_contact(&self) {
        *lock(&self.last_contact) = Instant::now();
        let mut noted = lock(&self.contact_file_written);
        if noted.is_none_or(|instant| instant.elapsed() >= Duration::from_secs(1)) {
            composition::record_contact(&self.data_dir);
            *noted = Some(Instant::now());
        }
    }

    /// Records an answer of the daemon, and prints a line if earlier calls had failed.
    fn note_contact(&self) {
        self.record_contact();
        if self.is_cut_off.swap(false, Ordering::SeqCst) {
            self.output
                .print_note(&format!("reached the daemon at {}", self.settings.server));
        }
    }

    /// Prints a line about a failed call to the daemon. Prints nothing about further failures until
    /// the daemon answers again.
    fn note_cut_off(&self, reason: &str) {
        if !self.is_cut_off.swap(true, Ordering::SeqCst) && !self.is_ending() {
            self.output.print_note(&format!(
                "could not reach the daemon at {}, trying again until it answers: {reason}",
                self.settings.server
            ));
        }
    }

    /// Registers with the daemon, and retries until the daemon answers or a signal arrives. After
    /// that, stops the programs of attempts (runs of an agent on a task) that no longer belong to
    /// this runner.
    fn register(&self, signals: &ShutdownSignals) -> Result<(), CommandError> {
        let call = call::RunnerRegister(RegisterRunner {
            name: self.name(),
            identity: self.identity.clone(),
            token: String::new(),
            labels: self.settings.labels.clone(),
            agents: self.settings.agents.clone(),
            max_tasks: self.settings.max_tasks,
            version: env!("CARGO_PKG_VERSION").into(),
        });
        let welcome = loop {
            match self.daemon.call(call.clone()) {
                Ok(welcome) => break welcome,
                Err(DaemonCallError::Refused(problem)) => return Err(problem.into()),
                Err(DaemonCallError::Unreachable(reason)) => {
                    self.note_cut_off(&reason);
                    if signals.arrives_within(RETRY_DELAY) {
                        return Err(CommandError::Exit(130));
                    }
                }
            }
        };
        self.note_contact();
        self.session.store(welcome.session, Ordering::SeqCst);
        for id in self.running_attempts() {
            if !welcome.attempts.contains(&id) {
                tracing::warn!(
                    attempt = %id,
                    "stopping the program of attempt {id}, because the attempt no longer belongs \
                     to \
                     this runner"
                );
                self.end_program(id, STOP_GRACE);
            }
        }
        Ok(())
    }

    /// Returns the attempts of this data directory whose programs run.
    fn running_attempts(&self) -> Vec<AttemptId> {
        let known = composition::recorded_attempts(&self.data_dir);
        known
            .into_iter()
            .filter(|id| matches!(self.agents.state(*id), Ok(ProcessState::Running(_))))
            .collect()
    }

    /// Returns the attempts for which this runner supervises a program or runs commands, such as
    /// setup commands and checks.
    fn busy_attempts(&self) -> Vec<AttemptId> {
        let attended = lock(&self.supervised);
        let begun = attended
            .iter()
            .filter(|(_, wired)| wired.has_begun())
            .map(|(attempt, _)| *attempt);
        let mut found: Vec<AttemptId> = begun
            .chain(self.local_site.attempts_with_commands())
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Stops the program of an attempt, and the commands that run for it.
    fn end_program(&self, id: AttemptId, grace: Duration) {
        if let Err(error) = self.local_site.stop(id, grace) {
            tracing::error!(
                attempt = %id,
                "could not stop the program of attempt {id}; end the program by hand: {error}"
            );
        }
    }

    /// Sends a beat (a sign that this runner still runs) to the daemon every few seconds, forever.
    /// Stops all programs after too long a time without contact.
    fn run_beats(&self) {
        let mut fenced = false;
        let fence = Duration::from_millis(SELF_FENCE_TIMEOUT_MS);
        loop {
            let call = call::RunnerBeat(input::RunnerSession {
                runner: self.name(),
                session: self.session(),
            });
            if self.daemon.call(call).is_ok() {
                self.record_contact();
                fenced = false;
            }
            let silent = lock(&self.last_contact).elapsed();
            if silent >= fence && !fenced {
                tracing::error!(
                    "no contact with the daemon for {} s, so all programs on this machine are \
                     stopped; the daemon may have given their tasks to another runner",
                    silent.as_secs()
                );
                let running = self.busy_attempts();
                // Stop all programs at the same time, because the daemon may soon start their tasks
                // elsewhere.
                std::thread::scope(|scope| {
                    for id in running {
                        scope.spawn(move || self.end_program(id, Duration::from_secs(5)));
                    }
                });
                fenced = true;
            }
            // Without contact to the daemon, try more often, so that the contact is restored before
            // the programs must be stopped.
            let pause = if silent > Duration::from_millis(HEARTBEAT_INTERVAL_MS) {
                1_000
            } else {
                HEARTBEAT_INTERVAL_MS
            };
            std::thread::sleep(Duration::from_millis(pause));
        }
    }

    /// Fetches the daemon's requests, forever, and executes each request in its own thread.
    fn run_calls(self: &Arc<Self>) {
        let mut after = 0;
        loop {
            let request = input::RunnerCalls {
                runner: self.name(),
                session: self.session(),
                after,
                wait_ms: 30_000,
            };
            match self.daemon.call(call::RunnerCalls(request)) {
                Ok(calls) => {
                    self.note_contact();
                    for call in calls {
                        after = after.max(call.id);
                        self.on_call(call);
                    }
                }
                // The runner has signed off, so the daemon sends no more requests.
                Err(DaemonCallError::Refused(problem))
                    if problem.code == "stale_runner" && self.is_ending() =>
                {
                    return;
                }
                // The daemon no longer knows this registration, because the runner was silent for
                // too long, or another process has registered with the runner's name. Register
                // again.
                Err(DaemonCallError::Refused(problem)) if problem.code == "stale_runner" => {
                    match self.register(&ShutdownSignals::none()) {
                        Ok(()) => after = 0,
                        Err(error) => {
                            tracing::error!(
                                "this runner could not renew its registration with the daemon, trying \
                                again: {}",
                                error.message()
                            );
                            std::thread::sleep(RETRY_DELAY * 10);
                        }
                    }
                }
                Err(DaemonCallError::Refused(problem)) => {
                    tracing::error!(
                        "this runner asked the daemon for requests to perform, but the daemon refused, trying \
                         again: {}",
                        problem.message
                    );
                    std::thread::sleep(RETRY_DELAY * 10);
                }
                Err(DaemonCallError::Unreachable(reason)) => {
                    self.note_cut_off(&reason);
                    std::thread::sleep(RETRY_DELAY);
                }
            }
        }
    }

    /// Stores the daemon's instructions for a program, which may arrive before the program is
    /// supervised.
    fn set_session_input(&self, attempt: AttemptId, input: SessionInput, silence_ms: u64) {
        let mut supervised = lock(&self.supervised);
        supervised
            .entry(attempt)
            .or_insert_with(|| Arc::new(SupervisionState::new()))
            .set_input(input, silence_ms);
    }

    fn on_call(self: &Arc<Self>, call: RunnerCallView) {
        let call = match regatta_api::json::from_value(&call.ask) {
            Ok(ask) => remote_site::RunnerCall { id: call.id, ask },
            Err(error) => {
                let reason = format!(
                    "the runner {} has Regatta {} and does not understand a request of the \
                     daemon: {error}",
                    self.name(),
                    env!("CARGO_PKG_VERSION")
                );
                return self.send_answer(call.id, Err(reason.into()));
            }
        };
        // New instructions for a program replace the previous ones, so apply them here, in their
        // order, and not in a thread.
        if let remote_site::RunnerRequest::UpdateInput {
            attempt,
            wishes: input,
            silence_ms,
        } = call.ask
        {
            self.set_session_input(attempt, input, silence_ms);
            self.agents.refresh_input(attempt);
            let runner_process = self.clone();
            std::thread::spawn(move || {
                runner_process.send_answer(call.id, Ok(serde_json::Value::Null))
            });
            return;
        }
        if !lock(&self.running_calls).insert(call.id) {
            return; // the daemon repeated a request that is being executed
        }
        let runner_process = self.clone();
        std::thread::spawn(move || {
            let answer = runner_process.execute(call.ask);
            runner_process.send_answer(call.id, answer);
            lock(&runner_process.running_calls).remove(&call.id);
        });
    }

    /// Sends the answer to a request, again and again until the daemon has received or refused it.
    fn send_answer(&self, call: u64, answer: remote_site::CallAnswer) {
        let (gave, error, fault) = match answer {
            Ok(gave) => (gave, None, None),
            Err(SiteError { reason, fault }) => (serde_json::Value::Null, Some(reason), fault),
        };
        loop {
            let (runner, session) = (self.name(), self.session());
            let (gave, error) = (gave.clone(), error.clone());
            let request = input::RunnerCallResult {
                runner,
                session,
                call,
                gave,
                error,
                fault,
            };
            match self.daemon.call(call::RunnerAnswer(request)) {
                Ok(_) => return self.record_contact(),
                Err(DaemonCallError::Refused(problem))
                    if problem.code == "stale_runner" && session != self.session() => {}
                Err(DaemonCallError::Refused(problem)) => {
                    return tracing::debug!(
                        "the daemon no longer needs the answer to its request {call}: {reason}",
                        reason = problem.message
                    );
                }
                Err(DaemonCallError::Unreachable(_)) => std::thread::sleep(RETRY_DELAY),
            }
        }
    }

    /// Shuts the runner down. Takes no new work, and waits up to `shutdown_timeout` for running
    /// attempts (runs of an agent on a task). Then stops the attempts and pushes their work to the
    /// daemon.
    fn shut_down(&self, out: &Output, signals: &ShutdownSignals) -> CommandResult {
        let deadline = Instant::now() + self.settings.shutdown_timeout;
        self.is_ending.store(true, Ordering::SeqCst);
        // Wait until the daemon has no attempt here any more, because the work of a program that
        // has ended is still checked on this machine.
        let (mut has_printed, mut is_announced) = (false, false);
        loop {
            // Tell the daemon once that this runner takes no new work. After that, a beat (a sign
            // that the runner still runs) is enough, because its answer also contains the remaining
            // attempts.
            let answer = if is_announced {
                self.daemon.call(call::RunnerBeat(input::RunnerSession {
                    runner: self.name(),
                    session: self.session(),
                }))
            } else {
                let drain = input::RunnerNameInput { name: self.name() };
                self.daemon.call(call::RunnerDrain(drain))
            };
            let remaining = match answer {
                Ok(remaining) => {
                    is_announced = true;
                    remaining.len()
                }
                Err(error) => {
                    tracing::warn!(
                        "could not ask the daemon which attempts remain on this runner, so the \
                         shutdown waits until all programs on this runner have ended: {error}"
                    );
                    self.busy_attempts().len()
                }
            };
            if remaining > 0 && !has_printed {
                out.print_note(&format!(
                    "shutting down: {} {} {} s to finish",
                    plural::count(remaining, "running attempt"),
                    plural::choose(remaining, "has", "have"),
                    self.settings.shutdown_timeout.as_secs()
                ));
                has_printed = true;
            }
            if remaining == 0
                || Instant::now() >= deadline
                || signals.arrives_within(SHUTDOWN_CHECK_INTERVAL)
            {
                break;
            }
        }
        let interrupted = self.busy_attempts();
        for supervision in lock(&self.supervised).values() {
            supervision.release();
        }
        std::thread::scope(|scope| {
            for id in &interrupted {
                scope.spawn(move || {
                    self.end_program(*id, STOP_GRACE.min(self.settings.shutdown_timeout))
                });
            }
        });
        for id in &interrupted {
            if let Err(error) = self.keep_work(*id) {
                tracing::error!(attempt = %id, "could not push the work of the stopped attempt {id} \
                    to the daemon, so it exists only in its workspace on this machine: {error}");
            }
        }
        let leave = call::RunnerLeave(input::RunnerSession {
            runner: self.name(),
            session: self.session(),
        });
        match self.daemon.call(leave) {
            Ok(_) if interrupted.is_empty() => {
                out.print_note("stopped: no work was left unfinished")
            }
            Ok(_) => out.print_note(&format!(
                "stopped: {} {} stopped before {} finished; all work is kept, and all tasks are \
                 ready again",
                plural::count(interrupted.len(), "attempt"),
                plural::choose(interrupted.len(), "was", "were"),
                plural::choose(interrupted.len(), "it", "they"),
            )),
            Err(error) => out.print_note(&format!(
                "stopped, but could not notify the daemon, \
                which will notice by itself: {error}"
            )),
        }
        Ok(())
    }
}

/// Receives SIGTERM and SIGINT, which ask the runner to shut down. If the value is `None`, no
/// signal ever arrives.
struct ShutdownSignals(Option<std::sync::mpsc::Receiver<()>>);

impl ShutdownSignals {
    fn install() -> Result<ShutdownSignals, CommandError> {
        use tokio::signal::unix::{SignalKind, signal};
        let (sender, receiver) = std::sync::mpsc::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(runtime_error)?;
        let (ready, listens) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            runtime.block_on(async {
                let (Ok(mut term), Ok(mut int)) = (
                    signal(SignalKind::terminate()),
                    signal(SignalKind::interrupt()),
                ) else {
                    return;
                };
                let _waits = ready.send(());
                loop {
                    tokio::select! { _ = term.recv() => {} _ = int.recv() => {} }
                    if sender.send(()).is_err() {
                        return;
                    }
                }
            });
        });
        listens.recv().map_err(|_| {
            command_error(
                "io",
                "could not install the handlers of SIGTERM and SIGINT",
                "close other programs and try again",
            )
        })?;
        Ok(ShutdownSignals(Some(receiver)))
    }

    fn none() -> ShutdownSignals {
        ShutdownSignals(None)
    }

    /// Waits until a signal arrives.
    fn wait(&self) {
        if let Some(signals) = &self.0 {
            let _ended = signals.recv();
        }
    }

    /// Waits for a signal, but at most for the time `within`. Returns true if a signal arrived.
    fn arrives_within(&self, within: Duration) -> bool {
        match &self.0 {
            Some(signals) => signals.recv_timeout(within).is_ok(),
            None => {
                std::thread::sleep(within);
                false
            }
        }
    }
}
