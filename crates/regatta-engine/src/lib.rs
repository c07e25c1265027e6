//! The shell around the core: one writer, the ports, performing effects, timers and recovery.
//!
//! A request walks: [`Engine::ask`] → [`writer`] (decide, commit, answer) → [`perform`] (what the commit
//! asks of the world, through the [`ports`]) → a report, which is a request again. Nothing here decides a
//! rule; nothing outside `writer.rs` stores anything.

pub mod failpoint; // where a test may end the program
pub mod meters; // what the writer counts
pub mod past; // the board at any revision, and what a task was at
pub mod ports; // what the engine needs from the world
pub mod prices; // what models cost
pub mod timer; // where time enters
pub mod writer; // where state is written, one call

mod attend; // hearing and telling a program that runs
mod brief; // what an agent is told
mod contract; // checking a directory against a validation contract
mod forget; // what was dropped long ago
mod hands; // the threads that perform effects
mod here; // the machine at hand, on which an attempt works
mod keep; // what is written for people, beside the store
mod knowledge; // what a project learned
mod perform; // doing what a commit asks
mod radar; // work in progress tried against itself
mod redact; // secrets in what commands bring
mod result; // what a worker says of its work
mod retention_date; // the date by which ages are judged
mod runner; // the daemon's own runner: polls for the agents whose programs it starts
mod running_commands; // the user's commands that run now, and how they are ended
pub mod there; // a runner's machine, on which an attempt works
mod weigh; // what the world has to say before a start

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use regatta_core::board::Board;
use regatta_core::claim::{Acquire, Acquired};
use regatta_core::command::{Actor, Command, Outcome, Request};
use regatta_core::effect::EffectKey;
use regatta_core::event::Recorded;
use regatta_core::ids::{AttemptId, CommitId, FiringId, ProjectName, RequestKey, TaskId, WaitId};
use regatta_core::refusal::Refusal;
use tokio::sync::{broadcast, mpsc, oneshot, watch};

pub use brief::{LEADS_TOOLS, WORKERS_TOOLS};
pub use forget::DROPPED_KEPT;
pub use here::Here;
pub use keep::{Evidence, prune_evidence};
pub use perform::authorship;
use ports::agents::Agents;
use ports::git::{Git, Repo};
use ports::store::{History, Store, UnreadableRow};
pub use retention_date::retention_date;
pub use running_commands::{CommandOwner, RunningCommands};
use timer::{Alarm, Clock, FleetClock};
use writer::{Answer, Changes, Note, Outlets, Writer};
pub use writer::{Failure, Reply};

/// How long [`Engine::end_commands`] waits for a command that is told to end.
const END_PATIENCE: Duration = Duration::from_secs(20);

/// The world, as the engine sees it.
pub struct Ports {
    pub store: Box<dyn Store>,
    pub git: Arc<dyn Git>,
    pub agents: Arc<dyn Agents>,
    pub clock: Arc<dyn Clock>,
}

/// What a `regatta.toml` says about validating; what it does not say is the project's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    pub commands: Option<Vec<String>>,
    pub timeout_ms: Option<u64>,
}

/// Our own tools, as agents reach them.
#[derive(Clone)]
pub struct Tools {
    /// Where the daemon listens, such as `http://127.0.0.1:7777`.
    pub server: String,
    /// Makes an attempt's own token from its number and its fence.
    pub mint: Arc<dyn Fn(AttemptId, u64) -> String + Send + Sync>,
    /// Makes the token of a hook's command in the same way.
    pub mint_firing: Arc<dyn Fn(FiringId, u64) -> String + Send + Sync>,
}

impl std::fmt::Debug for Tools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tools at {}", self.server)
    }
}

/// Reads the text of a `regatta.toml`; the error says what is wrong with it.
pub type ReadChecks = fn(&str) -> Result<Checks, String>;

/// What the engine must know of the program it is part of.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Variables that every attempt gets, such as how to reach this daemon.
    pub attempt_env: Vec<(String, String)>,
    /// What models cost.
    pub prices: Vec<prices::Price>,
    /// Where agents find our own tools, if this daemon serves them.
    pub tools: Option<Tools>,
    /// Reads the checks that a trunk's own `regatta.toml` names.
    pub read_checks: Option<ReadChecks>,
    /// How long a stopped agent may take to end by itself; as the fleet's limits say, if not given.
    pub grace: Option<Duration>,
    /// How many requests may wait for the writer before callers are held back.
    pub queue: usize,
    /// Where this fleet keeps its files. Without it nothing is written beside the store.
    pub data_dir: Option<PathBuf>,
    /// Takes secrets out of what is written for agents and people (S4).
    pub redact: Redact,
}

/// A function that takes secrets out of a text.
#[derive(Clone)]
pub struct Redact(pub Arc<dyn Fn(&str) -> String + Send + Sync>);

impl std::fmt::Debug for Redact {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Redact")
    }
}

impl Default for Redact {
    fn default() -> Redact {
        Redact(Arc::new(str::to_owned))
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            attempt_env: vec![],
            prices: prices::defaults(),
            tools: None,
            read_checks: None,
            grace: None,
            queue: 4096,
            data_dir: None,
            redact: Redact::default(),
        }
    }
}

/// What a start found.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    /// Effects that were stored and not yet performed.
    pub effects: usize,
    pub attempts: usize,
    pub open_tasks: usize,
    pub landings: usize,
    pub claims: usize,
    /// Rows of the store that cannot be read; the board is without them (D11).
    pub unreadable: Vec<UnreadableRow>,
}

/// A handle on the engine. Clones share it; [`Engine::shutdown`] ends it for all.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

struct Shared {
    notes: mpsc::Sender<Note>,
    board: watch::Receiver<Arc<Board>>,
    events: broadcast::Sender<Arc<[Recorded]>>,
    history: Arc<dyn History>,
    /// Rows that could not be read at the start.
    unreadable: Vec<UnreadableRow>,
    git: Arc<dyn Git>,
    agents: Arc<dyn Agents>,
    clock: Arc<FleetClock>,
    settings: Settings,
    /// What runners on other machines are asked.
    calls: there::Calls,
    meters: Arc<meters::Meters>,
    /// Where merged trees are validated.
    bench: perform::Bench,
    pushes: perform::Pushes,
    /// Landings that wait for a release.
    releases: perform::Releases,
    alarm: Arc<Alarm>,
    /// Set once; nothing new starts after it, and what waits for a process lets go of it.
    stopping: AtomicBool,
    /// Whether the runner may start attempts. It holds this while one is granted, so that who forbids it knows
    /// that none is on its way.
    may_start: Mutex<bool>,
    /// The commands of the user's that run now.
    commands: Arc<running_commands::RunningCommands>,
    /// What the engine cannot be without: its end waits for them.
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// What performs effects: its end does not wait for a check that takes an hour.
    hands: Arc<hands::Hands>,
}

impl Engine {
    /// Loads the board, starts the threads, performs what a crash left undone, and is ready.
    pub fn start(mut ports: Ports, settings: Settings) -> Result<(Engine, Recovered), Failure> {
        let loaded = ports.store.load()?;
        let recovered = Recovered {
            effects: loaded.outbox.len(),
            attempts: loaded.board.attempts.len(),
            open_tasks: loaded.board.tasks.len(),
            landings: loaded.board.landings.len(),
            claims: loaded.board.claims.len(),
            unreadable: loaded.unreadable.clone(),
        };
        for row in &loaded.unreadable {
            tracing::error!("the store cannot read {row}; the fleet goes on without it");
        }
        let revision = loaded.board.revision;
        let clock = Arc::new(FleetClock::from(ports.clock, loaded.board.at));
        let (notes, inbox) = mpsc::channel(settings.queue.max(1));
        let (board_sender, board) = watch::channel(Arc::new(loaded.board.clone()));
        let (events, _) = broadcast::channel(1024);
        let alarm = Arc::new(Alarm::default());
        let (bell, rings) = watch::channel(0);
        let (effect_sender, effect_receiver) = std::sync::mpsc::channel();
        for (key, effect) in loaded.outbox {
            let _open = effect_sender.send((key, effect));
        }
        let outlets = Outlets {
            board: board_sender,
            events: events.clone(),
            effects: Box::new(move |key, effect| {
                let _stopping = effect_sender.send((key, effect));
            }),
            alarm: alarm.clone(),
            runner: bell,
        };
        let shared = Arc::new(Shared {
            notes,
            board,
            events,
            history: ports.store.history(),
            unreadable: loaded.unreadable,
            git: ports.git,
            agents: ports.agents,
            clock: clock.clone(),
            settings,
            calls: there::Calls::new(revision),
            meters: Arc::default(),
            bench: perform::Bench::default(),
            pushes: perform::Pushes::default(),
            releases: perform::Releases::default(),
            alarm,
            stopping: AtomicBool::new(false),
            may_start: Mutex::new(true),
            commands: Arc::default(),
            threads: Mutex::new(Vec::new()),
            hands: Arc::default(),
        });
        let engine = Engine { shared };
        let writer = Writer {
            board: loaded.board,
            store: ports.store,
            clock: clock.clone(),
            outlets,
            hung_up: Vec::new(),
            meters: engine.shared.meters.clone(),
            changes: Changes::default(),
            settled: writer::Settled::default(),
            rest: None,
        };
        engine.spawn("writer", move || {
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| writer.run(inbox)));
            if ended.is_err() {
                // Nothing can be decided or kept any more: a daemon that stayed up would only pretend.
                tracing::error!("the writer broke down; the daemon ends, and its next start goes on from the store");
                std::process::abort();
            }
        });
        let (alarm, notes) = (engine.shared.alarm.clone(), engine.shared.notes.clone());
        engine.spawn("timer", move || {
            alarm.run(&clock, || {
                let _stopping = notes.blocking_send(Note::Ring);
            });
        });
        let resume = Command::Resume { pid: std::process::id() };
        if let Err(failure) = engine.submit(Request { by: Actor::Regatta, key: None, command: resume }) {
            engine.shutdown(); // no thread outlives a start that failed
            return Err(failure);
        }
        perform::start(&engine, effect_receiver);
        let comparing = engine.clone();
        engine.shared.hands.give(move || perform::compare_all(&comparing));
        runner::start(&engine, rings);
        radar::start(&engine);
        Ok((engine, recovered))
    }

    /// Takes everything that looks like a secret out of a text that is to be written or sent.
    pub fn redact(&self, text: &str) -> String {
        (self.shared.settings.redact.0)(text)
    }

    /// Asks, and waits for the durable answer. For threads; tasks use [`Engine::ask`].
    pub fn submit(&self, request: Request) -> Answer {
        self.report(request, None)
    }

    /// Asks, saying which effect this settles: both are stored together.
    fn report(&self, mut request: Request, performed: Option<EffectKey>) -> Answer {
        redact::clean(&self.shared.settings.redact, &mut request);
        let (answer, reply) = oneshot::channel();
        self.shared
            .notes
            .blocking_send(Note::Submit { request: Box::new(request), performed, unless: None, answer })
            .map_err(|_| Failure::Stopping)?;
        reply.blocking_recv().map_err(|_| Failure::Stopping)?
    }

    /// Asks, and waits for the durable answer. A full queue holds the caller back.
    pub async fn ask(&self, request: Request) -> Answer {
        self.ask_unless(request, None).await
    }

    /// Asks, unless something has changed since a revision that the caller saw.
    pub async fn ask_unless(&self, mut request: Request, unless: Option<writer::Unless>) -> Answer {
        redact::clean(&self.shared.settings.redact, &mut request);
        let (answer, reply) = oneshot::channel();
        self.shared
            .notes
            .send(Note::Submit { request: Box::new(request), performed: None, unless, answer })
            .await
            .map_err(|_| Failure::Stopping)?;
        reply.await.map_err(|_| Failure::Stopping)?
    }

    /// Acquires a claim, standing in line as long as was asked. A caller that stops waiting leaves no wait behind.
    pub async fn acquire(&self, by: Actor, key: Option<RequestKey>, ask: Acquire) -> Answer {
        let asked = ask.clone();
        let mut request = Request { by, key, command: Command::Acquire(ask) };
        redact::clean(&self.shared.settings.redact, &mut request);
        let (answer, reply) = oneshot::channel();
        let note = Note::Submit { request: Box::new(request), performed: None, unless: None, answer };
        self.shared.notes.send(note).await.map_err(|_| Failure::Stopping)?;
        let mut told = Told { engine: self, reply };
        let reply = (&mut told.reply).await.map_err(|_| Failure::Stopping)??;
        let Outcome::Claim(Acquired::Waiting { wait, .. }) = reply.outcome else { return Ok(reply) };
        let mut place = Place { engine: self, wait, left: false };
        let mut board = self.shared.board.clone();
        loop {
            let now = board.borrow_and_update().clone();
            if !now.waits.contains_key(&wait) {
                place.left = true;
                return match now.claims.values().find(|it| it.from_wait == Some(wait)) {
                    Some(claim) => {
                        let ttl_ms = claim.expires_at.map_or(0, |at| at.saturating_sub(self.now().at));
                        let outcome = Outcome::Claim(Acquired::Granted { claim: claim.id, token: claim.token, ttl_ms });
                        Ok(Reply { revision: now.revision, outcome, completed: None })
                    }
                    None => {
                        let draft = regatta_core::board::Draft::of(&now, self.now());
                        let holders =
                            regatta_core::claim::in_the_way(&draft, &asked.uris, asked.mode, None, self.now());
                        Err(Failure::Refused { refusal: Refusal::ClaimHeld { holders }, revision: now.revision })
                    }
                };
            }
            board.changed().await.map_err(|_| Failure::Stopping)?;
        }
    }

    /// The board as of the last commit. Reading it holds nobody up.
    pub fn board(&self) -> Arc<Board> {
        self.shared.board.borrow().clone()
    }

    /// The board, and a way to wait for the next one.
    pub fn watch(&self) -> watch::Receiver<Arc<Board>> {
        self.shared.board.clone()
    }

    /// Events as they are committed. Who falls behind is told so and reads on from the history.
    pub fn events(&self) -> broadcast::Receiver<Arc<[Recorded]>> {
        self.shared.events.subscribe()
    }

    /// What the checks of an attempt's work said, in their order.
    pub fn evidence(&self, attempt: regatta_core::ids::AttemptId) -> Result<Vec<Evidence>, String> {
        keep::read_evidence(self, attempt)
    }

    /// What the writer counts.
    pub fn meters(&self) -> &meters::Meters {
        &self.shared.meters
    }

    /// How many requests wait for the writer.
    pub fn queue(&self) -> usize {
        self.shared.notes.max_capacity() - self.shared.notes.capacity()
    }

    /// Whether the store keeps what it is given, and the engine is not ending.
    pub fn is_well(&self) -> bool {
        self.shared.meters.is_well(Instant::now()) && !self.is_stopping()
    }

    /// Everything that was ever committed.
    pub fn history(&self) -> &Arc<dyn History> {
        &self.shared.history
    }

    /// Returns the rows of the store that could not be read when the engine started.
    pub fn unreadable(&self) -> &[UnreadableRow] {
        &self.shared.unreadable
    }

    /// The version-control port, for doors that only look.
    pub fn git(&self) -> &Arc<dyn Git> {
        &self.shared.git
    }

    /// Compares a project's trunk with the board and records the differences. Returns where the trunk is.
    pub fn compare_trunk(&self, project: &ProjectName) -> Option<CommitId> {
        perform::compare(self, project);
        let repo = Repo::of(self.board().projects.get(project)?);
        self.shared.git.tip(&repo).ok()
    }

    /// Where a live attempt works, made now if that has not been done yet.
    pub fn workspace_of(&self, attempt: AttemptId) -> Result<Option<std::path::PathBuf>, String> {
        perform::workspace_of(self, attempt)
    }

    /// The port to programs, for doors that only look.
    pub fn agents(&self) -> &Arc<dyn Agents> {
        &self.shared.agents
    }

    /// The moment, on the fleet clock.
    pub fn now(&self) -> regatta_core::ids::Now {
        self.shared.clock.now()
    }

    /// Writes an exact copy of the store; returns the revision it is at.
    pub async fn backup(&self, to: PathBuf) -> Result<u64, Failure> {
        let (answer, reply) = oneshot::channel();
        self.shared.notes.send(Note::Backup { to, answer }).await.map_err(|_| Failure::Stopping)?;
        Ok(reply.await.map_err(|_| Failure::Stopping)??)
    }

    /// Checks the whole store for damage.
    pub async fn check(&self) -> Result<(), Failure> {
        let (answer, reply) = oneshot::channel();
        self.shared.notes.send(Note::Check { answer }).await.map_err(|_| Failure::Stopping)?;
        Ok(reply.await.map_err(|_| Failure::Stopping)??)
    }

    /// Whether something may be started: not while everything is being stopped.
    pub(crate) fn may_start(&self) -> bool {
        *self.shared.may_start.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether an attempt is being stopped or has ended.
    pub(crate) fn is_ending(&self, attempt: AttemptId) -> bool {
        self.board().attempts.get(&attempt).is_none_or(|live| live.stopping.is_some())
    }

    /// Returns the setup command, check or ratchet that runs for an attempt, in words.
    pub fn commands_of(&self, attempt: AttemptId) -> Vec<String> {
        self.shared.commands.of(CommandOwner::Attempt(attempt))
    }

    /// Returns the check that the queue runs for a task's work, in words.
    pub fn trial_commands_of(&self, task: TaskId) -> Vec<String> {
        self.shared.commands.of(CommandOwner::Trial(task))
    }

    /// Returns the tasks for which a command runs because they landed.
    pub fn landed_with_commands(&self) -> Vec<TaskId> {
        let running = self.shared.commands.all().into_iter();
        let landed = running.filter_map(|(owner, _)| match owner {
            CommandOwner::Landed(task) => Some(task),
            CommandOwner::Attempt(_) | CommandOwner::Firing(_) | CommandOwner::Trial(_) => None,
        });
        landed.collect()
    }

    /// Ends the commands that run for a landed task or a hook's firing; see [`CommandOwner`]. Returns when they are gone:
    /// `None` if no command ran, else what still runs after all (P10).
    pub fn end_commands(&self, owner: CommandOwner) -> Option<Vec<String>> {
        let ran = self.shared.commands.tell_to_end(owner);
        ran.then(|| self.shared.commands.wait_until_none(owner, END_PATIENCE))
    }

    /// Ends every attempt whose program is ours, and every command of the user's; tasks wait again. Returns what is left,
    /// in words: it is empty only when nothing is (P10).
    ///
    /// Processes are the evidence, not the board: on a full disk neither a stop nor an end can be recorded, and the next
    /// start records both.
    pub fn stop_attempts(&self, reason: &str) -> Result<Vec<String>, Failure> {
        // From here on nothing more is started, nor on its way. The engine itself goes on: it has to stop them.
        *self.shared.may_start.lock().unwrap_or_else(PoisonError::into_inner) = false;
        let tasks: Vec<_> = self.board().attempts.values().filter(|it| it.supervised).map(|it| it.task).collect();
        let mut is_recorded = true;
        for task in tasks {
            let stop = Command::StopTask { task, reason: reason.to_owned(), pause: false };
            match self.submit(Request { by: Actor::Regatta, key: None, command: stop }) {
                Ok(_) | Err(Failure::Refused { .. }) => {}
                Err(Failure::Store(error)) => {
                    tracing::error!(%task, "the task is stopped without a record of it: {error}");
                    is_recorded = false;
                }
                Err(other) => return Err(other),
            }
        }
        if !is_recorded {
            perform::stop_unrecorded(self);
        }
        perform::wait_until_stopped(self);
        let left = perform::still_running(self);
        if !left.is_empty() {
            *self.shared.may_start.lock().unwrap_or_else(PoisonError::into_inner) = true;
        }
        Ok(left)
    }

    /// Ends the engine: what is queued is answered, programs go on, effects under way are left for the next start.
    pub fn shutdown(&self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.shared.alarm.end();
        let _ended = self.shared.notes.blocking_send(Note::Stop);
        join_all(&self.shared.threads);
        // What is being checked is checked again at the next start; who hears "down" finds nothing of it (P3).
        self.shared.agents.rest();
        // Those that only wait see the end within a moment; what is left is performed again at the next start.
        let patience = Instant::now() + Duration::from_secs(4);
        while self.shared.hands.are_busy() && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(5));
        }
        if self.shared.hands.are_busy() {
            tracing::info!("an effect is still being performed; the next start performs it again");
        }
        self.shared.hands.end();
        // Whoever waits for our end finds none of its programs: nothing asks them any more.
        self.shared.git.rest();
    }

    /// How long what is stopped may take to end by itself.
    pub fn grace(&self) -> Duration {
        self.shared.settings.grace.unwrap_or_else(|| Duration::from_millis(self.board().limits.shutdown_ms))
    }

    fn is_stopping(&self) -> bool {
        self.shared.stopping.load(Ordering::SeqCst)
    }

    fn spawn(&self, name: &str, work: impl FnOnce() + Send + 'static) {
        spawn_into(&self.shared.threads, name, work);
    }

    /// Says that an effect was performed of which there is nothing more to say. Nobody waits for that: what a crash takes
    /// back is performed again, which changes nothing.
    fn settle(&self, key: EffectKey) {
        let _stopping = self.shared.notes.blocking_send(Note::Settled { key });
    }
}

fn spawn_into(threads: &Mutex<Vec<JoinHandle<()>>>, name: &str, work: impl FnOnce() + Send + 'static) {
    // Small stacks: one thread waits for each running attempt, and there may be hundreds.
    let spawned = std::thread::Builder::new().name(name.to_owned()).stack_size(512 * 1024).spawn(work);
    match spawned {
        Ok(thread) => {
            let mut threads = threads.lock().unwrap_or_else(PoisonError::into_inner);
            threads.retain(|it| !it.is_finished());
            threads.push(thread);
        }
        Err(error) => tracing::error!("the machine gives no thread for {name}: {error}"),
    }
}

/// Joins threads until none is left: one may have started another before it ended.
fn join_all(threads: &Mutex<Vec<JoinHandle<()>>>) {
    let me = std::thread::current().id();
    loop {
        let ended = std::mem::take(&mut *threads.lock().unwrap_or_else(PoisonError::into_inner));
        if ended.is_empty() {
            return;
        }
        for thread in ended.into_iter().filter(|it| it.thread().id() != me) {
            if thread.join().is_err() {
                tracing::error!("a thread of the engine had panicked");
            }
        }
    }
}

/// An answer that is on its way: when nobody waits for it any more, the place in line it names is given up.
struct Told<'a> {
    engine: &'a Engine,
    reply: oneshot::Receiver<Answer>,
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        self.reply.close(); // what is not sent yet, the writer now sees that nobody reads
        if let Ok(Ok(Reply { outcome: Outcome::Claim(Acquired::Waiting { wait, .. }), .. })) = self.reply.try_recv() {
            drop(Place { engine: self.engine, wait, left: false });
        }
    }
}

/// A place in line that is given up when nobody waits for it any more.
struct Place<'a> {
    engine: &'a Engine,
    wait: WaitId,
    left: bool,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if self.left {
            return;
        }
        let request = Request { by: Actor::Regatta, key: None, command: Command::CancelWait { wait: self.wait } };
        let (answer, _) = oneshot::channel();
        let note = Note::Submit { request: Box::new(request), performed: None, unless: None, answer };
        if let Err(mpsc::error::TrySendError::Full(note)) = self.engine.shared.notes.try_send(note) {
            // The queue is full: a thread waits for room so that the place is given up all the same.
            let notes = self.engine.shared.notes.clone();
            self.engine.spawn("cancel-wait", move || {
                let _stopping = notes.blocking_send(note);
            });
        }
    }
}
