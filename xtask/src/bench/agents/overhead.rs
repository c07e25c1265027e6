//! The overhead of a start: the time from the engine's call to the program's first byte in the
//! journal, minus the time that the program needs by itself.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use regatta_agents::AgentsAdapter;
use regatta_core::agent::Level;
use regatta_core::ids::AttemptId;
use regatta_engine::ports::agents::{Agents, Stream};

use super::shell;
use crate::args::Args;
use crate::bench::start::binary;
use crate::report::{Report, Times, ms};

const SCRIPT: &str = "echo up; exec sleep 1000";

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let runs: usize = args.number("runs", 50)?;
    let binary = binary(args)?;
    let scratch = args.scratch()?;
    let mut report = Report::new("overhead", args);
    let mut alone = Times::default();
    for _ in 0..runs {
        alone.add(by_itself()?);
    }
    report.say(format!("  the program by itself: {} to its first byte (median of {runs})", ms(alone.at(0.5))));
    let workspace = scratch.path().join("workspace");
    std::fs::create_dir_all(&workspace)?;
    // With a control group, without one, and in a sandbox as agents usually are.
    for (cgroups, confine) in [(true, Level::Off), (false, Level::Off), (true, Level::Workspace)] {
        let data = format!("data-{cgroups}-{}", confine == Level::Off);
        let adapter = AgentsAdapter::new(scratch.path().join(data), binary.clone());
        let adapter = if cgroups { adapter } else { adapter.without_cgroups() };
        let (mut ready, mut first) = (Times::default(), Times::default());
        let (mut level, mut sandbox) = (None, None);
        for nth in 1..=runs {
            let attempt = AttemptId(nth as u64);
            let began = Instant::now();
            let mut launch = shell(attempt, &workspace, "overhead", SCRIPT)?;
            launch.profile.confine = Some(confine);
            let started = adapter.start(&launch)?;
            ready.add(began.elapsed());
            sandbox = started.sandbox;
            let deadline = began + Duration::from_secs(10);
            while !adapter.journal(attempt, 1, 10)?.iter().any(|it| it.stream == Stream::Out) {
                ensure!(Instant::now() < deadline, "it says nothing");
                std::thread::sleep(Duration::from_micros(100));
            }
            first.add(began.elapsed());
            level = adapter.containment(attempt)?.or(level);
            adapter.stop(attempt, Duration::from_millis(100))?;
        }
        let more = first.at(0.5).saturating_sub(alone.at(0.5));
        report.say(format!(
            "  {:<10} {} start returns after {}, first byte read after {}, p90 {}; overhead {} (medians)",
            level.unwrap_or("?"),
            sandbox.as_deref().unwrap_or("not confined;"),
            ms(ready.at(0.5)),
            ms(first.at(0.5)),
            ms(first.at(0.9)),
            ms(more)
        ));
        let name = if confine == Level::Off { level.unwrap_or("unknown") } else { "sandbox" };
        report.value(name, more.as_secs_f64() * 1e3);
        report.target(more < Duration::from_millis(15), format!("overhead {} (target < 15 ms)", ms(more)));
    }
    report.end()
}

fn by_itself() -> anyhow::Result<Duration> {
    let began = Instant::now();
    let mut child = Command::new("sh").args(["-c", SCRIPT]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut byte = [0; 1];
    let read = child.stdout.as_mut().context("its output is piped")?.read_exact(&mut byte);
    let took = began.elapsed();
    child.kill()?;
    child.wait()?;
    read?;
    Ok(took)
}
