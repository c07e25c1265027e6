//! A control group of its own for an attempt, where the machine has cgroup2 and lets us make one.
//!
//! Nothing leaves it by forking, detaching or wiping its environment, and `cgroup.kill` ends all of it at once, forks
//! under way included. It is on top of the subreaper, never instead: a program that may write cgroups can move itself
//! out, but not away from its ancestors.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What holds the processes of a launch together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Containment {
    /// A control group of its own.
    Cgroup,
    /// A PID namespace of its own: with its first process all of it ends.
    PidNamespace,
    /// The shim is their subreaper, and their environment carries a mark.
    #[default]
    Subreaper,
}

impl Containment {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Containment::Cgroup => "cgroup",
            Containment::PidNamespace => "pid_namespace",
            Containment::Subreaper => "subreaper",
        }
    }
}

/// How the names of launches' control groups begin; the launch's mark follows.
const PREFIX: &str = "regatta-";

/// How often a group is tried to be removed.
const REMOVALS: u32 = 50;

/// The control group of one launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Cgroup(PathBuf);

/// The control group that this process is in.
fn home() -> Option<PathBuf> {
    let mount = mount(&fs::read_to_string("/proc/self/mountinfo").ok()?)?;
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = own.lines().find_map(|it| it.strip_prefix("0::"))?;
    Some(mount.join(path.trim_start_matches('/')))
}

/// Where cgroup2 is mounted as a whole, from `/proc/self/mountinfo`.
fn mount(mountinfo: &str) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        // A part of it that is mounted elsewhere has other paths than `/proc/self/cgroup` tells.
        (kind.starts_with("cgroup2 ") && fields.next() == Some("/")).then(|| fields.next().map(PathBuf::from))?
    })
}

impl Cgroup {
    /// Makes one below our own, if that can be done.
    pub(crate) fn create(mark: &str) -> Option<Cgroup> {
        let home = home()?;
        // A supervisor that could not come back would be killed with its tree.
        rustix::fs::access(home.join("cgroup.procs"), rustix::fs::Access::WRITE_OK).ok()?;
        let cgroup = Cgroup(home.join(format!("{PREFIX}{mark}")));
        match fs::create_dir(&cgroup.0) {
            Ok(()) => {}
            // Of a start that was cut short before it had begun.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && cgroup.members().is_empty() => {}
            Err(_) => return None,
        }
        // Without this file (before Linux 5.14) it would be no better than the subreaper.
        if cgroup.0.join("cgroup.kill").exists() {
            return Some(cgroup);
        }
        cgroup.remove();
        None
    }

    /// Moves this process into it, so that a child is born here; there is no other way without code between fork and
    /// exec. The kernel takes some milliseconds for the first move after a while, so this is done beside other things.
    pub(crate) fn enter(&self) -> io::Result<Inside> {
        let home = home().ok_or(io::ErrorKind::NotFound)?.join("cgroup.procs");
        fs::write(self.0.join("cgroup.procs"), std::process::id().to_string())?;
        Ok(Inside { home })
    }

    /// Moves another process into it; one that has ended meanwhile is passed over.
    pub(crate) fn add(&self, pid: u32) -> io::Result<()> {
        match fs::write(self.0.join("cgroup.procs"), pid.to_string()) {
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => Ok(()),
            done => done,
        }
    }

    /// The processes in it and below it; nothing when it is gone.
    pub(crate) fn members(&self) -> Vec<u32> {
        let mut found = Vec::new();
        self.visit(&self.0, &mut |dir| {
            let listed = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
            found.extend(listed.lines().filter_map(|it| it.parse::<u32>().ok()));
        });
        found
    }

    /// Kills everything in it, at once.
    pub(crate) fn kill(&self) {
        // It is gone when nobody is left; whoever is left otherwise is found by walking.
        drop(fs::write(self.0.join("cgroup.kill"), "1"));
    }

    /// Removes it, with what a program may have made below it. One that is not empty stays; but whoever was killed
    /// a moment ago may still be on the way out.
    /// Returns whether it is gone.
    pub(crate) fn remove(&self) -> bool {
        for _ in 0..REMOVALS {
            self.visit(&self.0, &mut |dir| drop(fs::remove_dir(dir)));
            if !self.0.exists() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        false
    }

    /// Lists the control groups of launches anywhere on this machine, each with its launch's mark: a shim makes its group
    /// wherever it is itself, which may be another session of the user's.
    pub(crate) fn all() -> Vec<(String, Cgroup)> {
        let mount = fs::read_to_string("/proc/self/mountinfo").ok().and_then(|text| mount(&text));
        let mut found = Vec::new();
        let mut open: Vec<PathBuf> = mount.into_iter().collect();
        while let Some(dir) = open.pop() {
            for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
                if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    continue;
                }
                match mark_of(&entry.file_name().to_string_lossy()) {
                    Some(mark) => found.push((mark, Cgroup(entry.path()))),
                    None => open.push(entry.path()),
                }
            }
        }
        found
    }

    /// Visits it and those below it, the deepest first.
    fn visit(&self, dir: &Path, act: &mut impl FnMut(&Path)) {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|it| it.is_dir()) {
                self.visit(&entry.path(), act);
            }
        }
        act(dir);
    }
}

/// Returns the mark in the name of a launch's control group.
fn mark_of(name: &str) -> Option<String> {
    let mark = name.strip_prefix(PREFIX)?;
    let is_mark = mark.len() == 32 && mark.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_mark.then(|| mark.to_owned())
}

/// The way back.
pub(crate) struct Inside {
    home: PathBuf,
}

impl Inside {
    pub(crate) fn leave(self) -> io::Result<()> {
        fs::write(self.home, std::process::id().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroup2_is_found_wherever_it_is_mounted() {
        let hybrid = "32 25 0:28 / /sys/fs/cgroup/pids rw,relatime shared:9 - cgroup cgroup rw,pids\n\
             33 25 0:29 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        assert_eq!(mount(hybrid), Some(PathBuf::from("/sys/fs/cgroup/unified")));
        let part = "33 25 0:29 /../.. /sys/fs/cgroup rw,relatime - cgroup2 cgroup rw\n";
        assert_eq!(mount(part), None);
        assert_eq!(mount("22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"), None);
    }
}
