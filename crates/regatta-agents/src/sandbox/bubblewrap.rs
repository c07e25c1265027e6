//! Translates a sandbox plan into the arguments of bubblewrap (the program `bwrap`).
//!
//! Bubblewrap reads the whole list of mounts for each mount that it makes, so unnecessary mounts
//! are left out.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::mounts::{MountPlan, PathContent};

/// Returns the path of bubblewrap if it is on PATH.
pub(super) fn find_bubblewrap(path: &[PathBuf]) -> Option<PathBuf> {
    let candidates = path
        .iter()
        .filter(|path| path.is_absolute())
        .map(|path| path.join("bwrap"));
    candidates.into_iter().find(|path| {
        rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok() && path.is_file()
    })
}

/// The facts from which the bubblewrap command line for a program is built.
pub(super) struct BubblewrapCommand<'a> {
    pub(super) program: &'a Path,
    pub(super) plan: &'a MountPlan,
    pub(super) has_network: bool,
    /// The directory in which the program starts.
    pub(super) working_dir: &'a Path,
    /// A directory that is always empty, and that is mounted wherever the sandbox must show an
    /// empty directory.
    pub(super) empty_dir: &'a Path,
}

impl BubblewrapCommand<'_> {
    /// Returns the command line of bubblewrap, up to the point where the program's own command line
    /// follows.
    pub(super) fn arguments(&self) -> Vec<OsString> {
        let mut line: Vec<OsString> = vec![self.program.into()];
        let mut push = |arguments: &[&dyn AsRef<std::ffi::OsStr>]| {
            line.extend(
                arguments
                    .iter()
                    .map(|argument| argument.as_ref().to_owned()),
            )
        };
        // Create a user namespace even for root, because without a user namespace root would keep
        // its capabilities.
        push(&[
            &"--unshare-user",
            &"--unshare-pid",
            &"--unshare-ipc",
            &"--unshare-uts",
            &"--unshare-cgroup-try",
        ]);
        push(&[&"--cap-drop", &"ALL"]);
        if !self.has_network {
            push(&[&"--unshare-net"]);
        }
        push(&[&"--proc", &"/proc", &"--dev", &"/dev"]);
        if rustix::process::getuid().is_root() {
            // Protect these two directories explicitly. Bubblewrap makes other unsafe parts of
            // `/proc` read-only, but skips these two for root because the directories themselves
            // are not writable.
            for path in &["/proc/sys", "/proc/fs"].map(Path::new) {
                push(&[&"--ro-bind", path, path]);
            }
        }
        // Mount `/sys` last, because it contains other mounts and would make the list longer for
        // all later mounts.
        let (last, first): (Vec<_>, Vec<_>) = self
            .plan
            .places
            .iter()
            .partition(|(path, _)| path == Path::new("/sys"));
        for (path, content) in first.into_iter().chain(last) {
            match content {
                PathContent::Read => push(&[&"--ro-bind", path, path]),
                PathContent::Write => push(&[&"--bind", path, path]),
                PathContent::WriteFrom(source) => push(&[&"--bind", source, path]),
                PathContent::Empty if self.contains_mounts(path) => push(&[&"--tmpfs", path]),
                PathContent::Empty => push(&[&"--ro-bind", &self.empty_dir, path]),
                PathContent::AlreadyEmpty => push(&[&"--dir", path]),
                PathContent::Unreadable => push(&[&"--ro-bind", &"/dev/null", path]),
                PathContent::Link(target) => push(&[&"--symlink", target, path]),
            }
        }
        // Make the directories read-only only after everything was mounted into them.
        for (path, content) in &self.plan.places {
            if *content == PathContent::Empty && self.contains_mounts(path) {
                push(&[&"--remount-ro", path]);
            }
        }
        push(&[&"--remount-ro", &"/", &"--chdir", &self.working_dir, &"--"]);
        line
    }

    /// Returns whether an otherwise empty directory contains other mounts. Such a directory needs a
    /// mount of its own.
    fn contains_mounts(&self, dir: &Path) -> bool {
        self.plan
            .places
            .iter()
            .any(|(path, _)| path != dir && path.starts_with(dir))
    }
}
