//! The overhead of a start: the time from the engine's call to the program's first byte in the
//! journal, minus the time that the program needs by itself.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use regatta_agents::AgentsAdapter;
use regatta_core::agent::SandboxLevel;
use regatta_core::ids::AttemptId;
use regatta_engine::ports::agents::{Agents, JournalStream};

use super::shell_launch;
use crate::args::Args;
use crate::bench::start::program_path;
use crate::report::{Report, Times, format_ms};

const SCRIPT: &str = "echo up; exec sleep 1000";

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let runs: usize = args.number("runs", 50)?;
    let binary = program_path(args)?;
    let scratch = args.scratch_dir()?;
    let mut report = Report::new("overhead", args);
    let mut alone = Times::default();
    for _ in 0..runs {
        alone.add(start_without_shim()?);
    }
    report.add_line(format!(
        "  the program by itself: {} to its first byte (median of {runs})",
        format_ms(alone.percentile(0.5))
    ));
    let workspace = scratch.path().join("workspace");
    std::fs::create_dir_all(&workspace)?;
    // With a control group, without one, and in a sandbox as agents usually are.
    for (cgroups, confine) in [
        (true, SandboxLevel::Off),
        (false, SandboxLevel::Off),
        (true, SandboxLevel::Workspace),
    ] {
        let data = format!("data-{cgroups}-{}", confine == SandboxLevel::Off);
        let adapter = AgentsAdapter::new(scratch.path().join(data), binary.clone());
        let adapter = if cgroups {
            adapter
        } else {
            adapter.without_cgroups()
        };
        let (mut ready, mut first) = (Times::default(), Times::default());
        let (mut level, mut sandbox) = (None, None);
        for nth in 1..=runs {
            let attempt = AttemptId(nth as u64);
            let began = Instant::now();
            let mut launch = shell_launch(attempt, &workspace, "overhead", SCRIPT)?;
            launch.profile.sandbox = Some(confine);
            let started = adapter.start(&launch)?;
            ready.add(began.elapsed());
            sandbox = started.sandbox;
            let deadline = began + Duration::from_secs(10);
            while !adapter
                .read_journal(attempt, 1, 10)?
                .iter()
                .any(|journal| journal.stream == JournalStream::Out)
            {
                ensure!(
                    Instant::now() < deadline,
                    "the program printed nothing within 10 s"
                );
                std::thread::sleep(Duration::from_micros(100));
            }
            first.add(began.elapsed());
            level = adapter.containment(attempt)?.or(level);
            adapter.stop(attempt, Duration::from_millis(100))?;
        }
        let more = first.percentile(0.5).saturating_sub(alone.percentile(0.5));
        report.add_line(format!(
            "  {:<10} {} start returns after {}, first byte read after {}, p90 {}; overhead {} \
            (medians)",
            level.unwrap_or("?"),
            sandbox.as_deref().unwrap_or("not confined;"),
            format_ms(ready.percentile(0.5)),
            format_ms(first.percentile(0.5)),
            format_ms(first.percentile(0.9)),
            format_ms(more)
        ));
        let name = if confine == SandboxLevel::Off {
            level.unwrap_or("unknown")
        } else {
            "sandbox"
        };
        report.set_value(name, more.as_secs_f64() * 1e3);
        report.check_target(
            more < Duration::from_millis(15),
            format!("overhead {} (target < 15 ms)", format_ms(more)),
        );
    }
    report.finish()
}

fn start_without_shim() -> anyhow::Result<Duration> {
    let began = Instant::now();
    let mut child = Command::new("sh")
        .args(["-c", SCRIPT])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut byte = [0; 1];
    let read = child
        .stdout
        .as_mut()
        .context("its output is piped")?
        .read_exact(&mut byte);
    let took = began.elapsed();
    child.kill()?;
    child.wait()?;
    read?;
    Ok(took)
}
