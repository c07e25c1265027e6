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
use regatta_engine::ports::agents::{AgentError, Check, CheckResult};

use crate::check::{GRACE, TAIL, Wanted, engaged};
use crate::drivers::TOKEN_VARIABLE;
use crate::process::MARK;
use crate::rundir::{Input, LaunchRecord, Mode, RunDir, fresh_mark, lock, write_atomic};
use crate::supervise::{AgentsAdapter, Phase, phase};
use crate::{environment, journal, shut_in, words};

/// The file beside the exit record that marks a command whose time was up.
const TIMED_OUT: &str = "timed_out";
/// The file with the description of the command's sandbox.
const SANDBOX: &str = "sandbox";

/// The interval at which the caller is asked whether it still needs the command.
const LOOK: Duration = Duration::from_millis(100);

/// Runs the command, joins it while it runs, or reads how it ended. Returns `None` if the command
/// had not begun and is no longer needed. A running command that is no longer needed is ended, and
/// its exit is then final.
pub(crate) fn run(
    adapter: &AgentsAdapter,
    name: &str,
    (check, wanted): (&Check, Wanted<'_>),
) -> Result<Option<CheckResult>, AgentError> {
    let path = path(adapter, name)?;
    let dir = RunDir::create(path.clone()).map_err(|error| words::file("create", &path, error))?;
    let unwanted = || wanted.is_some_and(|it| !it());
    if unwanted() && matches!(phase(&dir)?, Phase::Untouched) {
        return Ok(None);
    }
    start(adapter, &dir, check)?;
    let exit = match adapter.settled(&dir)? {
        Phase::Alive(_, shim) => {
            let now = Instant::now();
            let deadline = now.checked_add(check.timeout).unwrap_or(now + Duration::from_secs(u64::from(u32::MAX)));
            // Each round asks `unwanted` once and keeps the answer, so a caller that changes its
            // mind afterwards cannot turn a break-off into a timeout.
            let (mut gone, mut broken_off) = (false, false);
            while !gone && !broken_off && Instant::now() < deadline {
                let until = if wanted.is_some() { deadline.min(Instant::now() + LOOK) } else { deadline };
                gone = shim.wait_until(until).map_err(|error| words::kernel("wait", error))?;
                broken_off = !gone && unwanted();
            }
            if gone {
                adapter.after_shim(&dir, Duration::ZERO)?
            } else if broken_off {
                adapter.end(&dir, GRACE)?
            } else {
                // The file is written first. After a crash a reader must not mistake this end for
                // the command's own exit.
                write_atomic(&dir.path(TIMED_OUT), b"").map_err(|error| words::file("write", &dir.0, error))?;
                adapter.end(&dir, GRACE)?
            }
        }
        Phase::Ended(exit) => exit,
        Phase::Vanished => adapter.conclude(&dir, Duration::ZERO)?,
        Phase::Untouched => return Err(words::busy(&dir.shim_lock())),
    };
    let output = journal::tail(&dir.0, TAIL).map_err(|error| words::file("read the journal in", &dir.0, error))?;
    let sandbox = std::fs::read_to_string(dir.path(SANDBOX)).ok();
    engaged(CheckResult { exit, timed_out: dir.path(TIMED_OUT).exists(), output, sandbox }).map(Some)
}

/// Ends the commands that run for an attempt. Their names contain the attempt's id as one of the
/// parts.
pub(crate) fn end_all(adapter: &AgentsAdapter, attempt: AttemptId) -> Result<(), AgentError> {
    let (commands, id) = (adapter.commands_path(), attempt.to_string());
    let entries = match std::fs::read_dir(&commands) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(|error| words::file("read", &commands, error))?,
    };
    for entry in entries {
        let entry = entry.map_err(|error| words::file("read", &commands, error))?;
        if !entry.file_name().to_string_lossy().split('-').any(|part| part == id) {
            continue;
        }
        let dir = RunDir(entry.path());
        // A command that never began has no process, and its caller no longer starts it.
        if !matches!(adapter.settled(&dir)?, Phase::Untouched) {
            adapter.end(&dir, GRACE)?;
        }
    }
    Ok(())
}

/// Ends a command that runs and removes its record. The record of a command that has ended stays.
pub(crate) fn break_off(adapter: &AgentsAdapter, name: &str) -> Result<(), AgentError> {
    let dir = RunDir(path(adapter, name)?);
    if matches!(phase(&dir)?, Phase::Untouched | Phase::Ended(_)) {
        return Ok(());
    }
    adapter.end(&dir, GRACE)?;
    forget(adapter, name)
}

/// Removes the record of a command that has ended.
pub(crate) fn forget(adapter: &AgentsAdapter, name: &str) -> Result<(), AgentError> {
    let dir = RunDir(path(adapter, name)?);
    if let Phase::Alive(..) | Phase::Vanished = phase(&dir)? {
        return Err(words::busy(&dir.shim_lock()));
    }
    match std::fs::remove_dir_all(&dir.0) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(words::file("remove", &dir.0, error)),
        _ => Ok(()),
    }
}

/// Returns the directory of a command, if its name is valid.
fn path(adapter: &AgentsAdapter, name: &str) -> Result<PathBuf, AgentError> {
    let plain = name.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_.".contains(letter));
    if !plain || name.is_empty() || name.starts_with('.') || name.len() > 200 {
        return Err(words::bad_name(name));
    }
    Ok(adapter.commands_path().join(name))
}

/// Starts the command unless it was ever started.
fn start(adapter: &AgentsAdapter, dir: &RunDir, check: &Check) -> Result<(), AgentError> {
    let _start = lock(&dir.start_lock()).map_err(|error| words::file("lock", &dir.start_lock(), error))?;
    if !matches!(phase(dir)?, Phase::Untouched) {
        return Ok(());
    }
    let mark = fresh_mark().map_err(|error| words::kernel("give random bytes", error))?;
    let tmp = RunDir::create(dir.path("tmp")).map_err(|error| words::file("create", &dir.path("tmp"), error))?.0;
    let shut = shut_in::prepare(adapter, dir, check)?;
    let prepare = || -> std::io::Result<_> {
        if let Some(sandbox) = shut.description() {
            write_atomic(&dir.path(SANDBOX), sandbox.as_bytes())?;
        }
        let record = LaunchRecord {
            v: 1,
            mode: Mode::Attempt,
            argv: shut.argv(check),
            dir: std::path::absolute(&check.dir)?,
            mark: mark.clone(),
            input: Input::Prompt,
            // A command may print its environment, so its token is redacted from the journal.
            secrets: check.env.iter().map(|it| it.0.clone()).filter(|it| it == TOKEN_VARIABLE).collect(),
            limits: adapter.limits.clone(),
            without_cgroup: true,
            ways: shut.prepared.ways.clone(),
            held: false,
            leash: None,
            relay: None,
            attended: None,
        };
        write_atomic(&dir.prompt_file(), b"")?;
        write_atomic(&dir.launch_file(), &serde_json::to_vec(&record)?)
    };
    prepare().map_err(|error| words::file("write", &dir.launch_file(), error))?;
    let ours = [(MARK, mark.as_str().into())];
    let environment = environment::build(shut.home.as_deref(), &tmp, &shut.environment(check), &ours);
    adapter.raise_shim(dir, &environment, Stdio::null())
}
