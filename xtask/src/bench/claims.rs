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
use regatta_core::claim::{Acquire, Acquired, Mode, Owner};
use regatta_core::command::{Actor, Command, Outcome, Request};
use regatta_core::ids::AgentName;
use regatta_core::pattern::Uri;
use regatta_engine::{Engine, Failure, Reply};
use serde_json::json;

use super::baseline;
use crate::args::Args;
use crate::dice::Dice;
use crate::report::{Report, Times, median, ms, thousands};
use crate::world::{self, Kind};

const URIS_EACH: usize = 8;
/// The engine repeats its work, because a fraction of a second would be too short for a
/// measurement.
const REPEATS: usize = 5;

/// The results of a side in one round.
struct Round {
    /// The operation times of each caller.
    times: Vec<Times>,
    took: Duration,
    commits: u64,
    /// The share of the time that the writer spent inside the store.
    in_store: Duration,
}

#[derive(Default)]
struct Side {
    times: Times,
    rates: Vec<f64>,
    commits: Vec<f64>,
    in_store: Duration,
    took: Duration,
}

impl Side {
    fn add(&mut self, round: Round) {
        let done: usize = round.times.iter().map(Times::len).sum();
        self.rates.push(done as f64 / round.took.as_secs_f64());
        self.commits.push(round.commits as f64 / round.took.as_secs_f64());
        self.in_store += round.in_store;
        self.took += round.took;
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
        None | Some("sqlite") => Kind::Sqlite,
        Some("memory") => Kind::Memory,
        Some(other) => bail!("--store {other:?} is neither sqlite nor memory"),
    };
    let scratch = args.scratch()?;
    let mut report = Report::new("claims", args);
    report.say(format!(
        "{callers} callers, {} URIs; each caller does acquire → renew → release {steps} times, and a side is done when all \
         are; {rounds} rounds in turn (the engine's work is done {REPEATS} times in each), in {}",
        callers * URIS_EACH,
        scratch.path().parent().unwrap_or(scratch.path()).display()
    ));
    report.say(format!(
        "engine:   one writer thread, group commit; {}; {}",
        match kind {
            Kind::Sqlite => "SqliteStore as shipped: WAL, synchronous=FULL, whole rows as JSON, one connection",
            Kind::Memory => "an in-memory store (nothing is durable)",
        },
        if threads {
            format!("{callers} threads call Engine::submit")
        } else {
            format!("{callers} tokio tasks on 1 worker thread call Engine::ask, as the server does")
        }
    ));
    report.say(format!(
        "baseline: {callers} threads, each its own connection (no pool), BEGIN IMMEDIATE, busy_timeout {} s, \
         prepared statements; WAL, synchronous=FULL, wal_autocheckpoint 1000 (SQLite's own)",
        baseline::PATIENCE.as_secs()
    ));
    report.say(format!("          {}", baseline::SCHEMA.replace('\n', "\n          ")));

    let (mut ours, mut theirs) = (Side::default(), Side::default());
    let mut scheduled = Vec::new();
    for round in 0..rounds {
        let dir = scratch.path().join(round.to_string());
        std::fs::create_dir_all(&dir)?;
        if only != Some("baseline") {
            for repeat in 0..REPEATS {
                let dir = dir.join(format!("engine-{repeat}"));
                std::fs::create_dir_all(&dir)?;
                ours.add(engine_round(kind, &dir, callers, steps, threads)?);
            }
        }
        if only != Some("engine") {
            theirs.add(baseline_round(&dir, callers, steps)?);
        }
        if only.is_none() {
            let rate = median(theirs.rates.clone()) / 2.0;
            let every = Duration::from_secs_f64(callers as f64 / rate.max(1.0));
            let late = dir.join("scheduled");
            std::fs::create_dir_all(&late)?;
            scheduled.push((
                rate,
                scheduled_engine(kind, &late, callers, every)?,
                scheduled_baseline(&late, callers, every)?,
            ));
        }
        std::fs::remove_dir_all(&dir)?;
    }
    print(&mut report, &mut ours, &mut theirs);
    if only.is_none() {
        compare(&mut report, &mut ours, &mut theirs, scheduled);
    }
    report.end()
}

fn print(report: &mut Report, ours: &mut Side, theirs: &mut Side) {
    report.say("            ops/s (median of rounds)      p50         p99         max   commits/s  ops/commit");
    for (name, side) in [("engine", &mut *ours), ("baseline", &mut *theirs)] {
        if side.times.len() == 0 {
            continue;
        }
        let (rate, commits) = (median(side.rates.clone()), median(side.commits.clone()));
        let (p50, p99, max) = (side.times.at(0.5), side.times.at(0.99), side.times.at(1.0));
        report.say(format!(
            "  {name:<9} {:>24}  {:>9}  {:>10}  {:>10}  {:>10}  {:>10.1}",
            thousands(rate as u64),
            ms(p50),
            ms(p99),
            ms(max),
            thousands(commits as u64),
            rate / commits.max(1.0)
        ));
        let figures = json!({
            "ops_per_second": rate, "rounds": side.rates, "p50_ms": p50.as_secs_f64() * 1e3,
            "p99_ms": p99.as_secs_f64() * 1e3, "max_ms": max.as_secs_f64() * 1e3,
            "commits_per_second": commits,
        });
        report.value(name, figures);
    }
    report.say("  commits/s are fsyncs/s but for checkpoints: under FULL each commit to the log is one fsync of it.");
    if ours.took > Duration::ZERO {
        report.say(format!(
            "  the writer was inside the store for {:.0} % of the time",
            100.0 * ours.in_store.as_secs_f64() / ours.took.as_secs_f64()
        ));
    }
}

/// Runs one round on a schedule. Returns the load and the operation times of the engine and of the
/// baseline.
type Scheduled = (f64, Times, Times);

fn compare(report: &mut Report, ours: &mut Side, theirs: &mut Side, scheduled: Vec<Scheduled>) {
    let speed = median(ours.rates.clone()) / median(theirs.rates.clone()).max(1e-9);
    report.value("ratio_ops", speed);
    report.target(speed >= 20.0, format!("{speed:.1} × the baseline's ops/s (target ≥ 20)"));
    // The first version of the target, which is missed; see docs/adr/0008. The scheduled target
    // below was added later.
    let closed = ours.times.at(0.99).as_secs_f64() / theirs.times.at(0.99).as_secs_f64().max(1e-9);
    report.value("ratio_p99_closed_loop", closed);
    report.target(
        closed <= 0.2,
        format!("{closed:.4} of the baseline's p99, each caller calling again after its answer (target ≤ 0.2)"),
    );
    let rate = median(scheduled.iter().map(|it| it.0).collect());
    let (mut engine, mut baseline) = (Times::default(), Times::default());
    for (_, one, other) in scheduled {
        engine.extend(one);
        baseline.extend(other);
    }
    report.say(format!(
        "  both on a schedule of {} ops/s for {} s per round, measured from the moment when an operation was due:",
        thousands(rate as u64),
        LASTS.as_secs()
    ));
    for (name, times) in [("engine", &mut engine), ("baseline", &mut baseline)] {
        let (p50, p99, max) = (times.at(0.5), times.at(0.99), times.at(1.0));
        report.say(format!(
            "  {name:<9} {:>24}  {:>9}  {:>10}  {:>10}",
            thousands(times.len() as u64) + " ops",
            ms(p50),
            ms(p99),
            ms(max)
        ));
        report.value(&format!("scheduled_{name}_p99_ms"), p99.as_secs_f64() * 1e3);
    }
    let tail = engine.at(0.99).as_secs_f64() / baseline.at(0.99).as_secs_f64().max(1e-9);
    report.value("ratio_p99", tail);
    report.target(tail <= 0.2, format!("{tail:.4} of the baseline's p99 on that schedule (target ≤ 0.2)"));
}

/// The duration of a round on a schedule.
const LASTS: Duration = Duration::from_secs(3);

/// Returns when a caller's operations are due: every `every`, with the callers spread over that
/// time.
fn due(began: Instant, number: usize, callers: usize, every: Duration) -> impl Iterator<Item = Instant> {
    let first = began + every.mul_f64(number as f64 / callers as f64);
    (0..).map(move |nth| first + every * nth).take_while(move |it| *it < began + LASTS)
}

/// Both sides use threads, because an async timer is late by up to a millisecond, longer than most
/// operations.
fn scheduled_engine(kind: Kind, dir: &Path, callers: usize, every: Duration) -> anyhow::Result<Times> {
    let (engine, _) = world::engine(kind, dir)?;
    let began = Instant::now() + Duration::from_millis(20);
    let mut all = Times::default();
    std::thread::scope(|scope| -> anyhow::Result<()> {
        let engine = &engine;
        let workers: Vec<_> = (0..callers)
            .map(|number| scope.spawn(move || scheduled_caller(engine, number, due(began, number, callers, every))))
            .collect();
        for worker in workers {
            all.extend(worker.join().map_err(|_| anyhow::anyhow!("a caller panicked"))??);
        }
        Ok(())
    })?;
    engine.shutdown();
    Ok(all)
}

fn scheduled_caller(engine: &Engine, number: usize, due: impl Iterator<Item = Instant>) -> anyhow::Result<Times> {
    let (mut caller, mut times, mut left) = (Caller::new(number)?, Times::default(), Vec::new());
    for due in due {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        match left.pop() {
            Some(request) => drop(engine.submit(request)?),
            None => {
                let granted = engine.submit(caller.acquire());
                left = caller.then(granted)?.into();
                left.reverse();
            }
        }
        times.add(due.elapsed());
    }
    Ok(times)
}

fn scheduled_baseline(dir: &Path, callers: usize, every: Duration) -> anyhow::Result<Times> {
    let path = dir.join("baseline.db");
    baseline::create(&path)?;
    let began = Instant::now() + Duration::from_millis(20);
    let mut all = Times::default();
    std::thread::scope(|scope| -> anyhow::Result<()> {
        let path = &path;
        let workers: Vec<_> = (0..callers)
            .map(|number| {
                scope.spawn(move || {
                    baseline::scheduled(path, number, &uris_of(number), due(began, number, callers, every))
                })
            })
            .collect();
        for worker in workers {
            all.extend(worker.join().map_err(|_| anyhow::anyhow!("a caller panicked"))??);
        }
        Ok(())
    })?;
    Ok(all)
}

fn uris_of(caller: usize) -> Vec<String> {
    (0..URIS_EACH).map(|it| format!("file://shop/src/module-{caller}/part-{it}.rs")).collect()
}

fn engine_round(kind: Kind, dir: &Path, callers: usize, steps: usize, threads: bool) -> anyhow::Result<Round> {
    let (engine, counts) = world::engine(kind, dir)?;
    let before = counts.commits.load(Relaxed);
    let began = Instant::now();
    let mut times = Vec::new();
    if threads {
        let workers: Vec<_> = (0..callers)
            .map(|number| {
                let engine = engine.clone();
                std::thread::spawn(move || caller_thread(&engine, number, steps))
            })
            .collect();
        for worker in workers {
            times.push(worker.join().map_err(|_| anyhow::anyhow!("a caller panicked"))??);
        }
    } else {
        // One worker thread: on a machine with two cores the writer has the other core.
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build()?;
        let all: Vec<anyhow::Result<Times>> = runtime.block_on(async {
            let tasks: Vec<_> = (0..callers).map(|it| tokio::spawn(caller_task(engine.clone(), it, steps))).collect();
            let mut all = Vec::new();
            for task in tasks {
                all.push(task.await.context("a caller panicked").and_then(|it| it));
            }
            all
        });
        for it in all {
            times.push(it?);
        }
    }
    let took = began.elapsed();
    engine.shutdown();
    let commits = counts.commits.load(Relaxed) - before;
    Ok(Round { times, took, commits, in_store: Duration::from_nanos(counts.nanoseconds.load(Relaxed)) })
}

/// The three operations of a caller.
struct Caller {
    by: Actor,
    owner: Owner,
    uris: Vec<Uri>,
    dice: Dice,
}

impl Caller {
    fn new(number: usize) -> anyhow::Result<Caller> {
        let name = AgentName::new(&format!("agent-{number}"))?;
        let uris = uris_of(number).iter().map(|it| Uri::new(it)).collect::<Result<_, _>>()?;
        Ok(Caller { by: Actor::Agent(name.clone()), owner: Owner::Agent(name), uris, dice: Dice::new(number as u64) })
    }

    fn acquire(&mut self) -> Request {
        let uris = self.dice.pick(&self.uris).cloned().into_iter().collect();
        let (owner, memo) = (self.owner.clone(), String::new());
        let ask = Acquire { owner, uris, mode: Mode::Exclusive, ttl_ms: 60_000, wait_ms: 0, memo };
        self.request(Command::Acquire(ask))
    }

    fn request(&self, command: Command) -> Request {
        Request { by: self.by.clone(), key: None, command }
    }

    fn then(&self, granted: Result<Reply, Failure>) -> anyhow::Result<[Request; 2]> {
        match granted?.outcome {
            Outcome::Claim(Acquired::Granted { claim, token, .. }) => {
                Ok([Command::Renew { claim, token }, Command::Release { claim, token }].map(|it| self.request(it)))
            }
            other => bail!("not granted: {other:?}"),
        }
    }
}

async fn caller_task(engine: Engine, number: usize, steps: usize) -> anyhow::Result<Times> {
    let (mut caller, mut times) = (Caller::new(number)?, Times::default());
    for _ in 0..steps {
        let began = Instant::now();
        let granted = engine.ask(caller.acquire()).await;
        times.add(began.elapsed());
        for request in caller.then(granted)? {
            let began = Instant::now();
            engine.ask(request).await?;
            times.add(began.elapsed());
        }
    }
    Ok(times)
}

fn caller_thread(engine: &Engine, number: usize, steps: usize) -> anyhow::Result<Times> {
    let (mut caller, mut times) = (Caller::new(number)?, Times::default());
    for _ in 0..steps {
        let began = Instant::now();
        let granted = engine.submit(caller.acquire());
        times.add(began.elapsed());
        for request in caller.then(granted)? {
            let began = Instant::now();
            engine.submit(request)?;
            times.add(began.elapsed());
        }
    }
    Ok(times)
}

fn baseline_round(dir: &Path, callers: usize, steps: usize) -> anyhow::Result<Round> {
    let path = dir.join("baseline.db");
    baseline::create(&path)?;
    let commits = AtomicU64::new(0);
    let began = Instant::now();
    let times = std::thread::scope(|scope| -> anyhow::Result<Vec<Times>> {
        let workers: Vec<_> = (0..callers)
            .map(|number| {
                let (path, commits) = (&path, &commits);
                scope.spawn(move || baseline::caller(path, number, &uris_of(number), steps, commits))
            })
            .collect();
        let mut times = Vec::new();
        for worker in workers {
            times.push(worker.join().map_err(|_| anyhow::anyhow!("a caller panicked"))??);
        }
        Ok(times)
    })?;
    Ok(Round { times, took: began.elapsed(), commits: commits.load(Relaxed), in_store: Duration::ZERO })
}
