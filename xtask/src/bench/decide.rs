//! How long a decision takes on a board with 1,000 open tasks, and on a board with 100,000.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Instant;

use regatta_core::claim::{Acquire, Acquired, Mode, Owner};
use regatta_core::command::{Actor, Command, Outcome, Request, decide};
use regatta_core::ids::{ClaimId, Now, TaskId};
use regatta_core::pattern::Uri;
use regatta_core::task::How;
use serde_json::json;

use super::board::{AGENTS, Fleet, agent_name};
use crate::args::Args;
use crate::report::{Report, Times, thousands, us};

const SIZES: [usize; 2] = [1_000, 100_000];

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let samples: usize = args.number("samples", 20_000)?;
    let mut report = Report::new("decide", args);
    report
        .say(format!("{} decisions on each board; 3 projects, {AGENTS} agents, 5 missions", thousands(samples as u64)));
    report.say("  open tasks  running  claims  command           count     median        p99        max");
    let mut medians = Vec::new();
    for size in SIZES {
        let began = Instant::now();
        let mut bench = Bench::new(size)?;
        let built = began.elapsed();
        let (running, claims) = (bench.fleet.board.attempts.len(), bench.fleet.board.claims.len());
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
            let (p50, p99, max) = (times.at(0.5), times.at(0.99), times.at(1.0));
            report.say(format!(
                "  {:>10}  {running:>7}  {claims:>6}  {kind:<14} {:>8}  {:>9}  {:>9}  {:>9}",
                thousands(size as u64),
                times.len(),
                us(p50),
                us(p99),
                us(max)
            ));
            figures.insert(
                (*kind).into(),
                json!({ "median_us": p50.as_secs_f64() * 1e6, "p99_us": p99.as_secs_f64() * 1e6 }),
            );
        }
        report.say(format!("  (built by {} commands in {:.1} s)", size, built.as_secs_f64()));
        report.value(&format!("{size}"), figures);
        medians.push(kinds.get_mut("all of them").map_or(0.0, |it| it.at(0.5).as_secs_f64() * 1e6));
    }
    let (small, large) = (medians[0], medians[1]);
    report.target(large < 20.0, format!("median {large:.1} µs at 100,000 open tasks (target < 20 µs)"));
    let ratio = large / small.max(1e-9);
    report.target(ratio <= 3.0, format!("{ratio:.2} × the median at 1,000 (target ≤ 3)"));
    report.end()
}

struct Bench {
    fleet: Fleet,
    held: Vec<(ClaimId, u64)>,
    uris: usize,
}

impl Bench {
    fn new(size: usize) -> anyhow::Result<Bench> {
        let mut fleet = Fleet::with_tasks(size)?;
        for nth in 0..200 {
            fleet.run(Fleet::poll(nth % AGENTS)?)?;
        }
        // Drop the previous batch here, because freeing much memory takes time.
        fleet.take_batch();
        let mut bench = Bench { fleet, held: Vec::new(), uris: 0 };
        for _ in 0..300 {
            let command = bench.acquire()?;
            let outcome = bench.fleet.run(command)?;
            bench.took(outcome);
        }
        Ok(bench)
    }

    /// Times one decision of a random kind, and applies it to the board.
    fn step(&mut self, kinds: &mut BTreeMap<&'static str, Times>) -> anyhow::Result<()> {
        let agent = self.fleet.dice.below(AGENTS);
        let attempts = self.fleet.board.attempts.len();
        let nth = self.fleet.dice.below(attempts.max(1));
        let attempt = self.fleet.board.attempts.values().nth(nth).cloned();
        let some = self.fleet.dice.below(self.held.len());
        let (kind, command) = match self.fleet.dice.below(100) {
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
                    self.stop(attempt.map(|it| it.task))?;
                }
                ("poll", Fleet::poll(agent)?)
            }
            70..85 => {
                let task = self.fleet.next_task()?;
                ("add task", Command::AddTask { task, assign: None, how: How::Queue })
            }
            _ => match attempt {
                Some(it) => {
                    let text = "half of it is done".into();
                    ("progress", Command::Progress { task: it.task, attempt: it.id, token: it.token, text })
                }
                None => ("poll", Fleet::poll(agent)?),
            },
        };
        self.fleet.now = Now { at: self.fleet.now.at + 1, wall: self.fleet.now.wall + 1 };
        let request = Request { by: Actor::Agent(agent_name(agent)?), key: None, command };
        let began = Instant::now();
        let decided = black_box(decide(&self.fleet.board, &request, self.fleet.now));
        kinds.entry(kind).or_default().add(began.elapsed());
        let commit = decided.map_err(|it| anyhow::anyhow!("{kind}: {}", it.message()))?;
        self.fleet.board = commit.board;
        self.took(commit.outcome);
        Ok(())
    }

    fn acquire(&mut self) -> anyhow::Result<Command> {
        self.uris += 1;
        Ok(Command::Acquire(Acquire {
            owner: Owner::Agent(agent_name(self.uris % AGENTS)?),
            uris: vec![Uri::new(&format!("file://shop/notes/area-{}/{}.md", self.uris % 100, self.uris))?],
            mode: Mode::Exclusive,
            ttl_ms: 3_600_000,
            wait_ms: 0,
            memo: String::new(),
        }))
    }

    fn took(&mut self, outcome: Outcome) {
        if let Outcome::Claim(Acquired::Granted { claim, token, .. }) = outcome {
            self.held.push((claim, token));
        }
    }

    fn stop(&mut self, task: Option<TaskId>) -> anyhow::Result<()> {
        if let Some(task) = task {
            self.fleet.run(Command::StopTask { task, reason: "room for others".into(), pause: false })?;
            self.fleet.take_batch();
        }
        Ok(())
    }
}
