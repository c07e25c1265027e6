//! Implements the engine's port to agent programs: starts, watches and stops programs. A small
//! supervisor process, the shim, runs each program.
//!
//! The adapter keeps no state of an attempt in memory. The adapter reads the attempt's run
//! directory and the process table each time (see `run_phase`), so nothing is lost when the daemon
//! restarts. The engine decides which programs start and when they stop.

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
    AgentError, AgentSpec, Agents, CheckCommand, CheckResult, CompleteTranscriptLine,
    DriverVerdict, Exit, JournalRecord, LaunchProblem, ProcessState, ProgramLaunch, ResolvedAgent,
    SessionSink, StartOutcome, TranscriptEnd, TranscriptLine,
};
use rustix::event::{PollFd, PollFlags};

use crate::driver::Driver;
use crate::drivers;
use crate::environment::{ChildEnvironment, SHIM_ALLOCATOR};
use crate::journal_copy::OpenCopy;
use crate::process::poll_until;
use crate::program_discovery::MachineFacts;
use crate::relay::{self, RelayRecord};
use crate::run_dir::{ContactDeadline, RunDir, lock, open_for_append, try_lock};
use crate::run_phase::{
    OUTSIDE_END_TIMEOUT, RunPhase, SHIM_TIMEOUT, end_and_record, end_from_outside, read_exit,
    read_phase, remaining_tree,
};
use crate::session_loop::{self, MAX_CURSORS, SessionLoop, TranscriptCursor};
use crate::shim::{ALREADY_STARTED_EXIT_CODE, READY_LINE, ShimLimits, WakeupFd};
use crate::{errors, journal, program_launch, reaper, run_check, run_once, shim_protocol};

/// The time that a new shim (the supervisor process of a program) may take to report that its
/// program runs. The time is long because many starts at once can make a machine very slow.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// The longest time between asking a program to end and killing it. Callers' larger values are cut
/// to this limit, so that adding it to the current time cannot overflow.
const MAX_GRACE_PERIOD: Duration = Duration::from_secs(24 * 60 * 60);

/// The time without output after which the daemon's session loop reports to its [`SessionSink`]
/// that the program is silent.
const DEFAULT_SILENCE_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// Runs agents' programs on this machine. Each program is a child of its own supervisor process,
/// the shim, so the program survives a restart of the daemon.
#[derive(Clone)]
pub struct AgentsAdapter {
    pub(crate) data_dir: PathBuf,
    pub(crate) regatta_exe: PathBuf,
    pub(crate) limits: ShimLimits,
    pub(crate) without_cgroups: bool,
    pub(crate) silence_timeout: Duration,
    pub(crate) contact_deadline: Option<ContactDeadline>,
    pub(crate) relay: Option<RelayTarget>,
    /// For each attempt with a running session loop, the handle that wakes the loop when new input
    /// for the program is available.
    wakeups: Arc<Mutex<HashMap<AttemptId, Arc<WakeupFd>>>>,
    cursors: Arc<Mutex<Vec<TranscriptCursor>>>,
    /// Counts the changes that make saved reading positions ([`TranscriptCursor`]) invalid. A
    /// position that was saved before the last change is not reused.
    cursor_generation: Arc<AtomicU64>,
    /// The journals of programs that run on other machines, opened here for appending the records
    /// that those machines send.
    copies: Arc<Mutex<Vec<OpenCopy>>>,
    /// True when the daemon shuts down, so that the checks (commands such as tests) that are
    /// running end early.
    pub(crate) is_shutting_down: Arc<AtomicBool>,
}

/// The target of a relay. A relay gives each program its own address in place of the daemon's, and
/// that address stays valid when the daemon restarts.
#[derive(Clone)]
pub(crate) struct RelayTarget {
    /// The daemon's address as it occurs in the settings of a program to start, such as
    /// `http://127.0.0.1:7777`. The relay's address replaces the daemon's address.
    server: String,
    socket: PathBuf,
}

impl RelayTarget {
    /// Opens a port for one program, and replaces the daemon's address in the program's environment
    /// and tool settings by the address of that port.
    fn prepare(&self, launch: &ProgramLaunch) -> io::Result<PreparedRelay> {
        let listener = relay::listen()?;
        let address = listener.local_addr()?;
        let relay_url = format!("http://{address}");
        let mut launch = launch.clone();
        for (name, value) in &mut launch.env {
            if name == "REGATTA_SERVER" {
                *value = value.replace(&self.server, &relay_url);
            }
        }
        if let Some(mcp) = &mut launch.mcp {
            mcp.url = mcp.url.replace(&self.server, &relay_url);
        }
        let record = RelayRecord {
            address,
            socket: self.socket.clone(),
        };
        Ok(PreparedRelay {
            listener,
            record,
            launch,
        })
    }
}

/// An open port that forwards to the daemon (a relay), and the description of the program to start,
/// in which the port's address replaces the daemon's address.
struct PreparedRelay {
    listener: TcpListener,
    record: RelayRecord,
    launch: ProgramLaunch,
}

impl fmt::Debug for AgentsAdapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentsAdapter")
            .field("data_dir", &self.data_dir)
            .finish_non_exhaustive()
    }
}

impl AgentsAdapter {
    /// Creates an adapter that keeps its directories in `data_dir` and starts supervisor processes
    /// as `exe shim DIR`.
    pub fn new(data_dir: PathBuf, exe: PathBuf) -> AgentsAdapter {
        // Make the paths absolute, because a supervisor process runs in another working directory
        // than this process.
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

    /// Sets the output limits for programs that this adapter starts.
    pub fn with_limits(self, limits: ShimLimits) -> AgentsAdapter {
        AgentsAdapter { limits, ..self }
    }

    /// Makes supervisor processes track a program's processes without Linux control groups.
    pub fn without_cgroups(self) -> AgentsAdapter {
        AgentsAdapter {
            without_cgroups: true,
            ..self
        }
    }

    /// Sets a deadline for the contact with the daemon. A program that is started from now on is
    /// ended when `file` was not written for longer than `timeout`, even if this process is gone.
    /// The function [`crate::contact_deadline::record_contact`] writes the file.
    pub fn with_contact_deadline(self, file: PathBuf, timeout: Duration) -> AgentsAdapter {
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        AgentsAdapter {
            contact_deadline: Some(ContactDeadline {
                file: std::path::absolute(&file).unwrap_or(file),
                timeout_ms,
            }),
            ..self
        }
    }

    /// Gives each program its own address in place of `server`, the daemon's address. The new
    /// address is valid as long as the program runs, and forwards to the unix socket `socket` of
    /// whichever daemon runs at the time (P13).
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

    /// Returns the mechanism by which the processes of an attempt are found and ended: `cgroup`,
    /// `pid_namespace` or `subreaper`. Returns `None` if the attempt's program was never started.
    pub fn containment(&self, attempt: AttemptId) -> Result<Option<&'static str>, AgentError> {
        let dir = self.attempt_dir(attempt);
        let program = dir.read_program().map_err(|error| {
            errors::file_error("read the record of the program", &dir.program_file(), error)
        })?;
        Ok(program.map(|program| program.containment.as_str()))
    }

    /// Sets the time for which a program may print nothing before the daemon's session loop reports
    /// that the program is silent.
    pub fn with_silence_timeout(self, silence: Duration) -> AgentsAdapter {
        AgentsAdapter {
            silence_timeout: silence,
            ..self
        }
    }

    /// Reads up to `limit` records of an attempt's journal (the program's recorded input and
    /// output), beginning with record number `from`. The first record has number 1. Unlike
    /// [`Agents::records`], this function has no limit of bytes.
    pub fn read_journal(
        &self,
        attempt: AttemptId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<JournalRecord>, AgentError> {
        let dir = self.attempt_dir(attempt);
        session_loop::read_all_records(&dir, from, limit).map_err(|error| {
            errors::file_error(
                "read the journal (the program's recorded output) in",
                &dir.0,
                error,
            )
        })
    }

    /// Runs an attempt's session loop, which exchanges input and output with the program, with the
    /// given driver instead of the driver for the attempt's runtime.
    pub fn run_session_loop(
        &self,
        attempt: AttemptId,
        sink: &dyn SessionSink,
        driver: Box<dyn Driver>,
    ) -> Result<Option<DriverVerdict>, AgentError> {
        let wakeup = Arc::new(WakeupFd::new().map_err(|error| {
            errors::kernel_error(
                "create an eventfd (a file descriptor) to wake the session loop",
                error,
            )
        })?);
        self.wakeups().insert(attempt, Arc::clone(&wakeup));
        let verdict = SessionLoop::new(self, attempt, sink, driver, &wakeup).run();
        let mut wakeups = self.wakeups();
        if wakeups
            .get(&attempt)
            .is_some_and(|registered| Arc::ptr_eq(registered, &wakeup))
        {
            wakeups.remove(&attempt);
        }
        verdict
    }

    pub(crate) fn cursors(&self) -> MutexGuard<'_, Vec<TranscriptCursor>> {
        self.cursors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Saves a transcript reader's position for its next call, unless the journal was changed since
    /// the reader started.
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

    /// Discards the saved reading positions in this attempt's journal, so that readers start from
    /// the beginning of the journal.
    pub(crate) fn invalidate_cursors(&self, attempt: AttemptId) {
        let mut cursors = self.cursors();
        self.cursor_generation.fetch_add(1, Ordering::SeqCst);
        cursors.retain(|cursor| !cursor.belongs_to(attempt));
    }

    /// Locks and returns the list of open copies of journals from other machines.
    pub(crate) fn copies(&self) -> MutexGuard<'_, Vec<OpenCopy>> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wakeups(&self) -> MutexGuard<'_, HashMap<AttemptId, Arc<WakeupFd>>> {
        self.wakeups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates the driver of an attempt from the files in its run directory. Works for a program on
    /// this machine and for the copied journal of a program on another machine.
    pub(crate) fn restore_driver(
        &self,
        dir: &RunDir,
    ) -> Result<Option<Box<dyn Driver>>, AgentError> {
        let launch = dir.read_launch().map_err(|error| {
            errors::file_error(
                "read the description of the program to start",
                &dir.launch_file(),
                error,
            )
        })?;
        let session_facts = match launch {
            Some(launch) => launch.session_facts,
            None => dir
                .read_copy()
                .map_err(|error| {
                    errors::file_error(
                        "read the facts about the program in the copied journal",
                        &dir.copy_file(),
                        error,
                    )
                })?
                .and_then(|copy| copy.session_facts),
        };
        Ok(session_facts.map(|session_facts| drivers::new_driver(&session_facts.setup)))
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

    /// Returns the directory with the records of one-time commands. Such a command must run only
    /// once, even if the daemon restarts in between.
    pub(crate) fn commands_path(&self) -> PathBuf {
        self.data_dir.join("commands")
    }

    /// Spawns a supervisor process, which starts the program that the launch record (`launch.json`)
    /// in `dir` describes.
    pub(crate) fn spawn_shim(
        &self,
        dir: &RunDir,
        environment: &ChildEnvironment,
        stdin: Stdio,
    ) -> Result<Child, AgentError> {
        let log = open_for_append(&dir.shim_log()).map_err(|error| {
            errors::file_error(
                "open the log file of the supervisor process",
                &dir.shim_log(),
                error,
            )
        })?;
        // Do not call `process_group` here, because the supervisor process calls `setsid`, which
        // fails for the leader of a process group.
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

    /// Spawns a supervisor process that outlives this process, and waits until the supervisor has
    /// begun. The caller holds the directory's start lock. `input` becomes the supervisor's
    /// standard input: the listening socket of the relay (the program's connection to the daemon),
    /// or nothing if the program has no relay.
    pub(crate) fn start_shim(
        &self,
        dir: &RunDir,
        environment: &ChildEnvironment,
        input: Stdio,
    ) -> Result<(), AgentError> {
        let mut shim = self.spawn_shim(dir, environment, input)?;
        let stdout = shim.stdout.take();
        let start_report =
            stdout.map(|stdout| read_start_report(stdout, Instant::now() + START_TIMEOUT));
        let exit_code = reap_shim(shim, start_report == Some(StartReport::Ended));
        match start_report {
            Some(StartReport::Ready) => Ok(()),
            // Another supervisor process, left over from an interrupted start, is already
            // performing this launch. Wait until that supervisor has recorded that it runs or has
            // ended.
            Some(StartReport::Ended) if exit_code == Some(i32::from(ALREADY_STARTED_EXIT_CODE)) => {
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

    /// Returns how far the start in this run directory has come: not started, running, ended, or
    /// without its supervisor process. If another thread is just starting the program, waits for
    /// that start first.
    pub(crate) fn settled_phase(&self, dir: &RunDir) -> Result<RunPhase, AgentError> {
        match read_phase(dir)? {
            RunPhase::NotStarted if dir.launch_file().exists() => {
                let _start = hold_start_lock(dir)?;
                read_phase(dir)
            }
            phase => Ok(phase),
        }
    }

    /// Ends the processes that a supervisor process left behind when it disappeared without
    /// recording an exit, and records the exit as unknown ([`Exit::Lost`]). Returns the recorded
    /// exit.
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

    /// Records that the program was stopped before its start, so that no supervisor process starts
    /// it any more, and returns that exit. Returns `None` if a supervisor has already begun.
    fn prevent_start(&self, dir: &RunDir) -> Result<Option<Exit>, AgentError> {
        RunDir::create(dir.0.clone()).map_err(|error| {
            errors::file_error("create the run directory of the attempt", &dir.0, error)
        })?;
        let _start = hold_start_lock(dir)?;
        // A supervisor process that an earlier daemon spawned may still be about to start the
        // program. Only the holder of the supervisor's lock may do so or record the exit, so wait
        // for that lock.
        let deadline = Instant::now() + OUTSIDE_END_TIMEOUT;
        loop {
            let shim = try_lock(&dir.shim_lock()).map_err(|error| {
                errors::file_error(
                    "lock the file that prevents a second start of the supervisor process,",
                    &dir.shim_lock(),
                    error,
                )
            })?;
            if dir.shim_file().exists() {
                return Ok(None);
            }
            if shim.is_some() {
                let exit = Exit::NotStarted(errors::STOPPED_FIRST.to_owned());
                return dir.record_exit(&exit).map(Some).map_err(|error| {
                    errors::file_error("record the program's exit in", &dir.exit_file(), error)
                });
            }
            if Instant::now() >= deadline {
                return Err(errors::lock_not_released(&dir.shim_lock()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends a started program: asks its supervisor process to stop all of the program's processes,
    /// and kills the supervisor and these processes if the supervisor does not finish in time.
    pub(crate) fn end_launch(&self, dir: &RunDir, grace: Duration) -> Result<Exit, AgentError> {
        let (identity, shim) = match read_phase(dir)? {
            RunPhase::Ended(exit) => return Ok(exit),
            RunPhase::Vanished => return self.conclude_vanished(dir, grace),
            RunPhase::NotStarted => return Err(errors::lock_not_released(&dir.shim_lock())),
            RunPhase::Running(identity, shim) => (identity, shim),
        };
        // Ignore an error, because sending to a supervisor process that has just ended fails. The
        // wait below detects that the supervisor is gone.
        drop(send_command(
            dir,
            &shim_protocol::ShimCommand::stop_after(grace),
        ));
        let ended = shim
            .wait_until(Instant::now() + grace + SHIM_TIMEOUT)
            .map_err(|error| errors::kernel_error("wait for the supervisor process", error))?;
        if !ended {
            end_from_outside(&shim, identity, dir)?;
        }
        self.exit_after_shim(dir, Duration::ZERO)
    }

    /// Returns the exit that a supervisor process recorded before it ended. If the supervisor
    /// process recorded no exit, ends the remaining processes, and records and returns
    /// [`Exit::Lost`].
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
    /// `None` after `timeout`.
    pub fn wait(&self, attempt: AttemptId, timeout: Duration) -> Result<Option<Exit>, AgentError> {
        let dir = self.attempt_dir(attempt);
        match self.settled_phase(&dir)? {
            RunPhase::NotStarted => Err(errors::never_started(attempt)),
            RunPhase::Ended(exit) => Ok(Some(exit)),
            RunPhase::Vanished => self.conclude_vanished(&dir, Duration::ZERO).map(Some),
            RunPhase::Running(_, shim) => {
                let now = Instant::now();
                let deadline = now
                    .checked_add(timeout)
                    .unwrap_or(now + Duration::from_secs(u64::from(u32::MAX)));
                if shim.wait_until(deadline).map_err(|error| {
                    errors::kernel_error("wait for the supervisor process", error)
                })? {
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
        crate::free_memory::free_mb()
    }

    fn launch_problems(
        &self,
        runtime: &Runtime,
        profile: &Profile,
    ) -> Vec<(LaunchProblem, AgentError)> {
        crate::launch_check::launch_problems(runtime, profile, &MachineFacts::this_machine())
    }

    fn resolve(&self, spec: &AgentSpec) -> ResolvedAgent {
        crate::launch_check::resolve_agent(spec, &MachineFacts::this_machine())
    }

    fn start(&self, launch: &ProgramLaunch) -> Result<StartOutcome, AgentError> {
        let path = self.attempt_path(launch.attempt);
        let dir = RunDir::create(path.clone()).map_err(|error| {
            errors::file_error("create the run directory of the attempt", &path, error)
        })?;
        let _start = hold_start_lock(&dir)?;
        if dir.exit_file().exists() || dir.shim_file().exists() {
            return Ok(StartOutcome::default());
        }
        if dir.copy_file().exists() {
            return Err(errors::runs_elsewhere(launch.attempt));
        }
        let Some(relay) = self.relay.as_ref().filter(|_| launch.mcp.is_some()) else {
            let (environment, started) = program_launch::write_launch(self, &dir, launch, None)?;
            return self
                .start_shim(&dir, &environment, Stdio::null())
                .map(|()| started);
        };
        let prepared = relay.prepare(launch).map_err(|error| {
            errors::kernel_error("open a port on 127.0.0.1 for the program", error)
        })?;
        let (environment, started) =
            program_launch::write_launch(self, &dir, &prepared.launch, Some(prepared.record))?;
        let input = OwnedFd::from(prepared.listener).into();
        self.start_shim(&dir, &environment, input).map(|()| started)
    }

    fn state(&self, attempt: AttemptId) -> Result<ProcessState, AgentError> {
        let dir = self.attempt_dir(attempt);
        Ok(match self.settled_phase(&dir)? {
            RunPhase::NotStarted => ProcessState::NotStarted,
            RunPhase::Running(identity, _) => ProcessState::Running(identity),
            RunPhase::Ended(exit) => ProcessState::Exited(exit),
            // The supervisor process is gone, but processes of the program may remain. End these
            // processes first, because an attempt that is reported as ended must have no process
            // left.
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
                    .map(|processes| !processes.is_empty())
                    .map_err(|error| errors::kernel_error("list the attempt's processes", error))
            }
            // A start that is in progress holds the start lock until its supervisor process has
            // begun. A held lock therefore means that the attempt is alive.
            RunPhase::NotStarted if dir.launch_file().exists() => try_lock(&dir.start_lock())
                .map(|acquired| acquired.is_none())
                .map_err(|error| start_lock_error(&dir, error)),
            RunPhase::NotStarted => Ok(false),
        }
    }

    fn attend(
        &self,
        attempt: AttemptId,
        sink: &dyn SessionSink,
    ) -> Result<Option<DriverVerdict>, AgentError> {
        match self.restore_driver(&self.attempt_dir(attempt))? {
            Some(driver) => self.run_session_loop(attempt, sink, driver),
            // The launch record is incomplete after a power cut, so the driver is unknown. Wait for
            // the exit and judge by the exit alone.
            None => self
                .wait(attempt, Duration::MAX)
                .map(|exit| exit.map(session_loop::verdict_from_exit)),
        }
    }

    fn refresh_input(&self, attempt: AttemptId) {
        if let Some(wakeup) = self.wakeups().get(&attempt) {
            wakeup.wake();
        }
    }

    fn stop(&self, attempt: AttemptId, grace: Duration) -> Result<Exit, AgentError> {
        let dir = self.attempt_dir(attempt);
        match self.settled_phase(&dir)? {
            RunPhase::Ended(exit) => return Ok(exit),
            // The attempt's program runs on another machine, and this machine has only a copy of
            // its journal (the recorded input and output). This machine therefore cannot know
            // whether that program has ended (P10).
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
            Some(name) => run_once::run_command(self, name, check, None).map(|check_result| {
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
        is_needed: &dyn Fn() -> bool,
    ) -> Result<Option<CheckResult>, AgentError> {
        match &check.once_name {
            Some(name) => run_once::run_command(self, name, check, Some(is_needed)),
            None => run_check::run(self, check, Some(is_needed)),
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

    fn complete_transcript(
        &self,
        attempt: AttemptId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<CompleteTranscriptLine>, AgentError> {
        session_loop::read_complete_transcript(self, attempt, from, limit)
    }

    fn transcript_end(&self, attempt: AttemptId, bytes: u64) -> Result<TranscriptEnd, AgentError> {
        crate::transcript_end::read(self, attempt, bytes)
    }

    fn tail(&self, attempt: AttemptId, bytes: usize) -> Result<String, AgentError> {
        let dir = self.attempt_dir(attempt);
        journal::output_tail(&dir.0, bytes).map_err(|error| {
            errors::file_error(
                "read the journal (the program's recorded output) in",
                &dir.0,
                error,
            )
        })
    }

    fn last_record_unix_ms(&self, attempt: AttemptId) -> Option<u64> {
        journal::last_write_unix_ms(&self.attempt_dir(attempt).0)
    }

    fn result_file(&self, attempt: AttemptId) -> PathBuf {
        self.attempt_dir(attempt).result_file()
    }

    fn prompt(&self, attempt: AttemptId) -> Result<Option<String>, AgentError> {
        let path = self.attempt_dir(attempt).prompt_file();
        match std::fs::read(&path) {
            Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(errors::file_error("read", &path, error)),
        }
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

/// Sends a command to a supervisor process without waiting for the reply.
fn send_command(dir: &RunDir, command: &shim_protocol::ShimCommand) -> io::Result<()> {
    shim_protocol::connect(dir)?.write_all(&command.to_line()?)
}

#[derive(Debug, PartialEq, Eq)]
enum StartReport {
    Ready,
    Ended,
    TimedOut,
}

fn read_start_report(mut stdout: ChildStdout, deadline: Instant) -> StartReport {
    match poll_until(&mut [PollFd::new(&stdout, PollFlags::IN)], Some(deadline)) {
        Ok(true) => {
            let mut line = [0; READY_LINE.len()];
            if stdout.read_exact(&mut line).is_ok() && line == READY_LINE {
                StartReport::Ready
            } else {
                StartReport::Ended
            }
        }
        Ok(false) | Err(_) => StartReport::TimedOut,
    }
}

/// Reaps a supervisor process (collects its exit status) when it ends, so that it does not stay a
/// zombie (P7). The exit code is returned only if `ended` is true, which means that the caller
/// knows that the supervisor has ended.
pub(crate) fn reap_shim(mut shim: Child, ended: bool) -> Option<i32> {
    if ended {
        return shim.wait().ok().and_then(|status| status.code());
    }
    reaper::reap(shim);
    None
}

/// Locks the file that allows only one start of an attempt's program.
fn hold_start_lock(dir: &RunDir) -> Result<std::fs::File, AgentError> {
    lock(&dir.start_lock()).map_err(|error| start_lock_error(dir, error))
}

fn start_lock_error(dir: &RunDir, error: std::io::Error) -> AgentError {
    let what = "lock the file that allows only one start of the program,";
    errors::file_error(what, &dir.start_lock(), error)
}
