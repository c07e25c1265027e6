//! The fakes around an engine, and helpers that send requests and wait for states.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use regatta_core::board::Board;
use regatta_core::claim::{Acquire, Acquired, ClaimMode, ClaimOwner};
use regatta_core::command::{Actor, Command, CommandOutcome, PlannedTask, Request};
use regatta_core::ids::{
    AgentName, AttemptId, BranchName, ChannelName, ClaimId, MissionId, ProjectName, RequestKey,
    TaskId,
};
use regatta_core::pattern::{PathPattern, Uri};
use regatta_core::{agent, bus, mission, project, schedule, task};
use regatta_engine::ports::agents::Exit;
use regatta_engine::ports::store::Store;
use regatta_engine::timer::{Clock, MachineClock};
use regatta_engine::{CommandFailure, CommandReply, Engine, EngineSettings, Ports, StartedEngine};
use regatta_testkit::crash_points::{EngineLife, StoreInLife, TEST_TIMEOUT};
use regatta_testkit::fake_agents::{FakeAgents, FakeProgram};
use regatta_testkit::fake_clock::FakeClock;
use regatta_testkit::fake_git::FakeGit;
use regatta_testkit::fake_store::FakeStore;

/// The path of the fake repository.
pub(crate) const REPO: &str = "/nowhere/shop";

/// Everything outside the engine. It outlives every engine.
pub(crate) struct World {
    pub(crate) store: FakeStore,
    pub(crate) git: FakeGit,
    pub(crate) agents: FakeAgents,
    pub(crate) clock: FakeClock,
    /// True if the machine's clock is used instead of the fake one.
    pub(crate) uses_real_time: bool,
    pub(crate) settings: EngineSettings,
}

/// The usual program: appends its task's number to the file that the task's description names.
pub(crate) fn append_own_name(program: &FakeProgram) -> Exit {
    let file = described_file(program);
    let text = program.read(&file);
    if text.contains("<<<<<<< ") {
        // A fix-up keeps both sides.
        let marks = ["<<<<<<< ", "=======", ">>>>>>> "];
        let lines = text
            .lines()
            .filter(|line| !marks.iter().any(|mark| line.starts_with(mark)));
        program.write(
            &file,
            &lines.map(|line| format!("{line}\n")).collect::<String>(),
        );
    } else {
        program.append(&file, &format!("{}\n", program.task()));
    }
    Exit::Code(0)
}

/// Returns the file that a task's description names: the third line of the prompt, or the last
/// section's in a fix-up.
pub(crate) fn described_file(program: &FakeProgram) -> String {
    let launch = program.launch();
    let file = match launch.prompt.split_once("## THE ORIGINAL TASK") {
        None => launch.prompt.lines().nth(2),
        Some((_, task_text)) => task_text.lines().nth(5),
    };
    file.unwrap().to_owned()
}

impl World {
    /// Creates a world whose programs run `script`, with one repository.
    pub(crate) fn new(script: impl Fn(&FakeProgram) -> Exit + Send + Sync + 'static) -> World {
        let git = FakeGit::new();
        git.create_repo(Path::new(REPO), &[("README", "shop\n")]);
        git.require_check("test");
        let agents = FakeAgents::new(&git, script);
        let settings = EngineSettings {
            stop_grace: Some(Duration::from_millis(300)),
            ..EngineSettings::default()
        };
        World {
            store: FakeStore::new(),
            git,
            agents,
            clock: FakeClock::new(),
            uses_real_time: false,
            settings,
        }
    }

    /// Starts an engine in this world.
    pub(crate) fn start(&self) -> Engine {
        self.start_in(&EngineLife::new()).unwrap()
    }

    /// Starts an engine in which every call of a port is a step of `life`.
    pub(crate) fn start_in(&self, life: &EngineLife) -> Result<Engine, CommandFailure> {
        self.start_with_reports(life).map(|started| started.engine)
    }

    /// Like [`World::start_in`], but also returns the way to report to the engine.
    pub(crate) fn start_with_reports(
        &self,
        life: &EngineLife,
    ) -> Result<StartedEngine, CommandFailure> {
        let clock: Arc<dyn Clock> = if self.uses_real_time {
            Arc::new(MachineClock)
        } else {
            Arc::new(self.clock.clone())
        };
        let ports = Ports {
            store: Box::new(StoreInLife::new(life, self.store.clone())),
            git: Arc::new(self.git.with_life(life)),
            agents: Arc::new(self.agents.with_life(life)),
            clock,
        };
        Engine::start(ports, self.settings.clone())
    }

    /// Returns the number of effects that are stored and not performed.
    pub(crate) fn outbox(&self) -> usize {
        self.store.clone().load().unwrap().outbox.len()
    }
}

pub(crate) fn person() -> Actor {
    Actor::Person("ann".into())
}

pub(crate) fn person_request(command: Command) -> Request {
    Request {
        by: person(),
        key: None,
        command,
    }
}

pub(crate) fn keyed_request(key: &str, command: Command) -> Request {
    Request {
        by: person(),
        key: Some(RequestKey::new(key).unwrap()),
        command,
    }
}

pub(crate) fn submit(engine: &Engine, command: Command) -> CommandReply {
    engine.submit(person_request(command)).unwrap()
}

pub(crate) fn agent_name(text: &str) -> AgentName {
    AgentName::new(text).unwrap()
}

pub(crate) fn shop_name() -> ProjectName {
    ProjectName::new("shop").unwrap()
}

pub(crate) fn add_project() -> Command {
    Command::AddProject(project::AddProject {
        name: shop_name(),
        location: REPO.into(),
        trunk: BranchName::new("main").unwrap(),
        validation: vec!["test".into()],
        validation_timeout_ms: 60_000,
        settings: project::ProjectSettings::default(),
    })
}

pub(crate) fn register(agent: &str) -> Command {
    Command::RegisterAgent(agent::RegisterAgent {
        name: agent_name(agent),
        runtime: agent::Runtime::Command {
            argv: vec!["work".into()],
        },
        role: agent::Role::Worker,
        provider: None,
        profile: regatta_core::agent::Profile::default(),
        description: String::new(),
        max_tasks: 1,
    })
}

/// Returns the command that registers an agent whose program Regatta does not start.
pub(crate) fn register_outside(agent: &str) -> Command {
    match register(agent) {
        Command::RegisterAgent(request) => Command::RegisterAgent(agent::RegisterAgent {
            runtime: agent::Runtime::Outside,
            ..request
        }),
        other => other,
    }
}

pub(crate) fn poll_for(agent: &str) -> Command {
    Command::Poll(schedule::PollRequest {
        agent: agent_name(agent),
        project: None,
        mission: None,
        task: None,
        lease_ms: None,
        no_workspace: false,
        by_hand: false,
    })
}

pub(crate) fn polled(reply: &CommandReply) -> (AttemptId, u64) {
    match &reply.outcome {
        CommandOutcome::Polled(Some(grant)) => (grant.attempt, grant.token),
        other => panic!("{other:?}"),
    }
}

/// Returns a task that changes one file.
pub(crate) fn task_on(file: &str, manifest: &str) -> task::AddTask {
    task::AddTask {
        project: shop_name(),
        subject: format!("Change {file}"),
        description: file.into(),
        issue_type: task::IssueType::Task,
        files: vec![PathPattern::new(manifest).unwrap()],
        validation: task::Validation::default(),
        blocked_by: vec![],
        priority: 2,
        expects: task::Expects::Changes,
        effort: None,
        model: None,
        provider: None,
        script: None,
        ratchet: None,
        alias: None,
        backlog: false,
    }
}

pub(crate) fn planned(file: &str, manifest: &str, after: &[usize]) -> PlannedTask {
    PlannedTask {
        task: task_on(file, manifest),
        after: after.to_vec(),
        assign: None,
    }
}

pub(crate) fn mission(agents: &[&str], tasks: Vec<PlannedTask>) -> Command {
    let mission = mission::StartMission {
        project: shop_name(),
        title: "All of it".into(),
        agents: agents.iter().map(|agent| agent_name(agent)).collect(),
        team: None,
        max_workers: 8,
        mode: mission::StartMode::Flow,
        isolate: false,
        wave_commits: false,
        serial: vec![],
        budget: Default::default(),
    };
    Command::StartMission {
        mission,
        tasks,
        adopt: vec![],
    }
}

/// Returns a mission in waves, each of which lands as one commit.
pub(crate) fn wave_mission(agents: &[&str], tasks: Vec<PlannedTask>) -> Command {
    let Command::StartMission {
        mission,
        tasks,
        adopt,
    } = mission(agents, tasks)
    else {
        unreachable!()
    };
    let mission = mission::StartMission {
        mode: mission::StartMode::Waves,
        wave_commits: true,
        ..mission
    };
    Command::StartMission {
        mission,
        tasks,
        adopt,
    }
}

/// Registers the project and the agents, and starts a mission.
pub(crate) fn launch(
    engine: &Engine,
    agents: &[&str],
    tasks: Vec<PlannedTask>,
) -> (MissionId, Vec<TaskId>) {
    submit(engine, add_project());
    // The fake clock stands still, so a backoff would never end.
    let limits = regatta_core::limits::MachineLimits {
        retry_delay_ms: 0,
        ..engine.board().limits
    };
    submit(engine, Command::SetLimits { limits });
    for agent in agents {
        submit(engine, register(agent));
    }
    match submit(engine, mission(agents, tasks)).outcome {
        CommandOutcome::Mission { mission, tasks } => (mission, tasks),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn add_task(file: &str) -> Command {
    Command::AddTask {
        task: task_on(file, file),
        assign: None,
        how: task::AssignMode::Direct,
    }
}

pub(crate) fn post(text: &str) -> Command {
    Command::Post(bus::PostMessage {
        channel: ChannelName::new("shop").unwrap(),
        text: text.into(),
        labels: vec![],
        reply_to: None,
    })
}

pub(crate) fn acquire(owner: &str, uri: &str, wait_ms: u64) -> Acquire {
    Acquire {
        owner: ClaimOwner::Agent(agent_name(owner)),
        uris: vec![Uri::new(uri).unwrap()],
        mode: ClaimMode::Exclusive,
        ttl_ms: 60_000,
        wait_ms,
        memo: String::new(),
    }
}

pub(crate) fn granted(reply: &CommandReply) -> (ClaimId, u64) {
    match &reply.outcome {
        CommandOutcome::Claim(Acquired::Granted { claim, token, .. }) => (*claim, *token),
        other => panic!("{other:?}"),
    }
}

/// Waits until `holds` is true for the board. Panics when that takes too long.
pub(crate) fn wait_until(
    engine: &Engine,
    expectation: &str,
    holds: impl Fn(&Board) -> bool,
) -> Arc<Board> {
    let mut watch = engine.watch_board();
    let deadline = Instant::now() + TEST_TIMEOUT;
    loop {
        let board = watch.borrow_and_update().clone();
        if holds(&board) {
            return board;
        }
        let changed = block_on_until(watch.changed(), deadline);
        let tasks: Vec<_> = board
            .tasks
            .values()
            .map(|task| (task.id, task.status, task.reason.clone()))
            .collect();
        changed
            .unwrap_or_else(|| panic!("timed out waiting until {expectation}: {tasks:?}"))
            .unwrap();
    }
}

/// Waits until every task has ended and every effect is performed.
pub(crate) fn wait_until_done(engine: &Engine, life: &EngineLife, world: &World) {
    wait_until(engine, "every task has ended", |board| {
        board.counters.task > 0 && board.tasks.is_empty()
    });
    life.wait_until("every effect is performed", || world.outbox() == 0);
}

/// Waits until a task needs a person, cancels it as that person, and returns the reason it had.
pub(crate) fn wait_until_given_up(
    engine: &Engine,
    life: &EngineLife,
    world: &World,
    task: TaskId,
) -> String {
    let needs = |board: &Board| {
        board
            .tasks
            .get(&task)
            .is_some_and(|task| task.status == regatta_core::task::TaskStatus::NeedsHuman)
    };
    wait_until(engine, "the task needs a person", needs);
    let reason = engine.board().tasks[&task].reason.clone().unwrap();
    submit(
        engine,
        Command::CancelTask {
            task,
            reason: "given up".into(),
        },
    );
    wait_until_done(engine, life, world);
    reason
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread, at most until `deadline`.
pub(crate) fn block_on_until<T>(future: impl Future<Output = T>, deadline: Instant) -> Option<T> {
    let mut future = std::pin::pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(value);
        }
        let remaining = deadline.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return None;
        }
        std::thread::park_timeout(remaining);
    }
}

/// Runs a future on this thread. Panics when that takes too long.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    block_on_until(future, Instant::now() + TEST_TIMEOUT).expect("the future ends in time")
}

/// A future that a test polls by hand.
pub(crate) type PolledFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Polls a future once. Returns `None` while it is not ready.
pub(crate) fn poll<T>(future: &mut PolledFuture<'_, T>) -> Option<T> {
    match future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// Submits a request and returns at once. The request is in the writer's queue if there was room.
pub(crate) fn start_submit(
    engine: &Engine,
    request: Request,
) -> PolledFuture<'_, Result<CommandReply, CommandFailure>> {
    let mut future: PolledFuture<'_, _> = Box::pin(engine.submit_async(request));
    assert!(
        poll(&mut future).is_none(),
        "the request was answered before it could be queued"
    );
    future
}

/// Folds all recorded events into a board (D4).
pub(crate) fn folded(engine: &Engine) -> Board {
    let mut board = Board::default();
    for event in engine.history().events(0, usize::MAX).unwrap() {
        board.fold(&event);
    }
    board
}

/// Checks that nothing is left over after all work is done.
pub(crate) fn assert_clean(engine: &Engine, world: &World) {
    let board = engine.board();
    assert!(
        board.claims.is_empty(),
        "claims are left: {:?}",
        board.claims
    );
    assert!(
        board.waits.is_empty()
            && board.attempts.is_empty()
            && board.landings.is_empty()
            && board.missions.is_empty()
    );
    assert_eq!(world.git.workspaces(), [], "workspaces are left");
    // Staging directories are reused, so there are no more than were needed at the same time.
    assert!(
        world.git.staged_slots().len() <= 3,
        "staging directories are left: {:?}",
        world.git.staged_slots()
    );
    assert_eq!(world.agents.running(), [], "programs are left");
    assert_eq!(world.outbox(), 0, "effects are left");
    assert_eq!(
        folded(engine),
        *board,
        "D4: the events do not give the board"
    );
    world.git.assert_no_violations();
    world.agents.assert_no_violations();
}
