//! Collects the exit status of the shims (supervisor processes) that this process has started, so
//! that none stays a zombie (P7).
//!
//! One thread serves all shims, because a daemon with hundreds of agents cannot afford a thread and
//! its memory for each.

use std::os::fd::OwnedFd;
use std::process::Child;
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::process::poll_until;
use crate::shim::WakeupFd;

struct Reaper {
    new_children: Mutex<Vec<Child>>,
    wakeup: WakeupFd,
}

static REAPER: OnceLock<Option<Reaper>> = OnceLock::new();

/// Collects a child's exit status when the child ends. If no thread can be started for that, the
/// child stays a zombie until this process ends, which is harmless.
pub(crate) fn reap(child: Child) {
    let reaper = REAPER.get_or_init(|| {
        let wakeup = WakeupFd::new().ok()?;
        let thread = std::thread::Builder::new()
            .name("shim-reaper".to_owned())
            .stack_size(128 * 1024);
        thread.spawn(reap_loop).ok()?;
        Some(Reaper {
            new_children: Mutex::default(),
            wakeup,
        })
    });
    if let Some(reaper) = reaper {
        reaper
            .new_children
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(child);
        reaper.wakeup.wake();
    }
}

fn reap_loop() {
    // Wait until the caller of `get_or_init`, which started this thread, has set the value.
    let Some(reaper) = REAPER.wait() else { return };
    let mut children: Vec<(Child, OwnedFd)> = Vec::new();
    loop {
        for mut child in reaper
            .new_children
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .drain(..)
        {
            // The child's exit status is not collected yet, so its id cannot belong to another
            // process.
            match i32::try_from(child.id())
                .ok()
                .and_then(Pid::from_raw)
                .map(|pid| pidfd_open(pid, PidfdFlags::empty()))
            {
                Some(Ok(handle)) => children.push((child, handle)),
                _ => drop(child.try_wait()),
            }
        }
        let mut fds = vec![PollFd::new(&reaper.wakeup.0, PollFlags::IN)];
        fds.extend(
            children
                .iter()
                .map(|(_, handle)| PollFd::new(handle, PollFlags::IN)),
        );
        let _ = poll_until(&mut fds, None);
        reaper.wakeup.clear();
        children.retain_mut(|(child, _)| matches!(child.try_wait(), Ok(None)));
    }
}
