//! The supervisor of one launch: a process of its own that outlives the daemon.
//!
//! The main thread spawns the program and then only reaps. It is a subreaper, so whatever the program
//! starts, however it detaches, falls back to it: when it has no child left, no process of the launch
//! is left, and only then is the exit recorded. A second thread, the ender, waits for `stop` on the
//! control fifo and does the signalling. There is no signal handler: the fifo does what one would do,
//! without unsafe code, and a signal to the shim itself is the same as its death, which the daemon's
//! side must survive anyway.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, PipeReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use regatta_engine::ports::agents::Exit;
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{CWD, Mode as Permissions, OFlags};
use rustix::io::Errno;
use rustix::process::{WaitOptions, WaitStatus, getpid, set_child_subreaper, setsid, wait};

use crate::process::{Process, ready_until};
use crate::rundir::{LaunchRecord, Mode, RunDir, append, try_lock, write_atomic};
use crate::tree::{Asked, Tree};
use crate::words;

/// What the shim's standard output says once the program runs or cannot run.
pub(crate) const READY: &[u8] = b"ready\n";

/// The shim's own exit code when another has this launch, or had it.
pub(crate) const NOT_MINE: u8 = 3;

/// How long processes that the program left behind may take to end by themselves.
const LEFTOVER_GRACE: Duration = Duration::from_millis(500);

/// How long a check may take to end by itself when its daemon has died.
const ORPHAN_GRACE: Duration = Duration::from_secs(1);

/// How often newcomers among the processes left behind are looked for.
const ASK_ROUND: Duration = Duration::from_millis(100);

/// How often the survivors of a kill are killed again.
const KILL_ROUND: Duration = Duration::from_millis(20);

/// Supervises the launch that `dir` describes, to its end.
pub fn main(dir: &Path) -> ExitCode {
    match supervise(&RunDir(dir.to_owned())) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(NOT_MINE),
        Err(error) => {
            // Standard error is the shim's own log.
            drop(writeln!(io::stderr(), "regatta shim {}: {error}", dir.display()));
            ExitCode::FAILURE
        }
    }
}

fn supervise(dir: &RunDir) -> io::Result<bool> {
    let launch = dir.launch()?.ok_or_else(|| io::Error::other("there is no launch.json"))?;
    let Some(_lock) = try_lock(&dir.shim_lock())? else { return Ok(false) };
    // A shim that has begun may have started the program: from then on nobody starts it again.
    if dir.exit_file().exists() || dir.shim_file().exists() {
        return Ok(false);
    }
    // Fails only for a group leader, as when started by hand from a shell: then it has its own group.
    let _ = setsid();
    set_child_subreaper(Some(getpid()))?;
    let control = open_control(dir, launch.mode)?;
    let me = Process::read(std::process::id()).ok_or_else(|| io::Error::other("/proc is not mounted"))?.identity()?;
    write_atomic(&dir.shim_file(), &serde_json::to_vec(&me)?)?;

    // Ready before the program is, so that nothing that can fail is left between its start and its reaping.
    let (wakeup, waker) = io::pipe()?;
    let tree = Tree { shim: Some(me), ..Tree::default() };
    let orphaned = Arc::new(AtomicBool::new(false));
    let ender = Ender { control, control_open: true, wakeup, tree, orphaned: Arc::clone(&orphaned) };
    std::thread::Builder::new().name("ender".to_owned()).stack_size(256 * 1024).spawn(move || ender.run())?;

    let program = match spawn(dir, &launch) {
        Ok(pid) => pid,
        Err(reason) => {
            dir.record_exit(&Exit::NotStarted(reason))?;
            report_ready(launch.mode);
            return Ok(true);
        }
    };
    report_ready(launch.mode);
    // Best effort: the mark finds the program too.
    if let Some(identity) = Process::read(program).and_then(|it| it.identity().ok()) {
        drop(serde_json::to_vec(&identity).map(|json| write_atomic(&dir.program_file(), &json)));
    }

    let exit = reap_all(program, waker)?;
    // Nothing descends from us any more; the mark may still find someone who was adopted elsewhere.
    let strays = Tree { mark: Some(launch.mark), ..Tree::default() };
    if strays.living().is_ok_and(|it| !it.is_empty()) {
        drop(strays.end(Duration::ZERO, Instant::now() + Duration::from_secs(2)));
    }
    dir.record_exit(&exit)?;
    if orphaned.load(Ordering::Acquire) {
        fs::remove_dir_all(&dir.0)?;
    }
    Ok(true)
}

fn report_ready(mode: Mode) {
    if mode == Mode::Attempt {
        // Nobody listens when the daemon died in the meantime; it will read shim.json instead.
        drop(io::stdout().write_all(READY).and_then(|()| io::stdout().flush()));
    }
}

/// Opens what commands come from: a fifo for an attempt, our standard input for a check.
fn open_control(dir: &RunDir, mode: Mode) -> io::Result<OwnedFd> {
    if mode == Mode::Check {
        return io::stdin().as_fd().try_clone_to_owned();
    }
    match rustix::fs::mkfifoat(CWD, dir.control(), Permissions::RUSR | Permissions::WUSR) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    // Open for writing too, so that the last writer's leaving is not an end of file.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    Ok(OpenOptions::new().read(true).write(true).custom_flags(flags).open(dir.control())?.into())
}

/// Starts the program; says in words why it could not be.
fn spawn(dir: &RunDir, launch: &LaunchRecord) -> Result<u32, String> {
    let (name, arguments) = launch.argv.split_first().ok_or(words::NO_PROGRAM)?;
    if !launch.dir.is_dir() {
        return Err(words::no_directory(&launch.dir));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let program = find_program(name, &path, &launch.dir)?;
    let streams = || -> io::Result<(Stdio, Stdio, Stdio)> {
        Ok(match launch.mode {
            // Files, not pipes: a dead daemon neither blocks the program nor loses a byte (P2).
            Mode::Attempt => {
                let log = append(&dir.out_log())?;
                (File::open(dir.prompt_file())?.into(), log.try_clone()?.into(), log.into())
            }
            Mode::Check => {
                let output = io::stdout().as_fd().try_clone_to_owned()?;
                (Stdio::null(), output.try_clone()?.into(), output.into())
            }
        })
    };
    let (input, output, errors) = streams().map_err(|error| format!("Its files could not be opened: {error}."))?;
    let child = Command::new(&program)
        .arg0(name)
        .args(arguments)
        .current_dir(&launch.dir)
        .process_group(0)
        .stdin(input)
        .stdout(output)
        .stderr(errors)
        .spawn()
        .map_err(|error| words::not_executable(&program, &error))?;
    // The handle is dropped without a wait: the reaping loop below is the only one that waits.
    Ok(child.id())
}

/// Finds the program as a shell in `dir` would.
fn find_program(name: &str, path: &OsStr, dir: &Path) -> Result<PathBuf, String> {
    if name.is_empty() {
        return Err(words::NO_PROGRAM.to_owned());
    }
    if name.contains('/') {
        let program = dir.join(name);
        return if program.exists() { Ok(program) } else { Err(words::not_there(&program)) };
    }
    let candidates = std::env::split_paths(path).map(|it| dir.join(it).join(name)).filter(|it| it.is_file());
    let mut denied = None;
    for program in candidates {
        if rustix::fs::access(&program, rustix::fs::Access::EXEC_OK).is_ok() {
            return Ok(program);
        }
        denied.get_or_insert(program);
    }
    match denied {
        Some(program) => Err(words::not_executable(&program, &io::ErrorKind::PermissionDenied.into())),
        None => Err(words::not_on_path(name, &path.to_string_lossy())),
    }
}

/// Reaps children until none is left (P3, P7); returns how the program ended.
fn reap_all(program: u32, mut waker: impl Write) -> io::Result<Exit> {
    let mut exit = Exit::Lost;
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid.as_raw_nonzero().get().unsigned_abs() == program => {
                exit = how(status);
                // Whoever is still there was left behind.
                drop(waker.write_all(b"!"));
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::CHILD) => return Ok(exit),
            Err(error) => return Err(error.into()),
        }
    }
}

fn how(status: WaitStatus) -> Exit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Exit::Code(code),
        (_, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Lost,
    }
}

/// The thread that ends the tree when it is told to, or when the program has left someone behind.
struct Ender {
    control: OwnedFd,
    control_open: bool,
    wakeup: PipeReader,
    tree: Tree,
    /// The daemon of a check has died, so nobody will clear its directory away.
    orphaned: Arc<AtomicBool>,
}

impl Ender {
    /// Runs until the main thread, having reaped everybody, ends the process.
    fn run(mut self) {
        let mut kill_at: Option<Instant> = None;
        let mut program_ended = false;
        let mut asked = Asked::new();
        loop {
            let next = kill_at.map(|it| if program_ended { it.min(Instant::now() + ASK_ROUND) } else { it });
            let Ok((command, wakeup)) = self.next_event(next, program_ended) else { return };
            program_ended |= wakeup;
            // Under a stop the program's children keep the grace that was given.
            let leftover = (wakeup && kill_at.is_none()).then_some(LEFTOVER_GRACE);
            // Once the program has ended, those born since are asked too: nobody else will tell them.
            // Before, they may be the program's own way to clean up.
            if program_ended || command.is_some() {
                drop(self.tree.ask(&mut asked));
            }
            if let Some(grace) = command.or(leftover) {
                let after = Instant::now() + grace;
                kill_at = Some(kill_at.map_or(after, |it| it.min(after)));
            }
            if kill_at.is_some_and(|it| it <= Instant::now()) {
                drop(self.tree.kill());
                kill_at = Some(Instant::now() + KILL_ROUND);
            }
        }
    }

    /// Waits for a command, the program's end or the time to kill.
    fn next_event(&mut self, until: Option<Instant>, program_ended: bool) -> io::Result<(Option<Duration>, bool)> {
        // An end of file would be reported for ever, whatever is asked for: those are left out.
        let control = self.control_open.then(|| PollFd::new(&self.control, PollFlags::IN));
        let wakeup = (!program_ended).then(|| PollFd::new(&self.wakeup, PollFlags::IN));
        let watched = (control.is_some(), wakeup.is_some());
        let mut fds: Vec<PollFd<'_>> = control.into_iter().chain(wakeup).collect();
        ready_until(&mut fds, until)?;
        let mut events = fds.iter().map(|it| !it.revents().is_empty()).collect::<Vec<_>>().into_iter();
        let control = watched.0 && events.next() == Some(true);
        let wakeup = watched.1 && events.next() == Some(true);
        let command = if control { self.read_command() } else { None };
        Ok((command, wakeup && self.wakeup.read(&mut [0; 8]).is_ok()))
    }

    fn read_command(&mut self) -> Option<Duration> {
        let mut buffer = [0; 512];
        match rustix::io::read(&self.control, &mut buffer) {
            Ok(0) => {
                self.control_open = false;
                self.orphaned.store(true, Ordering::Release);
                Some(ORPHAN_GRACE)
            }
            // Several may have come at once: the most impatient counts. Anything else is not for us.
            Ok(length) => String::from_utf8_lossy(&buffer[..length]).lines().filter_map(parse_stop).min(),
            Err(_) => None,
        }
    }
}

/// Writes the command that asks a shim to end its tree.
pub(crate) fn stop_command(grace: Duration) -> String {
    format!("stop {}\n", u64::try_from(grace.as_millis()).unwrap_or(u64::MAX))
}

fn parse_stop(line: &str) -> Option<Duration> {
    // The cap keeps a silly number from overflowing the clock.
    let grace = line.strip_prefix("stop ")?.trim().parse().map(Duration::from_millis).ok()?;
    Some(grace.min(Duration::from_secs(24 * 60 * 60)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_command_is_read_as_it_was_written() {
        let grace = Duration::from_millis(1500);
        assert_eq!(parse_stop(stop_command(grace).trim_end()), Some(grace));
        assert_eq!(parse_stop("stop"), None);
        assert_eq!(parse_stop("stop -1"), None);
        assert_eq!(parse_stop(&stop_command(Duration::MAX)), Some(Duration::from_secs(86_400)));
    }
}
