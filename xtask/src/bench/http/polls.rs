//! Polls per second and the latency of a poll with many callers, compared with a server of the
//! usual kind, in one run.
//!
//! Each caller polls a task and finishes it, again and again; the tasks were added before. A side
//! is done when its last caller is done. The latency of these polls is what counts. The latency
//! under a load that strains neither side, half of the usual server's throughput, is printed too:
//! there a poll's time counts from the moment when it was due, and on both sides it is mostly one
//! sync of the disk.
//!
//! Callers and servers share the processors of this machine, so the processor time of both is
//! printed. On a machine with few processors, and with a disk that syncs fast, the ratio of
//! throughputs is limited by the time that the callers need.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::baseline_server::{BaselineServer, LOCK_TIMEOUT, POOL_SIZE};
use super::load_generator::{LoadPlan, LoadTarget};
use super::{BenchServer, wait_until_judged};
use crate::args::Args;
use crate::report::{Report, Times, format_ms, format_thousands};

/// The processor time of the threads of this process, by name.
#[derive(Clone, Debug, Default)]
pub(super) struct CpuByThread(BTreeMap<String, u64>);

impl CpuByThread {
    /// Returns the times up to now, in nanoseconds. Threads that have ended are not included.
    pub(super) fn now() -> anyhow::Result<CpuByThread> {
        let mut spent = CpuByThread::default();
        for task in std::fs::read_dir("/proc/self/task")? {
            let task = task?.path();
            let (comm, stat) = (
                std::fs::read_to_string(task.join("comm")),
                std::fs::read_to_string(task.join("schedstat")),
            );
            let (Ok(comm), Ok(stat)) = (comm, stat) else {
                continue;
            }; // the thread has just ended
            let took: u64 = stat
                .split(' ')
                .next()
                .and_then(|stat| stat.parse().ok())
                .unwrap_or(0);
            *spent.0.entry(comm.trim().to_owned()).or_default() += took;
        }
        spent.0.insert("all".into(), process_cpu_ns()?);
        Ok(spent)
    }

    pub(super) fn since(&self, before: &CpuByThread) -> CpuByThread {
        let more = |(name, took): (&String, &u64)| {
            (
                name.clone(),
                took.saturating_sub(before.0.get(name).copied().unwrap_or(0)),
            )
        };
        CpuByThread(self.0.iter().map(more).collect())
    }

    /// Returns the microseconds for each of `count` operations.
    pub(super) fn micros_per_item(&self, name: &str, count: usize) -> f64 {
        self.0.get(name).copied().unwrap_or(0) as f64 / 1_000.0 / count.max(1) as f64
    }
}

/// Returns the processor time of the whole process, including ended threads.
fn process_cpu_ns() -> anyhow::Result<u64> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Ok(u64::try_from(time.tv_sec)? * 1_000_000_000 + u64::try_from(time.tv_nsec)?)
}

/// The results of a side under one load.
struct LoadResult {
    times: Times,
    duration: Duration,
    /// The processor time in microseconds for a poll with its finish, of the server and of the
    /// callers.
    server_micros: f64,
    caller_micros: f64,
    writer_micros: f64,
}

impl LoadResult {
    /// Runs Regatta's side. It is done only when all finished work was checked.
    fn measure(
        side: LoadTarget,
        load: LoadPlan,
        judged_by: Option<&BenchServer>,
    ) -> anyhow::Result<LoadResult> {
        let (before, began) = (CpuByThread::now()?, Instant::now());
        let (times, callers) = side.run(load)?;
        if let Some(server) = judged_by {
            wait_until_judged(server)?;
        }
        let took = began.elapsed();
        let spent = CpuByThread::now()?.since(&before);
        let count = times.len();
        let callers = callers.as_nanos() as f64 / 1_000.0 / count.max(1) as f64;
        Ok(LoadResult {
            server_micros: spent.micros_per_item("all", count) - callers,
            writer_micros: spent.micros_per_item("writer", count),
            times,
            duration: took,
            caller_micros: callers,
        })
    }

    fn rate(&self) -> f64 {
        self.times.len() as f64 / self.duration.as_secs_f64()
    }

    fn cost_text(&self) -> String {
        format!(
            "{:.0} µs processor time per poll with its finish, and {:.0} µs of the callers; {:.2} \
            processors busy",
            self.server_micros,
            self.caller_micros,
            (self.server_micros + self.caller_micros) * self.rate() / 1e6
        )
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let callers: usize = args.number("callers", 64)?;
    let steps: usize = args.number("steps", 40)?;
    let mut report = Report::new("polls", args);
    let scratch = args.scratch_dir()?;
    let (one, two) = (scratch.path().join("regatta"), scratch.path().join("usual"));
    std::fs::create_dir_all(&one)?;
    std::fs::create_dir_all(&two)?;
    report.add_line(format!(
        "{callers} callers over HTTP on loopback, on one thread, each takes and finishes tasks; \
         usual: axum, {POOL_SIZE} \
         connections, BEGIN IMMEDIATE, busy timeout {} s; WAL and synchronous=FULL, 2 threads for \
         HTTP on both sides; in {}",
        LOCK_TIMEOUT.as_secs(),
        scratch.path().display()
    ));
    report.add_line(format!(
        "a write and a sync of this disk: {}",
        format_ms(sync_duration(scratch.path())?)
    ));
    let server = BenchServer::start(&one)?;
    server.add_agents(callers, 20)?;
    let usual = BaselineServer::start(&two)?;
    let (ours, theirs) = (
        LoadTarget::Regatta(server.address),
        LoadTarget::Baseline(usual.address),
    );
    // Regatta needs little time, so it does more polls for a reliable measurement.
    let more = 5;
    theirs.add_tasks(callers * steps * 2)?;
    ours.add_tasks(callers * steps * (more + 1))?;
    let all_out = |each| LoadPlan {
        callers,
        tasks_per_caller: each,
        interval: None,
    };
    let mut usual_run = LoadResult::measure(theirs, all_out(steps), None)?;
    let commits = server.counts.commits.load(Relaxed);
    let (events, inside) = (
        server.counts.events.load(Relaxed),
        server.counts.nanoseconds.load(Relaxed),
    );
    let mut our_run = LoadResult::measure(ours, all_out(steps * more), Some(&server))?;
    let commits = server.counts.commits.load(Relaxed) - commits;
    let events = server.counts.events.load(Relaxed) - events;
    let inside = server.counts.nanoseconds.load(Relaxed) - inside;
    let (usual_rate, our_rate) = (usual_run.rate(), our_run.rate());
    report.add_line(format!(
        "as fast as they can: Regatta {} polls/s (each with a finish), usual {}",
        format_thousands(our_rate as u64),
        format_thousands(usual_rate as u64)
    ));
    report.add_line(format!(
        "  Regatta: {}; its writer {:.0} µs",
        our_run.cost_text(),
        our_run.writer_micros
    ));
    report.add_line(format!(
        "  Regatta: {commits} commits of {:.1} polls and {:.1} events, {:.2} ms each",
        our_run.times.len() as f64 / commits.max(1) as f64,
        events as f64 / commits.max(1) as f64,
        inside as f64 / 1e6 / commits.max(1) as f64
    ));
    report.add_line(format!(
        "  usual: {}; one commit per call",
        usual_run.cost_text()
    ));
    let (ours_p99, usual_p99) = (
        our_run.times.percentile(0.99),
        usual_run.times.percentile(0.99),
    );
    report.add_line(format!(
        "  p99 of such a poll: Regatta {}, usual {}",
        format_ms(ours_p99),
        format_ms(usual_p99)
    ));
    let every = Duration::from_secs_f64(callers as f64 / (usual_rate / 2.0).max(1.0));
    let due = LoadPlan {
        callers,
        tasks_per_caller: steps,
        interval: Some(every),
    };
    let (mut usual_due, mut our_due) = (
        LoadResult::measure(theirs, due, None)?,
        LoadResult::measure(ours, due, Some(&server))?,
    );
    let (our_late, usual_late) = (
        our_due.times.percentile(0.99),
        usual_due.times.percentile(0.99),
    );
    report.add_line(format!(
        "on a schedule of {} polls/s: p50 {} and {}, p99 {} and {}",
        format_thousands((usual_rate / 2.0) as u64),
        format_ms(our_due.times.percentile(0.5)),
        format_ms(usual_due.times.percentile(0.5)),
        format_ms(our_late),
        format_ms(usual_late)
    ));
    let (rates, p99s) = (
        our_rate / usual_rate,
        ours_p99.as_secs_f64() / usual_p99.as_secs_f64(),
    );
    report.set_value("throughput_ratio", rates);
    report.set_value("p99_ratio", p99s);
    report.set_value(
        "scheduled_p99_ratio",
        our_late.as_secs_f64() / usual_late.as_secs_f64(),
    );
    report.set_value("server_us_per_poll", our_run.server_micros);
    report.set_value("usual_us_per_poll", usual_run.server_micros);
    report.check_target(
        rates >= 10.0,
        format!("at least 10 times the throughput: {rates:.1}"),
    );
    report.check_target(
        p99s <= 0.1,
        format!("at most a tenth of the p99: {p99s:.3}"),
    );
    report.finish().context("the report")
}

/// Returns the median time of one durable write on this disk.
fn sync_duration(dir: &std::path::Path) -> anyhow::Result<Duration> {
    use std::os::unix::fs::FileExt as _;
    let (file, mut times) = (std::fs::File::create(dir.join("probe"))?, Times::default());
    for nth in 0..200 {
        let began = Instant::now();
        file.write_all_at(&[7; 8 * 1024], nth * 8 * 1024)?;
        file.sync_data()?;
        times.add(began.elapsed());
    }
    Ok(times.percentile(0.5))
}
