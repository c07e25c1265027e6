//! Finds and removes the leftovers of programs whose owner is gone: shims (supervisor processes),
//! control groups, and the directories of checks.
//!
//! Normally the owner removes its shims, control groups and directories. But the owner can be
//! killed, or the owner's data directory can be deleted. The next start of the daemon, or `regatta
//! doctor --clean`, then removes the leftovers (P12).

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use regatta_engine::ports::agents::{AgentError, ProcessIdentity};

use crate::adapter::AgentsAdapter;
use crate::cgroup::Cgroup;
use crate::errors;
use crate::process::{Process, ProcessHandle};
use crate::process_tree::ProcessTree;
use crate::run_dir::RunDir;
use crate::run_phase::{RunPhase, end_from_outside, read_phase};

/// The time between asking the processes of a leftover program to end and killing them.
const LEFTOVER_GRACE_PERIOD: Duration = Duration::from_secs(2);

/// The time that a leftover supervisor process may take to end after its program's processes.
const SHIM_EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// A running supervisor process of the current user, which may belong to any data directory.
#[derive(Clone, Debug)]
pub struct RunningShim {
    identity: ProcessIdentity,
    run_dir: PathBuf,
}

/// Lists the running supervisor processes of the current user.
pub fn running_shims() -> io::Result<Vec<RunningShim>> {
    let mut shims = Vec::new();
    for process in Process::list_all()?
        .into_iter()
        .filter(|process| !process.is_zombie)
    {
        if let Some(run_dir) = shim_dir(process.pid) {
            shims.push(RunningShim {
                identity: process.identity()?,
                run_dir,
            });
        }
    }
    Ok(shims)
}

/// Returns the run directory of a process if it is a supervisor process of the current user, that
/// is, if its command line is `regatta shim DIR`.
fn shim_dir(pid: u32) -> Option<PathBuf> {
    let owner = fs::metadata(format!("/proc/{pid}")).ok()?.uid();
    if owner != rustix::process::getuid().as_raw() {
        return None;
    }
    // Skip a process in another mount namespace, such as a container, where the same path may refer
    // to another directory.
    let mount_namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    if mount_namespace(&pid.to_string())? != mount_namespace("self")? {
        return None;
    }
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let line = String::from_utf8(line).ok()?;
    let arguments: Vec<&str> = line.trim_end_matches('\0').split('\0').collect();
    let [program, "shim", dir] = arguments.as_slice() else {
        return None;
    };
    let is_ours = Path::new(program)
        .file_name()
        .is_some_and(|name| name == "regatta");
    (is_ours && Path::new(dir).is_absolute()).then(|| PathBuf::from(dir))
}

impl RunningShim {
    pub fn pid(&self) -> u32 {
        self.identity.pid
    }

    pub fn run_dir(&self) -> &Path {
        &self.run_dir
    }

    /// Returns the data directory to which the supervisor process belongs. Run directories are two
    /// levels below the data directory.
    pub fn data_dir(&self) -> Option<&Path> {
        self.run_dir.parent()?.parent()
    }

    /// Returns whether the supervisor's run directory was deleted, so that no daemon can find the
    /// supervisor process any more.
    pub fn is_abandoned(&self) -> bool {
        !self.run_dir.join("launch.json").exists()
    }

    /// Ends the supervisor process and its program, and returns when both are gone.
    pub fn end(&self) -> Result<(), AgentError> {
        let kernel = |error: io::Error| {
            errors::kernel_error(
                "open a pidfd (a process handle) of the leftover supervisor process",
                error,
            )
        };
        let Some(shim) = ProcessHandle::open(&self.identity).map_err(kernel)? else {
            return Ok(());
        };
        let tree = ProcessTree {
            shim: Some(self.identity.clone()),
            ..ProcessTree::default()
        };
        let deadline = Instant::now() + LEFTOVER_GRACE_PERIOD + SHIM_EXIT_TIMEOUT;
        drop(
            tree.end(LEFTOVER_GRACE_PERIOD, deadline)
                .map_err(|error| errors::kernel_error("list the supervisor's processes", error))?,
        );
        if shim
            .wait_until(Instant::now() + SHIM_EXIT_TIMEOUT)
            .map_err(kernel)?
        {
            return Ok(());
        }
        end_from_outside(&shim, self.identity.clone(), &RunDir(self.run_dir.clone()))
    }
}

/// Removes empty control groups that no supervisor process uses any more, and returns how many.
pub fn sweep_control_groups() -> io::Result<usize> {
    let groups = abandoned_control_groups()?;
    Ok(groups.iter().filter(|group| group.remove()).count())
}

/// Counts the empty control groups that no supervisor process uses any more.
pub fn count_abandoned_control_groups() -> io::Result<usize> {
    Ok(abandoned_control_groups()?.len())
}

fn abandoned_control_groups() -> io::Result<Vec<Cgroup>> {
    // List the groups before the supervisor processes. A supervisor is alive when it creates its
    // group, so a listed group whose supervisor is not listed below is no longer used.
    let groups = Cgroup::list_all();
    if groups.is_empty() {
        return Ok(vec![]);
    }
    let shims = running_shims()?;
    let live_marks: BTreeSet<String> = shims
        .iter()
        .filter_map(|shim| mark_of_process(shim.pid()))
        .collect();
    let abandoned = groups
        .into_iter()
        .filter(|(mark, group)| !live_marks.contains(mark) && group.members().is_empty());
    Ok(abandoned.map(|(_, group)| group).collect())
}

/// Returns the launch mark (the text that identifies a launch's processes) from a process's
/// environment.
fn mark_of_process(pid: u32) -> Option<String> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let entries = String::from_utf8_lossy(&environment).into_owned();
    let prefix = format!("{}=", crate::process::MARK_VARIABLE);
    entries
        .split('\0')
        .find_map(|entry| entry.strip_prefix(&prefix).map(str::to_owned))
}

impl AgentsAdapter {
    /// Ends checks (commands such as tests) that an earlier daemon started and that still run, and
    /// removes their directories. Call this function when the daemon starts, before any check runs.
    /// Returns the number of removed directories.
    pub fn sweep_checks(&self) -> Result<usize, AgentError> {
        let root = self.checks_path();
        let entries = match fs::read_dir(&root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            entries => entries.map_err(|error| {
                errors::file_error("list the directories of checks in", &root, error)
            })?,
        };
        let mut removed = 0;
        for entry in entries {
            let dir = RunDir(
                entry
                    .map_err(|error| {
                        errors::file_error("list the directories of checks in", &root, error)
                    })?
                    .path(),
            );
            match read_phase(&dir)? {
                // Leave this check (a command such as a test) alone. Its supervisor process ends
                // it, because the daemon that started it is gone. If its directory remains, the
                // next start of a daemon removes that directory.
                RunPhase::Running(..) => continue,
                RunPhase::Vanished => drop(self.conclude_vanished(&dir, Duration::ZERO)?),
                RunPhase::NotStarted | RunPhase::Ended(_) => {}
            }
            match fs::remove_dir_all(&dir.0) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(errors::file_error(
                        "remove the directory of the old check",
                        &dir.0,
                        error,
                    ));
                }
                _ => removed += 1,
            }
        }
        Ok(removed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use super::*;

    /// Keeps a test from removing the control group of another test.
    fn lock_control_groups() -> MutexGuard<'static, ()> {
        static CONTROL_GROUPS: Mutex<()> = Mutex::new(());
        CONTROL_GROUPS
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// P12: an empty control group whose shim is gone is removed. A group with a process in it
    /// stays.
    #[test]
    fn p12_empty_control_groups_are_removed() {
        let _alone = lock_control_groups();
        let mark = crate::run_dir::new_launch_mark().unwrap();
        let Some(group) = Cgroup::create(&mark) else {
            eprintln!("not run: control groups cannot be created on this machine");
            return;
        };
        let mut child = std::process::Command::new("sleep")
            .arg("300")
            .spawn()
            .unwrap();
        group.add(child.id()).unwrap();
        sweep_control_groups().unwrap();
        assert_eq!(
            group.members(),
            [child.id()],
            "a group with a process stays"
        );
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(count_abandoned_control_groups().unwrap() > 0);
        assert!(
            Cgroup::list_all().iter().any(|(known, _)| *known == mark),
            "counting removes nothing"
        );
        sweep_control_groups().unwrap();
        assert!(!Cgroup::list_all().iter().any(|(known, _)| *known == mark));
    }

    /// P12: the control group of a live shim stays, even without a process in it.
    #[test]
    fn p12_the_control_group_of_a_live_shim_stays() {
        use std::os::unix::process::CommandExt;
        let _alone = lock_control_groups();
        let mark = crate::run_dir::new_launch_mark().unwrap();
        let Some(group) = Cgroup::create(&mark) else {
            eprintln!("not run: control groups cannot be created on this machine");
            return;
        };
        // The process looks like a shim: its command line is `regatta shim DIR`, and it has the
        // mark.
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("shim"), "read line\n").unwrap();
        let mut shim = std::process::Command::new("sh")
            .arg0("regatta")
            .arg("shim")
            .arg(dir.path())
            .env(crate::process::MARK_VARIABLE, &mark)
            .current_dir(dir.path())
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        // The kernel lets the parent continue a moment before the child has its new command line.
        let deadline = Instant::now() + Duration::from_secs(60);
        while shim_dir(shim.id()).as_deref() != Some(dir.path()) {
            assert!(
                Instant::now() < deadline,
                "the process did not get its command line in time"
            );
            std::thread::yield_now();
        }
        sweep_control_groups().unwrap();
        assert!(
            Cgroup::list_all().iter().any(|(known, _)| *known == mark),
            "the group of a live shim stays"
        );
        drop(shim.stdin.take());
        shim.wait().unwrap();
        sweep_control_groups().unwrap();
        assert!(!Cgroup::list_all().iter().any(|(known, _)| *known == mark));
        drop(group);
    }

    #[test]
    fn p12_directories_of_checks_of_a_dead_daemon_are_removed() {
        let data = tempfile::tempdir().unwrap();
        let adapter = AgentsAdapter::new(data.path().to_owned(), PathBuf::from("regatta"));
        assert_eq!(
            adapter.sweep_checks(),
            Ok(0),
            "there are no directories yet"
        );
        let leftover = adapter
            .checks_path()
            .join("0123456789abcdef0123456789abcdef");
        fs::create_dir_all(leftover.join("tmp")).unwrap();
        fs::write(leftover.join("launch.json"), "{}").unwrap();
        assert_eq!(adapter.sweep_checks(), Ok(1));
        assert!(!leftover.exists());
    }
}
