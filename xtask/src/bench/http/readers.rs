//! The cost of event readers for the writer's thread: the same commits without readers and with a
//! thousand readers.
//!
//! Two servers get the same messages in turn, and one of them is measured. The readers are
//! connected to neither server, to the measured one, or to the other. The cost of readers at the
//! other server is the price of sharing processors and caches with a thousand connections. The
//! additional cost of readers at the measured server is the cost of the fan-out itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{BenchServer, TOKEN, cpu_ns, thread_named};
use crate::args::Args;
use crate::report::{Report, format_thousands, median};

/// The server to which the readers are connected.
#[derive(Clone, Copy, PartialEq)]
enum ReaderPlacement {
    NoReaders,
    MeasuredServer,
    OtherServer,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let readers: usize = args.number("agents", 1_000)?;
    let steps: usize = args.number("steps", 2_000)?;
    let rounds: usize = args.number("rounds", 5)?;
    let mut report = Report::new("readers", args);
    report.add_line(format!(
        "{rounds} rounds in turn of {steps} messages to each of two servers, one commit each; \
         nobody reads, {readers} read \
         at the one that is looked at, or at the other"
    ));
    let (mut alone, mut read, mut beside) = (Vec::new(), Vec::new(), Vec::new());
    let mut behind = 0;
    for round in 0..rounds {
        alone.push(cpu_per_commit(
            args,
            (ReaderPlacement::NoReaders, readers),
            steps,
            &mut behind,
        )?);
        read.push(cpu_per_commit(
            args,
            (ReaderPlacement::MeasuredServer, readers),
            steps,
            &mut behind,
        )?);
        beside.push(cpu_per_commit(
            args,
            (ReaderPlacement::OtherServer, readers),
            steps,
            &mut behind,
        )?);
        report.add_line(format!(
            "  round {round}: {:.0}, {:.0} and {:.0} ns of the writer's thread for a commit",
            alone[round], read[round], beside[round]
        ));
    }
    let (alone, read, beside) = (median(alone), median(read), median(beside));
    let (more, shared) = (read / alone - 1.0, beside / alone - 1.0);
    report.set_value("more", more);
    report.set_value("more_for_readers_elsewhere", shared);
    report.add_line(format!(
        "readers at another server cost this writer {:.1} % more: the cost of sharing processors",
        shared * 100.0
    ));
    report.add_line(format!(
        "readers here, compared with those: {:.1} % more",
        (read / beside - 1.0) * 100.0
    ));
    report.check_target(
        more < 0.10,
        format!(
            "less than 10 % more for {}: {:.1} %",
            format_thousands(readers as u64),
            more * 100.0
        ),
    );
    report.require(
        behind == 0,
        format!("every reader saw every event: {behind} are missing"),
    );
    report.finish()
}

/// Returns the processor time of the measured server's writer per commit.
fn cpu_per_commit(
    args: &Args,
    (at, readers): (ReaderPlacement, usize),
    steps: usize,
    behind: &mut u64,
) -> anyhow::Result<f64> {
    let scratch = args.scratch_dir()?;
    let (one, two) = (scratch.path().join("one"), scratch.path().join("two"));
    std::fs::create_dir_all(&one)?;
    std::fs::create_dir_all(&two)?;
    let server = BenchServer::start(&one)?;
    let writer = thread_named("writer")?;
    let other = BenchServer::start(&two)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let (seen, ready) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let readers = if at == ReaderPlacement::NoReaders {
        0
    } else {
        readers
    };
    for _ in 0..readers {
        let address = if at == ReaderPlacement::MeasuredServer {
            server.address
        } else {
            other.address
        };
        let (seen, ready) = (seen.clone(), ready.clone());
        runtime.spawn(async move {
            let mut stream = tokio::net::TcpStream::connect(address).await?;
            let head = format!(
                "GET /api/v1/events?kind=message.posted HTTP/1.1\r\nhost: \
                {address}\r\nauthorization: Bearer {TOKEN}\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).await?;
            let mut chunk = vec![0; 16 * 1024];
            let mut cut = Vec::new();
            loop {
                let count = stream.read(&mut chunk).await?;
                if count == 0 {
                    return Ok::<(), std::io::Error>(());
                }
                if cut.is_empty() {
                    ready.fetch_add(1, Relaxed);
                }
                // The marker may be split between two chunks, so the last bytes are searched again
                // with the next chunk.
                cut.extend_from_slice(&chunk[..count]);
                let mark = b"event: message.posted";
                let found = cut.windows(mark.len()).filter(|cut| cut == mark).count();
                seen.fetch_add(found as u64, Relaxed);
                let keep = cut.len().min(mark.len() - 1);
                cut.drain(..cut.len() - keep);
            }
        });
    }
    wait_until(|| ready.load(Relaxed) >= readers as u64)?;
    let (mut line, mut beside) = (server.connect()?, other.connect()?);
    line.call_verb("msg.send", &json!({ "channel": "warm", "text": "x" }))?;
    beside.call_verb("msg.send", &json!({ "channel": "warm", "text": "x" }))?;
    let (cpu, commits) = (cpu_ns(&writer)?, server.counts.commits.load(Relaxed));
    for nth in 0..steps {
        let message = json!({ "channel": "lake", "text": format!("message {nth}") });
        line.call_verb("msg.send", &message)?;
        beside.call_verb("msg.send", &message)?;
    }
    let (cpu, commits) = (
        cpu_ns(&writer)? - cpu,
        server.counts.commits.load(Relaxed) - commits,
    );
    let all = (readers * (steps + 1)) as u64;
    if wait_until(|| seen.load(Relaxed) >= all).is_err() {
        *behind += all.saturating_sub(seen.load(Relaxed));
    }
    runtime.shutdown_background();
    Ok(cpu as f64 / commits.max(1) as f64)
}

fn wait_until(holds: impl Fn() -> bool) -> anyhow::Result<()> {
    let patience = Instant::now() + Duration::from_secs(60);
    while !holds() {
        anyhow::ensure!(
            Instant::now() < patience,
            "timeout while waiting for the readers"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
