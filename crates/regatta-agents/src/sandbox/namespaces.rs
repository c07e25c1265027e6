//! Creates namespaces without bubblewrap: user, mount, process, IPC, host name, and network if the
//! program gets none.
//!
//! The work has two steps, because only the children of a process enter a new process namespace.
//! The first step creates the namespaces and waits. The second step is process number 1 inside.
//! This process builds the file system, drops all capabilities, starts the program and collects the
//! exit status of ended processes. When process number 1 ends, the kernel ends all other processes
//! in the namespace.

use std::collections::BTreeMap;
use std::ffi::{CStr, OsString};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive,
    mount_change, mount_remount, unmount,
};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, netlink::SocketAddrNetlink};
use rustix::thread::{CapabilitySet, CapabilitySets, UnshareFlags, set_capabilities};

use super::mounts::{MountPlan, PathContent};

/// The capabilities that the second step of the sandbox setup keeps for mounting, for dropping
/// capabilities and for configuring the loopback interface.
const NEEDED_CAPABILITIES: CapabilitySet = CapabilitySet::SYS_ADMIN
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::NET_ADMIN);

/// The entries of `/proc` through which kernel settings can be changed.
const KERNEL_SETTINGS: [&str; 5] = ["sys", "sysrq-trigger", "irq", "bus", "fs"];

/// Creates the namespaces, runs the command `inner_step` inside them and returns its exit status.
pub(super) fn run_in_namespaces(
    network: bool,
    inner_step: &[OsString],
) -> Result<ExitStatus, String> {
    let (uid, gid) = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    let mut namespaces = UnshareFlags::NEWUSER
        | UnshareFlags::NEWNS
        | UnshareFlags::NEWPID
        | UnshareFlags::NEWIPC
        | UnshareFlags::NEWUTS
        | UnshareFlags::NEWCGROUP;
    if !network {
        namespaces |= UnshareFlags::NEWNET;
    }
    unshare(namespaces)
        .map_err(|error| format!("the namespaces could not be created ({error})"))?;
    // Deny `setgroups` first, because the kernel otherwise refuses the map of groups from an
    // unprivileged process.
    write_proc_self("setgroups", "deny")?;
    write_proc_self("uid_map", &format!("{uid} {uid} 1\n"))?;
    write_proc_self("gid_map", &format!("{gid} {gid} 1\n"))?;
    // Make the capabilities ambient, because a process that is not root would otherwise lose them
    // when it executes the next step.
    let sets = CapabilitySets {
        effective: NEEDED_CAPABILITIES,
        permitted: NEEDED_CAPABILITIES,
        inheritable: NEEDED_CAPABILITIES,
    };
    set_capabilities(None, sets)
        .map_err(|error| format!("the capabilities could not be kept ({error})"))?;
    for capability in NEEDED_CAPABILITIES.iter() {
        rustix::thread::configure_capability_in_ambient_set(capability, true)
            .map_err(|error| format!("the capabilities could not be kept ({error})"))?;
    }
    let child = Command::new("/proc/self/exe").args(inner_step).spawn();
    let mut child = child.map_err(|error| {
        format!("the first process in the namespaces could not be started ({error})")
    })?;
    child.wait().map_err(|error| {
        format!("the first process in the namespaces could not be waited for ({error})")
    })
}

#[expect(
    deprecated,
    reason = "the call is unsafe only with FILES, which is not used here; the other form needs \
        unsafe code"
)]
fn unshare(spaces: UnshareFlags) -> rustix::io::Result<()> {
    rustix::thread::unshare(spaces)
}

fn write_proc_self(name: &str, text: &str) -> Result<(), String> {
    let path = format!("/proc/self/{name}");
    let written = fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| format!("{path} could not be written ({error})"))
}

/// Mounts the file system of the mount plan below `root`, makes that directory the root of this
/// process, and changes to the directory `dir`.
pub(super) fn build_root(plan: &MountPlan, root: &Path, dir: &Path) -> Result<(), String> {
    let describe = |doing: &str, path: &Path, error: &dyn std::fmt::Display| {
        format!("{doing} {} ({error})", path.display())
    };
    let private = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    // Isolate the mounts in one direction: mounts that the machine makes later may still appear
    // inside the sandbox, but no mount of the sandbox appears outside.
    mount_change("/", private)
        .map_err(|error| describe("could not isolate the mounts under", Path::new("/"), &error))?;
    mount(
        "tmpfs",
        root,
        "tmpfs",
        MountFlags::NOSUID | MountFlags::NODEV,
        Some(c"mode=755,size=8m"),
    )
    .map_err(|error| describe("could not mount the sandbox's root over", root, &error))?;
    // Prevent the new root from appearing inside itself when the data directory lies under a
    // visible path.
    mount_change(root, MountPropagationFlags::UNBINDABLE)
        .map_err(|error| describe("could not isolate the mounts under", root, &error))?;
    mount_dev(root)
        .map_err(|error| describe("could not create the sandbox's", Path::new("/dev"), &error))?;
    mount_proc(root)
        .map_err(|error| describe("could not mount the sandbox's", Path::new("/proc"), &error))?;
    for (path, content) in &plan.places {
        make_mount(root, path, content)
            .map_err(|error| describe("could not mount into the sandbox", path, &error))?;
    }
    set_mount_flags(plan, root)?;
    let root_flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    mount_remount(root, root_flags, c"")
        .map_err(|error| describe("could not remount read-only", root, &error))?;
    let dev_flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NOEXEC;
    mount_remount(root.join("dev"), dev_flags, c"").map_err(|error| {
        describe(
            "could not remount read-only the sandbox's",
            Path::new("/dev"),
            &error,
        )
    })?;
    let move_into_root = || -> io::Result<()> {
        std::env::set_current_dir(root)?;
        rustix::process::pivot_root(".", ".")?;
        unmount(".", UnmountFlags::DETACH)?;
        std::env::set_current_dir(dir)
    };
    move_into_root()
        .map_err(|error| describe("could not change the root directory to", root, &error))
}

fn path_in_root(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

fn make_mount(root: &Path, path: &Path, content: &PathContent) -> io::Result<()> {
    let target = path_in_root(root, path);
    let source = match content {
        PathContent::Link(link_target) => {
            create_parent(&target)?;
            return match std::os::unix::fs::symlink(link_target, &target) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
                _ => Ok(()),
            };
        }
        PathContent::AlreadyEmpty => return fs::create_dir_all(&target),
        PathContent::Empty => {
            fs::create_dir_all(&target)?;
            let flags = MountFlags::NOSUID | MountFlags::NODEV;
            return Ok(mount(
                "tmpfs",
                &target,
                "tmpfs",
                flags,
                Some(c"mode=755,size=8m"),
            )?);
        }
        PathContent::Unreadable => Path::new("/dev/null"),
        PathContent::Read | PathContent::Write => path,
        PathContent::WriteFrom(source) => source,
    };
    if fs::metadata(source)?.is_dir() {
        fs::create_dir_all(&target)?;
    } else if fs::symlink_metadata(&target).is_err() {
        create_parent(&target)?;
        File::create(&target)?;
    }
    // Mount everything below the source too, because the kernel does not allow showing a part of
    // the source without the rest.
    Ok(mount_bind_recursive(source, &target)?)
}

fn create_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)
}

/// Makes every mount under the new root read-only or writable according to the mount plan, and
/// makes setuid bits and device files ineffective on all of them.
fn set_mount_flags(plan: &MountPlan, root: &Path) -> Result<(), String> {
    let table = fs::read_to_string("/proc/self/mountinfo")
        .map_err(|error| format!("the mounts cannot be listed ({error})"))?;
    // Of several mounts at the same path, keep the last mount, because only the last mount is
    // visible.
    let mut mounts = BTreeMap::new();
    for line in table.lines() {
        let mut fields = line.split(' ').skip(4);
        if let (Some(mount_point), Some(options)) = (fields.next(), fields.next()) {
            mounts.insert(unescape_mount_path(mount_point), locked_flags(options));
        }
    }
    for (mount_point, locked) in mounts {
        let Ok(path) = mount_point.strip_prefix(root) else {
            continue;
        };
        if path.as_os_str().is_empty() {
            continue;
        }
        let path = Path::new("/").join(path);
        // Skip `/dev` and `/proc`, which are already mounted with the right flags.
        if plan.entry_for(&path).is_none()
            && (path.starts_with("/dev") || path.starts_with("/proc"))
        {
            continue;
        }
        let is_writable = matches!(
            plan.entry_for(&path),
            Some((_, PathContent::Write | PathContent::WriteFrom(_)))
        );
        let mut flags = locked | MountFlags::BIND | MountFlags::NOSUID | MountFlags::NODEV;
        if !is_writable {
            flags |= MountFlags::RDONLY;
        }
        match mount_remount(&mount_point, flags, c"") {
            Ok(()) => {}
            // Ignore the error for a mount that nobody can reach because it is behind an
            // inaccessible directory or under another mount.
            Err(
                rustix::io::Errno::ACCESS | rustix::io::Errno::NOENT | rustix::io::Errno::INVAL,
            ) if plan
                .entry_for(&path)
                .is_some_and(|(place, _)| *place != path) => {}
            Err(error) => {
                return Err(format!(
                    "could not restrict the mount at {} ({error})",
                    path.display()
                ));
            }
        }
    }
    Ok(())
}

/// Returns those flags of an existing mount that the kernel does not allow to be removed.
fn locked_flags(options: &str) -> MountFlags {
    options.split(',').fold(MountFlags::empty(), |sum, option| {
        sum | match option {
            "ro" => MountFlags::RDONLY,
            "nosuid" => MountFlags::NOSUID,
            "nodev" => MountFlags::NODEV,
            "noexec" => MountFlags::NOEXEC,
            "noatime" => MountFlags::NOATIME,
            "nodiratime" => MountFlags::NODIRATIME,
            "relatime" => MountFlags::RELATIME,
            _ => MountFlags::empty(),
        }
    })
}

/// Decodes a path from the kernel's list of mounts, in which spaces and backslashes are written as
/// octal numbers.
fn unescape_mount_path(field: &str) -> PathBuf {
    let mut bytes = vec![];
    let mut rest = field.as_bytes();
    while let Some((first, after_first)) = rest.split_first() {
        let octal = rest
            .get(1..4)
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .map(|digits| u8::from_str_radix(digits, 8));
        if let (b'\\', Some(Ok(byte))) = (first, octal) {
            bytes.push(byte);
            rest = &rest[4..];
        } else {
            bytes.push(*first);
            rest = after_first;
        }
    }
    OsString::from_vec(bytes).into()
}

/// Creates a `/dev` with the devices that any program may use, a separate set of pseudo-terminals,
/// and shared memory.
fn mount_dev(root: &Path) -> io::Result<()> {
    let dev = root.join("dev");
    fs::create_dir_all(&dev)?;
    mount(
        "tmpfs",
        &dev,
        "tmpfs",
        MountFlags::NOSUID | MountFlags::NOEXEC,
        Some(c"mode=755,size=1m"),
    )?;
    for name in ["null", "zero", "full", "random", "urandom", "tty"] {
        let device = Path::new("/dev").join(name);
        if device.exists() {
            File::create(dev.join(name))?;
            mount_bind(&device, dev.join(name))?;
        }
    }
    for (name, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
        ("ptmx", "pts/ptmx"),
    ] {
        std::os::unix::fs::symlink(target, dev.join(name))?;
    }
    let base_flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    for (name, kind, options) in [
        (
            "pts",
            "devpts",
            c"newinstance,ptmxmode=0666,mode=620" as &CStr,
        ),
        ("shm", "tmpfs", c"mode=1777"),
    ] {
        fs::create_dir(dev.join(name))?;
        let flags = if name == "shm" {
            base_flags | MountFlags::NODEV
        } else {
            base_flags
        };
        mount(kind, dev.join(name), kind, flags, Some(options))?;
    }
    Ok(())
}

/// Mounts a `/proc` that shows only the processes of this namespace.
fn mount_proc(root: &Path) -> io::Result<()> {
    let proc = root.join("proc");
    fs::create_dir_all(&proc)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", &proc, "proc", flags, None)?;
    // Make the kernel's settings read-only. The machine's root owns these settings, so a program
    // that runs as root could write to them even without capabilities.
    for name in KERNEL_SETTINGS {
        let path = proc.join(name);
        if rustix::process::getuid().is_root() && path.exists() {
            mount_bind_recursive(&path, &path)?;
            mount_remount(&path, flags | MountFlags::BIND | MountFlags::RDONLY, c"")?;
        }
    }
    Ok(())
}

/// Activates the loopback interface of the new network namespace.
pub(super) fn bring_up_loopback() -> Result<(), String> {
    let up = || -> rustix::io::Result<()> {
        let socket = rustix::net::socket(AddressFamily::NETLINK, SocketType::RAW, None)?;
        // The netlink message, which activates the interface, begins with a header: length,
        // RTM_NEWLINK, REQUEST|ACK, sequence number and port. After the header come the address
        // family, the type, the interface number 1, and the flags.
        let mut message = vec![];
        message.extend(32_u32.to_ne_bytes());
        message.extend(16_u16.to_ne_bytes());
        message.extend(5_u16.to_ne_bytes());
        message.extend([0; 8]);
        message.extend([0; 4]);
        message.extend(1_i32.to_ne_bytes());
        message.extend(1_u32.to_ne_bytes());
        message.extend(1_u32.to_ne_bytes());
        rustix::net::sendto(
            &socket,
            &message,
            SendFlags::empty(),
            &SocketAddrNetlink::new(0, 0),
        )?;
        let mut answer = [0; 64];
        let (length, _) = rustix::net::recv(&socket, &mut answer[..], RecvFlags::empty())?;
        let code = answer
            .get(16..20)
            .filter(|_| length >= 20)
            .and_then(|answer| answer.try_into().ok());
        match code.map(i32::from_ne_bytes) {
            Some(0) => Ok(()),
            Some(error) => Err(rustix::io::Errno::from_raw_os_error(-error)),
            None => Err(rustix::io::Errno::PROTO),
        }
    };
    up().map_err(|error| format!("the loopback interface could not be brought up ({error})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_path_in_the_list_of_mounts_is_unescaped() {
        assert_eq!(
            unescape_mount_path(r"/mnt/My\040Disk\134x"),
            Path::new(r"/mnt/My Disk\x")
        );
        assert_eq!(unescape_mount_path("/plain"), Path::new("/plain"));
    }
}
