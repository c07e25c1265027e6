//! Finds the processes of a launch and ends them.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use regatta_engine::ports::agents::ProcessIdentity;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::cgroup::Cgroup;
use crate::process::{Process, boot_id};

/// How long a killed process may take to be gone before it is looked at again.
const ROUND: Duration = Duration::from_millis(5);

/// How long processes may take to stop before they are killed as they are; one in the kernel's hands
/// does not stop.
const FREEZE_PATIENCE: Duration = Duration::from_millis(100);

/// The processes that were asked to end: number, start and program.
pub(crate) type Asked = HashSet<(u32, u64, String)>;

/// Where to look for the processes of one launch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    /// Its descendants belong to the launch, it does not: the shim, while it lives, is the subreaper
    /// to whom every escapee falls back, so nothing is missed and the rest need not be looked for.
    pub(crate) shim: Option<ProcessIdentity>,
    /// It and its descendants belong to the launch.
    pub(crate) program: Option<ProcessIdentity>,
    /// Whatever carries this mark belongs to the launch, and its descendants with it. Without a live
    /// shim this misses only a process that left its parent and wiped its environment.
    pub(crate) mark: Option<String>,
    /// Whatever is in this control group belongs to the launch. Set once the shim, who starts the program from
    /// within, has left it.
    pub(crate) cgroup: Arc<OnceLock<Cgroup>>,
}

impl Tree {
    /// Lists the living processes of the launch, never the shim or the caller.
    pub(crate) fn living(&self) -> io::Result<Vec<Process>> {
        let boot = boot_id()?;
        let is = |who: &Option<ProcessIdentity>, it: &Process| {
            who.as_ref()
                .is_some_and(|who| who.pid == it.pid && who.start_ticks == it.start_ticks && who.boot_id == boot)
        };
        let me = std::process::id();
        let all = Process::all()?;
        // Listed after them: should a number have passed to one in the group meanwhile, its start is another than the
        // one that we have read, and nobody is signalled (P5).
        let members: HashSet<u32> = self.cgroup.get().map(Cgroup::members).unwrap_or_default().into_iter().collect();
        let mut children: HashMap<u32, Vec<&Process>> = HashMap::new();
        for process in &all {
            children.entry(process.parent).or_default().push(process);
        }
        let mut found = HashSet::new();
        let mut open: Vec<&Process> = Vec::new();
        for process in &all {
            let shim = is(&self.shim, process);
            // A daemon started by one of its own agents is no reason to end everything it runs.
            if process.pid == me && !shim {
                continue;
            }
            let member = members.contains(&process.pid);
            if !shim
                && (member
                    || is(&self.program, process)
                    || self.mark.as_ref().is_some_and(|mark| process.carries(mark)))
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
        Ok(all.iter().filter(|it| !it.zombie && found.contains(&it.pid)).cloned().collect())
    }

    /// Lists most of the living processes below a live shim, at the price of the tree and not of the machine: enough
    /// for who is asked again, or is killed by its control group.
    fn nearby(&self) -> io::Result<Vec<Process>> {
        let Some(shim) = &self.shim else { return self.living() };
        let (mut open, mut known) = (vec![shim.pid], HashSet::from([shim.pid]));
        let mut found: Vec<Process> = Vec::new();
        while let Some(parent) = open.pop() {
            // One that ended meanwhile has no children that it would not have left to the shim.
            let Some(children) = Process::children(parent) else {
                if parent == shim.pid {
                    return self.living();
                }
                continue;
            };
            for child in children {
                // Its parent is looked at again: the number may have passed to a stranger meanwhile (P5).
                if let Some(process) = Process::read(child).filter(|it| known.contains(&it.parent))
                    && known.insert(child)
                {
                    open.push(child);
                    found.push(process);
                }
            }
        }
        if let Some(cgroup) = self.cgroup.get() {
            let more = cgroup.members().into_iter().filter(|it| !known.contains(it)).filter_map(Process::read);
            let more: Vec<Process> = more.collect();
            let still: HashSet<u32> = cgroup.members().into_iter().collect();
            found.extend(more.into_iter().filter(|it| still.contains(&it.pid)));
        }
        found.retain(|it| !it.zombie);
        Ok(found)
    }

    /// Asks every process to end that has not been asked before: to many a program a second request
    /// means to drop everything. A stopped one is woken, or it would never hear.
    ///
    /// One that runs another program since counts as not asked: a shell's child between fork and exec
    /// still has the shell's trap and swallows the request.
    pub(crate) fn ask(&self, asked: &mut Asked) -> io::Result<()> {
        for process in self.nearby()? {
            if asked.insert((process.pid, process.start_ticks, process.name.clone())) {
                process.signal(Signal::TERM);
                process.signal(Signal::CONT);
            }
        }
        Ok(())
    }

    /// Kills every process that is there now.
    pub(crate) fn kill(&self) -> io::Result<()> {
        if let Some(cgroup) = self.cgroup.get() {
            cgroup.kill();
            // Who got out of it, if anyone did, is below the shim or carries the mark.
            if self.shim.is_some() && self.nearby()?.is_empty() {
                return Ok(());
            }
        }
        self.freeze()?;
        for process in self.living()? {
            process.signal(Signal::KILL);
        }
        Ok(())
    }

    /// Stops every process, until a look shows nobody new and nobody moving: a fork that is under way
    /// when its parent is killed would otherwise leave a child that nothing leads to.
    fn freeze(&self) -> io::Result<()> {
        let patience = Instant::now() + FREEZE_PATIENCE;
        let (mut told, mut groups) = (HashSet::new(), HashSet::new());
        loop {
            let mut moving = false;
            for process in self.living()? {
                let fresh = told.insert((process.pid, process.start_ticks));
                if fresh {
                    process.signal(Signal::STOP);
                } else if process.stopped && groups.insert(process.group) && !self.is_ours(process.group) {
                    // The kernel stops a whole group at once, also who is being born: that catches a
                    // tree that flees faster than it can be read. The group's number cannot have
                    // passed to others (P5), because a stopped member of ours keeps it.
                    stop_group(process.group);
                }
                moving |= fresh || !process.stopped;
            }
            if !moving || Instant::now() >= patience {
                return Ok(());
            }
        }
    }

    /// Whether a group holds the shim or the caller, who must go on.
    fn is_ours(&self, group: u32) -> bool {
        let shim = self.shim.as_ref().map(|it| it.pid);
        [Some(std::process::id()), shim].into_iter().flatten().filter_map(Process::read).any(|it| it.group == group)
    }

    /// Ends the tree from outside: asks, waits for `grace`, kills; returns who is left at the deadline.
    pub(crate) fn end(&self, grace: Duration, deadline: Instant) -> io::Result<Vec<Process>> {
        let kill_at = Instant::now() + grace;
        if !grace.is_zero() {
            // With no subreaper to catch who falls, even asking may orphan a child in the midst of a fork.
            self.freeze()?;
            self.ask(&mut Asked::new())?;
        }
        let mut clean = 0;
        loop {
            let left = self.living()?;
            if left.is_empty() {
                // A process in the midst of exec shows no environment for an instant: look twice.
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
            std::thread::sleep(ROUND);
        }
    }
}

fn stop_group(group: u32) {
    if let Some(group) = i32::try_from(group).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::STOP);
    }
}
