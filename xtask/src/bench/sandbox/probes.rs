//! The probes: shell commands, each with its expected result per level.

use regatta_agents::sandbox::SandboxMechanism;
use regatta_core::agent::SandboxLevel;

/// The expected result of a probe.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Expectation {
    Open,
    Closed,
    /// Closed with mounts, open with Landlock alone, which hides contents but not names.
    OpenInLandlock,
    /// Open with mounts of its own, closed with Landlock alone.
    ClosedInLandlock,
    /// Open at `workspace`, closed at `strict`.
    ClosedInStrict,
}

use Expectation::{Closed, ClosedInLandlock, ClosedInStrict, Open, OpenInLandlock};

impl Expectation {
    pub(super) fn is_open_at(self, level: SandboxLevel, mechanism: SandboxMechanism) -> bool {
        match self {
            Open => true,
            Closed => false,
            OpenInLandlock => mechanism == SandboxMechanism::Landlock,
            ClosedInLandlock => mechanism != SandboxMechanism::Landlock,
            ClosedInStrict => level != SandboxLevel::Strict,
        }
    }
}

/// A shell command that tries one thing.
pub(super) struct Probe {
    pub(super) name: &'static str,
    pub(super) expectation: Expectation,
    pub(super) script: &'static str,
    /// True if the probe may also run without a sandbox.
    pub(super) is_harmless: bool,
}

const fn probe(
    name: &'static str,
    expectation: Expectation,
    script: &'static str,
    is_harmless: bool,
) -> Probe {
    Probe {
        name,
        expectation,
        script,
        is_harmless,
    }
}

pub(super) const PROBES: &[Probe] = &[
    probe("read the database", Closed, "cat $W/data/regatta.db", true),
    probe("read the API token", Closed, "cat $W/data/token", true),
    probe(
        "read the run directory's launch record",
        Closed,
        "cat $W/data/run/launch.json",
        true,
    ),
    probe(
        "read an ssh key",
        Closed,
        "cat $W/home/.ssh/id_ed25519",
        true,
    ),
    probe(
        "read the rest of the home",
        Closed,
        "cat $W/home/.netrc",
        true,
    ),
    probe(
        "list the home",
        Closed,
        "ls -a $W/home | grep -q netrc",
        true,
    ),
    probe(
        "learn that a file of the home exists",
        OpenInLandlock,
        "test -e $W/home/.netrc",
        true,
    ),
    probe(
        "read another workspace",
        Closed,
        "cat $W/data/workspaces/shop/A2/a.txt",
        true,
    ),
    probe(
        "read another workspace's git directory",
        Closed,
        "cat $W/data/workspaces/shop/A2/.git/HEAD",
        true,
    ),
    probe(
        "read the user's repository",
        Closed,
        "cat $W/repo/a.txt",
        true,
    ),
    probe(
        "read the vault's refs",
        Closed,
        "cat $W/data/vaults/shop.git/refs/heads/main",
        true,
    ),
    probe("read another's file in /tmp", Closed, "cat $T/secret", true),
    probe(
        "read through a symbolic link",
        Closed,
        "ln -sf $W/data/regatta.db l && cat l",
        true,
    ),
    probe(
        "read through a hard link",
        Closed,
        "ln $W/data/regatta.db h && cat h",
        true,
    ),
    probe("read through ..", Closed, "cat ../../../regatta.db", true),
    probe(
        "read through /proc/self/root",
        Closed,
        "cat /proc/self/root$W/data/regatta.db",
        true,
    ),
    probe(
        "read through /proc/1/root",
        Closed,
        "cat /proc/1/root$W/data/regatta.db",
        false,
    ),
    probe(
        "read the machine's password hashes",
        Closed,
        "test -s /etc/shadow && cat /etc/shadow",
        false,
    ),
    probe(
        "read a disk",
        Closed,
        "for d in /dev/vd? /dev/sd? /dev/nvme0n1; do head -c1 $d && exit 0; done; exit 1",
        false,
    ),
    probe(
        "make a device",
        Closed,
        "mknod d b 8 0 && head -c1 d",
        false,
    ),
    probe("read /var", ClosedInStrict, "ls /var/lib", true),
    probe(
        "read a process's environment",
        Closed,
        "tr '\\0' '\\n' < /proc/$P/environ | grep -q S3CRET",
        true,
    ),
    probe(
        "read a process's memory map",
        Closed,
        "head -c1 /proc/$P/maps | grep -q .",
        true,
    ),
    probe(
        "read a process's open files",
        Closed,
        "readlink /proc/$P/fd/0 | grep -q .",
        true,
    ),
    probe(
        "read a process's command line",
        OpenInLandlock,
        "tr '\\0' ' ' < /proc/$P/cmdline | grep -q sleep",
        true,
    ),
    probe("signal a process", Closed, "kill -0 $P", true),
    probe(
        "write the database",
        Closed,
        "echo x >> $W/data/regatta.db",
        true,
    ),
    probe(
        "truncate the database",
        Closed,
        "truncate -s 0 $W/data/regatta.db",
        true,
    ),
    probe("remove the database", Closed, "rm $W/data/regatta.db", true),
    probe(
        "write the vault's objects",
        Closed,
        "echo x > $W/data/vaults/shop.git/objects/evil",
        true,
    ),
    probe(
        "write another workspace",
        Closed,
        "echo x > $W/data/workspaces/shop/A2/evil",
        true,
    ),
    probe("write the home", Closed, "echo x > $W/home/evil", true),
    probe(
        "write a path listed to be read",
        Closed,
        "echo x > $W/home/listed/evil",
        true,
    ),
    probe(
        "write the user's repository",
        Closed,
        "echo x > $W/repo/evil",
        true,
    ),
    probe(
        "move its workspace away",
        Closed,
        "mv $W/data/workspaces/shop/A1 $W/data/workspaces/shop/A9",
        false,
    ),
    probe("write /usr", Closed, "echo x > /usr/regatta-probe", false),
    probe("write /etc", Closed, "echo x > /etc/regatta-probe", false),
    probe(
        "write kernel settings",
        Closed,
        "sh -c ': >> /proc/sys/kernel/core_pattern'",
        false,
    ),
    probe(
        "write /sys",
        Closed,
        "sh -c ': >> /sys/kernel/mm/transparent_hugepage/enabled'",
        false,
    ),
    probe(
        "mount a file system",
        Closed,
        "mount -t tmpfs none $HOME",
        false,
    ),
    probe(
        "unmount covered directories, in its own namespace",
        Closed,
        "unshare -Urm sh -c \"umount -l $W/data; umount -l $W/home; cat $W/data/regatta.db\"",
        false,
    ),
    probe(
        "open the vault, in its own namespace",
        Closed,
        "unshare -Urm sh -c \"mount -o remount,bind,rw $W/data/vaults/shop.git/objects && echo x \
        > $W/data/vaults/shop.git/objects/evil\"",
        false,
    ),
    probe(
        "gain privileges through a setuid program",
        Closed,
        "grep -q 'NoNewPrivs:.*0' /proc/self/status",
        true,
    ),
    probe(
        "keep the capabilities of root",
        Closed,
        "! grep -q 'CapBnd:.*0000000000000000' /proc/self/status && test $(id -u) = 0",
        false,
    ),
    probe(
        "connect to a socket in the file system",
        Closed,
        "$X confine-try unix $W/home/socket",
        true,
    ),
    probe(
        "connect to an abstract socket",
        Closed,
        "$X confine-try abstract $A",
        true,
    ),
    probe(
        "make a socket to the hypervisor",
        Closed,
        "$X confine-try family 40",
        false,
    ),
    probe(
        "make a raw socket",
        Closed,
        "$X confine-try family 17",
        false,
    ),
    probe(
        "connect to this machine's loopback",
        ClosedInStrict,
        "$X confine-try tcp $L",
        true,
    ),
    probe(
        "write the workspace",
        Open,
        "echo x > x && mkdir -p d && mv x d/ && rm -r d",
        true,
    ),
    probe(
        "write its own home",
        Open,
        "echo x > $HOME/x && rm $HOME/x",
        true,
    ),
    probe("write temporary files", Open, "rm $(mktemp)", true),
    probe(
        "write /tmp itself",
        ClosedInLandlock,
        "echo x > /tmp/regatta-probe-$P && rm /tmp/regatta-probe-$P",
        true,
    ),
    probe(
        "leave a result",
        Open,
        "echo {} > $W/data/run/outbox/r.tmp && mv $W/data/run/outbox/r.tmp \
        $W/data/run/outbox/result.json",
        true,
    ),
    probe(
        "read its prompt",
        Open,
        "grep -q prompt $W/data/run/prompt.md",
        true,
    ),
    probe(
        "read a listed path",
        Open,
        "grep -q listed $W/home/listed/file",
        true,
    ),
    probe(
        "write a listed path",
        Open,
        "echo x > $W/home/login/x",
        true,
    ),
    probe(
        "git status, add, commit, diff, log",
        Open,
        "git status -s && echo y >> a.txt && git add -A && git commit -qm second && git diff \
        HEAD~1 | grep -q y && git log --oneline | grep -q first",
        true,
    ),
    probe(
        "run programs of the system",
        Open,
        "ls /usr/bin | wc -l && sh -c true && cat /etc/passwd",
        true,
    ),
    probe(
        "use a pseudo-terminal",
        ClosedInLandlock,
        "script -qec true /dev/null",
        true,
    ),
    probe(
        "use /dev/null and random bytes",
        Open,
        "head -c 8 /dev/urandom > /dev/null",
        true,
    ),
];

/// The probes with listed hosts: $L is listed, $M is not, $N is a listed name that resolves to this
/// machine, and $K is the address of the tools. Each entry is a name, whether the probe is expected
/// to succeed, and a script.
pub(super) const LISTED_HOST_PROBES: &[(&str, bool, &str)] = &[
    (
        "reach a listed host through the proxy",
        true,
        "$X confine-try proxy $L",
    ),
    (
        "reach Regatta's tools at their address",
        true,
        "$X confine-try tcp $K",
    ),
    (
        "reach a host that is not listed through the proxy",
        false,
        "$X confine-try proxy $M",
    ),
    (
        "reach this machine by a listed name",
        false,
        "$X confine-try proxy $N",
    ),
    (
        "reach a cloud's metadata address through the proxy",
        false,
        "$X confine-try proxy 169.254.169.254:80",
    ),
    (
        "connect to a listed host past the proxy",
        false,
        "$X confine-try tcp $L",
    ),
    (
        "connect to this machine's loopback",
        false,
        "$X confine-try tcp $M",
    ),
    (
        "connect to the internet",
        false,
        "$X confine-try tcp 192.0.2.1:443",
    ),
    ("send a datagram", false, "$X confine-try udp 192.0.2.1:53"),
    ("make a raw socket", false, "$X confine-try family 17"),
    (
        "find the socket of the proxy",
        false,
        "test -e $TMPDIR/.regatta-egress",
    ),
];
