//! A Linux control group for each attempt, on machines with cgroup2 where this process may create
//! groups.
//!
//! A process cannot leave the group by forking, detaching or clearing its environment, and
//! `cgroup.kill` ends all members at once, including forks that are in progress. The group is used
//! in addition to the subreaper (the supervisor process, which becomes the parent of orphaned
//! processes), never instead of it. A program that may write to cgroups can move itself out of the
//! group, but it cannot escape from its ancestor processes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The mechanism by which the supervisor process finds and ends all processes of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Containment {
    /// A Linux control group that contains only this program's processes.
    Cgroup,
    /// A PID namespace that contains only this program's processes. The kernel ends all these
    /// processes when the namespace's first process ends.
    PidNamespace,
    /// The supervisor process is the subreaper: the kernel makes it the parent of processes whose
    /// own parent has ended. A variable in each process's environment also identifies the program.
    #[default]
    Subreaper,
}

impl Containment {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Containment::Cgroup => "cgroup",
            Containment::PidNamespace => "pid_namespace",
            Containment::Subreaper => "subreaper",
        }
    }
}

/// The prefix of the names of control groups. The launch's mark (a random text that identifies one
/// started program) follows the prefix.
const NAME_PREFIX: &str = "regatta-";

/// The number of times that removing a control group is tried before the group is left in place.
const MAX_REMOVE_TRIES: u32 = 50;

/// The path of the control group that holds the processes of one program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Cgroup(PathBuf);

/// Returns the path of the control group in which this process runs.
fn own_cgroup() -> Option<PathBuf> {
    let mount = cgroup_mount(&fs::read_to_string("/proc/self/mountinfo").ok()?)?;
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(mount.join(path.trim_start_matches('/')))
}

/// Returns the directory where the whole cgroup2 hierarchy is mounted, according to the content of
/// `/proc/self/mountinfo`.
fn cgroup_mount(mountinfo: &str) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        // Skip a mount of only a part of the hierarchy, because the paths in such a mount differ
        // from the paths in `/proc/self/cgroup`.
        let is_whole = fields.next()? == "/";
        let mount_point = fields.next()?;
        if !kind.starts_with("cgroup2 ") || !is_whole {
            return None;
        }
        Some(PathBuf::from(mount_point))
    })
}

impl Cgroup {
    /// Creates a control group below this process's own group. Returns `None` if the group cannot
    /// be created.
    pub(crate) fn create(mark: &str) -> Option<Cgroup> {
        let parent = own_cgroup()?;
        // Create a group only if this process may also leave it. The supervisor process enters the
        // group to start the program; if the supervisor could not leave again, it would be killed
        // together with the program.
        rustix::fs::access(parent.join("cgroup.procs"), rustix::fs::Access::WRITE_OK).ok()?;
        let cgroup = Cgroup(parent.join(format!("{NAME_PREFIX}{mark}")));
        match fs::create_dir(&cgroup.0) {
            Ok(()) => {}
            // Reuse an empty group that an interrupted start of the same program left behind.
            Err(error)
                if error.kind() == io::ErrorKind::AlreadyExists && cgroup.members().is_empty() => {}
            Err(_) => return None,
        }
        // Use the group only if it has the file `cgroup.kill`, through which all members are killed
        // at once. Without this file (before Linux 5.14) a group has no advantage over finding the
        // processes through their parents.
        if cgroup.0.join("cgroup.kill").exists() {
            return Some(cgroup);
        }
        cgroup.remove();
        None
    }

    /// Moves this process into the group, so that a child process starts inside the group.
    /// Otherwise code would have to run between fork and exec. The first move after a pause takes
    /// the kernel some milliseconds, so the caller moves the process in parallel with other work.
    pub(crate) fn enter(&self) -> io::Result<CgroupStay> {
        let return_to = own_cgroup()
            .ok_or(io::ErrorKind::NotFound)?
            .join("cgroup.procs");
        fs::write(self.0.join("cgroup.procs"), std::process::id().to_string())?;
        Ok(CgroupStay { return_to })
    }

    /// Moves the process `pid` into the group. Does nothing if the process has already ended.
    pub(crate) fn add(&self, pid: u32) -> io::Result<()> {
        match fs::write(self.0.join("cgroup.procs"), pid.to_string()) {
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {
                Ok(())
            }
            done => done,
        }
    }

    /// Returns the ids of the processes in the group and in the groups below it, or an empty list
    /// if the group is gone.
    pub(crate) fn members(&self) -> Vec<u32> {
        let mut found = Vec::new();
        self.visit(&self.0, &mut |dir| {
            let listed = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
            found.extend(listed.lines().filter_map(|pid| pid.parse::<u32>().ok()));
        });
        found
    }

    /// Kills all processes in the group and in the groups below it at once.
    pub(crate) fn kill(&self) {
        // Ignore an error, because the write fails only if the group is gone and therefore has no
        // members. Processes outside the group are found by walking the process tree.
        drop(fs::write(self.0.join("cgroup.kill"), "1"));
    }

    /// Removes the group and the groups that a program may have created below it. Retries for a
    /// moment, because a killed process may still be exiting; a group that stays non-empty is kept.
    /// Returns whether the group is gone.
    pub(crate) fn remove(&self) -> bool {
        for _ in 0..MAX_REMOVE_TRIES {
            self.visit(&self.0, &mut |dir| drop(fs::remove_dir(dir)));
            if !self.0.exists() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        false
    }

    /// Lists the control groups that supervisor processes created anywhere on this machine, each
    /// with the mark (random text) that identifies its program. The whole machine is searched
    /// because a supervisor creates a group below its own group, which may belong to another login
    /// session of the user.
    pub(crate) fn list_all() -> Vec<(String, Cgroup)> {
        let mount = fs::read_to_string("/proc/self/mountinfo")
            .ok()
            .and_then(|text| cgroup_mount(&text));
        let mut found = Vec::new();
        let mut pending: Vec<PathBuf> = mount.into_iter().collect();
        while let Some(dir) = pending.pop() {
            for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
                if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    continue;
                }
                match mark_in_name(&entry.file_name().to_string_lossy()) {
                    Some(mark) => found.push((mark, Cgroup(entry.path()))),
                    None => pending.push(entry.path()),
                }
            }
        }
        found
    }

    /// Calls `act` for each group below `dir`, the deepest first, and then for `dir` itself.
    fn visit(&self, dir: &Path, act: &mut impl FnMut(&Path)) {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                self.visit(&entry.path(), act);
            }
        }
        act(dir);
    }
}

/// Returns the mark (the random text that identifies one started program) in the name of a control
/// group, or `None` if the name contains no mark.
fn mark_in_name(name: &str) -> Option<String> {
    let mark = name.strip_prefix(NAME_PREFIX)?;
    let is_mark = mark.len() == 32 && mark.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_mark.then(|| mark.to_owned())
}

/// Keeps this process in a program's control group. When the value is dropped, the process moves
/// back to its earlier group.
pub(crate) struct CgroupStay {
    return_to: PathBuf,
}

impl CgroupStay {
    pub(crate) fn leave(self) -> io::Result<()> {
        fs::write(self.return_to, std::process::id().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_point_of_cgroup2_is_found_in_the_list_of_mounts() {
        let hybrid = "32 25 0:28 / /sys/fs/cgroup/pids rw,relatime shared:9 - cgroup cgroup \
             rw,pids\n\
             33 25 0:29 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        assert_eq!(
            cgroup_mount(hybrid),
            Some(PathBuf::from("/sys/fs/cgroup/unified"))
        );
        let part = "33 25 0:29 /../.. /sys/fs/cgroup rw,relatime - cgroup2 cgroup rw\n";
        assert_eq!(cgroup_mount(part), None);
        assert_eq!(cgroup_mount("22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"), None);
    }
}
