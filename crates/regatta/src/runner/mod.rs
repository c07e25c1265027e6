//! A runner: this machine executes attempts for a daemon elsewhere.
//!
//! A runner uses the same code as the runner inside the daemon; only requests and results go over
//! the network. It registers with the daemon and sends a beat every few seconds. The daemon may
//! repeat a request, so the runner starts each request once, and repeats its answer until the
//! daemon has received it. After too long a time without contact the runner stops its programs,
//! because by then the daemon may give their tasks to another runner.

mod desk; // supervision of one program
mod line; // calls to the daemon
mod work; // execution of the daemon's requests

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use regatta_api::Call;
use regatta_api::input;
use regatta_api::view::RunnerWelcome;
use regatta_core::ids::{AgentName, AttemptId, RunnerName};
use regatta_core::runner::{BEAT_MS, FENCE_MS, Register};
use regatta_engine::Here;
use regatta_engine::ports::agents::{Agents, ProcessState, Wishes};
use regatta_engine::ports::git::Git;
use regatta_engine::ports::site::{Order, Site, SiteError};
use regatta_engine::there;

use crate::daemon;
use crate::out::{Failed, Out, Said, failed};
use crate::wire;
use desk::Wired;
use line::{Broken, Line};

/// How long a program may take to end by itself when it is stopped, unless less time is left.
const GRACE: Duration = Duration::from_secs(10);
/// How often to check during a shutdown whether the running attempts have finished.
const LOOK: Duration = Duration::from_secs(1);
/// How often old data is removed.
const CLEAR: Duration = Duration::from_secs(3_600);
/// How long to wait before the daemon is tried again.
const AGAIN: Duration = Duration::from_millis(500);

/// The settings of a runner, from the command line.
pub(crate) struct Settings {
    pub(crate) server: String,
    pub(crate) token: String,
    pub(crate) ca: Option<PathBuf>,
    pub(crate) name: RunnerName,
    pub(crate) max_tasks: u32,
    pub(crate) agents: Vec<AgentName>,
    pub(crate) labels: Vec<String>,
    /// How long running attempts may take to finish at a shutdown.
    pub(crate) shutdown: Duration,
}

/// The state of this runner.
struct Runner {
    settings: Settings,
    data_dir: PathBuf,
    identity: String,
    line: Line,
    here: Here,
    git: Arc<dyn Git>,
    agents: Arc<dyn Agents>,
    session: AtomicU64,
    /// When the daemon last answered.
    contact: Mutex<Instant>,
    /// Requests that are being executed.
    doing: Mutex<HashSet<u64>>,
    /// Supervised programs, with the daemon's instructions for each.
    attended: Mutex<HashMap<AttemptId, Arc<Wired>>>,
    /// Locks that let only one thread supervise a program at a time.
    turns: Mutex<HashMap<AttemptId, Arc<Mutex<()>>>>,
    /// The attempts on this machine, as the daemon last described them.
    orders: Mutex<HashMap<AttemptId, Order>>,
    /// When the contact file was last written.
    noted: Mutex<Option<Instant>>,
    ends: AtomicBool,
}

fn lock<T>(it: &Mutex<T>) -> MutexGuard<'_, T> {
    it.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Works for the daemon until a signal arrives.
pub(crate) fn run(out: &Out, data_dir: &Path, settings: Settings) -> Said {
    let place = daemon::Place::new(data_dir);
    place.make()?;
    let _held = hold(&place)?;
    let identity = identity(&place)?;
    let (git, agents) = wire::for_runner(data_dir)?;
    let line = Line::new(&settings.server, &settings.token, settings.ca.clone())?;
    let runner = Arc::new(Runner {
        data_dir: data_dir.to_owned(),
        identity,
        line,
        here: Here::of_runner(git.clone(), agents.clone()),
        git,
        agents,
        session: AtomicU64::new(0),
        contact: Mutex::new(Instant::now()),
        doing: Mutex::default(),
        attended: Mutex::default(),
        turns: Mutex::default(),
        orders: Mutex::default(),
        noted: Mutex::default(),
        ends: AtomicBool::new(false),
        settings,
    });
    let (name, server) = (runner.settings.name.clone(), runner.settings.server.clone());
    let signals = Signals::listen()?;
    runner.register(&signals)?;
    out.note(&format!("the runner {name} works for {server}; Ctrl-C lets running attempts finish first"));
    let beats = runner.clone();
    std::thread::spawn(move || beats.beat());
    let calls = runner.clone();
    std::thread::spawn(move || calls.take_calls());
    let dir = data_dir.to_owned();
    std::thread::spawn(move || {
        // The daemon asks how old commands ended within its first hour, so their records stay in
        // the first round.
        for nth in 0.. {
            if let Some(today_unix_ms) = wire::retention_date(&dir) {
                wire::clear_up(&dir, nth > 0, today_unix_ms);
            }
            std::thread::sleep(CLEAR);
        }
    });
    signals.wait();
    runner.drain(out, &signals)
}

/// Locks the data directory, so that it has only one runner.
fn hold(place: &daemon::Place) -> Result<std::fs::File, Failed> {
    let path = place.dir.join("runner.lock");
    let file = std::fs::OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(|it| place.broken(&it))?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(failed(
            "in_use",
            format!("another runner already uses the data directory {}", place.dir.display()),
            "stop the other runner, or set REGATTA_DATA_DIR to another directory",
        )),
        Err(error) => Err(place.broken(&error.into())),
    }
}

/// Returns the random identity that distinguishes this installation from another one of the same
/// name. Creates it at the first start.
fn identity(place: &daemon::Place) -> Result<String, Failed> {
    let path = place.dir.join("runner.id");
    if let Ok(known) = std::fs::read_to_string(&path)
        && !known.trim().is_empty()
    {
        return Ok(known.trim().to_owned());
    }
    let fresh = daemon::random_hex(16).map_err(|it| place.broken(&it))?;
    daemon::write_whole(&path, &format!("{fresh}\n")).map_err(|it| place.broken(&it))?;
    Ok(fresh)
}

impl Runner {
    fn session(&self) -> u64 {
        self.session.load(Ordering::SeqCst)
    }

    fn name(&self) -> RunnerName {
        self.settings.name.clone()
    }

    fn ends(&self) -> bool {
        self.ends.load(Ordering::SeqCst)
    }

    fn in_contact(&self) {
        *lock(&self.contact) = Instant::now();
        let mut noted = lock(&self.noted);
        if noted.is_none_or(|it| it.elapsed() >= Duration::from_secs(1)) {
            wire::in_contact(&self.data_dir);
            *noted = Some(Instant::now());
        }
    }

    /// Registers with the daemon, and retries until that succeeds. Stops the programs of attempts
    /// that the daemon has given to another runner.
    fn register(&self, signals: &Signals) -> Result<(), Failed> {
        let call = Call::RunnerRegister(Register {
            name: self.name(),
            identity: self.identity.clone(),
            token: String::new(),
            labels: self.settings.labels.clone(),
            agents: self.settings.agents.clone(),
            max_tasks: self.settings.max_tasks,
            version: env!("CARGO_PKG_VERSION").into(),
        });
        let mut said = false;
        let welcome: RunnerWelcome = loop {
            match self.line.call(&call) {
                Ok(welcome) => break welcome,
                Err(Broken::Refused(problem)) => return Err(problem.into()),
                Err(Broken::Away(why)) => {
                    if !said {
                        tracing::warn!("could not reach {}, trying again: {why}", self.settings.server);
                        said = true;
                    }
                    if signals.came(AGAIN) {
                        return Err(Failed::Code(130));
                    }
                }
            }
        };
        self.in_contact();
        self.session.store(welcome.session, Ordering::SeqCst);
        for id in self.running_here() {
            if !welcome.attempts.contains(&id) {
                tracing::warn!(attempt = %id, "the attempt no longer belongs to this runner, so its program is stopped");
                self.end_program(id, GRACE);
            }
        }
        Ok(())
    }

    /// Returns the attempts whose programs run on this machine.
    fn running_here(&self) -> Vec<AttemptId> {
        let known = wire::attempts_here(&self.data_dir);
        known.into_iter().filter(|it| matches!(self.agents.state(*it), Ok(ProcessState::Running(_)))).collect()
    }

    /// Returns the attempts with a supervised program, or with running setup commands, checks or
    /// ratchets.
    fn at_work(&self) -> Vec<AttemptId> {
        let attended = lock(&self.attended);
        let begun = attended.iter().filter(|(_, wired)| wired.has_begun()).map(|(attempt, _)| *attempt);
        let mut found: Vec<AttemptId> = begun.chain(self.here.attempts_with_commands()).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Stops the program of an attempt, and the commands that run for it.
    fn end_program(&self, id: AttemptId, grace: Duration) {
        if let Err(error) = self.here.stop(id, grace) {
            tracing::error!(attempt = %id, "could not stop the attempt: {error}");
        }
    }

    /// Sends beats to the daemon forever. Stops all programs after too long a time without contact.
    fn beat(&self) {
        let mut fenced = false;
        let fence = Duration::from_millis(FENCE_MS);
        loop {
            let call = Call::RunnerBeat(input::RunnerSession { runner: self.name(), session: self.session() });
            if self.line.call::<Vec<AttemptId>>(&call).is_ok() {
                self.in_contact();
                fenced = false;
            }
            let silent = lock(&self.contact).elapsed();
            if silent >= fence && !fenced {
                tracing::error!("no contact with the daemon for {} s, so the programs on this machine are stopped", silent.as_secs());
                let running = self.at_work();
                // In parallel, because little time is left.
                std::thread::scope(|scope| {
                    for id in running {
                        scope.spawn(move || self.end_program(id, Duration::from_secs(5)));
                    }
                });
                fenced = true;
            }
            // Try more often without contact, so that the deadline is not missed.
            let pause = if silent > Duration::from_millis(BEAT_MS) { 1_000 } else { BEAT_MS };
            std::thread::sleep(Duration::from_millis(pause));
        }
    }

    /// Fetches requests of the daemon forever, and executes each in a thread of its own.
    fn take_calls(self: &Arc<Self>) {
        let mut after = 0;
        loop {
            let ask = input::RunnerCalls { runner: self.name(), session: self.session(), after, wait_ms: 30_000 };
            match self.line.call::<Vec<there::Call>>(&Call::RunnerCalls(ask)) {
                Ok(calls) => {
                    self.in_contact();
                    for call in calls {
                        after = after.max(call.id);
                        self.take(call);
                    }
                }
                // The daemon has given this runner up, or another process has registered its name.
                // Register again, unless this runner is shutting down.
                Err(Broken::Refused(problem)) if problem.code == "stale_runner" && !self.ends() => {
                    match self.register(&Signals::none()) {
                        Ok(()) => after = 0,
                        Err(error) => {
                            tracing::error!("could not register again: {}", error.words());
                            std::thread::sleep(AGAIN * 10);
                        }
                    }
                }
                Err(Broken::Refused(problem)) => {
                    tracing::error!("the daemon refused to send requests: {}", problem.message);
                    std::thread::sleep(AGAIN * 10);
                }
                Err(Broken::Away(_)) => std::thread::sleep(AGAIN),
            }
        }
    }

    /// Stores the instructions for a program, also before the program is supervised.
    fn wish(&self, attempt: AttemptId, wishes: Wishes, silence_ms: u64) {
        let mut attended = lock(&self.attended);
        attended.entry(attempt).or_insert_with(|| Arc::new(Wired::new())).wish(wishes, silence_ms);
    }

    fn take(self: &Arc<Self>, call: there::Call) {
        // New instructions replace the previous ones, so they are applied here, in their order.
        if let there::Ask::Wish { attempt, wishes, silence_ms } = call.ask {
            self.wish(attempt, wishes, silence_ms);
            self.agents.nudge(attempt);
            let it = self.clone();
            std::thread::spawn(move || it.answer(call.id, Ok(serde_json::Value::Null)));
            return;
        }
        if !lock(&self.doing).insert(call.id) {
            return; // the daemon repeated a request that is being executed
        }
        let it = self.clone();
        std::thread::spawn(move || {
            let answer = it.perform(call.ask);
            it.answer(call.id, answer);
            lock(&it.doing).remove(&call.id);
        });
    }

    /// Sends an answer until the daemon has received it, or does not want it any more.
    fn answer(&self, call: u64, answer: there::CallAnswer) {
        let (gave, error, fault) = match answer {
            Ok(gave) => (gave, None, None),
            Err(SiteError { reason, fault }) => (serde_json::Value::Null, Some(reason), fault),
        };
        loop {
            let (runner, session) = (self.name(), self.session());
            let (gave, error) = (gave.clone(), error.clone());
            let ask = input::RunnerAnswer { runner, session, call, gave, error, fault };
            match self.line.call::<String>(&Call::RunnerAnswer(ask)) {
                Ok(_) => return self.in_contact(),
                Err(Broken::Refused(problem)) if problem.code == "stale_runner" && session != self.session() => {}
                Err(Broken::Refused(problem)) => return tracing::debug!("the daemon no longer wanted an answer: {}", problem.message),
                Err(Broken::Away(_)) => std::thread::sleep(AGAIN),
            }
        }
    }

    /// Shuts down: takes no new work, lets running attempts finish for a while, then stops them and
    /// keeps their work.
    fn drain(&self, out: &Out, signals: &Signals) -> Said {
        let deadline = Instant::now() + self.settings.shutdown;
        self.ends.store(true, Ordering::SeqCst);
        // Stay until the daemon needs nothing more, because the work of an ended program is checked
        // on this machine.
        let (mut said, mut known) = (false, false);
        loop {
            // Announce the shutdown once. Afterwards a beat keeps contact and returns the remaining
            // attempts.
            let ask = match known {
                false => Call::RunnerDrain(input::RunnerName { name: self.name() }),
                true => Call::RunnerBeat(input::RunnerSession { runner: self.name(), session: self.session() }),
            };
            let left = match self.line.call::<Vec<AttemptId>>(&ask) {
                Ok(left) => {
                    known = true;
                    left.len()
                }
                Err(error) => {
                    tracing::warn!("could not ask the daemon for the remaining attempts: {error}");
                    self.at_work().len()
                }
            };
            if left > 0 && !said {
                out.note(&format!("shutting down: {left} running attempts have {} s to finish", self.settings.shutdown.as_secs()));
                said = true;
            }
            if left == 0 || Instant::now() >= deadline || signals.came(LOOK) {
                break;
            }
        }
        let cut = self.at_work();
        for wired in lock(&self.attended).values() {
            wired.let_go();
        }
        std::thread::scope(|scope| {
            for id in &cut {
                scope.spawn(move || self.end_program(*id, GRACE.min(self.settings.shutdown)));
            }
        });
        for id in &cut {
            if let Err(error) = self.keep(*id) {
                tracing::error!(attempt = %id, "could not hand over the work of a stopped attempt, so it exists only on this machine: {error}");
            }
        }
        let gone = Call::RunnerLeave(input::RunnerSession { runner: self.name(), session: self.session() });
        let gone: Result<String, _> = self.line.call(&gone);
        match gone {
            Ok(_) if cut.is_empty() => out.note("stopped: no work was left unfinished"),
            Ok(_) => out.note(&format!(
                "stopped: {} attempts were stopped before they finished; their work is kept and their tasks are ready again",
                cut.len()
            )),
            Err(error) => out.note(&format!("stopped, but could not notify the daemon, which will notice by itself: {error}")),
        }
        Ok(())
    }
}

/// Receives SIGTERM and SIGINT.
struct Signals(Option<std::sync::mpsc::Receiver<()>>);

impl Signals {
    fn listen() -> Result<Signals, Failed> {
        use tokio::signal::unix::{SignalKind, signal};
        let (sender, receiver) = std::sync::mpsc::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|it| failed("io", it.to_string(), "close other programs and try again"))?;
        let (ready, listens) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            runtime.block_on(async {
                let (Ok(mut term), Ok(mut int)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
                else {
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
        listens.recv().map_err(|_| failed("io", "could not install the signal handlers", "see what is wrong: regatta doctor"))?;
        Ok(Signals(Some(receiver)))
    }

    fn none() -> Signals {
        Signals(None)
    }

    /// Waits for a signal.
    fn wait(&self) {
        if let Some(signals) = &self.0 {
            let _ended = signals.recv();
        }
    }

    /// Returns whether a signal arrives within this time.
    fn came(&self, within: Duration) -> bool {
        match &self.0 {
            Some(signals) => signals.recv_timeout(within).is_ok(),
            None => {
                std::thread::sleep(within);
                false
            }
        }
    }
}
