//! Identifies, reads and signals single processes so that no other process can be mistaken for
//! them.
//!
//! The kernel reuses process ids. A process is therefore identified by its id and its start time,
//! and a signal goes through a pidfd that was opened before the start time was compared (P5). If
//! another process gets the id in between, the pidfd still refers to the old process, which is
//! gone.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use regatta_engine::ports::agents::ProcessIdentity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// The environment variable whose value, the mark, identifies all processes of one started program.
pub(crate) const MARK_VARIABLE: &str = "REGATTA_ATTEMPT_MARK";

/// The maximum number of times that a process in the middle of an exec is read again, one
/// millisecond apart, until its data is complete.
const MAX_EXEC_READS: u32 = 200;

/// The fields of `/proc/PID/stat` that Regatta uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// The name of the process's program, which the kernel shortens.
    pub(crate) name: String,
    pub(crate) parent_pid: u32,
    /// The id of the process group to which the process belongs.
    pub(crate) process_group: u32,
    pub(crate) start_ticks: u64,
    /// True if the process has ended and its parent has not collected its exit status yet.
    pub(crate) is_zombie: bool,
    /// True if a signal has stopped the process, so that it cannot be in the middle of a fork.
    pub(crate) is_stopped: bool,
}

impl Process {
    /// Reads the process with this id, or returns `None` if there is none.
    pub(crate) fn read(pid: u32) -> Option<Process> {
        // The program's name may contain any byte, so the file need not be UTF-8.
        Process::parse(&String::from_utf8_lossy(
            &fs::read(format!("/proc/{pid}/stat")).ok()?,
        ))
    }

    fn parse(stat: &str) -> Option<Process> {
        // The program's name is in parentheses and may itself contain parentheses and spaces, so
        // split at the last closing parenthesis.
        let (pid, rest) = stat.split_once(' ')?;
        let (name, rest) = rest.rsplit_once(')')?;
        let mut fields = rest.split_ascii_whitespace();
        let state = fields.next()?;
        let parent_pid = fields.next()?.parse().ok()?;
        let process_group = fields.next()?.parse().ok()?;
        // Skip to field 20 of `/proc/PID/stat`, the number of threads, because five fields are
        // already read. Then skip to field 22, the start time.
        let threads: u32 = fields.nth(14)?.parse().ok()?;
        let start_ticks = fields.nth(1)?.parse().ok()?;
        // Check the number of threads too, because a process whose first thread has ended looks
        // like a zombie while its other threads still run.
        let is_zombie = matches!(state, "Z" | "X") && threads <= 1;
        let is_stopped = matches!(state, "T" | "t");
        Some(Process {
            pid: pid.parse().ok()?,
            name: name.trim_start_matches('(').to_owned(),
            parent_pid,
            process_group,
            start_ticks,
            is_zombie,
            is_stopped,
        })
    }

    /// Lists all processes on this machine that this user may see.
    pub(crate) fn list_all() -> io::Result<Vec<Process>> {
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let pid = entry?
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            found.extend(pid.and_then(Process::read));
        }
        Ok(found)
    }

    /// Returns the ids of a process's children, or `None` if the kernel does not list the children.
    /// A child that starts or ends meanwhile may be missing.
    pub(crate) fn child_pids(pid: u32) -> Option<Vec<u32>> {
        let mut found = Vec::new();
        for thread in fs::read_dir(format!("/proc/{pid}/task")).ok()? {
            let listed = fs::read_to_string(thread.ok()?.path().join("children")).ok()?;
            found.extend(
                listed
                    .split_ascii_whitespace()
                    .filter_map(|pid| pid.parse::<u32>().ok()),
            );
        }
        Some(found)
    }

    /// Returns whether the environment with which the process started contains this mark (the text
    /// that identifies one started program).
    pub(crate) fn has_mark(&self, mark: &str) -> bool {
        for _ in 0..MAX_EXEC_READS {
            let Ok(environment) = fs::read(format!("/proc/{}/environ", self.pid)) else {
                return false;
            };
            let value =
                |entry| <[u8]>::strip_prefix(entry, MARK_VARIABLE.as_bytes())?.strip_prefix(b"=");
            if environment
                .split(|byte| *byte == 0)
                .any(|entry| value(entry) == Some(mark.as_bytes()))
            {
                return true;
            }
            if !environment.is_empty() || !self.is_in_exec() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    }

    /// Returns whether the process is in the middle of an exec, when its new memory is still empty
    /// and shows no environment.
    ///
    /// Such a process must be read again after the exec. Otherwise it is not recognised as part of
    /// the launch and is not killed, which happened on a busy machine.
    fn is_in_exec(&self) -> bool {
        let Ok(stat) = fs::read(format!("/proc/{}/stat", self.pid)) else {
            return false;
        };
        let stat = String::from_utf8_lossy(&stat);
        // A process in the middle of an exec has a new memory, whose size (field 23 of
        // `/proc/PID/stat`) is not 0, but no arguments yet (field 48, their address). For a kernel
        // thread the size is 0.
        let field = |number: usize| {
            stat.rsplit_once(')')?
                .1
                .split_ascii_whitespace()
                .nth(number - 3)
        };
        field(23).is_some_and(|size| size != "0") && field(48) == Some("0")
    }

    /// Returns the data that identify this process on disk: its id, its start time and the
    /// machine's boot.
    pub(crate) fn identity(&self) -> io::Result<ProcessIdentity> {
        Ok(ProcessIdentity {
            pid: self.pid,
            start_ticks: self.start_ticks,
            boot_id: boot_id()?,
        })
    }

    /// Sends a signal to this process. Does nothing if the process has ended, even if another
    /// process has its id now.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Ok(Some(handle)) = ProcessHandle::open_pid(self.pid, self.start_ticks) {
            handle.signal(signal);
        }
    }
}

/// Returns the kernel's random id of the machine's current boot, which changes at each reboot.
pub(crate) fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?
        .trim()
        .to_owned())
}

/// A pidfd (a file descriptor that refers to one process) of a process that was alive when the
/// pidfd was opened.
pub(crate) struct ProcessHandle(OwnedFd);

impl ProcessHandle {
    /// Opens the process with this identity. Returns `None` if that process has ended.
    pub(crate) fn open(identity: &ProcessIdentity) -> io::Result<Option<ProcessHandle>> {
        if boot_id()? != identity.boot_id {
            return Ok(None);
        }
        ProcessHandle::open_pid(identity.pid, identity.start_ticks)
    }

    fn open_pid(pid: u32, start_ticks: u64) -> io::Result<Option<ProcessHandle>> {
        let Some(number) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
            return Ok(None);
        };
        let fd = match pidfd_open(number, PidfdFlags::empty()) {
            Ok(fd) => fd,
            // Opening fails in this way if the process is gone, or if its id now belongs to a
            // thread of another process.
            Err(Errno::SRCH | Errno::INVAL | Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let is_same = Process::read(pid)
            .is_some_and(|process| process.start_ticks == start_ticks && !process.is_zombie);
        Ok(is_same.then_some(ProcessHandle(fd)))
    }

    /// Sends a signal to the process. Does nothing if the process has ended.
    pub(crate) fn signal(&self, signal: Signal) {
        let _ = pidfd_send_signal(&self.0, signal);
    }

    /// Waits until the process has ended or the deadline has passed. Returns whether it has ended.
    pub(crate) fn wait_until(&self, deadline: Instant) -> io::Result<bool> {
        Ok(poll_until(
            &mut [PollFd::new(&self.0, PollFlags::IN)],
            Some(deadline),
        )?)
    }
}

/// Waits until one of the file descriptors is ready or the deadline has passed. Returns whether one
/// is ready.
pub(crate) fn poll_until(fds: &mut [PollFd<'_>], deadline: Option<Instant>) -> Result<bool, Errno> {
    loop {
        let remaining =
            deadline.map(|deadline| timespec(deadline.saturating_duration_since(Instant::now())));
        match poll(fds, remaining.as_ref()) {
            Ok(count) => return Ok(count > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

fn timespec(duration: Duration) -> Timespec {
    // Limit the timeout to 136 years, which is as good as forever, so that the seconds always fit
    // into the field.
    let duration = duration.min(Duration::from_secs(u64::from(u32::MAX)));
    Timespec {
        tv_sec: duration.as_secs().cast_signed(),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_name_with_parentheses_does_not_shift_the_fields() {
        let stat = "42 (a) R 1 (x) y) S 7 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 99887 1 2";
        assert_eq!(
            Process::parse(stat),
            Some(Process {
                pid: 42,
                name: "a) R 1 (x) y".into(),
                parent_pid: 7,
                process_group: 42,
                start_ticks: 99887,
                is_zombie: false,
                is_stopped: false
            })
        );
        assert_eq!(Process::parse("42 (a"), None);
        let zombie = |threads: u32| {
            Process::parse(&format!(
                "42 (a) Z 7 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 {threads} 0 99887 1 2"
            ))
        };
        assert!(zombie(1).unwrap().is_zombie);
        assert!(
            !zombie(2).unwrap().is_zombie,
            "another thread of the process is alive"
        );
    }

    #[test]
    fn p5_a_reused_pid_gives_no_handle() {
        let me = Process::read(std::process::id())
            .unwrap()
            .identity()
            .unwrap();
        assert!(ProcessHandle::open(&me).unwrap().is_some());
        assert!(
            ProcessHandle::open(&ProcessIdentity {
                start_ticks: me.start_ticks + 1,
                ..me.clone()
            })
            .unwrap()
            .is_none()
        );
        assert!(
            ProcessHandle::open(&ProcessIdentity {
                boot_id: "another boot".into(),
                ..me
            })
            .unwrap()
            .is_none()
        );
    }
}
