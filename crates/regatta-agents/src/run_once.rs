//! Runs a command of the user's once in the life of the fleet, whatever happens to the daemon
//! meanwhile.
//!
//! Regatta cannot make such a command idempotent. The command therefore runs under a shim that
//! outlives the daemon, in a directory named after its purpose. A repeated request joins the
//! command while it runs, and reads its exit record afterwards.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use regatta_core::ids::AttemptId;
use regatta_engine::ports::agents::{AgentError, CheckCommand, CheckResult};

use crate::adapter::AgentsAdapter;
use crate::drivers::TOKEN_VARIABLE;
use crate::process::MARK_VARIABLE;
use crate::run_check::{GRACE_PERIOD, MAX_OUTPUT_BYTES, StillNeeded, require_sandboxed};
use crate::run_dir::{
    InputSource, LaunchKind, LaunchRecord, RunDir, lock, new_launch_mark, write_atomic,
};
use crate::run_phase::{RunPhase, read_phase};
use crate::{environment, errors, journal, sandbox_command};

/// The file beside the exit record that marks a command whose time was up.
const TIMED_OUT_FILE: &str = "timed_out";
/// The file with the description of the command's sandbox.
const SANDBOX_FILE: &str = "sandbox";

/// The interval at which the caller is asked whether it still needs the command.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Runs the command, joins it while it runs, or reads how it ended. Returns `None` if the command
/// had not begun and is no longer needed. A running command that is no longer needed is ended, and
/// its exit is then final.
pub(crate) fn run_command(
    adapter: &AgentsAdapter,
    name: &str,
    check: &CheckCommand,
    still_needed: StillNeeded<'_>,
) -> Result<Option<CheckResult>, AgentError> {
    let path = command_path(adapter, name)?;
    let dir =
        RunDir::create(path.clone()).map_err(|error| errors::file_error("create", &path, error))?;
    let is_unneeded = || still_needed.is_some_and(|is_needed| !is_needed());
    if is_unneeded() && matches!(read_phase(&dir)?, RunPhase::NotStarted) {
        return Ok(None);
    }
    start_once(adapter, &dir, check)?;
    let exit = match adapter.settled_phase(&dir)? {
        RunPhase::Running(_, shim) => {
            let now = Instant::now();
            let deadline = now
                .checked_add(check.timeout)
                .unwrap_or(now + Duration::from_secs(u64::from(u32::MAX)));
            // Each round calls `is_unneeded` once and keeps the answer, so a caller whose answer
            // changes afterwards cannot turn an abort into a timeout.
            let (mut has_ended, mut is_aborted) = (false, false);
            while !has_ended && !is_aborted && Instant::now() < deadline {
                let until = if still_needed.is_some() {
                    deadline.min(Instant::now() + CANCEL_POLL_INTERVAL)
                } else {
                    deadline
                };
                has_ended = shim
                    .wait_until(until)
                    .map_err(|error| errors::kernel_error("wait", error))?;
                is_aborted = !has_ended && is_unneeded();
            }
            if has_ended {
                adapter.exit_after_shim(&dir, Duration::ZERO)?
            } else if is_aborted {
                adapter.end_launch(&dir, GRACE_PERIOD)?
            } else {
                // The file is written first. After a crash a reader must not mistake this end for
                // the command's own exit.
                write_atomic(&dir.path(TIMED_OUT_FILE), b"")
                    .map_err(|error| errors::file_error("write", &dir.0, error))?;
                adapter.end_launch(&dir, GRACE_PERIOD)?
            }
        }
        RunPhase::Ended(exit) => exit,
        RunPhase::Vanished => adapter.conclude_vanished(&dir, Duration::ZERO)?,
        RunPhase::NotStarted => return Err(errors::lock_not_released(&dir.shim_lock())),
    };
    let output = journal::output_tail(&dir.0, MAX_OUTPUT_BYTES)
        .map_err(|error| errors::file_error("read the journal in", &dir.0, error))?;
    let sandbox = std::fs::read_to_string(dir.path(SANDBOX_FILE)).ok();
    require_sandboxed(CheckResult {
        exit,
        has_timed_out: dir.path(TIMED_OUT_FILE).exists(),
        output,
        sandbox,
    })
    .map(Some)
}

/// Ends the commands that run for an attempt. Their names contain the attempt's id as one of the
/// parts.
pub(crate) fn end_commands(adapter: &AgentsAdapter, attempt: AttemptId) -> Result<(), AgentError> {
    let (commands, id) = (adapter.commands_path(), attempt.to_string());
    let entries = match std::fs::read_dir(&commands) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(|error| errors::file_error("read", &commands, error))?,
    };
    for entry in entries {
        let entry = entry.map_err(|error| errors::file_error("read", &commands, error))?;
        if !entry
            .file_name()
            .to_string_lossy()
            .split('-')
            .any(|part| part == id)
        {
            continue;
        }
        let dir = RunDir(entry.path());
        // A command that never began has no process, and its caller no longer starts it.
        if !matches!(adapter.settled_phase(&dir)?, RunPhase::NotStarted) {
            adapter.end_launch(&dir, GRACE_PERIOD)?;
        }
    }
    Ok(())
}

/// Ends a command that runs and removes its record. The record of a command that has ended stays.
pub(crate) fn abort_command(adapter: &AgentsAdapter, name: &str) -> Result<(), AgentError> {
    let dir = RunDir(command_path(adapter, name)?);
    if matches!(read_phase(&dir)?, RunPhase::NotStarted | RunPhase::Ended(_)) {
        return Ok(());
    }
    adapter.end_launch(&dir, GRACE_PERIOD)?;
    delete_command_record(adapter, name)
}

/// Removes the record of a command that has ended.
pub(crate) fn delete_command_record(adapter: &AgentsAdapter, name: &str) -> Result<(), AgentError> {
    let dir = RunDir(command_path(adapter, name)?);
    if let RunPhase::Running(..) | RunPhase::Vanished = read_phase(&dir)? {
        return Err(errors::lock_not_released(&dir.shim_lock()));
    }
    match std::fs::remove_dir_all(&dir.0) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(errors::file_error("remove", &dir.0, error))
        }
        _ => Ok(()),
    }
}

/// Returns the directory of a command, if its name is valid.
fn command_path(adapter: &AgentsAdapter, name: &str) -> Result<PathBuf, AgentError> {
    let is_plain = name
        .chars()
        .all(|letter| letter.is_ascii_alphanumeric() || "-_.".contains(letter));
    if !is_plain || name.is_empty() || name.starts_with('.') || name.len() > 200 {
        return Err(errors::invalid_command_name(name));
    }
    Ok(adapter.commands_path().join(name))
}

/// Starts the command unless it was ever started.
fn start_once(
    adapter: &AgentsAdapter,
    dir: &RunDir,
    check: &CheckCommand,
) -> Result<(), AgentError> {
    let _start = lock(&dir.start_lock())
        .map_err(|error| errors::file_error("lock", &dir.start_lock(), error))?;
    if !matches!(read_phase(dir)?, RunPhase::NotStarted) {
        return Ok(());
    }
    let mark =
        new_launch_mark().map_err(|error| errors::kernel_error("give random bytes", error))?;
    let tmp = RunDir::create(dir.path("tmp"))
        .map_err(|error| errors::file_error("create", &dir.path("tmp"), error))?
        .0;
    let sandbox = sandbox_command::prepare_command_sandbox(adapter, dir, check)?;
    let prepare = || -> std::io::Result<_> {
        if let Some(description) = sandbox.description() {
            write_atomic(&dir.path(SANDBOX_FILE), description.as_bytes())?;
        }
        let record = LaunchRecord {
            v: 1,
            mode: LaunchKind::Attempt,
            argv: sandbox.argv(check),
            dir: std::path::absolute(&check.dir)?,
            mark: mark.clone(),
            input: InputSource::Prompt,
            // A command may print its environment, so its token is redacted from the journal.
            secrets: check
                .env
                .iter()
                .map(|(name, _)| name.clone())
                .filter(|name| name == TOKEN_VARIABLE)
                .collect(),
            limits: adapter.limits.clone(),
            without_cgroup: true,
            egress_routes: sandbox.prepared.egress_routes.clone(),
            waits_for_shim: false,
            contact_deadline: None,
            relay: None,
            session_facts: None,
        };
        write_atomic(&dir.prompt_file(), b"")?;
        write_atomic(&dir.launch_file(), &serde_json::to_vec(&record)?)
    };
    prepare().map_err(|error| errors::file_error("write", &dir.launch_file(), error))?;
    let launch_variables = [(MARK_VARIABLE, mark.as_str().into())];
    let environment = environment::build(
        sandbox.home.as_deref(),
        &tmp,
        &sandbox.environment(check),
        &launch_variables,
    );
    adapter.start_shim(dir, &environment, Stdio::null())
}
