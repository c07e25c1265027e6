//! Runs a check: a command, such as a test or a linter, that judges an agent's work. Keeps the
//! beginning and the end of its output.

use std::fs;
use std::io::{Read, Write};
use std::process::{Child, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use regatta_engine::ports::agents::{AgentError, CheckCommand, CheckResult, Exit};
use rustix::event::{PollFd, PollFlags};

use crate::adapter::{AgentsAdapter, reap_shim};
use crate::environment;
use crate::process::{MARK_VARIABLE, poll_until};
use crate::process_tree::ProcessTree;
use crate::redact::redact_text;
use crate::run_dir::{
    InputSource, LaunchKind, LaunchRecord, RunDir, new_launch_mark, write_atomic,
};
use crate::run_phase::{RunPhase, end_and_record, end_from_outside, read_phase};
use crate::sandbox;
use crate::shim::ShimLimits;
use crate::shim_protocol::ShimCommand;
use crate::{errors, sandbox_command};

/// The number of bytes that are kept of the output of a check (a command such as a test).
pub(crate) const MAX_OUTPUT_BYTES: usize = 16 * 1024;

/// The number of bytes that are kept from the beginning of the output. The rest of the
/// [`MAX_OUTPUT_BYTES`] is kept from the end of the output.
const MAX_HEAD_BYTES: usize = 4 * 1024;

/// The time between asking a check (a command such as a test) to end, after its timeout, and
/// killing the check.
pub(crate) const GRACE_PERIOD: Duration = Duration::from_secs(1);

/// The time that the shim (the check's supervisor process) may take to end, after the check's grace
/// period.
const SHIM_EXIT_TIMEOUT: Duration = Duration::from_secs(3);

/// The interval at which `still_needed` is called, to find out whether a running check (a command
/// such as a test) can be ended early.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// A function that returns whether the result of a check (a command such as a test) is still
/// needed. If there is no function, the check always runs to its end.
pub(crate) type StillNeeded<'a> = Option<&'a dyn Fn() -> bool>;

/// The reason why reading the output of a check (a command such as a test) stopped: the output
/// ended, the time was up, or the result is no longer needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadEnd {
    /// The check (a command such as a test) and its supervisor process have closed the output.
    EndOfOutput,
    TimedOut,
    NoLongerNeeded,
}

/// Runs a check under a shim (supervisor process) of its own, so that its time limit holds for
/// every process that the check starts. Returns `None` if the check was ended because its result
/// was no longer needed.
pub(crate) fn run(
    adapter: &AgentsAdapter,
    check: &CheckCommand,
    still_needed: StillNeeded<'_>,
) -> Result<Option<CheckResult>, AgentError> {
    let still_needed: &dyn Fn() -> bool = &|| {
        !adapter.is_shutting_down.load(Ordering::SeqCst)
            && still_needed.is_none_or(|is_needed| is_needed())
    };
    if !still_needed() {
        return Ok(None);
    }
    let mark = new_launch_mark().map_err(|error| {
        errors::kernel_error(
            "provide random bytes that identify the check's processes",
            error,
        )
    })?;
    let path = adapter.checks_path().join(&mark);
    let dir = RunDir::create(path.clone())
        .map_err(|error| errors::file_error("create the check's directory", &path, error))?;
    let result = run_in(adapter, &dir, &mark, check, Some(still_needed));
    drop(fs::remove_dir_all(&dir.0));
    result
}

fn run_in(
    adapter: &AgentsAdapter,
    dir: &RunDir,
    mark: &str,
    check: &CheckCommand,
    still_needed: StillNeeded<'_>,
) -> Result<Option<CheckResult>, AgentError> {
    let tmp = RunDir::create(dir.path("tmp"))
        .map_err(|error| {
            errors::file_error(
                "create the check's temporary directory",
                &dir.path("tmp"),
                error,
            )
        })?
        .0;
    let sandbox = sandbox_command::prepare_command_sandbox(adapter, dir, check)?;
    let prepare = || -> std::io::Result<()> {
        let record = LaunchRecord {
            v: 1,
            mode: LaunchKind::Check,
            argv: sandbox.argv(check),
            dir: std::path::absolute(&check.dir)?,
            mark: mark.to_owned(),
            input: InputSource::default(),
            secrets: vec![],
            limits: ShimLimits::default(),
            egress_routes: sandbox.prepared.egress_routes.clone(),
            waits_for_shim: false,
            without_cgroup: true,
            contact_deadline: None,
            relay: None,
            session_facts: None,
        };
        write_atomic(&dir.launch_file(), &serde_json::to_vec(&record)?)
    };
    prepare().map_err(|error| {
        errors::file_error(
            "write the description of the check to start",
            &dir.launch_file(),
            error,
        )
    })?;
    let environment = environment::build(
        sandbox.home.as_deref(),
        &tmp,
        &sandbox.environment(check),
        &[(MARK_VARIABLE, mark.into())],
    );
    let now = Instant::now();
    let deadline = now.checked_add(check.timeout);
    let mut shim = adapter.spawn_shim(dir, &environment, Stdio::piped())?;

    let mut output_ends = HeadAndTail::default();
    let read_end = match read_output(&mut shim, dir, &mut output_ends, deadline, still_needed) {
        Ok(read_end) => read_end,
        Err(error) => {
            // Close the pipe to the supervisor's standard input, so that the supervisor process
            // ends the check.
            drop(shim.stdin.take());
            reap_shim(shim, false);
            return Err(error);
        }
    };
    drop(shim.wait());
    let exit = match read_phase(dir)? {
        RunPhase::Ended(exit) => exit,
        _ => {
            let program = dir
                .read_program()
                .ok()
                .flatten()
                .map(|program| program.identity);
            let tree = ProcessTree {
                program,
                mark: Some(mark.to_owned()),
                ..ProcessTree::default()
            };
            end_and_record(dir, &tree, Duration::ZERO, &Exit::Lost)?
        }
    };
    if read_end == ReadEnd::NoLongerNeeded {
        return Ok(None);
    }
    let has_timed_out = read_end == ReadEnd::TimedOut;
    // Remove secrets, because the output is stored in the database and read by people and agents
    // (S4).
    let output = redact_text(&output_ends.into_text());
    require_sandboxed(CheckResult {
        exit,
        has_timed_out,
        output,
        sandbox: sandbox.description(),
    })
    .map(Some)
}

/// Returns `result`, or an error if the sandbox of a check (a command such as a test) could not be
/// set up. In that case the check did not run, so its output tells nothing about the work.
pub(crate) fn require_sandboxed(result: CheckResult) -> Result<CheckResult, AgentError> {
    let Exit::Code(code) = result.exit else {
        return Ok(result);
    };
    let last = result
        .output
        .trim_end()
        .lines()
        .next_back()
        .unwrap_or_default();
    match result
        .sandbox
        .as_ref()
        .and_then(|_| sandbox::failure_reason(code, last))
    {
        Some(why) => Err(errors::check_not_sandboxed(&why)),
        None => Ok(result),
    }
}

/// Reads the output of a check (a command such as a test) to its end. Ends the check when its time
/// is up or the caller no longer needs it.
fn read_output(
    shim: &mut Child,
    dir: &RunDir,
    output_ends: &mut HeadAndTail,
    deadline: Option<Instant>,
    still_needed: StillNeeded<'_>,
) -> Result<ReadEnd, AgentError> {
    let read_end = read_output_until(shim, output_ends, deadline, still_needed)?;
    if read_end == ReadEnd::EndOfOutput {
        return Ok(read_end);
    }
    if let Some(control) = &mut shim.stdin {
        // Ignore an error, because a supervisor process that has just ended does not need the
        // command.
        drop(
            ShimCommand::stop_after(GRACE_PERIOD)
                .to_line()
                .and_then(|bytes| control.write_all(&bytes)),
        );
    }
    if read_output_until(
        shim,
        output_ends,
        Some(Instant::now() + GRACE_PERIOD + SHIM_EXIT_TIMEOUT),
        None,
    )? != ReadEnd::EndOfOutput
    {
        match read_phase(dir)? {
            RunPhase::Running(identity, handle) => end_from_outside(&handle, identity, dir)?,
            // The supervisor process is a child of this process whose exit status is not collected
            // yet, so its id cannot belong to another process.
            _ => drop(shim.kill()),
        }
    }
    Ok(read_end)
}

/// Reads the output until it ends, the deadline passes or the caller no longer needs the check.
///
/// The supervisor process also keeps the output pipe open, so the output ends only when the
/// supervisor ends. A process that the check left behind delays the end of the output only until
/// the supervisor has ended the process.
fn read_output_until(
    shim: &mut Child,
    output_ends: &mut HeadAndTail,
    deadline: Option<Instant>,
    still_needed: StillNeeded<'_>,
) -> Result<ReadEnd, AgentError> {
    let Some(output) = &mut shim.stdout else {
        return Ok(ReadEnd::EndOfOutput);
    };
    let mut buffer = [0; 64 * 1024];
    let mut next_check = still_needed.map(|_| Instant::now() + CANCEL_POLL_INTERVAL);
    loop {
        // Check the clock in every round, because a check that prints without pause never lets
        // `poll` time out.
        let now = Instant::now();
        if deadline.is_some_and(|time| time <= now) {
            return Ok(ReadEnd::TimedOut);
        }
        if next_check.is_some_and(|time| time <= now) {
            if still_needed.is_some_and(|is_needed| !is_needed()) {
                return Ok(ReadEnd::NoLongerNeeded);
            }
            next_check = Some(now + CANCEL_POLL_INTERVAL);
        }
        let until = [deadline, next_check].into_iter().flatten().min();
        let ready = poll_until(&mut [PollFd::new(&*output, PollFlags::IN)], until);
        if !ready.map_err(|error| errors::kernel_error("wait for the check's output", error))? {
            continue;
        }
        match output.read(&mut buffer) {
            Ok(0) => return Ok(ReadEnd::EndOfOutput),
            Ok(length) => output_ends.push(&buffer[..length]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(errors::kernel_error("read the check's output", error)),
        }
    }
}

/// Collects the beginning and the end of an output of any length. The beginning often shows the
/// first error, and the end shows the totals.
#[derive(Default)]
struct HeadAndTail {
    head: Vec<u8>,
    tail: Vec<u8>,
    /// The number of bytes that were added after the kept beginning of the output was full.
    bytes_after_head: usize,
}

impl HeadAndTail {
    fn push(&mut self, bytes: &[u8]) {
        let (head, rest) = bytes.split_at(bytes.len().min(MAX_HEAD_BYTES - self.head.len()));
        self.head.extend_from_slice(head);
        self.bytes_after_head += rest.len();
        self.tail
            .extend_from_slice(&rest[rest.len().saturating_sub(MAX_OUTPUT_BYTES)..]);
        // Drop old bytes only when the tail is twice as long as needed, so that many small writes
        // cost little.
        if self.tail.len() > 2 * MAX_OUTPUT_BYTES {
            self.tail.drain(..self.tail.len() - MAX_OUTPUT_BYTES);
        }
    }

    fn into_text(self) -> String {
        let room = MAX_OUTPUT_BYTES - MAX_HEAD_BYTES;
        if self.bytes_after_head <= room {
            let whole = [self.head, self.tail].concat();
            return last_text(&whole, MAX_OUTPUT_BYTES);
        }
        let mark = format!("\n[… {} bytes left out …]\n", self.bytes_after_head - room);
        let head = first_text(&self.head, MAX_HEAD_BYTES);
        let end = last_text(
            &self.tail[self.tail.len().saturating_sub(room)..],
            room - mark.len(),
        );
        format!("{head}{mark}{end}")
    }
}

/// Converts the beginning of `bytes` to text of at most `max` bytes.
fn first_text(bytes: &[u8], max: usize) -> String {
    // If the cut at the end split a character, drop the first part of that character.
    let cut = match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        _ => bytes.len(),
    };
    let text = String::from_utf8_lossy(&bytes[..cut]);
    // Cut the text again, because each invalid byte became three bytes of text.
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

/// Converts the end of `bytes` to text of at most `max` bytes.
fn last_text(bytes: &[u8], max: usize) -> String {
    let broken = bytes
        .iter()
        .take(3)
        .take_while(|byte| (**byte & 0xc0) == 0x80)
        .count();
    let text = String::from_utf8_lossy(&bytes[broken..]);
    let mut start = text.len().saturating_sub(max);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    text[start..].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_output_is_bounded_and_valid_text() {
        for (piece, times) in [
            (&b"line\n"[..], 100_000),
            ("ä€🦀".as_bytes(), 50_000),
            (&[0xff; 7], 50_000),
            (b"short", 1),
        ] {
            let mut output_ends = HeadAndTail::default();
            output_ends.push(b"first: ");
            for _ in 0..times {
                output_ends.push(piece);
            }
            assert!(output_ends.tail.capacity() < 8 * MAX_OUTPUT_BYTES);
            let text = output_ends.into_text();
            assert!(text.len() <= MAX_OUTPUT_BYTES, "{}", text.len());
            assert!(text.starts_with("first: "), "{}", &text[..20]);
            assert!(text.ends_with(String::from_utf8_lossy(piece).as_ref()));
            assert_eq!(text.contains("bytes left out"), times > 1);
            assert!(!text.contains('\u{fffd}') || piece[0] == 0xff);
        }
    }
}
