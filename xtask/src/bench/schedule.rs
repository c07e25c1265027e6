//! The time of one start with ten thousand ready tasks: with separate files, all with one file, and
//! below one directory.

use std::hint::black_box;
use std::time::Instant;

use regatta_core::agent;
use regatta_core::board::Board;
use regatta_core::command::{Actor, Command, Outcome, PlannedTask, Request, decide};
use regatta_core::fleet::Limits;
use regatta_core::ids::{AgentName, BranchName, Now, ProjectName};
use regatta_core::mission::{self, Mode};
use regatta_core::pattern::PathPattern;
use regatta_core::project;
use regatta_core::schedule::{Grant, Poll};
use regatta_core::task::{Add, IssueType, Validation};
use serde_json::json;

use super::board::task;
use crate::args::Args;
use crate::report::{Report, Times, thousands, us};

const READY: usize = 10_000;
const WORKERS: u32 = 8;

/// Returns the files of the task with this number.
type Files = fn(usize) -> Vec<String>;

const BOARDS: [(&str, Files); 5] = [
    ("disjoint", |nth| vec![format!("src/area-{}/part-{nth}.rs", nth % 100)]),
    ("one file", |_| vec!["src/settings.rs".into()]),
    ("own + lock file", |nth| vec![format!("src/part-{nth}.rs"), "Cargo.lock".into()]),
    // Every hundredth task needs a whole directory in which the others have a file.
    ("one directory", |nth| vec![if nth % 100 == 7 { "src/**".into() } else { format!("src/part-{nth}.rs") }]),
    ("globs", |nth| vec![format!("src/*/part-{}*.rs", nth % 5_000), format!("docs/{}.md", nth % 100)]),
];

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let samples: usize = args.number("samples", 500)?;
    let mut report = Report::new("schedule", args);
    report.say(format!(
        "{} ready tasks of one mission, {WORKERS} workers; {} starts on each board",
        thousands(READY as u64),
        thousands(samples as u64)
    ));
    report.say("  they want         mode   asked  what              median        p99        max");
    let mut good = true;
    for (name, wants) in BOARDS {
        for mode in [Mode::Flow, Mode::Waves] {
            let mut bench = Bench::new(wants, mode)?;
            let (mut starts, mut refusals) = (Times::default(), Times::default());
            for _ in 0..samples {
                bench.round(&mut starts, &mut refusals)?;
            }
            for (what, times) in [("start", &mut starts), ("nothing free", &mut refusals)] {
                if times.len() == 0 {
                    continue;
                }
                let (p50, p99, max) = (times.at(0.5), times.at(0.99), times.at(1.0));
                report.say(format!(
                    "  {name:<16}  {:<5} {:>6}  {what:<12} {:>11} {:>10} {:>10}",
                    if mode == Mode::Flow { "flow" } else { "waves" },
                    times.len(),
                    us(p50),
                    us(p99),
                    us(max)
                ));
                report.value(
                    &format!("{name} {mode:?} {what}"),
                    json!({ "median_us": p50.as_secs_f64() * 1e6, "p99_us": p99.as_secs_f64() * 1e6, "max_us": max.as_secs_f64() * 1e6 }),
                );
                good &= p50.as_secs_f64() < 1e-3;
            }
        }
    }
    report.target(good, "the median of one start is under 1 ms on every board");
    report.end()
}

struct Bench {
    board: Board,
    now: Now,
    live: Vec<Grant>,
}

impl Bench {
    fn new(wants: fn(usize) -> Vec<String>, mode: Mode) -> anyhow::Result<Bench> {
        let mut bench = Bench { board: Board::default(), now: Now::default(), live: vec![] };
        let project = ProjectName::new("shop")?;
        bench.ask(Command::AddProject(project::Add {
            name: project.clone(),
            location: "/shop".into(),
            trunk: BranchName::new("main")?,
            validation: vec!["make test".into()],
            validation_timeout_ms: 60_000,
            settings: project::Settings::default(),
        }))?;
        bench.ask(Command::SetLimits { limits: Limits { max_attempts: 100, ..Limits::default() } })?;
        bench.ask(Command::RegisterAgent(agent::Register {
            name: AgentName::new("ada")?,
            runtime: agent::Runtime::Outside,
            role: agent::Role::Worker,
            provider: None,
            profile: agent::Profile::default(),
            description: String::new(),
            max_tasks: 20,
        }))?;
        let mut tasks = Vec::with_capacity(READY);
        for nth in 0..READY {
            let files = wants(nth).iter().map(|it| PathPattern::new(it)).collect::<Result<_, _>>()?;
            let add = Add {
                issue_type: IssueType::Feature,
                files,
                validation: Validation { tests: vec!["make test".into()], ..Validation::default() },
                ..task(&project, format!("Make part {nth} work"))
            };
            tasks.push(PlannedTask { task: add, after: vec![], assign: None });
        }
        let start = mission::Start {
            project,
            title: "A goal".into(),
            agents: vec![AgentName::new("ada")?],
            team: None,
            max_workers: WORKERS,
            mode,
            isolate: false,
            wave_commits: false,
            serial: vec![],
            budget: Default::default(),
        };
        bench.ask(Command::StartMission { mission: start, tasks, adopt: vec![] })?;
        Ok(bench)
    }

    /// Times starts until no task is free or all agents work. Then the oldest attempt ends,
    /// untimed.
    fn round(&mut self, starts: &mut Times, refusals: &mut Times) -> anyhow::Result<()> {
        while self.live.len() < WORKERS as usize {
            let ask = Poll {
                agent: AgentName::new("ada")?,
                project: None,
                mission: None,
                task: None,
                lease_ms: None,
                bare: false,
                by_hand: false,
            };
            self.now = Now { at: self.now.at + 1, wall: self.now.wall + 1 };
            let request = Request { by: Actor::Regatta, key: None, command: Command::Poll(ask) };
            let began = Instant::now();
            let decided = black_box(decide(&self.board, &request, self.now));
            let took = began.elapsed();
            let commit = decided.map_err(|it| anyhow::anyhow!("{}", it.message()))?;
            self.board = commit.board;
            match commit.outcome {
                Outcome::Polled(Some(grant)) => {
                    starts.add(took);
                    self.live.push(grant);
                }
                _ => {
                    refusals.add(took);
                    break;
                }
            }
        }
        if !self.live.is_empty() {
            let Grant { task, attempt, token, .. } = self.live.remove(0);
            self.ask(Command::GiveUp { task, attempt, token, reason: None })?;
        }
        Ok(())
    }

    fn ask(&mut self, command: Command) -> anyhow::Result<()> {
        let request = Request { by: Actor::Regatta, key: None, command };
        let done = decide(&self.board, &request, self.now).map_err(|it| anyhow::anyhow!("{}", it.message()))?;
        self.board = done.board;
        Ok(())
    }
}
