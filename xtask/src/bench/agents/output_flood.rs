//! Many scripted agents that print a lot at once, under one real daemon that also has other work.

use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::json;

use super::fixture::BenchFixture;
use super::private_kb;
use crate::args::Args;
use crate::bench::start::program_path;
use crate::report::{Report, Times, format_ms, format_thousands};

/// The number of bytes that each agent prints.
const OUTPUT_BYTES: u64 = 1_000_000;

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let agents: u64 = args.number("agents", 200)?;
    let binary = program_path(args)?;
    let mut report = Report::new("chatty", args);
    let fixture = BenchFixture::new(args, &binary)?;
    let daemon = fixture.start_daemon()?;
    fixture.add_agents(agents, None)?;
    // All agents wait for one file, so that all print at once. Afterwards they stay until the end
    // of the measurement.
    let gate = fixture.root.join("go");
    let wait = format!("while [ ! -e {} ]; do sleep 0.2; done", gate.display());
    let script = format!(
        "[{{ run = {wait:?} }}, {{ flood = {{ bytes = {OUTPUT_BYTES} }} }}, {{ say = \"flooded\" \
        }}, {{ hang = true }}]"
    );
    fixture.run_plan(agents, Some(&script))?;
    let deadline = Instant::now() + Duration::from_secs(600);
    while fixture.running_shims()?.len() < agents as usize {
        ensure!(
            Instant::now() < deadline,
            "only {} agents came up",
            fixture.running_shims()?.len()
        );
        std::thread::sleep(Duration::from_millis(200));
    }
    let quiet = measure_claims(&fixture, 300, &AtomicBool::new(false))?;
    let before = daemon.resident_kb()?;

    std::fs::write(&gate, "")?;
    let (began, done) = (Instant::now(), AtomicBool::new(false));
    let (busy, resident, private) = std::thread::scope(|scope| -> anyhow::Result<_> {
        let claims = scope.spawn(|| measure_claims(&fixture, usize::MAX, &done));
        let (mut resident, mut private) = (before, 0);
        let shims = fixture.running_shims()?;
        let watched = (|| -> anyhow::Result<()> {
            let deadline = Instant::now() + Duration::from_secs(300);
            let mut waiting = fixture.all_attempts();
            while !waiting.is_empty() {
                ensure!(
                    Instant::now() < deadline,
                    "{} of them never finish",
                    waiting.len()
                );
                resident = resident.max(daemon.resident_kb()?);
                for pid in &shims {
                    private = private.max(private_kb(u32::try_from(*pid)?)?);
                }
                let mut still = Vec::new();
                for attempt in waiting {
                    let last = fixture.output_tail(attempt)?;
                    if !last.contains("flooded") {
                        still.push(attempt);
                    }
                }
                waiting = still;
            }
            Ok(())
        })();
        done.store(true, SeqCst);
        let busy = claims.join().ok().context("the caller panicked")??;
        watched?;
        Ok((busy, resident, private))
    })?;
    let took = began.elapsed();
    let mut lost = 0_u64;
    for attempt in fixture.all_attempts() {
        let lines = fixture.output_lines(attempt)?;
        let flood: u64 = lines
            .iter()
            .filter(|line| line.contains("agent_message_chunk"))
            .map(|line| line.len() as u64 + 1)
            .sum();
        lost += OUTPUT_BYTES.saturating_sub(flood);
    }
    let (mut quiet, mut busy) = (quiet, busy);
    report.add_line(format!(
        "  {agents} agents printed {} bytes each in {:.1} s: {lost} bytes lost",
        format_thousands(OUTPUT_BYTES),
        took.as_secs_f64()
    ));
    report.add_line(format!(
        "  daemon: {before} kB resident before, {resident} kB at most"
    ));
    report.add_line(format!(
        "  a claim through the API: p99 {} in quiet, {} meanwhile ({} calls)",
        format_ms(quiet.percentile(0.99)),
        format_ms(busy.percentile(0.99)),
        busy.len()
    ));
    report.add_line(format!("  a shim's private memory: {private} kB at most"));
    report.set_value("bytes_lost", lost);
    report.set_value("daemon_kb", resident);
    report.set_value("claim_p99_ms", busy.percentile(0.99).as_secs_f64() * 1e3);
    report.set_value("shim_private_kb", private);
    fixture.stop_daemon(daemon)?;
    report.require(lost == 0, "no byte lost (P2)");
    report.check_target(
        resident < 300_000,
        format!("{} MB of the daemon's (target < 300 MB)", resident / 1000),
    );
    report.check_target(
        busy.percentile(0.99) < Duration::from_millis(50),
        format!(
            "claim p99 {} (target < 50 ms)",
            format_ms(busy.percentile(0.99))
        ),
    );
    report.check_target(
        private < 3_000,
        format!("{private} kB private for each shim (target < 3 MB)"),
    );
    report.finish()
}

/// Acquires and releases claims in a loop.
fn measure_claims(fixture: &BenchFixture, max: usize, done: &AtomicBool) -> anyhow::Result<Times> {
    let mut line = UnixStream::connect(fixture.root.join("daemon.sock"))?;
    let mut times = Times::default();
    while times.len() < max && !done.load(SeqCst) {
        let nth = times.len();
        let input = json!({ "uris": [format!("agent://bench-claim-{nth}")], "agent": "bench-0", "ttl_ms": 60_000 });
        let began = Instant::now();
        let answer = fixture.call_verb(
            &mut line,
            "claim.acquire",
            &format!("a-{max}-{nth}"),
            &input,
        )?;
        times.add(began.elapsed());
        let claim = &answer["data"];
        let back = json!({ "claim": claim["claim"], "token": claim["token"] });
        fixture.call_verb(&mut line, "claim.release", &format!("r-{max}-{nth}"), &back)?;
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(times)
}
