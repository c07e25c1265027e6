//! The shim: the supervisor of one started program, a separate process that continues when the
//! daemon ends.
//!
//! The main thread starts the program and then only collects the exit status of ended processes.
//! The shim is a subreaper, so the kernel makes the shim the parent of every process of the program
//! whose own parent has ended, however the process detaches. When the shim has no child left, no
//! process of the launch is left. Two more threads do the rest. The journal writer reads and writes
//! the program's pipes and records them in the journal. The control socket thread receives commands
//! and sends signals. When all children have ended, the journal writer reads the rest of the pipes,
//! and only then is the exit recorded.
//!
//! There is no signal handler. A signal to the shim itself has the same effect as its death, which
//! the daemon must handle anyway.
//!
//! Every running agent has a shim, so a shim is small: three threads with small stacks, no async
//! code, and no line stays in memory after it is written.

mod control_socket; // the control socket thread
mod journal_writer; // the journal writer
pub(crate) mod output_limits; // limits of lines and rates
mod paused_start; // a program that waits for the shim before it starts
mod state; // the state that the threads share
mod terminate; // ends the process tree
pub(crate) mod tool_output; // stores repeated output of tool calls once

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use regatta_engine::ports::agents::Exit;
use rustix::io::{Errno, ioctl_fionbio};
use rustix::process::{WaitOptions, WaitStatus, getpid, set_child_subreaper, setsid, wait};
use rustix::thread::disable_transparent_huge_pages;

pub use output_limits::ShimLimits;
pub(crate) use state::WakeupFd;

use crate::cgroup::{Cgroup, Containment};
use crate::contact_deadline;
use crate::egress::EgressGate;
use crate::environment::SHIM_ALLOCATOR;
use crate::process::Process;
use crate::process_tree::ProcessTree;
use crate::redact::Redactor;
use crate::run_dir::{
    InputSource, LaunchKind, LaunchRecord, ProgramRecord, RunDir, ShimRecord, try_lock,
    write_atomic,
};
use crate::{errors, relay, shim_protocol};
use control_socket::{CommandSource, ControlSocket};
use journal_writer::{JournalThread, LaunchSecrets, Pipes};
use paused_start::PausedProgram;
use state::ShimState;
use terminate::TreeTerminator;

/// The line on the supervisor's standard output with which it reports that the program was started
/// or cannot be started.
pub(crate) const READY_LINE: &[u8] = b"ready\n";

/// The exit code of a supervisor process that did nothing, because another supervisor performs or
/// has performed the same launch (start of a program).
pub(crate) const ALREADY_STARTED_EXIT_CODE: u8 = 3;

/// Starts the program that the run directory `dir` describes and supervises it to its end.
pub fn main(dir: &Path) -> ExitCode {
    match supervise(&RunDir(dir.to_owned())) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(ALREADY_STARTED_EXIT_CODE),
        Err(error) => {
            // Write to standard error, because the daemon has redirected it to the supervisor's log
            // file.
            drop(writeln!(
                io::stderr(),
                "regatta shim {}: {error}",
                dir.display()
            ));
            ExitCode::FAILURE
        }
    }
}

fn supervise(dir: &RunDir) -> io::Result<bool> {
    let launch = dir.read_launch()?.ok_or_else(|| {
        io::Error::other("the run directory has no launch.json, which describes the program")
    })?;
    let Some(_lock) = try_lock(&dir.shim_lock())? else {
        return Ok(false);
    };
    // Do nothing if another supervisor process has begun, because it may have started the program,
    // which must not be started twice.
    if dir.exit_file().exists() || dir.shim_file().exists() {
        return Ok(false);
    }
    // Ignore an error, because an error occurs only if the supervisor process already leads a
    // process group, for example when a person starts it from a shell.
    let _ = setsid();
    set_child_subreaper(Some(getpid()))?;
    let is_orphaned = Arc::new(AtomicBool::new(false));
    let source = match launch.mode {
        LaunchKind::Attempt => CommandSource::Socket(shim_protocol::bind(dir)?),
        LaunchKind::Check => CommandSource::StandardInput {
            input: Some(io::stdin().as_fd().try_clone_to_owned()?),
            is_orphaned: Arc::clone(&is_orphaned),
        },
    };
    if let Some(relay) = launch.relay.clone() {
        // Continue if the relay (the program's connection to the daemon) cannot be started, because
        // the program can still work without Regatta's tools.
        log_failure(
            "listen for the program's calls to the daemon, so the program has no Regatta tools",
            relay::serve(relay),
        );
    }
    let identity = Process::read(std::process::id())
        .ok_or_else(|| {
            io::Error::other(
                "the supervisor process does not find itself in /proc; is /proc mounted?",
            )
        })?
        .identity()?;
    let cgroup = if launch.without_cgroup {
        None
    } else {
        Cgroup::create(&launch.mark)
    };
    let record = ShimRecord {
        identity: identity.clone(),
        cgroup: cgroup.clone(),
    };
    // Writing to the disk, creating the control group and setting up the sandbox take some
    // milliseconds each. Start a program that waits inside its sandbox before the launch is written
    // to the disk, and any other program after that. If the supervisor process fails before it lets
    // the waiting program continue, that program never starts.
    let (pipe_sender, pipes) = mpsc::channel();
    let paused = match (&launch.egress_routes, launch.waits_for_shim) {
        (None, false) => None,
        (routes, _) => {
            let gate = EgressGate::open(&dir.path("tmp"), routes.clone().unwrap_or_default())?;
            Some(
                spawn_program(dir, &launch, &pipe_sender)
                    .map(|program| (gate, PausedProgram::new(program, cgroup.clone()))),
            )
        }
    };
    let entered = cgroup
        .clone()
        .filter(|_| paused.is_none())
        .map(|cgroup| spawn_thread("cgroup", move || cgroup.enter()));
    let entered = entered.transpose()?;
    write_atomic(&dir.shim_file(), &serde_json::to_vec(&record)?)?;

    // Prepare everything that can fail before the program starts, so that the supervisor process is
    // sure to collect the program's exit status.
    let state = Arc::new(ShimState::new(
        launch.limits.input_bytes,
        launch.input == InputSource::Prompt,
    )?);
    let own_identity = identity.clone();
    let tree = ProcessTree {
        shim: Some(identity),
        ..ProcessTree::default()
    };
    let (tree_cgroup, terminator) = (Arc::clone(&tree.cgroup), TreeTerminator::new(tree));
    let control_socket = ControlSocket {
        source,
        shared: Arc::clone(&state),
        terminator,
        clients: vec![],
    };
    spawn_thread("control", move || control_socket.run())?;
    let journal_thread =
        JournalThread::new(dir, &launch, read_secrets(&launch), Arc::clone(&state));
    let journal_thread = spawn_thread("journal", move || journal_thread.run(&pipes))?;

    let started = match paused {
        Some(Ok((gate, paused))) => {
            let (program, dir) = (paused.program, dir.clone());
            let (state, tree_cgroup) = (Arc::clone(&state), Arc::clone(&tree_cgroup));
            spawn_thread("gate", move || {
                if let Some(containment) = paused.let_continue(gate, &state, &tree_cgroup) {
                    record_program(&dir, program, containment);
                }
            })?;
            Ok((program, None))
        }
        Some(Err(reason)) => Err(reason),
        None => {
            let stay = entered
                .and_then(|handle| handle.join().ok())
                .and_then(|entered| {
                    log_failure(
                        "enter the program's control group, so the program is supervised \
                        without it",
                        entered,
                    )
                });
            let started = spawn_program(dir, &launch, &pipe_sender);
            let has_left = stay.and_then(|stay| {
                log_failure(
                    "leave the program's control group, so the program is supervised without it",
                    stay.leave(),
                )
            });
            if let (Ok(_), Some(()), Some(cgroup)) = (&started, has_left, &cgroup) {
                let _first = tree_cgroup.set(cgroup.clone());
            }
            let containment = if has_left.is_some() {
                Containment::Cgroup
            } else {
                Containment::Subreaper
            };
            started.map(|program| (program, Some(containment)))
        }
    };
    // Close the channel, so that the journal writer does not wait for the pipes of a program that
    // did not start or that prints elsewhere.
    drop(pipe_sender);
    let (program, containment) = match started {
        Ok(pair) => pair,
        Err(reason) => {
            if let Some(cgroup) = cgroup {
                cgroup.remove();
            }
            record_exit(dir, &Exit::NotStarted(reason))?;
            report_ready(launch.mode);
            return Ok(true);
        }
    };
    report_ready(launch.mode);
    if let Some(containment) = containment {
        record_program(dir, program, containment);
    }

    if let Some(deadline) = launch.contact_deadline {
        let tree = ProcessTree {
            shim: Some(own_identity),
            cgroup: Arc::clone(&tree_cgroup),
            ..ProcessTree::default()
        };
        spawn_thread("contact", move || {
            contact_deadline::enforce_deadline(&deadline, &tree)
        })?;
    }

    let exit = reap_all(program, &state)?;
    // The supervisor process has no descendants any more. Look once more for processes with the
    // launch's mark (its identifying text) in their environment, which another subreaper may have
    // adopted.
    let strays = ProcessTree {
        mark: Some(launch.mark),
        cgroup: tree_cgroup,
        ..ProcessTree::default()
    };
    if strays
        .list_living()
        .is_ok_and(|processes| !processes.is_empty())
    {
        drop(strays.end(Duration::ZERO, Instant::now() + Duration::from_secs(2)));
    }
    if let Some(cgroup) = cgroup {
        cgroup.remove();
    }
    state.set_finishing();
    match journal_thread.join() {
        Ok(Ok(())) => {}
        // Continue, because the exit must be recorded even if the last records of the journal are
        // missing.
        Ok(Err(error)) => log(&format!(
            "could not write the last records of the journal; some of the program's output is \
            lost: {error}"
        )),
        Err(_) => log(
            "the thread that writes the journal panicked; the end of the program's output may be \
            lost",
        ),
    }
    record_exit(dir, &exit)?;
    if is_orphaned.load(Ordering::Acquire) {
        fs::remove_dir_all(&dir.0)?;
    }
    Ok(true)
}

/// Records the program's process id and start time. Ignores errors, because the program can also be
/// found by the launch's mark in its environment.
fn record_program(dir: &RunDir, program: u32, containment: Containment) {
    if let Some(identity) = Process::read(program).and_then(|process| process.identity().ok()) {
        let record = ProgramRecord {
            identity,
            containment,
        };
        drop(serde_json::to_vec(&record).map(|json| write_atomic(&dir.program_file(), &json)));
    }
}

/// Writes a line to the supervisor's own log file.
fn log(text: &str) {
    drop(writeln!(io::stderr(), "regatta shim: {text}"));
}

/// Returns the value of an operation that may fail. Logs a failure as "could not {action}".
fn log_failure<T>(action: &str, result: io::Result<T>) -> Option<T> {
    result
        .inspect_err(|error| log(&format!("could not {action}: {error}")))
        .ok()
}

fn spawn_thread<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<std::thread::JoinHandle<T>> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .stack_size(256 * 1024)
        .spawn(run)
}

/// Records how the program ended. Retries for as long as the disk is full, because nothing else is
/// left to do and the outcome of the attempt depends on this record.
fn record_exit(dir: &RunDir, exit: &Exit) -> io::Result<()> {
    loop {
        match dir.record_exit(exit) {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
                ) =>
            {
                std::thread::sleep(Duration::from_millis(100));
            }
            result => return result.map(drop),
        }
    }
}

fn read_secrets(launch: &LaunchRecord) -> LaunchSecrets {
    let secrets: Vec<(String, String)> = launch
        .secrets
        .iter()
        .filter_map(|name| Some((name.clone(), std::env::var(name).ok()?)))
        .collect();
    let token = secrets
        .iter()
        .find(|(name, _)| name == crate::drivers::TOKEN_VARIABLE)
        .map(|(_, value)| value.clone());
    LaunchSecrets {
        redactor: Redactor::new(secrets),
        token,
    }
}

fn report_ready(mode: LaunchKind) {
    if mode == LaunchKind::Attempt {
        // Ignore an error, because if the daemon has died meanwhile, the next daemon reads
        // `shim.json` instead of this line.
        drop(
            io::stdout()
                .write_all(READY_LINE)
                .and_then(|()| io::stdout().flush()),
        );
    }
}

/// Starts the program. Returns its process id, or a sentence that tells why it could not be
/// started.
fn spawn_program(
    dir: &RunDir,
    launch: &LaunchRecord,
    pipe_sender: &mpsc::Sender<Pipes>,
) -> Result<u32, String> {
    let (name, arguments) = launch.argv.split_first().ok_or(errors::NO_PROGRAM)?;
    if !launch.dir.is_dir() {
        return Err(errors::directory_does_not_exist(&launch.dir));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let program = find_program(name, &path, &launch.dir)?;
    let (streams, pipes) = program_streams(dir, launch)
        .map_err(|error| format!("The program's pipes could not be created: {error}."))?;
    let [input, output, errors] = streams;
    let mut command = Command::new(&program);
    command
        .arg0(name)
        .args(arguments)
        .current_dir(&launch.dir)
        .process_group(0)
        .stdin(input)
        .stdout(output)
        .stderr(errors);
    for (name, _) in SHIM_ALLOCATOR {
        command.env_remove(name);
    }
    // Undo an allocator setting that is meant for the supervisor process alone, because the program
    // would inherit it.
    let _ = disable_transparent_huge_pages(false);
    let child = command
        .spawn()
        .map_err(|error| errors::not_executable(&program, &error))?;
    let _ = disable_transparent_huge_pages(true);
    // Close the supervisor's copies of the program's ends of the pipes. Otherwise the supervisor
    // process would never see the end of the program's output.
    drop(command);
    if let Some(pipes) = pipes {
        // Ignore the result, because sending cannot fail: the journal writer receives until it gets
        // the pipes.
        drop(pipe_sender.send(pipes));
    }
    // Do not wait for the child here, because only [`reap_all`] may collect exit statuses.
    Ok(child.id())
}

/// Creates the program's standard input, output and error, and returns the supervisor's ends of
/// those that are pipes.
fn program_streams(dir: &RunDir, launch: &LaunchRecord) -> io::Result<([Stdio; 3], Option<Pipes>)> {
    if launch.mode == LaunchKind::Check {
        let output = io::stdout().as_fd().try_clone_to_owned()?;
        return Ok((
            [Stdio::null(), output.try_clone()?.into(), output.into()],
            None,
        ));
    }
    let (output, program_output) = io::pipe()?;
    let (errors, program_errors) = io::pipe()?;
    ioctl_fionbio(&output, true)?;
    ioctl_fionbio(&errors, true)?;
    let (program_input, input): (Stdio, _) = match launch.input {
        InputSource::Prompt => (File::open(dir.prompt_file())?.into(), None),
        InputSource::Lines => {
            let (program_input, input) = io::pipe()?;
            ioctl_fionbio(&input, true)?;
            (program_input.into(), Some(input))
        }
    };
    Ok((
        [program_input, program_output.into(), program_errors.into()],
        Some(Pipes {
            input,
            output,
            errors,
        }),
    ))
}

/// Finds the program's file in the same way as a shell in the directory `dir`.
fn find_program(name: &str, path: &OsStr, dir: &Path) -> Result<PathBuf, String> {
    if name.is_empty() {
        return Err(errors::NO_PROGRAM.to_owned());
    }
    if name.contains('/') {
        let program = dir.join(name);
        return if program.exists() {
            Ok(program)
        } else {
            Err(errors::program_does_not_exist(&program))
        };
    }
    let candidates = std::env::split_paths(path)
        .map(|path| dir.join(path).join(name))
        .filter(|path| path.is_file());
    let mut denied = None;
    for program in candidates {
        if rustix::fs::access(&program, rustix::fs::Access::EXEC_OK).is_ok() {
            return Ok(program);
        }
        denied.get_or_insert(program);
    }
    match denied {
        Some(program) => Err(errors::not_executable(
            &program,
            &io::ErrorKind::PermissionDenied.into(),
        )),
        None => Err(errors::not_on_path(name, &path.to_string_lossy())),
    }
}

/// Collects the exit status of children until none is left (P3, P7). Returns how the program itself
/// ended.
fn reap_all(program: u32, state: &ShimState) -> io::Result<Exit> {
    let mut exit = Exit::Lost;
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid.as_raw_nonzero().get().unsigned_abs() == program => {
                exit = exit_from_status(status);
                // From now on, every remaining process is one that the program left behind and that
                // has to be ended.
                state.set_program_ended();
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::CHILD) => return Ok(exit),
            Err(error) => return Err(error.into()),
        }
    }
}

fn exit_from_status(status: WaitStatus) -> Exit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Exit::Code(code),
        (_, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Lost,
    }
}
