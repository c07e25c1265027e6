//! Runs a user's command, such as a release command, exactly once, even if the daemon restarts
//! while it runs.
//!
//! Regatta cannot make such a command safe to repeat. The command therefore runs under a shim, a
//! supervisor process that outlives the daemon, in a directory named after the command's purpose. A
//! repeated request waits for the command while the command runs, and reads its exit record
//! afterwards.

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

/// The name of a file that exists beside the exit record only if the command was ended by its
/// timeout.
const TIMED_OUT_FILE: &str = "timed_out";
/// The name of the file, in a command's directory, with a sentence that describes the command's
/// sandbox.
const SANDBOX_FILE: &str = "sandbox";

/// The interval at which a running command's `still_needed` is called to find out whether the
/// command can be ended early.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Returns the result of the command `name`: runs the command if it was never started, waits for it
/// if it is running, or reads the command's recorded exit. Returns `None` if the command was not
/// started and is no longer needed. A running command that is no longer needed is ended, and its
/// recorded exit then stays.
pub(crate) fn run_command(
    adapter: &AgentsAdapter,
    name: &str,
    check: &CheckCommand,
    still_needed: StillNeeded<'_>,
) -> Result<Option<CheckResult>, AgentError> {
    let path = command_path(adapter, name)?;
    let dir = RunDir::create(path.clone())
        .map_err(|error| errors::file_error("create the command's directory", &path, error))?;
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
            // Call `is_unneeded` once per round and store the answer. A second call after the loop
            // could give another answer, so that an abort would be recorded as a timeout.
            let (mut has_ended, mut is_aborted) = (false, false);
            while !has_ended && !is_aborted && Instant::now() < deadline {
                let until = if still_needed.is_some() {
                    deadline.min(Instant::now() + CANCEL_POLL_INTERVAL)
                } else {
                    deadline
                };
                has_ended = shim.wait_until(until).map_err(|error| {
                    errors::kernel_error("wait for the command's supervisor process", error)
                })?;
                is_aborted = !has_ended && is_unneeded();
            }
            if has_ended {
                adapter.exit_after_shim(&dir, Duration::ZERO)?
            } else if is_aborted {
                adapter.end_launch(&dir, GRACE_PERIOD)?
            } else {
                // Write the file before the command is ended. Otherwise a crash in between would
                // make the end look like the command's own exit.
                write_atomic(&dir.path(TIMED_OUT_FILE), b"").map_err(|error| {
                    errors::file_error("record the timeout of the command in", &dir.0, error)
                })?;
                adapter.end_launch(&dir, GRACE_PERIOD)?
            }
        }
        RunPhase::Ended(exit) => exit,
        RunPhase::Vanished => adapter.conclude_vanished(&dir, Duration::ZERO)?,
        RunPhase::NotStarted => return Err(errors::lock_not_released(&dir.shim_lock())),
    };
    let output = journal::output_tail(&dir.0, MAX_OUTPUT_BYTES)
        .map_err(|error| errors::file_error("read the output of the command in", &dir.0, error))?;
    let sandbox = std::fs::read_to_string(dir.path(SANDBOX_FILE)).ok();
    require_sandboxed(CheckResult {
        exit,
        has_timed_out: dir.path(TIMED_OUT_FILE).exists(),
        output,
        sandbox,
    })
    .map(Some)
}

/// Ends the one-time commands that run for an attempt. A command's name consists of parts that are
/// separated by `-`. The command belongs to the attempt if one part is the attempt's id.
pub(crate) fn end_commands(adapter: &AgentsAdapter, attempt: AttemptId) -> Result<(), AgentError> {
    let (commands, id) = (adapter.commands_path(), attempt.to_string());
    let entries = match std::fs::read_dir(&commands) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(|error| {
            errors::file_error("list the one-time commands in", &commands, error)
        })?,
    };
    for entry in entries {
        let entry = entry.map_err(|error| {
            errors::file_error("list the one-time commands in", &commands, error)
        })?;
        if !entry
            .file_name()
            .to_string_lossy()
            .split('-')
            .any(|part| part == id)
        {
            continue;
        }
        let dir = RunDir(entry.path());
        // Skip a command that was not started, because there is no process to end and its caller no
        // longer starts it.
        if !matches!(adapter.settled_phase(&dir)?, RunPhase::NotStarted) {
            adapter.end_launch(&dir, GRACE_PERIOD)?;
        }
    }
    Ok(())
}

/// Ends a running command and removes its record, so that it can run again. Does nothing if the
/// command was never started or has ended.
pub(crate) fn abort_command(adapter: &AgentsAdapter, name: &str) -> Result<(), AgentError> {
    let dir = RunDir(command_path(adapter, name)?);
    if matches!(read_phase(&dir)?, RunPhase::NotStarted | RunPhase::Ended(_)) {
        return Ok(());
    }
    adapter.end_launch(&dir, GRACE_PERIOD)?;
    delete_command_record(adapter, name)
}

/// Removes the record of a command, so that it can run again. Fails if the command is running.
pub(crate) fn delete_command_record(adapter: &AgentsAdapter, name: &str) -> Result<(), AgentError> {
    let dir = RunDir(command_path(adapter, name)?);
    if let RunPhase::Running(..) | RunPhase::Vanished = read_phase(&dir)? {
        return Err(errors::lock_not_released(&dir.shim_lock()));
    }
    match std::fs::remove_dir_all(&dir.0) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(errors::file_error(
            "remove the record of the command in",
            &dir.0,
            error,
        )),
        _ => Ok(()),
    }
}

/// Returns the directory that records the command `name`, or an error if the name is not valid as a
/// directory's name.
fn command_path(adapter: &AgentsAdapter, name: &str) -> Result<PathBuf, AgentError> {
    let is_plain = name
        .chars()
        .all(|letter| letter.is_ascii_alphanumeric() || "-_.".contains(letter));
    if !is_plain || name.is_empty() || name.starts_with('.') || name.len() > 200 {
        return Err(errors::invalid_command_name(name));
    }
    Ok(adapter.commands_path().join(name))
}

/// Starts the command under a supervisor process unless it was started before.
fn start_once(
    adapter: &AgentsAdapter,
    dir: &RunDir,
    check: &CheckCommand,
) -> Result<(), AgentError> {
    let _start = lock(&dir.start_lock()).map_err(|error| {
        errors::file_error(
            "lock the file that guards the start of the command,",
            &dir.start_lock(),
            error,
        )
    })?;
    if !matches!(read_phase(dir)?, RunPhase::NotStarted) {
        return Ok(());
    }
    let mark = new_launch_mark().map_err(|error| {
        errors::kernel_error(
            "provide random bytes that identify the command's processes",
            error,
        )
    })?;
    let tmp = RunDir::create(dir.path("tmp"))
        .map_err(|error| {
            errors::file_error(
                "create the command's temporary directory",
                &dir.path("tmp"),
                error,
            )
        })?
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
            // Remove the access token from the journal, because a command may print its
            // environment.
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
    prepare().map_err(|error| {
        errors::file_error(
            "write the description of the command to start",
            &dir.launch_file(),
            error,
        )
    })?;
    let launch_variables = [(MARK_VARIABLE, mark.as_str().into())];
    let environment = environment::build(
        sandbox.home.as_deref(),
        &tmp,
        &sandbox.environment(check),
        &launch_variables,
    );
    adapter.start_shim(dir, &environment, Stdio::null())
}
