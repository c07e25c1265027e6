//! Polls per second and the latency of a poll under many callers, against a server of the usual kind, in one run.
//!
//! Each caller takes a task and finishes it, again and again; tasks were added before. Throughput: a side is done when
//! its last caller is. Latency: both sides get the same load on a schedule, half of what the usual server just managed,
//! and a poll's time counts from the moment it was due.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::{Value, json};

use super::line::Line;
use super::usual::{PATIENCE, POOL, Usual};
use super::{Server, TOKEN, add_tasks, finish, settle};
use crate::args::Args;
use crate::report::{Report, Times, ms, thousands};

/// One side, as a caller sees it.
#[derive(Clone, Copy)]
enum Side {
    Regatta(SocketAddr),
    Usual(SocketAddr),
}

impl Side {
    fn open(self) -> anyhow::Result<Line> {
        match self {
            Side::Regatta(at) | Side::Usual(at) => Line::open(at, TOKEN),
        }
    }

    fn poll(self, line: &mut Line, agent: &str) -> anyhow::Result<Value> {
        let input = json!({ "agent": agent });
        let granted = match self {
            Side::Regatta(_) => line.ask("task.poll", &input)?,
            Side::Usual(_) => line.post("/poll", input.to_string().as_bytes())?,
        };
        anyhow::ensure!(granted.is_object(), "there was no task left");
        Ok(granted)
    }

    fn finish(self, line: &mut Line, granted: &Value) -> anyhow::Result<()> {
        match self {
            Side::Regatta(_) => finish(line, granted),
            Side::Usual(_) => line.post("/finish", granted.to_string().as_bytes()).map(|_| ()),
        }
    }

    fn add(self, count: usize) -> anyhow::Result<()> {
        match self {
            Side::Regatta(at) => add_tasks(at, count),
            Side::Usual(at) => {
                let mut line = Line::open(at, TOKEN)?;
                (0..count).try_for_each(|nth| {
                    line.post("/add", json!({ "subject": format!("Task {nth}") }).to_string().as_bytes()).map(|_| ())
                })
            }
        }
    }

    /// Every caller takes and finishes so many tasks, at once or when each is due; gives the times of the polls.
    fn run(self, callers: usize, each: usize, every: Option<Duration>) -> anyhow::Result<(Times, Duration)> {
        let began = Instant::now();
        let caller = |nth: usize| -> anyhow::Result<Times> {
            let (mut line, agent, mut times) = (self.open()?, format!("agent-{nth}"), Times::default());
            for step in 0..each {
                let due = every
                    .map(|it| began + it * u32::try_from(step).unwrap_or(u32::MAX) + it * nth as u32 / callers as u32);
                if let Some(due) = due {
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                }
                let from = due.unwrap_or_else(Instant::now);
                let granted = self.poll(&mut line, &agent)?;
                times.add(from.elapsed());
                self.finish(&mut line, &granted)?;
            }
            Ok(times)
        };
        let mut all = Times::default();
        std::thread::scope(|scope| {
            let callers: Vec<_> = (0..callers).map(|nth| scope.spawn(move || caller(nth))).collect();
            callers.into_iter().try_for_each(|it| {
                all.extend(it.join().map_err(|_| anyhow::anyhow!("a caller broke down"))??);
                Ok::<(), anyhow::Error>(())
            })
        })?;
        Ok((all, began.elapsed()))
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let callers: usize = args.number("callers", 64)?;
    let steps: usize = args.number("steps", 20)?;
    let mut report = Report::new("polls", args);
    let scratch = args.scratch()?;
    let (one, two) = (scratch.path().join("regatta"), scratch.path().join("usual"));
    std::fs::create_dir_all(&one)?;
    std::fs::create_dir_all(&two)?;
    report.say(format!(
        "{callers} callers over HTTP on loopback, each takes and finishes tasks; usual: axum, {POOL} connections, BEGIN \
         IMMEDIATE, busy timeout {} s; WAL and synchronous=FULL, 2 threads for HTTP on both sides; in {}",
        PATIENCE.as_secs(),
        scratch.path().display()
    ));
    let server = Server::start(&one)?;
    server.add_agents(callers, 20)?;
    let usual = Usual::start(&two)?;
    let (ours, theirs) = (Side::Regatta(server.address), Side::Usual(usual.address));
    // Regatta is done so soon that it does more, to be trusted.
    let more = 5;
    theirs.add(callers * steps * 2)?;
    ours.add(callers * steps * (more + 1))?;
    let (mut usual_times, usual_took) = theirs.run(callers, steps, None)?;
    let (mut our_times, our_took) = ours.run(callers, steps * more, None)?;
    let rate = |times: &Times, took: Duration| times.len() as f64 / took.as_secs_f64();
    let (usual_rate, our_rate) = (rate(&usual_times, usual_took), rate(&our_times, our_took));
    report.say(format!(
        "as fast as they can: Regatta {} polls/s (each with a finish), usual {}",
        thousands(our_rate as u64),
        thousands(usual_rate as u64)
    ));
    report.say(format!("  p99 of such a poll: Regatta {}, usual {}", ms(our_times.at(0.99)), ms(usual_times.at(0.99))));
    let every = Duration::from_secs_f64(callers as f64 / (usual_rate / 2.0).max(1.0));
    let (mut usual_due, _) = theirs.run(callers, steps, Some(every))?;
    let (mut our_due, _) = ours.run(callers, steps, Some(every))?;
    let (ours_p99, usual_p99) = (our_due.at(0.99), usual_due.at(0.99));
    report.say(format!(
        "on a schedule of {} polls/s: p50 {} and {}, p99 {} and {}",
        thousands((usual_rate / 2.0) as u64),
        ms(our_due.at(0.5)),
        ms(usual_due.at(0.5)),
        ms(ours_p99),
        ms(usual_p99)
    ));
    let (rates, p99s) = (our_rate / usual_rate, ours_p99.as_secs_f64() / usual_p99.as_secs_f64());
    report.value("throughput_ratio", rates);
    report.value("p99_ratio", p99s);
    report.target(rates >= 10.0, format!("at least 10 times the throughput: {rates:.1}"));
    report.target(p99s <= 0.1, format!("at most a tenth of the p99: {p99s:.3}"));
    settle(&server)?;
    report.end().context("the report")
}
