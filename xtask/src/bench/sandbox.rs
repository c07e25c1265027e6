//! Measures the access of a sandboxed program: a table per level, with expected and actual results.
//!
//! Every probe is a shell command that runs in the sandbox. Around it is a world of its own: a data
//! directory, a user's home and repository, and a process and sockets that do not belong to the
//! agent. The same probes run without a sandbox first, because a probe that fails there too would
//! prove nothing.

mod probe_world;
mod probes;

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use regatta_agents::egress::EgressGate;
use regatta_agents::sandbox::{self, NetworkAccess, PreparedSandbox, SandboxMechanism, level_name};
use regatta_core::agent::SandboxLevel;

use self::probe_world::ProbeWorld;
use self::probes::{LISTED_HOST_PROBES, PROBES};
use crate::args::Args;
use crate::report::{Report, workspace_root};

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
    for finding in &available.findings {
        let version = finding
            .version
            .as_ref()
            .map(|version| format!(" {version}"))
            .unwrap_or_default();
        report.add_line(format!(
            "{}{version}: {}",
            finding.mechanism,
            finding.problem.as_deref().unwrap_or("works")
        ));
    }
    let working: Vec<SandboxMechanism> = available
        .findings
        .iter()
        .filter(|finding| finding.problem.is_none())
        .map(|finding| finding.mechanism)
        .collect();
    ensure!(
        !working.is_empty(),
        "no sandbox mechanism works on this machine: {}",
        available.problems().join(" ")
    );
    let control = {
        let world = ProbeWorld::new()?;
        let observed = run_probes(&world, &PreparedSandbox::default(), true)?;
        ProbeColumn {
            title: "off".to_owned(),
            expected: vec![true; PROBES.len()],
            observed,
            overhead: None,
        }
    };
    let start_without_sandbox = median_start(&ProbeWorld::new()?, &PreparedSandbox::default())?;
    let mut tables = String::new();
    for level in [SandboxLevel::Workspace, SandboxLevel::Strict] {
        let mut columns = vec![];
        for mechanism in &working {
            let world = ProbeWorld::new()?;
            let prepared = sandbox::prepare(&world.sandbox_spec(level, *mechanism))
                .map_err(|error| anyhow::anyhow!(error.message))?;
            sandbox::verify(&prepared).map_err(|error| anyhow::anyhow!(error.message))?;
            let overhead = median_start(&world, &prepared)?.saturating_sub(start_without_sandbox);
            columns.push(ProbeColumn {
                title: mechanism.to_string(),
                expected: PROBES
                    .iter()
                    .map(|probe| probe.expectation.is_open_at(level, *mechanism))
                    .collect(),
                observed: run_probes(&world, &prepared, false)?,
                overhead: Some(overhead),
            });
        }
        for column in &columns {
            let wrong: Vec<&str> = (0..PROBES.len())
                .filter(|index| column.observed[*index] != Some(column.expected[*index]))
                .map(|index| PROBES[index].name)
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
    let failing: Vec<&str> = (0..PROBES.len())
        .filter(|index| control.observed[*index] == Some(false))
        .map(|index| PROBES[index].name)
        .collect();
    report.require(
        failing.is_empty(),
        format!(
            "without a sandbox, every probe that runs succeeds{}",
            if failing.is_empty() {
                String::new()
            } else {
                format!(", except: {}", failing.join("; "))
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
        .map(|(name, ..)| format!("| {name} |"))
        .collect();
    let mut titles = "| probe |".to_owned();
    for mechanism in working
        .iter()
        .filter(|mechanism| **mechanism != SandboxMechanism::Landlock)
    {
        let world = ProbeWorld::new()?;
        let servers = [
            TcpListener::bind("127.0.0.1:0")?,
            TcpListener::bind("127.0.0.1:0")?,
        ];
        let [listed, tools] = [servers[0].local_addr()?, servers[1].local_addr()?];
        let unlisted = world.tcp.local_addr()?;
        let mut spec = world.sandbox_spec(SandboxLevel::Strict, *mechanism);
        let name = format!("localhost:{}", unlisted.port());
        spec.network = NetworkAccess::Only(vec![listed.to_string(), name.clone()]);
        spec.tools_url = Some(format!("http://{tools}/mcp"));
        let prepared = sandbox::prepare(&spec).map_err(|error| anyhow::anyhow!(error.message))?;
        let routes = prepared
            .egress_routes
            .clone()
            .context("the sandbox has listed hosts")?;
        let mut wrong = vec![];
        for (row, (probe, expected, script)) in rows.iter_mut().zip(LISTED_HOST_PROBES) {
            let gate = EgressGate::open(&spec.tmp, routes.clone())?;
            let gate_thread = std::thread::spawn(move || gate.serve_any(Arc::new(drop)));
            let mut command = world.command(&prepared, script);
            command.envs(prepared.env.iter().cloned());
            command
                .env("L", listed.to_string())
                .env("M", unlisted.to_string())
                .env("K", tools.to_string())
                .env("N", &name);
            let output = command.output()?;
            let code = output.status.code();
            ensure!(
                code != Some(i32::from(sandbox::SANDBOX_FAILED_EXIT_CODE)),
                "{probe}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            gate_thread
                .join()
                .map_err(|_| anyhow::anyhow!("the gate panicked"))??;
            let reached = code == Some(0);
            let _infallible = write!(row, " {} |", if reached { "can" } else { "cannot" });
            if reached != *expected {
                wrong.push(*probe);
            }
        }
        let _infallible = write!(titles, " {mechanism} |");
        let exceptions = if wrong.is_empty() {
            String::new()
        } else {
            format!(", except: {}", wrong.join("; "))
        };
        report.require(
            wrong.is_empty(),
            format!(
                "listed hosts by {mechanism}: {} probes as expected{exceptions}",
                LISTED_HOST_PROBES.len()
            ),
        );
    }
    let separator = "---|".repeat(titles.matches('|').count() - 1);
    Ok(format!(
        "\n## strict, with listed hosts\n\n{titles}\n|{separator}\n{}\n",
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
        .map(|finding| {
            format!(
                "{}{}",
                finding.mechanism,
                finding
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
| `strict` | also reads only the system's programs and listed paths | closed, unless the agent's profile opens the network |
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
    let describe = |flag: Option<bool>| match flag {
        Some(true) => "can",
        Some(false) => "cannot",
        None => "—",
    };
    for (index, probe) in PROBES.iter().enumerate() {
        let _infallible = write!(
            text,
            "| {} | {} |",
            probe.name,
            describe(control.observed[index])
        );
        for column in columns {
            let wrong = column.observed[index] != Some(column.expected[index]);
            let expected = if wrong {
                format!(
                    " (**expected: {}**)",
                    describe(Some(column.expected[index]))
                )
            } else {
                String::new()
            };
            let _infallible = write!(text, " {}{expected} |", describe(column.observed[index]));
        }
        text.push('\n');
    }
    text
}

/// Runs every probe by itself. Returns `None` for probes that do not run without a sandbox.
fn run_probes(
    world: &ProbeWorld,
    prepared: &PreparedSandbox,
    without_sandbox: bool,
) -> anyhow::Result<Vec<Option<bool>>> {
    let mut changed = false;
    PROBES
        .iter()
        .map(|probe| {
            if without_sandbox && !probe.is_harmless {
                return Ok(None);
            }
            // A probe that failed has changed nothing, so the world needs no reset.
            if changed {
                world.reset()?;
            }
            let output = world
                .command(prepared, probe.script)
                .output()
                .with_context(|| format!("run {}", probe.name))?;
            let code = output.status.code();
            ensure!(
                code != Some(i32::from(sandbox::SANDBOX_FAILED_EXIT_CODE)),
                "{}: {}",
                probe.name,
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

/// Requests a tunnel from the proxy in the environment.
fn connect_through_proxy(target: &str) -> std::io::Result<()> {
    let proxy = std::env::var("https_proxy").unwrap_or_default();
    let mut proxy = TcpStream::connect(proxy.trim_start_matches("http://"))?;
    write!(proxy, "CONNECT {target} HTTP/1.1\r\n\r\n")?;
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

/// Tries to open a socket of a kind that a shell cannot open.
pub(crate) fn run_probe(kind: &str, target: &str) -> ExitCode {
    let result: std::io::Result<()> = match kind {
        "unix" => UnixStream::connect(target).map(drop),
        "abstract" => SocketAddr::from_abstract_name(target)
            .and_then(|address| UnixStream::connect_addr(&address))
            .map(drop),
        "udp" => UdpSocket::bind("0.0.0.0:0")
            .and_then(|socket| socket.send_to(b"x", target))
            .map(drop),
        "proxy" => connect_through_proxy(target),
        "tcp" => TcpStream::connect(target).and_then(|mut stream| stream.write_all(b"x")),
        "family" => {
            let family = target
                .parse()
                .map(rustix::net::AddressFamily::from_raw)
                .unwrap_or(rustix::net::AddressFamily::UNSPEC);
            rustix::net::socket(family, rustix::net::SocketType::STREAM, None)
                .map(drop)
                .map_err(Into::into)
        }
        _ => Err(std::io::ErrorKind::InvalidInput.into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{kind} {target}: {error}");
            ExitCode::FAILURE
        }
    }
}
