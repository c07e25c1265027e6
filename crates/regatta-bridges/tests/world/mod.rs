//! A Regatta with bridges and scripted agents that tests can stop and start again.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use regatta_bridges::Bridges;
use regatta_bridges::registry::{self, AgentEntry, Config};
use regatta_core::command::{Actor, Command, Request};
use regatta_core::conversation::Conversation;
use regatta_core::ids::{AgentName, BranchName, ConversationId, ProjectName};
use regatta_core::session::{Ask, AskOption, OptionKind, PlanEntry, Said, Stop, Tool, ToolKind, ToolStatus, Want};
use regatta_core::{agent, project};
use regatta_engine::ports::agents::Exit;
use regatta_engine::timer::MachineClock;
use regatta_engine::{Engine, Ports, Redact, Settings};
use regatta_testkit::fake_agents::{FakeAgents, Program};
use regatta_testkit::fake_git::FakeGit;
use regatta_testkit::memory::MemoryStore;
use regatta_testkit::steps::{Life, LivingStore};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Time limit for everything, because the machine may be busy.
pub(crate) const SOON: Duration = Duration::from_secs(40);
const REPO: &str = "/nowhere/shop";
/// The only secret that the redactor of this test knows.
pub(crate) const SECRET: &str = "hunter2secret";

pub(crate) struct World {
    pub(crate) agents: FakeAgents,
    git: FakeGit,
    store: MemoryStore,
    pub(crate) vars: BTreeMap<String, String>,
    pub(crate) config: Config,
    names: Vec<String>,
    port: u16,
    live: Option<Live>,
}

struct Live {
    engine: Engine,
    bridges: Bridges,
    door: JoinHandle<()>,
}

/// Returns the latest message to the agent.
fn told(program: &Program) -> String {
    let prompt = &program.launch().prompt;
    prompt.rsplit("```text\n").next().unwrap_or_default().split("\n```").next().unwrap_or_default().to_owned()
}

/// Does the work that the words of the prompt name: `wait` waits for a signal, `plan` reports a
/// plan, `ask` requests a permission, `fix` changes a file, `leak` shows a secret in the plan and
/// in the answer.
fn work(program: &Program) -> Exit {
    program.say(Said::Started { session: Some("s-1".into()), model: None });
    program.say(Said::TurnStarted { n: 0 });
    let told = told(program);
    let mut answer = format!("I was told: {told}");
    if told.contains("plan") {
        let entry = |text: &str, status| PlanEntry { text: text.into(), status };
        let entries = vec![entry("look", ToolStatus::Completed), entry("repair", ToolStatus::InProgress)];
        program.say(Said::Plan { entries });
    }
    if told.contains("leak") {
        let entry = PlanEntry { text: format!("use {SECRET}"), status: ToolStatus::InProgress };
        program.say(Said::Plan { entries: vec![entry] });
        answer = format!("The password is {SECRET}.");
    }
    if told.contains("wait")
        && let Err(exit) = program.wait_for("go")
    {
        return exit;
    }
    if told.contains("ask") {
        let (command, paths) = (Some("npm install zod".into()), vec!["/etc/hosts".into()]);
        let tool = Tool { kind: ToolKind::Execute, command, paths, ..Tool::default() };
        let options = vec![AskOption { id: "yes".into(), name: "Yes".into(), kind: OptionKind::AllowOnce }];
        program.say(Said::Asked(Ask { id: "7".into(), want: Want::Permission { tool, options } }));
        match program.until_wished(|it| it.answers.iter().any(|it| it.0 == "7")) {
            Ok(wishes) => answer = format!("{:?}", wishes.answers),
            Err(exit) => return exit,
        }
    }
    if told.contains("fix") {
        program.append("login.txt", "fixed\n");
        answer = "**Fixed** the login bug in `login.txt`: 1 < 2.".into();
    }
    program.say(Said::TurnEnded { stop: Stop::EndTurn, class: None, detail: answer });
    Exit::Code(0)
}

pub(crate) fn register(name: &str) -> Command {
    Command::RegisterAgent(agent::Register {
        name: AgentName::new(name).unwrap(),
        runtime: agent::Runtime::Acp { argv: vec!["talks".into()] },
        role: agent::Role::Worker,
        provider: Some("acme".into()),
        profile: agent::Profile::default(),
        description: String::new(),
        max_tasks: 3,
    })
}

impl World {
    pub(crate) async fn new(names: &[&str]) -> World {
        let git = FakeGit::new();
        git.create(Path::new(REPO), &[("README", "shop\n")]);
        git.require("test");
        let agents = FakeAgents::new(&git, work);
        let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        World {
            agents,
            git,
            store: MemoryStore::new(),
            vars: BTreeMap::new(),
            config: Config { clock: 20.0, ..Config::default() },
            names: names.iter().map(|it| (*it).to_owned()).collect(),
            port,
            live: None,
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub(crate) async fn start(&mut self) {
        let ports = Ports {
            store: Box::new(LivingStore::new(&Life::new(), self.store.clone())),
            git: Arc::new(self.git.in_life(&Life::new())),
            agents: Arc::new(self.agents.in_life(&Life::new())),
            clock: Arc::new(MachineClock),
        };
        let redact = Redact(Arc::new(|text| text.replace(SECRET, "[redacted]")));
        let settings = Settings { grace: Some(Duration::from_millis(300)), redact, ..Settings::default() };
        let begun = tokio::task::spawn_blocking(move || Engine::start(ports, settings).unwrap().0);
        let engine = begun.await.unwrap();
        if engine.board().projects.is_empty() {
            self.furnish(&engine).await;
        }
        let listed: Vec<(String, AgentEntry)> = self
            .names
            .iter()
            .map(|it| (it.clone(), AgentEntry { command: Some("talks".into()), ..AgentEntry::default() }))
            .collect();
        let vars = self.vars.clone();
        let settings = registry::Settings::new(&listed, self.config.clone());
        let registry = registry::read(settings, &|name: &str| Ok(vars.get(name).cloned()));
        let bridges = Bridges::start(engine.clone(), registry, None).unwrap();
        let listener = TcpListener::bind(("127.0.0.1", self.port)).await.unwrap();
        let router = bridges.router();
        let door = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        self.live = Some(Live { engine, bridges, door });
    }

    async fn furnish(&self, engine: &Engine) {
        let by = || Actor::Person("ann".into());
        let mut commands = vec![Command::AddProject(project::Add {
            name: ProjectName::new("shop").unwrap(),
            location: REPO.into(),
            trunk: BranchName::new("main").unwrap(),
            validation: vec!["test".into()],
            validation_timeout_ms: 60_000,
            settings: project::Settings::default(),
        })];
        for name in &self.names {
            commands.push(register(name));
        }
        for command in commands {
            engine.ask(Request { by: by(), key: None, command }).await.unwrap();
        }
    }

    /// Ends like a killed process, so everything under way is interrupted.
    pub(crate) async fn end(&mut self) {
        let Live { engine, bridges, door } = self.live.take().unwrap();
        door.abort();
        let _cut_off = door.await;
        drop(bridges);
        tokio::task::spawn_blocking(move || engine.shutdown()).await.unwrap();
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.live.as_ref().unwrap().engine
    }

    pub(crate) fn bridges(&self) -> &Bridges {
        &self.live.as_ref().unwrap().bridges
    }

    /// Starts sending events to the receivers of webhooks.
    pub(crate) fn tell(&mut self, data: &Path) {
        self.live.as_mut().unwrap().bridges.tell(data).unwrap();
    }

    pub(crate) fn conversations(&self) -> Vec<Conversation> {
        self.engine().board().conversations.values().map(|it| Conversation::clone(it)).collect()
    }

    /// Waits until a conversation satisfies `holds`.
    pub(crate) async fn until(&self, id: u64, what: &str, holds: impl Fn(&Conversation) -> bool) {
        let mut changes = self.engine().watch();
        let deadline = tokio::time::Instant::now() + SOON;
        loop {
            let board = changes.borrow_and_update().clone();
            let it = board.conversations.get(&ConversationId(id));
            if it.is_some_and(|it| holds(it)) {
                return;
            }
            let more = tokio::time::timeout_at(deadline, changes.changed()).await;
            assert!(matches!(more, Ok(Ok(()))), "timed out before {what}: {it:#?}");
        }
    }

    /// Waits until an instance has sent `more` more posts. Polls, because changes of the health are
    /// not announced.
    pub(crate) async fn until_sent(&self, more: u64) {
        let sent = || self.bridges().list()[0].health.sent;
        let (from, mut ticks) = (sent(), tokio::time::interval(Duration::from_millis(10)));
        let wait = async {
            while sent() < from + more {
                ticks.tick().await;
            }
        };
        tokio::time::timeout(SOON, wait).await.unwrap_or_else(|_| panic!("only {} were sent", sent() - from));
    }

    /// Waits until all posts of a conversation are shown and no turn works.
    pub(crate) async fn until_quiet(&self, id: u64) {
        self.until(id, "every post is shown", |it| it.working().is_none() && it.unshown().next().is_none()).await;
    }
}
