//! The phase of a launch, read from its run directory and the process table, and the end of a
//! launch from outside its shim.
//!
//! Nothing here keeps state, so a daemon that restarts finds the same phase. The adapter decides
//! when a launch has to end.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use regatta_engine::ports::agents::{AgentError, Exit, ProcessIdentity};
use rustix::process::Signal;

use crate::errors;
use crate::process::ProcessHandle;
use crate::process_tree::ProcessTree;
use crate::run_dir::{RunDir, lock_until, read_json};

/// The time that a shim may take beyond the grace period. After that its tree is ended from
/// outside.
pub(crate) const SHIM_TIMEOUT: Duration = Duration::from_millis(1500);

/// The time that ending a tree from outside may take. It is spent at most twice: on the tree of a
/// stuck shim, and after the shim's death. Together with [`SHIM_TIMEOUT`] that stays under the 5 s
/// of P4.
pub(crate) const OUTSIDE_END_TIMEOUT: Duration = Duration::from_millis(1600);

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

/// Reads the exit record of a launch, if there is one.
pub(crate) fn read_exit(dir: &RunDir) -> Result<Option<Exit>, AgentError> {
    dir.read_exit()
        .map_err(|error| errors::file_error("read", &dir.exit_file(), error))
}

/// Returns the tree of a vanished shim, in order to find its remaining processes.
pub(crate) fn remaining_tree(dir: &RunDir) -> Result<ProcessTree, AgentError> {
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
/// hangs is ignored after `timeout`, because no process of its launch is left.
fn wait_for_shim_exit(dir: &RunDir, timeout: Duration) -> Result<(), AgentError> {
    let Ok(Some(identity)) = read_json::<ProcessIdentity>(&dir.shim_file()) else {
        return Ok(());
    };
    match ProcessHandle::open(&identity)
        .map_err(|error| errors::kernel_error("open a process", error))?
    {
        Some(shim) => shim
            .wait_until(Instant::now() + timeout)
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
    let remaining = tree.end(Duration::ZERO, Instant::now() + OUTSIDE_END_TIMEOUT / 2);
    let remaining = remaining.map_err(|error| errors::kernel_error("list the processes", error))?;
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
    let remaining = tree
        .end(grace, deadline)
        .map_err(|error| errors::kernel_error("list the processes", error))?;
    if !remaining.is_empty() {
        return Err(errors::still_alive(
            &remaining
                .iter()
                .map(|process| process.pid)
                .collect::<Vec<_>>(),
        ));
    }
    dir.record_exit(exit)
        .map_err(|error| errors::file_error("write", &dir.exit_file(), error))
}

#[cfg(test)]
mod tests;
