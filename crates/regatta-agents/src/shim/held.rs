//! A program that waits inside its sandbox until the shim lets it continue.
//!
//! The sandbox, the disk and the control group take some milliseconds each, so the shim sets them
//! up in parallel. Until the shim lets it continue, the sandbox's init process has started nothing,
//! so it can still be moved into the control group as a whole. If the shim dies first, the init
//! process ends.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use super::shared::Shared;
use super::{noted, thread};
use crate::cgroup::{Cgroup, Containment};
use crate::egress::{Gate, Refused};
use crate::journal::Mark;
use crate::process::Process;

/// The number of searches for processes outside the control group. No process is born meanwhile, so
/// the second attempt finds none.
const LOOKS: u32 = 5;

/// The maximum number of generations between a sandbox's init process and its shim.
const GENERATIONS: u32 = 16;

pub(super) struct Held {
    pub(super) program: u32,
    moving: Option<(Cgroup, JoinHandle<std::io::Result<()>>)>,
}

impl Held {
    /// Starts to move a program that was just started into its control group. After a pause the
    /// first move takes the kernel some milliseconds; later moves are quick.
    pub(super) fn new(program: u32, cgroup: Option<Cgroup>) -> Held {
        let moving = cgroup.and_then(|it| {
            let group = it.clone();
            let first = thread("cgroup", move || group.add(program));
            Some((it, noted("start a thread", first)?))
        });
        Held { program, moving }
    }

    /// Waits for the sandbox's init process, serves its egress routes, and lets the program
    /// continue once it is in its control group. Returns the mechanism that holds its processes
    /// together, or `None` if the program does not start because it ended or was refused.
    pub(super) fn admit(self, gate: Gate, shared: &Arc<Shared>, group: &OnceLock<Cgroup>) -> Option<Containment> {
        let told = Arc::clone(shared);
        let tell = move |Refused { to, why, times }| told.mark(Mark::Refused { to, why, times });
        let (program, mut contained_in) = (self.program, Containment::PidNamespace);
        let settle = || {
            if let Some(cgroup) = self.gather() {
                let _first = group.set(cgroup);
                contained_in = Containment::Cgroup;
            }
            Ok(())
        };
        match gate.admit(Arc::new(tell), &|stage| descends(stage, program), settle) {
            Ok(()) => Some(contained_in),
            Err(error) => {
                shared.mark(Mark::Shut { why: error.to_string() });
                None
            }
        }
    }

    /// Moves the processes that are not in the control group yet. Returns `None` if that is not
    /// possible.
    fn gather(self) -> Option<Cgroup> {
        let (cgroup, first) = self.moving?;
        noted("move it into its control group", first.join().ok()?)?;
        for _ in 0..LOOKS {
            let members: HashSet<u32> = cgroup.members().into_iter().collect();
            let mut outside = family(self.program)?;
            outside.retain(|it| !members.contains(it));
            if outside.is_empty() {
                return Some(cgroup);
            }
            for pid in outside {
                noted("move it into its control group", cgroup.add(pid))?;
            }
        }
        None
    }
}

/// Returns a process and all its descendants, or `None` if the kernel does not list children.
fn family(program: u32) -> Option<Vec<u32>> {
    let mut all = vec![program];
    let mut next = 0;
    while let Some(pid) = all.get(next) {
        all.extend(Process::children(*pid)?);
        next += 1;
    }
    Some(all)
}

/// Returns whether a process is the program or descends from it.
fn descends(pid: u32, program: u32) -> bool {
    let mut who = pid;
    for _ in 0..GENERATIONS {
        if who == program {
            return true;
        }
        match Process::read(who) {
            Some(process) => who = process.parent,
            None => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_of_a_process_are_found_in_both_directions() {
        let me = std::process::id();
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        assert!(descends(child.id(), me) && descends(me, me));
        assert!(!descends(me, child.id()));
        assert_eq!(family(child.id()), Some(vec![child.id()]));
        // Children of other tests may end during the listing. The listing then fails and is
        // repeated.
        assert!((0..1_000).find_map(|_| family(me)).unwrap().contains(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
