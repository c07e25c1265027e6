//! Implements the engine's port to agent programs: starts, watches and stops programs, each under a
//! shim.
//!
//! The state of an attempt is read from its run directory and the process table each time, so
//! nothing is lost when the daemon restarts.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use regatta_core::agent::{Profile, Runtime};
use regatta_core::ids::AttemptId;
use regatta_engine::ports::agents::{
    AgentError, AgentSpec, Agents, CheckCommand, CheckResult, DriverVerdict, Exit, JournalRecord,
    LaunchProblem, ProcessIdentity, ProcessState, ProgramLaunch, ResolvedAgent, SessionSink,
    StartOutcome, TranscriptLine,
};
use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;

use crate::driver::Driver;
use crate::drivers;
use crate::environment::{ChildEnvironment, SHIM_ALLOCATOR};
use crate::journal_copy::OpenCopy;
use crate::process::{ProcessHandle, poll_until};
use crate::process_tree::ProcessTree;
use crate::program_discovery::MachineFacts;
use crate::relay::{self, RelayRecord};
use crate::run_dir::{
    ContactDeadline, RunDir, lock, lock_until, open_for_append, read_json, try_lock,
};
use crate::session_loop::{self, MAX_CURSORS, SessionLoop, TranscriptCursor};
use crate::shim::{ALREADY_STARTED_EXIT_CODE, READY_LINE, ShimLimits, WakeupFd};
use crate::{errors, journal, launch, reaper, run_check, run_once, shim_protocol};

/// The time that a shim may take to report that its program runs. Many starts at once can make a
/// machine very slow.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// The time that a shim may take beyond the grace period. After that its tree is ended from
/// outside.
const SHIM_TIMEOUT: Duration = Duration::from_millis(1500);

/// The time that ending a tree from outside may take. It is spent at most twice: on the tree of a
/// stuck shim, and after the shim's death. Together with [`SHIM_TIMEOUT`] that stays under the 5 s
/// of P4.
const OUTSIDE_END_TIMEOUT: Duration = Duration::from_millis(1600);

/// The longest accepted grace period. It can safely be added to a clock.
const MAX_GRACE_PERIOD: Duration = Duration::from_secs(24 * 60 * 60);

/// The silence of a program after which the sink is notified.
const DEFAULT_SILENCE_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// The adapter that runs programs as child processes on this machine, each under a shim.
#[derive(Clone)]
pub struct AgentsAdapter {
    pub(crate) data_dir: PathBuf,
    pub(crate) regatta_exe: PathBuf,
    pub(crate) limits: ShimLimits,
    pub(crate) without_cgroups: bool,
    pub(crate) silence_timeout: Duration,
    pub(crate) contact_deadline: Option<ContactDeadline>,
    pub(crate) relay: Option<RelayTarget>,
    /// The wake-up handles of the running session loops.
    wakeups: Arc<Mutex<HashMap<AttemptId, Arc<WakeupFd>>>>,
    cursors: Arc<Mutex<Vec<TranscriptCursor>>>,
    /// The number of times that readers of a transcript had to start again.
    cursor_generation: Arc<AtomicU64>,
    /// The open copies of journals of programs on other machines.
    copies: Arc<Mutex<Vec<OpenCopy>>>,
    /// Set when the daemon shuts down and running checks have to end.
    pub(crate) is_shutting_down: Arc<AtomicBool>,
}

/// The server address that is replaced by a relay for each program, and the relay's target.
#[derive(Clone)]
pub(crate) struct RelayTarget {
    /// The address, such as `http://127.0.0.1:7777`.
    server: String,
    socket: PathBuf,
}

impl RelayTarget {
    /// Binds a port for a program. Returns the launch with that port in place of the daemon's
    /// address.
    fn prepare(
        &self,
        launch: &ProgramLaunch,
    ) -> io::Result<(TcpListener, RelayRecord, ProgramLaunch)> {
        let listener = relay::listen()?;
        let address = listener.local_addr()?;
        let own = format!("http://{address}");
        let mut launch = launch.clone();
        for (_, value) in launch
            .env
            .iter_mut()
            .filter(|(name, _)| name == "REGATTA_SERVER")
        {
            *value = value.replace(&self.server, &own);
        }
        if let Some(mcp) = &mut launch.mcp {
            mcp.url = mcp.url.replace(&self.server, &own);
        }
        Ok((
            listener,
            RelayRecord {
                address,
                socket: self.socket.clone(),
            },
            launch,
        ))
    }
}

impl fmt::Debug for AgentsAdapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentsAdapter")
            .field("data_dir", &self.data_dir)
            .finish_non_exhaustive()
    }
}

/// The state of a launch according to its files and the process table.
pub(crate) enum RunPhase {
    /// No shim has begun.
    NotStarted,
    /// A shim is running.
    Running(ProcessIdentity, ProcessHandle),
    /// A shim had begun and is gone without an exit record.
    Vanished,
    /// The launch has ended.
    Ended(Exit),
}

impl AgentsAdapter {
    /// Creates the adapter. It keeps its directories in `data_dir` and starts shims as `exe shim
    /// DIR`.
    pub fn new(data_dir: PathBuf, exe: PathBuf) -> AgentsAdapter {
        // A shim has another working directory than this process.
        let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
        AgentsAdapter {
            data_dir: absolute(data_dir),
            regatta_exe: absolute(exe),
            limits: ShimLimits::default(),
            without_cgroups: false,
            silence_timeout: DEFAULT_SILENCE_TIMEOUT,
            contact_deadline: None,
            relay: None,
            wakeups: Arc::default(),
            cursors: Arc::default(),
            cursor_generation: Arc::default(),
            copies: Arc::default(),
            is_shutting_down: Arc::default(),
        }
    }

    /// Sets the limits of programs that are started from now on.
    pub fn with_limits(self, limits: ShimLimits) -> AgentsAdapter {
        AgentsAdapter { limits, ..self }
    }

    /// Disables control groups.
    pub fn without_cgroups(self) -> AgentsAdapter {
        AgentsAdapter {
            without_cgroups: true,
            ..self
        }
    }

    /// Sets a contact deadline: a program that is started from now on ends when `file` (see
    /// [`crate::contact_deadline::note`]) was not written for longer than `most`, even if this
    /// process is gone.
    pub fn with_contact_deadline(self, file: PathBuf, most: Duration) -> AgentsAdapter {
        let ms = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
        AgentsAdapter {
            contact_deadline: Some(ContactDeadline {
                file: std::path::absolute(&file).unwrap_or(file),
                timeout_ms: ms,
            }),
            ..self
        }
    }

    /// Gives each program an own address for `server`. It lives as long as the program and leads to
    /// the unix socket of the daemon that runs at the time (P13).
    pub fn with_relay(self, server: &str, socket: PathBuf) -> AgentsAdapter {
        let socket = std::path::absolute(&socket).unwrap_or(socket);
        AgentsAdapter {
            relay: Some(RelayTarget {
                server: server.to_owned(),
                socket,
            }),
            ..self
        }
    }

    /// Returns the mechanism that holds the processes of an attempt together: `cgroup`,
    /// `pid_namespace` or `subreaper`. Returns `None` if its program was never started.
    pub fn containment(&self, attempt: AttemptId) -> Result<Option<&'static str>, AgentError> {
        let dir = self.attempt_dir(attempt);
        let program = dir
            .read_program()
            .map_err(|error| errors::file_error("read", &dir.program_file(), error))?;
        Ok(program.map(|program| program.containment.as_str()))
    }

    /// Sets how long a program may be silent before the sink is notified.
    pub fn with_silence_timeout(self, silence: Duration) -> AgentsAdapter {
        AgentsAdapter {
            silence_timeout: silence,
            ..self
        }
    }

    /// Reads the records of an attempt's journal from number `from` (the first is 1), without a
    /// limit of bytes.
    pub fn read_journal(
        &self,
        attempt: AttemptId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<JournalRecord>, AgentError> {
        let dir = self.attempt_dir(attempt);
        session_loop::read_all_records(&dir, from, limit)
            .map_err(|error| errors::file_error("read the journal in", &dir.0, error))
    }

    /// Runs the session loop of an attempt with this driver, whatever its runtime.
    pub fn run_session_loop(
        &self,
        attempt: AttemptId,
        desk: &dyn SessionSink,
        driver: Box<dyn Driver>,
    ) -> Result<Option<DriverVerdict>, AgentError> {
        let bell = Arc::new(
            WakeupFd::new().map_err(|error| errors::kernel_error("make an eventfd", error))?,
        );
        self.wakeups().insert(attempt, Arc::clone(&bell));
        let verdict = SessionLoop::new(self, attempt, desk, driver, &bell).run();
        let mut bells = self.wakeups();
        if bells
            .get(&attempt)
            .is_some_and(|wakeup_fd| Arc::ptr_eq(wakeup_fd, &bell))
        {
            bells.remove(&attempt);
        }
        verdict
    }

    pub(crate) fn cursors(&self) -> MutexGuard<'_, Vec<TranscriptCursor>> {
        self.cursors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a reader's cursor, unless the journal was changed in the meantime.
    pub(crate) fn keep_cursor(&self, cursor: TranscriptCursor) {
        let mut cursors = self.cursors();
        if cursor.generation() != self.cursor_generation() {
            return;
        }
        if cursors.len() >= MAX_CURSORS {
            cursors.remove(0);
        }
        cursors.push(cursor);
    }

    pub(crate) fn cursor_generation(&self) -> u64 {
        self.cursor_generation.load(Ordering::SeqCst)
    }

    /// Makes the readers of this attempt's transcript start again.
    pub(crate) fn invalidate_cursors(&self, attempt: AttemptId) {
        let mut cursors = self.cursors();
        self.cursor_generation.fetch_add(1, Ordering::SeqCst);
        cursors.retain(|transcript_cursor| !transcript_cursor.belongs_to(attempt));
    }

    /// Locks the list of open copies.
    pub(crate) fn copies(&self) -> MutexGuard<'_, Vec<OpenCopy>> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wakeups(&self) -> MutexGuard<'_, HashMap<AttemptId, Arc<WakeupFd>>> {
        self.wakeups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates the driver of an attempt from its files alone, whether the program runs here or
    /// elsewhere.
    pub(crate) fn restore_driver(
        &self,
        dir: &RunDir,
    ) -> Result<Option<Box<dyn Driver>>, AgentError> {
        let launch = dir
            .read_launch()
            .map_err(|error| errors::file_error("read", &dir.launch_file(), error))?;
        let attended = match launch {
            Some(launch) => launch.session_facts,
            None => dir
                .read_copy()
                .map_err(|error| errors::file_error("read", &dir.copy_file(), error))?
                .and_then(|copy| copy.session_facts),
        };
        Ok(attended.map(|session_facts| drivers::new_driver(&session_facts.setup)))
    }

    fn attempt_path(&self, attempt: AttemptId) -> PathBuf {
        self.attempts_path().join(attempt.to_string())
    }

    pub(crate) fn attempts_path(&self) -> PathBuf {
        self.data_dir.join("attempts")
    }

    pub(crate) fn attempt_dir(&self, attempt: AttemptId) -> RunDir {
        RunDir(self.attempt_path(attempt))
    }

    pub(crate) fn checks_path(&self) -> PathBuf {
        self.data_dir.join("checks")
    }

    /// Returns the directory with the records of one-time commands.
    pub(crate) fn commands_path(&self) -> PathBuf {
        self.data_dir.join("commands")
    }

    /// Spawns a shim for a directory with a launch record.
    pub(crate) fn spawn_shim(
        &self,
        dir: &RunDir,
        environment: &ChildEnvironment,
        stdin: Stdio,
    ) -> Result<Child, AgentError> {
        let log = open_for_append(&dir.shim_log())
            .map_err(|error| errors::file_error("open", &dir.shim_log(), error))?;
        // There is no process_group call here, because the shim calls setsid and a group leader
        // cannot.
        Command::new(&self.regatta_exe)
            .arg("shim")
            .arg(&dir.0)
            .current_dir(&dir.0)
            .env_clear()
            .envs(environment)
            .envs(SHIM_ALLOCATOR)
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .map_err(|error| errors::shim_not_spawned(&self.regatta_exe, error))
    }

    /// Spawns a shim that outlives this process, and waits until it has begun. The caller holds the
    /// directory's start lock. `input` is the shim's standard input: the listener of its relay, if
    /// it has one.
    pub(crate) fn start_shim(
        &self,
        dir: &RunDir,
        environment: &ChildEnvironment,
        input: Stdio,
    ) -> Result<(), AgentError> {
        let mut shim = self.spawn_shim(dir, environment, input)?;
        let report = shim.stdout.take();
        let heard = report
            .map(|child_stdout| read_start_report(child_stdout, Instant::now() + START_TIMEOUT));
        let ended_as = reap_shim(shim, heard == Some(StartReport::Ended));
        match heard {
            Some(StartReport::Ready) => Ok(()),
            // A shim of an interrupted start performs this launch. That is equally good.
            Some(StartReport::Ended) if ended_as == Some(i32::from(ALREADY_STARTED_EXIT_CODE)) => {
                let deadline = Instant::now() + START_TIMEOUT;
                while !dir.exit_file().exists() && !dir.shim_file().exists() {
                    if Instant::now() >= deadline {
                        return Err(errors::shim_silent(
                            &dir.shim_log(),
                            "of an earlier start hung",
                        ));
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
                Ok(())
            }
            Some(StartReport::Ended) if dir.exit_file().exists() => Ok(()),
            Some(StartReport::Ended) => Err(errors::shim_silent(&dir.shim_log(), "ended")),
            Some(StartReport::TimedOut) | None => Err(errors::shim_silent(&dir.shim_log(), "hung")),
        }
    }

    /// Returns the phase of a launch. If another thread is starting it, waits for that start.
    pub(crate) fn settled_phase(&self, dir: &RunDir) -> Result<RunPhase, AgentError> {
        match read_phase(dir)? {
            RunPhase::NotStarted if dir.launch_file().exists() => {
                let _start = lock(&dir.start_lock())
                    .map_err(|error| errors::file_error("lock", &dir.start_lock(), error))?;
                read_phase(dir)
            }
            phase => Ok(phase),
        }
    }

    /// Ends the processes of a vanished shim and records the loss. Returns the recorded exit.
    pub(crate) fn conclude_vanished(
        &self,
        dir: &RunDir,
        grace: Duration,
    ) -> Result<Exit, AgentError> {
        let tree = remaining_tree(dir)?;
        let exit = end_and_record(dir, &tree, grace, &Exit::Lost)?;
        if let Some(cgroup) = tree.cgroup.get() {
            cgroup.remove();
        }
        Ok(exit)
    }

    /// Prevents that a shim ever performs this launch. Returns `None` if one has already begun.
    fn prevent_start(&self, dir: &RunDir) -> Result<Option<Exit>, AgentError> {
        RunDir::create(dir.0.clone())
            .map_err(|error| errors::file_error("create", &dir.0, error))?;
        let _start = lock(&dir.start_lock())
            .map_err(|error| errors::file_error("lock", &dir.start_lock(), error))?;
        // A shim of a dead daemon may still be starting, so the holder of the shim lock decides.
        let deadline = Instant::now() + OUTSIDE_END_TIMEOUT;
        loop {
            let shim = try_lock(&dir.shim_lock())
                .map_err(|error| errors::file_error("lock", &dir.shim_lock(), error))?;
            if dir.shim_file().exists() {
                return Ok(None);
            }
            if shim.is_some() {
                let exit = Exit::NotStarted(errors::STOPPED_FIRST.to_owned());
                return dir
                    .record_exit(&exit)
                    .map(Some)
                    .map_err(|error| errors::file_error("write", &dir.exit_file(), error));
            }
            if Instant::now() >= deadline {
                return Err(errors::lock_not_released(&dir.shim_lock()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends a launch: asks its shim to stop the tree, and ends the tree from outside if the shim
    /// does not react.
    pub(crate) fn end_launch(&self, dir: &RunDir, grace: Duration) -> Result<Exit, AgentError> {
        let (identity, shim) = match read_phase(dir)? {
            RunPhase::Ended(exit) => return Ok(exit),
            RunPhase::Vanished => return self.conclude_vanished(dir, grace),
            RunPhase::NotStarted => return Err(errors::lock_not_released(&dir.shim_lock())),
            RunPhase::Running(identity, shim) => (identity, shim),
        };
        // A send to a shim that has just ended fails. The wait below detects that the shim is gone.
        drop(send_command(
            dir,
            &shim_protocol::ShimCommand::stop_after(grace),
        ));
        let ended = shim
            .wait_until(Instant::now() + grace + SHIM_TIMEOUT)
            .map_err(|error| errors::kernel_error("wait", error))?;
        if !ended {
            end_from_outside(&shim, identity, dir)?;
        }
        self.exit_after_shim(dir, Duration::ZERO)
    }

    /// Returns the exit of a shim that has ended, and records a loss if the shim recorded nothing.
    pub(crate) fn exit_after_shim(
        &self,
        dir: &RunDir,
        grace: Duration,
    ) -> Result<Exit, AgentError> {
        match read_exit(dir)? {
            Some(exit) => Ok(exit),
            None => self.conclude_vanished(dir, grace),
        }
    }

    /// Waits until the attempt's program has ended and no process of the attempt is left. Returns
    /// `None` after `patience`.
    pub fn wait(&self, attempt: AttemptId, patience: Duration) -> Result<Option<Exit>, AgentError> {
        let dir = self.attempt_dir(attempt);
        match self.settled_phase(&dir)? {
            RunPhase::NotStarted => Err(errors::never_started(attempt)),
            RunPhase::Ended(exit) => Ok(Some(exit)),
            RunPhase::Vanished => self.conclude_vanished(&dir, Duration::ZERO).map(Some),
            RunPhase::Running(_, shim) => {
                let now = Instant::now();
                let deadline = now
                    .checked_add(patience)
                    .unwrap_or(now + Duration::from_secs(u64::from(u32::MAX)));
                if shim
                    .wait_until(deadline)
                    .map_err(|error| errors::kernel_error("wait", error))?
                {
                    self.exit_after_shim(&dir, Duration::ZERO).map(Some)
                } else {
                    Ok(None)
                }
            }
        }
    }
}

impl Agents for AgentsAdapter {
    fn free_memory_mb(&self) -> Option<u64> {
        crate::memory::free_mb()
    }

    fn launch_problems(
        &self,
        runtime: &Runtime,
        profile: &Profile,
    ) -> Vec<(LaunchProblem, AgentError)> {
        crate::launch_check::launch_problems(runtime, profile, &MachineFacts::this_machine())
    }

    fn resolve(&self, wanted: &AgentSpec) -> ResolvedAgent {
        crate::launch_check::resolve_agent(wanted, &MachineFacts::this_machine())
    }

    fn start(&self, launch: &ProgramLaunch) -> Result<StartOutcome, AgentError> {
        let path = self.attempt_path(launch.attempt);
        let dir = RunDir::create(path.clone())
            .map_err(|error| errors::file_error("create", &path, error))?;
        let _start = lock(&dir.start_lock())
            .map_err(|error| errors::file_error("lock", &dir.start_lock(), error))?;
        if dir.exit_file().exists() || dir.shim_file().exists() {
            return Ok(StartOutcome::default());
        }
        if dir.copy_file().exists() {
            return Err(errors::runs_elsewhere(launch.attempt));
        }
        let Some(relay) = self.relay.as_ref().filter(|_| launch.mcp.is_some()) else {
            let (environment, started) = launch::write_launch(self, &dir, launch, None)?;
            return self
                .start_shim(&dir, &environment, Stdio::null())
                .map(|()| started);
        };
        let prepared = relay
            .prepare(launch)
            .map_err(|error| errors::kernel_error("listen on loopback", error))?;
        let (listener, record, launch) = prepared;
        let (environment, started) = launch::write_launch(self, &dir, &launch, Some(record))?;
        self.start_shim(&dir, &environment, OwnedFd::from(listener).into())
            .map(|()| started)
    }

    fn state(&self, attempt: AttemptId) -> Result<ProcessState, AgentError> {
        let dir = self.attempt_dir(attempt);
        Ok(match self.settled_phase(&dir)? {
            RunPhase::NotStarted => ProcessState::NotStarted,
            RunPhase::Running(identity, _) => ProcessState::Running(identity),
            RunPhase::Ended(exit) => ProcessState::Exited(exit),
            // An attempt that is reported as ended must have no process left, so the remaining
            // processes are ended first.
            RunPhase::Vanished => {
                ProcessState::Exited(self.conclude_vanished(&dir, Duration::ZERO)?)
            }
        })
    }

    fn is_alive(&self, attempt: AttemptId) -> Result<bool, AgentError> {
        let dir = self.attempt_dir(attempt);
        match read_phase(&dir)? {
            RunPhase::Running(..) => Ok(true),
            RunPhase::Ended(_) => Ok(false),
            RunPhase::Vanished => {
                let tree = remaining_tree(&dir)?;
                tree.list_living()
                    .map(|found| !found.is_empty())
                    .map_err(|error| errors::kernel_error("list the processes", error))
            }
            // A start that is under way holds the lock until its shim has begun.
            RunPhase::NotStarted if dir.launch_file().exists() => {
                let lock = dir.start_lock();
                try_lock(&lock)
                    .map(|held| held.is_none())
                    .map_err(|error| errors::file_error("lock", &lock, error))
            }
            RunPhase::NotStarted => Ok(false),
        }
    }

    fn attend(
        &self,
        attempt: AttemptId,
        desk: &dyn SessionSink,
    ) -> Result<Option<DriverVerdict>, AgentError> {
        match self.restore_driver(&self.attempt_dir(attempt))? {
            Some(driver) => self.run_session_loop(attempt, desk, driver),
            // A power cut left a torn launch record, so only the exit is known.
            None => self
                .wait(attempt, Duration::MAX)
                .map(|exit| exit.map(session_loop::verdict_from_exit)),
        }
    }

    fn refresh_input(&self, attempt: AttemptId) {
        if let Some(bell) = self.wakeups().get(&attempt) {
            bell.wake();
        }
    }

    fn stop(&self, attempt: AttemptId, grace: Duration) -> Result<Exit, AgentError> {
        let dir = self.attempt_dir(attempt);
        match self.settled_phase(&dir)? {
            RunPhase::Ended(exit) => return Ok(exit),
            // No program of this attempt runs here, and the state of the remote program is unknown
            // here (P10).
            RunPhase::NotStarted if dir.copy_file().exists() => {
                return Err(errors::runs_elsewhere(attempt));
            }
            RunPhase::NotStarted => {
                if let Some(exit) = self.prevent_start(&dir)? {
                    return Ok(exit);
                }
            }
            RunPhase::Running(..) | RunPhase::Vanished => {}
        }
        self.end_launch(&dir, grace.min(MAX_GRACE_PERIOD))
    }

    fn run_check(&self, check: &CheckCommand) -> Result<CheckResult, AgentError> {
        match &check.once_name {
            Some(name) => run_once::run_command(self, name, (check, None)).map(|check_result| {
                check_result.expect("a check without a condition is always needed")
            }),
            None => run_check::run(self, check, None)?.ok_or_else(errors::shutting_down),
        }
    }

    fn end_commands(&self, attempt: AttemptId) -> Result<(), AgentError> {
        run_once::end_commands(self, attempt)
    }

    fn abort_command(&self, name: &str) -> Result<(), AgentError> {
        run_once::abort_command(self, name)
    }

    fn delete_command_record(&self, name: &str) -> Result<(), AgentError> {
        run_once::delete_command_record(self, name)
    }

    fn stop_checks(&self) {
        self.is_shutting_down.store(true, Ordering::SeqCst);
    }

    fn run_check_while(
        &self,
        check: &CheckCommand,
        wanted: &dyn Fn() -> bool,
    ) -> Result<Option<CheckResult>, AgentError> {
        match &check.once_name {
            Some(name) => run_once::run_command(self, name, (check, Some(wanted))),
            None => run_check::run(self, check, Some(wanted)),
        }
    }

    fn transcript(
        &self,
        attempt: AttemptId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<TranscriptLine>, AgentError> {
        session_loop::read_transcript(self, attempt, from, limit)
    }

    fn tail(&self, attempt: AttemptId, bytes: usize) -> Result<String, AgentError> {
        let dir = self.attempt_dir(attempt);
        journal::output_tail(&dir.0, bytes)
            .map_err(|error| errors::file_error("read the journal in", &dir.0, error))
    }

    fn last_record_unix_ms(&self, attempt: AttemptId) -> Option<u64> {
        journal::last_write_unix_ms(&self.attempt_dir(attempt).0)
    }

    fn result_file(&self, attempt: AttemptId) -> PathBuf {
        self.attempt_dir(attempt).result_file()
    }

    fn records(
        &self,
        attempt: AttemptId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<JournalRecord>, AgentError> {
        session_loop::read_records(self, attempt, from, limit)
    }

    fn journal_heading(&self, attempt: AttemptId) -> Result<Option<String>, AgentError> {
        self.read_heading(attempt)
    }

    fn store_heading(&self, attempt: AttemptId, heading: &str) -> Result<(), AgentError> {
        self.write_heading(attempt, heading)
    }

    fn last_copied_position(&self, attempt: AttemptId) -> Result<u64, AgentError> {
        self.last_copied_record(attempt)
    }

    fn append_copy(
        &self,
        attempt: AttemptId,
        records: &[JournalRecord],
    ) -> Result<u64, AgentError> {
        self.append_to_copy(attempt, records)
    }
}

fn read_exit(dir: &RunDir) -> Result<Option<Exit>, AgentError> {
    dir.read_exit()
        .map_err(|error| errors::file_error("read", &dir.exit_file(), error))
}

/// Returns the tree of a vanished shim, in order to find its remaining processes.
fn remaining_tree(dir: &RunDir) -> Result<ProcessTree, AgentError> {
    let launch = dir
        .read_launch()
        .map_err(|error| errors::file_error("read", &dir.launch_file(), error))?;
    let program = dir
        .read_program()
        .ok()
        .flatten()
        .map(|program| program.identity);
    // The group's name identifies the launch as well as the mark does. It belongs to no other
    // launch and is gone after a reboot.
    let cgroup = dir.read_shim().ok().flatten().and_then(|shim| shim.cgroup);
    let tree = ProcessTree {
        shim: None,
        program,
        mark: launch.map(|launch| launch.mark),
        cgroup: Arc::default(),
    };
    if let Some(cgroup) = cgroup {
        let _first = tree.cgroup.set(cgroup);
    }
    Ok(tree)
}

/// Reads the phase of a launch from its files and the process table.
pub(crate) fn read_phase(dir: &RunDir) -> Result<RunPhase, AgentError> {
    if let Some(exit) = read_exit(dir)? {
        wait_for_shim_exit(dir, SHIM_TIMEOUT)?;
        return Ok(RunPhase::Ended(exit));
    }
    match read_json::<ProcessIdentity>(&dir.shim_file()) {
        Ok(None) => return Ok(RunPhase::NotStarted),
        Ok(Some(identity)) => {
            let handle = ProcessHandle::open(&identity)
                .map_err(|error| errors::kernel_error("open a process", error))?;
            if let Some(handle) = handle {
                return Ok(RunPhase::Running(identity, handle));
            }
        }
        // The record was torn by a power cut. A shim had begun, but no process survives a power
        // cut.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
        Err(error) => return Err(errors::file_error("read", &dir.shim_file(), error)),
    }
    // The shim may have written its exit record after the first look.
    Ok(read_exit(dir)?.map_or(RunPhase::Vanished, RunPhase::Ended))
}

/// Waits for a shim with an exit record to be gone. The record is the last thing that a shim
/// writes, and a launch must not be reported as ended while its shim lives (P3, P10). A shim that
/// hangs is ignored after `patience`, because no process of its launch is left.
fn wait_for_shim_exit(dir: &RunDir, patience: Duration) -> Result<(), AgentError> {
    let Ok(Some(identity)) = read_json::<ProcessIdentity>(&dir.shim_file()) else {
        return Ok(());
    };
    match ProcessHandle::open(&identity)
        .map_err(|error| errors::kernel_error("open a process", error))?
    {
        Some(shim) => shim
            .wait_until(Instant::now() + patience)
            .map(drop)
            .map_err(|error| errors::kernel_error("wait", error)),
        None => Ok(()),
    }
}

/// Ends the tree of a shim that is stopped or stuck, and then the shim.
pub(crate) fn end_from_outside(
    shim: &ProcessHandle,
    identity: ProcessIdentity,
    dir: &RunDir,
) -> Result<(), AgentError> {
    // The tree is ended first, because escaped processes cannot be found without their subreaper.
    let tree = ProcessTree {
        shim: Some(identity),
        ..ProcessTree::default()
    };
    let left = tree.end(Duration::ZERO, Instant::now() + OUTSIDE_END_TIMEOUT / 2);
    let left = left.map_err(|error| errors::kernel_error("list the processes", error))?;
    if !left.is_empty() {
        return Err(errors::still_alive(
            &left.iter().map(|process| process.pid).collect::<Vec<_>>(),
        ));
    }
    shim.signal(Signal::KILL);
    match shim.wait_until(Instant::now() + OUTSIDE_END_TIMEOUT / 2) {
        Ok(true) => Ok(()),
        Ok(false) => Err(errors::lock_not_released(&dir.shim_lock())),
        Err(error) => Err(errors::kernel_error("wait", error)),
    }
}

/// Ends a tree whose shim is gone and records the exit. Of several callers only the first records
/// an exit.
pub(crate) fn end_and_record(
    dir: &RunDir,
    tree: &ProcessTree,
    grace: Duration,
    exit: &Exit,
) -> Result<Exit, AgentError> {
    let deadline = Instant::now() + grace + OUTSIDE_END_TIMEOUT;
    let lock = lock_until(&dir.shim_lock(), deadline)
        .map_err(|error| errors::file_error("lock", &dir.shim_lock(), error))?;
    let Some(_lock) = lock else {
        return Err(errors::lock_not_released(&dir.shim_lock()));
    };
    if let Some(exit) = read_exit(dir)? {
        return Ok(exit);
    }
    let left = tree
        .end(grace, deadline)
        .map_err(|error| errors::kernel_error("list the processes", error))?;
    if !left.is_empty() {
        return Err(errors::still_alive(
            &left.iter().map(|process| process.pid).collect::<Vec<_>>(),
        ));
    }
    dir.record_exit(exit)
        .map_err(|error| errors::file_error("write", &dir.exit_file(), error))
}

/// Sends a command to a shim without waiting for the reply.
fn send_command(dir: &RunDir, command: &shim_protocol::ShimCommand) -> io::Result<()> {
    shim_protocol::connect(dir)?.write_all(&command.to_line()?)
}

#[derive(Debug, PartialEq, Eq)]
enum StartReport {
    Ready,
    Ended,
    TimedOut,
}

fn read_start_report(mut report: ChildStdout, deadline: Instant) -> StartReport {
    match poll_until(&mut [PollFd::new(&report, PollFlags::IN)], Some(deadline)) {
        Ok(true) => {
            let mut word = [0; READY_LINE.len()];
            if report.read_exact(&mut word).is_ok() && word == READY_LINE {
                StartReport::Ready
            } else {
                StartReport::Ended
            }
        }
        Ok(false) | Err(_) => StartReport::TimedOut,
    }
}

/// Reaps a shim when it ends, so that it never stays a zombie (P7). Returns its exit code if the
/// caller knows that it has ended.
pub(crate) fn reap_shim(mut shim: Child, ended: bool) -> Option<i32> {
    if ended {
        return shim.wait().ok().and_then(|status| status.code());
    }
    reaper::reap(shim);
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Process;
    use crate::run_dir::write_atomic;

    /// P3, P10: a launch with an exit record has ended only when its shim is gone, or when the shim
    /// hangs for too long.
    #[test]
    fn p3_a_launch_has_ended_only_when_its_shim_is_gone() {
        let place = tempfile::tempdir().unwrap();
        let dir = RunDir::create(place.path().join("A1")).unwrap();
        let mut shim = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let identity = Process::read(shim.id()).unwrap().identity().unwrap();
        write_atomic(&dir.shim_file(), &serde_json::to_vec(&identity).unwrap()).unwrap();
        dir.record_exit(&Exit::Code(0)).unwrap();
        // A shim that hangs is ignored.
        wait_for_shim_exit(&dir, Duration::ZERO).unwrap();
        assert!(matches!(shim.try_wait(), Ok(None)));
        assert!(matches!(
            read_phase(&dir),
            Ok(RunPhase::Ended(Exit::Code(0)))
        ));
        std::thread::scope(|scope| {
            let seen = scope.spawn(|| wait_for_shim_exit(&dir, Duration::from_secs(300)).unwrap());
            drop(shim.stdin.take());
            seen.join().unwrap();
        });
        let gone = Process::read(shim.id()).is_none_or(|process| process.is_zombie);
        shim.wait().unwrap();
        assert!(
            gone,
            "the launch was reported as ended while its shim was alive"
        );
    }
}
