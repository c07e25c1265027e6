//! What a sandboxed program can and cannot do: a table per level, with expected and actual results.
//!
//! Every probe is a shell command that runs in the sandbox. Around it is a world of its own: a data
//! directory, a user's home and repository, and a process and sockets that do not belong to the
//! agent. The same probes run without a sandbox first, because a probe that fails there too would
//! prove nothing.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use regatta_agents::egress::EgressGate;
use regatta_agents::sandbox::{
    self, NetworkAccess, PreparedSandbox, ResourceLimits, SandboxMechanism, SandboxSpec, level_name,
};
use regatta_core::agent::SandboxLevel;

use crate::args::Args;
use crate::report::{Report, workspace_root};

/// The expected result of a probe.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expectation {
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
    fn is_open_at(self, level: SandboxLevel, mechanism: SandboxMechanism) -> bool {
        match self {
            Open => true,
            Closed => false,
            OpenInLandlock => mechanism == SandboxMechanism::Landlock,
            ClosedInLandlock => mechanism != SandboxMechanism::Landlock,
            ClosedInStrict => level != SandboxLevel::Strict,
        }
    }
}

/// A probe: name, expected result, command, and whether it may run without a sandbox.
type Probe = (&'static str, Expectation, &'static str, bool);

const PROBES: &[Probe] = &[
    ("read the database", Closed, "cat $W/data/regatta.db", true),
    ("read the API token", Closed, "cat $W/data/token", true),
    (
        "read the run directory's launch record",
        Closed,
        "cat $W/data/run/launch.json",
        true,
    ),
    (
        "read an ssh key",
        Closed,
        "cat $W/home/.ssh/id_ed25519",
        true,
    ),
    (
        "read the rest of the home",
        Closed,
        "cat $W/home/.netrc",
        true,
    ),
    (
        "list the home",
        Closed,
        "ls -a $W/home | grep -q netrc",
        true,
    ),
    (
        "learn that a file of the home exists",
        OpenInLandlock,
        "test -e $W/home/.netrc",
        true,
    ),
    (
        "read another workspace",
        Closed,
        "cat $W/data/workspaces/shop/A2/a.txt",
        true,
    ),
    (
        "read another workspace's git directory",
        Closed,
        "cat $W/data/workspaces/shop/A2/.git/HEAD",
        true,
    ),
    (
        "read the user's repository",
        Closed,
        "cat $W/repo/a.txt",
        true,
    ),
    (
        "read the vault's refs",
        Closed,
        "cat $W/data/vaults/shop.git/refs/heads/main",
        true,
    ),
    ("read another's file in /tmp", Closed, "cat $T/secret", true),
    (
        "read through a symbolic link",
        Closed,
        "ln -sf $W/data/regatta.db l && cat l",
        true,
    ),
    (
        "read through a hard link",
        Closed,
        "ln $W/data/regatta.db h && cat h",
        true,
    ),
    ("read through ..", Closed, "cat ../../../regatta.db", true),
    (
        "read through /proc/self/root",
        Closed,
        "cat /proc/self/root$W/data/regatta.db",
        true,
    ),
    (
        "read through /proc/1/root",
        Closed,
        "cat /proc/1/root$W/data/regatta.db",
        false,
    ),
    (
        "read the machine's password hashes",
        Closed,
        "test -s /etc/shadow && cat /etc/shadow",
        false,
    ),
    (
        "read a disk",
        Closed,
        "for d in /dev/vd? /dev/sd? /dev/nvme0n1; do head -c1 $d && exit 0; done; exit 1",
        false,
    ),
    (
        "make a device",
        Closed,
        "mknod d b 8 0 && head -c1 d",
        false,
    ),
    ("read /var", ClosedInStrict, "ls /var/lib", true),
    (
        "read a process's environment",
        Closed,
        "tr '\\0' '\\n' < /proc/$P/environ | grep -q S3CRET",
        true,
    ),
    (
        "read a process's memory map",
        Closed,
        "head -c1 /proc/$P/maps | grep -q .",
        true,
    ),
    (
        "read a process's open files",
        Closed,
        "readlink /proc/$P/fd/0 | grep -q .",
        true,
    ),
    (
        "read a process's command line",
        OpenInLandlock,
        "tr '\\0' ' ' < /proc/$P/cmdline | grep -q sleep",
        true,
    ),
    ("signal a process", Closed, "kill -0 $P", true),
    (
        "write the database",
        Closed,
        "echo x >> $W/data/regatta.db",
        true,
    ),
    (
        "truncate the database",
        Closed,
        "truncate -s 0 $W/data/regatta.db",
        true,
    ),
    ("remove the database", Closed, "rm $W/data/regatta.db", true),
    (
        "write the vault's objects",
        Closed,
        "echo x > $W/data/vaults/shop.git/objects/evil",
        true,
    ),
    (
        "write another workspace",
        Closed,
        "echo x > $W/data/workspaces/shop/A2/evil",
        true,
    ),
    ("write the home", Closed, "echo x > $W/home/evil", true),
    (
        "write a path listed to be read",
        Closed,
        "echo x > $W/home/listed/evil",
        true,
    ),
    (
        "write the user's repository",
        Closed,
        "echo x > $W/repo/evil",
        true,
    ),
    (
        "move its workspace away",
        Closed,
        "mv $W/data/workspaces/shop/A1 $W/data/workspaces/shop/A9",
        false,
    ),
    ("write /usr", Closed, "echo x > /usr/regatta-probe", false),
    ("write /etc", Closed, "echo x > /etc/regatta-probe", false),
    (
        "write kernel settings",
        Closed,
        "sh -c ': >> /proc/sys/kernel/core_pattern'",
        false,
    ),
    (
        "write /sys",
        Closed,
        "sh -c ': >> /sys/kernel/mm/transparent_hugepage/enabled'",
        false,
    ),
    (
        "mount a file system",
        Closed,
        "mount -t tmpfs none $HOME",
        false,
    ),
    (
        "unmount covered directories, in its own namespace",
        Closed,
        "unshare -Urm sh -c \"umount -l $W/data; umount -l $W/home; cat $W/data/regatta.db\"",
        false,
    ),
    (
        "open the vault, in its own namespace",
        Closed,
        "unshare -Urm sh -c \"mount -o remount,bind,rw $W/data/vaults/shop.git/objects && echo x \
        > $W/data/vaults/shop.git/objects/evil\"",
        false,
    ),
    (
        "gain privileges through a setuid program",
        Closed,
        "grep -q 'NoNewPrivs:.*0' /proc/self/status",
        true,
    ),
    (
        "keep the capabilities of root",
        Closed,
        "! grep -q 'CapBnd:.*0000000000000000' /proc/self/status && test $(id -u) = 0",
        false,
    ),
    (
        "connect to a socket in the file system",
        Closed,
        "$X confine-try unix $W/home/socket",
        true,
    ),
    (
        "connect to an abstract socket",
        Closed,
        "$X confine-try abstract $A",
        true,
    ),
    (
        "make a socket to the hypervisor",
        Closed,
        "$X confine-try family 40",
        false,
    ),
    (
        "make a raw socket",
        Closed,
        "$X confine-try family 17",
        false,
    ),
    (
        "connect to this machine's loopback",
        ClosedInStrict,
        "$X confine-try tcp $L",
        true,
    ),
    (
        "write the workspace",
        Open,
        "echo x > x && mkdir -p d && mv x d/ && rm -r d",
        true,
    ),
    (
        "write its own home",
        Open,
        "echo x > $HOME/x && rm $HOME/x",
        true,
    ),
    ("write temporary files", Open, "rm $(mktemp)", true),
    (
        "write /tmp itself",
        ClosedInLandlock,
        "echo x > /tmp/regatta-probe-$P && rm /tmp/regatta-probe-$P",
        true,
    ),
    (
        "leave a result",
        Open,
        "echo {} > $W/data/run/outbox/r.tmp && mv $W/data/run/outbox/r.tmp \
        $W/data/run/outbox/result.json",
        true,
    ),
    (
        "read its prompt",
        Open,
        "grep -q prompt $W/data/run/prompt.md",
        true,
    ),
    (
        "read a listed path",
        Open,
        "grep -q listed $W/home/listed/file",
        true,
    ),
    (
        "write a listed path",
        Open,
        "echo x > $W/home/login/x",
        true,
    ),
    (
        "git status, add, commit, diff, log",
        Open,
        "git status -s && echo y >> a.txt && git add -A && git commit -qm second && git diff \
        HEAD~1 | grep -q y && git log --oneline | grep -q first",
        true,
    ),
    (
        "run programs of the system",
        Open,
        "ls /usr/bin | wc -l && sh -c true && cat /etc/passwd",
        true,
    ),
    (
        "use a pseudo-terminal",
        ClosedInLandlock,
        "script -qec true /dev/null",
        true,
    ),
    (
        "use /dev/null and random bytes",
        Open,
        "head -c 8 /dev/urandom > /dev/null",
        true,
    ),
];

/// The probes with listed hosts: $L is listed, $M is not, $N is a listed name that resolves to this
/// machine, and $K is the address of the tools.
const LISTED_HOST_PROBES: &[(&str, bool, &str)] = &[
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

/// A sandbox mechanism with the results of its probes.
struct ProbeColumn {
    title: String,
    expected: Vec<bool>,
    observed: Vec<Option<bool>>,
    /// The additional time of a start, at the median.
    overhead: Option<Duration>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let mut report = Report::new("sandbox", args);
    let exe = std::env::current_exe()?;
    let available = sandbox::detect_mechanisms(&exe);
    for mechanism_finding in &available.findings {
        let version = mechanism_finding
            .version
            .as_ref()
            .map(|version| format!(" {version}"))
            .unwrap_or_default();
        report.add_line(format!(
            "{}{version}: {}",
            mechanism_finding.mechanism,
            mechanism_finding.problem.as_deref().unwrap_or("works")
        ));
    }
    let working: Vec<SandboxMechanism> = available
        .findings
        .iter()
        .filter(|mechanism_finding| mechanism_finding.problem.is_none())
        .map(|mechanism_finding| mechanism_finding.mechanism)
        .collect();
    ensure!(
        !working.is_empty(),
        "no sandbox mechanism works on this machine: {}",
        available.problems().join(" ")
    );
    let control = {
        let world = ProbeWorld::new()?;
        let open = run_probes(&world, &PreparedSandbox::default(), true)?;
        ProbeColumn {
            title: "off".to_owned(),
            expected: vec![true; PROBES.len()],
            observed: open,
            overhead: None,
        }
    };
    let plain = median_start(&ProbeWorld::new()?, &PreparedSandbox::default())?;
    let mut tables = String::new();
    for level in [SandboxLevel::Workspace, SandboxLevel::Strict] {
        let mut columns = vec![];
        for mechanism in &working {
            let world = ProbeWorld::new()?;
            let prepared = sandbox::prepare(&world.confine(level, *mechanism))
                .map_err(|error| anyhow::anyhow!(error.message))?;
            sandbox::verify(&prepared).map_err(|error| anyhow::anyhow!(error.message))?;
            let overhead = median_start(&world, &prepared)?.saturating_sub(plain);
            columns.push(ProbeColumn {
                title: mechanism.to_string(),
                expected: PROBES
                    .iter()
                    .map(|row| row.1.is_open_at(level, *mechanism))
                    .collect(),
                observed: run_probes(&world, &prepared, false)?,
                overhead: Some(overhead),
            });
        }
        for column in &columns {
            let wrong: Vec<&str> = (0..PROBES.len())
                .filter(|n| column.observed[*n] != Some(column.expected[*n]))
                .map(|n| PROBES[n].0)
                .collect();
            let name = format!("{} by {}", level_name(level), column.title);
            let overhead = column.overhead.unwrap_or_default().as_secs_f64() * 1000.0;
            report.add_line(format!(
                "{name}: {} probes, {overhead:.1} ms more per start",
                PROBES.len()
            ));
            report.set_value(&format!("{name} ms"), overhead);
            report.require(
                wrong.is_empty(),
                format!(
                    "{name}: as expected{}",
                    if wrong.is_empty() {
                        String::new()
                    } else {
                        format!(", except: {}", wrong.join("; "))
                    }
                ),
            );
        }
        tables.push_str(&report_table(level, &control, &columns));
    }
    let dead: Vec<&str> = (0..PROBES.len())
        .filter(|n| control.observed[*n] == Some(false))
        .map(|n| PROBES[n].0)
        .collect();
    report.require(
        dead.is_empty(),
        format!(
            "without a sandbox, every probe that runs succeeds{}",
            if dead.is_empty() {
                String::new()
            } else {
                format!(", except: {}", dead.join("; "))
            }
        ),
    );
    tables.push_str(&probe_listed_hosts(&working, &mut report)?);
    if args.flag("write") {
        let path = workspace_root().join("docs/sandbox.md");
        std::fs::write(&path, report_page(&tables, &available))?;
        report.add_line(format!("written: {}", path.display()));
    }
    report.finish()
}

/// Runs the probes with listed hosts.
fn probe_listed_hosts(working: &[SandboxMechanism], report: &mut Report) -> anyhow::Result<String> {
    let mut rows: Vec<String> = LISTED_HOST_PROBES
        .iter()
        .map(|row| format!("| {} |", row.0))
        .collect();
    let mut titles = "| probe |".to_owned();
    for mechanism in working
        .iter()
        .filter(|sandbox_mechanism| **sandbox_mechanism != SandboxMechanism::Landlock)
    {
        let world = ProbeWorld::new()?;
        let servers = [
            TcpListener::bind("127.0.0.1:0")?,
            TcpListener::bind("127.0.0.1:0")?,
        ];
        let [listed, tools] = [servers[0].local_addr()?, servers[1].local_addr()?];
        let other = world.tcp.local_addr()?;
        let mut confine = world.confine(SandboxLevel::Strict, *mechanism);
        let name = format!("localhost:{}", other.port());
        confine.network = NetworkAccess::Only(vec![listed.to_string(), name.clone()]);
        confine.tools_url = Some(format!("http://{tools}/mcp"));
        let prepared =
            sandbox::prepare(&confine).map_err(|error| anyhow::anyhow!(error.message))?;
        let ways = prepared
            .egress_routes
            .clone()
            .context("the sandbox has listed hosts")?;
        let mut wrong = vec![];
        for (row, (probe, expected, script)) in rows.iter_mut().zip(LISTED_HOST_PROBES) {
            let gate = EgressGate::open(&confine.tmp, ways.clone())?;
            let attend = std::thread::spawn(move || gate.serve_any(Arc::new(drop)));
            let mut command = world.command(&prepared, script);
            command.envs(prepared.env.iter().cloned());
            command
                .env("L", listed.to_string())
                .env("M", other.to_string())
                .env("K", tools.to_string())
                .env("N", &name);
            let output = command.output()?;
            let code = output.status.code();
            ensure!(
                code != Some(i32::from(sandbox::SANDBOX_FAILED_EXIT_CODE)),
                "{probe}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            attend
                .join()
                .map_err(|_| anyhow::anyhow!("the gate panicked"))??;
            let seen = code == Some(0);
            let _infallible = write!(row, " {} |", if seen { "can" } else { "cannot" });
            if seen != *expected {
                wrong.push(*probe);
            }
        }
        let _infallible = write!(titles, " {mechanism} |");
        let but = if wrong.is_empty() {
            String::new()
        } else {
            format!(", except: {}", wrong.join("; "))
        };
        report.require(
            wrong.is_empty(),
            format!(
                "listed hosts by {mechanism}: {} probes as expected{but}",
                LISTED_HOST_PROBES.len()
            ),
        );
    }
    let rule = "---|".repeat(titles.matches('|').count() - 1);
    Ok(format!(
        "\n## strict, with listed hosts\n\n{titles}\n|{rule}\n{}\n",
        rows.join("\n")
    ))
}

fn report_page(tables: &str, available: &sandbox::SandboxReport) -> String {
    let user = if rustix::process::getuid().is_root() {
        "root"
    } else {
        "a user without privileges"
    };
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let versions: Vec<String> = available
        .findings
        .iter()
        .map(|mechanism_finding| {
            format!(
                "{}{}",
                mechanism_finding.mechanism,
                mechanism_finding
                    .version
                    .as_ref()
                    .map(|version| format!(" {version}"))
                    .unwrap_or_default()
            )
        })
        .collect();
    format!(
        "# The sandbox

For people who decide how much to trust an agent. After this page you know what each sandbox level keeps out on a machine like the one tested.

```
$ regatta doctor
…
✓ sandbox    own namespaces
…
$ regatta agent add claude-1 --preset claude --confine strict --egress api.anthropic.com
```

| level | files | network |
|---|---|---|
| `workspace` | writes the workspace, its own home and temporary files | open |
| `strict` | also reads only the system's programs and listed paths | closed, unless the agent's profile opens it |
| `off` | everything that you can do | open |

**Listed hosts** (`--egress HOST`). The program has only its own loopback, with a proxy whose other end is in its shim. The proxy resolves names itself and allows only listed hosts; an entry without a port means 443 and 80. A listed name that resolves to this machine or its network is refused, unless the address itself is listed. Each refusal is a line in the attempt's log. Proxies that are configured for the daemon are not used.

**Regatta's tools** are reached at their usual address, also without a network.

**Landlock** cannot give a program a network of its own. With Landlock a list of hosts is refused, and a program without network has no tools.

The tables below were written by `cargo xtask bench sandbox --write`, as {user}, on Linux {} with {}. A cell shows the result of a probe; if the result was not the expected one, the expected one stands behind it. The column `off` is the same probe without a sandbox; `—` was not tried, because it would do harm or needs privileges.
{tables}",
        kernel.trim(),
        versions.join(", "),
    )
}

fn report_table(level: SandboxLevel, control: &ProbeColumn, columns: &[ProbeColumn]) -> String {
    let mut text = format!("\n## {}\n\n| probe | off |", level_name(level));
    for column in columns {
        let _infallible = write!(text, " {} |", column.title);
    }
    let _infallible = writeln!(text, "\n|---|---|{}", "---|".repeat(columns.len()));
    let word = |flag: Option<bool>| match flag {
        Some(true) => "can",
        Some(false) => "cannot",
        None => "—",
    };
    for (at, (name, ..)) in PROBES.iter().enumerate() {
        let _infallible = write!(text, "| {name} | {} |", word(control.observed[at]));
        for column in columns {
            let wrong = column.observed[at] != Some(column.expected[at]);
            let expected = if wrong {
                format!(" (**expected: {}**)", word(Some(column.expected[at])))
            } else {
                String::new()
            };
            let _infallible = write!(text, " {}{expected} |", word(column.observed[at]));
        }
        text.push('\n');
    }
    text
}

/// Runs every probe by itself. Returns `None` for probes that do not run without a sandbox.
fn run_probes(
    world: &ProbeWorld,
    prepared: &PreparedSandbox,
    unconfined: bool,
) -> anyhow::Result<Vec<Option<bool>>> {
    let mut changed = false;
    PROBES
        .iter()
        .map(|(name, _, script, harmless)| {
            if unconfined && !harmless {
                return Ok(None);
            }
            // Errors are ignored, because a failed probe has changed nothing.
            if changed {
                world.reset()?;
            }
            let output = world
                .command(prepared, script)
                .output()
                .with_context(|| format!("run {name}"))?;
            let code = output.status.code();
            ensure!(
                code != Some(i32::from(sandbox::SANDBOX_FAILED_EXIT_CODE)),
                "{name}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            changed = code == Some(0);
            Ok(Some(changed))
        })
        .collect()
}

/// Returns the time to start a program that does nothing and to wait for its end.
fn median_start(world: &ProbeWorld, prepared: &PreparedSandbox) -> anyhow::Result<Duration> {
    let mut times = vec![];
    for _ in 0..21 {
        let start = Instant::now();
        ensure!(
            world.command(prepared, "exit 0").status()?.success(),
            "the program does not start"
        );
        times.push(start.elapsed());
    }
    times.sort();
    Ok(times[times.len() / 2])
}

/// A data directory, a user's home and repository, and a foreign process and sockets.
struct ProbeWorld {
    directory: tempfile::TempDir,
    shared: tempfile::TempDir,
    victim: Child,
    tcp: TcpListener,
    abstract_name: String,
    _unix: UnixListener,
    _abstract: UnixListener,
}

impl ProbeWorld {
    fn new() -> anyhow::Result<ProbeWorld> {
        let directory = tempfile::Builder::new()
            .prefix("regatta-sandbox-")
            .tempdir_in("/var/tmp")?;
        let shared = tempfile::Builder::new()
            .prefix("regatta-sandbox-")
            .tempdir_in("/tmp")?;
        std::fs::write(shared.path().join("secret"), "somebody else's")?;
        std::fs::create_dir_all(directory.path().join("home"))?;
        let abstract_name = directory
            .path()
            .file_name()
            .context("the directory has a name")?
            .to_string_lossy()
            .into_owned();
        let unix = UnixListener::bind(directory.path().join("home/socket"))?;
        let address = SocketAddr::from_abstract_name(abstract_name.as_bytes())?;
        let world = ProbeWorld {
            victim: Command::new("sleep")
                .arg("600")
                .env("S3CRET", "S3CRET")
                .stdin(Stdio::null())
                .spawn()?,
            tcp: TcpListener::bind("127.0.0.1:0")?,
            _unix: unix,
            _abstract: UnixListener::bind_addr(&address)?,
            directory,
            shared,
            abstract_name,
        };
        world.reset()?;
        Ok(world)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Restores the world for the next probe.
    fn reset(&self) -> anyhow::Result<()> {
        let script = "
            if [ -d keep ]; then rm -rf data/vaults data/workspaces/shop/A[12] repo; cp -a keep/. .; else
            mkdir -p data/workspaces/shop data/homes/tester data/run/tmp data/run/outbox home/.ssh home/listed home/login repo
            git init -q --bare data/vaults/shop.git; git init -q repo; cd repo; echo hello > a.txt; git add .
            git -c user.name=x -c user.email=x@x commit -qm first; git push -q ../data/vaults/shop.git HEAD:refs/heads/main; cd ..
            for a in A1 A2; do git init -q data/workspaces/shop/$a; (cd data/workspaces/shop/$a
              echo $W/data/vaults/shop.git/objects > .git/objects/info/alternates
              git update-ref HEAD $(git -C $W/data/vaults/shop.git rev-parse main); git reset -q --hard
              git config user.name tester; git config user.email t@t); done
            mkdir -p keep/data/workspaces/shop; cp -a data/vaults keep/data/; cp -a data/workspaces/shop/A? keep/data/workspaces/shop/; cp -a repo keep/
            fi
            rm -rf home/evil home/listed/evil
            echo db > data/regatta.db; echo token > data/token; echo launch > data/run/launch.json; echo the prompt > data/run/prompt.md
            echo key > home/.ssh/id_ed25519; echo pass > home/.netrc; echo a listed file > home/listed/file";
        let done = Command::new("sh")
            .args(["-ec", script])
            .current_dir(self.directory.path())
            .env("W", self.directory.path())
            .output()?;
        ensure!(
            done.status.success(),
            "could not create the world: {}",
            String::from_utf8_lossy(&done.stderr)
        );
        Ok(())
    }

    fn confine(&self, level: SandboxLevel, mechanism: SandboxMechanism) -> SandboxSpec {
        SandboxSpec {
            level,
            is_requested: true,
            mechanism: Some(mechanism),
            network: NetworkAccess::from_profile(level, None, &[]),
            tools_url: None,
            limits: ResourceLimits::default(),
            program: "sh".to_owned(),
            search_path: ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"]
                .map(PathBuf::from)
                .to_vec(),
            waits_for_shim: false,
            regatta_exe: std::env::current_exe().unwrap_or_default(),
            data_dir: self.path("data"),
            run_dir: self.path("data/run"),
            workspace: self.path("data/workspaces/shop/A1"),
            start_dir: None,
            home: self.path("data/homes/tester"),
            tmp: self.path("data/run/tmp"),
            outbox: self.path("data/run/outbox"),
            vault_objects: Some(self.path("data/vaults/shop.git/objects")),
            input_files: vec![self.path("data/run/prompt.md")],
            user_homes: vec![self.path("home")],
            hidden_paths: vec![self.path("repo")],
            read_paths: vec![self.path("home/listed")],
            write_paths: vec![self.path("home/login")],
        }
    }

    fn command(&self, prepared: &PreparedSandbox, script: &str) -> Command {
        let mut words = prepared
            .argv_prefix
            .iter()
            .map(AsRef::as_ref)
            .chain([Path::new("sh").as_os_str()]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command
            .args(words)
            .args(["-c", script])
            .env_clear()
            .current_dir(self.path("data/workspaces/shop/A1"));
        command
            .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
            .env("LC_ALL", "C");
        command
            .env("HOME", self.path("data/homes/tester"))
            .env("TMPDIR", self.path("data/run/tmp"));
        command
            .env("W", self.directory.path())
            .env("T", self.shared.path())
            .env("A", &self.abstract_name);
        command
            .env("P", self.victim.id().to_string())
            .env("X", std::env::current_exe().unwrap_or_default());
        command.env(
            "L",
            self.tcp
                .local_addr()
                .map(|address| address.to_string())
                .unwrap_or_default(),
        );
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command
    }
}

impl Drop for ProbeWorld {
    fn drop(&mut self) {
        // The process is our child and not reaped yet, so its number cannot be used again.
        drop(self.victim.kill());
        drop(self.victim.wait());
    }
}

/// Requests a tunnel from the proxy in the environment.
fn through_proxy(to: &str) -> std::io::Result<()> {
    let proxy = std::env::var("https_proxy").unwrap_or_default();
    let mut proxy = TcpStream::connect(proxy.trim_start_matches("http://"))?;
    write!(proxy, "CONNECT {to} HTTP/1.1\r\n\r\n")?;
    let mut answer = [0; 12];
    proxy.read_exact(&mut answer)?;
    if answer.ends_with(b" 200") {
        Ok(())
    } else {
        Err(std::io::Error::other(
            String::from_utf8_lossy(&answer).into_owned(),
        ))
    }
}

/// Tries something that a shell cannot do: `KIND WHAT`.
pub(crate) fn run_probe(kind: &str, what: &str) -> ExitCode {
    let done: std::io::Result<()> = match kind {
        "unix" => UnixStream::connect(what).map(drop),
        "abstract" => SocketAddr::from_abstract_name(what)
            .and_then(|address| UnixStream::connect_addr(&address))
            .map(drop),
        "udp" => UdpSocket::bind("0.0.0.0:0")
            .and_then(|udp_socket| udp_socket.send_to(b"x", what))
            .map(drop),
        "proxy" => through_proxy(what),
        "tcp" => TcpStream::connect(what).and_then(|mut stream| stream.write_all(b"x")),
        "family" => {
            let family = what
                .parse()
                .map(rustix::net::AddressFamily::from_raw)
                .unwrap_or(rustix::net::AddressFamily::UNSPEC);
            rustix::net::socket(family, rustix::net::SocketType::STREAM, None)
                .map(drop)
                .map_err(Into::into)
        }
        _ => Err(std::io::ErrorKind::InvalidInput.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{kind} {what}: {error}");
            ExitCode::FAILURE
        }
    }
}
