//! The delay from a new task to a waiting runner, and the memory of a waiting runner.

use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::json;

use super::line::Line;
use super::{Server, finish, report as task};
use crate::args::Args;
use crate::bench::start::{Daemon, binary};
use crate::report::{Report, Times, ms};

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let samples: usize = args.number("samples", 500)?;
    let waiting: usize = args.number("agents", 500)?;
    let mut report = Report::new("wake", args);
    let scratch = args.scratch()?;
    let mut times = woken(scratch.path(), samples)?;
    let (p50, p99) = (times.at(0.5), times.at(0.99));
    report.say(format!(
        "from the answer to task.add to the poller's answer, {samples} times: p50 {}, p99 {}",
        ms(p50),
        ms(p99)
    ));
    report.target(p99 <= Duration::from_millis(20), format!("p99 under 20 ms: {}", ms(p99)));
    let each = memory(args, waiting)?;
    report.say(format!("{waiting} waiting runners take {each} bytes each in the daemon"));
    report.value("bytes_each", each);
    report.target(each <= 64 * 1024, format!("under 64 KiB for each: {:.1}", each as f64 / 1024.0));
    report.end()
}

/// One runner waits and another client adds a task; both times come from the same clock.
fn woken(dir: &std::path::Path, samples: usize) -> anyhow::Result<Times> {
    let server = Server::start(dir)?;
    server.add_agents(1, 1)?;
    let (mut adder, mut poller, mut times) = (server.line()?, server.line()?, Times::default());
    for nth in 0..samples {
        poller.send(
            "/api/v1/task.poll",
            "",
            json!({ "agent": "agent-0", "wait_ms": 60_000 }).to_string().as_bytes(),
        )?;
        // The poll was received and waits.
        let before = Instant::now();
        while !waits(&mut adder)? && before.elapsed() < Duration::from_secs(5) {}
        adder.ask("task.add", &task(nth))?;
        let added = Instant::now();
        let (status, body) = poller.answer()?;
        times.add(added.elapsed());
        anyhow::ensure!(status == 200, "{status}");
        let granted: serde_json::Value = serde_json::from_slice(&body)?;
        finish(&mut poller, &granted["data"])?;
    }
    Ok(times)
}

fn waits(line: &mut Line) -> anyhow::Result<bool> {
    line.get("/metrics").map(|it| it.lines().any(|it| it == "regatta_pollers 1"))
}

/// Returns the additional memory of the real daemon with this many waiting runners.
fn memory(args: &Args, waiting: usize) -> anyhow::Result<u64> {
    let scratch = args.scratch()?;
    let daemon = Daemon::start(&binary(args)?, scratch.path())?;
    let card: serde_json::Value = serde_json::from_slice(&std::fs::read(scratch.path().join("daemon.json"))?)?;
    let address =
        card["url"].as_str().context("no url")?.trim_start_matches("http://").trim_end_matches('/').parse()?;
    let token = std::fs::read_to_string(scratch.path().join("token"))?;
    let token = token.trim();
    let mut first = Line::open(address, token)?;
    first.ask("agent.add", &json!({ "name": "ann", "runtime": "outside", "max_tasks": 20 }))?;
    let mut lines = Vec::new();
    let mut more = |count: usize| -> anyhow::Result<u64> {
        for _ in 0..count {
            let mut line = Line::open(address, token)?;
            line.send("/api/v1/task.poll", "", json!({ "agent": "ann", "wait_ms": 600_000 }).to_string().as_bytes())?;
            lines.push(line);
        }
        let all = format!("regatta_pollers {}", lines.len());
        let patience = Instant::now() + Duration::from_secs(60);
        while !first.get("/metrics")?.lines().any(|it| it == all) {
            anyhow::ensure!(Instant::now() < patience, "not all runners wait");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(daemon.resident_kb()? * 1024)
    };
    // The memory of the first runners includes that of the server itself.
    let before = more(50)?;
    let after = more(waiting)?;
    daemon.kill()?;
    Ok(after.saturating_sub(before) / waiting.max(1) as u64)
}
