//! Boards with many open tasks, built with commands as people would use them.

use regatta_core::board::Board;
use regatta_core::command::{Actor, Command, CommandOutcome, PlannedTask, Request, decide};
use regatta_core::ids::{AgentName, BranchName, Now, ProjectName, TaskId};
use regatta_core::pattern::PathPattern;
use regatta_core::schedule::PollRequest;
use regatta_core::task::{AddTask, AssignMode, IssueType, Validation};
use regatta_core::{agent, limits, mission, project};
use regatta_engine::ports::store::StoreBatch;

use crate::rng::Rng;

pub(crate) const AGENT_COUNT: usize = 100;
const PROJECTS: [&str; 3] = ["shop", "docs-site", "ledger"];

/// A board, with the batch that the store has not received yet.
pub(crate) struct BenchFleet {
    pub(crate) board: Board,
    pub(crate) now: Now,
    pub(crate) batch: StoreBatch,
    pub(crate) rng: Rng,
    tasks_added: usize,
}

/// Returns an ordinary task.
pub(crate) fn plain_task(project: &ProjectName, subject: String) -> AddTask {
    AddTask {
        project: project.clone(),
        subject,
        description: String::new(),
        issue_type: IssueType::default(),
        files: vec![],
        validation: Validation::default(),
        blocked_by: vec![],
        priority: 2,
        expects: Default::default(),
        effort: None,
        model: None,
        provider: None,
        script: None,
        alias: None,
        ratchet: None,
        backlog: false,
    }
}

pub(crate) fn agent_name(number: usize) -> anyhow::Result<AgentName> {
    Ok(AgentName::new(&format!("shop-dev/worker-{number}"))?)
}

impl BenchFleet {
    /// Returns a board with three projects, a hundred agents, five missions and no running task.
    pub(crate) fn new() -> anyhow::Result<BenchFleet> {
        let now = Now {
            fleet_ms: 1,
            unix_ms: 1_767_225_600_000,
        };
        let mut fleet = BenchFleet {
            board: Board::default(),
            now,
            batch: StoreBatch::default(),
            rng: Rng::new(3),
            tasks_added: 0,
        };
        fleet.run(Command::SetLimits {
            limits: limits::MachineLimits {
                max_attempts: 400,
                ..Default::default()
            },
        })?;
        for name in PROJECTS {
            fleet.run(Command::AddProject(project::AddProject {
                name: ProjectName::new(name)?,
                location: format!("/src/{name}"),
                trunk: BranchName::new("main")?,
                validation: vec!["make test".into()],
                validation_timeout_ms: 600_000,
                settings: project::ProjectSettings::default(),
            }))?;
        }
        for number in 0..AGENT_COUNT {
            fleet.run(Command::RegisterAgent(agent::RegisterAgent {
                name: agent_name(number)?,
                runtime: agent::Runtime::Outside,
                role: agent::Role::Worker,
                provider: None,
                profile: regatta_core::agent::Profile::default(),
                description: String::new(),
                max_tasks: 5,
            }))?;
        }
        Ok(fleet)
    }

    /// Decides a command and adds the result to the batch.
    pub(crate) fn run(&mut self, command: Command) -> anyhow::Result<CommandOutcome> {
        self.now.fleet_ms += 1;
        let request = Request {
            by: Actor::Person("ann".into()),
            key: None,
            command,
        };
        let decision = decide(&self.board, request.clone(), self.now)
            .map_err(|refusal| anyhow::anyhow!("{}", refusal.message()))?;
        self.board = decision.board;
        self.batch.meta = self.board.meta();
        self.batch.events.extend(decision.events);
        self.batch.rows.extend(decision.rows);
        self.batch.effects.extend(decision.effects);
        Ok(decision.outcome)
    }

    /// Returns the batch since the last call.
    pub(crate) fn take_batch(&mut self) -> StoreBatch {
        let next = StoreBatch {
            base_revision: self.board.revision,
            meta: self.board.meta(),
            ..StoreBatch::default()
        };
        std::mem::replace(&mut self.batch, next)
    }

    /// Returns the next task: with a manifest of its own, sometimes a shared file, sometimes
    /// blockers.
    pub(crate) fn next_task(&mut self) -> anyhow::Result<AddTask> {
        self.tasks_added += 1;
        let (number, dice) = (self.tasks_added, &mut self.rng);
        let name = ProjectName::new(PROJECTS[number % PROJECTS.len()])?;
        let mut files = vec![format!("src/area-{}/part-{number}/**", number % 500)];
        if dice.chance(40) {
            files.push(format!("tests/part-{number}_*.rs"));
        }
        if dice.chance(2) {
            files.push(format!("docs/chapter-{}.md", dice.below(2_000)));
        }
        let last = self.board.counters.task as usize;
        let blockers = if last > 0 && dice.chance(30) {
            1 + dice.below(2)
        } else {
            0
        };
        let blocked_by = (0..blockers)
            .map(|_| TaskId((last - dice.below(last.min(200))) as u64))
            .collect();
        let kinds = [
            IssueType::Feature,
            IssueType::Bug,
            IssueType::Task,
            IssueType::Docs,
        ];
        Ok(AddTask {
            description:
                "As a customer I want this part to work, so that I can buy what it sells. "
                    .repeat(4),
            issue_type: kinds[dice.below(kinds.len())],
            files: files
                .iter()
                .map(|file| PathPattern::new(file))
                .collect::<Result<_, _>>()?,
            validation: Validation {
                tests: vec![format!("make test-part-{number}")],
                ..Validation::default()
            },
            blocked_by,
            priority: dice.below(5) as u8,
            ..plain_task(&name, format!("Make part {number} work"))
        })
    }

    /// Adds one task, sometimes assigned to an agent.
    pub(crate) fn add_task(&mut self) -> anyhow::Result<()> {
        let task = self.next_task()?;
        let assign = if self.rng.chance(5) {
            Some(agent_name(self.rng.below(AGENT_COUNT))?)
        } else {
            None
        };
        self.run(Command::AddTask {
            task,
            assign,
            how: AssignMode::Queue,
        })
        .map(|_| ())
    }

    /// Starts a mission of forty tasks.
    pub(crate) fn start_mission(&mut self) -> anyhow::Result<()> {
        let mut tasks = Vec::new();
        for nth in 0..40 {
            let task = AddTask {
                blocked_by: vec![],
                ..self.next_task()?
            };
            let after = if nth > 4 && self.rng.chance(50) {
                vec![nth - 3]
            } else {
                vec![]
            };
            tasks.push(PlannedTask {
                task,
                after,
                assign: None,
            });
        }
        let agents = (0..5)
            .map(|_| agent_name(self.rng.below(AGENT_COUNT)))
            .collect::<Result<_, _>>()?;
        let project = ProjectName::new(PROJECTS[0])?;
        let mission = mission::StartMission {
            project,
            title: "A goal".into(),
            agents,
            team: None,
            max_workers: 5,
            mode: mission::StartMode::Flow,
            isolate: false,
            wave_commits: false,
            serial: vec![],
            budget: Default::default(),
        };
        self.run(Command::StartMission {
            mission,
            tasks,
            adopt: vec![],
        })
        .map(|_| ())
    }

    /// Returns a board with this many open tasks.
    pub(crate) fn with_tasks(open: usize) -> anyhow::Result<BenchFleet> {
        let mut fleet = BenchFleet::new()?;
        for _ in 0..5 {
            fleet.start_mission()?;
        }
        while fleet.board.tasks.len() < open {
            fleet.add_task()?;
        }
        Ok(fleet)
    }

    pub(crate) fn poll_command(agent: usize) -> anyhow::Result<Command> {
        Ok(Command::Poll(PollRequest {
            agent: agent_name(agent)?,
            project: None,
            mission: None,
            task: None,
            lease_ms: None,
            no_workspace: false,
            by_hand: false,
        }))
    }
}
