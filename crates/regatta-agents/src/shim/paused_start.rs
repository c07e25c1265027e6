//! Starts a program that waits inside its sandbox until the shim (supervisor process) lets the
//! program continue.
//!
//! Setting up the sandbox, writing to the disk and creating the control group take some
//! milliseconds each, so the shim does these three things in parallel. The program does not start
//! until the shim lets the sandbox's init process (the first process in the sandbox) continue.
//! Before that, the whole sandbox can still be moved into the control group. If the shim dies
//! first, the init process ends.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use super::state::ShimState;
use super::{log_failure, spawn_thread};
use crate::cgroup::{Cgroup, Containment};
use crate::egress::{EgressGate, RefusedConnection};
use crate::journal::JournalMark;
use crate::process::Process;

/// The maximum number of searches for processes outside the control group. No new process starts
/// between the searches, so normally the second search finds none.
const MAX_SEARCHES: u32 = 5;

/// The maximum number of parent processes between a sandbox's init process and its supervisor
/// process.
const MAX_GENERATIONS: u32 = 16;

pub(super) struct PausedProgram {
    pub(super) program: u32,
    cgroup_move: Option<(Cgroup, JoinHandle<std::io::Result<()>>)>,
}

impl PausedProgram {
    /// Starts to move a program, which was just started, into its control group in a separate
    /// thread. The first move after a pause takes the kernel some milliseconds; later moves are
    /// quick.
    pub(super) fn new(program: u32, cgroup: Option<Cgroup>) -> PausedProgram {
        let cgroup_move = cgroup.and_then(|cgroup| {
            let group = cgroup.clone();
            let first = spawn_thread("cgroup", move || group.add(program));
            Some((
                cgroup,
                log_failure(
                    "start a thread that moves the program into its control group, so the \
                    program is supervised without it",
                    first,
                )?,
            ))
        });
        PausedProgram {
            program,
            cgroup_move,
        }
    }

    /// Waits for the sandbox's init process, serves its limited network access, and lets the
    /// program continue after the program was moved into its control group. Returns the mechanism
    /// by which the program's processes are found and ended, or `None` if the program ended or was
    /// refused before its start.
    pub(super) fn let_continue(
        self,
        gate: EgressGate,
        shim_state: &Arc<ShimState>,
        group: &OnceLock<Cgroup>,
    ) -> Option<Containment> {
        let state = Arc::clone(shim_state);
        let on_refusal = move |RefusedConnection { to, why, times }| {
            state.queue_mark(JournalMark::Refused { to, why, times })
        };
        let (program, mut containment) = (self.program, Containment::PidNamespace);
        let before_continue = || {
            if let Some(cgroup) = self.finish_move() {
                let _first = group.set(cgroup);
                containment = Containment::Cgroup;
            }
            Ok(())
        };
        match gate.serve_process(
            Arc::new(on_refusal),
            &|pid| is_descendant(pid, program),
            before_continue,
        ) {
            Ok(()) => Some(containment),
            Err(error) => {
                shim_state.queue_mark(JournalMark::EgressFailed {
                    why: error.to_string(),
                });
                None
            }
        }
    }

    /// Moves those processes of the sandbox that are not in the control group yet. Returns the
    /// group, or `None` if moving them is not possible.
    fn finish_move(self) -> Option<Cgroup> {
        let (cgroup, first) = self.cgroup_move?;
        log_failure(
            "move the program into its control group, so the program is supervised without it",
            first.join().ok()?,
        )?;
        for _ in 0..MAX_SEARCHES {
            let members: HashSet<u32> = cgroup.members().into_iter().collect();
            let mut outside = process_and_descendants(self.program)?;
            outside.retain(|pid| !members.contains(pid));
            if outside.is_empty() {
                return Some(cgroup);
            }
            for pid in outside {
                log_failure(
                    "move a process of the program into the program's control group",
                    cgroup.add(pid),
                )?;
            }
        }
        None
    }
}

/// Returns the ids of the process `program` and all its descendants, or `None` if the kernel does
/// not list children.
fn process_and_descendants(program: u32) -> Option<Vec<u32>> {
    let mut all = vec![program];
    let mut next = 0;
    while let Some(pid) = all.get(next) {
        all.extend(Process::child_pids(*pid)?);
        next += 1;
    }
    Some(all)
}

/// Returns whether process `pid` is `program` or one of its descendants.
fn is_descendant(pid: u32, program: u32) -> bool {
    let mut current = pid;
    for _ in 0..MAX_GENERATIONS {
        if current == program {
            return true;
        }
        match Process::read(current) {
            Some(process) => current = process.parent_pid,
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
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .spawn()
            .unwrap();
        assert!(is_descendant(child.id(), me) && is_descendant(me, me));
        assert!(!is_descendant(me, child.id()));
        assert_eq!(process_and_descendants(child.id()), Some(vec![child.id()]));
        // Children of other tests may end during the listing. The listing then fails and is
        // repeated.
        assert!(
            (0..1_000)
                .find_map(|_| process_and_descendants(me))
                .unwrap()
                .contains(&child.id())
        );
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
