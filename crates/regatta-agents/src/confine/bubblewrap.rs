//! Bubblewrap, where it is installed: the same plan as arguments.
//!
//! Bubblewrap reads the whole list of mounts for each mount that it makes, so every one that can be spared is.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::plan::{Plan, What};

/// Where bubblewrap is, if it is on PATH.
pub(super) fn find(path: &[PathBuf]) -> Option<PathBuf> {
    let candidates = path.iter().filter(|it| it.is_absolute()).map(|it| it.join("bwrap"));
    candidates.into_iter().find(|it| rustix::fs::access(it, rustix::fs::Access::EXEC_OK).is_ok() && it.is_file())
}

/// What bubblewrap puts around a program.
pub(super) struct Around<'a> {
    pub(super) program: &'a Path,
    pub(super) plan: &'a Plan,
    pub(super) network: bool,
    /// Where the program starts.
    pub(super) dir: &'a Path,
    /// A directory with nothing in it.
    pub(super) empty: &'a Path,
}

impl Around<'_> {
    /// The command line up to the command.
    pub(super) fn arguments(&self) -> Vec<OsString> {
        let mut line: Vec<OsString> = vec![self.program.into()];
        let mut say =
            |words: &[&dyn AsRef<std::ffi::OsStr>]| line.extend(words.iter().map(|it| it.as_ref().to_owned()));
        // A user namespace also for root: without one, root would keep its powers.
        say(&[&"--unshare-user", &"--unshare-pid", &"--unshare-ipc", &"--unshare-uts", &"--unshare-cgroup-try"]);
        say(&[&"--cap-drop", &"ALL"]);
        if !self.network {
            say(&[&"--unshare-net"]);
        }
        say(&[&"--proc", &"/proc", &"--dev", &"/dev"]);
        if rustix::process::getuid().is_root() {
            // Bubblewrap leaves them open when it is root's, since their directory is not writable. The others it
            // closes itself.
            for path in &["/proc/sys", "/proc/fs"].map(Path::new) {
                say(&[&"--ro-bind", path, path]);
            }
        }
        // What has mounts of its own in it makes the list longer for all that come after.
        let (last, first): (Vec<_>, Vec<_>) = self.plan.places.iter().partition(|(path, _)| path == Path::new("/sys"));
        for (path, what) in first.into_iter().chain(last) {
            match what {
                What::Read => say(&[&"--ro-bind", path, path]),
                What::Write => say(&[&"--bind", path, path]),
                What::WriteFrom(source) => say(&[&"--bind", source, path]),
                What::Empty if self.is_filled(path) => say(&[&"--tmpfs", path]),
                What::Empty => say(&[&"--ro-bind", &self.empty, path]),
                What::Bare => say(&[&"--dir", path]),
                What::Blank => say(&[&"--ro-bind", &"/dev/null", path]),
                What::Link(target) => say(&[&"--symlink", target, path]),
            }
        }
        // Only when all that goes into them is there.
        for (path, what) in &self.plan.places {
            if *what == What::Empty && self.is_filled(path) {
                say(&[&"--remount-ro", path]);
            }
        }
        say(&[&"--remount-ro", &"/", &"--chdir", &self.dir, &"--"]);
        line
    }

    /// Whether something goes into a directory that is empty otherwise: then it must be one of its own.
    fn is_filled(&self, dir: &Path) -> bool {
        self.plan.places.iter().any(|(path, _)| path != dir && path.starts_with(dir))
    }
}
