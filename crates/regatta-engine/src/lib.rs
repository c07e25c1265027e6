//! The engine wraps the rules of `regatta_core` with threads, storage and timers. One thread, the
//! writer, decides and stores every change. Interfaces, called ports, reach git and programs. A
//! start after a crash continues unfinished work.
//!
//! A request takes this way: [`Engine::submit_async`] → [`writer`], which decides, commits and
//! answers the request → [`perform`], which performs the commit's effects through the [`ports`].
//! Effects are outside actions such as starting a program. The result of an effect comes back as a
//! report, which only the engine and the holder of a [`ReportSender`] can give to the writer. The
//! rules are all in `regatta_core`, and `writer.rs` is the only module that writes to the store.

pub mod failpoint; // places where a test may abort the program
pub mod metrics; // counters of the writer
pub mod ports; // the traits through which the engine reaches the world
pub mod prices; // prices of models
pub mod timeline_reader; // the board at any revision, and the timeline of a task
pub mod timer; // the clock, and the alarm for deadlines
pub mod writer; // decides, commits and answers requests

mod artifacts; // files for people, beside the store
mod brief; // the prompts of agents
mod claim_wait; // acquires a claim and waits for it
mod collision_scan; // searches workspaces for collisions
mod dispatcher; // requests work for the agents whose programs the daemon starts
mod dropped_work_gc; // deletes work that was dropped long ago
mod effect_pool; // the thread pool for effects
mod local_site; // runs attempts on this machine
mod perform; // performs effects
mod project_learnings; // learnings of a project
mod redact; // removes secrets from requests and reports
pub mod remote_site; // runs attempts on a runner's machine
mod report_sender; // the way in for reports from outside this crate
mod retention_date; // the date by which ages are judged
mod running_commands; // the user's commands that run now
mod session_sink; // the engine's side of a program's session
mod start_facts; // collects the facts for the start gates
mod validation; // runs the checks in a directory
mod worker_result; // parses a worker's result file

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use regatta_core::attempt::CheckEvidence;
use regatta_core::board::Board;
use regatta_core::command::{Actor, BoardInput, Command, Report, Request};
use regatta_core::effect::EffectKey;
use regatta_core::event::Recorded;
use regatta_core::ids::{AttemptId, CommitId, FiringId, ProjectName, TaskId};
use regatta_core::project::Project;
use tokio::sync::{broadcast, mpsc, oneshot, watch};

pub use artifacts::prune_evidence;
pub use brief::{LEAD_TOOLS, WORKER_TOOLS};
pub use dropped_work_gc::DROPPED_WORK_RETENTION;
pub use local_site::LocalSite;
pub use perform::authorship;
use ports::agents::Agents;
use ports::git::{Git, ProjectRepo, ReadGit};
use ports::store::{Store, StoreHistory, UnreadableRow};
pub use report_sender::{BridgeReportSender, ReportSender};
pub use retention_date::retention_date;
pub use running_commands::{CommandOwner, RunningCommands};
use timer::{Alarm, Clock, FleetClock};
pub use writer::{CommandFailure, CommandReply};
use writer::{LastChanged, Publishers, SubmitResult, Writer, WriterMessage};

/// The time for which [`Engine::end_commands`] waits until the commands have ended.
const END_COMMANDS_TIMEOUT: Duration = Duration::from_secs(20);

/// The adapters through which the engine reaches the outside world: the store, git, agents'
/// programs and the clock.
pub struct Ports {
    pub store: Box<dyn Store>,
    pub git: Arc<dyn Git>,
    pub agents: Arc<dyn Agents>,
    pub clock: Arc<dyn Clock>,
}

/// The settings of a `regatta.toml` that say how work is checked. Where a field is empty, the
/// project's own setting applies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckSettings {
    pub commands: Option<Vec<String>>,
    pub timeout_ms: Option<u64>,
}

/// The address of the server whose tools agents call, and the functions that make access tokens for
/// it.
#[derive(Clone)]
pub struct ToolServer {
    /// The daemon's address, such as `http://127.0.0.1:7777`.
    pub url: String,
    /// Makes the access token of an attempt from the attempt's id and its fencing token (the number
    /// of the event with which the attempt was granted).
    pub mint_attempt_token: Arc<dyn Fn(AttemptId, u64) -> String + Send + Sync>,
    /// Makes the access token for the command of a hook (a rule that reacts to events). The token
    /// is made from the id and the fencing token of the firing (one run of the hook).
    pub mint_firing_token: Arc<dyn Fn(FiringId, u64) -> String + Send + Sync>,
}

impl std::fmt::Debug for ToolServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ToolServer at {}", self.url)
    }
}

/// A function that reads the check settings from the text of a `regatta.toml`. Its error says what
/// is wrong with the text.
pub type CheckSettingsParser = fn(&str) -> Result<CheckSettings, String>;

/// The settings with which the daemon starts the engine.
#[derive(Clone, Debug)]
pub struct EngineSettings {
    /// Environment variables that every attempt's program gets, for example the address of this
    /// daemon.
    pub attempt_env: Vec<(String, String)>,
    /// The prices of the models, from which the cost of tokens is computed.
    pub prices: Vec<prices::ModelPrice>,
    /// The server whose tools agents call, or `None` if this daemon runs without one.
    pub tool_server: Option<ToolServer>,
    /// The function that reads the check settings from the `regatta.toml` on a project's trunk.
    /// `None` ignores that file.
    pub parse_checks: Option<CheckSettingsParser>,
    /// The time that a stopped agent's program has to end by itself before it is killed. If `None`,
    /// the limit for all agents applies.
    pub stop_grace: Option<Duration>,
    /// The number of requests that may be queued for the writer (the thread that decides and stores
    /// requests) before callers have to wait.
    pub queue_capacity: usize,
    /// The directory for the files that Regatta keeps besides the store. With `None`, no such files
    /// are written.
    pub data_dir: Option<PathBuf>,
    /// Removes secrets (S4) from a text before agents or people see it.
    pub redactor: RedactFn,
}

/// Wraps the function that removes secrets from a text.
#[derive(Clone)]
pub struct RedactFn(pub Arc<dyn Fn(&str) -> String + Send + Sync>);

impl std::fmt::Debug for RedactFn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RedactFn")
    }
}

impl Default for RedactFn {
    fn default() -> RedactFn {
        RedactFn(Arc::new(str::to_owned))
    }
}

impl Default for EngineSettings {
    fn default() -> EngineSettings {
        EngineSettings {
            attempt_env: vec![],
            prices: prices::default_prices(),
            tool_server: None,
            parse_checks: None,
            stop_grace: None,
            queue_capacity: 4096,
            data_dir: None,
            redactor: RedactFn::default(),
        }
    }
}

/// Counts of what the store contained when the engine started.
#[derive(Clone, Debug, Default)]
pub struct RecoveredState {
    /// The number of effects (outside actions such as starting a program) that were stored but not
    /// yet completed before the start. These effects are performed now.
    pub effects: usize,
    pub attempts: usize,
    pub open_tasks: usize,
    pub landings: usize,
    pub claims: usize,
    /// The rows of the store that cannot be read. The board (the state of all unfinished work)
    /// lacks them (D11).
    pub unreadable_rows: Vec<UnreadableRow>,
}

/// An engine that has just started.
pub struct StartedEngine {
    pub engine: Engine,
    /// The only way to report to the engine from outside this crate. A part of the program that
    /// gets only the engine, such as the server, can submit requests but no reports.
    pub reports: ReportSender,
    pub recovered: RecoveredState,
}

/// A handle on the engine. All clones refer to the same engine, so [`Engine::shutdown`] on one
/// clone ends the engine for all clones.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<EngineShared>,
}

struct EngineShared {
    writer: mpsc::Sender<WriterMessage>,
    board: watch::Receiver<Arc<Board>>,
    events: broadcast::Sender<Arc<[Recorded]>>,
    history: Arc<dyn StoreHistory>,
    /// The rows of the store that could not be read when the engine started.
    unreadable_rows: Vec<UnreadableRow>,
    git: Arc<dyn Git>,
    agents: Arc<dyn Agents>,
    clock: Arc<FleetClock>,
    settings: EngineSettings,
    /// The calls to runners (processes that execute attempts on other machines) that wait for an
    /// answer.
    runner_calls: remote_site::RunnerCallTable,
    metrics: Arc<metrics::WriterMetrics>,
    /// The directories in which merged work is checked before it lands, and which of them are in
    /// use.
    validation_slots: perform::ValidationSlots,
    pushes: perform::LatestPushes,
    /// The releases that wait for their turn or are being made, for each project.
    releases: perform::Releases,
    alarm: Arc<Alarm>,
    /// Becomes true when the engine begins to stop. Afterwards nothing new starts, and threads that
    /// wait for a process stop waiting.
    is_stopping: AtomicBool,
    /// `false` while all attempts are being stopped. The dispatcher (the thread that starts
    /// attempts) holds the lock while it requests an attempt, so a thread that sets this value to
    /// `false` knows that no new attempt is being started.
    can_start: Mutex<bool>,
    /// The setup commands, checks and other commands of users that run now.
    commands: Arc<running_commands::RunningCommands>,
    /// The engine's threads, which `shutdown` waits for.
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The threads that perform effects (outside actions such as starting a program). `shutdown`
    /// waits only a few seconds for them, because a check may take an hour.
    effect_pool: Arc<effect_pool::EffectPool>,
}

impl Engine {
    /// Loads the board (the state of all unfinished work) from the store, starts the threads, and
    /// performs the effects (outside actions such as starting a program) that were stored but not
    /// completed before the start. Returns the engine, the way to report to it, and a summary of
    /// what the store contained.
    pub fn start(
        mut ports: Ports,
        settings: EngineSettings,
    ) -> Result<StartedEngine, CommandFailure> {
        let loaded = ports.store.load()?;
        let recovered = RecoveredState {
            effects: loaded.outbox.len(),
            attempts: loaded.board.attempts.len(),
            open_tasks: loaded.board.tasks.len(),
            landings: loaded.board.landings.len(),
            claims: loaded.board.claims.len(),
            unreadable_rows: loaded.unreadable_rows.clone(),
        };
        for row in &loaded.unreadable_rows {
            tracing::error!(
                "could not read {row} of the store; the daemon starts without this row"
            );
        }
        let revision = loaded.board.revision;
        let clock = Arc::new(FleetClock::new(ports.clock, loaded.board.fleet_ms));
        let (messages, inbox) = mpsc::channel(settings.queue_capacity.max(1));
        let (board_sender, board) = watch::channel(Arc::new(loaded.board.clone()));
        let (events, _) = broadcast::channel(1024);
        let alarm = Arc::new(Alarm::default());
        let (wake_sender, wake_receiver) = watch::channel(0);
        let (effect_sender, effect_receiver) = std::sync::mpsc::channel();
        for (key, effect) in loaded.outbox {
            let _stopping = effect_sender.send((key, effect));
        }
        let publishers = Publishers {
            board: board_sender,
            events: events.clone(),
            dispatch_effect: Box::new(move |key, effect| {
                let _stopping = effect_sender.send((key, effect));
            }),
            alarm: alarm.clone(),
            wake_dispatcher: wake_sender,
        };
        let shared = Arc::new(EngineShared {
            writer: messages,
            board,
            events,
            history: ports.store.history(),
            unreadable_rows: loaded.unreadable_rows,
            git: ports.git,
            agents: ports.agents,
            clock: clock.clone(),
            settings,
            runner_calls: remote_site::RunnerCallTable::new(revision),
            metrics: Arc::default(),
            validation_slots: perform::ValidationSlots::default(),
            pushes: perform::LatestPushes::default(),
            releases: perform::Releases::default(),
            alarm,
            is_stopping: AtomicBool::new(false),
            can_start: Mutex::new(true),
            commands: Arc::default(),
            threads: Mutex::new(Vec::new()),
            effect_pool: Arc::default(),
        });
        let engine = Engine { shared };
        let writer = Writer {
            board: loaded.board,
            store: ports.store,
            clock: clock.clone(),
            publishers,
            abandoned_waits: Vec::new(),
            metrics: engine.shared.metrics.clone(),
            last_changed: LastChanged::default(),
            completed_effects: writer::CompletedEffects::default(),
            flush_idle_at: None,
        };
        engine.spawn_thread("writer", move || {
            let ended =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| writer.run(inbox)));
            if ended.is_err() {
                // Without the writer (the thread that decides and stores requests) the daemon would
                // only seem to work, so the daemon ends.
                tracing::error!(
                    "the writer thread panicked; the daemon ends, and its next start continues \
                    from the store"
                );
                std::process::abort();
            }
        });
        let (alarm, messages) = (engine.shared.alarm.clone(), engine.shared.writer.clone());
        engine.spawn_thread("timer", move || {
            alarm.run(&clock, || {
                let _stopping = messages.blocking_send(WriterMessage::DeadlineReached);
            });
        });
        let started = Report::DaemonStarted {
            pid: std::process::id(),
        };
        if let Err(failure) = engine.report(started) {
            engine.shutdown(); // no thread outlives a failed start
            return Err(failure);
        }
        perform::start(&engine, effect_receiver);
        let background = engine.clone();
        engine
            .shared
            .effect_pool
            .spawn(move || perform::compare_all_trunks(&background));
        dispatcher::start(&engine, wake_receiver);
        collision_scan::start(&engine);
        Ok(StartedEngine {
            reports: ReportSender::new(&engine),
            engine,
            recovered,
        })
    }

    /// Returns a text in which everything that looks like a secret is replaced.
    pub fn redact(&self, text: &str) -> String {
        (self.shared.settings.redactor.0)(text)
    }

    /// Submits a request and blocks until the answer is durable. Async code uses [`Engine::submit_async`].
    pub fn submit(&self, request: Request) -> SubmitResult {
        self.send_and_block(request.into(), None)
    }

    /// Gives the writer a report and blocks until the answer is durable.
    ///
    /// Reports are facts that only Regatta can know, so this method and its variants are not
    /// public. Outside of this crate, reports need a [`ReportSender`].
    pub(crate) fn report(&self, report: Report) -> SubmitResult {
        self.send_and_block(report.into(), None)
    }

    /// Reports the result of an effect (an outside action such as starting a program). The report
    /// and the completion of the effect are stored in one transaction.
    pub(crate) fn report_with_effect(&self, report: Report, completed: EffectKey) -> SubmitResult {
        self.send_and_block(report.into(), Some(completed))
    }

    /// Like [`Engine::report`], for async code.
    pub(crate) async fn report_async(&self, report: Report) -> SubmitResult {
        self.send_and_wait(report.into(), None).await
    }

    fn send_and_block(
        &self,
        mut input: BoardInput,
        completed_effect: Option<EffectKey>,
    ) -> SubmitResult {
        redact::redact_input(&self.shared.settings.redactor, &mut input);
        let (answer, reply) = oneshot::channel();
        self.shared
            .writer
            .blocking_send(WriterMessage::Submit {
                input: Box::new(input),
                completed_effect,
                precondition: None,
                answer,
            })
            .map_err(|_| CommandFailure::Stopping)?;
        reply
            .blocking_recv()
            .map_err(|_| CommandFailure::Stopping)?
    }

    /// Submits a request and waits until the answer is durable. If the queue of the writer (the
    /// thread that decides and stores requests) is full, first waits for room.
    pub async fn submit_async(&self, request: Request) -> SubmitResult {
        self.submit_if_unchanged(request, None).await
    }

    /// Like [`Engine::submit_async`], but refuses the request if its subject (for example a task)
    /// has changed since the revision (event number) that `precondition` names.
    pub async fn submit_if_unchanged(
        &self,
        request: Request,
        precondition: Option<writer::Precondition>,
    ) -> SubmitResult {
        self.send_and_wait(request.into(), precondition).await
    }

    async fn send_and_wait(
        &self,
        mut input: BoardInput,
        precondition: Option<writer::Precondition>,
    ) -> SubmitResult {
        redact::redact_input(&self.shared.settings.redactor, &mut input);
        let (answer, reply) = oneshot::channel();
        self.shared
            .writer
            .send(WriterMessage::Submit {
                input: Box::new(input),
                completed_effect: None,
                precondition,
                answer,
            })
            .await
            .map_err(|_| CommandFailure::Stopping)?;
        reply.await.map_err(|_| CommandFailure::Stopping)?
    }

    /// Returns the board (the state of all unfinished work) as of the last commit. Reading the
    /// board blocks no other thread.
    pub fn board(&self) -> Arc<Board> {
        self.shared.board.borrow().clone()
    }

    /// Returns a receiver that gets the new board (the state of all unfinished work) after each
    /// commit.
    pub fn watch_board(&self) -> watch::Receiver<Arc<Board>> {
        self.shared.board.clone()
    }

    /// Returns a receiver of all committed events from now on. A receiver that is too slow gets an
    /// error, and should then read the missed events from [`Engine::history`].
    pub fn subscribe_events(&self) -> broadcast::Receiver<Arc<[Recorded]>> {
        self.shared.events.subscribe()
    }

    /// Returns the results of the checks of an attempt's work, in the order in which the checks
    /// ran.
    pub fn check_evidence(
        &self,
        attempt: regatta_core::ids::AttemptId,
    ) -> Result<Vec<CheckEvidence>, String> {
        artifacts::read_evidence(self, attempt)
    }

    /// Returns the counters of the writer (the thread that decides and stores requests), such as
    /// the number of commits.
    pub fn metrics(&self) -> &metrics::WriterMetrics {
        &self.shared.metrics
    }

    /// Returns the number of requests that are queued for the writer (the thread that decides and
    /// stores requests).
    pub fn queue_len(&self) -> usize {
        self.shared.writer.max_capacity() - self.shared.writer.capacity()
    }

    /// Returns whether the engine is running and, as far as is known, the store can commit.
    pub fn is_healthy(&self) -> bool {
        self.shared.metrics.is_healthy(Instant::now()) && !self.is_stopping()
    }

    /// Returns the interface through which everything that was ever stored can be read.
    pub fn history(&self) -> &Arc<dyn StoreHistory> {
        &self.shared.history
    }

    /// Returns the rows of the store that could not be read when the engine started.
    pub fn unreadable_rows(&self) -> &[UnreadableRow] {
        &self.shared.unreadable_rows
    }

    /// Returns the parts of the interface to git that read.
    pub fn git(&self) -> Arc<dyn ReadGit> {
        self.shared.git.clone()
    }

    /// Returns the path of an attempt's workspace, whether or not the workspace exists.
    pub fn workspace_path(&self, project: &Project, attempt: AttemptId) -> PathBuf {
        let repo = ProjectRepo::from_project(project);
        self.shared.git.workspace_path(&repo, attempt)
    }

    /// Compares a project's trunk with the landings on the board (the state of all unfinished
    /// work), and records the differences. Returns the trunk's newest commit, or `None` if it is
    /// unknown.
    pub fn compare_trunk(&self, project: &ProjectName) -> Option<CommitId> {
        perform::compare_project_trunk(self, project);
        let repo = ProjectRepo::from_project(self.board().projects.get(project)?);
        self.shared.git.tip(&repo).ok()
    }

    /// Returns the path of a running attempt's workspace, and creates the workspace first if it
    /// does not exist.
    pub fn workspace_of(&self, attempt: AttemptId) -> Result<Option<std::path::PathBuf>, String> {
        perform::workspace_of(self, attempt)
    }

    /// Returns the interface to agents' programs. Callers may use only the methods that read.
    pub fn agents(&self) -> &Arc<dyn Agents> {
        &self.shared.agents
    }

    /// Returns the current time, both on the fleet clock (which counts only while a daemon runs)
    /// and as a date.
    pub fn now(&self) -> regatta_core::ids::Now {
        self.shared.clock.now()
    }

    /// Writes an exact copy of the store to the file `to`. Returns the revision (event number) that
    /// the copy has.
    pub async fn backup(&self, to: PathBuf) -> Result<u64, CommandFailure> {
        let (answer, reply) = oneshot::channel();
        self.shared
            .writer
            .send(WriterMessage::Backup { to, answer })
            .await
            .map_err(|_| CommandFailure::Stopping)?;
        Ok(reply.await.map_err(|_| CommandFailure::Stopping)??)
    }

    /// Checks the whole store for damage. Returns an error that describes the damage if there is
    /// any.
    pub async fn check_store(&self) -> Result<(), CommandFailure> {
        let (answer, reply) = oneshot::channel();
        self.shared
            .writer
            .send(WriterMessage::Check { answer })
            .await
            .map_err(|_| CommandFailure::Stopping)?;
        Ok(reply.await.map_err(|_| CommandFailure::Stopping)??)
    }

    /// Returns whether attempts may be started. No attempt may be started while all attempts are
    /// being stopped.
    pub(crate) fn can_start(&self) -> bool {
        *self
            .shared
            .can_start
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether an attempt is being stopped or has ended.
    pub(crate) fn is_ending(&self, attempt: AttemptId) -> bool {
        self.board()
            .attempts
            .get(&attempt)
            .is_none_or(|live| live.stopping.is_some())
    }

    /// Describes the setup commands and checks that run for an attempt now.
    pub fn commands_of_attempt(&self, attempt: AttemptId) -> Vec<String> {
        self.shared
            .commands
            .describe_commands_of(CommandOwner::Attempt(attempt))
    }

    /// Describes the checks that the landing queue runs now for a task's work.
    pub fn trial_commands_of_task(&self, task: TaskId) -> Vec<String> {
        self.shared
            .commands
            .describe_commands_of(CommandOwner::Trial(task))
    }

    /// Returns the landed tasks for which a command of `[landing] after` or a release runs now.
    pub fn tasks_with_landing_commands(&self) -> Vec<TaskId> {
        let running = self.shared.commands.all_with_owners().into_iter();
        let tasks = running.filter_map(|(owner, _)| match owner {
            CommandOwner::Landed(task) => Some(task),
            CommandOwner::Attempt(_) | CommandOwner::Firing(_) | CommandOwner::Trial(_) => None,
        });
        tasks.collect()
    }

    /// Ends the commands that run for a landed task or for a hook (a rule that reacts to events);
    /// see [`CommandOwner`]. Waits until the commands are gone (P10). Returns `None` if no command
    /// ran, otherwise descriptions of the commands that still run after the timeout.
    pub fn end_commands(&self, owner: CommandOwner) -> Option<Vec<String>> {
        let commands = &self.shared.commands;
        if !commands.request_end(owner) {
            return None;
        }
        Some(commands.wait_until_none(owner, END_COMMANDS_TIMEOUT))
    }

    /// Stops every attempt that Regatta runs and every command of a user; the tasks become ready to
    /// start again. Returns descriptions of the programs that still run. The list is empty only
    /// when no program is left (P10).
    ///
    /// This function checks the processes and not the stored state, because on a full disk neither
    /// a stop nor an end can be stored. The next start of the daemon records both.
    pub fn stop_attempts(&self, reason: &str) -> Result<Vec<String>, CommandFailure> {
        // From here on no attempt starts. The engine itself continues, because it has to stop the
        // running attempts.
        *self
            .shared
            .can_start
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = false;
        let tasks: Vec<_> = self
            .board()
            .attempts
            .values()
            .filter(|attempt| attempt.supervised)
            .map(|attempt| attempt.task)
            .collect();
        let mut is_recorded = true;
        for task in tasks {
            let stop = Command::StopTask {
                task,
                reason: reason.to_owned(),
                pause: false,
            };
            match self.submit(Request {
                by: Actor::Regatta,
                key: None,
                command: stop,
            }) {
                Ok(_) | Err(CommandFailure::Refused { .. }) => {}
                Err(CommandFailure::Store(error)) => {
                    tracing::error!(%task, "could not record in the store that task {task} is \
                        stopped; its program is stopped anyway: {error}");
                    is_recorded = false;
                }
                Err(failure) => return Err(failure),
            }
        }
        if !is_recorded {
            perform::stop_unrecorded(self);
        }
        perform::wait_until_stopped(self);
        let still_running = perform::still_running(self);
        if !still_running.is_empty() {
            *self
                .shared
                .can_start
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = true;
        }
        Ok(still_running)
    }

    /// Ends the engine. Requests that are already queued are still answered, agents' programs
    /// continue, and unfinished effects (outside actions such as starting a program) are left for
    /// the next start of the daemon.
    pub fn shutdown(&self) {
        self.shared.is_stopping.store(true, Ordering::SeqCst);
        self.shared.alarm.end();
        let _ended = self.shared.writer.blocking_send(WriterMessage::Stop);
        join_all(&self.shared.threads);
        // End running checks, because after `regatta down` no process of a check may be left (P3).
        // The next start of the daemon repeats the checks.
        self.shared.agents.stop_checks();
        // Threads that only wait notice the stop within a moment, so a few seconds are enough for
        // them. Effects (outside actions such as starting a program) that are still unfinished
        // after that time are performed again at the next start of the daemon.
        let deadline = Instant::now() + Duration::from_secs(4);
        while self.shared.effect_pool.is_busy() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        if self.shared.effect_pool.is_busy() {
            tracing::info!(
                "the daemon stops while an outside action, such as starting a program, is \
                unfinished; the next start of the daemon performs that action again"
            );
        }
        self.shared.effect_pool.end();
        // End git's helper processes, because nothing uses them any more.
        self.shared.git.stop_helpers();
    }

    /// Returns the time that a stopped program has to end by itself before it is killed.
    pub fn stop_grace(&self) -> Duration {
        self.shared
            .settings
            .stop_grace
            .unwrap_or_else(|| Duration::from_millis(self.board().limits.shutdown_ms))
    }

    fn is_stopping(&self) -> bool {
        self.shared.is_stopping.load(Ordering::SeqCst)
    }

    fn spawn_thread(&self, name: &str, work: impl FnOnce() + Send + 'static) {
        spawn_thread_into(&self.shared.threads, name, work);
    }

    /// Reports that an effect (an outside action such as starting a program) was performed, when
    /// the effect has no other result to report. It does no harm if a crash loses this report,
    /// because performing the effect again changes nothing.
    fn complete_effect(&self, key: EffectKey) {
        let _stopping = self
            .shared
            .writer
            .blocking_send(WriterMessage::EffectCompleted { key });
    }
}

/// Starts a thread with this name, and adds it to `threads` so that `shutdown` can wait for it.
fn spawn_thread_into(
    threads: &Mutex<Vec<JoinHandle<()>>>,
    name: &str,
    work: impl FnOnce() + Send + 'static,
) {
    // The stack is small because one thread waits for each running attempt, and there may be
    // hundreds of attempts.
    let spawned = std::thread::Builder::new()
        .name(name.to_owned())
        .stack_size(512 * 1024)
        .spawn(work);
    match spawned {
        Ok(thread) => {
            let mut threads = threads.lock().unwrap_or_else(PoisonError::into_inner);
            threads.retain(|handle| !handle.is_finished());
            threads.push(thread);
        }
        Err(error) => tracing::error!(
            "could not start the daemon's thread {name}, so the work of that thread is \
            not done: {error}"
        ),
    }
}

/// Waits for all threads in the list, also for those that a listed thread adds before it ends.
fn join_all(threads: &Mutex<Vec<JoinHandle<()>>>) {
    let me = std::thread::current().id();
    loop {
        let ended = std::mem::take(&mut *threads.lock().unwrap_or_else(PoisonError::into_inner));
        if ended.is_empty() {
            return;
        }
        for thread in ended
            .into_iter()
            .filter(|handle| handle.thread().id() != me)
        {
            if thread.join().is_err() {
                tracing::error!(
                    "one of the daemon's threads panicked before the daemon stopped; the panic \
                    message is earlier in this log"
                );
            }
        }
    }
}
