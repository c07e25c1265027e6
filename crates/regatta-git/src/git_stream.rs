//! Connects a git process with a client on another machine: streams the client's request to the
//! process, and the output of the process to the client.
//!
//! One thread does both, with one buffer for each direction. The thread writes to git only when git
//! can accept input, and always reads git's output first, so that git and the thread never wait for
//! each other.

use regatta_engine::ports::git::PeerStreams;
use std::io::{self, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::process::{Pid, Signal, kill_process_group};

/// The size in bytes of the buffer for each direction of a transfer.
const BUFFER_BYTES: usize = 64 << 10;

/// The reason why a transfer between git and a client was aborted.
#[derive(Debug)]
pub(crate) enum StreamFault {
    /// The client's request could not be read to its end.
    Request(io::Error),
    /// The client stopped reading the answer.
    Answer(io::Error),
    /// The git process reached its time limit.
    TimedOut,
    /// A system call on git's pipes failed.
    SystemCall(io::Error),
}

/// The last step that was taken to end a git process after an error.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TerminationStep {
    NotForced,
    /// The input of the git process was closed.
    InputClosed,
    /// The git process got the signal SIGTERM.
    Terminated,
    /// The git process got the signal SIGKILL.
    Killed,
}

/// Transfers all data between a git process and a client until the process has closed its output.
///
/// After an error, the process is ended in steps, and gets `grace` for each step: SIGTERM, then
/// SIGKILL. If the client's request was cut off, the first step is to close the process's input.
/// When the input of `git receive-pack` ends, this program waits until its helper program, which
/// unpacks the objects, has ended. `git receive-pack` then removes the directory with the objects
/// that were received so far. SIGTERM would reach both programs at the same time, and `git
/// receive-pack` could fail to remove the directory while the helper program still writes into it.
pub(crate) fn transfer(
    child: &Child,
    (stdin, mut stdout): (ChildStdin, ChildStdout),
    peer: PeerStreams<'_>,
    (mut deadline, grace): (Instant, Duration),
) -> Option<StreamFault> {
    if let Err(error) = ioctl_fionbio(&stdin, true) {
        return Some(StreamFault::SystemCall(error.into()));
    }
    let (mut stdin, mut fault, mut step) = (Some(stdin), None, TerminationStep::NotForced);
    let (mut buffer, mut request_buffer, mut unsent) =
        (vec![0; BUFFER_BYTES], vec![0; BUFFER_BYTES], 0..0);
    loop {
        let ready = wait(&stdout, stdin.as_ref(), deadline);
        let (has_output, accepts_input) = match ready {
            Ok(ready) => ready,
            Err(error) => (
                set_first_fault(&mut fault, StreamFault::SystemCall(error)),
                false,
            ),
        };
        let mut new_fault = None;
        if has_output {
            match stdout.read(&mut buffer) {
                Ok(0) => return fault,
                Ok(length) if fault.is_none() => {
                    new_fault = peer
                        .answer
                        .write_all(&buffer[..length])
                        .err()
                        .map(StreamFault::Answer)
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return fault.or(Some(StreamFault::SystemCall(error))),
            }
        } else if let Some(pipe) = stdin.as_mut().filter(|_| accepts_input) {
            if unsent.is_empty() {
                match peer.request.read(&mut request_buffer) {
                    Ok(0) => stdin = None,
                    Ok(length) => unsent = 0..length,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => new_fault = Some(StreamFault::Request(error)),
                }
            } else {
                match pipe.write(&request_buffer[unsent.clone()]) {
                    Ok(length) => unsent.start += length,
                    Err(error)
                        if matches!(
                            error.kind(),
                            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                        ) => {}
                    // Git closed its input, so stop sending. Git's exit status and output show the
                    // reason.
                    Err(_) => stdin = None,
                }
            }
        } else {
            match step {
                TerminationStep::NotForced => new_fault = Some(StreamFault::TimedOut),
                TerminationStep::InputClosed => {
                    (step, deadline) = (TerminationStep::Terminated, Instant::now() + grace);
                    signal(child, Signal::TERM);
                }
                TerminationStep::Terminated => {
                    (step, deadline) = (TerminationStep::Killed, Instant::now() + grace);
                    signal(child, Signal::KILL);
                }
                TerminationStep::Killed => return fault, // another process holds its output open
            }
        }
        if let Some(new_fault) = new_fault {
            let is_cut_off = matches!(new_fault, StreamFault::Request(_));
            set_first_fault(&mut fault, new_fault);
            (stdin, deadline) = (None, Instant::now() + grace);
            if is_cut_off {
                step = TerminationStep::InputClosed;
            } else {
                step = TerminationStep::Terminated;
                signal(child, Signal::TERM);
            }
        }
    }
}

fn set_first_fault(fault: &mut Option<StreamFault>, new_fault: StreamFault) -> bool {
    fault.get_or_insert(new_fault);
    false
}

/// Waits until git has output to read or can accept input, at most until the deadline.
fn wait(
    stdout: &ChildStdout,
    stdin: Option<&ChildStdin>,
    deadline: Instant,
) -> io::Result<(bool, bool)> {
    loop {
        let remaining = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: remaining.as_secs() as i64,
            tv_nsec: i64::from(remaining.subsec_nanos()),
        };
        let mut fds = vec![PollFd::new(stdout, PollFlags::IN)];
        fds.extend(stdin.map(|pipe| PollFd::new(pipe, PollFlags::OUT)));
        match poll(&mut fds, Some(&timeout)) {
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
            Ok(_) => {
                let is_ready =
                    |index: usize| fds.get(index).is_some_and(|fd| !fd.revents().is_empty());
                return Ok((is_ready(0), is_ready(1)));
            }
        }
    }
}

fn signal(child: &Child, signal: Signal) {
    // Signals the whole process group of the git process. The call fails if the process has just
    // ended, and this failure can be ignored.
    let _gone = kill_process_group(Pid::from_child(child), signal);
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    use super::*;

    /// A request that fails after its first bytes.
    struct CutOff(bool);

    impl Read for CutOff {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if std::mem::replace(&mut self.0, true) {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            buffer[0] = b'x';
            Ok(1)
        }
    }

    /// Runs a script whose request is cut off. Returns its exit code, or `None` when a signal ended
    /// it.
    fn exit_code_when_cut_off(script: &str, grace: Duration) -> Option<i32> {
        let mut command = Command::new("sh");
        command
            .args(["-c", script])
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let pipes = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let peer = PeerStreams {
            request: &mut CutOff(false),
            answer: &mut io::sink(),
        };
        let fault = transfer(
            &child,
            pipes,
            peer,
            (Instant::now() + Duration::from_secs(3_600), grace),
        );
        assert!(matches!(fault, Some(StreamFault::Request(_))), "{fault:?}");
        child.wait().unwrap().code()
    }

    /// D2: a process that cleans up when its input ends gets time to do so.
    #[test]
    fn d2_an_interrupted_request_closes_the_input_before_any_signal() {
        let cleans_up = "trap 'exit 9' TERM; cat > /dev/null; exit 3";
        assert_eq!(
            exit_code_when_cut_off(cleans_up, Duration::from_secs(3_600)),
            Some(3)
        );
    }

    #[test]
    fn process_that_ignores_the_end_of_its_input_is_killed() {
        let short = Duration::from_millis(1);
        for script in ["exec sleep 3600", "trap '' TERM; exec sleep 3600"] {
            assert_eq!(exit_code_when_cut_off(script, short), None, "{script}");
        }
    }
}
