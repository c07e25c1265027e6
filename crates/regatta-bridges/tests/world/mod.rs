//! A Regatta with bridges and scripted agents that tests can stop and start again.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use regatta_bridges::Bridges;
use regatta_bridges::config::{self, AgentEntry, BridgesConfig};
use regatta_core::agent_protocol::{
    AgentEvent, AgentRequest, PermissionOption, PermissionOptionKind, PlanEntry, RequestContent,
    StopReason, ToolCall, ToolKind, ToolStatus,
};
use regatta_core::command::{Actor, Command, Request};
use regatta_core::conversation::Conversation;
use regatta_core::ids::{AgentName, BranchName, ConversationId, ProjectName};
use regatta_core::{agent, project};
use regatta_engine::ports::agents::Exit;
use regatta_engine::timer::MachineClock;
use regatta_engine::{Engine, EngineSettings, Ports, RedactFn, StartedEngine};
use regatta_testkit::crash_points::{EngineLife, StoreInLife};
use regatta_testkit::fake_agents::{FakeAgents, FakeProgram};
use regatta_testkit::fake_git::FakeGit;
use regatta_testkit::fake_store::FakeStore;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Time limit for everything, because the machine may be busy.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(40);
const REPO: &str = "/nowhere/shop";
/// The only secret that the redactor of this test knows.
pub(crate) const SECRET: &str = "hunter2secret";

pub(crate) struct World {
    pub(crate) agents: FakeAgents,
    git: FakeGit,
    store: FakeStore,
    pub(crate) vars: BTreeMap<String, String>,
    pub(crate) config: BridgesConfig,
    names: Vec<String>,
    port: u16,
    running: Option<RunningWorld>,
}

struct RunningWorld {
    engine: Engine,
    bridges: Bridges,
    server: JoinHandle<()>,
}

/// Returns the latest message to the agent.
fn message_in_prompt(program: &FakeProgram) -> String {
    let prompt = &program.launch().prompt;
    prompt
        .rsplit("```text\n")
        .next()
        .unwrap_or_default()
        .split("\n```")
        .next()
        .unwrap_or_default()
        .to_owned()
}

/// Does the work that the words of the prompt name: `wait` waits for a signal, `plan` reports a
/// plan, `ask` requests a permission, `fix` changes a file, `leak` shows a secret in the
/// plan and in the answer.
fn run_agent(program: &FakeProgram) -> Exit {
    program.emit(AgentEvent::Started {
        session: Some("s-1".into()),
        model: None,
    });
    program.emit(AgentEvent::TurnStarted { n: 0 });
    let message = message_in_prompt(program);
    let mut answer = format!("I was told: {message}");
    if message.contains("plan") {
        let entry = |text: &str, status| PlanEntry {
            text: text.into(),
            status,
        };
        let entries = vec![
            entry("look", ToolStatus::Completed),
            entry("repair", ToolStatus::InProgress),
        ];
        program.emit(AgentEvent::Plan { entries });
    }
    if message.contains("leak") {
        let entry = PlanEntry {
            text: format!("use {SECRET}"),
            status: ToolStatus::InProgress,
        };
        program.emit(AgentEvent::Plan {
            entries: vec![entry],
        });
        answer = format!("The password is {SECRET}.");
    }
    if message.contains("wait")
        && let Err(exit) = program.wait_for("go")
    {
        return exit;
    }
    if message.contains("ask") {
        let (command, paths) = (Some("npm install zod".into()), vec!["/etc/hosts".into()]);
        let tool = ToolCall {
            kind: ToolKind::Execute,
            command,
            paths,
            ..ToolCall::default()
        };
        let options = vec![PermissionOption {
            id: "yes".into(),
            name: "Yes".into(),
            kind: PermissionOptionKind::AllowOnce,
        }];
        program.emit(AgentEvent::RequestMade(AgentRequest {
            id: "7".into(),
            content: RequestContent::Permission { tool, options },
        }));
        match program.wait_for_input(|input| input.answers.iter().any(|(id, _)| id == "7")) {
            Ok(input) => answer = format!("{:?}", input.answers),
            Err(exit) => return exit,
        }
    }
    if message.contains("fix") {
        program.append("login.txt", "fixed\n");
        answer = "**Fixed** the login bug in `login.txt`: 1 < 2.".into();
    }
    program.emit(AgentEvent::TurnEnded {
        stop: StopReason::EndTurn,
        class: None,
        detail: answer,
    });
    Exit::Code(0)
}

pub(crate) fn register_agent(name: &str) -> Command {
    Command::RegisterAgent(agent::RegisterAgent {
        name: AgentName::new(name).unwrap(),
        runtime: agent::Runtime::Acp {
            argv: vec!["talks".into()],
        },
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
        git.create_repo(Path::new(REPO), &[("README", "shop\n")]);
        git.require_check("test");
        let agents = FakeAgents::new(&git, run_agent);
        let port = TcpListener::bind("127.0.0.1:0")
            .await
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        World {
            agents,
            git,
            store: FakeStore::new(),
            vars: BTreeMap::new(),
            config: BridgesConfig {
                clock: 20.0,
                ..BridgesConfig::default()
            },
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            port,
            running: None,
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub(crate) async fn start(&mut self) {
        let ports = Ports {
            store: Box::new(StoreInLife::new(&EngineLife::new(), self.store.clone())),
            git: Arc::new(self.git.with_life(&EngineLife::new())),
            agents: Arc::new(self.agents.with_life(&EngineLife::new())),
            clock: Arc::new(MachineClock),
        };
        let redact = RedactFn(Arc::new(|text| text.replace(SECRET, "[redacted]")));
        let settings = EngineSettings {
            stop_grace: Some(Duration::from_millis(300)),
            redactor: redact,
            ..EngineSettings::default()
        };
        let begun = tokio::task::spawn_blocking(move || Engine::start(ports, settings).unwrap());
        let StartedEngine {
            engine, reports, ..
        } = begun.await.unwrap();
        if engine.board().projects.is_empty() {
            self.set_up_board(&engine).await;
        }
        let listed: Vec<(String, AgentEntry)> = self
            .names
            .iter()
            .map(|name| {
                (
                    name.clone(),
                    AgentEntry {
                        command: Some("talks".into()),
                        ..AgentEntry::default()
                    },
                )
            })
            .collect();
        let vars = self.vars.clone();
        let settings = config::BridgeSettings::new(&listed, self.config.clone());
        let registry = config::read_registry(settings, &|name: &str| Ok(vars.get(name).cloned()));
        let bridges =
            Bridges::start(engine.clone(), reports.for_bridges(), registry, None).unwrap();
        let listener = TcpListener::bind(("127.0.0.1", self.port)).await.unwrap();
        let router = bridges.router();
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        self.running = Some(RunningWorld {
            engine,
            bridges,
            server,
        });
    }

    async fn set_up_board(&self, engine: &Engine) {
        let mut commands = vec![Command::AddProject(project::AddProject {
            name: ProjectName::new("shop").unwrap(),
            location: REPO.into(),
            trunk: BranchName::new("main").unwrap(),
            validation: vec!["test".into()],
            validation_timeout_ms: 60_000,
            settings: project::ProjectSettings::default(),
        })];
        for name in &self.names {
            commands.push(register_agent(name));
        }
        for command in commands {
            engine
                .submit_async(Request {
                    by: Actor::Person("ann".into()),
                    key: None,
                    command,
                })
                .await
                .unwrap();
        }
    }

    /// Ends like a killed process, so everything under way is interrupted.
    pub(crate) async fn kill(&mut self) {
        let RunningWorld {
            engine,
            bridges,
            server,
        } = self.running.take().unwrap();
        server.abort();
        let _aborted = server.await;
        drop(bridges);
        tokio::task::spawn_blocking(move || engine.shutdown())
            .await
            .unwrap();
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.running.as_ref().unwrap().engine
    }

    pub(crate) fn bridges(&self) -> &Bridges {
        &self.running.as_ref().unwrap().bridges
    }

    /// Starts sending events to the receivers of webhooks.
    pub(crate) fn send_webhooks(&mut self, data: &Path) {
        self.running
            .as_mut()
            .unwrap()
            .bridges
            .send_webhooks(data)
            .unwrap();
    }

    pub(crate) fn conversations(&self) -> Vec<Conversation> {
        self.engine()
            .board()
            .conversations
            .values()
            .map(|conversation| Conversation::clone(conversation))
            .collect()
    }

    /// Waits until a conversation satisfies `holds`.
    pub(crate) async fn wait_for(
        &self,
        id: u64,
        what: &str,
        holds: impl Fn(&Conversation) -> bool,
    ) {
        let mut changes = self.engine().watch_board();
        let deadline = tokio::time::Instant::now() + TEST_TIMEOUT;
        loop {
            let board = changes.borrow_and_update().clone();
            let conversation = board.conversations.get(&ConversationId(id));
            if conversation.is_some_and(|conversation| holds(conversation)) {
                return;
            }
            let change = tokio::time::timeout_at(deadline, changes.changed()).await;
            assert!(
                matches!(change, Ok(Ok(()))),
                "timed out before {what}: {conversation:#?}"
            );
        }
    }

    /// Waits until an instance has sent `more` more posts. Polls, because changes of the health are
    /// not announced.
    pub(crate) async fn wait_for_sent(&self, more: u64) {
        let sent = || self.bridges().list()[0].health.sent;
        let (sent_before, mut ticks) = (sent(), tokio::time::interval(Duration::from_millis(10)));
        let wait = async {
            while sent() < sent_before + more {
                ticks.tick().await;
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, wait)
            .await
            .unwrap_or_else(|_| panic!("only {} were sent", sent() - sent_before));
    }

    /// Waits until all posts of a conversation are shown and no turn works.
    pub(crate) async fn wait_until_idle(&self, id: u64) {
        self.wait_for(id, "every post is shown", |conversation| {
            conversation.current_turn().is_none() && conversation.unshown_posts().next().is_none()
        })
        .await;
    }
}
