//! Finds the processes of a launch and ends them.
//!
//! The caller decides when a launch ends. Signals reach a process only through its pidfd (see
//! [`crate::process`]), so a reused process number is never hit.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use regatta_engine::ports::agents::ProcessIdentity;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::cgroup::Cgroup;
use crate::process::{Process, boot_id};

/// The interval at which the tree is listed while its processes end.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The time that processes may take to stop before they are killed anyway. A process inside a
/// system call may not stop.
const FREEZE_TIMEOUT: Duration = Duration::from_millis(100);

/// The processes that were asked to end: number, start time and program name.
pub(crate) type SignalledProcesses = HashSet<(u32, u64, String)>;

/// The marks by which the processes of one launch are found.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProcessTree {
    /// The shim. Its descendants belong to the launch, the shim itself does not. While it lives, it
    /// is the subreaper that inherits every escaped process, so all processes of the launch are
    /// below it.
    pub(crate) shim: Option<ProcessIdentity>,
    /// The program, which belongs to the launch with its descendants.
    pub(crate) program: Option<ProcessIdentity>,
    /// The mark of the launch: every process that carries it belongs to the launch, with its
    /// descendants. Without a live shim, the mark misses only a process that left its parent and
    /// cleared its environment.
    pub(crate) mark: Option<String>,
    /// The launch's control group: every process in it belongs to the launch. It is set once the
    /// shim, which starts the program from within the group, has left the group.
    pub(crate) cgroup: Arc<OnceLock<Cgroup>>,
}

impl ProcessTree {
    /// Lists the living processes of the launch, never the shim or the caller.
    pub(crate) fn list_living(&self) -> io::Result<Vec<Process>> {
        let boot = boot_id()?;
        let matches = |identity: &Option<ProcessIdentity>, process: &Process| {
            identity.as_ref().is_some_and(|identity| {
                identity.pid == process.pid
                    && identity.start_ticks == process.start_ticks
                    && identity.boot_id == boot
            })
        };
        let own_pid = std::process::id();
        let processes = Process::list_all()?;
        // The members are listed after the processes. If a number passes to another process
        // meanwhile, that process has another start time than the one read above, and no signal
        // reaches it (P5).
        let members: HashSet<u32> = self
            .cgroup
            .get()
            .map(Cgroup::members)
            .unwrap_or_default()
            .into_iter()
            .collect();
        let mut children: HashMap<u32, Vec<&Process>> = HashMap::new();
        for process in &processes {
            children
                .entry(process.parent_pid)
                .or_default()
                .push(process);
        }
        let mut launch_pids = HashSet::new();
        let mut pending: Vec<&Process> = Vec::new();
        for process in &processes {
            let is_shim = matches(&self.shim, process);
            // When one of the daemon's own agents started this daemon, the daemon must not end
            // everything that it runs itself.
            if process.pid == own_pid && !is_shim {
                continue;
            }
            let is_member = members.contains(&process.pid);
            if !is_shim
                && (is_member
                    || matches(&self.program, process)
                    || self
                        .mark
                        .as_ref()
                        .is_some_and(|mark| process.has_mark(mark)))
            {
                launch_pids.insert(process.pid);
                pending.push(process);
            } else if is_shim {
                pending.push(process);
            }
        }
        while let Some(process) = pending.pop() {
            for child in children.get(&process.pid).into_iter().flatten() {
                if child.pid != own_pid
                    && !matches(&self.shim, child)
                    && launch_pids.insert(child.pid)
                {
                    pending.push(child);
                }
            }
        }
        Ok(processes
            .iter()
            .filter(|process| !process.is_zombie && launch_pids.contains(&process.pid))
            .cloned()
            .collect())
    }

    /// Lists most of the living processes below a live shim. It reads only the tree and not the
    /// whole machine. That is enough when the caller repeats its request or the control group does
    /// the killing.
    fn list_below_shim(&self) -> io::Result<Vec<Process>> {
        let Some(shim) = &self.shim else {
            return self.list_living();
        };
        let (mut pending, mut known) = (vec![shim.pid], HashSet::from([shim.pid]));
        let mut found: Vec<Process> = Vec::new();
        while let Some(parent) = pending.pop() {
            // A process that ended meanwhile has left its children to the shim.
            let Some(children) = Process::child_pids(parent) else {
                if parent == shim.pid {
                    return self.list_living();
                }
                continue;
            };
            for child in children {
                // The parent is compared again, because the number may have passed to another
                // process (P5).
                if let Some(process) =
                    Process::read(child).filter(|process| known.contains(&process.parent_pid))
                    && known.insert(child)
                {
                    pending.push(child);
                    found.push(process);
                }
            }
        }
        if let Some(cgroup) = self.cgroup.get() {
            let other_members = cgroup
                .members()
                .into_iter()
                .filter(|member| !known.contains(member))
                .filter_map(Process::read);
            let other_members: Vec<Process> = other_members.collect();
            let current_members: HashSet<u32> = cgroup.members().into_iter().collect();
            found.extend(
                other_members
                    .into_iter()
                    .filter(|process| current_members.contains(&process.pid)),
            );
        }
        found.retain(|process| !process.is_zombie);
        Ok(found)
    }

    /// Asks every process to end that has not been asked before, because many programs drop
    /// everything at the second request. A stopped process is woken so that it can react.
    ///
    /// A process that has changed its program since counts as not asked: a shell's child between
    /// fork and exec still has the shell's trap, which swallows the request.
    pub(crate) fn terminate(&self, signalled: &mut SignalledProcesses) -> io::Result<()> {
        for process in self.list_below_shim()? {
            if signalled.insert((process.pid, process.start_ticks, process.name.clone())) {
                process.signal(Signal::TERM);
                process.signal(Signal::CONT);
            }
        }
        Ok(())
    }

    /// Kills every process of the launch that exists now.
    pub(crate) fn kill(&self) -> io::Result<()> {
        if let Some(cgroup) = self.cgroup.get() {
            cgroup.kill();
            // A process that left the group is below the shim or carries the mark.
            if self.shim.is_some() && self.list_below_shim()?.is_empty() {
                return Ok(());
            }
        }
        self.freeze()?;
        for process in self.list_living()? {
            process.signal(Signal::KILL);
        }
        Ok(())
    }

    /// Stops every process, until a listing shows no new and no running process. Otherwise a fork
    /// that is under way when its parent is killed would leave a child that no longer leads back to
    /// the launch.
    fn freeze(&self) -> io::Result<()> {
        let deadline = Instant::now() + FREEZE_TIMEOUT;
        let (mut signalled, mut groups) = (HashSet::new(), HashSet::new());
        loop {
            let mut is_any_running = false;
            for process in self.list_living()? {
                let is_new = signalled.insert((process.pid, process.start_ticks));
                if is_new {
                    process.signal(Signal::STOP);
                } else if process.is_stopped
                    && groups.insert(process.process_group)
                    && !self.is_own_group(process.process_group)
                {
                    // The kernel stops a whole group at once, including a process that is being
                    // forked. That catches a tree that forks faster than it can be listed. The
                    // group's number cannot have passed to others (P5), because a stopped member of
                    // this launch keeps it.
                    stop_group(process.process_group);
                }
                is_any_running |= is_new || !process.is_stopped;
            }
            if !is_any_running || Instant::now() >= deadline {
                return Ok(());
            }
        }
    }

    /// Returns whether a group holds the shim or the caller, which must keep running.
    fn is_own_group(&self, group: u32) -> bool {
        let shim = self.shim.as_ref().map(|identity| identity.pid);
        [Some(std::process::id()), shim]
            .into_iter()
            .flatten()
            .filter_map(Process::read)
            .any(|process| process.process_group == group)
    }

    /// Ends the tree from outside: asks its processes to end, waits for `grace`, and kills them.
    /// Returns the processes that are left at the deadline.
    pub(crate) fn end(&self, grace: Duration, deadline: Instant) -> io::Result<Vec<Process>> {
        let kill_at = Instant::now() + grace;
        if !grace.is_zero() {
            // Without a subreaper, even asking may orphan a child in the middle of a fork.
            self.freeze()?;
            self.terminate(&mut SignalledProcesses::new())?;
        }
        let mut empty_listings = 0;
        loop {
            let remaining = self.list_living()?;
            if remaining.is_empty() {
                // A process in the middle of an exec briefly shows no environment, so the tree must
                // be empty twice.
                empty_listings += 1;
                if empty_listings == 2 {
                    return Ok(remaining);
                }
            } else {
                empty_listings = 0;
                if Instant::now() >= deadline {
                    return Ok(remaining);
                }
                if Instant::now() >= kill_at {
                    self.kill()?;
                }
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

fn stop_group(group: u32) {
    if let Some(group) = i32::try_from(group).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::STOP);
    }
}
