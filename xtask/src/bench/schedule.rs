//! The time of one start with ten thousand ready tasks: with separate files, all with one file, and
//! below one directory.

use std::hint::black_box;
use std::time::Instant;

use regatta_core::agent;
use regatta_core::board::Board;
use regatta_core::command::{Actor, Command, CommandOutcome, PlannedTask, Request, decide};
use regatta_core::ids::{AgentName, BranchName, Now, ProjectName};
use regatta_core::limits::MachineLimits;
use regatta_core::mission::{self, StartMode};
use regatta_core::pattern::PathPattern;
use regatta_core::project;
use regatta_core::schedule::{PollGrant, PollRequest};
use regatta_core::task::{AddTask, IssueType, Validation};
use serde_json::json;

use super::board::plain_task;
use crate::args::Args;
use crate::report::{Report, Times, format_thousands, format_us};

const READY_TASKS: usize = 10_000;
const WORKER_COUNT: u32 = 8;

/// Returns the files of the task with this number.
type FilesOfTask = fn(usize) -> Vec<String>;

const BOARD_SHAPES: [(&str, FilesOfTask); 5] = [
    ("disjoint", |nth| {
        vec![format!("src/area-{}/part-{nth}.rs", nth % 100)]
    }),
    ("one file", |_| vec!["src/settings.rs".into()]),
    ("own + lock file", |nth| {
        vec![format!("src/part-{nth}.rs"), "Cargo.lock".into()]
    }),
    // Every hundredth task needs a whole directory in which the others have a file.
    ("one directory", |nth| {
        vec![if nth % 100 == 7 {
            "src/**".into()
        } else {
            format!("src/part-{nth}.rs")
        }]
    }),
    ("globs", |nth| {
        vec![
            format!("src/*/part-{}*.rs", nth % 5_000),
            format!("docs/{}.md", nth % 100),
        ]
    }),
];

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let samples: usize = args.number("samples", 500)?;
    let mut report = Report::new("schedule", args);
    report.add_line(format!(
        "{} ready tasks of one mission, {WORKER_COUNT} workers; {} starts on each board",
        format_thousands(READY_TASKS as u64),
        format_thousands(samples as u64)
    ));
    report.add_line(
        "  they want         mode   asked  what              median        p99        max",
    );
    let mut good = true;
    for (name, wants) in BOARD_SHAPES {
        for mode in [StartMode::Flow, StartMode::Waves] {
            let mut bench = Bench::new(wants, mode)?;
            let (mut starts, mut refusals) = (Times::default(), Times::default());
            for _ in 0..samples {
                bench.start_round(&mut starts, &mut refusals)?;
            }
            for (what, times) in [("start", &mut starts), ("nothing free", &mut refusals)] {
                if times.len() == 0 {
                    continue;
                }
                let (p50, p99, max) = (
                    times.percentile(0.5),
                    times.percentile(0.99),
                    times.percentile(1.0),
                );
                report.add_line(format!(
                    "  {name:<16}  {:<5} {:>6}  {what:<12} {:>11} {:>10} {:>10}",
                    if mode == StartMode::Flow {
                        "flow"
                    } else {
                        "waves"
                    },
                    times.len(),
                    format_us(p50),
                    format_us(p99),
                    format_us(max)
                ));
                report.set_value(
                    &format!("{name} {mode:?} {what}"),
                    json!({ "median_us": p50.as_secs_f64() * 1e6, "p99_us": p99.as_secs_f64() * 1e6, "max_us": max.as_secs_f64() * 1e6 }),
                );
                good &= p50.as_secs_f64() < 1e-3;
            }
        }
    }
    report.check_target(good, "the median of one start is under 1 ms on every board");
    report.finish()
}

struct Bench {
    board: Board,
    now: Now,
    running: Vec<PollGrant>,
}

impl Bench {
    fn new(wants: fn(usize) -> Vec<String>, mode: StartMode) -> anyhow::Result<Bench> {
        let mut bench = Bench {
            board: Board::default(),
            now: Now::default(),
            running: vec![],
        };
        let project = ProjectName::new("shop")?;
        bench.run_command(Command::AddProject(project::AddProject {
            name: project.clone(),
            location: "/shop".into(),
            trunk: BranchName::new("main")?,
            validation: vec!["make test".into()],
            validation_timeout_ms: 60_000,
            settings: project::ProjectSettings::default(),
        }))?;
        bench.run_command(Command::SetLimits {
            limits: MachineLimits {
                max_attempts: 100,
                ..MachineLimits::default()
            },
        })?;
        bench.run_command(Command::RegisterAgent(agent::RegisterAgent {
            name: AgentName::new("ada")?,
            runtime: agent::Runtime::Outside,
            role: agent::Role::Worker,
            provider: None,
            profile: agent::Profile::default(),
            description: String::new(),
            max_tasks: 20,
        }))?;
        let mut tasks = Vec::with_capacity(READY_TASKS);
        for nth in 0..READY_TASKS {
            let files = wants(nth)
                .iter()
                .map(|want| PathPattern::new(want))
                .collect::<Result<_, _>>()?;
            let add = AddTask {
                issue_type: IssueType::Feature,
                files,
                validation: Validation {
                    tests: vec!["make test".into()],
                    ..Validation::default()
                },
                ..plain_task(&project, format!("Make part {nth} work"))
            };
            tasks.push(PlannedTask {
                task: add,
                after: vec![],
                assign: None,
            });
        }
        let start = mission::StartMission {
            project,
            title: "A goal".into(),
            agents: vec![AgentName::new("ada")?],
            team: None,
            max_workers: WORKER_COUNT,
            mode,
            isolate: false,
            wave_commits: false,
            serial: vec![],
            budget: Default::default(),
        };
        bench.run_command(Command::StartMission {
            mission: start,
            tasks,
            adopt: vec![],
        })?;
        Ok(bench)
    }

    /// Times starts until no task is free or all agents work. Then the oldest attempt ends,
    /// untimed.
    fn start_round(&mut self, starts: &mut Times, refusals: &mut Times) -> anyhow::Result<()> {
        while self.running.len() < WORKER_COUNT as usize {
            let poll = PollRequest {
                agent: AgentName::new("ada")?,
                project: None,
                mission: None,
                task: None,
                lease_ms: None,
                no_workspace: false,
                by_hand: false,
            };
            self.now = Now {
                fleet_ms: self.now.fleet_ms + 1,
                unix_ms: self.now.unix_ms + 1,
            };
            let request = Request {
                by: Actor::Regatta,
                key: None,
                command: Command::Poll(poll),
            };
            let began = Instant::now();
            let decided = black_box(decide(&self.board, request.clone(), self.now));
            let took = began.elapsed();
            let commit = decided.map_err(|refusal| anyhow::anyhow!("{}", refusal.message()))?;
            self.board = commit.board;
            match commit.outcome {
                CommandOutcome::Polled(Some(grant)) => {
                    starts.add(took);
                    self.running.push(grant);
                }
                _ => {
                    refusals.add(took);
                    break;
                }
            }
        }
        if !self.running.is_empty() {
            let PollGrant {
                task,
                attempt,
                token,
                ..
            } = self.running.remove(0);
            self.run_command(Command::GiveUp {
                task,
                attempt,
                token,
                reason: None,
            })?;
        }
        Ok(())
    }

    fn run_command(&mut self, command: Command) -> anyhow::Result<()> {
        let request = Request {
            by: Actor::Regatta,
            key: None,
            command,
        };
        let decision = decide(&self.board, request.clone(), self.now)
            .map_err(|refusal| anyhow::anyhow!("{}", refusal.message()))?;
        self.board = decision.board;
        Ok(())
    }
}
