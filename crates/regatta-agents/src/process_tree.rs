//! Finds the processes of a launch and ends them.

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
        let is = |who: &Option<ProcessIdentity>, process: &Process| {
            who.as_ref().is_some_and(|who| {
                who.pid == process.pid
                    && who.start_ticks == process.start_ticks
                    && who.boot_id == boot
            })
        };
        let me = std::process::id();
        let all = Process::list_all()?;
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
        for process in &all {
            children
                .entry(process.parent_pid)
                .or_default()
                .push(process);
        }
        let mut found = HashSet::new();
        let mut open: Vec<&Process> = Vec::new();
        for process in &all {
            let shim = is(&self.shim, process);
            // When one of the daemon's own agents started this daemon, the daemon must not end
            // everything that it runs itself.
            if process.pid == me && !shim {
                continue;
            }
            let member = members.contains(&process.pid);
            if !shim
                && (member
                    || is(&self.program, process)
                    || self
                        .mark
                        .as_ref()
                        .is_some_and(|mark| process.has_mark(mark)))
            {
                found.insert(process.pid);
                open.push(process);
            } else if shim {
                open.push(process);
            }
        }
        while let Some(process) = open.pop() {
            for child in children.get(&process.pid).into_iter().flatten() {
                if child.pid != me && !is(&self.shim, child) && found.insert(child.pid) {
                    open.push(child);
                }
            }
        }
        Ok(all
            .iter()
            .filter(|process| !process.is_zombie && found.contains(&process.pid))
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
        let (mut open, mut known) = (vec![shim.pid], HashSet::from([shim.pid]));
        let mut found: Vec<Process> = Vec::new();
        while let Some(parent) = open.pop() {
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
                    open.push(child);
                    found.push(process);
                }
            }
        }
        if let Some(cgroup) = self.cgroup.get() {
            let more = cgroup
                .members()
                .into_iter()
                .filter(|member| !known.contains(member))
                .filter_map(Process::read);
            let more: Vec<Process> = more.collect();
            let still: HashSet<u32> = cgroup.members().into_iter().collect();
            found.extend(
                more.into_iter()
                    .filter(|process| still.contains(&process.pid)),
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
    pub(crate) fn terminate(&self, asked: &mut SignalledProcesses) -> io::Result<()> {
        for process in self.list_below_shim()? {
            if asked.insert((process.pid, process.start_ticks, process.name.clone())) {
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
        let patience = Instant::now() + FREEZE_TIMEOUT;
        let (mut told, mut groups) = (HashSet::new(), HashSet::new());
        loop {
            let mut moving = false;
            for process in self.list_living()? {
                let fresh = told.insert((process.pid, process.start_ticks));
                if fresh {
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
                moving |= fresh || !process.is_stopped;
            }
            if !moving || Instant::now() >= patience {
                return Ok(());
            }
        }
    }

    /// Returns whether a group holds the shim or the caller, which must keep running.
    fn is_own_group(&self, group: u32) -> bool {
        let shim = self
            .shim
            .as_ref()
            .map(|process_identity| process_identity.pid);
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
        let mut clean = 0;
        loop {
            let left = self.list_living()?;
            if left.is_empty() {
                // A process in the middle of an exec briefly shows no environment, so the tree must
                // be empty twice.
                clean += 1;
                if clean == 2 {
                    return Ok(left);
                }
            } else {
                clean = 0;
                if Instant::now() >= deadline {
                    return Ok(left);
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
