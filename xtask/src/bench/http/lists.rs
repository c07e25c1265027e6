//! The cost of one page of a long list compared with a whole short list. A page of fifty entries
//! must cost about the same, however long its list is.
//!
//! The tasks and claims are decided in this process and stored in one batch, so that the lists are
//! long without a hundred thousand requests. The processor time of the server's threads is
//! measured, because other programs on the machine do not change it.

use std::path::Path;

use anyhow::ensure;
use regatta_core::claim::{Acquire, ClaimMode, ClaimOwner};
use regatta_core::command::Command;
use regatta_core::pattern::Uri;
use regatta_core::task::AssignMode;
use regatta_engine::ports::store::Store as _;
use regatta_store::SqliteStore;
use serde_json::json;

use super::BenchServer;
use super::polls::CpuByThread;
use crate::args::Args;
use crate::bench::board::{BenchFleet, agent_name};
use crate::report::{Report, format_thousands, median};

/// The number of entries on a page, and of the short list.
const PAGE_SIZE: usize = 50;
/// The calls in one round of a measurement.
const CALLS_PER_ROUND: usize = 20;
/// The largest allowed cost of a page of the long list, as a multiple of the short list.
const MAX_RATIO: f64 = 2.0;

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let count: usize = args.number("runs", 100_000)?;
    let rounds: usize = args.number("rounds", 5)?;
    ensure!(count > PAGE_SIZE, "the long list needs more than one page");
    let mut report = Report::new("lists", args);
    let scratch = args.scratch_dir()?;
    report.add_line(format!(
        "a page of {PAGE_SIZE} entries out of {}, compared with a list of {PAGE_SIZE}; processor \
         time of the server, median of {rounds} rounds",
        format_thousands(count as u64)
    ));
    let short = start_server(&scratch.path().join("short"), PAGE_SIZE)?;
    let long = start_server(&scratch.path().join("long"), count)?;
    let middle = count / 2;
    let pages = [
        ("task.list", json!({}), String::new()),
        ("task.list", json!({}), format!("&after=T{middle}")),
        ("task.list", json!({ "all": true }), String::new()),
        ("claim.list", json!({}), String::new()),
        ("claim.list", json!({}), format!("&after=C{middle}")),
    ];
    for (verb, input, after) in pages {
        let body = serde_json::to_vec(&input)?;
        let whole = format!("/api/v1/{verb}?limit={PAGE_SIZE}");
        let page = format!("{whole}{after}");
        let (mut whole_micros, mut page_micros) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            whole_micros.push(cost_of(&short, &whole, &body)?);
            page_micros.push(cost_of(&long, &page, &body)?);
        }
        let (whole_micros, page_micros) = (median(whole_micros), median(page_micros));
        let ratio = page_micros / whole_micros;
        report.set_value(&format!("{verb}{input}{after}"), ratio);
        report.check_target(
            ratio < MAX_RATIO,
            format!(
                "{verb} {input}{after}: {page_micros:.0} µs for a page, {whole_micros:.0} µs for \
                 the short list, {ratio:.2} times (below {MAX_RATIO})"
            ),
        );
    }
    report.finish()
}

/// Starts a server on a new store with this many open tasks and as many claims.
fn start_server(dir: &Path, count: usize) -> anyhow::Result<BenchServer> {
    let mut fleet = BenchFleet::new()?;
    for nth in 0..count {
        // The tasks wait for an agent, so the server computes the reasons of each one on a page.
        let task = fleet.next_task()?;
        fleet.run(Command::AddTask {
            task,
            assign: None,
            how: AssignMode::Queue,
        })?;
        fleet.run(Command::Acquire(Acquire {
            owner: ClaimOwner::Agent(agent_name(nth % 100)?),
            uris: vec![Uri::new(&format!("file://shop/lists/{nth}"))?],
            mode: ClaimMode::Exclusive,
            ttl_ms: 3_600_000,
            wait_ms: 0,
            memo: String::new(),
        }))?;
    }
    std::fs::create_dir_all(dir)?;
    SqliteStore::open(&dir.join("regatta.db"))?.commit(&fleet.take_batch())?;
    BenchServer::start(dir)
}

/// Returns the processor time of the server for one call, in microseconds.
fn cost_of(server: &BenchServer, path: &str, body: &[u8]) -> anyhow::Result<f64> {
    let mut line = server.connect()?;
    let mut call = || -> anyhow::Result<()> {
        line.send(path, "", body)?;
        let (status, answer) = line.read_answer()?;
        ensure!(
            status == 200,
            "{path} was answered with {status}: {}",
            String::from_utf8_lossy(&answer)
        );
        Ok(())
    };
    call()?; // The first call on a connection checks its token.
    let before = CpuByThread::now()?;
    for _ in 0..CALLS_PER_ROUND {
        call()?;
    }
    Ok(CpuByThread::now()?
        .since(&before)
        .micros_per_item("doors", CALLS_PER_ROUND))
}
