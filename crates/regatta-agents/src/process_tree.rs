//! Finds and ends all processes that belong to a launch, which is one start of a program under a
//! shim (supervisor process).
//!
//! The caller decides when a launch ends. Signals reach a process only through its pidfd (see
//! [`crate::process`]), so a process that reuses an id never gets one.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use regatta_engine::ports::agents::ProcessIdentity;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::cgroup::Cgroup;
use crate::process::{Process, boot_id};

/// The interval at which the remaining processes are listed while they end.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The time that processes may take to react to a stop signal before they are killed anyway. A
/// process inside a system call may not react.
const FREEZE_TIMEOUT: Duration = Duration::from_millis(100);

/// The processes that were already asked to end: id, start time and program name of each.
pub(crate) type SignalledProcesses = HashSet<(u32, u64, String)>;

/// The facts by which all processes of one launch (one start of a program under a supervisor
/// process) are found.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProcessTree {
    /// The shim, the launch's supervisor process. The descendants of the shim belong to the launch,
    /// but the shim itself does not. While the shim lives, the kernel makes it the parent of every
    /// orphaned descendant, so all processes of the launch are below the shim.
    pub(crate) shim: Option<ProcessIdentity>,
    /// The program that this launch (one start of a program) started. The program and its
    /// descendants belong to the launch.
    pub(crate) program: Option<ProcessIdentity>,
    /// The text that every process of the launch (one start of a program) has in its environment. A
    /// process with this text belongs to the launch, together with its descendants. Without a live
    /// supervisor process, the text does not lead to a process that left its parent and cleared its
    /// environment.
    pub(crate) mark: Option<String>,
    /// The launch's control group: every process in it belongs to the launch. The group is set once
    /// the supervisor process, which starts the program from within the group, has left the group.
    pub(crate) cgroup: Arc<OnceLock<Cgroup>>,
}

impl ProcessTree {
    /// Lists the living processes of the started program, without its supervisor process and the
    /// calling process.
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
        // List the group's members after the processes. If another process gets one of the ids
        // meanwhile, it has a different start time than the process read above, so no signal
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
            // Skip the calling process and its descendants. An agent of this launch may have
            // started the calling daemon, and that daemon must not end the programs that it runs.
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

    /// Lists most of the living processes below a live supervisor process. Reads only the part of
    /// the process tree below the supervisor and not all processes of the machine. This part is
    /// enough when the caller repeats the call, or when the control group does the killing.
    fn list_below_shim(&self) -> io::Result<Vec<Process>> {
        let Some(shim) = &self.shim else {
            return self.list_living();
        };
        let (mut pending, mut known) = (vec![shim.pid], HashSet::from([shim.pid]));
        let mut found: Vec<Process> = Vec::new();
        while let Some(parent) = pending.pop() {
            // If the parent ended meanwhile, its children now belong to the supervisor process and
            // are found among its children.
            let Some(children) = Process::child_pids(parent) else {
                if parent == shim.pid {
                    return self.list_living();
                }
                continue;
            };
            for child in children {
                // Compare the parent again, because another process may have got the child's id
                // (P5).
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

    /// Asks every process of the launch to end, but each only once, because many programs stop
    /// their cleanup at the second request. Wakes stopped processes so that they can react.
    ///
    /// A process that now runs another program counts as not asked: between fork and exec a shell's
    /// child still has the shell's signal handler, which ignores the request.
    pub(crate) fn terminate(&self, signalled: &mut SignalledProcesses) -> io::Result<()> {
        for process in self.list_below_shim()? {
            if signalled.insert((process.pid, process.start_ticks, process.name.clone())) {
                process.signal(Signal::TERM);
                process.signal(Signal::CONT);
            }
        }
        Ok(())
    }

    /// Kills all processes that belong to the started program at this moment.
    pub(crate) fn kill(&self) -> io::Result<()> {
        if let Some(cgroup) = self.cgroup.get() {
            cgroup.kill();
            // Kill the processes that left the control group too. They are below the supervisor
            // process or have the mark (the text that identifies this launch) in their environment.
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

    /// Stops all processes of the launch, until a listing shows no new and no running process.
    /// Otherwise, a fork that is in progress when the parent is killed would leave a child that is
    /// no longer recognised as part of the launch.
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
                    // Stop the whole process group. The kernel stops all members at once, even a
                    // process that is being forked, so this catches a tree of processes that forks
                    // faster than it can be listed. The group's id cannot belong to other processes
                    // (P5), because a stopped member of this launch keeps the id in use.
                    stop_group(process.process_group);
                }
                is_any_running |= is_new || !process.is_stopped;
            }
            if !is_any_running || Instant::now() >= deadline {
                return Ok(());
            }
        }
    }

    /// Returns whether a process group contains the supervisor process or the calling process,
    /// which must keep running.
    fn is_own_group(&self, group: u32) -> bool {
        let shim = self.shim.as_ref().map(|identity| identity.pid);
        [Some(std::process::id()), shim]
            .into_iter()
            .flatten()
            .filter_map(Process::read)
            .any(|process| process.process_group == group)
    }

    /// Ends the launch's processes without the help of the supervisor process: asks them to end,
    /// waits for `grace`, and kills them. Returns the processes that are left at the deadline.
    pub(crate) fn end(&self, grace: Duration, deadline: Instant) -> io::Result<Vec<Process>> {
        let kill_at = Instant::now() + grace;
        if !grace.is_zero() {
            // Stop all processes first. Without a live supervisor process that adopts orphans, even
            // asking a process to end may orphan a child that is being forked.
            self.freeze()?;
            self.terminate(&mut SignalledProcesses::new())?;
        }
        let mut empty_listings = 0;
        loop {
            let remaining = self.list_living()?;
            if remaining.is_empty() {
                // Require two empty listings in a row, because a process in the middle of an exec
                // briefly shows no environment and is missed.
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
