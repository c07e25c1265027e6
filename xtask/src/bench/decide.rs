//! Measures how long a decision takes on a board with 1,000 open tasks, and on a board with
//! 100,000.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Instant;

use regatta_core::claim::{Acquire, Acquired, ClaimMode, ClaimOwner};
use regatta_core::command::{Actor, Command, CommandOutcome, Request, decide};
use regatta_core::ids::{ClaimId, Now, TaskId};
use regatta_core::pattern::Uri;
use regatta_core::task::AssignMode;
use serde_json::json;

use super::board::{AGENT_COUNT, BenchFleet, agent_name};
use crate::args::Args;
use crate::report::{Report, Times, format_thousands, format_us};

const SIZES: [usize; 2] = [1_000, 100_000];

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let samples: usize = args.number("samples", 20_000)?;
    let mut report = Report::new("decide", args);
    report.add_line(format!(
        "{} decisions on each board; 3 projects, {AGENT_COUNT} agents, 5 missions",
        format_thousands(samples as u64)
    ));
    report.add_line(
        "  open tasks  running  claims  command           count     median        p99        max",
    );
    let mut medians = Vec::new();
    for size in SIZES {
        let began = Instant::now();
        let mut bench = Bench::new(size)?;
        let built = began.elapsed();
        let (running, claims) = (
            bench.fleet.board.attempts.len(),
            bench.fleet.board.claims.len(),
        );
        let mut kinds = BTreeMap::new();
        for _ in 0..samples {
            bench.step(&mut kinds)?;
        }
        let mut all = Times::default();
        for times in kinds.values() {
            all.extend(times.clone());
        }
        kinds.insert("all of them", all);
        let mut figures = serde_json::Map::new();
        for (kind, times) in &mut kinds {
            let (p50, p99, max) = (
                times.percentile(0.5),
                times.percentile(0.99),
                times.percentile(1.0),
            );
            report.add_line(format!(
                "  {:>10}  {running:>7}  {claims:>6}  {kind:<14} {:>8}  {:>9}  {:>9}  {:>9}",
                format_thousands(size as u64),
                times.len(),
                format_us(p50),
                format_us(p99),
                format_us(max)
            ));
            figures.insert(
                (*kind).into(),
                json!({ "median_us": p50.as_secs_f64() * 1e6, "p99_us": p99.as_secs_f64() * 1e6 }),
            );
        }
        report.add_line(format!(
            "  (built by {} commands in {:.1} s)",
            size,
            built.as_secs_f64()
        ));
        report.set_value(&format!("{size}"), figures);
        medians.push(
            kinds
                .get_mut("all of them")
                .map_or(0.0, |times| times.percentile(0.5).as_secs_f64() * 1e6),
        );
    }
    let (small, large) = (medians[0], medians[1]);
    report.check_target(
        large < 20.0,
        format!("median {large:.1} µs at 100,000 open tasks (target < 20 µs)"),
    );
    let ratio = large / small.max(1e-9);
    report.check_target(
        ratio <= 3.0,
        format!("{ratio:.2} × the median at 1,000 (target ≤ 3)"),
    );
    report.finish()
}

struct Bench {
    fleet: BenchFleet,
    held: Vec<(ClaimId, u64)>,
    uri_count: usize,
}

impl Bench {
    fn new(size: usize) -> anyhow::Result<Bench> {
        let mut fleet = BenchFleet::with_tasks(size)?;
        for nth in 0..200 {
            fleet.run(BenchFleet::poll_command(nth % AGENT_COUNT)?)?;
        }
        // Drop the previous batch here, because freeing much memory takes time.
        fleet.take_batch();
        let mut bench = Bench {
            fleet,
            held: Vec::new(),
            uri_count: 0,
        };
        for _ in 0..300 {
            let command = bench.acquire()?;
            let outcome = bench.fleet.run(command)?;
            bench.note_outcome(outcome);
        }
        Ok(bench)
    }

    /// Times one decision of a random kind, and applies it to the board.
    fn step(&mut self, kinds: &mut BTreeMap<&'static str, Times>) -> anyhow::Result<()> {
        let agent = self.fleet.rng.below(AGENT_COUNT);
        let attempts = self.fleet.board.attempts.len();
        let nth = self.fleet.rng.below(attempts.max(1));
        let attempt = self.fleet.board.attempts.values().nth(nth).cloned();
        let some = self.fleet.rng.below(self.held.len());
        let (kind, command) = match self.fleet.rng.below(100) {
            0..20 => ("acquire", self.acquire()?),
            20..40 if self.held.len() > 200 => {
                let (claim, token) = self.held.swap_remove(some);
                ("release", Command::Release { claim, token })
            }
            20..55 if !self.held.is_empty() => {
                let (claim, token) = self.held[some];
                ("renew", Command::Renew { claim, token })
            }
            55..70 => {
                // Keep room for the poll: above 220 attempts, one is stopped first, untimed.
                if attempts > 220 {
                    self.stop(attempt.map(|attempt| attempt.task))?;
                }
                ("poll", BenchFleet::poll_command(agent)?)
            }
            70..85 => {
                let task = self.fleet.next_task()?;
                (
                    "add task",
                    Command::AddTask {
                        task,
                        assign: None,
                        how: AssignMode::Queue,
                    },
                )
            }
            _ => match attempt {
                Some(attempt) => {
                    let text = "half of it is done".into();
                    (
                        "progress",
                        Command::Progress {
                            task: attempt.task,
                            attempt: attempt.id,
                            token: attempt.token,
                            text,
                        },
                    )
                }
                None => ("poll", BenchFleet::poll_command(agent)?),
            },
        };
        self.fleet.now = Now {
            fleet_ms: self.fleet.now.fleet_ms + 1,
            unix_ms: self.fleet.now.unix_ms + 1,
        };
        let request = Request {
            by: Actor::Agent(agent_name(agent)?),
            key: None,
            command,
        };
        let began = Instant::now();
        let decided = black_box(decide(&self.fleet.board, request.clone(), self.fleet.now));
        kinds.entry(kind).or_default().add(began.elapsed());
        let commit = decided.map_err(|refusal| anyhow::anyhow!("{kind}: {}", refusal.message()))?;
        self.fleet.board = commit.board;
        self.note_outcome(commit.outcome);
        Ok(())
    }

    fn acquire(&mut self) -> anyhow::Result<Command> {
        self.uri_count += 1;
        Ok(Command::Acquire(Acquire {
            owner: ClaimOwner::Agent(agent_name(self.uri_count % AGENT_COUNT)?),
            uris: vec![Uri::new(&format!(
                "file://shop/notes/area-{}/{}.md",
                self.uri_count % 100,
                self.uri_count
            ))?],
            mode: ClaimMode::Exclusive,
            ttl_ms: 3_600_000,
            wait_ms: 0,
            memo: String::new(),
        }))
    }

    fn note_outcome(&mut self, outcome: CommandOutcome) {
        if let CommandOutcome::Claim(Acquired::Granted { claim, token, .. }) = outcome {
            self.held.push((claim, token));
        }
    }

    fn stop(&mut self, task: Option<TaskId>) -> anyhow::Result<()> {
        if let Some(task) = task {
            self.fleet.run(Command::StopTask {
                task,
                reason: "room for others".into(),
                pause: false,
            })?;
            self.fleet.take_batch();
        }
        Ok(())
    }
}
