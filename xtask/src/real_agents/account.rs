//! Who the programs run as, and the processes they leave.

use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

/// The variable by which every process of a run is found again, whatever session it made for itself.
pub(crate) const MARK: &str = "REGATTA_REAL_AGENTS";

/// The account that programs run under: an unprivileged one if this runs as root, else ours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account {
    /// `nobody`: it owns nothing, and every Linux has it.
    other: Option<(u32, u32)>,
}

const NOBODY: u32 = 65534;

impl Account {
    pub(crate) fn choose() -> anyhow::Result<Account> {
        let root = std::fs::metadata("/proc/self").context("there is no /proc here")?.uid() == 0;
        Ok(Account { other: root.then_some((NOBODY, NOBODY)) })
    }

    /// How the account is called in the report.
    pub(crate) fn name(&self) -> &'static str {
        if self.other.is_some() { "nobody (started by root)" } else { "an unprivileged user" }
    }

    /// Makes a command run under this account.
    pub(crate) fn apply(&self, command: &mut Command) {
        if let Some((user, group)) = self.other {
            // As root this also gives up the supplementary groups.
            command.uid(user).gid(group);
        }
    }

    /// Gives a directory and all in it to the account.
    pub(crate) fn give(&self, path: &Path) -> anyhow::Result<()> {
        let Some((user, group)) = self.other else { return Ok(()) };
        if path.is_dir() && !path.is_symlink() {
            for entry in std::fs::read_dir(path)? {
                self.give(&entry?.path())?;
            }
        }
        std::os::unix::fs::lchown(path, Some(user), Some(group)).or_else(|_| chown(path, Some(user), Some(group)))?;
        Ok(())
    }

    /// Fails, with what to do, if the account cannot start this program where it is.
    pub(crate) fn must_reach(&self, program: &Path) -> anyhow::Result<()> {
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

/// Every live process that carries this mark.
pub(crate) fn marked(mark: &str) -> Vec<u32> {
    let wanted = format!("{MARK}={mark}").into_bytes();
    let Ok(entries) = std::fs::read_dir("/proc") else { return vec![] };
    let numbers = entries.flatten().filter_map(|it| it.file_name().to_str()?.parse::<u32>().ok());
    numbers
        .filter(|pid| {
            let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environ.split(|it| *it == 0).any(|it| it == wanted)
        })
        .collect()
}

/// What a process is called, for a report.
pub(crate) fn called(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

/// Ends a process at once.
pub(crate) fn kill(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) {
        // It may be gone already, which is what was wanted.
        let _gone = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

/// Ends every process with this mark, those they start meanwhile too; gives the names of what was found.
pub(crate) fn sweep(mark: &str) -> Vec<String> {
    let mut names = vec![];
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let left = marked(mark);
        if left.is_empty() || Instant::now() > deadline {
            return names;
        }
        for pid in left {
            names.push(called(pid));
            kill(pid);
        }
        // The kernel takes a moment to take a killed process away.
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Looks again and again until something holds, or the time is up.
pub(crate) fn until(patience: Duration, mut holds: impl FnMut() -> bool) -> bool {
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
