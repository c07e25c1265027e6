//! Finds out whether a launch (one start of a program under a shim, its supervisor process) has not
//! started, runs, has ended or has lost its shim. Ends launches whose shim cannot end them.
//!
//! The phase is read from the run directory and the process table each time, so a restarted daemon
//! finds the same phase. The adapter decides when a launch has to end.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use regatta_engine::ports::agents::{AgentError, Exit, ProcessIdentity};
use rustix::process::Signal;

use crate::errors;
use crate::process::ProcessHandle;
use crate::process_tree::ProcessTree;
use crate::run_dir::{RunDir, lock_until, read_json};

/// The time that a supervisor process may take to end its program beyond the grace period. After
/// that, the caller ends the program's processes and the supervisor itself.
pub(crate) const SHIM_TIMEOUT: Duration = Duration::from_millis(1500);

/// The time that ending a launch's processes without its supervisor's help may take. This time is
/// spent at most twice: on the processes of a stuck supervisor process, and again after the
/// supervisor's death. Together with [`SHIM_TIMEOUT`], the two periods stay below the 5 seconds
/// that P4 allows.
pub(crate) const OUTSIDE_END_TIMEOUT: Duration = Duration::from_millis(1600);

/// The progress of one start of a program, according to its files and the process table.
pub(crate) enum RunPhase {
    /// No supervisor process has begun to start the program.
    NotStarted,
    /// The supervisor process is running, and usually its program too.
    Running(ProcessIdentity, ProcessHandle),
    /// The supervisor process is gone, for example killed, and has not recorded how the program
    /// ended.
    Vanished,
    /// The program and its supervisor process have ended, and the program's exit is recorded.
    Ended(Exit),
}

/// Reads the record of how a started program ended, or returns `None` if there is none.
pub(crate) fn read_exit(dir: &RunDir) -> Result<Option<Exit>, AgentError> {
    dir.read_exit().map_err(|error| {
        errors::file_error(
            "read the record of the program's exit",
            &dir.exit_file(),
            error,
        )
    })
}

/// Returns the marks by which Regatta finds the processes of a launch (one start of a program) that
/// still run after the launch's supervisor process has ended.
pub(crate) fn remaining_tree(dir: &RunDir) -> Result<ProcessTree, AgentError> {
    let launch = dir.read_launch().map_err(|error| {
        errors::file_error(
            "read the description of the program to start",
            &dir.launch_file(),
            error,
        )
    })?;
    let program = dir
        .read_program()
        .ok()
        .flatten()
        .map(|program| program.identity);
    // Use the control group too, because its name identifies the launch, no other launch uses the
    // group, and the group is gone after a reboot.
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

/// Determines from the run directory's files and the process table whether a program was not
/// started, runs, has ended, or has lost its supervisor process.
pub(crate) fn read_phase(dir: &RunDir) -> Result<RunPhase, AgentError> {
    if let Some(exit) = read_exit(dir)? {
        wait_for_shim_exit(dir, SHIM_TIMEOUT)?;
        return Ok(RunPhase::Ended(exit));
    }
    match read_json::<ProcessIdentity>(&dir.shim_file()) {
        Ok(None) => return Ok(RunPhase::NotStarted),
        Ok(Some(identity)) => {
            let handle = ProcessHandle::open(&identity).map_err(|error| {
                errors::kernel_error(
                    "open a pidfd (a process handle) of the supervisor process",
                    error,
                )
            })?;
            if let Some(handle) = handle {
                return Ok(RunPhase::Running(identity, handle));
            }
        }
        // The record is incomplete after a power cut. A supervisor process had begun, but no
        // process survives a power cut, so continue as if the supervisor were gone.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
        Err(error) => {
            return Err(errors::file_error(
                "read the record of the supervisor process",
                &dir.shim_file(),
                error,
            ));
        }
    }
    // Read the exit record again, because the supervisor process may have written it after the
    // first read.
    Ok(read_exit(dir)?.map_or(RunPhase::Vanished, RunPhase::Ended))
}

/// Waits until a supervisor process that has recorded an exit is gone. The record is the last thing
/// that a supervisor writes, and a launch must not be reported as ended while its supervisor lives
/// (P3, P10). After `timeout` a supervisor that hangs is ignored, because none of its program's
/// processes is left.
fn wait_for_shim_exit(dir: &RunDir, timeout: Duration) -> Result<(), AgentError> {
    let Ok(Some(identity)) = read_json::<ProcessIdentity>(&dir.shim_file()) else {
        return Ok(());
    };
    match ProcessHandle::open(&identity).map_err(|error| {
        errors::kernel_error(
            "open a pidfd (a process handle) of the supervisor process",
            error,
        )
    })? {
        Some(shim) => shim
            .wait_until(Instant::now() + timeout)
            .map(drop)
            .map_err(|error| errors::kernel_error("wait for the supervisor process to end", error)),
        None => Ok(()),
    }
}

/// Kills the processes below a supervisor process that is stopped or stuck, and then the
/// supervisor.
pub(crate) fn end_from_outside(
    shim: &ProcessHandle,
    identity: ProcessIdentity,
    dir: &RunDir,
) -> Result<(), AgentError> {
    // End the program's processes before the supervisor process, because processes that left their
    // parents cannot be found any more after the supervisor is gone.
    let tree = ProcessTree {
        shim: Some(identity),
        ..ProcessTree::default()
    };
    let remaining = tree.end(Duration::ZERO, Instant::now() + OUTSIDE_END_TIMEOUT / 2);
    let remaining =
        remaining.map_err(|error| errors::kernel_error("list the program's processes", error))?;
    if !remaining.is_empty() {
        return Err(errors::still_alive(
            &remaining
                .iter()
                .map(|process| process.pid)
                .collect::<Vec<_>>(),
        ));
    }
    shim.signal(Signal::KILL);
    match shim.wait_until(Instant::now() + OUTSIDE_END_TIMEOUT / 2) {
        Ok(true) => Ok(()),
        Ok(false) => Err(errors::lock_not_released(&dir.shim_lock())),
        Err(error) => Err(errors::kernel_error(
            "wait for the supervisor process to end",
            error,
        )),
    }
}

/// Ends the remaining processes of a launch (one start of a program) whose supervisor process is
/// gone, and records `exit` as the program's exit. If another caller has recorded an exit first,
/// returns that exit.
pub(crate) fn end_and_record(
    dir: &RunDir,
    tree: &ProcessTree,
    grace: Duration,
    exit: &Exit,
) -> Result<Exit, AgentError> {
    let deadline = Instant::now() + grace + OUTSIDE_END_TIMEOUT;
    let lock = lock_until(&dir.shim_lock(), deadline).map_err(|error| {
        errors::file_error(
            "lock the file that prevents a second start of the supervisor process,",
            &dir.shim_lock(),
            error,
        )
    })?;
    let Some(_lock) = lock else {
        return Err(errors::lock_not_released(&dir.shim_lock()));
    };
    if let Some(exit) = read_exit(dir)? {
        return Ok(exit);
    }
    let remaining = tree
        .end(grace, deadline)
        .map_err(|error| errors::kernel_error("list the program's processes", error))?;
    if !remaining.is_empty() {
        return Err(errors::still_alive(
            &remaining
                .iter()
                .map(|process| process.pid)
                .collect::<Vec<_>>(),
        ));
    }
    dir.record_exit(exit).map_err(|error| {
        errors::file_error("record the program's exit in", &dir.exit_file(), error)
    })
}

#[cfg(test)]
mod tests;
