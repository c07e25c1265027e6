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
    AgentError, Agents, Check, CheckResult, Desk, Exit, Launch, Line, Problem, ProcessIdentity, ProcessState, Record,
    Resolved, Started, Verdict, Wanted,
};
use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;

use crate::attend::{self, Attendant, CURSORS, Cursor};
use crate::copies::OpenCopy;
use crate::discover::Machine;
use crate::driver::Driver;
use crate::drivers;
use crate::environment::{Environment, SHIM_ALLOCATOR};
use crate::process::{Handle, ready_until};
use crate::relay::{self, RelayRecord};
use crate::rundir::{Leash, RunDir, append, lock, lock_until, read_json, try_lock};
use crate::shim::{Bell, Limits, NOT_MINE, READY};
use crate::tree::Tree;
use crate::{check, journal, launch, once, reaper, socket, words};

/// The time that a shim may take to report that its program runs. Many starts at once can make a
/// machine very slow.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// The time that a shim may take beyond the grace period. After that its tree is ended from
/// outside.
const SHIM_PATIENCE: Duration = Duration::from_millis(1500);

/// The time that ending a tree from outside may take. It is spent at most twice: on the tree of a
/// stuck shim, and after the shim's death. Together with [`SHIM_PATIENCE`] that stays under the 5 s
/// of P4.
const OUTSIDE_PATIENCE: Duration = Duration::from_millis(1600);

/// The longest accepted grace period. It can safely be added to a clock.
const LONGEST_GRACE: Duration = Duration::from_secs(24 * 60 * 60);

/// The silence of a program after which the sink is notified.
const SILENCE: Duration = Duration::from_secs(15 * 60);

/// The adapter that runs programs as child processes on this machine, each under a shim.
#[derive(Clone)]
pub struct AgentsAdapter {
    pub(crate) data_dir: PathBuf,
    pub(crate) regatta_exe: PathBuf,
    pub(crate) limits: Limits,
    pub(crate) without_cgroups: bool,
    pub(crate) silence: Duration,
    pub(crate) leash: Option<Leash>,
    pub(crate) relay: Option<RelayTo>,
    /// The wake-up handles of the running session loops.
    bells: Arc<Mutex<HashMap<AttemptId, Arc<Bell>>>>,
    cursors: Arc<Mutex<Vec<Cursor>>>,
    /// The number of times that readers of a transcript had to start again.
    restarts: Arc<AtomicU64>,
    /// The open copies of journals of programs on other machines.
    copies: Arc<Mutex<Vec<OpenCopy>>>,
    /// Set when the daemon shuts down and running checks have to end.
    pub(crate) resting: Arc<AtomicBool>,
}

/// The server address that is replaced by a relay for each program, and the relay's target.
#[derive(Clone)]
pub(crate) struct RelayTo {
    /// The address, such as `http://127.0.0.1:7777`.
    server: String,
    socket: PathBuf,
}

impl RelayTo {
    /// Binds a port for a program. Returns the launch with that port in place of the daemon's
    /// address.
    fn prepare(&self, launch: &Launch) -> io::Result<(TcpListener, RelayRecord, Launch)> {
        let listener = relay::listen()?;
        let address = listener.local_addr()?;
        let own = format!("http://{address}");
        let mut launch = launch.clone();
        for (_, value) in launch.env.iter_mut().filter(|(name, _)| name == "REGATTA_SERVER") {
            *value = value.replace(&self.server, &own);
        }
        if let Some(mcp) = &mut launch.mcp {
            mcp.url = mcp.url.replace(&self.server, &own);
        }
        Ok((listener, RelayRecord { address, socket: self.socket.clone() }, launch))
    }
}

impl fmt::Debug for AgentsAdapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentsAdapter").field("data_dir", &self.data_dir).finish_non_exhaustive()
    }
}

/// The state of a launch according to its files and the process table.
pub(crate) enum Phase {
    /// No shim has begun.
    Untouched,
    /// A shim is running.
    Alive(ProcessIdentity, Handle),
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
            limits: Limits::default(),
            without_cgroups: false,
            silence: SILENCE,
            leash: None,
            relay: None,
            bells: Arc::default(),
            cursors: Arc::default(),
            restarts: Arc::default(),
            copies: Arc::default(),
            resting: Arc::default(),
        }
    }

    /// Sets the limits of programs that are started from now on.
    pub fn with_limits(self, limits: Limits) -> AgentsAdapter {
        AgentsAdapter { limits, ..self }
    }

    /// Disables control groups.
    pub fn without_cgroups(self) -> AgentsAdapter {
        AgentsAdapter { without_cgroups: true, ..self }
    }

    /// Sets a contact deadline: a program that is started from now on ends when `file` (see
    /// [`crate::leash::note`]) was not written for longer than `most`, even if this process is
    /// gone.
    pub fn with_leash(self, file: PathBuf, most: Duration) -> AgentsAdapter {
        let ms = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
        AgentsAdapter { leash: Some(Leash { file: std::path::absolute(&file).unwrap_or(file), ms }), ..self }
    }

    /// Gives each program an own address for `server`. It lives as long as the program and leads to
    /// the unix socket of the daemon that runs at the time (P13).
    pub fn with_relay(self, server: &str, socket: PathBuf) -> AgentsAdapter {
        let socket = std::path::absolute(&socket).unwrap_or(socket);
        AgentsAdapter { relay: Some(RelayTo { server: server.to_owned(), socket }), ..self }
    }

    /// Returns the mechanism that holds the processes of an attempt together: `cgroup`,
    /// `pid_namespace` or `subreaper`. Returns `None` if its program was never started.
    pub fn containment(&self, attempt: AttemptId) -> Result<Option<&'static str>, AgentError> {
        let dir = self.attempt_dir(attempt);
        let program = dir.program().map_err(|error| words::file("read", &dir.program_file(), error))?;
        Ok(program.map(|it| it.containment.name()))
    }

    /// Sets how long a program may be silent before the sink is notified.
    pub fn with_silence(self, silence: Duration) -> AgentsAdapter {
        AgentsAdapter { silence, ..self }
    }

    /// Reads the records of an attempt's journal from number `from` (the first is 1), without a
    /// limit of bytes.
    pub fn journal(&self, attempt: AttemptId, from: u64, limit: usize) -> Result<Vec<Record>, AgentError> {
        let dir = self.attempt_dir(attempt);
        attend::all_records(&dir, from, limit).map_err(|error| words::file("read the journal in", &dir.0, error))
    }

    /// Runs the session loop of an attempt with this driver, whatever its runtime.
    pub fn attend_with(
        &self,
        attempt: AttemptId,
        desk: &dyn Desk,
        driver: Box<dyn Driver>,
    ) -> Result<Option<Verdict>, AgentError> {
        let bell = Arc::new(Bell::new().map_err(|error| words::kernel("make an eventfd", error))?);
        self.bells().insert(attempt, Arc::clone(&bell));
        let verdict = Attendant::new(self, attempt, desk, driver, &bell).run();
        let mut bells = self.bells();
        if bells.get(&attempt).is_some_and(|it| Arc::ptr_eq(it, &bell)) {
            bells.remove(&attempt);
        }
        verdict
    }

    pub(crate) fn cursors(&self) -> MutexGuard<'_, Vec<Cursor>> {
        self.cursors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a reader's cursor, unless the journal was changed in the meantime.
    pub(crate) fn keep_cursor(&self, cursor: Cursor) {
        let mut cursors = self.cursors();
        if cursor.restarts() != self.restarts() {
            return;
        }
        if cursors.len() >= CURSORS {
            cursors.remove(0);
        }
        cursors.push(cursor);
    }

    pub(crate) fn restarts(&self) -> u64 {
        self.restarts.load(Ordering::SeqCst)
    }

    /// Makes the readers of this attempt's transcript start again.
    pub(crate) fn forget_readers(&self, attempt: AttemptId) {
        let mut cursors = self.cursors();
        self.restarts.fetch_add(1, Ordering::SeqCst);
        cursors.retain(|it| !it.is_of(attempt));
    }

    /// Locks the list of open copies.
    pub(crate) fn copies(&self) -> MutexGuard<'_, Vec<OpenCopy>> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bells(&self) -> MutexGuard<'_, HashMap<AttemptId, Arc<Bell>>> {
        self.bells.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates the driver of an attempt from its files alone, whether the program runs here or
    /// elsewhere.
    pub(crate) fn driver(&self, dir: &RunDir) -> Result<Option<Box<dyn Driver>>, AgentError> {
        let launch = dir.launch().map_err(|error| words::file("read", &dir.launch_file(), error))?;
        let attended = match launch {
            Some(launch) => launch.attended,
            None => {
                dir.copy().map_err(|error| words::file("read", &dir.copy_file(), error))?.and_then(|it| it.attended)
            }
        };
        Ok(attended.map(|it| drivers::of(&it.setup)))
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
        environment: &Environment,
        stdin: Stdio,
    ) -> Result<Child, AgentError> {
        let log = append(&dir.shim_log()).map_err(|error| words::file("open", &dir.shim_log(), error))?;
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
            .map_err(|error| words::shim_not_spawned(&self.regatta_exe, error))
    }

    /// Spawns a shim that outlives this process, and waits until it has begun. The caller holds the
    /// directory's start lock. `input` is the shim's standard input: the listener of its relay, if
    /// it has one.
    pub(crate) fn raise_shim(&self, dir: &RunDir, environment: &Environment, input: Stdio) -> Result<(), AgentError> {
        let mut shim = self.spawn_shim(dir, environment, input)?;
        let report = shim.stdout.take();
        let heard = report.map(|it| hear(it, Instant::now() + START_PATIENCE));
        let ended_as = reap_later(shim, heard == Some(Heard::End));
        match heard {
            Some(Heard::Ready) => Ok(()),
            // A shim of an interrupted start performs this launch. That is equally good.
            Some(Heard::End) if ended_as == Some(i32::from(NOT_MINE)) => {
                let deadline = Instant::now() + START_PATIENCE;
                while !dir.exit_file().exists() && !dir.shim_file().exists() {
                    if Instant::now() >= deadline {
                        return Err(words::shim_silent(&dir.shim_log(), "of an earlier start hung"));
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
                Ok(())
            }
            Some(Heard::End) if dir.exit_file().exists() => Ok(()),
            Some(Heard::End) => Err(words::shim_silent(&dir.shim_log(), "ended")),
            Some(Heard::Nothing) | None => Err(words::shim_silent(&dir.shim_log(), "hung")),
        }
    }

    /// Returns the phase of a launch. If another thread is starting it, waits for that start.
    pub(crate) fn settled(&self, dir: &RunDir) -> Result<Phase, AgentError> {
        match phase(dir)? {
            Phase::Untouched if dir.launch_file().exists() => {
                let _start = lock(&dir.start_lock()).map_err(|error| words::file("lock", &dir.start_lock(), error))?;
                phase(dir)
            }
            phase => Ok(phase),
        }
    }

    /// Ends the processes of a vanished shim and records the loss. Returns the recorded exit.
    pub(crate) fn conclude(&self, dir: &RunDir, grace: Duration) -> Result<Exit, AgentError> {
        let tree = left_tree(dir)?;
        let exit = finish(dir, &tree, grace, &Exit::Lost)?;
        if let Some(cgroup) = tree.cgroup.get() {
            cgroup.remove();
        }
        Ok(exit)
    }

    /// Prevents that a shim ever performs this launch. Returns `None` if one has already begun.
    fn forbid(&self, dir: &RunDir) -> Result<Option<Exit>, AgentError> {
        RunDir::create(dir.0.clone()).map_err(|error| words::file("create", &dir.0, error))?;
        let _start = lock(&dir.start_lock()).map_err(|error| words::file("lock", &dir.start_lock(), error))?;
        // A shim of a dead daemon may still be starting, so the holder of the shim lock decides.
        let deadline = Instant::now() + OUTSIDE_PATIENCE;
        loop {
            let shim = try_lock(&dir.shim_lock()).map_err(|error| words::file("lock", &dir.shim_lock(), error))?;
            if dir.shim_file().exists() {
                return Ok(None);
            }
            if shim.is_some() {
                let exit = Exit::NotStarted(words::STOPPED_FIRST.to_owned());
                return dir.record_exit(&exit).map(Some).map_err(|error| words::file("write", &dir.exit_file(), error));
            }
            if Instant::now() >= deadline {
                return Err(words::busy(&dir.shim_lock()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends a launch: asks its shim to stop the tree, and ends the tree from outside if the shim
    /// does not react.
    pub(crate) fn end(&self, dir: &RunDir, grace: Duration) -> Result<Exit, AgentError> {
        let (identity, shim) = match phase(dir)? {
            Phase::Ended(exit) => return Ok(exit),
            Phase::Vanished => return self.conclude(dir, grace),
            Phase::Untouched => return Err(words::busy(&dir.shim_lock())),
            Phase::Alive(identity, shim) => (identity, shim),
        };
        // A send to a shim that has just ended fails. The wait below detects that the shim is gone.
        drop(tell(dir, &socket::Command::stop(grace)));
        let ended =
            shim.wait_until(Instant::now() + grace + SHIM_PATIENCE).map_err(|error| words::kernel("wait", error))?;
        if !ended {
            end_over_the_head_of(&shim, identity, dir)?;
        }
        self.after_shim(dir, Duration::ZERO)
    }

    /// Returns the exit of a shim that has ended, and records a loss if the shim recorded nothing.
    pub(crate) fn after_shim(&self, dir: &RunDir, grace: Duration) -> Result<Exit, AgentError> {
        match read_exit(dir)? {
            Some(exit) => Ok(exit),
            None => self.conclude(dir, grace),
        }
    }

    /// Waits until the attempt's program has ended and no process of the attempt is left. Returns
    /// `None` after `patience`.
    pub fn wait(&self, attempt: AttemptId, patience: Duration) -> Result<Option<Exit>, AgentError> {
        let dir = self.attempt_dir(attempt);
        match self.settled(&dir)? {
            Phase::Untouched => Err(words::never_started(attempt)),
            Phase::Ended(exit) => Ok(Some(exit)),
            Phase::Vanished => self.conclude(&dir, Duration::ZERO).map(Some),
            Phase::Alive(_, shim) => {
                let now = Instant::now();
                let deadline = now.checked_add(patience).unwrap_or(now + Duration::from_secs(u64::from(u32::MAX)));
                if shim.wait_until(deadline).map_err(|error| words::kernel("wait", error))? {
                    self.after_shim(&dir, Duration::ZERO).map(Some)
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

    fn problems(&self, runtime: &Runtime, profile: &Profile) -> Vec<(Problem, AgentError)> {
        crate::resolve::problems(runtime, profile, &Machine::here())
    }

    fn resolve(&self, wanted: &Wanted) -> Resolved {
        crate::resolve::resolve(wanted, &Machine::here())
    }

    fn start(&self, launch: &Launch) -> Result<Started, AgentError> {
        let path = self.attempt_path(launch.attempt);
        let dir = RunDir::create(path.clone()).map_err(|error| words::file("create", &path, error))?;
        let _start = lock(&dir.start_lock()).map_err(|error| words::file("lock", &dir.start_lock(), error))?;
        if dir.exit_file().exists() || dir.shim_file().exists() {
            return Ok(Started::default());
        }
        if dir.copy_file().exists() {
            return Err(words::runs_elsewhere(launch.attempt));
        }
        let Some(relay) = self.relay.as_ref().filter(|_| launch.mcp.is_some()) else {
            let (environment, started) = launch::write(self, &dir, launch, None)?;
            return self.raise_shim(&dir, &environment, Stdio::null()).map(|()| started);
        };
        let prepared = relay.prepare(launch).map_err(|error| words::kernel("listen on loopback", error))?;
        let (listener, record, launch) = prepared;
        let (environment, started) = launch::write(self, &dir, &launch, Some(record))?;
        self.raise_shim(&dir, &environment, OwnedFd::from(listener).into()).map(|()| started)
    }

    fn state(&self, attempt: AttemptId) -> Result<ProcessState, AgentError> {
        let dir = self.attempt_dir(attempt);
        Ok(match self.settled(&dir)? {
            Phase::Untouched => ProcessState::NotStarted,
            Phase::Alive(identity, _) => ProcessState::Running(identity),
            Phase::Ended(exit) => ProcessState::Exited(exit),
            // An attempt that is reported as ended must have no process left, so the remaining
            // processes are ended first.
            Phase::Vanished => ProcessState::Exited(self.conclude(&dir, Duration::ZERO)?),
        })
    }

    fn is_alive(&self, attempt: AttemptId) -> Result<bool, AgentError> {
        let dir = self.attempt_dir(attempt);
        match phase(&dir)? {
            Phase::Alive(..) => Ok(true),
            Phase::Ended(_) => Ok(false),
            Phase::Vanished => {
                let tree = left_tree(&dir)?;
                tree.living().map(|found| !found.is_empty()).map_err(|error| words::kernel("list the processes", error))
            }
            // A start that is under way holds the lock until its shim has begun.
            Phase::Untouched if dir.launch_file().exists() => {
                let lock = dir.start_lock();
                try_lock(&lock).map(|held| held.is_none()).map_err(|error| words::file("lock", &lock, error))
            }
            Phase::Untouched => Ok(false),
        }
    }

    fn attend(&self, attempt: AttemptId, desk: &dyn Desk) -> Result<Option<Verdict>, AgentError> {
        match self.driver(&self.attempt_dir(attempt))? {
            Some(driver) => self.attend_with(attempt, desk, driver),
            // A power cut left a torn launch record, so only the exit is known.
            None => self.wait(attempt, Duration::MAX).map(|exit| exit.map(attend::unknown)),
        }
    }

    fn nudge(&self, attempt: AttemptId) {
        if let Some(bell) = self.bells().get(&attempt) {
            bell.ring();
        }
    }

    fn stop(&self, attempt: AttemptId, grace: Duration) -> Result<Exit, AgentError> {
        let dir = self.attempt_dir(attempt);
        match self.settled(&dir)? {
            Phase::Ended(exit) => return Ok(exit),
            // No program of this attempt runs here, and the state of the remote program is unknown
            // here (P10).
            Phase::Untouched if dir.copy_file().exists() => return Err(words::runs_elsewhere(attempt)),
            Phase::Untouched => {
                if let Some(exit) = self.forbid(&dir)? {
                    return Ok(exit);
                }
            }
            Phase::Alive(..) | Phase::Vanished => {}
        }
        self.end(&dir, grace.min(LONGEST_GRACE))
    }

    fn check(&self, check: &Check) -> Result<CheckResult, AgentError> {
        match &check.once {
            Some(name) => {
                once::run(self, name, (check, None)).map(|it| it.expect("a check without a condition is always needed"))
            }
            None => check::run(self, check, None)?.ok_or_else(words::resting),
        }
    }

    fn end_commands(&self, attempt: AttemptId) -> Result<(), AgentError> {
        once::end_all(self, attempt)
    }

    fn break_off_command(&self, name: &str) -> Result<(), AgentError> {
        once::break_off(self, name)
    }

    fn forget_command(&self, name: &str) -> Result<(), AgentError> {
        once::forget(self, name)
    }

    fn rest(&self) {
        self.resting.store(true, Ordering::SeqCst);
    }

    fn check_while(&self, check: &Check, wanted: &dyn Fn() -> bool) -> Result<Option<CheckResult>, AgentError> {
        match &check.once {
            Some(name) => once::run(self, name, (check, Some(wanted))),
            None => check::run(self, check, Some(wanted)),
        }
    }

    fn transcript(&self, attempt: AttemptId, from: u64, limit: usize) -> Result<Vec<Line>, AgentError> {
        attend::transcript(self, attempt, from, limit)
    }

    fn tail(&self, attempt: AttemptId, bytes: usize) -> Result<String, AgentError> {
        let dir = self.attempt_dir(attempt);
        journal::tail(&dir.0, bytes).map_err(|error| words::file("read the journal in", &dir.0, error))
    }

    fn last_word(&self, attempt: AttemptId) -> Option<u64> {
        journal::written(&self.attempt_dir(attempt).0)
    }

    fn result_file(&self, attempt: AttemptId) -> PathBuf {
        self.attempt_dir(attempt).result_file()
    }

    fn records(&self, attempt: AttemptId, from: u64, limit: usize) -> Result<Vec<Record>, AgentError> {
        attend::records(self, attempt, from, limit)
    }

    fn heading(&self, attempt: AttemptId) -> Result<Option<String>, AgentError> {
        self.heading_of(attempt)
    }

    fn copy_heading(&self, attempt: AttemptId, heading: &str) -> Result<(), AgentError> {
        self.keep_heading(attempt, heading)
    }

    fn copied(&self, attempt: AttemptId) -> Result<u64, AgentError> {
        self.last_copied(attempt)
    }

    fn copy_in(&self, attempt: AttemptId, records: &[Record]) -> Result<u64, AgentError> {
        self.add_to_copy(attempt, records)
    }
}

fn read_exit(dir: &RunDir) -> Result<Option<Exit>, AgentError> {
    dir.exit().map_err(|error| words::file("read", &dir.exit_file(), error))
}

/// Returns the tree of a vanished shim, in order to find its remaining processes.
fn left_tree(dir: &RunDir) -> Result<Tree, AgentError> {
    let launch = dir.launch().map_err(|error| words::file("read", &dir.launch_file(), error))?;
    let program = dir.program().ok().flatten().map(|it| it.identity);
    // The group's name identifies the launch as well as the mark does. It belongs to no other
    // launch and is gone after a reboot.
    let cgroup = dir.shim().ok().flatten().and_then(|it| it.cgroup);
    let tree = Tree { shim: None, program, mark: launch.map(|it| it.mark), cgroup: Arc::default() };
    if let Some(cgroup) = cgroup {
        let _first = tree.cgroup.set(cgroup);
    }
    Ok(tree)
}

/// Reads the phase of a launch from its files and the process table.
pub(crate) fn phase(dir: &RunDir) -> Result<Phase, AgentError> {
    if let Some(exit) = read_exit(dir)? {
        see_off(dir, SHIM_PATIENCE)?;
        return Ok(Phase::Ended(exit));
    }
    match read_json::<ProcessIdentity>(&dir.shim_file()) {
        Ok(None) => return Ok(Phase::Untouched),
        Ok(Some(identity)) => {
            let handle = Handle::of(&identity).map_err(|error| words::kernel("open a process", error))?;
            if let Some(handle) = handle {
                return Ok(Phase::Alive(identity, handle));
            }
        }
        // The record was torn by a power cut. A shim had begun, but no process survives a power
        // cut.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
        Err(error) => return Err(words::file("read", &dir.shim_file(), error)),
    }
    // The shim may have written its exit record after the first look.
    Ok(read_exit(dir)?.map_or(Phase::Vanished, Phase::Ended))
}

/// Waits for a shim with an exit record to be gone. The record is the last thing that a shim
/// writes, and a launch must not be reported as ended while its shim lives (P3, P10). A shim that
/// hangs is ignored after `patience`, because no process of its launch is left.
fn see_off(dir: &RunDir, patience: Duration) -> Result<(), AgentError> {
    let Ok(Some(identity)) = read_json::<ProcessIdentity>(&dir.shim_file()) else { return Ok(()) };
    match Handle::of(&identity).map_err(|error| words::kernel("open a process", error))? {
        Some(shim) => {
            shim.wait_until(Instant::now() + patience).map(drop).map_err(|error| words::kernel("wait", error))
        }
        None => Ok(()),
    }
}

/// Ends the tree of a shim that is stopped or stuck, and then the shim.
pub(crate) fn end_over_the_head_of(shim: &Handle, identity: ProcessIdentity, dir: &RunDir) -> Result<(), AgentError> {
    // The tree is ended first, because escaped processes cannot be found without their subreaper.
    let tree = Tree { shim: Some(identity), ..Tree::default() };
    let left = tree.end(Duration::ZERO, Instant::now() + OUTSIDE_PATIENCE / 2);
    let left = left.map_err(|error| words::kernel("list the processes", error))?;
    if !left.is_empty() {
        return Err(words::still_alive(&left.iter().map(|it| it.pid).collect::<Vec<_>>()));
    }
    shim.signal(Signal::KILL);
    match shim.wait_until(Instant::now() + OUTSIDE_PATIENCE / 2) {
        Ok(true) => Ok(()),
        Ok(false) => Err(words::busy(&dir.shim_lock())),
        Err(error) => Err(words::kernel("wait", error)),
    }
}

/// Ends a tree whose shim is gone and records the exit. Of several callers only the first records
/// an exit.
pub(crate) fn finish(dir: &RunDir, tree: &Tree, grace: Duration, exit: &Exit) -> Result<Exit, AgentError> {
    let deadline = Instant::now() + grace + OUTSIDE_PATIENCE;
    let lock = lock_until(&dir.shim_lock(), deadline).map_err(|error| words::file("lock", &dir.shim_lock(), error))?;
    let Some(_lock) = lock else { return Err(words::busy(&dir.shim_lock())) };
    if let Some(exit) = read_exit(dir)? {
        return Ok(exit);
    }
    let left = tree.end(grace, deadline).map_err(|error| words::kernel("list the processes", error))?;
    if !left.is_empty() {
        return Err(words::still_alive(&left.iter().map(|it| it.pid).collect::<Vec<_>>()));
    }
    dir.record_exit(exit).map_err(|error| words::file("write", &dir.exit_file(), error))
}

/// Sends a command to a shim without waiting for the reply.
fn tell(dir: &RunDir, command: &socket::Command) -> io::Result<()> {
    socket::connect(dir)?.write_all(&command.to_line()?)
}

#[derive(Debug, PartialEq, Eq)]
enum Heard {
    Ready,
    End,
    Nothing,
}

fn hear(mut report: ChildStdout, deadline: Instant) -> Heard {
    match ready_until(&mut [PollFd::new(&report, PollFlags::IN)], Some(deadline)) {
        Ok(true) => {
            let mut word = [0; READY.len()];
            if report.read_exact(&mut word).is_ok() && word == READY { Heard::Ready } else { Heard::End }
        }
        Ok(false) | Err(_) => Heard::Nothing,
    }
}

/// Reaps a shim when it ends, so that it never stays a zombie (P7). Returns its exit code if the
/// caller knows that it has ended.
pub(crate) fn reap_later(mut shim: Child, ended: bool) -> Option<i32> {
    if ended {
        return shim.wait().ok().and_then(|it| it.code());
    }
    reaper::reap(shim);
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Process;
    use crate::rundir::write_atomic;

    /// P3, P10: a launch with an exit record has ended only when its shim is gone, or when the shim
    /// hangs for too long.
    #[test]
    fn p3_a_launch_has_ended_only_when_its_shim_is_gone() {
        let place = tempfile::tempdir().unwrap();
        let dir = RunDir::create(place.path().join("A1")).unwrap();
        let mut shim = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let identity = Process::read(shim.id()).unwrap().identity().unwrap();
        write_atomic(&dir.shim_file(), &serde_json::to_vec(&identity).unwrap()).unwrap();
        dir.record_exit(&Exit::Code(0)).unwrap();
        // A shim that hangs is ignored.
        see_off(&dir, Duration::ZERO).unwrap();
        assert!(matches!(shim.try_wait(), Ok(None)));
        assert!(matches!(phase(&dir), Ok(Phase::Ended(Exit::Code(0)))));
        std::thread::scope(|scope| {
            let seen = scope.spawn(|| see_off(&dir, Duration::from_secs(300)).unwrap());
            drop(shim.stdin.take());
            seen.join().unwrap();
        });
        let gone = Process::read(shim.id()).is_none_or(|it| it.zombie);
        shim.wait().unwrap();
        assert!(gone, "the launch was reported as ended while its shim was alive");
    }
}
