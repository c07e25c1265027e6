//! The delay from a new task to a waiting runner, and the memory of a waiting runner.

use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::json;

use super::connection::HttpConnection;
use super::{BenchServer, finish_task, report_task as task};
use crate::args::Args;
use crate::bench::start::{BenchDaemon, program_path};
use crate::report::{Report, Times, format_ms};

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let samples: usize = args.number("samples", 500)?;
    let waiting: usize = args.number("agents", 500)?;
    let mut report = Report::new("wake", args);
    let scratch = args.scratch_dir()?;
    let mut times = wake_times(scratch.path(), samples)?;
    let (p50, p99) = (times.percentile(0.5), times.percentile(0.99));
    report.add_line(format!(
        "from the answer to task.add to the poller's answer, {samples} times: p50 {}, p99 {}",
        format_ms(p50),
        format_ms(p99)
    ));
    report.check_target(
        p99 <= Duration::from_millis(20),
        format!("p99 under 20 ms: {}", format_ms(p99)),
    );
    let each = memory_growth(args, waiting)?;
    report.add_line(format!(
        "{waiting} waiting runners take {each} bytes each in the daemon"
    ));
    report.set_value("bytes_each", each);
    report.check_target(
        each <= 64 * 1024,
        format!("under 64 KiB for each: {:.1}", each as f64 / 1024.0),
    );
    report.finish()
}

/// One runner waits and another client adds a task; both times come from the same clock.
fn wake_times(dir: &std::path::Path, samples: usize) -> anyhow::Result<Times> {
    let server = BenchServer::start(dir)?;
    server.add_agents(1, 1)?;
    let (mut adder, mut poller, mut times) =
        (server.connect()?, server.connect()?, Times::default());
    for nth in 0..samples {
        poller.send(
            "/api/v1/task.poll",
            "",
            json!({ "agent": "agent-0", "wait_ms": 60_000 })
                .to_string()
                .as_bytes(),
        )?;
        // The poll was received and waits.
        let before = Instant::now();
        while !start_waiting(&mut adder)? && before.elapsed() < Duration::from_secs(5) {}
        adder.call_verb("task.add", &task(nth))?;
        let added = Instant::now();
        let (status, body) = poller.read_answer()?;
        times.add(added.elapsed());
        anyhow::ensure!(status == 200, "{status}");
        let granted: serde_json::Value = serde_json::from_slice(&body)?;
        finish_task(&mut poller, &granted["data"])?;
    }
    Ok(times)
}

fn start_waiting(line: &mut HttpConnection) -> anyhow::Result<bool> {
    line.get("/metrics")
        .map(|line| line.lines().any(|metric| metric == "regatta_pollers 1"))
}

/// Returns the additional memory of the real daemon with this many waiting runners.
fn memory_growth(args: &Args, waiting: usize) -> anyhow::Result<u64> {
    let scratch = args.scratch_dir()?;
    let daemon = BenchDaemon::start(&program_path(args)?, scratch.path())?;
    let card: serde_json::Value =
        serde_json::from_slice(&std::fs::read(scratch.path().join("daemon.json"))?)?;
    let address = card["url"]
        .as_str()
        .context("no url")?
        .trim_start_matches("http://")
        .trim_end_matches('/')
        .parse()?;
    let token = std::fs::read_to_string(scratch.path().join("token"))?;
    let token = token.trim();
    let mut first = HttpConnection::open(address, token)?;
    first.call_verb(
        "agent.add",
        &json!({ "name": "ann", "runtime": "outside", "max_tasks": 20 }),
    )?;
    let mut lines = Vec::new();
    let mut more = |count: usize| -> anyhow::Result<u64> {
        for _ in 0..count {
            let mut line = HttpConnection::open(address, token)?;
            line.send(
                "/api/v1/task.poll",
                "",
                json!({ "agent": "ann", "wait_ms": 600_000 })
                    .to_string()
                    .as_bytes(),
            )?;
            lines.push(line);
        }
        let all = format!("regatta_pollers {}", lines.len());
        let patience = Instant::now() + Duration::from_secs(60);
        while !first.get("/metrics")?.lines().any(|metric| metric == all) {
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
