//! The account under which programs run, and the processes that they leave behind.

use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

/// The variable by which all processes of a run are found, even in sessions of their own.
pub(crate) const MARK_VARIABLE: &str = "REGATTA_REAL_AGENTS";

/// The account for programs: an unprivileged one if we run as root, else our own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SandboxUser {
    /// `nobody` owns no files and exists on every Linux.
    ids: Option<(u32, u32)>,
}

const NOBODY: u32 = 65534;

impl SandboxUser {
    pub(crate) fn new() -> anyhow::Result<SandboxUser> {
        let root = std::fs::metadata("/proc/self")
            .context("/proc is not available")?
            .uid()
            == 0;
        Ok(SandboxUser {
            ids: root.then_some((NOBODY, NOBODY)),
        })
    }

    /// Returns the description of the account for the report.
    pub(crate) fn name(&self) -> &'static str {
        if self.ids.is_some() {
            "nobody (started by root)"
        } else {
            "an unprivileged user"
        }
    }

    /// Makes a command run under this account.
    pub(crate) fn apply(&self, command: &mut Command) {
        if let Some((user, group)) = self.ids {
            // For root this also drops the supplementary groups.
            command.uid(user).gid(group);
        }
    }

    /// Makes the account the owner of a directory and of everything in it.
    pub(crate) fn give_ownership(&self, path: &Path) -> anyhow::Result<()> {
        let Some((user, group)) = self.ids else {
            return Ok(());
        };
        if path.is_dir() && !path.is_symlink() {
            for entry in std::fs::read_dir(path)? {
                self.give_ownership(&entry?.path())?;
            }
        }
        std::os::unix::fs::lchown(path, Some(user), Some(group))
            .or_else(|_| chown(path, Some(user), Some(group)))?;
        Ok(())
    }

    /// Returns an error with advice if the account cannot start this program.
    pub(crate) fn require_access(&self, program: &Path) -> anyhow::Result<()> {
        let mut command = Command::new("test");
        command.arg("-x").arg(program);
        self.apply(&mut command);
        ensure!(
            command.status()?.success(),
            "{} cannot start {}; set CARGO_TARGET_DIR to a directory that everybody may enter",
            self.name(),
            program.display()
        );
        Ok(())
    }
}

/// Returns all live processes with this mark.
pub(crate) fn processes_with_mark(mark: &str) -> Vec<u32> {
    let mark_entry = format!("{MARK_VARIABLE}={mark}").into_bytes();
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return vec![];
    };
    let numbers = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers
        .filter(|pid| {
            let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environ
                .split(|byte| *byte == 0)
                .any(|environ| environ == mark_entry)
        })
        .collect()
}

/// Returns the name of a process for a report.
pub(crate) fn process_name(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm"))
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// Kills a process.
pub(crate) fn kill_pid(pid: u32) {
    if let Some(pid) = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw)
    {
        // The process may have ended already.
        let _gone = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

/// Kills all processes with this mark, also those that start in the meantime. Returns their names.
pub(crate) fn kill_all_with_mark(mark: &str) -> Vec<String> {
    let mut names = vec![];
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let processes = processes_with_mark(mark);
        if processes.is_empty() || Instant::now() > deadline {
            return names;
        }
        for pid in processes {
            names.push(process_name(pid));
            kill_pid(pid);
        }
        // The kernel needs a moment to remove a killed process.
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Polls until a condition holds. Returns false if the time runs out.
pub(crate) fn wait_until(patience: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + patience;
    loop {
        if holds() {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
