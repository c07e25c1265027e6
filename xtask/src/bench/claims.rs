//! Claims per second through the engine and SQLite, compared with a connection per caller, in the
//! same run.
//!
//! Both sides do the same: acquire, renew and release, on URIs that no other caller uses. Every
//! operation writes a claim and an event, and only the way to the disk differs. The sides take
//! turns on the same file system.
//!
//! Throughput: every caller has the same number of operations, and a side is done when its last
//! caller is done. Latency: both sides get the same load on a schedule, half of the baseline's
//! throughput, and an operation's time counts from the moment when it was due. Callers that wait
//! for an answer before they call again would hide the waits: a caller of the baseline that is
//! stuck for seconds would make one slow operation where it should have made hundreds.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use regatta_core::claim::{Acquire, Acquired, ClaimMode, ClaimOwner};
use regatta_core::command::{Actor, Command, CommandOutcome, Request};
use regatta_core::ids::AgentName;
use regatta_core::pattern::Uri;
use regatta_engine::{CommandFailure, CommandReply, Engine};
use serde_json::json;

use super::baseline;
use crate::args::Args;
use crate::bench_engine::{self, StoreKind};
use crate::report::{Report, Times, format_ms, format_thousands, median};
use crate::rng::Rng;

const URIS_PER_CALLER: usize = 8;
/// The engine repeats its work, because a fraction of a second would be too short for a
/// measurement.
const REPEATS: usize = 5;

/// The results of a side in one round.
struct RoundResult {
    /// The operation times of each caller.
    times: Vec<Times>,
    duration: Duration,
    commits: u64,
    /// The share of the time that the writer spent inside the store.
    store_time: Duration,
}

#[derive(Default)]
struct SideResults {
    times: Times,
    rates: Vec<f64>,
    commits: Vec<f64>,
    store_time: Duration,
    duration: Duration,
}

impl SideResults {
    fn add(&mut self, round: RoundResult) {
        let operations: usize = round.times.iter().map(Times::len).sum();
        self.rates
            .push(operations as f64 / round.duration.as_secs_f64());
        self.commits
            .push(round.commits as f64 / round.duration.as_secs_f64());
        self.store_time += round.store_time;
        self.duration += round.duration;
        for times in round.times {
            self.times.extend(times);
        }
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let callers: usize = args.number("callers", 64)?;
    let rounds: u32 = args.number::<u32>("rounds", 3)?.max(1);
    let steps: usize = args.number("steps", 100)?;
    let (threads, only) = (args.flag("threads"), args.text("side"));
    let kind = match args.text("store") {
        None | Some("sqlite") => StoreKind::Sqlite,
        Some("memory") => StoreKind::Memory,
        Some(other) => bail!("--store {other:?} is neither sqlite nor memory"),
    };
    let scratch = args.scratch_dir()?;
    let mut report = Report::new("claims", args);
    report.add_line(format!(
        "{callers} callers, {} URIs; each caller does acquire → renew → release {steps} times, and \
         a side is done when all \
         are; {rounds} rounds in turn (the engine's work is done {REPEATS} times in each), in {}",
        callers * URIS_PER_CALLER,
        scratch.path().parent().unwrap_or(scratch.path()).display()
    ));
    report.add_line(format!(
        "engine:   one writer thread, group commit; {}; {}",
        match kind {
            StoreKind::Sqlite =>
                "SqliteStore as shipped: WAL, synchronous=FULL, whole rows as JSON, one connection",
            StoreKind::Memory => "an in-memory store (nothing is durable)",
        },
        if threads {
            format!("{callers} threads call Engine::submit")
        } else {
            format!("{callers} tokio tasks on 1 worker thread call Engine::ask, as the server does")
        }
    ));
    report.add_line(format!(
        "baseline: {callers} threads, each its own connection (no pool), BEGIN IMMEDIATE, \
         busy_timeout {} s, \
         prepared statements; WAL, synchronous=FULL, wal_autocheckpoint 1000 (SQLite's own)",
        baseline::LOCK_TIMEOUT.as_secs()
    ));
    report.add_line(format!(
        "          {}",
        baseline::SCHEMA.replace('\n', "\n          ")
    ));

    let (mut ours, mut theirs) = (SideResults::default(), SideResults::default());
    let mut scheduled = Vec::new();
    for round in 0..rounds {
        let dir = scratch.path().join(round.to_string());
        std::fs::create_dir_all(&dir)?;
        if only != Some("baseline") {
            for repeat in 0..REPEATS {
                let dir = dir.join(format!("engine-{repeat}"));
                std::fs::create_dir_all(&dir)?;
                ours.add(run_engine_round(kind, &dir, callers, steps, threads)?);
            }
        }
        if only != Some("engine") {
            theirs.add(run_baseline_round(&dir, callers, steps)?);
        }
        if only.is_none() {
            let rate = median(theirs.rates.clone()) / 2.0;
            let every = Duration::from_secs_f64(callers as f64 / rate.max(1.0));
            let late = dir.join("scheduled");
            std::fs::create_dir_all(&late)?;
            scheduled.push((
                rate,
                run_scheduled_engine(kind, &late, callers, every)?,
                run_scheduled_baseline(&late, callers, every)?,
            ));
        }
        std::fs::remove_dir_all(&dir)?;
    }
    print(&mut report, &mut ours, &mut theirs);
    if only.is_none() {
        compare(&mut report, &mut ours, &mut theirs, scheduled);
    }
    report.finish()
}

fn print(report: &mut Report, ours: &mut SideResults, theirs: &mut SideResults) {
    report.add_line(
        "            ops/s (median of rounds)      p50         p99         max   \
        commits/s  ops/commit",
    );
    for (name, side) in [("engine", &mut *ours), ("baseline", &mut *theirs)] {
        if side.times.len() == 0 {
            continue;
        }
        let (rate, commits) = (median(side.rates.clone()), median(side.commits.clone()));
        let (p50, p99, max) = (
            side.times.percentile(0.5),
            side.times.percentile(0.99),
            side.times.percentile(1.0),
        );
        report.add_line(format!(
            "  {name:<9} {:>24}  {:>9}  {:>10}  {:>10}  {:>10}  {:>10.1}",
            format_thousands(rate as u64),
            format_ms(p50),
            format_ms(p99),
            format_ms(max),
            format_thousands(commits as u64),
            rate / commits.max(1.0)
        ));
        let figures = json!({
            "ops_per_second": rate, "rounds": side.rates, "p50_ms": p50.as_secs_f64() * 1e3,
            "p99_ms": p99.as_secs_f64() * 1e3, "max_ms": max.as_secs_f64() * 1e3,
            "commits_per_second": commits,
        });
        report.set_value(name, figures);
    }
    report.add_line(
        "  commits/s are fsyncs/s but for checkpoints: under FULL each commit to the \
        log is one fsync of it.",
    );
    if ours.duration > Duration::ZERO {
        report.add_line(format!(
            "  the writer was inside the store for {:.0} % of the time",
            100.0 * ours.store_time.as_secs_f64() / ours.duration.as_secs_f64()
        ));
    }
}

/// Runs one round on a schedule. Returns the load and the operation times of the engine and of the
/// baseline.
type ScheduledRound = (f64, Times, Times);

fn compare(
    report: &mut Report,
    ours: &mut SideResults,
    theirs: &mut SideResults,
    scheduled: Vec<ScheduledRound>,
) {
    let speed = median(ours.rates.clone()) / median(theirs.rates.clone()).max(1e-9);
    report.set_value("ratio_ops", speed);
    report.check_target(
        speed >= 20.0,
        format!("{speed:.1} × the baseline's ops/s (target ≥ 20)"),
    );
    // The first version of the target, which is missed; see docs/adr/0008. The scheduled target
    // below was added later.
    let closed = ours.times.percentile(0.99).as_secs_f64()
        / theirs.times.percentile(0.99).as_secs_f64().max(1e-9);
    report.set_value("ratio_p99_closed_loop", closed);
    report.check_target(
        closed <= 0.2,
        format!(
            "{closed:.4} of the baseline's p99, each caller calling again after its answer \
            (target ≤ 0.2)"
        ),
    );
    let rate = median(scheduled.iter().map(|scheduled| scheduled.0).collect());
    let (mut engine, mut baseline) = (Times::default(), Times::default());
    for (_, one, other) in scheduled {
        engine.extend(one);
        baseline.extend(other);
    }
    report.add_line(format!(
        "  both on a schedule of {} ops/s for {} s per round, measured from the moment when an \
        operation was due:",
        format_thousands(rate as u64),
        ROUND_DURATION.as_secs()
    ));
    for (name, times) in [("engine", &mut engine), ("baseline", &mut baseline)] {
        let (p50, p99, max) = (
            times.percentile(0.5),
            times.percentile(0.99),
            times.percentile(1.0),
        );
        report.add_line(format!(
            "  {name:<9} {:>24}  {:>9}  {:>10}  {:>10}",
            format_thousands(times.len() as u64) + " ops",
            format_ms(p50),
            format_ms(p99),
            format_ms(max)
        ));
        report.set_value(&format!("scheduled_{name}_p99_ms"), p99.as_secs_f64() * 1e3);
    }
    let tail =
        engine.percentile(0.99).as_secs_f64() / baseline.percentile(0.99).as_secs_f64().max(1e-9);
    report.set_value("ratio_p99", tail);
    report.check_target(
        tail <= 0.2,
        format!("{tail:.4} of the baseline's p99 on that schedule (target ≤ 0.2)"),
    );
}

/// The duration of a round on a schedule.
const ROUND_DURATION: Duration = Duration::from_secs(3);

/// Returns when a caller's operations are due: every `every`, with the callers spread over that
/// time.
fn due_times(
    began: Instant,
    number: usize,
    callers: usize,
    every: Duration,
) -> impl Iterator<Item = Instant> {
    let first = began + every.mul_f64(number as f64 / callers as f64);
    (0..)
        .map(move |nth| first + every * nth)
        .take_while(move |instant| *instant < began + ROUND_DURATION)
}

/// Both sides use threads, because an async timer is late by up to a millisecond, longer than most
/// operations.
fn run_scheduled_engine(
    kind: StoreKind,
    dir: &Path,
    callers: usize,
    every: Duration,
) -> anyhow::Result<Times> {
    let (engine, _) = bench_engine::start_engine(kind, dir)?;
    let began = Instant::now() + Duration::from_millis(20);
    let mut all = Times::default();
    std::thread::scope(|scope| -> anyhow::Result<()> {
        let engine = &engine;
        let workers: Vec<_> = (0..callers)
            .map(|number| {
                scope.spawn(move || {
                    run_scheduled_caller(engine, number, due_times(began, number, callers, every))
                })
            })
            .collect();
        for worker in workers {
            all.extend(
                worker
                    .join()
                    .map_err(|_| anyhow::anyhow!("a caller panicked"))??,
            );
        }
        Ok(())
    })?;
    engine.shutdown();
    Ok(all)
}

fn run_scheduled_caller(
    engine: &Engine,
    number: usize,
    due: impl Iterator<Item = Instant>,
) -> anyhow::Result<Times> {
    let (mut caller, mut times, mut left) =
        (ClaimCaller::new(number)?, Times::default(), Vec::new());
    for due in due {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        match left.pop() {
            Some(request) => drop(engine.submit(request)?),
            None => {
                let granted = engine.submit(caller.acquire());
                left = caller.next_requests(granted)?.into();
                left.reverse();
            }
        }
        times.add(due.elapsed());
    }
    Ok(times)
}

fn run_scheduled_baseline(dir: &Path, callers: usize, every: Duration) -> anyhow::Result<Times> {
    let path = dir.join("baseline.db");
    baseline::create_database(&path)?;
    let began = Instant::now() + Duration::from_millis(20);
    let mut all = Times::default();
    std::thread::scope(|scope| -> anyhow::Result<()> {
        let path = &path;
        let workers: Vec<_> = (0..callers)
            .map(|number| {
                scope.spawn(move || {
                    baseline::run_scheduled_caller(
                        path,
                        number,
                        &uris_of(number),
                        due_times(began, number, callers, every),
                    )
                })
            })
            .collect();
        for worker in workers {
            all.extend(
                worker
                    .join()
                    .map_err(|_| anyhow::anyhow!("a caller panicked"))??,
            );
        }
        Ok(())
    })?;
    Ok(all)
}

fn uris_of(caller: usize) -> Vec<String> {
    (0..URIS_PER_CALLER)
        .map(|n| format!("file://shop/src/module-{caller}/part-{n}.rs"))
        .collect()
}

fn run_engine_round(
    kind: StoreKind,
    dir: &Path,
    callers: usize,
    steps: usize,
    threads: bool,
) -> anyhow::Result<RoundResult> {
    let (engine, counts) = bench_engine::start_engine(kind, dir)?;
    let before = counts.commits.load(Relaxed);
    let began = Instant::now();
    let mut times = Vec::new();
    if threads {
        let workers: Vec<_> = (0..callers)
            .map(|number| {
                let engine = engine.clone();
                std::thread::spawn(move || run_caller_thread(&engine, number, steps))
            })
            .collect();
        for worker in workers {
            times.push(
                worker
                    .join()
                    .map_err(|_| anyhow::anyhow!("a caller panicked"))??,
            );
        }
    } else {
        // One worker thread: on a machine with two cores the writer has the other core.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_time()
            .build()?;
        let all: Vec<anyhow::Result<Times>> = runtime.block_on(async {
            let tasks: Vec<_> = (0..callers)
                .map(|caller| tokio::spawn(run_caller_task(engine.clone(), caller, steps)))
                .collect();
            let mut all = Vec::new();
            for task in tasks {
                all.push(
                    task.await
                        .context("a caller panicked")
                        .and_then(|result| result),
                );
            }
            all
        });
        for result in all {
            times.push(result?);
        }
    }
    let took = began.elapsed();
    engine.shutdown();
    let commits = counts.commits.load(Relaxed) - before;
    Ok(RoundResult {
        times,
        duration: took,
        commits,
        store_time: Duration::from_nanos(counts.nanoseconds.load(Relaxed)),
    })
}

/// The three operations of a caller.
struct ClaimCaller {
    actor: Actor,
    owner: ClaimOwner,
    uris: Vec<Uri>,
    rng: Rng,
}

impl ClaimCaller {
    fn new(number: usize) -> anyhow::Result<ClaimCaller> {
        let name = AgentName::new(&format!("agent-{number}"))?;
        let uris = uris_of(number)
            .iter()
            .map(|text| Uri::new(text))
            .collect::<Result<_, _>>()?;
        Ok(ClaimCaller {
            actor: Actor::Agent(name.clone()),
            owner: ClaimOwner::Agent(name),
            uris,
            rng: Rng::new(number as u64),
        })
    }

    fn acquire(&mut self) -> Request {
        let uris = self.rng.pick(&self.uris).cloned().into_iter().collect();
        let (owner, memo) = (self.owner.clone(), String::new());
        let request = Acquire {
            owner,
            uris,
            mode: ClaimMode::Exclusive,
            ttl_ms: 60_000,
            wait_ms: 0,
            memo,
        };
        self.request(Command::Acquire(request))
    }

    fn request(&self, command: Command) -> Request {
        Request {
            by: self.actor.clone(),
            key: None,
            command,
        }
    }

    fn next_requests(
        &self,
        granted: Result<CommandReply, CommandFailure>,
    ) -> anyhow::Result<[Request; 2]> {
        match granted?.outcome {
            CommandOutcome::Claim(Acquired::Granted { claim, token, .. }) => Ok([
                Command::Renew { claim, token },
                Command::Release { claim, token },
            ]
            .map(|command| self.request(command))),
            other => bail!("not granted: {other:?}"),
        }
    }
}

async fn run_caller_task(engine: Engine, number: usize, steps: usize) -> anyhow::Result<Times> {
    let (mut caller, mut times) = (ClaimCaller::new(number)?, Times::default());
    for _ in 0..steps {
        let began = Instant::now();
        let granted = engine.submit_async(caller.acquire()).await;
        times.add(began.elapsed());
        for request in caller.next_requests(granted)? {
            let began = Instant::now();
            engine.submit_async(request).await?;
            times.add(began.elapsed());
        }
    }
    Ok(times)
}

fn run_caller_thread(engine: &Engine, number: usize, steps: usize) -> anyhow::Result<Times> {
    let (mut caller, mut times) = (ClaimCaller::new(number)?, Times::default());
    for _ in 0..steps {
        let began = Instant::now();
        let granted = engine.submit(caller.acquire());
        times.add(began.elapsed());
        for request in caller.next_requests(granted)? {
            let began = Instant::now();
            engine.submit(request)?;
            times.add(began.elapsed());
        }
    }
    Ok(times)
}

fn run_baseline_round(dir: &Path, callers: usize, steps: usize) -> anyhow::Result<RoundResult> {
    let path = dir.join("baseline.db");
    baseline::create_database(&path)?;
    let commits = AtomicU64::new(0);
    let began = Instant::now();
    let times = std::thread::scope(|scope| -> anyhow::Result<Vec<Times>> {
        let workers: Vec<_> = (0..callers)
            .map(|number| {
                let (path, commits) = (&path, &commits);
                scope.spawn(move || {
                    baseline::run_caller(path, number, &uris_of(number), steps, commits)
                })
            })
            .collect();
        let mut times = Vec::new();
        for worker in workers {
            times.push(
                worker
                    .join()
                    .map_err(|_| anyhow::anyhow!("a caller panicked"))??,
            );
        }
        Ok(times)
    })?;
    Ok(RoundResult {
        times,
        duration: began.elapsed(),
        commits: commits.load(Relaxed),
        store_time: Duration::ZERO,
    })
}
