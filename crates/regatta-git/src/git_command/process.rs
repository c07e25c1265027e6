//! Keeps a git process running, so that it answers one query after the other.
//!
//! `git_command.rs` starts the process. The callers know the queries and the format of the answers.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout};
use std::time::{Duration, Instant};

use regatta_engine::ports::git::GitError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::{MAX_STDOUT_BYTES, path_to_text};
use crate::errors;

/// A running git process that answers queries. Dropping this value ends the process.
#[derive(Debug)]
pub(crate) struct GitProcess {
    pub(super) child: Child,
    operation: &'static str,
    stdin: Option<ChildStdin>,
    stdout: BufReader<TimeLimitedReads>,
}

/// The output of a long-running git process. Each read has a time limit, because a hanging process
/// must not block Regatta.
#[derive(Debug)]
struct TimeLimitedReads {
    pipe: ChildStdout,
    timeout: Duration,
}

impl Read for TimeLimitedReads {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let deadline = Instant::now() + self.timeout;
        loop {
            let remaining = deadline.saturating_duration_since(Instant::now());
            let wait = Timespec {
                tv_sec: remaining.as_secs() as i64,
                tv_nsec: i64::from(remaining.subsec_nanos()),
            };
            match poll(&mut [PollFd::new(&self.pipe, PollFlags::IN)], Some(&wait)) {
                Err(Errno::INTR) => {}
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                ready => {
                    return ready
                        .map_err(io::Error::from)
                        .and_then(|_| self.pipe.read(buffer));
                }
            }
        }
    }
}

impl GitProcess {
    /// Wraps a git process that was just started. The process's input and output must be pipes.
    pub(super) fn new(
        mut child: Child,
        operation: &'static str,
        timeout: Duration,
    ) -> Result<GitProcess, GitError> {
        let (Some(stdin), Some(pipe)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(errors::unexpected(operation));
        };
        Ok(GitProcess {
            child,
            operation,
            stdin: Some(stdin),
            stdout: BufReader::new(TimeLimitedReads { pipe, timeout }),
        })
    }
    fn read_failure(&self, cause: &io::Error) -> GitError {
        if cause.kind() == io::ErrorKind::TimedOut {
            // The caller drops the [`GitProcess`] because of the returned error, and so ends the
            // process.
            return errors::took_too_long(self.operation, self.stdout.get_ref().timeout);
        }
        errors::not_started(self.operation, cause)
    }
    /// Sends a query to the running git process. The caller must have read the whole answer to the
    /// previous query.
    pub(crate) fn send(&mut self, query: &[u8]) -> Result<(), GitError> {
        let Some(stdin) = &mut self.stdin else {
            return Err(errors::unexpected(self.operation));
        };
        stdin
            .write_all(query)
            .and_then(|()| stdin.flush())
            .map_err(|cause| self.read_failure(&cause))
    }
    /// Reads the next line of the git process's output, without the newline.
    pub(crate) fn read_line(&mut self) -> Result<String, GitError> {
        let mut line = Vec::new();
        self.stdout
            .read_until(b'\n', &mut line)
            .map_err(|cause| self.read_failure(&cause))?;
        match line.pop() {
            Some(b'\n') => Ok(path_to_text(&line)),
            // The process ended before the line was complete. A retry starts a new process and may
            // succeed.
            _ => Err(errors::unexpected(self.operation)),
        }
    }
    /// Reads the next `size` bytes of the git process's output.
    pub(crate) fn read_bytes(&mut self, size: usize) -> Result<Vec<u8>, GitError> {
        if size > MAX_STDOUT_BYTES {
            return Err(errors::too_much_output(self.operation, MAX_STDOUT_BYTES));
        }
        let mut bytes = vec![0; size];
        self.stdout
            .read_exact(&mut bytes)
            .map_err(|cause| self.read_failure(&cause))?;
        Ok(bytes)
    }
}

impl Drop for GitProcess {
    fn drop(&mut self) {
        // The process ends by itself when its input is closed. If the process hangs, it is killed,
        // because this thread must not wait for it for ever.
        drop(self.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
