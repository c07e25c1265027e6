//! Runs a check: one command line to its end, and the last of what it printed.

use std::fs;
use std::io::{Read, Write};
use std::process::{Child, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use regatta_engine::ports::agents::{AgentError, Check, CheckResult, Exit};
use rustix::event::{PollFd, PollFlags};

use crate::confine;
use crate::environment;
use crate::process::{MARK, ready_until};
use crate::rundir::{Input, LaunchRecord, Mode, RunDir, fresh_mark, write_atomic};
use crate::shim::Limits;
use crate::socket::Command;
use crate::supervise::{AgentsAdapter, Phase, end_over_the_head_of, finish, phase, reap_later};
use crate::tree::Tree;
use crate::{shut_in, words};

/// How much of the output is kept.
pub(crate) const TAIL: usize = 16 * 1024;

/// How long a check whose time is up may take to end by itself.
pub(crate) const GRACE: Duration = Duration::from_secs(1);

/// How long its shim may take on top of that.
const SHIM_PATIENCE: Duration = Duration::from_secs(3);

/// How often it is asked whether a check is still wanted.
const LOOK: Duration = Duration::from_millis(200);

/// Whether a check is still wanted; one that nobody is asked about is.
pub(crate) type Wanted<'a> = Option<&'a dyn Fn() -> bool>;

/// Why no more of a check's output is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    /// There is no more.
    Ended,
    TimeIsUp,
    Unwanted,
}

/// Runs a check under a shim of its own, so that its time limit holds for whatever it starts. Nothing is said of one that
/// was no longer wanted.
pub(crate) fn run(
    adapter: &AgentsAdapter,
    check: &Check,
    wanted: Wanted<'_>,
) -> Result<Option<CheckResult>, AgentError> {
    let wanted: &dyn Fn() -> bool = &|| !adapter.resting.load(Ordering::SeqCst) && wanted.is_none_or(|it| it());
    if !wanted() {
        return Ok(None);
    }
    let mark = fresh_mark().map_err(|error| words::kernel("give random bytes", error))?;
    let path = adapter.checks_path().join(&mark);
    let dir = RunDir::create(path.clone()).map_err(|error| words::file("create", &path, error))?;
    let result = run_in(adapter, &dir, &mark, (check, Some(wanted)));
    drop(fs::remove_dir_all(&dir.0));
    result
}

fn run_in(
    adapter: &AgentsAdapter,
    dir: &RunDir,
    mark: &str,
    (check, wanted): (&Check, Wanted<'_>),
) -> Result<Option<CheckResult>, AgentError> {
    let tmp = RunDir::create(dir.path("tmp")).map_err(|error| words::file("create", &dir.path("tmp"), error))?.0;
    let shut = shut_in::prepare(adapter, dir, check)?;
    let prepare = || -> std::io::Result<()> {
        let record = LaunchRecord {
            v: 1,
            mode: Mode::Check,
            argv: shut.argv(check),
            dir: std::path::absolute(&check.dir)?,
            mark: mark.to_owned(),
            input: Input::default(),
            secrets: vec![],
            limits: Limits::default(),
            ways: shut.prepared.ways.clone(),
            held: false,
            without_cgroup: true,
            leash: None,
            relay: None,
            attended: None,
        };
        write_atomic(&dir.launch_file(), &serde_json::to_vec(&record)?)
    };
    prepare().map_err(|error| words::file("write", &dir.launch_file(), error))?;
    let environment = environment::build(shut.home.as_deref(), &tmp, &shut.environment(check), &[(MARK, mark.into())]);
    let now = Instant::now();
    let deadline = now.checked_add(check.timeout);
    let mut shim = adapter.spawn_shim(dir, &environment, Stdio::piped())?;

    let mut tail = Tail::default();
    let over = match run_out(&mut shim, dir, &mut tail, (deadline, wanted)) {
        Ok(over) => over,
        Err(error) => {
            // Without its lifeline the shim ends the check by itself.
            drop(shim.stdin.take());
            reap_later(shim, false);
            return Err(error);
        }
    };
    drop(shim.wait());
    let exit = match phase(dir)? {
        Phase::Ended(exit) => exit,
        _ => {
            let program = dir.program().ok().flatten().map(|it| it.identity);
            let tree = Tree { program, mark: Some(mark.to_owned()), ..Tree::default() };
            finish(dir, &tree, Duration::ZERO, &Exit::Lost)?
        }
    };
    if over == Over::Unwanted {
        return Ok(None);
    }
    let timed_out = over == Over::TimeIsUp;
    engaged(CheckResult { exit, timed_out, output: tail.into_text(), sandbox: shut.description() }).map(Some)
}

/// What a check said, if it was started: one that could not be shut in as it should has said nothing of what it judges.
pub(crate) fn engaged(result: CheckResult) -> Result<CheckResult, AgentError> {
    let Exit::Code(code) = result.exit else { return Ok(result) };
    let last = result.output.trim_end().lines().next_back().unwrap_or_default();
    match result.sandbox.as_ref().and_then(|_| confine::failure(code, last)) {
        Some(why) => Err(words::check_not_confined(&why)),
        None => Ok(result),
    }
}

/// Reads the check's output to its end, and ends the check when its time is up or nobody wants it any more.
fn run_out(
    shim: &mut Child,
    dir: &RunDir,
    tail: &mut Tail,
    (deadline, wanted): (Option<Instant>, Wanted<'_>),
) -> Result<Over, AgentError> {
    let over = drain(shim, tail, deadline, wanted)?;
    if over == Over::Ended {
        return Ok(over);
    }
    if let Some(control) = &mut shim.stdin {
        // A shim that has just ended does not read it, and need not.
        drop(Command::stop(GRACE).to_line().and_then(|it| control.write_all(&it)));
    }
    if drain(shim, tail, Some(Instant::now() + GRACE + SHIM_PATIENCE), None)? != Over::Ended {
        match phase(dir)? {
            Phase::Alive(identity, handle) => end_over_the_head_of(&handle, identity, dir)?,
            // It is our own child, not yet reaped, so its number is surely its.
            _ => drop(shim.kill()),
        }
    }
    Ok(over)
}

/// Reads what the check prints until nobody can print any more, or the deadline, or nobody wants it.
///
/// The shim holds the pipe too, so its end is also the shim's: a process that the check left behind
/// delays it only until the shim has ended that process.
fn drain(shim: &mut Child, tail: &mut Tail, deadline: Option<Instant>, wanted: Wanted<'_>) -> Result<Over, AgentError> {
    let Some(output) = &mut shim.stdout else { return Ok(Over::Ended) };
    let mut buffer = [0; 64 * 1024];
    let mut look_at = wanted.map(|_| Instant::now() + LOOK);
    loop {
        // A flood is always ready: the clock must be asked, not only the pipe.
        let now = Instant::now();
        if deadline.is_some_and(|it| it <= now) {
            return Ok(Over::TimeIsUp);
        }
        if look_at.is_some_and(|it| it <= now) {
            if wanted.is_some_and(|it| !it()) {
                return Ok(Over::Unwanted);
            }
            look_at = Some(now + LOOK);
        }
        let until = [deadline, look_at].into_iter().flatten().min();
        let ready = ready_until(&mut [PollFd::new(&*output, PollFlags::IN)], until);
        if !ready.map_err(|error| words::kernel("wait for the check's output", error))? {
            continue;
        }
        match output.read(&mut buffer) {
            Ok(0) => return Ok(Over::Ended),
            Ok(length) => tail.push(&buffer[..length]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(words::kernel("read the check's output", error)),
        }
    }
}

/// The last part of a stream of any length.
#[derive(Default)]
struct Tail(Vec<u8>);

impl Tail {
    fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(&bytes[bytes.len().saturating_sub(TAIL)..]);
        // Moved only when twice too long, so that many small writes cost little.
        if self.0.len() > 2 * TAIL {
            self.0.drain(..self.0.len() - TAIL);
        }
    }

    fn into_text(self) -> String {
        let mut bytes = &self.0[self.0.len().saturating_sub(TAIL)..];
        if self.0.len() > TAIL {
            // The cut may have split a character: what is left of it goes.
            let broken = bytes.iter().take(3).take_while(|byte| (**byte & 0xc0) == 0x80).count();
            bytes = &bytes[broken..];
        }
        let text = String::from_utf8_lossy(bytes);
        // A byte that is no text becomes three: cut again.
        let mut start = text.len().saturating_sub(TAIL);
        while !text.is_char_boundary(start) {
            start += 1;
        }
        text[start..].to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_is_short_and_text_whatever_was_printed() {
        for (piece, times) in
            [(&b"line\n"[..], 100_000), ("ä€🦀".as_bytes(), 50_000), (&[0xff; 7], 50_000), (b"short", 1)]
        {
            let mut tail = Tail::default();
            for _ in 0..times {
                tail.push(piece);
            }
            assert!(tail.0.capacity() < 8 * TAIL);
            let text = tail.into_text();
            assert!(text.len() <= TAIL, "{}", text.len());
            assert!(text.ends_with(String::from_utf8_lossy(piece).as_ref()));
            assert!(!text.starts_with('\u{fffd}') || piece[0] == 0xff);
        }
    }
}
