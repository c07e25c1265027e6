//! Claims per second through the engine and SQLite, against a connection per caller, in the same run.
//!
//! Both sides do the same: acquire, renew, release, on URIs that no other caller uses, so that every operation
//! writes a claim and an event and only the way to the disk differs. They take turns on the same file system.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
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

/// What a side did in one round.
struct Round {
    /// One per caller.
    times: Vec<Times>,
    took: Duration,
    commits: u64,
    /// How much of the time the writer was inside the store.
    in_store: Duration,
}

#[derive(Default)]
struct Side {
    times: Times,
    rates: Vec<f64>,
    /// Each caller's own p99 in each round. A caller that starves has few operations, so that among all
    /// operations its long waits vanish; here each caller counts the same.
    own_p99: Times,
    /// The fewest and the most operations that a caller got done in a round.
    fewest: usize,
    most: usize,
    commits: Vec<f64>,
    in_store: Duration,
    took: Duration,
}

impl Side {
    fn add(&mut self, round: Round) {
        let done: usize = round.times.iter().map(Times::len).sum();
        self.rates.push(done as f64 / round.took.as_secs_f64());
        let fewest = round.times.iter().map(Times::len).min().unwrap_or(0);
        self.fewest = if self.own_p99.len() == 0 { fewest } else { self.fewest.min(fewest) };
        self.most = self.most.max(round.times.iter().map(Times::len).max().unwrap_or(0));
        self.commits.push(round.commits as f64 / round.took.as_secs_f64());
        self.in_store += round.in_store;
        self.took += round.took;
        for mut times in round.times {
            self.own_p99.add(times.at(0.99));
            self.times.extend(times);
        }
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let callers: usize = args.number("callers", 64)?;
    let rounds: u32 = args.number::<u32>("rounds", 3)?.max(1);
    let seconds = Duration::from_secs_f64(args.number("seconds", 12.0)?) / rounds;
    let (threads, only) = (args.flag("threads"), args.text("side"));
    let kind = match args.text("store") {
        None | Some("sqlite") => Kind::Sqlite,
        Some("memory") => Kind::Memory,
        Some(other) => bail!("--store {other:?} is neither sqlite nor memory"),
    };
    let scratch = args.scratch()?;
    let mut report = Report::new("claims", args);
    report.say(format!(
        "{callers} callers, {} URIs, acquire → renew → release; {rounds} rounds of {:.1} s each side in turn, in {}",
        callers * URIS_EACH,
        seconds.as_secs_f64(),
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
    for round in 0..rounds {
        let dir = scratch.path().join(round.to_string());
        std::fs::create_dir_all(&dir)?;
        if only != Some("baseline") {
            ours.add(engine_round(kind, &dir, callers, seconds, threads)?);
        }
        if only != Some("engine") {
            theirs.add(baseline_round(&dir, callers, seconds)?);
        }
        std::fs::remove_dir_all(&dir)?;
    }
    print(&mut report, &mut ours, &mut theirs, only.is_none());
    report.end()
}

fn print(report: &mut Report, ours: &mut Side, theirs: &mut Side, compare: bool) {
    report.say("            ops/s (median of rounds)      p50         p99         max   a caller's p99   ops of a caller   commits/s  ops/commit");
    for (name, side) in [("engine", &mut *ours), ("baseline", &mut *theirs)] {
        if side.times.len() == 0 {
            continue;
        }
        let (rate, commits) = (median(side.rates.clone()), median(side.commits.clone()));
        let (p50, p99, max) = (side.times.at(0.5), side.times.at(0.99), side.times.at(1.0));
        let own = side.own_p99.at(0.5);
        report.say(format!(
            "  {name:<9} {:>24}  {:>9}  {:>10}  {:>10}  {:>15}  {:>16}  {:>10}  {:>10.1}",
            thousands(rate as u64),
            ms(p50),
            ms(p99),
            ms(max),
            ms(own),
            format!("{} to {}", side.fewest, side.most),
            thousands(commits as u64),
            rate / commits.max(1.0)
        ));
        let figures = json!({
            "ops_per_second": rate, "rounds": side.rates, "p50_ms": p50.as_secs_f64() * 1e3,
            "p99_ms": p99.as_secs_f64() * 1e3, "max_ms": max.as_secs_f64() * 1e3, "caller_p99_ms": own.as_secs_f64() * 1e3,
            "fewest_ops": side.fewest, "most_ops": side.most, "commits_per_second": commits,
        });
        report.value(name, figures);
    }
    report.say("  commits/s are fsyncs/s but for checkpoints: under FULL each commit to the log is one fsync of it.");
    report.say(
        "  a caller's p99: the median over callers of each one's own; among all operations a starved caller's vanish.",
    );
    if ours.took > Duration::ZERO {
        report.say(format!(
            "  the writer was inside the store for {:.0} % of the time",
            100.0 * ours.in_store.as_secs_f64() / ours.took.as_secs_f64()
        ));
    }
    if compare {
        let speed = median(ours.rates.clone()) / median(theirs.rates.clone()).max(1e-9);
        let tail = ours.times.at(0.99).as_secs_f64() / theirs.times.at(0.99).as_secs_f64().max(1e-9);
        report.value("ratio_ops", speed);
        report.value("ratio_p99", tail);
        let own = ours.own_p99.at(0.5).as_secs_f64() / theirs.own_p99.at(0.5).as_secs_f64().max(1e-9);
        report.value("ratio_caller_p99", own);
        report.target(speed >= 20.0, format!("{speed:.1} × the baseline's ops/s (target ≥ 20)"));
        report.target(tail <= 0.2, format!("{tail:.4} of the baseline's p99 over all operations (target ≤ 0.2)"));
        // Added after the line above was first seen to miss; both stand, so that nobody takes one for the other.
        report.target(own <= 0.2, format!("{own:.4} of the p99 that a caller of the baseline sees (target ≤ 0.2)"));
    }
}

fn uris_of(caller: usize) -> Vec<String> {
    (0..URIS_EACH).map(|it| format!("file://shop/src/module-{caller}/part-{it}.rs")).collect()
}

fn engine_round(kind: Kind, dir: &Path, callers: usize, lasts: Duration, threads: bool) -> anyhow::Result<Round> {
    let (engine, counts) = world::engine(kind, dir)?;
    let before = counts.commits.load(Relaxed);
    let stop = Arc::new(AtomicBool::new(false));
    let began = Instant::now();
    let mut times = Vec::new();
    if threads {
        let workers: Vec<_> = (0..callers)
            .map(|number| {
                let (engine, stop) = (engine.clone(), stop.clone());
                std::thread::spawn(move || caller_thread(&engine, number, &stop))
            })
            .collect();
        std::thread::sleep(lasts);
        stop.store(true, Relaxed);
        for worker in workers {
            times.push(worker.join().map_err(|_| anyhow::anyhow!("a caller panicked"))??);
        }
    } else {
        // One worker: on a machine of two cores the writer has the other one.
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build()?;
        let all: Vec<anyhow::Result<Times>> = runtime.block_on(async {
            let tasks: Vec<_> =
                (0..callers).map(|it| tokio::spawn(caller_task(engine.clone(), it, stop.clone()))).collect();
            tokio::time::sleep(lasts).await;
            stop.store(true, Relaxed);
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

/// The three steps of a caller, whoever sends them.
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

async fn caller_task(engine: Engine, number: usize, stop: Arc<AtomicBool>) -> anyhow::Result<Times> {
    let (mut caller, mut times) = (Caller::new(number)?, Times::default());
    while !stop.load(Relaxed) {
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

fn caller_thread(engine: &Engine, number: usize, stop: &AtomicBool) -> anyhow::Result<Times> {
    let (mut caller, mut times) = (Caller::new(number)?, Times::default());
    while !stop.load(Relaxed) {
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

fn baseline_round(dir: &Path, callers: usize, lasts: Duration) -> anyhow::Result<Round> {
    let path = dir.join("baseline.db");
    baseline::create(&path)?;
    let (stop, commits) = (AtomicBool::new(false), AtomicU64::new(0));
    let began = Instant::now();
    let times = std::thread::scope(|scope| -> anyhow::Result<Vec<Times>> {
        let workers: Vec<_> = (0..callers)
            .map(|number| {
                let (path, stop, commits) = (&path, &stop, &commits);
                scope.spawn(move || baseline::caller(path, number, &uris_of(number), stop, commits))
            })
            .collect();
        std::thread::sleep(lasts);
        stop.store(true, Relaxed);
        let mut times = Vec::new();
        for worker in workers {
            times.push(worker.join().map_err(|_| anyhow::anyhow!("a caller panicked"))??);
        }
        Ok(times)
    })?;
    Ok(Round { times, took: began.elapsed(), commits: commits.load(Relaxed), in_store: Duration::ZERO })
}
