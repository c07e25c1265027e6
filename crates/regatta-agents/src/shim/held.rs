//! A program that waits, shut in, for our word.
//!
//! To shut it in takes some milliseconds, and so do the disk and the control group: all of that is done at once. Until
//! the word is given its stage has started nothing, so that it can still be moved as a whole, and without the word it
//! ends.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use super::shared::Shared;
use super::{noted, thread};
use crate::cgroup::{Cgroup, Containment};
use crate::egress::{Gate, Refused};
use crate::journal::Mark;
use crate::process::Process;

/// How often those outside the control group are looked for. Nobody is born meanwhile, so the second look finds none.
const LOOKS: u32 = 5;

/// More than stand between any stage and its shim.
const GENERATIONS: u32 = 16;

pub(super) struct Held {
    pub(super) program: u32,
    moving: Option<(Cgroup, JoinHandle<std::io::Result<()>>)>,
}

impl Held {
    /// Begins to move a program that was just started. The kernel takes some milliseconds for the first move after a
    /// while; those that follow are quick.
    pub(super) fn new(program: u32, cgroup: Option<Cgroup>) -> Held {
        let moving = cgroup.and_then(|it| {
            let group = it.clone();
            let first = thread("cgroup", move || group.add(program));
            Some((it, noted("start a thread", first)?))
        });
        Held { program, moving }
    }

    /// Waits for its stage, serves its ways out, and gives the word once it is in its control group; says what holds
    /// its processes together. `None` when it does not start, because it ended or was refused.
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

    /// Moves whoever is not in the control group yet; `None` when that cannot be done.
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

/// A process and all that come from it; `None` when this kernel does not tell.
fn family(program: u32) -> Option<Vec<u32>> {
    let mut all = vec![program];
    let mut next = 0;
    while let Some(pid) = all.get(next) {
        all.extend(Process::children(*pid)?);
        next += 1;
    }
    Some(all)
}

/// Whether a process comes from the program, or is it.
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
    fn a_family_is_known_by_both_its_ends() {
        let me = std::process::id();
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        assert!(descends(child.id(), me) && descends(me, me));
        assert!(!descends(me, child.id()));
        assert_eq!(family(child.id()), Some(vec![child.id()]));
        // Children of other tests end while we look: then nothing is said, and we look again.
        assert!((0..1_000).find_map(|_| family(me)).unwrap().contains(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
