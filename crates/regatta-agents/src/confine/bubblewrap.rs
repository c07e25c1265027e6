//! Bubblewrap, where it is installed: the same plan as arguments.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::plan::{Plan, What};

/// Where bubblewrap is, if it is on PATH.
pub(super) fn find(path: &[PathBuf]) -> Option<PathBuf> {
    let candidates = path.iter().filter(|it| it.is_absolute()).map(|it| it.join("bwrap"));
    candidates.into_iter().find(|it| rustix::fs::access(it, rustix::fs::Access::EXEC_OK).is_ok() && it.is_file())
}

/// The command line up to the command.
pub(super) fn arguments(program: &Path, plan: &Plan, network: bool, dir: &Path) -> Vec<OsString> {
    let mut line: Vec<OsString> = vec![program.into()];
    let mut say = |words: &[&dyn AsRef<std::ffi::OsStr>]| line.extend(words.iter().map(|it| it.as_ref().to_owned()));
    // A user namespace also for root: without one, root would keep its powers.
    say(&[&"--unshare-user", &"--unshare-pid", &"--unshare-ipc", &"--unshare-uts", &"--unshare-cgroup-try"]);
    say(&[&"--cap-drop", &"ALL"]);
    if !network {
        say(&[&"--unshare-net"]);
    }
    say(&[&"--proc", &"/proc", &"--dev", &"/dev"]);
    if rustix::process::getuid().is_root() {
        // Bubblewrap leaves them open when it is root's, since their directory is not writable. The others it closes
        // itself, and every mount takes its time.
        for path in &["/proc/sys", "/proc/fs"].map(Path::new) {
            say(&[&"--ro-bind", path, path]);
        }
    }
    for (path, what) in &plan.places {
        match what {
            What::Read => say(&[&"--ro-bind", path, path]),
            What::Write => say(&[&"--bind", path, path]),
            What::WriteFrom(source) => say(&[&"--bind", source, path]),
            What::Empty => say(&[&"--tmpfs", path]),
            What::Blank => say(&[&"--ro-bind", &"/dev/null", path]),
            What::Link(target) => say(&[&"--symlink", target, path]),
        }
    }
    // Only when all that goes into them is there.
    for (path, what) in &plan.places {
        if *what == What::Empty {
            say(&[&"--remount-ro", path]);
        }
    }
    say(&[&"--remount-ro", &"/", &"--chdir", &dir, &"--"]);
    line
}
